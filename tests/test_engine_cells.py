"""Neighbours through cells, against those of an exact search; and that nothing else matters."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray

from boostmetric import blockwise
from boostmetric.engines import cells, centres, stores
from boostmetric.engines.cells import mine_in_cells
from boostmetric.engines.centres import Centres
from boostmetric.engines.engine import Engine, Serial, Threads
from boostmetric.engines.sources import as_source
from boostmetric.mining import NONE, nearest_targets_and_impostors

Data = tuple[NDArray, NDArray]
Make = Callable[[np.random.Generator], Data]


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
    return rng.integers(0, 4, (120, 3)).astype(np.float32), rng.integers(0, 3, 120)


def tiny_classes(rng: np.random.Generator) -> Data:
    """By label, from one point to many; and few places."""
    y = np.repeat(np.arange(7), [1, 1, 2, 3, 5, 8, 60])
    return rng.integers(0, 6, (len(y), 2)).astype(float), y


def with_an_outlier(rng: np.random.Generator) -> Data:
    X, y = clouds(rng)
    X[17] *= 1e9
    return X, y


def apart(rng: np.random.Generator) -> Data:
    """Narrow clusters a long way from each other, in single precision."""
    y = rng.integers(0, 6, 120)
    X = 1e3 * rng.normal(size=(6, 5))[y] + rng.normal(size=(120, 5))
    return X.astype(np.float32), y // 2


KINDS = [clouds, far_away, singles, grid, tiny_classes, with_an_outlier, apart]


def mixture(rng: np.random.Generator, n: int = 3000, D: int = 8) -> Data:
    """Clusters that overlap, of which each of 5 classes has several."""
    cluster = rng.integers(0, 30, n)
    return rng.normal(size=(30, D))[cluster] + rng.normal(size=(n, D)), cluster % 5


def look_into(monkeypatch: pytest.MonkeyPatch, *probes: int) -> None:
    """So many cells, for targets and for impostors."""
    monkeypatch.setattr(cells, "PROBES", probes)


def in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts, batches, spans and blocks of few points each."""
    monkeypatch.setattr(stores, "PART_ENTRIES", 150)
    monkeypatch.setattr(cells, "HELD", 240)
    monkeypatch.setattr(cells, "LOOKS", 1200)
    monkeypatch.setattr(cells, "BLOCK_ENTRIES", 400)
    monkeypatch.setattr(centres, "BLOCK_ENTRIES", 400)


def without_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    """No warning of a recall that is low on purpose."""
    monkeypatch.setattr(cells, "ENOUGH", 0.0)


@pytest.fixture
def threads() -> Iterator[Engine]:
    with closing(Threads(3)) as engine:
        yield engine


def lists(tables: tuple[NDArray, ...]) -> list[object]:
    return [table.tolist() for table in tables]


def n_found(tables: tuple[NDArray, ...]) -> list[object]:
    return [np.sum(table != NONE, axis=1).tolist() for table in tables]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(("n_targets", "n_impostors"), [(1, 1), (2, 9)])
def test_in_all_cells_are_the_nearest_of_all(
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    make: Make,
    small: bool,
    n_targets: int,
    n_impostors: int,
) -> None:
    X, y = make(rng)
    read_only(X, y)
    look_into(monkeypatch, len(X), len(X))
    if small:
        in_small_steps(monkeypatch)
    *found, order = mine_in_cells(as_source(X), y, n_targets, n_impostors, Serial())
    known = nearest_targets_and_impostors(X, y, n_targets, n_impostors)
    assert lists(tuple(found)) == lists(known)
    assert [table.dtype for table in found] == [table.dtype for table in known]
    assert np.sort(order).tolist() == list(range(len(X)))


@pytest.mark.parametrize("make", [clouds, grid, tiny_classes], ids=lambda make: make.__name__)
@pytest.mark.parametrize("probes", [1, 3])
def test_whatever_the_parts_the_result_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    threads: Engine,
    make: Make,
    probes: int,
) -> None:
    X, y = make(rng)
    look_into(monkeypatch, probes, probes)
    without_measure(monkeypatch)
    known = mine_in_cells(as_source(X), y, 2, 3, Serial())
    in_small_steps(monkeypatch)
    for engine in (Serial(), threads):
        assert lists(mine_in_cells(as_source(X), y, 2, 3, engine)) == lists(known)


def test_few_cells_are_not_all(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    X, y = clouds(rng)
    look_into(monkeypatch, 2, 2)
    without_measure(monkeypatch)
    *found, _ = mine_in_cells(as_source(X), y, 2, 3, Serial())
    assert lists(tuple(found)) != lists(nearest_targets_and_impostors(X, y, 2, 3))


def test_dask_finds_the_same_in_files_and_in_what_it_computes(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, tmp_path: Path
) -> None:
    distributed = pytest.importorskip("distributed")
    da = pytest.importorskip("dask.array")
    from boostmetric.engines.dask_engine import Dask

    X, y = grid(rng)
    np.save(tmp_path / "x.npy", X)
    look_into(monkeypatch, 2, 2)
    without_measure(monkeypatch)
    known = mine_in_cells(as_source(X), y, 3, 3, Serial())
    monkeypatch.setattr(stores, "PART_ENTRIES", 120)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        engine = Dask(client)
        for given in (tmp_path / "x.npy", da.from_array(X, chunks=(50, 2))):
            assert lists(mine_in_cells(as_source(given), y, 3, 3, engine)) == lists(known)


@pytest.mark.parametrize("make", [clouds, grid, tiny_classes], ids=lambda make: make.__name__)
@pytest.mark.parametrize("k", [1, 4, 30])
def test_neighbours_are_found_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, make: Make, k: int
) -> None:
    X, y = make(rng)
    look_into(monkeypatch, 1, 1)
    without_measure(monkeypatch)
    *found, _ = mine_in_cells(as_source(X), y, k, k + 1, Serial())
    assert n_found(tuple(found)) == n_found(nearest_targets_and_impostors(X, y, k, k + 1))


def test_classes_may_be_as_many_as_half_of_the_points(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    X, y = rng.normal(size=(4000, 3)), np.arange(4000) // 2
    without_measure(monkeypatch)
    targets, impostors, _ = mine_in_cells(as_source(X), y, 2, 1, Serial())
    assert targets[:, 0].tolist() == (np.arange(4000) ^ 1).tolist()
    assert (targets[:, 1] == NONE).all()
    assert (y[impostors[:, 0]] != y).all()


def test_one_class_has_no_impostors(rng: np.random.Generator) -> None:
    X, _ = clouds(rng)
    _, impostors, _ = mine_in_cells(as_source(X), np.zeros(len(X), dtype=int), 2, 2, Serial())
    assert (impostors == NONE).all()


def test_most_neighbours_are_found(rng: np.random.Generator) -> None:
    X, y = mixture(rng)
    *found, _ = mine_in_cells(as_source(X), y, 3, 3, Serial())
    for table, known in zip(found, nearest_targets_and_impostors(X, y, 3, 3), strict=True):
        assert (
            np.mean([np.isin(one, other) for one, other in zip(known, table, strict=True)]) > 0.95
        )


def recall_by_distances(X: NDArray, found: list[NDArray], known: tuple[NDArray, ...]) -> float:
    """The share of entries that are as near as a true neighbour, of points all distinct."""
    shares = []
    for table, true in zip(found, known, strict=True):
        far, limit = (np.linalg.norm(X[each] - X[:, None], axis=2) for each in (table, true))
        shares.append(np.mean(far <= limit.max(axis=1, keepdims=True) + 1e-9))
    return float(np.mean(shares))


def test_the_recall_is_measured_and_logged(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    X, y = rng.normal(size=(180, 4)), rng.integers(0, 3, 180)
    look_into(monkeypatch, 6, 9)
    monkeypatch.setattr(stores, "PART_ENTRIES", 200)
    with caplog.at_level(logging.INFO, "boostmetric"):
        monkeypatch.setattr(cells, "ENOUGH", 0.0)
        *found, _ = mine_in_cells(as_source(X), y, 3, 3, Serial())
    recall = recall_by_distances(X, found, nearest_targets_and_impostors(X, y, 3, 3))
    assert 0.5 < recall < 0.999
    [message] = caplog.messages
    assert message.startswith(f"cells: {recall:.3f} of the nearest neighbours of 180 points were")
    assert " of 540 targets, " in message
    assert message.endswith(" of 540 impostors")


def test_equally_near_points_are_as_good(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a line of equal distances the one side is as near as the other."""
    X, y = np.arange(100.0)[:, None], np.arange(100) % 2
    look_into(monkeypatch, 2, 1)
    with caplog.at_level(logging.INFO, "boostmetric"):
        mine_in_cells(as_source(X), y, 1, 1, Serial())
    assert caplog.messages[0].startswith("cells: 1.000 of")


def test_a_low_recall_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    X, y = rng.normal(size=(300, 20)), rng.integers(0, 3, 300)
    look_into(monkeypatch, 1, 1)
    with pytest.warns(UserWarning, match="of the nearest targets and impostors were found") as seen:
        mine_in_cells(as_source(X), y, 2, 2, Serial())
    [warning] = seen
    assert str(warning.message).endswith(
        "by a sample of 200 points; comparisons will be made of farther ones instead. Search "
        "exactly, or map the points to fewer features (PCA) first."
    )
    assert warning.filename == __file__


def test_of_equally_near_centres_the_first_are_nearest() -> None:
    corners = np.array([[i, j] for i in (-1.0, 1.0) for j in (-1.0, 1.0)])
    centres = Centres(np.vstack([[[9.0, 9.0]], corners]) / 3, np.full(2, 0.1))
    points = np.zeros((2, 2))
    nearest = centres.nearest(points, *centres.squares(points), 3)
    assert nearest.tolist() == [[False, True, True, True, False]] * 2


def test_products_are_wrong_by_no_more_than_they_say(rng: np.random.Generator) -> None:
    one, other = (rng.normal(size=(n, 30)).astype(np.float32) + 100 for n in (50, 70))
    exact = np.sum((one[:, None].astype(float) - other) ** 2, axis=2)
    for centre, most in ((np.full(30, 100.0), 1e-4), (np.full(30, 80.0), 1e-1)):
        squares, errors = cells._products(one, other, centre)
        assert squares.dtype == np.float32
        assert (np.abs(squares - exact) <= errors[:, None]).all()
        assert (errors < most * exact.min()).all()


def test_points_that_follow_on_each_other_are_near(rng: np.random.Generator) -> None:
    X, y = mixture(rng, D=3)
    targets, impostors, order = mine_in_cells(as_source(X), y, 3, 3, Serial())
    touched = [
        sum(
            len(np.unique([rows, *targets[rows].T, *impostors[rows].T]))
            for rows in np.array_split(each, 8)
        )
        for each in (order, np.arange(len(X)))
    ]
    assert touched[0] < 1.8 * len(X) < 0.5 * touched[1]  # with cells in any order, 2.4·n


def test_memory_is_that_of_parts(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, tmp_path: Path
) -> None:
    path, n, D = tmp_path / "x.npy", 1_500, 1_000  # 12 MB
    stored = np.lib.format.open_memmap(path, "w+", np.float64, (n, D))
    for row in stored:
        row[:] = rng.random(D)
    stored.flush()
    monkeypatch.setattr(stores, "PART_ENTRIES", 1 << 16)
    monkeypatch.setattr(cells, "HELD", 1 << 18)
    monkeypatch.setattr(cells, "COPIES", 4)
    monkeypatch.setattr(centres, "LEARNT_FROM", 2)
    monkeypatch.setattr(centres, "CELLS", 1)
    monkeypatch.setattr(cells, "BLOCK_ENTRIES", 1 << 16)
    monkeypatch.setattr(centres, "BLOCK_ENTRIES", 1 << 16)
    monkeypatch.setattr(blockwise, "CHUNK_ENTRIES", 1 << 16)
    without_measure(monkeypatch)
    monkeypatch.setattr(cells, "SAMPLE", 20)
    tracemalloc.start()
    try:
        targets, _, _ = mine_in_cells(as_source(path), np.arange(n) % 2, 1, 1, Serial())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (targets != NONE).all()
    assert peak < 8e6


def refused(X: NDArray, y: NDArray, n_targets: int = 1, n_impostors: int = 1) -> str:
    with pytest.raises(ValueError) as caught:
        mine_in_cells(as_source(X), y, n_targets, n_impostors, Serial())
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


@pytest.mark.parametrize("size", [0.0, 1e-170, 1e160])
def test_points_whose_squares_leave_the_range_are_refused(size: float) -> None:
    X, y = np.array([[1.0], [1.0], [1.0], [-1.0]]) * size, np.array([0, 0, 1, 1])
    assert refused(X, y).endswith("out of the range of float64. Scale X, or use init='scale'.")
