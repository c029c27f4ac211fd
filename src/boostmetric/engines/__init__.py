"""Where the computation runs. An engine contains no formulas.

It has two methods: `place` creates the blocks of a problem from recipes, and `call` runs a function
on every block and returns the results in the order of the blocks.
"""

from boostmetric.engines.local import (
    Local,
    StopRequested,
    Threads,
    available_cores,
    single_blas_thread,
)

__all__ = ["Local", "StopRequested", "Threads", "available_cores", "single_blas_thread"]
