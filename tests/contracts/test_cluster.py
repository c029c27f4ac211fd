"""The result of a fit on Dask depends neither on the number of workers nor on failures.

Workers are processes. Some are killed in the middle of a fit, at given queries, so that the tests
do not depend on the load of the machine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from drawn_problems import Reference, draw
from test_same_bits import digest_of, drawn

from boostmetric.engines import Dask
from boostmetric.learn import boost
from boostmetric.problem import Hinge

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

pytestmark = [
    pytest.mark.cluster,
    # On a busy machine workers that were killed take their time to start again.
    pytest.mark.filterwarnings("ignore:All Dask workers have left"),
]

FITS: dict[str, tuple[str, Any]] = {
    "one direction per step": ("exponential", {"solver": "stagewise", "directions_per_step": 1}),
    "batches": ("logistic", {"solver": "stagewise", "directions_per_step": 8}),
    "totally corrective": ("logistic", {"solver": "totally_corrective", "alpha": 0.01}),
}
SHORT = {"one direction per step": 8, "batches": 24, "totally corrective": 12}
"""Directions of the fits that are compared bit by bit."""

KILLED_BEFORE = (2, 9)
"""Numbers of the queries before which a worker is killed; another one takes seconds to start."""

N_PROBLEMS, N_PARTS = 204, 12
MAX_DIRECTIONS = 4
"""Of a random problem; a round takes some 20 ms."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL"
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(3)
        yield client


def killing(cluster: Any, client: Any) -> Callable[[], bool]:
    """Kills a worker before some of the queries of a fit; never asks the fit to stop."""
    number = 0

    def should_stop() -> bool:
        nonlocal number
        number += 1
        if number in KILLED_BEFORE:
            cluster.scale(3)  # a worker that is killed while it starts is not replaced otherwise
            client.wait_for_workers(2)
            workers = client.run(os.getpid, on_error="ignore")
            killed = sorted(workers)[number % len(workers)]
            os.kill(workers[killed], signal.SIGKILL)
        return False

    return should_stop


def fit_on(client: Any, name: str, dtype: str, lazy: bool, **more: Any) -> str:
    """The digest of a short fit."""
    X, comparisons = drawn(600, 24, 4_000)
    X = X.astype(dtype)
    read_only(X)
    points: Any = da.from_array(X, chunks=(150, 24)) if lazy else X
    loss, options = FITS[name]
    given: Any = {"max_iter": SHORT[name], **options, "engine": client, **more}
    return digest_of(boost(points, comparisons, loss, **given))


@pytest.fixture(scope="module")
def bits(cluster: Any, client: Any) -> dict[tuple[str, str, bool], dict[str, str]]:
    """Digests of all fits, by how they were run."""
    cases = [(name, dtype, False) for name in FITS for dtype in ("float32", "float64")]
    cases.append(("batches", "float32", True))
    found: dict[tuple[str, str, bool], dict[str, str]] = {}
    for case in cases:
        found[case] = {"three workers": fit_on(client, *case)}
        found[case]["killed"] = fit_on(client, *case, should_stop=killing(cluster, client))
    cluster.scale(1)
    while len(client.nthreads()) != 1:
        pass
    for case in cases:
        found[case]["one worker"] = fit_on(client, *case)
    cluster.scale(3)
    client.wait_for_workers(3)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FITS)
def test_workers_and_failures_do_not_change_a_bit(bits: Any, name: str, dtype: str) -> None:
    found = bits[name, dtype, False]
    assert len(found) == 3
    assert len(set(found.values())) == 1, found


def test_chunks_are_read_again_after_a_failure(bits: Any) -> None:
    found = bits["batches", "float32", True]
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("name", FITS)
def test_objective_after_60_directions_is_that_of_a_local_fit(client: Any, name: str) -> None:
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
            # 1) the objective is that of the metric, by another program, and never increases
            reference = Reference(problem, fit.alpha)
            rounding = reference.rounding(fit.metric, len(fit.history))
            objective = fit.history[-1].objective if fit.history else fit.first_value
            is_right = abs(reference.value(fit.metric) - objective) <= rounding
            values = [fit.first_value, *(step.objective for step in fit.history)]
            is_right &= bool(np.diff(values).max(initial=0.0) <= rounding)
            # 2) one direction at a time leads where it does in memory; in larger steps, rounding
            # may decide which comparisons of a loss with kinks are beyond them
            if (
                problem.options["directions_per_step"] == 1
                and problem.options["solver"] == "stagewise"
            ):
                scale = max(abs(local.objective()), 1e-3 * abs(local.first_value))
                is_right &= abs(objective - local.objective()) <= 1e-6 * scale
            if not is_right:
                failed.append((seed, objective, local.objective(), problem.kinds))
    assert not failed, "\n".join(map(str, failed))
