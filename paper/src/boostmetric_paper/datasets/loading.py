"""Datasets in memory: read and checked, split as in the paper, reduced by PCA."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from boostmetric.data.synthetic import balance_scale
from boostmetric_paper.datasets.catalogue import (
    VARIABLE,
    DatasetError,
    Entry,
    File,
    entry_of,
    folder_of,
    remedy,
)


class Part(NamedTuple):
    """Some points of a dataset, one a row of X, and their labels y."""

    X: NDArray
    y: NDArray


class Split(NamedTuple):
    """The three disjoint parts of a dataset."""

    train: Part
    validation: Part
    test: Part


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled points, and how the paper divides and reduces them.

    Parameters
    ----------
    name : one of `NAMES`
    X : array of shape (number of points, number of features), float32 for mnist, else float64
    y : array of the labels: integers, or names where the classes have some
    feature_names : one for each column of X
    class_names : the classes in the order in which the labels sort
    sizes : numbers of training, validation and test points
    n_pca : the dimension to which the paper reduces the points by PCA; None where it does not

    Examples
    --------
    >>> wine = load("wine")
    >>> wine.X.shape, wine.sizes, wine.class_names
    ((178, 13), (125, 27, 26), ['0', '1', '2'])
    """

    name: str
    X: NDArray
    y: NDArray
    feature_names: list[str]
    class_names: list[str]
    sizes: tuple[int, int, int]
    n_pca: int | None = None

    def split(self, seed: int) -> Split:
        """A random split of the paper's sizes, before PCA; the seed is that of `paper_split`.

        Examples
        --------
        >>> train, validation, test = load("balance").split(seed=0)
        >>> len(train.X), len(validation.X), len(test.X)
        (438, 94, 93)
        """
        parts = paper_split(len(self.X), self.sizes, seed)
        return Split(*(Part(self.X[rows], self.y[rows]) for rows in parts))

    def reduced(self, split: Split) -> Split:
        """The split mapped to `n_pca` dimensions by the PCA of its training part.

        Where `n_pca` is None, the split as it is.

        Examples
        --------
        >>> from dataclasses import replace
        >>> wine = replace(load("wine"), n_pca=5)
        >>> [part.X.shape for part in wine.reduced(wine.split(seed=0))]
        [(125, 5), (27, 5), (26, 5)]
        """
        if self.n_pca is None:
            return split
        pca = PCA(self.n_pca, random_state=0).fit(split.train.X)
        return Split(*(Part(pca.transform(part.X), part.y) for part in split))


def paper_split(n: int, sizes: Sequence[int], seed: int) -> tuple[NDArray, NDArray, NDArray]:
    """A random split of n rows into training, validation and test part.

    Parameters
    ----------
    n : number of rows
    sizes : numbers of rows of the three parts, n together
    seed : the same seed gives the same split

    Returns
    -------
    train, validation, test : arrays of row numbers, disjoint

    Examples
    --------
    >>> train, validation, test = paper_split(150, (105, 23, 22), seed=0)
    >>> len(train), len(validation), len(test)
    (105, 23, 22)
    """
    if len(sizes) != 3 or min(sizes) < 0 or sum(sizes) != n:
        raise ValueError(f"sizes must be three numbers that add up to n={n}; got {tuple(sizes)}.")
    rows = np.random.default_rng(seed).permutation(n)
    train, validation, test = np.split(rows, np.cumsum(sizes)[:2])
    return train, validation, test


def load(name: str, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """One of the paper's datasets.

    Of mnist, usps, letter, b-cancer and diabetes the numbers are as published. The faces of yfaces
    are scaled to unit length: the paper does not say what it did to them, and this comes nearest to
    its Euclidean error. Of b-cancer, the 683 points without missing values are taken. In iris, two
    rows of scikit-learn's are set to UCI's, which the paper used.

    Parameters
    ----------
    name : one of `NAMES`
    folder : where the file of a dataset is that is not built in; None takes the folder that the
        environment variable BOOSTMETRIC_DATA names

    Raises
    ------
    DatasetError
        If there is no such dataset, or its file is missing or not what it should be.

    Examples
    --------
    >>> iris = load("iris")
    >>> iris.X.shape, str(iris.y[0]), iris.feature_names[0]
    ((150, 4), 'setosa', 'sepal_length')
    """
    entry = entry_of(name)
    if entry.file is None:
        X, labels = _BUILT_IN[name]()
    else:
        X, labels = read(name, entry, path_of(name, entry.file, folder))
        X, labels = _prepared(name, X, labels)
    return Dataset(
        name=name,
        X=X,
        y=np.array(entry.class_names)[labels] if entry.has_named_labels else labels,
        feature_names=list(entry.feature_names),
        class_names=list(entry.class_names),
        sizes=entry.sizes,
        n_pca=entry.n_pca,
    )


def describe(name: str, folder: str | os.PathLike[str] | None = None) -> str:
    """One line about a dataset: points, features, classes, split, source, whether it is there.

    Parameters
    ----------
    name, folder : as those of `load`

    Examples
    --------
    >>> print(describe("wine"))
    wine        178 x 13     3 classes  125/27/26          scikit-learn                 built in
    """
    entry = entry_of(name)
    status = "built in"
    if entry.file is not None:
        place = folder_of(folder)
        is_there = place is not None and (place / entry.file.name).is_file()
        status = "there" if is_there else "missing"
    return (
        f"{name:<9} {sum(entry.sizes):>5} x {len(entry.feature_names):<4} "
        f"{len(entry.class_names):>3} classes  {'/'.join(map(str, entry.sizes)):<17}  "
        f"{entry.source:<27}  {status}"
    )


def path_of(name: str, file: File, folder: str | os.PathLike[str] | None) -> Path:
    """The path of a dataset's file, which must be there."""
    place = folder_of(folder)
    if place is None:
        raise DatasetError(
            f"{name} is read from a file {file.name}, and no folder is given: name one, or set "
            f"{VARIABLE}; if the file is not in it, {remedy(name, file)}"
        )
    if not (place / file.name).is_file():
        raise DatasetError(f"there is no file {place / file.name}: {remedy(name, file)}")
    return place / file.name


def read(name: str, entry: Entry, path: Path) -> tuple[NDArray, NDArray]:
    """X and the labels 0, 1, ... of a dataset's file, as stored, after checking them."""
    file = entry.file
    assert file is not None
    try:
        X, labels = _arrays(path)
        _check(X, labels, entry, file)
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, BadZipFile, NotImplementedError, zlib.error) as error:
        raise DatasetError(
            f"{path} is not {name}: {error}; move it away: {remedy(name, file)}"
        ) from None
    return X, labels.astype(np.intp)


def _arrays(path: Path) -> tuple[NDArray, NDArray]:
    if not is_zipfile(path):
        raise ValueError("it is truncated, or no file of arrays, which is needed")
    with np.load(path, allow_pickle=False) as stored:
        if not {"X", "y"}.issubset(stored.files):
            raise ValueError(f"it holds {', '.join(stored.files)}, X and y are needed")
        return stored["X"], stored["y"]


def _check(X: NDArray, labels: NDArray, entry: Entry, file: File) -> None:
    if X.dtype.kind not in "uif" or labels.dtype.kind not in "ui":
        raise ValueError(
            f"X and y are of type {X.dtype} and {labels.dtype}, numbers and integers are needed"
        )
    if X.shape != file.shape or labels.shape != file.shape[:1]:
        raise ValueError(
            f"X and y have the shapes {X.shape} and {labels.shape}, "
            f"{file.shape} and {file.shape[:1]} are needed"
        )
    span = (float(X.min()), float(X.max()))
    if span != file.span:
        raise ValueError(
            f"X goes from {span[0]:g} to {span[1]:g}, {file.span[0]} to {file.span[1]} is needed"
        )
    if labels.min() < 0 or labels.max() >= len(file.counts):
        raise ValueError(
            f"y goes from {labels.min()} to {labels.max()}, 0 to {len(file.counts) - 1} is needed"
        )
    counts = np.bincount(labels, minlength=len(file.counts)).tolist()
    for label, (count, needed) in enumerate(zip(counts, file.counts, strict=True)):
        if count != needed:
            raise ValueError(
                f"{count} points are of class {entry.class_names[label]}, {needed} are needed"
            )

    if file.digest is not None and digest(X.astype(file.dtype), labels) != file.digest:
        raise ValueError("its rows have a wrong checksum")


def digest(X: NDArray, labels: NDArray) -> str:
    """A checksum of the rows (x, label), in whatever order they are.

    Examples
    --------
    >>> X, labels = np.array([[1, 2], [3, 4]]), np.array([0, 1])
    >>> digest(X, labels) == digest(X[::-1], labels[::-1])
    True
    >>> digest(X, labels) == digest(X, labels[::-1])
    False
    """
    X = np.ascontiguousarray(X, dtype=X.dtype.newbyteorder("<"))
    rows = (
        hashlib.sha256(x.tobytes() + b"%d" % c).digest() for x, c in zip(X, labels, strict=True)
    )
    return hashlib.sha256(b"".join(sorted(rows))).hexdigest()


def _prepared(name: str, X: NDArray, labels: NDArray) -> tuple[NDArray, NDArray]:
    X = X.astype(np.float32 if name == "mnist" else np.float64)
    if name == "yfaces":
        return normalize(X, copy=False), labels
    if name == "b-cancer":
        is_complete = np.all(X > 0, axis=1)
        return X[is_complete], labels[is_complete]
    return X, labels


def _balance() -> tuple[NDArray, NDArray]:
    X, y = balance_scale()
    return X, np.unique(y, return_inverse=True)[1]


def _wine() -> tuple[NDArray, NDArray]:
    X, labels = load_wine(return_X_y=True)
    return X, labels


def _iris() -> tuple[NDArray, NDArray]:
    X, labels = load_iris(return_X_y=True)
    X[[34, 37]] = [4.9, 3.1, 1.5, 0.1]  # errors in UCI's file
    return X, labels


_BUILT_IN: dict[str, Callable[[], tuple[NDArray, NDArray]]] = {
    "balance": _balance,
    "wine": _wine,
    "iris": _iris,
}
