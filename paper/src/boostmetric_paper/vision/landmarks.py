"""Nine facial points, and the SIFT descriptors around them, of faces framed as those of LFW.

Points are found by dlib (`pip install 'boostmetric_paper[faces]'`), or are those of the mean face.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from boostmetric_paper.vision.descriptors import WIDTH, check_sizes, root_sift
from boostmetric_paper.vision.images import ImageError, Source, read_image
from boostmetric_paper.vision.packages import needed

FRAME = 150
"""Height and width of the middle of an image, where the face is."""

BOX = (20, 32, 127, 139)
"""Left, top, right and bottom of a face in the frame: the median of what dlib's detector finds."""

OUTLINE = 68
"""Points of a face in the model, of which nine are taken."""

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
"""The points of Everingham, Sivic and Zisserman (2006), right and left the person's own; and which
of the model's each of them is."""

MEAN_FACE = np.array(
    [[46, 65], [62, 65], [88, 65], [104, 65], [66, 93], [76, 87], [86, 93], [57, 111], [95, 111]],
    dtype=np.float64,
)
"""Columns x and y of the nine points of the mean face of LFW, in the frame."""

PATCH = 40
"""Width in pixels that patches of all sizes are resampled to."""

POINTS = ("found", "mean")

MODEL = "shape_predictor_68_face_landmarks.dat"
"""The file of face_recognition_models that finds the points."""

MODULES = {"dlib": "dlib-bin", "face_recognition_models": "face_recognition_models"}
"""Modules of the extra `faces`, and the packages that have them."""

File = str | os.PathLike[str]


@dataclass(frozen=True)
class FaceSift:
    """SIFT descriptors around nine facial points at several scales, one after another.

    As Guillaumin, Verbeek and Schmid (2009) describe a face. Where points are found, the middle of
    the image is turned, scaled and shifted first, so that they are as near as can be to those of
    the mean face. Upright patches around each point, at every scale, are described by RootSIFT.

    Parameters
    ----------
    points : "found" by dlib in each image, or those of the "mean" face for all
    sizes : widths in pixels of the patches around a point
    model : as that of `facial_points`

    Examples
    --------
    >>> describe = FaceSift("mean", sizes=(20, 40))
    >>> image = np.random.default_rng(0).integers(256, size=(250, 250), dtype=np.uint8)
    >>> describe(image).shape == (9 * 2 * 128,)
    True
    """

    points: str = "found"
    sizes: tuple[float, ...] = (20, 40, 80)
    model: File | None = None

    def __post_init__(self) -> None:
        if self.points not in POINTS:
            raise ValueError(f"points={self.points!r} will not do: 'found' or 'mean' will.")
        check_sizes(self.sizes)

    @property
    def parameters(self) -> dict[str, Any]:
        """All that the descriptors depend on besides the image; an error if it is missing."""
        common = {
            "face": self.points,
            "sizes": list(self.sizes),
            "patch": PATCH,
            "frame": [FRAME, *MEAN_FACE.ravel().tolist()],
            "opencv": str(needed("cv2").__version__),
        }
        if self.points == "mean":
            return common
        content = sha256(model_file(self.model).read_bytes()).hexdigest()
        dlib = str(_module("dlib").__version__)
        return {**common, "model": content, "box": list(BOX), "dlib": dlib}

    def __call__(self, image: Source) -> NDArray[np.float32]:
        """The descriptors of an image in a row, point by point and from the first size on."""
        pixels = middle(image)
        if self.points == "mean":
            return sift_at(pixels, MEAN_FACE, self.sizes).ravel()
        found = facial_points(pixels, self.model)
        turn = similarity(found, MEAN_FACE)
        aligned = needed("cv2").warpAffine(pixels, turn, (FRAME, FRAME))
        return sift_at(aligned, found @ turn[:, :2].T + turn[:, 2], self.sizes).ravel()


def facial_points(image: Source, model: File | None = None) -> NDArray[np.float64]:
    """The nine `FACIAL_POINTS` in the middle of an image: columns x and y, of shape (9, 2).

    The face is taken to fill `BOX`, as those of LFW about do, so that points are found in every
    image, and a face in the background is not mistaken for it.

    Parameters
    ----------
    image : as `read_image` takes it, of 150 × 150 pixels or more
    model : a file of dlib's `shape_predictor` for 68 points (Kazemi and Sullivan, 2014). None means
        that of the package face_recognition_models

    Examples
    --------
    >>> facial_points(np.zeros((150, 150), np.uint8), "no.dat")
    Traceback (most recent call last):
    ...
    FileNotFoundError: there is no model no.dat: give the file of a shape predictor of dlib.
    """
    path = model_file(model)
    shape = _predictor(str(path))(middle(image), _module("dlib").rectangle(*BOX))
    if shape.num_parts != OUTLINE:
        raise ValueError(
            f"{path} finds {shape.num_parts} points: give a model of {OUTLINE}, of which nine are "
            "taken."
        )
    parts = [shape.part(number) for number in FACIAL_POINTS.values()]
    return np.array([(part.x, part.y) for part in parts], dtype=np.float64)


def model_file(model: File | None = None) -> Path:
    """That file if it is there, else the one of face_recognition_models; else an error."""
    if model is not None:
        if not Path(model).is_file():
            raise FileNotFoundError(
                f"there is no model {os.fspath(model)}: give the file of a shape predictor of dlib."
            )
        return Path(model)
    # The package is not imported, since that needs pkg_resources, which may be missing.
    spec = find_spec("face_recognition_models")
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        raise _missing("face_recognition_models")
    return Path(places[0], "models", MODEL)


def middle(image: Source) -> NDArray[np.uint8]:
    """The grey pixels in the middle of an image, `FRAME` × `FRAME` of them.

    >>> middle(np.zeros((250, 200), dtype=np.uint8)).shape
    (150, 150)
    """
    pixels = read_image(image, grey=True)
    height, width = pixels.shape
    if min(height, width) < FRAME:
        raise ImageError(
            f"an image of {height} × {width} pixels is too small: a face is looked for in the "
            f"middle {FRAME} × {FRAME}."
        )
    top, left = (height - FRAME) // 2, (width - FRAME) // 2
    return np.ascontiguousarray(pixels[top : top + FRAME, left : left + FRAME])


def similarity(points: ArrayLike, goals: ArrayLike) -> NDArray[np.float64]:
    """The rotation, scaling and shift (A b) that bring points x nearest to goals, A·x + b.

    In the sense of least squares; of shape (2, 3). In complex numbers it is z ↦ a·z + b.

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

    For each size the image is resampled so that patches are `PATCH` pixels wide: SIFT smooths a
    wide patch as little as a narrow one, and would see its pixels and not its shape.

    Parameters
    ----------
    pixels : a grey image
    points : of shape (n, 2), columns x and y; OpenCV rounds them to whole pixels of the resampled
        image
    sizes : widths of the patches, whose parts beyond the image count for nothing

    Examples
    --------
    >>> sift_at(np.eye(40, dtype=np.uint8), np.array([[20.0, 20.0]]), (8, 16)).shape
    (1, 2, 128)
    """
    cv2 = needed("cv2")
    sift, described = cv2.SIFT_create(), []
    for size in sizes:
        scale = PATCH / size
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        resampled = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=how)
        # A pixel's middle is half a pixel from its corner, at every scale.
        centres = ((points + 0.5) * scale - 0.5).tolist()
        spots = [cv2.KeyPoint(x, y, PATCH / WIDTH, 0.0) for x, y in centres]
        described.append(root_sift(sift.compute(resampled, spots)[1]))
    return np.stack(described, axis=1)


@lru_cache(maxsize=1)
def _predictor(path: str) -> Any:
    """The model of a file, kept since it has 100 MB."""
    try:
        return _module("dlib").shape_predictor(path)
    except RuntimeError as error:
        raise ValueError(
            f"{path} is no shape predictor of dlib ({error}): give the file of one."
        ) from None


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise _missing(name) from None


def _missing(name: str) -> ImportError:
    return ImportError(
        f"facial points need {MODULES[name]}, which is missing: "
        "pip install 'boostmetric_paper[faces]'"
    )
