"""The objective F(ρ(M)) + R(M) over M ⪰ 0, the interface between solvers and data.

A solver does not access points, comparisons or engines. It queries an `Objective`, which queries
the blocks: each query is one round over all blocks. For many features, each product with the
scatter is a round. M changes only in `take` and `restore`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from boostmetric.engines import StopRequested
from boostmetric.engines.local import Result
from boostmetric.problem.block import Block, Part
from boostmetric.problem.losses import Loss, is_mergeable
from boostmetric.problem.operators import Operator, symmetric_operator
from boostmetric.problem.regularizers import Regularizer
from boostmetric.problem.step import EPOCHS, Position, Step, Sum


class Engine(Protocol):
    """Runs a function on every block; see `engines`."""

    def call(
        self, function: Callable[..., Result], blocks: Sequence[Any], *arguments: Any
    ) -> list[Result]:
        """The results in the order of the blocks."""
        ...


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The objective at some M.

    Attributes
    ----------
    value : F(ρ(M)) + R(M)
    dual_sum : Σ|u_r|
    n_violated : number of comparisons with a margin ≤ 0
    largest : the largest |⟨A_r, M⟩|
    scatter : Σ u_r·A_r, a matrix or a LinearOperator, or None if it was not requested
    """

    value: float
    dual_sum: float
    n_violated: int
    largest: float
    scatter: NDArray | LinearOperator | None


class Objective:
    """F(ρ(M)) + R(M), where M is the sum of the steps so far.

    Parameters
    ----------
    engine : runs queries on the blocks
    blocks : the result of the engine's `place`
    loss, regularizer : F and R
    layout : the number of terms of each block
    n_features : D
    dtype : dtype of directions and margins
    is_dense : whether matrices of shape (D, D) are formed

    Attributes
    ----------
    should_stop : if set, called before every query; if it returns True, `StopRequested` is raised
    """

    def __init__(
        self,
        engine: Engine,
        blocks: Sequence[Any],
        loss: Loss,
        regularizer: Regularizer,
        layout: Sequence[int],
        n_features: int,
        dtype: np.dtype,
        is_dense: bool = True,
    ) -> None:
        if len(blocks) > 1 and not is_mergeable(loss):
            raise ValueError(
                f"{loss!r} requires all comparisons in one block, but there are {len(blocks)}: its "
                "value does not follow from those of the blocks by its `merge` method. Use another "
                "loss, such as 'smoothed_hinge', override `merge`, or fit in memory."
            )
        self.engine, self.blocks, self.loss, self.regularizer = engine, blocks, loss, regularizer
        self.layout, self.n_terms, self.n_features = tuple(layout), sum(layout), n_features
        self.dtype, self.is_dense = np.dtype(dtype), is_dense
        self.should_stop: Callable[[], bool] | None = None
        self.n_rounds = 0
        self.M = self.zero()
        self._n_sent = 0

    @classmethod
    def of_operator(
        cls,
        engine: Any,
        operator: Operator,
        loss: Loss,
        regularizer: Regularizer,
        gaps: NDArray | None = None,
        weights: NDArray | None = None,
    ) -> Objective:
        """The objective of one block with the given operator, gaps b_r and weights c_r > 0."""
        block = Block(
            operator,
            loss,
            check_gaps(gaps, operator.n_matrices, operator.dtype),
            check_weights(weights, operator.n_matrices, operator.dtype),
            engine.threads,
        )
        return cls(
            engine,
            [block],
            loss,
            regularizer,
            [operator.n_matrices],
            operator.n_features,
            operator.dtype,
            operator.is_dense,
        )

    def zero(self) -> Sum:
        """M = 0."""
        matrix = np.zeros((self.n_features,) * 2) if self.is_dense else None
        return Sum(self.n_features, self.dtype, matrix=matrix)

    def take(self, step: Step) -> None:
        """Update M by a step."""
        self.M = self.M.after(step)
        if step.scale == 0:
            self._n_sent = 0

    def restore(self, M: Sum) -> None:
        """Set M to an earlier state, or to that of another fit of the same problem.

        A new epoch begins, because blocks must not confuse the next steps with those undone.
        """
        self.M, self._n_sent = replace(M, epoch=next(EPOCHS)), 0

    def evaluate(self, with_scatter: bool = True) -> Evaluation:
        """The objective at M. For many features, the scatter is a LinearOperator.

        The operator is valid only until M changes, and each product with it is a round.
        """
        parts = self._query(Block.evaluate, with_scatter)
        merged = self._merge(parts, self.regularizer.value(self.M))
        if self.is_dense or not with_scatter:
            return merged
        factors = np.ones(1)
        if len(parts) > 1:
            factors = self.loss.merge(np.array([part.value for part in parts]))[1]

        def product(V: NDArray) -> NDArray:
            images = self._query(Block.scatter_product, V.astype(self.dtype, copy=False))
            return weighted_sum(factors, images).astype(self.dtype)

        return replace(merged, scatter=symmetric_operator(product, self.n_features, self.dtype))

    def along(self, direction: NDArray, coef: float) -> NDArray:
        """Sums at M + w·v·vᵀ: F, Σ u·h, Σ|u·h| and, at w = 0 only, three more.

        These are Σ|u|, Σ|u|·h·max(h, 0) and Σ|u|·h·min(h, 0), for the responses h_r = vᵀA_r v. The
        penalty is not included; `regularizer.along` returns its slope.
        """
        sums = np.array(self._query(Block.along, direction, coef))
        value, factors = self.loss.merge(sums[:, 0]) if len(sums) > 1 else (sums[0, 0], np.ones(1))
        return np.append(value, factors @ sums[:, 1:])

    def on_slice(
        self, directions: NDArray, with_scale: bool
    ) -> Callable[[float, NDArray], tuple[float, NDArray]]:
        """The objective at s·M + Σ_j w_j·v_j·v_jᵀ and its gradient (1 + k,), as a function of s, w.

        Each evaluation is a round. Without `with_scale`, the derivative in s is not computed.
        """
        penalty = self.regularizer.on_slice(self.M, directions)

        def evaluate(scale: float, coefs: NDArray) -> tuple[float, NDArray]:
            rows = np.array(self._query(Block.on_slice, directions, scale, coefs, with_scale))
            if len(rows) == 1:
                loss, slopes = rows[0, 0], rows[0, 1:]
            else:
                loss, factors = self.loss.merge(rows[:, 0])
                slopes = factors @ rows[:, 1:]
            cost, costs = penalty(scale, coefs)
            return loss + cost, slopes + costs

        return evaluate

    def largest_value(self, directions: NDArray, scale: float, coefs: NDArray) -> float:
        """The largest |⟨A_r, ·⟩| at s·M + Σ_j w_j·v_j·v_jᵀ."""
        return max(self._query(Block.largest_value, directions, scale, coefs))

    def response_sizes(self, directions: NDArray) -> NDArray:
        """The weighted mean of |v_jᵀA_r v_j| over the terms, for every direction."""
        parts = self._call(Block.response_sizes, directions)
        sums = weighted_sum(np.ones(len(parts)), parts)
        return sums[:-1] / sums[-1]

    def evaluate_at(
        self, Y: NDArray, basis: NDArray | None = None, with_scatter: bool = True
    ) -> Evaluation:
        """The objective at basis·Y·basisᵀ for any symmetric Y; without a basis, at Y itself.

        The scatter is a matrix in the coordinates of Y, for any D.
        """
        parts = self._call(Block.evaluate_at, Y, basis, with_scatter)
        return self._merge(parts, self.regularizer.value_of(Y, _gram(basis)))

    def gradient_at(self, Y: NDArray, at: Evaluation, basis: NDArray | None = None) -> NDArray:
        """The gradient of the objective in Y, ∇R − scatter, given the evaluation at Y."""
        assert isinstance(at.scatter, np.ndarray)
        return self.regularizer.gradient(Y, _gram(basis)) - at.scatter

    def hessian_at(self, Y: NDArray, N: NDArray, basis: NDArray | None = None) -> NDArray:
        """The Hessian of the objective at Y applied to N, with the shape of Y."""
        parts = self._call(Block.hessian_at, Y, N, basis, len(self.blocks) == 1)
        curved = parts[0][3].astype(np.float64)
        if len(parts) > 1:
            values, slopes = np.array([part[:2] for part in parts]).T
            factors = self.loss.merge(values)[1]
            changes = self.loss.merge_change(values, slopes)
            curved = weighted_sum(factors, [part[3] for part in parts])
            curved -= weighted_sum(changes, [part[2] for part in parts if part[2] is not None])
        return curved + self.regularizer.hessian(N, _gram(basis))

    def absolute_scatter_at(self, Y: NDArray, basis: NDArray | None = None) -> NDArray:
        """Σ |u_r|·|A_r| at Y, or a multiple of Σ |A_r| if that is zero, with the shape of Y."""
        parts = self._call(Block.absolute_scatter_at, Y, basis)
        if len(parts) == 1:
            return np.asarray(parts[0][2], dtype=np.float64)
        factors = self.loss.merge(np.array([part[0] for part in parts]))[1]
        if any(part[1] for part in parts):
            factors = factors * [part[1] for part in parts]
        return weighted_sum(factors, [part[2] for part in parts])

    def margins_and_duals(self) -> tuple[NDArray, NDArray]:
        """ρ and u of the terms of a single block; for users, not for solvers."""
        return self._query(Block.margins_and_duals)[0]

    def single_block(self) -> Block:
        """The only block, for solvers that require all comparisons in one block."""
        (block,) = self.blocks
        assert isinstance(block, Block)
        return block

    def _merge(self, parts: Sequence[Part], penalty: float) -> Evaluation:
        value, factors = parts[0].value, np.ones(1)
        if len(parts) > 1:
            value, factors = self.loss.merge(np.array([part.value for part in parts]))
        scatters = [part.scatter for part in parts if part.scatter is not None]
        return Evaluation(
            value + penalty,
            float(factors @ [part.dual_sum for part in parts]),
            sum(part.n_violated for part in parts),
            max(part.largest for part in parts),
            weighted_sum(factors, scatters) if scatters else None,
        )

    def _query(self, function: Callable[..., Result | None], *arguments: Any) -> list[Result]:
        """Query all blocks at M, and send them the steps since the last query."""

        def position(first: int) -> Position:
            return Position(self.M.epoch, first, self.M.steps[first:])

        results = self._call(function, position(self._n_sent), *arguments)
        stale = [number for number, result in enumerate(results) if result is None]
        if stale:
            blocks = [self.blocks[number] for number in stale]
            again = self.engine.call(function, blocks, position(0), *arguments)
            for number, result in zip(stale, again, strict=True):
                results[number] = result
        self._n_sent = len(self.M.steps)
        return results  # type: ignore[return-value]

    def _call(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        if self.should_stop is not None and self.should_stop():
            raise StopRequested
        self.n_rounds += 1
        return self.engine.call(function, self.blocks, *arguments)


def weighted_sum(factors: NDArray, arrays: Sequence[NDArray]) -> NDArray:
    """Σ_b factors_b·arrays_b in float64, in this order."""
    total = factors[0] * arrays[0].astype(np.float64)
    for factor, array in zip(factors[1:], arrays[1:], strict=True):
        total += factor * array
    return total


def check_gaps(gaps: NDArray | None, m: int, dtype: np.dtype) -> NDArray | None:
    """Check that gaps have shape (m,) and are finite, and convert them."""
    if gaps is None:
        return None
    if gaps.shape != (m,):
        raise ValueError(f"gaps must have shape ({m},), one per matrix; got {gaps.shape}.")
    if not np.isfinite(gaps).all():
        raise ValueError("gaps must be finite.")
    return gaps.astype(dtype)


def check_weights(weights: NDArray | None, m: int, dtype: np.dtype) -> NDArray | None:
    """Check that weights have shape (m,) and are positive, and convert them."""
    if weights is None:
        return None
    if weights.shape != (m,):
        raise ValueError(f"weights must have shape ({m},), one per matrix; got {weights.shape}.")
    low, high, limits = weights.min(), weights.max(), np.finfo(dtype)
    if not (low >= limits.tiny and high <= limits.max):
        raise ValueError(
            f"weights must be positive and in the range of {dtype}; got values between {low:g} and "
            f"{high:g}. Leave out terms of weight 0, or divide all weights by their mean."
        )
    return weights.astype(dtype)


def _gram(basis: NDArray | None) -> NDArray | None:
    return None if basis is None else basis.T @ basis
