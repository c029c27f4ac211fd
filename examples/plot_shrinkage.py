"""
Few comparisons: shrinkage toward the starting metric
=====================================================

A few comparisons say nothing about most directions. The Frobenius norm gives such directions an
eigenvalue of 0, so that the learned metric ignores them. `Shrinkage` penalizes the distance from a
multiple of the starting metric instead: what the comparisons do not determine remains as it was.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs
from sklearn.model_selection import train_test_split

from boostmetric import BoostMetric, Comparisons, Metric, satisfied_share

centers = 0.8 * np.random.default_rng(0).normal(size=(10, 30))
X, y = make_blobs(1000, centers=centers, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

# %%
# Random triplets (a, b, c): a is closer to b, a point of its class, than to c, a point of another
# class. The quality of a metric is the share of 5,000 triplets of test points that it satisfies.


def random_triplets(y, n_triplets, seed):
    rows = np.random.default_rng(seed).integers(len(y), size=(60 * n_triplets, 3))
    a, b, c = y[rows.T]
    return rows[(a == b) & (a != c) & (rows[:, 0] != rows[:, 1])][:n_triplets]


held_out = Comparisons.from_triplets(random_triplets(y_test, 5000, seed=100))
counts = [5, 10, 20, 50, 100, 300, 1000]
learners = {
    name: BoostMetric(regularizer=name, alpha=0.1, init=None, verify=False)
    for name in ("frobenius", "shrinkage")
}
shares, spectra = {}, {}
for name, learner in learners.items():
    shares[name] = np.zeros((5, len(counts)))
    for column, count in enumerate(counts):
        for seed in range(5):
            learner.fit(X_train, comparisons=random_triplets(y_train, count, seed))
            shares[name][seed, column] = learner.score(X_test, comparisons=held_out)
        if count == 10:
            values = np.zeros(X.shape[1])
            values[: len(learner.components_)] = learner.metric_.eigenvalues
            spectra[name] = values / values.mean()

# %%
# Left: with 10 triplets, the Frobenius norm ignores half of the 30 dimensions. Shrinkage keeps the
# eigenvalues of directions that no triplet compares. Right: shrinkage is never worse than the
# Euclidean distance here. With many triplets, the Frobenius norm is as good or slightly better.
colors = {"frobenius": "#D55E00", "shrinkage": "#0072B2"}
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
for name, color in colors.items():
    marker = "o" if name == "shrinkage" else "s"
    left.plot(np.arange(1, 31), spectra[name], f"{marker}-", color=color, markersize=4)
    right.plot(counts, 100 * shares[name].mean(axis=0), f"{marker}-", color=color, label=name)
left.axhline(1, color="gray", linestyle="--", linewidth=1)
left.set_xlabel("number of the eigenvalue")
left.set_ylabel("eigenvalue / mean, 10 triplets")
euclidean = satisfied_share(Metric(np.eye(30), np.ones(30)), X_test, held_out)
right.axhline(100 * euclidean, color="gray", linestyle="--", linewidth=1, label="Euclidean")
right.set_xscale("log")
right.set_xlabel("number of triplets")
right.set_ylabel("test triplets satisfied, %")
right.legend(frameon=False)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
