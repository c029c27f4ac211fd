"""The engine for a Dask cluster.

A block is the result of a task, so Dask creates it again on another worker if its worker dies.
Calls are tasks that depend on the block; Dask runs them on the same worker. The state of a block
from earlier calls is only a cache: a new block, or a copy that Dask made to balance the load,
repeats the steps with the same arithmetic (`problem.block`). Therefore, results depend neither on
the number of workers nor on failures.

Dask is imported when an engine is opened.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import Lock
from typing import Any, Self
from uuid import uuid4

from boostmetric._validation import warn
from boostmetric._version import __version__
from boostmetric.engines.local import Result, Threads, available_cores, single_blas_thread

SECONDS_TO_FIRST_WORKER = 60
"""A new worker process takes some seconds to import its packages, or more on a busy machine."""

SECONDS_WITHOUT_WORKERS = 600
"""Time that a call waits for new workers if all have left. Starting a node takes minutes."""

SECONDS_BETWEEN_CHECKS = 5.0
"""Interval at which a call checks whether there are workers; a check takes a few ms."""

MAX_ATTEMPTS = 20
"""Attempts to create a block in one call. Dask gives up on a task after four workers died, but
clusters of preemptible nodes lose more; a block that kills its workers must end the fit."""


class EngineError(RuntimeError):
    """The cluster cannot run the fit, or the connection is lost."""


@dataclass(frozen=True, eq=False)
class Lazy:
    """A recipe with inputs that are computed by Dask.

    Parameters
    ----------
    recipe : function of the threads and the values of the inputs
    inputs : delayed objects of Dask, computed on the worker that runs the recipe
    nbytes : approximate size of the result
    """

    recipe: Callable[..., Any]
    inputs: tuple[Any, ...]
    nbytes: int = 0


class Dask:
    """Blocks on the workers of a Dask cluster.

    Parameters
    ----------
    client : a `distributed.Client`, or the address of a scheduler; None uses the active client or,
        without one, threads in this process until the engine is closed

    Examples
    --------
    >>> with Dask() as engine:
    ...     blocks = engine.place([lambda threads: [1, 2], lambda threads: [3]])
    ...     engine.call(len, blocks)
    [2, 1]
    """

    def __init__(self, client: Any = None) -> None:
        self._given = client
        self._client: Any = None
        self._n_users, self._on_close = 0, ExitStack()

    def place(self, recipes: Sequence[Callable[..., Any] | Lazy]) -> list[_Placed]:
        """Submit the creation of blocks to the workers, without waiting."""
        dumps, placed = import_module("cloudpickle").dumps, []
        for recipe in recipes:
            if not isinstance(recipe, Lazy):
                recipe = Lazy(recipe, (), getattr(recipe, "nbytes", 0))
            placed.append(_Placed(dumps(recipe.recipe), recipe.inputs, recipe.nbytes))
        with self._connected() as client:
            limits: list[int] = client.run_on_scheduler(
                lambda dask_scheduler: [
                    worker.memory_limit or 0 for worker in dask_scheduler.workers.values()
                ]
            )
            needed = max((each.nbytes for each in placed), default=0)
            if limits and all(limits) and needed > max(limits):
                raise EngineError(
                    f"The largest block takes {needed / 1e6:.1f} MB, but the largest memory limit "
                    f"of a worker is {max(limits) / 1e6:.1f} MB. Start workers with more memory, "
                    "or divide X into smaller chunks."
                )
            self._create(client, placed)
        return placed

    def call(
        self, function: Callable[..., Result], blocks: Sequence[_Placed], *arguments: Any
    ) -> list[Result]:
        """The function's results for every block, in the order of the blocks."""
        killed = import_module("distributed.scheduler").KilledWorker
        # Pickled once for all blocks; otherwise Dask would search the arguments for futures.
        request: bytes = import_module("cloudpickle").dumps((function, arguments))
        tasks: list[Any] = [None] * len(blocks)
        pending = list(range(len(blocks)))
        with self._connected() as client:
            for _ in range(MAX_ATTEMPTS):
                # 1) one task per block, submitted together, which takes half as long as one by one
                submitted = client.map(
                    _run,
                    [request] * len(pending),
                    [blocks[number].future for number in pending],
                    key=[f"boostmetric-{uuid4()}" for _ in pending],
                    pure=False,
                )
                for number, task in zip(pending, submitted, strict=True):
                    tasks[number] = task
                # 2) results, unless Dask has given up on some tasks; create their blocks again
                self._wait(client, tasks)
                try:
                    results: list[Result] = client.gather(tasks)
                    return results
                except killed:
                    pending = [n for n, task in enumerate(tasks) if task.status != "finished"]
                    self._create(client, [blocks[number] for number in pending])
        raise EngineError(
            f"Workers died {MAX_ATTEMPTS} times while they worked on one block of "
            f"{max(block.nbytes for block in blocks) / 1e6:.0f} MB. They probably need more memory."
        )

    def __enter__(self) -> Self:
        if self._n_users == 0:
            with ExitStack() as stack:
                self._client = self._open(stack)
                self._on_close = stack.pop_all()
        self._n_users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._n_users -= 1
        if self._n_users == 0:
            self._client = None
            self._on_close.close()

    def _open(self, stack: ExitStack) -> Any:
        """Return the client; the stack closes it if it is started here."""
        try:
            import_module("dask.array")
            distributed = import_module("distributed")
        except ImportError as error:
            raise ImportError(
                "Fitting on Dask requires Dask. Install it with: pip install 'boostmetric[dask]'"
            ) from error
        # 1) connect to the given or active cluster, or start threads
        client = self._given
        if client is None:
            try:
                client = distributed.Client.current()
            except ValueError:
                # Threads need no `if __name__ == "__main__"` in the user's program.
                client = stack.enter_context(
                    distributed.Client(
                        processes=False,
                        n_workers=1,
                        threads_per_worker=available_cores(),
                        dashboard_address=":0",
                        set_as_default=False,
                    )
                )
        elif isinstance(client, str):
            try:
                client = stack.enter_context(distributed.Client(client, set_as_default=False))
            except (OSError, ValueError) as error:
                raise EngineError(
                    f"There is no Dask scheduler at {self._given!r} ({error}). Start one with "
                    "`dask scheduler`, and pass the address that it prints."
                ) from error
        # 2) check that there are workers, and that they have this version of the package
        try:
            client.wait_for_workers(1, timeout=SECONDS_TO_FIRST_WORKER)
        except TimeoutError as error:
            raise EngineError(
                f"The Dask cluster at {client.scheduler.address} has no workers. Start some with "
                f"`dask worker {client.scheduler.address}`."
            ) from error
        for worker, version in client.run(_version, on_error="return").items():
            # A worker that has just died returns an OSError.
            if version != __version__ and not isinstance(version, OSError):
                raise EngineError(
                    f"The Dask worker {worker} does not have boostmetric {__version__} "
                    f"({version}). Install the same version on all workers."
                )
        return client

    @staticmethod
    def _create(client: Any, placed: Sequence[_Placed]) -> None:
        """Submit the tasks that create blocks, all at once, so that shared inputs are read once."""
        dask = import_module("dask")
        make = dask.delayed(_make, pure=False)
        tasks = []
        for each in placed:
            each.future = None  # releases failed inputs, so that Dask computes them again
            key = f"boostmetric-block-{uuid4()}"
            tasks.append(make(each.recipe, *each.inputs, dask_key_name=key))
        # Points in memory are part of the tasks, so that a block survives its worker; this is not
        # worth a warning.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            for each, future in zip(placed, client.compute(tasks), strict=True):
                each.future = future

    def _wait(self, client: Any, tasks: Sequence[Any]) -> None:
        """Wait for tasks; without workers, wait for new ones up to a time limit."""
        wait, since = import_module("distributed").wait, None
        while True:
            try:
                with client.as_current():
                    wait(tasks, timeout=SECONDS_BETWEEN_CHECKS)
                return
            except TimeoutError:
                pass
            if client.nthreads():
                since = None
            elif since is None:
                since = time.monotonic()
                warn("All Dask workers have left. The fit continues when a worker joins.")
            elif time.monotonic() - since > SECONDS_WITHOUT_WORKERS:
                raise EngineError(
                    f"The Dask cluster has had no workers for {SECONDS_WITHOUT_WORKERS} seconds."
                )

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Yield the client; if the scheduler is lost, raise an EngineError."""
        client = self._client
        if client is None:
            raise EngineError("The Dask engine is closed.")
        closed = import_module("distributed.comm.core").CommClosedError
        try:
            yield client
        except Exception as error:
            if client.status == "running" and not isinstance(error, closed | CancelledError):
                raise
            raise EngineError(
                "The connection to the Dask scheduler is lost. Start a scheduler and workers, and "
                "fit again."
            ) from error


@dataclass(eq=False)
class _Placed:
    """A block on the cluster: its pickled recipe with inputs and size, and its future."""

    recipe: bytes
    inputs: tuple[Any, ...]
    nbytes: int
    future: Any = None


class _Held:
    """A block in the memory of a worker."""

    def __init__(self, block: Any) -> None:
        self.block, self.lock = block, Lock()

    def __sizeof__(self) -> int:
        # Dask uses the size to decide whether to move a block, and when to spill to disk.
        size: int = import_module("dask.sizeof").sizeof(self.block)
        return getattr(self.block, "nbytes", size)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Held, (self.block,)


def _make(recipe: bytes, *inputs: Any) -> _Held:
    with single_blas_thread():
        return _Held(pickle.loads(recipe)(Threads(1), *inputs))


def _run(request: bytes, held: _Held) -> Any:
    function, arguments = pickle.loads(request)
    with held.lock, single_blas_thread():
        return function(held.block, *arguments)


def _version() -> str:
    return __version__
