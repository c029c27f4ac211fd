"""BoostMetric: learn a Mahalanobis metric from labels or comparisons by boosting."""

from boostmetric.boosting import alpha_path, boost, learn_psd
from boostmetric.comparisons import Comparisons
from boostmetric.estimators import BoostMetric
from boostmetric.evaluation import knn_error, satisfied_share
from boostmetric.laplacian import ComparisonOperator
from boostmetric.losses import (
    LOSSES,
    Exponential,
    Hinge,
    Logistic,
    Loss,
    NotANumberError,
    SmoothedHinge,
    SquaredHinge,
)
from boostmetric.metric import Metric
from boostmetric.operators import LowRankOperator, Operator, StackOperator
from boostmetric.regularizers import REGULARIZERS, Frobenius, Trace
from boostmetric.selection import BoostMetricCV
from boostmetric.state import Boosting, Iteration, Status

__version__ = "0.1.0"

__all__ = [
    "LOSSES",
    "REGULARIZERS",
    "BoostMetric",
    "BoostMetricCV",
    "Boosting",
    "ComparisonOperator",
    "Comparisons",
    "Exponential",
    "Frobenius",
    "Hinge",
    "Iteration",
    "Logistic",
    "Loss",
    "LowRankOperator",
    "Metric",
    "NotANumberError",
    "Operator",
    "SmoothedHinge",
    "SquaredHinge",
    "StackOperator",
    "Status",
    "Trace",
    "alpha_path",
    "boost",
    "knn_error",
    "learn_psd",
    "satisfied_share",
]
