"""What a fit learns from, validated: points, labels, weights and comparisons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_consistent_length

from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.labels import as_indicator, check_labels, single_labels
from boostmetric.data.points import Points, are_identical, deviations
from boostmetric.estimators.settings import Settings
from boostmetric.neighbors import Index
from boostmetric.problem import Comparisons

ShouldStop = Callable[[], bool] | None


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Points with labels, with comparisons, or with both.

    Attributes
    ----------
    points : array of shape (n, D), dense or CSR, or points on a cluster
    labels : array of shape (n,), a sparse indicator of shape (n, L), or None
    weights : array of shape (n,), or None
    comparisons : given in addition to or instead of labels, or None
    """

    points: Points | DaskPoints
    labels: NDArray | csr_array | None = None
    weights: NDArray | None = None
    comparisons: Comparisons | None = None

    @classmethod
    def validate(
        cls,
        points: Points | DaskPoints,
        y: ArrayLike | csr_array | None,
        comparisons: Any,
        sample_weight: ArrayLike | None,
        estimator: str = "BoostMetric",
    ) -> TrainingData:
        """Check what belongs to validated points; raises a ValueError or TypeError."""
        compared = None
        if comparisons is not None:
            compared = as_comparisons(comparisons)
            compared.check_points(points.shape[0])
        if y is None:
            if compared is None:
                raise ValueError(
                    f"{estimator} requires y to be passed, but the target y is None. Pass labels "
                    "y, or comparisons, such as an (m, 3) array of triplets."
                )
            if sample_weight is not None:
                raise ValueError("sample_weight requires y.")
            return cls(points, comparisons=compared)
        labels = as_indicator(y)
        if labels is None:
            labels = single_labels(y)
        check_consistent_length(points, labels)
        _, weights = check_labels(labels, sample_weight)
        return cls(points, labels, weights, compared)

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
        n, D = self.points.shape
        if isinstance(self.points, DaskPoints):
            is_constant = self.points.is_constant
        else:
            is_constant = are_identical(self.points)
        if is_constant:
            raise ValueError(f"All {n} points are identical: there is no metric to learn.")
        rank = settings.n_components
        if isinstance(rank, int | np.integer) and rank > D:
            raise ValueError(
                f"n_components={rank} exceeds the number of features ({D}). Use "
                f"n_components <= {D}."
            )

    @property
    def n_examples(self) -> int:
        """The number of points, or of comparisons if there are no labels."""
        if self.labels is None:
            assert self.comparisons is not None
            return len(self.comparisons)
        return self.points.shape[0]

    def deviations(self) -> NDArray:
        """The standard deviation of every feature."""
        if isinstance(self.points, DaskPoints):
            return self.points.deviations()
        return deviations(self.points)

    def compare(
        self,
        transformed: Points | DaskPoints,
        settings: Settings,
        should_stop: ShouldStop = None,
        index: str | Index | None = None,
    ) -> Comparisons:
        """The comparisons to learn from; neighbors are those among the transformed points."""
        if self.labels is None:
            assert self.comparisons is not None
            return self.comparisons
        found = Comparisons.from_labels(
            transformed,
            self.labels,
            settings.n_targets,
            settings.n_impostors,
            index=index,
            sample_weight=self.weights,
            n_jobs=settings.n_jobs,
            should_stop=should_stop,
        )
        return found if self.comparisons is None else found + self.comparisons


def as_comparisons(given: Any) -> Comparisons:
    """Comparisons as they are, or triplets as an array of shape (m, 3).

    >>> as_comparisons([[0, 1, 60], [2, 3, 100]])
    <2 comparisons of 4 pairs>
    """
    if isinstance(given, Comparisons):
        return given
    try:
        rows = np.asarray(given)
    except ValueError:
        rows = np.empty(0)
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise TypeError(
            "comparisons must be a Comparisons object or an array of triplets of shape (m, 3); got "
            f"{type(given).__name__}. For pairs and quadruplets use Comparisons.from_pairs and "
            "Comparisons.from_quadruplets."
        )
    return Comparisons.from_triplets(rows)
