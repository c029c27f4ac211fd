"""The stage-wise solver: directions are added, and their coefficients are not revised later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from boostmetric.problem import Evaluation, Objective, Step
from boostmetric.solvers.eigen import find_directions
from boostmetric.solvers.line_search import UNBOUNDED_GAIN, line_search
from boostmetric.solvers.proposal import Memory, Proposal
from boostmetric.solvers.slice_search import best_on_slice, is_bounded

STALL = 1e-4
"""If a batch lowers the objective by less than this share, another is not worth its cost."""

SLACK = 0.3
"""Accuracy of the coefficients of a batch: the slopes that remain, relative to the violation that
led to the batch."""

NULL = 8
"""Directions whose responses are below this many units of rounding of the largest are null
directions of the data (constant or linearly dependent features)."""


class Stagewise:
    """Add the leading eigenvector with the coefficient that is best for it alone (Algorithm 3).

    With a batch size above 1, add so many eigenvectors with the coefficients that are best
    together. All older coefficients are multiplied by a factor s ≤ 1 that is found with them: what
    an earlier step took too far is taken back.
    """

    default_tol = 0.0

    def __init__(self, batch_size: int = 1, eigen_solver: str = "auto") -> None:
        self.batch_size, self.eigen_solver = batch_size, eigen_solver

    def propose(
        self, objective: Objective, now: Evaluation, memory: Memory, limit: int
    ) -> Proposal:
        """The next step, adding at most `limit` directions."""
        k = min(self.batch_size, limit)
        # 1) leading eigenvectors of the scatter
        values, vectors, memory = leading_directions(objective, now, memory, k, self.eigen_solver)
        excess = values - objective.regularizer.threshold
        nothing = Proposal(None, memory, k, float(values[0]))
        # 2) their coefficients
        if k == 1:
            if excess[0] <= 0:
                return nothing
            found = line_search(objective, vectors[:, 0])
            if found.coef == 0:
                return nothing
            step = Step(vectors, np.array([found.coef]))
            return replace(
                nothing,
                step=step,
                n_evaluations=found.n_evaluations,
                is_bounded=found.is_bounded,
            )
        new = vectors[:, excess > 0]
        new, start, sizes = without_null_directions(objective, new, np.zeros(new.shape[1]))
        if not new.size and not objective.M.steps:
            return nothing
        # Without a new direction, what remains is to take back what earlier steps took too far.
        accuracy = SLACK * max(float(excess[0]), 1e-9 * memory.alpha_max)
        # On comparisons that can be satisfied there may be no end to what pays.
        upper = UNBOUNDED_GAIN * max(1.0, now.largest) / sizes
        best = best_on_slice(
            objective,
            new,
            start,
            upper,
            sizes,
            accuracy * np.append(objective.M.trace, np.ones(new.shape[1])),
            free_scale=True,
        )
        gained = now.value - best.value
        if not gained > np.finfo(np.float64).eps * abs(now.value):
            return nothing
        return replace(
            nothing,
            step=Step(new, best.coefs, best.scale),
            n_evaluations=best.n_evaluations,
            is_bounded=is_bounded(objective, new, best.coefs),
            is_stalled=gained < STALL * abs(now.value),
        )


def leading_directions(
    objective: Objective, now: Evaluation, memory: Memory, k: int, eigen_solver: str
) -> tuple[NDArray, NDArray, Memory]:
    """The leading eigenpairs of the scatter at M, less what the regularizer subtracts.

    Returns the k eigenvalues, falling, the vectors of shape (D, k) in the dtype of the problem, and
    the memory with the basis by which eigenvectors of an operator are followed.
    """
    regularizer = objective.regularizer
    assert now.scatter is not None
    values, vectors, basis = find_directions(
        regularizer.reduce(now.scatter, objective.M),
        k,
        regularizer.threshold,
        eigen_solver,
        memory.basis,
        memory.n_steps,
    )
    return values, vectors.astype(objective.dtype), replace(memory, basis=basis)


def without_null_directions(
    objective: Objective, directions: NDArray, coefs: NDArray
) -> tuple[NDArray, NDArray, NDArray]:
    """The directions that the data respond to by more than rounding, with their coefficients.

    The third result are the typical responses to them.
    """
    if not directions.shape[1]:
        return directions, coefs, np.empty(0)
    sizes = objective.response_sizes(directions)
    kept = sizes > NULL * np.finfo(objective.dtype).eps * sizes.max()
    return np.ascontiguousarray(directions[:, kept]), coefs[kept], sizes[kept]
