"""Sphinx configuration (`make docs`). Neither the build nor the pages download anything."""

from __future__ import annotations

import sys
from pathlib import Path

import boostmetric

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "BoostMetric"
author = "The BoostMetric developers"
copyright = f"2026, {author}"
version = release = boostmetric.__version__

extensions = [
    "mathml",
    "repository_pages",
    "myst_parser",
    "numpydoc",
    "plain_docstrings",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
# examples.md lists the gallery in a fixed order, with sections; the generated index is not used.
exclude_patterns = ["_build", "**/*.ipynb", "gallery/index.rst"]
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
myst_html_meta = {
    "description": "Metric learning with scikit-learn's interface: learn the distance for nearest "
    "neighbors, retrieval and embeddings from labels or comparisons."
}
# A block without a language holds output, not Python.
highlight_language = "none"

# `name` in a docstring is a link if the name is in the API reference, and code otherwise.
default_role = "name"
autosummary_generate = True
autodoc_typehints = "signature"
autodoc_type_aliases = {
    name: name for name in ("ArrayLike", "Callback", "CoefCost", "DTypeLike", "NDArray", "Points")
}
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 80
numpydoc_show_class_members = False
# Private types, and types of other packages, whose inventories would have to be downloaded, are not
# linked.
nitpick_ignore_regex = [(r"py:.*", r"(?!boostmetric\.[A-Z]).*")]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "backreferences_dir": "gallery/backreferences",
    "capture_repr": (),
    "doc_module": ("boostmetric",),
    "download_all_examples": False,
    "filename_pattern": r"/plot_",
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_title = f"BoostMetric {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_sidebars: dict[str, list[str]] = {"index": [], "quickstart": [], "faq": []}
html_show_sourcelink = False
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 7,
    "navigation_depth": 2,
    "show_nav_level": 2,
    "show_toc_level": 2,
}
