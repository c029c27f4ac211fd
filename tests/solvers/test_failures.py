"""A loss that returns NaN: what is said, and what is kept of the fit."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, problem_of
from numpy.typing import NDArray

from boostmetric import (
    LOSSES,
    Boosting,
    BoostMetric,
    Comparisons,
    Logistic,
    Loss,
    NotANumberError,
    Status,
    boost,
)

Labelled = tuple[NDArray, NDArray]

every_solver = pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])
every_method = pytest.mark.parametrize("method", ["value", "duals"])
every_block = pytest.mark.parametrize(
    ("solver", "block_size"), [("stagewise", 1), ("stagewise", 3), ("totally_corrective", 4)]
)


class Failing(Loss):
    """The logistic loss, which after some calls of a method returns NaN from it, once or for ever.

    Of the duals, the last one is NaN.
    """

    def __init__(self, method: str = "duals", good: float = math.inf, once: bool = False) -> None:
        self.method, self.good, self.once = method, good, once
        self.calls = 0

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return math.nan if self._fails("value") else Logistic().value(margins, weights)

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        duals = Logistic().duals(margins, weights)
        if self._fails("duals"):
            duals[-1] = np.nan
        return duals

    def _fails(self, method: str) -> bool:
        if method != self.method:
            return False
        self.calls += 1
        return self.calls == self.good + 1 if self.once else self.calls > self.good


class NaNAbove(Logistic):
    """The logistic loss, NaN from one method where a margin exceeds a limit."""

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
    """The logistic loss, NaN where a margin is not finite."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return super().value(margins, weights) if np.isfinite(margins).all() else math.nan

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        duals = super().duals(margins, weights)
        return duals if np.isfinite(margins).all() else np.full_like(duals, np.nan)


def calls_of(method: str, X: NDArray, comparisons: Comparisons, **options: Any) -> int:
    """How often a fit calls a method of its loss."""
    counting = Failing(method)
    boost(X, comparisons, counting, **options)
    return counting.calls


def failure(X: NDArray, comparisons: Comparisons, loss: Loss, **options: Any) -> NotANumberError:
    with pytest.raises(NotANumberError) as caught:
        boost(X, comparisons, loss, **options)
    return caught.value


def range_in(error: NotANumberError) -> tuple[float, float]:
    found = re.search(r"margins from (\S+) to (\S+):", str(error))
    assert found is not None
    return float(found[1]), float(found[2])


@pytest.fixture
def data(blobs: Labelled) -> tuple[NDArray, Comparisons]:
    return blobs[0], Comparisons.from_labels(*blobs)


@every_block
@every_method
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("n_good", [1, 2])
def test_the_error_names_the_iteration_and_the_fit_is_that_of_the_one_before(
    n_good: int,
    once: bool,
    method: str,
    solver: str,
    block_size: int,
    data: tuple[NDArray, Comparisons],
) -> None:
    options: dict[str, Any] = {"solver": solver, "block_size": block_size, "tol": 0.0}
    good = calls_of(method, *data, max_iter=n_good * block_size, **options)
    error = failure(*data, Failing(method, good, once), max_iter=20 * block_size, **options)
    assert re.search(rf"in iteration {n_good + 1}\b", str(error))
    assert "Failing()" in str(error)
    low, high = range_in(error)
    assert math.isfinite(low)
    assert low < high < math.inf
    expected = boost(*data, Failing(), max_iter=n_good * block_size, **options)
    fit = error.fit
    assert isinstance(fit, Boosting)
    assert fit.status is Status.FAILED
    assert len(fit.history) == n_good
    assert np.array_equal(fit.metric.matrix, expected.metric.matrix)
    assert np.array_equal(fit.margins, expected.margins)
    assert np.array_equal(fit.duals, expected.duals)
    assert fit.history[-1].objective == expected.history[-1].objective


@every_block
@every_method
def test_margins_and_duals_are_those_of_the_metric_that_is_kept(
    method: str, solver: str, block_size: int, data: tuple[NDArray, Comparisons]
) -> None:
    options: dict[str, Any] = {"solver": solver, "block_size": block_size, "tol": 0.0}
    good = calls_of(method, *data, max_iter=2 * block_size, **options)
    X, comparisons = data
    fit = failure(*data, Failing(method, good), **options).fit
    margins = problem_of(X, comparisons).margins(fit.metric)
    np.testing.assert_allclose(fit.margins, margins, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fit.duals, Logistic().duals(margins), rtol=1e-9, atol=1e-9)


@every_solver
@every_method
def test_the_margins_that_are_named_are_those_that_failed(
    method: str, solver: str, data: tuple[NDArray, Comparisons]
) -> None:
    options: dict[str, Any] = {"solver": solver, "tol": 0.0, "max_iter": 30}
    limit = 0.8 * float(boost(*data, "logistic", **options).margins.max())
    error = failure(*data, NaNAbove(method, limit), **options)
    assert range_in(error)[1] > limit * (1 - 1e-5)
    assert re.search(r"in iteration \d+", str(error))
    if method == "duals":
        assert error.fit.margins.max() <= limit


@every_block
def test_a_failure_in_the_certificate_leaves_no_bound(
    solver: str, block_size: int, data: tuple[NDArray, Comparisons]
) -> None:
    # The gap is looked at after 4 iterations; without a look there is no call after the last one.
    options: dict[str, Any] = {
        "solver": solver,
        "block_size": block_size,
        "max_iter": 4 * block_size,
    }
    good = calls_of("duals", *data, tol=0.0, **options)
    fit = boost(*data, Failing("duals", good), tol=1e-12, **options)
    expected = boost(*data, Failing(), tol=0.0, **options)
    assert fit.history[-1].duality_gap == np.inf
    assert np.array_equal(fit.metric.matrix, expected.metric.matrix)


@every_solver
def test_a_failure_before_the_first_iteration_has_no_fit(
    solver: str, data: tuple[NDArray, Comparisons]
) -> None:
    error = failure(*data, Failing("duals", 0), solver=solver)
    assert error.fit is None
    assert range_in(error) == (0, 0)
    assert "Failing() gives NaN" in str(error)


@every_solver
def test_a_failure_in_the_first_iteration_has_a_fit_without_directions(
    solver: str, data: tuple[NDArray, Comparisons]
) -> None:
    error = failure(*data, Failing("value", 0), solver=solver)
    assert "in iteration 1," in str(error)
    assert error.fit.metric.n_directions == 0
    assert error.fit.history == []
    assert error.fit.status is Status.FAILED


@every_block
def test_a_failed_fit_can_be_gone_on_from(
    solver: str, block_size: int, data: tuple[NDArray, Comparisons]
) -> None:
    options: dict[str, Any] = {"solver": solver, "block_size": block_size, "tol": 0.0}
    good = calls_of("duals", *data, max_iter=2 * block_size, **options)
    kept = failure(*data, Failing("duals", good), **options).fit
    resumed = boost(*data, "logistic", start=kept.metric, max_iter=5 * block_size, **options)
    assert resumed.objective() < kept.history[-1].objective


@pytest.mark.parametrize("method", ["value", "duals"])
def test_a_loss_is_not_blamed_for_infinite_margins(
    method: str, data: tuple[NDArray, Comparisons]
) -> None:
    problem = problem_of(*data, NaNAtInfinity())
    margins = np.zeros(len(data[1]))
    assert np.isfinite(getattr(problem, method)(margins)).all()
    for size in (np.inf, -np.inf, np.nan):
        margins[0] = size
        assert np.isnan(getattr(problem, method)(margins)).all()


@every_solver
def test_a_loss_that_is_nan_at_infinity_only_is_fitted(
    solver: str, data: tuple[NDArray, Comparisons]
) -> None:
    fits = [
        boost(*data, loss, solver=solver, max_iter=20, tol=1e-3)
        for loss in (NaNAtInfinity(), Logistic())
    ]
    np.testing.assert_allclose(fits[0].metric.matrix, fits[1].metric.matrix, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", SMOOTH)
@every_solver
def test_the_losses_that_come_with_it_do_not_fail_on_large_features(
    solver: str, loss: str, data: tuple[NDArray, Comparisons]
) -> None:
    X, comparisons = data
    fit = boost(1e6 * X, comparisons, LOSSES[loss], solver=solver, max_iter=10)
    assert fit.status is not Status.FAILED
    assert np.isfinite(fit.metric.matrix).all()


# The estimator.


@every_block
@every_method
@pytest.mark.parametrize("once", [False, True])
def test_the_estimator_raises_and_is_fitted_nevertheless(
    once: bool,
    method: str,
    solver: str,
    block_size: int,
    blobs: Labelled,
    data: tuple[NDArray, Comparisons],
) -> None:
    options: dict[str, Any] = {"solver": solver, "block_size": block_size, "tol": 0.0}
    good = calls_of(method, *data, max_iter=2 * block_size, **options)
    learner = BoostMetric(loss=Failing(method, good, once), **options)
    with pytest.raises(NotANumberError, match=r"in iteration 3,"):
        learner.fit(*blobs)
    expected = BoostMetric(loss=Failing(), max_iter=2 * block_size, **options).fit(*blobs)
    assert learner.status_ is Status.FAILED
    assert learner.n_iter_ == len(learner.history_["objective"]) == 2
    assert np.array_equal(learner.history_["objective"], expected.history_["objective"])
    assert np.array_equal(learner.transform(blobs[0]), expected.transform(blobs[0]))
    assert np.array_equal(learner.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix())


@pytest.mark.parametrize("good", [0, 1])
def test_without_any_metric_the_estimator_is_not_fitted(good: int, blobs: Labelled) -> None:
    learner = BoostMetric(loss=Failing("duals", good))
    with pytest.raises(NotANumberError):
        learner.fit(*blobs)
    assert not hasattr(learner, "components_")
    assert not hasattr(learner, "metric_")


@pytest.mark.parametrize("late", [0, 1, 8])
def test_a_failure_in_the_second_pass_keeps_what_there_is(late: int, blobs: Labelled) -> None:
    # The first pass is that of an estimator of one pass, whose certificate comes after it.
    X, y = blobs
    good = calls_of("duals", X, Comparisons.from_labels(X, y), max_iter=5)
    first = BoostMetric(max_iter=5).fit(X, y)
    learner = BoostMetric(loss=Failing("duals", good + late, once=True), max_iter=5, n_passes=3)
    with pytest.raises(NotANumberError):
        learner.fit(X, y)
    assert learner.status_ is Status.FAILED
    in_second = int(np.sum(learner.history_["pass"] == 1))
    assert np.sum(learner.history_["pass"] == 0) == 5
    assert learner.n_iter_ == 5 + in_second
    if in_second == 0:
        assert np.array_equal(learner.components_, first.components_)
    else:
        expected = BoostMetric(max_iter=in_second, init=first.components_).fit(X, y)
        np.testing.assert_allclose(
            learner.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), rtol=1e-8
        )


def test_after_a_failure_a_warm_start_goes_on(
    blobs: Labelled, data: tuple[NDArray, Comparisons]
) -> None:
    good = calls_of("duals", *data, max_iter=3)
    learner = BoostMetric(loss=Failing("duals", good, once=True), warm_start=True, max_iter=10)
    with pytest.raises(NotANumberError):
        learner.fit(*blobs)
    kept = learner.history_["objective"][-1]
    learner.set_params(loss="logistic").fit(*blobs)
    assert learner.status_ is not Status.FAILED
    assert learner.history_["objective"][0] < kept


def test_early_stopping_does_not_hide_a_failure(blobs: Labelled) -> None:
    learner = BoostMetric(loss=Failing("value", 3, once=True), early_stopping=True, random_state=0)
    with pytest.raises(NotANumberError, match="in iteration 4,"):
        learner.fit(*blobs)
    assert learner.status_ is Status.FAILED
    assert np.isfinite(learner.transform(blobs[0])).all()
