"""Passes: neighbors → comparisons → boosting → composition, once or several times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from numpy.typing import NDArray

from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.points import transform_points
from boostmetric.engines import Dask, EngineError, Local, StopRequested
from boostmetric.estimators.callbacks import Monitor
from boostmetric.estimators.checkpoint import Checkpoint
from boostmetric.estimators.early_stopping import HeldOut
from boostmetric.estimators.settings import Settings
from boostmetric.estimators.training_data import TrainingData
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


def one_pass(
    data: TrainingData,
    base: NDArray | None,
    settings: Settings,
    engine: Local | Dask,
    *,
    likely_pairs: NDArray | None = None,
    start: Metric | None = None,
    resume: Mapping[str, NDArray] | None = None,
    callback: Callable[[Boosting], bool] | None = None,
    stop_search: Callable[[], bool] | None = None,
    stop_step: Callable[[], bool] | None = None,
) -> Pass:
    """Compare points with their neighbors, and boost, in the image of `base`.

    Parameters
    ----------
    data, settings, engine : the data, the parameters, and where the computation runs
    base : array of shape (d, D), the transformation before this pass, or None
    likely_pairs : the pairs of the pass before, which save time in the search for neighbors
    start, resume : a metric to start from; the snapshot of an interrupted pass
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
    points = data.points
    if base is not None:
        is_remote = isinstance(points, DaskPoints)
        points = points @ base.T if is_remote else transform_points(points, base)
    comparisons = data.compare(points, settings, likely_pairs, stop_search)
    problem = place_objective(engine, points, comparisons, settings.solver.loss)
    fit = Boosting(problem, settings.solver, start, resume).run(callback, stop_step)
    return Pass(base, fit.outcome(), settings.shrinkage, comparisons.pairs)


def run_passes(
    data: TrainingData,
    base: NDArray | None,
    settings: Settings,
    engine: Local | Dask,
    monitor: Monitor,
    held_out: HeldOut | None = None,
    checkpoint: Checkpoint | None = None,
    start: Metric | None = None,
) -> tuple[list[Pass], NotANumberError | None]:
    """Run several passes; each searches for neighbors in the space learned by the one before.

    Passes that the checkpoint contains are not repeated, and its unfinished pass is continued.

    Returns
    -------
    passes : the last one is a pass without directions, a pass during or after which the fit was
        stopped, a pass in which the loss returned NaN, or pass number `n_passes`
    error : the NotANumberError of the last pass, or None. It is raised if nothing was learned
    """

    def observe(fit: Boosting) -> bool:
        stopped = monitor(fit)
        ended = held_out is not None and held_out(fit)
        # A pass that ends here is written as a whole, below; a fit that is stopped, at once.
        if checkpoint is not None and not (fit.is_over or ended):
            checkpoint.follow(fit, held_out, now=stopped)
        return stopped or ended

    known = [] if checkpoint is None else list(checkpoint.passes)
    passes: list[Pass] = []
    for number in range(settings.n_passes):
        if number < len(known):
            done = Pass(base, known[number], settings.shrinkage)
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
                    callback=observe,
                    # Before the first pass there is no metric to keep.
                    stop_search=monitor.is_interrupted if passes else None,
                    stop_step=monitor.is_interrupted,
                )
            except StopRequested:  # in the search for neighbors; the passes before are kept
                last = replace(passes[-1].outcome, status=Status.STOPPED)
                return [*passes[:-1], replace(passes[-1], outcome=last)], None
            except NotANumberError as error:
                if error.fit is not None:
                    passes.append(Pass(base, error.fit.outcome(), settings.shrinkage))
                if not any(each.outcome.metric.n_directions for each in passes):
                    raise
                return passes, error
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
            if held_out is not None:
                done = replace(done, outcome=held_out.end_pass(done.outcome))
            monitor.end_pass(done.outcome)
            if monitor.stopped:  # the checkpoint contains the state within the pass
                return [*passes, done], None
            if checkpoint is not None:
                checkpoint.keep(done.outcome, held_out)
        passes.append(done)
        if not done.outcome.metric.n_directions:
            break
        base = done.metric.components
    if checkpoint is not None:
        checkpoint.write(held_out, finished=True)
    return passes, None
