"""Settings chosen by data held out: which candidate, how many passes, and when to stop each."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from boostmetric.boosting import boost
from boostmetric.comparisons import Comparisons, check_labels
from boostmetric.estimators import BoostMetric
from boostmetric.evaluation import knn_error
from boostmetric.holdout import hold_out_points
from boostmetric.initial import starting_transformation
from boostmetric.learned import LearnedMetric
from boostmetric.metric import Metric
from boostmetric.parameters import COUNT, RULES, check_parameters, options_of
from boostmetric.state import Boosting, Status

_HINGE = {"loss": "squared_hinge", "alpha": 1e-4, "max_iter": 300}

RECIPE: tuple[dict[str, Any], ...] = (
    {**_HINGE, "n_neighbors": 10, "n_passes": 3},
    {**_HINGE, "n_passes": 3},
    {"loss": "logistic", "max_iter": 300, "n_passes": 3},
    {**_HINGE, "n_neighbors": (5, 10), "n_passes": 3, "init": "whiten"},
    {**_HINGE, "init": "lda"},
)
"""The candidates that `BoostMetricCV` chooses from unless told otherwise."""

JUDGED = 2000
"""Points that are to be classified for a choice, by several splits of small data."""

MAX_SPLITS = 10
"""Splits, at most."""

GROWTH = 1.4
"""Directions from one look at the held-out points to the next grow by this factor."""

PATIENCE, EARLY = 3, 24
"""Looks without a lower error after which a pass ends; those at fewer directions do not count."""

BEHIND = 1.3
"""A candidate with so many times the lowest error after a pass is given no further one."""

FIXED = ("early_stopping", "warm_start", "validation_fraction", "n_iter_no_change", "n_components")
"""Parameters of `BoostMetric` that a candidate cannot set."""

logger = logging.getLogger("boostmetric")


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
    that helped; `error` is the share of judged points mistaken there, and `curves` has that share
    by number of directions, for every pass that was tried. Of the first split: `base` is the
    transformation learned, None for the identity, `passes` are those tried, and `seconds` those of
    mining and of boosting in them.
    """

    candidate: Mapping[str, Any]
    stops: tuple[int, ...]
    error: float
    curves: tuple[dict[int, float], ...]
    base: NDArray | None
    passes: tuple[PassSummary, ...]
    seconds: tuple[float, float]


class PassSummary(NamedTuple):
    """How a pass went: iterations, directions, and how it ended."""

    n_iter: int
    n_directions: int
    status: Status


class BoostMetricCV(LearnedMetric):
    """BoostMetric with settings, number of passes and end of each pass chosen by held-out points.

    Every candidate is learned from on the rest of the points, and its nearest-neighbour error on
    those held out is followed pass by pass. The candidate with the lowest error is learned from
    all points and left where that error was least; a starting transformation that no direction
    improves is kept as it is. One fit serves all numbers of iterations and passes, and candidates
    with the same neighbours share them.

    Parameters
    ----------
    candidates : sequence of dict or None, default=None
        Parameters of `BoostMetric`, whose `max_iter` and `n_passes` are upper limits here. None is
        `RECIPE`, which needs no knowledge of the data.
    n_splits : int or None, default=None
        Number of random splits. None is as many as it takes to classify 2,000 points, 10 at most.
    validation_fraction : float, default=0.2
        The share of every class that a split holds out.
    n_neighbors : int, default=3
        Of the classifier whose error decides.
    n_jobs : int or None, default=None
        Number of threads that look for neighbours.
    random_state : int, RandomState or None, default=None
        Chooses what is held out.
    verbose : int, default=0
        1 logs what held-out points say of each candidate (logger "boostmetric").

    Attributes
    ----------
    best_params_ : dict
        The candidate that was chosen.
    stops_ : tuple of int
        Directions in each of its passes; empty where its starting transformation is best.
    best_error_ : float
        Its error on held-out points.
    trials_ : list of Trial
        What was found of every candidate.
    metric_, components_
        As of `BoostMetric`.
    n_features_in_, feature_names_in_
        As in every scikit-learn estimator.

    Examples
    --------
    >>> from boostmetric import BoostMetricCV, knn_error
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = BoostMetricCV(n_splits=3, random_state=0).fit(X[::2], y[::2])
    >>> Z = learner.transform(X)
    >>> knn_error(Z[::2], y[::2], Z[1::2], y[1::2]) < 0.05
    True
    >>> learner.best_params_["init"]
    'lda'
    """

    def __init__(
        self,
        candidates: Sequence[Mapping[str, Any]] | None = None,
        *,
        n_splits: int | None = None,
        validation_fraction: float = 0.2,
        n_neighbors: int = 3,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.candidates = candidates
        self.n_splits = n_splits
        self.validation_fraction = validation_fraction
        self.n_neighbors = n_neighbors
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Choose and learn.

        Parameters
        ----------
        X : array of shape (n, D)
        y : array of shape (n,), labels of any type
        X_val, y_val : points to judge by, beside those that splits of X hold out where they are
            fewer than 2,000. Nothing is learned from them

        Returns
        -------
        self
        """
        self._check_own(X_val, y_val)
        learners = self._learners()
        X = self._validate_points(X, reset=True)
        y = self._check_labels(X, y)
        check_labels(y, None)
        splits = list(self._splits(X, y, X_val, y_val))
        self.trials_: list[Trial] = []
        for learner, candidate in zip(learners, self._candidates(), strict=True):
            lowest = min((tried.error for tried in self.trials_), default=math.inf)
            trial = _try(learner, candidate, splits, self.n_neighbors, lowest)
            self.trials_.append(trial)
            if self.verbose:
                logger.info("%s: error %.4f, stops %s", dict(candidate), trial.error, trial.stops)
        position = int(np.argmin([trial.error for trial in self.trials_]))
        best = self.trials_[position]
        base = best.base
        if X_val is None:
            base = _learn(learners[position], Split(X, y, X[:0], y[:0]), best.stops)
        self.metric_ = Metric.from_components(
            np.eye(X.shape[1], dtype=X.dtype) if base is None else base.astype(X.dtype)
        )
        self.components_ = self.metric_.components
        self.best_params_, self.stops_ = dict(best.candidate), best.stops
        self.best_error_ = best.error
        return self

    def _check_own(self, X_val: ArrayLike | None, y_val: ArrayLike | None) -> None:
        """Refuse parameters that are out of range, and half of the validation points."""
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val are needed together: one of them is None.")
        least = 1 if X_val is None else 0
        for name, will_do, needed in (
            (
                "n_splits",
                self.n_splits is None or is_count(self.n_splits, least),
                f"None or an integer of at least {least}",
            ),
            ("n_neighbors", is_count(self.n_neighbors), COUNT),
            ("validation_fraction", *rule("validation_fraction", self.validation_fraction)),
            ("verbose", *rule("verbose", self.verbose)),
        ):
            if not will_do:
                raise ValueError(f"{name}={getattr(self, name)!r} will not do: {needed} is needed.")

    def _candidates(self) -> Sequence[Mapping[str, Any]]:
        return RECIPE if self.candidates is None else self.candidates

    def _learners(self) -> list[BoostMetric]:
        """A learner for each candidate, its parameters checked."""
        if len(self._candidates()) == 0:
            raise ValueError("candidates is empty: at least one dict of parameters is needed.")
        learners = []
        for candidate in self._candidates():
            for name in FIXED:
                if name in candidate:
                    raise ValueError(
                        f"a candidate sets {name}, which is not for {type(self).__name__}: leave "
                        "it out."
                    )
            learner = BoostMetric(**{"n_jobs": self.n_jobs, **candidate})
            check_parameters(learner.get_params(deep=False))
            learners.append(learner)
        return learners

    def _check_labels(self, X: NDArray, y: ArrayLike | None) -> NDArray:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        labels: NDArray = column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        check_classification_targets(labels)
        return labels

    def _splits(
        self, X: NDArray, y: NDArray, X_val: ArrayLike | None, y_val: ArrayLike | None
    ) -> Iterator[Split]:
        n_judged = 0
        if X_val is not None:
            judged = self._validate_points(X_val, reset=False)
            yield Split(X, y, judged, self._check_labels(judged, y_val))
            n_judged = len(judged)
        rng = check_random_state(self.random_state)
        size = max(1.0, self.validation_fraction * len(X))
        n_splits = self.n_splits
        if n_splits is None:
            n_splits = min(MAX_SPLITS, max(0, math.ceil((JUDGED - n_judged) / size)))
            n_splits = max(n_splits, 1 if X_val is None else 0)
        for _ in range(n_splits):
            held_out = hold_out_points(y, np.ones(len(y)), self.validation_fraction, rng)
            rest = np.setdiff1d(np.arange(len(y)), held_out)
            yield Split(X[rest], y[rest], X[held_out], y[held_out])


def is_count(value: Any, least: int = 1) -> bool:
    """Whether this is an integer of at least so much."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def rule(name: str, value: Any) -> tuple[bool, str]:
    """Whether a value will do, and what is needed."""
    will_do, needed = RULES[name]
    return will_do(value), needed


def _try(
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
    error = sum(n_wrong) / total
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
    return Trial(candidate, tuple(stops), error, tuple(curves), bases[0], tuple(passes), seconds)


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


def _learn(learner: BoostMetric, split: Split, stops: Sequence[int]) -> NDArray | None:
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
