from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from conftest import block_at, problem_of, read_only
from numpy.typing import NDArray

from boostmetric import ComparisonOperator, Comparisons, Metric, Operator, Step

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
    return block_at(problem)._margins


def tolerance(dtype: type[np.floating]) -> float:
    return 1e-12 if dtype is np.float64 else 2e-5


@every_kind
@both_dtypes
@pytest.mark.parametrize("D", [1, 4, 30])
@pytest.mark.parametrize("as_operator", [False, True])
def test_scatter_is_the_sum_of_the_papers_matrices(
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
def test_responses_are_those_of_the_papers_matrices(
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
@both_dtypes
@pytest.mark.parametrize("J", [0, 1, 6])
def test_margins_are_those_of_the_papers_matrices_less_the_gaps(
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
def test_margins_of_no_metric_are_the_gaps_alone(
    dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X, case = draw_points(rng, dtype), draw_case("pairs", rng)
    margins = margins_at(X, case.comparisons)
    assert margins == pytest.approx(-case.gaps, rel=tolerance(dtype))
    assert margins.dtype == dtype


@every_kind
def test_moving_all_points_changes_nothing(kind: str, rng: np.random.Generator) -> None:
    X, case = np.round(draw_points(rng, np.float64), 6), draw_case(kind, rng)
    here, there = (ComparisonOperator(X + shift, case.comparisons) for shift in (0.0, 1e7))
    duals = rng.exponential(size=len(case.comparisons))
    v, metric = rng.standard_normal(4), Metric(np.eye(4), np.ones(4))
    assert there.scatter(duals) == pytest.approx(here.scatter(duals), abs=1e-5)
    assert there.responses(v) == pytest.approx(here.responses(v), abs=1e-6)
    assert there.values(metric) == pytest.approx(here.values(metric), abs=1e-6)


@pytest.mark.parametrize("n", [12, 40])
def test_points_in_no_comparison_do_not_matter(n: int, rng: np.random.Generator) -> None:
    X, case = draw_points(rng, np.float64, n=n), draw_case("joined", rng, n=12)
    duals = rng.exponential(size=len(case.comparisons))
    expected = np.tensordot(duals, case.matrices(X), 1)
    assert ComparisonOperator(X, case.comparisons).scatter(duals) == pytest.approx(
        expected, abs=1e-11
    )


def test_comparisons_of_weight_zero_are_left_out(rng: np.random.Generator) -> None:
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
    assert block_at(problem_whole)._margins.tolist() == [-2, -3]
    assert block_at(problem_part)._margins.tolist() == [-2, -3]
    v = np.ones(4, np.float32)
    assert np.array_equal(whole.operator.responses(v), part.operator.responses(v))
    with pytest.raises(ValueError, match="all comparisons have weight 0"):
        problem_of(X, Comparisons.from_triplets(triplets, weights=0.0))


@pytest.mark.parametrize(
    ("n_points", "n", "message"),
    [(None, 5, "names row 7, but X has 5 rows"), (9, 8, "about 9 points, but X has 8 rows")],
)
def test_points_must_be_those_of_the_comparisons(
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
