"""
Comparison with LDA and NCA on concentric circles
=================================================

The example of the paper: four classes lie on concentric circles in two of ten dimensions; the other
eight are noise with a larger variance, which dominates Euclidean distances. LDA separates class
means, which are all the same. NCA and `BoostMetric` learn from neighbors, and find the plane of the
circles. All learners have their default settings.
"""

import matplotlib.pyplot as plt
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.preprocessing import FunctionTransformer

from boostmetric import BoostMetric, knn_error
from boostmetric.data.synthetic import concentric_circles

X_test, y_test = concentric_circles(1000, random_state=1)
learners = {
    "raw features": FunctionTransformer(),
    "LDA": LinearDiscriminantAnalysis(),
    "NCA": NeighborhoodComponentsAnalysis(random_state=0),
    "BoostMetric": BoostMetric(),
}
settings = {name: str(learner) for name, learner in learners.items()}

# %%
# The error of three nearest neighbors on a thousand test points, in percent, by the number of
# training points. Random guesses have an error of 75%.
errors = {name: {} for name in learners}
for n_samples in (420, 1000):
    X, y = concentric_circles(n_samples, random_state=0)
    for name, learner in learners.items():
        Z = learner.fit_transform(X, y)
        error = knn_error(Z, y, learner.transform(X_test), y_test)
        errors[name][n_samples] = round(100 * error, 1)
for name, by_size in errors.items():
    print(f"{name:12}" + "".join(f"{error:8.1f}" for error in by_size.values()))

# %%
# The thousand training points on the two leading axes of each transformed space.
fig, axes = plt.subplots(1, 4, figsize=(12, 3.1), layout="constrained")
for ax, (name, learner) in zip(axes, learners.items(), strict=True):
    Z = PCA(n_components=2).fit_transform(learner.transform(X))
    for label, (color, marker) in enumerate(
        zip(("#0072B2", "#E69F00", "#009E73", "#CC79A7"), "os^D", strict=True)
    ):
        ax.scatter(*Z[y == label].T, s=9, c=color, marker=marker, linewidths=0, label=label)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set(xticks=[], yticks=[])
    ax.set_title(f"{name}: test error {errors[name][n_samples]:.1f}%")
fig.legend(
    *axes[0].get_legend_handles_labels(),
    title="class",
    loc="outside right center",
    markerscale=2,
)
plt.show()
