"""The interface of solvers: `Solver`, the `Proposal` of a step, and the `Memory` between steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from boostmetric.problem import Evaluation, Objective, Step
from boostmetric.solvers.certificate import lower_bound
from boostmetric.solvers.eigen import find_directions


@dataclass(frozen=True, eq=False)
class Memory:
    """The state of a fit besides M.

    Attributes
    ----------
    alpha_max : λ_max of the scatter at M = 0
    n_steps : number of steps taken
    basis : start of the eigenvector iteration for the next scatter (`follow_eigenpairs`), or None
    bound : best known lower bound of the objective of all metrics
    bound_rounds : rounds spent on bounds
    """

    alpha_max: float
    n_steps: int = 0
    basis: NDArray | None = None
    bound: float = -math.inf
    bound_rounds: int = 0

    def to_arrays(self) -> dict[str, NDArray]:
        """Arrays for a snapshot."""
        numbers = [self.alpha_max, self.n_steps, self.bound, self.bound_rounds]
        arrays = {"numbers": np.array(numbers)}
        return arrays if self.basis is None else arrays | {"basis": self.basis}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray]) -> Memory:
        """The inverse of `to_arrays`."""
        alpha_max, n_steps, bound, rounds = arrays["numbers"].tolist()
        return cls(alpha_max, int(n_steps), arrays.get("basis"), bound, int(rounds))


@dataclass(frozen=True, eq=False)
class Proposal:
    """A step and the memory after it.

    Attributes
    ----------
    step : None if no direction lowers the objective
    memory : replaces the memory of the fit if the step is taken
    n_tried : number of directions that were tried
    lambda_max : the leading eigenvalue
    n_evaluations : evaluations of the duals to find the step
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
    is_corrective = False
    """Whether steps converge to the optimum."""
    uses_scatter = True
    """Whether `propose` uses the scatter at M."""
    has_cheap_bound = False
    """Whether `lower_bound` costs one eigenvector, and does not need M as a matrix."""

    def __init__(
        self, batch_size: int, eigen_solver: str = "auto", min_decrease: float = 0.0
    ) -> None:
        self.batch_size, self.eigen_solver = batch_size, eigen_solver
        self.min_decrease = min_decrease

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
