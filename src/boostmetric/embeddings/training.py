"""Training data of an adapter: how it is split, and how maps are learned from it.

The kinds of data have one interface: `folds` yields parts to learn from and searches to evaluate,
and `learn` returns one `Maps` for each strength. Strengths are sorted from the closest to the
identity to the farthest.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, StratifiedKFold
from sklearn.utils import gen_batches

from boostmetric.embeddings.both_sides import (
    N_NEIGHBORS,
    axes_of,
    boosted_metric,
    labeled_metric,
    leading_rows,
    root,
    second_moment,
)
from boostmetric.embeddings.query_side import SoftmaxProblem
from boostmetric.embeddings.search import Judge, Maps, Search, own_documents, same_label
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

MAX_EVALUATED = 2000
MIN_EVALUATED = 500
MAX_RANKED = 5 * 10**8
"""Held-out queries per fold: if the change of nDCG has a standard deviation of .3, its standard
error is .007 with the largest number, and .013 with the smallest. In between, queries times
documents are the third number; twice as many scores took 43 seconds with 384 features on one core.
"""

MAX_LEARNED = 10_000
"""Queries with judgments that a fold learns from: the unit of the ridge is such that its best value
changes little with their number. The gain of a fold is then that of fewer queries."""


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

    def _metric_maps(self, M: NDArray, strengths: Sequence[float]) -> list[Maps]:
        """Maps of both sides: the roots of M, moved toward the identity."""
        roots = [root(M, each) for each in strengths]
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
            M = labeled_metric(self.X, self.y, self.metric, self.n_jobs)
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
        n_ranked = min(MAX_EVALUATED, max(MIN_EVALUATED, MAX_RANKED // len(self.documents)))
        queries = [
            (
                np.sort(rng.permutation(train)[:MAX_LEARNED]),
                np.sort(rng.permutation(test)[:n_ranked]),
            )
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
            M = boosted_metric(points, comparisons=self._triplets(), n_jobs=self.n_jobs)
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
            known = self.comparisons[train]
            judge = Judge(self.X, self.comparisons[test], known, test, self.metric)
            yield replace(self, comparisons=known), judge

    def sample(self, share: float) -> Self:
        rng = np.random.default_rng(self.seed)
        n = max(2, round(share * self.n_units))
        rows = np.sort(rng.permutation(self.n_units)[:n])
        return replace(self, comparisons=self.comparisons[rows])

    def learn(self, strengths: Sequence[float]) -> list[Maps]:
        M = boosted_metric(self.X, comparisons=self.comparisons, n_jobs=self.n_jobs)
        return self._metric_maps(M, strengths)


def document_offsets(documents: NDArray, metric: str) -> NDArray:
    """o(d) of `query_side`; −∞ for zero documents with cosine, which do not compete."""
    if metric == "cosine":
        return np.where(documents.any(axis=1), 0.0, -np.inf)
    return np.asarray(-0.5 * np.einsum("nd,nd->n", documents, documents))
