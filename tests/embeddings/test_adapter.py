from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import blas_threads
from embedding_data import judged, labeled
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator
from threadpoolctl import threadpool_limits

from boostmetric import Comparisons, EmbeddingAdapter, FileFormatError, Metric
from boostmetric._files import save_arrays
from boostmetric.embeddings import adapter as adapter_module
from boostmetric.embeddings import report as report_module
from boostmetric.embeddings import selection, training
from boostmetric.embeddings.adapter import ADAPTER_FORMAT_VERSION
from boostmetric.embeddings.search import IDENTITY, Search, as_grades, same_label
from boostmetric.embeddings.selection import listening
from boostmetric.embeddings.training import Judged, Labeled
from boostmetric.evaluation.ranking import ranking_scores


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        each
        for adapter in (EmbeddingAdapter(), EmbeddingAdapter(metric="euclidean"))
        for each in estimator_checks_generator(adapter)
    ],
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def ndcg(adapter: EmbeddingAdapter, Q: NDArray, D: NDArray, grades: csr_array) -> float:
    found = ranking_scores(
        adapter.transform(Q), adapter.transform_documents(D), grades, metric=adapter.metric
    )
    return float(np.nanmean(found["ndcg@10"]))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_labels_improve_search_of_new_points(metric: str, dtype: Any) -> None:
    X, y = labeled()
    X = X.astype(dtype)
    adapter = EmbeddingAdapter(metric=metric).fit(X[::2], y[::2])
    assert adapter.side_ == "both"
    assert adapter.strength_ is not None
    assert adapter.transform(X).dtype == (np.float64 if dtype == np.float64 else np.float32)
    grades = same_label(y[1::2], y[::2])
    before = np.mean(
        ranking_scores(X[1::2].astype(float), X[::2].astype(float), grades, metric=metric)[
            "ndcg@10"
        ]
    )
    assert ndcg(adapter, X[1::2], X[::2], grades) > before + 0.05


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_judgments_improve_search_and_keep_documents(metric: str) -> None:
    Q, D, judgments = judged()
    adapter = EmbeddingAdapter(metric=metric).fit(Q[:150], documents=D, judgments=judgments[:150])
    assert (adapter.side_, adapter.components_.shape) == ("query", (10, 10))
    grades = as_grades(judgments, len(Q), len(D))
    kept = csr_array(grades[150:])
    before = ranking_scores(Q[150:], D, kept, metric=metric)["ndcg@10"].mean()
    assert ndcg(adapter, Q[150:], D, kept) > before + 0.1
    lengths = np.linalg.norm(D, axis=1, keepdims=True) if metric == "cosine" else 1
    np.testing.assert_allclose(adapter.transform_documents(D), D / lengths, rtol=1e-5)


def test_cosine_results_have_unit_length() -> None:
    X, y = labeled()
    adapter = EmbeddingAdapter(n_components=4).fit(X, y)
    mapped = adapter.transform(X)
    assert mapped.shape == (300, 4)
    np.testing.assert_allclose(np.linalg.norm(mapped, axis=1), 1, rtol=1e-5)
    assert adapter.get_feature_names_out()[0] == "embeddingadapter0"


def test_comparisons_are_learned() -> None:
    X, y = labeled()
    rng = np.random.default_rng(1)
    a, b, c = rng.integers(0, 300, (3, 20_000))
    rows = np.stack([a, b, c], axis=1)[(a != b) & (y[a] == y[b]) & (y[a] != y[c])][:1500]
    for given in (rows, Comparisons.from_triplets(rows)):
        adapter = EmbeddingAdapter().fit(X, comparisons=given)
        assert adapter.strength_ is not None
        assert adapter.selection_.gains.max() > 0.03


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_pairs_are_learned(metric: str) -> None:
    X, y = labeled()
    pairs = np.random.default_rng(1).integers(0, 300, (1500, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    given = Comparisons.from_pairs(pairs, np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1))
    # The unit of the thresholds is not that of the vectors.
    adapter = EmbeddingAdapter(metric=metric).fit(X, comparisons=given)
    assert adapter.strength_ is not None
    assert adapter.selection_.gains.max() > 0.03


def test_judgments_on_both_sides() -> None:
    Q, D, judgments = judged(planted=False)
    # Half of the dimensions of queries are noise.
    Q, D = (np.concatenate([each, 3 * _noise(each, i)], axis=1) for i, each in enumerate((Q, D)))
    adapter = EmbeddingAdapter("both").fit(Q, documents=D, judgments=judgments)
    assert adapter.strength_ is not None
    shares = np.sum(adapter.components_**2, axis=0)
    assert shares[:10].sum() > 2 * shares[10:].sum()


def _noise(like: NDArray, seed: int) -> NDArray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(like.shape).astype(np.float32)


def test_labels_on_query_side_exclude_own_row() -> None:
    X, y = labeled()
    data = Labeled("cosine", "query", None, False, 1, 0, X, y, np.arange(len(X)))
    maps = data.learn([0.1])[0]
    search = Search(X[::2], X[1::2], same_label(y[::2], y[1::2]), np.arange(150))
    gain = search.scores(maps)["ndcg@10"].mean() - search.scores(IDENTITY)["ndcg@10"].mean()
    assert gain > 0.05


def test_random_labels_keep_vectors_with_a_warning() -> None:
    X, y = labeled()
    y = np.random.default_rng(7).permutation(y)
    with pytest.warns(UserWarning, match="The identity is used: the best of 5 adapters changes"):
        adapter = EmbeddingAdapter().fit(X, y)
    assert adapter.strength_ is None
    np.testing.assert_array_equal(adapter.components_, np.eye(12))
    with pytest.warns(UserWarning, match="The projection on the leading axes is used"):
        adapter = EmbeddingAdapter(n_components=3).fit(X, y)
    assert adapter.transform(X).shape == (300, 3)


def test_few_queries_keep_vectors_with_a_warning() -> None:
    Q, D, judgments = judged(n=10)
    with pytest.warns(UserWarning, match="10 held-out queries are too few|are too few"):
        EmbeddingAdapter().fit(Q, documents=D, judgments=judgments)


def test_equal_queries_keep_vectors_with_a_warning() -> None:
    Q, D, judgments = judged()
    for new_documents in (False, True):
        adapter = EmbeddingAdapter(new_documents=new_documents)
        with pytest.warns(UserWarning, match="are too few"):
            adapter.fit(np.tile(Q[:1], (len(Q), 1)), documents=D, judgments=judgments)
        assert adapter.strength_ is None
    with pytest.warns(UserWarning, match="are too few"):
        EmbeddingAdapter().fit(np.tile(Q[:2], (50, 1)), np.arange(100) % 4)


@pytest.mark.parametrize("n_folds", [1, 4])
def test_folds_of_new_documents_share_neither_queries_nor_documents(n_folds: int) -> None:
    Q, D, judgments = judged()
    # Three relevant documents per query, so that both sides of a split may have some.
    chosen = np.random.default_rng(0).permuted(np.tile(np.arange(len(D)), (len(Q), 1)), axis=1)
    pairs = np.column_stack([np.repeat(judgments[:, 0], 3), chosen[:, :3].ravel()])
    grades = as_grades(pairs, len(Q), len(D))
    data = Judged("cosine", "query", None, True, 1, 0, Q, D, grades, np.arange(len(Q)))
    n = 0
    for part, search in data.folds(n_folds):
        n += 1
        assert not set(part.rows) & set(search.rows)
        assert (np.diff(part.grades.indptr) > 0).all()
        assert (np.diff(search.grades.indptr) > 0).all()
        # Documents that were learned from are not searched, whether they are relevant or not.
        assert len(part.documents) + len(search.documents) == len(D)
        assert not set(map(bytes, part.documents)) & set(map(bytes, search.documents))
    assert n == n_folds


def test_held_out_queries_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MAX_EVALUATED", 7)
    Q, D, judgments = judged()
    grades = as_grades(judgments, len(Q), len(D))
    data = Judged("cosine", "query", None, False, 1, 0, Q, D, grades, np.arange(len(Q)))
    for part, search in data.folds(2):
        assert len(part.rows) == 100
        assert len(search.rows) == 7
        assert search.rows.max() > 100  # not the first ones
    monkeypatch.setattr(training, "MAX_LEARNED", 60)
    for part, _ in data.folds(2):
        assert len(part.rows) == 60
    # Fewer with many documents, but not fewer than the smallest number.
    monkeypatch.setattr(training, "MIN_EVALUATED", 3)
    for max_ranked, n in ((5 * len(D), 5), (1, 3)):
        monkeypatch.setattr(training, "MAX_RANKED", max_ranked)
        assert all(len(search.rows) == n for _, search in data.folds(2))


def test_folds_of_new_classes_share_no_class() -> None:
    X, y = labeled()
    data = Labeled("cosine", "both", None, True, 1, 0, X, y, np.arange(len(X)))
    for part, search in data.folds(3):
        assert not set(part.y) & set(y[search.rows])
        # New classes are searched among each other.
        np.testing.assert_array_equal(search.documents, X[search.rows])
        np.testing.assert_array_equal(search.units, y[search.rows])
        own = y[search.rows]
        expected = (own[:, None] == own) & ~np.eye(len(own), dtype=bool)
        np.testing.assert_array_equal(search.grades.toarray(), expected)


@pytest.mark.parametrize("new_documents", [False, True])
def test_labels_with_few_points_per_class(new_documents: bool) -> None:
    X, _ = labeled(n=90)
    for y in (np.arange(90) // 3, np.arange(90) // 2, np.r_[np.zeros(30), np.arange(60)]):
        for cv in (None, 1, 2):
            adapter = EmbeddingAdapter(new_documents=new_documents, cv=cv)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                assert np.isfinite(adapter.fit(X, y).components_).all()


def test_new_documents_require_four_classes() -> None:
    X, _ = labeled(n=90)
    with pytest.raises(ValueError, match="requires at least 4 classes"):
        EmbeddingAdapter(new_documents=True).fit(X, np.arange(90) % 2)


def test_fits_use_one_thread_of_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []

    def select(*arguments: Any) -> Any:
        numbers.extend(blas_threads())
        return selection.select(*arguments)

    monkeypatch.setattr(adapter_module, "select", select)
    monkeypatch.setattr(report_module, "select", select)
    X, y = labeled(n=100)
    with threadpool_limits(2, user_api="blas"):
        adapter = EmbeddingAdapter(cv=2).fit(X, y)
        n_of_fit = len(numbers)
        _ = adapter.report_
    assert len(numbers) > n_of_fit
    assert set(numbers) == {1}


def test_zero_vectors_warn_and_rank_last() -> None:
    Q, D, judgments = judged()
    D = D.copy()
    D[[3, 7]] = 0
    judgments = judgments[~np.isin(judgments[:, 1], [3, 7])]
    with pytest.warns(UserWarning, match="2 of 400 rows of documents are zero vectors"):
        adapter = EmbeddingAdapter().fit(Q, documents=D, judgments=judgments)
    with pytest.warns(UserWarning, match="zero vectors"):
        assert (adapter.transform_documents(D)[[3, 7]] == 0).all()


def test_clicks_are_counted() -> None:
    clicks = np.array([[0, 1], [0, 1], [1, 2]])
    assert as_grades(clicks, 2, 3).toarray().tolist() == [[0, 2, 0], [0, 0, 1]]
    assert as_grades(csr_array([[0, 1, -2.0]]), 1, 3).toarray().tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("judgments", "message"),
    [
        ([[0, 5, 1]], "1 judgments refer to documents that do not exist, such as 5"),
        ([[9, 0, 1], [-1, 0, 1]], "2 judgments refer to queries that do not exist, such as 9"),
        ([[0, 0, 1], [0, 0, 2]], "judgments has 1 duplicated rows"),
        ([[0, 0, 0]], "no relevant documents"),
        ([[0.5, 0, 1]], "must be row numbers"),
        ([[0, 0, 1, 2]], "must have the columns"),
        ([[0, 0, np.nan]], "NaN"),
        (csr_array((3, 3)), "must have shape"),
    ],
)
def test_invalid_judgments_raise(judgments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EmbeddingAdapter().fit(np.eye(5)[:4], documents=np.eye(5), judgments=judgments)


@pytest.mark.parametrize(
    ("params", "arguments", "message"),
    [
        ({"side": "left"}, {"y": [0, 1]}, "The 'side' parameter must be one of"),
        ({"metric": "dot"}, {"y": [0, 1]}, "The 'metric' parameter must be one of"),
        ({"n_components": 0}, {"y": [0, 1]}, "The 'n_components' parameter"),
        ({"n_components": 9}, {"y": [0, 1]}, "n_components=9 exceeds the 2 dimensions"),
        ({"side": "query", "n_components": 1}, {"y": [0, 1]}, "n_components requires side='both'"),
        ({}, {}, "requires y to be passed"),
        ({}, {"y": [0, 0]}, "only one class"),
        ({}, {"y": [0, 1], "documents": np.eye(2)}, "must be passed together"),
        ({}, {"documents": np.eye(3), "judgments": [[0, 0, 1]]}, "documents have 3 dimensions"),
        ({"side": "query"}, {"comparisons": [[0, 1, 0]]}, "requires labels or judgments"),
    ],
)
def test_invalid_arguments_raise(
    params: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        EmbeddingAdapter(**params).fit(np.eye(2), **arguments)


def test_saved_adapter_maps_alike(tmp_path: Path) -> None:
    Q, D, judgments = judged()
    adapter = EmbeddingAdapter().fit(Q, documents=D, judgments=judgments)
    adapter.save(tmp_path / "adapter.npz", "some-model")
    loaded = EmbeddingAdapter.load(tmp_path / "adapter.npz")
    pickled = pickle.loads(pickle.dumps(adapter))
    for other in (loaded, pickled):
        np.testing.assert_array_equal(other.transform(Q), adapter.transform(Q))
        np.testing.assert_array_equal(other.transform_documents(D), adapter.transform_documents(D))
        with pytest.raises(AttributeError, match="report_ is not available"):
            _ = other.report_
    assert len(pickle.dumps(adapter)) < D.nbytes
    Metric(np.eye(2), np.ones(2)).save(tmp_path / "metric")
    with pytest.raises(FileFormatError, match="is a metric file, not an adapter file"):
        EmbeddingAdapter.load(tmp_path / "metric")


@pytest.mark.parametrize(
    ("facts", "components", "message"),
    [
        ({}, np.diag([np.nan, 1]), "invalid components"),
        ({}, np.diag([np.inf, 1]), "invalid components"),
        ({}, np.ones((3, 2)), "invalid components"),
        ({}, np.ones((0, 2)), "invalid components"),
        ({}, np.ones((1, 2, 2)), "too many values"),
        ({}, np.eye(2, dtype=int), "invalid components"),
        ({"side_": "query"}, np.ones((1, 2)), "invalid components"),
        ({"side_": "left"}, np.eye(2), "invalid side_"),
        ({"side_": "auto"}, np.eye(2), "invalid side_"),
        ({"metric": ["cosine"]}, np.eye(2), "invalid metric"),
        ({"new_documents": "no"}, np.eye(2), "invalid new_documents"),
        ({"strength": np.nan, "message": 1}, np.eye(2), "invalid strength, message"),
    ],
)
def test_invalid_files_are_rejected(
    tmp_path: Path, facts: dict[str, Any], components: NDArray, message: str
) -> None:
    valid = {"side_": "both", "metric": "cosine", "new_documents": False}
    valid |= {"strength": 0.5, "message": "", "base_model": None}
    path = tmp_path / "adapter"
    save_arrays(path, "adapter", ADAPTER_FORMAT_VERSION, valid, {"components": np.eye(2)})
    assert EmbeddingAdapter.load(path).transform(np.eye(2)).shape == (2, 2)
    save_arrays(path, "adapter", ADAPTER_FORMAT_VERSION, valid | facts, {"components": components})
    with pytest.raises(FileFormatError, match=message):
        EmbeddingAdapter.load(path)


def test_result_does_not_depend_on_scale_of_cosine_vectors() -> None:
    Q, D, judgments = judged()
    one = EmbeddingAdapter().fit(Q, documents=D, judgments=judgments)
    # Powers of two, so that normalized vectors have the same bits.
    two = clone(one).fit(4 * Q, documents=D / 8, judgments=judgments)
    np.testing.assert_allclose(one.transform(Q), two.transform(Q), atol=1e-6)


def test_result_does_not_depend_on_number_of_threads() -> None:
    Q, D, judgments = judged(n=600)
    one, two = (
        EmbeddingAdapter(cv=2, n_jobs=n).fit(Q, documents=D, judgments=judgments) for n in (1, 2)
    )
    assert one.strength_ is not None
    np.testing.assert_array_equal(one.components_, two.components_)


@pytest.mark.filterwarnings("ignore:The identity is used")
def test_listener_counts_outer_folds() -> None:
    Q, D, judgments = judged(n=60, n_documents=100, D=4)
    calls: list[tuple[int, int]] = []
    with listening(lambda *call: calls.append(call)):
        adapter = EmbeddingAdapter(cv=2).fit(Q, documents=D, judgments=judgments)
        assert calls == [(0, 2), (1, 2)]
        _ = adapter.report_
    assert calls[2:4] == [(0, 2), (1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("n_components", [None, 3])
def test_few_shuffled_classes_are_rarely_accepted(n_components: int | None) -> None:
    accepted = 0
    for seed in range(20):
        X, y = labeled(seed, 150)
        adapter = EmbeddingAdapter(cv=3, n_jobs=1, random_state=seed, n_components=n_components)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            adapter.fit(X, np.random.default_rng(seed).permutation(y))
        accepted += adapter.strength_ is not None
    assert accepted <= 2


@pytest.mark.slow
def test_planted_gain_is_found() -> None:
    """Gains of about .04 with a standard deviation of .2 per query, and 500 queries."""
    D, n, n_found = 16, 500, 0
    change = np.eye(D) + 0.42 * np.random.default_rng(0).standard_normal((D, D)) / np.sqrt(D)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        documents = rng.standard_normal((1000, D))
        chosen = rng.integers(0, 1000, n)
        Q = documents[chosen] @ np.linalg.inv(change) + 1.1 * rng.standard_normal((n, D))
        clicks = np.stack([np.arange(n), chosen], axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            adapter = EmbeddingAdapter(cv=3, n_jobs=1, random_state=seed)
            adapter.fit(Q.astype(np.float32), documents=documents, judgments=clicks)
        n_found += adapter.strength_ is not None
    assert n_found >= 5
