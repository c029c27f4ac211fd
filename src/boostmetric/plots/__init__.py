"""Pictures of a fit and of the metric it learned, in the manner of scikit-learn's displays.

A display holds the numbers, and `plot` draws them: `SomeDisplay.from_estimator(...)` or
`SomeDisplay.from_metric(...)` does both. They need matplotlib: `pip install 'boostmetric[plots]'`.
"""

from boostmetric.plots.convergence import ConvergenceDisplay
from boostmetric.plots.pairs import PairDistanceDisplay, PairRocDisplay
from boostmetric.plots.projection import ProjectionDisplay
from boostmetric.plots.spectrum import SpectrumDisplay

__all__ = [
    "ConvergenceDisplay",
    "PairDistanceDisplay",
    "PairRocDisplay",
    "ProjectionDisplay",
    "SpectrumDisplay",
]
