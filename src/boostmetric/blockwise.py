"""Nearest targets and impostors of sparse points, or of points with several labels each.

The mathematics of the file. Neighbours are ranked as in `mining`: by squared distance in float64,
rounded to twelve digits, and among equals by row number. A block of rows at a time, the squares are
‖x‖² + ‖x'‖² − 2·xᵀx' for all x'. That is wrong by no more than a = γ·(‖x‖² + max ‖x'‖²), so the k
nearest are among those whose square exceeds the k-th smallest by no more than 2·a. Where a is not
small beside the square itself, it is computed anew, from differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils.parallel import Parallel, delayed

from boostmetric.labels import Labels
from boostmetric.mining import CHUNK_ENTRIES, DIGITS, NONE, rounded
from boostmetric.points import Points, centred, distinct_points, rows_at_once

BLOCK_ENTRIES = 1 << 20
"""Distances held at once (8 MB)."""

SURE = DIGITS / 16
"""An error of no more than this share of a square is none: rounding takes it off."""


def blockwise_targets_and_impostors(
    X: Points, labels: Labels, n_targets: int, n_impostors: int, n_jobs: int | None = None
) -> tuple[NDArray, NDArray]:
    """For every point its nearest similar and its nearest dissimilar points.

    Parameters, result and ranking as of `mining.nearest_targets_and_impostors`, but that X may be
    sparse and points may have several labels. Of equal points with the same labels the first one
    stands for all.

    Notes
    -----
    Exact. O(n²) time for sorting, beside what the products of points take; memory is that of X
    twice, and of the blocks.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [3.0], [7.0]])
    >>> labels = Labels.of([[1, 0], [0, 1], [1, 1], [0, 0]])
    >>> targets, impostors = blockwise_targets_and_impostors(X, labels, 1, 1)
    >>> targets.ravel().tolist(), impostors.ravel().tolist()
    ([2, 2, 1, -1], [1, 0, 3, 2])
    """
    first, inverse = distinct_points(X, labels.codes)
    order = np.argsort(first)
    rows = first[order]
    search = _Search(X[rows], labels[rows], (n_targets, n_impostors))
    found = Parallel(n_jobs=n_jobs, require="sharedmem")(
        delayed(search.nearest)(block) for block in search.blocks()
    )
    position = np.argsort(order)[inverse]
    rows = np.append(rows, NONE)  # so that NONE, which is −1, stays what it is
    targets, impostors = (rows[np.concatenate(side)][position] for side in zip(*found, strict=True))
    return targets, impostors


class _Search:
    """A search among distinct points, for so many targets and impostors."""

    def __init__(self, points: Any, labels: Labels, n_neighbors: tuple[int, int]) -> None:
        self._points, self._labels, self._n_neighbors = points, labels, n_neighbors
        self._centred = centred(points.astype(np.float64))
        self._transposed = csr_array(self._centred.T) if issparse(points) else self._centred.T
        self._sizes = _row_squares(self._centred)
        gamma = (_longest_row(self._centred) + 8) * np.finfo(np.float64).eps
        self._errors = gamma * (self._sizes + self._sizes.max())

    def blocks(self) -> Iterator[slice]:
        n = len(self._labels)
        size = max(1, BLOCK_ENTRIES // n)
        return (slice(begin, min(begin + size, n)) for begin in range(0, n, size))

    def nearest(self, block: slice) -> tuple[NDArray, NDArray]:
        """The targets and the impostors of a block of points."""
        squares, similar = self._squares(block), self._labels.similar(block)
        n_targets, n_impostors = self._n_neighbors
        targets = self._chosen(block, np.where(similar, squares, np.inf), n_targets)
        return targets, self._chosen(block, np.where(similar, np.inf, squares), n_impostors)

    def _squares(self, block: slice) -> NDArray:
        """Squared distances of a block to all points; that of a point to itself is infinite."""
        products = self._centred[block] @ self._transposed
        squares: NDArray = products.toarray() if issparse(products) else products
        squares *= -2
        squares += self._sizes[block, None]
        squares += self._sizes
        squares[np.arange(len(squares)), np.arange(block.start, block.stop)] = np.inf
        return squares

    def _chosen(self, block: slice, squares: NDArray, k: int) -> NDArray:
        """The k points with the smallest squares, after a closer look, of shape (block, k)."""
        last = min(k, squares.shape[1]) - 1
        errors = self._errors[block]
        limits = (np.partition(squares, last, axis=1)[:, last] + 2 * errors) * (1 + 4 * DIGITS)
        i, j = np.nonzero((squares <= limits[:, None]) & (squares < np.inf))
        near = squares[i, j]
        unsure = np.flatnonzero(errors[i] > SURE * near)
        near[unsure] = self._pair_squares(i[unsure] + block.start, j[unsure])
        order = np.lexsort((j, rounded(near), i))
        i, j = i[order], j[order]
        rank = np.arange(len(i)) - np.searchsorted(i, i)
        chosen = np.full((len(squares), k), NONE, dtype=np.intp)
        kept = rank < k
        chosen[i[kept], rank[kept]] = j[kept]
        return chosen

    def _pair_squares(self, i: NDArray, j: NDArray) -> NDArray:
        """‖x_i − x_j‖² of pairs, from differences in float64."""
        squares = np.empty(len(i))
        size = rows_at_once(self._points, CHUNK_ENTRIES)
        for begin in range(0, len(i), size):
            pairs = slice(begin, begin + size)
            one, other = self._points[i[pairs]], self._points[j[pairs]]
            squares[pairs] = _row_squares(one.astype(np.float64) - other)
        return squares


def _longest_row(points: Any) -> int:
    """The largest number of entries in a row."""
    return int(np.diff(points.indptr).max()) if issparse(points) else points.shape[1]


def _row_squares(points: Any) -> NDArray:
    """‖x‖² of every row."""
    if issparse(points):
        return np.asarray(points.multiply(points).sum(axis=1)).ravel()
    squares: NDArray = np.einsum("nd,nd->n", points, points)
    return squares
