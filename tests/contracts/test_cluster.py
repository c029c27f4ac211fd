"""The result of a fit on Dask depends neither on the number of workers nor on failures.

Workers are processes. Some are killed before given queries of a fit, so the tests do not depend on
the load of the machine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from drawn_problems import draw
from test_same_bits import digest_of, drawn

from boostmetric.engines import Dask
from boostmetric.learn import boost
from boostmetric.problem import Hinge

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

pytestmark = [
    pytest.mark.cluster,
    # On a busy machine, killed workers take long to restart.
    pytest.mark.filterwarnings("ignore:All Dask workers have left"),
]

FITS: dict[str, tuple[str, Any]] = {
    "one direction per step": ("exponential", {"solver": "stagewise", "directions_per_step": 1}),
    "batches": ("logistic", {"solver": "stagewise", "directions_per_step": 8}),
    "totally corrective": ("logistic", {"solver": "totally_corrective", "alpha": 0.01}),
}
SHORT = {"one direction per step": 8, "batches": 24, "totally corrective": 12}
"""Number of directions of the fits that are compared bit by bit."""

KILLED_BEFORE = (2, 9)
"""Queries before which a worker is killed; its replacement takes seconds to start."""

N_PROBLEMS, N_PARTS = 204, 12
MAX_DIRECTIONS = 4
"""Of a random problem; a round takes about 20 ms."""


@contextmanager
def started(n_workers: int) -> Iterator[Any]:
    """A client of a new cluster."""
    with (
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(n_workers)
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with started(3) as client:
        yield client


def killing(client: Any) -> Callable[[], bool]:
    """A `should_stop` that kills a worker before some queries and never stops the fit."""
    number = 0

    def should_stop() -> bool:
        nonlocal number
        number += 1
        if number in KILLED_BEFORE:
            client.cluster.scale(3)  # otherwise a worker killed during its start is not replaced
            client.wait_for_workers(2)
            workers = client.run(os.getpid, on_error="ignore")
            killed = sorted(workers)[number % len(workers)]
            os.kill(workers[killed], signal.SIGKILL)
        return False

    return should_stop


def fit_on(client: Any, name: str, dtype: str, lazy: bool, **more: Any) -> str:
    X, comparisons = drawn(600, 24, 4_000)
    X = X.astype(dtype)
    read_only(X)
    points: Any = da.from_array(X, chunks=(150, 24)) if lazy else X
    loss, options = FITS[name]
    given: Any = {"max_iter": SHORT[name], **options, "engine": client, **more}
    return digest_of(boost(points, comparisons, loss, **given))


@pytest.fixture(scope="module")
def single_worker() -> Iterator[Any]:
    with started(1) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "dtype", "lazy"),
    [
        *((name, dtype, False) for name in FITS for dtype in ("float32", "float64")),
        ("batches", "float32", True),  # chunks are read again after a failure
    ],
)
def test_workers_and_failures_do_not_change_bits(
    client: Any, single_worker: Any, name: str, dtype: str, lazy: bool
) -> None:
    digests = {
        "three workers": fit_on(client, name, dtype, lazy),
        "killed": fit_on(client, name, dtype, lazy, should_stop=killing(client)),
        "one worker": fit_on(single_worker, name, dtype, lazy),
    }
    assert len(set(digests.values())) == 1, digests


@pytest.mark.parametrize("name", FITS)
def test_objective_matches_local_fit(client: Any, name: str) -> None:
    X, comparisons = drawn(300, 30, 3_000)
    loss, options = FITS[name]
    given: Any = {**options, "max_iter": 60}
    fit = boost(X, comparisons, loss, engine=client, **given)
    local = boost(X, comparisons, loss, **given)
    assert fit.n_tried == local.n_tried
    np.testing.assert_allclose(fit.objective(), local.objective(), rtol=1e-6)


@pytest.mark.parametrize("part", range(N_PARTS))
def test_random_problems(part: int) -> None:
    failed = []
    with Dask() as engine:
        for seed in range(part, N_PROBLEMS, N_PARTS):
            problem = draw(seed)
            problem = replace(problem, X=problem.X.astype(np.float64))
            options: Any = {
                "max_iter": min(problem.options["max_iter"], MAX_DIRECTIONS),
                "tol": 0.0,
            }
            if isinstance(problem.loss, Hinge):
                with pytest.raises(ValueError, match="does not work on Dask"):
                    problem.fit(engine=engine)
                continue
            try:
                local = problem.fit(**options)
            except ValueError as error:  # data that are documented as invalid
                with pytest.raises(ValueError, match=str(error)[:20]):
                    problem.fit(engine=engine, **options)
                continue
            fit = problem.fit(engine=engine, **options)
            # 1) the objective matches its definition and never increases
            reference = problem.reference(fit.alpha)
            rounding = reference.rounding(fit.metric, len(fit.history))
            objective = fit.history[-1].objective if fit.history else fit.first_value
            is_right = abs(reference.value(fit.metric) - objective) <= rounding
            values = [fit.first_value, *(step.objective for step in fit.history)]
            is_right &= bool(np.diff(values).max(initial=0.0) <= rounding)
            # 2) with one direction per step, the result matches a local fit; with larger steps,
            # rounding may decide on which side of a kink of the loss a comparison is
            if (
                problem.options["directions_per_step"] == 1
                and problem.options["solver"] == "stagewise"
            ):
                scale = max(abs(local.objective()), 1e-3 * abs(local.first_value))
                is_right &= abs(objective - local.objective()) <= 1e-6 * scale
            if not is_right:
                failed.append((seed, objective, local.objective(), problem.kinds))
    assert not failed, "\n".join(map(str, failed))
