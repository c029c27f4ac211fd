"""Points: arrays of shape (n, D), dense or sparse (CSR).

Centering a sparse array would fill its zeros, and is rarely necessary. If a feature is nonzero for
a share p of the points, its mean is at most √(p/(1 − p)) times its standard deviation. For p ≤ ½
the mean does not exceed the standard deviation, so differences of points lose no digits to a common
offset. Features with p > ½ are centered, which at most doubles the number of stored entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils import gen_batches

Points: TypeAlias = NDArray | csr_array
"""An array of shape (n, D), dense or CSR."""


def as_points(X: ArrayLike | csr_array) -> Points:
    """Convert X to an array, or, if it is sparse, to a CSR array without duplicate entries.

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
    """Convert X to an array of floats; differences of unsigned integers would wrap around."""
    points: Any = as_points(X)
    return points if np.issubdtype(points.dtype, np.floating) else points.astype(np.float64)


def rows_at_once(X: Points, entries: int) -> int:
    """The number of rows of X that contain about this many entries (stored ones, if sparse).

    >>> rows_at_once(np.zeros((100, 5)), 50)
    10
    """
    return max(1, entries * X.shape[0] // max(1, X.size))


def feature_range(X: Points) -> tuple[NDArray, NDArray]:
    """The lowest and highest value of every feature, of shape (D,)."""
    low, high = X.min(axis=0), X.max(axis=0)
    return (low.toarray().ravel(), high.toarray().ravel()) if issparse(X) else (low, high)


def are_identical(X: Points) -> bool:
    """Whether all points are identical."""
    low, high = feature_range(X)
    return bool((low == high).all())


def largest_sizes(X: Points) -> NDArray:
    """The largest absolute value of every feature, of shape (D,)."""
    return np.maximum(*np.abs(feature_range(X)))


def deviations(X: Points) -> NDArray:
    """The standard deviation of every feature, of shape (D,), without a copy of X.

    Computed from the mean of squares, so a deviation much smaller than the mean is inaccurate.

    >>> deviations(np.array([[1.0, 5.0], [3.0, 5.0]]))
    array([1., 0.])
    """
    n, D = X.shape
    if isinstance(X, np.ndarray):
        sums = X.sum(axis=0, dtype=np.float64)
        squares = np.einsum("nd,nd->d", X, X, dtype=np.float64)
    else:
        sums, squares = (np.bincount(X.indices, X.data**power, D) for power in (1, 2))
    with np.errstate(over="ignore", invalid="ignore"):  # squares may overflow
        return np.sqrt(np.maximum(squares / n - (sums / n) ** 2, 0.0))


def binary_exponent(points: Points) -> int:
    """The exponent e such that the largest absolute value lies in [2**(e − 1), 2**e).

    It is 0 if all values are 0.

    >>> binary_exponent(np.array([[0.75, -5.0]]))
    3
    """
    values: Any = points.data if issparse(points) else points
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    return math.frexp(largest)[1]


def scaling_exponent(X: Points) -> int:
    """An exponent k such that the values of 2**k·X differ by at most 1 within each feature.

    Squares of differences of such points neither overflow nor underflow, and scaling by a power of
    two is exact. If a feature is so far from the origin that it would overflow, k is smaller.
    Raises a ValueError if differences of X overflow.

    >>> scaling_exponent(np.array([[9.0, 0.0], [9.0, 0.25]]))
    1
    """
    low, high = feature_range(X)
    with np.errstate(over="ignore"):
        ranges = high - low
    check_range(ranges)
    # The sum of all values of a feature must be finite, too.
    highest = np.finfo(X.dtype).maxexp - X.shape[0].bit_length() - 1
    return min(-binary_exponent(ranges), highest - binary_exponent(X))


def scale(points: Points, exponent: int) -> None:
    """Multiply points by 2**exponent in place; the power itself may overflow.

    >>> points = np.array([[3.0, 0.5]])
    >>> scale(points, 2)
    >>> points
    array([[12.,  2.]])
    """
    values: Any = points.data if issparse(points) else points
    if abs(exponent) < np.finfo(values.dtype).maxexp:
        values *= values.dtype.type(2.0**exponent)  # several times as fast as ldexp
    else:
        np.ldexp(values, exponent, out=values)


def centered(X: Points, order: NDArray | None = None) -> Points:
    """Subtract the mean of X; raise a ValueError if the result overflows.

    If X is sparse, only features that are stored for more than half of the points are centered.

    Parameters
    ----------
    X : all points
    order : row indices in the order of the result; None keeps the order of X
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if not isinstance(X, np.ndarray):
            n, D = X.shape
            dense = np.flatnonzero(2 * np.bincount(X.indices, minlength=D) > n)
            points = X
            if len(dense):
                means = (np.bincount(X.indices, X.data, D)[dense] / n).astype(X.dtype)
                starts = np.arange(n + 1) * len(dense)
                points = X - csr_array((np.tile(means, n), np.tile(dense, n), starts), X.shape)
            points = points if order is None else points[order]
        else:
            # Always C order, because rounding of sums and products depends on the memory layout.
            points = X.copy(order="C") if order is None else X.take(order, axis=0)
            mean = points.mean(axis=0, dtype=np.float64)
            # The rounded mean of a constant feature may differ from its value.
            points -= np.clip(mean, points.min(axis=0), points.max(axis=0)).astype(X.dtype)
    if not is_finite(points) and not is_finite(X):
        raise ValueError("X must be finite, but it contains NaN or infinity.")
    check_range(points)
    return points


def is_finite(X: Points) -> bool:
    """Whether all values are finite; NaN and infinities show up in the extremes."""
    return bool(np.isfinite(X.max()) and np.isfinite(X.min()))


def check_range(differences: Points) -> None:
    """Raise a ValueError if differences of points are not finite."""
    if not is_finite(differences):
        raise ValueError(
            f"The differences of the values of X overflow in {differences.dtype}. Scale X down."
        )


def row_hashes(X: NDArray, seed: int = 0) -> NDArray:
    """64-bit hashes of the rows, equal for equal rows (with −0 = 0), of shape (n,).

    A sum of the mixed bits of the values with random factors; different rows have the same hash
    with probability of about 2**-64.
    """
    values = np.ascontiguousarray(X) + X.dtype.type(0)
    bits = values.view(np.uint64 if values.dtype.itemsize == 8 else np.uint32).astype(np.uint64)
    random = np.random.default_rng(seed)
    factors = random.integers(2**64, size=X.shape[1], dtype=np.uint64) | np.uint64(1)
    return _mixed(_mixed(bits) @ factors)


def content_hashes(X: Points, seed: int = 0, rows: NDArray | None = None) -> NDArray:
    """Return 64-bit hashes of the rows, of shape (n,), for samples and folds.

    The hash of a row depends on its values and on those of the columns, but neither on the order of
    the rows nor on that of the columns. Dense and sparse X have the same hashes.

    Parameters
    ----------
    X : array of shape (n, D), dense or sparse
    seed : other seeds give other hashes
    rows : increasing row numbers; hashes of these rows only, on which the others have no influence

    >>> X = np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]])
    >>> hashes = content_hashes(X)
    >>> np.array_equal(content_hashes(X[::-1, [2, 0, 1]]), hashes[::-1])
    True
    """
    if rows is not None and len(rows) < X.shape[0]:
        X = X[rows]
    n = X.shape[0]
    if n == 0:
        return np.empty(0, dtype=np.uint64)
    key = _mixed(np.array([seed], dtype=np.uint64) + np.uint64(1))
    # The mixed bits of 0 are 0, so entries that a sparse X does not store have no effect.
    if isinstance(X, np.ndarray):
        batches = [X[batch] for batch in gen_batches(n, rows_at_once(X, 1 << 18))]
    else:
        batches = [csr_array((_mixed_bits(X.data), X.indices, X.indptr), X.shape)]

    def bits() -> Iterator[Any]:
        yield from map(_mixed_bits, batches) if isinstance(X, np.ndarray) else batches

    def hashes_of(columns: NDArray) -> NDArray:
        factors = _mixed(columns + key) | np.uint64(1)
        return _mixed(np.concatenate([each @ factors for each in bits()]))

    def sums_over(rows: NDArray) -> NDArray:
        ends = np.cumsum([each.shape[0] for each in batches])[:-1]
        parts = zip(bits(), np.split(rows, ends), strict=True)
        return np.asarray(sum(each.T @ part for each, part in parts))

    columns = sums_over(np.ones(n, dtype=np.uint64))
    hashes = hashes_of(columns)
    found = columns[columns > 0]
    if len(np.unique(found)) < len(found):
        # Some columns have the same values, as binary ones may, but in other rows.
        hashes = hashes_of(sums_over(hashes))
    return hashes


def _mixed_bits(values: NDArray) -> NDArray:
    """Mix the bits of numbers, in float64 and with −0 = 0."""
    return _mixed((values.astype(np.float64) + 0.0).view(np.uint64))


def checksum(X: NDArray, first_row: int = 0) -> int:
    """A 64-bit checksum of all rows; checksums of parts of X add up modulo 2**64.

    >>> X = np.arange(6.0).reshape(3, 2)
    >>> checksum(X) == (checksum(X[:1]) + checksum(X[1:], first_row=1)) % 2**64
    True
    """
    rows = np.arange(first_row, first_row + len(X), dtype=np.uint64)
    return int(_mixed(row_hashes(X) + _mixed(rows)).sum(dtype=np.uint64))


def _mixed(numbers: NDArray) -> NDArray:
    """Mix 64-bit numbers such that each bit depends on all bits (SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray = numbers ^ (numbers >> np.uint64(31))
    return mixed


def distinct_points(X: Points, labels: NDArray) -> tuple[NDArray, NDArray]:
    """The first row of each distinct (point, label), and the position of each row among these.

    Points are equal if their bits are (with −0 = 0).
    """
    n = X.shape[0]
    if not isinstance(X, np.ndarray):
        if not X.data.all():
            X = X.copy()
            X.eliminate_zeros()
        numbers: dict[tuple[bytes, bytes, int], int] = {}
        keys = np.empty(n, dtype=np.intp)
        for row, label in enumerate(labels.tolist()):
            own = slice(X.indptr[row], X.indptr[row + 1])
            key = X.indices[own].tobytes(), X.data[own].tobytes(), label
            keys[row] = numbers.setdefault(key, len(numbers))
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return first, inverse.reshape(-1)
    # 1) hash the bits of each row; sorting whole rows takes ten times as long
    rows = np.ascontiguousarray(np.column_stack([X + 0.0, labels.astype(X.dtype)]))
    bits = rows.view(f"u{rows.dtype.itemsize}")
    multipliers = np.random.default_rng(0).integers(1 << 63, size=rows.shape[1], dtype=np.uint64)
    hashes = np.einsum("nd,d->n", bits, multipliers, dtype=np.uint64, casting="unsafe")
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    # 2) compare rows of equal hashes completely
    same = np.flatnonzero(counts[inverse.reshape(-1)] > 1)
    alone = np.delete(np.arange(n), same)
    whole = rows[same].view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    position = np.empty(n, dtype=np.intp)
    position[alone], position[same] = np.arange(len(alone)), len(alone) + inverse.reshape(-1)
    return np.concatenate([alone, same[first]]), position


def transform_points(X: Points, L: Points) -> Points:
    """X·Lᵀ; equal points have equal images.

    A product of BLAS may depend on the position of a row in the last digits. Duplicates would then
    no longer be recognized, and a point of weight 2 not be equivalent to a point given twice.

    >>> transform_points(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([[3.0, 1.0]]))
    array([[5.],
           [1.]])
    """
    images: Points = X @ L.T
    if issparse(X):  # rows are computed one by one
        return images
    first, position = distinct_points(X, np.zeros(len(X), dtype=np.intp))
    return images if len(first) == len(X) else images[first[position]]
