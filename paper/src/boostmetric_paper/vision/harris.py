"""Corners at their scales: the Harris–Laplace detector (Mikolajczyk and Schmid, 2004)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from boostmetric_paper.vision.packages import import_package

SCALES = tuple(1.2**power for power in range(15))
"""Scales of corners: standard deviations of Gaussians, in pixels."""

STRIDE = 2
"""Corners are detected at every second scale, and assigned to a scale at most this far away."""

DERIVATIVE_RATIO = 0.7
"""Standard deviation of the derivatives, relative to that of the window."""

KAPPA = 0.04
"""κ of the Harris measure det μ − κ·(Tr μ)²."""

THRESHOLD = 5e-6
"""Smallest measure of a corner, for gray values from 0 to 1. Images of Caltech-101 then have about
as many corners as the paper has regions."""


class Corners(NamedTuple):
    """Corners of an image.

    Attributes
    ----------
    x, y : coordinates in pixels
    scales : standard deviations of Gaussians, in pixels
    """

    x: NDArray[np.intp]
    y: NDArray[np.intp]
    scales: NDArray[np.float64]


def harris_laplace(pixels: NDArray[np.uint8], threshold: float = THRESHOLD) -> Corners:
    """The corners of a gray image, each at its characteristic scale.

    At a scale σ, with the image L smoothed by a Gaussian of s = 0.7·σ, the gradients near a pixel
    have the second moments μ = s²·G(σ) ∗ ∇L·∇Lᵀ, and det μ − κ·(Tr μ)² is large if they have
    several directions. A corner is a local maximum of this measure. Its characteristic scales are
    those near σ at which σ²·|ΔG(σ) ∗ image| is larger than at the next smaller and the next larger
    scale; a corner without one is dropped, and a corner may have several.

    Parameters
    ----------
    pixels : of shape (H, W)
    threshold : smallest measure of a corner

    Examples
    --------
    >>> square = np.zeros((60, 60), dtype=np.uint8)
    >>> square[20:41, 20:41] = 255
    >>> corners = harris_laplace(square)
    >>> is_fine = corners.scales < 2
    >>> corners.x[is_fine], corners.y[is_fine]
    (array([21, 39, 21, 39]), array([21, 21, 39, 39]))
    """
    image = np.divide(pixels, 255, dtype=np.float32)
    blobness = np.stack([_blobness(image, scale) for scale in SCALES])
    is_peak = np.zeros(blobness.shape, dtype=bool)
    is_peak[1:-1] = (blobness[1:-1] > blobness[:-2]) & (blobness[1:-1] > blobness[2:])
    found = np.zeros_like(is_peak)
    for level in range(STRIDE, len(SCALES) - STRIDE, STRIDE):
        measure = _cornerness(image, SCALES[level])
        maximum = import_package("cv2").dilate(measure, np.ones((3, 3), np.uint8))
        near = slice(level - STRIDE, level + STRIDE + 1)
        found[near] |= is_peak[near] & (measure > threshold) & (measure == maximum)
    levels, y, x = np.nonzero(found)
    return Corners(x, y, np.array(SCALES)[levels])


def _cornerness(image: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    """det μ − κ·(Tr μ)² at each pixel."""
    inner = DERIVATIVE_RATIO * scale
    smooth = _blurred(image, inner)
    rise_x, rise_y = (
        inner * import_package("cv2").Sobel(smooth, -1, *order, ksize=1, scale=0.5)
        for order in ((1, 0), (0, 1))
    )
    xx, xy, yy = (_blurred(product, scale) for product in (rise_x**2, rise_x * rise_y, rise_y**2))
    return xx * yy - xy**2 - KAPPA * (xx + yy) ** 2


def _blobness(image: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    """σ²·|ΔG(σ) ∗ image| at each pixel."""
    laplacian = import_package("cv2").Laplacian(_blurred(image, scale), -1)
    return np.abs(scale**2 * laplacian)


def _blurred(image: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    return import_package("cv2").GaussianBlur(image, (0, 0), scale)
