from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray

from boostmetric import Comparisons, Metric
from boostmetric.evaluation.knn import knn_error, satisfied_share


def wrong_by_loop(
    X_train: NDArray, y_train: NDArray, X_test: NDArray, y_test: NDArray, k: int
) -> NDArray:
    wrong = []
    for x, label in zip(X_test, y_test, strict=True):
        order = sorted(range(len(X_train)), key=lambda i: float(np.sum((X_train[i] - x) ** 2)))
        votes = Counter(y_train[i] for i in order[:k])
        winners = [y_train[i] for i in order[:k] if votes[y_train[i]] == max(votes.values())]
        wrong.append(winners[0] != label)
    return np.array(wrong)


@pytest.mark.parametrize(
    ("k", "n_classes", "dtype"),
    [(1, 2, int), (2, 3, str), (3, 9, int), (4, 3, int), (7, 9, str), (100, 2, str)],
)
def test_knn_error_matches_loop(k: int, n_classes: int, dtype: type[int | str]) -> None:
    rng = np.random.default_rng([k, n_classes])
    X, y = rng.standard_normal((110, 2)), np.array(rng.integers(0, n_classes, 110), dtype=dtype)
    read_only(X, y)
    data = X[:60], y[:60], X[60:], y[60:]
    wrong = wrong_by_loop(*data, k)
    assert 0 < wrong.mean() < 1
    assert knn_error(*data, k) == pytest.approx(wrong.mean())
    assert knn_error(*data, k, n_jobs=2) == pytest.approx(wrong.mean())
    weight = rng.exponential(size=50)
    expected = np.sum(weight * wrong) / np.sum(weight)
    assert knn_error(*data, k, sample_weight=weight) == pytest.approx(expected)


def test_knn_error_uses_three_neighbors_by_default(blobs: tuple[NDArray, NDArray]) -> None:
    X, y = blobs
    data = X[::2], y[::2], X[1::2], y[1::2]
    assert knn_error(*data) == wrong_by_loop(*data, 3).mean()


@pytest.mark.parametrize(
    ("k", "winner"), [(1, "z"), (2, "z"), (3, "z"), (4, "m"), (5, "m"), (6, "a"), (7, "a")]
)
def test_ties_go_to_the_class_of_the_nearest_point(k: int, winner: str) -> None:
    X, y = np.arange(1.0, 8.0)[:, None], np.array(list("zmamaaz"))
    assert knn_error(X, y, [[0.0]], [winner], k) == 0


@pytest.mark.parametrize("k", [1, 4, 100])
def test_leave_one_out_matches_loop(k: int, rng: np.random.Generator) -> None:
    X, y = rng.standard_normal((60, 2)), rng.integers(0, 3, 60).astype(str)
    rest = [np.delete(np.arange(60), i) for i in range(60)]
    errors = [knn_error(X[r], y[r], X[[i]], y[[i]], k) for i, r in enumerate(rest)]
    assert knn_error(X, y, n_neighbors=k) == pytest.approx(np.mean(errors))
    assert knn_error(X, y, n_neighbors=k, n_jobs=2) == pytest.approx(np.mean(errors))


def test_leave_one_out_excludes_the_point_among_duplicates() -> None:
    assert knn_error(np.zeros((4, 1)), list("abcd"), n_neighbors=1) == 1


def test_knn_error_requires_both_test_arguments() -> None:
    with pytest.raises(ValueError, match="X_test and y_test must be passed together"):
        knn_error([[0.0], [1.0]], list("ab"), [[0.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_satisfied_share_counts_positive_margins(
    dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X = rng.standard_normal((15, 3)).astype(dtype)
    L = rng.standard_normal((2, 3)).astype(dtype)
    triplets = np.array([rng.permutation(15)[:3] for _ in range(50)])
    gaps, weights = rng.standard_normal(50), rng.integers(0, 4, 50).astype(float)
    read_only(X, L, triplets, gaps, weights)
    metric = Metric.from_components(L)
    distances = [
        [float(np.sum((L @ (X[a] - X[end])) ** 2)) for end in (b, c)] for a, b, c in triplets
    ]
    for given in (None, gaps):
        margins = np.array([far - near for near, far in distances]) - (
            0 if given is None else given
        )
        made = Comparisons.from_triplets(triplets, gaps=given)
        assert satisfied_share(metric, X, made) == pytest.approx(np.mean(margins > 0))
        made = Comparisons.from_triplets(triplets, gaps=given, weights=weights)
        expected = weights[margins > 0].sum() / weights.sum()
        assert satisfied_share(metric, X, made) == pytest.approx(expected)


def test_satisfied_share_excludes_margins_of_zero() -> None:
    X = np.array([[0.0], [1.0], [-1.0], [3.0]])
    comparisons = Comparisons.from_triplets([[0, 1, 2], [0, 1, 3]])
    assert satisfied_share(Metric(np.eye(1), np.ones(1)), X, comparisons) == 0.5
