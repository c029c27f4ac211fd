"""Tables 1 and 2 and Figures 1 and 2: benchmark datasets, concentric circles, running times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from boostmetric import Trace
from boostmetric.data.synthetic import concentric_circles
from boostmetric.evaluation.knn import knn_error
from boostmetric_paper.datasets import NAMES, load
from boostmetric_paper.experiments.cells import Cell, Record
from boostmetric_paper.experiments.experiment import SEEDS, Experiment
from boostmetric_paper.experiments.methods import METHODS, fit_boostmetric, paper_method, stagewise
from boostmetric_paper.peers import fit_in_subprocess, measure
from boostmetric_paper.voting import majority, neighbor_labels

SMALL = ("balance", "wine", "iris")
"""Datasets on which all methods run on all splits."""

REDUCED = ("mnist", "usps", "yfaces")
"""Datasets that are reduced by PCA, and therefore have a row for it."""

ALPHAS = {f"v=1e-{power:02}": 10.0**-power for power in (8, 7, 6, 5, 4)}
"""The columns of Table 2: the strength of the regularizer."""

TEST_SEED_OFFSET = 100
"""Added to the seed of the training circles for the test circles."""

FEATURES = (50, 100, 200, 400, 700, 1000)
TRIPLETS = (250, 2_500, 25_000)
"""Sizes for the running times, with one triplet per point."""


def table1_seeds(dataset: str, method: str) -> Sequence[int]:
    """Ten splits; one of MNIST, and for slow methods one of all but the small datasets."""
    if method == "pca" and dataset not in REDUCED:
        return ()
    is_single = dataset == "mnist" or (METHODS[method].slow and dataset not in SMALL)
    return SEEDS[:1] if is_single else SEEDS


def run_table1(cell: Cell) -> Record:
    """3-NN errors of a method on the validation and the test part of a split."""
    data, method = load(cell.dataset), METHODS[cell.method]
    split = data.split(cell.seed)
    if not method.raw:
        split = data.reduced(split)
    learned, measures = measure(lambda: method.learn(split, cell.seed))
    Z = learned.transform(split.train.X)

    def errors(X: NDArray, y: NDArray) -> tuple[float, float]:
        neighbors = neighbor_labels(Z, split.train.y, learned.transform(X))
        first, nearest = (majority(neighbors, ties) != y for ties in ("first", "nearest"))
        return float(first.mean()), float(nearest.mean())

    error, error_nearest = errors(*split.test)
    return {
        "error": error,
        "error_nearest": error_nearest,
        "validation_error": errors(*split.validation)[0],
        **measures,
        **learned.measures,
    }


def run_table2(cell: Cell) -> Record:
    """The error of BoostMetric-E for one strength of the regularizer, in the paper's units."""
    data = load(cell.dataset)
    train, _, test = data.reduced(data.split(cell.seed))
    learner = paper_method(regularizer=Trace(ALPHAS[cell.method]))
    _, measures = measure(lambda: learner.fit(*train))
    Z, W = learner.transform(train.X), learner.transform(test.X)
    return {
        "error": knn_error(Z, train.y, W, test.y),
        "iterations": learner.n_iter_,
        "ended": learner.status_.name,
        **measures,
    }


def run_circles(cell: Cell) -> Record:
    """The error of the circles projected to two dimensions, on new points."""
    X, y = concentric_circles(random_state=cell.seed)
    X_test, y_test = concentric_circles(random_state=cell.seed + TEST_SEED_OFFSET)
    eigenvalues: Record = {}
    if cell.method == "pca":
        transform = PCA(n_components=2).fit(X).transform
    elif cell.method == "lda":
        transform = LinearDiscriminantAnalysis(n_components=2).fit(X, y).transform
    else:
        metric = paper_method().fit(X, y).metric_
        eigenvalues["eigenvalues"] = (metric.eigenvalues / metric.eigenvalues.sum()).tolist()
        transform = metric.truncate(2).transform
    error = knn_error(transform(X), y, transform(X_test), y_test)
    return {"error": error, **eigenvalues}


def run_runtime(cell: Cell) -> Record:
    """The seconds of a fit to circles in many noisy dimensions."""
    n_triplets, n_features = map(int, cell.dataset.split("x"))
    X, y = concentric_circles(n_triplets, n_noise=n_features - 2, random_state=cell.seed)
    size: Record = {"n_triplets": n_triplets, "n_features": n_features}
    if cell.method != "boostmetric-e":
        n_neighbors = {"lmnn": "n_neighbors", "mlpack-lmnn": "k"}[cell.method]
        return {**size, **fit_in_subprocess(cell.method, X, y, **{n_neighbors: 1}).measures}
    eigen_solver = "exact" if n_features <= 600 else "approximate"
    options = {"eigen_solver": eigen_solver, **stagewise(n_features, n_triplets)}
    learned, measures = measure(lambda: fit_boostmetric(X, y, n_neighbors=1, **options))
    return {**measures, **learned.measures, **size}


def too_slow(cell: Cell, known: Mapping[Cell, Record], limit: float) -> str | None:
    """Why a running time is not measured: the method took too long with fewer features."""
    if cell.experiment != "runtime":
        return None
    n_triplets, n_features = map(int, cell.dataset.split("x"))
    for other, record in known.items():
        n, D = map(int, other.dataset.split("x"))
        same = (n, other.method) == (n_triplets, cell.method)
        if same and n_features > D and record.get("limit", 0.0) >= limit:
            return f"not run: D = {D} was not finished in {record['limit']:g} s"
    return None


def check_datasets(cells: Sequence[Cell]) -> None:
    """Raise an error if the file of a dataset is missing or damaged."""
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        if dataset in NAMES:
            load(dataset)


TABLES = (
    Experiment(
        "table1",
        "Table 1: errors on seven datasets",
        ("mnist", "usps", "letter", "yfaces", *SMALL),
        tuple(METHODS),
        run_table1,
        table1_seeds,
        check_datasets,
    ),
    Experiment(
        "table2",
        "Table 2: strength of the regularizer",
        ("balance", "b-cancer", "diabetes"),
        tuple(ALPHAS),
        run_table2,
        check=check_datasets,
    ),
    Experiment(
        "circles",
        "Figure 1: concentric circles",
        ("circles",),
        ("pca", "lda", "boostmetric-e"),
        run_circles,
    ),
    Experiment(
        "runtime",
        "Figure 2: running time against the number of features",
        tuple(f"{m}x{D}" for m in TRIPLETS for D in FEATURES),
        ("boostmetric-e", "lmnn", "mlpack-lmnn"),
        run_runtime,
        lambda dataset, method: SEEDS[:1],
        limit=200.0,
        slow_limit=200.0,
    ),
)
