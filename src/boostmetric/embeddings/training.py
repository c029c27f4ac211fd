"""Training data of an adapter: how it is split, and how maps are learned from it.

The kinds of data have one interface: `folds` yields parts to learn from and searches to evaluate,
and `learn` returns one `Maps` for each strength. Strengths are sorted from the closest to the
identity to the farthest.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, StratifiedKFold
from sklearn.utils import gen_batches

from boostmetric.embeddings.query_side import SoftmaxProblem
from boostmetric.embeddings.search import Judge, Maps, Search, own_documents, same_label
from boostmetric.estimators import BoostMetric
from boostmetric.problem import Comparisons

IDENTITY_SHARES = (8.0, 2.0, 0.5, 0.1, 0.0)
"""Strengths γ for `side="both"`: the metric is M + γ·m·I, with m the mean eigenvalue of M. On
banking77, nDCG is largest for 0 with all labels, and for 2 with classes that are not in the
training data. The regularizer `Shrinkage` has the same purpose, but was stopped after 8 minutes
with 8,000 points of 384 features, for which the Frobenius norm takes 15 seconds."""

RIDGES = (1.0, 0.3, 0.1, 0.03)
"""Ridges for `side="query"`. The range was set by five folds of Cranfield and SciFact, among 0.003
to 1000: for queries whose documents were not judged in training, 0.3 is best on both. For the
others, 0.03 is best on Cranfield, and 0.003 on SciFact, where 0.03 loses .014."""

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
"""Shrinkage of the within-class covariance in the discriminant part of the metric. The average of
both parts is about as good as the better one on banking77. Held-out nDCG: .801 with 5 labels per
class (boosted .790, LDA .80), .8985 with all (.8981, .88), and .937 with γ = 0.5 for classes
without labels (.930, .93; .932 without an adapter). 0.5, or the shrinkage of Ledoit and Wolf,
change these values by less than .002."""

TINY = 1e-100
"""Replaces a trace of 0."""

MAX_EVALUATED = 2000
"""Held-out queries per fold: if nDCG has a standard deviation of at most .3, its standard
error is below .007 with this number."""


@dataclass(frozen=True, eq=False)
class Training(ABC):
    """Options that all kinds of data share.

    `metric`, `side` ("both" or "query") and `n_components` are those of the adapter; `unseen` tells
    to split documents or classes instead of queries.
    """

    metric: str
    side: str
    n_components: int | None
    unseen: bool
    n_jobs: int | None
    seed: int

    measure = "ndcg@10"

    @property
    def strengths(self) -> tuple[float, ...]:
        """Candidates, from the closest to the identity to the farthest."""
        return IDENTITY_SHARES if self.side == "both" else RIDGES

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Number of queries (or comparisons) that can be evaluated."""

    @property
    @abstractmethod
    def vectors(self) -> NDArray:
        """The vectors that are searched, or compared."""

    @abstractmethod
    def folds(self, n_folds: int) -> Iterator[tuple[Self, Search | Judge]]:
        """Yield parts to learn from, each with held-out queries; one fold holds out a fifth."""

    @abstractmethod
    def sample(self, share: float) -> Self:
        """A random part of the queries, labels or comparisons."""

    @abstractmethod
    def learn(self, strengths: Sequence[float]) -> list[Maps]:
        """The maps for each strength."""

    def baseline(self) -> Maps:
        """The search without an adapter: the identity, or the leading axes of the vectors."""
        return Maps.both(
            None if self.n_components is None else axes_of(self.vectors)[: self.n_components]
        )

    def _splits(self, n: int, n_folds: int) -> KFold | ShuffleSplit:
        if n_folds == 1:
            return ShuffleSplit(1, test_size=0.2, random_state=self.seed)
        return KFold(min(n, n_folds), shuffle=True, random_state=self.seed)

    def _boosted(
        self, X: NDArray, y: NDArray | None = None, comparisons: Comparisons | None = None
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
            n_jobs=self.n_jobs,
        )
        with warnings.catch_warnings():
            # Small classes have fewer neighbors; labels may be random. Selection deals with both.
            warnings.simplefilter("ignore", UserWarning)
            learner.fit(X, y, comparisons=comparisons)
        return with_unit_trace(learner.get_mahalanobis_matrix())

    def _metric_maps(self, M: NDArray, strengths: Sequence[float]) -> list[Maps]:
        """Maps of both sides: the roots of M, moved toward the identity."""
        values, vectors = eigh(M)
        values = np.maximum(values, 0)
        roots = [(vectors * np.sqrt(values + each * values.mean())).T for each in strengths]
        if self.n_components is not None:
            S = second_moment(self.vectors)
            roots = [leading_rows(L, S, self.n_components) for L in roots]
        return [Maps.both(L) for L in roots]

    def _query_maps(self, problem: SoftmaxProblem, strengths: Sequence[float]) -> list[Maps]:
        """Maps of the queries for decreasing ridges, each starting from the one before."""
        maps: list[Maps] = []
        W: NDArray | None = None
        for ridge in strengths:
            W = problem.solve(ridge, W)
            maps.append(Maps.of_queries(W))
        return maps


@dataclass(frozen=True, eq=False)
class Labeled(Training):
    """Vectors X with labels y (codes); `rows` are their numbers among those of the user."""

    X: NDArray
    y: NDArray
    rows: NDArray

    @property
    def n_units(self) -> int:
        counts = np.bincount(self.y)
        return int(counts[counts > 1].sum())

    @property
    def vectors(self) -> NDArray:
        return self.X

    def folds(self, n_folds: int) -> Iterator[tuple[Self, Search]]:
        if self.unseen:
            n_classes = len(np.unique(self.y))
            folds = GroupKFold(
                min(max(2, n_folds), n_classes), shuffle=True, random_state=self.seed
            )
            parts = list(folds.split(self.X, groups=self.y))[: max(1, n_folds)]
        elif n_folds == 1:
            parts = list(ShuffleSplit(1, test_size=0.2, random_state=self.seed).split(self.X))
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # classes smaller than n_folds
                folds = StratifiedKFold(n_folds, shuffle=True, random_state=self.seed)
                parts = list(folds.split(self.X, self.y))
        rng = np.random.default_rng(self.seed)
        for train, test in parts:
            test = np.sort(rng.permutation(test)[:MAX_EVALUATED])
            yield self._part(train), self._search(train, test)

    def _part(self, rows: NDArray) -> Self:
        return replace(self, X=self.X[rows], y=self.y[rows], rows=self.rows[rows])

    def _search(self, train: NDArray, test: NDArray) -> Search:
        """Test queries among the training vectors; new classes among all vectors but their own."""
        if self.unseen:
            own, n = test, len(self.X)
            grades = same_label(self.y[test], self.y, own)
            searched, exclude = self.X, own_documents(own, n)
        else:
            grades, searched, exclude = same_label(self.y[test], self.y[train]), self.X[train], None
        found = np.flatnonzero(np.diff(grades.indptr))
        exclude = None if exclude is None else csr_array(exclude[found])
        kept = test[found]
        return Search(
            self.X[kept], searched, csr_array(grades[found]), self.rows[kept], self.metric, exclude
        )

    def sample(self, share: float) -> Self:
        rng = np.random.default_rng(self.seed)
        # The same share of every class: a random rank within the class.
        order = np.lexsort((rng.random(len(self.y)), self.y))
        counts = np.bincount(self.y)
        ranks = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        kept = ranks < np.maximum(np.ceil(share * counts), 2)[self.y[order]]
        return self._part(np.sort(order[kept]))

    def learn(self, strengths: Sequence[float]) -> list[Maps]:
        if self.side == "both":
            axes = discriminant_axes(self.X, self.y, [LDA_SHRINKAGE])[0]
            M = self._boosted(self.X, self.y) + with_unit_trace(axes.T @ axes)
            return self._metric_maps(M, strengths)
        rows = np.arange(len(self.X))
        grades = same_label(self.y, self.y, rows)
        used = np.flatnonzero(np.diff(grades.indptr))
        exclude = csr_array(own_documents(rows, len(rows))[used])
        targets = csr_array(grades[used])
        offsets = document_offsets(self.X, self.metric)
        problem = SoftmaxProblem(
            self.X[used], self.X, targets, offsets, exclude, random_state=self.seed
        )
        return self._query_maps(problem, strengths)


@dataclass(frozen=True, eq=False)
class Judged(Training):
    """Queries, documents and grades; every query has a relevant document.

    `nearest` are the documents near each query, of shape (n, h), if there are too many for a
    softmax over all of them.
    """

    queries: NDArray
    documents: NDArray
    grades: csr_array
    rows: NDArray
    nearest: NDArray | None = None

    @property
    def n_units(self) -> int:
        return len(self.queries)

    @property
    def vectors(self) -> NDArray:
        return self.documents

    def folds(self, n_folds: int) -> Iterator[tuple[Self, Search]]:
        rng = np.random.default_rng(self.seed)
        queries = [
            (train, np.sort(rng.permutation(test)[:MAX_EVALUATED]))
            for train, test in self._splits(len(self.queries), n_folds).split(self.queries)
        ]
        judged = np.unique(self.grades.indices)
        if not self.unseen:
            for train, test in queries:
                yield self._part(train), self._search(test, self.grades[test])
            return
        # New documents: training knows neither the queries nor the documents of a fold, and other
        # relevant documents of its queries are left out of the ranking.
        documents = self._splits(len(judged), len(queries)).split(judged)
        for (train, test), (_, new) in zip(queries, documents, strict=True):
            is_new = np.zeros(self.grades.shape[1])
            is_new[judged[new]] = 1
            known = self.grades.multiply(1 - is_new).tocsr()
            found = self.grades.multiply(is_new).tocsr()
            for each in (known, found):
                each.eliminate_zeros()
            train, test = (
                rows[np.diff(each.indptr)[rows] > 0]
                for rows, each in ((train, known), (test, found))
            )
            if len(train) and len(test):
                part = replace(self, grades=csr_array(known))._part(train)
                yield part, self._search(test, found[test], csr_array(known[test]))

    def _part(self, rows: NDArray) -> Self:
        return replace(
            self,
            queries=self.queries[rows],
            grades=csr_array(self.grades[rows]),
            rows=self.rows[rows],
            nearest=None if self.nearest is None else self.nearest[rows],
        )

    def _search(self, test: NDArray, grades: csr_array, exclude: csr_array | None = None) -> Search:
        rows = self.rows[test]
        return Search(
            self.queries[test], self.documents, csr_array(grades), rows, self.metric, exclude
        )

    def sample(self, share: float) -> Self:
        rng = np.random.default_rng(self.seed)
        n = max(2, round(share * len(self.queries)))
        return self._part(np.sort(rng.permutation(len(self.queries))[:n]))

    def learn(self, strengths: Sequence[float]) -> list[Maps]:
        if self.side == "both":
            points = np.concatenate([self.queries, self.documents])
            M = self._boosted(points, comparisons=self._triplets())
            return self._metric_maps(M, strengths)
        offsets = document_offsets(self.documents, self.metric)
        problem = SoftmaxProblem(
            self.queries,
            self.documents,
            self.grades,
            offsets,
            nearest=self.nearest,
            random_state=self.seed,
        )
        return self._query_maps(problem, strengths)

    def _triplets(self) -> Comparisons:
        """Each query is closer to its relevant documents than to the nearest other ones."""
        n_queries, n_hard = len(self.queries), N_NEIGHBORS[1]
        triplets = []
        offsets = document_offsets(self.documents, self.metric)
        for part in gen_batches(n_queries, max(1, (1 << 23) // len(self.documents))):
            scores = self.queries[part] @ self.documents.T + offsets
            for row, found in zip(range(part.start, part.stop), scores, strict=True):
                relevant = self.grades.indices[
                    self.grades.indptr[row] : self.grades.indptr[row + 1]
                ]
                found[relevant] = -np.inf
                hard = np.argpartition(-found, min(n_hard, len(found) - 1))[:n_hard]
                hard = hard[np.isfinite(found[hard])]
                near, far = (each.ravel() for each in np.meshgrid(relevant, hard))
                triplets.append(np.stack([np.full(len(near), row), near, far], axis=1))
        rows = np.concatenate(triplets)
        rows[:, 1:] += n_queries
        return Comparisons.from_triplets(rows)


@dataclass(frozen=True, eq=False)
class Compared(Training):
    """Vectors and comparisons of them."""

    X: NDArray
    comparisons: Comparisons

    measure = "satisfied"

    @property
    def n_units(self) -> int:
        return len(self.comparisons)

    @property
    def vectors(self) -> NDArray:
        return self.X

    def folds(self, n_folds: int) -> Iterator[tuple[Self, Judge]]:
        for train, test in self._splits(self.n_units, n_folds).split(self.comparisons.near):
            part = replace(self, comparisons=self.comparisons[train])
            yield part, Judge(self.X, self.comparisons[test], test, self.metric)

    def sample(self, share: float) -> Self:
        rng = np.random.default_rng(self.seed)
        n = max(2, round(share * self.n_units))
        rows = np.sort(rng.permutation(self.n_units)[:n])
        return replace(self, comparisons=self.comparisons[rows])

    def learn(self, strengths: Sequence[float]) -> list[Maps]:
        return self._metric_maps(self._boosted(self.X, comparisons=self.comparisons), strengths)


def document_offsets(documents: NDArray, metric: str) -> NDArray:
    """o(d) of `query_side`; −∞ for zero documents with cosine, which do not compete."""
    if metric == "cosine":
        return np.where(documents.any(axis=1), 0.0, -np.inf)
    return np.asarray(-0.5 * np.einsum("nd,nd->n", documents, documents))


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
