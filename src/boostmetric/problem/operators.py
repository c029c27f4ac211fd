"""The linear map M ↦ (⟨A_1, M⟩, …, ⟨A_m, M⟩) for symmetric matrices A_r, and its adjoint.

A problem accesses its data only through this map. A custom operator derives from `Operator` and
implements two methods:

>>> import numpy as np
>>> from boostmetric import Operator, learn_psd
>>> class Diagonals(Operator):
...     "A_r = diag(rows[r])."
...     def __init__(self, rows):
...         super().__init__(*rows.shape)
...         self.rows = rows
...     def scatter(self, duals):
...         return np.diag(duals @ self.rows)
...     def responses(self, direction):
...         return self.rows @ direction**2
>>> fit = learn_psd(Diagonals(np.array([[1.0, -1.0], [1.0, -2.0]])), alpha=0.5)
>>> fit.metric.matrix.round(3)
array([[1.099, 0.   ],
       [0.   , 0.   ]])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array, eye_array, issparse, vstack
from scipy.sparse.linalg import LinearOperator

from boostmetric.data.points import binary_exponent, scale
from boostmetric.metric import Metric

MAX_UNIT_EXPONENT = 1000
"""Limit of the exponent of a unit: coefficients of M are multiplied by it, in float64."""


class Operator(ABC):
    """Symmetric matrices A_1 … A_m of shape (D, D), which need not be formed.

    `scatter` and `responses` are required. All other methods have defaults based on these two,
    which can be overridden by faster ones.

    Parameters
    ----------
    n_matrices : m
    n_features : D
    dtype : precision of all results

    Attributes
    ----------
    unit : the operator represents the given matrices divided by this number
    """

    DENSE_UP_TO: ClassVar[int] = 600
    """With more features than this, the scatter is a LinearOperator instead of a matrix."""

    MEASURES_ARE_SQUARES: ClassVar[bool] = False
    """Whether measures are never negative."""

    unit: float = 1.0

    def __init__(self, n_matrices: int, n_features: int, dtype: DTypeLike = np.float64) -> None:
        self.n_matrices, self.n_features, self.dtype = n_matrices, n_features, np.dtype(dtype)
        # Responses are a sparse matrix E times P measures. Threads process chunks of the matrices
        # A_r and of the measures: E[chunks[b]] = expansion[b], Eᵀ[measure_chunks[b]] = adjoint[b].
        # By default, measures are the responses, in one chunk.
        self.chunks = self.measure_chunks = [slice(0, n_matrices)]
        self.expansion: list[Any] = [eye_array(n_matrices, dtype=self.dtype, format="csr")]
        self.adjoint = self.expansion

    @property
    def is_dense(self) -> bool:
        """Whether matrices of shape (D, D) are formed in every step."""
        return self.n_features <= self.DENSE_UP_TO

    @abstractmethod
    def scatter(self, duals: NDArray) -> NDArray | LinearOperator:
        """Σ_r u_r·A_r, for u of shape (m,), as a matrix or a LinearOperator."""

    @abstractmethod
    def responses(self, direction: NDArray) -> NDArray:
        """h_r = vᵀA_r v, of shape (m,), for v of shape (D,) and any length."""

    def measures(self, directions: NDArray) -> NDArray:
        """Quantities of which the responses are linear functions, for directions (D, k): (P, k)."""
        columns = [self.responses(direction) for direction in directions.T]
        return np.column_stack([np.empty((self.n_matrices, 0), dtype=self.dtype), *columns])

    def values(self, metric: Metric) -> NDArray:
        """⟨A_r, M⟩ for a metric, of shape (m,)."""
        return self._weighted_responses(metric.components.T, np.ones(len(metric.components)))

    def values_of(self, matrix: NDArray) -> NDArray:
        """⟨A_r, N⟩ for any symmetric matrix N, of shape (m,)."""
        values, vectors = eigh(matrix)
        return self._weighted_responses(vectors, values)

    def scatter_matrix(self, duals: NDArray) -> NDArray:
        """The scatter as a matrix, for any D."""
        scatter = self.scatter(duals)
        if isinstance(scatter, np.ndarray):
            return scatter
        matrix: NDArray = scatter @ np.eye(self.n_features, dtype=self.dtype)
        return (matrix + matrix.T) / 2

    def absolute_scatter(self, duals: NDArray) -> NDArray:
        """A positive semidefinite matrix that approximates Σ_r u_r·|A_r|, for u ≥ 0.

        Used to precondition the optimization of factors of M and to estimate rounding errors.
        """
        return float(duals @ np.abs(self._probe_responses())) * np.eye(self.n_features)

    def normalized(self) -> Operator:
        """The matrices divided by a power of two, so that their entries are about 1.

        Squares of the entries of M then neither overflow nor underflow, and fits of matrices in
        different units take the same steps, because scaling by a power of two is exact.
        """
        responses = self._probe_responses()
        exponent = binary_exponent(responses) if np.isfinite(responses).all() else 0
        return DividedOperator(self, exponent) if exponent else self

    def _probe_responses(self) -> NDArray:
        """Responses to a fixed random direction."""
        probe = np.random.default_rng(0).standard_normal(self.n_features)
        return self.responses(probe.astype(self.dtype))

    def _weighted_responses(self, directions: NDArray, factors: NDArray) -> NDArray:
        """Σ_d factors_d·v_dᵀA_r v_d, of shape (m,)."""
        total = np.zeros(self.n_matrices, dtype=self.dtype)
        for direction, factor in zip(directions.astype(self.dtype).T, factors, strict=True):
            total += self.dtype.type(factor) * self.responses(direction)
        return total


class StackOperator(Operator):
    """Matrices A_r given one by one, dense or sparse.

    Parameters
    ----------
    matrices : array of shape (m, D, D), or a sequence of m arrays or sparse matrices (D, D)

    Examples
    --------
    >>> StackOperator([np.eye(2), np.diag([1.0, -1.0])]).responses(np.array([0.0, 2.0]))
    array([ 4., -4.])
    """

    def __init__(self, matrices: NDArray | Sequence[Any]) -> None:
        stack: list[Any] = [A if issparse(A) else np.asarray(A) for A in matrices]
        if not stack:
            raise ValueError("At least one matrix A_r is required; got none.")
        shape = stack[0].shape
        for r, A in enumerate(stack):
            if len(shape) != 2 or shape[0] != shape[1] or A.shape != shape:
                raise ValueError(
                    f"All matrices must be square and of the same shape; matrix {r} has shape "
                    f"{A.shape} and matrix 0 has shape {shape}."
                )
            if A.dtype.kind not in "buif":
                raise ValueError(
                    f"Matrices must contain real numbers; matrix {r} has dtype {A.dtype}."
                )
            if 0 in shape:
                raise ValueError(f"Matrices must not be empty; matrix {r} has shape {shape}.")
            largest = float(abs(A).max())
            if not np.isfinite(largest):
                raise ValueError(f"Matrices must be finite; matrix {r} contains NaN or infinity.")
            difference = float(abs(A - A.T).max())
            if difference > 1e-6 * largest:  # more than rounding in float32
                raise ValueError(
                    f"Matrix {r} is not symmetric: it differs from its transpose by "
                    f"{difference:g}. Use (A + A.T) / 2, which has the same products ⟨A, M⟩."
                )
        m, D = len(stack), shape[0]
        flat: Any
        if all(map(issparse, stack)):
            flat = vstack([csr_array(A).reshape((1, D * D)) for A in stack], format="csr")
        else:
            dense = [A.toarray() if issparse(A) else A for A in stack]
            flat = np.array(dense).reshape(m, D * D)
        dtype = np.float32 if flat.dtype == np.float32 else np.float64
        super().__init__(m, D, dtype)
        self._flat = flat.astype(dtype, copy=False)
        self._row_sums = np.array([np.asarray(abs(A).sum(axis=0)).ravel() for A in stack])

    def scatter(self, duals: NDArray) -> NDArray:
        total: NDArray = self._flat.T @ duals.astype(self.dtype, copy=False)
        return total.reshape(self.n_features, self.n_features)

    def responses(self, direction: NDArray) -> NDArray:
        return self.values_of(np.outer(direction, direction))

    def values(self, metric: Metric) -> NDArray:
        return self.values_of(metric.matrix)

    def values_of(self, matrix: NDArray) -> NDArray:
        values: NDArray = self._flat @ matrix.ravel().astype(self.dtype, copy=False)
        return values

    def absolute_scatter(self, duals: NDArray) -> NDArray:
        """The diagonal matrix of Σ_r u_r·Σ_j |A_r|_ij, which exceeds Σ_r u_r·|A_r|."""
        return np.diag(duals @ self._row_sums)

    def normalized(self) -> StackOperator:
        operator, exponent = copy(self), binary_exponent(self._flat)
        operator._flat = divided(self._flat, exponent)
        operator._row_sums = divided(self._row_sums, exponent)
        operator.unit = self.unit * unit_of(exponent)
        return operator


class LowRankOperator(Operator):
    """A_r = Σ_k s_rk·f_rk·f_rkᵀ, a sum of few rank-one matrices of either sign.

    Parameters
    ----------
    factors : array of shape (m, k, D), the vectors f_rk
    signs : the numbers s_rk, of shape (m, k), or (k,) if they are the same for all r

    Examples
    --------
    >>> operator = LowRankOperator(np.eye(3)[None, :2], signs=[1.0, -1.0])
    >>> operator.scatter(np.array([2.0]))
    array([[ 2.,  0.,  0.],
           [ 0., -2.,  0.],
           [ 0.,  0.,  0.]])
    """

    def __init__(self, factors: ArrayLike, signs: ArrayLike) -> None:
        stack = np.asarray(factors)
        if stack.ndim != 3 or 0 in stack.shape or not np.issubdtype(stack.dtype, np.number):
            raise ValueError(
                f"factors must be numbers of shape (m, k, D); got shape {stack.shape}."
            )
        dtype = np.float32 if stack.dtype == np.float32 else np.float64
        m, k, D = stack.shape
        super().__init__(m, D, dtype)
        weights = np.asarray(signs, dtype=dtype)
        if weights.shape not in ((k,), (m, k)):
            raise ValueError(
                f"signs must have shape ({k},) or ({m}, {k}) for factors of shape {stack.shape}; "
                f"got shape {weights.shape}."
            )
        if not (np.isfinite(stack).all() and np.isfinite(weights).all()):
            raise ValueError("factors and signs must be finite.")
        self._rows = np.ascontiguousarray(stack.reshape(m * k, D), dtype=dtype)
        self._signs = np.broadcast_to(weights, (m, k))

    def scatter(self, duals: NDArray) -> NDArray | LinearOperator:
        """Σ_r u_r·A_r = FᵀSF with all factors as rows of F; a LinearOperator if D is large."""
        weights = (duals[:, None] * self._signs).ravel().astype(self.dtype)
        if self.is_dense:
            return (self._rows * weights[:, None]).T @ self._rows
        return symmetric_operator(
            lambda V: self._rows.T @ (weights[:, None] * (self._rows @ V)),
            self.n_features,
            self.dtype,
        )

    def responses(self, direction: NDArray) -> NDArray:
        """vᵀA_r v = Σ_k s_rk·(f_rkᵀv)²."""
        squares = np.square(self._rows @ direction.astype(self.dtype, copy=False))
        return np.einsum("rk,rk->r", self._signs, squares.reshape(self._signs.shape))

    def absolute_scatter(self, duals: NDArray) -> NDArray:
        """Σ_r u_r·Σ_k |s_rk|·f_rk·f_rkᵀ."""
        weights = (duals[:, None] * np.abs(self._signs)).ravel().astype(self.dtype)
        return (self._rows * weights[:, None]).T @ self._rows

    def normalized(self) -> LowRankOperator:
        operator = copy(self)
        length, sign = binary_exponent(self._rows), binary_exponent(self._signs)
        operator._rows, operator._signs = divided(self._rows, length), divided(self._signs, sign)
        operator.unit = self.unit * unit_of(2 * length + sign)
        return operator


class DividedOperator(Operator):
    """The matrices of another operator, divided by 2**exponent."""

    def __init__(self, operator: Operator, exponent: int) -> None:
        super().__init__(operator.n_matrices, operator.n_features, operator.dtype)
        self.operator, self.exponent = operator, exponent
        self.unit = operator.unit * unit_of(exponent)
        self.chunks, self.measure_chunks = operator.chunks, operator.measure_chunks
        self.expansion, self.adjoint = operator.expansion, operator.adjoint

    @property
    def is_dense(self) -> bool:
        return self.operator.is_dense

    def scatter(self, duals: NDArray) -> NDArray | LinearOperator:
        scatter = self.operator.scatter(duals)
        if isinstance(scatter, np.ndarray):
            return divided(scatter, self.exponent)
        return symmetric_operator(
            lambda V: divided(scatter @ V, self.exponent), self.n_features, self.dtype
        )

    def scatter_matrix(self, duals: NDArray) -> NDArray:
        return divided(self.operator.scatter_matrix(duals), self.exponent)

    def absolute_scatter(self, duals: NDArray) -> NDArray:
        return divided(self.operator.absolute_scatter(duals), self.exponent)

    def responses(self, direction: NDArray) -> NDArray:
        return divided(self.operator.responses(direction), self.exponent)

    def measures(self, directions: NDArray) -> NDArray:
        return divided(self.operator.measures(directions), self.exponent)

    def values(self, metric: Metric) -> NDArray:
        return divided(self.operator.values(metric), self.exponent)

    def values_of(self, matrix: NDArray) -> NDArray:
        return divided(self.operator.values_of(matrix), self.exponent)


def divided(values: Any, exponent: int) -> Any:
    """Return an array, dense or sparse, divided by 2**exponent."""
    quotient = values.copy()
    scale(quotient, -exponent)
    return quotient


def unit_of(exponent: int) -> float:
    """Return 2**exponent; raise a ValueError if coefficients of M would overflow in this unit."""
    if abs(exponent) > MAX_UNIT_EXPONENT:
        raise ValueError(
            f"The entries of the matrices A_r are about 2**{exponent}, out of the range of "
            f"2**{-MAX_UNIT_EXPONENT} to 2**{MAX_UNIT_EXPONENT}. Scale the matrices."
        )
    return 2.0**exponent


def symmetric_operator(
    product: Callable[[NDArray], NDArray], size: int, dtype: np.dtype
) -> LinearOperator:
    """A symmetric LinearOperator from its product with arrays of shape (size, k)."""

    def any_shape(V: NDArray) -> NDArray:
        return product(V.reshape(size, -1)).reshape(V.shape)

    return LinearOperator((size, size), matvec=any_shape, matmat=any_shape, dtype=dtype)


def as_operator(given: Operator | NDArray | Sequence[Any]) -> Operator:
    """Convert an array or a list of matrices to an operator; return an Operator unchanged."""
    if isinstance(given, Operator):
        return given
    if isinstance(given, np.ndarray | Sequence):
        return StackOperator(given)
    raise TypeError(
        f"operator must be an array of shape (m, D, D), a list of dense or sparse matrices, or an "
        f"instance of Operator; got {type(given).__name__}."
    )


def check_operator(operator: Operator) -> None:
    """Raise a ValueError if `scatter` and `responses` are inconsistent.

    For random u and x, Σ_r u_r·(xᵀA_r x) must equal xᵀ·scatter(u)·x, and the scatter must be
    symmetric.
    """
    rng = np.random.default_rng(0)
    m, D, dtype = operator.n_matrices, operator.n_features, operator.dtype
    name = type(operator).__name__
    duals = rng.uniform(0.5, 1.5, m).astype(dtype)
    x, z = rng.standard_normal((2, D)).astype(dtype)
    scatter, responses = operator.scatter(duals), operator.responses(x)
    for method, shape, expected in (
        ("scatter", scatter.shape, (D, D)),
        ("responses", responses.shape, (m,)),
    ):
        if shape != expected:
            raise ValueError(f"{name}.{method} must return shape {expected}; got {shape}.")
    image, other = scatter @ x, scatter @ z
    if not (np.isfinite(image).all() and np.isfinite(responses).all()):
        raise ValueError(f"{name} returns numbers that are not finite.")
    # Relative to the largest number, because squares might overflow or underflow.
    exponent = max(map(binary_exponent, (image, other, responses)))
    Gx, Gz, h = (divided(each, exponent) for each in (image, other, responses))
    tolerance = np.sqrt(np.finfo(dtype).eps) * D * (np.linalg.norm(Gx) + np.linalg.norm(Gz))
    if abs(z @ Gx - x @ Gz) > tolerance:
        raise ValueError(f"{name}.scatter is not symmetric: every A_r must be.")
    if abs(float(duals @ h - x @ Gx)) > tolerance + 1e-3 * float(duals @ np.abs(h)):
        raise ValueError(
            f"{name} is inconsistent: for random u and v, sum(u * responses(v)) is "
            f"{duals @ responses:g}, but v @ scatter(u) @ v is {x @ image:g}."
        )
