"""BoostMetric: learn a Mahalanobis metric from labels or comparisons by boosting."""
from boostmetric.boosting import alpha_path, boost, learn_psd
from boostmetric.problem import *
from boostmetric.metric import Metric
from boostmetric.solvers import Boosting, Iteration, Status
