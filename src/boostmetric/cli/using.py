"""The commands that use a metric: transform, neighbors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from boostmetric.cli.command import CommandError, aligned, check_output, natural, show_json
from boostmetric.cli.options import (
    Columns,
    Data,
    Drop,
    Force,
    Jobs,
    Json,
    Label,
    MetricFile,
    Neighbors,
    read,
)
from boostmetric.cli.reading import check_writable, write_table
from boostmetric.metric import Metric

TableOut = Annotated[
    Path,
    typer.Option(
        "--output", "-o", metavar="FILE", help=".csv, .tsv (also .gz), .parquet, .feather, .np[yz]."
    ),
]
Rows = Annotated[
    list[int] | None,
    typer.Option(
        "--row",
        parser=natural,
        metavar="I ...",
        help="Rows of DATA, counted from 0, to start from.",
    ),
]
Queries = Annotated[
    Path | None,
    typer.Option("--query", metavar="FILE", help="Other points, whose neighbours are looked for."),
]


class Neighbor(NamedTuple):
    """A row of DATA that is near to a query; `rank` 1 is the nearest."""

    query: int
    rank: int
    row: int
    distance: float
    label: Any


def transform(
    metric: MetricFile,
    data: Data,
    output: TableOut,
    label: Label = None,
    columns: Columns = None,
    drop: Drop = None,
    force: Force = False,
) -> None:
    """Write points whose Euclidean distance is the metric.

    Columns component0, component1, … by falling weight, and the label where it is named; it must
    have another name than these. Columns of DATA are matched by name, where the metric knows names,
    and others left out.
    """
    check_output(output, force, [metric, data])
    check_writable(output, has_labels=label is not None)
    learned = Metric.load(metric)
    table = read(data, label, columns, drop, learned)
    points = learned.transform(table.X)
    names = [f"component{number}" for number in range(points.shape[1])]
    labels = table.labels if label is not None else None
    write_table(output, points, names, labels, label=label or "label")
    print(f"Saved: {output}, {points.shape[0]} points of {points.shape[1]} components")


def neighbors(
    metric: MetricFile,
    data: Data,
    row: Rows = None,
    query: Queries = None,
    k: Neighbors = 5,
    label: Label = None,
    columns: Columns = None,
    drop: Drop = None,
    jobs: Jobs = 1,
    json: Json = False,
) -> None:
    """Print the nearest points in DATA, by the metric.

    Of the rows that --row names, of the points of another file (--query), or of every row. Rows are
    counted from 0; a row is not its own neighbour.
    """
    if row and query is not None:
        raise CommandError("--row and --query cannot be given together: leave one of them out.")
    learned = Metric.load(metric)
    table = read(data, label, columns, drop, learned)
    Z, rows = learned.transform(table.X), None
    if query is None:
        rows = np.array(row) if row else np.arange(len(Z))
        if rows.max() >= len(Z):
            raise CommandError(f"{data} has the rows 0 to {len(Z) - 1}; got --row {rows.max()}.")
        queries = Z[rows]
    else:
        queries = learned.transform(read(query, None, columns, drop, learned).X)
    found = list(_nearest(Z, table.labels, queries, rows, k, jobs))
    if json:
        show_json([each._asdict() for each in found])
        return
    n_shown = 5 if table.labels is not None else 4
    texts = [
        [str(each.query), str(each.rank), str(each.row), f"{each.distance:.6g}"] for each in found
    ]
    lines = [[*text, str(each.label)][:n_shown] for text, each in zip(texts, found, strict=True)]
    print(*aligned([list(Neighbor._fields[:n_shown]), *lines], left={4}), sep="\n")


def _nearest(
    Z: NDArray, labels: NDArray | None, queries: NDArray, rows: NDArray | None, k: int, jobs: int
) -> Iterator[Neighbor]:
    """The k nearest of Z to each query; where queries are `rows` of Z, these are left out."""
    wanted = min(k + (rows is not None), len(Z))
    index = NearestNeighbors(n_neighbors=wanted, n_jobs=jobs).fit(Z)
    for number, (distances, found) in enumerate(zip(*index.kneighbors(queries), strict=True)):
        query = number if rows is None else int(rows[number])
        pairs = list(zip(distances.tolist(), found.tolist(), strict=True))
        others = [pair for pair in pairs if rows is None or pair[1] != query][:k]
        for rank, (distance, row) in enumerate(others, start=1):
            label = None if labels is None else labels[row].item()
            yield Neighbor(query, rank, row, distance, label)
