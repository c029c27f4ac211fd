"""The paper's experiments on Caltech-101: motorbikes told from aeroplanes, and faces retrieved.

The images of two classes are split at random, ten times, into 60 % for training and the rest. An
image is a histogram of visual words: SIFT descriptors at its interest points, clustered by k-means,
which sees those of the training images only.

- Motorbikes and aeroplanes: the error of the three nearest neighbours, and against the number of
  triplets that the metric is learned from.
- Faces and background: every test image of a face is a query among the other test images, and the
  precision of those nearest is averaged over the queries.

Where this differs from the paper, or the paper is silent:

- interest points are OpenCV's extrema of differences of Gaussians, where the paper has the
  Harris-affine detector;
- the archive has 468 images of the background, and the paper 520;
- beside the paper's counts of words there are their shares, which do not depend on the number of
  points.

Interest points matter here: on a grid, counts say how large an image is, and that alone separates
motorbikes from aeroplanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from boostmetric.estimators import BoostMetric, BoostMetricCV
from boostmetric.evaluation.knn import knn_error
from boostmetric.evaluation.retrieval import retrieval_scores
from boostmetric.problem import Comparisons
from boostmetric_paper.datasets import Part
from boostmetric_paper.experiments.cells import Cell, Record
from boostmetric_paper.experiments.experiment import (
    SEEDS,
    Experiment,
    ExperimentError,
    all_seeds,
    check_peers,
    measured,
)
from boostmetric_paper.experiments.methods import Learned, elsewhere
from boostmetric_paper.vision import BagOfVisualWords, FeatureCache, LabelledImages, load_caltech101
from boostmetric_paper.vision.packages import PACKAGES, needed
from boostmetric_paper.vision.words import NORMS

MOTORBIKES = ("Motorbikes", "airplanes")
FACES = ("Faces", "BACKGROUND_Google")

TRAINING_SHARE = 0.6

FORMS: dict[str, Callable[[NDArray], NDArray]] = {
    "words": lambda counts: counts,
    "words-shares": NORMS["l1"],
}
"""What becomes of counts, by the name of a dataset after the number of words."""

FEWEST = 8
"""Images of a class that an experiment needs: some for either part, and neighbours among them."""

N_NEIGHBORS = 3
"""Targets of an image, and impostors, in the triplets."""

C_GRID = tuple(10.0**power for power in range(-5, 2))
"""Of the linear SVM; 5-fold cross-validation chooses."""


@dataclass(frozen=True)
class Setting:
    """What differs between the paper's experiments and small ones.

    Parameters
    ----------
    n_words : sizes of the codebooks
    n_triplets : of the figure of the error against their number, by the first codebook
    ranks : numbers of nearest images whose precision is wanted
    seeds : of the splits
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
    """The histograms of a split, and the facts about it."""

    train: Part
    test: Part
    facts: Record


def run_motorbikes(cell: Cell) -> Record:
    """The error of a method on one split."""
    train, test, facts = bags_of(MOTORBIKES, cell)
    if cell.method == "svm":
        machine, measures = measured(lambda: support_vector_machine().fit(*train))
        error, C = 1 - float(machine.score(*test)), machine.best_params_["linearsvc__C"]
        return {"error": error, **facts, **measures, "chosen": {"C": C}}
    learned, measures = measured(lambda: learner_of(cell.method)(train, cell.seed))
    Z, W = learned.transform(train.X), learned.transform(test.X)
    error = knn_error(Z, train.y, W, test.y, ties="first")
    return {"error": error, **facts, **measures, **learned.measures}


def run_faces(ranks: Sequence[int], cell: Cell) -> Record:
    """The precision of a method on one split, `precision_5` that of the five nearest images."""
    train, test, facts = bags_of(FACES, cell)
    learned, measures = measured(lambda: learner_of(cell.method)(train, cell.seed))
    Z = learned.transform(test.X)
    # An image of the background is a class of its own: nothing is to be found for it.
    wanted = np.where(test.y == 0, 0, 1 + np.arange(len(test.y)))
    precisions = {f"precision_{k}": retrieval_scores(Z, wanted, k=k).precision for k in ranks}
    return {**precisions, **facts, **measures, **learned.measures}


def bags_of(classes: Sequence[str], cell: Cell) -> Bags:
    """The histograms of a cell's split: computed once, whatever the method."""
    data = load_caltech101(classes=classes)
    n_words, form = cell.dataset.split("-", 1)
    rows = training_rows(data.y, cell.seed)
    cache = FeatureCache()
    bag = BagOfVisualWords(int(n_words), cache=cache.folder, random_state=cell.seed)
    parameters = {
        "what": "histograms of visual words",
        "bag": {name: value for name, value in bag.get_params().items() if name != "cache"},
        "training_rows": rows.tolist(),
        "images": contents(data),
    }

    def compute() -> dict[str, NDArray]:
        return {"counts": bag.fit(data.images.take(rows)).transform(data.images)}

    counts = cache.arrays(parameters, compute)["counts"]
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


def training_rows(y: NDArray[np.intp], seed: int) -> NDArray[np.intp]:
    """The rows of a random 60 % of the images, in order, such that no class lacks on either side.

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


def contents(data: LabelledImages) -> str:
    """A digest of the files of images."""
    found = sha256()
    for name, source in zip(data.images.names, data.images.sources, strict=True):
        assert isinstance(source, bytes | Path)
        file = source if isinstance(source, bytes) else source.read_bytes()
        found.update(f"{name} {len(file)} ".encode() + file)
    return found.hexdigest()


def ready(classes: Sequence[str], cells: Sequence[Cell], max_rank: int = 0) -> None:
    """Raise an error if packages, images or an environment are missing, or images are too few."""
    for package in PACKAGES:
        needed(package)
    check_peers(cell.method for cell in cells if cell.method == "lmnn")
    y = load_caltech101(classes=classes).y
    n_test = len(y) - round(TRAINING_SHARE * len(y))
    for name, n_images in zip(classes, np.bincount(y).tolist(), strict=True):
        if n_images < FEWEST:
            raise ExperimentError(
                f"the class {name} has {n_images} images that can be read, and needs {FEWEST}: "
                "name a folder with all of them in BOOSTMETRIC_DATA."
            )
    if n_test <= max_rank:
        raise ExperimentError(
            f"{n_test} of {len(y)} images are for testing, too few for the precision of the "
            f"{max_rank} nearest: name a folder with all of them in BOOSTMETRIC_DATA."
        )


def support_vector_machine() -> GridSearchCV:
    """A linear SVM of features of unit variance, its C chosen by 5-fold cross-validation."""
    machine = make_pipeline(StandardScaler(), LinearSVC(dual=False))
    return GridSearchCV(machine, {"linearsvc__C": C_GRID}, cv=5)


def learner_of(method: str) -> Callable[[Part, int], Learned]:
    """What learns a map from the training part of a split, and a seed."""
    if method in LEARNERS:
        return LEARNERS[method]
    return partial(few_triplets, int(method.removeprefix(TRIPLETS)))


def boostmetric_e(train: Part, seed: int) -> Learned:
    """From the triplets of 3 targets and 3 impostors of each image."""
    return boosted(train, Comparisons.from_labels(*train, N_NEIGHBORS, N_NEIGHBORS))


def few_triplets(n_triplets: int, train: Part, seed: int) -> Learned:
    """From so many triplets, drawn from those of 3 neighbours, or of as many as it takes."""
    n_neighbors = max(N_NEIGHBORS, math.ceil(math.sqrt(n_triplets / len(train.y))))
    triplets = Comparisons.from_labels(*train, n_neighbors, n_neighbors)
    order = np.random.default_rng(seed).permutation(len(triplets))
    return boosted(train, triplets[order[:n_triplets]])


def boosted(train: Part, triplets: Comparisons) -> Learned:
    """The paper's metric: stage-wise, with the exponential loss."""
    learner = BoostMetric("exponential").fit(train.X, comparisons=triplets)
    measures = {
        "iterations": learner.n_iter_,
        "ended": learner.status_.name,
        "n_triplets": len(triplets),
    }
    return Learned(learner.components_, measures)


def recipe(train: Part, seed: int) -> Learned:
    """`BoostMetricCV`: held-out training images choose among candidates that are for all data."""
    learner = BoostMetricCV(random_state=seed).fit(*train)
    chosen = {**learner.best_params_, "stops": learner.stops_}
    return Learned(learner.components_, {"chosen": chosen})


TRIPLETS = "triplets="
"""What the name of a method begins with that learns from some of the triplets."""

LEARNERS: dict[str, Callable[[Part, int], Learned]] = {
    "euclidean": lambda train, seed: Learned(),
    "lmnn": lambda train, seed: elsewhere("lmnn", *train, n_neighbors=N_NEIGHBORS),
    "boostmetric-e": boostmetric_e,
    "recipe": recipe,
}
"""By the name that the command line takes."""


def motorbikes(name: str, setting: Setting) -> Experiment:
    """The experiment of classification; the figure of triplets is by the first codebook."""
    codebooks = tuple(f"{n}-words" for n in setting.n_words)
    figure = tuple(f"{TRIPLETS}{n}" for n in setting.n_triplets)

    def cells(
        datasets: Sequence[str], methods: Sequence[str], seeds: Sequence[int] | None
    ) -> Iterable[Cell]:
        for cell in all_seeds(name, setting.seeds)(datasets, methods, seeds):
            if cell.method not in figure or cell.dataset == codebooks[0]:
                yield cell

    return Experiment(
        "Caltech-101: motorbikes and aeroplanes",
        *(codebooks, ("svm", *LEARNERS, *figure), cells, run_motorbikes),
        ready=partial(ready, MOTORBIKES),
    )


def faces(name: str, setting: Setting) -> Experiment:
    """The experiment of retrieval."""
    datasets = tuple(f"{n}-{form}" for form in FORMS for n in setting.n_words)
    return Experiment(
        "Caltech-101: faces among the background",
        *(datasets, tuple(LEARNERS), all_seeds(name, setting.seeds)),
        partial(run_faces, setting.ranks),
        ready=partial(ready, FACES, max_rank=max(setting.ranks)),
    )


CALTECH = {
    name + end: experiment(name + end, setting)
    for end, setting in (("", PAPER), ("-small", SMALL))
    for name, experiment in (("caltech-motorbikes", motorbikes), ("caltech-faces", faces))
}
"""By the name that the command line takes."""
