from __future__ import annotations

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray

from boostmetric import mining
from boostmetric.mining import (
    NONE,
    centred,
    distinct_points,
    nearest_targets_and_impostors,
    smallest,
)


def nearest_by_loop(X: NDArray, labels: NDArray, k: int, same: bool) -> list[list[int]]:
    found = []
    for i, (point, label) in enumerate(zip(X.astype(float), labels, strict=True)):
        candidates = [
            (float(np.sum((point - other) ** 2)), j)
            for j, other in enumerate(X.astype(float))
            if j != i and (labels[j] == label) == same
        ]
        chosen = [j for _, j in sorted(candidates)[:k]]
        found.append(chosen + [NONE] * (k - len(chosen)))
    return found


def labelled_points(seed: int, n: int = 90, D: int = 4) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(size=(n, D)), rng.permutation(np.arange(n) % 4)
    read_only(X, labels)
    return X, labels


@pytest.mark.parametrize("k", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("n", [1, 2, 12, 33, 100, 500])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_smallest_is_argsort(n: int, k: int, dtype: type[np.floating]) -> None:
    values = np.random.default_rng([n, k]).normal(size=(25, n)).astype(dtype)
    read_only(values)
    assert np.array_equal(smallest(values, k), np.argsort(values, axis=1)[:, :k])


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("n", [5, 33, 130, 400])
@pytest.mark.parametrize("share_of_inf", [0.0, 0.3, 0.98, 1.0])
def test_smallest_with_ties_and_infinities(n: int, k: int, share_of_inf: float) -> None:
    rng = np.random.default_rng([n, k])
    values = rng.integers(0, 6, size=(40, n)).astype(float)
    values[rng.random((40, n)) < share_of_inf] = np.inf
    read_only(values)
    found = smallest(values, k)
    assert found.shape == (40, min(k, n))
    for row, columns in zip(values, found, strict=True):
        exist = columns[columns != NONE]
        assert len(set(exist.tolist())) == len(exist)
        expected = np.sort(row)[:k]
        assert np.array_equal(row[exist], expected[np.isfinite(expected)])
        assert (columns[len(exist) :] == NONE).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_centred_points_have_mean_zero(
    dtype: type[np.floating], size: float, rng: np.random.Generator
) -> None:
    X = (size * rng.normal([0, 5, -9], 1, (50, 3))).astype(dtype)
    read_only(X)
    points = centred(X)
    assert points.dtype == dtype
    assert np.abs(points.mean(axis=0)).max() <= 1e-6 * size
    assert np.allclose(np.diff(points, axis=0), np.diff(X, axis=0), rtol=0, atol=1e-5 * size)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (np.float32, 1e19),
        (np.float32, 1e-19),
        (np.float64, 1e155),
        (np.float64, 1e-155),
        (np.float64, 0.0),
    ],
)
def test_points_whose_squares_leave_the_range_are_refused(
    dtype: type[np.floating], size: float
) -> None:
    X = (size * np.array([[0, 1], [1, 0], [3, 1]])).astype(dtype)
    with pytest.raises(ValueError, match=r"differ by up to .*, whose square is out of the range"):
        centred(X)
    with pytest.raises(ValueError, match=r"Scale X, or use init='scale'\."):
        nearest_targets_and_impostors(X, np.array([0, 0, 1]), 1, 1)


def test_distinct_points_are_told_apart_by_place_and_label() -> None:
    X = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0], [1.0, 0.0], [2.0, 0.0]])
    labels = np.array([0, 1, 0, 1, 1])
    read_only(X, labels)
    first, inverse = distinct_points(X, labels)
    assert sorted(first.tolist()) == [0, 1, 3]
    assert first[inverse].tolist() == [0, 1, 0, 3, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_targets", "n_impostors"), [(1, 1), (3, 3), (2, 5), (6, 1)])
def test_neighbours_are_those_of_a_loop(
    n_targets: int, n_impostors: int, dtype: type[np.floating]
) -> None:
    X, labels = labelled_points(n_targets)
    X = X.astype(dtype)
    targets, impostors = nearest_targets_and_impostors(X, labels, n_targets, n_impostors)
    assert targets.tolist() == nearest_by_loop(X, labels, n_targets, same=True)
    assert impostors.tolist() == nearest_by_loop(X, labels, n_impostors, same=False)


def test_missing_neighbours_are_none() -> None:
    X, _ = labelled_points(0, n=9)
    labels = np.array([0, 1, 1, 0, 2, 2, 2, 2, 2])
    targets, impostors = nearest_targets_and_impostors(X, labels, 3, 8)
    assert targets.tolist() == nearest_by_loop(X, labels, 3, same=True)
    assert impostors.tolist() == nearest_by_loop(X, labels, 8, same=False)
    assert (impostors[4:, 4:] == NONE).all()


def test_points_far_from_the_origin_keep_their_neighbours() -> None:
    X, labels = labelled_points(1)
    far = np.round(X, 6) + 1e8  # without centring the squares would swallow all differences
    targets, impostors = nearest_targets_and_impostors(far, labels, 3, 3)
    assert targets.tolist() == nearest_by_loop(far, labels, 3, same=True)
    assert impostors.tolist() == nearest_by_loop(far, labels, 3, same=False)


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
@pytest.mark.parametrize("entries", [1, 90 * 7, 90 * 32, 1 << 21])
def test_threads_and_blocks_do_not_change_the_result(
    monkeypatch: pytest.MonkeyPatch, entries: int, n_jobs: int
) -> None:
    X, labels = labelled_points(2)
    expected = nearest_targets_and_impostors(X, labels, 3, 4)
    monkeypatch.setattr(mining, "BLOCK_ENTRIES", entries)
    got = nearest_targets_and_impostors(X, labels, 3, 4, n_jobs)
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


def test_of_equal_points_the_first_stands_for_all() -> None:
    X = np.array([[0.0], [0.0], [1.0], [1.0], [3.0], [0.5], [0.5], [9.0]])
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    read_only(X, labels)
    targets, impostors = nearest_targets_and_impostors(X, labels, 2, 3)
    assert targets.tolist() == [[2, 4]] * 2 + [[0, 4]] * 2 + [[2, 0]] + [[7, NONE]] * 2 + [
        [5, NONE]
    ]
    assert impostors[:5].tolist() == [[5, 7, NONE]] * 5
    assert {frozenset(row) for row in impostors[5:7].tolist()} == {frozenset([0, 2, 4])}
