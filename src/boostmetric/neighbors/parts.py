"""Nearest targets and impostors of points on a cluster, chunk by chunk.

Searching a pair of chunks is one task. The exact search gives the same tables as in memory; with
`index`, each chunk has its own indexes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.labels import Labels
from boostmetric.data.points import row_hashes, scale
from boostmetric.neighbors.exact import Places, search_part
from boostmetric.neighbors.index import Index, make_indexes, measure_recall, search_indexes
from boostmetric.neighbors.ranking import NeighborTable, merge_tables


def nearest_in_parts(
    X: DaskPoints,
    rows: NDArray,
    labels: Labels,
    n_neighbors: tuple[int, int],
    index: str | Index | None = None,
) -> tuple[NDArray, NDArray, float | None]:
    """Nearest targets and impostors of the given rows among these rows.

    Parameters
    ----------
    X : all points
    rows : sorted row numbers
    labels : labels of these rows
    n_neighbors : numbers of targets and impostors
    index : as for `indexed_targets_and_impostors`; None searches exactly

    Returns
    -------
    targets, impostors : arrays of shape (len(rows), n_targets) and (len(rows), n_impostors) of
        positions in `rows`, nearest first; `NONE` if there are no more
    recall : recall of the index, or None
    """
    # 1) the first of equal points represents all; two hashes, because collisions must not occur
    hashes = np.concatenate(
        X.map(lambda chunk: np.column_stack([row_hashes(chunk, seed) for seed in (0, 1)]))
    )[rows]
    keys = np.column_stack([hashes, labels.codes.astype(np.uint64)])
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    first = first.astype(np.intp)
    representative = first[inverse.reshape(-1)]
    positions = np.sort(first)
    # 2) the representatives of every chunk, scaled such that squares do not overflow
    delayed = import_module("dask").delayed
    make_part, search = delayed(_part, pure=False), delayed(search_part, pure=False)
    cuts = np.searchsorted(rows[positions], X.starts)
    parts = []
    for chunk, start, begin, end in zip(X.chunks, X.starts, cuts, cuts[1:], strict=False):
        if begin < end:
            own = positions[begin:end]
            parts.append(make_part(chunk, rows[own] - start, own, labels[own], X.exponent))

    def search_all(queries: Any) -> tuple[Any, Any]:
        """A task that searches all parts exactly and merges the results."""
        return _merge, tuple(search(queries, part, n_neighbors) for part in parts)

    # 3) search every pair of chunks
    if index is None:
        tasks = [search_all(part) for part in parts]
    else:
        center = delayed(X.mean * X.dtype.type(2.0**-X.exponent))
        make = delayed(lambda part, at: list(make_indexes(part, index, 1, at, 0)), pure=False)
        indexed = [(part, make(part, center)) for part in parts]
        search_index = delayed(search_indexes, pure=False)
        tasks = [
            (_merge, tuple(search_index(part, *other, center, 0, n_neighbors) for other in indexed))
            for part in parts
        ]
    tables = [
        NeighborTable(
            np.concatenate([table.squares for table in side]),
            np.concatenate([table.rows for table in side]),
        )
        for side in zip(*X.compute(tasks), strict=True)
    ]
    # 4) recall of the index
    recall = None
    if index is not None:

        def search_sample(sample: NDArray) -> Any:
            own = positions[sample]
            queries = _part(X, rows[own], own, labels[own], X.exponent)
            return X.compute([search_all(delayed(queries))])[0]

        recall = measure_recall(tables, search_sample)
    # 5) expand the results to all rows
    place = np.searchsorted(positions, representative)
    targets, impostors = (table.rows[place] for table in tables)
    return targets, impostors, recall


def _part(
    points: NDArray | DaskPoints,
    local: NDArray,
    positions: NDArray,
    labels: Labels,
    exponent: int,
) -> Places:
    chosen = points[local]
    scale(chosen, -exponent)
    return Places(chosen, positions, labels)


def _merge(threads: Any, *found: tuple[NeighborTable, NeighborTable]) -> list[NeighborTable]:
    """Merge the targets and the impostors of all parts."""
    return [merge_tables(tables) for tables in zip(*found, strict=True)]
