"""Parts of the training data that are held out, and the errors of metrics on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from boostmetric.data.labels import Labels
from boostmetric.data.points import Points, content_hashes, distinct_points
from boostmetric.data.samples import turns_of
from boostmetric.estimators.initial import distinct_rows
from boostmetric.estimators.training_data import TrainingData
from boostmetric.evaluation.knn import (
    are_satisfied,
    best_scale,
    chance_errors,
    comparable,
    nearest_references,
    neighbor_errors,
)
from boostmetric.problem import Comparisons

MAX_QUERIES = 1_000
"""Number of held-out points per fold that are classified. Three folds give an error of 5 % with a
standard error of 0.4 %."""

Split = tuple[NDArray, NDArray]
"""The points (or comparisons) to learn from, and those held out."""


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """Return the seed of the hashes that draw samples and folds; None is 0."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return 0 if random_state is None else int(check_random_state(random_state).randint(1 << 31))


def comparison_hashes(points: Points, comparisons: Comparisons, seed: int = 0) -> NDArray:
    """Return hashes of comparisons, equal for comparisons of equal points."""
    # The two points of a pair are interchangeable, the two pairs are not.
    hashes = content_hashes(points, seed)[comparisons.pairs] | np.uint64(1)
    pairs = hashes[:, 0] * hashes[:, 1]
    return np.uint64(3) * pairs[comparisons.near] + pairs[comparisons.far]


def draw_splits(data: TrainingData, n_folds: int, seed: int = 0) -> list[Split]:
    """Draw folds of the points, or of the comparisons if there are no labels.

    Equal points with equal labels are in the same fold, and so are equal comparisons. Never held
    out are weights of 0, and points of classes (or with a label) of which fewer than two distinct
    points would be left. If these are more than half of the points, the folds consist of whole
    classes instead. Empty if nothing can be held out.
    """
    # 1) groups of rows that stay together, and their turns
    if data.labels is None:
        assert data.comparisons is not None
        weights = data.comparisons.weights
        hashes = comparison_hashes(data.points, data.comparisons, seed)
        _, groups = np.unique(hashes, return_inverse=True)
        groups = groups.reshape(-1)
        counted = np.ones(len(groups), dtype=bool) if weights is None else weights > 0
        chosen = np.unique(groups[counted])
        turns = np.arange(len(chosen))
    else:
        labels = Labels.of(data.labels)
        counted = labels.labeled if data.weights is None else labels.labeled & (data.weights > 0)
        first, groups = distinct_points(data.points, labels.codes)
        present = np.unique(groups[counted])
        counts = labels[first[present]].counts()
        is_scarce = counts - np.ceil(counts / n_folds) < 2
        scarce_sets = labels.sets @ is_scarce.astype(np.intp) > 0
        chosen = present[~scarce_sets[labels.codes[first[present]]]]
        # Each fold needs two classes with several points, to tell them apart.
        n_several = int(np.sum(counts > 1))
        are_whole = 2 * len(chosen) < len(present) and n_several >= 2 * n_folds
        chosen = present if are_whole else chosen
        # Of these points only, so that weights are equivalent to duplicates.
        chosen = chosen[np.argsort(first[chosen])]
        hashes = content_hashes(data.points, seed, first[chosen])
        turns = turns_of(hashes, labels.codes[first[chosen]], whole_classes=are_whole)
    # 2) folds
    if len(chosen) < 2:
        return []
    folds = np.full(int(groups.max()) + 1, -1)
    folds[chosen] = turns % n_folds
    held_out = np.where(counted, folds[groups], -1)
    return [
        (np.flatnonzero(held_out != k), np.flatnonzero(held_out == k))
        for k in range(min(n_folds, len(chosen)))
    ]


def check_splits(splits: Iterable[tuple[ArrayLike, ArrayLike]], n: int) -> list[Split]:
    """Return given splits of n points or comparisons as arrays; raise a ValueError if invalid.

    >>> check_splits([([0, 1], [2])], 3)
    [(array([0, 1]), array([2]))]
    """
    checked = []
    for number, split in enumerate(splits):
        parts = [np.asarray(part) for part in split]
        if len(parts) != 2:
            raise ValueError(
                f"Split {number} of cv must be a pair (train, test); it has {len(parts)} parts."
            )
        for name, rows in zip(("train", "test"), parts, strict=True):
            what = f"The {name} indices of split {number} of cv"
            if rows.dtype == bool:
                raise ValueError(f"{what} are a Boolean mask. Pass np.flatnonzero(mask) instead.")
            if rows.ndim != 1 or not len(rows):
                raise ValueError(f"{what} must be a nonempty 1D array; got shape {rows.shape}.")
            if rows.dtype.kind not in "iu":
                raise ValueError(f"{what} must be integers; got {rows.dtype}.")
            if rows.min() < 0 or rows.max() >= n:
                raise ValueError(
                    f"{what} must be in the range [0, {n}), as many as there are points (or "
                    f"comparisons, without labels); got {rows.min()} to {rows.max()}."
                )
        checked.append((parts[0], parts[1]))
    return checked


def subset(data: TrainingData, train: NDArray) -> TrainingData:
    """Return the data with only some of the points, or of the comparisons if there are no labels.

    The other points have weight 0, so that comparisons still refer to rows of X; those that name
    such a point are dropped.
    """
    compared = data.comparisons
    if data.labels is None:
        assert compared is not None
        return replace(data, comparisons=compared[train])
    n = data.points.shape[0]
    weights = np.zeros(n)
    weights[train] = 1 if data.weights is None else data.weights[train]
    if compared is not None:
        is_kept = (weights > 0)[compared.pairs].all(axis=1)
        rows = np.flatnonzero(is_kept[compared.near] & is_kept[compared.far])
        compared = compared[rows] if len(rows) else None
    return replace(data, weights=weights, comparisons=compared)


class Errors(NamedTuple):
    """Errors of a metric on points or comparisons, each of shape (q,).

    Attributes
    ----------
    values : from 0 to 1
    chance : expected values of a metric that says nothing about the labels
    weights : of the points or comparisons
    """

    values: NDArray
    chance: NDArray
    weights: NDArray


def held_out_errors(
    data: TrainingData,
    rest: TrainingData,
    held_out: NDArray,
    components: Points | None,
    n_neighbors: int,
    seed: int = 0,
) -> Errors:
    """Return the errors of a metric on held-out data.

    Points are classified by those of `rest`, or by each other if they are of several classes and
    `rest` has none of them, at most `MAX_QUERIES` of them; comparisons are satisfied or not.

    Parameters
    ----------
    data, rest : all data, and those that were learned from
    held_out : the points or comparisons to evaluate
    components : rows L such that M = LᵀL; None is the Euclidean metric
    n_neighbors : of the classifier
    seed : of the hashes that choose the points
    """
    images = data.points if components is None else data.points @ components.T
    if data.labels is None:
        assert data.comparisons is not None
        assert rest.comparisons is not None
        compared = data.comparisons[held_out]
        scale = best_scale(images, rest.comparisons)  # the starts have no unit
        errors = 1.0 - are_satisfied(images, compared, scale)
        weights = np.ones(len(compared)) if compared.weights is None else compared.weights
        chance = 0.5
        if compared.gaps is not None:  # the smallest or the largest distances satisfy the others
            positive = np.average(compared.gaps > 0, weights=weights)
            chance = float(min(positive, 1 - positive))
        return Errors(errors, np.full(len(errors), chance), weights)

    assert rest.weights is not None
    others = np.flatnonzero(rest.weights > 0)
    if data.labels.ndim == 1:  # a weight of 2 is equivalent to a duplicate
        classes = np.unique(data.labels[held_out])
        if len(classes) > 1 and not np.isin(classes, data.labels[others]).any():
            rest = subset(data, held_out)
            assert rest.weights is not None
        others, _ = distinct_rows(data.points, data.labels, rest.weights)
    order = np.argsort(content_hashes(data.points, seed)[held_out], kind="stable")
    queries = held_out[order[:MAX_QUERIES]]
    rows = nearest_references(comparable(images), queries, others, n_neighbors)
    values = neighbor_errors(data.labels, rows, data.labels[queries])
    weights = np.ones(len(queries)) if data.weights is None else data.weights[queries]
    return Errors(values, chance_errors(data.labels, rows, data.labels[others]), weights)
