"""Leading eigenpairs, against LAPACK."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from boostmetric.problem.operators import symmetric_operator
from boostmetric.solvers import eigen
from boostmetric.solvers.eigen import (
    EIGEN_SOLVERS,
    find_directions,
    follow_eigenpairs,
    leading_eigenpairs,
)

DTYPES = [np.float32, np.float64]

both_forms = pytest.mark.parametrize(
    "form", [np.asarray, aslinearoperator], ids=["matrix", "operator"]
)


def leading_eigenpair(A: NDArray | LinearOperator) -> tuple[float, NDArray]:
    values, vectors = leading_eigenpairs(A)
    return float(values[0]), vectors[:, 0]


def draw(D: int, dtype: type[np.floating] = np.float64, seed: int = 0) -> NDArray:
    half = np.random.default_rng([seed, D]).standard_normal((D, D))
    A = (half + half.T).astype(dtype)
    read_only(A)
    return A


def assert_leading(value: float, vector: NDArray, A: NDArray, tolerance: float) -> None:
    """The pair is that of `numpy.linalg.eigh`, and the largest entry of the vector is positive."""
    values, vectors = np.linalg.eigh(A.astype(np.float64))
    expected = vectors[:, -1] * np.sign(vectors[np.abs(vectors[:, -1]).argmax(), -1])
    assert value == pytest.approx(values[-1], rel=tolerance)
    assert vector == pytest.approx(expected, abs=100 * tolerance)
    assert vector.dtype == A.dtype
    assert type(value) is float


def tolerance(dtype: type[np.floating]) -> float:
    return 1e-10 if dtype is np.float64 else 1e-5


@pytest.mark.parametrize("dtype", DTYPES)
@both_forms
def test_leading_eigenpair_matches_eigh(dtype: type[np.floating], form: Any) -> None:
    for D in (1, 2, 3, 10, 60):
        A = draw(D, dtype)
        assert_leading(*leading_eigenpair(form(A)), A, tolerance(dtype))


@both_forms
def test_negative_matrix(form: Any) -> None:
    A = -np.diag([5.0, 1.0, 3.0, 4.0])
    value, vector = leading_eigenpair(form(A))
    assert value == pytest.approx(-1)
    assert vector == pytest.approx([0, 1, 0, 0], abs=1e-10)


def test_float32_eigenvalue_is_computed_in_float64() -> None:
    A = draw(60, np.float32)
    expected = np.linalg.eigvalsh(A.astype(np.float64))[-1]
    assert leading_eigenpair(A)[0] == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_is_formed_without_convergence(monkeypatch: pytest.MonkeyPatch, dtype: type) -> None:
    monkeypatch.setattr(eigen, "_lanczos", lambda *arguments: None)
    A = draw(20, dtype)
    assert_leading(*leading_eigenpair(aslinearoperator(A)), A, tolerance(dtype))


def test_slow_convergence_ends() -> None:
    # The leading eigenvalues are closer to each other than to the others by nine decades.
    diagonal = np.append(1 - 1e-7 * np.arange(150), np.linspace(-100, -1, 150))
    n_products = 0

    def product(v: NDArray) -> NDArray:
        nonlocal n_products
        n_products += 1
        return diagonal * v.ravel()

    operator = LinearOperator((300, 300), matvec=product, dtype=np.float64)
    values, _ = leading_eigenpairs(operator, 2, 1e-13)
    assert 500 < n_products < 1_000  # including those that form the matrix
    np.testing.assert_allclose(values, diagonal[:2], rtol=1e-12)


def test_operator_is_not_formed_if_lanczos_converges() -> None:
    A = draw(60)

    def refuse(V: NDArray) -> NDArray:
        raise AssertionError("the matrix was formed")

    operator = LinearOperator(A.shape, matvec=lambda v: A @ v, matmat=refuse, dtype=A.dtype)
    assert_leading(*leading_eigenpair(operator), A, 1e-10)


@both_forms
@pytest.mark.parametrize("D", [2, 20])
def test_multiple_eigenvalue(form: Any, D: int) -> None:
    value, vector = leading_eigenpair(form(3 * np.eye(D)))
    assert value == pytest.approx(3)
    assert np.linalg.norm(vector) == pytest.approx(1)
    assert vector[np.abs(vector).argmax()] > 0


@both_forms
def test_zero_matrix(form: Any) -> None:
    for D in (1, 2, 20):
        value, vector = leading_eigenpair(form(np.zeros((D, D))))
        assert value == 0
        assert np.linalg.norm(vector) == pytest.approx(1)


@both_forms
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenpairs_are_reproducible(form: Any, dtype: type[np.floating]) -> None:
    A = draw(40, dtype)
    (one, v), (two, w) = (leading_eigenpair(form(A.copy())) for _ in range(2))
    assert one == two
    assert np.array_equal(v, w)


@both_forms
@pytest.mark.parametrize("dtype", DTYPES)
def test_approximate_pairs_have_requested_accuracy(dtype: type[np.floating], form: Any) -> None:
    for D, accuracy, k in product((6, 40), (0.1, 1e-2, 1e-4), (1, 4)):
        A = draw(D, dtype)
        values, vectors = leading_eigenpairs(form(A), k, accuracy)
        assert values.shape == (k,)
        assert vectors.shape == (D, k)
        assert vectors.dtype == dtype
        assert (np.diff(values) <= 0).all()
        exact, V = A.astype(np.float64), vectors.astype(np.float64)
        residual = np.linalg.norm(exact @ V[:, 0] - values[0] * V[:, 0])
        assert residual <= 2 * accuracy * abs(values[0])
        # Ritz values do not exceed the eigenvalues.
        eps = 100 * float(np.finfo(dtype).eps)
        assert (values <= np.linalg.eigvalsh(exact)[::-1][:k] + eps * abs(values[0])).all()
        np.testing.assert_allclose(V.T @ V, np.eye(k), atol=eps)
        assert (V[np.abs(V).argmax(axis=0), np.arange(k)] > 0).all()


@both_forms
def test_approximate_pair_converges_to_exact_pair(form: Any) -> None:
    A = draw(40)
    values, vectors = np.linalg.eigh(A)
    for accuracy in (1e-2, 1e-4, 1e-8):
        value, vector = leading_eigenpairs(form(A), 1, accuracy)
        # The error of a Rayleigh quotient is at most the square of the residual over the distance.
        size, distance = accuracy * values[-1], values[-1] - values[-2]
        assert values[-1] - value[0] <= 4 * size**2 / distance + 1e-10
        assert 1 - abs(vector[:, 0] @ vectors[:, -1]) <= 4 * (size / distance) ** 2 + 1e-10


@both_forms
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize(
    "eigenvalues",
    [
        [-10, -1, 0, 0.5, 3, 1],
        [-10, *np.linspace(-2, 0.5, 27), 3, 1],
        [-10] * 12 + [0] * 16 + [3, 1],
    ],
    ids=["few", "one", "twelve"],
)
def test_dominant_negative_eigenvalue_is_not_leading(
    eigenvalues: list[float], k: int, form: Any
) -> None:
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(len(eigenvalues),) * 2))[0]
    A = Q * np.array(eigenvalues, dtype=float) @ Q.T
    A = (A + A.T) / 2
    values, vectors = leading_eigenpairs(form(A), k, 1e-4)
    assert values[0] == pytest.approx(3, rel=1e-6)
    assert abs(vectors[:, 0] @ Q[:, -2]) == pytest.approx(1, rel=1e-5)


@both_forms
def test_full_decomposition_is_exact(form: Any) -> None:
    A = draw(4)
    for k in (4, 5, 9):
        values, vectors = leading_eigenpairs(form(A), k, 0.1)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(A)[::-1], rtol=1e-12)
        np.testing.assert_allclose(vectors * values @ vectors.T, A, atol=1e-12)


def test_approximate_failure_falls_back_to_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eigen, "_lanczos", lambda *arguments: None)
    A = draw(40)
    values, vectors = leading_eigenpairs(A, 1, 1e-6)
    assert_leading(float(values[0]), vectors[:, 0], A, 1e-10)


@both_forms
@pytest.mark.parametrize("dtype", DTYPES)
def test_invariant_spaces_are_reproducible(form: Any, dtype: type[np.floating]) -> None:
    # Fewer distinct eigenvalues than vectors in the basis; 0 is that of constant features.
    eigenvalues = np.zeros(30, dtype=dtype)
    eigenvalues[:5] = 3, 2, 2, -1, -9
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(30, 30)))[0].astype(dtype)
    for A in ((Q * eigenvalues) @ Q.T, np.diag(eigenvalues)):
        A = (A + A.T) / 2
        for k, accuracy in product((1, 4), (None, 0.1, 1e-4)):
            pairs = [leading_eigenpairs(form(A), k, accuracy) for _ in range(6)]
            assert len({values.tobytes() + vectors.tobytes() for values, vectors in pairs}) == 1
            expected = np.sort(eigenvalues)[::-1][:k]
            values, vectors = pairs[0]
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-5)


def clustered(seed: int, D: int = 120) -> NDArray:
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    return (Q * np.concatenate([[9.0, 8.5, 8.0, 5.0], rng.uniform(-3, 3, D - 4)])) @ Q.T


@pytest.mark.parametrize("k", [1, 3, 8])
def test_followed_eigenpairs_stay_close(k: int) -> None:
    A, change = clustered(0), clustered(1)
    basis = None
    for step in range(25):
        now = A + 0.01 * step * change
        values, vectors, basis = follow_eigenpairs(aslinearoperator(now), k, basis)
        assert values.shape == (k,)
        assert vectors.shape == (120, k)
        assert basis.shape == (120, 2 * k)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-10)
        np.testing.assert_allclose(np.einsum("dj,dj->j", vectors, now @ vectors), values)
        largest = np.linalg.eigvalsh(now)[::-1][:k]
        assert (values <= largest + 1e-9).all()
        assert values[0] >= 0.9 * largest[0]


def test_followed_eigenpairs_converge_for_constant_operator() -> None:
    A, basis = clustered(2), None
    for _ in range(60):
        values, _, basis = follow_eigenpairs(aslinearoperator(A), 3, basis)
    np.testing.assert_allclose(values, [9.0, 8.5, 8.0], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_zero_eigenvalue_does_not_form_matrix(
    dtype: type[np.floating], rng: np.random.Generator
) -> None:
    # λ_max is 0, the others are down to −‖A‖: its residual is a rounding error relative to ‖A‖.
    D = 700
    Q = np.linalg.qr(rng.standard_normal((D, 40)))[0].astype(dtype)
    products = []

    def product(V: NDArray) -> NDArray:
        products.append(V.shape[1] if V.ndim > 1 else 1)
        return -(Q * np.linspace(1, 50, 40).astype(dtype)) @ (Q.T @ V)

    values, vectors = leading_eigenpairs(symmetric_operator(product, D, np.dtype(dtype)), 1)
    assert values[0] <= 50 * np.sqrt(np.finfo(dtype).eps)
    assert np.linalg.norm(vectors[:, 0]) == pytest.approx(1, rel=1e-5)
    assert max(products) == 1


def test_large_operator_is_not_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eigen, "_lanczos", lambda *arguments: None)
    diagonal = np.linspace(1, 4, 200)
    diagonal[7] = 9.0
    widths = []

    def product(V: NDArray) -> NDArray:
        widths.append(V.shape[-1] if V.ndim > 1 else 1)
        return (diagonal * V.T).T

    A = symmetric_operator(product, 200, np.dtype(float))
    values, vectors = leading_eigenpairs(A, 1, max_dense_size=100)
    assert values[0] == pytest.approx(9.0, rel=0.05)
    assert abs(vectors[7, 0]) > 0.9
    assert max(widths) < 20


# Directions for a solver.


@both_forms
@pytest.mark.parametrize("method", EIGEN_SOLVERS)
def test_directions_within_rounding_of_threshold_are_dropped(method: str, form: Any) -> None:
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(30, 30)))[0]
    eigenvalues = np.append(np.linspace(-8, 0.5, 28), [1.0, 2.0])
    A = (Q * eigenvalues) @ Q.T
    A = (A + A.T) / 2
    for threshold in (1.0, 2.0, 2.5):
        values, vectors, _ = find_directions(form(A), 4, threshold, method, None, 50)
        assert vectors.shape == (30, 4)
        assert (values > threshold).sum() == (eigenvalues > threshold + 1e-6).sum()
        assert values[0] == pytest.approx(2, rel=1e-2)


@pytest.mark.parametrize("method", EIGEN_SOLVERS)
def test_exact_pairs_confirm_that_no_direction_is_left(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Approximate pairs that miss the leading eigenvector must not end a fit.
    A = np.diag(np.append(np.full(39, -1.0), 1.0))
    approximate = np.eye(40)[:, :1]
    accuracies: list[float | None] = []
    exact = leading_eigenpairs

    def pairs(A: Any, k: int = 1, accuracy: float | None = None) -> tuple[NDArray, NDArray]:
        accuracies.append(accuracy)
        return exact(A, k) if accuracy is None else (np.array([-1.0]), approximate)

    monkeypatch.setattr(eigen, "leading_eigenpairs", pairs)
    monkeypatch.setattr(
        eigen, "follow_eigenpairs", lambda A, k, basis: (np.full(k, -1.0), np.eye(40)[:, :k], None)
    )
    values, vectors, _ = find_directions(aslinearoperator(A), 1, 0.0, method)
    assert accuracies[-1] is None
    assert values[0] == pytest.approx(1)
    assert abs(vectors[39, 0]) == pytest.approx(1)


def test_approximate_pairs_become_more_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies: list[float] = []

    def pairs(A: Any, k: int, accuracy: float) -> tuple[NDArray, NDArray]:
        accuracies.append(accuracy)
        return np.ones(k), np.eye(40)[:, :k]

    monkeypatch.setattr(eigen, "leading_eigenpairs", pairs)
    for n_steps in range(20):
        find_directions(np.eye(40), 1, 0.0, "approximate", None, n_steps)
    assert (np.diff(accuracies) < 0).all()
    assert accuracies[-1] <= 1e-2 * accuracies[0]


def test_larger_batch_resets_basis() -> None:
    A = aslinearoperator(clustered(3))
    basis = find_directions(A, 2, 0.0)[2]
    values, vectors, again = find_directions(A, 20, 0.0, "auto", basis, 1)
    assert values.shape == (20,)
    assert vectors.shape == (120, 20)
    assert again is not None
    assert values[0] == pytest.approx(9, rel=0.1)


def test_excess_within_rounding_is_ignored() -> None:
    A = draw(30)
    top = leading_eigenpairs(A)[0][0]
    for n_units, excess in ((1, False), (2, False), (1000, True)):
        threshold = float(top) * (1 - n_units * np.finfo(np.float64).eps)
        values, _, _ = find_directions(A, 1, threshold, "exact")
        assert (values[0] > threshold) == excess
