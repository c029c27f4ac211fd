"""How fast both solvers approach the optimum on `letter`.

BOOSTMETRIC_DATA=folder python benchmarks/corrective.py [--write]
"""

from __future__ import annotations

import numpy as np
import report
from errors import splits

from boostmetric import LOSSES, Comparisons, boost

TITLE = "Distance from the optimum on letter"


def measure() -> str:
    """The table, as Markdown."""
    X, y, _, _ = splits("letter", n_splits=1)[0]
    comparisons = Comparisons.from_labels(X, y)
    lines = [
        "Default settings; the relative gap is the certified distance from the optimum, as a share "
        "of the objective. An evaluation is one of all duals; mining is not included.",
        "",
        "| loss | solver | ended | iterations | evaluations | seconds | objective | relative gap |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for loss in LOSSES:
        for solver in ("stagewise", "totally_corrective"):
            fit = boost(X, comparisons, LOSSES[loss], solver=solver)
            evaluations = sum(step.n_evaluations for step in fit.history)
            objective = fit.objective()
            lines.append(
                f"| {loss} | {solver} | {fit.status.name} | {len(fit.history)} | {evaluations} | "
                f"{fit.history[-1].seconds:.2f} | {objective:.6g} | "
                f"{fit.duality_gap() / np.abs(objective):.1e} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    report.main(TITLE, "corrective.py", measure)
