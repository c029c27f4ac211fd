"""The error of nearest neighbors, and the fraction of comparisons that a metric satisfies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.utils import gen_batches
from sklearn.utils.extmath import row_norms, safe_sparse_dot

from boostmetric.data.labels import as_indicator
from boostmetric.data.points import Points, as_points, centered, scale, scaling_exponent
from boostmetric.metric import Metric, pair_distances
from boostmetric.problem import Comparisons

MAX_DISTANCES = 1 << 22
"""Distances that are in memory at the same time, 32 MB."""


def knn_error(
    X_train: ArrayLike | Points,
    y_train: ArrayLike,
    X_test: ArrayLike | Points | None = None,
    y_test: ArrayLike | None = None,
    n_neighbors: int = 3,
    *,
    sample_weight: NDArray | None = None,
    n_jobs: int | None = None,
) -> float:
    """Return the fraction of test points that k-nearest-neighbor classification gets wrong.

    The classifier is scikit-learn's `KNeighborsClassifier`: if several classes are equally frequent
    among the `n_neighbors` nearest points, it predicts the one that sorts first. Without `X_test`
    and `y_test`, each training point is classified by the others (leave-one-out).

    Examples
    --------
    >>> knn_error([[0], [1], [4], [5]], list("abbb"), [[0.2], [4.2]], list("ab"), n_neighbors=1)
    0.0
    """
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be passed together; one of them is None.")
    points, known = as_points(X_train), np.asarray(y_train)
    if known.ndim != 1:
        raise ValueError(
            f"y_train must have shape (n,), got {known.shape}. For multilabel targets use "
            "unlike_share."
        )
    n_others = points.shape[0] - (X_test is None)
    classifier = KNeighborsClassifier(min(n_neighbors, n_others), n_jobs=n_jobs)
    queries = None if X_test is None else _queries(X_test, points)
    predicted = classifier.fit(points, known).predict(queries)
    wrong = predicted != (known if y_test is None else np.asarray(y_test))
    return float(np.average(wrong, weights=sample_weight))


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
    points = as_points(X_train)
    index = NearestNeighbors(n_neighbors=min(n_neighbors, points.shape[0]), n_jobs=n_jobs)
    rows = index.fit(points).kneighbors(_queries(X_test, points), return_distance=False)
    return float(np.average(neighbor_errors(known, rows, truth), weights=sample_weight))


def _queries(X_test: ArrayLike | Points, points: Points) -> Points:
    """Return test points, dense if the training points are: scikit-learn's trees require it."""
    queries: Any = as_points(X_test)
    return queries if issparse(points) or not issparse(queries) else queries.toarray()


def neighbor_errors(known: Any, rows: NDArray, truth: Any) -> NDArray:
    """Return the error of each query, for decisions; it does not depend on the names of classes.

    If c classes are equally frequent among the nearest points, and the true class is one of them,
    the error is 1 − 1/c, that of a random choice.

    Parameters
    ----------
    known : labels of the training points, of shape (n,), or sparse indicators of shape (n, L)
    rows : array of shape (q, k), the nearest training points of each query
    truth : labels of the queries, as `known`

    Returns
    -------
    Array of shape (q,): a number in [0, 1]; for multilabel targets, the fraction of the nearest
    points without a common label.

    Examples
    --------
    >>> rows = np.array([[0, 1, 2], [2, 0, 1], [0, 2, 3]])
    >>> neighbor_errors(np.array(["a", "a", "b", "c"]), rows, np.array(["a", "b", "c"])).round(2)
    array([0.  , 1.  , 0.67])
    """
    if known.ndim == 1:
        neighbors = known[rows]
        is_winner, _, n_winners = _votes(neighbors)
        return 1 - (is_winner & (neighbors == truth[:, None])).any(axis=1) / n_winners
    like = [truth.multiply(known[column]).sum(axis=1) > 0 for column in rows.T]
    return np.asarray(1 - np.mean(like, axis=0))


def chance_errors(known: Any, rows: NDArray, drawn: Any) -> NDArray:
    """Return expected errors if labels of queries were drawn from `drawn`; see `neighbor_errors`.

    Neighbors that say nothing about the labels have these errors on average.

    Examples
    --------
    >>> known, rows = np.array(["a", "a", "b"]), np.array([[0, 1, 2], [2, 0, 1]])
    >>> chance_errors(known, rows, np.array(["a", "b"]))
    array([0.5, 0.5])
    """
    if known.ndim == 1:
        neighbors = known[rows]
        is_winner, votes, n_winners = _votes(neighbors)
        classes, counts = np.unique(drawn, return_counts=True)
        position = np.minimum(np.searchsorted(classes, neighbors), len(classes) - 1)
        shares = np.where(classes[position] == neighbors, counts[position] / len(drawn), 0)
        return np.asarray(1 - (is_winner / votes * shares).sum(axis=1) / n_winners)
    # The probability of no common label, as if labels were independent.
    frequencies = np.minimum(drawn.sum(axis=0) / drawn.shape[0], 1 - 1e-12)
    return np.asarray(np.exp(known @ np.log1p(-frequencies))[rows].mean(axis=1))


def _votes(neighbors: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return whether the class of each neighbor wins, its votes, and the number of winners."""
    votes = np.stack([(neighbors == column[:, None]).sum(axis=1) for column in neighbors.T], 1)
    is_winner = votes == votes.max(axis=1, keepdims=True)
    # A class with v votes is a winner v times.
    return is_winner, votes, np.rint((is_winner / votes).sum(axis=1))


def decision_neighbors(labels: Any) -> int:
    """Return the number of neighbors with which decisions are made: 3, or 1 with tiny classes.

    With fewer than four points per class on average, most points have fewer than three others of
    their class.

    >>> decision_neighbors(np.array([0, 0, 0, 1, 1])), decision_neighbors(np.zeros(4))
    (1, 3)
    """
    if labels.ndim > 1:
        return 3
    return 1 if len(labels) < 4 * len(np.unique(labels)) else 3


def n_standard_errors(differences: NDArray) -> float:
    """Return the sum of paired differences in units of its standard error, given a mean of 0.

    Of classified points, those that only one of two metrics misclassifies decide.

    >>> n_standard_errors(np.array([1.0, 0.0, 1.0, -1.0, 1.0]))
    1.0
    """
    return float(differences.sum() / max(np.sqrt(np.sum(differences**2)), 1e-12))


def comparable(images: Points) -> Points:
    """Return points that are centered and scaled such that squares of differences lose nothing."""
    points = centered(images)
    scale(points, scaling_exponent(points))
    return points


def nearest_references(
    images: Points, queries: NDArray, references: NDArray, n_neighbors: int
) -> NDArray:
    """Return the rows of the nearest references of each query, the nearest first, of shape (q, k).

    A query is not its own neighbor.

    Parameters
    ----------
    images : points of shape (n, d), `comparable`
    queries, references : row numbers
    n_neighbors : k; if there are fewer references, their number

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [3.0]])
    >>> nearest_references(points, np.array([0, 2]), np.array([0, 1]), 1).tolist()
    [[1], [1]]
    """
    known = images[references]
    norms = row_norms(known, squared=True)
    position = np.full(images.shape[0], -1)
    position[references] = np.arange(len(references))
    own = position[queries]
    k = min(n_neighbors, len(references) - int((own >= 0).any()))
    nearest = np.empty((len(queries), k), dtype=np.intp)
    for batch in gen_batches(len(queries), max(1, MAX_DISTANCES // len(references))):
        squares = safe_sparse_dot(images[queries[batch]], known.T, dense_output=True)
        squares *= -2
        squares += norms
        among = np.flatnonzero(own[batch] >= 0)
        squares[among, own[batch][among]] = np.inf
        nearest[batch] = references[smallest_columns(squares, k)]
    return nearest


def nearest_partners(
    images: Points, queries: NDArray, pairs: NDArray, n_neighbors: int
) -> NDArray | None:
    """Return the nearest rows of each query among those that it forms a pair with, as above.

    If the pairs contain the neighbors of every query, as after a search, this saves a search. None
    if a query has fewer partners.

    >>> points = np.array([[0.0], [1.0], [3.0]])
    >>> nearest_partners(points, np.array([0]), np.array([[0, 1], [2, 0]]), 1).tolist()
    [[1]]
    """
    number = np.full(images.shape[0], -1)
    number[queries] = np.arange(len(queries))
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[number[both[:, 0]] >= 0]
    squares = pair_distances(images, both, squared=True)
    owners = number[both[:, 0]]
    order = np.lexsort((both[:, 1], squares, owners))
    counts = np.bincount(owners, minlength=len(queries))
    if len(queries) == 0 or counts.min() < n_neighbors:
        return None
    starts = np.cumsum(counts) - counts
    return np.asarray(both[order[starts[:, None] + np.arange(n_neighbors)], 1])


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


def satisfied_share(metric: Metric | None, X: Points, comparisons: Comparisons) -> float:
    """Return the fraction of comparisons that a metric satisfies, each counted by its weight.

    A comparison is satisfied if the difference of the squared distances exceeds its gap. None is
    the Euclidean metric.

    Examples
    --------
    >>> c = Comparisons.from_triplets([[0, 1, 2], [0, 2, 1]])
    >>> satisfied_share(None, np.array([[0.0], [1.0], [3.0]]), c)
    0.5
    """
    images = X if metric is None else metric.transform(X)
    return float(np.average(are_satisfied(images, comparisons), weights=comparisons.weights))


def are_satisfied(images: Points, comparisons: Comparisons, scale: float = 1.0) -> NDArray:
    """Return whether Euclidean distances of the images satisfy each comparison, of shape (m,).

    Squared distances are multiplied by `scale`, which only matters if the comparisons have gaps.
    """
    margins = scale * _differences(images, comparisons)
    return np.asarray(margins > (0 if comparisons.gaps is None else comparisons.gaps))


def best_scale(images: Points, comparisons: Comparisons) -> float:
    """Return the factor of the squared distances with which most comparisons are satisfied.

    It is 1 without gaps. With gaps, a transformation that was not learned from the comparisons,
    such as a starting transformation, has no unit of its own.

    Examples
    --------
    >>> c = Comparisons.from_pairs([[0, 1], [0, 2]], [1, -1])
    >>> points = np.array([[0.0], [1.0], [3.0]])
    >>> best_scale(points, c), are_satisfied(points, c, best_scale(points, c)).tolist()
    (0.333..., [True, True])
    """
    if comparisons.gaps is None:
        return 1.0
    differences = _differences(images, comparisons)
    # A comparison with a gap and a difference of the same sign is satisfied by large factors if
    # both are positive, and by small ones if both are negative. The others do not depend on it.
    depends = differences * np.sign(comparisons.gaps) > 0
    if not depends.any():
        return 1.0
    factors = comparisons.gaps[depends] / differences[depends]
    signs = np.sign(comparisons.gaps[depends]).astype(np.float64)
    if comparisons.weights is not None:
        signs = signs * comparisons.weights[depends]
    order = np.argsort(factors, kind="stable")
    # The number that is satisfied by factors above each of the sorted ones, up to a constant. The
    # geometric mean of a factor and the next one is far from both.
    factors, gains = factors[order], np.cumsum(signs[order])
    gains[:-1][factors[:-1] == factors[1:]] = -np.inf  # nothing lies between equal factors
    best = int(gains.argmax())
    if gains[best] <= 0:
        return float(factors[0]) / 2
    after = factors[best + 1] if best + 1 < len(factors) else 2 * factors[best]
    return float(np.sqrt(factors[best]) * np.sqrt(after))


def _differences(images: Points, comparisons: Comparisons) -> NDArray:
    """Compute the squared distances of the far pairs minus those of the near pairs."""
    squares = pair_distances(images, comparisons.pairs, squared=True)
    return np.asarray(squares[comparisons.far] - squares[comparisons.near])
