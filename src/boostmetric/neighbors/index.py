"""Approximate search with an index, for data with too many points for all pairs.

An index is fitted on points and returns the points nearest to a query. It ignores labels, so the
impostors of a point must come from indexes that contain no point of its class. With up to
`MAX_GROUPS` classes there is one index per class, queried by all points: C queries per point. With
more classes, their numbers are written with a few digits in a base of at most `MAX_GROUPS`. There
is one index for every value of every digit, queried by the points that differ in this digit. Two
classes differ in some digit, so every impostor is in an index that is queried, with O(log C)
queries per point instead of C. Targets come from the class of the point.

The results of an index are candidates: they are ranked by exact distances (`ranking`), and the
recall is measured on a sample.

The built-in index is FAISS's inverted file (IVF): points are divided into cells around centers, and
a query searches the cells nearest to it. Graph-based indexes find fewer impostors, because queries
are not in the class that they search: for a class of 200,000 points in 164 dimensions, FAISS's
graph found 78 % of the impostors in the same time in which its cells found 95 %.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from math import ceil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.base import clone

from boostmetric._validation import warn
from boostmetric.data.labels import Labels
from boostmetric.data.points import binary_exponent, centered, scale
from boostmetric.engines import Threads
from boostmetric.neighbors.exact import IMPOSTORS, TARGETS, Places, search_part
from boostmetric.neighbors.ranking import NONE, NeighborTable, pair_squares

MAX_GROUPS = 16
"""Maximum number of groups of classes, each with its own index."""

MIN_INDEXED = 64
"""Smaller groups are searched by brute force, which is as fast."""

N_QUERIES = 4096
"""Queries per call of an index. Not tuned."""

N_SAMPLED = 200
"""Points on which the recall is measured."""

MIN_RECALL = 0.9
"""A lower recall causes a warning."""


class Index(Protocol):
    """An index of nearest neighbors, such as `sklearn.neighbors.NearestNeighbors`."""

    def fit(self, X: NDArray, /) -> Any:
        """Build the index of the points X."""

    def kneighbors(self, X: NDArray, n_neighbors: int, /) -> tuple[Any, Any]:
        """Distances (ignored) and positions of the points nearest to each row of X."""


def check_index(index: object) -> None:
    """Raise an error if `index` is not an index, or requires a package that is not installed.

    >>> check_index("exact")
    Traceback (most recent call last):
    ValueError: index='exact' is not an index. ...
    """
    if isinstance(index, str) and index == "faiss":
        if find_spec("faiss") is None:
            raise ImportError(
                "index='faiss' requires FAISS, which is not installed. Install it "
                'with: pip install "boostmetric[approximate]" (or faiss-cpu), or pass your own '
                "index, such as sklearn.neighbors.NearestNeighbors(algorithm='kd_tree')."
            )
        return
    methods = [getattr(index, name, None) for name in ("fit", "kneighbors")]
    if isinstance(index, type) or not all(map(callable, methods)):
        raise ValueError(
            f"index={index!r:.80} is not an index. Use None, 'faiss', or an object with the "
            "methods fit(X) and kneighbors(X, n_neighbors), such as "
            "sklearn.neighbors.NearestNeighbors(algorithm='kd_tree')."
        )
    for method, arguments in zip(methods, ([index], [index, 1]), strict=True):
        assert method is not None
        try:
            signature(method).bind(*arguments)
        except TypeError as error:
            raise ValueError(
                f"index={index!r:.80} is not an index: fit(X) and kneighbors(X, n_neighbors) "
                f"are called without labels, but {method.__name__} raises {str(error)!r}. Use "
                "sklearn.neighbors.NearestNeighbors rather than a classifier."
            ) from None
        except ValueError:  # methods written in C have no signature
            continue


def indexed_targets_and_impostors(
    X: NDArray,
    labels: Labels,
    n_targets: int,
    n_impostors: int,
    index: str | Index,
    *,
    threads: Threads | None = None,
) -> tuple[NDArray, NDArray, float]:
    """Nearest targets and impostors of every point, found by an index.

    With an exact index, the result is that of `nearest_targets_and_impostors`, except that ties are
    broken by the index.

    Parameters
    ----------
    X : array of shape (n, D)
    labels : one label per point
    n_targets, n_impostors : numbers of neighbors
    index : "faiss", or an object with `fit(X)` and `kneighbors(X, n_neighbors)` for
        Euclidean distances. Copies of it are fitted on parts of X, centered and scaled by a power
        of two such that the largest absolute value is between 0.5 and 1; it may return fewer
        neighbors, or -1 for none
    threads : determine the number of threads of FAISS; other indexes have their own parameter

    Returns
    -------
    targets, impostors : arrays of shape (n, n_targets) and (n, n_impostors), nearest first;
        `NONE` if there are no more
    recall : share of the true neighbors of `N_SAMPLED` points that were found, or others no farther
        away. It is logged; a value below `MIN_RECALL` causes a warning

    Notes
    -----
    With C ≤ `MAX_GROUPS` classes, every point makes C queries of indexes of n/C points; otherwise,
    at most `MAX_GROUPS`·⌈log(C)/log(`MAX_GROUPS`)⌉ queries of larger ones: 32 if C ≤ 256, 48 if
    C ≤ 4096. Memory: two copies of X, one index at a time, and O(n·(n_targets + n_impostors)).

    Examples
    --------
    >>> from sklearn.neighbors import NearestNeighbors
    >>> X, labels = np.array([[0.0], [1.0], [5.0], [6.0]]), Labels.of([0, 0, 1, 1])
    >>> targets, impostors, recall = indexed_targets_and_impostors(
    ...     X, labels, 1, 2, NearestNeighbors(algorithm="kd_tree")
    ... )
    >>> targets.ravel().tolist(), impostors.tolist(), recall
    ([1, 0, 3, 2], [[2, 3], [2, 3], [1, 0], [1, 0]], 1.0)
    """
    check_index(index)
    threads = threads or Threads(1)
    places, position = Places.of(X, labels)
    n_neighbors = n_targets, n_impostors
    center, exponent = places.points.mean(axis=0), binary_exponent(centered(places.points))
    # Indexes are created during the search, so only one at a time is in memory.
    groups = make_indexes(places, index, threads.n_jobs, center, exponent)
    tables = search_indexes(places, places, groups, center, exponent, n_neighbors)
    recall = measure_recall(
        tables, lambda sample: search_part(places[sample], places, n_neighbors, threads=threads)
    )
    return tables[TARGETS].rows[position], tables[IMPOSTORS].rows[position], recall


@dataclass(frozen=True, eq=False)
class _Group:
    """An index of the points whose class has this value of a digit.

    `sides`: TARGETS if members query it, IMPOSTORS if all other points do.
    """

    digit: int
    value: int
    members: NDArray
    sides: list[int]
    index: Index


def make_indexes(
    references: Places, index: str | Index, n_threads: int, center: NDArray, exponent: int
) -> Iterator[_Group]:
    """Create indexes of (x − center)/2**exponent, one per group of classes."""
    codes = references.labels.codes
    points = references.points - center
    scale(points, -exponent)
    digits = list(_digits(codes, references.labels.sets.shape[0]))
    groupings: list[tuple[NDArray, list[int]]]
    if len(digits) == 1:  # groups are classes
        groupings = [(codes, [IMPOSTORS, TARGETS])]
    else:
        groupings = [*((digit, [IMPOSTORS]) for digit in digits), (codes, [TARGETS])]
    for number, (values, sides) in enumerate(groupings):
        for value in np.unique(values):
            members = np.flatnonzero(values == value)
            own: Index
            if len(members) <= MIN_INDEXED:
                own = _BruteForce()
            else:
                own = FaissIndex(n_threads) if isinstance(index, str) else clone(index, safe=False)
            own.fit(points[members])
            yield _Group(number, value, members, sides, own)


def search_indexes(
    queries: Places,
    references: Places,
    groups: Iterable[_Group],
    center: NDArray,
    exponent: int,
    n_neighbors: tuple[int, int],
) -> tuple[NeighborTable, NeighborTable]:
    """The nearest targets and impostors of the queries that the indexes of the references find."""
    codes = queries.labels.codes
    points = queries.points - center
    scale(points, -exponent)
    tables = tuple(NeighborTable.empty(len(points), k) for k in n_neighbors)
    digits = [*_digits(codes, queries.labels.sets.shape[0]), codes]
    for group in groups:
        is_member, n_members = digits[group.digit] == group.value, len(group.members)
        for side in group.sides:
            querying = np.flatnonzero(is_member if side == TARGETS else ~is_member)
            # The first target of a point is the point itself, if it is a reference.
            wanted = min(n_members, n_neighbors[side] + (side == TARGETS))
            for begin in range(0, len(querying), N_QUERIES):
                # 1) positions of candidates, negative if there are no more
                chunk = querying[begin : begin + N_QUERIES]
                positions = np.asarray(group.index.kneighbors(points[chunk], wanted)[1])
                name = type(group.index).__name__
                if positions.ndim != 2 or len(positions) != len(chunk):
                    raise ValueError(
                        f"kneighbors of {name} must return distances and positions, one row for "
                        f"each of {len(chunk)} queries; got positions of shape {positions.shape}."
                    )
                last = positions.max(initial=-1)
                if not np.issubdtype(positions.dtype, np.integer) or last >= n_members:
                    raise ValueError(
                        f"kneighbors of {name} must return integer positions of the {n_members} "
                        f"points on which it was fitted; got {last} ({positions.dtype})."
                    )
                # 2) rank them by exact distances
                line, column = np.nonzero(positions >= 0)
                i, j = chunk[line], group.members[positions[line, column]]
                differ = queries.rows[i] != references.rows[j]
                i, j = i[differ], j[differ]
                squares = pair_squares(queries.points, i, references.points, j)
                tables[side].offer(i, references.rows[j], squares)
    return tables[TARGETS], tables[IMPOSTORS]


def _digits(classes: NDArray, n_classes: int) -> Iterator[NDArray]:
    """Digits of the classes of the points. Any two classes differ in one of them."""
    n_digits = 1
    while (base := ceil(n_classes ** (1 / n_digits))) > MAX_GROUPS:
        n_digits += 1
    for _ in range(n_digits):
        classes, digit = np.divmod(classes, base)
        yield digit


def measure_recall(
    tables: Sequence[NeighborTable], search: Callable[[NDArray], Sequence[NeighborTable]]
) -> float:
    """Compute and log the share of true neighbors that the tables contain.

    `search` returns the true tables of the points at the positions of a random sample.
    """
    n = len(tables[TARGETS].rows)
    sample = np.random.default_rng(0).choice(n, min(N_SAMPLED, n), replace=False)
    n_found, n_exist = np.zeros(2, dtype=int), np.zeros(2, dtype=int)
    for side, (table, true) in enumerate(zip(tables, search(sample), strict=True)):
        squares = table.squares[sample]
        n_found[side] = np.sum((squares <= true.squares[:, -1:]) & (squares < np.inf))
        n_exist[side] = np.sum(true.rows != NONE)
    recall = float(n_found.sum() / n_exist.sum())  # two distinct points are neighbors
    logging.getLogger("boostmetric").info(
        "The index found %.3f of the nearest neighbors of %d points: %d of %d targets, %d of %d "
        "impostors",
        *(recall, len(sample), n_found[TARGETS], n_exist[TARGETS]),
        *(n_found[IMPOSTORS], n_exist[IMPOSTORS]),
    )
    if recall < MIN_RECALL:
        warn(
            f"The index found {recall:.0%} of the nearest targets and impostors of "
            f"{len(sample)} sampled points; comparisons use farther ones instead. Use an index "
            "with higher recall, or the exact search."
        )
    return recall


class _BruteForce:
    """Brute-force search with the interface of an index; ties are broken by position."""

    def fit(self, X: NDArray, /) -> None:
        self._points = X

    def kneighbors(self, X: NDArray, n_neighbors: int, /) -> tuple[NDArray, NDArray]:
        squares = cdist(X, self._points, "sqeuclidean")
        nearest = np.argsort(squares, axis=1, kind="stable")[:, :n_neighbors]
        return np.take_along_axis(squares, nearest, axis=1), nearest


class FaissIndex:
    """FAISS's inverted file with 2·√n cells; results do not depend on the number of threads."""

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads

    def fit(self, X: NDArray, /) -> None:
        n, n_features = X.shape
        with self._limited_threads() as faiss:
            self._index = faiss.index_factory(n_features, f"IVF{min(n, int(2 * n**0.5))},Flat")
            self._index.nprobe = 16
            self._index.cp.niter = 10  # 25 take twice as long and find no more
            self._index.cp.min_points_per_centroid = 1  # otherwise it writes to stderr
            self._index.train(X.astype(np.float32, copy=False))
            self._index.add(X.astype(np.float32, copy=False))

    def kneighbors(self, X: NDArray, n_neighbors: int, /) -> tuple[NDArray, NDArray]:
        with self._limited_threads():
            squares, positions = self._index.search(X.astype(np.float32, copy=False), n_neighbors)
        return squares, positions

    @contextmanager
    def _limited_threads(self) -> Iterator[Any]:
        faiss: Any = import_module("faiss")
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(self._n_threads)
        try:
            yield faiss
        finally:
            faiss.omp_set_num_threads(before)
