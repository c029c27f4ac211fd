from __future__ import annotations

import hashlib
import io
import json
import os
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import _openml
from sklearn.utils import Bunch

from boostmetric_paper.datasets import DatasetError, fetch, fetching, load, loading
from boostmetric_paper.datasets.catalogue import CATALOGUE

OPENML = {
    "mnist": ("mnist_784", "0123456789"),
    "letter": ("letter", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "b-cancer": ("breast-w", ("benign", "malignant")),
    "diabetes": ("diabetes", ("tested_negative", "tested_positive")),
}
"""What OpenML calls the datasets and their classes."""


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may write into the folder of real data, or reach the network."""

    def refuse(*_: Any, **__: Any) -> None:
        raise URLError("a test asked for the network")

    monkeypatch.delenv("BOOSTMETRIC_DATA", raising=False)
    monkeypatch.setattr(_openml, "urlopen", refuse)


def made(name: str) -> tuple[NDArray, NDArray]:
    """Points and labels of the shape, the counts and the span of a dataset."""
    file = CATALOGUE[name].file
    assert file is not None
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(len(file.counts)), file.counts))
    X = rng.integers(1, int(file.span[1]), size=file.shape).astype(file.dtype)
    X[:2, 0] = file.span
    return X, labels


def as_openml(name: str, X: NDArray, labels: NDArray) -> Bunch:
    """What scikit-learn makes of OpenML's answer."""
    data = X.astype(float)
    if name == "b-cancer":
        data[data == 0] = np.nan
    return Bunch(data=data, target=np.array(list(OPENML[name][1]), dtype=object)[labels])


@pytest.fixture
def diabetes(monkeypatch: pytest.MonkeyPatch) -> tuple[NDArray, NDArray]:
    """Made data in the place of diabetes, whose checksum counts as right."""
    X, labels = made("diabetes")
    entry = CATALOGUE["diabetes"]
    assert entry.file is not None
    file = replace(entry.file, digest=loading.digest(X.astype(entry.file.dtype), labels))
    monkeypatch.setitem(CATALOGUE, "diabetes", replace(entry, file=file))
    return X, labels


def answer(monkeypatch: pytest.MonkeyPatch, give: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Let `give` answer for OpenML; returns the list of requests."""
    requests: list[tuple[str, Any]] = []

    def fetch_openml(name: str, **options: Any) -> Any:
        requests.append((name, options))
        return give(Path(options["data_home"]))

    monkeypatch.setattr(fetching, "fetch_openml", fetch_openml)
    return requests


def test_download_is_stored_once(
    diabetes: tuple[NDArray, NDArray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels = diabetes
    requests = answer(monkeypatch, lambda home: as_openml("diabetes", X, labels))
    folder = tmp_path / "made" / "by fetch"
    assert fetch("diabetes", folder) == f"Wrote {folder / 'diabetes_pima.npz'}."
    assert os.listdir(folder) == ["diabetes_pima.npz"]
    loaded = load("diabetes", folder)
    assert np.array_equal(loaded.X, X)
    assert np.array_equal(loaded.y, np.array(["neg", "pos"])[labels])
    assert "exists already" in fetch("diabetes", folder)
    assert [(name, options["version"]) for name, options in requests] == [("diabetes", 1)]


@pytest.mark.parametrize("kind", ["half", "changed"])
def test_other_existing_file_is_rejected_and_kept(
    kind: str,
    diabetes: tuple[NDArray, NDArray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, labels = diabetes
    requests = answer(monkeypatch, lambda home: as_openml("diabetes", X, labels))
    path = tmp_path / "diabetes_pima.npz"
    changed = X.copy()
    changed[5, 1] = 845 - changed[5, 1]
    np.savez_compressed(path, X=changed, y=labels)
    if kind == "half":
        path.write_bytes(path.read_bytes()[:1000])
    content = path.read_bytes()
    with pytest.raises(DatasetError, match=r"pima\.npz is not diabetes: .*(truncated|checksum)"):
        fetch("diabetes", tmp_path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["diabetes_pima.npz"]
    assert requests == []


def test_folder_from_environment(
    diabetes: tuple[NDArray, NDArray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, lambda home: as_openml("diabetes", *diabetes))
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path))
    fetch(
        "diabetes",
    )
    assert os.listdir(tmp_path) == ["diabetes_pima.npz"]
    monkeypatch.delenv("BOOSTMETRIC_DATA")
    with pytest.raises(DatasetError, match=r"requires a folder .* set BOOSTMETRIC_DATA"):
        fetch(
            "diabetes",
        )


@pytest.mark.parametrize("place", ["point", "label", "row"])
def test_download_with_wrong_checksum_is_not_stored(
    place: str,
    diabetes: tuple[NDArray, NDArray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, labels = diabetes[0].copy(), diabetes[1].copy()
    if place == "point":
        X[100, 3] += 1
    elif place == "label":
        first, second = np.argmin(labels), np.argmax(labels)
        labels[[first, second]] = labels[[second, first]]
    else:
        X, labels = X[:-1], labels[:-1]
    answer(monkeypatch, lambda home: as_openml("diabetes", X, labels))
    with pytest.raises(
        DatasetError, match=r"other data as diabetes.* 768 rows of 8 numbers"
    ) as caught:
        fetch("diabetes", tmp_path)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (URLError(socket.gaierror(-2, "Name or service not known")), "Cannot reach OpenML .*N"),
        (TimeoutError("timed out"), "Cannot reach OpenML .timed out"),
        (ConnectionResetError(104, "reset by peer"), "Cannot reach OpenML .*reset"),
        (HTTPError("", 503, "Unavailable", None, None), "Cannot reach OpenML .Unavailable"),  # type: ignore[arg-type]
        (
            _openml.OpenMLError("Dataset diabetes with version 1 not found."),
            "Cannot read .*not found",
        ),
        (EOFError("Compressed file ended early"), "Cannot read the data of OpenML .* ended early"),
        (OSError(28, "No space left on device"), "Cannot write .*pima.npz: No space left"),
    ],
)
def test_failure_is_one_line(
    error: Exception,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(home: Path) -> None:
        (home / "half").write_bytes(b"half a file")
        raise error

    before = socket.getdefaulttimeout()
    answer(monkeypatch, fail)
    with pytest.raises(DatasetError, match=text) as caught:
        fetch("diabetes", tmp_path)
    assert str(tmp_path / "diabetes_pima.npz") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []
    assert socket.getdefaulttimeout() == before


def test_connection_without_answer_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(home: Path) -> None:
        raise TimeoutError(f"after {socket.getdefaulttimeout()} s")

    answer(monkeypatch, fail)
    with pytest.raises(DatasetError, match=r"after 60\.0 s"):
        fetch("letter", tmp_path)


@pytest.mark.parametrize("when", ["download", "write"])
def test_interrupted_fetch_leaves_folder_unchanged(
    when: str,
    diabetes: tuple[NDArray, NDArray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(place: Any, **arrays: Any) -> None:
        (place if when == "write" else place / "half").write_bytes(b"half a file")
        raise KeyboardInterrupt

    if when == "download":
        answer(monkeypatch, interrupt)
    else:
        answer(monkeypatch, lambda home: as_openml("diabetes", *diabetes))
        monkeypatch.setattr(np, "savez_compressed", interrupt)
    (tmp_path / "other").touch()
    with pytest.raises(KeyboardInterrupt):
        fetch("diabetes", tmp_path)
    assert os.listdir(tmp_path) == ["other"]


def test_error_names_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match=r"Cannot write .*letter.npz: "):
        fetch("letter", tmp_path / "file")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("usps", ["usps_all.mat", "1,100 images per digit", "11000 x 256", "0 to 9,", "usps.npz"]),
        ("yfaces", ["YaleB_32x32.mat", "2414 x 1024", "0 to 37,", "0 to 255", "yaleb_32x32.npz"]),
    ],
)
def test_error_describes_data_missing_on_openml(
    name: str, words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match="OpenML does not have it in the paper's form") as caught:
        fetch(name, tmp_path)
    assert all(word in str(caught.value) for word in words)
    assert os.listdir(tmp_path) == []


class Server:
    """OpenML's answers about one dataset, in the form that its programming interface gives."""

    def __init__(self, name: str, features: list[str], X: NDArray, labels: NDArray) -> None:
        self.name, self.features = name, features
        classes = list(OPENML[name][1])
        lines = ["@RELATION data"]
        lines += [f"@ATTRIBUTE {feature} REAL" for feature in features]
        lines += [f"@ATTRIBUTE Class {{{','.join(classes)}}}", "@DATA"]
        for row, label in zip(X.tolist(), labels, strict=True):
            values = ["?" if name == "b-cancer" and value == 0 else f"{value:g}" for value in row]
            lines.append(",".join([*values, classes[label]]))
        self.arff = "\n".join(lines).encode()

    def urlopen(self, request: Any, *_: Any, **__: Any) -> io.BytesIO:
        url = request.full_url
        if "/data/list/" in url:
            assert f"data_name/{OPENML[self.name][0]}/" in url
            body: Any = {"data": {"dataset": [self.description()]}}
        elif "/data/features/" in url:
            columns = [*((name, "numeric") for name in self.features), ("Class", "nominal")]
            body = {"data_features": {"feature": [self.column(*column) for column in columns]}}
        elif "/data/qualities/" in url:
            body = {"data_qualities": {"quality": []}}
        elif "/json/data/" in url:
            body = {"data_set_description": self.description()}
        else:
            return Response(self.arff)
        return Response(json.dumps(body).encode())

    def description(self) -> dict[str, str]:
        return {
            "did": "1",
            "id": "1",
            "name": OPENML[self.name][0],
            "version": "1",
            "description": "",
            "status": "active",
            "format": "ARFF",
            "file_id": "1",
            "url": "https://api.openml.org/data/v1/download/1/data.arff",
            "default_target_attribute": "Class",
            "md5_checksum": hashlib.md5(self.arff).hexdigest(),
        }

    def column(self, name: str, kind: str) -> dict[str, str]:
        return {
            "index": str([*self.features, "Class"].index(name)),
            "name": name,
            "data_type": kind,
            "is_target": str(name == "Class").lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }


class Response(io.BytesIO):
    def info(self) -> dict[str, str]:
        return {}


@pytest.mark.parametrize("name", ["letter", "b-cancer", "diabetes"])
def test_real_data_in_another_order_are_accepted(
    name: str, tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = CATALOGUE[name].file
    assert file is not None
    with np.load(data_folder / file.name, allow_pickle=False) as stored:
        X, labels = stored["X"], stored["y"]
    rows = np.random.default_rng(0).permutation(len(X))
    server = Server(name, list(CATALOGUE[name].feature_names), X[rows], labels[rows])
    monkeypatch.setattr(_openml, "urlopen", server.urlopen)
    assert "Wrote" in fetch(name, tmp_path)
    assert os.listdir(tmp_path) == [file.name]
    with np.load(tmp_path / file.name, allow_pickle=False) as stored:
        assert (stored["X"].dtype, stored["y"].dtype) == (X.dtype, labels.dtype)
        assert np.array_equal(stored["X"], X[rows])
        assert np.array_equal(stored["y"], labels[rows])
    assert Counter(load(name, tmp_path).y) == Counter(load(name, data_folder).y)


@pytest.mark.parametrize("name", OPENML)
def test_checksums_of_real_files(name: str, data_folder: Path) -> None:
    file = CATALOGUE[name].file
    assert file is not None
    with np.load(data_folder / file.name, allow_pickle=False) as stored:
        assert loading.digest(stored["X"], stored["y"]) == file.digest
