"""Operators against the sums that they stand for, over an explicit stack of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from scipy.sparse.linalg import LinearOperator

from boostmetric import Metric, learn_psd
from boostmetric.problem import (
    ComparisonOperator,
    Comparisons,
    LowRankOperator,
    Operator,
    StackOperator,
    as_operator,
    check_operator,
)

Change = Callable[[NDArray], Any]

STACKS = ["array", "sparse", "mixed"]
LOW_RANK = ["one sign each", "own signs", "large"]
KINDS = [*STACKS, *LOW_RANK, "user's own"]
DTYPES = [np.float32, np.float64]
M = 9


class Own(Operator):
    """The two methods that a user must give, and nothing else; optionally made wrong."""

    def __init__(
        self,
        stack: NDArray,
        scatter: Change = lambda scatter: scatter,
        responses: Change = lambda responses: responses,
    ) -> None:
        super().__init__(len(stack), stack.shape[1], stack.dtype)
        self.stack, self.change_scatter, self.change_responses = stack, scatter, responses

    def scatter(self, duals: NDArray) -> NDArray:
        return self.change_scatter(np.tensordot(duals, self.stack, 1))

    def responses(self, direction: NDArray) -> NDArray:
        return self.change_responses(np.einsum("i,rij,j->r", direction, self.stack, direction))


def random_stack(rng: np.random.Generator, m: int = M, D: int = 4) -> NDArray:
    """Symmetric matrices that are indefinite, half of their entries 0."""
    stack = rng.standard_normal((m, D, D)) * (rng.random((m, D, D)) < 0.5)
    return stack + stack.transpose(0, 2, 1)


def draw(
    kind: str, D: int, dtype: type[np.floating], rng: np.random.Generator
) -> tuple[Operator, NDArray]:
    """An operator, and its matrices in float64."""
    if kind in LOW_RANK:
        factors = rng.standard_normal((M, 3, D)).astype(dtype)
        signs = np.array([1.0, -2.0, 0.5]) if kind != "own signs" else rng.standard_normal((M, 3))
        read_only(factors, signs)
        exact = factors.astype(np.float64)
        each = np.broadcast_to(signs.astype(dtype), (M, 3))
        return LowRankOperator(factors, signs), np.einsum("rk,rki,rkj->rij", each, exact, exact)
    stack = random_stack(rng, D=D).astype(dtype)
    read_only(stack)
    makers: dict[str, Callable[[], Operator]] = {
        "array": lambda: StackOperator(stack),
        "sparse": lambda: StackOperator([csr_array(A) for A in stack]),
        "mixed": lambda: StackOperator([csr_matrix(stack[0]), *stack[1:]]),
        "user's own": lambda: Own(stack),
    }
    return makers[kind](), stack.astype(np.float64)


def sum_of(weights: NDArray, matrices: NDArray) -> NDArray:
    """Σ_r weights_r·matrices_r, one by one."""
    total = np.zeros(matrices.shape[1:])
    for weight, matrix in zip(weights, matrices, strict=True):
        total += float(weight) * matrix
    return total


def absolute(matrix: NDArray) -> NDArray:
    """The matrix with the same eigenvectors, and the absolute values of the eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.abs(values)) @ vectors.T


def near(expected: NDArray, dtype: type[np.floating]) -> Any:
    """Equal up to rounding."""
    scale = 1e-13 if dtype is np.float64 else 1e-5
    return pytest.approx(expected, abs=scale * (1 + float(np.abs(expected).max())))


@pytest.fixture(autouse=True)
def large_if_named_so(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the scatter of the kind "large" an operator."""
    if hasattr(request.node, "callspec") and request.node.callspec.params.get("kind") == "large":
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 0)


every_kind = pytest.mark.parametrize("kind", KINDS)
every_stack = pytest.mark.parametrize("kind", STACKS)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)
every_size = pytest.mark.parametrize(("dtype", "D"), [(np.float64, 1), (np.float32, 4)])


@every_kind
@every_size
def test_scatter_matches_the_matrices(
    kind: str, dtype: type[np.floating], D: int, rng: np.random.Generator
) -> None:
    operator, stack = draw(kind, D, dtype, rng)
    duals = rng.standard_normal(M).astype(dtype)
    read_only(duals)
    expected = sum_of(duals, stack)
    scatter = operator.scatter(duals)
    assert isinstance(scatter, LinearOperator if kind == "large" else np.ndarray)
    assert scatter.shape == (D, D)
    assert scatter.dtype == operator.dtype == dtype
    v = rng.standard_normal(D).astype(dtype)
    assert scatter @ v == near(expected @ v, dtype)
    assert scatter @ np.eye(D, dtype=dtype) == near(expected, dtype)
    matrix = operator.scatter_matrix(duals)
    assert isinstance(matrix, np.ndarray)
    assert matrix.dtype == dtype
    assert matrix == near(expected, dtype)


@every_kind
@every_size
def test_responses_match_the_matrices(
    kind: str, dtype: type[np.floating], D: int, rng: np.random.Generator
) -> None:
    operator, stack = draw(kind, D, dtype, rng)
    v = 3 * rng.standard_normal(D).astype(dtype)
    read_only(v)
    responses = operator.responses(v)
    exact = v.astype(np.float64)
    assert responses.shape == (M,)
    assert responses.dtype == dtype
    assert responses == near(np.array([exact @ A @ exact for A in stack]), dtype)


@every_kind
@every_size
def test_values_match_the_matrices(
    kind: str, dtype: type[np.floating], D: int, rng: np.random.Generator
) -> None:
    operator, stack = draw(kind, D, dtype, rng)
    for J in (0, 1, 3, 8):
        metric = Metric.from_components(rng.standard_normal((J, D)).astype(dtype))
        expected = np.array([np.sum(A * metric.matrix) for A in stack])
        values = operator.values(metric)
        assert values.dtype == dtype
        assert values == near(expected, dtype)


@every_kind
@every_size
def test_values_of_an_indefinite_matrix_match_the_matrices(
    kind: str, dtype: type[np.floating], D: int, rng: np.random.Generator
) -> None:
    operator, stack = draw(kind, D, dtype, rng)
    N = -random_stack(rng, 1, D)[0] - np.eye(D)
    read_only(N)
    values = operator.values_of(N)
    assert values.dtype == dtype
    assert values == near(np.array([np.sum(A * N) for A in stack]), dtype)


@every_kind
@both_dtypes
def test_absolute_scatter_is_positive_definite(
    kind: str, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    operator, _ = draw(kind, 4, dtype, rng)
    sizes = operator.absolute_scatter(rng.exponential(size=M).astype(dtype))
    assert sizes.shape == (4, 4)
    assert sizes == near(sizes.T, dtype)
    assert np.linalg.eigvalsh(sizes.astype(np.float64))[0] > 0


@every_stack
def test_absolute_scatter_of_a_stack_is_an_upper_bound(kind: str, rng: np.random.Generator) -> None:
    operator, stack = draw(kind, 5, np.float64, rng)
    duals = rng.exponential(size=M)
    total = sum_of(duals, np.array([absolute(A) for A in stack]))
    assert np.linalg.eigvalsh(operator.absolute_scatter(duals) - total)[0] >= -1e-12


@pytest.mark.parametrize("kind", LOW_RANK)
def test_absolute_scatter_of_factors_uses_absolute_signs(
    kind: str, rng: np.random.Generator
) -> None:
    factors = rng.standard_normal((M, 3, 4))
    signs = rng.standard_normal((M, 3) if kind == "own signs" else 3)
    duals = rng.exponential(size=M)
    expected = np.zeros((4, 4))
    for r in range(M):
        for k in range(3):
            sign = abs(np.broadcast_to(signs, (M, 3))[r, k])
            expected += duals[r] * sign * np.outer(factors[r, k], factors[r, k])
    sizes = LowRankOperator(factors, signs).absolute_scatter(duals)
    assert sizes == near(expected, np.float64)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_integer_matrices_are_converted_to_float64(dtype: type[np.integer]) -> None:
    stack = np.array([[[100, 120], [120, 90]], [[0, 7], [7, 100]]], dtype=dtype)
    duals, v = np.array([1.0, 2.0]), np.array([1.0, -3.0])
    low_rank = LowRankOperator(np.array([[[100, 120]]], dtype=dtype), [2])
    for operator in (StackOperator(stack), StackOperator([csr_array(A) for A in stack])):
        assert operator.dtype == np.float64
        assert operator.scatter(duals).tolist() == [[100, 134], [134, 290]]
        assert operator.responses(v).tolist() == [100 - 720 + 810, -42 + 900]
        assert operator.absolute_scatter(duals).tolist() == [[234, 0], [0, 424]]
    assert low_rank.dtype == np.float64
    assert low_rank.responses(v).tolist() == [2 * (100 - 360) ** 2]


@both_dtypes
def test_comparison_operator_matches_a_stack(
    dtype: type[np.floating], rng: np.random.Generator
) -> None:
    X = rng.standard_normal((12, 4)).astype(dtype)
    rows = np.array([rng.permutation(12)[:4] for _ in range(30)])
    near_pairs, far_pairs = (
        (X[rows[:, a]] - X[rows[:, b]]).astype(np.float64) for a, b in ((0, 1), (2, 3))
    )
    stack = np.array(
        [np.outer(f, f) - np.outer(n, n) for n, f in zip(near_pairs, far_pairs, strict=True)]
    )
    given, expected = (
        ComparisonOperator(X, Comparisons.from_quadruplets(rows)),
        StackOperator(stack),
    )
    duals, v = rng.standard_normal(30).astype(dtype), rng.standard_normal(4).astype(dtype)
    metric = Metric.from_components(rng.standard_normal((3, 4)).astype(dtype))
    N = random_stack(rng, 1)[0]
    assert given.scatter(duals) == near(expected.scatter(duals), dtype)
    assert given.responses(v) == near(expected.responses(v), dtype)
    assert given.values(metric) == near(expected.values(metric), dtype)
    assert given.values_of(N) == near(expected.values_of(N), dtype)
    assert np.linalg.eigvalsh(given.absolute_scatter(np.abs(duals)))[0] > 0


def with_entry(value: float, sparse: bool = False, both: bool = True) -> list[Any]:
    """Three matrices of ones, the third with an invalid entry, on one or both sides."""
    stack = np.ones((3, 2, 2))
    stack[2, 0, 1] = value
    if both:
        stack[2, 1, 0] = value
    return [csr_array(A) for A in stack] if sparse else list(stack)


@pytest.mark.parametrize(
    ("matrices", "message"),
    [
        ([np.eye(2), np.eye(3)], r"matrix 1 has shape \(3, 3\) and matrix 0 has shape \(2, 2\)"),
        ([np.eye(2), csr_array(np.eye(3))], r"of the same shape; matrix 1 has shape \(3, 3\)"),
        ([np.eye(2), np.ones(2)], r"matrix 1 has shape \(2,\)"),
        ([np.ones((2, 3))] * 2, r"must be square .* matrix 0 has shape \(2, 3\)"),
        (np.eye(3), r"must be square .* matrix 0 has shape \(3,\)"),
        (np.ones((2, 3, 2)), r"must be square .* matrix 0 has shape \(3, 2\)"),
        (with_entry(2.0, both=False), r"Matrix 2 is not symmetric.*by 1.*\(A \+ A\.T\) / 2"),
        (with_entry(2.0, both=False, sparse=True), "Matrix 2 is not symmetric"),
        (with_entry(np.nan), "matrix 2 contains NaN or infinity"),
        (with_entry(np.nan, both=False), "matrix 2 contains NaN or infinity"),
        (with_entry(np.nan, sparse=True), "matrix 2 contains NaN or infinity"),
        (with_entry(-np.inf), "matrix 2 contains NaN or infinity"),
        (with_entry(np.inf, sparse=True), "matrix 2 contains NaN or infinity"),
        ([np.eye(1), np.array([["a"]])], "real numbers; matrix 1 has dtype <U1"),
        ([np.array([[None]])], "real numbers; matrix 0 has dtype object"),
        ([], "At least one matrix A_r is required; got none"),
        (np.empty((0, 3, 3)), "At least one matrix A_r is required; got none"),
    ],
)
def test_invalid_matrices_are_rejected(matrices: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learn_psd(matrices)


def test_asymmetry_from_rounding_is_accepted() -> None:
    A = np.array([[1.0, 3.0], [3.0 * (1 + 1e-7), 2.0]])
    for matrices in ([A], [csr_array(A)], [np.zeros((2, 2))]):
        check_operator(StackOperator(matrices))


@pytest.mark.parametrize(
    ("factors", "signs", "message"),
    [
        (
            np.ones((3, 2)),
            [1, -1],
            r"factors must be .*\(m, k, D\); got shape \(3, 2\)",
        ),
        (np.ones((3, 2, 4, 1)), [1, -1], r"\(m, k, D\); got shape \(3, 2, 4, 1\)"),
        (np.ones((0, 2, 4)), [1, -1], r"\(m, k, D\); got shape \(0, 2, 4\)"),
        (np.ones((3, 0, 4)), [], r"\(m, k, D\); got shape \(3, 0, 4\)"),
        (np.full((3, 2, 4), "a"), [1, -1], r"factors must be numbers"),
        (
            np.ones((3, 2, 4)),
            [1, -1, 1],
            r"signs .* shape \(2,\) or \(3, 2\) .*; got shape \(3,\)",
        ),
        (np.ones((3, 2, 4)), np.ones((2, 3)), r"signs must have shape .*; got shape \(2, 3\)"),
        (np.ones((3, 2, 4)), 1.0, r"signs must have shape .*; got shape \(\)"),
        (np.full((3, 2, 4), np.nan), [1, -1], "factors and signs must be finite"),
        (np.ones((3, 2, 4)), [1, np.inf], "factors and signs must be finite"),
    ],
)
def test_invalid_factors_are_rejected(factors: Any, signs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LowRankOperator(factors, signs)


@pytest.mark.parametrize("given", [None, 3.0, csr_array(np.eye(2)), iter([np.eye(2)])])
def test_other_types_are_rejected(given: Any) -> None:
    message = rf"operator must be an array .*list.*sparse.*Operator; got {type(given).__name__}\."
    with pytest.raises(TypeError, match=message):
        learn_psd(given)


def test_comparisons_are_rejected() -> None:
    given: Any = Comparisons.from_triplets([[0, 1, 2]])
    with pytest.raises(TypeError, match=r"operator must be .*; got Comparisons\."):
        learn_psd(given)


def test_as_operator_returns_operators_unchanged() -> None:
    operator = Own(np.eye(2)[None])
    assert as_operator(operator) is operator
    assert isinstance(as_operator((np.eye(2),)), StackOperator)


@every_kind
@every_size
def test_valid_operators_pass_the_check(
    kind: str, dtype: type[np.floating], D: int, rng: np.random.Generator
) -> None:
    check_operator(draw(kind, D, dtype, rng)[0])


@both_dtypes
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_check_does_not_depend_on_the_scale(
    scale: float, dtype: type[np.floating], rng: np.random.Generator
) -> None:
    stack = (scale * random_stack(rng)).astype(dtype)
    check_operator(Own(stack))
    with pytest.raises(ValueError, match="is inconsistent"):
        check_operator(Own(stack, responses=lambda h: 2 * h))
    with pytest.raises(ValueError, match="not symmetric"):
        check_operator(Own(stack, scatter=np.triu))


def with_nan(array: NDArray) -> NDArray:
    array = array.copy()
    array.flat[1] = np.nan
    return array


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"responses": lambda h: h / 2}, r"Own is inconsistent: .*scatter\(u\) @ v is"),
        ({"responses": lambda h: -h}, "Own is inconsistent"),
        ({"responses": np.abs}, "Own is inconsistent"),
        ({"responses": lambda h: h[::-1]}, "Own is inconsistent"),
        ({"responses": lambda h: h + 1}, "Own is inconsistent"),
        ({"scatter": lambda S: S + np.eye(4)}, "Own is inconsistent"),
        ({"scatter": lambda S: S[:3]}, r"Own.scatter must return shape \(4, 4\); got \(3, 4\)"),
        (
            {"scatter": lambda S: S[None]},
            r"Own.scatter must return .*; got \(1, 4, 4\)",
        ),
        ({"scatter": np.diag}, r"Own.scatter must return shape \(4, 4\); got \(4,\)"),
        ({"responses": lambda h: h[1:]}, r"Own.responses must return shape \(9,\); got \(8,\)"),
        (
            {"responses": lambda h: h[:, None]},
            r"Own.responses must return .*; got \(9, 1\)",
        ),
        ({"responses": np.sum}, r"Own.responses must return shape \(9,\); got \(\)"),
        ({"scatter": np.tril}, "Own.scatter is not symmetric: every A_r must be"),
        ({"scatter": with_nan}, "Own returns numbers that are not finite"),
        ({"responses": with_nan}, "Own returns numbers that are not finite"),
        ({"responses": lambda h: h * np.inf}, "Own returns numbers that are not finite"),
    ],
)
def test_invalid_operators_fail_the_check(
    wrong: dict[str, Change], message: str, rng: np.random.Generator
) -> None:
    operator = Own(random_stack(rng), **wrong)
    with pytest.raises(ValueError, match=message):
        check_operator(operator)
    with pytest.raises(ValueError, match=message):
        learn_psd(operator)
