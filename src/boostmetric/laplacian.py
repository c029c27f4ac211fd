"""The operator of comparisons of points, by the Laplacian of a graph.

The mathematics of the file. The scatter Â = Σ_r u_r·A_r is a sum over m comparisons of matrices
A_r = (a_i − a_k)(a_i − a_k)ᵀ − (a_i − a_j)(a_i − a_j)ᵀ that are never formed. Collect the duals by
pair, q_p = Σ_{r: far=p} u_r − Σ_{r: near=p} u_r; then Â = Σ_p q_p·(x_i − x_j)(x_i − x_j)ᵀ = Xᵀ·L·X,
where L is the Laplacian of the graph with the edge weights q: L = diag(d) − (U + Uᵀ), U holding q_p
at (i, j) and d the row sums. So L = H + Hᵀ for the half H = ½·diag(d) − U, which is sparse with
P + n entries, and Â = S + Sᵀ for S = Xᵀ(H·X).

Points are kept in an order (reverse Cuthill–McKee) in which those of a pair are close together, and
S is summed over blocks of rows: most of what is read is then still in the cache.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_matrix, issparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import LinearOperator

from boostmetric.comparisons import Comparisons
from boostmetric.kernels import compiled
from boostmetric.metric import Metric, image_squares
from boostmetric.operators import OPERATOR_ABOVE, Operator, symmetric_operator
from boostmetric.points import Points, as_points, centred, rows_at_once

BLOCK_ENTRIES = 1 << 18
"""Coordinates in a block of rows of S (1 MB in float32)."""


class ComparisonOperator(Operator):
    """⟨A_r, M⟩ = d²_M(far_r) − d²_M(near_r), for comparisons of given points.

    Parameters
    ----------
    X : array of shape (n, D), dense or sparse, float32 or float64; centred inside, as distances do
        not depend on it. Of a sparse array only features that most points have are centred: others
        do not need it (`points`). It stays sparse, but for its products with few directions
    comparisons : Comparisons of the rows of X; their gaps and weights play no part here

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    >>> operator = ComparisonOperator(X, Comparisons.from_triplets([[0, 1, 2]]))
    >>> operator.responses(np.array([0.0, 1.0]))
    array([9.])
    """

    def __init__(self, X: Points, comparisons: Comparisons) -> None:
        X = as_points(X)
        n = X.shape[0]
        comparisons.check_points(n)
        super().__init__(len(comparisons), X.shape[1], X.dtype)
        order = near_order(comparisons.pairs, n)
        place = np.argsort(order)
        ends = np.sort(place[comparisons.pairs], axis=1)
        by_row = np.lexsort((ends[:, 1], ends[:, 0]))
        pair = np.argsort(by_row)
        self.X: Points = centred(X, order)
        self._i, self._j = by_end = np.ascontiguousarray(ends[by_row].T)
        self._pairs = by_end.T
        self._differences = _far_less_near(
            pair[comparisons.far], pair[comparisons.near], len(self._pairs), self.dtype
        )
        points = np.arange(n + 1)
        self._row_starts = (np.searchsorted(self._i, points) + points).astype(np.int32)
        self._slots = np.arange(len(self._pairs)) + self._i + 1
        self._columns = np.empty(len(self._pairs) + n, dtype=np.int32)
        self._columns[self._slots] = self._j
        self._columns[self._row_starts[:-1]] = points[:-1]

    def project(self, basis: NDArray) -> Operator:
        """The same comparisons of the points X·basis, for a basis of shape (D, d)."""
        if issparse(self.X):
            return super().project(basis)
        projected = copy(self)
        projected.X = self.X @ basis.astype(self.dtype)
        projected.n_features = basis.shape[1]
        return projected

    @property
    def n_measures(self) -> int:
        """P, the number of distinct pairs."""
        return len(self._pairs)

    def scatter(self, duals: NDArray) -> NDArray | LinearOperator:
        """Â = Σ_r u_r·A_r = XᵀLX, as a matrix, or as an operator where D is large.

        The matrix costs O(m + P·D + n·D²), one product with the operator O(m + P + n·D).
        """
        if self.n_features > OPERATOR_ABOVE:
            return self._scatter_operator(self._half_laplacian(self.collect(duals)))
        return self.scatter_matrix(duals)

    def scatter_matrix(self, duals: NDArray) -> NDArray:
        """The scatter as a matrix, whatever D."""
        return self._sum_of_pairs(self.collect(duals))

    def spread(self, duals: NDArray) -> NDArray:
        """Σ_r u_r·(the matrices of both pairs of r), positive semidefinite, of shape (D, D)."""
        return self._sum_of_pairs(self.collect_sizes(duals))

    def responses(self, direction: NDArray) -> NDArray:
        """h_r = vᵀA_r v = ((x_far)ᵀv)² − ((x_near)ᵀv)², of shape (m,). O(n·D + P + m)."""
        return self.expand(self.measure(direction))

    def measure(self, direction: NDArray) -> NDArray:
        """((x_i − x_j)ᵀv)² of every pair, of shape (P,)."""
        return self.measures(direction)

    def measures(self, directions: NDArray) -> NDArray:
        """Those of several directions (D, k), of shape (P, k)."""
        projection = self.X @ directions
        squares = np.empty((self.n_measures, *projection.shape[1:]), dtype=projection.dtype)
        size = max(1, BLOCK_ENTRIES // max(1, projection[:1].size))
        for begin in range(0, len(squares), size):
            pairs = slice(begin, begin + size)
            block = np.take(projection, self._i[pairs], axis=0, out=squares[pairs])
            block -= projection.take(self._j[pairs], axis=0)
            block *= block
        return squares

    def expand(self, squares: NDArray) -> NDArray:
        """From squared distances of the pairs to those of far less those of near, shape (m,)."""
        return self._differences @ squares

    def collect(self, duals: NDArray) -> NDArray:
        """The adjoint of `expand`: q_p = Σ_{r: far=p} u_r − Σ_{r: near=p} u_r, of shape (P,)."""
        return self._differences.T @ duals

    def collect_sizes(self, sizes: NDArray) -> NDArray:
        """Σ_{r: far=p} s_r + Σ_{r: near=p} s_r, of shape (P,)."""
        return self._magnitudes.T @ sizes

    @cached_property
    def _magnitudes(self) -> csr_matrix:
        return abs(self._differences)

    def values_of(self, matrix: NDArray) -> NDArray:
        """⟨A_r, N⟩ for a symmetric matrix N that need not be positive, shape (m,).

        With N = QΛQᵀ the squared distances are Σ_d Λ_d·((x_i − x_j)ᵀq_d)². O(n·D² + P·D).
        """
        values, vectors = (part.astype(self.X.dtype) for part in eigh(matrix))
        return self.expand(image_squares(self.X, vectors, self._pairs, values))

    def values(self, metric: Metric) -> NDArray:
        """⟨A_r, M⟩ by the distances of the pairs, of shape (m,)."""
        return self.expand(metric.pair_distances(self.X, self._pairs, squared=True))

    def _sum_of_pairs(self, q: NDArray) -> NDArray:
        """Σ_p q_p·(x_i − x_j)(x_i − x_j)ᵀ, of shape (D, D)."""
        half_laplacian = self._half_laplacian(q)
        half = np.zeros((self.n_features, self.n_features), dtype=self.dtype)
        size = rows_at_once(self.X, BLOCK_ENTRIES)
        for begin in range(0, self.X.shape[0], size):
            block = self.X[begin : begin + size]
            part = block.T @ self._rows_times_points(half_laplacian, begin, block.shape[0])
            half += part.toarray() if issparse(part) else part
        return half + half.T

    def _rows_times_points(self, matrix: csr_matrix, begin: int, size: int) -> Points:
        """So many rows of H·X."""
        loops = None if issparse(self.X) else compiled(matrix.nnz * self.n_features)
        if loops is None:
            product: NDArray = matrix[begin : begin + size] @ self.X
            return product
        product = np.empty((size, self.n_features), dtype=self.dtype)
        loops.sparse_rows(matrix.indptr, matrix.indices, matrix.data, self.X, begin, product)
        return product

    def _half_laplacian(self, q: NDArray) -> csr_matrix:
        """H = ½·diag(d) − U for the graph with the weights q."""
        n, P = self.X.shape[0], self.n_measures
        degree = np.bincount(self._i, q, n) + np.bincount(self._j, q, n)
        # Pairs are sorted by row: with the diagonal first in each row they are a CSR matrix.
        entries = np.empty(P + n, dtype=self.dtype)
        entries[self._slots] = -q
        entries[self._row_starts[:-1]] = degree / 2
        return csr_matrix((entries, self._columns, self._row_starts), shape=(n, n))

    def _scatter_operator(self, half_laplacian: csr_matrix) -> LinearOperator:
        def product(V: NDArray) -> NDArray:
            projections = self.X @ V
            flow = half_laplacian @ projections + half_laplacian.T @ projections
            result: NDArray = self.X.T @ flow
            return result

        return symmetric_operator(product, self.n_features, self.dtype)


def near_order(pairs: NDArray, n: int) -> NDArray:
    """An order of n points in which those of a pair are close together.

    >>> near_order(np.array([[0, 2], [1, 3], [2, 3]]), 4).tolist()
    [1, 3, 2, 0]
    """
    ones = np.ones(len(pairs), dtype=np.int8)
    upper = csr_matrix((ones, (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return np.asarray(reverse_cuthill_mckee((upper + upper.T).tocsr(), symmetric_mode=True))


def _far_less_near(far: NDArray, near: NDArray, n_pairs: int, dtype: DTypeLike) -> csr_matrix:
    """The matrix (m, P) that takes numbers of the pairs to differences of the comparisons."""
    m = len(far)
    signs = np.tile(np.array([1, -1], dtype=dtype), m)
    columns = np.stack([far, near], axis=1).ravel()
    return csr_matrix((signs, columns, np.arange(0, 2 * m + 1, 2)), shape=(m, n_pairs))
