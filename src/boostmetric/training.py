"""What a fit learns from, and how it does one pass; the part of the data held out included."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric._warn import warn
from boostmetric.boosting import boost
from boostmetric.comparisons import Comparisons
from boostmetric.evaluation import knn_error, satisfied_share
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
from boostmetric.passes import Pass
from boostmetric.solvers import default_block_size
from boostmetric.state import Boosting


@dataclass(eq=False)
class Training:
    """Labels or comparisons or both, and the settings of a fit.

    Parameters
    ----------
    labels : array of shape (n,), or None
    weights : of the points, array of shape (n,) or None
    comparisons : given beside or instead of labels, or None
    n_neighbors, neighbors : numbers of targets and impostors, and how they are looked for
    n_jobs : threads that look for neighbours
    validation_fraction : share to hold out for early stopping; None for no early stopping
    patience : directions without a better metric after which early stopping ends a pass
    rng : chooses what is held out
    boosting : the keyword arguments of `boost` but for the callback
    """

    labels: NDArray | None
    weights: NDArray | None = None
    comparisons: Comparisons | None = None
    n_neighbors: tuple[int, int] = (3, 3)
    neighbors: str | Index = "exact"
    n_jobs: int | None = None
    validation_fraction: float | None = None
    patience: int = 50
    rng: np.random.RandomState = field(default_factory=np.random.RandomState)
    boosting: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._best_error = math.inf
        self._held_out: Comparisons | NDArray | None = None
        if self.validation_fraction is None:
            return
        if self.labels is not None:
            if self.weights is None:
                self.weights = np.ones(len(self.labels))
            self._held_out = hold_out_points(
                self.labels, self.weights, self.validation_fraction, self.rng
            )
        elif self.comparisons is not None:
            m = len(self.comparisons)
            chosen = hold_out_comparisons(m, self.validation_fraction, self.rng)
            self._held_out = self.comparisons[chosen]
            self.comparisons = self.comparisons[np.setdiff1d(np.arange(m), chosen)]

    def compare(self, points: NDArray) -> Comparisons:
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

    def run(
        self, monitor: Monitor, base: NDArray | None, points: NDArray, comparisons: Comparisons
    ) -> Boosting:
        """One pass on points that `base`, if any, has mapped; what early stopping keeps of it."""
        options = dict(self.boosting)
        options["block_size"] = options["block_size"] or default_block_size(
            options["loss"], options["solver"], points.shape[1], comparisons.n_counted
        )
        monitor.begin_pass(n_iterations=-(-options["max_iter"] // options["block_size"]))
        early_stopping = self._early_stopping(points)

        def callback(fit: Boosting) -> bool:
            stop = monitor.iteration(Pass(base, fit))
            return (early_stopping is not None and early_stopping(fit)) or stop

        fit = boost(points, comparisons, callback=callback, **options)
        if early_stopping is not None:
            early_stopping.keep_best(fit)
            self._best_error = early_stopping.best_error
        monitor.end_pass(fit)
        return fit

    def _early_stopping(self, points: NDArray) -> EarlyStopping | None:
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

            def error(metric: Metric) -> float:
                return knn_error(
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


def check_first_pass(first: Boosting, alpha: float) -> None:
    """Raise or warn if the first pass found no direction at all: M = 0 is no metric."""
    if first.directions:
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
