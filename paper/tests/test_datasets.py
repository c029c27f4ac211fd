from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA

from boostmetric.data.synthetic import balance_scale
from boostmetric_paper.datasets import (
    NAMES,
    Dataset,
    DatasetError,
    describe,
    load,
    loading,
    paper_split,
)
from boostmetric_paper.datasets.catalogue import entry_of

BUILT_IN = ["balance", "wine", "iris"]

TABLE = {
    "mnist": (70_000, 784, 10, (50_000, 10_000, 10_000), 164),
    "usps": (11_000, 256, 10, (7_700, 1_650, 1_650), 60),
    "letter": (20_000, 16, 26, (10_500, 4_500, 5_000), None),
    "yfaces": (2_414, 1_024, 38, (1_690, 362, 362), 300),
    "balance": (625, 4, 3, (438, 94, 93), None),
    "wine": (178, 13, 3, (125, 27, 26), None),
    "iris": (150, 4, 3, (105, 23, 22), None),
    "b-cancer": (683, 9, 2, (478, 102, 103), None),
    "diabetes": (768, 8, 2, (538, 115, 115), None),
}
"""Points, features, classes, split sizes and dimension after PCA: Table 1 of the paper, then the
datasets of Table 2, which are split into 70, 15 and 15 percent."""

LETTERS = [
    *(789, 766, 736, 805, 768, 775, 773, 734, 755, 747, 739, 761, 792),
    *(783, 753, 803, 783, 758, 748, 796, 813, 764, 752, 787, 786, 734),
]
"""Published counts of A to Z."""

FILES = {
    "mnist": "mnist.npz",
    "usps": "usps.npz",
    "letter": "letter.npz",
    "yfaces": "yaleb_32x32.npz",
    "b-cancer": "breast_cancer_wisconsin.npz",
    "diabetes": "diabetes_pima.npz",
}


def test_split_is_random_partition() -> None:
    n, sizes = 178, (125, 27, 26)
    parts = paper_split(n, sizes, seed=1)
    assert tuple(map(len, parts)) == sizes
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    again, other = paper_split(n, sizes, seed=1), paper_split(n, sizes, seed=2)
    assert all(map(np.array_equal, parts, again))
    assert not np.array_equal(parts[0], other[0])


@pytest.mark.parametrize("sizes", [(5, 5), (4, 4, 1), (6, 5, -1)])
def test_wrong_sizes_of_split_are_rejected(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="sum to n=10"):
        paper_split(10, sizes, seed=0)


def loaded(name: str, request: pytest.FixtureRequest) -> Dataset:
    """The dataset; the test is skipped if it needs a file and BOOSTMETRIC_DATA is not set."""
    return load(name, None if name in BUILT_IN else request.getfixturevalue("data_folder"))


def arrays(path: Path) -> tuple[NDArray, NDArray]:
    with np.load(path, allow_pickle=False) as stored:
        return stored["X"], stored["y"]


@pytest.mark.parametrize("name", TABLE)
def test_datasets_match_paper(name: str, request: pytest.FixtureRequest) -> None:
    n, d, n_classes, sizes, n_pca = TABLE[name]
    data = loaded(name, request)
    assert (data.name, data.sizes, data.n_pca) == (name, sizes, n_pca)
    assert data.X.shape == (n, d)
    assert data.X.dtype == (np.float32 if name == "mnist" else np.float64)
    assert data.y.shape == (n,)
    assert np.unique(data.y).astype(str).tolist() == data.class_names
    assert len(data.class_names) == n_classes
    assert len(set(data.feature_names)) == d


def test_order_of_datasets_matches_paper() -> None:
    assert tuple(TABLE) == NAMES


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("mnist", "letter")])
def test_split_shares_of_small_datasets(name: str) -> None:
    sizes = entry_of(name).sizes
    train, validation = (int(share * sum(sizes) + 0.5) for share in (0.7, 0.15))
    assert sizes == (train, validation, sum(sizes) - train - validation)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("mnist", [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]),
        ("usps", [1100] * 10),
        ("letter", LETTERS),
        ("wine", [59, 71, 48]),
        ("iris", [50, 50, 50]),
        ("balance", [49, 288, 288]),
        ("b-cancer", [444, 239]),
        ("diabetes", [500, 268]),
    ],
)
def test_class_counts_match_publication(
    name: str, counts: list[int], request: pytest.FixtureRequest
) -> None:
    assert np.unique(loaded(name, request).y, return_counts=True)[1].tolist() == counts


def test_built_in_data_match_scikit_learn_and_uci(data_folder: Path) -> None:
    wine, bunch = load("wine"), load_wine()
    assert np.array_equal(wine.X, bunch.data)
    assert np.array_equal(wine.y, bunch.target)
    assert wine.feature_names == bunch.feature_names
    iris, bunch = load("iris"), load_iris()
    with np.load(data_folder / "iris.npz", allow_pickle=False) as stored:
        assert np.array_equal(iris.X, stored["X_uci"])
    assert np.flatnonzero((bunch.data != iris.X).any(axis=1)).tolist() == [34, 37]
    assert np.array_equal(iris.y, bunch.target_names[bunch.target])
    assert iris.feature_names == [name[:-5].replace(" ", "_") for name in bunch.feature_names]
    X, y = balance_scale()
    assert np.array_equal(load("balance").X, X)
    assert np.array_equal(load("balance").y, y)


@pytest.mark.parametrize("name", ["mnist", "usps", "diabetes"])
def test_points_and_labels_match_file(name: str, data_folder: Path) -> None:
    X, y = arrays(data_folder / FILES[name])
    data = load(name, data_folder)
    assert np.array_equal(data.X, X)
    assert np.array_equal(data.y, np.array(["neg", "pos"])[y] if name == "diabetes" else y)


def test_first_letter_matches_uci(data_folder: Path) -> None:
    letter = load("letter", data_folder)
    assert letter.y[0] == "T"
    assert letter.X[0].tolist() == [2, 8, 3, 5, 1, 8, 13, 0, 6, 6, 10, 8, 0, 8, 0, 8]


def test_points_with_missing_values_are_removed(data_folder: Path) -> None:
    with np.load(data_folder / FILES["b-cancer"], allow_pickle=False) as stored:
        X, y, complete = stored["X"], stored["y"], stored["complete"]
    data = load("b-cancer", data_folder)
    assert np.array_equal(data.X, X[complete])
    assert np.array_equal(data.y == "malignant", y[complete] == 1)
    assert (data.X.min(), data.X.max()) == (1, 10)


def test_faces_have_unit_length(data_folder: Path) -> None:
    X, _ = arrays(data_folder / FILES["yfaces"])
    faces = load("yfaces", data_folder).X
    assert np.linalg.norm(faces, axis=1) == pytest.approx(np.ones(len(faces)))
    lengths = np.linalg.norm(X.astype(float), axis=1)
    assert np.allclose(faces * lengths[:, None], X)


def test_parts_of_dataset_are_disjoint() -> None:
    data = load("wine")
    numbered = replace(data, X=np.arange(len(data.y))[:, None])
    parts = numbered.split(seed=3)
    assert tuple(len(part.X) for part in parts) == TABLE["wine"][3]
    rows = np.concatenate([part.X[:, 0] for part in parts])
    assert np.array_equal(np.sort(rows), np.arange(len(data.y)))
    for part, drawn in zip(parts, paper_split(len(data.y), data.sizes, 3), strict=True):
        assert np.array_equal(part.X[:, 0], drawn)
        assert np.array_equal(part.y, data.y[drawn])
    assert not np.array_equal(rows[:20], numbered.split(seed=4).train.X[:20, 0])


def test_pca_uses_only_training_part() -> None:
    wine = replace(load("wine"), n_pca=4)
    split = wine.split(seed=0)
    reduced = wine.reduced(split)
    pca = PCA(4, random_state=0).fit(split.train.X)
    for part, before in zip(reduced, split, strict=True):
        assert np.array_equal(part.X, pca.transform(before.X))
        assert np.array_equal(part.y, before.y)
    changed = split._replace(
        validation=split.validation._replace(X=-split.validation.X),
        test=split.test._replace(X=1e3 * split.test.X[:, ::-1]),
    )
    assert np.array_equal(wine.reduced(changed).train.X, reduced.train.X)
    assert not np.allclose(wine.reduced(changed).test.X, reduced.test.X)


def test_split_without_pca_is_unchanged() -> None:
    iris = load("iris")
    split = iris.split(seed=0)
    assert iris.reduced(split) is split


@pytest.mark.parametrize("name", ["usps", "yfaces"])
def test_reduced_dimension_matches_paper(name: str, data_folder: Path) -> None:
    data = load(name, data_folder)
    reduced = data.reduced(data.split(seed=0))
    assert [part.X.shape for part in reduced] == [(n, TABLE[name][4]) for n in TABLE[name][3]]


def made(name: str) -> tuple[NDArray, NDArray]:
    """Random points and labels with the sizes of b-cancer or diabetes."""
    counts, shape, highest = {
        "b-cancer": ((458, 241), (699, 9), 10),
        "diabetes": ((500, 268), (768, 8), 846),
    }[name]
    X = np.random.default_rng(0).integers(1, highest, size=shape, endpoint=True)
    X[:16, 5] = 0
    X[-1, 0] = highest
    return X, np.repeat([0, 1], counts)


@pytest.mark.parametrize("name", ["b-cancer", "diabetes"])
def test_folder_from_argument_or_environment(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = made(name)
    np.savez(tmp_path / FILES[name], X=X, y=y)
    file = entry_of(name).file
    assert file is not None
    monkeypatch.setattr(loading, "digest", lambda X, labels: file.digest)
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path / "elsewhere"))
    assert np.isin(load(name, tmp_path).X, X).all()
    with pytest.raises(DatasetError, match=rf"no file .*elsewhere.{FILES[name]}"):
        load(name)
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path))
    assert len(load(name).X) == TABLE[name][0]


Arrays = dict[str, NDArray]


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda X, y: {"X": X[:-1], "y": y[:-1]}, r"\(768,\), got \(767, 8\) and \(767,\)"),
        (lambda X, y: {"X": X.T, "y": y}, r"got \(8, 768\)"),
        (lambda X, y: {"X": X, "y": y[:, None]}, r"got \(768, 8\) and \(768, 1\)"),
        (lambda X, y: {"X": X / 846, "y": y}, "X must range from 0 to 846, got 0 to 1"),
        (lambda X, y: {"X": np.where(X == 5, np.nan, X), "y": y}, "got nan to nan"),
        (lambda X, y: {"X": X, "y": y + 1}, "y must range from 0 to 1, got 1 to 2"),
        (lambda X, y: {"X": X, "y": y - 1}, "y must range from 0 to 1, got -1 to 0"),
        (lambda X, y: {"X": X, "y": 1 - y}, "class neg must have 500 points, got 268"),
        (lambda X, y: {"X": X, "y": y.astype(str)}, "X must be numeric and y of integers"),
        (lambda X, y: {"X": X.astype(str), "y": y}, "X must be numeric and y of integers"),
        (lambda X, y: {"X": X, "labels": y}, "it must contain X and y, got X, labels"),
        (lambda X, y: {"X": X.astype(object), "y": y}, "allow_pickle=False"),
    ],
)
def test_file_of_other_data_is_rejected(
    spoil: Callable[[NDArray, NDArray], Arrays], text: str, tmp_path: Path
) -> None:
    path = tmp_path / "diabetes_pima.npz"
    contents = spoil(*made("diabetes"))
    np.savez(path, **contents)  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=text) as caught:
        load("diabetes", tmp_path)
    assert str(caught.value).startswith(f"{path} is not diabetes: ")
    assert str(caught.value).endswith("Run `boostmetric-paper data fetch diabetes` to download it.")
    assert "\n" not in str(caught.value)


def test_wrong_checksum_is_rejected(tmp_path: Path) -> None:
    X, y = made("diabetes")
    np.savez(tmp_path / FILES["diabetes"], X=X, y=y)
    with pytest.raises(DatasetError, match="npz is not diabetes: its rows have a wrong checksum"):
        load("diabetes", tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_truncated_file_is_rejected(share: float, tmp_path: Path) -> None:
    X, y = made("diabetes")
    path = tmp_path / "diabetes_pima.npz"
    np.savez_compressed(path, X=X, y=y)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DatasetError, match=r"diabetes_pima.npz is not diabetes: it is truncated"):
        load("diabetes", tmp_path)


def test_file_with_wrong_byte_is_rejected(tmp_path: Path) -> None:
    X, y = made("diabetes")
    path = tmp_path / "diabetes_pima.npz"
    np.savez(path, X=X, y=y)
    content = bytearray(path.read_bytes())
    content[3000] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"is not diabetes: Bad CRC-32 for file 'X.npy'"):
        load("diabetes", tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mnist", "`boostmetric-paper data fetch mnist`"),
        ("usps", "Download usps_all.mat .* 11000 x 256 .*'usps.npz', X=X, y=y"),
        ("yfaces", "Download YaleB_32x32.mat .* from 0 to 37, X 2414 x 1024"),
    ],
)
def test_error_of_missing_file_says_how_to_get_it(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DatasetError, match=rf"There is no file .*{FILES[name]}. .*{text}"):
            load(name, folder)
    monkeypatch.delenv("BOOSTMETRIC_DATA", raising=False)
    with pytest.raises(DatasetError, match=rf"requires the folder .* set BOOSTMETRIC_DATA.*{text}"):
        load(name)


def test_error_of_unknown_name_lists_known_names() -> None:
    known = ", ".join(TABLE)
    for use in (load, describe):
        with pytest.raises(DatasetError, match=f"no dataset 'cifar'. Choose from {known}"):
            use("cifar")


def test_description_has_sizes_and_status(tmp_path: Path) -> None:
    (tmp_path / "usps.npz").touch()
    for name, (n, d, n_classes, sizes, _) in TABLE.items():
        line = describe(name, tmp_path)
        words = line.split()
        assert words[:6] == [name, str(n), "x", str(d), str(n_classes), "classes"]
        assert words[6] == "/".join(map(str, sizes))
        status = "built in" if name in BUILT_IN else "available" if name == "usps" else "missing"
        assert line.endswith(f"  {status}")
        assert len(line) <= 100
