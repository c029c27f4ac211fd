"""The weak learner: the leading eigenpairs of a symmetric matrix or operator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from boostmetric.metric import fix_signs

EIGEN_SOLVERS = ("auto", "exact", "lanczos", "power", "randomized")
"""The ways to find eigenvectors; "auto" is "exact" for matrices, and follows those of operators."""

MAX_ROUNDS = 200
"""Products of the matrix with a block, at most, before the exact way is taken."""

OVERSAMPLING = 8
"""Vectors in the block of the randomised method beyond those that are asked for."""

EXACT = 1e-6
"""Relative error of an eigenvector of an operator that is called exact; that of its eigenvalue is
the square of it."""

FIRST_ROUNDS = 12
"""Products with a block, at most, when eigenvectors begin to be followed; later one is enough."""

FORMED_UP_TO = 16_384
"""Features up to which the matrix of an operator is formed as a last resort (2 GB)."""

ROUGH = 0.1
"""Residual, relative to the eigenvalue, at which a first eigenvector will do."""


def leading_eigenpairs(
    A: NDArray | LinearOperator,
    k: int = 1,
    start: NDArray | None = None,
    method: str = "exact",
    accuracy: float | None = None,
) -> tuple[NDArray, NDArray]:
    """The k largest eigenvalues of A, falling, and their unit eigenvectors as columns (D, k).

    Signs are fixed so that each column's largest entry is positive. By the exact method a matrix
    goes to LAPACK, in float64. An operator goes to a restarted Lanczos iteration (ARPACK) that
    begins at `start`; where that does not converge, the matrix is formed by D products and goes to
    LAPACK after all, unless it is too large (`FORMED_UP_TO`): the pairs are then rough ones.

    The approximate methods end as soon as ‖A·v − λ·v‖ ≤ accuracy·|λ| for the first pair: "lanczos"
    is ARPACK, "power" the power method on k vectors, A shifted so that its largest eigenvalue is
    also the largest in size, "randomized" the same on a larger random block. Their λ are
    Rayleigh quotients, which never exceed the true eigenvalues. Where they fail, the exact method
    does the work.

    Parameters
    ----------
    A : symmetric array of shape (D, D), or an operator with `matvec`, `matmat`, `shape`, `dtype`
    k : number of eigenpairs; at most D are returned
    start : array of shape (D,), a guess at the first eigenvector; not used for exact dense ones
    method : one of `EIGEN_SOLVERS`
    accuracy : of the approximate methods

    Examples
    --------
    >>> values, vectors = leading_eigenpairs(np.diag([1.0, 3.0, 2.0]), k=2)
    >>> values.tolist(), vectors[:, 0].tolist()
    ([3.0, 2.0], [0.0, 1.0, 0.0])
    """
    dtype, size = A.dtype, A.shape[0]
    found = None
    if method in ("power", "randomized") and k < size:
        assert accuracy is not None
        extra = OVERSAMPLING if method == "randomized" else 0
        found = _block_iteration(A, k, _block(size, k + extra, start), accuracy)
    elif k < size and (method == "lanczos" or not isinstance(A, np.ndarray)):
        found = _lanczos(A, k, _block(size, 1, start)[:, 0], accuracy)
    if found is not None:
        values, vectors = found
        return values, fix_signs(vectors).astype(dtype)
    if isinstance(A, np.ndarray):
        return _dense(A, k)
    if size > FORMED_UP_TO:
        values, vectors, _ = follow_eigenpairs(A, k, None)
        return values, vectors
    return _dense(A @ np.eye(size, dtype=dtype), k)


def _block(size: int, k: int, start: NDArray | None) -> NDArray:
    """Where an iteration begins: fixed pseudo-random vectors, the first one near the guess.

    The old eigenvector alone would be a poor start: the step along it has just removed what it
    could give. The random part makes sure that no direction is left out.
    """
    block = np.random.default_rng(0).standard_normal((size, min(k, size)))
    block /= np.linalg.norm(block, axis=0)
    if start is not None:
        block[:, 0] += start
    return block


def follow_eigenpairs(
    A: LinearOperator, k: int, basis: NDArray | None
) -> tuple[NDArray, NDArray, NDArray]:
    """Rough leading eigenpairs of an operator that differs little from the last one.

    The best k vectors in the span of a basis, which is made of those of the last operator and of
    their residuals, A·v − λ·v: one product of the operator with 2·k vectors. (LOBPCG, with an
    operator that changes from step to step.)

    Parameters
    ----------
    A : symmetric operator of shape (D, D)
    k : number of eigenpairs, at most D/2
    basis : array of shape (D, 2·k), the third result for the last operator, or None for the first

    Returns
    -------
    Rayleigh quotients, falling, unit vectors (D, k), and the basis for the next operator

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> A = aslinearoperator(np.diag(np.arange(100.0)))
    >>> values, vectors, basis = follow_eigenpairs(A, 2, None)
    >>> better, _, _ = follow_eigenpairs(A, 2, basis)
    >>> bool(90 < values[0] <= better[0] < 99)
    True
    """
    rounds = FIRST_ROUNDS if basis is None else 1
    basis = _block(A.shape[0], 2 * k, None) if basis is None else basis
    for _ in range(rounds):
        Q = np.linalg.qr(basis)[0].astype(A.dtype)
        images = A @ Q
        values, within = eigh((Q.T @ images).astype(np.float64))
        values, within = values[::-1][:k], within[:, ::-1][:, :k].astype(A.dtype)
        vectors = Q @ within
        residuals = images @ within - vectors * values.astype(A.dtype)
        sizes = np.linalg.norm(residuals, axis=0)
        basis = np.column_stack([vectors, residuals / np.maximum(sizes, np.finfo(A.dtype).tiny)])
        if sizes[0] <= ROUGH * abs(values[0]):
            break
    return values, fix_signs(vectors), basis


def _lanczos(
    A: NDArray | LinearOperator, k: int, guess: NDArray, accuracy: float | None
) -> tuple[NDArray, NDArray] | None:
    """By ARPACK; None where it does not converge."""
    dtype = A.dtype
    tol = max(EXACT, float(np.finfo(dtype).eps ** 0.75)) if accuracy is None else accuracy
    try:
        values, vectors = eigsh(A, k=k, which="LA", v0=guess.astype(dtype), tol=tol)
    except ArpackError:
        return None
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    # ARPACK has been seen to return a vector that is no eigenvector when it stagnates.
    images = np.column_stack([A @ vector for vector in vectors.T])
    residuals = np.linalg.norm(images - values * vectors, axis=0)
    sizes = np.abs(values)
    if accuracy is None:  # an eigenvalue near 0 is exact in units of the others
        even = np.full(len(guess), len(guess) ** -0.5, dtype=dtype)
        sizes = np.maximum(sizes, np.linalg.norm(A @ even))
    near = max(tol, np.sqrt(np.finfo(dtype).eps)) * sizes
    return (values, vectors) if (residuals <= 2 * near).all() else None


def _block_iteration(
    A: NDArray | LinearOperator, k: int, block: NDArray, accuracy: float
) -> tuple[NDArray, NDArray] | None:
    """Multiply a block by A and look at A within it, until the first pair is accurate enough."""
    size = 0.0
    for _ in range(MAX_ROUNDS):
        Q = np.linalg.qr(block)[0].astype(A.dtype)
        images = A @ Q
        values, within = eigh((Q.T @ images).astype(np.float64))
        vectors, images = (Q @ within)[:, ::-1], (images @ within)[:, ::-1]
        values = values[::-1]
        residual = float(np.linalg.norm(images[:, 0] - values[0] * vectors[:, 0]))
        if residual <= accuracy * abs(float(values[0])):
            return values[:k], vectors[:, :k]
        # Shifted by the norm, as far as it is seen, the largest eigenvalue is largest in size too.
        size = max(size, float(np.linalg.norm(images, axis=0).max()))
        block = images + size * vectors
    return None


def leading_eigenpair(
    A: NDArray | LinearOperator, start: NDArray | None = None
) -> tuple[float, NDArray]:
    """λ_max(A) and its unit eigenvector, as in `leading_eigenpairs`.

    >>> value, vector = leading_eigenpair(np.diag([1.0, 3.0, 2.0]))
    >>> value, vector.tolist()
    (3.0, [0.0, 1.0, 0.0])
    """
    values, vectors = leading_eigenpairs(A, 1, start)
    return float(values[0]), vectors[:, 0]


def _dense(A: NDArray, k: int) -> tuple[NDArray, NDArray]:
    matrix, first = A.astype(np.float64), max(0, len(A) - k)
    values, vectors = eigh(matrix, subset_by_index=[first, len(A) - 1], check_finite=False)
    if (
        len(values) < len(A) - first
    ):  # seen with SciPy 1.12: it finds no eigenvalue, and says nothing
        values, vectors = (found[..., first:] for found in eigh(matrix, check_finite=False))
    return values[::-1], fix_signs(vectors[:, ::-1]).astype(A.dtype)
