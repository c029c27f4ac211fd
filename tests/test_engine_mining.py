"""Neighbours of points in parts, against those of the same points in memory, and a loop."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray

from boostmetric import blockwise
from boostmetric.engines import mining, stores
from boostmetric.engines.engine import Engine, Serial, Threads
from boostmetric.engines.mining import mine
from boostmetric.engines.sources import as_source
from boostmetric.mining import NONE, nearest_targets_and_impostors

Data = tuple[NDArray, NDArray]


def in_small_parts(monkeypatch: pytest.MonkeyPatch, part: int, anchors: int, block: int) -> None:
    """Parts of so many entries, so many anchors at a time, blocks of so many distances."""
    monkeypatch.setattr(stores, "PART_ENTRIES", part)
    monkeypatch.setattr(mining, "ANCHORS", anchors)
    monkeypatch.setattr(mining, "BLOCK_ENTRIES", block)


def clouds(rng: np.random.Generator) -> Data:
    return rng.normal(size=(120, 6)), rng.integers(0, 4, 120)


def far_away(rng: np.random.Generator) -> Data:
    X, y = clouds(rng)
    return X + 1e6, y


def singles(rng: np.random.Generator) -> Data:
    X, y = clouds(rng)
    return X.astype(np.float32), y


def grid(rng: np.random.Generator) -> Data:
    """Ties, and duplicates all over, of one label or of several."""
    return rng.integers(0, 3, (120, 3)).astype(float), rng.integers(0, 3, 120)


def zeros_of_both_signs(rng: np.random.Generator) -> Data:
    X = rng.choice([0.0, -0.0, 1.0], (60, 3))
    return X, rng.integers(0, 2, 60)


def tiny_classes(rng: np.random.Generator) -> Data:
    """By label, from one point to many; and few places."""
    y = np.repeat(np.arange(7), [1, 1, 2, 3, 5, 8, 60])
    return rng.integers(0, 6, (len(y), 2)).astype(float), y


def permuted_coordinates(rng: np.random.Generator) -> Data:
    """Equal distances, whose sums have other terms first."""
    values = rng.normal(size=5)
    return np.array([rng.permutation(values) for _ in range(100)]), rng.integers(0, 2, 100)


def with_an_outlier(rng: np.random.Generator) -> Data:
    X, y = clouds(rng)
    X[17] *= 1e9
    return X, y


def approaching(rng: np.random.Generator) -> Data:
    """Every point is nearer to the last one than those before it."""
    X = np.linspace(5, 0, 150)[:, None] + np.zeros(3)
    return X, np.arange(150) % 2


KINDS = [
    clouds,
    far_away,
    singles,
    grid,
    zeros_of_both_signs,
    tiny_classes,
    permuted_coordinates,
    with_an_outlier,
    approaching,
]


@pytest.fixture
def threads() -> Iterator[Engine]:
    with closing(Threads(3)) as engine:
        yield engine


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("part", "anchors", "block"), [(40, 7, 30), (10**6, 10**6, 10**6)])
@pytest.mark.parametrize(("n_targets", "n_impostors"), [(1, 1), (3, 2), (2, 9)])
def test_neighbours_are_those_of_points_in_memory(
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    make: object,
    part: int,
    anchors: int,
    block: int,
    n_targets: int,
    n_impostors: int,
) -> None:
    assert callable(make)
    X, y = make(rng)
    read_only(X, y)
    in_small_parts(monkeypatch, part, anchors, block)
    found = mine(as_source(X), y, n_targets, n_impostors, Serial())
    known = nearest_targets_and_impostors(X, y, n_targets, n_impostors)
    for one, other in zip(found, known, strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("make", [clouds, grid], ids=lambda make: make.__name__)
def test_threads_find_the_same(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, threads: Engine, make: object
) -> None:
    assert callable(make)
    X, y = make(rng)
    in_small_parts(monkeypatch, 40, 5, 64)
    found = mine(as_source(X), y, 3, 3, threads)
    for one, other in zip(found, mine(as_source(X), y, 3, 3, Serial()), strict=True):
        assert one.tolist() == other.tolist()


def test_neighbours_are_those_of_a_loop(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    X, y = rng.integers(0, 4, (70, 2)).astype(float), rng.integers(0, 3, 70)
    in_small_parts(monkeypatch, 14, 4, 20)
    targets, impostors = mine(as_source(X), y, 2, 3, Serial())
    firsts = {
        (tuple(point), label): row
        for row, (point, label) in reversed([*enumerate(zip(X, y, strict=True))])
    }
    for row, (point, label) in enumerate(zip(X, y, strict=True)):
        for same, table in ((True, targets), (False, impostors)):
            others = [
                (np.sum((point - X[other]) ** 2), other)
                for (_, its), other in firsts.items()
                if (its == label) == same and other != firsts[tuple(point), label]
            ]
            nearest = [other for _, other in sorted(others)][: table.shape[1]]
            assert table[row].tolist() == nearest + [NONE] * (table.shape[1] - len(nearest))


def test_labels_may_be_any_integers(rng: np.random.Generator) -> None:
    X, y = clouds(rng)
    found = mine(as_source(X), y * 10**12 - 5, 2, 2, Serial())
    for one, other in zip(found, mine(as_source(X), y, 2, 2, Serial()), strict=True):
        assert one.tolist() == other.tolist()


def test_many_classes_do_not_overflow_their_numbers(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(600, 2)), np.arange(600) // 2
    targets, _ = mine(as_source(X), y, 1, 1, Serial())
    assert targets.ravel().tolist() == (np.arange(600) ^ 1).tolist()


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_few_pairs_are_looked_at_closely(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, offset: float
) -> None:
    X, y = rng.normal(size=(400, 6)) + offset, rng.integers(0, 2, 400)
    looked_at: list[int] = []

    def counted(one: NDArray, i: NDArray, other: NDArray, j: NDArray) -> NDArray:
        looked_at.append(len(i))
        return blockwise.pair_squares(one, i, other, j)

    monkeypatch.setattr(mining, "pair_squares", counted)
    in_small_parts(monkeypatch, 40 * 6, 40, 1600)
    mine(as_source(X), y, 3, 3, Serial())
    assert sum(looked_at) < 400 * 2 * 3 * (1 + np.log(400 / 40)) * 1.5


def test_memory_is_that_of_parts(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, tmp_path: Path
) -> None:
    path, n, D = tmp_path / "x.npy", 1_000, 2_000  # 16 MB
    stored = np.lib.format.open_memmap(path, "w+", np.float64, (n, D))
    for row in stored:
        row[:] = rng.random(D)
    stored.flush()
    in_small_parts(monkeypatch, 1 << 16, 64, 1 << 16)
    monkeypatch.setattr(blockwise, "CHUNK_ENTRIES", 1 << 16)
    tracemalloc.start()
    try:
        targets, _ = mine(as_source(path), np.arange(n) % 2, 1, 1, Serial())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (targets != NONE).all()
    assert peak < 8e6


def test_dask_finds_the_same_in_files_and_in_what_it_computes(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, tmp_path: Path
) -> None:
    distributed = pytest.importorskip("distributed")
    da = pytest.importorskip("dask.array")
    from boostmetric.engines.dask_engine import Dask

    X, y = grid(rng)
    np.save(tmp_path / "x.npy", X)
    in_small_parts(monkeypatch, 90, 20, 64)
    known = nearest_targets_and_impostors(X, y, 3, 3)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        engine = Dask(client)
        for given in (tmp_path / "x.npy", da.from_array(X, chunks=(50, 2))):
            found = mine(as_source(given), y, 3, 3, engine)
            for one, other in zip(found, known, strict=True):
                assert one.tolist() == other.tolist()


def refused(X: NDArray, y: NDArray, n_targets: int = 1, n_impostors: int = 1) -> str:
    with pytest.raises(ValueError) as caught:
        mine(as_source(X), y, n_targets, n_impostors, Serial())
    return str(caught.value)


def test_bad_arguments_are_refused() -> None:
    X, y = np.eye(4), np.array([0, 0, 1, 1])
    assert refused(X, y[:3]) == "4 labels are needed, one for each point; got shape (3,)."
    assert refused(X, y, 0) == "n_targets=0 will not do: at least 1 is needed."
    assert refused(X, y, 1, -1) == "n_impostors=-1 will not do: at least 1 is needed."
    X[2, 1] = np.nan
    assert refused(X, y) == (
        "the array: values are missing or infinite in 1 of the rows that were read: 2 (the first "
        "of all is 0). Fill them in, or leave these rows out."
    )


@pytest.mark.parametrize("size", [0.0, 1e-170, 1e160, 1e308])
def test_points_whose_squares_leave_the_range_are_refused(size: float) -> None:
    X, y = np.array([[1.0], [1.0], [1.0], [-1.0]]) * size, np.array([0, 0, 1, 1])
    assert refused(X, y).endswith("out of the range of float64. Scale X, or use init='scale'.")


def test_equal_points_are_refused() -> None:
    X, y = np.full((6, 2), 0.1), np.array([0, 1, 0, 1, 0, 1])
    assert refused(X, y).startswith("the values of X differ by up to 0, whose square")
