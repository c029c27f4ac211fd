"""Export of the learned transformation as an ONNX model."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils.validation import check_is_fitted

from boostmetric._files import atomic_write
from boostmetric._version import __version__
from boostmetric.estimators import LearnedMetric
from boostmetric.metric import Metric

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 13, 7
"""The versions of ONNX 1.8 (2020), so that old runtimes can read the model."""


def to_onnx(
    learned: Metric | LearnedMetric,
    path: str | os.PathLike[str] | None = None,
    *,
    dtype: DTypeLike = np.float32,
) -> ModelProto:
    """The transformation X ↦ X·componentsᵀ as an ONNX model, one MatMul.

    Its input "X" has shape (n, D) for any n, its output "transformed" (n, n_components): points
    whose Euclidean distance is the metric. The metadata of the model contain "boostmetric", the
    version, and "feature_names", a JSON list, if the features have names.

    Parameters
    ----------
    learned : Metric or fitted estimator
    path : a file to write the model to, or None
    dtype : float32 or float64, of input and output. In float32, distances that are small relative
        to the coordinates lose digits: center the points, or use float64

    Examples
    --------
    >>> model = to_onnx(Metric(np.eye(2), np.array([4.0, 1.0]), ("width", "height")))
    >>> model.graph.node[0].op_type
    'MatMul'
    >>> {each.key: each.value for each in model.metadata_props}["feature_names"]
    '["width", "height"]'
    """
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"The 'dtype' parameter must be float32 or float64. Got {dtype} instead.")
    if isinstance(learned, Metric):
        components, names = learned.components, learned.feature_names
    elif isinstance(learned, LearnedMetric):
        check_is_fitted(learned, "components_")
        components, names = learned.components_, learned.metric_.feature_names
    else:
        raise TypeError(
            "to_onnx requires a Metric or a fitted BoostMetric or BoostMetricCV, got "
            f"{type(learned).__name__}. Of a pipeline, pass that step."
        )
    try:
        from onnx import helper, numpy_helper
    except ImportError:
        raise ImportError("to_onnx requires onnx: pip install 'boostmetric[onnx]'") from None
    weights = np.ascontiguousarray(components.T.astype(dtype))
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
    if names is not None:
        properties["feature_names"] = json.dumps(names)
    helper.set_model_props(model, properties)
    if path is not None:
        with atomic_write(path) as temporary:
            temporary.write_bytes(model.SerializeToString())
    return model
