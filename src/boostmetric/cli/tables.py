"""Read points, labels and comparisons from files with pandas, and write points."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.datasets import load_svmlight_file

from boostmetric._files import atomic_write
from boostmetric.cli.console import CommandError, reason, say
from boostmetric.cli.options import SVMLIGHT
from boostmetric.metric import Metric
from boostmetric.problem import Comparisons

TEXT = {".csv": ",", ".tsv": "\t"}
FORMATS = (*TEXT, ".parquet", ".feather", ".npy", ".npz", *SVMLIGHT)


@dataclass(frozen=True, eq=False)
class Table:
    """Points X of shape (n, D), their labels and the names of the features, if there are any."""

    path: Path
    X: Any
    labels: NDArray | None = None
    label_name: str = "the label"
    feature_names: tuple[str, ...] | None = None

    def require_labels(self) -> NDArray:
        """Return the labels. Raises a CommandError if the table has no labels."""
        if self.labels is None:
            raise CommandError(f"Which column of {self.path} has the labels? Use --label.")
        return self.labels

    @property
    def classes(self) -> NDArray:
        """The labels. Raises a CommandError if there are fewer than two classes."""
        labels, where = self.require_labels(), f"{self.path}: {self.label_name}"
        if labels.dtype.kind == "f":
            example = labels[labels % 1 != 0][0]
            raise CommandError(
                f"{where} has fractional values such as {example:g}. Labels must be classes: text "
                "or whole numbers."
            )
        if len(names := np.unique(labels)) < 2:
            raise CommandError(f"{where} has one class, {names[0]}. At least two are required.")
        return labels

    def dense(self, max_values: int = 2**28) -> Table:
        """Return the same table with a dense X, by default of at most 2 GB."""
        if not issparse(self.X):
            return self
        if self.X.shape[0] * self.X.shape[1] > max_values:
            raise CommandError(
                f"{self.path} has {self.X.shape[0]} rows and {self.X.shape[1]} features, which is "
                "too large for a dense array. Use fewer rows, or reduce the features first."
            )
        return replace(self, X=self.X.toarray())


def read_table(
    path: Path,
    label: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    *,
    sep: str | None = None,
    decimal: str = ".",
    dropna: bool | None = None,
    metric: Metric | None = None,
) -> Table:
    """Read points and, if there are any, their labels. Nothing is unpickled.

    Features are `columns`, those of `metric` (by name if both have names), or all columns except
    `label` and `drop`. In an .npz file, `label` is an array. `dropna` is None if rows cannot be
    ignored, because the results or other files refer to their numbers.
    """
    if _suffix(path) in SVMLIGHT:
        if label or columns or drop:
            raise CommandError(f"{path}: --label, --column and --drop do not apply to svmlight.")
        return _read_svmlight(path, metric)

    # 1) columns and labels
    frame, labels = _load(path, label, sep=sep, decimal=decimal)
    named = _suffix(path) not in (".npy", ".npz")
    label_name = f"array {label or 'y'!r}" if labels is not None else f"column {label!r}"
    if label is not None and labels is None:
        labels = frame[_known(path, frame, [label])[0]]
    if metric is not None and metric.feature_names is not None and named:
        columns = metric.feature_names
    chosen = _known(path, frame, columns) if columns else list(frame.columns)
    dropped = {label, *_known(path, frame, drop or ())}
    frame = frame[[name for name in chosen if name not in dropped]]
    if metric is not None and frame.shape[1] != metric.n_features:
        raise CommandError(
            f"{path} has {frame.shape[1]} features, but the metric was learned from "
            f"{metric.n_features}. Use --label, --column or --drop."
        )
    if frame.empty:
        raise CommandError(f"{path} has {len(frame)} rows and {frame.shape[1]} features.")

    # 2) features as floats
    _check_numeric(path, frame, "Ignore it with --drop, or encode it as numbers.")
    types = {np.dtype(getattr(each, "numpy_dtype", each)) for each in frame.dtypes}
    dtype = np.float32 if types == {np.dtype(np.float32)} else np.float64
    X = frame.to_numpy(dtype=dtype, na_value=np.nan)

    # 3) missing values
    complete = np.isfinite(X).all(axis=1)
    if labels is not None:
        if len(labels) != len(X):
            raise CommandError(f"{path} has {len(X)} rows, but {len(labels)} labels.")
        complete &= labels.notna().to_numpy()
    if dropna and not complete.all():
        say(f"Ignoring {int((~complete).sum())} of {len(X)} rows, which have missing values.")
        X, labels = X[complete], None if labels is None else labels[complete]
    elif not complete.all():
        row = int(np.argmin(complete))
        missing = frame.columns[~np.isfinite(X[row])]
        where = f"column {missing[0]!r}" if len(missing) else label_name
        options = ["--dropna to ignore these rows"] if dropna is not None else []
        options += ["--drop to ignore columns"] if metric is None else []
        advice = f"Use {', or '.join(options)}." if options else "Remove or complete these rows."
        raise CommandError(
            f"{path}: {int((~complete).sum())} of {len(X)} rows have missing or infinite values; "
            f"the first is row {row} (counting from 0), {where}. {advice}"
        )
    if len(X) == 0:
        raise CommandError(f"{path} has no row without missing values.")
    names = tuple(frame.columns) if named else None
    return Table(path, X, None if labels is None else _as_classes(labels), label_name, names)


def read_comparisons(
    path: Path,
    n_points: int,
    kind: str | None = None,
    *,
    sep: str | None = None,
    decimal: str = ".",
) -> Comparisons:
    """Read comparisons of the rows of a table of `n_points` rows.

    Columns named `weight`, `gap` and, for pairs, `threshold` are used as such. Comparisons that no
    metric can satisfy are dropped with a message.
    """
    frame, _ = _load(path, sep=sep, decimal=decimal, header=False)
    _check_numeric(path, frame, "Comparisons are row numbers of DATA, from 0.")
    extras = {n: frame.pop(n).to_numpy(float) for n in ("weight", "gap", "threshold") if n in frame}
    n_columns = frame.shape[1]
    if kind is None:
        sign_names = ("similar", "sign", "y", "label")
        is_signed = n_columns == 3 and str(frame.columns[2]).lower() in sign_names
        kind = "quadruplets" if n_columns == 4 else "pairs" if is_signed else "triplets"
    if n_columns != (4 if kind == "quadruplets" else 3):
        raise CommandError(
            f"{path} has {n_columns} columns; triplets a,b,c and pairs i,j,±1 have three, "
            "quadruplets a,b,c,d have four."
        )

    values = frame.to_numpy(float, na_value=np.nan)
    rows = values[:, :2] if kind == "pairs" else values
    invalid = ((rows < 0) | (rows >= n_points) | (rows % 1 != 0)).any(axis=1)
    if invalid.any():
        first = int(np.argmax(invalid))
        hint = " Are these pairs? Use --kind pairs." if kind == "triplets" else ""
        raise CommandError(
            f"{path}: {int(invalid.sum())} of {len(values)} rows are not row numbers between 0 and "
            f"{n_points - 1}; the first is row {first} (counting from 0), "
            f"{values[first].tolist()}.{hint}"
        )
    far = rows[:, :2] if kind == "pairs" else rows[:, [0, 2]] if kind == "triplets" else rows[:, 2:]
    useless = far[:, 0] == far[:, 1]
    if kind != "pairs":
        useless |= (np.sort(rows[:, :2], axis=1) == np.sort(far, axis=1)).all(axis=1)
    if useless.any():
        say(
            f"Warning: {path}: ignoring {int(useless.sum())} of {len(values)} comparisons, which "
            "compare a point or a pair with itself."
        )
        values, rows = values[~useless], rows[~useless]
        extras = {name: each[~useless] for name, each in extras.items()}

    common: dict[str, Any] = {"weights": extras.get("weight"), "n_points": n_points}
    rows = rows.astype(int)
    if kind == "pairs":
        thresholds = extras.get("threshold", 1.0)
        return Comparisons.from_pairs(rows, values[:, 2], thresholds=thresholds, **common)
    make = Comparisons.from_triplets if kind == "triplets" else Comparisons.from_quadruplets
    return make(rows, gaps=extras.get("gap"), **common)


def check_format(path: Path, *, has_labels: bool) -> None:
    """Raise an error unless `write_points` can write such a file."""
    if _suffix(path) in SVMLIGHT or (_suffix(path) == ".npy" and has_labels):
        what = "labels" if has_labels else "points"
        raise CommandError(f"{path}: {what} cannot be written to this format; use .csv or .npz.")


def write_points(path: Path, points: NDArray, labels: NDArray | None, label: str = "label") -> None:
    """Write transformed points as columns component0, component1, …, and the labels."""
    suffix = _suffix(path)
    frame = pd.DataFrame(points, columns=[f"component{i}" for i in range(points.shape[1])])
    if labels is not None:
        if label in frame:
            raise CommandError(f"The label has the name of an output column, {label!r}. Rename it.")
        frame[label] = labels
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        if suffix == ".npy":
            np.save(file, points)
        elif suffix == ".npz":
            arrays: dict[str, Any] = {"X": points} if labels is None else {"X": points, "y": labels}
            np.savez(file, **arrays)
        elif suffix == ".parquet":
            frame.to_parquet(file, index=False)
        elif suffix == ".feather":
            frame.to_feather(file)
        else:
            compression = "gzip" if path.suffix.lower() == ".gz" else None
            frame.to_csv(file, sep=TEXT[suffix], index=False, compression=compression)


def _suffix(path: Path) -> str:
    """Return the suffix that determines the format, without that of compressed text."""
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in FORMATS:
        raise CommandError(f"{path}: unknown format. Supported are {', '.join(FORMATS)}.")
    return suffix


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn any error of a reader into a CommandError that names the file."""
    try:
        yield
    except CommandError:
        raise
    except Exception as error:  # readers raise almost anything for a damaged file
        is_empty = isinstance(error, pd.errors.EmptyDataError)
        text = "it is empty" if is_empty else reason(error).rstrip(".")
        raise CommandError(f"Cannot read {path}: {text}.") from None


def read_arrays(path: Path, mmap_mode: Literal["r"] | None = None) -> Any:
    """Read an .npy file as an array, or an .npz file as a dict of arrays. Nothing is unpickled."""
    with errors_of(path), path.open("rb") as file:
        start = file.read(6)
        if start == np.lib.format.MAGIC_PREFIX:
            return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):  # a zip file, with members or without
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        # NumPy would take it for a pickle, and recommend to load it unsafely.
        contents = "it is not an .npy or .npz file" if start else "it is empty"
        raise CommandError(f"Cannot read {path}: {contents}.")


def _load(path: Path, label: str | None = None, **text: Any) -> tuple[Any, Any]:
    """Read all columns of a file as a DataFrame, and the labels if they are a separate array."""
    suffix, labels = _suffix(path), None
    with errors_of(path):
        if suffix in TEXT:
            frame = _read_text(path, TEXT[suffix], **text)
        elif suffix in (".parquet", ".feather"):
            frame = (pd.read_parquet if suffix == ".parquet" else pd.read_feather)(path)
        else:
            arrays = read_arrays(path)
            if isinstance(arrays, dict):
                if len(arrays) > 1 and (label or "y") in arrays:
                    labels = pd.Series(arrays.pop(label or "y"))
                if "X" not in arrays and len(arrays) != 1:
                    raise CommandError(
                        f"{path} has the arrays {', '.join(arrays) or '(none)'}; the points must "
                        "be named X."
                    )
                arrays = arrays.get("X", next(iter(arrays.values())))
            frame = pd.DataFrame(arrays)
    frame.columns = frame.columns.astype(str).str.strip()
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()].unique()
        names = ", ".join(map(repr, repeated))
        raise CommandError(f"{path} has several columns named {names}. Rename them.")
    return frame, labels


def _read_text(
    path: Path, default_sep: str, sep: str | None, decimal: str = ".", header: bool = True
) -> Any:
    """Read a text file as a DataFrame; without `header`, a first line of numbers is data."""
    options: dict[str, Any] = {
        "sep": sep or default_sep,
        "decimal": decimal,
        "skipinitialspace": True,
        "encoding": "utf-8-sig",
        "low_memory": False,
        "index_col": False,
    }
    if pd.__version__ < "3":  # which reads numbers exactly
        options["float_precision"] = "round_trip"
    # Read as text, because pandas renames repeated columns.
    first = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
    names = first.iloc[0].tolist()
    if len(names) == 1 and (found := [char for char in ";\t|," if char in names[0]]):
        raise CommandError(
            f"{path} has a single column, {names[0]!r:.60}. If columns are separated by "
            f"{found[0]!r}, use --sep {found[0]!r}."
        )
    if pd.to_numeric(pd.Series(names), errors="coerce").notna().all():
        if not header:
            return pd.read_csv(path, header=None, **options)
        if names != [str(i) for i in range(len(names))]:
            raise CommandError(
                f"{path}: the first line looks like data. Add a header line with column names."
            )
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
        frame = pd.read_csv(path, **options)
    if not names[0] and (frame.iloc[:, 0] == frame.index).all():
        say(f"Ignoring the first column of {path}, which has no name and numbers the rows.")
        frame, names = frame.iloc[:, 1:], names[1:]
    frame.columns = [name or given for name, given in zip(names, frame.columns, strict=True)]
    return frame


def _read_svmlight(path: Path, metric: Metric | None) -> Table:
    with errors_of(path):
        X, y = load_svmlight_file(str(path), n_features=metric.n_features if metric else None)
    if len(y) == 0:
        raise CommandError(f"{path} has no rows.")
    # A metric stores a float per feature and direction. A larger index is most likely an error:
    # trigrams of webspam, among the widest public datasets, have 16.6 million features.
    max_features = 2**24
    if X.shape[1] > max_features:
        raise CommandError(
            f"{path} has an index of {X.shape[1]}; at most {max_features} features are supported. "
            "Renumber the features that occur."
        )
    return Table(path, X, _as_classes(pd.Series(y)), "the first field")


def _known(path: Path, frame: Any, names: Sequence[str]) -> list[str]:
    """Return the names as a list; raise a CommandError if one is not a column."""
    for name in names:
        if name not in frame.columns:
            similar = get_close_matches(name, frame.columns, n=1)
            hint = f"Did you mean {similar[0]!r}?" if similar else ""
            columns = ", ".join(frame.columns[:10]) + (", …" if frame.shape[1] > 10 else ".")
            raise CommandError(f"{path} has no column {name!r}; it has {columns} {hint}".rstrip())
    return list(names)


def _check_numeric(path: Path, frame: Any, advice: str) -> None:
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column):
            continue
        texts = column.dropna().astype(str)
        bad = texts[pd.to_numeric(texts, errors="coerce").isna()]
        text, row = (bad.iloc[0], bad.index[0]) if len(bad) else ("", 0)
        if len(bad) and pd.to_numeric(bad.str.replace(",", "."), errors="coerce").notna().all():
            advice = "If these are decimal commas, use --decimal ','."
        raise CommandError(
            f"{path}: column {name!r} is not numeric, for example {text!r} in row {row}. {advice}"
        )


def _as_classes(labels: Any) -> NDArray:
    """Return labels as an array of numbers or strings; whole floats become integers."""
    is_number = pd.api.types.is_numeric_dtype(labels)
    values = np.asarray(labels.tolist() if is_number else labels.astype(str).tolist())
    is_whole = values.dtype.kind == "f" and (values % 1 == 0).all()
    return values.astype(np.int64) if is_whole else values
