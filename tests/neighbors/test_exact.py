from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric.data.labels import Labels
from boostmetric.data.points import centered, distinct_points
from boostmetric.engines import StopRequested, Threads
from boostmetric.neighbors import (
    NONE,
    Places,
    exact,
    kernels,
    merge_tables,
    nearest_points,
    nearest_targets_and_impostors,
    search_part,
)


def nearest_by_loop(X: NDArray, labels: NDArray, k: int, same: bool) -> list[list[int]]:
    found = []
    for i, (point, label) in enumerate(zip(X.astype(float), labels, strict=True)):
        candidates = [
            (float(f"{np.sum((point - other) ** 2):.11g}"), j)
            for j, other in enumerate(X.astype(float))
            if j != i and (labels[j] == label) == same
        ]
        chosen = [j for _, j in sorted(candidates)[:k]]
        found.append(chosen + [NONE] * (k - len(chosen)))
    return found


def labeled_points(seed: int, n: int = 90, D: int = 4) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(size=(n, D)), rng.permutation(np.arange(n) % 4)
    read_only(X, labels)
    return X, labels


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_centered_points_have_zero_mean(
    dtype: type[np.floating], size: float, rng: np.random.Generator
) -> None:
    X = (size * rng.normal([0, 5, -9], 1, (50, 3))).astype(dtype)
    read_only(X)
    points = centered(X)
    assert points.dtype == dtype
    assert np.abs(points.mean(axis=0)).max() <= 1e-6 * size
    assert np.allclose(np.diff(points, axis=0), np.diff(X, axis=0), rtol=0, atol=1e-5 * size)


def test_identical_points_are_ranked_by_row() -> None:
    targets, impostors = nearest_targets_and_impostors(
        np.ones((6, 2)), Labels.of([0, 1, 2] * 2), 1, 2
    )
    assert (targets == NONE).all()
    assert impostors.tolist() == [[1, 2], [0, 2], [0, 1]] * 2


def test_distinct_points_differ_in_coordinates_or_label() -> None:
    X = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0], [1.0, 0.0], [2.0, 0.0]])
    labels = np.array([0, 1, 0, 1, 1])
    read_only(X, labels)
    first, inverse = distinct_points(X, labels)
    assert sorted(first.tolist()) == [0, 1, 3]
    assert first[inverse].tolist() == [0, 1, 0, 3, 1]


@pytest.mark.parametrize(
    ("n_targets", "n_impostors", "dtype"),
    [(1, 1, np.float32), (3, 3, np.float64), (2, 5, np.float32), (6, 1, np.float64)],
)
def test_neighbors_match_brute_force(
    n_targets: int, n_impostors: int, dtype: type[np.floating]
) -> None:
    X, labels = labeled_points(n_targets)
    X = X.astype(dtype)
    targets, impostors = nearest_targets_and_impostors(X, Labels.of(labels), n_targets, n_impostors)
    assert targets.tolist() == nearest_by_loop(X, labels, n_targets, same=True)
    assert impostors.tolist() == nearest_by_loop(X, labels, n_impostors, same=False)


def test_missing_neighbors_are_none() -> None:
    X, _ = labeled_points(0, n=9)
    labels = np.array([0, 1, 1, 0, 2, 2, 2, 2, 2])
    targets, impostors = nearest_targets_and_impostors(X, Labels.of(labels), 3, 8)
    assert targets.tolist() == nearest_by_loop(X, labels, 3, same=True)
    assert impostors.tolist() == nearest_by_loop(X, labels, 8, same=False)
    assert (impostors[4:, 4:] == NONE).all()


def test_offset_does_not_change_neighbors() -> None:
    X, labels = labeled_points(1)
    far = np.round(X, 6) + 1e8  # without centering, squares would hide all differences
    targets, impostors = nearest_targets_and_impostors(far, Labels.of(labels), 3, 3)
    assert targets.tolist() == nearest_by_loop(far, labels, 3, same=True)
    assert impostors.tolist() == nearest_by_loop(far, labels, 3, same=False)


def ties_and_classes(seed: int, D: int) -> tuple[NDArray, NDArray]:
    """Points on a grid, in classes of 1 to 60 points."""
    rng = np.random.default_rng(seed)
    sizes = [60, 31, 9, 4, 3, 2, 2, 1, 1]
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = rng.integers(0, 3, (len(labels), D)) + 0.5 * (rng.random((len(labels), D)) < 0.2)
    read_only(X, labels)
    return X, labels


@pytest.mark.parametrize(
    ("tile", "sample", "n_jobs"),
    [(3, 1, 2), (3, 4096, 1), (8, 7, 5), (30, 1, 1), (30, 7, 2), (1000, 1, 2), (1000, 4096, 5)],
)
def test_result_does_not_depend_on_threads_and_tiles(
    monkeypatch: pytest.MonkeyPatch, tile: int, sample: int, n_jobs: int
) -> None:
    X, labels = ties_and_classes(tile, 6)
    X = X + 1e-3 * np.arange(len(X))[:, None] ** 2  # no duplicates
    expected = [nearest_by_loop(X, labels, 3, True), nearest_by_loop(X, labels, 4, False)]
    monkeypatch.setattr(exact, "TILE", tile)
    monkeypatch.setattr(exact, "MIN_SAMPLE", sample)
    monkeypatch.setattr(exact, "PAIR_COORDINATES", 64)
    with Threads(n_jobs) as threads:
        got = nearest_targets_and_impostors(X, Labels.of(labels), 3, 4, threads=threads)
    assert [side.tolist() for side in got] == expected


@pytest.mark.parametrize("form", [np.array, csr_array])
@pytest.mark.parametrize("has_likely", [False, True])
def test_nearest_points_match_brute_force(
    form: Any, has_likely: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = ties_and_classes(3, 4)  # with duplicates
    A, B = X[:80], X[80:]
    monkeypatch.setattr(exact, "TILE", 10)
    squares = ((B[:, None] - A) ** 2).sum(axis=2)
    rng = np.random.default_rng(0)
    likely = rng.integers(0, len(A), (len(B), 2)) if has_likely else None
    got = nearest_points(form(A), form(B), 5, likely=likely)
    assert got.tolist() == np.argsort(squares, axis=1, kind="stable")[:, :5].tolist()


@pytest.mark.parametrize("form", [np.array, csr_array])
@pytest.mark.parametrize("n_pairs", [0, 40, 4000])
@pytest.mark.parametrize("is_multilabel", [False, True])
def test_likely_pairs_do_not_change_neighbors(
    form: Any, n_pairs: int, is_multilabel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels = ties_and_classes(1, 3)  # with duplicates
    rng = np.random.default_rng(2)
    y = Labels.of(rng.random((len(X), 3)) < 0.3 if is_multilabel else labels)
    monkeypatch.setattr(exact, "TILE", 10)
    expected = nearest_targets_and_impostors(form(X), y, 3, 4)
    pairs = rng.integers(0, len(X), (n_pairs, 2))
    got = nearest_targets_and_impostors(form(X), y, 3, 4, likely_pairs=pairs)
    assert [side.tolist() for side in got] == [side.tolist() for side in expected]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("tile", "D"), [(2, 5), (10, 2), (10, 20), (1000, 5)])
def test_ties_are_broken_by_row(
    monkeypatch: pytest.MonkeyPatch, tile: int, D: int, dtype: type[np.floating]
) -> None:
    X, labels = ties_and_classes(D, D)
    X, first = X.astype(dtype), distinct_points(X, labels)[0]
    X, labels = X[np.sort(first)], labels[np.sort(first)]
    monkeypatch.setattr(exact, "TILE", tile)
    targets, impostors = nearest_targets_and_impostors(X, Labels.of(labels), 5, 6)
    assert targets.tolist() == nearest_by_loop(X, labels, 5, same=True)
    assert impostors.tolist() == nearest_by_loop(X, labels, 6, same=False)


def curved_points(dtype: type[np.floating]) -> NDArray:
    """Points close to a three-dimensional subspace of 40 dimensions, far from the origin."""
    rng = np.random.default_rng(7)
    flat = rng.normal(size=(150, 3)) @ rng.normal(size=(3, 40)) * 10
    return (flat + rng.normal(size=(150, 40)) + 300).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_sketches_bound_distances(dtype: type[np.floating], precision: type[np.floating]) -> None:
    X = curved_points(dtype)
    read_only(X)
    sketches = exact.sketch(X, X, precision, kept=0.95)
    assert sketches.is_short
    assert sketches.left.shape[1] < 20
    assert_bounds(sketches, X, X)
    short = sketches.products(slice(None), slice(None))
    squares = ((X[:, None].astype(float) - X) ** 2).sum(axis=2)
    assert np.corrcoef(short.ravel(), -squares.ravel())[0, 1] > 0.99


def assert_bounds(sketches: exact.Sketches, X: NDArray, Z: NDArray) -> None:
    """No product is below −½‖x − x'‖², and products of all coordinates are close to it."""
    squares = ((X[:, None].astype(float) - Z.astype(float)) ** 2).sum(axis=2) / sketches.unit**2
    whole, others = (csr_array(part).toarray() for part in sketches.full)
    products = whole @ others.T + sketches.halves[0][:, None] + sketches.halves[1]
    assert (sketches.products(slice(None), slice(None)) >= -squares / 2).all()
    assert (products >= -squares / 2).all()
    assert np.allclose(-2 * products, squares, atol=1e-4 * squares.max())


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_sketches_of_two_sets_share_a_center(form: Any, precision: type[np.floating]) -> None:
    X = curved_points(np.float64)
    near, far = X[:40] - 500, X[40:]
    sketches = exact.sketch(form(near), form(far), precision, kept=0.95)
    assert_bounds(sketches, near, far)


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_sketches_bound_distances_for_small_remainders(precision: type[np.floating]) -> None:
    # Most points lie in a plane, so the norm of their remainder is a rounding error.
    rng = np.random.default_rng(0)
    X = np.zeros((400, 20))
    X[:, :2] = 100 * rng.normal(size=(400, 2))
    X[::50, 2:] = rng.normal(size=(8, 18))
    X = X @ np.linalg.qr(rng.normal(size=(20, 20)))[0]
    sketches = exact.sketch(X, X, precision, kept=0.9)
    assert sketches.is_short
    assert_bounds(sketches, X, X)


def test_neighbors_with_sketches_match_brute_force() -> None:
    X = curved_points(np.float32)
    labels = np.arange(len(X)) % 3
    targets, impostors = nearest_targets_and_impostors(X, Labels.of(labels), 3, 3)
    assert targets.tolist() == nearest_by_loop(X, labels, 3, same=True)
    assert impostors.tolist() == nearest_by_loop(X, labels, 3, same=False)


@pytest.mark.parametrize("distance", [1e4, 1e7])
def test_distant_clusters_keep_their_neighbors(distance: float, rng: np.random.Generator) -> None:
    X, labels = rng.normal(size=(120, 5)), np.arange(120) % 4
    X[::2, 0] += distance  # in float32, distances within a cluster are rounding errors
    targets, impostors = nearest_targets_and_impostors(X, Labels.of(labels), 2, 3)
    assert targets.tolist() == nearest_by_loop(X, labels, 2, same=True)
    assert impostors.tolist() == nearest_by_loop(X, labels, 3, same=False)


def test_few_pairs_are_compared_if_impostors_are_in_another_tile(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes 4 to 7 fill a tile. They are far from each other, and each is near class 0 to 3."""
    offer, n_pairs = exact._Search._offer, 0

    def count(search: Any, side: int, i: NDArray, j: NDArray) -> None:
        nonlocal n_pairs
        n_pairs += len(i)
        offer(search, side, i, j)

    monkeypatch.setattr(exact, "TILE", 800)
    monkeypatch.setattr(exact._Search, "_offer", count)
    labels = np.repeat(np.arange(8), 200)
    X = rng.normal(size=(1600, 3)) + 100 * (labels % 4)[:, None]
    nearest_targets_and_impostors(X, Labels.of(labels), 3, 3)
    # There are 1,280,000 pairs, half of them in the tile of classes 0 to 3 and 4 to 7.
    assert n_pairs < 200_000


def test_first_duplicate_represents_all() -> None:
    X = np.array([[0.0], [0.0], [1.0], [1.0], [3.0], [0.5], [0.5], [9.0]])
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    read_only(X, labels)
    targets, impostors = nearest_targets_and_impostors(X, Labels.of(labels), 2, 3)
    assert targets.tolist() == [[2, 4]] * 2 + [[0, 4]] * 2 + [[2, 0]] + [[7, NONE]] * 2 + [
        [5, NONE]
    ]
    assert impostors[:5].tolist() == [[5, 7, NONE]] * 5
    assert {frozenset(row) for row in impostors[5:7].tolist()} == {frozenset([0, 2, 4])}


PARTS = ["dense", "sparse", "multilabel"]


def draw_places(kind: str) -> tuple[Any, Labels]:
    rng = np.random.default_rng(5)
    X = rng.integers(0, 3, (240, 8)) * (rng.random((240, 8)) < 0.5) * 1.5
    X[::3] += 1e-3
    Y = (rng.random((240, 5)) < 0.25).astype(int)
    labels = Labels.of(Y if kind == "multilabel" else Y[:, 0] + 2 * Y[:, 1])
    return (csr_array(X) if kind == "sparse" else X), labels


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", PARTS)
def test_merged_parts_match_the_full_search(
    kind: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        pytest.importorskip("numba")
        monkeypatch.setattr(kernels, "MIN_WORK", 0)
    monkeypatch.setattr(exact, "TILE", 30)
    X, labels = draw_places(kind)
    expected = nearest_targets_and_impostors(X, labels, 3, 4)
    places, position = Places.of(X, labels)
    parts = np.array_split(np.random.default_rng(0).permutation(len(places.rows)), 3)
    assert len(places.rows) < len(labels)
    for queries in (np.arange(len(places.rows)), parts[1]):
        tables = [search_part(places[queries], places[part], (3, 4)) for part in parts]
        whole = search_part(places[queries], places, (3, 4))
        for side in (0, 1):
            merged = merge_tables([table[side] for table in tables])
            assert np.array_equal(merged.squares, whole[side].squares)
            assert np.array_equal(merged.rows, whole[side].rows)
            if len(queries) == len(places.rows):
                assert np.array_equal(merged.rows[position], expected[side])


def test_parts_may_be_empty_or_lack_a_class() -> None:
    X, labels = labeled_points(3)
    places, _ = Places.of(X, Labels.of(labels))
    of_class = places.labels.codes == 0
    targets, impostors = search_part(places[~of_class], places[of_class], (2, 1))
    assert (targets.rows == NONE).all()
    assert set(impostors.rows.ravel()) <= set(places.rows[of_class])
    nobody = places[np.array([], dtype=int)]
    assert (search_part(places, nobody, (2, 1))[0].rows == NONE).all()
    assert search_part(nobody, places, (2, 1))[1].rows.shape == (0, 1)


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_search_stops_within_one_tile(
    kind: str, n_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "TILE", 20)
    X, labels = draw_places(kind)
    calls = []

    def should_stop() -> bool:
        calls.append(True)
        return len(calls) >= 20

    with Threads(n_jobs) as threads, pytest.raises(StopRequested):
        nearest_targets_and_impostors(X, labels, 2, 2, threads=threads, should_stop=should_stop)
    assert 20 <= len(calls) < 20 + n_jobs


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize(("dtype", "factor"), [(np.float32, 1e-30), (np.float64, 0.1)])
def test_ties_are_exact_after_rounding(form: Any, dtype: type[np.floating], factor: float) -> None:
    # Sums of squares of multiples of a number with many bits depend on their order.
    rng = np.random.default_rng(2)
    whole = rng.integers(0, 5, (150, 10))
    labels = np.arange(150) % 5
    X = (whole * factor).astype(dtype)
    targets, impostors = nearest_targets_and_impostors(form(X), Labels.of(labels), 4, 2)
    assert targets.tolist() == nearest_by_loop(whole, labels, 4, same=True)
    assert impostors.tolist() == nearest_by_loop(whole, labels, 2, same=False)
