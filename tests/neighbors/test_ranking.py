from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric.neighbors import NONE, NeighborTable, merge_tables
from boostmetric.neighbors.ranking import pair_squares, rounded


def draw_offers(seed: int, n: int = 6, m: int = 200) -> tuple[NDArray, NDArray, NDArray]:
    """Pairs with many ties and repetitions, and one distance per owner and row."""
    rng = np.random.default_rng(seed)
    owners, rows = rng.integers(0, n - 1, m), rng.integers(0, 30, m)
    return owners, rows, ((rows * 7 + owners) % 5).astype(float)


def assert_nearest(table: NeighborTable, offers: tuple[NDArray, NDArray, NDArray]) -> None:
    k = table.rows.shape[1]
    for owner in range(len(table.rows)):
        known = sorted({(s, r) for o, r, s in zip(*offers, strict=True) if o == owner})[:k]
        known += [(np.inf, NONE)] * (k - len(known))
        assert list(zip(table.squares[owner], table.rows[owner], strict=True)) == known


@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("size", [1, 7, 200])
def test_offers_yield_sorted_lists(k: int, size: int) -> None:
    offers, table = draw_offers(k), NeighborTable.empty(6, k)
    for begin in range(0, 200, size):
        owners, rows, squares = (part[begin : begin + size] for part in offers)
        before = table.rows.copy()
        changed = table.offer(owners, rows, squares)
        assert set(np.flatnonzero((table.rows != before).any(axis=1))) <= set(changed.tolist())
    assert_nearest(table, offers)
    assert (table.rows[5] == NONE).all()


def test_distant_offers_are_ignored() -> None:
    table = NeighborTable.empty(1, 1)
    table.offer(np.array([0]), np.array([3]), np.array([2.0]))
    for row, square in ((4, 2.0), (3, 2.0), (1, 2.5)):
        assert len(table.offer(np.array([0]), np.array([row]), np.array([square]))) == 0
    assert table.rows.tolist() == [[3]]


@pytest.mark.parametrize("n_parts", [1, 2, 5])
def test_merged_tables_match_one_table(n_parts: int) -> None:
    offers, tables = draw_offers(n_parts), []
    for part in range(n_parts):
        tables.append(NeighborTable.empty(6, 4))
        tables[-1].offer(*(values[part::n_parts] for values in offers))
    merged = merge_tables(tables)
    assert_nearest(merged, offers)
    assert merged.rows.dtype == np.intp


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("D", [1, 2, 7, 100])
def test_pair_squares_match_a_loop(
    D: int, dtype: type[np.floating], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boostmetric.neighbors.ranking.PAIR_COORDINATES", 50)
    points, others = (1e3 + rng.normal(size=(2, 20, D))).astype(dtype)
    i, j = rng.integers(0, 20, (2, 90))
    expected = [
        sum((float(a) - float(b)) ** 2 for a, b in zip(points[p], others[q], strict=True))
        for p, q in zip(i, j, strict=True)
    ]
    for form in (np.asarray, csr_array):
        squares = pair_squares(form(points), i, form(others), j)
        np.testing.assert_allclose(squares, expected, rtol=2.0**-41)
        assert np.array_equal(squares, rounded(squares))


def test_rounded_squares_have_41_bits(rng: np.random.Generator) -> None:
    squares = rng.random(1000)
    found = rounded(squares)
    assert np.abs(found / squares - 1).max() <= 2.0**-41
    mantissas, _ = np.frexp(found)
    assert (mantissas * 2.0**41 % 1 == 0).all()
