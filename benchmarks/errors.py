"""Test errors on the paper's larger datasets, over random splits of its sizes.

BOOSTMETRIC_DATA=folder python benchmarks/errors.py [--write]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from boostmetric import BoostMetric, knn_error
from boostmetric.datasets import paper_split

TITLE = "Test errors on the paper's larger datasets"

DATASETS: dict[str, dict[str, Any]] = {
    "letter": {"sizes": (10_500, 4_500, 5_000), "pca": None, "splits": 10},
    "usps": {"sizes": (7_700, 1_650, 1_650), "pca": 60, "splits": 5},
}

CORRECTIVE = {"solver": "totally_corrective", "max_iter": 60}

METHODS: dict[str, dict[str, Any] | None] = {
    "Euclidean": None,
    "BoostMetric-E": {"loss": "exponential"},
    "BoostMetric-E, 3 passes": {"loss": "exponential", "n_passes": 3},
    "BoostMetric-E, totally corrective": {"loss": "exponential", **CORRECTIVE},
    "BoostMetric-L": {"loss": "logistic"},
    "BoostMetric-L, 3 passes": {"loss": "logistic", "n_passes": 3},
    "BoostMetric-L, totally corrective": {"loss": "logistic", **CORRECTIVE},
}

PAPER = {
    "Euclidean": ("5.42", "4.78 (0.40), PCA 3.49 (0.62)"),
    "BoostMetric-E": ("3.06", "2.53 (0.47)"),
    "BoostMetric-E, 3 passes": ("2.80", "2.24 (0.40)"),
    "BoostMetric-E, totally corrective": ("2.82", "2.25 (0.51)"),
    "BoostMetric-L": ("2.80", "2.38 (0.31)"),
    "BoostMetric-L, 3 passes": ("2.70", "2.22 (0.31)"),
    "BoostMetric-L, totally corrective": ("2.48", "2.13 (0.41)"),
}
"""Table 1, in per cent; one run of letter, ten of usps."""


def splits(
    name: str, n_splits: int | None = None
) -> list[tuple[NDArray, NDArray, NDArray, NDArray]]:
    """Training points and labels, test points and labels, of each split."""
    folder = os.environ.get("BOOSTMETRIC_DATA")
    if not folder:
        sys.exit("set BOOSTMETRIC_DATA to a folder with letter.npz and usps.npz")
    with np.load(Path(folder) / f"{name}.npz", allow_pickle=False) as file:
        X, y = file["X"].astype(np.float64), file["y"]
    made = []
    for seed in range(n_splits or DATASETS[name]["splits"]):
        train, _, test = paper_split(len(X), DATASETS[name]["sizes"], seed)
        A, B = X[train], X[test]
        if DATASETS[name]["pca"]:
            pca = PCA(DATASETS[name]["pca"], random_state=0).fit(A)
            A, B = pca.transform(A), pca.transform(B)
        made.append((A, y[train], B, y[test]))
    return made


def measure() -> str:
    """The table, as Markdown."""
    lines = [
        "3-NN test error in per cent, mean (standard deviation); seconds are of the fit, mining "
        "included. The paper has one run on letter and ten on usps, of splits that are unknown.",
        "",
        "| dataset | method | error | paper | seconds |",
        "|---|---|---|---|---|",
    ]
    for column, name in enumerate(DATASETS):
        data = splits(name)
        for method, options in METHODS.items():
            errors, seconds = [], 0.0
            for A, a, B, b in data:
                if options is not None:
                    began = time.perf_counter()
                    learner = BoostMetric(**options).fit(A, a)
                    seconds += time.perf_counter() - began
                    A, B = learner.transform(A), learner.transform(B)
                errors.append(100 * knn_error(A, a, B, b))
            lines.append(
                f"| {name}, {len(data)} splits | {method} | {np.mean(errors):.2f} "
                f"({np.std(errors, ddof=1):.2f}) | {PAPER[method][column]} | "
                f"{seconds / len(data):.1f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    report.main(TITLE, "errors.py", measure)
