from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import Memory
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from boostmetric_paper.vision import BagOfVisualWords, Images, Sift, pixel_responses

cv2 = pytest.importorskip("cv2", reason="SIFT needs OpenCV")


def circles(seed: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:64, :64]
    image = rng.integers(0, 20, size=(64, 64))
    for _ in range(6):
        row, column, radius = rng.integers([6, 6, 3], [58, 58, 7])
        image[(y - row) ** 2 + (x - column) ** 2 < radius**2] = 220
    return image.astype(np.uint8)


def stripes(seed: int) -> NDArray[np.uint8]:
    """Bars of random lengths, whose ends are interest points."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 20, size=(64, 64))
    for column in range(4, 60, 9):
        top, bottom = rng.integers([4, 36], [28, 60])
        image[top:bottom, column : column + 4] = 220
    return image.astype(np.uint8)


@pytest.fixture(scope="module")
def images() -> list[NDArray[np.uint8]]:
    return [make(seed) for make in (circles, stripes) for seed in range(6)]


def test_interest_points_match_opencv(images: list[NDArray[np.uint8]]) -> None:
    for image in images[:2] + images[-2:]:
        expected = cv2.SIFT_create().detectAndCompute(image, None)[1]
        found = Sift()(image)
        assert found.dtype == np.float32
        assert len(found) > 0
        np.testing.assert_array_equal(found, expected)


def test_grid_patches_match_opencv(images: list[NDArray[np.uint8]]) -> None:
    spots = [
        cv2.KeyPoint(float(x), float(y), size / 6, 0.0)
        for size in (12, 24)
        for y in range(size // 2, 65 - size // 2, 7)
        for x in range(size // 2, 65 - size // 2, 7)
    ]
    expected = cv2.SIFT_create().compute(images[0], spots)[1]
    found = Sift("dense", step=7, sizes=(12, 24))(images[0])
    np.testing.assert_array_equal(found, expected)


def test_descriptor_depends_only_on_its_patch() -> None:
    """A spot changes the descriptor of a patch of 24 pixels within it, and not beyond its reach."""
    flat = np.full((96, 96), 100, dtype=np.uint8)
    sift = Sift("dense", step=96, sizes=(24,))
    middle = sift.grid(flat)[0]
    assert middle == (12.0, 12.0, 24)
    inside, outside = flat.copy(), flat.copy()
    inside[18:20, 18:20] = 255
    outside[60:62, 60:62] = 255
    assert sift(flat).max() == 0
    assert sift(inside).max() > 0
    assert sift(outside).max() == 0


def test_root_sift_has_hellinger_distances(images: list[NDArray[np.uint8]]) -> None:
    plain, root = Sift()(images[0]), Sift(root=True)(images[0])
    p, q = (plain[row] / plain[row].sum() for row in (0, 1))
    expected = sum((np.sqrt(a) - np.sqrt(b)) ** 2 for a, b in zip(p, q, strict=True))
    assert np.sum((root[0] - root[1]) ** 2) == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(np.linalg.norm(root, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (15, 40), (2, 2, 3)])
@pytest.mark.parametrize("points", ["interest", "harris", "dense"])
def test_small_images_have_no_descriptors(shape: tuple[int, ...], points: str) -> None:
    found = Sift(points)(np.zeros(shape, dtype=np.uint8))
    assert found.shape == (0, 128)
    assert found.dtype == np.float32


def test_patch_of_image_size_fits() -> None:
    assert len(Sift("dense", sizes=(16,))(circles(0)[:16, :16])) == 1


@pytest.mark.parametrize("points", ["interest", "harris", "dense"])
def test_histograms_count_nearest_words(images: list[NDArray[np.uint8]], points: str) -> None:
    bag = BagOfVisualWords(7, points=points, step=12, random_state=0).fit(images)
    histograms = bag.transform(images[4:8])
    for image, histogram in zip(images[4:8], histograms, strict=True):
        expected = np.zeros(7)
        for descriptor in Sift(points, step=12)(image).astype(float):
            distances = [np.sum((descriptor - word) ** 2) for word in bag.codebook_.astype(float)]
            expected[int(np.argmin(distances))] += 1
        np.testing.assert_array_equal(histogram, expected)
    assert bag.n_descriptors_ == sum(len(Sift(points, step=12)(image)) for image in images)
    assert bag.n_empty_ == 0
    assert len(bag.get_feature_names_out()) == 7


def test_norms_of_histograms(images: list[NDArray[np.uint8]]) -> None:
    bag = BagOfVisualWords(5, random_state=0).fit(images)
    counts = bag.transform(images)
    shares = counts / counts.sum(axis=1)[:, None]
    lengths = np.sqrt((counts**2).sum(axis=1))[:, None]
    for norm, expected in (("l1", shares), ("sqrt", shares**0.5), ("l2", counts / lengths)):
        np.testing.assert_allclose(bag.set_params(norm=norm).transform(images), expected)


@pytest.mark.parametrize("norm", [None, "l1", "l2", "sqrt"])
def test_images_without_points_have_zero_histograms(
    images: list[NDArray[np.uint8]], norm: str | None
) -> None:
    blank = np.full((30, 30), 128, dtype=np.uint8)
    bag = BagOfVisualWords(5, norm=norm, random_state=0).fit([blank, *images, blank])
    assert bag.n_empty_ == 2
    with pytest.warns(UserWarning, match="2 of 3 images have no descriptors") as caught:
        histograms = bag.transform([images[0], blank, blank])
    assert caught[0].filename == __file__
    assert not histograms[1:].any()
    assert histograms[0].any()


def test_kind_of_image_does_not_change_result(
    images: list[NDArray[np.uint8]], tmp_path: Path
) -> None:
    sources: list[Any] = []
    for number, image in enumerate(images):
        path = tmp_path / f"{number}.png"
        cv2.imwrite(str(path), image)
        color = np.stack([image] * 3, axis=-1)
        sources.append([path, str(path), path.read_bytes(), color][number % 4])
    bag = BagOfVisualWords(6, random_state=0)
    expected = bag.fit_transform(images)
    np.testing.assert_array_equal(bag.fit_transform(sources), expected)
    lazy = Images(sources, [str(number) for number in range(len(sources))])
    np.testing.assert_array_equal(bag.fit_transform(lazy), expected)
    np.testing.assert_array_equal(bag.fit_transform(np.stack(images)), expected)


def test_threads_and_memory_do_not_change_result(
    images: list[NDArray[np.uint8]], tmp_path: Path
) -> None:
    bag = BagOfVisualWords(6, max_descriptors=60, root=True, random_state=3)
    expected = bag.fit_transform(images)
    for parameters in ({"n_jobs": 2}, {"memory": tmp_path}, {"memory": str(tmp_path), "n_jobs": 2}):
        np.testing.assert_array_equal(
            clone(bag).set_params(**parameters).fit_transform(images), expected
        )
    stored = list(tmp_path.rglob("output.pkl"))
    assert len(stored) == len(images)
    clone(bag).set_params(memory=Memory(tmp_path, verbose=0), root=False).fit(images)
    assert len(list(tmp_path.rglob("output.pkl"))) == 2 * len(images)
    stored[0].write_bytes(stored[0].read_bytes()[:20])  # damaged, so it is computed again
    again = clone(bag).set_params(memory=tmp_path).fit_transform(images)
    np.testing.assert_array_equal(again, expected)


def test_k_means_uses_equal_numbers_per_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors are numbers of their image, so that what k-means sees can be counted."""
    seen: list[NDArray] = []

    def fit(kmeans: KMeans, descriptors: NDArray) -> KMeans:
        seen.append(descriptors)
        kmeans.cluster_centers_ = descriptors[:2]
        return kmeans

    monkeypatch.setattr(KMeans, "fit", fit)
    images = [np.full((10, 10), value, dtype=np.uint8) for value in range(5)]
    images[4] = images[4][:1, :2]
    bag = BagOfVisualWords(2, points=lambda image: image.reshape(-1, 1), random_state=0)
    bag.set_params(max_descriptors=40).fit(images)
    assert np.bincount(seen[0].ravel()).tolist() == [8, 8, 8, 8, 2]
    assert bag.n_descriptors_ == 402


def test_mini_batches_are_as_good(
    images: list[NDArray[np.uint8]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = np.concatenate([Sift()(image) for image in images]).astype(float)

    def cost(bag: BagOfVisualWords) -> float:
        distances = ((sample[:, None] - bag.codebook_[None]) ** 2).sum(axis=2)
        return float(distances.min(axis=1).mean())

    exact = cost(BagOfVisualWords(4, random_state=0).fit(images))
    monkeypatch.setattr("boostmetric_paper.vision.words.MAX_DISTANCES", 0)
    assert cost(BagOfVisualWords(4, random_state=0).fit(images)) < 1.15 * exact


def test_whitened_words_use_mahalanobis_distance() -> None:
    color = [np.random.default_rng(i).integers(256, size=(8, 9, 3), dtype=np.uint8) for i in (0, 1)]
    bag = BagOfVisualWords(4, points=pixel_responses, whiten=True, random_state=0).fit(color)
    sample = np.concatenate([pixel_responses(image) for image in color]).astype(float)
    inverse = np.linalg.inv(np.cov(sample.T))
    assert bag.whitening_ is not None
    centers = np.linalg.solve(bag.whitening_, bag.codebook_.T.astype(float)).T
    expected = [
        int(np.argmin([(x - c) @ inverse @ (x - c) for c in centers]))
        for x in pixel_responses(color[0]).astype(float)
    ]
    assert bag.words(color[0]).tolist() == expected


def test_whitening_rejects_collinear_descriptors() -> None:
    flat = np.zeros((6, 6, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match="covariance of 36 descriptors is singular"):
        BagOfVisualWords(2, points=pixel_responses, whiten=True).fit([flat])


def test_pipeline_classifies_circles_and_stripes(
    images: list[NDArray[np.uint8]],
) -> None:
    y = np.repeat(["circles", "stripes"], 6)
    bag = BagOfVisualWords(10, points="dense", norm="sqrt", random_state=0)
    pipeline = make_pipeline(bag, KNeighborsClassifier(3)).fit(images, y)
    new = [make(seed) for make in (circles, stripes) for seed in range(50, 53)]
    assert pipeline.predict(new).tolist() == ["circles"] * 3 + ["stripes"] * 3


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"points": "corners"}, "'points' parameter .* Got 'corners' instead"),
        ({"step": 0}, "'step' parameter .* Got 0 instead"),
        ({"sizes": (16, 3)}, r"'sizes' parameter .* Got \(16, 3\) instead"),
        ({"n_words": 0}, "'n_words' parameter .* Got 0 instead"),
        ({"norm": "max"}, "'norm' parameter .* Got 'max' instead"),
        ({"points": pixel_responses, "memory": "x"}, "memory stores SIFT descriptors only"),
    ],
)
def test_wrong_parameters_raise_before_reading(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BagOfVisualWords(**parameters).fit([b"no image"])


@pytest.mark.parametrize(
    "images", ["a.png", b"", Path("a.png"), np.zeros((9, 9), np.uint8), iter([])]
)
def test_single_image_is_rejected(images: Any) -> None:
    with pytest.raises(ValueError, match="must be a sequence of images"):
        BagOfVisualWords().fit(images)


def test_empty_list_of_images_is_rejected() -> None:
    with pytest.raises(ValueError, match="images is empty"):
        BagOfVisualWords().fit([])


def test_fewer_descriptors_than_words_are_rejected() -> None:
    blank = np.zeros((20, 20), dtype=np.uint8)
    with pytest.raises(ValueError, match="n_words=8 exceeds the 0 descriptors of 2 images"):
        BagOfVisualWords(8).fit([blank, blank])


def test_error_names_missing_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match="opencv-python-headless is not installed"):
        BagOfVisualWords().fit([circles(0)])
