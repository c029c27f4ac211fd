"""
Choosing settings with BoostMetricCV
====================================

A starting transformation that helps on one dataset may hurt on the next: LDA is best if the class
means differ, and loses everything if the classes are concentric circles. `BoostMetricCV` compares
candidates on held-out points and averages those that are as good as the best one.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split

from boostmetric import BoostMetric, BoostMetricCV, knn_error
from boostmetric.data.synthetic import concentric_circles

images, digits = load_digits(return_X_y=True)
data = {
    "wine": load_wine(return_X_y=True),
    "circles": concentric_circles(random_state=0),
    "digits": (images[:450], digits[:450]),
}
candidates = [{"init": init, "max_iter": 60} for init in (None, "scale", "whiten", "lda")]
learners = {f"init={candidate['init']}": BoostMetric(**candidate) for candidate in candidates}
learners["chosen by\nheld-out points"] = BoostMetricCV(candidates, random_state=0)

# %%
# Train on half of each dataset and test on the other half, for two random splits. The choice does
# not use the test points.
errors = np.zeros((len(data), len(learners)))
for row, (X, y) in zip(errors, data.values(), strict=True):
    for seed in range(2):
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, train_size=0.5, stratify=y, random_state=seed
        )
        for column, learner in enumerate(learners.values()):
            with warnings.catch_warnings():
                # After LDA there is nothing left to learn about the circles, which raises a
                # warning.
                warnings.simplefilter("ignore", UserWarning)
                learner.fit(X_train, y_train)
            Z_train, Z_test = learner.transform(X_train), learner.transform(X_test)
            row[column] += knn_error(Z_train, y_train, Z_test, y_test) / 2

# %%
# Each dataset has a different best starting transformation, and a wrong one is costly.
# `BoostMetricCV` avoids the bad ones. It is not always as good as the best, as held-out points are
# few.
fig, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
for row, (name, color, marker) in zip(
    errors, zip(data, ("#0072B2", "#D55E00", "#009E73"), "os^", strict=True), strict=True
):
    ax.plot(100 * row[:-1], f"{marker}:", color=color, markersize=9, linewidth=0.8)
    ax.plot(len(row) - 1, 100 * row[-1], marker, color=color, markersize=12)
    ax.annotate(
        name,
        (0, 100 * row[0]),
        xytext=(-10, 0),
        textcoords="offset points",
        color=color,
        ha="right",
        va="center",
    )
ax.set_yscale("log")
ax.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
ax.minorticks_off()
ax.set_xlim(-0.7, len(learners) - 0.5)
ax.set_xticks(range(len(learners)), list(learners))
ax.set_ylabel("test error of 3 nearest neighbors, %")
ax.spines[["top", "right"]].set_visible(False)
plt.show()
