"""The report: one HTML page with our results beside the paper's numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path
from string import Template

from boostmetric._files import whole
from boostmetric_paper.experiments.outcomes import (
    ROUNDING,
    Outcomes,
    Runs,
    average_ranks,
    count_ratios,
    error_of,
    exponent,
    failures,
    grid,
    in_order,
    numbers,
    ratio,
    read_outcomes,
    score,
    size_of,
    verdict,
    worse_than_euclidean,
    worst_ratio,
)
from boostmetric_paper.experiments.paper import (
    DATASETS,
    Score,
    paper_eigenvalues,
    paper_error,
    paper_ratio,
    paper_seconds,
    paper_sizes,
    paper_table2,
    paper_table2_cells,
)
from boostmetric_paper.experiments.pictures import (
    Html,
    ReportError,
    check_matplotlib,
    circles_picture,
    details,
    difference_text,
    escape,
    exponent_text,
    name_of,
    overview_text,
    ratio_picture,
    ratio_text,
    reached_text,
    running_time_picture,
    score_text,
    seconds_text,
    table,
)
from boostmetric_paper.experiments.vision_sections import SECTIONS

__all__ = ["ReportError", "write_report"]

EXPERIMENTS = ("table1", "table2", "circles", "runtime", *SECTIONS)
"""What `boostmetric-paper reproduce` makes, each a file of results."""

GOALS = {"mnist": 1.70, "usps": 1.95, "yfaces": 5.0, "balance": 5.3}
"""Errors in per cent that the recipe is to reach."""

RATIO_GOALS = {"letter": 0.5}
"""Ratios to the Euclidean error that the recipe is to reach."""

TIMED = ("lmnn", "itml", "boostmetric-e", "boostmetric-l")
"""The methods whose computation time the paper prints."""


def write_report(results: Path, target: Path) -> None:
    """Write a page that needs no other file, under a temporary name first.

    Parameters
    ----------
    results : folder with the files of `EXPERIMENTS`, "table1.jsonl" and so on, of which any may be
        missing: its part of the page then says which command makes it
    target : the HTML file; its folder is created if need be

    Raises
    ------
    ReportError
        Before any work, if matplotlib is missing.
    FileNotFoundError
        If there is no folder of results.
    """
    check_matplotlib()
    if not results.is_dir():
        raise FileNotFoundError(
            f"there is no folder {results}: boostmetric-paper reproduce table1 makes results"
        )
    page = _page({name: read_outcomes(results / f"{name}.jsonl", name) for name in EXPERIMENTS})
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole(target) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _page(outcomes: Mapping[str, Outcomes]) -> str:
    folder = resources.files("boostmetric_paper.experiments")
    table1 = outcomes["table1"]
    parts = {
        "css": folder.joinpath("page.css").read_text("utf-8").strip(),
        "headline": _headline(table1),
        "made": _made(outcomes.values()),
        "unreadable": _unreadable(outcomes),
        "errors": _section("table1", table1, _errors),
        "ratios": _section("table1", table1, _ratios),
        "ranks": _section("table1", table1, _ranks),
        "times": _section("table1", table1, _times),
        "chosen": _section("table1", table1, _chosen),
        "table2": _section("table2", outcomes["table2"], _table2),
        "circles": _section("circles", outcomes["circles"], _circles),
        "runtime": _section("runtime", outcomes["runtime"], _runtime),
        **{
            name.replace("-", "_"): _section(name, outcomes[name], show)
            for name, show in SECTIONS.items()
        },
    }
    return Template(folder.joinpath("page.html").read_text("utf-8")).substitute(parts)


def _section(experiment: str, outcomes: Outcomes, show: Callable[[Outcomes], str]) -> str:
    if outcomes.cells:
        return show(outcomes)
    return (
        '<p class="missing">No results yet: '
        f"<code>boostmetric-paper reproduce {experiment}</code> makes them.</p>"
    )


def _headline(table1: Outcomes) -> str:
    """The whole of Table 1 in two sentences."""
    cells = grid(table1)
    words = Counter(verdict(error_of(runs), paper_error(*cell)) for cell, runs in cells.items())
    n_compared = sum(words[word] for word in ("within", "lower", "higher"))
    if not n_compared:
        return ""
    n_at_or_below, n_ratios = count_ratios(table1)
    return (
        f"<p><strong>Table 1 in short:</strong> of {n_compared} errors that can be compared with "
        f"the paper's, {words['within']} are within the spread, {words['lower']} lower and "
        f"{words['higher']} higher. Of {n_ratios} ratios to the Euclidean error, {n_at_or_below} "
        "are at or below the paper's.</p>"
    )


def _made(outcomes: Iterable[Outcomes]) -> str:
    """Machines, versions and dates of all records."""
    records = [record for o in outcomes for runs in o.cells.values() for record in runs.values()]
    versions: dict[str, set[str]] = {}
    for record in records:
        for package, version in (record.get("versions") or {}).items():
            versions.setdefault(package, set()).add(str(version))
    machines = sorted({str(record["machine"]) for record in records if record.get("machine")})
    dates = sorted({str(record["date"]) for record in records if record.get("date")})
    n_failed = sum(bool(record.get("failure")) for record in records)
    facts = {
        "Machines" if len(machines) > 1 else "Machine": "; ".join(machines),
        "Versions": ", ".join(f"{name} {' and '.join(sorted(v))}" for name, v in versions.items()),
        "Dates": " to ".join(dict.fromkeys([*dates[:1], *dates[-1:]])),
        "Cells": f"{len(records):,}, of which {n_failed} failed",
    }
    return "\n".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items() if v)


def _unreadable(outcomes: Mapping[str, Outcomes]) -> str:
    counts = [f"{o.n_unreadable} of {name}.jsonl" for name, o in outcomes.items() if o.n_unreadable]
    if not counts:
        return ""
    return (
        f'<p class="note">Lines that could not be read, and were left out: {", ".join(counts)}.</p>'
    )


def _errors(outcomes: Outcomes) -> str:
    cells = grid(outcomes)
    n_missing = sum(not runs for runs in cells.values())
    note = (
        f'<p class="note">Cells of the paper that were not run yet: {n_missing}. '
        "<code>boostmetric-paper reproduce table1</code> computes what is missing.</p>"
    )
    tables = "".join(
        details(
            f"{dataset}: errors of all methods",
            _sizes(dataset) + _comparison("method", rows, outcomes.n_seeds(dataset)),
        )
        for dataset, rows in _by_dataset(cells).items()
    )
    overview = _matrix(cells, lambda cell, runs: overview_text(error_of(runs), paper_error(*cell)))
    legend = '<p class="quiet">Above: the mean here; below it, in small print, the paper\'s.</p>'
    return (note if n_missing else "") + legend + overview + tables


def _by_dataset(
    cells: Mapping[tuple[str, str], Runs],
) -> dict[str, dict[str, tuple[Runs, Score | None]]]:
    """For every dataset and the name of every method, our runs and the paper's error."""
    found: dict[str, dict[str, tuple[Runs, Score | None]]] = {}
    for (dataset, method), runs in cells.items():
        row = (runs, paper_error(dataset, method))
        found.setdefault(dataset, {})[name_of(method)] = row
    return found


def _sizes(dataset: str) -> str:
    sizes = paper_sizes(dataset)
    if not sizes:
        return ""
    pca = f", {sizes['pca_dimension']} after PCA" if "pca_dimension" in sizes else ""
    return (
        f'<p class="quiet">{sizes["training"]:,} training, {sizes["validation"]:,} validation and '
        f"{sizes['test']:,} test points; {sizes['dimension']:,} features{pca}; {sizes['classes']} "
        f"classes. Runs of the paper: {sizes['runs']}.</p>"
    )


def _comparison(first: str, rows: Mapping[str, tuple[Runs, Score | None]], n_seeds: int) -> str:
    """A table of errors: ours, the paper's, the difference with the verdict."""
    body = []
    for name, (runs, papers) in rows.items():
        ours = error_of(runs)
        difference = difference_text(ours, papers)
        body.append([name, _ours(runs, n_seeds), score_text(papers), difference])
    return table([first, "here", "paper", "difference"], body, f"scores {first}")


def _ours(runs: Runs, n_seeds: int) -> Html:
    """Our error; in small print what there is to say about it."""
    if not runs:
        return Html("not run")
    errors = numbers(runs, "error")
    nearest = score(numbers(runs, "error_nearest", 100).values())
    small = failures(runs)
    if errors and len(errors) < n_seeds:
        small.append(f"{len(errors)} of {n_seeds} splits")
    if nearest:
        small.append(f"nearest {nearest[0]:.2f}")
    lines = "".join(f"<small>{escape(line)}</small>" for line in small)
    return Html((score_text(error_of(runs)) if errors else "") + lines)


def _matrix(
    cells: Mapping[tuple[str, str], Runs], show: Callable[[tuple[str, str], Runs], Html]
) -> str:
    """Methods by datasets, in a box that scrolls."""
    datasets = list(dict.fromkeys(dataset for dataset, _ in cells))
    methods = in_order(method for _, method in cells)
    rows = [
        [name_of(m), *(show((d, m), cells[d, m]) if (d, m) in cells else "" for d in datasets)]
        for m in methods
    ]
    return table(["method", *datasets], rows, "scores method")


def _ratios(outcomes: Outcomes) -> str:
    cells = {cell: runs for cell, runs in grid(outcomes).items() if cell[1] != "euclidean"}
    n_at_or_below, n_both = count_ratios(outcomes)
    overview = _matrix(
        cells, lambda cell, _: ratio_text(ratio(outcomes, *cell), paper_ratio(*cell))
    )
    shown = []
    for dataset in dict.fromkeys(dataset for dataset, _ in cells):
        rows = [
            (name_of(method), ratio(outcomes, dataset, method), paper_ratio(dataset, method))
            for name, method in cells
            if name == dataset
        ]
        rows = [row for row in rows if row[1:] != (None, None)]
        description = f"Ratios to the Euclidean error on {dataset}, here and in the paper"
        shown.append(f"<h3>{escape(dataset)}</h3>{ratio_picture(rows, description)}")
    columns = "".join(f"<div>{one}</div>" for one in shown)
    return (
        f"<p><strong>{n_at_or_below} of {n_both}</strong> ratios are at or below the paper's.</p>"
        f'{overview}<div class="pictures">{columns}</div>'
    )


def _ranks(outcomes: Outcomes) -> str:
    ranks = average_ranks(outcomes)
    datasets = [d for d in outcomes.datasets(DATASETS) if outcomes.n_seeds(d)]
    rows = []
    for method, rank in ranks.items():
        n_found = sum(error_of(outcomes.runs(d, method)) is not None for d in datasets)
        worst = worst_ratio(outcomes, method)
        shown = f"{worst[0]:.2f} ({worst[1]})" if worst else "–"
        rows.append([name_of(method), f"{rank:.2f}", f"{n_found} of {len(datasets)}", shown])
    head = ["method", "average rank", "datasets", "worst case"]
    goals = table(["goal of the recipe", "here", "reached"], _goals(outcomes), "words")
    return f"{table(head, rows, 'scores method')}<h3>Goals</h3>{goals}"


def _goals(outcomes: Outcomes) -> list[list[str]]:
    """For every goal: its name, what the recipe gets, and whether that reaches it."""
    rows = []
    for dataset, goal in GOALS.items():
        ours = error_of(outcomes.runs(dataset, "recipe"))
        reached = reached_text(ours and ours[0] <= goal + ROUNDING)
        rows.append([f"{dataset}: error of at most {goal:.2f}", score_text(ours), reached])
    for dataset, goal in RATIO_GOALS.items():
        found = ratio(outcomes, dataset, "recipe")
        shown = "–" if found is None else f"{found:.2f}"
        reached = reached_text(None if found is None else found <= goal + ROUNDING)
        rows.append([f"{dataset}: at most {goal:.2f} of the Euclidean error", shown, reached])
    return [*rows, _never_worse(outcomes)]


def _never_worse(outcomes: Outcomes) -> list[str]:
    """Whether the recipe is nowhere above the Euclidean error by more than the spread."""
    worse, n_compared = worse_than_euclidean(outcomes, "recipe")
    shown = (
        f"{n_compared} of {len(DATASETS)} datasets measured; worse on {', '.join(worse) or 'none'}"
    )
    reached = None if n_compared < len(DATASETS) and not worse else not worse
    return ["nowhere worse than Euclidean by more than the spread", shown, reached_text(reached)]


def _times(outcomes: Outcomes) -> str:
    tried = [m for m in outcomes.methods() if m in TIMED or m in {m for _, m in outcomes.cells}]
    shown = {m: f"<h3>{escape(name_of(m))}</h3>{_time_table(outcomes, m)}" for m in tried}
    others = "".join(text for method, text in shown.items() if method not in TIMED)
    return "".join(shown[method] for method in TIMED) + details("Other methods", others)


def _time_table(outcomes: Outcomes, method: str) -> str:
    rows, paper_has_it = [], method in TIMED
    for dataset in outcomes.datasets(DATASETS):
        runs, papers = outcomes.runs(dataset, method), paper_seconds(dataset, method)
        fit, mining = numbers(runs, "fit_seconds"), numbers(runs, "mining_seconds")
        whole = score(time + mining.get(seed, 0.0) for seed, time in fit.items())
        rest = [
            score(numbers(runs, key).values())
            for key in ("processor_seconds", "memory", "iterations")
        ]
        if runs or papers:
            ours = seconds_text(whole) or ("; ".join(failures(runs)) if runs else "not run")
            printed = [f"{'< ' * papers[1]}{papers[0]:,.0f}"] if papers else ["–"] * paper_has_it
            rows.append([dataset, ours, *printed, *map(seconds_text, rest)])
    head = ["dataset", "here", *["paper"] * paper_has_it, "processor", "MB", "iterations"]
    return table(head, rows)


def _chosen(outcomes: Outcomes) -> str:
    found: dict[str, dict[str, Counter[str]]] = {}
    for dataset in outcomes.datasets(DATASETS):
        for record in outcomes.runs(dataset, "recipe").values():
            for setting, value in (record.get("chosen") or {}).items():
                counts = found.setdefault(dataset, {}).setdefault(setting, Counter())
                counts[str(value)] += 1
    if not found:
        return '<p class="missing">The recipe has no results yet.</p>'
    settings = list(dict.fromkeys(setting for chosen in found.values() for setting in chosen))
    rows = [
        [dataset, *(_counted(chosen.get(setting, Counter())) for setting in settings)]
        for dataset, chosen in found.items()
    ]
    return table(["dataset", *settings], rows, "words")


def _counted(counts: Counter[str]) -> Html:
    words = [f"<span>{escape(value)} ×{n}</span>" for value, n in counts.most_common(3)]
    others = f" and {len(counts) - 3} other{'s' * (len(counts) > 4)}" if len(counts) > 3 else ""
    return Html(", ".join(words) + others)


def _table2(outcomes: Outcomes) -> str:
    known = paper_table2_cells()
    parts = []
    for dataset in outcomes.datasets(known):
        tried = [method for name, method in outcomes.cells if name == dataset]
        rows = {
            method: (outcomes.runs(dataset, method), paper_table2(dataset, method))
            for method in dict.fromkeys([*known.get(dataset, ()), *sorted(tried)])
        }
        shown = _comparison("v", rows, outcomes.n_seeds(dataset))
        parts.append(f"<h3>{escape(dataset)}</h3>{shown}")
    return "".join(parts)


def _circles(outcomes: Outcomes) -> str:
    runs = outcomes.runs("circles", "boostmetric-e")
    papers = paper_eigenvalues()
    rows = []
    for number, paper in enumerate(papers):
        shares = [
            run["eigenvalues"][number]
            for run in runs.values()
            if len(run.get("eigenvalues") or ()) > number
        ]
        normed = f"{paper / sum(papers):.3f}"
        rows.append([f"{number + 1}", score_text(score(shares), 3), f"{paper:.3f}", normed])
    errors = [
        [name_of(method), _ours(found, outcomes.n_seeds("circles"))]
        for (_, method), found in outcomes.cells.items()
    ]
    picture = circles_picture("The circles projected to two dimensions by PCA, LDA and BoostMetric")
    return (
        table(["eigenvalue", "here", "paper", "paper / sum"], rows)
        + table(["method", "error in 2-D"], errors, "scores method")
        + picture
    )


def _runtime(outcomes: Outcomes) -> str:
    by_triplets: dict[int, dict[str, dict[int, Runs]]] = {}
    for (dataset, method), runs in outcomes.cells.items():
        size = size_of(dataset)
        if size:
            methods = by_triplets.setdefault(size[0], {})
            methods.setdefault(name_of(method), {})[size[1]] = runs
    return "".join(_running_time(n, methods) for n, methods in sorted(by_triplets.items()))


def _running_time(n_triplets: int, methods: Mapping[str, Mapping[int, Runs]]) -> str:
    """Picture, exponents and seconds for one number of triplets."""
    means: dict[str, dict[int, float]] = {}
    failed: dict[str, list[int]] = {}
    for name, by_size in methods.items():
        scores = {d: score(numbers(runs, "fit_seconds").values()) for d, runs in by_size.items()}
        means[name] = {d: found[0] for d, found in scores.items() if found}
        failed[name] = [d for d, runs in by_size.items() if failures(runs)]
    slopes = [
        [name, exponent_text(exponent(seconds)), exponent_text(exponent(seconds, 200))]
        for name, seconds in means.items()
    ]
    dimensions = sorted({d for by_size in methods.values() for d in by_size})
    rows = [
        [f"{d:,}", *(_time_cell(methods[name].get(d, {}), means[name].get(d)) for name in methods)]
        for d in dimensions
    ]
    description = f"Seconds against the dimension for {n_triplets} triplets, logarithmic axes"
    crosses = "<p class='quiet'>A cross at the top edge is a fit that failed.</p>"
    return (
        f"<h3>{n_triplets:,} triplets</h3>{running_time_picture(means, failed, description)}"
        + (crosses if any(failed.values()) else "")
        + table(["exponent", "all D", "D ≥ 200"], slopes)
        + table(["D", *(f"{name}, s" for name in methods)], rows)
    )


def _time_cell(runs: Runs, seconds: float | None) -> str:
    return "; ".join(
        [*([] if seconds is None else [seconds_text((seconds, None))]), *failures(runs)]
    )
