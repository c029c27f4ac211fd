"""The weak learner: the leading eigenpairs of a symmetric matrix or operator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator

from boostmetric.metric import fix_signs

EIGEN_SOLVERS = ("auto", "exact", "approximate")
"""Names of the methods; "auto" is exact for matrices, and `follow_eigenpairs` for operators."""

N_FOLLOWED = 8
"""Minimum number of eigenvectors of an operator that are followed from step to step."""


def find_directions(
    A: NDArray | LinearOperator,
    k: int,
    threshold: float,
    method: str = "auto",
    basis: NDArray | None = None,
    n_steps: int = 0,
) -> tuple[NDArray, NDArray, NDArray | None]:
    """Leading eigenpairs for one step of a solver.

    Approximate pairs become more accurate as the fit proceeds. If they suggest that no direction
    lowers the objective, exact pairs decide.

    Parameters
    ----------
    A : the scatter minus the gradient of the regularizer, except for threshold·I
    k : number of directions, at least one and at most D
    threshold : eigenvalues above it lower the objective
    method : one of `EIGEN_SOLVERS`
    basis : the third result of the last step, or None
    n_steps : number of steps before this one

    Returns
    -------
    values : array of shape (k,), decreasing; values that exceed the threshold by no more than
        rounding are set to the threshold
    vectors : array of shape (D, k)
    basis : the basis for the next step, or None (`follow_eigenpairs`)
    """
    values = None
    if method == "auto" and not isinstance(A, np.ndarray):
        width = max(k, N_FOLLOWED)
        if basis is not None and basis.shape[1] != 2 * width:
            basis = None
        values, vectors, basis = follow_eigenpairs(A, width, basis)
        values, vectors = values[:k], vectors[:, :k]
    elif method == "approximate":
        values, vectors = leading_eigenpairs(A, k, accuracy=0.1 / (1 + n_steps) ** 2)
    if values is None or not values[0] > threshold:
        values, vectors = leading_eigenpairs(A, k)
    # The Frobenius norm; for a random unit vector u, the mean of ‖A·u‖² is ‖A‖²/D.
    if isinstance(A, np.ndarray):
        size = float(np.linalg.norm(A))
    else:
        D = A.shape[0]
        size = np.sqrt(D) * float(np.linalg.norm(A @ _start_vectors(D, 1).astype(A.dtype)))
    size = max(size, np.abs(values).max())
    noise = 4 * np.finfo(np.float64).eps * size  # the accuracy of eigenvalues
    values = np.where(values > threshold + noise, values, np.minimum(values, threshold))
    return values, vectors, basis


def leading_eigenpairs(
    A: NDArray | LinearOperator,
    k: int = 1,
    accuracy: float | None = None,
    max_dense_size: int = 16_384,
) -> tuple[NDArray, NDArray]:
    """The k largest eigenvalues of A, decreasing, and their unit eigenvectors as columns (D, k).

    Signs are fixed so that each column's largest entry is positive. A matrix is decomposed by
    LAPACK, in float64. For an operator, or a matrix if `accuracy` is given, the restarted Lanczos
    iteration is used. If it does not converge, the matrix of the operator is formed by D
    products and decomposed by LAPACK, or approximated if it is too large.

    Parameters
    ----------
    A : symmetric array of shape (D, D), or an operator with `matvec`, `matmat`, `shape`, `dtype`
    k : number of eigenpairs; at most D are returned
    accuracy : end as soon as ‖A·v − λ·v‖ ≤ accuracy·|λ| for all pairs. Their λ are Rayleigh
        quotients, which never exceed the true eigenvalues. None for exact pairs
    max_dense_size : largest D for which the matrix of an operator is formed (2 GB)

    Examples
    --------
    >>> values, vectors = leading_eigenpairs(np.diag([1.0, 3.0, 2.0]), k=2)
    >>> values.tolist(), vectors[:, 0].tolist()
    ([3.0, 2.0], [0.0, 1.0, 0.0])
    """
    dtype, size = A.dtype, A.shape[0]
    if k < size and (accuracy is not None or not isinstance(A, np.ndarray)):
        found = _lanczos(A, k, accuracy)
        if found is not None:
            return found[0], fix_signs(found[1]).astype(dtype)
    if not isinstance(A, np.ndarray):
        if size > max_dense_size:
            return follow_eigenpairs(A, k, None)[:2]
        A = A @ np.eye(size, dtype=dtype)
    matrix, first = A.astype(np.float64), max(0, size - k)
    values, vectors = eigh(matrix, subset_by_index=[first, size - 1], check_finite=False)
    if len(values) < size - first:  # SciPy 1.12 may return no eigenvalue, without an error
        values, vectors = (found[..., first:] for found in eigh(matrix, check_finite=False))
    return values[::-1], fix_signs(vectors[:, ::-1]).astype(A.dtype)


def follow_eigenpairs(
    A: LinearOperator, k: int, basis: NDArray | None
) -> tuple[NDArray, NDArray, NDArray]:
    """Approximate leading eigenpairs of an operator that differs little from the last one.

    These are the best k vectors in the span of a basis, which consists of the vectors for the last
    operator and their residuals, A·v − λ·v: one product of the operator with 2·k vectors. (LOBPCG,
    with an operator that changes from step to step.)

    Parameters
    ----------
    A : symmetric operator of shape (D, D)
    k : number of eigenpairs, at most D/2
    basis : array of shape (D, 2·k), the third result for the last operator, or None for the first

    Returns
    -------
    Rayleigh quotients, decreasing, unit vectors (D, k), and the basis for the next operator

    Examples
    --------
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> A = aslinearoperator(np.diag(np.arange(100.0)))
    >>> values, vectors, basis = follow_eigenpairs(A, 2, None)
    >>> better, _, _ = follow_eigenpairs(A, 2, basis)
    >>> bool(90 < values[0] <= better[0] < 99)
    True
    """
    # For the first operator, iterate until the leading residual is at most 0.1·λ.
    max_rounds = 12 if basis is None else 1
    basis = _start_vectors(A.shape[0], 2 * k) if basis is None else basis
    for _ in range(max_rounds):
        Q = np.linalg.qr(basis)[0].astype(A.dtype)
        images = A @ Q
        values, within = eigh((Q.T @ images).astype(np.float64))
        values, within = values[::-1][:k], within[:, ::-1][:, :k].astype(A.dtype)
        vectors = Q @ within
        residuals = images @ within - vectors * values.astype(A.dtype)
        sizes = np.linalg.norm(residuals, axis=0)
        basis = np.column_stack([vectors, residuals / np.maximum(sizes, np.finfo(A.dtype).tiny)])
        if sizes[0] <= 0.1 * abs(values[0]):
            break
    return values, fix_signs(vectors), basis


def _start_vectors(size: int, k: int) -> NDArray:
    """Fixed pseudo-random unit vectors."""
    block = np.random.default_rng(0).standard_normal((size, min(k, size)))
    return block / np.linalg.norm(block, axis=0)


def _lanczos(
    A: NDArray | LinearOperator, k: int, accuracy: float | None
) -> tuple[NDArray, NDArray] | None:
    """The k leading eigenpairs by the Lanczos iteration; None if it does not converge.

    This is the thick-restart variant (Wu and Simon 2000), which takes as many products as ARPACK.
    ARPACK continues from a random vector if the Krylov space is invariant, as it is for data with
    constant features, so its results are not reproducible.
    """
    dtype, size = A.dtype, A.shape[0]
    eps = float(np.finfo(dtype).eps)
    # The relative error of an eigenvalue is the square of that of its eigenvector.
    tol = max(1e-6, eps**0.75) if accuracy is None else accuracy
    smallest_scale = 0.0
    if accuracy is None:  # the error of an eigenvalue near 0 is relative to the others
        even = np.full(size, size**-0.5, dtype=dtype)
        smallest_scale = float(np.linalg.norm(A @ even))
    width = min(size, max(2 * k + 1, 20))  # as many vectors as ARPACK stores
    max_products = max(500, 2 * size)  # forming the matrix takes D products
    rng = np.random.default_rng(0)
    basis, images = (np.empty((size, width), dtype=dtype, order="F") for _ in range(2))
    vector = _start_vectors(size, 1)[:, 0].astype(dtype)
    n_kept = n_products = 0
    largest = 0.0  # a lower bound of the norm of A
    while True:
        # 1) extend the basis by the Krylov space of the vector, or by a fixed random vector if the
        # space of the basis is invariant
        for j in range(n_kept, width):
            vector = _orthogonal_part(vector, basis[:, :j])
            if np.linalg.norm(vector) <= 16 * eps * largest:
                random = rng.standard_normal((size,)).astype(dtype)
                vector = _orthogonal_part(random, basis[:, :j])
            basis[:, j] = vector / np.linalg.norm(vector)
            images[:, j] = vector = A @ basis[:, j]
            largest = max(largest, float(np.linalg.norm(vector)))
        n_products += width - n_kept
        vector = _orthogonal_part(vector, basis)
        # 2) the leading eigenpairs within the basis, which replace it
        n_kept = (width + k) // 2
        values, within = eigh((basis.T @ images).astype(np.float64))
        values, within = values[::-1][:n_kept], within[:, ::-1][:, :n_kept].astype(dtype)
        basis[:, :n_kept], images[:, :n_kept] = basis @ within, images @ within
        # 3) their residuals
        values, vectors = values[:k], basis[:, :k]
        residuals = np.linalg.norm(images[:, :k] - values * vectors, axis=0)
        scales, rounding = np.maximum(np.abs(values), smallest_scale), 64 * eps * largest
        if (residuals <= np.maximum(tol * scales, rounding)).all():
            return values, vectors
        if width == size or n_products >= max_products:
            is_close = (residuals <= 2 * max(tol, np.sqrt(eps)) * scales).all()
            return (values, vectors) if is_close else None


def _orthogonal_part(vector: NDArray, basis: NDArray) -> NDArray:
    """The part of a vector that is orthogonal to orthonormal columns, to working accuracy."""
    for _ in range(2):
        vector = vector - basis @ (basis.T @ vector)
    return vector
