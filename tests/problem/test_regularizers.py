"""Regularizers against their formulas for matrices, finite differences and optimality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, duals_of, read_only
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from boostmetric import Boosting, Metric, boost, learn_psd
from boostmetric.problem import (
    REGULARIZERS,
    Comparisons,
    Frobenius,
    Regularizer,
    Shrinkage,
    Step,
    Sum,
    Trace,
)

ALPHA = 0.7
CENTER = 0.6
STEP = 1e-4

FORMULAS: dict[str, Callable[[NDArray], float]] = {
    "trace": lambda matrix: ALPHA * float(np.trace(matrix)),
    "frobenius": lambda matrix: ALPHA / 2 * float(np.sum(matrix * matrix)),
    "shrinkage": lambda matrix: (
        ALPHA / 2 * float(np.sum((matrix - CENTER * np.eye(len(matrix))) ** 2))
    ),
}

every_regularizer = pytest.mark.parametrize("name", list(FORMULAS))


# M after no, one and several steps, with its matrix and without, in both precisions.
every_sum = pytest.mark.parametrize(
    ("n_directions", "with_matrix", "dtype"),
    [
        ((), True, np.float64),
        ((1,), False, np.float32),
        ((1,), True, np.float64),
        ((2, 1, 4), False, np.float64),
        ((2, 1, 4), True, np.float32),
    ],
)


def regularizer_of(name: str) -> Regularizer:
    if name == "shrinkage":
        return Shrinkage(ALPHA, center=CENTER)
    return REGULARIZERS[name](ALPHA)


def random_sum(
    rng: np.random.Generator,
    n_directions: tuple[int, ...],
    dtype: type[np.floating] = np.float64,
    with_matrix: bool = True,
    D: int = 4,
) -> Sum:
    """M after steps with directions that are not orthogonal, so no coefficient is an eigenvalue.

    The second step scales what is there.
    """
    M = Sum(D, np.dtype(dtype), matrix=np.zeros((D, D)) if with_matrix else None)
    for number, k in enumerate(n_directions):
        metric = Metric.from_components(rng.standard_normal((k, D))).astype(dtype)
        read_only(metric.directions, metric.coefs)
        M = M.after(Step(metric.directions, metric.coefs, 0.6 if number == 1 else 1.0))
    return M


def matrix_of(M: Sum) -> NDArray:
    """M, term by term, in float64."""
    matrix = np.zeros((M.n_features, M.n_features))
    for step in M.steps:
        matrix *= step.scale
        for v, w in zip(step.directions.T.astype(np.float64), step.coefs, strict=True):
            matrix += w * np.outer(v, v)
    return matrix


def random_symmetric(rng: np.random.Generator, D: int = 4) -> NDArray:
    A = rng.standard_normal((D, D))
    return A + A.T


def symmetric_basis(D: int) -> list[NDArray]:
    """The D·(D + 1)/2 symmetric matrices with one or two entries 1."""
    basis = []
    for i in range(D):
        for j in range(i + 1):
            E = np.zeros((D, D))
            E[i, j] = E[j, i] = 1
            basis.append(E)
    return basis


@every_regularizer
@every_sum
def test_value_matches_the_formula(
    name: str,
    n_directions: tuple[int, ...],
    with_matrix: bool,
    dtype: type[np.floating],
    rng: np.random.Generator,
) -> None:
    M = random_sum(rng, n_directions, dtype, with_matrix)
    expected = FORMULAS[name](matrix_of(M))
    value = regularizer_of(name).value(M)
    assert value == pytest.approx(expected, rel=1e-12 if dtype is np.float64 else 1e-6)


@every_regularizer
def test_value_of_matches_the_formula(name: str, rng: np.random.Generator) -> None:
    N = random_symmetric(rng)
    assert regularizer_of(name).value_of(N) == pytest.approx(FORMULAS[name](N), rel=1e-12)


@every_regularizer
def test_gradient_is_the_slope_of_the_formula(name: str, rng: np.random.Generator) -> None:
    N = random_symmetric(rng)
    gradient = regularizer_of(name).gradient(N)
    assert gradient == pytest.approx(gradient.T)
    for E in symmetric_basis(len(N)):
        ahead, behind = (FORMULAS[name](N + t * E) for t in (STEP, -STEP))
        slope = (ahead - behind) / (2 * STEP)
        assert np.sum(gradient * E) == pytest.approx(slope, rel=1e-6, abs=1e-6)


@every_regularizer
def test_curvature_is_the_second_derivative_along_a_direction(
    name: str, rng: np.random.Generator
) -> None:
    N, v = random_symmetric(rng), rng.standard_normal(4)
    outer = np.outer(v, v) / (v @ v)
    ahead, here, behind = (FORMULAS[name](N + t * outer) for t in (1, 0, -1))
    # Exact for a quadratic function, whatever the length of the steps.
    expected = ahead - 2 * here + behind
    assert regularizer_of(name).curvature == pytest.approx(expected, rel=1e-9, abs=1e-10)


@every_regularizer
@every_sum
def test_along_matches_the_formula(
    name: str,
    n_directions: tuple[int, ...],
    with_matrix: bool,
    dtype: type[np.floating],
    rng: np.random.Generator,
) -> None:
    M = random_sum(rng, n_directions, dtype, with_matrix)
    v = rng.standard_normal(4)
    v = (v / np.linalg.norm(v)).astype(dtype)
    p, q = regularizer_of(name).along(M, v)
    outer = np.outer(v, v).astype(np.float64)
    for w in (0.0, 0.5, 3.0):
        ahead, behind = (FORMULAS[name](matrix_of(M) + (w + t) * outer) for t in (STEP, -STEP))
        near = 1e-5 if dtype is np.float32 else 1e-7
        assert p + q * w == pytest.approx((ahead - behind) / (2 * STEP), rel=near)


@every_regularizer
@every_sum
def test_on_slice_matches_the_formula(
    name: str,
    n_directions: tuple[int, ...],
    with_matrix: bool,
    dtype: type[np.floating],
    rng: np.random.Generator,
) -> None:
    M = random_sum(rng, n_directions, dtype, with_matrix)
    old, near = matrix_of(M), 1e-6 if dtype is np.float32 else 1e-12
    for k, scale in product((1, 4, 5, 12), (0.0, 0.7, 1.0)):
        directions = Metric.from_components(rng.standard_normal((k, 4))).directions.astype(dtype)
        coefs = rng.exponential(size=k)
        read_only(directions, coefs)
        exact = directions.astype(np.float64)

        def formula(z: NDArray, exact: NDArray = exact) -> float:
            return FORMULAS[name](z[0] * old + (exact * z[1:]) @ exact.T)

        penalty = regularizer_of(name).on_slice(M, directions)
        value, slopes = penalty(scale, coefs)
        at = np.append(scale, coefs)
        assert value == pytest.approx(formula(at), rel=near)
        steps = STEP * np.eye(1 + k)
        expected = [(formula(at + e) - formula(at - e)) / (2 * STEP) for e in steps]
        assert slopes == pytest.approx(np.array(expected), rel=1e-6, abs=1e-9)
        assert penalty(2 * scale, 2 * coefs)[0] == pytest.approx(formula(2 * at), rel=near)


@every_regularizer
@every_sum
def test_reduce_subtracts_the_gradient_except_for_the_threshold(
    name: str,
    n_directions: tuple[int, ...],
    with_matrix: bool,
    dtype: type[np.floating],
    rng: np.random.Generator,
) -> None:
    regularizer = regularizer_of(name)
    M = random_sum(rng, n_directions, dtype, with_matrix)
    scatter = random_symmetric(rng).astype(dtype)
    read_only(scatter)
    gradient = {
        "trace": ALPHA * np.eye(4),
        "frobenius": ALPHA * matrix_of(M),
        "shrinkage": ALPHA * (matrix_of(M) - CENTER * np.eye(4)),
    }[name]
    expected = scatter - gradient + regularizer.threshold * np.eye(4)
    near = 1e-5 if dtype is np.float32 else 1e-12
    v = rng.standard_normal(4).astype(dtype)
    for given, kind in ((scatter, np.ndarray), (aslinearoperator(scatter), LinearOperator)):
        reduced = regularizer.reduce(given, M)
        assert isinstance(reduced, kind)
        assert reduced.shape == (4, 4)
        if kind is LinearOperator:  # eigensolvers work in its precision; a matrix may be float64
            assert reduced.dtype == dtype
        assert reduced @ np.eye(4, dtype=dtype) == pytest.approx(expected, rel=near, abs=near)
        assert reduced @ v == pytest.approx(expected @ v, rel=near, abs=10 * near)


def test_in_units_gives_the_same_penalty(rng: np.random.Generator) -> None:
    """With matrices A_r·unit, M/unit has the same margins and must have the same penalty."""
    A, unit = rng.standard_normal((4, 4)), 2.0**-7
    for name, kind in REGULARIZERS.items():
        other = replace(regularizer_of(name), alpha=kind.in_units(ALPHA, unit))
        if isinstance(other, Shrinkage):
            other = replace(other, center=CENTER / unit)
        assert other.value_of(A @ A.T / unit) == pytest.approx(FORMULAS[name](A @ A.T), rel=1e-13)


def smallest_by_cvxpy(name: str, G: NDArray) -> float:
    cvxpy = pytest.importorskip("cvxpy")
    P = cvxpy.Variable(G.shape, PSD=True)
    cost = {
        "trace": lambda: ALPHA * cvxpy.trace(P),
        "frobenius": lambda: ALPHA / 2 * cvxpy.square(cvxpy.norm(P, "fro")),
        "shrinkage": lambda: (
            ALPHA / 2 * cvxpy.square(cvxpy.norm(P - CENTER * np.eye(len(G)), "fro"))
        ),
    }[name]()
    problem = cvxpy.Problem(cvxpy.Minimize(cost - cvxpy.trace(G @ P)))
    problem.solve(solver="CLARABEL")
    return float(problem.value)


@pytest.mark.parametrize("seed", range(4))
@every_regularizer
def test_smallest_matches_a_semidefinite_program(name: str, seed: int) -> None:
    G = random_symmetric(np.random.default_rng(seed))
    if name == "trace":
        G *= 0.9 * ALPHA / np.linalg.eigvalsh(G)[-1]
    expected = smallest_by_cvxpy(name, G)
    assert regularizer_of(name).smallest(G) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", ["trace", "frobenius"])
def test_smallest_is_zero_for_a_negative_scatter(name: str, rng: np.random.Generator) -> None:
    A = rng.standard_normal((4, 4))
    for alpha in (0.0, ALPHA):
        assert REGULARIZERS[name](alpha).smallest(-A @ A.T - np.eye(4)) == 0
        assert REGULARIZERS[name](alpha).smallest(np.zeros((4, 4))) == 0


def test_smallest_is_unbounded_for_small_alpha(rng: np.random.Generator) -> None:
    G = random_symmetric(rng)
    highest = float(np.linalg.eigvalsh(G)[-1])
    assert highest > 0
    assert Trace(0.99 * highest).smallest(G) == -np.inf
    assert Trace(1.01 * highest).smallest(G) == 0
    assert Frobenius(0.0).smallest(G) == -np.inf
    assert np.isfinite(Frobenius(1e-9).smallest(G))


@pytest.mark.parametrize("budget", [0.5, 30.0])
def test_smallest_within_a_budget_is_at_one_direction(
    budget: float, rng: np.random.Generator
) -> None:
    """Both functions are linear in M, so all of the trace goes to the leading eigenvector."""
    G = random_symmetric(rng)
    values, vectors = np.linalg.eigh(G)
    assert values[-1] > ALPHA
    M = budget / ALPHA * np.outer(vectors[:, -1], vectors[:, -1])
    expected = FORMULAS["trace"](M) - np.sum(G * M)
    assert Trace(ALPHA).smallest(G, budget) == pytest.approx(expected, rel=1e-12)


def test_repr_contains_alpha() -> None:
    assert [repr(kind(0.25)) for kind in REGULARIZERS.values()] == [
        "Trace(alpha=0.25)",
        "Frobenius(alpha=0.25)",
        "Shrinkage(alpha=0.25)",
    ]
    assert repr(Shrinkage(center=2.0)) == "Shrinkage(center=2)"


def random_triplets(rng: np.random.Generator, n: int = 25, D: int = 3) -> tuple[NDArray, NDArray]:
    """Points, and triplets of which one in three is the wrong way round in two features."""
    X = rng.standard_normal((n, D))
    rows = np.array([rng.permutation(n)[:3] for _ in range(80)])
    near, far = (np.linalg.norm((X[rows[:, 0]] - X[rows[:, i]])[:, :2], axis=1) for i in (1, 2))
    swap = (near > far) != (rng.random(80) < 0.3)
    rows[swap] = rows[swap][:, [0, 2, 1]]
    return X, rows


def optimum(X: NDArray, rows: NDArray, loss: str, **options: Any) -> Boosting:
    options = {"solver": "totally_corrective", "alpha": 0.05, "tol": 1e-6, **options}
    return boost(X, Comparisons.from_triplets(rows), loss, **options)


@every_regularizer
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
@pytest.mark.parametrize("scale", [1e-3, 20.0])
def test_relative_alpha_is_scale_invariant(
    scale: float, loss: str, name: str, rng: np.random.Generator
) -> None:
    X, rows = random_triplets(rng)
    here = optimum(X, rows, loss, regularizer=name)
    there = optimum(scale * X, rows, loss, regularizer=name)
    expected = here.metric.matrix
    assert here.metric.n_directions > 0
    assert there.objective() == pytest.approx(here.objective(), rel=1e-5)
    near = 1e-2 * np.abs(expected).max()
    assert scale**2 * there.metric.matrix == pytest.approx(expected, abs=near)


@every_regularizer
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_relative_alpha_does_not_depend_on_repetition(
    loss: str, name: str, rng: np.random.Generator
) -> None:
    X, rows = random_triplets(rng)
    once = optimum(X, rows, loss, regularizer=name, alpha=0.5).metric.matrix
    rows = np.tile(rows, (3, 1))
    thrice = optimum(X, rows, loss, regularizer=name, alpha=0.5).metric.matrix
    assert once.any()
    assert thrice == pytest.approx(once, abs=3e-3 * np.abs(once).max())


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_trace_unit_is_the_smallest_alpha_with_a_zero_optimum(
    loss: str, rng: np.random.Generator
) -> None:
    X, rows = random_triplets(rng)
    assert optimum(X, rows, loss, alpha=1.001).metric.n_directions == 0
    assert optimum(X, rows, loss, alpha=0.999).metric.n_directions > 0


def test_frobenius_unit_adds_one_to_the_average_margin() -> None:
    """F falls as in its tangent, so that the first step is to λ_max/alpha."""
    stack = np.array([np.diag([4.0, 1.0]), np.diag([2.0, -3.0])])
    duals = np.array([0.5, 1.5])
    highest, direction = 5.0, np.array([1.0, 0.0])
    alpha = Frobenius.unit(highest, float(duals.sum()))
    margins = np.einsum("rij,i,j->r", stack, direction, direction) * highest / alpha
    assert duals @ margins / duals.sum() == pytest.approx(1)


@pytest.mark.parametrize("kind", list(REGULARIZERS.values()))
def test_units_are_zero_if_no_direction_helps(kind: Any) -> None:
    assert kind.unit(-2.0, 3.0) == 0
    assert kind.unit(0.0, 0.0) == 0


@every_regularizer
@pytest.mark.parametrize("loss", SMOOTH)
def test_optimum_satisfies_the_kkt_conditions(
    loss: str, name: str, rng: np.random.Generator
) -> None:
    X, rows = random_triplets(rng)
    fit = optimum(X, rows, loss, regularizer=name, alpha=0.2)
    M = fit.metric.matrix
    identity, regularizer = np.eye(len(M)), fit.problem.regularizer
    gradient = {
        "trace": fit.alpha * identity,
        "frobenius": fit.alpha * M,
        "shrinkage": fit.alpha * (M - regularizer.multiple / fit.problem.unit * identity),
    }[name]
    differences = (X[rows[:, 0]] - X[rows[:, i]] for i in (2, 1))
    far, near = (np.einsum("ri,rj->rij", d, d) for d in differences)
    descent = np.einsum("r,rij->ij", duals_of(fit), far - near) - gradient
    small = 1e-3 * fit.alpha_max
    assert M.any()
    assert np.linalg.eigvalsh(M)[0] >= -1e-12
    assert np.linalg.eigvalsh(descent)[-1] <= small
    assert np.sum(descent * M) == pytest.approx(0, abs=small * np.trace(M))


def test_trace_favors_low_rank() -> None:
    """Two orthogonal directions that help nearly alike."""
    stack = np.array([np.diag([1.0, 0.0]), np.diag([0.0, 0.95])])
    few, many = (
        learn_psd(stack, "logistic", alpha=0.97, regularizer=name, tol=1e-6).metric.eigenvalues
        for name in ("trace", "frobenius")
    )
    assert len(few) == 1
    assert len(many) == 2
    assert many[1] > 0.9 * many[0]
