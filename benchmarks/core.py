"""A default fit on real data, now and in another checkout, with one thread and with two.

    BOOSTMETRIC_DATA=folder python benchmarks/core.py [--before FOLDER] [--write]

Each measurement is a process of its own that fits several times; the least time counts, of the
processor for one thread and of the clock for two. Checkouts and numbers of threads alternate.
"Search" is the search for neighbors, and "the rest" what remains of a fit when the comparisons are
given. The reference is one product of matrices, XᵀX, timed in the same process. The totally
corrective solver is timed on letter, on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import report

TITLE = "The core, before and after"

DATASETS = {"letter": (None, 3), "usps": (None, 3), "mnist": (164, 3)}
"""For each dataset the number of principal components, or None for all features, and of repeats."""

RESULT = "result: "


SMOOTH = ("exponential", "logistic", "squared_hinge", "smoothed_hinge")


def prepare(name: str, folder: Path) -> Path:
    """A file of training points in float32 and labels, the same for all measurements."""
    from sklearn.decomposition import PCA

    with np.load(Path(os.environ["BOOSTMETRIC_DATA"], f"{name}.npz"), allow_pickle=False) as data:
        X, y = data["X"].astype(np.float32), data["y"]
    n_components = DATASETS[name][0]
    if n_components is not None:  # of MNIST, 50,000 points
        rows = np.random.default_rng(0).permutation(len(X))[:50_000]
        X, y = PCA(n_components, random_state=0).fit_transform(X[rows]).astype(np.float32), y[rows]
    path = folder / f"{name}.npz"
    np.savez(path, X=X, y=y)
    return path


def measure_here(path: Path, n_threads: int) -> dict[str, Any]:
    """Seconds in this process, with the version of the package that it imports."""
    from boostmetric import BoostMetric, Comparisons, boost

    name = path.stem
    with np.load(path) as data:
        X, y = data["X"], data["y"]
    clock = time.process_time if n_threads == 1 else time.perf_counter

    def least(action: Callable[[], object]) -> float:
        seconds = []
        for _ in range(DATASETS[name][1]):
            began = clock()
            action()
            seconds.append(clock() - began)
        return min(seconds)

    comparisons = Comparisons.from_labels(X, y)
    fit = boost(X, comparisons, "logistic")  # loads compiled loops
    result: dict[str, Any] = {
        "fit": least(lambda: BoostMetric().fit(X, y)),
        "search": least(lambda: Comparisons.from_labels(X, y)),
        "rest": least(lambda: boost(X, comparisons, "logistic")),
        "product": least(lambda: X.T @ X),
        "objective": fit.objective(),
        "status": fit.status.name,
        "directions": fit.n_tried,
    }
    if name == "letter" and n_threads == 1:
        points = X.astype(np.float64)
        for loss in SMOOTH:
            learn = partial(boost, points, comparisons, loss, solver="totally_corrective")
            result[loss] = [least(learn), learn().objective()]
    if name == "usps" and n_threads == 1:
        # The same problem with its features in other orders, in which sums round differently.
        orders = [np.random.default_rng(k).permutation(X.shape[1]) for k in range(4)]
        for dtype in (np.float32, np.float64):
            points = [np.ascontiguousarray(X[:, order], dtype=dtype) for order in orders]
            fits = [boost(each, Comparisons.from_labels(each, y), "logistic") for each in points]
            result[dtype.__name__] = [fit.objective() for fit in fits]
    return result


def measure_in(folder: Path, path: Path, n_threads: int) -> dict[str, Any]:
    """The same in a process with the package of a checkout."""
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    environment |= dict.fromkeys(variables, str(n_threads))
    done = subprocess.run(
        [sys.executable, __file__, "--here", str(path), "--threads", str(n_threads)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith(RESULT))
    result: dict[str, Any] = json.loads(line.removeprefix(RESULT))
    return result


def measure(before: Path | None) -> str:
    """The table, as Markdown."""
    folders = {"after": Path(__file__).parents[1]}
    if before is not None:
        folders = {"before": before, **folders}
    lines = [
        "Logistic loss, default settings, float32; seconds of the processor for one thread, of the "
        "clock for two. Cells: one thread, two threads, and their ratio.",
        "",
        "| data, checkout | fit | search | the rest | XᵀX, one thread | objective, directions, "
        "status |",
        "|---|---|---|---|---|---|",
    ]
    corrective: dict[str, list[str]] = {loss: [] for loss in SMOOTH}
    spread = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in DATASETS:
            path = prepare(name, Path(temporary))
            for label, folder in folders.items():
                one, two = (measure_in(folder, path, n_threads) for n_threads in (1, 2))
                cells = (
                    f"{one[part]:.2f}, {two[part]:.2f}, {one[part] / two[part]:.2f}"
                    for part in ("fit", "search", "rest")
                )
                lines.append(
                    f"| {name}, {label} | {' | '.join(cells)} | {one['product']:.3f} | "
                    f"{one['objective']:.6g}, {one['directions']}, {one['status']} |"
                )
                print(lines[-1], file=sys.stderr, flush=True)
                for loss in SMOOTH if name == "letter" else ():
                    seconds, objective = one[loss]
                    corrective[loss].append(f"{seconds:.2f}, to {objective:.6g}")
                if name == "usps":
                    ranges = (
                        f"{min(one[dtype]):.2f} to {max(one[dtype]):.2f} in {dtype}"
                        for dtype in ("float32", "float64")
                    )
                    spread.append(f"{label} {', '.join(ranges)}")
    lines += [
        "",
        "Objectives on usps with the features in four orders, which round differently: "
        f"{'; '.join(spread)}.",
        "",
        "The totally corrective solver on letter, one thread: seconds and the objective.",
        "",
        f"| loss | {' | '.join(folders)} |",
        "|---|" + "---|" * len(folders),
        *(f"| {loss} | {' | '.join(cells)} |" for loss, cells in corrective.items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--here", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--before", type=Path)
    known, others = parser.parse_known_args()
    if known.here is not None:
        print(RESULT + json.dumps(measure_here(known.here, known.threads)))
    else:
        sys.argv = [sys.argv[0], *others]
        report.main(TITLE, "core.py", lambda: measure(known.before))
