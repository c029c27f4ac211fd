"""Passes: neighbors → comparisons → boosting → composition, once or several times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.points import Points
from boostmetric.engines import Dask, Local, StopRequested
from boostmetric.estimators.callbacks import Monitor
from boostmetric.estimators.checkpoint import Checkpoint
from boostmetric.estimators.early_stopping import HeldOut
from boostmetric.estimators.training_data import ShouldStop
from boostmetric.learn import learn_from_comparisons
from boostmetric.metric import Metric
from boostmetric.problem import Comparisons, NotANumberError
from boostmetric.solvers import (
    Boosting,
    Iteration,
    Outcome,
    SnapshotError,
    SolverSettings,
    Status,
)

Observer = Callable[[Boosting], bool]
"""Called with the fit after every step; a true result ends the pass."""

Compare = Callable[[Any, ShouldStop], Comparisons]
"""Returns the comparisons to learn from, given the transformed points; it raises `StopRequested` if
the second argument is a function that returns a true value meanwhile."""


@dataclass(frozen=True, eq=False)
class Pass:
    """The result of one pass on points that `base`, if any, has transformed."""

    base: NDArray | None
    outcome: Outcome

    @property
    def metric(self) -> Metric:
        """The metric over the original features, all passes up to this one included."""
        metric = self.outcome.metric
        return metric if self.base is None else metric.compose(self.base)


def one_pass(
    X: Points | DaskPoints,
    base: NDArray | None,
    compare: Compare,
    settings: SolverSettings,
    engine: Local | Dask,
    *,
    start: Metric | None = None,
    observe: Callable[[Any, Comparisons], Sequence[Observer]] | None = None,
    checkpoint: Checkpoint | None = None,
    stops_search: ShouldStop = None,
    stops_step: ShouldStop = None,
) -> Pass:
    """Compare and boost in the image of `base`.

    Parameters
    ----------
    X : array of shape (n, D), or points on a cluster
    base : array of shape (d, D), the transformation before this pass, or None
    compare : see `Compare`
    settings, engine : how the problem is solved, and where
    start : a metric to start from
    observe : returns the observers of this pass, given the transformed points and the comparisons
    checkpoint : its unfinished pass, if there is one, is resumed
    stops_search, stops_step : a true result ends the search for neighbors with `StopRequested`, and
        a step of the boosting

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> compare = lambda points, _: Comparisons.from_labels(points, X[:, 0] > 0)
    >>> with Local() as engine:
    ...     first = one_pass(X, None, compare, SolverSettings.of(max_iter=10), engine)
    ...     second = one_pass(X, first.metric.components, compare, SolverSettings.of(), engine)
    >>> second.metric.n_features
    3
    """
    points = X if base is None else X @ base.T
    comparisons = compare(points, stops_search)
    observers = () if observe is None else observe(points, comparisons)

    def callback(fit: Boosting) -> bool:
        answers = [observer(fit) for observer in observers]  # all of them, whoever ends the pass
        return any(answers)

    resume = None if checkpoint is None else checkpoint.running or None
    try:
        fit = learn_from_comparisons(
            points, comparisons, settings, engine, callback, stops_step, start, resume
        )
    except SnapshotError as error:
        assert checkpoint is not None
        checkpoint.reject(error)
    return Pass(base, fit.outcome())


def run_passes(
    X: Points | DaskPoints,
    base: NDArray | None,
    compare: Compare,
    settings: Sequence[SolverSettings],
    engine: Local | Dask,
    *,
    start: Metric | None = None,
    monitor: Monitor | None = None,
    held_out: HeldOut | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[list[Pass], NotANumberError | None]:
    """Several passes; each compares and boosts in the space that the one before has learned.

    Parameters
    ----------
    X, base, compare, engine, start : as for `one_pass`; `base` is that of the first pass
    settings : of each pass
    monitor, held_out, checkpoint : observers of the fit. Passes that the checkpoint contains are
        not repeated

    Returns
    -------
    passes : a pass without directions is the last one; so is one that a callback ends, during it
        or in the search for neighbors that follows, or in which the loss returns NaN
    error : the NotANumberError of the last pass, or None. It is raised if nothing was learned
    """
    passes: list[Pass] = []
    known = () if checkpoint is None else tuple(checkpoint.passes)
    is_interrupted = None if monitor is None else monitor.is_interrupted
    for number, of_pass in enumerate(settings):
        if checkpoint is not None and number < len(known):
            done = Pass(base, known[number])
        else:
            try:
                done = one_pass(
                    X,
                    base,
                    compare,
                    of_pass,
                    engine,
                    start=start,
                    observe=partial(
                        _observers, monitor, held_out, checkpoint, base, of_pass, start
                    ),
                    checkpoint=checkpoint,
                    # Before the first pass there is nothing to keep.
                    stops_search=is_interrupted if passes else None,
                    stops_step=is_interrupted,
                )
            except StopRequested:  # in the search for neighbors; the passes before are kept
                last = replace(passes[-1].outcome, status=Status.STOPPED)
                return [*passes[:-1], replace(passes[-1], outcome=last)], None
            except NotANumberError as error:
                if error.fit is not None:
                    passes.append(Pass(base, error.fit.outcome()))
                if not any(each.outcome.metric.n_directions for each in passes):
                    raise
                return passes, error
            if held_out is not None:
                done = Pass(base, held_out.end_pass(done.outcome))
            if monitor is not None:
                monitor.end_pass(done.outcome)
                if monitor.stopped:  # the checkpoint keeps the state within the pass
                    return [*passes, done], None
            if checkpoint is not None:
                checkpoint.keep(done.outcome, math.inf if held_out is None else held_out.best_error)
        passes.append(done)
        if not done.outcome.metric.n_directions:
            break
        base = done.metric.components
    if checkpoint is not None:
        checkpoint.finish()
    return passes, None


def _observers(
    monitor: Monitor | None,
    held_out: HeldOut | None,
    checkpoint: Checkpoint | None,
    base: NDArray | None,
    settings: SolverSettings,
    start: Metric | None,
    points: Points | DaskPoints,
    comparisons: Comparisons,
) -> list[Observer]:
    """Begin a pass: the observers of its steps, in the order in which they see them."""
    observers: list[Observer] = []
    if monitor is not None:
        batch_size = settings.batch_size(points.shape[1], comparisons.n_counted)
        monitor.begin_pass(base, n_iterations=math.ceil(settings.max_iter / batch_size))
        observers.append(monitor)
    stopping = None
    if held_out is not None:
        stopping = held_out.begin_pass(points, start)
        if checkpoint is not None and checkpoint.running:
            stopping.resume(checkpoint.stopping)
        observers.append(stopping)
    if checkpoint is not None:

        def save(fit: Boosting) -> bool:
            # A pass that ends here is written as a whole, by `run_passes`.
            if not (fit.is_over or (stopping is not None and stopping.is_over)):
                now = monitor is not None and monitor.stopped
                checkpoint.follow(fit.snapshot, stopping, now)
            return False

        observers.append(save)
    return observers


def history_of(passes: Sequence[Pass]) -> dict[str, NDArray]:
    """The steps of several passes, as one array per recorded quantity."""
    rows = [(number, step) for number, done in enumerate(passes) for step in done.outcome.history]
    recorded = [field.name for field in fields(Iteration)]
    return {
        "pass": np.array([number for number, _ in rows], dtype=np.intp),
        **{name: np.array([getattr(step, name) for _, step in rows]) for name in recorded},
    }
