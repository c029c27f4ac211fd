from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, svd
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from boostmetric import Metric
from boostmetric._files import FileFormatError, save_arrays
from boostmetric.metric import fix_signs, pair_distances

DTYPES = [np.float32, np.float64]


def draw(
    rng: np.random.Generator, D: int = 5, J: int = 8, dtype: type[np.floating] = np.float64
) -> Metric:
    directions = rng.standard_normal((D, J))
    directions = (directions / np.linalg.norm(directions, axis=0)).astype(dtype)
    coefs = rng.exponential(size=J).astype(dtype)
    read_only(directions, coefs)
    return Metric(directions, coefs)


def sum_of_terms(metric: Metric) -> NDArray:
    total = np.zeros((metric.n_features, metric.n_features))
    for v, w in zip(metric.directions.T.astype(float), metric.coefs.astype(float), strict=True):
        total += w * np.outer(v, v)
    return total


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("D", "J"), [(5, 8), (5, 5), (1, 4), (7, 1)])
def test_matrix_is_the_sum_of_the_terms(
    D: int, J: int, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    metric = draw(rng, D, J, dtype)
    M = sum_of_terms(metric)
    tolerance = 50 * float(np.finfo(dtype).eps)
    assert (metric.n_features, metric.n_directions) == (D, J)
    assert metric.matrix == pytest.approx(M, rel=tolerance, abs=tolerance)
    L = metric.components
    assert L.shape == (min(D, J), D)
    product = L.T @ L
    assert product == pytest.approx(M, rel=tolerance, abs=tolerance)
    eigenvalues = np.linalg.eigvalsh(M)[::-1][: len(L)]
    assert metric.eigenvalues == pytest.approx(eigenvalues, rel=tolerance * 10, abs=tolerance)
    assert np.linalg.eigvalsh(metric.matrix)[0] >= -tolerance * eigenvalues[0]
    assert {L.dtype, metric.eigenvalues.dtype} == {np.dtype(dtype)}
    assert metric.matrix.dtype == np.float64


def test_components_are_sorted_eigenvectors(rng: np.random.Generator) -> None:
    metric = draw(rng)
    L = metric.components
    gram = L @ L.T
    assert gram == pytest.approx(np.diag(np.diag(gram)), abs=1e-12)
    assert (np.diff(np.diag(gram)) <= 0).all()
    assert (L[np.arange(len(L)), np.abs(L).argmax(axis=1)] > 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("J", [3, 10, 400])
def test_number_of_components_is_the_rank(
    J: int, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    plane = np.linalg.qr(rng.standard_normal((9, 2)))[0]
    directions = plane @ rng.standard_normal((2, J))
    directions = (directions / np.linalg.norm(directions, axis=0)).astype(dtype)
    metric = Metric(directions, np.ones(J, dtype))
    assert metric.components.shape == (2, 9)
    assert metric.eigenvalues.shape == (2,)
    tolerance = 100 * float(np.finfo(dtype).eps)
    assert metric.components.T @ metric.components == pytest.approx(
        sum_of_terms(metric), abs=J * tolerance
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("D", [3, 30])
def test_repeated_directions_do_not_increase_the_rank(D: int, dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(D)
    directions = draw(rng, D, 3, dtype).directions
    coefs = rng.exponential(size=12)
    repeated = Metric(np.tile(directions, 4), coefs)
    single = Metric(directions, coefs.reshape(4, 3).sum(axis=0))
    assert repeated.components.shape == single.components.shape == (3, D)
    tolerance = 100 * float(np.finfo(dtype).eps)
    assert repeated.components == pytest.approx(single.components, rel=tolerance, abs=tolerance)
    signs = np.array([1, -1, 1, -1] * 3, dtype)
    assert Metric(np.tile(directions, 4) * signs, coefs).components.shape == (3, D)


@pytest.mark.parametrize("dtype", DTYPES)
def test_coefs_are_float64(dtype: type[np.floating]) -> None:
    """Features of size 1e30 have coefficients of 1e-60, which underflow in float32."""
    directions = np.eye(3, dtype=dtype)
    for coefs in (np.array([1e-60, 3e-60, 2e-60]), np.ones(3, np.float32), np.array([1, 2, 3])):
        metric = Metric(directions, coefs)
        assert metric.coefs.dtype == metric.matrix.dtype == np.float64
        assert metric.matrix == pytest.approx(np.diag(coefs), rel=1e-14)
        assert metric.directions.dtype == metric.components.dtype == dtype
        assert len(metric.components) == 3
    assert metric.astype(np.float32).coefs.dtype == np.float64


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("squared", [False, True])
def test_distances_are_mahalanobis(
    squared: bool, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    metric = draw(rng, 5, 8, dtype)
    X, Y = (rng.standard_normal((n, 5)).astype(dtype) for n in (12, 7))
    read_only(X, Y)
    power = 2 if squared else 1
    VI = sum_of_terms(metric)
    tolerance = 1e-10 if dtype is np.float64 else 1e-4
    between = cdist(X, Y, "mahalanobis", VI=VI) ** power
    within = cdist(X, X, "mahalanobis", VI=VI) ** power
    assert metric.distances(X, Y, squared=squared) == pytest.approx(between, rel=tolerance)
    assert metric.distances(X, squared=squared) == pytest.approx(within, rel=tolerance)
    pairs = np.array([[0, 1], [3, 3], [11, 2]])
    read_only(pairs)
    expected = within[pairs[:, 0], pairs[:, 1]]
    assert metric.pair_distances(X, pairs, squared=squared) == pytest.approx(
        expected, rel=tolerance
    )
    assert metric.distances(X, Y).dtype == dtype
    assert metric.pair_distances(X, pairs).dtype == dtype
    assert metric.transform(X).dtype == dtype
    assert cdist(metric.transform(X), metric.transform(Y)) ** power == pytest.approx(
        between, rel=tolerance
    )


@pytest.mark.parametrize("squared", [False, True])
def test_distance_of_two_points(squared: bool, rng: np.random.Generator) -> None:
    metric = draw(rng)
    u, v = rng.standard_normal((2, 5))
    square = (u - v) @ sum_of_terms(metric) @ (u - v)
    expected = square if squared else np.sqrt(square)
    assert metric.distance(u, v, squared=squared) == pytest.approx(expected, rel=1e-12)
    assert metric.distance(u[None], v, squared=squared) == metric.distance(u, v, squared=squared)
    assert metric.distance(u.tolist(), u) == 0


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u8", "f2", "f4"])
def test_distances_accept_any_dtype(dtype: str, rng: np.random.Generator) -> None:
    metric = draw(rng)
    high = 1 if dtype == "?" else 100
    X = np.array([[0, high, 0, high, 0], [high, 0, high, 0, 0]]).astype(dtype)
    difference = X[0].astype(float) - X[1].astype(float)
    expected = np.sqrt(difference @ sum_of_terms(metric) @ difference)
    assert metric.distance(*X) == pytest.approx(expected, rel=1e-6)
    assert metric.distances(X)[0, 1] == pytest.approx(expected, rel=1e-6)
    assert metric.pair_distances(X, np.array([[1, 0]]))[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("point", [0, 1.5, [], [1.0], np.ones((2, 5)), np.ones((5, 1)), None])
def test_invalid_shapes_are_rejected(point: Any, rng: np.random.Generator) -> None:
    metric = draw(rng)
    shape = re.escape(str(np.shape(point)))
    with pytest.raises(ValueError, match=rf"^u must have shape \(5,\) or \(1, 5\); got {shape}\.$"):
        metric.distance(point, np.zeros(5))
    with pytest.raises(ValueError, match=r"^v must have shape"):
        metric.distance(np.zeros(5), point)


def test_offset_does_not_change_distances(rng: np.random.Generator) -> None:
    metric = draw(rng)
    X = np.round(rng.standard_normal((20, 5)), 6)
    expected = cdist(X, X, "mahalanobis", VI=sum_of_terms(metric))
    far = X + 2.0**20
    pairs = np.array([(i, j) for i in range(20) for j in range(20)])
    assert metric.pair_distances(far, pairs) == pytest.approx(expected.ravel(), abs=1e-7)
    assert metric.distances(far, far.copy()) == pytest.approx(expected, abs=1e-5)


def test_batches_of_pairs_do_not_change_distances(rng: np.random.Generator) -> None:
    L = draw(rng).components
    X, pairs = rng.standard_normal((10, 5)), rng.integers(0, 10, (23, 2))
    expected = pair_distances(X, pairs, L)
    for size in (1, 7, 15, 50):
        assert np.array_equal(pair_distances(X, pairs, L, batch_entries=size), expected)


def test_pair_distances_of_sparse_points(rng: np.random.Generator) -> None:
    """Points are transformed by a few components at a time."""
    metric = draw(rng, 30, 40)
    X = csr_array(np.where(rng.random((10, 30)) < 0.1, rng.standard_normal((10, 30)), 0))
    pairs = rng.integers(0, 10, (23, 2))
    expected = metric.pair_distances(X.toarray(), pairs)
    assert metric.pair_distances(X, pairs) == pytest.approx(expected, rel=1e-12)


def test_distances_accept_lists() -> None:
    metric = Metric(np.eye(2), np.array([4.0, 1.0]))
    X = [[0, 0], [255, 0], [0, 3]]
    assert metric.distances(X, [[0, 0]])[:, 0].tolist() == [0, 510, 3]


@pytest.mark.parametrize("kept", [1, 3, 5, 9])
def test_truncation_keeps_the_leading_eigenvectors(kept: int, rng: np.random.Generator) -> None:
    metric = draw(rng)
    values, vectors = np.linalg.eigh(sum_of_terms(metric))
    leading = slice(max(0, 5 - kept), None)
    expected = (vectors[:, leading] * values[leading]) @ vectors[:, leading].T
    truncated = metric.truncate(kept)
    assert truncated.matrix == pytest.approx(expected, abs=1e-12)
    assert truncated.n_directions == len(truncated.components) == min(kept, 5)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.999])
def test_truncation_by_share_keeps_the_smallest_rank(
    share: float, rng: np.random.Generator
) -> None:
    metric = draw(rng)
    values = np.linalg.eigvalsh(sum_of_terms(metric))[::-1]
    fewest = next(k for k in range(1, 6) if values[:k].sum() >= share * values.sum())
    assert metric.truncate(share).eigenvalues == pytest.approx(values[:fewest], rel=1e-12)


def test_shrinkage_is_an_average_with_the_identity(rng: np.random.Generator) -> None:
    metric = Metric.from_components(rng.normal(size=(2, 4)))
    expected = 0.7 * metric.matrix + 0.3 * np.trace(metric.matrix) / 4 * np.eye(4)
    np.testing.assert_allclose(metric.shrink(0.3).matrix, expected, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_composition_is_the_metric_of_transformed_points(
    dtype: type[np.floating], rng: np.random.Generator
) -> None:
    outer, L = draw(rng, 3, 4, dtype), rng.standard_normal((3, 6)).astype(dtype)
    read_only(L)
    expected = L.T.astype(float) @ sum_of_terms(outer) @ L
    tolerance = 100 * float(np.finfo(dtype).eps)
    composed = outer.compose(L)
    assert composed.matrix == pytest.approx(expected, abs=tolerance, rel=tolerance)
    assert np.linalg.norm(composed.directions, axis=0) == pytest.approx(1, rel=tolerance)
    assert composed.directions.dtype == composed.components.dtype == dtype

    inner = draw(rng, 6, 3, dtype)
    expected = inner.components.T.astype(float) @ sum_of_terms(outer) @ inner.components
    assert outer.compose(inner).matrix == pytest.approx(expected, abs=tolerance, rel=tolerance)


def test_from_components_drops_zero_rows(rng: np.random.Generator) -> None:
    L = rng.standard_normal((3, 4))
    L[1] = 0
    read_only(L)
    metric = Metric.from_components(L)
    assert metric.n_directions == 2
    assert metric.matrix == pytest.approx(L.T @ L, abs=1e-14)
    assert np.linalg.norm(metric.directions, axis=0) == pytest.approx(1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_astype_changes_only_the_precision(
    dtype: type[np.floating], rng: np.random.Generator
) -> None:
    metric = draw(rng)
    changed = metric.astype(dtype)
    assert changed.directions.dtype == changed.components.dtype == dtype
    assert changed.matrix == pytest.approx(metric.matrix, rel=1e-5)


@pytest.mark.parametrize("scales", [[1.0, 2.0, 0.5], None, "abc", [1.0, 2.0], [1.0, 2.0, np.inf]])
def test_feature_importances_use_the_variances(scales: Any, rng: np.random.Generator) -> None:
    vectors = rng.normal(size=(3, 5))
    vectors /= np.linalg.norm(vectors, axis=0)
    learned = Metric(vectors, rng.random(5), origin={"deviations": scales})
    valid = scales == [1.0, 2.0, 0.5]
    assert (learned.feature_deviations is not None) == valid
    sizes = np.diag(learned.matrix) * (np.square(scales) if valid else 1)
    assert learned.feature_importances == pytest.approx(sizes / sizes.sum())


def test_feature_importances_of_the_zero_metric_are_zero() -> None:
    assert Metric(np.empty((2, 0)), np.empty(0)).feature_importances.tolist() == [0, 0]


def test_names_and_origin_are_kept(rng: np.random.Generator) -> None:
    names, origin = ("a", "b", "c", "d", "e"), {"made": "by hand"}
    learned = replace(draw(rng), feature_names=names, origin=origin)
    for kept in (learned.astype(np.float32), learned.truncate(2), learned.truncate(0.5)):
        assert (kept.feature_names, kept.origin) == (names, origin)
    composed = Metric(np.eye(5), np.ones(5), names, origin).compose(learned)
    for new in (composed, Metric.from_components(learned.components)):
        assert (new.feature_names, new.origin) == (None, None)


def test_repr_has_no_arrays(rng: np.random.Generator) -> None:
    learned = replace(draw(rng), feature_names=tuple("abcde"), origin={"made": "by hand"})
    assert repr(learned) == "Metric(n_features=5, n_directions=8, rank=5)"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"feature_names": ("a",)},
            r"^feature_names has 1 names, but the metric has 2 features\.$",
        ),
        ({"feature_names": (1, 2)}, "feature_names must be a tuple of str or None"),
        ({"feature_names": "ab"}, "feature_names must be a tuple of str or None"),
        ({"origin": "by hand"}, "origin must be a mapping or None"),
        ({"origin": ["by", "hand"]}, "origin must be a mapping or None"),
    ],
)
def test_invalid_names_and_origins_are_rejected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Metric(np.eye(2), np.ones(2), **given)


@pytest.mark.parametrize("J", [0, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_metric_has_rank_zero(J: int, dtype: type[np.floating]) -> None:
    zero = Metric(np.eye(4, J, dtype=dtype), np.zeros(J, dtype))
    X = np.arange(12, dtype=dtype).reshape(3, 4)
    assert zero.components.shape == (0, 4)
    assert zero.eigenvalues.shape == (0,)
    assert zero.transform(X).shape == (3, 0)
    assert np.array_equal(zero.matrix, np.zeros((4, 4)))
    assert np.array_equal(zero.truncate(2).matrix, np.zeros((4, 4)))
    assert np.array_equal(zero.truncate(0.5).matrix, np.zeros((4, 4)))
    assert np.array_equal(zero.compose(np.ones((4, 2), dtype)).matrix, np.zeros((2, 2)))
    assert zero.pair_distances(X, np.array([[0, 1]])).tolist() == [0]
    assert zero.distance(X[0], X[1]) == 0
    assert zero.components.dtype == dtype
    assert zero.matrix.dtype == np.float64


@pytest.mark.parametrize("J", [0, 3])
def test_distances_of_the_zero_metric_are_zero(J: int) -> None:
    zero = Metric(np.eye(4, J), np.zeros(J))
    assert np.array_equal(zero.distances(np.eye(4)), np.zeros((4, 4)))
    assert np.array_equal(zero.distances(np.eye(4), np.ones((2, 4))), np.zeros((4, 2)))


@pytest.mark.parametrize(
    ("directions", "coefs", "message"),
    [
        (np.eye(2), np.ones(3), r"shapes \(D, J\) and \(J,\); got \(2, 2\) and \(3,\)"),
        (np.ones(2), np.ones(2), r"got \(2,\) and \(2,\)"),
        (np.eye(2), np.ones((2, 1)), r"got \(2, 2\) and \(2, 1\)"),
        (np.eye(2), np.array([1.0, np.inf]), "must be finite"),
        (np.full((2, 2), np.nan), np.ones(2), "must be finite"),
        (np.eye(2), np.array([1.0, -1e-9]), "coefs must be >= 0, got -1e-09"),
        (np.eye(2, dtype=np.longdouble), np.ones(2), "must be float32 or float64, got float128"),
        (np.eye(2, dtype=int), np.ones(2), "directions must be float32 or float64, got int64"),
    ],
)
def test_invalid_metrics_are_rejected(directions: NDArray, coefs: NDArray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Metric(directions, coefs)


@pytest.mark.parametrize("invalid", [np.longdouble, np.float16, np.int64, np.nan, np.inf])
@pytest.mark.parametrize("name", ["directions", "coefs"])
def test_files_with_other_numbers_are_rejected(name: str, invalid: Any, tmp_path: Path) -> None:
    arrays: dict[str, NDArray] = {"directions": np.eye(2), "coefs": np.ones(2)}
    if isinstance(invalid, float):
        arrays[name].flat[0] = invalid
    else:
        arrays[name] = arrays[name].astype(invalid)
    save_arrays(tmp_path / "m", "metric", 1, {"feature_names": None, "origin": None}, arrays)
    with pytest.raises(FileFormatError, match=f"{name}.*(dtype|float64|finite)"):
        Metric.load(tmp_path / "m")


@pytest.mark.parametrize("dtype", DTYPES)
def test_fix_signs_makes_the_largest_entry_positive(dtype: type[np.floating]) -> None:
    vectors = np.array([[1, -3, 0.5], [-2, 1, 0.1]], dtype)
    read_only(vectors)
    fixed = fix_signs(vectors)
    assert np.array_equal(fixed, np.array([[-1, 3, 0.5], [2, -1, 0.1]], dtype))
    assert fixed.dtype == dtype
    assert fix_signs(np.empty((3, 0), dtype)).shape == (3, 0)


def test_components_fall_back_to_gesvd(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    learned = Metric(np.linalg.qr(rng.normal(size=(6, 4)))[0], rng.uniform(1, 2, 4))
    slow: list[str] = []

    def failing(matrix: NDArray, lapack_driver: str = "gesdd", **options: Any) -> Any:
        if lapack_driver == "gesdd":
            raise LinAlgError("SVD did not converge")
        slow.append(lapack_driver)
        return svd(matrix, lapack_driver=lapack_driver, **options)

    monkeypatch.setattr("boostmetric.metric.svd", failing)
    L = learned.components
    np.testing.assert_allclose(L.T @ L, learned.matrix, atol=1e-12)
    assert slow == ["gesvd"]


def test_components_of_equal_eigenvalues_do_not_depend_on_rounding(
    rng: np.random.Generator,
) -> None:
    v = rng.normal(size=(6, 2))
    M = v @ v.T + 0.3 * np.eye(6)  # four equal eigenvalues
    found = []
    for noise in (0.0, 1e-14):
        values, vectors = np.linalg.eigh(M + noise * np.diag(rng.normal(size=6)))
        found.append(Metric(vectors, values).components)
    np.testing.assert_allclose(found[0].T @ found[0], M, atol=1e-12)
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)
