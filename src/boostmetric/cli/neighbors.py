"""The command `neighbors`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from boostmetric.cli import options as o
from boostmetric.cli.console import UsageError, say, show, show_json
from boostmetric.cli.console import table as text_table


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
        int, typer.Option(min=0, metavar="N", help="Points to print without --row; 0 prints all.")
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

    The neighbors of rows of DATA (--row), of the points of another table (--query), or of the first
    rows of DATA. A row is not its own neighbor.
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
    n_queries = len(queries)
    numbers = np.array(row) if row else np.arange(n_queries)[: limit or None]

    # A row of DATA finds itself, or a duplicate of itself: one more neighbor is searched.
    n_found = min(k + (query is None), len(Z))
    index = NearestNeighbors(n_neighbors=n_found, n_jobs=jobs).fit(Z)
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
    if len(numbers) < n_queries and not row:
        say(
            f"These are the first {len(numbers)} of {n_queries} points. Use --row to choose, or "
            "--limit 0 for all."
        )
