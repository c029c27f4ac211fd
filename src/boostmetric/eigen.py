"""The weak learner: the leading eigenpairs of a symmetric matrix or operator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from boostmetric.metric import fix_signs


def leading_eigenpairs(
    A: NDArray | LinearOperator, k: int = 1, start: NDArray | None = None
) -> tuple[NDArray, NDArray]:
    """The k largest eigenvalues of A, falling, and their unit eigenvectors as columns (D, k).

    Signs are fixed so that each column's largest entry is positive. A matrix goes to LAPACK, in
    float64. An operator goes to a restarted Lanczos iteration (ARPACK) that begins at `start`;
    where that does not converge, the matrix is formed by D products and goes to LAPACK after all.

    Parameters
    ----------
    A : symmetric array of shape (D, D), or an operator with `matvec`, `matmat`, `shape`, `dtype`
    k : number of eigenpairs; at most D are returned
    start : array of shape (D,), a guess at the first eigenvector; only used for operators

    Examples
    --------
    >>> values, vectors = leading_eigenpairs(np.diag([1.0, 3.0, 2.0]), k=2)
    >>> values.tolist(), vectors[:, 0].tolist()
    ([3.0, 2.0], [0.0, 1.0, 0.0])
    """
    if isinstance(A, np.ndarray):
        return _dense(A, k)
    dtype, size = A.dtype, A.shape[0]
    if k >= size:
        return _dense(A.matmat(np.eye(size, dtype=dtype)), k)
    # The old eigenvector alone would be a poor start: the step along it has just removed what it
    # could give. A fixed pseudo-random part makes sure that no direction is left out.
    noise = np.random.default_rng(0).standard_normal(size)
    guess = noise / np.linalg.norm(noise)
    if start is not None:
        guess = guess + start
    try:
        tol = np.finfo(dtype).eps ** 0.75
        values, vectors = eigsh(A, k=k, which="LA", v0=guess.astype(dtype), tol=tol)
        order = np.argsort(values)[::-1]
        values, vectors = values[order], vectors[:, order]
        # ARPACK has been seen to return a vector that is no eigenvector when it stagnates.
        images = np.column_stack([A.matvec(vector) for vector in vectors.T])
        residuals = np.linalg.norm(images - values * vectors, axis=0)
        if (residuals <= np.sqrt(np.finfo(dtype).eps) * np.abs(values)).all():
            return values, fix_signs(vectors)
    except ArpackError:
        pass
    return _dense(A.matmat(np.eye(size, dtype=dtype)), k)


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
    first = max(0, len(A) - k)
    values, vectors = eigh(
        A.astype(np.float64), subset_by_index=[first, len(A) - 1], check_finite=False
    )
    return values[::-1], fix_signs(vectors[:, ::-1]).astype(A.dtype)
