"""Newton steps in the space of symmetric matrices, on the faces of the semidefinite cone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from boostmetric.losses import Loss
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


@dataclass(frozen=True, eq=False)
class Face:
    """A face of the cone, the matrices basis·Y·basisᵀ with Y ⪰ 0, and a Newton step on it.

    `whiten`, of shape (D, d), maps to coordinates in which the pairs of points are round,
    `unwhiten` back; basis = whiten·`within`, whose columns are orthonormal. The step ends at
    Y = `end`.
    """

    whiten: NDArray
    unwhiten: NDArray
    within: NDArray
    end: NDArray
    n_evaluations: int


def newton_step(
    problem: Problem, loss: Loss, margins: NDArray, duals: NDArray, target: NDArray
) -> tuple[NDArray, int]:
    """N with H[N] ≈ target, by conjugate gradients, and the number of evaluations of duals.

    H[N] = Σ_rs F''_rs·⟨A_s, N⟩·A_r, the Hessian of the loss at the margins, is a difference of
    duals along N. The preconditioner is R ↦ K⁻¹·R·K⁻¹, K the sum of all pairs' matrices in the
    weights of the duals: for differences that are normally distributed H is of this form.
    """
    values, vectors = _axes(problem, duals)
    inverse = (vectors / values) @ vectors.T

    def product(N: NDArray) -> NDArray:
        change = problem.values_of(N)
        largest = float(np.abs(change).max())
        if largest == 0:
            return np.zeros_like(N)
        length = DIFFERENCE / largest
        moved = loss.duals(margins + change.dtype.type(length) * change, problem.weights)
        return problem.scatter_matrix((duals - moved) / length).astype(np.float64)

    solution = np.zeros_like(target)
    residual = target
    search = preconditioned = inverse @ residual @ inverse
    size = initial = float(np.sum(residual * preconditioned))
    n_products = 0
    while n_products < MAX_PRODUCTS and size > ACCURACY**2 * initial:
        image = product(search)
        n_products += 1
        curvature = float(np.sum(search * image))
        if not curvature > 0:
            break
        solution = solution + size / curvature * search
        residual = residual - size / curvature * image
        preconditioned = inverse @ residual @ inverse
        last, size = size, float(np.sum(residual * preconditioned))
        search = preconditioned + size / last * search
    finite = np.isfinite(solution).all()
    return (solution if finite else np.zeros_like(target)), n_products


def _axes(problem: Problem, duals: NDArray) -> tuple[NDArray, NDArray]:
    """The eigenvalues and eigenvectors of K, without those of directions that no pair has."""
    values, vectors = eigh(problem.spread(duals).astype(np.float64))
    seen = values > 16 * np.finfo(problem.X.dtype).eps * values[-1]
    return values[seen], vectors[:, seen]


def newton_face(problem: Problem, loss: Loss, alpha: float, matrix: NDArray) -> Face:
    """A Newton step for F(ρ) + alpha·Tr M from a metric, on a face that it does not leave.

    Where a step leads out of the cone, the eigenvectors through which it does are dropped, and the
    step is computed anew on the face that the others span.
    """
    duals = loss.duals(problem.margins_of(matrix), problem.weights)
    values, vectors = _axes(problem, duals)
    whiten, unwhiten = vectors / np.sqrt(values), vectors * np.sqrt(values)
    round_matrix = unwhiten.T @ matrix @ unwhiten
    within, n_evaluations = np.eye(len(round_matrix)), 1
    for tried in range(1, MAX_FACES + 1):
        basis = whiten @ within
        face = problem.project(basis)
        start = within.T @ round_matrix @ within
        margins = face.margins_of(start)
        duals = loss.duals(margins, problem.weights)
        target = face.scatter_matrix(duals).astype(np.float64) - alpha * basis.T @ basis
        step, n_products = newton_step(face, loss, margins, duals, target)
        n_evaluations += 1 + n_products
        values, vectors = eigh(start + step)
        if tried == MAX_FACES or values[0] >= 0 or values[-1] <= 0:
            break
        within = within @ vectors[:, values > 0]
    end = (vectors * np.maximum(values, 0)) @ vectors.T
    return Face(whiten, unwhiten, within, end, n_evaluations)


def newton_metric(
    problem: Problem, loss: Loss, alpha: float, metric: Metric
) -> tuple[Metric | None, int]:
    """A metric with a lower objective, a Newton step away, and the number of evaluations of duals.

    The metric, whose directions are orthogonal, is None where no part of the step lowers the
    objective.
    """
    matrix = metric.matrix.astype(np.float64)
    before = loss.value(problem.margins_of(matrix), problem.weights) + alpha * np.trace(matrix)
    face = newton_face(problem, loss, alpha, matrix)
    basis = face.whiten @ face.within
    end = basis @ face.end @ basis.T
    for length in LENGTHS:
        values, vectors = eigh((1 - length) * matrix + length * end)
        kept = values > np.finfo(np.float64).eps * values[-1]
        ahead = Metric(vectors[:, kept], values[kept]).astype(problem.X.dtype)
        value = loss.value(problem.margins(ahead), problem.weights)
        if value + alpha * float(ahead.coefs.sum()) < before:
            return ahead, face.n_evaluations
    return None, face.n_evaluations
