"""The learned metric: a sum of weighted rank-one matrices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import LinAlgError, svd, svdvals
from scipy.sparse import issparse
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import gen_batches
from sklearn.utils.extmath import row_norms

from boostmetric._files import FileFormatError, load_arrays, save_arrays
from boostmetric.data.points import Points, as_points, rows_at_once

RANK_TOLERANCE = {"float32": 5e-4, "float64": 1e-8}
"""Singular values below this share of the largest are not counted in the rank, after scaling the
features to equal size. On linearly dependent features, rounding errors of up to 6e-6 in float32 and
9e-10 in float64 were observed; a last step at rounding level once added 2e-4 in float32, whose
eigenvalue 4e-8 is below the accuracy of float32."""

METRIC_FORMAT_VERSION = 1
"""Version of the file format."""


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """M = Σ_j coefs_j·v_j·v_jᵀ with coefs ≥ 0 and unit columns v_j of `directions`.

    Parameters
    ----------
    directions : array of shape (D, J), unit columns, float32 or float64
    coefs : array of shape (J,), nonnegative; stored in float64, because features of size 1e30 have
        coefficients of 1e-60, which float32 cannot represent
    feature_names : names of the D features, or None
    origin : JSON-serializable mapping that describes how the metric was computed, or None.
        Estimators store their class, parameters and history here

    Examples
    --------
    >>> import numpy as np
    >>> metric = Metric(np.eye(2), np.array([4.0, 1.0]))
    >>> metric
    Metric(n_features=2, n_directions=2, rank=2)
    >>> metric.matrix
    array([[4., 0.],
           [0., 1.]])
    >>> metric.distances([[0, 0]], [[1, 0], [0, 1]])
    array([[2., 1.]])
    """

    directions: NDArray
    coefs: NDArray
    feature_names: tuple[str, ...] | None = None
    origin: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefs", np.asarray(self.coefs, dtype=np.float64))
        if self.directions.ndim != 2 or self.coefs.shape != self.directions.shape[1:]:
            raise ValueError(
                "directions and coefs must have the shapes (D, J) and (J,); got "
                f"{self.directions.shape} and {self.coefs.shape}."
            )
        if self.directions.dtype not in (np.float32, np.float64):
            raise ValueError(f"directions must be float32 or float64, got {self.directions.dtype}.")
        if not (np.isfinite(self.directions).all() and np.isfinite(self.coefs).all()):
            raise ValueError("directions and coefs must be finite.")
        if (self.coefs < 0).any():
            raise ValueError(f"coefs must be >= 0, got {self.coefs.min():g}.")
        if (names := self.feature_names) is not None:
            if not isinstance(names, tuple | list) or not all(isinstance(n, str) for n in names):
                raise ValueError(
                    f"feature_names must be a tuple of str or None; got {names!r:.80}."
                )
            if len(names) != self.n_features:
                raise ValueError(
                    f"feature_names has {len(names)} names, but the metric has {self.n_features} "
                    "features."
                )
        if not isinstance(self.origin, Mapping | None):
            raise ValueError(f"origin must be a mapping or None; got {self.origin!r:.80}.")

    def __repr__(self) -> str:
        return (
            f"Metric(n_features={self.n_features}, n_directions={self.n_directions}, "
            f"rank={len(self.components)})"
        )

    @classmethod
    def from_components(cls, components: NDArray) -> Metric:
        """The metric M = componentsᵀ·components, for an array of shape (d, D).

        >>> Metric.from_components(np.array([[3.0, 4.0]])).coefs
        array([25.])
        """
        # Squares of float32 values may overflow or underflow.
        rows = components.astype(np.float64)
        lengths = np.linalg.norm(rows, axis=1)
        used = lengths > 0
        directions = (rows[used] / lengths[used, None]).T.astype(components.dtype)
        return cls(directions, lengths[used] ** 2)

    @property
    def n_features(self) -> int:
        """D, the number of features."""
        return self.directions.shape[0]

    @property
    def n_directions(self) -> int:
        """J, the number of rank-one terms."""
        return self.directions.shape[1]

    def astype(self, dtype: DTypeLike) -> Metric:
        """The same metric with directions of another precision."""
        return replace(self, directions=self.directions.astype(dtype))

    @property
    def matrix(self) -> NDArray:
        """M, of shape (D, D), in float64. O(J·D²)."""
        scaled = self.directions * np.sqrt(self.coefs)
        return scaled @ scaled.T

    @cached_property
    def components(self) -> NDArray:
        """Rows L with M = LᵀL: eigenvectors of M times the square roots of their eigenvalues.

        Shape (rank, D), in the precision of the directions, sorted by decreasing eigenvalue. The
        entry of largest absolute value in each row is positive; for equal
        eigenvalues see `triangular_where_equal`. Computed from the singular value
        decomposition of √coefs·directionsᵀ in float64, because forming M would lose accuracy. The
        rank is determined up to `RANK_TOLERANCE` with features scaled to equal size, so it does not
        depend on their units. O(J·D·min(J, D)).
        """
        dtype = np.result_type(self.directions, np.float32)
        if self.n_directions == 0:
            return self.directions.T
        scaled = (self.directions * np.sqrt(self.coefs)).T
        try:
            _, roots, rows = svd(scaled, full_matrices=False)
        except LinAlgError:  # the default method was observed to fail on well-behaved matrices
            _, roots, rows = svd(scaled, full_matrices=False, lapack_driver="gesvd")
        sizes = np.linalg.norm(scaled, axis=0)
        equal = svdvals(scaled / np.where(sizes > 0, sizes, 1))
        rank = int((equal > RANK_TOLERANCE[dtype.name] * equal[0]).sum())
        rows = triangular_where_equal(rows[:rank] * roots[:rank, None])
        return fix_signs(rows.T).T.astype(dtype)

    @property
    def eigenvalues(self) -> NDArray:
        """The positive eigenvalues of M, in decreasing order."""
        return np.asarray(np.einsum("ij,ij->i", self.components, self.components))

    @property
    def feature_deviations(self) -> NDArray | None:
        """Standard deviations of the features in the training data, if `origin` has them."""
        try:
            deviations = np.asarray((self.origin or {}).get("deviations"), dtype=np.float64)
        except (TypeError, ValueError):  # users may pass any origin
            return None
        valid = deviations.shape == (self.n_features,) and np.isfinite(deviations).all()
        return deviations if valid else None

    @property
    def feature_importances(self) -> NDArray:
        """M_ii·Var(x_i) divided by its sum over the features, of shape (D,).

        If features are uncorrelated, this is the share of feature i in the mean squared distance
        between training points, so it does not depend on units. Without `feature_deviations`, all
        variances count as 1.

        Examples
        --------
        >>> metric = Metric(np.eye(2), np.array([4.0, 1.0]), origin={"deviations": [1.0, 4.0]})
        >>> metric.feature_importances
        array([0.2, 0.8])
        """
        deviations = self.feature_deviations
        scales = np.ones(self.n_features) if deviations is None else deviations
        sizes: NDArray = np.square(self.directions * scales[:, None]) @ self.coefs
        return sizes / (sizes.sum() or 1.0)

    def transform(self, X: ArrayLike | Points) -> NDArray:
        """X·componentsᵀ: the Euclidean distances of these points are the distances of X."""
        return np.asarray(as_points(X) @ self.components.T)

    def distance(self, u: ArrayLike, v: ArrayLike, squared: bool = False) -> float:
        """The distance between two points, ‖L·(u − v)‖ with L the components, or its square.

        Parameters
        ----------
        u, v : arrays of shape (D,) or (1, D)
        squared : whether to return the squared distance

        Examples
        --------
        >>> Metric(np.eye(2), np.array([4.0, 1.0])).distance([0, 0], [1, 0])
        2.0
        """
        return distance(self.components, u, v, squared)

    def distances(
        self, X: ArrayLike | Points, Y: ArrayLike | Points | None = None, *, squared: bool = False
    ) -> NDArray:
        """Distances between all rows of X and all rows of Y (or X), of shape (len(X), len(Y)).

        Points are centered and transformed first; centering avoids cancellation. No array larger
        than the result is formed.
        """
        X = as_points(X)
        Y = X if Y is None else as_points(Y)
        if len(self.components) == 0:
            return np.zeros((X.shape[0], Y.shape[0]), dtype=self.directions.dtype)
        center = X.mean(axis=0)

        def images(points: Points) -> NDArray:
            if issparse(points):  # centering before would fill the zeros
                return self.transform(points) - self.transform(center)
            return self.transform(points - center)

        other = None if Y is X else images(Y)
        return np.asarray(euclidean_distances(images(X), other, squared=squared))

    def pair_distances(
        self, X: ArrayLike | Points, pairs: NDArray, *, squared: bool = False
    ) -> NDArray:
        """Distances between rows `pairs[:, 0]` and `pairs[:, 1]` of X, of shape (len(pairs),)."""
        return pair_distances(as_points(X), pairs, self.components, squared=squared)

    def truncate(self, n_components: int | float) -> Metric:
        """The closest metric of lower rank: the leading eigenvectors of M and their eigenvalues.

        Parameters
        ----------
        n_components : int, the maximum rank; or a float in (0, 1), the share of the trace that the
            eigenvalues must reach

        Examples
        --------
        >>> Metric(np.eye(3), np.array([6.0, 3.0, 1.0])).truncate(0.85).eigenvalues.round(6)
        array([6., 3.])
        """
        if isinstance(n_components, float):
            shares = np.cumsum(self.eigenvalues) / np.sum(self.eigenvalues)
            n_components = int(np.searchsorted(shares, n_components)) + 1
        truncated = Metric.from_components(self.components[:n_components])
        return replace(truncated, feature_names=self.feature_names, origin=self.origin)

    def shrink(self, share: float) -> Metric:
        """(1 − share)·M + share·(Tr M/D)·I: closer to the Euclidean metric, with the same trace.

        >>> Metric(np.eye(2), np.array([4.0, 0.0])).shrink(0.5).matrix
        array([[3., 0.],
               [0., 1.]])
        """
        D = self.n_features
        directions = np.hstack([self.directions, np.eye(D, dtype=self.directions.dtype)])
        of_identity = np.full(D, share * self.coefs.sum() / D)
        coefs = np.append((1 - share) * self.coefs, of_identity)
        return replace(self, directions=directions, coefs=coefs)

    def compose(self, inner: Metric | NDArray) -> Metric:
        """The metric x, z ↦ self(L·x, L·z), with L the components of `inner`, or an array (d, D).

        M = Lᵀ·M_self·L, a sum of one rank-one matrix per direction of self.

        >>> Metric(np.eye(1), np.ones(1)).compose(np.array([[0.0, 2.0]])).matrix
        array([[0., 0.],
               [0., 4.]])
        """
        components = inner.components if isinstance(inner, Metric) else inner
        scaled = self.directions * np.sqrt(self.coefs)
        dtype = np.result_type(self.directions, components)
        return Metric.from_components(scaled.T @ components).astype(dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the metric to a .npz file, atomically; `docs/files.md` describes the format."""
        facts = {"feature_names": self.feature_names, "origin": self.origin}
        arrays = {"directions": self.directions, "coefs": self.coefs}
        save_arrays(path, "metric", METRIC_FORMAT_VERSION, facts, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Metric:
        """Read a metric from a file written by `save`. Nothing in the file is executed.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "scales.metric")
        >>> Metric(np.eye(2), np.array([4.0, 1.0]), ("width", "height")).save(path)
        >>> Metric.load(path).feature_names
        ('width', 'height')
        """
        facts, arrays = load_arrays(path, "metric", METRIC_FORMAT_VERSION)
        try:
            names = facts["feature_names"]
            names = tuple(names) if isinstance(names, list) else names
            directions, coefs = arrays["directions"], arrays["coefs"]
            if coefs.dtype != np.float64:
                raise ValueError(f"coefs must be float64, got {coefs.dtype}")
            metric = cls(directions, coefs, names, facts["origin"])
            with np.errstate(over="ignore"):
                trace = np.sum(metric.coefs * metric.directions**2)
            if not np.isfinite(trace):
                raise ValueError("its matrix overflows")
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{path} does not contain a valid metric ({error}).") from error
        return metric


def distance(components: NDArray, u: ArrayLike, v: ArrayLike, squared: bool = False) -> float:
    """‖L·(u − v)‖ with L the components (d, D), or its square; see `Metric.distance`."""
    D = components.shape[1]
    points = []
    for name, value in (("u", u), ("v", v)):
        point = np.asarray(value)
        if point.shape not in ((D,), (1, D)):
            raise ValueError(f"{name} must have shape ({D},) or (1, {D}); got {point.shape}.")
        # Differences of small or unsigned integers would overflow.
        points.append(point.ravel() if point.dtype == np.float32 else point.ravel().astype(float))
    difference = components @ (points[0] - points[1])
    square = float(difference @ difference)
    return square if squared else square**0.5


def pair_distances(
    X: Points,
    pairs: NDArray,
    components: NDArray | None = None,
    *,
    squared: bool = False,
    batch_entries: int = 1 << 20,
) -> NDArray:
    """‖L·(x_i − x_j)‖, or its square, for every row (i, j) of `pairs`.

    L are the components (d, D); None stands for the identity. `batch_entries` differences of
    coordinates are in memory at once: 8 MB in float64 by default, not tuned.

    >>> pair_distances(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0, 1]]))
    array([5.])
    """
    transforms: list[NDArray | None] = [None]
    dtype = X.dtype
    if components is not None:
        # Transformed points take at most as much memory as X, also if it is sparse.
        width = max(1, X.size // max(1, X.shape[0]))
        starts = range(0, len(components), width)
        transforms = [components[start : start + width].T for start in starts]
        dtype = np.result_type(dtype, components)
    squares = np.zeros(len(pairs), dtype=dtype)
    for transform in transforms:
        points = X if transform is None else X @ transform
        for batch in gen_batches(len(pairs), rows_at_once(points, batch_entries)):
            i, j = pairs[batch].T
            squares[batch] += row_norms(points[i] - points[j], squared=True)
    return squares if squared else np.sqrt(squares)


def triangular_where_equal(rows: NDArray, tolerance: float = 1e-6) -> NDArray:
    """Replace rows of equal length by a triangular matrix R with the same RᵀR.

    Rounding determines the eigenvectors of equal eigenvalues, but not R: its first row has all
    features, the second all but the first, and so on. `rows` are orthogonal, by decreasing length;
    lengths count as equal if they differ by at most this share.

    >>> triangular_where_equal(np.array([[0.6, 0.8], [0.8, -0.6]])).round(6) + 0.0
    array([[-1.,  0.],
           [ 0., -1.]])
    """
    lengths = np.linalg.norm(rows, axis=1)
    ends = 1 + np.flatnonzero(np.diff(lengths) < -tolerance * lengths[:-1])
    groups = np.split(rows, ends)
    return np.vstack([each if len(each) < 2 else np.linalg.qr(each).R for each in groups])


def fix_signs(vectors: NDArray) -> NDArray:
    """Flip columns such that the entry of largest absolute value in each is positive."""
    if vectors.size == 0:
        return vectors
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1, 1).astype(vectors.dtype)
