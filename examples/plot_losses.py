"""
Losses, solvers and the duality gap
===================================

The stage-wise solver optimizes the coefficient of each direction once, as in the paper. The totally
corrective solver optimizes all coefficients again in each step and, with batches of directions, the
directions as well, so it converges to the optimum. The duality gap bounds the distance to the
optimum: it is the objective minus a lower bound that holds for every metric.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification

from boostmetric import LOSSES, Comparisons, Hinge, boost

X, y = make_classification(
    200, 12, n_informative=4, n_redundant=2, n_classes=3, flip_y=0.1, random_state=0
)
comparisons = Comparisons.from_labels(X, y)


def gaps(name, solver, max_iter):
    """Duality gap after each step, relative to the objective."""
    values = []

    def record(fit):
        values.append(fit.duality_gap() / fit.gap_scale)
        return False

    hinge = name == "hinge"
    boost(
        X,
        comparisons,
        Hinge(nu=0.3) if hinge else name,
        solver=solver,
        alpha=1e-7 if hinge else 0.01,
        directions_per_step=1 if hinge or solver == "stagewise" else "auto",
        tol=1e-9,
        max_iter=max_iter,
        callback=record,
    )
    return values


# %%
# The hinge is a linear program (``pip install 'boostmetric[hinge]'``). Instead of alpha it has
# `nu`, the share of comparisons that may be violated, and it has no stage-wise solver.
paths = {}
for name, loss in LOSSES.items():
    for solver, max_iter in (("stagewise", 100), ("totally_corrective", 200)):
        if solver in loss.solvers:
            paths[name, solver] = gaps(name, solver, max_iter)

# %%
# The gap of the stage-wise solver (dashed) stays large. The totally corrective solver (solid) takes
# longer per step, but needs few steps.
fig, axes = plt.subplots(1, len(LOSSES), figsize=(12, 3.6), sharey=True, layout="constrained")
for ax, name in zip(axes, LOSSES, strict=True):
    for solver, line, color in (
        ("stagewise", "--", "#D55E00"),
        ("totally_corrective", "-", "#0072B2"),
    ):
        path = np.maximum(paths.get((name, solver), []), 1e-10)
        ax.plot(1 + np.arange(len(path)), path, line, color=color)
    ax.set(xscale="log", yscale="log", xlabel="steps", title=name)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("duality gap relative to objective")
axes[0].text(6, 1e-7, "totally\ncorrective", color="#0072B2")
axes[0].text(2, 1e-1, "stage-wise", color="#D55E00")
plt.show()
