"""The arguments of `fit`, validated: points, labels, weights and comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_consistent_length

from boostmetric._validation import is_count
from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.labels import as_indicator, check_labels, single_labels
from boostmetric.data.points import Points, are_identical, binary_exponent
from boostmetric.estimators.initial import distinct_rows
from boostmetric.estimators.settings import Settings
from boostmetric.problem import Comparisons

MAX_WEIGHT_EXPONENT = 64
"""Weights up to 2**64 and down to 2**-64 are used as they are: float32 goes up to 2**128, and sums
of weights over all comparisons, times differences of features, must not overflow."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Points with labels, with comparisons, or with both.

    Attributes
    ----------
    points : array of shape (n, D), dense or CSR, or points on a cluster
    labels : array of shape (n,), a sparse indicator matrix of shape (n, L), or None
    weights : array of shape (n,), or None
    comparisons : given in addition to or instead of labels, or None
    """

    points: Points | DaskPoints
    labels: NDArray | csr_array | None = None
    weights: NDArray | None = None
    comparisons: Comparisons | None = None

    def resolve(self, settings: Settings) -> Settings:
        """The settings with the parameters that depend on the data.

        Duplicates are not neighbors, so equal points with equal labels count once, and only with a
        positive weight.
        """
        labels = self.labels
        if labels is not None and labels.ndim == 1 and not isinstance(self.points, DaskPoints):
            labels = labels[distinct_rows(self.points, labels, self.weights)[0]]
        n_comparisons = None if self.comparisons is None else len(self.comparisons)
        return settings.for_data(self.points.shape[1], labels, n_comparisons)

    @classmethod
    def validate(
        cls,
        points: Points | DaskPoints,
        y: ArrayLike | csr_array | None,
        comparisons: Any,
        sample_weight: ArrayLike | None = None,
    ) -> TrainingData:
        """Check the arguments that accompany validated points."""
        if comparisons is not None and not isinstance(comparisons, Comparisons):
            try:
                triplets = np.asarray(comparisons)
            except ValueError:  # lists of different lengths
                triplets = np.empty(0)
            if triplets.ndim != 2 or triplets.shape[1] != 3:
                raise TypeError(
                    "comparisons must be a Comparisons object or an array of triplets of shape "
                    f"(m, 3); got {type(comparisons).__name__}. For pairs and quadruplets use "
                    "Comparisons.from_pairs and Comparisons.from_quadruplets."
                )
            comparisons = Comparisons.from_triplets(triplets)
        if comparisons is not None:
            comparisons.check_points(points.shape[0])
        if y is None:
            if comparisons is None:
                raise ValueError(
                    "BoostMetric requires y to be passed, but the target y is None. Pass labels "
                    "y, or comparisons, such as an (m, 3) array of triplets."
                )
            if sample_weight is not None:
                raise ValueError("sample_weight requires y.")
            return cls(points, comparisons=comparisons).with_moderate_weights()
        labels = as_indicator(y)
        if labels is None:
            labels = single_labels(y)
        check_consistent_length(points, labels)
        _, weights = check_labels(labels, sample_weight)
        return cls(points, labels, weights, comparisons).with_moderate_weights()

    def with_moderate_weights(self) -> TrainingData:
        """The data with all weights divided by the same power of two if they are extreme.

        Only ratios of weights affect the metric. Moderate weights stay as they are, because the
        objective is proportional to them.
        """
        compared = self.comparisons
        given = [self.weights, None if compared is None else compared.weights]
        exponent = max((binary_exponent(each) for each in given if each is not None), default=0)
        if abs(exponent) <= MAX_WEIGHT_EXPONENT:
            return self

        def divided(weights: NDArray | None, size: int) -> NDArray:
            return np.ldexp(np.ones(size) if weights is None else weights, -exponent)

        if compared is not None:
            compared = replace(compared, weights=divided(compared.weights, len(compared)))
        weights = None if self.labels is None else divided(self.weights, self.points.shape[0])
        return replace(self, weights=weights, comparisons=compared)

    def check_settings(self, settings: Settings) -> None:
        """Raise a ValueError for settings that do not suit the data."""
        needs_classes = isinstance(settings.init, str) and settings.init in ("whiten", "lda")
        if self.labels is None:
            if settings.n_passes > 1:
                raise ValueError("n_passes > 1 requires y.")
            if needs_classes:
                raise ValueError(f"init={settings.init!r} requires y.")
        elif needs_classes and self.labels.ndim == 2:
            raise ValueError(
                f"init={settings.init!r} requires one class per point, but y is multilabel. Use "
                "another init."
            )
        (n, D), points = self.points.shape, self.points
        if points.is_constant if isinstance(points, DaskPoints) else are_identical(points):
            raise ValueError(f"All {n} points are identical: there is no metric to learn.")
        rank = settings.n_components
        if is_count(rank) and rank > D:
            raise ValueError(
                f"n_components={rank} exceeds the number of features ({D}). Use "
                f"n_components <= {D}."
            )

    def compare(
        self,
        transformed: Points | DaskPoints,
        settings: Settings,
        likely_pairs: NDArray | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Comparisons:
        """Compare each point with its neighbors among the transformed points.

        Comparisons that were given are added. `likely_pairs` is passed to
        `Comparisons.from_labels`. If `should_stop` returns a true value during the search, a
        `StopRequested` is raised.
        """
        if self.labels is None:
            assert self.comparisons is not None
            return self.comparisons
        mined = Comparisons.from_labels(
            transformed,
            self.labels,
            settings.n_targets,
            settings.n_impostors,
            index=settings.index,
            sample_weight=self.weights,
            likely_pairs=likely_pairs,
            n_jobs=settings.n_jobs,
            should_stop=should_stop,
        )
        return mined if self.comparisons is None else mined + self.comparisons
