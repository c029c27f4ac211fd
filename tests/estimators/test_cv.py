from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import SIMPLE, read_only, simple_learner
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.utils.estimator_checks import estimator_checks_generator

from boostmetric import (
    BoostMetric,
    BoostMetricCV,
    Comparisons,
    Logistic,
    NotANumberError,
    Status,
)
from boostmetric.estimators import cv
from boostmetric.estimators.cv import RECIPE
from boostmetric.estimators.early_stopping import hold_out_points
from boostmetric.estimators.initial import starting_transformation

Data = tuple[NDArray, NDArray]

FEW: dict[str, Any] = {**SIMPLE, "max_iter": 5}

CANDIDATES: tuple[dict[str, Any], ...] = (
    {**SIMPLE, "max_iter": 12, "directions_per_step": 1},
    {
        **SIMPLE,
        "init": "scale",
        "loss": "exponential",
        "max_iter": 6,
        "directions_per_step": 1,
        "n_passes": 2,
    },
    {**SIMPLE, "init": "lda", "max_iter": 3, "directions_per_step": 1},
)

SHORT = BoostMetricCV([FEW, {**FEW, "init": "lda", "max_iter": 3, "n_passes": 2}], n_splits=2)
WITH_RECIPE = BoostMetricCV([{**each, "max_iter": 10} for each in RECIPE], n_splits=1)

CHECKS = [
    pytest.param(estimator, check, marks=marks, id=f"{name}-{check.func.__name__}")
    for name, given, marks in (
        ("short", SHORT, ()),
        ("recipe", WITH_RECIPE, pytest.mark.slow),
    )
    for estimator, check in estimator_checks_generator(given)
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
@pytest.mark.filterwarnings("ignore:points of class:UserWarning")
def test_scikit_learn_checks(
    estimator: BoostMetricCV, check: Callable[[BoostMetricCV], None]
) -> None:
    check(estimator)


@pytest.fixture
def without_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose the lowest error, however small the difference."""
    monkeypatch.setattr(cv, "STANDARD_ERRORS", 0.0)


@pytest.fixture
def validation(blobs: Data) -> Data:
    """More points of the same distribution as the blobs."""
    rng = np.random.default_rng(1)
    y = rng.permutation(np.arange(75) % 3)
    X = rng.normal(size=(75, 5)) * [1, 1, 2, 2, 2]
    X[:, :2] += 1.5 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    read_only(X, y)
    return X, y


@pytest.fixture
def apart(rng: np.random.Generator) -> Data:
    """Classes that are far apart, with and without scaling."""
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4))
    X[:, :2] += 100 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    read_only(X, y)
    return X, y


def n_wrong(A: NDArray, a: NDArray, B: NDArray, b: NDArray, k: int) -> int:
    """Count the rows of B that their k nearest rows of A misclassify; ties go to the nearest."""
    wrong = 0
    for x, label in zip(B, b, strict=True):
        nearest = a[np.argsort(np.sum((A - x) ** 2, axis=1), kind="stable")[:k]].tolist()
        votes = Counter(nearest)
        wrong += max(nearest, key=lambda each: votes[each]) != label
    return wrong


def splits_of(X: NDArray, y: NDArray, n: int, fraction: float, seed: int) -> list[Any]:
    rng, rows = np.random.RandomState(seed), np.arange(len(y))
    held_out = [hold_out_points(y, np.ones(len(y)), fraction, rng) for _ in range(n)]
    return [
        (X[rest], y[rest], X[out], y[out]) for out in held_out for rest in [np.setdiff1d(rows, out)]
    ]


def evaluations(n_iter: int) -> list[int]:
    """The numbers of directions at which a pass of `n_iter` directions is evaluated."""
    numbers = [1]
    while numbers[-1] < n_iter:
        numbers.append(min(n_iter, math.ceil(1.4 * numbers[-1])))
    return numbers


def exhaustive(candidate: dict[str, Any], splits: list[Any], k: int) -> tuple[Any, ...]:
    """Error, stops and curves of a candidate, with one fit per number of directions."""
    options = {name: each for name, each in candidate.items() if name not in ("n_passes", "init")}
    total = sum(len(split[3]) for split in splits)

    def pooled(maps: list[NDArray]) -> float:
        each = zip(splits, maps, strict=True)
        return sum(n_wrong(A @ L.T, a, B @ L.T, b, k) for (A, a, B, b), L in each) / total

    init = candidate.get("init")
    starts = [starting_transformation(init, A, a) for A, a, _, _ in splits]
    maps = [np.eye(splits[0][0].shape[1]) if L is None else L for L in starts]
    error, stops, curves = pooled(maps), [], []
    for _ in range(candidate.get("n_passes", 1)):
        fitted = []
        for (A, a, _, _), L in zip(splits, maps, strict=True):
            learner = BoostMetric(**{**options, "init": L, "n_passes": 1})
            numbers = evaluations(learner.fit(A, a).n_iter_)
            fits = [clone(learner).set_params(max_iter=n).fit(A, a).components_ for n in numbers]
            fitted.append(dict(zip(numbers, fits, strict=True)))
        images = {
            stop: [each[max(n for n in each if n <= stop)] for each in fitted]
            for stop in sorted(set().union(*fitted))
        }
        curve = {stop: pooled(each) for stop, each in images.items()}
        curves.append(curve)
        best = min(curve, key=curve.__getitem__)
        if curve[best] >= error:
            break
        error, maps = curve[best], images[best]
        stops.append(best)
    return error, tuple(stops), curves


@pytest.mark.usefixtures("without_margin")
@pytest.mark.parametrize(
    ("seed", "n_neighbors", "fraction"),
    [(0, 3, 0.2), pytest.param(1, 1, 0.3, marks=pytest.mark.slow)],
)
def test_choice_equals_exhaustive_search(
    seed: int, n_neighbors: int, fraction: float, blobs: Data
) -> None:
    X, y = blobs
    splits = splits_of(X, y, 3, fraction, seed)
    expected = [exhaustive(candidate, splits, n_neighbors) for candidate in CANDIDATES]
    learner = BoostMetricCV(
        CANDIDATES,
        n_splits=3,
        validation_fraction=fraction,
        n_neighbors=n_neighbors,
        random_state=seed,
    ).fit(X, y)
    for trial, candidate, (error, stops, curves) in zip(
        learner.trials_, CANDIDATES, expected, strict=True
    ):
        assert trial.candidate == candidate
        assert trial.error == pytest.approx(error)
        assert trial.stops == stops
        assert [list(curve) for curve in trial.curves] == [list(curve) for curve in curves]
        for found, curve in zip(trial.curves, curves, strict=True):
            assert list(found.values()) == pytest.approx(list(curve.values()))
    best = int(np.argmin([error for error, _, _ in expected]))
    assert learner.best_params_ == CANDIDATES[best]
    assert learner.stops_ == expected[best][1]
    assert learner.best_error_ == pytest.approx(expected[best][0])
    assert any(len(stops) > 0 for _, stops, _ in expected)


@pytest.mark.parametrize("candidate", CANDIDATES)
def test_chosen_candidate_is_fitted_on_all_points(candidate: dict[str, Any], blobs: Data) -> None:
    X, y = blobs
    learner = BoostMetricCV([candidate], n_splits=2, random_state=0).fit(X, y)
    options = {name: each for name, each in candidate.items() if name != "n_passes"}
    L = starting_transformation(options.pop("init", None), X, y)
    for stop in learner.stops_:
        of_pass = {**options, "init": L, "max_iter": stop, "n_passes": 1}
        L = BoostMetric(**of_pass).fit(X, y).components_
    M = np.eye(5) if L is None else L.T @ L
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(learner.transform(X), X @ learner.components_.T)


@pytest.mark.usefixtures("without_margin")
def test_validation_points_are_not_learned_from(blobs: Data, validation: Data) -> None:
    X, y = blobs
    X_val, y_val = validation
    rng = np.random.default_rng(0)
    stops = set()
    for labels in (y_val, *(rng.permutation(y_val) for _ in range(3))):
        learner = BoostMetricCV([CANDIDATES[0]], n_splits=0)
        learner.fit(X, y, X_val=X_val, y_val=labels)
        error, expected, _ = exhaustive(CANDIDATES[0], [(X, y, X_val, labels)], 3)
        assert learner.best_error_ == pytest.approx(error)
        assert learner.stops_ == expected
        M = np.eye(5)
        for stop in learner.stops_:
            alone = simple_learner(max_iter=stop, directions_per_step=1).fit(X, y)
            M = alone.get_mahalanobis_matrix()
        np.testing.assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-9, atol=1e-9)
        stops.add(learner.stops_)
    assert len(stops) > 1


@pytest.mark.usefixtures("without_margin")
def test_splits_are_added_to_validation_points(blobs: Data, validation: Data) -> None:
    X, y = blobs
    splits = [(X, y, *validation), *splits_of(X, y, 2, 0.2, 0)]
    error, stops, _ = exhaustive(CANDIDATES[0], splits, 3)
    learner = BoostMetricCV([CANDIDATES[0]], n_splits=2, random_state=0)
    learner.fit(X, y, X_val=validation[0], y_val=validation[1])
    assert learner.best_error_ == pytest.approx(error)
    assert learner.stops_ == stops


@pytest.mark.parametrize(
    ("n", "n_validation", "expected"),
    [(120, 0, 10), (120, 75, 10), (120, 1990, 1), (120, 2000, 0), (2000, 0, 5)],
)
def test_default_number_of_splits(
    n: int, n_validation: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 2)), np.arange(n) % 2
    X_val, y_val = rng.normal(size=(n_validation, 2)), np.arange(n_validation) % 2
    made: list[int] = []

    def counting(*arguments: Any) -> NDArray:
        made.append(1)
        return hold_out_points(*arguments)

    monkeypatch.setattr("boostmetric.estimators.cv.hold_out_points", counting)
    given = {"X_val": X_val, "y_val": y_val} if n_validation else {}
    BoostMetricCV([{"max_iter": 1, "n_neighbors": 1}], random_state=0).fit(X, y, **given)
    assert len(made) == expected


@pytest.mark.parametrize(
    ("init", "judged"),
    [(None, False), ("scale", True), ("lda", False), ("array", False), ("array", True)],
)
def test_best_starting_transformation_is_kept(init: str | None, judged: bool, apart: Data) -> None:
    X, y = apart
    L = np.array([[1.0, 2, 0, 0], [3, -1, 0, 1]]) if init == "array" else None
    start = starting_transformation(init if L is None else L, X, y)
    candidate = {**FEW, "init": init if L is None else L}
    given = {"X_val": X + 0.1, "y_val": y} if judged else {}
    learner = BoostMetricCV([candidate], n_splits=2, random_state=0).fit(X, y, **given)
    assert (learner.stops_, learner.best_error_) == ((), 0.0)
    M = np.eye(4) if start is None else start.T @ start
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), M, rtol=1e-9, atol=1e-12)


def test_first_of_equal_candidates_is_chosen(apart: Data) -> None:
    learner = BoostMetricCV([{**FEW, "init": "scale"}, FEW], n_splits=2, random_state=0)
    assert learner.fit(*apart).best_params_ == {**FEW, "init": "scale"}
    learner = BoostMetricCV([FEW, {**FEW, "init": "scale"}], n_splits=2, random_state=0)
    assert learner.fit(*apart).best_params_ == FEW


def test_random_state_determines_the_result(blobs: Data) -> None:
    def fitted(seed: int) -> BoostMetricCV:
        return BoostMetricCV(CANDIDATES, n_splits=2, random_state=seed).fit(*blobs)

    first, second, other = fitted(0), fitted(0), fitted(1)
    np.testing.assert_array_equal(first.components_, second.components_)
    assert [trial.curves for trial in first.trials_] == [trial.curves for trial in second.trials_]
    assert [trial.curves for trial in first.trials_] != [trial.curves for trial in other.trials_]


def test_recipe_is_the_default(blobs: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tuple({**candidate, "max_iter": 3} for candidate in RECIPE)
    monkeypatch.setattr("boostmetric.estimators.cv.RECIPE", short)
    learner = BoostMetricCV(n_splits=1, random_state=0).fit(*blobs)
    assert [dict(trial.candidate) for trial in learner.trials_] == list(short)
    assert learner.best_params_ in short
    assert learner.get_params()["candidates"] is None


def test_float32_is_kept(blobs: Data, validation: Data) -> None:
    X, y = blobs
    for candidate in CANDIDATES:
        learner = BoostMetricCV([candidate], n_splits=1, random_state=0)
        for given in ({}, {"X_val": validation[0], "y_val": validation[1]}):
            learner.fit(X.astype(np.float32), y, **given)
            assert learner.components_.dtype == np.float32
            assert learner.transform(X.astype(np.float32)).dtype == np.float32


def test_labels_may_be_text(blobs: Data, validation: Data) -> None:
    names = np.array(["one", "two", "three"])
    (X, y), (X_val, y_val) = blobs, validation

    def fitted(y: NDArray, y_val: NDArray) -> BoostMetricCV:
        learner = BoostMetricCV(CANDIDATES[:2], n_splits=1, random_state=0)
        return learner.fit(X, y, X_val=X_val, y_val=y_val)

    # Names in the order of the numbers, because splits depend on the order of the classes.
    numbers, texts = fitted(y, y_val), fitted(np.sort(names)[y], np.sort(names)[y_val])
    np.testing.assert_array_equal(numbers.components_, texts.components_)
    assert numbers.best_error_ == texts.best_error_


def test_validation_points_may_be_few_and_of_one_class(blobs: Data, validation: Data) -> None:
    X_val, y_val = validation
    rows = np.r_[np.flatnonzero(y_val == 0), np.flatnonzero(y_val == 1)[:1]]
    learner = BoostMetricCV([FEW], n_splits=0)
    for chosen in (rows, rows[:5], rows[:1]):
        learner.fit(*blobs, X_val=X_val[chosen], y_val=y_val[chosen])
        assert round(learner.best_error_ * len(chosen), 9) in range(len(chosen) + 1)


@pytest.fixture
def mined(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Numbers of targets and impostors of every neighbor search."""
    calls: list[tuple[int, int]] = []
    original = Comparisons.from_labels

    def counting(
        X: NDArray, y: NDArray, n_targets: int, n_impostors: int, **options: Any
    ) -> Comparisons:
        calls.append((n_targets, n_impostors))
        return original(X, y, n_targets, n_impostors, **options)

    monkeypatch.setattr(Comparisons, "from_labels", counting)
    return calls


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([FEW, {**FEW, "loss": "exponential"}, {**FEW, "alpha": 0.1}], 1),
        ([FEW, {**FEW, "n_neighbors": 3}, {**FEW, "n_neighbors": (3, 3)}], 1),
        ([FEW, {**FEW, "n_neighbors": 2}, {**FEW, "n_neighbors": (2, 3)}], 3),
        ([FEW, {**FEW, "init": "scale"}, {**FEW, "init": "scale", "loss": "exponential"}], 2),
        ([{**FEW, "init": np.eye(5)}, {**FEW, "init": 2 * np.eye(5)}], 2),
        ([FEW, {**FEW, "index": "faiss"}], 2),
    ],
)
def test_candidates_share_the_first_neighbor_search(
    candidates: list[dict[str, Any]],
    expected: int,
    mined: list[tuple[int, int]],
    blobs: Data,
    validation: Data,
) -> None:
    if "index" in candidates[-1]:
        pytest.importorskip("faiss")
    learner = BoostMetricCV(candidates, n_splits=0)
    learner.fit(*blobs, X_val=validation[0], y_val=validation[1])
    assert len(mined) == expected


def test_shared_neighbors_do_not_change_the_result(blobs: Data) -> None:
    candidates = [{**FEW, "loss": loss, "n_passes": 2} for loss in ("logistic", "exponential")]
    together = BoostMetricCV(candidates, n_splits=2, random_state=0).fit(*blobs)
    for trial, candidate in zip(together.trials_, candidates, strict=True):
        (alone,) = BoostMetricCV([candidate], n_splits=2, random_state=0).fit(*blobs).trials_
        assert alone.curves == trial.curves


def test_trial_has_times_and_pass_summaries(blobs: Data) -> None:
    candidate = {**SIMPLE, "max_iter": 4, "directions_per_step": 2, "tol": 0.0}
    learner = BoostMetricCV([candidate], n_splits=2, random_state=0).fit(*blobs)
    (trial,) = learner.trials_
    (done,) = trial.passes
    assert (done.n_iter, done.n_directions, done.status.name) == (2, 4, "MAX_ITER")
    assert min(trial.seconds) > 0


def test_pass_ends_after_three_evaluations_without_progress() -> None:
    rng = np.random.default_rng(0)  # labels that are independent of the points
    X, y = rng.normal(size=(60, 20)), np.arange(60) % 3
    X_val, y_val = rng.normal(size=(200, 20)), np.arange(200) % 3
    candidate = {**SIMPLE, "loss": "exponential", "directions_per_step": 1}
    learner = BoostMetricCV([candidate], n_splits=0)
    (trial,) = learner.fit(X, y, X_val=X_val, y_val=y_val).trials_
    (curve,) = trial.curves[:1]
    best = min(curve, key=curve.__getitem__)
    assert sum(number > max(best, 24) for number in curve) == 3
    assert list(curve) == evaluations(max(curve))
    assert trial.passes[0].status is Status.STOPPED
    assert max(curve) < 500


def test_verbose_logs_each_candidate(blobs: Data, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="boostmetric"):
        BoostMetricCV([FEW, FEW], n_splits=1).fit(*blobs)
        assert caplog.records == []
        BoostMetricCV([FEW, FEW], n_splits=1, verbose=1).fit(*blobs)
    assert len(caplog.records) == 2
    assert "error 0." in caplog.text


@pytest.fixture
def only_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every computation fail."""

    def fail(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a computation has begun")

    for name in ("hold_out_points", "one_pass", "knn_error", "starting_transformation"):
        monkeypatch.setattr(cv, name, fail)


@pytest.mark.parametrize(
    ("candidates", "error", "message"),
    [
        ([], ValueError, "candidates is empty"),
        ([FEW, {"warm_start": True}], ValueError, "sets 'warm_start', which has no effect"),
        ([FEW, {"max_iter": 0}], ValueError, "'max_iter' parameter"),
        ([{"loss": "nosuch"}], ValueError, "'loss' parameter"),
        ([{**SIMPLE, "alpha": 1.0}], ValueError, "alpha must be < 1"),
        ([{"nosuch": 1}], ValueError, "nosuch"),
        (["logistic"], TypeError, "candidates must be dicts.* got str"),
    ],
)
def test_invalid_candidates_are_rejected(
    candidates: list[dict[str, Any]],
    error: type[Exception],
    message: str,
    blobs: Data,
    only_checks: None,
) -> None:
    with pytest.raises(error, match=message):
        BoostMetricCV(candidates).fit(*blobs)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_splits": 0},
        {"n_splits": 1.5},
        {"validation_fraction": 0.0},
        {"validation_fraction": 1.0},
        {"n_neighbors": 0},
        {"verbose": -1},
    ],
)
def test_invalid_parameters_are_rejected(
    parameters: dict[str, Any], blobs: Data, only_checks: None
) -> None:
    ((name, value),) = parameters.items()
    with pytest.raises(ValueError, match=f"'{name}' parameter must be .* Got {value!r} instead"):
        BoostMetricCV([FEW], **parameters).fit(*blobs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: {"X_val": X}, "y_val"),
        (lambda X, y: {"y_val": y}, "X_val"),
        (lambda X, y: {"X_val": X[:, :4], "y_val": y}, "X has 4 features"),
        (lambda X, y: {"X_val": X[:-1], "y_val": y}, "inconsistent numbers of samples"),
        (lambda X, y: {"X_val": np.full_like(X, np.nan), "y_val": y}, "NaN"),
    ],
)
def test_invalid_validation_points_are_rejected(
    change: Callable[[NDArray, NDArray], dict[str, NDArray]],
    message: str,
    blobs: Data,
    validation: Data,
) -> None:
    with pytest.raises(ValueError, match=message):
        BoostMetricCV([FEW]).fit(*blobs, **change(*validation))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(120), "y has only one class, 0.0"),
        (np.linspace(0, 1, 120), "Unknown label type: continuous"),
        (None, "requires y to be passed"),
    ],
)
def test_invalid_labels_are_rejected(
    labels: Any, message: str, blobs: Data, only_checks: None
) -> None:
    with pytest.raises(ValueError, match=message):
        BoostMetricCV([FEW]).fit(blobs[0], labels)


class FailsLate(Logistic):
    """The logistic loss, NaN from the duals after some calls."""

    n_good, n_calls = math.inf, 0

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        type(self).n_calls += 1
        duals = super().duals(margins, weights)
        return duals if self.n_calls <= self.n_good else np.full_like(duals, np.nan)


@pytest.mark.usefixtures("without_margin")
def test_failure_of_the_last_fit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_wine(return_X_y=True)
    monkeypatch.setattr(FailsLate, "n_calls", 0)
    learner = BoostMetricCV(
        [{**SIMPLE, "loss": FailsLate(), "max_iter": 12}], n_splits=1, random_state=0
    )
    assert learner.fit(X, y).stops_
    monkeypatch.setattr(FailsLate, "n_good", FailsLate.n_calls - 5)
    monkeypatch.setattr(FailsLate, "n_calls", 0)
    with pytest.raises(NotANumberError, match="In step"):
        clone(learner).fit(X, y)


def test_too_few_points_to_hold_out() -> None:
    X, y = np.arange(8.0).reshape(4, 2), [0, 0, 1, 1]
    with pytest.raises(ValueError, match="holds out no point of 4") as caught:
        BoostMetricCV([FEW]).fit(X, y)
    assert "early_stopping" not in str(caught.value)


@pytest.mark.parametrize(("ratio", "n_passes"), [(cv.MAX_ERROR_RATIO, 1), (np.inf, 2)])
def test_poor_candidate_gets_no_further_pass(
    ratio: float, n_passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cv, "MAX_ERROR_RATIO", ratio)
    candidates: list[dict[str, Any]]
    candidates = [{**FEW, "init": "lda"}, {**SIMPLE, "max_iter": 20, "n_passes": 2}]
    X, y = load_wine(return_X_y=True)
    learner = BoostMetricCV(candidates, n_splits=2, random_state=0).fit(X, y)
    first, second = learner.trials_
    assert second.stops  # the first pass helped
    assert second.error > 1.3 * first.error
    assert len(second.passes) == n_passes


def trial(error: float, start_error: float) -> cv.Trial:
    return cv.Trial({}, (1,), error, start_error, (), None, (), (0.0, 0.0))


@pytest.mark.parametrize(
    ("errors", "chosen"),
    [
        ([(0.10, 0.30)], (0, True)),
        ([(0.10, 0.30), (0.09, 0.31)], (1, True)),
        ([(0.05, 0.08)], (0, False)),  # 5 + 1.5·√6 = 8.7 errors of 100
        ([(0.05, 0.09)], (0, True)),
        ([(0.05, 0.30), (0.30, 0.08)], (1, False)),
        ([(0.05, 0.05), (0.05, 0.05)], (0, False)),
    ],
)
def test_learned_metric_must_beat_every_start(
    errors: list[tuple[float, float]], chosen: tuple[int, bool]
) -> None:
    assert cv.choose([trial(*each) for each in errors], 100) == chosen


def test_verbose_works_without_logging_setup(caplog: pytest.LogCaptureFixture) -> None:
    X, y = load_wine(return_X_y=True)
    logging.getLogger("boostmetric").setLevel(logging.NOTSET)
    BoostMetricCV([{"max_iter": 3}], n_splits=1, random_state=0).fit(X, y)
    assert not caplog.records
    BoostMetricCV([{"max_iter": 3}], n_splits=1, random_state=0, verbose=1).fit(X, y)
    assert "{'max_iter': 3}: error 0." in caplog.text
