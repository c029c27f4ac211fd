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
    given : "serial", "threads", "dask", the address of a scheduler of Dask ("tcp://host:8786"), a
        `distributed.Client`, or an `Engine`

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
    if isinstance(given, Engine) or given in ("serial", "threads"):
        return
    if not _is_client(given) and not _is_address(given) and given != "dask":
        raise ValueError(
            f"engine={given!r:.80} will not do: None, 'serial', 'threads', 'dask', the address of "
            "a scheduler ('tcp://host:8786'), a Client of Dask or an Engine is needed."
        )
    if find_spec("distributed") is None:
        raise ImportError(
            f"engine={given!r:.80} needs Dask, which is missing: pip install 'boostmetric[dask]'"
        )


def _started(given: Any) -> Engine:
    check_engine(given)
    if given == "serial":
        return Serial()
    if given == "threads":
        return Threads()
    from boostmetric.engines.dask_engine import Dask

    return Dask(None if given == "dask" else given)


def _is_address(given: Any) -> bool:
    return isinstance(given, str) and "://" in given


def _is_client(given: Any) -> bool:
    return type(given).__module__.startswith("distributed.")
