from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import boostmetric

PACKAGE = "boostmetric"
FOLDER = Path(boostmetric.__file__).parent
ENGINE = [
    "kernels",
    "mining",
    "neighbors",
    "comparisons",
    "losses",
    "metric",
    "operators",
    "laplacian",
    "regularizers",
    "problem",
    "eigen",
    "stagewise",
    "corrective",
    "soft_margin",
    "newton",
    "certificate",
    "state",
    "solvers",
    "boosting",
    "passes",
    "evaluation",
]


def imports_of(module: str) -> set[str]:
    """The modules of the package that a module imports, `__init__` for the package itself."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = ".".join(filter(None, [PACKAGE if node.level else "", node.module]))
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        for top, *rest in (name.split(".") for name in names):
            if top == PACKAGE:
                is_module = bool(rest) and (FOLDER / f"{rest[0]}.py").exists()
                found.add(rest[0] if is_module else "__init__")
    return found


# Modules with a leading underscore are tools that know nothing of the package.
MODULES = {path.stem for path in FOLDER.glob("*.py")}
TOOLS = {module for module in MODULES if module.startswith("_") and module[:2] != "__"}


@pytest.mark.parametrize("position", range(len(ENGINE)), ids=ENGINE)
def test_engine_modules_import_only_from_earlier_ones(position: int) -> None:
    assert imports_of(ENGINE[position]) <= {*ENGINE[:position], *TOOLS}


def test_tools_import_nothing_of_the_package() -> None:
    assert not set().union(*(imports_of(module) for module in TOOLS))


def test_imports_form_no_cycle() -> None:
    assert set(ENGINE) <= MODULES
    graph = {module: imports_of(module) for module in MODULES}
    TopologicalSorter(graph).prepare()  # raises CycleError
