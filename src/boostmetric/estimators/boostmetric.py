"""BoostMetric, the scikit-learn estimator."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from boostmetric._validation import is_count, warn
from boostmetric._version import __version__
from boostmetric.data.dask_points import collect, content_of, is_collection
from boostmetric.data.points import Points
from boostmetric.engines import Dask, EngineError, Local, as_engine, single_blas_thread
from boostmetric.estimators.base import LearnedMetric
from boostmetric.estimators.callbacks import CallbackSupportMixin, Monitor, with_callbacks
from boostmetric.estimators.checkpoint import Checkpoint, digest, settings_of
from boostmetric.estimators.early_stopping import HeldOut
from boostmetric.estimators.initial import CENTRING, as_components, starting_transformation
from boostmetric.estimators.origin import with_origin
from boostmetric.estimators.passes import Pass, history_of, run_passes
from boostmetric.estimators.settings import Settings
from boostmetric.estimators.training_data import ShouldStop, TrainingData
from boostmetric.evaluation.knn import satisfied_share
from boostmetric.metric import Metric
from boostmetric.neighbors import Index
from boostmetric.problem import Comparisons, Loss, Regularizer
from boostmetric.solvers import DEFAULT_ALPHA, Outcome, Status

WITHOUT_EFFECT = ("checkpoint", "engine", "n_jobs", "verbose", "warm_start")
"""Parameters that do not change the result of a fit, given where it starts, but for rounding."""


class BoostMetric(CallbackSupportMixin, LearnedMetric):
    """Learn a Mahalanobis metric by boosting rank-one matrices (Shen et al., JMLR 2012).

    Minimizes F(ρ) + R(M) over M ⪰ 0, where ρ_r = d²_M(far_r) − d²_M(near_r) are the margins
    of comparisons. M is a sum of rank-one matrices; each step adds the leading eigenvectors of a
    matrix that is dominated by the badly satisfied comparisons.

    Parameters
    ----------
    loss : {"logistic", "exponential", "squared_hinge", "smoothed_hinge", "hinge"} or Loss, \
            default="logistic"
        The loss F of the margins. The logistic loss and the hinges tolerate comparisons that cannot
        be satisfied. "hinge" is the soft-margin linear program (`Hinge`), with `nu` instead of
        alpha.
    solver : {"auto", "stagewise", "totally_corrective"}, default="auto"
        When coefficients are optimized: "stagewise", once, when their directions are added;
        "totally_corrective", all of them again in each step, which takes longer and converges to
        the optimum. "auto" is "stagewise", except for the hinge.
    regularizer : {"trace", "frobenius"} or Regularizer, default="trace"
        R, alpha·Tr M, which favors low rank, or alpha/2·‖M‖², which favors equal eigenvalues. An
        instance such as ``Trace(v)`` or ``Frobenius(v)`` sets the absolute strength, the paper's v.
    alpha : float, default=1e-7
        The strength of the regularizer, relative to the problem: for "trace" it is a fraction of
        the largest eigenvalue of the first scatter, above which M = 0 is optimal (for "frobenius"
        see `Frobenius`). Small values, down to 0, have little effect.
    n_neighbors : int or (int, int), default=3
        With labels, the number of targets and of impostors of each point.
    n_passes : int, default=1
        With labels, the number of neighbor searches: each pass searches in the space that the one
        before has learned.
    index : None, "faiss" or index, default=None
        How neighbors are searched: None is exact, "faiss" is approximate; an index is an object
        with `fit(X)` and `kneighbors(X, k)`. Sparse X and multilabel targets require None.
    max_iter : int, default=500
        Maximum number of directions per pass.
    directions_per_step : int or "auto", default="auto"
        With 1 the stage-wise solver is the paper's algorithm; in a larger batch the coefficients
        are optimized together, along with one factor for the older ones, which is faster. "auto" is
        24 (D/2 if that is less, 8 for more than 600 features), or 1 for fewer than 16 features or
        10,000 comparisons; it is 4 for the totally corrective solver.
    tol : float or None, default=None
        End a pass when the duality gap is at most this share of the objective; with 0 the gap is
        not computed. None is 1e-3 for the totally corrective solver and 0 for the stage-wise one,
        which in general does not come close to the optimum.
    eigen_solver : {"auto", "exact", "approximate"}, default="auto"
        How leading eigenvectors are computed. "auto" is exact up to 600 features; with more, it
        updates those of the last step by one product. "approximate" starts with rough ones, which
        become more accurate as the fit proceeds.
    n_components : int, float or None, default=None
        Maximum number of leading eigenvectors of M to keep, or, for a float in (0, 1), the share
        of the trace of M that the kept ones must have.
    init : None, {"scale", "whiten", "pca", "lda"} or array of shape (d, D), default=None
        A transformation to start from: neighbors are searched, and the metric learned, in its
        image. "whiten" uses the shrunk within-class covariance. Sparse X is not centered, so it
        requires None, "scale" or an array.
    early_stopping : bool, default=False
        Hold out data and keep the metric with the lowest error on them: the error of the
        `n_neighbors` nearest neighbors if there are labels, otherwise the share of violated
        comparisons. With multilabel targets, it is the share of neighbors without a common label.
    validation_fraction : float, default=0.1
        The share of each class, or of the comparisons, that `early_stopping` holds out.
    n_iter_no_change : int, default=50
        Directions without a lower held-out error after which `early_stopping` ends a pass.
    warm_start : bool, default=False
        Continue from the metric of the last call of `fit`, in its last pass.
    checkpoint : path or None, default=None
        A file that is written every few seconds and after every pass. If a fit is killed, calling
        `fit` again with the same data and parameters continues from the file and yields the same
        result as without the interruption. A file of other data or parameters is rejected.
    engine : None, "dask", str or distributed.Client, default=None
        Where the computation runs. None is this process, except for an X of Dask, which is fitted
        by the active Dask client, or by threads in this process if there is none. "dask" uses that
        client for an X in memory, too; an address or a client selects another cluster.
    n_jobs : int or None, default=None
        Number of threads in this process; the result does not depend on it. Unlike in scikit-learn,
        None uses all cores that are available to the process (CPU affinity, container limits,
        OMP_NUM_THREADS), and a single one within a worker of joblib, such as those of
        ``GridSearchCV(n_jobs=2)``.
    random_state : int, RandomState or None, default=None
        Determines what `early_stopping` holds out; nothing else is random.
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
        After each step: "pass" and the fields of `Iteration`, among them "objective",
        "lambda_max", "coef", "n_violated", "n_tried", "duality_gap" and "seconds".
    status_ : Status
        How the last pass ended; its value is an advice for the user.
    duality_gap_ : float
        Upper bound on the difference between the objective of the last pass and its optimum.
        Infinite if no bound was found; NaN if none was computed: with `tol` 0, with more than 600
        features, or if early stopping kept an earlier metric.
    alpha_ : float
        The absolute alpha of the last pass; for the hinge, the price of trace that was found.
    n_features_in_, feature_names_in_
        As in all scikit-learn estimators.

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

    From comparisons alone; the first states that point 0 is nearer to point 1 than to point 2:

    >>> from boostmetric import Comparisons
    >>> comparisons = Comparisons.from_triplets([[0, 1, 2], [3, 1, 0], [4, 3, 2]])
    >>> BoostMetric(max_iter=5).fit(X, comparisons=comparisons).score(X, comparisons=comparisons)
    1.0
    """

    _takes_sparse = True

    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        solver: str = "auto",
        regularizer: str | Regularizer = "trace",
        alpha: float = DEFAULT_ALPHA,
        n_neighbors: int | tuple[int, int] = 3,
        n_passes: int = 1,
        index: str | Index | None = None,
        max_iter: int = 500,
        directions_per_step: int | str = "auto",
        tol: float | None = None,
        eigen_solver: str = "auto",
        n_components: int | float | None = None,
        init: str | ArrayLike | None = None,
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
    @single_blas_thread()  # with several, sums would depend on their number
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
        X : array of shape (n, D); float32 is kept, anything else becomes float64. A sparse X stays
            sparse. A Dask array or dataframe stays on the cluster, which runs the fit; its chunks
            of rows are the blocks of the computation
        y : array of shape (n,), labels of any type; or an indicator of shape (n, L) of 0 and 1,
            dense or sparse: points that share a label are similar. With a Dask X it may be a Dask
            array or series
        comparisons : Comparisons of the rows of this X, or triplets as an integer array of shape
            (m, 3): row a is closer to row b than to row c
        sample_weight : array of shape (n,), the weight of the comparisons of a point with its
            neighbors; a weight of 2 is the same as giving the point twice, one of 0 as leaving it
            out

        Returns
        -------
        self
        """
        settings = Settings.from_params(self.get_params(deep=False))
        given = "dask" if settings.engine is None and is_collection(X) else settings.engine
        try:
            with as_engine(given, settings.n_jobs) as engine:
                return self._fit(settings, engine, X, y, comparisons, sample_weight)
        except EngineError as error:
            if settings.checkpoint is None or not settings.checkpoint.exists():
                raise
            raise EngineError(
                f"{error} The checkpoint '{settings.checkpoint}' has the state of the fit: fit "
                "again with the same data and parameters to continue."
            ) from error

    def _fit(
        self,
        settings: Settings,
        engine: Local | Dask,
        X: Any,
        y: Any,
        comparisons: Any,
        sample_weight: Any,
    ) -> Self:
        # 1) what to learn from
        resumed = getattr(self, "_resume", None) if settings.warm_start else None
        if is_collection(X):
            assert isinstance(engine, Dask)
            points: Any = self._validate_collection(X, resumed is None, engine)
            y, sample_weight = (
                collect(each, engine) if is_collection(each) else each
                for each in (y, sample_weight)
            )
        else:
            points = self._validate_points(X, reset=resumed is None)
        data = TrainingData.validate(points, y, comparisons, sample_weight)
        data.check_settings(settings)

        # 2) where to start: a transformation, the metric of an earlier fit, an interrupted fit
        start: Metric | None = None
        if resumed is not None:
            base, start = resumed
        else:
            base = starting_transformation(
                settings.init, data.points, data.labels, data.weights, settings.n_components
            )
        base = None if base is None else base.astype(data.points.dtype)
        checkpoint = self._open_checkpoint(settings, data, base, start)
        held_out = None
        if settings.early_stopping:
            if checkpoint is not None and checkpoint.held_out is not None:
                held_out = HeldOut(data, checkpoint.held_out, settings, checkpoint.best_error)
            else:
                held_out = HeldOut.split(data, settings, check_random_state(self.random_state))
            if checkpoint is not None:
                checkpoint.held_out = held_out.chosen
            data = held_out.rest

        # 3) passes: neighbors, comparisons, boosting
        n_passes = 1 if resumed else settings.n_passes
        monitor = Monitor(
            self,
            self._metric_attributes,
            n_passes,
            {"X": points, "y": y, "metadata": {"sample_weight": sample_weight}},
            n_done=0 if checkpoint is None else len(checkpoint.passes),
        )

        def compare(transformed: Any, should_stop: ShouldStop) -> Comparisons:
            return data.compare(transformed, settings, should_stop, settings.index)

        passes, failure = run_passes(
            data.points,
            base,
            compare,
            [settings.solver] * n_passes,
            engine,
            start=start,
            monitor=monitor,
            held_out=held_out,
            checkpoint=checkpoint,
        )
        _check_first_pass(passes[0].outcome, settings)

        # 4) the result, also of a fit that a NaN of the loss has ended
        self._set_fitted(data, base, passes, failure is not None)
        monitor.end()
        if failure is not None:
            raise failure
        return self

    def _set_fitted(
        self, data: TrainingData, base: NDArray | None, passes: list[Pass], has_failed: bool
    ) -> None:
        """Set the attributes that end in an underscore."""
        last = passes[-1].outcome
        nonempty = [done for done in passes if done.outcome.metric.n_directions]
        if nonempty:
            metric = nonempty[-1].metric
        else:
            D, dtype = data.points.shape[1], data.points.dtype
            metric = Metric.from_components(as_components(base, D, dtype))
        self._resume = (nonempty[-1].base, nonempty[-1].outcome.metric) if nonempty else None
        self.status_ = Status.FAILED if has_failed else last.status
        self.alpha_ = last.alpha
        self.duality_gap_ = last.duality_gap
        self.history_ = history_of(passes)
        self.n_iter_ = max(done.outcome.n_tried for done in passes)
        facts = {
            "n_samples": data.points.shape[0],
            "deviations": data.deviations().tolist(),
            "n_comparisons": last.n_comparisons,
            "n_iter": self.n_iter_,
            "status": self.status_.name,
            "alpha": self.alpha_,
            "duality_gap": self.duality_gap_,
            "history": {name: values.tolist() for name, values in self.history_.items()},
        }
        for name, value in self._metric_attributes(with_origin(metric, self, facts)).items():
            setattr(self, name, value)

    def score(
        self,
        X: ArrayLike | Points,
        y: ArrayLike | csr_array | None = None,
        *,
        comparisons: Comparisons | ArrayLike | None = None,
    ) -> float:
        """The share of comparisons that the learned metric satisfies.

        Parameters
        ----------
        X : array of shape (n, D)
        y : array of shape (n,) or (n, L), labels to make comparisons from, as `fit` does in its
            first pass
        comparisons : Comparisons of the rows of X, instead of or in addition to labels
        """
        check_is_fitted(self, "components_")
        settings = Settings.from_params(self.get_params(deep=False))
        points = self._validate_points(X, reset=False)
        data = TrainingData.validate(points, y, comparisons, None)
        metric = Metric.from_components(self.components_)
        return satisfied_share(metric, points, data.compare(points, settings))

    def _open_checkpoint(
        self, settings: Settings, data: TrainingData, base: NDArray | None, start: Metric | None
    ) -> Checkpoint | None:
        if settings.checkpoint is None:
            return None
        params = self.get_params(deep=False)
        relevant = {name: params[name] for name in params if name not in WITHOUT_EFFECT}
        started = None if start is None else (start.directions, start.coefs)
        points = content_of(data.points)
        return Checkpoint(
            settings.checkpoint,
            settings_of({**relevant, "boostmetric": __version__}),
            digest(points, data.labels, data.weights, data.comparisons, base, started),
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not (isinstance(self.init, str) and self.init in CENTRING)
        return tags

    def _metric_attributes(self, metric: Metric) -> dict[str, Any]:
        """The attributes of an estimator that has learned the metric."""
        rank = self.n_components
        if rank is not None:
            metric = metric.truncate(int(rank) if is_count(rank) else float(rank))
        return {"metric_": metric, "components_": metric.components}


def _check_first_pass(first: Outcome, settings: Settings) -> None:
    """Raise or warn if the first pass found no direction: M = 0 is no metric."""
    if first.metric.n_directions:
        return
    if 0 < first.alpha_max <= first.alpha:
        raise ValueError(
            f"regularizer={settings.solver.regularizer!r} is too strong: no direction lowers the "
            f"objective. Its alpha must be below {first.alpha_max:g}."
        )
    warn(
        "No direction increases the distances of far pairs more than those of near pairs, so the "
        "starting metric is kept (Euclidean, unless init is set). Are the labels random, or near "
        "and far swapped? More neighbors or another init may help."
    )
