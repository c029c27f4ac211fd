"""The command `transform`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from boostmetric.cli import options as o
from boostmetric.cli.console import check_output, show


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
    """Write points whose Euclidean distance is the learned metric.

    The columns are component0, component1, … by decreasing weight, followed by the label if --label
    is given. If the metric has feature names, columns of DATA are selected by name.
    """
    check_output(output, force, [metric, data])

    from boostmetric.cli.tables import check_format, read_table, write_points
    from boostmetric.metric import Metric

    check_format(output, label is not None)
    learned = Metric.load(metric)
    table = read_table(data, label, column, drop, sep=sep, decimal=decimal, metric=learned)
    points = learned.transform(table.X)
    write_points(output, points, table.labels if label else None, label or "label")
    show(f"Saved {output}: {points.shape[0]} points, {points.shape[1]} components.")
