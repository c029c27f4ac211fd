"""What all displays have in common: Axes, and their input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from boostmetric.metric import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRAY = "0.45"  # guides and notes
HEADINGS = ("Before: Euclidean distance", "After: learned distance")


class Display:
    """Base class of displays: `ax_` is an array of Axes, `figure_` their figure."""

    ax_: NDArray
    figure_: Figure

    def _set_axes(self, ax: Any, n_panels: int, title: str | None) -> NDArray:
        """Use the given Axes, which may be one instead of `n_panels`, or make a new figure."""
        if ax is None:
            try:
                from matplotlib import pyplot
            except ImportError:
                raise ImportError(
                    "Plots require matplotlib: pip install 'boostmetric[plots]'"
                ) from None
            size = (10.0, 4.5) if n_panels > 1 else (6.0, 4.5)
            figure, ax = pyplot.subplots(1, n_panels, figsize=size, layout="constrained")
            if title is not None:
                figure.suptitle(title, parse_math=False)
        axes = np.asarray(ax, dtype=object).ravel()
        if len(axes) not in (1, n_panels) or not all(hasattr(each, "spines") for each in axes):
            expected = "one Axes" if n_panels == 1 else f"one Axes, {n_panels} Axes"
            raise ValueError(f"ax must be {expected} or None. Got {ax!r} instead.")
        for each in axes:
            each.spines[["top", "right"]].set_visible(False)
        self.ax_, self.figure_ = axes, axes[0].figure
        return axes


def fitted_metric(estimator: Any) -> Metric:
    """`metric_` of a fitted estimator, or the argument itself if it is a metric."""
    if isinstance(estimator, BaseEstimator):
        check_is_fitted(estimator)
    metric = getattr(estimator, "metric_", estimator)
    if not isinstance(metric, Metric):
        raise ValueError(
            f"{type(estimator).__name__} has no metric_. Pass a fitted BoostMetric, BoostMetricCV "
            "or a Metric."
        )
    return metric


def before_and_after(
    estimator: Any, X: Any, y: NDArray | None, max_points: int
) -> tuple[Any, Any, NDArray, int]:
    """A sample of points, the same transformed, their row numbers, and the number of all points."""
    if isinstance(estimator, BaseEstimator):
        check_is_fitted(estimator)
    check_consistent_length(X, y)
    points = check_array(X, accept_sparse="csr", ensure_min_samples=2)
    images = check_array(estimator.transform(X), accept_sparse="csr")
    rows = np.random.default_rng(0).permutation(points.shape[0])[:max_points]
    return points[rows], images[rows], rows, points.shape[0]
