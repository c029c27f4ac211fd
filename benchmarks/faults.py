"""Kill Dask workers and the fitting process, and compare the results bit by bit.

    python benchmarks/faults.py [--write]

Workers are killed at random times during fits, `N_WORKER_KILLS` times. A process that fits with a
checkpoint is killed at random times, `N_CLIENT_KILLS` times, and resumed.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray

TITLE = "Failures on Dask"
N_WORKER_KILLS, N_CLIENT_KILLS = 50, 20
SECONDS_BETWEEN_KILLS = 1.0, 4.0
"""A worker takes at least two seconds to start, so at times there is no worker."""

FITS: dict[str, dict[str, Any]] = {
    "one direction per step": {"directions_per_step": 1, "max_iter": 30},
    "batches": {"directions_per_step": 8, "max_iter": 96},
    "totally corrective": {"solver": "totally_corrective", "alpha": 0.01, "max_iter": 24},
}


def make_data() -> tuple[NDArray, NDArray]:
    X = np.random.default_rng(0).normal(size=(3_000, 32))
    return X, np.digitize(X[:, :3].sum(axis=1), [-1, 0, 1])


def fit(name: str, engine: Any, checkpoint: str | None = None) -> bytes:
    from boostmetric import BoostMetric

    learner = BoostMetric(**FITS[name], engine=engine, checkpoint=checkpoint, verify=False)
    return learner.fit(*make_data()).components_.tobytes()


class Workers:
    """Three worker processes; killed ones are replaced."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._processes = [self._start() for _ in range(3)]
        self.n_kills = 0

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self._address]
        command += ["--nthreads", "1", "--no-nanny", "--no-dashboard"]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill_until(self, is_over: threading.Event) -> None:
        """Kill workers at random times until the fit is over."""
        while not is_over.wait(random.uniform(*SECONDS_BETWEEN_KILLS)):
            number = random.randrange(len(self._processes))
            self._processes[number].kill()
            self._processes[number].wait()
            self._processes[number] = self._start()
            self.n_kills += 1

    def close(self) -> None:
        """End all workers."""
        for process in self._processes:
            process.kill()
            process.wait()


def measure_workers(client: Any, workers: Workers, expected: dict[str, bytes]) -> str:
    n_fits = n_same = 0
    while workers.n_kills < N_WORKER_KILLS:
        name = list(FITS)[n_fits % len(FITS)]
        is_over = threading.Event()
        killer = threading.Thread(target=workers.kill_until, args=(is_over,))
        killer.start()
        try:
            n_same += fit(name, client) == expected[name]
        finally:
            is_over.set()
            killer.join()
        n_fits += 1
    return f"| {workers.n_kills} workers killed | {n_fits} fits | {n_same} identical |"


def measure_clients(address: str, expected: dict[str, bytes], folder: Path) -> str:
    n_kills = n_fits = n_same = 0
    while n_kills < N_CLIENT_KILLS:
        name = list(FITS)[n_fits % len(FITS)]
        path, result = folder / f"{n_fits}.checkpoint", folder / f"{n_fits}.result"
        command = [sys.executable, __file__, name, address, str(path), str(result)]
        while not result.exists():
            process = subprocess.Popen(command)
            try:
                process.wait(random.uniform(4, 14))
            except subprocess.TimeoutExpired:
                if n_kills < N_CLIENT_KILLS:
                    process.kill()
                    n_kills += 1
                process.wait()
        n_same += result.read_bytes() == expected[name]
        n_fits += 1
    return f"| {n_kills} clients killed | {n_fits} fits | {n_same} identical |"


def measure() -> str:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=0, dashboard_address=":0", silence_logs="CRITICAL") as cluster,
        Client(cluster) as client,
        closing(Workers(cluster.scheduler_address)) as workers,
        tempfile.TemporaryDirectory() as folder,
    ):
        expected = {name: fit(name, client) for name in FITS}
        lines = ["| | | |", "|---|---|---|", measure_workers(client, workers, expected)]
        lines.append(measure_clients(cluster.scheduler_address, expected, Path(folder)))
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) == 5:  # the process to be killed
        name, address, path, result = sys.argv[1:]
        learned = fit(name, address, path)
        Path(result).write_bytes(learned)
    else:
        report.main(TITLE, "faults.py", measure)
