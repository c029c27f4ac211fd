"""The interface of solvers: `Solver`, the `Proposal` of a step, and the `Memory` between steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from boostmetric.metric import fix_signs
from boostmetric.problem import Evaluation, Objective, Step
from boostmetric.solvers.certificate import lower_bound
from boostmetric.solvers.eigen import find_directions


@dataclass(frozen=True)
class Schedule:
    """The next step at which to try a Newton step; the pause doubles after each failure."""

    pause: int = 1
    due: int = 0

    def after(self, step: int, success: bool) -> Schedule:
        """The schedule after an attempt in this step."""
        pause = 1 if success else 2 * self.pause
        return Schedule(pause, step + pause)


@dataclass(frozen=True, eq=False)
class Memory:
    """The state of a fit besides M.

    Attributes
    ----------
    alpha_max : λ_max of the scatter at M = 0
    n_steps : number of steps taken
    basis : start of the eigenvector iteration for the next scatter (`follow_eigenpairs`), or None
    newton : schedules of the two kinds of Newton steps
    slice_rate : decrease of the objective per evaluation in the last search on a slice
    bound : best known lower bound of the objective of all metrics
    bound_rounds : rounds spent on bounds
    """

    alpha_max: float
    n_steps: int = 0
    basis: NDArray | None = None
    newton: tuple[Schedule, Schedule] = (Schedule(), Schedule())
    slice_rate: float = 0.0
    bound: float = -math.inf
    bound_rounds: int = 0

    def to_arrays(self) -> dict[str, NDArray]:
        """Arrays for a snapshot."""
        arrays = {
            "numbers": np.array(
                [self.alpha_max, self.n_steps, self.slice_rate, self.bound, self.bound_rounds]
            ),
            "newton": np.array([(each.pause, each.due) for each in self.newton]),
        }
        return arrays if self.basis is None else arrays | {"basis": self.basis}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray]) -> Memory:
        """The inverse of `to_arrays`."""
        alpha_max, n_steps, rate, bound, rounds = arrays["numbers"].tolist()
        first, second = (Schedule(int(pause), int(due)) for pause, due in arrays["newton"])
        basis = arrays.get("basis")
        return cls(alpha_max, int(n_steps), basis, (first, second), rate, bound, int(rounds))


@dataclass(frozen=True, eq=False)
class Proposal:
    """A step and the memory after it.

    Attributes
    ----------
    step : None if no direction lowers the objective
    memory : replaces the memory of the fit if the step is taken
    n_tried : number of directions that were tried
    lambda_max : the leading eigenvalue
    n_evaluations : evaluations of the duals in line search, slices and Newton steps
    is_bounded : False if the objective is unbounded below
    is_stalled : True if the decrease is too small to continue
    """

    step: Step | None
    memory: Memory
    n_tried: int
    lambda_max: float
    n_evaluations: int = 0
    is_bounded: bool = True
    is_stalled: bool = False


class Solver:
    """Proposes steps. It does not change the objective.

    The other methods are for the loop; only the linear program of the hinge overrides them.
    """

    default_tol = 0.0
    uses_scatter = True
    """Whether `propose` uses the scatter at M."""
    has_cheap_bound = False
    """Whether `lower_bound` costs one eigenvector, and does not need M as a matrix."""

    def __init__(self, batch_size: int, eigen_solver: str = "auto") -> None:
        self.batch_size, self.eigen_solver = batch_size, eigen_solver

    def propose(
        self, objective: Objective, now: Evaluation, memory: Memory, limit: int
    ) -> Proposal:
        """The next step from M, with at most `limit` new directions."""
        raise NotImplementedError

    def lower_bound(
        self, objective: Objective, now: Evaluation, memory: Memory, enough: float
    ) -> float:
        """The best lower bound so far, or a better one; a gap of `enough` is not improved."""
        assert objective.M.matrix is not None
        # An earlier bound above this objective was wrong.
        known = memory.bound if memory.bound <= now.value else -math.inf
        return max(known, lower_bound(objective, objective.M.matrix, enough))

    def alpha(self, objective: Objective) -> float:
        """The strength of the regularizer, in the units of the problem."""
        return objective.regularizer.strength

    def duals(self, objective: Objective) -> NDArray:
        """u at M, of shape (m,)."""
        return objective.margins_and_duals()[1]

    def to_arrays(self) -> dict[str, NDArray]:
        """The state of the solver, for a snapshot."""
        return {}

    def restore(self, saved: Mapping[str, NDArray], objective: Objective) -> None:
        """Restore the state; raises a ValueError if the arrays do not match the objective."""


def leading_directions(
    solver: Solver, objective: Objective, now: Evaluation, memory: Memory, k: int
) -> tuple[NDArray, NDArray, Memory]:
    """Leading eigenpairs of the scatter minus the gradient of R, and the memory with a new basis.

    The k eigenvalues are decreasing; the vectors have shape (D, k) and the dtype of the problem.
    """
    regularizer = objective.regularizer
    assert now.scatter is not None
    values, vectors, basis = find_directions(
        regularizer.reduce(now.scatter, objective.M),
        k,
        regularizer.threshold,
        solver.eigen_solver,
        memory.basis,
        memory.n_steps,
    )
    return values, vectors.astype(objective.dtype), replace(memory, basis=basis)


def conjugate_root(matrix: NDArray, descent: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """The root Q of a metric M = Q·Qᵀ for which Qᵀ·descent·Q is diagonal, and the slopes.

    M = Σ_j q_j·q_jᵀ, so M stays positive semidefinite if the coefficient of each q_j·q_jᵀ changes
    from 1 to any nonnegative number, independently of the others. The first-order effects of the
    changes do not interact.

    Returns
    -------
    directions : array of shape (D, r), the q_j divided by their lengths
    coefs : array of shape (r,), the squared lengths
    slopes : array of shape (r,), increasing in their products with `coefs`: the derivatives of the
        objective in the coefficients, times −1
    """
    values, vectors = eigh(matrix)
    kept = values > 1e-12 * values[-1]  # the others are rounding errors
    root = vectors[:, kept] * np.sqrt(values[kept])
    products, rotation = eigh(root.T @ descent @ root)
    Q = fix_signs(root @ rotation)
    coefs = np.einsum("dr,dr->r", Q, Q)
    return Q / np.sqrt(coefs), coefs, products / coefs


def without_null_directions(
    objective: Objective, now: Evaluation, directions: NDArray, coefs: NDArray
) -> tuple[NDArray, NDArray, NDArray]:
    """Directions with responses above rounding level, their coefficients and typical effects.

    The others are null directions of the data: constant or linearly dependent features. They are
    kept if the regularizer shrinks M toward a multiple of the identity, not toward 0.

    The effect of a direction is its typical response, at least the root of the regularizer's
    curvature per dual: both are the same multiple of the root of a second derivative. A search in
    units of the responses alone would fail along directions with tiny responses.
    """
    if not directions.shape[1]:
        return directions, coefs, np.empty(0)
    sizes = objective.response_sizes(directions)
    largest = sizes.max()
    kept = sizes > 8 * np.finfo(objective.dtype).eps * largest
    if objective.regularizer.multiple > 0:
        kept[:] = True
        sizes = np.maximum(sizes, 1e-6 * largest)  # also without curvature
    if now.dual_sum > 0:
        sizes = np.hypot(sizes, math.sqrt(objective.regularizer.curvature / now.dual_sum))
    return np.ascontiguousarray(directions[:, kept]), coefs[kept], sizes[kept]
