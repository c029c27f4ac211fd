"""The commands `compare` and `demo`: test errors of several metrics."""

from __future__ import annotations

import time
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from boostmetric.cli import options as o
from boostmetric.cli.console import CommandError, check_output, reason, show_json

# typer does not support lists of literals.
Method = StrEnum(
    "Method", ["raw", "standardized", "pca", "lda", "nca", "boostmetric", "boostmetric_cv"]
)
TITLES = {
    "raw": "raw Euclidean",
    "standardized": "standardized",
    "pca": "PCA",
    "lda": "LDA",
    "nca": "NCA",
    "boostmetric": "BoostMetric",
    "boostmetric_cv": "BoostMetricCV",
}


def compare(
    data: o.Data,
    label: o.Label = None,
    cv: Annotated[int, typer.Option("--cv", min=2, metavar="N", help="Number of folds.")] = 5,
    method: Annotated[
        list[Method] | None,
        typer.Option(
            metavar="NAME", help=f"{', '.join(TITLES)}; repeat for several. By default all."
        ),
    ] = None,
    k: o.Neighbors = 3,
    column: o.Column = None,
    drop: o.Drop = None,
    sep: o.Sep = None,
    decimal: o.Decimal = ".",
    dropna: o.DropNa = False,
    seed: o.Seed = 0,
    json: o.Json = False,
) -> None:
    """Compare metric learners on your own data.

    Prints the cross-validated error of k nearest neighbors: mean and standard deviation over the
    folds. All methods except raw are applied to standardized features.
    """
    from statistics import fmean, pstdev

    from boostmetric.cli.evaluate import make_folds
    from boostmetric.cli.tables import read_table

    table = read_table(data, label, column, drop, sep=sep, decimal=decimal, dropna=dropna).dense()
    X, y = table.X, table.classes
    splits = make_folds(y, cv, seed)
    if not json:
        print(f"{'':<15}{f'{k}-NN error':>15}{'seconds per fit':>18}", flush=True)
    rows: list[dict[str, Any]] = []
    for each in method or TITLES:
        failure = None
        errors, seconds = list[float](), list[float]()
        try:
            for train, test in splits:
                error, duration = knn_test_error(each, X, y, train, test, k=k, seed=seed)
                errors.append(error)
                seconds.append(duration)
            error_cell = f"{100 * fmean(errors):.1f} ± {100 * pstdev(errors):.1f}%"
            cells = f"{error_cell:>15}{fmean(seconds):>18.2f}"
        except Exception as error:  # such as lack of memory; the other methods may succeed
            failure = reason(error)
            cells = f"  failed: {failure}"
        title = TITLES[each]
        rows.append({"method": title, "errors": errors, "seconds": seconds, "failure": failure})
        if not json:
            print(f"{title:<15}{cells}", flush=True)
    if json:
        show_json(rows)
    if all(row["failure"] for row in rows):
        raise typer.Exit(1)


def knn_test_error(
    method: str,
    X: Any,
    y: Any,
    train: Any,
    test: Any,
    *,
    k: int = 3,
    seed: int = 0,
    scale: bool = True,
) -> tuple[float, float]:
    """Return the error of k nearest neighbors on the test rows, and the seconds of the fit.

    If `scale`, learners see features that are standardized by the training rows. PCA keeps 95 % of
    the variance.
    """
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import NeighborhoodComponentsAnalysis
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    from boostmetric.estimators import BoostMetric, BoostMetricCV
    from boostmetric.evaluation import knn_error

    learner = {
        "raw": None,
        "standardized": None,
        "pca": PCA(n_components=0.95, svd_solver="full"),
        "lda": LinearDiscriminantAnalysis(),
        "nca": NeighborhoodComponentsAnalysis(random_state=seed),
        "boostmetric": BoostMetric(random_state=seed),
        "boostmetric_cv": BoostMetricCV(random_state=seed),
    }[method]
    is_scaled = method == "standardized" or (scale and method != "raw")
    model = make_pipeline(StandardScaler() if is_scaled else FunctionTransformer(), learner)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NCA has not converged
        model.fit(X[train], y[train])
    seconds = time.perf_counter() - began
    Z, W = model.transform(X[train]), model.transform(X[test])
    return knn_error(Z, y[train], W, y[test], k), seconds


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
    force: o.Force = False,
) -> None:
    """Compare methods on four small datasets.

    Also plots one of them before and after. Takes about a minute; nothing is downloaded.
    """
    try:
        import matplotlib
    except ImportError:
        raise CommandError(
            "the demo requires matplotlib. Install it with: pip install 'boostmetric[plots]'"
        ) from None
    matplotlib.use("Agg")
    output.mkdir(parents=True, exist_ok=True)
    picture = output / "circles.png"
    check_output(picture, force, "Use --force to replace it, or --output for another folder.")

    from statistics import fmean

    from rich.console import Console
    from sklearn.datasets import load_digits, load_wine
    from sklearn.model_selection import StratifiedShuffleSplit

    from boostmetric._files import atomic_write
    from boostmetric.data.synthetic import balance_scale, concentric_circles
    from boostmetric.estimators import BoostMetric
    from boostmetric.plots import ProjectionDisplay

    # 1) the plot: four concentric circles in two of ten features; the others are louder noise
    X, y = concentric_circles()
    metric = BoostMetric().fit(X, y).metric_
    title = "Four circles in two of ten features"
    figure = ProjectionDisplay.from_estimator(metric, X, y, title=title).figure_
    with atomic_write(picture) as temporary:
        figure.savefig(temporary, format="png", dpi=150)

    # 2) the errors
    plural = "s" * (splits > 1)
    print(
        f"3-NN error on test points in percent, mean over {splits} random split{plural} (70% "
        "training, 30% test):\n",
        flush=True,
    )
    data: dict[str, tuple[Any, Any]] = {
        "wine": load_wine(return_X_y=True),
        "balance": balance_scale(),
        "circles": concentric_circles(600),
        "digits": load_digits(return_X_y=True),
    }
    methods = [method for method in TITLES if method != "pca"]
    errors: dict[tuple[str, str], float] = {}
    seconds: dict[str, float] = dict.fromkeys(methods, 0.0)
    with Console(stderr=True).status("") as status:
        for name, (X, y) in data.items():
            folds = list(StratifiedShuffleSplit(splits, test_size=0.3, random_state=0).split(X, y))
            for method in methods:
                status.update(f"{TITLES[method]} on {name}")
                is_scaled = name != "digits"  # whose pixels have one unit
                results = [knn_test_error(method, X, y, *fold, scale=is_scaled) for fold in folds]
                errors[method, name] = 100 * fmean(error for error, _ in results)
                seconds[method] += fmean(duration for _, duration in results) / len(data)

    # 3) the table; the best of each column is marked
    lowest = {name: min(errors[method, name] for method in methods) for name in data}
    print(f"{'':<15}" + "".join(f"{name:>9} " for name in data) + f"{'seconds per fit':>18}")
    for method in methods:
        cells = [
            f"{errors[method, name]:>9.1f}{'*' if errors[method, name] == lowest[name] else ' '}"
            for name in data
        ]
        print(f"{TITLES[method]:<15}{''.join(cells)}{seconds[method]:>18.2f}")
    print(f"""
* lowest error of the column. Learners see standardized features, except on digits, whose pixels
have the same unit.
NCA is strong on data this small, but needs memory for all pairs of points; BoostMetric does not.

Saved {picture}: circles hidden in noise, before and after.

A learned metric helps if features differ in scale or relevance; next, compare the methods on your
own table: boostmetric compare your.csv --label COLUMN""")
