"""The weak learner: the leading eigenpair of a symmetric matrix or operator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from boostmetric.metric import fix_signs


def leading_eigenpair(
    A: NDArray | LinearOperator, start: NDArray | None = None
) -> tuple[float, NDArray]:
    """λ_max(A) and its unit eigenvector, the sign fixed so that the largest entry is positive.

    A matrix goes to LAPACK, in float64. An operator goes to a restarted Lanczos iteration
    (ARPACK) that begins at `start`; where that does not converge, the matrix is formed by
    D products and goes to LAPACK after all.

    Parameters
    ----------
    A : symmetric array of shape (D, D), or an operator with `matvec`, `matmat`, `shape`, `dtype`
    start : array of shape (D,), a guess at the eigenvector; only used for operators

    Examples
    --------
    >>> value, vector = leading_eigenpair(np.diag([1.0, 3.0, 2.0]))
    >>> value, vector.tolist()
    (3.0, [0.0, 1.0, 0.0])
    """
    if isinstance(A, np.ndarray):
        return _dense(A)
    dtype, size = A.dtype, A.shape[0]
    if size == 1:
        return _dense(A.matmat(np.ones((1, 1), dtype=dtype)))
    # The old eigenvector alone would be a poor start: the step along it has just removed what it
    # could give. A fixed pseudo-random part makes sure that no direction is left out.
    noise = np.random.default_rng(0).standard_normal(size)
    guess = noise / np.linalg.norm(noise)
    if start is not None:
        guess = guess + start
    try:
        tol = np.finfo(dtype).eps ** 0.75
        values, vectors = eigsh(A, k=1, which="LA", v0=guess.astype(dtype), tol=tol)
        # ARPACK has been seen to return a vector that is no eigenvector when it stagnates.
        residual = np.linalg.norm(A.matvec(vectors[:, 0]) - values[0] * vectors[:, 0])
        if residual <= np.sqrt(np.finfo(dtype).eps) * abs(values[0]):
            return float(values[0]), fix_signs(vectors)[:, 0]
    except ArpackError:
        pass
    return _dense(A.matmat(np.eye(size, dtype=dtype)))


def _dense(A: NDArray) -> tuple[float, NDArray]:
    last = len(A) - 1
    values, vectors = eigh(A.astype(np.float64), subset_by_index=[last, last], check_finite=False)
    return float(values[0]), fix_signs(vectors)[:, 0].astype(A.dtype)
