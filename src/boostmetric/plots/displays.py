"""The displays, in the style of scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.metrics import RocCurveDisplay, roc_curve
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from boostmetric.data.labels import Labels
from boostmetric.data.pairs import check_both_kinds
from boostmetric.evaluation.verification import equal_error
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
        origin = _fitted_metric(estimator).origin or {}
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
        metric = _fitted_metric(estimator)
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
        share = 0.95  # a common choice for the number of components
        n_leading = int(np.searchsorted(sums, share * sums[-1])) + 1
        numbers = np.arange(1, rank + 1)
        left.bar(numbers, self.eigenvalues / sums[-1], label="Each")
        left.plot(numbers, sums / sums[-1], "C1.-", label="Cumulative")
        left.axhline(share, color=GRAY, linestyle=":", zorder=0)
        left.set(xlabel="Eigenvalue (largest first)", ylabel="Share of the trace", ylim=(0, 1.05))
        left.set_title(f"{n_leading} of {rank} eigenvalues make up {share:.0%} of the trace")
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
    >>> learner = BoostMetric().fit(X, y)
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
        *both, rows, n = _before_and_after(estimator, X, labels, max_points)
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


@dataclass(eq=False, repr=False)
class PairDistanceDisplay(Display):
    """Distances of similar and dissimilar pairs: histograms or ROC curves.

    Histograms are in units of the median distance, because scaling a metric changes no ranking. The
    ROC curve is that of the decision "similar if the distance is below a threshold"; at the equal
    error rate (EER), false positive rate and false negative rate are equal.

    Parameters
    ----------
    before, after : arrays of shape (m,), Euclidean and learned distances of the pairs
    similar : boolean array of shape (m,)

    Examples
    --------
    >>> from boostmetric import BoostMetric
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = BoostMetric(init="lda").fit(X[::2], y[::2])
    >>> display = PairDistanceDisplay.from_estimator(learner, X[1::2], y[1::2], kind="roc")
    >>> [text.get_text() for text in display.ax_[0].get_legend().get_texts()[:2]]
    ['Learned, EER 9% (AUC = 0.97)', 'Euclidean, EER 29% (AUC = 0.78)']
    """

    before: NDArray
    after: NDArray
    similar: NDArray

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, max_points: int = 1000, **plot_kwargs: Any
    ) -> Self:
        """Draw the distances of all pairs of points; pairs with a label in common are similar.

        Parameters
        ----------
        estimator : fitted estimator or pipeline with `transform`, or a `Metric`
        X : array-like of shape (n, D), preferably not the points that the metric was learned from
        y : array-like of shape (n,), labels, or of shape (n, L), an indicator of several labels
        max_points : size of the random sample whose pairs are drawn if there are more points
        **plot_kwargs : passed to `plot`, such as `kind`
        """
        labels = Labels.of(y)
        *both, rows, _ = _before_and_after(estimator, X, labels.codes, max_points)
        pairs = np.triu_indices(len(rows), 1)
        similar = labels.are_similar(labels.codes[rows], labels.codes[rows])[pairs]
        check_both_kinds(similar)
        before, after = (euclidean_distances(points)[pairs] for points in both)
        return cls(before, after, similar).plot(**plot_kwargs)

    def plot(self, ax: Any = None, *, kind: str = "histogram", title: str | None = None) -> Self:
        """Draw histograms or ROC curves.

        Parameters
        ----------
        ax : for histograms, two Axes, or one for the learned distance only; for ROC curves, one.
            Default: a new figure
        kind : "histogram" or "roc"
        title : title of a new figure, for example the name of the dataset
        """
        if kind not in ("histogram", "roc"):
            raise ValueError(
                f"The 'kind' parameter must be 'histogram' or 'roc'. Got {kind!r} instead."
            )
        panels = self._set_axes(ax, 2 if kind == "histogram" else 1, title)
        if kind == "roc":
            for name, distances in (("Learned", self.after), ("Euclidean", self.before)):
                eer = equal_error(*roc_curve(self.similar, -distances)[:2])
                curve = RocCurveDisplay.from_predictions(
                    self.similar,
                    -distances,
                    name=f"{name}, EER {eer:.0%}",
                    ax=panels[0],
                    plot_chance_level=name == "Euclidean",
                )
            curve.ax_.set(xlabel="False positive rate", ylabel="True positive rate")
            return self

        scaled = [each / (np.median(each) or 1.0) for each in (self.before, self.after)]
        # A few distant outliers would squeeze all others.
        edges = np.linspace(0, max(np.quantile(each, 0.995) for each in scaled), 41)
        contents = list(zip(HEADINGS, scaled, strict=True))[-len(panels) :]
        for axes, (heading, distances) in zip(panels, contents, strict=True):
            for label, rows in (("Similar", self.similar), ("Dissimilar", ~self.similar)):
                axes.hist(distances[rows], edges, density=True, alpha=0.5, label=label)
            axes.set(title=heading, xlabel="Distance / median", ylabel="Density")
            axes.margins(x=0)
            axes.legend(title="Pairs")
        return self


@dataclass(eq=False, repr=False)
class CandidatesDisplay(Display):
    """Held-out errors of the candidates of a search, next to Euclidean distance.

    Each candidate is drawn with its standard error over the folds, if it was evaluated on several,
    the best at the top. Dashed
    lines are the errors of raw and of standardized Euclidean distance, if the search has them.

    Parameters
    ----------
    results : scores of all candidates, as in `BoostMetricCV.cv_results_`

    Examples
    --------
    >>> from boostmetric import BoostMetricCV
    >>> from sklearn.datasets import load_iris
    >>> search = BoostMetricCV(random_state=0).fit(*load_iris(return_X_y=True))
    >>> display = CandidatesDisplay.from_estimator(search, title="iris")
    >>> [text.get_text() for text in display.ax_[0].get_legend().get_texts()]
    ['Raw Euclidean', 'Standardized Euclidean']
    """

    results: Mapping[str, Any]

    @classmethod
    def from_estimator(cls, estimator: Any, **plot_kwargs: Any) -> Self:
        """Draw the candidates of a search.

        Parameters
        ----------
        estimator : fitted `BoostMetricCV`
        **plot_kwargs : passed to `plot`
        """
        check_is_fitted(estimator, "cv_results_")
        return cls(estimator.cv_results_).plot(**plot_kwargs)

    def plot(self, ax: Any = None, *, title: str | None = None) -> Self:
        """Draw the errors.

        Parameters
        ----------
        ax : one Axes. Default: a new figure
        title : title of a new figure, for example the name of the dataset
        """
        params, means = self.results["params"], self.results["mean_test_score"]
        known = np.flatnonzero(np.isfinite(means))
        if len(known) == 0:
            raise ValueError("The search has no scores: nothing could be held out.")
        (axes,) = self._set_axes(ax, 1, title)
        # 1) candidates
        folds = [values for name, values in self.results.items() if name.startswith("split")]
        # Candidates that were evaluated on a single fold have no standard error.
        n_more = np.isfinite(folds).sum(axis=0) - 1
        spread = self.results["std_test_score"] / np.sqrt(np.where(n_more > 0, n_more, np.nan))
        order = known[np.argsort(-means[known], kind="stable")]
        names = [", ".join(f"{k}={v}" for k, v in params[i].items())[:60] for i in order]
        places = np.arange(len(order))
        axes.errorbar(100 * (1 - means[order]), places, xerr=100 * spread[order], fmt="o")
        axes.set_yticks(places, names, parse_math=False)
        axes.invert_yaxis()
        axes.set_xlabel("Error on held-out data in %, with standard error")
        # 2) Euclidean distances: starting metrics without learning
        for init, name, color in ((None, "Raw", "C1"), ("scale", "Standardized", "C2")):
            for i in known:
                start = params[i].get("init", "auto")
                is_same = start is init or (isinstance(start, str) and start == init)
                if params[i].get("shrinkage", 0) == 1 and is_same:
                    error = 100 * (1 - means[i])
                    axes.axvline(error, color=color, linestyle="--", label=f"{name} Euclidean")
                    break
        if axes.get_legend_handles_labels()[1]:
            axes.legend()
        return self


def _fitted_metric(estimator: Any) -> Metric:
    if isinstance(estimator, BaseEstimator):
        check_is_fitted(estimator)
    metric = getattr(estimator, "metric_", estimator)
    if not isinstance(metric, Metric):
        raise ValueError(
            f"{type(estimator).__name__} has no metric_. Pass a fitted BoostMetric, BoostMetricCV "
            "or a Metric."
        )
    return metric


def _before_and_after(
    estimator: Any, X: Any, y: NDArray | None, max_points: int
) -> tuple[Any, Any, NDArray, int]:
    """A sample of points, the same points transformed, their rows, and the number of all points."""
    if isinstance(estimator, BaseEstimator):
        check_is_fitted(estimator)
    check_consistent_length(X, y)
    points = check_array(X, accept_sparse="csr", ensure_min_samples=2)
    images = check_array(estimator.transform(X), accept_sparse="csr")
    rows = np.random.default_rng(0).permutation(points.shape[0])[:max_points]
    return points[rows], images[rows], rows, points.shape[0]
