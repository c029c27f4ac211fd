"""The state of a fit, what one iteration did, and how the fit ended."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.certificate import lower_bound, soft_margin_bound
from boostmetric.losses import Hinge, NotANumberError
from boostmetric.metric import Metric
from boostmetric.operators import OPERATOR_ABOVE
from boostmetric.problem import Problem
from boostmetric.soft_margin import SoftMargin


class Status(Enum):
    """How a fit ended. The value is a text for the user: what happened, and what to do."""

    NO_DIRECTION = (
        "No further direction lowers the objective (lambda_max <= alpha, up to rounding). With "
        "solver='stagewise' the coefficients of earlier directions were not revised, so this is "
        "the end of the method but not the optimum: solver='totally_corrective' goes on from here. "
        "How far the optimum can be is in the duality gap."
    )
    STALLED = (
        "The last block of directions lowered the objective by less than a ten-thousandth, so more "
        "would hardly change the metric. For the optimum use solver='totally_corrective'."
    )
    MAX_ITER = (
        "max_iter directions were added. This is the usual end; if the objective in the history "
        "still falls and the error on unseen data too, raise max_iter."
    )
    CONVERGED = (
        "The metric is optimal to within tol: the objective exceeds a lower bound for every metric "
        "by no more than that share of it."
    )
    STOPPED = (
        "A callback or the held-out data ended the fit. The metric is usable as it is; to go on "
        "from it, fit again with warm_start=True."
    )
    UNBOUNDED = (
        "The metric satisfies every comparison, and the exponential loss falls for ever as it "
        "grows: it was capped. It is usable; for one that weighs more directions, use a larger "
        "alpha, loss='logistic', or harder comparisons (more impostors)."
    )

    FAILED = (
        "The loss returned NaN, which raised an error. The metric is that of the iteration before."
    )

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


@dataclass(frozen=True)
class Iteration:
    """What one iteration did.

    `lambda_max` is the eigenvalue of the direction that was added and `coef` its coefficient;
    `objective` and `n_violated` (comparisons whose margin is not positive) hold after it.
    `duality_gap` bounds what the objective lies above the optimum, infinite where no bound was
    found and NaN where none was looked for. `n_tried` counts the directions that were looked at,
    `n_evaluations` those of the duals in line search, correction and Newton step.
    """

    objective: float
    lambda_max: float
    coef: float
    n_violated: int
    n_tried: int
    n_evaluations: int
    duality_gap: float
    seconds: float


def beginning(arrays: Mapping[str, NDArray], prefix: str) -> dict[str, NDArray]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}


def history_table(history: Sequence[Iteration]) -> NDArray:
    """A row for each iteration and a column for each of its fields, from which it can be made."""
    rows = [astuple(step) for step in history]
    return np.array(rows, dtype=float).reshape(len(rows), len(fields(Iteration)))


def history_from(table: NDArray) -> list[Iteration]:
    """The iterations of a `history_table`."""
    whole = [field.name for field in fields(Iteration) if field.type == "int"]
    names = [field.name for field in fields(Iteration)]
    rows = (dict(zip(names, row, strict=True)) for row in table.tolist())
    return [Iteration(**(row | {name: int(row[name]) for name in whole})) for row in rows]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a fit came to; its parts are those of `Boosting`."""

    metric: Metric
    history: Sequence[Iteration]
    status: Status
    alpha: float
    alpha_max: float
    duality_gap: float
    n_comparisons: int


@dataclass
class Attempts:
    """When to try something that may fail: less and less often while it does."""

    pause: int = 1
    due: int = 0

    def is_due(self, iteration: int) -> bool:
        """Whether to try."""
        return iteration >= self.due

    def report(self, iteration: int, success: bool) -> None:
        """It was tried."""
        self.pause = 1 if success else 2 * self.pause
        self.due = iteration + self.pause


class Fit(ABC):
    """The state of a fit, and after it its result: the directions so far, and what they cost.

    `alpha_max` is λ_max of the scatter at M = 0: for the trace, the smallest alpha for which M = 0
    is optimal. `basis` is what eigenvectors are followed by. `is_over` tells the callback that
    there will be no further iteration.
    """

    alpha_max: float
    eigen_solver: str
    tol: float
    directions: list[NDArray]
    coefs: list[float]
    history: list[Iteration]
    basis: NDArray | None
    status: Status
    is_over: bool

    @property
    @abstractmethod
    def n_features(self) -> int:
        """D."""

    @property
    @abstractmethod
    def n_comparisons(self) -> int:
        """m."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """The precision of the metric."""

    @property
    @abstractmethod
    def alpha(self) -> float:
        """The strength of the regulariser, absolute."""

    @property
    def metric(self) -> Metric:
        """The metric learned so far."""
        empty = np.empty((self.n_features, 0), dtype=self.dtype)
        # In this order in memory, whatever that of the directions: products round by it.
        directions = np.ascontiguousarray(np.column_stack([empty, *self.directions]))
        return Metric(directions, np.array(self.coefs, dtype=self.dtype))

    @property
    def n_tried(self) -> int:
        """The number of directions that were looked at."""
        return sum(step.n_tried for step in self.history)

    @abstractmethod
    def restart(self, metric: Metric) -> None:
        """Go back or on to another metric of the same features."""

    @abstractmethod
    def objective(self) -> float:
        """F(ρ) + R(M)."""

    @abstractmethod
    def duality_gap(self) -> float:
        """The objective less a lower bound for every metric; NaN where none is looked for."""

    @abstractmethod
    def snapshot(self) -> dict[str, NDArray]:
        """All that the next iterations depend on, beside the problem, as arrays."""

    @abstractmethod
    def resume(self, saved: Mapping[str, NDArray]) -> None:
        """Go on to where a snapshot of a fit of the same problem was taken."""

    def outcome(self) -> Outcome:
        """What is worth keeping; with the duality gap where the fit was to look at it, else NaN."""
        gap = self.duality_gap() if self.tol > 0 else math.nan
        return Outcome(
            metric=self.metric,
            history=self.history,
            status=self.status,
            alpha=self.alpha,
            alpha_max=self.alpha_max,
            duality_gap=gap,
            n_comparisons=self.n_comparisons,
        )


@dataclass(eq=False)
class Boosting(Fit):
    """A fit in memory, with the margins and duals that its directions lead to.

    No metric has an objective below `bound`, as far as was looked. `columns`, `newton`, `program`
    and `saved_program` are what the totally corrective solver remembers.
    """

    problem: Problem
    alpha_max: float
    margins: NDArray
    duals: NDArray
    eigen_solver: str = "auto"
    block_size: int = 1
    tol: float = 0.0
    directions: list[NDArray] = field(default_factory=list)
    coefs: list[float] = field(default_factory=list)
    history: list[Iteration] = field(default_factory=list)
    basis: NDArray | None = None
    columns: NDArray | None = None
    newton: tuple[Attempts, Attempts] = field(default_factory=lambda: (Attempts(), Attempts()))
    program: SoftMargin | None = None
    saved_program: dict[str, NDArray] | None = None
    status: Status = Status.MAX_ITER
    is_over: bool = False
    bound: float = -math.inf
    _looked_at: NDArray | None = None
    _valued: tuple[NDArray, float] | None = None

    @property
    def alpha(self) -> float:
        """The strength of the regulariser, absolute; for the hinge loss the program's π."""
        return self.problem.regularizer.alpha

    @property
    def n_features(self) -> int:
        """D."""
        return self.problem.n_features

    @property
    def n_comparisons(self) -> int:
        """m."""
        return self.problem.operator.n_matrices

    @property
    def dtype(self) -> np.dtype:
        """The precision of the metric."""
        return self.problem.operator.dtype

    def restart(self, metric: Metric) -> None:
        """Go back or on to another metric of the same features."""
        metric = metric.astype(self.dtype)
        self.margins = self.problem.margins(metric)
        self.duals = self.problem.duals(self.margins)
        self.directions, self.coefs = list(metric.directions.T), metric.coefs.tolist()
        self.columns = None

    def objective(self) -> float:
        """F(ρ) + R(M), computed once for the same margins."""
        if self._valued is None or self._valued[0] is not self.margins:
            self._valued = self.margins, self.problem.objective(self.margins, self.metric)
        return self._valued[1]

    def scale(self) -> float:
        """What a gap is to be compared with: |objective|, for the hinge not below |alpha_max|.

        The objective of the hinge may be close to 0; alpha_max is what it would be for nu = 1.
        """
        objective = abs(self.objective())
        hinge = isinstance(self.problem.loss, Hinge)
        return max(objective, abs(self.alpha_max)) if hinge else objective

    def duality_gap(self) -> float:
        """The objective less the best lower bound for every metric that was found so far.

        NaN where D is so large that no bound is looked for. A look (`certificate`) is made once for
        the same margins.
        """
        hinge = isinstance(self.problem.loss, Hinge)
        if self.problem.n_features > OPERATOR_ABOVE and not hinge:
            return math.nan
        try:
            if self._looked_at is not self.margins:
                found = (
                    soft_margin_bound(self.problem, self.duals)
                    if hinge
                    else lower_bound(self.problem, self.metric.matrix)
                )
                self.bound, self._looked_at = max(self.bound, found), self.margins
            return max(0.0, self.objective() - self.bound)
        except NotANumberError:
            return math.inf

    def snapshot(self) -> dict[str, NDArray]:
        """All that the next iterations depend on, beside the problem, as arrays.

        A fit of the same problem that is given it to `resume` from ends as this one does, to the
        bit (with the hinge loss up to rounding in the linear program).
        """
        looked = self._looked_at is self.margins
        saved = {
            "margins": self.margins,
            "duals": self.duals,
            "directions": self.metric.directions,
            "coefs": np.array(self.coefs, dtype=np.float64),
            "history": history_table(self.history),
            "newton": np.array([(tried.pause, tried.due) for tried in self.newton]),
            "numbers": np.array([self.alpha, self.bound, looked]),
        }
        remembered = {"basis": self.basis, "columns": self.columns}
        if self.program is not None:
            remembered |= {f"program_{name}": v for name, v in self.program.snapshot().items()}
        return saved | {name: v for name, v in remembered.items() if v is not None}

    def resume(self, saved: Mapping[str, NDArray]) -> None:
        """Go on to where a snapshot of a fit of the same problem was taken."""
        self.margins, self.duals = saved["margins"], saved["duals"]
        self.directions, self.coefs = list(saved["directions"].T), saved["coefs"].tolist()
        self.history = history_from(saved["history"])
        first, second = ((int(pause), int(due)) for pause, due in saved["newton"])
        self.newton = Attempts(*first), Attempts(*second)
        self.problem.regularizer.alpha, self.bound = map(float, saved["numbers"][:2])
        self._looked_at = self.margins if saved["numbers"][2] else None
        self.basis, self.columns = saved.get("basis"), saved.get("columns")
        self.saved_program = beginning(saved, "program_") or None

    def __getstate__(self) -> dict[str, Any]:
        """All but the linear program, which cannot be pickled and is built anew when needed."""
        return {**self.__dict__, "program": None}
