"""The paper's numbers as stored, against the tables of its LaTeX source."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from boostmetric_paper.experiments.methods import METHODS
from boostmetric_paper.experiments.paper import PAPER, paper_score
from boostmetric_paper.experiments.registry import EXPERIMENTS

DATASETS = EXPERIMENTS["table1"].datasets
TITLES = [method.title for name, method in METHODS.items() if name not in ("hinge", "recipe")]

Cells = dict[tuple[str, str], Any]  # by row and column

SIZE_ROWS = {
    "# of samples": "samples",
    "# of triplets": "triplets",
    "dimension": "dimension",
    "dimension after PCA": "pca_dimension",
    "# of samples for training": "training",
    "# cross validation samples": "validation",
    "# test samples": "test",
    "# of classes": "classes",
    "# of runs": "runs",
}


@pytest.fixture(scope="module")
def source() -> str:
    """The LaTeX of the paper, without comments."""
    path = os.environ.get("BOOSTMETRIC_PAPER")
    data = os.environ.get("BOOSTMETRIC_DATA")
    if not path and data:
        path = str(Path(data).resolve().parent / "paper" / "boostmetric.tex")
    if not path or not Path(path).is_file():
        pytest.skip("BOOSTMETRIC_PAPER names no file: the paper's source is not here to compare")
    return re.sub(r"(?<!\\)%.*", "", Path(path).read_text(encoding="utf-8"))


def rows_of(source: str, label: str) -> list[list[str]]:
    """The cells of the table with that label, plain text without LaTeX's commands."""
    (table,) = (
        body
        for _, body in re.findall(
            r"(?s)\\begin\{(sidewaystable|table\*?)\}(.*?)\\end\{\1\}", source
        )
        if f"\\label{{{label}}}" in body
    )
    tabular = re.search(r"(?s)\\begin\{tabular\}\{[^}]*\}(.*)\\end\{tabular\}", table)
    assert tabular
    text = tabular[1].replace("\\#", "#").replace("\\BoostMetric", "BoostMetric")
    text = re.sub(r"(?s)\\multirow.*?\\end\{sideways\}\}", "", text)
    text = re.sub(r"\\multicolumn\{2\}\{[^}]*\}", "&", text)
    text = re.sub(r"\\cline\{[^}]*\}|\\[a-zA-Z]+", "", text)
    text = re.sub(r"[{}$]", " ", text)
    return [[" ".join(cell.split()) for cell in row.split("&")] for row in text.split("\\\\")]


def score(cell: str) -> tuple[float, float | None] | None:
    found = re.fullmatch(r"([\d.]+)(?: \(([\d.]+)\))?", cell)
    return found and (float(found[1]), float(found[2]) if found[2] else None)


def seconds(cell: str) -> tuple[float, bool]:
    found = re.fullmatch(r"(less than )?([\d.]+)([hs])", cell)
    assert found, cell
    return round(float(found[2]) * {"h": 3600, "s": 1}[found[3]], 6), bool(found[1])


def table1(source: str) -> tuple[Cells, Cells, Cells]:
    """Sizes, errors and times of Table 1, each by row and column."""
    rows = rows_of(source, "Table:ExperimentalResults")
    sizes: Cells = {}
    errors: Cells = {}
    times: Cells = {}
    for _, name, *cells in (row for row in rows if len(row) == 9 and row[1]):
        for dataset, cell in zip(DATASETS, cells, strict=True):
            if not cell:
                continue
            if name in SIZE_ROWS:
                sizes[SIZE_ROWS[name], dataset] = int(cell.replace(",", ""))
            elif re.search(r"\d[hs]$", cell):
                times[name, dataset] = seconds(cell)
            else:
                errors[name, dataset] = score(cell)
    return sizes, errors, times


def test_sizes_of_table_1_are_the_papers(source: str) -> None:
    rows = PAPER["table1"]["datasets"]
    sizes, _, _ = table1(source)
    assert len(sizes) == 9 * 7 - 4
    assert {(row, name): n for row, cells in rows.items() for name, n in cells.items()} == sizes


def test_errors_of_table_1_are_the_papers(source: str) -> None:
    _, errors, _ = table1(source)
    assert len(errors) == 15 * 7 - 8
    cells = {(m, d): paper_score("table1", "errors", m, d) for m in TITLES for d in DATASETS}
    assert {cell: value for cell, value in cells.items() if value} == errors


def test_times_of_table_1_are_the_papers(source: str) -> None:
    _, _, times = table1(source)
    assert len(times) == 4 * 7
    ours = {
        (m, d): (n["less_than"], True) if isinstance(n, dict) else (n, False)
        for m, row in PAPER["table1"]["seconds"].items()
        for d, n in row.items()
    }
    assert ours == times


def test_table_2_is_the_papers(source: str) -> None:
    head, *rows = (row for row in rows_of(source, "Table:v") if len(row) == 6)
    columns = [f"v=1e-0{cell.split('-')[1]}" for cell in head[1:]]
    names = {"Bal": "balance", "B-Cancer": "b-cancer", "Diabetes": "diabetes"}
    papers = {
        (names[name], column): score(cell)
        for name, *cells in rows
        for column, cell in zip(columns, cells, strict=True)
    }
    assert len(papers) == 15
    assert papers == {
        (d, v): paper_score("table2", d, v) for d, row in PAPER["table2"].items() for v in row
    }


def test_object_categories_are_the_papers(source: str) -> None:
    head, *rows = (row for row in rows_of(source, "Table:objcate-acc") if len(row) == 4)
    *groups, average, deviation = ([float(cell) for cell in row[1:]] for row in rows)
    table = PAPER["table3"]
    assert len(groups) == 10
    for column, name in enumerate(head[1:]):
        assert table["groups"][name] == [row[column] for row in groups]
        assert table["average"][name] == [average[column], deviation[column]]


def test_face_accuracies_are_the_papers(source: str) -> None:
    head, *rows = (row for row in rows_of(source, "Table:lfw_error") if len(row) == 5)
    papers = {
        row[0].replace(",", ""): dict(zip(head[1:], map(score, row[1:]), strict=True))
        for row in rows
    }
    table = PAPER["table4"]["accuracies"]
    assert papers == {n: {d: tuple(cell) for d, cell in row.items()} for n, row in table.items()}


def test_accuracies_of_other_systems_are_the_papers(source: str) -> None:
    papers = {}
    for name, *cells in (row for row in rows_of(source, "Table:lfw_error2") if len(row) == 3):
        scores = {"single": score(cells[0]), "multiple": score(cells[1])}
        if any(scores.values()):
            papers[name] = {column: cell for column, cell in scores.items() if cell}
    table = PAPER["table5"]["accuracies"]
    ours = {n: {c: (*v, None)[:2] for c, v in row.items()} for n, row in table.items()}
    assert len(papers) == 11
    assert papers == ours


def test_eigenvalues_are_the_papers(source: str) -> None:
    found = re.search(r"are \$\\\{ ([\d., ]*), 0, \\cdots", source)
    assert found
    assert PAPER["circles"]["eigenvalues"] == [*map(float, found[1].split(","))]


def test_every_row_and_column_of_the_paper_is_computed() -> None:
    assert set(TITLES) == set(PAPER["table1"]["errors"]) > set(PAPER["table1"]["seconds"])
    assert set(EXPERIMENTS["table2"].datasets) == set(PAPER["table2"])
    for row in PAPER["table2"].values():
        assert set(row) <= set(EXPERIMENTS["table2"].methods)


def test_errors_on_motorbikes_are_those_in_the_text(source: str) -> None:
    text = " ".join(source.replace("\\%", "").replace("$", "").split())
    for name, row in PAPER["motorbikes"].items():
        (first, a), (second, b) = row["100-words"], row["200-words"]
        pattern = rf"{first} *\\pm *{a:.2f} *and *{second:.2f} *\\pm *{b}"
        assert re.search(pattern, text), name
