"""Boosting: add one direction after another until none helps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from boostmetric.comparisons import Comparisons
from boostmetric.eigen import EIGEN_SOLVERS, leading_eigenpair
from boostmetric.laplacian import ComparisonOperator
from boostmetric.losses import Hinge, Loss, NotANumberError, as_loss
from boostmetric.metric import Metric
from boostmetric.operators import Operator, as_operator, check_operator
from boostmetric.points import Points
from boostmetric.problem import Problem
from boostmetric.regularizers import REGULARIZERS, UnitTrace
from boostmetric.solvers import (
    Added,
    check_combination,
    default_block_size,
    default_solver,
    solver_for,
)
from boostmetric.state import Boosting, Iteration, Status

LOOKS = {4 * 2**k for k in range(30)}
"""The iterations after which the duality gap is looked at, and earlier after a warm start."""

DEFAULT_ALPHA = 1e-7
"""The relative alpha, unless another is given."""

Callback = Callable[[Boosting], bool]
"""Called after every iteration with the state of the fit; a true result ends the fit."""


def boost(X: Points, comparisons: Comparisons, loss: str | Loss, **options: Any) -> Boosting:
    """Learn a metric from comparisons of points (Algorithms 3 and 4).

    This is `learn_psd` with a `ComparisonOperator`, and the gaps and weights of the comparisons.

    Parameters
    ----------
    X : array of shape (n, D), dense or CSR, float32 or float64
    comparisons, loss : what to learn from, and how margins count; a comparison of weight 0 is left
        out
    options : as for `learn_psd`, but that the default of `solver` is the paper's, "stagewise", or
        the only one that the loss works with

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> comparisons = Comparisons.from_labels(X, X[:, 0] > 0)
    >>> fit = boost(X, comparisons, "logistic", max_iter=10)
    >>> fit.status.name, fit.metric.n_directions
    ('MAX_ITER', 10)
    """
    loss = as_loss(loss)
    counted = comparisons.counted()
    options = {"solver": default_solver(loss), **options}
    return _learn(ComparisonOperator(X, counted), loss, counted.gaps, counted.weights, **options)


def learn_psd(
    operator: Operator | NDArray | Sequence[Any],
    loss: str | Loss = "logistic",
    *,
    gaps: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    **options: Any,
) -> Boosting:
    """Minimise F(⟨A_r, M⟩ − b_r) + R(M) over M ⪰ 0, direction by direction.

    Each iteration takes the leading eigenvector of the scatter Σ u_r·A_r as the next direction,
    finds its coefficient, and updates margins and duals.

    Parameters
    ----------
    operator : the symmetric matrices A_r: an array of shape (m, D, D), a list of dense or sparse
        matrices, a `LowRankOperator`, a `ComparisonOperator`, or one's own `Operator`
    loss : F, a `Loss` or the name of one in `LOSSES`; any convex function will do
    gaps, weights : arrays of shape (m,), the b_r and the weights of the terms of F
    solver : "stagewise" finds a coefficient once, by a line search; "totally_corrective", the
        default, finds all of them anew in each iteration and converges to the optimum
    regularizer : "trace", R = alpha·Tr M, or "frobenius", R = alpha/2·‖M‖²
    alpha : 1e-7 by default. The hinge loss has none, but its own `nu`
    alpha_relative : whether alpha is in units that depend on the problem (`Trace`, `Frobenius`):
        True by default
    max_iter : number of directions that are tried at most, 500 by default; an iteration counts for
        `block_size` of them
    block_size : number of directions that an iteration adds. With 1 the stage-wise solver is the
        paper's algorithm. In a larger block it finds the coefficients of the new directions
        together, and with them one factor for all older ones, which is several times faster for the
        same objective. By default 24 (D/2 if that is less, 8 for more than 600 features), or 1 for
        fewer than 16 features or 10,000 matrices; 4 for the totally corrective solver
    tol : end the fit when the duality gap is no more than this share of the objective; 0 does not
        look at the gap. None, the default, is 1e-3 for the totally corrective solver and 0 for the
        stage-wise one, which in general does not come close to the optimum
    eigen_solver : how eigenvectors are found, one of `EIGEN_SOLVERS`. "auto", the default, is
        "exact" where the scatter is a matrix; for more than 600 features rough ones are followed
        from one iteration to the next. The others begin with rough ones that become accurate as the
        fit goes on
    callback : see `Callback`
    start : a metric to continue from, of D features
    resume : what `Boosting.snapshot` gave in a callback of a fit of the same problem with the same
        options; the fit goes on from there as if it had not been interrupted

    Returns
    -------
    Boosting, with `metric` (and `metric.matrix`), `objective()`, `duality_gap()`, `status` and
    `history`. Without any direction that helps, its metric has none: M = 0.

    Examples
    --------
    The matrix of smallest trace, nearly, that has 1 on its diagonal and is at most −0.4 beside it:

    >>> A = np.array([[[1.0, 0], [0, 0]], [[0, 0], [0, 1]], [[0, -0.5], [-0.5, 0]]])
    >>> fit = learn_psd(A, "squared_hinge", gaps=[0, 0, -0.6], alpha=1e-4, tol=1e-6)
    >>> fit.metric.matrix.round(2)
    array([[ 1. , -0.4],
           [-0.4,  1. ]])
    """
    operator = as_operator(operator)
    check_operator(operator)
    b, c = (None if given is None else np.asarray(given, float) for given in (gaps, weights))
    return _learn(operator, as_loss(loss), b, c, **options)


def _learn(
    operator: Operator,
    loss: Loss,
    gaps: NDArray | None,
    weights: NDArray | None,
    *,
    solver: str = "totally_corrective",
    regularizer: str = "trace",
    alpha: float | None = None,
    alpha_relative: bool = True,
    max_iter: int = 500,
    tol: float | None = None,
    eigen_solver: str = "auto",
    block_size: int | None = None,
    callback: Callback | None = None,
    start: Metric | None = None,
    resume: Mapping[str, NDArray] | None = None,
) -> Boosting:
    """The loop; parameters as of `learn_psd`."""
    check_combination(loss, solver, regularizer)
    if eigen_solver not in EIGEN_SOLVERS:
        names = ", ".join(map(repr, EIGEN_SOLVERS))
        raise ValueError(f"eigen_solver={eigen_solver!r} will not do: one of {names} is needed.")
    if isinstance(loss, Hinge):
        if alpha is not None:
            raise ValueError(
                f"alpha={alpha!r} means nothing to {loss!r}, which fixes the trace at 1: leave it "
                "out, and set nu."
            )
        problem = Problem(operator, loss, UnitTrace(-math.inf), gaps, weights)
    else:
        alpha = DEFAULT_ALPHA if alpha is None else alpha
        if not 0 <= alpha < math.inf:
            raise ValueError(f"alpha={alpha!r} will not do: a number, 0 or more, is needed.")
        problem = Problem(operator, loss, REGULARIZERS[regularizer](alpha), gaps, weights)
    if block_size is not None and not (isinstance(block_size, Integral) and block_size >= 1):
        raise ValueError(
            f"block_size={block_size!r} will not do: an integer of 1 or more is needed."
        )
    fit = _begin(problem, alpha_relative, eigen_solver, start)
    block_size = block_size or default_block_size(
        loss, solver, operator.n_features, operator.n_matrices
    )
    add = solver_for(loss, solver)
    looks = LOOKS if start is None else LOOKS | {1, 2}
    if tol is None:
        tol = 1e-3 if solver == "totally_corrective" else 0.0
    fit.tol = tol
    if resume is not None:
        fit.resume(resume)
    began = time.perf_counter() - (fit.history[-1].seconds if fit.history else 0.0)
    while (left := max_iter - fit.n_tried) > 0:
        fit.block_size = min(block_size, left)
        look = tol > 0 and (isinstance(loss, Hinge) or len(fit.history) + 1 in looks)
        done = _iterate(fit, add, look, began)
        status = _end(fit, done, look)
        fit.is_over = status is not None
        if done.helped and callback is not None and callback(fit):
            status = Status.STOPPED
        if status is not None:
            fit.status = status
            break
    return fit


def _end(fit: Boosting, done: Added, look: bool) -> Status | None:
    """How the fit has come to its end, if it has."""
    if not done.helped:
        optimal = fit.tol > 0 and fit.duality_gap() <= fit.tol * fit.scale()
        return Status.CONVERGED if optimal else Status.NO_DIRECTION
    if not done.bounded:
        return Status.UNBOUNDED
    if look and fit.history[-1].duality_gap <= fit.tol * fit.scale():
        return Status.CONVERGED
    return Status.STALLED if done.stalled else None


def _iterate(fit: Boosting, add: Callable[[Boosting], Added], look: bool, began: float) -> Added:
    """One iteration, recorded in the history if it helped.

    A NaN from the loss brings the fit back to where it was, and raises an error that says so.
    """
    before = fit.metric, fit.margins, fit.duals
    try:
        done = add(fit)
        if done.helped:
            fit.history.append(
                Iteration(
                    objective=fit.objective(),
                    lambda_max=done.lambda_max,
                    coef=done.coef,
                    n_violated=int(np.count_nonzero(fit.margins <= 0)),
                    n_tried=fit.block_size,
                    n_evaluations=done.n_evaluations,
                    duality_gap=fit.duality_gap() if look else math.nan,
                    seconds=time.perf_counter() - began,
                )
            )
    except NotANumberError as error:
        metric, fit.margins, fit.duals = before
        fit.directions, fit.coefs = list(metric.directions.T), metric.coefs.tolist()
        fit.columns, fit.program = None, None  # they may belong to what was undone
        fit.status = Status.FAILED
        failure = NotANumberError(
            f"in iteration {len(fit.history) + 1}, {error} The metric of the iteration before is "
            "kept."
        )
        failure.fit = fit
        raise failure from error
    return done


def _begin(
    problem: Problem, alpha_relative: bool, eigen_solver: str, start: Metric | None
) -> Boosting:
    """The state before the first iteration, with alpha made absolute."""
    D, operator, loss = problem.n_features, problem.operator, problem.loss
    if start is not None and start.n_features != D:
        raise ValueError(f"start is a metric of {start.n_features} features: {D} are needed.")
    margins = problem.margins(Metric(np.empty((D, 0)), np.empty(0)))
    duals = problem.duals(margins)
    if isinstance(loss, Hinge):
        # At M = 0 all margins are alike, and so should be the duals.
        duals = (loss.nu * loss.prices(operator.n_matrices, problem.weights)).astype(operator.dtype)
    alpha_max, _ = leading_eigenpair(operator.scatter(duals))
    if alpha_relative:
        total = float(np.abs(duals).sum(dtype=np.float64))
        problem.regularizer.alpha *= problem.regularizer.unit(alpha_max, total)
    fit = Boosting(problem, alpha_max, margins, duals, eigen_solver)
    if start is not None:
        fit.restart(start)
    return fit


@dataclass(frozen=True, eq=False)
class PathPoint:
    """The optimum for one alpha, as nearly as it was found."""

    alpha: float
    metric: Metric
    objective: float
    duality_gap: float
    n_evaluations: int
    status: Status


def alpha_path(learn: Callable[..., Boosting], alphas: Iterable[float]) -> Iterator[PathPoint]:
    """Learn for one alpha after another, from the largest down, each from the metric of the last.

    Parameters
    ----------
    learn : called with `alpha` and `start`: `boost` or `learn_psd` with all else fixed
    alphas : the values, in any order; relative or absolute as `learn` takes them

    Yields
    ------
    PathPoint, with the absolute alpha and the gap to the optimum there

    Examples
    --------
    >>> from functools import partial
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> comparisons = Comparisons.from_labels(X, y)
    >>> learn = partial(boost, X, comparisons, "logistic", solver="totally_corrective")
    >>> for point in alpha_path(learn, [0.5, 0.1, 0.01]):
    ...     rank, gap = len(point.metric.eigenvalues), point.duality_gap / point.objective
    ...     print(f"alpha {point.alpha:7.1f}  rank {rank}  relative gap below 1e-3: {gap < 1e-3}")
    alpha   674.7  rank 1  relative gap below 1e-3: True
    alpha   134.9  rank 1  relative gap below 1e-3: True
    alpha    13.5  rank 2  relative gap below 1e-3: True
    """
    last: Metric | None = None
    for alpha in sorted(alphas, reverse=True):
        fit = learn(alpha=alpha, start=last)
        last = fit.metric
        yield PathPoint(
            alpha=fit.alpha,
            metric=last,
            objective=fit.objective(),
            duality_gap=fit.duality_gap(),
            n_evaluations=sum(step.n_evaluations for step in fit.history),
            status=fit.status,
        )
