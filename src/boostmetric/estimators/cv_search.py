"""The errors of candidates on held-out data, and averages: what `BoostMetricCV` computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from boostmetric.data.points import Points
from boostmetric.estimators.checkpoint import load_state, save_state
from boostmetric.estimators.initial import as_components
from boostmetric.estimators.splits import Errors, Split
from boostmetric.evaluation.knn import n_standard_errors

MAX_LAG_TO_AVERAGE, MAX_LAG_TO_CONTINUE = 1.0, 2.0
"""Standard errors by which a candidate may be worse than the best one to be part of the average,
and on the first fold, to be evaluated on the other folds. On 23 datasets, the results are the same
if all are evaluated on all folds."""

KIND, FORMAT_VERSION = "cv checkpoint", 3


class Search:
    """Folds, and the errors that are known: the state of a search, also in its checkpoint.

    Attributes
    ----------
    splits : for each fold, the points (or comparisons) to learn from, and those held out
    errors : for each fold, an array of shape (candidates, k) with the error of each held-out point
        that was classified, or of each comparison; empty if no candidate has been evaluated
    chance : for each fold, the errors of a metric that says nothing, of the same shape
    weights : for each fold, the weights of these points or comparisons, of shape (k,)
    seconds : array of shape (candidates, folds), durations of the fits, NaN if unknown
    """

    def __init__(self, splits: list[Split], n_candidates: int) -> None:
        self.splits = splits
        self.errors = [np.empty((n_candidates, 0)) for _ in splits]
        self.chance = [np.empty((n_candidates, 0)) for _ in splits]
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
        return n_standard_errors(np.concatenate([
            self.weights[fold] * (self.errors[fold][number] - self.errors[fold][best])
            for fold in folds
        ]))  # fmt: skip

    def errors_of(self, numbers: Sequence[int]) -> list[Errors]:
        """Return the errors of candidates on the folds on which all of them were evaluated."""
        folds = np.flatnonzero(np.isfinite(self.seconds[list(numbers)]).all(axis=0))
        weights = np.concatenate([self.weights[fold] for fold in folds])
        values, chance = (
            np.concatenate([of_folds[fold][list(numbers)] for fold in folds], axis=1)
            for of_folds in (self.errors, self.chance)
        )
        return [Errors(*each, weights) for each in zip(values, chance, strict=True)]

    def missing(self) -> list[tuple[int, int]]:
        """Folds and candidates to evaluate. All candidates of a fold come before the next."""
        unknown = np.isnan(self.seconds) & self.is_continued[:, None]
        return [(int(fold), int(number)) for fold, number in np.argwhere(unknown.T)]

    def keep(self, fold: int, number: int, found: Errors, seconds: float) -> None:
        """Add the errors of a candidate on a fold."""
        if len(self.weights[fold]) == 0:
            self.weights[fold] = found.weights
            for of_folds in (self.errors, self.chance):
                of_folds[fold] = np.full((len(self.seconds), len(found.weights)), np.nan)
        self.errors[fold][number], self.chance[fold][number] = found.values, found.chance
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
            self.chance = [arrays[f"chance{k}"] for k in folds]
            self.weights = [arrays[f"weights{k}"] for k in folds]

    def save(
        self, path: Path, settings: Mapping[str, str], data: str, finished: bool = False
    ) -> None:
        """Write the checkpoint."""
        facts = {"settings": settings, "data": data, "finished": finished}
        arrays: dict[str, NDArray] = {"seconds": self.seconds}
        for k, (train, test) in enumerate(self.splits):
            arrays |= {f"train{k}": train, f"test{k}": test}
            arrays |= {f"errors{k}": self.errors[k], f"chance{k}": self.chance[k]}
            arrays |= {f"weights{k}": self.weights[k]}
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
