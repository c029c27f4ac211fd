from __future__ import annotations

import doctest
import importlib
import os
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from types import ModuleType

import pytest
from test_examples import run as run_example

import boostmetric

ROOT = Path(__file__).parents[1]
DOCS, BENCHMARKS = ROOT / "docs", ROOT / "benchmarks"
GENERATED = ("_build", "api", "gallery")
PAGES = sorted(
    page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in GENERATED
)
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "paper" / "README.md"]
FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>.*)\n(?P<body>(?:.*\n)*?)(?P=fence)$", re.MULTILINE)
BLOCK = re.compile(r"<!-- (.*) -->((?:.|\n)*?)<!-- end of \1 -->")
LINK = re.compile(r"\]\((?!\w+:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")


def blocks(path: Path, info: str) -> list[str]:
    """The contents of the fenced blocks of a page with this info string."""
    text = path.read_text(encoding="utf-8")
    return [match["body"] for match in FENCE.finditer(text) if match["info"] == info]


def prose(path: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """The names of a page's headings, as links use them."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


each_text = pytest.mark.parametrize("path", TEXTS, ids=name_of)


@each_text
def test_python_blocks_are_doctests(path: Path) -> None:
    for block in blocks(path, "python"):
        assert block.startswith(">>> "), f"this block would not be run:\n{block}"
        assert block.endswith("\n\n"), f"the fence would be part of the output:\n{block}"


def links(path: Path) -> Iterator[tuple[Path, str | None]]:
    for link in LINK.finditer(prose(path)):
        target = Path(os.path.normpath(path.parent / link["path"])) if link["path"] else path
        yield target, link["anchor"]


@each_text
def test_links_exist(path: Path) -> None:
    for target, anchor in links(path):
        if target.is_relative_to(DOCS) and target.relative_to(DOCS).parts[0] in GENERATED:
            continue
        assert target.exists(), f"{name_of(path)} links to {target}"
        if anchor is not None:
            assert anchor in anchors(target), f"{name_of(path)} links to #{anchor} of {target}"


def test_included_files_exist() -> None:
    for page in PAGES:
        for found in re.findall(r"^```\{include\} (\S+)$", page.read_text("utf-8"), re.MULTILINE):
            assert (page.parent / found).exists(), f"{name_of(page)} includes {found}"


def entries(page: Path) -> Iterator[Path]:
    """The pages in the tables of contents of a page."""
    for body in blocks(page, "{toctree}"):
        for line in body.splitlines():
            if line.strip() and not line.startswith(":"):
                yield page.parent / f"{line.strip()}.md"


def test_tables_of_contents_are_complete() -> None:
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        if page.relative_to(DOCS).parts[0] not in GENERATED:
            assert page.exists(), f"{name_of(page)} is in a table of contents"
            waiting.extend(entries(page))
    assert set(PAGES) <= reached


def resolve(dotted: str) -> object:
    """The module or attribute of that name."""
    module, *names = dotted.split(".")
    found: object = importlib.import_module(module)
    for name in names:
        module = f"{module}.{name}"
        if not hasattr(found, name):
            importlib.import_module(module)
        found = getattr(found, name)
    return found


@each_text
def test_names_exist(path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = path.read_text(encoding="utf-8")
    for dotted in set(
        re.findall(r"(?<![\w/.])boostmetric(?:_paper)?(?:\.[A-Za-z_]\w*)+(?![\w/])", text)
    ):
        resolve(dotted)


@pytest.mark.parametrize(
    "module",
    [
        "boostmetric",
        "boostmetric.plots",
        "boostmetric_paper.datasets",
        "boostmetric_paper.vision",
    ],
)
def test_api_reference_is_complete(module: str) -> None:
    listed = set(re.findall(r"[\w.]+", (DOCS / "api.md").read_text(encoding="utf-8")))
    known = {name.rpartition(".")[2] for name in listed}
    assert set(importlib.import_module(module).__all__) - {"__version__"} <= known


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program that writes figures to the pages, with its measurements."""
    if not (BENCHMARKS / "quality.jsonl").exists():
        pytest.skip("the measurements are not part of the source distribution")
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("documents")


def test_figures_agree_with_measurements(documents: ModuleType) -> None:
    shown, blocks = set(), documents.blocks()
    for page in documents.pages():
        for name, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if name in blocks:
                command = "python benchmarks/documents.py --write"
                assert text == blocks[name], f"{name_of(page)} is not up to date: {command}"
                shown.add(name)
    assert shown == set(blocks)


@pytest.mark.filterwarnings("ignore:Learning did not lower:UserWarning")
@pytest.mark.parametrize("dataset", ["paper/balance", "paper/iris", "paper/wine"])
def test_measurements_are_those_of_current_defaults(documents: ModuleType, dataset: str) -> None:
    quality, method = documents.quality, "BoostMetric()"
    known = [
        each["error"]
        for each in documents.lines_of(quality.MEASURED)
        if (each["dataset"], each["method"]) == (dataset, method)
    ]
    errors = [quality.measure(dataset, seed, method)["error"] for seed in range(len(known))]
    assert fmean(errors) == pytest.approx(fmean(known), abs=1.0), "make figures"


def test_picture_is_that_of_current_defaults(documents: ModuleType) -> None:
    ran = run_example("plot_circles").names
    stored = documents.metadata_of("circles.png")
    assert stored["digest"] == documents.digest("plot_circles"), "make figures"
    assert stored["settings"] == ran.settings
    for name, errors in stored["errors"].items():
        assert list(errors.values()) == pytest.approx(list(ran.errors[name].values()), abs=0.5)


def test_configuration_needs_only_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    settings = runpy.run_path(str(DOCS / "conf.py"))
    assert settings["release"] == boostmetric.__version__
    for extension in ("mathml", "plain_docstrings", "repository_pages"):
        assert extension in settings["extensions"]
        assert (DOCS / "_ext" / f"{extension}.py").exists()


@pytest.mark.parametrize("extension", ["plain_docstrings", "repository_pages"])
def test_doctests_of_extensions(extension: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(DOCS / "_ext")
    outcome = doctest.testmod(importlib.import_module(extension))
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_formulas_are_valid(path: Path) -> None:
    latex2mathml = pytest.importorskip("docutils.utils.math.latex2mathml")
    text = re.sub(r"`[^`\n]*`", "", prose(path))
    inline = re.findall(r"(?<![\\$])\$([^$\n]+(?:\n[^$\n]+)?)\$(?!\$)", text)
    displayed = [re.sub(r"^:label:.*\n", "", body) for body in blocks(path, "{math}")]
    for formula in [*inline, *displayed]:
        latex2mathml.tex2mathml(formula)
