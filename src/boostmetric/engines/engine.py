"""Engines: who does the work on blocks, and where. They know no formula.

A block is a recipe (`load`) that any worker can follow from the data alone. An engine has each
block loaded once, calls functions on all of them, and returns what they give in the order of the
blocks, so that sums do not depend on who was first. Nothing that only a worker knows is needed: a
block that was lost is loaded again.
"""

from __future__ import annotations

import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Protocol, TypeVar

from joblib import cpu_count
from threadpoolctl import ThreadpoolController

T = TypeVar("T")


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def single() -> AbstractContextManager[Any]:
    """A context in which products of matrices start no threads of their own.

    Engines divide the work themselves, and how a product is divided may change its last digits.
    """
    return _libraries().limit(limits=1, user_api="blas")


@cache
def keep_freed_memory() -> None:
    """Have the C library keep up to 64 MB of what was freed, and map only arrays above 32 MB anew.

    That is what glibc comes to by itself, once arrays of that size were freed; but workers of Dask
    are told to give all of it back at once. Arrays of some MB, which every round makes and frees,
    are then pages that the system has to clear first: rounds took half as long again, or twice.
    """
    trim_threshold, mmap_threshold = -1, -3  # as in malloc.h
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    set_option(trim_threshold, 64 << 20)
    set_option(mmap_threshold, 32 << 20)


class EngineError(RuntimeError):
    """An engine cannot go on. The text says why, and what to do."""


def processors() -> int:
    """The number of processors that this process may use."""
    return int(cpu_count())


def physical_memory() -> int | None:
    """Bytes of memory of this machine, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


class Recipe(Protocol):
    """What a block can be made from, at any time and by any worker; small enough to be sent.

    `lazy`, which a recipe need not have, gives what Dask has to compute first, or None; `load` is
    then called with the result.
    """

    def load(self) -> Any:
        """The block."""


class Engine(ABC):
    """Calls functions on blocks."""

    n_workers: int = 1
    """Number of blocks that are worked on at a time."""

    spills: bool = False
    """Whether workers keep on disk what their memory does not hold."""

    @property
    def memory(self) -> int | None:
        """Bytes that there are for each of `n_workers`, where that is known."""
        whole = physical_memory()
        return None if whole is None else whole // self.n_workers

    @abstractmethod
    def place(self, recipes: Sequence[Recipe]) -> Sequence[Any]:
        """Have blocks loaded; handles of them, for `call`."""

    @abstractmethod
    def call(self, function: Callable[..., T], handles: Sequence[Any], *arguments: Any) -> list[T]:
        """`function(block, *arguments)` of every block, in the order of the handles."""

    def close(self) -> None:  # noqa: B027 (most have started nothing)
        """Let go of what the engine itself has started."""


class Serial(Engine):
    """One block after another, in this thread.

    Examples
    --------
    >>> class Number:
    ...     def load(self):
    ...         return 3
    >>> engine = Serial()
    >>> engine.call(pow, engine.place([Number(), Number()]), 2)
    [9, 9]
    """

    def place(self, recipes: Sequence[Recipe]) -> list[Any]:
        """Load the blocks."""
        keep_freed_memory()
        return [recipe.load() for recipe in recipes]

    def call(self, function: Callable[..., T], handles: Sequence[Any], *arguments: Any) -> list[T]:
        """One call after another."""
        with single():
            return [function(block, *arguments) for block in handles]


class Threads(Engine):
    """Several blocks at a time, in threads that share the memory of this process.

    Parameters
    ----------
    n_workers : number of threads; None for that of the processors this process may use

    Examples
    --------
    >>> class Number:
    ...     def load(self):
    ...         return 3
    >>> engine = Threads(2)
    >>> engine.call(pow, engine.place([Number(), Number()]), 2)
    [9, 9]
    >>> engine.close()
    """

    def __init__(self, n_workers: int | None = None) -> None:
        self.n_workers = n_workers or processors()
        self._executor = ThreadPoolExecutor(self.n_workers)

    def place(self, recipes: Sequence[Recipe]) -> list[Any]:
        """Load the blocks."""
        keep_freed_memory()
        return list(self._executor.map(lambda recipe: recipe.load(), recipes))

    def call(self, function: Callable[..., T], handles: Sequence[Any], *arguments: Any) -> list[T]:
        """As many calls at a time as there are threads."""
        with single():
            return list(self._executor.map(lambda block: function(block, *arguments), handles))

    def close(self) -> None:
        """End the threads."""
        self._executor.shutdown()
