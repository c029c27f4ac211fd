"""Starting transformations: the space in which the first pass looks for neighbours and boosts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh, svd
from sklearn.utils import check_array

from boostmetric.metric import fix_signs

INITS = ("scale", "whiten", "pca", "lda")
"""The transformations that have a name."""


def starting_transformation(
    init: str | ArrayLike | None,
    X: NDArray,
    labels: NDArray | None = None,
    weights: NDArray | None = None,
    n_components: int | float | None = None,
) -> NDArray | None:
    """The transformation L of shape (d, D) that `init` stands for; points are mapped to X·Lᵀ.

    Parameters
    ----------
    init : one of
        None — none, which is also what is returned;
        "scale" — every feature divided by its standard deviation;
        "whiten" — the inverse root of the within-class covariance, shrunk (`shrunk_covariance`);
        "pca" — the principal axes, without those of no variance;
        "lda" — "whiten", then the axes that the class means span;
        or an array of shape (d, D)
    X : array of shape (n, D)
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
    weights = np.ones(len(X)) if weights is None else weights
    kept = n_components if isinstance(n_components, int) else None
    if not isinstance(init, str):
        L = check_array(init, dtype=np.float64)
        if L.shape[1] != X.shape[1]:
            raise ValueError(
                f"init of shape {L.shape} does not map the {X.shape[1]} features of X: "
                f"(d, {X.shape[1]}) is needed."
            )
    elif init == "scale":
        L = np.diag(1 / spread(X, weights))
    elif init == "pca":
        L = principal_axes(X, weights)[:kept]
    else:
        assert labels is not None
        _, codes = np.unique(labels, return_inverse=True)
        L = within_class_whitening(X, codes, weights)
        if init == "lda":
            counts = np.bincount(codes, weights)
            means = _class_means(X @ L.T, codes, weights)
            L = principal_axes(means[counts > 0], counts[counts > 0])[:kept] @ L
    return L


def spread(X: NDArray, weights: NDArray, labels: NDArray | None = None) -> NDArray:
    """The standard deviation of every feature, within the classes if there are labels.

    A feature that is constant within the classes, up to rounding, has its overall deviation
    instead; one that is constant overall has 1.
    """
    means = np.average(X, axis=0, weights=weights)
    if labels is not None:
        means = _class_means(X, labels, weights)[labels]
    squares = np.square(X - means, dtype=np.float64)
    deviations = np.sqrt(np.average(squares, axis=0, weights=weights))
    constant = deviations <= 16 * np.finfo(X.dtype).eps * np.abs(X).max(axis=0)
    return np.where(constant, 1.0 if labels is None else spread(X, weights), deviations)


def principal_axes(X: NDArray, weights: NDArray) -> NDArray:
    """Unit rows: the eigenvectors of the covariance by falling variance, without null ones."""
    centred = X - np.average(X, axis=0, weights=weights)
    _, roots, rows = svd(centred * np.sqrt(weights)[:, None], full_matrices=False)
    rank = max(1, int((roots > roots[0] * max(X.shape) * np.finfo(roots.dtype).eps).sum()))
    return fix_signs(rows[:rank].T).T


def within_class_whitening(X: NDArray, labels: NDArray, weights: NDArray) -> NDArray:
    """L with L·S·Lᵀ = I for the shrunk within-class covariance S, features scaled beforehand.

    Features are first divided by their spread within the classes, so that shrinking does not
    drown those of small scale; the inverse root is the symmetric one. O(n·D² + D³).
    """
    scale = spread(X, weights, labels)
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
