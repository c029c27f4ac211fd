"""Early stopping: keep the metric with the lowest error on data held out of the fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.labels import Labels
from boostmetric.data.points import Points
from boostmetric.engines import Threads
from boostmetric.estimators.settings import Settings
from boostmetric.estimators.training_data import TrainingData
from boostmetric.evaluation.knn import knn_error, satisfied_share, unlike_share
from boostmetric.metric import Metric
from boostmetric.problem import only_named_rows
from boostmetric.solvers import Boosting, Outcome

MAX_DISTANCES_PER_STEP = 1_000_000
"""Number of distances up to which held-out points are classified after every step."""

STRIDE = 10
"""Directions between two evaluations of the held-out error, if one needs more distances."""


def hold_out_points(
    y: ArrayLike | csr_array, weights: NDArray, fraction: float, rng: np.random.RandomState
) -> NDArray:
    """Row numbers of a random part of every class; at least two points per class are left.

    With multilabel targets it is a part of every set of labels, and two points per label are left.
    Points with weight 0 or without a label are never held out. Raises a ValueError if no point can
    be held out.
    """
    labels = Labels.of(y)
    order = rng.permutation(np.flatnonzero((weights > 0) & labels.labeled))
    order = order[np.argsort(labels.codes[order], kind="stable")]
    # Every (1/fraction)-th point in the order of classes, so that each class gives its share.
    chosen = order[np.diff(np.floor(fraction * np.arange(len(order) + 1) + 0.5)) > 0]
    left = labels[np.setdiff1d(order, chosen)].counts()
    n_scarce = labels.sets @ (left < 2).astype(np.intp)
    held_out = np.sort(chosen[n_scarce[labels.codes[chosen]] == 0])
    if len(held_out) == 0:
        kind = "label" if labels.classes is None else "class"
        raise ValueError(
            f"validation_fraction={fraction} holds out no point of {len(labels)}, because every "
            f"{kind} keeps at least 2. Change it, or do not hold out data."
        )
    return held_out


def hold_out_comparisons(m: int, fraction: float, rng: np.random.RandomState) -> NDArray:
    """Positions of a random part of m comparisons, none and all excluded."""
    if m < 2:
        raise ValueError("early_stopping holds out comparisons and requires at least 2.")
    size = min(max(1, round(fraction * m)), m - 1)
    return np.sort(rng.permutation(m)[:size])


class HeldOut:
    """Data held out of a fit, and the lowest error on them in the passes so far.

    Points are held out if there are labels, otherwise comparisons.

    Parameters
    ----------
    data : all data
    chosen : row numbers of points, or positions of comparisons
    settings : of the fit
    best_error : the lowest error in earlier passes of a fit that is resumed

    Attributes
    ----------
    rest : the data that are left to learn from
    """

    def __init__(
        self,
        data: TrainingData,
        chosen: NDArray,
        settings: Settings,
        best_error: float = math.inf,
    ) -> None:
        self.chosen, self.best_error = chosen, best_error
        self._data, self._settings = data, settings
        self._stopping: EarlyStopping
        if data.labels is not None:
            n = data.labels.shape[0]
            weights = np.ones(n) if data.weights is None else data.weights.copy()
            self._judged_weights = weights[chosen]
            weights[chosen] = 0
            self.rest = replace(data, weights=weights)
        else:
            assert data.comparisons is not None
            self._judged = data.comparisons[chosen]
            others = np.setdiff1d(np.arange(len(data.comparisons)), chosen)
            self.rest = replace(data, comparisons=data.comparisons[others])

    @classmethod
    def split(cls, data: TrainingData, settings: Settings, rng: np.random.RandomState) -> HeldOut:
        """Choose what to hold out."""
        n, fraction = data.n_examples, settings.validation_fraction
        if data.labels is None:
            chosen = hold_out_comparisons(n, fraction, rng)
        else:
            weights = np.ones(n) if data.weights is None else data.weights
            chosen = hold_out_points(data.labels, weights, fraction, rng)
        return cls(data, chosen, settings)

    def begin_pass(self, points: Points | DaskPoints, start: Metric | None) -> EarlyStopping:
        """The observer of a pass. To be kept, its metric must beat those of earlier passes."""
        error, stride = self._error_on(points)
        patience = self._settings.n_iter_no_change
        if start is not None:
            self._stopping = EarlyStopping(error, patience, stride, error(start), start)
        else:
            self._stopping = EarlyStopping(error, patience, stride, self.best_error)
        return self._stopping

    def end_pass(self, outcome: Outcome) -> Outcome:
        """The pass with the best metric that was seen in it instead of the last one."""
        outcome = self._stopping.keep_best(outcome)
        self.best_error = self._stopping.best_error
        return outcome

    def _error_on(self, points: Points | DaskPoints) -> tuple[Callable[[Metric], float], int]:
        """The held-out error of a metric, and the directions between two evaluations of it."""
        labels, weights, chosen = self._data.labels, self.rest.weights, self.chosen
        if labels is None:
            judged = self._judged
            if isinstance(points, DaskPoints):
                rows, judged = only_named_rows(judged)
                points = points[rows]
            return lambda metric: 1 - satisfied_share(metric, points, judged), 1
        if isinstance(points, DaskPoints):  # fetched once, not in every step
            points = points[np.arange(points.shape[0])]
        assert weights is not None
        others = np.flatnonzero(weights > 0)
        measure = knn_error if labels.ndim == 1 else unlike_share
        is_large = len(chosen) * len(others) > MAX_DISTANCES_PER_STEP
        # Starting threads takes longer than a small search.
        n_jobs = Threads(self._settings.n_jobs).n_jobs if is_large else 1

        def error(metric: Metric) -> float:
            return measure(
                metric.transform(points[others]),
                labels[others],
                metric.transform(points[chosen]),
                labels[chosen],
                self._settings.n_targets,
                sample_weight=self._judged_weights,
                n_jobs=n_jobs,
            )

        return error, STRIDE if is_large else 1


@dataclass(eq=False)
class EarlyStopping:
    """Observer of a pass that ends it when the held-out error has not fallen for a while.

    Parameters
    ----------
    error : of a metric, on the held-out data
    patience : number of directions without a lower error after which the pass ends
    stride : minimum number of directions between two evaluations of the error
    best_error, best_metric : those to beat; a metric with a higher or equal error is not kept
    """

    error: Callable[[Metric], float]
    patience: int
    stride: int = 1
    best_error: float = math.inf
    best_metric: Metric | None = None
    is_over: bool = field(default=False, init=False)
    _best_at: int = field(default=0, init=False)
    _evaluated_at: int = field(default=0, init=False)

    def __call__(self, fit: Boosting) -> bool:
        """Whether to stop."""
        if fit.n_tried - self._evaluated_at >= self.stride:
            self._evaluate(fit.metric, fit.n_tried)
        self.is_over = fit.n_tried - self._best_at >= self.patience
        return self.is_over

    def keep_best(self, outcome: Outcome) -> Outcome:
        """A finished pass with its best metric, or with an empty one if none beat the others.

        The duality gap is that of the last metric, so it is NaN if another one is kept.
        """
        n_tried = outcome.n_tried
        if n_tried > self._evaluated_at:
            self._evaluate(outcome.metric, n_tried)
        last = outcome.metric
        D, dtype = last.n_features, last.directions.dtype
        best = self.best_metric or Metric(np.empty((D, 0)), np.empty(0))
        gap = outcome.duality_gap if self._best_at == n_tried else math.nan
        return replace(outcome, metric=best.astype(dtype), duality_gap=gap)

    def snapshot(self) -> dict[str, NDArray]:
        """The best metric so far and its error, as arrays."""
        saved = {"numbers": np.array([self.best_error, self._best_at, self._evaluated_at])}
        if self.best_metric is not None:
            saved["directions"] = self.best_metric.directions
            saved["coefs"] = self.best_metric.coefs
        return saved

    def resume(self, saved: Mapping[str, NDArray]) -> None:
        """Continue from a snapshot."""
        self.best_error, best_at, evaluated_at = saved["numbers"].tolist()
        self._best_at, self._evaluated_at = int(best_at), int(evaluated_at)
        if "coefs" in saved:
            self.best_metric = Metric(saved["directions"], saved["coefs"])

    def _evaluate(self, metric: Metric, n_tried: int) -> None:
        self._evaluated_at = n_tried
        error = self.error(metric)
        if error < self.best_error:
            self.best_error, self.best_metric, self._best_at = error, metric, n_tried
