"""Starting transformations: the space in which the first pass searches for neighbors and boosts."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import eigh, svd
from scipy.sparse import csr_array, diags_array, issparse
from sklearn.decomposition import TruncatedSVD
from sklearn.utils import check_array

from boostmetric._validation import is_count
from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.labels import Labels
from boostmetric.data.points import (
    Points,
    content_hashes,
    distinct_points,
    largest_sizes,
    scale,
    scaling_exponent,
)
from boostmetric.data.samples import class_order, sample
from boostmetric.engines import Threads
from boostmetric.evaluation.knn import (
    are_satisfied,
    best_scale,
    comparable,
    decision_neighbors,
    n_standard_errors,
    nearest_references,
    neighbor_errors,
)
from boostmetric.metric import fix_signs
from boostmetric.problem import Comparisons, only_named_rows

CENTERING = ("whiten", "pca", "lda")
"""Transformations that center the points, which would fill a sparse X."""

INITS = ("auto", "scale", *CENTERING)
"""The names of the transformations."""

MAX_DENSE_FEATURES = 1 << 14
"""The identity of this many features takes 2 GB."""

N_FOLDS, MAX_QUERIES, MAX_ROWS = 5, 1_000, 10_000
"""`choose_init` classifies at most this number of points, in folds, and samples from this number of
rows. The standard error of an error of 5 % is then 0.7 %. With 2,000 points the choice takes twice
as long, and the learned metrics are not better."""

ROUNDING_UNITS = 16
"""Values of a feature that differ by at most this many units in the last place of its largest one
count as equal. The error of a stored value is half a unit, and that of a sum of a few products a
few units, depending on the order of summation and thus on the processor; 16 is well above both."""


def starting_transformation(
    init: str | ArrayLike | None,
    X: Points | DaskPoints,
    labels: NDArray | None = None,
    weights: NDArray | None = None,
    n_components: int | float | None = None,
) -> Points | None:
    """Compute the transformation L of shape (d, D) for `init`; points are mapped to X·Lᵀ.

    For dense X, it does not depend on the origin, up to the rounding of X itself.

    Parameters
    ----------
    init : an array of shape (d, D), or one of
        None: no transformation; None is returned;
        "scale": each feature is divided by its standard deviation;
        "whiten": the inverse root of the shrunk within-class covariance (`shrunk_covariance`);
        "pca": the principal axes with nonzero variance;
        "lda": "whiten", then the axes spanned by the class means, at most one fewer than classes
    X : array of shape (n, D). For sparse X, L is sparse for "scale", and the other names raise a
        TypeError, because they center the points
    labels : array of shape (n,); required by "whiten" and "lda"
    weights : array of shape (n,); a weight of 2 is the same as repeating the point
    n_components : if an integer, the maximum number of axes of "pca" and "lda"

    Examples
    --------
    >>> starting_transformation("scale", np.array([[0.0, 5.0], [4.0, 5.0]]))
    array([[0.5, 0. ],
           [0. , 1. ]])
    """
    if init is None:
        return None
    weights = np.ones(X.shape[0]) if weights is None else weights
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
                f"init must have shape (d, {X.shape[1]}), because X has {X.shape[1]} features; got "
                f"{L.shape}."
            )
    elif init == "scale" and isinstance(X, DaskPoints):
        sizes = np.maximum(np.abs(X.summary.low), np.abs(X.summary.high)).astype(np.float64)
        scales = X.deviations(weights)
        scales[scales <= ROUNDING_UNITS * np.finfo(X.dtype).eps * sizes] = 1
        L = np.diag(1 / scales)
    elif isinstance(X, DaskPoints):
        raise ValueError(
            f"init={init!r} requires X in memory. Compute the transformation from a sample of X, "
            "and pass the array."
        )
    elif init == "scale":
        with np.errstate(over="ignore"):  # see below
            factors = 1 / spread(X, weights)
        L = diags_array(factors, format="csr") if issparse(X) else np.diag(factors)
    elif issparse(X):
        raise TypeError(
            f"init={init!r} does not work with sparse X, because it centers the points. Reduce X "
            "with TruncatedSVD first, or use init='scale'."
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
        if init in ("pca", "lda") and is_count(n_components):
            L = L[:n_components]
    if not largest_sizes(L).max(initial=0.0) <= np.finfo(X.dtype).max:
        raise ValueError(
            f"init={init!r:.80} divides by features so small that its values are out of the range "
            f"of {X.dtype}. Scale the features, or drop those that are nearly constant."
        )
    return L


def reduced_start(
    base: Points | None, X: Points, weights: NDArray | None, n_components: int
) -> NDArray:
    """Return the leading principal axes of transformed points, composed with the transformation.

    This is the start for a metric of limited rank. For sparse X, which cannot be centered, the axes
    are singular vectors.

    >>> X = np.array([[0.0, 0.0], [1.0, 3.0], [2.0, 6.0]])
    >>> reduced_start(None, X, None, 1).round(3)
    array([[0.316, 0.949]])
    """
    images = X if base is None else X @ base.T
    if issparse(images):
        axes = TruncatedSVD(n_components, random_state=0).fit(images).components_
    else:
        weights = np.ones(len(images)) if weights is None else weights
        counted = weights > 0
        axes = principal_axes(images[counted], weights[counted], rounding_errors(images[counted]))
    axes = axes[:n_components].astype(X.dtype)
    return axes if base is None else np.asarray(axes @ base)


def choose_init(
    X: Points | DaskPoints,
    labels: NDArray | csr_array | None = None,
    weights: NDArray | None = None,
    comparisons: Comparisons | None = None,
    n_jobs: int | None = 1,
    seed: int = 0,
) -> tuple[str | None, dict[str, float]]:
    """Choose the starting transformation by an error that is known before learning.

    With labels, it is the cross-validated error of nearest-neighbor classification
    (`neighbor_errors`) on at most `MAX_QUERIES` points: None or "scale", whichever is lower (None
    if they are equal), or "whiten" if it is lower than both by more than one standard error of the
    difference. The within-class covariance has many parameters and is computed without the points
    of a fold. For multilabel targets it is the share of neighbors without a common label, and
    without labels the share of comparisons that are not satisfied; both choose between None and
    "scale", as do sparse X, which cannot be centered, and Dask collections, of which a sample is
    fetched.

    The points and folds are drawn by hashes of the rows with a seed. The result does not depend on
    the names of classes, the order of rows and columns, and the number of threads, `n_jobs`.

    Returns
    -------
    init : None, "scale" or "whiten"
    errors : the error of each candidate; None is named "none"

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> init, errors = choose_init(*load_wine(return_X_y=True))
    >>> init, {name: round(error, 2) for name, error in errors.items()}
    ('whiten', {'none': 0.29, 'scale': 0.03, 'whiten': 0.01})
    """
    names: tuple[str | None, ...] = (None, "scale")
    if labels is None:
        assert comparisons is not None
        wrong, counts = _wrong_comparisons(X, comparisons, names)
    else:
        if labels.ndim == 1 and not issparse(X) and not isinstance(X, DaskPoints):
            names = (*names, "whiten")
        wrong, counts = _wrong_neighbors(X, labels, weights, names, n_jobs, seed)
    errors = {
        name or "none": float(np.average(each, weights=counts))
        for name, each in zip(names, wrong, strict=True)
    }
    best = 0 if errors["none"] <= errors["scale"] else 1
    if len(names) == 3 and n_standard_errors(counts * (wrong[best] - wrong[2])) > 1:
        best = 2
    return names[best], errors


def distinct_rows(
    X: Points, labels: NDArray, weights: NDArray | None = None
) -> tuple[NDArray, NDArray]:
    """The first rows of distinct points with positive weights, and the weights of all rows.

    The weights of equal points with equal labels are added to that of the first.
    """
    given = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
    counted = np.flatnonzero(given > 0)
    codes = np.unique(labels, return_inverse=True)[1].reshape(-1)
    first, inverse = distinct_points(X[counted], codes[counted])
    total = np.zeros(len(labels))
    total[counted[first]] = np.bincount(inverse, given[counted])
    return np.sort(counted[first]), total


def _wrong_neighbors(
    X: Points | DaskPoints,
    labels: NDArray | csr_array,
    weights: NDArray | None,
    names: tuple[str | None, ...],
    n_jobs: int | None,
    seed: int,
) -> tuple[NDArray, NDArray]:
    """Errors of sampled points, of shape (number of names, k), and the weights of the points."""
    # 1) a sample, with equal numbers of each class in all folds. Of equal points with equal labels
    # the first represents all, so that a weight of 2 is equivalent to a duplicate.
    if labels.ndim == 1 and not isinstance(X, DaskPoints):
        counted, weights = distinct_rows(X, labels, weights)
    else:
        counted = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights > 0)
    if isinstance(X, DaskPoints):  # the rows are not here
        hashes = np.random.default_rng(seed).integers(1 << 63, size=len(counted), dtype=np.uint64)
    else:
        hashes = content_hashes(X, seed, counted)
    codes = Labels.of(labels).codes[counted]
    chosen = sample(hashes, codes, MAX_ROWS)
    chosen = chosen[class_order(hashes[chosen], codes[chosen])]
    order = counted[chosen]
    points, y = X[order], labels[order]
    scale(points, scaling_exponent(points))  # squares neither overflow nor underflow
    w = np.ones(len(order)) if weights is None else weights[order]
    # Every (n/n_queries)-th row is classified, and belongs to one of the folds in turn.
    n_queries = min(len(order), MAX_QUERIES)
    queries = np.arange(n_queries) * len(order) // n_queries
    folds = np.full(len(order), -1)
    folds[queries] = np.arange(n_queries) % N_FOLDS
    # 2) transformations that do not use labels, once
    images = {}
    for name in names[:2]:
        L = starting_transformation(name, points, weights=w)
        images[name] = comparable(points if L is None else points @ L.T)
    # 3) the nearest points outside of the fold
    wrong, k = np.zeros((len(names), len(order))), decision_neighbors(labels)

    def classify(task: tuple[int, int]) -> None:
        number, fold = task
        inside = folds == fold
        image = images[None if names[number] == "whiten" else names[number]]
        if names[number] == "whiten":
            L = starting_transformation("whiten", points[~inside], y[~inside], w[~inside])
            assert L is not None
            image = comparable(points @ L.T)
        rows = nearest_references(image, np.flatnonzero(inside), np.flatnonzero(~inside), k)
        wrong[number, inside] = neighbor_errors(y, rows, y[inside])

    tasks = list(product(range(len(names)), range(min(N_FOLDS, n_queries))))
    # Small problems take milliseconds, less than the threads.
    with Threads(n_jobs if n_queries * len(order) > 1_000_000 else 1) as threads:
        threads.map(classify, tasks)
    return wrong[:, queries], w[queries]


def _wrong_comparisons(
    X: Points | DaskPoints, comparisons: Comparisons, names: tuple[str | None, ...]
) -> tuple[NDArray, NDArray]:
    """Which comparisons are not satisfied, of shape (number of names, k), and their weights."""
    counted = comparisons.counted()
    if isinstance(X, DaskPoints):
        order = np.random.default_rng(0).permutation(len(counted))[:MAX_QUERIES]
        rows, counted = only_named_rows(counted[np.sort(order)])
        points = X[rows]
    else:
        points = X
    wrong = []
    for name in names:
        L = starting_transformation(name, X)
        images = points if L is None else points @ L.T
        wrong.append(~are_satisfied(images, counted, best_scale(images, counted)))
    weights = np.ones(len(counted)) if counted.weights is None else counted.weights
    return np.array(wrong), weights


def as_components(base: Points | None, n_features: int, dtype: DTypeLike) -> NDArray:
    """Convert a transformation to a dense array of shape (d, D); None is the identity.

    >>> as_components(None, 2, np.float32)
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if base is not None and not issparse(base):
        return base
    if n_features > MAX_DENSE_FEATURES:
        raise ValueError(
            "The starting metric would be kept, because nothing was learned, but with "
            f"{n_features} features it is too large for a dense array. Set n_components, or reduce "
            "X with TruncatedSVD first."
        )
    rows: NDArray = np.eye(n_features, dtype=dtype) if base is None else csr_array(base).toarray()
    return rows


def spread(
    X: Any, weights: NDArray, labels: NDArray | None = None, errors: NDArray | None = None
) -> NDArray:
    """Compute the standard deviation of each feature, within the classes if there are labels.

    A feature that is constant within the classes, up to rounding, has its overall deviation
    instead; a feature that is constant overall has 1. `errors` are the rounding errors of the
    features, those of X by default.
    """
    errors = rounding_errors(X) if errors is None else errors
    # Features are scaled by powers of two before they are squared: 1e-200 is a valid scale, too.
    if issparse(X):  # entries that are not stored are 0
        n_features, total = X.shape[1], float(weights.sum())
        _, exponents = np.frexp(largest_sizes(X).astype(np.float64))
        values = np.ldexp(X.data.astype(np.float64), -exponents[X.indices])
        of_entries = np.repeat(weights, np.diff(X.indptr))
        means = np.bincount(X.indices, of_entries * values, n_features) / total
        residuals = values - means[X.indices]
        stored = np.bincount(X.indices, of_entries, n_features)
        squares = np.bincount(X.indices, of_entries * residuals**2, n_features)
        variances = (squares + np.maximum(total - stored, 0) * means**2) / total
    else:
        if labels is None:
            residuals = X - np.average(X, axis=0, weights=weights)
        else:
            residuals = X - _class_means(X, labels, weights)[labels]
        _, exponents = np.frexp(largest_sizes(residuals))
        variances = np.average(np.ldexp(residuals, -exponents) ** 2, axis=0, weights=weights)
    deviations = np.ldexp(np.sqrt(variances), exponents)
    overall = 1.0 if labels is None else spread(X, weights, errors=errors)
    return np.where(deviations <= errors, overall, deviations)


def rounding_errors(X: Points) -> NDArray:
    """Bound the differences that rounding causes between values of a feature, of shape (D,).

    >>> bool(np.array([0.1 + 0.2 - 0.3]) < rounding_errors(np.array([[0.3]])))
    True
    """
    return ROUNDING_UNITS * np.finfo(X.dtype).eps * largest_sizes(X).astype(np.float64)


def principal_axes(
    points: NDArray, weights: NDArray, errors: NDArray, L: NDArray | None = None
) -> NDArray:
    """Compute the principal axes of points X·Lᵀ with nonzero variance, by decreasing variance.

    Returns unit rows times L, of shape (k, D), k ≥ 1; `errors` are those of the D features.
    """
    centered = points - np.average(points, axis=0, weights=weights)
    _, roots, rows = svd(centered * np.sqrt(weights)[:, None], full_matrices=False)
    rows = fix_signs(rows.T).T
    axes = rows if L is None else rows @ L
    # An axis counts if its deviation exceeds both the error of the decomposition and the possible
    # effect of the rounding of X along this axis, which grows with the distance from the origin.
    of_svd = roots[0] * max(points.shape) * np.finfo(roots.dtype).eps
    of_points = np.sqrt(weights.sum()) * (np.abs(axes) @ errors)
    significant = roots > np.maximum(of_svd, of_points)
    significant[0] = True
    return axes[significant]


def within_class_whitening(
    X: NDArray, labels: NDArray, weights: NDArray, errors: NDArray
) -> NDArray:
    """Compute the symmetric L with L·S·Lᵀ = I for the shrunk within-class covariance S.

    Features are first divided by their deviations within the classes; otherwise shrinkage would
    dominate features of small scale. O(n·D² + D³).
    """
    scale = spread(X, weights, labels, errors)
    residuals = (X - _class_means(X, labels, weights)[labels]) / scale
    values, vectors = eigh(shrunk_covariance(residuals, weights))
    values = np.maximum(values, np.finfo(np.float64).eps * max(values[-1], 1.0))
    return (vectors / np.sqrt(values)) @ vectors.T / scale


def shrunk_covariance(residuals: NDArray, weights: NDArray) -> NDArray:
    """Compute (1 − s)·S + s·(Tr S/D)·I for the weighted covariance S of centered rows.

    s is given by OAS (Chen, Wiesel, Eldar, Hero 2010), a closed form in Tr S, Tr S² and the number
    of points n, here the sum of the weights: a point of weight 2 counts as two points. OAS depends
    on the mean square of all correlations, and would remove correlations that are strong but rare.
    With many points S is accurate in every direction, so s is at most D/n.
    """
    n, D = float(weights.sum()), residuals.shape[1]
    S = (residuals.T * weights).astype(np.float64) @ residuals / n
    mean_square, square_mean = float(np.mean(S**2)), (float(np.trace(S)) / D) ** 2
    denominator = (n + 1) * (mean_square - square_mean / D)
    oas = math.inf if denominator <= 0 else (mean_square + square_mean) / denominator
    shrinkage = min(1.0, D / n, oas)
    return (1 - shrinkage) * S + shrinkage * np.sqrt(square_mean) * np.eye(D)


def _class_means(X: NDArray, labels: NDArray, weights: NDArray) -> NDArray:
    """Compute the mean of each class, of shape (number of classes, D); 0 without weight."""
    members = csr_array((weights, (labels, np.arange(len(labels)))), dtype=np.float64)
    sums = members @ X
    return sums / np.maximum(np.bincount(labels, weights), np.finfo(np.float64).tiny)[:, None]
