"""Newton steps in the space of symmetric matrices, on the faces of the semidefinite cone.

An optimum of low rank lies on a face, the matrices W·Y·Wᵀ with Y ⪰ 0 for an orthonormal W. A step
on the face alone would not know that the face may turn. Write V for what is orthogonal to W. The
matrices of the same rank near W·Y·Wᵀ are, to second order,

    W·(Y + dY)·Wᵀ + W·B·Vᵀ + V·Bᵀ·Wᵀ + V·BᵀY⁻¹B·Vᵀ,

so the objective is that of N = W·dY·Wᵀ + W·B·Vᵀ + V·Bᵀ·Wᵀ, plus ⟨S, BᵀY⁻¹B⟩ with S = Vᵀ∇V, the
gradient off the face, which at the optimum is positive. The Newton equation for (dY, B) has that
term in its Hessian, and the steps converge quadratically where S is positive definite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, null_space

from boostmetric.metric import Metric
from boostmetric.problem import Problem

MAX_PRODUCTS = 30
"""Products with the Hessian in one solution of the Newton equation, at most."""

ACCURACY = 1e-2
"""Relative accuracy of that solution."""

DIFFERENCE = 1e-3
"""The largest change of a margin in the difference of duals that stands for the Hessian."""

EFFORT = 2
"""How much more a step that turns the face is worth."""

RANKS = (1e-7, 1e-4, 1e-2)
"""Eigenvalues of a metric below this share of the largest, in round coordinates, are none.

Small ones that should be 0 stand in the way of a step, so where it fails fewer are kept."""

MAX_FACES = 4
"""Faces tried for one step, at most."""

PARTS = (1.0, 0.5, 0.25, 0.1, 0.03)
"""Parts of a step that are tried until the objective falls."""

Map = Callable[[NDArray], NDArray]
"""A linear map of symmetric matrices."""


@dataclass(frozen=True, eq=False)
class Face:
    """A face of the cone, the matrices basis·Y·basisᵀ with Y ⪰ 0.

    `whiten`, of shape (D, d), maps to coordinates in which the operator is round, `unwhiten` back;
    basis = whiten·`within`, whose columns are orthonormal.
    """

    whiten: NDArray
    unwhiten: NDArray
    within: NDArray

    @property
    def basis(self) -> NDArray:
        """Of shape (D, dimension of the face)."""
        return self.whiten @ self.within

    @property
    def off(self) -> NDArray:
        """Orthonormal columns that span what is orthogonal to `within`."""
        # Not all versions of SciPy know the null space of an empty matrix.
        return null_space(self.within.T) if self.within.size else np.eye(len(self.within))


def _whitened(problem: Problem, matrix: NDArray) -> tuple[Face, NDArray]:
    """The whole cone in round coordinates, and a matrix in them."""
    values, vectors = _axes(problem, problem.duals(problem.margins_of(matrix)))
    unwhiten = vectors * np.sqrt(values)
    face = Face(vectors / np.sqrt(values), unwhiten, np.eye(len(values)))
    return face, unwhiten.T @ matrix @ unwhiten


def newton_step(
    problem: Problem, margins: NDArray, duals: NDArray, target: NDArray, effort: int = 1
) -> tuple[NDArray, int]:
    """N with H[N] ≈ target, and the number of evaluations of duals.

    With more `effort` the solution is more accurate by that factor, and may take so much longer.

    H is the Hessian of the objective at the margins. The preconditioner is R ↦ K⁻¹·R·K⁻¹, K the
    spread of the operator in the weights of the duals: for pairs whose differences are normally
    distributed H is of this form.
    """
    values, vectors = _axes(problem, duals)
    inverse = (vectors / values) @ vectors.T
    hessian = _hessian(problem, margins, duals)
    return conjugate_gradients(hessian, lambda R: inverse @ R @ inverse, target, effort)


def _hessian(problem: Problem, margins: NDArray, duals: NDArray) -> Map:
    """N ↦ Σ_rs F''_rs·⟨A_s, N⟩·A_r + ∇²R[N], by a difference of duals along N."""
    operator = problem.operator

    def product(N: NDArray) -> NDArray:
        change = operator.values_of(N)
        largest = float(np.abs(change).max())
        if largest == 0:
            return np.zeros_like(N) + problem.regularizer.hessian(N)
        length = DIFFERENCE / largest
        moved = problem.duals(margins + change.dtype.type(length) * change)
        curved = operator.scatter_matrix((duals - moved) / length).astype(np.float64)
        return curved + problem.regularizer.hessian(N)

    return product


@np.errstate(over="ignore", invalid="ignore")  # where H vanishes, the solution may be anything
def conjugate_gradients(
    hessian: Map, precondition: Map, target: NDArray, effort: int = 1
) -> tuple[NDArray, int]:
    """N with hessian(N) ≈ target, or zeros if it is not finite, and the number of products."""
    solution = np.zeros_like(target)
    residual = target
    search = preconditioned = precondition(residual)
    size = initial = float(np.sum(residual * preconditioned))
    n_products = 0
    while n_products < effort * MAX_PRODUCTS and size > (ACCURACY / effort) ** 2 * initial:
        if not np.isfinite(search).all():
            break
        image = hessian(search)
        n_products += 1
        curvature = float(np.sum(search * image))
        if not curvature > 0:
            break
        solution = solution + size / curvature * search
        residual = residual - size / curvature * image
        preconditioned = precondition(residual)
        last, size = size, float(np.sum(residual * preconditioned))
        search = preconditioned + size / last * search
    finite = np.isfinite(solution).all()
    return (solution if finite else np.zeros_like(target)), n_products


def _axes(problem: Problem, duals: NDArray) -> tuple[NDArray, NDArray]:
    """The eigenvalues and eigenvectors of K, without those of directions that no A_r has."""
    sizes = np.abs(duals)
    spread = problem.operator.spread(sizes if sizes.any() else np.ones_like(sizes))
    values, vectors = eigh(spread.astype(np.float64))
    seen = values > 16 * np.finfo(problem.operator.dtype).eps * values[-1]
    return values[seen], vectors[:, seen]


def step_face(problem: Problem, matrix: NDArray) -> tuple[Face, NDArray, int]:
    """A face that a Newton step from a metric does not leave, and where on it the step ends.

    Where a step leads out of the cone, the eigenvectors through which it does are dropped, and the
    step is computed anew on the face that the others span. The third result is the number of
    evaluations of duals.
    """
    face, round_matrix = _whitened(problem, matrix)
    n_evaluations = 1
    for tried in range(1, MAX_FACES + 1):
        on_face = problem.project(face.basis)
        start = face.within.T @ round_matrix @ face.within
        margins = on_face.margins_of(start)
        duals = on_face.duals(margins)
        step, n_products = newton_step(on_face, margins, duals, on_face.descent(start, duals))
        n_evaluations += 1 + n_products
        values, vectors = eigh(start + step)
        if tried == MAX_FACES or values[0] >= 0 or values[-1] <= 0:
            break
        face = replace(face, within=face.within @ vectors[:, values > 0])
    root = face.basis @ (vectors * np.sqrt(np.maximum(values, 0)))
    return face, root @ root.T, n_evaluations


def own_face(problem: Problem, matrix: NDArray, accuracy: float = RANKS[0]) -> tuple[Face, NDArray]:
    """The face that a metric lies on, and its eigenvalues there that count."""
    face, round_matrix = _whitened(problem, matrix)
    values, vectors = eigh(round_matrix)
    kept = values > accuracy * values[-1]
    return replace(face, within=vectors[:, kept]), values[kept]


def turning_step(
    problem: Problem, matrix: NDArray, accuracy: float = RANKS[0]
) -> tuple[Callable[[float], NDArray], int]:
    """A Newton step from a metric that turns the face it lies on (see above).

    Returns the matrix that a part of the step leads to, as a function of that part, and the number
    of evaluations of duals.
    """
    face, y = own_face(problem, matrix, accuracy)
    W, V = face.within, face.off
    start = (W * y) @ W.T
    round_problem = problem.project(face.whiten)
    margins = round_problem.margins_of(start)
    duals = round_problem.duals(margins)
    descent = round_problem.descent(start, duals)
    s, vectors = eigh(-V.T @ descent @ V) if V.size else (np.empty(0), np.empty((0, 0)))
    V = V @ vectors
    # In the basis (W, V), where Y and S are diagonal: N has the blocks dY and B, and no more.
    basis, r = np.column_stack([W, V]), len(y)
    stiffness = np.zeros((len(basis), len(basis)))
    stiffness[:r, r:] = np.maximum(s, 0)[None, :] / y[:, None]
    stiffness += stiffness.T
    free = np.ones_like(stiffness)
    free[r:, r:] = 0
    hessian = _hessian(round_problem, margins, duals)

    def turning_hessian(N: NDArray) -> NDArray:
        return free * (basis.T @ hessian(basis @ N @ basis.T) @ basis) + stiffness * N

    target = free * (basis.T @ descent @ basis)
    square = float(np.sum(target**2))
    size = float(np.sum(target * turning_hessian(target))) / square if square > 0 else 0.0
    diagonal = max(size, np.finfo(np.float64).tiny) + stiffness
    N, n_products = conjugate_gradients(turning_hessian, lambda R: R / diagonal, target, EFFORT)

    def after(part: float) -> NDArray:
        turned = W + part * V @ (N[:r, r:] / y[:, None]).T
        values, vectors = eigh(np.diag(y) + part * N[:r, :r])
        root = face.whiten @ turned @ (vectors * np.sqrt(np.maximum(values, 0)))
        return root @ root.T

    return after, n_products + 3


def newton_metric(problem: Problem, metric: Metric) -> tuple[Metric | None, int]:
    """A metric with a lower objective, a Newton step away, and the number of evaluations of duals.

    The step may lead to any face of the cone. The metric, whose directions are orthogonal, is None
    where no part of the step lowers the objective.
    """
    matrix = metric.matrix.astype(np.float64)
    _, end, n_evaluations = step_face(problem, matrix)
    return _lower(problem, metric, lambda part: (1 - part) * matrix + part * end), n_evaluations


def turned_metric(problem: Problem, metric: Metric) -> tuple[Metric | None, int]:
    """As `newton_metric`, by a step to a face of the same dimension or less."""
    matrix, n_evaluations = metric.matrix.astype(np.float64), 0
    for accuracy in RANKS:
        after, n = turning_step(problem, matrix, accuracy)
        n_evaluations += n
        ahead = _lower(problem, metric, after)
        if ahead is not None:
            break
    return ahead, n_evaluations


def _lower(problem: Problem, metric: Metric, after: Callable[[float], NDArray]) -> Metric | None:
    """The metric after the longest part of a step that lowers the objective."""
    before = problem.objective(problem.margins(metric), metric)
    for part in PARTS:
        with np.errstate(over="ignore", invalid="ignore"):
            end = after(part)
        if not np.isfinite(end).all():
            continue
        values, vectors = eigh(end)
        kept = values > np.finfo(np.float64).eps * values[-1]
        ahead = Metric(vectors[:, kept], values[kept]).astype(problem.operator.dtype)
        if problem.objective(problem.margins(ahead), ahead) < before:
            return ahead
    return None
