"""Sparse points: the numbers of the same points as an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sparse_tools import dense, draw, draw_triplets, near, repeated

from boostmetric import Metric, boost
from boostmetric.data.labels import Labels
from boostmetric.data.points import as_points, centered, distinct_points
from boostmetric.engines import Threads
from boostmetric.neighbors import nearest_targets_and_impostors
from boostmetric.problem import ComparisonOperator, Comparisons


@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
def test_sparse_optimum_matches_dense(regularizer: str) -> None:
    X, y = draw(n=60, D=7)
    comparisons = Comparisons.from_labels(X, y)
    options: dict[str, Any] = {"solver": "totally_corrective", "alpha": 0.01, "tol": 1e-7}
    other = boost(X, comparisons, "logistic", regularizer=regularizer, **options)
    fit = boost(csr_array(X), comparisons, "logistic", regularizer=regularizer, **options)
    assert fit.status.name == other.status.name == "CONVERGED"
    assert fit.objective() == pytest.approx(other.objective(), rel=1e-6)
    assert near(fit.metric.matrix, other.metric.matrix, 1e-2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_distances_match_dense(dtype: type[np.floating]) -> None:
    X, _ = draw(n=30, D=8, dtype=dtype)
    learned = Metric(np.eye(8)[:, :5], np.arange(1.0, 6.0)).astype(dtype)
    S, eps = csr_array(X), 100 * float(np.finfo(dtype).eps)
    for squared, near_by in ((False, (50 * eps) ** 0.5), (True, 50 * eps)):
        distances = learned.distances(S, S[:7], squared=squared)
        assert distances.shape == (30, 7)
        assert distances.dtype == dtype
        assert np.allclose(distances, learned.distances(X, X[:7], squared=squared), atol=near_by)
        assert np.allclose(learned.distances(X, S[:7], squared=squared), distances, atol=near_by)
    assert (np.diag(learned.distances(S)) == 0).all()
    assert np.allclose(learned.transform(S), learned.transform(X), rtol=eps)


@pytest.mark.parametrize("D", [9, 640])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_operator_matches_dense(
    D: int, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X, _ = draw(n=50, D=D, dtype=dtype)
    comparisons = draw_triplets(50, 80)
    whole = ComparisonOperator(X, comparisons)
    operator = ComparisonOperator(csr_array(X), comparisons)
    duals, directions = rng.random(80).astype(dtype), rng.normal(size=(D, 3)).astype(dtype)
    N = rng.normal(size=(D, D))
    N += N.T
    learned = Metric.from_components(rng.normal(size=(D + 4, D))).astype(dtype)
    values: list[Callable[[Any], NDArray]] = [
        lambda given: given.scatter(duals) @ directions,
        lambda given: given.scatter_matrix(duals),
        lambda given: given.absolute_scatter(duals),
        lambda given: given.responses(directions[:, 0]),
        lambda given: given.measures(directions),
        lambda given: given.values(learned),
        lambda given: given.values_of(N),
    ]
    for value in values:
        expected, result = value(whole), value(operator)
        assert result.dtype == expected.dtype
        assert near(result, expected, 1e4 * float(np.finfo(dtype).eps))


def test_sparse_scatter_does_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = draw(n=50, D=9)
    operator = ComparisonOperator(csr_array(X), draw_triplets(50, 80))
    whole = operator.scatter_matrix(np.ones(80))
    monkeypatch.setattr("boostmetric.problem.comparison_operator.CHUNK_ENTRIES", 30)
    assert np.allclose(operator.scatter_matrix(np.ones(80)), whole)


def test_distant_feature_does_not_reduce_precision(rng: np.random.Generator) -> None:
    X, y = draw(n=80, D=6)
    comparisons, v = Comparisons.from_labels(X, y), rng.normal(size=6)
    expected = ComparisonOperator(X, comparisons).responses(v)
    X = X.copy()
    X[:, 0] = (X[:, 0] + 2**27) - 2**27  # the bits that are left when it is far away
    exact = ComparisonOperator(X, comparisons).responses(v)
    X[:, 0] += 2**27
    far = ComparisonOperator(csr_array(X), comparisons).responses(v)
    assert near(exact, expected, 1e-6)
    assert near(far, exact, 1e-12)


def test_common_features_are_centered() -> None:
    X = np.array([[3.0, 0, 0], [5, 1, 0], [4, 0, 0], [0, 2, 9]])
    points = centered(csr_array(X))
    assert dense(points).tolist() == [[0, 0, 0], [2, 1, 0], [1, 0, 0], [-3, 2, 9]]
    assert np.allclose(dense(points) - dense(points)[0], X - X[0])


def assert_same_search(
    X: NDArray, labels: NDArray, n_targets: int, n_impostors: int, **options: Any
) -> None:
    known = Labels.of(labels)
    sparsely = nearest_targets_and_impostors(csr_array(X), known, n_targets, n_impostors, **options)
    densely = nearest_targets_and_impostors(X, known, n_targets, n_impostors)
    for found, expected in zip(sparsely, densely, strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_targets", "n_impostors"), [(1, 1), (3, 3), (2, 5), (40, 90)])
def test_sparse_neighbors_match_dense(
    n_targets: int, n_impostors: int, dtype: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = draw(n=100, dtype=dtype, seed=n_targets)
    assert_same_search(X, y, n_targets, n_impostors)
    monkeypatch.setattr("boostmetric.neighbors.exact.TILE", 23)
    assert_same_search(X, y, n_targets, n_impostors, threads=Threads(2))


@pytest.mark.parametrize("factor", [1.0, 0.1, 1e-30])
def test_ties_are_broken_by_row(factor: float) -> None:
    rng = np.random.default_rng(3)
    X = factor * rng.integers(0, 2, size=(150, 8))  # on the corners of a cube, many twice
    assert_same_search(X, rng.integers(0, 3, size=150), 4, 4)


def test_close_points_far_from_zero_are_distinguished() -> None:
    rng = np.random.default_rng(1)
    X = 1e-5 * rng.integers(0, 9, size=(120, 40)) * (rng.random((120, 40)) < 0.3)
    X[np.arange(120), np.arange(120) % 10] = 1e4  # the square of which drowns those of differences
    assert_same_search(X, rng.integers(0, 2, size=120), 2, 2)


def test_distinct_points_depend_on_position_and_label() -> None:
    X = csr_array(np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 5.0], [1.0, 0.0], [2.0, 0.0]]))
    X.data[X.data == 5] = -0.0  # stored, but a zero
    first, inverse = distinct_points(X, np.array([0, 1, 0, 1, 1]))
    assert sorted(first.tolist()) == [0, 1, 3]
    assert first[inverse].tolist() == [0, 1, 0, 3, 1]


def test_as_points_copies_only_duplicate_entries() -> None:
    X, _ = draw(n=10, D=4)
    given = csr_array(X)
    assert np.shares_memory(as_points(given).data, given.data)
    messy = repeated(X)
    entries = messy.data.copy()
    assert np.allclose(dense(as_points(messy)), X)
    assert (messy.size, as_points(messy).size) == (2 * X.size, X.size)
    assert np.array_equal(messy.data, entries)
