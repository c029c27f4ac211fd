from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import read_only, simple_learner
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_array, hstack
from sklearn.neighbors import NearestNeighbors

from boostmetric import BoostMetric, Comparisons, knn_error
from boostmetric.data.labels import Labels
from boostmetric.engines import Threads
from boostmetric.estimators.early_stopping import hold_out_points
from boostmetric.evaluation.knn import unlike_share
from boostmetric.neighbors import NONE, nearest_targets_and_impostors


def draw(n: int = 90, D: int = 5, L: int = 4, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Points and labels; each label depends on one feature, and some points have no label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) * np.linspace(1, 4, D)
    Y = (X[:, np.arange(L) % 3] + 0.3 * rng.normal(size=(n, L)) > 0.7).astype(int)
    read_only(X, Y)
    return X, Y


def nearest_by_loop(X: NDArray, Y: NDArray, k: int, alike: bool) -> list[list[int]]:
    """The k nearest points with or without a common label, one point at a time."""
    found = []
    for i in range(len(X)):
        candidates = [
            (float(f"{np.sum((X[i] - X[j]) ** 2):.11g}"), j)
            for j in range(len(X))
            if j != i and any(a and b for a, b in zip(Y[i], Y[j], strict=True)) == alike
        ]
        chosen = [j for _, j in sorted(candidates)[:k]]
        found.append(chosen + [NONE] * (k - len(chosen)))
    return found


def triplets_by_loop(
    X: NDArray, Y: NDArray, n_targets: int, n_impostors: int
) -> list[tuple[int, int, int]]:
    targets = nearest_by_loop(X, Y, n_targets, alike=True)
    impostors = nearest_by_loop(X, Y, n_impostors, alike=False)
    return [
        (i, j, far)
        for i in range(len(X))
        for j in targets[i]
        for far in impostors[i]
        if NONE not in (j, far)
    ]


def same(one: Comparisons, other: Comparisons) -> bool:
    return (
        np.array_equal(one.pairs, other.pairs)
        and np.array_equal(one.near, other.near)
        and np.array_equal(one.far, other.far)
        and np.array_equal(one.weights, other.weights)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("n_targets", "n_impostors", "seed"), [(1, 1, 0), (3, 2, 1), (3, 2, 2), (40, 80, 3)]
)
def test_neighbors_equal_loop(
    n_targets: int, n_impostors: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = draw(seed=seed)
    monkeypatch.setattr("boostmetric.neighbors.exact.TILE", 17)
    for points in (X, csr_array(X)):
        targets, impostors = nearest_targets_and_impostors(
            points, Labels.of(Y), n_targets, n_impostors, threads=Threads(2)
        )
        assert targets.tolist() == nearest_by_loop(X, Y, n_targets, alike=True)
        assert impostors.tolist() == nearest_by_loop(X, Y, n_impostors, alike=False)


def test_comparisons_equal_loop() -> None:
    X, Y = draw()
    made = Comparisons.from_labels(X, Y, 2, 2)
    assert (Y.sum(axis=1) == 0).any()
    assert same(made, Comparisons.from_triplets(triplets_by_loop(X, Y, 2, 2)))
    assert made.n_points == 90


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_label_per_point_equals_classes(dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(120, 4)), 1).astype(dtype)  # with ties
    y = rng.integers(0, 3, size=120)
    Y = (y[:, None] == np.arange(3)).astype(int)
    weights = rng.integers(0, 3, size=120)
    for weight in (None, weights):
        assert same(
            Comparisons.from_labels(X, Y, 3, 2, sample_weight=weight),
            Comparisons.from_labels(X, y, 3, 2, sample_weight=weight),
        )
    options: dict[str, Any] = {"max_iter": 8, "early_stopping": False}
    learned = simple_learner(**options).fit(X, Y).metric_.matrix
    assert np.array_equal(learned, simple_learner(**options).fit(X, y).metric_.matrix)


@pytest.mark.parametrize(
    "form",
    [
        np.ndarray.tolist,
        lambda Y: Y.astype(bool),
        lambda Y: Y.astype(np.float32),
        coo_matrix,
        lambda Y: csr_array(Y.astype(bool)),
        lambda Y: pd.DataFrame(Y).astype("Int64"),
        pl.DataFrame,
    ],
    ids=range(7),
)
def test_indicator_formats_are_equivalent(form: Any) -> None:
    X, Y = draw()
    made = Comparisons.from_labels(X, form(Y), 2, 2)
    assert same(made, Comparisons.from_labels(X, Y, 2, 2))
    learner = simple_learner(max_iter=5, n_neighbors=2).fit(csr_array(X), form(Y))
    expected = simple_learner(max_iter=5, n_neighbors=2).fit(X, Y)
    assert np.allclose(learner.metric_.matrix, expected.metric_.matrix, rtol=1e-8, atol=1e-10)
    assert learner.score(X, form(Y)) == pytest.approx(expected.score(X, Y))


def test_learned_metric_lowers_the_error() -> None:
    X, Y = draw(n=300)
    learner = simple_learner().fit(X[:200], Y[:200])
    before = unlike_share(X[:200], Y[:200], X[200:], Y[200:])
    Z = learner.transform(X)
    assert unlike_share(Z[:200], Y[:200], Z[200:], Y[200:]) < 0.8 * before
    assert learner.score(X[200:], Y[200:]) > simple_learner(max_iter=1).fit(X, Y).score(X, Y)


def test_point_without_labels_is_only_impostor() -> None:
    X = np.array([[0.0], [2.0], [0.5], [9.0]])
    Y = [[1, 0], [1, 0], [0, 0], [0, 0]]
    made = Comparisons.from_labels(X, Y, 1, 1)
    assert same(made, Comparisons.from_triplets([[0, 1, 2], [1, 0, 2]]))


def test_few_neighbors_warn_with_label_set() -> None:
    X = np.arange(6.0)[:, None]
    Y = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 1], [0, 1, 1], [0, 1, 0], [0, 0, 0]])
    with pytest.warns(UserWarning, match=r"label set \{1\} have 1 of 2 targets \(1 label"):
        made = Comparisons.from_labels(X, Y, 2, 1)
    assert same(made, Comparisons.from_triplets(triplets_by_loop(X, Y, 2, 1)))
    with pytest.warns(UserWarning, match=r"label set \{0, 2\} have 2 of 3 impostors"):
        Comparisons.from_labels(X, Y, 1, 3)


def test_sample_weight_equals_repetition() -> None:
    X, Y = draw(n=60)
    weights = np.random.default_rng(0).integers(0, 3, size=60)
    rows = np.repeat(np.arange(60), weights)
    weighted = simple_learner(max_iter=5, n_neighbors=2).fit(X, Y, sample_weight=weights)
    twice = simple_learner(max_iter=5, n_neighbors=2).fit(X[rows], Y[rows])
    assert np.allclose(weighted.metric_.matrix, twice.metric_.matrix, rtol=1e-8)


def test_unlike_share_equals_loop() -> None:
    X, Y = draw(n=120)
    weights = np.random.default_rng(0).random(40)
    for k in (1, 4, 500):
        total = 0.0
        for x, labels, weight in zip(X[80:], Y[80:], weights, strict=True):
            order = np.argsort(np.sum((X[:80] - x) ** 2, axis=1))[:k]
            total += weight * np.mean([not (Y[j] & labels).any() for j in order])
        for form in (np.asarray, csr_array):
            share = unlike_share(
                X[:80], form(Y[:80]), form(X[80:]), form(Y[80:]), k, sample_weight=weights
            )
            assert share == pytest.approx(total / weights.sum())


def test_errors_name_the_function_for_other_labels() -> None:
    X, Y = draw(n=20)
    with pytest.raises(ValueError, match=r"y_train must have shape .* got \(20, 4\).*unlike_share"):
        knn_error(X, Y, X, Y)
    with pytest.raises(ValueError, match=r"indicators of shape .*knn_error"):
        unlike_share(X, Y[:, 0], X, Y)


@pytest.mark.parametrize("fraction", [0.1, 0.4, 0.9])
def test_two_points_per_label_are_not_held_out(fraction: float) -> None:
    _, Y = draw(n=100, L=3)
    rare = np.zeros(100, dtype=int)
    rare[np.flatnonzero(Y.any(axis=1))[:2]] = 1
    Y = np.column_stack([Y, rare])
    weights = (np.arange(100) % 5 > 0).astype(float)
    weights[rare > 0] = 1
    for form in (np.asarray, csr_array):
        held_out = hold_out_points(form(Y), weights, fraction, np.random.RandomState(0))
        left = np.setdiff1d(np.flatnonzero(weights), held_out)
        assert (Y[left].sum(axis=0) >= 2).all()
        assert Y[held_out].any(axis=1).all()
        assert (weights[held_out] > 0).all()
        assert not rare[held_out].any()
    n_labeled = int((weights * Y.any(axis=1)).sum())
    if fraction < 0.9:
        assert len(held_out) == pytest.approx(fraction * n_labeled, abs=3)


def test_early_stopping_lowers_the_held_out_error() -> None:
    X, Y = draw(n=200)
    learner = simple_learner(early_stopping=True, n_iter_no_change=10, random_state=0, max_iter=60)
    learner.fit(X, Y)
    held_out = hold_out_points(Y, np.ones(200), 0.1, np.random.RandomState(0))
    rest = np.setdiff1d(np.arange(200), held_out)

    def error(fitted: BoostMetric) -> float:
        Z = fitted.transform(X)
        return unlike_share(Z[rest], Y[rest], Z[held_out], Y[held_out])

    whole = simple_learner(max_iter=60).fit(X, Y, sample_weight=np.isin(np.arange(200), rest))
    assert learner.metric_.n_directions < 60
    assert error(learner) <= error(whole)


def test_too_few_points_to_hold_out() -> None:
    Y = [[1, 0], [1, 0], [0, 1], [0, 1]]
    with pytest.raises(ValueError, match=r"holds out no point of 4, because every label keeps"):
        hold_out_points(Y, np.ones(4), 0.5, np.random.RandomState(0))


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        ([[0, 2], [1, 0]], r"y of shape \(2, 2\) must be an indicator matrix of 0 and 1.* got 2\."),
        ([["a", "b"], ["a", "c"]], r"got 'a'\. Multioutput .* MultiLabelBinarizer"),
        ([[0, 1], [1, np.nan]], "y has 1 missing labels, the first in row 1"),
        (pd.DataFrame([[0, 1], [None, 0]], dtype="Int64"), "y has 1 missing labels, .* in row 1"),
        ([[0, -1], [1, 0]], "got -1"),
        (csr_array([[0, 0.5], [1, 0]]), r"got 0\.5"),
        ([[0, 0], [0, 0]], r"y is 0 for all points of positive weight\. At least two points"),
        ([[0, 1], [1, 0]], "No two points .* share a label, so none has targets"),
        ([[1, 1], [1, 0]], "All points .* have label 0, so none has impostors. Drop this col"),
    ],
)
def test_invalid_labels_are_rejected(Y: Any, message: str) -> None:
    X = [[0.0], [1.0]]
    with pytest.raises(ValueError, match=message):
        Comparisons.from_labels(X, Y)
    with pytest.raises(ValueError, match=message):
        simple_learner().fit(X, Y)


def test_invalid_weights_are_rejected() -> None:
    Y = [[1, 0], [1, 0], [0, 1], [0, 0]]
    with pytest.raises(ValueError, match=r"No two points .* share a label"):
        Comparisons.from_labels(np.eye(4), Y, sample_weight=[0, 1, 1, 1])
    with pytest.raises(ValueError, match=r"All points .* have label 0"):
        Comparisons.from_labels(np.eye(4), Y, sample_weight=[1, 1, 0, 0])


@pytest.mark.parametrize("init", ["whiten", "lda"])
def test_init_by_class_is_rejected(init: str) -> None:
    with pytest.raises(ValueError, match=f"init='{init}' requires one class per point"):
        simple_learner(init=init).fit(*draw())


@pytest.mark.parametrize("init", ["scale", "pca"])
def test_init_without_classes_works(init: str) -> None:
    X, Y = draw()
    assert simple_learner(init=init, max_iter=5).fit(X, Y).transform(X).shape[0] == 90


def test_index_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"does not work with multilabel targets"):
        simple_learner(index=NearestNeighbors()).fit(*draw())


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_single_column_contains_classes(form: Any) -> None:
    X, Y = draw()
    with pytest.warns(UserWarning, match="A column-vector y was passed"):
        learner = simple_learner(max_iter=5).fit(X, form(Y[:, :1]))
    assert np.array_equal(
        learner.components_, simple_learner(max_iter=5).fit(X, Y[:, 0]).components_
    )


def test_labels_must_match_points() -> None:
    X, Y = draw()
    with pytest.raises(ValueError, match=r"n labels; got \(90, 5\) and \(50, 4\)"):
        Comparisons.from_labels(X, Y[:50])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        simple_learner().fit(X, Y[:50])


def test_stored_zero_is_not_a_label() -> None:
    Y = csr_array([[1, 2], [1, 0], [0, 1]])
    Y.data[Y.data == 2] = 0
    assert Labels.of(Y).counts().tolist() == [2, 1]


def test_many_labels_stay_sparse() -> None:
    X, Y = draw(n=100)
    wide = hstack([csr_array(Y), csr_array((100, 10**6))], format="csr")
    assert same(Comparisons.from_labels(X, wide, 2, 2), Comparisons.from_labels(X, Y, 2, 2))


def test_passes_with_additional_comparisons() -> None:
    X, Y = draw()
    given = Comparisons.from_triplets([[0, 1, 2], [3, 4, 5]])
    learner = simple_learner(n_passes=2, max_iter=5).fit(X, Y, comparisons=given)
    assert set(learner.history_["pass"]) == {0, 1}
