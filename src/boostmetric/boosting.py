"""Boosting: add one direction after another until none helps; and several passes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from boostmetric.comparisons import Comparisons
from boostmetric.eigen import leading_eigenpair
from boostmetric.losses import Loss
from boostmetric.metric import Metric
from boostmetric.problem import Problem
from boostmetric.stagewise import line_search


class Status(Enum):
    """How a fit ended. The value is a text for the user: what happened, and what to do."""

    NO_DIRECTION = (
        "No further direction lowers the objective (lambda_max <= alpha). The coefficients of "
        "earlier directions were not revised, so this is the end of the stage-wise method, not "
        "the optimum. A smaller alpha lets it go on."
    )
    MAX_ITER = (
        "max_iter directions were added. This is the usual end; if the objective in the history "
        "still falls and the error on unseen data too, raise max_iter."
    )
    TOLERANCE = (
        "The objective fell by less than tol (relative to its whole fall) over n_iter_no_change "
        "iterations. A smaller tol lets the fit go on."
    )
    STOPPED = (
        "A callback or the held-out data ended the fit. The metric is usable as it is; to go on "
        "from it, fit again with warm_start=True."
    )
    UNBOUNDED = (
        "One direction satisfies every comparison, and the exponential loss falls for ever along "
        "it: its coefficient was capped. The metric is usable; for one that weighs more "
        "directions, use a larger alpha, loss='logistic', or harder comparisons (more impostors)."
    )

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


@dataclass(frozen=True)
class Iteration:
    """What one iteration did.

    `lambda_max` is the eigenvalue of the direction that was added and `coef` its coefficient;
    `objective` and `n_violated` (comparisons whose margin is not positive) hold after it.
    """

    objective: float
    lambda_max: float
    coef: float
    n_violated: int
    seconds: float


@dataclass(eq=False)
class Boosting:
    """The state of a fit: the directions so far, and the margins and duals they lead to.

    After a fit it is its result. `alpha` is absolute; `alpha_max` is λ_max of the scatter at M = 0,
    the smallest alpha for which M = 0 is optimal.
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
    status: Status = Status.MAX_ITER

    @property
    def metric(self) -> Metric:
        """The metric learned so far."""
        return self.metric_after(len(self.directions))

    def metric_after(self, n_directions: int) -> Metric:
        """The metric of the first `n_directions` directions."""
        dtype = self.problem.X.dtype
        empty = np.empty((self.problem.n_features, 0), dtype=dtype)
        directions = np.column_stack([empty, *self.directions[:n_directions]])
        return Metric(directions, np.array(self.coefs[:n_directions], dtype=dtype))

    def objective(self) -> float:
        """F(ρ) + alpha·Tr M."""
        return self.loss.value(self.margins, self.problem.weights) + self.alpha * sum(self.coefs)


Callback = Callable[[Boosting], bool]
"""Called after every iteration with the state of the fit; a true result ends the fit."""


def boost(
    X: NDArray,
    comparisons: Comparisons,
    loss: Loss,
    *,
    alpha: float = 1e-7,
    alpha_relative: bool = True,
    max_iter: int = 500,
    tol: float = 0.0,
    n_iter_no_change: int = 10,
    callback: Callback | None = None,
    start: Metric | None = None,
) -> Boosting:
    """Minimise F(ρ(M)) + alpha·Tr M over M ⪰ 0, one direction at a time (Algorithm 3).

    Each iteration takes the leading eigenvector of the scatter Σ u_r·A_r as the next direction,
    finds its coefficient by a line search, and updates margins and duals.

    Parameters
    ----------
    X : array of shape (n, D), float32 or float64
    comparisons, loss : what to learn from, and how deviations count
    alpha : the price of a unit of trace; with `alpha_relative` in units of `alpha_max`
    max_iter : number of directions to add at most
    tol, n_iter_no_change : end the fit when the objective fell by no more than tol times its whole
        fall during this number of iterations; 0 never does
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
    problem = Problem(X, comparisons)
    fit = _begin(problem, loss, alpha, alpha_relative, start)
    initial_objective = fit.objective()
    began = time.perf_counter()
    while len(fit.history) < max_iter:
        scatter = problem.scatter(fit.duals)
        guess = fit.directions[-1] if fit.directions else None
        lambda_max, direction = leading_eigenpair(scatter, guess)
        if lambda_max <= fit.alpha:
            fit.status = Status.NO_DIRECTION
            break
        responses = problem.responses(direction)
        step = line_search(loss, fit.margins, fit.duals, responses, fit.alpha, problem.weights)
        if step.coef == 0:
            fit.status = Status.NO_DIRECTION
            break
        fit.margins, fit.duals = step.margins, step.duals
        fit.directions.append(direction)
        fit.coefs.append(step.coef)
        fit.history.append(
            Iteration(
                objective=fit.objective(),
                lambda_max=lambda_max,
                coef=step.coef,
                n_violated=int(np.count_nonzero(fit.margins <= 0)),
                seconds=time.perf_counter() - began,
            )
        )
        if callback is not None and callback(fit):
            fit.status = Status.STOPPED
            break
        if not step.bounded:
            fit.status = Status.UNBOUNDED
            break
        if tol > 0 and _stalled(fit.history, initial_objective, tol, n_iter_no_change):
            fit.status = Status.TOLERANCE
            break
    return fit


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
        start = start.astype(problem.X.dtype)
        fit.directions, fit.coefs = list(start.directions.T), start.coefs.tolist()
        fit.margins = problem.margins(start)
        fit.duals = loss.duals(fit.margins, problem.weights)
    return fit


def _stalled(history: list[Iteration], initial: float, tol: float, patience: int) -> bool:
    if len(history) <= patience:
        return False
    recent_fall = history[-1 - patience].objective - history[-1].objective
    return recent_fall <= tol * (initial - history[-1].objective)


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
