"""Verification: whether the two of a pair are the same, by a threshold on how far they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_curve
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from boostmetric.data.pairs import are_same, check_both_kinds, pair_distances, split_pairs
from boostmetric.data.points import Points

STRATEGIES = ("accuracy", "f_beta", "max_tpr", "max_tnr")
"""What a threshold can be chosen for."""


class Transformer(Protocol):
    """A metric, or an estimator: what maps points."""

    def transform(self, X: Any) -> Any:
        """The points, mapped."""


class RocCurve(NamedTuple):
    """What thresholds do, from one that accepts no pair to one that accepts all.

    Attributes
    ----------
    accepted : the share of the different pairs that are taken for the same
    found : the share of the same pairs that are
    thresholds : values of `threshold_`; the first is infinite
    """

    accepted: NDArray
    found: NDArray
    thresholds: NDArray


class PairClassifier(BaseEstimator, ABC):
    """Base of what says "same" (+1) or "different" (−1) of pairs, by a threshold on a score.

    Pairs are an array of shape (m, 2) of row numbers of X, or, without X, of shape (m, 2, D): the
    points themselves.
    """

    metric: Transformer | None
    threshold_: float
    _sign: ClassVar[int] = 1  # −1 where `threshold_` is a distance, the negative of a score

    @abstractmethod
    def pair_score(self, pairs: ArrayLike, X: Any = None) -> NDArray:
        """How alike the two of each pair are, of shape (m,)."""

    def decision_function(self, pairs: ArrayLike, X: Any = None) -> NDArray:
        """By how much a pair is on the side of "same", of shape (m,); negative for "different"."""
        if not hasattr(self, "threshold_"):
            raise NotFittedError(
                f"this {type(self).__name__} has no threshold yet: call calibrate_threshold with "
                "pairs whose kind is known, or set_threshold."
            )
        return self.pair_score(pairs, X) - self._sign * self.threshold_

    def predict(self, pairs: ArrayLike, X: Any = None) -> NDArray:
        """+1 (same) where `decision_function` is 0 or more and −1 elsewhere, of shape (m,)."""
        return np.where(self.decision_function(pairs, X) >= 0, 1, -1)

    def set_threshold(self, threshold: float) -> Self:
        """Take this number for `threshold_`."""
        if not np.isfinite(threshold):
            raise ValueError(f"threshold={threshold} will not do: a finite number is needed.")
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
        """Set `threshold_` to the best there is for pairs whose kind is known.

        All cuts between two neighbouring values are tried, and those that accept no pair or all;
        the threshold is half-way between the two. Give pairs that the metric was not learned from.

        Parameters
        ----------
        pairs, X : the pairs
        y : array of shape (m,), +1 for those that are the same and −1 for the others
        strategy : what is to be highest. "accuracy", the share of pairs that are told rightly;
            "f_beta", the F_β measure of "same"; "max_tpr", the share of same pairs found, where at
            least `min_rate` of the different ones are refused; or "max_tnr", the share of different
            pairs refused, where at least `min_rate` of the same ones are found. Of several cuts
            that are equally good, "max_tnr" takes that which accepts the most pairs, the others
            that which accepts the fewest
        min_rate : from 0 to 1, for "max_tpr" and "max_tnr" only
        beta : how much more finding counts than accepting rightly, for "f_beta"
        """
        _check_strategy(strategy, min_rate, beta)
        same, scores = self._scored(pairs, y, X)
        self.threshold_ = self._sign * best_cut(scores, same, strategy, min_rate, beta)
        return self

    def roc(self, pairs: ArrayLike, y: ArrayLike, X: Any = None) -> RocCurve:
        """The curve of all thresholds; parameters as of `calibrate_threshold`."""
        same, scores = self._scored(pairs, y, X)
        accepted, found, cuts = roc_curve(same, scores)
        return RocCurve(accepted, found, self._sign * cuts)

    def equal_error_rate(self, pairs: ArrayLike, y: ArrayLike, X: Any = None) -> float:
        """The share of errors where it is as large of same as of different pairs.

        Between thresholds by interpolation; parameters as of `calibrate_threshold`.
        """
        curve = self.roc(pairs, y, X)
        return equal_error(curve.accepted, curve.found)

    def _scored(self, pairs: ArrayLike, y: ArrayLike, X: Any) -> tuple[NDArray, NDArray]:
        """Which pairs are the same, and their scores."""
        same = are_same(y, len(np.asarray(pairs)))
        check_both_kinds(same)
        scores = self.pair_score(pairs, X)
        if not np.isfinite(scores).all():
            raise ValueError("the distances of some pairs are beyond all numbers: scale X.")
        return same, scores

    def _images(self, X: Any) -> Points:
        """The points whose Euclidean distance is `metric`."""
        if self.metric is not None:
            if not hasattr(self.metric, "transform"):
                raise TypeError(
                    f"metric={self.metric!r:.80} has no transform. Give a Metric, a fitted "
                    "estimator or pipeline, or None for the Euclidean distance."
                )
            if isinstance(self.metric, BaseEstimator):
                check_is_fitted(self.metric)
            X = self.metric.transform(X)
        points: Points = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
        return points


class PairVerifier(PairClassifier):
    """Pairs are the same where their distance is `threshold_` or less.

    Parameters
    ----------
    metric : a `Metric`, any fitted estimator or pipeline with `transform`, or None for the
        Euclidean distance

    Attributes
    ----------
    threshold_ : a distance, not squared; after `calibrate_threshold` or `set_threshold`

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

    def __init__(self, metric: Transformer | None = None) -> None:
        self.metric = metric

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
    """The score from which on pairs are taken for the same; see `calibrate_threshold`.

    Half-way between two scores that occur; just above the highest where no pair is to be accepted,
    and the lowest where all are.

    >>> best_cut(np.array([0.1, 0.5, 0.5, 0.9]), np.array([False, False, True, True]))
    0.7
    """
    levels, places = np.unique(-scores, return_inverse=True)
    levels = -levels  # falling
    # For every number of levels that are accepted, from none to all.
    found, accepted = (
        np.append(0, np.cumsum(np.bincount(places[kind], minlength=len(levels))))
        for kind in (same, ~same)
    )
    true_positives, true_negatives = found / found[-1], (accepted[-1] - accepted) / accepted[-1]
    if strategy == "accuracy":
        values = found - accepted
    elif strategy == "f_beta":
        values = found / (beta**2 * found[-1] + found + accepted)
    elif strategy == "max_tpr":
        values = np.where(true_negatives >= min_rate, true_positives, -1)
    else:
        values = np.where(true_positives >= min_rate, true_negatives, -1)
    best = np.flatnonzero(values == values.max())
    return _between(levels, int(best[-1] if strategy == "max_tnr" else best[0]))


def _between(levels: NDArray, n_accepted: int) -> float:
    """A cut that accepts so many of the falling levels."""
    if n_accepted == 0:
        return float(np.nextafter(levels[0], np.inf))
    lowest = float(levels[n_accepted - 1])
    if n_accepted == len(levels):
        return lowest
    refused = float(levels[n_accepted])
    middle = refused + (lowest - refused) / 2
    return middle if middle > refused else lowest  # of neighbouring numbers it may be either


def _check_strategy(strategy: str, min_rate: float | None, beta: float) -> None:
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r} will not do: one of {STRATEGIES} is needed.")
    if strategy in ("max_tpr", "max_tnr"):
        if min_rate is None or not 0 <= min_rate <= 1:
            raise ValueError(
                f"min_rate={min_rate} will not do: strategy={strategy!r} needs a share, 0 to 1."
            )
    elif min_rate is not None:
        raise ValueError(
            f"min_rate={min_rate} came with strategy={strategy!r}, which has no use for it: leave "
            "it out, or choose 'max_tpr' or 'max_tnr'."
        )
    if not 0 < beta < np.inf:
        raise ValueError(f"beta={beta} will not do: a positive number is needed.")


def equal_error(accepted: NDArray, found: NDArray) -> float:
    """The share a of different pairs accepted where it is that of same pairs refused, 1 − f.

    >>> equal_error(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.5, 1.0])).__round__(3)
    0.333
    """
    return float(np.interp(0.0, accepted + found - 1, accepted))
