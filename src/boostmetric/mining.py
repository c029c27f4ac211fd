"""Which points a comparison is made of: the nearest targets and impostors of every point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

BLOCK_ENTRIES = 1 << 21
"""Distances held at once, per thread (16 MB in float64)."""

GROUP_WIDTH = 32
"""Columns scanned together when the smallest distances of a row are looked for."""

NONE = -1
"""Stands in a table of neighbours where a point has no further neighbour."""


def centred(X: NDArray) -> NDArray:
    """X less its mean; raises a ValueError where squared distances would over- or underflow."""
    points = X - X.mean(axis=0, dtype=np.float64).astype(X.dtype)
    limits = np.finfo(X.dtype)
    largest = float(np.abs(points).max())
    # A sum of X.size squares is the largest number formed, the square of one entry the smallest.
    if not (limits.tiny / limits.eps) ** 0.5 < largest < (float(limits.max) / (8 * X.size)) ** 0.5:
        raise ValueError(
            f"the values of X differ by up to {largest:.3g}, whose square is out of the range of "
            f"{X.dtype}. Scale X, or use init='scale'."
        )
    return points


def distinct_points(X: NDArray, labels: NDArray) -> tuple[NDArray, NDArray]:
    """First row of every distinct (place, label), and for every row which of these it is.

    Equality is of the coordinates' bits (with −0 = 0), so it costs one sort of the rows.
    """
    rows = np.ascontiguousarray(np.column_stack([X + 0.0, labels.astype(X.dtype)]))
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)


def nearest_targets_and_impostors(
    X: NDArray, labels: NDArray, n_targets: int, n_impostors: int, n_jobs: int | None = None
) -> tuple[NDArray, NDArray]:
    """For every point its nearest points of the same label and of the other labels.

    Neighbours are at places of their own: of several equal points (same coordinates, same label)
    the first one stands for all, and a point's own duplicates are not its targets. This makes a
    point of weight 2 the same as the point given twice.

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
    Exact up to the rounding of ‖x‖² − 2x·z + ‖z‖² after centring. O(n²·D) time, O(n·(D + k)) memory
    beside the blocks.
    """
    first, inverse = distinct_points(X, labels)
    order = first[np.argsort(labels[first], kind="stable")]
    starts = np.searchsorted(labels[order], labels[order], side="left")
    ends = np.searchsorted(labels[order], labels[order], side="right")
    points = centred(X[order])
    norms = np.einsum("ij,ij->i", points, points)

    size = max(1, BLOCK_ENTRIES // len(order))
    blocks = Parallel(n_jobs=n_jobs, require="sharedmem")(
        delayed(_mine_block)(points, norms, starts, ends, (a, a + size), (n_targets, n_impostors))
        for a in range(0, len(order), size)
    )
    # From positions in `order` back to rows of X, and from distinct points to all points.
    to_row = np.append(order, NONE)
    position = np.empty(len(first), dtype=np.intp)
    position[np.argsort(labels[first], kind="stable")] = np.arange(len(first))
    targets, impostors = (to_row[np.concatenate(side)] for side in zip(*blocks, strict=True))
    return targets[position[inverse]], impostors[position[inverse]]


def _mine_block(
    points: NDArray,
    norms: NDArray,
    starts: NDArray,
    ends: NDArray,
    block: tuple[int, int],
    n_neighbors: tuple[int, int],
) -> tuple[NDArray, NDArray]:
    """Neighbours of the points `block` of a set sorted by label, as positions in that set."""
    rows = np.arange(block[0], min(block[1], len(points)))
    # ‖x − z‖² less ‖x‖², which does not change the order within a row.
    distances = points[rows] @ points.T
    distances *= -2
    distances += norms
    distances[rows - rows[0], rows] = np.inf
    targets = np.full((len(rows), n_neighbors[0]), NONE, dtype=np.intp)
    for start in np.unique(starts[rows]):
        own = np.flatnonzero(starts[rows] == start)
        inside = slice(own[0], own[-1] + 1), slice(start, ends[rows[own[0]]])
        found = smallest(distances[inside], n_neighbors[0])
        targets[own, : found.shape[1]] = np.where(found == NONE, NONE, found + start)
        distances[inside] = np.inf
    impostors = np.full((len(rows), n_neighbors[1]), NONE, dtype=np.intp)
    found = smallest(distances, n_neighbors[1])
    impostors[:, : found.shape[1]] = found
    return targets, impostors


def smallest(values: NDArray, k: int) -> NDArray:
    """Columns of the k smallest entries of every row, smallest first; `NONE` for infinite ones.

    The k smallest entries lie in the k groups of columns with the smallest minima, so a row is
    read once by a vectorised minimum and only k·`GROUP_WIDTH` of its entries are sorted.
    """
    n = values.shape[1]
    k = min(k, n)
    width = max(1, min(GROUP_WIDTH, n // (4 * k)))
    n_groups = n // width
    minima = values[:, : n_groups * width].reshape(len(values), width, n_groups).min(axis=1)
    groups = np.argpartition(minima, k - 1, axis=1)[:, :k]
    columns = (groups[:, None, :] + n_groups * np.arange(width)[:, None]).reshape(len(values), -1)
    rest = np.broadcast_to(np.arange(n_groups * width, n), (len(values), n - n_groups * width))
    columns = np.sort(np.concatenate([columns, rest], axis=1), axis=1)
    candidates = np.take_along_axis(values, columns, axis=1)
    best = np.argsort(candidates, axis=1, kind="stable")[:, :k]
    found = np.take_along_axis(columns, best, axis=1)
    return np.where(np.isinf(np.take_along_axis(candidates, best, axis=1)), NONE, found)
