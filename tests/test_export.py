from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import boostmetric
from boostmetric import BoostMetric, BoostMetricCV, Metric
from boostmetric.export import to_onnx

onnx: Any = pytest.importorskip("onnx")
onnxruntime: Any = pytest.importorskip("onnxruntime")

TYPES = [np.float32, np.float64]


def run(model: Any, X: NDArray) -> NDArray:
    """The transformed points by onnxruntime."""
    session = onnxruntime.InferenceSession(
        model if isinstance(model, str) else model.SerializeToString(),
        providers=["CPUExecutionProvider"],
    )
    (transformed,) = session.run(["transformed"], {"X": X})
    return np.asarray(transformed)


def properties(model: Any) -> dict[str, str]:
    return {each.key: each.value for each in model.metadata_props}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("learned_in", TYPES)
@pytest.mark.parametrize(
    ("n", "n_components", "D"),
    [(20, 3, 5), (3, 1, 1), (0, 2, 3)],
)
def test_the_model_transforms(
    n: int,
    n_components: int,
    D: int,
    learned_in: type[np.floating],
    dtype: type[np.floating],
    rng: np.random.Generator,
) -> None:
    metric = Metric.from_components(rng.standard_normal((n_components, D)).astype(learned_in))
    X = rng.standard_normal((n, D)).astype(dtype)
    read_only(X)
    model = to_onnx(metric, dtype=dtype)
    onnx.checker.check_model(model, full_check=True)
    found = run(model, X)
    expected = X.astype(float) @ metric.components.astype(float).T
    assert found.dtype == dtype
    assert found.shape == (n, n_components)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    if dtype is np.float64:
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_zero_metric(dtype: type[np.floating]) -> None:
    zero = Metric(np.eye(3), np.zeros(3))
    assert run(to_onnx(zero, dtype=dtype), np.ones((2, 3), dtype)).shape == (2, 0)


def test_float32_is_the_default(rng: np.random.Generator) -> None:
    metric = Metric.from_components(rng.standard_normal((2, 3)))
    assert run(to_onnx(metric), np.ones((1, 3), np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    "learner",
    [BoostMetric(max_iter=20), BoostMetric(n_components=1, verify=False), BoostMetricCV(cv=2)],
    ids=["BoostMetric", "one component", "BoostMetricCV"],
)
def test_estimators_fitted_on_tables(
    learner: BoostMetric | BoostMetricCV, blobs: tuple[NDArray, NDArray], tmp_path: Path
) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = blobs
    names = ["weight", "größe", 'a "b"', "d,e", "f"]
    table = pandas.DataFrame(X, columns=names)
    learner.fit(table, y)
    model = to_onnx(learner, tmp_path / "learned.onnx", dtype="float64")
    expected = learner.transform(table)
    assert run(model, X) == pytest.approx(expected, abs=1e-12)
    assert run(str(tmp_path / "learned.onnx"), X) == pytest.approx(expected, abs=1e-12)
    assert json.loads(properties(model)["feature_names"]) == names


def test_metadata(tmp_path: Path) -> None:
    model = to_onnx(Metric(np.eye(2), np.ones(2)), str(tmp_path / "model"))
    assert properties(model) == {"boostmetric": boostmetric.__version__}
    assert model.producer_name == "boostmetric"
    assert onnx.load(tmp_path / "model") == model
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_old_runtimes_can_read_the_model() -> None:
    model = to_onnx(Metric(np.eye(2), np.ones(2)))
    # onnxruntime 1.8 of June 2021 reads these versions and all before them.
    assert model.ir_version <= 7
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 13)]


@pytest.mark.parametrize("dtype", ["float16", "int64"])
def test_other_dtypes_are_rejected(dtype: str) -> None:
    with pytest.raises(ValueError) as error:
        to_onnx(Metric(np.eye(2), np.ones(2)), dtype=dtype)
    assert (
        str(error.value)
        == f"The 'dtype' parameter must be float32 or float64. Got {dtype} instead."
    )


def test_other_objects_are_rejected() -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        to_onnx(BoostMetric())
    with pytest.raises(TypeError) as error:
        to_onnx(make_pipeline(BoostMetric(), KNeighborsClassifier()))
    assert str(error.value) == (
        "to_onnx requires a Metric or a fitted BoostMetric or BoostMetricCV, got Pipeline. Of a "
        "pipeline, pass that step."
    )


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"to_onnx requires onnx: pip install 'boostmetric\[onnx"):
        to_onnx(Metric(np.eye(2), np.ones(2)))
