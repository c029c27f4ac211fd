"""Passes: neighbors → comparisons → boosting → composition, once or several times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from numpy.typing import NDArray

from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.points import Points, transform_points
from boostmetric.engines import Dask, EngineError, Local, StopRequested
from boostmetric.estimators.callbacks import Monitor, SilentMonitor
from boostmetric.estimators.checkpoint import Checkpoint
from boostmetric.estimators.early_stopping import HeldOut
from boostmetric.estimators.settings import Settings
from boostmetric.estimators.splits import Errors
from boostmetric.estimators.training_data import TrainingData
from boostmetric.estimators.verify import DROP_PASS, LeaveOneOut, is_worse
from boostmetric.metric import Metric
from boostmetric.problem import NotANumberError, Operator, place_objective
from boostmetric.solvers import Boosting, Outcome, SnapshotError, Status


@dataclass(frozen=True, eq=False)
class Pass:
    """The result of one pass on points that `base`, if any, has transformed.

    `shrinkage` is the share of the identity in the metric (`Metric.shrink`). `pairs` are the
    compared pairs, which the next search for neighbors starts from; None if they are not known.
    """

    base: NDArray | None
    outcome: Outcome
    shrinkage: float = 0.0
    pairs: NDArray | None = None

    @property
    def metric(self) -> Metric:
        """The metric over the original features, which includes all passes up to this one."""
        metric = self.outcome.metric
        # An empty metric stays empty, and one of many features, such as words, of low rank.
        if metric.n_directions and metric.n_features <= Operator.DENSE_UP_TO:
            metric = metric.shrink(self.shrinkage) if self.shrinkage else metric
        return metric if self.base is None else metric.compose(self.base)


@dataclass(frozen=True, eq=False)
class Passes:
    """The passes of a fit.

    Attributes
    ----------
    done : the last one is a pass without directions, a pass that was not accepted, a pass during or
        after which the fit was stopped, a pass in which the loss returned NaN, or pass number
        `n_passes`
    errors : leave-one-out errors of the start and after each pass; empty if they were not computed
        or the fit has ended early
    n_accepted : number of passes that did not make these errors worse
    failure : the NotANumberError of the last pass, or None. It is raised if nothing was learned
    """

    done: list[Pass]
    errors: Sequence[Errors] = ()
    n_accepted: int = 0
    failure: NotANumberError | None = None


def one_pass(
    data: TrainingData,
    base: NDArray | None,
    settings: Settings,
    engine: Local | Dask,
    *,
    likely_pairs: NDArray | None = None,
    start: Metric | None = None,
    resume: Mapping[str, NDArray] | None = None,
    accept: Callable[[Points | DaskPoints, NDArray], bool] | None = None,
    callback: Callable[[Boosting], bool] | None = None,
    stop_search: Callable[[], bool] | None = None,
    stop_step: Callable[[], bool] | None = None,
) -> Pass | None:
    """Compare points with their neighbors, and boost, in the image of `base`.

    Parameters
    ----------
    data, settings, engine : the data, the parameters, and where the computation runs
    base : array of shape (d, D), the transformation before this pass, or None
    likely_pairs : the pairs of the pass before, which save time in the search for neighbors
    start, resume : a metric to start from; the snapshot of an interrupted pass
    accept : called with the transformed points and the compared pairs; if the result is false,
        nothing is learned, and None is returned
    callback : called after every step; a true result ends the pass
    stop_search, stop_step : a true result ends the search for neighbors with a `StopRequested`, or
        the pass in the middle of a step

    Examples
    --------
    >>> import numpy as np
    >>> from boostmetric import BoostMetric
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> settings = Settings.from_params(BoostMetric(max_iter=10).get_params())
    >>> data = TrainingData(X, X[:, 0] > 0)
    >>> with Local() as engine:
    ...     first = one_pass(data, None, settings, engine)
    ...     second = one_pass(data, first.metric.components, settings, engine)
    >>> second.metric.n_features
    3
    """
    points = _images(data.points, base)
    comparisons = data.compare(points, settings, likely_pairs, stop_search)
    if accept is not None and not accept(points, comparisons.pairs):
        return None
    problem = place_objective(engine, points, comparisons, settings.solver.loss)
    fit = Boosting(problem, settings.solver, start, resume).run(callback, stop_step)
    return Pass(base, fit.outcome(), settings.shrinkage, comparisons.pairs)


def run_passes(
    data: TrainingData,
    base: NDArray | None,
    settings: Settings,
    engine: Local | Dask,
    monitor: Monitor | SilentMonitor,
    held_out: HeldOut | None = None,
    checkpoint: Checkpoint | None = None,
    start: Metric | None = None,
    check: LeaveOneOut | None = None,
) -> Passes:
    """Run several passes; each searches for neighbors in the space learned by the one before.

    Passes that the checkpoint contains are not repeated, and its unfinished pass is continued. With
    a `check`, the first pass that makes the leave-one-out error worse by more than two standard
    errors is the last one.
    """
    errors: list[Errors] = []

    def accept(points: Points | DaskPoints, pairs: NDArray | None = None) -> bool:
        """Check the pass before, in the space that it has learned."""
        if check is None or isinstance(points, DaskPoints):
            return True
        errors.append(check.errors(points, pairs))
        return len(errors) < 2 or not is_worse(errors[-1], errors[-2], DROP_PASS)

    def observe(fit: Boosting) -> bool:
        stopped = monitor(fit)
        ended = held_out is not None and held_out(fit)
        # A pass that ends here is written as a whole, below; a fit that is stopped, at once.
        if checkpoint is not None and not (fit.is_over or ended):
            checkpoint.follow(fit, held_out, now=stopped)
        return stopped or ended

    known = [] if checkpoint is None else list(checkpoint.passes)
    passes: list[Pass] = []
    is_accepted = True
    for number in range(settings.n_passes):
        if number < len(known):
            is_accepted = accept(_images(data.points, base))
            done = Pass(base, known[number], settings.shrinkage) if is_accepted else None
        else:
            try:
                monitor.begin_pass(base)
                if held_out is not None:
                    held_out.begin_pass(base)
                done = one_pass(
                    data,
                    base,
                    settings,
                    engine,
                    likely_pairs=passes[-1].pairs if passes else None,
                    start=start,
                    resume=None if checkpoint is None else checkpoint.running or None,
                    accept=accept,
                    callback=observe,
                    # Before the first pass there is no metric to keep.
                    stop_search=monitor.is_interrupted if passes else None,
                    stop_step=monitor.is_interrupted,
                )
            except StopRequested:  # in the search for neighbors; the passes before are kept
                last = replace(passes[-1].outcome, status=Status.STOPPED)
                return Passes([*passes[:-1], replace(passes[-1], outcome=last)])
            except NotANumberError as error:
                if error.fit is not None:
                    passes.append(Pass(base, error.fit.outcome(), settings.shrinkage))
                if not any(each.outcome.metric.n_directions for each in passes):
                    raise
                return Passes(passes, failure=error)
            except SnapshotError as error:
                assert checkpoint is not None
                checkpoint.reject(error)
            except EngineError as error:
                if checkpoint is None or not checkpoint.path.exists():
                    raise
                raise EngineError(
                    f"{error} The checkpoint '{checkpoint.path}' has the state of the fit: fit "
                    "again with the same data and parameters to continue."
                ) from error
            if done is not None:
                if held_out is not None:
                    done = replace(done, outcome=held_out.end_pass(done.outcome))
                monitor.end_pass(done.outcome)
                if monitor.stopped:  # the checkpoint contains the state within the pass
                    return Passes([*passes, done])
                if checkpoint is not None:
                    checkpoint.keep(done.outcome, held_out)
        if done is None:  # the pass before was not accepted
            is_accepted = False
            break
        passes.append(done)
        if not done.outcome.metric.n_directions:
            break
        base = done.metric.components
    else:
        is_accepted = accept(_images(data.points, base))
    if checkpoint is not None:
        checkpoint.write(held_out, finished=True)
    return Passes(passes, errors, n_accepted=max(0, len(errors) - 1 - (not is_accepted)))


def _images(points: Points | DaskPoints, base: NDArray | None) -> Points | DaskPoints:
    """Transform points; equal points have equal images."""
    if base is None:
        return points
    return points @ base.T if isinstance(points, DaskPoints) else transform_points(points, base)
