"""BoostMetric, the scikit-learn estimator."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from boostmetric._version import __version__
from boostmetric.checkpoint import Checkpoint, digest, settings_of
from boostmetric.comparisons import Comparisons
from boostmetric.evaluation import satisfied_share
from boostmetric.initial import CENTRING, as_components, starting_transformation
from boostmetric.labels import as_indicator, check_labels
from boostmetric.learned import LearnedMetric, single_labels
from boostmetric.losses import Loss
from boostmetric.metric import Metric
from boostmetric.monitor import CallbackSupportMixin, Monitor, with_callbacks
from boostmetric.neighbors import Index
from boostmetric.origin import with_origin
from boostmetric.parameters import check_parameters, options_of
from boostmetric.passes import completed, history_of
from boostmetric.points import Points, are_identical, deviations
from boostmetric.state import Status
from boostmetric.training import Training, check_first_pass

INESSENTIAL = ("checkpoint", "n_jobs", "verbose", "warm_start")
"""Parameters that what is learned does not depend on, given where the fit starts."""


class BoostMetric(CallbackSupportMixin, LearnedMetric):
    """Learn a Mahalanobis metric by boosting rank-one matrices (Shen et al., JMLR 2012).

    Minimises F(ρ) + R(M) over M ⪰ 0, where ρ_r = d²_M(far_r) − d²_M(near_r) are the margins
    of comparisons. M is a sum of rank-one matrices; each iteration adds some, the leading
    eigenvectors of a matrix that the badly satisfied comparisons dominate.

    Parameters
    ----------
    loss : {"logistic", "exponential", "squared_hinge", "smoothed_hinge", "hinge"} or Loss, \
            default="logistic"
        F, how margins count. The logistic loss and the hinges bear with comparisons that cannot be
        satisfied. "hinge" is the soft-margin linear program (`Hinge`), which has `nu` for alpha.
    solver : None or {"stagewise", "totally_corrective"}, default=None
        How coefficients are found: stage-wise, when their directions are added, or all of them
        anew in each iteration, which takes longer and goes to the optimum. None is stage-wise, but
        for the hinge.
    regularizer : {"trace", "frobenius"}, default="trace"
        R, alpha·Tr M, which favours low rank, or alpha/2·‖M‖², which favours equal eigenvalues.
    alpha : float, default=1e-7
        The strength of the regulariser. Small values, down to 0, hardly matter.
    alpha_relative : bool, default=True
        Whether alpha is a fraction of the largest eigenvalue of the first scatter, above which
        M = 0 is optimal (for "frobenius" see `Frobenius`); else it is the paper's absolute v.
    max_iter : int, default=500
        Number of directions at most, in each pass; an iteration counts for `block_size` of them.
    block_size : int or None, default=None
        Directions that an iteration adds. With 1 the stage-wise solver is the paper's algorithm;
        in a larger block coefficients are found together, and older ones scaled with them, which
        is faster. None is 24 (D/2 if that is less, 8 for more than 600 features), or 1 for fewer
        than 16 features or 10,000 comparisons; it is 4 for the totally corrective solver.
    n_neighbors : int or (int, int), default=3
        With labels, the number of targets and of impostors of each point.
    neighbors : {"exact", "approximate"} or index, default="exact"
        How they are looked for; an index is an object with `fit(X)` and `kneighbors(X, k)`. Sparse
        points, and points of several labels, are for "exact" only; an index for points in memory.
    n_passes : int, default=1
        With labels, how often neighbours are looked for: after each pass again, in the space it
        learned.
    n_components : int, float or None, default=None
        Keep this many leading eigenvectors of M at most, or, for a float in (0, 1), as many as
        carry this share of its trace.
    init : None, {"scale", "whiten", "pca", "lda"} or array of shape (d, D), default=None
        A transformation to start from: neighbours are looked for, and the metric learned, in its
        image. "whiten" is by the shrunk within-class covariance. Sparse points cannot be centred,
        so for these it is None, "scale" or an array.
    tol : float or None, default=None
        End a pass when the metric is known to be optimal to within this share of the objective;
        0 does not look. None is 1e-3 for the totally corrective solver and 0 for the stage-wise
        one, which in general does not come close to the optimum.
    eigen_solver : {"auto", "exact", "lanczos", "power", "randomized"}, default="auto"
        How leading eigenvectors are found: exactly up to 600 features, and for more by one product
        with those of the iteration before. The others begin with rough ones.
    early_stopping : bool, default=False
        Hold out data and keep the metric that does best on them: by the error of the
        `n_neighbors` nearest neighbours where there are labels, else by the comparisons violated.
        Where points have several labels, the error is the share of neighbours with none in common.
    validation_fraction : float, default=0.1
        The share that `early_stopping` holds out, of each class or of the comparisons.
    n_iter_no_change : int, default=50
        Directions without a lower held-out error after which `early_stopping` ends a pass.
    warm_start : bool, default=False
        Go on from the metric of the last call of `fit`, in its last pass, instead of from nothing.
    checkpoint : path or None, default=None
        A file that follows the fit: it is written every few seconds and after every pass. Where the
        file of a fit that was killed is there, `fit` with the same data and parameters goes on from
        it, and ends as if it had never been interrupted.
    n_jobs : int or None, default=None
        Number of threads that look for neighbours. The result does not depend on it.
    random_state : int, RandomState or None, default=None
        Chooses what `early_stopping` holds out; nothing else is random.
    verbose : int, default=0
        1 logs every tenth iteration, 2 every one (logger "boostmetric").

    Attributes
    ----------
    components_ : array of shape (n_components, D)
        M = components_ᵀ·components_; rows by falling eigenvalue of M.
    metric_ : Metric
        The metric over the features of X: directions, coefficients, distances.
    n_iter_ : int
        Number of iterations, in all passes.
    history_ : dict of arrays of shape (n_iter_,)
        After each iteration: "pass" and the fields of `Iteration`, among them "objective",
        "lambda_max", "coef", "n_violated", "duality_gap" and "seconds".
    status_ : Status
        How the last pass ended; its text says what to do.
    duality_gap_ : float
        What the objective of the last pass lies above its optimum at most. Infinite where no bound
        was found, NaN where none was looked for: with `tol` 0, or more than 600 features.
    alpha_ : float
        The absolute alpha of the last pass; for the hinge, the price of trace that was found.
    n_features_in_, feature_names_in_
        As in every scikit-learn estimator.

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

    From statements alone, here that point 0 is nearer to point 1 than to point 2, and so on:

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
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks  # type: ignore[untyped-decorator]
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
            sparse, but for its products with directions
        y : array of shape (n,), labels of any type; or an indicator of shape (n, L) of 0 and 1,
            dense or sparse: points that share a label are similar
        comparisons : Comparisons of the rows of this X
        sample_weight : array of shape (n,), the weight of the comparisons that are made from a
            point and its neighbours; a weight of 2 is the same as giving the point twice, one of 0
            as leaving it out

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False))
        resumed = getattr(self, "_resume", None) if self.warm_start else None
        points = self._validate_points(X, reset=resumed is None)
        labels, weights = self._check_targets(points, y, comparisons, sample_weight)
        self._check_needs(labels, sample_weight)
        if are_identical(points):
            raise ValueError(
                f"all {points.shape[0]} points are identical: there is no metric to learn."
            )
        if isinstance(self.n_components, Integral) and self.n_components > points.shape[1]:
            raise ValueError(
                f"n_components={self.n_components}, but X has {points.shape[1]} features."
            )

        base, start = resumed or (
            starting_transformation(self.init, points, labels, weights, self.n_components),
            None,
        )
        base = None if base is None else base.astype(points.dtype)
        n_passes = 1 if resumed else self.n_passes
        training = self._training(points, labels, weights, comparisons, base, start)
        fit_data = {"X": points, "y": y, "metadata": {"sample_weight": sample_weight}}
        monitor = Monitor(self, self._metric_attributes, n_passes, fit_data, training.n_done)
        passes, failure = completed(training.passes(monitor, points, base, n_passes))
        check_first_pass(passes[0].fit, self.alpha)
        fruitful = [done for done in passes if done.fit.metric.n_directions]
        metric = (
            fruitful[-1].metric
            if fruitful
            else Metric.from_components(as_components(base, points.shape[1], points.dtype))
        )
        self._resume = (fruitful[-1].base, fruitful[-1].fit.metric) if fruitful else None
        self.status_ = passes[-1].fit.status if failure is None else Status.FAILED
        self.alpha_ = passes[-1].fit.alpha
        self.duality_gap_ = passes[-1].fit.duality_gap
        self.history_ = history_of(passes)
        self.n_iter_ = len(self.history_["pass"])
        metric = with_origin(metric, self, self._facts(points, passes[-1].fit.n_comparisons))
        for name, value in self._metric_attributes(metric).items():
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
        comparisons : Comparisons of the rows of X, instead of or beside labels
        """
        check_is_fitted(self, "components_")
        X = self._validate_points(X, reset=False)
        labels, _ = self._check_targets(X, y, comparisons, None)
        training = Training(labels, comparisons=comparisons, n_neighbors=self._neighbors())
        return satisfied_share(self.metric_, X, training.compare(X))

    def _neighbors(self) -> tuple[int, int]:
        """The numbers of targets and of impostors."""
        if isinstance(self.n_neighbors, tuple | list):
            targets, impostors = self.n_neighbors
            return targets, impostors
        return self.n_neighbors, self.n_neighbors

    def _check_targets(
        self,
        X: Points,
        y: ArrayLike | csr_array | None,
        comparisons: Comparisons | None,
        sample_weight: ArrayLike | None,
    ) -> tuple[NDArray | csr_array | None, NDArray | None]:
        """Labels and sample weights as arrays, or None, after all that can be checked of them."""
        if comparisons is not None:
            if not isinstance(comparisons, Comparisons):
                raise TypeError(
                    f"comparisons must be made by Comparisons.from_triplets, from_quadruplets or "
                    f"from_pairs; got {type(comparisons).__name__}."
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
        """Refuse what needs labels where there are none, or classes where points have several."""
        by_class = isinstance(self.init, str) and self.init in ("whiten", "lda")
        if labels is not None:
            if by_class and labels.ndim == 2:
                raise ValueError(
                    f"init={self.init!r} goes by classes, but points have several labels each. Use "
                    "another init."
                )
            return
        for given, what in (
            (sample_weight is not None, "sample_weight"),
            (self.n_passes > 1, f"n_passes={self.n_passes}"),
            (by_class, f"init={self.init!r}"),
        ):
            if given:
                raise ValueError(f"{what} needs labels y: comparisons alone came.")

    def _training(
        self,
        X: Points,
        labels: NDArray | csr_array | None,
        weights: NDArray | None,
        comparisons: Comparisons | None,
        base: NDArray | None,
        start: Metric | None,
    ) -> Training:
        checkpoint = None
        if self.checkpoint is not None:
            parameters = self.get_params(deep=False)
            settings = {name: parameters[name] for name in parameters if name not in INESSENTIAL}
            checkpoint = Checkpoint(
                self.checkpoint,
                settings_of(settings | {"boostmetric": __version__}),
                digest(X, labels, weights, comparisons, base, start),
            )
        return Training(
            labels,
            weights,
            comparisons,
            n_neighbors=self._neighbors(),
            neighbors=self.neighbors,
            n_jobs=self.n_jobs,
            validation_fraction=self.validation_fraction if self.early_stopping else None,
            patience=self.n_iter_no_change,
            rng=check_random_state(self.random_state),
            checkpoint=checkpoint,
            boosting={
                **options_of(self.get_params(deep=False)),
                "start": start,
            },
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not (isinstance(self.init, str) and self.init in CENTRING)
        return tags

    def _facts(self, X: Points, n_comparisons: int) -> dict[str, Any]:
        """What the metric is to tell of the fit."""
        return {
            "n_samples": X.shape[0],
            "deviations": deviations(X).tolist(),
            "n_comparisons": n_comparisons,
            "n_iter": self.n_iter_,
            "status": self.status_.name,
            "alpha": self.alpha_,
            "duality_gap": self.duality_gap_,
            "history": {name: values.tolist() for name, values in self.history_.items()},
        }

    def _metric_attributes(self, metric: Metric) -> dict[str, Any]:
        """The attributes that make this estimator one that has learned the metric."""
        if self.n_components is not None:
            metric = metric.truncate(self.n_components)
        return {"metric_": metric, "components_": metric.components}
