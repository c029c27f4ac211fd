from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csr_array

from boostmetric import (
    BoostMetric,
    BoostMetricCV,
    ComparisonOperator,
    Comparisons,
    Metric,
    blockwise,
    boost,
    knn_error,
    metric,
)
from boostmetric.initial import as_components, spread, starting_transformation
from boostmetric.labels import Labels
from boostmetric.mining import nearest_targets_and_impostors
from boostmetric.points import are_identical, as_points, centred, distinct_points

FORMATS: dict[str, Callable[[NDArray], Any]] = {
    "csr_array": csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc_array": sparse.csc_array,
    "coo_matrix": sparse.coo_matrix,
    "lil_array": sparse.lil_array,
    "repeated": lambda X: repeated(X),
}


def repeated(X: NDArray) -> csr_array:
    """A CSR array in which every entry is given as two halves, in no order, beside zeros."""
    rows, columns = np.nonzero(np.ones_like(X))
    order = np.random.default_rng(0).permutation(2 * X.size)
    halves = np.tile(X.ravel() / 2, 2)[order]
    coo = sparse.coo_matrix(
        (halves, (np.tile(rows, 2)[order], np.tile(columns, 2)[order])), X.shape
    )
    counts = np.bincount(coo.row, minlength=len(X))
    by_row = np.argsort(coo.row, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)])
    return csr_array((coo.data[by_row], coo.col[by_row], starts), shape=X.shape)


def dense(points: Any) -> NDArray:
    whole: NDArray = points.toarray()
    return whole


def draw(
    n: int = 120, D: int = 20, dtype: type[np.floating] = np.float64, seed: int = 0
) -> tuple[NDArray, NDArray]:
    """Points mostly 0, but for a first feature far from 0, and labels by the next three."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.2)
    y = np.argmax(X[:, 1:4] + 0.3 * rng.normal(size=(n, 3)), axis=1)
    X[:, 0] = 50 + rng.normal(size=n)
    X = X.astype(dtype)
    read_only(X, y)
    return X, y


def draw_triplets(n: int, m: int) -> Comparisons:
    rows = [np.random.default_rng(r).permutation(n)[:3] for r in range(m)]
    return Comparisons.from_triplets(rows, gaps=0.5, weights=np.linspace(0.5, 2, m))


def near(learned: NDArray, expected: NDArray, share: float) -> bool:
    """Whether matrices differ by no more than a share of the largest entry."""
    return bool(np.abs(learned - expected).max() <= share * np.abs(expected).max())


@pytest.mark.parametrize("D", [20, 640])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"block_size": 4},
        {"loss": "exponential"},
        {"loss": "squared_hinge", "regularizer": "frobenius"},
        {"loss": "smoothed_hinge", "block_size": 3},
        {"loss": "hinge"},
        {"solver": "totally_corrective", "max_iter": 4},
        {"n_passes": 2, "max_iter": 5},
        {"early_stopping": True, "n_iter_no_change": 5, "random_state": 0},
        {"init": "scale"},
        {"n_components": 2},
    ],
    ids=str,
)
def test_a_fit_is_that_of_the_dense_points(options: dict[str, Any], D: int) -> None:
    X, y = draw(D=D)
    parameters = {"max_iter": 12, **options}
    other = BoostMetric(**parameters).fit(X, y)
    learner = BoostMetric(**parameters).fit(csr_array(X), y)
    assert near(learner.metric_.matrix, other.metric_.matrix, 1e-6)
    assert learner.n_iter_ == other.n_iter_
    assert np.allclose(learner.transform(csr_array(X)), other.transform(X), rtol=1e-5, atol=1e-5)
    assert learner.score(csr_array(X), y) == pytest.approx(other.score(X, y), abs=0.005)


@pytest.mark.parametrize("D", [20, 640])
def test_single_precision_is_kept(D: int) -> None:
    X, y = draw(D=D, dtype=np.float32)
    other = BoostMetric(loss="exponential", max_iter=5).fit(X, y)
    learner = BoostMetric(loss="exponential", max_iter=5).fit(csr_array(X), y)
    assert learner.components_.dtype == learner.transform(csr_array(X)).dtype == np.float32
    assert near(learner.metric_.matrix, other.metric_.matrix, 1e-3)


@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
def test_the_optimum_is_that_of_the_dense_points(regularizer: str) -> None:
    X, y = draw(n=60, D=7)
    comparisons = Comparisons.from_labels(X, y)
    options: dict[str, Any] = {"solver": "totally_corrective", "alpha": 0.01, "tol": 1e-7}
    other = boost(X, comparisons, "logistic", regularizer=regularizer, **options)
    fit = boost(csr_array(X), comparisons, "logistic", regularizer=regularizer, **options)
    assert fit.status.name == other.status.name == "CONVERGED"
    assert fit.objective() == pytest.approx(other.objective(), rel=1e-6)
    assert near(fit.metric.matrix, other.metric.matrix, 1e-2)


@pytest.mark.parametrize("D", [20, 640])
def test_a_fit_to_triplets(D: int) -> None:
    X, _ = draw(D=D)
    comparisons = draw_triplets(120, 200)
    learners = [
        BoostMetric("logistic", max_iter=12).fit(points, comparisons=comparisons)
        for points in (X, csr_array(X))
    ]
    assert near(learners[1].metric_.matrix, learners[0].metric_.matrix, 1e-6)
    assert learners[1].score(csr_array(X), comparisons=comparisons) == learners[0].score(
        X, comparisons=comparisons
    )


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_will_do_and_is_left_as_it_is(name: str) -> None:
    X, y = draw(n=40, D=6)
    given = FORMATS[name](X)
    if given.format == "csr":
        read_only(given.data, given.indices, given.indptr)
    learner = BoostMetric(init="scale", max_iter=5).fit(given, y)
    expected = BoostMetric(init="scale", max_iter=5).fit(X, y)
    assert near(learner.metric_.matrix, expected.metric_.matrix, 1e-9)
    pairs = np.array([[0, 1], [5, 9]])
    distances = np.linalg.norm((X[pairs[:, 0]] - X[pairs[:, 1]]) @ learner.components_.T, axis=1)
    assert np.allclose(learner.pair_distance(pairs, given), distances)
    assert np.allclose(learner.metric_.pair_distances(given, pairs), distances)
    assert np.allclose(learner.metric_.distances(given)[0, 1], distances[0])
    assert knn_error(given[:20] if name != "coo_matrix" else X[:20], y[:20], X[20:], y[20:]) >= 0
    assert len(Comparisons.from_labels(given, y)) == len(Comparisons.from_labels(X, y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_are_those_of_the_dense_points(dtype: type[np.floating]) -> None:
    X, _ = draw(n=30, D=8, dtype=dtype)
    learned = Metric(np.eye(8)[:, :5], np.arange(1.0, 6.0)).astype(dtype)
    S, eps = csr_array(X), 100 * float(np.finfo(dtype).eps)
    for squared, near_by in ((False, (50 * eps) ** 0.5), (True, 50 * eps)):
        distances = learned.distances(S, S[:7], squared=squared)
        assert distances.shape == (30, 7)
        assert distances.dtype == dtype
        assert np.allclose(distances, learned.distances(X, X[:7], squared=squared), atol=near_by)
        assert np.allclose(learned.distances(X, S[:7], squared=squared), distances, atol=near_by)
    assert (np.diag(learned.distances(S)) == 0).all()
    assert np.allclose(learned.transform(S), learned.transform(X), rtol=eps)


def test_the_error_of_nearest_neighbours() -> None:
    X, y = draw(n=90, D=8)
    for k in (1, 5):
        assert knn_error(csr_array(X[:60]), y[:60], csr_array(X[60:]), y[60:], k) == knn_error(
            X[:60], y[:60], X[60:], y[60:], k
        )


@pytest.mark.parametrize("D", [9, 640])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_operator_is_that_of_the_dense_points(
    D: int, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X, _ = draw(n=50, D=D, dtype=dtype)
    comparisons = draw_triplets(50, 80)
    whole = ComparisonOperator(X, comparisons)
    operator = ComparisonOperator(csr_array(X), comparisons)
    duals = rng.random(80).astype(dtype)
    basis, directions = rng.normal(size=(D, 5)), rng.normal(size=(D, 3)).astype(dtype)
    N = rng.normal(size=(D, D))
    N += N.T
    small = basis.T @ N @ basis
    learned = Metric.from_components(rng.normal(size=(D + 4, D))).astype(dtype)
    values: list[Callable[[Any], NDArray]] = [
        lambda given: given.scatter(duals) @ directions,
        lambda given: given.scatter_matrix(duals),
        lambda given: given.spread(duals),
        lambda given: given.responses(directions[:, 0]),
        lambda given: given.measures(directions),
        lambda given: given.values(learned),
        lambda given: given.values_of(N),
        lambda given: given.project(basis).values_of(small),
        lambda given: given.project(basis).scatter_matrix(duals),
        lambda given: given.project(basis).spread(duals),
        lambda given: given.project(basis).responses(basis[0].astype(dtype)),
    ]
    for value in values:
        expected, result = value(whole), value(operator)
        assert result.dtype == expected.dtype
        assert near(result, expected, 1e4 * float(np.finfo(dtype).eps))


def test_the_scatter_is_the_sum_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = draw(n=50, D=9)
    operator = ComparisonOperator(csr_array(X), draw_triplets(50, 80))
    whole = operator.scatter_matrix(np.ones(80))
    monkeypatch.setattr("boostmetric.laplacian.BLOCK_ENTRIES", 30)
    assert np.allclose(operator.scatter_matrix(np.ones(80)), whole)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"solver": "totally_corrective", "max_iter": 12},
        {"init": "scale", "early_stopping": True},
    ],
    ids=str,
)
def test_nothing_as_large_as_the_dense_points_is_formed(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = draw(n=90, D=30)
    whole: Callable[..., NDArray] = csr_array.toarray
    squares = metric.pair_squares

    def toarray(self: Any, *args: Any, **options: Any) -> NDArray:
        assert self.shape[0] * self.shape[1] < X.size or self.shape[1] == 90  # blocks of distances
        return whole(self, *args, **options)

    def pair_squares(points: NDArray, *rest: Any) -> NDArray:
        assert points.shape[1] < 30
        return squares(points, *rest)

    monkeypatch.setattr(csr_array, "toarray", toarray)
    monkeypatch.setattr(metric, "pair_squares", pair_squares)
    monkeypatch.setattr(blockwise, "BLOCK_ENTRIES", 90 * 20)
    learner = BoostMetric(**{"max_iter": 40, **options}).fit(csr_array(X), y)
    learner.score(csr_array(X), y)
    learner.pair_distance([[0, 1]], csr_array(X))
    with pytest.raises(AssertionError):
        csr_array(X).toarray()


def test_a_feature_far_from_zero_costs_no_digits(rng: np.random.Generator) -> None:
    X, y = draw(n=80, D=6)
    comparisons, v = Comparisons.from_labels(X, y), rng.normal(size=6)
    expected = ComparisonOperator(X, comparisons).responses(v)
    X = X.copy()
    X[:, 0] = (X[:, 0] + 2**27) - 2**27  # the bits that are left when it is far away
    exact = ComparisonOperator(X, comparisons).responses(v)
    X[:, 0] += 2**27
    far = ComparisonOperator(csr_array(X), comparisons).responses(v)
    assert near(exact, expected, 1e-6)
    assert near(far, exact, 1e-12)


def test_features_that_most_points_have_are_centred() -> None:
    X = np.array([[3.0, 0, 0], [5, 1, 0], [4, 0, 0], [0, 2, 9]])
    points = centred(csr_array(X))
    assert dense(points).tolist() == [[0, 0, 0], [2, 1, 0], [1, 0, 0], [-3, 2, 9]]
    assert np.allclose(dense(points) - dense(points)[0], X - X[0])


def assert_same_search(
    X: NDArray, labels: NDArray, n_targets: int, n_impostors: int, **options: Any
) -> None:
    sparsely = blockwise.blockwise_targets_and_impostors(
        csr_array(X), Labels.of(labels), n_targets, n_impostors, **options
    )
    densely = nearest_targets_and_impostors(X, labels, n_targets, n_impostors)
    for found, expected in zip(sparsely, densely, strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_targets", "n_impostors"), [(1, 1), (3, 3), (2, 5), (40, 90)])
def test_neighbours_are_those_of_the_dense_search(
    n_targets: int, n_impostors: int, dtype: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = draw(n=100, dtype=dtype, seed=n_targets)
    assert_same_search(X, y, n_targets, n_impostors)
    monkeypatch.setattr(blockwise, "BLOCK_ENTRIES", 700)
    assert_same_search(X, y, n_targets, n_impostors, n_jobs=2)


@pytest.mark.parametrize("factor", [1.0, 0.1, 1e-30])
def test_among_equals_the_lower_row_comes_first(factor: float) -> None:
    rng = np.random.default_rng(3)
    X = factor * rng.integers(0, 2, size=(150, 8))  # on the corners of a cube, many twice
    assert_same_search(X, rng.integers(0, 3, size=150), 4, 4)


def test_close_points_far_from_zero_are_told_apart() -> None:
    rng = np.random.default_rng(1)
    X = 1e-5 * rng.integers(0, 9, size=(120, 40)) * (rng.random((120, 40)) < 0.3)
    X[np.arange(120), np.arange(120) % 10] = 1e4  # the square of which drowns those of differences
    assert_same_search(X, rng.integers(0, 2, size=120), 2, 2)


def test_distinct_points_are_told_apart_by_place_and_label() -> None:
    X = csr_array(np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 5.0], [1.0, 0.0], [2.0, 0.0]]))
    X.data[X.data == 5] = -0.0  # stored, but a zero
    first, inverse = distinct_points(X, np.array([0, 1, 0, 1, 1]))
    assert sorted(first.tolist()) == [0, 1, 3]
    assert first[inverse].tolist() == [0, 1, 0, 3, 1]


def test_a_weight_of_two_is_a_point_given_twice() -> None:
    X, y = draw(n=40, D=6)
    weights = np.random.default_rng(0).integers(0, 3, size=40)
    rows = np.repeat(np.arange(40), weights)
    weighted = BoostMetric(max_iter=5, n_neighbors=2).fit(csr_array(X), y, sample_weight=weights)
    twice = BoostMetric(max_iter=5, n_neighbors=2).fit(csr_array(X)[rows], y[rows])
    assert near(weighted.metric_.matrix, twice.metric_.matrix, 1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_scales_are_those_of_the_dense_points(weighted: bool) -> None:
    X, _ = draw(n=50, D=6)
    X = X.copy()
    X[:, 4], X[:, 5] = 0, 7.7  # constant: left as they are
    weights = np.random.default_rng(0).integers(0, 3, 50) if weighted else np.ones(50)
    scales = spread(csr_array(X), weights.astype(float))
    assert np.allclose(scales, spread(X, weights.astype(float)), rtol=1e-12)
    assert scales[4:].tolist() == [1, 1]
    L = starting_transformation("scale", csr_array(X), weights=weights.astype(float))
    assert sparse.issparse(L)
    assert np.allclose(dense(L), np.diag(1 / scales))


def test_a_scale_of_many_features_is_never_a_matrix() -> None:
    D = 60_000  # a matrix of this size would take 29 GB
    rng = np.random.default_rng(0)
    X = sparse.random(200, D, density=1e-3, random_state=0, format="csr")
    learner = BoostMetric(init="scale", max_iter=4, n_neighbors=1)
    learner.fit(X, rng.integers(0, 2, size=200))
    assert learner.components_.shape[1] == D
    assert learner.transform(X).shape == (200, len(learner.components_))


def test_an_array_to_start_from(rng: np.random.Generator) -> None:
    X, y = draw(n=60, D=6)
    L = rng.normal(size=(3, 6))
    learners = [BoostMetric(init=L, max_iter=5).fit(given, y) for given in (X, csr_array(X))]
    assert near(learners[1].metric_.matrix, learners[0].metric_.matrix, 1e-9)


@pytest.mark.parametrize("init", ["pca", "whiten", "lda"])
def test_transformations_that_centre_are_refused(init: str) -> None:
    X, y = draw(n=40, D=6)
    learner = BoostMetric(init=init)
    with pytest.raises(TypeError, match=rf"init='{init}' does not work with sparse X.*Truncated"):
        learner.fit(csr_array(X), y)
    assert not learner.__sklearn_tags__().input_tags.sparse
    assert BoostMetric().__sklearn_tags__().input_tags.sparse


def test_an_index_is_refused() -> None:
    from sklearn.neighbors import NearestNeighbors

    X, y = draw(n=40, D=6)
    learner = BoostMetric(neighbors=NearestNeighbors())
    with pytest.raises(
        ValueError, match=r"neighbors=Near.* does not work with sparse X: use neigh"
    ):
        learner.fit(csr_array(X), y)


def test_candidates_need_dense_points() -> None:
    X, y = draw(n=40, D=6)
    with pytest.raises(TypeError, match=r"BoostMetricCV needs a dense X, and a sparse one came\."):
        BoostMetricCV().fit(csr_array(X), y)


def test_identical_points_are_refused() -> None:
    X = csr_array(np.tile([[0.0, 2.0, 0.0]], (6, 1)))
    with pytest.raises(ValueError, match="all 6 points are identical"):
        BoostMetric().fit(X, [0, 0, 0, 1, 1, 1])
    X.data[3] = 1.0
    assert not are_identical(X)


@pytest.mark.parametrize("init", [None, "scale"])
def test_where_nothing_is_learned_the_start_is_kept(init: str | None) -> None:
    X = np.zeros((6, 4))
    X[:, 0] = [1, 2, 3, 1.5, 2.5, 3.5]  # the far pair is the nearer one, whatever the metric
    learner = BoostMetric(init=init)
    with pytest.warns(UserWarning, match="No direction"):
        learner.fit(csr_array(X), comparisons=Comparisons.from_triplets([[0, 2, 1]]))
    scale = 1.0 if init is None else 1 / X[:, 0].std()
    assert np.allclose(learner.get_mahalanobis_matrix(), np.diag([scale**2, 1, 1, 1]))


@pytest.mark.parametrize("base", [None, sparse.eye_array(60_000, format="csr")])
def test_a_start_of_many_features_is_not_kept(base: csr_array | None) -> None:
    with pytest.raises(ValueError, match=r"of 60000 features, is too large to be kept.*Truncated"):
        as_components(base, 60_000, np.float64)


def test_a_fit_can_be_continued_and_pickled() -> None:
    X, y = draw(n=60, D=8)
    learners = [
        BoostMetric(init="scale", max_iter=4, block_size=1, warm_start=True).fit(given, y)
        for given in (X, csr_array(X))
    ]
    copies = [pickle.loads(pickle.dumps(learner)) for learner in learners]
    copies[0].fit(X, y)
    copies[1].fit(csr_array(X), y)
    assert near(copies[1].metric_.matrix, copies[0].metric_.matrix, 1e-9)
    assert not near(copies[1].metric_.matrix, learners[1].metric_.matrix, 1e-3)


def test_a_row_out_of_range() -> None:
    X, y = draw(n=40, D=6)
    learner = BoostMetric(max_iter=3).fit(csr_array(X), y)
    with pytest.raises(ValueError, match="a pair names row 40: X has the rows 0 to 39"):
        learner.pair_distance([[0, 40]], csr_array(X))
    with pytest.raises(ValueError, match="a comparison names row 40, but X has 40 rows"):
        learner.fit(csr_array(X), comparisons=Comparisons.from_triplets([[0, 1, 40]]))


def test_points_are_copied_only_where_entries_repeat() -> None:
    X, _ = draw(n=10, D=4)
    given = csr_array(X)
    assert np.shares_memory(as_points(given).data, given.data)
    messy = repeated(X)
    entries = messy.data.copy()
    assert np.allclose(dense(as_points(messy)), X)
    assert (messy.size, as_points(messy).size) == (2 * X.size, X.size)
    assert np.array_equal(messy.data, entries)
