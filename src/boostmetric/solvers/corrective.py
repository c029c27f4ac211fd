"""The totally corrective solver: each step optimizes all coefficients again (Algorithm 4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boostmetric.problem import Evaluation, Objective, Step
from boostmetric.solvers.base import Memory, Proposal, Solver, leading_directions
from boostmetric.solvers.coefficients import (
    best_batch,
    best_on_slice,
    is_bounded,
    without_null_directions,
)
from boostmetric.solvers.factors import orthogonal_directions, polish

ACCURACY, PAPER_ACCURACY = 0.1, 1e-6
"""The slopes that remain after the coefficients were optimized, relative to the excess of λ_max. A
batch need not be exact; single directions are, as in the paper's Algorithm 4."""

FIRST_BUDGET, MAX_BUDGET = 32, 1024
"""Evaluations that a step may spend on a factor of M: it doubles from step to step. Few are wasted
before all directions are known, and an ill-conditioned problem still converges in a few steps."""


class TotallyCorrective(Solver):
    """Add the leading eigenvectors and optimize the coefficients of all directions together.

    With batches, and if M is a matrix, the directions are optimized, too (`polish`): near an
    optimum of full rank, about D²/2 eigenvectors of scatters would be needed instead. With single
    directions, this is the paper's Algorithm 4.
    """

    default_tol = 1e-3
    is_corrective = True

    def propose(
        self, objective: Objective, now: Evaluation, memory: Memory, limit: int
    ) -> Proposal:
        """The next step from M, with at most `limit` new directions."""
        # 1) leading eigenvectors of the scatter
        k = min(self.batch_size, limit)
        values, vectors, memory = leading_directions(self, objective, now, memory, k)
        excess = values - objective.regularizer.threshold
        new = vectors[:, excess > 0]
        nothing = Proposal(None, memory, max(1, new.shape[1]), float(values[0]))
        # 2) their coefficients; slopes that remain are relative to the excess that led to the step
        accuracy = max(float(excess[0]), 1e-9 * memory.alpha_max)
        batch = best_batch(objective, now, new, 0.3 * accuracy)
        if batch is None:
            return nothing
        new, added = batch
        metric, n_evaluations = objective.M.metric, added.n_evaluations
        directions = np.column_stack([metric.directions, new])
        coefs = np.append(added.scale * metric.coefs, added.coefs)
        # 3) all directions
        max_evaluations, precision = 100, ACCURACY
        if self.batch_size == 1:
            max_evaluations, precision = 1000, PAPER_ACCURACY
        elif objective.is_dense and coefs.any():
            budget = min(FIRST_BUDGET << memory.n_steps, MAX_BUDGET)
            root, n = polish(objective, directions * np.sqrt(coefs), budget)
            n_evaluations += n
            directions, coefs = orthogonal_directions(root, objective.dtype)
            max_evaluations = 16  # they are nearly optimal, but those that should be 0 are not
        # 4) all coefficients. Without a new direction they are made exact.
        directions, coefs, sizes = without_null_directions(objective, now, directions, coefs)
        if not directions.shape[1]:  # M = 0
            zero = np.zeros((objective.n_features,) * 2)
            value = objective.evaluate_at(zero, with_scatter=False).value
            step = Step(directions, coefs, 0.0) if value < now.value else None
            return replace(nothing, step=step, n_evaluations=n_evaluations)
        best = best_on_slice(
            objective,
            directions,
            coefs,
            np.full(len(coefs), np.inf),
            sizes,
            np.full(1 + len(coefs), precision * accuracy),
            free_scale=False,
            value_unit=now.dual_sum or 1.0,
            max_evaluations=max_evaluations,
        )
        nothing = replace(nothing, n_evaluations=n_evaluations + best.n_evaluations)
        if not best.value < now.value - np.finfo(np.float64).eps * abs(now.value):
            return nothing
        used = best.coefs > 0
        directions, coefs = np.ascontiguousarray(directions[:, used]), best.coefs[used]
        return replace(
            nothing,
            step=Step(directions, coefs, 0.0),
            is_bounded=is_bounded(objective, directions, coefs),
        )
