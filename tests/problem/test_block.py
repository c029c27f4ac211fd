"""Blocks that are lost, late or sent back: the same bits as if nothing had happened."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from conftest import block_of, blocks_of, read_only
from numpy.typing import NDArray

from boostmetric.problem import (
    REGULARIZERS,
    Block,
    Comparisons,
    Evaluation,
    Logistic,
    NotANumberError,
    Objective,
    Operator,
    Step,
    Sum,
)

N, D, M_TERMS, N_BLOCKS = 40, 18, 120, 3

both_dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.fixture
def is_dense(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    return bool(request.param)


Steps = tuple[Step, ...]


def draw(dtype: type[np.floating] = np.float64) -> tuple[NDArray, Comparisons]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(dtype)
    rows = np.array([rng.permutation(N)[:3] for _ in range(M_TERMS)])
    read_only(X)
    gaps, weights = rng.uniform(-0.5, 0.5, M_TERMS), rng.uniform(0.5, 2, M_TERMS)
    return X, Comparisons.from_triplets(rows, gaps=gaps, weights=weights)


def make(loss: str = "logistic", dtype: type[np.floating] = np.float64) -> Objective:
    return blocks_of(*draw(dtype), loss, N_BLOCKS, REGULARIZERS["frobenius"](0.1))


def replace_block(problem: Objective, number: int, dtype: type[np.floating] = np.float64) -> None:
    """Lose a block, and make another from the same data."""
    X, comparisons = draw(dtype)
    rows = np.array_split(np.arange(M_TERMS), N_BLOCKS)[number]
    lost = problem.blocks[number]
    new = block_of(X, comparisons[rows], problem.loss, lost.operator.exponent, lost.threads)
    problem.blocks = [*problem.blocks[:number], new, *problem.blocks[number + 1 :]]


def unit_columns(rng: np.random.Generator, k: int, dtype: Any = np.float64) -> NDArray:
    V = rng.normal(size=(D, k))
    V = (V / np.linalg.norm(V, axis=0)).astype(dtype)
    read_only(V)
    return V


def draw_steps(scales: tuple[float, ...], dtype: type[np.floating] = np.float64) -> list[Step]:
    rng = np.random.default_rng(1)
    return [
        Step(unit_columns(rng, k, dtype), rng.uniform(0.1, 0.6, k), scale)
        for k, scale in zip((1, 5, 4, 1, 6, 3, 1), scales, strict=False)
    ]


def search(problem: Objective, step: Step) -> None:
    """Query a problem as a solver does that is going to take a step."""
    problem.response_sizes(step.directions)
    if step.directions.shape[1] == 1 and step.scale == 1:
        for coef in (0.0, 0.3, *step.coefs):
            problem.along(step.directions[:, 0], float(coef))
        return
    evaluate = problem.on_slice(step.directions, True)
    for scale, coefs in ((0.5, 2 * step.coefs), (step.scale, step.coefs)):
        evaluate(scale, coefs)


Bits = list[bytes]


def bits(problem: Objective) -> Bits:
    """Everything that can be asked at M, to the last bit."""
    now, rng = problem.evaluate(), np.random.default_rng(2)
    V = unit_columns(rng, 3, problem.dtype)
    assert now.scatter is not None
    value, gradient = problem.on_slice(V, True)(0.8, np.array([0.1, 0.2, 0.3]))
    numbers: list[Any] = [
        *(now.value, now.dual_sum, now.n_violated, now.largest),
        now.scatter @ np.eye(D, dtype=problem.dtype),
        problem.along(V[:, 0], 0.0),
        problem.along(V[:, 0], 0.7),
        *(value, gradient),
        problem.evaluate(with_scatter=False).value,
    ]
    return [np.asarray(number).tobytes() for number in numbers]


SCALES = {
    "adding": (1.0,) * 5,
    "scaling": (1.0, 0.7, 1.0, 0.7, 0.9),
    "replacing": (1.0, 0.7, 0.0, 1.0, 0.8),
    "replacing at last": (1.0, 1.0, 0.7, 1.0, 0.0),
    "replacing by one": (1.0, 1.0, 1.0, 0.0),
}
every_path = pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)


@every_path
@pytest.mark.parametrize(
    ("loss", "dtype", "is_dense"),
    [("exponential", np.float32, True), ("smoothed_hinge", np.float64, False)],
    indirect=["is_dense"],
)
def test_lost_block_gives_the_same_bits(
    scales: tuple[float, ...], dtype: type[np.floating], loss: str, is_dense: bool
) -> None:
    problem, other = make(loss, dtype), make(loss, dtype)
    for step in draw_steps(scales, dtype):
        for each in (problem, other):
            search(each, step)
            each.take(step)
        replace_block(other, 1, dtype)
        assert bits(other) == bits(problem)


@every_path
@both_dtypes
def test_lost_blocks_repeat_all_steps(scales: tuple[float, ...], dtype: type[np.floating]) -> None:
    problem, other = make(dtype=dtype), make(dtype=dtype)
    for step in draw_steps(scales, dtype):
        for each in (problem, other):
            search(each, step)
            each.take(step)
            each.evaluate()
    expected = bits(problem)
    for lost in range(N_BLOCKS):
        replace_block(other, lost, dtype)
    assert bits(other) == expected


@pytest.mark.parametrize("scale", [0.0, 0.7, 1.0])
@both_dtypes
def test_bits_do_not_depend_on_known_measures(scale: float, dtype: type[np.floating]) -> None:
    """A block may know the first directions of a step from an earlier query."""
    problem, other = make(dtype=dtype), make(dtype=dtype)
    first, second = draw_steps((1.0, scale), dtype)
    V = np.column_stack([second.directions, unit_columns(np.random.default_rng(5), 4, dtype)])
    step = Step(V, np.linspace(0.1, 0.3, 9), scale)
    for each in (problem, other):
        each.take(first)
        for k in (1, 5, 7, 9):
            each.on_slice(V[:, :k], True)(scale, step.coefs[:k])
        each.take(step)
    replace_block(other, 1, dtype)
    assert bits(other) == bits(problem)


@both_dtypes
def test_block_lost_during_a_search_gives_the_same_bits(dtype: type[np.floating]) -> None:
    problem, other = make(dtype=dtype), make(dtype=dtype)
    V = unit_columns(np.random.default_rng(5), 3 * D, dtype)
    for k in (D, 2 * D, 2 * D + 3, 3 * D):
        coefs = np.linspace(0.1, 0.3, k)
        expected = problem.on_slice(V[:, :k], True)(0.0, coefs)
        replace_block(other, 1, dtype)
        found = other.on_slice(np.asfortranarray(V[:, :k]), True)(0.0, coefs)
        assert found[0] == expected[0]
        assert found[1].tobytes() == expected[1].tobytes()


def test_copied_block_repeats_the_steps() -> None:
    problem, other = make(), make()
    for step in draw_steps((1.0, 0.7, 1.0)):
        for each in (problem, other):
            search(each, step)
            each.take(step)
            each.evaluate()
    other.blocks = [pickle.loads(pickle.dumps(block)) for block in other.blocks]
    assert bits(other) == bits(problem)
    assert other.blocks[0].nbytes > other.blocks[0].operator.X.nbytes


def test_stale_block_receives_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, other = make(), make()
    sent: list[tuple[int, int]] = []
    query = Block.query

    def recording(self: Block, epoch: int, first: int, steps: Steps, *query_args: Any) -> Any:
        sent.append((first, first + len(steps)))
        return query(self, epoch, first, steps, *query_args)

    monkeypatch.setattr(Block, "query", recording)
    for step in draw_steps((1.0, 0.7, 1.0)):
        for each in (problem, other):
            each.take(step)
            each.evaluate()
    # A block that was lost knows nothing of the first three steps.
    step = draw_steps((1.0,))[0]
    replace_block(other, 1)
    for each in (problem, other):
        each.take(step)
    sent.clear()
    found = other.evaluate()
    assert sent == [(3, 4)] * 3 + [(0, 4)]
    assert_equal(found, problem.evaluate())
    sent.clear()
    assert_equal(other.evaluate(), problem.evaluate())
    assert sent == [(4, 4)] * 6


def test_block_takes_each_step_once() -> None:
    block = make().blocks[0]
    steps = tuple(draw_steps((1.0, 0.7, 1.0)))
    whole = block.query(0, 0, steps, Block.evaluate, True)
    assert whole is not None
    for first in (0, 1, 2, 3):
        again = block.query(0, first, steps[first:], Block.evaluate, True)
        assert again is not None
        assert again.value == whole.value


@pytest.mark.parametrize(
    ("epoch", "first", "last", "is_known"),
    [
        (0, 0, 4, True),
        (0, 2, 4, True),
        (0, 3, 4, False),
        (0, 1, 2, True),
        (0, 1, 1, False),
        (1, 1, 4, False),
        (1, 0, 4, True),
    ],
)
def test_query_returns_none_without_earlier_steps(
    epoch: int, first: int, last: int, is_known: bool
) -> None:
    block, steps = make().blocks[0], tuple(draw_steps((1.0,) * 4))
    assert block.query(0, 0, steps[:2], Block.evaluate, True) is not None
    found = block.query(epoch, first, steps[first:last], Block.evaluate, True)
    assert (found is not None) == is_known
    if found is not None:
        assert found.value == make().blocks[0].query(0, 0, steps[:last], Block.evaluate, True).value


def assert_equal(one: Evaluation, two: Evaluation) -> None:
    assert (one.value, one.dual_sum, one.n_violated) == (two.value, two.dual_sum, two.n_violated)
    assert np.array_equal(np.asarray(one.scatter), np.asarray(two.scatter))


# Back to an earlier M.


@every_path
@pytest.mark.parametrize(
    ("dtype", "is_dense"), [(np.float32, False), (np.float64, True)], indirect=["is_dense"]
)
def test_restore_gives_the_earlier_bits(
    scales: tuple[float, ...], dtype: type[np.floating], is_dense: bool
) -> None:
    problem = make(dtype=dtype)
    known: list[tuple[Sum, Bits]] = [(problem.M, bits(problem))]
    for step in draw_steps(scales, dtype):
        search(problem, step)
        problem.take(step)
        known.append((problem.M, bits(problem)))
    for number in (2, 0, len(known) - 1, 1, 3, 3, 0, 2):
        M, expected = known[number]
        problem.restore(M)
        assert bits(problem) == expected


@pytest.mark.parametrize("scale", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("n_back", [1, 2])
def test_restore_then_another_step(scale: float, n_back: int) -> None:
    """As many steps as before, and no query in between: the blocks must see the difference."""
    problem, expected = make(), make()
    steps = draw_steps((1.0, 0.7, 1.0, scale))
    reached = [problem.M]
    for step in steps[:3]:
        problem.take(step)
        problem.evaluate()
        reached.append(problem.M)
    problem.restore(reached[-1 - n_back])
    for step in steps[: 3 - n_back]:
        expected.take(step)
    for each in (problem, expected):
        for _ in range(n_back):
            each.take(steps[3])
    assert bits(problem) == bits(expected)


def test_restore_then_another_replacement() -> None:
    problem, expected = make(), make()
    first, one, two = draw_steps((1.0, 0.0, 0.0))
    problem.take(first)
    before = problem.M
    problem.take(one)
    problem.evaluate()
    problem.restore(before)
    problem.take(two)
    expected.take(two)
    assert bits(problem) == bits(expected)


def test_restore_discards_tried_steps() -> None:
    problem, expected = make(), make()
    start, (step, *_) = problem.M, draw_steps((1.0,))
    problem.take(step)
    problem.along(step.directions[:, 0], float(step.coefs[0]))  # at M, a second time
    problem.restore(start)
    problem.evaluate()
    for each in (problem, expected):
        each.take(step)
    assert bits(problem) == bits(expected)


class NaNBelow(Logistic):
    """NaN where a margin is below a bound."""

    def __init__(self, bound: float) -> None:
        self.bound = bound

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return float("nan") if margins.min() < self.bound else super().value(margins, weights)

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        return super().duals(margins, weights)


def test_nan_loss_raises_and_blocks_can_be_restored() -> None:
    X, comparisons = draw()
    problem = blocks_of(X, comparisons, NaNBelow(-3.0), N_BLOCKS, REGULARIZERS["trace"](0.1))
    step, *_ = draw_steps((1.0,))
    before, expected = problem.M, bits(problem)
    problem.take(Step(step.directions, 100 * step.coefs))
    with pytest.raises(NotANumberError, match=r"NaNBelow\(\) returns NaN for finite margins betwe"):
        problem.evaluate()
    problem.restore(before)
    assert bits(problem) == expected
    problem.take(Step(step.directions, 1e-3 * step.coefs))
    assert np.isfinite(problem.evaluate().value)
