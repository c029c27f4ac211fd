"""What the report is put together from: pictures drawn without a display, tables, boxes."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from boostmetric_paper.experiments.outcomes import (
    ROUNDING,
    verdict,
)
from boostmetric_paper.experiments.paper import (
    METHOD_NAMES,
    Score,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v")
"""Of the methods; the colours are told apart by the colour-blind too."""

FURTHER_NAMES = {
    "mlpack-lmnn": "LMNN of mlpack",
    "svm": "linear SVM",
    "boostmetric-squared-hinge": "BoostMetric, squared hinge",
    "pca-whitened-cosine": "whitened PCA, cosine",
    "within-class-cosine": "within-class whitening, cosine",
    "fixed-points": "BoostMetric-E, points of the mean face",
    "best": "BoostMetric, best single score",
    "combined": "combination of scores",
}
"""Of methods that Table 1 does not have."""

PREFIX = "triplets="
"""Of methods that are the paper's with a number of triplets."""

WIDTH = 4.5
"""Of a picture in inches: its letters can be read where it is 360 pixels wide."""


class Html(str):
    """Text that is HTML already, and not to be escaped."""

    __slots__ = ()


class ReportError(Exception):
    """The report cannot be drawn; the text says why and what to do."""


def check_matplotlib() -> None:
    """Raise a `ReportError` if there is nothing to draw with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ReportError(
            "the report draws with matplotlib, which is missing: pip install boostmetric[plots]"
        ) from None


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> Html:
    """A table in a box of its own that scrolls where it is too narrow.

    Parameters
    ----------
    head, rows : the cells; the first of a row names it
    kind : classes of the table: "words" where cells are not numbers, "scores" where they are not
        to be broken, "method" where methods name the rows

    Examples
    --------
    >>> "<th scope='row'>a &lt; b</th><td>1</td>" in table(["name", "n"], [["a < b", "1"]])
    True
    """
    heads = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in head)
    body = "\n".join(
        f"<tr><th scope='row'>{escape(first)}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows
    )
    return Html(
        f"<div class='box' tabindex='0'><table class='{kind}'><thead><tr>{heads}</tr></thead>\n"
        f"<tbody>{body}</tbody></table></div>\n"
    )


def details(summary: str, content: str) -> Html:
    """A box that opens on a click."""
    return Html(f"<details><summary>{escape(summary)}</summary>{content}</details>\n")


def escape(text: str) -> str:
    """Text as HTML.

    Examples
    --------
    >>> escape("a < b"), escape(Html("<b>"))
    ('a &lt; b', '<b>')
    """
    return text if isinstance(text, Html) else html.escape(text)


def overview_text(ours: Score | None, papers: Score | None) -> Html:
    """Our mean with a sign for the verdict, and the paper's below it."""
    word = verdict(ours, papers)
    sign = {"lower": " ▼", "higher": " ▲"}.get(word, "")
    mean = f"{ours[0]:.2f}{sign}" if ours else "–"
    small = f"{papers[0]:.2f}" if papers else "–"
    return Html(f'<span class="{_kind(word)}">{mean}</span><small>{small}</small>')


def ratio_text(ours: float | None, papers: float | None) -> Html:
    """Our ratio with a sign for at or below the paper's, and the paper's below it."""
    small = f"<small>{'–' if papers is None else f'{papers:.2f}'}</small>"
    if ours is None or papers is None:
        return Html(("–" if ours is None else f"{ours:.2f}") + small)
    kind, sign = ("better", "▼") if ours <= papers + ROUNDING else ("worse", "▲")
    return Html(f'<span class="{kind}">{ours:.2f} {sign}</span>{small}')


def reached_text(answer: bool | None) -> Html:
    """Whether a goal is reached; None for one that was not measured."""
    if answer is None:
        return Html("not measured")
    return Html(
        "<span class='better'>✓ reached</span>"
        if answer
        else "<span class='worse'>✗ not reached</span>"
    )


def exponent_text(value: float | None) -> str:
    """An exponent with two digits."""
    return "–" if value is None else f"{value:.2f}"


def name_of(method: str) -> str:
    """What a method is called on the page.

    >>> name_of("lda"), name_of("triplets=18000")
    ('LDA', 'BoostMetric-E, 18,000 triplets')
    """
    if method.startswith(PREFIX):
        return f"BoostMetric-E, {int(method.removeprefix(PREFIX)):,} triplets"
    return {**METHOD_NAMES, **FURTHER_NAMES}.get(method, method)


def score_text(found: Score | None, digits: int = 2) -> str:
    """Mean, and standard deviation in brackets."""
    if found is None:
        return "–"
    mean, deviation = found
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ({deviation:.{digits}f})")


def difference_text(ours: Score | None, papers: Score | None) -> Html:
    """The difference of two means with its sign, and the verdict below it."""
    if ours is None or papers is None:
        return Html("")
    word = verdict(ours, papers)
    sign = {"lower": "▼ ", "higher": "▲ ", "within": "✓ "}.get(word, "")
    number = f"{round(ours[0] - papers[0], 2) + 0.0:+.2f}".replace("-", "−")
    return Html(f'{number}<small class="{_kind(word)}">{sign}{word}</small>')


def seconds_text(found: Score | None) -> str:
    """A mean with two or three digits, more of a large one."""
    if found is None:
        return ""
    if 0 < found[0] < 0.001:
        return "< 0.001"
    digits = 2 if found[0] < 10 else 1 if found[0] < 100 else 0
    return f"{found[0]:.2g}" if found[0] < 1 else f"{found[0]:,.{digits}f}"


def _kind(word: str) -> str:
    return {"lower": "better", "higher": "worse", "within": "same"}.get(word, "unknown")


def ratio_picture(rows: Sequence[tuple[str, float | None, float | None]], description: str) -> Html:
    """Dots for every method: our ratio to the Euclidean error, and the paper's.

    Parameters
    ----------
    rows : for every method its name, our ratio and the paper's, from the top down
    description : for those who cannot see it
    """
    figure = new_figure(WIDTH, 0.9 + 0.24 * len(rows))
    axes = figure.subplots()
    axes.axvline(1, color="#555555", linewidth=1, linestyle="--", zorder=1)
    heights = -np.arange(len(rows))
    for height, (_, ours, papers) in zip(heights, rows, strict=True):
        if ours is not None and papers is not None:
            axes.plot([ours, papers], [height, height], color="#bbbbbb", linewidth=2, zorder=2)
    for label, column, marker, color, face in (
        ("paper", 2, "D", COLORS[1], "white"),
        ("here", 1, "o", COLORS[0], COLORS[0]),
    ):
        dots = [(row[column], y) for row, y in zip(rows, heights, strict=True)]
        x, y = np.array([dot for dot in dots if dot[0] is not None], float).reshape(-1, 2).T
        axes.plot(
            x,
            y,
            linestyle="none",
            marker=marker,
            markersize=6,
            color=color,
            markerfacecolor=face,
            label=label,
            zorder=3,
        )
    axes.set_yticks(heights, [name for name, _, _ in rows], fontsize=9)
    axes.set_ylim(-len(rows) + 0.4, 0.6)
    axes.set_xlim(left=min(0, axes.get_xlim()[0]), right=max(1.1, 1.03 * axes.get_xlim()[1]))
    axes.set_xlabel("error / Euclidean error", fontsize=10)
    axes.grid(axis="y", color="#eeeeee", zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=2, fontsize=10, frameon=False)
    return element(figure, description)


def running_time_picture(
    seconds: Mapping[str, Mapping[int, float]],
    failures: Mapping[str, Sequence[int]],
    description: str,
) -> Html:
    """Seconds against the dimension for every method, on logarithmic axes.

    Parameters
    ----------
    seconds : for every method, the time by dimension
    failures : for every method, the dimensions at which a fit failed: crosses along the top edge
    description : for those who cannot see it
    """
    figure = new_figure(WIDTH, 4.2)
    axes = figure.subplots()
    names = list(dict.fromkeys([*seconds, *failures]))
    for number, name in enumerate(names):
        color = COLORS[number % len(COLORS)]
        marker = MARKERS[number % len(MARKERS)]
        curve = sorted(seconds.get(name, {}).items())
        x, y = zip(*curve, strict=True) if curve else ((), ())
        axes.plot(x, y, color=color, marker=marker, markersize=6, linewidth=1.8, label=name)
        for dimension in failures.get(name, ()):
            axes.plot(
                [dimension],
                [0.97 - 0.05 * number],
                transform=axes.get_xaxis_transform(),
                color=color,
                marker="x",
                markersize=9,
                markeredgewidth=2.5,
                linestyle="none",
            )
    _make_logarithmic(axes)
    if any(failures.values()):
        axes.set_ylim(top=8 * axes.get_ylim()[1])
    figure.legend(loc="outside upper left", ncols=2, fontsize=10, frameon=False)
    return element(figure, description)


def circles_picture(description: str) -> Html:
    """The toy data projected to two dimensions by three methods."""
    from boostmetric.cli.demo import draw_circles

    figure = new_figure(12, 5, dpi=110)
    draw_circles(figure)
    return Html(f"<div class='box wide' tabindex='0'>{element(figure, description)}</div>")


def _make_logarithmic(axes: Axes) -> None:
    """Both axes, with ticks at 1, 2 and 5 times a power of ten for the dimension."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("dimension D", fontsize=10)
    axes.set_ylabel("seconds", fontsize=10)
    axes.grid(color="#dddddd")
    axes.spines[["top", "right"]].set_visible(False)


def new_figure(width: float, height: float, dpi: int = 160) -> Figure:
    """An empty figure on a canvas that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def element(figure: Figure, description: str) -> Html:
    """A figure as part of a page.

    Parameters
    ----------
    figure : what is shown
    description : for those who cannot see it
    """
    content = io.BytesIO()
    figure.savefig(content, format="png")
    data = base64.b64encode(content.getvalue()).decode("ascii")
    return Html(f"<img alt='{html.escape(description)}' src='data:image/png;base64,{data}'>")
