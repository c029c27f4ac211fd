"""What a metric costs: R(M), which is added to the loss.

Every M ⪰ 0 is a sum of w_j·v_j·v_jᵀ, so a solver needs R and its gradient in M, along one
direction, and in all coefficients; and, for the certificate, the smallest value of R(M) − ⟨G, M⟩
over M ⪰ 0, which is minus the conjugate of R.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh
from scipy.sparse.linalg import LinearOperator

from boostmetric.metric import Metric
from boostmetric.operators import symmetric_operator

CoefCost = Callable[[NDArray], tuple[float, NDArray]]
"""From the coefficients of fixed directions to R and its gradient in them."""


class Regularizer(ABC):
    """R(M) of strength `alpha`; the objective is F(ρ(M)) + R(M)."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self._gram: NDArray | None = None

    @staticmethod
    @abstractmethod
    def unit(lambda_max: float, total: float) -> float:
        """The alpha that a relative alpha of 1 stands for.

        It depends on λ_max of the scatter at M = 0, and on the sum of the duals there, such that
        the same relative alpha suits any scale of the features and number of comparisons.
        """

    @property
    @abstractmethod
    def threshold(self) -> float:
        """A direction lowers the objective if its eigenvalue in `reduce` exceeds this."""

    @abstractmethod
    def reduce(self, scatter: NDArray | LinearOperator, metric: Metric) -> NDArray | LinearOperator:
        """The scatter less the gradient of R, but for the multiple of I that is the threshold."""

    @abstractmethod
    def value(self, metric: Metric) -> float:
        """R(M)."""

    @abstractmethod
    def value_of(self, matrix: NDArray) -> float:
        """R of a matrix."""

    @abstractmethod
    def gradient(self, matrix: NDArray) -> NDArray:
        """∇R(M), of shape (D, D)."""

    @abstractmethod
    def hessian(self, change: NDArray) -> NDArray | float:
        """∇²R[N], of shape (D, D), or 0."""

    @abstractmethod
    def along(self, metric: Metric, direction: NDArray) -> tuple[float, float]:
        """p and q such that R(M + w·v·vᵀ) has the slope p + q·w in w."""

    @abstractmethod
    def of_coefs(self, directions: NDArray) -> CoefCost:
        """R as a function of the coefficients of unit directions (D, J)."""

    @abstractmethod
    def smallest(self, scatter: NDArray, budget: float = math.inf) -> float:
        """The smallest value of R(M) − ⟨scatter, M⟩ over M ⪰ 0, or less; −∞ if there is none.

        Only such M need be looked at for which R(M) is no more than the budget.
        """

    def project(self, basis: NDArray) -> Regularizer:
        """Y ↦ R(basis·Y·basisᵀ), for `gradient` and `hessian`."""
        projected = copy(self)
        projected._gram = basis.T @ basis
        return projected

    def __repr__(self) -> str:
        return f"{type(self).__name__}(alpha={self.alpha:g})"


class Trace(Regularizer):
    """R(M) = alpha·Tr M, the paper's, which favours metrics of low rank.

    The unit of alpha is the smallest one for which M = 0 is optimal.

    >>> Trace(0.5).value(Metric(np.eye(2), np.array([3.0, 1.0])))
    2.0
    """

    @staticmethod
    def unit(lambda_max: float, total: float) -> float:
        """λ_max of the scatter at M = 0."""
        return max(lambda_max, 0.0)

    @property
    def threshold(self) -> float:
        """Alpha."""
        return self.alpha

    def reduce(self, scatter: NDArray | LinearOperator, metric: Metric) -> NDArray | LinearOperator:
        """The scatter itself."""
        return scatter

    def value(self, metric: Metric) -> float:
        """alpha·Σ_j w_j."""
        return self.alpha * float(metric.coefs.sum(dtype=np.float64))

    def value_of(self, matrix: NDArray) -> float:
        """alpha·Tr M."""
        return self.alpha * float(np.trace(matrix))

    def gradient(self, matrix: NDArray) -> NDArray:
        """alpha·I."""
        return self.alpha * (np.eye(len(matrix)) if self._gram is None else self._gram)

    def hessian(self, change: NDArray) -> float:
        """0."""
        return 0.0

    def along(self, metric: Metric, direction: NDArray) -> tuple[float, float]:
        """alpha, whatever w."""
        return self.alpha, 0.0

    def of_coefs(self, directions: NDArray) -> CoefCost:
        """alpha·Σ_j w_j."""
        slopes = np.full(directions.shape[1], self.alpha)
        return lambda coefs: (float(slopes @ coefs), slopes)

    def smallest(self, scatter: NDArray, budget: float = math.inf) -> float:
        """0 if no eigenvalue of the scatter exceeds alpha, else by how much, times Tr M."""
        excess = float(eigvalsh(scatter)[-1]) - self.alpha
        if excess <= 0:
            return 0.0
        return -excess * budget / self.alpha if self.alpha > 0 else -math.inf


class Frobenius(Regularizer):
    """R(M) = alpha/2·‖M‖²_F, which favours metrics whose eigenvalues are alike.

    No alpha makes M = 0 optimal if any direction helps. The unit is the alpha for which the first
    step, M = λ_max/alpha·v·vᵀ, adds 1 to the average margin in the weights of the duals.

    >>> Frobenius(0.5).value(Metric(np.eye(2), np.array([3.0, 1.0])))
    2.5
    """

    @staticmethod
    def unit(lambda_max: float, total: float) -> float:
        """λ_max² over the sum of the duals."""
        return max(lambda_max, 0.0) ** 2 / total if total > 0 else 0.0

    @property
    def threshold(self) -> float:
        """0."""
        return 0.0

    def reduce(self, scatter: NDArray | LinearOperator, metric: Metric) -> NDArray | LinearOperator:
        """The scatter less alpha·M."""
        if isinstance(scatter, np.ndarray):
            return scatter - scatter.dtype.type(self.alpha) * metric.matrix
        directions, costs = metric.directions, scatter.dtype.type(self.alpha) * metric.coefs
        return symmetric_operator(
            lambda V: scatter @ V - directions @ (costs[:, None] * (directions.T @ V)),
            len(directions),
            scatter.dtype,
        )

    def value(self, metric: Metric) -> float:
        """alpha/2·‖M‖²."""
        return self.of_coefs(metric.directions)(metric.coefs)[0]

    def value_of(self, matrix: NDArray) -> float:
        """alpha/2·‖M‖²."""
        return self.alpha / 2 * float(np.sum(np.square(matrix)))

    def gradient(self, matrix: NDArray) -> NDArray:
        """alpha·M."""
        return self.hessian(matrix)

    def hessian(self, change: NDArray) -> NDArray:
        """alpha·N."""
        return self.alpha * (change if self._gram is None else self._gram @ change @ self._gram)

    def along(self, metric: Metric, direction: NDArray) -> tuple[float, float]:
        """alpha·(vᵀMv + w)."""
        squares = np.square(direction @ metric.directions, dtype=np.float64)
        return self.alpha * float(squares @ metric.coefs), self.alpha

    def of_coefs(self, directions: NDArray) -> CoefCost:
        """alpha/2·wᵀQw with Q_jk = (v_jᵀv_k)², through M where that is smaller than Q."""
        V = directions.astype(np.float64)
        D, J = V.shape
        Q = np.square(V.T @ V) if J <= D else None

        def cost(coefs: NDArray) -> tuple[float, NDArray]:
            slopes = (
                np.einsum("dj,dj->j", V, (V * coefs) @ V.T @ V) if Q is None else Q @ coefs
            ) * self.alpha
            return float(slopes @ coefs) / 2, slopes

        return cost

    def smallest(self, scatter: NDArray, budget: float = math.inf) -> float:
        """−‖the positive part of the scatter‖²/(2·alpha), at M = that part over alpha."""
        square = float(np.sum(np.square(np.maximum(eigvalsh(scatter), 0))))
        if square == 0:
            return 0.0
        return -square / (2 * self.alpha) if self.alpha > 0 else -math.inf


class UnitTrace(Trace):
    """R(M) = 0 if Tr M = 1, else ∞: what the soft-margin linear program has.

    Its price of a unit of trace, the program's π, is not given but found.
    """

    @staticmethod
    def unit(lambda_max: float, total: float) -> float:
        """1: π is absolute."""
        return 1.0

    def value(self, metric: Metric) -> float:
        """0: the program keeps the trace at 1."""
        return 0.0


REGULARIZERS: dict[str, type[Regularizer]] = {"trace": Trace, "frobenius": Frobenius}
"""The regularisers that an estimator knows by name."""
