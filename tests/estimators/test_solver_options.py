"""Losses, solvers, batches and failures in the estimators."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, simple_learner
from failing import Failing, calls_of
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_iris

from boostmetric import (
    Comparisons,
    Hinge,
    NotANumberError,
    Status,
    boost,
)
from boostmetric.solvers import EIGEN_SOLVERS, SOLVERS
from boostmetric.solvers import hinge as hinge_module

Labeled = tuple[NDArray, NDArray]

# Each loss with each solver and with each regularizer.
COMBINATIONS = [
    *((loss, SOLVERS[i % 2], "trace") for i, loss in enumerate(SMOOTH)),
    *((loss, SOLVERS[1 - i % 2], "frobenius") for i, loss in enumerate(SMOOTH)),
    ("hinge", "totally_corrective", "trace"),
]


@pytest.fixture
def data(blobs: Labeled) -> tuple[NDArray, Comparisons]:
    return blobs[0], Comparisons.from_labels(*blobs)


# Combinations.


@pytest.mark.parametrize(("loss", "solver", "regularizer"), COMBINATIONS)
def test_estimator_equals_boost(
    loss: str, solver: str, regularizer: str, blobs: Labeled, data: tuple[NDArray, Comparisons]
) -> None:
    options: dict[str, Any] = {"solver": solver, "regularizer": regularizer, "max_iter": 10}
    options["directions_per_step"] = 2
    learner = simple_learner(loss, **options).fit(*blobs)
    assert np.isfinite(learner.transform(blobs[0])).all()
    assert learner.score(*blobs) > 0.5
    fit = boost(*data, loss, **options)
    np.testing.assert_allclose(fit.metric.matrix, learner.get_mahalanobis_matrix(), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"loss": "hinge", "solver": "stagewise"}, "solver='stagewise' does not work"),
        ({"loss": "hinge", "regularizer": "frobenius"}, "regularizer='frobenius' does not work"),
        ({"loss": "hinge", "alpha": 0.01}, "alpha has no effect"),
        ({"solver": "best"}, "solver"),
        ({"regularizer": "best"}, "regularizer"),
        ({"eigen_solver": "best"}, "eigen_solver"),
        ({"directions_per_step": 0}, "directions_per_step"),
        ({"directions_per_step": "a"}, "directions_per_step"),
    ],
)
def test_invalid_options_are_rejected_before_the_search(
    options: dict[str, Any], match: str, blobs: Labeled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise AssertionError("the neighbor search has begun")

    monkeypatch.setattr(Comparisons, "from_labels", fail)
    with pytest.raises(ValueError, match=match):
        simple_learner(**options).fit(*blobs)


@pytest.mark.parametrize(("solver", "alpha"), [("stagewise", 1.0), ("totally_corrective", 3.0)])
def test_relative_alpha_of_one_is_rejected_for_trace(
    solver: str, alpha: float, blobs: Labeled
) -> None:
    with pytest.raises(ValueError, match=r"alpha"):
        simple_learner(solver=solver, alpha=alpha).fit(*blobs)
    learner = simple_learner(solver=solver, alpha=alpha, regularizer="frobenius").fit(*blobs)
    assert len(learner.components_) > 0


@pytest.mark.parametrize("eigen_solver", EIGEN_SOLVERS)
def test_eigen_solvers_have_similar_scores(eigen_solver: str, blobs: Labeled) -> None:
    rough = simple_learner(eigen_solver=eigen_solver, max_iter=50).fit(*blobs)
    exact = simple_learner(max_iter=50).fit(*blobs)
    assert rough.score(*blobs) == pytest.approx(exact.score(*blobs), abs=0.05)


# Batches.


def two_classes(n: int, D: int) -> Labeled:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    return X, (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize(
    ("n", "D", "options", "tried"),
    [
        (1500, 40, {}, [16, 16, 8]),
        (200, 16, {}, [16, 16, 8]),
        (200, 15, {}, [15, 15, 10]),
        (200, 15, {"directions_per_step": 1}, [1] * 40),
        (1500, 16, {"directions_per_step": 30}, [30, 10]),
        (200, 16, {"directions_per_step": 15}, [15, 15, 10]),
    ],
)
def test_history_has_directions_per_step(
    n: int, D: int, options: dict[str, Any], tried: list[int]
) -> None:
    X, y = two_classes(n, D)
    options = {"directions_per_step": "auto", "tol": 0.0, **options}
    learner = simple_learner(max_iter=40, alpha=0.0, **options).fit(X, y)
    counts = learner.history_["n_tried"].tolist()
    assert counts == tried[: len(counts)]
    assert learner.n_iter_ == sum(counts)
    assert len(counts) == len(learner.history_["objective"])
    if len(counts) < len(tried):
        assert learner.status_ is not Status.MAX_ITER
    assert learner.metric_.n_directions <= 40


@pytest.mark.parametrize("n_passes", [1, 2])
def test_duality_gap_is_computed_if_tol_is_positive(n_passes: int, blobs: Labeled) -> None:
    options: dict[str, Any] = {"max_iter": 6, "directions_per_step": 3, "n_passes": n_passes}
    assert np.isnan(simple_learner(**options).fit(*blobs).duality_gap_)
    assert simple_learner(tol=1e-9, **options).fit(*blobs).duality_gap_ >= 0
    corrective = simple_learner(solver="totally_corrective", **options)
    assert corrective.fit(*blobs).duality_gap_ >= 0


def test_warm_start_in_batches(blobs: Labeled) -> None:
    X, y = blobs
    options: dict[str, Any] = {"directions_per_step": 3, "tol": 0.0}
    learner = simple_learner(max_iter=6, warm_start=True, **options).fit(X, y)
    first = learner.history_["objective"][-1]
    learner.fit(X, y)
    assert learner.history_["n_tried"].tolist() == [3, 3]
    assert learner.history_["objective"][0] < first
    whole = simple_learner(max_iter=12, **options).fit(X, y)
    assert learner.history_["objective"][-1] == pytest.approx(whole.history_["objective"][-1])


def test_early_stopping_in_batches() -> None:
    X, _ = two_classes(300, 8)
    y = np.random.default_rng(1).integers(0, 2, 300)  # random labels
    options: dict[str, Any] = {"directions_per_step": 4, "tol": 0.0}
    options |= {"early_stopping": True, "random_state": 0}
    learner = simple_learner(n_iter_no_change=8, max_iter=400, **options).fit(X, y)
    assert learner.status_ is Status.STOPPED
    n_tried = int(learner.history_["n_tried"].sum())
    assert n_tried >= 8
    assert learner.metric_.n_directions <= n_tried - 8
    kept = learner.get_mahalanobis_matrix()
    earlier = [
        simple_learner(n_iter_no_change=10**6, max_iter=n, **options).fit(X, y)
        for n in range(4, n_tried + 1, 4)
    ]
    assert any(np.allclose(kept, each.get_mahalanobis_matrix()) for each in earlier)


# The hinge.


def test_hinge_fit_transform_clone_and_pickle() -> None:
    X, y = load_iris(return_X_y=True)
    learner = simple_learner(loss="hinge").fit(X, y)
    assert learner.score(X, y) > simple_learner(init="pca", max_iter=1).fit(X, y).score(X, y) - 0.1
    assert learner.score(X, y) > 0.8
    assert learner.status_ is Status.CONVERGED
    assert np.isfinite(learner.duality_gap_)
    # Without gaps the program's π is minus its optimum.
    assert learner.alpha_ == pytest.approx(-learner.history_["objective"][-1], rel=1e-6)
    assert np.trace(learner.get_mahalanobis_matrix()) == pytest.approx(1, rel=1e-9)
    Z = learner.transform(X)
    assert Z.shape == (150, len(learner.components_))
    assert np.array_equal(pickle.loads(pickle.dumps(learner)).transform(X), Z)
    assert np.array_equal(clone(learner).fit(X, y).transform(X), Z)


def test_hinge_with_nu(blobs: Labeled) -> None:
    few, many = (simple_learner(loss=Hinge(nu)).fit(*blobs) for nu in (0.1, 0.9))
    # The average of the worst tenth of the margins is the lower one.
    assert few.history_["objective"][-1] > many.history_["objective"][-1]


def test_hinge_with_early_stopping(blobs: Labeled) -> None:
    learner = simple_learner(loss="hinge", early_stopping=True, random_state=0).fit(*blobs)
    assert np.isfinite(learner.transform(blobs[0])).all()
    assert np.trace(learner.get_mahalanobis_matrix()) == pytest.approx(1, rel=1e-9)


def test_hinge_keeps_float32(blobs: Labeled) -> None:
    X, y = blobs
    learner = simple_learner(loss="hinge").fit(X.astype(np.float32), y)
    expected = simple_learner(loss="hinge").fit(X, y)
    assert learner.components_.dtype == learner.transform(X.astype(np.float32)).dtype == np.float32
    assert learner.history_["objective"][-1] == pytest.approx(
        expected.history_["objective"][-1], rel=5e-3
    )


def test_hinge_with_passes_and_warm_start(blobs: Labeled) -> None:
    learner = simple_learner(loss="hinge", n_passes=2, warm_start=True).fit(*blobs)
    assert set(learner.history_["pass"]) == {0, 1}
    last = learner.history_["objective"][-1]
    learner.fit(*blobs)
    assert learner.history_["objective"][-1] == pytest.approx(last, rel=3e-3)


def test_hinge_without_highs_states_what_to_install(
    blobs: Labeled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        assert name == "highspy"
        raise ImportError(f"No module named {name!r}")

    def fail(*args: Any, **options: Any) -> Any:
        raise AssertionError("the neighbor search has begun")

    monkeypatch.setattr(hinge_module, "import_module", missing)
    monkeypatch.setattr(Comparisons, "from_labels", fail)
    with pytest.raises(ImportError, match=r"boostmetric\[hinge\].*loss='smoothed_hinge'"):
        simple_learner(loss="hinge").fit(*blobs)


# A loss that returns NaN.


@pytest.mark.parametrize("method", ["value", "duals"])
@pytest.mark.parametrize(
    ("solver", "directions_per_step", "once"),
    [("stagewise", 1, False), ("stagewise", 3, True), ("totally_corrective", 1, False)],
)
def test_failing_loss_raises_and_keeps_the_metric(
    once: bool,
    method: str,
    solver: str,
    directions_per_step: int,
    blobs: Labeled,
    data: tuple[NDArray, Comparisons],
) -> None:
    options: dict[str, Any] = {
        "solver": solver,
        "directions_per_step": directions_per_step,
        "tol": 0.0,
    }
    good = calls_of(method, *data, max_iter=2 * directions_per_step, **options)
    learner = simple_learner(loss=Failing(method, good, once), **options)
    with pytest.raises(NotANumberError, match=r"In step 3,"):
        learner.fit(*blobs)
    expected = simple_learner(loss=Failing(), max_iter=2 * directions_per_step, **options).fit(
        *blobs
    )
    assert learner.status_ is Status.FAILED
    assert learner.n_iter_ == 2 * directions_per_step
    assert len(learner.history_["objective"]) == 2
    assert np.array_equal(learner.history_["objective"], expected.history_["objective"])
    assert np.array_equal(learner.transform(blobs[0]), expected.transform(blobs[0]))
    assert np.array_equal(learner.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix())


@pytest.mark.parametrize("good", [0, 1])
def test_estimator_is_not_fitted_without_metric(good: int, blobs: Labeled) -> None:
    learner = simple_learner(loss=Failing("duals", good))
    with pytest.raises(NotANumberError):
        learner.fit(*blobs)
    assert not hasattr(learner, "components_")
    assert not hasattr(learner, "metric_")


@pytest.mark.parametrize("late", [0, 1, 8])
def test_failure_in_second_pass_keeps_the_metric(late: int, blobs: Labeled) -> None:
    X, y = blobs
    comparisons = Comparisons.from_labels(X, y)
    good = calls_of("duals", X, comparisons, max_iter=5, directions_per_step=1)
    first = simple_learner(loss=Failing(), max_iter=5).fit(X, y)
    learner = simple_learner(loss=Failing("duals", good + late, once=True), max_iter=5, n_passes=3)
    with pytest.raises(NotANumberError):
        learner.fit(X, y)
    assert learner.status_ is Status.FAILED
    in_second = int(np.sum(learner.history_["pass"] == 1))
    assert np.sum(learner.history_["pass"] == 0) == 5
    assert learner.n_iter_ == max(5, in_second)
    if in_second == 0:
        assert np.array_equal(learner.components_, first.components_)
    else:
        expected = simple_learner(max_iter=in_second, init=first.components_).fit(X, y)
        np.testing.assert_allclose(
            learner.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), rtol=1e-8
        )


def test_warm_start_after_failure(blobs: Labeled, data: tuple[NDArray, Comparisons]) -> None:
    good = calls_of("duals", *data, max_iter=3, directions_per_step=1)
    learner = simple_learner(loss=Failing("duals", good, once=True), warm_start=True, max_iter=10)
    with pytest.raises(NotANumberError):
        learner.fit(*blobs)
    kept = learner.history_["objective"][-1]
    learner.set_params(loss="logistic").fit(*blobs)
    assert learner.status_ is not Status.FAILED
    assert learner.history_["objective"][0] < kept


def test_early_stopping_does_not_hide_failure(blobs: Labeled) -> None:
    learner = simple_learner(
        loss=Failing("value", 1, once=True), early_stopping=True, random_state=0
    )
    with pytest.raises(NotANumberError, match="In step 1,"):
        learner.fit(*blobs)
    assert not hasattr(learner, "components_")
