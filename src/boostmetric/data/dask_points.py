"""Points in a Dask collection, which stay on the workers.

A fit uses only sums over all points, and for each block the rows in its comparisons. Every chunk of
rows is a delayed object of Dask, so a lost chunk is computed again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from boostmetric.data.points import binary_exponent, check_range, checksum
from boostmetric.engines import Dask, Lazy


def is_collection(X: Any) -> bool:
    """Whether X is a Dask array or dataframe; does not import Dask."""
    return "dask" in sys.modules and bool(import_module("dask").is_dask_collection(X))


class Summary(NamedTuple):
    """The number of points, and the minimum, maximum and sum of every feature."""

    n: int
    low: NDArray
    high: NDArray
    total: NDArray


class DaskPoints:
    """Points of shape (n, D) in chunks of rows on a cluster.

    Parameters
    ----------
    chunks : delayed nonempty arrays of shape (n_c, D)
    sizes : the number of rows of each chunk
    n_features : D
    dtype : float32 or float64
    engine : runs computations on the chunks

    Examples
    --------
    >>> import dask.array as da
    >>> with Dask() as engine:
    ...     points = DaskPoints.of(da.arange(12.0, chunks=6).reshape(6, 2), engine)
    ...     points.shape, points[[4, 0]].tolist(), (points @ np.ones((2, 1)))[[1]].tolist()
    ((6, 2), [[8.0, 9.0], [0.0, 1.0]], [[5.0]])
    """

    ndim = 2

    def __init__(
        self,
        chunks: Sequence[Any],
        sizes: Sequence[int],
        n_features: int,
        dtype: np.dtype,
        engine: Dask,
    ) -> None:
        self.chunks, self.engine, self.dtype = list(chunks), engine, dtype
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.shape = int(self.starts[-1]), n_features

    @classmethod
    def of(cls, X: Any, engine: Dask) -> DaskPoints:
        """The points of a Dask array or dataframe; raises a ValueError if not all are finite."""
        if len(getattr(X, "shape", ())) != 2:
            raise ValueError(f"X must be a 2-dimensional Dask array or dataframe; got {type(X)}.")
        is_array = hasattr(X, "rechunk")
        types = [X.dtype] if is_array else list(X.dtypes)
        dtype = np.dtype(np.float32 if all(each == np.float32 for each in types) else np.float64)
        chunks = (X.rechunk({1: -1}) if is_array else X).to_delayed()
        as_rows = import_module("dask").delayed(np.ascontiguousarray, pure=True)
        chunks = [as_rows(chunk, dtype=dtype) for chunk in np.ravel(chunks)]
        D = int(X.shape[1])
        summaries = cls(chunks, [0] * len(chunks), D, dtype, engine).map(_summarize)
        chunks = [chunk for chunk, summary in zip(chunks, summaries, strict=True) if summary.n]
        summaries = [summary for summary in summaries if summary.n]
        if not chunks:
            raise ValueError("X has no rows.")
        points = cls(chunks, [summary.n for summary in summaries], D, dtype, engine)
        points.summary = _merge_summaries(summaries)
        if not np.isfinite(points.summary[1:3]).all():
            raise ValueError("Input X contains NaN or infinity.")
        return points

    @cached_property
    def summary(self) -> Summary:
        """The summary of all points."""
        return _merge_summaries(self.map(_summarize))

    @property
    def mean(self) -> NDArray:
        """The mean of every feature, in the dtype of the points and within their range."""
        n, low, high, total = self.summary
        return np.clip(total / n, low, high).astype(self.dtype)

    @property
    def exponent(self) -> int:
        """`binary_exponent` of the centered points."""
        _, low, high, _ = self.summary
        with np.errstate(over="ignore"):
            ends = np.stack([high - self.mean, low - self.mean])
        check_range(ends)
        return binary_exponent(ends)

    @property
    def is_constant(self) -> bool:
        """Whether all points are identical."""
        _, low, high, _ = self.summary
        return bool((low == high).all())

    def map(self, function: Callable[..., Any], *values: Sequence[Any]) -> list[Any]:
        """Apply a function to every chunk, and one item of each sequence of values, in order."""
        return self.compute(
            [
                (lambda _, chunk, own=own: function(chunk, *own), (chunk,))
                for chunk, *own in zip(self.chunks, *values, strict=True)
            ]
        )

    def compute(self, tasks: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
        """The results of functions of the threads and the values of delayed objects."""
        placed = self.engine.place([Lazy(function, inputs) for function, inputs in tasks])
        return self.engine.call(lambda result: result, placed)

    def pieces(self, rows: NDArray) -> tuple[Any, ...]:
        """Delayed arrays whose concatenation contains these rows, which must be sorted."""
        take = import_module("dask").delayed(np.take, pure=False)
        ends = np.searchsorted(rows, self.starts)
        return tuple(
            take(chunk, rows[begin:end] - start, axis=0)
            for chunk, start, begin, end in zip(
                self.chunks, self.starts[:-1], ends[:-1], ends[1:], strict=True
            )
            if begin < end
        )

    def deviations(self, weights: NDArray | None = None) -> NDArray:
        """Standard deviations √(Σ w·(x − mean)²/Σ w) of the features; w = 1 by default."""
        weights = np.ones(self.shape[0]) if weights is None else weights
        parts = np.split(weights, self.starts[1:-1])
        total = sum(part.sum() for part in parts)

        def moments(power: int, origin: Any) -> NDArray:
            def sums(chunk: NDArray, w: NDArray) -> NDArray:
                return w @ (chunk.astype(np.float64) - origin) ** power

            return np.sum(self.map(sums, parts), axis=0) / total

        return np.sqrt(moments(2, moments(1, 0.0)))

    def checksum(self) -> int:
        """`points.checksum` of all rows."""
        return sum(self.map(checksum, self.starts[:-1].tolist())) % 2**64

    def __getitem__(self, rows: Any) -> NDArray:
        """The given rows, in any order, as an array in memory."""
        order, inverse = np.unique(np.asarray(rows, dtype=np.intp), return_inverse=True)
        parts = self.compute([(_as_array, (piece,)) for piece in self.pieces(order)])
        empty = np.empty((0, self.shape[1]), dtype=self.dtype)
        return np.concatenate([empty, *parts])[inverse.reshape(-1)]

    def __matmul__(self, matrix: NDArray) -> DaskPoints:
        """The product of the points with a matrix of shape (D, d), computed lazily."""
        times = import_module("dask").delayed(np.matmul, pure=False)
        chunks = [times(chunk, matrix) for chunk in self.chunks]
        sizes = np.diff(self.starts).tolist()
        dtype = np.result_type(self.dtype, matrix.dtype)
        return DaskPoints(chunks, sizes, matrix.shape[1], dtype, self.engine)


def _summarize(points: NDArray) -> Summary:
    with np.errstate(over="ignore"):
        return Summary(
            len(points),
            points.min(axis=0, initial=np.inf),
            points.max(axis=0, initial=-np.inf),
            points.sum(axis=0, dtype=np.float64),
        )


def _merge_summaries(summaries: Sequence[Summary]) -> Summary:
    """Merge the summaries of all chunks; sums are added in the order of the chunks."""
    n, low, high, total = zip(*summaries, strict=True)
    return Summary(sum(n), np.min(low, axis=0), np.max(high, axis=0), np.sum(total, axis=0))


def collect(values: Any, engine: Dask) -> NDArray:
    """Load a one-dimensional Dask array or series, such as labels, into memory."""
    recipes = [Lazy(_as_array, (chunk,)) for chunk in np.ravel(values.to_delayed())]
    return np.concatenate(engine.call(np.asarray, engine.place(recipes)))


def content_of(X: Any) -> Any:
    """A key that identifies points, the same for arrays in memory and on Dask."""
    if isinstance(X, np.ndarray):
        return X.shape, X.dtype.str, checksum(X)
    return (X.shape, X.dtype.str, X.checksum()) if isinstance(X, DaskPoints) else X


def _as_array(threads: Any, chunk: Any) -> NDArray:
    return np.asarray(chunk)
