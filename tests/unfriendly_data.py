"""Ordinary but unfriendly data, on which a learned metric is easily worse than a simple one.

`draw(name, seed)` returns training points, their labels, test points and their labels, of one of
the `KINDS`, or of those with a `PLANTED` gain. Test points are of the same classes, and have
correct labels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Data = tuple[NDArray, NDArray, NDArray, NDArray]

N_TEST = 2_000


def small_classes(
    rng: Generator, n_classes: int, per_class: int, n_features: int = 32, noise: float = 0.15
) -> Data:
    """Many classes that differ in half of the features; correlated noise hides them."""
    centers = rng.normal(size=(n_classes, n_features))
    centers[:, n_features // 2 :] = 0
    mixing = rng.normal(size=(n_features, n_features)) / np.sqrt(n_features)

    def points(y: NDArray) -> NDArray:
        correlated = rng.normal(size=(len(y), n_features)) @ mixing
        return centers[y] + correlated + noise * rng.normal(size=(len(y), n_features))

    y = np.repeat(np.arange(n_classes), per_class)
    y_test = rng.integers(n_classes, size=N_TEST)
    return points(y), y, points(y_test), y_test


def clusters(
    rng: Generator,
    n: int,
    n_features: int = 15,
    n_informative: int = 4,
    sizes: tuple[float, ...] = (1, 1, 1),
    wrong: float = 0.0,
    tails: float = np.inf,
    separation: float = 1.2,
    scales: float = 0.0,
    repeated: float = 0.0,
) -> Data:
    """Classes of four clusters each, in few of the features; the others are noise.

    `sizes` are relative sizes of the classes, `wrong` the fraction of training points with a random
    label, `tails` the degrees of freedom of the noise (Student's t), `scales` the decades above and
    below 1 of the scales of features, and `repeated` the fraction of training points that are
    copies of others.
    """
    n_classes = len(sizes)
    centers = separation * rng.normal(size=(n_classes, 4, n_features))
    centers[:, :, n_informative:] = 0
    factors = 10 ** rng.permutation(np.linspace(-scales, scales, n_features))

    def points(n: int) -> tuple[NDArray, NDArray]:
        y = rng.choice(n_classes, size=n, p=np.array(sizes) / np.sum(sizes))
        y[: 4 * n_classes] = np.arange(4 * n_classes) % n_classes  # no class is missing
        noise = rng.normal(size=(n, n_features))
        if np.isfinite(tails):
            noise = rng.standard_t(tails, size=(n, n_features))
        return (centers[y, rng.integers(4, size=n)] + noise) * factors, y

    (X, y), (X_test, y_test) = points(n), points(N_TEST)
    copies = rng.random(n) < repeated
    originals = rng.integers(n, size=n)
    X, y = (np.where(copies if a.ndim == 1 else copies[:, None], a[originals], a) for a in (X, y))
    flipped = rng.random(n) < wrong
    y = np.where(flipped, rng.integers(n_classes, size=n), y)
    return X, y, X_test, y_test


def rings(rng: Generator, n: int, n_noise: int = 8, noise_scale: float = 2.0) -> Data:
    """Four concentric circles in two features; the others are noise."""

    def points(n: int) -> tuple[NDArray, NDArray]:
        y = np.arange(n) % 4
        radii, angles = y + 0.5 + 0.1 * rng.normal(size=n), rng.uniform(0, 2 * np.pi, size=n)
        noise = noise_scale * rng.normal(size=(n, n_noise))
        return np.column_stack([radii * np.cos(angles), radii * np.sin(angles), noise]), y

    return *points(n), *points(N_TEST)


def nothing(rng: Generator, n: int, n_features: int, n_classes: int = 2) -> Data:
    """Labels that do not depend on the points."""
    X, X_test = rng.normal(size=(n, n_features)), rng.normal(size=(N_TEST, n_features))
    y = np.arange(n) % n_classes
    return X, y, X_test, rng.integers(n_classes, size=N_TEST)


KINDS: dict[str, Callable[[Generator], Data]] = {
    "500 classes of 8": partial(small_classes, n_classes=500, per_class=8),
    "500 classes of 2": partial(small_classes, n_classes=500, per_class=2),
    "1500 classes of 3": partial(small_classes, n_classes=1500, per_class=3, n_features=24),
    "3000 classes of 4": partial(small_classes, n_classes=3000, per_class=4),
    "5000 classes of 2": partial(small_classes, n_classes=5000, per_class=2, n_features=48),
    "10 % wrong labels": partial(clusters, n=1000, wrong=0.1 * 1.5),
    "20 % wrong labels": partial(clusters, n=600, wrong=0.2 * 1.5),
    "40 % wrong labels": partial(clusters, n=1500, wrong=0.4 * 1.5),
    "60 % wrong labels": partial(clusters, n=2500, wrong=0.6 * 1.5),
    "heavy tails": partial(clusters, n=1200, n_features=20, tails=1.5, separation=3.0),
    "heavier tails": partial(clusters, n=600, n_features=12, tails=1.0, separation=4.0),
    "imbalance 1:100": partial(clusters, n=2000, sizes=(100, 1), separation=1.5),
    "imbalance 1:30": partial(clusters, n=500, sizes=(30, 30, 1), separation=2.0),
    "scales": partial(clusters, n=600, scales=4.0, separation=2.0, n_features=20),
    "noise, 400 points": partial(nothing, n=400, n_features=20),
    "noise, 40 points": partial(nothing, n=40, n_features=6),
    "noise, 2000 x 50": partial(nothing, n=2000, n_features=50, n_classes=5),
    "rings, 420": partial(rings, n=420),
    "rings, 150": partial(rings, n=150, n_noise=4),
    "60 x 200": partial(clusters, n=60, n_features=200, n_informative=10, separation=2.0),
    "40 points": partial(clusters, n=40, n_features=8, separation=2.0),
    "half are copies": partial(clusters, n=600, repeated=0.5),
    "256 features": partial(clusters, n=1500, n_features=256, n_informative=15, separation=1.5),
    "256 features, weak": partial(
        clusters, n=2500, n_features=256, n_informative=120, separation=0.35
    ),
}
"""The kinds of data by name; the functions draw training and test data."""

PLANTED: dict[str, Callable[[Generator], Data]] = {
    "planted, 200 points": partial(clusters, n=200, n_features=20, separation=3.0),
    "planted, 1000 points": partial(clusters, n=1000, n_features=30, separation=2.0),
    "planted, 3000 points": partial(clusters, n=3000, n_features=60, separation=1.5),
}
"""Data from which learning gains much, as controls."""


def draw(name: str, seed: int) -> Data:
    """Draw data of a kind; the test points are not related to the training points."""
    return (KINDS | PLANTED)[name](np.random.default_rng([seed, *name.encode()]))
