"""Images that are decoded on access."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from boostmetric_paper.vision.packages import import_package

Source: TypeAlias = "NDArray[np.uint8] | bytes | str | os.PathLike[str]"
"""An image: its pixels, the contents of a file, or the path of a file."""

DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error)
"""What Pillow may raise for a file that is truncated or not an image."""


class ImageError(ValueError):
    """An image cannot be read; the message says why and what to do."""


def read_image(source: Source, *, gray: bool = False) -> NDArray[np.uint8]:
    """The pixels of an image, (H, W) or (H, W, 3), red, green and blue.

    Parameters
    ----------
    source : pixels, a uint8 array of one of these shapes; the contents of a file in any format that
        Pillow reads; or the path of such a file
    gray : whether to convert colors to gray, 0.299·R + 0.587·G + 0.114·B. If False, a file is read
        in color, and pixels are returned unchanged

    Examples
    --------
    >>> red = np.zeros((1, 2, 3), dtype=np.uint8)
    >>> red[..., 0] = 255
    >>> read_image(red, gray=True)
    array([[76, 76]], dtype=uint8)
    """
    if not isinstance(source, np.ndarray):
        return _decoded(source, "L" if gray else "RGB")
    _check_pixels(source)
    if not gray or source.ndim == 2:
        return source
    return np.array(import_package("PIL.Image").fromarray(source).convert("L"))


def _check_pixels(pixels: NDArray[Any]) -> None:
    is_shaped = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if pixels.dtype != np.uint8 or not is_shaped or pixels.size == 0:
        raise ImageError(
            "An image must be a nonempty uint8 array of shape (H, W) or (H, W, 3). Got "
            f"{pixels.dtype} of shape {pixels.shape} instead."
        )


def _decoded(source: bytes | str | os.PathLike[str], mode: str) -> NDArray[np.uint8]:
    pillow = import_package("PIL.Image")
    name = "these bytes" if isinstance(source, bytes) else os.fspath(source)
    try:
        with pillow.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return np.array(image.convert(mode))
    except FileNotFoundError:
        raise ImageError(f"There is no file {name}.") from None
    except (*DAMAGE, pillow.DecompressionBombError) as error:
        raise ImageError(
            f"{name} cannot be read as an image ({error}). Download it again, or remove it."
        ) from error


@dataclass(frozen=True, eq=False)
class Images(Sequence[NDArray[np.uint8]]):
    """A sequence of images that are decoded on access, `images[i]`.

    Parameters
    ----------
    sources : what `read_image` takes
    names : names of the images
    gray : see `read_image`
    skipped : names of images that were removed because they cannot be read

    Examples
    --------
    >>> images = Images([np.zeros((2, 3), dtype=np.uint8), b"no image"], ["dark", "broken"])
    >>> len(images), images[0].shape
    (2, (2, 3))
    >>> images.leave_out(images.unreadable()).skipped
    ('broken',)
    """

    sources: Sequence[Source]
    names: Sequence[str]
    gray: bool = False
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.names):
            raise ValueError(
                f"sources and names must have the same length. Got {len(self.sources)} and "
                f"{len(self.names)}."
            )

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> NDArray[np.uint8] | Self:
        """An image, or the images of a slice."""
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        return self.read(self.sources[index])

    def read(self, source: Source) -> NDArray[np.uint8]:
        """Decode a source."""
        return read_image(source, gray=self.gray)

    def take(self, rows: Iterable[int]) -> Self:
        """The images in these rows."""
        rows = list(rows)
        return replace(
            self,
            sources=[self.sources[row] for row in rows],
            names=[self.names[row] for row in rows],
        )

    def loaded(self) -> Self:
        """The images with the contents of files instead of paths."""
        return replace(
            self,
            sources=[
                Path(source).read_bytes() if isinstance(source, str | os.PathLike) else source
                for source in self.sources
            ],
        )

    def unreadable(self) -> list[int]:
        """The rows of images that cannot be read; decodes each image once."""
        rows = []
        for row in range(len(self)):
            try:
                self[row]
            except ImageError:
                rows.append(row)
        return rows

    def leave_out(self, rows: Iterable[int]) -> Self:
        """The images without these rows, whose names are added to `skipped`."""
        left_out = set(rows)
        kept = self.take(row for row in range(len(self)) if row not in left_out)
        return replace(
            kept, skipped=(*self.skipped, *(self.names[row] for row in sorted(left_out)))
        )
