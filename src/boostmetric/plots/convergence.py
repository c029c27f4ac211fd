"""How a fit went: objective, duality gap or λ_max, direction by direction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from boostmetric.metric import Metric
from boostmetric.plots.drawing import AFTER, GREY, panels, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

QUANTITIES = {
    "objective": "objective F(ρ) + R(M)",
    "duality_gap": "duality gap, share of the objective",
    "lambda_max": "λ_max, eigenvalue of the direction",
    "n_violated": "comparisons violated",
}
"""What can be drawn, and the text at its axis."""

LOGARITHMIC = 100.0
"""The ratio of largest to smallest value from which an axis is logarithmic."""


@dataclass(eq=False, repr=False)
class ConvergenceDisplay:
    """The objective of a fit after each iteration, and the duality gap or λ_max beside it.

    Every pass compares other points, so that its curve is one of its own.

    Parameters
    ----------
    history : the numbers of each iteration, as in `BoostMetric.history_`
    final_gap : the duality gap at the end, or NaN where none was looked for

    Attributes
    ----------
    ax_, figure_ : an array of the Axes, and the figure that they are in
    lines_ : list of the curves, pass by pass, those of the first Axes first

    Examples
    --------
    >>> from boostmetric import BoostMetric
    >>> from sklearn.datasets import load_iris
    >>> learner = BoostMetric(max_iter=5, n_passes=2).fit(*load_iris(return_X_y=True))
    >>> display = ConvergenceDisplay.from_estimator(learner)
    >>> display.n_directions.tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    >>> [axes.get_ylabel()[:9] for axes in display.ax_], len(display.lines_)
    (['objective', 'λ_max, ei'], 4)
    """

    history: Mapping[str, ArrayLike]
    final_gap: float = math.nan
    ax_: NDArray = field(init=False)
    figure_: Figure = field(init=False)
    lines_: list[Line2D] = field(init=False)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw how the fit of a `BoostMetric` went.

        Parameters
        ----------
        estimator : a fitted one with `history_`
        ax : see `plot`
        """
        check_is_fitted(estimator)
        history = getattr(estimator, "history_", None)
        if history is None:
            raise ValueError(
                f"{type(estimator).__name__} has no history_: give a fitted BoostMetric."
            )
        return cls(history, estimator.duality_gap_).plot(ax)

    @classmethod
    def from_metric(cls, metric: Metric, *, ax: Any = None) -> Self:
        """Draw how the fit went that a metric comes from, by `metric.origin["history"]`.

        Parameters
        ----------
        metric : one that says where it comes from, as `BoostMetric.metric_` does
        ax : see `plot`
        """
        origin = metric.origin or {}
        history, gap = origin.get("history"), origin.get("duality_gap")
        if history is None:
            raise ValueError(
                "this metric does not say how it was learned: its origin has no history. Give the "
                "metric_ of a fitted BoostMetric, as it was or saved and loaded."
            )
        return cls(history, math.nan if gap is None else gap).plot(ax)

    @property
    def n_directions(self) -> NDArray:
        """The number of directions tried after each iteration, in all passes so far."""
        return np.cumsum(self.history["n_tried"])

    def values(self, quantity: str) -> NDArray:
        """The numbers that are drawn, one for each iteration; NaN where nothing is known.

        The duality gap is a share of the size of the objective, and no less than 1e-16, up to
        which it is a matter of rounding.
        """
        numbers = np.array(self.history[quantity], dtype=np.float64)
        if quantity == "duality_gap":
            if math.isfinite(self.final_gap):
                numbers[-1] = self.final_gap
            sizes = np.abs(np.asarray(self.history["objective"], dtype=np.float64))
            numbers = np.maximum(numbers / np.where(sizes > 0, sizes, 1.0), 1e-16)
        numbers[~np.isfinite(numbers)] = np.nan
        return numbers

    def plot(
        self,
        ax: Any = None,
        *,
        quantities: Sequence[str] | None = None,
        against: str = "directions",
        name: str | None = None,
        color: str = AFTER,
    ) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib's Axes, one for each quantity, or one for the first alone; None makes a new
            figure
        quantities : one or two of "objective", "duality_gap", "lambda_max" and "n_violated". None
            is the objective, and the duality gap where it is known more than once, else λ_max
        against : "directions" or "iterations"
        name : written at the end of the curves, to tell several fits on the same Axes apart
        color : of the curves
        """
        quantities = self._check(quantities, against)
        axes = panels(ax, len(quantities))
        self.ax_, self.figure_, self.lines_ = axes, axes[0].figure, []
        x = self.n_directions if against == "directions" else 1 + np.arange(len(self.n_directions))
        for each, quantity in zip(axes, quantities, strict=False):
            self._draw(each, x, self.values(quantity), color)
            each.set_xlabel(f"{against}{', all passes' if self._starts().size > 1 else ''}")
            each.set_ylabel(QUANTITIES[quantity])
            if name is not None:
                last = np.flatnonzero(np.isfinite(self.values(quantity)))[-1]
                each.annotate(
                    name,
                    (x[last], self.values(quantity)[last]),
                    xytext=(4, 0),
                    textcoords="offset points",
                    color=color,
                    va="center",
                    annotation_clip=False,
                )
            plain(each)
        return self

    def _check(self, quantities: Sequence[str] | None, against: str) -> Sequence[str]:
        """The quantities to draw, after all that can be checked."""
        if len(self.n_directions) == 0:
            raise ValueError("the history is empty: the fit found no direction to add.")
        if against not in ("directions", "iterations"):
            raise ValueError(
                f"against={against!r} will not do: 'directions' or 'iterations' is needed."
            )
        if quantities is None:
            n_known = np.isfinite(self.values("duality_gap")).sum()
            return ("objective", "duality_gap" if n_known > 1 else "lambda_max")
        unknown = [quantity for quantity in quantities if quantity not in QUANTITIES]
        if unknown or not 1 <= len(quantities) <= 2:
            names = ", ".join(map(repr, QUANTITIES))
            raise ValueError(
                f"quantities={quantities!r} will not do: one or two of {names} are needed."
            )
        for quantity in quantities:
            if np.isnan(self.values(quantity)).all():
                raise ValueError(
                    f"{quantity} is not known of any iteration: fit with tol above 0, and more "
                    "iterations."
                )
        return quantities

    def _starts(self) -> NDArray:
        """The iterations that a pass begins with."""
        return np.unique(np.asarray(self.history["pass"]), return_index=True)[1]

    def _draw(self, axes: Axes, x: NDArray, y: NDArray, color: str) -> None:
        """The curve of one quantity, broken where a pass begins, which is marked."""
        starts = self._starts()
        for number, rows in enumerate(np.split(np.arange(len(x)), starts[1:])):
            known = rows[np.isfinite(y[rows])]
            marker = "o" if len(known) <= 40 else None
            self.lines_ += axes.plot(x[known], y[known], color=color, marker=marker, markersize=4)
            begin = x[rows[0]]
            if number:
                begin = (x[rows[0] - 1] + begin) / 2
                axes.axvline(begin, color=GREY, linestyle=":")
            if len(starts) > 1:
                axes.annotate(
                    f"{number + 1}" if number else "pass 1",
                    (begin, 1.0),
                    xycoords=("data", "axes fraction"),
                    xytext=(0, 3),
                    textcoords="offset points",
                    color=GREY,
                    ha="center" if number else "right",
                    va="bottom",
                )
        known = y[np.isfinite(y)]
        if known.size and known.min() > 0 and known.max() > LOGARITHMIC * known.min():
            axes.set_yscale("log")
