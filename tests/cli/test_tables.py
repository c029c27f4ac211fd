from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_tools import DAMAGED_ARRAYS
from scipy.sparse import issparse
from sklearn.datasets import dump_svmlight_file

from boostmetric import Comparisons, Metric
from boostmetric.cli.console import CommandError
from boostmetric.cli.tables import check_format, read_comparisons, read_table, write_points

CSV = "height,width,kind\n1.5,2,cat\n3,4.25,dog\n-5,6,cat\n"
VALUES = np.array([[1.5, 2], [3, 4.25], [-5, 6]])
KINDS = ["cat", "dog", "cat"]


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding=encoding)
    return path


def save(path: Path, frame: pd.DataFrame) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".feather":
        frame.to_feather(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return path


@pytest.mark.parametrize(
    "name", ["t.csv", "t.tsv", "t.csv.gz", "t.tsv.gz", "t.parquet", "t.feather", "T.CSV"]
)
def test_tables_of_all_formats(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(VALUES, columns=["height", "width"]).assign(kind=KINDS)
    table = read_table(save(tmp_path / name, frame), "kind")
    np.testing.assert_array_equal(table.X, VALUES)
    assert table.feature_names == ("height", "width")
    assert table.classes.tolist() == KINDS


def test_floats_are_read_exactly(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(500, 2))
    path = save(tmp_path / "t.csv", pd.DataFrame(X, columns=["a", "b"]))
    assert (read_table(path).X == X).all()


def test_columns_and_drop_select_features(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,b,c,kind\n1,2,3,x\n4,5,6,y\n")
    assert read_table(path, "kind", ["c", "a"]).X.tolist() == [[3, 1], [6, 4]]
    assert read_table(path, "kind", None, ["b"]).feature_names == ("a", "c")


def test_float32_is_kept(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.array([1, 2], "f4"), "b": np.array([3, 4], "f4")})
    assert read_table(save(tmp_path / "t.parquet", frame)).X.dtype == np.float32
    mixed = save(tmp_path / "m.parquet", frame.assign(c=[1, 2], d=[True, False]))
    assert read_table(mixed).X.dtype == np.float64
    nullable = frame.astype({"a": "Int64"}).assign(b=pd.array([1, None], dtype="Float32"))
    with pytest.raises(CommandError, match=r"row 1 .*column 'b'"):
        read_table(save(tmp_path / "n.parquet", nullable))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([1.0, 2.0, 1.0], [1, 2, 1]),
        ([True, False, True], [True, False, True]),
        (pd.Categorical(["b", "a", "b"]), ["b", "a", "b"]),
        (pd.to_datetime(["2020-01-01", "2021-01-01", "2020-01-01"]).date, None),
        (pd.array([3, 4, 3], dtype="Int64"), [3, 4, 3]),
    ],
)
def test_labels_of_any_type(labels: Any, expected: list[Any] | None, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "kind": labels})
    found = read_table(save(tmp_path / "t.parquet", frame), "kind").classes.tolist()
    assert found == (expected or ["2020-01-01", "2021-01-01", "2020-01-01"])


def test_text_may_have_byte_order_mark_and_spaces(tmp_path: Path) -> None:
    text = "\ufeffa, b ,kind\n\n1, 2,x\n\n3, 4,y\n\n"
    table = read_table(write(tmp_path / "t.csv", text), "kind")
    assert table.feature_names == ("a", "b")
    assert table.X.tolist() == [[1, 2], [3, 4]]


def test_separators(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a;b\n1,5;2\n3,25;4\n")
    assert read_table(path, sep=";", decimal=",").X.tolist() == [[1.5, 2], [3.25, 4]]
    with pytest.raises(CommandError, match="use --sep ';'"):
        read_table(path)
    with pytest.raises(CommandError, match=r"'1,5' in row 0.*use --decimal ','"):
        read_table(path, sep=";")


def test_index_column_is_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd.DataFrame(VALUES, columns=["a", "b"]).to_csv(tmp_path / "t.csv")
    assert read_table(tmp_path / "t.csv").feature_names == ("a", "b")
    assert "Ignoring the first column" in capsys.readouterr().err


def test_missing_values_raise_or_are_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "t.csv", "a,kind\n1,x\n,x\n3,\n4,y\ninf,y\n")
    with pytest.raises(CommandError, match=r"3 of 5 rows .* row 1 .*column 'a'\. Use --dropna"):
        read_table(path, "kind", dropna=False)
    with pytest.raises(CommandError, match=r"column 'a'\. Use --drop to ignore columns\.$"):
        read_table(path, "kind")
    metric = Metric(np.eye(1), np.ones(1))
    with pytest.raises(CommandError, match=r"column 'a'\. Remove or complete these rows\.$"):
        read_table(path, "kind", metric=metric)
    table = read_table(path, "kind", dropna=True)
    assert (table.X.tolist(), table.classes.tolist()) == ([[1], [4]], ["x", "y"])
    assert "Ignoring 3 of 5 rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("a,kind\n", "has 0 rows"),
        ("a,kind\n1,x,7\n2,y,8\n", "does not match length of data"),
        ("a,kind\n1,x\n2,y,8\n", "Expected 2 fields in line 3, saw 3"),
        ("1.5,2\n3,4\n", "looks like data"),
        ("a,b,kind\n1,red,x\n2,3,y\n", "column 'b' is not numeric, for example 'red' in row 0"),
        ("a,knd\n1,x\n", "has no column 'kind'; it has a, knd. Did you mean 'knd'?"),
        ("x,z,kind,w,kind,z\n1,2,3,4,5,6\n", "several columns named 'kind', 'z'. Rename them."),
        ("a,kind,a\n1,x,2\n", "several columns named 'a'"),
        ("kind,a,a.1,a\nx,1,2,3\n", "several columns named 'a'"),
        ("a,kind\n1,\n2,x\n", "row 0 (counting from 0), column 'kind'"),
        ("a , a,kind\n1,2,x\n", "several columns named 'a'. Rename them."),
    ],
)
def test_invalid_text_raises(text: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(CommandError) as caught:
        read_table(path, "kind")
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_errors_name_the_label_column(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "a,kind,size\n1,x,0.5\n2,x,1\n")
    with pytest.raises(CommandError, match="column 'kind' has one class, x"):
        _ = read_table(path, "kind", None, ["size"]).classes
    with pytest.raises(CommandError, match=r"column 'size' has fractional values such as 0.5"):
        _ = read_table(path, "size", ["a"]).classes
    with pytest.raises(CommandError, match="Use --label"):
        _ = read_table(path, None, ["a"]).classes


@pytest.mark.parametrize("name", ["t.xlsx", "t", "t.csv.zip"])
def test_unknown_formats_raise(name: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="unknown format"):
        read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npy", "t.npz", "t.svm", "t.csv.gz"])
def test_damaged_files_raise(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x80\xff\x00garbage\n")
    with pytest.raises(CommandError, match=f"Cannot read .*{name}"):
        read_table(tmp_path / name)


@pytest.mark.parametrize(("contents", "said"), DAMAGED_ARRAYS)
@pytest.mark.parametrize("name", ["t.npy", "t.npz"])
def test_damaged_arrays_raise(name: str, contents: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(CommandError, match=f"^Cannot read {tmp_path / name}: .*{said}"):
        read_table(tmp_path / name)


# Arrays and svmlight


def test_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.column_stack([VALUES, [0, 1, 0]]))
    table = read_table(tmp_path / "t.npy", "2")
    assert (table.X.tolist(), table.classes.tolist()) == (VALUES.tolist(), [0, 1, 0])
    assert table.feature_names is None
    np.savez(tmp_path / "t.npz", X=VALUES, y=KINDS, z=["u", "v", "w"])
    assert read_table(tmp_path / "t.npz").classes.tolist() == KINDS
    assert read_table(tmp_path / "t.npz", "z").classes.tolist() == ["u", "v", "w"]
    np.savez(tmp_path / "one.npz", points=VALUES)
    assert read_table(tmp_path / "one.npz").labels is None
    np.savez(tmp_path / "two.npz", a=VALUES, b=VALUES)
    with pytest.raises(CommandError, match="must be named X"):
        read_table(tmp_path / "two.npz")
    np.savez(tmp_path / "none.npz")
    with pytest.raises(CommandError, match="has the arrays"):
        read_table(tmp_path / "none.npz")
    (tmp_path / "t.npy").rename(tmp_path / "array.npz")  # the contents determine the format
    assert read_table(tmp_path / "array.npz", "2").classes.tolist() == [0, 1, 0]
    np.savez(tmp_path / "short.npz", X=VALUES, y=KINDS[:2])
    with pytest.raises(CommandError, match="has 3 rows, but 2 labels"):
        read_table(tmp_path / "short.npz")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    np.save(tmp_path / "t.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "t.npz", X=np.array([Trap()], dtype=object))
    (tmp_path / "raw.npy").write_bytes(pickle.dumps(Trap()))
    for name in ("t.npy", "t.npz", "raw.npy"):
        with pytest.raises(CommandError, match="Cannot read"):
            read_table(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_svmlight(tmp_path: Path) -> None:
    dump_svmlight_file(VALUES, [0, 1, 0], str(tmp_path / "t.svm"))
    table = read_table(tmp_path / "t.svm")
    assert issparse(table.X)
    assert (table.dense().X.tolist(), table.classes.tolist()) == (VALUES.tolist(), [0, 1, 0])
    wide = Metric(np.eye(5), np.ones(5))
    assert read_table(tmp_path / "t.svm", metric=wide).X.shape == (3, 5)
    with pytest.raises(CommandError, match="Cannot read"):
        read_table(tmp_path / "t.svm", metric=Metric(np.eye(1), np.ones(1)))
    with pytest.raises(CommandError, match="do not apply to svmlight"):
        read_table(tmp_path / "t.svm", "y")
    with pytest.raises(CommandError, match="too large for a dense array"):
        table.dense(max_values=5)
    with pytest.raises(CommandError, match="has no rows"):
        read_table(write(tmp_path / "none.svm", ""))
    write(tmp_path / "huge.svm", "0 999999999:1\n1 1:2\n")
    with pytest.raises(CommandError, match="an index of 999999999"):
        read_table(tmp_path / "huge.svm")


def test_columns_are_selected_by_the_metric(tmp_path: Path) -> None:
    metric = Metric(np.eye(2), np.ones(2), ("width", "height"))
    path = write(tmp_path / "t.csv", CSV)
    assert read_table(path, metric=metric).X.tolist() == VALUES[:, ::-1].tolist()
    with pytest.raises(CommandError, match="has no column 'width'"):
        read_table(write(tmp_path / "u.csv", "height,widht\n1,2\n"), metric=metric)
    np.save(tmp_path / "t.npy", np.ones((3, 3)))
    with pytest.raises(CommandError, match="has 3 features, but the metric was learned from 2"):
        read_table(tmp_path / "t.npy", metric=metric)


# Comparisons


def same(found: Comparisons, expected: Comparisons) -> bool:
    return all(
        np.array_equal(getattr(found, name), getattr(expected, name))
        for name in ("pairs", "near", "far", "gaps", "weights")
    )


def test_number_of_columns_determines_comparisons(tmp_path: Path) -> None:
    triplets, quadruplets = [[0, 1, 2], [3, 2, 1]], [[0, 1, 2, 3], [3, 2, 1, 0]]
    np.save(tmp_path / "t.npy", triplets)
    np.savetxt(tmp_path / "t.csv", triplets, "%d", ",")  # without a header
    write(tmp_path / "h.csv", "anchor,near,far\n0,1,2\n3,2,1\n")
    for name in ("t.npy", "t.csv", "h.csv"):
        assert same(read_comparisons(tmp_path / name, 4), Comparisons.from_triplets(triplets))
    np.save(tmp_path / "q.npy", quadruplets[:1])
    expected = Comparisons.from_quadruplets(quadruplets[:1])
    assert same(read_comparisons(tmp_path / "q.npy", 4), expected)


def test_optional_columns_of_comparisons(tmp_path: Path) -> None:
    path = write(tmp_path / "p.csv", "i,j,similar,threshold,weight\n0,1,1,2,1\n2,3,-1,4,0.5\n")
    expected = Comparisons.from_pairs(
        [[0, 1], [2, 3]], [1, -1], thresholds=[2, 4], weights=[1, 0.5]
    )
    assert same(read_comparisons(path, 4), expected)
    np.save(tmp_path / "p.npy", [[0, 1, 1], [2, 3, -1]])
    expected = Comparisons.from_pairs([[0, 1], [2, 3]], [1, -1])
    assert same(read_comparisons(tmp_path / "p.npy", 4, "pairs"), expected)
    with pytest.raises(CommandError, match="Use --kind pairs"):
        read_comparisons(tmp_path / "p.npy", 4)
    expected = Comparisons.from_triplets([[0, 1, 2]], gaps=[0.5])
    assert same(read_comparisons(write(tmp_path / "t.csv", "a,b,c,gap\n0,1,2,0.5\n"), 3), expected)
    path = write(tmp_path / "t.csv", "a;b;c;gap\n0;1;2;0,5\n")
    assert same(read_comparisons(path, 3, sep=";", decimal=","), expected)


def test_trivial_comparisons_are_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "t.csv", "a,b,c,weight\n0,1,2,1\n0,1,0,2\n0,1,1,3\n3,2,1,4\n")
    found = read_comparisons(tmp_path / "t.csv", 4)
    assert same(found, Comparisons.from_triplets([[0, 1, 2], [3, 2, 1]], weights=[1, 4]))
    assert "ignoring 2 of 4 comparisons" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,1,2\n0,1,9\n", "1 of 2 rows are not row numbers between 0 and 3; the first is row 1"),
        ("0,1,2\n0,1.5,3\n", "row 1"),
        ("0,1\n", "has 2 columns"),
        ("a,b,c,c\n0,1,2,3\n", "several columns named 'c'"),
        ("a,b,c\n0,1,x\n", "column 'c' is not numeric, for example 'x' in row 0. Comparisons are"),
        ("a,b,c\n0,1,\n", "not row numbers"),
    ],
)
def test_invalid_comparisons_raise(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        read_comparisons(write(tmp_path / "t.csv", text), 4)
    assert said in str(caught.value)


# Writing


@pytest.mark.parametrize(
    "name", ["z.csv", "z.tsv", "z.csv.gz", "z.parquet", "z.feather", "z.npz", "z.npy"]
)
def test_written_points_can_be_read(name: str, tmp_path: Path) -> None:
    labels = None if name == "z.npy" else np.array(KINDS)
    write_points(tmp_path / name, VALUES, labels, "kind")
    table = read_table(tmp_path / name, None if name[-3:] in ("npy", "npz") else "kind")
    assert (table.X == VALUES).all()
    assert labels is None or table.classes.tolist() == KINDS
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_unsupported_output_raises(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        check_format(tmp_path / "z.npy", has_labels=True)
    with pytest.raises(CommandError, match="cannot be written"):
        check_format(tmp_path / "z.svm", has_labels=False)
    with pytest.raises(CommandError, match="name of an output column, 'component1'"):
        write_points(tmp_path / "z.csv", VALUES, np.array(KINDS), "component1")
    assert not list(tmp_path.iterdir())
