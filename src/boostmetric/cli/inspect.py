"""The command `inspect`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boostmetric.cli import options as o
from boostmetric.cli.console import show, show_json
from boostmetric.cli.console import table as text_table

if TYPE_CHECKING:
    from rich.table import Table

    from boostmetric.metric import Metric

BAR_WIDTH = 30

WITHOUT_EFFECT = ("checkpoint", "n_jobs", "random_state", "verbose", "warm_start")
"""Parameters that are not shown: they do not change the metric."""


def inspect(
    metric: o.MetricFile,
    top: Annotated[
        int,
        typer.Option("--top", min=1, metavar="N", help="Number of eigenvalues and features."),
    ] = 10,
    json: o.Json = False,
) -> None:
    """Print what a metric consists of, and how it was learned.

    The importance of a feature is its diagonal entry of M times its variance in the training data,
    as a share of the sum over all features. It does not depend on the units of the features.
    """
    from boostmetric.metric import Metric

    learned = Metric.load(metric)
    eigenvalues = learned.eigenvalues.tolist()
    features = _importances(learned)
    origin = {k: v for k, v in (learned.origin or {}).items() if k not in ("history", "deviations")}
    if json:
        show_json(
            {
                "rank": len(eigenvalues),
                "n_features": learned.n_features,
                "eigenvalues": eigenvalues[:top],
                "feature_importances": dict(list(features.items())[:top]),
                "origin": origin,
            }
        )
        return
    show(f"{metric}: a metric of rank {len(eigenvalues)} over {learned.n_features} features")
    numbered = {str(number): value for number, value in enumerate(eigenvalues, start=1)}
    show("", "Eigenvalues", *_bars(numbered, top))
    is_known = learned.feature_deviations is not None
    title = "M_ii times variance" if is_known else "M_ii; the variances are unknown"
    show("", f"Features by importance ({title})", *_bars(features, top))
    show("", "How it was learned", *(f"  {line}" for line in _history(origin)))


def _importances(metric: Metric) -> dict[str, float]:
    """Features by decreasing importance."""
    names = metric.feature_names or tuple(f"x{i}" for i in range(metric.n_features))
    values = metric.feature_importances
    return {names[i]: float(values[i]) for i in (-values).argsort(kind="stable")}


def _bars(values: Mapping[str, float], top: int) -> list[str | Table]:
    """A table of the first values with bars, and a line about the others."""
    if not values or max(values.values()) <= 0:
        return ["  none: the metric is 0"]
    largest, total = max(values.values()), sum(values.values())
    rows = [
        [
            f"  {name}",
            f"{value:.4g}",
            f"{value / total:.1%}",
            "█" * round(BAR_WIDTH * value / largest),
        ]
        for name, value in list(values.items())[:top]
    ]
    parts: list[str | Table] = [text_table(["", "", "", ""], rows, left=[0, 3])]
    parts[0].show_header = False  # type: ignore[union-attr]
    if len(values) > top:
        parts.append(f"  … and {len(values) - top} more (--top)")
    return parts


def _history(origin: Mapping[str, Any]) -> list[str]:
    """Lines about the fit; users may have written an origin themselves."""
    if not isinstance(origin.get("estimator"), str):
        facts = [f"{name}: {value!s:.200}" for name, value in origin.items()]
        return facts or ["unknown: the file has no information about the fit."]

    from boostmetric.cli.fit import ending_of
    from boostmetric.estimators import BoostMetric
    from boostmetric.solvers import Status

    counts = [
        f"{origin[name]:,} {unit}"
        for name, unit in (
            ("n_samples", "points"),
            ("n_comparisons", "comparisons"),
            ("n_iter", "directions"),
        )
        if isinstance(origin.get(name), int)
    ]
    defaults, given = BoostMetric().get_params(), dict[str, Any]()
    for part in (origin.get("parameters"), origin.get("best_params")):
        given |= part if isinstance(part, dict) else {}
    changed = [
        f"{name}={value}"
        for name, value in given.items()
        if name not in WITHOUT_EFFECT and value is not None and value != defaults.get(name)
    ]
    lines = [
        f"{origin['estimator']}, boostmetric {origin.get('boostmetric', '(unknown version)')}, "
        f"{origin.get('made', 'unknown date')}",
        ", ".join(counts),
        f"Settings: {', '.join(changed)[:200] or 'defaults'}",
    ]
    status = origin.get("status")
    if isinstance(status, str) and status in Status.__members__:
        interrupted = status == "STOPPED" and not given.get("early_stopping")
        lines.append(ending_of(Status[status], interrupted))
    return [line for line in lines if line]
