"""Loops that NumPy cannot express efficiently, compiled by numba if it is installed.

The extra `boostmetric[fast]` installs numba. `compiled_loops` compiles the Python functions below.
They return the same results as the NumPy code of their callers: sums that determine a ranking add
their terms in the same order.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_WORK = 10_000_000
"""Numbers to process for which compiled loops pay off: loading numba takes half a second."""


def compiled_loops(work: int) -> Any:
    """The compiled loops as attributes; None if there is little work or numba is not installed.

    >>> compiled_loops(10) is None
    True
    """
    return _compiled() if work >= MIN_WORK else None


@cache
def _compiled() -> SimpleNamespace | None:
    if find_spec("numba") is None:
        return None
    njit = import_module("numba").njit
    strict = njit(nogil=True, cache=True)
    # Sums in any order, so that SIMD instructions can be used.
    reordered = njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
    return SimpleNamespace(
        sparse_rows=reordered(sparse_rows),
        candidates=strict(candidates),
        near_pairs=reordered(near_pairs),
        pair_squares=strict(pair_squares_loop),
        offer=strict(offer),
    )


def sparse_rows(
    starts: NDArray, columns: NDArray, entries: NDArray, X: NDArray, first: int, out: NDArray
) -> None:
    """out = A[first : first + len(out)] @ X for a sparse matrix A in CSR format."""
    for row in range(out.shape[0]):
        total = out[row]
        total[:] = 0
        for k in range(starts[first + row], starts[first + row + 1]):
            entry, x = entries[k], X[columns[k]]
            for d in range(X.shape[1]):
                total[d] += entry * x[d]


def candidates(
    products: NDArray, floors: NDArray, other_floors: NDArray, positions: NDArray
) -> int:
    """Find products that reach the floor of their row or column.

    Writes their flat indices to `positions`, in increasing order, and returns their number. Few
    products do, so groups are tested first. The size of a group is constant, and a test has no
    branches, so that SIMD instructions can be used.
    """
    n_found, n_columns = 0, products.shape[1]
    for row in range(products.shape[0]):
        floor, first = floors[row], row * n_columns
        for begin in range(0, n_columns - 63, 64):
            group, limits = products[row, begin : begin + 64], other_floors[begin : begin + 64]
            is_near = False
            for k in range(64):
                is_near |= (group[k] >= floor) | (group[k] >= limits[k])
            if is_near:
                for k in range(64):
                    positions[n_found] = first + begin + k
                    n_found += (group[k] >= floor) | (group[k] >= limits[k])
        for column in range(n_columns // 64 * 64, n_columns):
            product = products[row, column]
            positions[n_found] = first + column
            n_found += (product >= floor) | (product >= other_floors[column])
    return n_found


def near_pairs(
    positions: NDArray,
    points: NDArray,
    halves: NDArray,
    floors: NDArray,
    others: NDArray,
    other_halves: NDArray,
    other_floors: NDArray,
    i: NDArray,
    j: NDArray,
) -> int:
    """Find pairs whose x·x' + half + half' reaches one of their floors.

    Writes them to i and j, and returns their number. `positions` are flat indices of the pairs in a
    tile of shape (len(points), len(others)).
    """
    n_near = 0
    for position in positions:
        a, b = position // len(others), position % len(others)
        x, z = points[a], others[b]
        product = halves[a] + other_halves[b]
        for d in range(points.shape[1]):
            product += x[d] * z[d]
        i[n_near], j[n_near] = a, b
        n_near += product >= floors[a] or product >= other_floors[b]
    return n_near


def pair_squares_loop(
    points: NDArray, i: NDArray, others: NDArray, j: NDArray, squares: NDArray
) -> None:
    """‖x_i − x'_j‖² in float64; terms are added in halves, as in `ranking.pair_squares`."""
    terms = np.empty(points.shape[1])
    for p in range(len(i)):
        x, z = points[i[p]], others[j[p]]
        for d in range(len(terms)):
            difference = np.float64(x[d]) - np.float64(z[d])
            terms[d] = difference * difference
        width = len(terms)
        while width > 1:
            half = width // 2
            for d in range(half):
                terms[d] += terms[width - half + d]
            width -= half
        squares[p] = terms[0]


def offer(
    owners: NDArray,
    rows: NDArray,
    squares: NDArray,
    nearest: NDArray,
    nearest_rows: NDArray,
    changed: NDArray,
) -> None:
    """Insert neighbors into the lists of their owners, each sorted by square and row."""
    last = nearest.shape[1] - 1
    for p in range(len(owners)):
        owner, row, square = owners[p], rows[p], squares[p]
        worst = nearest[owner, last]
        if square > worst or (square == worst and row >= nearest_rows[owner, last]):
            continue
        is_known = False
        for k in range(last + 1):
            is_known |= nearest_rows[owner, k] == row
        if is_known:
            continue
        k = last
        while k > 0 and (
            nearest[owner, k - 1] > square
            or (nearest[owner, k - 1] == square and nearest_rows[owner, k - 1] > row)
        ):
            nearest[owner, k] = nearest[owner, k - 1]
            nearest_rows[owner, k] = nearest_rows[owner, k - 1]
            k -= 1
        nearest[owner, k], nearest_rows[owner, k] = square, row
        changed[p] = True
