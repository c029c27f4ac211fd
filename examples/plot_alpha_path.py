"""
Regularization path
===================

The trace penalty limits the number of directions that a metric uses. `alpha_path` goes from a
strong penalty to a weak one and starts every fit from the previous metric, so the whole path takes
little longer than its last fit.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from boostmetric import Comparisons, alpha_path, boost, knn_error

X, y = make_classification(
    1200, 30, n_informative=5, n_redundant=5, n_classes=3, flip_y=0.05, random_state=2
)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=500, random_state=0)

# %%
# The values are relative to the alpha above which M = 0 is optimal.
alphas = np.geomspace(0.9, 1e-3, 16)
learn = partial(
    boost,
    X_train,
    Comparisons.from_labels(X_train, y_train),
    "logistic",
    solver="totally_corrective",
)
path = list(alpha_path(learn, alphas))
errors = [
    knn_error(point.metric.transform(X_train), y_train, point.metric.transform(X_test), y_test)
    for point in path
]

# %%
# From left to right the penalty decreases, and eigenvalues become nonzero one after another. The
# last ones fit noise in the training points, and the test error increases again.
shares = np.zeros((len(path), X.shape[1]))
for row, point in zip(shares, path, strict=True):
    values = point.metric.eigenvalues
    row[: len(values)] = values / values.sum()
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
left.stackplot(alphas, shares.T, colors=plt.get_cmap("cividis")(np.linspace(0, 1, 12)))
left.margins(0)
left.set_ylabel("eigenvalues, shares of the trace")
right.plot(alphas, [100 * error for error in errors], "o-", color="#0072B2")
best = int(np.argmin(errors))
right.annotate(
    f"rank {len(path[best].metric.eigenvalues)}",
    (alphas[best], 100 * errors[best]),
    xytext=(0, -16),
    textcoords="offset points",
    ha="center",
)
right.margins(y=0.15)
right.set_ylabel("test error of 3 nearest neighbors, %")
for ax in (left, right):
    ax.set_xscale("log")
    ax.invert_xaxis()
    ax.set_xlabel("alpha, relative to the largest")
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
