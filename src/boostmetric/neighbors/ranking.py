"""The ranking of neighbors, and the table of the nearest ones.

Neighbors are ranked by squared distance, computed from differences in float64 and rounded to twelve
digits; ties are broken by row number. The terms of a square are added in a fixed order, so a table
depends only on the points, not on tiles, threads, parts, BLAS, or compiled loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from boostmetric.data.points import Points, rows_at_once

NONE = -1
"""Entry of a table if a point has no further neighbor."""

DIGITS = 2.0**-41
"""Relative precision of rounded squares: 12 of 53 bits are dropped."""

PAIR_COORDINATES = 1 << 18
"""Coordinates of pairs in memory at once: 2 MB in float64. Not tuned."""


@dataclass(frozen=True, eq=False)
class NeighborTable:
    """The k nearest neighbors of n points found so far, sorted by square and row.

    Attributes
    ----------
    squares : array of shape (n, k), squared distances; infinite if there is no neighbor
    rows : array of shape (n, k), row numbers; `NONE` if there is no neighbor

    Examples
    --------
    >>> table = NeighborTable.empty(2, 2)
    >>> table.offer(np.array([1, 1, 1]), np.array([9, 8, 7]), np.array([2.0, 2.0, 5.0]))
    array([1])
    >>> table.rows
    array([[-1, -1],
           [ 8,  9]])
    """

    squares: NDArray
    rows: NDArray

    @classmethod
    def empty(cls, n: int, k: int) -> NeighborTable:
        """A table without neighbors."""
        return cls(np.full((n, k), np.inf), np.full((n, k), NONE, dtype=np.intp))

    def offer(self, owners: NDArray, rows: NDArray, squares: NDArray, loops: Any = None) -> NDArray:
        """Merge pairs (owner, row) into the lists of the owners.

        Returns the owners whose lists may have changed. A pair may be offered several times.
        """
        if loops is not None:
            changed = np.zeros(len(owners), dtype=bool)
            loops.offer(owners, rows, squares, self.squares, self.rows, changed)
            return owners[changed]
        k = self.squares.shape[1]
        last = self.squares[owners, -1]
        better = np.flatnonzero(squares <= last)
        ties = squares.take(better) == last.take(better)
        better = better[~ties | (rows.take(better) < self.rows[owners.take(better), -1])]
        if len(better) == 0:
            return better
        touched, owners = np.unique(owners.take(better), return_inverse=True)
        # All entries of the touched lists, old and new, in the order of the ranking.
        owners = np.concatenate([np.repeat(np.arange(len(touched)), k), owners])
        rows = np.concatenate([self.rows.take(touched, axis=0).ravel(), rows.take(better)])
        squares = np.concatenate([self.squares.take(touched, axis=0).ravel(), squares.take(better)])
        order = np.lexsort((rows, squares, owners))
        owners, rows, squares = owners.take(order), rows.take(order), squares.take(order)
        is_new = np.append(True, (np.diff(owners) > 0) | (np.diff(rows) != 0) | (rows[1:] == NONE))
        owners, rows, squares = owners[is_new], rows[is_new], squares[is_new]
        starts = np.searchsorted(owners, np.arange(len(touched)))
        kept = starts[:, None] + np.arange(k)
        self.rows[touched], self.squares[touched] = rows.take(kept), squares.take(kept)
        return touched


def merge_tables(tables: Sequence[NeighborTable]) -> NeighborTable:
    """Merge tables of the same points and the same width.

    >>> one, other = NeighborTable.empty(1, 2), NeighborTable.empty(1, 2)
    >>> for table, row, square in ((one, 3, 4.0), (one, 5, 9.0), (other, 1, 4.0)):
    ...     _ = table.offer(np.array([0]), np.array([row]), np.array([square]))
    >>> merge_tables([one, other]).rows
    array([[1, 3]])
    """
    merged = NeighborTable.empty(*tables[0].rows.shape)
    for table in tables:
        owners, places = np.nonzero(table.rows != NONE)
        merged.offer(owners, table.rows[owners, places], table.squares[owners, places])
    return merged


def pair_squares(
    points: Points, i: NDArray, others: Points, j: NDArray, loops: Any = None
) -> NDArray:
    """‖x_i − x'_j‖² of pairs, from differences in float64, rounded.

    >>> pair_squares(np.eye(2), np.array([0, 1]), np.zeros((1, 2)), np.array([0, 0]))
    array([1., 1.])
    """
    squares = np.empty(len(i))
    if loops is not None:
        loops.pair_squares(points, i, others, j, squares)
        return rounded(squares)
    size = rows_at_once(points, PAIR_COORDINATES)
    for begin in range(0, len(i), size):
        chunk = slice(begin, begin + size)
        if issparse(points):
            differences: Any = points[i[chunk]].astype(np.float64) - others[j[chunk]]
            squares[chunk] = differences.multiply(differences).sum(axis=1)
        else:
            assert not issparse(others)
            terms = points.take(i[chunk], axis=0, mode="clip").astype(np.float64, copy=False)
            terms -= others.take(j[chunk], axis=0, mode="clip")
            terms *= terms
            # Add the last half of the columns to the first until one column is left. Each step is
            # elementwise, so no library can reorder the sum, and the error grows with log D.
            width = terms.shape[1]
            while width > 1:
                half = width // 2
                terms[:, :half] += terms[:, width - half : width]
                width -= half
            squares[chunk] = terms[:, 0]
    return rounded(squares)


def rounded(squares: NDArray) -> NDArray:
    """Drop the last twelve bits, which depend on the order of summation.

    >>> one, same, other = rounded(np.array([1.0, 1 + 1e-15, 1 + 1e-11]))
    >>> bool(one == same != other)
    True
    """
    large = squares * (DIGITS * 2**53 + 1)  # Veltkamp's splitting
    return large - (large - squares)
