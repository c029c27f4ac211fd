"""Local descriptors of an image: SIFT at interest points, or on a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric_paper.vision.harris import harris_laplace
from boostmetric_paper.vision.images import Source, read_image
from boostmetric_paper.vision.packages import import_package

POINTS = ("interest", "harris", "dense")

N_ENTRIES = 128
"""Length of a SIFT descriptor: 4 × 4 cells of 8 orientations."""

PATCH_WIDTH = 6.0
"""Width of the patch that OpenCV describes, for a key point of size 1."""

CORNER_WIDTH = 12.0
"""Width of the patch of a corner, for a scale of 1; the same as for Lowe's interest points."""

BLUR, N_LAYERS = 1.6, 3
"""OpenCV's pyramid: standard deviation of its first image, and images per octave."""


@dataclass(frozen=True)
class Sift:
    """SIFT descriptors (Lowe, 2004) of an image, by OpenCV.

    Parameters
    ----------
    points : "interest" describes extrema of differences of Gaussians, each at its own scale and
        orientation; "harris" describes upright patches at corners, each at its own scale (see
        `harris_laplace`); "dense" describes upright patches on a grid
    step : pixels from one patch of the grid to the next
    sizes : widths in pixels of the patches of the grid, each of 4 × 4 cells; patches are inside
        the image
    root : whether a descriptor d becomes √(d/Σd) (RootSIFT; Arandjelović and Zisserman, 2012), so
        that Euclidean distances are Hellinger distances

    Examples
    --------
    >>> sift = Sift("dense", step=8, sizes=(16, 24))
    >>> len(sift.grid(np.zeros((24, 32), dtype=np.uint8)))
    8
    """

    points: str = "interest"
    step: int = 8
    sizes: tuple[float, ...] = (16,)
    root: bool = False

    def __post_init__(self) -> None:
        if self.points not in POINTS:
            raise ValueError(
                "The 'points' parameter must be 'interest', 'harris', 'dense', or a function from "
                f"an image to its descriptors. Got {self.points!r} instead."
            )
        if self.step < 1:
            raise ValueError(
                f"The 'step' parameter must be an int in the range [1, inf). Got {self.step} "
                "instead."
            )
        check_sizes(self.sizes)

    def __call__(self, image: Source) -> NDArray[np.float32]:
        """The descriptors of an image, of shape (n, 128); n may be 0."""
        cv2 = import_package("cv2")
        pixels = np.ascontiguousarray(read_image(image, gray=True))
        sift = cv2.SIFT_create()
        if self.points == "interest":
            found = sift.detectAndCompute(pixels, None)[1]
        else:
            spots = _corners(pixels) if self.points == "harris" else self._patches(pixels)
            found = sift.compute(pixels, spots)[1] if spots else None
        descriptors = np.empty((0, N_ENTRIES), np.float32) if found is None else found
        return root_sift(descriptors) if self.root else descriptors

    def _patches(self, pixels: NDArray[np.uint8]) -> list[Any]:
        key_point = import_package("cv2").KeyPoint
        return [key_point(x, y, size / PATCH_WIDTH, 0.0) for x, y, size in self.grid(pixels)]

    def grid(self, pixels: NDArray[np.uint8]) -> list[tuple[float, float, float]]:
        """Centers x and y, and widths, of the patches of an image, by size and row.

        Examples
        --------
        >>> Sift("dense", step=4, sizes=(8,)).grid(np.zeros((9, 13), np.uint8))
        [(4.0, 4.0, 8), (8.0, 4.0, 8)]
        """
        height, width = pixels.shape
        # Integers, since OpenCV rounds centers (half to even).
        return [
            (float(x), float(y), size)
            for size in self.sizes
            for y in range(round(size / 2), int(height - size / 2) + 1, self.step)
            for x in range(round(size / 2), int(width - size / 2) + 1, self.step)
        ]


def check_sizes(sizes: tuple[float, ...]) -> None:
    """Raise a ValueError if these are not valid widths of patches."""
    if not sizes or min(sizes) < 4:
        raise ValueError(
            "The 'sizes' parameter must contain at least one width, each at least 4 pixels. Got "
            f"{sizes} instead."
        )


def root_sift(descriptors: NDArray[np.float32]) -> NDArray[np.float32]:
    """√(d/Σd) for each row d; a row of zeros remains zero.

    Examples
    --------
    >>> root_sift(np.array([[1, 3], [0, 0]], dtype=np.float32)) ** 2
    array([[0.25, 0.75],
           [0.  , 0.  ]], dtype=float32)
    """
    sums = descriptors.sum(axis=1, keepdims=True)
    return np.sqrt(descriptors / np.where(sums > 0, sums, 1))


def _corners(pixels: NDArray[np.uint8]) -> list[Any]:
    """Key points at corners, each in the image of OpenCV's pyramid with the blur of its scale."""
    key_point = import_package("cv2").KeyPoint
    spots = []
    for x, y, scale in zip(*(part.tolist() for part in harris_laplace(pixels)), strict=True):
        octave, layer = divmod(max(0, round(N_LAYERS * math.log2(scale / BLUR))), N_LAYERS)
        size = CORNER_WIDTH / PATCH_WIDTH * scale
        spots.append(key_point(float(x), float(y), size, 0.0, 1.0, octave | layer << 8))
    return spots
