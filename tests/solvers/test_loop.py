"""The end of a fit, and the duality gap it reports."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH
from numpy.typing import NDArray
from sklearn.datasets import load_wine

from boostmetric import Boosting, Comparisons, Status, boost
from boostmetric.solvers import base as base_module
from boostmetric.solvers import certificate

Data = tuple[NDArray, Comparisons]


def half_of_wine() -> Data:
    """Comparisons for which most terms of a smoothed hinge are linear or 0."""
    X, y = load_wine(return_X_y=True)
    X, y = X[::2], y[::2]
    return X, Comparisons.from_labels(X, y, 1)


def labeled(seed: int) -> Data:
    rng = np.random.default_rng(seed)
    n, D = int(rng.integers(15, 40)), int(rng.integers(2, 7))
    X = rng.normal(size=(n, D)) * rng.exponential(size=D)
    return X, Comparisons.from_labels(X, rng.integers(0, 3, n), 1, 2)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize(("seed", "regularizer"), [(0, "trace"), (1, "frobenius")])
def test_bounds_do_not_exceed_objectives(seed: int, regularizer: str, loss: str) -> None:
    data = labeled(seed)
    options: dict[str, Any] = {"solver": "totally_corrective", "regularizer": regularizer}
    bounds: list[float] = []

    def note(fit: Boosting) -> bool:
        gap = fit.duality_gap()
        assert gap >= 0
        bounds.append(fit.objective() - gap)
        return False

    long = boost(*data, loss, alpha=1e-3, tol=0.0, max_iter=60, callback=note, **options)
    noise = 1e-9 * max(abs(long.objective()), 1e-3 * abs(long.first_value))
    assert max(bounds) <= long.objective() + noise
    short = boost(*data, loss, alpha=1e-3, **options)
    assert short.objective() - short.duality_gap() <= long.objective() + noise
    if short.status is Status.CONVERGED:
        scale = max(abs(short.objective()), 1e-3 * abs(short.first_value))
        assert short.objective() - long.objective() <= 1e-3 * scale + noise


def test_bound_is_valid_for_loss_without_curvature() -> None:
    data = half_of_wine()
    options: dict[str, Any] = {"solver": "totally_corrective"}
    short = boost(*data, "smoothed_hinge", max_iter=24, **options)
    long = boost(*data, "smoothed_hinge", tol=0.0, max_iter=60, **options)
    best = min(short.objective(), long.objective())
    bound = short.objective() - short.duality_gap()
    assert bound <= best * (1 + 1e-9)
    if short.status is Status.CONVERGED:
        scale = max(short.objective(), 1e-3 * short.first_value)
        assert short.objective() - best <= 1e-3 * scale


def test_disproved_bound_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, c = labeled(6)
    wrong: list[float] = []
    true_bound = certificate.lower_bound

    def bound(problem: Any, matrix: NDArray, *more: Any) -> float:
        if not wrong:  # of the first metric: just below its objective
            wrong.append(problem.evaluate_at(matrix).value * (1 - 1e-9))
            return wrong[0]
        return true_bound(problem, matrix, *more)

    monkeypatch.setattr(base_module, "lower_bound", bound)
    gaps: list[float] = []

    def note(fit: Boosting) -> bool:
        gaps.append(fit.duality_gap())
        return False

    options: dict[str, Any] = {"solver": "stagewise", "directions_per_step": 1}
    fit = boost(X, c, "logistic", tol=1e-12, max_iter=10, callback=note, **options)
    assert gaps[0] <= 1e-6 * fit.history[0].objective
    assert fit.objective() < wrong[0]
    assert fit.memory.bound <= fit.objective()
    assert fit.memory.bound != wrong[0]
    optimum = boost(X, c, "logistic", tol=1e-9, **options).objective()
    assert fit.objective() - fit.duality_gap() <= optimum * (1 + 1e-6)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "smoothed_hinge"])
@pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])
def test_zero_violations_do_not_end_fit(solver: str, loss: str) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    X = rng.normal(size=(60, 4))
    X[:, 0] += 6 * y
    c = Comparisons.from_labels(X, y)
    fit = boost(X, c, loss, solver=solver, tol=0.0, max_iter=12, alpha=1e-6, directions_per_step=1)
    violations = [step.n_violated for step in fit.history]
    first = violations.index(0)
    objectives = [step.objective for step in fit.history]
    # With some processors, the first totally corrective step is optimal for the logistic loss.
    optimum = boost(X, c, loss, solver="totally_corrective", tol=1e-9, alpha=1e-6).objective()
    assert objectives[-1] < objectives[first] or objectives[-1] <= optimum * (1 + 1e-6)


@pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])
def test_gap_is_computed_only_if_tol_is_positive(solver: str) -> None:
    data = labeled(4)
    fit = boost(*data, "logistic", solver=solver, tol=0.0, max_iter=10)
    assert all(math.isnan(step.duality_gap) for step in fit.history)
    assert math.isnan(fit.outcome().duality_gap)
    fit = boost(*data, "logistic", solver=solver, tol=1e-3, max_iter=10)
    assert fit.outcome().duality_gap == fit.duality_gap() >= 0


def test_outcome_matches_fit() -> None:
    fit = boost(*labeled(5), "logistic", max_iter=5)
    outcome = fit.outcome()
    assert np.array_equal(outcome.metric.matrix, fit.metric.matrix)
    assert outcome.history == fit.history
    assert outcome.status is fit.status
    assert (outcome.alpha, outcome.alpha_max) == (fit.alpha, fit.alpha_max)
    assert outcome.n_comparisons == len(labeled(5)[1])
