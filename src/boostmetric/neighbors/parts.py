"""Nearest targets and impostors of points on a cluster, chunk against chunk.

The search of two chunks is a task of the cluster; its tables are those of the exact search, so the
result is the same as in memory.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.dask_points import DaskPoints
from boostmetric.labels import Labels
from boostmetric.neighbors.exact import Places, search_part
from boostmetric.neighbors.ranking import Table, merge
from boostmetric.points import row_hashes, scale


def nearest_in_parts(
    X: DaskPoints, rows: NDArray, labels: Labels, n_targets: int, n_impostors: int
) -> tuple[NDArray, NDArray]:
    """For each of the given rows its nearest targets and impostors among them.

    Parameters
    ----------
    X : all points
    rows : those that take part, sorted
    labels : of these rows
    n_targets, n_impostors : numbers of neighbors

    Returns
    -------
    targets, impostors : arrays of shape (len(rows), n_targets) and (len(rows), n_impostors) of
        positions in `rows`, nearest first; `NONE` where there are no more
    """
    # 1) the first of equal points represents all
    hashes = np.concatenate(X.map(_row_keys))[rows]
    keys = np.column_stack([hashes, labels.codes.astype(np.uint64)])
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
            parts.append(make_part(chunk, rows[own] - start, own, labels[own], X.exponent))
    # 3) every chunk against every other one
    counts = n_targets, n_impostors
    found = X.compute(
        [(_merge, tuple(search(part, other, counts) for other in parts)) for part in parts]
    )
    # 4) for all rows
    place = np.searchsorted(positions, representative)
    targets, impostors = (np.concatenate(tables)[place] for tables in zip(*found, strict=True))
    return targets, impostors


def _part(
    chunk: NDArray, local: NDArray, positions: NDArray, labels: Labels, exponent: int
) -> Places:
    points = chunk[local]
    scale(points, -exponent)
    return Places(points, positions, labels)


def _merge(threads: Any, *found: tuple[Table, Table]) -> list[NDArray]:
    """The targets and the impostors in all parts, as positions."""
    return [merge(tables).rows for tables in zip(*found, strict=True)]


def _row_keys(chunk: NDArray) -> NDArray:
    """Two independent numbers of 64 bits for every row, of shape (n, 2)."""
    return np.column_stack([row_hashes(chunk, seed) for seed in (0, 1)])
