"""Loss functions of the margins. A loss never sees the points.

Margins are ρ_r = d²(far_r) − d²(near_r) − gap_r; a comparison is satisfied if its margin is
positive. Comparison r may have a weight c_r > 0, which enters the loss.

To add a loss, derive from `Loss` and implement `value` and `duals`:

>>> import numpy as np
>>> from boostmetric import BoostMetric, Loss
>>> class CubedHinge(Loss):
...     "F(ρ) = Σ c_r·max(0, 1 − ρ_r)³."
...     def value(self, margins, weights=None):
...         slack = np.maximum(1 - margins, 0)
...         return float(np.sum(slack**3 if weights is None else weights * slack**3))
...     def duals(self, margins, weights=None):
...         slack = 3 * np.maximum(1 - margins, 0) ** 2
...         return slack if weights is None else weights * slack
>>> from sklearn.datasets import load_iris
>>> X, y = load_iris(return_X_y=True)
>>> BoostMetric(loss=CubedHinge(), max_iter=20).fit(X, y).score(X, y) > 0.9
True
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from boostmetric._validation import check_parameter


class Loss(ABC):
    """A convex function F of the margins, with its negative gradient; the base of custom losses.

    For comparisons, F must be nonincreasing, so that the duals are nonnegative; `learn_psd` accepts
    any convex function.

    `solvers` and `regularizers` are the names of the ones that support the loss. `lower` is a lower
    bound of F, which improves the certificate.
    """

    lower: ClassVar[float] = -math.inf
    solvers: ClassVar[tuple[str, ...]] = ("stagewise", "totally_corrective")
    regularizers: ClassVar[tuple[str, ...]] = ("trace", "frobenius", "shrinkage")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Reset methods derived from `value` and `duals` if a class overrides either of these."""
        super().__init_subclass__(**kwargs)
        if {"value", "duals"} & vars(cls).keys():
            for name in ("value_and_duals", "merge"):
                if name not in vars(cls):
                    setattr(cls, name, vars(Loss)[name])

    @abstractmethod
    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        """F(ρ), finite for finite margins of any size. Sum in float64."""

    @abstractmethod
    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        """u = −∇F(ρ), of shape (m,), in the dtype of the margins."""

    def value_and_duals(
        self, margins: NDArray, weights: NDArray | None = None
    ) -> tuple[float, NDArray]:
        """Both; override this method if they share work."""
        return self.value(margins, weights), self.duals(margins, weights)

    def merge(self, values: NDArray) -> tuple[float, NDArray]:
        """F of all comparisons and ∂F/∂F_b, from the values F_b of disjoint parts.

        The duals of all comparisons are those of part b times ∂F/∂F_b. The default applies to sums
        over comparisons and returns the sum and ones. Other losses must override this method;
        otherwise they require all comparisons in one block (`is_mergeable`).
        """
        return float(np.sum(values)), np.ones(len(values))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Exponential(Loss):
    """F(ρ) = log Σ c_r·exp(−ρ_r), the paper's log-sum-exp form of AdaBoost's loss (EQ:4).

    Duals u_r = c_r·exp(−ρ_r) / Σ_k c_k·exp(−ρ_k): they sum to one (EQ:KKT). The conjugate is the
    negative entropy Σ u_r·log(u_r/c_r) on the simplex. F → −∞ as all margins grow, so with
    separable comparisons the objective may have no lower bound.

    The largest exponent is subtracted first, so that exponentials do not overflow.

    >>> import numpy as np
    >>> round(Exponential().value(np.array([1e4, 1e4])), 6)
    -9999.306853
    """

    # `value` and `duals` name the class, because a subclass that overrides one of them has the
    # `value_and_duals` of `Loss`, which would call them.

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return Exponential.value_and_duals(self, margins, weights)[0]

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        return Exponential.value_and_duals(self, margins, weights)[1]

    def value_and_duals(
        self, margins: NDArray, weights: NDArray | None = None
    ) -> tuple[float, NDArray]:
        """−ρ_min + log Σ c_r·exp(ρ_min − ρ_r), and the softmax of −ρ, weighted."""
        lowest = margins.min()
        terms = lowest - margins
        np.exp(terms, out=terms)
        if weights is not None:
            terms *= weights
        total = terms.sum(dtype=np.float64)
        terms /= terms.dtype.type(total)  # dividing by a float64 scalar would use float64
        return float(np.log(total) - lowest), terms

    def merge(self, values: NDArray) -> tuple[float, NDArray]:
        """The log-sum-exp of the values, and their softmax."""
        highest = np.max(values)
        terms = np.exp(values - highest)
        total = terms.sum()
        return float(highest + np.log(total)), terms / total


class Logistic(Loss):
    """F(ρ) = Σ c_r·log(1 + exp(−ρ_r)) (EQ:4B).

    Duals u_r = c_r/(1 + exp(ρ_r)), between 0 and c_r (EQ:KKT3). The conjugate is the binary
    entropy (EQ:fenchel). F ≥ 0 grows linearly as a margin goes to −∞, whereas the exponential
    loss is dominated by the worst comparisons.

    The value is Σ c_r·(max(0, −ρ_r) + log(1 + e)) with e = exp(−|ρ_r|), which is accurate for
    margins of either sign.

    >>> import numpy as np
    >>> Logistic().value(np.array([-1e4, 1e4]))
    10000.0
    """

    lower = 0.0

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return Logistic.value_and_duals(self, margins, weights)[0]

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        return Logistic.value_and_duals(self, margins, weights)[1]

    def value_and_duals(
        self, margins: NDArray, weights: NDArray | None = None
    ) -> tuple[float, NDArray]:
        """Both from the same exponentials; the duals are e/(1 + e) if ρ > 0, else 1/(1 + e)."""
        small = np.abs(margins)
        np.negative(small, out=small)
        np.exp(small, out=small)
        # log(1 + e) = log(u) + r/u with u = 1 + e, rounded, and the rounding error r = e − (u − 1).
        # It is as accurate as log1p, which NumPy does not vectorize: it takes four times as long
        # (measured in float32).
        terms = small + 1
        rest = terms - 1
        np.subtract(small, rest, out=rest)
        rest /= terms
        np.log(terms, out=terms)
        terms += rest
        terms -= np.minimum(margins, 0)
        # e if ρ > 0, else 1; np.where is several times slower for random signs.
        duals = np.maximum(small, margins <= 0)
        small += 1
        duals /= small
        if weights is not None:
            terms *= weights
            duals *= weights
        return float(terms.sum(dtype=np.float64)), duals


class SquaredHinge(Loss):
    """F(ρ) = Σ c_r·max(0, 1 − ρ_r)².

    Duals u_r = 2·c_r·max(0, 1 − ρ_r): exactly 0 for margins of at least 1.

    >>> import numpy as np
    >>> SquaredHinge().value(np.array([-1.0, 0.5, 2.0]))
    4.25
    """

    lower = 0.0

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        slack = np.maximum(1 - margins, 0).astype(np.float64)
        return float(slack @ slack if weights is None else (weights * slack) @ slack)

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        duals = np.maximum(1 - margins, 0)
        duals *= 2
        return duals if weights is None else duals * weights


class SmoothedHinge(Loss):
    """F(ρ) = Σ c_r·f(1 − ρ_r), the hinge with a smoothed corner (Huber).

    f(s) = 0 for s ≤ 0, s²/(2·width) for s ≤ width, and s − width/2 for larger s. It grows linearly,
    so it tolerates comparisons that cannot be satisfied, and is exactly 0 for margins of at least
    1. Duals u_r = c_r·min(1, max(0, 1 − ρ_r)/width).

    Parameters
    ----------
    width : positive; the limit for width → 0 is the hinge

    Examples
    --------
    >>> import numpy as np
    >>> SmoothedHinge(width=1.0).value(np.array([-1.0, 0.5, 2.0]))
    1.625
    """

    lower = 0.0

    def __init__(self, width: float = 0.5) -> None:
        check_parameter("width", width, width > 0, "a float in the range (0.0, inf)")
        self.width = width

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        slack = np.maximum(1 - margins, 0).astype(np.float64)
        bent = np.minimum(slack, self.width)
        terms = bent**2 / (2 * self.width) + (slack - bent)
        return float(np.sum(terms if weights is None else weights * terms))

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        duals: NDArray = np.clip((1 - margins) / margins.dtype.type(self.width), 0, 1)
        return duals if weights is None else duals * weights

    def __repr__(self) -> str:
        return f"SmoothedHinge(width={self.width})"


class Hinge(Loss):
    """The soft-margin hinge: F(ρ) = min over t of −t + Σ v_r·max(0, t − ρ_r) (EQ:HingeP2).

    The required margin t is maximized instead of fixed at 1, and the trace of M is fixed at 1
    instead of penalized with alpha. The penalty for a margin below t is v_r = c_r/(nu·Σc); the
    paper uses v = 1/(nu·m) for all comparisons. It is not the v of the smooth losses, which is
    `alpha` in this package.

    F is minus the average of the share nu of smallest margins. Hence, at least a share nu of the
    comparisons influence the metric, and at most a share nu have a margin below t. Duals sum to 1,
    and each is at most v_r (EQ:HingeD2). They are the solution of a linear program, which requires
    the extra `boostmetric[hinge]` and all comparisons in one block.

    Parameters
    ----------
    nu : float in the range (0, 1]

    Examples
    --------
    >>> import numpy as np
    >>> Hinge(nu=0.5).value(np.array([-1.0, 5.0, 2.0, 3.0]))
    -0.5
    """

    solvers = ("totally_corrective",)
    regularizers = ("trace",)

    def __init__(self, nu: float = 0.3) -> None:
        check_parameter("nu", nu, 0 < nu <= 1, "a float in the range (0.0, 1.0]")
        self.nu = nu

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return -float(self.duals(margins, weights) @ margins.astype(np.float64))

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        """A subgradient: v_r for the smallest margins, until they sum to 1."""
        order = np.argsort(margins, kind="stable")
        prices = self.prices(len(margins), weights)
        duals = np.empty(len(margins))
        duals[order] = np.diff(np.minimum(np.cumsum(prices[order]), 1), prepend=0)
        return duals.astype(margins.dtype)

    def prices(self, m: int, weights: NDArray | None) -> NDArray:
        """v_r, the largest dual of each of m comparisons."""
        # In float64, because the linear program is feasible only if the prices sum to at least 1.
        shares = np.ones(m) if weights is None else weights.astype(np.float64)
        return shares / shares.sum() / self.nu

    def __repr__(self) -> str:
        return f"Hinge(nu={self.nu})"


def is_mergeable(loss: Loss) -> bool:
    """Whether `merge` yields the value and the duals of all comparisons from those of parts.

    This is tested on random margins, because the default of `merge` is correct only for sums. A
    loss that cannot be evaluated on a part, for instance because it has a parameter for each
    comparison, is not mergeable.

    >>> is_mergeable(LOSSES["exponential"]), is_mergeable(LOSSES["hinge"])
    (True, False)
    """
    rng = np.random.default_rng(0)
    margins, weights = rng.normal(size=12), rng.uniform(0.5, 2, size=12)
    parts = (slice(0, 5), slice(5, 12))
    try:
        value, duals = loss.value_and_duals(margins, weights)
        pieces = [loss.value_and_duals(margins[part], weights[part]) for part in parts]
        merged, factors = loss.merge(np.array([piece[0] for piece in pieces]))
        together = np.concatenate([f * u for f, (_, u) in zip(factors, pieces, strict=True)])
    except Exception:  # a custom loss may raise anything
        return False
    return bool(np.isclose(value, merged) and np.allclose(duals, together))


class NotANumberError(ArithmeticError):
    """A loss returned NaN for finite margins. `fit` is the result before the failing step."""

    fit: Any = None


LOSSES: dict[str, Loss] = {
    "exponential": Exponential(),
    "logistic": Logistic(),
    "squared_hinge": SquaredHinge(),
    "smoothed_hinge": SmoothedHinge(),
    "hinge": Hinge(),
}
"""The losses by name."""


def as_loss(given: str | Loss) -> Loss:
    """Look up a loss by name; return instances of Loss unchanged.

    >>> as_loss("hinge")
    Hinge(nu=0.3)
    """
    if isinstance(given, Loss):
        return given
    names = ", ".join(map(repr, LOSSES))
    is_known = isinstance(given, str) and given in LOSSES
    check_parameter("loss", given, is_known, f"one of {names} or an instance of Loss")
    return LOSSES[given]
