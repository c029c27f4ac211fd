"""Starting transformations: the space in which the first pass looks for neighbours and boosts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import eigh, svd
from scipy.sparse import csr_array, diags_array, issparse
from sklearn.utils import check_array

from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.points import Points, largest_sizes
from boostmetric.metric import fix_signs

INITS = ("scale", "whiten", "pca", "lda")
"""The transformations that have a name."""

CENTRING = ("whiten", "pca", "lda")
"""Those that are about centred points, which sparse ones cannot be."""

ROUNDING_UNITS = 16
"""Values of a feature that differ by at most this many units in the last place of its largest one
count as equal. A stored value is wrong by half a unit, a sum of a few products by a few units, in
an order that depends on the processor; 16 is well above both."""

MOST_FEATURES = 1 << 14
"""Number of features up to which a diagonal transformation is made a dense array (2 GB)."""


def starting_transformation(
    init: str | ArrayLike | None,
    X: Points | DaskPoints,
    labels: NDArray | None = None,
    weights: NDArray | None = None,
    n_components: int | float | None = None,
) -> Points | None:
    """The transformation L of shape (d, D) that `init` stands for; points are mapped to X·Lᵀ.

    It does not depend on the origin of a dense X, up to the rounding of X itself.

    Parameters
    ----------
    init : one of
        None — none, which is also what is returned;
        "scale" — every feature divided by its standard deviation;
        "whiten" — the inverse root of the within-class covariance, shrunk (`shrunk_covariance`);
        "pca" — the principal axes, without those of no variance;
        "lda" — "whiten", then the axes that the class means span, at most one fewer than classes;
        or an array of shape (d, D)
    X : array of shape (n, D). If it is sparse, "scale" gives a sparse L, and the other names will
        not do: they are about points that are centred
    labels : array of shape (n,); needed by "whiten" and "lda"
    weights : array of shape (n,), how often a point counts
    n_components : if an integer, the number of axes that "pca" and "lda" keep at most

    Examples
    --------
    >>> starting_transformation("scale", np.array([[0.0, 5.0], [4.0, 5.0]]))
    array([[0.5, 0. ],
           [0. , 1. ]])
    """
    if init is None:
        return None
    weights = np.ones(X.shape[0]) if weights is None else weights
    kept = n_components if isinstance(n_components, int) else None
    if not isinstance(init, str):
        try:
            L = check_array(init, dtype=np.float64)
        except TypeError:
            raise ValueError(
                f"The 'init' parameter must be None, one of {', '.join(INITS)}, or an array of "
                f"shape (d, {X.shape[1]}). Got {init!r:.80} instead."
            ) from None
        if L.shape[1] != X.shape[1]:
            raise ValueError(
                f"init of shape {L.shape} does not map the {X.shape[1]} features of X: "
                f"(d, {X.shape[1]}) is needed."
            )
    elif init == "scale" and isinstance(X, DaskPoints):
        sizes = np.maximum(np.abs(X.summary.low), np.abs(X.summary.high)).astype(np.float64)
        found = X.deviations(weights)
        L = np.diag(1 / np.where(found <= ROUNDING_UNITS * np.finfo(X.dtype).eps * sizes, 1, found))
    elif isinstance(X, DaskPoints):
        raise ValueError(
            f"init={init!r} requires X in memory. Compute the transformation from a sample of X, "
            "and pass the array."
        )
    elif init == "scale":
        factors = 1 / spread(X, weights)
        L = diags_array(factors, format="csr") if issparse(X) else np.diag(factors)
    elif issparse(X):
        raise TypeError(
            f"init={init!r} does not work with sparse X, which it would have to centre. Reduce X "
            "by TruncatedSVD first, or use init='scale'."
        )
    else:
        counted = weights > 0
        points, weights = X[counted], weights[counted]
        errors = rounding_errors(points)
        # In float64, and centered first: the sums below would lose digits to a common offset.
        points = points - np.average(points, axis=0, weights=weights)
        if init == "pca":
            L = principal_axes(points, weights, errors)
        else:
            assert labels is not None
            _, codes = np.unique(labels[counted], return_inverse=True)
            L = within_class_whitening(points, codes, weights, errors)
            if init == "lda":
                means = _class_means(points @ L.T, codes, weights)
                n_axes = max(1, len(means) - 1)
                L = principal_axes(means, np.bincount(codes, weights), errors, L)[:n_axes]
        L = L[:kept] if init in ("pca", "lda") else L
    return L


def as_components(base: Points | None, n_features: int, dtype: DTypeLike) -> NDArray:
    """The rows of a transformation as an array of shape (d, D), those of the identity for None.

    Raises a ValueError where that would be a huge array.

    >>> as_components(None, 2, np.float32)
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if base is not None and not issparse(base):
        return base
    if n_features > MOST_FEATURES:
        raise ValueError(
            f"nothing was learned, and the metric to start from, of {n_features} features, is too "
            "large to be kept as an array. Reduce X by TruncatedSVD first."
        )
    rows: NDArray = np.eye(n_features, dtype=dtype) if base is None else csr_array(base).toarray()
    return rows


def spread(
    X: Points, weights: NDArray, labels: NDArray | None = None, errors: NDArray | None = None
) -> NDArray:
    """The standard deviation of every feature, within the classes if there are labels.

    A feature that is constant within the classes, up to rounding, has its overall deviation
    instead; one that is constant overall has 1. `errors` are the rounding errors of the features,
    those of X by default.
    """
    errors = rounding_errors(X) if errors is None else errors
    deviations = _sparse_deviations(X, weights) if issparse(X) else _deviations(X, weights, labels)
    overall = 1.0 if labels is None else spread(X, weights, errors=errors)
    return np.where(deviations <= errors, overall, deviations)


def rounding_errors(X: Points) -> NDArray:
    """How much values of a feature may differ by rounding, of shape (D,).

    >>> bool(np.array([0.1 + 0.2 - 0.3]) < rounding_errors(np.array([[0.3]])))
    True
    """
    return ROUNDING_UNITS * np.finfo(X.dtype).eps * largest_sizes(X).astype(np.float64)


# Squares are formed of features scaled by powers of two, each by its own: 1e-200 is a scale, too.


def _deviations(X: NDArray, weights: NDArray, labels: NDArray | None) -> NDArray:
    means = np.average(X, axis=0, weights=weights)
    if labels is not None:
        means = _class_means(X, labels, weights)[labels]
    residuals = X - means
    _, exponents = np.frexp(largest_sizes(residuals))
    variances = np.average(np.ldexp(residuals, -exponents) ** 2, axis=0, weights=weights)
    return np.ldexp(np.sqrt(variances), exponents)


def _sparse_deviations(X: csr_array, weights: NDArray) -> NDArray:
    """√(Σ w·(x − mean)²/Σ w) of every feature; where nothing is stored, x is 0."""
    n_features, total = X.shape[1], float(weights.sum())
    _, exponents = np.frexp(largest_sizes(X).astype(np.float64))
    values = np.ldexp(X.data.astype(np.float64), -exponents[X.indices])
    of_entries = np.repeat(weights, np.diff(X.indptr))
    means = np.bincount(X.indices, of_entries * values, n_features) / total
    residuals = values - means[X.indices]
    stored = np.bincount(X.indices, of_entries, n_features)
    squares = np.bincount(X.indices, of_entries * residuals**2, n_features)
    variances = (squares + np.maximum(total - stored, 0) * means**2) / total
    return np.ldexp(np.sqrt(variances), exponents)


def principal_axes(
    points: NDArray, weights: NDArray, errors: NDArray, L: NDArray | None = None
) -> NDArray:
    """The principal axes of points by falling variance, without null ones, as rows.

    Parameters
    ----------
    points : array of shape (n, d)
    weights : array of shape (n,)
    errors : array of shape (D,), the rounding errors of the features
    L : array of shape (d, D), if the points are images X·Lᵀ; axes are then rows of shape (D,), too

    Returns
    -------
    axes : array of shape (k, D), 1 ≤ k ≤ d: unit rows, times L
    """
    centered = points - np.average(points, axis=0, weights=weights)
    _, roots, rows = svd(centered * np.sqrt(weights)[:, None], full_matrices=False)
    rows = fix_signs(rows.T).T
    axes = rows if L is None else rows @ L
    # An axis counts if its deviation exceeds both the error of the decomposition and what rounding
    # of X, which grows with the distance from the origin, can contribute along this axis.
    of_svd = roots[0] * max(points.shape) * np.finfo(roots.dtype).eps
    of_points = np.sqrt(weights.sum()) * (np.abs(axes) @ errors)
    significant = roots > np.maximum(of_svd, of_points)
    significant[0] = True
    return axes[significant]


def within_class_whitening(
    X: NDArray, labels: NDArray, weights: NDArray, errors: NDArray
) -> NDArray:
    """L with L·S·Lᵀ = I for the shrunk within-class covariance S, features scaled beforehand.

    Features are first divided by their spread within the classes, so that shrinking does not
    drown those of small scale; the inverse root is the symmetric one. O(n·D² + D³).
    """
    scale = spread(X, weights, labels, errors)
    residuals = (X - _class_means(X, labels, weights)[labels]) / scale
    values, vectors = eigh(shrunk_covariance(residuals, weights))
    values = np.maximum(values, np.finfo(np.float64).eps * max(values[-1], 1.0))
    return (vectors / np.sqrt(values)) @ vectors.T / scale


def shrunk_covariance(residuals: NDArray, weights: NDArray) -> NDArray:
    """(1 − s)·S + s·(Tr S/D)·I, S the weighted covariance of centred rows, s by the OAS formula.

    OAS (Chen, Wiesel, Eldar, Hero 2010) has a closed form in Tr S, Tr S² and the number of points
    n, which is the sum of the weights here: a point of weight 2 counts as two points. It goes by
    the mean square of all correlations, and shrinks to nothing what is strong but rare; with many
    points S is accurate in every direction, so s is D/n at most.
    """
    n, D = float(weights.sum()), residuals.shape[1]
    S = (residuals.T * weights).astype(np.float64) @ residuals / n
    mean_square, square_mean = float(np.mean(S**2)), (float(np.trace(S)) / D) ** 2
    denominator = (n + 1) * (mean_square - square_mean / D)
    oas = math.inf if denominator <= 0 else (mean_square + square_mean) / denominator
    shrinkage = min(1.0, D / n, oas)
    return (1 - shrinkage) * S + shrinkage * np.sqrt(square_mean) * np.eye(D)


def _class_means(X: NDArray, labels: NDArray, weights: NDArray) -> NDArray:
    """Means by label, of shape (number of labels, D); 0 for a label without weight."""
    sums = np.zeros((int(labels.max()) + 1, X.shape[1]))
    np.add.at(sums, labels, X * weights[:, None])
    return sums / np.maximum(np.bincount(labels, weights), np.finfo(np.float64).tiny)[:, None]
