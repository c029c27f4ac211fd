from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SIMPLE, read_only
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import KFold
from sklearn.utils.estimator_checks import estimator_checks_generator

from boostmetric import (
    BoostMetric,
    BoostMetricCV,
    CheckpointError,
    Comparisons,
    EmbeddingAdapter,
)
from boostmetric.estimators import cv, cv_search, listening, splits
from boostmetric.estimators.initial import starting_transformation
from boostmetric.estimators.splits import Errors, draw_splits, subset
from boostmetric.estimators.training_data import TrainingData
from boostmetric.evaluation.knn import best_scale

Data = tuple[NDArray, NDArray]

FEW: dict[str, Any] = {**SIMPLE, "max_iter": 5}

SHORT = BoostMetricCV([FEW, {**FEW, "init": "lda", "max_iter": 3, "n_passes": 2}], cv=2)

CHECKS = [
    pytest.param(estimator, check, marks=marks, id=f"{name}-{check.func.__name__}")
    for name, given, marks in (
        ("short", SHORT, ()),
        ("default", BoostMetricCV(), pytest.mark.slow),
    )
    for estimator, check in estimator_checks_generator(given)
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
@pytest.mark.filterwarnings(
    *("ignore:No direction", "ignore:Points of class", "ignore:cv=. holds out nothing"),
    *("ignore:Learning did not lower", "ignore:After learning"),
    "ignore:The metric learned from all data is worse",
)
def test_scikit_learn_checks(
    estimator: BoostMetricCV, check: Callable[[BoostMetricCV], None]
) -> None:
    check(estimator)


@pytest.fixture
def apart(rng: np.random.Generator) -> Data:
    """Classes that are far apart, with and without scaling."""
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4))
    X[:, :2] += 100 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    read_only(X, y)
    return X, y


def share_right(A: NDArray, a: NDArray, B: NDArray, b: NDArray, k: int, w: NDArray) -> float:
    """The share of rows of B that their k nearest rows of A classify; ties count in parts."""
    right = 0.0
    for x, label, weight in zip(B, b, w, strict=True):
        nearest = a[np.argsort(np.sum((A - x) ** 2, axis=1), kind="stable")[:k]].tolist()
        votes = Counter(nearest)
        winners = [each for each in votes if votes[each] == max(votes.values())]
        right += weight * (label in winners) / len(winners)
    return float(right / w.sum())


def learned(parameters: dict[str, Any], *data: NDArray, **given: Any) -> NDArray:
    """M of a candidate without a starting transformation; passes that do harm are dropped."""
    learner = BoostMetric(**{**parameters, "init": None, "verify": "passes"})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Learning did not lower")
        M: NDArray = learner.fit(*data, **given).get_mahalanobis_matrix()
    return M


@pytest.mark.parametrize("with_weights", [False, True])
@pytest.mark.parametrize("init", [None, "scale", "whiten", "lda"])
@pytest.mark.filterwarnings(
    *("ignore:Learning did not lower", "ignore:After learning"),
    "ignore:The metric learned from all data is worse",
)
def test_scores_match_brute_force(
    init: str | None, with_weights: bool, blobs: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cv_search, "MAX_LAG_TO_CONTINUE", np.inf)
    X, y = blobs
    weights = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    given = {"sample_weight": weights} if with_weights else {}
    if not with_weights:
        weights = np.ones(len(X))
    candidate, shrinkages = {**FEW, "init": init}, [0.0, 0.3, 1.0]
    candidates = [{**candidate, "shrinkage": s} for s in shrinkages]
    splits = list(KFold(3, shuffle=True, random_state=0).split(X))
    search = BoostMetricCV(candidates, cv=splits, n_neighbors=5)
    results = search.fit(X, y, **given).cv_results_
    for number, (train, test) in enumerate(splits):
        train = train[weights[train] > 0]
        part = X[train], y[train], weights[train]
        L = starting_transformation(init, *part)
        L = np.eye(5) if L is None else L
        M = learned(candidate, part[0] @ L.T, part[1], sample_weight=part[2])
        for s, score in zip(shrinkages, results[f"split{number}_test_score"], strict=True):
            shrunk = (1 - s) * M + s * np.trace(M) / len(M) * np.eye(len(M))
            # only for the Cholesky decomposition, in case of a singular M
            A = np.linalg.cholesky(shrunk + 1e-12 * np.eye(len(M))).T @ L
            known = X[train] @ A.T
            expected = share_right(known, part[1], X[test] @ A.T, y[test], 5, weights[test])
            assert score == pytest.approx(expected)


def test_result_is_the_shrunk_metric_of_all_points(blobs: Data) -> None:
    X, y = blobs
    search = BoostMetricCV([{**FEW, "init": "scale", "shrinkage": 0.3}]).fit(X, y)
    L = starting_transformation("scale", X)
    assert L is not None
    M = learned(FEW, X @ L.T, y)
    expected = L.T @ (0.7 * M + 0.3 * np.trace(M) / 5 * np.eye(5)) @ L
    np.testing.assert_allclose(search.get_mahalanobis_matrix(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(search.transform(X), X @ search.components_.T)


def test_nothing_is_learned_with_a_shrinkage_of_1(blobs: Data) -> None:
    X, y = blobs
    search = BoostMetricCV([{"init": "lda", "shrinkage": 1}]).fit(X, y)
    L = starting_transformation("lda", X, y)
    assert L is not None
    np.testing.assert_allclose(search.get_mahalanobis_matrix(), L.T @ L, atol=1e-12)


def test_result_is_the_average_of_candidates_that_are_as_good(apart: Data) -> None:
    X, y = apart  # no candidate has an error
    candidates: list[dict[str, Any]] = [
        FEW,
        {**FEW, "init": "scale"},
        {"shrinkage": 1, "init": None},
    ]
    search = BoostMetricCV(candidates, random_state=0).fit(X, y)
    assert search.averaged_params_ == candidates
    assert search.best_params_ == candidates[0]
    expected = np.zeros((4, 4))
    for L in (np.eye(4), np.diag(1 / X.std(axis=0))):
        M = L.T @ learned(FEW, X @ L.T, y) @ L
        expected += M / np.trace(M @ np.cov(X.T, bias=True))
    expected += np.eye(4) / np.trace(np.cov(X.T, bias=True))
    np.testing.assert_allclose(search.get_mahalanobis_matrix(), expected / 3, rtol=1e-9, atol=1e-15)


def test_errors_of_an_earlier_fit_are_removed(apart: Data) -> None:
    start = {"init": None, "shrinkage": 1.0}
    search = BoostMetricCV([start, FEW]).fit(*apart)
    assert search.errors_["measure"] == "cross-validation"
    assert not hasattr(search.set_params(candidates=[start]).fit(*apart), "errors_")


def test_worse_candidates_are_not_averaged_and_not_continued(rng: np.random.Generator) -> None:
    y = np.arange(300) % 3
    X = rng.normal(size=(300, 4))
    X[:, 0] += 4 * y
    X[:, 1] *= 1000
    start = {"init": None, "shrinkage": 1.0}
    search = BoostMetricCV([start, FEW], random_state=0).fit(X, y)
    assert search.averaged_params_ == [FEW]
    results = search.cv_results_
    assert np.isfinite(results["split0_test_score"]).all()
    for number in (1, 2):
        assert np.isnan(results[f"split{number}_test_score"]).tolist() == [True, False]
    assert results["mean_test_score"][0] == results["split0_test_score"][0]
    assert results["rank_test_score"].tolist() == [2, 1]


def test_standard_errors_are_paired() -> None:
    search = cv_search.Search([(np.arange(4), np.arange(4))] * 2, 3)
    weights = np.array([1.0, 1, 2, 1])
    errors = np.array([[0.0, 0, 0, 1], [1, 1, 0, 0], [1, 1, 1, 1]])
    for fold in range(2):
        for number in range(3):
            search.keep(fold, number, Errors(errors[number], np.ones(4), weights), 1.0)
    # The differences to the first are 1, 1, 0, -1 and 1, 1, 2, 0 in both folds.
    assert search.lag(1, 0, [0]) == pytest.approx(1 / np.sqrt(3))
    assert search.lag(1, 0, [0, 1]) == pytest.approx(2 / np.sqrt(6))
    assert search.lag(2, 0, [0, 1]) == pytest.approx(8 / np.sqrt(12))
    assert search.as_good_as(0) == [0, 1]
    assert search.is_continued.tolist() == [True, True, True]


def test_single_learned_candidate_is_averaged_over_two_losses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    candidates = {"init": "scale"}, {"init": None, "shrinkage": 1.0}
    monkeypatch.setattr(cv, "CANDIDATES", candidates)
    monkeypatch.setattr(cv_search, "MAX_LAG_TO_CONTINUE", np.inf)
    monkeypatch.setattr(cv_search, "MAX_LAG_TO_AVERAGE", np.inf)
    X, y = load_wine(return_X_y=True)
    search = BoostMetricCV(random_state=0).fit(X, y)
    assert search.averaged_params_ == [
        candidates[0],
        {**candidates[0], **cv.VARIANT},
        candidates[1],
    ]
    L = np.diag(1 / X.std(axis=0))
    metrics = [
        L.T @ learned({"loss": loss}, X @ L.T, y) @ L for loss in ("logistic", cv.VARIANT["loss"])
    ]
    expected = sum(
        share * M / np.trace(M @ np.cov(X.T, bias=True))
        for share, M in zip((0.25, 0.25, 0.5), (*metrics, np.eye(13)), strict=True)
    )
    np.testing.assert_allclose(search.get_mahalanobis_matrix(), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("n_features", "n_relevant", "share_wrong", "best"), [(8, 1, 0.0, 1e-3), (30, 30, 0.3, 1e-1)]
)
def test_comparisons_decide_about_the_strength(
    n_features: int, n_relevant: int, share_wrong: float, best: float, rng: np.random.Generator
) -> None:
    """A single relevant feature requires weak regularization, wrong comparisons a strong one."""
    X = rng.normal(size=(200, n_features))
    rows = np.array([rng.permutation(200)[:3] for _ in range(300)])
    relevant = X[:, :n_relevant]
    near, far = (np.sum((relevant[rows[:, 0]] - relevant[rows[:, k]]) ** 2, axis=1) for k in (1, 2))
    swapped = (near > far) ^ (rng.random(300) < share_wrong)
    search = BoostMetricCV(random_state=0).fit(
        X, comparisons=np.where(swapped[:, None], rows[:, [0, 2, 1]], rows)
    )
    params, scores = search.cv_results_["params"], search.cv_results_["mean_test_score"]
    assert [each["alpha"] for each in params[:2]] == [1e-1, 1e-3]
    assert params[int(np.argmax(scores[:2]))]["alpha"] == best


def test_results_have_the_format_of_scikit_learn(blobs: Data) -> None:
    candidates = [FEW, {**FEW, "loss": "exponential", "alpha": 0.1}, {"max_iter": 3}]
    search = BoostMetricCV(candidates, random_state=0).fit(*blobs)
    results = search.cv_results_
    assert results["params"] == candidates
    assert results["param_alpha"].mask.tolist() == [False, False, True]
    assert results["param_alpha"].compressed().tolist() == [1e-7, 0.1]
    scores = np.array([results[f"split{number}_test_score"] for number in range(3)])
    np.testing.assert_allclose(results["mean_test_score"], scores.mean(axis=0))
    np.testing.assert_allclose(results["std_test_score"], scores.std(axis=0))
    means = results["mean_test_score"]
    assert results["rank_test_score"].tolist() == [
        1 + (means > mean + 1e-9).sum() for mean in means
    ]
    assert (results["mean_fit_time"] > 0).all()
    assert search.best_params_ == candidates[search.best_index_]
    assert search.best_score_ == means.max()


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_default_is_not_worse_than_euclidean_distance_on_held_out_folds(load: Any) -> None:
    search = BoostMetricCV(random_state=0).fit(*load(return_X_y=True))
    results = search.cv_results_
    inits = [each["init"] for each in results["params"]]
    assert inits == [None, "scale", "whiten", None, "scale", "whiten", "lda"]
    assert search.best_score_ >= results["mean_test_score"][3:].max()


def test_folds_contain_every_class_but_leave_two_points() -> None:
    y = np.repeat([0, 1, 2, 3], [30, 9, 3, 2])
    data = TrainingData(np.arange(44.0)[:, None], y, weights=np.r_[0.0, np.ones(43)])
    splits = draw_splits(data, 3)
    assert len(splits) == 3
    assert sorted(np.concatenate([test for _, test in splits])) == list(range(1, 42))
    for train, test in splits:
        assert sorted(np.r_[train, test]) == list(range(44))
        counts = np.bincount(y[test], minlength=4)
        assert counts[0] in (9, 10)
        assert counts[1:].tolist() == [3, 1, 0]


def test_equal_points_are_in_the_same_fold() -> None:
    X, y = np.repeat(np.arange(12.0), 3)[:, None], np.repeat([0, 1], 18)
    splits = draw_splits(TrainingData(X, y), 3)
    for train, test in splits:
        assert not set(X[train, 0]) & set(X[test, 0])
        assert np.bincount(y[test]).tolist() == [6, 6]


def test_first_candidate_is_used_if_nothing_can_be_held_out() -> None:
    X = np.arange(8.0).reshape(4, 2) ** 2
    for given in ({"y": [0, 0, 1, 1]}, {"comparisons": [[0, 1, 2]]}):
        with pytest.warns(UserWarning, match="cv=3 holds out nothing"):
            search = BoostMetricCV([{**FEW, "n_neighbors": 1}]).fit(X, **given)
        assert np.isnan(search.best_score_)
        assert search.averaged_params_ == [{**FEW, "n_neighbors": 1}]


def made_triplets(X: NDArray, y: NDArray, m: int) -> NDArray:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(X), (50 * m, 3))
    valid = (y[rows[:, 0]] == y[rows[:, 1]]) & (y[rows[:, 0]] != y[rows[:, 2]])
    return rows[valid & (rows[:, 0] != rows[:, 1])][:m]


def test_comparisons_are_held_out(blobs: Data) -> None:
    X, y = blobs
    triplets = made_triplets(X, y, 200)
    search = BoostMetricCV([{"init": None}, {"init": None, "shrinkage": 0.4}], random_state=0)
    search.fit(X, comparisons=Comparisons.from_triplets(triplets, gaps=0.1))
    results = search.cv_results_
    data = TrainingData(X, comparisons=Comparisons.from_triplets(triplets))
    for number, (train, test) in enumerate(draw_splits(data, 3)):
        given = Comparisons.from_triplets(triplets[train], gaps=0.1)
        M = learned({}, X, comparisons=given)
        M = 0.6 * M + 0.4 * np.trace(M) / 5 * np.eye(5)
        a, b, c = X[triplets[test].T]
        far, near = (np.sum((a - other) @ M * (a - other), axis=1) for other in (c, b))
        # Candidates have no common unit, so the gap is in a unit that suits the other comparisons.
        unit = best_scale(X @ np.linalg.cholesky(M), given)
        expected = np.mean(unit * (far - near) > 0.1)
        assert results[f"split{number}_test_score"][1] == pytest.approx(expected)
    assert search.score(X, comparisons=triplets) > 0.6


def test_comparisons_of_held_out_points_are_dropped(blobs: Data) -> None:
    X, y = blobs
    triplets = np.array([[0, 3, 1], [6, 9, 2], [0, 6, 1]])
    data = TrainingData(X, y, comparisons=Comparisons.from_triplets(triplets))
    rest = subset(data, np.setdiff1d(np.arange(len(y)), [9]))
    assert rest.comparisons is not None
    assert len(rest.comparisons) == 2
    assert 9 not in rest.comparisons.pairs
    assert rest.weights is not None
    assert np.flatnonzero(rest.weights == 0).tolist() == [9]
    rest = subset(data, np.arange(10, len(y)))
    assert rest.comparisons is None


def test_score_has_the_meaning_of_boostmetric(blobs: Data) -> None:
    X, y = blobs
    search = BoostMetricCV([{**FEW, "n_neighbors": (2, 4)}]).fit(X, y)
    expected = BoostMetric(**{**FEW, "n_neighbors": (2, 4)}, verify="passes").fit(X, y).score(X, y)
    assert search.score(X, y) == expected


def test_sparse_points_give_the_result_of_dense_ones(rng: np.random.Generator) -> None:
    X = rng.normal(size=(90, 6)) * (rng.uniform(size=(90, 6)) < 0.4)
    y = (X[:, 0] > X[:, 1]).astype(int)
    candidates = [{**FEW, "init": init} for init in (None, "scale")]
    dense = BoostMetricCV(candidates, random_state=0).fit(X, y)
    sparse = BoostMetricCV(candidates, random_state=0).fit(csr_array(X), y)
    np.testing.assert_allclose(
        sparse.cv_results_["mean_test_score"], dense.cv_results_["mean_test_score"]
    )
    np.testing.assert_allclose(
        sparse.get_mahalanobis_matrix(), dense.get_mahalanobis_matrix(), rtol=1e-6, atol=1e-9
    )
    default = BoostMetricCV(random_state=0).fit(csr_array(X), y)
    assert {each["init"] for each in default.cv_results_["params"]} == {None, "scale"}


def test_multilabel_score_is_the_share_of_neighbors_with_a_common_label(
    rng: np.random.Generator,
) -> None:
    X = rng.normal(size=(60, 4))
    Y = (X[:, :3] + 0.3 * rng.normal(size=(60, 3)) > 0).astype(int)
    splits = list(KFold(3).split(X))
    search = BoostMetricCV([{"init": None, "shrinkage": 1}], cv=splits).fit(X, Y)
    for number, (train, test) in enumerate(splits):
        like = []
        for row in test:
            nearest = train[np.argsort(np.sum((X[train] - X[row]) ** 2, axis=1))[:3]]
            like.append(np.mean((Y[nearest] * Y[row]).sum(axis=1) > 0))
        assert search.cv_results_[f"split{number}_test_score"][0] == pytest.approx(np.mean(like))


def test_full_rank_is_no_default_for_many_features(
    blobs: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boostmetric.estimators.cv.MAX_FEATURES", 4)
    params = BoostMetricCV().fit(*blobs).cv_results_["params"]
    assert [each["init"] for each in params] == [None, "scale", "whiten", "lda"]


def test_at_most_max_queries_are_classified(blobs: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "MAX_QUERIES", 7)
    search = BoostMetricCV([FEW], n_neighbors=1).fit(*blobs)
    scores = search.cv_results_["split0_test_score"]
    np.testing.assert_allclose(7 * scores, np.round(7 * scores), atol=1e-9)


def test_n_components_limits_the_rank(blobs: Data) -> None:
    search = BoostMetricCV([{**FEW, "shrinkage": 0.5}], n_components=2, random_state=0).fit(*blobs)
    whole = clone(search).set_params(n_components=None).fit(*blobs)
    assert whole.components_.shape == (5, 5)
    np.testing.assert_allclose(search.components_, whole.components_[:2])


def test_float32_is_kept(blobs: Data) -> None:
    X, y = blobs
    for init in (None, "scale", "whiten"):
        search = BoostMetricCV([{**FEW, "init": init}]).fit(X.astype(np.float32), y)
        assert search.components_.dtype == np.float32


def test_labels_may_be_text(blobs: Data) -> None:
    X, y = blobs
    search = BoostMetricCV([FEW], random_state=0)
    numbers = clone(search).fit(X, y)
    texts = search.fit(X, np.array(["one", "three", "two"])[y])
    np.testing.assert_array_equal(numbers.components_, texts.components_)


def test_random_state_determines_the_result(blobs: Data) -> None:
    def scores(seed: int) -> list[float]:
        search = BoostMetricCV([FEW], random_state=seed).fit(*blobs)
        return search.cv_results_["split0_test_score"].tolist()

    assert scores(0) == scores(0)
    assert scores(0) != scores(1)


def test_verbose_logs_each_fit(
    blobs: Data, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cv_search, "MAX_LAG_TO_CONTINUE", np.inf)
    with caplog.at_level(logging.INFO, logger="boostmetric"):
        BoostMetricCV([FEW]).fit(*blobs)
        assert caplog.records == []
        BoostMetricCV([FEW, {"max_iter": 2}], cv=2, verbose=1).fit(*blobs)
    assert len(caplog.records) == 4
    assert "fold 2 of 2, candidate 2 of 2, {'max_iter': 2}: score 0." in caplog.text
    assert "s left" in caplog.text


class Interrupting(BoostMetricCV):
    """Is interrupted before a given fit."""

    n_fits, last = 0, 4

    def _learn(self, *arguments: Any) -> Any:
        type(self).n_fits += 1
        if type(self).n_fits == self.last:
            raise KeyboardInterrupt  # as Python does for SIGINT
        return super()._learn(*arguments)


@pytest.mark.parametrize("last", [4, 2])
def test_interruption_keeps_the_best_so_far(
    last: int, blobs: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Interrupting, "n_fits", 0)
    monkeypatch.setattr(Interrupting, "last", last)
    candidates = [{**FEW, "init": "scale"}, FEW]
    search = Interrupting(candidates, random_state=0)
    with pytest.warns(UserWarning, match=f"interrupted after {last - 1} of 6 fits"):
        search.fit(*blobs)
    results = search.cv_results_
    whole = BoostMetricCV(candidates, random_state=0).fit(*blobs).cv_results_
    assert np.isnan(results["split2_test_score"]).all()
    done = slice(None) if last == 4 else slice(1)  # the first fold, or only the first candidate
    np.testing.assert_array_equal(
        results["mean_test_score"][done], whole["split0_test_score"][done]
    )
    assert search.best_score_ == np.nanmax(results["mean_test_score"])
    assert search.components_.shape[1] == 5


def test_interruption_of_the_last_fits_keeps_those_before(
    apart: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Interrupting, "n_fits", 0)
    monkeypatch.setattr(Interrupting, "last", 6)
    candidates = [{**FEW, "init": "scale"}, FEW]  # two folds, and the second of the last fits
    search = Interrupting(candidates, cv=2, random_state=0)
    with pytest.warns(UserWarning, match="interrupted after 1 of 2"):
        search.fit(*apart)
    assert search.averaged_params_ == candidates[:1]
    X, y = apart
    L = np.diag(1 / X.std(axis=0))
    expected = L.T @ learned(FEW, X @ L.T, y) @ L
    np.testing.assert_allclose(search.get_mahalanobis_matrix(), expected, rtol=1e-9, atol=1e-12)


def test_interruption_before_the_first_score_is_raised(
    blobs: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Interrupting, "n_fits", 0)
    monkeypatch.setattr(Interrupting, "last", 1)
    with pytest.raises(KeyboardInterrupt):
        Interrupting([FEW]).fit(*blobs)


def test_listener_ends_the_search(blobs: Data) -> None:
    class Listener:
        n_calls = 0

        @property
        def interrupted(self) -> bool:
            return self.n_calls > 7

        def __call__(self, progress: Any) -> bool:
            self.n_calls += 1
            return False

    search = BoostMetricCV([FEW], random_state=0)
    with listening(Listener()), pytest.warns(UserWarning, match="after 1 of 3 fits"):
        search.fit(*blobs)
    # The last fit is not stopped.
    np.testing.assert_allclose(search.get_mahalanobis_matrix(), learned(FEW, *blobs))


def test_interrupted_search_continues_from_its_checkpoint(
    blobs: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Interrupting, "n_fits", 0)
    monkeypatch.setattr(Interrupting, "last", 5)
    candidates, path = [{**FEW, "init": "scale"}, FEW], tmp_path / "search"
    with pytest.warns(UserWarning, match="after 4 of 6 fits"):
        Interrupting(candidates, checkpoint=path, random_state=0).fit(*blobs)
    monkeypatch.setattr(Interrupting, "n_fits", -100)
    search = Interrupting(candidates, checkpoint=path, random_state=0).fit(*blobs)
    assert Interrupting.n_fits == -100 + 2 + len(search.averaged_params_)
    whole = BoostMetricCV(candidates, random_state=0).fit(*blobs)
    np.testing.assert_array_equal(search.components_, whole.components_)
    for name, values in whole.cv_results_.items():
        if "split" in name:
            np.testing.assert_array_equal(search.cv_results_[name], values)


def test_unfinished_checkpoint_of_another_search_is_rejected(
    blobs: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = blobs
    monkeypatch.setattr(Interrupting, "n_fits", 0)
    monkeypatch.setattr(Interrupting, "last", 2)
    path = tmp_path / "search"
    with pytest.warns(UserWarning, match="after 1 of 3 fits"):
        Interrupting([FEW], checkpoint=path, random_state=0).fit(X, y)
    with pytest.raises(CheckpointError, match=r"unfinished fit with cv=3 \(now 4\)"):
        BoostMetricCV([FEW], cv=4, checkpoint=path, random_state=0).fit(X, y)
    with pytest.raises(CheckpointError, match="of other data"):
        BoostMetricCV([FEW], checkpoint=path, random_state=0).fit(2 * X, y)
    with pytest.raises(CheckpointError, match="not a valid checkpoint"):
        BoostMetric(checkpoint=path).fit(X, y)


@pytest.fixture
def only_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every computation fail."""

    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a computation has begun")

    for name in ("draw_splits", "starting_transformation", "BoostMetric.fit"):
        monkeypatch.setattr(f"boostmetric.estimators.cv.{name}", fail)


@pytest.mark.parametrize(
    ("candidates", "error", "message"),
    [
        ([], ValueError, "candidates is empty"),
        ([FEW, {"warm_start": True}], ValueError, "sets 'warm_start', which has no effect"),
        ([FEW, {"max_iter": 0}], ValueError, "'max_iter' parameter"),
        ([{"loss": "nosuch"}], ValueError, "'loss' parameter"),
        ([{**SIMPLE, "alpha": 1.0}], ValueError, "alpha must be < 1"),
        ([{"nosuch": 1}], ValueError, "nosuch"),
        ([{"shrinkage": 1.5}], ValueError, "'shrinkage' parameter"),
        (["logistic"], TypeError, "candidates must be dicts.* got str"),
    ],
)
@pytest.mark.usefixtures("only_checks")
def test_invalid_candidates_are_rejected(
    candidates: list[dict[str, Any]], error: type[Exception], message: str, blobs: Data
) -> None:
    with pytest.raises(error, match=message):
        BoostMetricCV(candidates).fit(*blobs)


@pytest.mark.parametrize(
    "parameters",
    [
        {"cv": 1},
        {"cv": True},
        {"n_neighbors": 0},
        {"n_components": 0},
        {"n_jobs": 0},
        {"verbose": -1},
    ],
)
@pytest.mark.usefixtures("only_checks")
def test_invalid_parameters_are_rejected(parameters: dict[str, Any], blobs: Data) -> None:
    ((name, _),) = parameters.items()
    with pytest.raises(ValueError, match=f"'{name}' parameter must be .* Got .* instead"):
        BoostMetricCV([FEW], **parameters).fit(*blobs)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cv": "three"}, "Expected `?cv`? as an integer"),
        ({"n_components": 6}, "n_components=6 exceeds the number of features"),
        ({"checkpoint": "/nosuch/folder/file"}, "checkpoint must be a writable file path"),
    ],
)
@pytest.mark.usefixtures("only_checks")
def test_parameters_that_cannot_work_are_rejected(
    parameters: dict[str, Any], message: str, blobs: Data
) -> None:
    with pytest.raises(ValueError, match=message):
        BoostMetricCV([FEW], **parameters).fit(*blobs)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(120), "y has only one class, 0.0"),
        (np.linspace(0, 1, 120), "Unknown label type: continuous"),
        (None, "requires y to be passed"),
    ],
)
@pytest.mark.usefixtures("only_checks")
def test_invalid_labels_are_rejected(labels: Any, message: str, blobs: Data) -> None:
    with pytest.raises(ValueError, match=message):
        BoostMetricCV([FEW]).fit(blobs[0], labels)


@pytest.mark.usefixtures("only_checks")
def test_whitening_requires_classes(blobs: Data) -> None:
    with pytest.raises(ValueError, match="init='whiten' requires y"):
        BoostMetricCV([{"init": "whiten"}]).fit(blobs[0], comparisons=[[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (range(40), range(40, 61), r"test indices of split 1 .* \[0, 60\).* got 40 to 60"),
        (range(-1, 40), range(40, 60), r"train indices of split 1 .* got -1 to 39"),
        (np.arange(60) < 40, np.arange(60) >= 40, r"Boolean mask. Pass np.flatnonzero"),
        (range(60), [], r"test indices of split 1 .* nonempty 1D array; got shape \(0,\)"),
        ([], range(60), r"train indices of split 1 .* nonempty"),
        (np.arange(40.0), range(40, 60), "must be integers; got float64"),
    ],
)
def test_invalid_splits_are_rejected(train: Any, test: Any, message: str) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    splits = [(np.arange(30), np.arange(30, 60)), (np.asarray(train), np.asarray(test))]
    with pytest.raises(ValueError, match=message):
        BoostMetricCV([FEW], cv=splits).fit(X, np.arange(60) % 2)


def test_splits_of_comparisons_are_checked() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    comparisons = Comparisons.from_triplets([[i, i + 1, i + 2] for i in range(10)])
    with pytest.raises(ValueError, match=r"\[0, 10\)"):
        BoostMetricCV([FEW], cv=[(range(8), range(8, 12))]).fit(X, comparisons=comparisons)


@pytest.mark.parametrize("seed", [-1, 1 << 32, 0.5, "0", True])
@pytest.mark.parametrize("learner", [BoostMetric, BoostMetricCV, EmbeddingAdapter])
def test_invalid_seeds_are_rejected(learner: Any, seed: Any) -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(ValueError, match="'random_state' parameter must be None, an int in"):
        learner(random_state=seed).fit(X, np.arange(20) % 2)
