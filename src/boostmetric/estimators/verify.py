"""Verification: learned metrics are compared with the start, and the simpler one wins if better.

There are two checks:

- The leave-one-out error of training points after each pass. A pass that makes it significantly
  worse is dropped, and learning ends there. This is nearly free, because the search for the
  neighbors of the next pass has found the nearest points.
- The errors on data that were not used: two halves of the points or comparisons, each learned from
  the other. The leave-one-out error of a learned metric is too low, because the metric was learned
  from the same labels; with more than `MAX_POINTS_IN_HALVES` points, this hardly matters, unless
  the neighbors before learning are no better than chance. One pass is compared: whether more of
  them help is decided by the leave-one-out error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.data.labels import Labels, check_labels
from boostmetric.data.points import Points, content_hashes
from boostmetric.data.samples import turns_of
from boostmetric.estimators.initial import distinct_rows
from boostmetric.estimators.splits import Errors, comparison_hashes, held_out_errors, subset
from boostmetric.estimators.training_data import TrainingData
from boostmetric.evaluation.knn import (
    chance_errors,
    comparable,
    decision_neighbors,
    n_standard_errors,
    nearest_partners,
    nearest_references,
    neighbor_errors,
)

MAX_QUERIES = 2_000
"""Training points whose leave-one-out errors are compared. If a tenth of them change, the standard
error of the difference is 0.7 %."""

MAX_POINTS_IN_HALVES = 1_000
"""Up to this number of distinct points, two halves decide, which takes up to as long as the fit. On
24 kinds of unfriendly data and 35 ordinary tables, decisions by the leave-one-out error were worse
only below: with 40 points, pure noise and heavy tails."""

MAX_COMPARISONS_IN_HALF = 5_000
"""If learning helps with this number of comparisons, it helps with more."""

MIN_HELD_OUT = 10
"""Fewer held-out points or comparisons say nothing."""

MAX_PER_SMALL_CLASS = 8
"""With fewer points per class on average, each half has whole classes, because half of a class is a
harder problem than the class."""

DROP_PASS, PREFER_SIMPLER, ENOUGH_EVIDENCE = 2.0, 1.0, 3.0
"""Standard errors by which a pass must be worse to be dropped, by which a simpler metric must be
better to be preferred, and by which an error must be below chance. The second is low, because
little is lost with the simpler one of two equally good metrics. With 3, all but 1 of 200 fits to
labels without any signal keep the start, with 2 all but 9; the mean error with 40 points is the
same."""


class LeaveOneOut:
    """Leave-one-out errors of a sample of the training points, in the spaces of a fit.

    Parameters
    ----------
    data : with labels, in memory
    seed : of the hashes that choose the points
    """

    def __init__(self, data: TrainingData, seed: int = 0) -> None:
        assert data.labels is not None
        if data.labels.ndim == 1:  # a weight of 2 is equivalent to a duplicate
            self.references, weights = distinct_rows(data.points, data.labels, data.weights)
            self._are_pairs_neighbors = True
        else:
            labeled = Labels.of(data.labels).labeled
            weights = labeled * (1.0 if data.weights is None else data.weights)
            self.references = np.flatnonzero(weights > 0)
            # Points without labels are compared as well, but are no references.
            self._are_pairs_neighbors = bool(labeled.all())
        # Comparisons that were given may name duplicates, or points of weight 0.
        self._are_pairs_neighbors &= data.comparisons is None
        # Of the references only, so that weights are equivalent to duplicates.
        self.hashes = content_hashes(data.points, seed, self.references)
        self.queries = self.references[np.argsort(self.hashes, kind="stable")[:MAX_QUERIES]]
        self.labels, self.all_weights = data.labels, weights
        self.weights = weights[self.queries]
        self.n_neighbors = decision_neighbors(data.labels[self.references])

    def errors(self, images: Points, pairs: NDArray | None = None) -> Errors:
        """Return the errors in a space.

        Parameters
        ----------
        images : all points in this space
        pairs : row numbers of the compared pairs, if the neighbors in this space were compared
        """
        rows = None
        if pairs is not None and self._are_pairs_neighbors:
            rows = nearest_partners(images, self.queries, pairs, self.n_neighbors)
        if rows is None:
            points = comparable(images)
            rows = nearest_references(points, self.queries, self.references, self.n_neighbors)
        values = neighbor_errors(self.labels, rows, self.labels[self.queries])
        chance = chance_errors(self.labels, rows, self.labels[self.references])
        return Errors(values, chance, self.weights)


@dataclass(frozen=True)
class Verification:
    """What the errors of the start and after each pass say.

    Attributes
    ----------
    n_kept : number of passes to keep; 0 is the start
    is_chance : whether the learned metric is not better than chance
    start, learned : mean errors
    gain, gain_standard_error : start − learned, on the same points or comparisons
    n_queries : number of points or comparisons
    measure : "halves", "leave-one-out" or "cross-validation"
    """

    n_kept: int
    is_chance: bool
    start: float
    start_standard_error: float
    learned: float
    gain: float
    gain_standard_error: float
    n_queries: int
    measure: str

    @classmethod
    def of(cls, errors: Sequence[Errors], measure: str, needs_evidence: bool) -> Verification:
        """Decide by the errors of the start and after each pass.

        All passes are kept, unless fewer are better by more than one standard error, or, with
        `needs_evidence`, unless the result is not better than chance.

        >>> def errors(*values):
        ...     return Errors(np.array(values), np.ones(4), np.ones(4))
        >>> start, one, two = errors(1.0, 1, 0, 0), errors(0.0, 0, 0, 0), errors(0.0, 0, 1, 1)
        >>> [Verification.of(each, "halves", False).n_kept for each in ([start, one], [one, two])]
        [1, 0]
        """
        n_kept = len(errors) - 1
        for number in range(len(errors) - 2, -1, -1):
            if is_worse(errors[n_kept], errors[number], PREFER_SIMPLER):
                n_kept = number
        learned = errors[n_kept or -1]
        is_chance = needs_evidence and not is_better_than_chance(learned)
        weights = learned.weights / learned.weights.mean()
        gains = weights * (errors[0].values - learned.values)
        root = np.sqrt(len(gains))
        return cls(
            0 if is_chance else n_kept,
            is_chance,
            float(np.mean(weights * errors[0].values)),
            float(np.std(errors[0].values) / root),
            float(np.mean(weights * learned.values)),
            float(gains.mean()),
            float(gains.std() / root),
            len(gains),
            measure,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return `errors_` of the estimator."""
        names = ("start", "learned", "gain", "gain_standard_error", "n_queries", "measure")
        return {name: getattr(self, name) for name in names}

    def message(self, n_neighbors: int) -> str:
        """Return a sentence about the result; 0 neighbors are errors on comparisons."""
        error = f"{n_neighbors}-NN error" if n_neighbors else "fraction of violated comparisons"
        where = "held-out data"
        if self.measure == "leave-one-out":
            where = "training points (leave-one-out)"
        start, spread, learned = (
            100 * each for each in (self.start, self.start_standard_error, self.learned)
        )
        if self.n_kept:
            return f"{error} on {where}: {start:.1f} % before learning, {learned:.1f} % after."
        if self.is_chance:
            return (
                f"After learning, the {error} on {where} ({learned:.1f} %) is not below that of "
                "random labels; the starting metric is kept."
            )
        return (
            f"Learning did not lower the {error} on {where} ({start:.1f} ± {spread:.1f} % before, "
            f"{learned:.1f} % after); the starting metric is kept."
        )


def is_worse(errors: Errors, others: Errors, n_errors: float) -> bool:
    """Return whether errors are larger than others by more than a number of standard errors."""
    return n_standard_errors(errors.weights * (errors.values - others.values)) > n_errors


def is_better_than_chance(errors: Errors) -> bool:
    """Return whether errors are below those of chance by `ENOUGH_EVIDENCE` standard errors."""
    weighted = errors.weights * errors.values
    gain = np.mean(errors.weights * errors.chance) - weighted.mean()
    return bool(gain > ENOUGH_EVIDENCE * weighted.std() / np.sqrt(len(weighted)) and gain > 0)


def halves(data: TrainingData, check: LeaveOneOut | None, seed: int) -> list[NDArray]:
    """Return the points (or comparisons) of two halves, of whole classes if classes are small."""
    if check is None:
        assert data.comparisons is not None
        hashes = comparison_hashes(data.points, data.comparisons, seed)
        _, groups = np.unique(hashes, return_inverse=True)  # equal comparisons stay together
        order = np.argsort(hashes, kind="stable")
        turns = groups.reshape(-1)[order] % 2
        return [np.sort(order[turns == side][:MAX_COMPARISONS_IN_HALF]) for side in (0, 1)]
    rows = check.references
    codes = Labels.of(check.labels).codes[rows]
    are_small = len(rows) < MAX_PER_SMALL_CLASS * len(np.unique(codes))
    turns = turns_of(check.hashes, codes, whole_classes=are_small)
    return [np.sort(rows[turns % 2 == side]) for side in (0, 1)]


def verify_on_halves(
    data: TrainingData,
    check: LeaveOneOut | None,
    learn: Callable[[TrainingData], list[Points | None]],
    seed: int,
) -> Verification | None:
    """Compare a pass of learning from each half with the start, on the other half.

    The second half is only learned from if the first one leaves doubts. None if there are too few
    points, classes or comparisons.

    Parameters
    ----------
    data : all data
    check : leave-one-out errors for the same data; None without labels
    learn : returns the components of the start, and after a pass if it has directions
    seed : of the hashes that choose the halves
    """
    sides = halves(data, check, seed)
    if check is not None:  # a half has only the first of several duplicates
        data = replace(data, weights=check.all_weights)
    parts = [subset(data, rows) for rows in sides if len(rows) >= MIN_HELD_OUT]
    if len(parts) < 2 or not all(map(_is_learnable, parts)):
        return None
    n_neighbors = 0 if check is None else check.n_neighbors
    found: list[list[Errors]] = []
    for train, rows in zip(parts, sides[::-1], strict=True):
        metrics = learn(train)
        found.append([
            held_out_errors(data, train, rows, each, n_neighbors, seed)
            for each in (metrics[0], metrics[-1])
        ])  # fmt: skip
        start, learned = (
            Errors(*map(np.concatenate, zip(*each, strict=True)))
            for each in zip(*found, strict=True)
        )
        result = Verification.of([start, learned], "halves", needs_evidence=True)
        if result.n_kept and not is_worse(learned, start, 0.0):
            break
    return result


def _is_learnable(data: TrainingData) -> bool:
    """Return whether comparisons can be learned from the data."""
    if data.labels is None:
        return True
    try:
        check_labels(data.labels, data.weights)
    except ValueError:
        return False
    return True
