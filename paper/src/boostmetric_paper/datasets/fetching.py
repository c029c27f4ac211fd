"""Download of datasets from OpenML."""

from __future__ import annotations

import os
import socket
import ssl
import warnings
import zlib
from gzip import BadGzipFile
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from boostmetric_paper.datasets.catalogue import (
    VARIABLE,
    DatasetError,
    File,
    entry_of,
    folder_of,
    remedy,
)
from boostmetric_paper.datasets.loading import digest, read

TIMEOUT_SECONDS = 60.0
"""Without an answer for this long, OpenML counts as unreachable."""


def fetch(name: str, folder: str | os.PathLike[str] | None = None) -> str:
    """Download a dataset from OpenML into a folder, unless its file exists.

    The download is compared with a checksum that does not depend on the order of the rows: OpenML's
    letter has another order than UCI's, so the same seed gives another split.

    Parameters
    ----------
    name : one of `NAMES`
    folder : folder of the file, created if necessary; None uses $BOOSTMETRIC_DATA. An existing file
        is never overwritten

    Returns
    -------
    message : one line about what was done

    Raises
    ------
    DatasetError
        If OpenML does not have the dataset, cannot be reached or returns other data, if the folder
        is not writable, or if it contains another file of that name.

    Examples
    --------
    >>> fetch("iris")
    'iris is built in: nothing to download.'
    """
    entry = entry_of(name)
    file = entry.file
    if file is None:
        return f"{name} is built in: nothing to download."
    place = folder_of(folder)
    if place is None:
        raise DatasetError(f"fetch requires a folder for {file.name}: pass one, or set {VARIABLE}.")
    path = place / file.name
    if path.exists():
        read(name, entry, path)  # raises an error if it is not the dataset
        return f"{path} exists already: nothing to download."
    if file.openml is None:
        raise DatasetError(f"There is no file {path}. {remedy(name, file)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # All incomplete files are in a folder that is removed.
        with TemporaryDirectory(dir=path.parent, prefix=".fetch-") as temporary:
            downloaded = _download(name, file, path, temporary)
            # Labels are 0, 1, ... in the order of the class names, missing values are 0.
            labels = np.unique(downloaded.target.astype(str), return_inverse=True)[1]
            with np.errstate(invalid="ignore"):  # values out of range change the checksum
                X = np.nan_to_num(downloaded.data, copy=False).astype(file.dtype)
            if digest(X, labels) != file.digest:
                raise DatasetError(
                    f"OpenML returned other data as {name}: {len(X)} rows with a wrong checksum "
                    f"instead of {file.shape[0]} rows of {file.shape[1]} numbers. Try again, or "
                    f"create the file {path} yourself."
                )
            np.savez_compressed(
                Path(temporary) / file.name,
                X=X,
                y=labels.astype(np.uint8),
                feature_names=np.array(entry.feature_names),
                target_names=np.array(entry.class_names),
                description=np.array(f"{entry.source}, version 1"),
            )
            os.replace(Path(temporary) / file.name, path)
    except OSError as error:
        raise DatasetError(f"Cannot write {path}: {error.strerror or error}") from None
    return f"Wrote {path}."


def _download(name: str, file: File, path: Path, cache: str) -> Bunch:
    """OpenML's dataset as scikit-learn reads it, with its files in the folder `cache`."""
    hint = f"Try again, or create the file {path} yourself."
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns before it tries again
            return fetch_openml(
                file.openml, version=1, data_home=cache, as_frame=False, parser="liac-arff"
            )
    except (URLError, HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error
        raise DatasetError(f"Cannot reach OpenML ({reason}). {hint}") from None
    except (ValueError, KeyError, EOFError, BadGzipFile, zlib.error) as error:
        raise DatasetError(f"Cannot read the data of OpenML for {name} ({error}). {hint}") from None
    finally:
        socket.setdefaulttimeout(timeout)
