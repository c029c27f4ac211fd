"""Search through an index, for more points than can be compared in pairs.

An index is fitted on points and returns those nearest to a query. It does not know labels, so the
impostors of a point must come from indexes that contain none of its class. With up to `MAX_GROUPS`
classes there is one index per class, queried by all points: C queries per point. With more classes,
their numbers are written with a few digits to a base of at most `MAX_GROUPS`; there is one index
for every value of every digit, queried by the points with another value there. Two classes differ
in some digit, so every impostor is in an index that is queried, after O(log C) queries per point
instead of C. Targets come from the point's own class.

The answers of an index are suggestions: they are ranked by exact distances (`ranking`), and the
share of true neighbors among them is measured on a sample.

The built-in index is FAISS's inverted file (IVF): cells around centers, of which those nearest to a
query are searched. Graph-based indexes do worse on impostors, because queries lie outside of the
class they search: on a class of 200,000 points in 164 dimensions FAISS's graph found 78 % of the
impostors in the time in which its cells found 95 %.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from math import ceil
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.base import clone

from boostmetric._warn import warn
from boostmetric.data.labels import Labels
from boostmetric.data.points import binary_exponent, centered, scale
from boostmetric.engines import Threads
from boostmetric.neighbors.exact import IMPOSTORS, TARGETS, Places, search_part
from boostmetric.neighbors.ranking import NONE, Table, pair_squares

FAISS = "faiss"
"""Selects the built-in index."""

MAX_GROUPS = 16
"""Groups into which classes are divided at most, each with its own index."""

MIN_INDEXED = 64
"""Groups of up to this many points are searched by brute force, which is as fast."""

N_QUERIES = 4096
"""Queries per call."""

N_SAMPLED = 200
"""Points on which the recall is measured."""

MIN_RECALL = 0.9
"""A lower recall causes a warning."""

logger = logging.getLogger("boostmetric")


class Index(Protocol):
    """An index of nearest neighbors, such as `sklearn.neighbors.NearestNeighbors`."""

    def fit(self, X: NDArray, /) -> Any:
        """Store the points that queries are compared with."""

    def kneighbors(self, X: NDArray, n_neighbors: int, /) -> tuple[Any, Any]:
        """Distances (ignored) and positions of the points nearest to each row of X."""


def check_index(index: object) -> None:
    """Raise an error if this is not an index, or if the built-in one is not installed.

    >>> check_index("exact")
    Traceback (most recent call last):
    ValueError: index='exact' is not an index. ...
    """
    if isinstance(index, str) and index == FAISS:
        if find_spec("faiss") is None:
            raise ImportError(
                f"index={FAISS!r} requires FAISS, which is not installed. Install it "
                'with: pip install "boostmetric[approximate]" (or faiss-cpu), or pass your own '
                "index, such as sklearn.neighbors.NearestNeighbors(algorithm='kd_tree')."
            )
        return
    methods = [getattr(index, name, None) for name in ("fit", "kneighbors")]
    if isinstance(index, type) or not all(map(callable, methods)):
        raise ValueError(
            f"index={index!r:.80} is not an index. Use None, {FAISS!r}, or an object with the "
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
                f"are called with the points alone, but {method.__name__} says {str(error)!r}. Use "
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
    """For every point the nearest points of its class and of the others that an index finds.

    With an exact index the result is that of `nearest_targets_and_impostors`, except for the choice
    among points at the same distance.

    Parameters
    ----------
    X : array of shape (n, D)
    labels : one label per point
    n_targets, n_impostors : numbers of neighbors
    index : "faiss", or an object with `fit(X)` and `kneighbors(X, n_neighbors)` for
        Euclidean distances. Copies of it are fitted on parts of X, centered and scaled by a power
        of two such that the largest absolute value is between 0.5 and 1; it may return fewer
        neighbors, or -1 for none
    threads : their number is that of FAISS; other indexes have their own setting

    Returns
    -------
    targets : array of shape (n, n_targets), nearest first; `NONE` where there are no more
    impostors : array of shape (n, n_impostors), likewise
    recall : share of the true neighbors of `N_SAMPLED` points that were found, or others no farther
        away. It is logged; below `MIN_RECALL` there is a warning

    Notes
    -----
    With C classes every point makes C queries of indexes of n/C points if C ≤ `MAX_GROUPS`, and
    otherwise at most `MAX_GROUPS`·⌈log(C)/log(`MAX_GROUPS`)⌉ of larger ones: 32 if C ≤ 256, 48 if
    C ≤ 4096. Memory: X twice, one index at a time, and O(n·(n_targets + n_impostors)).

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
    exponent = binary_exponent(centered(places.points))
    part = IndexedPart(
        places, places.points.mean(axis=0), exponent, partial(make_index, index, threads.n_jobs)
    )
    tables = part.search(places, (n_targets, n_impostors))
    sample = sample_positions(len(places.rows))
    true_tables = search_part(places[sample], places, (n_targets, n_impostors), threads=threads)
    recall = measured_recall(tables, sample, true_tables)
    return tables[TARGETS].rows[position], tables[IMPOSTORS].rows[position], recall


def make_index(index: str | Index, n_threads: int) -> Index:
    """A new index, the built-in one or a copy of the given one."""
    if isinstance(index, str):
        return _Faiss(n_threads)
    copy: Index = clone(index, safe=False)
    return copy


class IndexedPart:
    """Indexes of points, all or a part of them, by groups of classes.

    Parameters
    ----------
    references : the points to be found
    center, exponent : indexes receive points less the center, divided by 2**exponent
    create : makes an index

    Notes
    -----
    Indexes are created when they are first used and not kept, unless `build` is called.
    """

    def __init__(
        self, references: Places, center: NDArray, exponent: int, create: Callable[[], Index]
    ) -> None:
        self._references, self._center, self._exponent = references, center, exponent
        self._create = create
        self._groups: list[_Group] | None = None

    def build(self) -> Self:
        """Create all indexes, to be used by several searches."""
        self._groups = list(self._make_groups())
        return self

    def search(self, queries: Places, n_neighbors: tuple[int, int]) -> tuple[Table, Table]:
        """The nearest targets and impostors of the queries that the indexes find."""
        references, codes = self._references, queries.labels.codes
        points = self._scaled(queries.points)
        tables = tuple(Table.empty(len(points), k) for k in n_neighbors)
        digits = list(_groupings(codes, queries.labels.sets.shape[0]))
        for group in self._make_groups() if self._groups is None else self._groups:
            values = codes if group.digit is None else digits[group.digit]
            is_member = values == group.value
            for side in group.sides:
                asking = np.flatnonzero(is_member if side == TARGETS else ~is_member)
                # The first target of a point is the point itself, if it is a reference.
                wanted = min(len(group.members), n_neighbors[side] + (side == TARGETS))
                for begin in range(0, len(asking), N_QUERIES):
                    chunk = asking[begin : begin + N_QUERIES]
                    positions = _checked_positions(
                        group.index, points[chunk], wanted, len(group.members)
                    )
                    line, column = np.nonzero(positions != NONE)
                    i, j = chunk[line], group.members[positions[line, column]]
                    differ = queries.rows[i] != references.rows[j]
                    i, j = i[differ], j[differ]
                    squares = pair_squares(queries.points, i, references.points, j)
                    tables[side].offer(i, references.rows[j], squares)
        return tables[TARGETS], tables[IMPOSTORS]

    def _make_groups(self) -> Iterator[_Group]:
        codes = self._references.labels.codes
        points = self._scaled(self._references.points)

        def group(
            digit: int | None, value: int, members: NDArray, sides: tuple[int, ...]
        ) -> _Group:
            index = self._create() if len(members) > MIN_INDEXED else _BruteForce()
            index.fit(points[members])
            return _Group(digit, value, members, sides, index)

        groupings = list(_groupings(codes, self._references.labels.sets.shape[0]))
        both = (IMPOSTORS, TARGETS) if len(groupings) == 1 else (IMPOSTORS,)
        for digit, values in enumerate(groupings):
            for value in np.unique(values):
                yield group(digit, value, np.flatnonzero(values == value), both)
        if len(groupings) > 1:
            for code in np.unique(codes):
                yield group(None, code, np.flatnonzero(codes == code), (TARGETS,))

    def _scaled(self, points: NDArray) -> NDArray:
        scaled: NDArray = points - self._center
        scale(scaled, -self._exponent)
        return scaled


@dataclass(frozen=True, eq=False)
class _Group:
    """An index of the points whose class has some value at a digit, or, for None, is this one.

    `sides` are what it answers: targets of points in the group, impostors of all others.
    """

    digit: int | None
    value: int
    members: NDArray
    sides: tuple[int, ...]
    index: Index


def _groupings(classes: NDArray, n_classes: int) -> Iterator[NDArray]:
    """Groups of classes 0, 1, …: the group of each point. Any two classes differ in one of them."""
    n_digits = 1
    while (base := ceil(n_classes ** (1 / n_digits))) > MAX_GROUPS:
        n_digits += 1
    for _ in range(n_digits):
        classes, digit = np.divmod(classes, base)
        yield digit


def _checked_positions(index: Index, queries: NDArray, wanted: int, n_members: int) -> NDArray:
    """The positions that the index returns for each query, `NONE` where it has none."""
    _, positions = index.kneighbors(queries, wanted)
    positions = np.asarray(positions)
    if positions.ndim != 2 or len(positions) != len(queries):
        raise ValueError(
            f"kneighbors of {type(index).__name__} must return distances and positions, a line for "
            f"each of {len(queries)} queries; got positions of shape {positions.shape}."
        )
    if not np.issubdtype(positions.dtype, np.integer) or positions.max(initial=-1) >= n_members:
        raise ValueError(
            f"kneighbors of {type(index).__name__} must return positions in the {n_members} points "
            f"that it was fitted on, integers; got {positions.max(initial=-1)} "
            f"({positions.dtype})."
        )
    return np.maximum(positions.astype(np.intp), NONE)


def sample_positions(n: int) -> NDArray:
    """Of n points, those on which the recall is measured."""
    return np.random.default_rng(0).choice(n, min(N_SAMPLED, n), replace=False)


def measured_recall(
    tables: Sequence[Table], sample: NDArray, true_tables: Sequence[Table]
) -> float:
    """The share of the true neighbors of a sample that the tables contain; it is logged."""
    n_found, n_exist = np.zeros(2, dtype=int), np.zeros(2, dtype=int)
    for side, (table, true) in enumerate(zip(tables, true_tables, strict=True)):
        squares = table.squares[sample]
        n_found[side] = np.sum((squares <= true.squares[:, -1:]) & (squares < np.inf))
        n_exist[side] = np.sum(true.rows != NONE)
    recall = float(n_found.sum() / n_exist.sum())  # two distinct points are neighbors
    logger.info(
        "the index found %.3f of the nearest neighbors of %d points: %d of %d targets, %d of %d "
        "impostors",
        *(recall, len(sample), n_found[TARGETS], n_exist[TARGETS]),
        *(n_found[IMPOSTORS], n_exist[IMPOSTORS]),
    )
    if recall < MIN_RECALL:
        warn(
            f"the index found {recall:.0%} of the nearest targets and impostors, by a sample of "
            f"{len(sample)} points; comparisons use farther ones instead. Use an index that "
            "searches more widely, or the exact search."
        )
    return recall


class _BruteForce:
    """Brute-force search with the interface of an index; ties go to the earlier point."""

    def fit(self, X: NDArray, /) -> None:
        self._points = X

    def kneighbors(self, X: NDArray, n_neighbors: int, /) -> tuple[NDArray, NDArray]:
        squares = cdist(X, self._points, "sqeuclidean")
        nearest = np.argsort(squares, axis=1, kind="stable")[:, :n_neighbors]
        return np.take_along_axis(squares, nearest, axis=1), nearest


class _Faiss:
    """FAISS's inverted file with 2·√n cells. The result does not depend on the threads."""

    n_probes = 16

    def __init__(self, n_threads: int) -> None:
        self._faiss: Any = import_module("faiss")
        self._n_threads = n_threads

    def fit(self, X: NDArray, /) -> None:
        X = X.astype(np.float32, copy=False)
        n, n_features = X.shape
        n_cells = min(n, int(2 * n**0.5))
        self._centers = self._faiss.IndexFlatL2(n_features)  # the index does not keep it alive
        self._index = self._faiss.IndexIVFFlat(self._centers, n_features, n_cells)
        self._index.nprobe = self.n_probes
        self._index.cp.niter = 10  # 25 take twice as long and find no more
        self._index.cp.min_points_per_centroid = 1  # otherwise it writes to stderr
        with self._limited_threads():
            self._index.train(X)
            self._index.add(X)

    def kneighbors(self, X: NDArray, n_neighbors: int, /) -> tuple[NDArray, NDArray]:
        with self._limited_threads():
            squares, positions = self._index.search(X.astype(np.float32, copy=False), n_neighbors)
        return squares, positions

    def __reduce__(self) -> tuple[Any, ...]:
        return _Faiss._restore, (self._n_threads, self._faiss.serialize_index(self._index))

    @classmethod
    def _restore(cls, n_threads: int, serialized: NDArray) -> _Faiss:
        restored = cls(n_threads)
        restored._index = restored._faiss.deserialize_index(serialized)
        return restored

    @contextmanager
    def _limited_threads(self) -> Iterator[None]:
        before = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(self._n_threads)
        try:
            yield
        finally:
            self._faiss.omp_set_num_threads(before)
