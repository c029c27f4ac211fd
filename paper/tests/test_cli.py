"""The command: help, and the experiments on images with drawn images."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from boostmetric_paper import cli
from boostmetric_paper.cli import main
from boostmetric_paper.experiments.registry import EXPERIMENTS

from . import test_experiment_caltech, test_experiment_lfw, test_experiment_msrc

EXPERIMENTS_ON_IMAGES = ("caltech-motorbikes", "caltech-faces", "msrc", "lfw")


@pytest.mark.parametrize("command", ["", "reproduce", "report", "data fetch"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: boostmetric-paper {command}")
    assert f"Example: boostmetric-paper {command}" in text


def test_module_runs_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "boostmetric_paper", "data", "list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("mnist")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    test_experiment_caltech.draw(folder)
    test_experiment_lfw.draw_faces(folder)
    test_experiment_msrc.draw(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS_ON_IMAGES)
def test_small_experiment_is_resumed(
    name: str,
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(images))
    monkeypatch.setenv("BOOSTMETRIC_CACHE", str(tmp_path / "cache"))
    command = ["reproduce", name, "--small", "--seeds", "0", "--results", str(tmp_path)]
    command += ["--datasets", EXPERIMENTS[f"{name}-small"].datasets[0], "--methods", "euclidean"]
    assert main(command) == 0
    assert "1 of 1, " in capsys.readouterr().err
    assert main([*command, "best" if name == "lfw" else "boostmetric-e"]) == 0
    assert "1 cells computed, 1 existed already." in capsys.readouterr().out
    records = list(map(json.loads, (tmp_path / f"{name}-small.jsonl").read_text().splitlines()))
    assert [record["skipped"] for record in records] == [[], []]
    assert not any("failure" in record for record in records)


@pytest.mark.parametrize("name", EXPERIMENTS_ON_IMAGES)
def test_error_without_images_says_what_to_download(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOOSTMETRIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path))
    command = ["reproduce", name, "--small", "--methods", "euclidean"]
    assert main([*command, "--results", str(tmp_path / "results")]) == 2
    assert "Download" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_methods_without_interpreter_are_skipped_unless_selected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOOSTMETRIC_PEERS", str(tmp_path / "python"))
    computed: list[str] = []

    def compute(cells: Any, *arguments: Any, **options: Any) -> int:
        computed.extend(cell.method for cell in cells)
        return len(cells)

    monkeypatch.setattr(cli, "compute", compute)
    words = ["reproduce", "table1", "--datasets", "wine", "--results", str(tmp_path)]
    assert main(words) == 0
    assert capsys.readouterr().err == "Skipping rca, lmnn, itml: run `make peers` first.\n"
    assert "boostmetric-e" in computed
    assert not {"rca", "lmnn", "itml"} & {*computed}
    assert main([*words, "--methods", "lmnn"]) == 2
    assert "lmnn need the interpreter" in capsys.readouterr().err
