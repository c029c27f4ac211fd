"""Learn a metric, or any positive semidefinite matrix, direction by direction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from boostmetric.data.dask_points import DaskPoints, is_collection
from boostmetric.data.points import Points
from boostmetric.engines import Dask, Local, as_engine
from boostmetric.metric import Metric
from boostmetric.problem import (
    REGULARIZERS,
    ComparisonOperator,
    Comparisons,
    Hinge,
    Loss,
    Objective,
    Operator,
    Step,
    Trace,
    UnitTrace,
    as_loss,
    as_operator,
    check_operator,
    place_objective,
)
from boostmetric.solvers import (
    EIGEN_SOLVERS,
    FIRST_GAP,
    Boosting,
    Memory,
    Status,
    check_combination,
    default_batch_size,
    default_solver,
    leading_eigenpairs,
    make_solver,
)

DEFAULT_ALPHA = 1e-7
"""The relative alpha, unless another is given."""

Callback = Callable[[Boosting], bool]
"""Called after every step with the state of the fit; a true result ends the fit."""


class Options(TypedDict, total=False):
    """Keyword arguments of `boost` and `learn_psd`; `learn_psd` describes them."""

    solver: str
    regularizer: str
    alpha: float | None
    alpha_relative: bool
    max_iter: int
    tol: float | None
    eigen_solver: str
    block_size: int | None
    callback: Callback | None
    should_stop: Callable[[], bool] | None
    start: Metric | None
    resume: Mapping[str, NDArray] | None
    n_jobs: int | None
    engine: Any


def boost(
    X: Points | DaskPoints, comparisons: Comparisons, loss: str | Loss, **options: Unpack[Options]
) -> Boosting:
    """Learn a metric from comparisons of points (Algorithms 3 and 4).

    This is `learn_psd` with a `ComparisonOperator`, and the gaps and weights of the comparisons.

    Parameters
    ----------
    X : array of shape (n, D), dense or CSR, float32 or float64; or an array or dataframe of Dask
    comparisons, loss : what to learn from, and how margins count; a comparison of weight 0 is left
        out
    engine : where the computation runs: None for this process, or, if X is a collection of Dask,
        for the active Dask client; "dask" for that client; the address of a scheduler; or a
        `distributed.Client`. Without an active client, Dask runs in threads of this process until
        `boost` returns, and the `Boosting` cannot evaluate anything afterwards
    options : as for `learn_psd`, except that the default of `solver` is the paper's, "stagewise",
        or the only one that the loss works with

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
    gaps, given = counted.gaps, options.get("engine")
    if given is None and is_collection(X):
        given = "dask"
    with as_engine(given, options.get("n_jobs")) as engine:
        if isinstance(engine, Dask):
            points = DaskPoints.of(X, engine) if is_collection(X) else X
            return solve(*place_objective(engine, points, counted, loss), options)
        operator = ComparisonOperator(X, counted, exponent=None, threads=engine.threads)
        if isinstance(loss, Hinge) and gaps is not None:
            # It fixes the trace of M, so margins are in the units of the operator.
            gaps = gaps / operator.unit
        return _learn(engine, operator, loss, gaps, counted.weights, options)


def learn_psd(
    operator: Operator | NDArray | Sequence[Any],
    loss: str | Loss = "logistic",
    *,
    gaps: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    **options: Unpack[Options],
) -> Boosting:
    """Minimize F(⟨A_r, M⟩ − b_r) + R(M) over M ⪰ 0, direction by direction.

    Each step takes leading eigenvectors of the scatter Σ u_r·A_r as the next directions, finds
    their coefficients, and updates margins and duals.

    Parameters
    ----------
    operator : the symmetric matrices A_r: an array of shape (m, D, D), a list of dense or sparse
        matrices, a `LowRankOperator`, a `ComparisonOperator`, or a custom `Operator`
    loss : F, a `Loss` or the name of one in `LOSSES`; any convex function
    gaps, weights : arrays of shape (m,), the b_r and the weights of the terms of F
    solver : "stagewise" finds a coefficient once, by a line search; "totally_corrective", the
        default, optimizes all of them again in each step and converges to the optimum
    regularizer : "trace", R = alpha·Tr M, or "frobenius", R = alpha/2·‖M‖²
    alpha : 1e-7 by default. The hinge loss has none, but its own `nu`
    alpha_relative : whether alpha is in units that depend on the problem (`Trace`, `Frobenius`);
        True by default
    max_iter : number of directions that are tried at most, 500 by default; a step counts for
        `block_size` of them
    block_size : number of directions that a step adds. With 1 the stage-wise solver is the paper's
        algorithm. In a larger batch it finds the coefficients of the new directions together, and
        with them one factor for all older ones, which is several times faster for the same
        objective. By default 24 (D/2 if that is less, 8 for more than 600 features), or 1 for fewer
        than 16 features or 10,000 matrices; 4 for the totally corrective solver
    tol : end the fit if the duality gap is at most this share of the objective, or of a thousandth
        of the objective at M = 0 if that is larger; 0 does not compute the gap. None, the default,
        is 1e-3 for the totally corrective solver and 0 for the stage-wise one, which in general
        does not come close to the optimum
    eigen_solver : "auto", the default, is "exact" if the scatter is a matrix; for more than 600
        features approximate eigenvectors are followed from one step to the next. "approximate" uses
        a Lanczos iteration that becomes more accurate as the fit proceeds
    callback : called after every step with the `Boosting`; a true result ends the fit
    should_stop : called before every evaluation; a true result ends the fit with the metric of the
        last complete step, after which `callback` is called once more
    start : a metric of D features to continue from
    resume : the `Boosting.snapshot` of a fit of the same problem with the same options; the fit
        continues from there as if it had not been interrupted
    n_jobs : number of threads; None, the default, uses the cores available to the process
        (`engines.available_cores`). The result does not depend on it

    Returns
    -------
    Boosting, with `metric` (and `metric.matrix`), `objective()`, `duality_gap()`, `status` and
    `history`. If no direction lowers the objective, its metric has none: M = 0.

    Examples
    --------
    The matrix of smallest trace, nearly, that has 1 on its diagonal and at most −0.4 off it:

    >>> A = np.array([[[1.0, 0], [0, 0]], [[0, 0], [0, 1]], [[0, -0.5], [-0.5, 0]]])
    >>> fit = learn_psd(A, "squared_hinge", gaps=[0, 0, -0.6], alpha=1e-4, tol=1e-6)
    >>> fit.metric.matrix.round(2)
    array([[ 1. , -0.4],
           [-0.4,  1. ]])
    """
    operator = as_operator(operator)
    check_operator(operator)
    b, c = (None if given is None else np.asarray(given, float) for given in (gaps, weights))
    with Local(options.get("n_jobs")) as engine:
        return _learn(engine, operator, as_loss(loss), b, c, options)


def _learn(
    engine: Local,
    operator: Operator,
    loss: Loss,
    gaps: NDArray | None,
    weights: NDArray | None,
    options: Options,
) -> Boosting:
    problem = Objective.of_operator(engine, operator, loss, Trace(0.0), gaps, weights)
    return solve(problem, operator.unit, options)


def solve(problem: Objective, unit: float, options: Options) -> Boosting:
    """Minimize an objective, whose own regularizer is replaced.

    Parameters
    ----------
    problem : at M = 0; it may have several blocks
    unit : the matrices A_r of the problem are those of the user divided by this number, and for the
        hinge, which fixes the trace of M, the gaps, too
    options : those of `learn_psd`
    """
    loss, kind = problem.loss, options.get("regularizer", "trace")
    name = options.get("solver", "totally_corrective")
    eigen_solver = options.get("eigen_solver", "auto")
    check_combination(loss, name, kind)
    if eigen_solver not in EIGEN_SOLVERS:
        names = ", ".join(map(repr, EIGEN_SOLVERS))
        raise ValueError(
            f"The 'eigen_solver' parameter must be one of {names}. Got {eigen_solver!r} instead."
        )
    batch_size = options.get("block_size")
    if batch_size is None:
        batch_size = default_batch_size(loss, name, problem.n_features, problem.n_terms)
    elif not (isinstance(batch_size, Integral) and batch_size >= 1):
        raise ValueError(
            "The 'block_size' parameter must be None or an int in the range [1, inf). Got "
            f"{batch_size!r} instead."
        )
    alpha = options.get("alpha")
    _check_alpha(loss, alpha)
    start = options.get("start")
    if start is not None and start.n_features != problem.n_features:
        raise ValueError(
            f"start must be a metric of {problem.n_features} features; it has {start.n_features}."
        )
    solver = make_solver(loss, name, batch_size, eigen_solver)
    tol = options.get("tol")

    # 1) the regularizer, relative to the scatter at M = 0
    first = problem.evaluate()
    assert first.scatter is not None
    scatter = first.scatter
    if isinstance(loss, Hinge):
        # At M = 0 all margins are equal up to gaps, and so should be the duals.
        block = problem.single_block()
        uniform = loss.nu * loss.prices(problem.n_terms, block.weights)
        scatter = block.operator.scatter(uniform.astype(problem.dtype))
    alpha_max = float(leading_eigenpairs(scatter)[0][0])
    R = REGULARIZERS[kind]
    strength = DEFAULT_ALPHA if alpha is None else alpha
    if isinstance(loss, Hinge):
        problem.regularizer = UnitTrace(0.0)
    elif options.get("alpha_relative", True):
        problem.regularizer = R(strength * R.unit(alpha_max, first.dual_sum))
    else:
        problem.regularizer = R(R.in_units(strength, 1 / unit))

    # 2) where to start
    fit = Boosting(
        problem=problem,
        solver=solver,
        memory=Memory(alpha_max),
        first_value=first.value,
        unit=unit,
        tol=solver.default_tol if tol is None else tol,
    )
    resume = options.get("resume")
    if resume is not None:
        fit.resume(resume)
    elif start is not None:
        coefs = start.coefs * fit.coef_unit
        problem.take(Step(start.directions.astype(problem.dtype), coefs, 0.0))

    # 3) the loop
    problem.should_stop = options.get("should_stop")
    fit.run(
        options.get("max_iter", 500),
        options.get("callback"),
        FIRST_GAP if start is None else 1,
    )
    return fit


def _check_alpha(loss: Loss, alpha: float | None) -> None:
    if alpha is None:
        return
    if isinstance(loss, Hinge):
        raise ValueError(
            f"alpha={alpha!r} has no effect with {loss!r}, which fixes the trace at 1. Leave it "
            "out, and set nu."
        )
    if not 0 <= alpha < math.inf:
        raise ValueError(
            f"The 'alpha' parameter must be a float in the range [0.0, inf). Got {alpha!r} instead."
        )


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
