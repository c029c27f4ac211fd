"""
Comparison with PCA and LDA on concentric circles
=================================================

The example of the paper: four classes lie on concentric circles in two of ten dimensions; the other
eight are noise with a larger variance. PCA maximizes variance and finds the noise. LDA separates
class means, which are all the same. `BoostMetric` compares neighbors: the learned metric has two
large eigenvalues, and their eigenvectors span the plane of the circles.
"""

import matplotlib.pyplot as plt
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from boostmetric import BoostMetric, knn_error
from boostmetric.data.synthetic import concentric_circles

X, y = concentric_circles(random_state=0)
X_fresh, y_fresh = concentric_circles(random_state=1)

# %%
# Three projections to two dimensions, fitted to the same thousand points.
projections = {
    "PCA": PCA(n_components=2).fit(X),
    "LDA": LinearDiscriminantAnalysis(n_components=2).fit(X, y),
    "BoostMetric": BoostMetric(loss="exponential", n_components=2).fit(X, y),
}

# %%
# Error of three nearest neighbors in the plane, on a thousand new points. Chance level is 75 %.
errors = {}
fig, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
for ax, (name, projection) in zip(axes, projections.items(), strict=True):
    Z, Z_fresh = projection.transform(X), projection.transform(X_fresh)
    errors[name] = knn_error(Z, y, Z_fresh, y_fresh)
    for label, (color, marker) in enumerate(
        zip(("#0072B2", "#E69F00", "#009E73", "#CC79A7"), "os^D", strict=True)
    ):
        ax.scatter(*Z[y == label].T, s=9, c=color, marker=marker, linewidths=0)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(f"{name}: error {100 * errors[name]:.0f} %")
plt.show()
