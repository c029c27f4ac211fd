"""Merging of visual words that separates the classes with fewer words."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data


class Merging(NamedTuple):
    """The result of `merge_words`.

    Attributes
    ----------
    groups : the group of each word, 0, 1, ..., in the order of each group's first word
    information : I(word; class) in nats before the first merge, and after each of them
    """

    groups: NDArray[np.intp]
    information: NDArray[np.float64]


def merge_words(counts: ArrayLike, n_groups: int) -> Merging:
    r"""Merge words greedily, each time the two whose union loses least of I(word; class).

    With p(w, c) the share of word w and class c in the counts and f(p) = p·log p, a merge of the
    words v and w loses of the mutual information between word and class

        Σ_c [f(p(v, c)) + f(p(w, c)) - f(p(v, c) + p(w, c))] - [f(p(v)) + f(p(w)) - f(p(v) + p(w))],

    which is (p(v) + p(w)) times the Jensen-Shannon divergence of p(c|v) and p(c|w): the
    agglomerative information bottleneck (Slonim and Tishby, 1999). Winn, Criminisi and Minka (2005)
    merge greedily, too, by the probability of the classes given the histograms under Gaussian
    models; this rule needs no model. For K words and C classes it takes O(K²·C) time, if few words
    share their nearest word, and O(K²) memory.

    Parameters
    ----------
    counts : of shape (K, C), how often each word occurs in each class
    n_groups : number of groups

    Examples
    --------
    Words 0 and 2 have the same distribution over the classes, so they merge without loss.

    >>> merging = merge_words([[8, 2], [1, 9], [4, 1], [0, 5]], n_groups=2)
    >>> merging.groups
    array([0, 1, 0, 1])
    >>> merging.information.round(4) + 0.0
    array([0.3257, 0.3257, 0.3116])
    """
    joint = _joint(counts)
    if not 1 <= n_groups <= len(joint):
        raise ValueError(
            f"The 'n_groups' parameter must be an int in the range [1, {len(joint)}], the number "
            f"of words. Got {n_groups} instead."
        )
    pairs = _Pairs(joint)
    groups = np.arange(len(joint))
    information = [_information(joint)]
    for _ in range(len(joint) - n_groups):
        kept, gone, loss = pairs.merge_best()
        groups[groups == gone] = kept
        information.append(information[-1] - loss)
    return Merging(np.unique(groups, return_inverse=True)[1], np.array(information))


class WordMerger(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Transform histograms of words to histograms of merged words, by `merge_words`.

    Parameters
    ----------
    n_groups : number of merged words

    Attributes
    ----------
    groups_ : the group of each word, of shape (K,)
    information_ : I(word; class) in nats before the first merge, and after each of them

    Examples
    --------
    >>> H = np.array([[8, 1, 4, 0], [2, 9, 1, 5]])
    >>> WordMerger(n_groups=2).fit_transform(H, ["a", "b"])
    array([[12.,  1.],
           [ 3., 14.]])
    """

    def __init__(self, n_groups: int = 300) -> None:
        self.n_groups = n_groups

    def fit(self, X: ArrayLike, y: ArrayLike) -> WordMerger:
        """Determine the groups.

        Parameters
        ----------
        X : histograms, of shape (n, K), >= 0
        y : their classes
        """
        H, y = validate_data(self, X, y, dtype=np.float64)
        check_non_negative(H, "WordMerger")
        classes = np.unique(y)
        counts = np.stack([H[y == each].sum(axis=0) for each in classes], axis=1)
        self.groups_, self.information_ = merge_words(counts, self.n_groups)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Sums of each histogram over the groups, of shape (n, n_groups)."""
        check_is_fitted(self)
        H = validate_data(self, X, dtype=np.float64, reset=False)
        belongs = self.groups_[:, None] == np.arange(self._n_features_out)
        return H @ belongs.astype(np.float64)

    @property
    def _n_features_out(self) -> int:
        return int(self.groups_.max()) + 1

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.positive_only = True
        return tags


class _Pairs:
    """The loss of each pair of words, and for each word the one with the smallest loss."""

    def __init__(self, joint: NDArray[np.float64]) -> None:
        self.joint = joint
        self.left = np.ones(len(joint), dtype=bool)
        self.losses = np.stack([self._losses_with(word) for word in range(len(joint))])
        self.nearest = self.losses.argmin(axis=1)
        self.least = self.losses.min(axis=1)

    def merge_best(self) -> tuple[int, int, float]:
        """Merge the pair with the smallest loss; the kept word, the removed word and the loss."""
        best = int(self.least.argmin())
        kept, gone = sorted((best, int(self.nearest[best])))
        loss = float(self.least[best])
        self.joint[kept] += self.joint[gone]
        self.joint[gone] = 0
        self.left[gone] = False
        self._fill(gone, np.full(len(self.joint), np.inf))
        self._fill(kept, self._losses_with(kept))
        # A word that is closer to the union than to its nearest word is found in the union's row.
        stale = self.left & np.isin(self.nearest, (kept, gone))
        stale[kept] = True
        self.nearest[stale] = self.losses[stale].argmin(axis=1)
        self.least[stale] = self.losses[stale].min(axis=1)
        self.least[gone] = np.inf
        return kept, gone, loss

    def _fill(self, word: int, losses: NDArray[np.float64]) -> None:
        self.losses[word] = self.losses[:, word] = losses

    def _losses_with(self, word: int) -> NDArray[np.float64]:
        own, joint = self.joint[word], self.joint
        by_class = _loss(own, joint).sum(axis=1)
        losses = by_class - _loss(own.sum(), joint.sum(axis=1))
        losses[~self.left] = np.inf
        losses[word] = np.inf
        # Rounding may make a loss of zero negative.
        return np.maximum(losses, 0)


def _information(joint: NDArray[np.float64]) -> float:
    words, classes = joint.sum(axis=1), joint.sum(axis=0)
    entropies = xlogy(words, words).sum() + xlogy(classes, classes).sum()
    return float(xlogy(joint, joint).sum() - entropies)


def _loss(p: Any, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """f(p) + f(q) - f(p + q), for f(p) = p·log p."""
    return xlogy(p, p) + xlogy(q, q) - xlogy(p + q, p + q)


def _joint(counts: ArrayLike) -> NDArray[np.float64]:
    counts = np.asarray(counts, dtype=np.float64)
    if counts.ndim != 2 or not np.isfinite(counts).all() or (counts < 0).any() or not counts.any():
        raise ValueError(
            "counts must be a finite array of shape (words, classes), >= 0 and not all 0. Got an "
            f"array of shape {counts.shape}."
        )
    return counts / counts.sum()
