"""The experiments on images by their commands, on images that are drawn."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from boostmetric_paper.experiments.registry import EXPERIMENTS, PAPER, SMALL

from . import test_experiment_caltech, test_experiment_lfw, test_experiment_msrc
from .conftest import call

EXPERIMENTS_ON_IMAGES = ("caltech-motorbikes", "caltech-faces", "msrc", "lfw")

MEASURES = {"caltech-faces": "precision_2", "lfw": "accuracy"}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    test_experiment_caltech.draw(folder)
    test_experiment_lfw.draw_faces(folder)
    test_experiment_msrc.draw(folder)
    return folder


@pytest.fixture
def folder(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(images))
    monkeypatch.setenv("BOOSTMETRIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "results"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", EXPERIMENTS_ON_IMAGES)
def test_a_small_run_writes_lines_and_a_table_and_goes_on(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words: list[str | Path] = ["reproduce", name, "--small", "--seeds", "0", "--results", folder]
    words += ["--datasets", EXPERIMENTS[name + SMALL].datasets[0]]
    first = call(capsys, *words, "--methods", "euclidean")
    assert first.code == 0, first.err
    assert "1 of 1, " in first.err
    learned = "best" if name == "lfw" else "boostmetric-e"
    both = call(capsys, *words, "--methods", "euclidean", learned)
    assert both.code == 0, both.err
    assert "1 cells computed, 1 were there already." in both.out
    records = lines_of(folder / f"{name}-small.jsonl")
    measure = MEASURES.get(name, "error")
    assert [record["skipped"] for record in records] == [[], []]
    with (folder / f"{name}-small.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {row["method"]: float(row[measure]) for row in rows}
    assert found == {record["method"]: record[measure] for record in records}
    assert all(0 <= value <= 1 for value in found.values())


def test_every_experiment_on_images_has_a_small_one_and_others_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(EXPERIMENTS) - set(PAPER) == {name + SMALL for name in EXPERIMENTS_ON_IMAGES}
    said = call(capsys, "reproduce", "table1", "--small", "--results", tmp_path)
    assert (said.code, said.out) == (2, "")
    assert "table1 has no small configuration: caltech-motorbikes, caltech-faces, " in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", EXPERIMENTS_ON_IMAGES)
def test_without_images_the_command_says_what_to_download(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOSTMETRIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path))
    words: list[str | Path] = [
        "--small",
        "--methods",
        "euclidean",
        "--results",
        tmp_path / "results",
    ]
    said = call(capsys, "reproduce", name, *words)
    assert said.code == 2
    assert "download" in said.err
    assert not (tmp_path / "results").exists()
