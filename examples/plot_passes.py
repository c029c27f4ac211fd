"""
Several passes
==============

Comparisons are made from the nearest neighbors in the space of X. If most features are noise, these
are the wrong neighbors, and the metric learned from them is only partly right. Neighbors in the
space of that metric are better: each further pass (`n_passes`) starts from them.
"""

import matplotlib.pyplot as plt
import numpy as np

from boostmetric import BoostMetric, knn_error
from boostmetric.data.synthetic import concentric_circles
from boostmetric.plots import ConvergenceDisplay

# %%
# Three samples of circles in two of ten dimensions; error on new points after one to four passes.
N_PASSES, SEEDS = 4, (0, 2, 4)
errors = np.empty((len(SEEDS), N_PASSES))
for row, seed in zip(errors, SEEDS, strict=True):
    X, y = concentric_circles(random_state=seed)
    X_fresh, y_fresh = concentric_circles(random_state=seed + 1)
    for n_passes in range(1, N_PASSES + 1):
        learner = BoostMetric("exponential", n_neighbors=(5, 10), max_iter=60, n_passes=n_passes)
        learner.fit(X, y)
        Z, Z_fresh = learner.transform(X), learner.transform(X_fresh)
        row[n_passes - 1] = knn_error(Z, y, Z_fresh, y_fresh)
print(f"Euclidean distance, last sample: {knn_error(X, y, X_fresh, y_fresh):.0%}")

# %%
# Left: objective of the last fit. It jumps at the start of each pass, because the comparisons of
# the better neighbors are harder to satisfy. Right: test error. The second pass helps most.
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
ConvergenceDisplay.from_estimator(learner, ax=left)
for row, marker in zip(errors, "os^", strict=True):
    right.plot(range(1, N_PASSES + 1), 100 * row, f"{marker}-", color="#0072B2", linewidth=1)
right.set_xticks(range(1, N_PASSES + 1))
right.set_ylim(0)
right.set_xlabel("passes")
right.set_ylabel("error of 3 nearest neighbors, %")
right.set_title("new points, three samples")
right.spines[["top", "right"]].set_visible(False)
plt.show()
