"""Time and memory of fits, now and at another commit.

    BOOSTMETRIC_DATA=folder python benchmarks/commits.py [--before COMMIT] [--write]

S is one exact self-search of MNIST's 50,000 × 164 training points by scikit-learn
(`NearestNeighbors(n_neighbors=4, algorithm="brute")`), measured in the process of the fit. All fits
have one pass and 3 × 3 neighbors unless stated otherwise, so that results can be compared with
versions that have other defaults. "Plain" processes cannot import numba.
"""

from __future__ import annotations

import argparse
import inspect
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import points
import processes
from numpy.typing import NDArray
from processes import Measurements, Record, least
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split

TITLE = "Time and memory, before and after"

LIMIT = 120.0
"""Seconds of a measurement."""


def learner(**settings: Any) -> Any:
    """A `BoostMetric` with 3 × 3 neighbors and one pass, of this version or of an earlier one."""
    from boostmetric import BoostMetric

    settings = {"n_neighbors": 3, "n_passes": 1, **settings}
    names = inspect.signature(BoostMetric).parameters
    if "index" in settings and "index" not in names:  # earlier development versions
        settings["neighbors"] = "approximate" if settings.pop("index") else "exact"
    if "verify" in names:
        settings = {"verify": False, **settings}
    return BoostMetric(**settings)


def load(dataset: str) -> tuple[NDArray, NDArray]:
    """Training points and labels."""
    name, _, size = dataset.partition(" ")
    if name == "mnist":
        return points.mnist(int(size))
    if name == "clusters":
        return points.clusters(int(size), 32)
    if name == "ionosphere":
        path = Path(os.environ["BOOSTMETRIC_DATA"], "tables", "ionosphere.npz")
        with np.load(path, allow_pickle=False) as data:
            X, y = data["X"], data["y"]
        X, _, y, _ = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
        return X, y
    X, y = {"digits": load_digits, "wine": load_wine}[name](return_X_y=True)
    return X, y


def fit(dataset: str, **settings: Any) -> Record:
    """Seconds of a fit, the least of up to five; the first one also loads compiled loops."""
    X, y = load(dataset)
    learned = learner(**settings)
    # Two fits at least, because the first one loads compiled loops.
    seconds = least(partial(learned.fit, X, y), repeats=2 if len(X) > 5_000 else 5, enough=1e3)
    return {**seconds, "status": learned.status_.name, "n_iter": int(learned.n_iter_)}


def fit_once(dataset: str, **settings: Any) -> Record:
    """Seconds of one fit, for those that take longer than compiled loops need to be loaded."""
    X, y = load(dataset)
    learned = learner(**settings)
    seconds = least(partial(learned.fit, X, y), repeats=1)
    return {**seconds, "status": learned.status_.name, "n_iter": int(learned.n_iter_)}


def fit_and_search(dataset: str) -> Record:
    """Seconds of a fit and of S."""
    from sklearn.neighbors import NearestNeighbors

    X, y = load(dataset)
    search = NearestNeighbors(n_neighbors=4, algorithm="brute")
    first = least(partial(learner().fit, X, y), repeats=1)
    S = least(lambda: search.fit(X).kneighbors(X), repeats=1)
    second = least(partial(learner().fit, X, y), repeats=1)
    return {"S": S["wall"], "wall": min(first["wall"], second["wall"])}


def memory(dataset: str) -> Record:
    """Peak memory of a fit beyond X, in MB."""
    X, y = load(dataset)
    learned = learner()
    before = processes.reset_peak_memory()
    learned.fit(X, y)
    return {"MB": processes.peak_memory() - before}


def memory_of_triplets(n: int, m: int) -> Record:
    """Peak memory of a fit beyond X and an array of triplets, in MB."""
    from boostmetric import BoostMetric, Comparisons

    X, y = points.clusters(n, 32)
    rows = points.triplets(y, m)
    del y
    before = processes.reset_peak_memory()
    BoostMetric().fit(X, comparisons=Comparisons.from_triplets(rows))
    return {"MB": processes.peak_memory() - before}


def startup(code: str) -> Record:
    """CPU seconds that a new interpreter prints or takes for `code`, the least of five."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        last = done.stdout.strip().rpartition("\n")[2]
        seconds.append(float(last) if last.startswith("0.") else took)
    return {"cpu": min(seconds)}


HELP = (
    "import runpy, sys; sys.argv[1:] = ['--help']; "
    "runpy.run_module('boostmetric', run_name='__main__')"
)
IMPORT = (
    "import sklearn.neighbors, time; t = time.process_time(); from boostmetric import BoostMetric; "
    "print(f'{time.process_time() - t:.4f}')"
)
FIRST_FIT = (
    "import time; from sklearn.datasets import load_iris; from boostmetric import BoostMetric; "
    "X, y = load_iris(return_X_y=True); t = time.process_time(); "
    "BoostMetric(n_neighbors=3, n_passes=1).fit(X, y); print(f'{time.process_time() - t:.4f}')"
)

FUNCTIONS: dict[str, Callable[..., Record]] = {
    each.__name__: each
    for each in (fit, fit_once, fit_and_search, memory, memory_of_triplets, startup)
}

Cell = Callable[..., str]


def value(function: Callable[..., Record], key: str, digits: int, **arguments: Any) -> Cell:
    """A cell with one number of a measurement."""

    def cell(measurements: Measurements, **where: Any) -> str:
        record = measurements.get(function, **arguments, **where)
        return record.get("failure") or f"{record[key]:.{digits}f}"

    return cell


def share(of: str, **arguments: Any) -> Cell:
    """A cell with the seconds of a fit divided by S, or with one of the two."""

    def cell(measurements: Measurements, **where: Any) -> str:
        record = measurements.get(fit_and_search, **arguments, **where)
        if "failure" in record:
            return str(record["failure"])
        if of == "speed-up":
            one = measurements.get(fit_and_search, **arguments, **{**where, "threads": 1})
            return f"{one['wall'] / record['wall']:.2f}"
        return f"{record['wall'] / record['S']:.2f} ({record['wall']:.1f} s)"

    return cell


def corrective(dataset: str) -> Cell:
    """A cell with the seconds of both solvers and their ratio."""

    def cell(measurements: Measurements, **where: Any) -> str:
        stagewise, whole = (
            measurements.get(function, dataset=dataset, solver=solver, **where)
            for function, solver in ((fit, "stagewise"), (fit_once, "totally_corrective"))
        )
        if "failure" in stagewise:
            return str(stagewise["failure"])
        seconds = whole.get("failure") or f"{whole['wall']:.2f} s"
        limit = whole["limit"] if "limit" in whole else whole.get("wall", np.nan)
        sign = "> " if "limit" in whole else ""
        ratio = f"{sign}{limit / stagewise['wall']:.1f}"
        return f"{ratio} ({seconds} / {stagewise['wall']:.2f} s)"

    return cell


def rows(n: int) -> Iterator[tuple[str, str, Cell, dict[str, Any]]]:
    """Label, goal, cell and restrictions of each row; n is the number of points of MNIST."""
    mnist = f"mnist {n}"
    for has_numba, goals in ((False, ("", "≤ 0.45")), (True, ("≤ 0.30", "≤ 0.35"))):
        install = "with numba" if has_numba else "plain"
        only: dict[str, Any] = {"has_numba": has_numba}
        goal = ", ".join(filter(None, goals)) if has_numba else goals[1]
        yield f"MNIST: fit / S, {install}", goal, share("S", dataset=mnist), only
        speed_up = share("speed-up", dataset=mnist)
        yield f"its speed-up, {install}", "≥ 1.5", speed_up, {**only, "threads": (2,)}
    yield "ionosphere, CPU s", "≤ 0.05", value(fit, "cpu", 3, dataset="ionosphere"), {}
    for n_passes, goal in ((1, "≤ 0.1"), (3, "≤ 0.3")):
        given: dict[str, Any] = {"loss": "exponential", "init": None, "n_passes": n_passes}
        label = f"wine, exponential loss, {n_passes} pass{'es' * (n_passes > 1)}, CPU s"
        yield label, goal, value(fit, "cpu", 3, dataset="wine", **given), {}
    two: dict[str, Any] = {"threads": (2,)}
    for dataset in ("digits", f"mnist {n // 5}"):
        yield f"{dataset}: totally corrective / stage-wise", "≤ 5", corrective(dataset), two
    one: dict[str, Any] = {"threads": (1,)}
    for index in (None, "faiss"):
        for size in (2 * n, 4 * n):
            goal = "" if size == 2 * n else "≤ 35" if index is None else "≤ 10"
            cell = value(fit_once, "cpu", 1, dataset=f"clusters {size}", index=index)
            label = f"{size:,} × 32, {'exact' if index is None else 'FAISS'}, CPU s"
            yield label, goal, cell, one
    yield "`boostmetric --help`, CPU s", "≤ 0.3", value(startup, "cpu", 2, code=HELP), one
    label = "import after that of scikit-learn, CPU s"
    yield label, "≤ 0.05", value(startup, "cpu", 3, code=IMPORT), one
    yield "first fit on iris, CPU s", "≤ 0.05", value(startup, "cpu", 3, code=FIRST_FIT), one
    yield "MNIST: MB beyond X", "≤ 300", value(memory, "MB", 0, dataset=mnist), {}
    cell = value(memory_of_triplets, "MB", 0, n=2 * n, m=100 * n)
    yield f"{100 * n:,} triplets, {2 * n:,} × 32: MB beyond them", "≤ 1200", cell, two


def table(measurements: Measurements, given: argparse.Namespace) -> str:
    """The measurements as Markdown."""
    if given.before is not None:
        measurements.extract(given.before)
    versions = [each for each in ("before", "now") if each in measurements.versions]
    columns = [(version, threads) for version in versions for threads in (1, 2)]
    names = [f"{version}, {'one core' if n == 1 else 'two cores'}" for version, n in columns]
    commits = ", ".join(f"{each}: {measurements.versions[each]}" for each in versions)
    lines = [
        f"{commits}. Fits have one pass and 3 × 3 neighbors; other settings are the defaults of "
        "each version. S is one exact self-search of the points by scikit-learn in the same "
        f"process. The limit is {measurements.limit:g} s. Wall-clock seconds if not stated.",
        "",
        f"| | goal | {' | '.join(names)} |",
        "|---|---|" + "---|" * len(names),
    ]
    for label, goal, cell, only in rows(2_000 if measurements.is_small else 50_000):
        cells = [
            cell(
                measurements,
                version=version,
                threads=threads,
                has_numba=only.get("has_numba", True),
            )
            if threads in only.get("threads", (1, 2))
            else ""
            for version, threads in columns
        ]
        lines.append(f"| {label} | {goal} | {' | '.join(cells)} |")
    return "\n".join(lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", metavar="COMMIT", help="also measure the package of a commit")


if __name__ == "__main__":
    processes.main(TITLE, __file__, FUNCTIONS, table, LIMIT, add_options)
