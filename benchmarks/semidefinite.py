"""The totally corrective solver compared with a general semidefinite solver, SCS by cvxpy.

    python benchmarks/semidefinite.py [--write]

SCS may take two minutes. Its time is that of the solver without the modeling by cvxpy; ours is that
of the whole call. Both objectives are evaluated at the learned matrix, projected to the positive
semidefinite ones.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray
from sklearn.datasets import make_classification

from boostmetric import LOSSES, Boosting, Comparisons, boost

TITLE = "Comparison with a general semidefinite solver"

D, ALPHA, LIMIT = 16, 1e-3, 120.0
SIZES = (2_000, 8_000, 32_000)


def made_data(m: int) -> tuple[NDArray, Comparisons]:
    """Random points in overlapping classes, and m comparisons."""
    X, y = make_classification(
        max(200, m // 9), D, n_informative=8, n_classes=4, class_sep=0.7, random_state=0
    )
    comparisons = Comparisons.from_labels(X, y)
    return X, comparisons[np.random.default_rng(0).permutation(len(comparisons))[:m]]


def by_scs(X: NDArray, c: Comparisons, alpha: float) -> tuple[NDArray | None, float]:
    """The matrix, None if the time limit was reached, and seconds."""
    cvxpy: Any = import_module("cvxpy")
    near, far = (X[c.pairs[side, 0]] - X[c.pairs[side, 1]] for side in (c.near, c.far))
    A = np.einsum("ri,rj->rij", far, far) - np.einsum("ri,rj->rij", near, near)
    M = cvxpy.Variable((D, D), PSD=True)
    margins = A.reshape(len(c), -1) @ cvxpy.vec(M, order="C")
    objective = cvxpy.sum(cvxpy.logistic(-margins)) + alpha * cvxpy.trace(M)
    problem = cvxpy.Problem(cvxpy.Minimize(objective))
    options: dict[str, Any] = {"time_limit_secs": LIMIT, "max_iters": 10**9}
    problem.solve(solver="SCS", **options)
    return M.value if problem.status == "optimal" else None, problem.solver_stats.solve_time


def objective_of(fit: Boosting, matrix: NDArray) -> float:
    """The objective of a fit at another matrix."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    positive = (vectors * np.maximum(values, 0)) @ vectors.T
    return fit.problem.evaluate_at(positive * fit.problem.unit, with_scatter=False).value


def measure() -> str:
    """The table, as Markdown."""
    lines = [
        f"Logistic loss, trace, D = {D}, relative alpha {ALPHA:g}. The target is 50 at the largest "
        f"size that SCS finishes in {LIMIT:.0f} s.",
        "",
        "| comparisons | SCS, seconds | its objective | ours, seconds | objective | certified gap "
        "| times faster |",
        "|---|---|---|---|---|---|---|",
    ]
    for m in SIZES:
        X, comparisons = made_data(m)
        loss = LOSSES["logistic"]
        seconds = []
        for _ in range(3):
            began = time.perf_counter()
            fit = boost(X, comparisons, loss, solver="totally_corrective", alpha=ALPHA, tol=1e-6)
            seconds.append(time.perf_counter() - began)
        matrix, theirs = by_scs(X, comparisons, fit.alpha)
        ours = min(seconds)
        gap = fit.duality_gap() / fit.objective()
        found = "not done" if matrix is None else f"{objective_of(fit, matrix):.6f}"
        lines.append(
            f"| {m} | {theirs:.1f} | {found} | {ours:.2f} | {fit.objective():.6f} | {gap:.0e} | "
            f"{theirs / ours:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    report.main(TITLE, "semidefinite.py", measure)
