"""BoostMetric, the scikit-learn estimator."""

from __future__ import annotations

import math
import os
from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from boostmetric._version import __version__
from boostmetric._warn import warn
from boostmetric.data.dask_points import DaskPoints, collect, content_of, is_collection
from boostmetric.data.labels import as_indicator, check_labels, single_labels
from boostmetric.data.points import Points, are_identical, deviations
from boostmetric.engines import Dask, EngineError, Local, as_engine, single_blas_thread
from boostmetric.estimators.base import LearnedMetric
from boostmetric.estimators.callbacks import CallbackSupportMixin, Monitor, with_callbacks
from boostmetric.estimators.checkpoint import Checkpoint, digest, settings_of
from boostmetric.estimators.early_stopping import HeldOut
from boostmetric.estimators.initial import CENTRING, as_components, starting_transformation
from boostmetric.estimators.origin import with_origin
from boostmetric.estimators.parameters import check_parameters, neighbor_counts, options_of
from boostmetric.estimators.passes import ShouldStop, history_of, run_passes
from boostmetric.evaluation.knn import satisfied_share
from boostmetric.metric import Metric
from boostmetric.neighbors import Index
from boostmetric.problem import Comparisons, Loss
from boostmetric.solvers import Outcome, Status

WITHOUT_EFFECT = ("checkpoint", "engine", "n_jobs", "verbose", "warm_start")
"""Parameters that do not change the result of a fit, given where it starts, but for rounding."""


class BoostMetric(CallbackSupportMixin, LearnedMetric):
    """Learn a Mahalanobis metric by boosting rank-one matrices (Shen et al., JMLR 2012).

    Minimizes F(ρ) + R(M) over M ⪰ 0, where ρ_r = d²_M(far_r) − d²_M(near_r) are the margins
    of comparisons. M is a sum of rank-one matrices; each iteration adds the
    leading eigenvectors of a matrix that is dominated by the badly satisfied comparisons.

    Parameters
    ----------
    loss : {"logistic", "exponential", "squared_hinge", "smoothed_hinge", "hinge"} or Loss, \
            default="logistic"
        The loss F of the margins. The logistic loss and the hinges tolerate comparisons that cannot
        be satisfied. "hinge" is the soft-margin linear program (`Hinge`), with `nu` instead of
        alpha.
    solver : None or {"stagewise", "totally_corrective"}, default=None
        When coefficients are optimized: "stagewise", once, when their directions are added;
        "totally_corrective", all of them again in each iteration, which takes longer and
        converges to the optimum. None is "stagewise", except for the hinge.
    regularizer : {"trace", "frobenius"}, default="trace"
        R, alpha·Tr M, which favors low rank, or alpha/2·‖M‖², which favors equal eigenvalues.
    alpha : float, default=1e-7
        The strength of the regularizer. Small values, down to 0, have little effect.
    alpha_relative : bool, default=True
        Whether alpha is a fraction of the largest eigenvalue of the first scatter, above which
        M = 0 is optimal (for "frobenius" see `Frobenius`); else it is the paper's absolute v.
    max_iter : int, default=500
        Maximum number of directions per pass; an iteration counts for `block_size` of them.
    block_size : int or None, default=None
        Directions per iteration. With 1 the stage-wise solver is the paper's algorithm; in a
        larger block the coefficients are optimized together, along with one factor for the older
        ones, which is faster. None is 24 (D/2 if that is less, 8 for more than 600 features), or 1
        for fewer than 16 features or 10,000 comparisons; it is 4 for the totally corrective solver.
    n_neighbors : int or (int, int), default=3
        With labels, the number of targets and of impostors of each point.
    neighbors : {"exact", "approximate"} or index, default="exact"
        How neighbors are searched; an index is an object with `fit(X)` and `kneighbors(X, k)`.
        Sparse X and multilabel targets require "exact".
    n_passes : int, default=1
        With labels, the number of neighbor searches: each pass searches in the space that the one
        before has learned.
    n_components : int, float or None, default=None
        Maximum number of leading eigenvectors of M to keep, or, for a float in (0, 1), the share
        of the trace of M that the kept ones must have.
    init : None, {"scale", "whiten", "pca", "lda"} or array of shape (d, D), default=None
        A transformation to start from: neighbors are searched, and the metric learned, in its
        image. "whiten" uses the shrunk within-class covariance. Sparse X is not centered, so it
        requires None, "scale" or an array.
    tol : float or None, default=None
        End a pass when the duality gap is at most this share of the objective; with 0 the gap is
        not computed. None is 1e-3 for the totally corrective solver and 0 for the stage-wise one,
        which in general does not come close to the optimum.
    eigen_solver : {"auto", "exact", "approximate"}, default="auto"
        How leading eigenvectors are computed. "auto" is exact up to 600 features; with more, it
        updates those of the last iteration by one product. "approximate" starts with rough ones,
        which become more accurate as the fit proceeds.
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
    verbose : int, default=0
        1 logs every tenth iteration, 2 every one (logger "boostmetric").

    Attributes
    ----------
    components_ : array of shape (n_components, D)
        M = components_ᵀ·components_; rows by decreasing eigenvalue of M.
    metric_ : Metric
        The metric over the features of X: directions, coefficients, distances.
    n_iter_ : int
        Number of iterations, in all passes.
    history_ : dict of arrays of shape (n_iter_,)
        After each iteration: "pass" and the fields of `Iteration`, among them "objective",
        "lambda_max", "coef", "n_violated", "duality_gap" and "seconds".
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
        solver: str | None = None,
        regularizer: str = "trace",
        alpha: float = 1e-7,
        alpha_relative: bool = True,
        max_iter: int = 500,
        block_size: int | None = None,
        n_neighbors: int | tuple[int, int] = 3,
        neighbors: str | Index = "exact",
        n_passes: int = 1,
        n_components: int | float | None = None,
        init: str | ArrayLike | None = None,
        tol: float | None = None,
        eigen_solver: str = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 50,
        warm_start: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        engine: Any = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.solver = solver
        self.regularizer = regularizer
        self.alpha = alpha
        self.alpha_relative = alpha_relative
        self.max_iter = max_iter
        self.block_size = block_size
        self.n_neighbors = n_neighbors
        self.neighbors = neighbors
        self.n_passes = n_passes
        self.n_components = n_components
        self.init = init
        self.tol = tol
        self.eigen_solver = eigen_solver
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
        comparisons: Comparisons | None = None,
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
        comparisons : Comparisons of the rows of this X
        sample_weight : array of shape (n,), the weight of the comparisons of a point with its
            neighbors; a weight of 2 is the same as giving the point twice, one of 0 as leaving it
            out

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False))
        given = "dask" if self.engine is None and is_collection(X) else self.engine
        try:
            with as_engine(given, self.n_jobs) as engine:
                return self._fit(engine, X, y, comparisons, sample_weight)
        except EngineError as error:
            if self.checkpoint is None or not os.path.exists(self.checkpoint):
                raise
            raise EngineError(
                f"{error} The checkpoint {os.fspath(self.checkpoint)!r} has the state of the fit: "
                "fit again with the same data and parameters to continue."
            ) from error

    def _fit(
        self,
        engine: Local | Dask,
        X: Any,
        y: Any,
        comparisons: Comparisons | None,
        sample_weight: Any,
    ) -> Self:
        resumed = getattr(self, "_resume", None) if self.warm_start else None
        points: Points | DaskPoints
        if is_collection(X):
            assert isinstance(engine, Dask)
            points = self._validate_collection(X, resumed is None, engine)
            y, sample_weight = (
                collect(each, engine) if is_collection(each) else each
                for each in (y, sample_weight)
            )
        else:
            points = self._validate_points(X, reset=resumed is None)
        labels, weights = self._check_targets(points, y, comparisons, sample_weight)
        self._check_needs(labels, sample_weight)
        if points.is_constant if isinstance(points, DaskPoints) else are_identical(points):
            raise ValueError(
                f"all {points.shape[0]} points are identical: there is no metric to learn."
            )
        if isinstance(self.n_components, Integral) and self.n_components > points.shape[1]:
            raise ValueError(
                f"n_components={self.n_components}, but X has {points.shape[1]} features."
            )

        # 1) where the first pass starts, and the file of an earlier run
        base, start = resumed or (
            starting_transformation(self.init, points, labels, weights, self.n_components),
            None,
        )
        base = None if base is None else base.astype(points.dtype)
        checkpoint = self._open_checkpoint(points, labels, weights, comparisons, base, start)

        # 2) what is held out, and what is left to learn from
        held_out = None
        if self.early_stopping:
            chosen, best_error = None, math.inf
            if checkpoint is not None:
                chosen, best_error = checkpoint.held_out, checkpoint.best_error
            held_out = HeldOut(
                labels,
                weights,
                comparisons,
                fraction=self.validation_fraction,
                patience=self.n_iter_no_change,
                n_neighbors=neighbor_counts(self.n_neighbors)[0],
                n_jobs=self.n_jobs,
                rng=check_random_state(self.random_state),
                chosen=chosen,
                best_error=best_error,
            )
            weights, comparisons = held_out.weights, held_out.comparisons
            if checkpoint is not None:
                checkpoint.held_out = held_out.chosen

        # 3) the passes
        n_passes = 1 if resumed else self.n_passes
        monitor = Monitor(
            self,
            self._metric_attributes,
            n_passes,
            {"X": points, "y": y, "metadata": {"sample_weight": sample_weight}},
            n_done=0 if checkpoint is None else len(checkpoint.passes),
        )
        passes, failure = run_passes(
            points,
            base,
            partial(self._compare, labels=labels, weights=weights, comparisons=comparisons),
            {**options_of(self.get_params(deep=False)), "start": start, "engine": engine},
            [self.max_iter] * n_passes,
            monitor=monitor,
            held_out=held_out,
            checkpoint=checkpoint,
        )
        _check_first_pass(passes[0].outcome, self.alpha)

        # 4) the attributes
        nonempty = [done for done in passes if done.outcome.metric.n_directions]
        last = passes[-1].outcome
        if nonempty:
            metric = nonempty[-1].metric
        else:
            metric = Metric.from_components(as_components(base, points.shape[1], points.dtype))
        self._resume = (nonempty[-1].base, nonempty[-1].outcome.metric) if nonempty else None
        self.status_ = last.status if failure is None else Status.FAILED
        self.alpha_ = last.alpha
        self.duality_gap_ = last.duality_gap
        self.history_ = history_of(passes)
        self.n_iter_ = len(self.history_["pass"])
        facts = {
            "n_samples": points.shape[0],
            "deviations": (
                points.deviations() if isinstance(points, DaskPoints) else deviations(points)
            ).tolist(),
            "n_comparisons": last.n_comparisons,
            "n_iter": self.n_iter_,
            "status": self.status_.name,
            "alpha": self.alpha_,
            "duality_gap": self.duality_gap_,
            "history": {name: values.tolist() for name, values in self.history_.items()},
        }
        for name, value in self._metric_attributes(with_origin(metric, self, facts)).items():
            setattr(self, name, value)
        monitor.end()
        if failure is not None:
            raise failure
        return self

    def score(
        self,
        X: ArrayLike | Points,
        y: ArrayLike | csr_array | None = None,
        *,
        comparisons: Comparisons | None = None,
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
        X = self._validate_points(X, reset=False)
        labels, _ = self._check_targets(X, y, comparisons, None)
        return satisfied_share(
            Metric.from_components(self.components_),
            X,
            self._compare(X, None, labels, None, comparisons, index="exact"),
        )

    def _compare(
        self,
        points: Points | DaskPoints,
        should_stop: ShouldStop,
        labels: NDArray | csr_array | None,
        weights: NDArray | None,
        comparisons: Comparisons | None,
        index: str | Index | None = None,
    ) -> Comparisons:
        """The comparisons to learn from; neighbors are those among the given points."""
        if labels is None:
            assert comparisons is not None
            return comparisons
        mined = Comparisons.from_labels(
            points,
            labels,
            *neighbor_counts(self.n_neighbors),
            neighbors=index or self.neighbors,
            sample_weight=weights,
            n_jobs=self.n_jobs,
            should_stop=should_stop,
        )
        return mined if comparisons is None else mined + comparisons

    def _check_targets(
        self,
        X: Points | DaskPoints,
        y: ArrayLike | csr_array | None,
        comparisons: Comparisons | None,
        sample_weight: ArrayLike | None,
    ) -> tuple[NDArray | csr_array | None, NDArray | None]:
        """Labels and sample weights as validated arrays, or None."""
        if comparisons is not None:
            if not isinstance(comparisons, Comparisons):
                raise TypeError(
                    "comparisons must be a Comparisons object, made by Comparisons.from_triplets, "
                    f"from_quadruplets or from_pairs; got {type(comparisons).__name__}."
                )
            comparisons.check_points(X.shape[0])
        if y is None:
            if comparisons is None:
                raise ValueError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None. "
                    "Pass labels y, or comparisons=Comparisons.from_triplets(...)."
                )
            return None, None
        labels = as_indicator(y)
        if labels is None:
            labels = single_labels(y)
        check_consistent_length(X, labels)
        _, weights = check_labels(labels, sample_weight)
        return labels, weights

    def _check_needs(
        self, labels: NDArray | csr_array | None, sample_weight: ArrayLike | None
    ) -> None:
        """Reject what requires labels if there are none, or classes if y is multilabel."""
        by_class = isinstance(self.init, str) and self.init in ("whiten", "lda")
        if labels is not None:
            if by_class and labels.ndim == 2:
                raise ValueError(
                    f"init={self.init!r} requires one class per point, but y is multilabel. Use "
                    "another init."
                )
            return
        for given, what in (
            (sample_weight is not None, "sample_weight"),
            (self.n_passes > 1, "n_passes > 1"),
            (by_class, f"init={self.init!r}"),
        ):
            if given:
                raise ValueError(f"{what} requires y.")

    def _open_checkpoint(
        self,
        X: Points | DaskPoints,
        labels: NDArray | csr_array | None,
        weights: NDArray | None,
        comparisons: Comparisons | None,
        base: NDArray | None,
        start: Metric | None,
    ) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        parameters = self.get_params(deep=False)
        settings = {name: parameters[name] for name in parameters if name not in WITHOUT_EFFECT}
        started = None if start is None else (start.directions, start.coefs)
        return Checkpoint(
            self.checkpoint,
            settings_of({**settings, "boostmetric": __version__}),
            digest(content_of(X), labels, weights, comparisons, base, started),
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not (isinstance(self.init, str) and self.init in CENTRING)
        return tags

    def _metric_attributes(self, metric: Metric) -> dict[str, Any]:
        """The attributes of an estimator that has learned the metric."""
        if self.n_components is not None:
            metric = metric.truncate(self.n_components)
        return {"metric_": metric, "components_": metric.components}


def _check_first_pass(first: Outcome, alpha: float) -> None:
    """Raise or warn if the first pass found no direction: M = 0 is no metric."""
    if first.metric.n_directions:
        return
    if 0 < first.alpha_max <= first.alpha:
        raise ValueError(
            f"alpha={alpha:g} is too large: no direction lowers the objective. It must be below "
            f"{first.alpha_max:g}; use a smaller alpha, or alpha_relative=True."
        )
    warn(
        "No direction increases the distances of far pairs more than those of near pairs, so the "
        "starting metric is kept (Euclidean, unless init is set). Are the labels random, or near "
        "and far swapped? More targets or another init may help."
    )
