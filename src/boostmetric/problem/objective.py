"""The objective F(ρ(M)) + R(M) over M ⪰ 0, the interface between solvers and data.

A solver does not access points, comparisons or engines. It queries an `Objective`, which queries
the blocks: each query is one round over all blocks. For many features, each product with the
scatter is a round. M changes only in `take` and `restore`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.engines import Dask, Local, StopRequested
from boostmetric.engines.local import Result
from boostmetric.problem.block import Block, Evaluation
from boostmetric.problem.losses import Hinge, Loss, is_mergeable
from boostmetric.problem.operators import Operator, symmetric_operator
from boostmetric.problem.regularizers import Regularizer
from boostmetric.problem.step import EPOCHS, Step, Sum


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
    unit : the matrices A_r of the blocks are those of the user divided by this number

    Attributes
    ----------
    should_stop : if set, called before every query; if it returns True, `StopRequested` is raised
    """

    def __init__(
        self,
        engine: Local | Dask,
        blocks: Sequence[Any],
        loss: Loss,
        regularizer: Regularizer,
        layout: Sequence[int],
        n_features: int,
        dtype: np.dtype,
        is_dense: bool = True,
        unit: float = 1.0,
    ) -> None:
        if len(blocks) > 1 and not is_mergeable(loss):
            raise ValueError(
                f"{loss!r} requires all comparisons in one block, but there are {len(blocks)}: its "
                "value does not follow from those of the blocks by its `merge` method. Use another "
                "loss, such as 'smoothed_hinge', override `merge`, or fit in memory."
            )
        self.engine, self.blocks, self.loss, self.regularizer = engine, blocks, loss, regularizer
        self.layout, self.n_terms, self.n_features = tuple(layout), sum(layout), n_features
        self.dtype, self.is_dense, self.unit = np.dtype(dtype), is_dense, unit
        self.should_stop: Callable[[], bool] | None = None
        self.n_rounds = 0
        self.M = self.zero()
        self._n_sent = 0

    @classmethod
    def of_operator(
        cls,
        engine: Local,
        operator: Operator,
        loss: Loss,
        regularizer: Regularizer,
        gaps: NDArray | None = None,
        weights: NDArray | None = None,
    ) -> Objective:
        """The objective of one block with the given operator, gaps b_r and weights c_r > 0."""
        if isinstance(loss, Hinge) and gaps is not None:
            # The hinge fixes the trace of M, so its margins are in the unit of the operator.
            gaps = gaps / operator.unit
        return cls(
            engine,
            [Block(operator, loss, gaps, weights, engine.threads)],
            loss,
            regularizer,
            [operator.n_matrices],
            operator.n_features,
            operator.dtype,
            operator.is_dense,
            operator.unit,
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
        parts = self._query(Block.evaluate, with_scatter and self.is_dense)
        now = self._merged(parts, self.regularizer.value(self.M))
        if self.is_dense or not with_scatter:
            return now
        _, factors = self._merge([part.value for part in parts])

        def product(V: NDArray) -> NDArray:
            images = self._query(Block.scatter_product, V.astype(self.dtype, copy=False))
            return weighted_sum(factors, images).astype(self.dtype)

        return replace(now, scatter=symmetric_operator(product, self.n_features, self.dtype))

    def along(self, direction: NDArray, coef: float) -> NDArray:
        """Sums at M + w·v·vᵀ: F, Σ u·h, Σ|u·h| and, at w = 0 only, three more.

        These are Σ|u|, Σ|u|·h·max(h, 0) and Σ|u|·h·min(h, 0), for the responses h_r = vᵀA_r v. The
        penalty is not included; `regularizer.along` returns its slope.
        """
        rows = np.array(self._query(Block.along, direction, coef))
        value, factors = self._merge(rows[:, 0])
        return np.append(value, factors @ rows[:, 1:])

    def on_slice(
        self, directions: NDArray, with_scale: bool
    ) -> Callable[[float, NDArray], tuple[float, NDArray]]:
        """The objective at s·M + Σ_j w_j·v_j·v_jᵀ and its gradient (1 + k,), as a function of s, w.

        Each evaluation is a round. Without `with_scale`, the derivative in s is not computed.
        """
        # Rounding of products depends on the memory layout.
        penalty = self.regularizer.on_slice(self.M, np.ascontiguousarray(directions))

        def evaluate(scale: float, coefs: NDArray) -> tuple[float, NDArray]:
            rows = np.array(self._query(Block.on_slice, directions, scale, coefs, with_scale))
            loss, factors = self._merge(rows[:, 0])
            slopes = factors @ rows[:, 1:]
            cost, costs = penalty(scale, coefs)
            return loss + cost, slopes + costs

        return evaluate

    def largest_value(self, directions: NDArray, scale: float, coefs: NDArray) -> float:
        """The largest |⟨A_r, ·⟩| at s·M + Σ_j w_j·v_j·v_jᵀ."""
        return max(self._query(Block.largest_value, directions, scale, coefs))

    def mean_size(self, directions: NDArray, coefs: NDArray) -> float:
        """The weighted mean of |⟨A_r, Σ_j w_j·v_j·v_jᵀ⟩| over the terms."""
        total, weight = np.sum(self._query(Block.value_sizes, directions, coefs), axis=0)
        return float(total / weight)

    def response_sizes(self, directions: NDArray) -> NDArray:
        """The weighted mean of |v_jᵀA_r v_j| over the terms, for every direction."""
        parts = self._query(Block.response_sizes, directions)
        sums = weighted_sum(np.ones(len(parts)), parts)
        return sums[:-1] / sums[-1]

    def evaluate_at(self, matrix: NDArray, with_scatter: bool = True) -> Evaluation:
        """The objective at any symmetric matrix. The scatter is a matrix, for any D."""
        parts = self._query(Block.evaluate, with_scatter, matrix)
        return self._merged(parts, self.regularizer.value_of(matrix))

    def gradient_at(self, matrix: NDArray, at: Evaluation) -> NDArray:
        """The gradient of the objective, ∇R − scatter, given the evaluation at the matrix."""
        assert isinstance(at.scatter, np.ndarray)
        return self.regularizer.gradient(matrix) - at.scatter

    def absolute_scatter_at(self, matrix: NDArray) -> NDArray:
        """Σ |u_r|·|A_r| at a symmetric matrix."""
        values, scatters = zip(*self._query(Block.absolute_scatter_at, matrix), strict=True)
        return weighted_sum(self._merge(values)[1], scatters)

    @cached_property
    def absolute_scatter(self) -> NDArray:
        """Σ c_r·|A_r|, which does not depend on M, as a matrix."""
        parts = self._query(Block.absolute_scatter)
        return weighted_sum(np.ones(len(parts)), parts)

    def margins_and_duals(self) -> tuple[NDArray, NDArray]:
        """ρ and u of the terms of a single block; for users, not for solvers."""
        return self._query(Block.margins_and_duals)[0]

    def single_block(self) -> Block:
        """The only block, for solvers that require all comparisons in one block."""
        (block,) = self.blocks
        assert isinstance(block, Block)
        return block

    def _merge(self, values: Sequence[float] | NDArray) -> tuple[float, NDArray]:
        """F and ∂F/∂F_b from the values F_b of the blocks; a single block needs no `Loss.merge`."""
        if len(values) == 1:
            return float(values[0]), np.ones(1)
        return self.loss.merge(np.array(values))

    def _merged(self, parts: Sequence[Evaluation], penalty: float) -> Evaluation:
        value, factors = self._merge([part.value for part in parts])
        scatters: list[Any] = [part.scatter for part in parts]
        return Evaluation(
            value + penalty,
            float(factors @ [part.dual_sum for part in parts]),
            sum(part.n_violated for part in parts),
            max(part.largest for part in parts),
            None if scatters[0] is None else weighted_sum(factors, scatters),
        )

    def _query(self, function: Callable[..., Result], *arguments: Any) -> list[Result]:
        """Call a method of all blocks, and send them the steps since the last query."""
        if self.should_stop is not None and self.should_stop():
            raise StopRequested
        self.n_rounds += 1
        epoch, steps, sent = self.M.epoch, self.M.steps, self._n_sent
        call = self.engine.call
        results = call(Block.query, self.blocks, epoch, sent, steps[sent:], function, *arguments)
        # A block that was created again lacks earlier steps, and gives None.
        stale = [number for number, result in enumerate(results) if result is None]
        if stale:
            blocks = [self.blocks[number] for number in stale]
            again = call(Block.query, blocks, epoch, 0, steps, function, *arguments)
            for number, result in zip(stale, again, strict=True):
                results[number] = result
        self._n_sent = len(steps)
        return results  # type: ignore[return-value]


def weighted_sum(factors: NDArray, arrays: Sequence[NDArray]) -> NDArray:
    """Σ_b factors_b·arrays_b in float64, in this order."""
    terms = (f * array.astype(np.float64) for f, array in zip(factors, arrays, strict=True))
    return reduce(np.add, terms)
