"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boostmetric.cli.command import CommandError, count, natural, one_of
from boostmetric.cli.reading import KINDS, Table, read_table
from boostmetric.metric import Metric

Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="The points: .csv, .tsv (also .gz), .parquet, .feather, .npy, .npz or .svm.",
        show_default=False,
    ),
]
MetricFile = Annotated[
    Path,
    typer.Argument(metavar="METRIC", help="A file that `fit` wrote.", show_default=False),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        "-l",
        metavar="COLUMN",
        help="The column of labels: its name, in .npy its number, in .npz the name of an array. "
        "Not needed for y of .npz, and for .svm.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="NAME ...",
        help="The features, all words up to the next option. By default all but the label, or "
        "those that the metric names.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="NAME ...", help="Columns that are no features."),
]
ComparisonFile = Annotated[
    Path | None,
    typer.Option(
        "--comparisons",
        "-c",
        metavar="FILE",
        help="Rows a,b,c (a is closer to b than to c), a,b,c,d (a and b are closer than c and d) "
        "or i,j,1 and i,j,-1 (similar or not). The letters are row numbers of DATA, from 0.",
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        parser=one_of(KINDS),
        metavar="KIND",
        help=f"Of the comparisons: {', '.join(KINDS)}. By default told from the columns.",
    ),
]
Neighbors = Annotated[
    int, typer.Option("-k", parser=count, metavar="K", help="Number of neighbours.")
]
Folds = Annotated[
    int | None,
    typer.Option("--cv", parser=count, metavar="N", help="Number of folds of cross-validation."),
]
Seed = Annotated[
    int,
    typer.Option("--seed", parser=natural, metavar="N", help="Of all that is drawn at random."),
]
Jobs = Annotated[
    int,
    typer.Option("--jobs", parser=count, metavar="N", help="Threads that look for neighbours."),
]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there already.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


def labelled(table: Table, path: Path, instead: str = "") -> Table:
    """The same table; a CommandError unless it has labels."""
    if table.labels is None:
        raise CommandError(unlabelled(path, instead))
    return table


def unlabelled(path: Path, instead: str = "") -> str:
    """What to say where labels are missing."""
    other = f", {instead}" if instead else ""
    return f"which column of {path} holds the labels? Name it by --label{other}."


def read(
    data: Path,
    label: str | None,
    columns: list[str] | None,
    drop: list[str] | None,
    like: Metric | None = None,
) -> Table:
    """The points of a file, as `read_table` reads them; versions of typer give None or []."""
    return read_table(data, label=label, columns=columns or None, drop=drop or (), like=like)
