"""Will an adapter help? Baselines and the adapter on held-out queries, as text, JSON and HTML."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.embeddings.both_sides import (
    axes_of,
    discriminant_axes,
    leading_rows,
    second_moment,
)
from boostmetric.embeddings.query_side import closed_form_map
from boostmetric.embeddings.search import IDENTITY, Map, Maps, Search
from boostmetric.embeddings.selection import learn_at, select, tracked
from boostmetric.embeddings.training import Judged, Labeled, Training
from boostmetric.evaluation.ranking import normalized

LDA_SHRINKAGES = (0.9, 0.7, 0.5, 0.3, 0.1)
MAP_RIDGES = (30.0, 10.0, 3.0, 1.0, 0.3)
"""Shrinkages of LDA and ridges of the closed-form map, chosen in the same way as strengths."""

CURVE_SHARES = (1 / 8, 1 / 4, 1 / 2)
"""Shares of the training data for the learning curve."""

Scores = dict[str, NDArray]


@dataclass(frozen=True, eq=False)
class Report:
    """Measures of held-out queries, which were used neither for fitting nor for selection.

    Attributes
    ----------
    measure : the one that the adapter is selected by
    rows : numbers of the queries (or comparisons), of shape (n,)
    methods : for each method, by measure, the values of the queries; the first is the baseline, the
        last the adapter
    groups : the same for baseline and adapter on groups of queries, such as "unseen documents"
    curve : learning curve; values of baseline and adapter by number of training queries
    dimensions : values of the projected baseline and adapter by number of dimensions
    is_selected : whether cross-validation on all data selected an adapter
    """

    measure: str
    rows: NDArray
    methods: dict[str, Scores]
    groups: dict[str, dict[str, Scores]]
    curve: dict[int, dict[str, NDArray]]
    dimensions: dict[int, dict[str, NDArray]]
    is_selected: bool

    @property
    def verdict(self) -> str:
        """One sentence: whether to use the adapter."""
        before, after = (self.methods[name][self.measure] for name in ("baseline", "adapter"))
        low, high = interval(after - before)
        change = (
            f"{self.measure} {before.mean():.3f} → {after.mean():.3f}, 95 % interval of the change "
            f"[{low:+.3f}, {high:+.3f}] on {len(before)} held-out queries"
        )
        if not self.is_selected:
            return (
                "Not recommended: cross-validation on all data found no reliable gain, so vectors "
                f"are not changed (best adapter: {change})."
            )
        if low <= 0:
            return f"Not recommended: there is no reliable gain ({change})."
        # nDCG may improve while the first result gets worse.
        worse = [
            f"{name} ({measure} {loss.mean():+.3f})"
            for name, each in self.groups.items()
            for measure in (self.measure, "hit@1")
            if measure in each["adapter"]
            and interval(loss := each["adapter"][measure] - each["baseline"][measure])[1] < 0
        ]
        if worse:
            return (
                f"Recommended with a restriction: {change}, but worse for {' and '.join(worse)}. "
                "If the search contains these, set new_documents=True."
            )
        better = [
            name
            for name, each in self.methods.items()
            if interval(each[self.measure] - after)[0] > 0
        ]
        hint = f" Still better: {', '.join(better)}." if better else ""
        return f"Recommended: {change}.{hint}"

    def changed(self, n: int = 5) -> dict[str, list[dict[str, Any]]]:
        """The queries that gained most and lost most: row, value before and after."""
        before, after = (self.methods[name][self.measure] for name in ("baseline", "adapter"))
        losses = before - after
        order = np.argsort(losses, kind="stable")
        n_gained, n_lost = (min(n, int(np.sum(each))) for each in (losses < 0, losses > 0))
        return {
            kind: [
                {"row": int(self.rows[i]), "before": float(before[i]), "after": float(after[i])}
                for i in positions
            ]
            for kind, positions in (("gained", order[:n_gained]), ("lost", order[::-1][:n_lost]))
        }

    def summary(self) -> dict[str, Any]:
        """Means, changes and intervals, in the types of JSON."""
        return {
            "verdict": self.verdict,
            "measure": self.measure,
            "n_queries": len(self.rows),
            "is_selected": self.is_selected,
            "methods": _table(self.methods),
            "groups": {name: _table(each) for name, each in self.groups.items()},
            "learning_curve": _curve(self.curve),
            "dimensions": _curve(self.dimensions),
            "changed": self.changed(),
        }

    def to_json(self) -> str:
        """The summary as JSON."""
        return json.dumps(self.summary(), indent=2)

    def to_text(self, texts: Sequence[str] | None = None) -> str:
        """The summary for a terminal; `texts` are those of all queries."""
        facts = self.summary()
        lines = [facts["verdict"], ""]
        for title, table in {"all queries": facts["methods"], **facts["groups"]}.items():
            names = list(next(iter(table.values())))
            n = next(iter(table.values()))[names[0]]["n"]
            lines.append(f"{f'{title} ({n})':<28}" + "".join(f"{name:>11}" for name in names))
            for method, values in table.items():
                cells = "".join(f"{each['mean']:>11.4f}" for each in values.values())
                each = values[self.measure]
                lines.append(
                    f"  {method:<26}{cells}   {each['change']:+.4f} "
                    f"[{each['low']:+.4f}, {each['high']:+.4f}]"
                )
            lines.append("")
        lines.append(f"The last column is the change of {self.measure} with its 95 % interval.")
        for title, name in (("training queries", "learning_curve"), ("dimensions", "dimensions")):
            if facts[name]:
                lines += ["", f"{title:>18}{'baseline':>11}{'adapter':>11}"]
            for number, each in facts[name].items():
                lines.append(f"{number:>18}{each['baseline']:>11.4f}{each['adapter']:>11.4f}")
        for kind, queries in facts["changed"].items():
            lines += ["", f"queries that {kind} most"] if queries else []
            for each in queries:
                change = f"{each['before']:.3f} → {each['after']:.3f}"
                lines.append(f"  {change}  {_title(each['row'], texts)}")
        return "\n".join(lines)

    def to_html(self, texts: Sequence[str] | None = None) -> str:
        """The summary as one self-contained page; `texts` are those of all queries."""
        facts = self.summary()
        tables = [
            f"<h2>{html.escape(title.capitalize())}</h2>{_html_table(table, self.measure)}"
            for title, table in {"all queries": facts["methods"], **facts["groups"]}.items()
        ]
        charts = [
            f"<figure><figcaption>{self.measure} by {title}</figcaption>{_chart(facts[name])}"
            "</figure>"
            for title, name in (
                ("number of training queries", "learning_curve"),
                ("number of dimensions", "dimensions"),
            )
            if len(facts[name]) > 1
        ]
        changed = [
            f"<h2>Queries that {kind} most</h2><ol>"
            + "".join(
                f"<li><b>{each['before']:.3f} → {each['after']:.3f}</b> "
                f"{html.escape(_title(each['row'], texts))}</li>"
                for each in queries
            )
            + "</ol>"
            for kind, queries in facts["changed"].items()
            if queries
        ]
        template = files("boostmetric.embeddings").joinpath("report.html").read_text("utf-8")
        return Template(template).substitute(
            verdict=html.escape(facts["verdict"]),
            kind="loss" if facts["verdict"].startswith("Not") else "gain",
            tables="".join(tables),
            charts="".join(charts),
            changed="".join(changed),
            measure=self.measure,
            n_queries=len(self.rows),
            summary=self.to_json().replace("<", "\\u003c"),
        )


def make_report(data: Training, n_folds: int, is_selected: bool) -> Report:
    """Compare baselines and the best adapter, whose strength is chosen inside of every fold.

    The adapter is shown even if its gain is not reliable; `is_selected` is the result of `fit`.
    """
    n_inner = min(n_folds, 3)  # a third fewer queries to learn from, for half of the time
    # 1) all methods on the held-out queries of each fold
    outputs: list[dict[str, Scores]] = []
    rows, known = [], []
    first: tuple[Training, Any, Maps] | None = None
    for part, search in tracked(data.folds(n_folds), n_folds):
        adapter = _best(part, n_inner)
        maps = {"baseline": IDENTITY, **_baselines(part, n_inner), "adapter": adapter}
        outputs.append({name: search.scores(each) for name, each in maps.items()})
        rows.append(search.rows)
        known.append(_is_known(part, search))
        first = first or (part, search, adapter)
    methods = {
        name: {key: np.concatenate([each[name][key] for each in outputs]) for key in scores}
        for name, scores in outputs[0].items()
    }

    # 2) groups: documents that were judged in training, classes that were not
    groups: dict[str, dict[str, Scores]] = {}
    if isinstance(data, Judged):
        is_known = np.concatenate(known)
        for name, chosen in (("seen documents", is_known), ("unseen documents", ~is_known)):
            if chosen.any():
                groups[name] = {
                    method: {key: each[chosen] for key, each in methods[method].items()}
                    for method in ("baseline", "adapter")
                }
    elif isinstance(data, Labeled) and len(np.unique(data.y)) > 3:
        # Learn from half of the classes; queries are from the other half.
        half, other = next(replace(data, unseen=True).folds(1))
        half = replace(half, unseen=data.unseen)
        found = {"baseline": IDENTITY, "adapter": _best(half, n_inner)}
        groups["unseen classes"] = {name: other.scores(each) for name, each in found.items()}

    # 3) learning curve and dimensions, on the first fold
    assert first is not None
    part, search, adapter = first
    measure = data.measure
    before, after = (search.scores(each)[measure] for each in (IDENTITY, adapter))
    curve = {}
    for share in CURVE_SHARES:
        some = part.sample(share)
        few = _best(some, n_inner)
        curve[some.n_units] = {"baseline": before, "adapter": search.scores(few)[measure]}
    curve[part.n_units] = {"baseline": before, "adapter": after}
    dimensions = {}
    axes, D = axes_of(part.vectors), part.vectors.shape[1]
    matrix = adapter.documents.matrix
    leading = None if matrix is None else leading_rows(matrix, second_moment(part.vectors))
    for d in [*(2**k for k in range(4, 13) if 2**k < D), D]:
        small = IDENTITY.project(axes[:d])
        mapped = adapter.project(axes[:d]) if leading is None else Maps.both(leading[:d])
        pair = {"baseline": small, "adapter": mapped}
        dimensions[d] = {name: search.scores(each)[measure] for name, each in pair.items()}
    return Report(measure, np.concatenate(rows), methods, groups, curve, dimensions, is_selected)


def _best(part: Training, n_folds: int) -> Maps:
    return learn_at(part, select(part, n_folds).preferred)


def _baselines(part: Training, n_folds: int) -> dict[str, Maps]:
    """Simple methods: centering, PCA, and LDA or the closed-form map with the best strength."""
    mean = part.vectors.mean(axis=0, dtype=np.float64)
    centered = Maps.both(None, mean)
    if isinstance(part, Judged):
        queries = part.queries.mean(axis=0, dtype=np.float64)
        centered = Maps(Map(None, queries), Map(None, mean))
    axes = axes_of(part.vectors)
    d = part.n_components or max(1, len(axes) // 2)
    found = {"centering": centered, f"PCA, {d} dimensions": Maps.both(axes[:d])}
    for name, kind, learn, strengths in (
        ("shrunk LDA", Labeled, learn_lda, LDA_SHRINKAGES),
        ("closed-form map", Judged, learn_closed_form, MAP_RIDGES),
    ):
        if isinstance(part, kind):
            gains = select(part, n_folds, learn, strengths).gains
            best = strengths[int(np.argmax(gains)) if len(gains) else 0]
            found[name] = learn(part, [best])[0]
    return found


def learn_lda(data: Training, strengths: Sequence[float]) -> list[Maps]:
    """Discriminant axes for several shrinkages of the within-class covariance."""
    assert isinstance(data, Labeled)
    center = data.X.mean(axis=0, dtype=np.float64)
    return [Maps.both(axes, center) for axes in discriminant_axes(data.X, data.y, strengths)]


def learn_closed_form(data: Training, strengths: Sequence[float]) -> list[Maps]:
    """Maps of a query to the mean of its relevant documents, for several ridges."""
    assert isinstance(data, Judged)
    weights = 1 / np.asarray(data.grades.sum(axis=1)).ravel()
    targets = np.asarray(data.grades.multiply(weights[:, None]).tocsr() @ data.documents)
    if data.metric == "cosine":
        # Queries and targets point in different directions on average; with targets of that mean
        # cosine, the map does not have to shrink the queries.
        targets = normalized(targets)
        targets *= np.einsum("nd,nd->n", data.queries, targets).mean()
    return [Maps.of_queries(closed_form_map(data.queries, targets, each)) for each in strengths]


def _is_known(part: Training, search: Any) -> NDArray:
    """Whether a relevant document of each query is relevant to a query of the training part."""
    if not isinstance(part, Judged) or not isinstance(search, Search):
        return np.empty(0, dtype=bool)
    if part.unseen:
        return np.zeros(len(search.rows), dtype=bool)
    is_judged = np.zeros(search.grades.shape[1])
    is_judged[part.grades.indices] = 1
    return np.asarray(search.grades @ is_judged > 0)


def interval(
    changes: NDArray, level: float = 0.95, n_draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval of a mean: percentiles over resampled queries.

    >>> low, high = interval(np.random.default_rng(0).normal(1, 1, 400))
    >>> bool(0.85 < low < 1 < high < 1.15)
    True
    """
    n, rng = len(changes), np.random.default_rng(seed)
    means = []
    for start in range(0, n_draws, 100):
        counts = rng.multinomial(n, np.full(n, 1 / n), size=min(100, n_draws - start))
        means.append(counts @ changes / n)
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)


def _table(methods: dict[str, Scores]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean of each method and measure, and the change from the baseline with its interval."""
    baseline = methods["baseline"]
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, scores in methods.items():
        table[name] = {}
        for measure, values in scores.items():
            changes = values - baseline[measure]
            low, high = interval(changes)
            table[name][measure] = {
                "mean": float(values.mean()),
                "change": float(changes.mean()),
                "low": low,
                "high": high,
                "n": len(values),
            }
    return table


def _curve(points: dict[int, dict[str, NDArray]]) -> dict[int, dict[str, float]]:
    found = {}
    for number, values in points.items():
        low, high = interval(values["adapter"] - values["baseline"])
        means = {name: float(each.mean()) for name, each in values.items()}
        found[number] = {**means, "low": low, "high": high}
    return found


def _title(row: int, texts: Sequence[str] | None) -> str:
    return f"query {row}" if texts is None else f"{row}: {' '.join(str(texts[row]).split())[:200]}"


def _html_table(table: dict[str, dict[str, dict[str, float]]], measure: str) -> str:
    names = list(next(iter(table.values())))
    # The change comes first, because a phone shows few columns.
    head = "".join(f"<th>{name}</th>" for name in ("", f"change of {measure}", *names))
    body = []
    for method, values in table.items():
        cells = "".join(f"<td>{each['mean']:.4f}</td>" for each in values.values())
        each = values[measure]
        change = f"{each['change']:+.3f} [{each['low']:+.3f}, {each['high']:+.3f}]"
        change = "" if method == "baseline" else change
        kind = "gain" if each["low"] > 0 else "loss" if each["high"] < 0 else "same"
        body.append(
            f"<tr><th>{html.escape(method)}</th><td class='{kind}'>{change}</td>{cells}</tr>"
        )
    return (
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _chart(points: dict[int, dict[str, float]]) -> str:
    """Lines of baseline and adapter with the interval of the change, as SVG; log-scaled x."""
    numbers = sorted(points)
    xs = np.log(np.maximum(numbers, 1))
    lines = {name: [points[n][name] for n in numbers] for name in ("baseline", "adapter")}
    band = [[points[n]["baseline"] + points[n][end] for n in numbers] for end in ("low", "high")]
    everything = np.concatenate([*lines.values(), *band])
    low, high = everything.min(), max(everything.max(), everything.min() + 1e-3)

    def place(values: Sequence[float]) -> list[str]:
        across = 50 + 340 * (xs - xs[0]) / max(xs[-1] - xs[0], 1e-9)
        up = 190 - 170 * (np.asarray(values) - low) / (high - low)
        return [f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True)]

    shapes = [
        f"<polygon class='band' points='{' '.join([*place(band[0]), *place(band[1])[::-1]])}'/>"
    ]
    shapes += [
        f"<polyline class='{name}' points='{' '.join(place(v))}'/>" for name, v in lines.items()
    ]
    for point, number in zip(place(lines["adapter"]), numbers, strict=True):
        x, y = point.split(",")
        shapes.append(f"<circle cx='{x}' cy='{y}' r='3'/><text x='{x}' y='208'>{number}</text>")
    for value, height in ((low, 194), (high, 24)):
        shapes.append(f"<text class='axis' x='44' y='{height}'>{value:.3f}</text>")
    return f"<svg viewBox='0 0 400 215' role='img'>{''.join(shapes)}</svg>"
