from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric.data.points import transform_points


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
