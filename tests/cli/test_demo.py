from __future__ import annotations

import os
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import boostmetric
from boostmetric.cli import main
from boostmetric.cli.demo import METHODS

COMMAND = Path(sysconfig.get_path("scripts")) / "boostmetric"

RUN_WITHOUT_FILES_OF_DATA = """
import sys, warnings
warnings.simplefilter("error")
warnings.simplefilter("ignore", DeprecationWarning)  # old matplotlib, new pyparsing

from pathlib import Path
from boostmetric.cli.demo import run

def refuse(event, arguments):
    if event == "open" and str(arguments[0]).endswith((".tex", ".npz")):
        raise AssertionError(f"the demo opened {arguments[0]}")

sys.addaudithook(refuse)
run(Path(sys.argv[1]), n_splits=1)
"""


def call(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "BOOSTMETRIC_DATA"}
    return subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Folder and printed lines of a demo that may open neither the paper nor stored data."""
    folder = tmp_path_factory.mktemp("demo")
    script = [sys.executable, "-c", RUN_WITHOUT_FILES_OF_DATA]
    done = call(*script, folder / "made" / "by demo", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "made" / "by demo", done.stdout.splitlines()


def test_demo_writes_one_picture_of_sensible_size(demo: tuple[Path, list[str]]) -> None:
    folder, lines = demo
    assert [path.name for path in folder.iterdir()] == ["circles.png"]
    content = (folder / "circles.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert 1200 <= width <= 3000
    assert 500 <= height <= width
    assert len(content) > 50_000
    assert lines[-1] == f"Picture: {folder / 'circles.png'}"


def test_table_has_a_row_of_errors_and_one_of_times_for_every_method(
    demo: tuple[Path, list[str]],
) -> None:
    _, lines = demo
    for method in METHODS:
        errors, times = (line[22:] for line in lines if line[:22].rstrip() == method)
        assert errors.count("(-)") == 3
        assert len(times.split()) == 3


def test_table_fits_a_terminal_of_100_columns(demo: tuple[Path, list[str]]) -> None:
    _, lines = demo
    assert max(map(len, lines[:-1])) <= 100


def test_missing_matplotlib_is_one_line_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["demo", "--output", str(tmp_path / "demo")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "pip install boostmetric[plots]" in captured.err
    assert not (tmp_path / "demo").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "command"),
        (["dance"], "dance"),
        (["demo", "--splits", "0"], "at least 1 is needed; got '0'"),
        (["demo", "--splits", "-3"], "at least 1 is needed; got '-3'"),
        (["demo", "--splits", "many"], "at least 1 is needed; got 'many'"),
        (["demo", "--output", "file"], "cannot write to the folder file"),
        (["demo", "--output", "file/demo"], "cannot write to the folder file/demo"),
    ],
)
def test_bad_arguments_are_one_line_and_code_2(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("boostmetric: error: ")
    assert captured.err.count("\n") == 1
    assert complaint in captured.err


def test_installed_command_has_help_with_an_example(tmp_path: Path) -> None:
    done = call(COMMAND, "demo", "--help", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Example: boostmetric demo" in done.stdout
    assert "--output FOLDER" in done.stdout
    assert "--splits N" in done.stdout


def test_installed_command_returns_the_exit_code(tmp_path: Path) -> None:
    done = call(COMMAND, "demo", "--splits", "0", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_module_runs_as_the_command_does(tmp_path: Path) -> None:
    done = call(sys.executable, "-m", "boostmetric", "--version", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"boostmetric {boostmetric.__version__}\n")
