"""What a metric goes by: its eigenvalues, and the features that count most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from boostmetric.metric import Metric
from boostmetric.plots.drawing import AFTER, GREY, panels, plain, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

SHARE = 0.95
"""The share of the trace that leading eigenvalues are counted up to."""


@dataclass(eq=False, repr=False)
class SpectrumDisplay:
    """The eigenvalues of M as shares of its trace, each and summed, and the largest M_ii.

    M_ii is the squared distance that one unit of feature i makes. It says which features count
    where their scales are alike.

    Parameters
    ----------
    eigenvalues : array of shape (rank,), the positive eigenvalues of M, falling
    diagonal : array of shape (D,), the diagonal of M
    feature_names : D names

    Attributes
    ----------
    ax_, figure_ : an array of the Axes, and the figure that they are in
    bars_, line_ : the eigenvalues, and their sum so far
    feature_bars_ : the features, None where they are not drawn

    Examples
    --------
    >>> metric = Metric(np.eye(3), np.array([6.0, 3.0, 1.0]))
    >>> display = SpectrumDisplay.from_metric(metric)
    >>> display.shares.round(2).tolist(), display.n_carrying(0.9)
    ([0.6, 0.3, 0.1], 2)
    >>> display.ax_[0].get_title()
    '3 of 3 eigenvalues carry 95 % of the trace'
    """

    eigenvalues: NDArray
    diagonal: NDArray
    feature_names: Sequence[str]
    ax_: NDArray = field(init=False)
    figure_: Figure = field(init=False)
    bars_: BarContainer = field(init=False)
    line_: Line2D = field(init=False)
    feature_bars_: BarContainer | None = field(init=False)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        feature_names: Sequence[str] | None = None,
        n_features: int = 10,
        ax: Any = None,
    ) -> Self:
        """Draw what an estimator of this package has learned.

        Parameters
        ----------
        estimator : a fitted one with `metric_`
        feature_names : D names. None is those of the columns that it was fitted on, or x0, x1, …
        n_features, ax : see `plot`
        """
        check_is_fitted(estimator)
        metric = getattr(estimator, "metric_", None)
        if metric is None:
            raise ValueError(
                f"{type(estimator).__name__} has no metric_: give a fitted BoostMetric or "
                "BoostMetricCV."
            )
        if feature_names is None:
            feature_names = getattr(estimator, "feature_names_in_", None)
        return cls.from_metric(metric, feature_names=feature_names, n_features=n_features, ax=ax)

    @classmethod
    def from_metric(
        cls,
        metric: Metric,
        *,
        feature_names: Sequence[str] | None = None,
        n_features: int = 10,
        ax: Any = None,
    ) -> Self:
        """Draw a metric.

        Parameters
        ----------
        metric : any but M = 0
        feature_names : D names. None is those that the metric has, or x0, x1, …
        n_features, ax : see `plot`
        """
        if len(metric.eigenvalues) == 0:
            raise ValueError("this metric has no direction: M = 0 has no spectrum to draw.")
        D = metric.n_features
        if feature_names is None:
            feature_names = metric.feature_names or [f"x{i}" for i in range(D)]
        if len(feature_names) != D:
            raise ValueError(f"{len(feature_names)} feature_names came: {D} are needed.")
        diagonal = np.einsum("dj,j->d", metric.directions**2, metric.coefs)
        return cls(metric.eigenvalues, diagonal, list(feature_names)).plot(ax, n_features)

    @property
    def shares(self) -> NDArray:
        """The eigenvalues as shares of their sum, the trace."""
        shares: NDArray = self.eigenvalues / self.eigenvalues.sum()
        return shares

    def n_carrying(self, share: float = SHARE) -> int:
        """The number of leading eigenvalues that reach this share of the trace together."""
        # A sum of all may come out a little below 1.
        reached = np.cumsum(self.shares) >= share * (1 - 1e-12)
        return int(np.argmax(reached)) + 1

    def plot(self, ax: Any = None, n_features: int = 10) -> Self:
        """Draw the spectrum, and the features beside it.

        Parameters
        ----------
        ax : two of matplotlib's Axes, or one for the spectrum alone; None makes a new figure
        n_features : number of features to show, those with the largest M_ii; 0 is none
        """
        axes = panels(ax, 2 if n_features > 0 else 1)
        self.ax_, self.figure_, self.feature_bars_ = axes, axes[0].figure, None
        self._draw_spectrum(axes[0])
        if len(axes) > 1:
            self._draw_features(axes[1], n_features)
        for each in axes:
            plain(each)
        return self

    def _draw_spectrum(self, axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator, PercentFormatter

        numbers = 1 + np.arange(len(self.shares))
        sums = np.cumsum(self.shares)
        enough = self.n_carrying()
        colors = [AFTER] * enough + [GREY] * (len(numbers) - enough)
        self.bars_ = axes.bar(numbers, self.shares, color=colors)
        marker = "o" if len(numbers) <= 40 else None
        (self.line_,) = axes.plot(numbers, sums, color="black", marker=marker, markersize=4)
        axes.axhline(SHARE, color=GREY, linestyle=":", zorder=0)
        axes.set_ylim(0, 1.05)
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlim(0.3, max(len(numbers), 3) + 0.7)
        axes.set_xlabel("eigenvalue, the largest first")
        axes.set_ylabel("share of the trace: each (bars), so far (line)")
        axes.set_title(
            f"{enough} of {len(numbers)} eigenvalues carry {100 * SHARE:g} % of the trace"
        )

    def _draw_features(self, axes: Axes, n_features: int) -> None:
        from matplotlib.ticker import MaxNLocator

        largest = np.argsort(-self.diagonal, kind="stable")[:n_features]
        names = [shortened(self.feature_names[i]) for i in largest]
        places = np.arange(len(largest))
        self.feature_bars_ = axes.barh(places, self.diagonal[largest], color=AFTER)
        axes.set_yticks(places, names, parse_math=False)
        axes.invert_yaxis()
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("M_ii, squared distance for one unit")
        axes.set_title(
            f"largest {len(largest)} of {len(self.diagonal)} features"
            if len(largest) < len(self.diagonal)
            else "features"
        )
