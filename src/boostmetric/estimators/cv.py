"""BoostMetricCV: settings, number of passes and end of each pass chosen on held-out points."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length

from boostmetric._validation import check_parameter, is_count
from boostmetric.data.labels import as_indicator, check_labels, single_labels
from boostmetric.engines import as_engine, single_blas_thread
from boostmetric.estimators.base import LearnedMetric
from boostmetric.estimators.boostmetric import BoostMetric
from boostmetric.estimators.callbacks import logger, show_log
from boostmetric.estimators.early_stopping import hold_out_points
from boostmetric.estimators.initial import choose_init, starting_transformation
from boostmetric.estimators.passes import one_pass
from boostmetric.estimators.settings import CHECKS, COUNT, SOLVER_PARAMETERS, Settings
from boostmetric.estimators.training_data import TrainingData
from boostmetric.evaluation.knn import knn_error
from boostmetric.metric import Metric
from boostmetric.problem import Comparisons
from boostmetric.solvers import Boosting, Status

_BASE: dict[str, Any] = {"regularizer": "trace", "max_iter": 300, "init": None, "n_neighbors": 3}
_HINGE: dict[str, Any] = {**_BASE, "loss": "squared_hinge", "alpha": 1e-4, "n_passes": 1}

RECIPE: tuple[dict[str, Any], ...] = (
    {**_HINGE, "n_neighbors": 10, "n_passes": 3},
    {**_HINGE, "n_passes": 3},
    {**_BASE, "loss": "logistic", "alpha": 1e-7, "n_passes": 3},
    {**_HINGE, "n_neighbors": (5, 10), "n_passes": 3, "init": "whiten"},
    {**_HINGE, "init": "lda"},
)
"""The default candidates of `BoostMetricCV`."""

CANDIDATE_PARAMETERS = (
    *SOLVER_PARAMETERS,
    *("init", "n_neighbors", "index", "n_passes", "engine", "n_jobs"),
)
"""Parameters of `BoostMetric` that a candidate may set; the others have no effect here."""

MAX_SPLITS = 10
"""Maximum number of splits by default."""

MAX_ERROR_RATIO = 1.3
"""A candidate whose error exceeds the lowest one by this factor gets no further pass."""

STANDARD_ERRORS = 1.5
"""Standard errors by which a learned metric must beat a starting transformation."""


class PassSummary(NamedTuple):
    """Number of iterations, number of directions, and how the pass ended."""

    n_iter: int
    n_directions: int
    status: Status


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate and its errors on the held-out points.

    Attributes
    ----------
    candidate : the parameters
    stops : the best number of directions of each pass that lowered the error
    error, start_error : share of held-out points that are misclassified with these numbers of
        directions, and with the starting transformation
    curves : for each pass, the error by number of directions
    base : transformation that was learned on the first split; None for the identity
    passes : the passes on the first split
    seconds : time of neighbor search and of boosting on the first split
    """

    candidate: Mapping[str, Any]
    stops: tuple[int, ...]
    error: float
    start_error: float
    curves: tuple[dict[int, float], ...]
    base: NDArray | None
    passes: tuple[PassSummary, ...]
    seconds: tuple[float, float]


class BoostMetricCV(LearnedMetric):
    """BoostMetric with settings, number of passes and end of each pass chosen on held-out points.

    Each candidate is fitted on a part of the points, and its nearest-neighbor error on the held-out
    points is evaluated during the fit. The candidate with the lowest error is then fitted on all
    points, with the numbers of directions for which that error was lowest. A starting
    transformation is kept unchanged if no metric beats it by 1.5 standard errors. One fit per
    candidate and split covers all numbers of iterations and passes, and candidates with the same
    neighbors share the neighbor search.

    Parameters
    ----------
    candidates : sequence of dict or None, default=None
        Parameters of `BoostMetric`: those of the optimization, `n_neighbors`, `index`, `init`,
        `engine`, `n_jobs`, and the upper limits `max_iter` and `n_passes`. None uses `RECIPE`,
        which requires no knowledge of the data.
    n_splits : int or None, default=None
        Number of random splits. None uses enough splits to classify 2,000 points, at most 10.
    validation_fraction : float, default=0.2
        Share of each class that a split holds out.
    n_neighbors : int, default=3
        Number of neighbors of the classifier that compares the candidates.
    n_jobs : int or None, default=None
        Number of threads, as in `BoostMetric`.
    random_state : int, RandomState or None, default=None
        Determines the points that are held out.
    verbose : int, default=0
        1 logs the held-out error of each candidate (logger "boostmetric").

    Attributes
    ----------
    best_params_ : dict
        Parameters of the chosen candidate.
    stops_ : tuple of int
        Number of directions in each of its passes; empty if its starting transformation is best.
    best_error_ : float
        Its error on the held-out points.
    trials_ : list of Trial
        Errors of all candidates.
    metric_ : Metric
        The metric over the features of X.
    components_ : array of shape (n_components, D)
        M = components_ᵀ·components_; rows by decreasing eigenvalue of M.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : array of shape (D,)
        Names of the features, if X has column names that are all strings.

    See Also
    --------
    BoostMetric : The estimator with fixed settings.

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
        X_val, y_val : arrays of shape (k, D) and (k,), held-out points that are not used for
            learning. If there are fewer than 2,000, splits of X hold out further points

        Returns
        -------
        self
        """
        # 1) parameters and data
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val must be passed together; one of them is None.")
        least, n_splits = 1 if X_val is None else 0, self.n_splits
        is_valid = n_splits is None or is_count(n_splits) or (n_splits == least == 0)
        check_parameter(
            "n_splits", n_splits, is_valid, f"None or an int in the range [{least}, inf)"
        )
        check_parameter("n_neighbors", self.n_neighbors, is_count(self.n_neighbors), COUNT)
        for name in ("validation_fraction", "verbose"):
            value, (accepts, expected) = getattr(self, name), CHECKS[name]
            check_parameter(name, value, accepts(value), expected)
        candidates = RECIPE if self.candidates is None else self.candidates
        settings = self._settings_of(candidates)
        X, y = self._validate(X, y, reset=True)
        check_labels(y)
        settings = [each.for_data(y) for each in settings]

        # 2) splits
        splits = []
        if X_val is not None:
            splits.append(Split(X, y, *self._validate(X_val, y_val, reset=False)))
        if n_splits is None:
            # Errors of 2,000 points are accurate enough to choose; small data need several splits.
            n_judged = sum(len(split.y_judged) for split in splits)
            size = max(1.0, self.validation_fraction * len(X))
            n_splits = max(least, min(MAX_SPLITS, math.ceil((2000 - n_judged) / size)))
        rng = check_random_state(self.random_state)
        for _ in range(n_splits):
            held_out = hold_out_points(y, None, self.validation_fraction, rng)
            rest = np.setdiff1d(np.arange(len(y)), held_out)
            splits.append(Split(X[rest], y[rest], X[held_out], y[held_out]))

        # 3) errors of the candidates
        if self.verbose:
            show_log()
        self.trials_: list[Trial] = []
        for candidate, of_candidate in zip(candidates, settings, strict=True):
            lowest = min((tried.error for tried in self.trials_), default=math.inf)
            trial = try_candidate(of_candidate, candidate, splits, self.n_neighbors, lowest)
            self.trials_.append(trial)
            if self.verbose:
                logger.info("%s: error %.4f, stops %s", dict(candidate), trial.error, trial.stops)
        position, is_learned = choose(self.trials_, sum(len(split.y_judged) for split in splits))
        best, chosen = self.trials_[position], settings[position]
        self.best_params_ = dict(best.candidate)
        self.stops_ = best.stops if is_learned else ()
        self.best_error_ = best.error if is_learned else best.start_error

        # 4) the chosen candidate on all points; with X_val, the first split has learned from them
        base = best.base
        if X_val is None or not is_learned:
            data = TrainingData(X, y)
            base = start_of(chosen, X, y)
            with as_engine(chosen.engine, chosen.n_jobs) as engine:
                for stop in self.stops_:
                    of_pass = replace(chosen, solver=replace(chosen.solver, max_iter=stop))
                    done = one_pass(data, base, of_pass, engine)
                    if not done.outcome.metric.n_directions:
                        break
                    base = done.metric.components
        metric = Metric.from_components(
            np.eye(X.shape[1], dtype=X.dtype) if base is None else base.astype(X.dtype)
        )
        facts = {
            "best_params": self.best_params_,
            "stops": self.stops_,
            "best_error": self.best_error_,
        }
        self.metric_ = self._with_origin(metric, X, facts)
        self.components_ = self.metric_.components
        return self

    def _settings_of(self, candidates: Sequence[Mapping[str, Any]]) -> list[Settings]:
        if len(candidates) == 0:
            raise ValueError("candidates is empty; pass at least one dict of parameters.")
        settings = []
        for candidate in candidates:
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

    def _validate(self, X: ArrayLike, y: ArrayLike | None, reset: bool) -> tuple[NDArray, NDArray]:
        points = self._validate_points(X, reset=reset)
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
        check_consistent_length(points, labels)
        return points, labels


@dataclass(eq=False)
class Split:
    """Points to learn from and to search neighbors among, and points to classify."""

    X: NDArray
    y: NDArray
    X_judged: NDArray
    y_judged: NDArray
    search_seconds: float = 0.0
    boosting_seconds: float = 0.0
    first_comparisons: dict[Any, Comparisons] = field(default_factory=dict)
    """Comparisons of first passes by init and numbers of neighbors, which candidates share."""

    def n_wrong(self, base: NDArray | None, n_neighbors: int) -> float:
        """Count the judged points that are misclassified in the image of `base`."""
        A, B = self.X, self.X_judged
        if base is not None:
            A, B = A @ base.T, B @ base.T
        return knn_error(A, self.y, B, self.y_judged, n_neighbors) * len(self.y_judged)


def start_of(settings: Settings, X: NDArray, y: NDArray) -> NDArray | None:
    """Compute the starting transformation in the dtype of X."""
    init = settings.init
    if isinstance(init, str) and init == "auto":
        init, _ = choose_init(X, y)
    base = starting_transformation(init, X, y)
    return None if base is None else base.astype(X.dtype)


def choose(trials: Sequence[Trial], n_judged: int) -> tuple[int, bool]:
    """Return the position of the best trial, and whether its metric is better than any start.

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
    first = splits[0]
    before = first.search_seconds, first.boosting_seconds
    total = sum(len(split.y_judged) for split in splits)
    bases = [start_of(settings, split.X, split.y) for split in splits]
    n_wrong = [split.n_wrong(base, n_neighbors) for split, base in zip(splits, bases, strict=True)]
    error = start_error = sum(n_wrong) / total
    stops: list[int] = []
    curves: list[dict[int, float]] = []
    passes: list[PassSummary] = []
    for number in range(settings.n_passes):
        if number and error > MAX_ERROR_RATIO * lowest:
            break
        # 1) the same pass on every split, evaluated at several numbers of directions
        tried = [
            try_pass(settings, split, base, number == 0, n_neighbors)
            for split, base in zip(splits, bases, strict=True)
        ]
        passes.append(tried[0][1])
        stages = [each for each, _ in tried]
        # 2) the error over all splits, by number of directions
        curve = dict.fromkeys(sorted(set().union(*stages)), 0.0)
        for reached, wrong in zip(stages, n_wrong, strict=True):
            for stop in curve:
                wrong = reached[stop][1] if stop in reached else wrong
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
    return Trial(
        candidate=candidate,
        stops=tuple(stops),
        error=error,
        start_error=start_error,
        curves=tuple(curves),
        base=bases[0],
        passes=tuple(passes),
        seconds=(first.search_seconds - before[0], first.boosting_seconds - before[1]),
    )


def try_pass(
    settings: Settings, split: Split, base: NDArray | None, is_first: bool, n_neighbors: int
) -> tuple[dict[int, tuple[NDArray, float]], PassSummary]:
    """Run one pass on a split, evaluated on the judged points at growing numbers of directions.

    Returns the transformation and the number of misclassified points by number of directions, and a
    summary of the pass.
    """
    # 1) comparisons, which a first pass shares with other candidates
    began = time.perf_counter()
    init, comparisons = settings.init, None
    key = init, settings.n_targets, settings.n_impostors
    is_shared = is_first and (init is None or isinstance(init, str)) and settings.index is None
    if is_shared:
        comparisons = split.first_comparisons.get(key)
    if comparisons is None:
        points = split.X if base is None else split.X @ base.T
        comparisons = TrainingData(split.X, split.y).compare(points, settings)
        split.search_seconds += time.perf_counter() - began
    if is_shared:
        split.first_comparisons[key] = comparisons

    # 2) boosting. The held-out error is evaluated whenever the number of directions has grown by
    # 40 %; three evaluations without a lower error end the pass, not counting the first 24
    # directions
    stages: dict[int, tuple[NDArray, float]] = {}
    judging_seconds = 0.0

    def evaluate(metric: Metric, n_directions: int) -> None:
        nonlocal judging_seconds
        began = time.perf_counter()
        components = (metric if base is None else metric.compose(base)).components
        stages[n_directions] = components, split.n_wrong(components, n_neighbors)
        judging_seconds += time.perf_counter() - began

    def callback(fit: Boosting) -> bool:
        if fit.n_tried >= 1.4 * max(stages, default=0):
            evaluate(fit.metric, fit.n_tried)
        best_at = min(stages, key=lambda number: stages[number][1])
        return sum(number > max(best_at, 24) for number in stages) >= 3

    began = time.perf_counter()
    data = TrainingData(split.X, comparisons=comparisons)
    with as_engine(settings.engine, settings.n_jobs) as engine:
        outcome = one_pass(data, base, settings, engine, callback=callback).outcome
    split.boosting_seconds += time.perf_counter() - began - judging_seconds
    if outcome.metric.n_directions and outcome.n_tried not in stages:
        evaluate(outcome.metric, outcome.n_tried)
    return stages, PassSummary(len(outcome.history), outcome.n_tried, outcome.status)
