"""Facial points against faces that were drawn, and descriptors against OpenCV and geometry."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric_paper.vision import landmarks
from boostmetric_paper.vision.images import ImageError
from boostmetric_paper.vision.landmarks import (
    BOX,
    FACIAL_POINTS,
    FRAME,
    MEAN_FACE,
    FaceSift,
    center,
    facial_points,
    model_file,
    sift_at,
    similarity,
)

NINE = list(FACIAL_POINTS.values())


def drawn_face(rng: np.random.Generator, shift: float = 6.0) -> tuple[NDArray[np.uint8], NDArray]:
    """A face of discs, shifted at random, and its 68 points: nine at discs, the others far off."""
    points = np.full((68, 2), 75.0)
    points[NINE] = MEAN_FACE
    points += rng.uniform(-shift, shift, size=2)
    y, x = np.mgrid[:FRAME, :FRAME]
    image = np.full((FRAME, FRAME), 200.0)
    for disc, (across, down) in enumerate(points[NINE]):
        image[np.hypot(x - across, y - down) < 5] = 20 * disc
    image += rng.normal(0, 2, image.shape)
    return image.clip(0, 255).astype(np.uint8), points


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A predictor of 68 points, trained on drawn faces."""
    return trained(tmp_path_factory.mktemp("model") / "faces.dat", 68)


def trained(path: Path, n_points: int) -> Path:
    dlib = pytest.importorskip("dlib", reason="dlib-bin is not installed")
    rng = np.random.default_rng(1)
    images, shapes = [], []
    for _ in range(60):
        image, points = drawn_face(rng)
        parts = [dlib.point(*map(round, point)) for point in points[-n_points:].tolist()]
        images.append(image)
        shapes.append([dlib.full_object_detection(dlib.rectangle(*BOX), parts)])
    options = dlib.shape_predictor_training_options()
    options.num_threads = 1
    options.oversampling_amount = 5
    options.cascade_depth = 6
    options.num_trees_per_cascade_level = 60
    options.tree_depth = 3
    options.nu = 0.2
    options.random_seed = "0"
    dlib.train_shape_predictor(images, shapes, options).save(str(path))
    return path


def test_landmarks_of_drawn_faces(model: Path, rng: np.random.Generator) -> None:
    errors, still = [], []
    for _ in range(20):
        image, points = drawn_face(rng)
        errors.append(np.abs(facial_points(image, model) - points[NINE]).mean())
        still.append(np.abs(MEAN_FACE - points[NINE]).mean())
    assert np.mean(errors) < 1.2
    assert np.mean(still) > 2.5


def test_landmarks_of_larger_image(model: Path, rng: np.random.Generator) -> None:
    image, _ = drawn_face(rng)
    large = np.pad(image, 50, constant_values=90)
    np.testing.assert_array_equal(facial_points(large, model), facial_points(image, model))
    color = np.repeat(large[..., None], 3, axis=2)
    np.testing.assert_array_equal(facial_points(color, model), facial_points(image, model))


def test_center_of_image() -> None:
    image = np.arange(250, dtype=np.uint8)[:, None] * np.ones(200, dtype=np.uint8)
    assert center(image)[[0, -1], 0].tolist() == [50, 199]
    assert center(image).shape == (FRAME, FRAME)
    with pytest.raises(ImageError, match="Got 149 × 250 instead"):
        center(np.zeros((149, 250), dtype=np.uint8))


def test_similarity_recovers_rotation(rng: np.random.Generator) -> None:
    angle, scale, shift = 0.3, 1.7, np.array([4.0, -9.0])
    turn = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    points = rng.normal(size=(9, 2))
    found = similarity(points, points @ turn.T + shift)
    np.testing.assert_allclose(found, np.column_stack([turn, shift]), atol=1e-12)


def test_similarity_minimizes_squares(rng: np.random.Generator) -> None:
    """The four numbers a, b, c, d of (x, y) ↦ (ax − by + c, bx + ay + d) by `lstsq`."""
    points, goals = rng.normal(size=(2, 9, 2))
    x, y = points.T
    one, nought = np.ones(9), np.zeros(9)
    rows = np.concatenate(
        [np.column_stack([x, -y, one, nought]), np.column_stack([y, x, nought, one])]
    )
    a, b, c, d = np.linalg.lstsq(rows, goals.T.ravel(), rcond=None)[0]
    np.testing.assert_allclose(similarity(points, goals), [[a, -b, c], [b, a, d]])


def test_descriptor_depends_only_on_patch(rng: np.random.Generator) -> None:
    """What lies beyond a patch, with the cells that SIFT blends in, does not matter."""
    image = rng.integers(256, size=(FRAME, FRAME), dtype=np.uint8)
    other = rng.integers(256, size=(FRAME, FRAME), dtype=np.uint8)
    x, y, reach = 40, 100, 25
    patch = np.s_[y - reach : y + reach + 1, x - reach : x + reach + 1]
    other[patch] = image[patch]
    one, two = (sift_at(pixels, np.array([[x, y]]), (20, 80)) for pixels in (image, other))
    np.testing.assert_array_equal(one[0, 0], two[0, 0])
    assert np.abs(one[0, 1] - two[0, 1]).max() > 0.01
    np.testing.assert_allclose((one**2).sum(axis=2), 1, rtol=1e-5)


def test_order_of_descriptors(rng: np.random.Generator) -> None:
    image = rng.integers(256, size=(FRAME, FRAME), dtype=np.uint8)
    described = FaceSift("mean")(image).reshape(9, 3, 128)
    assert described.dtype == np.float32
    for point in (0, 8):
        for place, size in enumerate((20, 40, 80)):
            alone = sift_at(image, MEAN_FACE[[point]], (size,))[0, 0]
            np.testing.assert_array_equal(described[point, place], alone)


def test_alignment_undoes_rotation(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A face that is turned and shrunk is described nearly as the upright one, by its points."""
    cv2 = pytest.importorskip("cv2")
    image, points = drawn_face(np.random.default_rng(3), shift=0.0)
    upright = points[NINE]
    turn = cv2.getRotationMatrix2D((75, 80), 20, 0.8)
    turned = cv2.warpAffine(image, turn, (FRAME, FRAME), borderMode=cv2.BORDER_REPLICATE)
    known = {image.tobytes(): upright, turned.tobytes(): upright @ turn[:, :2].T + turn[:, 2]}
    monkeypatch.setattr(landmarks, "facial_points", lambda pixels, _: known[pixels.tobytes()])
    sizes = (20, 40)
    one, two = (FaceSift(sizes=sizes, model=model)(each) for each in (image, turned))
    mean = FaceSift("mean", sizes)(turned)
    assert np.linalg.norm(one - two) < 0.5 * np.linalg.norm(one - mean)


def test_version_depends_on_model(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.dat"
    other.write_bytes(b"other")
    versions = [
        FaceSift("mean").versions,
        FaceSift("detected", model=model).versions,
        FaceSift("detected", model=other).versions,
    ]
    assert len({str(each) for each in versions}) == 3


def test_wrong_models_are_rejected(tmp_path: Path) -> None:
    image = np.zeros((FRAME, FRAME), dtype=np.uint8)
    few = trained(tmp_path / "few.dat", 2)
    with pytest.raises(ValueError, match=r"must detect 68 points; .* detects 2"):
        facial_points(image, few)
    wrong = tmp_path / "wrong.dat"
    wrong.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"must be the file of a dlib shape predictor; .*wrong"):
        facial_points(image, wrong)


def test_error_names_missing_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = tmp_path / "any.dat"
    model.write_bytes(b"any")

    image = np.zeros((FRAME, FRAME), dtype=np.uint8)
    monkeypatch.setitem(sys.modules, "dlib", None)
    with pytest.raises(
        ImportError,
        match=r"^dlib-bin is not installed: pip install 'boostmetric_paper\[faces\]'",
    ):
        facial_points(image, model)
    monkeypatch.setattr(landmarks, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"^face_recognition_models is not installed"):
        model_file()


def test_wrong_parameters_are_rejected() -> None:
    with pytest.raises(ValueError, match="Got 'eyes' instead"):
        FaceSift("eyes")
    with pytest.raises(ValueError, match=r"Got \(2,\) instead"):
        FaceSift(sizes=(2,))


def test_landmarks_of_real_faces_are_near_mean(data_folder: Path) -> None:
    """On LFW, which is aligned, eyes are left and right of the nose and above the mouth."""
    pytest.importorskip("dlib", reason="dlib-bin is not installed")
    if find_spec("face_recognition_models") is None:
        pytest.skip("face_recognition_models, of 100 MB, is not installed")
    path = data_folder / "lfw_funneled_crop150_jpeg.npz"
    if not path.is_file():
        pytest.skip(f"{os.fspath(path)} is not there")
    with np.load(path) as stored:
        data, ends = stored["jpeg"], stored["offsets"][:81]
    files = [data[start:end].tobytes() for start, end in pairwise(ends)]
    found = np.stack([facial_points(file) for file in files])
    assert np.abs(np.median(found, axis=0) - MEAN_FACE).max() < 6
    eyes, nose, mouth = found[:, :4], found[:, 5], found[:, 7:]
    upright = (eyes[..., 1].max(axis=1) < nose[:, 1]) & (nose[:, 1] < mouth[..., 1].min(axis=1))
    assert upright.mean() > 0.95
