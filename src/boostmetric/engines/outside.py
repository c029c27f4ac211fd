"""What a fit is given of points that are not in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from boostmetric.comparisons import Comparisons
from boostmetric.engines.recipes import Stated
from boostmetric.engines.sources import ComparisonSource, Source, as_source
from boostmetric.labels import check_labels
from boostmetric.learned import single_labels


def is_outside(X: Any) -> bool:
    """Whether X is not in memory, but a source or what can be made one: a path, Zarr's or Dask's.

    >>> import numpy as np
    >>> is_outside("points.npy"), is_outside(np.zeros((2, 2)))
    (True, False)
    """
    module = type(X).__module__.split(".")[0]
    return isinstance(X, str | Path | Source) or module in ("zarr", "dask")


def outside_data(X: Any, y: Any, comparisons: Any) -> tuple[Source, NDArray | None, Stated | None]:
    """The points, and their labels or comparisons, of which there must be one or the other.

    Parameters
    ----------
    X : what `as_source` takes
    y : labels, as `as_source` takes them; or the name of a column; or None
    comparisons : `Comparisons`, or what `ComparisonSource.of` takes, or None
    """
    label = y if isinstance(y, str) else None
    source = as_source(X, None if label else y, label=label)
    labels = None if y is None else source.labels()
    if (labels is None) == (comparisons is None):
        raise ValueError(
            "labels y or comparisons are needed of points that are not in memory, and "
            f"{'neither' if labels is None else 'both'} came."
        )
    if labels is not None:
        known = single_labels(labels)
        check_labels(known, None)
        return source, known, None
    if isinstance(comparisons, Comparisons):
        comparisons.check_points(source.shape[0])
        return source, None, comparisons
    return source, None, ComparisonSource.of(comparisons, source.shape[0])
