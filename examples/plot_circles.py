"""
Comparison with PCA, LDA and NCA on concentric circles
======================================================

The example of the paper: four classes lie on concentric circles in two of ten dimensions; the other
eight are noise with a larger variance. PCA maximizes variance and finds the noise. LDA separates
class means, which are all the same. NCA learns from neighbors, but its objective is not convex.
`BoostMetric` learns a metric with two large eigenvalues, and their eigenvectors span the plane of
the circles.
"""

import matplotlib.pyplot as plt
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from boostmetric import BoostMetric, knn_error
from boostmetric.data.synthetic import concentric_circles

X, y = concentric_circles(random_state=0)
X_test, y_test = concentric_circles(random_state=1)

# %%
# Four projections to two dimensions, fitted to the same thousand points.
projections = {
    "PCA": PCA(n_components=2),
    "LDA": LinearDiscriminantAnalysis(n_components=2),
    "NCA": NeighborhoodComponentsAnalysis(n_components=2, random_state=0),
    "BoostMetric": BoostMetric(loss="exponential", n_components=2),
}

# %%
# Training points in the plane, and the error of three nearest neighbors on a thousand test points.
# Random guesses have an error of 75%.
errors = {}
fig, axes = plt.subplots(1, 4, figsize=(12, 3.1), layout="constrained")
for ax, (name, projection) in zip(axes, projections.items(), strict=True):
    Z = projection.fit(X, y).transform(X)
    errors[name] = knn_error(Z, y, projection.transform(X_test), y_test)
    for label, (color, marker) in enumerate(
        zip(("#0072B2", "#E69F00", "#009E73", "#CC79A7"), "os^D", strict=True)
    ):
        ax.scatter(*Z[y == label].T, s=9, c=color, marker=marker, linewidths=0, label=label)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set(xticks=[], yticks=[])
    ax.set_title(f"{name}: test error {100 * errors[name]:.1f}%")
fig.legend(
    *axes[0].get_legend_handles_labels(),
    title="class",
    loc="outside right center",
    markerscale=2,
)
plt.show()
