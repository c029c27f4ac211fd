from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.covariance import oas
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from boostmetric.estimators.initial import shrunk_covariance, spread, starting_transformation

Data = tuple[NDArray, NDArray]


def transformed(init: str, X: NDArray, y: NDArray | None = None, **options: int) -> NDArray:
    L = starting_transformation(init, X, y, **options)  # type: ignore[arg-type]
    assert L is not None
    return X @ L.T


def test_no_start_is_no_transformation(blobs: Data) -> None:
    assert starting_transformation(None, blobs[0]) is None


def test_scale_gives_unit_variance(blobs: Data) -> None:
    Z = transformed("scale", blobs[0] * [1, 10, 1e3, 1e-3, 1e-6])
    np.testing.assert_allclose(Z.std(axis=0), 1)


def test_a_column_that_is_constant_up_to_rounding_is_not_blown_up() -> None:
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
def test_shrinkage_is_that_of_oas_but_at_most_features_by_points(
    n: int, capped: bool, blobs: Data
) -> None:
    X = blobs[0][:n]
    _, shrinkage = oas(X, assume_centered=True)
    assert bool(shrinkage > 5 / n) is capped
    S, s = X.T @ X / n, min(shrinkage, 5 / n)
    expected = (1 - s) * S + s * np.trace(S) / 5 * np.eye(5)
    np.testing.assert_allclose(shrunk_covariance(X, np.ones(n)), expected, rtol=1e-10)


def test_whiten_makes_the_within_class_covariance_round() -> None:
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
def test_weights_count_as_repetitions(init: str, blobs: Data) -> None:
    X, y = blobs
    weights = np.random.default_rng(0).integers(0, 4, size=120)
    L = starting_transformation(init, X, y, weights.astype(float))
    repeated = starting_transformation(init, X.repeat(weights, axis=0), y.repeat(weights))
    assert L is not None
    assert repeated is not None
    np.testing.assert_allclose(L.T @ L, repeated.T @ repeated, rtol=1e-9, atol=1e-12)


def test_points_without_any_variance_within_their_class() -> None:
    X = np.repeat([[0.0, 1.0], [2.0, 1.0]], 4, axis=0)
    for init in ("whiten", "lda"):
        assert np.isfinite(transformed(init, X, np.repeat([0, 1], 4))).all()
