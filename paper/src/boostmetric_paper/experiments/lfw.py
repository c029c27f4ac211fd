"""Labeled Faces in the Wild: whether two images show the same person (Tables 4 and 5).

As in the paper: 27 SIFT descriptors at nine facial points, PCA, BoostMetric with the exponential
loss from triplets, MkNN; ten folds of 600 pairs, each of which is the test set once. Differences:

- Facial points come from dlib, not from the detector of Everingham et al., and are described by
  RootSIFT.
- The people of the test fold and of the next fold, whose pairs set the threshold, are not used for
  training: neither for PCA nor for the metric nor in MkNN's pool. All images of all other people
  are, as in the unrestricted setting of Guillaumin et al. (2009).
- A person has at most ten images in the triplets and in MkNN's pool: a few people have hundreds,
  which would be everyone's neighbors.
- The impostor of a triplet is the nearest of 30 random ones. Most random impostors are far away,
  and a few thousand such triplets contain little information.
- Directions are added in batches, which takes seconds instead of minutes.

Settings were chosen on the development lists of LFW ("view 1"), with pairs of the people of its
test list and metrics of all others. Its people occur in the folds, too. Fold 0 was run once before
the nearest of 30 was chosen there; no other result of a fold was known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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

from boostmetric.data.pairs import draw_triplets
from boostmetric.estimators import starting_transformation
from boostmetric.evaluation.verification import best_cut, equal_error
from boostmetric.metric import pair_distances
from boostmetric.problem import Comparisons
from boostmetric_paper.datasets.catalogue import folder_of
from boostmetric_paper.experiments.cells import Cell, Record
from boostmetric_paper.experiments.experiment import Experiment, ExperimentError, cached
from boostmetric_paper.experiments.methods import paper_method
from boostmetric_paper.mknn import MkNN
from boostmetric_paper.peers import measure
from boostmetric_paper.vision.landmarks import FaceSift
from boostmetric_paper.vision.packages import import_package
from boostmetric_paper.vision.sets import PACKED, load_lfw

LEVELS = np.linspace(0, 1, 101)
"""The thresholds of the ROC curves on the common scale of `roc_rates`."""

CURVES = ("euclidean", "within-class-cosine", "best", "combined")
"""Methods in the figure, in addition to that with the most triplets, all with most dimensions."""


@dataclass(frozen=True)
class Recipe:
    """How a metric is learned.

    Parameters
    ----------
    n_drawn : the impostor of a triplet is the nearest of this many random images of other people;
        1 is any image, and the paper does not state more
    options : parameters of BoostMetric
    """

    n_drawn: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """What differs between the paper's experiment and the small one.

    Parameters
    ----------
    describe : from an image to its descriptors
    dimensions : numbers of principal components, the columns of the table
    triplets : numbers of triplets, the rows of the table
    recipe : how the metrics of the table are learned
    sphere_triplets, sphere_recipe : number of triplets and recipe of the metric of "best"
    max_images : largest number of images per person in the triplets and in MkNN's pool
    n_neighbors : k of MkNN
    C : parameter of the logistic regression of "combined"
    n_folds : number of test folds
    """

    describe: FaceSift
    dimensions: tuple[int, ...]
    triplets: tuple[int, ...]
    recipe: Recipe
    sphere_triplets: int
    sphere_recipe: Recipe
    max_images: int
    n_neighbors: int
    C: float
    n_folds: int


BATCHES: Mapping[str, Any] = {"directions_per_step": 24, "tol": 0.0}
"""Options of all fits, whatever the number of triplets."""

PAPER = Setting(
    describe=FaceSift("detected"),
    dimensions=(100, 200, 300, 400),
    triplets=(3000, 6000, 9000, 12_000, 15_000, 18_000),
    recipe=Recipe(30, {**BATCHES, "regularizer": "trace", "alpha": 0.03}),
    sphere_triplets=45_000,
    sphere_recipe=Recipe(1, {**BATCHES, "regularizer": "frobenius", "alpha": 1.0}),
    max_images=10,
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
    sphere_recipe=Recipe(1, {"max_iter": 12, "regularizer": "frobenius", "alpha": 1e-2}),
    max_images=3,
    n_neighbors=5,
    n_folds=2,
)


class Pairs(NamedTuple):
    """Pairs of images, rows of shape (m, 2), and whether both show the same person."""

    rows: NDArray[np.intp]
    is_same: NDArray[np.bool_]


class Scores(NamedTuple):
    """How similar the images of each pair are: for the known pairs and for the test pairs."""

    known: NDArray
    tests: NDArray


class Faces(NamedTuple):
    """The person of each image, a number; the pairs of each fold; names of unreadable images."""

    people: NDArray[np.intp]
    folds: list[Pairs]
    skipped: list[str]


@dataclass(frozen=True, eq=False)
class Fold:
    """Training and test data of a fold.

    Parameters
    ----------
    X, people : the points of all images, and the person of each
    train : rows of the training images
    known, tests : pairs that set the threshold, and test pairs
    skipped : names of unreadable images
    """

    X: NDArray
    people: NDArray[np.intp]
    train: NDArray[np.intp]
    known: Pairs
    tests: Pairs
    skipped: list[str]

    def __post_init__(self) -> None:
        held_out = np.concatenate([self.known.rows, self.tests.rows])
        both = np.intersect1d(self.people[held_out], self.people[self.train])
        if len(both):
            raise ValueError(f"{len(both)} people are in the training part and in held-out pairs.")

    def mapped(self, transform: Callable[[NDArray], NDArray]) -> Fold:
        """The fold with transformed points."""
        return replace(self, X=transform(self.X))

    def scored(self, score: Callable[[NDArray], NDArray]) -> Scores:
        """Scores by a function from rows of pairs, of shape (m, 2), to numbers, of shape (m,)."""
        return Scores(score(self.known.rows), score(self.tests.rows))

    def training_points(
        self, max_images: int | None = None, min_images: int = 1
    ) -> tuple[NDArray, NDArray]:
        """Training points and their people, sorted by person.

        At most `max_images` random images per person, and no people with fewer than `min_images`.
        """
        rows = np.random.default_rng(0).permutation(self.train)
        rows = rows[np.argsort(self.people[rows], kind="stable")]
        _, begins, counts = np.unique(self.people[rows], return_index=True, return_counts=True)
        number = np.arange(len(rows)) - np.repeat(begins, counts)
        kept = (np.repeat(counts, counts) >= min_images) & (number < (max_images or len(rows)))
        return self.X[rows[kept]], self.people[rows[kept]]


def load_fold(setting: Setting, number: int, n_dimensions: int) -> Fold:
    """A fold, its points reduced by a PCA of the training images."""
    digest, describe = data_digest(), setting.describe
    faces = cached(load_faces)(digest)
    tests, known = faces.folds[number], faces.folds[(number + 1) % len(faces.folds)]
    unseen = faces.people[np.concatenate([tests.rows, known.rows])]
    train = np.flatnonzero(~np.isin(faces.people, unseen))
    points = cached(reduce_faces)(
        digest, describe, describe.versions, train, max(setting.dimensions), number
    )
    X = np.ascontiguousarray(points[:, :n_dimensions])
    return Fold(X, faces.people, train, known, tests, faces.skipped)


# The data are represented by their digest in the arguments, since decoding 13,233 images takes
# longer than most cells.


def load_faces(digest: str) -> Faces:
    """LFW without its images."""
    images, names, pairs, is_same, folds = load_lfw()
    people = np.unique(names, return_inverse=True)[1]
    parts = [folds == number for number in range(folds.max() + 1)]
    by_fold = [Pairs(pairs[part], is_same[part]) for part in parts]
    return Faces(people, by_fold, list(images.skipped))


def describe_faces(
    digest: str, describe: FaceSift, versions: Mapping[str, str]
) -> NDArray[np.float32]:
    """The descriptors of all images, 183 MB for all of LFW."""
    return np.stack([describe(image) for image in load_lfw().images])


def reduce_faces(
    digest: str,
    describe: FaceSift,
    versions: Mapping[str, str],
    train: NDArray[np.intp],
    n_components: int,
    seed: int,
) -> NDArray[np.float32]:
    """The principal components of all images, by a PCA of those in `train`."""
    X = cached(describe_faces)(digest, describe, versions)
    pca = PCA(n_components, svd_solver="randomized", random_state=seed).fit(X[train])
    return pca.transform(X)


def data_digest() -> str:
    """A digest of the files that `load_lfw` reads."""
    folder = folder_of(None) or Path()
    packed = folder / PACKED["LFW"]
    tree = sorted((folder / "lfw_funneled").rglob("*.*"))
    content = sha256()
    for file in [packed] if packed.is_file() else [folder / "pairs.txt", *tree]:
        if file.is_file():
            content.update(f"{file.relative_to(folder)}\n".encode() + file.read_bytes())
    return content.hexdigest()


def people_triplets(
    X: NDArray, people: NDArray[np.intp], n_triplets: int, recipe: Recipe, seed: int
) -> Comparisons:
    """Two images of a person and the nearest of several of others; images sorted by person."""
    images, rng = np.arange(len(people)), np.random.RandomState(seed)
    groups = np.split(images, np.flatnonzero(np.diff(people)) + 1)
    same = [pair for group in groups for pair in combinations(group.tolist(), 2)]
    # Rolled by the size of the largest group, each pair is of two people. These pairs make the
    # people with one image known to `draw_triplets`, since they can be impostors.
    others = np.column_stack([images, np.roll(images, max(map(len, groups)))])
    anchor, target, impostor = draw_triplets(
        np.concatenate([same, others]), people, n_triplets, rng
    ).T
    for _ in range(recipe.n_drawn - 1):
        other = rng.randint(len(people), size=n_triplets)
        now, then = (pair_distances(X, np.column_stack([anchor, k])) for k in (impostor, other))
        impostor = np.where((people[other] != people[anchor]) & (then < now), other, impostor)
    return Comparisons.from_triplets(np.column_stack([anchor, target, impostor]))


def learn(
    setting: Setting, recipe: Recipe, fold: Fold, n_triplets: int, seed: int
) -> tuple[Fold, Record]:
    """The fold in the space of a metric from triplets of training people, and measurements."""
    X, people = fold.training_points(setting.max_images)
    comparisons = people_triplets(X, people, n_triplets, recipe, seed)
    learner = paper_method(**recipe.options)
    _, measures = measure(lambda: learner.fit(X, comparisons=comparisons))
    facts = {"iterations": learner.n_iter_, "ended": learner.status_.name, "n_triplets": n_triplets}
    return fold.mapped(learner.transform), {**measures, **facts}


def score_distance(fold: Fold) -> Scores:
    """The negative distance."""
    return fold.scored(lambda rows: -pair_distances(fold.X, rows).astype(np.float64))


def score_cosine(fold: Fold) -> Scores:
    """The cosine of the angle between points."""
    Z = normalize(fold.X)
    return fold.scored(lambda rows: (Z[rows[:, 0]] * Z[rows[:, 1]]).sum(axis=1))


def score_mknn(setting: Setting, fold: Fold) -> Scores:
    """MkNN: the share of pairs of neighbors that agree, among people with at least two images."""
    model = MkNN(setting.n_neighbors).fit(*fold.training_points(setting.max_images, min_images=2))
    return fold.scored(lambda rows: model.pair_score(rows, fold.X))


def whitened_within(fold: Fold) -> Fold:
    """Points whitened by the covariance within training people, and scaled to length 1."""
    L = starting_transformation("whiten", *fold.training_points(min_images=2))
    assert L is not None
    return fold.mapped(lambda X: normalize((X @ L.T).astype(X.dtype)))


def accuracy(fold: Fold, scores: Scores) -> float:
    """The share of correct test pairs, with the threshold that is best on the known pairs."""
    threshold = best_cut(scores.known, fold.known.is_same)
    return float(np.mean((scores.tests >= threshold) == fold.tests.is_same))


def roc_rates(fold: Fold, scores: Scores) -> Record:
    """The ROC curve of the test pairs at thresholds that are common to all folds.

    The figure averages over the folds at equal thresholds, so scores need a common scale: a score
    is replaced by the share of known pairs with a lower score, and `LEVELS` are thresholds on that.
    `roc_accepted` is the share of different pairs from there on, `roc_found` that of same pairs.
    """
    shares = np.searchsorted(np.sort(scores.known), scores.tests) / len(scores.known)
    reached = shares >= LEVELS[:, None]
    kinds = {"roc_accepted": ~fold.tests.is_same, "roc_found": fold.tests.is_same}
    return {name: reached[:, kind].mean(axis=1).round(4).tolist() for name, kind in kinds.items()}


def score_boostmetric(
    setting: Setting, n_triplets: int, fold: Fold, seed: int
) -> tuple[Scores, Record]:
    """The paper's score: MkNN by a metric of the principal components; also the distance alone."""
    learned, measures = learn(setting, setting.recipe, fold, n_triplets, seed)
    distance = {"accuracy_distance": accuracy(fold, score_distance(learned))}
    return score_mknn(setting, learned), {**distance, **measures}


def score_best(setting: Setting, fold: Fold, seed: int) -> tuple[Scores, Record]:
    """Our best single score: the distance by a metric of whitened points; also MkNN."""
    start, n_triplets = whitened_within(fold), setting.sphere_triplets
    learned, measures = learn(setting, setting.sphere_recipe, start, n_triplets, seed)
    mknn = {"accuracy_mknn": accuracy(fold, score_mknn(setting, learned))}
    return score_distance(learned), {**mknn, **measures}


def score_combined(setting: Setting, fold: Fold, seed: int) -> tuple[Scores, Record]:
    """Scores of whitened points in all dimensions, by logistic regression on the known pairs."""
    scores, totals, n_triplets = [], Counter[str](), setting.sphere_triplets
    for n_dimensions in setting.dimensions:
        start = whitened_within(fold.mapped(itemgetter((slice(None), slice(n_dimensions)))))
        learned, measures = learn(setting, setting.sphere_recipe, start, n_triplets, seed)
        scores += [score_cosine(start), score_distance(learned), score_mknn(setting, learned)]
        totals.update({key: measures[key] for key in ("fit_seconds", "processor_seconds")})
    known, tests = (np.column_stack(part) for part in zip(*scores, strict=True))
    weights = make_pipeline(StandardScaler(), LogisticRegression(C=setting.C))
    weights.fit(known, fold.known.is_same)
    facts = {"n_scores": len(scores), "n_triplets": n_triplets, **totals}
    return Scores(weights.decision_function(known), weights.decision_function(tests)), facts


def methods_of(setting: Setting) -> dict[str, Callable[[Fold, int], tuple[Scores, Record]]]:
    """By name, from the fold and a seed to scores of its pairs and measurements."""

    def scaled(fold: Fold) -> Fold:
        return fold.mapped(lambda X: X / X[fold.train].std(axis=0))

    return {
        "euclidean": lambda fold, seed: (score_distance(fold), {}),
        "pca-whitened-cosine": lambda fold, seed: (score_cosine(scaled(fold)), {}),
        "within-class-cosine": lambda fold, seed: (score_cosine(whitened_within(fold)), {}),
        **{f"triplets={n}": partial(score_boostmetric, setting, n) for n in setting.triplets},
        # The largest number of triplets, with the points of the mean face in all images.
        "fixed-points": partial(score_boostmetric, setting, setting.triplets[-1]),
        "best": partial(score_best, setting),
        "combined": partial(score_combined, setting),
    }


def run_lfw(setting: Setting, cell: Cell) -> Record:
    """The accuracy of a method on the fold with the number of the cell's seed."""
    is_fixed = cell.method == "fixed-points"
    used = replace(setting, describe=FaceSift("mean")) if is_fixed else setting
    n_dimensions = int(cell.dataset.removesuffix("D"))
    fold = load_fold(used, cell.seed, n_dimensions)
    scores, facts = methods_of(setting)[cell.method](fold, cell.seed)
    has_curve = (
        cell.method in (*CURVES, f"triplets={setting.triplets[-1]}")
        and n_dimensions == setting.dimensions[-1]
    )
    false_positives, true_positives, _ = roc_curve(fold.tests.is_same, scores.tests)
    return {
        "accuracy": accuracy(fold, scores),
        "equal_error_rate": equal_error(false_positives, true_positives),
        **facts,
        "n_train": len(fold.train),
        "n_test": len(fold.tests.rows),
        "skipped": fold.skipped,
        **(roc_rates(fold, scores) if has_curve else {}),
    }


def check_folds(setting: Setting, cells: Sequence[Cell]) -> None:
    """Raise an error if a package, the data or a fold is missing."""
    import_package("PIL.Image")
    _ = setting.describe.versions
    n_folds = int(load_lfw().folds.max()) + 1
    for cell in cells:
        if not 0 <= cell.seed < n_folds or n_folds < 2:
            raise ExperimentError(
                f"{cell}: the seed is the number of a fold, and the data have {n_folds} folds; at "
                f"least 2 are required. Select --seeds from 0 to {n_folds - 1}."
            )


def _experiment(name: str, setting: Setting) -> Experiment:
    datasets = tuple(f"{n_dimensions}D" for n_dimensions in setting.dimensions)

    def folds_of(dataset: str, method: str) -> Sequence[int]:
        is_single = method in ("fixed-points", "combined")
        return () if is_single and dataset != datasets[-1] else range(setting.n_folds)

    return Experiment(
        name,
        "Tables 4 and 5, Figure 7: Labeled Faces in the Wild",
        datasets,
        tuple(methods_of(setting)),
        partial(run_lfw, setting),
        folds_of,
        partial(check_folds, setting),
    )


LFW = (_experiment("lfw", PAPER), _experiment("lfw-small", SMALL))
