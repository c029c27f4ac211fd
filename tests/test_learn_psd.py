"""`learn_psd` and `alpha_path`, against a semidefinite programming solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, duals_of, read_only
from numpy.typing import NDArray
from oracles import optimum_of
from scipy.sparse import csr_array

from boostmetric import (
    Boosting,
    ComparisonOperator,
    Comparisons,
    Hinge,
    Loss,
    LowRankOperator,
    Metric,
    Operator,
    Status,
    Trace,
    alpha_path,
    boost,
    learn_psd,
)

SEEDS = {"dense": 0, "sparse": 1, "low rank": 6, "custom": 11}
"""The kinds of operators, each with a seed that the reference solves to full accuracy."""

every_loss = pytest.mark.parametrize("loss", SMOOTH)
# tests/solvers/test_shrinkage.py tests "shrinkage", which has a further parameter.
every_regularizer = pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
both_solvers = pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])


class Custom(Operator):
    """An operator with the two required methods only."""

    def __init__(self, stack: NDArray) -> None:
        super().__init__(len(stack), stack.shape[1])
        self.stack = stack

    def scatter(self, duals: NDArray) -> NDArray:
        return np.tensordot(duals, self.stack, 1)

    def responses(self, direction: NDArray) -> NDArray:
        return self.stack @ direction @ direction


class SquaredError(Loss):
    """F(ρ) = Σ c_r·ρ_r², which is not monotone: its duals have both signs."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        squares = margins.astype(np.float64) ** 2
        return float(np.sum(squares if weights is None else weights * squares))

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        return -2 * margins if weights is None else -2 * weights * margins


@dataclass
class Case:
    """The arguments of `learn_psd`, and the matrices as one array."""

    operator: Any
    stack: NDArray
    gaps: NDArray
    weights: NDArray

    def fit(self, loss: str | Loss, **options: Any) -> Boosting:
        options = {"gaps": self.gaps, "weights": self.weights, "alpha": 0.05, **options}
        return learn_psd(self.operator, loss, **options)

    def optimum(self, loss: str, regularizer: str, alpha: float) -> float:
        """The smallest objective, by cvxpy."""
        return optimum_of(self.stack, loss, regularizer, alpha, self.gaps, self.weights)


def random_case(kind: str, seed: int) -> Case:
    """Up to 60 indefinite matrices of at most 5 × 5; no M ⪰ 0 satisfies all of them.

    Most agree with a matrix of rank 2, so M = 0 is not optimal.
    """
    rng = np.random.default_rng(seed)
    D, m = int(rng.integers(3, 6)), int(rng.integers(30, 61))
    factors = rng.standard_normal((m, 3, D))
    signs = rng.choice([-1.0, 1.0], (m, 3)) * rng.uniform(0.2, 1, (m, 3))
    stack = np.einsum("rk,rki,rkj->rij", signs, factors, factors)
    if kind != "low rank":
        stack = rng.standard_normal((m, D, D)) * (rng.random((m, D, D)) < 0.5)
        stack = stack + stack.transpose(0, 2, 1)
    turn = np.where((stack[:, 0, 0] + stack[:, 1, 1] < 0) & (rng.random(m) < 0.7), -1.0, 1.0)
    stack, signs = turn[:, None, None] * stack, turn[:, None] * signs
    forms: dict[str, Callable[[], Any]] = {
        "dense": lambda: stack,
        "sparse": lambda: [csr_array(A) for A in stack],
        "low rank": lambda: LowRankOperator(factors, signs),
        "custom": lambda: Custom(stack),
    }
    case = Case(forms[kind](), stack, rng.uniform(-0.5, 1, m), rng.uniform(0.5, 2, m))
    read_only(stack, factors, signs, case.gaps, case.weights)
    return case


@every_loss
@pytest.mark.parametrize(
    ("kind", "regularizer"),
    [("dense", "trace"), ("sparse", "frobenius"), ("low rank", "trace"), ("custom", "frobenius")],
)
def test_optimum_matches_cvxpy(kind: str, regularizer: str, loss: str) -> None:
    case = random_case(kind, SEEDS[kind])
    fit = case.fit(loss, regularizer=regularizer, tol=1e-6)
    optimum = case.optimum(loss, regularizer, fit.alpha)
    assert fit.metric.n_directions > 0
    assert fit.objective() == pytest.approx(optimum, rel=1e-4)
    assert fit.objective() >= optimum - 1e-5 * abs(optimum)
    assert fit.objective() - fit.duality_gap() <= optimum + 1e-5 * abs(optimum)
    if loss != "smoothed_hinge":  # a bound is not always found for losses that are linear in places
        assert fit.duality_gap() <= 1e-4 * abs(optimum)


@every_regularizer
@both_solvers
@pytest.mark.parametrize("kind", list(SEEDS))
def test_early_bound_is_below_optimum(kind: str, solver: str, regularizer: str) -> None:
    case = random_case(kind, SEEDS[kind])
    for n_iter in (1, 5):
        fit = case.fit("logistic", solver=solver, regularizer=regularizer, max_iter=n_iter)
        optimum = case.optimum("logistic", regularizer, fit.alpha)
        assert fit.objective() >= optimum - 1e-5 * abs(optimum)
        assert fit.objective() - fit.duality_gap() <= optimum + 1e-5 * abs(optimum)


def forms_of(stack: NDArray) -> list[Any]:
    """The same matrices in every other form."""
    values, vectors = np.linalg.eigh(stack)
    return [
        [csr_array(A) for A in stack],
        LowRankOperator(vectors.transpose(0, 2, 1), values),
        Custom(stack),
    ]


@every_regularizer
def test_stagewise_fit_is_independent_of_operator_type(regularizer: str) -> None:
    case = random_case("dense", seed=4)
    options: dict[str, Any] = {"solver": "stagewise", "regularizer": regularizer, "max_iter": 6}
    expected = case.fit("logistic", **options).metric.matrix
    near = 1e-6 * float(np.abs(expected).max())
    for form in forms_of(case.stack):
        fit = replace(case, operator=form).fit("logistic", **options)
        assert fit.metric.matrix == pytest.approx(expected, abs=near)


@every_regularizer
def test_optimum_is_independent_of_operator_type(regularizer: str) -> None:
    case = random_case("dense", seed=4)
    options: dict[str, Any] = {"regularizer": regularizer, "tol": 1e-5}
    expected = case.fit("logistic", **options).objective()
    for form in forms_of(case.stack):
        fit = replace(case, operator=form).fit("logistic", **options)
        assert fit.objective() == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("eigen_solver", ["auto", "approximate"])
@every_regularizer
def test_approximate_eigenvectors_reach_same_optimum(regularizer: str, eigen_solver: str) -> None:
    case = random_case("sparse", seed=5)
    exact, fit = (
        case.fit("logistic", regularizer=regularizer, eigen_solver=name, tol=1e-4)
        for name in ("exact", eigen_solver)
    )
    assert fit.objective() == pytest.approx(exact.objective(), rel=2e-4)


def entries_of(B: NDArray, rng: np.random.Generator | None = None) -> Case:
    """⟨A_ij, M⟩ = M_ij with the target B_ij; weights count off-diagonal entries twice."""
    D = len(B)
    pairs = [(i, j) for i in range(D) for j in range(i, D)]
    matrices = []
    for i, j in pairs:
        data = [1.0] if i == j else [0.5, 0.5]
        rows, columns = ([i], [i]) if i == j else ([i, j], [j, i])
        matrices.append(csr_array((data, (rows, columns)), shape=(D, D)))
    weights = np.array([1.0 if i == j else 2.0 for i, j in pairs])
    if rng is not None:
        weights *= rng.uniform(0.2, 3, len(weights))
    stack = np.array([A.toarray() for A in matrices])
    return Case(matrices, stack, np.array([B[pair] for pair in pairs]), weights)


def random_target(seed: int) -> NDArray:
    """A symmetric matrix with eigenvalues of both signs."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    return (Q * [3.0, 1.0, 0.4, -0.5, -2.0]) @ Q.T


@every_regularizer
@pytest.mark.parametrize("seed", range(2))
def test_nearest_psd_matrix_has_closed_form(seed: int, regularizer: str) -> None:
    B = random_target(seed)
    fit = entries_of(B).fit(SquaredError(), regularizer=regularizer, tol=1e-6)
    values, vectors = np.linalg.eigh(B)
    values = {
        "trace": np.maximum(values - fit.alpha / 2, 0),
        "frobenius": np.maximum(values, 0) / (1 + fit.alpha / 2),
    }[regularizer]
    nearest = (vectors * values) @ vectors.T
    assert fit.metric.matrix == pytest.approx(nearest, abs=2e-3)


@every_regularizer
@pytest.mark.parametrize("seed", range(3))
def test_nonmonotone_loss_matches_cvxpy(seed: int, regularizer: str) -> None:
    case = entries_of(random_target(seed), np.random.default_rng(seed))
    fit = case.fit(SquaredError(), regularizer=regularizer, tol=1e-6)
    optimum = case.optimum("squared_error", regularizer, fit.alpha)
    assert duals_of(fit).min() < 0 < duals_of(fit).max()
    assert fit.objective() == pytest.approx(optimum, rel=1e-4)
    assert fit.objective() - fit.duality_gap() <= optimum + 1e-5 * abs(optimum)
    assert fit.duality_gap() <= 1e-4 * optimum


@every_regularizer
@pytest.mark.parametrize("seed", range(3))
def test_nonmonotone_loss_decreases_stagewise(seed: int, regularizer: str) -> None:
    case = entries_of(random_target(seed), np.random.default_rng(seed))
    fit = case.fit(SquaredError(), regularizer=regularizer, solver="stagewise", max_iter=60)
    objectives = [step.objective for step in fit.history]
    assert len(objectives) > 1
    assert objectives[0] < case.weights @ case.gaps**2
    assert (np.diff(objectives) <= 1e-12 * objectives[0]).all()  # rounding, at the end
    optimum = case.optimum("squared_error", regularizer, fit.alpha)
    assert fit.objective() >= optimum - 1e-5 * optimum
    assert fit.objective() - fit.duality_gap() <= optimum + 1e-5 * optimum


@every_regularizer
def test_stagewise_step_is_minimum_along_direction(regularizer: str) -> None:
    case = entries_of(random_target(0))
    fit = case.fit(SquaredError(), regularizer=regularizer, solver="stagewise", max_iter=1)
    M, v = fit.metric.matrix, fit.metric.directions[:, 0]

    def objective(N: NDArray) -> float:
        cost = {"trace": np.trace(N), "frobenius": np.sum(N * N) / 2}[regularizer]
        values = np.einsum("rij,ij->r", case.stack, N)
        return float(case.weights @ (values - case.gaps) ** 2 + fit.alpha * cost)

    assert fit.objective() == pytest.approx(objective(M), rel=1e-9)
    for change in (-1e-4, 1e-4):
        assert objective(M + change * np.outer(v, v)) > objective(M)


@both_solvers
@every_regularizer
@pytest.mark.parametrize(
    ("dtype", "loss"), [(np.float32, "exponential"), (np.float64, "smoothed_hinge")]
)
def test_boost_matches_learn_psd(
    dtype: type[np.floating], loss: str, regularizer: str, solver: str, rng: np.random.Generator
) -> None:
    X = rng.standard_normal((20, 4)).astype(dtype)
    rows = np.array([rng.permutation(20)[:3] for _ in range(70)])
    gaps, weights = rng.uniform(0, 1, 70), rng.uniform(0.5, 2, 70)
    comparisons = Comparisons.from_triplets(rows, gaps=gaps, weights=weights)
    options: dict[str, Any] = {
        "solver": solver,
        "regularizer": regularizer,
        "alpha": 0.01,
        "max_iter": 8,
    }
    here = boost(X, comparisons, loss, **options)
    operator = ComparisonOperator(X, comparisons, exponent=None)
    there = learn_psd(operator, loss, gaps=gaps, weights=weights, **options)
    assert here.metric.n_directions > 0
    assert here.metric.directions.dtype == dtype
    assert np.array_equal(there.metric.matrix, here.metric.matrix)
    assert there.alpha == here.alpha
    assert there.status is here.status


def test_gaps_of_hinge_are_in_units_of_user(rng: np.random.Generator) -> None:
    X = 1000 * rng.standard_normal((20, 4))
    rows = np.array([rng.permutation(20)[:3] for _ in range(70)])
    gaps = 1e6 * rng.uniform(0, 1, 70)
    comparisons = Comparisons.from_triplets(rows, gaps=gaps)
    here = boost(X, comparisons, Hinge(nu=0.3))
    there = learn_psd(ComparisonOperator(X, comparisons), Hinge(nu=0.3), gaps=gaps)
    scaled = learn_psd(ComparisonOperator(X, comparisons, exponent=None), Hinge(nu=0.3), gaps=gaps)
    # A fit of the hinge loss ends at a gap of 1e-3.
    assert here.objective() == pytest.approx(there.objective(), rel=2e-3)
    assert scaled.objective() == pytest.approx(there.objective(), rel=2e-3)


def test_negative_matrices_give_no_direction() -> None:
    fit = learn_psd([-np.eye(3), np.diag([-1.0, -2.0, 0.0])])
    assert fit.status in (Status.CONVERGED, Status.NO_DIRECTION)
    assert fit.metric.matrix.tolist() == np.zeros((3, 3)).tolist()
    assert fit.objective() == pytest.approx(2 * np.log(2))
    assert fit.duality_gap() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("seed", [3, 12, 15])
def test_piecewise_linear_loss_gives_finite_metric(seed: int) -> None:
    stack = np.random.default_rng(seed).standard_normal((6, 3, 3))
    fit = learn_psd(stack + stack.transpose(0, 2, 1), "smoothed_hinge", alpha=0.05, max_iter=10)
    assert np.isfinite(fit.metric.matrix).all()


@pytest.mark.parametrize("seed", [1, 6, 13])
def test_piecewise_linear_loss_of_comparisons_gives_finite_metric(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20, 4))
    comparisons = Comparisons.from_triplets([rng.permutation(20)[:3] for _ in range(20)])
    options: dict[str, Any] = {"solver": "totally_corrective", "max_iter": 20}
    fit = boost(X, comparisons, "smoothed_hinge", alpha=0.05, **options)
    assert np.isfinite(fit.metric.matrix).all()


ALPHAS = [0.003, 0.8, 0.1, 0.3, 0.03, 0.001, 0.01, 0.5]


@every_regularizer
def test_path_matches_cold_fits(regularizer: str) -> None:
    case = random_case("dense", SEEDS["dense"])
    learn = partial(case.fit, "logistic", regularizer=regularizer)
    points = list(alpha_path(learn, ALPHAS))
    cold = [learn(alpha=alpha) for alpha in sorted(ALPHAS, reverse=True)]
    assert [point.alpha for point in points] == [fit.alpha for fit in cold]
    assert (np.diff([point.alpha for point in points]) < 0).all()
    for point, fit in zip(points, cold, strict=True):
        optimum = case.optimum("logistic", regularizer, point.alpha)
        assert point.objective == pytest.approx(optimum, rel=1e-3)
        assert point.objective == pytest.approx(fit.objective(), rel=1e-3)
        assert 0 <= point.duality_gap <= 1e-3 * point.objective
        assert point.objective - point.duality_gap <= optimum + 1e-5 * optimum
        assert point.status in (Status.CONVERGED, Status.NO_DIRECTION)


@every_regularizer
def test_path_takes_fewer_evaluations_than_cold_fits(
    regularizer: str, blobs: tuple[NDArray, NDArray]
) -> None:
    X, y = blobs
    options: dict[str, Any] = {"solver": "totally_corrective", "regularizer": regularizer}
    learn = partial(boost, X, Comparisons.from_labels(X, y), "logistic", tol=1e-6, **options)
    alphas = np.geomspace(0.01, 0.3, 8).tolist()
    n_warm = sum(point.n_evaluations for point in alpha_path(learn, alphas))
    cold = [learn(alpha=alpha) for alpha in alphas]
    assert 0 < n_warm < sum(step.n_evaluations for fit in cold for step in fit.history)


def test_path_uses_warm_starts() -> None:
    case, starts, metrics = random_case("dense", seed=3), [], []

    def learn(alpha: float, start: Metric | None) -> Boosting:
        starts.append(start)
        fit = case.fit("logistic", alpha=alpha, start=start)
        metrics.append(fit.metric.matrix)
        return fit

    points = list(alpha_path(learn, iter([0.01, 0.1, 0.5])))
    assert starts[0] is None
    for start, point in zip(starts[1:], points, strict=False):
        assert start is point.metric
    for point, matrix in zip(points, metrics, strict=True):
        assert np.array_equal(point.metric.matrix, matrix)
    assert list(alpha_path(learn, [])) == []


def test_path_accepts_absolute_alphas(
    blobs: tuple[NDArray, NDArray],
) -> None:
    X, y = blobs
    learn = partial(
        boost,
        X,
        Comparisons.from_labels(X, y),
        "logistic",
        solver="totally_corrective",
    )
    points = list(alpha_path(learn, [Trace(50.0), Trace(500.0), Trace(1e9)]))
    assert [point.alpha for point in points] == [1e9, 500.0, 50.0]
    assert points[0].metric.n_directions == 0
    for point in points[1:]:
        cold = learn(regularizer=Trace(point.alpha))
        assert point.objective == pytest.approx(cold.objective(), rel=1e-3)
        assert point.duality_gap <= 1e-3 * point.objective


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gaps": [0.0, 1.0]}, r"gaps must have shape \(3,\), one per matrix; got \(2,\)"),
        ({"gaps": 1.0}, r"gaps must have shape \(3,\), one per matrix; got \(\)"),
        ({"gaps": [[0.0], [1.0], [2.0]]}, r"gaps must have shape .* got \(3, 1\)"),
        ({"gaps": [0.0, np.nan, 1.0]}, "gaps must be finite"),
        ({"gaps": [0.0, np.inf, 1.0]}, "gaps must be finite"),
        ({"weights": [1.0] * 4}, r"weights must have shape \(3,\).* got \(4,\)"),
        ({"weights": [1.0, 0.0, 1.0]}, "weights must be positive"),
        ({"weights": [1.0, -2.0, 1.0]}, "weights must be positive"),
        ({"weights": [1.0, np.nan, 1.0]}, "weights must be positive"),
        ({"weights": [1.0, np.inf, 1.0]}, "weights must be positive"),
        ({"start": Metric(np.eye(3), np.ones(3))}, "start must be a metric of 2 features"),
        (
            {"eigen_solver": "qr"},
            "'eigen_solver' parameter must be one of {'auto', 'exact', 'approximate'}",
        ),
        (
            {"solver": "newton"},
            "'solver' parameter must be one of {'auto', 'stagewise', 'totally_corrective'}",
        ),
        (
            {"regularizer": "nuclear"},
            "'regularizer' parameter must be one of {'trace', 'frobenius', 'shrinkage'}",
        ),
        ({"alpha": -0.1}, r"'alpha' parameter must be a float in the range \[0.0, inf\)"),
        ({"alpha": np.nan}, r"'alpha' parameter must be a float in the range \[0.0, inf\)"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    stack = np.array([np.eye(2), np.diag([1.0, -1.0]), np.diag([-3.0, 1.0])])
    with pytest.raises(ValueError, match=message):
        learn_psd(stack, **options)
