"""The loop: propose a step, take it, evaluate the objective, record, and check whether to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.engines import StopRequested
from boostmetric.metric import Metric
from boostmetric.problem import (
    Evaluation,
    Hinge,
    NotANumberError,
    Objective,
    Operator,
    Shrinkage,
    Step,
    Sum,
    UnitTrace,
)
from boostmetric.solvers.base import Memory, Solver
from boostmetric.solvers.certificate import tangent_gap
from boostmetric.solvers.corrective import TotallyCorrective
from boostmetric.solvers.eigen import leading_eigenpairs
from boostmetric.solvers.hinge import SoftMarginSolver
from boostmetric.solvers.settings import SolverSettings
from boostmetric.solvers.stagewise import MIN_DECREASE, MIN_DECREASE_WITH_TOL, Stagewise


class Status(Enum):
    """How a fit ended. The value explains it to the user, with advice."""

    NO_DIRECTION = (
        "Finished: no further direction lowers the objective. The stage-wise solver does not "
        "revise earlier directions; solver='totally_corrective' does."
    )
    STALLED = (
        "Finished: the last batch of directions hardly lowered the objective. To continue until "
        "0.01 percent use tol=0; for the optimum use solver='totally_corrective'."
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
        return Status, (self.value,)  # for skops; Enum has only __reduce_ex__


@dataclass(frozen=True)
class Iteration:
    """The record of one step.

    `lambda_max` is the leading eigenvalue and `coef` the coefficient of the last direction that was
    added. `objective` and `n_violated` (comparisons whose margin is not positive) are those after
    the step. `duality_gap` bounds the difference between the objective and the optimum; it is
    infinite if no bound was found and NaN if it was not computed. `n_tried` counts the directions
    that were tried, `n_evaluations` the evaluations of the duals to find the step.
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
    """The result of a fit, with the attributes of `Boosting` of the same names."""

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


Callback = Callable[["Boosting"], bool]
"""Called after every step with the state of the fit; a true result ends the fit."""


class Boosting:
    """A fit, while it runs and after it has ended.

    Parameters
    ----------
    problem : the objective at M = 0; its regularizer is replaced
    settings : loss, regularizer and solver
    start : a metric to start from, or None
    resume : a snapshot to continue from, or None

    Attributes
    ----------
    history : list of Iteration
    status : how the fit ended
    is_over : whether the fit ends after the current step, whatever the callback returns
    first_value : the objective at M = 0
    """

    def __init__(
        self,
        problem: Objective,
        settings: SolverSettings,
        start: Metric | None = None,
        resume: Mapping[str, NDArray] | None = None,
    ) -> None:
        if start is not None and start.n_features != problem.n_features:
            raise ValueError(
                f"start must be a metric of {problem.n_features} features; it has "
                f"{start.n_features}."
            )
        # 1) units. If the matrices A_r are divided by a unit, M is multiplied by it, except for the
        # hinge, which fixes the trace of M: its margins and gaps are divided by it instead.
        unit = problem.unit
        loss, R = settings.loss, settings.regularizer
        first = problem.evaluate()
        assert first.scatter is not None
        scatter = first.scatter
        kind: type[Solver] = Stagewise if settings.solver == "stagewise" else TotallyCorrective
        self.coef_unit, self.value_unit = unit, 1.0
        if isinstance(loss, Hinge):
            kind, R = SoftMarginSolver, UnitTrace(0.0)
            self.coef_unit, self.value_unit = 1.0, unit
            # At M = 0 all margins are equal up to gaps, and so should be the duals.
            block = problem.single_block()
            uniform = loss.nu * loss.prices(problem.n_terms, block.weights)
            scatter = block.operator.scatter(uniform.astype(problem.dtype))
        # 2) the regularizer, relative to the scatter at M = 0, and the solver
        alpha_max = float(leading_eigenpairs(scatter)[0][0])
        if R.alpha is None:
            alpha = settings.alpha * R.unit(alpha_max, first.dual_sum)
        else:
            alpha = R.in_units(R.alpha, 1 / unit)
        problem.regularizer = replace(R, alpha=alpha)
        center: Metric | None = None
        if isinstance(R, Shrinkage):
            problem.regularizer, center = centered(problem, replace(R, alpha=alpha))
        batch_size = settings.batch_size(problem.n_features, problem.n_terms)
        min_decrease = MIN_DECREASE if settings.tol is None else MIN_DECREASE_WITH_TOL
        self.solver = kind(batch_size, settings.eigen_solver, min_decrease)
        # 3) the state
        self.problem, self.n_comparisons = problem, problem.n_terms
        self.max_iter = settings.max_iter
        self.tol = self.solver.default_tol if settings.tol is None else settings.tol
        self.memory, self.first_value = Memory(alpha_max), first.value
        self.history: list[Iteration] = []
        self.status, self.is_over = Status.MAX_ITER, False
        self._now: Evaluation | None = None
        self._gap_at: Sum | None = None
        # The duality gap is first computed after this step.
        self._first_gap = 4 if start is None else 1
        if resume is not None:
            self._resume(resume)
        elif start is not None:
            coefs = start.coefs * self.coef_unit
            problem.take(Step(start.directions.astype(problem.dtype), coefs, 0.0))
        elif center is not None:
            problem.take(Step(center.directions, center.coefs, 0.0))

    @property
    def metric(self) -> Metric:
        """The metric learned so far, in the user's units."""
        M = self.problem.M.metric
        return M if self.coef_unit == 1 else Metric(M.directions, M.coefs / self.coef_unit)

    @property
    def alpha(self) -> float:
        """The absolute strength of the regularizer; for the hinge loss the program's π."""
        return self.problem.regularizer.in_units(self.solver.alpha(self.problem), self.problem.unit)

    @property
    def alpha_max(self) -> float:
        """λ_max of the scatter at M = 0: for the trace, the smallest alpha for which M = 0."""
        return self.memory.alpha_max * self.problem.unit

    @property
    def margins(self) -> NDArray:
        """ρ_r of all comparisons of positive weight, of shape (m,)."""
        return self.problem.margins_and_duals()[0] * self.problem.dtype.type(self.value_unit)

    @property
    def duals(self) -> NDArray:
        """u_r of all comparisons of positive weight, of shape (m,)."""
        return self.solver.duals(self.problem)

    @property
    def n_tried(self) -> int:
        """The number of directions that were tried."""
        return sum(step.n_tried for step in self.history)

    @property
    def gap_scale(self) -> float:
        """The duality gap is compared with `tol` times this scale."""
        if isinstance(self.problem.loss, Hinge):
            # The objective may be close to 0; alpha_max is its absolute value for nu = 1.
            return max(abs(self.objective()), abs(self.alpha_max))
        # On separable comparisons the objective converges to 0, and fits would not end.
        return max(abs(self.objective()), 1e-3 * abs(self.first_value))

    def objective(self) -> float:
        """F(ρ) + R(M)."""
        return self._evaluation().value * self.value_unit

    def duality_gap(self) -> float:
        """The difference between the objective and the best known lower bound for all metrics.

        NaN if D is too large to compute a bound. A bound is computed once for the same metric.
        """
        if not (self.problem.is_dense or self.solver.has_cheap_bound):
            return math.nan
        now = self._evaluation()
        if self._gap_at is not self.problem.M:
            first_round, enough = self.problem.n_rounds, self.tol * self.gap_scale
            try:
                bound = self.solver.lower_bound(self.problem, now, self.memory, enough)
            except NotANumberError:
                return math.inf
            rounds = self.memory.bound_rounds + self.problem.n_rounds - first_round
            self.memory = replace(self.memory, bound=bound, bound_rounds=rounds)
            self._gap_at = self.problem.M
        return max(0.0, now.value - self.memory.bound) * self.value_unit

    def _evaluation(self) -> Evaluation:
        """The objective at M; missing only if the fit has not started or was stopped at once."""
        if self._now is None:
            self._now = self.problem.evaluate(self.solver.uses_scatter)
        return self._now

    def _is_optimal(self) -> bool:
        return self.tol > 0 and self.duality_gap() <= self.tol * self.gap_scale

    def run(
        self, callback: Callback | None = None, should_stop: Callable[[], bool] | None = None
    ) -> Boosting:
        """Take steps until `max_iter` directions have been tried or the fit ends otherwise.

        `callback` is called after every step, and once more if `should_stop`, which is called
        before every evaluation, ends the fit during a step.
        """
        began = time.perf_counter() - (self.history[-1].seconds if self.history else 0.0)
        problem, solver = self.problem, self.solver
        problem.should_stop = should_stop
        try:
            # 1) the objective and the scatter at M
            self._now = now = problem.evaluate(solver.uses_scatter)
            if self.history and self._gap_at is problem.M and self._is_optimal():
                # The snapshot is that of a fit that has converged.
                self.status, self.is_over = Status.CONVERGED, True
                return self
            n_tried = self.n_tried
            while (left := self.max_iter - n_tried) > 0:
                # 2) directions and coefficients; M is not changed
                proposal = solver.propose(problem, now, self.memory, left)
                if proposal.step is None:
                    self.memory = proposal.memory
                    self.status = Status.CONVERGED if self._is_optimal() else Status.NO_DIRECTION
                    return self
                # 3) the step, and the objective after it
                before = problem.M
                problem.take(proposal.step)
                try:
                    self._now = now = problem.evaluate(solver.uses_scatter)
                except (NotANumberError, StopRequested):
                    problem.restore(before)
                    raise
                self.memory = replace(proposal.memory, n_steps=proposal.memory.n_steps + 1)
                # 4) the duality gap: if it is cheap, if M itself gives a tight bound (as the last
                # steps of the totally corrective solver do, unless the loss is unbounded below), or
                # if all steps have cost twice as much as all gaps
                with_gap, gap = False, math.nan
                if self.tol > 0 and solver.has_cheap_bound:
                    with_gap = True
                elif self.tol > 0 and problem.is_dense:
                    n_evaluations = sum(step.n_evaluations for step in self.history)
                    is_tight = solver.is_corrective and math.isfinite(problem.loss.lower)
                    gap = tangent_gap(problem, now) * self.value_unit
                    with_gap = gap <= self.tol * self.gap_scale or (
                        not is_tight
                        and len(self.history) + 1 >= self._first_gap
                        and n_evaluations >= 2 * self.memory.bound_rounds
                    )
                try:
                    if with_gap:
                        gap = self.duality_gap()
                finally:  # the step has been taken, even if the fit is stopped here
                    coefs = proposal.step.coefs[proposal.step.coefs > 0]
                    self.history.append(
                        Iteration(
                            objective=self.objective(),
                            lambda_max=proposal.lambda_max * problem.unit,
                            coef=float(coefs[-1]) / self.coef_unit if len(coefs) else 0.0,
                            n_violated=now.n_violated,
                            n_tried=proposal.n_tried,
                            n_evaluations=proposal.n_evaluations,
                            duality_gap=gap,
                            seconds=time.perf_counter() - began,
                        )
                    )
                n_tried += proposal.n_tried
                # 5) the end of the fit
                status = None
                if not proposal.is_bounded:
                    status = Status.UNBOUNDED
                elif with_gap and self._is_optimal():
                    status = Status.CONVERGED
                elif proposal.is_stalled:
                    status = Status.STALLED
                self.is_over = status is not None
                if callback is not None and callback(self):
                    status = Status.STOPPED
                if status is not None:
                    self.status = status
                    break
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
            problem.should_stop = None  # later queries are not part of the fit
        return self

    def outcome(self) -> Outcome:
        """The result without the problem; its duality gap is NaN if `tol` is 0.

        If the fit was stopped, the gap uses the best known bound instead of computing another one.
        """
        gap = math.nan
        if self.tol > 0 and self.status is Status.STOPPED:
            gap = max(0.0, self._evaluation().value - self.memory.bound) * self.value_unit
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
        """The state on which the next steps depend, besides the problem, as arrays.

        It contains the steps since M was last replaced, the history, the memory of the solver,
        alpha, and the layout: the sizes of the blocks.
        """
        M = self.problem.M
        empty = np.empty((self.problem.n_features, 0), dtype=self.problem.dtype)
        return {
            "directions": np.column_stack([empty, *(step.directions for step in M.steps)]),
            "coefs": np.concatenate([np.empty(0), *(step.coefs for step in M.steps)]),
            "sizes": np.array([len(step.coefs) for step in M.steps], dtype=np.intp),
            "scales": np.array([step.scale for step in M.steps], dtype=np.float64),
            "history": history_table(self.history),
            "alpha": np.array(self.problem.regularizer.strength),
            "first_value": np.array(self.first_value),
            "has_gap": np.array(self._gap_at is M),
            "layout": np.array(self.problem.layout, dtype=np.intp),
            **{f"memory_{name}": array for name, array in self.memory.to_arrays().items()},
            **{f"program_{name}": array for name, array in self.solver.to_arrays().items()},
        }

    def _resume(self, saved: Mapping[str, NDArray]) -> None:
        """Continue from a snapshot of a fit of the same problem.

        The steps are repeated with the same arithmetic, so the result is bitwise identical to that
        of an uninterrupted fit if the layout is the same. With another layout, float64 fits agree
        up to rounding, and float32 fits are rejected.
        """
        problem = self.problem
        try:
            layout = tuple(saved["layout"].tolist())
            if sum(layout) != self.n_comparisons:
                raise SnapshotError(
                    f"the snapshot has {sum(layout)} comparisons, and this problem has "
                    f"{self.n_comparisons}."
                )
            if layout != tuple(problem.layout) and problem.dtype == np.float32:
                raise SnapshotError(
                    "the snapshot was taken with another division of the comparisons into blocks, "
                    "which float32 cannot continue accurately. Continue with "
                    f"{len(layout)} blocks, or start again."
                )
            # 1) check all arrays
            ends = np.cumsum(saved["sizes"])
            directions, coefs = saved["directions"], saved["coefs"]
            scales, table = saved["scales"], saved["history"]
            if directions.shape != (problem.n_features, ends[-1] if len(ends) else 0):
                raise SnapshotError("the snapshot has directions of another shape.")
            if coefs.shape != (directions.shape[1],):
                raise SnapshotError("the snapshot has another number of coefficients.")
            names = [field.name for field in fields(Iteration)]
            if table.shape != (len(table), len(names)):
                raise SnapshotError("the snapshot has a history of another shape.")
            memory = Memory.from_arrays(with_prefix(saved, "memory_"))
            alpha, first_value = float(saved["alpha"]), float(saved["first_value"])
            finite: list[Any] = [directions, coefs, scales, alpha, first_value, memory.alpha_max]
            finite.append(np.delete(table, names.index("duality_gap"), axis=1))
            finite += [] if memory.basis is None else [memory.basis]
            if not all(np.isfinite(each).all() for each in finite) or math.isnan(memory.bound):
                raise SnapshotError("the snapshot has numbers that are not finite.")
            if (coefs < 0).any() or (scales < 0).any() or alpha < 0:
                raise SnapshotError("the snapshot has negative coefficients.")
            # 2) repeat the steps
            M = problem.zero()
            for end, size, scale in zip(ends, saved["sizes"], scales, strict=True):
                part = slice(end - size, end)
                columns = np.ascontiguousarray(directions[:, part], dtype=problem.dtype)
                M = M.after(Step(columns, coefs[part], float(scale)))
            history, has_gap = history_from(table), bool(saved["has_gap"])
            self.solver.restore(with_prefix(saved, "program_"), problem)
        except SnapshotError:
            raise
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise SnapshotError(f"the snapshot is incomplete or damaged ({error!r}).") from error
        problem.regularizer = replace(problem.regularizer, alpha=alpha)
        problem.restore(M)
        self.history, self.memory, self.first_value = history, memory, first_value
        self._gap_at = problem.M if has_gap else None


def centered(problem: Objective, R: Shrinkage) -> tuple[Shrinkage, Metric | None]:
    """The regularizer with its center in the units of the problem, and the center as a metric."""
    D = problem.n_features
    if not problem.is_dense:
        raise ValueError(
            f"{R!r} starts from a metric of full rank, which requires at most "
            f"{Operator.DENSE_UP_TO} features; there are {D}. Reduce X first, for example with PCA "
            "or TruncatedSVD, or use regularizer='frobenius'."
        )
    identity = Metric(np.eye(D, dtype=problem.dtype), np.ones(D))
    if R.center is None:
        size = problem.mean_size(identity.directions, identity.coefs)
        multiple = 1 / size if size > 0 else 0.0
    else:
        multiple = R.center * problem.unit
    center = Metric(identity.directions, multiple * identity.coefs) if multiple > 0 else None
    return replace(R, center=multiple), center


def with_prefix(arrays: Mapping[str, NDArray], prefix: str) -> dict[str, NDArray]:
    """The arrays whose names start with a prefix, without the prefix."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def history_table(history: Sequence[Iteration]) -> NDArray:
    """An array with a row for each step and a column for each field of `Iteration`."""
    rows = [astuple(step) for step in history]
    return np.array(rows, dtype=float).reshape(len(rows), len(fields(Iteration)))


def history_from(table: NDArray) -> list[Iteration]:
    """The inverse of `history_table`."""
    names = [each.name for each in fields(Iteration)]
    integers = [each.name for each in fields(Iteration) if each.type == "int"]
    rows = (dict(zip(names, row, strict=True)) for row in table.tolist())
    return [Iteration(**(row | {name: int(row[name]) for name in integers})) for row in rows]
