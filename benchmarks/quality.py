"""3-NN test error of `BoostMetric`, other methods and given settings on many datasets.

    BOOSTMETRIC_DATA=folder python benchmarks/quality.py [--splits 10] [--methods NAME …] [--write]
    BOOSTMETRIC_DATA=folder python benchmarks/quality.py --group paper
    BOOSTMETRIC_DATA=folder python benchmarks/quality.py --group small --write
    BOOSTMETRIC_DATA=folder python benchmarks/quality.py --setting alpha=0.1 n_passes=3

| group | datasets and splits |
|---|---|
| eleven | tables in the folder `tables`; 30 % of every class are test points, and more than 200 \
features are reduced to 100 principal components of the training points |
| sklearn | datasets of scikit-learn, in the same way |
| paper | the paper's datasets with its numbers of training and test points and of principal \
components; three splits of mnist, and of usps, letter and yfaces for other packages |
| small | 20 splits of little data: small datasets, 60 generated points, ten points per class of \
the other tables, and few triplets |

The measure is the geometric mean over the datasets of (error + 0.25) / (better of raw and
standardized Euclidean distance + 0.25), in percentage points: the offset keeps datasets with almost
no errors from dominating. "Worst" is the largest of these ratios. Differences are paired: the same
splits, with 95 % intervals. For triplets, which state that a point is closer to one of its class
than to one of another class, the error is the share of triplets of test points that are violated.

The measurements are in quality.jsonl, one line per dataset, split and method, so an interrupted run
is resumed; `--again` first deletes those of our methods. Methods of other packages run in separate
processes (`make peers`) for at most `LIMIT` CPU seconds, with one thread; with OMP_NUM_THREADS=1,
ours have one thread, too.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray
from scipy.stats import rankdata, t
from sklearn import datasets as sklearn_datasets
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from boostmetric import BoostMetric, BoostMetricCV
from boostmetric.estimators.initial import choose_init
from boostmetric_paper.datasets import load
from boostmetric_paper.peers import PeerError, fit_in_subprocess, peers_python

MEASURED = Path(__file__).with_name("quality.jsonl")

ELEVEN = (
    *("glass", "ionosphere", "musk1", "coil20", "isolet1560", "dna_splice"),
    *("segment", "spambase", "umist", "vowel", "waveform21"),
)
SKLEARN = ("wine", "breast_cancer", "iris", "digits")
SIX = ("wine", "breast_cancer", "ionosphere", "segment", "vowel", "waveform21")
SMALL = (*("glass", "wine", "iris"), *(f"ten/{name}" for name in (*ELEVEN, *SKLEARN)))

GROUPS = {
    "eleven": ELEVEN,
    "sklearn": SKLEARN,
    "paper": tuple(
        f"paper/{name}" for name in ("mnist", "usps", "letter", "yfaces", "balance", "wine", "iris")
    ),
    "small": (
        *SMALL,
        *(f"synthetic/{name}" for name in ("blobs", "informative", "moons", "wide", "scales")),
        *(f"triplets {m}/{name}" for m in (100, 400, 2000) for name in SIX),
    ),
}
"""The datasets by group; the part before the slash is the way in which they are split."""

REFERENCE = "one pass, trace"
"""The paper's settings, with the logistic loss; differences are to this method."""

METHODS: dict[str, Callable[[], Any]] = {
    "raw": FunctionTransformer,
    "standardized": StandardScaler,
    "LDA": LinearDiscriminantAnalysis,
    REFERENCE: lambda: BoostMetric(
        regularizer="trace", alpha=1e-7, n_neighbors=3, n_passes=1, init=None, verify=False
    ),
    "BoostMetric()": BoostMetric,
    "BoostMetricCV()": lambda: BoostMetricCV(random_state=0),
}

PEERS: dict[str, dict[str, Any]] = {"NCA": {"max_iter": 50}, "LMNN": {}, "SCML": {}}
"""Methods of other packages, and their parameters; with more iterations NCA finishes on few. They
depend on the scale of the points, and NCA learns nothing from pixels of 0 to 255. Therefore they
receive standardized features or, if the error of 3-NN on the training points is not lower with
them, the raw features divided by one number, their root mean variance."""

ITML = "ITML"
"""The method of another package for triplets."""

FIXED = ("raw", "standardized", "LDA", *PEERS, ITML)
"""Methods whose results do not depend on the version of this package."""

LIMIT = 300.0
"""CPU seconds of a fit of another package. After a failure, the other splits are not tried."""

N_SPLITS, N_SMALL_SPLITS, N_SLOW_SPLITS, N_ITML_SPLITS = 10, 20, 3, 5

SLOW = ("paper/mnist", "paper/usps", "paper/letter", "paper/yfaces")
"""Other packages have `N_SLOW_SPLITS` splits of these, as all methods have of mnist."""

Record = dict[str, Any]


@cache
def table(name: str) -> tuple[NDArray, NDArray]:
    """Points and labels of one of the eleven tables, or of a dataset of scikit-learn."""
    if name in SKLEARN:
        X, y = getattr(sklearn_datasets, f"load_{name}")(return_X_y=True)
        return X, y
    path = Path(os.environ["BOOSTMETRIC_DATA"], "tables", f"{name}.npz")
    with np.load(path, allow_pickle=False) as data:
        return data["X"].astype(np.float64), data["y"]


def generated(name: str, seed: int) -> tuple[NDArray, NDArray]:
    """1,060 points, of which 60 are training points."""
    common: dict[str, Any] = {"n_samples": 1060, "random_state": seed}
    if name == "blobs":
        return sklearn_datasets.make_blobs(centers=3 * np.eye(3, 10), **common)
    if name == "moons":
        return sklearn_datasets.make_moons(noise=0.25, **common)
    shapes: dict[str, dict[str, Any]] = {
        "informative": {"n_features": 10, "n_informative": 4, "n_classes": 3, "flip_y": 0.05},
        "wide": {"n_features": 50, "n_informative": 5, "n_redundant": 0, "class_sep": 1.5},
        "scales": {"n_features": 10, "n_informative": 5, "n_redundant": 0},
    }
    X, y = sklearn_datasets.make_classification(**shapes[name], **common)
    return (X * np.logspace(-2, 2, 10) if name == "scales" else X), y


@cache
def data_of(dataset: str, seed: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Training points, their labels, test points and their labels."""
    kind, _, name = dataset.rpartition("/")
    if kind == "paper":
        whole = load(name)
        train, _, test = whole.reduced(whole.split(seed))
        return train.X, train.y, test.X, test.y
    X, y = generated(name, seed) if kind == "synthetic" else table(name)
    if kind == "ten":
        order = np.random.default_rng(seed).permutation(len(y))
        first = np.concatenate([order[y[order] == label][:10] for label in np.unique(y)])
        rest = np.random.default_rng(seed).permutation(np.setdiff1d(order, first))[:1000]
        A, B, a, b = X[first], X[rest], y[first], y[rest]
    else:
        test_size = 1000 if kind == "synthetic" else 0.3
        A, B, a, b = train_test_split(X, y, test_size=test_size, stratify=y, random_state=seed)
    if X.shape[1] > 200:
        pca = PCA(min(100, len(A) - 1), random_state=0).fit(A)
        A, B = pca.transform(A), pca.transform(B)
    if kind.startswith("triplets"):
        scaler = StandardScaler().fit(A)
        A, B = scaler.transform(A), scaler.transform(B)
    return A, a, B, b


def triplets_of(y: NDArray, n_triplets: int, rng: np.random.Generator) -> NDArray:
    """Random rows (a, b, c): b is another point of the class of a, and c has another class."""
    found: list[NDArray] = []
    while sum(map(len, found)) < n_triplets:
        rows = rng.integers(len(y), size=(10 * n_triplets, 3))
        a, b, c = y[rows.T]
        found.append(rows[(a == b) & (a != c) & (rows[:, 0] != rows[:, 1])])
    return np.concatenate(found)[:n_triplets]


def measure(dataset: str, seed: int, method: str) -> Record:
    """The test error in %, processor seconds of the fit, and the rank; or why the fit failed."""
    A, a, B, b = data_of(dataset, seed)
    kind = dataset.rpartition("/")[0]
    if kind.startswith("triplets"):
        triplets = triplets_of(a, int(kind.split()[1]), np.random.default_rng(seed))
    if method in (*PEERS, ITML):
        try:
            if method == ITML:
                model = fit_in_subprocess("itml-triplets", A, triplets, cpu_seconds=LIMIT)
            else:
                scaler = StandardScaler().fit(A)
                errors = choose_init(A, a)[1]
                if errors["none"] <= errors["scale"]:
                    scaler.scale_ = np.full(A.shape[1], np.sqrt(np.mean(scaler.var_)))
                A, B = scaler.transform(A), scaler.transform(B)
                model = fit_in_subprocess(method.lower(), A, a, cpu_seconds=LIMIT, **PEERS[method])
        except PeerError as failure:
            return {"failure": str(failure)}
        seconds = model.measures["processor_seconds"]
    else:
        model = METHODS[method]() if method in METHODS else of_setting(method)
        began = time.process_time()
        if kind.startswith("triplets") and isinstance(model, BoostMetric | BoostMetricCV):
            model.fit(A, comparisons=triplets)
        else:
            model.fit(A, a)
        seconds = time.process_time() - began
    Z, W = model.transform(A), model.transform(B)
    if kind.startswith("triplets"):
        of_test = W[triplets_of(b, 5000, np.random.default_rng(1000 + seed))]
        near, far = (np.square(of_test[:, 0] - of_test[:, k]).sum(axis=1) for k in (1, 2))
        error = float(np.mean(near >= far))
    else:
        error = 1 - KNeighborsClassifier(3).fit(Z, a).score(W, b)
    return {"error": 100 * error, "seconds": seconds, "rank": Z.shape[1]}


def splits_of(dataset: str, method: str, n_splits: int) -> int:
    """The number of splits, fewer if a fit takes minutes."""
    if method == ITML:
        return N_ITML_SPLITS
    is_slow = dataset == "paper/mnist" or (dataset in SLOW and method in PEERS)
    return min(n_splits, N_SLOW_SPLITS) if is_slow else n_splits


def run(
    datasets: Sequence[str], methods: Sequence[str], n_splits: int, again: bool = False
) -> list[Record]:
    """All measurements, of which the file contains those of earlier runs.

    If `again`, those of our methods are deleted first.
    """

    def is_requested(each: Record) -> bool:
        within = each["dataset"] in datasets and each["seed"] < n_splits
        return within and each["method"] in methods

    records: list[Record] = []
    if MEASURED.exists():
        records = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    if again:
        records = [each for each in records if each["method"] in FIXED or not is_requested(each)]
        MEASURED.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    known = {(each["dataset"], each["seed"], each["method"]) for each in records}
    failed = {(each["dataset"], each["method"]) for each in records if "failure" in each}
    with MEASURED.open("a") as file:
        for dataset in datasets:
            for seed in range(n_splits):
                for method in methods:
                    is_known = (dataset, seed, method) in known or (dataset, method) in failed
                    if is_known or seed >= splits_of(dataset, method, n_splits):
                        continue
                    found = measure(dataset, seed, method)
                    if "failure" in found:
                        failed.add((dataset, method))
                    records.append({"dataset": dataset, "seed": seed, "method": method, **found})
                    file.write(json.dumps(records[-1]) + "\n")
                    file.flush()
    return [each for each in records if is_requested(each)]


def of_setting(name: str) -> BoostMetric:
    """A `BoostMetric` with parameters such as "alpha=0.1 n_passes=3"."""
    parameters: dict[str, Any] = dict(part.split("=", 1) for part in name.split())
    for key, value in parameters.items():
        try:
            parameters[key] = ast.literal_eval(value)
        except ValueError:  # a word
            continue
    return BoostMetric(**parameters)


def values_of(
    records: Iterable[Record], datasets: Sequence[str], methods: Sequence[str], name: str = "error"
) -> NDArray:
    """Values of shape (methods, datasets, splits); NaN if there is none."""
    chosen = [each for each in records if each["dataset"] in datasets and name in each]
    values = np.full(
        (len(methods), len(datasets), 1 + max(each["seed"] for each in chosen)), np.nan
    )
    for each in chosen:
        where = methods.index(each["method"]), datasets.index(each["dataset"]), each["seed"]
        values[where] = each[name]
    return values


def interval(differences: NDArray) -> tuple[float, float]:
    """The 95 % interval of the mean."""
    n = len(differences)
    spread = t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n)
    return float(differences.mean() - spread), float(differences.mean() + spread)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("nan", "–")


def error_table(records: list[Record], datasets: Sequence[str], methods: Sequence[str]) -> str:
    """One row per dataset with the mean errors."""
    means = np.nanmean(values_of(records, datasets, methods), axis=2)
    rows = [
        [dataset, *(f"{value:.1f}" for value in row)]
        for dataset, row in zip(datasets, means.T, strict=True)
    ]
    return markdown(["", *methods], rows)


def seconds_table(records: list[Record], datasets: Sequence[str], methods: Sequence[str]) -> str:
    """One row per dataset with processor seconds, the ratios of our methods, and ranks of M."""
    seconds = np.nanmean(values_of(records, datasets, methods, "seconds"), axis=2)
    ranks = np.nanmean(values_of(records, datasets, methods, "rank"), axis=2)
    timed = [name for name in methods if name not in ("raw", "standardized")]
    ratios = [
        (methods.index(name), methods.index(base))
        for name, base in (("BoostMetric()", REFERENCE), ("BoostMetricCV()", "BoostMetric()"))
        if {name, base} <= {*methods}
    ]
    ours = [name for name in METHODS if name in methods and name.startswith("Boost")]
    rows = [
        [
            dataset,
            *(f"{seconds[methods.index(name), number]:.2f}" for name in timed),
            *(f"{seconds[i, number] / seconds[j, number]:.1f}" for i, j in ratios),
            *(f"{ranks[methods.index(name), number]:.0f}" for name in ours),
        ]
        for number, dataset in enumerate(datasets)
    ]
    of_ratios = [f"{methods[i]} / {methods[j]}" for i, j in ratios]
    return markdown(["s", *timed, *of_ratios, *(f"rank of {name}" for name in ours)], rows)


def mean_ranks(errors: NDArray) -> NDArray:
    """Ranks of the mean errors, averaged over the datasets."""
    means = np.nanmean(errors, axis=2)
    # A method without a result on a dataset has the last rank there.
    return rankdata(np.where(np.isnan(means), np.inf, means), axis=0).mean(axis=1)


def better_of(raw: NDArray, standardized: NDArray) -> NDArray:
    """The errors of the Euclidean distance with the lower mean."""
    return raw if raw.mean() <= standardized.mean() else standardized


def summary(records: list[Record], datasets: Sequence[str], methods: Sequence[str]) -> str:
    """One row per method: measure, ratio to the reference, worst dataset, rank, seconds."""
    errors = values_of(records, datasets, methods)
    seconds = np.nanmean(values_of(records, datasets, methods, "seconds"), axis=2)
    means = np.nanmean(errors, axis=2)
    euclidean = np.minimum(*(means[methods.index(name)] for name in ("raw", "standardized")))
    ranks = mean_ranks(errors)
    rows = []
    for number, method in enumerate(methods):
        ratios = (means[number] + 0.25) / (euclidean + 0.25)
        value, n_datasets = np.exp(np.nanmean(np.log(ratios))), int(np.isfinite(ratios).sum())
        against = ""
        if REFERENCE in methods and method != REFERENCE:
            logs = np.log((errors[number] + 0.25) / (errors[methods.index(REFERENCE)] + 0.25))
            known = np.isfinite(logs).sum(axis=1)
            logs, known = logs[known > 1], known[known > 1]
            # The splits of different datasets are independent, and not equally many.
            variance = np.sum(np.nanvar(logs, axis=1, ddof=1) / known) / len(known) ** 2
            mean, spread = np.nanmean(logs, axis=1).mean(), 1.96 * np.sqrt(variance)
            low, high = np.exp([mean - spread, mean + spread])
            against = f"{np.exp(mean):.2f} ({low:.2f} to {high:.2f})"
        rows.append([
            method + (f" ({n_datasets} datasets)" if n_datasets < len(datasets) else ""),
            f"{value:.3f}",
            against,
            f"{np.nanmax(ratios):.2f}",
            f"{ranks[number]:.1f}",
            f"{np.nanmean(seconds[number]):.2f}",
        ])  # fmt: skip
    header = ["measure", f"ratio to {REFERENCE}", "worst", "mean rank", "s"]
    return markdown([f"{len(datasets)} datasets", *header], rows)


def small_table(records: list[Record], datasets: Sequence[str], methods: Sequence[str]) -> str:
    """Errors, and intervals of the difference to the better of the two Euclidean distances."""
    errors, rows = values_of(records, datasets, methods), []
    for number, dataset in enumerate(datasets):
        raw, standardized, *others = errors[:, number]
        best = better_of(raw, standardized)
        n, n_features = data_of(dataset, 0)[0].shape
        row = [dataset, f"{n}, {n_features}", f"{raw.mean():.1f}", f"{standardized.mean():.1f}"]
        for ours in others:
            low, high = interval((ours - best)[np.isfinite(ours)])
            row += [
                f"{np.nanmean(ours):.1f}",
                f"{low:+.1f} to {high:+.1f}" + (" ✗" if low > 0 else ""),
            ]
        rows.append(row)
    columns = [name for method in methods[2:] for name in (method, "difference")]
    return markdown(["", "n, D", "raw", "standardized", *columns], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Quality of the defaults")
    parser.add_argument("--splits", type=int, default=N_SPLITS, help="of all groups except small")
    parser.add_argument("--group", choices=list(GROUPS), help="default: eleven and sklearn")
    parser.add_argument("--datasets", nargs="+", help="instead of all datasets of the group")
    names = [*METHODS, *PEERS]
    parser.add_argument("--methods", nargs="+", default=names, choices=names)
    parser.add_argument("--setting", nargs="+", help="parameters of BoostMetric, name=value")
    parser.add_argument("--again", action="store_true", help="measure our methods again")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    datasets = options.datasets or (GROUPS[options.group] if options.group else (*ELEVEN, *SKLEARN))
    setting = " ".join(options.setting) if options.setting else None
    if options.group == "small":
        ours = [setting] if setting else ["BoostMetric()", "BoostMetricCV()"]
        of_triplets = [name for name in datasets if name.startswith("triplets")]
        of_labels = [name for name in datasets if name not in of_triplets]
        tables = []
        for chosen, others in ((of_labels, []), (of_triplets, [] if setting else [ITML])):
            methods = ["raw", "standardized", *ours, *others]
            if chosen:
                tables.append(
                    small_table(
                        run(chosen, methods, N_SMALL_SPLITS, options.again), chosen, methods
                    )
                )
        text = "\n\n".join(tables)
        title = "Quality of the defaults with little data"
    else:
        chosen = [REFERENCE, "BoostMetric()", setting] if setting else options.methods
        methods = list(dict.fromkeys(["raw", "standardized", *chosen]))
        if {"LMNN", "SCML"} & {*methods} and not peers_python().exists():
            sys.exit("metric-learn has its own environment: run `make peers` first")
        records = run(datasets, methods, options.splits, options.again)
        parts = [datasets] if options.group else [ELEVEN, datasets]
        summaries = [summary(records, part, methods) for part in parts if {*part} <= {*datasets}]
        tables = [table(records, datasets, methods) for table in (error_table, seconds_table)]
        text = "\n\n".join([*tables, *summaries])
        title = "Quality of the defaults" + (f": {options.group}" if options.group else "")
    print(text)
    if options.write:
        given = [each for each in sys.argv[1:] if each not in ("--again", "--write")]
        report.write_section(title, shlex.join(["quality.py", *given]), text)


if __name__ == "__main__":
    main()
