"""The benchmark datasets of the paper, with splits of its sizes.

>>> iris = load("iris")
>>> split = iris.split(seed=0)
>>> [part.X.shape for part in split]
[(105, 4), (23, 4), (22, 4)]
"""

from boostmetric_paper.datasets.catalogue import NAMES, DatasetError
from boostmetric_paper.datasets.fetching import fetch
from boostmetric_paper.datasets.loading import Dataset, Part, Split, describe, load, paper_split

__all__ = [
    "NAMES",
    "Dataset",
    "DatasetError",
    "Part",
    "Split",
    "describe",
    "fetch",
    "load",
    "paper_split",
]
