"""Exact search for the nearest targets and impostors of every point, tile by tile.

A tile is a submatrix of the matrix of all squared distances. Every point x has a *sketch* z with
‖z − z'‖ ≤ ‖x − x'‖: its coordinates along the leading principal axes and the norm of the remainder.
With two more entries, −½‖z‖² and 1 on the left, 1 and −½‖z'‖² on the right, the inner product of
two sketches is −½‖z − z'‖², so one matrix product computes a tile. A pair is a candidate if its
product reaches the *floor* of one of its points, −½ times the square of the point's current last
neighbor. Candidates are tested again with all coordinates; the remaining ones are ranked by their
exact squares (`ranking`).

Rounding. Let u be the unit roundoff of the product, D the number of features, and x a row of
`full` (the centered points, rounded). Sizes ‖x‖² and coordinates are computed in float64 and then
rounded; the norm of the remainder is rounded up. A product has at most D + 2 terms, whose absolute
values sum to at most ‖x‖² + ‖x'‖², so its error is at most γ(D + 2)·(‖x‖² + ‖x'‖²) with
γ(k) = k·u/(1 − k·u). Rounding points, coordinates and halves adds at most 5·u of the same sum. Each
−½‖x‖² is increased by γ(D + 8)·‖x‖², so no product is below −½‖x − x'‖².
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise, product
from threading import Lock, local
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array, issparse, vstack

from boostmetric.data.labels import Labels
from boostmetric.data.points import (
    Points,
    binary_exponent,
    centered,
    distinct_points,
    scale,
    scaling_exponent,
)
from boostmetric.engines import StopRequested, Threads
from boostmetric.neighbors.kernels import compiled_loops
from boostmetric.neighbors.ranking import DIGITS, PAIR_COORDINATES, NeighborTable, pair_squares

TILE = 1024
"""Rows and columns of a tile: 4 MB in float32, which fits into the cache."""

MIN_SAMPLE, SAMPLED_SHARE, MAX_SAMPLE = 512, 32, 8192
"""Initial neighbors come from one in `SAMPLED_SHARE` points (one in 16 is as fast on MNIST), but
from at least `MIN_SAMPLE` and about `MAX_SAMPLE` at most: 32 MB of products per thread."""

KEPT_VARIANCE, KEPT_VARIANCE_COMPILED = 0.93, 0.88
"""Share of the variance that sketches keep, without and with compiled loops. On MNIST these are 78
and 55 of 164 axes, in single runs the fastest of 0.90 to 0.95 and of 0.80 to 0.92."""

MAX_SKETCH = 0.65
"""Sketches longer than this share of the features cost more time than they save."""

MIN_FLOOR = 8
"""If floors are below this multiple of their rounding error, too many pairs become candidates, and
products are computed in float64."""

TARGETS, IMPOSTORS = 0, 1


@dataclass(frozen=True, eq=False)
class Places:
    """Distinct points, or a part of them.

    Of points with equal coordinates and labels, the first row represents all.

    Attributes
    ----------
    points : array of shape (n, D), dense or CSR, scaled such that squares neither overflow nor
        underflow (`points.scaling_exponent`); the same power of two for all parts
    rows : array of shape (n,), row numbers in the complete data
    labels : labels of the points; all parts have the same label sets
    """

    points: Points
    rows: NDArray
    labels: Labels

    @classmethod
    def of(cls, X: Points, labels: Labels) -> tuple[Places, NDArray]:
        """The distinct points of X, sorted by label and row, and the position of each row of X."""
        first, inverse = distinct_points(X, labels.codes)
        order = np.lexsort((first, labels.codes[first]))
        position = np.empty(len(order), dtype=np.intp)
        position[order] = np.arange(len(order))
        rows = first[order]
        points = X[rows]
        scale(points, scaling_exponent(points))
        return cls(points, rows, labels[rows]), position[inverse]

    def __getitem__(self, chosen: NDArray) -> Places:
        return Places(self.points[chosen], self.rows[chosen], self.labels[chosen])


def nearest_targets_and_impostors(
    X: Points,
    labels: Labels,
    n_targets: int,
    n_impostors: int,
    *,
    likely_pairs: NDArray | None = None,
    threads: Threads | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> tuple[NDArray, NDArray]:
    """The nearest points that share a label with each point, and the nearest that share none.

    Of equal points with equal labels, the first represents all, and duplicates of a point are not
    its targets: a point of weight 2 is equivalent to a point given twice. Ties are broken by row
    number.

    Parameters
    ----------
    X : array of shape (n, D), dense or CSR
    labels : one label per point, or multilabel
    n_targets, n_impostors : numbers of neighbors
    likely_pairs : array of shape (P, 2), pairs of rows that are likely neighbors, such as those
        found in another space. They save time and do not affect the result
    threads : process the tiles; the result does not depend on their number
    should_stop : called once per tile; if it returns True, `StopRequested` is raised

    Returns
    -------
    targets, impostors : arrays of shape (n, n_targets) and (n, n_impostors), nearest first;
        `NONE` if there are no more

    Notes
    -----
    O(n²·d) time for sketches of length d ≤ D; O(n·(D + n_targets + n_impostors)) memory, and one
    tile per thread.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [3.0], [7.0]])
    >>> labels = Labels.of([[1, 0], [0, 1], [1, 1], [0, 0]])
    >>> targets, impostors = nearest_targets_and_impostors(X, labels, 1, 1)
    >>> targets.ravel().tolist(), impostors.ravel().tolist()
    ([2, 2, 1, -1], [1, 0, 3, 2])
    """
    places, position = Places.of(X, labels)
    search = _Search(places, places, (n_targets, n_impostors), threads, should_stop)
    if likely_pairs is not None:
        i, j = position[likely_pairs].T
        search.start_from(i[i != j], j[i != j])
    targets, impostors = (table.rows[position] for table in search.run())
    return targets, impostors


def nearest_points(
    X: Points,
    queries: Points,
    n_neighbors: int,
    *,
    likely: NDArray | None = None,
    threads: Threads | None = None,
) -> NDArray:
    """The rows of X that are nearest to each query, nearest first; ties are broken by row number.

    Parameters
    ----------
    X : array of shape (n, D), dense or CSR
    queries : array of shape (q, D)
    n_neighbors : number of neighbors, at most n
    likely : array of shape (q, k), rows of X that are likely neighbors of each query, such as those
        found in another space. They save time and do not affect the result
    threads : process the tiles

    Examples
    --------
    >>> nearest_points(np.array([[0.0], [1.0], [3.0]]), np.array([[2.2]]), 2)
    array([[2, 1]])
    """
    # Scaled together; all points have the same label, so all references are targets.
    points: Any
    if issparse(X) or issparse(queries):
        points = vstack([csr_array(X), csr_array(queries)], format="csr")
    else:
        points = np.concatenate([X, queries])
    scale(points, scaling_exponent(points))
    labels = Labels.of(np.zeros(points.shape[0], dtype=np.intp))
    everything = Places(points, np.arange(points.shape[0]), labels)
    references = everything[np.arange(X.shape[0])]
    searching = everything[np.arange(X.shape[0], points.shape[0])]
    search = _Search(searching, references, (n_neighbors, 1), threads)
    if likely is not None:
        search.start_from(np.repeat(np.arange(len(likely)), likely.shape[1]), likely.ravel())
    return search.run()[TARGETS].rows


def search_part(
    queries: Places,
    references: Places,
    n_neighbors: tuple[int, int],
    *,
    threads: Threads | None = None,
) -> tuple[NeighborTable, NeighborTable]:
    """The nearest targets and impostors of the queries among the references.

    A query is not its own neighbor: equal row numbers are skipped. `merge_tables` combines the
    results for several parts of the references; the merged tables do not depend on the parts.

    Examples
    --------
    >>> places, _ = Places.of(np.array([[0.0], [1.0], [3.0]]), Labels.of([0, 1, 0]))
    >>> targets, impostors = search_part(places, places[np.array([1, 2])], (1, 1))
    >>> places.rows.tolist(), targets.rows.tolist(), impostors.rows.tolist()
    ([0, 2, 1], [[2], [-1], [-1]], [[1], [1], [2]])
    """
    order, other_order = (
        np.lexsort((places.rows, places.labels.codes)) for places in (queries, references)
    )
    search = _Search(queries[order], references[other_order], n_neighbors, threads)
    back = np.argsort(order)
    targets, impostors = (
        NeighborTable(table.squares[back], table.rows[back]) for table in search.run()
    )
    return targets, impostors


class _Search:
    """A search for the neighbors of queries among references, both sorted by label.

    If queries and references are the same object, each pair of tiles is computed only once.
    """

    def __init__(
        self,
        queries: Places,
        references: Places,
        n_neighbors: tuple[int, int],
        threads: Threads | None,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        self._queries, self._references = queries, references
        self._is_symmetric = queries is references
        self._threads, self._should_stop = threads or Threads(1), should_stop or (lambda: False)
        n, m = len(queries.rows), len(references.rows)
        self._loops = None if issparse(queries.points) else compiled_loops(n * m // 100)
        self._tables = tuple(NeighborTable.empty(n, k) for k in n_neighbors)
        self._tiles = _tiles(queries.labels.codes)
        self._other_tiles = self._tiles if self._is_symmetric else _tiles(references.labels.codes)
        self._lock = Lock()
        self._buffers = local()
        self._floors: list[NDArray] = []

    def start_from(self, i: NDArray, j: NDArray) -> None:
        """Initial neighbors from pairs of different points, at these positions."""
        labels, others = self._queries.labels, self._references.labels
        if labels.classes is not None:
            similar = np.asarray(labels.codes[i] == others.codes[j])
        else:
            common = labels.sets[labels.codes[i]].multiply(labels.sets[others.codes[j]])
            similar = np.asarray(common.sum(axis=1) > 0)
        for side, chosen in ((TARGETS, similar), (IMPOSTORS, ~similar)):
            self._offer(side, i[chosen], j[chosen])

    def run(self) -> tuple[NeighborTable, ...]:
        """The tables of targets and of impostors."""
        if not (self._tiles and self._other_tiles):
            return self._tables
        # 1) sketches, and initial neighbors from a sample; in float64 if float32 is too coarse
        kept = KEPT_VARIANCE if self._loops is None else KEPT_VARIANCE_COMPILED
        is_dense = not issparse(self._queries.points)
        for dtype in (np.float32, np.float64) if is_dense else (np.float64,):
            self._sketches = sketch(self._queries.points, self._references.points, dtype, kept)
            floors = [self._sketches.floors(table.squares[:, -1]) for table in self._tables]
            self._floors = floors
            # References have neighbor lists only if they are the queries; an infinite floor is
            # never reached.
            never = np.full(len(self._references.rows), np.inf, dtype=floors[0].dtype)
            self._other_floors = floors if self._is_symmetric else [never, never]
            self._threads.map(self._sample_tile, self._tiles)
            errors = self._sketches.allowance
            if np.median(-np.maximum(*floors)) >= MIN_FLOOR * np.median(errors):
                break
        # 2) tiles, starting near the diagonal, because such tiles often belong to one class
        if self._is_symmetric:
            pairs = list(combinations_with_replacement(self._tiles, 2))
            pairs.sort(key=lambda pair: pair[1].rows.start - pair[0].rows.start)
        else:
            pairs = list(product(self._tiles, self._other_tiles))
        self._threads.map(self._search_tile, pairs)
        return self._tables

    def _sample_tile(self, tile: _Tile) -> None:
        """Initial neighbors of a tile, from a sample of its classes and one of the others.

        A sample is divided into k parts, and the nearest point of each part is offered. Tiles whose
        lists are complete need none. Impostors within a tile of several classes may be far, so
        those of the other classes are offered, too.
        """
        if self._should_stop():
            raise StopRequested
        incomplete = [np.isinf(table.squares[tile.rows, -1]).any() for table in self._tables]
        codes, everyone = self._references.labels.codes, np.arange(len(self._references.rows))
        classes = slice(*np.searchsorted(codes, [tile.codes[0], tile.codes[-1] + 1]))
        for others in (everyone[classes], np.delete(everyone, classes)):
            step = max(1, min(SAMPLED_SHARE, len(others) // MIN_SAMPLE), len(others) // MAX_SAMPLE)
            sample = np.random.default_rng(0).permutation(others[::step])
            sides = [
                (side, mask)
                for side, mask in self._sides(tile, _Tile.of(codes[sample]))
                if incomplete[side]
            ]
            if len(sample) == 0 or not sides:
                continue
            products = self._sketches.products(tile.rows, sample)
            _, own, same = np.intersect1d(
                self._queries.rows[tile.rows], self._references.rows[sample], True, True
            )
            products[own, same] = -np.inf
            for side, mask in sides:
                near = products if mask is None else np.where(mask, products, -np.inf)
                k = min(self._tables[side].rows.shape[1], len(sample))
                bounds = np.linspace(0, len(sample), k + 1).astype(int)
                best = np.column_stack([
                    begin + near[:, begin:end].argmax(axis=1) for begin, end in pairwise(bounds)
                ])  # fmt: skip
                i, column = np.nonzero(np.take_along_axis(near, best, axis=1) > -np.inf)
                self._offer(side, i + tile.rows.start, sample[best[i, column]])

    def _search_tile(self, pair: tuple[_Tile, _Tile]) -> None:
        """Find and offer the candidates of a tile."""
        if self._should_stop():
            raise StopRequested
        tile, other = pair
        shape = len(tile.inverse), len(other.inverse)
        products = self._sketches.products(
            tile.rows, other.rows, self._buffer("products", shape, self._floors[0].dtype)
        )
        for side, mask in self._sides(tile, other):
            floors = self._floors[side][tile.rows]
            other_floors = self._other_floors[side][other.rows]
            if self._loops is not None:
                positions = self._buffer("positions", (1, products.size + 1), np.intp)[0]
                n_near = self._loops.candidates(products, floors, other_floors, positions)
                positions = positions[:n_near]
                if mask is not None:
                    positions = positions[mask.ravel().take(positions)]
            else:
                is_near = self._buffer("is_near", shape, np.bool_)
                np.greater_equal(products, floors[:, None], out=is_near)
                if self._is_symmetric:
                    is_other = self._buffer("is_other", shape, np.bool_)
                    is_near |= np.greater_equal(products, other_floors, out=is_other)
                if mask is not None:
                    is_near &= mask
                positions = np.flatnonzero(is_near)
            if tile is other:
                i, j = np.divmod(positions, len(products))
                positions = positions[i < j]
            if self._sketches.is_short:
                i, j = self._test(positions, tile, other, floors, other_floors)
            else:
                i, j = np.divmod(positions, products.shape[1])
            i, j = i + tile.rows.start, j + other.rows.start
            if not self._is_symmetric:
                differ = self._queries.rows.take(i) != self._references.rows.take(j)
                i, j = i[differ], j[differ]
            self._offer(side, i, j)

    def _buffer(self, name: str, shape: tuple[int, int], dtype: DTypeLike) -> NDArray:
        """Memory of this thread for an array. New memory is slow when it is first written to."""
        size, buffer = shape[0] * shape[1], getattr(self._buffers, name, None)
        if buffer is None or buffer.size < size or buffer.dtype != dtype:
            buffer = np.empty(size, dtype=dtype)
            setattr(self._buffers, name, buffer)
        return buffer[:size].reshape(shape)

    def _test(
        self, positions: NDArray, tile: _Tile, other: _Tile, floors: NDArray, other_floors: NDArray
    ) -> tuple[NDArray, NDArray]:
        """The pairs at these positions of a tile that reach a floor with all coordinates."""
        (points, others), (halves, other_halves) = self._sketches.full, self._sketches.halves
        points, others = points[tile.rows], others[other.rows]
        halves, other_halves = halves[tile.rows], other_halves[other.rows]
        if self._loops is not None:
            i, j = np.empty((2, len(positions) + 1), dtype=np.intp)
            n_near = self._loops.near_pairs(
                positions, points, halves, floors, others, other_halves, other_floors, i, j
            )
            return i[:n_near], j[:n_near]
        i, j = np.divmod(positions, len(others))
        limits = np.minimum(floors.take(i), other_floors.take(j))
        limits -= halves.take(i)
        limits -= other_halves.take(j)
        is_near = np.empty(len(i), dtype=bool)
        size = max(1, PAIR_COORDINATES // points.shape[1])
        for begin in range(0, len(i), size):
            chunk = slice(begin, begin + size)
            x, z = points.take(i[chunk], 0, mode="clip"), others.take(j[chunk], 0, mode="clip")
            is_near[chunk] = np.einsum("pd,pd->p", x, z) >= limits[chunk]
        return i[is_near], j[is_near]

    def _offer(self, side: int, i: NDArray, j: NDArray) -> None:
        """Offer pairs of positions, to both points if both have neighbor lists."""
        queries, references = self._queries, self._references
        squares = pair_squares(queries.points, i, references.points, j, self._loops)
        owners, rows = i, references.rows.take(j)
        if self._is_symmetric:
            owners, rows = np.concatenate([i, j]), np.concatenate([rows, queries.rows.take(i)])
            squares = np.concatenate([squares, squares])
        table = self._tables[side]
        with self._lock:
            changed = table.offer(owners, rows, squares, self._loops)
            if self._floors:  # otherwise they are computed later
                last = table.squares[changed, -1]
                self._floors[side][changed] = self._sketches.floors(last)

    def _sides(self, tile: _Tile, other: _Tile) -> Iterator[tuple[int, NDArray | None]]:
        """The sides of the pairs of a tile, with a mask if it has pairs of both sides."""
        similar = self._queries.labels.are_similar(tile.codes, other.codes)
        if similar.all() or not similar.any():
            yield (TARGETS if similar.all() else IMPOSTORS), None
        else:
            mask = similar.take(tile.inverse, axis=0).take(other.inverse, axis=1)
            yield TARGETS, mask
            yield IMPOSTORS, ~mask


@dataclass(frozen=True, eq=False)
class _Tile:
    """Consecutive rows, their distinct label codes, and the position of each row among these."""

    rows: slice
    codes: NDArray
    inverse: NDArray

    @classmethod
    def of(cls, codes: NDArray, start: int = 0) -> _Tile:
        distinct, inverse = np.unique(codes, return_inverse=True)
        return cls(slice(start, start + len(codes)), distinct, inverse.reshape(-1))


def _tiles(codes: NDArray) -> list[_Tile]:
    """Tiles of about `TILE` points sorted by label: parts of a class, or several small classes."""
    starts = np.flatnonzero(np.diff(codes, prepend=-1)).tolist()
    bounds, begun = [0], 0
    for start, stop in pairwise([*starts, len(codes)]):
        if stop - start >= TILE // 2:
            n_parts = -(-(stop - start) // TILE)
            bounds.extend(np.linspace(start, stop, n_parts + 1).astype(int).tolist())
            begun = stop
        elif stop - begun >= TILE:
            bounds.append(stop)
            begun = stop
    ends = pairwise([*bounds, len(codes)])
    return [_Tile.of(codes[start:stop], start) for start, stop in ends if start < stop]


@dataclass(frozen=True, eq=False)
class Sketches:
    """Sketches of queries and references; products are in units of `unit`².

    `left`·`right`' are the products of sketches. full·full' + halves + halves' are the products of
    all coordinates; they are the same unless `is_short`. Sparse points are not sketched.
    `allowance` is the part of the queries' halves that covers rounding errors.
    """

    left: Any
    right: Any
    full: tuple[Any, Any]
    halves: tuple[NDArray, NDArray]
    allowance: NDArray
    unit: float
    is_short: bool

    def products(self, rows: slice, others: slice | NDArray, out: NDArray | None = None) -> NDArray:
        """A tile of products; none is below −½‖x − x'‖². If X is dense, `out` stores them."""
        if not issparse(self.left):
            products: NDArray = np.dot(self.left[rows], self.right[others].T, out=out)
            return products
        products = (self.left[rows] @ csr_array(self.right[others].T)).toarray()
        products += self.halves[0][rows, None]
        products += self.halves[1][others]
        return products

    def floors(self, squares: NDArray) -> NDArray:
        """Lower bounds on the products of pairs whose rounded squares are at most `squares`."""
        floors = squares * ((-0.5 - 2 * DIGITS) / self.unit / self.unit)
        floors = floors.astype(self.halves[0].dtype)
        return np.nextafter(floors, floors.dtype.type(-np.inf))


def sketch(queries: Points, references: Points, dtype: DTypeLike, kept: float) -> Sketches:
    """Compute sketches in the given precision that keep this share of the variance."""
    if issparse(queries):
        return _sparse_sketches(queries, references)
    # 1) center at the median of a sample, and scale by a power of two
    D = references.shape[1]
    step = max(1, min(8, len(references) // MIN_SAMPLE))
    center = np.median(references[::step], axis=0)
    given = [queries] if queries is references else [queries, references]
    shifted = [points.astype(np.result_type(points, dtype)) for points in given]
    for points in shifted:
        points -= center
    exponent = max(map(binary_exponent, shifted))
    for points in shifted:
        scale(points, -exponent)
    shifted = [points.astype(dtype, copy=False) for points in shifted]
    # 2) the d leading principal axes (columns) of the sample
    sample = shifted[-1][::step].astype(np.float64)
    sample -= sample.mean(axis=0)
    variances, axes = eigh(sample.T @ sample)
    shares = np.cumsum(variances[::-1])
    d = int(np.searchsorted(shares, kept * shares[-1])) + 1
    axes, is_short = axes[:, ::-1][:, :d], d + 1 <= MAX_SKETCH * D
    # 3) coordinates along the axes, and an upper bound on the norm of the remainder. The error of a
    # coordinate is at most γ(D)·‖x‖, the error of the sum of d squares 2·√d·γ(D)·‖x‖².
    gamma, error = _gamma(D + 8, dtype), (3 * d**0.5 + 2) * _gamma(D + 8, np.float64)
    if is_short and dtype == np.float64:  # the rounding of coordinates is not negligible
        gamma *= 1 + 2 * d**0.5
    parts = []
    for points in shifted:
        sizes = np.einsum("nd,nd->n", points, points, dtype=np.float64)
        short = points
        if is_short:
            short = np.empty((len(points), d + 1), dtype=dtype)
            for begin in range(0, len(points), TILE):
                chunk = slice(begin, begin + TILE)
                coordinates = points[chunk].astype(np.float64) @ axes
                rest = sizes[chunk] * (1 + error)
                rest -= np.einsum("nd,nd->n", coordinates, coordinates)
                short[chunk, :-1] = coordinates
                short[chunk, -1] = np.sqrt(np.maximum(rest, 0))
            short[:, -1] = np.nextafter(short[:, -1], short.dtype.type(np.inf))
        parts.append((points, short, (gamma * sizes - sizes / 2).astype(dtype), gamma * sizes))
    points, short, halves, allowance = parts[0]
    others, other_short, other_halves, _ = parts[-1]
    return Sketches(
        left=np.column_stack([short, halves, np.ones_like(halves)]),
        right=np.column_stack([other_short, np.ones_like(other_halves), other_halves]),
        full=(points, others),
        halves=(halves, other_halves),
        allowance=allowance,
        unit=2.0**exponent,
        is_short=is_short,
    )


def _sparse_sketches(queries: csr_array, references: csr_array) -> Sketches:
    """All coordinates of sparse points, in float64."""
    points: Any
    others: Any
    if queries is references:
        points = others = centered(queries.astype(np.float64))
    else:
        both: Any = centered(vstack([queries, references], format="csr", dtype=np.float64))
        points, others = both[: queries.shape[0]], both[queries.shape[0] :]
    n_terms = max(int(np.diff(each.indptr).max(initial=0)) for each in (points, others))
    gamma = _gamma(n_terms + 8, np.float64)
    sizes = [np.asarray(each.multiply(each).sum(axis=1)).ravel() for each in (points, others)]
    halves = (gamma - 0.5) * sizes[0], (gamma - 0.5) * sizes[1]
    return Sketches(points, others, (points, others), halves, gamma * sizes[0], 1.0, False)


def _gamma(n_terms: int, dtype: DTypeLike) -> float:
    """γ(k) = k·u/(1 − k·u)."""
    error = n_terms * float(np.finfo(dtype).eps) / 2
    return error / (1 - error)
