"""The loop: propose a step, take it, evaluate, record, and decide whether to go on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from boostmetric.engines import StopRequested
from boostmetric.metric import Metric
from boostmetric.problem import (
    Evaluation,
    Hinge,
    NotANumberError,
    Objective,
    Step,
    Sum,
)
from boostmetric.solvers.certificate import lower_bound, tangent_gap
from boostmetric.solvers.corrective import TotallyCorrective
from boostmetric.solvers.hinge import SoftMarginSolver
from boostmetric.solvers.proposal import Memory, Proposal
from boostmetric.solvers.stagewise import Stagewise

AnySolver: TypeAlias = Stagewise | TotallyCorrective | SoftMarginSolver

FIRST_GAP = 4
"""The step after which the duality gap is computed for the first time, 1 after a warm start. Later
it is computed if all steps have cost twice as much as all gaps, or if it is free."""

IRRELEVANT = 1e-3
"""A gap is compared with the objective, but at least with this share of the objective at M = 0. On
comparisons that can all be satisfied the objective goes to 0, and fits would not end otherwise."""


class Status(Enum):
    """How a fit ended. The value is a text for the user: what happened, and what to do."""

    NO_DIRECTION = (
        "Finished: no further direction lowers the objective. solver='totally_corrective' would "
        "also revise the coefficients of earlier directions."
    )
    STALLED = (
        "The last batch of directions lowered the objective by less than 0.01 percent, so more "
        "would hardly change the metric. For the optimum use solver='totally_corrective'."
    )
    MAX_ITER = (
        "max_iter directions were added. Increase max_iter if the objective in the history and the "
        "error on held-out data still decrease."
    )
    CONVERGED = (
        "The metric is optimal to within tol: the objective exceeds a lower bound for all metrics "
        "by at most that share."
    )
    STOPPED = (
        "A callback, the held-out data or an interrupt ended the fit. The metric is usable; to "
        "continue from it, fit again with warm_start=True."
    )
    UNBOUNDED = (
        "The metric satisfies every comparison, and the exponential loss decreases forever as it "
        "grows, so its size was capped. It is usable; for a metric with more directions use a "
        "larger alpha, loss='logistic', or harder comparisons (more impostors)."
    )
    FAILED = "The loss returned NaN, which raised an error. The metric is that of the step before."

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"

    def __reduce__(self) -> tuple[type[Status], tuple[str]]:
        return Status, (self.value,)  # skops calls this one, and Enum has only __reduce_ex__


@dataclass(frozen=True)
class Iteration:
    """What one step did.

    `lambda_max` is the leading eigenvalue and `coef` the coefficient of the last direction that was
    added; `objective` and `n_violated` (comparisons whose margin is not positive) hold after the
    step. `duality_gap` bounds the difference between the objective and the optimum; it is infinite
    if no bound was found and NaN if none was computed. `n_tried` counts the directions that were
    tried, `n_evaluations` the evaluations of the duals in line search, slices and Newton steps.
    """

    objective: float
    lambda_max: float
    coef: float
    n_violated: int
    n_tried: int
    n_evaluations: int
    duality_gap: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a fit; its parts are those of `Boosting`."""

    metric: Metric
    history: Sequence[Iteration]
    status: Status
    alpha: float
    alpha_max: float
    duality_gap: float
    n_comparisons: int

    @property
    def n_tried(self) -> int:
        """The number of directions that were tried."""
        return sum(step.n_tried for step in self.history)


class SnapshotError(ValueError):
    """A snapshot does not belong to this fit, or is incomplete."""


@dataclass(eq=False)
class Boosting:
    """A fit while it runs and after it has ended.

    Parameters
    ----------
    problem : the objective, at M
    solver : proposes steps
    memory : of the solver
    first_value : the objective at M = 0
    unit : the operator of the problem is that of the user divided by this number, and M that of the
        user times it; for the hinge, whose trace is fixed, margins are divided by it instead
    tol : the fit ends if the duality gap is at most this share of the objective
    """

    problem: Objective
    solver: AnySolver
    memory: Memory
    first_value: float
    unit: float = 1.0
    tol: float = 0.0
    history: list[Iteration] = field(default_factory=list)
    status: Status = Status.MAX_ITER
    is_over: bool = False
    now: Evaluation | None = None
    _gap_at: Sum | None = None

    @property
    def metric(self) -> Metric:
        """The metric learned so far, in the user's units."""
        M = self.problem.M.metric
        return M if self.coef_unit == 1 else Metric(M.directions, M.coefs / self.coef_unit)

    @property
    def coef_unit(self) -> float:
        """What the user's coefficients are multiplied by in the problem."""
        return 1.0 if isinstance(self.problem.loss, Hinge) else self.unit

    @property
    def value_unit(self) -> float:
        """What the user's objective is divided by in the problem."""
        return self.unit if isinstance(self.problem.loss, Hinge) else 1.0

    @property
    def n_features(self) -> int:
        """D."""
        return self.problem.n_features

    @property
    def n_comparisons(self) -> int:
        """m."""
        return self.problem.n_terms

    @property
    def alpha(self) -> float:
        """The strength of the regularizer, absolute; for the hinge loss the program's π."""
        if isinstance(self.solver, SoftMarginSolver):
            return self.solver.price * self.unit
        regularizer = self.problem.regularizer
        return regularizer.in_units(regularizer.strength, self.unit)

    @property
    def alpha_max(self) -> float:
        """λ_max of the scatter at M = 0: for the trace, the smallest alpha for which M = 0."""
        return self.memory.alpha_max * self.unit

    @property
    def margins(self) -> NDArray:
        """ρ_r of all comparisons of positive weight, of shape (m,)."""
        return self.problem.margins_and_duals()[0] * self.problem.dtype.type(self.value_unit)

    @property
    def duals(self) -> NDArray:
        """u_r of these comparisons, of shape (m,); for the hinge those of the linear program."""
        if isinstance(self.solver, SoftMarginSolver):
            return self.solver.duals(self.problem)
        return self.problem.margins_and_duals()[1]

    @property
    def n_tried(self) -> int:
        """The number of directions that were tried."""
        return sum(step.n_tried for step in self.history)

    def objective(self) -> float:
        """F(ρ) + R(M)."""
        return self._value() * self.value_unit

    def duality_gap(self) -> float:
        """The objective less the best lower bound for all metrics that was found so far.

        NaN if D is so large that none is computed. It is computed once for the same metric.
        """
        return self._gap() * self.value_unit

    @property
    def gap_scale(self) -> float:
        """What the duality gap is compared with, times `tol`."""
        return self._scale() * self.value_unit

    def _value(self) -> float:
        if self.now is None:
            self.now = self.problem.evaluate(self._uses_scatter)
        return self.now.value

    def _gap(self) -> float:
        is_hinge = isinstance(self.solver, SoftMarginSolver)
        if not self.problem.is_dense and not is_hinge:
            return math.nan
        value = self._value()
        if self._gap_at is not self.problem.M:
            first_round = self.problem.n_rounds
            try:
                if isinstance(self.solver, SoftMarginSolver):
                    bound = self.solver.lower_bound(self.problem)
                else:
                    assert self.problem.M.matrix is not None
                    enough = self.tol * self._scale()
                    bound = lower_bound(self.problem, self.problem.M.matrix, enough)
            except NotANumberError:
                return math.inf
            # An earlier bound above this objective has proved itself wrong.
            known = self.memory.bound if self.memory.bound <= value or is_hinge else -math.inf
            self.memory = replace(
                self.memory,
                bound=max(known, bound),
                bound_rounds=self.memory.bound_rounds + self.problem.n_rounds - first_round,
            )
            self._gap_at = self.problem.M
        return max(0.0, value - self.memory.bound)

    @property
    def is_optimal(self) -> bool:
        """Whether the metric is known to be optimal to within `tol`."""
        return self.tol > 0 and self._gap() <= self.tol * self._scale()

    def _scale(self) -> float:
        value = abs(self._value())
        if isinstance(self.problem.loss, Hinge):
            # The objective of the hinge may be close to 0; alpha_max is what it is for nu = 1.
            return max(value, abs(self.memory.alpha_max))
        return max(value, IRRELEVANT * abs(self.first_value))

    @property
    def _uses_scatter(self) -> bool:
        """The linear program has scatters of its own."""
        return not isinstance(self.solver, SoftMarginSolver)

    def run(
        self,
        max_iter: int,
        callback: Callable[[Boosting], bool] | None = None,
        first_gap: int = FIRST_GAP,
    ) -> None:
        """Take steps until `max_iter` directions have been tried or the fit ends otherwise.

        Parameters
        ----------
        max_iter : number of directions that are tried at most
        callback : called after every step, and once more if the fit is interrupted in the middle of
            one; a true result ends the fit
        first_gap : the step after which the duality gap is computed for the first time
        """
        began = time.perf_counter() - (self.history[-1].seconds if self.history else 0.0)
        self.status, self.is_over = Status.MAX_ITER, False
        try:
            self._value()
            # A snapshot may be that of a fit that has converged.
            if self.history and self._gap_at is self.problem.M and self.is_optimal:
                self.status, self.is_over = Status.CONVERGED, True
                return
            while (left := max_iter - self.n_tried) > 0:
                # 1) directions and coefficients; M is not changed
                assert self.now is not None
                proposal = self.solver.propose(self.problem, self.now, self.memory, left)
                if proposal.step is None:
                    self.memory = proposal.memory
                    self.status = Status.CONVERGED if self.is_optimal else Status.NO_DIRECTION
                    return
                # 2) move
                self._take(proposal)
                # 3) record
                with_gap = self.tol > 0 and self._is_gap_due(first_gap)
                self._record(proposal, with_gap, began)
                # 4) end?
                status = None
                if not proposal.is_bounded:
                    status = Status.UNBOUNDED
                elif with_gap and self.is_optimal:
                    status = Status.CONVERGED
                elif proposal.is_stalled:
                    status = Status.STALLED
                self.is_over = status is not None
                if callback is not None and callback(self):
                    status = Status.STOPPED
                if status is not None:
                    self.status = status
                    return
        except StopRequested:
            self.status = Status.STOPPED
            if callback is not None and self.history:
                callback(self)
        except NotANumberError as error:
            self.status = Status.FAILED
            failure = NotANumberError(
                f"In step {len(self.history) + 1}, {error} The metric of the step before is kept."
            )
            failure.fit = self
            raise failure from error
        finally:
            self.problem.should_stop = None  # later queries are those of the user

    def _is_gap_due(self, first_gap: int) -> bool:
        """Whether to compute the duality gap after the step that has just been taken."""
        if isinstance(self.solver, SoftMarginSolver):  # it has computed one anyway
            return True
        if not self.problem.is_dense:
            return False
        assert self.now is not None
        if tangent_gap(self.problem, self.now) <= self.tol * self._scale():
            return True
        n_evaluations = sum(step.n_evaluations for step in self.history)
        return len(self.history) + 1 >= first_gap and n_evaluations >= 2 * self.memory.bound_rounds

    def _take(self, proposal: Proposal) -> None:
        """Move to where a step leads, and evaluate the objective there."""
        before = self.problem.M
        assert proposal.step is not None
        self.problem.take(proposal.step)
        try:
            self.now = self.problem.evaluate(self._uses_scatter)
        except (NotANumberError, StopRequested):
            self.problem.restore(before)
            raise
        self.memory = replace(proposal.memory, n_steps=proposal.memory.n_steps + 1)

    def _record(self, proposal: Proposal, with_gap: bool, began: float) -> None:
        assert self.now is not None
        assert proposal.step is not None
        coefs = proposal.step.coefs[proposal.step.coefs > 0]
        gap = math.nan
        try:
            if with_gap:
                gap = self.duality_gap()
        finally:  # the step has been taken, even if a request to stop comes here
            self.history.append(
                Iteration(
                    objective=self.now.value * self.value_unit,
                    lambda_max=proposal.lambda_max * self.unit,
                    coef=float(coefs[-1]) / self.coef_unit if len(coefs) else 0.0,
                    n_violated=self.now.n_violated,
                    n_tried=proposal.n_tried,
                    n_evaluations=proposal.n_evaluations,
                    duality_gap=gap,
                    seconds=time.perf_counter() - began,
                )
            )

    def outcome(self) -> Outcome:
        """What is worth keeping; with the duality gap if the fit was to compute it, else NaN.

        If the fit was stopped, the gap is that of the best bound so far: who stops a fit does not
        want to wait for another one.
        """
        gap = math.nan
        if self.tol > 0 and self.status is Status.STOPPED:
            gap = max(0.0, self._value() - self.memory.bound) * self.value_unit
        elif self.tol > 0:
            gap = self.duality_gap()
        return Outcome(
            metric=self.metric,
            history=self.history,
            status=self.status,
            alpha=self.alpha,
            alpha_max=self.alpha_max,
            duality_gap=gap,
            n_comparisons=self.n_comparisons,
        )

    def snapshot(self) -> dict[str, NDArray]:
        """All that the next steps depend on besides the problem, as arrays.

        These are the steps since M was last replaced, the history, the memory of the solver, alpha,
        and the layout: the sizes of the blocks.
        """
        M = self.problem.M
        empty = np.empty((self.n_features, 0), dtype=self.problem.dtype)
        saved = {
            "directions": np.column_stack([empty, *(step.directions for step in M.steps)]),
            "coefs": np.concatenate([np.empty(0), *(step.coefs for step in M.steps)]),
            "sizes": np.array([len(step.coefs) for step in M.steps], dtype=np.intp),
            "scales": np.array([step.scale for step in M.steps], dtype=np.float64),
            "history": history_table(self.history),
            "alpha": np.array(self.problem.regularizer.strength),
            "first_value": np.array(self.first_value),
            "has_gap": np.array(self._gap_at is M),
            "layout": np.array(self.problem.layout, dtype=np.intp),
        }
        parts = {"memory_": self.memory.to_arrays()}
        if isinstance(self.solver, SoftMarginSolver):
            parts["program_"] = self.solver.to_arrays()
        for prefix, arrays in parts.items():
            saved |= {prefix + name: array for name, array in arrays.items()}
        return saved

    def resume(self, saved: Mapping[str, NDArray]) -> None:
        """Continue where a snapshot of a fit of the same problem was taken.

        The steps are repeated with the same arithmetic, so that the fit ends with the same bits as
        if it had not been interrupted, if the layout is the same. With another layout, float64 fits
        agree up to rounding, and float32 fits are rejected.
        """
        try:
            layout = tuple(saved["layout"].tolist())
            if sum(layout) != self.n_comparisons:
                raise SnapshotError(
                    f"the snapshot has {sum(layout)} comparisons, and this problem has "
                    f"{self.n_comparisons}."
                )
            if layout != tuple(self.problem.layout) and self.problem.dtype == np.float32:
                raise SnapshotError(
                    "the snapshot was taken with another division of the comparisons into blocks, "
                    "which float32 cannot continue accurately. Continue with "
                    f"{len(layout)} blocks, or start again."
                )
            M = self.problem.zero()
            ends = np.cumsum(saved["sizes"])
            directions, coefs = saved["directions"], saved["coefs"]
            scales, table = saved["scales"], saved["history"]
            if directions.shape != (self.n_features, ends[-1] if len(ends) else 0):
                raise SnapshotError("the snapshot has directions of another shape.")
            if coefs.shape != (directions.shape[1],):
                raise SnapshotError("the snapshot has another number of coefficients.")
            if table.shape != (len(table), len(fields(Iteration))):
                raise SnapshotError("the snapshot has a history of another shape.")
            memory = Memory.from_arrays(with_prefix(saved, "memory_"))
            alpha, first_value = float(saved["alpha"]), float(saved["first_value"])
            finite: list[Any] = [directions, coefs, scales, alpha, first_value, memory.alpha_max]
            finite.append(np.delete(table, HISTORY_GAP, axis=1))
            finite += [] if memory.basis is None else [memory.basis]
            if not all(np.isfinite(each).all() for each in finite) or math.isnan(memory.bound):
                raise SnapshotError("the snapshot has numbers that are not finite.")
            if (coefs < 0).any() or (scales < 0).any() or alpha < 0:
                raise SnapshotError("the snapshot has negative coefficients.")
            for end, size, scale in zip(ends, saved["sizes"], scales, strict=True):
                part = slice(end - size, end)
                columns = np.ascontiguousarray(directions[:, part], dtype=self.problem.dtype)
                M = M.after(Step(columns, coefs[part], float(scale)))
            history = history_from(table)
            has_gap = bool(saved["has_gap"])
            if isinstance(self.solver, SoftMarginSolver):
                program = with_prefix(saved, "program_")
                self.solver.restore(program, self.n_features, self.n_comparisons)
        except SnapshotError:
            raise
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise SnapshotError(f"the snapshot is incomplete or damaged ({error!r}).") from error
        self.problem.regularizer = replace(self.problem.regularizer, alpha=alpha)
        self.problem.restore(M)
        self.history, self.memory, self.first_value = history, memory, first_value
        self._gap_at = self.problem.M if has_gap else None
        self.now = None


HISTORY_GAP = [each.name for each in fields(Iteration)].index("duality_gap")
"""The column of a history table that may have NaN and infinity."""


def with_prefix(arrays: Mapping[str, NDArray], prefix: str) -> dict[str, NDArray]:
    """The arrays whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def history_table(history: Sequence[Iteration]) -> NDArray:
    """A row for each step and a column for each field of `Iteration`."""
    rows = [astuple(step) for step in history]
    return np.array(rows, dtype=float).reshape(len(rows), len(fields(Iteration)))


def history_from(table: NDArray) -> list[Iteration]:
    """The inverse of `history_table`."""
    names = [each.name for each in fields(Iteration)]
    integers = [each.name for each in fields(Iteration) if each.type == "int"]
    rows = (dict(zip(names, row, strict=True)) for row in table.tolist())
    return [Iteration(**(row | {name: int(row[name]) for name in integers})) for row in rows]
