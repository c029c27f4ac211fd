"""What a fit learns from, and how it does one pass; the part of the data held out included."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric._warn import warn
from boostmetric.boosting import boost
from boostmetric.checkpoint import Checkpoint
from boostmetric.comparisons import Comparisons
from boostmetric.evaluation import knn_error, satisfied_share, unlike_share
from boostmetric.holdout import (
    CHEAP,
    STRIDE,
    EarlyStopping,
    hold_out_comparisons,
    hold_out_points,
)
from boostmetric.metric import Metric
from boostmetric.monitor import Monitor
from boostmetric.neighbors import Index
from boostmetric.passes import Pass, boost_passes
from boostmetric.points import Points
from boostmetric.solvers import default_block_size
from boostmetric.state import Fit, Outcome, Status, beginning

STOPPING = "stopping_"
"""What the names of early stopping's arrays begin with in a checkpoint."""


@dataclass(eq=False)
class Training:
    """Labels or comparisons or both, and the settings of a fit.

    Parameters
    ----------
    labels : array of shape (n,), or a sparse indicator of shape (n, L), or None
    weights : of the points, array of shape (n,) or None
    comparisons : given beside or instead of labels, or None
    n_neighbors, neighbors : numbers of targets and impostors, and how they are looked for
    n_jobs : threads that look for neighbours
    validation_fraction : share to hold out for early stopping; None for no early stopping
    patience : directions without a better metric after which early stopping ends a pass
    rng : chooses what is held out
    checkpoint : follows the fit, or None
    boosting : the keyword arguments of `boost` but for the callback
    """

    labels: NDArray | csr_array | None
    weights: NDArray | None = None
    comparisons: Comparisons | None = None
    n_neighbors: tuple[int, int] = (3, 3)
    neighbors: str | Index = "exact"
    n_jobs: int | None = None
    validation_fraction: float | None = None
    patience: int = 50
    rng: np.random.RandomState = field(default_factory=np.random.RandomState)
    checkpoint: Checkpoint | None = None
    boosting: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._best_error = math.inf if self.checkpoint is None else self.checkpoint.best_error
        self._held_out: Comparisons | NDArray | None = None
        if self.validation_fraction is None:
            return
        chosen = None if self.checkpoint is None else self.checkpoint.held_out
        if self.labels is not None:
            if self.weights is None:
                self.weights = np.ones(self.labels.shape[0])
            if chosen is None:
                chosen = hold_out_points(
                    self.labels, self.weights, self.validation_fraction, self.rng
                )
            self._held_out = chosen
        elif self.comparisons is not None:
            m = len(self.comparisons)
            if chosen is None:
                chosen = hold_out_comparisons(m, self.validation_fraction, self.rng)
            self._held_out = self.comparisons[chosen]
            self.comparisons = self.comparisons[np.setdiff1d(np.arange(m), chosen)]
        if self.checkpoint is not None:
            self.checkpoint.held_out = chosen

    @property
    def n_done(self) -> int:
        """The number of passes that the checkpoint has."""
        return 0 if self.checkpoint is None else len(self.checkpoint.passes)

    def passes(
        self, monitor: Monitor, X: Points, base: NDArray | None, n_passes: int
    ) -> Iterator[Pass]:
        """The passes of a fit (`boost_passes`), until one is stopped; the checkpoint follows."""
        checkpoint = self.checkpoint
        known = [] if checkpoint is None else checkpoint.passes[:]
        run = partial(self.run, monitor)
        for number, done in enumerate(boost_passes(X, base, n_passes, self.compare, run, known)):
            ended = not monitor.stopped and done.fit.status is not Status.FAILED
            if checkpoint is not None and number >= len(known) and ended:
                checkpoint.keep(done.fit, self._best_error)
            yield done
            if monitor.stopped:
                return
        if checkpoint is not None:
            checkpoint.finish()

    def compare(self, points: Points) -> Comparisons:
        """The comparisons to learn from; neighbours are those among the given points."""
        if self.labels is None:
            assert self.comparisons is not None
            return self.comparisons
        weights = self.weights
        if isinstance(self._held_out, np.ndarray) and weights is not None:
            weights = weights.copy()
            weights[self._held_out] = 0
        mined = Comparisons.from_labels(
            points,
            self.labels,
            *self.n_neighbors,
            neighbors=self.neighbors,
            sample_weight=weights,
            n_jobs=self.n_jobs,
        )
        return mined if self.comparisons is None else mined + self.comparisons

    def run(self, monitor: Monitor, base: NDArray | None, points: Any, comparisons: Any) -> Fit:
        """One pass on points that `base`, if any, has mapped; what early stopping keeps of it."""
        options = dict(self.boosting)
        options["block_size"] = options["block_size"] or default_block_size(
            options["loss"], options["solver"], points.shape[1], comparisons.n_counted
        )
        monitor.begin_pass(n_iterations=-(-options["max_iter"] // options["block_size"]))
        early_stopping, checkpoint = self._early_stopping(points), self.checkpoint
        if checkpoint is not None and checkpoint.running:
            options["resume"] = checkpoint.running
            if early_stopping is not None:
                early_stopping.resume(beginning(checkpoint.running, STOPPING))

        def snapshot(fit: Fit) -> dict[str, NDArray]:
            held_out = {} if early_stopping is None else early_stopping.snapshot()
            return fit.snapshot() | {STOPPING + name: held_out[name] for name in held_out}

        def callback(fit: Fit) -> bool:
            stop = monitor.iteration(base, fit)
            over = early_stopping is not None and early_stopping(fit)
            if checkpoint is not None and not (over or fit.is_over):
                checkpoint.follow(lambda: snapshot(fit), now=stop)
            return over or stop

        fit = boost(points, comparisons, callback=callback, **options)
        if early_stopping is not None:
            early_stopping.keep_best(fit)
            self._best_error = early_stopping.best_error
        monitor.end_pass(fit)
        return fit

    def _early_stopping(self, points: Points) -> EarlyStopping | None:
        """The callback for a pass. To be kept, its metric must beat that of the pass before."""
        held_out = self._held_out
        if held_out is None:
            return None
        stride = 1
        if isinstance(held_out, Comparisons):

            def error(metric: Metric) -> float:
                return 1 - satisfied_share(metric, points, held_out)

        else:
            labels, weights = self.labels, self.weights
            assert labels is not None
            assert weights is not None
            others = np.setdiff1d(np.flatnonzero(weights > 0), held_out)
            stride = 1 if len(held_out) * len(others) <= CHEAP else STRIDE

            measure = knn_error if labels.ndim == 1 else unlike_share

            def error(metric: Metric) -> float:
                return measure(
                    metric.transform(points[others]),
                    labels[others],
                    metric.transform(points[held_out]),
                    labels[held_out],
                    self.n_neighbors[0],
                    sample_weight=weights[held_out],
                    n_jobs=self.n_jobs,
                )

        start: Metric | None = self.boosting["start"]
        if start is not None:
            return EarlyStopping(error, self.patience, stride, error(start), start)
        return EarlyStopping(error, self.patience, stride, self._best_error)


def check_first_pass(first: Outcome, alpha: float) -> None:
    """Raise or warn if the first pass found no direction at all: M = 0 is no metric."""
    if first.metric.n_directions:
        return
    if 0 < first.alpha_max <= first.alpha:
        raise ValueError(
            f"alpha={alpha:g} is too large: no direction lowers the objective. The largest alpha "
            f"that lets one in is {first.alpha_max:g}; use a smaller alpha, or alpha_relative=True."
        )
    warn(
        "No direction makes the far pairs farther apart than the near ones on the whole, so the "
        "starting metric is kept (Euclidean, unless init says otherwise). Are labels random, or "
        "near and far exchanged? More targets or another init may help."
    )
