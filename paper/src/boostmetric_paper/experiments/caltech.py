"""The paper's experiments on Caltech-101: motorbikes or airplanes, and retrieval of faces.

The images of two classes are split at random, ten times, into 60 % for training and 40 % for
testing. An image is a histogram of visual words: SIFT descriptors at its interest points, clustered
by k-means on the training images.

- Motorbikes and airplanes: the error of the three nearest neighbors, also against the number of
  triplets that the metric is learned from.
- Faces and background: every test image of a face is a query among the other test images, and the
  precision of the nearest images is averaged over the queries.

Differences from the paper, or what it does not state:

- interest points are OpenCV's extrema of differences of Gaussians; the paper uses the Harris-affine
  detector;
- the archive has 468 background images, the paper 520;
- in addition to counts of words there are shares of words, which do not depend on the number of
  points.

Interest points matter here: on a dense grid, counts reveal the size of an image, which alone
separates motorbikes from airplanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from boostmetric.evaluation.knn import knn_error
from boostmetric.evaluation.retrieval import retrieval_scores
from boostmetric.problem import Comparisons
from boostmetric_paper.datasets import Part
from boostmetric_paper.experiments.cells import Cell, Record
from boostmetric_paper.experiments.experiment import (
    SEEDS,
    Experiment,
    ExperimentError,
    cache_folder,
    cached,
)
from boostmetric_paper.experiments.methods import fit_boostmetric, fit_recipe, stagewise
from boostmetric_paper.peers import Learned, fit_in_subprocess, measure
from boostmetric_paper.vision import BagOfVisualWords, Images, load_caltech101
from boostmetric_paper.vision.packages import PACKAGES, import_package
from boostmetric_paper.vision.words import NORMS

MOTORBIKES = ("Motorbikes", "airplanes")
FACES = ("Faces", "BACKGROUND_Google")

TRAINING_SHARE = 0.6

FORMS: dict[str, Callable[[NDArray], NDArray]] = {
    "words": lambda counts: counts,
    "words-shares": NORMS["l1"],
}
"""Representations of counts, by the part of a dataset's name after the number of words."""

MIN_IMAGES = 8
"""Images that a class needs, so that both parts contain some and neighbors exist."""

N_NEIGHBORS = 3
"""Targets and impostors of an image in the triplets."""

C_GRID = tuple(10.0**power for power in range(-5, 2))
"""Values of C of the linear SVM; 5-fold cross-validation chooses."""


@dataclass(frozen=True)
class Setting:
    """What differs between the paper's experiments and the small ones.

    Parameters
    ----------
    n_words : sizes of the codebooks
    n_triplets : numbers of triplets in the figure, which uses the first codebook
    ranks : numbers of nearest images for the precision
    seeds : seeds of the splits
    """

    n_words: tuple[int, ...]
    n_triplets: tuple[int, ...]
    ranks: tuple[int, ...]
    seeds: Sequence[int]


PAPER = Setting(
    n_words=(100, 200),
    n_triplets=(500, 1000, 2000, 3000, 4500, 6000, 9000, 15000),
    ranks=(5, 10, 15, 20),
    seeds=SEEDS,
)
SMALL = Setting(n_words=(8, 12), n_triplets=(20, 40), ranks=(2, 4), seeds=SEEDS[:2])


class Bags(NamedTuple):
    """The histograms of a split, and facts about it."""

    train: Part
    test: Part
    facts: Record


def run_motorbikes(cell: Cell) -> Record:
    """The error of a method on one split."""
    train, test, facts = load_bags(MOTORBIKES, cell)
    if cell.method == "svm":
        pipeline = make_pipeline(StandardScaler(), LinearSVC(dual=False))
        search = GridSearchCV(pipeline, {"linearsvc__C": C_GRID}, cv=5)
        _, measures = measure(lambda: search.fit(*train))
        error, C = 1 - float(search.score(*test)), search.best_params_["linearsvc__C"]
        return {"error": error, **facts, **measures, "chosen": {"C": C}}
    learned, measures = measure(lambda: learn(cell.method, train, cell.seed))
    Z, W = learned.transform(train.X), learned.transform(test.X)
    error = knn_error(Z, train.y, W, test.y)
    return {"error": error, **facts, **measures, **learned.measures}


def run_faces(ranks: Sequence[int], cell: Cell) -> Record:
    """The precision of a method on one split; `precision_5` is that of the five nearest images."""
    train, test, facts = load_bags(FACES, cell)
    learned, measures = measure(lambda: learn(cell.method, train, cell.seed))
    Z = learned.transform(test.X)
    # Each background image is a class of its own, so it is no query and never relevant.
    relevant = np.where(test.y == 0, 0, 1 + np.arange(len(test.y)))
    precisions = {f"precision_{k}": retrieval_scores(Z, relevant, k=k).precision for k in ranks}
    return {**precisions, **facts, **measures, **learned.measures}


def load_bags(classes: Sequence[str], cell: Cell) -> Bags:
    """The histograms of a cell's split, computed once for all methods."""
    data = load_caltech101(classes=classes)
    n_words, form = cell.dataset.split("-", 1)
    rows = training_rows(data.y, cell.seed)
    counts = cached(count_words)(data.images.loaded(), rows, int(n_words), cell.seed)
    X = FORMS[form](counts)
    is_train = np.isin(np.arange(len(X)), rows)
    facts = {
        "n_train": len(rows),
        "n_test": len(X) - len(rows),
        "n_descriptors": int(counts.sum()),
        "n_empty": int(np.sum(~counts.any(axis=1))),
        "skipped": list(data.images.skipped),
    }
    return Bags(Part(X[is_train], data.y[is_train]), Part(X[~is_train], data.y[~is_train]), facts)


def count_words(
    images: Images, rows: NDArray[np.intp], n_words: int, seed: int
) -> NDArray[np.float64]:
    """Histograms of all images, with the words of those in `rows`."""
    bag = BagOfVisualWords(n_words, memory=cache_folder(), random_state=seed)
    return bag.fit(images.take(rows)).transform(images)


def training_rows(y: NDArray[np.intp], seed: int) -> NDArray[np.intp]:
    """The sorted rows of a random 60 % of the images, such that both parts have all classes.

    Examples
    --------
    >>> training_rows(np.repeat([0, 1], 5), seed=0)
    array([2, 3, 4, 5, 6, 7])
    """
    rng, n_train = np.random.default_rng(seed), round(TRAINING_SHARE * len(y))
    while True:
        train, test = np.split(rng.permutation(len(y)), [n_train])
        if len(np.unique(y[train])) == len(np.unique(y[test])) == len(np.unique(y)):
            return np.sort(train)


def check_images(classes: Sequence[str], cells: Sequence[Cell], max_rank: int = 0) -> None:
    """Raise an error if a package or the images are missing, or if there are too few images."""
    for package in PACKAGES:
        import_package(package)
    y = load_caltech101(classes=classes).y
    n_test = len(y) - round(TRAINING_SHARE * len(y))
    for name, n_images in zip(classes, np.bincount(y).tolist(), strict=True):
        if n_images < MIN_IMAGES:
            raise ExperimentError(
                f"The class {name} has {n_images} readable images; at least {MIN_IMAGES} are "
                "required. Set BOOSTMETRIC_DATA to a folder with all images of Caltech-101."
            )
    if n_test <= max_rank:
        raise ExperimentError(
            f"The test part has {n_test} of {len(y)} images, too few for the precision of the "
            f"{max_rank} nearest. Set BOOSTMETRIC_DATA to a folder with all images of Caltech-101."
        )


def learn(method: str, train: Part, seed: int) -> Learned:
    """A linear map from the training part of a split."""
    if method == "euclidean":
        return Learned()
    if method == "lmnn":
        return fit_in_subprocess("lmnn", *train, n_neighbors=N_NEIGHBORS)
    if method == "recipe":
        return fit_recipe(train, seed)
    # The paper's metric: stage-wise, with the exponential loss.
    if method == "boostmetric-e":
        triplets = Comparisons.from_labels(*train, N_NEIGHBORS, N_NEIGHBORS)
    else:
        # Drawn from the triplets of 3 neighbors, or of as many as are needed.
        n_triplets = int(method.removeprefix("triplets="))
        k = max(N_NEIGHBORS, math.ceil(math.sqrt(n_triplets / len(train.y))))
        triplets = Comparisons.from_labels(*train, k, k)
        triplets = triplets[np.random.default_rng(seed).permutation(len(triplets))[:n_triplets]]
    options = {"loss": "exponential", **stagewise(train.X.shape[1], len(triplets))}
    return fit_boostmetric(train.X, comparisons=triplets, **options)


METHODS = ("euclidean", "lmnn", "boostmetric-e", "recipe")


def motorbikes(name: str, setting: Setting) -> Experiment:
    """Classification; the numbers of triplets vary for the first codebook only."""
    codebooks = tuple(f"{n}-words" for n in setting.n_words)
    series = tuple(f"triplets={n}" for n in setting.n_triplets)
    return Experiment(
        name,
        "Caltech-101: motorbikes and airplanes",
        codebooks,
        ("svm", *METHODS, *series),
        run_motorbikes,
        lambda dataset, method: (
            () if method in series and dataset != codebooks[0] else setting.seeds
        ),
        partial(check_images, MOTORBIKES),
    )


def faces(name: str, setting: Setting) -> Experiment:
    """Retrieval of faces."""
    return Experiment(
        name,
        "Caltech-101: retrieval of faces",
        tuple(f"{n}-{form}" for form in FORMS for n in setting.n_words),
        METHODS,
        partial(run_faces, setting.ranks),
        lambda dataset, method: setting.seeds,
        partial(check_images, FACES, max_rank=max(setting.ranks)),
    )


CALTECH = (
    motorbikes("caltech-motorbikes", PAPER),
    faces("caltech-faces", PAPER),
    motorbikes("caltech-motorbikes-small", SMALL),
    faces("caltech-faces-small", SMALL),
)
