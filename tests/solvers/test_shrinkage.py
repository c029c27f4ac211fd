"""Shrinkage toward a multiple of the identity: optima, centers, snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH
from numpy.typing import NDArray
from oracles import matrices_of, solve_sdp

from boostmetric import (
    Boosting,
    BoostMetric,
    Comparisons,
    Frobenius,
    Operator,
    Shrinkage,
    Status,
    boost,
)

Data = tuple[NDArray, Comparisons]

every_loss = pytest.mark.parametrize("loss", SMOOTH)


def triplets(D: int, seed: int = 0, m: int = 150) -> Data:
    """Triplets of 30 points that depend on two features, one in five the wrong way round."""
    rng = np.random.default_rng([seed, D])
    X = rng.normal(size=(30, D))
    rows = np.array([rng.permutation(30)[:3] for _ in range(m)])
    near, far = (np.linalg.norm((X[rows[:, 0]] - X[rows[:, i]])[:, :2], axis=1) for i in (1, 2))
    swap = (near > far) != (rng.random(m) < 0.2)
    rows[swap] = rows[swap][:, [0, 2, 1]]
    return X, Comparisons.from_triplets(rows)


def center_of(fit: Boosting) -> float:
    """The absolute center in the user's units."""
    return fit.problem.regularizer.multiple / fit.problem.unit


def exact_optimum(data: Data, loss: str, fit: Boosting) -> tuple[float, NDArray]:
    stack = matrices_of(*data)
    return solve_sdp(stack, loss, "shrinkage", fit.alpha, center=center_of(fit))


@every_loss
@pytest.mark.parametrize(("D", "alpha"), [(3, 0.01), (6, 1.0)])
def test_totally_corrective_fit_matches_a_semidefinite_program(
    D: int, alpha: float, loss: str
) -> None:
    data = triplets(D)
    options: dict[str, Any] = {"solver": "totally_corrective", "tol": 1e-7, "alpha": alpha}
    fit = boost(*data, loss, regularizer="shrinkage", **options)
    value, M = exact_optimum(data, loss, fit)
    assert fit.status is Status.CONVERGED
    assert fit.objective() == pytest.approx(value, rel=1e-5)
    assert fit.duality_gap() <= 1e-6 * fit.objective()
    assert fit.metric.matrix == pytest.approx(M, abs=1e-2 * np.abs(M).max())


def test_center_0_is_the_frobenius_norm() -> None:
    data = triplets(4)
    fits = [
        boost(*data, solver="totally_corrective", regularizer=R, max_iter=20)
        for R in (Frobenius(0.3), Shrinkage(0.3, center=0.0))
    ]
    np.testing.assert_array_equal(fits[0].metric.matrix, fits[1].metric.matrix)
    assert fits[0].objective() == fits[1].objective()


def test_stagewise_solver_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"'stagewise' does not work with .*Shrinkage.* only adds"):
        boost(*triplets(4), solver="stagewise", regularizer="shrinkage")


def test_large_alpha_yields_the_center() -> None:
    data = triplets(4)
    fit = boost(*data, regularizer="shrinkage", alpha=1e6)
    assert fit.metric.matrix == pytest.approx(center_of(fit) * np.eye(4), rel=1e-3, abs=1e-4)


def test_center_gives_margins_of_mean_size_1() -> None:
    X, comparisons = triplets(5)
    rng = np.random.default_rng(0)
    weighted = Comparisons(
        comparisons.pairs, comparisons.near, comparisons.far, weights=rng.exponential(size=150)
    )
    for each, weights in ((comparisons, None), (weighted, weighted.weights)):
        fit = boost(X, each, regularizer="shrinkage", max_iter=1)
        sizes = np.abs(np.trace(matrices_of(X, each), axis1=1, axis2=2))
        assert center_of(fit) == pytest.approx(1 / np.average(sizes, weights=weights))


@pytest.mark.parametrize("scale", [1e-6, 1e3])
def test_metric_is_scale_invariant(scale: float) -> None:
    X, comparisons = triplets(4)
    options: dict[str, Any] = {"regularizer": "shrinkage", "alpha": 0.1}
    here, there = (boost(each, comparisons, **options) for each in (X, scale * X))
    expected = here.metric.matrix
    near = 1e-6 * np.abs(expected).max()
    assert scale**2 * there.metric.matrix == pytest.approx(expected, abs=near)


def test_directions_without_effect_keep_the_center() -> None:
    X, comparisons = triplets(4)
    X[:, 3] = 7.0
    fit = boost(X, comparisons, regularizer="shrinkage", alpha=0.1, tol=1e-9)
    row = np.zeros(4)
    row[3] = center_of(fit)
    assert fit.metric.matrix[3] == pytest.approx(row, abs=1e-6 * row[3])


def test_resumed_fit_has_the_same_bits() -> None:
    data = triplets(6)
    options: dict[str, Any] = {
        "regularizer": "shrinkage",
        "directions_per_step": 1,
        "alpha": 1e-4,
        "tol": 1e-12,
    }
    whole = boost(*data, max_iter=2, **options)
    half = boost(*data, max_iter=1, **options)
    rest = boost(*data, max_iter=2, resume=half.snapshot(), **options)
    assert len(whole.history) == 2
    np.testing.assert_array_equal(rest.metric.matrix, whole.metric.matrix)
    assert rest.objective() == whole.objective()


def test_many_features_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operator, "DENSE_UP_TO", 3)
    with pytest.raises(ValueError, match=r"at most 3 features; there are 4.*'frobenius'"):
        boost(*triplets(4), regularizer="shrinkage")


@pytest.mark.parametrize("center", [-1.0, np.inf, np.nan])
def test_invalid_centers_are_rejected(center: float) -> None:
    with pytest.raises(ValueError, match="'center' parameter must be None or a float in the range"):
        Shrinkage(center=center)


def test_estimator_on_dask_agrees_with_memory(blobs: tuple[NDArray, NDArray]) -> None:
    pytest.importorskip("distributed")
    learners = [
        BoostMetric(regularizer="shrinkage", alpha=0.01, max_iter=20, engine=engine).fit(*blobs)
        for engine in (None, "dask")
    ]
    first, second = (learner.metric_.matrix for learner in learners)
    assert second == pytest.approx(first, rel=1e-6, abs=1e-9 * np.abs(first).max())
