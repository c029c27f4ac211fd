from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, t

from boostmetric.embeddings.selection import (
    MIN_STANDARD_ERRORS,
    cross_fitted_gain,
    prefer,
    required_standard_errors,
    standard_errors,
)


def test_candidate_near_identity_is_preferred(rng: np.random.Generator) -> None:
    shared = rng.normal(0.1, 0.1, 500)
    noise = rng.normal(0, 0.05, (3, 500))
    noise -= noise.mean(axis=1, keepdims=True)
    # The standard error of a difference is .003.
    units = np.arange(500)
    assert prefer(shared + noise + np.array([[-0.08], [-0.001], [0.0]]), units) == 1
    assert prefer(shared + noise + np.array([[-0.08], [-0.01], [0.0]]), units) == 2


def test_candidate_of_a_fold_is_chosen_on_other_folds(rng: np.random.Generator) -> None:
    # Each fold has its own best candidate, which the other folds do not show.
    folds = [rng.normal(scale=0.01, size=(3, 40)) for _ in range(3)]
    for number, gains in enumerate(folds):
        gains[number] += 1
    held_out = [folds[0][1], folds[1][0], folds[2][0]]
    expected = np.concatenate(held_out)
    gain, error = cross_fitted_gain(folds, list(np.arange(120).reshape(3, 40)))
    assert gain == pytest.approx(expected.mean())
    assert error == pytest.approx(expected.std(ddof=1) / np.sqrt(120))


def test_many_candidates_do_not_bias_the_gain(rng: np.random.Generator) -> None:
    ratios = []
    for _ in range(200):
        gain, error = cross_fitted_gain(
            [rng.normal(size=(30, 40)) for _ in range(3)], list(np.arange(120).reshape(3, 40))
        )
        ratios.append(gain / error)
    assert abs(np.mean(ratios)) < 0.2
    assert np.std(ratios) == pytest.approx(1, abs=0.15)


def test_constant_gains_are_not_reliable() -> None:
    assert cross_fitted_gain([np.zeros((3, 25))] * 2, list(np.arange(50).reshape(2, 25))) == (0, 0)
    assert prefer(np.zeros((3, 50)), np.arange(50)) == 0


def test_queries_of_a_unit_are_not_independent(rng: np.random.Generator) -> None:
    gains = rng.normal(size=(2, 50))
    copied = np.repeat(gains, 4, axis=1)
    errors = gains.std(axis=1, ddof=1) / np.sqrt(50)
    np.testing.assert_allclose(standard_errors(gains, np.arange(50)), errors)
    np.testing.assert_allclose(standard_errors(copied, np.repeat(np.arange(50), 4)), errors)
    # Few units require more: the same probability with Student's t distribution.
    for n_units in (3, 8, 1000):
        required = required_standard_errors(n_units)
        assert t(n_units - 1).sf(required) == pytest.approx(norm.sf(MIN_STANDARD_ERRORS))


@pytest.mark.parametrize(("gain", "low", "high"), [(0.0, 0, 5), (0.035, 80, 100)])
def test_rates_of_choice(gain: float, low: int, high: int) -> None:
    """500 queries with a standard deviation of .2, and 4 correlated candidates."""
    accepted = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        shared, own = rng.normal(size=500), rng.normal(size=(4, 500))
        gains = gain + 0.2 * (np.sqrt(0.8) * shared + np.sqrt(0.2) * own)
        folds = np.array_split(gains, 3, axis=1)
        mean, error = cross_fitted_gain(folds, np.array_split(np.arange(500), 3))
        accepted += mean > MIN_STANDARD_ERRORS * error
    assert low <= accepted <= high
