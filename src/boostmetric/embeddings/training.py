"""Training data of an adapter: how it is split, and how maps are learned from it.

The kinds of data have one interface: `folds` yields parts to learn from and searches to evaluate,
and `learn` returns one `Maps` for each strength. Strengths are sorted from the closest to the
identity to the farthest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils import gen_batches

from boostmetric.data.points import content_hashes
from boostmetric.data.samples import smallest_hashes
from boostmetric.embeddings.both_sides import (
    N_NEIGHBORS,
    axes_of,
    boosted_metric,
    labeled_metric,
    leading_rows,
    root,
    second_moment,
)
from boostmetric.embeddings.folds import near_duplicates, sampled, take_turns
from boostmetric.embeddings.query_side import SoftmaxProblem
from boostmetric.embeddings.search import Judge, Maps, Search, own_documents, same_label
from boostmetric.engines import Threads
from boostmetric.estimators.splits import comparison_hashes
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

ONE_OF = 5
"""With a single fold, a fifth is held out, or half of the classes."""

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
    that documents or classes are held out, too: neither the relevant nor the other documents of the
    searches were learned from.
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
        groups, hashes = near_duplicates(self.X), content_hashes(self.X, self.seed)
        if self.unseen:  # whole classes: at least two in each fold, and two to learn from
            n_parts = min(max(n_folds, 2), len(np.unique(self.y)) // 2)
            sizes = np.bincount(self.y)[self.y]
            units, held_out = self.y, take_turns(self.y, n_parts, hashes, strata=-sizes)
        else:
            n_parts = n_folds if n_folds > 1 else ONE_OF
            strata = smallest_hashes(self.y, hashes)  # the names of classes do not matter
            units, held_out = groups, take_turns(groups, n_parts, hashes, strata)
        for fold in range(min(n_folds, n_parts) if n_parts > 1 else 0):
            test = np.flatnonzero(held_out == fold)
            train = np.flatnonzero((held_out != fold) & ~np.isin(groups, groups[test]))
            queries = sampled(test, hashes, MAX_EVALUATED)
            # New classes are searched among each other.
            documents = test if self.unseen else train
            own = np.searchsorted(documents, queries) if self.unseen else None
            grades = same_label(self.y[queries], self.y[documents], own)
            found = np.flatnonzero(np.diff(grades.indptr))
            counts = np.bincount(self.y[train])
            if len(found) and np.count_nonzero(counts) > 1 and counts.max() > 1:
                rows = queries[found]
                yield (
                    self._part(train),
                    Search(
                        self.X[rows],
                        self.X[documents],
                        csr_array(grades[found]),
                        self.rows[rows],
                        self.metric,
                        None if own is None else own_documents(own[found], len(documents)),
                        units[rows],
                    ),
                )

    def _part(self, rows: NDArray) -> Self:
        return replace(self, X=self.X[rows], y=self.y[rows], rows=self.rows[rows])

    def sample(self, share: float) -> Self:
        # The same share of every class: the rank of the hash within the class.
        order = np.lexsort((content_hashes(self.X, self.seed), self.y))
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
        with Threads(self.n_jobs) as threads:
            problem = SoftmaxProblem(
                self.X[used],
                self.X,
                targets,
                offsets,
                exclude,
                random_state=self.seed,
                threads=threads,
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
        hashes = content_hashes(self.queries, self.seed)
        n_ranked = min(MAX_EVALUATED, max(MIN_EVALUATED, MAX_RANKED // len(self.documents)))
        n_parts = n_folds if n_folds > 1 else ONE_OF
        units = near_duplicates(self.queries)
        held_out = take_turns(units, n_parts, hashes)
        new_in = None
        if self.unseen:
            # Each document is new in one fold. Queries are held out with one of their relevant
            # documents, and those held out with the same document are one unit.
            documents = near_duplicates(self.documents)
            is_judged = np.isin(documents, documents[self.grades.indices])
            of_documents = content_hashes(self.documents, self.seed)
            new_in = take_turns(documents, n_parts, of_documents, strata=is_judged)
            # The order of the products is another one for each query.
            owners = np.repeat(np.arange(len(hashes)), np.diff(self.grades.indptr))
            own = smallest_hashes(units, hashes)[owners] | np.uint64(1)
            order = np.lexsort((own * of_documents[self.grades.indices], units[owners]))
            firsts = order[np.unique(units[owners][order], return_index=True)[1]]
            homes = self.grades.indices[firsts][units]
            units, held_out = documents[homes], new_in[homes]
        for fold in range(n_folds):
            train, test = (
                sampled(np.flatnonzero(chosen), hashes, limit)
                for chosen, limit in ((held_out != fold, MAX_LEARNED), (held_out == fold, n_ranked))
            )
            part = self._part(train, None if new_in is None else new_in != fold)
            rest = self._part(test, None if new_in is None else new_in == fold)
            has_irrelevant = np.diff(part.grades.indptr) < len(part.documents)
            if has_irrelevant.any() and rest.n_units:
                search = Search(rest.queries, rest.documents, rest.grades, rest.rows, self.metric)
                yield part, replace(search, units=units[np.searchsorted(self.rows, rest.rows)])

    def _part(self, rows: NDArray, is_kept: NDArray | None = None) -> Self:
        """Some queries and documents (None: all), without queries that have nothing relevant."""
        grades, documents, nearest = self.grades[rows], self.documents, self.nearest
        if is_kept is not None:
            grades, documents = grades[:, is_kept], documents[is_kept]
            if nearest is not None:
                position = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
                nearest = np.where(nearest < 0, -1, position[nearest])
        found = np.flatnonzero(np.diff(grades.indptr))
        return replace(
            self,
            queries=self.queries[rows[found]],
            documents=documents,
            grades=csr_array(grades[found]),
            rows=self.rows[rows[found]],
            nearest=None if nearest is None else nearest[rows[found]],
        )

    def sample(self, share: float) -> Self:
        n, hashes = len(self.queries), content_hashes(self.queries, self.seed)
        return self._part(sampled(np.arange(n), hashes, max(2, round(share * n))))

    def learn(self, strengths: Sequence[float]) -> list[Maps]:
        if self.side == "both":
            points = np.concatenate([self.queries, self.documents])
            M = boosted_metric(points, comparisons=self._triplets(), n_jobs=self.n_jobs)
            return self._metric_maps(M, strengths)
        offsets = document_offsets(self.documents, self.metric)
        with Threads(self.n_jobs) as threads:
            problem = SoftmaxProblem(
                self.queries,
                self.documents,
                self.grades,
                offsets,
                nearest=self.nearest,
                random_state=self.seed,
                threads=threads,
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
        compared, groups = self.comparisons, near_duplicates(self.X)
        # 1) numbers of the pairs, -1 for a point with itself
        pairs = np.sort(groups[compared.pairs], axis=1)
        numbers = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
        numbers[pairs[:, 0] == pairs[:, 1]] = -1
        near, far = numbers[compared.near], numbers[compared.far]
        # 2) a unit is the point that both pairs have in common, or else a pair
        units = len(groups) + np.where(near >= 0, near, far)
        for point in pairs[compared.near].T:
            is_common = (point[:, None] == pairs[compared.far]).any(axis=1)
            is_common &= (near >= 0) & (far >= 0)
            units[is_common] = point[is_common]
        hashes = comparison_hashes(self.X, compared, self.seed)
        held_out = take_turns(units, n_folds if n_folds > 1 else ONE_OF, hashes)
        for fold in range(n_folds):
            test = np.flatnonzero(held_out == fold)
            # What is stated about the same pair for another point is not new.
            is_stated = np.zeros(len(compared), dtype=bool)
            for each in (near, far):
                is_stated |= (each >= 0) & np.isin(each, each[test])
            train = np.flatnonzero((held_out != fold) & ~is_stated)
            if len(train) and len(test):
                known = compared[train]
                judge = Judge(self.X, compared[test], known, test, self.metric, units[test])
                yield replace(self, comparisons=known), judge

    def sample(self, share: float) -> Self:
        n, hashes = self.n_units, comparison_hashes(self.X, self.comparisons, self.seed)
        rows = sampled(np.arange(n), hashes, max(2, round(share * n)))
        return replace(self, comparisons=self.comparisons[rows])

    def learn(self, strengths: Sequence[float]) -> list[Maps]:
        M = boosted_metric(self.X, comparisons=self.comparisons, n_jobs=self.n_jobs)
        return self._metric_maps(M, strengths)


def document_offsets(documents: NDArray, metric: str) -> NDArray:
    """o(d) of `query_side`; −∞ for zero documents with cosine, which do not compete."""
    if metric == "cosine":
        return np.where(documents.any(axis=1), 0.0, -np.inf)
    return np.asarray(-0.5 * np.einsum("nd,nd->n", documents, documents))
