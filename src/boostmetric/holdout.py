"""Early stopping: keep the metric that does best on data held out of the fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from boostmetric.labels import Labels
from boostmetric.metric import Metric
from boostmetric.state import Fit

CHEAP = 1_000_000
"""Number of distances up to which held-out data are classified after every iteration."""

STRIDE = 10
"""Directions from one look at the held-out data to the next, where a look is not cheap."""


def hold_out_points(
    y: ArrayLike | csr_array, weights: NDArray, fraction: float, rng: np.random.RandomState
) -> NDArray:
    """Row numbers of a random part of every class, at least two points of each left to learn from.

    Where points have several labels, of every set of labels, and two points of each label are left.
    Points of weight 0 or without a label are passed over. Raises a ValueError if that is no point
    at all.
    """
    labels = Labels.of(y)
    order = rng.permutation(np.flatnonzero((weights > 0) & labels.labelled))
    order = order[np.argsort(labels.codes[order], kind="stable")]
    # Every (1/fraction)-th point of the classes in turn: no class gives more than its share.
    chosen = order[np.diff(np.floor(fraction * np.arange(len(order) + 1) + 0.5)) > 0]
    left = labels[np.setdiff1d(order, chosen)].counts()
    n_scarce = labels.sets @ (left < 2).astype(np.intp)
    held_out = np.sort(chosen[n_scarce[labels.codes[chosen]] == 0])
    if len(held_out) == 0:
        kind = "label" if labels.classes is None else "class"
        raise ValueError(
            f"validation_fraction={fraction} holds out no point of {len(labels)}, as every {kind} "
            "keeps at least 2. Change it, or hold nothing out."
        )
    return held_out


def hold_out_comparisons(m: int, fraction: float, rng: np.random.RandomState) -> NDArray:
    """Positions of a random part of m comparisons, none and all excluded."""
    if m < 2:
        raise ValueError("early_stopping holds out comparisons: at least 2 are needed.")
    size = min(max(1, round(fraction * m)), m - 1)
    return np.sort(rng.permutation(m)[:size])


@dataclass(eq=False)
class EarlyStopping:
    """A callback that looks at the held-out error, and stops when it has not fallen for a while.

    Parameters
    ----------
    error : of a metric, on the held-out data
    patience : number of directions to go on for without a lower error
    stride : number of directions from one look to the next, at least
    best_error, best_metric : what there was before; a metric that does not beat the error is not
        kept
    """

    error: Callable[[Metric], float]
    patience: int
    stride: int = 1
    best_error: float = math.inf
    best_metric: Metric | None = None

    def __post_init__(self) -> None:
        self._best_at = self._last_look = 0

    def __call__(self, fit: Fit) -> bool:
        """Whether to stop."""
        if fit.n_tried - self._last_look >= self.stride:
            self.look(fit)
        return fit.n_tried - self._best_at >= self.patience

    def snapshot(self) -> dict[str, NDArray]:
        """What was found so far, as arrays."""
        saved = {"numbers": np.array([self.best_error, self._best_at, self._last_look])}
        if self.best_metric is not None:
            saved["directions"] = self.best_metric.directions
            saved["coefs"] = self.best_metric.coefs
        return saved

    def resume(self, saved: Mapping[str, NDArray]) -> None:
        """Go on from a snapshot."""
        self.best_error, best_at, last_look = saved["numbers"].tolist()
        self._best_at, self._last_look = int(best_at), int(last_look)
        if "coefs" in saved:
            self.best_metric = Metric(saved["directions"], saved["coefs"])

    def look(self, fit: Fit) -> None:
        """Measure the error of the metric so far."""
        metric, self._last_look = fit.metric, fit.n_tried
        error = self.error(metric)
        if error < self.best_error:
            self.best_error, self.best_metric = error, metric
            self._best_at = fit.n_tried

    def keep_best(self, fit: Fit) -> None:
        """Bring a finished fit back to the best metric, or to none if that is not its own."""
        if fit.history:
            self.look(fit)
        D = fit.n_features
        fit.restart(self.best_metric or Metric(np.empty((D, 0)), np.empty(0)))
