"""Neighbor tables do not depend on the unit of X."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from boostmetric import Comparisons
from boostmetric.data.points import binary_exponent, scaling_exponent


class BruteForce:
    """A custom index."""

    def fit(self, X: NDArray) -> BruteForce:
        self.points = X
        return self

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[None, NDArray]:
        squares = cdist(X, self.points, "sqeuclidean").astype(X.dtype)
        return None, np.argsort(squares, axis=1, kind="stable")[:, :n_neighbors]


def dense(X: NDArray, y: NDArray) -> Comparisons:
    return Comparisons.from_labels(X, y)


def sparse(X: NDArray, y: NDArray) -> Comparisons:
    return Comparisons.from_labels(
        csr_array(np.where(np.arange(X.size).reshape(X.shape) % 3, 0, X)), y
    )


def multilabel(X: NDArray, y: NDArray) -> Comparisons:
    return Comparisons.from_labels(X, np.stack([y == 0, y != 1, y == 2], axis=1).astype(int))


def index(X: NDArray, y: NDArray) -> Comparisons:
    return Comparisons.from_labels(X, y, index=BruteForce())


@pytest.mark.parametrize("form", [dense, sparse, multilabel, index])
@pytest.mark.parametrize(("dtype", "exponent"), [("float64", 300), ("float32", 100)])
def test_neighbor_tables_do_not_depend_on_scale(form: Any, dtype: str, exponent: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = (rng.normal(size=(300, 6)) + 3 * (y == 1)[:, None] * np.eye(6)[0]).astype(dtype)
    expected = form(X, y)
    for power in (exponent, -exponent):
        scaled = form(np.ldexp(X, power), y)
        for name in ("pairs", "near", "far"):
            assert np.array_equal(getattr(scaled, name), getattr(expected, name))
        assert scaled.recall == expected.recall


@pytest.mark.parametrize("form", [dense, multilabel, index])
@pytest.mark.parametrize("offset", [1.0, -(2.0**60), 2.0**500])
def test_constant_column_does_not_hide_small_differences(form: Any, offset: float) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 4)), rng.integers(0, 3, 120)
    X[:, 0] = 0
    expected = form(X, y)
    X = np.ldexp(X, -600)
    X[:, 0] = offset
    assert np.array_equal(form(X, y).pairs, expected.pairs)


@pytest.mark.parametrize("form", [dense, sparse, multilabel, index])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_overflowing_differences_are_rejected(form: Any, dtype: type[np.floating]) -> None:
    X = np.zeros((6, 2), dtype=dtype)
    X[:, 0] = np.array([-1, -0.5, 0, 0.25, 0.5, 1]) * np.finfo(dtype).max
    X[:, 1] = X[:, 0]
    message = f"differences of the values of X overflow in {dtype.__name__}"
    with pytest.raises(ValueError, match=message):
        form(X, np.array([0, 1, 2] * 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_numbers_yield_the_same_neighbors(dtype: type[np.floating]) -> None:
    limits, y = np.finfo(dtype), np.array([0, 0, 1, 1, 2, 2])
    X = np.array([[0.0], [1], [3], [4], [6], [7]], dtype=dtype)
    expected = Comparisons.from_labels(X, y, 1, 1)
    for size in (limits.max / 8, limits.smallest_subnormal):
        assert np.array_equal(
            Comparisons.from_labels(X * dtype(size), y, 1, 1).pairs, expected.pairs
        )


def test_binary_exponent_bounds_the_largest_absolute_value() -> None:
    values = [1.0, -3.0, 4.0, 5e-324, 1e308, -0.75]
    for value in values:
        for points in (np.array([[value, 0.0]]), csr_array([[0.0, value]])):
            exponent = binary_exponent(points)
            assert np.ldexp(0.5, exponent) <= abs(value)
            assert abs(value) / 2 < np.ldexp(0.5, exponent)
    assert binary_exponent(np.zeros((2, 2))) == 0
    assert binary_exponent(csr_array((2, 2))) == 0
    assert binary_exponent(np.array([[np.float32(2.0**-149)]])) == -148


def test_scaled_points_stay_finite() -> None:
    X = np.array([[1e300, 0.0], [1e300, 1e-200]])
    assert np.isfinite(np.ldexp(X, scaling_exponent(X))).all()
    assert np.abs(np.ldexp(X, scaling_exponent(X))).max() > 1e305
