"""The soft-margin hinge loss, against linear and semidefinite programs solved by others."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.datasets import load_iris

from boostmetric import Boosting, BoostMetric, Comparisons, Hinge, Metric, Status, boost
from boostmetric import soft_margin as soft_margin_module
from boostmetric.soft_margin import SoftMargin

Data = tuple[NDArray, Comparisons]
Labelled = tuple[NDArray, NDArray]

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
    """Some 100 triplets of 30 points, a share of them as in the Euclidean metric."""
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
    """max ρ − v·ξ such that ⟨A_r, M⟩ − b_r ≥ ρ − ξ_r, Tr M = 1, M ⪰ 0."""
    cvxpy = pytest.importorskip("cvxpy")
    X, c = data
    m, D = len(c), X.shape[1]
    M, rho, xi = cvxpy.Variable((D, D), PSD=True), cvxpy.Variable(), cvxpy.Variable(m, nonneg=True)
    near, far = (X[c.pairs[side, 0]] - X[c.pairs[side, 1]] for side in (c.near, c.far))
    A = np.einsum("ri,rj->rij", far, far) - np.einsum("ri,rj->rij", near, near)
    gaps = np.zeros(m) if c.gaps is None else c.gaps
    values = A.reshape(m, -1) @ cvxpy.vec(M, order="C") - gaps
    problem = cvxpy.Problem(
        cvxpy.Maximize(rho - prices_of(nu, m, c.weights) @ xi),
        [values >= rho - xi, cvxpy.trace(M) == 1],
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        problem.solve(solver="CLARABEL")
    return float(problem.value)


def objectives(fit: Boosting) -> NDArray:
    return np.array([step.objective for step in fit.history])


# The loss.


@every_nu
@weighted_or_not
@pytest.mark.parametrize("m", [1, 7, 40])
def test_the_value_is_that_of_the_linear_program(m: int, weighted: bool, nu: float) -> None:
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
def test_duals_are_feasible_and_reach_the_value(weighted: bool, nu: float) -> None:
    margins, weights = draw(50, weighted)
    loss = Hinge(nu)
    duals = loss.duals(margins, weights)
    assert duals.sum() == pytest.approx(1, rel=1e-12)
    assert (duals >= 0).all()
    assert (duals <= prices_of(nu, 50, weights) + 1e-12).all()
    assert -duals @ margins == pytest.approx(loss.value(margins, weights), rel=1e-12)


@pytest.mark.parametrize("nu", [0.05, 0.1, 0.33, 0.77, 1.0])
def test_nu_bounds_the_share_that_has_a_say_and_the_share_that_falls_short(nu: float) -> None:
    margins, _ = draw(60, False)
    prices = prices_of(nu, 60, None)
    costs = np.array([cost_of(t, margins, prices) for t in margins])
    asked_for = margins[costs <= costs.min() + 1e-12].max()
    assert np.mean(Hinge(nu).duals(margins) > 1e-12) >= nu - 1e-12
    assert np.mean(margins < asked_for) <= nu + 1e-12


def test_nu_of_one_is_the_average_margin() -> None:
    margins, weights = draw(20, True)
    assert Hinge(1.0).value(margins, weights) == pytest.approx(
        -np.average(margins, weights=weights), rel=1e-12
    )


@pytest.mark.parametrize("nu", [0.0, -0.1, 1.5, np.nan])
def test_a_share_out_of_range_is_refused(nu: float) -> None:
    with pytest.raises(ValueError, match=r"nu=.* will not do"):
        Hinge(nu)


def test_blocks_cannot_be_merged() -> None:
    with pytest.raises(NotImplementedError, match="cannot be merged"):
        Hinge().merge(np.zeros(2))


# The linear program.


@every_nu
@pytest.mark.parametrize("gapped", [False, True])
@pytest.mark.parametrize("unit", [1.0, 37.0])
def test_the_program_is_solved_as_directions_are_added(
    unit: float, gapped: bool, nu: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soft_margin_module, "PATIENCE", 10**9)
    rng = np.random.default_rng(3)
    m, J = 40, 12
    H = unit * rng.normal(size=(m, J))
    gaps = unit * rng.normal(size=m) if gapped else None
    b = np.zeros(m) if gaps is None else gaps
    prices = prices_of(nu, m, rng.uniform(0.5, 2, m))
    program = SoftMargin(prices, gaps, nu * prices, unit)
    for j in range(J):
        program.add(np.eye(J)[j], H[:, j])
        program.solve()
        # The unknowns are ρ, ξ and w: maximise ρ − v·ξ such that H·w − b ≥ ρ − ξ, Σ w = 1.
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


def test_a_compromise_is_half_way_to_the_best_duals() -> None:
    start, best = np.array([0.5, 0.5]), np.array([0.3, 0.7])
    program = SoftMargin(np.ones(2), None, start, unit=1.0)
    assert np.array_equal(program.compromise(), start)
    program.best_duals = best
    np.testing.assert_allclose(program.compromise(), (start + best) / 2)


# Boosting.


@every_nu
@weighted_or_not
@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_is_that_of_a_semidefinite_program(
    seed: int, weighted: bool, nu: float
) -> None:
    data = random_problem(seed, weighted)
    fit = boost(*data, Hinge(nu), tol=1e-6)
    least = -optimum_by_cvxpy(data, nu)
    assert fit.objective() == pytest.approx(least, abs=1e-5 * fit.scale())
    assert fit.objective() - fit.duality_gap() <= least + 3e-6 * fit.scale()
    assert np.trace(fit.metric.matrix) == pytest.approx(1, rel=1e-12)
    assert fit.objective() == pytest.approx(
        Hinge(nu).value(fit.problem.margins_of(fit.metric.matrix), fit.problem.weights), abs=1e-9
    )


def test_what_no_metric_satisfies_has_its_optimum_too() -> None:
    data = random_problem(1, right=0.0)
    fit = boost(*data, Hinge(0.3), tol=1e-6)
    least = -optimum_by_cvxpy(data, 0.3)
    assert least > 0
    assert fit.objective() == pytest.approx(least, abs=1e-5 * fit.scale())


@weighted_or_not
@pytest.mark.parametrize("n_iter", [1, 3, 10])
def test_the_bound_is_below_the_optimum(n_iter: int, weighted: bool) -> None:
    data = random_problem(2, weighted)
    fit = boost(*data, Hinge(0.2), tol=0.0, max_iter=n_iter)
    least = -optimum_by_cvxpy(data, 0.2)
    assert fit.objective() - fit.duality_gap() <= least + 3e-6 * fit.scale()
    assert fit.objective() >= least - 3e-6 * fit.scale()


@weighted_or_not
@pytest.mark.parametrize("seed", range(4))
def test_a_converged_fit_has_duals_that_prove_it(seed: int, weighted: bool) -> None:
    X, comparisons = random_problem(seed, weighted)
    fit = boost(X, comparisons, Hinge(0.2), tol=1e-4)
    assert fit.status is Status.CONVERGED
    gaps = np.zeros(len(comparisons)) if comparisons.gaps is None else comparisons.gaps
    prices = prices_of(0.2, len(comparisons), comparisons.weights)
    assert fit.program is not None
    bounds = []
    for duals in (fit.duals, fit.program.best_duals):
        assert duals.sum() == pytest.approx(1, abs=1e-6)
        assert (duals >= 0).all()
        assert (duals <= prices + 1e-7).all()
        scatter = fit.problem.operator.scatter_matrix(duals)
        bounds.append(float(duals @ gaps) - np.linalg.eigvalsh(scatter)[-1])
    assert fit.objective() - max(bounds) <= 1e-4 * fit.scale() + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_at_the_end_no_direction_is_worth_more_than_the_price(seed: int) -> None:
    fit = boost(*random_problem(seed), Hinge(0.3), tol=0.0, max_iter=100)
    lambda_max = np.linalg.eigvalsh(fit.problem.operator.scatter_matrix(fit.duals))[-1]
    assert lambda_max <= fit.alpha + 1e-6 * fit.scale()
    assert fit.duality_gap() <= 1e-6 * fit.scale()


def test_no_direction_is_added_again_and_again() -> None:
    fit = boost(*random_problem(2), Hinge(0.3), tol=0.0, max_iter=240)
    assert fit.status is Status.NO_DIRECTION


@pytest.mark.parametrize("seed", range(4))
def test_the_margin_asked_for_has_the_property_of_nu(seed: int) -> None:
    nu = 0.3
    fit = boost(*random_problem(seed), Hinge(nu), tol=1e-6)
    prices = prices_of(nu, len(fit.margins), None)
    asked_for = min(fit.margins, key=lambda t: cost_of(t, fit.margins, prices))
    assert np.mean(fit.duals > 0) >= nu - 1e-9
    assert np.mean(fit.margins < asked_for - 1e-6) <= nu + 1e-9


@every_nu
@pytest.mark.parametrize("seed", range(4))
def test_the_objective_never_rises(seed: int, nu: float) -> None:
    fit = boost(*random_problem(seed, weighted=bool(seed % 2)), Hinge(nu), tol=1e-6)
    assert (np.diff(objectives(fit)) <= 1e-9).all()


@pytest.mark.parametrize("patience", [1, 10**9])
@pytest.mark.parametrize("seed", range(4))
def test_forgetting_slack_rows_does_not_change_the_result(
    seed: int, patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random_problem(seed, weighted=True)
    expected = boost(*data, Hinge(0.2), tol=1e-6)
    monkeypatch.setattr(soft_margin_module, "PATIENCE", patience)
    fit = boost(*data, Hinge(0.2), tol=1e-6)
    assert fit.status is expected.status is Status.CONVERGED
    assert fit.objective() == pytest.approx(expected.objective(), abs=2e-6 * fit.scale())
    assert (np.diff(objectives(fit)) <= 1e-9).all()


@pytest.mark.parametrize("length", [0.01, 1.0, 100.0])
def test_a_start_leads_to_the_same_optimum(length: float, rng: np.random.Generator) -> None:
    X, comparisons = random_problem(3)
    expected = boost(X, comparisons, "hinge", tol=1e-6)
    start = Metric.from_components(length * rng.normal(size=(X.shape[1],) * 2))
    fit = boost(X, comparisons, "hinge", tol=1e-6, start=start)
    assert fit.objective() == pytest.approx(expected.objective(), abs=2e-6 * fit.scale())
    assert np.trace(fit.metric.matrix) == pytest.approx(1, rel=1e-12)


def test_starting_at_the_optimum_takes_fewer_iterations() -> None:
    data = random_problem(3)
    first = boost(*data, Hinge(0.3), tol=1e-5)
    again = boost(*data, Hinge(0.3), tol=1e-5, start=first.metric)
    assert len(again.history) < len(first.history)
    assert again.objective() <= first.objective() + 1e-5 * first.scale()


def test_float32_stays_float32_and_agrees() -> None:
    X, comparisons = random_problem(2, weighted=True)
    expected = boost(X, comparisons, "hinge", tol=1e-6)
    fit = boost(X.astype(np.float32), comparisons, "hinge", tol=1e-4)
    assert fit.metric.directions.dtype == fit.margins.dtype == fit.duals.dtype == np.float32
    assert fit.objective() == pytest.approx(expected.objective(), abs=3e-4 * expected.scale())
    assert fit.metric.coefs.sum() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("eigen_solver", ["lanczos", "power", "randomized"])
def test_rough_eigenvectors_lead_to_the_same_optimum(eigen_solver: str) -> None:
    data = random_problem(3)
    expected = boost(*data, "hinge", tol=1e-6)
    fit = boost(*data, "hinge", tol=1e-6, eigen_solver=eigen_solver)
    assert fit.objective() == pytest.approx(expected.objective(), abs=2e-6 * fit.scale())


# The estimator.


def test_the_estimator_learns_transforms_clones_and_pickles() -> None:
    X, y = load_iris(return_X_y=True)
    learner = BoostMetric(loss="hinge").fit(X, y)
    assert learner.score(X, y) > BoostMetric(init="pca", max_iter=1).fit(X, y).score(X, y) - 0.1
    assert learner.score(X, y) > 0.8
    assert learner.status_ is Status.CONVERGED
    assert np.isfinite(learner.duality_gap_)
    # Without gaps the program's π is minus its optimum.
    assert learner.alpha_ == pytest.approx(-learner.history_["objective"][-1], rel=1e-6)
    assert np.trace(learner.get_mahalanobis_matrix()) == pytest.approx(1, rel=1e-9)
    Z = learner.transform(X)
    assert Z.shape == (150, len(learner.components_))
    assert np.array_equal(pickle.loads(pickle.dumps(learner)).transform(X), Z)
    assert np.array_equal(clone(learner).fit(X, y).transform(X), Z)


def test_the_estimator_takes_a_nu(blobs: Labelled) -> None:
    few, many = (BoostMetric(loss=Hinge(nu)).fit(*blobs) for nu in (0.1, 0.9))
    # The average of the worst tenth of the margins is the lower one.
    assert few.history_["objective"][-1] > many.history_["objective"][-1]


def test_early_stopping_works_with_the_program(blobs: Labelled) -> None:
    learner = BoostMetric(loss="hinge", early_stopping=True, random_state=0).fit(*blobs)
    assert np.isfinite(learner.transform(blobs[0])).all()
    assert np.trace(learner.get_mahalanobis_matrix()) == pytest.approx(1, rel=1e-9)
    assert np.isfinite(learner.duality_gap_)


def test_comparisons_alone_will_do(blobs: Labelled) -> None:
    X, y = blobs
    comparisons = Comparisons.from_labels(X, y)
    learner = BoostMetric(loss="hinge").fit(X, comparisons=comparisons)
    expected = BoostMetric(loss="hinge").fit(X, y)
    np.testing.assert_allclose(learner.components_, expected.components_, atol=1e-10)


def test_the_estimator_keeps_float32(blobs: Labelled) -> None:
    X, y = blobs
    learner = BoostMetric(loss="hinge").fit(X.astype(np.float32), y)
    expected = BoostMetric(loss="hinge").fit(X, y)
    assert learner.components_.dtype == learner.transform(X.astype(np.float32)).dtype == np.float32
    assert learner.history_["objective"][-1] == pytest.approx(
        expected.history_["objective"][-1], rel=5e-3
    )


def test_several_passes_and_a_warm_start(blobs: Labelled) -> None:
    learner = BoostMetric(loss="hinge", n_passes=2, warm_start=True).fit(*blobs)
    assert set(learner.history_["pass"]) == {0, 1}
    last = learner.history_["objective"][-1]
    learner.fit(*blobs)
    assert learner.history_["objective"][-1] == pytest.approx(last, rel=3e-3)


def test_without_highs_the_estimator_says_what_to_install_before_any_work(
    blobs: Labelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        assert name == "highspy"
        raise ImportError(f"No module named {name!r}")

    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("work was done")

    monkeypatch.setattr(soft_margin_module, "import_module", missing)
    monkeypatch.setattr(Comparisons, "from_labels", refuse)
    with pytest.raises(ImportError, match=r"boostmetric\[hinge\].*loss='smoothed_hinge'"):
        BoostMetric(loss="hinge").fit(*blobs)
    monkeypatch.undo()
    comparisons = Comparisons.from_labels(*blobs)
    monkeypatch.setattr(soft_margin_module, "import_module", missing)
    with pytest.raises(ImportError, match=r"boostmetric\[hinge\]"):
        boost(blobs[0], comparisons, "hinge")
    assert boost(blobs[0], comparisons, "smoothed_hinge", max_iter=1).metric.n_directions == 1
