"""
Nearest neighbors of digits with uneven illumination
====================================================

A random brightness gradient is added to each image of the digits dataset. It dominates the
Euclidean distance: the nearest neighbor of a 3 is any digit that is illuminated from the same side.
From the labels, `BoostMetric` learns to ignore the gradient.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors

from boostmetric import BoostMetric, knn_error
from boostmetric.plots import ProjectionDisplay

images, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
down, across = np.mgrid[-1:1:8j, -1:1:8j]
slopes = np.stack([down.ravel(), across.ravel()])
X = images + rng.normal(scale=8, size=(len(y), 2)) @ slopes
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=900, stratify=y, random_state=0
)

# %%
# Error of three nearest neighbors, before and after.
learner = BoostMetric(loss="squared_hinge", alpha=1e-4, n_neighbors=5).fit(X_train, y_train)
Z_train, Z_test = learner.transform(X_train), learner.transform(X_test)
before = knn_error(X_train, y_train, X_test, y_test)
after = knn_error(Z_train, y_train, Z_test, y_test)
print(f"Euclidean {before:.1%}, learned {after:.1%}")

# %%
# Six test images that the Euclidean distance misclassifies, and their nearest training images.
nearest_before = NearestNeighbors(n_neighbors=1).fit(X_train).kneighbors(X_test)[1][:, 0]
nearest_after = NearestNeighbors(n_neighbors=1).fit(Z_train).kneighbors(Z_test)[1][:, 0]
wrong = np.flatnonzero(y_train[nearest_before] != y_test)[:6]
rows = {
    "test image": (X_test[wrong], y_test[wrong]),
    "nearest, Euclidean": (X_train[nearest_before[wrong]], y_train[nearest_before[wrong]]),
    "nearest, learned": (X_train[nearest_after[wrong]], y_train[nearest_after[wrong]]),
}
fig, axes = plt.subplots(3, 6, figsize=(8, 4.5), layout="constrained")
for (name, shown), line in zip(rows.items(), axes, strict=True):
    for image, label, ax in zip(*shown, line, strict=True):
        ax.imshow(image.reshape(8, 8), cmap="gray")
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"a {label}", fontsize=9)
    line[0].set_ylabel(name, rotation="horizontal", ha="right", va="center")

# %%
# Test images on their first two principal axes. Before, these are the two directions of the
# gradient, and all digits overlap; after the transformation the gradient has no influence.
ProjectionDisplay.from_estimator(learner, X_test, y_test)
plt.show()
