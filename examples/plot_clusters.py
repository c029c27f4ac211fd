"""
Clustering and t-SNE with a learned metric
==========================================

Euclidean distances of transformed points are distances in the learned metric, so every method that
uses Euclidean distance can use the metric: pass ``transform(X)`` to it. Here the metric is learned
from one half of the wine dataset; the other half is clustered and drawn without its labels.
"""

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.manifold import TSNE
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split

from boostmetric import BoostMetric

X, y = load_wine(return_X_y=True)
X_train, X_other, y_train, y_other = train_test_split(
    X, y, train_size=0.5, stratify=y, random_state=0
)
learner = BoostMetric(init="whiten").fit(X_train, y_train)

# %%
# The adjusted Rand index is 1 if the clusters are the classes, and 0 on average for random
# clusters. Colors show the classes, which neither k-means nor t-SNE has seen.
agreement = {}
fig, axes = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
for ax, (name, points) in zip(
    axes, {"Euclidean": X_other, "learned": learner.transform(X_other)}.items(), strict=True
):
    clusters = KMeans(3, n_init=10, random_state=0).fit_predict(points)
    agreement[name] = adjusted_rand_score(y_other, clusters)
    plane = TSNE(perplexity=20, max_iter=500, random_state=0).fit_transform(points)
    for label, (color, marker) in enumerate(
        zip(("#0072B2", "#D55E00", "#009E73"), "os^", strict=True)
    ):
        ax.scatter(*plane[y_other == label].T, c=color, marker=marker, s=24, linewidths=0)
    ax.set(xticks=[], yticks=[])
    ax.set_title(f"{name} distance: Rand index of k-means {agreement[name]:.2f}")
plt.show()
