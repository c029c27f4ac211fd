"""BoostMetricCV: starting transformation and shrinkage chosen by cross-validation."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from scipy.stats import rankdata
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted

from boostmetric._validation import check_parameter, is_count, warn
from boostmetric._version import __version__
from boostmetric.data.labels import Labels
from boostmetric.data.points import Points
from boostmetric.engines import single_blas_thread
from boostmetric.estimators.base import LearnedMetric
from boostmetric.estimators.boostmetric import BoostMetric, share_satisfied
from boostmetric.estimators.callbacks import is_interrupted, listening, logger, show_log
from boostmetric.estimators.checkpoint import digest, load_state, save_state, settings_of
from boostmetric.estimators.initial import choose_init, distinct_rows, starting_transformation
from boostmetric.estimators.settings import COUNT, SOLVER_PARAMETERS, Settings, is_auto
from boostmetric.estimators.training_data import TrainingData
from boostmetric.evaluation.knn import neighbor_errors
from boostmetric.metric import Metric, pair_distances
from boostmetric.problem import Comparisons

SHRINKAGES = (0.0, 0.1, 0.25, 0.5, 1.0)
"""The default shrinkages. Their errors are almost free: the learner is fitted once for all."""

CANDIDATE_PARAMETERS = (
    *SOLVER_PARAMETERS,
    *("init", "n_neighbors", "index", "n_passes", "engine", "n_jobs"),
)
"""Parameters of `BoostMetric` that a candidate may set; the others have no effect here."""

MAX_QUERIES = 1_000
"""Number of held-out points per fold that are classified. Three folds give an error of 5 % with a
standard error of 0.4 %."""

MAX_FEATURES = 2_000
"""Above this number of features, 0 is the only shrinkage: a metric of full rank would have more
entries than most X."""

BLOCK_ENTRIES = 1 << 23
"""Distances that are in memory at the same time, 64 MB."""

AT_LEAST_2 = "an int in the range [2, inf)"

Split = tuple[NDArray, NDArray]

KIND, FORMAT_VERSION = "cv checkpoint", 1


class BoostMetricCV(LearnedMetric):
    """BoostMetric with starting transformation and shrinkage chosen by cross-validation.

    Each candidate is a setting of `BoostMetric`, by default one for each of the starting
    transformations None, "scale" and "whiten". It is fitted once per fold, and yields the metrics

        (1 − s)·M + s·(Tr M / d)·I

    in the d-dimensional space of its starting transformation, for all shrinkages s between 0, the
    learned metric, and 1, the starting metric. The combination with the highest mean score on
    the held-out folds is fitted on all data. With three folds, this takes 6 to 9 times as long as
    `BoostMetric().fit`.

    Parameters
    ----------
    candidates : sequence of dict or None, default=None
        Parameters of `BoostMetric`: those of the optimization, `init`, `n_neighbors`, `index`,
        `n_passes`, `engine` and `n_jobs`. None compares ``{"init": None}``, ``{"init": "scale"}``
        and ``{"init": "whiten"}``, without the last one for sparse X, for multilabel targets, and
        for comparisons without labels.
    shrinkages : sequence of float or None, default=None
        Shrinkages in [0, 1]. None uses 0, 0.1, 0.25, 0.5 and 1. With more than 2,000 features only
        0 is used, because all others yield metrics of full rank.
    cv : int, splitter or iterable, default=3
        Number of folds, or splits as in scikit-learn. With labels, each of the folds contains the
        same share of every class; classes of which a fold would leave fewer than two points are
        never held out. Without labels, folds consist of comparisons, not of points: the score
        estimates how well the metric predicts other comparisons of the same points.
    n_neighbors : int, default=3
        Number of neighbors of the classifier that scores candidates.
    n_components : int, float or None, default=None
        Maximum number of leading eigenvectors of M to keep, as in `BoostMetric`.
    checkpoint : path-like or None, default=None
        File that is written after every fit of a fold. If a search is killed, calling `fit` again
        with the same data and parameters continues from the file, with the same result.
    n_jobs : int or None, default=None
        Number of threads, as in `BoostMetric`.
    random_state : int, RandomState or None, default=None
        Determines the folds.
    verbose : bool or int, default=0
        True or 1 logs each fit with its score and the remaining time (logger "boostmetric").

    Attributes
    ----------
    cv_results_ : dict of arrays with one entry per candidate and shrinkage
        As in `GridSearchCV`: "params", "param_…", "split0_test_score", …, "mean_test_score",
        "std_test_score", "rank_test_score", "mean_fit_time" and "std_fit_time" (seconds, the same
        for all shrinkages of a candidate). A score is the accuracy of the nearest-neighbor
        classifier on the held-out points; for multilabel targets, the share of nearest
        neighbors with a common label; without labels, the share of held-out comparisons that are
        satisfied. Scores count by `sample_weight`, or by the weights of comparisons. They are NaN
        for folds that an interrupted search did not reach.
    best_index_ : int
        Position of the chosen combination; the largest shrinkage if several have the best score.
    best_params_ : dict
        Its candidate, and "shrinkage".
    best_score_ : float
        Its mean score.
    components_ : array of shape (n_components, D)
        M = components_ᵀ·components_; rows by decreasing eigenvalue of M.
    metric_ : Metric
        The metric over the features of X.
    n_features_in_, feature_names_in_ : as in `BoostMetric`

    Notes
    -----
    Ctrl-C ends the search: the best combination so far is fitted on all data, with a warning. A
    second Ctrl-C, or one before the first score is known, raises the KeyboardInterrupt.

    Examples
    --------
    >>> from boostmetric import BoostMetricCV, knn_error
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> search = BoostMetricCV(random_state=0).fit(X[::2], y[::2])
    >>> search.best_params_["init"]
    'whiten'
    >>> Z = search.transform(X)
    >>> knn_error(Z[::2], y[::2], Z[1::2], y[1::2]) < 0.05
    True
    """

    _takes_sparse = True

    def __init__(
        self,
        candidates: Sequence[Mapping[str, Any]] | None = None,
        *,
        shrinkages: Sequence[float] | None = None,
        cv: Any = 3,
        n_neighbors: int = 3,
        n_components: int | float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = 0,
    ) -> None:
        self.candidates = candidates
        self.shrinkages = shrinkages
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
        """Choose candidate and shrinkage, and learn the metric from all data.

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
        candidates = self.candidates
        if candidates is None:
            has_classes = data.labels is not None and data.labels.ndim == 1
            inits: tuple[str | None, ...] = (None, "scale")
            if has_classes and not issparse(points):
                inits = (*inits, "whiten")
            candidates = [{"init": init} for init in inits]
        distinct = data.labels_of_distinct_points()
        for each in (settings, *map(self._settings_of, candidates)):
            data.check_settings(each.for_data(distinct))
        shrinkages = np.array(SHRINKAGES if self.shrinkages is None else self.shrinkages, float)
        if points.shape[1] > MAX_FEATURES:
            shrinkages = np.zeros(1)

        # 2) folds; if an interrupted search continues, those of the file, and their scores
        if isinstance(self.cv, Integral):
            splits = draw_splits(data, int(self.cv), check_random_state(self.random_state))
        else:
            units = np.arange(len(data.comparisons)) if data.labels is None else points
            splits = [(train, test) for train, test in check_cv(self.cv).split(units, data.labels)]
        search = Search(splits, len(candidates), len(shrinkages))
        identity: tuple[dict[str, str], str] = {}, ""
        if settings.checkpoint is not None:
            without_effect = ("checkpoint", "n_jobs", "verbose")
            params = {**self.get_params(deep=False), "boostmetric": __version__}
            relevant = {name: params[name] for name in params if name not in without_effect}
            contents = points, data.labels, data.weights, data.comparisons
            identity = settings_of(relevant), digest(*contents)
            search.restore(settings.checkpoint, *identity)

        # 3) scores
        if self.verbose:
            show_log()
        is_over = False
        try:
            for fold, number in search.missing():
                began = time.perf_counter()
                train, held_out = search.splits[fold]
                rest = part(data, train)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about a part of the data
                    base, learned = self._learn(candidates[number], rest)
                if is_over := is_interrupted():
                    break
                seconds = time.perf_counter() - began
                scores = held_out_scores(
                    data, rest, held_out, base, learned, shrinkages, self.n_neighbors
                )
                search.keep(fold, number, scores, seconds)
                if settings.checkpoint is not None:
                    search.save(settings.checkpoint, *identity)
                if self.verbose:
                    best = int(np.argmax(scores))
                    logger.info(
                        "fold %d of %d, candidate %d of %d, %s: score %.4f with shrinkage %g; "
                        "about %.0f s left",
                        *(fold + 1, len(search.splits), number + 1, len(candidates)),
                        *(dict(candidates[number]), scores[best], shrinkages[best]),
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

        # 4) the best combination, fitted to all data
        self.cv_results_ = search.results(candidates, shrinkages)
        ranks, shares = self.cv_results_["rank_test_score"], self.cv_results_["param_shrinkage"]
        self.best_index_ = int(np.lexsort((-shares.data.astype(float), ranks))[0])
        self.best_params_ = self.cv_results_["params"][self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        # The listener that has interrupted the search would also end this fit.
        with listening(lambda progress: False) if is_over else nullcontext():
            base, learned = self._learn(candidates[self.best_index_ // len(shrinkages)], data)
        facts = {"best_params": self.best_params_, "best_score": self.best_score_}
        rows = shrunk_components(base, learned, self.best_params_["shrinkage"])
        metric = Metric.from_components(rows.astype(points.dtype))
        metric = self._with_origin(metric, points, facts)
        if settings.n_components is not None:
            metric = metric.truncate(settings.n_components)
        self.metric_, self.components_ = metric, metric.components
        if settings.checkpoint is not None and not is_over:
            search.save(settings.checkpoint, *identity, finished=True)
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
        params = {name: each for name, each in self.best_params_.items() if name != "shrinkage"}
        return share_satisfied(self, self._settings_of(params), X, y, comparisons)

    def _check_parameters(self) -> Settings:
        """Check all parameters, and return those that `BoostMetric` has as well."""
        if isinstance(self.cv, Integral):
            check_parameter("cv", self.cv, is_count(self.cv) and self.cv >= 2, AT_LEAST_2)
        else:
            check_cv(self.cv)
        check_parameter("n_neighbors", self.n_neighbors, is_count(self.n_neighbors), COUNT)
        if (shrinkages := self.shrinkages) is not None:
            values = np.asarray(shrinkages)
            is_valid = values.ndim == 1 and values.size > 0 and values.dtype.kind in "iuf"
            is_valid = is_valid and bool(((values >= 0) & (values <= 1)).all())
            check_parameter("shrinkages", shrinkages, is_valid, "None or floats in [0.0, 1.0]")
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
        for name in candidate:
            if name not in CANDIDATE_PARAMETERS:
                raise ValueError(
                    f"A candidate sets {name!r}, which has no effect in {type(self).__name__}. "
                    f"Candidates may set {', '.join(CANDIDATE_PARAMETERS)}."
                )
        learner = BoostMetric(**{"n_jobs": self.n_jobs, **candidate})
        return Settings.from_params(learner.get_params(deep=False))

    def _learn(
        self, candidate: Mapping[str, Any], data: TrainingData
    ) -> tuple[Points | None, NDArray]:
        """Return the starting transformation, and the components learned in its image."""
        points, init = data.points, candidate.get("init", "auto")
        if is_auto(init):
            init, _ = choose_init(points, data.labels, data.weights, data.comparisons)
        base = starting_transformation(init, points, data.labels, data.weights)
        base = None if base is None else base.astype(points.dtype)
        learner = BoostMetric(**{"n_jobs": self.n_jobs, **candidate, "init": None})
        learner.fit(
            points if base is None else points @ base.T,
            data.labels,
            comparisons=data.comparisons,
            sample_weight=data.weights,
        )
        return base, learner.components_


class Search:
    """Folds, and the scores that are known: the state of a search, also in its checkpoint.

    Attributes
    ----------
    splits : for each fold, the points (or comparisons) to learn from, and those held out
    scores : array of shape (candidates, shrinkages, folds), NaN if unknown
    seconds : array of shape (candidates, folds), durations of the fits, NaN if unknown
    """

    def __init__(self, splits: list[Split], n_candidates: int, n_shrinkages: int) -> None:
        self.splits = splits
        self.scores = np.full((n_candidates, n_shrinkages, len(splits)), np.nan)
        self.seconds = np.full((n_candidates, len(splits)), np.nan)

    @property
    def n_done(self) -> int:
        """Number of fits whose scores are known."""
        return int(np.isfinite(self.seconds).sum())

    def missing(self) -> list[tuple[int, int]]:
        """Folds and candidates without scores. All candidates of a fold come before the next."""
        return [(int(fold), int(number)) for fold, number in np.argwhere(np.isnan(self.seconds.T))]

    def keep(self, fold: int, number: int, scores: NDArray, seconds: float) -> None:
        """Add the scores of a candidate on a fold."""
        self.scores[number, :, fold], self.seconds[number, fold] = scores, seconds

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

    def results(
        self, candidates: Sequence[Mapping[str, Any]], shrinkages: NDArray
    ) -> dict[str, Any]:
        """Return `cv_results_`."""
        params = [{**each, "shrinkage": float(s)} for each in candidates for s in shrinkages]
        found: dict[str, Any] = {"params": params}
        for name in dict.fromkeys(name for each in params for name in each):
            values, mask = np.empty(len(params), dtype=object), np.ones(len(params), dtype=bool)
            for number, each in enumerate(params):
                if name in each:
                    values[number], mask[number] = each[name], False
            found[f"param_{name}"] = np.ma.MaskedArray(values, mask)
        scores = self.scores.reshape(len(params), -1)
        for fold, of_fold in enumerate(scores.T):
            found[f"split{fold}_test_score"] = of_fold
        # An interrupted search compares candidates by the folds that all of them have in common.
        is_complete = np.isfinite(scores).all(axis=0)
        used = scores[:, is_complete] if is_complete.any() else scores[:, :1]
        means = used.mean(axis=1)
        # Equal numbers of errors may give means that differ by rounding.
        order = np.nan_to_num(-means.round(12), nan=np.inf)
        times = np.repeat(self.seconds, len(shrinkages), axis=0)
        return found | {
            "mean_test_score": means,
            "std_test_score": used.std(axis=1),
            "rank_test_score": rankdata(order, method="min").astype(np.int32),
            "mean_fit_time": _over_known_folds(np.mean, times),
            "std_fit_time": _over_known_folds(np.std, times),
        }


def draw_splits(data: TrainingData, n_folds: int, rng: np.random.RandomState) -> list[Split]:
    """Draw folds of the points, or of the comparisons if there are no labels.

    Never held out are weights of 0, and points of classes (or with a label) of which fewer than two
    points would be left.
    """
    if data.labels is None:
        assert data.comparisons is not None
        weights, n = data.comparisons.weights, len(data.comparisons)
        counted = np.ones(n, dtype=bool) if weights is None else weights > 0
        order, needed = rng.permutation(np.flatnonzero(counted)), "two comparisons"
    else:
        labels = Labels.of(data.labels)
        n, counted = len(labels), labels.labeled
        counted = counted if data.weights is None else counted & (data.weights > 0)
        counts = labels[counted].counts()
        is_scarce = counts - np.ceil(counts / n_folds) < 2
        counted = counted & ((labels.sets @ is_scarce.astype(np.intp))[labels.codes] == 0)
        order, needed = rng.permutation(np.flatnonzero(counted)), "a class of three points"
        # In the order of classes, so that each fold has its share of every class.
        order = order[np.argsort(labels.codes[order], kind="stable")]
    if len(order) < 2:
        raise ValueError(
            f"cv={n_folds} requires at least {needed} of positive weight. Use BoostMetric."
        )
    folds = np.full(n, -1)
    folds[order] = np.arange(len(order)) % n_folds
    return [
        (np.flatnonzero(folds != k), np.flatnonzero(folds == k))
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
    factors = [(1 - s, s * np.sum(np.square(learned, dtype=float)) / images.shape[1])
               for s in shrinkages]  # fmt: skip
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


def shrunk_components(base: Points | None, learned: NDArray, shrinkage: float) -> NDArray:
    """Return rows L with LᵀL = baseᵀ·((1 − s)·M + s·(Tr M/d)·I)·base, M = learnedᵀ·learned.

    >>> shrunk_components(None, np.array([[2.0, 0.0]]), 0.5) ** 2
    array([[2., 0.],
           [1., 0.],
           [0., 1.]])
    """
    rows = learned
    if shrinkage > 0:
        d = learned.shape[1]
        mean = np.sqrt(shrinkage * np.sum(np.square(learned, dtype=float)) / d)
        rows = np.vstack([np.sqrt(1 - shrinkage) * learned, mean * np.eye(d)])
    return rows if base is None else np.asarray(rows @ base)


def _over_known_folds(function: Any, times: NDArray) -> NDArray:
    """A mean or deviation over the folds that an interrupted search has reached; NaN for none."""
    return np.array([function(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan
                     for row in times])  # fmt: skip
