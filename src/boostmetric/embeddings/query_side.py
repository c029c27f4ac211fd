"""A linear map of the queries, learned by a softmax over documents; documents stay as indexed.

The score of a document d for a query q is s(q, d) = β·(qᵀ(I + W)d + o(d)), where o(d) = 0 for
cosine similarity, and o(d) = −‖d‖²/2 for Euclidean distances, because
−‖q′ − d‖²/2 = q′ᵀd − ‖d‖²/2 − ‖q′‖²/2 and the last term is the same for all documents. With
p(d | q) ∝ exp s(q, d) and target probabilities t(d | q) proportional to the grades,

    minimize over W:   −(1/n)·Σ_q Σ_d t(d | q)·log p(d | q) + λ/2·‖W‖².

This is convex. β is the value that fits best with W = 0. The unit of the ridge is λ = ridge·β²·v/n,
with n queries and v the product of their mean squared length and of the total variance of documents
under p: it does not depend on the scale of the vectors, and the best ridge changes little with n,
because the penalty of the sum over queries does not depend on n.

L-BFGS needs 10 to 50 evaluations for each ridge of the path. Scaling W by the roots of an
approximate Hessian, a Kronecker product, was not faster: 31 evaluations without and 32 with it on
Cranfield, 28 and 43 on SciFact, for a ridge of 0.03.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.optimize import minimize
from scipy.sparse import csr_array
from sklearn.utils import gen_batches

from boostmetric.engines import Threads
from boostmetric.neighbors import FaissIndex

MAX_SCORES = 2 * 10**8
"""Number of scores up to which an evaluation of the softmax is exact; above, negatives are sampled.
An exact evaluation of 10⁹ scores takes 8 seconds with 64 features on one core, and a fit needs 60.
"""

SAMPLED_SCORES = 2 * 10**7
MIN_SAMPLED = 2000
"""Number of scores of an evaluation with sampled negatives, and at least this number of documents
for each query. With 50,000 queries of 384 features, an evaluation takes 7 seconds on one core
(extrapolated from 3,000 queries), and half of the documents would take as long. With 4,000 queries
and 40,000 synthetic documents, nDCG is .974 with all documents, .972 with 5,000, .973 with 2,500,
.966 with 1,000, and .969 with 500."""

N_HARD = 20
"""Nearest documents of each query that are always among the sampled negatives."""

MAX_INDEXED = 100_000
"""The nearest documents are those of a random sample of this size. An index has its own copy of the
documents, and with 200,000 of them, 384 features and 50,000 queries it took 134 seconds on one
core."""

MIN_LOSS = 0.01
"""The best β is infinite for a search that is perfect already. β ends where the loss is about this
small: probabilities that are nearly 0 or 1 have no digits left for their variance in float32."""

N_BATCHES, MIN_ROWS = 8, 256
"""Number of batches of an exact softmax, for the threads, unless they have fewer queries."""

BATCH_SCORES = 1 << 23
"""Number of scores in memory at a time, 32 MB in float32."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive queries, with targets of shape (rows, columns).

    `columns` are the documents of the softmax, None for all of them; `shifts` are added to the
    scores: log(N/m) for m documents that stand for N. `excluded` are pairs of row and column.
    """

    rows: slice
    columns: NDArray | None
    targets: csr_array
    excluded: tuple[NDArray, NDArray]
    shifts: NDArray


class SoftmaxProblem:
    """Loss of W, its gradient, and solutions for several ridges.

    Parameters
    ----------
    queries, documents : arrays of shape (n, D) and (N, D), float32 or float64
    grades : of shape (n, N), nonnegative; every row has a positive entry
    offsets : o(d), of shape (N,)
    exclude : of shape (n, N); documents with a nonzero entry do not compete for that query
    nearest : documents near each query, of shape (n, h), or None; −1 is ignored
    max_scores : above this number of scores, each batch of queries competes with its own judged and
        nearest documents and a fixed random sample of the others
    random_state : determines the sample
    threads : of evaluations; their number does not affect the result. None is one thread
    """

    def __init__(
        self,
        queries: NDArray,
        documents: NDArray,
        grades: csr_array,
        offsets: NDArray | None = None,
        exclude: csr_array | None = None,
        *,
        nearest: NDArray | None = None,
        max_scores: int = MAX_SCORES,
        random_state: int = 0,
        threads: Threads | None = None,
    ) -> None:
        self.threads = Threads(1) if threads is None else threads
        self.Q, self.D = queries, documents
        self.n_queries, self.n_features = queries.shape
        self.offsets = np.zeros(len(documents)) if offsets is None else offsets
        self.offsets = self.offsets.astype(documents.dtype)
        sums = np.asarray(grades.sum(axis=1)).ravel()
        self.T = csr_array(grades.multiply(1 / sums[:, None])).astype(documents.dtype)
        n_columns = len(documents)
        if n_columns * self.n_queries > max_scores:
            n_columns = max(MIN_SAMPLED, SAMPLED_SCORES // self.n_queries)
            n_columns = max(1, min(n_columns, max_scores // self.n_queries))
        rng = np.random.default_rng(random_state)
        if nearest is None:
            nearest = np.empty((self.n_queries, 0), dtype=np.intp)
        self.batches = list(self._make_batches(n_columns, exclude, nearest, rng))
        self.scale = 1.0
        self._fit_scale()
        self.variance = self._variance()

    def _make_batches(
        self,
        n_columns: int,
        exclude: csr_array | None,
        nearest: NDArray,
        rng: np.random.Generator,
    ) -> Iterator[Batch]:
        N = len(self.D)
        n_rows = BATCH_SCORES // n_columns
        if n_columns < N:  # at most about half of the documents of a batch are judged or near
            n_own = self.T.nnz / self.n_queries + nearest.shape[1]
            n_rows = min(n_rows, int(n_columns / (2 * n_own)))
        else:  # for the threads
            n_rows = min(n_rows, max(MIN_ROWS, math.ceil(self.n_queries / N_BATCHES)))
        for rows in gen_batches(self.n_queries, max(1, n_rows)):
            targets = csr_array(self.T[rows])
            columns, shifts = None, np.zeros(1, self.D.dtype)
            excluded = None if exclude is None else csr_array(exclude[rows])
            if n_columns < N:
                own = np.union1d(targets.indices, nearest[rows])
                own = own[own >= 0].astype(np.intp)
                others = np.delete(np.arange(N), own)
                n_sampled = min(max(n_columns // 2, n_columns - len(own)), len(others))
                sample = rng.choice(others, n_sampled, replace=False)
                columns = np.concatenate([own, np.sort(sample)])
                shifts = np.zeros(len(columns), self.D.dtype)
                shifts[len(own) :] = np.log(max(1, len(others)) / max(1, len(sample)))
                targets = csr_array(targets[:, columns])
                excluded = None if excluded is None else csr_array(excluded[:, columns])
            pairs = (np.empty(0, np.intp),) * 2 if excluded is None else excluded.nonzero()
            yield Batch(rows, columns, targets, pairs, shifts)

    def _softmax(self, batch: Batch, A: NDArray | None = None) -> tuple[NDArray, NDArray, NDArray]:
        """Return the documents of a batch, probabilities, and log-likelihoods of the targets.

        Scores are qᵀAd + β·o(d); None is β times the identity.
        """
        columns = slice(None) if batch.columns is None else batch.columns
        D, Q = self.D[columns], self.Q[batch.rows]
        scores = (self.scale * Q if A is None else Q @ A) @ D.T
        scores += self.scale * self.offsets[columns] + batch.shifts
        scores[batch.excluded] = -np.inf
        scores -= scores.max(axis=1, keepdims=True)
        T = batch.targets
        rows = np.repeat(np.arange(T.shape[0]), np.diff(T.indptr))
        chosen = scores[rows, T.indices]
        np.exp(scores, out=scores)
        sums = scores.sum(axis=1, dtype=np.float64)
        scores /= sums[:, None].astype(scores.dtype)
        logs = np.bincount(rows, T.data * chosen, T.shape[0]) - np.log(sums)
        return D, scores, logs

    def loss(self, W: NDArray) -> tuple[float, NDArray]:
        """The mean negative log-likelihood, without the ridge, and its gradient (D, D)."""
        A = (self.scale * (np.eye(len(W)) + W)).astype(self.D.dtype)

        def loss_of(batch: Batch) -> tuple[float, NDArray]:
            D, P, logs = self._softmax(batch, A)
            return -float(logs.sum()), self.Q[batch.rows].T @ (P @ D - batch.targets @ D)

        value, gradient = 0.0, np.zeros(W.shape)
        for value_of, gradient_of in self.threads.map(loss_of, self.batches):
            value += value_of
            gradient += gradient_of
        return value / self.n_queries, gradient * (self.scale / self.n_queries)

    def _fit_scale(self) -> None:
        """Set β: Newton's method on the loss at W = 0, with its mean and variance of the scores."""
        # One pass over a few thousand queries determines a single number well enough.
        some = [batch for batch in self.batches if batch.rows.start < 2000]
        everything, self.batches = self.batches, some
        n_queries = sum(batch.targets.shape[0] for batch in some)
        # A scale at which scores differ by about 1 between documents.
        probe = self.Q[:200] @ self.D[:2000].T + self.offsets[:2000]
        unit = 1 / max(float(np.std(probe[np.isfinite(probe)])), 1e-30)
        self.scale = unit
        for _ in range(20):
            loss = slope = curvature = 0.0
            for batch in self.batches:
                D, P, logs = self._softmax(batch)
                columns = slice(None) if batch.columns is None else batch.columns
                raw = self.Q[batch.rows] @ D.T + self.offsets[columns]
                raw[~np.isfinite(raw)] = 0
                means = np.einsum("bn,bn->b", P, raw)
                loss -= float(logs.sum()) / n_queries
                slope += float((means - batch.targets.multiply(raw).sum(axis=1)).sum())
                curvature += float((np.einsum("bn,bn->b", P, raw**2) - means**2).sum())
            step = -slope / max(curvature, np.finfo(float).tiny)
            # A baseline that is no better than chance would have β = 0: W could not learn.
            previous, low, high = self.scale, max(unit / 4, self.scale / 3), self.scale * 3
            if loss < 1:  # a small loss decreases exponentially with β
                exponent = math.log(MIN_LOSS) / math.log(max(loss, 1e-300))
                high = max(low, min(high, self.scale * exponent))
            self.scale = float(np.clip(self.scale + step, low, high))
            if abs(self.scale - previous) <= 1e-3 * self.scale:
                break
        self.batches = everything

    def _variance(self) -> float:
        """The mean of ‖q‖² times the mean over q of the total variance of d under p(d | q)."""
        total = 0.0
        for batch in self.batches:
            D, P, _ = self._softmax(batch)
            # The sums of P are not exactly 1 in float32, and the difference may be small.
            means = (P @ D).astype(np.float64)
            squares = P @ np.einsum("nd,nd->n", D, D, dtype=np.float64)
            sums = P.sum(axis=1, dtype=np.float64)
            total += float(squares.sum() - (np.einsum("nd,nd->n", means, means) / sums).sum())
        mean_square = float(np.einsum("nd,nd->", self.Q, self.Q)) / self.n_queries
        return mean_square * total / self.n_queries

    def solve(
        self, ridge: float, start: NDArray | None = None, *, tol: float = 1e-4, max_iter: int = 200
    ) -> NDArray:
        """The optimal W for a ridge, of shape (D, D), by L-BFGS from `start` or from W = 0.

        Ends if all entries of the gradient are at most `tol` times the largest at W = 0, or if the
        objective does not decrease by 1e-7 of its value, the accuracy of float32.
        """
        strength = ridge * self.scale**2 * self.variance / self.n_queries
        shape = (self.n_features, self.n_features)

        def objective(x: NDArray) -> tuple[float, NDArray]:
            value, gradient = self.loss(x.reshape(shape))
            return value + strength / 2 * float(x @ x), gradient.ravel() + strength * x

        x = np.zeros(self.n_features**2)
        largest = np.abs(objective(x)[1]).max()
        x = x if start is None else start.ravel()
        options = {"maxiter": max_iter, "gtol": tol * largest, "ftol": 1e-7, "maxcor": 10}
        found = minimize(objective, x, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(found.x.reshape(shape))


def nearest_documents(
    queries: NDArray, documents: NDArray, n_jobs: int | None, random_state: int
) -> NDArray | None:
    """Documents near each query, of shape (n, N_HARD), by FAISS; −1 stands for no document.

    None if FAISS is not installed, or if the softmax is over all documents.
    """
    N = len(documents)
    if len(queries) * N <= MAX_SCORES or find_spec("faiss") is None:
        return None
    rng = np.random.default_rng(random_state)
    sample = np.sort(rng.choice(N, min(N, MAX_INDEXED), replace=False))
    index = FaissIndex(Threads(n_jobs).n_jobs)
    index.fit(documents[sample])
    found = index.kneighbors(queries, N_HARD)[1]
    return np.where(found < 0, -1, sample[found])


def closed_form_map(queries: NDArray, targets: NDArray, ridge: float) -> NDArray:
    """W of the map q ↦ (I + W)ᵀq with the smallest Σ_q ‖(I + W)ᵀq − target(q)‖² + λ‖W‖².

    λ = ridge times the mean eigenvalue of Σ qqᵀ, so the strength does not depend on the number of
    queries or on their scale.

    >>> closed_form_map(np.eye(2), np.array([[0.0, 1.0], [0.0, 1.0]]), 0.0)
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    Q = queries.astype(np.float64)
    S = Q.T @ Q
    S.flat[:: len(S) + 1] += ridge * np.trace(S) / len(S)
    return np.asarray(solve(S, Q.T @ (targets - Q), assume_a="pos"))
