"""Time and certified gap of every loss, regularizer and solver on three datasets; a plot.

    python benchmarks/combinations.py [--write]

`--write` also replaces the table in docs/solvers.md and the plot docs/gap.png.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import report
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from boostmetric import LOSSES, REGULARIZERS, Boosting, Comparisons, Status, boost
from boostmetric.solvers import DEFAULT_ALPHA, SOLVERS, SolverSettings

TITLE = "Losses, regularizers and solvers"

DOCS = Path(__file__).parents[1] / "docs"

LOADERS = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer}

ALPHA = 1e-3
"""Relative, for both regularizers."""

COLORS = {"stagewise": "#0072B2", "totally_corrective": "#E69F00"}


def data_of(name: str) -> tuple[NDArray, Comparisons]:
    X, y = LOADERS[name](return_X_y=True)
    X = StandardScaler().fit_transform(X)
    return X, Comparisons.from_labels(X, y)


def cell(name: str, loss: str, regularizer: str, solver: str) -> str:
    """Seconds of a fit and its relative gap."""
    X, comparisons = data_of(name)
    alpha = DEFAULT_ALPHA if loss == "hinge" else ALPHA
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        fit = boost(X, comparisons, loss, solver=solver, regularizer=regularizer, alpha=alpha)
        seconds.append(time.perf_counter() - began)
    ended = " †" if fit.status is Status.UNBOUNDED else ""
    gap = fit.duality_gap() / fit.gap_scale
    return f"{min(seconds):.2f} s, {f'{gap:.0e}' if np.isfinite(gap) else 'none'}{ended}"


def measure() -> str:
    """The table, as Markdown."""
    lines = [
        f"Standardized features, 3 targets and 3 impostors, relative alpha {ALPHA:g}; seconds of "
        "`boost` at its default tolerance, and the certified gap as a share of the objective (of "
        "alpha_max for the hinge). “none”: no finite bound; †: unbounded below.",
        "",
        f"| loss | regularizer | solver | {' | '.join(LOADERS)} |",
        "|---|---|---|" + "---|" * len(LOADERS),
    ]
    for loss in LOSSES:
        for regularizer in REGULARIZERS:
            for solver in SOLVERS:
                try:
                    SolverSettings.of(loss, solver, regularizer)
                    cells = [cell(name, loss, regularizer, solver) for name in LOADERS]
                except ValueError:
                    cells = ["not supported"] * len(LOADERS)
                lines.append(f"| {loss} | {regularizer} | {solver} | {' | '.join(cells)} |")
    return "\n".join(lines)


def true_gaps(fit: Boosting, optimum: float) -> tuple[list[float], list[float]]:
    """Seconds and relative distances from the optimum, after each step."""
    above = [(step.objective - optimum) / abs(optimum) for step in fit.history]
    return [step.seconds for step in fit.history], [max(gap, 1e-12) for gap in above]


def draw(path: Path) -> None:
    """Distance from the optimum against seconds, for both solvers."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
    for axis, name in zip(axes, LOADERS, strict=True):
        X, comparisons = data_of(name)
        fits = {
            solver: boost(X, comparisons, "logistic", solver=solver, alpha=ALPHA, tol=0.0)
            for solver in SOLVERS
        }
        optimum = fits["totally_corrective"].objective()
        for solver, fit in fits.items():
            axis.loglog(
                *true_gaps(fit, optimum), "o-", color=COLORS[solver], markersize=4, linewidth=1.5
            )
            end = true_gaps(fit, optimum)
            axis.annotate(
                solver.replace("_", " "),
                (end[0][-1], end[1][-1]),
                xytext=(-10, 12) if solver == "stagewise" else (-24, -4),
                textcoords="offset points",
                ha="left" if solver == "stagewise" else "right",
                color=COLORS[solver],
            )
        axis.set_title(name)
        axis.set_xlabel("seconds")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("distance from the optimum / optimum")
    figure.savefig(path, dpi=110)


def write_docs(table: str) -> None:
    """Replace the table in docs/solvers.md, and the plot."""
    report.replace_block(DOCS / "solvers.md", "table", f"\n{table}\n")
    draw(DOCS / "gap.png")


if __name__ == "__main__":
    measured = measure()
    if "--write" in sys.argv:
        write_docs(measured)
    report.main(TITLE, "combinations.py", lambda: measured)
