"""Formulas as MathML, which browsers draw by themselves: no script, no network.

docutils turns LaTeX into MathML. A browser needs a font with a table of mathematical constants to
put subscripts where they belong, and few systems have one: STIX Two Math comes with the package
ziamath, and goes with the pages. A displayed formula that has a label shows it at its right; the
labels are those of the paper's LaTeX source, which the docstrings quote.
"""

from __future__ import annotations

import re
from html import escape
from importlib.util import find_spec
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

FENCE = re.compile(r"<mo>(?=[⟨⟩‖])")
"""A bracket that would grow as tall as a sum beside it, which TeX does not let it."""

APPLICATION = re.compile(r"<mo>&ApplyFunction;</mo>(?!\s*<mo[^>]*>\()")
"""Where TeX puts a thin space: between "Tr" and "M"."""


def mathml(node: nodes.math | nodes.math_block) -> str:
    """The formula of a node; its LaTeX, with a warning, where docutils does not know a command."""
    try:
        drawn = tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block))
        drawn = FENCE.sub('<mo stretchy="false">', drawn)
        return APPLICATION.sub('<mspace width="0.17em"/>', drawn)
    except MathError as error:
        logger.warning("%s", error, location=node)
        return f"<code>{escape(node.astext())}</code>"


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line of text."""
    self.body.append(mathml(node))
    raise nodes.SkipNode


def displayed(self: HTML5Translator, node: nodes.math_block) -> None:
    """A formula in a line of its own."""
    label = f'<span class="eqno">{escape(node["label"])}</span>' if node.get("label") else ""
    self.body.append(f"{self.starttag(node, 'div', CLASS='math')}{mathml(node)}{label}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx of the renderer and of its font."""
    if (package := find_spec("ziamath")) is None or not package.submodule_search_locations:
        raise ImportError("formulas need a font: pip install ziamath")
    app.config.html_static_path.append(f"{package.submodule_search_locations[0]}/fonts")
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
