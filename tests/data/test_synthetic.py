from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from conftest import simple_learner
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from boostmetric import Comparisons, knn_error
from boostmetric.data.synthetic import balance_scale, concentric_circles

SEEDS = [0, 1]


def test_circles_have_the_given_shape_and_balanced_classes() -> None:
    X, y = concentric_circles(n_samples=90, n_classes=3, n_noise=5)
    assert X.shape == (90, 7)
    assert Counter(y.tolist()) == {0: 30, 1: 30, 2: 30}


def test_circles_have_the_documented_radii() -> None:
    X, y = concentric_circles(noise_scale=7.0)
    radii = np.hypot(X[:, 0], X[:, 1])
    for label in range(4):
        assert radii[y == label].mean() == pytest.approx(label + 0.5, abs=0.03)
        assert radii[y == label].std() == pytest.approx(0.1, abs=0.02)
    assert X[:, 2:].std(axis=0) == pytest.approx(np.full(8, 7.0), rel=0.1)


def test_circles_are_reproducible() -> None:
    X, y = concentric_circles(random_state=3)
    again, y_again = concentric_circles(random_state=np.random.RandomState(3))
    assert np.array_equal(X, again)
    assert np.array_equal(y, y_again)
    assert not np.array_equal(X, concentric_circles(random_state=4)[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_boosting_finds_the_circles(seed: int) -> None:
    X, y = concentric_circles(random_state=seed)
    assert len(Comparisons.from_labels(X, y)) == 9000
    metric = simple_learner("exponential").fit(X, y).metric_
    assert metric.eigenvalues[:2].sum() >= 0.95 * metric.eigenvalues.sum()
    plane = metric.truncate(2)
    assert (plane.components[:, :2] ** 2).sum() >= 0.95 * (plane.components**2).sum()
    fresh, fresh_y = concentric_circles(random_state=seed + 100)
    assert knn_error(plane.transform(X), y, plane.transform(fresh), fresh_y) < 0.2


@pytest.mark.parametrize("seed", SEEDS)
def test_pca_and_lda_miss_the_circles(seed: int) -> None:
    X, y = concentric_circles(random_state=seed)
    pca = PCA(n_components=2).fit(X)
    assert (pca.components_[:, :2] ** 2).sum() < 0.1 * (pca.components_**2).sum()
    fresh, fresh_y = concentric_circles(random_state=seed + 100)
    for learner in (pca, LinearDiscriminantAnalysis(n_components=2).fit(X, y)):
        assert knn_error(learner.transform(X), y, learner.transform(fresh), fresh_y) > 0.6


def test_balance_scale_follows_the_torque_rule() -> None:
    X, y = balance_scale()
    expected = [
        (states, "L" if states[0] * states[1] > states[2] * states[3] else "R")
        for states in product((1, 2, 3, 4, 5), repeat=4)
    ]
    for (states, side), row, label in zip(expected, X.tolist(), y.tolist(), strict=True):
        balanced = states[0] * states[1] == states[2] * states[3]
        assert (tuple(row), label) == (states, "B" if balanced else side)
    assert Counter(y.tolist()) == {"L": 288, "B": 49, "R": 288}


def test_balance_scale_matches_the_uci_file(data_folder: Path) -> None:
    with np.load(data_folder / "balance_scale.npz", allow_pickle=False) as stored:
        points, labels = stored["X"], stored["target_names"][stored["y"]]
    X, y = balance_scale()
    assert np.array_equal(X, points)
    assert np.array_equal(y, labels)
