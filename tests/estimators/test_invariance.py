"""A default fit depends neither on names of classes, nor on the order of rows and columns.

The data are noisy, so that the choices within a fit are close decisions.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine

from boostmetric import BoostMetric, BoostMetricCV, Comparisons, knn_error
from boostmetric.data.points import content_hashes
from boostmetric.estimators import initial, splits, verify
from boostmetric.estimators.initial import choose_init

SEEDS = range(6)


def noisy(seed: int, n: int = 80) -> tuple[NDArray, NDArray]:
    """Three classes that hardly differ, and features that are correlated within them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, 5)) @ (np.eye(5) + 0.5 * rng.normal(size=(5, 5)))
    X[:, :2] += 1.5 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    return X, y


def fitted(learner: Any, X: NDArray, y: NDArray | None = None, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Learning did not lower|After learning|The metric learn")
        return learner.fit(X, y, **given)


def check_equal(one: Any, other: Any, columns: Any = slice(None), scale: float = 1.0) -> None:
    """Compare a fit with another one of permuted columns of X, multiplied by a scale."""
    assert one.errors_ == pytest.approx(other.errors_)
    if hasattr(one, "init_"):
        assert one.init_ == other.init_
        assert one.init_errors_ == pytest.approx(other.init_errors_)
    else:
        assert one.averaged_params_ == other.averaged_params_
    M = one.get_mahalanobis_matrix()[columns][:, columns]
    N = scale**2 * other.get_mahalanobis_matrix().astype(np.float64)
    tolerance = 1e-6 if one.components_.dtype == np.float64 else 1e-3
    np.testing.assert_allclose(M, N, rtol=tolerance, atol=tolerance * np.abs(N).max())


@pytest.mark.parametrize("seed", range(40))
def test_choice_of_the_start_depends_on_contents_only(seed: int) -> None:
    X, y = noisy(seed, n=60)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(60), rng.permutation(5)
    weights = rng.random(60)
    init, errors = choose_init(X, y, weights, seed=seed)
    for Z, labels, w in (
        (X, 2 - y, weights),
        (X, np.array(["b", "c", "a"])[y], weights),
        (X[rows], y[rows], weights[rows]),
        (X[:, columns], y, weights),
    ):
        again, others = choose_init(Z, labels, w, seed=seed)
        assert again == init
        assert others == pytest.approx(errors)


@pytest.mark.parametrize("seed", SEEDS)
def test_fit_depends_on_contents_only(seed: int) -> None:
    X, y = noisy(seed)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(80), rng.permutation(5)
    expected = fitted(BoostMetric(), X, y)
    check_equal(fitted(BoostMetric(), X, 2 - y), expected)
    check_equal(fitted(BoostMetric(), X, np.array(["b", "c", "a"])[y]), expected)
    check_equal(fitted(BoostMetric(), X[rows], y[rows]), expected)
    permuted = fitted(BoostMetric(), X[:, columns], y)
    check_equal(expected, permuted, columns)


def test_cross_validated_fit_depends_on_contents_only(rng: np.random.Generator) -> None:
    X, y = noisy(0)
    rows, columns = rng.permutation(80), rng.permutation(5)
    expected = fitted(BoostMetricCV(), X, y)
    check_equal(fitted(BoostMetricCV(), X, 2 - y), expected)
    check_equal(fitted(BoostMetricCV(), X[rows], y[rows]), expected)
    check_equal(expected, fitted(BoostMetricCV(), X[:, columns], y), columns)


@pytest.mark.parametrize("seed", range(4))
def test_fit_of_comparisons_depends_on_contents_only(seed: int) -> None:
    X, y = noisy(seed)
    rng = np.random.default_rng(seed)
    triplets = rng.integers(80, size=(2000, 3))
    valid = (y[triplets[:, 0]] == y[triplets[:, 1]]) & (y[triplets[:, 0]] != y[triplets[:, 2]])
    triplets = triplets[valid & (triplets[:, 0] != triplets[:, 1])][:200]
    expected = fitted(BoostMetric(), X, comparisons=triplets)
    order, columns, rows = rng.permutation(200), rng.permutation(5), rng.permutation(80)
    check_equal(fitted(BoostMetric(), X, comparisons=triplets[order]), expected)
    check_equal(expected, fitted(BoostMetric(), X[:, columns], comparisons=triplets), columns)
    moved = np.argsort(rows)[triplets]
    check_equal(fitted(BoostMetric(), X[rows], comparisons=moved), expected)


@pytest.mark.parametrize("exponent", [-80, -10, 10, 80])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_fit_does_not_depend_on_powers_of_two(
    load: Any, dtype: Any, exponent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = load(return_X_y=True)
    X, y = X[::2].astype(dtype), y[::2]
    expected = fitted(BoostMetric(), X, y)
    # The folds depend on the values, so those of X are drawn.
    for module in (initial, splits, verify):
        monkeypatch.setattr(
            module,
            "content_hashes",
            lambda Z, *arguments: content_hashes(np.ldexp(Z, -exponent), *arguments),
        )
    scaled = fitted(BoostMetric(), np.ldexp(X, exponent), y)
    assert scaled.components_.dtype == dtype
    check_equal(expected, scaled, scale=2.0**exponent)


@pytest.mark.parametrize("seed", SEEDS)
def test_seeds_draw_other_halves(seed: int) -> None:
    X, y = noisy(seed)
    errors = [fitted(BoostMetric(random_state=each), X, y).errors_ for each in (0, 0, 1)]
    assert errors[0] == errors[1]
    assert errors[0] != errors[2]


@pytest.mark.parametrize("seed", range(3))
def test_pairs_of_wine_are_learned(seed: int) -> None:
    """Pairs have thresholds, of which the start knows nothing."""
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(seed)
    pairs = np.stack([rng.permutation(len(X))[:2] for _ in range(600)])
    same = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)
    learner = BoostMetric().fit(X, comparisons=Comparisons.from_pairs(pairs, same))
    assert learner.init_ == "scale"
    Z = learner.transform(X)
    assert knn_error(Z, y) <= 0.025
    assert knn_error(X, y) > 0.25
