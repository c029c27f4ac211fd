from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_tools import COMMAND, QUICK, call, installed, made_csv, refusal, result

import _boostmetric_command
import boostmetric
from boostmetric import NotANumberError
from boostmetric.cli import main
from boostmetric.cli.command import repeated
from boostmetric.estimators import BoostMetric

COMMANDS = [
    *("fit", "evaluate", "transform", "neighbors", "inspect", "plot", "compare", "demo"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_description_defaults_and_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = result(capsys, command, "--help")
    assert text.startswith(f"Usage: boostmetric {command}")
    assert f"Example: boostmetric {command}" in text
    assert "╭" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_help_shows_what_the_library_takes_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(result(capsys, "fit", "--help").split())
    defaults = BoostMetric().get_params()
    for option, name in (("--loss", "loss"), ("--max-iter", "max_iter"), ("--passes", "n_passes")):
        _, _, rest = text.partition(f"{option} ")
        assert rest.split("[default: ")[1].startswith(f"{defaults[name]}]")


def test_help_of_the_whole_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = result(capsys, "--help")
    listed = [line.split()[0] for line in text.split("Commands:")[1].splitlines() if line.strip()]
    assert listed[: len(COMMANDS)] == COMMANDS
    assert "..." not in text.split("Commands:")[1]
    assert "Example: boostmetric fit" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert result(capsys, "--version") == f"boostmetric {boostmetric.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "a command is needed (see boostmetric --help)"),
        (["dance"], "no such command 'dance' (see boostmetric --help)"),
        (["fit"], "the argument data is missing (see boostmetric fit --help)"),
        (["fit", "t.csv"], "the option --output is missing (see boostmetric fit --help)"),
        (["fit", "t.csv", "-o", "m", "--lost", "1"], "no such option"),
        (["fit", "t.csv", "-o"], "requires an argument (see boostmetric"),
        (["fit", "t.csv", "more", "-o", "m"], "(see boostmetric fit --help)"),
        (
            ["fit", "t.csv", "-o", "m", "--loss", "nosuch"],
            "invalid value for '--loss': one of exponential, logistic, squared_hinge, "
            "smoothed_hinge, hinge is needed; got 'nosuch' (see boostmetric fit --help)",
        ),
        (
            ["fit", "t.csv", "-o", "m", "--alpha", "-1"],
            "a number of at least 0 is needed; got '-1'",
        ),
        (["fit", "t.csv", "-o", "m", "--alpha", "x"], "a number of at least 0 is needed; got 'x'"),
        (["fit", "t.csv", "-o", "m", "--max-iter", "0"], "an integer of at least 1 is needed"),
        (["fit", "t.csv", "-o", "m", "--neighbors", "3,x"], "of at least 1 is needed; got 'x'"),
        (["fit", "t.csv", "-o", "m", "--components", "1.5"], "or a share between 0 and 1, is need"),
        (["fit", "t.csv", "-o", "m", "--kind", "quintuplets"], "one of triplets, quadruplets, pai"),
        (["neighbors", "m", "t.csv", "--row", "-1"], "an integer of at least 0 is needed"),
        (["compare", "t.csv", "--methods", "lda", "magic"], "one of euclidean, scaled, lda"),
        (["plot", "m", "--kind", "pie", "-o", "p.png"], "one of projection, spectrum, convergen"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal(capsys, *arguments)


def test_options_of_several_values_take_all_words_up_to_the_next_option() -> None:
    several = {"--drop", "--row"}
    assert repeated(["t", "--drop", "a", "b", "-o", "m"], several) == [
        *("t", "--drop", "a", "--drop", "b", "-o", "m")
    ]
    assert repeated(["--row", "-1", "2", "--drop", "a"], several) == [
        *("--row", "-1", "--row", "2", "--drop", "a")
    ]
    assert repeated(["--drop", "a", "--drop", "b"], several) == ["--drop", "a", "--drop", "b"]
    assert repeated(["--drop", "a", "--", "b"], several) == ["--drop", "a", "--", "b"]
    assert repeated(["a", "b"], several) == ["a", "b"]


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_typer_or_rich_one_line_says_what_to_install(package: str, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from boostmetric.cli import main; sys.exit(main(['--version']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"boostmetric: error: the command line needs {package}")
    assert done.stderr.endswith("pip install 'boostmetric[cli]'\n")
    assert done.stderr.count("\n") == 1


def test_warnings_of_the_library_are_lines_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = made_csv(tmp_path / "t.csv", n=9)  # three points a class, so two targets each
    said = call(capsys, "fit", data, "-l", "kind", "-o", tmp_path / "m", *QUICK)
    assert said.code == 0
    assert said.err.startswith("boostmetric: warning: points of class ")
    assert "lower n_targets to silence this." in said.err
    assert said.err.count("\n") == 1
    shown = warnings.showwarning
    main(["--version"])
    assert warnings.showwarning is shown


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    data = made_csv(tmp_path / "t.csv")
    assert installed(tmp_path, "fit", data, "-l", "kind", "-o", "m.bm", *QUICK).code == 0
    command = f"{COMMAND} neighbors m.bm t.csv --drop kind -k 50 | head -n 2"
    done = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split()[:4] == ["query", "rank", "row", "distance"]
    assert done.stderr == ""


def test_not_enough_memory_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr("boostmetric.cli.options.read_table", refuse)
    arguments = ["fit", str(tmp_path / "t.csv"), "-l", "a", "-o", str(tmp_path / "m")]
    assert refusal(capsys, *arguments).startswith("there is not enough memory")


def test_an_error_of_several_lines_becomes_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise ValueError("first\n   second")

    monkeypatch.setattr("boostmetric.cli.options.read_table", refuse)
    arguments = ["fit", str(tmp_path / "t.csv"), "-l", "a", "-o", str(tmp_path / "m")]
    assert refusal(capsys, *arguments) == "first second"


def failing(error: Exception) -> Callable[..., None]:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotANumberError("the loss is NaN"), "the loss is NaN"),
        (ArithmeticError("HiGHS ended with status 'Unknown'."), "HiGHS ended with status"),
        (ZeroDivisionError("division by zero"), "the computation failed (division by zero)."),
        (OverflowError(34, "out of range"), "the computation failed ((34, 'out of range'))."),
    ],
)
def test_a_failed_computation_is_one_line(
    error: Exception,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    data = made_csv(tmp_path / "t.csv")
    monkeypatch.setattr("boostmetric.estimators.BoostMetric.fit", failing(error))
    words = ["fit", str(data), "-l", "kind", "-o", str(tmp_path / "m")]
    assert refusal(capsys, *words).startswith(said)


@pytest.mark.parametrize("init", ["whiten", "pca", "lda"])
def test_an_init_that_sparse_points_cannot_have_is_one_line(
    init: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "t.svm").write_text("0 1:1 2:3\n1 1:2\n0 2:2\n1 1:4 2:1\n")
    words = ["fit", str(tmp_path / "t.svm"), "-o", str(tmp_path / "m"), "--init", init]
    assert "does not work with sparse X" in refusal(capsys, *words)


def test_a_mistake_of_the_program_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for error in (AttributeError("a"), IndexError("b"), TypeError("c"), RuntimeError("d")):
        monkeypatch.setattr("boostmetric.cli.options.read_table", failing(error))
        with pytest.raises(type(error)):
            main(["fit", str(tmp_path / "t.csv"), "-l", "a", "-o", str(tmp_path / "m")])


# Ctrl-C while the command is starting.

ENTRY = "import sys; from _boostmetric_command import main; sys.exit(main())"


@pytest.mark.parametrize("name", ["__init__.py", "cli/__init__.py", "cli/app.py"])
def test_ctrl_c_during_the_imports_is_no_traceback(name: str, tmp_path: Path) -> None:
    real = Path(boostmetric.__file__).parent
    fake = tmp_path / "boostmetric"
    (fake / "cli").mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake / "cli" / "__init__.py").write_text((real / "cli" / "__init__.py").read_text())
    (fake / name).write_text("import signal; signal.raise_signal(signal.SIGINT)\nprint('went on')")
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "fit"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{real.parent}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_entry_point_runs_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "--version"], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, f"boostmetric {boostmetric.__version__}\n")


def test_after_the_start_ctrl_c_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sys, "argv", ["boostmetric", "--version"])
    assert _boostmetric_command.main() == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with _boostmetric_command.quiet_ctrl_c():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
