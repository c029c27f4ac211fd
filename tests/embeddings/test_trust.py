"""Adapters on data from which nothing, or a known gain, can be learned."""

from __future__ import annotations

import numpy as np
import pytest
from adapter_cells import KINDS, NUISANCE, SIDES, SIZES, cells, fit, oracle_gain

SMALL = SIZES[0]
CELLS = [cell for cell in cells() if cell.size == SMALL]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", SIDES)
def test_oracle_has_the_planted_gain(kind: str, side: str) -> None:
    nuisance = NUISANCE[kind, side, SMALL.D]
    assert oracle_gain(SMALL, kind, side, nuisance, 10) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_shuffled_duplicates_are_not_recommended(kind: str) -> None:
    """With folds that split copies, 5 (labels) and 8 (judgments) of 10 were recommended."""
    cell = next(c for c in CELLS if (c.kind, c.side, c.duplicates) == (kind, "query", 0.5))
    assert sum(fit(cell, seed).strength_ is not None for seed in range(10)) <= 1


def test_shuffled_classes_are_not_recommended_for_new_classes() -> None:
    """Among documents that were learned from, new ones stand out: 3 of 10 were recommended."""
    cell = next(c for c in CELLS if c[1:5] == ("labels", "query", True, 0.0))
    assert sum(fit(cell, seed).strength_ is not None for seed in range(10)) <= 1


@pytest.mark.slow
def test_shuffled_data_are_rarely_recommended_and_planted_gains_are_found() -> None:
    rates = {
        cell: np.mean([fit(cell, seed).strength_ is not None for seed in range(20)])
        for cell in CELLS
        if cell.duplicates != 0.1  # the most and the fewest duplicates, to save time
    }
    shuffled = [rate for cell, rate in rates.items() if not cell.planted]
    # The upper ends of binomial distributions with a probability of 2 %.
    assert max(shuffled) <= 0.15
    assert np.mean(shuffled) <= 0.03
    assert min(rate for cell, rate in rates.items() if cell.planted) >= 0.75
