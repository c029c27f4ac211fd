"""Plots of a fit, of a metric and of data under a metric, after scikit-learn's displays.

A display holds the numbers and `plot` draws them; `SomeDisplay.from_estimator(...)` does both, for
a fitted estimator or a `Metric`. Requires matplotlib: `pip install 'boostmetric[plots]'`.
"""

from boostmetric.plots.convergence import ConvergenceDisplay
from boostmetric.plots.pairs import PairDistanceDisplay
from boostmetric.plots.projection import ProjectionDisplay
from boostmetric.plots.spectrum import SpectrumDisplay

__all__ = ["ConvergenceDisplay", "PairDistanceDisplay", "ProjectionDisplay", "SpectrumDisplay"]
