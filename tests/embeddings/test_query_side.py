from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array

from boostmetric.embeddings import query_side
from boostmetric.embeddings.query_side import SoftmaxProblem, closed_form_map, nearest_documents
from boostmetric.embeddings.search import Maps, Search, as_grades
from boostmetric.embeddings.training import document_offsets
from boostmetric.evaluation.ranking import normalized


def drawn(
    rng: np.random.Generator, n_queries: int = 15, n_documents: int = 40, D: int = 5
) -> tuple[NDArray, NDArray, csr_array]:
    Q, documents = rng.standard_normal((n_queries, D)), rng.standard_normal((n_documents, D))
    shape = (n_queries, n_documents)
    grades = rng.integers(1, 4, shape) * (rng.random(shape) < 0.1)
    grades[np.arange(n_queries), rng.integers(0, n_documents, n_queries)] = 2
    return Q, documents, csr_array(grades.astype(float))


def by_loop(
    problem: SoftmaxProblem,
    Q: NDArray,
    D: NDArray,
    grades: csr_array,
    W: NDArray,
    offsets: NDArray,
    exclude: NDArray,
) -> float:
    """The mean negative log-likelihood, one query at a time."""
    losses = []
    for q, g, left_out in zip(Q, grades.toarray(), exclude, strict=True):
        scores = problem.scale * (D @ (q + W.T @ q) + offsets)
        competing = np.isfinite(offsets) & ~left_out
        log_p = scores - np.log(np.exp(scores[competing]).sum())
        losses.append(-sum(g[i] / g.sum() * log_p[i] for i in np.flatnonzero(g)))
    return float(np.mean(losses))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("batch_scores", [1, 1 << 23])
def test_loss_matches_loop_and_gradient_finite_differences(
    metric: str, batch_scores: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_side, "BATCH_SCORES", batch_scores)
    Q, D, grades = drawn(rng)
    offsets = -0.5 * np.sum(D**2, axis=1) if metric == "euclidean" else np.zeros(len(D))
    offsets[3] = -np.inf
    table = grades.toarray() * np.isfinite(offsets)
    table[:, 7] = 1.0
    grades = csr_array(table)
    exclude = (rng.random(grades.shape) < 0.1) & (grades.toarray() == 0)
    problem = SoftmaxProblem(Q, D, grades, offsets, csr_array(exclude))
    W = rng.standard_normal((5, 5)) / 5
    value, gradient = problem.loss(W)
    assert value == pytest.approx(by_loop(problem, Q, D, grades, W, offsets, exclude), rel=1e-10)
    step = 1e-5
    for i, j in [(0, 0), (1, 3), (4, 2)]:
        E = np.zeros((5, 5))
        E[i, j] = step
        slope = (problem.loss(W + E)[0] - problem.loss(W - E)[0]) / (2 * step)
        assert gradient[i, j] == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_scale_minimizes_loss_without_map(rng: np.random.Generator) -> None:
    Q, D, grades = drawn(rng, 60)
    # Relevant documents are near the queries, so that the scale is positive.
    Q += np.asarray((grades > 0) @ D)
    problem = SoftmaxProblem(Q, D, grades)
    losses = []
    for factor in (0.97, 1.0, 1.03):
        other = SoftmaxProblem(Q, D, grades)
        other.scale = problem.scale * factor
        losses.append(other.loss(np.zeros((5, 5)))[0])
    assert losses[1] < min(losses[0], losses[2])


@pytest.mark.parametrize("n_queries", [3, 15])  # with fewer queries than features, W has low rank
def test_solution_matches_another_solver(n_queries: int, rng: np.random.Generator) -> None:
    Q, D, grades = drawn(rng, n_queries)
    problem = SoftmaxProblem(Q, D, grades)
    strength = 0.3 * problem.scale**2 * problem.variance / n_queries

    def objective(w: NDArray) -> tuple[float, NDArray]:
        value, gradient = problem.loss(w.reshape(5, 5))
        return value + strength / 2 * w @ w, gradient.ravel() + strength * w

    expected = minimize(objective, np.zeros(25), jac=True, method="BFGS", options={"gtol": 1e-9})
    for start in (None, rng.standard_normal((5, 5))):
        W = problem.solve(0.3, start, tol=1e-8)
        value = objective(W.ravel())[0]
        assert value == pytest.approx(expected.fun, rel=1e-6)
        np.testing.assert_allclose(W.ravel(), expected.x, atol=5e-3)


def test_ridge_does_not_depend_on_scale_of_vectors(rng: np.random.Generator) -> None:
    Q, D, grades = drawn(rng)
    W = SoftmaxProblem(Q, D, grades).solve(0.3, tol=1e-8)
    scaled = SoftmaxProblem(100 * Q, D / 7, grades).solve(0.3, tol=1e-8)
    np.testing.assert_allclose(scaled, W, atol=2e-3)


def test_strong_ridge_keeps_identity(rng: np.random.Generator) -> None:
    Q, D, grades = drawn(rng)
    assert np.abs(SoftmaxProblem(Q, D, grades).solve(1e8)).max() < 1e-6


def test_sampled_negatives_approximate_softmax(rng: np.random.Generator) -> None:
    Q, D, grades = drawn(rng, 200, 2000)
    exact = SoftmaxProblem(Q, D, grades)
    sampled = SoftmaxProblem(Q, D, grades, max_scores=200 * 500)
    assert all(len(batch.shifts) < 2000 for batch in sampled.batches)
    sampled.scale = exact.scale = 1.0
    W = rng.standard_normal((5, 5)) / 5
    one, two = exact.loss(W), sampled.loss(W)
    assert two[0] == pytest.approx(one[0], rel=0.02)
    assert np.corrcoef(one[1].ravel(), two[1].ravel())[0, 1] > 0.98


def test_nearest_documents_improve_sampled_softmax(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    Q, D, grades = drawn(rng, 200, 2000)
    Q, D = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (Q, D))
    assert nearest_documents(Q, D, 1, 0) is None
    monkeypatch.setattr(query_side, "MAX_SCORES", 200 * 500)
    nearest = nearest_documents(Q, D, 1, 0)
    assert nearest is not None
    assert nearest.shape == (200, query_side.N_HARD)
    problems = {
        "exact": SoftmaxProblem(Q, D, grades),
        "sampled": SoftmaxProblem(Q, D, grades, max_scores=200 * 300),
        "nearest": SoftmaxProblem(Q, D, grades, nearest=nearest, max_scores=200 * 300),
    }
    gradients = {}
    for name, problem in problems.items():
        problem.scale = 30.0  # few documents have most of the probability
        gradients[name] = problem.loss(np.zeros((5, 5)))[1]
    errors = {name: np.linalg.norm(each - gradients["exact"]) for name, each in gradients.items()}
    assert errors["nearest"] < errors["sampled"] / 2


def test_nearest_documents_are_those_of_a_sample(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    D = rng.standard_normal((400, 5))
    monkeypatch.setattr(query_side, "MAX_SCORES", 0)
    monkeypatch.setattr(query_side, "MAX_INDEXED", 50)
    found = nearest_documents(D, D, 1, 0)  # every document of the sample finds itself first
    assert found is not None
    sample = np.flatnonzero(found[:, 0] == np.arange(400))
    assert len(sample) == 50
    assert np.isin(found, [*sample, -1]).all()


def test_closed_form_map_matches_least_squares(rng: np.random.Generator) -> None:
    Q, targets = rng.standard_normal((2, 30, 4))
    ridge = 2.0
    W = closed_form_map(Q, targets, ridge)
    # The ridge as additional rows of a least squares problem.
    strength = ridge * np.sum(Q**2) / 4
    rows = np.concatenate([Q, np.sqrt(strength) * np.eye(4)])
    wanted = np.concatenate([targets - Q, np.zeros((4, 4))])
    np.testing.assert_allclose(W, np.linalg.lstsq(rows, wanted, rcond=None)[0], atol=1e-10)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_float32_has_the_same_candidates_for_a_perfect_search(metric: str) -> None:
    rng = np.random.default_rng(0)
    documents = normalized(rng.standard_normal((300, 32)))
    Q = normalized(documents[:150] + 0.01 * rng.standard_normal((150, 32)))
    grades = as_grades(np.stack([np.arange(150)] * 2, axis=1), 150, 300)
    W: dict[Any, NDArray] = {}
    for dtype in (np.float32, np.float64):
        X, searched = Q.astype(dtype), documents.astype(dtype)
        offsets = document_offsets(searched, metric)
        problem = SoftmaxProblem(X, searched, grades, offsets)
        W[dtype] = problem.solve(0.1)
        assert 0.005 < problem.loss(np.zeros((32, 32)))[0] < 0.02
        search = Search(X, searched, grades, np.arange(150), metric)
        assert (search.scores(Maps.of_queries(W[dtype]))["ndcg@10"] == 1).all()
    scale = np.abs(W[np.float64]).max()
    np.testing.assert_allclose(W[np.float32], W[np.float64], atol=0.05 * scale)
