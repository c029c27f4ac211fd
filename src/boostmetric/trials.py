"""Candidates tried on held-out points: where their passes are best left, and which to go by."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from boostmetric.boosting import boost
from boostmetric.comparisons import Comparisons
from boostmetric.estimators import BoostMetric
from boostmetric.evaluation import knn_error
from boostmetric.initial import starting_transformation
from boostmetric.parameters import options_of
from boostmetric.state import Boosting, Status

GROWTH = 1.4
"""Directions from one look at the held-out points to the next grow by this factor."""

PATIENCE, EARLY = 3, 24
"""Looks without a lower error after which a pass ends; those at fewer directions do not count."""

BEHIND = 1.3
"""A candidate with so many times the lowest error after a pass is given no further one."""

DOUBT = 1.5
"""Standard errors by which a learned metric must beat a starting transformation."""


@dataclass(eq=False)
class Split:
    """Points to learn from and to find neighbours among, and points to classify."""

    X: NDArray
    y: NDArray
    X_judged: NDArray
    y_judged: NDArray
    mining_seconds: float = 0.0
    boosting_seconds: float = 0.0
    judging_seconds: float = 0.0
    _mined: dict[tuple[str | None, int, int], Comparisons] = field(default_factory=dict)

    def n_wrong(self, base: NDArray | None, n_neighbors: int) -> float:
        """The number of judged points that their neighbours in the image of `base` mistake."""
        began = time.perf_counter()
        A, B = self.X, self.X_judged
        if base is not None:
            A, B = A @ base.T, B @ base.T
        error = knn_error(A, self.y, B, self.y_judged, n_neighbors)
        self.judging_seconds += time.perf_counter() - began
        return error * len(self.y_judged)

    def compare(self, learner: BoostMetric, base: NDArray | None, first: bool) -> Comparisons:
        """Neighbours in the image of `base`; those of a first pass are shared by candidates."""
        n_targets, n_impostors = learner._neighbors()
        named = learner.init is None or isinstance(learner.init, str)
        named = named and learner.neighbors == "exact"
        key = (learner.init if isinstance(learner.init, str) else None, n_targets, n_impostors)
        if first and named and key in self._mined:
            return self._mined[key]
        began = time.perf_counter()
        points = self.X if base is None else self.X @ base.T
        mined = Comparisons.from_labels(
            points,
            self.y,
            n_targets,
            n_impostors,
            neighbors=learner.neighbors,
            n_jobs=learner.n_jobs,
        )
        self.mining_seconds += time.perf_counter() - began
        if first and named:
            self._mined[key] = mined
        return mined


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate, and what the held-out points said of it.

    `stops` are the numbers of directions after which its passes are best left, one for each pass
    that helped; `error` is the share of judged points mistaken there, `start_error` that of the
    starting transformation, and `curves` has that share by number of directions, for every pass
    that was tried. Of the first split: `base` is the
    transformation learned, None for the identity, `passes` are those tried, and `seconds` those of
    mining and of boosting in them.
    """

    candidate: Mapping[str, Any]
    stops: tuple[int, ...]
    error: float
    start_error: float
    curves: tuple[dict[int, float], ...]
    base: NDArray | None
    passes: tuple[PassSummary, ...]
    seconds: tuple[float, float]


class PassSummary(NamedTuple):
    """How a pass went: iterations, directions, and how it ended."""

    n_iter: int
    n_directions: int
    status: Status


def choose(trials: Sequence[Trial], n_judged: int) -> tuple[int, bool]:
    """The position of the trial to go by, and whether by what it learned or by how it started.

    The lowest error is the lowest of many, and so too low. The best starting transformation is
    kept unless it mistakes more points than the best of all by `DOUBT` standard errors of a count.
    """
    lowest = int(np.argmin([trial.error for trial in trials]))
    n_wrong = trials[lowest].error * n_judged
    allowed = (n_wrong + DOUBT * math.sqrt(n_wrong + 1)) / n_judged
    start = int(np.argmin([trial.start_error for trial in trials]))
    if trials[start].start_error <= allowed:
        return start, False
    return lowest, True


def try_candidate(
    learner: BoostMetric,
    candidate: Mapping[str, Any],
    splits: Sequence[Split],
    n_neighbors: int,
    lowest: float = math.inf,
) -> Trial:
    """Learn on every split, and find where the passes are best left.

    `lowest` is the error of the best candidate so far.
    """
    total = sum(len(split.y_judged) for split in splits)
    bases = [starting_transformation(learner.init, split.X, split.y) for split in splits]
    n_wrong = [split.n_wrong(base, n_neighbors) for split, base in zip(splits, bases, strict=True)]
    error = start_error = sum(n_wrong) / total
    stops: list[int] = []
    curves: list[dict[int, float]] = []
    passes: list[PassSummary] = []
    before = splits[0].mining_seconds, splits[0].boosting_seconds
    for number in range(learner.n_passes):
        if number and error > BEHIND * lowest:
            break
        walks = [
            _walk(learner, split, base, number == 0, n_neighbors)
            for split, base in zip(splits, bases, strict=True)
        ]
        passes.append(walks[0].summary)
        curve = dict.fromkeys(sorted(set().union(*(walk.looks for walk in walks))), 0.0)
        for walk, wrong in zip(walks, n_wrong, strict=True):
            for stop in curve:
                wrong = walk.looks[stop].n_wrong if stop in walk.looks else wrong
                curve[stop] += wrong / total
        curves.append(curve)
        stop = min(curve, key=curve.__getitem__, default=0)
        if not curve or curve[stop] >= error:
            break
        error = curve[stop]
        stops.append(stop)
        for position, walk in enumerate(walks):
            reached = [number for number in walk.looks if number <= stop]
            if reached:
                bases[position], n_wrong[position] = walk.looks[max(reached)]
    seconds = splits[0].mining_seconds - before[0], splits[0].boosting_seconds - before[1]
    return Trial(
        candidate,
        tuple(stops),
        error,
        start_error,
        tuple(curves),
        bases[0],
        tuple(passes),
        seconds,
    )


class _Look(NamedTuple):
    """A transformation on the way, and the number of judged points it mistakes."""

    base: NDArray
    n_wrong: float


class _Walk(NamedTuple):
    """A pass on one split: what it looked like by number of directions, and how it went."""

    looks: dict[int, _Look]
    summary: PassSummary


def _walk(
    learner: BoostMetric, split: Split, base: NDArray | None, first: bool, n_neighbors: int
) -> _Walk:
    looks: dict[int, _Look] = {}

    def look(fit: Boosting) -> None:
        transformation = _composed(fit, base)
        looks[fit.n_tried] = _Look(transformation, split.n_wrong(transformation, n_neighbors))

    def callback(fit: Boosting) -> bool:
        if fit.n_tried >= GROWTH * max(looks, default=0):
            look(fit)
        best_at = min(looks, key=lambda number: looks[number].n_wrong)
        return sum(number > max(best_at, EARLY) for number in looks) >= PATIENCE

    fit = _boost(learner, split, base, first, callback=callback)
    if fit.directions and fit.n_tried not in looks:
        look(fit)
    return _Walk(looks, PassSummary(len(fit.history), fit.n_tried, fit.status))


def learn(learner: BoostMetric, split: Split, stops: Sequence[int]) -> NDArray | None:
    """The transformation after passes of so many directions."""
    base = starting_transformation(learner.init, split.X, split.y)
    for number, stop in enumerate(stops):
        fit = _boost(learner, split, base, number == 0, max_iter=stop)
        if not fit.directions:
            break
        base = _composed(fit, base)
    return base


def _boost(
    learner: BoostMetric, split: Split, base: NDArray | None, first: bool, **options: Any
) -> Boosting:
    points = split.X if base is None else split.X @ base.T.astype(split.X.dtype)
    parameters = options_of(learner.get_params(deep=False))
    comparisons = split.compare(learner, base, first)
    began, judging = time.perf_counter(), split.judging_seconds
    fit = boost(points, comparisons, **{**parameters, **options})
    split.boosting_seconds += time.perf_counter() - began - (split.judging_seconds - judging)
    return fit


def _composed(fit: Boosting, base: NDArray | None) -> NDArray:
    return (fit.metric if base is None else fit.metric.compose(base)).components
