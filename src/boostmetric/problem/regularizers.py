"""Regularizers R(M), which are added to the loss.

Every M ⪰ 0 is a sum of w_j·v_j·v_jᵀ, so solvers use R and its gradient in M, along a direction, and
on a slice s·M + Σ w_j·v_j·v_jᵀ. The certificate uses the minimum of R(M) − ⟨G, M⟩ over M ⪰ 0, which
is minus the conjugate of R.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh
from scipy.sparse.linalg import LinearOperator

from boostmetric._validation import check_parameter
from boostmetric.problem.operators import symmetric_operator
from boostmetric.problem.step import Sum

SlicePenalty = Callable[[float, NDArray], tuple[float, NDArray]]
"""Maps s and w to R on a slice and its gradient in (s, w), of shape (1 + k,)."""


@dataclass(frozen=True)
class Regularizer(ABC):
    """R(M) of strength `alpha`; the objective is F(ρ(M)) + R(M).

    Parameters
    ----------
    alpha : float or None, default=None
        Absolute strength, the paper's v. None uses the relative alpha of the estimator.
    """

    alpha: float | None = None

    def __post_init__(self) -> None:
        is_valid = self.alpha is None or 0 <= self.alpha < math.inf
        check_parameter("alpha", self.alpha, is_valid, "None or a float in the range [0.0, inf)")

    @property
    def strength(self) -> float:
        """The absolute alpha, which must be set before a problem is solved."""
        assert self.alpha is not None
        return self.alpha

    @staticmethod
    @abstractmethod
    def unit(lambda_max: float, dual_sum: float) -> float:
        """The absolute alpha that corresponds to a relative alpha of 1.

        It depends on λ_max of the scatter and the sum of the duals at M = 0, so that a relative
        alpha is independent of the scale of the features and the number of comparisons.
        """

    @staticmethod
    @abstractmethod
    def in_units(alpha: float, unit: float) -> float:
        """Convert the absolute alpha for matrices A_r to that for matrices A_r·unit."""

    @property
    def multiple(self) -> float:
        """R is smallest at this multiple of the identity, from which fits start."""
        return 0.0

    @property
    def curvature(self) -> float:
        """The second derivative of R along any unit direction."""
        return 0.0

    @property
    @abstractmethod
    def threshold(self) -> float:
        """A direction lowers the objective if its eigenvalue in `reduce` exceeds this."""

    @abstractmethod
    def reduce(self, scatter: NDArray | LinearOperator, M: Sum) -> NDArray | LinearOperator:
        """The scatter minus the gradient of R, except for threshold·I."""

    @abstractmethod
    def value(self, M: Sum) -> float:
        """R(M)."""

    @abstractmethod
    def along(self, M: Sum, direction: NDArray) -> tuple[float, float]:
        """p and q such that R(M + w·v·vᵀ) has the slope p + q·w in w."""

    @abstractmethod
    def on_slice(self, M: Sum, directions: NDArray) -> SlicePenalty:
        """R(s·M + Σ_j w_j·v_j·v_jᵀ) as a function of s and w, for unit directions (D, k)."""

    @abstractmethod
    def value_of(self, matrix: NDArray) -> float:
        """R at any symmetric matrix."""

    @abstractmethod
    def gradient(self, matrix: NDArray) -> NDArray:
        """The gradient of `value_of`, of shape (D, D)."""

    @abstractmethod
    def smallest(self, scatter: NDArray, budget: float = math.inf) -> float:
        """A lower bound of R(M) − ⟨scatter, M⟩ over M ⪰ 0 with R(M) ≤ budget; −∞ if unbounded."""

    def __repr__(self) -> str:
        alpha = "" if self.alpha is None else f"alpha={self.alpha:g}"
        return f"{type(self).__name__}({alpha})"


@dataclass(frozen=True, repr=False)
class Trace(Regularizer):
    """R(M) = alpha·Tr M, the paper's regularizer, which favors metrics of low rank.

    The unit of a relative alpha is the smallest alpha for which M = 0 is optimal.

    >>> Trace(0.5).value_of(np.diag([3.0, 1.0]))
    2.0
    """

    @staticmethod
    def unit(lambda_max: float, dual_sum: float) -> float:
        return max(lambda_max, 0.0)

    @staticmethod
    def in_units(alpha: float, unit: float) -> float:
        return alpha * unit  # M is divided by the unit

    @property
    def threshold(self) -> float:
        return self.strength

    def reduce(self, scatter: NDArray | LinearOperator, M: Sum) -> NDArray | LinearOperator:
        return scatter

    def value(self, M: Sum) -> float:
        return self.strength * M.trace

    def along(self, M: Sum, direction: NDArray) -> tuple[float, float]:
        return self.strength, 0.0

    def on_slice(self, M: Sum, directions: NDArray) -> SlicePenalty:
        slopes = np.append(self.strength * M.trace, np.full(directions.shape[1], self.strength))
        return lambda s, w: (float(slopes[0] * s + slopes[1:] @ w), slopes)

    def value_of(self, matrix: NDArray) -> float:
        return self.strength * float(np.trace(matrix))

    def gradient(self, matrix: NDArray) -> NDArray:
        return self.strength * np.eye(len(matrix))

    def smallest(self, scatter: NDArray, budget: float = math.inf) -> float:
        """−max(0, λ_max − alpha)·Tr M, with the largest trace that the budget allows."""
        excess = float(eigvalsh(scatter)[-1]) - self.strength
        if excess <= 0:
            return 0.0
        return -excess * budget / self.strength if self.strength > 0 else -math.inf


@dataclass(frozen=True, repr=False)
class Frobenius(Regularizer):
    """R(M) = alpha/2·‖M‖²_F, which favors metrics with similar eigenvalues.

    M = 0 is not optimal for any alpha if some direction lowers the loss. The unit of a relative
    alpha is the alpha for which the first step, M = λ_max/alpha·v·vᵀ, increases the average margin,
    weighted by the duals, by 1.

    >>> Frobenius(0.5).value_of(np.diag([3.0, 1.0]))
    2.5
    """

    @staticmethod
    def unit(lambda_max: float, dual_sum: float) -> float:
        # The square of an eigenvalue may overflow.
        return max(lambda_max, 0.0) * (lambda_max / dual_sum) if dual_sum > 0 else 0.0

    @staticmethod
    def in_units(alpha: float, unit: float) -> float:
        return alpha * unit * unit

    @property
    def curvature(self) -> float:
        return self.strength

    @property
    def threshold(self) -> float:
        return 0.0

    def reduce(self, scatter: NDArray | LinearOperator, M: Sum) -> NDArray | LinearOperator:
        if isinstance(scatter, np.ndarray):
            return scatter - self.strength * M.times(np.eye(len(scatter)))
        return symmetric_operator(
            lambda V: scatter @ V - (self.strength * M.times(V)).astype(scatter.dtype),
            scatter.shape[0],
            scatter.dtype,
        )

    def value(self, M: Sum) -> float:
        return self.strength / 2 * M.squared_norm

    def along(self, M: Sum, direction: NDArray) -> tuple[float, float]:
        return self.strength * float(M.quadratic(direction[:, None])[0]), self.strength

    def on_slice(self, M: Sum, directions: NDArray) -> SlicePenalty:
        """alpha/2·(s²·‖M‖² + 2s·cᵀw + wᵀQw) with c_j = v_jᵀMv_j and Q_jk = (v_jᵀv_k)².

        With more directions than features, Qw is computed from Σ w_j·v_j·v_jᵀ without forming Q.
        """
        V, c, square = directions.astype(np.float64), M.quadratic(directions), M.squared_norm
        D, k = V.shape
        Q = np.square(V.T @ V) if k <= D else None

        def penalty(s: float, w: NDArray) -> tuple[float, NDArray]:
            Qw = np.einsum("dj,dj->j", V, ((V * w) @ V.T) @ V) if Q is None else Q @ w
            slopes = self.strength * np.append(s * square + c @ w, s * c + Qw)
            return float(slopes @ np.append(s, w)) / 2, slopes

        return penalty

    def value_of(self, matrix: NDArray) -> float:
        return self.strength * float(np.sum(np.square(matrix))) / 2

    def gradient(self, matrix: NDArray) -> NDArray:
        return self.strength * matrix

    def smallest(self, scatter: NDArray, budget: float = math.inf) -> float:
        """−‖G₊‖²/(2·alpha) for the positive part G₊ of the scatter, at M = G₊/alpha."""
        square = float(np.sum(np.square(np.maximum(eigvalsh(scatter), 0))))
        if square == 0:
            return 0.0
        return -square / (2 * self.strength) if self.strength > 0 else -math.inf


@dataclass(frozen=True, repr=False)
class Shrinkage(Frobenius):
    """R(M) = alpha/2·‖M − c·I‖²_F, which favors metrics close to the one before learning.

    A large alpha yields a multiple of the Euclidean metric (in the space of the starting
    transformation) instead of M = 0, and directions on which the comparisons have little effect
    keep the eigenvalue c. Therefore it does the least harm if there are few comparisons. Fits start
    from M = c·I, which has full rank, so at most 600 features are supported.

    The unit of a relative alpha is that of `Frobenius`, so that both agree for c = 0.

    Parameters
    ----------
    alpha : float or None, default=None
        Absolute strength. None uses the relative alpha of the estimator.
    center : float or None, default=None
        c. None uses the c for which the weighted mean of |⟨A_r, c·I⟩| over the comparisons is 1: it
        depends neither on the scale of the features nor on the number of comparisons, and a loss
        that changes around margins of ±1 is neither saturated nor linear there.

    Examples
    --------
    >>> Shrinkage(0.5, center=1.0).value_of(np.diag([3.0, 1.0]))
    1.0
    """

    center: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        is_valid = self.center is None or 0 <= self.center < math.inf
        check_parameter("center", self.center, is_valid, "None or a float in the range [0.0, inf)")

    @property
    def multiple(self) -> float:
        assert self.center is not None
        return self.center

    @property
    def threshold(self) -> float:
        return -self.strength * self.multiple

    # The Frobenius norm plus alpha·c·(c·D/2 − Tr M).

    def value(self, M: Sum) -> float:
        return super().value(M) + self._rest(M.trace, M.n_features)

    def along(self, M: Sum, direction: NDArray) -> tuple[float, float]:
        price, curvature = super().along(M, direction)
        return price + self.threshold, curvature

    def on_slice(self, M: Sum, directions: NDArray) -> SlicePenalty:
        norm = super().on_slice(M, directions)
        traces = np.append(M.trace, np.ones(directions.shape[1]))

        def penalty(s: float, w: NDArray) -> tuple[float, NDArray]:
            value, slopes = norm(s, w)
            rest = self._rest(float(traces @ np.append(s, w)), M.n_features)
            return value + rest, slopes + self.threshold * traces

        return penalty

    def value_of(self, matrix: NDArray) -> float:
        return super().value_of(matrix) + self._rest(float(np.trace(matrix)), len(matrix))

    def gradient(self, matrix: NDArray) -> NDArray:
        return super().gradient(matrix) + self.threshold * np.eye(len(matrix))

    def smallest(self, scatter: NDArray, budget: float = math.inf) -> float:
        """Completing the square: the minimum is at the positive part of c·I + G/alpha."""
        shifted = scatter - self.threshold * np.eye(len(scatter))
        return super().smallest(shifted) + self._rest(0.0, len(scatter))

    def _rest(self, trace: float, n_features: int) -> float:
        return self.strength * self.multiple * (self.multiple * n_features / 2 - trace)

    def __repr__(self) -> str:
        given = {"alpha": self.alpha, "center": self.center}
        shown = (f"{name}={value:g}" for name, value in given.items() if value is not None)
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class UnitTrace(Trace):
    """R(M) = 0 if Tr M = 1, else ∞: the constraint of the soft-margin linear program.

    `alpha` is not used: the multiplier of the constraint is determined by the linear program.
    """

    def value(self, M: Sum) -> float:
        return 0.0  # the linear program keeps the trace at 1


REGULARIZERS: dict[str, type[Regularizer]] = {
    "trace": Trace,
    "frobenius": Frobenius,
    "shrinkage": Shrinkage,
}
"""The regularizers by name."""
