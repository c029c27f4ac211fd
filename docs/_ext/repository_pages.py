"""Markdown pages that work both on the site and in the repository.

The pages of `docs/` and the files they include link to each other by paths in the repository. On
the site, a link to a file outside of `docs/` is replaced by a link to the page with its content,
and links in an included file become relative to the page that includes it. Marks that only doctest
needs are removed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from sphinx.application import Sphinx

LINK = re.compile(r"(?<=\]\()(?!\w+:)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
"""The target of a Markdown link to a file."""

LAST_LINE = re.compile(r"(^```python\n(?:.*\n)*?)\n(?=```$)", re.MULTILINE)
"""A block of Python that ends in a blank line, up to that line."""

PAGES = {
    "CHANGELOG.md": "docs/changelog.md",
    "CONTRIBUTING.md": "docs/contributing.md",
    "README.md": "docs/index.md",
    "benchmarks/RESULTS.md": "docs/benchmarks.md",
    "src/boostmetric/problem/operators.py": "docs/api.md",
}
"""Files of the repository, and the pages with their content."""


def page_of(path: str) -> str:
    """The page with the content of a file; the file itself if there is none.

    >>> page_of("examples/plot_circles.py"), page_of("docs/speed.md"), page_of("LICENSE")
    ('docs/gallery/plot_circles.rst', 'docs/speed.md', 'LICENSE')
    """
    if PurePosixPath(path).match("examples/*.py"):
        return f"docs/gallery/{PurePosixPath(path).stem}.rst"
    return PAGES.get(path, path)


def redirect(text: str, source: str, shown: str) -> str:
    """The text of the file `source`, with links relative to the page `shown`.

    >>> redirect("[speed](docs/speed.md#blocks)", "README.md", "docs/guide/loss.md")
    '[speed](../speed.md#blocks)'
    """

    def target(link: re.Match[str]) -> str:
        path = os.path.normpath(PurePosixPath(source).parent / link["path"])
        page = os.path.relpath(page_of(path), PurePosixPath(shown).parent)
        return page + (link["anchor"] or "")

    return LINK.sub(target, text)


def without_marks(text: str) -> str:
    r"""The text without the marks that show doctest where the output of an example ends.

    >>> without_marks("```python\n>>> 2 + 2\n4\n\n```"), without_marks("one\n<BLANKLINE>\ntwo")
    ('```python\n>>> 2 + 2\n4\n```', 'one\n\ntwo')
    """
    return LAST_LINE.sub(r"\1", text).replace("<BLANKLINE>\n", "\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """Redirect the links of every page, and of every file that a page includes."""
    root = Path(app.srcdir).parent

    def read(app: Sphinx, docname: str, content: list[str]) -> None:
        if (page := app.env.doc2path(docname)).suffix == ".md":
            path = page.relative_to(root).as_posix()
            content[0] = redirect(without_marks(content[0]), path, path)

    def include(app: Sphinx, path: Path, docname: str, content: list[str]) -> None:
        source = os.path.relpath(Path(app.srcdir) / path, root)
        content[0] = redirect(without_marks(content[0]), source, f"docs/{app.env.docname}.md")

    app.connect("source-read", read)
    app.connect("include-read", include)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
