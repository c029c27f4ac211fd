"""Folds of embeddings: nearly equal vectors are in one fold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from sklearn.utils import gen_batches

from boostmetric.data.points import deviations, row_hashes
from boostmetric.data.samples import smallest_hashes

RELATIVE_DISTANCE = 1e-3
"""Rows are nearly equal if their distance is at most this fraction of the root of the total
variance. Vectors of unit length in float16 and in float64 differ by 2e-4; 1e-3 is a cosine of
1 − 5e-7."""

N_AXES = 8
"""Random axes on which near rows are searched. Pairs that are far on the other axes are dropped."""


def near_duplicates(*parts: NDArray) -> NDArray:
    """Number the rows of all parts such that equal and nearly equal rows have the same number.

    >>> near_duplicates(np.array([[0.0], [1.0], [1e-5]]), np.array([[1.0], [-1.0]])).tolist()
    [0, 1, 0, 1, 2]
    """
    batches = [X[rows] for X in parts for rows in gen_batches(len(X), 1 << 14)]
    starts = np.cumsum([0, *map(len, parts)])

    def rows_at(numbers: NDArray) -> NDArray:
        sources = np.searchsorted(starts, numbers, side="right") - 1
        rows = np.empty((len(numbers), parts[0].shape[1]))
        for source, X in enumerate(parts):
            chosen = sources == source
            rows[chosen] = X[numbers[chosen] - starts[source]]
        return rows

    # 1) equal rows
    hashes = np.concatenate([row_hashes(X) for X in batches])
    _, first, groups = np.unique(hashes, return_index=True, return_inverse=True)
    groups = groups.reshape(-1)

    # 2) Each row and the nearest one are one group, if they are near. This is repeated with the
    # first rows of the groups until none is near another.
    D = parts[0].shape[1]
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(D, min(D, N_AXES))))[0]
    images = np.concatenate([X.astype(np.float64) @ axes for X in batches])
    radius = RELATIVE_DISTANCE * max(float(np.linalg.norm(deviations(X))) for X in parts)
    while radius > 0:
        found = KDTree(images[first]).query(images[first], 2, distance_upper_bound=radius)[1]
        near = np.flatnonzero(found[:, 1] < len(first))
        if len(near) == 0:
            break
        pairs = np.concatenate([np.stack([near, each], axis=1) for each in found[near].T])
        is_near = [
            np.linalg.norm(np.subtract(*map(rows_at, first[pairs[part]].T)), axis=1) <= radius
            for part in gen_batches(len(pairs), 1 << 14)
        ]
        pairs = pairs[np.concatenate(is_near)]
        links = coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(len(first),) * 2)
        n_groups, merged = connected_components(links, directed=False)
        if n_groups == len(first):
            break
        groups, first = merged[groups], first[np.unique(merged, return_index=True)[1]]
    # Groups are numbered in the order of the rows.
    _, first, groups = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[groups.reshape(-1)]


def take_turns(
    units: NDArray, n_folds: int, hashes: NDArray, strata: NDArray | None = None
) -> NDArray:
    """Return the fold of each row; rows of the same unit are in the same fold.

    Units take turns in the order of their smallest hash, those of the same stratum one after
    another.

    >>> hashes = np.array([8, 3, 1, 9], dtype=np.uint64)
    >>> take_turns(np.array([5, 5, 7, 9]), 3, hashes).tolist()
    [1, 1, 0, 2]
    """
    _, first, codes = np.unique(units, return_index=True, return_inverse=True)
    smallest = smallest_hashes(codes.reshape(-1), hashes)[first]
    keys = (smallest,) if strata is None else (smallest, strata[first])
    folds = np.empty(len(first), dtype=np.intp)
    folds[np.lexsort(keys)] = np.arange(len(first)) % n_folds
    return folds[codes.reshape(-1)]


def sampled(rows: NDArray, hashes: NDArray, size: int) -> NDArray:
    """Return at most `size` of some rows, those with the smallest hashes, in increasing order.

    >>> sampled(np.array([0, 2, 3]), np.array([8, 3, 1, 9], dtype=np.uint64), 2).tolist()
    [0, 2]
    """
    return np.sort(rows[np.argsort(hashes[rows], kind="stable")[:size]])
