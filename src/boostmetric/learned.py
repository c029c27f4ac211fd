"""What every estimator of this package can do once it has learned a metric."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from boostmetric.metric import Metric


class LearnedMetric(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the estimators: `fit` sets `metric_` and `components_`, and the rest is here."""

    metric_: Metric
    components_: NDArray

    def transform(self, X: ArrayLike) -> NDArray:
        """Points whose Euclidean distance is the learned metric, X·components_ᵀ.

        Parameters
        ----------
        X : array of shape (n, D)

        Returns
        -------
        array of shape (n, n_components)
        """
        check_is_fitted(self, "components_")
        X = self._validate_points(X, reset=False)
        transformed: NDArray = X @ self.components_.T
        return transformed

    def get_mahalanobis_matrix(self) -> NDArray:
        """M, a new array of shape (D, D)."""
        check_is_fitted(self, "components_")
        return self.metric_.matrix

    def get_metric(self) -> Callable[..., float]:
        """The distance as a function of two points, f(u, v, squared=False).

        It can be given as `metric` to scikit-learn's neighbours, and pickled; transforming the
        points first is much faster.

        Examples
        --------
        >>> from boostmetric import BoostMetric
        >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]])
        >>> distance = BoostMetric(n_neighbors=1).fit(X, [0, 0, 1, 1]).get_metric()
        >>> distance(X[0], X[2]) > distance(X[0], X[1])
        True
        """
        check_is_fitted(self, "components_")
        return self.metric_.distance

    def pair_distance(self, pairs: ArrayLike, X: ArrayLike | None = None) -> NDArray:
        """Distances within pairs, not squared, of shape (m,).

        Parameters
        ----------
        pairs : array of shape (m, 2) of row numbers of X, or of shape (m, 2, D), the points
        X : array of shape (n, D); only with row numbers
        """
        check_is_fitted(self, "components_")
        if X is None:
            points = check_array(pairs, allow_nd=True, dtype=[np.float64, np.float32])
            if points.ndim != 3 or points.shape[1] != 2:
                raise ValueError(
                    f"pairs of shape {points.shape} came without X. Give an array (m, 2, "
                    f"{self.n_features_in_}) of points, or row numbers (m, 2) together with X."
                )
            rows = np.arange(2 * len(points)).reshape(-1, 2)
            X = points.reshape(-1, points.shape[2])
        else:
            rows = np.asarray(pairs)
            if rows.ndim != 2 or rows.shape[1] != 2 or not np.issubdtype(rows.dtype, np.integer):
                raise ValueError(
                    "with X, pairs must be row numbers, integers of shape (m, 2); got "
                    f"{rows.dtype} of shape {rows.shape}."
                )
        points = self._validate_points(X, reset=False)
        for row in (rows.min(), rows.max()):
            if not 0 <= row < len(points):
                raise ValueError(f"a pair names row {row}: X has the rows 0 to {len(points) - 1}.")
        return self.metric_.pair_distances(points, rows)

    def pair_score(self, pairs: ArrayLike, X: ArrayLike | None = None) -> NDArray:
        """The negative of `pair_distance`: the higher, the more similar."""
        return -self.pair_distance(pairs, X)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validate_points(self, X: ArrayLike, reset: bool) -> NDArray:
        try:
            validated: NDArray = validate_data(
                self,
                X,
                reset=reset,
                dtype=[np.float64, np.float32],
                ensure_min_samples=2 if reset else 1,
            )
        except ValueError as error:
            if "could not convert string" in str(error):
                raise ValueError(
                    f"X must be numeric, but {error}. Encode or drop columns of text."
                ) from None
            raise
        return validated
