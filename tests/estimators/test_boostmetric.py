from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn
from conftest import read_only, simple_learner
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from boostmetric import BoostMetric, Comparisons, Loss, Status, Trace, knn_error
from boostmetric.estimators.early_stopping import hold_out_points

Data = tuple[NDArray, NDArray]


needs_callbacks = pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9),
    reason="requires the callbacks of scikit-learn 1.9",
)

CHECKS = [
    pytest.param(
        *each,
        id=f"{name}-{each[1].func.__name__}",
        marks=[] if name == "default" else pytest.mark.slow,
    )
    for name, estimator in {
        "default": BoostMetric(),
        "simple": simple_learner(),
        # With separable classes and this loss, margins and thus the effect of rounding grow without
        # bound.
        "exponential": simple_learner(loss="exponential", max_iter=20),
        "passes": simple_learner(n_passes=2, n_components=0.99),
        "whiten": simple_learner(init="whiten", n_neighbors=(2, 3)),
        # With all directions in one step, rounding changes the metric least.
        "corrective": simple_learner(
            solver="totally_corrective", alpha=0.01, max_iter=20, directions_per_step="auto"
        ),
    }.items()
    for each in estimator_checks_generator(estimator)
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
@pytest.mark.filterwarnings("ignore:points of class:UserWarning")
@pytest.mark.filterwarnings("ignore:No direction:UserWarning")
@pytest.mark.filterwarnings("ignore:Learning did not lower", "ignore:After learning")
def test_scikit_learn_checks(estimator: BoostMetric, check: Callable[[BoostMetric], None]) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def iris() -> Data:
    X, y = load_iris(return_X_y=True)
    read_only(X, y)
    return X, y


@pytest.fixture
def separable() -> Data:
    """Three classes in 20 dimensions that a metric can separate, so fits take many steps."""
    y = np.arange(60) % 3
    X = np.random.default_rng(0).normal(size=(60, 20))
    read_only(X, y)
    return X, y


def triplets(X: NDArray, y: NDArray) -> Comparisons:
    """The comparisons of `from_labels`, as quadruplets."""
    c = Comparisons.from_labels(X, y)
    near, far = c.pairs[c.near], c.pairs[c.far]
    return Comparisons.from_quadruplets(np.hstack([near, far]))


def test_methods_agree_with_mahalanobis_matrix(blobs: Data) -> None:
    X, y = blobs
    learner = simple_learner().fit(X, y)
    M = learner.get_mahalanobis_matrix()
    pairs = np.array([[0, 1], [5, 80], [3, 3]])
    differences = X[pairs[:, 0]] - X[pairs[:, 1]]
    expected = np.sqrt(np.einsum("ij,jk,ik->i", differences, M, differences))
    Z = learner.transform(X)
    distance = learner.get_metric()
    np.testing.assert_allclose(learner.pair_distance(pairs, X), expected)
    np.testing.assert_allclose(learner.pair_distance(X[pairs]), expected)
    np.testing.assert_allclose(learner.pair_score(pairs, X), -expected)
    np.testing.assert_allclose([distance(X[i], X[j]) for i, j in pairs], expected)
    np.testing.assert_allclose([distance(X[i], X[j], squared=True) for i, j in pairs], expected**2)
    np.testing.assert_allclose(
        np.linalg.norm(Z[pairs[:, 0]] - Z[pairs[:, 1]], axis=1), expected, atol=1e-12
    )
    np.testing.assert_allclose(learner.components_.T @ learner.components_, M, atol=1e-12)
    M[:] = 0
    assert learner.get_mahalanobis_matrix().any()


@pytest.mark.parametrize("dtype", [str, bool, float, object])
def test_labels_of_any_type_give_the_same_metric(dtype: type, blobs: Data) -> None:
    X, y = blobs
    y = np.minimum(y, 1)
    expected = simple_learner(max_iter=5).fit(X, y).components_
    learner = simple_learner(max_iter=5).fit(X, y.astype(dtype))
    np.testing.assert_array_equal(learner.components_, expected)


def test_comparisons_and_labels_give_the_same_metric(blobs: Data) -> None:
    X, y = blobs
    by_labels = simple_learner(max_iter=10).fit(X, y)
    by_comparisons = simple_learner(max_iter=10).fit(X, comparisons=triplets(X, y))
    np.testing.assert_allclose(
        by_comparisons.get_mahalanobis_matrix(), by_labels.get_mahalanobis_matrix(), rtol=1e-6
    )


def test_labels_and_comparisons_are_combined(blobs: Data) -> None:
    X, y = blobs
    extra = Comparisons.from_triplets([[0, 50, 1]], weights=100.0)
    joined = Comparisons.from_labels(X, y) + extra
    together = simple_learner(max_iter=10).fit(X, y, comparisons=extra)
    expected = simple_learner(max_iter=10).fit(X, comparisons=joined)
    np.testing.assert_array_equal(together.components_, expected.components_)
    assert together.score(X, comparisons=extra) == 1.0
    assert simple_learner(max_iter=10).fit(X, y).score(X, comparisons=extra) == 0.0


def test_score_is_the_share_of_satisfied_comparisons(blobs: Data) -> None:
    X, y = blobs
    learner = simple_learner(max_iter=20).fit(X, y)
    c = Comparisons.from_labels(X, y)
    far, near = (learner.pair_distance(c.pairs[side], X) for side in (c.far, c.near))
    assert learner.score(X, y) == pytest.approx(np.mean(far > near))
    assert learner.score(X, comparisons=c[:1]) == float(far[0] > near[0])


def test_comparisons_can_be_scored_after_fit_with_labels(blobs: Data) -> None:
    X, y = blobs
    learner = simple_learner(max_iter=5, n_passes=2, init="whiten").fit(X, y)
    assert learner.score(X, comparisons=triplets(X, y)) > 0.5


@pytest.mark.parametrize("init", [None, "scale", "whiten", "pca", "lda"])
def test_sample_weight_equals_repetition(init: str | None, blobs: Data) -> None:
    X, y = blobs
    weights = np.random.default_rng(1).integers(0, 4, size=len(X))
    repeated = simple_learner(max_iter=3, init=init).fit(
        X.repeat(weights, axis=0), y.repeat(weights)
    )
    weighted = simple_learner(max_iter=3, init=init).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(
        weighted.get_mahalanobis_matrix(), repeated.get_mahalanobis_matrix(), rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("init", [None, "scale", "whiten", "pca", "lda", "array"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_and_nearly_constant_features(
    init: str | None, dtype: type[np.floating], iris: Data
) -> None:
    X, y = iris
    noise = np.random.default_rng(0).normal(size=150)
    wide: NDArray = np.column_stack(
        [X, np.full(150, 7.0), 1e6 + 1e-9 * noise, 1e-6 * noise]
    ).astype(dtype)
    start: Any = np.eye(7)[:5] if init == "array" else init
    learner = simple_learner(init=start).fit(wide, y)
    Z = learner.transform(wide)
    assert Z.dtype == dtype
    assert np.isfinite(Z).all()
    assert knn_error(Z[::2], y[::2], Z[1::2], y[1::2]) < 0.1


@pytest.mark.parametrize("init", [None, "scale", "whiten", "pca", "lda"])
def test_fewer_points_than_features(init: str | None) -> None:
    X = np.random.default_rng(0).normal(size=(30, 100))
    y = np.arange(30) % 3
    learner = simple_learner(init=init).fit(X, y)
    assert np.isfinite(learner.components_).all()
    assert learner.score(X, y) > 0.95


def test_single_feature() -> None:
    X = np.r_[np.zeros(10), np.ones(10)][:, None] + np.linspace(0, 0.1, 20)[:, None]
    assert simple_learner().fit(X, np.repeat([0, 1], 10)).components_.shape == (1, 1)


def test_float32_is_kept(blobs: Data) -> None:
    X, y = blobs
    single = simple_learner(max_iter=5).fit(X.astype(np.float32), y)
    double = simple_learner(max_iter=5).fit(X.astype(np.float32).astype(np.float64), y)
    assert single.metric_.directions.dtype == single.components_.dtype == np.float32
    np.testing.assert_allclose(
        single.get_mahalanobis_matrix(), double.get_mahalanobis_matrix(), rtol=1e-3, atol=1e-3
    )


def test_result_does_not_depend_on_n_jobs(blobs: Data) -> None:
    X, y = blobs
    first = simple_learner(n_passes=2).fit(X, y).components_
    np.testing.assert_array_equal(simple_learner(n_passes=2).fit(X, y).components_, first)
    np.testing.assert_array_equal(simple_learner(n_passes=2, n_jobs=2).fit(X, y).components_, first)


def test_history_has_one_entry_per_step(separable: Data) -> None:
    X, y = separable
    learner = simple_learner(loss="exponential", max_iter=7, n_passes=3).fit(X, y)
    assert learner.n_iter_ == 7
    assert set(learner.history_) >= {
        "pass",
        "objective",
        "lambda_max",
        "coef",
        "n_violated",
        "duality_gap",
        "seconds",
    }
    assert {len(column) for column in learner.history_.values()} == {21}
    np.testing.assert_array_equal(learner.history_["pass"], np.repeat([0, 1, 2], 7))
    assert learner.status_ is Status.MAX_ITER


def test_second_pass_equals_fit_on_transformed_points(blobs: Data) -> None:
    X, y = blobs
    first = simple_learner(max_iter=10).fit(X, y)
    Z = first.transform(X)
    second = simple_learner(max_iter=10).fit(Z, y)
    both = simple_learner(max_iter=10, n_passes=2).fit(X, y)
    expected = first.components_.T @ second.get_mahalanobis_matrix() @ first.components_
    np.testing.assert_allclose(both.get_mahalanobis_matrix(), expected, rtol=1e-8, atol=1e-10)


def test_init_equals_fit_on_transformed_points(blobs: Data) -> None:
    X, y = blobs
    L = np.random.default_rng(2).normal(size=(3, 5))
    inner = simple_learner(max_iter=10).fit(X @ L.T, y)
    outer = simple_learner(max_iter=10, init=L).fit(X, y)
    expected = L.T @ inner.get_mahalanobis_matrix() @ L
    np.testing.assert_allclose(outer.get_mahalanobis_matrix(), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n_components", [1, 2, 0.5, 0.9999])
def test_n_components_keeps_the_leading_eigenvectors(n_components: Any, iris: Data) -> None:
    X, y = iris
    learner = simple_learner(n_components=n_components).fit(X, y)
    values, vectors = np.linalg.eigh(simple_learner().fit(X, y).get_mahalanobis_matrix())
    values, vectors = values[::-1], vectors[:, ::-1]
    rank = n_components
    if n_components < 1:
        rank = next(r for r in range(1, 5) if values[:r].sum() >= n_components * values.sum())
    expected = (vectors[:, :rank] * values[:rank]) @ vectors[:, :rank].T
    assert learner.components_.shape == (rank, 4)
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), expected, rtol=1e-8, atol=1e-10)


def test_warm_start_continues_the_last_fit(separable: Data) -> None:
    X, y = separable
    resumed = simple_learner(loss="exponential", max_iter=10, warm_start=True, n_passes=2).fit(X, y)
    resumed.fit(X, y)
    whole = simple_learner(loss="exponential", max_iter=20, n_passes=1)
    base = simple_learner(loss="exponential", max_iter=10).fit(X, y).components_
    expected = whole.set_params(init=base).fit(X, y)
    assert resumed.n_iter_ == 10
    np.testing.assert_allclose(
        resumed.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), rtol=1e-5, atol=1e-8
    )


def test_warm_start_rejects_other_features(blobs: Data) -> None:
    X, y = blobs
    learner = simple_learner(max_iter=2, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="X has 4 features, but BoostMetric is expecting 5"):
        learner.fit(X[:, :4], y)


def test_early_stopping_keeps_the_best_metric_on_held_out_points() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = rng.normal(size=(200, 30))
    X[:, 0] += 2 * y
    learner = simple_learner(
        loss="exponential", early_stopping=True, validation_fraction=0.3, random_state=0
    ).fit(X, y)
    full = simple_learner(loss="exponential").fit(X, y)
    assert learner.metric_.n_directions < learner.n_iter_ < full.n_iter_
    assert learner.status_ is Status.STOPPED
    fresh = rng.normal(size=(1000, 30))
    fresh_y = np.arange(1000) % 2
    fresh[:, 0] += 2 * fresh_y
    errors = [
        knn_error(each.transform(X), y, each.transform(fresh), fresh_y) for each in (learner, full)
    ]
    assert errors[0] < errors[1]


def test_early_stopping_without_labels_holds_out_comparisons(blobs: Data) -> None:
    X, y = blobs
    c = triplets(X, y)
    learner = simple_learner(
        loss="exponential", early_stopping=True, n_iter_no_change=5, random_state=0
    )
    learner.fit(X, comparisons=c)
    assert 0 < learner.metric_.n_directions <= learner.n_iter_
    again = clone(learner).fit(X, comparisons=c)
    np.testing.assert_array_equal(learner.components_, again.components_)


@pytest.mark.parametrize("seed", range(2))
def test_later_passes_lower_the_held_out_error(seed: int, blobs: Data) -> None:
    X, y = blobs
    options: dict[str, Any] = {"early_stopping": True, "random_state": seed, "n_iter_no_change": 5}
    held_out = hold_out_points(y, np.ones(120), 0.1, np.random.RandomState(seed))
    others = np.setdiff1d(np.arange(120), held_out)

    def error(n_passes: int) -> float:
        Z = simple_learner(n_passes=n_passes, **options).fit(X, y).transform(X)
        return knn_error(Z[others], y[others], Z[held_out], y[held_out])

    assert error(6) <= error(1)


def test_tol_ends_fit_at_the_optimum(blobs: Data) -> None:
    X, y = blobs
    learner = simple_learner(solver="totally_corrective", tol=1e-2).fit(X, y)
    assert learner.status_ is Status.CONVERGED
    assert 0 <= learner.duality_gap_ <= 1e-2 * learner.history_["objective"][-1]
    never = simple_learner(tol=0.0, max_iter=3).fit(X, y)
    assert never.status_ is Status.MAX_ITER


def test_duality_gaps_are_consistent_between_fits(blobs: Data) -> None:
    X, y = blobs
    fits = [
        simple_learner(solver=solver, max_iter=n, tol=1e-9).fit(X, y)
        for solver in ("stagewise", "totally_corrective")
        for n in (3, 30)
    ]
    objectives = [fit.history_["objective"][-1] for fit in fits]
    for fit, objective in zip(fits, objectives, strict=True):
        assert objective - fit.duality_gap_ <= min(objectives)


def test_custom_loss(blobs: Data) -> None:
    class SquaredHinge(Loss):
        def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
            return float(np.sum(np.maximum(1 - margins, 0) ** 2))

        def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
            return 2 * np.maximum(1 - margins, 0)

    X, y = blobs
    learner = clone(simple_learner(loss=SquaredHinge(), max_iter=30)).fit(X, y)
    objective = learner.history_["objective"]
    assert (np.diff(objective) <= 1e-12 * objective[0]).all()
    assert "SquaredHinge()" in repr(learner)


def test_pipeline_grid_search_clone_and_pickle() -> None:
    X, y = load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), simple_learner(max_iter=20), KNeighborsClassifier(3))
    search = GridSearchCV(pipeline, {"boostmetric__loss": ["exponential", "logistic"]}, cv=3)
    search.fit(X, y)
    assert search.best_score_ > 0.93
    restored = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(restored.predict(X), search.predict(X))
    assert clone(search.best_estimator_)[1].get_params() == search.best_estimator_[1].get_params()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_set_output_and_feature_names(library: str, iris: Data) -> None:
    frames = pytest.importorskip(library)
    X, y = iris
    frame = frames.DataFrame(dict(zip("abcd", X.T, strict=True)))
    learner = simple_learner(max_iter=5, n_components=2).set_output(transform=library).fit(frame, y)
    Z = learner.transform(frame)
    assert isinstance(Z, frames.DataFrame)
    assert list(Z.columns) == ["boostmetric0", "boostmetric1"]
    assert learner.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names should match"):
        learner.transform(frame[list("dcba")])


def test_metadata_is_routed_through_a_pipeline(blobs: Data) -> None:
    X, y = blobs
    extra = Comparisons.from_triplets([[0, 50, 1]], weights=100.0)
    weights = np.random.default_rng(0).uniform(size=len(X))
    with sklearn.config_context(enable_metadata_routing=True):
        learner = simple_learner(max_iter=10).set_fit_request(comparisons=True, sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), learner)
        pipeline.fit(X, y, comparisons=extra, sample_weight=weights)
    expected = simple_learner(max_iter=10).fit(
        StandardScaler().fit_transform(X), y, comparisons=extra, sample_weight=weights
    )
    np.testing.assert_array_equal(pipeline[-1].components_, expected.components_)


@needs_callbacks
def test_callbacks_observe_and_stop_the_fit(separable: Data) -> None:
    class Recorder:
        """Records the transformed points after each iteration, and stops after the seventh."""

        def __init__(self) -> None:
            self.tasks: list[str] = []
            self.images: list[NDArray] = []

        def setup(self, estimator: Any, context: Any) -> None:
            self.tasks.append("setup")

        def teardown(self, estimator: Any, context: Any) -> None:
            self.tasks.append("teardown")

        def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
            pass

        def on_fit_task_end(
            self, estimator: Any, context: Any, *, X: Any, fitted_estimator: Any
        ) -> bool:
            self.tasks.append(context.task_name)
            if context.task_name == "iteration":
                self.images.append(fitted_estimator.transform(X))
            return len(self.images) == 7

    X, y = separable
    recorder = Recorder()
    learner = simple_learner(loss="exponential", max_iter=20).set_callbacks(recorder)
    learner.fit(X, y)
    assert learner.n_iter_ == 7
    assert learner.status_ is Status.STOPPED
    assert recorder.tasks == ["setup", *["iteration"] * 7, "pass", "fit", "teardown"]
    np.testing.assert_allclose(recorder.images[-1], learner.transform(X))
    shorter = simple_learner(loss="exponential", max_iter=3).fit(X, y)
    np.testing.assert_allclose(recorder.images[2], shorter.transform(X))


@needs_callbacks
def test_progress_bar_of_scikit_learn(separable: Data, capsys: pytest.CaptureFixture[str]) -> None:
    from sklearn.callback import ProgressBar

    X, y = separable
    learner = simple_learner(max_iter=3, n_passes=2).set_callbacks(ProgressBar())
    learner.fit(X, y)
    assert learner.n_iter_ == 3


def test_later_steps_may_try_fewer_directions_than_the_first() -> None:
    # scikit-learn raises an error if there are more steps than were announced.
    X, y = load_wine(return_X_y=True)
    common: dict[str, Any] = {"init": None, "n_neighbors": 3, "n_passes": 1}
    common |= {"regularizer": Trace(1e-7), "solver": "totally_corrective"}
    n_tried = BoostMetric(**common).fit(X / X.std(), y).history_["n_tried"]  # 8, 5, 5, 3, 3
    max_iter = int(n_tried.sum())
    again = BoostMetric(max_iter=max_iter, **common).fit(X / X.std(), y)
    assert len(again.history_["n_tried"]) == len(n_tried)


def test_verbose_logs_without_printing(
    separable: Data, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = separable
    with caplog.at_level(logging.INFO, logger="boostmetric"):
        simple_learner(loss="exponential", max_iter=20, verbose=1).fit(X, y)
        assert len(caplog.records) == 3
        simple_learner(loss="exponential", max_iter=20, verbose=2).fit(X, y)
    assert len(caplog.records) == 3 + 21
    assert "objective" in caplog.text
    assert "MAX_ITER" in caplog.text
    assert capsys.readouterr().out == ""


def _with(value: Any, position: tuple[int, int] = (3, 1)) -> Callable[[NDArray], NDArray]:
    def change(X: NDArray) -> NDArray:
        X = X.astype(type(value) if isinstance(value, str) else float).copy()
        X[position] = value
        return X

    return change


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (_with(np.nan), ValueError, "Input X contains NaN"),
        (_with(np.inf), ValueError, "Input X contains infinity"),
        (_with("red"), ValueError, "X must be numeric.*'?red'?.*Encode or drop"),
        (np.zeros_like, ValueError, "All 120 points are identical"),
        (lambda X: X * 1e200, ValueError, "out of the range of float64. Scale X"),
        (lambda X: X * 1e-200, ValueError, "out of the range of float64. Scale X"),
        (lambda X: X[:-1], ValueError, "inconsistent numbers of samples"),
        (lambda X: X[0], ValueError, "Expected 2D array"),
    ],
)
def test_invalid_points_are_rejected(
    change: Callable[[NDArray], NDArray], error: type[Exception], message: str, blobs: Data
) -> None:
    X, y = blobs
    with pytest.raises(error, match=message):
        simple_learner().fit(change(X), y)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(120), "y has only one class, 0.0"),
        (np.linspace(0, 1, 120), "Unknown label type: continuous"),
        (None, "requires y to be passed.*comparisons, such as"),
    ],
)
def test_invalid_labels_are_rejected(labels: Any, message: str, blobs: Data) -> None:
    with pytest.raises(ValueError, match=message):
        simple_learner().fit(blobs[0], labels)


def test_small_class_warns(blobs: Data) -> None:
    labels = np.array(["a"] * 60 + ["b"] * 57 + ["few"] * 3)
    with pytest.warns(UserWarning, match="class 'few' have 2 of 3 targets") as caught:
        learner = simple_learner(max_iter=5).fit(blobs[0], labels)
    assert caught[0].filename == __file__
    assert learner.n_iter_ == 5


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"alpha": -1},
            r"The 'alpha' parameter must be a float in the range \[0.0, inf\). Got -1 in",
        ),
        ({"alpha": 1.0}, r"alpha must be < 1, got 1.0.*regularizer=Trace\(1.0\)"),
        ({"max_iter": 0}, r"'max_iter' parameter must be an int in the range \[1, inf\). Got 0"),
        ({"n_passes": 0}, "'n_passes' parameter"),
        ({"n_neighbors": 0}, "'n_neighbors' parameter"),
        ({"n_neighbors": (1, 2, 3)}, r"targets, impostors.* Got \(1, 2, 3\)"),
        ({"n_components": 0}, "'n_components' parameter"),
        ({"n_components": 1.0}, "share of the trace.* Got 1.0"),
        ({"n_components": 6}, r"n_components=6 exceeds the number of features \(5\)"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter"),
        ({"n_iter_no_change": 0}, "'n_iter_no_change' parameter"),
        ({"verbose": -1}, "'verbose' parameter"),
        ({"loss": "hinge loss"}, "one of {'exponential', 'logistic'.* Got 'hinge loss'"),
        ({"init": "random"}, "'init' parameter .*'whiten'"),
        ({"init": np.eye(3)}, r"init must have shape \(d, 5\).* got \(3, 3\)"),
        ({"init": np.full((2, 5), np.nan)}, "contains NaN"),
        ({"early_stopping": "yes"}, "'early_stopping' parameter must be a bool. Got 'yes'"),
        ({"n_jobs": 0}, "'n_jobs' parameter"),
        ({"n_jobs": -1.5}, "'n_jobs' parameter"),
        ({"init": np.eye(5)[:2], "n_components": 3}, "n_components=3 exceeds the 2 rows of init"),
        ({"alpha": 0.5, "regularizer": Trace(0.5)}, "both set the strength"),
        ({"index": "exact"}, "Use None, 'faiss', or an object"),
        ({"engine": 3}, "'engine' parameter"),
    ],
)
def test_invalid_parameters_are_rejected(
    parameters: dict[str, Any], message: str, blobs: Data
) -> None:
    with pytest.raises(ValueError, match=message):
        simple_learner(**parameters).fit(*blobs)


def test_error_for_too_large_alpha_states_the_limit(blobs: Data) -> None:
    with pytest.raises(ValueError, match="alpha must be below") as caught:
        simple_learner(regularizer=Trace(1e6)).fit(*blobs)
    largest = float(str(caught.value).split("must be below ")[1].rstrip("."))
    simple_learner(regularizer=Trace(0.999 * largest)).fit(*blobs)
    with pytest.raises(ValueError, match="is too strong"):
        simple_learner(regularizer=Trace(1.001 * largest)).fit(*blobs)


def test_starting_metric_is_kept_without_directions(blobs: Data) -> None:
    X, _ = blobs
    contradiction = Comparisons.from_triplets([[0, 1, 2], [0, 2, 1]])
    with pytest.warns(UserWarning, match="the starting metric is kept"):
        learner = simple_learner().fit(X, comparisons=contradiction)
    np.testing.assert_array_equal(learner.get_mahalanobis_matrix(), np.eye(5))
    assert learner.n_iter_ == 0
    assert learner.status_ is Status.NO_DIRECTION
    with pytest.warns(UserWarning, match="the starting metric is kept"):
        learner = simple_learner(init=2 * np.eye(5)).fit(X, comparisons=contradiction)
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), 4 * np.eye(5))


@pytest.mark.parametrize(
    ("parameters", "arguments", "message"),
    [
        ({"n_passes": 2}, {}, "n_passes > 1 requires y"),
        ({"init": "lda"}, {}, "init='lda' requires y"),
        ({"init": "whiten"}, {}, "init='whiten' requires y"),
        ({}, {"sample_weight": np.ones(120)}, "sample_weight requires y"),
    ],
)
def test_arguments_that_require_labels(
    parameters: dict[str, Any], arguments: dict[str, Any], message: str, blobs: Data
) -> None:
    c = Comparisons.from_triplets([[0, 1, 2]])
    with pytest.raises(ValueError, match=message):
        simple_learner(**parameters).fit(blobs[0], comparisons=c, **arguments)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-1.0, "sample_weight must be >= 0, got values between -1 and -1"),
        (np.nan, "sample_weight must be finite"),
        (0.0, "sample_weight is zero for all points"),
        (np.ones(3), r"sample_weight must be of shape \(120,\); got \(3,\)"),
        ("heavy", "sample_weight must be numbers"),
    ],
)
def test_invalid_sample_weights_are_rejected(weights: Any, message: str, blobs: Data) -> None:
    with pytest.raises(ValueError, match=message):
        simple_learner().fit(*blobs, sample_weight=weights)


def test_invalid_comparisons_are_rejected(blobs: Data) -> None:
    X, _ = blobs
    with pytest.raises(TypeError, match=r"must be a Comparisons object.*got list"):
        simple_learner().fit(X, comparisons=[[0, 1, 2, 3]])
    with pytest.raises(ValueError, match="contain row 120, but X has 120 rows"):
        simple_learner().fit(X, comparisons=Comparisons.from_triplets([[0, 1, 120]]))
    with pytest.raises(ValueError, match="created for 200 points, but X has 120 rows"):
        simple_learner().fit(X, comparisons=Comparisons.from_triplets([[0, 1, 2]], n_points=200))


@pytest.mark.parametrize(
    ("pairs", "given", "message"),
    [
        ([[0, 1]], False, "X is required when pairs are row indices"),
        ([[0.5, 1]], True, "must contain integer row indices"),
        ([[0, 1, 2]], True, "must contain integer row indices"),
        ([[0, 120]], True, "Row index 120 is out of bounds for X with 120 rows"),
        ([[-1, 0]], True, "Row index -1 is out of bounds"),
        (np.zeros((4, 2, 3)), False, "X has 3 features, but BoostMetric is expecting 5"),
    ],
)
def test_invalid_pairs_are_rejected(pairs: Any, given: bool, message: str, blobs: Data) -> None:
    X, y = blobs
    learner = simple_learner(max_iter=2).fit(X, y)
    with pytest.raises(ValueError, match=message):
        learner.pair_distance(pairs, X if given else None)


def test_early_stopping_requires_enough_data() -> None:
    X = np.random.default_rng(0).normal(size=(4, 2))
    with pytest.raises(ValueError, match="holds out no point of 4"):
        simple_learner(early_stopping=True, n_neighbors=1).fit(X, [0, 0, 1, 1])
    with pytest.raises(ValueError, match="requires at least 2"):
        simple_learner(early_stopping=True).fit(
            X, comparisons=Comparisons.from_triplets([[0, 1, 2]])
        )


def test_class_of_one_sample_has_no_targets(blobs: Data) -> None:
    X, y = blobs
    labels = y.copy()
    labels[0] = 7
    with pytest.warns(UserWarning, match=r"class 7 have 0 of 3 targets \(1 class"):
        learner = simple_learner(max_iter=5).fit(X, labels)
    with pytest.warns(UserWarning, match="class 7"):
        comparisons = Comparisons.from_labels(X, labels)
    expected = simple_learner(max_iter=5).fit(X, comparisons=comparisons)
    np.testing.assert_array_equal(learner.components_, expected.components_)
    # The point has no targets, but is an impostor of its neighbors.
    assert (comparisons.pairs == 0).any()


def test_numpy_values_and_triplet_lists_are_accepted(blobs: Data) -> None:
    X, y = blobs
    given: Any = {"n_neighbors": np.array([2, 3]), "n_components": np.float32(0.9)}
    learner = simple_learner(max_iter=5, verbose=False, **given).fit(X, y)
    expected = simple_learner(max_iter=5, n_neighbors=(2, 3), n_components=0.9).fit(X, y)
    np.testing.assert_array_equal(learner.components_, expected.components_)
    triplets = [[0, 1, 60], [2, 3, 100]]
    fit = simple_learner(max_iter=2).fit(X, comparisons=triplets)
    same = simple_learner(max_iter=2).fit(X, comparisons=Comparisons.from_triplets(triplets))
    np.testing.assert_array_equal(fit.components_, same.components_)
