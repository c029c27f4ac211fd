"""How good a metric is: the error of nearest neighbours, the comparisons it satisfies."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.neighbors import NearestNeighbors

from boostmetric.comparisons import Comparisons
from boostmetric.laplacian import ComparisonOperator
from boostmetric.metric import Metric


def knn_error(
    X_train: ArrayLike,
    y_train: ArrayLike,
    X_test: ArrayLike,
    y_test: ArrayLike,
    n_neighbors: int = 3,
    *,
    ties: str = "nearest",
    sample_weight: NDArray | None = None,
    n_jobs: int | None = None,
) -> float:
    """The share of test points that their nearest training points classify wrongly.

    The class with the most of the `n_neighbors` nearest points wins. Of several, `ties="nearest"`
    takes the one with the nearest point, and `ties="first"` the one that sorts first, as
    scikit-learn's classifier does; on data of many classes, such as `letter`, the latter costs
    half a per cent.

    Examples
    --------
    >>> knn_error([[0], [1], [4], [5]], list("abbb"), [[0.2], [4.2]], list("ab"), n_neighbors=1)
    0.0
    """
    X_train, X_test = np.asarray(X_train), np.asarray(X_test)
    neighbors = nearest_labels(X_train, np.asarray(y_train), X_test, n_neighbors, n_jobs)
    wrong = majority(neighbors, ties) != np.asarray(y_test)
    return float(np.average(wrong, weights=sample_weight))


def nearest_labels(
    X_train: NDArray, y_train: NDArray, X_test: NDArray, n_neighbors: int, n_jobs: int | None = None
) -> NDArray:
    """The labels of the nearest training points of each test point, the nearest first."""
    index = NearestNeighbors(n_neighbors=min(n_neighbors, len(y_train)), n_jobs=n_jobs)
    labels: NDArray = y_train[index.fit(X_train).kneighbors(X_test, return_distance=False)]
    return labels


def majority(neighbors: NDArray, ties: str = "nearest") -> NDArray:
    """The most frequent label of each row; for `ties` see `knn_error`.

    Examples
    --------
    >>> majority(np.array([[2, 1, 0], [2, 1, 1]])).tolist()
    [2, 1]
    >>> majority(np.array([[2, 1, 0], [2, 1, 1]]), ties="first").tolist()
    [0, 1]
    """
    if ties not in ("nearest", "first"):
        raise ValueError(f"ties={ties!r} will not do: 'nearest' or 'first' is needed.")
    if ties == "first":
        neighbors = np.sort(neighbors, axis=1)
    votes = (neighbors[:, :, None] == neighbors[:, None, :]).sum(axis=2)
    winners: NDArray = neighbors[np.arange(len(neighbors)), votes.argmax(axis=1)]
    return winners


def satisfied_share(metric: Metric, X: NDArray, comparisons: Comparisons) -> float:
    """The share of comparisons with a positive margin, each counted by its weight.

    Examples
    --------
    >>> c = Comparisons.from_triplets([[0, 1, 2], [0, 2, 1]])
    >>> satisfied_share(Metric(np.eye(1), np.ones(1)), np.array([[0.0], [1.0], [3.0]]), c)
    0.5
    """
    counted = comparisons.counted()
    values = ComparisonOperator(X, counted).values(metric)
    gaps = 0 if counted.gaps is None else counted.gaps
    return float(np.average(values > gaps, weights=counted.weights))
