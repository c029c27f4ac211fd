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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator

from boostmetric.engines import Threads
from boostmetric.metric import Metric
from boostmetric.problem.comparison_operator import sum_in_order
from boostmetric.problem.losses import Loss, NotANumberError, is_mergeable
from boostmetric.problem.operators import Operator
from boostmetric.problem.step import Position, Step

MAX_ENTRIES = 1 << 25
"""Maximum number of stored measures of directions (256 MB in float64). Beyond that, or with more
than 4·D directions, margins on a slice are computed from M instead of by direction."""

COLUMNS_AT_ONCE = 32
"""Directions that are measured together. An incomplete group is measured again when directions are
added, which takes less time than a scatter for more than 32 features."""

ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Part:
    """The contribution of a block to an `Evaluation`, which has the same attributes."""

    value: float
    dual_sum: float
    n_violated: int
    largest: float
    scatter: NDArray | None


class Block:
    """Part of the terms of a problem, with its margins at M.

    Parameters
    ----------
    operator : the matrices A_r of these terms
    loss : F
    gaps, weights : arrays of shape (m,) in the dtype of the operator, or None
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
        self.operator, self.loss, self.gaps, self.weights = operator, loss, gaps, weights
        self.threads = Threads(1) if threads is None else threads
        self._numbers = range(len(operator.chunks))
        self._has_chunks = len(operator.chunks) > 1 and is_mergeable(loss)
        self._epoch, self._n_steps = -1, 0
        self._margins = self._minus_gaps(np.zeros(operator.n_matrices, dtype=operator.dtype))
        # The loss at the margins, or None if it has not been computed yet.
        self._at_margins: tuple[float, NDArray] | None = None
        # Directions with their measures, and a single direction with its responses.
        self._measured: tuple[NDArray, NDArray] | None = None
        self._response: tuple[NDArray, NDArray] | None = None
        # The sum of the weights of the terms that each measure contributes to.
        self._measure_weights: NDArray | None = None
        # The last point evaluated on a slice, with its margins and loss. A step usually leads to
        # it, and reuses them.
        self._tried: tuple[NDArray, NDArray, float, NDArray, tuple[float, NDArray]] | None = None
        self._projected: tuple[NDArray, Operator] | None = None
        self._probed: tuple[Operator, NDArray, NDArray, tuple[float, NDArray]] | None = None

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, without cached results of queries."""
        held = [*vars(self.operator).values(), self.gaps, self.weights, self._margins]
        arrays = [each.data if issparse(each) else each for each in held]
        return sum(each.nbytes for each in arrays if isinstance(each, np.ndarray))

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has no steps; they are sent with its first query.
        return Block, (self.operator, self.loss, self.gaps, self.weights, self.threads)

    # Queries at M, after the steps of a position. They return None if the block has not received
    # the steps before the first one; all steps must then be sent.

    def evaluate(self, position: Position, with_scatter: bool) -> Part | None:
        """Value, sums and scatter; for many features, use `scatter_product` for the scatter."""
        if not self._follow(position):
            return None
        value, duals = self._loss_here()
        scatter = None
        if with_scatter and self.operator.is_dense:
            scatter = self.operator.scatter_matrix(duals)
        return self._part(value, duals, self._margins, scatter)

    def scatter_product(self, position: Position, V: NDArray) -> NDArray | None:
        """Σ u_r·A_r·V, for V of shape (D, k)."""
        if not self._follow(position):
            return None
        if self._scatter is None:
            self._scatter = self.operator.scatter(self._loss_here()[1])
        product: NDArray = self._scatter @ V
        return product

    _scatter: NDArray | LinearOperator | None = None

    def margins_and_duals(self, position: Position) -> tuple[NDArray, NDArray] | None:
        """ρ and u at M, of shape (m,), which must not be modified."""
        if not self._follow(position):
            return None
        return self._margins, self._loss_here()[1]

    def along(self, position: Position, direction: NDArray, coef: float) -> NDArray | None:
        """Sums at ρ + w·h for a coefficient w of a direction with responses h.

        F, Σ u·h and Σ|u·h|, and at w = 0 also Σ|u|, Σ|u|·h·max(h, 0) and Σ|u|·h·min(h, 0).
        """
        if not self._follow(position):
            return None
        h = self._responses(direction)

        def sums_of(number: int, duals: NDArray) -> NDArray:
            """The sums over a chunk, without F."""
            part = h[self.operator.chunks[number]]
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
            value, duals = self._loss_here()
            sums = self._sum_over_chunks(sums_of, duals)
        else:
            step = Step(direction[:, None], np.array([coef]))
            margins, (value, duals), sums = self._evaluate(self._margins_after(step), sums_of)
            self._tried = (step.directions, step.coefs, 1.0, margins, (value, duals))
        return np.append(value, sums)

    def on_slice(
        self,
        position: Position,
        directions: NDArray,
        scale: float,
        coefs: NDArray,
        with_scale: bool,
    ) -> NDArray | None:
        """F at s·M + Σ_j w_j·v_j·v_jᵀ and its derivatives in s and w, of shape (2 + k,).

        Without `with_scale`, the derivative in s is not computed and 0 is returned for it.
        """
        if not self._follow(position):
            return None
        operator, measures = self.operator, self._measures(directions)

        def slope_in_scale(number: int, duals: NDArray) -> NDArray:
            """Σ u_r·⟨A_r, M⟩ over a chunk."""
            if not with_scale:
                return np.zeros(1)
            part = operator.chunks[number]
            old = self._plus_gaps(self._margins[part], part)
            return np.array([np.sum(duals * old, dtype=np.float64)])

        margins, (value, duals), slope = self._evaluate(
            self._margins_after(Step(directions, coefs, scale)), slope_in_scale
        )
        self._tried = (directions, coefs, scale, margins, (value, duals))
        if measures is not None:
            slopes = self._weigh(lambda number: operator.collect_chunk(duals, number), measures)
        else:
            images = operator.scatter_matrix(duals) @ directions
            slopes = np.einsum("dj,dj->j", directions, images)
        return np.concatenate([[value], -slope, -slopes])

    def largest_value(
        self, position: Position, directions: NDArray, scale: float, coefs: NDArray
    ) -> float | None:
        """The largest |⟨A_r, ·⟩| at s·M + Σ_j w_j·v_j·v_jᵀ."""
        if not self._follow(position):
            return None
        margins_of = self._margins_after(Step(directions, coefs, scale))
        return float(np.abs(self._plus_gaps(self._joined(margins_of))).max())

    # Queries that do not depend on M. M' = basis·Y·basisᵀ for a symmetric Y; without a basis,
    # M' = Y. Scatters are in the coordinates of Y.

    def response_sizes(self, directions: NDArray) -> NDArray:
        """An upper bound on Σ_r c_r·|v_jᵀA_r v_j| for every direction, and Σ_r c_r at the end."""
        operator = self.operator
        weights = self.weights
        if weights is None:
            weights = np.ones(operator.n_matrices, dtype=operator.dtype)
        measures = self._measures(directions)
        if measures is not None:
            if self._measure_weights is None:
                self._measure_weights = operator.collect_sizes(weights)
            per_measure, chunks = self._measure_weights, operator.measure_chunks
            positive = measures if operator.MEASURES_ARE_SQUARES else np.abs(measures)
            sizes = self._weigh(lambda number: per_measure[chunks[number]], positive)
        else:
            images = operator.absolute_scatter(weights) @ directions
            sizes = np.einsum("dj,dj->j", directions, images)
        return np.append(sizes, weights.sum(dtype=np.float64))

    def evaluate_at(self, Y: NDArray, basis: NDArray | None, with_scatter: bool) -> Part:
        """Value, sums and scatter at M'."""
        operator, margins, (value, duals) = self._probe(Y, basis)
        scatter = operator.scatter_matrix(duals) if with_scatter else None
        return self._part(value, duals, margins, scatter)

    def hessian_at(
        self, Y: NDArray, N: NDArray, basis: NDArray | None, is_alone: bool
    ) -> tuple[float, float, NDArray | None, NDArray]:
        """F, its derivative along N, the scatter and Σ_rs F''_rs·⟨A_s, N⟩·A_r, for this block.

        The scatter is used to merge several blocks, and None if there is only one.
        """
        operator, margins, (value, duals) = self._probe(Y, basis)
        change = operator.values_of(N)
        curved = self.loss.curvature(margins, change, self.weights)
        slope = -float(np.sum(duals * change, dtype=np.float64))
        scatter = None if is_alone else operator.scatter_matrix(duals)
        return value, slope, scatter, operator.scatter_matrix(curved)

    def absolute_scatter_at(self, Y: NDArray, basis: NDArray | None) -> tuple[float, bool, NDArray]:
        """F, whether Σ |u_r|·|A_r| at M' is nonzero, and this sum, or Σ |A_r| if it is zero.

        It is zero if u_r = 0 or A_r = 0 (comparisons of equal points) for all r.
        """
        operator, _, (value, duals) = self._probe(Y, basis)
        scatter = operator.absolute_scatter(np.abs(duals))
        if scatter.any():
            return value, True, scatter
        return value, False, operator.absolute_scatter(np.ones_like(duals))

    def _part(
        self, value: float, duals: NDArray, margins: NDArray, scatter: NDArray | None
    ) -> Part:
        return Part(
            value,
            float(np.abs(duals).sum(dtype=np.float64)),
            int(np.count_nonzero(margins <= 0)),
            float(np.abs(self._plus_gaps(margins)).max()),
            scatter,
        )

    def _follow(self, position: Position) -> bool:
        """Take the steps of a position; return False if earlier steps are missing."""
        known = self._n_steps if position.epoch == self._epoch else 0
        if position.first and not position.first <= known <= position.last:
            return False
        if position.epoch != self._epoch or known > position.last:
            self._epoch, self._n_steps = position.epoch, 0
            self._margins = self._minus_gaps(np.zeros_like(self._margins))
            self._at_margins = self._scatter = self._tried = None
        for step in position.steps[self._n_steps - position.first :]:
            self._take(step)
        return True

    def _take(self, step: Step) -> None:
        tried, self._tried, self._scatter = self._tried, None, None
        if (
            tried is not None
            and tried[2] == step.scale
            and np.array_equal(tried[1], step.coefs)
            and np.array_equal(tried[0], step.directions)
        ):
            self._margins, self._at_margins = tried[3], tried[4]
        else:
            self._margins = self._joined(self._margins_after(step))
            self._at_margins = None
        self._n_steps += 1

    def _margins_after(self, step: Step) -> Callable[[int], NDArray]:
        """A function that computes the margins of a chunk after a step from M."""
        operator: Operator = self.operator
        dtype: Any = operator.dtype
        h = combined = values = None
        if step.directions.shape[1] == 1:
            h = self._responses(step.directions[:, 0])
        elif (measures := self._measures(step.directions)) is not None:
            combined = self._combine(measures, step.coefs.astype(dtype))
        else:
            values = operator.values(Metric(step.directions, step.coefs))

        def margins_of(number: int) -> NDArray:
            part = operator.chunks[number]
            if h is not None:
                margins = h[part] * dtype.type(step.coefs[0])
            elif combined is not None:
                margins = operator.expand_chunk(combined, number)
            else:
                assert values is not None
                margins = values[part].copy()
            if step.scale == 1:
                margins += self._margins[part]
                return margins
            if step.scale != 0:
                old = self._plus_gaps(self._margins[part], part)
                margins += dtype.type(step.scale) * old
            return self._minus_gaps(margins, part)

        return margins_of

    def _joined(self, margins_of: Callable[[int], NDArray]) -> NDArray:
        return np.concatenate(self.threads.map(margins_of, self._numbers))

    def _measures(self, directions: NDArray) -> NDArray | None:
        """The measures (P, k) of directions, or None if there are too many to store.

        Rounding of products depends on the number of columns, so directions are measured in fixed
        groups: results do not depend on which groups are known from an earlier query.
        """
        k, operator = directions.shape[1], self.operator
        if k > min(4 * operator.n_features, MAX_ENTRIES // operator.n_measures):
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

    def _combine(self, measures: NDArray, coefs: NDArray) -> NDArray:
        """measures·coefs, of shape (P,)."""
        combined = np.empty(len(measures), dtype=measures.dtype)

        def fill(rows: slice) -> None:
            np.dot(measures[rows], coefs, out=combined[rows])

        self.threads.map(fill, self.operator.measure_chunks)
        return combined

    def _weigh(self, weights_of: Callable[[int], NDArray], measures: NDArray) -> NDArray:
        """measuresᵀ·weights, of shape (k,), in float64; `weights_of` gives those of a chunk."""
        chunks = self.operator.measure_chunks

        def weigh_chunk(number: int) -> NDArray:
            # Unlike @, np.dot releases the global interpreter lock.
            return np.dot(weights_of(number), measures[chunks[number]]).astype(np.float64)

        return sum_in_order(self.threads.map(weigh_chunk, range(len(chunks))))

    def _responses(self, direction: NDArray) -> NDArray:
        if self._response is None or not np.array_equal(self._response[0], direction):
            # Rounding of products depends on the memory layout.
            self._response = direction, self.operator.responses(np.ascontiguousarray(direction))
        return self._response[1]

    def _probe(
        self, Y: NDArray, basis: NDArray | None
    ) -> tuple[Operator, NDArray, tuple[float, NDArray]]:
        """The operator in the coordinates of Y, and margins and loss at M', which are cached."""
        operator = self.operator
        if basis is not None:
            if self._projected is None or not np.array_equal(self._projected[0], basis):
                self._projected = basis, self.operator.project(basis)
            operator = self._projected[1]
        if (
            self._probed is None
            or self._probed[0] is not operator
            or not np.array_equal(self._probed[1], Y)
        ):
            margins = self._minus_gaps(operator.values_of(Y))
            self._probed = operator, Y, margins, self._loss(margins)
        return operator, self._probed[2], self._probed[3]

    def _loss_here(self) -> tuple[float, NDArray]:
        if self._at_margins is None:
            self._at_margins = self._loss(self._margins)
        return self._at_margins

    def _loss(self, margins: NDArray) -> tuple[float, NDArray]:
        """F(ρ) and the duals."""
        parts = self.operator.chunks
        return self._evaluate(lambda number: margins[parts[number]], lambda *_: np.zeros(0))[1]

    def _evaluate(
        self,
        margins_of: Callable[[int], NDArray],
        sums_of: Callable[[int, NDArray], NDArray],
    ) -> tuple[NDArray, tuple[float, NDArray], NDArray]:
        """Margins, F with its duals, and sums that are linear in the duals.

        Each chunk is processed in one call, because waking the threads takes time. Raises a
        NotANumberError if F or a dual is NaN.

        Parameters
        ----------
        margins_of : maps the number of a chunk to its margins
        sums_of : maps the number of a chunk and its duals to an array, which is summed over chunks
        """
        loss, parts = self.loss, self.operator.chunks
        if not self._has_chunks:
            margins = self._joined(margins_of)
            value, duals = loss.value_and_duals(margins, self.weights)
            sums = self._sum_over_chunks(sums_of, duals)
        else:
            margins, duals = np.empty_like(self._margins), np.empty_like(self._margins)

            def evaluate_chunk(number: int) -> tuple[float, NDArray]:
                part = parts[number]
                margins[part] = margins_of(number)
                weights = None if self.weights is None else self.weights[part]
                value, duals[part] = loss.value_and_duals(margins[part], weights)
                return value, sums_of(number, duals[part])

            values, found = zip(*self.threads.map(evaluate_chunk, self._numbers), strict=True)
            value, factors = loss.merge(np.array(values))
            if (factors != 1).any():
                for part, factor in zip(parts, factors.astype(duals.dtype), strict=True):
                    duals[part] *= factor
            sums = factors @ np.array(found)
        if np.isnan(value + duals.sum()) and np.isfinite(margins).all():
            raise NotANumberError(
                f"{loss!r} returns NaN for finite margins between {margins.min():g} and "
                f"{margins.max():g}. A loss must be finite for margins of any size."
            )
        return margins, (value, duals), sums

    def _sum_over_chunks(
        self, sums_of: Callable[[int, NDArray], NDArray], duals: NDArray
    ) -> NDArray:
        """The sums of `_evaluate` for given duals."""
        parts = self.operator.chunks
        found = self.threads.map(
            lambda number: sums_of(number, duals[parts[number]]), self._numbers
        )
        return sum_in_order(found)

    def _minus_gaps(self, values: NDArray, part: slice = ALL) -> NDArray:
        return values if self.gaps is None else values - self.gaps[part]

    def _plus_gaps(self, margins: NDArray, part: slice = ALL) -> NDArray:
        return margins if self.gaps is None else margins + self.gaps[part]


Recipe = Callable[[Threads], Block]
"""Creates a block, in the process that will hold it."""
