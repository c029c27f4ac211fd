"""Workers that are killed at random all through a fit, which must come to the same bits.

    OPENBLAS_NUM_THREADS=1 python benchmarks/faults.py [--kills 50] [--seed 0] [--write]

Points and triplets are in files, and blocks of them on two workers, which Dask starts again when
they die. The fit is done twice. In the second a thread kills one of the workers with SIGKILL, at
moments that are drawn: so often that the first fit would just have lasted for all of them, and one
in four soon after the one before, while blocks are loaded again. The status is 1 where directions,
coefficients or objectives differ in a single bit.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import dask
import numpy as np
import report
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin
from numpy.typing import NDArray

from boostmetric import BoostMetric

TITLE = "Workers killed during a fit"

N_POINTS, N_FEATURES, N_TRIPLETS, N_ITER, N_BLOCKS = 20_000, 100, 200_000, 300, 4

SOON, OFTEN = 0.3, 0.25
"""Mean seconds from a kill to one that comes soon after it, and the share of these."""


def write_data(folder: Path) -> tuple[Path, Path]:
    """The files of points and triplets, of which a tenth contradict a hidden metric."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_POINTS, N_FEATURES))
    triplets = np.array([rng.choice(N_POINTS, 3, replace=False) for _ in range(N_TRIPLETS)])
    a, b, c = (X * np.linspace(0, 1, N_FEATURES) ** 2)[triplets.T]
    swapped = (((a - b) ** 2).sum(axis=1) > ((a - c) ** 2).sum(axis=1)) ^ (
        rng.random(N_TRIPLETS) < 0.1
    )
    triplets[swapped, 1:] = triplets[swapped, :0:-1]
    np.save(folder / "points.npy", X)
    np.save(folder / "triplets.npy", triplets)
    return folder / "points.npy", folder / "triplets.npy"


class Loads(SchedulerPlugin):
    """Which blocks are being loaded, and how many were."""

    def __init__(self) -> None:
        self.under_way: set[str] = set()
        self.done = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task goes from one state to another."""
        if str(key).startswith("boostmetric-block-"):
            self.done += (start, finish) == ("processing", "memory")
            (self.under_way.add if finish == "processing" else self.under_way.discard)(key)


class Killer(Thread):
    """Kills workers of a cluster that are up, one at a time.

    Parameters
    ----------
    cluster : on this machine, of processes
    loads : those of its scheduler
    n_kills : how many to kill
    gap : seconds from one kill to the next, in the mean
    seed : of the moments, and of who is next
    """

    def __init__(
        self, cluster: LocalCluster, loads: Loads, n_kills: int, gap: float, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self._cluster, self._loads = cluster, loads
        self._n_kills, self._rng = n_kills, np.random.default_rng(seed)
        self._gap = (gap - OFTEN * SOON) / (1 - OFTEN)
        self._over = Event()
        self.killed: list[int] = []
        self.n_in_loads = 0

    def run(self) -> None:
        """Kill, until it is enough or the fit is over."""
        rng = self._rng
        for _ in range(self._n_kills):
            mean = SOON if rng.random() < OFTEN else self._gap
            if self._over.wait(rng.exponential(mean)):
                return
            while not (pids := self._up()):
                if self._over.wait(0.01):
                    return
            pid = int(rng.choice(pids))
            self.n_in_loads += bool(self._loads.under_way)
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)

    def end(self) -> None:
        """Kill no more."""
        self._over.set()
        self.join()

    def _up(self) -> list[int]:
        """Workers that have started: Dask gives up those that die before."""
        nannies = [each for each in self._cluster.workers.values() if each.status.name == "running"]
        return [each.pid for each in nannies if each.pid and each.pid not in self.killed]


@dataclass(frozen=True)
class Run:
    """A fit, how long it took, and what was done to it."""

    learner: BoostMetric
    seconds: float
    n_kills: int
    n_in_loads: int
    n_loads: int

    @property
    def bits(self) -> tuple[bytes, ...]:
        """What two fits have in common that are the same."""
        arrays: list[NDArray] = [
            self.learner.metric_.directions,
            self.learner.metric_.coefs,
            self.learner.history_["objective"],
        ]
        return tuple(array.tobytes() for array in arrays)

    def line(self, name: str) -> str:
        """Of the table."""
        return (
            f"| {name} | {self.n_kills} | {self.n_in_loads} | {self.n_loads} | "
            f"{self.learner.n_iter_} | {self.seconds:.1f} |"
        )


def fit(points: Path, triplets: Path, n_kills: int, gap: float, seed: int) -> Run:
    """One fit on a cluster of its own, of whose workers so many are killed."""
    loads = Loads()
    with (
        # Else LocalCluster gives up a worker that is down whenever 15 s have passed since a kill.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.scheduler.add_plugin(loads)
        learner = BoostMetric("logistic", max_iter=N_ITER, engine=client, n_blocks=N_BLOCKS)
        killer = Killer(cluster, loads, n_kills, gap, seed)
        began = time.perf_counter()
        killer.start()
        try:
            learner.fit(points, comparisons=triplets)
        finally:
            killer.end()
        seconds = time.perf_counter() - began
    return Run(learner, seconds, len(killer.killed), killer.n_in_loads, loads.done)


def main() -> None:
    """Fit twice, print the table, and say by the status whether both are the same."""
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--kills", type=int, default=50, help="workers to kill; 50 by default")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--write", action="store_true", help=f"into {report.RESULTS.name}")
    given = parser.parse_args()
    if given.kills < 1:
        parser.error(f"--kills {given.kills}: at least 1 is needed")
    with TemporaryDirectory() as folder:
        data = write_data(Path(folder))
        calm = fit(*data, n_kills=0, gap=1.0, seed=given.seed)
        gap = calm.seconds / given.kills
        struck = fit(*data, n_kills=given.kills, gap=gap, seed=given.seed)
    same = calm.bits == struck.bits
    lost = (struck.seconds - calm.seconds) / max(1, struck.n_kills)
    text = "\n".join(
        [
            f"{N_POINTS:,} × {N_FEATURES}, {N_TRIPLETS:,} triplets in {N_BLOCKS} blocks, two "
            f"workers, logistic loss; a kill every {gap:.1f} s in the mean.",
            "",
            "| fit | kills | of these while blocks were loaded | blocks loaded | iterations | "
            "seconds |",
            "|---|---|---|---|---|---|",
            calm.line("undisturbed"),
            struck.line("disturbed"),
            "",
            f"Identical, to the bit: {'yes' if same else 'no'}. Seconds lost a kill: {lost:.1f}.",
        ]
    )
    print(text)
    if given.write:
        options = "" if given.kills == 50 else f" --kills {given.kills}"
        report.write_section(TITLE, f"faults.py{options}", text)
    sys.exit(not same or struck.n_kills < given.kills)


if __name__ == "__main__":
    main()
