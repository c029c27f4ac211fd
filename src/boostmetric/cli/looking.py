"""The commands that look into a metric: inspect, plot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from boostmetric._files import whole
from boostmetric.cli.command import (
    CommandError,
    aligned,
    check_output,
    count,
    filled,
    one_of,
    shortened,
    show_json,
)
from boostmetric.cli.options import (
    Columns,
    Drop,
    Force,
    Json,
    Label,
    MetricFile,
    labelled,
    read,
)
from boostmetric.cli.settings import DEFAULTS, advice
from boostmetric.metric import Metric
from boostmetric.solvers import Status

PICTURES = ("projection", "spectrum", "convergence", "distances", "roc")
"""What `plot` can draw."""

NEED_POINTS = ("projection", "distances", "roc")

FORMATS = (".png", ".pdf", ".svg")

INESSENTIAL = ("checkpoint", "n_jobs", "random_state", "verbose", "warm_start")

BAR = 30
"""Characters of the longest bar."""

Top = Annotated[
    int, typer.Option("--top", parser=count, metavar="N", help="Eigenvalues and features to list.")
]
MaybeData = Annotated[
    Path | None,
    typer.Argument(
        metavar="DATA", help=f"The points; for {', '.join(NEED_POINTS)}.", show_default=False
    ),
]
Picture = Annotated[
    str,
    typer.Option(
        "--kind", parser=one_of(PICTURES), metavar="KIND", help=f"One of {', '.join(PICTURES)}."
    ),
]
PictureFile = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE", help=f"The picture: {', '.join(FORMATS)}."),
]


def inspect(metric: MetricFile, top: Top = 10, json: Json = False) -> None:
    """Print what a metric is, and how it was learned.

    Rank, eigenvalues, features, how the fit ended and what to do. The weight of a feature is its
    entry on the diagonal of M: the squared distance of two points that differ by 1 in this feature
    alone, which depends on its unit. Its influence does not: it is the weight times the variance
    among the points that the metric was learned from.
    """
    learned = Metric.load(metric)
    names = learned.feature_names or tuple(f"x{number}" for number in range(learned.n_features))
    weights = np.einsum("ij,ij->j", learned.components, learned.components)
    deviations = _deviations(learned)
    kind = "weights" if deviations is None else "influence"
    sizes = (weights if deviations is None else weights * np.square(deviations)).tolist()
    eigenvalues = learned.eigenvalues.tolist()
    if json:
        show_json(
            {
                "rank": len(eigenvalues),
                "n_features": learned.n_features,
                "eigenvalues": eigenvalues,
                "weights": dict(zip(names, weights.tolist(), strict=True)),
                kind: dict(zip(names, sizes, strict=True)),
                "origin": learned.origin,
            }
        )
        return
    print(f"{metric}: a metric of rank {len(eigenvalues)} over {learned.n_features} features")
    print("\nEigenvalues")
    print(*_bars([str(number) for number in range(1, len(eigenvalues) + 1)], eigenvalues, top))
    print(f"\nFeatures by {kind.removesuffix('s')}")
    order = sorted(range(len(names)), key=lambda j: -sizes[j])
    print(*_bars([names[j] for j in order], [sizes[j] for j in order], top))
    print("\nHow it was learned")
    print(*_past(learned.origin or {}), sep="\n")


def plot(
    metric: MetricFile,
    data: MaybeData = None,
    *,
    kind: Picture,
    output: PictureFile,
    label: Label = None,
    columns: Columns = None,
    drop: Drop = None,
    force: Force = False,
) -> None:
    """Draw a metric, or points as it sees them.

    projection: the points in the plane of the two leading components; spectrum: the eigenvalues and
    what the components consist of; convergence: how the fit went; distances and roc: how well
    distances tell pairs of one class from others, before and after. The latter two need labels.
    """
    check_output(output, force, [metric, data])
    if output.suffix.lower() not in FORMATS:
        raise CommandError(f"{output}: the name of a picture ends in {', '.join(FORMATS)}.")
    learned = Metric.load(metric)
    points: tuple[Any, ...] = ()
    if kind in NEED_POINTS:
        if data is None:
            raise CommandError(
                f"a picture of kind {kind} shows points: give DATA after the metric."
            )
        table = read(data, label, columns, drop, learned)
        if kind != "projection":
            labelled(table, data)
        points = (table.X, table.labels)
    draw = _plot_function(kind)
    try:
        figure = draw(learned, *points, title=(data if data and points else metric).name).figure_
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        if kind != "convergence" or (learned.origin or {}).get("history") is None:
            raise
        raise CommandError(
            f"the history in {metric} is not one that boostmetric wrote ({error})."
        ) from None
    with whole(output) as temporary:
        figure.savefig(temporary, format=output.suffix.lower()[1:], dpi=150)
    print(f"Picture: {output}")


def _plot_function(kind: str) -> Callable[..., Any]:
    """The function of `boostmetric.plots` that draws such a picture, without a window."""
    try:
        import matplotlib
    except ImportError:
        raise CommandError(
            "pictures need matplotlib, which is missing: pip install 'boostmetric[plots]'"
        ) from None
    matplotlib.use("Agg")
    from boostmetric import plots

    functions: dict[str, Callable[..., Any]] = {
        "projection": plots.ProjectionDisplay.from_estimator,
        "spectrum": plots.SpectrumDisplay.from_estimator,
        "convergence": plots.ConvergenceDisplay.from_estimator,
        "distances": plots.PairDistanceDisplay.from_estimator,
        "roc": partial(plots.PairDistanceDisplay.from_estimator, kind="roc"),
    }
    return functions[kind]


def _bars(names: Sequence[str], values: Sequence[float], top: int) -> list[str]:
    """A bar for each of the first values, as lines that begin with their names."""
    longest, total = max(values, default=0.0), sum(values)
    rows = [
        [f"  {name}", f"{value:.4g}", f"{100 * value / total:.1f} %" if total else "", bar]
        for name, value in zip(names[:top], values[:top], strict=True)
        for bar in ["█" * round(BAR * value / longest) if longest else ""]
    ]
    lines = aligned(rows, left={0, 3}) if rows else ["  none: the metric is 0"]
    if len(values) > top:
        lines.append(f"  … and {len(values) - top} more (--top)")
    return ["\n".join(lines)]


def _deviations(metric: Metric) -> NDArray | None:
    """The standard deviations of the features, if the origin of the metric has them."""
    try:
        deviations = np.asarray((metric.origin or {}).get("deviations"), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    known = deviations.shape == (metric.n_features,) and np.isfinite(deviations).all()
    return deviations if known else None


def _past(origin: Mapping[str, Any]) -> Iterator[str]:
    """Lines about where a metric comes from; users may write an origin of their own."""
    if not origin:
        yield "  The file does not say."
        return
    if not isinstance(origin.get("estimator"), str):
        for name, value in origin.items():
            yield filled(f"{name}: {shortened(str(value))}", "  ")
        return
    made = [f"{origin[name]}" for name in ("boostmetric", "made") if name in origin]
    yield f"  {origin['estimator']} of boostmetric {shortened(', '.join(made)) or '(unknown)'}"
    counts = [
        f"{origin[name]:,} {word}"
        for name, word in (
            ("n_samples", "points"),
            ("n_comparisons", "comparisons"),
            ("n_iter", "iterations"),
        )
        if isinstance(origin.get(name), int)
    ]
    if counts:
        yield f"  {', '.join(counts)}"
    changed = ", ".join(_changed(origin))
    yield filled(f"Settings other than the default ones: {changed or 'none'}", "  ")
    status = origin.get("status")
    if isinstance(status, str) and status in Status.__members__:
        yield filled(advice(Status[status]), "  ")


def _changed(origin: Mapping[str, Any]) -> Iterator[str]:
    """The settings of a fit that differ from the default ones, but for those of no effect."""
    given: dict[str, Any] = {}
    for part in (origin.get("parameters"), origin.get("best_params")):
        given |= part if isinstance(part, dict) else {}
    for name, value in given.items():
        if name not in INESSENTIAL and value != DEFAULTS.get(name):
            yield shortened(f"{name}={value}")
