"""Sources: where the rows of points come from, with their labels; and where comparisons do.

Nothing but metadata is read before rows are asked for. What is read is checked then, and a message
counts rows as the source does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from boostmetric._grids import ReadError, as_float, listed
from boostmetric.comparisons import Comparisons
from boostmetric.engines.stores import (
    READABLE,
    Array,
    DaskArray,
    MappedFile,
    ParquetColumns,
    Store,
    ZarrArray,
    check_numeric,
    is_parquet,
    stored_at,
)


@dataclass(frozen=True, eq=False)
class Source:
    """Points, one a row, and their labels. Made by `as_source`.

    Parameters
    ----------
    store : of an array of shape (n, D)
    label_store : of one of shape (n,), or None
    base : array of shape (d, D), by which rows are mapped once they are read, or None
    feature_names : of the D columns, where they have some

    Examples
    --------
    >>> source = as_source(np.arange(6).reshape(3, 2), list("aba"))
    >>> source.shape, source.dtype
    ((3, 2), dtype('float64'))
    >>> source.take(np.array([0, 2])).tolist(), source.labels().tolist()
    ([[0.0, 1.0], [4.0, 5.0]], ['a', 'b', 'a'])
    """

    store: Store
    label_store: Store | None = None
    base: NDArray | None = None
    feature_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        name, shape, dtype = self.store.name, self.store.shape, self.store.dtype
        if len(shape) != 2 or 0 in shape:
            raise ReadError(
                f"{name} has shape {shape}: (n, D) is needed, n points with D features, at least "
                "one of each."
            )
        if dtype.kind not in "biuf":
            raise ReadError(f"{name} holds {dtype} values: numbers are needed.")
        if self.label_store is not None and self.label_store.shape != shape[:1]:
            raise ReadError(
                f"y has shape {self.label_store.shape}: ({shape[0]},) is needed, one label for "
                f"each row of {name}."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D), or (n, d) where rows are mapped."""
        n, D = self.store.shape
        return n, D if self.base is None else len(self.base)

    @property
    def identity(self) -> str:
        """What tells it from others without reading it: its name, shape and type."""
        return f"{self.store.name} {self.store.shape} {self.store.dtype}"

    def mapped(self, base: NDArray) -> Source:
        """The points X·baseᵀ."""
        return replace(self, base=base if self.base is None else base @ self.base)

    @property
    def dtype(self) -> np.dtype:
        """The type of the rows as they are read: float32 if stored so, float64 otherwise."""
        return as_float(self.store.dtype)

    @property
    def parts(self) -> list[slice]:
        """All rows, in parts to read one after another."""
        return self.store.parts()

    def read(self, rows: slice) -> NDArray:
        """Consecutive rows, as an array; the slice has a start and a stop, and no step."""
        return self.checked(_fetched(self.store, self.store.read, rows), rows)

    def take(self, rows: NDArray) -> NDArray:
        """Rows of sorted distinct numbers, as an array."""
        _check_order(rows, self.shape[0])
        return self.checked(_fetched(self.store, self.store.take, rows), rows)

    def lazy(self, rows: NDArray | slice) -> Any | None:
        """The rows as a Dask array, if that is what they come from; None if anyone can read them.

        Whoever computes it gives the result to `checked`.
        """
        return self.store.lazy(rows)

    def checked(self, points: NDArray, rows: NDArray | slice) -> NDArray:
        """Rows that were read, as they are to be; refuses what is missing or infinite."""
        points = np.ascontiguousarray(points, dtype=self.dtype)
        bad = np.flatnonzero(~np.isfinite(points).all(axis=1))
        if len(bad):
            numbers = listed([str(_number(rows, position)) for position in bad])
            raise ReadError(
                f"{self.store.name}: values are missing or infinite in {len(bad)} of the rows "
                f"that were read: {numbers} (the first of all is 0). Fill them in, or leave these "
                "rows out."
            )
        if self.base is None:
            return points
        mapped: NDArray = points @ self.base.T.astype(self.dtype)
        return mapped

    def labels(self) -> NDArray | None:
        """All labels, as they are stored; None where there are none."""
        if self.label_store is None:
            return None
        return _fetched(self.label_store, self.label_store.read, slice(0, self.shape[0]))


def as_source(X: Any, y: Any = None, *, label: str | None = None) -> Source:
    """The source of points that are in memory, in files, or to be computed by Dask.

    Parameters
    ----------
    X : array, or a memmap; a Zarr array; a DataFrame; an array or a DataFrame of Dask, whose rows
        are counted once; a `Source`; or the path of a .npy file, of a Zarr array (with `label`, of
        a group), or of a Parquet file or a folder of them, whose columns are the features, in their
        order
    y : the labels, n of them: an array, a Zarr array, an array or a Series of Dask, or the path of
        a .npy file or a Zarr array
    label : the column of labels, of a Parquet file or a DataFrame, or the array of them in a group
        of Zarr, instead of y

    Raises
    ------
    ReadError
        Where shapes or types will not do; a TypeError where X or y is none of these.

    Examples
    --------
    >>> as_source([[1.0, 2.0], [3.0, 4.0]]).parts
    [slice(0, 2, None)]
    """
    if label is not None and y is not None:
        raise ReadError(f"give y or label={label!r}, not both: each says what the labels are.")
    if isinstance(X, Source):
        if label is not None:
            raise ReadError(f"label={label!r}: a Source has its labels already.")
        return X if y is None else replace(X, label_store=_store_of("y", y))
    if isinstance(X, str | Path) and is_parquet(Path(X)) and Path(X).exists():
        store, label_store = ParquetColumns.at(Path(X), label)
        labels = label_store if y is None else _store_of("y", y)
        return Source(store, labels, feature_names=store.columns)
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return _source_of_frame(X, y, label)
    if label is not None and isinstance(X, str | Path) and Path(X).is_dir():
        return Source(*ZarrArray.in_group(Path(X), label))
    if label is not None:
        raise ReadError(
            f"label={label!r} names a column, and X has no named ones: give the labels as y."
        )
    return Source(_store_of("X", X), None if y is None else _store_of("y", y))


@dataclass(frozen=True, eq=False)
class ComparisonSource:
    """Comparisons that need not be in memory: rows of three or four row numbers of X.

    Three are a triplet, "the first is nearer to the second than to the third"; four a quadruplet,
    "the first two are nearer to each other than the last two".

    Parameters
    ----------
    store : of an array of shape (m, 3) or (m, 4)
    n_points : the number of rows of X

    Examples
    --------
    >>> source = ComparisonSource.of(np.array([[0, 1, 2], [3, 2, 1]]), n_points=4)
    >>> len(source), source.comparisons(slice(1, 2))
    (2, <1 comparisons of 2 pairs>)
    """

    store: Store
    n_points: int

    def __post_init__(self) -> None:
        name, shape, dtype = self.store.name, self.store.shape, self.store.dtype
        if len(shape) != 2 or shape[1] not in (3, 4) or shape[0] == 0:
            raise ReadError(
                f"{name} has shape {shape}: (m, 3) is needed for triplets, or (m, 4) for "
                "quadruplets, at least one of them."
            )
        if dtype.kind not in "iuf":
            raise ReadError(f"{name} holds {dtype} values: row numbers of X are needed.")

    @classmethod
    def of(cls, comparisons: Any, n_points: int) -> ComparisonSource:
        """Those of an array, a memmap, a Zarr or Dask array, or a path as of `as_source`."""
        return cls(_store_of("comparisons", comparisons), n_points)

    def __len__(self) -> int:
        return self.store.shape[0]

    @property
    def identity(self) -> str:
        """What tells it from others without reading it."""
        return f"{self.store.name} {self.store.shape} {self.n_points}"

    @property
    def parts(self) -> list[slice]:
        """All comparisons, in parts to read one after another."""
        return self.store.parts()

    def read(self, rows: slice) -> NDArray:
        """Consecutive comparisons, as an array of integers of shape (k, 3) or (k, 4)."""
        found = _fetched(self.store, self.store.read, rows)
        good = (found >= 0) & (found < self.n_points) & (found == np.floor(found))
        if not good.all():
            row, column = np.argwhere(~good)[0]
            raise ReadError(
                f"{self.store.name}: comparison {_number(rows, row)} (the first is 0) names row "
                f"{found[row, column]:g} of X, which has rows 0 to {self.n_points - 1}."
            )
        return found.astype(np.int64)

    def comparisons(self, rows: slice) -> Comparisons:
        """Consecutive comparisons, by the row numbers of X."""
        triplets = self.store.shape[1] == 3
        make = Comparisons.from_triplets if triplets else Comparisons.from_quadruplets
        numbers = self.read(rows)
        try:
            return make(numbers, n_points=self.n_points)
        except ValueError as error:
            raise ReadError(f"{self.store.name}, counted from {rows.start}: {error}") from None


def _fetched(store: Store, fetch: Callable[[Any], NDArray], rows: NDArray | slice) -> NDArray:
    try:
        return fetch(rows)
    except FileNotFoundError as error:
        raise ReadError(
            f"{store.name} is not there, or not on this machine: workers on several machines need "
            "it on a disk that all of them share, at the same path."
        ) from error


def _number(rows: NDArray | slice, position: int | np.integer) -> int:
    """The number of the row at a position."""
    return int(rows.start + position if isinstance(rows, slice) else rows[position])


def _check_order(rows: NDArray, n: int) -> None:
    if len(rows) and not (rows[0] >= 0 and rows[-1] < n and (np.diff(rows) > 0).all()):
        raise ValueError(f"rows must be sorted and distinct, from 0 to {n - 1}.")


def _store_of(what: str, given: Any) -> Store:
    """The store of what was given as X or y, by its type; a TypeError if there is none."""
    if isinstance(given, str | Path):
        return stored_at(Path(given))
    if isinstance(given, np.memmap):
        return MappedFile.of(given)
    module = type(given).__module__.split(".")
    if module[0] == "zarr" and hasattr(given, "chunks"):
        return ZarrArray.of(given)
    if module[:2] == ["dask", "array"]:
        return DaskArray.of(given)
    if module[:2] == ["dask", "dataframe"] and hasattr(given, "to_dask_array"):
        return _column_store(given, _lengths(given))
    if isinstance(given, list | tuple) or (hasattr(given, "__array__") and not issparse(given)):
        try:
            return Array.of(np.asarray(given))
        except ValueError as error:
            raise ReadError(f"{what} is no array: {error}") from error
    hint = " Give it dense, or in memory to a fit without an engine." if issparse(given) else ""
    raise TypeError(
        f"{what} is of type {type(given).__name__}, which is not read in parts: an array, a "
        f"memmap, a Zarr array, a Dask array or DataFrame is needed, or a path of {READABLE}.{hint}"
    )


def _source_of_frame(frame: Any, y: Any, label: str | None) -> Source:
    """The source of a DataFrame, of pandas or of Dask."""
    names = list(frame.columns)
    if label is not None and label not in names:
        raise ReadError(f"the DataFrame has no column {label!r} of labels.")
    names = [name for name in names if name != label]
    types = {str(name): frame[name].dtype for name in names}
    kinds = {name: getattr(each, "numpy_dtype", each) for name, each in types.items()}
    check_numeric("the DataFrame", kinds)
    dtype = as_float(np.result_type(*kinds.values())) if kinds else np.dtype(float)
    features, labels = frame[names].astype(dtype), None if label is None else frame[label]
    store: Store
    if hasattr(frame, "to_dask_array"):
        lengths = _lengths(frame)
        store = DaskArray.of(features.to_dask_array(lengths=lengths))
        own = None if labels is None else _column_store(labels, lengths)
    else:
        store = Array.of(features.to_numpy())
        own = None if labels is None else _store_of("y", labels)
    named = all(isinstance(name, str) for name in names)
    return Source(
        store,
        own if y is None else _store_of("y", y),
        feature_names=tuple(names) if named else None,
    )


def _lengths(frame: Any) -> list[int]:
    """The numbers of rows of the partitions of a Dask DataFrame, which are computed."""
    lengths: list[int] = frame.map_partitions(len).compute().tolist()
    return lengths


def _column_store(column: Any, lengths: list[int]) -> Store:
    """The store of a Dask Series of labels."""
    return DaskArray.of(column.astype(object).to_dask_array(lengths=lengths))
