"""
Neighbours looked for again
===========================

The comparisons come from the nearest neighbours in the space of X. Where most of X is noise, these
are the wrong ones, and a metric learned from them is only partly right. In its space, however,
better neighbours are found: every further pass (`n_passes`) starts from those.
"""

import matplotlib.pyplot as plt
import numpy as np

from boostmetric import BoostMetric, knn_error
from boostmetric.data.synthetic import concentric_circles
from boostmetric.plots import ConvergenceDisplay

# %%
# Circles in two of ten dimensions, three samples of them; the error on fresh points after one pass,
# two, and so on.
N_PASSES, SEEDS = 4, (0, 2, 4)
errors = np.empty((len(SEEDS), N_PASSES))
for row, seed in zip(errors, SEEDS, strict=True):
    X, y = concentric_circles(random_state=seed)
    X_fresh, y_fresh = concentric_circles(random_state=seed + 1)
    for n_passes in range(1, N_PASSES + 1):
        learner = BoostMetric(loss="exponential", max_iter=60, n_passes=n_passes).fit(X, y)
        Z, Z_fresh = learner.transform(X), learner.transform(X_fresh)
        row[n_passes - 1] = knn_error(Z, y, Z_fresh, y_fresh)
print(f"Euclidean distance, last sample: {knn_error(X, y, X_fresh, y_fresh):.0%}")

# %%
# On the left the objective of the last fit. It jumps where a pass begins, as it is then about other
# comparisons: those of the better neighbours, which are harder to satisfy. On the right what
# counts. The second pass helps most.
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
ConvergenceDisplay.from_estimator(learner, ax=left)
for row, marker in zip(errors, "os^", strict=True):
    right.plot(range(1, N_PASSES + 1), 100 * row, f"{marker}-", color="#0072B2", linewidth=1)
right.set_xticks(range(1, N_PASSES + 1))
right.set_ylim(0)
right.set_xlabel("passes")
right.set_ylabel("error of 3 nearest neighbours, %")
right.set_title("fresh points of three samples")
right.spines[["top", "right"]].set_visible(False)
plt.show()
