"""The operator of comparisons of points, computed with a graph Laplacian.

The scatter Â = Σ_r u_r·A_r is a sum over m comparisons of matrices
A_r = (x_i − x_k)(x_i − x_k)ᵀ − (x_i − x_j)(x_i − x_j)ᵀ, which are never formed. Summing the duals
by pair, q_p = Σ_{r: far=p} u_r − Σ_{r: near=p} u_r, gives
Â = Σ_p q_p·(x_i − x_j)(x_i − x_j)ᵀ = Xᵀ·L·X, where L is the Laplacian of the graph with edge
weights q: L = diag(d) − (U + Uᵀ), where U has entry q_p at (i, j) and d are the row sums. Hence
L = H + Hᵀ for H = ½·diag(d) − U, which is sparse with P + n entries, and Â = S + Sᵀ for
S = Xᵀ(H·X).

Points are sorted (reverse Cuthill–McKee) such that the points of a pair are close together, and S
is summed over chunks of rows, so most memory accesses hit the cache.

Threads process chunks of rows, pairs and comparisons. The chunks depend only on the data, and
partial sums are added in their order, so results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from copy import copy
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_matrix, issparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import LinearOperator

from boostmetric.data.points import (
    Points,
    as_points,
    binary_exponent,
    centered,
    rows_at_once,
    scale,
)
from boostmetric.engines import Threads
from boostmetric.neighbors import compiled_loops
from boostmetric.problem.comparisons import Comparisons
from boostmetric.problem.operators import Operator, symmetric_operator

CHUNK_ENTRIES = 1 << 18
"""Entries of a chunk of rows or pairs: 1 MB in float32, which fits into the cache."""

MAX_EXPONENT = 500
"""Limit of the exponent of the points: coefficients scale with 4**-exponent, in float64."""

MAX_SPANS = 16
"""Maximum number of partial sums of shape (D, D), each over a span of consecutive chunks."""

MIN_CHUNK = 100_000
"""Minimum number of comparisons or pairs in a chunk. A thread acquires the interpreter lock for
each of some thirty array operations on a chunk, so smaller chunks gain nothing."""

MAX_CHUNKS = 64
"""Maximum number of chunks; with more, the interpreter takes a noticeable share of the time."""


class ComparisonOperator(Operator):
    """⟨A_r, M⟩ = d²_M(far_r) − d²_M(near_r), for comparisons of given points.

    Parameters
    ----------
    X : array of shape (n, D), dense or sparse, float32 or float64; a centered copy is stored, which
        reduces rounding errors. Sparse arrays stay sparse: only features that are stored for most
        points are centered (see `points`)
    comparisons : Comparisons of the rows of X; gaps and weights are ignored
    exponent : the points are divided by 2**exponent, which is exact, and the matrices by
        4**exponent, the `unit`. None chooses it such that the largest coordinate is about 1, so
        that squares neither overflow nor underflow
    is_centered : whether X is centered already
    threads : process the chunks; one thread by default

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    >>> operator = ComparisonOperator(X, Comparisons.from_triplets([[0, 1, 2]]))
    >>> operator.responses(np.array([0.0, 1.0]))
    array([9.])
    """

    MEASURES_ARE_SQUARES = True

    def __init__(
        self,
        X: Points,
        comparisons: Comparisons,
        *,
        exponent: int | None = 0,
        is_centered: bool = False,
        threads: Threads | None = None,
    ) -> None:
        X = as_points(X)
        n = X.shape[0]
        comparisons.check_points(n)
        super().__init__(len(comparisons), X.shape[1], X.dtype)
        self.threads = Threads(1) if threads is None else threads
        # 1) an order of the points in which the points of a pair are close together; pairs by row.
        # There may be many more pairs than points, so arrays are int32 and are freed early.
        pairs, m = comparisons.pairs, len(comparisons)
        P = len(pairs)
        graph = csr_matrix((np.ones(P, dtype=np.int8), tuple(pairs.T.astype(np.int32))), (n, n))
        order = np.asarray(reverse_cuthill_mckee((graph + graph.T).tocsr(), symmetric_mode=True))
        del graph
        ends = np.argsort(order).astype(np.int32)[pairs]
        ends.sort(axis=1)
        by_row = np.lexsort((ends[:, 1], ends[:, 0]))
        pair = np.empty(P, dtype=np.int32)
        pair[by_row] = np.arange(P, dtype=np.int32)
        self.X: Points = X[order] if is_centered else centered(X, order)
        self.exponent = 0
        if exponent is None:
            exponent = binary_exponent(self.X)
        if exponent:
            # `centered` does not always copy a sparse array.
            self._divide(self.X.copy() if self.X is X else self.X, exponent)
        # 2) the structure of H in CSR form: the diagonal first in each row, followed by the pairs
        self._i, self._j = (ends[:, side].take(by_row) for side in (0, 1))
        del ends, by_row
        points = np.arange(n + 1, dtype=np.int32)
        self._row_starts = (np.searchsorted(self._i, points) + points).astype(np.int32)
        self._slots = np.arange(1, P + 1, dtype=np.int32) + self._i
        self._columns = np.empty(P + n, dtype=np.int32)
        self._columns[self._slots] = self._j
        self._columns[self._row_starts[:-1]] = points[:-1]
        # 3) the matrix E with 1 at (r, far_r) and −1 at (r, near_r), in chunks of comparisons, and
        # its transpose, in chunks of pairs
        columns = np.stack([pair[comparisons.far], pair[comparisons.near]], axis=1).ravel()
        entries = np.tile(np.array([1, -1], dtype=X.dtype), m)
        starts = np.arange(0, 2 * m + 1, 2, dtype=np.int32)
        E = csr_matrix((entries, columns, starts), shape=(m, P))
        del pair, columns, entries, starts
        self.chunks, self.measure_chunks = even_chunks(m, MIN_CHUNK), even_chunks(P, MIN_CHUNK)
        self.expansion = [E[part] for part in self.chunks]
        transpose = E.T.tocsr()
        del E
        self.adjoint = [transpose[part] for part in self.measure_chunks]

    def _divide(self, points: Points, exponent: int) -> None:
        """Use the given copy of the points, divided by 2**exponent."""
        self.exponent += exponent
        if abs(self.exponent) > MAX_EXPONENT:
            # The power itself may overflow.
            size = self.exponent * math.log10(2)
            raise ValueError(
                f"The values of X differ by 1e{size:+.0f}; their squares are out of the range of "
                "float64. Scale X."
            )
        scale(points, -exponent)
        self.X, self.unit = points, 4.0**self.exponent

    def normalized(self) -> ComparisonOperator:
        if not (exponent := binary_exponent(self.X)):
            return self
        operator = copy(self)
        operator._divide(self.X.copy(), exponent)
        return operator

    def scatter(self, duals: NDArray) -> NDArray | LinearOperator:
        """Â = Σ_r u_r·A_r = XᵀLX, a matrix, or a LinearOperator if D is large.

        The matrix takes O(m + P·D + n·D²), one product with the operator O(m + P + n·D).
        """
        if self.is_dense:
            return self.scatter_matrix(duals)
        half_laplacian = self._half_laplacian(self._by_pair(duals))

        def product(V: NDArray) -> NDArray:
            projections = self._times_points(V.astype(self.dtype, copy=False))
            flow = half_laplacian @ projections + half_laplacian.T @ projections
            parts = self.threads.map(
                lambda rows: self.X[rows].T @ flow[rows],
                chunks(self.X.shape[0], 1 + self.X.shape[0] // MAX_SPANS),
            )
            return reduce(np.add, parts)

        return symmetric_operator(product, self.n_features, self.dtype)

    def scatter_matrix(self, duals: NDArray) -> NDArray:
        return self._sum_of_pairs(self._by_pair(duals))

    def absolute_scatter(self, duals: NDArray) -> NDArray:
        """An upper bound on Σ_r u_r·|A_r|, adding the matrices of both pairs, of shape (D, D)."""
        sums = self.threads.map(lambda part: abs(part) @ duals, self.adjoint)
        return self._sum_of_pairs(np.concatenate(sums))

    def responses(self, direction: NDArray) -> NDArray:
        """h_r = vᵀA_r v = ((x_far)ᵀv)² − ((x_near)ᵀv)², of shape (m,). O(n·D + P + m)."""
        return self._far_minus_near(self.measures(direction[:, None])[:, 0])

    def measures(self, directions: NDArray) -> NDArray:
        """((x_i − x_j)ᵀv)² of every pair, for directions (D, k), of shape (P, k)."""
        projection = self._times_points(directions.astype(self.dtype, copy=False))
        squares = np.empty((len(self._i), directions.shape[1]), dtype=self.dtype)

        def fill(pairs: slice) -> None:
            # With mode="raise", NumPy would buffer the result.
            part = projection.take(self._i[pairs], axis=0, out=squares[pairs], mode="clip")
            part -= projection.take(self._j[pairs], axis=0, mode="clip")
            part *= part

        size = max(1, CHUNK_ENTRIES // max(1, directions.shape[1]))
        self.threads.map(fill, chunks(len(self._i), size))
        return squares

    def values_of(self, matrix: NDArray) -> NDArray:
        """⟨A_r, N⟩ for any symmetric matrix N, of shape (m,).

        With N = QΛQᵀ, the squared distances are Σ_d Λ_d·((x_i − x_j)ᵀq_d)². O(n·D·d + P·d) for d
        nonzero eigenvalues.
        """
        values, vectors = eigh(matrix)
        used = np.abs(values) > np.finfo(np.float64).eps * np.abs(values).max()
        return self._weighted_responses(vectors[:, used], values[used])

    def _weighted_responses(self, directions: NDArray, factors: NDArray) -> NDArray:
        squares = np.zeros(len(self._i), dtype=self.dtype)
        factors = factors.astype(self.dtype)
        # Projections take at most as much memory as X, also if it is sparse.
        width = max(1, self.X.size // max(1, self.X.shape[0]))
        for begin in range(0, directions.shape[1], width):
            columns = slice(begin, begin + width)
            projection = self._times_points(directions[:, columns].astype(self.dtype))

            def add(
                pairs: slice, projection: NDArray = projection, used: NDArray = factors[columns]
            ) -> None:
                differences = projection.take(self._i[pairs], axis=0)
                differences -= projection.take(self._j[pairs], axis=0)
                differences *= differences
                squares[pairs] += differences @ used

            size = max(1, CHUNK_ENTRIES // max(1, projection.shape[1]))
            self.threads.map(add, chunks(len(self._i), size))
        return self._far_minus_near(squares)

    def _far_minus_near(self, squares: NDArray) -> NDArray:
        """Differences of the squared distances (P,) of the pairs, of shape (m,)."""
        return np.concatenate(self.threads.map(lambda part: part @ squares, self.expansion))

    def _by_pair(self, duals: NDArray) -> NDArray:
        """q_p = Σ_{r: far=p} u_r − Σ_{r: near=p} u_r, of shape (P,)."""
        return np.concatenate(self.threads.map(lambda part: part @ duals, self.adjoint))

    def _sum_of_pairs(self, q: NDArray) -> NDArray:
        """Σ_p q_p·(x_i − x_j)(x_i − x_j)ᵀ, of shape (D, D)."""
        H = self._half_laplacian(q)
        n, size = self.X.shape[0], rows_at_once(self.X, CHUNK_ENTRIES)
        loops = None if issparse(self.X) else compiled_loops(H.nnz * self.n_features)

        def half_of(span: slice) -> NDArray:
            half = np.zeros((self.n_features, self.n_features), dtype=self.dtype)
            for begin in range(span.start, span.stop, size):
                end = min(begin + size, span.stop)
                if loops is not None:
                    product = np.empty((end - begin, self.n_features), dtype=self.dtype)
                    loops.sparse_rows(H.indptr, H.indices, H.data, self.X, begin, product)
                else:
                    first, last = H.indptr[begin], H.indptr[end]
                    rows = (
                        H.data[first:last],
                        H.indices[first:last],
                        H.indptr[begin : end + 1] - first,
                    )
                    product = csr_matrix(rows, shape=(end - begin, n)) @ self.X
                added: Any = self.X[begin:end].T @ product
                half += added.toarray() if issparse(added) else added
            return half

        per_span = size * -(-n // (size * MAX_SPANS))
        half = reduce(np.add, self.threads.map(half_of, chunks(n, per_span)))
        return half + half.T

    def _half_laplacian(self, q: NDArray) -> csr_matrix:
        """H = ½·diag(d) − U for the graph with the weights q."""
        n, P = self.X.shape[0], len(self._i)
        degree = np.bincount(self._i, q, n) + np.bincount(self._j, q, n)
        entries = np.empty(P + n, dtype=self.dtype)
        entries[self._slots] = -q
        entries[self._row_starts[:-1]] = degree / 2
        return csr_matrix((entries, self._columns, self._row_starts), shape=(n, n))

    def _times_points(self, V: NDArray) -> NDArray:
        """X·V, of shape (n, k)."""
        product = np.empty((self.X.shape[0], V.shape[1]), dtype=self.dtype)

        def fill(rows: slice) -> None:
            product[rows] = self.X[rows] @ V

        self.threads.map(fill, even_chunks(len(product), rows_at_once(self.X, 4 * CHUNK_ENTRIES)))
        return product


def chunks(n: int, size: int) -> list[slice]:
    """Consecutive slices of `size` rows that cover n rows.

    >>> chunks(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(begin, min(begin + size, n)) for begin in range(0, n, size)]


def even_chunks(n: int, least: int) -> list[slice]:
    """Chunks of about equal size, of at least `least` rows.

    Their number is a power of two, so that two or four threads share them evenly.

    >>> even_chunks(12, 4)
    [slice(0, 6, None), slice(6, 12, None)]
    """
    n_chunks = 1 << (min(MAX_CHUNKS, max(1, n // least)).bit_length() - 1)
    return chunks(n, -(-n // n_chunks))
