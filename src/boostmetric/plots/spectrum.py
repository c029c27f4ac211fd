"""Eigenvalues of a metric and its most important features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from boostmetric.plots.base import GRAY, Display, fitted_metric

TRACE_SHARE = 0.95  # the title tells how many eigenvalues make up this share


@dataclass(eq=False, repr=False)
class SpectrumDisplay(Display):
    """Eigenvalues of M as shares of its trace, and the most important features.

    Parameters
    ----------
    eigenvalues : array of shape (rank,), positive eigenvalues of M in descending order
    importances : array of shape (D,), as in `Metric.feature_importances`
    feature_names : D names

    Examples
    --------
    >>> from boostmetric import Metric
    >>> display = SpectrumDisplay.from_estimator(Metric(np.eye(3), np.array([6.0, 3.7, 0.3])))
    >>> display.ax_[0].get_title()
    '2 of 3 eigenvalues make up 95% of the trace'
    """

    eigenvalues: NDArray
    importances: NDArray
    feature_names: Sequence[str]

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, feature_names: Sequence[str] | None = None, **plot_kwargs: Any
    ) -> Self:
        """Draw the spectrum of a metric.

        Parameters
        ----------
        estimator : fitted `BoostMetric` or `BoostMetricCV`, or a `Metric`
        feature_names : D names. Default: those of the metric, or x0, x1, …
        **plot_kwargs : passed to `plot`
        """
        metric = fitted_metric(estimator)
        if len(metric.eigenvalues) == 0:
            raise ValueError("The metric is 0, so it has no spectrum.")
        if feature_names is not None:
            metric = replace(metric, feature_names=tuple(feature_names))
        names = metric.feature_names or [f"x{i}" for i in range(metric.n_features)]
        display = cls(metric.eigenvalues, metric.feature_importances, names)
        return display.plot(**plot_kwargs)

    def plot(self, ax: Any = None, *, n_features: int = 10, title: str | None = None) -> Self:
        """Draw the eigenvalues and the features.

        Parameters
        ----------
        ax : two Axes, or one for the eigenvalues only. Default: a new figure
        n_features : number of features to draw
        title : title of a new figure, for example the name of the dataset
        """
        left, *right = self._set_axes(ax, 2, title)
        from matplotlib.ticker import MaxNLocator

        rank, sums = len(self.eigenvalues), self.eigenvalues.cumsum()
        n_leading = int(np.searchsorted(sums, TRACE_SHARE * sums[-1])) + 1
        numbers = np.arange(1, rank + 1)
        left.bar(numbers, self.eigenvalues / sums[-1], label="Each")
        left.plot(numbers, sums / sums[-1], "C1.-", label="Cumulative")
        left.axhline(TRACE_SHARE, color=GRAY, linestyle=":", zorder=0)
        left.set(xlabel="Eigenvalue (largest first)", ylabel="Share of the trace", ylim=(0, 1.05))
        left.set_title(f"{n_leading} of {rank} eigenvalues make up {TRACE_SHARE:.0%} of the trace")
        left.yaxis.set_major_formatter("{x:.0%}")
        left.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        left.legend(loc="center right")
        for axes in right:
            order = np.argsort(-self.importances, kind="stable")[:n_features]
            places, names = np.arange(len(order)), [f"{self.feature_names[i]:.30}" for i in order]
            axes.barh(places, self.importances[order])
            axes.set_yticks(places, names, parse_math=False)
            axes.invert_yaxis()
            axes.set_xlabel("Importance (M_ii × variance, share of the sum)")
            axes.set_title(f"Top {len(order)} of {len(self.importances)} features")
            axes.xaxis.set_major_formatter("{x:.3g}")
        return self
