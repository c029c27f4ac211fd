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
from boostmetric.points import (
    Points,
    centred,
    distinct_points,
    rows_at_once,
    scale,
    scaling_exponent,
)

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
    points = X[rows]
    scale(points, scaling_exponent(points))
    search = _Search(points, labels[rows], (n_targets, n_impostors))
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
        self._sizes = row_squares(self._centred)
        gamma = product_error(_longest_row(self._centred))
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
        errors = self._errors[block]
        i, j = likely_nearest(squares, errors, k)
        near = squares[i, j]
        unsure = np.flatnonzero(errors[i] > SURE * near)
        near[unsure] = pair_squares(self._points, i[unsure] + block.start, self._points, j[unsure])
        return smallest(i, rounded(near), j, (len(squares), k))[1]


def product_error(n_entries: int) -> float:
    """γ, for rows of so many entries.

    >>> product_error(24) == 2.0**-47
    True
    """
    return float((n_entries + 8) * np.finfo(np.float64).eps)


def likely_nearest(squares: NDArray, errors: NDArray, k: int) -> tuple[NDArray, NDArray]:
    """Pairs (row, column) that may be of the k smallest of their row; infinite ones are not.

    Parameters
    ----------
    squares : array of shape (n, p)
    errors : array of shape (n,), by how much those of a row may be wrong
    k : how many are looked for

    Examples
    --------
    >>> i, j = likely_nearest(np.array([[4.0, 1.0, 1.5, np.inf]]), np.array([0.3]), 1)
    >>> j.tolist()
    [1, 2]
    """
    last = min(k, squares.shape[1]) - 1
    limits = farthest(np.partition(squares, last, axis=1)[:, last], errors)
    i, j = np.nonzero((squares <= limits[:, None]) & (squares < np.inf))
    return i, j


def farthest(squares: NDArray, errors: NDArray) -> NDArray:
    """What squares with such errors are at most, if they are no larger than these when rounded.

    >>> farthest(np.array([1.0, np.inf]), np.array([0.25, 0.25])).round(9)
    array([1.5, inf])
    """
    limits: NDArray = (squares + 2 * errors) * (1 + 4 * DIGITS)
    return limits


def smallest(
    owners: NDArray, squares: NDArray, rows: NDArray, shape: tuple[int, int]
) -> tuple[NDArray, NDArray]:
    """Of pairs (owner, row) the first k of each of n owners, by square and then by row.

    Returns
    -------
    squares : array of the given shape (n, k); infinite where there are no more
    rows : the same, with `NONE`

    Examples
    --------
    >>> smallest(np.array([1, 0, 1]), np.array([2.0, 5.0, 2.0]), np.array([9, 8, 7]), (2, 2))[1]
    array([[ 8, -1],
           [ 7,  9]])
    """
    order = np.lexsort((rows, squares, owners))
    owners = owners[order]
    rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
    kept = rank < shape[1]
    places, chosen = (owners[kept], rank[kept]), order[kept]
    found = np.full(shape, np.inf), np.full(shape, NONE, dtype=np.intp)
    found[0][places], found[1][places] = squares[chosen], rows[chosen]
    return found


def pair_squares(one: Points, i: NDArray, other: Points, j: NDArray) -> NDArray:
    """‖x_i − x'_j‖² of pairs, from differences in float64.

    >>> pair_squares(np.eye(2), np.array([0, 1]), np.zeros((1, 2)), np.array([0, 0]))
    array([1., 1.])
    """
    squares = np.empty(len(i))
    size = rows_at_once(one, CHUNK_ENTRIES)
    for begin in range(0, len(i), size):
        pairs = slice(begin, begin + size)
        squares[pairs] = row_squares(one[i[pairs]].astype(np.float64) - other[j[pairs]])
    return squares


def _longest_row(points: Any) -> int:
    """The largest number of entries in a row."""
    return int(np.diff(points.indptr).max()) if issparse(points) else points.shape[1]


def row_squares(points: Any) -> NDArray:
    """‖x‖² of every row.

    >>> row_squares(csr_array([[3.0, 4.0], [0.0, 1.0]]))
    array([25.,  1.])
    """
    if issparse(points):
        return np.asarray(points.multiply(points).sum(axis=1)).ravel()
    squares: NDArray = np.einsum("nd,nd->n", points, points)
    return squares
