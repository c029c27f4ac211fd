from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric.data.samples import MIN_PER_CLASS, class_order, sample


def drawn(n: int, n_classes: int, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Hashes and class codes, each class with at least one row."""
    rng = np.random.default_rng([seed, n, n_classes])
    hashes = rng.permutation(np.arange(n, dtype=np.uint64) * np.uint64(2**50))
    return hashes, rng.permutation(np.arange(n) % n_classes)


def test_class_order_matches_sorting() -> None:
    hashes, codes = drawn(100, 7)
    smallest = [hashes[codes == code].min() for code in range(7)]
    expected = sorted(range(100), key=lambda row: (smallest[codes[row]], hashes[row]))
    assert class_order(hashes, codes).tolist() == expected


@pytest.mark.parametrize("n_classes", [1, 3, 40])
def test_folds_in_class_order_have_their_share_of_every_class(n_classes: int) -> None:
    hashes, codes = drawn(200, n_classes)
    order = class_order(hashes, codes)
    for k in (2, 3, 5):
        counts = np.array([np.bincount(codes[order[i::k]], minlength=n_classes) for i in range(k)])
        assert np.ptp(counts, axis=0).max() <= 1


@pytest.mark.parametrize(("n_classes", "size"), [(3, 100), (3, 1), (50, 60), (50, 61), (300, 7)])
def test_samples_depend_on_hashes_only(n_classes: int, size: int) -> None:
    hashes, codes = drawn(600, n_classes)
    chosen = sample(hashes, codes, size)
    rng = np.random.default_rng(0)
    rows, names = rng.permutation(600), rng.permutation(n_classes)
    again = sample(hashes[rows], names[codes][rows], size)
    np.testing.assert_array_equal(rows[again], chosen)
    assert (np.diff(hashes[chosen].astype(float)) > 0).all()


def test_large_classes_are_sampled_by_rows() -> None:
    hashes, codes = drawn(600, 600 // MIN_PER_CLASS)
    np.testing.assert_array_equal(sample(hashes, codes, 100), np.argsort(hashes)[:100])


def test_small_classes_are_sampled_as_a_whole() -> None:
    hashes, codes = drawn(600, 600 // MIN_PER_CLASS + 1)
    chosen = sample(hashes, codes, 100)
    sizes = np.bincount(codes)
    counts = np.bincount(codes[chosen], minlength=len(sizes))
    assert set(np.flatnonzero(counts)) == set(np.flatnonzero(counts == sizes))
    assert 100 <= len(chosen) < 100 + MIN_PER_CLASS
    # Classes with the smallest hash of any row.
    smallest = np.array([hashes[codes == code].min() for code in range(len(sizes))])
    assert smallest[counts > 0].max() < smallest[counts == 0].min()


@pytest.mark.parametrize("n_classes", [3, 150])
def test_samples_grow_by_inclusion(n_classes: int) -> None:
    hashes, codes = drawn(600, n_classes)
    samples = [set(sample(hashes, codes, size)) for size in (10, 50, 200, 599, 600, 1000)]
    assert all(some <= more for some, more in pairwise(samples))
    assert len(samples[-1]) == len(samples[-2]) == 600
