"""Base class of the estimators: the methods of a fitted estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from boostmetric._version import __version__
from boostmetric.data.dask_points import DaskPoints, is_collection
from boostmetric.data.pairs import split_pairs
from boostmetric.data.points import Points, as_points, deviations
from boostmetric.metric import Metric, distance, pair_distances


class LearnedMetric(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the estimators: `fit` sets `metric_` and `components_`; methods use the latter."""

    metric_: Metric
    components_: NDArray

    def transform(self, X: ArrayLike | Points) -> NDArray:
        """Transform points so that their Euclidean distances are the learned distances.

        Parameters
        ----------
        X : array of shape (n, D), dense or sparse, as for `fit`

        Returns
        -------
        X·components_ᵀ, a dense array of shape (n, n_components)
        """
        check_is_fitted(self, "components_")
        points = self._validate_points(X, reset=False)
        transformed: NDArray = points @ self.components_.T
        return transformed

    def get_mahalanobis_matrix(self) -> NDArray:
        """Return M = components_ᵀ·components_, a new array of shape (D, D) in float64."""
        check_is_fitted(self, "components_")
        components = self.components_.astype(np.float64)
        return components.T @ components

    def get_metric(self) -> Callable[..., float]:
        """Return the distance as a function of two points, f(u, v, squared=False).

        The points are arrays of shape (D,) or (1, D). The function can be pickled, and passed as
        `metric` to scikit-learn's neighbor searches; transforming the points first is much faster.

        Examples
        --------
        >>> from boostmetric import BoostMetric
        >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]])
        >>> distance = BoostMetric(n_neighbors=1).fit(X, [0, 0, 1, 1]).get_metric()
        >>> distance(X[0], X[2]) > distance(X[0], X[1])
        True
        """
        check_is_fitted(self, "components_")
        return partial(distance, self.components_)

    def pair_distance(self, pairs: ArrayLike, X: ArrayLike | Points | None = None) -> NDArray:
        """Compute the distances of pairs, not squared, of shape (m,).

        Parameters
        ----------
        pairs : array of shape (m, 2) of row indices of X, or of shape (m, 2, D), the points
        X : array of shape (n, D); only with row indices
        """
        check_is_fitted(self, "components_")
        rows, X = split_pairs(pairs, X)
        points = self._validate_points(X, reset=False)
        return pair_distances(points, rows, self.components_)

    def pair_score(self, pairs: ArrayLike, X: ArrayLike | Points | None = None) -> NDArray:
        """Return the negative `pair_distance`: the higher, the more similar."""
        return -self.pair_distance(pairs, X)

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validate_points(self, X: Any, reset: bool, engine: Any = None) -> Any:
        """Check X, and its features; a Dask collection stays on the cluster of the engine."""
        if engine is not None and is_collection(X):
            points = DaskPoints.of(X, engine)
            # Columns and their names are checked on an empty array or dataframe.
            columns = X._meta if hasattr(X, "columns") else np.empty((0, X.shape[1]))
            validate_data(self, columns, reset=reset, skip_check_array=True)
            if points.shape[0] < 2:
                raise ValueError("Found array with 1 sample(s) while a minimum of 2 is required.")
            return points
        try:
            validated = validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                ensure_min_samples=2 if reset else 1,
            )
        except ValueError as error:
            if "could not convert string" in str(error):
                raise ValueError(
                    f"X must be numeric, but {error}. Encode or drop columns of text."
                ) from None
            raise
        return as_points(validated)

    def _with_origin(
        self, metric: Metric, points: Points | DaskPoints, facts: Mapping[str, Any]
    ) -> Metric:
        """Add the names of the features to a metric, and facts about the fit (docs/files.md)."""
        names = getattr(self, "feature_names_in_", None)
        scales = points.deviations() if isinstance(points, DaskPoints) else deviations(points)
        origin = {
            "estimator": type(self).__name__,
            "boostmetric": __version__,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "parameters": self.get_params(deep=False),
            "n_samples": points.shape[0],
            "deviations": scales.tolist(),
            **facts,
        }
        names = None if names is None else tuple(names)
        return replace(metric, feature_names=names, origin=as_json(origin))


def as_json(value: Any) -> Any:
    """Convert a value to the types of JSON: tuples become lists, other objects their repr.

    >>> as_json({"n_neighbors": (5, 10), "tol": np.float32(0.5), "init": np.eye(1)})
    {'n_neighbors': [5, 10], 'tol': 0.5, 'init': 'array([[1.]])'}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): as_json(each) for key, each in value.items()}
    return repr(value)
