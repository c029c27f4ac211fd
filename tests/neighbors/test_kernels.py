from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric.data.labels import Labels
from boostmetric.engines import Threads
from boostmetric.neighbors import NONE, kernels, nearest_targets_and_impostors
from boostmetric.neighbors.ranking import pair_squares
from boostmetric.problem import ComparisonOperator, Comparisons

pytest.importorskip("numba")
compiled = kernels.compiled_loops(kernels.MIN_WORK)

both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def test_little_work_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.compiled_loops(kernels.MIN_WORK - 1) is None
    assert kernels.compiled_loops(kernels.MIN_WORK) is compiled
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    kernels._compiled.cache_clear()
    assert kernels.compiled_loops(kernels.MIN_WORK) is None
    kernels._compiled.cache_clear()


@both_dtypes
def test_sparse_rows_match_the_product(dtype: type[np.floating], rng: np.random.Generator) -> None:
    A = csr_array(rng.normal(size=(40, 30)) * (rng.random((40, 30)) < 0.2)).astype(dtype)
    X = rng.normal(size=(30, 7)).astype(dtype)
    out = np.full((12, 7), np.nan, dtype=dtype)
    compiled.sparse_rows(A.indptr, A.indices, A.data, X, 5, out)
    np.testing.assert_allclose(out, (A @ X)[5:17], rtol=1e-5, atol=1e-6)


@both_dtypes
def test_near_pairs_reach_a_floor(dtype: type[np.floating], rng: np.random.Generator) -> None:
    points, others = rng.normal(size=(50, 9)).astype(dtype), rng.normal(size=(30, 9)).astype(dtype)
    (halves, floors), (other_halves, other_floors) = (
        rng.normal(size=(2, n)).astype(dtype) for n in (50, 30)
    )
    positions = np.sort(rng.choice(1500, 400, replace=False))
    i, j = np.empty((2, 401), dtype=np.intp)
    n_near = compiled.near_pairs(
        positions, points, halves, floors, others, other_halves, other_floors, i, j
    )
    products = points @ others.T + halves[:, None] + other_halves
    near = (products >= floors[:, None]) | (products >= other_floors)
    expected = positions[near.ravel()[positions]]
    assert 0 < n_near < 400
    assert (30 * i + j)[:n_near].tolist() == expected.tolist()


@both_dtypes
@pytest.mark.parametrize("D", [1, 2, 3, 11, 64, 165])
def test_pair_squares_are_bitwise_identical(
    dtype: type[np.floating], D: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boostmetric.neighbors.ranking.rounded", lambda squares: squares)
    points, others = (1e4 + rng.normal(size=(2, 30, D))).astype(dtype)
    i, j = rng.integers(0, 30, (2, 1000))
    numpy_result = pair_squares(points, i, others, j)
    assert np.array_equal(pair_squares(points, i, others, j, compiled), numpy_result)
    expected = ((points[i].astype(np.float64) - others[j]) ** 2).sum(axis=1)
    np.testing.assert_allclose(numpy_result, expected, rtol=1e-13)


def test_offers_yield_sorted_lists(rng: np.random.Generator) -> None:
    n, k, m = 6, 3, 200
    points, rows = rng.integers(0, n, m), rng.integers(0, 30, m)
    squares = ((rows * 7) % 5).astype(float)  # one distance per row, many ties
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
def test_neighbors_match_the_numpy_search(
    monkeypatch: pytest.MonkeyPatch, dtype: type[np.floating], D: int, n_jobs: int
) -> None:
    X, labels = crowded(dtype, D)
    monkeypatch.setattr("boostmetric.neighbors.exact.TILE", 40)
    numpy_result = nearest_targets_and_impostors(X, Labels.of(labels), 4, 3)
    monkeypatch.setattr(kernels, "MIN_WORK", 0)
    with Threads(n_jobs) as threads:
        compiled_result = nearest_targets_and_impostors(X, Labels.of(labels), 4, 3, threads=threads)
    assert all(np.array_equal(a, b) for a, b in zip(numpy_result, compiled_result, strict=True))


@both_dtypes
def test_scatter_matches_numpy(
    monkeypatch: pytest.MonkeyPatch, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X = rng.normal(size=(90, 8)).astype(dtype)
    operator = ComparisonOperator(X, Comparisons.from_labels(X, np.arange(90) % 3))
    monkeypatch.setattr("boostmetric.problem.comparison_operator.CHUNK_ENTRIES", 100)
    duals = rng.random(operator.n_matrices).astype(dtype)
    numpy_result = operator.scatter_matrix(duals)
    monkeypatch.setattr(kernels, "MIN_WORK", 0)
    compiled_result = operator.scatter_matrix(duals)
    assert compiled_result.dtype == dtype
    np.testing.assert_allclose(
        compiled_result, numpy_result, rtol=0, atol=1e-5 * np.abs(numpy_result).max()
    )
