"""Workers that are killed, that come and go, and a scheduler that is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits

from boostmetric import BoostMetric
from boostmetric.engines.choice import engine_of
from boostmetric.engines.engine import EngineError
from boostmetric.monitor import listening

dask = pytest.importorskip("dask", reason="Dask is not installed")
distributed = pytest.importorskip("distributed", reason="Dask is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

LEARNER = BoostMetric("exponential", max_iter=12, engine="serial", n_blocks=4)


@pytest.fixture(scope="module")
def digits() -> tuple[NDArray, NDArray]:
    X, y = load_digits(return_X_y=True)
    return X[:400], y[:400]


@pytest.fixture(scope="module")
def undisturbed(digits: tuple[NDArray, NDArray]) -> NDArray:
    return clone(LEARNER).fit(*digits).components_


def on(client: Any, **options: Any) -> BoostMetric:
    return BoostMetric(**{**LEARNER.get_params(), "engine": client, **options})


@pytest.fixture
def in_process() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_killed_workers_change_nothing(
    digits: tuple[NDArray, NDArray], undisturbed: NDArray
) -> None:
    killed: list[int] = []

    def kill(progress: Any) -> bool:
        if progress.n_directions in (2, 7):
            pids = list(client.run(os.getpid).values())
            os.kill(pids[-1], signal.SIGKILL)
            killed.append(pids[-1])
        return False

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
        listening(kill),
    ):
        learner = on(client).fit(*digits)
    assert len(set(killed)) == 2
    np.testing.assert_array_equal(learner.components_, undisturbed)


def test_workers_may_come_and_go(
    digits: tuple[NDArray, NDArray], undisturbed: NDArray, in_process: Any
) -> None:
    def change(progress: Any) -> bool:
        if progress.n_directions == 3:
            in_process.cluster.scale(3)
        if progress.n_directions == 6:
            in_process.cluster.scale(1)
        return False

    with listening(change):
        learner = on(in_process).fit(*digits)
    np.testing.assert_array_equal(learner.components_, undisturbed)


def test_a_lost_scheduler_is_said_with_the_checkpoint(
    digits: tuple[NDArray, NDArray],
    undisturbed: NDArray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("boostmetric.checkpoint.EVERY", 0.0)
    path = tmp_path / "fit.ckpt"

    def lose(progress: Any) -> bool:
        if progress.n_directions == 5:
            cluster.close()
        return False

    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
    )
    client = distributed.Client(cluster)
    try:
        with listening(lose), pytest.raises(EngineError) as caught:
            on(client, checkpoint=path).fit(*digits)
    finally:
        client.close(timeout=1)
    assert "the connection to the scheduler of Dask is lost" in str(caught.value)
    assert str(caught.value).endswith(f"The fit goes on from {path}.")
    again = clone(LEARNER).set_params(checkpoint=path).fit(*digits)
    np.testing.assert_array_equal(again.components_, undisturbed)
    assert again.n_iter_ == 12


def test_a_worker_that_comes_is_given_its_share(
    digits: tuple[NDArray, NDArray],
    undisturbed: NDArray,
    in_process: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("boostmetric.engines.dask_engine.BALANCE", 0.0)
    blocks: list[list[int]] = []

    def change(progress: Any) -> bool:
        if progress.n_directions == 3:
            in_process.cluster.scale(2)
            in_process.wait_for_workers(2)
        held = in_process.has_what().values()
        blocks.append(sorted(sum("boostmetric-block" in key for key in keys) for keys in held))
        return False

    with listening(change):
        learner = on(in_process).fit(*digits)
    np.testing.assert_array_equal(learner.components_, undisturbed)
    assert blocks[0] == [4]
    # The first has given up some of its own; what else it has a copy of is up to the scheduler.
    assert len(blocks[-1]) == 2
    assert max(blocks[-1]) < 4


def test_an_address_will_do(
    digits: tuple[NDArray, NDArray], undisturbed: NDArray, in_process: Any
) -> None:
    learner = on(in_process.scheduler_info()["address"]).fit(*digits)
    np.testing.assert_array_equal(learner.components_, undisturbed)
    assert in_process.status == "running"


def test_an_address_where_nobody_is(digits: tuple[NDArray, NDArray]) -> None:
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "100ms"}),
        pytest.raises(EngineError, match=r"there is no scheduler of Dask at 'tcp://127.0.0.1:9'"),
    ):
        on("tcp://127.0.0.1:9").fit(*digits)
    with pytest.raises(EngineError, match=r"there is no scheduler of Dask at 'tpc://127.0.0.1:9'"):
        on("tpc://127.0.0.1:9").fit(*digits)
    assert dask.config.get("scheduler", None) is None


def test_workers_of_another_version_are_refused(
    digits: tuple[NDArray, NDArray], in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boostmetric.engines.dask_engine.__version__", "99")
    with pytest.raises(
        EngineError, match=r"of Dask has not boostmetric 99 .it has .*: install the"
    ):
        on(in_process).fit(*digits)


def test_a_fit_without_workers_says_that_it_waits(
    digits: tuple[NDArray, NDArray],
    undisturbed: NDArray,
    in_process: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("boostmetric.engines.dask_engine.PATIENCE", 0.1)
    in_process.cluster.scale(0)
    while in_process.nthreads():
        time.sleep(0.05)
    Timer(1.0, in_process.cluster.scale, [1]).start()
    with pytest.warns(UserWarning, match="there is no worker of Dask: the fit waits"):
        learner = on(in_process).fit(*digits)
    np.testing.assert_array_equal(learner.components_, undisturbed)


def die_once(given: Any, marker: Path) -> Any:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return given


class Sum:
    """A recipe of an array that Dask computes, on a worker that dies of it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def lazy(self) -> Any:
        import dask.array as da

        return da.ones((4, 2), chunks=(2, 2)).map_blocks(
            die_once, self.marker, meta=np.empty((0, 0))
        )

    def load(self, points: NDArray | None = None) -> float:
        assert points is not None
        return float(points.sum())


def plus(block: float, array: NDArray) -> float:
    return block + array[0]


def dying(marker: Path) -> Any:
    def same(given: Any) -> Any:
        return die_once(given, marker)

    return same


@pytest.mark.parametrize("what", ["input", "shared"])
def test_what_was_given_up_is_done_anew(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ("input" if what == "shared" else "shared")).touch()
    monkeypatch.setattr("boostmetric.engines.dask_engine._same", dying(tmp_path / "shared"))
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
        engine_of(client) as engine,
    ):
        handles = engine.place([Sum(tmp_path / "input"), Sum(tmp_path / "input")])
        assert engine.call(plus, handles, np.ones(1 << 18)) == [9.0, 9.0]
