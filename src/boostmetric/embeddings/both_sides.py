"""A metric M = LᵀL for `side="both"`, and the leading rows of its root L.

Three learners have different strengths, and their average is better than each of them: a boosted
metric, shrunk linear discriminant analysis, and a refinement of their average by a softmax over
class means. Without labels, there is only the boosted metric. Held-out nDCG@10 on a part of the
training data of banking77 (MiniLM vectors; 5 and 20 labels per class, all, and classes without
labels):

    learner                             5      20     all    new classes
    none                                .632   .702   .865   .916
    boosted                             .792   .838   .905
    LDA, shrinkage 0.2                  .809   .828   .893   .889
    average of both                     .808   .844   .907   .914
    average of both and the refinement  .811   .846   .911   .916

With 5 labels it is .819 with the larger weight of LDA below.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.sparse import csr_array
from sklearn.utils import gen_batches

from boostmetric.embeddings.query_side import BATCH_SCORES
from boostmetric.estimators import BoostMetric
from boostmetric.problem import Comparisons

N_NEIGHBORS = (15, 15)
ALPHA = 1e-2
"""Targets, impostors and relative strength of the Frobenius regularizer. On a fifth of the training
data of banking77, which was held out, alphas of 1e-3 and 3e-2 and two passes change nDCG by less
than .002. 25 targets and impostors change it by .0005, and take three times as long."""

MAX_DIRECTIONS = 384
BATCH = 48
"""Number of directions, and those per step. On 3,000 points of banking77, 8 steps of 48 take a
third of the time of 32 steps of 16 (500 directions), and nDCG is the same."""

LDA_SHRINKAGE = 0.2
"""Shrinkage of the within-class covariance. 0.5, or that of Ledoit and Wolf, change the nDCG of the
average with the boosted metric by less than .002 on banking77."""

MIN_PER_CLASS = 20
WEIGHT_OF_FEW = 3.0
"""With fewer points per class on average than the first number, boosting has few comparisons, and
the second is the weight of LDA relative to boosting. Held-out nDCG on banking77, MiniLM and static
vectors, with 5 labels per class (four samples): .819 and .733 (weight 1: .810, .725; LDA alone
.814, .722); with 10 (two samples) .784 and .683 (.774, .678; .774, .658). With 20 labels both
weights have the same nDCG, and with all labels weight 3 is .001 and .004 worse."""

TEMPERATURE = 0.07
RIDGE = 32.0
MAX_REFINEMENTS = 30
"""Temperature, ridge and number of L-BFGS steps of the refinement. On the data above, and
with static vectors, ridges of 8 to 64 change nDCG by at most .003 (at a temperature of 0.1). So
does a temperature of 0.1, which is .006 better with 10 labels per class; but then the first result
for new classes is right in .941 of the cases instead of .945 (.943 without an adapter). 0.2 is .003
worse with all labels. 15 steps are .001 worse than 30."""

MAX_CLASS_SCORES = 10**8
"""Points times classes up to which the metric is refined. An evaluation of this size takes about 5
seconds with 384 features on one core."""

TINY = 1e-100
"""Replaces a trace of 0."""


def labeled_metric(X: NDArray, y: NDArray, metric: str, n_jobs: int | None) -> NDArray:
    """M from labels, of shape (D, D) with trace 1: the average of the three learners.

    The refinement is for cosine similarity, and left out for Euclidean distances.
    """
    n, n_classes = len(X), len(np.unique(y))
    axes = discriminant_axes(X, y, [LDA_SHRINKAGE])[0]
    weight = WEIGHT_OF_FEW if n < MIN_PER_CLASS * n_classes else 1.0
    M = boosted_metric(X, y, n_jobs=n_jobs) + weight * with_unit_trace(axes.T @ axes)
    M = with_unit_trace(M)
    if metric == "cosine" and n * n_classes <= MAX_CLASS_SCORES:
        L = refine(root(M), X, y)
        M = (M + with_unit_trace(L.T @ L)) / 2
    return M


def boosted_metric(
    X: NDArray,
    y: NDArray | None = None,
    comparisons: Comparisons | None = None,
    n_jobs: int | None = None,
) -> NDArray:
    """M of `BoostMetric`, divided by its trace."""
    n_terms = len(X) * math.prod(N_NEIGHBORS) if comparisons is None else len(comparisons)
    is_small = n_terms * BATCH <= 1 << 27  # 1 GB of responses to a batch, in float64
    learner = BoostMetric(
        regularizer="frobenius",
        alpha=ALPHA,
        n_neighbors=N_NEIGHBORS,
        # The identity toward which the metric is moved is that of the given vectors.
        init=None,
        n_passes=1,
        max_iter=MAX_DIRECTIONS,
        directions_per_step=BATCH if is_small and X.shape[1] >= 2 * BATCH else "auto",
        tol=0.0,
        verify=False,  # the folds of the adapter verify its maps
        n_jobs=n_jobs,
    )
    with warnings.catch_warnings():
        # Small classes have fewer neighbors; labels may be random. Selection deals with both.
        warnings.simplefilter("ignore", UserWarning)
        learner.fit(X, y, comparisons=comparisons)
    return with_unit_trace(learner.get_mahalanobis_matrix())


def discriminant_axes(X: NDArray, y: NDArray, shrinkages: Sequence[float]) -> list[NDArray]:
    """Axes of linear discriminant analysis as rows, for each shrinkage s.

    With covariances W within and B between classes, the axes a solve B(s)·a = λ·W(s)·a, and
    aᵀW(s)a = 1, where C(s) = (1 − s)·C + s·Tr(C)/D·I. There is one less than there are classes. The
    axes are those of `LinearDiscriminantAnalysis`, which requires more points than classes, and
    computes the covariances again for each shrinkage.

    >>> X = np.array([[0.0, 1.0], [0.0, -1.0], [3.0, 2.0], [3.0, -2.0]])
    >>> np.abs(discriminant_axes(X, np.array([0, 0, 1, 1]), [0.5])[0]).round(3)
    array([[1.265, 0.   ]])
    """
    codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
    n, D = X.shape
    members = csr_array((np.ones(n, X.dtype), (codes, np.arange(n))))
    means = (members @ X) / counts[:, None].astype(X.dtype)
    deviations, centers = X - means[codes], means - X.mean(axis=0)
    within = (deviations.T @ deviations).astype(np.float64) / n
    between = (centers.T @ (centers * counts[:, None])).astype(np.float64) / n
    leading = (max(0, D - len(counts) + 1), D - 1)

    def shrunk(C: NDArray, s: float) -> NDArray:
        return np.asarray((1 - s) * C + s * max(float(np.trace(C)), TINY) / D * np.eye(D))

    return [
        eigh(shrunk(between, s), shrunk(within, s), subset_by_index=leading)[1].T[::-1]
        for s in shrinkages
    ]


def refine(L: NDArray, X: NDArray, y: NDArray) -> NDArray:
    """A root near L with a lower loss of class means, by L-BFGS.

    With L₀ the given L, scaled such that the mean of ‖L₀x‖² is 1,

        minimize over L:   class_mean_loss(L) + RIDGE/(2n)·‖L − L₀‖².

    This is not convex; the result is the local minimum next to L₀, or close to it.
    """
    n, shape = len(X), L.shape
    start = (L / math.sqrt(max(float(np.sum((X @ L.T.astype(X.dtype)) ** 2)) / n, TINY))).ravel()
    strength = RIDGE / n

    def objective(x: NDArray) -> tuple[float, NDArray]:
        value, gradient = class_mean_loss(x.reshape(shape), X, y)
        change = x - start
        return value + strength / 2 * float(change @ change), gradient.ravel() + strength * change

    # The relative decrease that ends the search is about the accuracy of float32.
    options = {"maxiter": MAX_REFINEMENTS, "ftol": 1e-7}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x.reshape(shape))


def class_mean_loss(L: NDArray, X: NDArray, y: NDArray) -> tuple[float, NDArray]:
    """Cross-entropy of a softmax over class means, and its gradient with respect to L.

    With u(x) = Lx/‖Lx‖ and m(c) the mean of u over class c, without x itself if c is its class,
    the loss is the mean over the points of −log p(y | x), where p(c | x) ∝ exp(u(x)ᵀm(c)/T) with T
    the `TEMPERATURE`. Points that are alone in their class are left out of the mean. The cost is
    n·D·(D + C) for C classes.
    """
    codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
    n, dtype = len(X), X.dtype
    members = csr_array((np.ones(n, dtype), (codes, np.arange(n))))
    sizes = counts.astype(dtype)[:, None]

    # 1) unit vectors and class means
    Z = X @ L.T.astype(dtype)
    lengths = np.linalg.norm(Z, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    U = Z / lengths
    means = (members @ U) / sizes

    # 2) loss, and gradients with respect to U (given the means) and the means, in batches of points
    n_used = max(1, int(counts[counts > 1].sum()))
    value = 0.0
    by_U, by_means = np.empty_like(U), np.zeros_like(means)
    for part in gen_batches(n, max(1, BATCH_SCORES // len(counts))):
        own, rows = codes[part], np.arange(len(codes[part]))
        P = U[part] @ means.T
        # The mean without x is (k·m(c) − u)/(k − 1) for a class of k points.
        others = np.maximum(counts[own] - 1, 1).astype(dtype)
        factor = counts[own] / others
        P[rows, own] = factor * P[rows, own] - np.einsum("nd,nd->n", U[part], U[part]) / others
        P /= TEMPERATURE
        P -= P.max(axis=1, keepdims=True)
        chosen = P[rows, own]
        np.exp(P, out=P)
        sums = P.sum(axis=1)
        weights = ((counts[own] > 1) / n_used).astype(dtype)
        value += float(weights @ (np.log(sums) - chosen))
        P *= (weights / (sums * TEMPERATURE)).astype(dtype)[:, None]
        P[rows, own] -= weights / TEMPERATURE
        P[rows, own] *= factor
        by_U[part] = P @ means
        by_means += P.T @ U[part]

    # 3) gradient with respect to L. ‖u‖ is constant, so u·u/(k − 1) does not contribute.
    by_U += (by_means / sizes)[codes]
    by_U -= U * np.einsum("nd,nd->n", by_U, U)[:, None]
    return value, ((by_U / lengths).T @ X).astype(np.float64)


def root(M: NDArray, share: float = 0.0) -> NDArray:
    """L with LᵀL = M + share·m·I, where m is the mean eigenvalue of M ⪰ 0.

    >>> np.abs(root(np.diag([0.0, 6.0]), 1.0)).round(3)
    array([[1.732, 0.   ],
           [0.   , 3.   ]])
    """
    values, vectors = eigh(M)
    values = np.maximum(values, 0)
    return np.asarray((vectors * np.sqrt(values + share * values.mean())).T)


def with_unit_trace(M: NDArray) -> NDArray:
    """M divided by its trace; 0 stays 0."""
    return np.asarray(M / max(float(np.trace(M)), TINY))


def axes_of(X: NDArray) -> NDArray:
    """Eigenvectors of Σ xxᵀ by decreasing eigenvalue, as rows; they preserve inner products best.

    >>> np.abs(axes_of(np.array([[0.0, 2.0], [1.0, 0.0]])))
    array([[0., 1.],
           [1., 0.]])
    """
    return leading_rows(np.eye(X.shape[1]), second_moment(X))


def second_moment(X: NDArray) -> NDArray:
    """Σ xxᵀ in float64, of shape (D, D)."""
    total = np.zeros((X.shape[1], X.shape[1]))
    for part in gen_batches(len(X), 1 << 14):
        points = X[part].astype(np.float64)
        total += points.T @ points
    return total


def leading_rows(L: NDArray, S: NDArray, n_components: int | None = None) -> NDArray:
    """Rotate the rows of L such that the first ones preserve the inner products of L·x best.

    S is the second moment of the vectors x. With 32 rows for banking77, held-out nDCG is .890, and
    .862 with the leading eigenvectors of LᵀL, which are large where the vectors may be small.
    """
    axes = eigh(L @ S @ L.T)[1][:, ::-1].T
    return np.asarray(axes[:n_components] @ L)
