"""The totally corrective solver: each step optimizes all coefficients again (Algorithm 4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boostmetric.problem import Evaluation, Objective, Step
from boostmetric.solvers.newton import Factor, newton_step_to_face, turning_step
from boostmetric.solvers.proposal import Memory, Proposal, Schedule
from boostmetric.solvers.slice_search import best_on_slice, is_bounded
from boostmetric.solvers.stagewise import leading_directions, without_null_directions

BATCH_SIZE = 4
"""Eigenvectors that are added in a step, unless another number is given."""

SLACK = 0.1
"""Accuracy of the coefficients: the slopes that remain, relative to the violation that led to the
step."""

MAX_TURNS = 4
"""Newton steps that turn the face, in one step of the solver, at most."""

WORTHWHILE = 0.1
"""What such a step must gain, as a share of the best before it, for another to follow."""

NEWTON_WORTH, FEW_FEATURES = 0.3, 32
"""What a Newton step must gain per evaluation, as a share of what the last search on a slice did,
to be tried again in the next step, for more than so many features. The Newton equation then has
many more unknowns than products, and on comparisons that can all be satisfied its condition is so
bad that slices are many times cheaper."""


class TotallyCorrective:
    """Add the leading eigenvectors, and find the best coefficients of all directions together.

    For a moderate number of features the directions so far are first replaced by those of Newton
    steps: near an optimum of full rank it would take some D²/2 eigenvectors of scatters to span
    what it needs.
    """

    default_tol = 1e-3

    def __init__(self, batch_size: int = BATCH_SIZE, eigen_solver: str = "auto") -> None:
        self.batch_size, self.eigen_solver = batch_size, eigen_solver

    def propose(
        self, objective: Objective, now: Evaluation, memory: Memory, limit: int
    ) -> Proposal:
        """The next step, adding at most `limit` directions."""
        k = min(self.batch_size, limit)
        # 1) leading eigenvectors of the scatter
        values, vectors, memory = leading_directions(objective, now, memory, k, self.eigen_solver)
        excess = values - objective.regularizer.threshold
        new = vectors[:, excess > 0]
        # 2) Newton steps from M
        metric = objective.M.metric
        old, coefs, value, n_evaluations = metric.directions, metric.coefs, now.value, 0
        # If ⟨A_r, M⟩ = 0 for all r, all comparisons may be of equal points, with no Newton step.
        if metric.n_directions and objective.is_dense and now.largest > 0:
            factor, value, newton, n_evaluations = newton_steps(objective, now.value, memory)
            memory = replace(memory, newton=newton)
            if factor is not None:
                old, coefs = factor.directions.astype(objective.dtype), factor.coefs
        nothing = Proposal(None, memory, k, float(values[0]), n_evaluations)
        # 3) coefficients of all directions
        directions, coefs, sizes = without_null_directions(
            objective, np.column_stack([old, new]), np.append(coefs, np.zeros(new.shape[1]))
        )
        if not directions.shape[1]:  # M = 0, to which a Newton step may have led
            if value < now.value:
                return replace(nothing, step=Step(directions, coefs, 0.0))
            return nothing
        # Without a new direction, what remains is to make the coefficients exact.
        accuracy = SLACK * max(float(excess[0]), 1e-9 * memory.alpha_max)
        best = best_on_slice(
            objective,
            directions,
            coefs,
            np.full(len(coefs), np.inf),
            sizes,
            np.full(1 + len(coefs), accuracy),
            free_scale=False,
        )
        rate = max(value - best.value, 0.0) / best.n_evaluations
        nothing = replace(
            nothing,
            memory=replace(memory, slice_rate=rate),
            n_evaluations=n_evaluations + best.n_evaluations,
        )
        if not best.value < now.value - np.finfo(np.float64).eps * abs(now.value):
            return nothing
        used = best.coefs > 0
        directions, coefs = np.ascontiguousarray(directions[:, used]), best.coefs[used]
        return replace(
            nothing,
            step=Step(directions, coefs, 0.0),
            is_bounded=is_bounded(objective, directions, coefs),
        )


def newton_steps(
    objective: Objective, value: float, memory: Memory
) -> tuple[Factor | None, float, tuple[Schedule, Schedule], int]:
    """Newton steps that lower the objective, if such are due.

    One step to any face of the cone; then steps that turn the face, as long as they pay.

    Returns the metric they lead to, or None if that is M, its objective, the new schedules, and the
    number of evaluations of the duals.
    """
    matrix, factor, n_evaluations = objective.M.matrix, None, 0
    assert matrix is not None
    schedules = list(memory.newton)
    for kind, (find_step, n_steps) in enumerate(
        ((newton_step_to_face, 1), (turning_step, MAX_TURNS))
    ):
        largest_gain = 0.0
        for _ in range(n_steps if memory.n_steps >= schedules[kind].due else 0):
            if not matrix.any():
                break
            found, found_value, n = find_step(objective, matrix, value)
            n_evaluations += n
            schedules[kind] = schedules[kind].after(memory.n_steps, found is not None)
            if found is None:
                break
            gain, value = value - found_value, found_value
            factor, matrix = found, found.matrix
            too_expensive = gain < NEWTON_WORTH * memory.slice_rate * n
            if too_expensive and objective.n_features > FEW_FEATURES:
                schedules[kind] = memory.newton[kind].after(memory.n_steps, success=False)
                break
            if gain < WORTHWHILE * largest_gain:
                break
            largest_gain = max(largest_gain, gain)
    return factor, value, (schedules[0], schedules[1]), n_evaluations
