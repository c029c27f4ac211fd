"""The experiments on images in the report, as CSV and as pictures."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boostmetric_paper.experiments.cells import Results
from boostmetric_paper.experiments.outcomes import read_outcomes
from boostmetric_paper.experiments.outputs import write_outputs
from boostmetric_paper.experiments.report import write_report
from boostmetric_paper.experiments.vision_figures import FIGURES, confusion_of, mean_curve, roc_runs

from .test_report import Page

# old matplotlib, new pyparsing
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SEEDS = (0, 1, 2)


def records(experiment: str) -> Iterable[dict[str, Any]]:
    """Three runs of every cell that the page shows, whose measures are easy to average."""
    if experiment == "caltech-motorbikes":
        for dataset in ("100-words", "200-words"):
            for method in ("euclidean", "svm", "boostmetric-e"):
                for seed in SEEDS:
                    skipped = ["Motorbikes/image_7.jpg"] if seed else []
                    error = 0.02 + 0.01 * seed
                    yield run(experiment, dataset, method, seed, error=error, skipped=skipped)
        for n in (500, 1500):
            yield run(experiment, "100-words", f"triplets={n}", 0, error=25 / n)
    elif experiment == "caltech-faces":
        for method in ("euclidean", "boostmetric-e"):
            for seed in SEEDS:
                shares = {f"precision_{cut}": 0.9 - cut / 100 for cut in (5, 10, 15, 20)}
                yield run(experiment, "100-words-shares", method, seed, **shares)
    elif experiment == "msrc":
        for method in ("euclidean", "boostmetric-e"):
            for seed in SEEDS:
                confusion = np.diag(np.arange(9) + seed).tolist()
                yield run(experiment, "regions", method, seed, error=0.05, confusion=confusion)
    else:
        for seed in SEEDS:
            yield run(experiment, "400D", "triplets=18000", seed, accuracy=0.8 + 0.05 * seed)
            rates = {"roc_accepted": [0.5, 0.1 * seed], "roc_found": [1.0, 0.3 + 0.1 * seed]}
            yield run(experiment, "400D", "best", seed, accuracy=0.875, **rates)


def run(experiment: str, dataset: str, method: str, seed: int, **found: Any) -> dict[str, Any]:
    cell = {"experiment": experiment, "dataset": dataset, "method": method, "seed": seed}
    return {**cell, **found, "seconds": 1.5, "machine": "a machine", "date": "2026-11-16"}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for experiment in FIGURES:
        lines = [json.dumps(record) for record in records(experiment)]
        (tmp_path / f"{experiment}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture
def page(results: Path) -> Page:
    write_report(results, results / "report.html")
    return Page((results / "report.html").read_text(encoding="utf-8"))


def test_errors_on_motorbikes_stand_beside_the_papers(page: Page) -> None:
    section = "caltech-motorbikes"
    row = page.row(section, 0, "100 words, counts: BoostMetric-E")
    assert row == ["3.00 (1.00)", "3.63 (0.68)", "−0.63 ✓ within"]
    assert page.row(section, 0, "200 words, counts: Euclidean") == ["3.00 (1.00)", "–", ""]
    assert page.tables[section][1][1:] == [["500", "5.00"], ["1,500", "1.67"]]
    assert "left out (1): Motorbikes/image_7.jpg." in page.texts[section]


def test_precisions_are_shown_at_all_cuts(page: Page) -> None:
    head, *rows = page.tables["caltech-faces"][0]
    assert head == ["precision in %", "at 5", "at 10", "at 15", "at 20"]
    assert rows[1][0] == "100 words, shares: BoostMetric-E"
    assert rows[1][1:] == ["85.00 (0.00)", "80.00 (0.00)", "75.00 (0.00)", "70.00 (0.00)"]


def test_groups_of_msrc_stand_above_the_papers(page: Page) -> None:
    assert page.row("msrc", 0, "1") == ["5.00 9.19", "5.00 4.59"]
    assert page.row("msrc", 0, "3") == ["5.00 6.69", "5.00 2.60"]
    assert page.row("msrc", 0, "mean") == ["5.00 (0.00) 7.05 (1.16)", "5.00 (0.00) 3.97 (1.03)"]


def test_a_higher_accuracy_is_a_better_one(page: Page, results: Path) -> None:
    spread = statistics.stdev([80, 85, 90])
    assert page.row("lfw", 0, "18,000")[-1] == f"85.00 ({spread:.2f}) 83.81 (1.55)"
    text = (results / "report.html").read_text(encoding="utf-8")
    assert '<span class="same">85.00' in text
    for accuracy, kind in ((0.99, "better"), (0.5, "worse")):
        lines = [
            json.dumps(run("lfw", "400D", "triplets=18000", seed, accuracy=accuracy))
            for seed in SEEDS
        ]
        (results / "lfw.jsonl").write_text("\n".join(lines))
        write_report(results, results / "report.html")
        text = (results / "report.html").read_text(encoding="utf-8")
        assert f'<span class="{kind}">{100 * accuracy:.2f}' in text


def test_a_failed_cell_says_why(results: Path) -> None:
    failed = run("msrc", "regions", "lmnn", 0, failure="not finished in 600 s")
    (results / "msrc.jsonl").write_text(json.dumps(failed))
    lines = [run("caltech-motorbikes", "100-words", "lmnn", 0, failure="not finished in 600 s")]
    (results / "caltech-motorbikes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    write_report(results, results / "report.html")
    page = Page((results / "report.html").read_text(encoding="utf-8"))
    assert (
        page.row("caltech-motorbikes", 0, "100 words, counts: LMNN")[0] == "not finished in 600 s"
    )
    assert "LMNN" in page.texts["msrc"]


def test_curves_are_averaged_at_equal_thresholds(results: Path) -> None:
    outcomes = read_outcomes(results / "lfw.jsonl", "lfw")
    ((label, runs),) = roc_runs(outcomes).items()
    assert label == "400D, BoostMetric, best single score"
    accepted, found = mean_curve(runs)
    np.testing.assert_allclose(accepted, [0, 0.1, 0.5, 1])
    np.testing.assert_allclose(found, [0, 0.4, 1, 1])


def test_confusions_are_added_up(results: Path) -> None:
    runs = read_outcomes(results / "msrc.jsonl", "msrc").runs("regions", "euclidean")
    table = confusion_of(runs)
    assert table is not None
    np.testing.assert_array_equal(table, np.diag(3 * np.arange(9) + 3))
    assert confusion_of({0: {"confusion": [[1]]}, 1: {}}) is None


@pytest.mark.parametrize("experiment", FIGURES)
def test_cells_become_a_table_and_a_picture(results: Path, experiment: str) -> None:
    stored = Results(results / f"{experiment}.jsonl")
    table, picture = write_outputs(stored, experiment)
    assert (table.name, picture.name) == (f"{experiment}.csv", f"{experiment}.png")
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    wanted = stored.read()
    assert len(rows) == len(wanted)
    for row, cell in zip(rows, sorted(wanted), strict=True):
        assert (row["dataset"], row["method"], int(row["seed"])) == (
            cell.dataset,
            cell.method,
            cell.seed,
        )
        for key, value in wanted[cell].items():
            if isinstance(value, float):
                assert float(row[key]) == value
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_file_of_no_cells_writes_nothing(tmp_path: Path) -> None:
    assert write_outputs(Results(tmp_path / "msrc.jsonl"), "msrc") == []
    assert list(tmp_path.iterdir()) == []
