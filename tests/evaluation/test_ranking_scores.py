from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.metrics import average_precision_score, ndcg_score
from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances

from boostmetric.evaluation import ranking
from boostmetric.evaluation.ranking import ranking_scores, ranks_of


def drawn(
    rng: np.random.Generator, n_queries: int = 12, n_documents: int = 40
) -> tuple[NDArray, NDArray, NDArray]:
    """Queries, documents, and grades from 0 to 3; each query has a relevant document."""
    grades = rng.integers(0, 4, (n_queries, n_documents)) * (rng.random((n_queries, 1)) < 0.8)
    grades *= rng.random(grades.shape) < 0.3
    grades[:, 5] = 2
    queries, documents = (rng.standard_normal((n, 6)) for n in grades.shape)
    read_only(queries, documents, grades)
    return queries, documents, grades


def by_loop(similarity: NDArray, grades: NDArray, k: int) -> list[float]:
    """The measures of one query, one rank at a time; ties by row."""
    order = sorted(range(len(grades)), key=lambda i: (-similarity[i], i))
    ordered = [int(grades[i]) for i in order]
    relevant = [g > 0 for g in ordered]
    R = sum(relevant)
    gain = sum(g / math.log2(i + 2) for i, g in enumerate(ordered[:k]))
    best = sum(g / math.log2(i + 2) for i, g in enumerate(sorted(ordered, reverse=True)[:k]))
    precisions = [sum(relevant[: i + 1]) / (i + 1) for i, r in enumerate(relevant) if r]
    return [
        float(relevant[0]),
        float(any(relevant[:k])),
        sum(relevant[:k]) / R,
        1 / (relevant.index(True) + 1),
        gain / best,
        sum(precisions) / R,
    ]


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize(("k", "max_scores"), [(1, 1), (5, 130), (10, 1 << 24)])
def test_scores_match_loop(metric: str, k: int, max_scores: int, rng: np.random.Generator) -> None:
    Q, D, grades = drawn(rng)
    scores = ranking_scores(Q, D, csr_array(grades), k=k, metric=metric, max_scores=max_scores)
    similarity = cosine_similarity(Q, D) if metric == "cosine" else -euclidean_distances(Q, D)
    names = ("hit@1", f"hit@{k}", f"recall@{k}", "mrr", f"ndcg@{k}", "map")
    for row in range(len(Q)):
        expected = by_loop(similarity[row], grades[row], k)
        assert [scores[name][row] for name in names] == pytest.approx(expected, abs=1e-12)


def test_scores_match_scikit_learn(rng: np.random.Generator) -> None:
    Q, D, grades = drawn(rng, 30, 200)
    scores = ranking_scores(Q, D, csr_array(grades), k=10)
    similarity = cosine_similarity(Q, D)
    for row in range(len(Q)):
        expected = ndcg_score(grades[[row]], similarity[[row]], k=10)
        assert scores["ndcg@10"][row] == pytest.approx(expected, abs=1e-9)
        average = average_precision_score(grades[row] > 0, similarity[row])
        assert scores["map"][row] == pytest.approx(average, abs=1e-9)


def test_ties_are_ranked_by_row() -> None:
    documents = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    for row in range(3):
        grades = csr_array(np.eye(4)[[row]])
        assert ranking_scores(np.array([[1.0, 0.0]]), documents, grades)["mrr"] == 1 / (row + 1)


def test_zero_documents_rank_last() -> None:
    documents = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    query, grades = np.array([[1.0, 0.0]]), csr_array([[1, 0, 0]])
    assert ranking_scores(query, documents, grades)["mrr"] == pytest.approx(1 / 3)
    # With Euclidean distances, the origin is a point like any other.
    assert ranking_scores(query, documents, grades, metric="euclidean")["mrr"] == 1 / 2


def test_zero_queries_find_nothing() -> None:
    scores = ranking_scores(np.zeros((1, 2)), np.eye(2), csr_array([[1, 0]]))
    assert all(value == 0 for value in scores.values())


def test_queries_without_relevant_documents_have_nan() -> None:
    grades = csr_array([[0, 0], [-1, 0], [0, 1]])
    scores = ranking_scores(np.ones((3, 2)), np.eye(2), grades)
    assert np.isnan(scores["mrr"]).tolist() == [True, True, False]


def test_excluded_documents_are_not_ranked(rng: np.random.Generator) -> None:
    Q, D, grades = drawn(rng)
    exclude = rng.random(grades.shape) < 0.3
    exclude[:, 5] = False
    scores = ranking_scores(Q, D, csr_array(grades), exclude=csr_array(exclude))
    for row, kept in enumerate(~exclude):
        expected = ranking_scores(Q[[row]], D[kept], csr_array(grades[[row]][:, kept]))
        assert [scores[name][row] for name in scores] == pytest.approx(
            [float(value[0]) for value in expected.values()], abs=1e-12
        )


@pytest.mark.parametrize("max_counted", [0, 100])
def test_ranks_match_stable_sort(
    max_counted: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "MAX_COUNTED", max_counted)
    scores = rng.integers(0, 20, 60).astype(float)  # many ties
    scores[5] = -np.inf
    columns = rng.permutation(60)[:30]
    ranks = np.argsort(np.argsort(-scores, kind="stable")) + 1
    np.testing.assert_array_equal(ranks_of(scores, columns), ranks[columns])
