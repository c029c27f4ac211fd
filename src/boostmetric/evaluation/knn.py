"""Nearest-neighbor error, and the share of comparisons that a metric satisfies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.neighbors import NearestNeighbors

from boostmetric.data.labels import as_indicator
from boostmetric.data.points import Points, as_points
from boostmetric.metric import Metric
from boostmetric.problem import ComparisonOperator, Comparisons


def knn_error(
    X_train: ArrayLike | Points,
    y_train: ArrayLike,
    X_test: ArrayLike | Points | None = None,
    y_test: ArrayLike | None = None,
    n_neighbors: int = 3,
    *,
    ties: str = "nearest",
    sample_weight: NDArray | None = None,
    n_jobs: int | None = None,
) -> float:
    """The share of test points that k-nearest-neighbor classification gets wrong.

    Without `X_test` and `y_test`, each training point is classified by the others (leave-one-out).

    If several classes are equally frequent among the `n_neighbors` nearest points, `ties="nearest"`
    takes the one with the nearest point, and `ties="first"` the one that sorts first, as in
    scikit-learn's classifier. With many classes, as in `letter`, the latter has half a percentage
    point more errors.

    Examples
    --------
    >>> knn_error([[0], [1], [4], [5]], list("abbb"), [[0.2], [4.2]], list("ab"), n_neighbors=1)
    0.0
    """
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be passed together; one of them is None.")
    known = np.asarray(y_train)
    truth = known if y_test is None else np.asarray(y_test)
    if known.ndim != 1:
        raise ValueError(
            f"y_train must have shape (n,), got {known.shape}. For multilabel targets use "
            "unlike_share."
        )
    queries = None if X_test is None else as_points(X_test)
    rows = nearest_rows(as_points(X_train), queries, n_neighbors, n_jobs)
    return float(np.average(neighbor_errors(known, rows, truth, ties), weights=sample_weight))


def unlike_share(
    X_train: ArrayLike | Points,
    Y_train: ArrayLike | csr_array,
    X_test: ArrayLike | Points,
    Y_test: ArrayLike | csr_array,
    n_neighbors: int = 3,
    *,
    sample_weight: NDArray | None = None,
    n_jobs: int | None = None,
) -> float:
    """The mean share of nearest training points that have no label in common with a test point.

    The counterpart of the nearest-neighbor error for multilabel targets.

    Parameters
    ----------
    X_train, X_test : arrays of shape (n, D), dense or sparse
    Y_train, Y_test : indicators of shape (n, L), dense or sparse, of 0 and 1
    n_neighbors : number of nearest points
    sample_weight : weights of the test points
    n_jobs : number of threads of the search

    Examples
    --------
    >>> labels = [[1, 0], [1, 1], [0, 1]]
    >>> unlike_share([[0], [1], [5]], labels, [[0.2]], [[1, 0]], n_neighbors=2)
    0.0
    >>> unlike_share([[0], [1], [5]], labels, [[6]], [[1, 0]], n_neighbors=2)
    0.5
    """
    known, truth = as_indicator(Y_train), as_indicator(Y_test)
    if known is None or truth is None:
        raise ValueError(
            "Y_train and Y_test must be indicators of shape (n, L) with L >= 2. For one label per "
            "point use knn_error."
        )
    rows = nearest_rows(as_points(X_train), as_points(X_test), n_neighbors, n_jobs)
    return float(np.average(neighbor_errors(known, rows, truth), weights=sample_weight))


def neighbor_errors(known: Any, rows: NDArray, truth: Any, ties: str = "first") -> NDArray:
    """Whether the nearest points misclassify each query; for multilabel targets, their share.

    Parameters
    ----------
    known : labels of the training points, of shape (n,), or sparse indicators of shape (n, L)
    rows : array of shape (q, k), the nearest training points of each query
    truth : labels of the queries, as `known`
    ties : see `knn_error`

    Returns
    -------
    Array of shape (q,): 0 or 1 for one label per point; for multilabel targets, the share of the
    nearest points without a common label.

    Examples
    --------
    >>> rows = np.array([[0, 1, 2], [2, 0, 1]])
    >>> neighbor_errors(np.array(["a", "a", "b"]), rows, np.array(["a", "b"]))
    array([0., 1.])
    """
    if known.ndim == 1:
        return (majority(known[rows], ties) != truth).astype(np.float64)
    like = [truth.multiply(known[column]).sum(axis=1) > 0 for column in rows.T]
    return np.asarray(1 - np.mean(like, axis=0))


def nearest_rows(
    X_train: Points, X_test: Points | None, n_neighbors: int, n_jobs: int | None = None
) -> NDArray:
    """The rows of the nearest training points of each test point, the nearest first.

    Without `X_test`, those of each training point among the others. The search is scikit-learn's,
    so that points at equal distance are chosen as by its classifier.
    """
    n_others = X_train.shape[0] - (X_test is None)
    index = NearestNeighbors(
        n_neighbors=min(n_neighbors, n_others),
        algorithm="brute" if issparse(X_train) or issparse(X_test) else "auto",
        n_jobs=n_jobs,
    )
    rows: NDArray = index.fit(X_train).kneighbors(X_test, return_distance=False)
    return rows


def smallest_columns(values: NDArray, k: int) -> NDArray:
    """The columns of the k smallest values of each row, the smallest first; overwrites `values`.

    One pass per column takes a tenth of the time of `np.argpartition` for k = 3.

    Examples
    --------
    >>> smallest_columns(np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 0.0]]), 2)
    array([[1, 2],
           [0, 2]])
    """
    rows, columns = np.arange(len(values)), np.empty((len(values), k), dtype=np.intp)
    for number in range(k):
        columns[:, number] = values.argmin(axis=1)
        values[rows, columns[:, number]] = np.inf
    return columns


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
        raise ValueError(f"ties must be 'nearest' or 'first', got {ties!r}.")
    if ties == "first":
        neighbors = np.sort(neighbors, axis=1)
    votes = (neighbors[:, :, None] == neighbors[:, None, :]).sum(axis=2)
    winners: NDArray = neighbors[np.arange(len(neighbors)), votes.argmax(axis=1)]
    return winners


def satisfied_share(metric: Metric, X: Points, comparisons: Comparisons) -> float:
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
