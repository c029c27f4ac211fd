"""Combinations of losses, solvers, regularizers and eigensolvers."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import SMOOTH, margins_of
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, softmax

from boostmetric import (
    LOSSES,
    REGULARIZERS,
    Boosting,
    ComparisonOperator,
    Comparisons,
    Frobenius,
    Hinge,
    Logistic,
    Operator,
    Status,
    boost,
)
from boostmetric.solvers import SOLVERS

Data = tuple[NDArray, Comparisons]
Labelled = tuple[NDArray, NDArray]

REJECTED = [
    ("hinge", solver, regularizer)
    for solver, regularizer in product(SOLVERS, REGULARIZERS)
    if (solver, regularizer) != ("totally_corrective", "trace")
]

approximate_solvers = pytest.mark.parametrize("eigen_solver", ["auto", "approximate"])
smooth_duals = pytest.mark.parametrize("loss", ["logistic", "exponential"])
every_solver = pytest.mark.parametrize("solver", SOLVERS)


class SingleSteps(Logistic):
    """A loss that supports only the stage-wise solver."""

    solvers: ClassVar[tuple[str, ...]] = ("stagewise",)


def points(D: int, n: int = 90) -> Data:
    """Three overlapping classes in D dimensions, which differ in the first two."""
    rng = np.random.default_rng(D)
    y = np.repeat([0, 1, 2], n // 3)
    X = rng.normal(size=(n, D))
    X[:, :2] += 1.5 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    X[:, 2:] *= 2
    return X, Comparisons.from_labels(X, y)


def triplets(seed: int, D: int) -> Data:
    """150 triplets of 30 points in D dimensions; no metric satisfies all of them."""
    rng = np.random.default_rng([seed, D])
    X = rng.normal(size=(30, D))
    rows = np.array([rng.permutation(30)[:3] for _ in range(150)])
    near, far = (np.linalg.norm(X[rows[:, 0]] - X[rows[:, i]], axis=1) for i in (1, 2))
    swap = (near > far) & (rng.random(150) < 0.7)
    rows[swap] = rows[swap][:, [0, 2, 1]]
    return X, Comparisons.from_triplets(rows)


def no_work(*args: Any, **options: Any) -> Any:
    raise AssertionError("work was done")


def lambda_max(fit: Boosting) -> float:
    """λ_max of the scatter minus the gradient of the regularizer, except for threshold·I."""
    problem, M = fit.problem, fit.problem.M.metric.matrix
    scatter = problem.evaluate_at(M).scatter
    assert isinstance(scatter, np.ndarray)
    if isinstance(problem.regularizer, Frobenius):
        scatter = scatter - problem.regularizer.alpha * M
    return float(np.linalg.eigvalsh(scatter)[-1]) * fit.problem.unit


def decreases(objectives: list[float]) -> bool:
    """Whether each value is below the previous one, up to rounding."""
    rounding = 1e-9 * abs(objectives[-1])
    above = np.array(objectives) > objectives[-1] + rounding
    changes = np.diff(objectives)
    return bool((changes[above[1:]] < 0).all() and (changes <= rounding).all())


# Combinations.


@pytest.mark.parametrize("loss", list(LOSSES))
def test_supported_combinations_learn(loss: str, blobs: Labelled) -> None:
    c = Comparisons.from_labels(*blobs)
    for solver, regularizer in product(SOLVERS, REGULARIZERS):
        if (loss, solver, regularizer) in REJECTED:
            continue
        if (solver, regularizer) == ("stagewise", "shrinkage"):
            continue
        options: dict[str, Any] = {"solver": solver, "regularizer": regularizer}
        fit = boost(blobs[0], c, loss, max_iter=10, directions_per_step=1, **options)
        assert fit.metric.n_directions > 0
        assert np.isfinite(fit.metric.matrix).all()
        assert fit.history[-1].n_violated < 0.5 * fit.n_comparisons


@pytest.mark.parametrize(("loss", "solver", "regularizer"), REJECTED)
def test_unsupported_combinations_are_rejected(
    loss: str, solver: str, regularizer: str, blobs: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparisons = Comparisons.from_labels(*blobs)
    if solver == "stagewise":
        match = r"solver='stagewise' .*Hinge\(nu=0.3\).* Use solver='totally_corrective'.*another"
    else:
        match = rf"regularizer='{regularizer}' .*Hinge\(nu=0.3\).* Use regularizer='trace'.*another"
    for name in ("scatter", "scatter_matrix", "responses"):
        monkeypatch.setattr(ComparisonOperator, name, no_work)
    with pytest.raises(ValueError, match=match):
        boost(blobs[0], comparisons, loss, solver=solver, regularizer=regularizer)


def test_custom_loss_restricts_solvers(blobs: Labelled) -> None:
    c = Comparisons.from_labels(*blobs)
    match = r"solver='totally_corrective' .*SingleSteps\(\).* Use solver='stagewise'"
    with pytest.raises(ValueError, match=match):
        boost(blobs[0], c, SingleSteps(), solver="totally_corrective")
    assert boost(blobs[0], c, SingleSteps(), max_iter=5).n_tried == 5


def test_custom_loss_restricts_regularizers(blobs: Labelled) -> None:
    class TraceOnly(Logistic):
        regularizers: ClassVar[tuple[str, ...]] = ("trace",)

    with pytest.raises(ValueError, match=r"regularizer='frobenius' .*TraceOnly\(\).*'trace'"):
        boost(blobs[0], Comparisons.from_labels(*blobs), TraceOnly(), regularizer="frobenius")


@pytest.mark.parametrize("loss", ["hinge", Hinge(0.5)])
def test_hinge_rejects_alpha(loss: str | Hinge, blobs: Labelled) -> None:
    match = r"alpha has no effect with Hinge\(nu=0\.[35]\).*nu"
    with pytest.raises(ValueError, match=match):
        boost(blobs[0], Comparisons.from_labels(*blobs), loss, alpha=0.01)


# The Frobenius norm.


@pytest.mark.parametrize("loss", SMOOTH)
def test_stagewise_frobenius_objective_decreases(loss: str, blobs: Labelled) -> None:
    fit = boost(
        blobs[0],
        Comparisons.from_labels(*blobs),
        loss,
        regularizer="frobenius",
        alpha=0.1,
        max_iter=40,
        directions_per_step=1,
    )
    objectives = [step.objective for step in fit.history]
    assert len(objectives) > 3
    assert decreases(objectives)
    expected = LOSSES[loss].value(margins_of(fit)) + fit.alpha / 2 * np.sum(fit.metric.matrix**2)
    assert objectives[-1] == pytest.approx(expected, rel=1e-9)


@smooth_duals
@pytest.mark.parametrize("alpha", [1e-3, 0.1, 3.0])
def test_stagewise_frobenius_coefficient_is_root_of_derivative(
    alpha: float, loss: str, blobs: Labelled
) -> None:
    X, _ = blobs
    comparisons = Comparisons.from_labels(*blobs)
    options: dict[str, Any] = {
        "regularizer": "frobenius",
        "alpha": alpha,
        "directions_per_step": 1,
    }
    before = boost(X, comparisons, loss, max_iter=3, **options)
    after = boost(X, comparisons, loss, max_iter=4, **options)
    v, M = after.metric.directions[:, -1], before.metric.matrix
    near, far = (
        X[comparisons.pairs[side, 0]] - X[comparisons.pairs[side, 1]]
        for side in (comparisons.near, comparisons.far)
    )
    h = (far @ v) ** 2 - (near @ v) ** 2
    margins = np.sum(far @ M * far, axis=1) - np.sum(near @ M * near, axis=1)

    def slope(w: float) -> float:
        duals = expit(-margins - w * h) if loss == "logistic" else softmax(-margins - w * h)
        return float(duals @ h - after.alpha * (v @ M @ v + w))

    high = 1.0
    while slope(high) > 0:
        high *= 2
    assert after.metric.coefs[-1] == pytest.approx(brentq(slope, 0, high, xtol=1e-14), rel=1e-7)


@smooth_duals
def test_solvers_agree_on_frobenius_optimum(loss: str) -> None:
    data = triplets(0, 4)
    options: dict[str, Any] = {"regularizer": "frobenius", "alpha": 0.3}
    fit = boost(*data, loss, solver="totally_corrective", tol=1e-6, **options)
    assert fit.duality_gap() <= 1e-6 * abs(fit.objective())
    single = boost(*data, loss, max_iter=300, **options)
    assert single.objective() >= fit.objective() * (1 - 1e-6)
    assert single.objective() == pytest.approx(fit.objective(), rel=1e-2)


# Approximate eigenvectors.


@approximate_solvers
@smooth_duals
@pytest.mark.parametrize(("D", "alpha", "operator"), [(5, 0.3, False), (30, 0.8, True)])
def test_approximate_eigenvectors_reach_same_optimum(
    D: int,
    alpha: float,
    operator: bool,
    loss: str,
    eigen_solver: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = points(D)
    options: dict[str, Any] = {"solver": "totally_corrective", "alpha": alpha, "tol": 1e-6}
    exact = boost(*data, loss, **options)
    if operator:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    approximate_fit = boost(*data, loss, eigen_solver=eigen_solver, **options)
    assert approximate_fit.objective() == pytest.approx(exact.objective(), rel=1e-5)
    if not operator:  # else no bound is computed
        assert approximate_fit.duality_gap() <= 1e-5 * abs(approximate_fit.objective())


@approximate_solvers
@smooth_duals
@pytest.mark.parametrize(
    ("D", "alpha", "operator"), [(5, 0.05, False), (12, 0.1, True), (30, 0.5, False)]
)
def test_approximate_eigenvectors_do_not_stop_early(
    D: int,
    alpha: float,
    operator: bool,
    loss: str,
    eigen_solver: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = points(D)
    exact = boost(*data, loss, alpha=alpha, max_iter=60)
    if operator:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    approximate_fit = boost(*data, loss, alpha=alpha, max_iter=60, eigen_solver=eigen_solver)
    assert approximate_fit.objective() == pytest.approx(exact.objective(), rel=0.05)
    assert decreases([step.objective for step in approximate_fit.history])
    if approximate_fit.status is Status.NO_DIRECTION:
        assert lambda_max(approximate_fit) <= approximate_fit.alpha * (1 + 1e-6)


@approximate_solvers
@every_solver
@pytest.mark.parametrize("operator", [False, True])
def test_approximate_eigenvectors_with_frobenius_norm(
    operator: bool, solver: str, eigen_solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = points(8)
    options: dict[str, Any] = {
        "regularizer": "frobenius",
        "alpha": 0.3,
        "solver": solver,
        "max_iter": 40,
    }
    exact = boost(*data, "logistic", **options)
    if operator:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    approximate_fit = boost(*data, "logistic", eigen_solver=eigen_solver, **options)
    assert approximate_fit.objective() == pytest.approx(exact.objective(), rel=1e-2)
    if approximate_fit.status is Status.NO_DIRECTION:
        assert lambda_max(approximate_fit) <= 1e-6 * approximate_fit.alpha_max


# Optima of low rank.


@smooth_duals
@pytest.mark.parametrize(("seed", "alpha"), [(0, 0.05), (1, 0.15), (2, 0.3)])
def test_low_rank_optimum_has_small_gap(seed: int, alpha: float, loss: str) -> None:
    fit = boost(*triplets(seed, 6), loss, solver="totally_corrective", alpha=alpha, tol=1e-6)
    eigenvalues = fit.metric.eigenvalues
    assert np.sum(eigenvalues > 1e-2 * eigenvalues.sum()) < 6
    assert fit.status in (Status.CONVERGED, Status.NO_DIRECTION)
    assert fit.duality_gap() <= 1e-6 * abs(fit.objective())
