"""Marginalized nearest neighbors (MkNN) of Guillaumin, Verbeek and Schmid (2009), for pairs."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from boostmetric.data.labels import single_labels
from boostmetric.data.pairs import split_pairs
from boostmetric.evaluation.verification import PairClassifier

MAX_NEIGHBORS = 1 << 20
"""Neighbors whose classes are counted at a time, which bounds memory."""


class MkNN(PairClassifier, BaseEstimator):
    """Classify pairs as same if enough pairs of their neighbors are of the same class.

    Let n_c(i) be the number of the k nearest training points of x_i that are of class c. The score
    of a pair is Σ_c n_c(i)·n_c(j)/k²: the share of the k² pairs of a neighbor of x_i and one of x_j
    that agree. The points may be of classes without training points.

    Without X, pairs of shape (m, 2) are rows of the training points. The two points of such a pair
    are not neighbors of themselves or each other, since this would reveal their classes.

    Parameters
    ----------
    n_neighbors : k
    metric : a `Metric`, any fitted estimator or pipeline with `transform`, or None for the
        Euclidean distance
    n_jobs : number of threads of the neighbor search

    Attributes
    ----------
    classes_ : array of shape (C,), the classes
    index_ : scikit-learn's `NearestNeighbors` of the training points
    threshold_ : smallest score of a same pair; after `calibrate_threshold` or `set_threshold`

    Examples
    --------
    >>> model = MkNN(n_neighbors=2).fit([[0.0], [1.0], [5.0], [6.0]], list("aabb"))
    >>> pairs = [[[0.2], [0.7]], [[0.2], [5.5]], [[0.2], [3.2]]]
    >>> model.pair_score(pairs)
    array([1. , 0. , 0.5])
    >>> model.set_threshold(0.4).predict(pairs)
    array([ 1, -1,  1])
    """

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        metric: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Store the training points, and remove the threshold of an earlier fit.

        Parameters
        ----------
        X : array of shape (n, D), or other input of `metric`
        y : array of shape (n,), their classes
        """
        labels = single_labels(y)
        check_consistent_length(X, labels)
        self._check_neighbors(len(labels))
        self.classes_, self._codes = np.unique(labels, return_inverse=True)
        self.index_ = NearestNeighbors(n_neighbors=self.n_neighbors, n_jobs=self.n_jobs)
        self.index_.fit(self._images(X))
        self.__dict__.pop("threshold_", None)
        return self

    def pair_score(self, pairs: ArrayLike, X: Any = None) -> NDArray:
        """The share of pairs of neighbors of the same class, of shape (m,).

        Parameters
        ----------
        pairs : array of shape (m, 2), rows of X, or of the training points without X; or points, of
            shape (m, 2, D)
        X : array of shape (n, D), or other input of `metric`
        """
        check_is_fitted(self, "index_")
        if X is None and np.ndim(pairs) == 2:
            rows, _ = split_pairs(pairs, self._codes)
            self._check_neighbors(len(self._codes) - 2)
            # One more than needed, as the other point of the pair may be among them.
            neighbors = self.index_.kneighbors(
                n_neighbors=self.n_neighbors + 1, return_distance=False
            )
            return self._shares(rows, neighbors, leave_out=True)
        rows, X = split_pairs(pairs, X)
        used, places = np.unique(rows, return_inverse=True)
        neighbors = self.index_.kneighbors(self._images(X)[used], return_distance=False)
        return self._shares(places.reshape(rows.shape), neighbors, leave_out=False)

    def _shares(self, rows: NDArray, neighbors: NDArray, leave_out: bool) -> NDArray:
        """The scores, computed in batches."""
        shares = np.empty(len(rows))
        for part in gen_batches(len(rows), max(1, MAX_NEIGHBORS // self.n_neighbors)):
            i, j = rows[part].T
            one, two = neighbors[i], neighbors[j]
            if leave_out:
                one, two = _without(one, j), _without(two, i)
            shares[part] = self._counts(one).multiply(self._counts(two)).sum(axis=1)
        return shares / self.n_neighbors**2

    def _counts(self, neighbors: NDArray) -> csr_array:
        """n_c of every row of neighbors, of shape (rows, C); SciPy sums duplicate entries."""
        n, k = neighbors.shape
        entries = np.ones(n * k), self._codes[neighbors].ravel(), np.arange(0, n * k + 1, k)
        return csr_array(entries, shape=(n, len(self.classes_)))

    def _check_neighbors(self, n: int) -> None:
        if not 1 <= self.n_neighbors <= n:
            raise ValueError(
                f"The 'n_neighbors' parameter must be an int in the range [1, {n}], the number of "
                f"available points. Got {self.n_neighbors} instead."
            )


def _without(neighbors: NDArray, others: NDArray) -> NDArray:
    """The rows of `neighbors` without the entry in `others`, or else without the last one.

    >>> _without(np.array([[4, 5, 6], [4, 5, 6]]), np.array([5, 7])).tolist()
    [[4, 6], [4, 5]]
    """
    kept = neighbors != others[:, None]
    kept[kept.all(axis=1), -1] = False
    return neighbors[kept].reshape(len(neighbors), -1)
