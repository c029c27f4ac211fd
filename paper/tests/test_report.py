"""The report: the numbers on the page, and what happens to results that are not all there."""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from boostmetric_paper.experiments import pictures
from boostmetric_paper.experiments.paper import DATASETS
from boostmetric_paper.experiments.pictures import Html
from boostmetric_paper.experiments.report import ReportError, write_report

# old matplotlib, new pyparsing
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PICTURES = ("ratio_picture", "running_time_picture")
VOID = {"meta", "img", "br", "link", "wbr"}


class Page(HTMLParser):
    """The tables of a page by section, each a list of rows of text, and its whole text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[list[str]]]] = {}
        self.texts: dict[str, str] = {}
        self.sources: list[str] = []
        self.tags: set[str] = set()
        self._open, self._section = list[str](), ""
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self.sources += [found[key] or "" for key in ("src", "href") if key in found]
        if tag in VOID:
            return
        self._open.append(tag)
        if tag == "section":
            self._section = found["id"] or ""
        elif tag == "table":
            self.tables.setdefault(self._section, []).append([])
        elif tag == "tr":
            self.tables[self._section][-1].append([])
        elif tag in ("td", "th"):
            self.tables[self._section][-1][-1].append("")
        elif tag == "small":
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts[self._section] = self.texts.get(self._section, "") + data
        if "td" in self._open or "th" in self._open:
            self.tables[self._section][-1][-1][-1] += data

    def row(self, section: str, table: int, name: str) -> list[str]:
        (cells,) = (row[1:] for row in self.tables[section][table] if row[0] == name)
        return [" ".join(cell.split()) for cell in cells]

    def column(self, section: str, table: int, name: str) -> dict[str, str]:
        head, *rows = self.tables[section][table]
        return {row[0]: " ".join(row[head.index(name)].split()) for row in rows}


@pytest.fixture(autouse=True)
def circles(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were to show the circles; the other pictures are not drawn, to save time."""
    drawn: list[Any] = []
    monkeypatch.setattr("boostmetric.cli.demo.draw_circles", drawn.append, raising=False)
    for name in PICTURES:
        monkeypatch.setattr(
            f"boostmetric_paper.experiments.report.{name}", lambda *arguments: Html("")
        )
    return drawn


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PICTURES:
        monkeypatch.setattr(f"boostmetric_paper.experiments.report.{name}", getattr(pictures, name))


def cell(experiment: str, dataset: str, method: str, seed: int = 0, **values: Any) -> str:
    key = {"experiment": experiment, "dataset": dataset, "method": method, "seed": seed}
    return json.dumps({**key, **values})


def errors(dataset: str, method: str, *values: float, **rest: Any) -> list[str]:
    """Cells of Table 1 with these errors in per cent, for seeds 0, 1, ..."""
    return [
        cell("table1", dataset, method, seed, error=value / 100, **rest)
        for seed, value in enumerate(values)
    ]


def report(folder: Path, **lines: Iterable[str]) -> Page:
    for experiment, found in lines.items():
        (folder / f"{experiment}.jsonl").write_text("".join(f"{line}\n" for line in found))
    write_report(folder, folder / "made" / "page.html")
    return Page((folder / "made" / "page.html").read_text(encoding="utf-8"))


def details_of(dataset: str) -> int:
    return 1 + DATASETS.index(dataset)  # the first table of the section is the overview


def test_errors_stand_beside_the_papers(tmp_path: Path) -> None:
    ours = [2.0, 2.2, 2.7]
    page = report(tmp_path, table1=errors("usps", "boostmetric-l-tc", *ours, error_nearest=0.015))
    row = page.row("errors", details_of("usps"), "BoostMetric-L, TC")
    assert row[0] == f"{statistics.mean(ours):.2f} ({statistics.stdev(ours):.2f}) nearest 1.50"
    assert row[1:] == ["2.13 (0.41)", "+0.17 ✓ within"]
    assert page.column("errors", 0, "usps")["BoostMetric-L, TC"] == "2.30 2.13"
    assert page.row("errors", details_of("usps"), "LMNN") == ["not run", "3.49 (0.62)", ""]
    assert "of 1 errors that can be compared" in page.texts[""]
    assert f"not run yet: {15 * 7 - 8 - 1}." in page.texts["errors"]


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        # The paper's: 4.78 (0.40). The deviation of two values is |a - b| / sqrt(2).
        ((5.0, 5.5), "+0.47 ✓ within"),  # at most hypot(0.40, 0.354) = 0.534
        ((5.1, 5.6), "+0.57 ▲ higher"),
        ((3.9, 4.4), "−0.63 ▼ lower"),
        ((5.34,), "+0.56 ✓ within"),  # hypot(0.40, 0.40) = 0.566
        ((5.35,), "+0.57 ▲ higher"),
    ],
)
def test_spread_is_that_of_both(tmp_path: Path, ours: tuple[float, ...], words: str) -> None:
    page = report(tmp_path, table1=errors("usps", "euclidean", *ours))
    assert page.row("errors", details_of("usps"), "Euclidean")[2] == words


def test_single_runs_have_no_spread(tmp_path: Path) -> None:
    page = report(tmp_path, table1=errors("mnist", "lmnn", 2.2))
    assert page.row("errors", details_of("mnist"), "LMNN") == ["2.20", "2.30", "−0.10 single runs"]


def test_splits_that_lack_are_counted(tmp_path: Path) -> None:
    lines = errors("iris", "lda", 1, 2, 3) + errors("iris", "rca", 1, 2)
    page = report(tmp_path, table1=lines)
    assert page.row("errors", details_of("iris"), "LDA")[0] == "2.00 (1.00)"
    assert page.row("errors", details_of("iris"), "RCA")[0] == "1.50 (0.71) 2 of 3 splits"


def test_failures_are_told_in_words(tmp_path: Path) -> None:
    late = {"failure": "not finished in 600 s"}
    lines = [
        *errors("iris", "lda", 1, 2, 3),
        cell("table1", "iris", "nca", 0, error=0.04),
        cell("table1", "iris", "nca", 1, **late),
        cell("table1", "iris", "itml", 0, **late),
    ]
    page = report(tmp_path, table1=lines)
    nca = page.row("errors", details_of("iris"), "NCA")[0]
    assert nca == "4.00 not finished in 600 s (1 run) 1 of 3 splits"
    assert page.row("errors", details_of("iris"), "ITML")[0] == "not finished in 600 s"
    assert "6, of which 2 failed" in page.texts[""]


def test_ratios_are_over_the_splits_that_both_have(tmp_path: Path) -> None:
    lines = [
        *errors("usps", "euclidean", 50, 4, 6),
        cell("table1", "usps", "euclidean", 0, failure="lost"),
        *errors("usps", "boostmetric-l-tc", 90, 2, 3),
        *errors("usps", "lda", 90, 9, 9, 90),
    ]
    page = report(tmp_path, table1=lines)
    column = page.column("ratios", 0, "usps")
    assert column["BoostMetric-L, TC"] == f"0.50 ▲ {2.13 / 4.78:.2f}"
    assert column["LDA"] == f"1.80 ▲ {6.96 / 4.78:.2f}"
    assert "0 of 2 ratios" in page.texts["ratios"]


def test_a_ratio_equal_to_the_papers_counts_as_at_or_below(tmp_path: Path) -> None:
    lines = errors("usps", "euclidean", 4.78) + errors("usps", "lmnn", 3.49)
    page = report(tmp_path, table1=lines + errors("usps", "itml", 3.86))
    assert page.column("ratios", 0, "usps")["LMNN"].startswith("0.73 ▼")
    assert "1 of 2 ratios" in page.texts["ratios"]
    assert "Of 2 ratios to the Euclidean error, 1 are" in page.texts[""]


def test_ranks_average_over_datasets_with_the_missing_last(tmp_path: Path) -> None:
    lines = [
        *errors("iris", "euclidean", 4),
        *errors("iris", "lda", 2),
        *errors("iris", "rca", 2),
        *errors("wine", "euclidean", 20),
        *errors("wine", "lda", 30),
        cell("table1", "wine", "rca", failure="lost"),
        cell("table1", "wine", "nca", failure="lost"),
    ]
    page = report(tmp_path, table1=lines)
    _, *rows = page.tables["ranks"][0]
    # iris: 3, 1.5, 1.5, 4; wine: 1, 2, 3.5, 3.5
    assert rows == [
        ["LDA", "1.75", "2 of 2", "1.50 (wine)"],
        ["Euclidean", "2.00", "2 of 2", "1.00 (wine)"],
        ["RCA", "2.50", "1 of 2", "0.50 (iris)"],
        ["NCA", "3.75", "0 of 2", "–"],
    ]


def test_goals_are_reached_or_not(tmp_path: Path) -> None:
    lines = [
        *errors("mnist", "recipe", 1.70),
        *errors("usps", "recipe", 1.96),
        *errors("letter", "recipe", 2.5),
        *errors("letter", "euclidean", 5.0),
    ]
    goals = report(tmp_path, table1=lines).column("ranks", 1, "reached")
    answers = ["✓ reached", "✗ not reached", "not measured", "not measured", "✓ reached"]
    assert [*goals.values()] == [*answers, "not measured"]


@pytest.mark.parametrize(
    ("recipe", "answer"), [((21, 23), "✓ reached"), ((22, 24), "✗ not reached")]
)
def test_recipe_is_to_be_nowhere_worse_by_more_than_the_spread(
    tmp_path: Path, recipe: tuple[float, float], answer: str
) -> None:
    lines = [line for name in DATASETS for line in errors(name, "euclidean", 19, 21)]
    lines += [line for name in DATASETS[1:] for line in errors(name, "recipe", 19, 20)]
    page = report(tmp_path, table1=lines + errors(DATASETS[0], "recipe", *recipe))
    assert page.tables["ranks"][1][-1][2] == answer  # hypot(sqrt(2), sqrt(2)) = 2


def test_times_are_mining_and_fit(tmp_path: Path) -> None:
    spent = {"mining_seconds": 1.25, "processor_seconds": 12.5, "memory": 123.4, "iterations": 21}
    lines = [
        *errors("iris", "boostmetric-e", 2, fit_seconds=3.5, **spent),
        cell("table1", "iris", "boostmetric-e", 1, error=0.02, fit_seconds=2.0),
        cell("table1", "wine", "boostmetric-e", 1, failure="lost"),
        *errors("iris", "lda", 2, fit_seconds=1e-5, processor_seconds=0.25, memory=0),
    ]
    page = report(tmp_path, table1=lines)
    # The tables are those of LMNN, ITML, BoostMetric-E, BoostMetric-L, and others.
    assert page.row("times", 2, "iris") == [f"{(4.75 + 2) / 2:.2f}", "< 1", "12.5", "123", "21.0"]
    assert page.row("times", 4, "iris") == ["< 0.001", "0.25", "0", ""]
    assert page.row("times", 2, "mnist")[:2] == ["not run", "10,188"]
    assert page.row("times", 2, "wine")[:2] == ["lost", "2"]


def test_what_the_recipe_chose_is_counted(tmp_path: Path) -> None:
    lines = [
        cell("table1", "iris", "recipe", seed, error=0.02, chosen={"loss": loss, "alpha": 1e-7})
        for seed, loss in enumerate(["logistic", "exponential", "logistic"])
    ]
    for seed, stop in enumerate([7, 8, 9, 9, 6]):
        lines.append(cell("table1", "wine", "recipe", seed, error=0.02, chosen={"stops": [stop]}))
    assert report(tmp_path, table1=lines).tables["chosen"][0] == [
        ["dataset", "stops", "loss", "alpha"],
        ["wine", "[9] ×2, [7] ×1, [8] ×1 and 1 other", "", ""],
        ["iris", "", "logistic ×2, exponential ×1", "1e-07 ×3"],
    ]


def test_table_2_stands_beside_the_papers(tmp_path: Path) -> None:
    lines = [cell("table2", "diabetes", "v=1e-04", seed, error=0.25) for seed in range(2)]
    page = report(tmp_path, table2=lines)
    assert page.row("table2", 2, "v=1e-04") == ["25.00 (0.00)", "26.00 (1.46)", "−1.00 ✓ within"]
    assert page.row("table2", 0, "v=1e-08") == ["not run", "8.98 (2.59)", ""]


def test_circles_show_eigenvalues_errors_and_the_picture(
    tmp_path: Path, circles: list[Any]
) -> None:
    lines = [
        cell("circles", "circles", "boostmetric-e", 0, error=0.01, eigenvalues=[0.5, 0.4, 0.1]),
        cell("circles", "circles", "boostmetric-e", 1, error=0.02, eigenvalues=[0.6, 0.4, 0.0]),
        cell("circles", "circles", "pca", 0, error=0.7),
    ]
    page = report(tmp_path, circles=lines)
    total = 0.542 + 0.414 + 0.007
    assert page.row("circles", 0, "1") == ["0.550 (0.071)", "0.542", f"{0.542 / total:.3f}"]
    assert page.row("circles", 1, "BoostMetric-E") == ["1.50 (0.71)"]
    assert page.row("circles", 1, "PCA") == ["70.00 1 of 2 splits"]
    assert len(circles) == 1


def test_running_time_has_exponents_and_failures(tmp_path: Path) -> None:
    lines = [
        cell("runtime", f"250x{D}", "lmnn", fit_seconds=1e-6 * D**2 * max(D, 200))
        for D in (50, 100, 200, 400, 800)
    ]
    lines.append(cell("runtime", "250x1000", "lmnn", failure="not finished in 600 s"))
    lines.append(cell("runtime", "500x50", "mlpack-lmnn", fit_seconds=0.5))
    page = report(tmp_path, runtime=lines)
    points = [(math.log(D), math.log(D**2 * max(D, 200))) for D in (50, 100, 200, 400, 800)]
    slope = statistics.linear_regression(*zip(*points, strict=True)).slope
    assert page.row("runtime", 0, "LMNN") == [f"{slope:.2f}", "3.00"]
    assert page.row("runtime", 1, "800") == ["512"]
    assert page.row("runtime", 1, "1,000") == ["not finished in 600 s"]
    assert page.row("runtime", 2, "LMNN of mlpack") == ["–", "–"]
    assert page.texts["runtime"].count("A cross at the top edge") == 1


def test_the_newest_line_of_a_cell_counts(tmp_path: Path) -> None:
    lines = [
        *errors("iris", "lda", 9),
        cell("table1", "iris", "rca", failure="lost"),
        *errors("iris", "lda", 3),
        *errors("iris", "rca", 4),
    ]
    page = report(tmp_path, table1=lines)
    assert page.row("errors", details_of("iris"), "LDA")[0] == "3.00"
    assert page.row("errors", details_of("iris"), "RCA")[0] == "4.00"


def test_lines_that_cannot_be_read_are_left_out_and_counted(tmp_path: Path) -> None:
    good = errors("iris", "lda", 3)
    bad = [
        good[0][:30],
        "7",
        "null",
        "{}",
        cell("table2", "iris", "lda", error=0.5),
        cell("table1", "iris", "lda"),
        cell("table1", "iris", "lda", error=math.nan),
        cell("table1", "iris", "lda", error="0.5"),
        cell("table1", "iris", "lda", error=0.5, versions="3.11"),
    ]
    (tmp_path / "runtime.jsonl").write_bytes(b"\xff\xfe\n")
    page = report(tmp_path, table1=[*good, "", *bad])
    assert f"{len(bad)} of table1.jsonl, 1 of runtime.jsonl" in page.texts[""]
    assert page.row("errors", details_of("iris"), "LDA")[0] == "3.00"


def test_missing_files_name_the_command_that_makes_them(tmp_path: Path, circles: list[Any]) -> None:
    page = report(tmp_path)
    for section in ("errors", "ratios", "ranks", "times", "chosen"):
        assert "No results yet: boostmetric-paper reproduce table1 makes" in page.texts[section]
    for section in ("table2", "circles", "runtime"):
        assert f"No results yet: boostmetric-paper reproduce {section} makes" in page.texts[section]
    assert not circles
    assert not page.tables


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*boostmetric-paper reproduce"):
        write_report(tmp_path / "nowhere", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_text_of_results_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert('&')</script>"
    lines = [
        *errors(evil, evil, 3, chosen={evil: evil}, machine=evil, versions={evil: evil}, date=evil),
        cell("table1", "iris", evil, failure=evil),
        cell("table1", "iris", "recipe", error=0.5, chosen={evil: evil}),
    ]
    page = report(tmp_path, table1=lines, circles=[cell("circles", "circles", evil, error=0.1)])
    assert "script" not in page.tags
    assert evil in page.tables["errors"][0][0]
    assert evil in page.texts[""]
    assert page.tables["chosen"][0][1] == ["iris", f"{evil} ×1"]


@pytest.mark.usefixtures("draws")
def test_the_page_needs_no_other_file(tmp_path: Path) -> None:
    lines = [line for name in DATASETS for line in errors(name, "euclidean", 3, 4, machine="here")]
    runs = [cell("runtime", f"250x{D}", "lmnn", fit_seconds=D / 100) for D in (50, 100)]
    page = report(tmp_path, table1=lines + errors("iris", "lda", 3), runtime=runs)
    assert all(source.startswith(("#", "data:image/png;base64,")) for source in page.sources)
    assert sum(source.startswith("data:") for source in page.sources) == 7 + 1
    assert not page.tags & {"script", "link", "iframe", "object"}
    text = (tmp_path / "made" / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|@import|url\(|\$\w", text)


def test_the_old_page_stays_if_drawing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(figure: Any) -> None:
        raise RuntimeError("no ink")

    target = tmp_path / "made" / "page.html"
    report(tmp_path)
    target.write_text("old")
    monkeypatch.setattr("boostmetric.cli.demo.draw_circles", fail)
    with pytest.raises(RuntimeError, match="no ink"):
        report(tmp_path, circles=[cell("circles", "circles", "pca", error=0.7)])
    assert {path.name: path.read_text() for path in target.parent.iterdir()} == {"page.html": "old"}


def test_the_old_page_stays_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "page.html"
    target.write_text("old")
    write = Path.write_text

    def write_half(path: Path, text: str, **kwargs: Any) -> int:
        write(path, text[: len(text) // 2], **kwargs)
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path, target)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("page.html", "old")]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn, not turned into bytes."""
    found: list[Any] = []

    def keep(figure: Any, description: str) -> Html:
        found.append(figure)
        return Html(description)

    monkeypatch.setattr(pictures, "element", keep)
    return found


def test_dots_are_where_the_ratios_are(figures: list[Any]) -> None:
    pictures.ratio_picture([("a", 0.5, 0.25), ("b", 0.0, None), ("c", None, 1.5)], "dots")
    (axes,) = figures[0].axes
    dots = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert dots["here"] == [[0.5, 0], [0, -1]]
    assert dots["paper"] == [[0.25, 0], [1.5, -2]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]


def test_running_times_are_drawn_and_failures_marked(figures: list[Any]) -> None:
    pictures.running_time_picture({"a": {100: 3.0, 50: 1.0}, "b": {}}, {"b": [200]}, "lines")
    (axes,) = figures[0].axes
    curve, nothing, cross = axes.get_lines()
    assert curve.get_xydata().tolist() == [[50, 1], [100, 3]]
    assert not len(nothing.get_xydata())
    assert (cross.get_marker(), list(cross.get_xdata())) == ("x", [200])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_without_matplotlib_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ReportError, match=r"pip install boostmetric\[plots\]"):
        write_report(tmp_path, tmp_path / "page.html")
