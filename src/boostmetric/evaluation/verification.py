"""Pair verification: two points are the same if their distance is below a threshold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_curve
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from boostmetric.data.pairs import are_same, check_both_kinds, split_pairs
from boostmetric.data.points import Points
from boostmetric.metric import pair_distances

STRATEGIES = ("accuracy", "f_beta", "max_tpr", "max_tnr")
"""Quantities that a threshold can maximize."""


class RocCurve(NamedTuple):
    """A receiver operating characteristic, from a threshold that accepts no pair to one for all.

    Attributes
    ----------
    fpr : false positive rate, the share of different pairs that are predicted as the same
    tpr : true positive rate, the share of same pairs that are predicted as the same
    thresholds : values of `threshold_`; the first is infinite
    """

    fpr: NDArray
    tpr: NDArray
    thresholds: NDArray


class PairClassifier(ABC):
    """Base of classes that predict "same" (+1) or "different" (−1) by a threshold on a score.

    They classify pairs, not points, and have no `fit`, so they are not scikit-learn estimators.

    Pairs are an array of shape (m, 2) of row numbers of X, or, without X, of shape (m, 2, D): the
    points themselves.
    """

    metric: Any
    threshold_: float
    _sign: ClassVar[int] = 1  # −1 if `threshold_` is a distance, the negative of a score

    @abstractmethod
    def pair_score(self, pairs: ArrayLike, X: Any = None) -> NDArray:
        """The similarity of each pair, of shape (m,); the higher, the more similar."""

    def decision_function(self, pairs: ArrayLike, X: Any = None) -> NDArray:
        """The score minus the threshold, of shape (m,); negative for "different"."""
        if not hasattr(self, "threshold_"):
            raise NotFittedError(
                f"This {type(self).__name__} has no threshold yet. Call calibrate_threshold with "
                "labeled pairs, or set_threshold."
            )
        return self.pair_score(pairs, X) - self._sign * self.threshold_

    def predict(self, pairs: ArrayLike, X: Any = None) -> NDArray:
        """+1 (same) if `decision_function` is at least 0, otherwise −1; of shape (m,)."""
        return np.where(self.decision_function(pairs, X) >= 0, 1, -1)

    def set_threshold(self, threshold: float) -> Self:
        """Set `threshold_`."""
        if not np.isfinite(threshold):
            raise ValueError(f"threshold must be finite, got {threshold}.")
        self.threshold_ = float(threshold)
        return self

    def calibrate_threshold(
        self,
        pairs: ArrayLike,
        y: ArrayLike,
        X: Any = None,
        *,
        strategy: str = "accuracy",
        min_rate: float | None = None,
        beta: float = 1.0,
    ) -> Self:
        """Set `threshold_` to the best value for labeled pairs.

        Candidates are the midpoints between consecutive scores, and values that accept no pair or
        all pairs. Use pairs that the metric was not learned from.

        Parameters
        ----------
        pairs, X : the pairs
        y : array of shape (m,), +1 for same and −1 for different
        strategy : what to maximize: "accuracy"; "f_beta", the F_β score of "same"; "max_tpr", the
            true positive rate, subject to a true negative rate of at least `min_rate`; "max_tnr",
            the true negative rate, subject to a true positive rate of at least `min_rate`. Among
            equally good thresholds, "max_tnr" takes the one that accepts the most pairs, the other
            strategies the one that accepts the fewest
        min_rate : between 0 and 1, for "max_tpr" and "max_tnr" only
        beta : weight of recall relative to precision, for "f_beta"
        """
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {STRATEGIES}, got {strategy!r}.")
        if strategy in ("max_tpr", "max_tnr"):
            if min_rate is None or not 0 <= min_rate <= 1:
                raise ValueError(
                    f"strategy={strategy!r} requires min_rate between 0 and 1, got {min_rate}."
                )
        elif min_rate is not None:
            raise ValueError(
                f"min_rate={min_rate} has no effect with strategy={strategy!r}. Leave it out, or "
                "use 'max_tpr' or 'max_tnr'."
            )
        if not 0 < beta < np.inf:
            raise ValueError(f"beta must be positive, got {beta}.")
        same, scores = self._scored(pairs, y, X)
        self.threshold_ = self._sign * best_cut(scores, same, strategy, min_rate, beta)
        return self

    def roc(self, pairs: ArrayLike, y: ArrayLike, X: Any = None) -> RocCurve:
        """The ROC curve; parameters as in `calibrate_threshold`."""
        same, scores = self._scored(pairs, y, X)
        fpr, tpr, thresholds = roc_curve(same, scores)
        return RocCurve(fpr, tpr, self._sign * thresholds)

    def equal_error_rate(self, pairs: ArrayLike, y: ArrayLike, X: Any = None) -> float:
        """The error at the threshold with equal false positive and false negative rates (EER).

        Interpolated between thresholds; parameters as in `calibrate_threshold`.
        """
        curve = self.roc(pairs, y, X)
        return equal_error(curve.fpr, curve.tpr)

    def _scored(self, pairs: ArrayLike, y: ArrayLike, X: Any) -> tuple[NDArray, NDArray]:
        """Which pairs are the same, and their scores."""
        same = are_same(y, len(np.asarray(pairs)))
        check_both_kinds(same)
        scores = self.pair_score(pairs, X)
        if not np.isfinite(scores).all():
            raise ValueError("Some distances overflow. Scale X.")
        return same, scores

    def _images(self, X: Any) -> Points:
        """The points whose Euclidean distance is `metric`."""
        if self.metric is not None:
            if not hasattr(self.metric, "transform"):
                raise TypeError(
                    "metric must be a Metric, a fitted estimator or pipeline with transform, or "
                    f"None for the Euclidean distance; got {self.metric!r:.80}."
                )
            if isinstance(self.metric, BaseEstimator):
                check_is_fitted(self.metric)
            X = self.metric.transform(X)
        points: Points = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
        return points


class PairVerifier(PairClassifier):
    """Predict "same" if the distance of a pair is at most `threshold_`.

    Parameters
    ----------
    metric : a `Metric`, any fitted estimator or pipeline with `transform`, or None for the
        Euclidean distance

    Attributes
    ----------
    threshold_ : a distance, not squared; set by `calibrate_threshold` or `set_threshold`

    Examples
    --------
    >>> pairs = [[[0.0], [1.0]], [[5.0], [7.0]], [[1.0], [5.0]]]
    >>> verifier = PairVerifier().calibrate_threshold(pairs, [1, 1, -1])
    >>> verifier.threshold_
    3.0
    >>> verifier.decision_function(pairs), verifier.predict(pairs)
    (array([ 2.,  1., -1.]), array([ 1,  1, -1]))
    >>> verifier.equal_error_rate(pairs, [1, -1, 1]), verifier.roc(pairs, [1, 1, -1]).thresholds
    (0.5, array([-inf,  1.,  2.,  4.]))
    """

    _sign = -1

    def __init__(self, metric: Any = None) -> None:
        self.metric = metric

    def __repr__(self) -> str:
        return f"{type(self).__name__}(metric={self.metric!r})"

    def pair_distance(self, pairs: ArrayLike, X: Any = None) -> NDArray:
        """Distances within pairs, not squared, of shape (m,) and in double precision."""
        rows, X = split_pairs(pairs, X)
        # In single precision a threshold would be rounded before it is compared.
        return pair_distances(self._images(X), rows).astype(np.float64)

    def pair_score(self, pairs: ArrayLike, X: Any = None) -> NDArray:
        """The negative of `pair_distance`: the higher, the more similar."""
        return -self.pair_distance(pairs, X)


def best_cut(
    scores: NDArray,
    same: NDArray,
    strategy: str = "accuracy",
    min_rate: float | None = None,
    beta: float = 1.0,
) -> float:
    """The lowest score that is predicted as "same"; see `calibrate_threshold`.

    It is a midpoint between two consecutive scores, a number just above the highest if no pair is
    accepted, or the lowest if all are.

    >>> best_cut(np.array([0.1, 0.5, 0.5, 0.9]), np.array([False, False, True, True]))
    0.7
    """
    levels, places = np.unique(-scores, return_inverse=True)
    levels = -levels  # decreasing
    # 1) same and different pairs that are accepted with the 0, 1, 2, … highest levels
    tp, fp = (
        np.append(0, np.cumsum(np.bincount(places[kind], minlength=len(levels))))
        for kind in (same, ~same)
    )
    tpr, tnr = tp / tp[-1], (fp[-1] - fp) / fp[-1]

    # 2) the best number of levels
    if strategy == "accuracy":
        values = tp - fp
    elif strategy == "f_beta":
        # Beyond these limits the score is precision or recall, up to rounding; squares of others
        # might overflow or underflow.
        square = min(max(beta, 1e-50), 1e50) ** 2
        values = tp / (square * tp[-1] + tp + fp)
    elif strategy == "max_tpr":
        values = np.where(tnr >= min_rate, tpr, -1)
    else:
        values = np.where(tpr >= min_rate, tnr, -1)
    best = np.flatnonzero(values == values.max())
    n_accepted = int(best[-1] if strategy == "max_tnr" else best[0])

    # 3) a threshold between the lowest accepted level and the next one
    if n_accepted == 0:
        return float(np.nextafter(levels[0], np.inf))
    lowest = float(levels[n_accepted - 1])
    if n_accepted == len(levels):
        return lowest
    rejected = float(levels[n_accepted])
    middle = rejected + (lowest - rejected) / 2
    return middle if middle > rejected else lowest  # consecutive floats have no midpoint


def equal_error(fpr: NDArray, tpr: NDArray) -> float:
    """The false positive rate at which it equals the false negative rate, 1 − tpr.

    >>> equal_error(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.5, 1.0])).__round__(3)
    0.333
    """
    return float(np.interp(0.0, fpr + tpr - 1, fpr))
