"""Images that are decoded when they are asked for."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from boostmetric_paper.vision.packages import needed

Source: TypeAlias = "NDArray[np.uint8] | bytes | str | os.PathLike[str]"
"""An image: its pixels, the contents of a file, or the path of one."""

DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error)
"""What Pillow may raise for a file that is truncated or no image."""


class ImageError(ValueError):
    """An image that cannot be read. The message says why and what to do."""


def read_image(source: Source, *, grey: bool = False) -> NDArray[np.uint8]:
    """The pixels of an image, (H, W) or (H, W, 3), red, green and blue.

    Parameters
    ----------
    source : pixels, bytes of 0 to 255 of one of those shapes; the contents of a file of any format
        that Pillow reads; or the path of such a file
    grey : whether colours become grey, 0.299·R + 0.587·G + 0.114·B. If not, a file is read in
        colour, and pixels stay as they are

    Examples
    --------
    >>> red = np.zeros((1, 2, 3), dtype=np.uint8)
    >>> red[..., 0] = 255
    >>> read_image(red, grey=True)
    array([[76, 76]], dtype=uint8)
    """
    if not isinstance(source, np.ndarray):
        return _decoded(source, "L" if grey else "RGB")
    _check_pixels(source)
    if not grey or source.ndim == 2:
        return source
    return np.array(needed("PIL.Image").fromarray(source).convert("L"))


def _check_pixels(pixels: NDArray[Any]) -> None:
    is_shaped = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if pixels.dtype != np.uint8 or not is_shaped or pixels.size == 0:
        raise ImageError(
            f"an image came as an array of {pixels.dtype} of shape {pixels.shape}: give one of "
            "uint8, 0 to 255, of shape (H, W) or (H, W, 3), without an empty side."
        )


def _decoded(source: bytes | str | os.PathLike[str], mode: str) -> NDArray[np.uint8]:
    pillow = needed("PIL.Image")
    name = "these bytes" if isinstance(source, bytes) else os.fspath(source)
    try:
        with pillow.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return np.array(image.convert(mode))
    except FileNotFoundError:
        raise ImageError(f"there is no image {name}: give the path of one.") from None
    except (*DAMAGE, pillow.DecompressionBombError) as error:
        raise ImageError(
            f"{name} cannot be read as an image ({error}): get it again, or leave it out."
        ) from error


@dataclass(frozen=True, eq=False)
class Images(Sequence[NDArray[np.uint8]]):
    """A sequence of images, of which none is held in memory: `images[i]` decodes the i-th.

    Parameters
    ----------
    sources : what `read_image` takes
    names : one for each
    grey : as that of `read_image`
    skipped : names of images that were left out because they could not be read

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
    grey: bool = False
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.names):
            raise ValueError(
                f"there are {len(self.sources)} images and {len(self.names)} names: give one name "
                "for each image."
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
        """What a source has to show."""
        return read_image(source, grey=self.grey)

    def take(self, rows: Iterable[int]) -> Self:
        """The images of these rows."""
        rows = list(rows)
        return replace(
            self,
            sources=[self.sources[row] for row in rows],
            names=[self.names[row] for row in rows],
        )

    def unreadable(self) -> list[int]:
        """The rows of the images that cannot be read, found by decoding each of them once."""
        return [row for row in range(len(self)) if not self._is_readable(row)]

    def leave_out(self, rows: Iterable[int]) -> Self:
        """The images but those of these rows, whose names are added to `skipped`."""
        left_out = set(rows)
        kept = self.take(row for row in range(len(self)) if row not in left_out)
        return replace(
            kept, skipped=(*self.skipped, *(self.names[row] for row in sorted(left_out)))
        )

    def _is_readable(self, row: int) -> bool:
        try:
            self[row]
        except ImageError:
            return False
        return True
