"""The problem that is solved: minimise F(⟨A_r, M⟩ − b_r) + R(M) over M ⪰ 0."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from boostmetric.losses import Loss, NotANumberError
from boostmetric.metric import Metric
from boostmetric.operators import Operator
from boostmetric.regularizers import Regularizer


@dataclass(eq=False)
class Problem:
    """An operator, a loss and a regulariser; a gap b_r and a weight c_r > 0 for each matrix.

    Parameters
    ----------
    operator, loss, regularizer : ⟨A_r, M⟩, F and R
    gaps : array of shape (m,) or None, which is zeros
    weights : array of shape (m,) or None, which is ones
    """

    operator: Operator
    loss: Loss
    regularizer: Regularizer
    gaps: NDArray | None = None
    weights: NDArray | None = None

    def __post_init__(self) -> None:
        m, dtype = self.operator.n_matrices, self.operator.dtype
        for name, given in (("gaps", self.gaps), ("weights", self.weights)):
            if given is not None and given.shape != (m,):
                raise ValueError(
                    f"{name} of shape {given.shape} came: ({m},) is needed, one for each matrix."
                )
        if self.gaps is not None:
            if not np.isfinite(self.gaps).all():
                raise ValueError("gaps must be finite.")
            self.gaps = self.gaps.astype(dtype)
        if self.weights is not None:
            low, high = self.weights.min(), self.weights.max()
            limits = np.finfo(dtype)
            if not (low >= limits.tiny and high <= limits.max):
                raise ValueError(
                    f"weights from {low:g} to {high:g} will not do: positive numbers in the range "
                    f"of {dtype} are needed. Leave out what has no weight, or divide all by their "
                    "mean."
                )
            self.weights = self.weights.astype(dtype)

    @property
    def n_features(self) -> int:
        """D."""
        return self.operator.n_features

    def margins(self, metric: Metric) -> NDArray:
        """ρ_r = ⟨A_r, M⟩ − b_r for a metric, of shape (m,)."""
        if metric.n_directions == 0:
            return self.less_gaps(np.zeros(self.operator.n_matrices, dtype=self.operator.dtype))
        return self.less_gaps(self.operator.values(metric))

    def margins_of(self, matrix: NDArray) -> NDArray:
        """ρ_r for a symmetric matrix that need not be positive, of shape (m,)."""
        return self.less_gaps(self.operator.values_of(matrix))

    def less_gaps(self, values: NDArray) -> NDArray:
        """Margins from ⟨A_r, M⟩."""
        return values if self.gaps is None else values - self.gaps

    def plus_gaps(self, margins: NDArray) -> NDArray:
        """⟨A_r, M⟩ from margins."""
        return margins if self.gaps is None else margins + self.gaps

    def value(self, margins: NDArray) -> float:
        """F(ρ); a NotANumberError if that is NaN though no margin is."""
        value = self.loss.value(margins, self.weights)
        self._check(value, margins)
        return value

    def duals(self, margins: NDArray) -> NDArray:
        """u = −∇F(ρ); a NotANumberError if one is NaN though no margin is."""
        duals = self.loss.duals(margins, self.weights)
        self._check(duals.sum(), margins)
        return duals

    def value_and_duals(self, margins: NDArray) -> tuple[float, NDArray]:
        """F(ρ) and u together; a NotANumberError as from `value` and `duals`."""
        value, duals = self.loss.value_and_duals(margins, self.weights)
        self._check(value + duals.sum(), margins)
        return value, duals

    def _check(self, result: float, margins: NDArray) -> None:
        if np.isnan(result) and np.isfinite(margins).all():
            raise NotANumberError(
                f"{self.loss!r} gives NaN for finite margins from {margins.min():g} to "
                f"{margins.max():g}: a loss must be finite for margins of any size."
            )

    def objective(self, margins: NDArray, metric: Metric) -> float:
        """F(ρ) + R(M)."""
        return self.value(margins) + self.regularizer.value(metric)

    def descent(self, matrix: NDArray, duals: NDArray) -> NDArray:
        """Minus the gradient of the objective, Σ u_r·A_r − ∇R(M), in float64."""
        scatter = self.operator.scatter_matrix(duals).astype(np.float64)
        return scatter - self.regularizer.gradient(matrix)

    def project(self, basis: NDArray) -> Problem:
        """The same problem for M = basis·Y·basisᵀ as a function of Y."""
        return replace(
            self,
            operator=self.operator.project(basis),
            regularizer=self.regularizer.project(basis),
        )
