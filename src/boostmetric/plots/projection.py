"""Points before and after a transformation, on their first two principal axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.utils import column_or_1d

from boostmetric.plots.base import GRAY, HEADINGS, Display, before_and_after


@dataclass(eq=False, repr=False)
class ProjectionDisplay(Display):
    """Points on their first two principal axes (PCA), before and after a transformation.

    Distances between transformed points are distances of the learned metric, so the right panel is
    the best flat picture of that metric.

    Parameters
    ----------
    before, after : arrays of shape (n, 2), coordinates on the principal axes
    variances : array of shape (2, 2), share of the variance on each axis, before and after
    y : array of shape (n,), labels, or None
    note : text in the corner of the last panel

    Examples
    --------
    >>> from boostmetric import BoostMetric
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = BoostMetric(max_iter=20).fit(X, y)
    >>> display = ProjectionDisplay.from_estimator(learner, X, y, title="wine")
    >>> display.after.shape, [axes.get_title() for axes in display.ax_]
    ((178, 2), ['Before: Euclidean distance', 'After: learned distance'])
    """

    before: NDArray
    after: NDArray
    variances: NDArray
    y: NDArray | None = None
    note: str = ""

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, *, max_points: int = 2000, **plot_kwargs: Any
    ) -> Self:
        """Draw points before and after a transformation.

        Parameters
        ----------
        estimator : fitted estimator or pipeline with `transform`, or a `Metric`
        X : array-like of shape (n, D)
        y : array-like of shape (n,), labels that determine the colors
        max_points : size of the random sample that is drawn if there are more points
        **plot_kwargs : passed to `plot`
        """
        labels = None if y is None else column_or_1d(y)
        *both, rows, n = before_and_after(estimator, X, labels, max_points)
        coordinates, variances = np.zeros((2, len(rows), 2)), np.zeros((2, 2))
        for points, plane, shares in zip(both, coordinates, variances, strict=True):
            pca = PCA(min(2, *points.shape), random_state=0)
            with np.errstate(invalid="ignore"):  # the variance of identical points
                plane[:, : pca.n_components] = pca.fit_transform(points)
            shares[: pca.n_components] = np.nan_to_num(pca.explained_variance_ratio_)
        labels = None if labels is None else labels[rows]
        note = f"{len(rows):,} of {n:,} points" if len(rows) < n else ""
        return cls(coordinates[0], coordinates[1], variances, labels, note).plot(**plot_kwargs)

    def plot(self, ax: Any = None, *, title: str | None = None) -> Self:
        """Draw the points, colored by class.

        Parameters
        ----------
        ax : two Axes, or one for the transformed points only. Default: a new figure
        title : title of a new figure, for example the name of the dataset
        """
        panels = self._set_axes(ax, 2, title)
        from matplotlib import colormaps

        # tab20 has pairs of a dark and a light color: the ten dark ones first.
        colors = colormaps["tab20"](np.r_[0:20:2, 1:20:2])
        n = len(self.after)
        classes, codes = np.unique(np.zeros(n) if self.y is None else self.y, return_inverse=True)
        contents = list(zip(HEADINGS, (self.before, self.after), self.variances, strict=True))
        for axes, (heading, points, shares) in zip(panels, contents[-len(panels) :], strict=True):
            axes.scatter(*points.T, s=18 if n <= 500 else 9, c=colors[codes % 20], linewidths=0)
            labels = [f"Principal axis {i + 1} ({shares[i]:.0%} of variance)" for i in range(2)]
            axes.set(title=heading, xlabel=labels[0], ylabel=labels[1])
        note = [self.note] if self.note else []
        if len(classes) > 20:
            note.append(f"{len(classes)} classes, colors repeat")
        elif len(classes) > 1:
            dots = [axes.scatter([], [], color=color) for color in colors[: len(classes)]]
            names = [f"{label!s:.30}" for label in classes]
            columns = 1 if len(classes) <= 10 else 2
            place = {"loc": "upper left", "bbox_to_anchor": (1, 1), "ncols": columns}
            for text in axes.legend(dots, names, title="Class", **place).get_texts():
                text.set_parse_math(False)  # a dollar sign in a name does not start a formula
        axes.text(1, 1, "; ".join(note), transform=axes.transAxes, color=GRAY, ha="right", va="top")
        return self
