"""What points may be: an array of shape (n, D), or a sparse one by rows (CSR).

A sparse array cannot be centred without filling its zeros, and need not be. In a feature that is 0
for a share 1 − p of the points the mean is at most √(p/(1 − p)) times the standard deviation. Where
p ≤ ½ that is no more than the deviation itself, so differences of points lose no digits to a common
offset. Features with p > ½ are centred like those of an array: what is stored at most doubles.
"""

from __future__ import annotations

import math

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

Points: TypeAlias = NDArray | csr_array
"""An array of shape (n, D), dense or CSR."""


def as_points(X: ArrayLike | csr_array) -> Points:
    """X as an array, or, if it is sparse in any format, as a CSR array without repeated entries.

    >>> from scipy.sparse import coo_matrix
    >>> as_points(coo_matrix([[0.0, 2.0]])).format
    'csr'
    """
    if not issparse(X):
        return np.asarray(X)
    points = csr_array(X)
    if not points.has_canonical_format:
        points = points.copy()
        points.sum_duplicates()
    return points


def as_floats(X: ArrayLike | csr_array) -> Points:
    """The same in float32 or float64: differences of unsigned integers would wrap around."""
    points: Any = as_points(X)
    return points if np.issubdtype(points.dtype, np.floating) else points.astype(np.float64)


def rows_at_once(X: Points, entries: int) -> int:
    """How many rows of X hold about so many entries, those that are stored if it is sparse.

    >>> rows_at_once(np.zeros((100, 5)), 50)
    10
    """
    return max(1, entries * X.shape[0] // max(1, X.size))


def are_identical(X: Points) -> bool:
    """Whether all points are the same.

    >>> are_identical(csr_array([[0.0, 2.0], [0.0, 2.0]]))
    True
    """
    if not issparse(X):
        return bool((X[0] == X).all())
    low, high = _extremes(X)
    return bool((low == high).all())


def largest_sizes(X: Points) -> NDArray:
    """The largest absolute value of every feature, of shape (D,)."""
    low, high = _extremes(X) if issparse(X) else (X.min(axis=0), X.max(axis=0))
    return np.maximum(np.abs(low), np.abs(high))


def deviations(X: Points) -> NDArray:
    """The standard deviation of every feature, of shape (D,), without a copy of X.

    From the mean of the squares, so a deviation is rough that is tiny beside its mean.

    >>> deviations(np.array([[1.0, 5.0], [3.0, 5.0]]))
    array([1., 0.])
    """
    n, D = X.shape
    if isinstance(X, np.ndarray):
        sums = X.sum(axis=0, dtype=np.float64)
        squares = np.einsum("nd,nd->d", X, X, dtype=np.float64)
    else:
        sums, squares = (np.bincount(X.indices, X.data**power, D) for power in (1, 2))
    with np.errstate(over="ignore", invalid="ignore"):  # an offset beyond all bounds
        return np.sqrt(np.maximum(squares / n - (sums / n) ** 2, 0.0))


def centred(X: Points, order: NDArray | None = None) -> Points:
    """X less its mean; raises a ValueError where squared distances would over- or underflow.

    Of a sparse X only features that are stored for more than half of the points are centred.

    Parameters
    ----------
    X : all points
    order : their row numbers in the order they are to have; None leaves them in theirs
    """
    if issparse(X):
        points = _well_filled_centred(X)
        points = points if order is None else points[order]
    else:
        mean = X.mean(axis=0, dtype=np.float64).astype(X.dtype)
        points = X.copy() if order is None else X[order]
        points -= mean
    check_range(points)
    return points


def check_range(points: Points) -> None:
    """Raise a ValueError where squared distances of centred points would over- or underflow."""
    limits = np.finfo(points.dtype)
    largest = float(max(points.max(), -points.min()))
    # A sum of all squares is the largest number formed, the square of one entry the smallest.
    highest = (float(limits.max) / (8 * max(1, points.size))) ** 0.5
    if not (limits.tiny / limits.eps) ** 0.5 < largest < highest:
        raise ValueError(
            f"the values of X differ by up to {largest:.3g}, whose square is out of the range of "
            f"{points.dtype}. Scale X, or use init='scale'."
        )


def distinct_points(X: Points, labels: NDArray) -> tuple[NDArray, NDArray]:
    """First row of every distinct (place, label), and for every row which of these it is.

    Equality is of the coordinates' bits (with −0 = 0), so it costs one sort of the rows.
    """
    keys = _sparse_keys(X, labels) if issparse(X) else _keys(X, labels)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)


def _keys(X: NDArray, labels: NDArray) -> NDArray:
    rows = np.ascontiguousarray(np.column_stack([X + 0.0, labels.astype(X.dtype)]))
    return rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()


def _sparse_keys(X: csr_array, labels: NDArray) -> NDArray:
    """A number for each row, the same for those that are equal."""
    if not X.data.all():
        X = X.copy()
        X.eliminate_zeros()
    numbers: dict[tuple[bytes, bytes, int], int] = {}
    rows = zip(X.indptr[:-1], X.indptr[1:], labels.tolist(), strict=True)
    keys = [
        (X.indices[begin:end].tobytes(), X.data[begin:end].tobytes(), label)
        for begin, end, label in rows
    ]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)


def _extremes(X: csr_array) -> tuple[NDArray, NDArray]:
    """The lowest and the highest value of every feature."""
    return X.min(axis=0).toarray().ravel(), X.max(axis=0).toarray().ravel()


def _well_filled_centred(X: csr_array) -> csr_array:
    n, D = X.shape
    filled = np.flatnonzero(2 * np.bincount(X.indices, minlength=D) > n)
    if len(filled) == 0:
        return X
    means = np.bincount(X.indices, X.data, D)[filled] / n
    shifts = np.tile(means.astype(X.dtype), n), np.tile(filled, n), np.arange(n + 1) * len(filled)
    return X - csr_array(shifts, shape=X.shape)


def binary_exponent(points: Points) -> int:
    """The e for which the largest absolute value lies in [2**(e - 1), 2**e), and 0 for zeros.

    >>> binary_exponent(np.array([[0.0, -5.0]]))
    3
    """
    if points.size == 0:
        return 0
    return math.frexp(max(float(points.max()), -float(points.min())))[1]


def times_two_to(points: Points, exponent: int) -> Points:
    """points·2**exponent, exactly; in place if they are dense."""
    if isinstance(points, np.ndarray):
        return np.ldexp(points, exponent, out=points)
    return csr_array(
        (np.ldexp(points.data, exponent), points.indices, points.indptr), shape=points.shape
    )
