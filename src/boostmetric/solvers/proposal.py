"""What a solver proposes in a step, and what it remembers from one step to the next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from boostmetric.problem import Evaluation, Objective, Step


@dataclass(frozen=True)
class Schedule:
    """When to try something that may fail: less and less often while it does."""

    pause: int = 1
    due: int = 0

    def after(self, step: int, success: bool) -> Schedule:
        """The schedule after an attempt in this step."""
        pause = 1 if success else 2 * self.pause
        return Schedule(pause, step + pause)


@dataclass(frozen=True, eq=False)
class Memory:
    """What the next step depends on besides M.

    Attributes
    ----------
    alpha_max : λ_max of the scatter at M = 0
    n_steps : number of steps taken
    basis : by which eigenvectors of an operator are followed, or None
    newton : schedules of the two kinds of Newton steps
    slice_rate : decrease of the objective per evaluation in the last search on a slice
    bound : no metric has an objective below it, as far as is known
    bound_rounds : rounds that were spent on bounds
    """

    alpha_max: float
    n_steps: int = 0
    basis: NDArray | None = None
    newton: tuple[Schedule, Schedule] = (Schedule(), Schedule())
    slice_rate: float = 0.0
    bound: float = -math.inf
    bound_rounds: int = 0

    def to_arrays(self) -> dict[str, NDArray]:
        """All of it as arrays, for a snapshot."""
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
    memory : what the solver is to remember if the step is taken
    n_tried : number of directions that were tried
    lambda_max : the leading eigenvalue
    n_evaluations : evaluations of the duals in line search, slices and Newton steps
    is_bounded : False if the objective falls forever as M grows
    is_stalled : True if the step helps so little that another is not worth its cost
    """

    step: Step | None
    memory: Memory
    n_tried: int
    lambda_max: float
    n_evaluations: int = 0
    is_bounded: bool = True
    is_stalled: bool = False


class Solver(Protocol):
    """Finds the next step. It must not change the objective."""

    default_tol: float

    def propose(
        self, objective: Objective, now: Evaluation, memory: Memory, limit: int
    ) -> Proposal:
        """The next step from M, adding at most `limit` directions."""
        ...
