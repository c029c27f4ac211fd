"""Where the time of a whole fit goes, at the size of MNIST, before and after it was made fast.

    [BOOSTMETRIC_DATA=folder] OPENBLAS_NUM_THREADS=1 python benchmarks/where.py [--write]

The second of two fits, profiled. "Before" is of 2026-11-16 and one thread, on the version that
searched by the products of all pairs and added one direction an iteration: the search, and 500
times one of 30 iterations, divided in the proportions of their profile.
"""

from __future__ import annotations

import cProfile
import pstats

import report
from speed import mnist

from boostmetric import BoostMetric

TITLE = "Where the time of a fit goes"

PARTS = {
    "search for targets and impostors": ("nearest_targets_and_impostors", 23.6),
    "making of comparisons and operator": ("__init__ of the operator, from_triplets", 0.6),
    "scatters": ("scatter", 58.0),
    "eigenvectors": ("leading_eigenpairs", 0.6),
    "measures of directions": ("measures", 3.6),
    "coefficients (line search or correction)": ("_descend", 12.1),
}
"""For each part its function, and the seconds before."""


def measure() -> str:
    """The table, as Markdown."""
    X, y, *_ = mnist()
    BoostMetric().fit(X, y)  # loads the compiled loops
    profile = cProfile.Profile()
    learner = profile.runcall(BoostMetric().fit, X, y)
    stats = pstats.Stats(profile)
    seconds: dict[str, float] = {}
    for (file, _, function), (_, _, _, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
        if "boostmetric" in file:
            name = "operator" if function == "__init__" and "laplacian" in file else function
            seconds[name] = max(seconds.get(name, 0.0), cumulative)
    seconds["__init__ of the operator, from_triplets"] = (
        seconds["operator"] + seconds["from_triplets"]
    )
    whole = seconds["fit"]
    lines = [
        f"{mnist()[4]}, {X.shape[0]:,} × {X.shape[1]}, logistic loss, {learner.n_iter_} iterations "
        f"of {learner.history_['n_tried'][0]} directions now, 500 of one before.",
        "",
        "| part | seconds before | now | share now |",
        "|---|---|---|---|",
    ]
    for part, (function, before) in PARTS.items():
        now = seconds[function]
        lines.append(f"| {part} | {before:.1f} | {now:.1f} | {now / whole:.0%} |")
    lines.append(f"| whole fit | 100 | {whole:.1f} | 100% |")
    return "\n".join(lines)


if __name__ == "__main__":
    report.main(TITLE, "where.py", measure)
