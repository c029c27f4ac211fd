"""`boost`: the algorithm of the paper, invariances, and units."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, duals_of, margins_of, read_only
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax
from sklearn.datasets import load_wine

from boostmetric import (
    LOSSES,
    REGULARIZERS,
    Boosting,
    Comparisons,
    Loss,
    Metric,
    Operator,
    Status,
    Trace,
    boost,
)

EXPONENTIAL, LOGISTIC = LOSSES["exponential"], LOSSES["logistic"]

boost_single = partial(boost, directions_per_step=1)
"""The algorithm of the paper."""

every_loss = pytest.mark.parametrize("loss", [LOSSES[name] for name in SMOOTH], ids=SMOOTH)
FORMULAS: dict[str, tuple[Callable[..., float], Callable[..., NDArray]]] = {
    "exponential": (
        lambda rho, c: float(logsumexp(-rho, b=c)),
        lambda rho, c: softmax(np.log(c) - rho),
    ),
    "logistic": (
        lambda rho, c: float(np.sum(c * np.logaddexp(0, -rho))),
        lambda rho, c: c * expit(-rho),
    ),
}


@pytest.fixture
def wine() -> tuple[NDArray, NDArray]:
    """Points for which a fit takes hundreds of iterations."""
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    read_only(X, y)
    return X, y


def draw_triplets(y: NDArray, rng: np.random.Generator, m: int = 300) -> NDArray:
    """(a, b, c) with a and b of one class and c of another; no metric satisfies all of them."""
    rows = rng.integers(0, len(y), (20 * m, 3))
    a, b, c = rows.T
    rows = rows[(a != b) & (y[a] == y[b]) & (y[a] != y[c])][:m]
    read_only(rows)
    return rows


@pytest.fixture
def triplets(blobs: tuple[NDArray, NDArray], rng: np.random.Generator) -> NDArray:
    return draw_triplets(blobs[1], rng)


def margins_by_definition(X: NDArray, triplets: NDArray, M: NDArray) -> NDArray:
    a, b, c = X.astype(np.float64)[triplets.T]
    return np.einsum("ri,ij,rj->r", a - c, M, a - c) - np.einsum("ri,ij,rj->r", a - b, M, a - b)


def scatter_by_definition(X: NDArray, triplets: NDArray, duals: NDArray) -> NDArray:
    a, b, c = X.astype(np.float64)[triplets.T]
    return np.einsum("r,ri,rj->ij", duals, a - c, a - c) - np.einsum(
        "r,ri,rj->ij", duals, a - b, a - b
    )


def matrix_after(X: NDArray, triplets: NDArray, loss: Loss, **options: Any) -> NDArray:
    comparisons = Comparisons.from_triplets(triplets)
    return boost(X, comparisons, loss, max_iter=6, **options).metric.matrix


def same(M: NDArray, other: NDArray, rel: float = 1e-7) -> bool:
    return bool(np.abs(M - other).max() <= rel * np.abs(other).max())


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_objective_decreases_and_metric_is_psd(
    loss: Loss, dtype: type[np.floating], wine: tuple[NDArray, NDArray]
) -> None:
    X, y = wine[0].astype(dtype), wine[1]
    fit = boost_single(X, Comparisons.from_labels(X, y), loss, max_iter=60)
    objectives = np.array([step.objective for step in fit.history])
    noise = 100 * float(np.finfo(dtype).eps) * np.abs(objectives[:-1])
    assert len(objectives) == 60
    assert (np.diff(objectives) <= noise).all()
    values = np.linalg.eigvalsh(fit.metric.matrix.astype(np.float64))
    assert values[0] >= -1e-6 * values[-1]
    assert (fit.metric.coefs > 0).all()


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("extras", [False, True], ids=["plain", "gaps and weights"])
@pytest.mark.parametrize("as_operator", [False, True])
def test_history_matches_equations_of_paper(
    name: str,
    extras: bool,
    as_operator: bool,
    wine: tuple[NDArray, NDArray],
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if as_operator:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    X, triplets = wine[0], draw_triplets(wine[1], rng)
    m = len(triplets)
    gaps = rng.standard_normal(m) if extras else np.zeros(m)
    weights = rng.exponential(size=m) if extras else np.ones(m)
    read_only(gaps, weights)
    comparisons = (
        Comparisons.from_triplets(triplets, gaps=gaps, weights=weights)
        if extras
        else Comparisons.from_triplets(triplets)
    )
    fit = boost_single(X, comparisons, LOSSES[name], max_iter=15, alpha=1e-4)
    value, duals_at = FORMULAS[name]
    duals = duals_at(-gaps, weights)
    alpha_max = np.linalg.eigvalsh(scatter_by_definition(X, triplets, duals))[-1]
    assert fit.alpha_max == pytest.approx(alpha_max, rel=1e-9)
    assert fit.alpha == pytest.approx(1e-4 * alpha_max, rel=1e-9)
    assert len(fit.history) == fit.metric.n_directions == 15
    for j, step in enumerate(fit.history, start=1):
        leading = np.linalg.eigvalsh(scatter_by_definition(X, triplets, duals))[-1]
        assert step.lambda_max == pytest.approx(leading, rel=1e-7)
        metric = Metric(fit.metric.directions[:, :j], fit.metric.coefs[:j])
        M = metric.matrix
        margins = margins_by_definition(X, triplets, M) - gaps
        objective = value(margins, weights) + fit.alpha * np.trace(M)
        assert step.objective == pytest.approx(objective, rel=1e-8)
        assert step.n_violated == np.count_nonzero(margins <= 0)
        assert step.coef == metric.coefs[-1]
        duals = duals_at(margins, weights)
        # The root of EQ:w and EQ:w2: after a step the slope along its direction is 0.
        v = metric.directions[:, -1]
        assert np.linalg.norm(v) == pytest.approx(1)
        slope = v @ scatter_by_definition(X, triplets, duals) @ v
        assert slope == pytest.approx(fit.alpha, abs=1e-8 * leading)
    seconds = [step.seconds for step in fit.history]
    assert seconds[0] >= 0
    assert seconds == sorted(seconds)
    assert fit.objective() == fit.history[-1].objective
    assert margins_of(fit) == pytest.approx(margins, abs=1e-9)
    assert duals_of(fit) == pytest.approx(duals, rel=1e-7)


@every_loss
def test_relative_alpha_matches_absolute_alpha(loss: Loss, blobs: tuple[NDArray, NDArray]) -> None:
    X, y = blobs
    comparisons = Comparisons.from_labels(X, y)
    fit = boost(X, comparisons, loss, alpha=0.01, max_iter=5)
    absolute = boost(X, comparisons, loss, regularizer=Trace(fit.alpha), max_iter=5)
    assert absolute.alpha == fit.alpha == pytest.approx(0.01 * fit.alpha_max, rel=1e-12)
    assert np.array_equal(absolute.metric.matrix, fit.metric.matrix)


@every_loss
def test_rotation_equivariance(
    loss: Loss, blobs: tuple[NDArray, NDArray], triplets: NDArray, rng: np.random.Generator
) -> None:
    X, Q = blobs[0], np.linalg.qr(rng.standard_normal((5, 5)))[0]
    expected = Q.T @ matrix_after(X, triplets, loss) @ Q
    assert same(matrix_after(X @ Q, triplets, loss), expected)


@every_loss
def test_translation_invariance(
    loss: Loss, blobs: tuple[NDArray, NDArray], triplets: NDArray
) -> None:
    X = blobs[0]
    for shift in (1.0, -1e4):
        assert same(matrix_after(X + shift, triplets, loss), matrix_after(X, triplets, loss))


@every_loss
def test_order_of_points_invariance(
    loss: Loss, blobs: tuple[NDArray, NDArray], triplets: NDArray, rng: np.random.Generator
) -> None:
    X, order = blobs[0], rng.permutation(120)
    expected = matrix_after(X, triplets, loss)
    assert same(matrix_after(X[order], np.argsort(order)[triplets], loss), expected)


@every_loss
def test_order_of_comparisons_invariance(
    loss: Loss, blobs: tuple[NDArray, NDArray], triplets: NDArray, rng: np.random.Generator
) -> None:
    X, order = blobs[0], rng.permutation(len(triplets))
    expected = matrix_after(X, triplets, loss)
    assert same(matrix_after(X, triplets[order], loss), expected)


@every_loss
def test_scale_equivariance(loss: Loss, blobs: tuple[NDArray, NDArray], triplets: NDArray) -> None:
    X = blobs[0]
    for scale in (1e-3, 0.5, 7.0, 1e6):
        expected = matrix_after(X, triplets, loss) / scale**2
        assert same(matrix_after(scale * X, triplets, loss), expected)


@every_loss
def test_weight_equals_repetition(
    loss: Loss, blobs: tuple[NDArray, NDArray], triplets: NDArray
) -> None:
    X, counts = blobs[0], np.arange(len(triplets)) % 3 + 1
    weighted = boost(X, Comparisons.from_triplets(triplets, weights=counts), loss, max_iter=6)
    repeated = matrix_after(X, np.repeat(triplets, counts, axis=0), loss)
    assert same(weighted.metric.matrix, repeated)


@every_loss
def test_scale_of_weights_invariance(
    loss: Loss, blobs: tuple[NDArray, NDArray], triplets: NDArray
) -> None:
    for scale in (1e-6, 1e6):
        comparisons = Comparisons.from_triplets(triplets, weights=scale)
        fit = boost_single(blobs[0], comparisons, loss, max_iter=6)
        expected = matrix_after(blobs[0], triplets, loss, directions_per_step=1)
        assert same(fit.metric.matrix, expected)


@pytest.mark.parametrize("weight", [1e-6, 1.0, 1e6])
def test_logistic_is_bounded_for_any_weights(weight: float) -> None:
    X = np.array([[0.0], [1.0], [1.0005], [3.0]])
    comparisons = Comparisons.from_triplets([[0, 1, 2], [0, 1, 3]], weights=weight)
    fit = boost(X, comparisons, LOGISTIC)
    assert fit.status is Status.NO_DIRECTION
    # Only the first comparison has an effect: h·u = alpha with u = c/(1 + exp(w·h)).
    h = 1.0005**2 - 1
    expected = np.log(weight * h / fit.alpha - 1) / h
    assert fit.metric.matrix == pytest.approx(expected, rel=1e-8)


@every_loss
def test_weight_zero_drops_comparison(
    loss: Loss, blobs: tuple[NDArray, NDArray], triplets: NDArray
) -> None:
    X, weights = blobs[0], (np.arange(len(triplets)) % 3).astype(float)
    kept = weights > 0
    whole = Comparisons.from_triplets(triplets, weights=weights)
    part = Comparisons.from_triplets(triplets[kept], weights=weights[kept])
    one, two = (boost(X, comparisons, loss, max_iter=6) for comparisons in (whole, part))
    assert same(one.metric.matrix, two.metric.matrix)
    assert one.history[-1].n_violated == two.history[-1].n_violated
    assert one.n_comparisons == kept.sum()


@every_loss
def test_unsatisfiable_comparisons_give_no_direction(loss: Loss) -> None:
    for rows in ([[0, 1, 2], [0, 2, 1]], [[0, 2, 1]]):
        X = np.array([[0.0], [1.0], [3.0]])
        read_only(X)
        fit = boost(X, Comparisons.from_triplets(rows), loss)
        assert fit.status is Status.NO_DIRECTION
        assert fit.history == []
        assert fit.metric.matrix.tolist() == [[0]]
        assert fit.alpha == 0
        assert fit.alpha_max <= 0


@every_loss
def test_zero_margin_is_violated(loss: Loss) -> None:
    X = np.array([[0.0], [1.0], [-1.0], [4.0]])
    fit = boost(X, Comparisons.from_triplets([[0, 1, 2], [0, 1, 3]]), loss, max_iter=1)
    assert margins_of(fit)[0] == 0
    assert fit.history[0].n_violated == 1


@every_loss
def test_alpha_of_one_gives_no_direction(loss: Loss, blobs: tuple[NDArray, NDArray]) -> None:
    X, y = blobs
    for alpha, n_directions in ((1.0, 0), (0.999, 1), (2.0, 0)):
        fit = boost_single(X, Comparisons.from_labels(X, y), loss, alpha=alpha, max_iter=30)
        assert fit.status is Status.NO_DIRECTION
        assert fit.metric.n_directions >= n_directions
        assert (fit.metric.n_directions == 0) == (n_directions == 0)


@every_loss
def test_no_direction_exceeds_alpha_at_end(
    loss: Loss, blobs: tuple[NDArray, NDArray], triplets: NDArray
) -> None:
    X = blobs[0]
    fit = boost_single(X, Comparisons.from_triplets(triplets), loss, alpha=0.1)
    assert fit.status is Status.NO_DIRECTION
    assert 0 < len(fit.history) < 500
    leading = np.linalg.eigvalsh(scatter_by_definition(X, triplets, duals_of(fit)))[-1]
    assert leading <= fit.alpha * (1 + 1e-8)


# Seeds for which rounding kept the leading eigenvalue above alpha in an earlier version.
@every_loss
def test_every_step_changes_a_margin(loss: Loss) -> None:
    for alpha, seed in product((1e-9, 1e-7, 0.3), (27, 71, 76, 230, 274)):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(12, 1))
        rows = [rng.permutation(12)[:3] for _ in range(int(rng.integers(1, 8)))]
        margins = [np.zeros(len(rows))]

        def unchanged(fit: Boosting, margins: list[NDArray] = margins) -> bool:
            margins.append(margins_of(fit))
            return np.array_equal(margins[-2], margins[-1])

        fit = boost(X, Comparisons.from_triplets(rows), loss, alpha=alpha, callback=unchanged)
        assert fit.status in (Status.NO_DIRECTION, Status.UNBOUNDED)


@every_loss
def test_max_iter_limits_directions(loss: Loss, blobs: tuple[NDArray, NDArray]) -> None:
    X, y = blobs
    for max_iter in (1, 5):
        fit = boost_single(X, Comparisons.from_labels(X, y), loss, max_iter=max_iter)
        assert fit.status is Status.MAX_ITER
        assert len(fit.history) == fit.metric.n_directions == max_iter


@every_loss
def test_callback_is_called_after_every_step_and_can_stop(
    loss: Loss, blobs: tuple[NDArray, NDArray]
) -> None:
    X, y = blobs
    comparisons = Comparisons.from_labels(X, y)
    seen: list[tuple[int, float]] = []

    def callback(fit: Boosting) -> bool:
        seen.append((fit.metric.n_directions, fit.objective()))
        return len(seen) == 4

    fit = boost_single(X, comparisons, loss, callback=callback)
    assert fit.status is Status.STOPPED
    assert seen == [(j, step.objective) for j, step in enumerate(fit.history, start=1)]
    assert len(seen) == 4
    assert np.array_equal(
        fit.metric.matrix, boost_single(X, comparisons, loss, max_iter=4).metric.matrix
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_direction_may_satisfy_all_comparisons(dtype: type[np.floating]) -> None:
    X = np.array([[0, 0], [1, 1], [9, 0], [8, 1]], dtype)
    read_only(X)
    comparisons = Comparisons.from_labels(X, [0, 0, 1, 1], 1, 2)
    fit = boost(X, comparisons, EXPONENTIAL)
    assert fit.status is Status.UNBOUNDED
    assert fit.metric.n_directions == 1
    assert fit.history[-1].n_violated == 0
    assert (margins_of(fit) > 0).all()
    assert np.isfinite(fit.objective())
    assert fit.objective() < np.log(len(comparisons))
    assert boost(X, comparisons, LOGISTIC).status is not Status.UNBOUNDED


def test_status_texts_are_distinct() -> None:
    assert str(Status.MAX_ITER).startswith("MAX_ITER: max_iter directions were added.")
    assert len({str(status) for status in Status}) == len(Status)


@every_loss
@pytest.mark.parametrize("n", [1, 10])
def test_warm_start_continues_fit(loss: Loss, n: int, wine: tuple[NDArray, NDArray]) -> None:
    X, y = wine
    weight = 1 + np.arange(len(y)) % 4
    comparisons = Comparisons.from_labels(X, y, sample_weight=weight)
    whole = boost_single(X, comparisons, loss, max_iter=n + 10, alpha=1e-4)
    first = boost_single(X, comparisons, loss, max_iter=n, alpha=1e-4)
    second = boost_single(X, comparisons, loss, max_iter=10, alpha=1e-4, start=first.metric)
    assert second.alpha == first.alpha
    assert len(second.history) == 10
    assert second.metric.n_directions == n + 10
    assert same(second.metric.matrix, whole.metric.matrix, rel=1e-6)
    assert second.history[-1].objective == pytest.approx(whole.history[-1].objective, rel=1e-9)


@every_loss
@pytest.mark.parametrize("as_operator", [False, True])
def test_float32_is_preserved(
    loss: Loss,
    as_operator: bool,
    blobs: tuple[NDArray, NDArray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if as_operator:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    X, y = blobs[0].astype(np.float32), blobs[1]
    comparisons = Comparisons.from_labels(X, y)
    comparisons = comparisons + Comparisons.from_triplets([[0, 1, 50]], weights=2.0, gaps=0.5)
    start = boost_single(blobs[0], comparisons, loss, max_iter=1).metric
    fit = boost_single(X, comparisons, loss, max_iter=5, start=start)
    assert fit.metric.directions.dtype == fit.metric.components.dtype == np.float32
    assert margins_of(fit).dtype == duals_of(fit).dtype == np.float32
    assert fit.metric.coefs.dtype == fit.metric.matrix.dtype == np.float64
    exact = boost_single(blobs[0], comparisons, loss, max_iter=6).metric.matrix
    assert same(fit.metric.matrix, exact, rel=1e-2)


@every_loss
@pytest.mark.parametrize(("dtype", "as_operator"), [(np.float32, False), (np.float64, True)])
def test_fit_is_reproducible(
    loss: Loss,
    as_operator: bool,
    dtype: type[np.floating],
    blobs: tuple[NDArray, NDArray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if as_operator:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    X, y = blobs[0].astype(dtype), blobs[1]
    one, two = (boost(X.copy(), Comparisons.from_labels(X, y), loss, max_iter=25) for _ in range(2))
    assert np.array_equal(one.metric.directions, two.metric.directions)
    assert np.array_equal(one.metric.coefs, two.metric.coefs)
    assert one.objective() == two.objective()


@every_loss
def test_operator_agrees_with_matrix(
    loss: Loss, blobs: tuple[NDArray, NDArray], triplets: NDArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = matrix_after(blobs[0], triplets, loss, directions_per_step=1)
    monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    assert same(matrix_after(blobs[0], triplets, loss, directions_per_step=1), expected, rel=1e-6)


@every_loss
def test_one_feature(loss: Loss, rng: np.random.Generator) -> None:
    X = rng.standard_normal((40, 1))
    X[20:] += 1
    fit = boost(X, Comparisons.from_labels(X, np.repeat([0, 1], 20)), loss)
    assert fit.status is Status.NO_DIRECTION
    assert fit.metric.matrix.shape == (1, 1)
    assert fit.metric.directions == pytest.approx(1)


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fewer_points_than_features(
    loss: Loss, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X = rng.standard_normal((9, 30)).astype(dtype)
    fit = boost(X, Comparisons.from_labels(X, np.arange(9) % 3, 2, 3), loss, max_iter=40)
    assert fit.metric.n_directions > 0
    assert len(fit.metric.components) <= 8
    outside = np.linalg.svd(X - X.mean(axis=0))[2][8:]
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    assert np.abs(outside @ fit.metric.matrix).max() <= tolerance * np.trace(fit.metric.matrix)


@every_loss
def test_constant_features_are_not_used(loss: Loss, blobs: tuple[NDArray, NDArray]) -> None:
    X, y = blobs[0].copy(), blobs[1]
    plain = boost_single(
        X[:, [0, 1, 3]], Comparisons.from_labels(X[:, [0, 1, 3]], y), loss, max_iter=6
    )
    X[:, 2], X[:, 4] = 3.0, 1e5
    fit = boost_single(X, Comparisons.from_labels(X, y), loss, max_iter=6)
    expected = np.zeros((5, 5))
    expected[np.ix_([0, 1, 3], [0, 1, 3])] = plain.metric.matrix
    assert same(fit.metric.matrix, expected)


@pytest.mark.parametrize("alpha", [1e-7, 1e-2, 0.5])
def test_single_comparison_has_closed_form(alpha: float) -> None:
    X = np.array([[0.0], [1.0], [3.0]])
    fit = boost(X, Comparisons.from_triplets([[0, 1, 2]]), LOGISTIC, alpha=alpha)
    assert fit.alpha_max == pytest.approx(4)  # u = 1/2 and h = 9 - 1
    margin = np.log(2 / alpha - 1)  # u·h = alpha·4
    assert fit.metric.matrix == pytest.approx(margin / 8, rel=1e-8)
    assert fit.status is Status.NO_DIRECTION


def test_single_comparison_is_unbounded_for_exponential() -> None:
    X = np.array([[0.0, 2.0], [1.0, 2.0], [3.0, 1.0]])
    fit = boost(X, Comparisons.from_triplets([[0, 1, 2]]), EXPONENTIAL)
    assert fit.status is Status.UNBOUNDED
    assert margins_of(fit)[0] > 1


SOLVERS: dict[str, dict[str, Any]] = {
    "one direction": {"solver": "stagewise", "directions_per_step": 1},
    "batches": {"solver": "stagewise", "directions_per_step": 3},
    "totally corrective": {"solver": "totally_corrective"},
}


def fit_of_scaled(X: NDArray, k: int, c: Comparisons, **options: Any) -> Boosting:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return boost(np.ldexp(X, k), c, "logistic", **{"max_iter": 12, **options})


@pytest.mark.parametrize("name", list(SOLVERS))
@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
@pytest.mark.parametrize(
    ("dtype", "exponents"), [(np.float64, [-290, -1, 3, 290]), (np.float32, [-95, -2, 1, 95])]
)
def test_power_of_two_scale_is_exact(
    dtype: type[np.floating],
    exponents: list[int],
    regularizer: str,
    name: str,
    blobs: tuple[NDArray, NDArray],
) -> None:
    X, y = blobs[0].astype(dtype), blobs[1]
    c = Comparisons.from_labels(X, y)
    options = {**SOLVERS[name], "regularizer": regularizer}
    plain = fit_of_scaled(X, 0, c, **options)
    assert plain.metric.n_directions > 1
    for k in exponents:
        fit = fit_of_scaled(X, k, c, **options)
        unit = 4.0**k
        assert fit.status is plain.status
        assert np.array_equal(fit.metric.directions, plain.metric.directions)
        assert np.array_equal(fit.metric.coefs, plain.metric.coefs / unit)
        assert fit.alpha_max == plain.alpha_max * unit
        power = 2 if regularizer == "frobenius" else 1
        if abs(4 * k * power) < 900:  # otherwise alpha is out of range in float64
            assert fit.alpha == pytest.approx(plain.alpha * unit**power, rel=1e-12)
        for step, expected in zip(fit.history, plain.history, strict=True):
            assert step.objective == expected.objective
            assert step.n_violated == expected.n_violated
            assert step.coef == expected.coef / unit
            assert step.lambda_max == expected.lambda_max * unit


@pytest.mark.parametrize("name", list(SOLVERS))
@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
def test_start_is_in_units_of_user(
    regularizer: str, name: str, blobs: tuple[NDArray, NDArray]
) -> None:
    for dtype, k in ((np.float64, 290), (np.float32, 60), (np.float32, -60)):
        X, y = blobs[0].astype(dtype), blobs[1]
        c = Comparisons.from_labels(X, y)
        options = {**SOLVERS[name], "regularizer": regularizer}
        plain, scaled = (fit_of_scaled(X, e, c, max_iter=3, **options) for e in (0, k))
        here = fit_of_scaled(X, 0, c, start=plain.metric, **options)
        there = fit_of_scaled(X, k, c, start=scaled.metric, **options)
        assert here.objective() <= plain.objective()
        assert there.objective() == here.objective()
        assert np.array_equal(there.metric.coefs, here.metric.coefs / 4.0**k)


@every_loss
def test_float32_scale_equivariance(loss: Loss, blobs: tuple[NDArray, NDArray]) -> None:
    X, y = blobs
    c = Comparisons.from_labels(X, y)
    plain = boost(X.astype(np.float32), c, loss, max_iter=8)
    for scale in (1e-11, 1e10):
        fit = boost((scale * X).astype(np.float32), c, loss, max_iter=8)
        assert fit.metric.n_directions > 0
        assert same(scale**2 * fit.metric.matrix, plain.metric.matrix, rel=1e-3)


@pytest.mark.parametrize("alpha", [0.3, 5.0])
@pytest.mark.parametrize("k", [-40, 40])
@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
def test_absolute_alpha_is_in_units_of_user(
    regularizer: str, k: int, alpha: float, blobs: tuple[NDArray, NDArray]
) -> None:
    X, y = blobs
    c = Comparisons.from_labels(X, y)
    unit = 4.0**k if regularizer == "trace" else 16.0**k
    kind = REGULARIZERS[regularizer]
    plain = fit_of_scaled(X, 0, c, regularizer=kind(alpha))
    fit = fit_of_scaled(X, k, c, regularizer=kind(alpha * unit))
    assert fit.alpha == alpha * unit
    assert fit.objective() == plain.objective()
    assert np.array_equal(fit.metric.coefs, plain.metric.coefs / 4.0**k)
