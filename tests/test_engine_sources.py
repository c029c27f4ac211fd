"""Every kind of source against the same rows in memory; what is refused, and how."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric import Comparisons
from boostmetric._grids import ReadError
from boostmetric.engines import stores
from boostmetric.engines.sources import ComparisonSource, Source, as_source
from boostmetric.engines.stores import MappedFile, _runs

N, D = 2_000, 3
NAMES = ["b", "a", "c"]

Make = Callable[[NDArray, NDArray, Path], Source]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """What Dask computes, it computes here."""
    try:
        import dask
    except ImportError:
        yield
        return
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PART_ENTRIES", 300 * D)


def frame_of(X: NDArray, y: NDArray | None = None) -> Any:
    frame = pytest.importorskip("pandas").DataFrame(X, columns=NAMES)
    if y is not None:
        frame.insert(1, "kind", y)
    return frame


def of_array(X: NDArray, y: NDArray, folder: Path) -> Source:
    return as_source(X, y)


def of_pandas(X: NDArray, y: NDArray, folder: Path) -> Source:
    return as_source(frame_of(X, y), label="kind")


def of_npy(X: NDArray, y: NDArray, folder: Path) -> Source:
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y.astype(str))
    return as_source(folder / "X.npy", str(folder / "y.npy"))


def of_memmap(X: NDArray, y: NDArray, folder: Path) -> Source:
    raw = np.memmap(folder / "raw", X.dtype, "w+", 4096, X.shape)
    raw[:] = X
    raw.flush()
    return as_source(raw, y)


def of_view(X: NDArray, y: NDArray, folder: Path) -> Source:
    """Every other row, backwards, of a file by columns."""
    wide = np.zeros((2 * len(X) + 1, D + 2), dtype=X.dtype, order="F")
    wide[1::2, 1:-1] = X[::-1]
    np.save(folder / "wide.npy", wide)
    return as_source(np.load(folder / "wide.npy", mmap_mode="r")[::-1][1::2, 1:-1], y)


def zarr_array(X: NDArray, path: Path, **options: Any) -> Any:
    array = pytest.importorskip("zarr").create_array(path, shape=X.shape, dtype=X.dtype, **options)
    array[:] = X
    return array


def of_zarr(X: NDArray, y: NDArray, folder: Path) -> Source:
    zarr_array(X, folder / "X.zarr", chunks=(70, 2))
    zarr_array(np.unique(y, return_inverse=True)[1], folder / "y", chunks=(90,))
    return as_source(folder / "X.zarr", folder / "y")


def of_shards(X: NDArray, y: NDArray, folder: Path) -> Source:
    return as_source(zarr_array(X, folder / "X.zarr", chunks=(20, 3), shards=(120, 3)), y)


def of_parquet(X: NDArray, y: NDArray, folder: Path) -> Source:
    pytest.importorskip("pyarrow")
    frame_of(X, y).to_parquet(folder / "X.parquet", row_group_size=110)
    return as_source(folder / "X.parquet", label="kind")


def of_parquet_files(X: NDArray, y: NDArray, folder: Path) -> Source:
    pytest.importorskip("pyarrow")
    (folder / "parts").mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(X)), 12)):
        part = frame_of(X[rows], y[rows]).astype({"kind": "category"})
        part.index = rows + 0.5  # pandas stores it as one more column
        part.to_parquet(folder / "parts" / f"part.{number}.parquet", row_group_size=60)
    return as_source(str(folder / "parts"), label="kind")


def of_dask_array(X: NDArray, y: NDArray, folder: Path) -> Source:
    da = pytest.importorskip("dask.array")
    return as_source(da.from_array(X, chunks=(150, 2)), da.from_array(y, chunks=99))


def of_dask_frame(X: NDArray, y: NDArray, folder: Path) -> Source:
    dd = pytest.importorskip("dask.dataframe")
    return as_source(dd.from_pandas(frame_of(X, y), npartitions=9), label="kind")


def of_dask_series(X: NDArray, y: NDArray, folder: Path) -> Source:
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(frame_of(X, y), npartitions=9)
    return as_source(frame[NAMES], frame["kind"])


IN_FILES = [of_npy, of_memmap, of_view, of_zarr, of_shards, of_parquet, of_parquet_files]
BY_DASK = [of_dask_array, of_dask_frame, of_dask_series]
KINDS = [of_array, of_pandas, *IN_FILES, *BY_DASK]

every_kind = pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)


def rows_and_labels(dtype: Any = np.float64) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(N, D)) * 1000).astype(dtype)
    y = rng.choice(["left", "right", "middle"], N).astype(object)
    read_only(X, y)
    return X, y


@every_kind
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
@pytest.mark.usefixtures("small_parts")
def test_rows_are_those_of_the_array(make: Make, dtype: Any, tmp_path: Path) -> None:
    X, y = rows_and_labels(dtype)
    source = make(X, y, tmp_path)
    kind = np.float32 if dtype is np.float32 else np.float64
    assert source.shape == (N, D)
    assert source.dtype == kind
    sizes = [rows.stop - rows.start for rows in source.parts]
    assert len(sizes) > 3
    assert max(sizes) <= 300
    assert np.concatenate([np.arange(N)[rows] for rows in source.parts]).tolist() == [*range(N)]
    parts = [source.read(rows) for rows in source.parts]
    assert all(part.dtype == kind and part.flags.c_contiguous for part in parts)
    assert np.array_equal(np.concatenate(parts), X)
    assert np.array_equal(source.read(slice(107, 423)), X[107:423])
    labels = source.labels()
    assert labels is not None
    assert labels.shape == (N,)
    groups = [np.unique(each, return_inverse=True)[1].tolist() for each in (labels, y)]
    assert groups[0] == groups[1]


@pytest.mark.parametrize(
    ("make", "size"),
    [(of_npy, 300), (of_zarr, 280), (of_shards, 240), (of_parquet, 220), (of_dask_array, 300)],
)
@pytest.mark.usefixtures("small_parts")
def test_parts_are_whole_pieces(make: Make, size: int, tmp_path: Path) -> None:
    source = make(*rows_and_labels(), tmp_path)
    assert [rows.start for rows in source.parts[:6]] == [size * number for number in range(6)]


@every_kind
@pytest.mark.parametrize("rows", [[], [0], [N - 1], [3, 69, 70, 71, 1234], range(0, N, 7)])
def test_chosen_rows_are_those_of_the_array(make: Make, rows: list[int], tmp_path: Path) -> None:
    X, y = rows_and_labels(np.float32)
    chosen = np.array(rows, dtype=np.intp)
    found = make(X, y, tmp_path).take(chosen)
    assert found.dtype == np.float32
    assert found.shape == (len(chosen), D)
    assert np.array_equal(found, X[chosen])


@every_kind
def test_a_copy_that_was_sent_reads_the_same(make: Make, tmp_path: Path) -> None:
    X, y = rows_and_labels()
    sent = pickle.dumps(make(X, y, tmp_path))
    source: Source = pickle.loads(sent)
    assert np.array_equal(source.take(np.array([5, 1999])), X[[5, 1999]])
    labels = source.labels()
    assert labels is not None
    assert len(labels) == N


@pytest.mark.parametrize("make", IN_FILES, ids=lambda make: make.__name__)
def test_what_is_sent_of_files_is_small(make: Make, tmp_path: Path) -> None:
    X, y = rows_and_labels()
    source = make(X, y, tmp_path)
    assert len(pickle.dumps(source.store)) < 4_000


@every_kind
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_missing_values_are_refused_with_their_rows(
    make: Make, value: float, tmp_path: Path
) -> None:
    X, y = rows_and_labels()
    X = X.copy()
    X[[1200, 1207, 1900], [0, 2, 1]] = value
    source = make(X, y, tmp_path)
    assert np.array_equal(source.read(slice(0, 1200)), X[:1200])
    expected = (
        f"{source.store.name}: values are missing or infinite in {{}} of the rows that were read: "
        "{} (the first of all is 0). Fill them in, or leave these rows out."
    )
    with pytest.raises(ReadError) as caught:
        source.read(slice(1100, 1300))
    assert str(caught.value) == expected.format(2, "1200, 1207")
    with pytest.raises(ReadError) as caught:
        source.take(np.array([3, 1207, 1208, 1900]))
    assert str(caught.value) == expected.format(2, "1207, 1900")


def test_nulls_of_parquet_are_missing_values(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    y = pa.array(["u", None, "v"]).dictionary_encode()
    columns = {"a": [1, None, 3], "b": [True, False, None], "y": y}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    source = as_source(tmp_path / "x.parquet", label="y")
    assert source.take(np.array([0])).tolist() == [[1, 1]]
    with pytest.raises(ReadError, match=r"infinite in 2 of the rows that were read: 1, 2 \("):
        source.read(slice(0, 3))
    labels = source.labels()
    assert labels is not None
    assert labels.tolist() == ["u", None, "v"]


@pytest.mark.parametrize("by_dask", [False, True])
def test_nullable_columns_are_numbers(by_dask: bool) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.array([1, 2, None], dtype="Int64"), "b": [0.5, 1.5, 2.5]})
    if by_dask:
        frame = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    source = as_source(frame)
    assert source.labels() is None
    assert source.read(slice(0, 2)).tolist() == [[1, 0.5], [2, 1.5]]
    with pytest.raises(ReadError, match=r"infinite in 1 of the rows that were read: 2 \("):
        source.take(np.array([0, 2]))


def test_files_of_a_folder_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    names = ["a2", "a10", "aa1", "b"]
    for value, name in enumerate(names):
        frame_of(np.full((1, D), value)).to_parquet(tmp_path / f"{name}.parquet")
    assert as_source(tmp_path).read(slice(0, 4))[:, 0].tolist() == [0, 1, 2, 3]


def test_chosen_rows_of_parquet_come_from_their_groups_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    read, seen = parquet.ParquetFile.read_row_group, []

    def counted(file: Any, number: int, **options: Any) -> Any:
        seen.append((number, options["columns"]))
        return read(file, number, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counted)
    X, y = rows_and_labels()
    source = of_parquet(X, y, tmp_path)
    assert seen == []
    source.take(np.array([109, 110, 660, 661]))
    source.read(slice(1990, 2000))
    assert seen == [(number, NAMES) for number in (0, 1, 6, 18)]
    del seen[:]
    source.labels()
    assert seen == [(number, ["kind"]) for number in range(19)]


def test_chosen_rows_of_zarr_come_from_their_chunks_only(tmp_path: Path) -> None:
    X, y = rows_and_labels()
    source = of_zarr(X, y, tmp_path)
    chunks = tmp_path / "X.zarr" / "c"
    for path in chunks.iterdir():
        if path.name not in ("1", "28"):
            for file in path.iterdir():
                file.write_bytes(b"")
    assert np.array_equal(source.take(np.array([70, 139, 1999])), X[[70, 139, 1999]])


def test_an_array_is_not_read_before_rows_are_asked_for(tmp_path: Path) -> None:
    X, y = rows_and_labels()
    source = of_npy(np.full_like(X, np.nan), y, tmp_path)
    np.save(tmp_path / "X.npy", X)
    assert np.array_equal(source.read(slice(0, N)), X)


def test_rows_of_dask_can_be_had_before_they_are_computed(tmp_path: Path) -> None:
    X, y = rows_and_labels()
    rows = np.array([4, 444, 1444])
    source = of_dask_frame(X, y, tmp_path)
    lazy = source.lazy(rows)
    assert lazy is not None
    assert lazy.shape == (3, D)
    assert np.array_equal(source.checked(lazy.compute(), rows), X[rows])
    assert of_npy(X, y, tmp_path).lazy(rows) is None


def test_a_memmap_that_is_in_no_file_is_an_array(tmp_path: Path) -> None:
    X, _ = rows_and_labels()
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")
    mapped[7] = 0
    source = as_source(mapped)
    assert not isinstance(source.store, MappedFile)
    assert not source.take(np.array([7])).any()
    computed = np.load(tmp_path / "x.npy", mmap_mode="r") + 1
    assert np.array_equal(as_source(computed).read(slice(0, 5)), X[:5] + 1)


@pytest.mark.parametrize(
    ("ends", "most", "parts"),
    [
        ([2, 4, 6, 7], 4, [(0, 4), (4, 7)]),
        ([2, 12, 13], 5, [(0, 2), (2, 12), (12, 13)]),
        ([12], 5, [(0, 12)]),
        ([3, 3, 6], 6, [(0, 6)]),
        ([], 6, []),
    ],
)
def test_pieces_are_joined_up_to_a_size(
    ends: list[int], most: int, parts: list[tuple[int, int]]
) -> None:
    assert [(rows.start, rows.stop) for rows in _runs(ends, most)] == parts


def refusal(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    with pytest.raises((ValueError, TypeError)) as caught:
        function(*arguments, **options)
    return str(caught.value)


def test_shapes_and_types_that_will_not_do_are_refused() -> None:
    X = np.eye(3)
    needed = "(n, D) is needed, n points with D features, at least one of each."
    for bad in (X[0], X[:0], X[:, :0], X[None]):
        assert refusal(as_source, bad) == f"the array has shape {bad.shape}: {needed}"
    text = np.array([["a", "b"]])
    assert refusal(as_source, text) == "the array holds <U1 values: numbers are needed."
    assert refusal(as_source, X + 1j) == "the array holds complex128 values: numbers are needed."
    assert refusal(as_source, X, [0, 1]) == (
        "y has shape (2,): (3,) is needed, one label for each row of the array."
    )
    assert refusal(as_source, [[1], [2, 3]]).startswith("X is no array: ")


def test_what_is_no_source_is_refused() -> None:
    X = np.eye(3)
    needed = (
        "which is not read in parts: an array, a memmap, a Zarr array, a Dask array or DataFrame "
        "is needed, or a path of .npy, .zarr, .parquet, or a folder of .parquet files."
    )
    assert refusal(as_source, {1: 2}) == f"X is of type dict, {needed}"
    assert refusal(as_source, X, object()) == f"y is of type object, {needed}"
    assert refusal(as_source, csr_array(X)) == (
        f"X is of type csr_array, {needed} Give it dense, or in memory to a fit without an engine."
    )


def test_labels_are_given_once() -> None:
    X, y = np.eye(3), np.arange(3)
    assert refusal(as_source, X, y, label="kind") == (
        "give y or label='kind', not both: each says what the labels are."
    )
    assert refusal(as_source, X, label="kind") == (
        "label='kind' names a column, and X has no named ones: give the labels as y."
    )
    source = as_source(X)
    assert as_source(source) is source
    assert np.shares_memory(as_source(source, y).labels(), y)
    assert refusal(as_source, source, label="kind") == (
        "label='kind': a Source has its labels already."
    )


def test_paths_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    readable = "lead to .npy, .zarr, .parquet, or a folder of .parquet files."
    for name in ("x.npy", "x.parquet", "x.zarr"):
        path = tmp_path / name
        assert refusal(as_source, path) == f"{path} is not there. A path must {readable}"
    for path in (tmp_path / "x.csv", tmp_path / "folder"):
        path.mkdir()
        assert refusal(as_source, path) == (
            f"{path} cannot be read in parts: a path must {readable}"
        )
    np.save(tmp_path / "x.npy", np.array([{}]), allow_pickle=True)
    message = f"{tmp_path / 'x.npy'} cannot be mapped into memory: "
    assert refusal(as_source, tmp_path / "x.npy").startswith(message)
    pytest.importorskip("pyarrow")
    (tmp_path / "x.parquet").mkdir()
    assert refusal(as_source, tmp_path / "x.parquet") == (
        f"{tmp_path / 'x.parquet'} is a folder without .parquet files."
    )


def test_a_group_of_zarr_has_points_and_labels(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    group = zarr.create_group(tmp_path / "d.zarr")
    X, kinds = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 1, 0])
    for name, array in (("points", X), ("kind", kinds)):
        group.create_array(name, shape=array.shape, dtype=array.dtype)[:] = array
    source = as_source(tmp_path / "d.zarr", label="kind")
    np.testing.assert_array_equal(source.take(np.array([1, 4])), X[[1, 4]])
    labels = source.labels()
    assert labels is not None
    assert labels.tolist() == kinds.tolist()
    needed = "one array of shape (n, D) is needed, of the points, and 'class' of shape (n,), of the"
    with pytest.raises(ReadError) as caught:
        as_source(tmp_path / "d.zarr", label="class")
    assert f"holds kind (6,), points (6, 2): {needed} labels." in str(caught.value)
    group.create_array("more", shape=(6, 1), dtype=float)
    with pytest.raises(ReadError, match=r"holds kind \(6,\), more \(6, 1\), points \(6, 2\): one"):
        as_source(tmp_path / "d.zarr", label="kind")
    with pytest.raises(ReadError, match="is no Zarr group, in which an array 'kind' could be the"):
        as_source(tmp_path / "d.zarr" / "points", label="kind")


def test_a_group_of_zarr_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    pytest.importorskip("zarr").create_group(path)
    assert refusal(as_source, path) == (
        f"{path} is no Zarr array. Give the path of an array; of a group, that of an array in it."
    )


def test_columns_that_will_not_do_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    X, y = rows_and_labels()
    path = tmp_path / "x.parquet"
    frame = frame_of(X, y)
    frame.to_parquet(path)
    not_numbers = (
        "{} has columns that hold no numbers: 'kind'. Name that of the labels (label=), and leave "
        "out others or encode them as numbers."
    )
    assert refusal(as_source, path) == not_numbers.format(path)
    assert refusal(as_source, frame) == not_numbers.format("the DataFrame")
    assert refusal(as_source, path, label="sort") == (
        f"{path} has no column 'sort' of labels: there are 'b', 'kind', 'a', 'c'."
    )
    assert refusal(as_source, frame, label="sort") == (
        "the DataFrame has no column 'sort' of labels."
    )
    frame[["kind"]].to_parquet(path)
    assert refusal(as_source, path, label="kind").startswith(f"{path} has shape ({N}, 0): ")
    frame[NAMES[:2]].to_parquet(tmp_path / "z.parquet")
    frame[NAMES].to_parquet(path)
    assert refusal(as_source, tmp_path) == (
        f"{tmp_path / 'z.parquet'} has other columns than x.parquet, or columns of other types: "
        "the files of a folder must have the same."
    )


def test_chunks_of_unknown_size_are_refused() -> None:
    da = pytest.importorskip("dask.array")
    X = da.from_array(np.eye(4), chunks=2)
    assert refusal(as_source, X[X[:, 0] < 1]) == (
        "the Dask array has chunks of unknown size. Call its compute_chunk_sizes(), which computes "
        "it once, or store it (to_zarr) and give the path."
    )


@pytest.mark.parametrize(
    ("make", "name"), [(of_npy, "X.npy"), (of_parquet, "X.parquet"), (of_shards, "X.zarr")]
)
def test_files_that_are_gone_are_missed(make: Make, name: str, tmp_path: Path) -> None:
    X, y = rows_and_labels()
    source = make(X, y, tmp_path)
    (tmp_path / name).rename(tmp_path / "elsewhere")
    for read, rows in ((source.read, slice(0, 1)), (source.take, np.array([0]))):
        assert refusal(read, rows) == (
            f"{source.store.name} is not there, or not on this machine: workers on several "
            "machines need it on a disk that all of them share, at the same path."
        )
    (tmp_path / "elsewhere").rename(tmp_path / name)
    assert np.array_equal(source.read(slice(0, 1)), X[:1])


@pytest.mark.parametrize("rows", [[2, 1], [1, 1], [-1, 2], [0, N]])
def test_rows_are_sorted_and_distinct(rows: list[int]) -> None:
    source = as_source(rows_and_labels()[0])
    expected = f"rows must be sorted and distinct, from 0 to {N - 1}."
    assert refusal(source.take, np.array(rows)) == expected


def as_npy(rows: NDArray, folder: Path) -> Any:
    np.save(folder / "c.npy", rows)
    return folder / "c.npy"


def as_zarr(rows: NDArray, folder: Path) -> Any:
    return zarr_array(rows, folder / "c.zarr", chunks=(7, 2))


def as_parquet(rows: NDArray, folder: Path) -> Any:
    pytest.importorskip("pyarrow")
    frame = pytest.importorskip("pandas").DataFrame(rows, columns=[*"abcd"[: rows.shape[1]]])
    frame.to_parquet(folder / "c.parquet", row_group_size=8)
    return folder / "c.parquet"


def as_array(rows: NDArray, folder: Path) -> Any:
    return rows


@pytest.mark.parametrize("store", [as_array, as_npy, as_zarr, as_parquet])
@pytest.mark.parametrize("width", [3, 4])
def test_comparisons_in_parts_are_those_of_the_array(
    monkeypatch: pytest.MonkeyPatch,
    rng: np.random.Generator,
    store: Callable[[NDArray, Path], Any],
    width: int,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(stores, "PART_ENTRIES", 10 * width)
    rows = np.array([rng.permutation(30)[:width] for _ in range(41)])
    source = ComparisonSource.of(store(rows, tmp_path), n_points=30)
    assert len(source) == 41
    assert len(source.parts) > 4
    sent: ComparisonSource = pickle.loads(pickle.dumps(source))
    parts = [sent.read(part) for part in sent.parts]
    assert {part.dtype for part in parts} == {np.dtype(np.int64)}
    assert np.array_equal(np.concatenate(parts), rows)
    make = Comparisons.from_triplets if width == 3 else Comparisons.from_quadruplets
    found, known = source.comparisons(slice(5, 15)), make(rows[5:15])
    assert found.n_points == 30
    for name in ("pairs", "near", "far"):
        assert np.array_equal(getattr(found, name), getattr(known, name))


def test_comparisons_that_will_not_do_are_refused() -> None:
    good = np.array([[0, 1, 2], [3, 2, 1], [2, 1, 0]])
    needed = "(m, 3) is needed for triplets, or (m, 4) for quadruplets, at least one of them."
    for bad in (good[:0], good[:, :2], good[0]):
        expected = f"the array has shape {bad.shape}: {needed}"
        assert refusal(ComparisonSource.of, bad, 4) == expected
    assert refusal(ComparisonSource.of, good > 1, 4) == (
        "the array holds bool values: row numbers of X are needed."
    )
    for value, shown in ((4, "4"), (-1, "-1"), (0.5, "0.5"), (np.nan, "nan")):
        rows = good.astype(float)
        rows[2, 1] = value
        source = ComparisonSource.of(rows, 4)
        assert np.array_equal(source.read(slice(0, 2)), good[:2])
        assert refusal(source.read, slice(1, 3)) == (
            f"the array: comparison 2 (the first is 0) names row {shown} of X, which has rows 0 to "
            "3."
        )
    good[2] = [1, 0, 1]
    assert refusal(ComparisonSource.of(good, 4).comparisons, slice(1, 3)) == (
        "the array, counted from 1: comparison 1, [1, 0, 1], asks for a pair nearer than a point "
        "is to itself; 1 comparisons are like this. Drop them."
    )
