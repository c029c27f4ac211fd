"""Labeled Faces in the Wild: whether two images show the same person.

As the paper: 27 SIFT descriptors at nine facial points, PCA, BoostMetric of the exponential loss
from triplets, MkNN; ten folds of 600 pairs, of which each is tested on once. Where we differ:

- Points are found by dlib, not by the detector of Everingham et al., and described by RootSIFT.
- The people of the fold that is tested on, and those of the next one, whose pairs set the
  threshold, train nothing: no PCA, no metric, and they are not in MkNN's pool. All images of all
  others do, as in the unrestricted setting of Guillaumin et al. (2009).
- A person has at most ten images in the triplets and in MkNN's pool: of a few there are hundreds,
  which would be everyone's neighbours.
- The impostor of a triplet is the nearest of 30 that are drawn. Most of any that are drawn are far
  off, and a few thousand triplets of such say little.
- Directions are added in blocks, which takes seconds where one at a time takes minutes.

Settings were chosen on the development lists of LFW ("view 1"), which are for this, by pairs of the
people of its test list and metrics of all others. Its people occur in the folds too. Fold 0 had
been run once before the nearest of 30 was chosen there; no other result of a fold had come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from boostmetric.data.pairs import drawn_triplets, pair_distances
from boostmetric.estimators import BoostMetric, starting_transformation
from boostmetric.evaluation.verification import best_cut, equal_error
from boostmetric.problem import Comparisons
from boostmetric_paper.datasets.catalogue import folder_of
from boostmetric_paper.experiments.cells import Cell, Record
from boostmetric_paper.experiments.experiment import (
    Experiment,
    ExperimentError,
    all_seeds,
    measured,
)
from boostmetric_paper.mknn import MkNN
from boostmetric_paper.vision.cache import FeatureCache
from boostmetric_paper.vision.landmarks import FaceSift
from boostmetric_paper.vision.packages import needed
from boostmetric_paper.vision.sets import PACKED, load_lfw

LEVELS = np.linspace(0, 1, 101)
"""The thresholds of the ROC curves, after scores are brought to a common scale; see `rates`."""

FIXED = "fixed-points"
"""The method of the most triplets, with the points of the mean face in all images."""

ONCE = (FIXED, "combined")
"""Methods that are computed in the most dimensions alone."""

CURVES = ("euclidean", "within-class-cosine", "best", "combined")
"""Methods that the figure shows, beside that of the most triplets, all in the most dimensions."""


@dataclass(frozen=True)
class Recipe:
    """How a metric is learned.

    Parameters
    ----------
    n_drawn : the impostor of a triplet is the nearest of so many images of other people that are
        drawn; with 1 it is any, and the paper says no more
    options : parameters of BoostMetric
    """

    n_drawn: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """What differs between the paper's run and a small one.

    Parameters
    ----------
    describe : from an image to its descriptors
    dimensions : numbers of principal components, the columns of the table
    triplets : numbers of triplets, its rows
    recipe : of the metrics of the table
    sphere_triplets, sphere_recipe : number of triplets and recipe of the metric of "best"
    most : images of a person at most, in the triplets and in MkNN's pool
    n_neighbors : k of MkNN
    C : of the logistic regression of "combined"
    n_folds : folds that are tested on
    """

    describe: FaceSift
    dimensions: tuple[int, ...]
    triplets: tuple[int, ...]
    recipe: Recipe
    sphere_triplets: int
    sphere_recipe: Recipe
    most: int
    n_neighbors: int
    C: float
    n_folds: int


PAPER = Setting(
    describe=FaceSift("found"),
    dimensions=(100, 200, 300, 400),
    triplets=(3000, 6000, 9000, 12_000, 15_000, 18_000),
    recipe=Recipe(30, {"directions_per_step": 24, "alpha": 0.03}),
    sphere_triplets=45_000,
    sphere_recipe=Recipe(1, {"directions_per_step": 24, "regularizer": "frobenius", "alpha": 1.0}),
    most=10,
    n_neighbors=200,
    C=0.1,
    n_folds=10,
)
SMALL = replace(
    PAPER,
    describe=FaceSift("mean"),
    dimensions=(8, 12),
    triplets=(60,),
    recipe=Recipe(3, {"max_iter": 12}),
    sphere_triplets=120,
    sphere_recipe=Recipe(1, {"max_iter": 12, "regularizer": "frobenius"}),
    most=3,
    n_neighbors=5,
    n_folds=2,
)


class Pairs(NamedTuple):
    """Pairs of images, rows of shape (m, 2), and whether each is of one person."""

    rows: NDArray[np.intp]
    is_same: NDArray[np.bool_]


class Scores(NamedTuple):
    """How alike the two of each pair are: of known pairs, and of those to test on."""

    known: NDArray
    tests: NDArray


class Faces(NamedTuple):
    """Whose face each image has, a number; the pairs of each fold; names of unreadable images."""

    people: NDArray[np.intp]
    folds: list[Pairs]
    skipped: list[str]


@dataclass(frozen=True, eq=False)
class Fold:
    """What there is to learn from and to test on.

    Parameters
    ----------
    X, people : the points of all images, and whose face each has
    train : rows of the images to learn from
    known, tests : pairs that set the threshold, and those to test on
    skipped : names of images that could not be read
    """

    X: NDArray
    people: NDArray[np.intp]
    train: NDArray[np.intp]
    known: Pairs
    tests: Pairs
    skipped: list[str]

    def __post_init__(self) -> None:
        shown = np.concatenate([self.known.rows, self.tests.rows])
        both = np.intersect1d(self.people[shown], self.people[self.train])
        if len(both):
            raise ValueError(f"{len(both)} people are to be learned from and to be judged on.")

    def mapped(self, transform: Callable[[NDArray], NDArray]) -> Fold:
        """The fold with other points."""
        return replace(self, X=transform(self.X))

    def scored(self, score: Callable[[NDArray], NDArray]) -> Scores:
        """By a function from pairs of rows, of shape (m, 2), to numbers, of shape (m,)."""
        return Scores(score(self.known.rows), score(self.tests.rows))

    def learners(self, most: int | None = None, least: int = 1) -> tuple[NDArray, NDArray]:
        """Training points and their people, in the order of these.

        Of a person at most so many, drawn at random; without people of fewer than `least`.
        """
        rows = np.random.default_rng(0).permutation(self.train)
        rows = rows[np.argsort(self.people[rows], kind="stable")]
        _, begins, counts = np.unique(self.people[rows], return_index=True, return_counts=True)
        place = np.arange(len(rows)) - np.repeat(begins, counts)
        kept = (np.repeat(counts, counts) >= least) & (place < (most or len(rows)))
        return self.X[rows[kept]], self.people[rows[kept]]


def load_fold(setting: Setting, number: int, n_dimensions: int) -> Fold:
    """A fold, its points reduced by a PCA of the training images; what is computed is kept."""
    digest = data_digest()
    faces = load_faces(digest)
    tests, known = faces.folds[number], faces.folds[(number + 1) % len(faces.folds)]
    unseen = faces.people[np.concatenate([tests.rows, known.rows])]
    train = np.flatnonzero(~np.isin(faces.people, unseen))
    most = max(setting.dimensions)

    def compute() -> dict[str, NDArray]:
        X = features(digest, setting.describe)
        pca = PCA(most, svd_solver="randomized", random_state=number).fit(X[train])
        return {"points": pca.transform(X)}

    what = {"lfw": digest, "what": "components", "n_dimensions": most, "fold": number}
    points = FeatureCache().arrays({**what, **setting.describe.parameters}, compute)["points"]
    X = np.ascontiguousarray(points[:, :n_dimensions])
    return Fold(X, faces.people, train, known, tests, faces.skipped)


def load_faces(digest: str) -> Faces:
    """LFW but for its images, kept by the digest of its files."""

    def compute() -> dict[str, NDArray]:
        images, people, *pairs = load_lfw()
        owners = np.unique(people, return_inverse=True)[1]
        names = np.frombuffer("\n".join(images.skipped).encode(), dtype=np.uint8)
        keys = ("people", "skipped", "pairs", "is_same", "folds")
        return dict(zip(keys, (owners, names, *pairs), strict=True))

    kept = FeatureCache().arrays({"lfw": digest, "what": "pairs"}, compute)
    parts = [kept["folds"] == number for number in range(kept["folds"].max() + 1)]
    folds = [Pairs(kept["pairs"][part], kept["is_same"][part]) for part in parts]
    return Faces(kept["people"], folds, kept["skipped"].tobytes().decode().splitlines())


def features(digest: str, describe: FaceSift) -> NDArray[np.float32]:
    """The descriptors of all images, kept as one array, of 183 MB for all of LFW."""

    def compute() -> dict[str, NDArray]:
        return {"features": np.stack([describe(image) for image in load_lfw().images])}

    parameters = {"lfw": digest, "what": "features", **describe.parameters}
    return FeatureCache().arrays(parameters, compute)["features"]


def data_digest() -> str:
    """A digest of the files that `load_lfw` reads, by which cells find what was kept of them."""
    place = folder_of(None) or Path()
    packed = place / PACKED["LFW"]
    tree = sorted((place / "lfw_funneled").rglob("*.*"))
    content = sha256()
    for file in [packed] if packed.is_file() else [place / "pairs.txt", *tree]:
        if file.is_file():
            content.update(f"{file.relative_to(place)}\n".encode() + file.read_bytes())
    return content.hexdigest()


def people_triplets(
    X: NDArray, people: NDArray[np.intp], n_triplets: int, recipe: Recipe, seed: int
) -> Comparisons:
    """Two images of a person, and the nearest of several of others; images in order of people."""
    images, rng = np.arange(len(people)), np.random.RandomState(seed)
    groups = np.split(images, np.flatnonzero(np.diff(people)) + 1)
    same = [pair for group in groups for pair in combinations(group.tolist(), 2)]
    # So far apart are two people: these pairs name those of one image, who are impostors too.
    others = np.column_stack([images, np.roll(images, max(map(len, groups)))])
    anchor, target, impostor = drawn_triplets(
        np.concatenate([same, others]), people, n_triplets, rng
    ).T
    for _ in range(recipe.n_drawn - 1):
        other = rng.randint(len(people), size=n_triplets)
        now, then = (pair_distances(X, np.column_stack([anchor, k])) for k in (impostor, other))
        impostor = np.where((people[other] != people[anchor]) & (then < now), other, impostor)
    return Comparisons.from_triplets(np.column_stack([anchor, target, impostor]))


def boosted(
    setting: Setting, recipe: Recipe, fold: Fold, n_triplets: int, seed: int
) -> tuple[Fold, Record]:
    """The fold in the space of a metric from triplets of training people, and what it took."""
    X, people = fold.learners(setting.most)
    comparisons = people_triplets(X, people, n_triplets, recipe, seed)
    learner = BoostMetric("exponential", **recipe.options)
    _, measures = measured(lambda: learner.fit(X, comparisons=comparisons))
    facts = {"iterations": learner.n_iter_, "ended": learner.status_.name, "n_triplets": n_triplets}
    return fold.mapped(learner.transform), {**measures, **facts}


def nearness(fold: Fold) -> Scores:
    """The negative of the distance."""
    return fold.scored(lambda rows: -pair_distances(fold.X, rows).astype(np.float64))


def cosine(fold: Fold) -> Scores:
    """The cosine of the angle between points."""
    Z = normalize(fold.X)
    return fold.scored(lambda rows: (Z[rows[:, 0]] * Z[rows[:, 1]]).sum(axis=1))


def neighbours(setting: Setting, fold: Fold) -> Scores:
    """MkNN: the share of pairs of neighbours that agree, of people with two images or more."""
    model = MkNN(setting.n_neighbors).fit(*fold.learners(setting.most, least=2))
    return fold.scored(lambda rows: model.pair_score(rows, fold.X))


def scaled(fold: Fold) -> Fold:
    """Points whose components are of unit variance over the training images."""
    return fold.mapped(lambda X: X / X[fold.train].std(axis=0))


def sphere(fold: Fold) -> Fold:
    """Points whitened by the covariance within the training people, and scaled to length 1."""
    L = starting_transformation("whiten", *fold.learners(least=2))
    assert L is not None
    return fold.mapped(lambda X: normalize((X @ L.T).astype(X.dtype)))


def accuracy(fold: Fold, scores: Scores) -> float:
    """The share of the tests told rightly, by the threshold that is best on the known pairs."""
    threshold = best_cut(scores.known, fold.known.is_same)
    return float(np.mean((scores.tests >= threshold) == fold.tests.is_same))


def equal_error_rate(fold: Fold, scores: Scores) -> float:
    """The share of errors on the tests where it is as large of same as of different pairs."""
    accepted, found, _ = roc_curve(fold.tests.is_same, scores.tests)
    return equal_error(accepted, found)


def rates(fold: Fold, scores: Scores) -> Record:
    """The ROC curve of the tests at thresholds that are common to all folds.

    The figure shows the average over the folds, threshold by threshold, so scores need a common
    scale: one becomes the share of known pairs whose score is lower, and `LEVELS` are thresholds on
    that. `roc_accepted` is the share of different pairs from there on, `roc_found` of same ones.
    """
    shares = np.searchsorted(np.sort(scores.known), scores.tests) / len(scores.known)
    reached = shares >= LEVELS[:, None]
    kinds = {"roc_accepted": ~fold.tests.is_same, "roc_found": fold.tests.is_same}
    return {name: reached[:, kind].mean(axis=1).round(4).tolist() for name, kind in kinds.items()}


def paper_row(setting: Setting, n_triplets: int, fold: Fold, seed: int) -> tuple[Scores, Record]:
    """The paper's: MkNN by a metric of the principal components; beside it, the distance alone."""
    learned, measures = boosted(setting, setting.recipe, fold, n_triplets, seed)
    distance = {"accuracy_distance": accuracy(fold, nearness(learned))}
    return neighbours(setting, learned), {**distance, **measures}


def best_row(setting: Setting, fold: Fold, seed: int) -> tuple[Scores, Record]:
    """Our best single score: the distance by a metric of the sphere; beside it, MkNN."""
    n_triplets = setting.sphere_triplets
    learned, measures = boosted(setting, setting.sphere_recipe, sphere(fold), n_triplets, seed)
    mknn = {"accuracy_mknn": accuracy(fold, neighbours(setting, learned))}
    return nearness(learned), {**mknn, **measures}


def combined_row(setting: Setting, fold: Fold, seed: int) -> tuple[Scores, Record]:
    """Scores on the sphere in all dimensions, weighted by logistic regression on known pairs."""
    scores, totals, n_triplets = [], Counter[str](), setting.sphere_triplets
    for n_dimensions in setting.dimensions:
        start = sphere(fold.mapped(itemgetter((slice(None), slice(n_dimensions)))))
        learned, measures = boosted(setting, setting.sphere_recipe, start, n_triplets, seed)
        scores += [cosine(start), nearness(learned), neighbours(setting, learned)]
        totals.update({key: measures[key] for key in ("fit_seconds", "processor_seconds")})
    known, tests = (np.column_stack(part) for part in zip(*scores, strict=True))
    weights = make_pipeline(StandardScaler(), LogisticRegression(C=setting.C))
    weights.fit(known, fold.known.is_same)
    facts = {"n_scores": len(scores), "n_triplets": n_triplets, **totals}
    return Scores(weights.decision_function(known), weights.decision_function(tests)), facts


def methods_of(setting: Setting) -> dict[str, Callable[[Fold, int], tuple[Scores, Record]]]:
    """From the fold and a seed to scores of its pairs, and what was measured on the way."""
    return {
        "euclidean": lambda fold, seed: (nearness(fold), {}),
        "pca-whitened-cosine": lambda fold, seed: (cosine(scaled(fold)), {}),
        "within-class-cosine": lambda fold, seed: (cosine(sphere(fold)), {}),
        **{f"triplets={n}": partial(paper_row, setting, n) for n in setting.triplets},
        FIXED: partial(paper_row, setting, setting.triplets[-1]),
        "best": partial(best_row, setting),
        "combined": partial(combined_row, setting),
    }


def run_lfw(setting: Setting, cell: Cell) -> Record:
    """The accuracy of a method on the fold that is the cell's seed."""
    used = setting if cell.method != FIXED else replace(setting, describe=FaceSift("mean"))
    fold = load_fold(used, cell.seed, int(cell.dataset.removesuffix("D")))
    scores, facts = methods_of(setting)[cell.method](fold, cell.seed)
    drawn = cell.method in (*CURVES, f"triplets={setting.triplets[-1]}")
    return {
        "accuracy": accuracy(fold, scores),
        "equal_error_rate": equal_error_rate(fold, scores),
        **facts,
        "n_train": len(fold.train),
        "n_test": len(fold.tests.rows),
        "skipped": fold.skipped,
        **(rates(fold, scores) if drawn and _is_last(setting, cell) else {}),
    }


def cells_of(experiment: str, setting: Setting) -> Callable[..., Iterable[Cell]]:
    """Every method on every fold, but those `ONCE` in the most dimensions alone."""
    every = all_seeds(experiment, range(setting.n_folds))
    return lambda *choice: (
        cell for cell in every(*choice) if cell.method not in ONCE or _is_last(setting, cell)
    )


def check_lfw(setting: Setting, cells: Sequence[Cell]) -> None:
    """Raise an error if a package, the data or a fold is missing."""
    needed("PIL.Image")
    _ = setting.describe.parameters
    n_folds = int(load_lfw().folds.max()) + 1
    for cell in cells:
        if not 0 <= cell.seed < n_folds or n_folds < 2:
            raise ExperimentError(
                f"{cell}: a seed is the number of a fold, and there are {n_folds}, from 0 on, of "
                "which two are needed. Choose others with --seeds."
            )


def _is_last(setting: Setting, cell: Cell) -> bool:
    return cell.dataset == f"{setting.dimensions[-1]}D"


def _experiment(name: str, title: str, setting: Setting) -> Experiment:
    return Experiment(
        title,
        tuple(f"{n_dimensions}D" for n_dimensions in setting.dimensions),
        tuple(methods_of(setting)),
        cells_of(name, setting),
        partial(run_lfw, setting),
        ready=partial(check_lfw, setting),
    )


LFW = {
    "lfw": _experiment("lfw", "Tables 4 and 5, Figure 7: faces, the same person or not", PAPER),
    "lfw-small": _experiment("lfw-small", "faces, a few of them", SMALL),
}
"""By the name that the command line takes."""
