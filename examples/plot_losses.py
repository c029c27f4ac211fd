"""
Five losses, two solvers, and how far they are from the optimum
===============================================================

Every convex loss can be boosted. The stage-wise solver finds the coefficient of a direction once,
as in the paper; the totally corrective one finds all of them anew and goes to the optimum. How far
away a metric is at most, the duality gap says: the objective less a lower bound for every metric.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification

from boostmetric import LOSSES, Boosting, Comparisons, Hinge, boost

X, y = make_classification(
    200, 12, n_informative=4, n_redundant=2, n_classes=3, flip_y=0.1, random_state=0
)
comparisons = Comparisons.from_labels(X, y)


def gaps(name: str, solver: str, max_iter: int) -> list[float]:
    """The duality gap after each iteration, a share of the objective."""
    found = []

    def look(fit: Boosting) -> bool:
        found.append(fit.duality_gap() / fit.gap_scale)
        return False

    hinge = name == "hinge"
    boost(
        X,
        comparisons,
        Hinge(nu=0.3) if hinge else name,
        solver=solver,
        alpha=1e-7 if hinge else 0.01,
        directions_per_step=1,
        tol=1e-9,
        max_iter=max_iter,
        callback=look,
    )
    return found


# %%
# The hinge is a linear program (it needs ``pip install 'boostmetric[hinge]'``), which has a share
# `nu` of comparisons that may fail in place of alpha, and no stage-wise solver.
paths: dict[tuple[str, str], list[float]] = {}
for name, loss in LOSSES.items():
    for solver, max_iter in (("stagewise", 100), ("totally_corrective", 200)):
        if solver in loss.solvers:
            paths[name, solver] = gaps(name, solver, max_iter)

# %%
# Dashed, the stage-wise solver: the optimum is never certain to be near. Solid, the totally
# corrective one, which takes longer for an iteration, but needs few.
fig, axes = plt.subplots(1, len(LOSSES), figsize=(12, 3.6), sharey=True, layout="constrained")
for ax, name in zip(axes, LOSSES, strict=True):
    for solver, line, color in (
        ("stagewise", "--", "#D55E00"),
        ("totally_corrective", "-", "#0072B2"),
    ):
        path = np.maximum(paths.get((name, solver), []), 1e-10)
        ax.plot(1 + np.arange(len(path)), path, line, color=color)
    ax.set(xscale="log", yscale="log", xlabel="iterations", title=name)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("duality gap, share of the objective")
axes[0].text(6, 1e-7, "totally\ncorrective", color="#0072B2")
axes[0].text(2, 1e-1, "stage-wise", color="#D55E00")
plt.show()
