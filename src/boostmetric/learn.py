"""Learn a metric, or any positive semidefinite matrix, direction by direction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from boostmetric.data.dask_points import DaskPoints, is_collection
from boostmetric.data.points import Points
from boostmetric.engines import Dask, Local, as_engine
from boostmetric.metric import Metric
from boostmetric.problem import (
    Comparisons,
    Loss,
    Objective,
    Operator,
    Regularizer,
    Trace,
    as_operator,
    check_operator,
    place_objective,
)
from boostmetric.solvers import DEFAULT_ALPHA, Boosting, Callback, SolverSettings, Status


def boost(
    X: Points | DaskPoints,
    comparisons: Comparisons,
    loss: str | Loss = "logistic",
    *,
    solver: str = "auto",
    regularizer: str | Regularizer = "trace",
    alpha: float = DEFAULT_ALPHA,
    max_iter: int = 500,
    directions_per_step: int | str = "auto",
    tol: float | None = None,
    eigen_solver: str = "auto",
    callback: Callback | None = None,
    should_stop: Callable[[], bool] | None = None,
    start: Metric | None = None,
    resume: Mapping[str, NDArray] | None = None,
    engine: Any = None,
    n_jobs: int | None = None,
) -> Boosting:
    """Learn a metric from comparisons of points (Algorithms 3 and 4).

    This is `learn_psd` with a `ComparisonOperator`.

    Parameters
    ----------
    X : array of shape (n, D), dense or CSR, float32 or float64; or a Dask array or dataframe
    comparisons : with gaps and weights; comparisons with weight 0 are ignored
    loss, regularizer, alpha, max_iter, directions_per_step, tol, eigen_solver : see `learn_psd`
    solver : see `learn_psd`; the default is "stagewise" if the loss supports it
    callback, should_stop, start, resume, n_jobs : see `learn_psd`
    engine : where the computation runs: None for this process, or for the active Dask client if X
        is a Dask collection; "dask" for that client; the address of a scheduler; or a
        `distributed.Client`. Without an active client, Dask runs in threads of this process until
        `boost` returns, and the `Boosting` cannot evaluate anything afterwards

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3))
    >>> comparisons = Comparisons.from_labels(X, X[:, 0] > 0)
    >>> fit = boost(X, comparisons, max_iter=10, directions_per_step=1)
    >>> fit.status.name, fit.metric.n_directions
    ('MAX_ITER', 10)
    """
    settings = SolverSettings.of(
        loss, solver, regularizer, alpha, max_iter, directions_per_step, tol, eigen_solver
    )
    if engine is None and is_collection(X):
        engine = "dask"
    with as_engine(engine, n_jobs) as opened:
        points = X
        if is_collection(X):
            assert isinstance(opened, Dask)
            points = DaskPoints.of(X, opened)
        problem = place_objective(opened, points, comparisons, settings.loss)
        return Boosting(problem, settings, start, resume).run(callback, should_stop)


def learn_psd(
    operator: Operator | NDArray | Sequence[Any],
    loss: str | Loss = "logistic",
    *,
    gaps: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    solver: str = "totally_corrective",
    regularizer: str | Regularizer = "trace",
    alpha: float = DEFAULT_ALPHA,
    max_iter: int = 500,
    directions_per_step: int | str = "auto",
    tol: float | None = None,
    eigen_solver: str = "auto",
    callback: Callback | None = None,
    should_stop: Callable[[], bool] | None = None,
    start: Metric | None = None,
    resume: Mapping[str, NDArray] | None = None,
    n_jobs: int | None = None,
) -> Boosting:
    """Minimize F(⟨A_r, M⟩ − b_r) + R(M) over M ⪰ 0, direction by direction.

    Each step adds leading eigenvectors of the scatter Σ u_r·A_r, computes their coefficients, and
    updates margins and duals.

    Parameters
    ----------
    operator : the symmetric matrices A_r: an array of shape (m, D, D), a list of dense or sparse
        matrices, a `LowRankOperator`, a `ComparisonOperator`, or a custom `Operator`
    loss : F, a convex `Loss` or one of the names in `LOSSES`
    gaps, weights : arrays of shape (m,), the b_r and the weights of the terms of F
    solver : "stagewise" computes each coefficient once; "totally_corrective" optimizes all
        coefficients again in each step and converges to the optimum; "auto" is "stagewise" if the
        loss and the regularizer support it
    regularizer : "trace", R = alpha·Tr M, or "frobenius", R = alpha/2·‖M‖², with the relative
        `alpha`; or an instance such as ``Trace(v)`` with an absolute strength
    alpha : relative strength, in units that depend on the problem (`Trace`, `Frobenius`). The hinge
        loss uses its parameter `nu` instead
    max_iter : maximum number of directions
    directions_per_step : number of directions added per step. With 1 the stage-wise solver is the
        paper's algorithm. With more, it optimizes the coefficients of the new directions together,
        and a common factor of all older ones, which is several times faster for the same objective.
        "auto" is 16, or D if that is less, and 8 for more than 600 features or several million
        matrices; up to 64 for the totally corrective solver
    tol : end the fit if the duality gap is at most this share of the objective, or of a thousandth
        of the objective at M = 0 if that is larger; 0 does not compute the gap. None, the default,
        is 1e-3 for the totally corrective solver. The stage-wise solver, which does not converge to
        the optimum in general, then does not compute the gap, and ends after a batch that lowers
        the objective by less than 1 percent; with a number, including 0, by less than 0.01 percent
    eigen_solver : "exact"; "approximate", a Lanczos iteration that becomes more accurate as the fit
        proceeds; or "auto", the default, exact up to 600 features, and for more features an
        iteration that starts from the eigenvectors of the last step
    callback : called after every step with the `Boosting`; a true result ends the fit
    should_stop : called before every evaluation; a true result ends the fit with the metric of the
        last complete step, and `callback` is called once more
    start : a metric of D features to start from
    resume : a `Boosting.snapshot` of a fit of the same problem with the same options; the result is
        that of an uninterrupted fit
    n_jobs : number of threads; None, the default, uses the cores available to the process
        (`engines.available_cores`). The result does not depend on it

    Returns
    -------
    Boosting, with `metric` (and `metric.matrix`), `objective()`, `duality_gap()`, `status` and
    `history`. If no direction lowers the objective, M = 0.

    Examples
    --------
    The matrix of (nearly) smallest norm with a diagonal of at least 1 and an off-diagonal entry of
    at most −0.4:

    >>> A = np.array([[[1.0, 0], [0, 0]], [[0, 0], [0, 1]], [[0, -0.5], [-0.5, 0]]])
    >>> options = {"regularizer": "frobenius", "alpha": 1e-4, "tol": 1e-6}
    >>> fit = learn_psd(A, "squared_hinge", gaps=[0, 0, -0.6], **options)
    >>> fit.metric.matrix.round(2)
    array([[ 1. , -0.4],
           [-0.4,  1. ]])
    """
    settings = SolverSettings.of(
        loss, solver, regularizer, alpha, max_iter, directions_per_step, tol, eigen_solver
    )
    operator = as_operator(operator)
    check_operator(operator)
    operator = operator.normalized()
    b, c = (None if given is None else np.asarray(given, float) for given in (gaps, weights))
    with Local(n_jobs) as engine:
        problem = Objective.of_operator(engine, operator, settings.loss, Trace(0.0), b, c)
        return Boosting(problem, settings, start, resume).run(callback, should_stop)


@dataclass(frozen=True, eq=False)
class PathPoint:
    """The solution for one alpha; `duality_gap` bounds its distance from the optimum."""

    alpha: float
    metric: Metric
    objective: float
    duality_gap: float
    n_evaluations: int
    status: Status


def alpha_path(
    learn: Callable[..., Boosting], alphas: Iterable[float | Regularizer]
) -> Iterator[PathPoint]:
    """Learn for several alphas, from the largest to the smallest, with warm starts.

    Parameters
    ----------
    learn : `boost` or `learn_psd` with all other arguments fixed (`functools.partial`); called
        with `alpha` or `regularizer`, and with `start`
    alphas : relative values, or instances such as ``Trace(v)`` with absolute values, in any order

    Yields
    ------
    PathPoint, with the absolute alpha

    Examples
    --------
    >>> from functools import partial
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> comparisons = Comparisons.from_labels(X, y)
    >>> options = {"solver": "totally_corrective", "tol": 1e-6}
    >>> learn = partial(boost, X, comparisons, "logistic", **options)
    >>> for point in alpha_path(learn, [0.5, 0.01, 0.0001]):
    ...     gap = point.duality_gap / point.objective
    ...     rank = len(point.metric.truncate(0.999).eigenvalues)
    ...     print(f"alpha {point.alpha:7.1f}  rank {rank}  relative gap below 1e-6: {gap < 1e-6}")
    alpha   674.7  rank 1  relative gap below 1e-6: True
    alpha    13.5  rank 1  relative gap below 1e-6: True
    alpha     0.1  rank 4  relative gap below 1e-6: True
    """
    metric: Metric | None = None

    def strength(alpha: float | Regularizer) -> float:
        return alpha.strength if isinstance(alpha, Regularizer) else alpha

    for alpha in sorted(alphas, key=strength, reverse=True):
        name = "regularizer" if isinstance(alpha, Regularizer) else "alpha"
        fit = learn(**{name: alpha}, start=metric)
        metric = fit.metric
        yield PathPoint(
            alpha=fit.alpha,
            metric=metric,
            objective=fit.objective(),
            duality_gap=fit.duality_gap(),
            n_evaluations=sum(step.n_evaluations for step in fit.history),
            status=fit.status,
        )
