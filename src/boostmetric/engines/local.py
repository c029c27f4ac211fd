"""The engine of this process: Python threads that process fixed chunks of the data.

NumPy, SciPy's sparse products and BLAS release the global interpreter lock, so threads suffice.
Results do not depend on the number of threads: chunks depend only on the data, results are in the
order of the chunks, and BLAS, whose sums depend on its number of threads, is limited to one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ContextDecorator
from functools import cached_property
from itertools import count
from threading import Event, Lock
from typing import Any, Self, TypeVar

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


class StopRequested(Exception):
    """The computation was stopped on request."""


class Threads:
    """A pool of threads that process chunks.

    Parameters
    ----------
    n_jobs : number of threads; None for the cores available to this process (`available_cores`);
        -1, -2, … as in scikit-learn: all of these cores, all but one, …

    Examples
    --------
    >>> with Threads(2) as threads:
    ...     threads.map(len, ["a", "bc", "def"])
    [1, 2, 3]
    """

    def __init__(self, n_jobs: int | None = 1) -> None:
        if n_jobs is None:
            n_jobs = available_cores()
        elif n_jobs < 0:
            n_jobs = max(1, available_cores() + 1 + n_jobs)
        self.n_jobs = n_jobs
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results of a function, in the order of the items. Calls must not be nested.

        The calling thread takes part, and each thread takes the next item when it has finished one:
        waking the others takes about 50 µs, regardless of the number of items. After an exception,
        all threads stop after their current items.
        """
        n_helpers = min(self.n_jobs, len(items)) - 1
        if n_helpers < 1:
            return [function(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_jobs - 1, thread_name_prefix="boostmetric")
        settings: Any = np.geterr()  # NumPy has separate settings for each thread
        results: dict[int, Result] = {}
        numbers = count()
        has_failed = Event()

        def work() -> None:
            try:
                with np.errstate(**settings):
                    while not has_failed.is_set() and (number := next(numbers)) < len(items):
                        results[number] = function(items[number])
            except BaseException:
                has_failed.set()
                raise

        helpers = [self._pool.submit(work) for _ in range(n_helpers)]
        try:
            work()
            wait(helpers)
        finally:
            has_failed.set()  # if Ctrl-C interrupted the wait
            wait(helpers)
        for helper in helpers:
            helper.result()  # raises the exception of the function, if any
        return [results[number] for number in range(len(items))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the threads; `map` starts them again."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        return {"n_jobs": self.n_jobs, "_pool": None}


class Local:
    """Blocks in this process, which share a pool of threads.

    A recipe is a function that receives the threads and returns a block.
    """

    def __init__(self, n_jobs: int | None = 1) -> None:
        self.threads = Threads(n_jobs)

    def place(self, recipes: Sequence[Callable[[Threads], Any]]) -> list[Any]:
        """Create a block from every recipe."""
        return [recipe(self.threads) for recipe in recipes]

    def call(
        self, function: Callable[..., Result], blocks: Sequence[Any], *arguments: Any
    ) -> list[Result]:
        """The function's results for every block, one block after another."""
        return [function(block, *arguments) for block in blocks]

    def __enter__(self) -> Self:
        _LIMIT.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        _LIMIT.__exit__()
        self.threads.__exit__()


class _BlasLimit(ContextDecorator):
    """Limits BLAS to one thread, in the whole process, while the context has users."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._n_users = 0
        self._before: list[int] = []

    @cached_property
    def _libraries(self) -> list[Any]:
        """The BLAS libraries of NumPy and SciPy; cached, because finding them takes time."""
        return ThreadpoolController().select(user_api="blas").lib_controllers

    def __enter__(self) -> None:
        with self._lock:
            if self._n_users == 0:
                self._before = [library.num_threads or 1 for library in self._libraries]
                self._set([1] * len(self._before))
            self._n_users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_users -= 1
            if self._n_users == 0:
                self._set(self._before)

    def _set(self, numbers: list[int]) -> None:
        for library, number in zip(self._libraries, numbers, strict=True):
            # As of version 3.7, threadpoolctl ignores all threads but the first one that set a
            # limit, which may be another thread that no longer uses it.
            release = getattr(library, "clear_controlling_thread", lambda force: None)
            release(force=True)
            library.set_num_threads(number)
            release(force=True)

    def n_threads(self) -> int:
        """The number of threads of BLAS without this limit."""
        with self._lock:
            current = [library.num_threads or 1 for library in self._libraries]
            return max(self._before if self._n_users else current, default=1)


_LIMIT = _BlasLimit()


def single_blas_thread() -> _BlasLimit:
    """Limit BLAS to one thread; contexts may overlap in any order, in several threads."""
    return _LIMIT


def available_cores() -> int:
    """The default number of threads of this process.

    The minimum of `joblib.cpu_count` (CPU affinity, container limits, LOKY_MAX_CPU_COUNT),
    OMP_NUM_THREADS, and the number of threads of BLAS (threadpoolctl, environment variables). In a
    joblib worker, it is OMP_NUM_THREADS, which joblib sets in worker processes, or else 1, because
    the workers share the cores already.
    """
    cores = [joblib.cpu_count(), _LIMIT.n_threads()]
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if given.isdigit() and int(given) > 0:
        cores.append(int(given))
    elif getattr(get_active_backend()[0], "nesting_level", 0):
        return 1
    return max(1, min(cores))
