"""Fits in blocks at a million points, and how they grow: time, memory, and a model of a cluster.

    python benchmarks/scale.py [--folder FOLDER] [--write]

Each fit is a process of its own (`scale_run.py`), on a machine with nothing else to do; what was
measured is in scale.jsonl, one line a fit, so an interrupted run goes on where it stopped (remove
the file to measure anew). Points are made: 500 a cluster, each cluster of two labels that one of
ten directions tells apart; of every point three targets and three impostors make nine triplets. At
the million they are those that `neighbors="approximate"` finds among points in random order; where
growth is measured they are drawn from the cluster, and clusters are stored one after another.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import report
import scale_tables
from numpy.typing import NDArray

from boostmetric.engines.engine import Threads
from boostmetric.engines.recipes import Neighbours
from boostmetric.engines.sources import as_source
from boostmetric.mining import labelled_triplets

TITLE = "Fits in blocks: a million points, growth, and a cluster"

MEASURED = Path(__file__).with_name("scale.jsonl")

MILLION = 1_000_000
CLUSTER = 500
N_FEATURES = 64
NUMBERS = [62_500, 125_000, 250_000, 500_000, MILLION]
FEATURES = [32, 64, 128, 256, 512, 1024, 2048]
FEW = 50_000
"""Points of which the number of features grows."""

MOST_SQUARED = 512
"""Features up to which the scatter is a matrix where growth in D is measured."""

SMALL = "900MB"
"""Memory of workers that cannot hold their blocks."""

Record = dict[str, Any]


def runs() -> Iterator[Record]:
    """What is measured: a key, the data, and the arguments of `scale_run`."""
    for engine, n_blocks in (("serial", 1), ("serial", 2), ("threads", 2), ("dask", 2)):
        yield {
            "kind": "engines",
            "data": ("mined", MILLION, N_FEATURES),
            "asked": {"engine": engine, "n_blocks": n_blocks, "n_iter": 100},
        }
    asked = {"engine": "dask", "n_iter": 5, "memory_limit": SMALL}
    yield {"kind": "small", "data": ("mined", MILLION, N_FEATURES), "asked": asked}
    asked = {"engine": "serial", "n_blocks": 32, "n_iter": 10}
    yield {"kind": "overlap", "data": ("mined", MILLION, N_FEATURES), "asked": asked}
    for n in NUMBERS:
        for engine in ("threads", "dask"):
            asked = {"engine": engine, "n_blocks": 2, "n_iter": 20}
            yield {"kind": "n", "data": ("drawn", n, N_FEATURES), "asked": asked}
    for n_blocks in (8, 32, 128):
        asked = {"engine": "dask", "n_blocks": n_blocks, "n_iter": 10}
        yield {"kind": "blocks", "data": ("drawn", NUMBERS[2], N_FEATURES), "asked": asked}
    for D in FEATURES:
        for matrix_free in (False, True):
            if D <= MOST_SQUARED or matrix_free:
                asked = {"engine": "threads", "n_blocks": 2, "n_iter": 20}
                asked["matrix_free"] = matrix_free
                yield {"kind": "D", "data": ("drawn", FEW, D), "asked": asked}


def made(n: int, D: int) -> tuple[NDArray, NDArray]:
    """Points, cluster by cluster, and their labels, two to a cluster.

    In a cluster labels differ along one of ten directions, by little.
    """
    rng = np.random.default_rng(n + D)
    centres = 3 * rng.standard_normal((-(-n // CLUSTER), D), dtype=np.float32)
    labels = np.arange(n) % 2
    points = np.repeat(centres, CLUSTER, axis=0)[:n]
    apart = 0.3 * rng.standard_normal((10, D), dtype=np.float32)
    decay = 1 / np.sqrt(1 + np.arange(D, dtype=np.float32))
    for begin in range(0, n, 100_000):
        part = points[begin : begin + 100_000]
        part += rng.standard_normal(part.shape, dtype=np.float32)
        rows = np.arange(begin, begin + len(part))
        part += apart[rows // CLUSTER % 10] * labels[rows, None]
        part *= decay
    return points, labels


def drawn(n: int) -> NDArray:
    """Triplets of three points of each point's cluster with its label, and three without."""
    rng = np.random.default_rng(0)
    place = np.arange(n) % CLUSTER

    def mates(away: NDArray) -> NDArray:
        there = (place[:, None] + away[:, None] + np.array([0, 2, 4])) % CLUSTER
        return np.arange(n)[:, None] - place[:, None] + there

    even = 2 * rng.integers(1, CLUSTER // 2 - 2, n)
    odd = 2 * rng.integers(0, CLUSTER // 2 - 2, n) + 1
    return labelled_triplets(np.arange(n), mates(even), mates(odd))


def data(folder: Path, kind: str, n: int, D: int) -> dict[str, str]:
    """The paths of points and triplets, which are made if they are not there."""
    paths = {each: str(folder / f"{kind}-{n}-{D}-{each}.npy") for each in ("points", "triplets")}
    if not all(Path(path).exists() for path in paths.values()):
        X, labels = made(n, D)
        if kind == "mined":
            order = np.random.default_rng(0).permutation(n)
            X, labels = X[order], (labels + 2 * (np.arange(n) // CLUSTER % 10))[order]
        np.save(paths["points"], X)
        if kind == "mined":
            del X
            triplets = mined(paths["points"], labels)
        else:
            triplets = drawn(n)
        np.save(paths["triplets"], triplets)
    return paths


def mined(points: str, labels: NDArray) -> NDArray:
    """The triplets of approximate neighbours, in the order in which a fit would have them."""
    began = time.perf_counter()
    engine = Threads()
    found = Neighbours.among(as_source(points), labels, 3, 3, engine, "approximate")
    engine.close()
    print(f"mining took {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return labelled_triplets(found.anchors, found.targets, found.impostors)


def measured(folder: Path) -> list[Record]:
    """All records; those that are missing are measured first."""
    MEASURED.touch()
    known = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    done = {json.dumps(record["run"]) for record in known}
    for run in json.loads(json.dumps(list(runs()))):
        if json.dumps(run) in done:
            continue
        asked = run["asked"] | data(folder, *run["data"])
        print(run, file=sys.stderr)
        child = Path(__file__).with_name("scale_run.py")
        output = subprocess.run(
            [sys.executable, str(child), json.dumps(asked)], check=True, stdout=subprocess.PIPE
        ).stdout
        found = json.loads(output)
        record = {"run": run} | {name: found[name] for name in found if name not in asked}
        record["n_blocks"] = found["n_blocks"]
        known.append(record)
        with MEASURED.open("a") as file:
            file.write(json.dumps(record) + "\n")
    return known


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=TITLE)
    default = Path(tempfile.gettempdir()) / "boostmetric-scale"
    parser.add_argument("--folder", type=Path, default=default, help="for some GB of points")
    parser.add_argument("--write", action="store_true", help="put the tables into RESULTS.md")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    tables = scale_tables.tables(measured(given.folder))
    print(tables)
    if given.write:
        report.write_section(TITLE, "scale.py", tables)
        scale_tables.picture(measured(given.folder))


if __name__ == "__main__":
    main()
