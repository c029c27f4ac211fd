"""Points, labels and comparisons from files, and points to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from boostmetric._files import whole
from boostmetric.cli.grids import (
    ARRAYS,
    TABLES,
    TEXT,
    Grid,
    ReadError,
    listed,
    load,
    pandas,
    suffix_of,
)
from boostmetric.metric import Metric
from boostmetric.problem import Comparisons

__all__ = [
    "KINDS",
    "ReadError",
    "Table",
    "check_writable",
    "may_hold_labels",
    "read_comparisons",
    "read_table",
    "write_table",
]

KINDS = {"triplets": 3, "quadruplets": 4, "pairs": 3}
"""The kinds of comparisons, with the number of columns that each takes."""

SIGNS = ("similar", "sign", "y", "label")
"""Names of a third column, of +1 and -1, by which three columns are pairs."""

BESIDE = ("weight", "gap", "threshold")
"""What a comparison may have beside its points."""

DENSE_LIMIT = 2**28
"""Numbers that a table may have at most once its zeros are stored: 2 GB."""


@dataclass(frozen=True, eq=False)
class Table:
    """n points, one a row, with their labels and the names of their features where they have them.

    Parameters
    ----------
    X : array of shape (n, D), float32 or float64; sparse if it came from an svmlight file
    labels : array of shape (n,), or None
    feature_names : D names, or None

    Examples
    --------
    >>> Table(np.eye(2), feature_names=("height", "width")).dense().feature_names
    ('height', 'width')
    """

    X: Any
    labels: NDArray | None = None
    feature_names: tuple[str, ...] | None = None

    def dense(self) -> Table:
        """The same with an X that is not sparse; a ReadError where that would take over 2 GB."""
        if not issparse(self.X):
            return self
        n, D = self.X.shape
        if n * D > DENSE_LIMIT:
            raise ReadError(
                f"{n} points of {D} features take more than 2 GB once their zeros are stored: "
                "choose features (--columns), or reduce them first."
            )
        return replace(self, X=self.X.toarray())


def read_table(
    path: str | Path,
    *,
    label: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    like: Metric | None = None,
) -> Table:
    """Points, and their labels, from a file whose name tells its kind.

    CSV, TSV (also .gz), Parquet and Feather files have a header; .npy holds one array, .npz arrays
    X and y, or one; svmlight files (.svm, .svmlight, .libsvm) begin each line with the label. A
    file is only read: nothing in it is run or unpickled.

    Parameters
    ----------
    path : the file
    label : the column of labels; of .npz the name of an array. Not for svmlight. Without it there
        are labels only where a file holds them apart, in y or first on each line
    columns : the features, in this order; None for all but the label
    drop : columns that are not features. The columns of an array are named by number, from 0
    like : the metric that the features are for. Where it and the file have names, these are the
        columns, in its order, whatever else there is; otherwise the number must be the same. A
        sparse table may lack the last ones, which are 0 then

    Raises
    ------
    ReadError
        Where something is missing, infinite, no number, or not where it is looked for.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "points.npy")
    >>> np.save(path, [[1.0, 2.0, 0.0], [3.0, 4.0, 1.0]])
    >>> table = read_table(path, label="2")
    >>> table.X.tolist(), table.labels.tolist()
    ([[1.0, 2.0], [3.0, 4.0]], [0, 1])
    """
    grid, beside = load(Path(path), label=label)
    labels = beside.get("y")
    own = None if label is None or labels is not None else _positions(grid, [label])[0]
    by_name = like is not None and like.feature_names is not None and grid.named
    chosen = _chosen(grid, own, like.feature_names if like and by_name else columns, drop)
    X = grid.numbers(chosen)
    if own is not None:
        labels = grid.labels(own)
    if labels is not None and len(labels) != X.shape[0]:
        raise ReadError(f"{path}: there are {X.shape[0]} points, but {len(labels)} labels.")
    if like is not None and X.shape[1] != like.n_features:
        X = _widened(grid, X, like.n_features)
    names = tuple(grid.names[position] for position in chosen) if grid.named else None
    return Table(X, labels, names)


def may_hold_labels(path: str | Path) -> bool:
    """Whether a file of this kind says by itself what its labels are.

    >>> may_hold_labels("points.svm"), may_hold_labels("points.csv")
    (True, False)
    """
    return suffix_of(Path(path)) not in (*TEXT, *TABLES, ".npy")


def read_comparisons(
    path: str | Path, *, kind: str | None = None, n_points: int | None = None
) -> Comparisons:
    """Comparisons of the rows of a table, which are counted from 0.

    A row a, b, c is "a is closer to b than to c", a, b, c, d is "a and b are closer than c and d",
    and i, j, ±1 is "i and j are similar" or "are not". Columns named `weight`, and `gap` (for pairs
    `threshold`), are what they say; CSV and TSV files may do without a header. In .npz the rows are
    an array with the name of the kind, or the only one, and these are arrays beside it.

    Parameters
    ----------
    path : a file of the kinds that `read_table` reads, but for svmlight
    kind : "triplets", "quadruplets" or "pairs". None goes by the number of columns, and takes three
        for triplets unless the third is named similar, sign, y or label
    n_points : the number of rows of the table; rows beyond it are refused

    Raises
    ------
    ReadError
        Where a row names no comparison; the text says on which line.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "triplets.npy")
    >>> np.save(path, [[0, 1, 2], [3, 2, 1]])
    >>> read_comparisons(path)
    <2 comparisons of 4 pairs>
    """
    if kind is not None and kind not in KINDS:
        raise ReadError(f"kind={kind!r} will not do: one of {', '.join(KINDS)} is needed.")
    suffix_of(Path(path), (*TEXT, *TABLES, *ARRAYS))
    arrays = tuple(KINDS) if kind is None else (kind,)
    grid, extra = load(Path(path), arrays=arrays, extras=BESIDE, may_lack_header=True)
    for position, name in enumerate(grid.names):
        if name in BESIDE:
            extra[name] = grid.numbers([position])[:, 0]
    names = [name for name in grid.names if name not in extra]
    values = grid.numbers([grid.names.index(name) for name in names])
    kind = kind or _kind_of(grid, names)
    if len(names) != KINDS[kind]:
        raise ReadError(f"{path}: {kind} take {KINDS[kind]} columns; there are {len(names)}.")
    _check_ends(grid, kind, values, n_points)
    _check_extra(grid, kind, extra, len(values))
    if kind == "pairs":
        return Comparisons.from_pairs(
            values[:, :2],
            values[:, 2],
            thresholds=extra.get("threshold", 1.0),
            weights=extra.get("weight"),
            n_points=n_points,
        )
    make: Callable[..., Comparisons] = getattr(Comparisons, f"from_{kind}")
    return make(values, gaps=extra.get("gap"), weights=extra.get("weight"), n_points=n_points)


def write_table(
    path: str | Path,
    X: NDArray,
    names: Sequence[str],
    labels: NDArray | None = None,
    *,
    label: str = "label",
) -> None:
    """Write points to a file whose name tells its kind, whole or not at all.

    Parameters
    ----------
    path : .csv, .tsv (also .gz), .parquet, .feather, .npz (arrays X and y), or .npy (no labels)
    X : array of shape (n, D)
    names : of the D columns; arrays do not keep them
    labels : array of shape (n,), the last column, or None
    label : the name of that column, which must not be among `names` unless the file is an array

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "points.npz")
    >>> write_table(path, np.eye(2), ["a", "b"], np.array([0, 1]))
    >>> read_table(path).labels
    array([0, 1])
    """
    path = Path(path)
    check_writable(path, has_labels=labels is not None)
    suffix = suffix_of(path)
    if labels is not None and suffix not in ARRAYS and label in names:
        raise ReadError(
            f"{path}: the column of labels and another column would both be called {label!r}. "
            "Rename the label in the data."
        )
    with whole(path) as temporary, temporary.open("wb") as file:
        if suffix == ".npy":
            np.save(file, X)
        elif suffix == ".npz":
            arrays: dict[str, Any] = {"X": X} if labels is None else {"X": X, "y": labels}
            np.savez(file, **arrays)
        else:
            frame = pandas().DataFrame(X, columns=list(names))
            if labels is not None:
                frame[label] = labels
            _write_frame(frame, file, suffix)


def check_writable(path: Path, *, has_labels: bool = False) -> None:
    """Raise a ReadError unless `write_table` can write such a file.

    Examples
    --------
    >>> check_writable(Path("points.npy"), has_labels=True)
    Traceback (most recent call last):
    boostmetric.cli.grids.ReadError: points.npy can hold numbers only: for labels take .csv or .npz.
    """
    suffix = suffix_of(path, (*TEXT, *TABLES, *ARRAYS))
    if suffix == ".npy" and has_labels:
        raise ReadError(f"{path} can hold numbers only: for labels take .csv or .npz.")
    if suffix not in ARRAYS:
        pandas(suffix)


def _write_frame(frame: Any, file: Any, suffix: str) -> None:
    if suffix == ".parquet":
        frame.to_parquet(file, index=False)
    elif suffix == ".feather":
        frame.to_feather(file)
    else:
        compression = "gzip" if suffix.endswith(".gz") else None
        frame.to_csv(file, sep=TEXT[suffix], index=False, compression=compression)


def _chosen(
    grid: Grid, own: int | None, columns: Sequence[str] | None, drop: Sequence[str]
) -> list[int]:
    """The positions of the features; `own` is that of the label."""
    if columns is None:
        chosen = [position for position in range(len(grid.names)) if position != own]
    else:
        chosen = list(dict.fromkeys(_positions(grid, columns)))
    if own in chosen:
        raise ReadError(
            f"{grid.path}: column {grid.names[own]!r} is the label: it cannot be a feature too."
        )
    left_out = _positions(grid, drop)
    chosen = [position for position in chosen if position not in left_out]
    if not chosen:
        raise ReadError(f"{grid.path}: no column is left to be a feature.")
    return chosen


def _positions(grid: Grid, names: Sequence[str]) -> list[int]:
    places = {name: position for position, name in enumerate(grid.names)}
    if unknown := [name for name in names if name not in places]:
        near = get_close_matches(unknown[0], grid.names, n=1) if grid.named else []
        meant = f" Is {near[0]!r} meant?" if near else ""
        raise ReadError(
            f"{grid.path} has no column{'s' * (len(unknown) > 1)} {_quoted(unknown)}: there "
            f"{'are' if len(places) > 1 else 'is'} {_quoted(grid.names)}.{meant}"
        )
    return [places[name] for name in names]


def _quoted(names: Sequence[str]) -> str:
    return listed([repr(name) for name in names])


def _widened(grid: Grid, X: Any, n_features: int) -> Any:
    """A sparse X with features of zeros at its end; a ReadError if that is not what it lacks."""
    if not issparse(X) or X.shape[1] > n_features:
        raise ReadError(
            f"{grid.path} has {X.shape[1]} features, but the metric goes by {n_features}: give "
            "those that it was learned from (--columns, --drop, --label)."
        )
    X = X.copy()
    X.resize((X.shape[0], n_features))
    return X


def _kind_of(grid: Grid, names: Sequence[str]) -> str:
    """The kind of comparisons that columns of these names are."""
    if grid.array in KINDS:
        return grid.array
    if len(names) == 4:
        return "quadruplets"
    if len(names) == 3:
        return "pairs" if names[2].lower() in SIGNS else "triplets"
    raise ReadError(
        f"{grid.path} has {len(names)} columns: three (a, b, c: a is closer to b than to c) or "
        "four (a, b, c, d: a and b are closer than c and d) are needed."
    )


def _check_ends(grid: Grid, kind: str, values: NDArray, n_points: int | None) -> None:
    """Refuse rows that name points that are not there, or pairs that cannot be compared."""
    ends = values[:, :2] if kind == "pairs" else values
    hint = "; are these pairs i, j, -1? (--kind pairs)" if kind == "triplets" else ""
    _refuse(grid, (ends < 0).any(axis=1), f"has a negative row number{hint}")
    _refuse(grid, (ends != np.floor(ends)).any(axis=1), "names a row by a fraction")
    if n_points is not None:
        beyond = f"names a row beyond the last, {n_points - 1} (the first is 0)"
        _refuse(grid, (ends >= n_points).any(axis=1), beyond)
    if kind == "pairs":
        _refuse(grid, np.abs(values[:, 2]) != 1, "has neither 1 (similar) nor -1 in column 3")
        _refuse(grid, ends[:, 0] == ends[:, 1], "pairs a point with itself")
        return
    far = ends[:, ::2] if kind == "triplets" else ends[:, 2:]
    _refuse(grid, far[:, 0] == far[:, 1], "sets a point against itself: nothing is closer")
    same = (np.sort(ends[:, :2], axis=1) == np.sort(far, axis=1)).all(axis=1)
    _refuse(grid, same, "compares a pair with itself")


def _check_extra(grid: Grid, kind: str, extra: dict[str, NDArray], n_rows: int) -> None:
    """Refuse weights and limits that are out of range, or not of this kind."""
    limit, wrong = ("threshold", "gap") if kind == "pairs" else ("gap", "threshold")
    if wrong in extra:
        raise ReadError(f"{grid.path}: {kind} have no {wrong!r}; what they may have is {limit!r}.")
    for name, values in extra.items():
        if values.shape != (n_rows,):
            raise ReadError(f"{grid.path}: {name!r} has shape {values.shape}, not ({n_rows},).")
        if name == "weight":
            _refuse(grid, ~(values >= 0), "has a negative weight")
        if name == "threshold":
            _refuse(grid, ~(values > 0), "has a threshold that is not positive")


def _refuse(grid: Grid, bad: Any, what: str) -> None:
    """Raise a ReadError about the first of the bad rows, if there is one."""
    if bad.any():
        number = int(bad.sum())
        others = f" ({number} rows are like this)" if number > 1 else ""
        raise ReadError(f"{grid.path}: {grid.place(int(np.argmax(bad)))} {what}{others}.")
