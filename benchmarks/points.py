"""Points of the benchmarks."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

N_CLUSTERS = 100


def mnist(n: int = 50_000) -> tuple[NDArray, NDArray]:
    """Points of MNIST in a random order, reduced to 164 features in float32, and their labels.

    The result for all 50,000 points is kept in the temporary folder, because PCA takes seconds.
    """
    kept = Path(tempfile.gettempdir(), "boostmetric-benchmarks-mnist.npz")
    if not kept.exists():
        with np.load(Path(os.environ["BOOSTMETRIC_DATA"], "mnist.npz"), allow_pickle=False) as data:
            rows = np.random.default_rng(0).permutation(len(data["X"]))[:50_000]
            X, y = data["X"][rows].astype(np.float32), data["y"][rows]
        X = PCA(164, random_state=0).fit_transform(X).astype(np.float32)
        with tempfile.NamedTemporaryFile(dir=kept.parent, suffix=".npz", delete=False) as file:
            np.savez(file, X=X, y=y)
        Path(file.name).replace(kept)
    with np.load(kept, allow_pickle=False) as data:
        return data["X"][:n].copy(), data["y"][:n].copy()


def clusters(n: int, D: int, part: int = 0, n_classes: int = 10) -> tuple[NDArray, NDArray]:
    """Labeled points in 100 clusters that overlap, in float32; a class has several clusters.

    The spectrum decreases, as that of images and of most embeddings. Different parts are different
    points of the same clusters.
    """
    decay = 1 / np.sqrt(1 + np.arange(D, dtype=np.float32))
    centers = np.random.default_rng(0).standard_normal((N_CLUSTERS, D), dtype=np.float32)
    rng = np.random.default_rng(1 + part)
    cluster = rng.integers(0, N_CLUSTERS, n)
    X = rng.standard_normal((n, D), dtype=np.float32)
    X += 0.7 * centers[cluster]
    X *= decay
    return X, cluster % n_classes


def triplets(y: NDArray, m: int) -> NDArray:
    """Random triplets of rows, of shape (m, 3): two points of a class and one of another."""
    rng = np.random.default_rng(0)
    by_class = np.argsort(y, kind="stable")
    begins, sizes = np.searchsorted(y[by_class], y), np.bincount(y)
    anchors = rng.integers(0, len(y), m)
    position = begins[anchors] + rng.integers(0, sizes[y[anchors]])
    # The rows of other classes are those after the class of the anchor, and circularly on.
    others = len(y) - sizes[y[anchors]]
    shift = sizes[y[anchors]] + rng.integers(0, others)
    impostors = by_class[(begins[anchors] + shift) % len(y)]
    rows = np.column_stack([anchors, by_class[position], impostors])
    return rows[rows[:, 0] != rows[:, 1]]


def nine_triplets_per_point(y: NDArray) -> NDArray:
    """Triplets of each point with three random points of its class and three of others."""
    n, rng = len(y), np.random.default_rng(0)
    by_class = np.argsort(y, kind="stable")
    position = np.argsort(by_class)
    targets = np.stack([by_class[(position + k) % n] for k in (1, 2, 3)], axis=1)
    impostors = rng.integers(0, n, (n, 3))
    grid = np.broadcast_arrays(
        np.arange(n)[:, None, None], targets[:, :, None], impostors[:, None, :]
    )
    rows = np.stack(grid, axis=-1).reshape(-1, 3)
    anchor, target, impostor = y[rows].T
    return rows[(anchor == target) & (anchor != impostor)]
