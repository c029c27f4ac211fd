"""Points in a Dask collection, which stay on the workers.

A fit needs little of them at a time: sums over all points, and for each block the rows that its
comparisons name. Every chunk of rows is a delayed object of Dask, so a chunk that is lost is read
again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.data.points import binary_exponent, check_range, checksum
from boostmetric.engines import Dask, Lazy


def is_collection(X: Any) -> bool:
    """Whether X is an array or a dataframe of Dask, which is not imported for that."""
    return "dask" in sys.modules and bool(import_module("dask").is_dask_collection(X))


@dataclass(frozen=True, eq=False)
class Summary:
    """Of points: their number, and the lowest and highest value and sum of every feature."""

    n: int
    low: NDArray
    high: NDArray
    total: NDArray


class DaskPoints:
    """Points of shape (n, D) in chunks of rows, of which nothing is in this process.

    Parameters
    ----------
    chunks : delayed arrays (n_c, D), none of them empty
    sizes : the number of rows of each chunk
    n_features, dtype : D, and float32 or float64
    engine : computes what is asked for

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
        """The points of a Dask array or dataframe; raises a ValueError if one is not finite."""
        if len(getattr(X, "shape", ())) != 2:
            raise ValueError(f"X must be a 2-dimensional Dask array or dataframe; got {type(X)}.")
        is_array = hasattr(X, "rechunk")
        types = [X.dtype] if is_array else list(X.dtypes)
        dtype = np.dtype(np.float32 if all(each == np.float32 for each in types) else np.float64)
        chunks = (X.rechunk({1: -1}) if is_array else X).to_delayed()
        as_rows = import_module("dask").delayed(_as_rows, pure=True)
        chunks = [as_rows(chunk, dtype) for chunk in np.ravel(chunks)]
        made = cls(chunks, [0] * len(chunks), int(X.shape[1]), dtype, engine)
        summaries = made.map(summarize)
        used = [number for number, summary in enumerate(summaries) if summary.n]
        if not used:
            raise ValueError("X has no rows.")
        summaries = [summaries[number] for number in used]
        for summary in summaries:
            if not (np.isfinite(summary.low).all() and np.isfinite(summary.high).all()):
                raise ValueError("Input X contains NaN or infinity.")
        sizes = [summary.n for summary in summaries]
        made = cls([chunks[number] for number in used], sizes, made.shape[1], dtype, engine)
        made.summary = merge_summaries(summaries)
        return made

    @cached_property
    def summary(self) -> Summary:
        """Of all points."""
        return merge_summaries(self.map(summarize))

    @property
    def mean(self) -> NDArray:
        """Of every feature, in the dtype of the points and within their range."""
        found = self.summary
        return np.clip(found.total / found.n, found.low, found.high).astype(self.dtype)

    @property
    def exponent(self) -> int:
        """`binary_exponent` of the points less their mean."""
        with np.errstate(over="ignore"):
            ends = np.stack([self.summary.high - self.mean, self.summary.low - self.mean])
        check_range(ends)
        return binary_exponent(ends)

    def map(self, function: Callable[[NDArray], Any]) -> list[Any]:
        """The results of a function of a chunk, in the order of the chunks."""
        return self.compute([(partial(_apply, function), (chunk,)) for chunk in self.chunks])

    def compute(self, tasks: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
        """The results of functions that take the threads and the values of delayed objects."""
        placed = self.engine.place([Lazy(function, inputs) for function, inputs in tasks])
        return self.engine.call(_same, placed)

    def pieces(self, rows: NDArray) -> tuple[Any, ...]:
        """Delayed arrays whose concatenation has these rows, which must be sorted."""
        take = import_module("dask").delayed(np.take, pure=False)
        ends = np.searchsorted(rows, self.starts)
        return tuple(
            take(chunk, rows[begin:end] - start, axis=0)
            for chunk, start, begin, end in zip(
                self.chunks, self.starts[:-1], ends[:-1], ends[1:], strict=True
            )
            if begin < end
        )

    @property
    def is_constant(self) -> bool:
        """Whether all points are the same."""
        return bool((self.summary.low == self.summary.high).all())

    def deviations(self, weights: NDArray | None = None) -> NDArray:
        """√(Σ w·(x − mean)²/Σ w) of every feature, for the weighted mean; w = 1 by default."""
        ends = zip(self.starts[:-1], self.starts[1:], strict=True)
        w = [np.ones(b - a) if weights is None else weights[a:b] for a, b in ends]
        total = sum(each.sum() for each in w)

        def sums(power: int, origin: Any) -> NDArray:
            tasks = [
                (partial(_moments, each, power, origin), (chunk,))
                for each, chunk in zip(w, self.chunks, strict=True)
            ]
            return np.sum(self.compute(tasks), axis=0) / total

        return np.sqrt(sums(2, sums(1, 0.0)))

    def checksum(self) -> int:
        """`points.checksum` of all rows."""
        tasks = [
            (partial(_apply, partial(checksum, first_row=int(start))), (chunk,))
            for chunk, start in zip(self.chunks, self.starts[:-1], strict=True)
        ]
        return sum(self.compute(tasks)) % 2**64

    def __getitem__(self, rows: Any) -> NDArray:
        """Rows, in any order, as an array in this process."""
        order, inverse = np.unique(np.asarray(rows, dtype=np.intp), return_inverse=True)
        parts = self.compute([(_first, (piece,)) for piece in self.pieces(order)])
        empty = np.empty((0, self.shape[1]), dtype=self.dtype)
        return np.concatenate([empty, *parts])[inverse.reshape(-1)]

    def __matmul__(self, matrix: NDArray) -> DaskPoints:
        """The products of all points with a matrix of shape (D, d), computed when they are used."""
        times = import_module("dask").delayed(np.matmul, pure=False)
        chunks = [times(chunk, matrix) for chunk in self.chunks]
        sizes = np.diff(self.starts).tolist()
        dtype = np.result_type(self.dtype, matrix.dtype)
        return DaskPoints(chunks, sizes, matrix.shape[1], dtype, self.engine)


def summarize(points: NDArray) -> Summary:
    """The summary of a chunk."""
    with np.errstate(over="ignore"):
        return Summary(
            len(points),
            points.min(axis=0, initial=np.inf),
            points.max(axis=0, initial=-np.inf),
            points.sum(axis=0, dtype=np.float64),
        )


def merge_summaries(parts: Sequence[Summary]) -> Summary:
    """The summary of all chunks; sums are added in their order."""
    return Summary(
        sum(part.n for part in parts),
        np.min([part.low for part in parts], axis=0),
        np.max([part.high for part in parts], axis=0),
        np.sum([part.total for part in parts], axis=0),
    )


def _as_rows(chunk: Any, dtype: np.dtype) -> NDArray:
    return np.ascontiguousarray(chunk, dtype=dtype)


def _moments(weights: NDArray, power: int, origin: Any, threads: Any, chunk: NDArray) -> NDArray:
    moments: NDArray = weights @ (chunk.astype(np.float64) - origin) ** power
    return moments


def collect(values: Any, engine: Dask) -> NDArray:
    """A one-dimensional array or series of Dask, such as labels, as an array in this process."""
    chunks = np.ravel(values.to_delayed())
    parts = engine.call(_same, engine.place([Lazy(_as_array, (chunk,)) for chunk in chunks]))
    return np.concatenate(parts)


def content_of(X: Any) -> Any:
    """What identifies points: the same for an array in memory and for one of Dask."""
    if isinstance(X, np.ndarray):
        return X.shape, X.dtype.str, checksum(X)
    return (X.shape, X.dtype.str, X.checksum()) if isinstance(X, DaskPoints) else X


def _as_array(threads: Any, chunk: Any) -> NDArray:
    return np.asarray(chunk)


def _apply(function: Callable[[NDArray], Any], threads: Any, chunk: NDArray) -> Any:
    return function(chunk)


def _first(threads: Any, piece: NDArray) -> NDArray:
    return piece


def _same(value: Any) -> Any:
    return value
