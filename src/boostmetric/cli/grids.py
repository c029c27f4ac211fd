"""Rows and columns as files hold them, and where in a file something is."""

from __future__ import annotations

import csv
import gzip
import importlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.datasets import load_svmlight_file

TEXT = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
"""What separates the columns of a text file, by the end of its name."""

TABLES = (".parquet", ".feather")
ARRAYS = (".npy", ".npz")
SVMLIGHT = (".svm", ".svmlight", ".libsvm")

EXACT = 2**53
"""Up to here a float holds every integer."""

MAX_SVMLIGHT_FEATURES = 2**24
"""Features of an svmlight file, at most. A metric stores one number per feature and direction, here
128 MB per direction; a higher index is most likely an error. (The trigrams of webspam, among the
widest public data sets, have 16.6 million features.)"""

SHOWN = 10
"""Names that a message lists at most."""


class ReadError(ValueError):
    """What a file holds will not do; the text says where, and what to do."""


@dataclass(frozen=True, eq=False)
class Grid:
    """The columns of a file.

    Parameters
    ----------
    path : the file
    data : an array of shape (n, D), which may be sparse
    names : of the columns; their numbers where the file names none
    named : whether it does
    array : the name of the array in a .npz file
    """

    path: Path
    data: Any
    names: tuple[str, ...]
    named: bool = False
    array: str = ""

    def place(self, row: int) -> str:
        """Where the user finds a row: on a line, counted from 1, or by its number, from 0."""
        separator = TEXT.get(suffix_of(self.path))
        if separator is None:
            return f"row {row} (the first is row 0)"
        lines = [line for line, _ in _records(self.path, separator)]
        return f"line {lines[row + self.named]}"

    def numbers(self, positions: Sequence[int]) -> Any:
        """Columns as floats, all of them finite; float32 is kept, and what is sparse stays so."""
        values = self.data[:, list(positions)]
        if values.dtype.kind not in "biuf":
            raise ReadError(f"{self.path} holds {values.dtype} values: numbers are needed.")
        names = [self.names[position] for position in positions]
        if values.dtype.kind in "iu" and values.size:
            for column, name in zip(values.T, names, strict=True):
                self._check_exact(column, name)
        return self._checked(values.astype(as_float(values.dtype), copy=False), names)

    def labels(self, position: int) -> NDArray:
        """A column as labels, none of them missing."""
        return self.checked_labels(self.data[:, position], f"column {self.names[position]!r}")

    def checked_labels(self, values: NDArray, what: str) -> NDArray:
        """Labels of one dimension, none missing; whole floats become integers."""
        if values.ndim != 1 or values.dtype.kind not in "biufSUM":
            raise ReadError(
                f"{self.path}: {what} has shape {values.shape} and type {values.dtype}; labels are "
                "one row of numbers or texts."
            )
        if values.dtype.kind == "f":
            if np.isnan(values).any():
                self._refuse_missing_label(int(np.argmax(np.isnan(values))), what)
            if (values == np.round(values)).all() and np.abs(values).max(initial=0) <= EXACT:
                return values.astype(np.int64)
        return values

    def _refuse_missing_label(self, row: int, what: str) -> None:
        raise ReadError(
            f"{self.path}: the label in {self.place(row)}, {what}, is missing. Fill it in, or "
            "leave the row out."
        )

    def _check_exact(self, column: Any, name: str) -> None:
        """Refuse integers that a float would round."""
        low, high = int(column.min()), int(column.max())
        if max(-low, high) > EXACT:
            raise ReadError(
                f"{self.path}: column {name!r} holds {high if high > -low else low}, and numbers "
                "above 2**53 are not kept exactly. If it is an identifier, leave it out (--drop)."
            )

    def _checked(self, X: Any, names: Sequence[str]) -> Any:
        """The same X; a ReadError where something in it is missing or infinite."""
        stored: Any = X if isinstance(X, np.ndarray) else X.tocoo()
        values = stored.ravel() if isinstance(X, np.ndarray) else stored.data
        good = np.isfinite(values)
        if good.all():
            return X
        first = int(np.argmin(good))
        if isinstance(X, np.ndarray):
            row, column = divmod(first, X.shape[1])
        else:
            row, column = int(stored.row[first]), int(stored.col[first])
        kind = "missing" if np.isnan(values[first]) else "infinite"
        number = int((~good).sum())
        others = f"; {number} values are missing or infinite" if number > 1 else ""
        raise ReadError(
            f"{self.path}: the value in {self.place(row)}, column {names[column]!r}, is {kind}"
            f"{others}. Fill them in, or leave out rows or columns (--drop)."
        )


@dataclass(frozen=True, eq=False)
class Frame(Grid):
    """The columns of a file that pandas has read; `data` is its DataFrame."""

    named: bool = True

    def numbers(self, positions: Sequence[int]) -> NDArray:
        """Columns as floats, all of them finite; float32 is kept."""
        names = [self.names[position] for position in positions]
        if "" in names:
            raise ReadError(
                f"{self.path}: column {self.names.index('') + 1} has no name in the header. Name "
                "it, or leave it out (--drop ''); it may be a row number that pandas wrote."
            )
        columns = self.data.iloc[:, list(positions)]
        is_numeric = pandas().api.types.is_numeric_dtype
        texts = [
            f"{name!r} ({self._example(column)})"
            for name, (_, column) in zip(names, columns.items(), strict=True)
            if not is_numeric(column.dtype)
        ]
        if texts:
            raise ReadError(
                f"{self.path}: not a number in column{'s' * (len(texts) > 1)} {listed(texts)}. "
                "Leave them out (--drop), choose others (--columns), or encode them as numbers."
            )
        dtypes = [getattr(dtype, "numpy_dtype", dtype) for dtype in columns.dtypes]
        for name, dtype, (_, column) in zip(names, dtypes, columns.items(), strict=True):
            if dtype.kind in "iu" and len(known := column.dropna()):
                self._check_exact(known, name)
        X = columns.to_numpy(dtype=as_float(np.result_type(*dtypes)), na_value=np.nan)
        if not np.isfinite(X).all():
            _check_lengths(self.path, len(self.names))
        return self._checked(X, names)

    def labels(self, position: int) -> NDArray:
        """A column as labels, none of them missing."""
        column, what = self.data.iloc[:, position], f"column {self.names[position]!r}"
        missing = column.isna().to_numpy()
        if missing.any():
            _check_lengths(self.path, len(self.names))
            self._refuse_missing_label(int(np.argmax(missing)), what)
        values = np.asarray(column.tolist())
        if values.dtype.kind == "O":  # dates, decimals
            values = np.asarray(list(map(str, values)))
        return self.checked_labels(values, what)

    def _example(self, column: Any) -> str:
        """A value that is no number, and where it is."""
        numbers = pandas().to_numeric(column, errors="coerce").isna().to_numpy()
        row = int(np.argmax(numbers))
        value = column.iloc[row]
        text = "nothing" if pandas().isna(value) else repr(value)
        return f"{text} in {self.place(row)}"


def load(
    path: Path,
    *,
    label: str | None = None,
    arrays: Sequence[str] = ("X",),
    extras: Sequence[str] = ("y",),
    may_lack_header: bool = False,
) -> tuple[Grid, dict[str, NDArray]]:
    """The columns of a file, and arrays that it holds beside them.

    Parameters
    ----------
    path : the file; the end of its name tells its kind
    label : of a .npz file, the array that comes back as "y"
    arrays : of a .npz file, the names that the array of columns may have, unless it is the only one
    extras : of a .npz file, the arrays to read beside it
    may_lack_header : whether a text file may begin with numbers
    """
    suffix = suffix_of(path)
    with _reading(path):
        path.open("rb").close()  # so that all readers say the same of a file that is not there
        if suffix in TEXT:
            return _load_text(path, TEXT[suffix], may_lack_header), {}
        if suffix in TABLES:
            return _load_table(path, suffix), {}
        if suffix in SVMLIGHT:
            return _load_svmlight(path, label)
        if suffix == ".npz":
            return _load_npz(path, label, arrays, extras)
        return _array_grid(path, np.load(path, allow_pickle=False)), {}


def suffix_of(path: Path, known: Sequence[str] = (*TEXT, *TABLES, *ARRAYS, *SVMLIGHT)) -> str:
    """The end of a file's name, among those that are known; a ReadError if it is none of them.

    >>> suffix_of(Path("points.CSV"))
    '.csv'
    """
    for suffix in known:
        if path.name.lower().endswith(suffix):
            return suffix
    raise ReadError(
        f"{path}: the name must end in one of {', '.join(known)}, which says what kind of file it "
        "is. Tables of other programs can be saved as CSV."
    )


def pandas(suffix: str = ".csv") -> Any:
    """The module pandas, or a ReadError that says how to install what this kind of file needs."""
    for package in ("pandas", *(["pyarrow"] if suffix in TABLES else [])):
        try:
            importlib.import_module(package)
        except ImportError:
            raise ReadError(
                f"{suffix} files need {package}, which is missing: pip install 'boostmetric[cli]'"
            ) from None
    return importlib.import_module("pandas")


def listed(texts: Sequence[str]) -> str:
    """The first and the last few, and how many more there are.

    >>> listed(["a", "b"])
    'a, b'
    >>> listed(list("abcdefghijklmnop"))
    'a, b, c, d, e, f, g, (6 more), n, o, p'
    """
    more = len(texts) - SHOWN
    if more > 0:
        texts = [*texts[: SHOWN - 3], f"({more} more)", *texts[-3:]]
    return ", ".join(texts)


def as_float(dtype: DTypeLike) -> np.dtype[Any]:
    """float32 for itself, float64 for all else."""
    return np.dtype(np.float32 if dtype == np.float32 else np.float64)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Let whatever a reader raises be a ReadError about the file."""
    try:
        yield
    except (ReadError, MemoryError):
        raise
    except OSError as error:
        raise ReadError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ReadError(f"{path} is no UTF-8 text ({error.reason}): save it as UTF-8.") from None
    except Exception as error:  # a damaged file makes the readers raise almost anything
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ReadError(
            f"{path} is damaged, or of another kind than its name says: {said}"
        ) from None


def _array_grid(path: Path, values: Any, array: str = "") -> Grid:
    """An array as columns that are called by their numbers."""
    if not isinstance(values, np.ndarray) or values.ndim != 2 or 0 in values.shape:
        shape = getattr(values, "shape", type(values).__name__)
        raise ReadError(
            f"{path}: {f'array {array!r}' if array else 'the array'} has shape {shape}; one row "
            "a point and one column a feature are needed, of shape (n, D)."
        )
    return Grid(path, values, tuple(map(str, range(values.shape[1]))), array=array)


def _load_npz(
    path: Path, label: str | None, arrays: Sequence[str], extras: Sequence[str]
) -> tuple[Grid, dict[str, NDArray]]:
    with np.load(path, allow_pickle=False) as file:
        if label is not None and label not in file.files and not label.isdecimal():
            raise ReadError(f"{path} has no array {label!r}: it has {listed(file.files)}.")
        beside = {name: label if name == "y" and label in file.files else name for name in extras}
        others = [name for name in file.files if name not in beside.values()]
        main = next((name for name in arrays if name in others), None)
        if main is None and len(others) == 1:
            (main,) = others
        if main is None:
            raise ReadError(
                f"{path} has the arrays {listed(file.files)}: one is to be named "
                f"{' or '.join(arrays)}, or be the only one."
            )
        grid = _array_grid(path, file[main], main)
        found = {name: file[stored] for name, stored in beside.items() if stored in file.files}
    if "y" in found:
        found["y"] = grid.checked_labels(found["y"], f"array {beside['y']!r}")
    return grid, found


def _load_svmlight(path: Path, label: str | None) -> tuple[Grid, dict[str, NDArray]]:
    if label is not None:
        raise ReadError(f"{path} has the label first on every line: leave --label out.")
    X, y = load_svmlight_file(str(path))
    if X.shape[0] == 0:
        raise ReadError(f"{path} is empty.")
    if X.shape[1] > MAX_SVMLIGHT_FEATURES:
        raise ReadError(
            f"{path} has {X.shape[1]} features; at most {MAX_SVMLIGHT_FEATURES} are supported. Is "
            "an index wrong? Otherwise renumber the features that occur."
        )
    grid = Grid(path, X, tuple(map(str, range(X.shape[1]))))
    return grid, {"y": grid.checked_labels(y, "the first field")}


def _load_table(path: Path, suffix: str) -> Frame:
    read = pandas(suffix).read_parquet if suffix == ".parquet" else pandas(suffix).read_feather
    return _checked_frame(Frame(path, frame := read(path), tuple(map(str, frame.columns))))


def _load_text(path: Path, separator: str, may_lack_header: bool) -> Frame:
    records = _records(path, separator)
    _, header = next(records, (0, None))
    if header is None:
        raise ReadError(f"{path} is empty.")
    names = tuple(name.strip() for name in header)
    has_header = not (may_lack_header and all(map(_is_number, names)))
    if has_header:
        _check_header(path, names, separator)
    else:
        names = tuple(map(str, range(len(names))))
    _check_names(path, names)
    is_old = int(pandas().__version__.split(".")[0]) < 3  # and reads numbers to a few last digits
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas().errors.ParserWarning)  # of a row too long
            data = pandas().read_csv(
                path,
                sep=separator,
                header=0 if has_header else None,
                names=list(names),
                index_col=False,
                skipinitialspace=True,
                encoding="utf-8-sig",
                low_memory=False,
                **({"float_precision": "round_trip"} if is_old else {}),
            )
    except Exception:
        _check_lengths(path, len(names))
        raise
    return _checked_frame(Frame(path, data, names, named=has_header))


def _checked_frame(frame: Frame) -> Frame:
    _check_names(frame.path, frame.names)
    if len(frame.data) == 0:
        raise ReadError(f"{frame.path} has a header but no rows.")
    return frame


def _check_names(path: Path, names: Sequence[str]) -> None:
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ReadError(
            f"{path}: several columns are called {listed([repr(name) for name in repeated])}. "
            "Every column needs a name of its own."
        )


def _check_header(path: Path, names: Sequence[str], separator: str) -> None:
    """Refuse a first line that is no header, or one that is separated otherwise."""
    other = {",": ".tsv", "\t": ".csv"}[separator]
    if len(names) == 1 and (found := next((c for c in ";\t,|" if c in names[0]), None)):
        raise ReadError(
            f"{path}: the header {names[0]!r:.60} is one column. Are columns separated by "
            f"{found!r}? {separator!r} is needed, or a name that ends in {other}."
        )
    numbers = [name for name in names if _is_number(name)]
    counted = [str(number) for number in range(len(names))]
    fractions = [name for name in numbers if not name.lstrip("+-").isdecimal()]
    if fractions or (len(numbers) == len(names) and list(names) != counted):
        example = separator.join(f"x{number}" for number in range(min(3, len(names))))
        raise ReadError(
            f"{path}: the first line, {separator.join(names)!r:.60}, looks like data. A header "
            f"with the names of the columns is needed above it, such as {example!r}."
        )


def _check_lengths(path: Path, n_columns: int) -> None:
    """Refuse a text file in which a row has more or fewer fields than the header."""
    separator = TEXT.get(suffix_of(path))
    for line, record in _records(path, separator) if separator else ():
        if len(record) != n_columns:
            raise ReadError(
                f"{path}: line {line} has {len(record)} fields, but there are {n_columns} columns. "
                "Is there a comma too many or too few, or a quotation mark left open?"
            )


def _records(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a text file that are not blank, each with the line it ends on."""
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
        for record in reader:
            if len(record) > 1 or (record and record[0].strip()):
                yield reader.line_num, record


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
