"""
Nearest correlation matrix with a custom loss
=============================================

Correlations that are estimated from incomplete data, each from the rows that have both features,
may form a matrix E with negative eigenvalues. The nearest M ⪰ 0, with each entry weighted by the
number of rows c_ij that it was estimated from, minimizes

    ½·Σ_{i ≥ j} c_ij·(M_ij − E_ij)² + alpha·Tr M,

with a large weight on the diagonal, where E_ii = 1 is known, and a negligible alpha. `learn_psd`
solves it: M_ij = ⟨A_ij, M⟩ with sparse matrices A_ij = (e_i·e_jᵀ + e_j·e_iᵀ)/2, the entries of E
are the gaps, and the squared error is a custom loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from sklearn.datasets import load_breast_cancer

from boostmetric import Loss, Trace, learn_psd


# %%
# A custom loss
# -------------
# A loss has a value and duals, the negative gradient. Both solvers can use it.
class SquaredError(Loss):
    """F(ρ) = ½·Σ c_r·ρ_r²: each ⟨A_r, M⟩ should equal its gap."""

    lower = 0.0

    def value(self, margins, weights=None):
        """F(ρ)."""
        squares = np.square(margins, dtype=np.float64)
        return float(np.sum(squares if weights is None else weights * squares)) / 2

    def duals(self, margins, weights=None):
        """−c_r·ρ_r, positive or negative."""
        return -margins if weights is None else -margins * weights


# %%
# The estimates
# -------------
# 70 % of the entries of the breast cancer dataset (569 rows, 30 features) are removed.
@dataclass(frozen=True, eq=False)
class Estimates:
    """Correlations of D features, all arrays of shape (D, D).

    `true`: correlations of the complete data. `pairwise`: correlations of each pair of features,
    computed from the `counts` rows in which both are known.
    """

    true: NDArray
    pairwise: NDArray
    counts: NDArray


def make_problem(n_features=30, missing=0.7, seed=1):
    """Correlations of the breast cancer data after removing a share `missing` of the entries."""
    X = load_breast_cancer().data[:, :n_features]
    known = np.random.default_rng(seed).random(X.shape) >= missing
    pairwise = np.eye(n_features)
    for i, j in zip(*np.tril_indices(n_features, -1), strict=True):
        both = known[:, i] & known[:, j]
        pairwise[i, j] = pairwise[j, i] = np.corrcoef(X[both, i], X[both, j])[0, 1]
    counts = known.T.astype(np.float64) @ known
    return Estimates(np.corrcoef(X.T), pairwise, counts)


estimates = make_problem()

# %%
# The nearest matrix
# ------------------
DIAGONAL_WEIGHT = 100.0
"""Weight of a diagonal entry, relative to the mean weight of the others."""

ALPHA = 1e-6
"""Absolute strength of the trace penalty; the diagonal determines the trace."""


def entries(estimates):
    """Rows i and columns j of the lower triangle, with gaps and weights."""
    D = len(estimates.pairwise)
    i, j = np.tril_indices(D)
    mean = estimates.counts[np.tril_indices(D, -1)].mean()
    weights = np.where(i == j, DIAGONAL_WEIGHT, estimates.counts[i, j] / mean)
    return i, j, estimates.pairwise[i, j], weights


def solve(estimates, **options):
    """The nearest M ⪰ 0; options are passed to `learn_psd`."""
    i, j, gaps, weights = entries(estimates)
    shape = estimates.pairwise.shape
    matrices = [
        coo_array(([0.5, 0.5], ([a, b], [b, a])), shape=shape) for a, b in zip(i, j, strict=True)
    ]
    options = {"regularizer": Trace(ALPHA), **options}
    return learn_psd(matrices, SquaredError(), gaps=gaps, weights=weights, **options)


def unit_diagonal(matrix):
    """The matrix with its rows and columns scaled such that the diagonal is 1."""
    roots = np.sqrt(np.diag(matrix))
    return matrix / np.outer(roots, roots)


def clipped(matrix):
    """A simple alternative: set negative eigenvalues to 0, then scale to a unit diagonal."""
    values, vectors = np.linalg.eigh(matrix)
    return unit_diagonal((vectors * np.maximum(values, 0)) @ vectors.T)


fit = solve(estimates, tol=1e-6)
M = fit.metric.matrix
_, _, _, weights = entries(estimates)
lower = estimates.counts[np.tril_indices(len(M), -1)]
print(
    f"{len(M)} features, {len(weights)} entries, each estimated from {lower.min():.0f} to "
    f"{lower.max():.0f} rows"
)
price = fit.alpha * np.trace(M)
print(f"objective             {fit.objective():.6f}, of which alpha·Tr M is {price:.6f}")
print(f"certified gap         {fit.duality_gap():.1e}, {fit.status.name}")
print(f"largest |M_ii − 1|    {np.abs(np.diag(M) - 1).max():.1e}, removed by scaling")

# %%
# Comparison with the true correlations
# -------------------------------------
# The true correlations are those of the complete data. Distances are Frobenius norms.
matrices = {
    "pair by pair": estimates.pairwise,
    "eigenvalues clipped": clipped(estimates.pairwise),
    "nearest, by learn_psd": unit_diagonal(M),
}
print(f"{'':22}smallest    distance to    distance to")
print(f"{'':22}eigenvalue  the estimates  the truth")
for name, matrix in matrices.items():
    lowest = np.linalg.eigvalsh(matrix)[0]
    distances = [np.linalg.norm(matrix - of) for of in (estimates.pairwise, estimates.true)]
    # Adding 0 turns −0.0 into 0.0.
    print(f"{name:22}{round(lowest, 4) + 0:10.4f}{distances[0]:15.4f}{distances[1]:11.4f}")

# %%
# Error of each entry. Clipping treats all estimates alike; the nearest matrix gives more weight
# to estimates from many rows.
fig, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
    image = ax.imshow(matrix - estimates.true, cmap="PuOr", vmin=-0.6, vmax=0.6)
    ax.set_title(f"{name}:\n{np.linalg.norm(matrix - estimates.true):.2f} from the truth")
    ax.set(xticks=[], yticks=[])
fig.colorbar(image, ax=axes, label="error of the correlation", shrink=0.8)
plt.show()
