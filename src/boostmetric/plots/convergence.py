"""Objective, and duality gap or λ_max, against the number of directions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from boostmetric.plots.base import GRAY, Display, fitted_metric


@dataclass(eq=False, repr=False)
class ConvergenceDisplay(Display):
    """Objective, and duality gap or λ_max, after each iteration of a fit.

    The duality gap is drawn if it was computed during the fit (`tol` > 0). Each pass compares other
    points, so each has its own curve.

    Parameters
    ----------
    history : numbers of each iteration, as in `BoostMetric.history_`
    final_gap : duality gap at the end, NaN if unknown

    Examples
    --------
    >>> from boostmetric import BoostMetric
    >>> from sklearn.datasets import load_iris
    >>> learner = BoostMetric(max_iter=5).fit(*load_iris(return_X_y=True))
    >>> display = ConvergenceDisplay.from_estimator(learner, title="iris")
    >>> [axes.get_ylabel() for axes in display.ax_]
    ['Objective', 'λ_max of the scatter matrix']
    """

    history: Mapping[str, ArrayLike]
    final_gap: float = math.nan

    @classmethod
    def from_estimator(cls, estimator: Any, **plot_kwargs: Any) -> Self:
        """Draw the history of a fit.

        Parameters
        ----------
        estimator : fitted `BoostMetric`, or its `metric_`, also if saved and loaded
        **plot_kwargs : passed to `plot`
        """
        origin = fitted_metric(estimator).origin or {}
        if origin.get("history") is None:
            raise ValueError(
                "The metric has no history of its fit. Pass a fitted BoostMetric or its metric_."
            )
        gap = origin.get("duality_gap")
        return cls(origin["history"], math.nan if gap is None else gap).plot(**plot_kwargs)

    def plot(self, ax: Any = None, *, title: str | None = None) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : two Axes, or one for the objective only. Default: a new figure
        title : title of a new figure, for example the name of the dataset
        """
        x = np.cumsum(self.history["n_tried"])
        if len(x) == 0:
            raise ValueError("The history is empty: the fit added no direction.")
        objective, gap, lambda_max = (
            np.array(self.history[name], dtype=np.float64)
            for name in ("objective", "duality_gap", "lambda_max")
        )
        if math.isfinite(self.final_gap):
            gap[-1] = self.final_gap
        curves = {"Objective": objective, "λ_max of the scatter matrix": lambda_max}
        if np.isfinite(gap).sum() > 1:
            # Below 1e-16 the gap is a rounding error, and may be negative.
            gap = np.maximum(gap / np.abs(objective), 1e-16)
            curves = {"Objective": objective, "Duality gap / objective": gap}

        starts = np.unique(np.asarray(self.history["pass"]), return_index=True)[1]
        for axes, (label, y) in zip(self._set_axes(ax, 2, title), curves.items(), strict=False):
            for number, rows in enumerate(np.split(np.arange(len(x)), starts[1:]), start=1):
                known = rows[np.isfinite(y[rows])]
                axes.plot(x[known], y[known], "C0.-" if len(known) <= 40 else "C0")
                if number > 1:
                    begin, place = x[rows[0] - 1 : rows[0] + 1].mean(), axes.get_xaxis_transform()
                    axes.axvline(begin, color=GRAY, linestyle=":")
                    axes.text(begin, 1, f" pass {number}", c=GRAY, va="top", transform=place)
            values = y[np.isfinite(y)]
            if values.size and 0 < 100 * values.min() < values.max():
                axes.set_yscale("log")
            axes.set(xlabel="Directions", ylabel=label)
        return self
