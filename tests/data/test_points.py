from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from boostmetric.data import points
from boostmetric.data.points import Points, content_hashes, transform_points


class Unequal(np.ndarray):
    """A matrix whose products depend on the position of a row, as with some kernels of BLAS."""

    def __matmul__(self, other: Any) -> NDArray:
        products: NDArray = np.asarray(self) @ other
        return products * (1 + 1e-15 * np.arange(len(products)))[:, None]


def test_equal_points_have_equal_images(rng: np.random.Generator) -> None:
    X = rng.normal(size=(6, 3))[[0, 1, 0, 2, 3, 1, 4, 5]]
    L = rng.normal(size=(2, 3))
    products = X.view(Unequal) @ L.T
    assert (products[0] != products[2]).any()
    images = transform_points(X.view(Unequal), L)
    np.testing.assert_array_equal(images[[0, 1]], images[[2, 5]])
    np.testing.assert_allclose(images, X @ L.T, rtol=1e-13)
    np.testing.assert_allclose(transform_points(csr_array(X), L), X @ L.T, rtol=1e-13)


@pytest.fixture
def rough(rng: np.random.Generator) -> NDArray:
    """Points with equal rows, zeros of either sign, and values that float32 can represent."""
    X = rng.normal(size=(80, 7)).astype(np.float32).astype(np.float64)
    X[rng.random(X.shape) < 0.4] = 0
    X[rng.random(X.shape) < 0.1] = -0.0
    X[60:] = X[:20]
    return X


def test_content_hashes_of_distinct_rows_differ(rough: NDArray) -> None:
    hashes = content_hashes(rough)
    assert hashes.dtype == np.uint64
    assert hashes.shape == (80,)
    np.testing.assert_array_equal(hashes[60:], hashes[:20])
    assert len(np.unique(hashes)) == len(np.unique(rough, axis=0)) == 60


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_content_hashes_do_not_depend_on_the_order(
    form: Any, rough: NDArray, rng: np.random.Generator
) -> None:
    hashes = content_hashes(form(rough))
    rows, columns = rng.permutation(80), rng.permutation(7)
    np.testing.assert_array_equal(content_hashes(form(rough[rows])), hashes[rows])
    np.testing.assert_array_equal(content_hashes(form(rough[:, columns])), hashes)
    # Values within a row belong to their columns.
    exchanged = rough.copy()
    exchanged[:, :2] = np.where(np.arange(80)[:, None] < 40, rough[:, :2], rough[:, 1::-1])
    assert (content_hashes(form(exchanged)) != hashes).mean() > 0.5


def unsorted(X: NDArray) -> csr_array:
    """A CSR array with stored zeros and unsorted indices."""
    n, D = X.shape
    columns = np.tile(np.arange(D)[::-1], n)
    return csr_array((X[:, ::-1].ravel(), columns, D * np.arange(n + 1)), X.shape)


@pytest.mark.parametrize(
    "form",
    [
        csr_array,
        unsorted,
        np.asfortranarray,
        np.float32,
        lambda X: csr_array(X.astype(np.float32)),
        lambda X: csr_array(csc_array(X)),
    ],
    ids=["csr", "unsorted", "fortran", "float32", "sparse float32", "from csc"],
)
def test_content_hashes_do_not_depend_on_the_representation(form: Any, rough: NDArray) -> None:
    expected = content_hashes(rough + 0.0)  # without negative zeros
    np.testing.assert_array_equal(content_hashes(form(rough)), expected)


def test_content_hashes_of_batches(rough: NDArray, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = content_hashes(rough)
    monkeypatch.setattr(points, "rows_at_once", lambda X, entries: 7)
    np.testing.assert_array_equal(content_hashes(rough), expected)


def test_content_hashes_depend_on_the_seed(rng: np.random.Generator) -> None:
    X: Points = rng.normal(size=(2000, 3))
    hashes = np.stack([content_hashes(X, seed) for seed in range(4)])
    ranks = hashes.argsort(axis=1).argsort(axis=1)
    # The standard deviation of the correlation of independent orders is 0.02.
    assert np.abs(np.corrcoef(ranks) - np.eye(4)).max() < 0.1
    np.testing.assert_array_equal(content_hashes(X, 2), hashes[2])


def test_each_bit_of_content_hashes_is_random(rng: np.random.Generator) -> None:
    X = np.arange(4000.0).reshape(2000, 2)
    bits = np.unpackbits(content_hashes(X).view(np.uint8).reshape(2000, 8), axis=1)
    # 0.5 ± 0.011; hashes of similar numbers are as different as those of others
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.06
    correlations = np.corrcoef(np.column_stack([bits, np.arange(2000)]).T)
    assert np.abs(correlations - np.eye(65)).max() < 0.15


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_content_hashes_of_binary_rows_differ(form: Any, rng: np.random.Generator) -> None:
    X = np.unique(rng.integers(0, 2, size=(200, 12)).astype(float), axis=0)
    hashes = content_hashes(form(X))
    assert len(np.unique(hashes)) == len(X)
    rows, columns = rng.permutation(len(X)), rng.permutation(12)
    np.testing.assert_array_equal(content_hashes(form(X[rows][:, columns])), hashes[rows])
