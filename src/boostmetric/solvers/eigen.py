"""The weak learner: the leading eigenpairs of a symmetric matrix or operator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from boostmetric.metric import fix_signs

EIGEN_SOLVERS = ("auto", "exact", "approximate")
"""How eigenvectors are found; "auto" is "exact" for matrices, and follows those of operators."""

FIRST_ACCURACY = 0.1
"""The relative error of the first approximate eigenvector; it falls like 1/t² with step t."""

FOLLOWED = 8
"""Eigenvectors of an operator that are followed from one step to the next, at least."""

ROUNDING = 4
"""Eigenvalues are noise up to this many units of rounding of the norm of the matrix."""

EXACT = 1e-6
"""Relative error of an eigenvector of an operator that is called exact; that of its eigenvalue is
the square of it."""

FIRST_ROUNDS = 12
"""Products with a block, at most, when eigenvectors begin to be followed; later one is enough."""

FORMED_UP_TO = 16_384
"""Features up to which the matrix of an operator is formed as a last resort (2 GB)."""

ROUGH = 0.1
"""Residual, relative to the eigenvalue, at which a first eigenvector is accurate enough."""


def find_directions(
    A: NDArray | LinearOperator,
    k: int,
    threshold: float,
    method: str = "auto",
    basis: NDArray | None = None,
    n_steps: int = 0,
) -> tuple[NDArray, NDArray, NDArray | None]:
    """Leading eigenpairs as a solver needs them in a step.

    Approximate pairs become more accurate as the fit proceeds; if they suggest that no direction
    lowers the objective, exact ones decide.

    Parameters
    ----------
    A : the scatter less what the regularizer subtracts
    k : number of directions, at least one and at most D
    threshold : eigenvalues above it lower the objective
    method : one of `EIGEN_SOLVERS`
    basis : the third result of the last step, or None
    n_steps : number of steps before this one

    Returns
    -------
    values : array of shape (k,), falling; those that exceed the threshold by no more than rounding
        are set to the threshold
    vectors : array of shape (D, k)
    basis : what eigenvectors of an operator are followed by, or None
    """
    values = None
    if method == "auto" and not isinstance(A, np.ndarray):
        width = max(k, FOLLOWED)
        if basis is not None and basis.shape[1] != 2 * width:
            basis = None
        values, vectors, basis = follow_eigenpairs(A, width, basis)
        values, vectors = values[:k], vectors[:, :k]
    elif method == "approximate":
        accuracy = FIRST_ACCURACY / (1 + n_steps) ** 2
        values, vectors = leading_eigenpairs(A, k, accuracy)
    if values is None or not values[0] > threshold:
        values, vectors = leading_eigenpairs(A, k)
    size = np.abs(values).max()
    if isinstance(A, np.ndarray):
        size = max(size, float(np.linalg.norm(A)))
    noise = ROUNDING * np.finfo(np.float64).eps * size
    values = np.where(values > threshold + noise, values, np.minimum(values, threshold))
    return values, vectors, basis


def leading_eigenpairs(
    A: NDArray | LinearOperator, k: int = 1, accuracy: float | None = None
) -> tuple[NDArray, NDArray]:
    """The k largest eigenvalues of A, falling, and their unit eigenvectors as columns (D, k).

    Signs are fixed so that each column's largest entry is positive. A matrix is decomposed by
    LAPACK, in float64. An operator, or a matrix if an `accuracy` is given, goes to a restarted
    Lanczos iteration (ARPACK); if that does not converge, the matrix of the operator is formed by D
    products and decomposed by LAPACK, unless it is too large (`FORMED_UP_TO`): the pairs are then
    rough ones.

    Parameters
    ----------
    A : symmetric array of shape (D, D), or an operator with `matvec`, `matmat`, `shape`, `dtype`
    k : number of eigenpairs; at most D are returned
    accuracy : end as soon as ‖A·v − λ·v‖ ≤ accuracy·|λ| for all pairs. Their λ are Rayleigh
        quotients, which never exceed the true eigenvalues. None for exact pairs

    Examples
    --------
    >>> values, vectors = leading_eigenpairs(np.diag([1.0, 3.0, 2.0]), k=2)
    >>> values.tolist(), vectors[:, 0].tolist()
    ([3.0, 2.0], [0.0, 1.0, 0.0])
    """
    dtype, size = A.dtype, A.shape[0]
    if k < size and (accuracy is not None or not isinstance(A, np.ndarray)):
        found = _lanczos(A, k, _block(size, 1)[:, 0], accuracy)
        if found is not None:
            values, vectors = found
            return values, fix_signs(vectors).astype(dtype)
    if isinstance(A, np.ndarray):
        return _dense(A, k)
    if size > FORMED_UP_TO:
        values, vectors, _ = follow_eigenpairs(A, k, None)
        return values, vectors
    return _dense(A @ np.eye(size, dtype=dtype), k)


def _block(size: int, k: int) -> NDArray:
    """Where an iteration begins: fixed pseudo-random unit vectors."""
    block = np.random.default_rng(0).standard_normal((size, min(k, size)))
    return block / np.linalg.norm(block, axis=0)


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
    basis = _block(A.shape[0], 2 * k) if basis is None else basis
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


def _dense(A: NDArray, k: int) -> tuple[NDArray, NDArray]:
    matrix, first = A.astype(np.float64), max(0, len(A) - k)
    values, vectors = eigh(matrix, subset_by_index=[first, len(A) - 1], check_finite=False)
    if len(values) < len(A) - first:  # seen with SciPy 1.12: no eigenvalue is found, silently
        values, vectors = (found[..., first:] for found in eigh(matrix, check_finite=False))
    return values[::-1], fix_signs(vectors[:, ::-1]).astype(A.dtype)
