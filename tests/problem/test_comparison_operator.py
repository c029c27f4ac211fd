from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from conftest import problem_of, read_only
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric import Metric, boost
from boostmetric.engines import Threads
from boostmetric.problem import (
    LOSSES,
    Block,
    ComparisonOperator,
    Comparisons,
    Operator,
    Step,
    comparison_operator,
)

KINDS = ["triplets", "quadruplets", "pairs", "joined"]
DTYPES = [np.float32, np.float64]


@dataclass
class Case:
    """Comparisons, and the ends of their near and far pairs with the gaps, written out."""

    comparisons: Comparisons
    near: list[tuple[int, int]]
    far: list[tuple[int, int]]
    gaps: NDArray

    def matrices(self, X: NDArray) -> NDArray:
        """The A_r of the paper, in float64."""
        points = X.astype(np.float64)
        return np.array(
            [
                np.outer(points[k] - points[i], points[k] - points[i])
                - np.outer(points[b] - points[a], points[b] - points[a])
                for (a, b), (i, k) in zip(self.near, self.far, strict=True)
            ]
        )


def draw_case(kind: str, rng: np.random.Generator, n: int = 12, m: int = 40) -> Case:
    rows = np.array([rng.permutation(n)[:4] for _ in range(m)])
    gaps = rng.standard_normal(m)
    a, b, c, d = ([int(i) for i in column] for column in rows.T)
    if kind == "triplets":
        comparisons = Comparisons.from_triplets(rows[:, :3])
        return Case(
            comparisons, list(zip(a, b, strict=True)), list(zip(a, c, strict=True)), np.zeros(m)
        )
    if kind == "quadruplets":
        comparisons = Comparisons.from_quadruplets(rows, gaps=gaps)
        return Case(comparisons, list(zip(a, b, strict=True)), list(zip(c, d, strict=True)), gaps)
    if kind == "pairs":
        y, thresholds = rng.choice([-1, 1], m), rng.uniform(0.5, 4, m)
        comparisons = Comparisons.from_pairs(rows[:, :2], y, thresholds=thresholds)
        ends, itself = list(zip(a, b, strict=True)), [(5, 5)] * m
        return Case(
            comparisons,
            [e if s == 1 else z for e, z, s in zip(ends, itself, y, strict=True)],
            [z if s == 1 else e for e, z, s in zip(ends, itself, y, strict=True)],
            -y * thresholds,
        )
    parts = [draw_case(part, rng, n, m) for part in KINDS[:3]]
    return Case(
        parts[0].comparisons + parts[1].comparisons + parts[2].comparisons,
        [ends for part in parts for ends in part.near],
        [ends for part in parts for ends in part.far],
        np.concatenate([part.gaps for part in parts]),
    )


def draw_points(
    rng: np.random.Generator, dtype: type[np.floating], n: int = 12, D: int = 4
) -> NDArray:
    X = rng.standard_normal((n, D)).astype(dtype)
    read_only(X)
    return X


every_kind = pytest.mark.parametrize("kind", KINDS)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def margins_at(X: NDArray, comparisons: Comparisons, metric: Metric | None = None) -> NDArray:
    """Margins at a metric, or at M = 0."""
    problem = problem_of(X, comparisons)
    if metric is not None:
        problem.take(Step(metric.directions, metric.coefs, 0.0))
    return problem.margins_and_duals()[0]


def tolerance(dtype: type[np.floating]) -> float:
    return 1e-12 if dtype is np.float64 else 2e-5


@every_kind
@pytest.mark.parametrize(
    ("dtype", "D", "as_operator"),
    [(np.float32, 4, False), (np.float64, 1, True), (np.float64, 30, False)],
)
def test_scatter_matches_the_papers_matrices(
    kind: str,
    dtype: type[np.floating],
    D: int,
    as_operator: bool,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if as_operator:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    X, case = draw_points(rng, dtype, D=D), draw_case(kind, rng)
    duals = rng.exponential(size=len(case.comparisons)).astype(dtype)
    read_only(duals)
    expected = np.tensordot(duals.astype(np.float64), case.matrices(X), 1)
    scatter = ComparisonOperator(X, case.comparisons).scatter(duals)
    assert scatter.dtype == dtype
    assert scatter.shape == (D, D)
    assert isinstance(scatter, np.ndarray) != as_operator
    near = tolerance(dtype) * np.abs(expected).max()
    assert scatter @ np.eye(D, dtype=dtype) == pytest.approx(expected, abs=near)
    v = rng.standard_normal(D).astype(dtype)
    assert scatter @ v == pytest.approx(expected @ v, abs=10 * near)


@every_kind
@both_dtypes
def test_responses_match_the_papers_matrices(
    kind: str, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X, case = draw_points(rng, dtype), draw_case(kind, rng)
    v = rng.standard_normal(4).astype(dtype)
    v /= np.linalg.norm(v)
    read_only(v)
    expected = np.einsum("i,rij,j->r", v, case.matrices(X), v)
    responses = ComparisonOperator(X, case.comparisons).responses(v)
    assert responses == pytest.approx(expected, abs=20 * tolerance(dtype))
    assert responses.dtype == dtype


@every_kind
@pytest.mark.parametrize(("dtype", "J"), [(np.float32, 6), (np.float64, 0), (np.float64, 1)])
def test_margins_match_the_papers_matrices(
    kind: str, dtype: type[np.floating], J: int, rng: np.random.Generator
) -> None:
    X, case = draw_points(rng, dtype), draw_case(kind, rng)
    L = rng.standard_normal((J, 4)).astype(dtype)
    M = L.T.astype(np.float64) @ L
    expected = np.einsum("rij,ij->r", case.matrices(X), M) - case.gaps
    margins = margins_at(X, case.comparisons, Metric.from_components(L))
    assert margins == pytest.approx(expected, abs=100 * tolerance(dtype))
    assert margins.dtype == dtype


@both_dtypes
def test_margins_at_zero_are_minus_the_gaps(
    dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X, case = draw_points(rng, dtype), draw_case("pairs", rng)
    margins = margins_at(X, case.comparisons)
    assert margins == pytest.approx(-case.gaps, rel=tolerance(dtype))
    assert margins.dtype == dtype


@every_kind
def test_operator_is_translation_invariant(kind: str, rng: np.random.Generator) -> None:
    X, case = np.round(draw_points(rng, np.float64), 6), draw_case(kind, rng)
    here, there = (ComparisonOperator(X + shift, case.comparisons) for shift in (0.0, 1e7))
    duals = rng.exponential(size=len(case.comparisons))
    v, metric = rng.standard_normal(4), Metric(np.eye(4), np.ones(4))
    assert there.scatter(duals) == pytest.approx(here.scatter(duals), abs=1e-5)
    assert there.responses(v) == pytest.approx(here.responses(v), abs=1e-6)
    assert there.values(metric) == pytest.approx(here.values(metric), abs=1e-6)


@pytest.mark.parametrize("n", [12, 40])
def test_unused_points_do_not_affect_the_scatter(n: int, rng: np.random.Generator) -> None:
    X, case = draw_points(rng, np.float64, n=n), draw_case("joined", rng, n=12)
    duals = rng.exponential(size=len(case.comparisons))
    expected = np.tensordot(duals, case.matrices(X), 1)
    assert ComparisonOperator(X, case.comparisons).scatter(duals) == pytest.approx(
        expected, abs=1e-11
    )


def test_zero_weights_are_dropped(rng: np.random.Generator) -> None:
    X = draw_points(rng, np.float32, n=5)
    triplets, weights = [[0, 1, 2], [3, 1, 0], [4, 2, 1]], [0.0, 2.0, 0.5]
    gaps = [1.0, 2.0, 3.0]
    problem_whole = problem_of(X, Comparisons.from_triplets(triplets, weights=weights, gaps=gaps))
    problem_part = problem_of(X, Comparisons.from_triplets(triplets[1:], gaps=gaps[1:]))
    whole, part = problem_whole.single_block(), problem_part.single_block()
    assert whole.weights is not None
    assert whole.weights.tolist() == [2.0, 0.5]
    assert whole.weights.dtype == np.float32
    assert part.weights is None
    for problem in (problem_whole, problem_part):
        assert problem.margins_and_duals()[0].tolist() == [-2, -3]
    v = np.ones(4, np.float32)
    assert np.array_equal(whole.operator.responses(v), part.operator.responses(v))
    with pytest.raises(ValueError, match="All comparisons have weight 0"):
        problem_of(X, Comparisons.from_triplets(triplets, weights=0.0))


@pytest.mark.parametrize(
    ("n_points", "n", "message"),
    [
        (None, 5, "contain row 7, but X has 5 rows"),
        (9, 8, "created for 9 points, but X has 8 rows"),
    ],
)
def test_wrong_number_of_points_is_rejected(
    n_points: int | None, n: int, message: str, rng: np.random.Generator
) -> None:
    comparisons = Comparisons.from_triplets([[0, 1, 7]], n_points=n_points)
    with pytest.raises(ValueError, match=message):
        problem_of(draw_points(rng, np.float64, n=n), comparisons)


@pytest.mark.parametrize("weight", [1e-50, 1e39])
def test_weights_out_of_the_range_of_float32_are_rejected(weight: float) -> None:
    X = np.arange(3, dtype=np.float32)[:, None]
    with pytest.raises(ValueError, match=r"weights must be positive and in the range of float32"):
        problem_of(X, Comparisons.from_triplets([[0, 1, 2]], weights=weight))


# Measures, their expansion to responses, and its adjoint.


@both_dtypes
@pytest.mark.parametrize("k", [0, 1, 3])
def test_measures_are_squares_of_the_pairs(
    k: int, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X, case = draw_points(rng, dtype), draw_case("joined", rng)
    operator = ComparisonOperator(X, case.comparisons)
    V = rng.normal(size=(4, k)).astype(dtype)
    measures = operator.measures(V)
    assert measures.shape == (len(case.comparisons.pairs), k)
    assert measures.dtype == dtype
    assert (measures >= 0).all()
    expected = np.einsum("ij,rik,kj->rj", V, case.matrices(X), V)
    for j in range(k):
        near = 100 * tolerance(dtype)
        (expansion,) = operator.expansion
        responses = expansion @ measures[:, j]
        assert responses == pytest.approx(expected[:, j], rel=near, abs=near)


def test_expansion_is_far_minus_near_in_chunks(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_chunks(monkeypatch)
    X, case = draw_points(rng, np.float64, n=40), draw_case("joined", rng, n=40)
    operator = ComparisonOperator(X, case.comparisons)
    m, P = len(case.comparisons), len(case.comparisons.pairs)
    for parts, slices, n in (
        (operator.expansion, operator.chunks, m),
        (operator.adjoint, operator.measure_chunks, P),
    ):
        assert [part.shape[0] for part in parts] == [each.stop - each.start for each in slices]
        assert len(slices) > 1
        assert np.array_equal(np.concatenate([np.arange(n)[each] for each in slices]), np.arange(n))
    dense = np.concatenate([part.toarray() for part in operator.expansion])
    assert (np.abs(dense).sum(axis=1) == 2).all()
    assert (dense.sum(axis=1) == 0).all()
    adjoint = np.concatenate([part.toarray() for part in operator.adjoint])
    assert np.array_equal(adjoint, dense.T)


# Chunks, threads and powers of 2.


def small_chunks(monkeypatch: pytest.MonkeyPatch, entries: int = 40, n_spans: int = 3) -> None:
    """Constants for which a few points and comparisons make several chunks and spans."""
    monkeypatch.setattr(comparison_operator, "CHUNK_ENTRIES", entries)
    monkeypatch.setattr(comparison_operator, "MAX_SPANS", n_spans)
    monkeypatch.setattr(comparison_operator, "MIN_CHUNK", 20)


def everything(operator: ComparisonOperator, rng: np.random.Generator) -> list[NDArray]:
    """The results of all methods."""
    m, D, dtype = operator.n_matrices, operator.n_features, operator.dtype
    duals, V = rng.random(m).astype(dtype), rng.normal(size=(D, 3)).astype(dtype)
    N = rng.normal(size=(D, D))
    metric = Metric.from_components(rng.normal(size=(D + 2, D))).astype(dtype)
    return [
        np.asarray(operator.scatter(duals) @ V),
        operator.scatter_matrix(duals),
        operator.absolute_scatter(duals),
        operator.responses(V[:, 0]),
        operator.measures(V),
        operator.values(metric),
        operator.values_of(N + N.T),
    ]


KINDS_OF_POINTS: dict[str, Callable[[NDArray], Any]] = {
    "dense": lambda X: X,
    "sparse": lambda X: csr_array(X * (np.abs(X) > 0.7)),
}
every_kind_of_points = pytest.mark.parametrize("points", KINDS_OF_POINTS)


@both_dtypes
@every_kind_of_points
@pytest.mark.parametrize("is_dense", [True, False])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_results_do_not_depend_on_the_number_of_threads(
    points: str,
    dtype: type[np.floating],
    is_dense: bool,
    is_compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(1)
    small_chunks(monkeypatch)
    if is_compiled:
        pytest.importorskip("numba")
        monkeypatch.setattr("boostmetric.neighbors.kernels.MIN_WORK", 0)
    if not is_dense:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)
    X, case = draw_points(rng, dtype, n=40, D=5), draw_case("joined", rng, n=40)
    results = []
    for n_jobs in (1, 2, 5):
        with Threads(n_jobs) as threads:
            operator = ComparisonOperator(
                KINDS_OF_POINTS[points](X), case.comparisons, threads=threads
            )
            assert len(operator.chunks) > 2
            results.append(everything(operator, np.random.default_rng(2)))
    for other in results[1:]:
        for expected, found in zip(results[0], other, strict=True):
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected)


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
@both_dtypes
def test_blocks_do_not_depend_on_the_number_of_threads(
    loss: str, dtype: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    small_chunks(monkeypatch)
    X, case = draw_points(rng, dtype, n=40, D=5), draw_case("joined", rng, n=40)
    V = Metric.from_components(rng.normal(size=(3, 5))).directions.astype(dtype)
    step = Step(V, np.array([0.1, 0.4, 0.2]))
    results = []
    for n_jobs in (1, 2, 5):
        with Threads(n_jobs) as threads:
            operator = ComparisonOperator(X, case.comparisons, threads=threads)
            made = Block(operator, LOSSES[loss], case.gaps.astype(dtype), None, threads)
            part = made.query(0, 0, (step,), Block.evaluate, True)
            slopes = made.on_slice(V, 0.5, np.ones(3), True)
            assert part is not None
            assert isinstance(part.scatter, np.ndarray)
            results.append((part.value, part.dual_sum, part.scatter.tobytes(), slopes.tobytes()))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("n", "entries", "n_spans"),
    [(12, 1, 16), (23, 9, 2), (12, 20, 1), (23, 20, 16), (12, 10**6, 2)],
)
@every_kind_of_points
def test_scatter_does_not_depend_on_chunks(
    points: str,
    n: int,
    entries: int,
    n_spans: int,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_chunks(monkeypatch, entries, n_spans)
    X, case = draw_points(rng, np.float64, n=n), draw_case("joined", rng)  # 12 points are compared
    given = KINDS_OF_POINTS[points](X)
    operator = ComparisonOperator(given, case.comparisons)
    duals = rng.exponential(size=len(case.comparisons))
    dense = X if points == "dense" else given.toarray()
    expected = np.tensordot(duals, case.matrices(dense), 1)
    np.testing.assert_allclose(operator.scatter(duals), expected, rtol=1e-11, atol=1e-11)
    sizes = np.zeros((4, 4))
    for u, *ends in zip(duals, case.near, case.far, strict=True):
        for i, j in ends:
            sizes += u * np.outer(dense[i] - dense[j], dense[i] - dense[j])
    np.testing.assert_allclose(operator.absolute_scatter(duals), sizes, rtol=1e-11, atol=1e-11)


@both_dtypes
@every_kind_of_points
@pytest.mark.parametrize("exponent", [-3, 10])
def test_exponent_scales_all_results_exactly(
    points: str, exponent: int, dtype: type[np.floating]
) -> None:
    rng = np.random.default_rng(1)
    X, case = draw_points(rng, dtype, n=20, D=5), draw_case("joined", rng, n=20)
    given = KINDS_OF_POINTS[points](X)
    plain, scaled = (ComparisonOperator(given, case.comparisons, exponent=e) for e in (0, exponent))
    assert (plain.unit, scaled.unit) == (1, 4.0**exponent)
    pairs = zip(
        everything(plain, np.random.default_rng(2)),
        everything(scaled, np.random.default_rng(2)),
        strict=True,
    )
    for expected, found in pairs:
        assert found.dtype == dtype
        assert np.array_equal(found * dtype(scaled.unit), expected)


@every_kind_of_points
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e5, 1e15])
def test_default_exponent_scales_points_to_one(
    points: str, size: float, rng: np.random.Generator
) -> None:
    X, case = size * draw_points(rng, np.float64), draw_case("triplets", rng)
    given = KINDS_OF_POINTS[points](X / size) * size
    operator = ComparisonOperator(given, case.comparisons, exponent=None)
    assert 0.5 <= abs(operator.X).max() < 1
    assert operator.unit == 4.0**operator.exponent
    dense = given if points == "dense" else given.toarray()
    v = np.array([0.5, 0.5, -0.5, 0.5])
    expected = np.einsum("i,rij,j->r", v, case.matrices(dense / size), v)
    responses = operator.responses(v) * (operator.unit / size**2)
    assert responses == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_operator_does_not_modify_points(rng: np.random.Generator) -> None:
    X, case = 100 * draw_points(rng, np.float64), draw_case("triplets", rng)
    for given in (X, csr_array(X)):
        before = abs(given).sum()
        ComparisonOperator(given, case.comparisons, exponent=None)
        assert abs(given).sum() == before


def test_operator_does_not_depend_on_point_order(rng: np.random.Generator) -> None:
    X, rows = rng.normal(size=(14, 4)), np.array([rng.permutation(14)[:4] for _ in range(60)])
    order = rng.permutation(14)
    one, two = (
        ComparisonOperator(points, Comparisons.from_quadruplets(ends))
        for points, ends in ((X, rows), (X[order], np.argsort(order)[rows]))
    )
    duals = rng.random(60)
    np.testing.assert_allclose(two.scatter(duals), one.scatter(duals), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(two.responses(X[0]), one.responses(X[0]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_rejected(value: float, form: Any) -> None:
    X = np.arange(8.0).reshape(4, 2)
    X[2, 1] = value
    with pytest.raises(ValueError, match="X must be finite, but it contains NaN or infinity"):
        boost(form(X), Comparisons.from_triplets([[0, 1, 3]]))
