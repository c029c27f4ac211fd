"""The totally corrective solver: each step optimizes all coefficients again (Algorithm 4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from boostmetric.problem import Evaluation, Objective, Step
from boostmetric.solvers.base import (
    Memory,
    Proposal,
    Schedule,
    Solver,
    conjugate_root,
    leading_directions,
    without_null_directions,
)
from boostmetric.solvers.coefficients import best_on_slice, is_bounded
from boostmetric.solvers.newton import newton_step_to_face, turning_step

FEW_FEATURES = 32
"""With more features the Newton equation has many more unknowns than products with the Hessian. On
separable comparisons it is then so ill-conditioned that slices are many times cheaper."""


class TotallyCorrective(Solver):
    """Add the leading eigenvectors and optimize the coefficients of all directions together.

    If M is a matrix, Newton steps replace the old directions first: near an optimum of full rank,
    about D²/2 eigenvectors of scatters would be needed instead.
    """

    default_tol = 1e-3

    def propose(
        self, objective: Objective, now: Evaluation, memory: Memory, limit: int
    ) -> Proposal:
        """The next step from M, with at most `limit` new directions."""
        k = min(self.batch_size, limit)
        # 1) leading eigenvectors of the scatter
        values, vectors, memory = leading_directions(self, objective, now, memory, k)
        excess = values - objective.regularizer.threshold
        new = vectors[:, excess > 0]
        # 2) Newton steps from M
        metric = objective.M.metric
        old, coefs, value, n_evaluations = metric.directions, metric.coefs, now.value, 0
        # If ⟨A_r, M⟩ = 0 for all r, for instance for equal points, there is no Newton step.
        if metric.n_directions and objective.is_dense and now.largest > 0:
            root, value, newton, n_evaluations = newton_steps(objective, now.value, memory)
            memory = replace(memory, newton=newton)
            if root is not None:
                old = (root / np.linalg.norm(root, axis=0)).astype(objective.dtype)
                coefs = np.einsum("dr,dr->r", root, root)
            elif objective.regularizer.multiple > 0:
                # M has full rank, so its directions matter more than the new ones.
                assert objective.M.matrix is not None
                assert isinstance(now.scatter, np.ndarray)
                descent = -objective.gradient_at(objective.M.matrix, now)
                old, coefs, _ = conjugate_root(objective.M.matrix, descent)
                old = old.astype(objective.dtype)
        nothing = Proposal(None, memory, k, float(values[0]), n_evaluations)
        # 3) coefficients of all directions
        directions, coefs, sizes = without_null_directions(
            objective, now, np.column_stack([old, new]), np.append(coefs, np.zeros(new.shape[1]))
        )
        if not directions.shape[1]:  # M = 0, possibly after a Newton step
            if value < now.value:
                return replace(nothing, step=Step(directions, coefs, 0.0))
            return nothing
        # The slopes that remain, relative to the excess that led to the step. Without a new
        # direction, the coefficients are made exact.
        accuracy = 0.1 * max(float(excess[0]), 1e-9 * memory.alpha_max)
        upper, tolerances = np.full(len(coefs), np.inf), np.full(1 + len(coefs), accuracy)
        best = best_on_slice(
            objective, directions, coefs, upper, sizes, tolerances, free_scale=False
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
) -> tuple[NDArray | None, float, tuple[Schedule, Schedule], int]:
    """Scheduled Newton steps: one to any face of the cone, then up to four that turn the face.

    Returns a root B of the new metric B·Bᵀ, or None if no step lowers the objective; its objective;
    the new schedules; and the number of evaluations of the duals.
    """
    matrix, root, n_evaluations = objective.M.matrix, None, 0
    assert matrix is not None
    schedules = list(memory.newton)
    for kind, (find_step, n_steps) in enumerate(((newton_step_to_face, 1), (turning_step, 4))):
        largest_gain = 0.0
        for _ in range(n_steps if memory.n_steps >= schedules[kind].due else 0):
            if not matrix.any():
                break
            found, lower, n = find_step(objective, matrix, value)
            n_evaluations += n
            schedules[kind] = schedules[kind].after(memory.n_steps, found is not None)
            if found is None:
                break
            gain, value = value - lower, lower
            root, matrix = found, found @ found.T
            # Is the decrease per evaluation at least 0.3 times that of the last slice?
            too_expensive = gain < 0.3 * memory.slice_rate * n
            if too_expensive and objective.n_features > FEW_FEATURES:
                schedules[kind] = memory.newton[kind].after(memory.n_steps, success=False)
                break
            if gain < 0.1 * largest_gain:
                break
            largest_gain = max(largest_gain, gain)
    return root, value, (schedules[0], schedules[1]), n_evaluations
