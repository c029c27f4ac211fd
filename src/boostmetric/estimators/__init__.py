"""The scikit-learn estimators: `BoostMetric` and `BoostMetricCV`.

This subpackage connects the user's data and parameters with `boost`; it contains no mathematics of
its own except the starting transformations (`initial`). A fit is a loop over passes (`passes`),
whose steps are seen by observers: logging and callbacks (`callbacks`), held-out data
(`early_stopping`) and the file that lets a killed fit continue (`checkpoint`).
"""

from boostmetric.estimators.base import LearnedMetric
from boostmetric.estimators.boostmetric import BoostMetric
from boostmetric.estimators.callbacks import Progress, listening
from boostmetric.estimators.checkpoint import CheckpointError
from boostmetric.estimators.cv import RECIPE, BoostMetricCV, Trial
from boostmetric.estimators.initial import INITS, starting_transformation

__all__ = [
    "INITS",
    "RECIPE",
    "BoostMetric",
    "BoostMetricCV",
    "CheckpointError",
    "LearnedMetric",
    "Progress",
    "Trial",
    "listening",
    "starting_transformation",
]
