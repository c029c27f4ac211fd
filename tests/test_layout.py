"""Allowed imports between subpackages, the map of the code in CONTRIBUTING.md, and versions."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
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
    ["learn"],
    ["evaluation"],
    ["estimators"],
    ["embeddings"],
    ["export"],
    ["plots"],
    ["cli", "__main__"],
]
"""Modules and subpackages import only from earlier rows and from their own row."""


@cache
def modules_of(package: str) -> dict[str, Path]:
    """The files of a package by module: "metric", "plots.displays", "plots.__init__"."""
    folder = PACKAGES[package] / package
    return {
        ".".join(path.relative_to(folder).with_suffix("").parts): path
        for path in folder.rglob("*.py")
    }


MODULES = modules_of("boostmetric")


@cache
def imports_of(module: str, package: str = "boostmetric") -> set[str]:
    """The modules of its package that a module imports.

    The package exports names of its modules lazily, so a name that is imported from it counts as an
    import of the module that defines it.
    """
    modules = modules_of(package)
    # 1) dotted names of all import statements
    names = []
    for node in ast.walk(ast.parse(modules[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = ".".join(filter(None, [package if node.level else "", node.module]))
            names += [f"{origin}.{alias.name}" for alias in node.names]
    # 2) the longest beginning of each name that is a module
    imported = set()
    for top, *parts in (name.split(".") for name in names):
        if top != package:
            continue
        beginnings = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
        candidates = [c for name in beginnings for c in (name, f"{name}.__init__")]
        if found := [candidate for candidate in candidates if candidate in modules]:
            imported.add(found[0])
        elif parts == ["__version__"]:
            imported.add("_version")
        else:
            defined_in = getattr(boostmetric, parts[0]).__module__ if parts else package
            imported.add(defined_in.partition(".")[2] or "__init__")
    return imported


# Modules with a leading underscore are tools that do not use the rest of the package.
TOOLS = {module for module in MODULES if module.startswith("_") and module[:2] != "__"}


@pytest.mark.parametrize("position", range(len(LAYERS)), ids=[" ".join(row) for row in LAYERS])
def test_imports_follow_layers(position: int) -> None:
    allowed = {name for row in LAYERS[: position + 1] for name in row}
    here = [module for module in MODULES if module.split(".")[0] in LAYERS[position]]
    assert here
    for module in here:
        imported = {name.split(".")[0] for name in imports_of(module) - TOOLS}
        assert imported <= allowed, module


def test_tools_import_only_tools() -> None:
    assert set().union(*(imports_of(module) for module in TOOLS)) <= TOOLS


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_have_no_cycles(package: str) -> None:
    modules = modules_of(package)
    assert len(modules) > 20
    graph = {module: imports_of(module, package) - {module} for module in modules}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_library_does_not_import_paper() -> None:
    for path in MODULES.values():
        assert "boostmetric_paper" not in path.read_text(encoding="utf-8")


def test_map_of_code_is_complete() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Map of the code")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == {module for module in MODULES if not module.endswith("__init__")}


def test_version_is_same_everywhere() -> None:
    for folder in (ROOT, ROOT / "paper"):
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["version"] == boostmetric.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {boostmetric.__version__}\n" in citation
