from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from conftest import SMOOTH, blocks_of, read_only
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from boostmetric.engines import Threads
from boostmetric.metric import Metric
from boostmetric.problem import (
    LOSSES,
    ComparisonOperator,
    Comparisons,
    Exponential,
    Frobenius,
    Hinge,
    Logistic,
    Loss,
    SmoothedHinge,
    Step,
    Trace,
    block,
    comparison_operator,
)
from boostmetric.problem.losses import is_mergeable

DTYPES = [np.float32, np.float64]

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
smooth_loss = pytest.mark.parametrize("loss", [LOSSES[name] for name in SMOOTH], ids=SMOOTH)
weighted_or_not = pytest.mark.parametrize("weighted", [False, True])


def draw(
    rng: np.random.Generator, m: int, weighted: bool, spread: float = 3.0
) -> tuple[NDArray, NDArray | None]:
    margins = spread * rng.standard_normal(m)
    weights = rng.uniform(0.1, 4.0, m) if weighted else None
    read_only(margins, *([] if weights is None else [weights]))
    return margins, weights


@every_loss
@weighted_or_not
def test_duals_are_the_negative_gradient(
    loss: Loss, weighted: bool, rng: np.random.Generator
) -> None:
    margins, weights = draw(rng, 15, weighted)
    step = 1e-5
    differences = [
        (loss.value(margins + e, weights) - loss.value(margins - e, weights)) / (2 * step)
        for e in step * np.eye(15)
    ]
    assert loss.duals(margins, weights) == pytest.approx(-np.array(differences), rel=1e-6, abs=1e-8)


@every_loss
@weighted_or_not
def test_duals_are_not_negative(loss: Loss, weighted: bool, rng: np.random.Generator) -> None:
    margins, weights = draw(rng, 200, weighted, spread=30.0)
    assert (loss.duals(margins, weights) >= 0).all()


@every_loss
@weighted_or_not
def test_loss_is_convex(loss: Loss, weighted: bool, rng: np.random.Generator) -> None:
    for spread in 30 * [0.5, 5.0, 100.0]:
        one, weights = draw(rng, 10, weighted, spread)
        two, _ = draw(rng, 10, False, spread)
        t = rng.random()
        chord = (1 - t) * loss.value(one, weights) + t * loss.value(two, weights)
        assert loss.value((1 - t) * one + t * two, weights) <= chord + 1e-12 * abs(chord)


@every_loss
@weighted_or_not
def test_extreme_margins_give_finite_results(loss: Loss, weighted: bool) -> None:
    extremes = [[1e3], [-1e3], [1e4], [-1e4], [1e6], [-1e6], [-1e6, -1e3, 0, 1, 1e4, 1e6]]
    for dtype, values in product(DTYPES, extremes):
        margins = np.array(values, dtype=dtype)
        weights = np.linspace(0.5, 2, len(margins)).astype(dtype) if weighted else None
        read_only(margins)
        duals = loss.duals(margins, weights)
        assert np.isfinite(loss.value(margins, weights))
        assert np.isfinite(duals).all()
        assert (duals >= 0).all()
        assert duals.dtype == dtype


@every_loss
@pytest.mark.parametrize("dtype", DTYPES)
def test_float32_agrees_with_float64(
    loss: Loss, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    margins, weights = draw(rng, 300, True)
    assert weights is not None
    rounded, rounded_weights = margins.astype(dtype), weights.astype(dtype)
    exact, exact_weights = rounded.astype(np.float64), rounded_weights.astype(np.float64)
    tolerance = 100 * float(np.finfo(dtype).eps)
    value = loss.value(rounded, rounded_weights)
    assert value == pytest.approx(loss.value(exact, exact_weights), rel=tolerance)
    duals = loss.duals(rounded, rounded_weights)
    assert duals == pytest.approx(loss.duals(exact, exact_weights), rel=tolerance, abs=1e-12)
    assert duals.dtype == dtype


@every_loss
def test_weight_equals_repetition(loss: Loss, rng: np.random.Generator) -> None:
    margins, _ = draw(rng, 12, False)
    counts = rng.integers(1, 5, 12)
    copies = np.repeat(margins, counts)
    weights = counts.astype(float)
    assert loss.value(margins, weights) == pytest.approx(loss.value(copies), rel=1e-13)
    summed = np.add.reduceat(loss.duals(copies), np.r_[0, np.cumsum(counts)[:-1]])
    assert loss.duals(margins, weights) == pytest.approx(summed, rel=1e-13)


@smooth_loss
@weighted_or_not
def test_merge_gives_the_loss_of_all_blocks(
    loss: Loss, weighted: bool, rng: np.random.Generator
) -> None:
    for cuts, spread in product(([], [1], [7, 8, 30]), (1.0, 1e3)):
        margins, weights = draw(rng, 40, weighted, spread)
        blocks = np.split(margins, cuts)
        parts = [None] * len(blocks) if weights is None else np.split(weights, cuts)
        values = np.array([loss.value(b, c) for b, c in zip(blocks, parts, strict=True)])
        read_only(values)
        value, shares = loss.merge(values)
        duals = np.concatenate(
            [s * loss.duals(b, c) for s, b, c in zip(shares, blocks, parts, strict=True)]
        )
        assert value == pytest.approx(loss.value(margins, weights), rel=1e-12, abs=1e-12)
        assert duals == pytest.approx(loss.duals(margins, weights), rel=1e-12, abs=1e-300)


@every_loss
@weighted_or_not
def test_losses_do_not_modify_their_input(
    loss: Loss, weighted: bool, rng: np.random.Generator
) -> None:
    margins, weights = draw(rng, 9, weighted)
    copy = margins.copy()
    assert np.array_equal(loss.duals(margins, weights), loss.duals(copy, weights))
    assert np.array_equal(margins, copy)


@weighted_or_not
def test_exponential_matches_logsumexp(weighted: bool, rng: np.random.Generator) -> None:
    margins, weights = draw(rng, 50, weighted)
    c = np.ones(50) if weights is None else weights
    loss = Exponential()
    assert loss.value(margins, weights) == pytest.approx(logsumexp(-margins, b=c), rel=1e-13)
    duals = loss.duals(margins, weights)
    assert duals == pytest.approx(softmax(np.log(c) - margins), rel=1e-13)
    assert duals.sum() == pytest.approx(1, rel=1e-14)


@weighted_or_not
def test_logistic_matches_logaddexp(weighted: bool, rng: np.random.Generator) -> None:
    margins, weights = draw(rng, 50, weighted, spread=20.0)
    c = np.ones(50) if weights is None else weights
    loss = Logistic()
    expected = np.sum(c * np.logaddexp(0, -margins))
    assert loss.value(margins, weights) == pytest.approx(expected, rel=1e-13)
    assert loss.duals(margins, weights) == pytest.approx(c * expit(-margins), rel=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e3, -1e3, 1e6, -1e6])
def test_exponential_has_the_exact_limits(size: float, dtype: type[np.floating]) -> None:
    loss = Exponential()
    equal = np.full(4, size, dtype)
    assert loss.value(equal) == pytest.approx(np.log(4) - size, rel=1e-14)
    assert np.array_equal(loss.duals(equal), np.full(4, 0.25))
    apart = np.array([size, size + 1e3], dtype)
    assert loss.value(apart) == -size
    assert loss.duals(apart).tolist() == [1, 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e3, 1e4, 1e6])
def test_logistic_has_the_exact_limits(size: float, dtype: type[np.floating]) -> None:
    margins = np.array([-size, size, 0], dtype)
    assert Logistic().value(margins[:1]) == size
    assert Logistic().value(margins[1:2]) == 0
    assert Logistic().value(margins) == pytest.approx(size + np.log(2), rel=1e-7)
    assert Logistic().duals(margins).tolist() == [1, 0, 0.5]


def test_float32_terms_are_summed_in_float64() -> None:
    margins = np.zeros(100_001, np.float32)
    margins[0] = -(2.0**24)  # from here on float32 knows even numbers only
    expected = 2.0**24 + 100_000 * np.log(2)
    assert Logistic().value(margins) == pytest.approx(expected, rel=1e-9)


def test_loss_is_abstract() -> None:
    with pytest.raises(TypeError):
        Loss()  # type: ignore[abstract]
    value, shares = Logistic().merge(np.array([1.0, 2.5]))
    assert (value, shares.tolist()) == (3.5, [1.0, 1.0])


@every_loss
def test_repr_contains_the_class_name(loss: Loss) -> None:
    assert repr(loss).startswith(type(loss).__name__)


# Custom losses.


class Cubed(Loss):
    """Σ c_r·max(0, 1 − ρ_r)³, with the two methods that a user must write."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        short = np.maximum(1 - margins, 0) ** 3
        return float(np.sum(short if weights is None else weights * short))

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        short = 3 * np.maximum(1 - margins, 0) ** 2
        return short if weights is None else weights * short


class Steep(Logistic):
    """Σ c_r·log(1 + exp(−5·ρ_r)), made from the loss that it derives from."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return super().value(5 * margins, weights)

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        return 5 * super().duals(5 * margins, weights)


def test_overriding_value_resets_derived_methods(rng: np.random.Generator) -> None:
    margins = rng.standard_normal(8)
    value, duals = Steep().value_and_duals(margins)
    assert value == pytest.approx(np.sum(np.logaddexp(0, -5 * margins)))
    assert duals == pytest.approx(5 * expit(-5 * margins))


# Losses that are not sums.


class Largest(Loss):
    """log Σ c_r·exp(−ρ_r), without overriding `merge`."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return float(logsumexp(-margins, b=weights))

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        shares = -margins if weights is None else np.log(weights) - margins
        result: NDArray = softmax(shares)
        return result


class Derived(Exponential):
    """The exponential loss of twice the margins, which inherits no `merge`."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return float(logsumexp(-2 * margins, b=weights))

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        return 2 * Largest().duals(2 * margins, weights)


class OwnCosts(Loss):
    """Σ costs_r·max(0, 1 − ρ_r)², with a cost for each comparison."""

    def __init__(self, costs: NDArray) -> None:
        self.costs = costs

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return float(self.costs @ np.maximum(1 - margins, 0) ** 2)

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        return 2 * self.costs * np.maximum(1 - margins, 0)


class Mean(Loss):
    """The mean of max(0, 1 − ρ_r)²: neither a sum, nor does it know how many there are."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return float(np.mean(np.maximum(1 - margins, 0) ** 2))

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        duals: NDArray = 2 * np.maximum(1 - margins, 0) / len(margins)
        return duals


class Declared(Largest):
    """The same as `Largest`, with the `merge` that belongs to it."""

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        return super().value(margins, weights)

    def merge(self, values: NDArray) -> tuple[float, NDArray]:
        return float(logsumexp(values)), softmax(values)


not_sums = pytest.mark.parametrize(
    "loss",
    [Largest(), Derived(), Mean(), OwnCosts(np.linspace(0.5, 2, 30))],
    ids=lambda loss: type(loss).__name__,
)


@every_loss
def test_all_losses_except_the_hinge_are_mergeable(loss: Loss) -> None:
    assert is_mergeable(loss) == (not isinstance(loss, Hinge))


@pytest.mark.parametrize("loss", [Cubed(), Steep(), SmoothedHinge(0.01), Declared()], ids=repr)
def test_custom_sums_and_declared_merges_are_mergeable(loss: Loss) -> None:
    assert is_mergeable(loss)


@not_sums
def test_other_losses_are_not_mergeable(loss: Loss) -> None:
    assert not is_mergeable(loss)


class Watched(Mean):
    """Counts what it is asked for margins of the comparisons, of which there are 30."""

    n_calls = 0

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        self.n_calls += len(margins) in (10, 30)
        return super().value(margins, weights)


def triplets(m: int = 30) -> tuple[NDArray, Comparisons]:
    rng = np.random.default_rng(5)
    rows = np.array([rng.permutation(12)[:3] for _ in range(m)])
    return rng.standard_normal((12, 4)), Comparisons.from_triplets(rows, gaps=0.3)


@not_sums
def test_several_blocks_require_a_mergeable_loss(loss: Loss) -> None:
    X, comparisons = triplets()
    message = rf"{type(loss).__name__}.*requires all comparisons in one block, but there are 3"
    with pytest.raises(ValueError, match=message):
        blocks_of(X, comparisons, loss, 3, Trace(0.1))
    blocks_of(X, comparisons, loss, 1, Trace(0.1))


def test_several_blocks_are_rejected_before_any_work() -> None:
    loss = Watched()
    with pytest.raises(ValueError, match="requires all comparisons in one block"):
        blocks_of(*triplets(), loss, 3, Frobenius(0.1))
    assert loss.n_calls == 0


@not_sums
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_single_block_accepts_any_loss(
    loss: Loss, n_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_operator, "MIN_CHUNK", 7)
    X, comparisons = triplets()
    problem = blocks_of(X, comparisons, loss, 1, Trace(0.0), n_jobs)
    margins = np.full(30, -0.3)
    differences = [
        X[comparisons.pairs[side, 0]] - X[comparisons.pairs[side, 1]]
        for side in (comparisons.far, comparisons.near)
    ]
    far, near = (np.einsum("ri,rj->rij", each, each) for each in differences)
    scatter = np.tensordot(loss.duals(margins), far - near, 1)
    found = problem.evaluate()
    assert found.value == pytest.approx(loss.value(margins), rel=1e-12)
    assert found.dual_sum == pytest.approx(loss.duals(margins).sum(), rel=1e-12)
    unit = problem.single_block().operator.unit
    assert np.asarray(found.scatter) * unit == pytest.approx(scatter, rel=1e-11, abs=1e-11)


@smooth_loss
@weighted_or_not
@pytest.mark.parametrize("n_jobs", [3])
def test_chunks_do_not_change_the_loss(
    loss: Loss,
    weighted: bool,
    n_jobs: int,
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
) -> None:
    gaps, weights = draw(rng, 40, weighted, spread=20.0)
    rows = rng.permuted(np.tile(np.arange(12), (40, 1)), axis=1)[:, :3]
    X, comparisons = rng.standard_normal((12, 3)), Comparisons.from_triplets(rows)
    directions = np.linalg.qr(rng.standard_normal((3, 2)))[0]
    start, step = (Step(directions, np.array(coefs)) for coefs in ([0.3, 0.1], [0.7, 0.2]))
    results = []
    for smallest, n_chunks in ((7, 4), (100, 1)):
        monkeypatch.setattr(comparison_operator, "MIN_CHUNK", smallest)
        with Threads(n_jobs) as threads:
            operator = ComparisonOperator(X, comparisons, threads=threads)
            assert len(operator.chunks) == n_chunks
            made = block.Block(operator, loss, gaps, weights, threads)
            part = made.query(0, 0, (start,), block.Block.evaluate, True)
            along = [made.along(directions[:, 0], coef) for coef in (0.0, 0.4)]
            on_slice = made.on_slice(directions, 0.6, step.coefs, True)
        margins = operator.values(Metric(directions, start.coefs)) - gaps
        assert part is not None
        assert part.value == pytest.approx(loss.value(margins, weights), rel=1e-12)
        duals = loss.duals(margins, weights)
        assert part.dual_sum == pytest.approx(duals.sum(), rel=1e-12)
        assert part.n_violated == np.count_nonzero(margins <= 0)
        assert part.scatter == pytest.approx(operator.scatter(duals), rel=1e-10, abs=1e-12)
        results.append(np.concatenate([*along, on_slice]))
    assert results[0] == pytest.approx(results[1], rel=1e-11, abs=1e-12)
