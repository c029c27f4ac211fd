"""The engine that works on a cluster of Dask; the only module that imports it.

A block is the result of a task that loads it, so that the scheduler has it loaded again, elsewhere,
when the worker that held it is gone. What a block remembers is changed in place by the tasks that
work on it: a convenience, which a block that was loaded anew lacks and makes up for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
from dask.graph_manipulation import clone
from distributed import Client, Future, LocalCluster, wait
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from boostmetric._version import __version__
from boostmetric._warn import warn
from boostmetric.engines.engine import (
    Engine,
    EngineError,
    Recipe,
    keep_freed_memory,
    processors,
    single,
)

T = TypeVar("T")

ATTEMPTS = 20
"""How often a call is made anew whose workers died, before the fit gives up."""

LARGE = 1 << 20
"""Bytes from which on an array is shared by the tasks of a call."""

PATIENCE = 30.0
"""Seconds after which it is asked whether there is a worker at all."""

BALANCE = 5.0
"""Seconds after which it is asked whether workers have come."""

MOVES = 4
"""How often blocks are then loaded anew, until all workers have their share."""


class _Placed:
    """A block on the cluster."""

    def __init__(self, client: Client, recipe: Any) -> None:
        self._client, self._recipe = client, recipe
        self._lazy = recipe.lazy() if hasattr(recipe, "lazy") else None
        self.place()

    def place(self) -> None:
        """Have it loaded, by whom the scheduler thinks best.

        A task that names a worker could wait for ever for one that has died.
        """
        inputs = [] if self._lazy is None else [self._client.compute(self._lazy)]
        self.future = self._client.submit(
            _load, self._recipe, *inputs, key=f"boostmetric-block-{uuid4()}", pure=False
        )

    def place_anew(self) -> None:
        """Have it loaded by tasks that have not failed before, those of its inputs included."""
        self._lazy = None if self._lazy is None else clone(self._lazy)
        self.place()


class Dask(Engine):
    """Blocks on the workers of a cluster.

    Parameters
    ----------
    client : of the cluster, or the address of its scheduler; None starts a cluster on this machine,
        with a process for each processor, and ends it with the engine
    """

    spills = True

    def __init__(self, client: Client | str | None = None) -> None:
        self._cluster: LocalCluster | None = None
        self._is_own = not isinstance(client, Client)
        if client is None:
            self._cluster = LocalCluster(
                n_workers=processors(), threads_per_worker=1, dashboard_address=":0"
            )
            client = Client(self._cluster, set_as_default=False)
        self._client = _client_at(client) if isinstance(client, str) else client
        with self._connected():
            _check_versions(self._client)
            self._workers = set(self._client.nthreads())
        self._balance_at, self._attempts = time.monotonic() + BALANCE, 0

    @property
    def n_workers(self) -> int:  # type: ignore[override]
        """The number of threads of all workers that there are now, at least 1."""
        with self._connected():
            return max(1, sum(self._client.nthreads().values()))

    @property
    def memory(self) -> int | None:
        """Bytes for each thread of the worker with the least, where they are limited."""
        with self._connected():
            limits: list[int] = self._client.run_on_scheduler(_memory_limits)
        return min(limits, default=None)

    def place(self, recipes: Sequence[Recipe]) -> list[_Placed]:
        """Have the blocks loaded by the workers; does not wait for it."""
        with self._connected():
            return [_Placed(self._client, recipe) for recipe in recipes]

    def call(
        self, function: Callable[..., T], handles: Sequence[_Placed], *arguments: Any
    ) -> list[T]:
        """A task for each block, where the block is."""
        with self._connected():
            self._balance(handles)
            return self._called(function, handles, arguments)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """A context in which errors of a connection that is lost say so."""
        try:
            yield
        except Exception as error:
            connected = self._client.status == "running"
            if connected and not isinstance(error, CommClosedError | CancelledError):
                raise
            raise EngineError(
                "the connection to the scheduler of Dask is lost, and with it the blocks of its "
                "workers. Start a scheduler and workers, and fit again."
            ) from error

    def _called(
        self, function: Callable[..., T], handles: Sequence[_Placed], arguments: tuple[Any, ...]
    ) -> list[T]:
        def submit(*chosen: _Placed) -> list[Future]:
            # Shared anew each time: the scheduler may have given up what they share.
            shared = [self._shared(argument) for argument in arguments]
            options = [{"key": f"boostmetric-{uuid4()}", "pure": False} for _ in chosen]
            return [
                self._client.submit(_call, function, each.future, *shared, **option)
                for each, option in zip(chosen, options, strict=True)
            ]

        tasks = submit(*handles)
        self._await(tasks)
        try:
            return list(self._client.gather(tasks))
        except KilledWorker:
            each = zip(tasks, handles, strict=True)
            return [self._result(task, handle, submit) for task, handle in each]

    @staticmethod
    def _result(task: Future, handle: _Placed, submit: Callable[[_Placed], list[Future]]) -> Any:
        """What a task returns; where the scheduler has given it up, that of another one."""
        for _ in range(ATTEMPTS):
            try:
                return task.result()
            except KilledWorker:
                handle.place_anew()
                (task,) = submit(handle)
        raise EngineError(
            f"workers died {ATTEMPTS} times over one block: have they memory enough for it? More "
            "blocks (n_blocks) are smaller ones."
        )

    def _await(self, tasks: Sequence[Future]) -> None:
        """Wait for tasks, and say so once if there is nobody who could do them."""
        said = False
        while True:
            try:
                wait(tasks, timeout=PATIENCE)
                return
            except TimeoutError:
                there, running = self._client.run_on_scheduler(_counted)
            if running == 0 and not said:
                said = True
                alone = "there is no worker of Dask"
                paused = f"all {there} workers of Dask are paused, as they lack memory"
                warn(f"{paused if there else alone}: the fit waits until one can go on.")

    def _balance(self, handles: Sequence[_Placed]) -> None:
        """Have blocks loaded anew of which a worker has more than its share, if others have come.

        The scheduler gives them to those that hold the least, as far as it knows at the time.
        """
        if time.monotonic() < self._balance_at:
            return
        self._balance_at = time.monotonic() + BALANCE
        threads = self._client.nthreads()
        if set(threads) - self._workers:
            self._attempts = MOVES
        self._workers = set(threads)
        if self._attempts == 0:
            return
        self._attempts -= 1
        holders = self._client.who_has([handle.future for handle in handles])
        held: dict[str, list[_Placed]] = {address: [] for address in threads}
        for handle in handles:
            for address in list(holders.get(handle.future.key, ()))[:1]:
                held.get(address, []).append(handle)
        share = -(-len(handles) // sum(threads.values()))
        room = sum(max(0, share * threads[each] - len(own)) for each, own in held.items())
        above = [handle for each, own in held.items() for handle in own[share * threads[each] :]]
        for handle in above[:room]:
            handle.place()

    def _shared(self, argument: Any) -> Any:
        """A large array becomes the result of a task, so that it is sent once and not per block."""
        if not isinstance(argument, np.ndarray) or argument.nbytes < LARGE:
            return argument
        return self._client.submit(_same, argument, key=f"boostmetric-{uuid4()}", pure=False)

    def close(self) -> None:
        """End the connection and the cluster that the engine has started, if any."""
        if self._is_own:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _client_at(address: str) -> Client:
    """A client of the scheduler at an address."""
    try:
        # One that is the default, and does not get through, would leave Dask without a scheduler.
        return Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise EngineError(
            f"there is no scheduler of Dask at {address!r} ({error}). Start one (dask scheduler), "
            "and workers, and give the address that it prints."
        ) from error


def _check_versions(client: Client) -> None:
    """Refuse a cluster without this version of the package, which would wait or fail oddly."""
    what = "boostmetric:__version__"
    found = {
        f"worker {address}": answer
        for address, answer in client.run(resolve_name, what, on_error="return").items()
    }
    try:
        found["scheduler"] = client.run_on_scheduler(resolve_name, what)
    except ImportError as error:
        found["scheduler"] = error
    for who, version in found.items():
        # A worker that has died since says nothing of its version.
        if version != __version__ and not isinstance(version, OSError):
            had = f"it has {version}" if isinstance(version, str) else f"there, {version}"
            raise EngineError(
                f"the {who} of Dask has not boostmetric {__version__} ({had}): install the same "
                "version on the machines of the scheduler and of all workers, and start them again."
            )


def _counted(dask_scheduler: Any) -> tuple[int, int]:
    """The numbers of workers, and of those that take tasks."""
    return len(dask_scheduler.workers), len(dask_scheduler.running)


def _memory_limits(dask_scheduler: Any) -> list[int]:
    workers = dask_scheduler.workers.values()
    return [each.memory_limit // each.nthreads for each in workers if each.memory_limit]


def _load(recipe: Recipe, *inputs: Any) -> Any:
    keep_freed_memory()
    with single():
        return recipe.load(*inputs)


def _same(given: T) -> T:
    return given


def _call(function: Callable[..., T], block: Any, *arguments: Any) -> T:
    with single():
        return function(block, *arguments)
