"""Distances of similar and dissimilar pairs, before and after a transformation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import RocCurveDisplay, roc_curve
from sklearn.metrics.pairwise import euclidean_distances

from boostmetric.data.labels import Labels
from boostmetric.evaluation.verification import equal_error
from boostmetric.plots.base import HEADINGS, Display, before_and_after


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
        *both, rows, _ = before_and_after(estimator, X, labels.codes, max_points)
        pairs = np.triu_indices(len(rows), 1)
        similar = labels.are_similar(labels.codes[rows], labels.codes[rows])[pairs]
        if similar.all() or not similar.any():
            raise ValueError(
                f"Both similar and dissimilar pairs are required; all {len(similar)} pairs of "
                f"{len(rows)} points are {'similar' if similar.all() else 'dissimilar'}."
            )
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
