"""A cluster that was started from the command line, and what may be killed of it: all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from boostmetric import BoostMetric
from boostmetric.engines.engine import EngineError

pytest.importorskip("distributed", reason="Dask is not installed")

N_POINTS, N_TRIPLETS = 400, 600
SETTINGS: dict[str, Any] = {"loss": "exponential", "max_iter": 15, "n_blocks": 4}
PATIENCE = 180.0
"""Seconds after which a process hangs, on a machine that has much else to do."""
SETTLED = 2.0
"""Seconds after which a worker has surely started."""

CLIENT = """
import json, math, sys

import numpy as np
from distributed import Client

from boostmetric import BoostMetric, checkpoint
from boostmetric.monitor import listening

checkpoint.EVERY, checkpoint.SHARE = 0.0, math.inf  # one after every iteration


def report(progress):
    print(progress.n_directions, flush=True)
    sys.stdin.readline()
    return False


scheduler_file, settings, data, result = map(json.loads, sys.argv[1:])
learner = BoostMetric(engine=Client(scheduler_file=scheduler_file), **settings)
with listening(report):
    learner.fit(**data)
np.savez(
    result,
    directions=learner.metric_.directions,
    coefs=learner.metric_.coefs,
    objective=learner.history_["objective"],
)
"""
"""Fits as a user does; after every iteration it says so, and waits for a line to go on."""

PRELOAD = """
import os, time
from pathlib import Path

from boostmetric.engines.recipes import FromSource

FOLDER, load = Path.cwd(), FromSource.load


def loaded(recipe, *points):
    (FOLDER / f"loading-{os.getpid()}").touch()
    while (FOLDER / "gate").exists():
        time.sleep(0.01)
    return load(recipe, *points)


def dask_setup(worker):
    FromSource.load = loaded
    (FOLDER / f"worker-{os.getpid()}").touch()
"""
"""What workers do beside their work: say who they are, and load no block while there is a gate."""


class Cluster:
    """A scheduler and workers, which their nannies start again; in a folder of its own."""

    def __init__(self, folder: Path, n_workers: int) -> None:
        self.folder, self.scheduler_file = folder, folder / "scheduler.json"
        (folder / "preload.py").write_text(PRELOAD)
        self._killed: set[int] = set()
        where = ["--scheduler-file", str(self.scheduler_file), "--no-dashboard"]
        # Timeouts only for what is left behind where this process itself is killed.
        self.scheduler = self._start("scheduler", *where, "--port", "0", "--idle-timeout", "600")
        self._processes = [self.scheduler]
        limits = ["--nthreads", "1", "--memory-limit", "1GB", "--death-timeout", "60"]
        own = ["--preload", "preload.py", "--local-directory", str(folder)]
        for _ in range(n_workers):
            self._processes.append(self._start("worker", *where, *limits, *own))

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1"],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def close(self) -> None:
        """Kill all processes, and those that they have started."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def kill_worker(self, named: str, rng: np.random.Generator) -> None:
        """Kill one of the workers of which there is a file of that name, once there is one."""
        wait_until(lambda: self.pids(named) != [])
        pid = int(rng.choice(self.pids(named)))
        os.kill(pid, signal.SIGKILL)
        self._killed.add(pid)

    def pids(self, named: str) -> list[int]:
        """Of workers that have started long ago: nannies give up those that die before."""
        long_ago = time.time() - SETTLED
        started = [path for path in self.folder.glob("worker-*") if path.stat().st_mtime < long_ago]
        pids = {int(path.name.removeprefix("worker-")) for path in started} - self._killed
        return sorted(pid for pid in pids if (self.folder / f"{named}-{pid}").exists())


class Fit:
    """A fit in a process of its own, which goes on to the next iteration when it may."""

    def __init__(self, cluster: Cluster, folder: Path, data: dict[str, str], **more: Any) -> None:
        self._result = folder / "result.npz"
        arguments = (str(cluster.scheduler_file), {**SETTINGS, **more}, data, str(self._result))
        self._log = folder / "client.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", CLIENT, *map(json.dumps, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._watch = Timer(PATIENCE, self._process.kill)
        self._watch.start()

    def close(self) -> None:
        """Kill it, if it has not ended."""
        self._watch.cancel()
        self.kill()
        self._process.communicate()

    def kill(self) -> None:
        self._process.kill()

    def next_iteration(self) -> int:
        """The number of the one that it has done now."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the client has ended: {self._log.read_text()}"
        return int(line)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def go_on_after(self, number: int) -> None:
        """Go on with the iteration after this one."""
        while self.next_iteration() < number:
            self.go_on()
        self.go_on()

    def end(self) -> dict[str, NDArray]:
        """What it has learned, once it has gone on without a stop."""
        self._process.communicate()
        assert self._process.returncode == 0, self._log.read_text()
        with np.load(self._result) as result:
            return dict(result)

    def error(self) -> str:
        """The message with which it has failed; what Dask has to say of its own is passed over."""
        self._process.communicate()
        assert self._process.returncode == 1, self._log.read_text()
        name = f"{EngineError.__module__}.EngineError: "
        lines = self._log.read_text().splitlines()
        return [line.removeprefix(name) for line in lines if line.startswith(name)][-1]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"in {PATIENCE} s it has not come to that"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with closing(Cluster(tmp_path_factory.mktemp("cluster"), 2)) as cluster:
        yield cluster


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Fit]]:
    """Begins fits, and kills those that have not ended with the test."""
    with ExitStack() as stack:

        def begin(cluster: Cluster, data: dict[str, str], **settings: Any) -> Fit:
            return stack.enter_context(closing(Fit(cluster, tmp_path, data, **settings)))

        yield begin


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Points and triplets, as a fit is given them."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    np.save(folder / "points.npy", load_digits().data[:N_POINTS])
    triplets = [rng.choice(N_POINTS, 3, replace=False) for _ in range(N_TRIPLETS)]
    np.save(folder / "triplets.npy", triplets)
    return {"X": str(folder / "points.npy"), "comparisons": str(folder / "triplets.npy")}


@pytest.fixture(scope="module")
def undisturbed(files: dict[str, str]) -> dict[str, NDArray]:
    return learned_here(files)


def learned_here(data: dict[str, str]) -> dict[str, NDArray]:
    """What is learned in this thread, from the same blocks."""
    learner = BoostMetric(engine="serial", **SETTINGS).fit(**data)
    return {
        "directions": learner.metric_.directions,
        "coefs": learner.metric_.coefs,
        "objective": learner.history_["objective"],
    }


def assert_same_bits(one: dict[str, NDArray], other: dict[str, NDArray]) -> None:
    assert len(one["objective"]) == SETTINGS["max_iter"]
    for name in one.keys() | other.keys():
        np.testing.assert_array_equal(one[name], other[name])


def test_labelled_points_in_parquet_files(
    cluster: Cluster, begin: Callable[..., Fit], tmp_path: Path
) -> None:
    X, y = load_digits(return_X_y=True)
    table = pd.DataFrame(X, columns=[f"pixel {k}" for k in range(X.shape[1])]).assign(digit=y)
    for number, rows in enumerate(np.array_split(np.arange(N_POINTS), 3)):
        table.iloc[rows].to_parquet(tmp_path / f"{number}.parquet", index=False)
    data = {"X": str(tmp_path), "y": "digit"}
    assert_same_bits(begin(cluster, data).end(), learned_here(data))


def test_points_and_triplets_in_files(
    cluster: Cluster,
    begin: Callable[..., Fit],
    files: dict[str, str],
    undisturbed: dict[str, NDArray],
) -> None:
    assert_same_bits(begin(cluster, files).end(), undisturbed)


def test_a_client_that_was_killed_goes_on(
    cluster: Cluster,
    begin: Callable[..., Fit],
    files: dict[str, str],
    undisturbed: dict[str, NDArray],
    tmp_path: Path,
) -> None:
    checkpoint = str(tmp_path / "fit.ckpt")
    fit = begin(cluster, files, checkpoint=checkpoint)
    fit.go_on_after(6)
    time.sleep(np.random.default_rng(0).uniform(0, 0.05))
    fit.kill()
    again = begin(cluster, files, checkpoint=checkpoint)
    # Killed before or after the sixth was written; what the seventh comes to waits to be asked for.
    assert again.next_iteration() in (6, 7)
    assert_same_bits(again.end(), undisturbed)


def test_a_scheduler_that_was_killed_is_said_and_another_takes_over(
    cluster: Cluster,
    begin: Callable[..., Fit],
    files: dict[str, str],
    undisturbed: dict[str, NDArray],
    tmp_path: Path,
) -> None:
    checkpoint = str(tmp_path / "fit.ckpt")
    with closing(Cluster(tmp_path, 1)) as lost:
        fit = begin(lost, files, checkpoint=checkpoint)
        fit.go_on_after(6)
        time.sleep(np.random.default_rng(0).uniform(0, 0.05))
        lost.scheduler.kill()
        assert fit.error() == (
            "the connection to the scheduler of Dask is lost, and with it the blocks of its "
            "workers. Start a scheduler and workers, and fit again. The fit goes on from "
            f"{checkpoint}."
        )
    again = begin(cluster, files, checkpoint=checkpoint)
    assert again.next_iteration() in (7, 8)
    assert_same_bits(again.end(), undisturbed)


def test_a_worker_is_killed_while_it_loads(
    cluster: Cluster,
    begin: Callable[..., Fit],
    files: dict[str, str],
    undisturbed: dict[str, NDArray],
) -> None:
    for old in cluster.folder.glob("loading-*"):
        old.unlink()
    gate = cluster.folder / "gate"
    gate.touch()
    try:
        fit = begin(cluster, files)
        cluster.kill_worker("loading", np.random.default_rng(0))
    finally:
        gate.unlink()
    assert_same_bits(fit.end(), undisturbed)


def test_workers_are_killed_in_the_middle_of_rounds(
    cluster: Cluster,
    begin: Callable[..., Fit],
    files: dict[str, str],
    undisturbed: dict[str, NDArray],
) -> None:
    rng = np.random.default_rng(0)
    fit = begin(cluster, files)
    for number in (3, 9):
        wait_until(lambda: len(cluster.pids("worker")) == 2)
        fit.go_on_after(number)
        time.sleep(rng.uniform(0, 0.05))
        cluster.kill_worker("worker", rng)
    assert_same_bits(fit.end(), undisturbed)
