"""Features of images on disk, so that they are computed once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric._archive import ArchiveError, read_archive, write_archive

KIND, VERSION = "features", 1

VARIABLE = "BOOSTMETRIC_CACHE"
"""The environment variable that names the folder."""


class FeatureCache:
    """A folder with one file for the features of each image, by each set of parameters.

    The name of a file is a digest of the parameters and of the pixels, so nothing has to be
    cleared when either changes. A file that is damaged is computed anew, and several processes may
    share a folder, since files are written whole.

    Parameters
    ----------
    folder : where the files are; made if it is not there. None means the one that BOOSTMETRIC_CACHE
        names, or else `~/.cache/boostmetric`

    Examples
    --------
    >>> import tempfile
    >>> cache = FeatureCache(tempfile.mkdtemp())
    >>> image = np.eye(3, dtype=np.uint8)
    >>> cache.features(image, {"what": "mean"}, lambda image: image.mean(axis=0))
    array([0.33333333, 0.33333333, 0.33333333])
    >>> cache.features(image, {"what": "mean"}, lambda image: 1 / 0)
    array([0.33333333, 0.33333333, 0.33333333])
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        named = folder if folder is not None else os.environ.get(VARIABLE)
        self.folder = Path(named or Path.home() / ".cache" / "boostmetric")
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(
                f"{self.folder} is a file: features need a folder, so name one, there or not."
            )
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, image: NDArray[np.uint8], parameters: Mapping[str, Any]) -> Path:
        """The file of an image's features, whether it is there or not."""
        shape = f"\n{image.dtype.str} {image.shape}\n".encode()
        return self._path(parameters, shape + np.ascontiguousarray(image).tobytes())

    def features(
        self,
        image: NDArray[np.uint8],
        parameters: Mapping[str, Any],
        compute: Callable[[NDArray[np.uint8]], NDArray],
    ) -> NDArray:
        """The features of an image: from the folder, else computed, and put there.

        Parameters
        ----------
        image : its pixels
        parameters : all that `compute` depends on besides the image: booleans, numbers, texts, and
            lists and mappings (from texts) of such
        compute : from an image to an array of numbers
        """
        path = self.path(image, parameters)
        return self._kept(path, parameters, lambda: {"features": compute(image)})["features"]

    def arrays(
        self, parameters: Mapping[str, Any], compute: Callable[[], Mapping[str, NDArray]]
    ) -> dict[str, NDArray]:
        """Arrays by name that depend on parameters alone: from the folder, else computed.

        Parameters
        ----------
        parameters : all that `compute` depends on, as those of `features`: of data a digest
        compute : gives the arrays
        """
        return self._kept(self._path(parameters), parameters, compute)

    def _path(self, parameters: Mapping[str, Any], content: bytes = b"") -> Path:
        key = sha256(json.dumps(parameters, sort_keys=True).encode() + content)
        return self.folder / key.hexdigest()

    def _kept(
        self,
        path: Path,
        parameters: Mapping[str, Any],
        compute: Callable[[], Mapping[str, NDArray]],
    ) -> dict[str, NDArray]:
        try:
            return read_archive(path, KIND, VERSION)[1]
        except ArchiveError:
            arrays = dict(compute())
            write_archive(path, KIND, VERSION, parameters, arrays)
            return arrays
