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
    "points",
    "labels",
    "pairs",
    "mining",
    "neighbors",
    "blockwise",
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
    "evaluation",
]
ESTIMATORS = [
    "plain",
    "estimators.initial",
    "estimators.parameters",
    "estimators.origin",
    "estimators.base",
    "estimators.callbacks",
    "estimators.early_stopping",
    "estimators.checkpoint",
    "estimators.passes",
    "estimators.boostmetric",
    "estimators.cv",
    "estimators.__init__",
]
ORDER = [*ENGINE, *ESTIMATORS]


def module_of(path: Path) -> str:
    """The name of a module within the package: "metric", "datasets.made", "datasets.__init__"."""
    return ".".join(path.relative_to(FOLDER).with_suffix("").parts)


PATHS = {module_of(path): path for path in FOLDER.rglob("*.py")}
MODULES = set(PATHS)


def imports_of(module: str) -> set[str]:
    """The modules of the package that a module imports, `__init__` for the package itself."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(PATHS[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = ".".join(filter(None, [PACKAGE if node.level else "", node.module]))
            names = [f"{origin}.{alias.name}" for alias in node.names]
        else:
            continue
        for top, *rest in (name.split(".") for name in names):
            if top == PACKAGE:
                found.add(_longest(rest))
    return found


def _longest(names: list[str]) -> str:
    """The module that a dotted name leads to: the longest beginning that is one."""
    for end in range(len(names), 0, -1):
        for candidate in (".".join(names[:end]), ".".join([*names[:end], "__init__"])):
            if candidate in PATHS:
                return candidate
    return "__init__"


# Modules with a leading underscore are tools that know nothing of the package.
TOOLS = {module for module in MODULES if module.startswith("_") and module[:2] != "__"}


@pytest.mark.parametrize("position", range(len(ORDER)), ids=ORDER)
def test_modules_import_only_from_earlier_ones(position: int) -> None:
    assert imports_of(ORDER[position]) <= {*ORDER[:position], *TOOLS}


def test_tools_import_nothing_of_the_package_but_tools() -> None:
    assert set().union(*(imports_of(module) for module in TOOLS)) <= TOOLS


def test_imports_form_no_cycle() -> None:
    assert set(ORDER) <= MODULES
    assert {name for name in MODULES if name.startswith("estimators.")} <= set(ORDER)
    graph = {module: imports_of(module) for module in MODULES}
    TopologicalSorter(graph).prepare()  # raises CycleError
