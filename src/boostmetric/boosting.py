"""Boosting: add one direction after another until none helps; and several passes of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from boostmetric.certificate import lower_bound
from boostmetric.comparisons import Comparisons
from boostmetric.corrective import correct
from boostmetric.eigen import leading_eigenpair, leading_eigenpairs
from boostmetric.losses import Loss
from boostmetric.metric import Metric
from boostmetric.newton import newton_metric
from boostmetric.problem import OPERATOR_ABOVE, Problem
from boostmetric.stagewise import line_search

BLOCK = 4
"""Eigenvectors that the totally corrective solver adds in an iteration, at most."""

LOOKS = {4 * 2**k for k in range(30)}
"""The iterations after which the duality gap is looked at."""

SLACK = 0.1
"""How exact a correction is: the slopes that remain, relative to the violation that led to it."""


class Status(Enum):
    """How a fit ended. The value is a text for the user: what happened, and what to do."""

    NO_DIRECTION = (
        "No further direction lowers the objective (lambda_max <= alpha, up to rounding). With "
        "solver='stagewise' the coefficients of earlier directions were not revised, so this is "
        "the end of the method but not the optimum: solver='totally_corrective' goes on from here. "
        "How far the optimum can be is in the duality gap."
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

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


@dataclass(frozen=True)
class Iteration:
    """What one iteration did.

    `lambda_max` is the eigenvalue of the direction that was added and `coef` its coefficient;
    `objective` and `n_violated` (comparisons whose margin is not positive) hold after it.
    `duality_gap` bounds what the objective lies above the optimum, infinite where no bound was
    found and NaN where none was looked for. `n_evaluations` counts those of the duals in line
    search, correction and Newton step.
    """

    objective: float
    lambda_max: float
    coef: float
    n_violated: int
    n_evaluations: int
    duality_gap: float
    seconds: float


@dataclass
class _Attempts:
    """When to try something that may fail: less and less often while it does."""

    pause: int = 1
    due: int = 0

    def is_due(self, iteration: int) -> bool:
        return iteration >= self.due

    def report(self, iteration: int, success: bool) -> None:
        self.pause = 1 if success else 2 * self.pause
        self.due = iteration + self.pause


@dataclass(eq=False)
class Boosting:
    """The state of a fit: the directions so far, and the margins and duals they lead to.

    After a fit it is its result. `alpha` is absolute; `alpha_max` is λ_max of the scatter at M = 0,
    the smallest alpha for which M = 0 is optimal. `columns` and `newton` are what the totally
    corrective solver remembers.
    """

    problem: Problem
    loss: Loss
    alpha: float
    alpha_max: float
    margins: NDArray
    duals: NDArray
    directions: list[NDArray] = field(default_factory=list)
    coefs: list[float] = field(default_factory=list)
    history: list[Iteration] = field(default_factory=list)
    columns: NDArray | None = None
    newton: _Attempts = field(default_factory=_Attempts)
    status: Status = Status.MAX_ITER

    @property
    def metric(self) -> Metric:
        """The metric learned so far."""
        dtype = self.problem.X.dtype
        empty = np.empty((self.problem.n_features, 0), dtype=dtype)
        return Metric(np.column_stack([empty, *self.directions]), np.array(self.coefs, dtype=dtype))

    def restart(self, metric: Metric) -> None:
        """Go back or on to another metric of the same features."""
        metric = metric.astype(self.problem.X.dtype)
        self.directions, self.coefs = list(metric.directions.T), metric.coefs.tolist()
        self.columns = None
        self.margins = self.problem.margins(metric)
        self.duals = self.loss.duals(self.margins, self.problem.weights)

    def objective(self) -> float:
        """F(ρ) + alpha·Tr M."""
        return self.loss.value(self.margins, self.problem.weights) + self.alpha * sum(self.coefs)

    def duality_gap(self) -> float:
        """The objective less a lower bound for every metric (`certificate`); NaN if D is large."""
        if self.problem.n_features > OPERATOR_ABOVE:
            return math.nan
        bound = lower_bound(self.problem, self.loss, self.alpha, self.metric.matrix)
        return max(0.0, self.objective() - bound)


Callback = Callable[[Boosting], bool]
"""Called after every iteration with the state of the fit; a true result ends the fit."""


def boost(
    X: NDArray,
    comparisons: Comparisons,
    loss: Loss,
    *,
    solver: str = "stagewise",
    alpha: float = 1e-7,
    alpha_relative: bool = True,
    max_iter: int = 500,
    tol: float | None = None,
    callback: Callback | None = None,
    start: Metric | None = None,
) -> Boosting:
    """Minimise F(ρ(M)) + alpha·Tr M over M ⪰ 0, direction by direction (Algorithms 3 and 4).

    Each iteration takes the leading eigenvector of the scatter Σ u_r·A_r as the next direction,
    finds its coefficient, and updates margins and duals.

    Parameters
    ----------
    X : array of shape (n, D), float32 or float64
    comparisons, loss : what to learn from, and how deviations count
    solver : one of `SOLVERS`. "stagewise" finds a coefficient once, by a line search;
        "totally_corrective" finds all coefficients anew in each iteration, which takes longer and
        converges to the optimum
    alpha : the price of a unit of trace; with `alpha_relative` in units of `alpha_max`
    max_iter : number of iterations at most
    tol : end the fit when the duality gap is no more than this share of the objective; 0 does not
        look at the gap. None is 1e-3 for the totally corrective solver and 0 for the stage-wise
        one, which in general does not come close to the optimum
    callback : see `Callback`
    start : a metric to continue from, of D features

    Returns
    -------
    Boosting, with `metric`, `status` and `history`. Without any direction that helps, its metric
    has none: M = 0.

    Examples
    --------
    >>> from boostmetric import LOSSES
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> comparisons = Comparisons.from_labels(X, X[:, 0] > 0)
    >>> fit = boost(X, comparisons, LOSSES["logistic"], max_iter=10)
    >>> fit.status.name, fit.metric.n_directions
    ('MAX_ITER', 10)
    """
    fit = _begin(Problem(X, comparisons), loss, alpha, alpha_relative, start)
    add = SOLVERS[solver]
    if tol is None:
        tol = 1e-3 if solver == "totally_corrective" else 0.0
    began = time.perf_counter()
    while len(fit.history) < max_iter:
        step = add(fit)
        if step.coef == 0:
            fit.status = Status.NO_DIRECTION
            break
        look = tol > 0 and len(fit.history) + 1 in LOOKS
        fit.history.append(
            Iteration(
                objective=fit.objective(),
                lambda_max=step.lambda_max,
                coef=step.coef,
                n_violated=int(np.count_nonzero(fit.margins <= 0)),
                n_evaluations=step.n_evaluations,
                duality_gap=fit.duality_gap() if look else math.nan,
                seconds=time.perf_counter() - began,
            )
        )
        if callback is not None and callback(fit):
            fit.status = Status.STOPPED
            break
        if not step.bounded:
            fit.status = Status.UNBOUNDED
            break
        if look and fit.history[-1].duality_gap <= tol * abs(fit.history[-1].objective):
            fit.status = Status.CONVERGED
            break
    return fit


@dataclass(frozen=True)
class _Added:
    """What a solver did in an iteration; the coefficient is 0 where no direction helps."""

    lambda_max: float
    coef: float
    n_evaluations: int = 0
    bounded: bool = True


def _add_stagewise(fit: Boosting) -> _Added:
    """Add the leading eigenvector, with the coefficient that is best for it alone."""
    problem = fit.problem
    guess = fit.directions[-1] if fit.directions else None
    lambda_max, direction = leading_eigenpair(problem.scatter(fit.duals), guess)
    if lambda_max <= fit.alpha:
        return _Added(lambda_max, 0.0)
    responses = problem.responses(direction)
    step = line_search(fit.loss, fit.margins, fit.duals, responses, fit.alpha, problem.weights)
    if step.coef > 0:
        fit.margins, fit.duals = step.margins, step.duals
        fit.directions.append(direction)
        fit.coefs.append(step.coef)
    return _Added(lambda_max, step.coef, step.n_evaluations, step.bounded)


def _add_correctively(fit: Boosting) -> _Added:
    """Add the leading eigenvectors, and find the best coefficients of all directions together.

    Where D allows, the directions so far are first replaced by those of a Newton step: near an
    optimum of full rank it would take some D²/2 eigenvectors of scatters to span what it needs.
    """
    problem, before, n_evaluations = fit.problem, fit.objective(), 0
    guess = fit.directions[-1] if fit.directions else None
    values, vectors = leading_eigenpairs(problem.scatter(fit.duals), BLOCK, guess)
    new = vectors[:, values > fit.alpha]
    if not fit.directions and not new.size:
        return _Added(float(values[0]), 0.0)
    small = problem.n_features <= OPERATOR_ABOVE
    if fit.directions and small and fit.newton.is_due(len(fit.history)):
        ahead, n_evaluations = newton_metric(problem, fit.loss, fit.alpha, fit.metric)
        fit.newton.report(len(fit.history), ahead is not None)
        if ahead is not None:
            fit.restart(ahead)
    step = correct(
        problem,
        fit.loss,
        fit.alpha,
        np.column_stack([*fit.directions, new]),
        np.concatenate([fit.coefs, np.zeros(new.shape[1])]),
        # Without a new direction, what is left is to make the coefficients exact.
        accuracy=SLACK * max(float(values[0]) - fit.alpha, 1e-9 * fit.alpha_max),
        columns=fit.columns,
    )
    after = fit.loss.value(step.margins, problem.weights) + fit.alpha * float(step.coefs.sum())
    if not after < before - np.finfo(np.float64).eps * abs(before):
        return _Added(float(values[0]), 0.0)
    fit.directions, fit.coefs = list(step.directions.T), step.coefs.tolist()
    fit.margins, fit.duals, fit.columns = step.margins, step.duals, step.columns
    n_evaluations += step.n_evaluations
    return _Added(float(values[0]), float(step.coefs[-1]), n_evaluations, step.bounded)


SOLVERS: dict[str, Callable[[Boosting], _Added]] = {
    "stagewise": _add_stagewise,
    "totally_corrective": _add_correctively,
}
"""The solvers by name."""


def _begin(
    problem: Problem, loss: Loss, alpha: float, alpha_relative: bool, start: Metric | None
) -> Boosting:
    """The state before the first iteration, with alpha made absolute."""
    margins = problem.margins()
    duals = loss.duals(margins, problem.weights)
    alpha_max, _ = leading_eigenpair(problem.scatter(duals))
    fit = Boosting(
        problem=problem,
        loss=loss,
        alpha=alpha * max(alpha_max, 0.0) if alpha_relative else alpha,
        alpha_max=alpha_max,
        margins=margins,
        duals=duals,
    )
    if start is not None:
        fit.restart(start)
    return fit


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass: the points were mapped by `base`, if any, before they were compared and boosted."""

    base: NDArray | None
    fit: Boosting

    @property
    def metric(self) -> Metric:
        """The metric over the original features, all passes up to this one included."""
        return self.fit.metric if self.base is None else self.fit.metric.compose(self.base)


def boost_passes(
    X: NDArray,
    base: NDArray | None,
    n_passes: int,
    compare: Callable[[NDArray], Comparisons],
    run: Callable[[NDArray | None, NDArray, Comparisons], Boosting],
) -> Iterator[Pass]:
    """Multi-pass boosting: every pass compares and boosts in the space that the last one learned.

    Parameters
    ----------
    X : array of shape (n, D)
    base : array of shape (d, D), the transformation before the first pass, or None
    n_passes : number of passes at most
    compare : makes the comparisons of a pass from the points in its space
    run : boosts, given the base of the pass, the points in its space, and their comparisons

    Yields
    ------
    Pass. A pass that found no direction (`fit.directions` is empty) is the last; the metric is then
    that of the pass before, or of `base`.
    """
    for _ in range(n_passes):
        points = X if base is None else X @ base.T
        done = Pass(base, run(base, points, compare(points)))
        yield done
        if not done.fit.directions:
            return
        base = done.metric.components
