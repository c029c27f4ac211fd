"""Pairs of points that are alike and pairs that are not: how well a distance parts them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from boostmetric.data.labels import Labels
from boostmetric.data.pairs import are_same, check_both_kinds, pair_distances, split_pairs
from boostmetric.evaluation.verification import Transformer, equal_error
from boostmetric.metric import Metric
from boostmetric.plots.drawing import (
    AFTER,
    BEFORE,
    COLORS,
    GREY,
    check_matplotlib,
    panels,
    plain,
    spread,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import StepPatch

N_PAIRS = 20_000
"""Pairs that are looked at, unless told otherwise."""

N_BINS = 40
"""Of a histogram."""

SAME, DIFFERENT = COLORS[0], COLORS[1]


def labelled_pairs(
    y: Any, n_pairs: int, random_state: int | np.random.RandomState | None = None
) -> tuple[NDArray, NDArray]:
    """Pairs of points, and whether the two of each have a label in common.

    All pairs where there are no more than `n_pairs`. Else a random part, with replacement: half of
    the number from all pairs of the same class and half from all others; where points may have
    several labels, from all pairs.

    Examples
    --------
    >>> pairs, same = labelled_pairs(list("aab"), n_pairs=10)
    >>> pairs.tolist(), same.tolist()
    ([[0, 1], [0, 2], [1, 2]], [True, False, False])
    """
    labels = Labels.of(y)
    n = len(labels)
    rng = check_random_state(random_state)
    if n * (n - 1) // 2 <= n_pairs:
        pairs = np.column_stack(np.triu_indices(n, 1))
    elif labels.classes is None:
        first, steps = rng.randint(n, size=n_pairs), rng.randint(n - 1, size=n_pairs)
        pairs = np.column_stack([first, (first + 1 + steps) % n])
    else:
        pairs = _pairs_of_classes(labels.codes, n_pairs // 2, rng)
    one, two = (labels.sets[labels.codes[ends]] for ends in pairs.T)
    return pairs, np.asarray(one.multiply(two).sum(axis=1)).ravel() > 0


def _pairs_of_classes(codes: NDArray, size: int, rng: np.random.RandomState) -> NDArray:
    """As many random pairs of one class, and as many of two, where there are such."""
    n, order = len(codes), np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    own = counts[codes[order]]  # for each place in the order, the size of its class
    begin = (np.cumsum(counts) - counts)[codes[order]]  # and where that begins

    def drawn(partners: NDArray) -> NDArray:
        """Places, the more partners the more often, and for each a number below theirs."""
        if not partners.any():
            return np.empty((0, 2), dtype=np.intp)
        places = rng.choice(n, size=size, p=partners / partners.sum())
        return np.column_stack([places, rng.randint(0, partners[places])])

    # So many further round: in the class from its own place, among all from the end of the class.
    first, steps = drawn(own - 1).T
    second = begin[first] + (first - begin[first] + 1 + steps) % own[first]
    one, steps = drawn(n - own).T
    two = (begin[one] + own[one] + steps) % n
    pairs: NDArray = order[np.column_stack([np.append(first, one), np.append(second, two)])]
    return pairs


@dataclass(eq=False, repr=False)
class PairDisplay(ABC):
    """Distances of pairs of the same kind and of different kinds, before and after.

    Parameters
    ----------
    before, after : arrays of shape (m,), Euclidean and learned distances of the pairs
    same : array of shape (m,), whether the two of a pair are of the same kind
    """

    before: NDArray
    after: NDArray
    same: NDArray

    @classmethod
    def from_estimator(
        cls,
        estimator: Transformer,
        X: Any,
        y: Any,
        *,
        pairs: ArrayLike | None = None,
        n_pairs: int = N_PAIRS,
        random_state: int | np.random.RandomState | None = 0,
        ax: Any = None,
    ) -> Self:
        """Draw what an estimator does to distances.

        Parameters
        ----------
        estimator : a fitted one with `transform`; a pipeline and other packages' will do
        X : array of shape (n, D), or what else the estimator takes
        y : array of shape (n,), labels, or of shape (n, L), several for a point, of which a pair
            of the same kind has one in common; or with `pairs` of shape (m,), +1 for those that
            are of the same kind and −1 for the others
        pairs : array of shape (m, 2) of row numbers of X, or None for pairs made from labels
        n_pairs : of labels, the number of pairs at most, half of them of the same label
        random_state : chooses them
        ax : see `plot`
        """
        check_is_fitted(estimator)
        return cls._of(estimator, X, y, pairs, n_pairs, random_state).plot(ax)

    @classmethod
    def from_metric(
        cls,
        metric: Metric,
        X: Any,
        y: Any,
        *,
        pairs: ArrayLike | None = None,
        n_pairs: int = N_PAIRS,
        random_state: int | np.random.RandomState | None = 0,
        ax: Any = None,
    ) -> Self:
        """Draw the distances of a metric; parameters as of `from_estimator`."""
        return cls._of(metric, X, y, pairs, n_pairs, random_state).plot(ax)

    @classmethod
    def _of(
        cls,
        transformer: Transformer,
        X: Any,
        y: Any,
        pairs: ArrayLike | None,
        n_pairs: int,
        random_state: int | np.random.RandomState | None,
    ) -> Self:
        check_matplotlib()
        points = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
        if pairs is None:
            check_consistent_length(points, y)
            rows, same = labelled_pairs(y, n_pairs, random_state)
        else:
            rows, _ = split_pairs(pairs, points)
            same = are_same(y, len(rows))
        check_both_kinds(same)
        transformed = check_array(transformer.transform(X), accept_sparse="csr")
        return cls(pair_distances(points, rows), pair_distances(transformed, rows), same)

    @abstractmethod
    def plot(self, ax: Any = None) -> Self:
        """Draw the distances."""

    @property
    def areas(self) -> tuple[float, float]:
        """The area under the ROC curve before and after.

        It is the share of all couples of a pair of the same kind and one of different kinds in
        which the former is nearer, ties counted half.
        """
        before, after = (float(roc_auc_score(self.same, -each)) for each in self._both)
        return before, after

    @property
    def _both(self) -> tuple[NDArray, NDArray]:
        return self.before, self.after


@dataclass(eq=False, repr=False)
class PairDistanceDisplay(PairDisplay):
    """Histograms of the distances of pairs of the same kind and of different kinds.

    Each distance is in units of its own median over all pairs, which a metric could be scaled by
    without a change to any ranking. AUC is the area under the ROC curve: 1 where every pair of the
    same kind is nearer than every other, ½ where the distance says nothing.

    Parameters
    ----------
    before, after : arrays of shape (m,), Euclidean and learned distances of the pairs
    same : array of shape (m,), whether the two of a pair are of the same kind

    Attributes
    ----------
    ax_, figure_ : an array of the Axes, and the figure that they are in
    histograms_ : list of the histograms, same and different, those of the first Axes first

    Examples
    --------
    >>> from boostmetric import BoostMetric
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = BoostMetric(init="lda").fit(X[::2], y[::2])
    >>> before, after = PairDistanceDisplay.from_estimator(learner, X[1::2], y[1::2]).areas
    >>> print(f"{before:.2f}, {after:.2f}")
    0.78, 0.97
    """

    ax_: NDArray = field(init=False)
    figure_: Figure = field(init=False)
    histograms_: list[StepPatch] = field(init=False)

    def plot(self, ax: Any = None) -> Self:
        """Draw the histograms.

        Parameters
        ----------
        ax : two of matplotlib's Axes, or one for the learned distance alone; None makes a new
            figure
        """
        axes = panels(ax, 2)
        self.ax_, self.figure_, self.histograms_ = axes, axes[0].figure, []
        scaled = [each / (np.median(each) or 1.0) for each in self._both]
        # The few that are farthest would leave little room for the others.
        edges = np.linspace(0, max(np.quantile(each, 0.995) for each in scaled), N_BINS + 1)
        titles = ("before: Euclidean distance", "after: learned distance")
        shown = list(zip(scaled, titles, self.areas, strict=True))[-len(axes) :]
        for each, (distances, title, area) in zip(axes, shown, strict=True):
            self._draw(each, distances, edges)
            each.set_title(f"{title}, AUC {area:.3f}")
        return self

    def _draw(self, axes: Axes, distances: NDArray, edges: NDArray) -> None:
        peaks = []
        for kind, color, line in ((self.same, SAME, "-"), (~self.same, DIFFERENT, "--")):
            counts, _ = np.histogram(distances[kind], edges)
            heights = counts / (kind.sum() * np.diff(edges))
            self.histograms_.append(
                axes.stairs(
                    heights,
                    edges,
                    fill=True,
                    facecolor=f"{color}40",
                    edgecolor=color,
                    linestyle=line,
                    linewidth=1.5,
                )
            )
            top = int(heights.argmax())
            peaks.append([(edges[top] + edges[top + 1]) / 2, heights[top]])
        axes.set_xlabel("distance, in units of its median")
        axes.set_ylabel("density")
        highest = max(height for _, height in peaks)
        axes.set(xlim=(0, edges[-1]), ylim=(0, 1.15 * highest))
        plain(axes)
        same, different = np.array(peaks) + np.array([0, 0.07 * highest])
        names = [write(axes, same, "same", SAME), write(axes, different, "different", DIFFERENT)]
        spread(axes, names)


@dataclass(eq=False, repr=False)
class PairRocDisplay(PairDisplay):
    """The ROC curve of "same kind or not" by distance, Euclidean and learned.

    Of all thresholds on the distance: the share of pairs of different kinds below it, and that of
    pairs of the same kind. At the equal-error rate, which is marked, as large a share of the former
    is accepted as of the latter is refused.

    Parameters
    ----------
    before, after : arrays of shape (m,), Euclidean and learned distances of the pairs
    same : array of shape (m,), whether the two of a pair are of the same kind

    Attributes
    ----------
    ax_, figure_ : the Axes, and the figure that they are in
    lines_ : the curves, before and after

    Examples
    --------
    >>> from boostmetric import BoostMetric
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = BoostMetric(init="lda").fit(X[::2], y[::2])
    >>> before, after = PairRocDisplay.from_estimator(learner, X[1::2], y[1::2]).equal_errors
    >>> print(f"{before:.2f}, {after:.2f}")
    0.29, 0.09
    """

    ax_: Axes = field(init=False)
    figure_: Figure = field(init=False)
    lines_: list[Line2D] = field(init=False)

    @property
    def equal_errors(self) -> tuple[float, float]:
        """The equal-error rate before and after, between thresholds by interpolation."""
        before, after = (equal_error(*self._curve(each)) for each in self._both)
        return before, after

    def _curve(self, distances: NDArray) -> tuple[NDArray, NDArray]:
        accepted, found, _ = roc_curve(self.same, -distances)
        return accepted, found

    def plot(self, ax: Any = None) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : one of matplotlib's Axes; None makes a new figure
        """
        (axes,) = panels(ax, 1)
        self.ax_, self.figure_, self.lines_ = axes, axes.figure, []
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
        # The larger area has the upper text, so that the leaders do not cross.
        upper = int(np.argmax(self.areas))
        for number, (distances, name, color, line) in enumerate(
            zip(self._both, ("Euclidean", "learned"), (BEFORE, AFTER), ("--", "-"), strict=True)
        ):
            self.lines_ += axes.plot(*self._curve(distances), color=color, linestyle=line)
            area, error = self.areas[number], self.equal_errors[number]
            axes.plot(error, 1 - error, marker="o", color=color)
            axes.annotate(
                f"{name}: AUC {area:.3f},\nequal errors {100 * error:.1f} %",
                (error, 1 - error),
                xytext=(0.98, 0.42 if number == upper else 0.14),
                color=color,
                ha="right",
                va="center",
                arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.7, "shrinkB": 4},
            )
        axes.set_aspect("equal")
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        axes.set_xlabel("different pairs taken for the same")
        axes.set_ylabel("same pairs found")
        plain(axes)
        return self
