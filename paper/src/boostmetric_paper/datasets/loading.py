"""Loading, checking and splitting of the datasets."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence
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
    """Points of a dataset, the rows of X, and their labels y."""

    X: NDArray
    y: NDArray


class Split(NamedTuple):
    """The three disjoint parts of a dataset."""

    train: Part
    validation: Part
    test: Part


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labeled points, and how the paper splits and reduces them.

    Parameters
    ----------
    name : one of `NAMES`
    X : array of shape (number of points, number of features), float32 for mnist, else float64
    y : array of the labels, integers or names
    feature_names : names of the columns of X
    class_names : names of the classes, in the order of the sorted labels
    sizes : numbers of training, validation and test points
    n_pca : number of PCA components in the paper; None without PCA

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
        """A random split of the paper's sizes, before PCA; see `paper_split`.

        Examples
        --------
        >>> train, validation, test = load("balance").split(seed=0)
        >>> len(train.X), len(validation.X), len(test.X)
        (438, 94, 93)
        """
        parts = paper_split(len(self.X), self.sizes, seed)
        return Split(*(Part(self.X[rows], self.y[rows]) for rows in parts))

    def reduced(self, split: Split) -> Split:
        """The split reduced to `n_pca` dimensions by a PCA of its training part.

        If `n_pca` is None, the split itself.

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
    """A random split of n rows into a training, a validation and a test part.

    Parameters
    ----------
    n : number of rows
    sizes : numbers of rows of the three parts, which sum to n
    seed : the same seed gives the same split

    Returns
    -------
    train, validation, test : disjoint arrays of rows

    Examples
    --------
    >>> train, validation, test = paper_split(150, (105, 23, 22), seed=0)
    >>> len(train), len(validation), len(test)
    (105, 23, 22)
    """
    if len(sizes) != 3 or min(sizes) < 0 or sum(sizes) != n:
        raise ValueError(f"sizes must be three numbers that sum to n={n}, got {tuple(sizes)}.")
    rows = np.random.default_rng(seed).permutation(n)
    train, validation, test = np.split(rows, np.cumsum(sizes)[:2])
    return train, validation, test


def load(name: str, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """One of the paper's datasets.

    The features of mnist, usps, letter, b-cancer and diabetes are as published. The faces of yfaces
    are scaled to unit length: the paper does not state its preprocessing, and this is closest to
    its Euclidean error. b-cancer has the 683 points without missing values. Two rows of
    scikit-learn's iris are set to the values of UCI, which the paper used.

    Parameters
    ----------
    name : one of `NAMES`
    folder : folder of the file of a dataset that is not built in; None uses $BOOSTMETRIC_DATA

    Raises
    ------
    DatasetError
        If there is no such dataset, or its file is missing or wrong.

    Examples
    --------
    >>> iris = load("iris")
    >>> iris.X.shape, str(iris.y[0]), iris.feature_names[0]
    ((150, 4), 'setosa', 'sepal_length')
    """
    entry = entry_of(name)
    if name == "balance":
        X, y = balance_scale()
        labels = np.unique(y, return_inverse=True)[1]
    elif name == "wine":
        X, labels = load_wine(return_X_y=True)
    elif name == "iris":
        X, labels = load_iris(return_X_y=True)
        X[[34, 37]] = [4.9, 3.1, 1.5, 0.1]  # errors in UCI's file
    else:
        assert entry.file is not None
        X, labels = read(name, entry, path_of(name, entry.file, folder))
        X = X.astype(np.float32 if name == "mnist" else np.float64)
        if name == "yfaces":
            X = normalize(X, copy=False)
        elif name == "b-cancer":
            is_complete = np.all(X > 0, axis=1)
            X, labels = X[is_complete], labels[is_complete]
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
    """One line about a dataset: points, features, classes, split, source, status.

    Parameters
    ----------
    name, folder : see `load`

    Examples
    --------
    >>> print(describe("wine"))
    wine        178 x 13     3 classes  125/27/26          scikit-learn                 built in
    """
    entry = entry_of(name)
    status = "built in"
    if entry.file is not None:
        place = folder_of(folder)
        is_file = place is not None and (place / entry.file.name).is_file()
        status = "available" if is_file else "missing"
    return (
        f"{name:<9} {sum(entry.sizes):>5} x {len(entry.feature_names):<4} "
        f"{len(entry.class_names):>3} classes  {'/'.join(map(str, entry.sizes)):<17}  "
        f"{entry.source:<27}  {status}"
    )


def path_of(name: str, file: File, folder: str | os.PathLike[str] | None) -> Path:
    """The path of a dataset's file, which must exist."""
    place = folder_of(folder)
    if place is None:
        raise DatasetError(
            f"{name} requires the folder of {file.name}: pass one, or set {VARIABLE}. "
            f"{remedy(name, file)}"
        )
    if not (place / file.name).is_file():
        raise DatasetError(f"There is no file {place / file.name}. {remedy(name, file)}")
    return place / file.name


def read(name: str, entry: Entry, path: Path) -> tuple[NDArray, NDArray]:
    """X and the labels 0, 1, ... of a dataset's file, checked."""
    file = entry.file
    assert file is not None
    try:
        X, labels = _arrays(path)
        _check(X, labels, entry, file)
    except OSError as error:
        raise DatasetError(f"Cannot read {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, BadZipFile, NotImplementedError, zlib.error) as error:
        raise DatasetError(
            f"{path} is not {name}: {error}. Remove it. {remedy(name, file)}"
        ) from None
    return X, labels.astype(np.intp)


def _arrays(path: Path) -> tuple[NDArray, NDArray]:
    if not is_zipfile(path):
        raise ValueError("it is truncated or not a file of arrays")
    with np.load(path, allow_pickle=False) as stored:
        if not {"X", "y"}.issubset(stored.files):
            raise ValueError(f"it must contain X and y, got {', '.join(stored.files)}")
        return stored["X"], stored["y"]


def _check(X: NDArray, labels: NDArray, entry: Entry, file: File) -> None:
    if X.dtype.kind not in "uif" or labels.dtype.kind not in "ui":
        raise ValueError(f"X must be numeric and y of integers, got {X.dtype} and {labels.dtype}")
    if X.shape != file.shape or labels.shape != file.shape[:1]:
        raise ValueError(
            f"X and y must have shapes {file.shape} and {file.shape[:1]}, "
            f"got {X.shape} and {labels.shape}"
        )
    span = (float(X.min()), float(X.max()))
    if span != file.span:
        raise ValueError(
            f"X must range from {file.span[0]} to {file.span[1]}, got {span[0]:g} to {span[1]:g}"
        )
    if labels.min() < 0 or labels.max() >= len(file.counts):
        raise ValueError(
            f"y must range from 0 to {len(file.counts) - 1}, got {labels.min()} to {labels.max()}"
        )
    counts = np.bincount(labels, minlength=len(file.counts)).tolist()
    for label, (count, needed) in enumerate(zip(counts, file.counts, strict=True)):
        if count != needed:
            raise ValueError(
                f"class {entry.class_names[label]} must have {needed} points, got {count}"
            )
    if file.digest is not None and digest(X.astype(file.dtype), labels) != file.digest:
        raise ValueError("its rows have a wrong checksum")


def digest(X: NDArray, labels: NDArray) -> str:
    """A checksum of the rows (x, label) that does not depend on their order.

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
