"""Stores: arrays that need not be in memory. Rows are read when they are asked for.

A store knows the shape and the type of its array from metadata. Where the rows are in files it is
small, and can be sent to a worker, which reads them for itself; an array in memory is sent whole.
"""

from __future__ import annotations

import importlib
import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from boostmetric._grids import ReadError, as_float, listed

PART_ENTRIES = 1 << 22
"""Entries that are read at a time (32 MB in float64), unless the pieces of a store are larger."""

MAPPED_BYTES = 1 << 20
"""Bytes of rows that are copied from a mapped file at a time."""

READABLE = ".npy, .zarr, .parquet, or a folder of .parquet files"
"""What a path may lead to."""


@dataclass(frozen=True, eq=False)
class Store(ABC):
    """An array of one dimension or two, made by `of` or `at`.

    Parameters
    ----------
    name : what a message calls it
    shape, dtype : of the array
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @abstractmethod
    def read(self, rows: slice) -> NDArray:
        """Consecutive rows; the slice has a start and a stop, and no step."""

    @abstractmethod
    def take(self, rows: NDArray) -> NDArray:
        """Rows of sorted distinct numbers, without those between them where that can be had."""

    def lazy(self, rows: NDArray | slice) -> Any | None:
        """The rows as a Dask array, where the store is one; None where rows are read directly."""
        return None

    def pieces(self) -> Iterable[int]:
        """Where pieces of rows end that are best read whole."""
        return _ends(self.rows_at_once, self.shape[0])

    @property
    def rows_at_once(self) -> int:
        """How many rows have about `PART_ENTRIES` entries."""
        return max(1, PART_ENTRIES // max(1, math.prod(self.shape[1:])))

    def parts(self) -> list[slice]:
        """All rows in parts to read one after another: pieces, several together if small."""
        return list(_runs(self.pieces(), self.rows_at_once))


def _ends(size: int, n: int) -> list[int]:
    """Where pieces of equal size end, of n rows."""
    return [*range(size, n, size), n]


def _runs(ends: Iterable[int], most: int) -> Iterator[slice]:
    """Pieces joined to runs of at most so many rows; a piece of more is one by itself."""
    begin = last = 0
    for end in ends:
        if end - begin > most and last > begin:
            yield slice(begin, last)
            begin = last
        last = end
    if last > begin:
        yield slice(begin, last)


@dataclass(frozen=True, eq=False)
class Array(Store):
    """An array in memory.

    >>> Array.of(np.eye(3)).take(np.array([0, 2])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """

    array: NDArray

    @classmethod
    def of(cls, array: NDArray) -> Self:
        """The store of an array."""
        return cls("the array", array.shape, array.dtype, array)

    def read(self, rows: slice) -> NDArray:
        """Consecutive rows."""
        return self.array[rows]

    def take(self, rows: NDArray) -> NDArray:
        """The chosen rows."""
        return self.array[rows]


@dataclass(frozen=True, eq=False)
class MappedFile(Store):
    """An array in a file, not compressed, which is mapped into memory while rows are read.

    Parameters
    ----------
    name, shape, dtype : as of any store; the name is the path
    offset : the byte of the first entry
    strides : bytes from one entry to the next, along each dimension
    """

    offset: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, mapped: np.memmap) -> Store:
        """What a memmap shows, or a view of one; an `Array` where no file holds that.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "x.npy")
        >>> np.save(path, np.arange(12).reshape(6, 2))
        >>> MappedFile.of(np.load(path, mmap_mode="r")[::2]).read(slice(1, 3)).tolist()
        [[4, 5], [8, 9]]
        """
        whole: Any = mapped
        while isinstance(whole.base, np.memmap):
            whole = whole.base
        # What is computed from a memmap may be one by type; changes in mode "c" are in no file.
        if not isinstance(whole.base, mmap) or mapped.filename is None or mapped.mode == "c":
            return Array.of(np.asarray(mapped))
        offset = whole.offset + mapped.ctypes.data - whole.ctypes.data
        path = str(Path(mapped.filename).resolve())
        return cls(path, mapped.shape, mapped.dtype, offset, mapped.strides)

    def read(self, rows: slice) -> NDArray:
        """Consecutive rows."""
        first, stop, _ = rows.indices(self.shape[0])
        return self._copied(stop - first, lambda begin, end: slice(first + begin, first + end))

    def take(self, rows: NDArray) -> NDArray:
        """The chosen rows."""
        return self._copied(len(rows), lambda begin, end: rows[begin:end])

    def _copied(self, n: int, chosen: Callable[[int, int], slice | NDArray]) -> NDArray:
        """The n rows that are chosen from one to another of them.

        What is mapped counts as memory of the process until the file is closed, so few are at a
        time.
        """
        found = np.empty((n, *self.shape[1:]), dtype=self.dtype)
        size = max(1, MAPPED_BYTES // max(1, found[:1].nbytes))
        for begin in range(0, n, size):
            end = min(begin + size, n)
            found[begin:end] = self._open()[chosen(begin, end)]
        return found

    def _open(self) -> NDArray:
        file = np.memmap(self.name, dtype=np.uint8, mode="r")
        return np.ndarray(self.shape, self.dtype, file, self.offset, self.strides)


@dataclass(frozen=True, eq=False)
class ZarrArray(Store):
    """A Zarr array, in chunks or in shards of chunks."""

    array: Any

    @classmethod
    def of(cls, array: Any) -> Self:
        """The store of a Zarr array."""
        name = str(getattr(array, "store_path", "the Zarr array"))
        return cls(name, tuple(array.shape), np.dtype(array.dtype), array)

    @classmethod
    def at(cls, path: Path) -> Self:
        """That of the array at a path."""
        zarr = _needed("zarr", path)
        try:
            return cls.of(zarr.open_array(path.resolve(), mode="r"))
        except (ValueError, OSError, KeyError) as error:
            raise ReadError(
                f"{path} is no Zarr array. Give the path of an array; of a group, that of an "
                "array in it."
            ) from error

    @classmethod
    def in_group(cls, path: Path, label: str) -> tuple[Self, Self]:
        """The points, which are the array of two dimensions of a group, and the array of labels."""
        zarr = _needed("zarr", path)
        try:
            arrays = dict(zarr.open_group(path.resolve(), mode="r").arrays())
        except (ValueError, OSError, KeyError, AssertionError) as error:  # the last by zarr 3.0
            raise ReadError(
                f"{path} is no Zarr group, in which an array {label!r} could be the labels: give "
                "these as y."
            ) from error
        tables = [name for name, array in arrays.items() if array.ndim == 2]
        if label not in arrays or len(tables) != 1:
            shapes = listed([f"{name} {arrays[name].shape}" for name in sorted(arrays)])
            raise ReadError(
                f"{path} holds {shapes or 'no arrays'}: one array of shape (n, D) is needed, of "
                f"the points, and {label!r} of shape (n,), of the labels."
            )
        return cls.of(arrays[tables[0]]), cls.of(arrays[label])

    def read(self, rows: slice) -> NDArray:
        """Consecutive rows."""
        return np.asarray(self._open()[rows])

    def take(self, rows: NDArray) -> NDArray:
        """The chosen rows, from the chunks that hold them."""
        return np.asarray(self._open().oindex[rows])

    def pieces(self) -> Iterable[int]:
        """Where chunks or shards end."""
        sizes = getattr(self.array, "shards", None) or self.array.chunks
        return _ends(sizes[0], self.shape[0])

    def _open(self) -> Any:
        """The array anew: of one that is not there, all chunks would be taken for empty."""
        zarr = _needed("zarr", self.name)
        return zarr.open_array(store=self.array.store, path=self.array.path, mode="r")


@dataclass(frozen=True, eq=False)
class DaskArray(Store):
    """A Dask array: rows are computed when they are asked for."""

    array: Any

    @classmethod
    def of(cls, array: Any) -> Self:
        """The store of a Dask array; a ReadError where the sizes of its chunks are not known."""
        if any(math.isnan(size) for size in array.shape):
            raise ReadError(
                "the Dask array has chunks of unknown size. Call its compute_chunk_sizes(), which "
                "computes it once, or store it (to_zarr) and give the path."
            )
        return cls("the Dask array", tuple(map(int, array.shape)), np.dtype(array.dtype), array)

    def read(self, rows: slice) -> NDArray:
        """Consecutive rows."""
        return np.asarray(self.array[rows].compute())

    def take(self, rows: NDArray) -> NDArray:
        """The chosen rows, from the chunks that hold them."""
        return np.asarray(self.array[rows].compute())

    def lazy(self, rows: NDArray | slice) -> Any:
        """The rows, not computed."""
        return self.array[rows]

    def pieces(self) -> Iterable[int]:
        """Where chunks end."""
        ends: list[int] = np.cumsum(self.array.chunks[0]).tolist()
        return ends


@dataclass(frozen=True, eq=False)
class RowGroup:
    """Rows of a Parquet file that are stored together: the file, and which of its groups."""

    path: Path
    number: int


@dataclass(frozen=True, eq=False)
class ParquetColumns(Store):
    """Columns of Parquet files, one file below another; row groups are read whole.

    Parameters
    ----------
    name, shape, dtype : as of any store; of shape (n,) it is one column, whose values may be any
    columns : their names
    groups : the row groups, in the order of the rows
    ends : where each of them ends, counted in rows of all
    """

    columns: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    ends: tuple[int, ...]

    @classmethod
    def at(cls, path: Path, label: str | None = None) -> tuple[Self, Self | None]:
        """The features in a file, or in all files of a folder by name; and the labels.

        Features are all columns but the label, and but those that pandas wrote for its index.
        """
        parquet = _needed("pyarrow.parquet", path)
        paths = _files(path.resolve())
        schema, groups, sizes = parquet.read_schema(paths[0]), [], []
        for each in paths:
            metadata = parquet.read_metadata(each)
            other = metadata.schema.to_arrow_schema()
            if other.names != schema.names or other.types != schema.types:
                raise ReadError(
                    f"{each} has other columns than {paths[0].name}, or columns of other types: "
                    "the files of a folder must have the same."
                )
            groups += [RowGroup(each, number) for number in range(metadata.num_row_groups)]
            sizes += [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        names, dtype = _features(path, schema, label)
        ends = tuple(np.cumsum(sizes, dtype=int).tolist())
        n = sum(sizes)
        features = cls(str(path), (n, len(names)), dtype, names, tuple(groups), ends)
        if label is None:
            return features, None
        kind = np.dtype(object)
        return features, cls(str(path), (n,), kind, (label,), tuple(groups), ends)

    def read(self, rows: slice) -> NDArray:
        """Consecutive rows."""
        return self.take(np.arange(rows.start, rows.stop))

    def take(self, rows: NDArray) -> NDArray:
        """The chosen rows, from the row groups that hold them."""
        if len(rows) == 0:
            return np.empty((0, *self.shape[1:]), dtype=self.dtype)
        parts = []
        first, last = (bisect_right(self.ends, row) for row in (rows[0], rows[-1]))
        for number in range(first, last + 1):
            begin, end = (0, *self.ends)[number : number + 2]
            here = rows[slice(*np.searchsorted(rows, [begin, end]))]
            if len(here):
                parts.append(self._group(self.groups[number])[here - begin])
        return np.concatenate(parts)

    def pieces(self) -> Iterable[int]:
        """Where row groups end."""
        return self.ends

    def _group(self, group: RowGroup) -> NDArray:
        """The columns of a row group."""
        parquet = _needed("pyarrow.parquet", group.path)
        with parquet.ParquetFile(group.path) as file:
            table = file.read_row_group(group.number, columns=list(self.columns), use_threads=False)
        if len(self.shape) == 1:
            return _values(table.column(self.columns[0]))
        values = np.empty((table.num_rows, len(self.columns)), dtype=self.dtype)
        for number, name in enumerate(self.columns):
            values[:, number] = table.column(name).to_numpy()
        return values


def _files(path: Path) -> list[Path]:
    """The file, or those of a folder by name, in which numbers are ordered as such."""
    if not path.is_dir():
        return [path]
    found = list(path.glob("*.parquet"))
    if not found:
        raise ReadError(f"{path} is a folder without .parquet files.")
    return sorted(
        found, key=lambda each: re.sub(r"\d+", lambda digits: f"{digits[0]:0>20}", each.name)
    )


def _features(path: Path, schema: Any, label: str | None) -> tuple[tuple[str, ...], np.dtype]:
    """The names of the columns that are features, and the type that holds them all."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    names = [name for name in schema.names if name not in index]
    if label is not None and label not in names:
        raise ReadError(
            f"{path} has no column {label!r} of labels: there are {listed(list(map(repr, names)))}."
        )
    kinds = {
        name: np.dtype(schema.field(name).type.to_pandas_dtype()) for name in names if name != label
    }
    check_numeric(str(path), kinds)
    return tuple(kinds), as_float(np.result_type(*kinds.values())) if kinds else np.dtype(float)


def check_numeric(name: str, kinds: dict[str, np.dtype]) -> None:
    """Refuse columns that hold no numbers, by their types.

    >>> check_numeric("points.parquet", {"size": np.dtype(float), "colour": np.dtype(object)})
    Traceback (most recent call last):
    boostmetric._grids.ReadError: points.parquet has columns that hold no numbers: 'colour'. ...
    """
    texts = [repr(column) for column, kind in kinds.items() if kind.kind not in "biuf"]
    if texts:
        raise ReadError(
            f"{name} has columns that hold no numbers: {listed(texts)}. Name that of the labels "
            "(label=), and leave out others or encode them as numbers."
        )


def _values(column: Any) -> NDArray:
    """A column of PyArrow, as an array; categories by what they stand for."""
    if hasattr(column.type, "value_type"):
        column = column.cast(column.type.value_type)
    return np.asarray(column.to_numpy())


def stored_at(path: Path) -> Store:
    """What is stored at a path; of a Parquet file all columns.

    >>> stored_at(Path("points.csv"))
    Traceback (most recent call last):
    boostmetric._grids.ReadError: points.csv is not there. A path must lead to .npy, .zarr, ...
    """
    if not path.exists():
        raise ReadError(f"{path} is not there. A path must lead to {READABLE}.")
    if path.suffix == ".npy":
        try:
            return MappedFile.of(np.load(path, mmap_mode="r"))
        except ValueError as error:
            raise ReadError(f"{path} cannot be mapped into memory: {error}") from error
    if is_parquet(path):
        return ParquetColumns.at(path)[0]
    if path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zarray")):
        return ZarrArray.at(path)
    raise ReadError(f"{path} cannot be read in parts: a path must lead to {READABLE}.")


def is_parquet(path: Path) -> bool:
    """Whether a path is that of a Parquet file, or of a folder of them."""
    return path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))


def _needed(module: str, path: Path | str) -> Any:
    package = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ReadError(
            f"{path} needs {package}, which is missing: pip install {package}"
        ) from None
