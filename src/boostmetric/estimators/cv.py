"""BoostMetricCV: settings, number of passes and end of each pass chosen by held-out points."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length

from boostmetric._validation import check_parameter, is_count, is_real
from boostmetric.data.labels import as_indicator, check_labels, single_labels
from boostmetric.data.points import Points, deviations
from boostmetric.engines import as_engine, single_blas_thread
from boostmetric.estimators.base import LearnedMetric
from boostmetric.estimators.boostmetric import BoostMetric
from boostmetric.estimators.callbacks import logger, show_log
from boostmetric.estimators.early_stopping import hold_out_points
from boostmetric.estimators.initial import starting_transformation
from boostmetric.estimators.origin import with_origin
from boostmetric.estimators.passes import Compare, one_pass, run_passes
from boostmetric.estimators.settings import COUNT, FRACTION, SOLVER_PARAMETERS, Settings
from boostmetric.estimators.training_data import ShouldStop
from boostmetric.evaluation.knn import knn_error
from boostmetric.metric import Metric
from boostmetric.problem import Comparisons
from boostmetric.solvers import Boosting, Status

_HINGE = {"loss": "squared_hinge", "alpha": 1e-4, "max_iter": 300}

RECIPE: tuple[dict[str, Any], ...] = (
    {**_HINGE, "n_neighbors": 10, "n_passes": 3},
    {**_HINGE, "n_passes": 3},
    {"loss": "logistic", "max_iter": 300, "n_passes": 3},
    {**_HINGE, "n_neighbors": (5, 10), "n_passes": 3, "init": "whiten"},
    {**_HINGE, "init": "lda"},
)
"""The default candidates of `BoostMetricCV`."""

N_JUDGED = 2000
"""Held-out points to classify for a choice; small data need several splits for that."""

MAX_SPLITS = 10
"""Maximum number of splits by default."""

EVALUATION_GROWTH = 1.4
"""Ratio of the numbers of directions at two successive evaluations of the held-out error."""

PATIENCE, MIN_DIRECTIONS = 3, 24
"""Evaluations without a lower error that end a pass; those at fewer directions do not count."""

MAX_ERROR_RATIO = 1.3
"""A candidate whose error is larger than the lowest one by this factor gets no further pass."""

STANDARD_ERRORS = 1.5
"""Standard errors by which a learned metric must beat a starting transformation."""

CANDIDATE_PARAMETERS = (
    *SOLVER_PARAMETERS,
    "init",
    "n_neighbors",
    "index",
    "n_passes",
    "engine",
    "n_jobs",
)
"""Parameters of `BoostMetric` that a candidate may set; the others have no effect here."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate, and its errors on the held-out points.

    `stops` are the numbers of directions after which its passes are best ended, one per pass that
    lowered the error; `error` is the share of held-out points misclassified there, `start_error`
    that of the starting transformation, and `curves` has that share by number of directions, for
    every pass that was tried. Of the first split: `base` is the transformation learned, None for
    the identity, `passes` are those tried, and `seconds` those of neighbor search and of boosting.
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


class BoostMetricCV(LearnedMetric):
    """BoostMetric with settings, number of passes and end of each pass chosen by held-out points.

    Every candidate is fitted on the rest of the points, and its nearest-neighbor error on the
    held-out points is evaluated along the way. The candidate with the lowest error is fitted on all
    points, with the numbers of directions at which that error was lowest. A starting transformation
    that no metric beats by one and a half standard errors is kept unchanged. One fit serves all
    numbers of iterations and passes, and candidates with the same neighbors share them.

    Parameters
    ----------
    candidates : sequence of dict or None, default=None
        Parameters of `BoostMetric`: those of the optimization, `n_neighbors`, `index`, `init`,
        `engine`, `n_jobs`, and the upper limits `max_iter` and `n_passes`. None is `RECIPE`, which
        requires no knowledge of the data.
    n_splits : int or None, default=None
        Number of random splits. None is as many as it takes to classify 2,000 points, at most 10.
    validation_fraction : float, default=0.2
        The share of every class that a split holds out.
    n_neighbors : int, default=3
        Neighbors of the classifier whose error decides.
    n_jobs : int or None, default=None
        Number of threads, as in `BoostMetric`.
    random_state : int, RandomState or None, default=None
        Determines what is held out.
    verbose : int, default=0
        1 logs the held-out error of each candidate (logger "boostmetric").

    Attributes
    ----------
    best_params_ : dict
        The chosen candidate.
    stops_ : tuple of int
        Directions in each of its passes; empty if its starting transformation is best.
    best_error_ : float
        Its error on held-out points.
    trials_ : list of Trial
        The errors of every candidate.
    metric_, components_
        As of `BoostMetric`.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

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

    @single_blas_thread()
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Choose the settings, and learn the metric.

        Parameters
        ----------
        X : array of shape (n, D)
        y : array of shape (n,), labels of any type
        X_val, y_val : held-out points, in addition to those that splits of X hold out if there are
            fewer than 2,000. Nothing is learned from them

        Returns
        -------
        self
        """
        self._check_own(X_val, y_val)
        candidates = self._settings()
        X = self._validate_points(X, reset=True)
        y = self._check_labels(X, y)
        check_labels(y, None)
        splits = list(self._splits(X, y, X_val, y_val))
        if self.verbose:
            show_log()
        self.trials_: list[Trial] = []
        for settings, candidate in zip(candidates, self._candidates(), strict=True):
            lowest = min((tried.error for tried in self.trials_), default=math.inf)
            trial = try_candidate(settings, candidate, splits, self.n_neighbors, lowest)
            self.trials_.append(trial)
            if self.verbose:
                logger.info("%s: error %.4f, stops %s", dict(candidate), trial.error, trial.stops)
        position, is_learned = choose(self.trials_, sum(len(split.y_judged) for split in splits))
        best = self.trials_[position]
        self.best_params_ = dict(best.candidate)
        self.stops_ = best.stops if is_learned else ()
        self.best_error_ = best.error if is_learned else best.start_error
        base = best.base
        if X_val is None or not is_learned:  # with X_val the first split has learned from all of X
            everything, settings = Split(X, y, X[:0], y[:0]), candidates[position]
            base = everything.start(settings)
            with as_engine(settings.engine, settings.n_jobs) as engine:
                passes, failure = run_passes(
                    X,
                    base,
                    everything.comparer(settings),
                    [replace(settings.solver, max_iter=stop) for stop in self.stops_],
                    engine,
                )
            if failure is not None:
                raise failure
            for done in passes:
                if done.outcome.metric.n_directions:
                    base = done.metric.components
        metric = Metric.from_components(
            np.eye(X.shape[1], dtype=X.dtype) if base is None else base.astype(X.dtype)
        )
        facts = {
            "n_samples": X.shape[0],
            "deviations": deviations(X).tolist(),
            "best_params": self.best_params_,
            "stops": self.stops_,
            "best_error": self.best_error_,
        }
        self.metric_ = with_origin(metric, self, facts)
        self.components_ = self.metric_.components
        return self

    def _check_own(self, X_val: ArrayLike | None, y_val: ArrayLike | None) -> None:
        """Reject invalid parameters, and X_val without y_val or the reverse."""
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val must be passed together; one of them is None.")
        least = 1 if X_val is None else 0
        n_splits, fraction, verbose = self.n_splits, self.validation_fraction, self.verbose
        is_valid = n_splits is None or is_count(n_splits) or (n_splits == least == 0)
        check_parameter(
            "n_splits", n_splits, is_valid, f"None or an int in the range [{least}, inf)"
        )
        check_parameter("n_neighbors", self.n_neighbors, is_count(self.n_neighbors), COUNT)
        is_valid = is_real(fraction, 0, 1) and fraction > 0
        check_parameter("validation_fraction", fraction, is_valid, FRACTION)
        is_valid = isinstance(verbose, bool) or is_real(verbose)
        check_parameter("verbose", verbose, is_valid, "a bool or an int >= 0")

    def _candidates(self) -> Sequence[Mapping[str, Any]]:
        return RECIPE if self.candidates is None else self.candidates

    def _settings(self) -> list[Settings]:
        """The settings of each candidate, checked."""
        if len(self._candidates()) == 0:
            raise ValueError("candidates is empty; pass at least one dict of parameters.")
        settings = []
        for candidate in self._candidates():
            if not isinstance(candidate, Mapping):
                raise TypeError(
                    "candidates must be dicts of parameters of BoostMetric; got "
                    f"{type(candidate).__name__}."
                )
            for name in candidate:
                if name not in CANDIDATE_PARAMETERS:
                    raise ValueError(
                        f"A candidate sets {name!r}, which has no effect in {type(self).__name__}. "
                        f"Candidates may set {', '.join(CANDIDATE_PARAMETERS)}."
                    )
            learner = BoostMetric(**{"n_jobs": self.n_jobs, **candidate})
            settings.append(Settings.from_params(learner.get_params(deep=False)))
        return settings

    def _check_labels(self, X: NDArray, y: ArrayLike | None) -> NDArray:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        if as_indicator(y) is not None:
            raise ValueError(
                f"{type(self).__name__} requires one label per point, and y has several columns. "
                "Use BoostMetric, which supports multilabel targets."
            )
        labels = single_labels(y)
        check_consistent_length(X, labels)
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
            n_splits = min(MAX_SPLITS, max(0, math.ceil((N_JUDGED - n_judged) / size)))
            n_splits = max(n_splits, 1 if X_val is None else 0)
        for _ in range(n_splits):
            held_out = hold_out_points(y, np.ones(len(y)), self.validation_fraction, rng)
            rest = np.setdiff1d(np.arange(len(y)), held_out)
            yield Split(X[rest], y[rest], X[held_out], y[held_out])


@dataclass(eq=False)
class Split:
    """Points to learn from and to search neighbors among, and points to classify."""

    X: NDArray
    y: NDArray
    X_judged: NDArray
    y_judged: NDArray
    mining_seconds: float = 0.0
    boosting_seconds: float = 0.0
    judging_seconds: float = 0.0
    _mined: dict[tuple[str | None, int, int], Comparisons] = field(default_factory=dict)

    def start(self, settings: Settings) -> NDArray | None:
        """The starting transformation of a candidate."""
        base = starting_transformation(settings.init, self.X, self.y)
        return None if base is None else base.astype(self.X.dtype)

    def n_wrong(self, base: NDArray | None, n_neighbors: int) -> float:
        """The number of judged points that are misclassified in the image of `base`."""
        began = time.perf_counter()
        A, B = self.X, self.X_judged
        if base is not None:
            A, B = A @ base.T, B @ base.T
        error = knn_error(A, self.y, B, self.y_judged, n_neighbors)
        self.judging_seconds += time.perf_counter() - began
        return error * len(self.y_judged)

    def comparer(self, settings: Settings, is_first: bool = False) -> Compare:
        """Makes the comparisons of a pass; candidates share those of a first pass."""
        init = settings.init
        shared = is_first and (init is None or isinstance(init, str)) and settings.index is None
        counts = settings.n_targets, settings.n_impostors
        key = (init if isinstance(init, str) else None, *counts)

        def compare(points: Points, should_stop: ShouldStop) -> Comparisons:
            if shared and key in self._mined:
                return self._mined[key]
            began = time.perf_counter()
            mined = Comparisons.from_labels(
                points,
                self.y,
                *counts,
                index=settings.index,
                n_jobs=settings.n_jobs,
                should_stop=should_stop,
            )
            self.mining_seconds += time.perf_counter() - began
            if shared:
                self._mined[key] = mined
            return mined

        return compare


def choose(trials: Sequence[Trial], n_judged: int) -> tuple[int, bool]:
    """The position of the best trial, and whether what it learned is better than any start.

    The lowest error is the minimum of many, and therefore too low. The best starting transformation
    is kept unless it misclassifies more points than the best metric by `STANDARD_ERRORS` standard
    errors of a count.
    """
    lowest = int(np.argmin([trial.error for trial in trials]))
    n_wrong = trials[lowest].error * n_judged
    allowed = (n_wrong + STANDARD_ERRORS * math.sqrt(n_wrong + 1)) / n_judged
    start = int(np.argmin([trial.start_error for trial in trials]))
    if trials[start].start_error <= allowed:
        return start, False
    return lowest, True


def try_candidate(
    settings: Settings,
    candidate: Mapping[str, Any],
    splits: Sequence[Split],
    n_neighbors: int,
    lowest: float = math.inf,
) -> Trial:
    """Learn on every split, and find the numbers of directions with the lowest error.

    `lowest` is the error of the best candidate so far.
    """
    total = sum(len(split.y_judged) for split in splits)
    bases = [split.start(settings) for split in splits]
    n_wrong = [split.n_wrong(base, n_neighbors) for split, base in zip(splits, bases, strict=True)]
    error = start_error = sum(n_wrong) / total
    stops: list[int] = []
    curves: list[dict[int, float]] = []
    passes: list[PassSummary] = []
    before = splits[0].mining_seconds, splits[0].boosting_seconds
    for number in range(settings.n_passes):
        if number and error > MAX_ERROR_RATIO * lowest:
            break
        # 1) the same pass on every split, evaluated at several numbers of directions
        walks = [
            walk(settings, split, base, number == 0, n_neighbors)
            for split, base in zip(splits, bases, strict=True)
        ]
        passes.append(walks[0].summary)
        # 2) the error over all splits, by number of directions
        stages = [each.stages for each in walks]
        curve = dict.fromkeys(sorted(set().union(*stages)), 0.0)
        for reached, wrong in zip(stages, n_wrong, strict=True):
            for stop in curve:
                wrong = reached[stop].n_wrong if stop in reached else wrong
                curve[stop] += wrong / total
        curves.append(curve)
        # 3) the next pass starts from the best number of directions, if that is better than before
        stop = min(curve, key=curve.__getitem__, default=0)
        if not curve or curve[stop] >= error:
            break
        error = curve[stop]
        stops.append(stop)
        for position, reached in enumerate(stages):
            if earlier := [number for number in reached if number <= stop]:
                bases[position], n_wrong[position] = reached[max(earlier)]
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


class Stage(NamedTuple):
    """A transformation on the way, and the number of judged points that it misclassifies."""

    base: NDArray
    n_wrong: float


class Walk(NamedTuple):
    """A pass on one split: its stages by number of directions, and how it went."""

    stages: dict[int, Stage]
    summary: PassSummary


def walk(
    settings: Settings, split: Split, base: NDArray | None, is_first: bool, n_neighbors: int
) -> Walk:
    """One pass, evaluated on the judged points at growing numbers of directions."""
    stages: dict[int, Stage] = {}

    def evaluate(metric: Metric, n_directions: int) -> None:
        components = (metric if base is None else metric.compose(base)).components
        stages[n_directions] = Stage(components, split.n_wrong(components, n_neighbors))

    def observer(fit: Boosting) -> bool:
        if fit.n_tried >= EVALUATION_GROWTH * max(stages, default=0):
            evaluate(fit.metric, fit.n_tried)
        best_at = min(stages, key=lambda number: stages[number].n_wrong)
        return sum(number > max(best_at, MIN_DIRECTIONS) for number in stages) >= PATIENCE

    began, others = time.perf_counter(), split.mining_seconds + split.judging_seconds
    compare = split.comparer(settings, is_first)
    with as_engine(settings.engine, settings.n_jobs) as engine:
        outcome = one_pass(
            split.X,
            base,
            compare,
            settings.solver,
            engine,
            observe=lambda points, comparisons: [observer],
        ).outcome
    others = split.mining_seconds + split.judging_seconds - others
    split.boosting_seconds += time.perf_counter() - began - others
    n_tried = outcome.n_tried
    if outcome.metric.n_directions and n_tried not in stages:
        evaluate(outcome.metric, n_tried)
    return Walk(stages, PassSummary(len(outcome.history), n_tried, outcome.status))
