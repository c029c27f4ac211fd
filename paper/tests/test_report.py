"""The report: numbers computed by hand, and the committed results."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boostmetric_paper.cli import main
from boostmetric_paper.experiments.report import mean_curve, write_report

# Older versions of Matplotlib with newer ones of pyparsing.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib")

ROOT = Path(__file__).parents[2]


def record(experiment: str, dataset: str, method: str, seed: int, **found: Any) -> dict[str, Any]:
    cell = {"experiment": experiment, "dataset": dataset, "method": method, "seed": seed}
    return {**cell, **found}


def tables_of(text: str) -> list[list[list[str]]]:
    """The tables of a Markdown text, each a list of rows."""
    blocks = re.findall(r"(?m)(?:^\|.*\|\n?)+", text)
    return [
        [[cell.strip() for cell in line[1:-1].split("|")] for line in block.splitlines()]
        for block in blocks
    ]


def report(folder: Path, *records: dict[str, Any]) -> list[list[list[str]]]:
    for each in records:
        with (folder / f"{each['experiment']}.jsonl").open("a") as file:
            file.write(json.dumps(each) + "\n")
    return tables_of(write_report(folder, folder / "report").read_text(encoding="utf-8"))


def row(table: list[list[str]], *names: str) -> list[str]:
    (found,) = (row for row in table if tuple(row[: len(names)]) == names)
    return found[len(names) :]


def test_table_1(tmp_path: Path) -> None:
    euclidean, lda = [0.03, 0.04, 0.05], [0.02, 0.01]
    errors, details, ratios, ranks, times, choices = report(
        tmp_path,
        *(record("table1", "usps", "euclidean", i, error=e) for i, e in enumerate(euclidean)),
        *(record("table1", "usps", "lda", i, error=e) for i, e in enumerate(lda)),
        record("table1", "usps", "lda", 2, failure="not finished in 600 s"),
        record("table1", "usps", "nca", 0, failure="needs more than 16 GB"),
        record("table1", "usps", "recipe", 0, error=0.5),  # replaced by the next line
        record(
            *("table1", "usps", "recipe", 0),
            error=0.01,
            error_nearest=0.02,
            fit_seconds=1.0,
            mining_seconds=0.5,
            chosen={"loss": "logistic"},
        ),
    )
    assert row(errors, "Euclidean") == ["4.00 / 4.78"]
    assert row(errors, "NCA") == ["†"]
    assert row(errors, "BoostMetricCV") == ["1.00"]
    spread = 100 * statistics.stdev(lda)
    assert row(details, "usps", "LDA") == [
        *(f"1.50 ({spread:.2f})", "–", "6.96 (0.68)", "-5.46 (lower)"),
        "not finished in 600 s (1 runs); 2 of 3 splits",
    ]
    assert row(details, "usps", "BoostMetricCV")[:2] == ["1.00", "2.00"]
    # Over the two splits that both have: 0.03 / 0.07.
    assert row(ratios, "LDA") == [f"0.43 / {6.96 / 4.78:.2f}"]
    assert [line[:2] for line in ranks[2:]] == [
        *(["BoostMetricCV", "1.00"], ["LDA", "2.00"], ["Euclidean", "3.00"], ["NCA", "4.00"]),
    ]
    assert row(times, "BoostMetricCV", "usps")[:2] == ["1.50", "–"]
    assert choices[2:] == [["usps", "logistic ×1"]]


def test_running_times(tmp_path: Path) -> None:
    seconds = {50: 1.0, 200: 16.0, 400: 128.0}
    (table,) = report(
        tmp_path,
        *(
            record("runtime", f"250x{D}", "boostmetric-e", 0, fit_seconds=time)
            for D, time in seconds.items()
        ),
        record("runtime", "250x50", "lmnn", 0, failure="not finished in 200 s", limit=200),
    )
    assert row(table, "50") == ["not finished in 200 s", "1.00"]
    assert row(table, "slope, D ≥ 200") == ["–", "3.00"]


def test_mean_curve_averages_at_equal_thresholds() -> None:
    curves = [
        {"roc_accepted": [1.0, 0.2, 0.0], "roc_found": [1.0, 0.8, 0.1]},
        {"roc_accepted": [1.0, 0.4, 0.0], "roc_found": [1.0, 0.6, 0.3]},
    ]
    accepted, found = mean_curve(curves)
    np.testing.assert_allclose(accepted, [0, 0, 0.3, 1, 1])
    np.testing.assert_allclose(found, [0, 0.2, 0.7, 1, 1])


def test_report_without_results_names_command(tmp_path: Path) -> None:
    (tmp_path / "table1.jsonl").write_text('{"half a li')
    text = write_report(tmp_path, tmp_path).read_text(encoding="utf-8")
    assert text.count("No results. Run `boostmetric-paper reproduce ") == 8


@pytest.mark.slow
def test_committed_report_and_docs_match_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = ROOT / "paper" / "results"
    assert main(["report", "--results", str(results), "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.md'}\n"
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text == (results / "report.md").read_text(encoding="utf-8")
    figures = re.findall(r"\]\((.*\.png)\)", text)
    assert len(figures) == 7
    for name in figures:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert (results / name).is_file()
    rows = {tuple(row) for table in tables_of(text) for row in table}
    docs = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    results_only = re.sub(r"### Ties and Algorithm 4.*?\n## ", "", docs, flags=re.DOTALL)
    for table in tables_of(results_only.split("## Results")[1]):
        for cells in table[2:]:
            assert tuple(cell.replace("**", "") for cell in cells) in rows
