"""Docstrings in plain text, with descriptions of parameters that may span several lines.

In these docstrings |x| is an absolute value and `fit_` is a name, not reStructuredText. A parameter
is followed by its type, with a description below, or by a description that continues below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.autosummary import AutoLink

MARKUP = re.compile(r"(?P<code>`[^`]*`)|\||(?<=\w)_(?!\w)|(?<=\w)_(?=ᵀ)")
"""Code, which is kept, and characters that would be markup in reStructuredText."""

RESULT = ("Returns", "Yields")


def escaped(lines: Iterable[str]) -> Iterator[str]:
    r"""The lines with such characters escaped, except in examples and in names of parameters.

    >>> list(escaped(["R is |M|, of `a_` or a_.", "fit_ : array", ">>> |1|", "|2|", "", "|3|"]))
    ['R is \\|M\\|, of `a_` or a\\_.', 'fit_ : array', '>>> |1|', '|2|', '', '\\|3\\|']
    """
    is_example = False
    for line in lines:
        is_example = bool(line.strip()) and (is_example or line.lstrip().startswith(">>>"))
        name, colon, text = line.rpartition(" : ")
        if is_example or re.fullmatch(r"\w+(, \w+)*", line.strip()):
            yield line
        else:
            yield name + colon + MARKUP.sub(lambda found: found["code"] or "\\" + found[0], text)


def separated(lines: list[str]) -> Iterator[str]:
    """The lines, with descriptions that start next to a name moved below it.

    >>> list(separated(["n : number of rows, 3", "    by default", "m : int", "    The columns."]))
    ['n :', '    number of rows, 3', '    by default', 'm : int', '    The columns.']
    >>> list(separated(["verbose : int, default=0", "    1 logs every step."]))
    ['verbose : int, default=0', '    1 logs every step.']
    """
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        entry = re.fullmatch(r"(\w+(?:, \w+)*) : (.*)", line)
        is_type = re.search(r"default=\S+$", line) is not None
        goes_on = following.startswith("    ") and not is_type
        if entry and goes_on and (line[-1] in ",:;." or not following.lstrip()[0].isupper()):
            yield from (f"{entry[1]} :", f"    {entry[2]}")
        else:
            yield line


def joined(lines: list[str]) -> list[str]:
    """The lines, with a description of a result that spans several lines joined to one.

    >>> joined(["Returns", "-------", "the number,", "or None", "", "More."])
    ['Returns', '-------', 'the number, or None', '', 'More.']
    """
    for start, line in enumerate(lines):
        if line in RESULT:
            end = next((i for i in range(start + 2, len(lines)) if not lines[i]), len(lines))
            text = lines[start + 2 : end]
            if not any(each.startswith(" ") for each in text):
                return [*lines[: start + 2], " ".join(text), *lines[end:]]
    return lines


class Name(AutoLink):
    """A link if the name is in the API reference, and code otherwise."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Nodes for the name, and messages."""
        found, messages = super().run()
        return [
            nodes.literal(each.rawsource, each.astext())
            if isinstance(each, nodes.emphasis)
            else each
            for each in found
        ], messages


def setup(app: Sphinx) -> dict[str, Any]:
    """Prepare docstrings for numpydoc, and omit methods that are inherited from scikit-learn."""

    def process(
        app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
    ) -> None:
        lines[:] = escaped(separated(joined(lines)))

    def name_aliases(
        app: Sphinx,
        what: str,
        name: str,
        obj: object,
        options: object,
        signature: str | None,
        returned: str | None,
    ) -> tuple[str | None, str | None]:
        # Sphinx shows an alias in a union as TypeAliasForwardRef('name').
        first, second = (
            re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text or "") or None
            for text in (signature, returned)
        )
        return first, second

    def skip(
        app: Sphinx, what: str, name: str, obj: object, skips: bool, options: object
    ) -> bool | None:
        # Docstrings of scikit-learn refer to pages that do not exist here.
        return True if (getattr(obj, "__module__", None) or "").startswith("sklearn.") else None

    app.setup_extension("sphinx.ext.autosummary")
    app.add_role("name", Name())
    app.connect("autodoc-process-docstring", process, priority=100)
    app.connect("autodoc-process-signature", name_aliases)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
