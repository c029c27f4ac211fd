"""BoostMetric and other packages on `letter` and `usps`: seconds, memory, and 3-NN test error.

    make peers
    BOOSTMETRIC_DATA=folder python benchmarks/peers.py [--write]

Each fit is a process with one thread, ten minutes and 16 GB (`boostmetric_paper.peers`). The
measurements are in peers.jsonl, one line per dataset and method, so an interrupted run is resumed.
`--race` runs SCML and BoostMetric alternately on `letter`. Requires Linux; run it in the root of
the repository.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray

from boostmetric import knn_error
from boostmetric_paper.datasets import load
from boostmetric_paper.experiments.cells import machine
from boostmetric_paper.peers import (
    MEMORY_GB,
    PEERS,
    PeerError,
    fit_in_subprocess,
    peers_python,
)

TITLE = "Comparison with other packages"

MEASURED = Path(__file__).with_name("peers.jsonl")

DATASETS = ("letter", "usps")

METHODS = [*PEERS, "euclidean"]

OURS, RIVAL = "boostmetric", "scml"
"""The methods of `--race`."""

REPEATS, SHORT = 3, 60.0
"""A fit that takes less than `SHORT` seconds is repeated, and the minimum counts."""

Record = dict[str, Any]


@cache
def data_of(dataset: str) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Training and test points of the first split, after PCA; labels 0, 1, ..."""
    data = load(dataset)
    train, _, test = data.reduced(data.split(seed=0))
    classes, y = np.unique(train.y, return_inverse=True)
    return train.X, y, test.X, np.searchsorted(classes, test.y)


def error_of(dataset: str, L: NDArray) -> float:
    A, a, B, b = data_of(dataset)
    return knn_error(A @ L.T, a, B @ L.T, b)


def euclidean(L: NDArray) -> bool:
    """Whether LᵀL is a multiple of the identity: nothing was learned."""
    M = L.T @ L
    return bool(np.allclose(M, M[0, 0] * np.eye(len(M)), rtol=0, atol=1e-4 * abs(M[0, 0])))


def run(dataset: str, method: str, limit: float) -> Record:
    """One fit: its measurements, or why it failed."""
    if PEERS[method].is_external and not peers_python().exists():
        sys.exit(f"{PEERS[method].package} has its own environment: run `make peers` first")
    A, a, _, _ = data_of(dataset)
    try:
        learned = fit_in_subprocess(method, A, a, timeout=limit)
    except PeerError as error:
        is_late = str(error).startswith("not finished")
        return {"failure": str(error), **({"limit": limit} if is_late else {})}
    L, measures = learned.L, learned.measures
    assert L is not None
    return {
        "seconds": measures["fit_seconds"],
        "processor": measures["processor_seconds"],
        "memory": measures["memory"],
        "shape": L.shape,
        "euclidean": euclidean(L),
        "error": error_of(dataset, L),
        "versions": measures["versions"],
    }


def record(dataset: str, method: str, runs: list[Record]) -> Record:
    """Store the runs as one line: smallest time, largest memory, all times."""
    kept: Record = {"dataset": dataset, "method": method}
    finished = [each for each in runs if "failure" not in each]
    if len(finished) < len(runs):
        kept |= next(each for each in runs if "failure" in each)
    elif finished:
        kept |= min(finished, key=lambda each: each["seconds"])
        kept["memory"] = max(each["memory"] for each in finished)
        kept["all"] = [round(each["seconds"], 4) for each in finished]
    else:
        kept["error"] = error_of(dataset, np.eye(data_of(dataset)[0].shape[1]))
    kept |= {"date": str(datetime.date.today()), "machine": machine()}
    line = json.dumps(kept) + "\n"
    handle = os.open(MEASURED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())  # a single write is atomic
    finally:
        os.close(handle)
    print(line, end="", file=sys.stderr, flush=True)
    return kept


def measure(dataset: str, method: str, limit: float) -> Record:
    """Measure a method, and store it."""
    runs: list[Record] = []
    while method in PEERS and len(runs) < REPEATS:
        runs.append(run(dataset, method, limit))
        if runs[-1].get("seconds", np.inf) >= SHORT:
            break
    return record(dataset, method, runs)


def race(limit: float) -> str:
    """SCML and BoostMetric alternately on `letter`; both are stored."""
    runs: dict[str, list[Record]] = {RIVAL: [], OURS: []}
    for _ in range(REPEATS):
        for method, done in runs.items():
            done.append(run("letter", method, limit))
    rival, ours = (record("letter", method, done) for method, done in runs.items())
    for each in (rival, ours):
        if "failure" in each:
            return f"{PEERS[each['method']].title}: {each['failure']}"
    ratios = [
        theirs["seconds"] / mine["seconds"]
        for theirs, mine in zip(runs[RIVAL], runs[OURS], strict=True)
    ]
    return (
        f"{PEERS[RIVAL].title} {rival['seconds']:.2f} s, {PEERS[OURS].title} "
        f"{ours['seconds']:.2f} s: {rival['seconds'] / ours['seconds']:.1f} times faster (pair by "
        f"pair {', '.join(f'{ratio:.1f}' for ratio in ratios)}; target: ≥ 10).\n"
        f"Error {100 * rival['error']:.2f} % and {100 * ours['error']:.2f} %: "
        f"{ours['error'] / rival['error']:.2f} of it (target: ≤ 0.65)."
    )


def measured() -> dict[tuple[str, str], Record]:
    """The newest line of each dataset and method."""
    lines = MEASURED.read_text().splitlines() if MEASURED.exists() else []
    return {(each["dataset"], each["method"]): each for each in map(json.loads, lines)}


def outdated(kept: Record | None, limit: float) -> bool:
    """Whether there is no line yet, or one that failed with a smaller limit."""
    return kept is None or kept.get("limit", limit) < limit


def title_of(method: str) -> str:
    if method not in PEERS:
        return "Euclidean distance"
    peer = PEERS[method]
    if peer.package == "boostmetric":
        return peer.title
    return f"{peer.title.removesuffix(' of mlpack')} of {peer.package}"


def row(kept: Record, ours: Record) -> str:
    """A line of the table; the ratios are to BoostMetric with its defaults."""
    name = title_of(kept["method"]) + (" †" if kept.get("euclidean") else "")
    cells = dict.fromkeys(("seconds", "slower", "memory", "error", "worse"), "")
    if "failure" in kept:
        cells["seconds"] = kept["failure"]
        if "limit" in kept:
            cells["slower"] = f"> {ratio(kept['limit'], ours['seconds'])}"
    else:
        cells["error"] = f"{100 * kept['error']:.2f}"
        cells["worse"] = f"{kept['error'] / ours['error']:.2f}"
        if "seconds" in kept:
            cells["seconds"] = f"{kept['seconds']:.2f}"
            cells["slower"] = ratio(kept["seconds"], ours["seconds"])
            cells["memory"] = f"{kept['memory']:.0f}"
    return f"| {kept['dataset']} | {name} | {' | '.join(cells.values())} |"


def ratio(theirs: float, ours: float) -> str:
    return f"{theirs / ours:.1f}" if theirs >= ours else f"{theirs / ours:.2g}"


def packages(records: Iterable[Record]) -> str:
    """The versions of each method's package and of its scikit-learn."""
    found = set()
    for each in records:
        if "versions" in each:
            package = PEERS[each["method"]].package
            version = f"{package} {each['versions'][package]}"
            sklearn = f" (scikit-learn {each['versions']['scikit-learn']})"
            found.add(version + sklearn * (package != "scikit-learn"))
    return ", ".join(sorted(found))


def table(datasets: Iterable[str], methods: Iterable[str]) -> str:
    """The measurements as Markdown, sorted by error."""
    cells = measured()
    methods = list(methods)
    chosen = [
        cells[dataset, method]
        for dataset in datasets
        if "seconds" in cells.get((dataset, OURS), {})
        for method in methods
        if (dataset, method) in cells
    ]
    chosen.sort(key=lambda each: each.get("error", np.inf))
    chosen.sort(key=lambda each: DATASETS.index(each["dataset"]))
    days = sorted(each["date"] for each in chosen)
    dates = dict.fromkeys([*days[:1], *days[-1:]])
    lines = [
        "Each package with its defaults, one thread and one process per fit, on the first split of "
        f"the experiments. Seconds are those of the fit; below {SHORT:g} they are the minimum of "
        f"{REPEATS}. Memory is the peak of the process beyond that before the fit; the limit is "
        f"{MEMORY_GB} GB. The error is that of 3-NN on features that are not scaled. "
        "†: the fit did not move from the Euclidean distance.",
        "",
        f"{packages(chosen)}; measured {' to '.join(dates)}.",
        "",
        "| dataset | method | seconds | times slower than BoostMetric | MB | error, % "
        "| times the error of BoostMetric |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join(lines + [row(each, cells[each["dataset"], OURS]) for each in chosen])


def main() -> None:
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--write", action="store_true", help="store the table in RESULTS.md")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="in this order")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--again", nargs="+", choices=METHODS, default=[], help="measure again")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one fit")
    parser.add_argument("--race", action="store_true", help="SCML against BoostMetric on letter")
    given = parser.parse_args()
    if given.race:
        print(race(given.limit))
        return
    for method in given.methods or given.again or METHODS:
        for dataset in given.datasets:
            again = method in given.again
            if again or outdated(measured().get((dataset, method)), given.limit):
                measure(dataset, method, given.limit)
    whole = table(DATASETS, METHODS)
    print(whole)
    if given.write:
        report.write_section(TITLE, "peers.py", whole)


if __name__ == "__main__":
    main()
