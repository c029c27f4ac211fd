"""The datasets: sizes, names, class counts, checksums and sources."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "BOOSTMETRIC_DATA"
"""The environment variable with the folder of the data."""


class DatasetError(ValueError):
    """A dataset is not available; the message says why and what to do."""


@dataclass(frozen=True)
class File:
    """A file of NumPy arrays X and y, and its expected contents.

    Parameters
    ----------
    name : name of the file
    shape : shape of X
    counts : number of points with label 0, 1, ...
    span : smallest and largest value of X
    dtype : type of X in files written by `fetch`
    openml : name on OpenML, version 1; None if OpenML does not have the dataset
    digest : checksum of the rows, see `boostmetric_paper.datasets.loading.digest`; None if they may
        differ
    recipe : what to download and store as X and y if OpenML does not have the dataset
    """

    name: str
    shape: tuple[int, int]
    counts: tuple[int, ...]
    span: tuple[float, float]
    dtype: str = "uint8"
    openml: str | None = None
    digest: str | None = None
    recipe: str = ""


@dataclass(frozen=True)
class Entry:
    """A dataset of the catalog.

    Parameters
    ----------
    sizes : numbers of training, validation and test points
    feature_names, class_names : in the order of the columns of X and of the labels 0, 1, ...
    source : origin of the data
    has_named_labels : whether y contains the names of the classes instead of integers
    n_pca : number of PCA components in the paper
    file : None for built-in data
    """

    sizes: tuple[int, int, int]
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]
    source: str
    has_named_labels: bool = False
    n_pca: int | None = None
    file: File | None = None


def _pixels(side: int) -> tuple[str, ...]:
    return tuple(f"pixel_{row}_{column}" for row in range(side) for column in range(side))


def _numbers(n: int) -> tuple[str, ...]:
    return tuple(map(str, range(n)))


LETTER_COUNTS = (
    *(789, 766, 736, 805, 768, 775, 773, 734, 755, 747, 739, 761, 792),
    *(783, 753, 803, 783, 758, 748, 796, 813, 764, 752, 787, 786, 734),
)
LETTER_FEATURES = (
    *("x-box", "y-box", "width", "high", "onpix", "x-bar", "y-bar", "x2bar", "y2bar"),
    *("xybar", "x2ybr", "xy2br", "x-ege", "xegvy", "y-ege", "yegvx"),
)
WINE_FEATURES = (
    *("alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols"),
    *("flavanoids", "nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue"),
    *("od280/od315_of_diluted_wines", "proline"),
)
CANCER_FEATURES = (
    *("clump_thickness", "cell_size", "cell_shape", "marginal_adhesion", "epithelial_cell_size"),
    *("bare_nuclei", "bland_chromatin", "normal_nucleoli", "mitoses"),
)
DIABETES_FEATURES = (
    *("pregnant", "glucose", "pressure", "triceps", "insulin", "mass", "pedigree", "age"),
)

CATALOGUE = {
    "mnist": Entry(
        sizes=(50_000, 10_000, 10_000),
        feature_names=_pixels(28),
        class_names=_numbers(10),
        source="OpenML mnist_784",
        n_pca=164,
        file=File(
            name="mnist.npz",
            shape=(70_000, 784),
            counts=(6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958),
            span=(0, 255),
            openml="mnist_784",
            digest="fa72ce6ff13ee356e0cb665081d2e557be5425456223c24c838c2a0207a5c5d6",
        ),
    ),
    "usps": Entry(
        sizes=(7_700, 1_650, 1_650),
        feature_names=_pixels(16),
        class_names=_numbers(10),
        source="usps_all.mat of Sam Roweis",
        n_pca=60,
        file=File(
            name="usps.npz",
            shape=(11_000, 256),
            counts=(1100,) * 10,
            span=(0, 255),
            recipe="usps_all.mat of Sam Roweis's collection (1,100 images per digit), y the digits",
        ),
    ),
    "letter": Entry(
        sizes=(10_500, 4_500, 5_000),
        feature_names=LETTER_FEATURES,
        class_names=tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        source="OpenML letter",
        has_named_labels=True,
        file=File(
            name="letter.npz",
            shape=(20_000, 16),
            counts=LETTER_COUNTS,
            span=(0, 15),
            openml="letter",
            digest="0d1643b46aebe1acc9c747fad0738e4a6588712beacc8cc266bbbaa66e6ff17f",
        ),
    ),
    "yfaces": Entry(
        sizes=(1_690, 362, 362),
        feature_names=_pixels(32),
        class_names=_numbers(38),
        source="YaleB_32x32.mat of Deng Cai",
        n_pca=300,
        file=File(
            name="yaleb_32x32.npz",
            shape=(2_414, 1_024),
            counts=(64,) * 10 + (60, 59, 60, 63, 62, 63, 63) + (64,) * 21,
            span=(0, 255),
            recipe="YaleB_32x32.mat of Deng Cai (the cropped Extended Yale B faces), y its gnd - 1",
        ),
    ),
    "balance": Entry(
        sizes=(438, 94, 93),
        feature_names=("left_weight", "left_distance", "right_weight", "right_distance"),
        class_names=("B", "L", "R"),
        source="computed",
        has_named_labels=True,
    ),
    "wine": Entry(
        sizes=(125, 27, 26),
        feature_names=WINE_FEATURES,
        class_names=_numbers(3),
        source="scikit-learn",
    ),
    "iris": Entry(
        sizes=(105, 23, 22),
        feature_names=("sepal_length", "sepal_width", "petal_length", "petal_width"),
        class_names=("setosa", "versicolor", "virginica"),
        source="scikit-learn",
        has_named_labels=True,
    ),
    "b-cancer": Entry(
        sizes=(478, 102, 103),
        feature_names=CANCER_FEATURES,
        class_names=("benign", "malignant"),
        source="OpenML breast-w",
        has_named_labels=True,
        file=File(
            name="breast_cancer_wisconsin.npz",
            shape=(699, 9),
            counts=(458, 241),
            span=(0, 10),
            openml="breast-w",
            digest="6a21f27a52b52bf3b3e1b0d440693c593a66d50bf86af98f0cee02735645c918",
        ),
    ),
    "diabetes": Entry(
        sizes=(538, 115, 115),
        feature_names=DIABETES_FEATURES,
        class_names=("neg", "pos"),
        source="OpenML diabetes",
        has_named_labels=True,
        file=File(
            name="diabetes_pima.npz",
            shape=(768, 8),
            counts=(500, 268),
            span=(0, 846),
            dtype="float64",
            openml="diabetes",
            digest="cf7ac6bedf62ce243ee8bc16743f9df2d0205d64fcb288112594ef42f13a122b",
        ),
    ),
}
"""The datasets of Table 1 in its order, then those of Table 2. The paper does not state the split
sizes of the latter; they are 70, 15 and 15 percent, rounded as in Table 1."""

NAMES = tuple(CATALOGUE)
"""The names of all datasets."""


def entry_of(name: str) -> Entry:
    """The entry of a dataset.

    Examples
    --------
    >>> entry_of("usps").sizes
    (7700, 1650, 1650)
    >>> entry_of("USPS")
    Traceback (most recent call last):
    boostmetric_paper.datasets.catalogue.DatasetError: There is no dataset 'USPS'. Choose from ...
    """
    if name not in CATALOGUE:
        raise DatasetError(f"There is no dataset {name!r}. Choose from {', '.join(NAMES)}.")
    return CATALOGUE[name]


def folder_of(folder: str | os.PathLike[str] | None) -> Path | None:
    """The folder, or $BOOSTMETRIC_DATA if it is None, or None if that is not set."""
    given = folder if folder is not None else os.environ.get(VARIABLE) or None
    return None if given is None else Path(given)


def remedy(name: str, file: File) -> str:
    """A sentence on how to get the file of a dataset."""
    if file.openml is not None:
        return f"Run `boostmetric-paper data fetch {name}` to download it."
    return (
        f"OpenML does not have it in the paper's form. Download {file.recipe} from 0 to "
        f"{len(file.counts) - 1}, X {file.shape[0]} x {file.shape[1]} integers from "
        f"{file.span[0]} to {file.span[1]}, one image per row, and store them with "
        f"numpy.savez_compressed('{file.name}', X=X, y=y)."
    )
