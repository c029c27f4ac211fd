"""The command `plot`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from boostmetric.cli import options as o
from boostmetric.cli.console import CommandError, UsageError, check_output, show

FORMATS = (".png", ".pdf", ".svg")


Picture = StrEnum("Picture", ["projection", "spectrum", "convergence", "distances", "roc"])
"""Kinds of plots."""

WITH_POINTS = (Picture.projection, Picture.distances, Picture.roc)


def plot(
    metric: o.MetricFile,
    output: Annotated[Path, o.output_file(help=f"File for the plot: {', '.join(FORMATS)}.")],
    data: Annotated[
        Path | None,
        o.argument(metavar="DATA", help=f"Table of points, for {', '.join(WITH_POINTS)}."),
    ] = None,
    kind: Annotated[
        Picture, typer.Option("--kind", metavar="KIND", help=f"{', '.join(Picture)}.")
    ] = Picture.projection,
    label: o.Label = None,
    force: o.Force = False,
    column: o.Column = None,
    drop: o.Drop = None,
    sep: o.Sep = None,
    decimal: o.Decimal = ".",
    dropna: o.DropNa = False,
) -> None:
    """Plot a metric, or points before and after the transformation.

    projection: the points in the plane of their two leading principal components, before and after;
    spectrum: eigenvalues and features; convergence: the history of the fit; distances and roc: how
    well distances separate pairs of the same class from other pairs (requires labels).
    """
    check_output(output, force, [metric, data])
    if output.suffix.lower() not in FORMATS:
        raise UsageError(f"The name of the plot must end in {', '.join(FORMATS)}; got {output}.")
    if kind in WITH_POINTS and data is None:
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
    if data is not None and kind in WITH_POINTS:
        reading: dict[str, Any] = {"sep": sep, "decimal": decimal, "dropna": dropna}
        table = read_table(data, label, column, drop, metric=learned, **reading)
        points = (table.X, table.labels if kind is Picture.projection else table.classes)
    displays: dict[str, Any] = {
        "projection": plots.ProjectionDisplay,
        "spectrum": plots.SpectrumDisplay,
        "convergence": plots.ConvergenceDisplay,
        "distances": plots.PairDistanceDisplay,
        "roc": plots.PairDistanceDisplay,
    }
    given = {"kind": "roc"} if kind is Picture.roc else {}
    try:
        title = str(metric.name if data is None else data.name)
        display = displays[kind].from_estimator(learned, *points, title=title, **given)
    except (AttributeError, LookupError, TypeError) as error:  # an origin that a user has written
        if kind is not Picture.convergence:
            raise
        raise CommandError(f"{metric} has no valid history of a fit ({error}).") from None
    with atomic_write(output) as temporary:
        display.figure_.savefig(temporary, format=output.suffix.lower()[1:], dpi=150)
    show(f"Saved {output}.")
