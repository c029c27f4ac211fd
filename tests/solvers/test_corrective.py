"""The totally corrective solver and the certificate, against a semidefinite programming solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, duals_of, margins_of, problem_of
from numpy.typing import NDArray
from oracles import matrices_of, optimum_of_comparisons
from scipy.linalg import eigvalsh
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.datasets import load_iris

from boostmetric import LOSSES, Boosting, Comparisons, Metric, Operator, Status, Trace, boost
from boostmetric.problem import block as block_module
from boostmetric.solvers.certificate import lower_bound
from boostmetric.solvers.coefficients import best_on_slice

Data = tuple[NDArray, Comparisons]

every_loss = pytest.mark.parametrize("loss", SMOOTH)
every_regularizer = pytest.mark.parametrize("regularizer", ["trace", "frobenius"])


def random_problem(seed: int, weighted: bool = False) -> Data:
    """Up to 200 triplets of 30 points in up to 8 dimensions; no metric satisfies all of them."""
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


def dependent(X: NDArray, kind: str) -> NDArray:
    """The points with additional, linearly dependent columns."""
    constant = np.full(len(X), 3.0)
    more = {
        "independent": [],
        "duplicated": [X[:, 0]],
        "constant": [constant, 0 * constant],
        "summed": [X.sum(axis=1), X[:, 0], constant],
    }[kind]
    return np.column_stack([X, *more])


def fitted(data: Data, loss: str, **options: Any) -> Boosting:
    options = {"solver": "totally_corrective", "alpha": 0.01, "tol": 0.0, **options}
    return boost(*data, LOSSES[loss], **options)


@every_loss
@pytest.mark.parametrize(
    ("seed", "kind", "regularizer"),
    [
        (1, "independent", "frobenius"),
        (2, "duplicated", "trace"),
        (3, "constant", "frobenius"),
        (4, "summed", "trace"),
    ],
)
def test_optimum_matches_cvxpy(seed: int, kind: str, regularizer: str, loss: str) -> None:
    X, comparisons = random_problem(seed, weighted=bool(seed % 2))
    X = dependent(X, kind)
    fit = fitted((X, comparisons), loss, regularizer=regularizer, max_iter=60)
    optimum = optimum_of_comparisons(X, comparisons, loss, fit.alpha, regularizer)
    assert fit.metric.n_directions > 0
    assert fit.objective() == pytest.approx(optimum, rel=1e-4)
    assert fit.objective() >= optimum - 1e-5 * abs(optimum)
    assert fit.objective() - fit.duality_gap() <= optimum + 1e-5 * abs(optimum)


@every_regularizer
@pytest.mark.parametrize("loss", ["smoothed_hinge", "squared_hinge"])
def test_few_comparisons_converge(loss: str, regularizer: str) -> None:
    # Some comparisons are satisfied after few steps; their duals are then 0.
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(10, 4))
        comparisons = Comparisons.from_triplets([rng.permutation(10)[:3] for _ in range(5)])
        fit = fitted((X, comparisons), loss, regularizer=regularizer, tol=None)
        optimum = optimum_of_comparisons(X, comparisons, loss, fit.alpha, regularizer)
        assert fit.status is Status.CONVERGED
        assert fit.objective() == pytest.approx(optimum, rel=2e-3)


@every_loss
@pytest.mark.parametrize(("seed", "directions_per_step"), [(0, 1), (1, "auto")])
def test_duplicate_column_does_not_stop_fit(
    seed: int, directions_per_step: int | str, loss: str
) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(60, 2))
    X = np.column_stack([z, z[:, 0]])
    c = Comparisons.from_labels(X, z[:, 0] > 0)
    options: dict[str, Any] = {"regularizer": "frobenius", "alpha": 1e-3}
    fit = fitted(
        (X, c), loss, directions_per_step=directions_per_step, tol=None, max_iter=300, **options
    )
    assert fit.status in (Status.CONVERGED, Status.NO_DIRECTION)
    optimum = optimum_of_comparisons(X, c, loss, fit.alpha, "frobenius")
    assert abs(fit.objective() - optimum) <= 2e-3 * max(abs(optimum), 1e-3 * fit.first_value)


@every_loss
@pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])
def test_bound_is_below_optimum(solver: str, loss: str) -> None:
    data = random_problem(1, weighted=True)
    optimum = None
    for n_iter in (1, 8, 40):
        fit = fitted(data, loss, solver=solver, max_iter=n_iter)
        bound = fit.objective() - fit.duality_gap()
        if optimum is None:
            optimum = optimum_of_comparisons(*data, loss, fit.alpha)
        assert bound <= optimum + 1e-5 * abs(optimum)


@every_loss
@pytest.mark.parametrize("alpha", [1e-7, 1e-2, 0.3])
def test_gap_closes(alpha: float, loss: str) -> None:
    fit = fitted(random_problem(5), loss, alpha=alpha, tol=1e-3)
    assert fit.status in (Status.CONVERGED, Status.NO_DIRECTION)
    assert fit.duality_gap() <= 1e-3 * abs(fit.objective())


@every_loss
def test_bound_from_poor_metric_is_valid(loss: str) -> None:
    X, comparisons = random_problem(7)
    reference = fitted((X, comparisons), loss, max_iter=60)
    wrong = 3 * reference.metric.matrix
    bound = lower_bound(problem_of(X, comparisons, loss, reference.alpha), wrong)
    assert bound <= reference.objective()


@every_loss
def test_objective_decreases(loss: str) -> None:
    fit = fitted(random_problem(1), loss, max_iter=40)
    assert (np.diff([step.objective for step in fit.history]) < 0).all()


@every_loss
def test_coefficients_are_stationary(loss: str) -> None:
    data = random_problem(2)
    fit = fitted(data, loss, max_iter=60)
    V = fit.metric.directions
    scatter = np.einsum("r,rij->ij", duals_of(fit), matrices_of(*data))
    slopes = np.einsum("dj,de,ej->j", V, scatter, V)
    assert (fit.metric.coefs > 0).all()
    assert slopes == pytest.approx(np.full(len(slopes), fit.alpha), abs=2e-2 * fit.alpha_max)


@every_loss
def test_slice_margins_do_not_depend_on_storage(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, comparisons = random_problem(3, weighted=True)
    D = X.shape[1]
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))[0]

    def run() -> Metric:
        problem = problem_of(X, comparisons, loss, alpha=0.5)
        found = best_on_slice(
            problem,
            directions,
            np.full(D, 0.1),
            np.full(D, np.inf),
            problem.response_sizes(directions),
            np.full(1 + D, 1e-9),
            free_scale=False,
        )
        return Metric(directions, found.coefs)

    by_direction = run()
    monkeypatch.setattr(block_module, "MAX_ENTRIES", 0)
    through_matrix = run()
    np.testing.assert_allclose(through_matrix.matrix, by_direction.matrix, rtol=1e-4, atol=1e-6)


def test_separable_exponential_is_unbounded() -> None:
    X = np.array([[0.0, 0], [1, 0], [0, 3], [0.5, 2]])
    comparisons = Comparisons.from_triplets([[0, 1, 2], [1, 0, 2], [3, 2, 0]])
    fit = boost(X, comparisons, LOSSES["exponential"], solver="totally_corrective")
    assert fit.status is Status.UNBOUNDED
    assert np.isfinite(fit.metric.matrix).all()
    assert (margins_of(fit) > 0).all()
    assert fit.duality_gap() == np.inf


def test_corrective_objective_is_below_stagewise(
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


def test_gap_is_nan_for_many_features() -> None:
    X = np.random.default_rng(0).normal(size=(20, Operator.DENSE_UP_TO + 1))
    fit = boost(X, Comparisons.from_triplets([[0, 1, 2]]), LOSSES["logistic"], max_iter=1)
    assert np.isnan(fit.duality_gap())


@every_loss
@every_regularizer
def test_expensive_start_is_abandoned(regularizer: str, loss: str) -> None:
    data = random_problem(4)
    start = fitted(data, loss, max_iter=5).metric
    fit = fitted(data, loss, regularizer=regularizer, alpha=2.0, start=start, tol=1e-6)
    cold = fitted(data, loss, regularizer=regularizer, alpha=2.0, tol=1e-6)
    assert fit.objective() == pytest.approx(cold.objective(), rel=1e-5)
    if regularizer == "trace":
        assert fit.metric.n_directions == 0
    assert fit.duality_gap() <= 1e-5 * abs(fit.objective())


def test_float32_does_not_overflow_for_linear_loss() -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[::2], y[::2]
    c = Comparisons.from_labels(X, y, 1)
    X32 = X.astype(np.float32)
    fit = boost(X32, c, "smoothed_hinge", solver="totally_corrective", max_iter=40)
    assert fit.metric.directions.dtype == np.float32
    assert np.isfinite(fit.metric.matrix).all()
    assert fit.objective() <= 0.05 * fit.first_value


@every_regularizer
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "smoothed_hinge"])
def test_separable_fit_converges(loss: str, regularizer: str) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    X = rng.normal(size=(60, 4))
    X[:, 0] += 6 * y
    fit = boost(
        X,
        Comparisons.from_labels(X, y),
        loss,
        solver="totally_corrective",
        regularizer=regularizer,
        alpha=1e-9,
        max_iter=32,
    )
    assert fit.status is Status.CONVERGED
    assert (margins_of(fit) > 0).all()
    # Optimal to within a thousandth of a thousandth of the objective at M = 0.
    assert fit.duality_gap() <= 1e-3 * max(fit.objective(), 1e-3 * fit.first_value)


@pytest.mark.parametrize("loss", ["logistic", "exponential"])
def test_no_direction_is_left_at_optimum(loss: str) -> None:
    data = random_problem(6)
    fit = fitted(data, loss, alpha=0.1, tol=1e-8)
    scatter = np.einsum("r,rij->ij", duals_of(fit), matrices_of(*data))
    assert eigvalsh(scatter)[-1] <= fit.alpha + 1e-4 * fit.alpha_max


def algorithm4(X: NDArray, comparisons: Comparisons, v: float, n_directions: int) -> NDArray:
    """The paper's Algorithm 4 with the logistic loss: all coefficients after each eigenvector."""
    differences = X[comparisons.pairs[:, 0]] - X[comparisons.pairs[:, 1]]
    near, far = differences[comparisons.near], differences[comparisons.far]
    Z, w = np.empty((X.shape[1], 0)), np.empty(0)
    for _ in range(n_directions):
        u = expit(-((far @ Z) ** 2 - (near @ Z) ** 2) @ w)
        scatter = far.T @ (u[:, None] * far) - near.T @ (u[:, None] * near)
        Z = np.column_stack([Z, np.linalg.eigh(scatter)[1][:, -1]])
        H = (far @ Z) ** 2 - (near @ Z) ** 2

        def value_and_gradient(w: NDArray, H: NDArray = H) -> tuple[float, NDArray]:
            margins = H @ w
            return float(np.logaddexp(0, -margins).sum() + v * w.sum()), v - H.T @ expit(-margins)

        w = minimize(
            value_and_gradient,
            np.append(w, 0.0),
            jac=True,
            bounds=[(0, None)] * Z.shape[1],
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-12, "maxiter": 10_000, "maxfun": 100_000},
        ).x
    return (Z * w) @ Z.T


@pytest.mark.parametrize("v", [1e-2, 1.0])
@pytest.mark.parametrize("n_directions", [1, 3, 6])
def test_single_directions_are_algorithm_4(v: float, n_directions: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = X[:, 0] + 0.5 * X[:, 1] + 0.8 * rng.normal(size=60) > 0
    comparisons = Comparisons.from_labels(X, y, 3, 3)
    fit = boost(
        X,
        comparisons,
        "logistic",
        solver="totally_corrective",
        regularizer=Trace(v),
        directions_per_step=1,
        max_iter=n_directions,
        tol=0.0,
        eigen_solver="exact",
    )
    expected = algorithm4(X, comparisons, v, n_directions)
    np.testing.assert_allclose(fit.metric.matrix, expected, atol=1e-5 * np.abs(expected).max())
