"""Newton steps in the space of symmetric matrices, on the faces of the semidefinite cone.

An optimum of low rank lies on a face, the matrices W·Y·Wᵀ with Y ⪰ 0 for an orthonormal W. A step
that changes Y only cannot turn the face. Let the columns of V span the orthogonal complement of W.
The matrices of the same rank near W·Y·Wᵀ are, to second order,

    W·(Y + dY)·Wᵀ + W·B·Vᵀ + V·Bᵀ·Wᵀ + V·BᵀY⁻¹B·Vᵀ,

so the second-order model of the objective is that of N = W·dY·Wᵀ + W·B·Vᵀ + V·Bᵀ·Wᵀ, plus
⟨S, BᵀY⁻¹B⟩ with S = Vᵀ∇V, the gradient off the face, which is positive semidefinite at the optimum.
The Newton equation for (dY, B) has this term in its Hessian, and the steps converge quadratically
if S is positive definite.

All matrices here are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, null_space

from boostmetric.problem import Objective

RANK_TOLERANCES = (1e-7, 1e-4, 1e-2)
"""Eigenvalues of a metric below this share of the largest, in whitened coordinates, count as 0.
Small eigenvalues that should be 0 obstruct a turning step; if it fails, fewer are kept."""

Map = Callable[[NDArray], NDArray]
"""A linear map of symmetric matrices."""


@dataclass(frozen=True, eq=False)
class Face:
    """A face of the cone, the matrices basis·Y·basisᵀ with Y ⪰ 0.

    `whiten`, of shape (D, d), maps from coordinates in which the absolute scatter is a multiple of
    the identity, and `unwhiten` is its transposed pseudo-inverse. The basis is whiten·`within`, and
    `within` has orthonormal columns.
    """

    whiten: NDArray
    unwhiten: NDArray
    within: NDArray

    @property
    def off(self) -> NDArray:
        """Orthonormal columns that span the orthogonal complement of `within`."""
        # Not all versions of SciPy accept an empty matrix.
        return null_space(self.within.T) if self.within.size else np.eye(len(self.within))


def solve_newton_equation(
    objective: Objective, Y: NDArray, target: NDArray, basis: NDArray | None = None, effort: int = 1
) -> tuple[NDArray, int]:
    """N with H[N] ≈ target, and the number of evaluations of the duals.

    H is the Hessian of the objective at basis·Y·basisᵀ; `effort` is that of `conjugate_gradients`.
    The preconditioner is R ↦ K⁻¹·R·K⁻¹ with the absolute scatter K. If the differences of pairs are
    normally distributed, the inverse of H has this form.
    """
    values, vectors = scatter_axes(objective, Y, basis)
    inverse = (vectors / values) @ vectors.T
    return conjugate_gradients(
        lambda N: objective.hessian_at(Y, N, basis),
        lambda R: inverse @ R @ inverse,
        target,
        effort,
    )


@np.errstate(over="ignore", invalid="ignore")  # if H vanishes
def conjugate_gradients(
    hessian: Map, precondition: Map, target: NDArray, effort: int = 1
) -> tuple[NDArray, int]:
    """N with hessian(N) ≈ target, or zeros if it is not finite, and the number of products.

    The relative error is 1e-2/effort, unless that takes more than 30·effort products.
    """
    # If H vanishes the solution is infinite; larger entries have no finite squares.
    huge = float(np.sqrt(np.finfo(np.float64).max))
    solution = np.zeros_like(target)
    residual = target
    search = preconditioned = precondition(residual)
    size = initial = float(np.sum(residual * preconditioned))
    n_products = 0
    while n_products < effort * 30 and size > (1e-2 / effort) ** 2 * initial:
        if not np.abs(search).max(initial=0.0) < huge:  # also if it is NaN
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


def scatter_axes(
    objective: Objective, Y: NDArray, basis: NDArray | None = None
) -> tuple[NDArray, NDArray]:
    """Eigenpairs of the absolute scatter, without null directions of the data, if M = 0 there.

    They are in units of its largest entry: if all comparisons are satisfied, it may be so small
    that the inverse roots of its eigenvalues, which whiten points, have no finite squares.
    """
    scatter = objective.absolute_scatter_at(Y, basis)
    values, vectors = eigh(scatter / np.abs(scatter).max())
    if objective.regularizer.multiple > 0:
        # Null directions have a curvature, that of the regularizer. These are only coordinates, so
        # any positive value is valid; this one keeps the condition of the whitening below 1e3.
        return np.maximum(values, 1e-6 * values[-1]), vectors
    used = values > 16 * np.finfo(objective.dtype).eps * values[-1]
    return values[used], vectors[:, used]


def whitened(objective: Objective, matrix: NDArray) -> tuple[Face, NDArray]:
    """The whole cone in whitened coordinates, and a matrix in them."""
    values, vectors = scatter_axes(objective, matrix)
    unwhiten = vectors * np.sqrt(values)
    face = Face(vectors / np.sqrt(values), unwhiten, np.eye(len(values)))
    return face, unwhiten.T @ matrix @ unwhiten


def step_face(objective: Objective, matrix: NDArray) -> tuple[Face, NDArray, int]:
    """A face that a Newton step from a metric does not leave.

    If a step leaves the cone, the eigenvectors with negative eigenvalues are dropped, and the step
    is computed again on the face spanned by the others, up to three times.

    Returns the face, the end of the step in whitened coordinates, and the number of evaluations of
    the duals.
    """
    face, start = whitened(objective, matrix)
    n_evaluations = 1
    for is_last in (False, False, False, True):
        basis = face.whiten @ face.within
        Y = face.within.T @ start @ face.within
        descent = -objective.gradient_at(Y, objective.evaluate_at(Y, basis), basis)
        step, n_products = solve_newton_equation(objective, Y, descent, basis)
        n_evaluations += 1 + n_products
        values, vectors = eigh(Y + step)
        if is_last or values[0] >= 0 or values[-1] <= 0:
            break
        face = replace(face, within=face.within @ vectors[:, values > 0])
    root = face.within @ (vectors * np.sqrt(np.maximum(values, 0)))
    return face, root @ root.T, n_evaluations


def own_face(
    objective: Objective, matrix: NDArray, tolerance: float = RANK_TOLERANCES[0]
) -> tuple[Face, NDArray]:
    """The face of a metric, and its eigenvalues on it that exceed the tolerance."""
    face, start = whitened(objective, matrix)
    values, vectors = eigh(start)
    kept = values > tolerance * values[-1]
    return replace(face, within=vectors[:, kept]), values[kept]


def newton_step_to_face(
    objective: Objective, matrix: NDArray, value: float
) -> tuple[NDArray | None, float, int]:
    """A Newton step to any face of the cone.

    Returns a root B of the metric B·Bᵀ at its end, or None if no part of the step lowers the
    objective below `value`; its objective; and the number of evaluations of the duals.
    """
    face, end, n_evaluations = step_face(objective, matrix)
    start = face.unwhiten.T @ matrix @ face.unwhiten
    root, lower = _decrease(objective, value, face.whiten, lambda t: (1 - t) * start + t * end)
    return root, lower, n_evaluations


def turning_step(
    objective: Objective, matrix: NDArray, value: float
) -> tuple[NDArray | None, float, int]:
    """Same as `newton_step_to_face`, for a step that turns the face of the metric."""
    n_evaluations = 0
    for tolerance in RANK_TOLERANCES:
        face, after, n = _turn(objective, matrix, tolerance)
        n_evaluations += n
        root, lower = _decrease(objective, value, face.whiten, after)
        if root is not None:
            break
    return root, lower, n_evaluations


@np.errstate(over="ignore", invalid="ignore")  # if all duals are tiny, `whiten` is huge
def _turn(
    objective: Objective, matrix: NDArray, tolerance: float
) -> tuple[Face, Callable[[float], NDArray], int]:
    """A Newton step from a metric that turns its face (see the top of this module).

    Returns the face; the matrix, in whitened coordinates, after a share t of the step, as a
    function of t; and the number of evaluations of the duals.
    """
    face, y = own_face(objective, matrix, tolerance)
    W, V, whiten = face.within, face.off, face.whiten
    start = (W * y) @ W.T
    descent = -objective.gradient_at(start, objective.evaluate_at(start, whiten), whiten)
    s, vectors = eigh(-V.T @ descent @ V) if V.size else (np.empty(0), np.empty((0, 0)))
    V = V @ vectors
    # In the basis (W, V), Y and S are diagonal, and N has only the blocks dY and B.
    basis, r = np.column_stack([W, V]), len(y)
    stiffness = np.zeros((len(basis), len(basis)))
    stiffness[:r, r:] = np.maximum(s, 0)[None, :] / y[:, None]
    stiffness += stiffness.T
    free = np.ones_like(stiffness)
    free[r:, r:] = 0

    def hessian(N: NDArray) -> NDArray:
        curved = objective.hessian_at(start, basis @ N @ basis.T, whiten)
        return free * (basis.T @ curved @ basis) + stiffness * N

    target = free * (basis.T @ descent @ basis)
    square = float(np.sum(target**2))
    size = float(np.sum(target * hessian(target))) / square if square > 0 else 0.0
    diagonal = max(size, np.finfo(np.float64).tiny) + stiffness
    N, n_products = conjugate_gradients(hessian, lambda R: R / diagonal, target, effort=2)

    def after(t: float) -> NDArray:
        turned = W + t * V @ (N[:r, r:] / y[:, None]).T
        values, vectors = eigh(np.diag(y) + t * N[:r, :r])
        root = turned @ (vectors * np.sqrt(np.maximum(values, 0)))
        return root @ root.T

    return face, after, n_products + 3


def _decrease(
    objective: Objective, value: float, whiten: NDArray, after: Callable[[float], NDArray]
) -> tuple[NDArray | None, float]:
    """A root of the metric after the largest share of a step that lowers the objective."""
    for t in (1.0, 0.5, 0.25, 0.1, 0.03):
        with np.errstate(over="ignore", invalid="ignore"):
            end = after(t)
            if not np.isfinite(end).all():
                continue
            values, vectors = eigh(end)
            kept = values > 1e-12 * max(values[-1], 0.0)  # the others are rounding errors
            root = whiten @ (vectors[:, kept] * np.sqrt(values[kept]))
            matrix = root @ root.T
            if not np.isfinite(matrix).all():
                continue
            lower = objective.evaluate_at(matrix, with_scatter=False).value
        if lower < value:
            return root, lower
    return None, value
