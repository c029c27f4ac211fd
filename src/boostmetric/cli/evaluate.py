"""The command `evaluate`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boostmetric.cli import options as o
from boostmetric.cli.console import CommandError, UsageError, say, show, show_json
from boostmetric.cli.console import table as text_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from boostmetric.metric import Metric

MEASURES = {
    "error": "{k}-NN error",
    "precision": "precision at {k}",
    "recall": "recall at {k}",
    "mean_average_precision": "MAP",
    "map_at_r": "MAP@R",
    "ndcg": "nDCG",
    "satisfied": "comparisons satisfied",
}
"""Titles of the measures, in the order of the table."""


def evaluate(
    files: Annotated[
        list[Path],
        o.argument(
            metavar="[METRIC] DATA",
            help="File written by `boostmetric fit`, and the points. METRIC is optional with --cv.",
        ),
    ],
    label: o.Label = None,
    test: Annotated[
        Path | None,
        o.input_file(help="Classify the points of this file; their neighbors are those in DATA."),
    ] = None,
    cv: Annotated[
        int | None, typer.Option("--cv", min=2, metavar="N", help="Cross-validate.")
    ] = None,
    k: o.Neighbors = 3,
    comparisons: o.Comparisons = None,
    kind: o.ComparisonKind = None,
    column: o.Column = None,
    drop: o.Drop = None,
    sep: o.Sep = None,
    decimal: o.Decimal = ".",
    dropna: o.DropNa = False,
    seed: o.Seed = 0,
    jobs: o.Jobs = None,
    json: o.Json = False,
) -> None:
    """Evaluate a metric by nearest neighbors.

    The raw and the standardized Euclidean distance are shown for comparison. --cv learns a metric
    in every fold, with the settings of METRIC or the defaults, and classifies the points of the
    fold. --test classifies the points of another file. Without either, every point is classified
    by the others, which is too optimistic if the metric was learned from them.
    """
    *metric_files, data = files
    if len(metric_files) > 1 or (not metric_files and cv is None):
        raise UsageError("Pass METRIC and DATA, or only DATA with --cv.")
    if cv is not None and (test or comparisons):
        raise UsageError("--cv cannot be used with --test or --comparisons.")
    if dropna and comparisons is not None:
        raise UsageError("--dropna cannot be used with --comparisons, which refer to row numbers.")

    import numpy as np

    from boostmetric.cli.tables import read_comparisons, read_table
    from boostmetric.evaluation import satisfied_share
    from boostmetric.metric import Metric

    metric = Metric.load(metric_files[0]) if metric_files else None
    reading: dict[str, Any] = {"sep": sep, "decimal": decimal, "metric": metric}
    reading["dropna"] = dropna if comparisons is None else None
    table = read_table(data, label, column, drop, **reading).dense()
    folds: list[dict[str, dict[str, float]]] = []
    if cv is not None:
        X, y = table.X, table.classes
        learner = _learner(metric, jobs)
        for number, (train, left_out) in enumerate(make_folds(y, cv, seed), start=1):
            say(f"Fold {number} of {cv}: learning from {len(train)} points")
            learned = learner.fit(X[train], y[train]).metric_
            folds.append(
                {
                    name: _scores(f(X[train]), y[train], f(X[left_out]), y[left_out], k, seed)
                    for name, f in distances(X[train], learned).items()
                }
            )
    else:
        assert metric is not None
        transforms = distances(table.X, metric)
        scores: dict[str, dict[str, float]] = {name: {} for name in transforms}
        if test is not None:
            other = read_table(test, label, column, drop, **reading).dense()
        if test is not None or comparisons is None or table.labels is not None:
            for name, f in transforms.items():
                W, y_test = (None, None) if test is None else (f(other.X), other.require_labels())
                scores[name] |= _scores(f(table.X), table.classes, W, y_test, k, seed)
        if comparisons is not None:
            compared = read_comparisons(comparisons, len(table.X), kind, sep=sep, decimal=decimal)
            for name, f in transforms.items():
                scores[name]["satisfied"] = satisfied_share(None, f(table.X), compared)
        folds.append(scores)
        if test is None and table.labels is not None:
            say(
                "Every point was classified by the others. If the metric was learned from these "
                "points, the result is too optimistic: use --cv 5, or --test with new points."
            )

    if json:
        show_json({"k": k, "folds": folds} if cv else {"k": k, **folds[0]})
        return
    rows = []
    for name, title in MEASURES.items():
        if name in folds[0]["learned"]:
            scale, digits, unit = (100, 1, "%") if name in ("error", "satisfied") else (1, 2, "")
            cells = []
            for distance in folds[0]:
                values = [scale * fold[distance][name] for fold in folds]
                spread = f" ± {np.std(values):.{digits}f}" if cv else ""
                cells.append(f"{np.mean(values):.{digits}f}{spread}{unit}")
            rows.append([title.format(k=k), *cells])
    show(text_table(["", *folds[0]], rows))


def make_folds(y: NDArray, n_folds: int, seed: int) -> list[tuple[NDArray, NDArray]]:
    """Return the training and test rows of stratified folds."""
    import numpy as np
    from sklearn.model_selection import StratifiedKFold

    counts = np.unique(y, return_counts=True)[1]
    if n_folds > counts.max():
        raise CommandError(
            f"--cv {n_folds} exceeds the {counts.max()} points of the largest class."
        )
    if n_folds > counts.min():
        say(
            f"Warning: the smallest class has fewer points ({counts.min()}) than folds ({n_folds})."
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        splits = StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(y, y)
        return list(splits)


def distances(X: NDArray, metric: Metric) -> dict[str, Callable[[Any], NDArray]]:
    """Return the transformations whose Euclidean distances are compared, by name."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(X)
    return {
        "raw": lambda points: points,
        "standardized": scaler.transform,
        "learned": metric.transform,
    }


def _scores(
    Z: NDArray, y: NDArray, W: NDArray | None, y_test: NDArray | None, k: int, seed: int
) -> dict[str, float]:
    """Evaluate the Euclidean distance: for test points W, or for every point and the others."""
    from boostmetric.evaluation import knn_error, retrieval_scores

    retrieved = retrieval_scores(
        *(Z, y, W, y_test),
        k=min(k, len(Z) - (W is None)),
        max_queries=2000,  # standard errors of at most 0.5/√2000 ≈ 0.01
        random_state=seed,
    )
    return {"error": knn_error(Z, y, W, y_test, k), **retrieved._asdict()}


def _learner(metric: Metric | None, jobs: int | None) -> Any:
    """Return an estimator with the settings that a metric was learned with, or the defaults."""
    from boostmetric.estimators import BoostMetric, BoostMetricCV

    if metric is None:
        return BoostMetric(n_jobs=jobs)
    origin = metric.origin or {}
    kinds: dict[Any, Any] = {"BoostMetric": BoostMetric, "BoostMetricCV": BoostMetricCV}
    name, parameters = origin.get("estimator"), origin.get("parameters")
    if not isinstance(name, str) or name not in kinds or not isinstance(parameters, dict):
        raise CommandError(
            "The metric does not contain the settings that it was learned with. Leave it out to "
            "evaluate the default settings with --cv."
        )
    known = kinds[name]().get_params()
    ignored = ("checkpoint", "engine", "n_jobs", "verbose", "warm_start")
    kept = {key: value for key, value in parameters.items() if key in known and key not in ignored}
    return kinds[name](**kept, n_jobs=jobs)
