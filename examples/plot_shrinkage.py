"""
Few comparisons: shrinkage toward the starting metric
=====================================================

With few comparisons, most directions of the space are not compared at all. The Frobenius norm makes
their eigenvalues small, so that the learned metric ignores these directions. `Shrinkage` penalizes
the distance from a multiple of the starting metric instead: what the comparisons do not change
remains as it was.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from boostmetric import BoostMetric, Comparisons, Metric

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

# %%
# Random triplets (a, b, c): a is closer to b, of the same class, than to c, of the other one.


def random_triplets(y, n_triplets, seed):
    rows = np.random.default_rng(seed).integers(len(y), size=(20 * n_triplets, 3))
    a, b, c = y[rows.T]
    return rows[(a == b) & (a != c) & (rows[:, 0] != rows[:, 1])][:n_triplets]


counts = [10, 20, 40, 80, 160, 320, 640]
settings = {
    "Frobenius": {"regularizer": "frobenius", "alpha": 1e-2, "init": None},
    "shrinkage": {"regularizer": "shrinkage", "alpha": 1.0, "init": None},
}
held_out = Comparisons.from_triplets(random_triplets(y_test, 5000, seed=100))
shares = {name: np.zeros((10, len(counts))) for name in settings}
for seed in range(10):
    for column, count in enumerate(counts):
        triplets = random_triplets(y_train, count, seed)
        for name, setting in settings.items():
            learner = BoostMetric(**setting).fit(X_train, comparisons=triplets)
            shares[name][seed, column] = learner.score(X_test, comparisons=held_out)
