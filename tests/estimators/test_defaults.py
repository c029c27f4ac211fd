"""What "auto" stands for in the parameters of `BoostMetric`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from boostmetric import BoostMetric, Comparisons, Frobenius, Hinge, Shrinkage, Trace
from boostmetric.estimators.settings import Settings


def settings_of(
    n: int = 100, labels: NDArray | None = None, n_features: int = 10, **parameters: Any
) -> Settings:
    settings = Settings.from_params(BoostMetric(**parameters).get_params())
    return settings.for_data(n_features, np.arange(n) % 2 if labels is None else labels)


@pytest.mark.parametrize(
    ("n", "n_features", "n_neighbors", "alpha"),
    [(100, 2, 5, 1e-2), (2000, 2, 5, 1e-2), (2001, 2, 3, 1e-3), (2001, 15, 3, 1e-2)],
)
def test_defaults_depend_on_the_number_of_points(
    n: int, n_features: int, n_neighbors: int, alpha: float
) -> None:
    settings = settings_of(n, n_features=n_features)
    assert settings.n_targets == settings.n_impostors == n_neighbors
    assert settings.n_passes == 2
    assert settings.solver.alpha == pytest.approx(alpha)
    assert settings.solver.max_iter == 500
    assert isinstance(settings.solver.regularizer, Frobenius)
    assert settings.solver.batch_size(20, 50 * n) == 16


def test_given_values_do_not_depend_on_the_data() -> None:
    given: dict[str, Any] = {"n_neighbors": (2, 4), "n_passes": 3, "alpha": 0.3, "max_iter": 7}
    settings = settings_of(50_000, **given)
    assert (settings.n_targets, settings.n_impostors, settings.n_passes) == (2, 4, 3)
    assert (settings.solver.alpha, settings.solver.max_iter) == (0.3, 7)


@pytest.mark.parametrize(
    ("n_per_class", "n_passes", "shrinkage"), [(6, 1, 0.4), (15, 1, 0.25), (30, 2, 0.0)]
)
def test_few_points_per_class_mean_one_pass_and_shrinkage(
    n_per_class: int, n_passes: int, shrinkage: float
) -> None:
    settings = settings_of(4 * n_per_class, labels=np.arange(4 * n_per_class) % 4)
    assert settings.n_passes == n_passes
    assert settings.shrinkage == pytest.approx(shrinkage)


@pytest.mark.parametrize(
    "parameters", [{"alpha": 1e-2}, {"regularizer": "trace"}, {"regularizer": Frobenius(0.5)}]
)
def test_given_strength_or_regularizer_is_not_combined_with_shrinkage(
    parameters: dict[str, Any],
) -> None:
    assert settings_of(20, **parameters).shrinkage == 0


def test_many_small_classes_are_not_scarce() -> None:
    settings = settings_of(labels=np.arange(6000) % 1500)
    assert (settings.n_passes, settings.shrinkage) == (2, 0.0)


@pytest.mark.parametrize(("n_comparisons", "alpha"), [(999, 0.1), (1000, 0.01)])
def test_few_comparisons_are_regularized_more(n_comparisons: int, alpha: float) -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    triplets = np.random.default_rng(1).permuted(np.tile(np.arange(50), (n_comparisons, 1)), axis=1)
    comparisons = Comparisons.from_triplets(triplets[:, :3])
    result = BoostMetric(init=None).fit(X, comparisons=comparisons).components_
    expected = BoostMetric(init=None, alpha=alpha).fit(X, comparisons=comparisons).components_
    np.testing.assert_array_equal(result, expected)


def test_metric_of_few_points_is_shrunk_toward_the_start() -> None:
    X, y = load_wine(return_X_y=True)
    X, y = X[::9], y[::9]  # 20 points
    share, scales = (1 - len(X) / 3 / 30) / 2, X.std(axis=0)
    result = BoostMetric(init="scale").fit(X, y).metric_.matrix
    learned = BoostMetric(init="scale", alpha=1e-2, n_passes=1).fit(X, y).metric_.matrix
    scaled = learned * scales * scales[:, None]
    expected = (1 - share) * scaled + share * np.trace(scaled) / 13 * np.eye(13)
    np.testing.assert_allclose(result * scales * scales[:, None], expected, atol=1e-10)


@pytest.mark.parametrize(
    ("parameters", "alpha", "solver"),
    [
        ({}, 1e-2, "stagewise"),
        ({"regularizer": "trace"}, 1e-4, "stagewise"),
        ({"regularizer": "shrinkage"}, 1e-2, "totally_corrective"),
        ({"regularizer": Shrinkage(center=1.0)}, 1e-2, "totally_corrective"),
    ],
)
def test_regularizer_changes_the_defaults(
    parameters: dict[str, Any], alpha: float, solver: str
) -> None:
    settings = settings_of(**parameters).solver
    assert (settings.alpha, settings.solver) == (alpha, solver)


def test_shrinkage_rejects_the_stagewise_solver() -> None:
    with pytest.raises(ValueError, match="solver='stagewise' does not work with regularizer="):
        settings_of(regularizer="shrinkage", solver="stagewise")


@pytest.mark.parametrize("regularizer", [Trace(0.5), Frobenius(0.5), Shrinkage(0.5)])
def test_absolute_alpha_needs_no_relative_one(regularizer: Any) -> None:
    assert settings_of(regularizer=regularizer).solver.regularizer == regularizer


@pytest.mark.parametrize("loss", ["hinge", Hinge(0.5)])
def test_regularizer_suits_the_loss(loss: str | Hinge) -> None:
    assert isinstance(settings_of(loss=loss).solver.regularizer, Trace)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((6, 4), (3, 3)), ((6, 10), (5, 5)), ((5, 30), (3, 5)), ((4, 6, 20), (3, 5))],
)
def test_small_classes_get_fewer_neighbors(
    sizes: tuple[int, ...], expected: tuple[int, int]
) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    settings = settings_of(len(labels), labels)
    assert (settings.n_targets, settings.n_impostors) == expected


@pytest.mark.filterwarnings("error")
def test_small_classes_do_not_warn(rng: np.random.Generator) -> None:
    y = np.repeat([0, 1, 2], 4)
    BoostMetric().fit(rng.normal(size=(12, 3)) + y[:, None], y)


def test_comparisons_take_one_pass(rng: np.random.Generator) -> None:
    X = rng.normal(size=(30, 4))
    rows = np.array([rng.permutation(30)[:3] for _ in range(40)])
    learner = BoostMetric().fit(X, comparisons=Comparisons.from_triplets(rows))
    assert set(learner.history_["pass"]) == {0}


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_default_is_not_worse_than_euclidean_distance(load: Any) -> None:
    X, y = load(return_X_y=True)
    # Scores of a single division into folds differ by up to three points.
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=3, random_state=0)

    def score(*steps: Any) -> float:
        model = make_pipeline(*steps, KNeighborsClassifier(3))
        return float(cross_val_score(model, X, y, cv=folds).mean())

    # One point more may be wrong.
    assert score(BoostMetric()) >= max(score(), score(StandardScaler())) - 1.5 / len(y)
