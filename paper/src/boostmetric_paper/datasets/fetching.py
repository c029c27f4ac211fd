"""Download of datasets from OpenML, checked and stored as `load` reads them."""

from __future__ import annotations

import os
import socket
import ssl
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from gzip import BadGzipFile
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from boostmetric_paper.datasets.catalogue import (
    VARIABLE,
    DatasetError,
    Entry,
    File,
    entry_of,
    folder_of,
    remedy,
)
from boostmetric_paper.datasets.loading import digest, read

TIMEOUT = 60.0
"""Seconds without an answer after which OpenML counts as unreachable."""

INTERVAL = 0.5
"""Seconds between two reports of progress."""


def show_progress(text: str) -> None:
    """Write over the last line of a terminal; anything else stays free of it."""
    if sys.stderr.isatty():
        print(f"\r{text:<79}", end="\r", file=sys.stderr, flush=True)


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] = show_progress,
) -> str:
    """Download a dataset from OpenML into a folder, unless its file is there already.

    What came is compared with a checksum of its rows in any order: those of OpenML's letter are
    not in UCI's, so that the same seed splits a file made from the one and the other differently.

    Parameters
    ----------
    name : one of `NAMES`
    folder : where the file goes, created if need be; None takes the folder that the environment
        variable BOOSTMETRIC_DATA names. A file that is there is never written over
    progress : called twice a second with a line about what goes on, and with "" at the end. As
        OpenML does not say how much is to come, the line says how much has come

    Returns
    -------
    message : one line about what was done

    Raises
    ------
    DatasetError
        If OpenML does not have the dataset, cannot be reached or sends something else, if the
        folder cannot be written to, or if it has another file of that name.

    Examples
    --------
    >>> fetch("iris")
    'iris is built in: there is nothing to fetch'
    """
    entry = entry_of(name)
    file = entry.file
    if file is None:
        return f"{name} is built in: there is nothing to fetch"
    place = folder_of(folder)
    if place is None:
        raise DatasetError(f"no folder to put {file.name} into: name one, or set {VARIABLE}")
    path = place / file.name
    if path.exists():
        read(name, entry, path)  # refuses what is not the dataset: it is not written over
        return f"{path} is there already and right: nothing is downloaded"
    if file.openml is None:
        raise DatasetError(f"there is no file {path}: {remedy(name, file)}")
    _install(name, entry, file, path, progress)
    return f"wrote {path}"


def _install(
    name: str, entry: Entry, file: File, path: Path, progress: Callable[[str], None]
) -> None:
    """Put the file at `path`, whole; all that is unfinished is in a folder that goes away."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=".fetch-") as temporary:
            with _reports(name, Path(temporary), progress):
                X, labels = _converted(_download(name, file, path, temporary), file)
            if digest(X, labels) != file.digest:
                raise DatasetError(
                    f"what OpenML sent as {name} is something else: {len(X)} rows of wrong "
                    f"checksum, {file.shape[0]} rows of {file.shape[1]} numbers are needed; "
                    f"nothing is kept; try again, or put the file {path} there yourself"
                )
            _store(Path(temporary) / file.name, X, labels, entry)
            os.replace(Path(temporary) / file.name, path)
    except OSError as error:
        raise DatasetError(f"cannot write {path}: {error.strerror or error}") from None


def _download(name: str, file: File, path: Path, cache: str) -> Bunch:
    """OpenML's dataset as scikit-learn reads it, by way of files in the folder `cache`."""
    remains = f"try again, or put the file {path} there yourself"
    try:
        with _patience(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn's, before it tries again
            return fetch_openml(
                file.openml, version=1, data_home=cache, as_frame=False, parser="liac-arff"
            )
    except (URLError, HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error
        raise DatasetError(
            f"could not reach OpenML: {reason}; is there a network? If so, {remains}"
        ) from None
    except (ValueError, KeyError, EOFError, BadGzipFile, zlib.error) as error:
        raise DatasetError(f"cannot read what OpenML sent as {name}: {error}; {remains}") from None


def _converted(came: Bunch, file: File) -> tuple[NDArray, NDArray]:
    """Points, 0 for missing values, and labels 0, 1, ... in the order of the classes' names."""
    labels = np.unique(came.target.astype(str), return_inverse=True)[1]
    with np.errstate(invalid="ignore"):  # numbers beyond the type give another digest
        return np.nan_to_num(came.data, copy=False).astype(file.dtype), labels.astype(np.uint8)


def _store(path: Path, X: NDArray, labels: NDArray, entry: Entry) -> None:
    np.savez_compressed(
        path,
        X=X,
        y=labels,
        feature_names=np.array(entry.feature_names),
        target_names=np.array(entry.class_names),
        description=np.array(f"{entry.source}, version 1"),
    )


@contextmanager
def _patience() -> Iterator[None]:
    """Give up on connections that are silent for `TIMEOUT` seconds."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@contextmanager
def _reports(name: str, folder: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Report every `INTERVAL` seconds on the bytes that have come into a folder."""
    began = time.monotonic()
    is_over = threading.Event()

    def report() -> None:
        while True:
            seconds = time.monotonic() - began
            progress(f"{name} from OpenML: {_size(folder) / 1e6:.1f} MB in {seconds:.0f} s")
            if is_over.wait(INTERVAL):
                return

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        is_over.set()
        reporter.join()
        progress("")


def _size(folder: Path) -> int:
    """Bytes in the files of a folder; those that are being renamed may be missed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return total
