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
from dataclasses import dataclass

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

MAX_FACES = 4
"""Faces tried for one step, at most."""

LENGTHS = (1.0, 0.5, 0.25, 0.1)
"""Parts of a step that are tried until the objective falls."""

Map = Callable[[NDArray], NDArray]
"""A linear map of symmetric matrices."""


@dataclass(frozen=True, eq=False)
class Face:
    """A face of the cone, the matrices basis·Y·basisᵀ with Y ⪰ 0, and a Newton step on it.

    `whiten`, of shape (D, d), maps to coordinates in which the operator is round, `unwhiten` back;
    basis = whiten·`within`, whose columns are orthonormal. The step leads from Y = `start` to
    Y = `end`, at the margins and duals of the start.
    """

    whiten: NDArray
    unwhiten: NDArray
    within: NDArray
    start: NDArray
    end: NDArray
    n_evaluations: int


def newton_step(
    problem: Problem, margins: NDArray, duals: NDArray, target: NDArray
) -> tuple[NDArray, int]:
    """N with H[N] ≈ target, and the number of evaluations of duals.

    H is the Hessian of the objective at the margins. The preconditioner is R ↦ K⁻¹·R·K⁻¹, K the
    spread of the operator in the weights of the duals: for pairs whose differences are normally
    distributed H is of this form.
    """
    values, vectors = _axes(problem, duals)
    inverse = (vectors / values) @ vectors.T
    hessian = _hessian(problem, margins, duals)
    return conjugate_gradients(hessian, lambda R: inverse @ R @ inverse, target)


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


def conjugate_gradients(hessian: Map, precondition: Map, target: NDArray) -> tuple[NDArray, int]:
    """N with hessian(N) ≈ target, or zeros if it is not finite, and the number of products."""
    solution = np.zeros_like(target)
    residual = target
    search = preconditioned = precondition(residual)
    size = initial = float(np.sum(residual * preconditioned))
    n_products = 0
    while n_products < MAX_PRODUCTS and size > ACCURACY**2 * initial:
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


def newton_face(problem: Problem, matrix: NDArray) -> Face:
    """A Newton step from a metric, on a face that it does not leave.

    Where a step leads out of the cone, the eigenvectors through which it does are dropped, and the
    step is computed anew on the face that the others span.
    """
    duals = problem.duals(problem.margins_of(matrix))
    values, vectors = _axes(problem, duals)
    whiten, unwhiten = vectors / np.sqrt(values), vectors * np.sqrt(values)
    round_matrix = unwhiten.T @ matrix @ unwhiten
    within, n_evaluations = np.eye(len(round_matrix)), 1
    for tried in range(1, MAX_FACES + 1):
        face = problem.project(whiten @ within)
        start = within.T @ round_matrix @ within
        margins = face.margins_of(start)
        duals = face.duals(margins)
        step, n_products = newton_step(face, margins, duals, face.descent(start, duals))
        n_evaluations += 1 + n_products
        values, vectors = eigh(start + step)
        if tried == MAX_FACES or values[0] >= 0 or values[-1] <= 0:
            break
        within = within @ vectors[:, values > 0]
    end = (vectors * np.maximum(values, 0)) @ vectors.T
    return Face(whiten, unwhiten, within, start, end, n_evaluations)


def turning_step(problem: Problem, face: Face) -> tuple[Callable[[float], NDArray], int]:
    """A Newton step from the start of a face that turns the face too (see above).

    Returns the metric that a part of the step leads to, as a function of that part, and the number
    of evaluations of duals.
    """
    W, V = face.within, null_space(face.within.T)
    values, vectors = eigh(face.start)
    kept = values > np.finfo(np.float64).eps * values[-1]
    W, y = W @ vectors[:, kept], values[kept]
    start = (W * y) @ W.T
    round_problem = problem.project(face.whiten)
    margins = round_problem.margins_of(start)
    duals = round_problem.duals(margins)
    descent = round_problem.descent(start, duals)
    s, vectors = eigh(-V.T @ descent @ V)
    V, s = V @ vectors, np.maximum(s, 0)
    basis, r = np.column_stack([W, V]), len(y)
    # In the basis (W, V), where Y and S are diagonal: N has the blocks dY and B, and no more.
    stiffness = s[None, :] / y[:, None]
    hessian = _hessian(round_problem, margins, duals)

    def inside(N: NDArray) -> NDArray:
        N = N.copy()
        N[r:, r:] = 0
        return N

    def turning_hessian(N: NDArray) -> NDArray:
        image = inside(basis.T @ hessian(basis @ N @ basis.T) @ basis)
        image[:r, r:] += stiffness * N[:r, r:]
        image[r:, :r] += stiffness.T * N[r:, :r]
        return image

    target = inside(basis.T @ descent @ basis)
    size = float(np.sum(target * turning_hessian(target)) / np.sum(target * target))
    diagonal = np.full_like(target, max(size, np.finfo(np.float64).tiny))
    diagonal[:r, r:] += stiffness
    diagonal[r:, :r] += stiffness.T
    N, n_products = conjugate_gradients(turning_hessian, lambda R: R / diagonal, target)

    def metric_after(part: float) -> NDArray:
        turned = W + part * V @ (N[:r, r:] / y[:, None]).T
        values, vectors = eigh(np.diag(y) + part * N[:r, :r])
        root = face.whiten @ turned @ (vectors * np.sqrt(np.maximum(values, 0)))
        return root @ root.T

    return metric_after, n_products + 2


def newton_metric(problem: Problem, metric: Metric) -> tuple[Metric | None, int]:
    """A metric with a lower objective, a Newton step away, and the number of evaluations of duals.

    The metric, whose directions are orthogonal, is None where no part of the step lowers the
    objective.
    """
    matrix = metric.matrix.astype(np.float64)
    before = problem.objective(problem.margins(metric), metric)
    face = newton_face(problem, matrix)
    basis, n_evaluations = face.whiten @ face.within, face.n_evaluations
    end = basis @ face.end @ basis.T
    found, lowest = None, before

    def search(metric_after: Callable[[float], NDArray]) -> None:
        nonlocal found, lowest
        for length in LENGTHS:
            values, vectors = eigh(metric_after(length))
            kept = values > np.finfo(np.float64).eps * values[-1]
            ahead = Metric(vectors[:, kept], values[kept]).astype(problem.operator.dtype)
            value = problem.objective(problem.margins(ahead), ahead)
            if value < lowest:
                found, lowest = ahead, value
                return

    search(lambda length: (1 - length) * matrix + length * end)
    if 0 < face.within.shape[1] < len(face.within):
        metric_after, n_products = turning_step(problem, face)
        n_evaluations += n_products
        search(metric_after)
    return found, n_evaluations
