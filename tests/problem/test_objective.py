"""The objective and its derivatives against sums over comparisons, in one block and in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, blocks_of, problem_of, read_only
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator
from scipy.special import expit, logsumexp, softmax

from boostmetric.engines import Local, StopRequested
from boostmetric.problem import (
    REGULARIZERS,
    Comparisons,
    Evaluation,
    Objective,
    Operator,
    StackOperator,
    Step,
    as_loss,
    block,
)

N, D, M_TERMS, ALPHA = 14, 4, 45, 0.3
LENGTH = 1e-5
PENALTIES = ["trace", "frobenius"]


class Oracle:
    """Dense matrices, and the formulas of losses and penalties."""

    def __init__(self, loss: str, weighted: bool, regularizer: str, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.loss, self.regularizer = loss, regularizer
        self.X = 3 * rng.normal(size=(N, D))
        rows = np.array([rng.permutation(N)[:4] for _ in range(M_TERMS)])
        self.gaps = rng.uniform(-0.5, 1, M_TERMS) if weighted else np.zeros(M_TERMS)
        self.weights = rng.uniform(0.3, 3, M_TERMS) if weighted else np.ones(M_TERMS)
        given: dict[str, Any] = {"gaps": self.gaps, "weights": self.weights} if weighted else {}
        self.comparisons = Comparisons.from_quadruplets(rows, **given)
        read_only(self.X)
        self.exponent = int(np.frexp(np.abs(self.X - self.X.mean(axis=0)).max())[1])
        points = self.X / 2.0**self.exponent
        differences = (points[rows[:, a]] - points[rows[:, b]] for a, b in ((0, 1), (2, 3)))
        self.near, self.far = (np.einsum("ri,rj->rij", each, each) for each in differences)
        self.A = self.far - self.near

    def objective(self, n_blocks: int, n_jobs: int = 1) -> Objective:
        regularizer = REGULARIZERS[self.regularizer](ALPHA)
        made = blocks_of(self.X, self.comparisons, self.loss, n_blocks, regularizer, n_jobs)
        assert len(made.blocks) == n_blocks
        assert {each.operator.exponent for each in made.blocks} == {self.exponent}
        return made

    def margins(self, M: NDArray) -> NDArray:
        return np.einsum("rij,ij->r", self.A, M) - self.gaps

    def F(self, M: NDArray) -> float:
        margins, c = self.margins(M), self.weights
        short = np.maximum(1 - margins, 0)
        values: dict[str, Callable[[], float]] = {
            "exponential": lambda: logsumexp(-margins, b=c),
            "logistic": lambda: c @ np.logaddexp(0, -margins),
            "squared_hinge": lambda: c @ short**2,
            "smoothed_hinge": lambda: c @ np.where(short <= 0.5, short**2, short - 0.25),
        }
        return float(values[self.loss]())

    def R(self, M: NDArray) -> float:
        return float(ALPHA * (np.trace(M) if self.regularizer == "trace" else np.sum(M**2) / 2))

    def value(self, M: NDArray) -> float:
        return self.F(M) + self.R(M)

    def duals(self, M: NDArray) -> NDArray:
        margins, c = self.margins(M), self.weights
        duals: dict[str, Callable[[], NDArray]] = {
            "exponential": lambda: softmax(np.log(c) - margins),
            "logistic": lambda: c * expit(-margins),
            "squared_hinge": lambda: 2 * c * np.maximum(1 - margins, 0),
            "smoothed_hinge": lambda: c * np.clip(2 * (1 - margins), 0, 1),
        }
        return duals[self.loss]()

    def scatter(self, M: NDArray) -> NDArray:
        return np.tensordot(self.duals(M), self.A, 1)


# With and without gaps and weights, both penalties, in one block and in three.
CASES = [
    case
    for number, loss in enumerate(SMOOTH)
    for case in (
        (loss, True, PENALTIES[number % 2], 3),
        (loss, False, PENALTIES[number % 2 - 1], 1),
        (loss, True, PENALTIES[number % 2 - 1], 1),
    )
]
NAMES = ("loss", "weighted", "regularizer", "n_blocks")
every_problem = pytest.mark.parametrize(NAMES, CASES)
some_problems = pytest.mark.parametrize(NAMES, CASES[::2])


def unit_columns(rng: np.random.Generator, k: int) -> NDArray:
    V = rng.normal(size=(D, k))
    V /= np.linalg.norm(V, axis=0)
    read_only(V)
    return V


def draw_steps(seed: int = 1) -> list[Step]:
    """Steps of one and several directions that add to M, scale it, and replace it."""
    rng = np.random.default_rng(seed)
    return [
        Step(unit_columns(rng, k), rng.uniform(0.2, 1.5, k), scale)
        for k, scale in ((1, 1.0), (3, 0.7), (2, 1.0), (2, 0.0), (1, 0.7), (3, 1.0), (1, 0.0))
    ]


def after(M: NDArray, step: Step) -> NDArray:
    return step.scale * M + sum(
        w * np.outer(v, v) for v, w in zip(step.directions.T, step.coefs, strict=True)
    )


def positions(problem: Objective) -> Iterator[NDArray]:
    """M = 0 and M after every step, to which the problem has been taken."""
    M = np.zeros((D, D))
    yield M
    for step in draw_steps():
        problem.take(step)
        M = after(M, step)
        yield M


def assert_is(found: Evaluation, oracle: Oracle, M: NDArray) -> None:
    """The evaluation at M, without its scatter."""
    assert found.value == pytest.approx(oracle.value(M), rel=1e-11, abs=1e-11)
    assert found.dual_sum == pytest.approx(oracle.duals(M).sum(), rel=1e-11)
    assert found.n_violated == np.count_nonzero(oracle.margins(M) <= 0)
    products = np.abs(np.einsum("rij,ij->r", oracle.A, M))
    assert found.largest == pytest.approx(products.max(), rel=1e-11, abs=1e-14)


@every_problem
def test_evaluate_matches_the_oracle(
    loss: str, weighted: bool, regularizer: str, n_blocks: int
) -> None:
    oracle = Oracle(loss, weighted, regularizer)
    problem = oracle.objective(n_blocks)
    for M in positions(problem):
        found = problem.evaluate()
        assert_is(found, oracle, M)
        np.testing.assert_allclose(
            np.asarray(found.scatter), oracle.scatter(M), rtol=1e-10, atol=1e-12
        )
        assert problem.M.matrix == pytest.approx(M, rel=1e-12)
        assert problem.M.metric.matrix == pytest.approx(M, rel=1e-12)
        assert problem.evaluate(with_scatter=False).scatter is None


@every_problem
def test_scatter_of_many_features_is_a_linear_operator(
    loss: str, weighted: bool, regularizer: str, n_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Operator, "DENSE_UP_TO", D - 1)
    oracle = Oracle(loss, weighted, regularizer)
    problem, rng = oracle.objective(n_blocks), np.random.default_rng(2)
    for M in positions(problem):
        found = problem.evaluate()
        assert_is(found, oracle, M)
        assert isinstance(found.scatter, LinearOperator)
        assert problem.M.matrix is None
        V, scatter = rng.normal(size=(D, 2)), oracle.scatter(M)
        np.testing.assert_allclose(found.scatter @ V, scatter @ V, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(
            found.scatter @ V[:, 0], scatter @ V[:, 0], rtol=1e-9, atol=1e-10
        )


@every_problem
def test_along_matches_the_oracle(
    loss: str, weighted: bool, regularizer: str, n_blocks: int
) -> None:
    oracle = Oracle(loss, weighted, regularizer)
    problem, rng = oracle.objective(n_blocks), np.random.default_rng(3)
    for M in positions(problem):
        v = unit_columns(rng, 1)[:, 0]
        h = np.einsum("i,rij,j->r", v, oracle.A, v)
        for w in (0.0, 0.4, 3.0, 0.0):
            there = M + w * np.outer(v, v)
            u = oracle.duals(there)
            expected = [oracle.F(there), u @ h, u @ np.abs(h), 0, 0, 0]
            if w == 0:
                expected[3:] = [
                    u.sum(),
                    sum(u_r * h_r**2 for u_r, h_r in zip(u, h, strict=True) if h_r > 0),
                    sum(u_r * h_r**2 for u_r, h_r in zip(u, h, strict=True) if h_r < 0),
                ]
            np.testing.assert_allclose(problem.along(v, w), expected, rtol=1e-9, atol=1e-11)
        assert_is(problem.evaluate(), oracle, M)


@some_problems
@pytest.mark.parametrize("measured", [True, False])
def test_on_slice_matches_the_oracle(
    loss: str,
    weighted: bool,
    regularizer: str,
    n_blocks: int,
    measured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not measured:
        monkeypatch.setattr(block, "MAX_ENTRIES", 0)
    oracle = Oracle(loss, weighted, regularizer)
    problem, rng = oracle.objective(n_blocks), np.random.default_rng(4)
    for M in positions(problem):
        V = unit_columns(rng, 3)

        def value(z: NDArray, M: NDArray = M, V: NDArray = V) -> float:
            return oracle.value(z[0] * M + (V * z[1:]) @ V.T)

        evaluate, fixed = problem.on_slice(V, True), problem.on_slice(V, False)
        for scale in (1.0, 0.7, 0.0):
            z = np.append(scale, rng.uniform(0, 1, 3))
            found, gradient = evaluate(scale, z[1:])
            assert found == pytest.approx(value(z), rel=1e-11)
            steps = LENGTH * np.eye(4)
            slopes = np.array([value(z + e) - value(z - e) for e in steps]) / (2 * LENGTH)
            np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-6)
            found, gradient = fixed(scale, z[1:])
            assert found == pytest.approx(value(z), rel=1e-11)
            np.testing.assert_allclose(gradient[1:], slopes[1:], rtol=1e-6, atol=1e-6)
            products = np.einsum("rij,ij->r", oracle.A, scale * M + (V * z[1:]) @ V.T)
            largest = problem.largest_value(V, scale, z[1:])
            assert largest == pytest.approx(np.abs(products).max(), rel=1e-11)
        assert_is(problem.evaluate(), oracle, M)


@some_problems
@pytest.mark.parametrize("measured", [True, False])
def test_step_to_a_tried_point(
    loss: str,
    weighted: bool,
    regularizer: str,
    n_blocks: int,
    measured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not measured:
        monkeypatch.setattr(block, "MAX_ENTRIES", 0)
    oracle = Oracle(loss, weighted, regularizer)
    problem, M = oracle.objective(n_blocks), np.zeros((D, D))
    for step in draw_steps():
        for coefs, scale in ((step.coefs, 0.4), (2 * step.coefs, step.scale)):
            problem.on_slice(step.directions, True)(scale, coefs)
        problem.on_slice(step.directions, True)(step.scale, step.coefs)
        problem.take(step)
        M = after(M, step)
        assert_is(problem.evaluate(), oracle, M)
        problem.along(step.directions[:, 0], 0.5)
        problem.take(Step(step.directions[:, :1], np.array([0.5])))
        M = after(M, problem.M.steps[-1])
        assert_is(problem.evaluate(), oracle, M)


@pytest.mark.parametrize("n_blocks", [1, 3])
@pytest.mark.parametrize(
    ("turned", "coef", "scale"), [(1, 1.0, 1.0), (0, 2.0, 1.0), (0, 1.0, 0.7), (0, 1.0, 0.0)]
)
@pytest.mark.parametrize("k", [1, 3])
def test_step_to_another_point(
    k: int, turned: int, coef: float, scale: float, n_blocks: int
) -> None:
    oracle, rng = Oracle("logistic", True, "trace"), np.random.default_rng(9)
    problem, (first, *_) = oracle.objective(n_blocks), draw_steps()
    V, W, w = unit_columns(rng, k), unit_columns(rng, k), rng.uniform(0.2, 1, k)
    problem.take(first)
    problem.on_slice(V, True)(1.0, w)
    step = Step(W if turned else V, coef * w, scale)
    problem.take(step)
    assert_is(problem.evaluate(), oracle, after(after(np.zeros((D, D)), first), step))


def random_symmetric(rng: np.random.Generator) -> NDArray:
    A = rng.normal(size=(D, D)) / 2
    return A + A.T


@some_problems
def test_evaluate_at_and_gradient_at_match_the_oracle(
    loss: str, weighted: bool, regularizer: str, n_blocks: int
) -> None:
    oracle = Oracle(loss, weighted, regularizer)
    problem, rng = oracle.objective(n_blocks), np.random.default_rng(5)
    problem.take(draw_steps()[1])
    for _ in range(2):
        M = random_symmetric(rng)
        found = problem.evaluate_at(M)
        assert_is(found, oracle, M)
        np.testing.assert_allclose(
            np.asarray(found.scatter), oracle.scatter(M), rtol=1e-9, atol=1e-11
        )
        gradient = problem.gradient_at(M, found)
        for _ in range(4):
            E = random_symmetric(rng)
            ahead, behind = (oracle.value(M + t * E) for t in (LENGTH, -LENGTH))
            slope = (ahead - behind) / (2 * LENGTH)
            assert np.sum(gradient * E) == pytest.approx(slope, rel=1e-6, abs=1e-6)
        bare = problem.evaluate_at(M, with_scatter=False)
        assert bare.scatter is None
        assert_is(bare, oracle, M)
    assert_is(problem.evaluate(), oracle, after(np.zeros((D, D)), draw_steps()[1]))


@some_problems
def test_absolute_scatter_at_matches_the_oracle(
    loss: str, weighted: bool, regularizer: str, n_blocks: int
) -> None:
    oracle = Oracle(loss, weighted, regularizer)
    problem, M = oracle.objective(n_blocks), random_symmetric(np.random.default_rng(7))
    expected = np.tensordot(oracle.duals(M), oracle.far + oracle.near, 1)
    found = problem.absolute_scatter_at(M)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    expected = np.tensordot(oracle.weights, oracle.far + oracle.near, 1)
    assert problem.absolute_scatter.dtype == np.float64
    np.testing.assert_allclose(problem.absolute_scatter, expected, rtol=1e-9, atol=1e-11)


def satisfied(n_satisfied: int) -> tuple[NDArray, Comparisons]:
    """Six comparisons on a line, of which the first ones are satisfied."""
    near = np.array([0.5] * n_satisfied + [3.0] * (6 - n_satisfied))
    X = np.concatenate([[0.0, 4.0], near])[:, None]
    return X, Comparisons.from_triplets([[0, 2 + r, 1] for r in range(6)], gaps=0.0)


@pytest.mark.parametrize("n_satisfied", [2, 4, 6])
@pytest.mark.parametrize("loss", ["squared_hinge", "smoothed_hinge"])
def test_absolute_scatter_ignores_blocks_without_violations(loss: str, n_satisfied: int) -> None:
    X, comparisons = satisfied(n_satisfied)
    M = np.array([[0.1]])  # margins 1.575 and 0.7
    one, three = (blocks_of(X, comparisons, loss, n, REGULARIZERS["trace"](0.0)) for n in (1, 3))
    unit = one.blocks[0].operator.unit
    found = [float(each.absolute_scatter_at(M * unit)[0, 0]) * unit for each in (one, three)]
    dual = {"squared_hinge": 0.6, "smoothed_hinge": 0.6}[loss]
    sizes = [16 + 0.25] * n_satisfied + [16.0 + 9] * (6 - n_satisfied)
    assert as_loss(loss).duals(np.array([1.575, 0.7])) == pytest.approx([0, dual])
    assert found == pytest.approx([dual * sum(sizes[n_satisfied:])] * 2, rel=1e-12)


@some_problems
@pytest.mark.parametrize("measured", [True, False])
def test_response_sizes_match_the_oracle(
    loss: str,
    weighted: bool,
    regularizer: str,
    n_blocks: int,
    measured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not measured:
        monkeypatch.setattr(block, "MAX_ENTRIES", 0)
    oracle = Oracle(loss, weighted, regularizer)
    problem, V = oracle.objective(n_blocks), unit_columns(np.random.default_rng(8), 3)
    problem.take(draw_steps()[1])
    sizes = np.einsum("ij,rik,kj->rj", V, oracle.far + oracle.near, V)
    expected = oracle.weights @ sizes / oracle.weights.sum()
    np.testing.assert_allclose(problem.response_sizes(V), expected, rtol=1e-11)


@pytest.mark.parametrize("n_blocks", [1, 3])
def test_query_of_all_blocks_is_one_round(n_blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Oracle("logistic", False, "trace").objective(n_blocks)
    problem.evaluate()
    problem.take(draw_steps()[0])
    problem.along(draw_steps()[0].directions[:, 0], 0.0)
    assert problem.n_rounds == 2
    problem.evaluate_at(np.eye(D))
    assert problem.n_rounds == 3


def test_should_stop_is_called_before_every_query() -> None:
    oracle = Oracle("logistic", False, "trace")
    problem, answers = oracle.objective(2), [False, True, False]
    problem.should_stop = lambda: answers.pop(0)
    before = problem.evaluate()
    with pytest.raises(StopRequested):
        problem.evaluate()
    assert problem.evaluate().value == before.value
    assert problem.n_rounds == 2


@pytest.mark.parametrize(
    ("gaps", "weights", "message"),
    [
        (np.ones(3), None, r"gaps must have shape \(2,\), one per matrix; got \(3,\)"),
        (np.array([0, np.nan]), None, "gaps must be finite"),
        (None, np.ones((2, 1)), r"weights must have shape \(2,\), one per matrix; got \(2, 1\)"),
        (None, np.array([1.0, 0.0]), "weights must be positive.* between 0 and 1"),
        (None, np.array([1.0, -2.0]), "weights must be positive"),
        (None, np.array([1.0, np.nan]), "weights must be positive"),
        (None, np.array([1.0, np.inf]), "weights must be positive"),
    ],
)
def test_invalid_terms_are_rejected(
    gaps: NDArray | None, weights: NDArray | None, message: str
) -> None:
    operator, regularizer = StackOperator(np.ones((2, 1, 1))), REGULARIZERS["trace"](0.0)
    with pytest.raises(ValueError, match=message):
        Objective.of_operator(Local(1), operator, as_loss("logistic"), regularizer, gaps, weights)


@pytest.mark.parametrize("loss", SMOOTH)
def test_of_operator_matches_the_oracle(loss: str) -> None:
    oracle = Oracle(loss, True, "frobenius")
    problem = problem_of(oracle.X, oracle.comparisons, loss, ALPHA, "frobenius")
    assert problem.layout == (M_TERMS,)
    unit = 4.0**oracle.exponent
    M = after(np.zeros((D, D)), draw_steps()[1])
    problem.take(Step(draw_steps()[1].directions, draw_steps()[1].coefs / unit))
    found = problem.evaluate()
    assert found.value == pytest.approx(oracle.F(M) + oracle.R(M / unit), rel=1e-11)
    np.testing.assert_allclose(
        np.asarray(found.scatter), unit * oracle.scatter(M), rtol=1e-10, atol=1e-10
    )
