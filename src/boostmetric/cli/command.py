"""What all commands share: words that become options, and lines that are printed."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand


class CommandError(Exception):
    """A command cannot do what it is asked to; the text says why, and what to do."""


class Command(TyperCommand):
    """A command whose options of several values take all words up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give the words to the parser in its own form, an option before each value."""
        several = {
            name for each in self.params if getattr(each, "multiple", False) for name in each.opts
        }
        rest: list[str] = super().parse_args(ctx, repeated(args, several))
        for each in self.params:
            # Versions of typer before 0.26 do not look, with newer ones of click.
            if each.required and not ctx.params.get(each.name):
                ctx.fail(is_missing(each))
        return rest


def is_missing(parameter: Any) -> str:
    """What to say of a parameter of a command that must be given, and is not."""
    if parameter.param_type_name == "argument":
        return f"the argument {parameter.name} is missing"
    return f"the option {parameter.opts[0]} is missing"


def repeated(args: Iterable[str], several: Collection[str]) -> list[str]:
    """The words, with options of several values repeated before each of them.

    >>> repeated(["--seeds", "1", "2", "--jobs", "2"], {"--seeds"})
    ['--seeds', '1', '--seeds', '2', '--jobs', '2']
    """
    words: list[str] = []
    option, is_first = "", False
    for word in args:
        if is_first:
            is_first = False  # whatever it looks like: -1 is a value here
        elif word in several:
            option, is_first = word, True
        elif word.startswith("-"):
            option = ""
        elif option:
            words.append(option)
        words.append(word)
    return words


# Typer gives words to these functions, and defaults as they are.


def count(word: str | int) -> int:
    """The integer of at least 1 that a word stands for.

    >>> count("3")
    3
    """
    return _integer(str(word), 1)


def natural(word: str | int) -> int:
    """The integer of at least 0 that a word stands for.

    >>> natural("0")
    0
    """
    return _integer(str(word), 0)


def number(word: str | float) -> float:
    """The finite number of at least 0 that a word stands for.

    >>> number("1e-7")
    1e-07
    """
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise typer.BadParameter(f"a number of at least 0 is needed; got {word!r}")
    return value


def rank(text: str) -> int | float:
    """A number of components, or a share of the trace.

    >>> rank("2"), rank("0.95")
    (2, 0.95)
    """
    if text.isdecimal() and int(text) > 0:
        return int(text)
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise typer.BadParameter(
            f"an integer of at least 1, or a share between 0 and 1, is needed; got {text!r}"
        )
    return share


def neighbor_counts(word: str | int) -> int | tuple[int, int]:
    """A number of targets and impostors, or one of each with a comma between.

    >>> neighbor_counts("3"), neighbor_counts("5,10")
    (3, (5, 10))
    """
    targets, comma, impostors = str(word).partition(",")
    return (count(targets), count(impostors)) if comma else count(targets)


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """A check that a word is one of several.

    >>> one_of(["trace", "frobenius"])("trace")
    'trace'
    """
    known = tuple(names)

    def check(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(f"one of {', '.join(known)} is needed; got {text!r}")
        return text

    return check


def say(text: str) -> None:
    """A message for the user, on standard error: what is printed on standard output is results."""
    print(text, file=sys.stderr, flush=True)


def show_json(value: Any) -> None:
    """A result for programs. NaN and infinities, which JSON has not, become null."""
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False))


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Lines in which columns of texts begin, or end, below each other.

    Parameters
    ----------
    rows : of texts, all of the same length
    left : the columns that begin below each other

    Examples
    --------
    >>> aligned([["a", "10"], ["bc", "9"]])
    ['a   10', 'bc   9']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{text:<{width}}" if position in left else f"{text:>{width}}"
            for position, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def filled(text: str, indent: str = "") -> str:
    """A text in lines that fit the terminal.

    >>> filled("a word", indent="  ")
    '  a word'
    """
    width = min(100, shutil.get_terminal_size().columns)
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)


def shortened(text: str, longest: int = 200) -> str:
    """A text, cut off if it is long.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def check_output(path: Path, force: bool = True, inputs: Sequence[Path | None] = ()) -> None:
    """Raise a CommandError unless a file can be written there.

    Parameters
    ----------
    path : the file
    force : whether to write over a file that exists
    inputs : files that the command reads (or writes, too), which are never written over
    """
    if path.is_dir():
        raise CommandError(f"{path} is a folder: give the name of a file.")
    if not path.parent.is_dir():
        raise CommandError(f"there is no folder {path.parent} to write {path.name} to: make it.")
    for other in inputs:
        if other is not None and _are_same(path, other):
            raise CommandError(
                f"{path} is a file that this command uses. Choose another file for the output."
            )
    try:
        probe = path.with_name(f".{path.name}.probe")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CommandError(f"cannot write to the folder {path.parent}: {error.strerror}") from None
    if path.exists() and not force:
        raise CommandError(f"{path} is there already: --force writes over it, or name another.")


def _are_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, which need not exist."""
    try:
        return one.samefile(other)
    except OSError:
        return one.absolute() == other.absolute()


def _integer(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise typer.BadParameter(f"an integer of at least {least} is needed; got {text!r}")
    return int(text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
