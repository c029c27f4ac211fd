from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.covariance import oas
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from boostmetric.estimators.initial import shrunk_covariance, spread, starting_transformation

Data = tuple[NDArray, NDArray]


def transformed(init: str, X: NDArray, y: NDArray | None = None, **options: int) -> NDArray:
    L = starting_transformation(init, X, y, **options)  # type: ignore[arg-type]
    assert L is not None
    return X @ L.T


def test_none_is_no_transformation(blobs: Data) -> None:
    assert starting_transformation(None, blobs[0]) is None


def test_scale_gives_unit_variance(blobs: Data) -> None:
    Z = transformed("scale", blobs[0] * [1, 10, 1e3, 1e-3, 1e-6])
    np.testing.assert_allclose(Z.std(axis=0), 1)


def test_constant_feature_is_not_scaled() -> None:
    X = np.column_stack([np.full(50, 0.1) * 3, 1e6 + np.arange(50) % 2 * 1e-10, np.arange(50.0)])
    np.testing.assert_array_equal(spread(X, np.ones(50))[:2], 1)


def test_pca_keeps_distances_and_drops_null_axes(blobs: Data) -> None:
    X, _ = blobs
    wide = np.column_stack([X, X @ np.arange(5), np.ones(120)])
    Z = transformed("pca", wide)
    assert Z.shape[1] == 5
    np.testing.assert_allclose(
        np.linalg.norm(Z[1:] - Z[0], axis=1), np.linalg.norm(wide[1:] - wide[0], axis=1)
    )
    few = transformed("pca", X, n_components=2)
    np.testing.assert_allclose(
        np.abs(few - few.mean(axis=0)), np.abs(PCA(2).fit_transform(X)), atol=1e-10
    )


@pytest.mark.parametrize(("n", "capped"), [(5, False), (120, True)])
def test_shrinkage_is_oas_up_to_features_per_point(n: int, capped: bool, blobs: Data) -> None:
    X = blobs[0][:n]
    _, shrinkage = oas(X, assume_centered=True)
    assert bool(shrinkage > 5 / n) is capped
    S, s = X.T @ X / n, min(shrinkage, 5 / n)
    expected = (1 - s) * S + s * np.trace(S) / 5 * np.eye(5)
    np.testing.assert_allclose(shrunk_covariance(X, np.ones(n)), expected, rtol=1e-10)


def test_whiten_gives_unit_within_class_covariance() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 5000)
    X = rng.normal(size=(10000, 3)) @ rng.normal(size=(3, 3)) * [1, 100, 0.01] + 50.0 * y[:, None]
    Z = transformed("whiten", X, y)
    within = Z - np.array([Z[y == c].mean(axis=0) for c in (0, 1)])[y]
    np.testing.assert_allclose(np.cov(within.T), np.eye(3), atol=0.02)


def test_lda_spans_the_discriminant_subspace(blobs: Data) -> None:
    X, y = blobs
    Z = transformed("lda", X, y)
    reference = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.0).fit(X, y)
    expected = reference.transform(X)
    assert Z.shape[1] == 2
    # Equal up to a linear map of the plane, and to the shrinkage, which is slight here.
    fitted = np.linalg.lstsq(np.c_[Z, np.ones(120)], expected, rcond=None)
    assert fitted[1].sum() < 0.02 * ((expected - expected.mean(axis=0)) ** 2).sum()


@pytest.mark.parametrize("init", ["scale", "whiten", "pca", "lda"])
def test_weights_equal_repetition(init: str, blobs: Data) -> None:
    X, y = blobs
    weights = np.random.default_rng(0).integers(0, 4, size=120)
    L = starting_transformation(init, X, y, weights.astype(float))
    repeated = starting_transformation(init, X.repeat(weights, axis=0), y.repeat(weights))
    assert L is not None
    assert repeated is not None
    np.testing.assert_allclose(L.T @ L, repeated.T @ repeated, rtol=1e-9, atol=1e-12)


def test_zero_within_class_variance() -> None:
    X = np.repeat([[0.0, 1.0], [2.0, 1.0]], 4, axis=0)
    for init in ("whiten", "lda"):
        assert np.isfinite(transformed(init, X, np.repeat([0, 1], 4))).all()


@pytest.mark.parametrize(
    ("load", "dtype"), [(load_iris, np.float32), (load_wine, np.float32), (load_wine, np.float64)]
)
@pytest.mark.parametrize("init", ["scale", "whiten", "pca", "lda"])
def test_transformation_does_not_depend_on_the_origin(
    load: Any, init: str, dtype: type[np.floating]
) -> None:
    X, y = load(return_X_y=True)
    X, y = X[::2].astype(dtype), y[::2]
    expected = starting_transformation(init, X, y)
    assert expected is not None
    # X + shift is rounded to about eps·shift.
    for shift in (10, 100, 1000, 1e5) if dtype is np.float64 else (10, 100):
        L = starting_transformation(init, X + (shift * X.std(axis=0)).astype(dtype), y)
        assert L is not None
        assert L.shape == expected.shape
        tolerance = 1e3 * shift * np.finfo(dtype).eps
        M, N = L.T @ L, expected.T @ expected
        sizes = np.sqrt(np.outer(np.diag(N), np.diag(N)))
        assert np.abs((M - N) / sizes).max() <= tolerance


@pytest.mark.parametrize(
    ("dtype", "offset"),
    [(np.float32, 0.0), (np.float32, 1e3), (np.float64, 0.0), (np.float64, 1e3), (np.float64, 1e7)],
)
@pytest.mark.parametrize("seed", range(2))
def test_rounding_errors_add_no_axis(offset: float, seed: int, dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(seed)
    n_classes, D = 5, 8
    y = rng.permutation(np.arange(200) % n_classes)
    # The class means lie on a line, and the points in a subspace of 6 dimensions.
    base = rng.normal(size=(200, 6)) + np.outer(y, rng.normal(size=6))
    means = np.stack([base[y == c].mean(axis=0) for c in range(n_classes)])
    base += (np.outer(np.arange(n_classes), means[1] - means[0]) - means)[y]
    X = (base @ rng.normal(size=(6, D)) + offset * rng.normal(size=D)).astype(dtype)
    pca, lda = (starting_transformation(init, X, y) for init in ("pca", "lda"))
    assert pca is not None
    assert lda is not None
    assert pca.shape == (6, D)
    assert lda.shape == (1, D)


def test_pca_keeps_feature_of_small_scale() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([1.7e12 + rng.normal(size=100), 1e-4 * rng.normal(size=100)])
    L = starting_transformation("pca", X)
    assert L is not None
    assert L.shape == (2, 2)


@pytest.mark.parametrize("init", ["scale", "whiten", "lda"])
@pytest.mark.parametrize("exponent", [-600, 600])
def test_transformation_follows_feature_scales(init: str, exponent: int, blobs: Data) -> None:
    X, y = blobs
    exponents = exponent * np.arange(-1, 4) // 2
    expected = starting_transformation(init, X, y)
    L = starting_transformation(init, np.ldexp(X, exponents), y)
    assert expected is not None
    assert L is not None
    np.testing.assert_allclose(np.ldexp(L, exponents), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("exponent", [-700, 700])
def test_pca_does_not_depend_on_the_scale(exponent: int, blobs: Data) -> None:
    X = np.column_stack([blobs[0], blobs[0].sum(axis=1)]) + 3
    expected = starting_transformation("pca", X)
    L = starting_transformation("pca", np.ldexp(X, exponent))
    assert expected is not None
    assert L is not None
    assert expected.shape == (5, 6)
    np.testing.assert_allclose(L, expected, atol=1e-12)
