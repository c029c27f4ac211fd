"""The command `evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from boostmetric.cli.command import CommandError, aligned, say, show_json
from boostmetric.cli.options import (
    Columns,
    ComparisonFile,
    Drop,
    Folds,
    Jobs,
    Json,
    Kind,
    Label,
    Neighbors,
    Seed,
    labelled,
    read,
)
from boostmetric.cli.reading import Table, read_comparisons
from boostmetric.estimators import BoostMetric, BoostMetricCV
from boostmetric.evaluation.knn import knn_error, satisfied_share
from boostmetric.evaluation.retrieval import leave_one_out_error, retrieval_scores
from boostmetric.metric import Metric
from boostmetric.problem import Comparisons

MAX_QUERIES = 2000
"""Points, drawn at random, that precision, recall and MAP are computed of at most."""

MEASURES = {
    "error": "{k}-NN error",
    "precision": "precision at {k}",
    "recall": "recall at {k}",
    "mean_average_precision": "MAP",
    "map_at_r": "MAP at R",
    "ndcg": "nDCG",
    "satisfied": "comparisons satisfied",
}
"""What the measures are called in the table, in its order."""

FLATTERING = (
    "Every point was judged by its neighbours among the others. If the metric was learned from "
    "these points, that flatters it: judge by others (--test), or learn anew in each fold (--cv 5)."
)

Judged = dict[str, dict[str, float]]
"""Of a distance, by its name, the measures."""

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="[METRIC] DATA",
        help="A file that `fit` wrote, and the points. METRIC may be left out with --cv.",
        show_default=False,
    ),
]
Test = Annotated[
    Path | None,
    typer.Option(
        "--test", metavar="FILE", help="Points to judge by; their neighbours are those in DATA."
    ),
]


def evaluate(
    files: Files,
    label: Label = None,
    test: Test = None,
    cv: Folds = None,
    k: Neighbors = 3,
    comparisons: ComparisonFile = None,
    kind: Kind = None,
    columns: Columns = None,
    drop: Drop = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    json: Json = False,
) -> None:
    """Judge a metric by nearest neighbours.

    The Euclidean distance stands beside it. With METRIC and DATA alone, every point is judged by
    its neighbours among the others, which flatters a metric that was learned from these points.
    --test judges by the points of another file. --cv learns anew in every fold, with the settings
    of METRIC or else the default ones, and judges by the points left out: the honest figure where
    there is only one file.
    """
    metric, data = _check(files, test, cv, comparisons)
    table = read(data, label, columns, drop, metric).dense()
    if comparisons is None:
        labelled(table, data, "" if cv else "or give --comparisons")
    judge = _Judge(k, seed, jobs)
    if metric is None or cv is not None:
        judged = judge.folds(_learner(metric, jobs), table, cv or 0)
    else:
        others = None
        if test is not None:
            others = labelled(read(test, label, columns, drop, metric), test).dense()
        judged = [judge.judged(metric, table, others)]
        if comparisons is not None:
            compared = read_comparisons(comparisons, kind=kind, n_points=len(table.X))
            _add_satisfied(judged[0], metric, table, compared)
        if test is None and table.labels is not None:
            say(FLATTERING)
    _show(judged, k, json)


def _check(
    files: list[Path], test: Path | None, cv: int | None, comparisons: Path | None
) -> tuple[Metric | None, Path]:
    """The metric, if there is one, and the file of the points."""
    *metrics, data = files
    if len(metrics) > 1:
        raise CommandError(f"one or two files are needed, [METRIC] DATA; got {len(files)}.")
    if cv is None and not metrics:
        raise CommandError("a METRIC is needed before DATA, or --cv to learn one in each fold.")
    if cv == 1:
        raise CommandError("--cv 1 leaves nothing to learn from: 2 folds at least are needed.")
    for name, other in (("--test", test), ("--comparisons", comparisons)):
        if cv is not None and other is not None:
            raise CommandError(f"--cv judges by parts of DATA: leave {name} out, or --cv.")
    return Metric.load(metrics[0]) if metrics else None, data


def _learner(metric: Metric | None, jobs: int) -> Any:
    """An estimator with the settings that a metric was learned with, or the default ones."""
    origin = (metric.origin if metric else None) or {}
    if metric is not None and not origin:
        raise CommandError("the metric does not say how it was learned: leave it out with --cv.")
    kinds: dict[str, Any] = {"BoostMetric": BoostMetric, "BoostMetricCV": BoostMetricCV}
    name, parameters = origin.get("estimator", "BoostMetric"), origin.get("parameters", {})
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise CommandError(f"the metric is one of {name!r:.80}, which cannot be refitted.")
    if not isinstance(parameters, dict):
        raise CommandError(
            f"the parameters in the metric, {parameters!r:.80}, are not those of an estimator: "
            "leave the metric out with --cv."
        )
    known = kind().get_params()
    kept = {name: value for name, value in parameters.items() if name in known}
    return kind(
        **{**kept, **{name: None for name in ("checkpoint",) if name in known}, "n_jobs": jobs}
    )


@dataclass(frozen=True)
class _Judge:
    """Judges distances by the k nearest neighbours."""

    k: int
    seed: int
    jobs: int

    def judged(self, metric: Metric, table: Table, test: Table | None) -> Judged:
        """The Euclidean distance and a metric, by the points of `test` or those of the table."""
        if table.labels is None:
            return {"Euclidean": {}, "learned": {}}
        other = (None, None) if test is None else (test.X, test.labels)
        return {
            "Euclidean": self._measures(table.X, table.labels, *other),
            "learned": self._measures(
                metric.transform(table.X),
                table.labels,
                None if test is None else metric.transform(test.X),
                other[1],
            ),
        }

    def folds(self, learner: Any, table: Table, n_folds: int) -> list[Judged]:
        """The same for every fold, with a metric that was learned from the other folds."""
        X, y = table.X, table.labels
        assert y is not None
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=self.seed)
        judged = []
        for number, (rest, left_out) in enumerate(folds.split(X, y), start=1):
            say(f"fold {number} of {n_folds}: learning from {len(rest)} points")
            metric = learner.fit(X[rest], y[rest]).metric_
            parts = (Table(X[rows], y[rows]) for rows in (rest, left_out))
            judged.append(self.judged(metric, *parts))
        return judged

    def _measures(
        self, Z: NDArray, y: NDArray, W: NDArray | None, labels: NDArray | None
    ) -> dict[str, float]:
        """Of points whose Euclidean distance is to be judged."""
        if W is None or labels is None:
            error = leave_one_out_error(Z, y, self.k, n_jobs=self.jobs)
        else:
            error = knn_error(Z, y, W, labels, self.k, n_jobs=self.jobs)
        found = retrieval_scores(
            *(Z, y, W, labels),
            k=min(self.k, len(Z) - (W is None)),
            max_queries=MAX_QUERIES,
            random_state=self.seed,
        )
        return {"error": error, **found._asdict()}


def _add_satisfied(judged: Judged, metric: Metric, table: Table, compared: Comparisons) -> None:
    D = metric.n_features
    plain = Metric(np.eye(D, dtype=table.X.dtype), np.ones(D, dtype=table.X.dtype))
    for name, each in (("Euclidean", plain), ("learned", metric)):
        judged[name]["satisfied"] = satisfied_share(each, table.X, compared)


def _show(judged: list[Judged], k: int, json: bool) -> None:
    """A table of the measures, with their spread over folds."""
    if json:
        show_json({"k": k, "folds": judged} if len(judged) > 1 else {"k": k, **judged[0]})
        return
    distances = list(judged[0])
    rows = [["", *distances]]
    for name, title in MEASURES.items():
        if name in judged[0]["learned"]:
            values = [[fold[distance][name] for fold in judged] for distance in distances]
            rows.append([title.format(k=k), *(_cell(name, each) for each in values)])
    print(*aligned(rows), sep="\n")


def _cell(name: str, values: list[float]) -> str:
    """The mean, and the standard deviation over folds; shares of points in per cent."""
    factor, digits, unit = (100, 1, " %") if name in ("error", "satisfied") else (1, 2, "")
    spread = f" ± {factor * np.std(values):.{digits}f}" if len(values) > 1 else ""
    return f"{factor * np.mean(values):.{digits}f}{spread}{unit}"
