"""Which subpackages may import from which, and the map of the code in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Container, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import boostmetric

ROOT = Path(__file__).parents[1]
PACKAGES = {"boostmetric": ROOT / "src", "boostmetric_paper": ROOT / "paper" / "src"}

LAYERS = [
    ["engines"],
    ["data"],
    ["metric"],
    ["neighbors"],
    ["problem"],
    ["solvers"],
    ["learn", "evaluation"],
    ["estimators"],
    ["export"],
    ["plots"],
    ["cli", "__main__"],
]
"""Modules and subpackages that import only from those listed before them, or in the same row."""


def modules_of(package: str) -> dict[str, Path]:
    """The files of a package by module: "metric", "plots.displays", "plots.__init__"."""
    folder = PACKAGES[package] / package
    return {
        ".".join(path.relative_to(folder).with_suffix("").parts): path
        for path in folder.rglob("*.py")
    }


MODULES = modules_of("boostmetric")


def names_in(path: Path, package: str) -> Iterator[list[str]]:
    """The dotted names that a module of a package imports, in their parts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = ".".join(filter(None, [package if node.level else "", node.module]))
            yield from (f"{origin}.{alias.name}".split(".") for alias in node.names)


def imports_of(module: str, package: str = "boostmetric") -> set[str]:
    """The modules of its package that a module imports.

    The package itself is no layer: it exports names of its modules lazily, so a name that is
    imported from it counts as an import of the module that defines it.
    """
    modules = modules_of(package)
    return {
        _longest(rest, modules)
        for top, *rest in names_in(modules[module], package)
        if top == package
    }


def _longest(names: list[str], modules: Container[str]) -> str:
    """The module that a dotted name leads to: the longest beginning that is one."""
    for end in range(len(names), 0, -1):
        for candidate in (".".join(names[:end]), ".".join([*names[:end], "__init__"])):
            if candidate in modules:
                return candidate
    if names == ["__version__"]:
        return "_version"
    defined_in = getattr(boostmetric, names[0]).__module__ if names else boostmetric.__name__
    return defined_in.partition(".")[2] or "__init__"


# Modules with a leading underscore are tools that know nothing of the package.
TOOLS = {module for module in MODULES if module.startswith("_") and module[:2] != "__"}


@pytest.mark.parametrize("position", range(len(LAYERS)), ids=[" ".join(row) for row in LAYERS])
def test_layers_import_only_from_earlier_ones(position: int) -> None:
    allowed = {name for row in LAYERS[: position + 1] for name in row}
    here = [module for module in MODULES if module.split(".")[0] in LAYERS[position]]
    assert here
    for module in here:
        imported = {name.split(".")[0] for name in imports_of(module) - TOOLS}
        assert imported <= allowed, module


def test_tools_import_nothing_of_the_package_but_tools() -> None:
    assert set().union(*(imports_of(module) for module in TOOLS)) <= TOOLS


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_form_no_cycle(package: str) -> None:
    modules = modules_of(package)
    assert len(modules) > 20
    graph = {module: imports_of(module, package) - {module} for module in modules}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_the_library_does_not_know_of_the_paper_s_package() -> None:
    for path in MODULES.values():
        assert "boostmetric_paper" not in path.read_text(encoding="utf-8")


def test_the_map_of_the_code_lists_every_module() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Map of the code")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == {module for module in MODULES if not module.endswith("__init__")}


def test_all_files_have_the_same_version() -> None:
    for folder in (ROOT, ROOT / "paper"):
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["version"] == boostmetric.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {boostmetric.__version__}\n" in citation
