from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import get_args

import pytest
from cli_tools import QUICK, call, failure, made_csv, result, usage_error

import boostmetric
from boostmetric import LOSSES, REGULARIZERS, BoostMetric, NotANumberError, Status
from boostmetric.cli import main
from boostmetric.cli.adapt import adapt
from boostmetric.cli.app import app
from boostmetric.cli.fit import ENDINGS, Init, Loss, Regularizer, Solver
from boostmetric.estimators import INITS
from boostmetric.solvers import SOLVERS

COMMANDS = [
    "fit",
    "evaluate",
    "transform",
    "neighbors",
    "inspect",
    "plot",
    "compare",
    "demo",
    "adapt",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = result(capsys, command, "--help")
    assert f"Usage: boostmetric {command}" in text
    assert f"Example: boostmetric {command}" in text


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    said = call(capsys, *arguments)
    assert said.code in (0, 2)  # without arguments it depends on the version of typer
    _, _, commands = (said.out + said.err).partition("Commands:\n")
    assert re.findall(r"^  ([a-z]+)  ", commands, re.MULTILINE) == COMMANDS


def test_all_commands_check_their_output_files() -> None:
    for each in (*app.registered_commands, *adapt.registered_commands):
        assert hasattr(each.callback, "__wrapped__"), each.callback


def test_names_and_defaults_match_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    for choices, names in (
        (Loss, LOSSES),
        (Regularizer, REGULARIZERS),
        (Solver, SOLVERS),
        (Init, (*INITS, "none")),
    ):
        assert set(get_args(choices)) == set(names)
    assert set(ENDINGS) == {*Status.__members__, "INTERRUPTED"}
    text = " ".join(result(capsys, "fit", "--help").replace("│", " ").split())
    defaults = BoostMetric().get_params()
    for option, name in (
        ("--loss", "loss"),
        ("--regularizer", "regularizer"),
        ("--alpha", "alpha"),
        ("--max-iter", "max_iter"),
        ("--passes", "n_passes"),
        ("--neighbors", "n_neighbors"),
    ):
        _, _, rest = text.partition(f" {option} ")
        assert rest.split("[default: (")[1].startswith(f"{defaults[name]})]"), option


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert result(capsys, "--version") == f"boostmetric {boostmetric.__version__}\n"


@pytest.mark.parametrize(("arguments", "rich"), [(["--help"], {"rich"}), (["fit", "--help"], {})])
def test_help_imports_no_slow_packages(arguments: list[str], rich: set[str]) -> None:
    slow = {"numpy", "pandas", "scipy", "sklearn", "matplotlib", *rich}
    code = (
        f"import sys; from boostmetric.cli import main; main({arguments})\n"
        f"sys.exit(', '.join({slow} & {{*sys.modules}}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names_can_be_imported() -> None:
    for name in boostmetric.__all__:
        assert getattr(boostmetric, name) is not None
    assert set(boostmetric.__all__) <= set(dir(boostmetric))
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        _ = boostmetric.nosuch


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dance"], "No such command 'dance'"),
        (["fit"], "Missing argument"),
        (["fit", "nosuch.csv", "-o", "m"], "does not exist"),
        (["fit", "t.csv"], "Missing option"),
        (["fit", "t.csv", "-o", "m", "--lost", "1"], "No such option"),
        (["fit", "t.csv", "-o", "m", "-l", "kind", "--loss", "nosuch"], "'nosuch' is not one of"),
        (["fit", "t.csv", "-o", "m", "-l", "kind", "--alpha", "-1"], "'--alpha'"),
        (
            ["fit", "t.csv", "-o", "m", "-l", "k", "--regularizer", "trace", "--alpha", "1"],
            "--alpha must be less than 1 for",
        ),
        (["fit", "t.csv", "-o", "m"], "--label or --comparisons is required."),
        (["fit", "t.csv", "-o", "m", "-l", "kind", "--resume"], "--resume requires --checkpoint."),
        (["fit", "t.csv", "-o", "no/m", "-l", "kind"], "no does not exist."),
        (
            ["fit", "t.csv", "-o", "t.csv", "-l", "kind", "--force"],
            "t.csv is the same file as DATA t.csv.",
        ),
        (["fit", "t.csv", "-o", "old", "-l", "kind"], "old exists. Use --force"),
        (["fit", "t.csv", "-o", "m", "--checkpoint", "old"], "old exists. Use --resume"),
        (["fit", "t.csv", "-o", "pipe", "--force"], "pipe is not a regular file"),
        (["adapt", "fit", "-o", "pipe", "--force"], "pipe is not a regular file"),
        (["adapt", "report", "--html", "pipe", "--force"], "pipe is not a regular file"),
        (["plot", "old", "-o", "pipe", "--force"], "pipe is not a regular file"),
        (["demo", "-o", "demo"], "circles.png exists. Use --force"),
        (
            ["fit", "t.csv", "-o", "m", "-l", "kind", "--choose", "--passes", "2"],
            "--choose cannot be combined",
        ),
        (["evaluate", "t.csv"], "Pass METRIC and DATA, or only DATA with --cv."),
        (["fit", "t.csv", "-o", "m", "-l", "kind", "--components", "0"], "must be an integer >= 1"),
        (["fit", "t.csv", "-o", "m", "-l", "kind", "--sep", "ab"], "must be a single character"),
        (["compare", "t.csv", "-l", "kind", "--decimal", ""], "must be a single character"),
        (["evaluate", "t.csv", "--cv", "1"], "'--cv'"),
        (["evaluate", "t.csv", "--cv", "2", "--test", "t.csv"], "--cv cannot be used with --test"),
        (["neighbors", "old", "t.csv", "--row", "0", "--query", "t.csv"], "--row cannot be used"),
        (["plot", "old", "-o", "p.png"], "--kind projection requires DATA."),
        (["plot", "old", "t.csv", "-o", "p.txt"], "must end in .png, .pdf or .svg"),
        (
            ["transform", "old", "t.csv", "-o", "old", "--force"],
            "old is the same file as METRIC old.",
        ),
        (["compare", "t.csv", "--method", "magic"], "'magic' is not one of"),
    ],
)
def test_usage_errors(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    made_csv(tmp_path / "t.csv")
    (tmp_path / "demo").mkdir()
    kept = [tmp_path / "old", tmp_path / "demo" / "circles.png"]
    for path in kept:
        path.write_text("old")
    os.mkfifo(tmp_path / "pipe")
    assert said in usage_error(capsys, *arguments)
    assert [path.read_text() for path in kept] == ["old", "old"]
    assert (tmp_path / "pipe").is_fifo()


def test_missing_typer_is_reported() -> None:
    code = (
        "import sys; sys.modules['typer'] = None\n"
        "from boostmetric.cli import main; sys.exit(main(['--version']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: the command line requires typer")
    assert done.stderr.endswith("pip install 'boostmetric[cli]'\n")


def test_warnings_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made_csv(tmp_path / "t.csv", n=9)  # three points per class, so two targets each
    shown = warnings.showwarning
    said = call(capsys, "fit", data, "-l", "kind", "-o", tmp_path / "m", "--passes", "1", *QUICK)
    assert said.code == 0
    assert said.err.startswith("Warning: ")
    assert said.err.count("\n") == 1
    assert warnings.showwarning is shown


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("first\n   second"), "Error: first second\n"),
        (NotANumberError("the loss is NaN"), "Error: the loss is NaN\n"),
        (ZeroDivisionError("division by zero"), "Error: the computation failed (division by"),
        (MemoryError(), "Error: not enough memory."),
        (ModuleNotFoundError("No module named 'highspy'"), "Error: No module named 'highspy'. In"),
    ],
)
def test_failures_are_one_line(
    error: Exception,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    data = made_csv(tmp_path / "t.csv")
    monkeypatch.setattr("boostmetric.estimators.BoostMetric.fit", fail)
    assert failure(capsys, "fit", data, "-l", "kind", "-o", tmp_path / "m").startswith(said)


def test_unexpected_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise IndexError

    data = made_csv(tmp_path / "t.csv")
    monkeypatch.setattr("boostmetric.estimators.BoostMetric.fit", fail)
    with pytest.raises(IndexError):
        main(["fit", str(data), "-l", "kind", "-o", str(tmp_path / "m")])


@pytest.mark.slow
def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    made_csv(tmp_path / "t.csv", n=600)
    assert (
        main(["fit", f"{tmp_path}/t.csv", "-l", "kind", "-o", f"{tmp_path}/m.bm", "-q", *QUICK])
        == 0
    )
    command = (
        f"{sys.executable} -m boostmetric neighbors m.bm t.csv --drop kind --limit 0 | head -n 2"
    )
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split()[:4] == ["query", "rank", "row", "distance"]
    assert done.stderr == ""


@pytest.mark.parametrize("module", ["boostmetric.cli.app", "boostmetric.cli.tables"])
def test_ctrl_c_during_imports_exits(module: str, tmp_path: Path) -> None:
    made_csv(tmp_path / "t.csv")
    code = (
        "import signal, sys\n"
        # A process that was started in the background may ignore Ctrl-C.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}: signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from boostmetric.cli import main\n"
        "sys.exit(main(['fit', 't.csv', '-l', 'kind', '-o', 'm.bm']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
