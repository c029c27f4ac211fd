"""Which engine an argument names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import Any

from boostmetric.engines.engine import Engine, Serial, Threads


@contextmanager
def engine_of(given: Any) -> Iterator[Engine]:
    """The engine that an argument names; one that was started for it ends with the context.

    Parameters
    ----------
    given : "serial", "threads", "dask", a `distributed.Client`, or an `Engine`

    Examples
    --------
    >>> with engine_of("threads") as engine:
    ...     type(engine).__name__
    'Threads'
    """
    if isinstance(given, Engine):
        yield given
        return
    with closing(_started(given)) as engine:
        yield engine


def check_engine(given: Any) -> None:
    """Raise an error unless this is an engine, or names one that can be started."""
    if isinstance(given, Engine) or (isinstance(given, str) and given in ("serial", "threads")):
        return
    if not _is_client(given) and not (isinstance(given, str) and given == "dask"):
        raise ValueError(
            f"engine={given!r:.80} will not do: None, 'serial', 'threads', 'dask', a Client of "
            "Dask or an Engine is needed."
        )
    if find_spec("distributed") is None:
        raise ImportError(
            "engine='dask' needs Dask, which is missing: pip install 'boostmetric[dask]'"
        )


def _started(given: Any) -> Engine:
    check_engine(given)
    if given == "serial":
        return Serial()
    if given == "threads":
        return Threads()
    from boostmetric.engines.dask_engine import Dask

    return Dask(given if _is_client(given) else None)


def _is_client(given: Any) -> bool:
    return type(given).__module__.startswith("distributed.")
