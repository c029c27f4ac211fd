"""The paper's Algorithm 4, literally: test errors of its iterates on usps, letter and mnist.

    BOOSTMETRIC_DATA=folder python benchmarks/algorithm4.py [--datasets usps letter] [--splits 3]
        [--directions 100] [--write]

`BoostMetric(solver="totally_corrective")` also optimizes the directions and reaches the optimum in
a few steps. This program adds one eigenvector per step, optimizes all coefficients with L-BFGS-B,
and has an absolute v of 1e-7, the logistic loss, and 3 targets and 3 impostors. It reports the
iterate with the smallest validation error, as with early stopping, and the last one, next to the
solvers of the library with the same problem. Errors are those of 3-NN in percent, with ties broken
by the nearest neighbor and, in parentheses, as scikit-learn does.

The measurements are in algorithm4.jsonl, one line per dataset and split, so an interrupted run is
resumed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import coo_array
from scipy.sparse.linalg import eigsh
from scipy.special import expit

from boostmetric import BoostMetric, Comparisons
from boostmetric.problem import Trace
from boostmetric_paper.datasets import load
from boostmetric_paper.voting import majority, neighbor_labels

MEASURED = Path(__file__).with_name("algorithm4.jsonl")
V = 1e-7
N_MNIST_SPLITS = 1

Record = dict[str, Any]


def algorithm4(X: NDArray, y: NDArray, n_directions: int) -> Iterator[tuple[NDArray, NDArray]]:
    """Yield the directions, of shape (D, j), and coefficients after each iteration j."""
    compared = Comparisons.from_labels(X, y, 3, 3)
    near, far = compared.pairs[compared.near], compared.pairs[compared.far]
    n, m = len(X), len(compared)
    directions = np.empty((X.shape[1], 0))
    responses, w = np.empty((m, n_directions), dtype=np.float32, order="F"), np.empty(0)
    u = np.full(m, 1 / m)
    for count in range(1, n_directions + 1):
        # 1) the leading eigenvector of Σ u_r·A_r = Xᵀ·(Laplacian of a signed graph)·X
        edges = coo_array((np.r_[u, -u], np.vstack([far, near]).T), (n, n)).tocsr()
        edges = edges + edges.T
        degrees = np.asarray(edges.sum(axis=1)).ravel()
        scatter = X.T @ (degrees[:, None] * X - edges @ X)
        value, vector = eigsh(scatter, 1, which="LA", v0=np.ones(len(scatter)))
        if value[0] < V:
            return
        # 2) all coefficients: minimize Σ log(1 + exp(−ρ_r)) + v·Σ w_j over w ≥ 0
        directions = np.hstack([directions, vector])
        p = X @ vector[:, 0]
        responses[:, count - 1] = np.diff(p[far])[:, 0] ** 2 - np.diff(p[near])[:, 0] ** 2
        H = responses[:, :count]

        def objective(w: NDArray, H: NDArray = H) -> tuple[float, NDArray]:
            margins = H @ w.astype(np.float32)
            loss = np.logaddexp(0, -margins).sum(dtype=np.float64)
            gradient = V - H.T @ expit(-margins)
            return float(loss + V * w.sum()), gradient.astype(np.float64)

        started = np.append(w, 0.0)
        w = minimize(objective, started, jac=True, method="L-BFGS-B", bounds=[(0, None)] * count).x
        # 3) the duals
        u = expit(-(H @ w.astype(np.float32))).astype(np.float64)
        yield directions, w


def measure(dataset: str, split: int, n_directions: int) -> Record:
    """Errors of every fifth iterate, and of the library."""
    whole = load(dataset)
    train, validation, test = whole.reduced(whole.split(split))
    # Coefficients of about 1 suit L-BFGS-B; v is so small that the scale does not matter.
    scale = float(train.X.std())
    X, A, B = (each.X / scale for each in (train, validation, test))

    def error(L: NDArray, queries: NDArray, truth: NDArray, ties: str) -> float:
        predicted = majority(neighbor_labels(X @ L.T, train.y, queries @ L.T), ties)
        return 100 * float(np.mean(predicted != truth))

    began, path = time.process_time(), []
    for directions, w in algorithm4(X, train.y, n_directions):
        count = len(w)
        if count % 5 == 0:
            L = (directions * np.sqrt(w)).T
            errors = [error(L, B, test.y, ties) for ties in ("nearest", "first")]
            path.append([count, error(L, A, validation.y, "nearest"), *errors])
            print(dataset, split, np.round(path[-1], 2), flush=True)
    found: Record = {"path": path, "seconds": time.process_time() - began}
    common: dict[str, Any] = {"n_neighbors": 3, "n_passes": 1, "init": None, "verify": False}
    for solver in ("totally_corrective", "stagewise"):
        learner = BoostMetric(solver=solver, regularizer=Trace(V), **common)
        L = learner.fit(X, train.y).components_
        found[solver] = [error(L, B, test.y, ties) for ties in ("nearest", "first")]
    found["euclidean"] = [
        error(np.eye(X.shape[1]), B, test.y, ties) for ties in ("nearest", "first")
    ]
    return found


def table(records: list[Record]) -> str:
    """Means over the splits of each dataset."""

    def cell(values: list[list[float]]) -> str:
        nearest, first = np.mean(values, axis=0)
        return f"{nearest:.2f} ({first:.2f})"

    rows = [
        "| | splits | Euclidean | smallest validation error | directions | last iterate "
        "| directions | lowest test error of all | totally corrective | stage-wise |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for dataset in dict.fromkeys(each["dataset"] for each in records):
        of_dataset = [each for each in records if each["dataset"] == dataset]
        paths = [np.array(each["path"]) for each in of_dataset]
        best = [path[np.argmin(path[:, 1])] for path in paths]
        cells = [
            dataset,
            str(len(paths)),
            cell([each["euclidean"] for each in of_dataset]),
            cell([list(each[2:]) for each in best]),
            ", ".join(f"{each[0]:.0f}" for each in best),
            cell([list(path[-1, 2:]) for path in paths]),
            ", ".join(f"{path[-1, 0]:.0f}" for path in paths),
            cell([list(path[:, 2:].min(axis=0)) for path in paths]),
            *(cell([each[s] for each in of_dataset]) for s in ("totally_corrective", "stagewise")),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Algorithm 4")
    parser.add_argument("--datasets", nargs="+", default=["usps", "letter", "mnist"])
    parser.add_argument("--splits", type=int, default=3, help=f"mnist: {N_MNIST_SPLITS}")
    parser.add_argument("--directions", type=int, default=100)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    records: list[Record] = []
    if MEASURED.exists():
        records = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    known = {(each["dataset"], each["split"]) for each in records}
    for dataset in options.datasets:
        n_splits = min(options.splits, N_MNIST_SPLITS) if dataset == "mnist" else options.splits
        for split in range(n_splits):
            if (dataset, split) not in known:
                found = measure(dataset, split, options.directions)
                records.append({"dataset": dataset, "split": split, **found})
                with MEASURED.open("a") as file:
                    file.write(json.dumps(records[-1]) + "\n")
    text = table(records)
    print(text)
    if options.write:
        given = [each for each in sys.argv[1:] if each != "--write"]
        report.write_section("Algorithm 4", shlex.join(["algorithm4.py", *given]), text)


if __name__ == "__main__":
    main()
