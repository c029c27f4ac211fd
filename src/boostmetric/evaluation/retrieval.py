"""Retrieval scores: how early points of the same class appear among the neighbors of a query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_consistent_length, check_random_state

from boostmetric.data.labels import Labels
from boostmetric.evaluation.knn import majority

MAX_DISTANCES = 1 << 22
"""Distances held in memory at once (32 MB)."""


class Retrieval(NamedTuple):
    """Means over all queries for which there is a point of the same class.

    Let r(i) be 1 if the i-th nearest point has the class of the query and 0 otherwise, P(i) the
    mean of r(1), …, r(i), and R the number of points of that class.

    Attributes
    ----------
    precision : P(k)
    recall : k·P(k)/R
    mean_average_precision : Σ_i P(i)·r(i)/R over all i (MAP)
    map_at_r : Σ_i P(i)·r(i)/R over i ≤ R (MAP@R)
    ndcg : Σ_i r(i)/log₂(i + 1) over all i, relative to its value if the first R are relevant
    n_queries : the number of queries
    """

    precision: float
    recall: float
    mean_average_precision: float
    map_at_r: float
    ndcg: float
    n_queries: int


def retrieval_scores(
    X: ArrayLike,
    y: ArrayLike,
    X_query: ArrayLike | None = None,
    y_query: ArrayLike | None = None,
    *,
    k: int = 5,
    max_queries: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> Retrieval:
    """Precision, recall, average precision and nDCG of nearest neighbors, by Euclidean distance.

    For a learned metric, transform the points first. Ties are ranked by row number. O(n·q·log n)
    time for q queries; at most `MAX_DISTANCES` distances, or those of one query, are in memory.

    Parameters
    ----------
    X, y : the n points that are searched, of shape (n, D), and their labels
    X_query, y_query : the queries and their labels. None uses each point of X as a query among the
        others
    k : number of neighbors for precision and recall
    max_queries : if there are more queries, a random sample of this size is used
    random_state : determines the sample

    Examples
    --------
    >>> scores = retrieval_scores([[0.0], [1.0], [5.0], [7.0]], list("aabb"), k=2)
    >>> scores.precision, scores.recall, scores.mean_average_precision, scores.map_at_r, scores.ndcg
    (0.5, 1.0, 1.0, 1.0, 1.0)
    """
    X, y = np.asarray(X, dtype=float), np.asarray(y)
    if (X_query is None) != (y_query is None):
        raise ValueError("X_query and y_query must be passed together; one of them is None.")
    n_found = len(X) - (X_query is None)
    if not 1 <= k <= n_found:
        raise ValueError(f"k must be between 1 and the number of points, {n_found}; got {k}.")
    queries = X if X_query is None else np.asarray(X_query, dtype=float)
    labels = y if y_query is None else np.asarray(y_query)
    check_consistent_length(X, y)
    check_consistent_length(queries, labels)
    chosen = np.arange(len(queries))
    if max_queries is not None and len(queries) > max_queries:
        rng = check_random_state(random_state)
        chosen = np.sort(rng.choice(len(queries), max_queries, replace=False))
    y, labels = _codes(y, labels)
    sums, n_queries = np.zeros(5), 0
    for rows, order in _rankings(X, queries, chosen, leave_out_self=X_query is None):
        hits = y[order] == labels[rows, None]
        hits = hits[hits.any(axis=1)]
        sums += _sums(hits, k)
        n_queries += len(hits)
    if n_queries == 0:
        raise ValueError("No query has a point of its class among those searched.")
    precision, recall, average, at_r, ndcg = (sums / n_queries).tolist()
    return Retrieval(precision, recall, average, at_r, ndcg, n_queries)


def leave_one_out_error(
    X: ArrayLike, y: ArrayLike, n_neighbors: int = 3, *, n_jobs: int | None = None
) -> float:
    """The leave-one-out error of k-nearest-neighbor classification.

    A tie goes to the class with the nearest point, as in `knn_error`.

    Examples
    --------
    >>> leave_one_out_error([[0], [1], [4], [5], [2.4]], list("aabbb"), n_neighbors=1)
    0.2
    """
    X, y = np.asarray(X), np.asarray(y)
    index = NearestNeighbors(n_neighbors=min(n_neighbors, len(X) - 1), n_jobs=n_jobs)
    neighbors = index.fit(X).kneighbors(return_distance=False)
    return float(np.mean(majority(y[neighbors]) != y))


def _codes(y: NDArray, labels: NDArray) -> tuple[NDArray, NDArray]:
    """Integer codes of the labels of points and queries."""
    codes = Labels.of(np.concatenate([y, labels])).codes
    return codes[: len(y)], codes[len(y) :]


def _rankings(
    X: NDArray, queries: NDArray, chosen: NDArray, leave_out_self: bool
) -> Iterator[tuple[NDArray, NDArray]]:
    """Blocks of the chosen queries, with the rows of X by rising distance from each of them."""
    centre = X.mean(axis=0)
    points = X - centre
    size = max(1, MAX_DISTANCES // len(X))
    for begin in range(0, len(chosen), size):
        rows = chosen[begin : begin + size]
        squares = euclidean_distances(queries[rows] - centre, points, squared=True)
        if leave_out_self:
            squares[np.arange(len(rows)), rows] = np.inf
        order = np.argsort(squares, axis=1, kind="stable")
        yield rows, order[:, :-1] if leave_out_self else order


def _sums(hits: NDArray, k: int) -> NDArray:
    """The five measures, summed over the queries that are the rows of `hits`."""
    n_relevant = hits.sum(axis=1)
    found = np.cumsum(hits, axis=1)
    ranks = np.arange(1, hits.shape[1] + 1)
    precisions = np.where(hits, found / ranks, 0)
    within = np.where(ranks <= n_relevant[:, None], precisions, 0)
    discounts = 1 / np.log2(ranks + 1)
    return np.array(
        [
            np.sum(found[:, k - 1] / k),
            np.sum(found[:, k - 1] / n_relevant),
            np.sum(precisions.sum(axis=1) / n_relevant),
            np.sum(within.sum(axis=1) / n_relevant),
            np.sum(hits @ discounts / np.cumsum(discounts)[n_relevant - 1]),
        ]
    )
