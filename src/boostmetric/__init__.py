"""BoostMetric: learn a Mahalanobis metric from labels or comparisons by boosting.

Names are imported on first access (PEP 562), so that `boostmetric --help` does not wait for
scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from boostmetric._version import __version__

if TYPE_CHECKING:
    from boostmetric._files import FileFormatError
    from boostmetric.embeddings import EmbeddingAdapter
    from boostmetric.estimators import BoostMetric, BoostMetricCV, CheckpointError
    from boostmetric.evaluation.knn import knn_error, satisfied_share, unlike_share
    from boostmetric.evaluation.verification import PairVerifier, RocCurve
    from boostmetric.export import to_onnx
    from boostmetric.learn import alpha_path, boost, learn_psd
    from boostmetric.metric import Metric
    from boostmetric.problem import (
        LOSSES,
        REGULARIZERS,
        ComparisonOperator,
        Comparisons,
        Exponential,
        Frobenius,
        Hinge,
        Logistic,
        Loss,
        LowRankOperator,
        NotANumberError,
        Operator,
        Shrinkage,
        SmoothedHinge,
        SquaredHinge,
        StackOperator,
        Trace,
    )
    from boostmetric.solvers import Boosting, Iteration, Status

__all__ = [
    "LOSSES",
    "REGULARIZERS",
    "BoostMetric",
    "BoostMetricCV",
    "Boosting",
    "CheckpointError",
    "ComparisonOperator",
    "Comparisons",
    "EmbeddingAdapter",
    "Exponential",
    "FileFormatError",
    "Frobenius",
    "Hinge",
    "Iteration",
    "Logistic",
    "Loss",
    "LowRankOperator",
    "Metric",
    "NotANumberError",
    "Operator",
    "PairVerifier",
    "RocCurve",
    "Shrinkage",
    "SmoothedHinge",
    "SquaredHinge",
    "StackOperator",
    "Status",
    "Trace",
    "__version__",
    "alpha_path",
    "boost",
    "knn_error",
    "learn_psd",
    "satisfied_share",
    "to_onnx",
    "unlike_share",
]

_MODULES = {
    "FileFormatError": "_files",
    "EmbeddingAdapter": "embeddings",
    **dict.fromkeys(("BoostMetric", "BoostMetricCV", "CheckpointError"), "estimators"),
    **dict.fromkeys(("knn_error", "satisfied_share", "unlike_share"), "evaluation.knn"),
    **dict.fromkeys(("PairVerifier", "RocCurve"), "evaluation.verification"),
    "to_onnx": "export",
    **dict.fromkeys(("alpha_path", "boost", "learn_psd"), "learn"),
    "Metric": "metric",
    **dict.fromkeys(("Boosting", "Iteration", "Status"), "solvers"),
}
"""Modules of the names in `__all__`; those that are not listed are in `problem`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'problem')}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
