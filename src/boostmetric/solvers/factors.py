"""Minimization of the objective over factors B of the metric M = B·Bᵀ.

The objective is not convex in B, but it is smooth and has no constraints, so L-BFGS applies. A
stationary B is optimal if the scatter minus the gradient of the regularizer has no eigenvalue above
the threshold; otherwise its leading eigenvectors, added as columns, lower the objective further
(Burer and Monteiro 2003; Journée, Bach, Absil and Sepulchre 2010). These are the eigenvectors that
boosting adds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize

from boostmetric.problem import Evaluation, Objective

FAR = 1e8
"""If ⟨A_r, M⟩ exceeds this, the objective is unbounded below: margins of a few dozen are large."""


def polish(objective: Objective, root: NDArray, max_evaluations: int) -> tuple[NDArray, int]:
    """Lower the objective at B·Bᵀ from B = `root`, of shape (D, r).

    Returns B and the number of evaluations.

    The variables are Z with B = K^(−1/4)·Z for K = Σ_r c_r·|A_r|. With K^(−1/2) the loss would be
    well conditioned, with the identity the regularizer; this is a compromise, which needs few
    evaluations for any strength and for features of any scale. Null directions of the data, in
    which K is 0, are left out, unless the regularizer keeps M from being 0 there.

    The weights of K are those of the terms, not their duals. A dual is 0 if a margin is large
    enough, so directions that satisfy comparisons would be left out, although M needs them.
    """
    # 1) the axes of K, in units of its largest entry
    scatter = objective.absolute_scatter
    size = np.abs(scatter).max()
    values, vectors = eigh(scatter / size)
    used = values > 16 * np.finfo(objective.dtype).eps * values[-1]
    used |= objective.regularizer.multiple > 0
    values, vectors = np.maximum(values[used], 1e-8 * values[-1]), vectors[:, used]
    axes, inverse = vectors * values**-0.25, vectors * values**0.25
    # 2) L-BFGS over Z. The objective is in units of K, too, so that the unit of the weights, on
    # which the length of the first step depends, has no effect.
    start = inverse.T @ root
    best, best_value, n_evaluations = root, np.inf, 0
    last: Evaluation

    def function(z: NDArray) -> tuple[float, NDArray]:
        nonlocal best, best_value, n_evaluations, last
        B = axes @ z.reshape(start.shape)
        M = B @ B.T
        last = objective.evaluate_at(M)
        n_evaluations += 1
        if last.value < best_value:
            best, best_value = B, last.value
        slopes = 2 * axes.T @ (objective.gradient_at(M, last) / size) @ B
        return last.value / size, slopes.ravel()

    def stop(z: NDArray) -> None:
        if last.largest > FAR:
            raise StopIteration

    minimize(
        function,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=stop,
        options={"maxcor": 20, "maxfun": max_evaluations, "ftol": 1e-15, "gtol": 0.0},
    )
    return best, n_evaluations


def orthogonal_directions(root: NDArray, dtype: DTypeLike) -> tuple[NDArray, NDArray]:
    """Orthonormal directions (D, r) and coefficients (r,) of the metric B·Bᵀ, without zeros."""
    directions, sizes, _ = np.linalg.svd(root, full_matrices=False)
    used = sizes > 1e-7 * sizes.max(initial=0.0)
    return np.ascontiguousarray(directions[:, used], dtype=dtype), sizes[used] ** 2
