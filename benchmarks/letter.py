"""Time and memory of a fit at the size of `letter`: 10,500 points, 16 features, 94,500 comparisons.

    python benchmarks/letter.py [--write]

The reference is scikit-learn's NeighborhoodComponentsAnalysis with 50 iterations on 3,000 of the
points. Fits and reference alternate, and the minimum of the repeats counts. Without `letter` in the
folder BOOSTMETRIC_DATA, random data of the same shape are used.
"""

from __future__ import annotations

import os
import time
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import report
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from boostmetric import LOSSES, BoostMetric, Comparisons, boost

N_TRAIN, N_NCA, REPEATS = 10_500, 3_000, 3


def load() -> tuple[str, NDArray, NDArray]:
    """Name, training points and labels."""
    folder = os.environ.get("BOOSTMETRIC_DATA")
    if folder:
        with np.load(Path(folder) / "letter.npz", allow_pickle=False) as file:
            rows = np.random.default_rng(0).permutation(len(file["X"]))[:N_TRAIN]
            return "letter", file["X"][rows].astype(float), file["y"][rows]
    X, y = make_classification(
        N_TRAIN, 16, n_informative=12, n_classes=26, n_clusters_per_class=2, random_state=0
    )
    return "random data", X, y


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def reference(X: NDArray, y: NDArray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = NeighborhoodComponentsAnalysis(max_iter=50, random_state=0)
        learner.fit(X[:N_NCA], y[:N_NCA])


def five_hundred_iterations(X: NDArray, y: NDArray, loss: str) -> None:
    """Neighbor search and 500 stage-wise iterations; a fit that ends earlier is repeated."""
    comparisons = Comparisons.from_labels(X, y)
    left = 500
    while left > 0:
        left -= len(
            boost(X, comparisons, LOSSES[loss], max_iter=left, directions_per_step=1).history
        )


def peak_memory(n_features: int) -> tuple[float, float]:
    """Peak memory of a fit and size of the points, in MB."""
    y = np.arange(N_TRAIN) % 26
    X = np.random.default_rng(0).normal(size=(N_TRAIN, n_features))
    X[:, 0] += y
    tracemalloc.start()
    BoostMetric(max_iter=20).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6, X.nbytes / 1e6


def table() -> str:
    """All measurements, as Markdown."""
    name, X, y = load()
    contenders: dict[str, Callable[[], object]] = {}
    for loss in (name for name in LOSSES if "stagewise" in LOSSES[name].solvers):
        contenders[f"`fit` with defaults, {loss}"] = partial(BoostMetric(loss=loss).fit, X, y)
        contenders[f"neighbor search and 500 iterations, {loss}"] = partial(
            five_hundred_iterations, X, y, loss
        )
    times: dict[str, list[float]] = {key: [] for key in ["reference", *contenders]}
    for _ in range(REPEATS):
        times["reference"].append(seconds(lambda: reference(X, y)))
        for key, action in contenders.items():
            times[key].append(seconds(action))
    base = min(times["reference"])
    lines = [
        f"Points: {name}, {N_TRAIN} × 16, {9 * N_TRAIN} comparisons. Reference: NCA, 50 iterations "
        f"on {N_NCA} of them, {base:.2f} s. Minimum of {REPEATS} alternating runs.",
        "",
        "| | seconds | share of the reference | target |",
        "|---|---|---|---|",
    ]
    for key in contenders:
        best = min(times[key])
        target = "≤ 0.20" if "500" in key else ""
        lines.append(f"| {key} | {best:.2f} | {best / base:.3f} | {target} |")
    lines += [
        "",
        "| features | peak memory of a fit, MB | points, MB |",
        "|---|---|---|",
    ]
    for n_features in (16, 64, 256):
        peak, points = peak_memory(n_features)
        lines.append(f"| {n_features} | {peak:.0f} | {points:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    report.main("Time and memory at the size of `letter`", "letter.py", table)
