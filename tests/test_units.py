"""Fits of the same data in other units take the same steps, because units are powers of two.

Weights have no unit, either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric import BoostMetric, Comparisons, LowRankOperator, Operator, boost, learn_psd
from boostmetric.problem import LOSSES, ComparisonOperator, Hinge, Shrinkage
from boostmetric.solvers import Boosting

rng = np.random.default_rng(0)
FACTORS = rng.normal(size=(12, 3, 4))
SIGNS = np.array([1.0, 1.0, -1.0])
STACK = np.einsum("k,rki,rkj->rij", SIGNS, FACTORS, FACTORS)
X = rng.normal(size=(30, 4)) * [1.0, 3.0, 0.1, 10.0] + 5.0
Y = (X[:, 1] + rng.normal(size=30) > 5).astype(int)
COMPARISONS = Comparisons.from_labels(X, Y)


class Rows(Operator):
    """A custom operator: A_r = diag(rows[r])."""

    def __init__(self, rows: NDArray) -> None:
        super().__init__(*rows.shape)
        self.rows = rows

    def scatter(self, duals: NDArray) -> NDArray:
        return np.diag(duals @ self.rows)

    def responses(self, direction: NDArray) -> NDArray:
        responses: NDArray = self.rows @ direction**2
        return responses


OPERATORS: dict[str, Callable[[int], Any]] = {
    "stack": lambda k: np.ldexp(STACK, k),
    "factors": lambda k: LowRankOperator(np.ldexp(FACTORS, k // 2), SIGNS),
    "signs": lambda k: LowRankOperator(FACTORS, np.ldexp(SIGNS, k)),
    "custom": lambda k: Rows(np.ldexp(FACTORS[:, 0], k)),
    "comparisons": lambda k: ComparisonOperator(np.ldexp(X, k // 2), COMPARISONS),
}
"""Matrices A_r times 2**k, for even k."""


def assert_same_up_to_unit(fit: Boosting, scaled: Boosting, exponent: int) -> None:
    """Compare a fit with that of matrices times 2**exponent, bitwise."""
    # The hinge fixes the trace of M, so its margins change instead.
    unit, value = (0, exponent) if isinstance(fit.problem.loss, Hinge) else (exponent, 0)
    assert scaled.status == fit.status
    assert scaled.metric.n_directions == fit.metric.n_directions > 0
    np.testing.assert_array_equal(np.ldexp(scaled.metric.matrix, unit), fit.metric.matrix)
    assert np.ldexp(scaled.objective(), -value) == fit.objective()
    assert np.ldexp(scaled.duality_gap(), -value) == fit.duality_gap()
    assert np.ldexp(scaled.alpha_max, -exponent) == fit.alpha_max
    np.testing.assert_array_equal(np.ldexp(scaled.margins, -value), fit.margins)


@pytest.mark.parametrize("kind", list(OPERATORS))
@pytest.mark.parametrize(
    ("loss", "regularizer"), [(loss, name) for loss in LOSSES for name in LOSSES[loss].regularizers]
)
def test_matrices_in_other_units(loss: str, regularizer: str, kind: str) -> None:
    options: dict[str, Any] = {"regularizer": regularizer, "max_iter": 40}
    if loss != "hinge":
        options["alpha"] = 0.1
    fit = learn_psd(OPERATORS[kind](0), loss, **options)
    assert loss == "exponential" or np.isfinite(fit.duality_gap())
    for exponent in (-500, 166, 500):
        scaled = learn_psd(OPERATORS[kind](exponent), loss, **options)
        assert_same_up_to_unit(fit, scaled, exponent)


@pytest.mark.parametrize(
    ("loss", "solver", "regularizer"),
    [
        (loss, solver, regularizer)
        for loss in LOSSES
        for solver in LOSSES[loss].solvers
        for regularizer in LOSSES[loss].regularizers
        if (solver, regularizer) != ("stagewise", "shrinkage")
    ],
)
def test_points_in_other_units(loss: str, solver: str, regularizer: str) -> None:
    options: dict[str, Any] = {"regularizer": regularizer, "solver": solver, "max_iter": 40}
    if loss != "hinge":
        options["alpha"] = 1e-3
    fit = boost(X, COMPARISONS, loss, **options)
    for exponent in (-490, 83, 490):
        scaled = boost(np.ldexp(X, exponent), COMPARISONS, loss, **options)
        assert_same_up_to_unit(fit, scaled, 2 * exponent)


def test_absolute_strength_and_center_are_in_units_of_user() -> None:
    fit = learn_psd(STACK, regularizer=Shrinkage(0.5, center=2.0), tol=1e-6)
    scaled = learn_psd(
        np.ldexp(STACK, 100),
        regularizer=Shrinkage(np.ldexp(0.5, 200), np.ldexp(2.0, -100)),
        tol=1e-6,
    )
    assert scaled.alpha == np.ldexp(fit.alpha, 200) == 2.0**199
    assert_same_up_to_unit(fit, scaled, 100)


@pytest.mark.parametrize("kind", ["stack", "factors"])
def test_single_precision_in_other_units(kind: str) -> None:
    def matrices(k: int) -> Any:
        if kind == "stack":
            return np.ldexp(STACK.astype(np.float32), k)
        return LowRankOperator(np.ldexp(FACTORS.astype(np.float32), k // 2), SIGNS)

    fit = learn_psd(matrices(0), regularizer="frobenius", alpha=0.1)
    for exponent in (-110, 110):
        scaled = learn_psd(matrices(exponent), regularizer="frobenius", alpha=0.1)
        assert_same_up_to_unit(fit, scaled, exponent)


def test_matrices_beyond_all_units_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"out of the range .* Scale the matrices"):
        learn_psd(np.ldexp(STACK, -1010))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("regularizer", ["trace", "frobenius", "shrinkage"])
def test_extreme_sample_weights(regularizer: str, dtype: type[np.floating]) -> None:
    weights = np.linspace(0.5, 1, len(X))
    options: dict[str, Any] = {"regularizer": regularizer, "max_iter": 20, "init": "scale"}
    expected = BoostMetric(**options).fit(X.astype(dtype), Y, sample_weight=weights)
    for exponent in (-900, -600, 127, 600, 1000):
        scaled = np.ldexp(weights, exponent)
        learner = BoostMetric(**options).fit(X.astype(dtype), Y, sample_weight=scaled)
        np.testing.assert_array_equal(learner.components_, expected.components_)


def test_extreme_weights_of_labels_and_comparisons_keep_their_ratio() -> None:
    options: dict[str, Any] = {"max_iter": 20, "init": "scale"}
    weights, more = np.linspace(0.5, 1, len(X)), COMPARISONS[np.arange(20)]
    fits = []
    for given, compared in (
        (weights / 2, more),
        (np.ldexp(weights, 500), replace(more, weights=np.full(20, 2.0**501))),
    ):
        learner = BoostMetric(**options).fit(X, Y, sample_weight=given, comparisons=compared)
        fits.append(learner.components_)
    np.testing.assert_array_equal(*fits)
    # A weight of 1 is negligible next to 2**500.
    alone = BoostMetric(**options).fit(X, Y, sample_weight=weights)
    learner = BoostMetric(**options).fit(
        X, Y, sample_weight=np.ldexp(weights, 500), comparisons=more
    )
    np.testing.assert_allclose(
        learner.get_mahalanobis_matrix(), alone.get_mahalanobis_matrix(), rtol=1e-6
    )


@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
@pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "smoothed_hinge"])
def test_weights_of_comparisons_in_other_units(loss: str, solver: str, regularizer: str) -> None:
    options: dict[str, Any] = {"regularizer": regularizer, "solver": solver, "max_iter": 20}
    fits = [
        boost(X, replace(COMPARISONS, weights=np.full(len(COMPARISONS), weight)), loss, **options)
        for weight in (1.0, 2.0**400, 2.0**-400)
    ]
    expected = fits[0].metric.matrix
    for fit in fits[1:]:
        np.testing.assert_allclose(fit.metric.matrix, expected, rtol=0, atol=1e-6 * expected.max())


def test_weights_beyond_all_units_are_rejected() -> None:
    huge = replace(COMPARISONS, weights=np.full(len(COMPARISONS), 1e153))
    with pytest.raises(ValueError, match="divide all weights by their mean"):
        boost(X, huge)


@pytest.mark.parametrize("options", [{}, {"n_components": 2}, {"init": "whiten"}], ids=str)
@pytest.mark.parametrize("exponent", [-73, 63, 76, 100])
def test_single_precision_points_of_extreme_size(exponent: int, options: dict[str, Any]) -> None:
    points = np.ldexp(X.astype(np.float32), exponent)
    learner = BoostMetric(max_iter=20, verify=False, **options).fit(points, Y)
    exact = points.astype(np.float64)
    expected = BoostMetric(max_iter=20, verify=False, **options).fit(exact, Y)
    assert learner.init_ == expected.init_
    assert len(learner.components_) == len(expected.components_)
    assert learner.score(points, Y) == pytest.approx(expected.score(exact, Y), abs=0.02)
