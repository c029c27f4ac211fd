"""The operator of comparisons of points, by the Laplacian of a graph.

The mathematics of the file. The scatter Â = Σ_r u_r·A_r is a sum over m comparisons of matrices
A_r = (a_i − a_k)(a_i − a_k)ᵀ − (a_i − a_j)(a_i − a_j)ᵀ that are never formed. Collect the duals by
pair, q_p = Σ_{r: far=p} u_r − Σ_{r: near=p} u_r; then Â = Σ_p q_p·(x_i − x_j)(x_i − x_j)ᵀ = Xᵀ·L·X,
where L is the Laplacian of the graph with the edge weights q: L = diag(d) − (U + Uᵀ), U holding q_p
at (i, j) and d the row sums. With Y = U·X (sparse), Â = S + Sᵀ for S = Xᵀ(½·d∘X − Y).
"""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import LinearOperator

from boostmetric.comparisons import Comparisons
from boostmetric.metric import Metric, pair_squares
from boostmetric.mining import centred
from boostmetric.operators import OPERATOR_ABOVE, Operator, symmetric_operator


class ComparisonOperator(Operator):
    """⟨A_r, M⟩ = d²_M(far_r) − d²_M(near_r), for comparisons of given points.

    Parameters
    ----------
    X : array of shape (n, D), float32 or float64; centred inside, as distances do not depend on it
    comparisons : Comparisons of the rows of X; their gaps and weights play no part here

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    >>> operator = ComparisonOperator(X, Comparisons.from_triplets([[0, 1, 2]]))
    >>> operator.responses(np.array([0.0, 1.0]))
    array([9.])
    """

    def __init__(self, X: NDArray, comparisons: Comparisons) -> None:
        comparisons.check_points(len(X))
        super().__init__(len(comparisons), X.shape[1], X.dtype)
        self.X = centred(X)
        self._pairs = comparisons.pairs
        self._near, self._far = comparisons.near, comparisons.far
        self._row_starts = np.searchsorted(self._pairs[:, 0], np.arange(len(X) + 1))
        self._i, self._j = np.ascontiguousarray(self._pairs.T)

    def project(self, basis: NDArray) -> ComparisonOperator:
        """The same comparisons of the points X·basis, for a basis of shape (D, d)."""
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
            return self._scatter_operator(*self._graph(self.collect(duals)))
        return self.scatter_matrix(duals)

    def scatter_matrix(self, duals: NDArray) -> NDArray:
        """The scatter as a matrix, whatever D."""
        return self._sum_of_pairs(self.collect(duals))

    def spread(self, duals: NDArray) -> NDArray:
        """Σ_r u_r·(the matrices of both pairs of r), positive semidefinite, of shape (D, D)."""
        return self._sum_of_pairs(
            self._by_pair(self._far, duals) + self._by_pair(self._near, duals)
        )

    def responses(self, direction: NDArray) -> NDArray:
        """h_r = vᵀA_r v = ((x_far)ᵀv)² − ((x_near)ᵀv)², of shape (m,). O(n·D + P + m)."""
        return self.expand(self.measure(direction))

    def measure(self, direction: NDArray) -> NDArray:
        """((x_i − x_j)ᵀv)² of every pair of the table, of shape (P,)."""
        projection = self.X @ direction
        squares: NDArray = projection[self._i] - projection[self._j]
        squares *= squares
        return squares

    def expand(self, squares: NDArray) -> NDArray:
        """From squared distances of the pairs to those of far less those of near, shape (m,)."""
        return squares[self._far] - squares[self._near]

    def collect(self, duals: NDArray) -> NDArray:
        """The adjoint of `expand`: q_p = Σ_{r: far=p} u_r − Σ_{r: near=p} u_r, of shape (P,)."""
        return self._by_pair(self._far, duals) - self._by_pair(self._near, duals)

    def values_of(self, matrix: NDArray) -> NDArray:
        """⟨A_r, N⟩ for a symmetric matrix N that need not be positive, shape (m,).

        With N = QΛQᵀ the squared distances are Σ_d Λ_d·((x_i − x_j)ᵀq_d)². O(n·D² + P·D).
        """
        values, vectors = (part.astype(self.X.dtype) for part in eigh(matrix))
        return self.expand(pair_squares(self.X @ vectors, self._pairs, values))

    def values(self, metric: Metric) -> NDArray:
        """⟨A_r, M⟩ by the distances of the pairs, of shape (m,)."""
        return self.expand(metric.pair_distances(self.X, self._pairs, squared=True))

    def _by_pair(self, side: NDArray, duals: NDArray) -> NDArray:
        return np.bincount(side, duals, self.n_measures)

    def _sum_of_pairs(self, q: NDArray) -> NDArray:
        """Σ_p q_p·(x_i − x_j)(x_i − x_j)ᵀ, of shape (D, D)."""
        upper, degree = self._graph(q)
        half = self.X.T @ (degree[:, None] / 2 * self.X - upper @ self.X)
        return half + half.T

    def _graph(self, q: NDArray) -> tuple[csr_matrix, NDArray]:
        """The upper triangle U of the graph with the weights q, and its degrees d."""
        n = len(self.X)
        degree = np.bincount(self._i, q, n) + np.bincount(self._j, q, n)
        # The table of pairs is sorted by row, so it is the structure of a CSR matrix as it stands.
        upper = csr_matrix((q.astype(self.X.dtype), self._j, self._row_starts), shape=(n, n))
        return upper, degree.astype(self.X.dtype)

    def _scatter_operator(self, upper: csr_matrix, degree: NDArray) -> LinearOperator:
        lower = upper.T

        def product(V: NDArray) -> NDArray:
            projections = self.X @ V
            flow = degree[:, None] * projections - upper @ projections - lower @ projections
            result: NDArray = self.X.T @ flow
            return result

        return symmetric_operator(product, self.n_features, self.dtype)
