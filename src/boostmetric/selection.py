"""Settings chosen by data held out: which candidate, how many passes, and when to stop each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length

from boostmetric.estimators import BoostMetric
from boostmetric.holdout import hold_out_points
from boostmetric.labels import as_indicator, check_labels
from boostmetric.learned import LearnedMetric, single_labels
from boostmetric.metric import Metric
from boostmetric.monitor import be_heard, logger
from boostmetric.origin import with_origin
from boostmetric.parameters import COUNT, RULES, check_parameters
from boostmetric.points import deviations
from boostmetric.trials import PassSummary, Split, Trial, choose, learn, try_candidate

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

FIXED = (
    "early_stopping",
    "warm_start",
    "validation_fraction",
    "n_iter_no_change",
    "n_components",
    "checkpoint",
)
"""Parameters of `BoostMetric` that a candidate cannot set."""


class BoostMetricCV(LearnedMetric):
    """BoostMetric with settings, number of passes and end of each pass chosen by held-out points.

    Every candidate is learned from on the rest of the points, and its nearest-neighbour error on
    those held out is followed pass by pass. The candidate with the lowest error is learned from
    all points and left where that error was least; a starting transformation that nothing beats
    by one and a half standard errors is kept as it is. One fit serves all numbers of iterations
    and passes, and candidates with the same neighbours share them.

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

    _stored_as_plain = (*LearnedMetric._stored_as_plain, Trial, PassSummary)

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
        if self.verbose:
            be_heard()
        self.trials_: list[Trial] = []
        for learner, candidate in zip(learners, self._candidates(), strict=True):
            lowest = min((tried.error for tried in self.trials_), default=math.inf)
            trial = try_candidate(learner, candidate, splits, self.n_neighbors, lowest)
            self.trials_.append(trial)
            if self.verbose:
                logger.info("%s: error %.4f, stops %s", dict(candidate), trial.error, trial.stops)
        position, is_learned = choose(self.trials_, sum(len(split.y_judged) for split in splits))
        best = self.trials_[position]
        self.best_params_ = dict(best.candidate)
        self.stops_ = best.stops if is_learned else ()
        self.best_error_ = best.error if is_learned else best.start_error
        base = best.base
        if X_val is None or not is_learned:
            base = learn(learners[position], Split(X, y, X[:0], y[:0]), self.stops_)
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
        if as_indicator(y) is not None:
            raise ValueError(
                f"{type(self).__name__} needs one label for each point, and y has several columns. "
                "Use BoostMetric, which takes an indicator of labels."
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
