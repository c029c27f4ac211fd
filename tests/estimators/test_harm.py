"""A default fit is not worse than simple metrics, and keeps what it has really learned."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier
from unfriendly_data import KINDS, draw

from boostmetric import BoostMetric, knn_error
from boostmetric.estimators.initial import as_components, starting_transformation

KNOWN_HARM = {"40 % wrong labels": 3.5, "60 % wrong labels": 3.5}
"""Kinds of data on which the default is worse than the best simple metric by at least half a
percentage point, and by how many at most; docs/limits.md has the reasons."""

SEEDS = range(3)


def fitted(X: NDArray, y: NDArray) -> BoostMetric:
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Learning did not lower|After learning|Points of class|No direction"
        )
        return BoostMetric().fit(X, y)


def keeps_start(learner: BoostMetric, X: NDArray, y: NDArray) -> bool:
    base = starting_transformation(learner.init_, X, y)
    L = as_components(base, X.shape[1], X.dtype)
    return np.allclose(learner.get_mahalanobis_matrix(), L.T @ L)


def excess_errors(name: str, seed: int) -> NDArray:
    """Whether each test point is wrong, minus the same for the best simple metric."""
    X, y, X_test, y_test = draw(name, seed)
    learner = fitted(X, y)
    start = starting_transformation(learner.init_, X, y)
    n_neighbors = 1 if len(y) < 4 * len(np.unique(y)) else 3
    deviations = X.std(axis=0)
    simple = [np.eye(X.shape[1]), np.diag(1 / np.where(deviations > 0, deviations, 1))]
    simple += [] if start is None else [np.asarray(start)]

    def wrong(L: NDArray) -> NDArray:
        model = KNeighborsClassifier(n_neighbors).fit(X @ L.T, y)
        return np.asarray(model.predict(X_test @ L.T) != y_test, dtype=float)

    return wrong(learner.components_) - min(map(wrong, simple), key=np.sum)


@pytest.mark.parametrize(("n", "n_features", "n_classes"), [(40, 6, 2), (120, 8, 3), (200, 10, 2)])
def test_labels_without_signal_keep_the_start(n: int, n_features: int, n_classes: int) -> None:
    """With evidence of three standard errors, one of hundreds of such fits may learn."""
    kept = []
    for seed in range(6):
        X = np.random.default_rng([seed, n]).normal(size=(n, n_features))
        y = np.arange(n) % n_classes
        kept.append(keeps_start(fitted(X, y), X, y))
    assert sum(kept) >= 5


def test_planted_gain_is_kept() -> None:
    learned, before, after = [], [], []
    for seed in range(6):
        X, y, X_test, y_test = draw("planted, 200 points", seed)
        learner = fitted(X, y)
        learned.append(not keeps_start(learner, X, y))
        before.append(knn_error(X, y, X_test, y_test))
        after.append(knn_error(learner.transform(X), y, learner.transform(X_test), y_test))
    assert sum(learned) >= 5
    assert np.mean(after) < 0.8 * np.mean(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_default_is_not_worse_than_simple_metrics(name: str) -> None:
    excess = np.concatenate([excess_errors(name, seed) for seed in SEEDS])
    if name in KNOWN_HARM:
        assert 0.005 < excess.mean() < KNOWN_HARM[name] / 100  # otherwise change the list
    else:
        assert excess.mean() <= 0.005 + 2 * excess.std() / np.sqrt(len(excess))
