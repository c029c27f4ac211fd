"""The experiments: which cells each has, and how one is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from boostmetric.datasets import NAMES, concentric_circles, load
from boostmetric.estimators import BoostMetric
from boostmetric.evaluation import knn_error, majority, nearest_labels
from boostmetric.experiments import peer
from boostmetric.experiments.cells import Cell, Record
from boostmetric.experiments.methods import METHODS, elsewhere, peers_python

SEEDS = range(10)

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

HOUR = 3600.0

T = TypeVar("T")


class ExperimentError(Exception):
    """The experiment cannot start; the text says why and what to do."""


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    `cells` gives those of a choice of datasets, methods and seeds, where None is the paper's.
    `limit` is the number of seconds that a cell may take, or, for rivals, `rival_limit`.
    """

    title: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    cells: Callable[[Sequence[str], Sequence[str], Sequence[int] | None], Iterable[Cell]]
    run: Callable[[Cell], Record]
    limit: float = 3 * HOUR
    rival_limit: float = 600.0

    def limit_of(self, cell: Cell) -> float:
        """Seconds that a cell may take."""
        rival = cell.method in METHODS and METHODS[cell.method].rival
        return self.rival_limit if rival else self.limit


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


def measured(learn: Callable[[], T]) -> tuple[T, Record]:
    """What a function returns, and what it took: seconds, and MB beyond those before."""
    peer.forget_peak()
    before = peer.peak_memory()
    began, began_processor = time.perf_counter(), time.process_time()
    learned = learn()
    return learned, {
        "fit_seconds": time.perf_counter() - began,
        "processor_seconds": time.process_time() - began_processor,
        "memory": peer.peak_memory() - before,
    }


def all_seeds(experiment: str, standard: Sequence[int]) -> Callable[..., Iterable[Cell]]:
    """Every combination of datasets, methods and seeds."""

    def cells(
        datasets: Sequence[str], methods: Sequence[str], seeds: Sequence[int] | None
    ) -> Iterable[Cell]:
        for dataset in datasets:
            for method in methods:
                for seed in seeds or standard:
                    yield Cell(experiment, dataset, method, seed)

    return cells


def run_table2(cell: Cell) -> Record:
    """The error of BoostMetric-E for one strength of the regulariser, in the paper's units."""
    data = load(cell.dataset)
    train, _, test = data.reduced(data.split(cell.seed))
    learner = BoostMetric("exponential", alpha=ALPHAS[cell.method], alpha_relative=False)
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


EXPERIMENTS = {
    "table1": Experiment(
        "Table 1: errors on seven datasets", TABLE1, tuple(METHODS), table1_cells, run_table1
    ),
    "table2": Experiment(
        "Table 2: the strength of the regulariser",
        *(TABLE2, tuple(ALPHAS), all_seeds("table2", SEEDS), run_table2),
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
    ),
}
"""By the name that the command line takes."""


def wanted(
    experiment: str,
    datasets: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> list[Cell]:
    """The cells of a choice; an ExperimentError if there is no such dataset or method.

    Parameters
    ----------
    experiment : one of `EXPERIMENTS`
    datasets, methods : None for all
    seeds : None for those that the experiment has

    Examples
    --------
    >>> [str(cell) for cell in wanted("table1", ["iris"], ["lda"], [0, 1])]
    ['table1: lda on iris, seed 0', 'table1: lda on iris, seed 1']
    """
    chosen = EXPERIMENTS[experiment]
    for kind, given, known in (
        ("dataset", datasets, chosen.datasets),
        ("method", methods, chosen.methods),
    ):
        for name in given or ():
            if name not in known:
                raise ExperimentError(
                    f"{experiment} has no {kind} {name!r}: its {kind}s are {', '.join(known)}"
                )
    return list(chosen.cells(datasets or chosen.datasets, methods or chosen.methods, seeds))


def check_ready(cells: Iterable[Cell]) -> None:
    """Raise an error, before any work, if data or an environment are missing."""
    cells = list(cells)
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        if dataset in NAMES:
            load(dataset)
    abroad = sorted({cell.method for cell in cells if needs_peers(cell)})
    if abroad and not peers_python().exists():
        raise ExperimentError(
            f"{', '.join(abroad)}: these run in an environment of their own, which is not at "
            f"{peers_python()}. Run `make peers`, name its interpreter in BOOSTMETRIC_PEERS, or "
            "leave them out with --methods."
        )


def needs_peers(cell: Cell) -> bool:
    """Whether a cell runs in the environment for other packages."""
    if cell.experiment == "runtime":
        return cell.method != "boostmetric-e"
    return cell.experiment == "table1" and METHODS[cell.method].abroad
