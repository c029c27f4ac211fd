"""Our results as they were computed, and how they compare with the paper's."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from boostmetric_paper.experiments.paper import (
    DATASETS,
    METHOD_NAMES,
    Score,
    paper_error,
    paper_ratio,
)

ROUNDING = 1e-9
"""What two numbers may differ by and still be taken for equal."""

MEASURES = {"runtime": "fit_seconds", "caltech-faces": "precision_5", "lfw": "accuracy"}
"""What a record of an experiment has to have; those of others have an error."""

KINDS = {
    "versions": dict,
    "chosen": dict,
    "eigenvalues": list,
    "confusion": list,
    "roc_accepted": list,
    "roc_found": list,
    "skipped": list,
}
"""What a record may hold besides numbers and text."""

Record = dict[str, Any]
Runs = dict[int, Record]  # by seed


def spread(first: Score, second: Score) -> float | None:
    """√(s² + s′²) of two standard deviations, the other one for one that is missing.

    Examples
    --------
    >>> spread((10.0, 3.0), (12.0, 4.0))
    5.0
    >>> spread((10.0, None), (12.0, 4.0)) == 4 * 2**0.5
    True
    >>> spread((10.0, None), (12.0, None)) is None
    True
    """
    known = [deviation for _, deviation in (first, second) if deviation is not None]
    return math.hypot(known[0], known[-1]) if known else None


def verdict(ours: Score | None, papers: Score | None) -> str:
    """The word for our error beside the paper's: "within" the spread, "lower" or "higher".

    Where neither has a spread it is "single runs", and "" where one of the errors is missing.

    Examples
    --------
    >>> verdict((4.0, 0.5), (2.0, 1.0)), verdict((3.0, 0.5), (2.0, 1.0))
    ('higher', 'within')
    >>> verdict((3.0, None), (2.0, None)), verdict(None, (2.0, 1.0))
    ('single runs', '')
    """
    if ours is None or papers is None:
        return ""
    allowed = spread(ours, papers)
    if allowed is None:
        return "single runs"
    difference = ours[0] - papers[0]
    if abs(difference) <= allowed + ROUNDING:
        return "within"
    return "lower" if difference < 0 else "higher"


@dataclass(frozen=True)
class Outcomes:
    """The newest record of every cell, by dataset and method, then seed."""

    cells: dict[tuple[str, str], Runs]
    n_unreadable: int

    def runs(self, dataset: str, method: str) -> Runs:
        """Those of one method on one dataset, which may be none."""
        return self.cells.get((dataset, method), {})

    def datasets(self, known: Iterable[str]) -> list[str]:
        """The known datasets, then others that were found."""
        return _known_first(known, (dataset for dataset, _ in self.cells))

    def methods(self) -> list[str]:
        """The methods of `METHOD_NAMES`, then others that were found."""
        return _known_first(METHOD_NAMES, (method for _, method in self.cells))

    def n_seeds(self, dataset: str) -> int:
        """Number of splits that any method was tried on."""
        return len(
            {seed for (name, _), runs in self.cells.items() if name == dataset for seed in runs}
        )


def read_outcomes(path: Path, experiment: str) -> Outcomes:
    """Read a file of JSON lines, of which the last about a cell counts; none if it is missing."""
    cells: dict[tuple[str, str], Runs] = {}
    n_unreadable = 0
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    for line in filter(bytes.strip, lines):
        record = _parse(line, experiment)
        if record is None:
            n_unreadable += 1
        else:
            cells.setdefault((record["dataset"], record["method"]), {})[record["seed"]] = record
    return Outcomes(cells, n_unreadable)


def _parse(line: bytes, experiment: str) -> Record | None:
    """The record of a line, None for one that is torn or lacks what its experiment needs."""
    needed = MEASURES.get(experiment, "error")
    try:
        record = json.loads(line)
        sound = (
            record["experiment"] == experiment
            and isinstance(record["dataset"], str)
            and isinstance(record["method"], str)
            and isinstance(record["seed"], int)
            and (record.get("failure") or math.isfinite(record[needed]))
            and all(isinstance(record.get(key) or kind(), kind) for key, kind in KINDS.items())
            and (experiment != "runtime" or size_of(record["dataset"]) is not None)
        )
    except (ValueError, KeyError, TypeError):
        return None
    return record if sound else None


def size_of(dataset: str) -> tuple[int, int] | None:
    """Numbers of triplets and features from "250x50"."""
    found = re.fullmatch(r"(\d+)x(\d+)", dataset)
    return (int(found[1]), int(found[2])) if found else None


def in_order(methods: Iterable[str]) -> list[str]:
    """Methods without repetition, in the order of `METHOD_NAMES`, then others."""
    found = list(methods)
    return [method for method in _known_first(METHOD_NAMES, found) if method in found]


def _known_first(known: Iterable[str], found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*known, *found]))


def numbers(runs: Runs, key: str, scale: float = 1.0) -> dict[int, float]:
    """A number of every run that has it, by seed."""
    return {
        seed: scale * record[key]
        for seed, record in runs.items()
        if not record.get("failure")
        and isinstance(record.get(key), int | float)
        and math.isfinite(record[key])
    }


def score(values: Iterable[float]) -> Score | None:
    """Mean and standard deviation of numbers, None of none."""
    found = list(values)
    if not found:
        return None
    return statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None


def error_of(runs: Runs) -> Score | None:
    """Error in per cent over the splits."""
    return score(numbers(runs, "error", 100).values())


def ratio(outcomes: Outcomes, dataset: str, method: str) -> float | None:
    """Mean error divided by the mean Euclidean one, over the splits that both have."""
    ours = numbers(outcomes.runs(dataset, method), "error")
    euclidean = numbers(outcomes.runs(dataset, "euclidean"), "error")
    common = ours.keys() & euclidean.keys()
    base = sum(euclidean[seed] for seed in common)
    return sum(ours[seed] for seed in common) / base if base else None


def worst_ratio(outcomes: Outcomes, method: str) -> tuple[float, str] | None:
    """The largest ratio to the Euclidean error, and the dataset that it is on."""
    found = [(ratio(outcomes, d, method), d) for d in outcomes.datasets(DATASETS)]
    return max(((value, d) for value, d in found if value is not None), default=None)


def average_ranks(outcomes: Outcomes) -> dict[str, float]:
    """The mean rank by error of every method that was tried, over the datasets, best first.

    Ties share the mean of their ranks; methods without an error on a dataset are tied last.
    """
    methods = [m for m in outcomes.methods() if any(name == m for _, name in outcomes.cells)]
    ranks = []
    for dataset in outcomes.datasets(DATASETS):
        scores = [error_of(outcomes.runs(dataset, method)) for method in methods]
        if any(scores):
            ranks.append(rankdata([found[0] if found else math.inf for found in scores]))
    means = np.mean(ranks, axis=0) if ranks else np.empty(0)
    return dict(sorted(zip(methods, means.tolist(), strict=False), key=lambda pair: pair[1]))


def exponent(seconds: Mapping[int, float], least: int = 0) -> float | None:
    """Slope of log seconds on log D by least squares over D >= least, None of fewer than two.

    Examples
    --------
    >>> round(exponent({10: 1.0, 100: 100.0, 1000: 10_000.0}), 6)
    2.0
    """
    kept = [(d, time) for d, time in seconds.items() if d >= least and d > 0 and time > 0]
    if len(kept) < 2:
        return None
    dimensions, times = np.log(np.array(kept)).T
    return float(np.polyfit(dimensions, times, 1)[0])


def grid(outcomes: Outcomes) -> dict[tuple[str, str], Runs]:
    """The cells of Table 1 that we or the paper have, by dataset and method."""
    return {
        (dataset, method): outcomes.runs(dataset, method)
        for dataset in outcomes.datasets(DATASETS)
        for method in outcomes.methods()
        if outcomes.runs(dataset, method) or paper_error(dataset, method)
    }


def count_ratios(outcomes: Outcomes) -> tuple[int, int]:
    """How many ratios to the Euclidean error are at or below the paper's, of how many."""
    pairs = [
        (ratio(outcomes, *cell), paper_ratio(*cell))
        for cell in grid(outcomes)
        if cell[1] != "euclidean"
    ]
    both = [(ours, papers) for ours, papers in pairs if ours is not None and papers is not None]
    return sum(ours <= papers + ROUNDING for ours, papers in both), len(both)


def failures(runs: Runs) -> list[str]:
    """Why runs failed, in words, with the number of runs where it is less than all."""
    counts = Counter(str(run["failure"]) for run in runs.values() if run.get("failure"))
    return [
        text if n == len(runs) else f"{text} ({n} run{'s' * (n > 1)})" for text, n in counts.items()
    ]


def worse_than_euclidean(outcomes: Outcomes, method: str) -> tuple[list[str], int]:
    """The datasets where an error is above the Euclidean one by more than the spread; of how many.

    Both over the splits that both have; the spread of single runs is 0.
    """
    worse, n_compared = [], 0
    for dataset in DATASETS:
        ours = numbers(outcomes.runs(dataset, method), "error", 100)
        euclidean = numbers(outcomes.runs(dataset, "euclidean"), "error", 100)
        common = ours.keys() & euclidean.keys()
        first, second = (score(found[seed] for seed in common) for found in (ours, euclidean))
        if first and second:
            n_compared += 1
            if first[0] - second[0] > (spread(first, second) or 0) + ROUNDING:
                worse.append(dataset)
    return worse, n_compared
