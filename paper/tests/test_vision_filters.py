from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import convolve

from boostmetric_paper.vision import ImageError, filter_bank, pixel_responses
from boostmetric_paper.vision.filters import rgb_to_lab


@pytest.fixture
def image() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(256, size=(13, 11, 3), dtype=np.uint8)


def kernels(sigma: int) -> dict[str, NDArray[np.float64]]:
    """Filters of two dimensions, of 4σ + 1 pixels a side, straight from their formulas."""
    y, x = np.mgrid[-2 * sigma : 2 * sigma + 1, -2 * sigma : 2 * sigma + 1].astype(float)
    gaussian = np.exp(-(x**2 + y**2) / (2 * sigma**2))
    gaussian /= gaussian.sum()
    return {
        "gaussian": gaussian,
        "laplacian": (x**2 + y**2 - 2 * sigma**2) / sigma**4 * gaussian,
        "y": -y / sigma**2 * gaussian,
        "x": -x / sigma**2 * gaussian,
    }


def test_gaussians_match_direct_convolution(image: NDArray[np.uint8]) -> None:
    lab, responses = rgb_to_lab(image), filter_bank(image)
    for scale, sigma in enumerate((1, 2, 4)):
        for channel in range(3):
            expected = convolve(lab[..., channel], kernels(sigma)["gaussian"])
            np.testing.assert_allclose(responses[..., 3 * scale + channel], expected, atol=1e-10)


def test_laplacians_match_direct_convolution(image: NDArray[np.uint8]) -> None:
    lightness, responses = rgb_to_lab(image)[..., 0], filter_bank(image)
    for scale, sigma in enumerate((1, 2, 4, 8)):
        kernel, weights = kernels(sigma)["laplacian"], kernels(sigma)["gaussian"].sum(axis=0)
        # What is subtracted from g''(x)·g(y) is a constant along x for each y, and so for y.
        second = kernels(sigma)["laplacian"].sum(axis=0) - weights * (kernel.sum() / 2)
        shift = second.sum() / len(weights)
        kernel = kernel - shift * (weights[:, None] + weights[None, :])
        assert abs(kernel.sum()) < 1e-14
        np.testing.assert_allclose(
            responses[..., 9 + scale], convolve(lightness, kernel), atol=1e-10
        )


def test_derivatives_match_direct_convolution(image: NDArray[np.uint8]) -> None:
    lightness, responses = rgb_to_lab(image)[..., 0], filter_bank(image)
    for scale, sigma in enumerate((2, 4)):
        for axis, name in enumerate("yx"):
            expected = convolve(lightness, kernels(sigma)[name])
            np.testing.assert_allclose(responses[..., 13 + 2 * scale + axis], expected, atol=1e-10)


def test_derivatives_of_increasing_brightness_are_positive() -> None:
    ramp = np.repeat(np.arange(0, 200, 5, dtype=np.uint8)[:, None, None], 40, axis=1)
    responses = filter_bank(np.repeat(ramp, 3, axis=2))[20, 20]
    assert responses[13] > 0.1
    assert responses[15] > 0.1
    np.testing.assert_allclose(responses[[14, 16]], 0, atol=1e-12)


def test_constant_image_has_only_low_pass_responses() -> None:
    for value in (0, 90, 255):
        responses = filter_bank(np.full((3, 2, 3), value, dtype=np.uint8))
        np.testing.assert_allclose(responses[..., 9:], 0, atol=1e-11)
        np.testing.assert_allclose(responses[..., 0:9:3], responses[0, 0, 0])
        np.testing.assert_allclose(responses[..., [1, 2, 4, 5, 7, 8]], 0, atol=1e-10)


def test_lab_matches_published_colors() -> None:
    colors = np.array([[0, 0, 0], [255, 255, 255], [0, 255, 0], [0, 0, 255]], dtype=np.uint8)
    expected = np.array([[0, 0, 0], [100, 0, 0], [87.73, -86.18, 83.18], [32.30, 79.19, -107.86]])
    np.testing.assert_allclose(rgb_to_lab(colors), expected, atol=0.011)


def test_lab_matches_opencv(image: NDArray[np.uint8]) -> None:
    cv2 = pytest.importorskip("cv2", reason="the oracle is OpenCV")
    expected = cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2Lab)
    np.testing.assert_allclose(rgb_to_lab(image), expected, atol=0.25)


def test_rows_are_pixels_in_row_order(image: NDArray[np.uint8]) -> None:
    rows = pixel_responses(image)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[11 * 4 + 7], filter_bank(image)[4, 7], rtol=1e-6, atol=1e-5)


def test_single_pixel_has_responses() -> None:
    assert np.isfinite(filter_bank(np.zeros((1, 1, 3), dtype=np.uint8))).all()


def test_gray_images_raise() -> None:
    with pytest.raises(ImageError, match="requires a color image"):
        filter_bank(np.zeros((4, 5), dtype=np.uint8))
