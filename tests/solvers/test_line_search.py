from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from conftest import SMOOTH, read_only
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.datasets import load_wine

from boostmetric import LOSSES, Boosting, Comparisons, Loss, boost
from boostmetric.stagewise import Step, line_search

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

    def search(self) -> Step:
        loss, weights = LOSSES[self.loss], self.weights
        return line_search(
            partial(loss.duals, weights=weights),
            self.margins,
            self.duals,
            self.responses,
            self.alpha,
        )

    def slope(self, w: float) -> float:
        """The left-hand side of EQ:w or EQ:w2, positive before the root."""
        h = self.responses
        c = np.ones(len(h)) if self.weights is None else self.weights
        if self.loss == "exponential":
            exponents = np.log(c) - self.margins - w * h
            return float(np.sum((h - self.alpha) * np.exp(exponents - exponents.max())))
        return float(np.sum(c * h * expit(-self.margins - w * h)) - self.alpha)

    def bracket(self) -> tuple[float, float]:
        high = 1 / float(np.abs(self.responses).max())
        while self.slope(high) > 0:
            high *= 2
        return 0.0, high


def lines(loss: str, kind: str, seeds: range, shares: tuple[float, ...]) -> Iterator[Line]:
    """Lines with a root, the price alpha being a share of the slope at 0.

    Without a response below alpha the exponential loss has none.
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


@pytest.mark.parametrize("loss", EQUATIONS)
@pytest.mark.parametrize("kind", RESPONSES)
def test_the_coefficient_is_the_root_of_the_papers_equation(loss: str, kind: str) -> None:
    n_lines = 0
    for line in lines(loss, kind, range(40), SHARES):
        root = brentq(line.slope, *line.bracket(), xtol=1e-300, rtol=1e-14, maxiter=1000)
        step = line.search()
        assert step.bounded
        assert step.coef == pytest.approx(root, rel=1e-8)
        n_lines += 1
    assert n_lines > 40


@pytest.mark.parametrize("loss", EQUATIONS)
@pytest.mark.parametrize("kind", RESPONSES)
def test_the_coefficient_is_that_of_the_papers_bisection(loss: str, kind: str) -> None:
    for line in lines(loss, kind, range(100, 115), SHARES):
        step = line.search()
        assert step.coef == pytest.approx(bisection(line, *line.bracket()), rel=1e-8)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("kind", RESPONSES)
def test_the_coefficient_is_the_minimum_along_the_line(loss: str, kind: str) -> None:
    for line in lines(loss, kind, range(20), SHARES):
        step = line.search()

        def objective(w: float, line: Line = line) -> float:
            return LOSSES[loss].value(line.margins + w * line.responses, line.weights) + (
                line.alpha * w
            )

        lowest = objective(step.coef)
        assert lowest < objective(0)
        for factor in (0.5, 0.99, 1.01, 2):
            assert lowest <= objective(factor * step.coef) + 1e-13 * abs(lowest)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_has_the_margins_and_duals_of_its_coefficient(
    loss: str, dtype: type[np.floating]
) -> None:
    for line in lines(loss, "squares", range(10), (1e-7,)):
        margins, responses = line.margins.astype(dtype), line.responses.astype(dtype)
        weights = None if line.weights is None else line.weights.astype(dtype)
        read_only(margins, responses)
        counting = Counting(LOSSES[loss])
        duals = LOSSES[loss].duals(margins, weights)
        read_only(duals)
        step = line_search(
            partial(counting.duals, weights=weights), margins, duals, responses, line.alpha
        )
        expected = margins + dtype(step.coef) * responses
        assert np.array_equal(step.margins, expected)
        assert np.array_equal(step.duals, LOSSES[loss].duals(expected, weights))
        assert step.margins.dtype == step.duals.dtype == dtype
        assert step.n_evaluations == counting.calls


@pytest.mark.parametrize("loss", EQUATIONS)
def test_float32_finds_the_root_to_its_own_precision(loss: str) -> None:
    for line in lines(loss, "squares", range(40), (1e-7, 1e-3)):
        root = brentq(line.slope, *line.bracket(), xtol=1e-300, rtol=1e-14)
        margins, responses = (a.astype(np.float32) for a in (line.margins, line.responses))
        weights = None if line.weights is None else line.weights.astype(np.float32)
        duals = LOSSES[loss].duals(margins, weights)
        step = line_search(
            partial(LOSSES[loss].duals, weights=weights), margins, duals, responses, line.alpha
        )
        assert step.coef == pytest.approx(root, rel=1e-4)


@pytest.mark.parametrize("loss", EQUATIONS)
@pytest.mark.parametrize("alpha", [1e-12, 1e-7, 1e-3])
def test_a_fit_needs_few_evaluations(loss: str, alpha: float) -> None:
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    counting = Counting(LOSSES[loss])
    calls: list[int] = []

    def note(fit: Boosting) -> bool:
        calls.append(counting.calls)
        return False

    boost(X, Comparisons.from_labels(X, y), counting, alpha=alpha, max_iter=60, callback=note)
    evaluations = np.diff(calls)
    assert len(evaluations) > 30
    assert evaluations.max() <= 10
    assert evaluations.mean() <= 6.5


@pytest.mark.parametrize("loss", EQUATIONS)
@pytest.mark.parametrize("kind", ["normal", "squares"])
def test_typical_lines_need_few_evaluations(loss: str, kind: str) -> None:
    counts = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        responses, margins = (
            RESPONSES[kind](rng, 400),
            rng.choice([0, 1]) * rng.standard_normal(400),
        )
        line = Line(loss, margins, responses, 0.0, None)
        slope = float(line.duals @ responses)
        if slope > 0:
            counting = Counting(LOSSES[loss])
            line_search(counting.duals, margins, line.duals, responses, 1e-7 * slope)
            counts.append(counting.calls)
    assert len(counts) > 30
    assert max(counts) <= 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [0.0, 1e-7, 0.01])
@pytest.mark.parametrize("spread", [0.0, 1.0, 50.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_direction_that_lifts_all_margins_is_unbounded_for_the_exponential_loss(
    dtype: type[np.floating], share: float, spread: float, weighted: bool, rng: np.random.Generator
) -> None:
    loss = LOSSES["exponential"]
    responses = rng.uniform(0.1, 5, 30).astype(dtype)
    margins = (spread * rng.standard_normal(30)).astype(dtype)
    weights = rng.uniform(0.5, 2, 30).astype(dtype) if weighted else None
    read_only(responses, margins)
    duals = loss.duals(margins, weights)
    alpha = share * float(duals @ responses)
    assert alpha < responses.min()
    counting = Counting(loss)
    step = line_search(partial(counting.duals, weights=weights), margins, duals, responses, alpha)
    assert not step.bounded
    assert step.n_evaluations == counting.calls
    assert 0 < step.coef < np.inf
    assert np.isfinite(step.margins).all()
    assert np.isfinite(step.duals).all()
    assert (step.margins > margins).all()
    assert np.array_equal(step.margins, margins + dtype(step.coef) * responses)
    assert np.array_equal(step.duals, loss.duals(step.margins, weights))
    # The average margin grows by what makes a loss vanish beside one of 1 in float64.
    enough = -np.log(np.finfo(np.float64).eps) / (1 - share)
    assert step.coef * float(duals @ responses) == pytest.approx(enough, rel=1e-5)
    before, after = (loss.value(m, weights) for m in (margins, step.margins))
    assert after + alpha * step.coef < before - 1


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("kind", [*RESPONSES, "all positive"])
def test_no_price_gives_no_nan(loss: str, kind: str) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        responses = rng.exponential(size=40) if kind == "all positive" else RESPONSES[kind](rng, 40)
        margins = rng.standard_normal(40)
        duals = LOSSES[loss].duals(margins)
        if duals @ responses > 0:
            step = line_search(LOSSES[loss].duals, margins, duals, responses, 0.0)
            assert 0 < step.coef < np.inf
            assert np.isfinite(step.margins).all()
            assert np.isfinite(step.duals).all()
            assert step.bounded or (responses > 0).all()


@pytest.mark.parametrize("share", [1e-12, 1e-7, 1e-3, 0.5])
@pytest.mark.parametrize("weight", [1.0, 1e4])
@pytest.mark.parametrize("smallest", [1e-3, 0.1, 1.0])
def test_the_logistic_loss_is_bounded_where_all_margins_are_lifted(
    share: float, weight: float, smallest: float
) -> None:
    responses = np.linspace(smallest, 2, 50)
    margins, weights = np.zeros(50), np.full(50, weight)
    line = Line("logistic", margins, responses, 0.0, weights)
    line.alpha = share * float(line.duals @ responses)
    step = line.search()
    assert step.bounded
    root = brentq(line.slope, *line.bracket(), xtol=1e-300, rtol=1e-14)
    assert step.coef == pytest.approx(root, rel=1e-8)


@pytest.mark.parametrize("loss", EQUATIONS)
@pytest.mark.parametrize("size", [10.0, 800.0, 1400.0])
def test_a_comparison_whose_dual_has_underflowed_still_counts(loss: str, size: float) -> None:
    margins, responses = np.array([0.0, size]), np.array([1.0, -1.0])
    duals = LOSSES[loss].duals(margins)
    step = line_search(LOSSES[loss].duals, margins, duals, responses, 0.0)
    assert step.bounded
    assert step.coef == pytest.approx(size / 2, rel=1e-8)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_no_step_is_made_where_the_slope_is_not_positive(loss: str, alpha: float) -> None:
    margins, responses = np.zeros(3), np.array([1.0, -2.0, 1.0])
    duals = LOSSES[loss].duals(margins)
    step = line_search(LOSSES[loss].duals, margins, duals, responses, alpha)
    assert step.coef == 0
    assert step.bounded
    assert np.array_equal(step.margins, margins)
    assert np.array_equal(step.duals, duals)
