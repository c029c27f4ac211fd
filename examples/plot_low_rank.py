"""
Dimensionality reduction with a low-rank metric
===============================================

Digits with uneven illumination: 64 pixels, with a random brightness gradient added to each image.
The trace penalty keeps the rank of the metric low. Its leading eigenvectors suffice for
nearest-neighbor search, so images can be stored and searched in a dozen dimensions.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from boostmetric import BoostMetric, knn_error
from boostmetric.plots import SpectrumDisplay

images, y = load_digits(return_X_y=True)
down, across = np.mgrid[-1:1:8j, -1:1:8j]
slopes = np.stack([down.ravel(), across.ravel()])
X = images + np.random.default_rng(0).normal(scale=8, size=(len(y), 2)) @ slopes
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=400, stratify=y, random_state=0
)
learner = BoostMetric(
    loss="squared_hinge",
    solver="totally_corrective",
    regularizer="trace",
    alpha=0.02,
    n_passes=1,
    tol=0.02,
    verify=False,  # a low rank is wanted, even if the start is better
).fit(X_train, y_train)

# %%
# `Metric.truncate` keeps the leading eigenvectors, as does ``BoostMetric(n_components=5)``. PCA to
# the same number of dimensions does not use labels.
ranks = [1, 2, 3, 5, 8, 12, 20, 40, 64]
errors = {"PCA": [], "learned": []}
for rank in ranks:
    for name, projection in (
        ("PCA", PCA(rank, random_state=0).fit(X_train)),
        ("learned", learner.metric_.truncate(rank)),
    ):
        Z_train, Z_test = projection.transform(X_train), projection.transform(X_test)
        errors[name].append(knn_error(Z_train, y_train, Z_test, y_test))

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
SpectrumDisplay.from_estimator(learner, ax=left)
for name, color, line in (("PCA", "#D55E00", "s--"), ("learned", "#0072B2", "o-")):
    right.plot(ranks, [100 * error for error in errors[name]], line, color=color)
    right.annotate(
        name,
        (ranks[-1], 100 * errors[name][-1]),
        xytext=(0, 8),
        textcoords="offset points",
        color=color,
        ha="right",
    )
right.set_xscale("log")
right.set_xticks(ranks, [str(rank) for rank in ranks])
right.minorticks_off()
right.set_ylim(0)
right.set_xlabel("dimensions kept")
right.set_ylabel("test error of 3 nearest neighbors, %")
right.spines[["top", "right"]].set_visible(False)
plt.show()
