"""Metrics and estimators in files: .npz, pickle, joblib, skops, and copies."""

from __future__ import annotations

import copy
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from conftest import read_only, simple_learner
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import boostmetric
from boostmetric import (
    BoostMetric,
    BoostMetricCV,
    Comparisons,
    Logistic,
    Metric,
    NotANumberError,
    Status,
)
from boostmetric._files import FileFormatError, save_arrays
from boostmetric.solvers import Iteration

Data = tuple[NDArray, NDArray]
CV: dict[str, Any] = {
    "candidates": [{"max_iter": 20, "n_neighbors": (2, 3), "shrinkage": 0.2}],
    "random_state": 0,
}


def same(one: Metric, other: Metric) -> bool:
    """Compare bits and memory order, so that computations also agree bit by bit."""
    return (
        all(
            np.array_equal(a, b) and a.dtype == b.dtype and (a.strides == b.strides or a.size == 0)
            for a, b in [(one.directions, other.directions), (one.coefs, other.coefs)]
        )
        and one.feature_names == other.feature_names
        and json.dumps(one.origin, sort_keys=True) == json.dumps(other.origin, sort_keys=True)
    )


@pytest.mark.parametrize(
    ("J", "D", "dtype"),
    [(8, 5, np.float32), (8, 5, np.float64), (1, 1, np.float64), (0, 4, np.float32)],
)
def test_metric_is_restored_exactly(
    J: int, D: int, dtype: type[np.floating], tmp_path: Path, rng: np.random.Generator
) -> None:
    metric = Metric.from_components(rng.standard_normal((J, D)).astype(dtype))
    metric = replace(
        metric,
        feature_names=tuple(f"größe {d}" for d in range(D)),
        origin={"nan": math.nan, "gap": [math.inf, -math.inf], "deep": {"a": [None, True]}},
    )
    read_only(metric.directions, metric.coefs)
    metric.save(tmp_path / "metric")
    restored = Metric.load(str(tmp_path / "metric"))
    assert same(restored, metric)
    X = rng.standard_normal((6, D)).astype(dtype)
    assert np.array_equal(restored.transform(X), metric.transform(X))
    assert np.array_equal(restored.matrix, metric.matrix)


def test_metric_without_names_and_origin_is_restored(tmp_path: Path) -> None:
    Metric(np.eye(2), np.ones(2)).save(tmp_path / "metric")
    restored = Metric.load(tmp_path / "metric")
    assert (restored.feature_names, restored.origin) == (None, None)


READER = """
import json, sys
import numpy as np
with np.load(sys.argv[1]) as arrays:
    header = json.loads(arrays["header"].tobytes())
    M = (arrays["directions"] * arrays["coefs"]) @ arrays["directions"].T
assert "boostmetric" not in sys.modules
print(header["kind"], header["version"], header["facts"]["feature_names"], M.tolist())
"""


def test_numpy_reads_metric_file(tmp_path: Path) -> None:
    Metric(np.eye(2), np.array([4.0, 1.0]), ("a", "b")).save(tmp_path / "metric")
    done = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path / "metric")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "metric 1 ['a', 'b'] [[4.0, 0.0], [0.0, 1.0]]\n"


NO_FACTS: dict[str, Any] = {"feature_names": None, "origin": None}
EYE: dict[str, NDArray] = {"directions": np.eye(2), "coefs": np.ones(2)}


@pytest.mark.parametrize(
    ("facts", "arrays", "reason"),
    [
        ({}, EYE, "'feature_names'"),
        (NO_FACTS, {"coefs": np.ones(2)}, "'directions'"),
        (NO_FACTS, {**EYE, "coefs": -np.ones(2)}, "coefs must be >= 0, got -1."),
        (NO_FACTS, {**EYE, "directions": 1e200 * np.eye(2)}, "its matrix overflows"),
        ({**NO_FACTS, "feature_names": 3}, EYE, "feature_names must be a tuple of str or None"),
        (
            {**NO_FACTS, "feature_names": [["a"], ["b"]]},
            EYE,
            "feature_names must be a tuple of str",
        ),
        ({**NO_FACTS, "origin": [1]}, EYE, "origin must be a mapping or None; got [1]."),
    ],
)
def test_invalid_metric_is_rejected(
    facts: dict[str, Any], arrays: dict[str, NDArray], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "metric"
    save_arrays(path, "metric", 1, facts, arrays)
    with pytest.raises(FileFormatError) as error:
        Metric.load(path)
    assert str(error.value).startswith(f"{path} does not contain a valid metric ({reason}")


def test_other_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Metric.load(tmp_path / "metric")
    save_arrays(tmp_path / "other", "checkpoint", 1, {}, {})
    with pytest.raises(FileFormatError, match="is a checkpoint file, not a metric file"):
        Metric.load(tmp_path / "other")
    save_arrays(tmp_path / "newer", "metric", 2, {}, {})
    with pytest.raises(FileFormatError, match=r"version 2 of the metric format.*Upgrade boostm"):
        Metric.load(tmp_path / "newer")


def test_origin_must_be_json(tmp_path: Path) -> None:
    metric = Metric(np.eye(2), np.ones(2), origin={"when": datetime.now(UTC)})
    with pytest.raises(TypeError, match="datetime is not JSON serializable"):
        metric.save(tmp_path / "metric")
    assert not list(tmp_path.iterdir())


def test_origin_of_boostmetric(blobs: Data, tmp_path: Path) -> None:
    X, y = blobs
    learner = simple_learner(
        Logistic(), max_iter=12, n_passes=2, n_neighbors=(2, 4), init=np.eye(5), tol=1e-9
    ).fit(X, y)
    origin = learner.metric_.origin
    assert origin is not None
    assert set(origin) == {
        *("estimator", "boostmetric", "made", "parameters", "n_samples", "n_comparisons"),
        *("n_iter", "status", "alpha", "duality_gap", "history", "deviations"),
    }
    assert (origin["estimator"], origin["boostmetric"]) == ("BoostMetric", boostmetric.__version__)
    age = datetime.now(UTC) - datetime.fromisoformat(origin["made"])
    assert timedelta(seconds=-1) < age < timedelta(minutes=10)
    assert set(origin["parameters"]) == set(learner.get_params())
    assert origin["parameters"]["n_neighbors"] == [2, 4]
    assert origin["parameters"]["loss"] == repr(Logistic())
    assert origin["parameters"]["init"] == repr(np.eye(5))
    assert (origin["n_samples"], origin["n_iter"]) == (120, learner.n_iter_)
    second = Comparisons.from_labels(
        simple_learner(Logistic(), max_iter=12, n_neighbors=(2, 4), init=np.eye(5))
        .fit(X, y)
        .transform(X),
        y,
        2,
        4,
    )
    assert origin["n_comparisons"] == len(second)
    assert origin["status"] == learner.status_.name
    assert (origin["alpha"], origin["duality_gap"]) == (learner.alpha_, learner.duality_gap_)
    assert set(origin["history"]) == {"pass", *(field.name for field in fields(Iteration))}
    for name, values in learner.history_.items():
        np.testing.assert_array_equal(origin["history"][name], values)
    learner.metric_.save(tmp_path / "metric")
    assert same(Metric.load(tmp_path / "metric"), learner.metric_)


def test_origin_of_boostmetriccv(blobs: Data, tmp_path: Path) -> None:
    X, y = blobs
    learner = BoostMetricCV(**CV).fit(X, y)
    origin = learner.metric_.origin
    assert origin is not None
    assert origin["estimator"] == "BoostMetricCV"
    candidate = {"max_iter": 20, "n_neighbors": [2, 3], "shrinkage": 0.2}
    assert origin["parameters"]["candidates"] == [candidate]
    assert origin["best_params"] == candidate
    assert origin["averaged_params"] == [candidate]
    assert (origin["best_score"], origin["n_samples"]) == (learner.best_score_, 120)
    learner.metric_.save(tmp_path / "metric")
    assert same(Metric.load(tmp_path / "metric"), learner.metric_)


@pytest.mark.parametrize("learner", [simple_learner(n_components=2), BoostMetricCV(**CV)])
def test_feature_names_are_stored(learner: BoostMetric | BoostMetricCV, blobs: Data) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = blobs
    assert learner.fit(X, y).metric_.feature_names is None
    table = pandas.DataFrame(X, columns=list("vwxyz"))
    assert learner.fit(table, y).metric_.feature_names == ("v", "w", "x", "y", "z")
    assert {type(name) for name in learner.metric_.feature_names or ()} == {str}


def test_origin_of_failed_fit(blobs: Data) -> None:
    class Failing(Logistic):
        n_calls = 0

        def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
            self.n_calls += 1
            duals = super().duals(margins, weights)
            return duals if self.n_calls < 20 else duals * math.nan

    learner = simple_learner(Failing(), max_iter=200)
    with pytest.raises(NotANumberError):
        learner.fit(*blobs)
    assert learner.status_ is Status.FAILED
    assert (learner.metric_.origin or {})["status"] == "FAILED"


def by_pickle(value: Any, tmp_path: Path) -> Any:
    return pickle.loads(pickle.dumps(value))


def by_joblib(value: Any, tmp_path: Path) -> Any:
    joblib.dump(value, tmp_path / "learner.joblib")
    return joblib.load(tmp_path / "learner.joblib")


def by_skops(value: Any, tmp_path: Path) -> Any:
    skops: Any = pytest.importorskip("skops.io")
    skops.dump(value, tmp_path / "learner.skops")
    trusted = skops.get_untrusted_types(file=tmp_path / "learner.skops")
    return skops.load(tmp_path / "learner.skops", trusted=trusted)


def by_deepcopy(value: Any, tmp_path: Path) -> Any:
    return copy.deepcopy(value)


COPIES = [by_pickle, by_joblib, by_skops, by_deepcopy]


@pytest.mark.parametrize("copy_of", COPIES)
@pytest.mark.parametrize(
    "learner",
    [
        simple_learner(max_iter=10),
        simple_learner("squared_hinge", n_passes=2, tol=1e-3, n_components=2),
        BoostMetricCV(**CV),
    ],
)
def test_fitted_estimators_are_restored(
    learner: BoostMetric | BoostMetricCV, copy_of: Callable[..., Any], blobs: Data, tmp_path: Path
) -> None:
    X, y = blobs
    learner = clone(learner).fit(X, y)
    restored = copy_of(learner, tmp_path)
    assert type(restored) is type(learner)
    assert restored.get_params() == learner.get_params()
    assert set(vars(restored)) == set(vars(learner))
    assert same(restored.metric_, learner.metric_)
    assert np.array_equal(restored.transform(X), learner.transform(X))
    assert np.array_equal(restored.pair_distance([[0, 1]], X), learner.pair_distance([[0, 1]], X))
    if isinstance(learner, BoostMetric):
        assert restored.status_ is learner.status_
        np.testing.assert_equal(restored.history_, learner.history_)
    else:
        np.testing.assert_equal(restored.cv_results_, learner.cv_results_)
    assert np.array_equal(clone(restored).fit(X, y).components_, learner.components_)


@pytest.mark.parametrize("copy_of", COPIES)
def test_warm_start_continues_after_restoring(
    copy_of: Callable[..., Any], blobs: Data, tmp_path: Path
) -> None:
    X, y = blobs
    learner = simple_learner(max_iter=5, warm_start=True).fit(X, y)
    restored = copy_of(learner, tmp_path).fit(X, y)
    assert np.array_equal(restored.components_, learner.fit(X, y).components_)


@pytest.mark.parametrize("learner", [simple_learner(), BoostMetricCV()])
def test_unfitted_estimators_are_restored(
    learner: BoostMetric | BoostMetricCV, tmp_path: Path
) -> None:
    for copy_of in COPIES:
        assert copy_of(learner, tmp_path).get_params() == learner.get_params()


BOOSTMETRIC = [
    "boostmetric.estimators.boostmetric.BoostMetric",
    "boostmetric.metric.Metric",
    "boostmetric.solvers.loop.Status",
]
BRUTE = KNeighborsClassifier(algorithm="brute")


@pytest.mark.parametrize(
    ("learner", "needed"),
    [
        (simple_learner(max_iter=5, warm_start=True), BOOSTMETRIC),
        (
            BoostMetricCV(**CV),
            [
                "boostmetric.estimators.cv.BoostMetricCV",
                "boostmetric.metric.Metric",
            ],
        ),
        (make_pipeline(StandardScaler(), simple_learner(max_iter=10), BRUTE), BOOSTMETRIC),
        (
            make_pipeline(simple_learner(max_iter=10), KNeighborsClassifier(algorithm="kd_tree")),
            [
                *BOOSTMETRIC,
                "sklearn.metrics._dist_metrics.EuclideanDistance64",
                "sklearn.neighbors._kd_tree.KDTree",
            ],
        ),
    ],
    ids=["BoostMetric", "BoostMetricCV", "pipeline", "pipeline with a tree"],
)
def test_skops_requires_trusted_types(learner: Any, needed: list[str], blobs: Data) -> None:
    skops: Any = pytest.importorskip("skops.io")
    X, y = blobs
    learner.fit(X, y)
    data = skops.dumps(learner)
    assert skops.get_untrusted_types(data=data) == needed
    restored = skops.loads(data, trusted=needed)
    if isinstance(learner, Pipeline):
        assert np.array_equal(restored.predict_proba(X), learner.predict_proba(X))
    else:
        assert np.array_equal(restored.transform(X), learner.transform(X))
