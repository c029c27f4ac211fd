"""Growth of time and memory with the numbers of points, features, comparisons and passes.

    python benchmarks/scaling.py [--limit SECONDS] [--write]

Every series doubles one number (or increases it by √10), and ends before the point that would take
longer than `--max-seconds`, as predicted from the growth so far. Exponents are slopes of the
logarithms over the last three steps of a series. The points are random clusters (`points.py`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import points
import processes
from processes import Measurements, Record, least

TITLE = "Growth of time and memory"

LIMIT, MAX_SECONDS = 150.0, 50.0
"""Seconds after which a measurement is killed, and predicted seconds of the largest fit."""


def fit_labels(n: int, D: int, index: str | None = None, n_passes: int = 1) -> Record:
    """Seconds and memory of a fit with labels, 3 × 3 neighbors."""
    from boostmetric import BoostMetric

    X, y = points.clusters(n, D)
    learner = BoostMetric(n_neighbors=3, n_passes=n_passes, index=index, verify=False)
    return measure(partial(learner.fit, X, y))


def fit_triplets(m: int) -> Record:
    """Seconds and memory of a fit with m triplets of 100,000 points of 32 features."""
    from boostmetric import BoostMetric

    X, y = points.clusters(100_000, 32)
    return measure(partial(BoostMetric().fit, X, comparisons=points.triplets(y, m)))


def measure(action: Callable[[], object]) -> Record:
    """Seconds, and the peak memory in MB beyond that before the fit."""
    before = processes.reset_peak_memory()
    seconds = least(action, repeats=3, enough=4.0)
    return {**seconds, "MB": processes.peak_memory() - before}


@dataclass(frozen=True)
class Series:
    """Fits that differ in the argument `name` only."""

    label: str
    function: Callable[..., Record]
    name: str
    sizes: Sequence[int]
    fixed: dict[str, Any]


SIZES = [6_250 * 2**k for k in range(7)]

SERIES = [
    *(
        Series(f"n, D = {D}{', FAISS' * (index is not None)}", fit_labels, "n", SIZES, given)
        for D in (32, 164)
        for index in (None, "faiss")
        for given in [{"D": D, "index": index}]
    ),
    Series("D, n = 10,000", fit_labels, "D", [16 * 2**k for k in range(9)], {"n": 10_000}),
    Series("m, 100,000 × 32", fit_triplets, "m", [round(10 ** (4 + k / 2)) for k in range(7)], {}),
    Series("passes, 25,000 × 32", fit_labels, "n_passes", [1, 2, 3], {"n": 25_000, "D": 32}),
]


def measure_series(
    measurements: Measurements, series: Series, threads: int, max_seconds: float
) -> dict[int, Record]:
    """The records by size, up to the first one that would take or took too long."""
    records: dict[int, Record] = {}
    for size in series.sizes:
        if measurements.is_small and size > series.sizes[0] * 2:
            break
        if len(records) >= 2:
            before, last = list(records.values())[-2:]
            growth = max(1.0, last["wall"] / before["wall"])
            if last["wall"] * growth > max_seconds:
                break
        record = measurements.get(
            series.function, threads=threads, **{series.name: size, **series.fixed}
        )
        if "failure" in record:
            break
        records[size] = record
    return records


def exponent(records: dict[int, Record], key: str) -> str:
    """The slope of the logarithms over the last three steps."""
    if len(records) < 4:
        return ""
    sizes, values = zip(
        *((size, each[key]) for size, each in list(records.items())[-4:]), strict=True
    )
    return f"{np.polyfit(np.log(sizes), np.log(values), 1)[0]:.2f}"


def table(measurements: Measurements, given: argparse.Namespace) -> str:
    """The measurements as Markdown: exponents first, then all numbers."""
    summary = [
        "Random clusters, one pass and 3 × 3 neighbors if not stated otherwise, minimum of up to "
        "three fits. Memory is the peak beyond the input, with one thread. Exponents are those of "
        f"the last three steps. A series ends before a predicted time of {given.max_seconds:g} s.",
        "",
        "| growth with | exponent of time, one core | two cores | of memory | largest size | "
        "speed-up there |",
        "|---|---|---|---|---|---|",
    ]
    details = []
    for series in SERIES:
        one, two = (
            measure_series(measurements, series, threads, given.max_seconds) for threads in (1, 2)
        )
        both = [size for size in one if size in two]
        last = both[-1] if both else 0
        speed_up = f"{one[last]['wall'] / two[last]['wall']:.2f}" if both else ""
        summary.append(
            f"| {series.label} | {exponent(one, 'wall')} | {exponent(two, 'wall')} | "
            f"{exponent(one, 'MB')} | {max([*one, *two], default=0):,} | {speed_up} |"
        )
        details += [
            "",
            f"| {series.label} | s, one core | s, two cores | MB |",
            "|---|---|---|---|",
        ]
        for size in sorted({*one, *two}):
            cells = [f"{each[size]['wall']:.3g}" if size in each else "" for each in (one, two)]
            memory = f"{one[size]['MB']:.0f}" if size in one else ""
            details.append(f"| {size:,} | {' | '.join(cells)} | {memory} |")
    return "\n".join(summary + details)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-seconds", type=float, default=MAX_SECONDS, help="of the largest predicted fit"
    )


if __name__ == "__main__":
    functions = {each.__name__: each for each in (fit_labels, fit_triplets)}
    processes.main(TITLE, __file__, functions, table, LIMIT, add_options)
