"""Steps, which update M, and the result of several steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from boostmetric.metric import Metric, fix_signs

EPOCHS = count()
"""Numbers of epochs, unique in this process. An epoch is a sequence of consecutive steps."""


@dataclass(frozen=True, eq=False)
class Step:
    """M ← scale·M + Σ_j coefs_j·v_j·v_jᵀ; a scale of 0 replaces M.

    Parameters
    ----------
    directions : array of shape (D, k), unit columns
    coefs : array of shape (k,) in float64, such that M stays positive semidefinite. Directions with
        coefficient 0 stay in the step, because rounding of sums depends on the number of columns
    scale : factor of all earlier coefficients
    """

    directions: NDArray
    coefs: NDArray
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Sum:
    """M after the steps of an epoch, which begins when M is replaced.

    `matrix` is None if there are too many features to form M.
    """

    n_features: int
    dtype: np.dtype
    epoch: int = field(default_factory=EPOCHS.__next__)
    steps: tuple[Step, ...] = ()
    trace: float = 0.0
    matrix: NDArray | None = None

    def after(self, step: Step) -> Sum:
        """M after one more step."""
        replaced = step.scale == 0
        matrix = self.matrix
        if matrix is not None:
            V = step.directions.astype(np.float64)
            added = (V * step.coefs) @ V.T
            matrix = added if replaced else step.scale * matrix + added
        return Sum(
            self.n_features,
            self.dtype,
            next(EPOCHS) if replaced else self.epoch,
            (step,) if replaced else (*self.steps, step),
            (0.0 if replaced else step.scale * self.trace) + float(step.coefs.sum()),
            matrix,
        )

    @cached_property
    def metric(self) -> Metric:
        """M as a Metric, without directions with coefficient 0.

        After steps with negative coefficients, its directions are the eigenvectors of M.
        """
        if any((step.coefs < 0).any() for step in self.steps):
            assert self.matrix is not None
            values, vectors = eigh(self.matrix)
            # In float64, eigenvalues that are 0 have rounding errors of this size.
            kept = values > 1e-12 * values[-1]
            columns = fix_signs(vectors[:, kept])
            return Metric(np.ascontiguousarray(columns, dtype=self.dtype), values[kept])
        directions, coefs = [np.empty((self.n_features, 0), dtype=self.dtype)], np.empty(0)
        for step in self.steps:
            directions.append(step.directions)
            coefs = np.append(step.scale * coefs, step.coefs)
        used = coefs > 0
        # Always C order, because rounding of products depends on the memory layout.
        columns = np.ascontiguousarray(np.column_stack(directions)[:, used])
        return Metric(columns, coefs[used])

    def times(self, V: NDArray) -> NDArray:
        """M·V, in float64."""
        if self.matrix is not None:
            return self.matrix @ V
        W = self.metric.directions
        return W @ (self.metric.coefs[:, None] * (W.T @ V))

    def quadratic(self, V: NDArray) -> NDArray:
        """v_jᵀMv_j for the columns of V, in float64."""
        return np.einsum("dj,dj->j", V.astype(np.float64), self.times(V.astype(np.float64)))

    @cached_property
    def squared_norm(self) -> float:
        """‖M‖²_F."""
        if self.matrix is not None:
            return float(np.sum(np.square(self.matrix)))
        W, w = self.metric.directions.astype(np.float64), self.metric.coefs
        return float(w @ np.square(W.T @ W) @ w)
