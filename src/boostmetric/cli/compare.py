"""The command `compare`, and the methods that it and the demo compare."""

from __future__ import annotations

import time
import warnings
from enum import StrEnum
from typing import Annotated, Any

import typer

from boostmetric.cli import options as o
from boostmetric.cli.console import show_json

Method = StrEnum(
    "Method", ["raw", "standardized", "pca", "lda", "nca", "boostmetric", "boostmetric_cv"]
)
TITLES = dict(
    zip(
        Method,
        ["raw Euclidean", "standardized", "PCA", "LDA", "NCA", "BoostMetric", "BoostMetricCV"],
        strict=True,
    )
)


def compare(
    data: o.Data,
    label: o.Label = None,
    cv: Annotated[int, typer.Option("--cv", min=2, metavar="N", help="Number of folds.")] = 5,
    method: Annotated[
        list[Method] | None,
        typer.Option(
            metavar="NAME", help=f"{', '.join(Method)}; repeat for several. By default all."
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
    from sklearn.model_selection import StratifiedKFold

    from boostmetric.cli.tables import read_table

    table = read_table(data, label, column, drop, sep=sep, decimal=decimal, dropna=dropna).dense()
    X, y = table.X, table.classes
    splits = list(StratifiedKFold(cv, shuffle=True, random_state=seed).split(X, y))
    if not json:
        print(f"{'':<15}{f'{k}-NN error':>15}{'seconds per fit':>18}", flush=True)
    rows: list[dict[str, Any]] = []
    for each in method or list(Method):
        title, failure = TITLES[each], None
        errors, seconds = list[float](), list[float]()
        try:
            for train, test in splits:
                error, duration = knn_test_error(each, X, y, train, test, k=k, seed=seed)
                errors.append(error)
                seconds.append(duration)
        except (ArithmeticError, ValueError) as error:
            failure = str(error).splitlines()[0]
        rows.append({"method": title, "errors": errors, "seconds": seconds, "failure": failure})
        if not json:
            print(f"{title:<15}{_cells(errors, seconds, failure)}", flush=True)
    if json:
        show_json(rows)


def knn_test_error(
    method: Method,
    X: Any,
    y: Any,
    train: Any,
    test: Any,
    *,
    k: int = 3,
    seed: int = 0,
    scale: bool = True,
    n_splits: int | None = None,
) -> tuple[float, float]:
    """The error of k nearest neighbors on the test rows, and the seconds of the fit.

    If `scale`, learners see features that are standardized by the training rows. PCA keeps 95 % of
    the variance; `n_splits` is that of BoostMetricCV.
    """
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import NeighborhoodComponentsAnalysis
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    from boostmetric.estimators import BoostMetric, BoostMetricCV
    from boostmetric.evaluation import knn_error

    learner = {
        Method.raw: None,
        Method.standardized: None,
        Method.pca: PCA(n_components=0.95, svd_solver="full"),
        Method.lda: LinearDiscriminantAnalysis(),
        Method.nca: NeighborhoodComponentsAnalysis(random_state=seed),
        Method.boostmetric: BoostMetric(random_state=seed),
        Method.boostmetric_cv: BoostMetricCV(n_splits=n_splits, random_state=seed),
    }[method]
    is_scaled = method is Method.standardized or (scale and method is not Method.raw)
    model = make_pipeline(StandardScaler() if is_scaled else FunctionTransformer(), learner)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NCA has not converged
        model.fit(X[train], y[train])
    seconds = time.perf_counter() - began
    Z, W = model.transform(X[train]), model.transform(X[test])
    return knn_error(Z, y[train], W, y[test], k), seconds


def _cells(errors: list[float], seconds: list[float], failure: str | None) -> str:
    from statistics import fmean, pstdev

    if failure is not None:
        return f"  failed: {failure}"
    cell = f"{100 * fmean(errors):.1f} ± {100 * pstdev(errors):.1f}%"
    return f"{cell:>15}{fmean(seconds):>18.2f}"
