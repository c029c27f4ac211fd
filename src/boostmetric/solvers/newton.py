"""Newton steps in the space of symmetric matrices, on the faces of the semidefinite cone.

An optimum of low rank lies on a face, the matrices W·Y·Wᵀ with Y ⪰ 0 for an orthonormal W. A step
on the face alone would not know that the face may turn. Write V for what is orthogonal to W. The
matrices of the same rank near W·Y·Wᵀ are, to second order,

    W·(Y + dY)·Wᵀ + W·B·Vᵀ + V·Bᵀ·Wᵀ + V·BᵀY⁻¹B·Vᵀ,

so the objective is that of N = W·dY·Wᵀ + W·B·Vᵀ + V·Bᵀ·Wᵀ, plus ⟨S, BᵀY⁻¹B⟩ with S = Vᵀ∇V, the
gradient off the face, which at the optimum is positive. The Newton equation for (dY, B) has that
term in its Hessian, and the steps converge quadratically if S is positive definite.

All matrices here are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, null_space

from boostmetric.problem import Objective

MAX_PRODUCTS = 30
"""Products with the Hessian in one solution of the Newton equation, at most."""

ACCURACY = 1e-2
"""Relative accuracy of that solution."""

TURNING_EFFORT = 2
"""How much more accurate the solution of a step that turns the face is."""

RANK_TOLERANCES = (1e-7, 1e-4, 1e-2)
"""Eigenvalues of a metric below this share of the largest, in whitened coordinates, count as 0.

Small ones that should be 0 obstruct a step, so if it fails, fewer are kept."""

NEGLIGIBLE = 1e-12
"""Likewise those of the result of a step: they are rounding errors."""

MAX_FACES = 4
"""Faces tried for one step, at most."""

PARTS = (1.0, 0.5, 0.25, 0.1, 0.03)
"""Parts of a step that are tried until the objective falls."""

HUGE = float(np.sqrt(np.finfo(np.float64).max))
"""Where H vanishes a solution would be infinite; entries beyond this have no finite squares."""

Map = Callable[[NDArray], NDArray]
"""A linear map of symmetric matrices."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A metric M = root·rootᵀ."""

    root: NDArray

    @property
    def matrix(self) -> NDArray:
        """M."""
        return self.root @ self.root.T

    @property
    def directions(self) -> NDArray:
        """Unit columns (D, r)."""
        return self.root / np.linalg.norm(self.root, axis=0)

    @property
    def coefs(self) -> NDArray:
        """Their coefficients (r,)."""
        return np.einsum("dr,dr->r", self.root, self.root)


@dataclass(frozen=True, eq=False)
class Face:
    """A face of the cone, the matrices basis·Y·basisᵀ with Y ⪰ 0.

    `whiten`, of shape (D, d), maps from coordinates in which the operator is isotropic, `unwhiten`
    is its pseudo-inverse, transposed; basis = whiten·`within`, whose columns are orthonormal.
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
        # Not all versions of SciPy accept an empty matrix.
        return null_space(self.within.T) if self.within.size else np.eye(len(self.within))


def solve_newton_equation(
    objective: Objective, Y: NDArray, target: NDArray, basis: NDArray | None = None, effort: int = 1
) -> tuple[NDArray, int]:
    """N with H[N] ≈ target, and the number of evaluations of the duals.

    H is the Hessian of the objective at basis·Y·basisᵀ. With more `effort` the solution is more
    accurate by that factor, and may take so much longer. The preconditioner is R ↦ K⁻¹·R·K⁻¹, K the
    absolute scatter: if the differences of pairs are normally distributed, H is of this form.
    """
    values, vectors = axes(objective, Y, basis)
    inverse = (vectors / values) @ vectors.T
    return conjugate_gradients(
        lambda N: objective.hessian_at(Y, N, basis),
        lambda R: inverse @ R @ inverse,
        target,
        effort,
    )


@np.errstate(over="ignore", invalid="ignore")  # if H vanishes, the solution may be anything
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
        if not np.abs(search).max(initial=0.0) < HUGE:  # also if it is NaN
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


def axes(objective: Objective, Y: NDArray, basis: NDArray | None = None) -> tuple[NDArray, NDArray]:
    """Eigenvalues and eigenvectors of the absolute scatter, without null directions of the data.

    In units of its largest entry: if all comparisons are satisfied, it may be so small that inverse
    roots of its eigenvalues, which whiten points, have no finite squares.
    """
    scatter = objective.absolute_scatter_at(Y, basis)
    values, vectors = eigh(scatter / np.abs(scatter).max())
    used = values > 16 * np.finfo(objective.dtype).eps * values[-1]
    return values[used], vectors[:, used]


def whitened(objective: Objective, matrix: NDArray) -> tuple[Face, NDArray]:
    """The whole cone in whitened coordinates, and a matrix in them."""
    values, vectors = axes(objective, matrix)
    unwhiten = vectors * np.sqrt(values)
    face = Face(vectors / np.sqrt(values), unwhiten, np.eye(len(values)))
    return face, unwhiten.T @ matrix @ unwhiten


def step_face(objective: Objective, matrix: NDArray) -> tuple[Face, NDArray, int]:
    """A face that a Newton step from a metric does not leave.

    If a step leads out of the cone, the eigenvectors through which it does are dropped, and the
    step is computed again on the face that the others span. The second result is where the step
    ends, in whitened coordinates, and the third the number of evaluations of the duals.
    """
    face, start = whitened(objective, matrix)
    n_evaluations = 1
    for tried in range(1, MAX_FACES + 1):
        basis = face.basis
        Y = face.within.T @ start @ face.within
        descent = -objective.gradient_at(Y, objective.evaluate_at(Y, basis), basis)
        step, n_products = solve_newton_equation(objective, Y, descent, basis)
        n_evaluations += 1 + n_products
        values, vectors = eigh(Y + step)
        if tried == MAX_FACES or values[0] >= 0 or values[-1] <= 0:
            break
        face = replace(face, within=face.within @ vectors[:, values > 0])
    root = face.within @ (vectors * np.sqrt(np.maximum(values, 0)))
    return face, root @ root.T, n_evaluations


def own_face(
    objective: Objective, matrix: NDArray, tolerance: float = RANK_TOLERANCES[0]
) -> tuple[Face, NDArray]:
    """The face that a metric lies on, and its eigenvalues there that count."""
    face, start = whitened(objective, matrix)
    values, vectors = eigh(start)
    kept = values > tolerance * values[-1]
    return replace(face, within=vectors[:, kept]), values[kept]


def newton_step_to_face(
    objective: Objective, matrix: NDArray, value: float
) -> tuple[Factor | None, float, int]:
    """A metric with a lower objective, a Newton step away, which may be on any face of the cone.

    Returns it, or None if no part of the step lowers the objective below `value`, its objective,
    and the number of evaluations of the duals.
    """
    face, end, n_evaluations = step_face(objective, matrix)
    start = face.unwhiten.T @ matrix @ face.unwhiten
    found, found_value = _lower(
        objective, value, face.whiten, lambda part: (1 - part) * start + part * end
    )
    return found, found_value, n_evaluations


def turning_step(
    objective: Objective, matrix: NDArray, value: float
) -> tuple[Factor | None, float, int]:
    """As `newton_step_to_face`, by a step to a face of the same dimension or less, which turns."""
    n_evaluations = 0
    for tolerance in RANK_TOLERANCES:
        face, after, n = _turn(objective, matrix, tolerance)
        n_evaluations += n
        found, found_value = _lower(objective, value, face.whiten, after)
        if found is not None:
            break
    return found, found_value, n_evaluations


@np.errstate(over="ignore", invalid="ignore")  # where all duals are tiny, whitening is huge
def _turn(
    objective: Objective, matrix: NDArray, tolerance: float
) -> tuple[Face, Callable[[float], NDArray], int]:
    """A Newton step from a metric that turns the face it lies on (see above).

    Returns the face, the matrix in whitened coordinates to which a part of the step leads, as a
    function of that part, and the number of evaluations of the duals.
    """
    face, y = own_face(objective, matrix, tolerance)
    W, V, whiten = face.within, face.off, face.whiten
    start = (W * y) @ W.T
    descent = -objective.gradient_at(start, objective.evaluate_at(start, whiten), whiten)
    s, vectors = eigh(-V.T @ descent @ V) if V.size else (np.empty(0), np.empty((0, 0)))
    V = V @ vectors
    # In the basis (W, V), in which Y and S are diagonal, N has the blocks dY and B only.
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
    N, n_products = conjugate_gradients(hessian, lambda R: R / diagonal, target, TURNING_EFFORT)

    def after(part: float) -> NDArray:
        turned = W + part * V @ (N[:r, r:] / y[:, None]).T
        values, vectors = eigh(np.diag(y) + part * N[:r, :r])
        root = turned @ (vectors * np.sqrt(np.maximum(values, 0)))
        return root @ root.T

    return face, after, n_products + 3


def _lower(
    objective: Objective, value: float, whiten: NDArray, after: Callable[[float], NDArray]
) -> tuple[Factor | None, float]:
    """The metric after the longest part of a step that lowers the objective, and its objective."""
    for part in PARTS:
        with np.errstate(over="ignore", invalid="ignore"):
            end = after(part)
            if not np.isfinite(end).all():
                continue
            values, vectors = eigh(end)
            kept = values > NEGLIGIBLE * max(values[-1], 0.0)
            found = Factor(whiten @ (vectors[:, kept] * np.sqrt(values[kept])))
            if not np.isfinite(found.matrix).all():
                continue
            found_value = objective.evaluate_at(found.matrix, with_scatter=False).value
        if found_value < value:
            return found, found_value
    return None, value
