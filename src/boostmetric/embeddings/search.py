"""What is searched and what should be found; linear maps of queries and documents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array, issparse
from sklearn.utils import check_array, gen_batches

from boostmetric._validation import warn
from boostmetric.data.points import content_hashes
from boostmetric.estimators.splits import comparison_hashes
from boostmetric.evaluation.knn import are_satisfied, best_scale
from boostmetric.evaluation.ranking import normalized, positive_part, ranking_scores
from boostmetric.problem import Comparisons

N_RESULTS = 10
"""Number of results that count: measures are nDCG@10, recall@10 and hit@10."""


@dataclass(frozen=True, eq=False)
class Map:
    """x ↦ matrix·(x − center); None stands for the identity and for 0.

    >>> Map(np.array([[2.0, 0.0]]), np.ones(2))(np.array([[3.0, 5.0]]))
    array([[4.]])
    """

    matrix: NDArray | None = None
    center: NDArray | None = None

    def __call__(self, X: NDArray) -> NDArray:
        X = X if self.center is None else X - self.center.astype(X.dtype)
        return X if self.matrix is None else X @ self.matrix.T.astype(X.dtype)


@dataclass(frozen=True, eq=False)
class Maps:
    """The map of the queries and that of the documents.

    >>> Maps.both(np.eye(2)).project(np.array([[0.0, 1.0]])).queries.matrix
    array([[0., 1.]])
    """

    queries: Map
    documents: Map

    @classmethod
    def both(cls, matrix: NDArray | None, center: NDArray | None = None) -> Maps:
        """The same map on both sides."""
        return cls(Map(matrix, center), Map(matrix, center))

    @classmethod
    def of_queries(cls, W: NDArray) -> Maps:
        """q ↦ (I + W)ᵀq; documents are left as they are."""
        return cls(Map((np.eye(len(W)) + W).T), Map())

    def project(self, axes: NDArray) -> Maps:
        """Both maps, followed by the projection on axes of shape (d, D)."""

        def projected(one: Map) -> Map:
            return replace(one, matrix=axes if one.matrix is None else axes @ one.matrix)

        return Maps(projected(self.queries), projected(self.documents))


IDENTITY = Maps.both(None)
"""The search as it is."""


@dataclass(frozen=True, eq=False)
class Search:
    """Queries, documents and grades (see `ranking_scores`).

    `rows` are the numbers of the queries among those that the user passed. `units` are numbers of
    shape (n,): queries of the same unit are not independent. None stands for different numbers.
    """

    queries: NDArray
    documents: NDArray
    grades: csr_array
    rows: NDArray
    metric: str = "cosine"
    exclude: csr_array | None = None
    units: NDArray | None = None

    def hashes(self, seed: int) -> NDArray:
        """Hashes of the contents of the queries."""
        return content_hashes(self.queries, seed)

    def scores(self, maps: Maps = IDENTITY) -> dict[str, NDArray]:
        """The measures of every query after the maps."""
        return ranking_scores(
            maps.queries(self.queries),
            maps.documents(self.documents),
            self.grades,
            k=N_RESULTS,
            metric=self.metric,
            exclude=self.exclude,
        )


@dataclass(frozen=True, eq=False)
class Judge:
    """Points and comparisons of them; the counterpart of `Search` if there is nothing to rank.

    `known` are the comparisons that were learned from. Distances have no unit, so gaps are relative
    to the scale that suits these best.
    """

    points: NDArray
    comparisons: Comparisons
    known: Comparisons
    rows: NDArray
    metric: str = "cosine"
    units: NDArray | None = None

    def hashes(self, seed: int) -> NDArray:
        """Hashes of the contents of the comparisons."""
        return comparison_hashes(self.points, self.comparisons, seed)

    def scores(self, maps: Maps = IDENTITY) -> dict[str, NDArray]:
        """Whether each comparison is satisfied after the map."""
        points = maps.queries(self.points)
        points = normalized(points) if self.metric == "cosine" else points
        scale = best_scale(points, self.known)
        return {"satisfied": are_satisfied(points, self.comparisons, scale).astype(float)}


def as_vectors(X: ArrayLike, name: str, metric: str) -> NDArray:
    """Check vectors, of shape (n, D) in float32 or float64; with cosine, rows of unit length.

    float16 becomes float32. Vectors that have unit length already, up to the rounding of float16,
    are not copied, so they can be memory-mapped. Warns about zero vectors if `metric` is "cosine".
    """
    given: Any = X
    if getattr(given, "dtype", None) == np.float16:
        given = given.astype(np.float32)
    vectors: NDArray = check_array(given, dtype=[np.float64, np.float32], input_name=name)
    if metric == "cosine":
        lengths = np.concatenate(
            [np.linalg.norm(vectors[part], axis=1) for part in gen_batches(len(vectors), 1 << 14)]
        )
        if n_zero := int((lengths == 0).sum()):
            warn(
                f"{n_zero} of {len(vectors)} rows of {name} are zero vectors, which have no "
                "direction: such documents rank last, and such queries find nothing."
            )
        if not (np.isclose(lengths, 1, atol=1e-3) | (lengths == 0)).all():
            vectors = normalized(vectors)
    return vectors


def as_grades(judgments: Any, n_queries: int, n_documents: int) -> csr_array:
    """Convert judgments to grades of shape (n_queries, n_documents).

    Parameters
    ----------
    judgments : array of shape (m, 3), rows (query, document, grade) with row numbers; an array of
        shape (m, 2), clicks (query, document), which may be repeated and are counted; or a sparse
        array of grades

    Examples
    --------
    >>> as_grades([[0, 1], [0, 1], [1, 0]], 2, 2).toarray()
    array([[0., 2.],
           [1., 0.]])
    """
    shape = (n_queries, n_documents)
    if issparse(judgments):
        if judgments.shape != shape:
            raise ValueError(f"judgments must have shape {shape}; got {judgments.shape}.")
        grades = csr_array(judgments, dtype=np.float64)
    else:
        rows = check_array(judgments, dtype=np.float64, input_name="judgments")
        if rows.shape[1] not in (2, 3):
            raise ValueError(
                "judgments must have the columns (query, document, grade), or (query, document) "
                f"for clicks; got shape {rows.shape}."
            )
        pairs = rows[:, :2].astype(np.intp)
        if (pairs != rows[:, :2]).any():
            raise ValueError("Queries and documents in judgments must be row numbers (integers).")
        for column, (kind, n) in enumerate((("queries", n_queries), ("documents", n_documents))):
            unknown = (pairs[:, column] < 0) | (pairs[:, column] >= n)
            if unknown.any():
                raise ValueError(
                    f"{int(unknown.sum())} judgments refer to {kind} that do not exist, such as "
                    f"{pairs[unknown, column][0]}; there are {n} {kind}, numbered from 0."
                )
        is_clicks = rows.shape[1] == 2
        n_repeated = len(pairs) - len(np.unique(pairs, axis=0))
        if n_repeated and not is_clicks:
            raise ValueError(
                f"judgments has {n_repeated} duplicated rows: the same query and document. Keep "
                "one grade for each pair."
            )
        values = np.ones(len(rows)) if is_clicks else rows[:, 2]
        grades = csr_array(coo_array((values, (pairs[:, 0], pairs[:, 1])), shape=shape))
    grades = positive_part(grades)
    if grades.nnz == 0:
        raise ValueError("judgments has no relevant documents: no grade is positive.")
    return grades


def same_label(y_query: NDArray, y: NDArray, own_rows: NDArray | None = None) -> csr_array:
    """Grades 1 for documents with the label of the query, without its own row if it has one.

    >>> same_label(np.array([5]), np.array([5, 7, 5]), own_rows=np.array([0])).toarray()
    array([[0., 0., 1.]])
    """
    order = np.argsort(y, kind="stable")
    starts, ends = (np.searchsorted(y[order], y_query, side=side) for side in ("left", "right"))
    counts = ends - starts
    indptr = np.concatenate([[0], np.cumsum(counts)])
    positions = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], counts)
    columns = order[positions]
    values = np.ones(len(columns))
    if own_rows is not None:
        values[columns == np.repeat(own_rows, counts)] = 0
    grades = csr_array((values, columns, indptr), shape=(len(y_query), len(y)))
    grades.eliminate_zeros()
    return grades


def own_documents(rows: NDArray, n_documents: int) -> csr_array:
    """The array that excludes from each query its own row.

    >>> own_documents(np.array([2]), 3).toarray()
    array([[0., 0., 1.]])
    """
    n = len(rows)
    return csr_array((np.ones(n), rows, np.arange(n + 1)), shape=(n, n_documents))
