"""A block: part of the comparisons, and their contribution to the objective.

F(ρ) is a function of the values F_b of the blocks, and the duals are those of each block times
∂F/∂F_b (`Loss.merge`: 1 for a sum, exp(F_b − F) for a log-sum-exp). All quantities that solvers use
are linear in the duals, so a block returns its value and sums over its own comparisons, and
`Objective` merges them in the order of the blocks.

The state of a block is determined by its data and the steps that led to M. A lost block is created
again and repeats the steps with the same arithmetic, which gives bitwise-identical results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator

from boostmetric.engines import Threads
from boostmetric.engines.local import Result
from boostmetric.metric import Metric
from boostmetric.problem.losses import Loss, NotANumberError, is_mergeable
from boostmetric.problem.operators import Operator
from boostmetric.problem.step import Step

MAX_ENTRIES = 1 << 25
"""Maximum number of stored measures of directions (256 MB in float64). Beyond that, or with more
than 4·D directions, margins on a slice are computed from M instead of by direction."""

COLUMNS_AT_ONCE = 32
"""Directions that are measured together. An incomplete group is measured again when directions are
added, which takes less time than a scatter for more than 32 features."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The objective at some M, or the contribution of a block, without the penalty.

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


class Block:
    """Part of the terms of a problem, with its margins at M.

    Parameters
    ----------
    operator : the matrices A_r of these terms
    loss : F
    gaps, weights : arrays of shape (m,), or None
    threads : process the chunks of the operator
    """

    def __init__(
        self,
        operator: Operator,
        loss: Loss,
        gaps: NDArray | None = None,
        weights: NDArray | None = None,
        threads: Threads | None = None,
    ) -> None:
        m, dtype = operator.n_matrices, operator.dtype
        self.operator, self.loss = operator, loss
        self.gaps, self.weights = check_terms(gaps, weights, m, dtype)
        self.threads = Threads(1) if threads is None else threads
        self._gaps = np.broadcast_to(dtype.type(0), m) if self.gaps is None else self.gaps
        self._weights = np.broadcast_to(dtype.type(1), m) if self.weights is None else self.weights
        self._numbers = range(len(operator.chunks))
        self._has_chunks = len(operator.chunks) > 1 and is_mergeable(loss)
        # The state: margins after `_n_steps` steps of an epoch. The rest are caches.
        self._epoch, self._n_steps, self._margins = -1, 0, 0 - self._gaps
        # F and the duals at the margins, and the scatter if it is a LinearOperator.
        self._at_margins: tuple[float, NDArray] | None = None
        self._scatter: NDArray | LinearOperator | None = None
        # Directions with their measures, and a single direction with its responses.
        self._measured: tuple[NDArray, NDArray] | None = None
        self._response: tuple[NDArray, NDArray] | None = None
        # The last step tried, with the margins, F and the duals after it, because a solver usually
        # takes this step next.
        self._tried: tuple[Step, NDArray, tuple[float, NDArray]] | None = None
        # The last matrix other than M that was evaluated, with the margins, F and the duals there.
        self._probed: tuple[NDArray, NDArray, tuple[float, NDArray]] | None = None

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, without cached results of queries."""
        held = [*vars(self.operator).values(), self.gaps, self.weights, self._margins]
        arrays = [each.data if issparse(each) else each for each in held]
        return sum(each.nbytes for each in arrays if isinstance(each, np.ndarray))

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has no steps; they are sent with its first query.
        return Block, (self.operator, self.loss, self.gaps, self.weights, self.threads)

    def query(
        self,
        epoch: int,
        first: int,
        steps: tuple[Step, ...],
        function: Callable[..., Result],
        *arguments: Any,
    ) -> Result | None:
        """Take the steps `first`, `first` + 1, … of an epoch, and call a method of the block.

        Returns None if the block has not received the steps before the first one; all steps of the
        epoch must then be sent.
        """
        known, last = self._n_steps if epoch == self._epoch else 0, first + len(steps)
        if first and not first <= known <= last:
            return None
        if epoch != self._epoch or known > last:
            self._epoch, self._n_steps, self._margins = epoch, 0, 0 - self._gaps
            self._at_margins = self._scatter = self._tried = None
        for step in steps[self._n_steps - first :]:
            tried, self._tried, self._scatter = self._tried, None, None
            if (
                tried is not None
                and tried[0].scale == step.scale
                and np.array_equal(tried[0].coefs, step.coefs)
                and np.array_equal(tried[0].directions, step.directions)
            ):
                _, self._margins, self._at_margins = tried
            else:
                margins = self.threads.map(self._margins_after(step), self._numbers)
                self._margins, self._at_margins = np.concatenate(margins), None
            self._n_steps += 1
        return function(self, *arguments)

    # Methods for queries, at M or at any symmetric matrix.

    def evaluate(self, with_scatter: bool, matrix: NDArray | None = None) -> Evaluation:
        """F, sums and the scatter as a matrix, at M, or at the given matrix."""
        margins, (value, duals) = self._loss_at(matrix)
        return Evaluation(
            value,
            float(np.abs(duals).sum(dtype=np.float64)),
            int(np.count_nonzero(margins <= 0)),
            float(np.abs(margins + self._gaps).max()),
            self.operator.scatter_matrix(duals) if with_scatter else None,
        )

    def scatter_product(self, V: NDArray) -> NDArray:
        """Σ u_r·A_r·V at M, for V of shape (D, k)."""
        if self._scatter is None:
            self._scatter = self.operator.scatter(self._loss_at()[1][1])
        product: NDArray = self._scatter @ V
        return product

    def margins_and_duals(self) -> tuple[NDArray, NDArray]:
        """ρ and u at M, of shape (m,), which must not be modified."""
        margins, (_, duals) = self._loss_at()
        return margins, duals

    def along(self, direction: NDArray, coef: float) -> NDArray:
        """Sums at ρ + w·h for a coefficient w of a direction with responses h.

        F, Σ u·h and Σ|u·h|, and at w = 0 also Σ|u|, Σ|u|·h·max(h, 0) and Σ|u|·h·min(h, 0).
        """
        h, chunks = self._responses(direction), self.operator.chunks

        def sums_of(number: int, duals: NDArray) -> NDArray:
            part = h[chunks[number]]
            products = duals * part
            sums = [products.sum(dtype=np.float64), np.abs(products).sum(dtype=np.float64), 0, 0, 0]
            if coef == 0:
                sizes = np.abs(duals).astype(np.float64)
                sums[2] = sizes.sum()
                sizes *= part
                sums[3] = (sizes * np.maximum(part, 0)).sum()
                sums[4] = (sizes * np.minimum(part, 0)).sum()
            return np.array(sums)

        if coef == 0:
            value, duals = self._loss_at()[1]
            parts = self.threads.map(lambda n: sums_of(n, duals[chunks[n]]), self._numbers)
            return np.append(value, reduce(np.add, parts))
        return self._try(Step(direction[:, None], np.array([coef])), sums_of)

    def on_slice(
        self, directions: NDArray, scale: float, coefs: NDArray, with_scale: bool
    ) -> NDArray:
        """F at s·M + Σ_j w_j·v_j·v_jᵀ and its derivatives in s and w, of shape (2 + k,).

        Without `with_scale`, the derivative in s is not computed and 0 is returned for it.
        """
        operator, measures = self.operator, self._measures(directions)

        def slope_in_scale(number: int, duals: NDArray) -> NDArray:
            """−Σ u_r·⟨A_r, M⟩ over a chunk."""
            if not with_scale:
                return np.zeros(1)
            part = operator.chunks[number]
            old = self._margins[part] + self._gaps[part]
            return np.array([-np.sum(duals * old, dtype=np.float64)])

        value_and_slope = self._try(Step(directions, coefs, scale), slope_in_scale)
        assert self._tried is not None
        duals = self._tried[2][1]
        if measures is not None:
            slopes = self._weigh(lambda number: operator.adjoint[number] @ duals, measures)
        else:
            images = operator.scatter_matrix(duals) @ directions
            slopes = np.einsum("dj,dj->j", directions, images)
        return np.concatenate([value_and_slope, -slopes])

    def largest_value(self, directions: NDArray, scale: float, coefs: NDArray) -> float:
        """The largest |⟨A_r, ·⟩| at s·M + Σ_j w_j·v_j·v_jᵀ."""
        margins_of = self._margins_after(Step(directions, coefs, scale))
        margins = np.concatenate(self.threads.map(margins_of, self._numbers))
        return float(np.abs(margins + self._gaps).max())

    def value_sizes(self, directions: NDArray, coefs: NDArray) -> tuple[float, float]:
        """Σ_r c_r·|⟨A_r, Σ_j w_j·v_j·v_jᵀ⟩| and Σ_r c_r."""
        sizes = np.abs(self.operator.values(Metric(directions, coefs)))
        total = np.sum(self._weights * sizes, dtype=np.float64)
        return float(total), float(self._weights.sum(dtype=np.float64))

    def response_sizes(self, directions: NDArray) -> NDArray:
        """An upper bound on Σ_r c_r·|v_jᵀA_r v_j| for every direction, and Σ_r c_r at the end."""
        operator, measures = self.operator, self._measures(directions)
        if measures is not None:
            per_measure, chunks = self._measure_weights, operator.measure_chunks
            positive = measures if operator.MEASURES_ARE_SQUARES else np.abs(measures)
            sizes = self._weigh(lambda number: per_measure[chunks[number]], positive)
        else:
            images = operator.absolute_scatter(self._weights) @ directions
            sizes = np.einsum("dj,dj->j", directions, images)
        return np.append(sizes, self._weights.sum(dtype=np.float64))

    def absolute_scatter(self) -> NDArray:
        """Σ c_r·|A_r|."""
        return self.operator.absolute_scatter(self._weights)

    def absolute_scatter_at(self, matrix: NDArray) -> tuple[float, NDArray]:
        """F and Σ |u_r|·|A_r|."""
        _, (value, duals) = self._loss_at(matrix)
        return value, self.operator.absolute_scatter(np.abs(duals))

    # Parts of these methods that several of them use.

    def _margins_after(self, step: Step) -> Callable[[int], NDArray]:
        """A function that computes the margins of a chunk after a step from M."""
        operator: Operator = self.operator
        dtype: Any = operator.dtype
        chunks = operator.chunks
        if step.directions.shape[1] == 1:
            h, coef = self._responses(step.directions[:, 0]), dtype.type(step.coefs[0])

            def values_of(number: int) -> NDArray:
                return h[chunks[number]] * coef

        elif (measures := self._measures(step.directions)) is not None:
            combined, coefs = np.empty(len(measures), measures.dtype), step.coefs.astype(dtype)
            self.threads.map(
                lambda rows: np.dot(measures[rows], coefs, out=combined[rows]),
                operator.measure_chunks,
            )

            def values_of(number: int) -> NDArray:
                return operator.expansion[number] @ combined

        else:
            values = operator.values(Metric(step.directions, step.coefs))

            def values_of(number: int) -> NDArray:
                return values[chunks[number]].copy()

        def margins_of(number: int) -> NDArray:
            part, margins = chunks[number], values_of(number)
            if step.scale == 1:
                margins += self._margins[part]
                return margins
            if step.scale != 0:
                margins += dtype.type(step.scale) * (self._margins[part] + self._gaps[part])
            margins -= self._gaps[part]
            return margins

        return margins_of

    def _measures(self, directions: NDArray) -> NDArray | None:
        """The measures (P, k) of directions, or None if there are too many to store.

        Rounding of products depends on the number of columns, so directions are measured in fixed
        groups: results do not depend on which groups are known from an earlier query.
        """
        k, operator = directions.shape[1], self.operator
        if k > min(4 * operator.n_features, MAX_ENTRIES // operator.measure_chunks[-1].stop):
            return None
        parts: list[NDArray] = []
        n_known = 0
        if self._measured is not None:
            known, measures = self._measured
            if np.array_equal(known, directions):
                return measures
            whole_groups = min(known.shape[1], k) // COLUMNS_AT_ONCE * COLUMNS_AT_ONCE
            if np.array_equal(known[:, :whole_groups], directions[:, :whole_groups]):
                n_known = whole_groups
                parts = [measures[:, :n_known]] if n_known else []
        for begin in range(n_known, max(1, k), COLUMNS_AT_ONCE):  # once if there are no directions
            columns = directions[:, begin : begin + COLUMNS_AT_ONCE]
            parts.append(operator.measures(np.ascontiguousarray(columns)))
        measures = parts[0] if len(parts) == 1 else np.column_stack(parts)
        self._measured = directions, measures
        return measures

    def _responses(self, direction: NDArray) -> NDArray:
        if self._response is None or not np.array_equal(self._response[0], direction):
            # Rounding of products depends on the memory layout.
            self._response = direction, self.operator.responses(np.ascontiguousarray(direction))
        return self._response[1]

    @cached_property
    def _measure_weights(self) -> NDArray:
        """Σ_r c_r·|∂ response_r / ∂ measure_p|, of shape (P,)."""
        parts = self.threads.map(lambda part: abs(part) @ self._weights, self.operator.adjoint)
        return np.concatenate(parts)

    def _weigh(self, weights_of: Callable[[int], NDArray], measures: NDArray) -> NDArray:
        """measuresᵀ·weights, of shape (k,), in float64; `weights_of` gives those of a chunk."""
        chunks = self.operator.measure_chunks

        def weigh_chunk(number: int) -> NDArray:
            # Unlike @, np.dot releases the global interpreter lock.
            return np.dot(weights_of(number), measures[chunks[number]]).astype(np.float64)

        return reduce(np.add, self.threads.map(weigh_chunk, range(len(chunks))))

    def _loss_at(self, matrix: NDArray | None = None) -> tuple[NDArray, tuple[float, NDArray]]:
        """The margins, and F with its duals, at M, or at the given matrix."""
        chunks = self.operator.chunks
        if matrix is None:
            if self._at_margins is None:
                self._at_margins = self._evaluate(lambda number: self._margins[chunks[number]])[1]
            return self._margins, self._at_margins
        if self._probed is None or not np.array_equal(self._probed[0], matrix):
            margins = self.operator.values_of(matrix) - self._gaps
            loss = self._evaluate(lambda number: margins[chunks[number]])[1]
            self._probed = matrix, margins, loss
        return self._probed[1:]

    def _try(self, step: Step, sums_of: Callable[[int, NDArray], NDArray]) -> NDArray:
        """F after a step from M, followed by sums that are linear in the duals."""
        margins, loss, sums = self._evaluate(self._margins_after(step), sums_of)
        self._tried = step, margins, loss
        return np.append(loss[0], sums)

    def _evaluate(
        self,
        margins_of: Callable[[int], NDArray],
        sums_of: Callable[[int, NDArray], NDArray] = lambda number, duals: np.zeros(0),
    ) -> tuple[NDArray, tuple[float, NDArray], NDArray]:
        """Margins, F with its duals, and sums that are linear in the duals.

        Each chunk is processed in one call, because waking the threads takes time. Raises a
        NotANumberError if F or a dual is NaN.

        Parameters
        ----------
        margins_of : maps the number of a chunk to its margins
        sums_of : maps the number of a chunk and its duals to an array, which is summed over chunks
        """
        loss, chunks = self.loss, self.operator.chunks
        if not self._has_chunks:
            margins = np.concatenate(self.threads.map(margins_of, self._numbers))
            value, duals = loss.value_and_duals(margins, self.weights)
            sums = reduce(np.add, [sums_of(n, duals[part]) for n, part in enumerate(chunks)])
        else:
            margins, duals = np.empty_like(self._margins), np.empty_like(self._margins)

            def evaluate_chunk(number: int) -> tuple[float, NDArray]:
                part = chunks[number]
                margins[part] = margins_of(number)
                weights = None if self.weights is None else self.weights[part]
                value, duals[part] = loss.value_and_duals(margins[part], weights)
                return value, sums_of(number, duals[part])

            values, parts = zip(*self.threads.map(evaluate_chunk, self._numbers), strict=True)
            value, factors = loss.merge(np.array(values))
            if (factors != 1).any():
                for part, factor in zip(chunks, factors.astype(duals.dtype), strict=True):
                    duals[part] *= factor
            sums = factors @ np.array(parts)
        if np.isnan(value + duals.sum()) and np.isfinite(margins).all():
            raise NotANumberError(
                f"{loss!r} returns NaN for finite margins between {margins.min():g} and "
                f"{margins.max():g}. A loss must be finite for margins of any size."
            )
        return margins, (value, duals), sums


def check_terms(
    gaps: NDArray | None, weights: NDArray | None, m: int, dtype: np.dtype
) -> tuple[NDArray | None, NDArray | None]:
    """Check the gaps and weights of m terms, and convert them to a dtype."""
    for name, values in (("gaps", gaps), ("weights", weights)):
        if values is not None and values.shape != (m,):
            raise ValueError(f"{name} must have shape ({m},), one per matrix; got {values.shape}.")
    if gaps is not None:
        if not np.isfinite(gaps).all():
            raise ValueError("gaps must be finite.")
        gaps = gaps.astype(dtype)
    if weights is not None:
        low, high, limits = weights.min(), weights.max(), np.finfo(dtype)
        # Neither sums of weights times squared differences nor their squares must overflow.
        if not (low >= limits.tiny and high <= min(float(limits.max), 1e154) / 1e6 / m):
            raise ValueError(
                f"weights must be positive and in the range of {dtype}; got values between {low:g} "
                f"and {high:g}. Leave out terms of weight 0, or divide all weights by their mean."
            )
        weights = weights.astype(dtype)
    return gaps, weights
