from __future__ import annotations

import numpy as np
import pytest
from embedding_data import labeled
from numpy.typing import NDArray
from scipy.optimize import approx_fprime
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from boostmetric.embeddings import both_sides
from boostmetric.embeddings.both_sides import (
    TEMPERATURE,
    class_mean_loss,
    discriminant_axes,
    leading_rows,
    refine,
    root,
    second_moment,
)
from boostmetric.evaluation.ranking import normalized


def brute_force_loss(L: NDArray, X: NDArray, y: NDArray) -> float:
    """The loss of `class_mean_loss`, point by point."""
    losses = []
    for i, (x, label) in enumerate(zip(X, y, strict=True)):
        if np.sum(y == label) == 1:
            continue
        scores = {}
        for c in np.unique(y):
            mapped = np.array([L @ z for j, z in enumerate(X) if y[j] == c and j != i])
            lengths = np.linalg.norm(mapped, axis=1, keepdims=True)
            mean = np.mean(mapped / np.where(lengths == 0, 1, lengths), axis=0)
            length = np.linalg.norm(L @ x)
            scores[c] = np.exp((L @ x / (length or 1)) @ mean / TEMPERATURE)
        losses.append(-np.log(scores[label] / sum(scores.values())))
    return float(np.mean(losses))


@pytest.mark.parametrize("batch", [1, 1 << 22])
def test_loss_of_class_means(
    batch: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(both_sides, "BATCH_SCORES", batch)
    X, L = rng.standard_normal((12, 4)), rng.standard_normal((3, 4))
    X[5] = 0  # an empty text
    y = np.array([0, 0, 2, 2, 2, 2, 5, 5, 5, 0, 7, 2])  # class 7 has a single point
    value, gradient = class_mean_loss(L, X, y)
    assert value == pytest.approx(brute_force_loss(L, X, y), rel=1e-12)
    numerical = approx_fprime(L.ravel(), lambda x: brute_force_loss(x.reshape(3, 4), X, y), 1e-7)
    np.testing.assert_allclose(gradient.ravel(), numerical, atol=1e-5 * np.abs(gradient).max())


def test_loss_without_pairs_is_zero(rng: np.random.Generator) -> None:
    value, gradient = class_mean_loss(np.eye(3), rng.standard_normal((4, 3)), np.arange(4))
    assert value == 0
    assert not gradient.any()


def test_refinement_lowers_loss_and_does_not_depend_on_scale() -> None:
    X, y = labeled()
    start = np.eye(12)
    refined = refine(start, X, y)
    assert class_mean_loss(refined, X, y)[0] < class_mean_loss(start, X, y)[0]
    # A power of two changes no bits.
    np.testing.assert_array_equal(refine(8 * start, X, y), refined)


@pytest.mark.parametrize("ridge", [32.0, 1000.0])
def test_refinement_is_stationary(ridge: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(both_sides, "RIDGE", ridge)
    X, y = (each[:60] for each in labeled())
    X = normalized(X.astype(float))
    start = np.eye(12)  # the scale at which mapped vectors have unit length
    refined = refine(3 * start, X, y)
    penalty = ridge / len(X) * (refined - start)
    assert np.abs(class_mean_loss(refined, X, y)[1] + penalty).max() < 0.01 * np.abs(penalty).max()


def test_root_of_a_metric(rng: np.random.Generator) -> None:
    M = np.cov(rng.standard_normal((5, 3)).T)
    L = root(M, 0.5)
    np.testing.assert_allclose(L.T @ L, M + 0.5 * np.trace(M) / 3 * np.eye(3))


@pytest.mark.parametrize("shrinkage", [0.1, 0.9])
def test_discriminant_axes_match_scikit_learn(shrinkage: float) -> None:
    X, y = labeled(noise=0.5)
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage=shrinkage).fit(X.astype(float), y)
    expected = lda.scalings_[:, :4].T
    for labels in (y, 10 * y):  # codes without points
        axes = discriminant_axes(X.astype(float), labels, [0.5, shrinkage])[1]
        np.testing.assert_allclose(axes.T @ axes, expected.T @ expected, rtol=1e-6, atol=1e-9)


def test_leading_rows_preserve_inner_products_best(rng: np.random.Generator) -> None:
    X, L = rng.standard_normal((50, 6)) * np.arange(1, 7), rng.standard_normal((6, 6))
    mapped = X @ L.T
    rows = leading_rows(L, second_moment(X), 2)
    # The best approximation of rank 2 of the matrix of inner products (Eckart and Young).
    U, s, _ = np.linalg.svd(mapped, full_matrices=False)
    np.testing.assert_allclose((X @ rows.T) @ (X @ rows.T).T, (U[:, :2] * s[:2] ** 2) @ U[:, :2].T)
    everything = leading_rows(L, second_moment(X))
    np.testing.assert_allclose(everything.T @ everything, L.T @ L)


def test_discriminant_axes_of_equal_points() -> None:
    X = np.repeat(np.eye(3), 2, axis=0)
    axes = discriminant_axes(X, np.repeat(np.arange(3), 2), [0.5])[0]
    assert np.isfinite(axes).all()
    assert (discriminant_axes(np.ones((4, 2)), np.array([0, 0, 1, 1]), [0.5])[0]).shape == (1, 2)
