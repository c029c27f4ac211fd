"""The command `demo`: test errors of several metrics on small datasets, and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from boostmetric.cli.compare import TITLES, Method, knn_test_error
from boostmetric.cli.console import CommandError, show

METHODS = [method for method in Method if method is not Method.pca]

N_SPLITS_CV = 3
"""Splits of BoostMetricCV, instead of up to 10, so that the demo takes about a minute."""

NOTES = """\
* lowest error of the column. Learners see standardized features, except on digits, whose pixels
share one unit. BoostMetricCV uses 3 splits here, its default is up to 10.

A learned metric helps if features differ in scale or relevance. NCA is strong on data as small as
these, but needs memory for all pairs of points, which BoostMetric does not. Next, compare them on
your own table: boostmetric compare your.csv --label COLUMN"""


def demo(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", file_okay=False, help="Folder for the plot."
        ),
    ] = Path("demo"),
    splits: Annotated[
        int, typer.Option("--splits", min=1, metavar="N", help="Number of random splits.")
    ] = 3,
) -> None:
    """Compare methods on small datasets, and plot one before and after. Takes about a minute.

    Nothing is downloaded.
    """
    try:
        import matplotlib
    except ImportError:
        raise CommandError(
            "the demo requires matplotlib. Install it with: pip install 'boostmetric[plots]'"
        ) from None
    matplotlib.use("Agg")
    output.mkdir(parents=True, exist_ok=True)

    from statistics import fmean

    from rich.console import Console
    from sklearn.datasets import load_digits, load_wine
    from sklearn.model_selection import StratifiedShuffleSplit

    from boostmetric.data.synthetic import balance_scale, concentric_circles

    # 1) the plot, which takes a second
    picture = output / "circles.png"
    _plot_circles(picture)

    # 2) the errors
    data: dict[str, tuple[Any, Any]] = {
        "wine": load_wine(return_X_y=True),
        "balance": balance_scale(),
        "circles": concentric_circles(600),
        "digits": load_digits(return_X_y=True),
    }
    show(
        "3-NN error on test points in percent: the mean over "
        f"{splits} random split{'s' * (splits > 1)} (70% training, 30% test).",
        "",
    )
    errors: dict[tuple[Method, str], float] = {}
    seconds: dict[Method, float] = dict.fromkeys(METHODS, 0.0)
    with Console(stderr=True).status("") as status:
        for name, (X, y) in data.items():
            folds = list(StratifiedShuffleSplit(splits, test_size=0.3, random_state=0).split(X, y))
            for method in METHODS:
                status.update(f"{TITLES[method]} on {name}")
                results = [
                    knn_test_error(
                        *(method, X, y, train, test),
                        scale=name != "digits",
                        n_splits=N_SPLITS_CV,
                    )
                    for train, test in folds
                ]
                errors[method, name] = 100 * fmean(error for error, _ in results)
                seconds[method] += fmean(duration for _, duration in results) / len(data)

    # 3) the table; the best of each column is marked
    lowest = {name: min(errors[method, name] for method in METHODS) for name in data}
    print(f"{'':<15}" + "".join(f"{name:>9} " for name in data) + f"{'seconds per fit':>18}")
    for method in METHODS:
        cells = [
            f"{errors[method, name]:>9.1f}{'*' if errors[method, name] == lowest[name] else ' '}"
            for name in data
        ]
        print(f"{TITLES[method]:<15}{''.join(cells)}{seconds[method]:>18.2f}")
    show("", NOTES, "", f"Saved {picture}: circles hidden in noise, before and after.")


def _plot_circles(path: Path) -> None:
    """Four concentric circles in two of ten features; the others are louder noise."""
    from boostmetric._files import atomic_write
    from boostmetric.data.synthetic import concentric_circles
    from boostmetric.estimators import BoostMetric
    from boostmetric.plots import ProjectionDisplay

    X, y = concentric_circles()
    metric = BoostMetric(loss="exponential", n_components=2).fit(X, y).metric_
    figure = ProjectionDisplay.from_estimator(metric, X, y).figure_
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
