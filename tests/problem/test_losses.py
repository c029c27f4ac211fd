from __future__ import annotations

import numpy as np
import pytest
from conftest import SMOOTH, read_only
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from boostmetric import LOSSES, Exponential, Logistic, Loss

DTYPES = [np.float32, np.float64]

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
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
@pytest.mark.parametrize("spread", [0.5, 5.0, 100.0])
def test_losses_are_convex_along_segments(
    loss: Loss, weighted: bool, spread: float, rng: np.random.Generator
) -> None:
    for _ in range(30):
        one, weights = draw(rng, 10, weighted, spread)
        two, _ = draw(rng, 10, False, spread)
        t = rng.random()
        chord = (1 - t) * loss.value(one, weights) + t * loss.value(two, weights)
        assert loss.value((1 - t) * one + t * two, weights) <= chord + 1e-12 * abs(chord)


@every_loss
@weighted_or_not
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "extremes", [[1e3], [-1e3], [1e4], [-1e4], [1e6], [-1e6], [-1e6, -1e3, 0, 1, 1e4, 1e6]], ids=str
)
def test_margins_of_any_size_give_finite_numbers(
    loss: Loss, weighted: bool, dtype: type[np.floating], extremes: list[float]
) -> None:
    margins = np.array(extremes, dtype=dtype)
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
def test_a_weight_stands_for_copies(loss: Loss, rng: np.random.Generator) -> None:
    margins, _ = draw(rng, 12, False)
    counts = rng.integers(1, 5, 12)
    copies = np.repeat(margins, counts)
    weights = counts.astype(float)
    assert loss.value(margins, weights) == pytest.approx(loss.value(copies), rel=1e-13)
    summed = np.add.reduceat(loss.duals(copies), np.r_[0, np.cumsum(counts)[:-1]])
    assert loss.duals(margins, weights) == pytest.approx(summed, rel=1e-13)


@pytest.mark.parametrize("loss", [LOSSES[name] for name in SMOOTH], ids=SMOOTH)
@weighted_or_not
@pytest.mark.parametrize("cuts", [[], [1], [7, 8, 30]], ids=str)
@pytest.mark.parametrize("spread", [1.0, 1e3])
def test_blocks_merge_to_the_whole(
    loss: Loss, weighted: bool, cuts: list[int], spread: float, rng: np.random.Generator
) -> None:
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
def test_losses_do_not_change_their_input(
    loss: Loss, weighted: bool, rng: np.random.Generator
) -> None:
    margins, weights = draw(rng, 9, weighted)
    copy = margins.copy()
    assert np.array_equal(loss.duals(margins, weights), loss.duals(copy, weights))
    assert np.array_equal(margins, copy)


@weighted_or_not
def test_exponential_is_the_log_of_the_sum_of_exponentials(
    weighted: bool, rng: np.random.Generator
) -> None:
    margins, weights = draw(rng, 50, weighted)
    c = np.ones(50) if weights is None else weights
    loss = Exponential()
    assert loss.value(margins, weights) == pytest.approx(logsumexp(-margins, b=c), rel=1e-13)
    duals = loss.duals(margins, weights)
    assert duals == pytest.approx(softmax(np.log(c) - margins), rel=1e-13)
    assert duals.sum() == pytest.approx(1, rel=1e-14)


@weighted_or_not
def test_logistic_is_the_sum_of_the_logs(weighted: bool, rng: np.random.Generator) -> None:
    margins, weights = draw(rng, 50, weighted, spread=20.0)
    c = np.ones(50) if weights is None else weights
    loss = Logistic()
    expected = np.sum(c * np.logaddexp(0, -margins))
    assert loss.value(margins, weights) == pytest.approx(expected, rel=1e-13)
    assert loss.duals(margins, weights) == pytest.approx(c * expit(-margins), rel=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e3, -1e3, 1e4, -1e4, 1e6, -1e6])
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


def test_sums_of_float32_terms_run_in_float64() -> None:
    margins = np.zeros(100_001, np.float32)
    margins[0] = -(2.0**24)  # from here on float32 knows even numbers only
    expected = 2.0**24 + 100_000 * np.log(2)
    assert Logistic().value(margins) == pytest.approx(expected, rel=1e-9)


def test_a_loss_is_an_interface() -> None:
    with pytest.raises(TypeError):
        Loss()  # type: ignore[abstract]
    value, shares = Logistic().merge(np.array([1.0, 2.5]))
    assert (value, shares.tolist()) == (3.5, [1.0, 1.0])


@every_loss
def test_a_loss_shows_its_name(loss: Loss) -> None:
    assert repr(loss).startswith(type(loss).__name__)
