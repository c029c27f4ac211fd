"""BoostMetric, the scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from boostmetric._validation import is_count, warn
from boostmetric._version import __version__
from boostmetric.data.dask_points import DaskPoints, collect, content_of, is_collection
from boostmetric.data.points import Points
from boostmetric.engines import Dask, Local, as_engine, single_blas_thread
from boostmetric.estimators.base import LearnedMetric
from boostmetric.estimators.callbacks import (
    CallbackSupportMixin,
    Monitor,
    SilentMonitor,
    is_interrupted,
    logger,
    show_log,
    with_callbacks,
)
from boostmetric.estimators.checkpoint import Checkpoint, digest, settings_of
from boostmetric.estimators.early_stopping import HeldOut
from boostmetric.estimators.initial import (
    CENTERING,
    MAX_DENSE_FEATURES,
    as_components,
    choose_init,
    reduced_start,
    starting_transformation,
)
from boostmetric.estimators.passes import Passes, run_passes
from boostmetric.estimators.settings import Settings, is_auto
from boostmetric.estimators.splits import seed_of
from boostmetric.estimators.training_data import TrainingData
from boostmetric.estimators.verify import (
    MAX_POINTS_IN_HALVES,
    LeaveOneOut,
    Verification,
    is_better_than_chance,
    verify_on_halves,
)
from boostmetric.evaluation.knn import satisfied_share
from boostmetric.metric import Metric
from boostmetric.neighbors import Index
from boostmetric.problem import Comparisons, Loss, NotANumberError, Regularizer
from boostmetric.solvers import Iteration, Status


class BoostMetric(CallbackSupportMixin, LearnedMetric):
    """Learn a Mahalanobis metric by boosting rank-one matrices.

    Minimizes F(ρ) + R(M) over M ⪰ 0, where ρ_r = d²_M(far_r) − d²_M(near_r) are the margins of
    comparisons. M is a sum of rank-one matrices; each step adds the leading eigenvectors of a
    matrix in which badly satisfied comparisons have the largest weights.

    Parameters
    ----------
    loss : {"logistic", "exponential", "squared_hinge", "smoothed_hinge", "hinge"} or Loss, \
            default="logistic"
        Loss F of the margins. The logistic loss and the hinge losses tolerate comparisons that
        cannot be satisfied. "hinge" is the soft-margin linear program (`Hinge`), which has the
        parameter `nu` instead of `alpha`.
    solver : {"auto", "stagewise", "totally_corrective"}, default="auto"
        "stagewise" optimizes the coefficients of directions once, when they are added.
        "totally_corrective" optimizes all coefficients again in each step, which takes longer and
        converges to the optimum. "auto" uses "stagewise", except for the hinge loss and the
        shrinkage regularizer.
    regularizer : {"auto", "frobenius", "trace", "shrinkage"} or Regularizer, default="auto"
        Regularizer R: "frobenius", alpha/2·‖M‖², favors equal eigenvalues; "trace", alpha·Tr M, the
        paper's, favors low rank; "shrinkage", alpha/2·‖M − c·I‖², favors the starting metric, for
        few comparisons. With features of different scale, all but "trace" require a suitable
        `init`, because they suppress features of small scale. "auto" is "frobenius" if the loss
        supports it. An instance such as ``Trace(v)`` or ``Frobenius(v)`` sets the absolute
        strength, the paper's v.
    alpha : float or "auto", default="auto"
        Strength of the regularizer, relative to the problem. For "trace" it is a fraction of the
        smallest strength for which M = 0 is optimal; for the others see `Frobenius`. Small values,
        down to 0, have little effect. "auto" is 1e-4 for "trace", and otherwise 1e-2; with labels
        it falls to 1e-3 around the larger of 2,000 and 10·D² points, and without labels it rises to
        1e-1 below about 1,000 comparisons. With "auto", the Frobenius norm, at most 600 features
        and fewer than 30 points per class on average, k of them, the result is
        (1 − s)·M + s·(Tr M/D)·I in the space of `init`, s = (1 − k/30)/2: with little data it stays
        close to the start.
    n_neighbors : int, (int, int) or "auto", default="auto"
        Number of targets and of impostors of each point. Only used with labels. "auto" is 4 targets
        and 8 impostors up to 1,000 points, 6 from 4,000 points on, 7 in between; fewer, but at
        least 3, if there are too few points in some class, or outside of it.
    n_passes : int or "auto", default="auto"
        Number of neighbor searches. Each pass after the first one searches in the space learned by
        the pass before. Values above 1 require labels. "auto" is 2 with labels, and 1
        otherwise or for fewer than 30 points per class on average.
    index : None, "faiss" or index, default=None
        Neighbor search: None is exact, "faiss" is approximate. An index is an object with the
        methods `fit(X)` and `kneighbors(X, k)`. Sparse X and multilabel targets require None.
    max_iter : int, default=500
        Maximum number of directions per pass.
    directions_per_step : int or "auto", default="auto"
        Number of directions that a step adds. With 1, the stage-wise solver is the paper's
        algorithm. The coefficients of a larger batch are optimized together, along with one factor
        for all earlier ones, which is faster. "auto" uses 16, or D if that is less, and 8 for more
        than 600 features or several million comparisons; up to 64 for the totally corrective
        solver.
    tol : float or None, default=None
        A pass ends when the duality gap is at most this share of the objective. With 0, the gap is
        not computed. None uses 1e-3 for the totally corrective solver. The stage-wise solver, which
        in general does not come close to the optimum, then does not compute the gap, and a pass
        ends after a batch of directions that lowers the objective by less than 1 percent. With a
        number, including 0, it ends after a batch that lowers it by less than 0.01 percent.
    eigen_solver : {"auto", "exact", "approximate"}, default="auto"
        Computation of leading eigenvectors. "auto" is exact for up to 600 features; for more
        features, it updates the eigenvectors of the last step by one product. "approximate" starts
        with a low accuracy, which increases during the fit.
    n_components : int, float or None, default=None
        Maximum number of leading eigenvectors of M to keep. A float in (0, 1) is the share of the
        trace of M that the eigenvectors must have. None keeps all.
    init : None, {"auto", "scale", "whiten", "pca", "lda"} or array of shape (d, D), default="auto"
        Transformation to start from; neighbors are searched, and the metric is learned, in the
        transformed space. "auto" chooses between None (the features as they are), "scale" (divided
        by their standard deviations) and "whiten" (the shrunk within-class covariance) by the
        cross-validated 3-NN error before learning, on at most 1,000 points; whitening must be
        better by one standard error. Sparse X, multilabel targets, Dask collections and
        comparisons without labels choose between None and "scale". Sparse X is not centered, so it
        does not support "whiten", "pca" and "lda".
    verify : bool or "passes", default=True
        Whether the learned metric is compared with the starting one, which is kept if it is better
        (`errors_`). "passes" only drops a pass that makes the leave-one-out error of the training
        points worse by more than two standard errors, which is nearly free. True also compares the
        errors on data that were not used, with at most 1,000 points: two halves, from each of which
        one pass is learned (of the comparisons, without labels). With more points, it compares the
        leave-one-out errors, unless the starting metric is no better than chance. The start is kept
        if it is better by more than one standard error, or if halves show nothing better than
        random labels. Dask collections, warm starts and fits with early stopping are not verified.
    early_stopping : bool, default=False
        Whether to hold out data and keep the metric with the lowest held-out error: the error of
        the `n_neighbors` nearest neighbors if there are labels (for multilabel targets, the share
        of neighbors without a common label), otherwise the share of violated comparisons.
    validation_fraction : float, default=0.1
        Share of each class, or of the comparisons, that `early_stopping` holds out.
    n_iter_no_change : int, default=50
        Number of directions without a lower held-out error after which `early_stopping` ends a
        pass.
    warm_start : bool, default=False
        Whether to continue from the metric of the last call of `fit`, in its last pass.
    checkpoint : path-like or None, default=None
        File that is written every few seconds and after every pass. If a fit is killed, calling
        `fit` again with the same data and parameters continues from the file and yields the same
        result as without the interruption. A file of other data or parameters is rejected.
    engine : None, "dask", str or distributed.Client, default=None
        Where the computation runs. None is this process; a Dask collection X is fitted by the
        active Dask client, or by threads in this process if there is no client. "dask" uses the
        active client for X in memory, too. An address or a client selects another cluster.
    n_jobs : int or None, default=None
        Number of threads in this process; the result does not depend on it. Unlike in scikit-learn,
        None uses all cores that are available to the process (CPU affinity, container limits,
        OMP_NUM_THREADS), and a single one within a joblib worker, as in
        ``GridSearchCV(n_jobs=2)``.
    random_state : int, RandomState or None, default=None
        Determines the points and comparisons that are drawn for the choice of `init`, for the
        verification and for early stopping, by hashes of their contents. None is 0. Nothing else is
        random, and the result depends neither on the names of classes nor, up to rounding, on the
        order of rows and columns, except that equal distances are ordered by row.
    verbose : bool or int, default=0
        True or 1 logs every tenth step, 2 every step (logger "boostmetric").

    Attributes
    ----------
    components_ : array of shape (n_components, D)
        M = components_ᵀ·components_; rows by decreasing eigenvalue of M.
    metric_ : Metric
        The metric over the features of X: directions, coefficients, distances.
    n_iter_ : int
        Number of directions that were tried, the largest over the passes; at most `max_iter`.
    history_ : dict of arrays with one entry per step
        "pass" and the fields of `Iteration`, among them "objective", "lambda_max", "coef",
        "n_violated", "n_tried", "duality_gap" and "seconds".
    status_ : Status
        How the last pass ended; its value is advice for the user.
    duality_gap_ : float
        Upper bound on the difference between the objective of the last pass and its optimum.
        Infinite if no bound was found. NaN if none was computed: with `tol=0`, with the stage-wise
        solver and `tol=None`, with more than 600 features, or if early stopping kept an earlier
        metric.
    errors_ : dict
        Result of the verification: "start" and "learned", the nearest-neighbor errors before and
        after learning, with 3 neighbors or, if classes have fewer than four points on average, 1,
        where a tie among classes counts as a random choice (without labels, the fraction of
        violated comparisons); "gain", the difference, and "gain_standard_error"; "n_queries", the
        number of points or comparisons; and "measure", "halves" or "leave-one-out". The latter is
        too optimistic for the learned metric. With "halves", the errors are those of a pass that
        learned from half of the data. If the start was kept, `components_` is the start, and
        "learned", `history_` and `status_` describe what was learned. Absent if nothing was
        verified.
    init_ : str, array or None
        Transformation that the fit started from; the choice of ``init="auto"``.
    init_errors_ : dict of float
        Error of each candidate before learning, if ``init="auto"``; None is named "none".
    alpha_ : float
        Absolute alpha of the last pass; for the hinge loss, the price of the trace constraint.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : array of shape (D,)
        Names of the features, if X has column names that are all strings.

    See Also
    --------
    BoostMetricCV : Chooses the settings on held-out points.
    boost : The optimization of a single pass as a function.

    References
    ----------
    C. Shen, J. Kim, L. Wang, A. van den Hengel. "Positive semidefinite metric learning using
    boosting-like algorithms." Journal of Machine Learning Research 13, 2012.

    Examples
    --------
    >>> from boostmetric import BoostMetric, knn_error
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> learner = BoostMetric().fit(X[::2], y[::2])
    >>> knn_error(X[::2], y[::2], X[1::2], y[1::2]) > 0.25
    True
    >>> Z = learner.transform(X)
    >>> knn_error(Z[::2], y[::2], Z[1::2], y[1::2]) < 0.1
    True

    From comparisons; the first states that point 0 is nearer to point 1 than to point 2:

    >>> from boostmetric import Comparisons
    >>> comparisons = Comparisons.from_triplets([[0, 1, 2], [3, 1, 0], [4, 3, 2]])
    >>> BoostMetric().fit(X, comparisons=comparisons).score(X, comparisons=comparisons)
    1.0
    """

    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        solver: str = "auto",
        regularizer: str | Regularizer = "auto",
        alpha: float | str = "auto",
        n_neighbors: int | tuple[int, int] | str = "auto",
        n_passes: int | str = "auto",
        index: str | Index | None = None,
        max_iter: int = 500,
        directions_per_step: int | str = "auto",
        tol: float | None = None,
        eigen_solver: str = "auto",
        n_components: int | float | None = None,
        init: str | ArrayLike | None = "auto",
        verify: bool | str = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 50,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        engine: Any = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = 0,
    ) -> None:
        self.loss = loss
        self.solver = solver
        self.regularizer = regularizer
        self.alpha = alpha
        self.n_neighbors = n_neighbors
        self.n_passes = n_passes
        self.index = index
        self.max_iter = max_iter
        self.directions_per_step = directions_per_step
        self.tol = tol
        self.eigen_solver = eigen_solver
        self.n_components = n_components
        self.init = init
        self.verify = verify
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks  # type: ignore[untyped-decorator]
    @single_blas_thread()  # rounding would depend on the number of threads
    def fit(
        self,
        X: ArrayLike | Points,
        y: ArrayLike | csr_array | None = None,
        *,
        comparisons: Comparisons | ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn the metric from labels, from comparisons, or from both together.

        Parameters
        ----------
        X : array of shape (n, D), dense, sparse or a Dask collection. float32 is kept, other types
            become float64. A Dask array or dataframe stays on the cluster, which runs the fit; its
            chunks of rows are the blocks of the computation
        y : array of shape (n,), labels of any type, or an indicator matrix of shape (n, L) of 0 and
            1, dense or sparse; points that share a label are similar. For a Dask X it may be a Dask
            array or series
        comparisons : Comparisons of the rows of X, or an integer array of triplets of shape (m, 3):
            row a is closer to row b than to row c
        sample_weight : array of shape (n,), the weight of the comparisons of each point with its
            neighbors. A weight of 2 is the same as repeating the point, a weight of 0 the same as
            omitting it

        Returns
        -------
        self
        """
        settings = Settings.from_params(self.get_params(deep=False))
        resumed = getattr(self, "_resume", None) if settings.warm_start else None
        where = "dask" if settings.engine is None and is_collection(X) else settings.engine
        with as_engine(where, settings.n_jobs) as engine:
            # 1) data
            points = self._validate_points(X, resumed is None, engine)
            if isinstance(engine, Dask):
                y, sample_weight = (
                    collect(each, engine) if is_collection(each) else each
                    for each in (y, sample_weight)
                )
            data = TrainingData.validate(points, y, comparisons, sample_weight)
            settings = data.resolve(settings)
            data.check_settings(settings)

            # 2) start: a transformation, or the metric of an earlier fit, in its last pass
            start: Metric | None = None
            if resumed is None:
                self._choose_init(settings, data)
                base = starting_transformation(
                    self.init_, points, data.labels, data.weights, settings.n_components
                )
            else:
                base, start = resumed
                settings = replace(settings, n_passes=1)
            base = None if base is None else base.astype(points.dtype)

            # 3) checkpoint, and held-out data, which are the same if an interrupted fit continues
            checkpoint = held_out = None
            if settings.checkpoint is not None:
                checkpoint = self._open_checkpoint(settings.checkpoint, data, base, start)
            if settings.early_stopping:
                saved = None if checkpoint is None else checkpoint.held_out
                held_out = HeldOut(data, settings, start, saved)
                data = held_out.rest

            # 4) passes: neighbors, comparisons, boosting. Held-out data have verified the metric,
            # and the start of a warm start is not known any more.
            seed = seed_of(settings.random_state)
            is_verified = bool(settings.verify) and resumed is None and held_out is None
            is_verified &= not isinstance(points, DaskPoints)
            check = None
            if is_verified and data.labels is not None:
                check = LeaveOneOut(data, seed)
            monitor = Monitor(
                self,
                self._metric_attributes,
                settings.n_passes,
                settings.solver.max_iter,
                0 if checkpoint is None else len(checkpoint.passes),
                {"X": points, "y": y, "metadata": {"sample_weight": sample_weight}},
            )
            passes = run_passes(
                data, base, settings, engine, monitor, held_out, checkpoint, start, check
            )

            # 5) verification, unless the fit has ended early
            verified = None
            is_complete = passes.failure is None and not monitor.stopped
            if is_verified and is_complete and passes.done[0].outcome.metric.n_directions:
                verified = self._verify(data, base, settings, engine, check, passes, seed)

            # 6) result, also if the loss returned NaN after some steps
            self._set_fitted(data, base, passes, verified)
            monitor.end()
        if passes.failure is not None:
            raise passes.failure
        return self

    def _verify(
        self,
        data: TrainingData,
        base: Points | None,
        settings: Settings,
        engine: Local | Dask,
        check: LeaveOneOut | None,
        passes: Passes,
        seed: int,
    ) -> Verification | None:
        """Compare the passes with the start."""

        def learn(part: TrainingData) -> list[Points | None]:
            """Return the components of the start, and after a pass if it has directions."""
            base = starting_transformation(
                self.init_, part.points, part.labels, part.weights, settings.n_components
            )
            base = None if base is None else base.astype(part.points.dtype)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about a part of the data
                once = replace(settings, n_passes=1)
                try:
                    learned = run_passes(part, base, once, engine, SilentMonitor()).done
                except NotANumberError:  # there are values that the whole data do not have
                    learned = []
            nonempty = [done.metric for done in learned if done.outcome.metric.n_directions]
            return self._of_rank(part, base, nonempty)

        found, only_passes = None, settings.verify == "passes"
        if check is None:
            if not only_passes:
                found = verify_on_halves(data, None, learn, seed)
        else:
            errors = passes.errors
            if settings.n_components is not None:
                metrics = [done.metric for done in passes.done[: len(errors) - 1]]
                errors = [
                    check.errors(data.points if each is None else data.points @ each.T)
                    for each in self._of_rank(data, base, metrics)
                ]
            found = Verification.of(errors, "leave-one-out", needs_evidence=False)
            n_kept = passes.n_accepted
            found = replace(found, n_kept=n_kept if only_passes else min(n_kept, found.n_kept))
            needs_halves = len(check.references) <= MAX_POINTS_IN_HALVES or not (
                is_better_than_chance(passes.errors[0])
            )
            if needs_halves and not only_passes:
                # A start that was computed from the labels has leave-one-out errors that are too
                # low, so at least one pass is compared with it.
                on_halves = verify_on_halves(data, check, learn, seed)
                if on_halves is not None:
                    found = replace(on_halves, n_kept=on_halves.n_kept * max(1, found.n_kept))
        if is_interrupted():
            return None
        if found is not None:
            message = found.message(0 if check is None else check.n_neighbors)
            start = self._of_rank(data, base, [])[0]
            is_dense = start is not None and not issparse(start)
            if found.n_kept == 0 and not is_dense and data.points.shape[1] > MAX_DENSE_FEATURES:
                found = replace(found, n_kept=1)
                warn(
                    f"{message.partition(';')[0]}. What was learned is kept nevertheless, because "
                    f"with {data.points.shape[1]} features the starting metric is too large for a "
                    "dense array. Set n_components, or reduce X with TruncatedSVD first."
                )
            elif found.n_kept == 0:
                warn(message)
            if settings.verbose:
                show_log()
                logger.info("%s", message)
        return found

    def _of_rank(
        self, data: TrainingData, base: Points | None, metrics: list[Metric]
    ) -> list[Points | None]:
        """Return components of the start and of metrics, with at most `n_components` rows."""
        start, rank = base, self.n_components
        n_rows = data.points.shape[1] if base is None else base.shape[0]
        if isinstance(rank, int | np.integer) and rank < n_rows:
            start = reduced_start(base, data.points, data.weights, int(rank))
        return [start, *(self._metric_attributes(each)["components_"] for each in metrics)]

    def _choose_init(self, settings: Settings, data: TrainingData) -> None:
        """Set `init_`, and `init_errors_` if there is a choice."""
        self.init_ = settings.init
        if is_auto(settings.init):
            self.init_, self.init_errors_ = choose_init(
                *(data.points, data.labels, data.weights, data.comparisons, settings.n_jobs),
                seed_of(settings.random_state),
            )
            if settings.verbose:
                show_log()
                errors = ", ".join(f"{name} {e:.4f}" for name, e in self.init_errors_.items())
                logger.info(
                    "init=%r has been chosen; errors before learning: %s", self.init_, errors
                )

    def _open_checkpoint(
        self, path: Path, data: TrainingData, base: NDArray | None, start: Metric | None
    ) -> Checkpoint:
        # These parameters do not change the result of a fit, given its start, except for rounding.
        without_effect = ("checkpoint", "engine", "n_jobs", "verbose", "warm_start")
        params = {**self.get_params(deep=False), "boostmetric": __version__}
        relevant = {name: params[name] for name in params if name not in without_effect}
        started = None if start is None else (start.directions, start.coefs)
        points = content_of(data.points)
        identity = digest(points, data.labels, data.weights, data.comparisons, base, started)
        return Checkpoint(path, settings_of(relevant), identity)

    def _set_fitted(
        self,
        data: TrainingData,
        base: NDArray | None,
        passes: Passes,
        verified: Verification | None,
    ) -> None:
        """Set the attributes that end in an underscore."""
        # 1) the metric of the last pass with directions; M = 0 is not a metric
        points = data.points
        first, last = passes.done[0].outcome, passes.done[-1].outcome
        nonempty = [done for done in passes.done if done.outcome.metric.n_directions]
        kept = nonempty if verified is None else nonempty[: verified.n_kept]
        if verified is not None:
            self.errors_ = verified.as_dict()
        elif hasattr(self, "errors_"):  # of an earlier fit
            del self.errors_
        if kept:
            metric = kept[-1].metric
        elif nonempty:
            start = self._of_rank(data, base, [])[0]
            metric = Metric.from_components(as_components(start, points.shape[1], points.dtype))
        elif 0 < first.alpha_max <= first.alpha:
            raise ValueError(
                f"regularizer={self.regularizer!r} is too strong: no direction lowers the "
                f"objective. Its alpha must be below {first.alpha_max:g}."
            )
        else:
            warn(
                "No direction increases the distances of far pairs more than those of near pairs, "
                "so the starting metric is kept (Euclidean, unless init is set). Are the labels "
                "random, or near and far swapped? More neighbors or another init may help."
            )
            metric = Metric.from_components(as_components(base, points.shape[1], points.dtype))

        # 2) the fit
        self._resume = (kept[-1].base, kept[-1].outcome.metric) if kept else None
        self.status_ = Status.FAILED if passes.failure is not None else last.status
        self.alpha_ = last.alpha
        self.duality_gap_ = last.duality_gap
        self.n_iter_ = max(done.outcome.n_tried for done in passes.done)
        steps = [(i, step) for i, done in enumerate(passes.done) for step in done.outcome.history]
        self.history_ = {"pass": np.array([number for number, _ in steps], dtype=np.intp)}
        for name in (field.name for field in fields(Iteration)):
            self.history_[name] = np.array([getattr(step, name) for _, step in steps])

        # 3) both together
        facts = {
            "n_comparisons": last.n_comparisons,
            "n_iter": self.n_iter_,
            "status": self.status_.name,
            "alpha": self.alpha_,
            "duality_gap": self.duality_gap_,
            "history": {name: values.tolist() for name, values in self.history_.items()},
        }
        metric = self._with_origin(metric, points, facts)
        for name, value in self._metric_attributes(metric).items():
            setattr(self, name, value)

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
        y : array of shape (n,) or (n, L), labels that define comparisons of each point with its
            neighbors in the space of X, as many as in `fit`
        comparisons : Comparisons of the rows of X, instead of or in addition to labels
        """
        check_is_fitted(self, "components_")
        settings = Settings.from_params(self.get_params(deep=False))
        return score_on(self, settings, X, y, comparisons)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not (isinstance(self.init, str) and self.init in CENTERING)
        return tags

    def _metric_attributes(self, metric: Metric) -> dict[str, Any]:
        rank = self.n_components
        if rank is not None:
            metric = metric.truncate(int(rank) if is_count(rank) else float(rank))
        return {"metric_": metric, "components_": metric.components}


def score_on(
    learner: LearnedMetric,
    settings: Settings,
    X: ArrayLike | Points,
    y: ArrayLike | csr_array | None,
    comparisons: Comparisons | ArrayLike | None,
) -> float:
    """The share of comparisons that a fitted estimator satisfies; labels define comparisons."""
    points = learner._validate_points(X, reset=False)
    data = TrainingData.validate(points, y, comparisons)
    mined = data.compare(points, replace(data.resolve(settings), index=None))
    return satisfied_share(Metric.from_components(learner.components_), points, mined)
