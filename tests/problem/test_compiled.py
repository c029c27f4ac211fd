from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric import kernels
from boostmetric.mining import NONE, nearest_targets_and_impostors
from boostmetric.problem import ComparisonOperator, Comparisons

compiled = pytest.importorskip("boostmetric.compiled", reason="numba is not installed")

both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def test_little_work_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.compiled(kernels.WORTH - 1) is None
    assert kernels.compiled(kernels.WORTH) is compiled
    monkeypatch.setattr(kernels, "_installed", lambda: False)
    assert kernels.compiled(kernels.WORTH) is None


@both_dtypes
def test_sparse_rows_are_those_of_the_product(
    dtype: type[np.floating], rng: np.random.Generator
) -> None:
    A = csr_array(rng.normal(size=(40, 30)) * (rng.random((40, 30)) < 0.2)).astype(dtype)
    X = rng.normal(size=(30, 7)).astype(dtype)
    out = np.full((12, 7), np.nan, dtype=dtype)
    compiled.sparse_rows(A.indptr, A.indices, A.data, X, 5, out)
    np.testing.assert_allclose(out, (A @ X)[5:17], rtol=1e-5, atol=1e-6)


@both_dtypes
def test_pairs_are_near_where_a_floor_is_reached(
    dtype: type[np.floating], rng: np.random.Generator
) -> None:
    whole, half = rng.normal(size=(50, 9)).astype(dtype), rng.normal(size=50).astype(dtype)
    floors = rng.normal(size=50).astype(dtype)
    i, j = rng.integers(0, 50, (2, 400))
    near = np.empty(400, dtype=bool)
    compiled.near_pairs(i, j, whole, half, floors, near)
    products = np.einsum("pd,pd->p", whole[i], whole[j]) + half[i] + half[j]
    assert np.array_equal(near, products >= np.minimum(floors[i], floors[j]))


@both_dtypes
def test_squares_of_pairs(dtype: type[np.floating], rng: np.random.Generator) -> None:
    points = (1e4 + rng.normal(size=(30, 11))).astype(dtype)
    i, j = rng.integers(0, 30, (2, 100))
    squares = np.empty(100)
    compiled.pair_squares(i, j, points, squares)
    expected = ((points[i].astype(np.float64) - points[j]) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares, expected, rtol=1e-13)


def test_offers_end_in_sorted_lists(rng: np.random.Generator) -> None:
    n, k, m = 6, 3, 200
    points, rows = rng.integers(0, n, m), rng.integers(0, 30, m)
    squares = ((rows * 7) % 5).astype(float)  # a row has one distance; ties are many
    nearest, nearest_rows = np.full((n, k), np.inf), np.full((n, k), NONE)
    changed = np.zeros(m, dtype=bool)
    compiled.offer(points, rows, squares, nearest, nearest_rows, changed)
    for point in range(n):
        known = sorted(
            {(s, r) for p, r, s in zip(points, rows, squares, strict=True) if p == point}
        )
        assert list(zip(nearest[point], nearest_rows[point], strict=True)) == known[:k]
    assert 0 < changed.sum() < m


def crowded(dtype: type[np.floating], D: int) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(D)
    X = rng.integers(0, 4, (180, D)) + 0.25 * rng.integers(0, 2, (180, D))
    return X.astype(dtype), rng.permutation(np.repeat(np.arange(5), [90, 50, 25, 12, 3]))


@both_dtypes
@pytest.mark.parametrize("D", [2, 6, 30])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_neighbours_are_those_of_the_plain_search(
    monkeypatch: pytest.MonkeyPatch, dtype: type[np.floating], D: int, n_jobs: int
) -> None:
    X, labels = crowded(dtype, D)
    monkeypatch.setattr("boostmetric.mining.BLOCK", 40)
    plain = nearest_targets_and_impostors(X, labels, 4, 3)
    monkeypatch.setattr(kernels, "WORTH", 0)
    fast = nearest_targets_and_impostors(X, labels, 4, 3, n_jobs)
    assert all(np.array_equal(a, b) for a, b in zip(plain, fast, strict=True))


@both_dtypes
def test_the_scatter_is_that_of_the_plain_path(
    monkeypatch: pytest.MonkeyPatch, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X = rng.normal(size=(90, 8)).astype(dtype)
    operator = ComparisonOperator(X, Comparisons.from_labels(X, np.arange(90) % 3))
    monkeypatch.setattr("boostmetric.problem.comparison_operator.CHUNK_ENTRIES", 100)
    duals = rng.random(operator.n_matrices).astype(dtype)
    plain = operator.scatter_matrix(duals)
    monkeypatch.setattr(kernels, "WORTH", 0)
    fast = operator.scatter_matrix(duals)
    assert fast.dtype == dtype
    np.testing.assert_allclose(fast, plain, rtol=0, atol=1e-5 * np.abs(plain).max())
