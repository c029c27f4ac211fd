"""Nearest-neighbor classification with the two rules for ties that the tables report."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.neighbors import NearestNeighbors


def neighbor_labels(Z: ArrayLike, y: NDArray, W: ArrayLike, n_neighbors: int = 3) -> NDArray:
    """Return the labels of the nearest training points of each test point, the nearest first.

    Parameters
    ----------
    Z, y : training points of shape (n, D) and their labels
    W : test points of shape (q, D)
    n_neighbors : number of neighbors
    """
    index = NearestNeighbors(n_neighbors=min(n_neighbors, len(y))).fit(Z)
    labels: NDArray = y[index.kneighbors(W, return_distance=False)]
    return labels


def majority(neighbors: NDArray, ties: str) -> NDArray:
    """Return the most frequent label of each row.

    If several labels are equally frequent, `ties="nearest"` takes the one that comes first in the
    row, and `ties="first"` the one that sorts first, as in scikit-learn's classifier. With many
    classes, as in `letter`, the latter has half a percentage point more errors.

    Examples
    --------
    >>> majority(np.array([[2, 1, 0], [2, 1, 1]]), ties="nearest").tolist()
    [2, 1]
    >>> majority(np.array([[2, 1, 0], [2, 1, 1]]), ties="first").tolist()
    [0, 1]
    """
    if ties not in ("nearest", "first"):
        raise ValueError(f"ties must be 'nearest' or 'first', got {ties!r}.")
    if ties == "first":
        neighbors = np.sort(neighbors, axis=1)
    votes = (neighbors[:, :, None] == neighbors[:, None, :]).sum(axis=2)
    winners: NDArray = neighbors[np.arange(len(neighbors)), votes.argmax(axis=1)]
    return winners
