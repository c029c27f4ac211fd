"""The paper's data: its toy set, its benchmark sets, and splits of its sizes.

>>> iris = load("iris")
>>> split = iris.split(seed=0)
>>> [part.X.shape for part in split]
[(105, 4), (23, 4), (22, 4)]
"""

from boostmetric.datasets.catalogue import NAMES, DatasetError
from boostmetric.datasets.fetching import fetch
from boostmetric.datasets.loading import Dataset, Part, Split, describe, load
from boostmetric.datasets.made import balance_scale, concentric_circles, paper_split

__all__ = [
    "NAMES",
    "Dataset",
    "DatasetError",
    "Part",
    "Split",
    "balance_scale",
    "concentric_circles",
    "describe",
    "fetch",
    "load",
    "paper_split",
]
