"""How well a distance retrieves: for a point as a query, whether points of its class come first."""

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

BLOCK = 1 << 22
"""Distances held at once."""


class Retrieval(NamedTuple):
    """Means over the queries that have a point of their class to be found.

    With r(i) = 1 where the i-th nearest point is of the query's class and 0 elsewhere, P(i) the
    mean of r(1), …, r(i), and R the number of points of its class:

    Attributes
    ----------
    precision : P(k)
    recall : k·P(k)/R
    mean_average_precision : Σ_i P(i)·r(i)/R over all i (MAP)
    map_at_r : Σ_i P(i)·r(i)/R over i ≤ R (MAP@R), which lower ranks do not flatter
    ndcg : Σ_i r(i)/log₂(i + 1) over all i, as a share of what it is where the first R are found
    n_queries : the number of these queries
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
    """Precision, recall, average precision and nDCG of nearest neighbours, by Euclidean distance.

    For a learned metric, transform the points first. Points at the same distance come in the order
    of their rows. O(n·q·log n) time for q queries; no more than `BLOCK` distances, or those of one
    query, are held at once.

    Parameters
    ----------
    X, y : the n points that are searched, of shape (n, D), and their labels
    X_query, y_query : the queries and their labels. None asks for each point of X among the others
    k : how many neighbours precision and recall look at
    max_queries : where there are more queries, so many are drawn, by `random_state`

    Examples
    --------
    >>> scores = retrieval_scores([[0.0], [1.0], [5.0], [7.0]], list("aabb"), k=2)
    >>> scores.precision, scores.recall, scores.mean_average_precision, scores.map_at_r, scores.ndcg
    (0.5, 1.0, 1.0, 1.0, 1.0)
    """
    X, y = np.asarray(X, dtype=float), np.asarray(y)
    if (X_query is None) != (y_query is None):
        raise ValueError("X_query and y_query are needed together: one of them is None.")
    n_found = len(X) - (X_query is None)
    if not 1 <= k <= n_found:
        raise ValueError(
            f"k={k} will not do: there are {n_found} points to be found, so 1 to that."
        )
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
        raise ValueError("no query has a point of its class to be found: are the labels the same?")
    precision, recall, average, at_r, ndcg = (sums / n_queries).tolist()
    return Retrieval(precision, recall, average, at_r, ndcg, n_queries)


def leave_one_out_error(
    X: ArrayLike, y: ArrayLike, n_neighbors: int = 3, *, n_jobs: int | None = None
) -> float:
    """The share of points that their nearest neighbours among the others classify wrongly.

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
    """Numbers for labels, which a block can hold whatever the labels are."""
    codes = Labels.of(np.concatenate([y, labels])).codes
    return codes[: len(y)], codes[len(y) :]


def _rankings(
    X: NDArray, queries: NDArray, chosen: NDArray, leave_out_self: bool
) -> Iterator[tuple[NDArray, NDArray]]:
    """Blocks of the chosen queries, with the rows of X by rising distance from each of them."""
    centre = X.mean(axis=0)
    points = X - centre
    size = max(1, BLOCK // len(X))
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
