"""Nearest targets and impostors of points on a cluster, chunk against chunk.

The rule is that of `mining`: neighbors are ranked by squared distance, summed from differences in
float64 and rounded to twelve digits, and among equals by row number. Of equal points with equal
labels the first one represents all. So the tables are the same as in memory.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from boostmetric.dask_points import DaskPoints
from boostmetric.mining import NONE, rounded
from boostmetric.points import row_hashes

TILE_ENTRIES = 1 << 22
"""Distances that are held at once (32 MB)."""

PAIR_ENTRIES = 1 << 20
"""Coordinates of single pairs that are held at once (8 MB)."""

SAME_SQUARE = 2.0**-38
"""Squares that `rounded` may make equal differ by less than this share of themselves."""


class Part(NamedTuple):
    """Points of a chunk in float64, their positions among all, and their labels."""

    points: NDArray
    positions: NDArray
    labels: NDArray


class Found(NamedTuple):
    """The nearest of a part for every query, nearest first: squares and positions (n, k)."""

    squares: NDArray
    positions: NDArray


def nearest_in_parts(
    X: DaskPoints, rows: NDArray, labels: NDArray, n_targets: int, n_impostors: int
) -> tuple[NDArray, NDArray]:
    """For each of the given rows its nearest targets and impostors among them.

    Parameters
    ----------
    X : all points
    rows : those that take part, sorted
    labels : of these rows, integers
    n_targets, n_impostors : numbers of neighbors

    Returns
    -------
    targets, impostors : arrays of shape (len(rows), n_targets) and (len(rows), n_impostors) of
        positions in `rows`, nearest first; `NONE` where there are no more
    """
    # 1) the first of equal points represents all
    hashes = np.concatenate(X.map(_row_keys))[rows]
    keys = np.column_stack([hashes, labels.astype(np.uint64)])
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    first = first.astype(np.intp)
    representative = first[inverse.reshape(-1)]
    positions = np.sort(first)
    # 2) the representatives of every chunk, in a unit in which squares do not overflow
    delayed = import_module("dask").delayed
    make_part, search = delayed(_part, pure=False), delayed(search_part, pure=False)
    cuts = np.searchsorted(rows[positions], X.starts)
    parts = []
    for chunk, start, begin, end in zip(X.chunks, X.starts, cuts, cuts[1:], strict=False):
        if begin < end:
            own = positions[begin:end]
            local = rows[own] - start
            parts.append(make_part(chunk, local, own, labels[own], X.exponent))
    # 3) every chunk against every other one
    counts = n_targets, n_impostors
    tasks = [
        (partial(_merge, counts), tuple(search(part, other, counts) for other in parts))
        for part in parts
    ]
    found = X.compute(tasks)
    # 4) for all rows
    place = np.searchsorted(positions, representative)
    targets, impostors = (np.concatenate(tables)[place] for tables in zip(*found, strict=True))
    return targets, impostors


def search_part(queries: Part, part: Part, counts: tuple[int, int]) -> tuple[Found, Found]:
    """The nearest targets and impostors of the queries in a part.

    Inner products find candidates: all points that, within the error of the products, may be among
    the nearest. The squares of these are computed from differences.
    """
    sides = [([], []), ([], [])]  # type: ignore[var-annotated]
    center = part.points.mean(axis=0)
    B = part.points - center
    sizes = np.einsum("nd,nd->n", B, B)
    # A product of D terms is wrong by at most D units in the last place of the product of norms.
    unit = 2 * (B.shape[1] + 8) * np.finfo(np.float64).eps
    size = max(1, TILE_ENTRIES // len(B))
    for begin in range(0, len(queries.points), size):
        tile = Part(*(each[begin : begin + size] for each in queries))
        A = tile.points - center
        own_sizes = np.einsum("nd,nd->n", A, A)
        squares = own_sizes[:, None] + sizes - 2 * (A @ B.T)
        errors = unit * (own_sizes + sizes.max())
        is_same = tile.labels[:, None] == part.labels
        is_itself = tile.positions[:, None] == part.positions
        masks = is_same & ~is_itself, ~is_same
        for (all_squares, all_positions), mask, k in zip(sides, masks, counts, strict=True):
            near = np.where(mask, squares, np.inf)
            last = np.partition(near, min(k, len(B)) - 1)[:, min(k, len(B)) - 1]
            limits = last * (1 + SAME_SQUARE) + 2 * errors
            i, j = np.nonzero(mask & (near <= limits[:, None]))
            exact = rounded(_squares(tile.points, part.points, i, j))
            order = np.lexsort((part.positions[j], exact, i))
            table = _first_of_each(len(A), k, i[order], exact[order], part.positions[j[order]])
            all_squares.append(table.squares)
            all_positions.append(table.positions)
    targets, impostors = (Found(*map(np.concatenate, side)) for side in sides)
    return targets, impostors


def _first_of_each(n: int, k: int, i: NDArray, squares: NDArray, positions: NDArray) -> Found:
    """The first k entries of every query i, which are sorted by i."""
    rank = np.arange(len(i)) - np.searchsorted(i, i)
    kept = rank < k
    found = Found(np.full((n, k), np.inf), np.full((n, k), NONE, dtype=np.intp))
    found.squares[i[kept], rank[kept]] = squares[kept]
    found.positions[i[kept], rank[kept]] = positions[kept]
    return found


def _merge(
    counts: tuple[int, int], threads: Any, *found: tuple[Found, Found]
) -> tuple[NDArray, NDArray]:
    """The nearest of all parts, as tables of positions."""
    tables = []
    for k, side in zip(counts, zip(*found, strict=True), strict=True):
        squares, positions = (np.concatenate(each, axis=1) for each in zip(*side, strict=True))
        order = np.lexsort((positions, squares), axis=1)[:, :k]
        tables.append(np.take_along_axis(positions, order, axis=1))
    targets, impostors = tables
    return targets, impostors


def _squares(A: NDArray, B: NDArray, i: NDArray, j: NDArray) -> NDArray:
    """‖a_i − b_j‖² of pairs."""
    squares, size = np.empty(len(i)), max(1, PAIR_ENTRIES // A.shape[1])
    for begin in range(0, len(i), size):
        pairs = slice(begin, begin + size)
        differences = A[i[pairs]] - B[j[pairs]]
        squares[pairs] = np.einsum("pd,pd->p", differences, differences)
    return squares


def _part(
    chunk: NDArray, local: NDArray, positions: NDArray, labels: NDArray, exponent: int
) -> Part:
    points = np.ldexp(chunk[local].astype(np.float64), -exponent)
    return Part(points, positions, labels)


def _row_keys(chunk: NDArray) -> NDArray:
    """Two independent numbers of 64 bits for every row, of shape (n, 2)."""
    return np.column_stack([row_hashes(chunk, seed) for seed in (0, 1)])
