from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, aslinearoperator

from boostmetric import eigen
from boostmetric.eigen import leading_eigenpair

DTYPES = [np.float32, np.float64]


def draw(D: int, dtype: type[np.floating] = np.float64, seed: int = 0) -> NDArray:
    half = np.random.default_rng([seed, D]).standard_normal((D, D))
    A = (half + half.T).astype(dtype)
    read_only(A)
    return A


def assert_leading(value: float, vector: NDArray, A: NDArray, tolerance: float) -> None:
    """The pair is what `numpy.linalg.eigh` finds, with the sign of the largest entry positive."""
    values, vectors = np.linalg.eigh(A.astype(np.float64))
    expected = vectors[:, -1] * np.sign(vectors[np.abs(vectors[:, -1]).argmax(), -1])
    assert value == pytest.approx(values[-1], rel=tolerance)
    assert vector == pytest.approx(expected, abs=100 * tolerance)
    assert vector.dtype == A.dtype
    assert type(value) is float


def tolerance(dtype: type[np.floating]) -> float:
    return 1e-10 if dtype is np.float64 else 1e-5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("D", [1, 2, 3, 10, 60])
@pytest.mark.parametrize("form", [np.asarray, aslinearoperator], ids=["matrix", "operator"])
def test_leading_eigenpair_is_eighs(D: int, dtype: type[np.floating], form: Any) -> None:
    A = draw(D, dtype)
    assert_leading(*leading_eigenpair(form(A)), A, tolerance(dtype))


@pytest.mark.parametrize("form", [np.asarray, aslinearoperator], ids=["matrix", "operator"])
def test_a_negative_matrix_has_a_negative_leading_eigenvalue(form: Any) -> None:
    A = -np.diag([5.0, 1.0, 3.0, 4.0])
    value, vector = leading_eigenpair(form(A))
    assert value == pytest.approx(-1)
    assert vector == pytest.approx([0, 1, 0, 0], abs=1e-10)


@pytest.mark.parametrize("D", [10, 60])
@pytest.mark.parametrize("which", [0, -2, -1])
def test_the_start_does_not_change_what_is_found(D: int, which: int) -> None:
    A = draw(D)
    start = np.linalg.eigh(A)[1][:, which]
    read_only(start)
    assert_leading(*leading_eigenpair(aslinearoperator(A), start), A, 1e-10)


def test_a_start_that_cannot_reach_the_eigenvector_does_not_hide_it() -> None:
    A = block_diag(draw(60), draw(20, seed=1) + 40 * np.eye(20))
    start = np.r_[np.ones(60), np.zeros(20)]
    read_only(A, start)
    assert_leading(*leading_eigenpair(aslinearoperator(A), start), A, 1e-10)


def test_the_eigenvalue_of_a_float32_matrix_is_computed_in_float64() -> None:
    A = draw(60, np.float32)
    expected = np.linalg.eigvalsh(A.astype(np.float64))[-1]
    assert leading_eigenpair(A)[0] == pytest.approx(expected, rel=1e-13)


def failing(error: ArpackError) -> Any:
    def eigsh(*args: Any, **options: Any) -> Any:
        raise error

    return eigsh


@pytest.mark.parametrize(
    "error",
    [
        ArpackNoConvergence("%d of %d", np.empty(0), np.empty((0, 0))),
        ArpackError(-9999),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_without_convergence_the_matrix_is_formed(
    monkeypatch: pytest.MonkeyPatch, error: ArpackError, dtype: type
) -> None:
    monkeypatch.setattr(eigen, "eigsh", failing(error))
    A = draw(20, dtype)
    assert_leading(*leading_eigenpair(aslinearoperator(A)), A, tolerance(dtype))


def test_a_vector_that_is_no_eigenvector_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    A = draw(20)
    value = np.linalg.eigvalsh(A)[-1]
    monkeypatch.setattr(eigen, "eigsh", lambda *_, **__: (np.array([value]), np.eye(20)[:, :1]))
    assert_leading(*leading_eigenpair(aslinearoperator(A)), A, 1e-10)


def test_an_operator_is_not_formed_where_lanczos_converges() -> None:
    A = draw(60)

    def refuse(V: NDArray) -> NDArray:
        raise AssertionError("the matrix was formed")

    operator = LinearOperator(A.shape, matvec=lambda v: A @ v, matmat=refuse, dtype=A.dtype)
    assert_leading(*leading_eigenpair(operator), A, 1e-10)


@pytest.mark.parametrize("form", [np.asarray, aslinearoperator], ids=["matrix", "operator"])
@pytest.mark.parametrize("D", [2, 20])
def test_a_multiple_eigenvalue_has_one_of_its_eigenvectors(form: Any, D: int) -> None:
    value, vector = leading_eigenpair(form(3 * np.eye(D)))
    assert value == pytest.approx(3)
    assert np.linalg.norm(vector) == pytest.approx(1)
    assert vector[np.abs(vector).argmax()] > 0


@pytest.mark.parametrize("form", [np.asarray, aslinearoperator], ids=["matrix", "operator"])
@pytest.mark.parametrize("D", [1, 2, 20])
def test_the_zero_matrix(form: Any, D: int) -> None:
    value, vector = leading_eigenpair(form(np.zeros((D, D))))
    assert value == 0
    assert np.linalg.norm(vector) == pytest.approx(1)


@pytest.mark.parametrize("form", [np.asarray, aslinearoperator], ids=["matrix", "operator"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_matrix_gives_the_same_bits(form: Any, dtype: type[np.floating]) -> None:
    A = draw(40, dtype)
    (one, v), (two, w) = (leading_eigenpair(form(A.copy()), A[0]) for _ in range(2))
    assert one == two
    assert np.array_equal(v, w)
