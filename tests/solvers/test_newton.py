"""Newton steps, against dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, problem_of
from numpy.typing import NDArray
from scipy.special import expit

from boostmetric import LOSSES, Comparisons, boost
from boostmetric.problem import Step
from boostmetric.solvers.newton import (
    conjugate_gradients,
    newton_step_to_face,
    solve_newton_equation,
    step_face,
    turning_step,
)

every_loss = pytest.mark.parametrize("loss", SMOOTH)


@pytest.fixture
def triplets(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    X = rng.normal(size=(25, 3))
    return X, np.array([rng.permutation(25)[:3] for _ in range(150)])


def matrices(X: NDArray, rows: NDArray) -> NDArray:
    """A_r by the paper's definition, of shape (m, D, D)."""
    near, far = (X[rows[:, 0]] - X[rows[:, i]] for i in (1, 2))
    return np.einsum("ri,rj->rij", far, far) - np.einsum("ri,rj->rij", near, near)


def test_newton_equation_is_solved(
    triplets: tuple[NDArray, NDArray], rng: np.random.Generator
) -> None:
    X, rows = triplets
    A = matrices(X, rows)
    problem = problem_of(X, Comparisons.from_triplets(rows))
    M = 0.3 * np.eye(3)
    duals = expit(-np.einsum("rij,ij->r", A, M))
    target = rng.normal(size=(3, 3))
    target = target + target.T
    N, n_products = solve_newton_equation(problem, M, target, effort=10_000)
    second_derivatives = duals * (1 - duals)
    image = np.einsum("r,r,rij->ij", second_derivatives, np.einsum("rij,ij->r", A, N), A)
    np.testing.assert_allclose(image, target, rtol=1e-3, atol=1e-3)
    assert n_products > 0


@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
def test_newton_step_on_basis_matches_projected_points(
    regularizer: str, triplets: tuple[NDArray, NDArray], rng: np.random.Generator
) -> None:
    X, rows = triplets
    c = Comparisons.from_triplets(rows)
    basis = np.linalg.qr(rng.normal(size=(3, 2)))[0]
    Y, target = 0.3 * np.eye(2), np.diag([1.0, -0.5])
    here, _ = solve_newton_equation(
        problem_of(X, c, alpha=0.1, regularizer=regularizer), Y, target, basis
    )
    there, _ = solve_newton_equation(
        problem_of(X @ basis, c, alpha=0.1, regularizer=regularizer), Y, target
    )
    np.testing.assert_allclose(here, there, rtol=1e-8, atol=1e-10)


def test_conjugate_gradients_without_curvature_is_finite() -> None:
    target = np.eye(3)
    for hessian in (lambda N: 0 * N, lambda N: -N, lambda N: 1e-320 * N, lambda N: np.nan * N):
        N, n_products = conjugate_gradients(hessian, lambda R: 1e300 * R, target)
        assert np.isfinite(N).all()
        assert n_products >= 0


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_newton_step_lowers_objective(
    loss: str, dtype: type[np.floating], triplets: tuple[NDArray, NDArray]
) -> None:
    X, rows = triplets
    fit = boost(X.astype(dtype), Comparisons.from_triplets(rows), LOSSES[loss], max_iter=2)
    problem = fit.problem
    before, matrix = problem.M, problem.M.matrix
    assert matrix is not None
    found, value, n_evaluations = newton_step_to_face(problem, matrix, fit.objective())
    assert problem.M is before
    assert n_evaluations > 1
    assert found is not None
    sizes = np.linalg.norm(found, axis=0)
    problem.take(Step((found / sizes).astype(dtype), sizes**2, 0.0))
    here = problem.evaluate().value
    assert here == pytest.approx(value, rel=1e-9 if dtype is np.float64 else 1e-4)
    assert here < fit.objective()


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
@pytest.mark.parametrize("seed", range(3))
def test_turning_step_approaches_optimum(seed: int, loss: str) -> None:
    rng = np.random.default_rng([seed, 6])
    X = rng.normal(size=(30, 6))
    rows = np.array([rng.permutation(30)[:3] for _ in range(150)])
    near, far = (np.linalg.norm(X[rows[:, 0]] - X[rows[:, i]], axis=1) for i in (1, 2))
    swap = (near > far) & (rng.random(150) < 0.7)
    rows[swap] = rows[swap][:, [0, 2, 1]]
    options: dict[str, Any] = {"solver": "totally_corrective", "tol": 1e-9, "max_iter": 150}
    fit = boost(X, Comparisons.from_triplets(rows), loss, alpha=0.3, **options)
    optimum = fit.problem.M.matrix
    assert optimum is not None
    values, vectors = np.linalg.eigh(optimum)
    kept = values > 1e-2 * values.sum()
    assert 0 < kept.sum() < 6
    root = vectors[:, kept] * np.sqrt(values[kept])
    noise = np.random.default_rng(seed).normal(size=root.shape)
    root = root + 0.1 * np.linalg.norm(root) / np.linalg.norm(noise) * noise
    start = root @ root.T
    value = fit.problem.evaluate_at(start).value
    found, lower, _ = turning_step(fit.problem, start, value)
    assert found is not None
    assert fit.objective() * (1 - 1e-9) <= lower < value
    before, after = (np.linalg.norm(M - optimum) for M in (start, found @ found.T))
    assert after <= before / 3


# Not for the hinges: their second derivative is discontinuous, so any step may overshoot.
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_newton_step_stays_at_optimum(loss: str, triplets: tuple[NDArray, NDArray]) -> None:
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
    matrix = fit.problem.M.matrix
    assert matrix is not None
    face, end, _ = step_face(fit.problem, matrix)
    ahead = face.whiten @ end @ face.whiten.T
    np.testing.assert_allclose(ahead, matrix, atol=0.02 * np.abs(matrix).max())
