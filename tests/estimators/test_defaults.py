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
    [
        (100, 2, (4, 8), 1e-2),
        (500, 2, (4, 8), 1e-2),
        (1000, 2, (4, 8), 1e-2 * 1.5 ** -(1 / np.log10(9))),
        (2000, 2, (4, 7), 10**-2.5),
        (2000, 15, (4, 7), 1e-2 * (2000 / 750) ** -(1 / np.log10(9))),
        (6000, 2, (4, 6), 1e-3),
        (6000, 30, (4, 6), 1e-2 * 2 ** -(1 / np.log10(9))),
        (2000, 20, (4, 7), 1e-2 * 1.5 ** -(1 / np.log10(9))),
    ],
)
def test_defaults_depend_on_the_number_of_points(
    n: int, n_features: int, n_neighbors: tuple[int, int], alpha: float
) -> None:
    settings = settings_of(n, n_features=n_features)
    assert (settings.n_targets, settings.n_impostors) == n_neighbors
    assert settings.n_passes == 2
    assert settings.solver.alpha == pytest.approx(alpha)
    assert settings.solver.max_iter == 500
    assert isinstance(settings.solver.regularizer, Frobenius)
    assert settings.solver.batch_size(20, 50 * n) == 16


def largest_change(values: Any) -> float:
    """The largest factor between consecutive values."""
    return float(np.exp(np.abs(np.diff(np.log(list(values)))).max()))


@pytest.mark.parametrize("n_classes", [2, 20, 100])
def test_defaults_change_gradually_with_the_number_of_points(n_classes: int) -> None:
    numbers = range(10 * n_classes, 7000, n_classes)
    of_numbers = [settings_of(labels=np.arange(n) % n_classes) for n in numbers]
    alphas = [each.solver.alpha for each in of_numbers]
    assert largest_change(alphas) < 1 + 1.1 * n_classes / numbers[0]
    shrinkages = np.array([each.shrinkage for each in of_numbers])
    assert np.abs(np.diff(shrinkages)).max() <= 1 / 60 + 1e-9
    comparisons = [
        n * each.n_targets * each.n_impostors for n, each in zip(numbers, of_numbers, strict=True)
    ]
    # The largest change is from 7 to 6 impostors.
    assert largest_change(comparisons) < 7 / 6 + 0.01


def test_defaults_change_gradually_with_the_number_of_features() -> None:
    for n in (300, 2_000, 2_001, 20_000):
        alphas = [settings_of(n, n_features=D).solver.alpha for D in range(10, 200)]
        assert largest_change(alphas) < 1.25  # D² by 21 % or less


def test_comparisons_and_alpha_change_little_between_2000_and_2001_points() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2_001, 3)), np.arange(2_001) % 2
    X[:, 0] += y
    counts, alphas = [], []
    for n in (1_999, 2_000, 2_001):
        learner = BoostMetric(init=None, n_passes=1, verify=False, max_iter=1)
        learner.fit(X[:n], y[:n])
        counts.append((learner.metric_.origin or {})["n_comparisons"])
        alphas.append(learner.alpha_)
    assert largest_change(counts) < 1.01
    assert largest_change(alphas) < 1.02


@pytest.mark.parametrize("n_comparisons", [500, 1_000, 2_000])
def test_alpha_changes_gradually_with_the_number_of_comparisons(n_comparisons: int) -> None:
    settings = Settings.from_params(BoostMetric().get_params())
    numbers = range(n_comparisons - 20, n_comparisons + 21)
    alphas = [settings.for_data(10, None, n).solver.alpha for n in numbers]
    assert largest_change(alphas) < 1.01


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


@pytest.mark.parametrize("n_classes", [499, 500, 501, 1500])
def test_many_small_classes_are_scarce(n_classes: int) -> None:
    settings = settings_of(labels=np.arange(4 * n_classes) % n_classes)
    assert settings.n_passes == 1
    assert settings.shrinkage == pytest.approx((1 - 4 / 30) / 2)


@pytest.mark.parametrize(("n_comparisons", "alpha"), [(400, 0.1), (1000, 10**-1.5), (2500, 0.01)])
def test_few_comparisons_are_regularized_more(n_comparisons: int, alpha: float) -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    triplets = np.random.default_rng(1).permuted(np.tile(np.arange(50), (n_comparisons, 1)), axis=1)
    comparisons = Comparisons.from_triplets(triplets[:, :3])
    strengths: tuple[str | float, ...] = ("auto", alpha)
    result, expected = (
        BoostMetric(init=None, verify=False, alpha=each).fit(X, comparisons=comparisons).components_
        for each in strengths
    )
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_metric_of_few_points_is_shrunk_toward_the_start() -> None:
    X, y = load_wine(return_X_y=True)
    X, y = X[::9], y[::9]  # 20 points
    share, scales = (1 - len(X) / 3 / 30) / 2, X.std(axis=0)
    given: dict[str, Any] = {"init": "scale", "verify": False}
    result = BoostMetric(**given).fit(X, y).metric_.matrix
    learned = BoostMetric(alpha=1e-2, n_passes=1, **given).fit(X, y).metric_.matrix
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
    [((6, 4), (3, 4)), ((6, 10), (4, 6)), ((5, 30), (4, 5)), ((4, 6, 20), (3, 8))],
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
    learner = BoostMetric(verify=False).fit(X, comparisons=Comparisons.from_triplets(rows))
    assert set(learner.history_["pass"]) == {0}


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
@pytest.mark.filterwarnings("ignore:Learning did not lower")
def test_default_is_not_worse_than_euclidean_distance(load: Any) -> None:
    X, y = load(return_X_y=True)
    # Scores of a single division into folds differ by up to three points.
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=3, random_state=0)

    def score(*steps: Any) -> float:
        model = make_pipeline(*steps, KNeighborsClassifier(3))
        return float(cross_val_score(model, X, y, cv=folds).mean())

    # One point more may be wrong.
    assert score(BoostMetric()) >= max(score(), score(StandardScaler())) - 1.5 / len(y)
