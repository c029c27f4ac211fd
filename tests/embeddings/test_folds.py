from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from embedding_data import judged, labeled
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric import Comparisons
from boostmetric.embeddings.folds import near_duplicates, take_turns
from boostmetric.embeddings.search import Judge, as_grades
from boostmetric.embeddings.training import Compared, Judged, Labeled
from boostmetric.evaluation.ranking import normalized


@pytest.mark.parametrize("D", [1, 3, 50])
def test_rounded_copies_are_near_duplicates(rng: np.random.Generator, D: int) -> None:
    X = rng.standard_normal((200, D))
    source = rng.integers(0, 200, 500)
    order = rng.permutation(700)
    rounded = X[source].astype(np.float16).astype(np.float64)
    found = near_duplicates(np.concatenate([X, rounded])[order])
    wanted = np.concatenate([np.arange(200), source])[order]
    # Groups of a single feature may be near each other by chance.
    pairs = np.unique(np.stack([wanted, found], axis=1), axis=0)
    assert len(pairs) == 200
    assert len(np.unique(found)) == (200 if D > 1 else len(np.unique(pairs[:, 1])))


def test_vectors_in_several_arrays_are_compared(rng: np.random.Generator) -> None:
    X = normalized(rng.standard_normal((30, 40)))
    found = near_duplicates(X, X[::-1] + 1e-6)
    np.testing.assert_array_equal(found, np.r_[np.arange(30), np.arange(30)[::-1]])
    near = X + 0.01 * rng.standard_normal(X.shape)
    assert len(np.unique(near_duplicates(X, near))) == 60
    assert near_duplicates(np.zeros((4, 2))).tolist() == [0] * 4


def test_units_take_turns_within_strata(rng: np.random.Generator) -> None:
    units = rng.integers(0, 60, 300)
    strata = units % 3
    hashes = rng.integers(1 << 63, size=300).astype(np.uint64)
    folds = take_turns(units, 5, hashes, strata)
    assert all(len(np.unique(folds[units == unit])) == 1 for unit in np.unique(units))
    for stratum in range(3):
        own = np.unique(np.stack([units, folds])[:, strata == stratum], axis=1)[1]
        assert np.ptp(np.bincount(own, minlength=5)) <= 1


def copied(X: NDArray) -> NDArray:
    return np.concatenate([X, X + 1e-6])


@pytest.mark.parametrize("unseen", [False, True])
def test_copies_of_labeled_points_are_in_one_fold(unseen: bool) -> None:
    X, y = labeled(n=100, n_classes=6)
    # Copies have another class, so that whole classes do not keep them together.
    data = Labeled("cosine", "both", None, unseen, 1, 0, copied(X), np.r_[y, 5 - y], np.arange(200))
    for n_folds in (1, 3):
        for part, search in data.folds(n_folds):
            assert len(part.rows)
            assert len(search.rows)
            assert not set(part.rows % 100) & set(search.rows % 100)
            if not unseen:
                assert search.units is not None
                assert len(set(search.units)) == len(set(search.rows % 100))


@pytest.mark.parametrize("unseen", [False, True])
def test_copies_of_queries_and_documents_are_in_one_fold(unseen: bool) -> None:
    Q, D, judgments = judged()
    pairs = np.concatenate([judgments[:, :2], judgments[:, :2] + [len(Q), len(D)]])
    grades = as_grades(pairs, 2 * len(Q), 2 * len(D))
    rows = np.arange(2 * len(Q))
    data = Judged("cosine", "query", None, unseen, 1, 0, copied(Q), copied(D), grades, rows)
    n_held_out = 0
    for part, search in data.folds(4):
        n_held_out += len(search.rows)
        assert not set(part.rows % len(Q)) & set(search.rows % len(Q))
        if unseen:
            both = near_duplicates(part.documents, search.documents)
            known, new = np.split(both, [len(part.documents)])
            assert not set(known) & set(new)
    assert n_held_out == 2 * len(Q)  # each query once, also with new documents


def test_statements_about_a_pair_are_in_one_fold(rng: np.random.Generator) -> None:
    X, _ = labeled(n=60)
    rows = np.array([rng.permutation(60)[:3] for _ in range(400)])
    pairs = rng.permuted(rows[:, :2], axis=1)
    for given in (
        Comparisons.from_triplets(rows),
        Comparisons.from_pairs(pairs, rng.choice([-1, 1], 400)),
        Comparisons.from_quadruplets(np.array([rng.permutation(60)[:4] for _ in range(400)])),
    ):
        n_learned = []
        for part, judge in Compared("cosine", "both", None, False, 1, 0, X, given).folds(5):
            assert isinstance(judge, Judge)
            n_learned.append(len(part.comparisons))
            for name in ("near", "far"):
                known, new = (
                    {tuple(pair) for pair in c.pairs[getattr(c, name)] if pair[0] != pair[1]}
                    for c in (part.comparisons, judge.comparisons)
                )
                assert not known & new
        assert len(n_learned) == 5
        assert min(n_learned) > 150


@pytest.mark.parametrize("unseen", [False, True])
def test_folds_of_labels_depend_on_contents_only(unseen: bool, rng: np.random.Generator) -> None:
    X, y = labeled(n=100, n_classes=6)
    order = rng.permutation(len(X))
    names = np.array([3, 5, 0, 1, 4, 2])
    first = Labeled("cosine", "both", None, unseen, 1, 0, X, y, np.arange(100))
    second = replace(first, X=X[order], y=names[y[order]])
    for n_folds in (1, 3):
        folds = zip(first.folds(n_folds), second.folds(n_folds), strict=True)
        for (part, search), (same_part, same_search) in folds:
            assert set(order[same_part.rows]) == set(part.rows)
            assert set(order[same_search.rows]) == set(search.rows)


@pytest.mark.parametrize("unseen", [False, True])
def test_folds_of_judgments_depend_on_contents_only(unseen: bool, rng: np.random.Generator) -> None:
    queries, documents = (normalized(rng.standard_normal((n, 5))) for n in (60, 90))
    grades = rng.random((60, 90)) < 0.05
    grades[np.arange(60), rng.integers(90, size=60)] = True
    first = Judged(
        *("cosine", "both", None, unseen, 1, 0),
        *(queries, documents, csr_array(grades.astype(float)), np.arange(60)),
    )
    order, columns = rng.permutation(60), rng.permutation(90)
    second = replace(
        first,
        queries=queries[order],
        documents=documents[columns],
        grades=csr_array(grades[order][:, columns].astype(float)),
    )
    for (part, search), (same_part, same_search) in zip(
        first.folds(3), second.folds(3), strict=True
    ):
        assert set(order[same_part.rows]) == set(part.rows)
        assert set(order[same_search.rows]) == set(search.rows)
