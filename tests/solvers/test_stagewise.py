"""Blocks of directions: their coefficients, against scipy and sums written out; fits in blocks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, problem_of
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import expit, logsumexp
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from boostmetric import (
    LOSSES,
    Boosting,
    BoostMetric,
    ComparisonOperator,
    Comparisons,
    Logistic,
    Loss,
    Metric,
    NotANumberError,
    Status,
    boost,
    laplacian,
)
from boostmetric.corrective import correct_block
from boostmetric.holdout import EarlyStopping
from boostmetric.solvers import default_block_size

Data = tuple[NDArray, Comparisons]
Labelled = tuple[NDArray, NDArray]

every_loss = pytest.mark.parametrize("loss", SMOOTH)
every_regularizer = pytest.mark.parametrize("regularizer", ["trace", "frobenius"])


def draw_triplets(seed: int, D: int = 5, m: int = 120, weighted: bool = False) -> Data:
    """Triplets of 25 points that no metric satisfies, though most go by the first features."""
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


def matrices_of(X: NDArray, c: Comparisons) -> NDArray:
    """The A_r, written out."""
    near, far = (X[c.pairs[side, 0]] - X[c.pairs[side, 1]] for side in (c.near, c.far))
    return np.einsum("ri,rj->rij", far, far) - np.einsum("ri,rj->rij", near, near)


def margins_of(M: NDArray, X: NDArray, c: Comparisons) -> NDArray:
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


def duals_by_differences(loss: str, margins: NDArray, c: Comparisons) -> NDArray:
    step = 1e-6 * np.eye(len(margins))
    return np.array(
        [(loss_of(loss, margins - e, c) - loss_of(loss, margins + e, c)) / 2e-6 for e in step]
    )


# The coefficients of a block.


def old_metric(kind: str, X: NDArray, c: Comparisons) -> Metric:
    """A metric to which a block is added: too small, too large, wrong, or none."""
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
@every_regularizer
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["nothing", "small", "large", "wrong"])
def test_the_factor_and_the_coefficients_of_a_block_are_the_best(
    kind: str, weighted: bool, regularizer: str, loss: str
) -> None:
    X, c = draw_triplets(0, weighted=weighted)
    alpha = 0.02 if loss == "exponential" else 2.0
    problem = problem_of(X, c, loss, alpha, regularizer)
    old = old_metric(kind, X, c)
    margins = problem.margins(old)
    block = np.linalg.eigh(matrices_of(X, c).sum(axis=0))[1][:, ::-1][:, :3]
    before = margins.copy(), old.matrix
    step = correct_block(problem, old, margins, block, accuracy=1e-9)
    found = Metric(step.directions, step.coefs).matrix

    def matrix(z: NDArray) -> NDArray:
        return z[0] * before[1] + (block * z[1:]) @ block.T

    def objective(z: NDArray) -> float:
        M = matrix(z)
        return loss_of(loss, margins_of(M, X, c), c) + cost_of(regularizer, alpha, M)

    n_free = 1 if kind == "nothing" else 0  # without a metric its factor means nothing
    best = minimize(
        objective,
        np.append(0.5, np.full(3, 0.1)),
        method="SLSQP",
        bounds=[(1, 1) if n_free else (0, 1), *[(0, None)] * 3],
        options={"ftol": 1e-13, "maxiter": 500},
    )
    lowest = objective(best.x)
    reached = loss_of(loss, margins_of(found, X, c), c) + cost_of(regularizer, alpha, found)
    assert reached == pytest.approx(lowest, rel=2e-6)
    np.testing.assert_allclose(found, matrix(best.x), atol=5e-3 * np.abs(found).max())
    if kind != "nothing":
        factor = best.x[0]
        if kind == "small":
            assert factor == pytest.approx(1, abs=1e-6)
        elif kind == "large":
            assert 0.01 < factor < 0.99
        else:
            assert factor == pytest.approx(0, abs=1e-6)
        n_old = 0 if kind == "wrong" else 2
        assert np.array_equal(step.directions[:, :n_old], old.directions[:, :n_old])
        scaled = factor * old.coefs[:n_old]
        np.testing.assert_allclose(step.coefs[:n_old], scaled, rtol=5e-3)
    assert (step.coefs > 0).all()
    assert step.bounded
    assert np.array_equal(margins, before[0])


@every_loss
@pytest.mark.parametrize("weighted", [False, True])
def test_margins_and_duals_of_a_block_are_those_of_its_metric(weighted: bool, loss: str) -> None:
    X, c = draw_triplets(1, weighted=weighted)
    problem = problem_of(X, c, loss, 0.01)
    old = old_metric("large", X, c)
    margins = problem.margins(old)
    block = np.linalg.qr(np.random.default_rng(2).normal(size=(5, 4)))[0]
    step = correct_block(problem, old, margins, block, accuracy=1e-3)
    expected = margins_of(Metric(step.directions, step.coefs).matrix, X, c)
    np.testing.assert_allclose(step.margins, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        step.duals, duals_by_differences(loss, expected, c), rtol=1e-4, atol=1e-7
    )


# Fits in blocks.


@every_loss
@every_regularizer
@pytest.mark.parametrize("block_size", [2, 3, 8])
def test_the_objective_falls_and_the_state_is_that_of_the_metric(
    block_size: int, regularizer: str, loss: str
) -> None:
    X, c = draw_triplets(2, weighted=True)
    fit = boost(X, c, loss, block_size=block_size, max_iter=24, regularizer=regularizer, alpha=1e-3)
    M = fit.metric.matrix
    assert len(fit.history) >= 2
    assert (np.diff([step.objective for step in fit.history]) < 0).all()
    assert np.linalg.eigvalsh(M)[0] >= -1e-12 * np.linalg.eigvalsh(M)[-1]
    assert fit.metric.n_directions <= fit.n_tried <= 24
    np.testing.assert_allclose(np.linalg.norm(fit.metric.directions, axis=0), 1, rtol=1e-12)
    margins = margins_of(M, X, c)
    np.testing.assert_allclose(fit.margins, margins, rtol=1e-8, atol=1e-8)
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


def test_blocks_of_one_are_the_algorithm_of_the_paper() -> None:
    X, c = draw_triplets(3)
    fit = boost(X, c, "logistic", block_size=1, max_iter=6, alpha=0.5, alpha_relative=False)
    expected = algorithm_of_the_paper(X, c, 0.5, n_iter=6)
    np.testing.assert_allclose(fit.metric.matrix, expected, atol=1e-8 * np.abs(expected).max())
    assert fit.metric.n_directions == fit.n_tried == len(fit.history) == 6
    few = boost(X, c, "logistic", max_iter=6, alpha=0.5, alpha_relative=False)
    assert np.array_equal(few.metric.matrix, fit.metric.matrix)


@pytest.mark.parametrize(
    ("block_size", "max_iter", "tried"),
    [
        (4, 10, [4, 4, 2]),
        (4, 8, [4, 4]),
        (3, 7, [3, 3, 1]),
        (16, 5, [5]),
        (40, 100, [40, 40, 20]),
        (2, 1, [1]),
    ],
)
@pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])
def test_directions_are_counted_and_the_last_block_is_what_is_left(
    solver: str, block_size: int, max_iter: int, tried: list[int], blobs: Labelled
) -> None:
    X, y = blobs
    fit = boost(
        X,
        Comparisons.from_labels(X, y),
        "logistic",
        solver=solver,
        block_size=block_size,
        max_iter=max_iter,
        tol=0.0,
    )
    assert [step.n_tried for step in fit.history] == tried
    assert fit.n_tried == max_iter
    assert fit.status is Status.MAX_ITER
    assert 1 <= fit.metric.n_directions <= max_iter


def test_a_block_as_large_as_the_space_or_larger() -> None:
    X, c = draw_triplets(4)
    whole, more = (
        boost(X, c, "logistic", block_size=k, max_iter=3 * k, alpha=1e-3) for k in (5, 50)
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
def test_blocks_come_close_to_the_optimum_where_single_directions_do_not(
    loss: str, alpha: float, digits: Data
) -> None:
    options: dict[str, Any] = {"loss": loss, "alpha": alpha}
    best = boost(*digits, solver="totally_corrective", tol=1e-3, **options)
    assert best.status is Status.CONVERGED
    single, blocks = (boost(*digits, block_size=k, max_iter=320, **options) for k in (1, 16))
    start = loss_of(loss, np.zeros(len(digits[1])), digits[1])
    gained = [start - fit.objective() for fit in (best, blocks, single)]
    assert blocks.objective() <= single.objective() + 0.02 * gained[2]
    assert gained[1] >= 0.97 * gained[0]
    assert gained[1] <= gained[0] * (1 + 2e-3)


def test_blocks_gain_what_as_many_single_directions_gain(digits: Data) -> None:
    single, blocks = (boost(*digits, "logistic", block_size=k, max_iter=160) for k in (1, 16))
    start = len(digits[1]) * math.log(2)
    assert start - blocks.objective() >= 0.98 * (start - single.objective())


# Defaults, and the estimator.


@pytest.mark.parametrize(
    ("loss", "solver", "D", "m", "expected"),
    [
        ("logistic", "stagewise", 32, 10_000, 16),
        ("exponential", "stagewise", 600, 10**6, 24),
        ("exponential", "stagewise", 600, 10**7, 8),
        ("logistic", "stagewise", 16, 10_000, 8),
        ("logistic", "stagewise", 31, 10_000, 15),
        ("logistic", "stagewise", 601, 10_000, 8),
        ("logistic", "stagewise", 15, 10_000, 1),
        ("logistic", "stagewise", 16, 9_999, 1),
        ("logistic", "totally_corrective", 2, 10, 4),
        ("smoothed_hinge", "totally_corrective", 300, 10**6, 4),
        ("hinge", "totally_corrective", 300, 10**6, 2),
    ],
)
def test_default_block_sizes(loss: str, solver: str, D: int, m: int, expected: int) -> None:
    assert default_block_size(LOSSES[loss], solver, D, m) == expected


def two_classes(n: int, D: int) -> Labelled:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    return X, (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize(
    ("n", "D", "options", "tried"),
    [
        (1500, 16, {}, [8] * 5),
        (1500, 26, {}, [13, 13, 13, 1]),
        (1500, 40, {}, [20, 20]),
        (1100, 40, {}, [1] * 40),
        (1500, 15, {}, [1] * 40),
        (1500, 16, {"block_size": 30}, [30, 10]),
        (200, 16, {"block_size": 15}, [15, 15, 10]),
        (200, 6, {"solver": "totally_corrective", "tol": 0.0}, [4] * 10),
    ],
)
def test_the_estimator_says_how_many_directions_an_iteration_tried(
    n: int, D: int, options: dict[str, Any], tried: list[int]
) -> None:
    X, y = two_classes(n, D)
    learner = BoostMetric(max_iter=40, alpha=0.0, **options).fit(X, y)
    counts = learner.history_["n_tried"].tolist()
    assert counts == tried[: len(counts)]
    assert learner.n_iter_ == len(counts) == len(learner.history_["objective"])
    if len(counts) < len(tried):
        assert learner.status_ is not Status.MAX_ITER
    assert learner.metric_.n_directions <= 40


@pytest.mark.parametrize("bad", [0, -3, 2.5, "a", True])
def test_a_bad_block_size_is_refused(bad: Any, blobs: Labelled) -> None:
    message = rf"block_size={bad!r} will not do: None or an integer of at least 1 is needed"
    with pytest.raises(ValueError, match=message):
        BoostMetric(block_size=bad).fit(*blobs)


@pytest.mark.parametrize("n_passes", [1, 2])
def test_the_gap_is_found_only_where_it_is_looked_for(n_passes: int, blobs: Labelled) -> None:
    options: dict[str, Any] = {"max_iter": 6, "block_size": 3, "n_passes": n_passes}
    assert np.isnan(BoostMetric(**options).fit(*blobs).duality_gap_)
    assert BoostMetric(tol=1e-9, **options).fit(*blobs).duality_gap_ >= 0
    corrective = BoostMetric(solver="totally_corrective", **options)
    assert corrective.fit(*blobs).duality_gap_ >= 0


# Extremes.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("block_size", [2, 6])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_comparisons_that_a_metric_satisfies(
    loss: str, scale: float, block_size: int, dtype: type[np.floating]
) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    X = rng.normal(size=(60, 6))
    X[:, :2] += 30 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    X = (scale * X).astype(dtype)
    c = Comparisons.from_labels(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = boost(X, c, loss, block_size=block_size, max_iter=120)
    if loss == "exponential":
        assert fit.status is Status.UNBOUNDED
    M = fit.metric.matrix
    assert np.isfinite(M).all()
    assert M.any()
    assert np.isfinite(fit.margins).all()
    assert all(math.isfinite(step.objective) for step in fit.history)
    assert (margins_of(M.astype(np.float64), X.astype(np.float64), c) > 0).all()
    assert np.isfinite(fit.metric.transform(X)).all()


@every_loss
@every_regularizer
def test_single_precision_stays_and_agrees_with_double(regularizer: str, loss: str) -> None:
    X, c = draw_triplets(5, weighted=True)
    options: dict[str, Any] = {"block_size": 3, "max_iter": 6, "alpha": 1e-2}
    low, high = (
        boost(X.astype(dtype), c, loss, regularizer=regularizer, **options)
        for dtype in (np.float32, np.float64)
    )
    for array in (low.margins, low.duals, low.metric.directions, low.metric.coefs):
        assert array.dtype == np.float32
    assert low.metric.matrix.dtype == np.float32
    assert low.objective() == pytest.approx(high.objective(), rel=1e-4)


class NaNAtCall(Loss):
    """The logistic loss, of which one method returns NaN from some call on."""

    def __init__(self, method: str, last_good: float = math.inf) -> None:
        self.method, self.last_good, self.calls = method, last_good, 0

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return math.nan if self._fails("value") else float(np.logaddexp(0, -margins).sum())

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        duals = expit(-margins)
        return np.full_like(duals, np.nan) if self._fails("duals") else duals

    def _fails(self, method: str) -> bool:
        self.calls += method == self.method
        return method == self.method and self.calls > self.last_good


@pytest.mark.parametrize("method", ["value", "duals"])
@pytest.mark.parametrize("n_good", [0, 1, 2])
@pytest.mark.parametrize("at", ["first", "second", "last"])
def test_a_nan_within_a_block_takes_back_the_whole_block(at: str, n_good: int, method: str) -> None:
    X, c = draw_triplets(6)
    options: dict[str, Any] = {"block_size": 3, "alpha": 1e-4}
    kept_loss, next_loss = NaNAtCall(method), NaNAtCall(method)
    kept = boost(X, c, kept_loss, max_iter=3 * n_good, **options)
    n_calls = kept_loss.calls
    boost(X, c, next_loss, max_iter=3 * (n_good + 1), **options)
    last_good = {"first": n_calls, "second": n_calls + 1, "last": next_loss.calls - 1}[at]
    with pytest.raises(NotANumberError, match=rf"in iteration {n_good + 1},.*is kept") as caught:
        boost(X, c, NaNAtCall(method, last_good), max_iter=12, **options)
    failed: Boosting = caught.value.fit
    assert failed.status is Status.FAILED
    assert len(failed.history) == n_good
    assert failed.n_tried == 3 * n_good
    assert np.array_equal(failed.metric.matrix, kept.metric.matrix)
    np.testing.assert_allclose(failed.margins, margins_of(kept.metric.matrix, X, c), atol=1e-9)


@pytest.mark.parametrize("loss", [loss for loss in SMOOTH if loss != "exponential"])
@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_the_unit_of_the_weights_does_not_matter(size: float, loss: str) -> None:
    X, c = draw_triplets(7)
    options: dict[str, Any] = {"block_size": 3, "max_iter": 12, "alpha": 1e-3}
    plain, scaled = (
        boost(X, replace(c, weights=np.full(len(c), weight)), loss, **options)
        for weight in (1.0, size)
    )
    assert len(scaled.history) == len(plain.history)
    assert scaled.status is plain.status
    assert scaled.objective() == pytest.approx(size * plain.objective(), rel=3e-2)


@pytest.mark.parametrize("threshold", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_gaps_may_be_large(loss: str, threshold: float) -> None:
    # Pairs are near or far by the first half of the features, at a squared distance of 6.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 6))
    pairs = np.array([rng.permutation(100)[:2] for _ in range(400)])
    squares = np.square(X[pairs[:, 0], :3] - X[pairs[:, 1], :3]).sum(axis=1)
    labels = np.where(squares + rng.normal(size=400) < 6, 1, -1)
    c = Comparisons.from_pairs(pairs, labels, thresholds=threshold)
    options: dict[str, Any] = {"loss": loss, "alpha": 1e-4, "max_iter": 60}
    single, blocks = (boost(X, c, block_size=k, **options) for k in (1, 4))
    assert blocks.objective() <= 1.02 * single.objective()


class SteepLogistic(Logistic):
    """log(1 + exp(−5·ρ)), made of the loss that it derives from."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return super().value(5 * margins, weights)

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        return 5 * super().duals(5 * margins, weights)


@pytest.mark.parametrize("solver", ["stagewise", "totally_corrective"])
def test_a_loss_that_derives_from_another_is_itself_in_blocks(solver: str) -> None:
    X, c = draw_triplets(8)
    options: dict[str, Any] = {"solver": solver, "block_size": 3, "max_iter": 9, "tol": 0.0}
    steep = boost(X, c, SteepLogistic(), alpha=1e-3, **options)
    # With 5·M for M it is the logistic loss, and the relative alpha is the same.
    plain = boost(X, c, "logistic", alpha=1e-3, **options)
    assert steep.objective() == pytest.approx(plain.objective(), rel=2e-2)


# Weights.


@every_loss
@every_regularizer
def test_weights_are_repetitions(regularizer: str, loss: str) -> None:
    X, c = draw_triplets(9)
    times = np.random.default_rng(0).integers(1, 4, len(c))
    repeated = c[np.repeat(np.arange(len(c)), times)]
    options: dict[str, Any] = {"block_size": 3, "max_iter": 9, "alpha": 1e-2}
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


def test_sample_weights_are_points_given_several_times(blobs: Labelled) -> None:
    X, y = blobs
    times = np.random.default_rng(0).integers(1, 4, len(X))
    options: dict[str, Any] = {"block_size": 4, "max_iter": 12}
    by_weight = BoostMetric(**options).fit(X, y, sample_weight=times)
    by_number = BoostMetric(**options).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    expected = by_number.get_mahalanobis_matrix()
    np.testing.assert_allclose(
        by_weight.get_mahalanobis_matrix(), expected, atol=1e-6 * np.abs(expected).max()
    )


# The operator of comparisons.


def mixed(rng: np.random.Generator, n: int = 14) -> Comparisons:
    """Triplets, quadruplets and pairs with a threshold, which have the null pair."""
    rows = np.array([rng.permutation(n)[:4] for _ in range(30)])
    pairs = Comparisons.from_pairs(rows[:, 2:], rng.choice([-1, 1], 30), thresholds=2.0)
    return Comparisons.from_triplets(rows[:, :3]) + Comparisons.from_quadruplets(rows) + pairs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [0, 1, 3])
def test_measures_are_those_of_the_directions_one_by_one(
    k: int, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X, c = rng.normal(size=(14, 4)).astype(dtype), mixed(rng)
    operator = ComparisonOperator(X, c)
    V = rng.normal(size=(4, k)).astype(dtype)
    measures = operator.measures(V)
    assert measures.shape == (operator.n_measures, k)
    assert measures.dtype == dtype
    near = 1e-12 if dtype is np.float64 else 1e-4
    for j in range(k):
        np.testing.assert_allclose(measures[:, j], operator.measure(V[:, j]), rtol=near, atol=near)
    expected = np.einsum("ij,rik,kj->rj", V, matrices_of(X.astype(np.float64), c), V)
    responses = operator.expand(measures).reshape(len(c), k)
    np.testing.assert_allclose(responses, expected, rtol=10 * near, atol=10 * near)


def test_sizes_are_collected_by_the_absolute_values_of_expand(rng: np.random.Generator) -> None:
    X, c = rng.normal(size=(14, 4)), mixed(rng)
    operator = ComparisonOperator(X, c)
    unit = np.eye(operator.n_measures)
    dense = np.column_stack([operator.expand(e) for e in unit])
    assert (np.abs(dense).sum(axis=1) == 2).all()
    sizes = rng.exponential(size=len(c))
    np.testing.assert_allclose(operator.collect_sizes(sizes), np.abs(dense).T @ sizes, rtol=1e-13)
    np.testing.assert_allclose(operator.collect(sizes), dense.T @ sizes, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("entries", [1, 9, 20, 10**6])
@pytest.mark.parametrize("n", [14, 23])
def test_scatters_do_not_depend_on_how_rows_are_split(
    n: int, entries: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laplacian, "BLOCK_ENTRIES", entries)
    X, c = rng.normal(size=(n, 4)), mixed(rng)  # of 23 points some are in no comparison
    operator, duals = ComparisonOperator(X, c), rng.exponential(size=len(c))
    expected = np.einsum("r,rij->ij", duals, matrices_of(X, c))
    np.testing.assert_allclose(operator.scatter(duals), expected, rtol=1e-11, atol=1e-11)
    near, far = (X[c.pairs[side, 0]] - X[c.pairs[side, 1]] for side in (c.near, c.far))
    spread = np.einsum("r,ri,rj->ij", duals, far, far) + np.einsum("r,ri,rj->ij", duals, near, near)
    np.testing.assert_allclose(operator.spread(duals), spread, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("block_size", [1, 3])
def test_the_order_of_the_points_does_not_matter(block_size: int, rng: np.random.Generator) -> None:
    X = rng.normal(size=(14, 4))
    rows = np.array([rng.permutation(14)[:4] for _ in range(60)])
    labels = rng.choice([-1, 1], 60)
    order = rng.permutation(14)
    place = np.argsort(order)

    def fitted(points: NDArray, rows: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        c = Comparisons.from_quadruplets(rows) + Comparisons.from_pairs(rows[:, :2], labels)
        operator, duals = ComparisonOperator(points, c), np.linspace(0.1, 1, len(c))
        fit = boost(points, c, "logistic", block_size=block_size, max_iter=6, alpha=1e-2)
        return operator.scatter_matrix(duals), operator.responses(np.ones(4)), fit.metric.matrix

    for here, there in zip(fitted(X, rows), fitted(X[order], place[rows]), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-8)


# Going on, and stopping early.


@every_loss
def test_going_on_from_a_metric_is_going_on(loss: str) -> None:
    X, c = draw_triplets(10, weighted=True)
    options: dict[str, Any] = {"block_size": 3, "alpha": 1e-3}
    half, whole = (boost(X, c, loss, max_iter=n, **options) for n in (6, 12))
    resumed = boost(X, c, loss, max_iter=6, start=half.metric, **options)
    assert resumed.n_tried == 6
    M = whole.metric.matrix
    np.testing.assert_allclose(resumed.metric.matrix, M, atol=1e-5 * np.abs(M).max())


def test_a_warm_start_in_blocks(blobs: Labelled) -> None:
    X, y = blobs
    learner = BoostMetric(block_size=3, max_iter=6, warm_start=True).fit(X, y)
    first = learner.history_["objective"][-1]
    learner.fit(X, y)
    assert learner.history_["n_tried"].tolist() == [3, 3]
    assert learner.history_["objective"][0] < first
    whole = BoostMetric(block_size=3, max_iter=12).fit(X, y)
    assert learner.history_["objective"][-1] == pytest.approx(whole.history_["objective"][-1])


@pytest.mark.parametrize(
    ("stride", "looks", "end"), [(1, [8, 16, 24, 32], 32), (10, [16, 32], 40), (16, [16, 32], 40)]
)
def test_early_stopping_counts_directions(
    stride: int, looks: list[int], end: int, digits: Data
) -> None:
    seen: list[int] = []

    def error(metric: Metric) -> float:
        seen.append(metric.n_directions)
        return float(len(seen))  # ever worse: the first that is looked at is the best

    stopping = EarlyStopping(error, patience=20, stride=stride)
    fit = boost(*digits, "logistic", block_size=8, max_iter=200, callback=stopping)
    assert fit.status is Status.STOPPED
    assert fit.n_tried == end
    by_directions = [
        boost(*digits, "logistic", block_size=8, max_iter=n).metric.n_directions for n in looks
    ]
    assert seen == by_directions
    stopping.keep_best(fit)
    best = boost(*digits, "logistic", block_size=8, max_iter=looks[0])
    assert np.array_equal(fit.metric.matrix, best.metric.matrix)
    np.testing.assert_allclose(fit.margins, best.margins, rtol=1e-9, atol=1e-9)


def test_the_estimator_stops_early_in_blocks() -> None:
    X, _ = two_classes(300, 8)
    y = np.random.default_rng(1).integers(0, 2, 300)  # nothing to be learned
    options: dict[str, Any] = {"block_size": 4, "early_stopping": True, "random_state": 0}
    learner = BoostMetric(n_iter_no_change=8, max_iter=400, **options).fit(X, y)
    assert learner.status_ is Status.STOPPED
    n_tried = int(learner.history_["n_tried"].sum())
    assert n_tried >= 8
    assert learner.metric_.n_directions <= n_tried - 8
    kept = learner.get_mahalanobis_matrix()
    earlier = [
        BoostMetric(n_iter_no_change=10**6, max_iter=n, **options).fit(X, y)
        for n in range(4, n_tried + 1, 4)
    ]
    assert any(np.allclose(kept, each.get_mahalanobis_matrix()) for each in earlier)
