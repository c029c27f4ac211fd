"""The line search, against the equations of the paper and brentq."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, read_only
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.datasets import load_wine

from boostmetric import LOSSES, Boosting, Comparisons, Frobenius, Loss, Operator, Trace, boost
from boostmetric.engines import Local
from boostmetric.problem import Objective, Regularizer, Step
from boostmetric.solvers.coefficients import LineSearch, line_search

EQUATIONS = ["exponential", "logistic"]
RESPONSES: dict[str, Callable[[np.random.Generator, int], NDArray]] = {
    "normal": lambda rng, m: rng.standard_normal(m) + 0.3,
    "squares": lambda rng, m: 1.5 * rng.standard_normal(m) ** 2 - rng.standard_normal(m) ** 2,
    "cauchy": lambda rng, m: rng.standard_cauchy(m),
    "pareto": lambda rng, m: rng.pareto(1, m) * np.sign(rng.random(m) - 0.3),
    "lognormal": lambda rng, m: np.exp(4 * rng.standard_normal(m)) * np.sign(rng.random(m) - 0.3),
    "one negative": lambda rng, m: np.where(np.arange(m) == 0, -1e-3, rng.random(m)),
    "nearly none negative": lambda rng, m: np.where(
        np.arange(m) == 0, -1e-8, rng.exponential(size=m)
    ),
}


class Counting(Loss):
    """A loss that counts the evaluations of its duals."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        self.calls = 0

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return self.loss.value(margins, weights)

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        self.calls += 1
        return self.loss.duals(margins, weights)


class Column(Operator):
    """One feature: h_r is the matrix A_r."""

    def __init__(self, responses: NDArray) -> None:
        super().__init__(len(responses), 1, responses.dtype)
        self.h = responses

    def scatter(self, duals: NDArray) -> NDArray:
        return np.array([[duals @ self.h]])

    def responses(self, direction: NDArray) -> NDArray:
        return self.h * direction[0] ** 2


ONE = np.ones(1)


def objective_of(
    loss: str | Loss,
    margins: NDArray,
    responses: NDArray,
    regularizer: Regularizer,
    weights: NDArray | None = None,
) -> Objective:
    """The objective of one feature that has these margins at M = 0."""
    loss = LOSSES[loss] if isinstance(loss, str) else loss
    return Objective.of_operator(Local(1), Column(responses), loss, regularizer, -margins, weights)


@dataclass
class Line:
    """A direction to search along."""

    loss: str
    margins: NDArray
    responses: NDArray
    alpha: float
    weights: NDArray | None

    @property
    def duals(self) -> NDArray:
        return LOSSES[self.loss].duals(self.margins, self.weights)

    @cached_property
    def objective(self) -> Objective:
        return objective_of(
            self.loss, self.margins, self.responses, Trace(self.alpha), self.weights
        )

    def search(self) -> LineSearch:
        return line_search(self.objective, ONE.astype(self.responses.dtype))

    def value(self, w: float) -> float:
        """The objective after a step of this length."""
        moved = self.margins + w * self.responses
        return LOSSES[self.loss].value(moved, self.weights) + self.alpha * w

    def slope(self, w: float) -> float:
        """Minus the derivative of the objective; EQ:w or EQ:w2. Positive before the root."""
        h = self.responses
        c = np.ones(len(h)) if self.weights is None else self.weights
        if self.loss == "exponential":
            exponents = np.log(c) - self.margins - w * h
            return float(np.sum((h - self.alpha) * np.exp(exponents - exponents.max())))
        if self.loss == "logistic":
            return float(np.sum(c * h * expit(-self.margins - w * h)) - self.alpha)
        short = np.maximum(1 - self.margins - w * h, 0)
        duals = {"squared_hinge": 2 * short, "smoothed_hinge": np.minimum(short / 0.5, 1)}
        return float(np.sum(c * h * duals[self.loss]) - self.alpha)

    def bracket(self) -> tuple[float, float]:
        high = 1 / float(np.abs(self.responses).max())
        while self.slope(high) > 0:
            high *= 2
        return 0.0, high

    def root(self) -> float:
        return float(brentq(self.slope, *self.bracket(), xtol=1e-300, rtol=1e-14, maxiter=1000))


def lines(loss: str, kind: str, seeds: range, shares: tuple[float, ...]) -> Iterator[Line]:
    """Lines with a root; alpha is a share of the slope at 0.

    Without a response below alpha, the exponential loss has no minimum.
    """
    for seed in seeds:
        rng = np.random.default_rng(seed)
        m = int(rng.choice([3, 50, 1000]))
        responses = RESPONSES[kind](rng, m)
        margins = rng.choice([0.0, 1.0, 5.0]) * rng.standard_normal(m)
        weights = rng.exponential(size=m) if rng.random() < 0.5 else None
        read_only(responses, margins)
        slope = float(LOSSES[loss].duals(margins, weights) @ responses)
        for share in shares:
            if slope > 0 and responses.min() < share * slope:
                yield Line(loss, margins, responses, share * slope, weights)


def bisection(line: Line, low: float, high: float) -> float:
    """Algorithm 2 of the paper, to the precision of the numbers."""
    while high - low > 1e-15 * high:
        w = 0.5 * (low + high)
        if line.slope(w) > 0:
            low = w
        else:
            high = w
    return w


SHARES = (1e-12, 1e-7, 1e-3, 0.3)


@pytest.mark.parametrize("loss", SMOOTH)
def test_coefficient_is_root_of_derivative(loss: str) -> None:
    for kind in RESPONSES:
        n_lines = 0
        for line in lines(loss, kind, range(10), SHARES):
            step = line.search()
            assert step.is_bounded
            if loss in EQUATIONS:
                assert step.coef == pytest.approx(line.root(), rel=1e-8)
            else:  # the duals of hinges may be constant, and any point between the two a root
                slopes = [line.slope(factor * step.coef) for factor in (1 - 1e-8, 1 + 1e-8)]
                noise = 1e-12 * float(np.abs(line.duals) @ np.abs(line.responses))
                assert slopes[0] >= -noise
                assert slopes[1] <= noise
            n_lines += 1
        assert n_lines > 4


@pytest.mark.parametrize("loss", EQUATIONS)
def test_coefficient_matches_bisection(loss: str) -> None:
    for kind in RESPONSES:
        for line in lines(loss, kind, range(100, 103), SHARES):
            step = line.search()
            assert step.coef == pytest.approx(bisection(line, *line.bracket()), rel=1e-8)


@pytest.mark.parametrize("loss", SMOOTH)
def test_coefficient_is_minimum(loss: str) -> None:
    for kind in RESPONSES:
        for line in lines(loss, kind, range(5), SHARES):
            step = line.search()
            lowest = line.value(step.coef)
            assert lowest < line.value(0)
            assert step.change == pytest.approx(lowest - line.value(0), rel=1e-6, abs=1e-12)
            for factor in (0.5, 0.99, 1.01, 2):
                assert lowest <= line.value(factor * step.coef) + 1e-13 * abs(lowest)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_evaluations_are_counted(loss: str, dtype: type[np.floating]) -> None:
    for line in lines(loss, "squares", range(10), (1e-7,)):
        margins, responses = line.margins.astype(dtype), line.responses.astype(dtype)
        weights = None if line.weights is None else line.weights.astype(dtype)
        counting = Counting(LOSSES[loss])
        objective = objective_of(counting, margins, responses, Trace(line.alpha), weights)
        objective.evaluate()
        counting.calls = 0
        step = line_search(objective, ONE.astype(dtype))
        assert step.n_evaluations == counting.calls
        assert objective.M.trace == 0  # a search does not change M
        objective.take(Step(ONE.astype(dtype)[:, None], np.array([step.coef])))
        after = objective.evaluate()
        assert counting.calls == step.n_evaluations
        expected = margins + dtype(step.coef) * responses
        value = LOSSES[loss].value(expected, weights) + line.alpha * step.coef
        assert after.value == pytest.approx(value, rel=1e-12 if dtype is np.float64 else 1e-5)
        assert after.n_violated == np.count_nonzero(expected <= 0)


@pytest.mark.parametrize("loss", EQUATIONS)
def test_float32_coefficient_is_accurate(loss: str) -> None:
    for line in lines(loss, "squares", range(15), (1e-7, 1e-3)):
        root = line.root()
        line.margins, line.responses = (
            a.astype(np.float32) for a in (line.margins, line.responses)
        )
        assert line.search().coef == pytest.approx(root, rel=1e-4)


@pytest.mark.parametrize("loss", EQUATIONS)
@pytest.mark.parametrize("alpha", [1e-12, 1e-7, 1e-3])
def test_fit_needs_few_evaluations(loss: str, alpha: float) -> None:
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    counting = Counting(LOSSES[loss])
    calls: list[int] = []

    def note(fit: Boosting) -> bool:
        calls.append(counting.calls)
        return False

    options: dict[str, Any] = {"alpha": alpha, "max_iter": 60, "directions_per_step": 1}
    boost(X, Comparisons.from_labels(X, y), counting, callback=note, **options)
    evaluations = np.diff(calls)
    assert len(evaluations) > 30
    assert evaluations.max() <= 10
    assert evaluations.mean() <= 6.5


@pytest.mark.parametrize("loss", EQUATIONS)
@pytest.mark.parametrize("kind", ["normal", "squares"])
def test_typical_lines_need_few_evaluations(loss: str, kind: str) -> None:
    counts = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        responses, margins = (
            RESPONSES[kind](rng, 400),
            rng.choice([0, 1]) * rng.standard_normal(400),
        )
        line = Line(loss, margins, responses, 0.0, None)
        slope = float(line.duals @ responses)
        if slope > 0:
            line.alpha = 1e-7 * slope
            counts.append(line.search().n_evaluations)
    assert len(counts) > 15
    assert max(counts) <= 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponential_is_unbounded_if_all_margins_grow(
    dtype: type[np.floating], rng: np.random.Generator
) -> None:
    loss = LOSSES["exponential"]
    for share, spread, weighted in product((0.0, 1e-7, 0.01), (0.0, 1.0, 50.0), (False, True)):
        responses = rng.uniform(0.1, 5, 30).astype(dtype)
        margins = (spread * rng.standard_normal(30)).astype(dtype)
        weights = rng.uniform(0.5, 2, 30).astype(dtype) if weighted else None
        read_only(responses, margins)
        duals = loss.duals(margins, weights)
        alpha = share * float(duals @ responses)
        assert alpha < responses.min()
        step = Line("exponential", margins, responses, alpha, weights).search()
        assert not step.is_bounded
        assert 0 < step.coef < np.inf
        # The average margin grows until a loss of 1 falls to the machine epsilon.
        enough = -np.log(np.finfo(np.float64).eps) / (1 - share)
        assert step.coef * float(duals @ responses) == pytest.approx(enough, rel=1e-5)
        after = loss.value(margins + dtype(step.coef) * responses, weights)
        before = loss.value(margins, weights)
        assert step.change == pytest.approx(after + alpha * step.coef - before, rel=1e-4)
        assert step.change < -1


@pytest.mark.parametrize("loss", SMOOTH)
def test_zero_alpha_gives_finite_coefficient(loss: str) -> None:
    for kind in (*RESPONSES, "all positive"):
        for seed in range(8):
            rng = np.random.default_rng(seed)
            responses = (
                rng.exponential(size=40) if kind == "all positive" else RESPONSES[kind](rng, 40)
            )
            line = Line(loss, rng.standard_normal(40), responses, 0.0, None)
            if line.duals @ responses > 0:
                step = line.search()
                assert 0 < step.coef < np.inf
                assert step.change < 0
                assert step.is_bounded or (responses > 0).all()


def test_logistic_is_bounded_if_all_margins_grow() -> None:
    for share, weight, smallest in product((1e-12, 1e-3, 0.5), (1.0, 1e4), (1e-3, 1.0)):
        responses = np.linspace(smallest, 2, 50)
        line = Line("logistic", np.zeros(50), responses, 0.0, np.full(50, weight))
        line.alpha = share * float(line.duals @ responses)
        step = line.search()
        assert step.is_bounded
        assert step.coef == pytest.approx(line.root(), rel=1e-8)


@pytest.mark.parametrize("loss", EQUATIONS)
@pytest.mark.parametrize("size", [10.0, 800.0, 1400.0])
def test_underflowed_dual_is_not_ignored(loss: str, size: float) -> None:
    line = Line(loss, np.array([0.0, size]), np.array([1.0, -1.0]), 0.0, None)
    step = line.search()
    assert step.is_bounded
    assert step.coef == pytest.approx(size / 2, rel=1e-8)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_no_step_without_positive_slope(loss: str, alpha: float) -> None:
    step = Line(loss, np.zeros(3), np.array([1.0, -2.0, 1.0]), alpha, None).search()
    assert step.coef == 0
    assert step.is_bounded


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_coefficient_is_zero_at_rounding_level(dtype: type[np.floating], loss: str) -> None:
    for seed in range(5):
        # At the root no decrease is left. By rounding the slope may remain positive there, and a
        # further step would leave the objective unchanged or increase it.
        rng = np.random.default_rng(seed)
        line = Line(loss, rng.standard_normal(40), rng.standard_normal(40) + 0.5, 0.0, None)
        line.alpha = 0.1 * float(line.duals @ line.responses)
        line.margins, line.responses = (a.astype(dtype) for a in (line.margins, line.responses))
        objective = line.objective
        direction = ONE.astype(dtype)
        values = [objective.evaluate().value]
        for _ in range(50):
            step = line_search(objective, direction)
            if step.coef == 0:
                break
            assert step.change < 0
            objective.take(Step(direction[:, None], np.array([step.coef])))
            values.append(objective.evaluate().value)
        assert step.coef == 0
        assert len(values) < 10
        rounding = 1e-14 if dtype is np.float64 else 1e-6
        assert (np.diff(values) <= rounding * abs(values[-1])).all()


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("seed", range(3))
def test_frobenius_coefficient_is_root_of_derivative(seed: int, loss: str) -> None:
    rng = np.random.default_rng(seed)
    responses, margins = rng.standard_normal(100) + 1, rng.standard_normal(100)
    before, alpha = 0.02, float(rng.uniform(0.01, 5)) * (0.01 if loss == "exponential" else 1)
    objective = objective_of(loss, margins, responses, Frobenius(alpha))
    objective.take(Step(ONE[:, None], np.array([before])))

    def slope(w: float) -> float:
        duals = LOSSES[loss].duals(margins + (before + w) * responses)
        return float(duals @ responses - alpha * (before + w))

    assert slope(0) > 0
    step = line_search(objective, ONE)
    root = brentq(slope, 0, slope(0) / alpha, xtol=1e-14)
    assert step.coef == pytest.approx(root, rel=1e-8)
    assert step.is_bounded
