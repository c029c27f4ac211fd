"""BoostMetric: learn a Mahalanobis metric from labels or comparisons by boosting."""

from boostmetric._files import FileFormatError
from boostmetric._version import __version__
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
