"""The parts of the report about the experiments on images."""

from __future__ import annotations

from collections.abc import Callable

from boostmetric_paper.experiments.outcomes import Outcomes, Runs, failures, numbers, score, verdict
from boostmetric_paper.experiments.paper import Score, as_score, paper_table
from boostmetric_paper.experiments.pictures import (
    PREFIX,
    Html,
    details,
    difference_text,
    element,
    escape,
    name_of,
    score_text,
    table,
)
from boostmetric_paper.experiments.vision_figures import (
    CUTS,
    FIGURES,
    n_triplets_of,
    percent,
    title_of,
    whole_methods,
)

DIMENSIONS = ("100D", "200D", "300D", "400D")


def motorbikes(outcomes: Outcomes) -> str:
    """Errors beside the paper's, and against the number of triplets."""
    papers = paper_table("motorbikes")
    rows = []
    for dataset in ("100-words", "200-words"):
        for method in whole_methods(outcomes):
            runs = outcomes.runs(dataset, method)
            if runs:
                printed = as_score(papers.get(name_of(method), {}).get(dataset))
                ours = percent(runs)
                name = f"{title_of(dataset)}: {name_of(method)}"
                rows.append(
                    [name, _cell(runs), score_text(printed), difference_text(ours, printed)]
                )
    series = [
        [f"{n:,}", _cell(outcomes.runs("100-words", f"{PREFIX}{n}"))]
        for n in n_triplets_of(outcomes)
    ]
    picture = _picture(
        "caltech-motorbikes",
        outcomes,
        "Errors by method and codebook, and error against the number of triplets",
    )
    return (
        picture
        + table(["3-NN error in %", "here", "paper", "difference"], rows, "scores method")
        + table(["triplets", "error in %"], series)
        + _skipped(outcomes)
    )


def faces(outcomes: Outcomes) -> str:
    """Precision of the first images retrieved."""
    rows = [
        [
            f"{title_of(dataset)}: {name_of(method)}",
            *(_cell(runs, f"precision_{cut}") for cut in CUTS),
        ]
        for dataset in outcomes.datasets(())
        for method in whole_methods(outcomes)
        if (runs := outcomes.runs(dataset, method))
    ]
    head = ["precision in %", *(f"at {cut}" for cut in CUTS)]
    picture = _picture(
        "caltech-faces", outcomes, "Precision against the number of images retrieved"
    )
    return picture + table(head, rows, "scores method") + _skipped(outcomes)


def msrc(outcomes: Outcomes) -> str:
    """Errors group by group, beside the paper's."""
    papers = paper_table("table3")
    methods = whole_methods(outcomes)
    errors = {m: numbers(outcomes.runs("regions", m), "error", 100) for m in methods}
    named = {m: {"boostmetric-e": "BoostMetric"}.get(m, name_of(m)) for m in methods}
    groups = {m: papers["groups"].get(named[m], []) for m in methods}
    averages = {m: as_score(papers["average"].get(named[m])) for m in methods}
    means = {m: score(errors[m].values()) for m in methods}
    rows = [
        [f"{seed + 1}", *(_above(errors[m].get(seed), groups[m][seed : seed + 1]) for m in methods)]
        for seed in sorted({seed for found in errors.values() for seed in found})
    ]
    rows.append(["mean", *(_small(score_text(means[m]), averages[m]) for m in methods)])
    rows.append(["", *(difference_text(means[m], averages[m]) for m in methods)])
    legend = '<p class="quiet">Above: here; below it, in small print, the paper\'s.</p>'
    picture = _picture(
        "msrc", outcomes, "Errors group by group, and which classes are taken for which"
    )
    head = ["group", *map(name_of, methods)]
    return picture + legend + table(head, rows, "scores") + _skipped(outcomes)


def _above(ours: float | None, papers: list[float]) -> Html:
    """One error, and the paper's below it, if there is one."""
    return _small("–" if ours is None else f"{ours:.2f}", (papers[0], None) if papers else None)


def _small(text: str, papers: Score | None) -> Html:
    """A text, and what the paper has below it in small print."""
    return Html(escape(text) + (f"<small>{score_text(papers)}</small>" if papers else ""))


def lfw(outcomes: Outcomes) -> str:
    """Accuracies beside the paper's, baselines, and the published ones."""
    papers = paper_table("table4")["accuracies"]
    by_neighbours, by_distance = [], []
    for n in n_triplets_of(outcomes):
        printed = papers.get(f"{n}", {})
        runs = {d: outcomes.runs(d, f"{PREFIX}{n}") for d in DIMENSIONS}
        ours = {d: percent(found, "accuracy") for d, found in runs.items()}
        beside = (_beside(ours[d], as_score(printed.get(d))) for d in DIMENSIONS)
        by_neighbours.append([f"{n:,}", *beside])
        by_distance.append([f"{n:,}", *(_cell(runs[d], "accuracy_distance") for d in DIMENSIONS)])
    others = [
        [
            f"{dataset}: {name_of(method)}",
            *(
                _cell(outcomes.runs(dataset, method), key)
                for key in ("accuracy", "accuracy_mknn", "equal_error_rate")
            ),
        ]
        for method in whole_methods(outcomes)
        for dataset in outcomes.datasets(DIMENSIONS)
        if outcomes.runs(dataset, method)
    ]
    published = [
        [name, *(score_text(as_score(row.get(kind))) for kind in ("single", "multiple"))]
        for name, row in paper_table("table5")["accuracies"].items()
    ]
    picture = _picture(
        "lfw", outcomes, "Accuracy against the number of triplets, and averaged ROC curves"
    )
    return (
        picture
        + "<h3>MkNN by BoostMetric-E</h3>"
        + '<p class="quiet">Above: here; below it, in small print, the paper\'s.</p>'
        + table(["triplets", *DIMENSIONS], by_neighbours, "scores")
        + details(
            "The same metrics, by a threshold on the distance",
            table(["triplets", *DIMENSIONS], by_distance, "scores"),
        )
        + "<h3>Other scores</h3>"
        + table(["score", "accuracy", "by MkNN", "equal errors"], others, "scores method")
        + "<h3>Published, as the paper has them</h3>"
        + table(["", "single descriptor", "several"], published, "scores")
        + _skipped(outcomes)
    )


def _beside(ours: Score | None, papers: Score | None) -> Html:
    """Our accuracy, and the paper's below it; where more is better."""
    word = verdict(ours, papers)
    kind = {"lower": "worse", "higher": "better", "within": "same"}.get(word, "unknown")
    sign = {"lower": " ▼", "higher": " ▲"}.get(word, "")
    return _small(Html(f'<span class="{kind}">{score_text(ours)}{sign}</span>'), papers)


def _cell(runs: Runs, key: str = "error") -> Html:
    """Mean and deviation of a share; in small print what failed."""
    found = percent(runs, key)
    lines = "".join(f"<small>{escape(line)}</small>" for line in failures(runs))
    return Html((score_text(found) if found or not lines else "") + lines)


def _picture(experiment: str, outcomes: Outcomes, description: str) -> Html:
    shown = element(FIGURES[experiment](outcomes), description)
    return Html(f"<div class='box wide' tabindex='0'>{shown}</div>")


def _skipped(outcomes: Outcomes) -> str:
    """The images that could not be read, by name."""
    names = sorted(
        {
            str(name)
            for runs in outcomes.cells.values()
            for run in runs.values()
            for name in run.get("skipped") or ()
        }
    )
    if not names:
        return ""
    return (
        f'<p class="note">Images that could not be read, and were left out ({len(names)}): '
        f"{escape(', '.join(names))}.</p>"
    )


SECTIONS: dict[str, Callable[[Outcomes], str]] = {
    "caltech-motorbikes": motorbikes,
    "caltech-faces": faces,
    "msrc": msrc,
    "lfw": lfw,
}
"""By experiment."""
