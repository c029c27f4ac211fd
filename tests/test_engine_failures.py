"""Workers that are killed, that come and go, and a scheduler that is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits

from boostmetric import BoostMetric
from boostmetric.engines.engine import EngineError
from boostmetric.monitor import listening

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


def test_workers_may_come_and_go(digits: tuple[NDArray, NDArray], undisturbed: NDArray) -> None:
    def change(progress: Any) -> bool:
        if progress.n_directions == 3:
            cluster.scale(3)
        if progress.n_directions == 6:
            cluster.scale(1)
        return False

    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
        listening(change),
    ):
        learner = on(client).fit(*digits)
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
