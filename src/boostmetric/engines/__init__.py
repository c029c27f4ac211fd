"""Fits in blocks: on threads, on a cluster, and of data larger than memory.

>>> from boostmetric.engines import Threads
>>> Threads(n_workers=2).n_workers
2
"""

from boostmetric.engines.engine import Engine, EngineError, Serial, Threads
from boostmetric.engines.fitting import boost_in_blocks
from boostmetric.engines.recipes import Neighbours
from boostmetric.engines.sources import ComparisonSource, Source, as_source

__all__ = [
    "ComparisonSource",
    "Engine",
    "EngineError",
    "Neighbours",
    "Serial",
    "Source",
    "Threads",
    "as_source",
    "boost_in_blocks",
]
