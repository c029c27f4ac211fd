"""The centres of cells, into which an index divides the points of a source.

Whether one centre is nearer than another is decided as it is for points: by products where these
leave no doubt, otherwise by differences, rounded, and among equals by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric.blockwise import (
    BLOCK_ENTRIES,
    farthest,
    pair_squares,
    product_error,
    row_squares,
    smallest,
)
from boostmetric.engines.engine import Engine
from boostmetric.engines.mining import divided
from boostmetric.engines.sources import Source
from boostmetric.mining import rounded

CELLS = 4
"""So many times √n are the cells."""

LEARNT_FROM = 16
"""Points of the sample for each cell."""

ROUNDS = 8
"""Rounds of k-means."""

SAMPLED = 8192
"""Points of the sample that are worked on together; sums are rounded accordingly."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a source, in sorted order, that become a block: an array of points."""

    source: Source
    rows: NDArray

    def lazy(self) -> Any | None:
        """The rows as a Dask array, where that is what they come from."""
        return self.source.lazy(self.rows)

    def load(self, points: NDArray | None = None) -> NDArray:
        """The points; of what was computed already, if anything."""
        rows = self.rows
        return self.source.take(rows) if points is None else self.source.checked(points, rows)


def learned_centres(source: Source, middle: NDArray, engine: Engine) -> NDArray:
    """The centres of cells, of shape (C, D), along a path: k-means of a sample of the rows."""
    n, _ = source.shape
    n_cells = min(n, int(CELLS * n**0.5))
    size = min(n, LEARNT_FROM * n_cells)
    rows = np.sort(np.random.default_rng(0).choice(n, size, replace=False))
    sample = [Rows(source, rows[some]) for some in divided(slice(0, size), SAMPLED)]
    handles = engine.place(sample)
    centres = np.unique(np.concatenate(engine.call(_every, handles, size // n_cells)), axis=0)
    for _ in range(ROUNDS):
        sums, counts = zip(*engine.call(_sums, handles, centres, middle), strict=True)
        count = np.sum(counts, axis=0)
        filled = count > 0
        centres = np.sum(sums, axis=0)[filled] / count[filled, None]
    return centres[_path(centres, np.ones(len(middle)))]


def _every(points: NDArray, step: int) -> NDArray:
    return points[::step].astype(np.float64)


def _sums(points: NDArray, centres: NDArray, middle: NDArray) -> tuple[NDArray, NDArray]:
    """The sum of the points of each cell, and their number."""
    cells = Centres(centres, middle).cells(points)
    n, n_cells = len(points), len(centres)
    member = csr_array((np.ones(n), cells, np.arange(n + 1)), shape=(n, n_cells))
    return member.T @ points.astype(np.float64), np.bincount(cells, minlength=n_cells)


def _path(points: NDArray, along: NDArray) -> NDArray:
    """An order of few points in which near ones tend to follow on each other.

    They are halved along a line through two that are far apart, and again, and again; each half is
    walked in the direction in which the whole is.

    >>> _path(np.array([[3.0], [0.0], [2.0], [1.0]]), np.ones(1)).tolist()
    [1, 3, 2, 0]
    """
    if len(points) < 2:
        return np.arange(len(points))
    one = points[row_squares(points - points.mean(axis=0)).argmax()]
    axis = points[row_squares(points - one).argmax()] - one
    axis = axis if np.sum(axis * along) >= 0 else -axis
    halves = np.array_split(np.argsort(np.sum((points - one) * axis, axis=1), kind="stable"), 2)
    return np.concatenate([half[_path(points[half], axis)] for half in halves])


class Centres:
    """The centres of cells, and which of them are nearest to points."""

    def __init__(self, centres: NDArray, middle: NDArray) -> None:
        self._centres, self._middle = centres, middle
        self._z = centres - middle
        self._sizes = row_squares(self._z)

    def squares(self, points: NDArray) -> tuple[NDArray, NDArray]:
        """Squared distances, of shape (n, C), and by how much those of a row may be wrong."""
        z = points - self._middle
        sizes = row_squares(z)
        squares = (-2 * z) @ self._z.T
        squares += sizes[:, None]
        squares += self._sizes
        return squares, product_error(2 * z.shape[1]) * (sizes + self._sizes.max())

    def nearest(self, points: NDArray, squares: NDArray, errors: NDArray, k: int) -> NDArray:
        """Which are the k nearest of those whose square is finite, or all, of shape (n, C)."""
        k = min(k, squares.shape[1])
        last = squares.min(axis=1) if k == 1 else np.partition(squares, k - 1, axis=1)[:, k - 1]
        limits = farthest(last, errors)
        nearest: NDArray = (squares <= limits[:, None]) & (squares < np.inf)
        crowded = np.flatnonzero(np.count_nonzero(nearest, axis=1) > k)
        i, j = np.nonzero(nearest[crowded])
        near = rounded(pair_squares(points[crowded], i, self._centres, j))
        _, chosen = smallest(i, near, j, (len(crowded), k))
        nearest[crowded] = False
        nearest[crowded[:, None], chosen] = True
        return nearest

    def cells(self, points: NDArray) -> NDArray:
        """The cells that points are in."""
        chunks = (points[chunk] for chunk in self.chunks(len(points)))
        near = (self.nearest(each, *self.squares(each), 1) for each in chunks)
        return np.concatenate([each.argmax(axis=1) for each in near])

    def chunks(self, n: int) -> Iterator[slice]:
        """Points in slices of which all distances are held at once."""
        return divided(slice(0, n), max(1, BLOCK_ENTRIES // max(self._centres.shape)))
