"""Arguments and options that several commands have."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

SVMLIGHT = (".svm", ".svmlight", ".libsvm")
"""Suffixes of svmlight files."""


def _character(value: str | None) -> str | None:
    r"""Check a separator; \t stands for a tab, which shells do not pass easily."""
    value = "\t" if value == r"\t" else value
    if value is not None and len(value) != 1:
        raise typer.BadParameter(f"it must be a single character; got {value!r}.")
    return value


argument = partial(typer.Argument, exists=True, dir_okay=False, show_default=False)
input_file = partial(typer.Option, exists=True, dir_okay=False, metavar="FILE")
output_file = partial(typer.Option, "--output", "-o", dir_okay=False, metavar="FILE")
reading = partial(typer.Option, rich_help_panel="Reading the table")

Data = Annotated[
    Path,
    argument(
        metavar="DATA",
        help="Table of points: .csv, .tsv (also .gz), .parquet, .feather, .npy, .npz or .svm.",
    ),
]
MetricFile = Annotated[Path, argument(metavar="METRIC", help="File written by `boostmetric fit`.")]
Label = Annotated[
    str | None,
    typer.Option(
        *("--label", "-l"),
        metavar="COLUMN",
        help="Column with the class labels: a name, or a number for .npy; for .npz the name of an "
        "array. Not required for .npz with an array y, and for .svm.",
    ),
]
Column = Annotated[
    list[str] | None,
    reading(
        "--column",
        metavar="NAME",
        help="Use this column as a feature; repeat for several. By default all columns except the "
        "label, or those that the metric was learned from.",
    ),
]
Drop = Annotated[
    list[str] | None,
    reading("--drop", metavar="NAME", help="Ignore this column; repeat for several."),
]
Sep = Annotated[
    str | None,
    reading(
        "--sep",
        metavar="CHAR",
        callback=_character,
        help="Column separator. By default a comma (.tsv: a tab).",
    ),
]
Decimal = Annotated[
    str, reading("--decimal", metavar="CHAR", callback=_character, help="Decimal separator.")
]
DropNa = Annotated[bool, reading("--dropna", help="Ignore rows with missing values.")]
Comparisons = Annotated[
    Path | None,
    input_file(
        *("--comparisons", "-c"),
        help="Table of comparisons. Rows are a,b,c (a is closer to b than to c), a,b,c,d (a and b "
        "are closer than c and d), or i,j,1 and i,j,-1 (similar and dissimilar); the letters are "
        "row numbers of DATA, starting at 0.",
    ),
]
ComparisonKind = Annotated[
    Literal["triplets", "quadruplets", "pairs"] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="triplets, quadruplets or pairs. By default inferred from the columns.",
    ),
]
Neighbors = Annotated[int, typer.Option("-k", min=1, metavar="K", help="Number of neighbors.")]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Random seed.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, metavar="N", help="Number of threads. By default all cores."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
