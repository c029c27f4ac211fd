from __future__ import annotations

import gzip
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.datasets import dump_svmlight_file

from boostmetric import Comparisons, Metric
from boostmetric.cli.reading import ReadError, Table, read_comparisons, read_table, write_table

CSV = "height,width,kind\n1.5,2,cat\n3,4.25,dog\n-5,6,cat\n"
VALUES = np.array([[1.5, 2], [3, 4.25], [-5, 6]])
KINDS = np.array(["cat", "dog", "cat"])


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding=encoding)
    return path


def refusal(path: Path, **options: Any) -> str:
    """What `read_table` says against a file: one line that names it."""
    with pytest.raises(ReadError) as caught:
        read_table(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def labels_of(table: Table) -> list[Any]:
    assert table.labels is not None
    values: list[Any] = table.labels.tolist()
    return values


# Tables of every kind.


def save(path: Path, frame: pd.DataFrame) -> Path:
    """A file of the kind that its name says, written by pandas alone."""
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".feather":
        frame.to_feather(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return path


FRAMES = ["t.csv", "t.tsv", "t.csv.gz", "t.tsv.gz", "t.parquet", "t.feather", "T.CSV"]


@pytest.mark.parametrize("name", FRAMES)
def test_tables_give_points_labels_and_names(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(VALUES, columns=["height", "width"]).assign(kind=KINDS)
    table = read_table(save(tmp_path / name, frame), label="kind")
    assert np.array_equal(table.X, VALUES)
    assert table.X.dtype == np.float64
    assert labels_of(table) == KINDS.tolist()
    assert table.feature_names == ("height", "width")


@pytest.mark.parametrize("name", FRAMES)
def test_numbers_come_back_to_the_last_digit(
    name: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    X = rng.standard_normal((200, 4)) * 10.0 ** rng.integers(-30, 30, (200, 4))
    table = read_table(save(tmp_path / name, pd.DataFrame(X, columns=list("abcd"))))
    assert np.array_equal(table.X, X)
    assert table.labels is None


def test_columns_and_drop_choose_and_order_features(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", CSV)
    assert read_table(path, columns=["width", "height"]).feature_names == ("width", "height")
    assert np.array_equal(read_table(path, columns=["width", "height"]).X, VALUES[:, ::-1])
    only = read_table(path, drop=["kind", "height"])
    assert only.feature_names == ("width",)
    assert np.array_equal(only.X, VALUES[:, 1:])
    both = read_table(path, label="kind", columns=["width", "height"], drop=["height"])
    assert both.feature_names == ("width",)


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_float32_stays_and_wins_over_booleans_but_not_over_integers(
    suffix: str, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"a": np.array([1, 2], np.float32), "b": [True, False], "c": [3, 4]})
    path = save(tmp_path / f"t{suffix}", frame)
    assert read_table(path, columns=["a"]).X.dtype == np.float32
    assert read_table(path, columns=["a", "b"]).X.dtype == np.float32
    assert read_table(path, columns=["a", "b"]).X.tolist() == [[1, 1], [2, 0]]
    assert read_table(path).X.dtype == np.float64


@pytest.mark.parametrize(
    ("dtype", "values"), [("Int64", [3, 4]), ("Float32", [0.5, 1]), ("boolean", [True, False])]
)
def test_columns_that_may_lack_values_are_numbers_where_they_do_not(
    dtype: str, values: list[Any], tmp_path: Path
) -> None:
    path = save(tmp_path / "t.parquet", pd.DataFrame({"a": pd.array(values, dtype=dtype)}))
    assert read_table(path).X.ravel().tolist() == [float(value) for value in values]
    gap = pd.DataFrame({"a": pd.array([*values, None], dtype=dtype)})
    text = refusal(save(tmp_path / "gap.parquet", gap))
    assert "the value in row 2 (the first is row 0), column 'a', is missing." in text


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a", "b"],
        [3, 1, 3],
        [True, False, True],
        pd.Categorical(["b", "a", "b"]),
        pd.array([3, 1, 3], dtype="Int64"),
        pd.to_datetime(["2020-01-02", "2020-01-01", "2020-01-02"]),
    ],
)
def test_labels_of_any_kind(labels: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": labels})
    for name in ("t.parquet", "t.csv"):
        read = read_table(save(tmp_path / name, frame), label="y").labels
        assert read is not None
        assert read.shape == (3,)
        assert read[0] == read[2] != read[1]
        assert np.unique(read, return_inverse=True)[1].tolist() == [1, 0, 1]


def test_whole_numbers_are_integer_labels(tmp_path: Path) -> None:
    path = save(tmp_path / "t.csv", pd.DataFrame({"x": [1, 2], "y": [1.0, 2.0], "z": [0.5, 1]}))
    labels = read_table(path, label="y").labels
    assert labels is not None
    assert labels.dtype == np.int64
    assert labels_of(read_table(path, label="z")) == [0.5, 1]


def test_a_byte_order_mark_blank_lines_and_spaces_do_no_harm(tmp_path: Path) -> None:
    text = "\n  \nheight, width , kind\n1.5, 2, cat\n\n3, 4.25, dog\n \n-5, 6, cat\n\n"
    table = read_table(write(tmp_path / "t.csv", text, "utf-8-sig"), label="kind")
    assert table.feature_names == ("height", "width")
    assert np.array_equal(table.X, VALUES)
    assert labels_of(table) == KINDS.tolist()


def test_columns_that_pandas_numbered_are_a_header(tmp_path: Path) -> None:
    path = save(tmp_path / "t.csv", pd.DataFrame(VALUES))
    assert read_table(path).feature_names == ("0", "1")


# What is refused of tables.


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("", {}, "is empty."),
        ("\n\n", {}, "is empty."),
        ("a,b\n", {}, "has a header but no rows."),
        (
            "age,color,size\n1,red,L\n2,blue,M\n",
            {},
            "not a number in columns 'color' ('red' in line 2), 'size' ('L' in line 2). Leave them "
            "out (--drop), choose others (--columns), or encode them as numbers.",
        ),
        ("a,b\n1,2\n3,x\n", {}, "not a number in column 'b' ('x' in line 3)."),
        ("a,b\n1,True\n\n3,\n", {}, "not a number in column 'b' (nothing in line 4)."),
        (
            "a,b\n1,2\n\n3,\n",
            {},
            "the value in line 4, column 'b', is missing. Fill them in, or leave out rows or "
            "columns (--drop).",
        ),
        (
            "a,b\n1,NA\n,3\n",
            {},
            "line 2, column 'b', is missing; 2 values are missing or infinite.",
        ),
        ("a,b\n1,2\n-inf,3\n", {}, "line 3, column 'a', is infinite."),
        ("a,b\n1,2\n1e999,3\n", {}, "in line 3"),
        ('a,b\n1,"x\ny"\n2,z\n,w\n', {"label": "b"}, "line 5, column 'a', is missing."),
        (CSV + "7,8,\n", {"label": "kind"}, "the label in line 5, column 'kind', is missing. Fill"),
        (
            CSV,
            {"label": "Kind"},
            "has no column 'Kind': there are 'height', 'width', 'kind'. Is 'kind' meant?",
        ),
        (CSV, {"label": "zzz"}, "has no column 'zzz': there are 'height', 'width', 'kind'."),
        (CSV, {"columns": ["hight"]}, "has no column 'hight'"),
        (CSV, {"drop": ["hight"]}, "Is 'height' meant?"),
        (CSV, {"label": "kind", "columns": ["kind"]}, "'kind' is the label: it cannot be a feat"),
        (CSV, {"drop": ["height", "width", "kind"]}, "no column is left to be a feature."),
        ("a,b,a\n1,2,3\n", {}, "several columns are called 'a'. Every column needs a name of its"),
        ("1.5,2,3\n4,5,6\n", {}, "the first line, '1.5,2,3', looks like data. A header with the"),
        ("5.1,3.5,setosa\n4,5,virginica\n", {}, "'5.1,3.5,setosa', looks like data."),
        ("3,1,2\n4,5,6\n", {}, "is needed above it, such as 'x0,x1,x2'."),
        ("a;b\n1;2\n", {}, "Are columns separated by ';'? ',' is needed, or a name that ends in "),
        ("a\tb\n1\t2\n", {}, "Are columns separated by '\\t'? ',' is needed, or a name that ends"),
        ("a,b\n1,2\n3,4,5\n", {}, "line 3 has 3 fields, but there are 2 columns."),
        ("a,b\n1,2,3\n4,5,6\n", {}, "line 2 has 3 fields, but there are 2 columns."),
        ("a,b,c\n1,2,3\n4,5\n", {}, "line 3 has 2 fields, but there are 3 columns."),
        ("a,b,c\n1,2,x\n4,5\n", {"label": "c"}, "line 3 has 2 fields, but there are 3 columns."),
        ('a,b\n1,"2\n3,4\n', {}, "is damaged, or of another kind than its name says: "),
        (
            ",a\n0,1\n1,2\n",
            {},
            "column 1 has no name in the header. Name it, or leave it out (--dr",
        ),
        ("a,id\n1,9007199254740993\n", {}, "column 'id' holds 9007199254740993, and numbers above"),
        ("a,id\n1,-9007199254740993\n", {}, "column 'id' holds -9007199254740993, and numbers"),
    ],
)
def test_what_is_wrong_with_a_csv_is_one_line(
    text: str, options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    assert expected in refusal(write(tmp_path / "t.csv", text), **options)


@pytest.mark.parametrize("number", ["18446744073709551616", "123456789012345678901234567890"])
def test_integers_beyond_64_bits(number: str, tmp_path: Path) -> None:
    assert "'id'" in refusal(write(tmp_path / "t.csv", f"id,a\n{number},1\n-3,2\n"))


def test_a_column_without_a_name_can_be_dropped(tmp_path: Path) -> None:
    frame = pd.DataFrame(VALUES, columns=["height", "width"])
    frame.to_csv(tmp_path / "t.csv")  # with the row number
    table = read_table(tmp_path / "t.csv", drop=[""])
    assert table.feature_names == ("height", "width")


def test_at_most_ten_columns_are_listed(tmp_path: Path) -> None:
    names = [f"x{number}" for number in range(14)]
    path = write(tmp_path / "t.csv", ",".join(names) + "\n" + ",".join(["a"] * 14) + "\n")
    assert refusal(path).count("in line 2") == 10
    assert "'x6' ('a' in line 2), (4 more), 'x11' ('a' in line 2)" in refusal(path)
    assert "'x6', (4 more), 'x11', 'x12', 'x13'." in refusal(path, label="zzz")


def test_what_is_no_csv(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,b\n1,\xff\xfe\n")
    assert "is no UTF-8 text" in refusal(tmp_path / "t.csv")
    write(tmp_path / "t.csv.gz", CSV)
    assert "cannot read" in refusal(tmp_path / "t.csv.gz")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(CSV.encode() * 100)[:60])
    assert "is damaged" in refusal(tmp_path / "cut.csv.gz")
    for name in ("t.parquet", "t.feather"):
        write(tmp_path / name, CSV)
        assert "is damaged, or of another kind than its name says" in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["t.xlsx", "t.pkl", "t", "t.csv.zip"])
def test_other_names_are_refused_before_the_file_is_opened(name: str, tmp_path: Path) -> None:
    text = refusal(tmp_path / name)
    assert "the name must end in one of .csv, .tsv, .csv.gz" in text
    assert ".libsvm" in text


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("no.csv", "no.parquet", "no.npy", "no.npz", "no.svm"):
        assert "No such file or directory" in refusal(tmp_path / name)
        assert refusal(tmp_path / name).startswith("cannot read ")
    (tmp_path / "folder.csv").mkdir()
    assert "Is a directory" in refusal(tmp_path / "folder.csv")


@pytest.mark.parametrize(("name", "package"), [("t.csv", "pandas"), ("t.parquet", "pyarrow")])
def test_a_missing_package_is_named_with_what_to_install(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / name, pd.DataFrame({"a": [1.0]}))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ReadError, match=rf"need {package}.*pip install 'boostmetric\[cli\]'"):
        read_table(path)
    with pytest.raises(ReadError, match=package):
        write_table(tmp_path / f"new{path.suffix}", np.eye(1), ["a"])
    assert not (tmp_path / f"new{path.suffix}").exists()


# Arrays.


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8, bool])
def test_arrays(dtype: Any, tmp_path: Path) -> None:
    values = np.array([[1, 0, 7], [0, 1, 8]]).astype(dtype)
    np.save(tmp_path / "t.npy", values)
    table = read_table(tmp_path / "t.npy")
    assert np.array_equal(table.X, values)
    assert table.X.dtype == (np.float32 if dtype == np.float32 else np.float64)
    assert (table.labels, table.feature_names) == (None, None)
    table = read_table(tmp_path / "t.npy", label="2", drop=["0"])
    assert np.array_equal(table.X, values[:, 1:2])
    assert labels_of(table) == values[:, 2].tolist()
    assert np.array_equal(read_table(tmp_path / "t.npy", columns=["2", "0"]).X, values[:, [2, 0]])


def test_arrays_of_an_npz(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, X=VALUES, y=KINDS, other=np.arange(3) > 1)
    table = read_table(path)
    assert np.array_equal(table.X, VALUES)
    assert labels_of(table) == KINDS.tolist()
    assert labels_of(read_table(path, label="other")) == [False, False, True]
    np.savez(path, points=VALUES)
    assert np.array_equal(read_table(path).X, VALUES)
    assert read_table(path, label="1").X.shape == (3, 1)
    np.savez(path, points=VALUES, y=KINDS)
    assert labels_of(read_table(path)) == KINDS.tolist()


@pytest.mark.parametrize(
    ("arrays", "options", "expected"),
    [
        ({"a": VALUES, "b": VALUES}, {}, "has the arrays a, b: one is to be named X, or be the o"),
        ({"X": VALUES, "y": KINDS}, {"label": "z"}, "has no array 'z': it has X, y."),
        ({"X": VALUES, "y": KINDS[:2]}, {}, "there are 3 points, but 2 labels."),
        ({"X": VALUES, "y": VALUES}, {}, "array 'y' has shape (3, 2) and type float64; labels are"),
        (
            {"X": VALUES, "y": np.array([1, np.nan, 2])},
            {},
            "the label in row 1 (the first is row 0",
        ),
        (
            {"X": VALUES[0]},
            {},
            "array 'X' has shape (2,); one row a point and one column a feature",
        ),
        ({"X": VALUES[:0]}, {}, "array 'X' has shape (0, 2)"),
        ({"X": KINDS[:, None]}, {}, "holds <U3 values: numbers are needed."),
        ({"X": VALUES * 1j}, {}, "holds complex128 values: numbers are needed."),
        ({"X": np.array([[2**53 + 1]])}, {}, "column '0' holds 9007199254740993"),
        (
            {"X": np.array([[1, 2], [3, np.inf]])},
            {},
            "in row 1 (the first is row 0), column '1', is",
        ),
        ({"X": VALUES}, {"label": "7"}, "has no column '7': there are '0', '1'."),
    ],
)
def test_what_is_wrong_with_arrays_is_one_line(
    arrays: dict[str, Any], options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    assert expected in refusal(tmp_path / "t.npz", **options)


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    np.save(tmp_path / "t.npy", np.array([[Trap(trap)]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "t.npz", X=np.array([[Trap(trap)]], dtype=object))
    (tmp_path / "p.npy").write_bytes(pickle.dumps(Trap(trap)))
    for name in ("t.npy", "t.npz", "p.npy"):
        assert "damaged, or of another kind" in refusal(tmp_path / name)
    assert not trap.exists()


# svmlight.


@pytest.mark.parametrize("suffix", [".svm", ".svmlight", ".libsvm"])
def test_svmlight_is_sparse_and_has_its_labels(suffix: str, tmp_path: Path) -> None:
    X, y = np.array([[0, 1.5, 0], [2, 0, 0], [0, 0, 3]]), np.array([1, -1, 1])
    path = tmp_path / f"t{suffix}"
    dump_svmlight_file(X, y, str(path), zero_based=False)
    table = read_table(path)
    assert issparse(table.X)
    assert np.array_equal(table.dense().X, X)
    assert labels_of(table) == y.tolist()
    assert np.array_equal(read_table(path, columns=["2", "0"]).dense().X, X[:, [2, 0]])
    assert "label first on every line: leave --label out" in refusal(path, label="0")


def test_what_is_wrong_with_svmlight_is_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.svm", "1 1:2 2:3\n-1 1:nan\n")
    assert "the value in row 1 (the first is row 0), column '0', is missing" in refusal(path)
    assert "is damaged" in refusal(write(path, "a,b\n1,2\n"))
    assert "is empty." in refusal(write(path, ""))


def test_an_svmlight_index_that_is_too_large_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.svm"
    path.write_text("0 1:1 999999999:2\n1 2:1\n0 3:1\n1 1:3\n")
    with pytest.raises(ReadError, match=r"has 999999999 features; at most 16777216 are supported"):
        read_table(path)


def test_a_sparse_table_that_is_too_large_stays_sparse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boostmetric.cli.reading.DENSE_LIMIT", 5)
    table = read_table(write(tmp_path / "t.svm", "1 1:2 3:3\n-1 1:4\n"))
    with pytest.raises(ReadError, match="2 points of 3 features take more than 2 GB once their"):
        table.dense()


# The features of a metric.


def metric_of(n_features: int, names: tuple[str, ...] | None = None) -> Metric:
    return Metric(np.eye(n_features), np.ones(n_features), names)


def test_columns_are_put_in_the_order_of_the_metric(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", CSV)
    table = read_table(path, like=metric_of(2, ("width", "height")), label="kind")
    assert np.array_equal(table.X, VALUES[:, ::-1])
    assert table.feature_names == ("width", "height")
    assert labels_of(table) == KINDS.tolist()
    # What the metric does not go by may be there, and be text.
    assert np.array_equal(read_table(path, like=metric_of(1, ("width",))).X, VALUES[:, 1:])
    np.save(tmp_path / "t.npy", VALUES)
    for names in (None, ("a", "b")):
        assert np.array_equal(read_table(tmp_path / "t.npy", like=metric_of(2, names)).X, VALUES)
    assert np.array_equal(read_table(path, like=metric_of(2), label="kind").X, VALUES)


def test_columns_that_the_metric_lacks_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", CSV)
    text = refusal(path, like=metric_of(3, ("a", "height", "b")))
    assert "has no columns 'a', 'b': there are 'height', 'width', 'kind'." in text
    text = refusal(path, like=metric_of(3), label="kind")
    assert "has 2 features, but the metric goes by 3: give those that it was learned from" in text


def test_a_sparse_table_may_lack_the_last_features(tmp_path: Path) -> None:
    path = write(tmp_path / "t.svm", "1 1:2\n-1 2:4\n")
    table = read_table(path, like=metric_of(4))
    assert table.dense().X.tolist() == [[2, 0, 0, 0], [0, 4, 0, 0]]
    assert "has 2 features, but the metric goes by 1" in refusal(path, like=metric_of(1))


# Comparisons.


def same(one: Comparisons, other: Comparisons) -> bool:
    def parts(c: Comparisons) -> list[NDArray | None]:
        return [c.pairs[c.near], c.pairs[c.far], c.gaps, c.weights]

    return all(
        (a is None and b is None) or np.array_equal(a, b)  # type: ignore[arg-type]
        for a, b in zip(parts(one), parts(other), strict=True)
    )


TRIPLETS = [[0, 1, 2], [3, 2, 0], [1, 0, 3]]
QUADRUPLETS = [[0, 1, 2, 3], [1, 2, 0, 3]]


@pytest.mark.parametrize("name", [*FRAMES, "t.npy", "t.npz"])
@pytest.mark.parametrize("rows", [TRIPLETS, QUADRUPLETS])
def test_comparisons_go_by_the_number_of_columns(
    name: str, rows: list[list[int]], tmp_path: Path
) -> None:
    path = tmp_path / name
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, rows=rows)
    else:
        save(path, pd.DataFrame(rows, columns=list("abcd")[: len(rows[0])]))
    make = Comparisons.from_triplets if len(rows[0]) == 3 else Comparisons.from_quadruplets
    assert same(read_comparisons(path), make(rows))
    assert read_comparisons(path, n_points=4).n_points == 4


def test_comparisons_without_a_header(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "0,1,2\n\n3,2,0\n1,0,3\n")
    assert same(read_comparisons(path), Comparisons.from_triplets(TRIPLETS))
    path = write(tmp_path / "t.tsv", "0\t1\t1\n0\t2\t-1\n")
    expected = Comparisons.from_pairs([[0, 1], [0, 2]], [1, -1])
    assert same(read_comparisons(path, kind="pairs"), expected)


def test_pairs_by_a_header_weights_gaps_and_thresholds_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "i,j,Similar,threshold,weight\n0,1,1,2,1\n0,2,-1,4,3\n")
    expected = Comparisons.from_pairs([[0, 1], [0, 2]], [1, -1], thresholds=[2, 4], weights=[1, 3])
    assert same(read_comparisons(path), expected)
    path = write(tmp_path / "t.csv", "weight,a,b,gap,c\n1,0,1,0.5,2\n2,3,2,0,0\n0.5,1,0,1,3\n")
    expected = Comparisons.from_triplets(TRIPLETS, gaps=[0.5, 0, 1], weights=[1, 2, 0.5])
    assert same(read_comparisons(path), expected)


def test_comparisons_of_an_npz_by_the_name_of_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, triplets=TRIPLETS, X=VALUES, weight=[1.0, 2.0, 3.0])
    expected = Comparisons.from_triplets(TRIPLETS, weights=[1, 2, 3])
    assert same(read_comparisons(path), expected)
    np.savez(path, pairs=[[0, 1, 1], [0, 2, -1]])
    assert same(read_comparisons(path), Comparisons.from_pairs([[0, 1], [0, 2]], [1, -1]))


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a,b,c\n0,1,2\n0,1.5,2\n", {}, "line 3 names a row by a fraction."),
        ("a,b,c\n0,1,2\n\n0,-1,2\n", {}, "line 4 has a negative row number; are these pairs i, j,"),
        ("0,1,1\n0,2,-1\n", {}, "line 2 has a negative row number; are these pairs i, j, -1? (--k"),
        ("0,1,2\n0,1,7\n8,1,2\n", {"n_points": 7}, "line 2 names a row beyond the last, 6 (the fi"),
        ("0,1,2\n0,1,7\n8,1,2\n", {"n_points": 7}, " (2 rows are like this)."),
        ("0,1,0\n", {}, "line 1 sets a point against itself: nothing is closer."),
        ("0,1,2\n0,1,1\n", {}, "line 2 compares a pair with itself."),
        ("0,1,2,2\n", {}, "line 1 sets a point against itself: nothing is closer."),
        ("0,1,2,3\n0,1,1,0\n", {}, "line 2 compares a pair with itself."),
        ("0,1,1\n0,2,2\n", {"kind": "pairs"}, "line 2 has neither 1 (similar) nor -1 in column 3."),
        ("0,0,1\n", {"kind": "pairs"}, "line 1 pairs a point with itself."),
        ("0,1\n", {}, "has 2 columns: three (a, b, c: a is closer to b than to c) or four (a, b,"),
        ("0,1,2,3,4\n", {}, "has 5 columns: three"),
        ("0,1,2\n", {"kind": "quadruplets"}, "quadruplets take 4 columns; there are 3."),
        ("a,b,c,gap\n0,1,2,x\n", {}, "not a number in column 'gap' ('x' in line 2)."),
        ("a,b,c\n0,1,x\n", {}, "not a number in column 'c' ('x' in line 2)."),
        ("a,b,c\n0,1,\n", {}, "the value in line 2, column 'c', is missing."),
        ("0,1,2\n3,4\n", {}, "line 2 has 2 fields, but there are 3 columns."),
        ("a,b,c,weight\n0,1,2,-1\n", {}, "line 2 has a negative weight."),
        ("a,b,c,threshold\n0,1,2,1\n", {}, "triplets have no 'threshold'; what they may have is '"),
        ("i,j,y,gap\n0,1,1,1\n", {}, "pairs have no 'gap'; what they may have is 'threshold'."),
        ("i,j,y,threshold\n0,1,1,0\n", {}, "line 2 has a threshold that is not positive."),
        ("", {}, "is empty."),
        ("a,b,c\n", {}, "has a header but no rows."),
    ],
)
def test_what_is_wrong_with_comparisons_names_the_line(
    text: str, options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(ReadError) as caught:
        read_comparisons(path, **options)
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_refusals_of_comparisons(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="kind='nosuch' will not do: one of triplets, quadruplets"):
        read_comparisons(tmp_path / "t.csv", kind="nosuch")
    with pytest.raises(ReadError, match=r"the name must end in one of \.csv"):
        read_comparisons(tmp_path / "t.svm")
    np.savez(tmp_path / "t.npz", triplets=TRIPLETS, weight=[1.0])
    with pytest.raises(ReadError, match=r"'weight' has shape \(1,\), not \(3,\)"):
        read_comparisons(tmp_path / "t.npz")
    np.savez(tmp_path / "t.npz", triplets=TRIPLETS, pairs=[[0, 1, 1]])
    assert len(read_comparisons(tmp_path / "t.npz", kind="pairs")) == 1
    np.savez(tmp_path / "t.npz", one=TRIPLETS, two=TRIPLETS)
    with pytest.raises(ReadError, match="to be named triplets or quadruplets or pairs, or be the"):
        read_comparisons(tmp_path / "t.npz")


# Writing.


@pytest.mark.parametrize("name", [*FRAMES, "t.npz"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_written_comes_back(
    name: str, dtype: type[np.floating], tmp_path: Path, rng: np.random.Generator
) -> None:
    X = rng.standard_normal((3, 2)).astype(dtype)
    write_table(tmp_path / name, X, ["a", "b"], KINDS, label="kind")
    is_array = name.endswith(".npz")
    table = read_table(tmp_path / name, label=None if is_array else "kind")
    assert np.array_equal(table.X.astype(dtype), X)
    assert labels_of(table) == KINDS.tolist()
    assert table.feature_names == (None if is_array else ("a", "b"))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_pandas_reads_what_is_written(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", VALUES, ["a", "b"], KINDS)
    frame = pd.read_csv(tmp_path / "t.csv")
    assert frame.columns.tolist() == ["a", "b", "label"]
    assert json.loads(frame.to_json(orient="values")) == [
        [*row, kind] for row, kind in zip(VALUES.tolist(), KINDS.tolist(), strict=True)
    ]
    write_table(tmp_path / "t.npy", VALUES, ["a", "b"])
    assert np.array_equal(np.load(tmp_path / "t.npy"), VALUES)


def test_what_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="can hold numbers only: for labels take"):
        write_table(tmp_path / "t.npy", VALUES, ["a", "b"], KINDS)
    with pytest.raises(ReadError, match=r"the name must end in one of \.csv"):
        write_table(tmp_path / "t.svm", VALUES, ["a", "b"])
    with pytest.raises(ValueError, match="Shape of passed values"):
        write_table(tmp_path / "t.csv", VALUES, ["a"])
    assert list(tmp_path.iterdir()) == []
