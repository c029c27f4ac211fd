"""Early stopping: keep the metric with the lowest error on data held out of the fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.labels import Labels
from boostmetric.engines import Threads
from boostmetric.estimators.settings import Settings
from boostmetric.estimators.splits import seed_of
from boostmetric.estimators.training_data import TrainingData
from boostmetric.evaluation.knn import neighbor_errors, satisfied_share
from boostmetric.metric import Metric
from boostmetric.neighbors import nearest_points
from boostmetric.problem import only_named_rows
from boostmetric.solvers import Boosting, Outcome


def hold_out_points(
    y: ArrayLike | csr_array, weights: NDArray | None, fraction: float, rng: np.random.RandomState
) -> NDArray:
    """Choose a random part of every class; at least two points per class are left.

    For multilabel targets it is a part of every label set, and two points per label are left.
    Points with weight 0 or without a label are never held out. Returns sorted row indices; raises a
    ValueError if no point can be held out.
    """
    labels = Labels.of(y)
    counted = labels.labeled if weights is None else labels.labeled & (weights > 0)
    order = rng.permutation(np.flatnonzero(counted))
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


class HeldOut:
    """Data held out of a fit; the best metric on them is kept, and ends a pass if it is old.

    Points are held out if there are labels, otherwise comparisons.

    Parameters
    ----------
    data : all data
    settings : of the fit
    start : the metric that a warm start continues from
    saved : the `snapshot` of an interrupted fit

    Attributes
    ----------
    rest : the data that are left to learn from
    best_error : the lowest error in all passes so far; a pass must beat it to be kept
    is_over : whether the current pass is to end
    """

    def __init__(
        self,
        data: TrainingData,
        settings: Settings,
        start: Metric | None = None,
        saved: Mapping[str, NDArray] | None = None,
    ) -> None:
        self._data, self._settings, self._start = data, settings, start
        # 1) what is held out, and the state of the current pass
        self.best_error, self._best_at, self._evaluated_at = math.inf, 0, 0
        self._best: Metric | None = None
        self.is_over = False
        if saved:
            self._chosen = saved["chosen"]
            self.best_error, best_at, evaluated_at = saved["numbers"].tolist()
            self._best_at, self._evaluated_at = int(best_at), int(evaluated_at)
            if "coefs" in saved:
                self._best = Metric(saved["directions"], saved["coefs"])
        else:
            fraction, rng = (
                settings.validation_fraction,
                np.random.RandomState(seed_of(settings.random_state)),
            )
            if data.labels is not None:
                self._chosen = hold_out_points(data.labels, data.weights, fraction, rng)
            else:
                assert data.comparisons is not None
                m = len(data.comparisons)
                if m < 2:
                    raise ValueError(
                        "early_stopping holds out comparisons and requires at least 2."
                    )
                size = min(max(1, round(fraction * m)), m - 1)
                self._chosen = np.sort(rng.permutation(m)[:size])
        # 2) what is left
        if data.labels is not None:
            n = data.points.shape[0]
            weights = np.ones(n) if data.weights is None else data.weights.copy()
            self._judged_weights = weights[self._chosen]
            weights[self._chosen] = 0
            self.rest = replace(data, weights=weights)
        else:
            assert data.comparisons is not None
            others = np.setdiff1d(np.arange(len(data.comparisons)), self._chosen)
            self.rest = replace(data, comparisons=data.comparisons[others])

    def begin_pass(self, base: NDArray | None) -> None:
        """Prepare the evaluation of metrics in the image of `base`."""
        self._error, self._stride = self._error_after(base)
        if self._start is not None and self._best is None:
            self._best, self.best_error = self._start, self._error(self._start)

    def __call__(self, fit: Boosting) -> bool:
        """Evaluate the metric after a step; return whether the pass is to end."""
        if fit.n_tried - self._evaluated_at >= self._stride:
            self._evaluate(fit.metric, fit.n_tried)
        self.is_over = fit.n_tried - self._best_at >= self._settings.n_iter_no_change
        return self.is_over

    def end_pass(self, outcome: Outcome) -> Outcome:
        """Return the pass with its best metric, or an empty one if earlier passes were better.

        The duality gap is that of the last metric, so it is NaN if another one is kept.
        """
        last, n_tried = outcome.metric, outcome.n_tried
        if n_tried > self._evaluated_at:
            self._evaluate(last, n_tried)
        best = self._best or Metric(np.empty((last.n_features, 0)), np.empty(0))
        gap = outcome.duality_gap if self._best_at == n_tried else math.nan
        self._best, self._best_at, self._evaluated_at, self.is_over = None, 0, 0, False
        return replace(outcome, metric=best.astype(last.directions.dtype), duality_gap=gap)

    def snapshot(self) -> dict[str, NDArray]:
        """Return the held-out rows and the state of the current pass, as arrays."""
        numbers = np.array([self.best_error, self._best_at, self._evaluated_at])
        saved = {"chosen": self._chosen, "numbers": numbers}
        if self._best is not None:
            saved |= {"directions": self._best.directions, "coefs": self._best.coefs}
        return saved

    def _evaluate(self, metric: Metric, n_tried: int) -> None:
        self._evaluated_at = n_tried
        error = self._error(metric)
        if error < self.best_error:
            self.best_error, self._best, self._best_at = error, metric, n_tried

    def _error_after(self, base: NDArray | None) -> tuple[Callable[[Metric], float], int]:
        """Return the held-out error of a metric, and the directions between two evaluations."""
        points, labels, chosen = self._data.points, self._data.labels, self._chosen
        points = points if base is None else points @ base.T
        if labels is None:
            assert self._data.comparisons is not None
            judged = self._data.comparisons[chosen]
            if isinstance(points, DaskPoints):
                rows, judged = only_named_rows(judged)
                points = points[rows]
            return lambda metric: 1 - satisfied_share(metric, points, judged), 1
        if isinstance(points, DaskPoints):  # fetched once, not in every step
            points = points[np.arange(points.shape[0])]
        assert self.rest.weights is not None
        others = np.flatnonzero(self.rest.weights > 0)
        A, B, k = points[others], points[chosen], min(self._settings.n_targets, len(others))
        known, truth = labels[others], labels[chosen]
        # Up to a million distances take milliseconds, so they are computed after every step, and
        # starting threads would take longer. Otherwise ten directions share an evaluation.
        is_large = len(chosen) * len(others) > 1_000_000
        n_jobs = self._settings.n_jobs if is_large else 1
        nearest: NDArray | None = None

        def error(metric: Metric) -> float:
            nonlocal nearest  # the search starts from the neighbors of the evaluation before
            images = metric.transform(A), metric.transform(B)
            with Threads(n_jobs) as threads:
                nearest = nearest_points(*images, k, likely=nearest, threads=threads)
            errors = neighbor_errors(known, nearest, truth)
            return float(np.average(errors, weights=self._judged_weights))

        return error, 10 if is_large else 1
