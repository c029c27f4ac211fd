"""Which points a comparison is made of: the nearest targets and impostors of every point.

The mathematics of the file. Neighbours are ranked by squared distance, summed from differences in
float64 and rounded to twelve digits, and among equals by row number: the result depends on nothing
else, however the work is divided and sums are ordered. Few pairs are looked at that closely. Every
point x has a short *sketch* z, made so that ‖z − z'‖ ≤ ‖x − x'‖: its coordinates along some
principal axes, and the length of what these leave out. Two entries more, −½‖z‖² and 1, matched with
1 and −½‖z'‖², make the inner product of sketches −½‖z − z'‖², so a product of matrices in float32
serves a block of pairs in both directions. A pair survives if its sketches are no farther apart
than the last neighbour that one of its points has so far; then the same test is made with all
coordinates, and what survives that is looked at. Rounding is paid for by a share γ taken off the
norms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import eigh
from sklearn.utils.parallel import Parallel, delayed

from boostmetric.kernels import compiled
from boostmetric.points import binary_exponent, distinct_points, scale, scaling_exponent

BLOCK = 1024
"""Points on either side of a block of pairs."""

CHUNK_ENTRIES = 1 << 20
"""Coordinates of single pairs held at once (8 MB in float64)."""

SAMPLE, SHARE, SHARE_IF_COMPILED = 512, 8, 32
"""First neighbours are looked for among so many points, or one in so many if that is more."""

COARSE = 24
"""Coordinates by which they are looked for."""

KEPT_VARIANCE, KEPT_IF_COMPILED = 0.95, 0.88
"""Share of the variance that the axes of a sketch keep; less where a closer look costs less."""

SHORT = 0.75
"""Sketches of more than this share of the coordinates are not worth their making."""

DIGITS = 2.0**-41
"""Squared distances that differ by no more of themselves are equal."""

NONE = -1
"""Stands in a table of neighbours where a point has no further neighbour."""


def nearest_targets_and_impostors(
    X: NDArray, labels: NDArray, n_targets: int, n_impostors: int, n_jobs: int | None = None
) -> tuple[NDArray, NDArray]:
    """For every point its nearest points of the same label and of the other labels.

    Neighbours are at places of their own: of several equal points (same coordinates, same label)
    the first one stands for all, and a point's own duplicates are not its targets. This makes a
    point of weight 2 the same as the point given twice. Among neighbours at the same distance the
    lower row number comes first.

    Parameters
    ----------
    X : array of shape (n, D)
    labels : array of shape (n,) of integers
    n_targets, n_impostors : numbers of neighbours to look for
    n_jobs : number of threads; the result does not depend on it

    Returns
    -------
    targets : array of shape (n, n_targets), nearest first; `NONE` where there are no more
    impostors : array of shape (n, n_impostors), in the same way

    Notes
    -----
    Exact. O(n²·d) time with sketches of length d ≤ D, O(n·(D + k)) memory beside the blocks.
    """
    first, inverse = distinct_points(X, labels)
    by_label = np.lexsort((first, labels[first]))
    rows = first[by_label]
    points = X[rows]
    scale(points, scaling_exponent(points))
    search = _Search(points, rows, labels[rows], (n_targets, n_impostors))
    search.run(n_jobs)
    position = np.empty(len(rows), dtype=np.intp)
    position[by_label] = np.arange(len(rows))
    targets, impostors = (side.rows[position[inverse]] for side in search.sides)
    return targets, impostors


def labelled_triplets(anchors: NDArray, targets: NDArray, impostors: NDArray) -> NDArray:
    """Each anchor with each of its targets and each of its impostors, of shape (m, 3).

    Parameters
    ----------
    anchors : array of shape (n,)
    targets, impostors : arrays of shape (n, k) and (n, l), with `NONE` where there are no more

    Examples
    --------
    >>> labelled_triplets(np.array([5]), np.array([[1, 2]]), np.array([[3, NONE]])).tolist()
    [[5, 1, 3], [5, 2, 3]]
    """
    n_targets, n_impostors = targets.shape[1], impostors.shape[1]
    anchor = np.repeat(anchors, n_targets * n_impostors)
    target = np.repeat(targets, n_impostors, axis=1).ravel()
    impostor = np.tile(impostors, (1, n_targets)).ravel()
    exist = (target != NONE) & (impostor != NONE)
    return np.stack([anchor, target, impostor], axis=1)[exist]


def rounded(squares: NDArray) -> NDArray:
    """Numbers with their last twelve bits rounded off, which the order of a sum may change.

    >>> one, same, other = rounded(np.array([1.0, 1 + 1e-15, 1 + 1e-11]))
    >>> bool(one == same != other)
    True
    """
    large = squares * (DIGITS * 2**53 + 1)
    return large - (large - squares)


class _Nearest:
    """The k nearest points so far of n points, by squared distance and then by row number."""

    def __init__(self, n: int, k: int, loops: Any = None) -> None:
        self.k, self._loops = k, loops
        self.squares = np.full((n, k), np.inf)
        self.rows = np.full((n, k), NONE, dtype=np.intp)

    def offer(self, points: NDArray, rows: NDArray, squares: NDArray) -> NDArray:
        """Take in neighbours `rows` of the points; the points that have a nearer one now."""
        if self._loops is not None:
            changed = np.zeros(len(points), dtype=bool)
            self._loops.offer(points, rows, squares, self.squares, self.rows, changed)
            return points[changed]
        last = self.squares[points, -1]
        better = np.flatnonzero(squares <= last)
        points, rows, squares, last = points[better], rows[better], squares[better], last[better]
        better = (squares < last) | (rows < self.rows[points, -1])
        better &= (self.rows[points] != rows[:, None]).all(axis=1)
        owners, owner = np.unique(points[better], return_inverse=True)
        owner = np.concatenate([np.repeat(np.arange(len(owners)), self.k), owner])
        rows = np.concatenate([self.rows[owners].ravel(), rows[better]])
        squares = np.concatenate([self.squares[owners].ravel(), squares[better]])
        order = np.lexsort((rows, squares, owner))
        starts = np.searchsorted(owner[order], np.arange(len(owners)))
        kept = order[starts[:, None] + np.arange(self.k)]
        self.rows[owners], self.squares[owners] = rows[kept], squares[kept]
        return owners


@dataclass(eq=False)
class _Sketches:
    """Vectors whose inner products are at least −½ of squared distances, in the unit `unit`².

    `left`·`right`' is the product of the short sketches, and whole·whole' + half + half' that of
    all coordinates. `allowance` is the part of `half` that pays for rounding.
    """

    left: NDArray
    right: NDArray
    whole: NDArray
    half: NDArray
    allowance: NDArray
    unit: float

    @classmethod
    def of(cls, points: NDArray, dtype: DTypeLike, kept: float = KEPT_VARIANCE) -> _Sketches:
        """The sketches of points, in the given precision, by axes that keep so much variance."""
        whole = points.astype(np.result_type(points, dtype))
        whole -= np.median(_sample(points), axis=0)
        exponent = binary_exponent(whole)
        scale(whole, -exponent)
        whole = whole.astype(dtype, copy=False)
        sizes = np.einsum("nd,nd->n", whole, whole)
        allowance = sizes * whole.dtype.type((whole.shape[1] + 8) * np.finfo(dtype).eps / 2)
        half = allowance - sizes / 2
        short, one = _shortened(whole, sizes, kept), np.ones_like(half)
        left, right = np.column_stack([short, half, one]), np.column_stack([short, one, half])
        return cls(left, right, whole, half, allowance, 2.0**exponent)

    def floors(self, squares: NDArray) -> NDArray:
        """Numbers that the products of pairs at these (rounded) squares are not below."""
        floors = (squares * (-0.5 - 2 * DIGITS)).astype(self.half.dtype)
        return np.nextafter(floors, floors.dtype.type(-np.inf))

    def products(self, i: NDArray, j: NDArray) -> NDArray:
        """The products of single pairs by all coordinates."""
        products: NDArray = np.einsum("pd,pd->p", self.whole[i], self.whole[j])
        return products + self.half[i] + self.half[j]


def _sample(rows: NDArray, share: int = SHARE) -> NDArray:
    """`SAMPLE` rows, or one in `share` if that is more, evenly spread."""
    return rows[:: max(1, min(share, len(rows) // SAMPLE))]


def _shortened(points: NDArray, sizes: NDArray, share: float) -> NDArray:
    """Coordinates along the main principal axes and the length of the rest; or all of them."""
    part = _sample(points).astype(np.float64)
    part -= part.mean(axis=0)
    variances, axes = eigh(part.T @ part)
    kept = np.cumsum(variances[::-1])
    d = int(np.searchsorted(kept, share * kept[-1])) + 1
    if d + 1 > SHORT * points.shape[1]:
        return points
    main = points @ axes[:, ::-1][:, :d].astype(points.dtype)
    rest = np.maximum(sizes - np.einsum("nd,nd->n", main, main), 0)
    return np.column_stack([main, np.sqrt(rest)])


class _Search:
    """A search for neighbours on two sides, targets (0) and impostors (1).

    Parameters
    ----------
    points, rows, labels : arrays of shape (n, D), (n,), (n,), sorted by label
    n_neighbors : numbers of targets and of impostors
    """

    def __init__(
        self, points: NDArray, rows: NDArray, labels: NDArray, n_neighbors: tuple[int, int]
    ) -> None:
        self.points, self.rows, self.labels = points, rows, labels
        self._loops = compiled(len(points) ** 2 // 100)
        self.sides = tuple(_Nearest(len(points), k, self._loops) for k in n_neighbors)
        self._blocks = list(_blocks(labels))
        self._lock = Lock()

    def run(self, n_jobs: int | None) -> None:
        """Find the neighbours."""
        self._begin(np.float32)
        if np.median(-np.maximum(*self._floors)) < 8 * np.median(self._sketches.allowance):
            self._begin(np.float64)  # in float32 rounding would let too many pairs survive
        # Blocks that lie close together first: they are likely to be of one class.
        pairs = combinations_with_replacement(self._blocks, 2)
        Parallel(n_jobs=n_jobs, require="sharedmem")(
            delayed(self._scan)(block, other)
            for block, other in sorted(pairs, key=lambda pair: pair[1].start - pair[0].start)
        )

    def _begin(self, dtype: DTypeLike) -> None:
        """Make the sketches, and find first neighbours within the classes and without."""
        kept = KEPT_VARIANCE if self._loops is None else KEPT_IF_COMPILED
        self._sketches = _Sketches.of(self.points, dtype, kept)
        self._floors = tuple(self._sketches.floors(side.squares[:, -1]) for side in self.sides)
        points = np.arange(len(self.labels))
        for block in self._blocks:
            first, last = self.labels[[block.start, block.stop - 1]]
            classes = slice(*np.searchsorted(self.labels, [first, last + 1]))
            self._seed(points[block], points[classes])
            self._seed(points[block], np.delete(points, classes))

    def _seed(self, block: NDArray, others: NDArray) -> None:
        """Take in near ones of the others: of k parts of a sample the nearest in each.

        They need not be the nearest of all, so a few coordinates will do.
        """
        share = SHARE if self._loops is None else SHARE_IF_COMPILED
        sample = np.random.default_rng(0).permutation(_sample(others, share))
        coarse = self._sketches.left[:, :COARSE]
        near = coarse[block] @ coarse[sample].T
        near -= np.einsum("nd,nd->n", coarse[sample], coarse[sample]) / 2
        near[block[:, None] == sample] = -np.inf
        for side, mask in _sides_of(self.labels[block], self.labels[sample]):
            allowed = near if mask is None else np.where(mask, near, -np.inf)
            parts = np.array_split(np.arange(len(sample)), self.sides[side].k)
            for part in parts[: len(sample)]:
                columns = allowed[:, part[0] : part[-1] + 1]
                best = columns.argmax(axis=1)
                exist = columns[np.arange(len(best)), best] > -np.inf
                self._take(side, block[exist], sample[part[best[exist]]])

    def _scan(self, block: slice, other: slice) -> None:
        """Take in the neighbours among the pairs of two blocks."""
        products = self._sketches.left[block] @ self._sketches.right[other].T
        for side, mask in _sides_of(self.labels[block], self.labels[other]):
            floors = self._floors[side]
            near = products >= floors[block, None]
            near |= products >= floors[other]
            if mask is not None:
                near &= mask
            i, j = np.divmod(np.flatnonzero(near), near.shape[1])
            i, j = i + block.start, j + other.start
            if block == other:
                i, j = i[i < j], j[i < j]
            size = max(1, CHUNK_ENTRIES // self.points.shape[1])
            for begin in range(0, len(i), size):
                self._look(side, i[begin : begin + size], j[begin : begin + size])

    def _look(self, side: int, i: NDArray, j: NDArray) -> None:
        """Take in those pairs that are near by all coordinates."""
        sketches, floors = self._sketches, self._floors[side]
        if self._loops is None:
            products = sketches.products(i, j)
            near = (products >= floors[i]) | (products >= floors[j])
        else:
            near = np.empty(len(i), dtype=bool)
            self._loops.near_pairs(i, j, sketches.whole, sketches.half, floors, near)
        self._take(side, i[near], j[near])

    def _take(self, side: int, i: NDArray, j: NDArray) -> None:
        """Offer pairs to both of their ends."""
        squares = rounded(self._squares(i, j) / self._sketches.unit / self._sketches.unit)
        with self._lock:
            for one, other in ((i, j), (j, i)):
                changed = self.sides[side].offer(one, self.rows[other], squares)
                last = self.sides[side].squares[changed, -1]
                self._floors[side][changed] = self._sketches.floors(last)

    def _squares(self, i: NDArray, j: NDArray) -> NDArray:
        """‖x_i − x_j‖² of pairs, from differences in float64."""
        if self._loops is not None:
            squares = np.empty(len(i))
            self._loops.pair_squares(i, j, self.points, squares)
            return squares
        differences = self.points[i].astype(np.float64)
        differences -= self.points[j]
        return np.einsum("pd,pd->p", differences, differences)


def _sides_of(one: NDArray, other: NDArray) -> Iterator[tuple[int, NDArray | None]]:
    """The sides that pairs of such labels belong to, with a mask where it is some of them only."""
    if other.size == 0:
        return
    low, high = max(one.min(), other.min()), min(one.max(), other.max())
    if low > high or np.intersect1d(one, other).size == 0:
        yield 1, None
    elif low == high and (one == low).all() and (other == low).all():
        yield 0, None
    else:
        same = one[:, None] == other
        yield 0, same
        yield 1, ~same


def _blocks(labels: NDArray) -> Iterator[slice]:
    """Runs of about `BLOCK` points sorted by label: parts of a class, or several small classes."""
    starts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
    begun = 0
    for start, stop in zip(starts, np.append(starts[1:], len(labels)), strict=True):
        if stop - start >= BLOCK // 2:
            if begun < start:
                yield slice(begun, start)
            cuts = np.linspace(start, stop, -(-(stop - start) // BLOCK) + 1).astype(int)
            yield from map(slice, cuts[:-1], cuts[1:])
            begun = stop
        elif stop - begun >= BLOCK:
            yield slice(begun, stop)
            begun = stop
    if begun < len(labels):
        yield slice(begun, len(labels))
