"""The stage-wise solver: each step adds directions and does not re-optimize earlier ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from boostmetric.problem import Evaluation, Objective, Step
from boostmetric.solvers.base import (
    Memory,
    Proposal,
    Solver,
    conjugate_root,
    leading_directions,
    without_null_directions,
)
from boostmetric.solvers.coefficients import (
    UNBOUNDED_GAIN,
    best_on_slice,
    is_bounded,
    line_search,
)
from boostmetric.solvers.eigen import leading_eigenpairs

MIN_RELATIVE_DECREASE = 1e-4
"""A batch that lowers the objective by a smaller share ends the fit (`Status.STALLED`)."""


class Stagewise(Solver):
    """Add the leading eigenvector with the best coefficient for it alone (Algorithm 3).

    With a batch size k > 1, add k eigenvectors and optimize their coefficients together. A common
    factor s ≤ 1 of all older coefficients is optimized with them, because earlier steps may have
    gone too far.

    If the regularizer shrinks M toward a multiple of the identity, M starts from there, and a step
    also decreases M along directions with the steepest slopes, instead of the common factor.
    """

    def propose(
        self, objective: Objective, now: Evaluation, memory: Memory, limit: int
    ) -> Proposal:
        """The next step from M, with at most `limit` new directions."""
        if objective.regularizer.multiple > 0:
            return self._grow_and_shrink(objective, now, memory, limit)
        k = min(self.batch_size, limit)
        # 1) leading eigenvectors of the scatter
        values, vectors, memory = leading_directions(self, objective, now, memory, k)
        excess = values - objective.regularizer.threshold
        nothing = Proposal(None, memory, k, float(values[0]))
        # 2) the coefficient of a single direction
        if k == 1:
            if excess[0] <= 0:
                return nothing
            found = line_search(objective, vectors[:, 0])
            if found.coef == 0:
                return nothing
            return replace(
                nothing,
                step=Step(vectors, np.array([found.coef])),
                n_evaluations=found.n_evaluations,
                is_bounded=found.is_bounded,
            )
        # 3) the coefficients of a batch; without a new direction, only the factor s is optimized
        new = vectors[:, excess > 0]
        new, start, sizes = without_null_directions(objective, now, new, np.zeros(new.shape[1]))
        if not new.size and not objective.M.steps:
            return nothing
        # The slopes that remain, relative to the excess that led to the batch.
        accuracy = 0.3 * max(float(excess[0]), 1e-9 * memory.alpha_max)
        # On separable comparisons the best coefficients may be infinite.
        upper = UNBOUNDED_GAIN * max(1.0, now.largest) / sizes
        tolerances = accuracy * np.append(objective.M.trace, np.ones(new.shape[1]))
        best = best_on_slice(objective, new, start, upper, sizes, tolerances, free_scale=True)
        decrease = now.value - best.value
        if not decrease > np.finfo(np.float64).eps * abs(now.value):
            return nothing
        return replace(
            nothing,
            step=Step(new, best.coefs, best.scale),
            n_evaluations=best.n_evaluations,
            is_bounded=is_bounded(objective, new, best.coefs),
            is_stalled=decrease < MIN_RELATIVE_DECREASE * abs(now.value),
        )

    def _grow_and_shrink(
        self, objective: Objective, now: Evaluation, memory: Memory, limit: int
    ) -> Proposal:
        """The next step from an M of full rank, along at most `limit` directions."""
        k, matrix = min(self.batch_size, limit), objective.M.matrix
        assert matrix is not None
        # 1) the k steepest directions along which M may increase, or decrease until it is singular
        descent = -objective.gradient_at(matrix, now)
        gains, growing = leading_eigenpairs(descent, k)
        shrinking, coefs, slopes = conjugate_root(matrix, descent)
        directions = np.column_stack([growing, shrinking])
        slopes, lower = np.append(gains, -slopes), np.append(np.zeros(len(gains)), -coefs)
        steepest = np.argsort(-slopes, kind="stable")[:k]
        steepest = steepest[slopes[steepest] > 0]
        nothing = Proposal(None, memory, k, float(gains[0]))
        if not steepest.size:
            return nothing
        new = np.ascontiguousarray(directions[:, steepest], dtype=objective.dtype)
        new, start, sizes = without_null_directions(objective, now, new, np.zeros(steepest.size))
        # 2) their coefficients
        accuracy = 0.3 * max(float(slopes[steepest[0]]), 1e-9 * memory.alpha_max)
        best = best_on_slice(
            objective,
            new,
            start,
            UNBOUNDED_GAIN * max(1.0, now.largest) / sizes,
            sizes,
            np.full(1 + len(start), accuracy),
            free_scale=True,
            lower=np.append(1.0, lower[steepest]),
        )
        decrease = now.value - best.value
        if not decrease > np.finfo(np.float64).eps * abs(now.value):
            return nothing
        return replace(
            nothing,
            step=Step(new, best.coefs),
            n_evaluations=best.n_evaluations,
            is_stalled=k > 1 and decrease < MIN_RELATIVE_DECREASE * abs(now.value),
        )
