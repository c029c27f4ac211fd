"""The soft-margin hinge loss, against linprog and a semidefinite programming solver."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import margins_of, read_only
from numpy.typing import NDArray
from oracles import hinge_optimum_of, matrices_of
from scipy.optimize import linprog

from boostmetric import Boosting, Comparisons, Hinge, Metric, Operator, Status, boost
from boostmetric.solvers import hinge as hinge_module
from boostmetric.solvers.hinge import SoftMargin, SoftMarginSolver

Data = tuple[NDArray, Comparisons]

every_nu = pytest.mark.parametrize("nu", [0.1, 0.3, 1.0])
weighted_or_not = pytest.mark.parametrize("weighted", [False, True])


def draw(m: int, weighted: bool, seed: int = 0) -> tuple[NDArray, NDArray | None]:
    rng = np.random.default_rng([seed, m])
    margins = 3 * rng.standard_normal(m)
    weights = rng.uniform(0.1, 4.0, m) if weighted else None
    read_only(margins, *([] if weights is None else [weights]))
    return margins, weights


def prices_of(nu: float, m: int, weights: NDArray | None) -> NDArray:
    c = np.ones(m) if weights is None else weights
    return c / (nu * c.sum())


def cost_of(t: float, margins: NDArray, prices: NDArray) -> float:
    return float(-t + prices @ np.maximum(t - margins, 0))


def random_problem(seed: int, weighted: bool = False, right: float = 0.85) -> Data:
    """About 100 triplets of 30 points; the Euclidean metric satisfies a share of them."""
    rng = np.random.default_rng(seed)
    D, m = int(rng.integers(2, 7)), int(rng.integers(60, 141))
    X = rng.normal(size=(30, D))
    rows = np.array([rng.permutation(30)[:3] for _ in range(m)])
    near, far = (np.linalg.norm(X[rows[:, 0]] - X[rows[:, i]], axis=1) for i in (1, 2))
    swap = (near > far) == (rng.random(m) < right)
    rows[swap] = rows[swap][:, [0, 2, 1]]
    options: dict[str, Any] = {}
    if weighted:
        options = {"gaps": rng.uniform(-0.5, 1, m), "weights": rng.uniform(0.5, 2, m)}
    read_only(X)
    return X, Comparisons.from_triplets(rows, **options)


def optimum_by_cvxpy(data: Data, nu: float) -> float:
    """The smallest hinge loss of a metric of trace 1."""
    X, c = data
    return hinge_optimum_of(matrices_of(X, c), nu, c.gaps, c.weights)


def scale_of(fit: Boosting) -> float:
    """The scale of accuracies, because the objective may be close to 0."""
    return max(abs(fit.objective()), abs(fit.alpha_max))


def program_of(fit: Boosting) -> SoftMargin:
    assert isinstance(fit.solver, SoftMarginSolver)
    program = fit.solver._program
    assert program is not None
    return program


def scatter_of(X: NDArray, c: Comparisons, duals: NDArray) -> NDArray:
    return np.einsum("r,rij->ij", duals, matrices_of(X, c))


def objectives(fit: Boosting) -> NDArray:
    return np.array([step.objective for step in fit.history])


# The loss.


@every_nu
@weighted_or_not
def test_value_matches_linprog(weighted: bool, nu: float) -> None:
    for m in (1, 7, 40):
        margins, weights = draw(m, weighted)
        prices = prices_of(nu, m, weights)
        program = linprog(
            np.r_[-1, prices],
            A_ub=np.column_stack([np.ones(m), -np.eye(m)]),
            b_ub=margins,
            bounds=[(None, None), *[(0, None)] * m],
        )
        value = Hinge(nu).value(margins, weights)
        assert value == pytest.approx(program.fun, rel=1e-9, abs=1e-12)
        assert value == pytest.approx(min(cost_of(t, margins, prices) for t in margins), rel=1e-12)


@every_nu
@weighted_or_not
def test_duals_are_feasible_and_optimal(weighted: bool, nu: float) -> None:
    margins, weights = draw(50, weighted)
    loss = Hinge(nu)
    duals = loss.duals(margins, weights)
    assert duals.sum() == pytest.approx(1, rel=1e-12)
    assert (duals >= 0).all()
    assert (duals <= prices_of(nu, 50, weights) + 1e-12).all()
    assert -duals @ margins == pytest.approx(loss.value(margins, weights), rel=1e-12)


@pytest.mark.parametrize("nu", [0.05, 0.1, 0.33, 0.77, 1.0])
def test_nu_bounds_shares_of_comparisons(nu: float) -> None:
    margins, _ = draw(60, False)
    prices = prices_of(nu, 60, None)
    costs = np.array([cost_of(t, margins, prices) for t in margins])
    required = margins[costs <= costs.min() + 1e-12].max()
    assert np.mean(Hinge(nu).duals(margins) > 1e-12) >= nu - 1e-12
    assert np.mean(margins < required) <= nu + 1e-12


def test_nu_of_one_is_average_margin() -> None:
    margins, weights = draw(20, True)
    assert Hinge(1.0).value(margins, weights) == pytest.approx(
        -np.average(margins, weights=weights), rel=1e-12
    )


@pytest.mark.parametrize("nu", [0.0, -0.1, 1.5, np.nan])
def test_invalid_nu_is_rejected(nu: float) -> None:
    with pytest.raises(
        ValueError, match=r"'nu' parameter must be a float in the range \(0.0, 1.0\]"
    ):
        Hinge(nu)


# The linear program.


@every_nu
@pytest.mark.parametrize("gapped", [False, True])
@pytest.mark.parametrize("unit", [1.0, 37.0])
def test_program_matches_linprog_as_rows_are_added(unit: float, gapped: bool, nu: float) -> None:
    rng = np.random.default_rng(3)
    m, J = 40, 12
    H = unit * rng.normal(size=(m, J))
    gaps = unit * rng.normal(size=m) if gapped else None
    b = np.zeros(m) if gaps is None else gaps
    prices = prices_of(nu, m, rng.uniform(0.5, 2, m))
    program = SoftMargin(prices, gaps, nu * prices, unit, patience=10**9)
    for j in range(J):
        program.add(np.eye(J)[j], H[:, j])
        program.solve()
        # The unknowns are ρ, ξ and w: maximize ρ − v·ξ such that H·w − b ≥ ρ − ξ, Σ w = 1.
        expected = linprog(
            np.r_[-1, prices, np.zeros(j + 1)],
            A_ub=np.column_stack([np.ones(m), -np.eye(m), -H[:, : j + 1]]),
            b_ub=-b,
            A_eq=np.r_[0, np.zeros(m), np.ones(j + 1)][None],
            b_eq=[1],
            bounds=[(None, None), *[(0, None)] * (m + j + 1)],
        ).fun
        duals, coefs = program.duals, program.metric.directions @ program.metric.coefs
        near = 1e-6 * unit
        assert coefs.sum() == pytest.approx(1, abs=1e-9)
        assert (coefs >= 0).all()
        margins = H @ coefs - b
        assert min(cost_of(t, margins, prices) for t in margins) == pytest.approx(
            expected, abs=near
        )
        assert duals.sum() == pytest.approx(1, abs=1e-7)
        assert (duals >= 0).all()
        assert (duals <= prices + 1e-7).all()
        assert program.price == pytest.approx((duals @ H[:, : j + 1]).max(), abs=near)
        assert duals @ b - program.price == pytest.approx(expected, abs=near)


# Boosting.


@every_nu
@weighted_or_not
@pytest.mark.parametrize("seed", [0, 1])
def test_optimum_matches_cvxpy(seed: int, weighted: bool, nu: float) -> None:
    data = random_problem(seed, weighted)
    fit = boost(*data, Hinge(nu), tol=1e-6)
    optimum = optimum_by_cvxpy(data, nu)
    assert fit.objective() == pytest.approx(optimum, abs=1e-5 * scale_of(fit))
    assert fit.objective() - fit.duality_gap() <= optimum + 3e-6 * scale_of(fit)
    assert np.trace(fit.metric.matrix) == pytest.approx(1, rel=1e-12)
    assert fit.objective() == pytest.approx(
        fit.value_unit * Hinge(nu).value(margins_of(fit), data[1].weights), abs=1e-9
    )


def test_unsatisfiable_comparisons_match_cvxpy() -> None:
    data = random_problem(1, right=0.0)
    fit = boost(*data, Hinge(0.3), tol=1e-6)
    optimum = optimum_by_cvxpy(data, 0.3)
    assert optimum > 0
    assert fit.objective() == pytest.approx(optimum, abs=1e-5 * scale_of(fit))


@weighted_or_not
@pytest.mark.parametrize("n_iter", [1, 3, 10])
def test_bound_is_below_optimum(n_iter: int, weighted: bool) -> None:
    data = random_problem(2, weighted)
    fit = boost(*data, Hinge(0.2), tol=0.0, max_iter=n_iter)
    optimum = optimum_by_cvxpy(data, 0.2)
    assert fit.objective() - fit.duality_gap() <= optimum + 3e-6 * scale_of(fit)
    assert fit.objective() >= optimum - 3e-6 * scale_of(fit)


@weighted_or_not
@pytest.mark.parametrize("seed", range(2))
def test_duals_certify_convergence(seed: int, weighted: bool) -> None:
    X, comparisons = random_problem(seed, weighted)
    fit = boost(X, comparisons, Hinge(0.2), tol=1e-4)
    assert fit.status is Status.CONVERGED
    gaps = np.zeros(len(comparisons)) if comparisons.gaps is None else comparisons.gaps
    prices = prices_of(0.2, len(comparisons), comparisons.weights)
    bounds = []
    for duals in (program_of(fit).duals, program_of(fit).best_duals):
        assert duals.sum() == pytest.approx(1, abs=1e-6)
        assert (duals >= 0).all()
        assert (duals <= prices + 1e-7).all()
        scatter = scatter_of(X, comparisons, duals)
        bounds.append(float(duals @ gaps) - np.linalg.eigvalsh(scatter)[-1])
    assert fit.objective() - max(bounds) <= 1e-4 * scale_of(fit) + 1e-9


@pytest.mark.parametrize("seed", range(2))
def test_no_direction_exceeds_price_at_end(seed: int) -> None:
    data = random_problem(seed)
    fit = boost(*data, Hinge(0.3), tol=0.0, max_iter=100)
    lambda_max = np.linalg.eigvalsh(scatter_of(*data, program_of(fit).duals))[-1]
    assert lambda_max <= fit.alpha + 1e-6 * scale_of(fit)
    assert fit.duality_gap() <= 1e-6 * scale_of(fit)


def test_no_direction_is_added_twice() -> None:
    fit = boost(*random_problem(2), Hinge(0.3), tol=0.0, max_iter=240)
    assert fit.status is Status.NO_DIRECTION


@pytest.mark.parametrize("seed", range(2))
def test_fitted_margin_has_nu_property(seed: int) -> None:
    nu = 0.3
    fit = boost(*random_problem(seed), Hinge(nu), tol=1e-6)
    margins = margins_of(fit)
    prices = prices_of(nu, len(margins), None)
    required = min(margins, key=lambda t: cost_of(t, margins, prices))
    assert np.mean(program_of(fit).duals > 0) >= nu - 1e-9
    assert np.mean(margins < required - 1e-6) <= nu + 1e-9


@every_nu
@pytest.mark.parametrize("seed", range(2))
def test_objective_does_not_increase(seed: int, nu: float) -> None:
    fit = boost(*random_problem(seed, weighted=bool(seed % 2)), Hinge(nu), tol=1e-6)
    assert (np.diff(objectives(fit)) <= 1e-9).all()


@pytest.mark.parametrize("patience", [1, 10**9])
@pytest.mark.parametrize("seed", range(2))
def test_patience_does_not_change_result(
    seed: int, patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random_problem(seed, weighted=True)
    expected = boost(*data, Hinge(0.2), tol=1e-6)
    monkeypatch.setattr(hinge_module, "SoftMargin", partial(SoftMargin, patience=patience))
    fit = boost(*data, Hinge(0.2), tol=1e-6)
    assert fit.status is expected.status is Status.CONVERGED
    assert fit.objective() == pytest.approx(expected.objective(), abs=2e-6 * scale_of(fit))
    assert (np.diff(objectives(fit)) <= 1e-9).all()


@pytest.mark.parametrize("length", [0.01, 1.0, 100.0])
def test_start_reaches_same_optimum(length: float, rng: np.random.Generator) -> None:
    X, comparisons = random_problem(3)
    expected = boost(X, comparisons, "hinge", tol=1e-6)
    start = Metric.from_components(length * rng.normal(size=(X.shape[1],) * 2))
    fit = boost(X, comparisons, "hinge", tol=1e-6, start=start)
    assert fit.objective() == pytest.approx(expected.objective(), abs=2e-6 * scale_of(fit))
    assert np.trace(fit.metric.matrix) == pytest.approx(1, rel=1e-12)


def test_start_at_optimum_takes_fewer_steps() -> None:
    data = random_problem(3)
    first = boost(*data, Hinge(0.3), tol=1e-5)
    again = boost(*data, Hinge(0.3), tol=1e-5, start=first.metric)
    assert len(again.history) < len(first.history)
    assert again.objective() <= first.objective() + 1e-5 * scale_of(first)


def test_float32_agrees_with_float64() -> None:
    X, comparisons = random_problem(2, weighted=True)
    expected = boost(X, comparisons, "hinge", tol=1e-6)
    fit = boost(X.astype(np.float32), comparisons, "hinge", tol=1e-4)
    assert fit.metric.directions.dtype == np.float32
    assert fit.objective() == pytest.approx(expected.objective(), abs=3e-4 * scale_of(expected))
    assert fit.metric.coefs.sum() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("operator", [False, True])
@pytest.mark.parametrize("eigen_solver", ["auto", "exact", "approximate"])
def test_eigen_solvers_reach_same_optimum(
    eigen_solver: str, operator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random_problem(3)
    expected = boost(*data, "hinge", tol=1e-4)
    if operator:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    fit = boost(*data, "hinge", tol=1e-4, eigen_solver=eigen_solver)
    assert fit.objective() == pytest.approx(expected.objective(), abs=2e-4 * scale_of(expected))
    assert fit.status is Status.CONVERGED


def test_dependent_features_match_cvxpy() -> None:
    for seed in range(12):
        # The leading eigenvalue at M = 0 may be the rounding error of a null direction.
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(8, 1 + seed % 2))
        more = {0: x[:, :1], 1: x.sum(axis=1, keepdims=True), 2: np.full((8, 1), 2.0)}[seed % 3]
        X = np.column_stack([x, more])
        c = Comparisons.from_triplets([rng.permutation(8)[:3] for _ in range(15)])
        fit = boost(X, c, "hinge", tol=1e-6)
        optimum = hinge_optimum_of(matrices_of(X, c), 0.3)
        size = np.abs(np.linalg.eigvalsh(matrices_of(X, c))).max()
        assert fit.objective() == pytest.approx(optimum, abs=1e-5 * size)
        assert fit.objective() - fit.duality_gap() <= optimum + 1e-6 * size
        assert np.trace(fit.metric.matrix) == pytest.approx(1, rel=1e-9)


def test_missing_highs_raises_import_error(
    blobs: tuple[NDArray, NDArray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        assert name == "highspy"
        raise ImportError(f"No module named {name!r}")

    comparisons = Comparisons.from_labels(*blobs)
    monkeypatch.setattr(hinge_module, "import_module", missing)
    with pytest.raises(ImportError, match=r"boostmetric\[hinge\].*loss='smoothed_hinge'"):
        boost(blobs[0], comparisons, "hinge")
    assert boost(blobs[0], comparisons, "smoothed_hinge", max_iter=1).metric.n_directions == 1


@pytest.mark.parametrize("weighted", [False, True])
def test_price_without_gaps_is_minus_optimum(weighted: bool) -> None:
    X, c = random_problem(4)
    if weighted:
        c = Comparisons(c.pairs, c.near, c.far, weights=np.linspace(0.5, 2, len(c)))
    fit = boost(4 * X, c, "hinge", tol=1e-6)
    assert fit.alpha == pytest.approx(-fit.objective(), rel=1e-6)
