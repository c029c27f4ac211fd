"""Nearest targets and impostors, from which comparisons are made.

One exact search supports dense and sparse points, classes and multilabel targets, and parts of the
data. An index replaces it if there are too many points for all pairs. All searches use the same
ranking, so their results agree.
"""

from boostmetric.neighbors.exact import (
    Places,
    nearest_points,
    nearest_targets_and_impostors,
    search_part,
)
from boostmetric.neighbors.index import (
    FaissIndex,
    Index,
    check_index,
    indexed_targets_and_impostors,
)
from boostmetric.neighbors.kernels import compiled_loops
from boostmetric.neighbors.parts import nearest_in_parts
from boostmetric.neighbors.ranking import NONE, NeighborTable, merge_tables

__all__ = [
    "NONE",
    "FaissIndex",
    "Index",
    "NeighborTable",
    "Places",
    "check_index",
    "compiled_loops",
    "indexed_targets_and_impostors",
    "merge_tables",
    "nearest_in_parts",
    "nearest_points",
    "nearest_targets_and_impostors",
    "search_part",
]
