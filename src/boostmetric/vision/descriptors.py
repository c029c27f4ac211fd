"""Local descriptors of an image: SIFT at interest points, or on a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.vision.images import Source, read_image
from boostmetric.vision.packages import needed

POINTS = ("interest", "dense")

N_ENTRIES = 128
"""Entries of a SIFT descriptor: 4 × 4 cells of 8 orientations."""

WIDTH = 6.0
"""The width of the patch that OpenCV describes, for a key point of size 1."""


@dataclass(frozen=True)
class Sift:
    """SIFT descriptors (Lowe, 2004) of an image, by OpenCV.

    Parameters
    ----------
    points : "interest" describes extrema of differences of Gaussians, each at its own scale and
        orientation; "dense" describes upright patches on a grid
    step : pixels from one patch of the grid to the next
    sizes : widths in pixels of the patches of the grid, each of 4 × 4 cells; patches lie within
        the image
    root : whether a descriptor d becomes √(d/Σd) (RootSIFT; Arandjelović and Zisserman, 2012), so
        that Euclidean distances are Hellinger's

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
                f"points={self.points!r} will not do: 'interest', 'dense', or a function from an "
                "image to its descriptors will."
            )
        if self.step < 1:
            raise ValueError(f"step={self.step} will not do: give a whole number of pixels, 1 up.")
        if not self.sizes or min(self.sizes) < 4:
            raise ValueError(
                f"sizes={self.sizes} will not do: give one width of patches or more, each of at "
                "least 4 pixels."
            )

    @property
    def parameters(self) -> dict[str, Any]:
        """All that the descriptors depend on besides the image."""
        grid = {"step": self.step, "sizes": list(self.sizes)} if self.points == "dense" else {}
        return {"points": self.points, "root": self.root, "opencv": _version(), **grid}

    def __call__(self, image: Source) -> NDArray[np.float32]:
        """The descriptors of an image, of shape (n, 128); n may be 0."""
        cv2 = needed("cv2")
        pixels = np.ascontiguousarray(read_image(image, grey=True))
        sift = cv2.SIFT_create()
        if self.points == "interest":
            found = sift.detectAndCompute(pixels, None)[1]
        else:
            spots = [cv2.KeyPoint(x, y, size / WIDTH, 0.0) for x, y, size in self.grid(pixels)]
            found = sift.compute(pixels, spots)[1] if spots else None
        descriptors = np.empty((0, N_ENTRIES), np.float32) if found is None else found
        return root_sift(descriptors) if self.root else descriptors

    def grid(self, pixels: NDArray[np.uint8]) -> list[tuple[float, float, float]]:
        """Centres x and y, and widths, of the patches of an image: size by size, row by row.

        Examples
        --------
        >>> Sift("dense", step=4, sizes=(8,)).grid(np.zeros((9, 13), np.uint8))
        [(4.0, 4.0, 8), (8.0, 4.0, 8)]
        """
        height, width = pixels.shape
        # Whole pixels, since OpenCV rounds centres, halves to the even side.
        return [
            (float(x), float(y), size)
            for size in self.sizes
            for y in range(round(size / 2), int(height - size / 2) + 1, self.step)
            for x in range(round(size / 2), int(width - size / 2) + 1, self.step)
        ]


def root_sift(descriptors: NDArray[np.float32]) -> NDArray[np.float32]:
    """√(d/Σd) for each row d; a row of zeros stays so.

    Examples
    --------
    >>> root_sift(np.array([[1, 3], [0, 0]], dtype=np.float32)) ** 2
    array([[0.25, 0.75],
           [0.  , 0.  ]], dtype=float32)
    """
    sums = descriptors.sum(axis=1, keepdims=True)
    return np.sqrt(descriptors / np.where(sums > 0, sums, 1))


def _version() -> str:
    return str(needed("cv2").__version__)
