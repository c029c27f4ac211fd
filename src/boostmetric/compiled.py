"""Loops that NumPy has no words for, compiled by numba.

The module is imported by `kernels.compiled` alone, where numba is installed (the extra
`boostmetric[fast]`) and the work is worth it. Each loop does what plain NumPy does elsewhere, and
is tested against it. Sums may be taken in any order, which lets a processor take several terms at
once.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

compile_loop = njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})


@compile_loop
def sparse_rows(
    starts: NDArray, columns: NDArray, entries: NDArray, X: NDArray, first: int, out: NDArray
) -> None:
    """Rows `first`, … of a sparse matrix in CSR form times X, as many as `out` has."""
    for row in range(out.shape[0]):
        total = out[row]
        total[:] = 0
        for k in range(starts[first + row], starts[first + row + 1]):
            entry, x = entries[k], X[columns[k]]
            for d in range(X.shape[1]):
                total[d] += entry * x[d]


@compile_loop
def near_pairs(
    i: NDArray, j: NDArray, whole: NDArray, half: NDArray, floors: NDArray, near: NDArray
) -> None:
    """Whether whole_i·whole_j + half_i + half_j reaches the floor of i or that of j, for pairs."""
    for p in range(len(i)):
        x, z = whole[i[p]], whole[j[p]]
        product = half[i[p]] + half[j[p]]
        for d in range(whole.shape[1]):
            product += x[d] * z[d]
        near[p] = product >= floors[i[p]] or product >= floors[j[p]]


@compile_loop
def pair_squares(i: NDArray, j: NDArray, points: NDArray, squares: NDArray) -> None:
    """‖x_i − x_j‖² of pairs, in float64."""
    for p in range(len(i)):
        x, z = points[i[p]], points[j[p]]
        total = 0.0
        for d in range(points.shape[1]):
            difference = np.float64(x[d]) - np.float64(z[d])
            total += difference * difference
        squares[p] = total


@compile_loop
def offer(
    points: NDArray,
    rows: NDArray,
    squares: NDArray,
    nearest: NDArray,
    nearest_rows: NDArray,
    changed: NDArray,
) -> None:
    """Put neighbours in their places in the lists of points, each sorted by square and row."""
    last = nearest.shape[1] - 1
    for p in range(len(points)):
        point, row, square = points[p], rows[p], squares[p]
        worst = nearest[point, last]
        if square > worst or (square == worst and row >= nearest_rows[point, last]):
            continue
        known = False
        for k in range(last + 1):
            known |= nearest_rows[point, k] == row
        if known:
            continue
        k = last
        while k > 0 and (
            nearest[point, k - 1] > square
            or (nearest[point, k - 1] == square and nearest_rows[point, k - 1] > row)
        ):
            nearest[point, k] = nearest[point, k - 1]
            nearest_rows[point, k] = nearest_rows[point, k - 1]
            k -= 1
        nearest[point, k], nearest_rows[point, k] = square, row
        changed[p] = True
