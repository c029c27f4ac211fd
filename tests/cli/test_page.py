from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import call

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def session() -> Iterator[tuple[str, str]]:
    """The commands of the page, each with its output."""
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines(keepends=True)
            end = next((n for n, line in enumerate(lines[1:], 1) if line[:2] != "> "), len(lines))
            more = [line.removeprefix("> ") for line in lines[1:end]]
            yield "".join([lines[0], *more]), "".join(lines[end:])


def run(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The output of a command; ours runs in this process, others in a shell."""
    words = shlex.split(command)
    if words[0] == "boostmetric":
        said = call(capsys, *words[1:])
        return said.err + said.out
    shell = command.replace("python -c", f"{shlex.quote(sys.executable)} -c", 1)
    return subprocess.run(shell, shell=True, check=True, capture_output=True, text=True).stdout


@pytest.mark.docs
@pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib")
def test_commands_of_the_page_print_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    commands = list(session())
    assert len(commands) == 15
    checker = doctest.OutputChecker()
    for command, expected in commands:
        printed = run(command, capsys)
        assert checker.check_output(expected, printed, FLAGS), f"{command}\n{printed}\n{expected}"
