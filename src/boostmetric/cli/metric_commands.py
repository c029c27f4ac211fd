"""The commands that use a learned metric: `transform`, `neighbors`, `inspect` and `plot`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from boostmetric.cli import options as o
from boostmetric.cli.console import CommandError, UsageError, say, show, show_json
from boostmetric.cli.console import table as text_table
from boostmetric.cli.fit import ENDINGS

if TYPE_CHECKING:
    from rich.table import Table


def transform(
    metric: o.MetricFile,
    data: o.Data,
    output: Annotated[
        Path,
        o.output_file(help="File: .csv, .tsv (also .gz), .parquet, .feather, .npy or .npz."),
    ],
    label: o.Label = None,
    force: o.Force = False,
    column: o.Column = None,
    drop: o.Drop = None,
    sep: o.Sep = None,
    decimal: o.Decimal = ".",
) -> None:
    """Write transformed points, whose Euclidean distance is the learned distance.

    The columns are component0, component1, … by decreasing weight, followed by the label if --label
    is given. If the metric has feature names, columns of DATA are selected by name.
    """
    from boostmetric.cli.tables import check_format, read_table, write_points
    from boostmetric.metric import Metric

    check_format(output, has_labels=label is not None)
    learned = Metric.load(metric)
    table = read_table(data, label, column, drop, sep=sep, decimal=decimal, metric=learned)
    points = learned.transform(table.X)
    write_points(output, points, table.labels if label else None, label or "label")
    show(f"Saved {output}: {points.shape[0]} points, {points.shape[1]} components.")


def neighbors(
    metric: o.MetricFile,
    data: o.Data,
    row: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="I", help="Row of DATA, starting at 0; repeat for several."),
    ] = None,
    query: Annotated[
        Path | None, o.input_file(help="Table of other points to search the neighbors of.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="Number of points without --row; 0 for all.")
    ] = 10,
    k: o.Neighbors = 5,
    label: o.Label = None,
    column: o.Column = None,
    drop: o.Drop = None,
    sep: o.Sep = None,
    decimal: o.Decimal = ".",
    jobs: o.Jobs = None,
    json: o.Json = False,
) -> None:
    """Print the nearest points in DATA by the learned metric.

    Searches the neighbors of rows of DATA (--row), of the points of another table (--query), or by
    default of the first rows of DATA. A row is not its own neighbor.
    """
    if row and query is not None:
        raise UsageError("--row cannot be used with --query.")

    import numpy as np
    from sklearn.neighbors import NearestNeighbors

    from boostmetric.cli.tables import read_table
    from boostmetric.metric import Metric

    learned = Metric.load(metric)
    reading: dict[str, Any] = {"sep": sep, "decimal": decimal, "metric": learned}
    table = read_table(data, label, column, drop, **reading)
    Z = learned.transform(table.X)
    if row and max(row) >= len(Z):
        raise UsageError(f"{data} has rows 0 to {len(Z) - 1}; got --row {max(row)}.")
    queries = Z
    if query is not None:
        queries = learned.transform(read_table(query, None, column, drop, **reading).X)
    numbers = np.array(row) if row else np.arange(len(queries))[: limit or None]

    # A row of DATA finds itself, or a duplicate of itself: search one more neighbor.
    index = NearestNeighbors(n_neighbors=min(k + (query is None), len(Z)), n_jobs=jobs).fit(Z)
    found: list[dict[str, Any]] = []
    for number, *nearest in zip(numbers, *index.kneighbors(queries[numbers]), strict=True):
        pairs = zip(*nearest, strict=True)
        others = [pair for pair in pairs if query is not None or pair[1] != number][:k]
        for rank, (distance, i) in enumerate(others, start=1):
            each = {"query": int(number), "rank": rank, "row": int(i), "distance": float(distance)}
            found.append(
                each if table.labels is None else {**each, "label": table.labels[i].item()}
            )
    if json:
        show_json(found)
    else:
        rows = [
            [f"{v:.6g}" if isinstance(v, float) else v for v in each.values()] for each in found
        ]
        show(text_table(found[0] if found else [], rows, left=[4]))
    if len(numbers) < len(queries) and not row:
        choice = "" if query is not None else "--row for others, or "
        say(f"Printed {len(numbers)} of {len(queries)} points. Use {choice}--limit 0 for all.")


def inspect(
    metric: o.MetricFile,
    top: Annotated[
        int,
        typer.Option("--top", min=1, metavar="N", help="Number of eigenvalues and features."),
    ] = 10,
    json: o.Json = False,
) -> None:
    """Print the eigenvalues, features and settings of a metric.

    The importance of a feature is its diagonal entry of M times its variance in the training data,
    as a fraction of the sum over all features. It does not depend on the units of the features.
    """
    from boostmetric.metric import Metric

    learned = Metric.load(metric)
    eigenvalues, importances = learned.eigenvalues.tolist(), learned.feature_importances
    names = learned.feature_names or tuple(f"x{i}" for i in range(learned.n_features))
    features = {names[i]: float(importances[i]) for i in (-importances).argsort(kind="stable")}
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
    show("", "How it was learned", *(f"  {line}" for line in _facts(origin)))


def _bars(values: Mapping[str, float], top: int) -> list[str | Table]:
    """Build a table of the first values with bars, and the number of the others."""
    if not values or max(values.values()) <= 0:
        return ["  none: the metric is 0"]
    largest, total = max(values.values()), sum(values.values())
    rows = [
        [f"  {name}", f"{value:.4g}", f"{value / total:.1%}", "█" * round(30 * value / largest)]
        for name, value in list(values.items())[:top]
    ]
    more = [f"  … and {len(values) - top} more (--top)"] if len(values) > top else []
    return [text_table([""] * 4, rows, left=[0, 3]), *more]


def _facts(origin: Mapping[str, Any]) -> list[str]:
    """Describe the fit in lines. Values may have any type, since users can set an origin."""
    if not isinstance(origin.get("estimator"), str):
        facts = [f"{name}: {value!s:.200}" for name, value in origin.items()]
        return facts or ["unknown: the file has no information about the fit."]

    from boostmetric.estimators import BoostMetric

    units = {"n_samples": "points", "n_comparisons": "comparisons", "n_iter": "directions"}
    counts = [
        f"{origin[name]:,} {unit}"
        for name, unit in units.items()
        if isinstance(origin.get(name), int)
    ]
    # Settings that change the metric, if they are not the default.
    defaults, given = BoostMetric().get_params(), dict[str, Any]()
    for part in (origin.get("parameters"), origin.get("best_params")):
        given |= part if isinstance(part, dict) else {}
    without_effect = ("checkpoint", "n_jobs", "random_state", "verbose", "warm_start")
    changed = [
        f"{name}={value}"
        for name, value in given.items()
        if name not in without_effect and value is not None and value != defaults.get(name)
    ]
    lines = [
        f"{origin['estimator']}, boostmetric {origin.get('boostmetric', '(unknown version)')}, "
        f"{origin.get('made', 'unknown date')}",
        ", ".join(counts),
        f"Settings: {', '.join(changed)[:200] or 'defaults'}",
    ]
    status = origin.get("status")
    if isinstance(status, str) and status in ENDINGS:
        interrupted = status == "STOPPED" and not given.get("early_stopping")
        lines.append(ENDINGS["INTERRUPTED" if interrupted else status])
    return [line for line in lines if line]


Kind = Literal["projection", "distances", "roc", "spectrum", "convergence"]


def plot(
    metric: o.MetricFile,
    output: Annotated[Path, o.output_file(help="File for the plot: .png, .pdf or .svg.")],
    data: Annotated[
        Path | None,
        o.argument(metavar="DATA", help="Table of points, for projection, distances and roc."),
    ] = None,
    kind: Annotated[
        Kind, typer.Option("--kind", metavar="KIND", help=f"{', '.join(get_args(Kind))}.")
    ] = "projection",
    label: o.Label = None,
    force: o.Force = False,
    column: o.Column = None,
    drop: o.Drop = None,
    sep: o.Sep = None,
    decimal: o.Decimal = ".",
    dropna: o.DropNa = False,
) -> None:
    """Plot a metric, or points before and after the transformation.

    projection: the points on their first two principal axes, before and after; distances and roc:
    how well distances separate pairs of the same class from other pairs (requires labels);
    spectrum: eigenvalues and features; convergence: the history of the fit.
    """
    if output.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise UsageError(f"The name of the plot must end in .png, .pdf or .svg; got {output}.")
    needs_points = kind in ("projection", "distances", "roc")
    if needs_points and data is None:
        raise UsageError(f"--kind {kind} requires DATA.")
    try:
        import matplotlib
    except ImportError:
        raise CommandError(
            "plots require matplotlib. Install it with: pip install 'boostmetric[plots]'"
        ) from None
    matplotlib.use("Agg")

    from boostmetric import plots
    from boostmetric._files import atomic_write
    from boostmetric.cli.tables import read_table
    from boostmetric.metric import Metric

    learned = Metric.load(metric)
    points: tuple[Any, ...] = ()
    if data is not None and needs_points:
        reading: dict[str, Any] = {"sep": sep, "decimal": decimal, "dropna": dropna}
        table = read_table(data, label, column, drop, metric=learned, **reading)
        points = (table.X, table.labels if kind == "projection" else table.classes)
    display_class: Any = {
        "projection": plots.ProjectionDisplay,
        "distances": plots.PairDistanceDisplay,
        "roc": plots.PairDistanceDisplay,
        "spectrum": plots.SpectrumDisplay,
        "convergence": plots.ConvergenceDisplay,
    }[kind]
    given = {"kind": "roc"} if kind == "roc" else {}
    title = str(metric.name if data is None else data.name)
    try:
        display = display_class.from_estimator(learned, *points, title=title, **given)
    except (AttributeError, LookupError, TypeError) as error:  # an origin that a user has set
        if kind != "convergence":
            raise
        raise CommandError(f"{metric} has no valid history of a fit ({error}).") from None
    with atomic_write(output) as temporary:
        display.figure_.savefig(temporary, format=output.suffix.lower()[1:], dpi=150)
    show(f"Saved {output}.")
    if kind in ("distances", "roc"):
        say("If the metric was learned from these points, the plot is too optimistic.")
