"""BoostMetric beside its peers on `letter` and `usps`: seconds, memory, and 3-NN test error.

    make peers
    BOOSTMETRIC_DATA=folder python benchmarks/peers.py [--write]

Each fit is a process of its own (`peer.py`), with one thread, ten minutes and 16 GB. What was
measured is in peers.jsonl, one line for each dataset and method, so an interrupted run goes on
where it stopped. `--race` runs SCML and BoostMetric alternately on `letter`. It needs Linux.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray

from boostmetric import knn_error
from boostmetric.cli import peer
from boostmetric.cli.peer import MEMORY, PEERS
from boostmetric_paper.datasets import load
from boostmetric_paper.experiments.cells import machine

TITLE = "Beside other packages"

MEASURED = Path(__file__).with_name("peers.jsonl")

DATASETS = ("letter", "usps")

METHODS = [*PEERS, "euclidean"]

OURS = "boostmetric"

RIVAL = "scml"
"""Whom `--race` is against."""

HERE = ("boostmetric", "scikit-learn")
"""The packages of the interpreter that runs this; the others are in the environment `PYTHON`."""

PYTHON = Path(__file__).parents[1] / ".venv-peers" / "bin" / "python"

REPEATS, SHORT = 3, 60.0
"""A fit of fewer than so many seconds is repeated, and the minimum counts."""

THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

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
    """Whether LᵀL is a multiple of the identity: the fit ended where it began."""
    M = L.T @ L
    return bool(np.allclose(M, M[0, 0] * np.eye(len(M)), rtol=0, atol=1e-4 * abs(M[0, 0])))


def versions(printed: bytes | None) -> Record:
    """The first line that peer.py printed, if it came so far."""
    lines = (printed or b"").splitlines()
    return {"versions": json.loads(lines[0])} if lines else {}


def run(dataset: str, method: str, limit: float) -> Record:
    """One fit: what peer.py wrote, or why there is nothing."""
    python = Path(sys.executable) if PEERS[method].package in HERE else PYTHON
    if not python.exists():
        sys.exit(f"{PEERS[method].package} has an environment of its own: run `make peers` first")
    A, a, _, _ = data_of(dataset)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(source, X=A, y=a)
        command = [str(python), peer.__file__, method]
        try:
            ended = subprocess.run(
                [*command, str(source), str(target)],
                env={**os.environ, **THREADS},
                timeout=limit,
                capture_output=True,
            )
        except subprocess.TimeoutExpired as late:
            failure = f"not finished in {limit:g} s"
            return {"failure": failure, "limit": limit, **versions(late.stdout)}
        made = versions(ended.stdout)
        if ended.returncode:
            said = ended.stderr.decode(errors="replace").strip().splitlines()
            last = said[-1] if said else f"ended with {ended.returncode}"
            if "MemoryError" in last or "bad_alloc" in last:
                last = f"needs more than {MEMORY} GB"
            return {"failure": last[:200], **made}
        with np.load(target, allow_pickle=False) as file:
            L = file["L"]
            measured = {key: float(file[key]) for key in ("seconds", "processor", "memory")}
    if not np.isfinite(L).all():
        return {"failure": "the learned map is not finite", **made}
    learned = {"shape": L.shape, "euclidean": euclidean(L), "error": error_of(dataset, L)}
    return {**measured, **learned, **made}


def record(dataset: str, method: str, runs: list[Record]) -> Record:
    """The runs as one line of the file: least seconds, most memory, all times."""
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
        os.write(handle, line.encode())  # one write: the line is there or it is not
    finally:
        os.close(handle)
    print(line, end="", file=sys.stderr, flush=True)
    return kept


def measure(dataset: str, method: str, limit: float) -> Record:
    """A new line of the file."""
    runs: list[Record] = []
    while method in PEERS and len(runs) < REPEATS:
        runs.append(run(dataset, method, limit))
        if runs[-1].get("seconds", np.inf) >= SHORT:
            break
    return record(dataset, method, runs)


def race(limit: float) -> str:
    """SCML and BoostMetric alternately on `letter`; both become lines of the file."""
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
    """Whether there is no line yet, or one that ran out of less time than there is now."""
    return kept is None or kept.get("limit", limit) < limit


def title_of(method: str) -> str:
    if method not in PEERS:
        return "Euclidean distance"
    peer = PEERS[method]
    return peer.title if peer.package == "boostmetric" else f"{peer.package}'s {peer.title}"


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
    """The versions of each method's package and of scikit-learn beside it, in words."""
    found = set()
    for each in records:
        if "versions" in each:
            package, beside = PEERS[each["method"]].package, each["versions"]["scikit-learn"]
            version = f"{package} {each['versions'][package]}"
            found.add(
                version if package == "scikit-learn" else f"{version} (scikit-learn {beside})"
            )
    return ", ".join(sorted(found))


def table(datasets: Iterable[str], methods: Iterable[str]) -> str:
    """What was measured, as Markdown; the best error first."""
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
        "Each package with its defaults, one thread, a process of its own for each fit; the first "
        "split of the experiments. Seconds are of the fit alone; those under "
        f"{SHORT:g} are the least of {REPEATS}. Memory is the peak of the process less what it had "
        f"before the fit; the limit is {MEMORY} GB. The error is that of the same 3-NN classifier "
        "for all, on features that are not scaled. †: the fit ended where it began, at the "
        "Euclidean distance.",
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
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="in this order")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--again", nargs="+", choices=METHODS, default=[], help="measure anew")
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
