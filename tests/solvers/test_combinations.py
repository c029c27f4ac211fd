"""Which losses, solvers and regularisers go together, and how they get to the optimum."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import SMOOTH
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, softmax

from boostmetric import (
    LOSSES,
    REGULARIZERS,
    Boosting,
    BoostMetric,
    ComparisonOperator,
    Comparisons,
    Frobenius,
    Hinge,
    Logistic,
    Status,
    boost,
)
from boostmetric import laplacian as laplacian_module
from boostmetric.eigen import EIGEN_SOLVERS
from boostmetric.newton import turning_step
from boostmetric.solvers import SOLVERS
from boostmetric.stagewise import line_search

Data = tuple[NDArray, Comparisons]
Labelled = tuple[NDArray, NDArray]

COMBINATIONS = list(product(LOSSES, SOLVERS, REGULARIZERS))
REFUSED = [
    ("hinge", solver, regularizer)
    for solver, regularizer in product(SOLVERS, REGULARIZERS)
    if (solver, regularizer) != ("totally_corrective", "trace")
]

approximate = pytest.mark.parametrize("eigen_solver", [e for e in EIGEN_SOLVERS if e != "exact"])
equations = pytest.mark.parametrize("loss", ["logistic", "exponential"])
every_solver = pytest.mark.parametrize("solver", SOLVERS)


class SingleSteps(Logistic):
    """A loss that only the stage-wise solver is good for."""

    solvers: ClassVar[tuple[str, ...]] = ("stagewise",)


def points(D: int, n: int = 90) -> Data:
    """Three overlapping classes in D dimensions, of which 2 tell them apart."""
    rng = np.random.default_rng(D)
    y = np.repeat([0, 1, 2], n // 3)
    X = rng.normal(size=(n, D))
    X[:, :2] += 1.5 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    X[:, 2:] *= 2
    return X, Comparisons.from_labels(X, y)


def triplets(seed: int, D: int) -> Data:
    """150 triplets of 30 points in D dimensions that no metric satisfies."""
    rng = np.random.default_rng([seed, D])
    X = rng.normal(size=(30, D))
    rows = np.array([rng.permutation(30)[:3] for _ in range(150)])
    near, far = (np.linalg.norm(X[rows[:, 0]] - X[rows[:, i]], axis=1) for i in (1, 2))
    swap = (near > far) & (rng.random(150) < 0.7)
    rows[swap] = rows[swap][:, [0, 2, 1]]
    return X, Comparisons.from_triplets(rows)


def refuse(*args: Any, **options: Any) -> Any:
    raise AssertionError("work was done")


def lambda_max(fit: Boosting) -> float:
    """λ_max of the scatter less the gradient of the regulariser, but for the threshold."""
    scatter = fit.problem.operator.scatter_matrix(fit.duals)
    if isinstance(fit.problem.regularizer, Frobenius):
        scatter = scatter - fit.alpha * fit.metric.matrix
    return float(np.linalg.eigvalsh(scatter)[-1])


def falls(objectives: list[float]) -> bool:
    """Whether each is below the one before, or the two differ by rounding only."""
    rounding = 1e-9 * abs(objectives[-1])
    above = np.array(objectives) > objectives[-1] + rounding
    changes = np.diff(objectives)
    return bool((changes[above[1:]] < 0).all() and (changes <= rounding).all())


# Combinations.


@pytest.mark.parametrize(
    ("loss", "solver", "regularizer"), [c for c in COMBINATIONS if c not in REFUSED]
)
def test_a_combination_that_is_not_refused_works(
    loss: str, solver: str, regularizer: str, blobs: Labelled
) -> None:
    X, y = blobs
    learner = BoostMetric(loss, solver=solver, regularizer=regularizer, max_iter=10).fit(X, y)
    assert np.isfinite(learner.transform(X)).all()
    assert learner.score(X, y) > 0.5
    fit = boost(
        X,
        Comparisons.from_labels(X, y),
        loss,
        solver=solver,
        regularizer=regularizer,
        max_iter=10,
    )
    np.testing.assert_allclose(fit.metric.matrix, learner.get_mahalanobis_matrix(), rtol=1e-6)


@pytest.mark.parametrize(("loss", "solver", "regularizer"), REFUSED)
def test_a_combination_that_does_not_work_is_refused_before_any_work(
    loss: str, solver: str, regularizer: str, blobs: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparisons = Comparisons.from_labels(*blobs)
    if solver == "stagewise":
        match = r"solver='stagewise' .*Hinge\(nu=0.3\).* use solver='totally_corrective'.*another"
    else:
        match = r"regularizer='frobenius' .*Hinge\(nu=0.3\).* use regularizer='trace'.*another loss"
    monkeypatch.setattr(Comparisons, "from_labels", refuse)
    for name in ("scatter", "scatter_matrix", "responses"):
        monkeypatch.setattr(ComparisonOperator, name, refuse)
    options: dict[str, Any] = {"solver": solver, "regularizer": regularizer}
    with pytest.raises(ValueError, match=match):
        BoostMetric(loss, **options).fit(*blobs)
    with pytest.raises(ValueError, match=match):
        boost(blobs[0], comparisons, loss, **options)


def test_a_loss_of_ones_own_says_which_solvers_it_works_with(blobs: Labelled) -> None:
    match = r"solver='totally_corrective' .*SingleSteps\(\).* use solver='stagewise'"
    with pytest.raises(ValueError, match=match):
        boost(
            blobs[0],
            Comparisons.from_labels(*blobs),
            SingleSteps(),
            solver="totally_corrective",
        )
    with pytest.raises(ValueError, match=match):
        BoostMetric(SingleSteps(), solver="totally_corrective").fit(*blobs)
    assert BoostMetric(SingleSteps(), max_iter=5).fit(*blobs).n_iter_ == 5


def test_a_loss_of_ones_own_says_which_regularizers_it_works_with(blobs: Labelled) -> None:
    class TraceOnly(Logistic):
        regularizers: ClassVar[tuple[str, ...]] = ("trace",)

    with pytest.raises(ValueError, match=r"regularizer='frobenius' .*TraceOnly\(\).*'trace'"):
        BoostMetric(TraceOnly(), regularizer="frobenius").fit(*blobs)


@pytest.mark.parametrize("name", ["solver", "regularizer", "eigen_solver"])
def test_an_unknown_name_is_refused_with_those_that_are_known(name: str, blobs: Labelled) -> None:
    options: dict[str, Any] = {name: "best"}
    names = {
        "solver": list(SOLVERS),
        "regularizer": list(REGULARIZERS),
        "eigen_solver": list(EIGEN_SOLVERS),
    }
    match = f"{name}='best' will not do: .*{', '.join(map(repr, names[name]))}"
    with pytest.raises(ValueError, match=match):
        boost(blobs[0], Comparisons.from_labels(*blobs), "logistic", **options)
    with pytest.raises(ValueError, match=match):
        BoostMetric(**options).fit(*blobs)


@pytest.mark.parametrize("loss", ["hinge", Hinge(0.5)])
def test_the_hinge_takes_no_alpha(loss: str | Hinge, blobs: Labelled) -> None:
    match = r"alpha=0.01 means nothing to .*Hinge\(nu=0\.[35]\).*nu"
    with pytest.raises(ValueError, match=match):
        BoostMetric(loss, alpha=0.01).fit(*blobs)
    with pytest.raises(ValueError, match=match):
        boost(blobs[0], Comparisons.from_labels(*blobs), loss, alpha=0.01)


@pytest.mark.parametrize("alpha", [1.0, 3.0])
@every_solver
def test_a_relative_alpha_of_one_is_too_large_for_the_trace_only(
    solver: str, alpha: float, blobs: Labelled
) -> None:
    with pytest.raises(ValueError, match=r"must be below 1.*alpha_relative=False"):
        BoostMetric(solver=solver, alpha=alpha).fit(*blobs)
    learner = BoostMetric(solver=solver, alpha=alpha, regularizer="frobenius").fit(*blobs)
    assert len(learner.components_) > 0


# The Frobenius norm.


@pytest.mark.parametrize("loss", SMOOTH)
def test_stagewise_steps_lower_an_objective_with_the_frobenius_norm(
    loss: str, blobs: Labelled
) -> None:
    fit = boost(
        blobs[0],
        Comparisons.from_labels(*blobs),
        loss,
        regularizer="frobenius",
        alpha=0.1,
        max_iter=40,
    )
    objectives = [step.objective for step in fit.history]
    assert len(objectives) > 3
    assert falls(objectives)
    expected = LOSSES[loss].value(fit.margins) + fit.alpha / 2 * np.sum(fit.metric.matrix**2)
    assert objectives[-1] == pytest.approx(expected, rel=1e-9)


@equations
@pytest.mark.parametrize("alpha", [1e-3, 0.1, 3.0])
def test_a_stagewise_coefficient_is_the_root_of_the_derivative(
    alpha: float, loss: str, blobs: Labelled
) -> None:
    X, _ = blobs
    comparisons = Comparisons.from_labels(*blobs)
    options: dict[str, Any] = {"regularizer": "frobenius", "alpha": alpha}
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


@equations
@pytest.mark.parametrize("seed", range(5))
def test_a_line_search_with_curvature_finds_the_root(seed: int, loss: str) -> None:
    rng = np.random.default_rng(seed)
    responses, margins = rng.standard_normal(100) + 1, rng.standard_normal(100)
    duals = LOSSES[loss].duals(margins)
    price, curvature = 0.3 * float(duals @ responses), float(rng.uniform(0.01, 5))

    def slope(w: float) -> float:
        at = LOSSES[loss].duals(margins + w * responses)
        return float(at @ responses - price - curvature * w)

    step = line_search(LOSSES[loss].duals, margins, duals, responses, price, curvature)
    root = brentq(slope, 0, float(duals @ responses) / curvature, xtol=1e-14)
    assert step.coef == pytest.approx(root, rel=1e-8)
    assert step.bounded


@equations
def test_the_frobenius_norm_has_an_optimum_that_both_solvers_go_to(loss: str) -> None:
    data = triplets(0, 4)
    options: dict[str, Any] = {"regularizer": "frobenius", "alpha": 0.3}
    fit = boost(*data, loss, solver="totally_corrective", tol=1e-6, **options)
    assert fit.duality_gap() <= 1e-6 * abs(fit.objective())
    single = boost(*data, loss, max_iter=300, **options)
    assert single.objective() >= fit.objective() * (1 - 1e-6)
    assert single.objective() == pytest.approx(fit.objective(), rel=1e-2)


# Rough eigenvectors.


@approximate
@equations
@pytest.mark.parametrize(
    ("D", "alpha", "operator"), [(5, 0.3, False), (5, 0.3, True), (30, 0.8, True)]
)
def test_rough_eigenvectors_lead_to_the_same_optimum(
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
        monkeypatch.setattr(laplacian_module, "OPERATOR_ABOVE", 0)
    rough = boost(*data, loss, eigen_solver=eigen_solver, **options)
    assert rough.objective() == pytest.approx(exact.objective(), rel=1e-5)
    assert rough.duality_gap() <= 1e-5 * abs(rough.objective())


@approximate
@equations
@pytest.mark.parametrize(
    ("D", "alpha", "operator"), [(5, 0.05, False), (12, 0.1, True), (30, 0.5, False)]
)
def test_rough_eigenvectors_do_not_end_a_stagewise_fit_early(
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
        monkeypatch.setattr(laplacian_module, "OPERATOR_ABOVE", 0)
    rough = boost(*data, loss, alpha=alpha, max_iter=60, eigen_solver=eigen_solver)
    assert rough.objective() == pytest.approx(exact.objective(), rel=0.05)
    assert falls([step.objective for step in rough.history])
    if rough.status is Status.NO_DIRECTION:
        assert lambda_max(rough) <= rough.alpha * (1 + 1e-6)


@approximate
@every_solver
@pytest.mark.parametrize("operator", [False, True])
def test_rough_eigenvectors_go_with_the_frobenius_norm(
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
        monkeypatch.setattr(laplacian_module, "OPERATOR_ABOVE", 0)
    rough = boost(*data, "logistic", eigen_solver=eigen_solver, **options)
    assert rough.objective() == pytest.approx(exact.objective(), rel=1e-2)
    if rough.status is Status.NO_DIRECTION:
        assert lambda_max(rough) <= 1e-6 * rough.alpha_max


@approximate
def test_the_estimator_takes_rough_eigenvectors(eigen_solver: str, blobs: Labelled) -> None:
    rough = BoostMetric(eigen_solver=eigen_solver, max_iter=50).fit(*blobs)
    exact = BoostMetric(max_iter=50).fit(*blobs)
    assert rough.score(*blobs) == pytest.approx(exact.score(*blobs), abs=0.05)


# Optima of low rank.


@equations
@pytest.mark.parametrize("alpha", [0.05, 0.15, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_an_optimum_of_low_rank_is_reached_to_a_tight_gap(
    seed: int, alpha: float, loss: str
) -> None:
    fit = boost(*triplets(seed, 6), loss, solver="totally_corrective", alpha=alpha, tol=1e-6)
    eigenvalues = fit.metric.eigenvalues
    assert np.sum(eigenvalues > 1e-2 * eigenvalues.sum()) < 6
    assert fit.status in (Status.CONVERGED, Status.NO_DIRECTION)
    assert fit.duality_gap() <= 1e-6 * abs(fit.objective())


@equations
@pytest.mark.parametrize("seed", range(3))
def test_a_step_that_turns_the_face_comes_closer_to_the_optimum(seed: int, loss: str) -> None:
    fit = boost(
        *triplets(seed, 6), loss, solver="totally_corrective", alpha=0.3, tol=1e-9, max_iter=150
    )
    optimum = fit.metric.matrix
    values, vectors = np.linalg.eigh(optimum)
    kept = values > 1e-2 * values.sum()
    assert 0 < kept.sum() < 6
    root = vectors[:, kept] * np.sqrt(values[kept])
    noise = np.random.default_rng(seed).normal(size=root.shape)
    root = root + 0.1 * np.linalg.norm(root) / np.linalg.norm(noise) * noise
    start = root @ root.T
    metric_after, _ = turning_step(fit.problem, start)
    before, after = (np.linalg.norm(M - optimum) for M in (start, metric_after(1.0)))
    assert after <= before / 3
