"""The demo: errors of several metrics on small datasets, and a picture of the paper's toy data."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.preprocessing import FunctionTransformer

from boostmetric._files import whole
from boostmetric.data.synthetic import balance_scale, concentric_circles
from boostmetric.estimators import BoostMetric
from boostmetric.evaluation.knn import knn_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS: dict[str, Callable[[int], Any]] = {
    "Euclidean": lambda seed: FunctionTransformer(),
    "PCA (2 components)": lambda seed: PCA(n_components=2),
    "LDA": lambda seed: LinearDiscriminantAnalysis(),
    "NCA": lambda seed: NeighborhoodComponentsAnalysis(random_state=seed),
    "BoostMetric-E": lambda seed: BoostMetric(loss="exponential"),
    "BoostMetric-E 3 passes": lambda seed: BoostMetric(loss="exponential", n_passes=3),
    "BoostMetric-L": lambda seed: BoostMetric(loss="logistic"),
    "BoostMetric-L 3 passes": lambda seed: BoostMetric(loss="logistic", n_passes=3),
}
"""What a row of the table stands for: from the number of a split, a transformer to fit."""

DATASETS: dict[str, Callable[[], tuple[NDArray, NDArray]]] = {
    "balance": balance_scale,
    "wine": lambda: load_wine(return_X_y=True),
    "iris": lambda: load_iris(return_X_y=True),
}
"""What a column of the table stands for: points and labels."""

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
MARKERS = ("o", "s", "^", "D")
"""Of the classes in the picture; the colors are told apart by the color-blind too."""

NOTES = """\
E and L are the exponential and the logistic loss; "3 passes" looks for neighbors three times, the
second and third time in the space that was learned so far.

What to look at: on wine, Euclidean distance, PCA and NCA go by the one feature whose numbers are
largest, while LDA and BoostMetric learn a scale of their own. On balance BoostMetric halves the
Euclidean error; only NCA does better. On iris one point is 4.5 percent of a test set, so ten
splits tell little: over a hundred, Euclidean distance, LDA and BoostMetric all come to 4 or 5
percent.
"""


class DemoError(Exception):
    """The demo cannot start; the text says why and what to do."""


@dataclass
class _Trials:
    """One method on one dataset: for each split the error in percent, and the time of the fit."""

    errors: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


_Results = dict[tuple[str, str], _Trials]  # by method and dataset


def run(folder: Path, n_splits: int = 10) -> None:
    """Print the table of errors, and write the picture "circles.png".

    Parameters
    ----------
    folder : where the picture goes; created if need be
    n_splits : number of random splits to average over

    Raises
    ------
    DemoError
        Before any work, if matplotlib is missing or the folder cannot be written to.

    Examples
    --------
    >>> run(Path("demo"), n_splits=0)
    Traceback (most recent call last):
    ValueError: n_splits=0 will not do: an integer of at least 1 is needed.
    """
    if n_splits < 1:
        raise ValueError(f"n_splits={n_splits} will not do: an integer of at least 1 is needed.")
    figure = _new_figure()
    _check_writable(folder)
    draw_circles(figure)
    with whole(folder / "circles.png") as temporary:
        figure.savefig(temporary, format="png")
    results = _measure(n_splits)
    _print_errors(results, n_splits)
    _print_times(results)
    _print_notes(folder / "circles.png")


def _measure(n_splits: int) -> _Results:
    """Fit every method to the training part of every split, and classify the test part."""
    data = {name: made() for name, made in DATASETS.items()}
    results: _Results = {(method, name): _Trials() for name in data for method in METHODS}
    for number, ((method, name), trials) in enumerate(results.items(), start=1):
        for seed in range(n_splits):
            _show_progress(f"{method} on {name} ({number} of {len(results)}), split {seed + 1}")
            X, y = data[name]
            train, test = _split(len(X), seed)
            began = time.perf_counter()
            learner = _fit(METHODS[method](seed), X[train], y[train])
            trials.seconds.append(time.perf_counter() - began)
            Z, W = learner.transform(X[train]), learner.transform(X[test])
            trials.errors.append(100 * knn_error(Z, y[train], W, y[test], ties="first"))
    _show_progress("")
    return results


def _split(n: int, seed: int) -> tuple[NDArray, NDArray]:
    """Row numbers of a random 70 percent, to learn from, and of another 15 percent, for tests."""
    rows = np.random.default_rng(seed).permutation(n)
    return rows[: round(0.7 * n)], rows[-int(0.15 * n) :]


def _fit(learner: Any, X: NDArray, y: NDArray) -> Any:
    with warnings.catch_warnings():
        # NCA has a fixed number of iterations and warns where it would go on.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learner.fit(X, y)


def _show_progress(text: str) -> None:
    """Write over the last line of a terminal; anything else stays free of it."""
    if sys.stderr.isatty():
        print(f"\r{text:<79}", end="\r", file=sys.stderr, flush=True)


def _print_errors(results: _Results, n_splits: int) -> None:
    print("Error of the 3 nearest neighbors on test points in percent: mean (standard deviation)")
    print(f"over {n_splits} random split{'s' * (n_splits > 1)}\n")
    print(" " * 22 + "".join(f"{name:>14}" for name in DATASETS))
    for method in METHODS:
        cells = (_mean_cell(results[method, name].errors) for name in DATASETS)
        print(f"{method:<22}" + "".join(f"{cell:>14}" for cell in cells))


def _print_times(results: _Results) -> None:
    print("\nMean time of a fit in seconds\n")
    for method in METHODS:
        times = (statistics.mean(results[method, name].seconds) for name in DATASETS)
        print(f"{method:<22}" + "".join(f"{seconds:>14.3f}" for seconds in times))


def _print_notes(picture: Path) -> None:
    print(f"\n{NOTES}\nPicture: {picture}")


def _mean_cell(values: list[float]) -> str:
    deviation = f"{statistics.stdev(values):.2f}" if len(values) > 1 else "-"
    return f"{statistics.mean(values):.2f} ({deviation})"


def _new_figure() -> Figure:
    """An empty figure on a canvas that needs no display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise DemoError(
            "the demo draws with matplotlib, which is missing: pip install boostmetric[plots]"
        ) from None
    figure = Figure(figsize=(12, 5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DemoError(f"cannot write to the folder {folder}: {error.strerror}") from None


def draw_circles(figure: Figure) -> None:
    """The paper's Figure 1: the toy data projected to two dimensions by three methods."""
    X, y = concentric_circles(random_state=0)
    fresh, fresh_y = concentric_circles(random_state=1)
    metric = BoostMetric(loss="exponential").fit(X, y).metric_
    shares = metric.eigenvalues[:3] / metric.eigenvalues.sum()
    projections = {
        "PCA": (PCA(n_components=2).fit(X), "the variance is mostly noise"),
        "LDA": (LinearDiscriminantAnalysis(n_components=2).fit(X, y), "the class means are equal"),
        "BoostMetric": (
            metric.truncate(2),
            "eigenvalue shares of M: " + ", ".join(f"{share:.3f}" for share in shares),
        ),
    }
    panels = figure.subplots(1, len(projections))
    for axes, (name, (projection, remark)) in zip(panels, projections.items(), strict=True):
        points = projection.transform(X)
        error = 100 * knn_error(points, y, projection.transform(fresh), fresh_y)
        _scatter(axes, points, y)
        title = f"$\\bf{{{name}}}$\n3-NN error on fresh data: {error:.1f} %\n{remark}"
        axes.set_title(title, fontsize=11, linespacing=1.4)
    panels[0].set_ylabel("second component", fontsize=11)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), fontsize=12, markerscale=2
    )


def _scatter(axes: Axes, points: NDArray, y: NDArray) -> None:
    for label, (color, marker) in enumerate(zip(COLORS, MARKERS, strict=True)):
        first, second = points[y == label].T
        axes.scatter(
            first, second, s=16, c=color, marker=marker, linewidths=0, label=f"class {label}"
        )
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("first component", fontsize=11)
