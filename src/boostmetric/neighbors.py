"""Nearest targets and impostors through an index, for more points than can be compared in pairs.

An index is fitted on points and then says which of them are nearest to a query. It knows nothing of
labels, so the impostors of a point have to come from indexes that hold none of its class. With up
to `MOST_GROUPS` classes there is one index a class, asked by all points: C queries a point. With
more, the classes are numbered and the number is written with a few digits, to a base of at most
`MOST_GROUPS`; there is one index for every value of every digit, asked by the points that have
another value there. Two classes differ in some digit, so every impostor is in an index that is
asked, after O(log C) queries a point in place of C. Targets come from the point's own class.

What an index answers is a suggestion. The distances are computed again, from differences in
float64, the suggestions of several indexes are ranked together, by distance and then by row number,
and what the index missed is measured on a sample.

The built-in indexes are FAISS's cells around centres (IVF) and the graph of PyNNDescent, the first
that is installed. An impostor lies where its asker's class does not, and a graph, which is walked
towards the query, is at its worst with queries from elsewhere: on a class of 200,000 points in 164
dimensions FAISS's graph found 78 % of the impostors in the time in which its cells found 95 %.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from math import ceil
from typing import Any, Protocol

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.base import clone

from boostmetric._warn import warn
from boostmetric.mining import NONE
from boostmetric.points import binary_exponent, centred, distinct_points, scale, scaling_exponent

APPROXIMATE = "approximate"
"""Stands for the first built-in index that is installed."""

MOST_GROUPS = 16
"""Groups into which the classes are divided at most, each with an index of its own."""

SMALL = 64
"""Groups of up to this many points are searched without an index, which would be no faster."""

BLOCK = 4096
"""Queries made at once."""

CHUNK_ENTRIES = 1 << 20
"""Coordinates of single pairs held at once (8 MB in float64)."""

SAMPLE = 200
"""Points on which the recall is measured."""

ENOUGH = 0.9
"""A recall below this is warned of."""

TARGETS, IMPOSTORS = 0, 1

logger = logging.getLogger("boostmetric")


class Index(Protocol):
    """What finds nearest neighbours: `sklearn.neighbors.NearestNeighbors`, for one."""

    def fit(self, X: NDArray, /) -> Any:
        """Take in the points to be found."""

    def kneighbors(self, X: NDArray, n_neighbors: int, /) -> tuple[Any, Any]:
        """Distances (not looked at) and positions of the points nearest to each row of X."""


def check_index(index: object) -> None:
    """Raise an error that says what is needed, if this is not an index or is not installed.

    >>> check_index("exact")
    Traceback (most recent call last):
    ValueError: neighbors='exact' is not an index: ...
    """
    if isinstance(index, str) and index == APPROXIMATE:
        _built_in()
        return
    methods = [getattr(index, name, None) for name in ("fit", "kneighbors")]
    if isinstance(index, type) or not all(map(callable, methods)):
        raise ValueError(
            f"neighbors={index!r:.80} is not an index: give {APPROXIMATE!r}, or an object with the "
            "methods fit(X) and kneighbors(X, n_neighbors), such as "
            "sklearn.neighbors.NearestNeighbors(algorithm='kd_tree')."
        )
    for method, arguments in zip(methods, ([index], [index, 1]), strict=True):
        assert method is not None
        try:
            signature(method).bind(*arguments)
        except TypeError as error:
            raise ValueError(
                f"neighbors={index!r:.80} is not an index: fit(X) and kneighbors(X, n_neighbors) "
                f"are called with the points alone, but {method.__name__} says {str(error)!r}. Use "
                "sklearn.neighbors.NearestNeighbors rather than a classifier."
            ) from None
        except ValueError:  # written in C, and does not say what it takes
            continue


def indexed_targets_and_impostors(
    X: NDArray,
    labels: NDArray,
    n_targets: int,
    n_impostors: int,
    index: str | Index,
    n_jobs: int | None = None,
) -> tuple[NDArray, NDArray, float]:
    """For every point its nearest points of the same label and of the others, as an index has it.

    As `mining.nearest_targets_and_impostors`, and with an exact index the same but for the choice
    among points that are equally far; neighbours are at places of their own here too.

    Parameters
    ----------
    X : array of shape (n, D)
    labels : array of shape (n,) of integers
    n_targets, n_impostors : numbers of neighbours to look for
    index : "approximate" for FAISS or PyNNDescent, the first that is installed; or an object with
        `fit(X)` and `kneighbors(X, n_neighbors)`, for Euclidean distances. Copies of it are
        fitted on parts of X, centred and scaled by a power of two so that the largest absolute
        value is between 0.5 and 1; it may find fewer neighbours, or -1 for none
    n_jobs : number of threads of the built-in index; an index of your own has its own setting

    Returns
    -------
    targets : array of shape (n, n_targets), nearest first; `NONE` where there are no more
    impostors : array of shape (n, n_impostors), in the same way
    recall : share of the true neighbours of `SAMPLE` points that were found, or others no farther
        away. It is logged, and below `ENOUGH` there is a warning

    Notes
    -----
    With C classes every point makes C queries of indexes of n/C points if C ≤ `MOST_GROUPS`, and
    otherwise at most `MOST_GROUPS`·⌈log(C)/log(`MOST_GROUPS`)⌉ of larger ones: 32 if C ≤ 256, 48 if
    C ≤ 4096. The recall costs `SAMPLE`·n distances. Memory: X twice, one index at a time,
    O(n·(n_targets + n_impostors)), and blocks.

    Examples
    --------
    >>> from sklearn.neighbors import NearestNeighbors
    >>> X, labels = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1])
    >>> targets, impostors, recall = indexed_targets_and_impostors(
    ...     X, labels, 1, 2, NearestNeighbors(algorithm="kd_tree")
    ... )
    >>> targets.ravel().tolist(), impostors.tolist(), recall
    ([1, 0, 3, 2], [[2, 3], [2, 3], [1, 0], [1, 0]], 1.0)
    """
    check_index(index)
    first, inverse = distinct_points(X, labels)
    by_label = np.lexsort((first, labels[first]))
    rows = first[by_label]
    exponent = scaling_exponent(X)
    points = X[rows]
    scale(points, exponent)
    points = centred(points)
    scale(points, -binary_exponent(points))
    make: Callable[[], Index] = partial(clone, index, safe=False)
    if isinstance(index, str):
        points = points.astype(np.float32, copy=False)
        make = partial(_built_in(), effective_n_jobs(n_jobs))
    search = _Search(X, exponent, rows, labels[rows], (n_targets, n_impostors))
    search.run(points, make)
    recall = _measured_recall(search)
    position = np.empty(len(rows), dtype=np.intp)
    position[by_label] = np.arange(len(rows))
    targets, impostors = (side.rows[position[inverse]] for side in search.sides)
    return targets, impostors, recall


class _Ranking:
    """The k nearest points so far of n points, by squared distance and then by row number."""

    def __init__(self, n: int, k: int) -> None:
        self.k = k
        self.squares = np.full((n, k), np.inf)
        self.rows = np.full((n, k), NONE, dtype=np.intp)

    def offer(self, points: NDArray, rows: NDArray, squares: NDArray) -> None:
        """Take in neighbours of the points: a line of `rows` (or `NONE`) and `squares` for each."""
        rows = np.hstack([self.rows[points], rows])
        squares = np.hstack([self.squares[points], squares])
        again = _repeated(rows)
        rows[again], squares[again] = NONE, np.inf
        nearest = np.lexsort((rows, squares))[:, : self.k]
        self.rows[points] = np.take_along_axis(rows, nearest, axis=1)
        self.squares[points] = np.take_along_axis(squares, nearest, axis=1)


def _repeated(rows: NDArray) -> NDArray:
    """Where an entry stands in its line for a second time."""
    order = np.argsort(rows, axis=1, kind="stable")
    in_order = np.take_along_axis(rows, order, axis=1)
    repeated = np.zeros(rows.shape, dtype=bool)
    np.put_along_axis(repeated, order[:, 1:], in_order[:, 1:] == in_order[:, :-1], axis=1)
    return repeated


class _Search:
    """A search for neighbours on two sides, `TARGETS` and `IMPOSTORS`.

    Parameters
    ----------
    X : array of shape (N, D)
    exponent : distances are those of 2**exponent·X
    rows : array of shape (n,), those rows of X that are at places of their own, sorted by label
    labels : array of shape (n,), theirs
    n_neighbors : numbers of targets and of impostors
    """

    def __init__(
        self,
        X: NDArray,
        exponent: int,
        rows: NDArray,
        labels: NDArray,
        n_neighbors: tuple[int, int],
    ) -> None:
        self.X, self._exponent, self.rows, self.labels = X, exponent, rows, labels
        self.sides = tuple(_Ranking(len(rows), k) for k in n_neighbors)

    def run(self, points: NDArray, make: Callable[[], Index]) -> None:
        """Find the neighbours with indexes on the points, which are rows of X moved and scaled."""

        def fitted(members: NDArray) -> Index:
            index = make() if len(members) > SMALL else _BruteForce()
            index.fit(points[members])
            return index

        _, starts, classes = np.unique(self.labels, return_index=True, return_inverse=True)
        groupings = list(_groupings(classes.reshape(-1)))
        for group in groupings:
            for value in range(int(group.max()) + 1):
                members = np.flatnonzero(group == value)
                index = fitted(members)
                self._ask(IMPOSTORS, index, points, members, np.flatnonzero(group != value))
                if len(groupings) == 1:
                    self._ask(TARGETS, index, points, members, members)
        if len(groupings) > 1:
            for members in np.split(np.arange(len(points)), starts[1:]):
                self._ask(TARGETS, fitted(members), points, members, members)

    def _ask(
        self, side: int, index: Index, points: NDArray, members: NDArray, askers: NDArray
    ) -> None:
        """Take in what the index of the members answers to the askers."""
        ranking = self.sides[side]
        wanted = min(len(members), ranking.k + (side == TARGETS))  # a target's first is itself
        for begin in range(0, len(askers), BLOCK):
            block = askers[begin : begin + BLOCK]
            answers = _answers(index, points[block], wanted, len(members))
            found = np.where(answers == NONE, NONE, members[answers])
            found[found == block[:, None]] = NONE
            rows = np.where(found == NONE, NONE, self.rows[found])
            ranking.offer(block, rows, self._squares(self.rows[block], rows))

    def points_at(self, rows: NDArray) -> NDArray:
        """Rows of X, scaled, in float64."""
        points: NDArray = self.X[rows].astype(np.float64)
        scale(points, self._exponent)
        return points

    def _squares(self, rows: NDArray, others: NDArray) -> NDArray:
        """Squared distances of each row of X to the others in its line, inf for `NONE`."""
        squares = np.full(others.shape, np.inf)
        line, column = np.nonzero(others != NONE)
        size = max(1, CHUNK_ENTRIES // self.X.shape[1])
        for begin in range(0, len(line), size):
            i, j = line[begin : begin + size], column[begin : begin + size]
            differences = self.X[rows[i]].astype(np.float64)
            differences -= self.X[others[i, j]]
            scale(differences, self._exponent)
            squares[i, j] = np.einsum("pd,pd->p", differences, differences)
        return squares


def _groupings(classes: NDArray) -> Iterator[NDArray]:
    """Groups of classes 0, 1, …: for each point its group. Any two classes are apart in one."""
    n_classes, n_digits = int(classes.max()) + 1, 1
    while (base := ceil(n_classes ** (1 / n_digits))) > MOST_GROUPS:
        n_digits += 1
    for _ in range(n_digits):
        classes, digit = np.divmod(classes, base)
        yield digit


def _answers(index: Index, queries: NDArray, wanted: int, n_members: int) -> NDArray:
    """The positions that the index has for each query, `NONE` where it has none."""
    _, positions = index.kneighbors(queries, wanted)
    positions = np.asarray(positions)
    if positions.ndim != 2 or len(positions) != len(queries):
        raise ValueError(
            f"kneighbors of {type(index).__name__} must give distances and positions, a line for "
            f"each of {len(queries)} queries; got positions of shape {positions.shape}."
        )
    if not np.issubdtype(positions.dtype, np.integer) or positions.max(initial=-1) >= n_members:
        raise ValueError(
            f"kneighbors of {type(index).__name__} must give positions in the {n_members} points "
            f"that it was fitted on, integers; got {positions.max(initial=-1)} "
            f"({positions.dtype})."
        )
    return np.maximum(positions.astype(np.intp), NONE)


def _measured_recall(search: _Search) -> float:
    """The share of the true neighbours of a sample that a search found; logged or warned of."""
    n = len(search.rows)
    sample = np.random.default_rng(0).choice(n, min(SAMPLE, n), replace=False)
    found, exist = np.zeros(2), np.zeros(2)
    for side, true in enumerate(_true_squares(search, sample)):
        # The same sum in another order may differ in its last digits.
        bound = true.max(axis=1, keepdims=True) * (1 + 1e-12)
        squares = search.sides[side].squares[sample]
        found[side] = np.sum((squares <= bound) & (squares < np.inf))
        exist[side] = np.sum(true < np.inf)
    recall = float(found.sum() / exist.sum())  # two places are neighbours of some kind
    logger.info(
        "the index found %.3f of the nearest neighbours of %d points: %d of %d targets, %d of %d "
        "impostors",
        *(recall, len(sample), found[TARGETS], exist[TARGETS], found[IMPOSTORS], exist[IMPOSTORS]),
    )
    if recall < ENOUGH:
        warn(
            f"the index found {recall:.0%} of the nearest targets and impostors, by a sample of "
            f"{len(sample)} points; comparisons will be made of farther ones instead. Use an index "
            "that searches more widely, or search without one, which is exact."
        )
    return recall


def _true_squares(search: _Search, sample: NDArray) -> list[NDArray]:
    """Squared distances of the sample to its nearest targets and impostors, in any order."""
    best = [np.full((len(sample), side.k), np.inf) for side in search.sides]
    queries = search.points_at(search.rows[sample])
    for begin in range(0, len(search.rows), BLOCK):
        block = np.arange(begin, min(begin + BLOCK, len(search.rows)))
        squares = cdist(queries, search.points_at(search.rows[block]), "sqeuclidean")
        squares[sample[:, None] == block] = np.inf
        same = search.labels[sample][:, None] == search.labels[block]
        for side, of_side in ((TARGETS, same), (IMPOSTORS, ~same)):
            joined = np.hstack([best[side], np.where(of_side, squares, np.inf)])
            k = search.sides[side].k
            best[side] = np.partition(joined, k - 1, axis=1)[:, :k]
    return best


class _BruteForce:
    """An index that is none: all distances. Among equally near points the earlier is first."""

    def fit(self, X: NDArray, /) -> None:
        self._points = X

    def kneighbors(self, X: NDArray, n_neighbors: int, /) -> tuple[NDArray, NDArray]:
        squares = cdist(X, self._points, "sqeuclidean")
        nearest = np.argsort(squares, axis=1, kind="stable")[:, :n_neighbors]
        return np.take_along_axis(squares, nearest, axis=1), nearest


class _Faiss:
    """FAISS's inverted file: of 2·√n cells around centres those nearest to a query are looked into.

    It takes float32. The result does not depend on the number of threads.
    """

    module = "faiss"
    n_probes = 16

    def __init__(self, n_threads: int) -> None:
        self._faiss: Any = import_module(self.module)
        self._n_threads = n_threads

    def fit(self, X: NDArray, /) -> None:
        n, n_features = X.shape
        n_cells = min(n, int(2 * n**0.5))
        self._centres = self._faiss.IndexFlatL2(n_features)  # the index does not keep it alive
        self._index = self._faiss.IndexIVFFlat(self._centres, n_features, n_cells)
        self._index.nprobe = self.n_probes
        self._index.cp.niter = 10  # 25 take twice as long and find no more
        self._index.cp.min_points_per_centroid = 1  # otherwise it writes to stderr
        with self._threads():
            self._index.train(X)
            self._index.add(X)

    def kneighbors(self, X: NDArray, n_neighbors: int, /) -> tuple[NDArray, NDArray]:
        with self._threads():
            squares, positions = self._index.search(X, n_neighbors)
        return squares, positions

    @contextmanager
    def _threads(self) -> Iterator[None]:
        before = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(self._n_threads)
        try:
            yield
        finally:
            self._faiss.omp_set_num_threads(before)


class _NNDescent:
    """PyNNDescent's graph of neighbours; compiled when first used, which takes a minute.

    The result depends a little on the number of threads.
    """

    module = "pynndescent"
    n_neighbors = 30
    epsilon = 0.2  # how much farther than the neighbours so far a path may lead

    def __init__(self, n_threads: int) -> None:
        self._class = import_module(self.module).NNDescent
        self._numba: Any = import_module("numba")
        self._n_threads = min(n_threads, self._numba.config.NUMBA_NUM_THREADS)

    def fit(self, X: NDArray, /) -> None:
        with self._threads():
            self._index = self._class(
                X,
                n_neighbors=min(self.n_neighbors, len(X)),
                random_state=0,
                parallel_batch_queries=self._n_threads > 1,
            )
            self._index.prepare()

    def kneighbors(self, X: NDArray, n_neighbors: int, /) -> tuple[NDArray, NDArray]:
        with self._threads():
            positions, distances = self._index.query(X, n_neighbors, epsilon=self.epsilon)
        return distances, positions

    @contextmanager
    def _threads(self) -> Iterator[None]:
        before = self._numba.get_num_threads()
        self._numba.set_num_threads(self._n_threads)
        try:
            yield
        finally:
            self._numba.set_num_threads(before)


def _built_in() -> type[_Faiss] | type[_NNDescent]:
    """The first built-in index that is installed; an ImportError if none is."""
    for kind in (_Faiss, _NNDescent):
        if find_spec(kind.module) is not None:
            return kind
    raise ImportError(
        f"neighbors={APPROXIMATE!r} needs FAISS or PyNNDescent, and neither is installed. Install "
        'one with: pip install "boostmetric[approximate]" (or faiss-cpu, or pynndescent), or give '
        "an index of your own, such as sklearn.neighbors.NearestNeighbors(algorithm='kd_tree')."
    )
