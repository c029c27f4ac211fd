from __future__ import annotations

import numpy as np
import pytest
from conftest import problem_of
from numpy.typing import NDArray
from oracles import optimum_of_comparisons

from boostmetric import Comparisons
from boostmetric.solvers.factors import FAR, orthogonal_directions, polish

Data = tuple[NDArray, Comparisons]


def overlapping(scales: NDArray) -> Data:
    """Two overlapping classes of 20 points; a scale of 0 gives a constant feature."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 20)
    X = rng.normal(size=(40, len(scales)))
    X[:, 0] += y
    return X * scales, Comparisons.from_labels(X, y)


@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge", "squared_hinge"])
def test_factor_of_full_rank_is_optimal(loss: str, regularizer: str) -> None:
    X, comparisons = overlapping(np.array([1.0, 0.1, 5.0, 1.0]))
    alpha = 0.1
    problem = problem_of(X, comparisons, loss, alpha, regularizer)
    root, _ = polish(problem, np.eye(4), 1000)
    found = problem.evaluate_at(root @ root.T)
    assert problem.unit == 1
    optimum = optimum_of_comparisons(X, comparisons, loss, alpha, regularizer=regularizer)
    assert found.value == pytest.approx(optimum, rel=1e-5)
    slope = problem.gradient_at(root @ root.T, found) @ root
    assert np.abs(slope).max() <= 1e-4 * found.dual_sum


def test_budget_limits_evaluations() -> None:
    problem = problem_of(*overlapping(np.array([1.0, 1e-3, 1e3])), "logistic", 1e-6)
    before = problem.evaluate_at(np.eye(3)).value
    for budget in (5, 40):
        root, n_evaluations = polish(problem, np.eye(3), budget)
        assert n_evaluations <= budget + 20  # the last line search is completed
        value = problem.evaluate_at(root @ root.T).value
        assert value < before
        before = value


def test_constant_features_are_not_used() -> None:
    problem = problem_of(*overlapping(np.array([1.0, 0.0, 1.0])), "logistic", 0.1)
    root, _ = polish(problem, np.ones((3, 2)), 50)
    assert np.abs(root[1]).max() <= 1e-12 * np.abs(root).max()


@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
@pytest.mark.parametrize("loss", ["smoothed_hinge", "squared_hinge"])
def test_directions_of_satisfied_comparisons_are_kept(loss: str, regularizer: str) -> None:
    # One comparison for each feature. That of the first is satisfied, so its dual is 0.
    X = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    comparisons = Comparisons.from_triplets([[0, 1, 2], [0, 3, 4]])
    problem = problem_of(X, comparisons, loss, 1e-3, regularizer)
    start = np.diag([0.5, 0.1])
    before = problem.evaluate_at(start @ start.T).value
    root, _ = polish(problem, start, 100)
    after = problem.evaluate_at(root @ root.T).value
    optimum = optimum_of_comparisons(X, comparisons, loss, 1e-3, regularizer=regularizer)
    assert after < 0.1 * before
    assert after == pytest.approx(optimum, rel=0.2)


def test_unbounded_objective_ends_the_search() -> None:
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    comparisons = Comparisons.from_labels(X, [0, 0, 1, 1], 1, 1)
    problem = problem_of(X, comparisons, "exponential")
    root, n_evaluations = polish(problem, np.ones((1, 1)), 1000)
    assert n_evaluations < 200
    assert np.isfinite(root).all()
    assert problem.evaluate_at(root @ root.T).largest > FAR


def test_orthogonal_directions_of_a_factor() -> None:
    rng = np.random.default_rng(1)
    root = rng.normal(size=(5, 3)) @ rng.normal(size=(3, 8))
    directions, coefs = orthogonal_directions(root, np.float64)
    assert directions.shape == (5, 3)
    np.testing.assert_allclose(directions.T @ directions, np.eye(3), atol=1e-12)
    np.testing.assert_allclose((directions * coefs) @ directions.T, root @ root.T, atol=1e-12)
    assert orthogonal_directions(np.zeros((5, 2)), np.float64)[0].shape == (5, 0)
