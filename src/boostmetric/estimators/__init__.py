"""The scikit-learn estimators: `BoostMetric` and `BoostMetricCV`.

This subpackage connects the user's data and parameters with the solvers; its only
mathematics are the starting transformations (`initial`). A fit is a loop over passes (`passes`).
Each step is reported to the log and callbacks (`callbacks`), evaluated on held-out data
(`early_stopping`), and written to a file from which a killed fit continues (`checkpoint`).
"""

from boostmetric.estimators.base import LearnedMetric
from boostmetric.estimators.boostmetric import BoostMetric
from boostmetric.estimators.callbacks import Progress, listening
from boostmetric.estimators.checkpoint import CheckpointError
from boostmetric.estimators.cv import BoostMetricCV
from boostmetric.estimators.initial import INITS, starting_transformation

__all__ = [
    "INITS",
    "BoostMetric",
    "BoostMetricCV",
    "CheckpointError",
    "LearnedMetric",
    "Progress",
    "listening",
    "starting_transformation",
]
