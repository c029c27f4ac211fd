from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from conftest import simple_learner
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from boostmetric import Status
from boostmetric.estimators.base import as_json

Data = tuple[NDArray, NDArray]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_methods_use_modified_components(
    dtype: type[np.floating], blobs: Data, rng: np.random.Generator
) -> None:
    onnx = pytest.importorskip("onnx.numpy_helper")
    from boostmetric import to_onnx

    X, y = blobs[0].astype(dtype), blobs[1]
    learner = simple_learner(max_iter=3).fit(X, y)
    before = learner.score(X, y)
    L = rng.standard_normal((2, 5)).astype(dtype)
    learner.components_ = L
    expected = cdist(X, X, "mahalanobis", VI=L.T.astype(float) @ L)
    pairs = np.array([[0, 1], [5, 7]])
    assert learner.transform(X) == pytest.approx(X @ L.T)
    assert learner.get_mahalanobis_matrix() == pytest.approx(L.T.astype(float) @ L)
    assert learner.pair_distance(pairs, X) == pytest.approx(
        expected[pairs[:, 0], pairs[:, 1]], 1e-4
    )
    assert learner.get_metric()(X[0], X[1]) == pytest.approx(expected[0, 1], rel=1e-4)
    assert learner.score(X, y) < before
    (weights,) = to_onnx(learner, dtype=dtype).graph.initializer
    assert np.array_equal(onnx.to_array(weights), L.T)


def test_get_metric_returns_picklable_function(blobs: Data) -> None:
    X, y = blobs
    learner = simple_learner(max_iter=3).fit(X, y)
    distance = learner.get_metric()
    expected = learner.pair_distance([[0, 1]], X)[0]
    learner.components_ = np.eye(5)  # the function does not follow later changes
    assert distance(X[0], X[1]) == pytest.approx(expected)
    assert distance(X[0], X[1], squared=True) == pytest.approx(expected**2)
    assert pickle.loads(pickle.dumps(distance))(X[:1], X[1]) == distance(X[0], X[1])
    low, high = np.zeros(5, np.uint8), np.ones(5, np.uint8)
    assert distance(low, high) == distance(high, low) == distance(low.astype(float), high)
    with pytest.raises(ValueError, match=r"v must have shape \(5,\) or \(1, 5\); got \(\)"):
        distance(X[0], 0)


def test_as_json_converts_other_types_to_repr() -> None:
    value = {
        "plain": [None, True, 1, 0.5, "a"],
        "numpy": (np.float32(0.5), np.int64(3), np.bool_(False), np.float64(0.1)),
        "other": (np.eye(1), 1j, Status.STALLED, b"x", {3}),
        3: math.inf,
    }
    converted = as_json(value)
    assert converted == {
        "plain": [None, True, 1, 0.5, "a"],
        "numpy": [0.5, 3, False, 0.1],
        "other": ["array([[1.]])", "1j", repr(Status.STALLED), "b'x'", "{3}"],
        "3": math.inf,
    }
    assert {type(each) for each in converted["numpy"]} == {float, int, bool}
