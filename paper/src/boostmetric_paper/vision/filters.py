"""The filter bank of Winn, Criminisi and Minka (2005): 17 responses at each pixel of an image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d

from boostmetric_paper.vision.images import ImageError, Source, read_image

GAUSSIANS = (1, 2, 4)
LAPLACIANS = (1, 2, 4, 8)
DERIVATIVES = (2, 4)
"""Standard deviations of the filters, in pixels."""

N_RESPONSES = 3 * len(GAUSSIANS) + len(LAPLACIANS) + 2 * len(DERIVATIVES)

TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
"""From linear sRGB to CIE XYZ, white point D65."""


def filter_bank(image: Source) -> NDArray[np.float64]:
    """The responses of 17 filters at each pixel of a color image, of shape (H, W, 17).

    In CIE L*a*b*: Gaussians of σ = 1, 2, 4 of L, a and b (9, the three channels of a scale
    together); Laplacians of Gaussians of σ = 1, 2, 4, 8 of L (4); and first derivatives of
    Gaussians of σ = 2, 4 of L, along the rows and along the columns of the image (4: at each scale
    ∂/∂y, then ∂/∂x).

    Filters are truncated at 2σ, so they are 4σ + 1 pixels wide. The truncated Gaussians sum to 1.
    The truncated Laplacians are shifted to sum to 0, so that constant brightness has no response;
    the derivatives sum to 0 already. (For the regions of MSRC the shift makes no difference: it is
    nearly a linear combination of the Gaussians of L, which whitening removes.) Images are
    reflected at the border.

    Parameters
    ----------
    image : in color, see `read_image`

    Examples
    --------
    >>> responses = filter_bank(np.full((6, 8, 3), 255, dtype=np.uint8))
    >>> responses.shape
    (6, 8, 17)
    >>> responses[2, 3].round(3)[[0, 3, 6, 9, 13]] + 0.0
    array([100., 100., 100.,   0.,   0.])
    """
    pixels = read_image(image)
    if pixels.ndim == 2:
        raise ImageError(
            "The filter bank requires a color image of shape (H, W, 3). Got shape "
            f"{pixels.shape} instead."
        )
    lab = rgb_to_lab(pixels)
    lightness = lab[..., 0]
    responses = [separable(lab, _gaussian(s), _gaussian(s)) for s in GAUSSIANS]
    for s in LAPLACIANS:
        along_y = separable(lightness, _second_derivative(s), _gaussian(s))
        along_x = separable(lightness, _gaussian(s), _second_derivative(s))
        responses.append((along_y + along_x)[..., None])
    for s in DERIVATIVES:
        along_y = separable(lightness, _first_derivative(s), _gaussian(s))
        along_x = separable(lightness, _gaussian(s), _first_derivative(s))
        responses.append(np.stack([along_y, along_x], axis=-1))
    return np.concatenate(responses, axis=-1)


def pixel_responses(image: Source) -> NDArray[np.float32]:
    """The rows of `filter_bank`, pixel by pixel, of shape (H·W, 17), for `BagOfVisualWords`.

    Examples
    --------
    >>> pixel_responses(np.zeros((4, 5, 3), dtype=np.uint8)).shape
    (20, 17)
    """
    return filter_bank(image).reshape(-1, N_RESPONSES).astype(np.float32)


def rgb_to_lab(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """CIE L*a*b* of sRGB pixels, white point D65: L in [0, 100], a and b about -100 to 100.

    Examples
    --------
    >>> rgb_to_lab(np.array([255, 0, 0], dtype=np.uint8)).round(1)
    array([53.2, 80.1, 67.2])
    """
    values = np.arange(256) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    t = linear[pixels] @ (TO_XYZ / TO_XYZ.sum(axis=1, keepdims=True)).T
    x, y, z = np.moveaxis(
        np.where(t > (6 / 29) ** 3, np.cbrt(t), t * (29 / 6) ** 2 / 3 + 4 / 29), -1, 0
    )
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def separable(
    image: NDArray[np.float64], along_y: NDArray[np.float64], along_x: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Σ_ij along_y[i]·along_x[j]·image[y + i, x + j], where i = j = 0 is the center of a kernel.

    Examples
    --------
    >>> separable(np.eye(3), np.array([0.0, 1.0, 1.0]), np.ones(1))
    array([[1., 1., 0.],
           [0., 1., 1.],
           [0., 0., 2.]])
    """
    return correlate1d(correlate1d(image, along_y, axis=0), along_x, axis=1)


def _gaussian(sigma: int) -> NDArray[np.float64]:
    weights = np.exp(-(_offsets(sigma) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


def _first_derivative(sigma: int) -> NDArray[np.float64]:
    """Positive where the image rises, since correlation does not flip the kernel."""
    return _offsets(sigma) / sigma**2 * _gaussian(sigma)


def _second_derivative(sigma: int) -> NDArray[np.float64]:
    kernel = (_offsets(sigma) ** 2 / sigma**2 - 1) / sigma**2 * _gaussian(sigma)
    return kernel - kernel.mean()


def _offsets(sigma: int) -> NDArray[np.float64]:
    return np.arange(-2.0 * sigma, 2 * sigma + 1)
