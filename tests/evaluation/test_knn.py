from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.neighbors import KNeighborsClassifier

from boostmetric import Comparisons, Metric
from boostmetric.evaluation.knn import (
    are_satisfied,
    best_scale,
    knn_error,
    neighbor_errors,
    satisfied_share,
)


def wrong_by_loop(
    X_train: NDArray, y_train: NDArray, X_test: NDArray, y_test: NDArray, k: int
) -> NDArray:
    wrong = []
    for x, label in zip(X_test, y_test, strict=True):
        order = sorted(range(len(X_train)), key=lambda i: float(np.sum((X_train[i] - x) ** 2)))
        votes = Counter(y_train[i] for i in order[:k])
        winners = [each for each in votes if votes[each] == max(votes.values())]
        wrong.append(min(winners) != label)
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


@pytest.mark.parametrize(("n_features", "largest"), [(3, 15), (16, 2)])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_ties_are_those_of_scikit_learn(k: int, n_features: int, largest: int) -> None:
    rng = np.random.default_rng([k, n_features])
    X = rng.integers(0, largest + 1, (500, n_features)).astype(float)
    y = rng.choice(np.array(list("ABCDEFGHIJ")), 500)
    predicted = KNeighborsClassifier(k).fit(X[:400], y[:400]).predict(X[400:])
    assert knn_error(X[:400], y[:400], X[400:], predicted, k) == 0


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_ties_in_decisions_count_as_a_random_choice(k: int, rng: np.random.Generator) -> None:
    known, truth = rng.integers(0, 5, 40), rng.integers(0, 5, 200)
    rows = np.stack([rng.permutation(40)[:k] for _ in truth])
    expected = []
    for neighbors, label in zip(known[rows].tolist(), truth.tolist(), strict=True):
        votes = Counter(neighbors)
        winners = [each for each in votes if votes[each] == max(votes.values())]
        expected.append(1 - (label in winners) / len(winners))
    assert np.unique(expected).size > (1 if k == 1 else 2)
    assert neighbor_errors(known, rows, truth) == pytest.approx(expected)
    renamed = np.array([3, 0, 4, 1, 2])
    again = neighbor_errors(renamed[known], rows, renamed[truth])
    assert again.tolist() == neighbor_errors(known, rows, truth).tolist()


@pytest.mark.parametrize("k", [1, 4, 100])
def test_leave_one_out_matches_loop(k: int, rng: np.random.Generator) -> None:
    X, y = rng.standard_normal((60, 2)), rng.integers(0, 3, 60).astype(str)
    rest = [np.delete(np.arange(60), i) for i in range(60)]
    errors = [knn_error(X[r], y[r], X[[i]], y[[i]], k) for i, r in enumerate(rest)]
    assert knn_error(X, y, n_neighbors=k) == pytest.approx(np.mean(errors))
    assert knn_error(X, y, n_neighbors=k, n_jobs=2) == pytest.approx(np.mean(errors))


@pytest.mark.parametrize("forms", [(np.asarray, csr_array), (csr_array, np.asarray)])
def test_knn_error_of_dense_and_sparse_points(forms: Any, rng: np.random.Generator) -> None:
    X, y = rng.standard_normal((60, 4)) * rng.integers(0, 2, (60, 4)), rng.integers(0, 3, 60)
    train, test = (form(part) for form, part in zip(forms, (X[:40], X[40:]), strict=True))
    assert knn_error(train, y[:40], test, y[40:]) == knn_error(X[:40], y[:40], X[40:], y[40:])


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


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["pairs", "similar", "dissimilar", "none", "triplets"])
def test_best_scale_matches_brute_force(
    kind: str, weighted: bool, rng: np.random.Generator
) -> None:
    X = rng.normal(size=(30, 3)).round()
    rows = np.stack([rng.permutation(30)[:3] for _ in range(60)])
    weights = rng.integers(1, 4, len(rows)).astype(float) if weighted else None
    if kind == "triplets":
        gaps = rng.normal(size=len(rows))
        compared = Comparisons.from_triplets(rows, gaps=gaps, weights=weights)
    elif kind == "none":
        compared = Comparisons.from_triplets(rows, weights=weights)
    else:
        y = {"similar": 1, "dissimilar": -1}.get(kind) or rng.choice([-1, 1], len(rows))
        thresholds = rng.uniform(1, 2, len(rows))
        y = np.broadcast_to(y, len(rows))
        pairs = rows[:, :2]
        compared = Comparisons.from_pairs(pairs, y, thresholds=thresholds, weights=weights)

    def satisfied(scale: float) -> float:
        return float(np.average(are_satisfied(X, compared, scale), weights=weights))

    found = best_scale(X, compared)
    assert found > 0
    best = max(satisfied(scale) for scale in np.geomspace(1e-3, 1e3, 1001))
    assert satisfied(found) >= best
    assert kind != "none" or found == 1
    # The choice does not depend on the unit of the points.
    assert best_scale(4 * X, compared) == pytest.approx(found if kind == "none" else found / 16)


def test_satisfied_share_includes_gaps() -> None:
    compared = Comparisons.from_pairs([[0, 1], [0, 2]], [1, -1], thresholds=4.0)
    X = np.array([[0.0], [3.0], [5.0]])
    assert satisfied_share(None, X, compared) == 0.5
    assert satisfied_share(Metric(np.eye(1), np.array([0.3])), X, compared) == 1
