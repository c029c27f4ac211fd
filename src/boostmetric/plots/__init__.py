"""Plots of a fit, of a metric and of data under a metric, in the style of scikit-learn's displays.

A display stores the numbers and `plot` draws them; `SomeDisplay.from_estimator(...)` does both, for
a fitted estimator or a `Metric`. Requires matplotlib: `pip install 'boostmetric[plots]'`.
"""

from boostmetric.plots.displays import (
    CandidatesDisplay,
    ConvergenceDisplay,
    PairDistanceDisplay,
    ProjectionDisplay,
    SpectrumDisplay,
)

__all__ = [
    "CandidatesDisplay",
    "ConvergenceDisplay",
    "PairDistanceDisplay",
    "ProjectionDisplay",
    "SpectrumDisplay",
]
