"""
The nearest correlation matrix
==============================

Correlations that are estimated pair by pair from incomplete data, each from the rows that have both
features, need not fit together: their matrix E has negative eigenvalues. The matrix M ⪰ 0 that is
nearest to it, every entry weighted by the number c_ij of rows that it comes from, is the minimum of

    ½·Σ_{i ≥ j} c_ij·(M_ij − E_ij)² + alpha·Tr M,

with a large weight on the diagonal, where E_ii = 1 is known, and an alpha so small that it does not
matter. It is a problem for `learn_psd`: M_ij = ⟨A_ij, M⟩ with A_ij = (e_i·e_jᵀ + e_j·e_iᵀ)/2, and E
is the gaps. The loss is one's own, and the matrices A_ij are sparse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from sklearn.datasets import load_breast_cancer

from boostmetric import Boosting, Loss, Trace, learn_psd


# %%
# A loss of one's own
# -------------------
# A value and the duals, which are minus its gradient; both solvers can use it then.
class SquaredError(Loss):
    """F(ρ) = ½·Σ c_r·ρ_r², for values ⟨A_r, M⟩ that are to be near their gaps, on either side."""

    lower = 0.0

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        """F(ρ)."""
        squares = np.square(margins, dtype=np.float64)
        return float(np.sum(squares if weights is None else weights * squares)) / 2

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        """−c_r·ρ_r, of either sign."""
        return -margins if weights is None else -margins * weights


# %%
# The estimates
# -------------
# Of the breast-cancer data, 569 rows of 30 features, 70 % of the entries are removed.
@dataclass(frozen=True, eq=False)
class Estimates:
    """Correlations of D features, all arrays of shape (D, D).

    `true` are those of the complete data, `pairwise` those of each pair where both are known, in
    `counts` rows.
    """

    true: NDArray
    pairwise: NDArray
    counts: NDArray


def make_problem(n_features: int = 30, missing: float = 0.7, seed: int = 1) -> Estimates:
    """Correlations of the breast-cancer data, a share `missing` of whose entries is removed."""
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
"""The weight of a diagonal entry, in units of the mean weight of the others."""

ALPHA = 1e-6
"""The absolute price of the trace, which the diagonal fixes already."""


def entries(estimates: Estimates) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """The rows i and columns j of the lower triangle, and the gaps and weights there."""
    D = len(estimates.pairwise)
    i, j = np.tril_indices(D)
    mean = estimates.counts[np.tril_indices(D, -1)].mean()
    weights = np.where(i == j, DIAGONAL_WEIGHT, estimates.counts[i, j] / mean)
    return i, j, estimates.pairwise[i, j], weights


def solve(estimates: Estimates, **options: Any) -> Boosting:
    """The nearest M ⪰ 0; the options are those of `learn_psd`."""
    i, j, gaps, weights = entries(estimates)
    shape = estimates.pairwise.shape
    matrices = [
        coo_array(([0.5, 0.5], ([a, b], [b, a])), shape=shape) for a, b in zip(i, j, strict=True)
    ]
    options = {"regularizer": Trace(ALPHA), **options}
    return learn_psd(matrices, SquaredError(), gaps=gaps, weights=weights, **options)


def unit_diagonal(matrix: NDArray) -> NDArray:
    """The matrix with its rows and columns scaled such that the diagonal is 1."""
    roots = np.sqrt(np.diag(matrix))
    return matrix / np.outer(roots, roots)


def clipped(matrix: NDArray) -> NDArray:
    """The simple remedy: negative eigenvalues are set to 0, and the diagonal to 1 by scaling."""
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
# How near it is to the truth
# ---------------------------
# The truth are the correlations of the complete data. Distances are Frobenius norms.
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
    # A zero may come out as −0.0000.
    print(f"{name:22}{round(lowest, 4) + 0:10.4f}{distances[0]:15.4f}{distances[1]:11.4f}")

# %%
# The error of every entry. To clip is to treat all estimates alike; the nearest matrix keeps to
# those that come from many rows.
fig, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
    image = ax.imshow(matrix - estimates.true, cmap="PuOr", vmin=-0.6, vmax=0.6)
    ax.set_title(f"{name}:\n{np.linalg.norm(matrix - estimates.true):.2f} from the truth")
    ax.set(xticks=[], yticks=[])
fig.colorbar(image, ax=axes, label="error of the correlation", shrink=0.8)
plt.show()
