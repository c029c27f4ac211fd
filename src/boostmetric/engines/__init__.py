"""Where the computation runs: in this process, or on a Dask cluster.

An engine has two methods: `place` creates the blocks of a problem from recipes, and `call` runs a
function on every block and returns the results in the order of the blocks.
"""

from __future__ import annotations

from typing import Any

from boostmetric.engines.dask import Dask, EngineError, Lazy
from boostmetric.engines.local import (
    Local,
    StopRequested,
    Threads,
    available_cores,
    single_blas_thread,
)

__all__ = [
    "Dask",
    "EngineError",
    "Lazy",
    "Local",
    "StopRequested",
    "Threads",
    "as_engine",
    "available_cores",
    "single_blas_thread",
]


def as_engine(engine: Any, n_jobs: int | None = None) -> Local | Dask:
    """Convert the `engine` parameter to an engine, a context manager.

    Parameters
    ----------
    engine : None for this process; "dask" for the active Dask client, or Dask threads in this
        process without a client; the address of a scheduler; a `distributed.Client`; or an engine
    n_jobs : number of threads in this process

    Examples
    --------
    >>> type(as_engine(None)).__name__, type(as_engine("dask")).__name__
    ('Local', 'Dask')
    """
    if isinstance(engine, Local | Dask):
        return engine
    if engine is None:
        return Local(n_jobs)
    if not isinstance(engine, str) and not hasattr(engine, "submit"):
        raise ValueError(
            "The 'engine' parameter must be None, 'dask', the address of a Dask scheduler, or a "
            f"distributed.Client. Got {engine!r:.80} instead."
        )
    return Dask(None if engine == "dask" else engine)
