"""Losses that return NaN, and requests to stop: messages and the state of the fit."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, margins_of
from failing import Failing, calls_of
from numpy.typing import NDArray

from boostmetric import (
    LOSSES,
    Boosting,
    Comparisons,
    Logistic,
    Loss,
    NotANumberError,
    Status,
    boost,
)

Labelled = tuple[NDArray, NDArray]
Data = tuple[NDArray, Comparisons]

every_solver = pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])
every_method = pytest.mark.parametrize("method", ["value", "duals"])
every_batch = pytest.mark.parametrize(
    ("solver", "directions_per_step"),
    [("stagewise", 1), ("stagewise", 3), ("totally_corrective", 1)],
)


class NaNAbove(Logistic):
    """The logistic loss; one method returns NaN if a margin exceeds a limit."""

    def __init__(self, method: str, limit: float) -> None:
        self.method, self.limit = method, limit

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        fails = self.method == "value" and margins.max() > self.limit
        return math.nan if fails else super().value(margins, weights)

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        duals = super().duals(margins, weights)
        fails = self.method == "duals" and margins.max() > self.limit
        return np.full_like(duals, np.nan) if fails else duals


class NaNAtInfinity(Logistic):
    """The logistic loss, NaN if a margin is not finite."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return super().value(margins, weights) if np.isfinite(margins).all() else math.nan

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        duals = super().duals(margins, weights)
        return duals if np.isfinite(margins).all() else np.full_like(duals, np.nan)


def failure(X: NDArray, comparisons: Comparisons, loss: Loss, **options: Any) -> NotANumberError:
    with pytest.raises(NotANumberError) as caught:
        boost(X, comparisons, loss, **options)
    return caught.value


def range_in(error: NotANumberError) -> tuple[float, float]:
    found = re.search(r"margins between (\S+) and (\S+)\. ", str(error))
    assert found is not None
    return float(found[1]), float(found[2])


def without_seconds(fit: Boosting) -> list[tuple[float, ...]]:
    """The history, without the times."""
    return [
        (step.objective, step.lambda_max, step.coef, step.n_violated, step.n_tried)
        for step in fit.history
    ]


@pytest.fixture
def data(blobs: Labelled) -> Data:
    return blobs[0], Comparisons.from_labels(*blobs)


# NaN.


@every_batch
@every_method
def test_nan_in_step_is_rolled_back(
    method: str, solver: str, directions_per_step: int, data: Data
) -> None:
    # In the line search; in the search on a slice; on a slice, in L-BFGS over a factor, on a slice.
    options: dict[str, Any] = {
        "solver": solver,
        "directions_per_step": directions_per_step,
        "tol": 0.0,
    }
    for at, n_good in (("first", 1), ("second", 2), ("middle", 1), ("last", 2)):
        good = calls_of(method, *data, max_iter=n_good * directions_per_step, **options)
        more = calls_of(method, *data, max_iter=(n_good + 1) * directions_per_step, **options)
        last_good = {
            "first": good,
            "second": good + 1,
            "middle": (good + more) // 2,
            "last": more - 1,
        }[at]
        once = at != "middle"
        error = failure(
            *data, Failing(method, last_good, once), max_iter=20 * directions_per_step, **options
        )
        assert str(error).startswith(
            f"In step {n_good + 1}, Failing() returns NaN for finite margins"
        )
        low, high = range_in(error)
        assert math.isfinite(low)
        assert low < high < math.inf
        expected = boost(*data, Failing(), max_iter=n_good * directions_per_step, **options)
        fit = error.fit
        assert isinstance(fit, Boosting)
        assert fit.status is Status.FAILED
        assert without_seconds(fit) == without_seconds(expected)
        assert np.array_equal(fit.metric.directions, expected.metric.directions)
        assert np.array_equal(fit.metric.coefs, expected.metric.coefs)
        assert fit.objective() == expected.objective()


@every_solver
@every_method
def test_nan_error_reports_margins(method: str, solver: str, data: Data) -> None:
    options: dict[str, Any] = {"solver": solver, "tol": 0.0, "max_iter": 30}
    limit = 0.8 * float(margins_of(boost(*data, "logistic", **options)).max())
    error = failure(*data, NaNAbove(method, limit), **options)
    assert range_in(error)[1] > limit * (1 - 1e-5)
    assert margins_of(error.fit).max() <= limit


@every_batch
def test_nan_in_certificate_gives_infinite_gap(
    solver: str, directions_per_step: int, data: Data
) -> None:
    options: dict[str, Any] = {
        "solver": solver,
        "directions_per_step": directions_per_step,
        "max_iter": 3 * directions_per_step,
        "tol": 0.0,
    }
    loss = Failing()
    fit = boost(*data, loss, **options)
    before = fit.metric
    loss.good = loss.calls  # from here on
    assert fit.duality_gap() == math.inf
    assert np.array_equal(fit.metric.matrix, before.matrix)
    loss.good = math.inf
    assert 0 <= fit.duality_gap() < math.inf


@every_solver
@every_method
def test_nan_before_first_step_has_no_fit(method: str, solver: str, data: Data) -> None:
    error = failure(*data, Failing(method, 0), solver=solver)
    assert error.fit is None
    assert range_in(error) == (0, 0)
    assert "Failing() returns NaN" in str(error)


@every_batch
def test_nan_in_first_step_has_empty_fit(solver: str, directions_per_step: int, data: Data) -> None:
    error = failure(
        *data, Failing("value", 1), solver=solver, directions_per_step=directions_per_step
    )
    assert str(error).startswith("In step 1,")
    assert error.fit.metric.n_directions == 0
    assert error.fit.history == []
    assert error.fit.status is Status.FAILED


@every_batch
def test_failed_fit_can_be_continued(solver: str, directions_per_step: int, data: Data) -> None:
    options: dict[str, Any] = {
        "solver": solver,
        "directions_per_step": directions_per_step,
        "tol": 0.0,
    }
    good = calls_of("duals", *data, max_iter=2 * directions_per_step, **options)
    kept = failure(*data, Failing("duals", good), **options).fit
    resumed = boost(
        *data, "logistic", start=kept.metric, max_iter=5 * directions_per_step, **options
    )
    assert resumed.objective() < kept.history[-1].objective


@every_solver
def test_loss_may_be_nan_at_infinity(solver: str, data: Data) -> None:
    fits = [
        boost(*data, loss, solver=solver, max_iter=20, tol=1e-3)
        for loss in (NaNAtInfinity(), Logistic())
    ]
    np.testing.assert_allclose(fits[0].metric.matrix, fits[1].metric.matrix, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", SMOOTH)
@every_solver
def test_losses_tolerate_large_features(solver: str, loss: str, data: Data) -> None:
    X, comparisons = data
    fit = boost(1e6 * X, comparisons, LOSSES[loss], solver=solver, max_iter=10)
    assert fit.status is not Status.FAILED
    assert np.isfinite(fit.metric.matrix).all()


# Requests to stop.


class StopAt:
    """Requests a stop after n evaluations, and counts them."""

    def __init__(self, n: float) -> None:
        self.n, self.calls = n, 0

    def __call__(self) -> bool:
        self.calls += 1
        return self.calls > self.n


@pytest.mark.parametrize(
    ("loss", "solver", "directions_per_step"),
    [
        ("logistic", "stagewise", 1),
        ("logistic", "stagewise", 3),
        ("logistic", "totally_corrective", 1),
        ("hinge", "totally_corrective", 2),
    ],
)
def test_stop_keeps_last_complete_step(
    loss: str, solver: str, directions_per_step: int, data: Data
) -> None:
    options: dict[str, Any] = {
        "solver": solver,
        "directions_per_step": directions_per_step,
        "tol": 0.0,
    }
    counts, metrics = [], []
    counting = StopAt(math.inf)

    def note(fit: Boosting) -> bool:
        counts.append(counting.calls)
        metrics.append(fit.metric)
        return len(counts) == 4

    boost(*data, loss, should_stop=counting, callback=note, **options)
    # Within every step: in its first, its second and its last evaluation.
    assert len(counts) > 1
    for step in range(1, len(counts)):
        for n in sorted({counts[step - 1], counts[step - 1] + 1, counts[step] - 1}):
            if not counts[step - 1] <= n < counts[step]:
                continue
            fit = boost(*data, loss, should_stop=StopAt(n), **options)
            assert fit.status is Status.STOPPED
            assert len(fit.history) == step
            assert np.array_equal(fit.metric.directions, metrics[step - 1].directions)
            assert np.array_equal(fit.metric.coefs, metrics[step - 1].coefs)


@every_batch
def test_stop_in_certificate_keeps_step(solver: str, directions_per_step: int, data: Data) -> None:
    options: dict[str, Any] = {"solver": solver, "directions_per_step": directions_per_step}
    counts = []
    counting = StopAt(math.inf)

    def note(fit: Boosting) -> bool:
        counts.append(counting.calls)
        return len(counts) == 8

    boost(*data, "logistic", should_stop=counting, callback=note, tol=1e-12, **options)
    for step, n in enumerate(counts, start=1):
        # The last evaluation of a step is that of its metric, or of the certificate if it is due.
        fit = boost(*data, "logistic", should_stop=StopAt(n - 1), tol=1e-12, **options)
        assert fit.status is Status.STOPPED
        assert len(fit.history) in (step - 1, step)
        if not fit.history:
            continue
        whole = boost(
            *data, "logistic", max_iter=len(fit.history) * directions_per_step, tol=1e-12, **options
        )
        assert without_seconds(fit) == without_seconds(whole)
        assert np.array_equal(fit.metric.matrix, whole.metric.matrix)
        assert fit.objective() == whole.objective()
        assert fit.duality_gap() >= 0  # the request ends with the fit
