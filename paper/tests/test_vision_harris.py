from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, maximum_filter

from boostmetric_paper.vision import Sift
from boostmetric_paper.vision.harris import SCALES, STRIDE, harris_laplace

cv2 = pytest.importorskip("cv2", reason="SIFT needs OpenCV")


def blob(width: float, height: float = 1.0) -> NDArray[np.uint8]:
    """A Gaussian of standard deviation `width` in the middle of 121 × 121 pixels."""
    y, x = np.mgrid[-60:61, -60:61]
    gray = 40 + 200 * height * np.exp(-(x**2 + y**2) / (2 * width**2))
    return np.rint(gray).astype(np.uint8)


def boxes(seed: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    image = np.full((80, 100), 90)
    for _ in range(8):
        top, left, height, width = rng.integers([5, 5, 5, 5], [60, 80, 20, 20])
        image[top : top + height, left : left + width] = rng.integers(256)
    return gaussian_filter(image.astype(float), 1.0).astype(np.uint8)


@pytest.mark.parametrize("width", [1.5, 2.5, 4.0, 6.0, 8.0])
def test_blob_is_found_at_its_scale(width: float) -> None:
    """σ²·ΔG(σ) of a Gaussian of standard deviation t is ∝ σ²/(t² + σ²)² in its middle: at σ = t."""
    corners = harris_laplace(blob(width))
    middle = (corners.x == 60) & (corners.y == 60)
    assert middle.sum() == 1
    nearest = min(SCALES, key=lambda scale: abs(np.log(scale / width)))
    assert corners.scales[middle] == pytest.approx(nearest, rel=0.21)
    assert abs(np.log(corners.scales[middle][0] / width)) <= np.log(1.2)


def test_corners_are_maxima() -> None:
    """The measure by another library, at every scale, away from the border."""
    image = boxes(0)
    gray = image / 255
    expected = set()
    for level in range(STRIDE, len(SCALES) - STRIDE, STRIDE):
        s = 0.7 * SCALES[level]
        smooth = gaussian_filter(gray, s, mode="mirror")
        rise_y, rise_x = np.gradient(smooth)
        xx, xy, yy = (
            s**2 * gaussian_filter(product, SCALES[level], mode="mirror")
            for product in (rise_x**2, rise_x * rise_y, rise_y**2)
        )
        measure = xx * yy - xy**2 - 0.04 * (xx + yy) ** 2
        expected |= set(zip(*np.nonzero(measure == maximum_filter(measure, 3)), strict=True))
    corners = harris_laplace(image)
    found = [
        (y, x)
        for y, x in zip(corners.y.tolist(), corners.x.tolist(), strict=True)
        if 8 <= y < 72 and 8 <= x < 92
    ]
    assert len(found) > 20
    assert np.mean([place in expected for place in found]) > 0.95


def test_edges_and_flat_areas_have_no_corners() -> None:
    edge = np.zeros((60, 60), dtype=np.uint8)
    edge[:, 30:] = 255
    assert len(harris_laplace(edge).x) == 0
    assert len(harris_laplace(edge.T.copy()).x) == 0
    assert len(harris_laplace(np.full((60, 60), 99, np.uint8)).x) == 0


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 2), (3, 3)])
def test_small_images_have_no_corners(shape: tuple[int, int]) -> None:
    assert len(harris_laplace(np.zeros(shape, np.uint8)).x) == 0


def test_threshold_removes_faint_corners() -> None:
    """The measure grows with the fourth power of the contrast."""
    faint, strong = harris_laplace(blob(4, 0.04)), harris_laplace(blob(4, 0.5))
    assert len(faint.x) == 0
    assert len(strong.x) > 0
    assert len(harris_laplace(blob(4, 0.04), threshold=0).x) > 0


def test_corners_rotate_with_image() -> None:
    image = boxes(1)
    x, y, scales = harris_laplace(image)
    expected = set(zip(y, image.shape[1] - 1 - x, scales, strict=True))
    turned = set(zip(*harris_laplace(np.rot90(image).copy()), strict=True))
    assert len(expected) > 15
    assert len(expected & turned) > 0.95 * len(expected | turned)


def test_patch_is_upright_and_twelve_scales_wide() -> None:
    """OpenCV describes the patch of a corner as it does Lowe's of the same place and size."""
    image = boxes(2)
    x, y, scales = harris_laplace(image)
    found = Sift("harris")(image)
    assert len(found) == len(x)
    for row in np.flatnonzero(scales < 1.6 * 2 ** (1 / 6)):  # those of the first image
        spot = cv2.KeyPoint(float(x[row]), float(y[row]), 2 * scales[row], 0.0)
        np.testing.assert_array_equal(found[row], cv2.SIFT_create().compute(image, [spot])[1][0])


def test_descriptors_scale_with_image() -> None:
    """A cross and one twice as large are described alike, as their patches are in proportion."""
    found = []
    for width in (3, 6):
        y, x = np.mgrid[-60:61, -60:61]
        arms = np.exp(-(x**2 + 4 * y**2) / (2 * width**2))
        image = np.rint(40 + 200 * arms).astype(np.uint8)
        corners = harris_laplace(image)
        middle = np.flatnonzero((corners.x == 60) & (corners.y == 60))
        found.append(Sift("harris")(image)[middle[0]])
    cosine = found[0] @ found[1] / np.linalg.norm(found[0]) / np.linalg.norm(found[1])
    assert cosine > 0.95
