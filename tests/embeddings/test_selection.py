from __future__ import annotations

import numpy as np
import pytest

from boostmetric.embeddings.selection import choose


def test_two_standard_errors_for_one_candidate(rng: np.random.Generator) -> None:
    noise = rng.normal(size=400)
    noise = (noise - noise.mean()) / noise.std(ddof=1) / 20 * 20
    for errors, expected in ((1.8, None), (2.3, 0)):
        chosen, critical = choose((noise + errors / 20)[None])
        assert chosen == expected
        assert critical == pytest.approx(2, abs=0.06)


def test_critical_value_grows_with_different_candidates(rng: np.random.Generator) -> None:
    noise = rng.normal(size=(6, 1000))
    equal = np.repeat(noise[:1], 6, axis=0)
    assert choose(equal)[1] == pytest.approx(2, abs=0.06)
    # The largest of 6 independent normal variables: P(max < z) = Φ(2).
    assert choose(noise)[1] == pytest.approx(2.66, abs=0.1)


def test_candidate_near_identity_is_preferred(rng: np.random.Generator) -> None:
    shared = rng.normal(0.1, 0.1, 500)
    noise = rng.normal(0, 0.05, (3, 500))
    noise -= noise.mean(axis=1, keepdims=True)
    # The standard error of a difference is .003.
    assert choose(shared + noise + np.array([[-0.08], [-0.001], [0.0]]))[0] == 1
    assert choose(shared + noise + np.array([[-0.08], [-0.01], [0.0]]))[0] == 2


def test_constant_gains_are_not_reliable() -> None:
    assert choose(np.zeros((3, 50)))[0] is None


@pytest.mark.parametrize(("gain", "low", "high"), [(0.0, 0, 8), (0.03, 80, 100)])
def test_rates_of_choice(gain: float, low: int, high: int) -> None:
    """500 queries with a standard deviation of .2, and 4 correlated candidates."""
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        shared, own = rng.normal(size=500), rng.normal(size=(4, 500))
        gains = gain + 0.2 * (np.sqrt(0.8) * shared + np.sqrt(0.2) * own)
        found += choose(gains)[0] is not None
    assert low <= found <= high
