"""The paper's image datasets, from their unpacked archives or from files of NumPy arrays.

Nothing is downloaded. A folder with a wrong layout raises an error before any image is read; images
that cannot be read are skipped, and `images.skipped` contains their names.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from boostmetric_paper.datasets.catalogue import VARIABLE, DatasetError, folder_of
from boostmetric_paper.vision.images import ImageError, Images, Source, read_image

Folder = str | os.PathLike[str] | None

CALTECH101 = ("Motorbikes", "airplanes", "Faces", "BACKGROUND_Google")
"""The classes of the paper."""

MSRC = ("building", "grass", "tree", "cow", "sky", "aeroplane", "face", "car", "bicycle")
"""The classes of the paper."""

LEGEND = {
    "void": (0, 0, 0),
    "building": (128, 0, 0),
    "grass": (0, 128, 0),
    "tree": (128, 128, 0),
    "cow": (0, 0, 128),
    "horse": (128, 0, 128),
    "sheep": (0, 128, 128),
    "sky": (128, 128, 128),
    "mountain": (64, 0, 0),
    "aeroplane": (192, 0, 0),
    "water": (64, 128, 0),
    "face": (192, 128, 0),
    "car": (64, 0, 128),
    "bicycle": (192, 0, 128),
    "flower": (64, 128, 128),
    "sign": (192, 128, 128),
    "bird": (0, 64, 0),
    "book": (128, 64, 0),
    "chair": (0, 192, 0),
    "road": (128, 64, 128),
    "cat": (0, 192, 128),
    "dog": (128, 192, 128),
    "body": (64, 64, 0),
    "boat": (192, 64, 0),
}
"""The labels of MSRC and their colors in its `_GT` files, in the order of the label maps."""

PACKED = {
    "Caltech-101": "caltech101_4class_jpeg.npz",
    "LFW": "lfw_funneled_crop150_jpeg.npz",
    "MSRC": "msrc_240_9class.npz",
}

REMEDY = {
    "Caltech-101": "Download caltech-101.zip from https://data.caltech.edu/records/mzrjq-6wc02, "
    "unpack its 101_ObjectCategories.tar.gz, and put the folder 101_ObjectCategories, with one "
    "folder per class, into that folder",
    "LFW": "Download lfw-funneled.tgz and pairs.txt of Labeled Faces in the Wild "
    "(http://vis-www.cs.umass.edu/lfw), and put the folder lfw_funneled, with one folder per "
    "person, and pairs.txt into that folder",
    "MSRC": "Download the pixel-wise labeled image database of Microsoft Research Cambridge "
    "(https://www.microsoft.com/en-us/research/project/image-understanding), and pass the "
    "unpacked folder, with images 1_1_s.bmp and maps 1_1_s_GT.bmp, in one folder or in Images "
    "and GroundTruth",
}


class LabeledImages(NamedTuple):
    """Images and their classes.

    Attributes
    ----------
    images : decoded on access
    y : the class of each image, an index of `class_names`
    class_names : names of the classes
    """

    images: Images
    y: NDArray[np.intp]
    class_names: tuple[str, ...]


class FacePairs(NamedTuple):
    """Images of faces, and pairs of them.

    Attributes
    ----------
    images : decoded on access
    people : name of the person of each image
    pairs : of shape (n, 2), rows of `images`
    is_same : whether a pair shows the same person
    folds : the fold of each pair, 0, 1, ...
    """

    images: Images
    people: NDArray[np.str_]
    pairs: NDArray[np.intp]
    is_same: NDArray[np.bool_]
    folds: NDArray[np.intp]


class LabelMaps(Images):
    """The label of each pixel of each image, an index of `LEGEND`; decoded on access.

    The sources are maps of shape (H, W), or files with the colors of the legend.

    Examples
    --------
    >>> LabelMaps([np.array([[2, 7]], dtype=np.uint8)], ["1_1_s"])[0]
    array([[2, 7]], dtype=uint8)
    """

    def read(self, source: Source) -> NDArray[np.uint8]:
        """The labels of a map."""
        pixels = read_image(source)
        return pixels if pixels.ndim == 2 else labels_of(pixels)


class SegmentedImages(NamedTuple):
    """Images and the labels of their pixels.

    Attributes
    ----------
    images, maps : decoded on access, in the same order
    class_names : names of the labels; 0 is void
    """

    images: Images
    maps: LabelMaps
    class_names: tuple[str, ...]


def load_caltech101(
    folder: Folder = None, classes: Sequence[str] = CALTECH101, *, gray: bool = True
) -> LabeledImages:
    """Classes of Caltech-101 (Fei-Fei, Fergus and Perona, 2006), sorted by class.

    Parameters
    ----------
    folder : one with `101_ObjectCategories`, or that folder itself, or one with the file
        `caltech101_4class_jpeg.npz`. None uses $BOOSTMETRIC_DATA
    classes : names of folders
    gray : whether to convert images to gray

    Examples
    --------
    >>> load_caltech101("nowhere")
    Traceback (most recent call last):
    ...
    boostmetric_paper.datasets.catalogue.DatasetError: There is no folder nowhere. Download ...
    """
    place = _place("Caltech-101", folder)
    packed = place / PACKED["Caltech-101"]
    listed = _packed_classes(packed) if packed.is_file() else _class_folders(place)
    _check_classes(place, {name: bool(listed.get(name)) for name in classes})
    files = {member: source for name in classes for member, source in listed[name].items()}
    images = Images(list(files.values()), list(files), gray)
    y = np.repeat(np.arange(len(classes)), [len(listed[name]) for name in classes])
    unreadable = images.unreadable()
    y = np.delete(y, unreadable)
    _check_classes(place, {name: label in y for label, name in enumerate(classes)})
    return LabeledImages(images.leave_out(unreadable), y, tuple(classes))


def load_lfw(folder: Folder = None, *, gray: bool = True) -> FacePairs:
    """Labeled Faces in the Wild (Huang et al., 2007), funneled, and the pairs of its ten folds.

    Pairs with an unreadable image are skipped.

    Parameters
    ----------
    folder : one with `lfw_funneled` and `pairs.txt`; or one with the file
        `lfw_funneled_crop150_jpeg.npz`, whose images are gray, the central 150 × 150 pixels.
        None uses $BOOSTMETRIC_DATA
    gray : whether to convert images to gray

    Examples
    --------
    >>> load_lfw("nowhere")
    Traceback (most recent call last):
    ...
    boostmetric_paper.datasets.catalogue.DatasetError: There is no folder nowhere. Download lfw...
    """
    place = _place("LFW", folder)
    if (path := place / PACKED["LFW"]).is_file():
        keys = ("jpeg", "offsets", "names", "pairs", "pairs_same", "pairs_fold")
        stored = _unpacked("LFW", path, keys)
        names = stored["names"].tolist()
        images = Images(_members(stored["jpeg"], stored["offsets"]), names, gray)
        pairs, is_same, folds = (stored[key] for key in keys[3:])
    else:
        root, text = place / "lfw_funneled", _pairs_file(place)
        files = [file for person in _folders(root) for file in _files(person, ".jpg")]
        if not files:
            raise _error(
                "LFW", f"{place} has no folder lfw_funneled with images NAME/NAME_0001.jpg"
            )
        images = Images(files, [file.stem for file in files], gray)
        pairs, is_same, folds = read_pairs(text, images.names)
    unreadable = images.unreadable()
    kept = ~np.isin(pairs, unreadable).any(axis=1)
    moved = pairs[kept] - np.searchsorted(unreadable, pairs[kept])
    images = images.leave_out(unreadable)
    people = np.array([name.rpartition("_")[0] for name in images.names])
    return FacePairs(
        images,
        people,
        moved.astype(np.intp),
        is_same[kept].astype(bool),
        folds[kept].astype(np.intp),
    )


def load_msrc(folder: Folder = None) -> SegmentedImages:
    """The first 240 images of Microsoft Research Cambridge's set, with the label of each pixel.

    These are rows 1 to 8 of 20 in version 2, or all images of version 1. An image is skipped if its
    map cannot be read or contains a color that is not in the legend.

    Parameters
    ----------
    folder : the unpacked archive, or a folder with the file `msrc_240_9class.npz`. None
        uses $BOOSTMETRIC_DATA

    Examples
    --------
    >>> load_msrc("nowhere")
    Traceback (most recent call last):
    ...
    boostmetric_paper.datasets.catalogue.DatasetError: There is no folder nowhere. Download ...
    """
    place = _place("MSRC", folder)
    packed = place / PACKED["MSRC"]
    images, maps = _packed_maps(packed) if packed.is_file() else _map_files(place)
    unreadable = sorted({*images.unreadable(), *maps.unreadable()})
    return SegmentedImages(images.leave_out(unreadable), maps.leave_out(unreadable), tuple(LEGEND))


def read_pairs(
    path: str | os.PathLike[str], names: Sequence[str]
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.intp]]:
    r"""The pairs of a file `pairs.txt` as rows of `names`, whether each is the same, its fold.

    The first line contains the number of folds and the number of same pairs per fold. A fold has
    this many lines `NAME 1 4`, followed by as many lines `NAME 1 OTHER 2`.

    Parameters
    ----------
    path : the file
    names : names of images, such as NAME_0001

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "pairs.txt")
    >>> _ = path.write_text("1 1\nAnn_Lee 1 2\nAnn_Lee 2 Bo 1\n")
    >>> read_pairs(path, ["Ann_Lee_0001", "Ann_Lee_0002", "Bo_0001"])
    (array([[0, 1],
           [1, 2]]), array([ True, False]), array([0, 0]))
    """
    row_of = {name: row for row, name in enumerate(names)}
    lines = [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    try:
        (first, *more), *lines = [line for line in lines if line]
        n_folds, size = (int(first), int(*more)) if more else (1, int(first))
        ends = [_pair(line) for line in lines]
        pairs = np.array([[row_of[a], row_of[b]] for a, b in ends]).reshape(-1, 2)
    except KeyError as error:
        raise _error("LFW", f"{path} contains the image {error}, which does not exist") from None
    except (TypeError, ValueError) as error:
        raise _error("LFW", f"{path} is not a list of pairs ({error})") from None
    if len(lines) != 2 * n_folds * size:
        raise _error(
            "LFW", f"{path} has {len(lines)} pairs instead of {n_folds} folds of {2 * size}"
        )
    is_same = np.array([len(line) == 3 for line in lines])
    return pairs, is_same, np.repeat(np.arange(n_folds), 2 * size)


def labels_of(colors: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The labels of a map of colors by `LEGEND`, of shape (H, W).

    Examples
    --------
    >>> labels_of(np.array([[[0, 128, 0], [128, 128, 128]]], dtype=np.uint8))
    array([[2, 7]], dtype=uint8)
    """
    codes = colors.astype(np.int64) @ (1 << 16, 1 << 8, 1)
    legend = np.array(list(LEGEND.values())) @ (1 << 16, 1 << 8, 1)
    order = legend.argsort()
    places = np.searchsorted(legend, codes, sorter=order).clip(max=len(legend) - 1)
    labels = order[places]
    if np.any(unknown := legend[labels] != codes):
        color = tuple(colors[unknown][0].tolist())
        raise ImageError(f"A map contains the color {color}, which is not in the legend of MSRC.")
    return labels.astype(np.uint8)


def _pair(line: list[str]) -> tuple[str, str]:
    if len(line) == 3:
        name, first, second = line
        return f"{name}_{int(first):04d}", f"{name}_{int(second):04d}"
    name, first, other, second = line
    return f"{name}_{int(first):04d}", f"{other}_{int(second):04d}"


def _place(name: str, folder: Folder) -> Path:
    place = folder_of(folder)
    if place is None:
        raise _error(name, f"{name} requires a folder: pass one, or set {VARIABLE}")
    if not place.is_dir():
        raise _error(name, f"There is no folder {place}")
    return place


def _pairs_file(place: Path) -> Path:
    for path in (place / "pairs.txt", place / "lfw_funneled" / "pairs.txt"):
        if path.is_file():
            return path
    raise _error("LFW", f"{place} has no file pairs.txt")


def _check_classes(place: Path, has_images: Mapping[str, bool]) -> None:
    if empty := [name for name, has in has_images.items() if not has]:
        raise _error("Caltech-101", f"{place} has no image of the class {', '.join(empty)}")


def _packed_classes(path: Path) -> dict[str, dict[str, Source]]:
    """The images of each class by name."""
    stored = _unpacked("Caltech-101", path, ("jpeg", "offsets", "y", "names", "target_names"))
    files = zip(stored["names"].tolist(), _members(stored["jpeg"], stored["offsets"]), strict=True)
    listed: dict[str, dict[str, Source]] = {name: {} for name in stored["target_names"].tolist()}
    owners = stored["target_names"][stored["y"]].tolist()
    for owner, (name, source) in zip(owners, files, strict=True):
        listed[owner][name] = source
    return listed


def _class_folders(place: Path) -> dict[str, dict[str, Source]]:
    root = place / "101_ObjectCategories"
    folders = _folders(root if root.is_dir() else place)
    return {
        each.name: {f"{each.name}/{file.name}": file for file in _files(each)} for each in folders
    }


def _packed_maps(path: Path) -> tuple[Images, LabelMaps]:
    stored = _unpacked("MSRC", path, ("webp", "offsets", "gt", "gt_offsets", "shape", "names"))
    names = stored["names"].tolist()
    flat = np.split(stored["gt"], stored["gt_offsets"][1:-1])
    maps = [each.reshape(shape) for each, shape in zip(flat, stored["shape"].tolist(), strict=True)]
    return Images(_members(stored["webp"], stored["offsets"]), names), LabelMaps(maps, names)


def _map_files(place: Path) -> tuple[Images, LabelMaps]:
    found = {file.stem: file for file in place.rglob("[1-8]_*_s*.bmp")}
    names = [name for name in found if f"{name}_GT" in found]
    if not names:
        raise _error("MSRC", f"{place} has no image 1_1_s.bmp with a map 1_1_s_GT.bmp")
    names.sort(key=lambda name: [int(part) for part in name.split("_")[:2]])
    return (
        Images([found[name] for name in names], names),
        LabelMaps([found[f"{name}_GT"] for name in names], names),
    )


def _unpacked(name: str, path: Path, keys: Iterable[str]) -> dict[str, NDArray]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            return {key: stored[key] for key in keys}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise _error(name, f"{path} is damaged ({error}); remove it") from None


def _members(packed: NDArray[np.uint8], offsets: NDArray[np.int64]) -> list[Source]:
    """The files that are concatenated in `packed`."""
    data, ends = packed.tobytes(), offsets.tolist()
    return [data[start:end] for start, end in pairwise(ends)]


def _folders(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []


def _files(place: Path, suffix: str = "") -> list[Path]:
    """The files of a folder sorted by name, without hidden ones; empty without a folder."""
    if not place.is_dir():
        return []
    found = (path for path in place.iterdir() if path.is_file() and path.name[0] != ".")
    return sorted(path for path in found if path.name.endswith(suffix))


def _error(name: str, why: str) -> DatasetError:
    return DatasetError(f"{why}. {REMEDY[name]}.")
