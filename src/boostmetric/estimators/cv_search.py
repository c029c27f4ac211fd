"""Folds, the errors of candidates on held-out data, and averages: what `BoostMetricCV` computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from boostmetric.estimators.initial import as_components, distinct_rows
from boostmetric.estimators.training_data import TrainingData
from boostmetric.evaluation.knn import (
    are_satisfied,
    best_scale,
    neighbor_errors,
    smallest_columns,
)

MAX_QUERIES = 1_000
"""Number of held-out points per fold that are classified. Three folds give an error of 5 % with a
standard error of 0.4 %."""

BLOCK_ENTRIES = 1 << 23
"""Distances that are in memory at the same time, 64 MB."""

MAX_LAG_TO_AVERAGE, MAX_LAG_TO_CONTINUE = 1.0, 2.0
"""Standard errors by which a candidate may be worse than the best one to be part of the average,
and on the first fold, to be evaluated on the other folds. On 23 datasets, the results are the same
if all are evaluated on all folds."""

Split = tuple[NDArray, NDArray]

KIND, FORMAT_VERSION = "cv checkpoint", 2


class Search:
    """Folds, and the errors that are known: the state of a search, also in its checkpoint.

    Attributes
    ----------
    splits : for each fold, the points (or comparisons) to learn from, and those held out
    errors : for each fold, an array of shape (candidates, k) with the error of each held-out point
        that was classified, or of each comparison; empty if no candidate has been evaluated
    weights : for each fold, the weights of these points or comparisons, of shape (k,)
    seconds : array of shape (candidates, folds), durations of the fits, NaN if unknown
    """

    def __init__(self, splits: list[Split], n_candidates: int) -> None:
        self.splits = splits
        self.errors = [np.empty((n_candidates, 0)) for _ in splits]
        self.weights = [np.empty(0) for _ in splits]
        self.seconds = np.full((n_candidates, len(splits)), np.nan)

    @property
    def n_done(self) -> int:
        """Number of fits whose errors are known."""
        return int(np.isfinite(self.seconds).sum())

    @property
    def is_continued(self) -> NDArray:
        """Which candidates are evaluated on all folds, of shape (candidates,)."""
        n_candidates, n_folds = self.seconds.shape
        if n_folds == 0 or np.isnan(self.seconds[:, 0]).any():
            return np.ones(n_candidates, dtype=bool)
        best = int(np.argmin(self.errors[0] @ self.weights[0]))
        lags = [self.lag(number, best, [0]) for number in range(n_candidates)]
        return np.array(lags) <= MAX_LAG_TO_CONTINUE

    def lag(self, number: int, best: int, folds: Iterable[int]) -> float:
        """How many standard errors a candidate is worse than another, on the same held-out data."""
        differences = np.concatenate([
            self.weights[fold] * (self.errors[fold][number] - self.errors[fold][best])
            for fold in folds
        ])  # fmt: skip
        # Of classified points, those that only one of the two misclassifies decide.
        return float(differences.sum() / max(np.sqrt(np.sum(differences**2)), 1e-12))

    def missing(self) -> list[tuple[int, int]]:
        """Folds and candidates to evaluate. All candidates of a fold come before the next."""
        unknown = np.isnan(self.seconds) & self.is_continued[:, None]
        return [(int(fold), int(number)) for fold, number in np.argwhere(unknown.T)]

    def keep(
        self, fold: int, number: int, errors: NDArray, weights: NDArray, seconds: float
    ) -> None:
        """Add the errors of a candidate on a fold."""
        if len(self.weights[fold]) == 0:
            self.weights[fold] = weights
            self.errors[fold] = np.full((len(self.seconds), len(weights)), np.nan)
        self.errors[fold][number] = errors
        self.seconds[number, fold] = seconds

    def remaining_seconds(self) -> float:
        """Estimate the time of the remaining fits, and of about two with all data."""
        share = np.mean([len(train) / (len(train) + len(test)) for train, test in self.splits])
        n_left = len(self.missing()) + 2 / float(share)
        return n_left * float(np.nanmean(self.seconds))

    def restore(self, path: Path, settings: Mapping[str, str], data: str) -> None:
        """Continue from a checkpoint, if it exists."""
        state = load_state(path, KIND, FORMAT_VERSION, settings, data)
        if state is not None:
            _, arrays = state
            self.seconds = arrays["seconds"]
            folds = range(self.seconds.shape[1])
            self.splits = [(arrays[f"train{k}"], arrays[f"test{k}"]) for k in folds]
            self.errors = [arrays[f"errors{k}"] for k in folds]
            self.weights = [arrays[f"weights{k}"] for k in folds]

    def save(
        self, path: Path, settings: Mapping[str, str], data: str, finished: bool = False
    ) -> None:
        """Write the checkpoint."""
        facts = {"settings": settings, "data": data, "finished": finished}
        arrays: dict[str, NDArray] = {"seconds": self.seconds}
        for k, (train, test) in enumerate(self.splits):
            arrays |= {f"train{k}": train, f"test{k}": test}
            arrays |= {f"errors{k}": self.errors[k], f"weights{k}": self.weights[k]}
        save_state(path, KIND, FORMAT_VERSION, facts, arrays)

    def results(self, candidates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return `cv_results_`."""
        params = [dict(each) for each in candidates]
        found: dict[str, Any] = {"params": params}
        for name in dict.fromkeys(name for each in params for name in each):
            values, mask = np.empty(len(params), dtype=object), np.ones(len(params), dtype=bool)
            for number, each in enumerate(params):
                if name in each:
                    values[number], mask[number] = each[name], False
            found[f"param_{name}"] = np.ma.MaskedArray(values, mask)
        scores = self.scores()
        for fold, of_fold in enumerate(scores.T):
            found[f"split{fold}_test_score"] = of_fold
        used = scores[:, self.compared_folds()]
        means = _over_known_folds(np.mean, used)
        # Equal numbers of errors may give means that differ by rounding. Candidates that were not
        # evaluated on all folds come last.
        order = np.nan_to_num(-means.round(12), nan=np.inf) + 2 * ~self.is_continued
        return found | {
            "mean_test_score": means,
            "std_test_score": _over_known_folds(np.std, used),
            "rank_test_score": rankdata(order, method="min").astype(np.int32),
            "mean_fit_time": _over_known_folds(np.mean, self.seconds),
            "std_fit_time": _over_known_folds(np.std, self.seconds),
        }

    def scores(self) -> NDArray:
        """One minus the mean errors, of shape (candidates, folds), NaN if unknown."""
        scores = np.full(self.seconds.shape, np.nan)
        for fold, (errors, weights) in enumerate(zip(self.errors, self.weights, strict=True)):
            if len(weights):
                scores[:, fold] = 1 - np.average(errors, axis=1, weights=weights)
        return scores

    def compared_folds(self) -> NDArray:
        """The folds that decide: those that all continued candidates have in common."""
        is_known = np.isfinite(self.seconds[self.is_continued]).all(axis=0)
        # An interrupted search may not have completed the first one.
        return np.flatnonzero(is_known) if is_known.any() else np.arange(len(is_known))[:1]

    def as_good_as(self, best: int) -> list[int]:
        """The candidates that are at most one standard error worse than the best one."""
        folds = self.compared_folds()
        lags = [self.lag(number, best, folds) for number in range(len(self.seconds))]
        known = self.is_continued & np.isfinite(lags)
        return np.flatnonzero(known & (np.array(lags) <= MAX_LAG_TO_AVERAGE)).tolist()


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


def held_out_errors(
    data: TrainingData,
    rest: TrainingData,
    held_out: NDArray,
    components: Points | None,
    n_neighbors: int,
) -> tuple[NDArray, NDArray]:
    """The errors of a metric on held-out data, see `BoostMetricCV.cv_results_`, and their weights.

    `components` has rows L such that M = LᵀL; None is the Euclidean metric.
    """
    images: Any = data.points if components is None else data.points @ components.T
    if data.labels is None:
        assert data.comparisons is not None
        compared = data.comparisons[held_out]
        assert rest.comparisons is not None
        scale = best_scale(images, rest.comparisons)  # the starts have no unit
        errors = ~are_satisfied(images, compared, scale)
        weights = np.ones(len(compared)) if compared.weights is None else compared.weights
        return errors.astype(np.float64), weights

    assert rest.weights is not None
    others = np.flatnonzero(rest.weights > 0)
    if data.labels.ndim == 1:  # a weight of 2 is equivalent to a duplicate
        others, _ = distinct_rows(data.points, data.labels, rest.weights)
    queries = np.random.default_rng(0).permutation(held_out)[:MAX_QUERIES]
    if not issparse(images):  # distances would lose digits to a common offset
        images = images - images[others].mean(axis=0)
    known, k = images[others], min(n_neighbors, len(others))
    errors = np.empty(len(queries))
    for batch in gen_batches(len(queries), max(1, BLOCK_ENTRIES // len(others))):
        rows = queries[batch]
        squares = euclidean_distances(images[rows], known, squared=True)
        nearest = smallest_columns(squares, k)
        errors[batch] = neighbor_errors(data.labels[others], nearest, data.labels[rows])
    return errors, np.ones(len(queries)) if data.weights is None else data.weights[queries]


def average(
    metrics: Sequence[Sequence[Points | None]], points: Points, weights: NDArray | None = None
) -> NDArray:
    """Return components of the mean of groups of metrics, each with the same mean distance.

    A metric is given by its components, and divided by the mean squared distance of the points to
    their center. The groups count equally, and so do the metrics of a group.

    >>> X = np.array([[0.0, 0.0], [2.0, 4.0]])
    >>> average([[np.array([[1.0, 0.0]])], [np.array([[0.0, 1.0]])]], X) ** 2
    array([[0.5  , 0.   ],
           [0.   , 0.125]])
    """
    rows = []
    for group in metrics:
        for each in group:
            L = as_components(each, points.shape[1], points.dtype).astype(np.float64)
            images = np.asarray(points @ L.T)
            center = np.average(images, axis=0, weights=weights)
            spread = np.average(np.sum((images - center) ** 2, axis=1), weights=weights)
            rows.append(L / np.sqrt(max(spread, 1e-300) * len(group) * len(metrics)))
    return np.vstack(rows)


def _over_known_folds(function: Any, values: NDArray) -> NDArray:
    """A mean or deviation over the folds with a value; NaN for none."""
    return np.array([function(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan
                     for row in values])  # fmt: skip
