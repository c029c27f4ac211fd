"""BoostMetric: learn a Mahalanobis metric from labels or comparisons by boosting."""

from boostmetric.boosting import Boosting, Iteration, Status, boost
from boostmetric.comparisons import Comparisons
from boostmetric.losses import LOSSES, Exponential, Logistic, Loss
from boostmetric.metric import Metric

__all__ = [
    "LOSSES",
    "Boosting",
    "Comparisons",
    "Exponential",
    "Iteration",
    "Logistic",
    "Loss",
    "Metric",
    "Status",
    "boost",
]
