from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, ndcg_score
from sklearn.metrics.pairwise import euclidean_distances

from boostmetric.evaluation.retrieval import retrieval_scores


def by_loop(
    X: NDArray, y: NDArray, X_query: NDArray | None, y_query: NDArray | None, k: int
) -> list[float]:
    """The fields of the scores, one query and one rank at a time."""
    queries = X if X_query is None else X_query
    labels = y if y_query is None else y_query
    rows = []
    for number, (x, label) in enumerate(zip(queries, labels, strict=True)):
        others = [i for i in range(len(X)) if X_query is not None or i != number]
        others.sort(key=lambda i: (float(np.sum((X[i] - x) ** 2)), i))
        relevant = [bool(y[i] == label) for i in others]
        R = sum(relevant)
        if R == 0:
            continue
        precisions = [sum(relevant[: i + 1]) / (i + 1) for i in range(len(others))]
        gains = [p for p, r in zip(precisions, relevant, strict=True) if r]
        at_r = [p for p, r in zip(precisions[:R], relevant[:R], strict=True) if r]
        found = sum(relevant[:k])
        gain = sum(1 / math.log2(i + 2) for i, r in enumerate(relevant) if r)
        ideal = sum(1 / math.log2(i + 2) for i in range(R))
        rows.append([found / k, found / R, sum(gains) / R, sum(at_r) / R, gain / ideal])
    return [*np.mean(rows, axis=0), len(rows)]


@pytest.mark.parametrize(
    ("k", "n_classes", "max_distances"), [(1, 2, 1), (3, 7, 500), (10, 2, 500), (3, 7, 1 << 22)]
)
def test_scores_match_loop(k: int, n_classes: int, max_distances: int) -> None:
    rng = np.random.default_rng([k, n_classes])
    X, y = rng.standard_normal((50, 3)) + 1000, rng.integers(0, n_classes, 50).astype(str)
    read_only(X, y)
    scores = retrieval_scores(X, y, k=k, max_distances=max_distances)
    assert scores == pytest.approx(by_loop(X, y, None, None, k))
    assert 0 < scores.map_at_r < scores.mean_average_precision < scores.ndcg < 1
    given = X[:30], y[:30], X[30:], y[30:]
    scores = retrieval_scores(*given, k=k, max_distances=max_distances)
    assert scores == pytest.approx(by_loop(*given, k))


@pytest.mark.parametrize("alone", [True, False])
def test_queries_are_sampled(alone: bool, rng: np.random.Generator) -> None:
    X, y = rng.standard_normal((40, 2)), rng.integers(0, 3, 40)
    Q, z = (None, None) if alone else (rng.standard_normal((50, 2)), rng.integers(0, 3, 50))
    scores = retrieval_scores(X, y, Q, z, max_queries=12, random_state=5, max_distances=200)
    chosen = np.random.RandomState(5).choice(40 if alone else 50, 12, replace=False)
    if Q is None or z is None:
        each = [
            by_loop(np.delete(X, i, axis=0), np.delete(y, i), X[[i]], y[[i]], 5) for i in chosen
        ]
    else:
        each = [by_loop(X, y, Q[[i]], z[[i]], 5) for i in chosen]
    assert scores[:5] == pytest.approx(np.mean(each, axis=0)[:5])
    assert scores.n_queries == 12
    few = retrieval_scores(X, y, Q, z, max_queries=100)
    assert few == pytest.approx(by_loop(X, y, Q, z, 5))


def test_average_precision_and_ndcg_match_scikit_learn(rng: np.random.Generator) -> None:
    X, y = rng.standard_normal((40, 2)), rng.integers(0, 3, 40)
    Q, z = rng.standard_normal((9, 2)), rng.integers(0, 3, 9)
    relevant, scores = y == z[:, None], -np.sum((X - Q[:, None]) ** 2, axis=2)
    averages = [average_precision_score(*each) for each in zip(relevant, scores, strict=True)]
    found = retrieval_scores(X, y, Q, z)
    assert found.mean_average_precision == pytest.approx(np.mean(averages))
    assert found.ndcg == pytest.approx(ndcg_score(relevant, scores))


def test_scores_of_a_small_example() -> None:
    # From 0 the order is a b a b: precisions 1, ½, ⅔, ½ at the ranks 1 to 4.
    scores = retrieval_scores([[1], [2], [3], [4]], list("abab"), [[0]], ["a"], k=3)
    gain, ideal = 1 + 1 / 2, 1 + 1 / math.log2(3)
    expected = (2 / 3, 1.0, (1 + 2 / 3) / 2, 1 / 2, gain / ideal, 1)
    assert tuple(scores) == pytest.approx(expected)


def test_ties_are_ranked_by_row() -> None:
    X = [[1.0], [1.0], [1.0]]
    assert retrieval_scores(X, list("abb"), [[0.0]], ["a"], k=1).precision == 1
    assert retrieval_scores(X, list("bab"), [[0.0]], ["a"], k=1).precision == 0


def test_queries_without_relevant_points_are_ignored() -> None:
    X, y = [[0.0], [1.0], [2.0]], list("aab")
    assert tuple(retrieval_scores(X, y, k=1)) == (1, 1, 1, 1, 1, 2)
    with pytest.raises(ValueError, match="No query has a point of its class"):
        retrieval_scores(X, y, [[0.0]], ["z"], k=1)


@pytest.mark.parametrize("k", [0, 3])
def test_invalid_k_raises(k: int) -> None:
    message = f"k must be between 1 and the number of points, 2; got {k}."
    with pytest.raises(ValueError, match=message):
        retrieval_scores([[0.0], [1.0], [2.0]], list("aab"), k=k)


@pytest.mark.parametrize("max_distances", [1, 700, 5000])
def test_max_distances_limits_blocks(
    max_distances: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def recorded(one: NDArray, two: NDArray, **options: Any) -> NDArray:
        sizes.append(len(one) * len(two))
        squares: NDArray = euclidean_distances(one, two, **options)
        return squares

    monkeypatch.setattr("boostmetric.evaluation.retrieval.euclidean_distances", recorded)
    X, y = rng.standard_normal((300, 2)), rng.integers(0, 3, 300)
    retrieval_scores(X, y, max_distances=max_distances)
    assert sum(sizes) == 300 * 300
    assert max(sizes) <= max(max_distances, 300)


def test_memory_is_limited(rng: np.random.Generator) -> None:
    X, labels = rng.standard_normal((2000, 2)), rng.choice(["a" * 50, "b"], 2000)  # long names
    retrieval_scores(X, labels, max_queries=1)  # imports
    tracemalloc.start()
    retrieval_scores(X, labels, max_distances=100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Half of all distances; the names of a block would take 20 MB.
    assert peak < 2000 * 2000 * 8 / 2


@pytest.mark.parametrize("given", [(3, 2, None, None), (3, 2, 2, 2), (3, 3, 2, 3)])
def test_inconsistent_lengths_raise(given: tuple[int, int, int | None, int | None]) -> None:
    n, n_labels, q, q_labels = given
    queries = None if q is None else np.zeros((q, 1))
    labels = None if q_labels is None else np.zeros(q_labels)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        retrieval_scores(np.zeros((n, 1)), np.zeros(n_labels), queries, labels, k=1)


def test_queries_require_labels() -> None:
    with pytest.raises(ValueError, match="X_query and y_query must be passed together"):
        retrieval_scores([[0.0], [1.0]], list("aa"), [[0.0]], k=1)
