"""Folds, and the scores of candidates on held-out data: the computations of `BoostMetricCV`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.stats import rankdata
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import gen_batches

from boostmetric.data.labels import Labels
from boostmetric.data.points import Points, distinct_points
from boostmetric.estimators.checkpoint import load_state, save_state
from boostmetric.estimators.initial import distinct_rows
from boostmetric.estimators.training_data import TrainingData
from boostmetric.evaluation.knn import neighbor_errors
from boostmetric.metric import pair_distances

MAX_QUERIES = 1_000
"""Number of held-out points per fold that are classified. Three folds give an error of 5 % with a
standard error of 0.4 %."""

BLOCK_ENTRIES = 1 << 23
"""Distances that are in memory at the same time, 64 MB."""

Split = tuple[NDArray, NDArray]

KIND, FORMAT_VERSION = "cv checkpoint", 1


class Search:
    """Folds, and the scores that are known: the state of a search, also in its checkpoint.

    Attributes
    ----------
    splits : for each fold, the points (or comparisons) to learn from, and those held out
    numbers, shrinkages : arrays of shape (P,), the combinations: number of the candidate, shrinkage
    scores : array of shape (P, folds), NaN if unknown
    seconds : array of shape (candidates, folds), durations of the fits, NaN if unknown
    """

    def __init__(
        self,
        splits: list[Split],
        candidates: Sequence[Mapping[str, Any]],
        shrinkages: Sequence[float],
    ) -> None:
        self.splits = splits
        combinations = [
            (number, s)
            for number, each in enumerate(candidates)
            for s in ([each["shrinkage"]] if "shrinkage" in each else shrinkages)
        ]
        self.numbers = np.array([number for number, _ in combinations])
        self.shrinkages = np.array([s for _, s in combinations], dtype=np.float64)
        self.scores = np.full((len(combinations), len(splits)), np.nan)
        self.seconds = np.full((len(candidates), len(splits)), np.nan)

    @property
    def n_done(self) -> int:
        """Number of fits whose scores are known."""
        return int(np.isfinite(self.seconds).sum())

    def missing(self) -> list[tuple[int, int]]:
        """Folds and candidates without scores. All candidates of a fold come before the next."""
        return [(int(fold), int(number)) for fold, number in np.argwhere(np.isnan(self.seconds.T))]

    def keep(self, fold: int, number: int, scores: NDArray, seconds: float) -> None:
        """Add the scores of a candidate on a fold."""
        self.scores[self.numbers == number, fold] = scores
        self.seconds[number, fold] = seconds

    def remaining_seconds(self) -> float:
        """Estimate the time of the remaining fits and of the last one, which has all points."""
        share = np.mean([len(train) / (len(train) + len(test)) for train, test in self.splits])
        n_left = self.seconds.size - self.n_done + 1 / float(share)
        return n_left * float(np.nanmean(self.seconds))

    def restore(self, path: Path, settings: Mapping[str, str], data: str) -> None:
        """Continue from a checkpoint, if it exists."""
        state = load_state(path, KIND, FORMAT_VERSION, settings, data)
        if state is not None:
            _, arrays = state
            n_folds = arrays["seconds"].shape[1]
            self.splits = [(arrays[f"train{k}"], arrays[f"test{k}"]) for k in range(n_folds)]
            self.scores, self.seconds = arrays["scores"], arrays["seconds"]

    def save(
        self, path: Path, settings: Mapping[str, str], data: str, finished: bool = False
    ) -> None:
        """Write the checkpoint."""
        facts = {"settings": settings, "data": data, "finished": finished}
        arrays = {"scores": self.scores, "seconds": self.seconds}
        for number, (train, test) in enumerate(self.splits):
            arrays |= {f"train{number}": train, f"test{number}": test}
        save_state(path, KIND, FORMAT_VERSION, facts, arrays)

    def results(self, candidates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return `cv_results_`."""
        combinations = zip(self.numbers, self.shrinkages, strict=True)
        params = [{**candidates[number], "shrinkage": float(s)} for number, s in combinations]
        found: dict[str, Any] = {"params": params}
        for name in dict.fromkeys(name for each in params for name in each):
            values, mask = np.empty(len(params), dtype=object), np.ones(len(params), dtype=bool)
            for number, each in enumerate(params):
                if name in each:
                    values[number], mask[number] = each[name], False
            found[f"param_{name}"] = np.ma.MaskedArray(values, mask)
        scores = self.scores
        for fold, of_fold in enumerate(scores.T):
            found[f"split{fold}_test_score"] = of_fold
        # An interrupted search compares candidates by the folds that all of them have in common.
        is_complete = np.isfinite(scores).all(axis=0)
        used = scores[:, is_complete] if is_complete.any() else scores[:, :1]
        means, deviations = np.full((2, len(params)), np.nan)
        if used.size:
            means, deviations = used.mean(axis=1), used.std(axis=1)
        # Equal numbers of errors may give means that differ by rounding.
        order = np.nan_to_num(-means.round(12), nan=np.inf)
        times = self.seconds[self.numbers]
        return found | {
            "mean_test_score": means,
            "std_test_score": deviations,
            "rank_test_score": rankdata(order, method="min").astype(np.int32),
            "mean_fit_time": _over_known_folds(np.mean, times),
            "std_fit_time": _over_known_folds(np.std, times),
        }


def draw_splits(data: TrainingData, n_folds: int, rng: np.random.RandomState) -> list[Split]:
    """Draw folds of the points, or of the comparisons if there are no labels.

    Equal points with equal labels are in the same fold. Never held out are weights of 0, and points
    of classes (or with a label) of which fewer than two distinct points would be left. Empty if
    nothing can be held out.
    """
    # 1) groups of rows that stay together, and what may be held out
    if data.labels is None:
        assert data.comparisons is not None
        weights, groups = data.comparisons.weights, np.arange(len(data.comparisons))
        counted = np.ones(len(groups), dtype=bool) if weights is None else weights > 0
        order = rng.permutation(groups[counted])
    else:
        labels = Labels.of(data.labels)
        counted = labels.labeled if data.weights is None else labels.labeled & (data.weights > 0)
        first, groups = distinct_points(data.points, labels.codes)
        present = np.unique(groups[counted])
        present = present[np.argsort(first[present])]  # the same for dense and sparse X
        counts = labels[first[present]].counts()
        is_scarce = counts - np.ceil(counts / n_folds) < 2
        scarce_sets = labels.sets @ is_scarce.astype(np.intp) > 0
        order = rng.permutation(present[~scarce_sets[labels.codes[first[present]]]])
        # In the order of classes, so that each fold has its share of every class.
        order = order[np.argsort(labels.codes[first[order]], kind="stable")]
    # 2) folds
    if len(order) < 2:
        return []
    folds = np.full(int(groups.max()) + 1, -1)
    folds[order] = np.arange(len(order)) % n_folds
    held_out = np.where(counted, folds[groups], -1)
    return [
        (np.flatnonzero(held_out != k), np.flatnonzero(held_out == k))
        for k in range(min(n_folds, len(order)))
    ]


def part(data: TrainingData, train: NDArray) -> TrainingData:
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


def held_out_scores(
    data: TrainingData,
    rest: TrainingData,
    held_out: NDArray,
    base: Points | None,
    learned: NDArray,
    shrinkages: NDArray,
    n_neighbors: int,
) -> NDArray:
    """Compute the score of each shrinkage on held-out data, see `BoostMetricCV.cv_results_`.

    Squared distances are linear in M, so those of all shrinkages follow from those of the learned
    and of the starting metric.
    """
    images: Any = data.points if base is None else data.points @ base.T
    factors = [factors_of(learned, s) for s in shrinkages]
    if data.labels is None:
        assert data.comparisons is not None
        compared = data.comparisons[held_out]
        squares = [pair_distances(images, compared.pairs, L, squared=True) for L in (learned, None)]
        margins = [each[compared.far] - each[compared.near] for each in squares]
        gaps = 0 if compared.gaps is None else compared.gaps
        satisfied = [a * margins[0] + b * margins[1] > gaps for a, b in factors]
        return np.array([np.average(each, weights=compared.weights) for each in satisfied])

    assert rest.weights is not None
    others = np.flatnonzero(rest.weights > 0)
    if data.labels.ndim == 1:  # a weight of 2 is equivalent to a duplicate
        others, _ = distinct_rows(data.points, data.labels, rest.weights)
    queries = np.random.default_rng(0).permutation(held_out)[:MAX_QUERIES]
    if not issparse(images):  # distances would lose digits to a common offset
        images = images - images[others].mean(axis=0)
    spaces = [(images @ learned.T), images]
    known = [space[others] for space in spaces]
    k = min(n_neighbors, len(others))
    errors = np.empty((len(shrinkages), len(queries)))
    for batch in gen_batches(len(queries), max(1, BLOCK_ENTRIES // len(others))):
        rows = queries[batch]
        squares = [
            euclidean_distances(space[rows], points, squared=True)
            for space, points in zip(spaces, known, strict=True)
        ]
        for number, (a, b) in enumerate(factors):
            nearest = np.argpartition(a * squares[0] + b * squares[1], k - 1, axis=1)[:, :k]
            errors[number, batch] = neighbor_errors(data.labels[others], nearest, data.labels[rows])
    weights = None if data.weights is None else data.weights[queries]
    return 1 - np.average(errors, axis=1, weights=weights)


def factors_of(learned: NDArray, shrinkage: float) -> tuple[float, float]:
    """The factors of the learned and of the starting metric, see `BoostMetricCV`.

    >>> factors_of(np.array([[2.0, 0.0]]), 0.25)
    (0.75, 0.5)
    """
    if shrinkage == 1:  # the starting metric itself
        return 0.0, 1.0
    mean = float(np.sum(np.square(learned, dtype=np.float64))) / learned.shape[1]
    return 1 - shrinkage, shrinkage * mean


def shrunk_components(base: Points | None, learned: NDArray, shrinkage: float) -> NDArray:
    """Return rows L such that LᵀL is the shrunk metric over the original features.

    >>> shrunk_components(None, np.array([[2.0, 0.0]]), 0.5) ** 2
    array([[2., 0.],
           [1., 0.],
           [0., 1.]])
    """
    a, b = factors_of(learned, shrinkage)
    rows = [np.sqrt(a) * learned] if a > 0 else []
    rows += [np.sqrt(b) * np.eye(learned.shape[1])] if b > 0 else []
    stacked = np.vstack(rows)
    return stacked if base is None else np.asarray(stacked @ base)


def _over_known_folds(function: Any, times: NDArray) -> NDArray:
    """A mean or deviation over the folds that an interrupted search has reached; NaN for none."""
    return np.array([function(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan
                     for row in times])  # fmt: skip
