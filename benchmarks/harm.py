"""How often a fit is worse than its start, on test points that it has not seen.

    python benchmarks/harm.py [--methods NAME …] [--draws N] [--write]
    python benchmarks/harm.py --source ../before/src --version 089272b

Each draw of a kind of data has its own training and test points, and the errors are those of
scikit-learn's 3-NN classifier (1-NN with fewer than four points per class). The kinds are

- those of `tests/unfriendly_data.py`;
- ordinary tables of scikit-learn, of which a random half is learned from;
- controls: the same tables with permuted training labels, from which nothing can be learned, so
  that the start must be kept; and planted gains, which must not be lost.

The measurements are in harm.jsonl, one line per kind, draw, method and version, so an interrupted
run is resumed. Those of another version are made with `--source`, the folder of its package. A fit
is harmful if its test error is above that of its start by more than two standard errors of the
paired difference.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets as sklearn_datasets
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from unfriendly_data import KINDS, PLANTED, Data, draw

MEASURED = Path(__file__).with_name("harm.jsonl")

TABLES = ("wine", "breast_cancer", "iris", "digits")
PERMUTED = tuple(f"{name}, permuted labels" for name in TABLES)
METHODS = ("BoostMetric()", "BoostMetricCV()")
N_DRAWS = {"BoostMetric()": 10, "BoostMetricCV()": 5}
CURRENT = "current"

Record = dict[str, Any]


def data_of(kind: str, seed: int) -> Data:
    """Training points, their labels, test points and their labels."""
    if kind in KINDS or kind in PLANTED:
        return draw(kind, seed)
    name, _, permuted = kind.partition(",")
    X, y = getattr(sklearn_datasets, f"load_{name}")(return_X_y=True)
    A, B, a, b = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
    if permuted:
        a = np.random.default_rng(seed).permutation(a)
    return A, a, B, b


def mistakes(A: NDArray, a: NDArray, B: NDArray, b: NDArray) -> NDArray:
    """Whether the nearest neighbors misclassify each test point."""
    n_neighbors = 1 if len(a) < 4 * len(np.unique(a)) else 3
    predicted = KNeighborsClassifier(n_neighbors).fit(A, a).predict(B)
    return np.asarray(predicted != b, dtype=float)


def measure(kind: str, seed: int, method: str) -> Record:
    """Errors in % of simple distances, the start and the result; and whether the start was kept."""
    from boostmetric import BoostMetric, BoostMetricCV
    from boostmetric.estimators.initial import starting_transformation

    A, a, B, b = data_of(kind, seed)
    scaler = StandardScaler().fit(A)
    found = {
        "raw": mistakes(A, a, B, b),
        "standardized": mistakes(scaler.transform(A), a, scaler.transform(B), b),
    }
    model: Any = BoostMetric() if method == "BoostMetric()" else BoostMetricCV(random_state=0)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the start is kept, or there are few points per class
        model.fit(A, a)
    seconds = time.process_time() - began
    if method == "BoostMetric()":
        init = model.init_
    else:  # of the best start without learning; the first one if there is none
        scores = [
            (score, -number)
            for number, (params, score) in enumerate(
                zip(model.cv_results_["params"], model.cv_results_["mean_test_score"], strict=True)
            )
            if params.get("shrinkage") == 1 and np.isfinite(score)
        ]
        init = model.cv_results_["params"][-max(scores)[1]]["init"] if scores else None
    L = starting_transformation(init, A, a)
    found["start"] = found["raw"] if L is None else mistakes(A @ L.T, a, B @ L.T, b)
    found["result"] = mistakes(model.transform(A), a, model.transform(B), b)
    simple = min(found["raw"], found["standardized"], found["start"], key=np.mean)
    harm, to_best = found["result"] - found["start"], found["result"] - simple
    return {
        **{name: 100 * float(each.mean()) for name, each in found.items()},
        "harm_se": 100 * float(harm.std() / np.sqrt(len(harm))),
        "to_best": 100 * float(to_best.mean()),
        "is_start": bool(np.isclose(harm, 0).all()),
        "seconds": seconds,
    }


def run(kinds: Sequence[str], methods: Sequence[str], n_draws: int | None, version: str) -> None:
    """Make the measurements that the file does not contain."""
    known = {(each["kind"], each["seed"], each["method"], each["version"]) for each in read()}
    with MEASURED.open("a") as file:
        for method in methods:
            for seed in range(n_draws or N_DRAWS[method]):
                for kind in kinds:
                    if (kind, seed, method, version) in known:
                        continue
                    key = {"kind": kind, "seed": seed, "method": method, "version": version}
                    file.write(json.dumps({**key, **measure(kind, seed, method)}) + "\n")
                    file.flush()


def read() -> list[Record]:
    if not MEASURED.exists():
        return []
    return [json.loads(line) for line in MEASURED.read_text().splitlines()]


def select(records: Iterable[Record], **values: Any) -> list[Record]:
    """The records with the given values."""
    return [each for each in records if all(each[key] == values[key] for key in values)]


def mean(records: Sequence[Record], name: str) -> float:
    return float(np.mean([each[name] for each in records])) if records else np.nan


def before_and_after(records: list[Record], kinds: Sequence[str], before: str) -> str:
    """One row per kind: errors of both defaults, before and now."""
    header = ["3-NN error in %", "best simple distance"]
    header += [f"`{method}`, {v}" for method in METHODS for v in (before, "now")]
    rows = []
    for kind in kinds:
        first = select(records, kind=kind, method=METHODS[0], version=CURRENT)
        simple = mean(first, "result") - mean(first, "to_best")
        cells = [kind, f"{simple:.1f}"]
        for method in METHODS:
            now = select(records, kind=kind, method=method, version=CURRENT)
            seeds = {each["seed"] for each in now}
            then = select(records, kind=kind, method=method, version=before)
            then = [each for each in then if each["seed"] in seeds]
            cells += [f"{mean(then, 'result'):.1f}", f"{mean(now, 'result'):.1f}{mark_of(now)}"]
        rows.append(cells)
    return markdown([header, *rows])


def mark_of(records: Sequence[Record]) -> str:
    """A cross if results are worse than the best simple distance."""
    differences = np.array([each["to_best"] for each in records])
    spread = differences.std(ddof=min(1, len(differences) - 1)) / np.sqrt(len(differences))
    return " ✗" if differences.mean() > 2 * spread + 0.5 else ""


def markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("nan", "–")


def details(records: list[Record], kinds: Sequence[str], method: str) -> str:
    """One row per kind: errors, and the difference to the best simple distance."""
    columns = "raw", "standardized", "start", "result"
    header = ["3-NN error in %", *columns[:3], method, "to the best", "standard error"]
    rows = [[*header, "start kept"]]
    for kind in kinds:
        chosen = select(records, kind=kind, method=method, version=CURRENT)
        if chosen:
            differences = np.array([each["to_best"] for each in chosen])
            rows.append([
                kind,
                *(f"{mean(chosen, name):.1f}" for name in columns),
                f"{differences.mean():+.1f}{mark_of(chosen)}",
                f"{differences.std() / np.sqrt(max(1, len(chosen) - 1)):.1f}",
                f"{sum(each['is_start'] for each in chosen)} of {len(chosen)}",
            ])  # fmt: skip
    note = "✗: worse than the best by more than two standard errors + 0.5 points."
    return f"{note}\n\n{markdown(rows)}"


def harm_rates(records: list[Record], kinds: Sequence[str], versions: Sequence[str]) -> str:
    """How often, and by how much, results are worse than their starts, by method and version."""
    header = ["", "fits", "start kept", "better", "harmful", "mean harm", "largest", "mean of all"]
    rows = [header]
    for method in METHODS:
        drawn = {
            (each["kind"], each["seed"]) for each in select(records, method=method, version=CURRENT)
        }
        for version in versions:
            chosen = [
                each
                for each in select(records, method=method, version=version)
                if each["kind"] in kinds and (each["kind"], each["seed"]) in drawn
            ]
            if not chosen:
                continue
            harm = np.array([each["result"] - each["start"] for each in chosen])
            errors = np.array([each["harm_se"] for each in chosen])
            is_harmful = harm > 2 * errors
            rows.append([
                f"`{method}`, {'now' if version == CURRENT else version}",
                str(len(chosen)),
                str(sum(each["is_start"] for each in chosen)),
                str(int((harm < -2 * errors).sum())),
                f"{is_harmful.sum()} ({is_harmful.mean():.1%})",
                f"{harm[is_harmful].mean() if is_harmful.any() else 0:.1f}",
                f"{max(0.0, harm.max()):.1f}",
                f"{harm.mean():+.1f}",
            ])  # fmt: skip
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="How often a fit is worse than its start")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    everything = (*KINDS, *TABLES, *PERMUTED, *PLANTED)
    parser.add_argument("--kinds", nargs="+", default=everything, choices=everything)
    parser.add_argument("--draws", type=int, help="of each kind")
    parser.add_argument("--source", type=Path, help="folder of the package of another version")
    parser.add_argument("--version", default=CURRENT, help="name of this version")
    parser.add_argument("--again", action="store_true", help="measure this version again")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.source is not None:
        sys.path.insert(0, str(options.source.resolve()))
    if options.again:
        kept = [each for each in read() if each["version"] != options.version]
        MEASURED.write_text("".join(f"{json.dumps(each)}\n" for each in kept))
    run(options.kinds, options.methods, options.draws, options.version)

    records, kinds = read(), options.kinds
    before = next((each["version"] for each in records if each["version"] != CURRENT), None)
    versions = [each for each in (before, CURRENT) if each is not None]
    parts = [harm_rates(records, [each for each in kinds if each not in PERMUTED], versions)]
    if before is not None:
        parts.append(before_and_after(records, kinds, before))
    parts += [details(records, kinds, method) for method in METHODS]
    text = "\n\n".join(parts)
    print(text)
    if options.write:
        import report

        report.write_section("Harm", "harm.py", text)


if __name__ == "__main__":
    main()
