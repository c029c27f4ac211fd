"""Totally corrective boosting and the certificate, against a solver of semidefinite programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, problem_of
from numpy.typing import NDArray

from boostmetric import LOSSES, Boosting, Comparisons, Metric, Status, boost
from boostmetric import corrective as corrective_module
from boostmetric.certificate import lower_bound
from boostmetric.corrective import correct

Data = tuple[NDArray, Comparisons]

every_loss = pytest.mark.parametrize("loss", SMOOTH)


def random_problem(seed: int, weighted: bool = False) -> Data:
    """Up to 200 triplets of 30 points in up to 8 dimensions that no metric satisfies."""
    rng = np.random.default_rng(seed)
    D = int(rng.integers(2, 9))
    X = rng.normal(size=(30, D))
    m = int(rng.integers(100, 201))
    rows = np.array([rng.permutation(30)[:3] for _ in range(m)])
    distances = [np.linalg.norm(X[rows[:, 0]] - X[rows[:, i]], axis=1) for i in (1, 2)]
    swap = (distances[0] > distances[1]) & (rng.random(m) < 0.7)
    rows[swap] = rows[swap][:, [0, 2, 1]]
    options: dict[str, Any] = {}
    if weighted:
        options = {"gaps": rng.uniform(0, 1, m), "weights": rng.uniform(0.5, 2, m)}
    return X, Comparisons.from_triplets(rows, **options)


def optimum_by_cvxpy(data: Data, loss: str, alpha: float) -> float:
    cvxpy = pytest.importorskip("cvxpy")
    X, c = data
    M = cvxpy.Variable((X.shape[1], X.shape[1]), PSD=True)
    near, far = (X[c.pairs[side, 0]] - X[c.pairs[side, 1]] for side in (c.near, c.far))
    A = np.einsum("ri,rj->rij", far, far) - np.einsum("ri,rj->rij", near, near)
    gaps = np.zeros(len(c)) if c.gaps is None else c.gaps
    weights = np.ones(len(c)) if c.weights is None else c.weights
    margins = A.reshape(len(c), -1) @ cvxpy.vec(M, order="C") - gaps
    value = {
        "exponential": lambda: cvxpy.log_sum_exp(np.log(weights) - margins),
        "logistic": lambda: weights @ cvxpy.logistic(-margins),
        "squared_hinge": lambda: weights @ cvxpy.square(cvxpy.pos(1 - margins)),
        # The Huber function of cvxpy is twice the rounded hinge times its width.
        "smoothed_hinge": lambda: weights @ cvxpy.huber(cvxpy.pos(1 - margins), 0.5),
    }[loss]()
    problem = cvxpy.Problem(cvxpy.Minimize(value + alpha * cvxpy.trace(M)))
    problem.solve(solver="CLARABEL")
    return float(problem.value)


def fitted(data: Data, loss: str, **options: Any) -> Boosting:
    options = {"solver": "totally_corrective", "alpha": 0.01, "tol": 0.0, **options}
    return boost(*data, LOSSES[loss], **options)


@every_loss
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_that_of_a_semidefinite_program(
    seed: int, weighted: bool, loss: str
) -> None:
    data = random_problem(seed, weighted)
    fit = fitted(data, loss, max_iter=60)
    optimum = optimum_by_cvxpy(data, loss, fit.alpha)
    assert fit.objective() == pytest.approx(optimum, rel=1e-4)
    assert fit.objective() >= optimum - 1e-5 * abs(optimum)


@every_loss
@pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])
@pytest.mark.parametrize("n_iter", [1, 4, 15, 60])
@pytest.mark.parametrize("seed", range(2))
def test_the_bound_is_below_the_optimum(seed: int, n_iter: int, solver: str, loss: str) -> None:
    data = random_problem(seed, weighted=bool(seed % 2))
    fit = fitted(data, loss, solver=solver, max_iter=n_iter)
    bound = fit.objective() - fit.duality_gap()
    optimum = optimum_by_cvxpy(data, loss, fit.alpha)
    assert bound <= optimum + 1e-5 * abs(optimum)


@every_loss
@pytest.mark.parametrize("alpha", [1e-7, 1e-2, 0.3])
def test_the_gap_closes(alpha: float, loss: str) -> None:
    fit = fitted(random_problem(5), loss, alpha=alpha, tol=1e-3)
    assert fit.status in (Status.CONVERGED, Status.NO_DIRECTION)
    assert fit.duality_gap() <= 1e-3 * abs(fit.objective())


@every_loss
def test_a_metric_far_from_optimal_has_a_large_gap_or_none(loss: str) -> None:
    X, comparisons = random_problem(7)
    reference = fitted((X, comparisons), loss, max_iter=60)
    wrong = 3 * reference.metric.matrix
    bound = lower_bound(problem_of(X, comparisons, loss, reference.alpha), wrong)
    assert bound <= reference.objective()


@every_loss
def test_the_objective_falls_in_each_iteration(loss: str) -> None:
    fit = fitted(random_problem(1), loss, max_iter=40)
    assert (np.diff([step.objective for step in fit.history]) < 0).all()


@every_loss
def test_all_coefficients_are_stationary(loss: str) -> None:
    fit = fitted(random_problem(2), loss, max_iter=60)
    V = fit.metric.directions
    slopes = np.einsum("dj,de,ej->j", V, fit.problem.operator.scatter_matrix(fit.duals), V)
    assert (fit.metric.coefs > 0).all()
    assert slopes == pytest.approx(np.full(len(slopes), fit.alpha), abs=2e-2 * fit.alpha_max)


@every_loss
@pytest.mark.parametrize("limit", ["COLUMNS_UP_TO", "MAX_ENTRIES"])
def test_both_forms_of_an_evaluation_agree(
    limit: str, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, comparisons = random_problem(3, weighted=True)
    problem = problem_of(X, comparisons, loss, alpha=0.5)
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(X.shape[1],) * 2))[0]
    start = np.full(X.shape[1], 0.1)

    def run() -> tuple[Metric, bool]:
        found = correct(problem, directions, start, accuracy=1e-9)
        return Metric(found.directions, found.coefs), found.columns is None

    by_column, through_matrix = run()
    assert not through_matrix
    monkeypatch.setattr(corrective_module, limit, 0)
    by_matrix, through_matrix = run()
    assert through_matrix
    np.testing.assert_allclose(by_matrix.matrix, by_column.matrix, rtol=1e-4, atol=1e-6)


def test_separable_comparisons_have_no_optimum_under_the_exponential_loss() -> None:
    X = np.array([[0.0, 0], [1, 0], [0, 3], [0.5, 2]])
    comparisons = Comparisons.from_triplets([[0, 1, 2], [1, 0, 2], [3, 2, 0]])
    fit = boost(X, comparisons, LOSSES["exponential"], solver="totally_corrective")
    assert fit.status is Status.UNBOUNDED
    assert np.isfinite(fit.metric.matrix).all()
    assert (fit.margins > 0).all()
    assert fit.duality_gap() == np.inf


def test_corrections_reach_a_lower_objective_than_single_steps(
    blobs: tuple[NDArray, NDArray],
) -> None:
    X, y = blobs
    comparisons = Comparisons.from_labels(X, y)
    stagewise = boost(X, comparisons, LOSSES["logistic"])
    corrected = boost(X, comparisons, LOSSES["logistic"], solver="totally_corrective", tol=1e-4)
    assert corrected.objective() < stagewise.objective()
    resumed = boost(
        X,
        comparisons,
        LOSSES["logistic"],
        solver="totally_corrective",
        tol=1e-4,
        start=stagewise.metric,
    )
    assert resumed.objective() == pytest.approx(corrected.objective(), rel=2e-4)


def test_no_gap_is_computed_for_many_features() -> None:
    X = np.random.default_rng(0).normal(size=(20, 601))
    fit = boost(X, Comparisons.from_triplets([[0, 1, 2]]), LOSSES["logistic"], max_iter=1)
    assert np.isnan(fit.duality_gap())


@every_loss
@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
def test_a_start_that_costs_too_much_is_given_up(regularizer: str, loss: str) -> None:
    data = random_problem(4)
    start = fitted(data, loss, max_iter=5).metric
    fit = fitted(data, loss, regularizer=regularizer, alpha=2.0, start=start, tol=1e-6)
    cold = fitted(data, loss, regularizer=regularizer, alpha=2.0, tol=1e-6)
    assert fit.objective() == pytest.approx(cold.objective(), rel=1e-5)
    if regularizer == "trace":
        assert fit.metric.n_directions == 0
    assert fit.duality_gap() <= 1e-5 * abs(fit.objective())
