"""One million points on one machine and on Dask, and a cost model of a fit on Dask.

    python benchmarks/scale.py [--write]

The model has five constants, fitted to rounds of fits with one to four workers, and is validated on
two fits that were not used: one with three workers, and that of the million points. A round is one
query of all blocks:

    seconds = latency + tasks·B + max_w(blocks)·(flops/φ + entries/β) + bytes/ω

for B blocks, of which a worker has up to max_w, with `flops` of dense products and `entries` that
are read or written per block, and `bytes` that are merged in the client.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import points
import processes
from numpy.typing import NDArray
from processes import Measurements, Record
from scipy.optimize import nnls

TITLE = "One million points, and the cost of a fit on Dask"

LIMIT = 1800.0

N, D, N_CHUNKS, N_WORKERS, N_TEST = 1_000_000, 64, 4, 2, 5_000

N_CLASSES = 2
"""FAISS has one index per class: its time grows with the square root of their number."""

KEEP_MEMORY = {
    f"distributed.nanny.pre-spawn-environ.MALLOC_{name}_THRESHOLD_": str(1 << 30)
    for name in ("TRIM", "MMAP")
}
"""Dask sets MALLOC_TRIM_THRESHOLD_ to 65536, so the C library returns freed memory at once, and
every large array has to be mapped again. With these settings, workers keep freed memory."""

PROBLEMS = [(40_000, 32, 16), (160_000, 64, 4), (80_000, 128, 4), (40_000, 256, 8)]
"""Points, features and blocks of the fits that determine the constants."""

NEW_PROBLEM = (120_000, 96, 6)
"""Points, features and blocks of the fit with three workers for validation."""


def one_machine(n: int, n_features: int, n_test: int) -> Record:
    """A fit in this process, with FAISS."""
    from boostmetric import BoostMetric

    X, y = (np.concatenate(each) for each in zip(*parts(n, n_features), strict=True))
    learner = BoostMetric(n_neighbors=3, n_passes=1, index="faiss", verify=False)
    before = processes.reset_peak_memory()
    began = time.perf_counter()
    notes = fit_with_notes(learner, X, y)
    seconds, peak = time.perf_counter() - began, processes.peak_memory() - before
    return {"seconds": seconds, "MB": peak, "notes": notes, **errors(learner, X, y, n_test)}


def dask_workers(n: int, n_features: int, n_test: int) -> Record:
    """The same fit on Dask, with points that the workers hold."""
    from boostmetric import BoostMetric

    with cluster(N_WORKERS) as client, logged_rounds() as log:
        X, y = collection(n, n_features, N_CHUNKS, client)
        learner = BoostMetric(n_neighbors=3, n_passes=1, index="faiss", verify=False)
        before = sum(client.run(processes.reset_peak_memory).values())
        own = processes.reset_peak_memory()
        began = time.perf_counter()
        notes = fit_with_notes(learner, X, y)
        seconds = time.perf_counter() - began
        peaks = sum(client.run(processes.peak_memory).values()) - before
        own = processes.peak_memory() - own
    X, y = (np.concatenate(each) for each in zip(*parts(n, n_features), strict=True))
    return {
        "seconds": seconds,
        "MB": peaks,
        "MB of the client": own,
        "notes": notes,
        **errors(learner, X, y, n_test),
        "n_workers": N_WORKERS,
        "blocks": log.blocks,
        "rounds": log.rounds,
        "search": log.begin_of_blocks - began,
    }


def dask_rounds(problems: list[list[int]], n_workers: int, keeps_memory: bool) -> Record:
    """Rounds of fits with given comparisons, on one cluster."""
    from boostmetric import Comparisons, boost

    fits = []
    with cluster(n_workers, keeps_memory) as client:
        for n, n_features, n_chunks in problems:
            X, y = collection(n, n_features, n_chunks, client)
            comparisons = Comparisons.from_triplets(points.nine_triplets_per_point(y))
            with logged_rounds() as log:
                boost(X, comparisons, "logistic", max_iter=64, tol=0.0, engine=client)
            fits.append({"n_workers": n_workers, "blocks": log.blocks, "rounds": log.rounds})
    return {"fits": fits}


def fit_with_notes(learner: Any, X: Any, y: NDArray) -> list[str]:
    """Fit, and return warnings of the package, such as that of a low recall of the index."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        learner.fit(X, y)
    return [str(each.message).partition(";")[0] for each in caught if "index" in str(each.message)]


def parts(n: int, n_features: int) -> Iterator[tuple[NDArray, NDArray]]:
    for part in range(N_CHUNKS):
        yield points.clusters(n // N_CHUNKS, n_features, part, N_CLASSES)


def errors(learner: Any, X: NDArray, y: NDArray, n_test: int) -> Record:
    """3-NN test errors of the learned and of the Euclidean metric."""
    from boostmetric import knn_error

    Z, z = points.clusters(n_test, X.shape[1], N_CHUNKS, N_CLASSES)
    transform = learner.transform
    return {
        "error": knn_error(transform(X), y, transform(Z), z),
        "Euclidean": knn_error(X, y, Z, z),
    }


@contextmanager
def cluster(n_workers: int, keeps_memory: bool = True) -> Iterator[Any]:
    """A client of single-threaded worker processes on this machine."""
    import dask
    from distributed import Client

    with (
        dask.config.set(KEEP_MEMORY if keeps_memory else {}),
        Client(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as client,
    ):
        yield client


def collection(n: int, n_features: int, n_chunks: int, client: Any) -> tuple[Any, NDArray]:
    """Points as a Dask array in the memory of the workers, and labels in this process."""
    import dask
    import dask.array as da
    from distributed import wait

    size = n // n_chunks
    make = dask.delayed(points.clusters, nout=2)
    chunks = [make(size, n_features, part, N_CLASSES) for part in range(n_chunks)]
    arrays = [da.from_delayed(X, (size, n_features), np.float32) for X, _ in chunks]
    X = da.concatenate(arrays).persist()
    wait(X)
    return X, np.concatenate(client.gather(client.compute([y for _, y in chunks])))


@dataclass
class Log:
    """The numbers of rows, pairs and comparisons of every block, and the rounds of a fit.

    A round is a list: kind, number of directions, whether these are new, seconds.
    """

    blocks: list[list[int]]
    rounds: list[list[Any]]
    begin_of_blocks: float = 0.0


@contextmanager
def logged_rounds() -> Iterator[Log]:
    """Record the queries of blocks on Dask."""
    from boostmetric.engines import Dask
    from boostmetric.problem import Block

    log, place, call = Log([], []), Dask.place, Dask.call
    last = b""

    def logged_place(engine: Any, recipes: Any) -> Any:
        compared: list[Any] = [
            getattr(each.recipe, "comparisons", None) for each in recipes if hasattr(each, "recipe")
        ]
        if compared and None not in compared:
            log.begin_of_blocks = time.perf_counter()
            log.blocks = [[int(c.pairs.max()) + 1, len(c.pairs), len(c)] for c in compared]
        return place(engine, recipes)

    def logged_call(engine: Any, function: Any, blocks: Any, *arguments: Any) -> Any:
        nonlocal last
        began = time.perf_counter()
        results = call(engine, function, blocks, *arguments)
        if function is Block.query:
            _, _, _, query, *given = arguments
            directions = (
                given[0] if given and isinstance(given[0], np.ndarray) else np.empty((0, 0))
            )
            is_new, last = directions.tobytes() != last, directions.tobytes()
            k = 1 if directions.ndim == 1 else directions.shape[1]
            with_scatter = query is Block.evaluate and bool(given[0])
            kind = "scatter" if with_scatter else query.__name__
            log.rounds.append([kind, k, is_new, time.perf_counter() - began])
        return results

    with patch.object(Dask, "place", logged_place), patch.object(Dask, "call", logged_call):
        yield log


@dataclass(frozen=True)
class Problem:
    """The sizes on which the cost of a round depends."""

    n_blocks: int
    rows: float
    pairs: float
    comparisons: float
    n_features: int
    n_workers: int

    @classmethod
    def of(cls, fit: Record, n_features: int, n_cores: int) -> Problem:
        rows, pairs, comparisons = np.mean(fit["blocks"], axis=0)
        n_workers = min(fit["n_workers"], n_cores)
        return cls(len(fit["blocks"]), rows, pairs, comparisons, n_features, n_workers)

    def flops(self, kind: str, k: int, is_new: bool) -> float:
        """Of dense products, per block."""
        if kind == "scatter":
            return 2 * self.rows * self.n_features**2
        return 2 * self.rows * self.n_features * k * is_new

    def entries(self, kind: str, k: int, is_new: bool) -> float:
        """Read or written per block: sparse products, measures of directions, margins."""
        if kind == "scatter":
            return 2 * (self.pairs + self.rows) * self.n_features + 4 * self.comparisons
        return (2 + 3 * is_new) * self.pairs * k + 8 * self.comparisons

    def merged_bytes(self, kind: str, k: int) -> float:
        """Results of all blocks: float32 scatters, float64 derivatives."""
        each = 4 * self.n_features**2 if kind == "scatter" else 8 * (2 + k)
        return self.n_blocks * each

    def terms(self, kind: str, k: int, is_new: bool) -> list[float]:
        """The factors of the five constants."""
        most = -(-self.n_blocks // self.n_workers)
        return [
            1.0,
            self.n_blocks,
            most * self.flops(kind, k, is_new),
            most * self.entries(kind, k, is_new),
            self.merged_bytes(kind, k),
        ]


def rounds_of(fit: Record) -> list[list[Any]]:
    """All rounds but the first one, which waits for the creation of the blocks."""
    return list(fit["rounds"][1:])


def fit_constants(fits: list[tuple[Record, int]], n_cores: int) -> NDArray:
    """Nonnegative constants with the least squared relative errors of mean seconds of rounds."""
    terms, means, counts = [], [], []
    for fit, n_features in fits:
        problem = Problem.of(fit, n_features, n_cores)
        groups: dict[tuple[Any, ...], list[float]] = {}
        for *what, seconds in rounds_of(fit):
            groups.setdefault(tuple(what), []).append(seconds)
        for (kind, k, is_new), seconds in groups.items():
            terms.append(problem.terms(kind, k, is_new))
            means.append(np.mean(seconds))
            counts.append(len(seconds))
    weights = np.sqrt(counts)
    scaled = np.array(terms) * (weights / means)[:, None]
    units = scaled.max(axis=0)  # the terms differ by many orders of magnitude
    solution, _ = nnls(scaled / units, weights)
    constants: NDArray = solution / units
    return constants


def predicted(fit: Record, n_features: int, n_cores: int, constants: NDArray) -> NDArray:
    """Seconds of the five parts, summed over the rounds of a fit."""
    problem = Problem.of(fit, n_features, n_cores)
    terms = [problem.terms(*each[:3]) for each in rounds_of(fit)]
    parts: NDArray = constants * np.sum(terms, axis=0)
    return parts


PARTS = ("latency", "tasks", "dense products", "memory accesses", "merged bytes")


def million_table(local: Record, dask: Record) -> list[str]:
    lines = [
        "| one million × 64, FAISS | seconds | MB beyond X | 3-NN error, % | Euclidean, % |",
        "|---|---|---|---|---|",
    ]
    for label, record in (("one machine, two cores", local), ("Dask, two workers", dask)):
        memory = f"{record['MB']:.0f}"
        if "MB of the client" in record:
            memory += f" on the workers, {record['MB of the client']:.0f} in the client"
        lines.append(
            f"| {label} | {record['seconds']:.0f} | {memory} | {100 * record['error']:.2f} | "
            f"{100 * record['Euclidean']:.2f} |"
        )
    notes = [f"{'; '.join(each['notes'])}." for each in (local, dask) if each["notes"]]
    return [*lines, "", " ".join(notes)] if notes else lines


def model_table(fits: list[tuple[str, Record, int]], n_cores: int, constants: NDArray) -> list[str]:
    latency, tasks, flops, entries, per_byte = constants
    lines = [
        f"Fitted: latency {1e3 * latency:.1f} ms per round, {1e3 * tasks:.2f} ms per task, "
        f"φ = {rate(flops)} Gflop/s and β = {rate(entries)} billion entries/s per core, "
        f"ω = {rate(per_byte)} GB/s. Workers share {n_cores} cores.",
        "",
        "| fit | rounds | seconds, model | measured | model / measured |",
        "|---|---|---|---|---|",
    ]
    for label, fit, n_features in fits:
        model = predicted(fit, n_features, n_cores, constants).sum()
        measured = sum(each[-1] for each in rounds_of(fit))
        lines.append(
            f"| {label} | {len(rounds_of(fit))} | {model:.2f} | {measured:.2f} | "
            f"{model / measured:.2f} |"
        )
    return lines


def rate(seconds: float) -> str:
    return f"{1e-9 / seconds:.2g}" if seconds else "∞"


NETWORK_BYTES, NETWORK_LATENCY = 1.25e9, 1e-3
"""Assumptions on a cluster: 10 Gb/s into the client, 1 ms more per round than on one machine."""

MIN_BLOCKS = 200
"""Blocks of 10⁸ × 256 points: one of 200 holds 3.5 million rows, 3.6 GB in float32."""


def prediction_table(dask: Record, constants: NDArray) -> list[str]:
    """The model for 10⁸ points of 256 features and 10⁹ comparisons; the rounds of `dask`."""
    n, m, n_features = 10**8, 10**9, 256
    constants = constants.copy()
    constants[0] += NETWORK_LATENCY
    constants[4] = max(constants[4], 1 / NETWORK_BYTES)
    rounds = rounds_of(dask)
    n_scatters = sum(each[0] == "scatter" for each in rounds)
    lines = [
        f"Prediction for {n:.0e} × {n_features} and {m:.0e} comparisons: the {len(rounds)} rounds "
        f"of the million points ({n_scatters} with a scatter), single-core workers of this "
        "machine's speed, 10 Gb/s into the client, 1 ms of network latency; without the search for "
        "neighbors and the creation of blocks.",
        "",
        "| workers | blocks | GB merged | Pflop | seconds | of these: largest parts |",
        "|---|---|---|---|---|---|",
    ]
    for n_workers in (10, 100, 1_000):
        B = max(MIN_BLOCKS, n_workers)
        # Neighbors are in any chunk: a block copies up to seven rows per anchor.
        problem = Problem(B, min(n, 7 * n / B), 6 / 9 * m / B, m / B, n_features, n_workers)
        terms = np.sum([problem.terms(*each[:3]) for each in rounds], axis=0)
        seconds = constants * terms
        flops = B * sum(problem.flops(*each[:3]) for each in rounds)
        order = np.argsort(-seconds)[:3]
        largest = ", ".join(f"{PARTS[part]} {seconds[part]:,.0f}" for part in order)
        lines.append(
            f"| {n_workers:,} | {B:,} | {terms[4] / 1e9:,.1f} | {flops / 1e15:.2f} | "
            f"{seconds.sum():,.0f} | {largest} |"
        )
    return lines


def table(measurements: Measurements, given: argparse.Namespace) -> str:
    """The measurements and the model as Markdown."""
    shrink = 20 if measurements.is_small else 1
    million = {"n": N // shrink, "n_features": D, "n_test": N_TEST // shrink}
    get: Callable[..., Record] = measurements.get
    # 1) fits for the constants, with one to four workers
    problems = [[n // shrink, *others] for n, *others in PROBLEMS]
    fits = []
    for n_workers in (1, 2, 3, 4):
        record = get(dask_rounds, problems=problems, n_workers=n_workers, keeps_memory=True)
        for (n, n_features, n_blocks), fit in zip(problems, record["fits"], strict=True):
            label = f"{n:,} × {n_features}, {n_blocks} blocks, {n_workers} workers"
            fits.append((label, fit, n_features))
    n_cores = os.cpu_count() or 1
    constants = fit_constants([each[1:] for each in fits], n_cores)
    # 2) fits for validation
    n, *others = NEW_PROBLEM
    new = get(dask_rounds, problems=[[n // shrink, *others]], n_workers=3, keeps_memory=True)
    local = get(one_machine, threads=2, **million)
    dask = get(dask_workers, **million)
    label = f"{n // shrink:,} × {others[0]}, {others[1]} blocks, 3 workers (validation)"
    fits.append((label, new["fits"][0], others[0]))
    fits.append((f"{million['n']:,} × {D}, {N_CHUNKS} blocks, 2 workers (validation)", dask, D))
    # 3) workers as Dask starts them
    default = get(dask_rounds, problems=problems, n_workers=2, keeps_memory=False)
    slow, fast = (
        sum(each[-1] for fit in record["fits"] for each in rounds_of(fit))
        for record in (
            default,
            get(dask_rounds, problems=problems, n_workers=2, keeps_memory=True),
        )
    )
    started = sum(each[-1] for each in rounds_of(dask))
    return "\n".join(
        [
            *million_table(local, dask),
            "",
            f"Dask: {dask['search']:.0f} s for the search, {started:.0f} s for "
            f"{len(dask['rounds']) - 1} rounds. Workers as Dask starts them, which return freed "
            f"memory at once, take {slow / fast:.2f} times as long for the rounds of the first "
            "fits below.",
            "",
            *model_table(fits, n_cores, constants),
            "",
            *prediction_table(dask, constants),
        ]
    )


if __name__ == "__main__":
    functions = {each.__name__: each for each in (one_machine, dask_workers, dask_rounds)}
    processes.main(TITLE, __file__, functions, table, LIMIT)
