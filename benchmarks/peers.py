"""BoostMetric and other packages: seconds, memory, and 3-NN test error.

    make peers peers-torch
    BOOSTMETRIC_DATA=folder python benchmarks/peers.py [--limit SECONDS] [--write]

Each fit is a process with one thread and 16 GB (`boostmetric_paper.peers`). The measurements are in
peers.jsonl, one line per dataset and method, so an interrupted run is resumed; delete the file to
measure all methods in one run. Requires Linux; run it in the root of the repository.
"""

from __future__ import annotations

import argparse
import datetime
import json
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
from boostmetric_paper.peers import MEMORY_GB, PEERS, PeerError, fit_in_subprocess, peers_python

TITLE = "Comparison with other packages"

MEASURED = Path(__file__).with_name("peers.jsonl")

DATASETS = ("letter", "usps", "mnist")

OURS = "boostmetric"

METHODS = (OURS, "lda", "lfda", "linear-layer", "scml", "nca", "euclidean")

REPEATS, SHORT = 3, 10.0
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


def is_euclidean(L: NDArray) -> bool:
    """Whether LᵀL is a multiple of the identity: nothing was learned."""
    M = L.T @ L
    return bool(np.allclose(M, M[0, 0] * np.eye(len(M)), rtol=0, atol=1e-4 * abs(M[0, 0])))


def measure(dataset: str, method: str, limit: float) -> Record:
    """One to three fits: smallest time, largest memory and the error; or why a fit failed."""
    A, a, _, _ = data_of(dataset)
    if method == "euclidean":
        return {"error": error_of(dataset, np.eye(A.shape[1]))}
    fits: list[Record] = []
    while len(fits) < REPEATS:
        try:
            learned = fit_in_subprocess(method, A, a, cpu_seconds=limit)
        except PeerError as error:
            is_late = str(error).startswith("not finished")
            return {"failure": str(error), **({"limit": limit} if is_late else {})}
        fits.append(learned.measures)
        if fits[-1]["fit_seconds"] >= SHORT:
            break
    L = learned.L
    assert L is not None
    return {
        "seconds": min(each["fit_seconds"] for each in fits),
        "memory": max(each["memory"] for each in fits),
        "is_euclidean": is_euclidean(L),
        "error": error_of(dataset, L),
        "versions": fits[0]["versions"],
    }


def measured() -> dict[tuple[str, str], Record]:
    """The newest line of each dataset and method."""
    lines = MEASURED.read_text().splitlines() if MEASURED.exists() else []
    return {(each["dataset"], each["method"]): each for each in map(json.loads, lines)}


def title_of(method: str) -> str:
    if method not in PEERS:
        return "Euclidean distance"
    peer = PEERS[method]
    return peer.title if peer.package == "boostmetric" else f"{peer.title}, {peer.package}"


def row(kept: Record, ours: Record) -> str:
    """A line of the table; the ratios are to BoostMetric with its defaults."""
    name = title_of(kept["method"]) + (" †" if kept.get("is_euclidean") else "")
    time = memory = error = ""
    if "failure" in kept:
        time = kept["failure"]
        if "limit" in kept:
            time += f", > {kept['limit'] / ours['seconds']:.3g} ×"
    else:
        error = f"{100 * kept['error']:.2f} %, {kept['error'] / ours['error']:.2f} ×"
    if "seconds" in kept:
        time = f"{kept['seconds']:.2f} s, {kept['seconds'] / ours['seconds']:.3g} ×"
        memory = f"{kept['memory']:.0f} MB, {kept['memory'] / ours['memory']:.2g} ×"
    return f"| {kept['dataset']} | {name} | {time} | {memory} | {error} |"


def packages(records: Iterable[Record]) -> str:
    """The versions of each method's package, and of scikit-learn or PyTorch in its environment."""
    names = set()
    for each in records:
        if "versions" in each:
            package = PEERS[each["method"]].package
            others = [
                f"{other} {each['versions'][other]}"
                for other in ("scikit-learn", "torch")
                if other in each["versions"] and other != package
            ]
            version = f"{package} {each['versions'][package]}"
            names.add(f"{version} ({', '.join(others)})" if others else version)
    return ", ".join(sorted(names))


def table(limit: float) -> str:
    """The measurements as Markdown, sorted by error."""
    cells = measured()
    chosen = [
        cells[dataset, method]
        for dataset in DATASETS
        if "seconds" in cells.get((dataset, OURS), {})
        for method in sorted(
            (method for method in METHODS if (dataset, method) in cells),
            key=lambda method: cells[dataset, method].get("error", np.inf),
        )
    ]
    days = sorted({each["date"] for each in chosen})
    machines = sorted({each["machine"] for each in chosen})
    lines = [
        "Each package with its defaults, one thread and one process per fit, on the first split of "
        f"the experiments. Seconds are those of the fit; below {SHORT:g} they are the minimum of "
        f"{REPEATS}. Memory is the peak of the process beyond that before the fit; the limit is "
        f"{MEMORY_GB} GB. The error is that of 3-NN on features that are not scaled. The "
        "factors are relative to BoostMetric. †: the fit did not move from the Euclidean distance.",
        "",
        "The linear layer is trained for 20 epochs by Adam with `NCALoss`, in batches of 512 and a "
        "learning rate of 1e-3, from the identity.",
        "",
        f"{packages(chosen)}; {' and '.join(machines)}; {' to '.join(days)}; at most {limit:g} s.",
        "",
        "| dataset | method | time | memory | error |",
        "|---|---|---|---|---|",
    ]
    return "\n".join(lines + [row(each, cells[each["dataset"], OURS]) for each in chosen])


def main() -> None:
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--write", action="store_true", help="store the table in RESULTS.md")
    parser.add_argument("--methods", nargs="+", choices=[*PEERS, "euclidean"], default=METHODS)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one fit")
    given = parser.parse_args()
    for method in given.methods:
        package = PEERS[method].package if method in PEERS else ""
        if method in PEERS and PEERS[method].is_external and not peers_python(package).exists():
            parser.error(f"{package} has its own environment: run `make peers peers-torch`.")
    for dataset in given.datasets:
        for method in given.methods:
            kept = measured().get((dataset, method))
            if kept is not None and kept.get("limit", given.limit) >= given.limit:
                continue
            kept = {"dataset": dataset, "method": method, **measure(dataset, method, given.limit)}
            kept |= {"date": str(datetime.date.today()), "machine": machine()}
            with MEASURED.open("a") as file:
                file.write(json.dumps(kept) + "\n")
            print(dataset, method, kept.get("seconds", ""), file=sys.stderr, flush=True)
    text = table(given.limit)
    print(text)
    if given.write:
        report.write_section(TITLE, "peers.py", text)


if __name__ == "__main__":
    main()
