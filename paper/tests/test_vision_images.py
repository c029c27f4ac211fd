from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric_paper.datasets import DatasetError
from boostmetric_paper.vision import (
    ImageError,
    Images,
    load_caltech101,
    load_lfw,
    load_msrc,
    read_image,
)
from boostmetric_paper.vision.sets import LEGEND, PACKED, labels_of, read_pairs

PILImage = pytest.importorskip("PIL.Image", reason="images need Pillow")


def noise(seed: int, *shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)


def encoded(pixels: NDArray[np.uint8], form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    PILImage.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def write(path: Path, pixels: NDArray[np.uint8], form: str = "PNG", end: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(pixels, form)[:end])


def packed(files: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    data = np.frombuffer(b"".join(files), np.uint8)
    return data, np.cumsum([0, *map(len, files)])


def test_pixels_from_arrays_bytes_and_paths(tmp_path: Path) -> None:
    pixels = noise(0, 5, 7, 3)
    write(tmp_path / "a.png", pixels)
    for source in (pixels, encoded(pixels), tmp_path / "a.png", str(tmp_path / "a.png")):
        np.testing.assert_array_equal(read_image(source), pixels)
        gray = pixels @ np.array([0.299, 0.587, 0.114])
        np.testing.assert_allclose(read_image(source, gray=True), gray, atol=0.51)


def test_channels_of_gray_file() -> None:
    pixels = noise(0, 4, 6)
    np.testing.assert_array_equal(read_image(encoded(pixels)), np.stack([pixels] * 3, axis=-1))
    np.testing.assert_array_equal(read_image(encoded(pixels), gray=True), pixels)
    np.testing.assert_array_equal(read_image(pixels), pixels)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3,), "uint8"), ((3, 4, 4), "uint8"), ((0, 4), "uint8"), ((3, 4), "float64")],
)
def test_wrong_pixels_are_rejected(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(ImageError, match="must be a nonempty uint8 array"):
        read_image(np.zeros(shape, dtype=dtype))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP"])
def test_truncated_images_are_rejected(form: str) -> None:
    whole = encoded(noise(0, 20, 20, 3), form)
    for end in range(0, len(whole) * 3 // 4, 7):
        with pytest.raises(ImageError, match=r"^these bytes cannot be read as an image"):
            read_image(whole[:end])


def test_error_names_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"There is no file .*no\.png"):
        read_image(tmp_path / "no.png")


def test_error_names_missing_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match="Pillow is not installed"):
        read_image(b"")


def test_images_are_decoded_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    images = Images([noise(i, 3, 4, 3) for i in range(4)], list("abcd"), gray=True)
    read: list[object] = []

    def noted(source: NDArray[np.uint8], *, gray: bool) -> NDArray[np.uint8]:
        read.append(source)
        return source

    monkeypatch.setattr("boostmetric_paper.vision.images.read_image", noted)
    assert [*images[1:3].names] == ["b", "c"]
    assert images.take([3, 0]).names == ["d", "a"]
    assert len(images) == 4
    assert read == []
    assert images[2] is images.sources[2]
    assert len(read) == 1


def test_skipped_images_are_listed_in_order() -> None:
    images = Images([b"", noise(0, 2, 2), b"x", noise(1, 2, 2)], list("abcd"), skipped=("z",))
    assert images.unreadable() == [0, 2]
    left = images.leave_out([2, 0])
    assert left.names == ["b", "d"]
    assert left.skipped == ("z", "a", "c")
    assert images[1:].skipped == ("z",)


def test_images_need_one_name_each() -> None:
    with pytest.raises(ValueError, match=r"same length. Got 2 and 1"):
        Images([b"", b""], ["a"])


def caltech(folder: Path) -> None:
    for number in (1, 2, 3):
        pixels = noise(number, 16, 24, 3)
        write(
            folder / "Faces" / f"image_{number:04d}.jpg", pixels, end=300 if number == 2 else None
        )
        write(folder / "airplanes" / f"image_{number:04d}.jpg", pixels)
    (folder / "Faces" / ".hidden").write_bytes(b"")
    write(folder / "airplanes" / "tmp", noise(4, 8, 8, 3))


@pytest.mark.parametrize("inner", ["101_ObjectCategories", "."])
def test_caltech_from_folders(tmp_path: Path, inner: str) -> None:
    caltech(tmp_path / inner)
    found = load_caltech101(tmp_path, ["airplanes", "Faces"], gray=False)
    assert found.class_names == ("airplanes", "Faces")
    assert found.images.skipped == ("Faces/image_0002.jpg",)
    assert found.y.tolist() == [0, 0, 0, 0, 1, 1]
    assert found.images.names[3:] == [
        "airplanes/tmp",
        "Faces/image_0001.jpg",
        "Faces/image_0003.jpg",
    ]
    np.testing.assert_array_equal(found.images[5], noise(3, 16, 24, 3))
    turned = load_caltech101(tmp_path, ["Faces", "airplanes"])
    assert turned.y.tolist() == [0, 0, 1, 1, 1, 1]
    assert turned.images[0].shape == (16, 24)


def test_caltech_from_file(tmp_path: Path) -> None:
    files = [encoded(noise(i, 8, 9, 3)) for i in range(4)]
    files[1] = files[1][:50]
    jpeg, offsets = packed(files)
    names = ["b/1", "a/1", "b/2", "a/2"]
    np.savez(
        tmp_path / PACKED["Caltech-101"],
        jpeg=jpeg,
        offsets=offsets,
        y=np.array([1, 0, 1, 0], np.uint8),
        names=names,
        target_names=["a", "b"],
    )
    found = load_caltech101(tmp_path, ["b", "a"], gray=False)
    assert found.images.names == ["b/1", "b/2", "a/2"]
    assert found.y.tolist() == [0, 0, 1]
    assert found.images.skipped == ("a/1",)
    np.testing.assert_array_equal(found.images[1], noise(2, 8, 9, 3))


def test_empty_class_is_rejected_before_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caltech(tmp_path)
    (tmp_path / "Motorbikes").mkdir()
    monkeypatch.delattr("boostmetric_paper.vision.images.read_image")
    with pytest.raises(DatasetError, match=r"class Motorbikes, cars\. Download caltech"):
        load_caltech101(tmp_path, ["Faces", "Motorbikes", "cars"])


def test_class_without_readable_images_is_rejected(tmp_path: Path) -> None:
    caltech(tmp_path)
    (tmp_path / "cars").mkdir()
    (tmp_path / "cars" / "image_0001.jpg").write_bytes(b"no image")
    with pytest.raises(DatasetError, match=r"has no image of the class cars\. Download"):
        load_caltech101(tmp_path, ["Faces", "cars"])


@pytest.mark.parametrize(
    ("load", "name"), [(load_caltech101, "Caltech-101"), (load_lfw, "LFW"), (load_msrc, "MSRC")]
)
def test_damaged_files_and_missing_folders_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: type, name: str
) -> None:
    monkeypatch.delenv("BOOSTMETRIC_DATA", raising=False)
    with pytest.raises(DatasetError, match=f"^{name} requires a folder"):
        load()
    with pytest.raises(DatasetError, match=r"There is no folder .*no\. Download "):
        load(tmp_path / "no")
    with pytest.raises(DatasetError, match=r"has no .*\. Download "):
        load(tmp_path)
    (tmp_path / PACKED[name]).write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(DatasetError, match=r"npz is damaged \(.*\); remove it\. Download"):
        load(tmp_path)


def faces(folder: Path, text: str) -> None:
    for person, count in (("Ann_Lee", 3), ("Bo", 2), ("Cy", 1)):
        for number in range(1, count + 1):
            path = folder / "lfw_funneled" / person / f"{person}_{number:04d}.jpg"
            end = 100 if (person, number) == ("Ann_Lee", 2) else None
            write(path, noise(number, 10, 10, 3), end=end)
    (folder / "pairs.txt").write_text(text)


PAIRS = "2\t1\nAnn_Lee\t1\t3\nBo\t2\tCy\t1\nBo\t1\t2\nAnn_Lee\t2\tCy\t1\n"


def test_lfw_from_folders(tmp_path: Path) -> None:
    faces(tmp_path, PAIRS)
    found = load_lfw(tmp_path)
    assert found.images.skipped == ("Ann_Lee_0002",)
    assert found.people.tolist() == ["Ann_Lee", "Ann_Lee", "Bo", "Bo", "Cy"]
    named = [[found.images.names[row] for row in pair] for pair in found.pairs]
    assert named == [
        ["Ann_Lee_0001", "Ann_Lee_0003"],
        ["Bo_0002", "Cy_0001"],
        ["Bo_0001", "Bo_0002"],
    ]
    assert found.is_same.tolist() == [True, False, True]
    assert found.folds.tolist() == [0, 0, 1]
    assert found.images[0].shape == (10, 10)
    assert load_lfw(tmp_path, gray=False).images[0].shape == (10, 10, 3)


def test_lfw_from_file(tmp_path: Path) -> None:
    files = [encoded(noise(i, 6, 6)) for i in range(4)]
    files[1] = b"no image"
    jpeg, offsets = packed(files)
    np.savez(
        tmp_path / PACKED["LFW"],
        jpeg=jpeg,
        offsets=offsets,
        names=["A_0001", "A_0002", "A_0003", "B_0001"],
        pairs=np.array([[0, 2], [1, 3], [2, 3]], np.uint16),
        pairs_same=np.array([1, 0, 0], np.uint8),
        pairs_fold=np.array([0, 0, 1], np.uint8),
    )
    found = load_lfw(tmp_path)
    assert found.pairs.tolist() == [[0, 1], [1, 2]]
    assert found.is_same.tolist() == [True, False]
    assert found.folds.tolist() == [0, 1]
    assert found.people.tolist() == ["A", "A", "B"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 1\nBo 1 2\n", "has 1 pairs instead of 1 folds of 2"),
        ("1 1\nBo 1 2\nBo 1 Di 1\n", "contains the image 'Di_0001', which does not exist"),
        ("1 1\nBo 1\nBo 1 Cy 1\n", "is not a list of pairs"),
        ("", "is not a list of pairs"),
        ("1 x\n", "is not a list of pairs"),
    ],
)
def test_wrong_lists_of_pairs_are_rejected(tmp_path: Path, text: str, why: str) -> None:
    faces(tmp_path, text)
    with pytest.raises(DatasetError, match=f"pairs.txt {why}"):
        load_lfw(tmp_path)


def test_development_sets_have_one_fold(tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("1\nBo 1 2\nBo 1 Cy 1\n")
    pairs, is_same, folds = read_pairs(tmp_path / "pairs.txt", ["Bo_0001", "Bo_0002", "Cy_0001"])
    assert (pairs.tolist(), is_same.tolist(), folds.tolist()) == (
        [[0, 1], [0, 2]],
        [True, False],
        [0, 0],
    )


def colors(labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    legend = np.array(list(LEGEND.values()), dtype=np.uint8)
    return legend[labels]


def test_colors_of_legend_have_labels() -> None:
    labels = np.random.default_rng(0).permutation(24).astype(np.uint8).reshape(4, 6)
    np.testing.assert_array_equal(labels_of(colors(labels)), labels)
    with pytest.raises(ImageError, match=r"the color \(255, 0, 1\), which is not in"):
        labels_of(np.array([[[0, 0, 0], [255, 0, 1]]], dtype=np.uint8))


@pytest.mark.parametrize("folders", [("Images", "GroundTruth"), (".", ".")])
def test_msrc_from_folders(tmp_path: Path, folders: tuple[str, str]) -> None:
    labels = np.random.default_rng(0).integers(24, size=(5, 6), dtype=np.uint8)
    for name in ("1_1_s", "1_2_s", "2_10_s", "2_9_s", "8_1_s", "9_1_s"):
        write(tmp_path / folders[0] / f"{name}.bmp", noise(1, 5, 6, 3), "BMP")
        if name != "8_1_s":
            seen = noise(2, 5, 6, 3) if name == "1_2_s" else colors(labels)
            write(tmp_path / folders[1] / f"{name}_GT.bmp", seen, "BMP")
    found = load_msrc(tmp_path)
    assert found.images.names == found.maps.names == ["1_1_s", "2_9_s", "2_10_s"]
    assert found.images.skipped == ("1_2_s",)
    assert found.class_names[:3] == ("void", "building", "grass")
    np.testing.assert_array_equal(found.maps[1], labels)
    np.testing.assert_array_equal(found.images[0], noise(1, 5, 6, 3))


def test_msrc_from_file(tmp_path: Path) -> None:
    shapes = [(4, 5), (6, 3), (2, 2)]
    files = [encoded(noise(i, *shape, 3)) for i, shape in enumerate(shapes)]
    files[1] = files[1][:40]
    webp, offsets = packed(files)
    maps = [noise(i, *shape) % np.uint8(24) for i, shape in enumerate(shapes)]
    gt, gt_offsets = packed([each.tobytes() for each in maps])
    np.savez(
        tmp_path / PACKED["MSRC"],
        webp=webp,
        offsets=offsets,
        gt=gt,
        gt_offsets=gt_offsets,
        shape=np.array(shapes, np.uint16),
        names=["1_1_s", "1_2_s", "1_3_s"],
    )
    found = load_msrc(tmp_path)
    assert found.images.skipped == ("1_2_s",)
    assert len(found.maps) == 2
    np.testing.assert_array_equal(found.maps[1], maps[2])
    np.testing.assert_array_equal(found.images[1], noise(2, 2, 2, 3))


@pytest.mark.slow
def test_sizes_of_real_files(data_folder: Path) -> None:
    sizes = (
        ("Caltech-101", load_caltech101, 2501),
        ("LFW", load_lfw, 13233),
        ("MSRC", load_msrc, 240),
    )
    for name, load, size in sizes:
        if not (data_folder / PACKED[name]).is_file():
            pytest.skip(f"BOOSTMETRIC_DATA has no {PACKED[name]}")
        assert len(load(data_folder).images) == size
