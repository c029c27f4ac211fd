"""BoostMetric: learn a Mahalanobis metric from labels or comparisons by boosting."""

from boostmetric.boosting import Boosting, Iteration, Status, boost
from boostmetric.comparisons import Comparisons
from boostmetric.estimators import BoostMetric
from boostmetric.evaluation import knn_error, satisfied_share
from boostmetric.losses import (
    LOSSES,
    Exponential,
    Logistic,
    Loss,
    SmoothedHinge,
    SquaredHinge,
)
from boostmetric.metric import Metric

__version__ = "0.1.0"

__all__ = [
    "LOSSES",
    "BoostMetric",
    "Boosting",
    "Comparisons",
    "Exponential",
    "Iteration",
    "Logistic",
    "Loss",
    "Metric",
    "SmoothedHinge",
    "SquaredHinge",
    "Status",
    "boost",
    "knn_error",
    "satisfied_share",
]
