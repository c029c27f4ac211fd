"""Ranking measures of each query, with graded relevance: nDCG, recall, MRR, MAP."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils import gen_batches

METRICS = ("cosine", "euclidean")
"""Similarities of a query and a document by name."""

MAX_COUNTED = 8
"""Up to this number of relevant documents, counting the better ones is faster than sorting all."""


def ranking_scores(
    queries: NDArray,
    documents: NDArray,
    grades: csr_array,
    *,
    k: int = 10,
    metric: str = "cosine",
    exclude: csr_array | None = None,
    max_scores: int = 1 << 24,
) -> dict[str, NDArray]:
    """Measures of every query when all documents are ranked by similarity.

    Let r(i) be the rank of relevant document i, g(i) its grade, and R the number of relevant
    documents of the query.

    - "hit@1" and "hit@k": 1 if some r(i) ≤ 1, or ≤ k, and 0 otherwise
    - "recall@k": the number of r(i) ≤ k, divided by R
    - "mrr": 1/min r(i), the reciprocal rank
    - "ndcg@k": Σ g(i)/log₂(r(i) + 1) over r(i) ≤ k, relative to its value for the best ranking
    - "map": the mean over i of (number of relevant documents of rank ≤ r(i))/r(i)

    Ties are ranked by row. Zero documents, which have no direction, rank last; a zero query finds
    nothing, so its measures are 0. Queries without relevant documents have NaN. Only the ranks of
    relevant documents are computed: O(n·min(R, log n)) time per query for n documents.

    Parameters
    ----------
    queries, documents : arrays of shape (q, D) and (n, D)
    grades : of shape (q, n); documents with a grade > 0 are relevant
    k : number of documents that count for nDCG, recall and hits
    metric : "cosine" or "euclidean"
    exclude : of shape (q, n); documents with a nonzero entry are left out of the ranking
    max_scores : number of scores in memory at a time, at least those of one query

    Examples
    --------
    >>> documents = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> grades = csr_array(np.array([[0, 0, 1]]))
    >>> scores = ranking_scores(np.array([[1.0, 0.1]]), documents, grades, k=2)
    >>> {name: values.round(3).tolist() for name, values in scores.items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'hit@1': [0.0], 'hit@2': [1.0], 'recall@2': [1.0], 'mrr': [0.5], 'ndcg@2': [0.631],
     'map': [0.5]}
    """
    grades = positive_part(grades)
    n_queries, n_documents = grades.shape
    names = ("hit@1", f"hit@{k}", f"recall@{k}", "mrr", f"ndcg@{k}", "map")
    table = np.full((n_queries, len(names)), np.nan)
    is_zero_query, is_zero = (np.logical_not(each.any(axis=1)) for each in (queries, documents))
    if metric == "cosine":
        queries, documents = normalized(queries), normalized(documents)
        offsets = np.where(is_zero, -np.inf, 0.0).astype(documents.dtype)
    else:
        # −‖q − d‖²/2 without the term that is the same for all documents; documents at the origin
        # are ordinary points here.
        is_zero_query = np.zeros(n_queries, dtype=bool)
        offsets = -0.5 * np.einsum("nd,nd->n", documents, documents)
    for batch in gen_batches(n_queries, max(1, max_scores // max(1, n_documents))):
        scores = queries[batch] @ documents.T + offsets
        for row, found in zip(range(batch.start, batch.stop), scores, strict=True):
            relevant = slice(grades.indptr[row], grades.indptr[row + 1])
            columns, gains = grades.indices[relevant], grades.data[relevant]
            if exclude is not None:
                left_out = exclude.indices[exclude.indptr[row] : exclude.indptr[row + 1]]
                kept = ~np.isin(columns, left_out)
                columns, gains = columns[kept], gains[kept]
                found[left_out] = np.nan  # sorted to the end, behind −∞
            if len(columns):
                ranks = ranks_of(found, columns)
                order = np.argsort(ranks)
                table[row] = 0 if is_zero_query[row] else _measures(ranks[order], gains[order], k)
    return dict(zip(names, table.T, strict=True))


def ranks_of(scores: NDArray, columns: NDArray) -> NDArray:
    """Ranks of some columns by decreasing score, starting at 1; ties by column, NaN last.

    >>> ranks_of(np.array([0.3, 0.9, 0.3, 0.1]), np.array([0, 2, 3]))
    array([2, 3, 4])
    """
    if len(columns) <= MAX_COUNTED:
        found = [
            1 + np.count_nonzero(scores > scores[c]) + np.count_nonzero(scores[:c] == scores[c])
            for c in columns
        ]
        return np.array(found)
    ascending = np.sort(-scores)
    chosen = -scores[columns]
    above = np.searchsorted(ascending, chosen, side="left")
    n_equal = np.searchsorted(ascending, chosen, side="right") - above
    ranks = above + 1
    for number in np.flatnonzero(n_equal > 1):
        column = columns[number]
        ranks[number] += np.count_nonzero(scores[:column] == scores[column])
    return ranks


def _measures(ranks: NDArray, gains: NDArray, k: int) -> list[float]:
    """The measures of one query from the ranks of its relevant documents, in increasing order."""
    discounts = 1 / np.log2(np.arange(2, k + 2))
    ideal = np.sort(gains)[::-1][:k]
    within = ranks <= k
    gain = float(gains[within] @ discounts[ranks[within] - 1])
    return [
        float(ranks[0] == 1),
        float(within[0]),
        float(within.mean()),
        1 / float(ranks[0]),
        gain / float(ideal @ discounts[: len(ideal)]),
        float(np.mean(np.arange(1, len(ranks) + 1) / ranks)),
    ]


def positive_part(grades: csr_array) -> csr_array:
    """The entries > 0 of a sparse array, in float64."""
    kept = csr_array(grades, dtype=np.float64, copy=True)
    kept.data = np.maximum(kept.data, 0)
    kept.eliminate_zeros()
    return kept


def normalized(X: NDArray) -> NDArray:
    """Rows divided by their Euclidean lengths; zero rows stay zero.

    >>> normalized(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    lengths = np.sqrt(np.einsum("nd,nd->n", X, X))
    return np.asarray(X / np.where(lengths > 0, lengths, 1)[:, None])
