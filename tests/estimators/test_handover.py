"""The recipes of docs/handover.md: other tools use the learned metric on transformed points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import simple_learner
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist, squareform
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.manifold import TSNE, trustworthiness
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors
from sklearn.pipeline import make_pipeline

from boostmetric import BoostMetric

Data = tuple[NDArray, NDArray]


@pytest.fixture
def learner(blobs: Data) -> BoostMetric:
    return simple_learner(max_iter=20).fit(*blobs)


@pytest.fixture
def between(learner: BoostMetric, blobs: Data) -> NDArray:
    """All distances between the points, computed by SciPy."""
    X, _ = blobs
    distances: NDArray = cdist(X, X, "mahalanobis", VI=learner.get_mahalanobis_matrix())
    return distances


def test_learned_metric_is_not_euclidean(blobs: Data, between: NDArray) -> None:
    # Otherwise the other tests would prove nothing.
    by_learned, by_euclidean = between.argsort(axis=1)[:, 1], cdist(blobs[0], blobs[0]).argsort(1)
    assert (by_learned != by_euclidean[:, 1]).mean() > 0.5


def test_classifier_in_pipeline(blobs: Data) -> None:
    X, y = blobs
    pipeline = make_pipeline(simple_learner(max_iter=20), KNeighborsClassifier(3)).fit(
        X[::2], y[::2]
    )
    M = simple_learner(max_iter=20).fit(X[::2], y[::2]).get_mahalanobis_matrix()
    nearest = cdist(X[1::2], X[::2], "mahalanobis", VI=M).argsort(axis=1)[:, :3]
    votes = np.apply_along_axis(np.bincount, 1, y[::2][nearest], minlength=3)
    assert np.array_equal(pipeline.predict(X[1::2]), votes.argmax(axis=1))
    assert pipeline.predict_proba(X[1::2]) == pytest.approx(votes / 3)


def test_regressor(blobs: Data, learner: BoostMetric, between: NDArray) -> None:
    X, _ = blobs
    Z, numbers = learner.transform(X), X[:, 0] ** 2
    regressor = KNeighborsRegressor(4).fit(Z[::2], numbers[::2])
    nearest = between[1::2, ::2].argsort(axis=1)[:, :4]
    assert regressor.predict(Z[1::2]) == pytest.approx(numbers[::2][nearest].mean(axis=1))


@pytest.mark.parametrize("algorithm", ["brute", "kd_tree", "ball_tree"])
def test_nearest_neighbors(
    algorithm: str, blobs: Data, learner: BoostMetric, between: NDArray
) -> None:
    Z = learner.transform(blobs[0])
    distances, rows = NearestNeighbors(n_neighbors=5, algorithm=algorithm).fit(Z).kneighbors()
    np.fill_diagonal(between, np.inf)
    assert np.array_equal(rows, between.argsort(axis=1)[:, :5])
    assert distances == pytest.approx(np.sort(between, axis=1)[:, :5])


def test_callable_and_precomputed_metric(
    blobs: Data, learner: BoostMetric, between: NDArray
) -> None:
    X, y = blobs
    by_function = KNeighborsClassifier(3, metric=learner.get_metric()).fit(X[::2], y[::2])
    by_table = KNeighborsClassifier(3, metric="precomputed")
    by_table.fit(between[::2, ::2], y[::2])
    expected = by_table.predict(between[1::2, ::2])
    assert np.array_equal(by_function.predict(X[1::2]), expected)
    assert learner.metric_.distances(X) == pytest.approx(between, abs=1e-7)


def test_faiss_index(blobs: Data, learner: BoostMetric, between: NDArray) -> None:
    faiss: Any = pytest.importorskip("faiss")
    Z = learner.transform(blobs[0]).astype(np.float32)
    index = faiss.IndexFlatL2(Z.shape[1])
    index.add(Z[::2])
    squares, rows = index.search(Z[1::2], 5)
    brute = learner.metric_.distances(blobs[0][1::2], blobs[0][::2])
    assert np.array_equal(rows, brute.argsort(axis=1)[:, :5])
    assert squares == pytest.approx(np.sort(between[1::2, ::2], axis=1)[:, :5] ** 2, rel=1e-3)


def test_k_means(blobs: Data, learner: BoostMetric) -> None:
    X, _ = blobs
    found = KMeans(3, n_init=3, tol=0, random_state=0).fit(learner.transform(X))
    means = np.array([X[found.labels_ == label].mean(axis=0) for label in range(3)])
    to_means = cdist(X, means, "mahalanobis", VI=learner.get_mahalanobis_matrix())
    assert np.array_equal(found.labels_, to_means.argmin(axis=1))
    assert found.inertia_ == pytest.approx((to_means.min(axis=1) ** 2).sum())
    assert found.cluster_centers_ == pytest.approx(learner.transform(means), abs=1e-9)


@pytest.mark.parametrize("method", ["average", "complete", "single"])
def test_agglomerative_clustering(
    method: str, blobs: Data, learner: BoostMetric, between: NDArray
) -> None:
    Z = learner.transform(blobs[0])
    found = AgglomerativeClustering(4, linkage=method).fit(Z).labels_
    tree = linkage(squareform(between, checks=False), method)
    assert adjusted_rand_score(found, fcluster(tree, 4, "maxclust")) == 1


def test_t_sne(blobs: Data, learner: BoostMetric, between: NDArray) -> None:
    X, _ = blobs
    learned, euclidean = (
        TSNE(max_iter=300, random_state=0).fit_transform(points)
        for points in (learner.transform(X), X)
    )
    of_learned, of_euclidean = (
        trustworthiness(between, drawn, n_neighbors=5, metric="precomputed")
        for drawn in (learned, euclidean)
    )
    assert of_learned > 0.9
    assert of_learned > of_euclidean + 0.05


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # UMAP and its dependencies raise many
def test_umap(blobs: Data, learner: BoostMetric, between: NDArray) -> None:
    umap: Any = pytest.importorskip("umap")
    options = {"n_neighbors": 10, "transform_mode": "graph", "random_state": 0}
    found = umap.UMAP(**options).fit(learner.transform(blobs[0])).graph_
    expected = umap.UMAP(metric="precomputed", **options).fit(between).graph_
    assert found.toarray() == pytest.approx(expected.toarray(), abs=1e-3)
