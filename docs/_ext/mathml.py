"""Formulas as MathML, which browsers render without scripts or network access.

docutils converts LaTeX to MathML. To place subscripts correctly, a browser needs a font with a
table of mathematical constants. Few systems have one, so STIX Two Math from the package ziamath is
copied to the site. Labels of formulas are shown on the right; they are the labels in the paper's
LaTeX source, to which docstrings refer.
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
"""Brackets that, unlike in TeX, would stretch to the height of a sum next to them."""

APPLICATION = re.compile(r"<mo>&ApplyFunction;</mo>(?!\s*<mo[^>]*>\()")
"""Function applications without parentheses, such as Tr M, where TeX inserts a thin space."""


def mathml(node: nodes.math | nodes.math_block) -> str:
    """The formula as MathML; as LaTeX, with a warning, if docutils does not know a command."""
    try:
        drawn = tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block))
        drawn = FENCE.sub('<mo stretchy="false">', drawn)
        return APPLICATION.sub('<mspace width="0.17em"/>', drawn)
    except MathError as error:
        logger.warning("%s", error, location=node)
        return f"<code>{escape(node.astext())}</code>"


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(mathml(node))
    raise nodes.SkipNode


def displayed(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    label = f'<span class="eqno">{escape(node["label"])}</span>' if node.get("label") else ""
    self.body.append(f"{self.starttag(node, 'div', CLASS='math')}{mathml(node)}{label}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer and its font."""
    if (package := find_spec("ziamath")) is None or not package.submodule_search_locations:
        raise ImportError("formulas need a font: pip install ziamath")
    app.config.html_static_path.append(f"{package.submodule_search_locations[0]}/fonts")
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
