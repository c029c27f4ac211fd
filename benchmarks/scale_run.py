"""One fit on an engine, in a process of its own; what it took goes to stdout, as JSON.

    python benchmarks/scale_run.py '{"engine": "threads", "points": …, "triplets": …}'

Keys: `engine`, `n_blocks`, `points` and `triplets` (paths), `n_iter`; `matrix_free` true for the
path of many features whatever their number; `memory_limit` of a worker of Dask. Memory is that of
the process and its children, each at its peak, as Linux counts it. The read of X is `X @ v` with
one thread, in memory, timed in the same process before the fit.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]

from boostmetric import laplacian
from boostmetric.engines import boosting, fitting
from boostmetric.engines.choice import engine_of
from boostmetric.engines.engine import Engine, single
from boostmetric.engines.sources import ComparisonSource, as_source
from boostmetric.losses import Exponential

WORKERS = 2


def main() -> None:
    """Measure, and print."""
    asked = json.loads(sys.argv[1])
    read = seconds_of_a_read(asked["points"])
    forget_peak()
    print(json.dumps(asked | measure(**asked) | {"read": read}))


def seconds_of_a_read(path: str) -> float:
    """The least seconds of `X @ v`."""
    X = np.load(path)
    v = np.ones(X.shape[1], dtype=X.dtype)
    with single():
        return min(seconds(lambda: X @ v) for _ in range(20))


def measure(
    engine: str,
    points: str,
    triplets: str,
    n_iter: int = 20,
    n_blocks: int | None = None,
    matrix_free: bool = False,
    memory_limit: str = "auto",
) -> dict[str, Any]:
    """Seconds of an iteration and of what it is made of."""
    if matrix_free:
        for module in (boosting, laplacian):
            setattr(module, "OPERATOR_ABOVE", 0)  # noqa: B010
    X = as_source(points)
    comparisons = ComparisonSource.of(triplets, X.shape[0])
    marks: list[tuple[float, int]] = []

    def callback(fit: Any) -> bool:
        marks.append((time.perf_counter(), fit.rounds.n_rounds))
        return False

    with started(engine, memory_limit) as workers:
        began = time.perf_counter()
        fit = fitting.boost_in_blocks(
            X,
            comparisons,
            Exponential(),
            engine=workers,
            n_blocks=n_blocks,
            alpha=1e-7,
            max_iter=n_iter,
            callback=callback,
        )
        handles = fit.rounds._handles
        memory = peak_memory()
        empty = [seconds(lambda: workers.call(nothing, handles)) for _ in range(20)]
    times, rounds = np.array(marks).T
    each = np.diff(times)
    return {
        "m": len(comparisons),
        "n": X.shape[0],
        "D": X.shape[1],
        "n_blocks": fit.rounds.n_blocks,
        "n_directions": len(marks),
        "seconds": float(np.median(each)),
        "quartiles": np.quantile(each, [0.25, 0.75]).tolist(),
        "rounds": float(np.diff(rounds).mean()),
        "candidates": float(np.mean([done.n_evaluations for done in fit.history])),
        "until_first": float(times[0] - began),
        "empty_round": float(np.median(empty)),
        "objective": fit.objective(),
        "mb": memory / 1e6,
    }


@contextmanager
def started(engine: str, memory_limit: str) -> Iterator[Engine]:
    """An engine of two workers, or of one if it is serial."""
    if engine != "dask":
        with engine_of(engine) as workers:
            yield workers
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            memory_limit=memory_limit,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
        engine_of(client) as workers,
    ):
        yield workers


def nothing(block: object) -> None:
    """What a round costs that has nothing to do."""


def seconds(action: Any) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def peak_memory() -> int:
    """Bytes that this process and its children have had at their peaks, which need not coincide."""
    me = psutil.Process()
    return sum(_high_water(process.pid) for process in (me, *me.children(recursive=True)))


def _high_water(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) * 1024


def forget_peak() -> None:
    """Let the peak of this process be what it has now."""
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    main()
