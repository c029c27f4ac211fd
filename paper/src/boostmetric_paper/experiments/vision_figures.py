"""The figures of the experiments on images, from their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from boostmetric_paper.experiments.outcomes import Outcomes, Runs, in_order, numbers, score
from boostmetric_paper.experiments.paper import Score, paper_table
from boostmetric_paper.experiments.pictures import COLORS, MARKERS, PREFIX, name_of, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CUTS = (5, 10, 15, 20)
"""Numbers of retrieved images whose precision the paper shows."""

MSRC_CLASSES = ("building", "grass", "tree", "cow", "sky", "airplane", "face", "car", "bicycle")
"""The rows and columns of a table of confusions."""


def percent(runs: Runs, key: str = "error") -> Score | None:
    """Mean and standard deviation of a share, in per cent."""
    return score(numbers(runs, key, 100).values())


def whole_methods(outcomes: Outcomes) -> list[str]:
    """The methods that are not one of a series of numbers of triplets."""
    found = (method for _, method in outcomes.cells if not method.startswith(PREFIX))
    return in_order(found)


def n_triplets_of(outcomes: Outcomes) -> list[int]:
    """The numbers of triplets that were tried, in order."""
    return sorted({int(m.removeprefix(PREFIX)) for _, m in outcomes.cells if m.startswith(PREFIX)})


def motorbikes_figure(outcomes: Outcomes) -> Figure:
    """Errors by method and codebook, and against the number of triplets."""
    figure = new_figure(10, 4.2, dpi=120)
    left, right = figure.subplots(1, 2)
    methods = whole_methods(outcomes)
    datasets = [
        dataset for dataset in outcomes.datasets(()) if dataset in ("100-words", "200-words")
    ]
    width = 0.8 / max(1, len(methods))
    for number, method in enumerate(methods):
        scores = [percent(outcomes.runs(dataset, method)) for dataset in datasets]
        places = np.arange(len(datasets)) + (number - (len(methods) - 1) / 2) * width
        left.bar(
            places,
            [found[0] if found else np.nan for found in scores],
            width,
            yerr=[found[1] or 0 if found else 0 for found in scores],
            color=COLORS[number % len(COLORS)],
            label=name_of(method),
            capsize=2,
        )
    left.set_xticks(range(len(datasets)), [dataset.replace("-", " ") for dataset in datasets])
    left.set_ylabel("3-NN error in %")
    left.set_ylim(top=1.3 * left.get_ylim()[1])
    left.legend(fontsize=9, frameon=False, loc="upper center", ncols=3)
    triplets = n_triplets_of(outcomes)
    scores = [percent(outcomes.runs("100-words", f"{PREFIX}{n}")) for n in triplets]
    _curve(right, {n: found for n, found in zip(triplets, scores, strict=True) if found}, 0, "")
    right.set_xlabel("number of triplets, 100 words")
    right.set_ylabel("3-NN error in %")
    return _tidied(figure)


def faces_figure(outcomes: Outcomes) -> Figure:
    """Precision against the number of retrieved images, a panel for each representation."""
    datasets = outcomes.datasets(())
    figure = new_figure(10, 3.6 * ((len(datasets) + 1) // 2), dpi=120)
    panels = figure.subplots((len(datasets) + 1) // 2, 2, squeeze=False, sharey=True).ravel()
    for axes, dataset in zip(panels, datasets, strict=False):
        for number, method in enumerate(whole_methods(outcomes)):
            runs = outcomes.runs(dataset, method)
            found = {cut: percent(runs, f"precision_{cut}") for cut in CUTS}
            shown = {cut: each for cut, each in found.items() if each}
            _curve(axes, shown, number, name_of(method), shift=0.2 * number)
        axes.set_title(title_of(dataset), fontsize=10)
        axes.set_xticks(CUTS)
        axes.set_xlabel("retrieved images")
        axes.set_ylabel("precision in %")
    for axes in panels[len(datasets) :]:
        axes.remove()
    panels[0].legend(fontsize=9, frameon=False)
    return _tidied(figure)


def title_of(dataset: str) -> str:
    """A representation in words.

    >>> title_of("100-words"), title_of("200-words-shares")
    ('100 words, counts', '200 words, shares')
    """
    words, _, kind = dataset.partition("-words")
    return f"{words} words, {kind.removeprefix('-') or 'counts'}"


def msrc_figure(outcomes: Outcomes) -> Figure:
    """Errors group by group beside the paper's, and what BoostMetric takes for what."""
    figure = new_figure(11, 4.6, dpi=120)
    left, right = figure.subplots(1, 2)
    papers = paper_table("table3")["groups"]
    for number, (method, name) in enumerate(
        (("euclidean", "Euclidean"), ("boostmetric-e", "BoostMetric"))
    ):
        here = numbers(outcomes.runs("regions", method), "error", 100)
        style = {"color": COLORS[number], "marker": MARKERS[number], "linewidth": 1.5}
        left.plot([seed + 1 for seed in here], list(here.values()), label=f"{name}, here", **style)
        left.plot(
            range(1, 11),
            papers[name],
            label=f"{name}, paper",
            **{**style, "linestyle": ":", "markerfacecolor": "white"},
        )
    left.set_xlabel("group (its halves are not the paper's)")
    left.set_ylabel("error in %")
    left.legend(fontsize=9, frameon=False)
    left.set_ylim(bottom=0)
    _draw_confusion(right, confusion_of(outcomes.runs("regions", "boostmetric-e")))
    return _tidied(figure)


def confusion_of(runs: Runs) -> NDArray[np.intp] | None:
    """Regions of each class (rows) that are taken for each (columns), over the groups."""
    size = len(MSRC_CLASSES)
    tables = [np.asarray(run.get("confusion") or ()) for run in runs.values()]
    kept = [table for table in tables if table.shape == (size, size)]
    return np.sum(kept, axis=0) if kept else None


def _draw_confusion(axes: Axes, table: NDArray[np.intp] | None) -> None:
    if table is None:
        axes.set_axis_off()
        return
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    axes.imshow(np.sqrt(shares), cmap="Blues", vmin=0, vmax=1)
    for (row, column), n in np.ndenumerate(table):
        if n:
            dark = shares[row, column] > 0.3
            axes.text(
                column,
                row,
                f"{n}",
                ha="center",
                va="center",
                fontsize=8,
                color="w" if dark else "k",
            )
    places = range(len(MSRC_CLASSES))
    axes.set_xticks(places, MSRC_CLASSES, rotation=45, ha="right", fontsize=9)
    axes.set_yticks(places, MSRC_CLASSES, fontsize=9)
    axes.set_xlabel("taken for")
    axes.set_ylabel("regions of")
    axes.set_title("BoostMetric-E, all groups", fontsize=10)


def lfw_figure(outcomes: Outcomes) -> Figure:
    """Accuracy against the number of triplets beside the paper's, and averaged ROC curves."""
    figure = new_figure(11, 5, dpi=120)
    left, right = figure.subplots(1, 2)
    papers = paper_table("table4")["accuracies"]
    dimensions = [
        d for d in ("100D", "200D", "300D", "400D") if any(d == k for k, _ in outcomes.cells)
    ]
    for number, dimension in enumerate(dimensions):
        here = {
            n: percent(outcomes.runs(dimension, f"{PREFIX}{n}"), "accuracy")
            for n in n_triplets_of(outcomes)
        }
        shown = {n: (found[0], None) for n, found in here.items() if found}
        _curve(left, shown, number, f"{dimension}, here")
        left.plot(
            [int(n) for n in papers],
            [row[dimension][0] for row in papers.values()],
            color=COLORS[number],
            linestyle=":",
            label=f"{dimension}, paper",
        )
    left.set_xlabel("number of triplets")
    left.set_ylabel("accuracy in % (MkNN)")
    left.set_ylim(bottom=left.get_ylim()[0] - 1)
    left.legend(fontsize=8, frameon=False, ncols=2, loc="lower right")
    for number, (label, runs) in enumerate(roc_runs(outcomes).items()):
        accepted, found = mean_curve(runs)
        right.plot(accepted, found, color=COLORS[number % len(COLORS)], label=label)
    _mark_published(right)
    right.set_xlabel("share of different pairs accepted")
    right.set_ylabel("share of same pairs found")
    right.set_xlim(0, 0.6)
    right.set_ylim(0.4, 1)
    right.legend(fontsize=8, frameon=False, loc="lower right")
    return _tidied(figure)


def roc_runs(outcomes: Outcomes) -> dict[str, Runs]:
    """The runs that have a curve, by dimension and method in words."""
    return {
        f"{dataset}, {name_of(method)}": kept
        for (dataset, method), runs in outcomes.cells.items()
        if (kept := {seed: run for seed, run in runs.items() if run.get("roc_found")})
    }


def mean_curve(runs: Runs) -> tuple[NDArray, NDArray]:
    """The curve averaged over the folds at equal thresholds, from (0, 0) to (1, 1)."""
    rates = [
        np.mean([run[key] for run in runs.values()], axis=0)
        for key in ("roc_accepted", "roc_found")
    ]
    order = np.argsort(rates[0] + rates[1])
    accepted, found = (np.concatenate([[0.0], each[order], [1.0]]) for each in rates)
    return accepted, found


def _mark_published(axes: Axes) -> None:
    """Accuracies of the paper's last table, where errors of both kinds would be equal."""
    single = {
        name: row["single"][0] / 100
        for name, row in paper_table("table5")["accuracies"].items()
        if "single" in row
    }
    axes.plot(
        [1 - share for share in single.values()],
        list(single.values()),
        linestyle="none",
        marker="D",
        markersize=4,
        color="#555555",
        label="published accuracies (single descriptor)",
    )
    axes.plot([0, 0.6], [1, 0.4], color="#cccccc", linewidth=0.8, zorder=0)


def _curve(
    axes: Axes, scores: Mapping[int, Score], number: int, label: str, shift: float = 0.0
) -> None:
    """Means against a number, with bars of a standard deviation where there are several runs."""
    axes.errorbar(
        [x + shift for x in scores],
        [mean for mean, _ in scores.values()],
        yerr=[deviation or 0 for _, deviation in scores.values()],
        color=COLORS[number % len(COLORS)],
        marker=MARKERS[number % len(MARKERS)],
        markersize=5,
        capsize=2,
        label=label,
    )


def _tidied(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    return figure


FIGURES: dict[str, Callable[[Outcomes], Figure]] = {
    "caltech-motorbikes": motorbikes_figure,
    "caltech-faces": faces_figure,
    "msrc": msrc_figure,
    "lfw": lfw_figure,
}
"""By experiment."""
