"""The report: our results next to the paper's, as Markdown tables and PNG figures."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import rankdata
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import ConfusionMatrixDisplay

from boostmetric._files import atomic_write
from boostmetric.data.synthetic import concentric_circles
from boostmetric_paper.experiments.cells import Record, Results
from boostmetric_paper.experiments.methods import TITLES, paper_method
from boostmetric_paper.experiments.paper import PAPER, Score, paper_score
from boostmetric_paper.experiments.registry import EXPERIMENTS
from boostmetric_paper.vision.sets import MSRC

ROUNDING = 1e-9
"""Differences up to this size are rounding errors of means."""

Runs = dict[int, Record]
"""Records of one method on one dataset by seed."""

Cells = dict[tuple[str, str], Runs]
"""Runs by dataset and method."""


def write_report(results: Path, output: Path) -> Path:
    """Write report.md and its figures.

    Parameters
    ----------
    results : folder with the files table1.jsonl, ... of `boostmetric-paper reproduce`; experiments
        without a file are named in the report
    output : folder of the report

    Returns
    -------
    path : that of report.md
    """
    if not results.is_dir():
        raise FileNotFoundError(
            f"There is no folder {results}. Run `boostmetric-paper reproduce` first, or set "
            "--results."
        )
    output.mkdir(parents=True, exist_ok=True)
    parts, records = [INTRODUCTION], []
    for name, section in SECTIONS.items():
        cells: Cells = {}
        for cell, record in sorted(Results(results / f"{name}.jsonl").read().items()):
            cells.setdefault((cell.dataset, cell.method), {})[cell.seed] = record
            records.append(record)
        parts.append(f"## {EXPERIMENTS[name].title}")
        if not cells:
            parts.append(f"No results. Run `boostmetric-paper reproduce {name}`.")
            continue
        text, figure = section(cells)
        parts.append(text.strip())
        if figure is not None:
            with atomic_write(output / f"{name}.png") as temporary:
                figure.savefig(temporary, format="png", dpi=120)
            parts.append(f"![{EXPERIMENTS[name].title}]({name}.png)")
    parts.insert(1, _provenance(records))
    path = output / "report.md"
    with atomic_write(path) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def _provenance(records: Sequence[Record]) -> str:
    """Number of cells, dates, machines and versions."""
    days = sorted({str(record["date"]) for record in records if "date" in record})
    versions = {f"{k} {v}" for record in records for k, v in record.get("versions", {}).items()}
    machines = sorted({str(record["machine"]) for record in records if "machine" in record})
    n_failed = sum("failure" in record for record in records)
    return (
        f"{len(records):,} cells, {n_failed} of them failed; {' to '.join(days[:1] + days[-1:])}; "
        f"{'; '.join(machines)}; {', '.join(sorted(versions))}."
    )


# Statistics


def values(runs: Runs, key: str, scale: float = 100.0) -> dict[int, float]:
    """A number of every successful run by seed, by default in percent."""
    return {
        seed: scale * record[key]
        for seed, record in runs.items()
        if "failure" not in record and record.get(key) is not None
    }


def mean(numbers: Iterable[float]) -> Score | None:
    """Mean and standard deviation, None without numbers."""
    numbers = list(numbers)
    if not numbers:
        return None
    return statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None


def verdict(ours: Score, paper: Score) -> str:
    """Whether our error is lower or higher than the paper's by more than √(s² + s′²).

    If one of the standard deviations is unknown, the other one replaces it.

    Examples
    --------
    >>> verdict((4.0, 0.5), (2.0, 1.0)), verdict((3.0, 0.5), (2.0, 1.0))
    ('higher', 'within')
    >>> verdict((3.0, None), (2.0, None))
    'single runs'
    """
    deviations = [deviation for _, deviation in (ours, paper) if deviation is not None]
    if not deviations:
        return "single runs"
    difference = ours[0] - paper[0]
    if abs(difference) <= math.hypot(deviations[0], deviations[-1]) + ROUNDING:
        return "within"
    return "lower" if difference < 0 else "higher"


def ratio(cells: Cells, dataset: str, method: str) -> float | None:
    """Mean error divided by the mean Euclidean error, over the splits that have both."""
    ours = values(cells.get((dataset, method), {}), "error")
    euclidean = values(cells.get((dataset, "euclidean"), {}), "error")
    common = ours.keys() & euclidean.keys()
    total = sum(euclidean[seed] for seed in common)
    return sum(ours[seed] for seed in common) / total if total else None


def average_ranks(cells: Cells) -> dict[str, float]:
    """Mean rank by error over the datasets; ties share their mean rank, missing errors are last."""
    datasets, methods = names_of(cells)
    ranks = []
    for dataset in datasets:
        errors = [mean(values(cells.get((dataset, m), {}), "error").values()) for m in methods]
        ranks.append(rankdata([error[0] if error else math.inf for error in errors]))
    averages = zip(methods, np.mean(ranks, axis=0).tolist(), strict=True)
    return dict(sorted(averages, key=lambda pair: pair[1]))


def slope(seconds: Mapping[int, float], min_features: int = 0) -> float | None:
    """Slope of log seconds against log D by least squares.

    >>> round(slope({10: 1.0, 100: 100.0, 1000: 10_000.0}), 6)
    2.0
    """
    used = [(D, time) for D, time in seconds.items() if min_features <= D]
    if len(used) < 2:
        return None
    features, times = np.log(np.array(used)).T
    return float(np.polyfit(features, times, 1)[0])


def names_of(cells: Cells, series: bool = False) -> tuple[list[str], list[str]]:
    """Datasets and methods in order; `series` selects those that vary the number of triplets."""
    names = [name for each in EXPERIMENTS.values() for name in (*each.datasets, *each.methods)]
    order = {name: i for i, name in enumerate(dict.fromkeys([*TITLES, *names]))}

    def position(name: str) -> tuple[int, str]:
        is_series = name.startswith("triplets=")
        return int(name.removeprefix("triplets=")) if is_series else order.get(name, 999), name

    methods = {method for _, method in cells if method.startswith("triplets=") == series}
    return sorted({dataset for dataset, _ in cells}, key=position), sorted(methods, key=position)


# Text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A Markdown table.

    >>> print(table(["n", "error"], [["1", "a|b"]]))
    | n | error |
    |---|---|
    | 1 | a\|b |
    """
    first, *rest = (
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
        for row in (head, *rows)
    )
    return "\n".join([first, "|---" * len(head) + "|", *rest])


def grid(
    rows: Iterable[str],
    columns: Sequence[str],
    text: Callable[[str, str], str],
    corner: str = "",
) -> str:
    """A table with the text of each row and column."""
    body = [[title_of(row), *(text(row, column) for column in columns)] for row in rows]
    return table([corner, *map(title_of, columns)], body)


def number(value: float | None, digits: int = 2) -> str:
    """A number, "–" if it is missing."""
    return "–" if value is None else f"{value:.{digits}f}"


def first(score: Score | None) -> float | None:
    """The mean, None if it is missing."""
    return score[0] if score else None


def score_text(score: Score | None, digits: int = 2) -> str:
    """The mean, with the standard deviation in parentheses."""
    if score is None or score[1] is None:
        return number(first(score), digits)
    return f"{number(score[0], digits)} ({number(score[1], digits)})"


def next_to(ours: str, paper: str) -> str:
    """Our number and the paper's, if it has one."""
    return ours if paper == "–" else f"{ours} / {paper}"


def seconds_text(seconds: float | None) -> str:
    """Seconds with two or three significant digits."""
    if seconds is None:
        return "–"
    if 0 < seconds < 0.001:
        return "< 0.001"
    if seconds < 1:
        return f"{seconds:.2g}"
    return f"{seconds:,.{2 if seconds < 10 else 1 if seconds < 100 else 0}f}"


def failures(runs: Runs) -> list[str]:
    """The reasons of failed runs, with their number unless all failed."""
    counts = Counter(str(record["failure"]) for record in runs.values() if "failure" in record)
    return [text if n == len(runs) else f"{text} ({n} runs)" for text, n in counts.items()]


def percent_text(runs: Runs, key: str = "error") -> str:
    """Mean and standard deviation in percent, and the reasons of failures."""
    score = mean(values(runs, key).values())
    return "; ".join([*([score_text(score)] if score else []), *failures(runs)]) or "–"


def title_of(name: str) -> str:
    """A method or dataset in tables.

    >>> title_of("lda"), title_of("triplets=18000"), title_of("200-words-shares")
    ('LDA', '18,000', '200 words, shares')
    """
    if name.startswith("triplets="):
        return f"{int(name.removeprefix('triplets=')):,}"
    return TITLES.get(name, name.replace("-words-", " words, ").replace("-words", " words"))


# Sections: from the cells of an experiment to Markdown and a figure


def table1(cells: Cells) -> tuple[str, Figure]:
    """Errors, ratios, ranks, times, and the choices of BoostMetricCV."""
    datasets, methods = names_of(cells)

    def paper_error(dataset: str, method: str) -> Score | None:
        return paper_score("table1", "errors", title_of(method), dataset)

    def error_text(method: str, dataset: str) -> str:
        runs = cells.get((dataset, method), {})
        ours, paper = mean(values(runs, "error").values()), paper_error(dataset, method)
        return next_to("†" if runs and not ours else number(first(ours)), number(first(paper)))

    def ratios(method: str, dataset: str) -> tuple[float | None, float | None]:
        paper, euclidean = paper_error(dataset, method), paper_error(dataset, "euclidean")
        ours = ratio(cells, dataset, method)
        return ours, paper[0] / euclidean[0] if paper and euclidean else None

    learned = [method for method in methods if method != "euclidean"]
    pairs = [ratios(method, dataset) for method in learned for dataset in datasets]
    is_below = [a <= b + ROUNDING for a, b in pairs if a is not None and b is not None]
    verdicts = Counter(
        verdict(ours, paper)
        for (dataset, method), runs in cells.items()
        if (ours := mean(values(runs, "error").values()))
        and (paper := paper_error(dataset, method))
    )
    ranks = []
    for method, rank in average_ranks(cells).items():
        known = [(r, d) for d in datasets if (r := ratio(cells, d, method)) is not None]
        worst = "{:.2f} ({})".format(*max(known)) if known else "–"
        ranks.append([title_of(method), number(rank), f"{len(known)}", worst])
    parts = [
        "3-NN test error in percent, ours / the paper's; † failed, – not available. "
        f"{verdicts['within']} errors are within √(s² + s′²) of the paper's, where s and s′ are "
        f"the standard deviations; {verdicts['lower']} are lower, {verdicts['higher']} higher, and "
        f"{verdicts['single runs']} are of single runs.",
        grid(methods, datasets, error_text),
        "Means and standard deviations over the splits. If the votes of neighbors are tied, the "
        "smallest label wins; in the column “nearest”, the label of the nearest tied neighbor.",
        _comparison(cells, paper_error),
        "Mean error divided by the mean Euclidean error over the same splits, ours / the paper's. "
        f"{sum(is_below)} of {len(is_below)} ratios are at or below the paper's.",
        grid(learned, datasets, lambda m, d: next_to(*map(number, ratios(m, d)))),
        "Average rank by error (no result counts as last), number of datasets with a result, and "
        "largest ratio to the Euclidean error.",
        table(["", "average rank", "datasets", "largest ratio"], ranks),
        "Means over the splits: wall-clock seconds of mining and fitting, ours and the paper's "
        "(Matlab, Intel Core 2 Duo), CPU seconds including the choice of settings, memory beyond "
        "the data in MB, and iterations.",
        table(
            ["", "dataset", "seconds", "paper", "CPU seconds", "MB", "iterations"],
            [_times(cells, d, m) for m in methods for d in datasets if (d, m) in cells],
        ),
        "Settings chosen by BoostMetricCV, with the number of splits.",
        _choices({d: cells.get((d, "recipe"), {}) for d in datasets}),
    ]
    figure = Figure(figsize=(12, 7.5), layout="constrained")
    panels = figure.subplots(2, math.ceil(len(datasets) / 2), squeeze=False, sharey=True).ravel()
    for axes, dataset in zip(panels, datasets, strict=False):
        axes.axvline(1, color="gray", linestyle="--")
        for column, marker, label in ((1, "D", "paper"), (0, "o", "here")):
            x = [ratios(method, dataset)[column] for method in reversed(methods)]
            places = [math.nan if value is None else value for value in x]
            axes.plot(places, [*map(title_of, reversed(methods))], marker, label=label)
        axes.set(title=dataset, xlabel="error / Euclidean error")
    panels[0].legend()
    for axes in panels[len(datasets) :]:
        axes.set_axis_off()
    return "\n\n".join(parts), figure


def _comparison(
    cells: Cells, paper_of: Callable[[str, str], Score | None], column: str = "method"
) -> str:
    """All errors with their spread, the difference to the paper's, and remarks."""
    datasets, methods = names_of(cells)
    rows = []
    for dataset in datasets:
        n_seeds = len({seed for (d, _), runs in cells.items() if d == dataset for seed in runs})
        for method in methods:
            runs = cells.get((dataset, method), {})
            errors, paper = values(runs, "error"), paper_of(dataset, method)
            if not runs and paper is None:
                continue
            ours, nearest = mean(errors.values()), mean(values(runs, "error_nearest").values())
            difference = ""
            if ours and paper:
                difference = f"{ours[0] - paper[0]:+.2f} ({verdict(ours, paper)})"
            remarks = failures(runs) if runs else ["not run"]
            if errors and len(errors) < n_seeds:
                remarks.append(f"{len(errors)} of {n_seeds} splits")
            scores = [score_text(ours), number(first(nearest)), score_text(paper)]
            rows.append([dataset, title_of(method), *scores, difference, "; ".join(remarks)])
    return table(["dataset", column, "error", "nearest", "paper", "difference", "remarks"], rows)


def _times(cells: Cells, dataset: str, method: str) -> list[str]:
    runs = cells[dataset, method]
    fit, mining = values(runs, "fit_seconds", 1), values(runs, "mining_seconds", 1)
    seconds = mean(time + mining.get(seed, 0.0) for seed, time in fit.items())
    paper = PAPER["table1"]["seconds"].get(title_of(method), {}).get(dataset)
    others = (
        mean(values(runs, key, 1).values()) for key in ("processor_seconds", "memory", "iterations")
    )
    return [
        title_of(method),
        dataset,
        seconds_text(seconds[0]) if seconds else "; ".join(failures(runs)),
        f"< {paper['less_than']}" if isinstance(paper, dict) else f"{paper:,.0f}" if paper else "–",
        *(seconds_text(first(other)) for other in others),
    ]


def _choices(runs_of: Mapping[str, Runs]) -> str:
    """How often each value of a setting was chosen on each dataset."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for dataset, runs in runs_of.items():
        for record in runs.values():
            for setting, value in record.get("chosen", {}).items():
                of_dataset = counts.setdefault(dataset, {})
                of_dataset.setdefault(setting, Counter())[str(value)] += 1
    settings = list(dict.fromkeys(setting for chosen in counts.values() for setting in chosen))

    def most_common(counter: Counter[str]) -> str:
        shown = ", ".join(f"{value} ×{n}" for value, n in counter.most_common(3))
        return shown + (f" and {len(counter) - 3} more" if len(counter) > 3 else "")

    return table(
        ["dataset", *settings],
        [
            [dataset, *(most_common(chosen.get(setting, Counter())) for setting in settings)]
            for dataset, chosen in counts.items()
        ],
    )


def table2(cells: Cells) -> tuple[str, None]:
    """Errors for several strengths of the regularizer."""
    text = (
        "BoostMetric-E, stage-wise; v is `alpha` in absolute units. The paper calls its numbers in "
        "parentheses variances, but they have the size of standard deviations.\n\n"
    )
    return text + _comparison(cells, lambda d, v: paper_score("table2", d, v), "v"), None


def circles(cells: Cells) -> tuple[str, Figure]:
    """Eigenvalues, errors, and the projections of one sample."""
    papers = PAPER["circles"]["eigenvalues"]
    runs = cells.get(("circles", "boostmetric-e"), {}).values()
    shares = [record["eigenvalues"] for record in runs if "eigenvalues" in record]
    rows = []
    for i, paper in enumerate(papers):
        ours = score_text(mean(each[i] for each in shares if len(each) > i), 3)
        rows.append([f"{i + 1}", ours, f"{paper:.3f}", f"{paper / sum(papers):.3f}"])
    text = (
        "Four circles in two dimensions and eight dimensions of noise. Our eigenvalues are shares "
        "of the trace; the paper does not state its scale.\n\n"
        + table(["eigenvalue", "here", "paper", "paper / sum"], rows)
        + "\n\nError on new points in the two leading dimensions, in percent.\n\n"
        + grid(names_of(cells)[1], ["error"], lambda m, _: percent_text(cells["circles", m]))
    )
    X, y = concentric_circles(random_state=0)
    boosted = paper_method().fit(X, y)
    projections = {
        "PCA": PCA(2).fit_transform(X),
        "LDA": LinearDiscriminantAnalysis(n_components=2).fit(X, y).transform(X),
        "BoostMetric-E": boosted.metric_.truncate(2).transform(X),
    }
    figure = Figure(figsize=(12, 4), layout="constrained")
    for axes, (title, Z) in zip(figure.subplots(1, 3), projections.items(), strict=True):
        axes.scatter(*Z.T, c=y, s=8)
        axes.set_title(title)
    return text, figure


def runtime(cells: Cells) -> tuple[str, Figure]:
    """Seconds against the number of features, and the slopes in logarithmic coordinates."""
    _, methods = names_of(cells)
    sizes = sorted(tuple(map(int, dataset.split("x"))) for dataset in {d for d, _ in cells})
    counts = sorted({n for n, _ in sizes})
    parts = [
        "Seconds per fit. The slope is that of log seconds against log D. The paper states 2 per "
        "iteration for BoostMetric, which needs one eigenvector, and 3 for LMNN, which needs a "
        "full eigendecomposition."
    ]
    figure = Figure(figsize=(12, 4), layout="constrained")
    panels = figure.subplots(1, len(counts), squeeze=False, sharex=True, sharey=True).ravel()
    for axes, n_triplets in zip(panels, counts, strict=True):
        features = [D for n, D in sizes if n == n_triplets]
        rows: dict[str, list[str]] = {f"{D:,}": [] for D in features}
        slopes: dict[str, list[str]] = {"slope": [], "slope, D ≥ 200": []}
        for method in methods:
            seconds = {}
            for D in features:
                runs = cells.get((f"{n_triplets}x{D}", method), {})
                score = mean(values(runs, "fit_seconds", 1).values())
                if score:
                    seconds[D] = score[0]
                text = [seconds_text(score[0])] if score else []
                rows[f"{D:,}"].append("; ".join(text + failures(runs)) or "–")
            slopes["slope"].append(number(slope(seconds)))
            slopes["slope, D ≥ 200"].append(number(slope(seconds, 200)))
            axes.loglog(list(seconds), list(seconds.values()), "o-", label=title_of(method))
        body = [[name, *texts] for name, texts in {**rows, **slopes}.items()]
        parts += [f"{n_triplets:,} triplets:", table(["D", *map(title_of, methods)], body)]
        axes.set(title=f"{n_triplets:,} triplets", xlabel="features D", ylabel="seconds")
        axes.legend()
    return "\n\n".join(parts), figure


def motorbikes(cells: Cells) -> tuple[str, Figure]:
    """Errors, also against the number of triplets."""
    datasets, methods = names_of(cells)
    _, series = names_of(cells, series=True)

    def error_text(method: str, dataset: str) -> str:
        paper = paper_score("motorbikes", title_of(method), dataset)
        return next_to(percent_text(cells.get((dataset, method), {})), score_text(paper))

    text = (
        "3-NN error in percent on histograms of visual words, ours / the paper's, over ten splits. "
        "The paper shows the Euclidean distance and LMNN in a figure only.\n\n"
        + grid(methods, datasets, error_text)
        + "\n\nBoostMetric-E by the number of triplets.\n\n"
        + grid(series, datasets[:1], error_text, "triplets")
        + _skipped(cells)
    )
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    _plot_series(axes, cells, datasets[0], "error")
    axes.set(xlabel="triplets", ylabel="3-NN error in %")
    return text, figure


def faces(cells: Cells) -> tuple[str, Figure]:
    """Precision of the first retrieved images."""
    datasets, methods = names_of(cells)
    ranks = (5, 10, 15, 20)
    rows = [
        [title_of(d), title_of(m), *(percent_text(cells[d, m], f"precision_{k}") for k in ranks)]
        for d in datasets
        for m in methods
        if (d, m) in cells
    ]
    text = (
        "Precision in percent of the first images; each test image of a face is a query. The paper "
        "shows a figure without numbers.\n\n"
        + table(["features", "", *(f"at {k}" for k in ranks)], rows)
        + _skipped(cells)
    )
    figure = Figure(figsize=(3.5 * len(datasets), 4), layout="constrained")
    panels = figure.subplots(1, len(datasets), squeeze=False, sharey=True).ravel()
    for axes, dataset in zip(panels, datasets, strict=True):
        for method in methods:
            runs = cells.get((dataset, method), {})
            scores = {k: mean(values(runs, f"precision_{k}").values()) for k in ranks}
            _plot_scores(axes, scores, title_of(method))
        axes.set(title=title_of(dataset), xlabel="retrieved images")
    panels[0].set_ylabel("precision in %")
    panels[0].legend()
    return text, figure


def msrc(cells: Cells) -> tuple[str, Figure]:
    """Errors by group, and the confusion matrix of BoostMetric-E."""
    _, methods = names_of(cells)
    seeds = sorted({seed for runs in cells.values() for seed in runs})

    def error_text(row: str, method: str) -> str:
        name = "BoostMetric" if method == "boostmetric-e" else title_of(method)
        runs = cells["regions", method]
        if row == "mean":
            paper = score_text(paper_score("table3", "average", name))
            return next_to(percent_text(runs), paper)
        group = int(row) - 1
        papers = PAPER["table3"]["groups"].get(name, [])
        paper = number(papers[group] if group < len(papers) else None)
        return next_to(number(values(runs, "error").get(group)), paper)

    text = (
        "3-NN error in percent on the test regions of ten random halves, ours / the paper's. The "
        "paper's halves are unknown, so only the means can be compared.\n\n"
        + grid([*(f"{seed + 1}" for seed in seeds), "mean"], methods, error_text, "group")
        + _skipped(cells)
    )
    figure = Figure(figsize=(7, 6), layout="constrained")
    runs = cells.get(("regions", "boostmetric-e"), {}).values()
    matrices = [record["confusion"] for record in runs if "confusion" in record]
    if matrices:
        axes = figure.subplots()
        display = ConfusionMatrixDisplay(np.sum(matrices, axis=0), display_labels=MSRC)
        display.plot(ax=axes, xticks_rotation=45, colorbar=False)
        axes.set_title("BoostMetric-E, all groups")
    return text, figure


def lfw(cells: Cells) -> tuple[str, Figure]:
    """Accuracies of MkNN, of the distance, and of other scores; averaged ROC curves."""
    datasets, methods = names_of(cells)
    _, series = names_of(cells, series=True)

    def mknn_text(method: str, dataset: str) -> str:
        n_triplets = method.removeprefix("triplets=")
        paper = paper_score("table4", "accuracies", n_triplets, dataset)
        runs = cells.get((dataset, method), {})
        return next_to(percent_text(runs, "accuracy"), score_text(paper))

    def distance_text(method: str, dataset: str) -> str:
        return percent_text(cells.get((dataset, method), {}), "accuracy_distance")

    keys = ("accuracy", "accuracy_mknn", "equal_error_rate")
    others = [
        [title_of(m), d, *(percent_text(cells[d, m], key) for key in keys)]
        for m in methods
        for d in datasets
        if (d, m) in cells
    ]
    parts = [
        "Accuracy in percent over the ten folds. MkNN by BoostMetric-E, ours / the paper's:",
        grid(series, datasets, mknn_text, "triplets"),
        "The same metrics with a threshold on the distance:",
        grid(series, datasets, distance_text, "triplets"),
        "Other scores:",
        table(["", "dimensions", "accuracy", "with MkNN", "equal error rate"], others),
        "Published accuracies with one and with several descriptors, from the paper:",
        grid(
            PAPER["table5"]["accuracies"],
            ("single", "multiple"),
            lambda *keys: score_text(paper_score("table5", "accuracies", *keys)),
        ),
    ]
    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for dataset in datasets:
        _plot_series(left, cells, dataset, "accuracy")
    left.set(xlabel="triplets", ylabel="accuracy of MkNN in %")
    left.legend()
    for (dataset, method), runs in cells.items():
        curves = [record for record in runs.values() if "roc_found" in record]
        if curves:
            name = f"{title_of(method)} triplets" if method in series else title_of(method)
            right.plot(*mean_curve(curves), label=f"{dataset}, {name}")
    right.set(xlabel="different pairs accepted", ylabel="same pairs accepted")
    right.legend(loc="lower right")
    return "\n\n".join(parts) + _skipped(cells), figure


def mean_curve(curves: Sequence[Record]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The ROC curve averaged over the folds at equal thresholds, from (0, 0) to (1, 1)."""
    accepted, found = (
        np.mean([record[key] for record in curves], axis=0) for key in ("roc_accepted", "roc_found")
    )
    order = np.argsort(accepted + found)
    return np.r_[0.0, accepted[order], 1.0], np.r_[0.0, found[order], 1.0]


def _plot_series(axes: Axes, cells: Cells, dataset: str, key: str) -> None:
    """A score against the number of triplets."""
    scores = {}
    for method in names_of(cells, series=True)[1]:
        runs = cells.get((dataset, method), {})
        scores[int(method.removeprefix("triplets="))] = mean(values(runs, key).values())
    _plot_scores(axes, scores, dataset)


def _plot_scores(axes: Axes, scores: Mapping[int, Score | None], label: str) -> None:
    """Means with error bars of one standard deviation."""
    known = {x: score for x, score in scores.items() if score is not None}
    if known:
        means, deviations = zip(*known.values(), strict=True)
        yerr = [deviation or 0.0 for deviation in deviations]
        axes.errorbar(list(known), means, yerr, marker="o", capsize=2, label=label)


def _skipped(cells: Cells) -> str:
    """The names of unreadable images."""
    names = {
        name
        for runs in cells.values()
        for record in runs.values()
        for name in record.get("skipped", ())
    }
    return f"\n\nUnreadable images: {', '.join(sorted(names))}." if names else ""


SECTIONS: dict[str, Callable[[Cells], tuple[str, Figure | None]]] = {
    "table1": table1,
    "table2": table2,
    "circles": circles,
    "runtime": runtime,
    "caltech-motorbikes": motorbikes,
    "caltech-faces": faces,
    "msrc": msrc,
    "lfw": lfw,
}

INTRODUCTION = """\
# The paper's experiments, reproduced

Results of this package next to the numbers of “Positive Semidefinite Metric Learning Using \
Boosting-like Algorithms”, written by `boostmetric-paper report`. Numbers in parentheses are \
standard deviations. The paper's splits are unknown; ours are random splits of the same sizes. \
E and L are the exponential and the logistic loss, MP stands for multiple passes, TC for totally \
corrective."""
