"""BoostMetricCV: starting transformations compared by cross-validation, and averaged metrics."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.model_selection import check_cv
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from boostmetric._validation import check_parameter, is_count, is_real, warn
from boostmetric._version import __version__
from boostmetric.data.points import Points, transform_points
from boostmetric.engines import single_blas_thread
from boostmetric.estimators.base import LearnedMetric
from boostmetric.estimators.boostmetric import BoostMetric, score_on
from boostmetric.estimators.callbacks import is_interrupted, listening, logger, show_log
from boostmetric.estimators.checkpoint import digest, settings_of
from boostmetric.estimators.cv_search import (
    Search,
    average,
)
from boostmetric.estimators.initial import (
    CENTERING,
    as_components,
    choose_init,
    starting_transformation,
)
from boostmetric.estimators.settings import COUNT, SOLVER_PARAMETERS, Settings, is_auto
from boostmetric.estimators.splits import (
    check_splits,
    draw_splits,
    held_out_errors,
    seed_of,
    subset,
)
from boostmetric.estimators.training_data import TrainingData
from boostmetric.estimators.verify import PREFER_SIMPLER, LeaveOneOut, Verification, is_worse
from boostmetric.metric import Metric
from boostmetric.problem import Comparisons

CANDIDATES: tuple[dict[str, Any], ...] = (
    *({"init": init} for init in (None, "scale", "whiten")),
    *({"init": init, "shrinkage": 1.0} for init in (None, "scale", "whiten", "lda")),
)
"""The default candidates: what is learned from each start, and the starts themselves. What
`BoostMetric` learns after LDA is hardly better than LDA."""

COMPARISON_CANDIDATES: tuple[dict[str, Any], ...] = (
    *({"alpha": alpha} for alpha in (1e-1, 1e-3)),
    *({"init": init, "shrinkage": 1.0} for init in (None, "scale")),
)
"""The default candidates without labels. Then the best strength depends on the data, and the start,
if all features are similar, does not matter. With 400 triplets, 11.0 % of new ones are violated
with alpha 1e-1 and 7.9 % with 1e-3 on segment, and 21.5 and 26.9 % on waveform21. Four alphas
instead of two lower the mean over six datasets by 1 %, in twice the time."""

VARIANT: dict[str, Any] = {"loss": "smoothed_hinge"}
"""Changes for a second fit of a default candidate that no other one equals. Both losses are equally
good, and the mean of the two metrics has the same error as that of three numbers of neighbors
(ratio 0.99 ± 0.01 on 13 datasets) in less time."""

CANDIDATE_PARAMETERS = (
    *SOLVER_PARAMETERS,
    *("init", "n_neighbors", "index", "n_passes", "engine", "n_jobs"),
)
"""Parameters of `BoostMetric` that a candidate may set; the others have no effect here."""

MAX_FEATURES = 2_000
"""Above this number of features, the starts are no default candidates: a metric of full rank would
have more entries than most X."""


class BoostMetricCV(LearnedMetric):
    """BoostMetric with the starting transformation chosen by cross-validation.

    Each candidate is a setting of `BoostMetric`; by default there is one for each of the starting
    transformations None, "scale" and "whiten" (without labels, for each of two strengths), and one
    for these transformations and LDA without learning. Candidates are fitted once per fold. Those
    that are at most one standard error worse than the best one on held-out data are fitted to all
    data, and the result is the average of their metrics, each divided by its mean squared distance.
    By default this takes about six times as long as `BoostMetric().fit`.

    Parameters
    ----------
    candidates : sequence of dict or None, default=None
        Parameters of `BoostMetric`: those of the optimization, `init`, `n_neighbors`, `index`,
        `n_passes`, `engine` and `n_jobs`; and "shrinkage", a number s in [0, 1]. It replaces the
        learned metric M by (1 − s)·M + s·(Tr M/d)·I in the d-dimensional space of the starting
        transformation; with 1, nothing is learned, and the metric is I. None compares
        ``{"init": init}`` and ``{"init": init, "shrinkage": 1.0}`` for each of None, "scale" and
        "whiten", and ``{"init": "lda", "shrinkage": 1.0}``. "whiten" and "lda" are not compared for
        sparse X and for multilabel targets. Without labels, None compares ``{"alpha": 1e-1}``,
        ``{"alpha": 1e-3}``, and the starts None and "scale" with shrinkage 1. Nothing is compared
        with shrinkage 1, except for LDA, if there are more than 2,000 features. If only one of the
        candidates that learn is good enough, it is fitted with two losses, and their average counts
        as its metric.
    cv : int, splitter or iterable, default=3
        Number of folds, or splits as in scikit-learn. With labels, each of the folds contains the
        same share of every class, and equal points of a class are in the same fold; classes of
        which a fold would leave fewer than two points are never held out. If most points are of
        such classes, folds consist of whole classes. Without labels, folds
        consist of comparisons, not of points: the score estimates how well the metric predicts
        other comparisons of the same points. If nothing can be held out, the first candidate is
        used, with a warning.
    n_neighbors : int or "auto", default="auto"
        Number of neighbors of the classifier that scores candidates. "auto" is 3, or 1 if classes
        have fewer than four points on average.
    n_components : int, float or None, default=None
        Maximum number of leading eigenvectors of M to keep, as in `BoostMetric`.
    checkpoint : path-like or None, default=None
        File that is written after every fit of a fold. If a search is killed, calling `fit` again
        with the same data and parameters continues from the file, with the same result.
    n_jobs : int or None, default=None
        Number of threads, as in `BoostMetric`.
    random_state : int, RandomState or None, default=None
        Determines the folds, by hashes of the contents of points; None is 0.
    verbose : bool or int, default=0
        True or 1 logs each fit with its score and the remaining time (logger "boostmetric").

    Attributes
    ----------
    cv_results_ : dict of arrays with one entry per candidate
        As in `GridSearchCV`: "params", "param_…", "split0_test_score", …, "mean_test_score",
        "std_test_score", "rank_test_score", "mean_fit_time" and "std_fit_time". A score is the
        accuracy of the nearest-neighbor classifier on the held-out points; for multilabel targets,
        the share of nearest neighbors with a common label; without labels, the share of held-out
        comparisons that are satisfied. Scores count by `sample_weight`, or by the weights of
        comparisons. They are NaN for folds that an interrupted search did not reach, and for all
        but the first fold if a candidate is more than two standard errors worse than the best
        one there.
    errors_ : dict
        As in `BoostMetric`, with "measure" equal to "cross-validation": errors of the best starting
        and the best learned candidate on held-out data. If the metric learned from all data is
        worse on the training points than the best start, the start is kept, with a warning. Absent
        unless both kinds of candidates were compared.
    best_index_ : int
        Position of the best candidate; the first one if several have the best score.
    best_params_ : dict
        Its parameters.
    best_score_ : float
        Its mean score.
    averaged_params_ : list of dict
        Parameters of all metrics in the average; two losses are two entries.
    components_ : array of shape (n_components, D)
        M = components_ᵀ·components_; rows by decreasing eigenvalue of M.
    metric_ : Metric
        The metric over the features of X.
    n_features_in_, feature_names_in_ : as in `BoostMetric`

    Notes
    -----
    Ctrl-C ends the search: the best candidate so far is fitted on all data, with a warning. A
    second Ctrl-C, or one before the first score is known, raises the KeyboardInterrupt.

    Examples
    --------
    >>> from boostmetric import BoostMetricCV, knn_error
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> search = BoostMetricCV(random_state=0).fit(X[::2], y[::2])
    >>> search.best_params_
    {'init': 'whiten', 'shrinkage': 1.0}
    >>> search.averaged_params_[-1]
    {'init': 'lda', 'shrinkage': 1.0}
    >>> Z = search.transform(X)
    >>> knn_error(Z[::2], y[::2], Z[1::2], y[1::2]) < 0.05
    True
    """

    def __init__(
        self,
        candidates: Sequence[Mapping[str, Any]] | None = None,
        *,
        cv: Any = 3,
        n_neighbors: int | str = "auto",
        n_components: int | float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = 0,
    ) -> None:
        self.candidates = candidates
        self.cv = cv
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @single_blas_thread()
    def fit(
        self,
        X: ArrayLike | Points,
        y: ArrayLike | csr_array | None = None,
        *,
        comparisons: Comparisons | ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Compare the candidates, and learn the metric from all data.

        Parameters
        ----------
        X : array of shape (n, D), dense or sparse
        y : array of shape (n,), labels of any type, or an indicator matrix of shape (n, L)
        comparisons : Comparisons of the rows of X, or an integer array of triplets of shape (m, 3).
            With labels, points are held out, and comparisons that name them are not used
        sample_weight : array of shape (n,), as in `BoostMetric`

        Returns
        -------
        self
        """
        # 1) parameters and data
        settings = self._check_parameters()
        points = self._validate_points(X, reset=True)
        data = TrainingData.validate(points, y, comparisons, sample_weight)
        candidates: Sequence[Mapping[str, Any]] = self._default_candidates(data)
        if self.candidates is not None:
            candidates = self.candidates
        for each in (settings, *map(self._settings_of, candidates)):
            data.check_settings(data.resolve(each))

        seed, n_neighbors = seed_of(self.random_state), self.n_neighbors
        check = None if data.labels is None else LeaveOneOut(data, seed)
        if is_auto(n_neighbors):
            n_neighbors = 3 if check is None else check.n_neighbors

        # 2) folds; if an interrupted search continues, those of the file, and their scores
        if isinstance(self.cv, Integral):
            splits = draw_splits(data, int(self.cv), seed)
        else:
            units: Any = (
                points if data.labels is not None else np.empty(len(data.comparisons or ()))
            )
            given = check_cv(self.cv).split(units, data.labels)
            splits = check_splits(given, len(units) if data.labels is None else points.shape[0])
        search = Search(splits, len(candidates))
        identity: tuple[dict[str, str], str] = {}, ""
        if settings.checkpoint is not None:
            without_effect = ("checkpoint", "n_jobs", "verbose")
            params = {**self.get_params(deep=False), "boostmetric": __version__}
            relevant = {name: params[name] for name in params if name not in without_effect}
            contents = points, data.labels, data.weights, data.comparisons
            identity = settings_of(relevant), digest(*contents)
            search.restore(settings.checkpoint, *identity)

        if not splits:
            warn(
                f"cv={self.cv} holds out nothing: no class has three distinct points, or there is "
                "only one comparison. The first candidate is used."
            )

        # 3) scores
        if self.verbose:
            show_log()

        def save(finished: bool = False) -> None:
            if settings.checkpoint is not None:
                search.save(settings.checkpoint, *identity, finished)

        is_over = self._evaluate(search, candidates, data, save, int(n_neighbors), seed)

        # 4) the best candidates, fitted to all data, and their average
        self.cv_results_ = search.results(candidates)
        self.best_index_ = int(np.argmin(self.cv_results_["rank_test_score"]))
        self.best_params_ = self.cv_results_["params"][self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        chosen = [self.best_index_]
        if splits and not is_over:
            ranks = self.cv_results_["rank_test_score"]
            chosen = sorted(search.as_good_as(self.best_index_), key=ranks.__getitem__)
        groups = [[dict(candidates[number])] for number in chosen]
        learning = [group for group in groups if group[0].get("shrinkage", 0) < 1]
        if self.candidates is None and len(learning) == 1 and not is_over:
            learning[0].append({**learning[0][0], **VARIANT})
        # The listener that has interrupted the search would also end this fit.
        with listening(lambda progress: False) if is_over else nullcontext():
            rows = self._learn_average(groups, data)
        rows = self._verify(rows, search, data, check, int(n_neighbors))
        facts = {
            "best_params": self.best_params_,
            "best_score": self.best_score_,
            "averaged_params": self.averaged_params_,
        }
        metric = Metric.from_components(rows.astype(points.dtype))
        metric = self._with_origin(metric, points, facts)
        if settings.n_components is not None:
            metric = metric.truncate(settings.n_components)
        self.metric_, self.components_ = metric, metric.components
        if not is_over:
            save(finished=True)
        return self

    def score(
        self,
        X: ArrayLike | Points,
        y: ArrayLike | csr_array | None = None,
        *,
        comparisons: Comparisons | ArrayLike | None = None,
    ) -> float:
        """Return the share of comparisons that the learned metric satisfies.

        Parameters
        ----------
        X : array of shape (n, D)
        y : array of shape (n,) or (n, L), labels that define comparisons as in `BoostMetric.score`,
            with the numbers of neighbors of the chosen candidate
        comparisons : Comparisons of the rows of X, instead of or in addition to labels
        """
        check_is_fitted(self, "components_")
        return score_on(self, self._settings_of(self.best_params_), X, y, comparisons)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inits = [each.get("init") for each in self.candidates or () if isinstance(each, Mapping)]
        tags.input_tags.sparse = not any(isinstance(i, str) and i in CENTERING for i in inits)
        return tags

    def _check_parameters(self) -> Settings:
        """Check all parameters, and return those that `BoostMetric` has as well."""
        if isinstance(self.cv, Integral):
            is_valid = is_count(self.cv) and int(self.cv) >= 2
            check_parameter("cv", self.cv, is_valid, "an int in the range [2, inf)")
        k = self.n_neighbors
        check_parameter("n_neighbors", k, is_auto(k) or is_count(k), f"'auto' or {COUNT}")
        if self.candidates is not None and len(self.candidates) == 0:
            raise ValueError("candidates is empty; pass at least one dict of parameters.")
        for candidate in self.candidates or ():
            self._settings_of(candidate)
        common = ("n_components", "checkpoint", "n_jobs", "random_state", "verbose")
        learner = BoostMetric(**{name: getattr(self, name) for name in common})
        return Settings.from_params(learner.get_params(deep=False))

    def _settings_of(self, candidate: Mapping[str, Any]) -> Settings:
        if not isinstance(candidate, Mapping):
            raise TypeError(
                "candidates must be dicts of parameters of BoostMetric; got "
                f"{type(candidate).__name__}."
            )
        params = dict(candidate)
        if "shrinkage" in params:
            value = params.pop("shrinkage")
            is_valid = is_real(value) and value <= 1
            check_parameter("shrinkage", value, is_valid, "a float in the range [0.0, 1.0]")
        for name in params:
            if name not in CANDIDATE_PARAMETERS:
                raise ValueError(
                    f"A candidate sets {name!r}, which has no effect in {type(self).__name__}. "
                    f"Candidates may set {', '.join(CANDIDATE_PARAMETERS)}, shrinkage."
                )
        learner = BoostMetric(**{"n_jobs": self.n_jobs, **params})
        return Settings.from_params(learner.get_params(deep=False))

    def _default_candidates(self, data: TrainingData) -> list[dict[str, Any]]:
        """The `CANDIDATES` that suit the data."""
        points, labels = data.points, data.labels
        is_centered = labels is not None and labels.ndim == 1 and not issparse(points)
        is_small = points.shape[1] <= MAX_FEATURES
        return [
            each
            for each in (COMPARISON_CANDIDATES if labels is None else CANDIDATES)
            if (is_centered or each.get("init") not in CENTERING)
            and (is_small or "shrinkage" not in each or each["init"] == "lda")
        ]

    def _evaluate(
        self,
        search: Search,
        candidates: Sequence[Mapping[str, Any]],
        data: TrainingData,
        save: Callable[[], None],
        n_neighbors: int,
        seed: int,
    ) -> bool:
        """Fit and score the candidates on the folds; return whether the search was interrupted."""
        is_over = False
        try:
            while missing := search.missing():
                fold, number = missing[0]
                began = time.perf_counter()
                train, held_out = search.splits[fold]
                rest = subset(data, train)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about a part of the data
                    learned = self._learn(candidates[number], rest)
                if is_over := is_interrupted():
                    break
                seconds = time.perf_counter() - began
                found = held_out_errors(data, rest, held_out, learned, n_neighbors, seed)
                search.keep(fold, number, found, seconds)
                save()
                if self.verbose:
                    logger.info(
                        "fold %d of %d, candidate %d of %d, %s: score %.4f; about %.0f s left",
                        *(fold + 1, len(search.splits), number + 1, len(candidates)),
                        *(dict(candidates[number]), search.scores()[number, fold]),
                        search.remaining_seconds(),
                    )
        except KeyboardInterrupt:
            is_over = True
        if is_over:
            if search.n_done == 0:
                raise KeyboardInterrupt
            warn(
                f"The search was interrupted after {search.n_done} of {search.seconds.size} fits. "
                "The best candidate so far is used."
            )
        return is_over

    def _learn_average(
        self, groups: Sequence[Sequence[Mapping[str, Any]]], data: TrainingData
    ) -> NDArray:
        """Learn all candidates, return components of the average, and set `averaged_params_`.

        After an interruption, it is the average of the metrics so far.
        """
        metrics: list[list[Points | None]] = []
        self.averaged_params_ = []
        try:
            for group in groups:
                for number, candidate in enumerate(group):
                    if metrics and is_interrupted():
                        raise KeyboardInterrupt
                    with warnings.catch_warnings():
                        if number:  # the same as for the first of the group
                            warnings.simplefilter("ignore")
                        learned = self._learn(candidate, data)
                    metrics += [[]] if number == 0 else []
                    metrics[-1].append(learned)
                    self.averaged_params_.append(dict(candidate))
        except KeyboardInterrupt:
            if not metrics:
                raise
            warn(
                f"The last fits were interrupted after {len(self.averaged_params_)} of "
                f"{sum(map(len, groups))}. The average of these metrics is used."
            )
        if len(self.averaged_params_) == 1:  # in its own unit
            return as_components(metrics[0][0], data.points.shape[1], data.points.dtype)
        return average(metrics, data.points, data.weights)

    def _verify(
        self,
        rows: NDArray,
        search: Search,
        data: TrainingData,
        check: LeaveOneOut | None,
        n_neighbors: int,
    ) -> NDArray:
        """Set `errors_`, and return the best start if the final metric is worse than that.

        The folds have compared metrics learned from parts of the data; that from all data may still
        have failed.
        """
        self.__dict__.pop("errors_", None)  # of an earlier fit
        params, scores = self.cv_results_["params"], self.cv_results_["mean_test_score"]
        is_start = np.array([each.get("shrinkage", 0) == 1 for each in params])
        if not (np.isfinite(scores[is_start]).any() and np.isfinite(scores[~is_start]).any()):
            return rows
        # The error of LDA on training points is too low, because it separates their labels.
        is_plain = is_start & [each.get("init") != "lda" for each in params]
        if not np.isfinite(scores[is_plain]).any():
            is_plain = is_start
        start, plain, learned = (
            int(np.nanargmax(np.where(which, scores, np.nan)))
            for which in (is_start, is_plain, ~is_start)
        )
        errors = search.errors_of([start, learned])
        verified = Verification.of(errors, "cross-validation", needs_evidence=True)
        self.errors_ = verified.as_dict()
        if all(each.get("shrinkage", 0) == 1 for each in self.averaged_params_):
            return rows
        bases = [
            as_components(self._learn(params[number], data), data.points.shape[1], rows.dtype)
            for number in (start, plain)
        ]
        before, after = (
            held_out_errors(data, data, np.arange(len(data.comparisons or ())), each, 0)
            if check is None
            else check.errors(data.points @ each.T)
            for each in (bases[1], rows)
        )
        if verified.is_chance:
            message = verified.message(0 if check is None else n_neighbors)
        elif is_worse(after, before, PREFER_SIMPLER):
            message = (
                f"The metric learned from all data is worse than {params[plain]} on the training "
                f"points ({100 * after.values.mean():.1f} and "
                f"{100 * before.values.mean():.1f} % errors); the starting metric "
                f"{params[start]} is kept."
            )
        else:
            return rows
        warn(message)
        self.averaged_params_ = [params[start]]
        return bases[0]

    def _learn(self, candidate: Mapping[str, Any], data: TrainingData) -> Points | None:
        """Return the components of the metric of a candidate; None is the Euclidean metric."""
        points, init, shrinkage = data.points, candidate.get("init", "auto"), 0.0
        params = {"n_jobs": self.n_jobs, **candidate, "init": None, "verify": "passes"}
        if "shrinkage" in params:
            shrinkage = float(params.pop("shrinkage"))
        if is_auto(init):
            arguments = points, data.labels, data.weights, data.comparisons, self.n_jobs
            init, _ = choose_init(*arguments, seed_of(self.random_state))
        base = starting_transformation(init, points, data.labels, data.weights)
        base = None if base is None else base.astype(points.dtype)
        if shrinkage == 1:
            return base
        learner = BoostMetric(**params).fit(
            points if base is None else transform_points(points, base),
            data.labels,
            comparisons=data.comparisons,
            sample_weight=data.weights,
        )
        metric = learner.metric_.shrink(shrinkage) if shrinkage else learner.metric_
        return metric.components if base is None else np.asarray(metric.components @ base)
