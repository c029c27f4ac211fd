"""Sparse points and comparisons for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from conftest import read_only
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csr_array

from boostmetric import Comparisons


def repeated(X: NDArray) -> csr_array:
    """A CSR array with each entry stored as two halves, in random order, and explicit zeros."""
    rows, columns = np.nonzero(np.ones_like(X))
    order = np.random.default_rng(0).permutation(2 * X.size)
    halves = np.tile(X.ravel() / 2, 2)[order]
    coo = sparse.coo_matrix(
        (halves, (np.tile(rows, 2)[order], np.tile(columns, 2)[order])), X.shape
    )
    counts = np.bincount(coo.row, minlength=len(X))
    by_row = np.argsort(coo.row, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)])
    return csr_array((coo.data[by_row], coo.col[by_row], starts), shape=X.shape)


def dense(points: Any) -> NDArray:
    whole: NDArray = points.toarray()
    return whole


def draw(
    n: int = 120, D: int = 20, dtype: type[np.floating] = np.float64, seed: int = 0
) -> tuple[NDArray, NDArray]:
    """Sparse points with a dense first feature far from 0; labels depend on the next three."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.2)
    y = np.argmax(X[:, 1:4] + 0.3 * rng.normal(size=(n, 3)), axis=1)
    X[:, 0] = 50 + rng.normal(size=n)
    X = X.astype(dtype)
    read_only(X, y)
    return X, y


def draw_triplets(n: int, m: int) -> Comparisons:
    rows = [np.random.default_rng(r).permutation(n)[:3] for r in range(m)]
    return Comparisons.from_triplets(rows, gaps=0.5, weights=np.linspace(0.5, 2, m))


def near(learned: NDArray, expected: NDArray, share: float) -> bool:
    """Whether matrices differ by at most this share of the largest entry."""
    return bool(np.abs(learned - expected).max() <= share * np.abs(expected).max())
