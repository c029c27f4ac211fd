from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import mutual_info_score
from sklearn.utils.estimator_checks import estimator_checks_generator

from boostmetric_paper.vision import WordMerger, merge_words, region_histograms


def greedy(counts: NDArray) -> list[tuple[list[list[int]], float]]:
    """Partitions and their information after each merge, every pair tried each time."""
    groups = [[word] for word in range(len(counts))]
    steps = [(groups, information(counts, groups))]
    while len(groups) > 1:
        tried = []
        for a, b in combinations(range(len(groups)), 2):
            merged = [*groups[:a], groups[a] + groups[b], *groups[a + 1 : b], *groups[b + 1 :]]
            tried.append((information(counts, merged), merged))
        best, groups = max(tried, key=lambda each: each[0])
        steps.append((groups, best))
    return steps


def information(counts: NDArray, groups: list[list[int]]) -> float:
    table = np.array([counts[group].sum(axis=0) for group in groups])
    return float(mutual_info_score(None, None, contingency=table))


@pytest.mark.parametrize("seed", range(5))
def test_merges_match_brute_force(seed: int) -> None:
    counts = np.random.default_rng(seed).integers(1, 60, size=(9, 3))
    for groups, left in greedy(counts):
        merging = merge_words(counts, len(groups))
        assert merging.information[-1] == pytest.approx(left, abs=1e-12)
        found = [np.flatnonzero(merging.groups == each).tolist() for each in range(len(groups))]
        assert found == sorted(sorted(group) for group in groups)


@pytest.mark.parametrize("seed", [0, 1459, 1914, 2111])
def test_union_can_be_closer_than_parts(seed: int) -> None:
    """Some of these draws have a word before a union that comes nearer to it than its nearest."""
    counts = (np.random.default_rng(seed).gamma(0.4, size=(12, 5)) * 1000).astype(int) + 1
    expected = [left for _, left in greedy(counts)]
    np.testing.assert_allclose(merge_words(counts, 1).information, expected, atol=1e-12)


def test_redundant_words_merge_without_loss() -> None:
    counts = np.array([[2, 6], [0, 0], [5, 1], [1, 3], [0, 0], [10, 2]])
    merging = merge_words(counts, 2)
    np.testing.assert_allclose(merging.information, merging.information[0], atol=1e-14)
    assert merging.groups[0] == merging.groups[3] != merging.groups[2] == merging.groups[5]


def test_extreme_numbers_of_groups() -> None:
    counts = np.random.default_rng(0).integers(1, 9, size=(6, 4))
    assert merge_words(counts, 1).information[-1] == pytest.approx(0, abs=1e-14)
    assert merge_words(counts, 6).groups.tolist() == [0, 1, 2, 3, 4, 5]
    assert merge_words(counts * 10**9, 3).groups.tolist() == merge_words(counts, 3).groups.tolist()


def test_counts_are_not_modified() -> None:
    counts = np.array([[1.0, 2.0], [3.0, 1.0], [2.0, 2.0]])
    before = counts.copy()
    merge_words(counts, 1)
    np.testing.assert_array_equal(counts, before)


@pytest.mark.parametrize("n_groups", [0, 4])
def test_wrong_number_of_groups_is_rejected(n_groups: int) -> None:
    with pytest.raises(ValueError, match=r"range \[1, 3\]"):
        merge_words(np.ones((3, 2)), n_groups)


@pytest.mark.parametrize("counts", [[[0, 0]], [[1, -1]], [[np.nan, 1]], [1, 2]])
def test_wrong_counts_are_rejected(counts: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="counts must be a finite array"):
        merge_words(np.array(counts, dtype=float), 1)


def test_histograms_are_summed_over_groups() -> None:
    rng = np.random.default_rng(0)
    H, y = rng.poisson(4, size=(12, 7)), np.repeat(["a", "b", "c"], 4)
    merger = WordMerger(n_groups=3).fit(H, y)
    counts = np.array([[H[y == c, w].sum() for c in "abc"] for w in range(7)])
    np.testing.assert_array_equal(merger.groups_, merge_words(counts, 3).groups)
    merged = merger.transform(H)
    for row, group in np.ndindex(merged.shape):
        assert merged[row, group] == sum(H[row, w] for w in range(7) if merger.groups_[w] == group)
    assert merger.get_feature_names_out().tolist() == ["wordmerger0", "wordmerger1", "wordmerger2"]


CHECKS = list(estimator_checks_generator(WordMerger(n_groups=1)))


@pytest.mark.parametrize(
    ("estimator", "check"), CHECKS, ids=[check.func.__name__ for _, check in CHECKS]
)
def test_merger_passes_scikit_learn_checks(
    estimator: WordMerger, check: Callable[[WordMerger], None]
) -> None:
    check(estimator)


def test_regions_match_flood_fill() -> None:
    rng = np.random.default_rng(0)
    label_map = rng.integers(3, size=(9, 8), dtype=np.uint8)
    words = rng.integers(4, size=(9, 8))
    expected = []
    left = {place for place in np.ndindex(9, 8) if label_map[place] > 0}
    while left:
        region, ends = [], [left.pop()]
        while ends:
            y, x = ends.pop()
            region.append((y, x))
            near = {(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
            near = {place for place in near if label_map[place] == label_map[y, x]}
            left -= near
            ends += near
        if len(region) >= 2:
            histogram = [sum(words[place] == word for place in region) for word in range(4)]
            expected.append((int(label_map[region[0]]), histogram))
    histograms, labels = region_histograms(words.ravel(), label_map, 4, labels=(1, 2), min_pixels=2)
    found = zip(labels.tolist(), histograms.astype(int).tolist(), strict=True)
    assert sorted(found) == sorted(expected)


def test_image_without_regions_has_no_rows() -> None:
    empty = np.zeros((2, 2), dtype=np.uint8)
    histograms, labels = region_histograms(empty.astype(np.intp), empty, 5, labels=[1])
    assert histograms.shape == (0, 5)
    assert labels.shape == (0,)


def test_words_of_wrong_shape_are_rejected() -> None:
    with pytest.raises(ValueError, match="Got 3 words and 4 pixels"):
        region_histograms(np.zeros(3, np.intp), np.zeros((2, 2), np.uint8), 5, labels=[1])
