"""The stage-wise solver with one direction or a batch per step, against SciPy and definitions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, margins_of, problem_of
from numpy.typing import NDArray
from oracles import matrices_of
from scipy.optimize import brentq, minimize
from scipy.special import expit, logsumexp
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from boostmetric import (
    Comparisons,
    Logistic,
    Metric,
    Status,
    Trace,
    boost,
)
from boostmetric.problem import Step
from boostmetric.solvers import SolverSettings
from boostmetric.solvers.coefficients import best_on_slice

Data = tuple[NDArray, Comparisons]
Labelled = tuple[NDArray, NDArray]

every_loss = pytest.mark.parametrize("loss", SMOOTH)
every_regularizer = pytest.mark.parametrize("regularizer", ["trace", "frobenius"])


def draw_triplets(seed: int, D: int = 5, m: int = 120, weighted: bool = False) -> Data:
    """Triplets of 25 points; most agree with the distance in the first two features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, D))
    rows = np.array([rng.permutation(25)[:3] for _ in range(m)])
    near, far = (np.square(X[rows[:, 0], :2] - X[rows[:, i], :2]).sum(axis=1) for i in (1, 2))
    swap = (near > far) != (rng.random(m) < 0.2)
    rows[swap] = rows[swap][:, [0, 2, 1]]
    options: dict[str, Any] = {}
    if weighted:
        options = {"gaps": rng.uniform(-0.5, 1, m), "weights": rng.uniform(0.3, 3, m)}
    return X, Comparisons.from_triplets(rows, **options)


def margins_at(M: NDArray, X: NDArray, c: Comparisons) -> NDArray:
    return np.einsum("rij,ij->r", matrices_of(X, c), M) - (0 if c.gaps is None else c.gaps)


def loss_of(loss: str, margins: NDArray, c: Comparisons) -> float:
    """The losses, by their formulas."""
    weights = np.ones(len(c)) if c.weights is None else c.weights
    short = np.maximum(1 - margins, 0)
    terms: dict[str, Callable[[], float]] = {
        "exponential": lambda: logsumexp(-margins, b=weights),
        "logistic": lambda: weights @ np.logaddexp(0, -margins),
        "squared_hinge": lambda: weights @ short**2,
        "smoothed_hinge": lambda: weights @ np.where(short <= 0.5, short**2, short - 0.25),
    }
    return float(terms[loss]())


def cost_of(regularizer: str, alpha: float, M: NDArray) -> float:
    return alpha * np.trace(M) if regularizer == "trace" else alpha / 2 * np.sum(np.square(M))


# The coefficients of a batch.


def old_metric(kind: str, X: NDArray, c: Comparisons) -> Metric:
    """A metric to which a batch is added: too small, too large, wrong, or 0."""
    D = X.shape[1]
    if kind == "nothing":
        return Metric(np.empty((D, 0)), np.empty(0))
    vectors = np.linalg.eigh(matrices_of(X, c).sum(axis=0))[1]
    directions = vectors[:, :2] if kind == "wrong" else vectors[:, [-1, -2]]
    turned = directions + 0.3 * np.random.default_rng(1).normal(size=directions.shape)
    turned /= np.linalg.norm(turned, axis=0)
    size = {"small": 0.01, "large": 2.0, "wrong": 1.0}[kind]
    return Metric(turned, size * np.array([1.0, 0.4]))


@every_loss
@pytest.mark.parametrize(
    ("kind", "weighted", "regularizer"),
    [
        ("nothing", False, "trace"),
        ("small", True, "frobenius"),
        ("large", False, "frobenius"),
        ("wrong", True, "trace"),
    ],
)
def test_batch_coefficients_match_slsqp(
    kind: str, weighted: bool, regularizer: str, loss: str
) -> None:
    X, c = draw_triplets(0, weighted=weighted)
    alpha = 0.02 if loss == "exponential" else 2.0
    problem = problem_of(X, c, loss, alpha, regularizer)
    old = old_metric(kind, X, c)
    problem.take(Step(old.directions, old.coefs, 0.0))
    batch = np.linalg.eigh(matrices_of(X, c).sum(axis=0))[1][:, ::-1][:, :3]
    before = problem.M
    step = best_on_slice(
        problem,
        batch,
        np.zeros(3),
        np.full(3, np.inf),
        problem.response_sizes(batch),
        np.full(4, 1e-9),
        free_scale=True,
    )
    assert problem.M is before

    def matrix(z: NDArray) -> NDArray:
        return z[0] * old.matrix + (batch * z[1:]) @ batch.T

    def objective(z: NDArray) -> float:
        M = matrix(z)
        return loss_of(loss, margins_at(M, X, c), c) + cost_of(regularizer, alpha, M)

    has_factor = kind != "nothing"  # without a metric its factor has no effect
    best = minimize(
        objective,
        np.append(0.5, np.full(3, 0.1)),
        method="SLSQP",
        bounds=[(0, 1) if has_factor else (1, 1), *[(0, None)] * 3],
        options={"ftol": 1e-13, "maxiter": 500},
    )
    found = matrix(np.append(step.scale, step.coefs))
    reached = objective(np.append(step.scale, step.coefs))
    assert step.value == pytest.approx(reached, rel=1e-9)
    assert reached == pytest.approx(objective(best.x), rel=2e-6)
    np.testing.assert_allclose(found, matrix(best.x), atol=5e-3 * np.abs(found).max())
    if has_factor:
        assert step.scale == pytest.approx(best.x[0], abs=5e-3)
        low, high = {"small": (1, 1), "large": (0.01, 0.99), "wrong": (0, 0)}[kind]
        assert low - 1e-6 <= step.scale <= high + 1e-6
    # The step ends at the minimum.
    problem.take(Step(batch, step.coefs, step.scale))
    assert problem.evaluate().value == pytest.approx(reached, rel=1e-9)


def test_slice_respects_bounds() -> None:
    X, c = draw_triplets(1)
    problem = problem_of(X, c, "logistic", 0.01)
    batch = np.linalg.qr(np.random.default_rng(2).normal(size=(5, 3)))[0]
    sizes, upper = problem.response_sizes(batch), np.array([1e-4, 1e-5, 0.0])
    step = best_on_slice(problem, batch, np.zeros(3), upper, sizes, np.zeros(4), free_scale=True)
    assert (step.coefs <= upper * (1 + 1e-12)).all()
    assert (step.coefs >= 0).all()
    assert step.scale <= 1


# Fits in batches.


@every_loss
@every_regularizer
def test_batch_state_matches_metric(regularizer: str, loss: str) -> None:
    for directions_per_step in (2, 3, 8):
        X, c = draw_triplets(2, weighted=True)
        fit = boost(
            X,
            c,
            loss,
            directions_per_step=directions_per_step,
            max_iter=24,
            regularizer=regularizer,
            alpha=1e-3,
        )
        M = fit.metric.matrix
        assert len(fit.history) >= 2
        assert (np.diff([step.objective for step in fit.history]) < 0).all()
        assert np.linalg.eigvalsh(M)[0] >= -1e-12 * np.linalg.eigvalsh(M)[-1]
        assert fit.metric.n_directions <= fit.n_tried <= 24
        np.testing.assert_allclose(np.linalg.norm(fit.metric.directions, axis=0), 1, rtol=1e-12)
        margins = margins_at(M, X, c)
        np.testing.assert_allclose(margins_of(fit), margins, rtol=1e-8, atol=1e-8)
        objective = loss_of(loss, margins, c) + cost_of(regularizer, fit.alpha, M)
        assert fit.objective() == pytest.approx(objective, rel=1e-9)
        assert fit.history[-1].objective == pytest.approx(objective, rel=1e-9)


def algorithm_of_the_paper(X: NDArray, c: Comparisons, alpha: float, n_iter: int) -> NDArray:
    """Algorithm 3 for the logistic loss, with absolute alpha and dense matrices."""
    A = matrices_of(X, c)
    M = np.zeros(A.shape[1:])
    for _ in range(n_iter):
        margins = np.einsum("rij,ij->r", A, M)
        scatter = np.einsum("r,rij->ij", expit(-margins), A)
        v = np.linalg.eigh(scatter)[1][:, -1]
        h = np.einsum("i,rij,j->r", v, A, v)

        def slope(w: float, margins: NDArray = margins, h: NDArray = h) -> float:
            return float(h @ expit(-margins - w * h)) - alpha

        M = M + brentq(slope, 0, 1e3, xtol=1e-14) * np.outer(v, v)
    return M


def test_single_directions_match_algorithm_of_paper() -> None:
    X, c = draw_triplets(3)
    fit = boost(X, c, "logistic", directions_per_step=1, max_iter=6, regularizer=Trace(0.5))
    expected = algorithm_of_the_paper(X, c, 0.5, n_iter=6)
    np.testing.assert_allclose(fit.metric.matrix, expected, atol=1e-8 * np.abs(expected).max())
    assert fit.metric.n_directions == fit.n_tried == len(fit.history) == 6


@pytest.mark.parametrize(
    ("directions_per_step", "max_iter", "tried"),
    [
        (4, 10, [4, 4, 2]),
        (4, 8, [4, 4]),
        (3, 7, [3, 3, 1]),
        (16, 5, [5]),
        (40, 100, [40, 40, 20]),
        (2, 1, [1]),
    ],
)
def test_last_batch_has_remaining_directions(
    directions_per_step: int, max_iter: int, tried: list[int], blobs: Labelled
) -> None:
    X, y = blobs
    fit = boost(
        X,
        Comparisons.from_labels(X, y),
        "logistic",
        directions_per_step=directions_per_step,
        max_iter=max_iter,
        tol=0.0,
    )
    assert [step.n_tried for step in fit.history] == tried
    assert fit.n_tried == max_iter
    assert fit.status is Status.MAX_ITER
    assert 1 <= fit.metric.n_directions <= max_iter


def test_batch_larger_than_n_features() -> None:
    X, c = draw_triplets(4)
    whole, more = (
        boost(X, c, "logistic", directions_per_step=k, max_iter=3 * k, alpha=1e-3) for k in (5, 50)
    )
    assert len(whole.history) == len(more.history)
    np.testing.assert_allclose(more.metric.matrix, whole.metric.matrix, rtol=1e-8, atol=1e-10)


@pytest.fixture(scope="module")
def digits() -> Data:
    """500 digits, reduced to 20 features, with 4,500 comparisons."""
    X, y = load_digits(return_X_y=True)
    X = PCA(20, random_state=0).fit_transform(X[:500])
    X /= X.std()
    return X, Comparisons.from_labels(X, y[:500])


@pytest.mark.parametrize(("loss", "alpha"), [("logistic", 0.02), ("exponential", 0.3)])
def test_batches_approach_optimum(loss: str, alpha: float, digits: Data) -> None:
    options: dict[str, Any] = {"loss": loss, "alpha": alpha}
    best = boost(*digits, solver="totally_corrective", tol=1e-3, **options)
    assert best.status is Status.CONVERGED
    single, batches = (
        boost(*digits, directions_per_step=k, max_iter=320, tol=0.0, **options) for k in (1, 16)
    )
    start = loss_of(loss, np.zeros(len(digits[1])), digits[1])
    gained = [start - fit.objective() for fit in (best, batches, single)]
    assert batches.objective() <= single.objective() + 0.02 * gained[2]
    assert gained[1] >= 0.97 * gained[0]
    assert gained[1] <= gained[0] * (1 + 2e-3)


def test_batches_match_single_directions(digits: Data) -> None:
    single, batches = (
        boost(*digits, "logistic", directions_per_step=k, max_iter=160) for k in (1, 16)
    )
    start = len(digits[1]) * math.log(2)
    assert start - batches.objective() >= 0.98 * (start - single.objective())


# Defaults.


@pytest.mark.parametrize(
    ("loss", "solver", "D", "m", "expected"),
    [
        ("logistic", "stagewise", 32, 10_000, 16),
        ("exponential", "stagewise", 600, 10**6, 16),
        ("exponential", "stagewise", 600, 3 * 10**6, 11),
        ("exponential", "stagewise", 600, 10**7, 8),
        ("logistic", "stagewise", 601, 10_000, 8),
        ("logistic", "stagewise", 15, 10_000, 15),
        ("logistic", "stagewise", 2, 10, 2),
        ("logistic", "totally_corrective", 2, 10, 2),
        ("smoothed_hinge", "totally_corrective", 300, 10**6, 64),
        ("logistic", "totally_corrective", 601, 10, 8),
        ("hinge", "totally_corrective", 300, 10**6, 2),
    ],
)
def test_default_batch_sizes(loss: str, solver: str, D: int, m: int, expected: int) -> None:
    assert SolverSettings.of(loss, solver).batch_size(D, m) == expected


@pytest.mark.parametrize("bad", [0, -3, 2.5, "a"])
def test_invalid_directions_per_step_is_rejected(bad: Any) -> None:
    with pytest.raises(
        ValueError, match=r"'directions_per_step' parameter must be 'auto' or an int"
    ):
        boost(*draw_triplets(0), "logistic", directions_per_step=bad)


# Extremes.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("directions_per_step", [2, 6])
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_separable_comparisons_give_finite_metric(
    loss: str, directions_per_step: int, dtype: type[np.floating]
) -> None:
    for scale in (1e-4, 1.0, 1e4):
        rng = np.random.default_rng(0)
        y = np.repeat([0, 1, 2], 20)
        X = rng.normal(size=(60, 6))
        X[:, :2] += 30 * np.array([[0, 0], [1, 0], [0, 1]])[y]
        X = (scale * X).astype(dtype)
        c = Comparisons.from_labels(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit = boost(X, c, loss, directions_per_step=directions_per_step, max_iter=120)
        if loss == "exponential":
            assert fit.status is Status.UNBOUNDED
        M = fit.metric.matrix
        assert np.isfinite(M).all()
        assert M.any()
        assert np.isfinite(margins_of(fit)).all()
        assert all(math.isfinite(step.objective) for step in fit.history)
        assert (margins_at(M.astype(np.float64), X.astype(np.float64), c) > 0).all()
        assert np.isfinite(fit.metric.transform(X)).all()


@every_loss
@every_regularizer
def test_batch_float32_agrees_with_float64(regularizer: str, loss: str) -> None:
    X, c = draw_triplets(5, weighted=True)
    options: dict[str, Any] = {"directions_per_step": 3, "max_iter": 6, "alpha": 1e-2}
    low, high = (
        boost(X.astype(dtype), c, loss, regularizer=regularizer, **options)
        for dtype in (np.float32, np.float64)
    )
    assert low.metric.directions.dtype == low.metric.components.dtype == np.float32
    assert low.metric.coefs.dtype == low.metric.matrix.dtype == np.float64
    assert low.objective() == pytest.approx(high.objective(), rel=1e-4)


@pytest.mark.parametrize("loss", [loss for loss in SMOOTH if loss != "exponential"])
@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_batch_is_invariant_to_scale_of_weights(size: float, loss: str) -> None:
    X, c = draw_triplets(7)
    options: dict[str, Any] = {"directions_per_step": 3, "max_iter": 12, "alpha": 1e-3}
    plain, scaled = (
        boost(X, replace(c, weights=np.full(len(c), weight)), loss, **options)
        for weight in (1.0, size)
    )
    assert len(scaled.history) == len(plain.history)
    assert scaled.status is plain.status
    assert scaled.objective() == pytest.approx(size * plain.objective(), rel=1e-6)


@pytest.mark.parametrize("threshold", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_large_gaps(loss: str, threshold: float) -> None:
    # Pairs are near or far by the first half of the features, at a squared distance of 6.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 6))
    pairs = np.array([rng.permutation(100)[:2] for _ in range(400)])
    squares = np.square(X[pairs[:, 0], :3] - X[pairs[:, 1], :3]).sum(axis=1)
    labels = np.where(squares + rng.normal(size=400) < 6, 1, -1)
    c = Comparisons.from_pairs(pairs, labels, thresholds=threshold)
    options: dict[str, Any] = {"loss": loss, "alpha": 1e-4, "max_iter": 60}
    single, batches = (boost(X, c, directions_per_step=k, **options) for k in (1, 4))
    assert batches.objective() <= 1.02 * single.objective()


class SteepLogistic(Logistic):
    """log(1 + exp(−5·ρ)), derived from the logistic loss."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return super().value(5 * margins, weights)

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        return 5 * super().duals(5 * margins, weights)


@pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])
def test_derived_loss_is_used_in_batches(solver: str) -> None:
    X, c = draw_triplets(8)
    options: dict[str, Any] = {
        "solver": solver,
        "directions_per_step": 3,
        "max_iter": 9,
        "tol": 0.0,
    }
    steep = boost(X, c, SteepLogistic(), alpha=1e-3, **options)
    # With 5·M for M it is the logistic loss, and the relative alpha is the same.
    plain = boost(X, c, "logistic", alpha=1e-3, **options)
    assert steep.objective() == pytest.approx(plain.objective(), rel=2e-2)


# Weights.


@every_loss
@every_regularizer
def test_weights_equal_repetitions(regularizer: str, loss: str) -> None:
    X, c = draw_triplets(9)
    times = np.random.default_rng(0).integers(1, 4, len(c))
    repeated = c[np.repeat(np.arange(len(c)), times)]
    options: dict[str, Any] = {"directions_per_step": 3, "max_iter": 9, "alpha": 1e-2}
    by_weight, by_number = (
        boost(X, each, loss, regularizer=regularizer, **options)
        for each in (replace(c, weights=times.astype(float)), repeated)
    )
    assert len(by_weight.history) == len(by_number.history)
    np.testing.assert_allclose(
        by_weight.metric.matrix,
        by_number.metric.matrix,
        atol=1e-6 * np.abs(by_number.metric.matrix).max(),
    )


@pytest.mark.parametrize("directions_per_step", [1, 3])
def test_batch_is_invariant_to_order_of_points(
    directions_per_step: int, rng: np.random.Generator
) -> None:
    X = rng.normal(size=(14, 4))
    rows = np.array([rng.permutation(14)[:4] for _ in range(60)])
    labels = rng.choice([-1, 1], 60)
    order = rng.permutation(14)
    place = np.argsort(order)

    def fitted(points: NDArray, rows: NDArray) -> NDArray:
        c = Comparisons.from_quadruplets(rows) + Comparisons.from_pairs(rows[:, :2], labels)
        fit = boost(
            points, c, "logistic", directions_per_step=directions_per_step, max_iter=6, alpha=1e-2
        )
        return fit.metric.matrix

    np.testing.assert_allclose(fitted(X[order], place[rows]), fitted(X, rows), rtol=1e-6, atol=1e-8)


# Warm starts.


@every_loss
def test_batch_warm_start_continues_fit(loss: str) -> None:
    X, c = draw_triplets(10, weighted=True)
    options: dict[str, Any] = {"directions_per_step": 3, "alpha": 1e-3, "tol": 0.0}
    half, whole = (boost(X, c, loss, max_iter=n, **options) for n in (6, 12))
    resumed = boost(X, c, loss, max_iter=6, start=half.metric, **options)
    assert resumed.n_tried == 6
    M = whole.metric.matrix
    np.testing.assert_allclose(resumed.metric.matrix, M, atol=1e-5 * np.abs(M).max())
