"""Points before and after: two dimensions of X, and two of the transformed points."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from boostmetric.evaluation.verification import Transformer
from boostmetric.metric import Metric
from boostmetric.plots.drawing import (
    COLORS,
    GREY,
    MARKERS,
    check_matplotlib,
    panels,
    plain,
    shortened,
    spread,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure
    from matplotlib.text import Text

MAX_POINTS = 2000
"""Points drawn at most, unless told otherwise."""

MAX_NAMES = 30
"""Classes whose names are written at their centres; more are told by a note."""


ROUNDING = 1e-12
"""The share of variance up to which an axis is none."""


@dataclass(frozen=True, eq=False)
class Plane:
    """Points on their first two principal axes, and the share of the variance that each has.

    Examples
    --------
    >>> plane = Plane.of(np.array([[3.0, 0.0], [0.0, 0.0], [-3.0, 0.0]]))
    >>> plane.points.shape, plane.shares.tolist()
    ((3, 2), [1.0, 0.0])
    """

    points: NDArray
    shares: NDArray

    @classmethod
    def of(cls, X: Any) -> Plane:
        """The plane in which points, dense or sparse, vary most; 0 stands in for a missing axis."""
        pca = PCA(n_components=min(2, *X.shape), random_state=0)
        with np.errstate(invalid="ignore"):  # the shares of no variance at all
            found = pca.fit_transform(X)
        points, shares = np.zeros((len(found), 2)), np.zeros(2)
        points[:, : found.shape[1]] = found
        shares[: found.shape[1]] = np.nan_to_num(pca.explained_variance_ratio_)
        return cls(points, shares)


@dataclass(eq=False, repr=False)
class ProjectionDisplay:
    """The points on their first two principal axes, as they came and as they are transformed.

    Both panels show the plane in which their points vary most (PCA). Distances among transformed
    points are those of the learned metric, so the right panel is the best flat picture of it. Both
    axes of a panel have the same scale.

    Parameters
    ----------
    before, after : the planes
    y : array of shape (n,), labels, or None

    Attributes
    ----------
    ax_, figure_ : an array of the Axes, and the figure that they are in
    points_ : list of the collections of points, class by class, those of the first Axes first
    names_ : list of the names at the centres of the classes; empty where they would not fit

    Examples
    --------
    >>> from boostmetric import BoostMetric
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = BoostMetric(max_iter=20).fit(X, y)
    >>> display = ProjectionDisplay.from_estimator(learner, X, y)
    >>> display.after.points.shape, [axes.get_title() for axes in display.ax_]
    ((178, 2), ['before: Euclidean distance', 'after: learned distance'])
    """

    before: Plane
    after: Plane
    y: NDArray | None = None
    ax_: NDArray = field(init=False)
    figure_: Figure = field(init=False)
    points_: list[PathCollection] = field(init=False)
    names_: list[Text] = field(init=False)

    @classmethod
    def from_estimator(
        cls,
        estimator: Transformer,
        X: Any,
        y: ArrayLike | None = None,
        *,
        max_points: int = MAX_POINTS,
        random_state: int | np.random.RandomState | None = 0,
        ax: Any = None,
    ) -> Self:
        """Draw what an estimator does to points.

        Parameters
        ----------
        estimator : a fitted one with `transform`; a pipeline and other packages' will do
        X : array of shape (n, D), or what else the estimator takes
        y : array of shape (n,), labels to colour by
        max_points, random_state, ax : see `plot`
        """
        check_is_fitted(estimator)
        return cls._of(estimator, X, y).plot(ax, max_points=max_points, random_state=random_state)

    @classmethod
    def from_metric(
        cls,
        metric: Metric,
        X: Any,
        y: ArrayLike | None = None,
        *,
        max_points: int = MAX_POINTS,
        random_state: int | np.random.RandomState | None = 0,
        ax: Any = None,
    ) -> Self:
        """Draw points as a metric sees them; parameters as of `from_estimator`."""
        return cls._of(metric, X, y).plot(ax, max_points=max_points, random_state=random_state)

    @classmethod
    def _of(cls, transformer: Transformer, X: Any, y: ArrayLike | None) -> Self:
        check_matplotlib()
        points = check_array(X, accept_sparse="csr", ensure_min_samples=2)
        labels = None if y is None else column_or_1d(y)
        check_consistent_length(points, labels)
        transformed = check_array(transformer.transform(X), accept_sparse="csr")
        return cls(Plane.of(points), Plane.of(transformed), labels)

    def plot(
        self,
        ax: Any = None,
        *,
        max_points: int = MAX_POINTS,
        random_state: int | np.random.RandomState | None = 0,
    ) -> Self:
        """Draw the points, with the name of each class at the median of its points.

        Parameters
        ----------
        ax : two of matplotlib's Axes, or one for the transformed points alone; None makes a new
            figure
        max_points : of more points a random part is drawn, and a note says so
        random_state : chooses the part
        """
        if max_points < 1:
            raise ValueError(f"max_points={max_points} will not do: at least 1 is needed.")
        axes = panels(ax, 2)
        self.ax_, self.figure_, self.points_, self.names_ = axes, axes[0].figure, [], []
        n = len(self.after.points)
        drawn = np.sort(check_random_state(random_state).permutation(n)[:max_points])
        texts = ("before: Euclidean distance", "after: learned distance")
        shown = list(zip((self.before, self.after), texts, strict=True))[-len(axes) :]
        for each, (plane, title) in zip(axes, shown, strict=True):
            self._draw(each, plane, drawn)
            each.set_title(title)
        # Names need the final layout, so they come after everything else.
        for each, (plane, _) in zip(axes, shown, strict=True):
            self._write_names(each, plane)
        return self

    def _draw(self, axes: Axes, plane: Plane, drawn: NDArray) -> None:
        """The points of one panel, and what its axes are."""
        points = plane.points.copy()
        names = [f"first principal axis ({plane.shares[0]:.0%} of variance)".replace("%", " %")]
        if plane.shares[1] > ROUNDING:
            names.append(f"second ({plane.shares[1]:.0%})".replace("%", " %"))
        else:
            reach = np.ptp(points[:, 0]) / 10
            points[:, 1] = np.random.default_rng(0).uniform(-reach, reach, len(points))
            names.append("at random: there is one dimension")
        for number, rows in enumerate(self._classes()):
            x, y = points[np.intersect1d(rows, drawn)].T
            self.points_.append(
                axes.scatter(
                    x,
                    y,
                    s=18 if len(drawn) <= 500 else 9,
                    c=COLORS[number % len(COLORS)],
                    marker=MARKERS[number % len(MARKERS)],
                    alpha=0.75,
                    linewidths=0,
                )
            )
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
        plain(axes)
        if len(drawn) < len(points):
            self._note(axes, f"{len(drawn):,} of {len(points):,} points drawn")

    def _classes(self) -> list[NDArray]:
        """The rows of each class, in the order of the labels."""
        if self.y is None:
            return [np.arange(len(self.after.points))]
        _, codes = np.unique(self.y, return_inverse=True)
        return np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])

    def _write_names(self, axes: Axes, plane: Plane) -> None:
        """The name of each class at its centre, unless there is no room for them."""
        if self.y is None:
            return
        classes = self._classes()
        if len(classes) <= MAX_NAMES:
            texts = [
                write(
                    axes,
                    np.median(plane.points[rows], axis=0),
                    shortened(self.y[rows[0]]),
                    COLORS[number % len(COLORS)],
                )
                for number, rows in enumerate(classes)
            ]
            if spread(axes, texts):
                self.names_ += texts
                return
            for text in texts:
                text.remove()
        self._note(axes, f"{len(classes)} classes", left=True)

    @staticmethod
    def _note(axes: Axes, text: str, left: bool = False) -> None:
        """A remark in one of the lower corners."""
        x, side = (0.01, "left") if left else (0.99, "right")
        axes.text(x, 0.01, text, transform=axes.transAxes, color=GREY, ha=side, va="bottom")
