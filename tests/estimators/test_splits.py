"""Held-out data: which points and comparisons, and the errors on them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric import Comparisons
from boostmetric.estimators import splits
from boostmetric.estimators.splits import (
    comparison_hashes,
    draw_splits,
    held_out_errors,
    seed_of,
    subset,
)
from boostmetric.estimators.training_data import TrainingData
from boostmetric.estimators.verify import LeaveOneOut, halves

RENAMED = np.array(["z", "c", "a", "y", "b", "x"])
"""Names of classes in another order than their numbers."""


def labeled(rng: np.random.Generator, n: int = 90, n_classes: int = 4) -> TrainingData:
    """Points in classes of different sizes, a tenth of them duplicates with the same label."""
    y = np.sort(rng.integers(n_classes, size=n) * rng.integers(1, 3, size=n) // 2)
    X = rng.normal(size=(n, 3)) + y[:, None]
    X[1::10], y[1::10] = X[::10], y[::10]
    return TrainingData(X, y)


def compared(rng: np.random.Generator, m: int = 60) -> TrainingData:
    """Triplets, a third of them twice, and half of these of equal points in other rows."""
    X = rng.normal(size=(40, 3))
    X[20:] = X[:20]
    rows = np.stack([rng.permutation(20)[:3] for _ in range(m)])
    rows[: m // 3] = rows[m // 3 : 2 * (m // 3)]
    rows[: m // 6] += 20
    return TrainingData(X, comparisons=Comparisons.from_triplets(rows))


def permuted(data: TrainingData, rows: NDArray, columns: Any = slice(None)) -> TrainingData:
    assert isinstance(data.labels, np.ndarray)
    weights = None if data.weights is None else data.weights[rows]
    return TrainingData(np.asarray(data.points)[rows][:, columns], data.labels[rows], weights)


@pytest.mark.parametrize("seed", range(5))
def test_folds_do_not_depend_on_order_and_names(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = labeled(rng)
    folds = draw_splits(data, 3, seed)
    rows = rng.permutation(90)
    again = draw_splits(permuted(data, rows, [2, 0, 1]), 3, seed)
    named = draw_splits(TrainingData(data.points, RENAMED[data.labels]), 3, seed)
    sparse = draw_splits(TrainingData(csr_array(data.points), data.labels), 3, seed)
    for fold, other, name, of_sparse in zip(folds, again, named, sparse, strict=True):
        for part in range(2):
            np.testing.assert_array_equal(np.sort(rows[other[part]]), fold[part])
            np.testing.assert_array_equal(name[part], fold[part])
            np.testing.assert_array_equal(of_sparse[part], fold[part])
    assert any(
        not np.array_equal(fold[1], other[1])
        for fold, other in zip(folds, draw_splits(data, 3, seed + 1), strict=True)
    )


@pytest.mark.parametrize("seed", range(5))
def test_duplicates_are_in_the_same_fold(seed: int) -> None:
    data = labeled(np.random.default_rng(seed))
    X = np.asarray(data.points)
    for train, test in draw_splits(data, 3, seed):
        assert not {row.tobytes() for row in X[train]} & {row.tobytes() for row in X[test]}


@pytest.mark.parametrize("seed", range(5))
def test_folds_of_weights_are_those_of_duplicates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y, weights = rng.normal(size=(60, 3)), rng.integers(2, size=60), rng.integers(0, 4, 60)
    rows = rng.permutation(np.repeat(np.arange(60), weights))
    weighted = draw_splits(TrainingData(X, y, weights.astype(float)), 3, seed)
    repeated = draw_splits(TrainingData(X[rows], y[rows]), 3, seed)
    for (_, held_out), (_, others) in zip(weighted, repeated, strict=True):
        np.testing.assert_array_equal(np.unique(rows[others]), held_out)


@pytest.mark.parametrize("seed", range(5))
def test_folds_of_comparisons_do_not_depend_on_their_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = compared(rng)
    assert data.comparisons is not None
    folds = draw_splits(data, 3, seed)
    order = rng.permutation(60)
    again = draw_splits(TrainingData(data.points, comparisons=data.comparisons[order]), 3, seed)
    hashes = comparison_hashes(data.points, data.comparisons, seed)
    assert len(np.unique(hashes)) == 40
    for (train, test), other in zip(folds, again, strict=True):
        np.testing.assert_array_equal(np.sort(order[other[1]]), test)
        assert sorted([*train, *test]) == list(range(60))
        assert not set(hashes[train]) & set(hashes[test])


def test_hashes_of_comparisons_depend_on_their_points() -> None:
    X = np.arange(8.0)[:, None] ** 2
    X[7] = X[0]
    # Neither the order of the two ends of a pair matters, nor the row of equal points.
    same = [[0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2], [1, 0, 3, 2], [7, 1, 2, 3]]
    others = [[0, 1, 2, 4], [0, 4, 2, 3], [0, 1, 0, 2], [0, 1, 1, 2], [0, 2, 1, 2]]
    hashes = comparison_hashes(X, Comparisons.from_quadruplets(same + others))
    assert len(np.unique(hashes[:5])) == 1
    assert len(np.unique(hashes)) == 1 + len(others)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("per_class", [3, 7, 8, 30])
def test_halves_have_whole_classes_if_these_are_small(per_class: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_classes = 6
    y = rng.permutation(np.arange(per_class * n_classes) % n_classes)
    data = TrainingData(rng.normal(size=(len(y), 3)), y)
    sides = halves(data, LeaveOneOut(data, seed), seed)
    assert sorted(np.concatenate(sides)) == list(range(len(y)))
    counts = np.array([np.bincount(y[rows], minlength=n_classes) for rows in sides])
    if per_class < 8:
        assert set(counts.ravel()) == {0, per_class}
        assert (counts > 0).sum(axis=1).tolist() == [3, 3]
    else:
        assert np.ptp(counts, axis=0).max() <= 1
    # Neither names nor orders matter.
    rows = rng.permutation(len(y))
    other = TrainingData(np.asarray(data.points)[rows][:, ::-1], RENAMED[y[rows]])
    again = halves(other, LeaveOneOut(other, seed), seed)
    for side, expected in zip(again, sides, strict=True):
        np.testing.assert_array_equal(np.sort(rows[side]), expected)


def test_halves_contain_one_of_equal_points() -> None:
    data = labeled(np.random.default_rng(0))
    sides = halves(data, LeaveOneOut(data), 0)
    chosen = np.concatenate(sides)
    assert len(chosen) == len(np.unique(np.asarray(data.points), axis=0))


@pytest.mark.parametrize("seed", range(4))
def test_equal_comparisons_are_in_the_same_half(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = compared(rng)
    assert data.comparisons is not None
    sides = halves(data, None, seed)
    hashes = comparison_hashes(data.points, data.comparisons, seed)
    assert sorted(np.concatenate(sides)) == list(range(60))
    assert not set(hashes[sides[0]]) & set(hashes[sides[1]])
    assert [len(np.unique(hashes[rows])) for rows in sides] == [20, 20]


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("has_metric", [False, True])
def test_errors_of_points_match_a_loop(
    k: int, has_metric: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, weights = rng.normal(size=(60, 3)), rng.integers(3, size=60), rng.random(60)
    weights[::7] = 0
    X[2::6], y[2::6] = X[1::6], y[1::6]  # equal points with equal labels count once
    X[5::6], y[5::6] = X[4::6], (y[4::6] + 1) % 3
    L = rng.normal(size=(2, 3)) if has_metric else None
    Z = X if L is None else X @ L.T
    data = TrainingData(X, y, weights)
    test = np.flatnonzero((np.arange(60) % 3 == 0) & (weights > 0))
    train = np.setdiff1d(np.arange(60), test)
    found = held_out_errors(data, subset(data, train), test, L, k)
    known = [
        row for row in train if weights[row] > 0 and not (row % 6 == 2 and weights[row - 1] > 0)
    ]
    expected = {}
    for row in test:
        order = sorted(known, key=lambda other: float(np.sum((Z[row] - Z[other]) ** 2)))
        votes = Counter(y[order[:k]].tolist())
        winners = [each for each in votes if votes[each] == max(votes.values())]
        expected[weights[row]] = 1 - (y[row] in winners) / len(winners)
    assert dict(zip(found.weights, found.values, strict=True)) == pytest.approx(expected)
    # Only so many are classified, the same ones in any order of rows.
    monkeypatch.setattr(splits, "MAX_QUERIES", 8)
    few = held_out_errors(data, subset(data, train), test, L, k)
    again = held_out_errors(data, subset(data, train), test[::-1], L, k)
    assert len(few.values) == 8
    for some, same in zip(few, again, strict=True):
        np.testing.assert_array_equal(some, same)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_errors_of_comparisons_do_not_depend_on_the_unit(
    scale: float, rng: np.random.Generator
) -> None:
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 3
    X[:, 0] += 5 * y
    pairs = np.stack([rng.permutation(60)[:2] for _ in range(200)])
    same = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)
    data = TrainingData(X, comparisons=Comparisons.from_pairs(pairs, same))
    train, test = np.arange(0, 200, 2), np.arange(1, 200, 2)
    rest = subset(data, train)
    errors = held_out_errors(data, rest, test, scale * np.eye(1, 3), 3)
    expected = held_out_errors(data, rest, test, np.eye(1, 3), 3)
    np.testing.assert_array_equal(errors.values, expected.values)
    assert errors.values.mean() < 0.2
    # Without information, all pairs would count as similar or all as dissimilar.
    share = np.mean(same[test] == 1)
    np.testing.assert_allclose(errors.chance, min(share, 1 - share))


def test_seed_of_random_state() -> None:
    assert [seed_of(None), seed_of(7)] == [0, 7]
    seeds = {seed_of(np.random.RandomState(seed)) for seed in (1, 1, 2)}
    assert len(seeds) == 2
