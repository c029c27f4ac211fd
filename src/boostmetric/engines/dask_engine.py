"""The engine that works on a cluster of Dask; the only module that imports it.

A block is the result of a task that loads it, so that the scheduler has it loaded again, elsewhere,
when the worker that held it is gone. What a block remembers is changed in place by the tasks that
work on it: a convenience, which a block that was loaded anew lacks and makes up for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
from distributed import Client, Future, LocalCluster
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker

from boostmetric.engines.engine import Engine, EngineError, Recipe, processors, single

T = TypeVar("T")

ATTEMPTS = 20
"""How often a call is made anew whose workers died, before the fit gives up."""


LARGE = 1 << 20
"""Bytes from which on an array is shared by the tasks of a call."""


class _Placed:
    """A block on the cluster."""

    def __init__(self, client: Client, recipe: Any) -> None:
        self._client, self._recipe = client, recipe
        self.place()

    def place(self) -> None:
        """Have it loaded, by a task that has not failed before."""
        lazy = self._recipe.lazy() if hasattr(self._recipe, "lazy") else None
        inputs = [] if lazy is None else [self._client.compute(lazy)]
        self.future = self._client.submit(
            _load, self._recipe, *inputs, key=f"boostmetric-block-{uuid4()}", pure=False
        )


class Dask(Engine):
    """Blocks on the workers of a cluster.

    Parameters
    ----------
    client : of the cluster; None starts one on this machine, with a process for each processor,
        and ends it with the engine
    """

    spills = True

    def __init__(self, client: Client | None = None) -> None:
        self._cluster: LocalCluster | None = None
        if client is None:
            self._cluster = LocalCluster(
                n_workers=processors(), threads_per_worker=1, dashboard_address=":0"
            )
            client = Client(self._cluster)
        self._client = client

    @property
    def n_workers(self) -> int:  # type: ignore[override]
        """The number of threads of all workers that there are now, at least 1."""
        return max(1, sum(self._client.nthreads().values()))

    @property
    def memory(self) -> int | None:
        """Bytes for each thread of the worker with the least, where they are limited."""
        limits: list[int] = self._client.run_on_scheduler(_memory_limits)
        return min(limits, default=None)

    def place(self, recipes: Sequence[Recipe]) -> list[_Placed]:
        """Have the blocks loaded by the workers; does not wait for it."""
        return [_Placed(self._client, recipe) for recipe in recipes]

    def call(
        self, function: Callable[..., T], handles: Sequence[_Placed], *arguments: Any
    ) -> list[T]:
        """A task for each block, where the block is."""
        try:
            return self._called(function, handles, arguments)
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
        shared = [self._shared(argument) for argument in arguments]

        def submit(handle: _Placed) -> Future:
            return self._client.submit(
                _call, function, handle.future, *shared, key=f"boostmetric-{uuid4()}", pure=False
            )

        tasks = [submit(handle) for handle in handles]
        try:
            return list(self._client.gather(tasks))
        except KilledWorker:
            each = zip(tasks, handles, strict=True)
            return [self._result(task, handle, submit) for task, handle in each]

    @staticmethod
    def _result(task: Future, handle: _Placed, submit: Callable[[_Placed], Future]) -> Any:
        """What a task returns; where the scheduler has given it up, that of another one."""
        for _ in range(ATTEMPTS):
            try:
                return task.result()
            except KilledWorker:
                handle.place()
                task = submit(handle)
        raise EngineError(
            f"workers died {ATTEMPTS} times over one block: have they memory enough for it? More "
            "blocks (n_blocks) are smaller ones."
        )

    def _shared(self, argument: Any) -> Any:
        """A large array becomes the result of a task, so that it is sent once and not per block."""
        if not isinstance(argument, np.ndarray) or argument.nbytes < LARGE:
            return argument
        return self._client.submit(_same, argument, key=f"boostmetric-{uuid4()}", pure=False)

    def close(self) -> None:
        """End the cluster, if the engine has started it."""
        if self._cluster is not None:
            self._client.close()
            self._cluster.close()


def _memory_limits(dask_scheduler: Any) -> list[int]:
    workers = dask_scheduler.workers.values()
    return [each.memory_limit // each.nthreads for each in workers if each.memory_limit]


def _load(recipe: Recipe, *inputs: Any) -> Any:
    with single():
        return recipe.load(*inputs)


def _same(given: T) -> T:
    return given


def _call(function: Callable[..., T], block: Any, *arguments: Any) -> T:
    with single():
        return function(block, *arguments)
