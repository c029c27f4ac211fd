"""Nine facial points, and the SIFT descriptors around them, of faces framed as those of LFW.

Points are detected by dlib (`pip install 'boostmetric_paper[faces]'`) or those of the mean face.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from boostmetric_paper.vision.descriptors import PATCH_WIDTH, check_sizes, root_sift
from boostmetric_paper.vision.images import ImageError, Source, read_image
from boostmetric_paper.vision.packages import import_package

FRAME = 150
"""Height and width of the center of an image, which contains the face."""

BOX = (20, 32, 127, 139)
"""Left, top, right and bottom of a face in the frame: the median of dlib's detections on LFW."""

N_MODEL_POINTS = 68
"""Points of a face in dlib's model; nine of them are used."""

FACIAL_POINTS = {
    "right eye, outer corner": 36,
    "right eye, inner corner": 39,
    "left eye, inner corner": 42,
    "left eye, outer corner": 45,
    "nose, right": 31,
    "nose, tip": 30,
    "nose, left": 35,
    "mouth, right corner": 48,
    "mouth, left corner": 54,
}
"""The points of Everingham, Sivic and Zisserman (2006), where right and left are the person's own,
and their numbers in dlib's model."""

MEAN_FACE = np.array(
    [[46, 65], [62, 65], [88, 65], [104, 65], [66, 93], [76, 87], [86, 93], [57, 111], [95, 111]],
    dtype=np.float64,
)
"""The nine points of the mean face of LFW in the frame, columns x and y."""

PATCH = 40
"""Width in pixels to which patches of all sizes are resampled."""

MODEL = "shape_predictor_68_face_landmarks.dat"
"""File of face_recognition_models with the detector of the points."""

File = str | os.PathLike[str]


@dataclass(frozen=True)
class FaceSift:
    """SIFT descriptors around nine facial points at several scales, concatenated.

    These are the features of Guillaumin, Verbeek and Schmid (2009). With detected points, the
    center of the image is first rotated, scaled and shifted, so that the points are as close as
    possible to those of the mean face. Upright patches around each point are described by RootSIFT.

    Parameters
    ----------
    points : "detected" by dlib in each image, or those of the "mean" face for all images
    sizes : widths in pixels of the patches around a point
    model : see `facial_points`

    Examples
    --------
    >>> describe = FaceSift("mean", sizes=(20, 40))
    >>> image = np.random.default_rng(0).integers(256, size=(250, 250), dtype=np.uint8)
    >>> describe(image).shape == (9 * 2 * 128,)
    True
    """

    points: str = "detected"
    sizes: tuple[float, ...] = (20, 40, 80)
    model: File | None = None

    def __post_init__(self) -> None:
        if self.points not in ("detected", "mean"):
            raise ValueError(
                "The 'points' parameter must be a str among {'detected', 'mean'}. Got "
                f"{self.points!r} instead."
            )
        check_sizes(self.sizes)

    @property
    def versions(self) -> dict[str, str]:
        """Versions and model that the descriptors depend on; an error if something is missing."""
        versions = {"opencv": str(import_package("cv2").__version__)}
        if self.points == "detected":
            model = sha256(model_file(self.model).read_bytes()).hexdigest()
            versions |= {"dlib": str(_dlib().__version__), "model": model}
        return versions

    def __call__(self, image: Source) -> NDArray[np.float32]:
        """The descriptors of an image in one vector, ordered by point and size."""
        pixels = center(image)
        if self.points == "mean":
            return sift_at(pixels, MEAN_FACE, self.sizes).ravel()
        detected = facial_points(pixels, self.model)
        align = similarity(detected, MEAN_FACE)
        aligned = import_package("cv2").warpAffine(pixels, align, (FRAME, FRAME))
        return sift_at(aligned, detected @ align[:, :2].T + align[:, 2], self.sizes).ravel()


def facial_points(image: Source, model: File | None = None) -> NDArray[np.float64]:
    """The nine `FACIAL_POINTS` in the center of an image: columns x and y, of shape (9, 2).

    The face is assumed to fill `BOX`, as faces of LFW approximately do. Thus points are detected in
    every image, and never those of a face in the background.

    Parameters
    ----------
    image : see `read_image`; at least 150 × 150 pixels
    model : file of a dlib `shape_predictor` for 68 points (Kazemi and Sullivan, 2014); None uses
        that of the package face_recognition_models

    Examples
    --------
    >>> facial_points(np.zeros((150, 150), np.uint8), "no.dat")
    Traceback (most recent call last):
    ...
    FileNotFoundError: There is no file no.dat; model must be the file of a dlib shape predictor.
    """
    path = model_file(model)
    shape = _predictor(str(path))(center(image), _dlib().rectangle(*BOX))
    if shape.num_parts != N_MODEL_POINTS:
        raise ValueError(
            f"model must detect {N_MODEL_POINTS} points; {path} detects {shape.num_parts}."
        )
    parts = [shape.part(number) for number in FACIAL_POINTS.values()]
    return np.array([(part.x, part.y) for part in parts], dtype=np.float64)


def model_file(model: File | None = None) -> Path:
    """The file if given, else that of face_recognition_models; an error if it does not exist."""
    if model is not None:
        if not Path(model).is_file():
            raise FileNotFoundError(
                f"There is no file {os.fspath(model)}; model must be the file of a dlib shape "
                "predictor."
            )
        return Path(model)
    # The package is not imported, since this requires pkg_resources, which may be missing.
    spec = find_spec("face_recognition_models")
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        raise ImportError(
            "face_recognition_models is not installed: pip install 'boostmetric_paper[faces]'"
        )
    return Path(places[0], "models", MODEL)


def center(image: Source) -> NDArray[np.uint8]:
    """The `FRAME` × `FRAME` gray pixels in the center of an image.

    >>> center(np.zeros((250, 200), dtype=np.uint8)).shape
    (150, 150)
    """
    pixels = read_image(image, gray=True)
    height, width = pixels.shape
    if min(height, width) < FRAME:
        raise ImageError(
            f"Images of faces must have at least {FRAME} × {FRAME} pixels. Got {height} × {width} "
            "instead."
        )
    top, left = (height - FRAME) // 2, (width - FRAME) // 2
    return np.ascontiguousarray(pixels[top : top + FRAME, left : left + FRAME])


def similarity(points: ArrayLike, goals: ArrayLike) -> NDArray[np.float64]:
    """The rotation, scaling and shift (A b) such that A·x + b is closest to the goals.

    Least squares, of shape (2, 3). In complex numbers it is z ↦ a·z + b.

    >>> similarity([[0, 0], [1, 0]], [[5, 5], [5, 7]])
    array([[ 0., -2.,  5.],
           [ 2.,  0.,  5.]])
    """
    z, w = (np.asarray(each, dtype=np.float64) @ (1, 1j) for each in (points, goals))
    spread = z - z.mean()
    a = np.vdot(spread, w) / np.vdot(spread, spread)
    b = w.mean() - a * z.mean()
    return np.array([[a.real, -a.imag, b.real], [a.imag, a.real, b.imag]])


def sift_at(
    pixels: NDArray[np.uint8], points: NDArray, sizes: tuple[float, ...]
) -> NDArray[np.float32]:
    """RootSIFT of upright patches, of shape (points, sizes, 128).

    For each size the image is resampled so that patches are `PATCH` pixels wide, because SIFT
    smooths wide patches no more than narrow ones.

    Parameters
    ----------
    pixels : a gray image
    points : of shape (n, 2), columns x and y; OpenCV rounds them to whole pixels of the resampled
        image
    sizes : widths of the patches; parts outside the image are ignored

    Examples
    --------
    >>> sift_at(np.eye(40, dtype=np.uint8), np.array([[20.0, 20.0]]), (8, 16)).shape
    (1, 2, 128)
    """
    cv2 = import_package("cv2")
    sift, described = cv2.SIFT_create(), []
    for size in sizes:
        scale = PATCH / size
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        resampled = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=how)
        # The center of a pixel is half a pixel from its corner, at every scale.
        centers = ((points + 0.5) * scale - 0.5).tolist()
        key_points = [cv2.KeyPoint(x, y, PATCH / PATCH_WIDTH, 0.0) for x, y in centers]
        described.append(root_sift(sift.compute(resampled, key_points)[1]))
    return np.stack(described, axis=1)


@lru_cache(maxsize=1)
def _predictor(path: str) -> Any:
    """The model of a file, kept in memory because loading its 100 MB takes a second."""
    try:
        return _dlib().shape_predictor(path)
    except RuntimeError as error:
        raise ValueError(
            f"model must be the file of a dlib shape predictor; {path} is not ({error})."
        ) from None


def _dlib() -> Any:
    return import_package("dlib", "dlib-bin", extra="faces")
