"""A learned transformation for programs that do not run Python: as an ONNX model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils.validation import check_is_fitted

from boostmetric._files import whole
from boostmetric._version import __version__
from boostmetric.estimators import LearnedMetric
from boostmetric.metric import Metric

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 13, 7
"""Of ONNX 1.8 (2020), which has all that is needed: older programs read the model as well."""


def to_onnx(
    learned: Metric | LearnedMetric,
    path: str | os.PathLike[str] | None = None,
    *,
    dtype: DTypeLike = np.float32,
) -> ModelProto:
    """The transformation X ↦ X·componentsᵀ as an ONNX model, one MatMul.

    Its input "X" has shape (n, D) for any n, its output "transformed" (n, n_components): points
    whose Euclidean distance is the metric. The metadata of the model have "boostmetric", the
    version, and "feature_names", a list in JSON, if the features have names.

    Parameters
    ----------
    learned : Metric or fitted estimator
    path : a file to write the model to as well
    dtype : float32 or float64, of input and output. In float32 a distance that is small beside
        the points loses digits: centre the points, or ask for float64

    Examples
    --------
    >>> model = to_onnx(Metric(np.eye(2), np.array([4.0, 1.0]), ("width", "height")))
    >>> model.graph.node[0].op_type
    'MatMul'
    >>> {each.key: each.value for each in model.metadata_props}["feature_names"]
    '["width", "height"]'
    """
    metric = _metric_of(learned)
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype={dtype} will not do: float32 or float64 is needed.")
    try:
        from onnx import helper, numpy_helper
    except ImportError:
        raise ImportError(
            "to_onnx needs the package onnx, which is missing: pip install 'boostmetric[onnx]'"
        ) from None
    weights = np.ascontiguousarray(metric.components.T.astype(dtype))
    number = helper.np_dtype_to_tensor_dtype(dtype)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["X", "components"], ["transformed"])],
        "boostmetric",
        [helper.make_tensor_value_info("X", number, ["n", weights.shape[0]])],
        [helper.make_tensor_value_info("transformed", number, ["n", weights.shape[1]])],
        [numpy_helper.from_array(weights, "components")],
    )
    model = helper.make_model(
        graph,
        producer_name="boostmetric",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    properties = {"boostmetric": __version__}
    if metric.feature_names is not None:
        properties["feature_names"] = json.dumps(metric.feature_names)
    helper.set_model_props(model, properties)
    if path is not None:
        with whole(Path(path)) as temporary:
            temporary.write_bytes(model.SerializeToString())
    return model


def _metric_of(learned: Metric | LearnedMetric) -> Metric:
    if isinstance(learned, Metric):
        return learned
    if not isinstance(learned, LearnedMetric):
        raise TypeError(
            f"a {type(learned).__name__} came: a Metric, or a fitted BoostMetric or BoostMetricCV, "
            "is needed (of a pipeline, give that step)."
        )
    check_is_fitted(learned, "components_")
    return learned.metric_
