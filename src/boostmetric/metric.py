"""The learned metric: a sum of weighted rank-one matrices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import LinAlgError, svd, svdvals
from scipy.sparse import issparse
from sklearn.metrics.pairwise import euclidean_distances

from boostmetric._archive import ArchiveError, read_archive, write_archive
from boostmetric.data.points import Points, as_points

RANK_TOLERANCE = {"float32": 1e-4, "float64": 1e-8}
"""Singular values below this share of the largest do not count in the rank of a metric whose
features are scaled to equal size. Rounding errors were seen up to 6e-6 in float32 and 9e-10 in
float64, on features that are linearly dependent."""

VERSION = 1
"""Of the format of a file that holds a metric."""

PAIR_BLOCK = 1 << 20
"""Numbers held at once when the differences of many pairs are formed."""


@dataclass(frozen=True, eq=False)
class Metric:
    """M = Σ_j coefs_j·v_j·v_jᵀ with coefs ≥ 0 and unit columns v_j of `directions`.

    Parameters
    ----------
    directions : array of shape (D, J), unit columns, float32 or float64
    coefs : array of shape (J,), nonnegative; kept in float64, because features of size 1e30 have
        coefficients of 1e-60, which float32 cannot hold
    feature_names : names of the D features, if they have any
    origin : facts about how the metric was made, such as JSON can hold. An estimator puts its
        class, parameters and history here (`boostmetric.origin`)

    Examples
    --------
    >>> import numpy as np
    >>> metric = Metric(np.eye(2), np.array([4.0, 1.0]))
    >>> metric.matrix
    array([[4., 0.],
           [0., 1.]])
    >>> metric.distances([[0, 0]], [[1, 0], [0, 1]])
    array([[2., 1.]])
    """

    directions: NDArray
    coefs: NDArray
    feature_names: tuple[str, ...] | None = None
    origin: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "coefs", np.asarray(self.coefs, dtype=np.float64))
        if self.directions.ndim != 2 or self.coefs.shape != self.directions.shape[1:]:
            raise ValueError(
                f"directions of shape {self.directions.shape} and coefs of shape "
                f"{self.coefs.shape} do not match: (D, J) and (J,) are needed."
            )
        if not (np.isfinite(self.directions).all() and np.isfinite(self.coefs).all()):
            raise ValueError("directions and coefs must be finite.")
        if (self.coefs < 0).any():
            raise ValueError("coefs must not be negative: M would not be positive semidefinite.")
        names = self.feature_names
        if names is not None and not (
            isinstance(names, tuple | list) and all(isinstance(name, str) for name in names)
        ):
            raise ValueError(f"feature_names must be a tuple of str or None; got {names!r:.80}.")
        if not isinstance(self.origin, Mapping | None):
            raise ValueError(f"origin must be a mapping or None; got {self.origin!r:.80}.")
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise ValueError(
                f"{len(self.feature_names)} feature names came for directions of "
                f"{self.n_features} features: as many names are needed."
            )

    @classmethod
    def from_components(cls, components: NDArray) -> Metric:
        """The metric M = componentsᵀ·components, from an array of shape (d, D).

        >>> Metric.from_components(np.array([[3.0, 4.0]])).coefs
        array([25.])
        """
        lengths = np.linalg.norm(components, axis=1)
        used = lengths > 0
        # Squared in float64: the lengths of float32 components may have squares out of its range.
        coefs = lengths[used].astype(np.float64) ** 2
        return cls((components[used] / lengths[used, None]).T, coefs)

    @property
    def n_features(self) -> int:
        """D, the number of features of a point."""
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
        """Rows L with M = LᵀL: the eigenvectors of M by falling eigenvalue, times its root.

        As many rows as M has rank, in the precision of the directions. From the singular values of
        √coefs·directionsᵀ in float64, so no accuracy is lost to forming M. The rank is judged with
        features scaled to equal size, so that it does not depend on their units; what is below
        `RANK_TOLERANCE` is rounding error. Each row's largest entry is positive. O(J·D·min(J, D)).
        """
        dtype = np.result_type(self.directions, np.float32)
        if self.n_directions == 0:
            return self.directions.T
        scaled = (self.directions * np.sqrt(self.coefs)).T
        roots, rows = _singular(scaled)
        sizes = np.linalg.norm(scaled, axis=0)
        equal = svdvals(scaled / np.where(sizes > 0, sizes, 1))
        rank = int((equal > RANK_TOLERANCE[dtype.name] * equal[0]).sum())
        return (fix_signs(rows[:rank].T).T * roots[:rank, None]).astype(dtype)

    @property
    def eigenvalues(self) -> NDArray:
        """The positive eigenvalues of M, falling."""
        values: NDArray = np.einsum("ij,ij->i", self.components, self.components)
        return values

    @property
    def feature_deviations(self) -> NDArray | None:
        """Standard deviations of the features in the training data, if `origin` has them."""
        try:
            deviations = np.asarray((self.origin or {}).get("deviations"), dtype=np.float64)
        except (TypeError, ValueError):  # users may write any origin
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
        """Points whose Euclidean distance is this metric: X·componentsᵀ."""
        transformed: NDArray = as_points(X) @ self.components.T
        return transformed

    def distance(self, u: ArrayLike, v: ArrayLike, squared: bool = False) -> float:
        """The distance of two points, ‖L·(u − v)‖ with L the components, or its square."""
        difference = self.components @ (np.asarray(u) - np.asarray(v))
        square = float(difference @ difference)
        return square if squared else square**0.5

    def distances(
        self,
        X: ArrayLike | Points,
        Y: ArrayLike | Points | None = None,
        *,
        squared: bool = False,
    ) -> NDArray:
        """Distances of all rows of X to all rows of Y (or of X), of shape (len(X), len(Y)).

        Computed between transformed points, less a common centre so that nothing cancels: no array
        larger than the result is formed.
        """
        X = as_points(X)
        Y = X if Y is None else as_points(Y)
        if len(self.components) == 0:
            return np.zeros((X.shape[0], Y.shape[0]), dtype=self.directions.dtype)
        centre = X.mean(axis=0)

        def images(points: Points) -> NDArray:
            if issparse(points):  # it would be dense without the centre
                return self.transform(points) - self.transform(centre)
            return self.transform(points - centre)

        other = None if Y is X else images(Y)
        result: NDArray = euclidean_distances(images(X), other, squared=squared)
        return result

    def pair_distances(
        self, X: ArrayLike | Points, pairs: NDArray, *, squared: bool = False
    ) -> NDArray:
        """Distances of the rows `pairs[:, 0]` and `pairs[:, 1]` of X, of shape (len(pairs),)."""
        factors = np.ones(len(self.components), dtype=self.components.dtype)
        squares = image_squares(as_points(X), self.components.T, pairs, factors)
        return squares if squared else np.sqrt(squares)

    def truncate(self, n_components: int | float) -> Metric:
        """The closest metric of low rank: the leading eigenvectors of M with their eigenvalues.

        Parameters
        ----------
        n_components : int, the rank to keep at most; or a float in (0, 1), the share of the trace
            that the kept eigenvalues must reach

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

    def compose(self, inner: Metric | NDArray) -> Metric:
        """The metric x, z ↦ self(L·x, L·z), with L the components of `inner`, or an array (d, D).

        M = Lᵀ·M_self·L: again a sum of rank-one matrices, one for each of self's directions.

        >>> Metric(np.eye(1), np.ones(1)).compose(np.array([[0.0, 2.0]])).matrix
        array([[0., 0.],
               [0., 4.]])
        """
        components = inner.components if isinstance(inner, Metric) else inner
        scaled = self.directions * np.sqrt(self.coefs)
        dtype = np.result_type(self.directions, components)
        return Metric.from_components(scaled.T @ components).astype(dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write this metric to a file, which `Metric.load` reads.

        The file is whole or the old one is still there, whatever happens meanwhile. It holds
        numbers and facts, no code; `docs/files.md` has its format.
        """
        facts = {"feature_names": self.feature_names, "origin": self.origin}
        arrays = {"directions": self.directions, "coefs": self.coefs}
        write_archive(path, "metric", VERSION, facts, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Metric:
        """The metric in a file that `save` wrote; nothing in the file is run.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "scales.metric")
        >>> Metric(np.eye(2), np.array([4.0, 1.0]), ("width", "height")).save(path)
        >>> Metric.load(path).feature_names
        ('width', 'height')
        """
        facts, arrays = read_archive(path, "metric", VERSION)
        try:
            names = facts["feature_names"]
            names = tuple(names) if isinstance(names, list) else names
            metric = cls(arrays["directions"], arrays["coefs"], names, facts["origin"])
            with np.errstate(over="ignore"):
                trace = np.sum(metric.coefs * metric.directions**2)
            if not np.isfinite(trace):
                raise ValueError("its matrix overflows")
            return metric
        except (KeyError, TypeError, ValueError) as error:
            raise ArchiveError(f"{path} holds no valid metric ({error}): write it anew.") from error


def _singular(matrix: NDArray) -> tuple[NDArray, NDArray]:
    """Singular values, falling, and the right singular vectors as rows."""
    try:
        _, roots, rows = svd(matrix, full_matrices=False)
    except LinAlgError:  # the fast method has been seen to fail on a matrix with nothing wrong
        _, roots, rows = svd(matrix, full_matrices=False, lapack_driver="gesvd")
    return roots, rows


def image_squares(X: Points, basis: NDArray, pairs: NDArray, factors: NDArray) -> NDArray:
    """Σ_d factors_d·((x_i − x_j)ᵀb_d)² for every row (i, j) of `pairs` and the columns b_d.

    So many columns at a time that their products with the points take no more memory than X.
    """
    squares = np.zeros(len(pairs), dtype=np.result_type(X.dtype, basis))
    size = max(1, X.size // max(1, X.shape[0]))
    for begin in range(0, basis.shape[1], size):
        columns = slice(begin, begin + size)
        squares += pair_squares(X @ basis[:, columns], pairs, factors[columns])
    return squares


def pair_squares(points: NDArray, pairs: NDArray, factors: NDArray) -> NDArray:
    """Σ_d factors_d·(x_id − x_jd)² for every row (i, j) of `pairs`, in blocks of bounded memory."""
    squares = np.empty(len(pairs), dtype=points.dtype)
    size = max(1, PAIR_BLOCK // max(1, points.shape[1]))
    for start in range(0, len(pairs), size):
        block = pairs[start : start + size]
        differences = points.take(block[:, 0], axis=0)
        differences -= points.take(block[:, 1], axis=0)
        differences *= differences
        squares[start : start + size] = np.einsum("pd,d->p", differences, factors)
    return squares


def fix_signs(vectors: NDArray) -> NDArray:
    """The columns of `vectors`, each with the sign that makes its largest entry positive."""
    if vectors.size == 0:
        return vectors
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0)
    return vectors * np.where(largest < 0, -1, 1).astype(vectors.dtype)
