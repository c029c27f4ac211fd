"""3-NN test error of `BoostMetric`, other methods and given settings on many datasets.

    BOOSTMETRIC_DATA=folder python benchmarks/quality.py [--splits 10] [--methods NAME …] [--write]
    BOOSTMETRIC_DATA=folder python benchmarks/quality.py --setting alpha=0.1 n_passes=3

Each split holds out 30 % of every class; more than 200 features are reduced to 100 principal
components of the training points. The measure is the geometric mean over the datasets of
(error + 0.25) / (better of raw and standardized Euclidean distance + 0.25), in percentage points:
the offset keeps datasets with almost no errors from dominating. "Worst" is the largest of these
ratios. Differences are paired: the same splits, with 95 % intervals of the mean logarithm of the
ratio over splits. The measurements are in quality.jsonl, one line per dataset, split and method, so
an interrupted run is resumed. `BOOSTMETRIC_DATA` must contain the folder `tables` with the eleven
tables; scikit-learn provides the other datasets.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray
from scipy.stats import rankdata, t
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from boostmetric import BoostMetric, BoostMetricCV

TITLE = "Quality of the defaults"

MEASURED = Path(__file__).with_name("quality.jsonl")

ELEVEN = (
    *("glass", "ionosphere", "musk1", "coil20", "isolet1560", "dna_splice"),
    *("segment", "spambase", "umist", "vowel", "waveform21"),
)

OTHERS: dict[str, Callable[..., Any]] = {
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "iris": load_iris,
    "digits": load_digits,
}

METHODS: dict[str, Callable[[], Any]] = {
    "raw": FunctionTransformer,
    "standardized": StandardScaler,
    "LDA": LinearDiscriminantAnalysis,
    "NCA": lambda: NeighborhoodComponentsAnalysis(max_iter=50, random_state=0),
    "BoostMetric()": BoostMetric,
    "BoostMetric, settings before 0.2": lambda: BoostMetric(
        regularizer="trace", alpha=1e-7, n_neighbors=3, n_passes=1, max_iter=500, init=None
    ),
    "BoostMetricCV()": lambda: BoostMetricCV(random_state=0),
}

NCA_MAX_ENTRIES = 200_000
"""NCA takes minutes for more entries of X than this."""

Record = dict[str, Any]


@cache
def data_of(dataset: str, seed: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Training points, their labels, test points and their labels."""
    if dataset in OTHERS:
        X, y = OTHERS[dataset](return_X_y=True)
    else:
        path = Path(os.environ["BOOSTMETRIC_DATA"], "tables", f"{dataset}.npz")
        with np.load(path, allow_pickle=False) as data:
            X, y = data["X"].astype(np.float64), data["y"]
    A, B, a, b = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    if X.shape[1] > 200:
        pca = PCA(100, random_state=0).fit(A)
        A, B = pca.transform(A), pca.transform(B)
    return A, a, B, b


def measure(dataset: str, seed: int, make: Callable[[], Any]) -> dict[str, float]:
    """The test error in %, processor seconds of the fit, and the rank."""
    A, a, B, b = data_of(dataset, seed)
    model = make()
    began = time.process_time()
    model.fit(A, a)
    seconds = time.process_time() - began
    images = [model.transform(points) for points in (A, B)]
    error = 1 - KNeighborsClassifier(3).fit(images[0], a).score(images[1], b)
    return {"error": 100 * error, "seconds": seconds, "rank": images[0].shape[1]}


def run(datasets: Sequence[str], methods: Sequence[str], n_splits: int) -> list[Record]:
    """All measurements, of which the file contains those of earlier runs."""
    records: list[Record] = []
    if MEASURED.exists():
        records = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    known = {(each["dataset"], each["seed"], each["method"]) for each in records}
    with MEASURED.open("a") as file:
        for dataset in datasets:
            for seed in range(n_splits):
                for method in methods:
                    if (dataset, seed, method) in known:
                        continue
                    if method == "NCA" and data_of(dataset, seed)[0].size > NCA_MAX_ENTRIES:
                        continue
                    of_method = METHODS.get(method, lambda name=method: of_setting(name))
                    found = measure(dataset, seed, of_method)
                    records.append({"dataset": dataset, "seed": seed, "method": method, **found})
                    file.write(json.dumps(records[-1]) + "\n")
                    file.flush()
    used = set(methods), set(datasets)
    return [
        each
        for each in records
        if each["method"] in used[0] and each["dataset"] in used[1] and each["seed"] < n_splits
    ]


def of_setting(name: str) -> BoostMetric:
    """A `BoostMetric` with parameters such as "alpha=0.1 n_passes=3"."""
    parameters: dict[str, Any] = dict(part.split("=", 1) for part in name.split())
    for key, value in parameters.items():
        try:
            parameters[key] = ast.literal_eval(value)
        except ValueError:  # a word
            continue
    return BoostMetric(**parameters)


def table_of(records: list[Record], datasets: Sequence[str], methods: Sequence[str]) -> str:
    """One row per dataset with the mean errors, and the summary."""
    n_splits = 1 + max(each["seed"] for each in records)
    errors = {
        method: np.full((len(datasets), n_splits), np.nan)
        for method in dict.fromkeys(["raw", "standardized", *methods])
    }
    seconds = {method: [] for method in errors}  # type: dict[str, list[float]]
    for each in records:
        errors[each["method"]][datasets.index(each["dataset"]), each["seed"]] = each["error"]
        seconds[each["method"]].append(each["seconds"])
    lines = [f"| | {' | '.join(methods)} |", f"|---|{'---|' * len(methods)}"]
    for number, dataset in enumerate(datasets):
        row = [errors[method][number].mean() for method in methods]
        cells = ["–" if np.isnan(value) else f"{value:.1f}" for value in row]
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    # 1) the measure of each method on all datasets, and its interval over splits
    euclidean = np.minimum(errors["raw"].mean(axis=1), errors["standardized"].mean(axis=1))
    means = np.array([errors[method].mean(axis=1) for method in methods])
    ranks = np.apply_along_axis(rankdata, 0, means)
    lines += [
        "",
        "| | measure | 95 % interval | worst | mean rank | s |",
        "|---|---|---|---|---|---|",
    ]
    for number, method in enumerate(methods):
        ratios = (means[number] + 0.25) / (euclidean + 0.25)
        logs = np.log((errors[method] + 0.25) / (euclidean[:, None] + 0.25)).mean(axis=0)
        spread = t.ppf(0.975, n_splits - 1) * logs.std(ddof=1) / np.sqrt(n_splits)
        low, high = np.exp(logs.mean() + np.array([-spread, spread]))
        value, worst = np.exp(np.log(ratios).mean()), ratios.max()
        lines.append(
            f"| {method} | {value:.3f} | {low:.3f} to {high:.3f} | {worst:.2f} "
            f"| {ranks[number].mean():.1f} | {np.mean(seconds[method]):.2f} |"
        )
    return "\n".join(lines).replace("nan", "–")


def main() -> None:
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--datasets", nargs="+", default=[*ELEVEN, *OTHERS])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--setting", nargs="+", help="parameters of BoostMetric, name=value")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    methods = ["raw", "standardized", *options.methods]
    if options.setting:
        methods = ["raw", "standardized", "BoostMetric()", " ".join(options.setting)]
    methods = list(dict.fromkeys(methods))
    records = run(options.datasets, methods, options.splits)
    text = table_of(records, options.datasets, methods)
    print(text)
    if options.write:
        report.write_section(TITLE, "quality.py", text)


if __name__ == "__main__":
    main()
