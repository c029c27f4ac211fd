"""The experiments on the benchmark: which cells each has, and how one is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from boostmetric import BoostMetric, Trace
from boostmetric.data.synthetic import concentric_circles
from boostmetric.evaluation.knn import knn_error, majority, nearest_labels
from boostmetric_paper.datasets import NAMES, load
from boostmetric_paper.experiments.cells import Cell, Record
from boostmetric_paper.experiments.experiment import (
    SEEDS,
    Experiment,
    all_seeds,
    check_peers,
    measured,
)
from boostmetric_paper.experiments.methods import METHODS, elsewhere

SMALL = ("balance", "wine", "iris")
"""Where every method runs on every split."""

TABLE1 = ("mnist", "usps", "letter", "yfaces", *SMALL)

PCA_ROWS = ("mnist", "usps", "yfaces")
"""The datasets that are reduced by PCA, and so have a row for it."""

TABLE2 = ("balance", "b-cancer", "diabetes")

ALPHAS = {f"v=1e-{power:02}": 10.0**-power for power in (8, 7, 6, 5, 4)}
"""The methods of Table 2: the strength of the regulariser."""

FRESH = 100
"""What is added to a seed for the points that the toy example is tested on."""

FEATURES = (50, 100, 200, 400, 700, 1000)
TRIPLETS = (250, 2_500, 25_000)
"""Of the running times: one triplet for each point."""


def table1_cells(
    datasets: Sequence[str], methods: Sequence[str], seeds: Sequence[int] | None
) -> Iterable[Cell]:
    """Ten splits, but one of MNIST, and one of all but the small sets for slow methods."""
    for dataset in datasets:
        for method in methods:
            if method == "pca" and dataset not in PCA_ROWS:
                continue
            once = dataset == "mnist" or (METHODS[method].rival and dataset not in SMALL)
            for seed in seeds or (SEEDS[:1] if once else SEEDS):
                yield Cell("table1", dataset, method, seed)


def run_table1(cell: Cell) -> Record:
    """Errors of a method on the validation and the test part of a split."""
    data, method = load(cell.dataset), METHODS[cell.method]
    split = data.split(cell.seed)
    if not method.raw:
        split = data.reduced(split)
    learned, measures = measured(lambda: method.learn(split, cell.seed))
    Z = learned.transform(split.train.X)

    def errors(X: NDArray, y: NDArray) -> tuple[float, float]:
        neighbors = nearest_labels(Z, split.train.y, learned.transform(X), 3)
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
    """The error of BoostMetric-E for one strength of the regulariser, in the paper's units."""
    data = load(cell.dataset)
    train, _, test = data.reduced(data.split(cell.seed))
    learner = BoostMetric("exponential", regularizer=Trace(ALPHAS[cell.method]))
    _, measures = measured(lambda: learner.fit(*train))
    Z, W = learner.transform(train.X), learner.transform(test.X)
    return {
        "error": knn_error(Z, train.y, W, test.y, ties="first"),
        "iterations": learner.n_iter_,
        "ended": learner.status_.name,
        **measures,
    }


def run_circles(cell: Cell) -> Record:
    """The toy data projected to two dimensions: the error on fresh points."""
    X, y = concentric_circles(random_state=cell.seed)
    fresh, fresh_y = concentric_circles(random_state=cell.seed + FRESH)
    found: Record = {}
    if cell.method == "pca":
        transform = PCA(n_components=2).fit(X).transform
    elif cell.method == "lda":
        transform = LinearDiscriminantAnalysis(n_components=2).fit(X, y).transform
    else:
        metric = BoostMetric("exponential").fit(X, y).metric_
        found["eigenvalues"] = (metric.eigenvalues / metric.eigenvalues.sum()).tolist()
        transform = metric.truncate(2).transform
    error = knn_error(transform(X), y, transform(fresh), fresh_y, ties="first")
    return {"error": error, **found}


def run_runtime(cell: Cell) -> Record:
    """The seconds of a fit to circles in many noisy dimensions."""
    n_triplets, n_features = map(int, cell.dataset.split("x"))
    X, y = concentric_circles(n_triplets, n_noise=n_features - 2, random_state=cell.seed)
    size: Record = {"n_triplets": n_triplets, "n_features": n_features}
    if cell.method != "boostmetric-e":
        neighbours = {"lmnn": "n_neighbors", "mlpack-lmnn": "k"}[cell.method]
        return {**size, **elsewhere(cell.method, X, y, **{neighbours: 1}).measures}
    learner, measures = measured(lambda: BoostMetric("exponential", n_neighbors=1).fit(X, y))
    return {**size, **measures, "iterations": learner.n_iter_, "ended": learner.status_.name}


def too_slow(cell: Cell, known: Mapping[Cell, Record], limit: float) -> str | None:
    """Why a running time need not be measured: the method took too long for fewer features."""
    if cell.experiment != "runtime":
        return None
    n_triplets, n_features = map(int, cell.dataset.split("x"))
    for other, record in known.items():
        n, D = map(int, other.dataset.split("x"))
        same = (n, other.method) == (n_triplets, cell.method)
        if same and n_features > D and record.get("limit", 0.0) >= limit:
            return f"not run: D = {D} was not finished in {record['limit']:g} s"
    return None


def check_tables(cells: Sequence[Cell]) -> None:
    """Raise an error if data or an environment are missing."""
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        if dataset in NAMES:
            load(dataset)
    check_peers(cell.method for cell in cells if needs_peers(cell))


def needs_peers(cell: Cell) -> bool:
    """Whether a cell runs in the environment for other packages."""
    if cell.experiment == "runtime":
        return cell.method != "boostmetric-e"
    return cell.experiment == "table1" and METHODS[cell.method].abroad


TABLES = {
    "table1": Experiment(
        "Table 1: errors on seven datasets",
        *(TABLE1, tuple(METHODS), table1_cells, run_table1),
        ready=check_tables,
    ),
    "table2": Experiment(
        "Table 2: the strength of the regulariser",
        *(TABLE2, tuple(ALPHAS), all_seeds("table2", SEEDS), run_table2),
        ready=check_tables,
    ),
    "circles": Experiment(
        "Figure 1: concentric circles",
        *(("circles",), ("pca", "lda", "boostmetric-e"), all_seeds("circles", SEEDS), run_circles),
    ),
    "runtime": Experiment(
        "Figure 2: running time against the number of features",
        tuple(f"{m}x{D}" for m in TRIPLETS for D in FEATURES),
        ("boostmetric-e", "lmnn", "mlpack-lmnn"),
        all_seeds("runtime", SEEDS[:1]),
        run_runtime,
        limit=200.0,
        rival_limit=200.0,
        ready=check_tables,
    ),
}
"""By the name that the command line takes."""
