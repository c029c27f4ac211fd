from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import read_only, simple_learner
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csr_array
from sparse_tools import dense, draw, draw_triplets, near, repeated

from boostmetric import (
    Comparisons,
    knn_error,
)
from boostmetric.data.points import are_identical
from boostmetric.estimators.initial import as_components, spread, starting_transformation

FORMATS: dict[str, Callable[[NDArray], Any]] = {
    "csr_array": csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc_array": sparse.csc_array,
    "coo_matrix": sparse.coo_matrix,
    "lil_array": sparse.lil_array,
    "repeated": lambda X: repeated(X),
}


@pytest.mark.parametrize(
    ("D", "options"),
    [
        (20, {}),
        (640, {}),  # more features than a scatter matrix is formed for
        (20, {"loss": "squared_hinge", "regularizer": "frobenius"}),
        (640, {"loss": "smoothed_hinge", "directions_per_step": 3}),
        (20, {"loss": "hinge"}),
        (20, {"solver": "totally_corrective", "max_iter": 4}),
        (640, {"solver": "totally_corrective", "max_iter": 4}),
        (20, {"n_passes": 2, "max_iter": 5, "n_components": 2}),
        (20, {"early_stopping": True, "n_iter_no_change": 5, "random_state": 0}),
        (640, {"init": "scale"}),
    ],
    ids=str,
)
def test_sparse_fit_equals_dense_fit(options: dict[str, Any], D: int) -> None:
    X, y = draw(D=D)
    parameters = {"max_iter": 12, **options}
    other = simple_learner(**parameters).fit(X, y)
    learner = simple_learner(**parameters).fit(csr_array(X), y)
    assert near(learner.metric_.matrix, other.metric_.matrix, 1e-6)
    assert learner.n_iter_ == other.n_iter_
    assert np.allclose(learner.transform(csr_array(X)), other.transform(X), rtol=1e-5, atol=1e-5)
    assert learner.score(csr_array(X), y) == pytest.approx(other.score(X, y), abs=0.005)


@pytest.mark.parametrize("D", [20, 640])
def test_float32_is_kept(D: int) -> None:
    X, y = draw(D=D, dtype=np.float32)
    other = simple_learner(loss="exponential", max_iter=5).fit(X, y)
    learner = simple_learner(loss="exponential", max_iter=5).fit(csr_array(X), y)
    assert learner.components_.dtype == learner.transform(csr_array(X)).dtype == np.float32
    assert near(learner.metric_.matrix, other.metric_.matrix, 1e-3)


@pytest.mark.parametrize("D", [20, 640])
def test_triplets_equal_dense_fit(D: int) -> None:
    X, _ = draw(D=D)
    comparisons = draw_triplets(120, 200)
    learners = [
        simple_learner("logistic", max_iter=12).fit(points, comparisons=comparisons)
        for points in (X, csr_array(X))
    ]
    assert near(learners[1].metric_.matrix, learners[0].metric_.matrix, 1e-6)
    assert learners[1].score(csr_array(X), comparisons=comparisons) == learners[0].score(
        X, comparisons=comparisons
    )


@pytest.mark.parametrize("name", FORMATS)
def test_all_sparse_formats_are_accepted_and_unchanged(name: str) -> None:
    X, y = draw(n=40, D=6)
    given = FORMATS[name](X)
    if given.format == "csr":
        read_only(given.data, given.indices, given.indptr)
    learner = simple_learner(init="scale", max_iter=5).fit(given, y)
    expected = simple_learner(init="scale", max_iter=5).fit(X, y)
    assert near(learner.metric_.matrix, expected.metric_.matrix, 1e-9)
    pairs = np.array([[0, 1], [5, 9]])
    distances = np.linalg.norm((X[pairs[:, 0]] - X[pairs[:, 1]]) @ learner.components_.T, axis=1)
    assert np.allclose(learner.pair_distance(pairs, given), distances)
    assert np.allclose(learner.metric_.pair_distances(given, pairs), distances)
    assert np.allclose(learner.metric_.distances(given)[0, 1], distances[0])
    assert knn_error(given[:20] if name != "coo_matrix" else X[:20], y[:20], X[20:], y[20:]) >= 0
    assert len(Comparisons.from_labels(given, y)) == len(Comparisons.from_labels(X, y))


def test_knn_error_equals_dense() -> None:
    X, y = draw(n=90, D=8)
    for k in (1, 5):
        assert knn_error(csr_array(X[:60]), y[:60], csr_array(X[60:]), y[60:], k) == knn_error(
            X[:60], y[:60], X[60:], y[60:], k
        )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"solver": "totally_corrective", "max_iter": 12},
        {"init": "scale", "early_stopping": True},
    ],
    ids=str,
)
def test_points_are_never_densified(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = draw(n=90, D=30)
    original: Callable[..., NDArray] = csr_array.toarray

    def toarray(self: Any, *args: Any, **options: Any) -> NDArray:
        assert self.shape[0] * self.shape[1] < X.size or self.shape[1] == 90  # tiles of distances
        return original(self, *args, **options)

    monkeypatch.setattr(csr_array, "toarray", toarray)
    monkeypatch.setattr("boostmetric.neighbors.exact.TILE", 25)
    learner = simple_learner(**{"max_iter": 40, **options}).fit(csr_array(X), y)
    learner.score(csr_array(X), y)
    learner.pair_distance([[0, 1]], csr_array(X))
    with pytest.raises(AssertionError):
        csr_array(X).toarray()


def test_sample_weight_equals_repetition() -> None:
    X, y = draw(n=40, D=6)
    weights = np.random.default_rng(0).integers(0, 3, size=40)
    rows = np.repeat(np.arange(40), weights)
    weighted = simple_learner(max_iter=5, n_neighbors=2).fit(csr_array(X), y, sample_weight=weights)
    twice = simple_learner(max_iter=5, n_neighbors=2).fit(csr_array(X)[rows], y[rows])
    assert near(weighted.metric_.matrix, twice.metric_.matrix, 1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_scale_equals_dense(weighted: bool) -> None:
    X, _ = draw(n=50, D=6)
    X = X.copy()
    X[:, 4], X[:, 5] = 0, 7.7  # constant features are not scaled
    weights = np.random.default_rng(0).integers(0, 3, 50) if weighted else np.ones(50)
    scales = spread(csr_array(X), weights.astype(float))
    assert np.allclose(scales, spread(X, weights.astype(float)), rtol=1e-12)
    assert scales[4:].tolist() == [1, 1]
    L = starting_transformation("scale", csr_array(X), weights=weights.astype(float))
    assert sparse.issparse(L)
    assert np.allclose(dense(L), np.diag(1 / scales))


def test_scale_of_many_features_is_sparse() -> None:
    D = 20_000  # a matrix of this size would take 3 GB
    rng = np.random.default_rng(0)
    X = sparse.random(200, D, density=1e-3, random_state=0, format="csr")
    learner = simple_learner(init="scale", max_iter=4, n_neighbors=1)
    learner.fit(X, rng.integers(0, 2, size=200))
    assert learner.components_.shape[1] == D
    assert learner.transform(X).shape == (200, len(learner.components_))


def test_init_array_equals_dense(rng: np.random.Generator) -> None:
    X, y = draw(n=60, D=6)
    L = rng.normal(size=(3, 6))
    learners = [simple_learner(init=L, max_iter=5).fit(given, y) for given in (X, csr_array(X))]
    assert near(learners[1].metric_.matrix, learners[0].metric_.matrix, 1e-9)


@pytest.mark.parametrize("init", ["pca", "whiten", "lda"])
def test_centering_init_is_rejected(init: str) -> None:
    X, y = draw(n=40, D=6)
    learner = simple_learner(init=init)
    with pytest.raises(TypeError, match=rf"init='{init}' does not work with sparse X.*Truncated"):
        learner.fit(csr_array(X), y)
    assert not learner.__sklearn_tags__().input_tags.sparse
    assert simple_learner().__sklearn_tags__().input_tags.sparse


def test_index_is_rejected() -> None:
    from sklearn.neighbors import NearestNeighbors

    X, y = draw(n=40, D=6)
    learner = simple_learner(index=NearestNeighbors())
    with pytest.raises(
        ValueError, match=r"index=Near.* does not work with sparse X. Use index=None"
    ):
        learner.fit(csr_array(X), y)


def test_identical_points_are_rejected() -> None:
    X = csr_array(np.tile([[0.0, 2.0, 0.0]], (6, 1)))
    with pytest.raises(ValueError, match="All 6 points are identical"):
        simple_learner().fit(X, [0, 0, 0, 1, 1, 1])
    X.data[3] = 1.0
    assert not are_identical(X)


@pytest.mark.parametrize("init", [None, "scale"])
def test_start_is_kept_without_directions(init: str | None) -> None:
    X = np.zeros((6, 4))
    X[:, 0] = [1, 2, 3, 1.5, 2.5, 3.5]  # the far pair is nearer for every metric
    learner = simple_learner(init=init)
    with pytest.warns(UserWarning, match="No direction"):
        learner.fit(csr_array(X), comparisons=Comparisons.from_triplets([[0, 2, 1]]))
    scale = 1.0 if init is None else 1 / X[:, 0].std()
    assert np.allclose(learner.get_mahalanobis_matrix(), np.diag([scale**2, 1, 1, 1]))


@pytest.mark.parametrize("base", [None, sparse.eye_array(60_000, format="csr")])
def test_start_of_many_features_is_rejected(base: csr_array | None) -> None:
    with pytest.raises(ValueError, match=r"60000 features it is too large.*TruncatedSVD"):
        as_components(base, 60_000, np.float64)


def test_warm_start_after_pickle() -> None:
    X, y = draw(n=60, D=8)
    learners = [
        simple_learner(init="scale", max_iter=4, directions_per_step=1, warm_start=True).fit(
            given, y
        )
        for given in (X, csr_array(X))
    ]
    copies = [pickle.loads(pickle.dumps(learner)) for learner in learners]
    copies[0].fit(X, y)
    copies[1].fit(csr_array(X), y)
    assert near(copies[1].metric_.matrix, copies[0].metric_.matrix, 1e-9)
    assert not near(copies[1].metric_.matrix, learners[1].metric_.matrix, 1e-3)


def test_row_out_of_bounds() -> None:
    X, y = draw(n=40, D=6)
    learner = simple_learner(max_iter=3).fit(csr_array(X), y)
    with pytest.raises(ValueError, match="Row index 40 is out of bounds for X with 40 rows"):
        learner.pair_distance([[0, 40]], csr_array(X))
    with pytest.raises(ValueError, match="comparisons contain row 40, but X has 40 rows"):
        learner.fit(csr_array(X), comparisons=Comparisons.from_triplets([[0, 1, 40]]))
