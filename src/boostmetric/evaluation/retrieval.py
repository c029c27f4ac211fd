"""Retrieval scores: how early points of the same class appear among the neighbors of a query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_consistent_length, check_random_state, gen_batches

from boostmetric.data.labels import Labels


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
    max_distances: int = 1 << 22,
) -> Retrieval:
    """Precision, recall, average precision and nDCG of nearest neighbors, by Euclidean distance.

    For a learned metric, transform the points first. Ties are ranked by row number. O(n·q·log n)
    time for q queries.

    Parameters
    ----------
    X, y : the n points that are searched, of shape (n, D), and their labels
    X_query, y_query : the queries and their labels. None uses each point of X as a query among the
        others
    k : number of neighbors for precision and recall
    max_queries : if there are more queries, a random sample of this size is used
    random_state : determines the sample
    max_distances : number of distances in memory at a time, at least those of one query. The
        default takes 32 MB

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
    # Codes, because a block of long strings would take much memory.
    codes = Labels.of(np.concatenate([y, labels])).codes
    y, labels = codes[: len(y)], codes[len(y) :]

    center = X.mean(axis=0)  # squared distances of points far from the origin lose digits
    points = X - center
    ranks = np.arange(1, n_found + 1)
    discounts = 1 / np.log2(ranks + 1)
    ideal_gains = np.cumsum(discounts)
    sums, n_queries = np.zeros(5), 0
    for batch in gen_batches(len(chosen), max(1, max_distances // len(X))):
        # 1) rank the points by distance from each query
        rows = chosen[batch]
        squares = euclidean_distances(queries[rows] - center, points, squared=True)
        if X_query is None:
            squares[np.arange(len(rows)), rows] = np.inf
        order = np.argsort(squares, axis=1, kind="stable")[:, :n_found]

        # 2) r(i), of queries with a point of their class
        hits = y[order] == labels[rows, None]
        hits = hits[hits.any(axis=1)]
        n_queries += len(hits)

        # 3) the five measures, summed over these queries
        n_relevant = hits.sum(axis=1)
        n_hits = np.cumsum(hits, axis=1)
        precisions = np.where(hits, n_hits / ranks, 0)
        within_r = np.where(ranks <= n_relevant[:, None], precisions, 0)
        sums += [
            np.sum(n_hits[:, k - 1] / k),
            np.sum(n_hits[:, k - 1] / n_relevant),
            np.sum(precisions.sum(axis=1) / n_relevant),
            np.sum(within_r.sum(axis=1) / n_relevant),
            np.sum(hits @ discounts / ideal_gains[n_relevant - 1]),
        ]
    if n_queries == 0:
        raise ValueError("No query has a point of its class among those searched.")
    precision, recall, average, at_r, ndcg = (sums / n_queries).tolist()
    return Retrieval(precision, recall, average, at_r, ndcg, n_queries)
