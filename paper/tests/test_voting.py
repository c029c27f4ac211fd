"""Nearest-neighbor classification with both rules for ties."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from boostmetric_paper.voting import majority, neighbor_labels


@pytest.mark.parametrize(("n_features", "largest"), [(3, 15), (16, 2)])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_both_rules_match_independent_votes(k: int, n_features: int, largest: int) -> None:
    rng = np.random.default_rng([k, n_features])
    X = rng.integers(0, largest + 1, (500, n_features)).astype(float)
    y = rng.choice(np.array(list("ABCDEFGHIJ")), 500)
    predicted = KNeighborsClassifier(k).fit(X[:400], y[:400]).predict(X[400:])
    labels = neighbor_labels(X[:400], y[:400], X[400:], k)
    nearest = [max(row, key=Counter(row).__getitem__) for row in labels.tolist()]
    assert majority(labels, "first").tolist() == predicted.tolist()
    assert majority(labels, "nearest").tolist() == nearest
    assert (nearest != predicted.tolist()) == (k > 1)


def test_unknown_rule() -> None:
    with pytest.raises(ValueError, match="ties must be 'nearest' or 'first'"):
        majority(np.array([[1, 2]]), ties="last")
