"""Nearest targets and impostors: the neighbors of which comparisons are made.

One exact search serves dense and sparse points, classes and multilabel targets, and parts of the
data; an index replaces it for more points than can be compared in pairs. All searches fill the same
table with the same ranking, so their results agree.
"""

from boostmetric.neighbors.exact import Places, nearest_targets_and_impostors, search_part
from boostmetric.neighbors.index import Index, check_index, indexed_targets_and_impostors
from boostmetric.neighbors.kernels import compiled_loops
from boostmetric.neighbors.parts import nearest_in_parts
from boostmetric.neighbors.ranking import NONE, Table, merge

__all__ = [
    "NONE",
    "Index",
    "Places",
    "Table",
    "check_index",
    "compiled_loops",
    "indexed_targets_and_impostors",
    "merge",
    "nearest_in_parts",
    "nearest_targets_and_impostors",
    "search_part",
]
