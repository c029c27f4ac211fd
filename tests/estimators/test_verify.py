"""Learned metrics are compared with the start."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from unfriendly_data import small_classes

from boostmetric import BoostMetric, Comparisons, Status, boost, knn_error
from boostmetric.estimators import boostmetric as estimator
from boostmetric.estimators import listening, verify
from boostmetric.estimators.initial import starting_transformation
from boostmetric.estimators.splits import Errors
from boostmetric.estimators.training_data import TrainingData
from boostmetric.estimators.verify import LeaveOneOut, Verification, halves

Data = tuple[NDArray, NDArray]

GIVEN: dict[str, Any] = {
    "init": "scale",
    "n_neighbors": (3, 6),
    "n_passes": 1,
    "alpha": 1e-2,
    "max_iter": 50,
}
"""Parameters that do not depend on the data."""


def classes(seed: int = 0, n: int = 120, gain: float = 2.0, n_features: int = 8) -> Data:
    """Two classes that differ in the first feature."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    X = rng.normal(size=(n, n_features)) * np.linspace(1, 3, n_features)
    X[:, 0] += gain * y
    return X, y


def triplets_of(X: NDArray, y: NDArray, m: int, seed: int = 0) -> NDArray:
    """Triplets of random points of the same class and of another one."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(X), (50 * m, 3))
    valid = (y[rows[:, 0]] == y[rows[:, 1]]) & (y[rows[:, 0]] != y[rows[:, 2]])
    return rows[valid & (rows[:, 0] != rows[:, 1])][:m]


def tie_errors(Z: NDArray, y: NDArray, queries: NDArray, truth: NDArray, k: int) -> NDArray:
    """The probability that a random choice among the most frequent classes is wrong."""
    model = KNeighborsClassifier(k).fit(Z, y)
    is_winner = np.isclose(shares := model.predict_proba(queries), shares.max(axis=1)[:, None])
    right = is_winner & (model.classes_ == truth[:, None])
    return 1 - right.sum(axis=1) / is_winner.sum(axis=1)


def leave_one_out(Z: NDArray, y: NDArray, k: int) -> NDArray:
    rest = [np.delete(np.arange(len(y)), row) for row in range(len(y))]
    return np.array([
        tie_errors(Z[others], y[others], Z[[row]], y[[row]], k)[0]
        for row, others in enumerate(rest)
    ])  # fmt: skip


def unit_errors(*values: float, weights: Any = 1.0, chance: float = 1.0) -> Errors:
    n = len(values)
    return Errors(np.array(values), np.full(n, chance), np.broadcast_to(weights, n).astype(float))


def fit_silently(learner: BoostMetric, *data: Any, **given: Any) -> BoostMetric:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Learning did not lower|After learning")
        return learner.fit(*data, **given)


# 1) leave-one-out errors


@pytest.mark.filterwarnings("ignore:Points of class")
@pytest.mark.parametrize("n_classes", [2, 5, 40])
def test_leave_one_out_errors_match_scikit_learn(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    y = rng.permutation(np.arange(90) % n_classes)
    X = rng.normal(size=(90, 4)) + np.c_[y, np.zeros((90, 3))]
    check = LeaveOneOut(TrainingData(X, y))
    k = 1 if n_classes == 40 else 3
    assert check.n_neighbors == k
    assert sorted(check.queries) == list(range(90))
    for Z in (X, X @ rng.normal(size=(4, 2)), 1e8 + X):
        expected = leave_one_out(Z, y, k)
        assert 0 < expected.mean() < 1
        np.testing.assert_allclose(check.errors(Z).values, expected[check.queries])
        pairs = Comparisons.from_labels(Z, y, 3, 3).pairs
        with_pairs = check.errors(Z, pairs)
        np.testing.assert_allclose(with_pairs.values, expected[check.queries])
        np.testing.assert_allclose(check.errors(csr_array(Z)).values, expected[check.queries])


def test_leave_one_out_errors_of_two_classes_are_those_of_knn_error() -> None:
    X, y = classes()
    found = LeaveOneOut(TrainingData(X, y)).errors(X)
    assert found.values.mean() == pytest.approx(knn_error(X, y))
    # With two classes of equal size, half of the labels are wrong by chance.
    assert found.chance.mean() == pytest.approx(0.5)


def test_chance_is_the_error_with_labels_of_other_points() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.choice(4, size=80, p=[0.5, 0.3, 0.1, 0.1])
    check = LeaveOneOut(TrainingData(X, y))
    expected = []
    for row in check.queries:
        others = np.delete(np.arange(80), row)
        answers = np.repeat(X[[row]], 80, axis=0)
        expected.append(tie_errors(X[others], y[others], answers, y, 3).mean())
    np.testing.assert_allclose(check.errors(X).chance, expected)


def test_leave_one_out_errors_of_duplicates_and_weights() -> None:
    X, y = classes(n=60)
    weights = np.random.default_rng(0).integers(0, 4, 60).astype(float)
    repeated = np.repeat(np.arange(60), weights.astype(int))
    once = LeaveOneOut(TrainingData(X, y, weights)).errors(X)
    often = LeaveOneOut(TrainingData(X[repeated], y[repeated])).errors(X[repeated])
    kept = weights > 0
    assert len(once.values) == len(often.values) == kept.sum()
    rows = np.flatnonzero(kept)
    expected = np.average(leave_one_out(X[rows], y[rows], 3), weights=weights[rows])
    for errors in (once, often):
        assert np.average(errors.values, weights=errors.weights) == pytest.approx(expected)


def test_leave_one_out_errors_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "MAX_QUERIES", 30)
    X, y = classes()
    rows = np.random.default_rng(0).permutation(120)
    check, other = LeaveOneOut(TrainingData(X, y)), LeaveOneOut(TrainingData(X[rows], y[rows]))
    assert len(check.queries) == 30
    assert len(check.references) == 120
    assert set(rows[other.queries]) == set(check.queries)
    np.testing.assert_allclose(check.errors(X).values, leave_one_out(X, y, 3)[check.queries])


def test_pairs_are_not_used_if_they_are_no_neighbors() -> None:
    """Comparisons that were given, and too few neighbors of a point, do not contain the nearest."""
    X, y = classes(n=60)
    expected = leave_one_out(X, y, 3)
    data = TrainingData(X, y, comparisons=Comparisons.from_triplets([[0, 1, 2]]))
    far = np.array([[i, (i + shift) % 60] for i in range(60) for shift in (29, 30, 31)])
    check = LeaveOneOut(data)
    np.testing.assert_allclose(check.errors(X, far).values, expected[check.queries])
    check = LeaveOneOut(TrainingData(X, y))
    np.testing.assert_allclose(check.errors(X, far[:5]).values, expected[check.queries])


# 2) the decision


@pytest.mark.parametrize(
    ("n_worse", "n_better", "n_kept"),
    [(0, 0, 1), (1, 0, 1), (2, 0, 0), (3, 1, 1), (4, 1, 0), (0, 5, 1), (5, 5, 1)],
)
def test_simpler_metric_must_be_better_by_a_standard_error(
    n_worse: int, n_better: int, n_kept: int
) -> None:
    """The difference in units of √(n_worse + n_better) must exceed 1."""
    start = unit_errors(*[0.0] * n_worse, *[1.0] * n_better, *[0.0] * 20)
    learned = unit_errors(*[1.0] * n_worse, *[0.0] * n_better, *[0.0] * 20)
    found = Verification.of([start, learned], "halves", needs_evidence=False)
    assert found.n_kept == n_kept
    differences = start.values - learned.values
    assert found.gain == pytest.approx(differences.mean())
    assert found.gain_standard_error == pytest.approx(differences.std() / len(differences) ** 0.5)


def test_passes_are_compared_with_the_best_later_one() -> None:
    best, good, bad = (unit_errors(*[1.0] * k, *[0.0] * (20 - k)) for k in (2, 6, 15))
    kept = [
        Verification.of(errors, "halves", needs_evidence=False).n_kept
        for errors in ([bad, good, best], [bad, best, good], [best, bad, good], [good, bad, best])
    ]
    assert kept == [2, 1, 0, 2]
    learned = Verification.of([bad, best, good], "halves", needs_evidence=False)
    assert (learned.start, learned.learned) == (0.75, 0.1)
    # If the start is kept, the error after learning is that of the last pass.
    assert Verification.of([best, bad, good], "halves", needs_evidence=False).learned == 0.3


@pytest.mark.parametrize(("n_right", "is_chance"), [(50, True), (63, True), (67, False)])
def test_learned_metric_must_be_better_than_chance(n_right: int, is_chance: bool) -> None:
    """With 100 points and two classes, three standard errors are about 15 %."""
    learned = unit_errors(*[0.0] * n_right, *[1.0] * (100 - n_right), chance=0.5)
    start = unit_errors(*[1.0] * 100, chance=0.5)
    found = Verification.of([start, learned], "halves", needs_evidence=True)
    assert found.is_chance is is_chance
    assert found.n_kept == (0 if is_chance else 1)
    assert Verification.of([start, learned], "halves", needs_evidence=False).n_kept == 1


def test_decision_counts_by_weight() -> None:
    weights = [3.0, 1.0, 1.0, 1.0]
    start, learned = (unit_errors(*each, weights=weights) for each in ((1, 0, 0, 0), (0, 1, 1, 0)))
    found = Verification.of([start, learned], "halves", needs_evidence=False)
    assert found.n_kept == 1
    assert (found.start, found.learned) == pytest.approx((0.5, 1 / 3))
    assert found.gain == pytest.approx(1 / 6)
    swapped = Verification.of([learned, start], "halves", needs_evidence=False)
    assert swapped.n_kept == 1  # 3 − 2, with a standard error of √11


# 3) `errors_`


@pytest.mark.filterwarnings("ignore:Points of class")
@pytest.mark.parametrize(
    ("kind", "n_halves"), [("strong", 1), ("weak", 2), ("small classes", 1), ("tiny classes", 1)]
)
def test_errors_of_halves_match_two_fits(kind: str, n_halves: int) -> None:
    if kind in ("strong", "weak"):
        X, y = classes(n=240, gain=5, n_features=20) if kind == "strong" else classes(gain=1)
        whole, k = False, 3
    else:
        n_classes, per_class = (20, 6) if kind == "small classes" else (60, 3)
        X, y, _, _ = small_classes(np.random.default_rng(0), n_classes, per_class, 8)
        whole, k = True, (3 if kind == "small classes" else 1)
    learner = fit_silently(BoostMetric(**GIVEN), X, y)
    data = TrainingData(X, y)
    sides = halves(data, LeaveOneOut(data), 0)
    assert whole is not bool(set(y[sides[0]]) & set(y[sides[1]]))
    before: list[NDArray] = []
    after: list[NDArray] = []
    for train, rest in (sides, sides[::-1]):
        fitted = BoostMetric(verify=False, **GIVEN).fit(X[train], y[train])
        for errors, Z in ((before, X / X[train].std(axis=0)), (after, fitted.transform(X))):
            if whole:
                errors.append(leave_one_out(Z[rest], y[rest], k))
            else:
                errors.append(tie_errors(Z[train], y[train], Z[rest], y[rest], k))
    start, learned = (np.concatenate(each[:n_halves]) for each in (before, after))
    assert learner.errors_["measure"] == "halves"
    assert learner.errors_["n_queries"] == len(start)
    gains = start - learned
    expected = {
        "start": start.mean(),
        "learned": learned.mean(),
        "gain": gains.mean(),
        "gain_standard_error": gains.std() / np.sqrt(len(gains)),
    }
    assert {name: learner.errors_[name] for name in expected} == pytest.approx(expected)
    # The second half is used if learning did not help on the first one.
    assert (before[0].sum() >= after[0].sum()) is np.bool_(n_halves == 1)


def test_errors_of_many_points_are_leave_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator, "MAX_POINTS_IN_HALVES", 100)
    X, y = classes()
    learner = BoostMetric(**{**GIVEN, "n_passes": 2}).fit(X, y)
    start, learned = X / X.std(axis=0), learner.transform(X)
    errors = learner.errors_
    assert (errors["measure"], errors["n_queries"]) == ("leave-one-out", 120)
    assert errors["start"] == pytest.approx(knn_error(start, y))
    assert errors["learned"] == pytest.approx(knn_error(learned, y))
    gains = leave_one_out(start, y, 3) - leave_one_out(learned, y, 3)
    assert errors["gain"] == pytest.approx(gains.mean())
    assert errors["gain_standard_error"] == pytest.approx(gains.std() / np.sqrt(120))


def test_starts_like_chance_are_compared_on_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator, "MAX_POINTS_IN_HALVES", 100)
    X, y = classes(gain=0.0)
    learner = fit_silently(BoostMetric(**GIVEN), X, y)
    assert learner.errors_["measure"] == "halves"


def test_learned_metric_is_that_without_verification() -> None:
    X, y = classes(gain=4.0)
    verified, learned = (BoostMetric(verify=each, **GIVEN).fit(X, y) for each in (True, False))
    assert verified.errors_["gain"] > 0
    assert not hasattr(learned, "errors_")
    np.testing.assert_array_equal(verified.components_, learned.components_)
    assert not hasattr(verified.set_params(verify=False).fit(X, y), "errors_")


@pytest.mark.parametrize("changes", [{"warm_start": True}, {"early_stopping": True}])
def test_continued_and_held_out_fits_are_not_verified(changes: dict[str, bool]) -> None:
    X, y = classes()
    learner = BoostMetric(**GIVEN).fit(X, y)
    assert not hasattr(learner.set_params(**changes).fit(X, y), "errors_")


def test_interrupted_fits_are_not_verified() -> None:
    X, y = classes()
    with listening(lambda progress: True):
        learner = BoostMetric(**GIVEN).fit(X, y)
    assert learner.status_ is Status.STOPPED
    assert not hasattr(learner, "errors_")


def test_verbose_logs_the_errors(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="boostmetric"):
        errors = BoostMetric(verbose=1, **GIVEN).fit(*classes()).errors_
    expected = f"{100 * errors['start']:.1f} % before learning, {100 * errors['learned']:.1f} %"
    assert f"3-NN error on held-out data: {expected} after." in caplog.text


# 4) the start is kept

STARTS: dict[str, Any] = {
    "none": None,
    "scale": "scale",
    "whiten": "whiten",
    "pca": "pca",
    "array": np.random.default_rng(1).normal(size=(5, 8)),
}


@pytest.mark.parametrize("init", STARTS)
def test_start_is_kept_exactly(init: str) -> None:
    X, y = classes(1, gain=0.0)
    parameters = {**GIVEN, "init": STARTS[init], "n_passes": 2}
    with pytest.warns(UserWarning, match=r"; the starting metric is kept\.$") as caught:
        learner = BoostMetric(**parameters).fit(X, y)
    errors = learner.errors_
    (message,) = (str(each.message) for each in caught)  # a single warning
    assert f"{100 * errors['learned']:.1f} %" in message
    L = {
        "none": np.eye(8),
        "scale": np.diag(1 / X.std(axis=0)),
        "pca": PCA().fit(X).components_,
        "array": STARTS["array"],
    }.get(init)
    if L is None:
        within = X - np.stack([X[y == c].mean(axis=0) for c in (0, 1)])[y]
        # up to the shrinkage of the covariance
        np.testing.assert_allclose(np.cov((within @ learner.components_.T).T), np.eye(8), atol=0.1)
    else:
        np.testing.assert_allclose(learner.components_.T @ learner.components_, L.T @ L, atol=1e-12)
    # Everything else describes what was learned.
    learned = BoostMetric(verify=False, **parameters).fit(X, y)
    assert learner.status_ is learned.status_
    assert learner.alpha_ == learned.alpha_
    for name, values in learned.history_.items():
        if name != "seconds":
            np.testing.assert_array_equal(learner.history_[name], values)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: classes(gain=0.0),
            r"After learning, the 3-NN error on held-out data \(\d+\.\d %\) is not below that of "
            r"random labels; the starting metric is kept\.",
        ),
        (
            lambda: small_classes(np.random.default_rng(3), 12, 5, 8)[:2],
            r"Learning did not lower the 3-NN error on held-out data \(\d+\.\d ± \d\.\d % before, "
            r"\d+\.\d % after\); the starting metric is kept\.",
        ),
    ],
    ids=["chance", "worse"],
)
def test_sentences_of_the_warnings(make: Any, sentence: str) -> None:
    X, y = make()
    init = "whiten" if len(np.unique(y)) > 2 else "scale"
    with pytest.warns(UserWarning, match=sentence):
        BoostMetric(**{**GIVEN, "init": init, "max_iter": 1}).fit(X, y)


def test_start_of_many_features_is_not_kept() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    X = csr_array(
        (rng.random(800), rng.integers(20_000, size=800), np.arange(0, 801, 10)), (80, 20_000)
    )
    parameters: dict[str, Any] = {**GIVEN, "init": None, "max_iter": 3}
    with pytest.warns(
        UserWarning, match="What was learned is kept nevertheless, because with 20000"
    ):
        learner = BoostMetric(**parameters).fit(X, y)
    assert learner.components_.shape == (3, 20_000)
    assert learner.errors_["gain"] <= 0
    reduced = fit_silently(BoostMetric(n_components=2, **parameters), X, y)
    assert reduced.components_.shape == (2, 20_000)
    assert BoostMetric(verify=False, **parameters).fit(X, y).components_.shape[1] == 20_000


def test_start_of_limited_rank_is_kept() -> None:
    X, y = classes(gain=0.0)
    learner = fit_silently(BoostMetric(n_components=3, **GIVEN), X, y)
    assert learner.components_.shape == (3, 8)
    scaled = X / X.std(axis=0)
    expected = PCA(3).fit(scaled).components_ / X.std(axis=0)
    np.testing.assert_allclose(
        learner.components_.T @ learner.components_, expected.T @ expected, atol=1e-12
    )


def test_metric_of_limited_rank_is_compared_with_principal_axes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimator, "MAX_POINTS_IN_HALVES", 100)
    X, y = classes()
    learner = BoostMetric(n_components=2, **GIVEN).fit(X, y)
    assert learner.components_.shape == (2, 8)
    scaled = X / X.std(axis=0)
    assert learner.errors_["start"] == pytest.approx(
        knn_error(PCA(2).fit_transform(scaled), y), abs=1e-9
    )
    assert learner.errors_["learned"] == pytest.approx(knn_error(learner.transform(X), y))


# 5) passes


@pytest.fixture(scope="module")
def collapsing() -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """300 classes of three points: a second pass with as many impostors as targets collapses."""
    return small_classes(np.random.default_rng([0, 300]), 300, 3, 16)


COLLAPSE: dict[str, Any] = {
    "init": "whiten",
    "n_neighbors": 5,
    "n_passes": 2,
    "alpha": 1e-2,
}


@pytest.mark.filterwarnings("ignore:Points of class")
def test_pass_that_makes_neighbors_worse_is_dropped(
    collapsing: tuple[NDArray, NDArray, NDArray, NDArray],
) -> None:
    X, y, X_test, y_test = collapsing

    def error(learner: BoostMetric) -> float:
        return knn_error(learner.transform(X), y, learner.transform(X_test), y_test)

    one = BoostMetric(**{**COLLAPSE, "n_passes": 1}, verify=False).fit(X, y)
    two = BoostMetric(**COLLAPSE, verify=False).fit(X, y)
    kept = BoostMetric(**{**COLLAPSE, "n_passes": 5}, verify="passes").fit(X, y)
    assert error(two) > error(one) + 0.2
    np.testing.assert_array_equal(kept.components_, one.components_)
    assert set(kept.history_["pass"]) == {0, 1}  # nothing is learned after the dropped pass
    errors = kept.errors_
    assert errors["measure"] == "leave-one-out"
    assert errors["learned"] < errors["start"]
    assert errors["learned"] == pytest.approx(
        leave_one_out(one.transform(X), y, 1).mean(), abs=1e-9
    )


@pytest.mark.filterwarnings("ignore:Points of class")
def test_default_does_not_collapse(
    collapsing: tuple[NDArray, NDArray, NDArray, NDArray],
) -> None:
    X, y, X_test, y_test = collapsing
    learner = BoostMetric().fit(X, y)
    L = starting_transformation(learner.init_, X, y)
    assert isinstance(L, np.ndarray)
    before = knn_error(X @ L.T, y, X_test @ L.T, y_test)
    after = knn_error(learner.transform(X), y, learner.transform(X_test), y_test)
    assert after < before - 0.05
    assert learner.errors_["gain"] > 0.05


# 6) other data


@pytest.mark.parametrize("weight", [0, 2, 3])
def test_weights_are_equivalent_to_duplicates(weight: int) -> None:
    X, y = classes(gain=1.5)
    weights = np.where(np.arange(120) % 3 == 0, weight, 1)
    rows = np.repeat(np.arange(120), weights)
    weighted = fit_silently(BoostMetric(**GIVEN), X, y, sample_weight=weights)
    repeated = fit_silently(BoostMetric(**GIVEN), X[rows], y[rows])
    assert weighted.errors_ == pytest.approx(repeated.errors_)
    np.testing.assert_allclose(
        weighted.get_mahalanobis_matrix(), repeated.get_mahalanobis_matrix(), rtol=1e-7, atol=1e-12
    )


@pytest.mark.parametrize("gain", [0.0, 3.0])
def test_sparse_points_are_verified_like_dense_ones(gain: float) -> None:
    X, y = classes(gain=gain)
    X = X * (np.random.default_rng(0).random(X.shape) < 0.7)
    dense, sparse = (
        fit_silently(BoostMetric(**GIVEN), form(X), y) for form in (np.copy, csr_array)
    )
    assert sparse.errors_ == pytest.approx(dense.errors_)
    np.testing.assert_allclose(
        sparse.get_mahalanobis_matrix(), dense.get_mahalanobis_matrix(), rtol=1e-7, atol=1e-12
    )


@pytest.mark.parametrize("is_known", [True, False])
def test_multilabel_targets_are_verified(is_known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator, "MAX_POINTS_IN_HALVES", 90 if is_known else 1000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    Y = (X[:, :3] > 0.3).astype(int)
    if not is_known:
        Y = rng.permutation(Y)
    learner = fit_silently(BoostMetric(**GIVEN), X, csr_array(Y))
    if not is_known:
        assert learner.errors_["measure"] == "halves"
        scale = np.diag(1 / X.var(axis=0))
        np.testing.assert_allclose(learner.get_mahalanobis_matrix(), scale, rtol=1e-12)
        return
    labeled = np.flatnonzero(Y.any(axis=1))
    for name, Z in (("start", X / X.std(axis=0)), ("learned", learner.transform(X))):
        unlike = []
        for row in labeled:
            others = labeled[labeled != row]
            nearest = others[np.argsort(np.sum((Z[others] - Z[row]) ** 2, axis=1))[:3]]
            unlike.append(np.mean((Y[nearest] * Y[row]).sum(axis=1) == 0))
        assert learner.errors_[name] == pytest.approx(np.mean(unlike))
    assert learner.errors_["n_queries"] == len(labeled)


@pytest.mark.parametrize(("gain", "n_halves"), [(1.0, 2), (3.0, 1)])
def test_comparisons_without_labels_are_verified_on_others(gain: float, n_halves: int) -> None:
    """With a gain of 1, the first half is not better than chance, so the second is used, too."""
    X, y = classes(gain=gain)
    triplets = triplets_of(X, y, 300)
    learner = fit_silently(BoostMetric(**GIVEN), X, comparisons=triplets)
    data = TrainingData(X, comparisons=Comparisons.from_triplets(triplets))
    sides = halves(data, None, 0)
    scaled = X / X.std(axis=0)

    def violated(Z: NDArray, rows: NDArray) -> NDArray:
        a, b, c = Z[triplets[rows].T]
        return np.sum((a - b) ** 2, axis=1) >= np.sum((a - c) ** 2, axis=1)

    before, after = [], []
    for train, rest in (sides, sides[::-1]):
        fit = boost(
            scaled,
            Comparisons.from_triplets(triplets[train]),
            regularizer="frobenius",
            alpha=1e-2,
            max_iter=50,
            directions_per_step=8,
        )
        before.append(violated(scaled, rest))
        after.append(violated(fit.metric.transform(scaled), rest))
    errors = learner.errors_
    assert errors["measure"] == "halves"
    assert errors["n_queries"] == len(np.concatenate(before[:n_halves]))
    assert errors["start"] == pytest.approx(np.concatenate(before[:n_halves]).mean())
    assert errors["learned"] == pytest.approx(np.concatenate(after[:n_halves]).mean())


def test_random_comparisons_keep_the_start() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    triplets = np.stack([rng.permutation(60)[:3] for _ in range(200)])
    sentence = r"After learning, the fraction of violated comparisons on held-out data .* kept\."
    with pytest.warns(UserWarning, match=sentence):
        learner = BoostMetric(init=None).fit(X, comparisons=triplets)
    np.testing.assert_array_equal(learner.get_mahalanobis_matrix(), np.eye(5))
    assert learner.metric_.n_directions == 5
    assert learner.errors_["learned"] > 0.4


def test_too_little_data_are_not_verified() -> None:
    X = np.random.default_rng(0).normal(size=(12, 3))
    learner = BoostMetric(**GIVEN).fit(X, comparisons=[[0, 1, 2], [3, 4, 5], [6, 7, 8]])
    assert not hasattr(learner, "errors_")


def test_kept_start_can_be_saved(tmp_path: Path) -> None:
    X, y = classes(gain=0.0)
    learner = fit_silently(BoostMetric(**GIVEN), X, y)
    learner.metric_.save(tmp_path / "m")
    loaded = type(learner.metric_).load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.components, learner.components_)
