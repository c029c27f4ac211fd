"""The command itself: its help, and what it says of arguments that will not do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import call

COMMANDS = ["reproduce", "report", "data list", "data fetch"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_description_and_an_example(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = call(capsys, *command.split(), "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"Usage: boostmetric-paper {command}")
    assert f"Example: boostmetric-paper {command}" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


def test_help_of_the_whole_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = call(capsys, "--help").out.split("Commands:")[1]
    listed = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert listed[:3] == ["reproduce", "report", "data"]
    assert "..." not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "a command is needed (see boostmetric-paper --help)"),
        (["dance"], "no such command 'dance' (see boostmetric-paper --help)"),
        (["data"], "data needs an action, list or fetch (see boostmetric-paper data --help)"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, *arguments) == (2, "", f"boostmetric-paper: error: {said}\n")


def test_module_runs_as_the_command_does(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "boostmetric_paper", "data", "list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].startswith("mnist")
