"""Results for other programs and for the eye: a table of cells as CSV, and a picture."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from boostmetric._files import whole
from boostmetric_paper.experiments.cells import Cell, Record, Results
from boostmetric_paper.experiments.outcomes import read_outcomes
from boostmetric_paper.experiments.vision_figures import FIGURES


def write_outputs(results: Results, experiment: str) -> list[Path]:
    """Write the cells as CSV, and the figure where there is one and it can be drawn, beside them.

    Returns
    -------
    paths : of the files that were written
    """
    records = results.read()
    if not records:
        return []
    table = results.path.with_suffix(".csv")
    with whole(table) as temporary:
        _write_table(records, temporary)
    if experiment not in FIGURES or not _can_draw():
        return [table]
    picture = results.path.with_suffix(".png")
    figure = FIGURES[experiment](read_outcomes(results.path, experiment))
    with whole(picture) as temporary:
        figure.savefig(temporary, format="png")
    return [table, picture]


def _write_table(records: Mapping[Cell, Record], path: Path) -> None:
    """A row for each cell, a column for each number or text that any of them has."""
    ordered = [records[cell] for cell in sorted(records)]
    columns = dict.fromkeys(
        key
        for record in ordered
        for key, value in record.items()
        if isinstance(value, int | float | str)
    )
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)


def _can_draw() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True
