from __future__ import annotations

import numpy as np
import pytest
from conftest import SMOOTH, problem_of
from numpy.typing import NDArray
from scipy.special import expit

from boostmetric import LOSSES, ComparisonOperator, Comparisons, boost
from boostmetric import newton as newton_module
from boostmetric.newton import newton_metric, newton_step, step_face

every_loss = pytest.mark.parametrize("loss", SMOOTH)


@pytest.fixture
def triplets(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    X = rng.normal(size=(25, 3))
    return X, np.array([rng.permutation(25)[:3] for _ in range(150)])


def matrices(X: NDArray, rows: NDArray) -> NDArray:
    """A_r by the paper's definition, of shape (m, D, D)."""
    near, far = (X[rows[:, 0]] - X[rows[:, i]] for i in (1, 2))
    return np.einsum("ri,rj->rij", far, far) - np.einsum("ri,rj->rij", near, near)


def test_a_step_solves_the_newton_equation(
    triplets: tuple[NDArray, NDArray], monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(newton_module, "ACCURACY", 1e-6)
    X, rows = triplets
    A = matrices(X, rows)
    problem = problem_of(X, Comparisons.from_triplets(rows))
    M = 0.3 * np.eye(3)
    margins = np.einsum("rij,ij->r", A, M)
    target = rng.normal(size=(3, 3))
    target = target + target.T
    duals = expit(-margins)
    N, _ = newton_step(problem, margins, duals, target)
    second_derivatives = duals * (1 - duals)
    image = np.einsum("r,r,rij->ij", second_derivatives, np.einsum("rij,ij->r", A, N), A)
    np.testing.assert_allclose(image, target, rtol=1e-3, atol=1e-3)


def test_values_of_any_symmetric_matrix(
    triplets: tuple[NDArray, NDArray], rng: np.random.Generator
) -> None:
    X, rows = triplets
    N = rng.normal(size=(3, 3))
    N = N + N.T
    problem = problem_of(X, Comparisons.from_triplets(rows, gaps=0.5))
    expected = np.einsum("rij,ij->r", matrices(X, rows), N)
    np.testing.assert_allclose(problem.operator.values_of(N), expected, atol=1e-12)
    np.testing.assert_allclose(problem.margins_of(N), expected - 0.5, atol=1e-12)


def test_spread_is_the_sum_over_both_pairs(triplets: tuple[NDArray, NDArray]) -> None:
    X, rows = triplets
    duals = np.linspace(0, 1, len(rows))
    near, far = (X[rows[:, 0]] - X[rows[:, i]] for i in (1, 2))
    expected = np.einsum("r,ri,rj->ij", duals, far, far) + np.einsum(
        "r,ri,rj->ij", duals, near, near
    )
    operator = ComparisonOperator(X, Comparisons.from_triplets(rows))
    np.testing.assert_allclose(operator.spread(duals), expected, rtol=1e-10)


def test_a_projected_problem_is_that_of_the_projected_points(
    triplets: tuple[NDArray, NDArray], rng: np.random.Generator
) -> None:
    X, rows = triplets
    basis = rng.normal(size=(3, 2))
    comparisons = Comparisons.from_triplets(rows)
    v = rng.normal(size=2)
    projected = ComparisonOperator(X, comparisons).project(basis)
    expected = ComparisonOperator(X @ basis, comparisons)
    np.testing.assert_allclose(projected.responses(v), expected.responses(v), atol=1e-12)


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_lowers_the_objective_inside_the_cone(
    loss: str, dtype: type[np.floating], triplets: tuple[NDArray, NDArray]
) -> None:
    X, rows = triplets
    fit = boost(X.astype(dtype), Comparisons.from_triplets(rows), LOSSES[loss], max_iter=2)
    ahead, n_evaluations = newton_metric(fit.problem, fit.metric)
    assert n_evaluations > 1
    assert ahead is not None
    assert ahead.directions.dtype == dtype
    value = LOSSES[loss].value(fit.problem.margins(ahead)) + fit.alpha * ahead.coefs.sum()
    assert value < fit.objective()
    np.testing.assert_allclose(
        ahead.directions.T @ ahead.directions, np.eye(ahead.n_directions), atol=1e-5
    )


# The second derivative of the hinges jumps, so a step may overshoot from anywhere.
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_the_step_from_the_optimum_does_not_lead_away(
    loss: str, triplets: tuple[NDArray, NDArray]
) -> None:
    X, rows = triplets
    fit = boost(
        X,
        Comparisons.from_triplets(rows),
        LOSSES[loss],
        solver="totally_corrective",
        alpha=0.05,
        tol=0.0,
        max_iter=40,
    )
    matrix = fit.metric.matrix
    _, end, _ = step_face(fit.problem, matrix)
    np.testing.assert_allclose(end, matrix, atol=0.02 * np.abs(matrix).max())
