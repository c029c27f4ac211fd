"""The experiment on MSRC, end to end on small images that are drawn here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

from boostmetric_paper.datasets import DatasetError
from boostmetric_paper.experiments import msrc
from boostmetric_paper.experiments.cells import Cell, Record
from boostmetric_paper.experiments.experiment import ExperimentError
from boostmetric_paper.experiments.msrc import (
    PAPER,
    SMALL,
    find_regions,
    load_halves,
    training_images,
)
from boostmetric_paper.experiments.registry import EXPERIMENTS
from boostmetric_paper.peers import Learned
from boostmetric_paper.vision import load_msrc
from boostmetric_paper.vision.sets import LEGEND
from boostmetric_paper.vision.sets import MSRC as CLASSES

PILImage = pytest.importorskip("PIL.Image", reason="images need Pillow")

N_IMAGES, HEIGHT, WIDTH = 24, 40, 60
PATCHES = [(slice(1, 19), slice(1, 29)), (slice(1, 19), slice(31, 59))]
PATCHES += [(slice(21, 39), columns) for _, columns in PATCHES]
"""Four to an image, with void between them."""


def classes_of(image: int) -> list[int]:
    return [(4 * image + patch) % len(CLASSES) for patch in range(len(PATCHES))]


def drawn(image: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Patches that have the color of their class, and stripes of its width; and their map."""
    rng = np.random.default_rng(image)
    pixels = rng.integers(256, size=(HEIGHT, WIDTH, 3))
    labels = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    for patch, label in zip(PATCHES, classes_of(image), strict=True):
        color = np.array([40 + 80 * (label % 3), 40 + 80 * (label // 3), 120])
        stripes = 25 * (np.arange(HEIGHT)[patch[0]] // (1 + label % 4) % 2)[:, None, None]
        pixels[patch] = color + stripes + rng.integers(-25, 25, size=pixels[patch].shape)
        labels[patch] = LEGEND[CLASSES[label]]
    return pixels.clip(0, 255).astype(np.uint8), labels


def write(folder: Path, image: int, pixels: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
    name = f"{1 + image // 3}_{1 + image % 3}_s"
    PILImage.fromarray(pixels).save(folder / f"{name}.bmp")
    PILImage.fromarray(labels).save(folder / f"{name}_GT.bmp")


def draw(folder: Path) -> None:
    """All images, as the archive unpacks to."""
    folder.mkdir(exist_ok=True)
    for image in range(N_IMAGES):
        write(folder, image, *drawn(image))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the archive unpacks to, and another one for the features."""
    place = tmp_path / "data"
    draw(place)
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(place))
    monkeypatch.setenv("BOOSTMETRIC_CACHE", str(tmp_path / "features"))
    return place


def run(method: str, seed: int = 0) -> Record:
    return EXPERIMENTS["msrc-small"].run(Cell("msrc-small", "regions", method, seed))


def ready(method: str = "euclidean", seed: int = 0) -> None:
    EXPERIMENTS["msrc-small"].check_ready([Cell("msrc-small", "regions", method, seed)])


@pytest.mark.filterwarnings("ignore:points of class .* targets:UserWarning")
@pytest.mark.parametrize(
    "method",
    [
        "euclidean",
        "boostmetric-e",
        "boostmetric-squared-hinge",
        pytest.param("recipe", marks=pytest.mark.slow),
    ],
)
def test_methods_classify_regions(folder: Path, method: str) -> None:
    ready(method)
    record = json.loads(json.dumps(run(method)))
    confusion = np.array(record["confusion"])
    assert record["n_train"] + record["n_test"] == N_IMAGES * len(PATCHES)
    assert record["n_test"] == confusion.sum()
    assert record["error"] == pytest.approx(1 - np.trace(confusion) / confusion.sum())
    assert record["error"] < 0.2
    assert record["skipped"] == []
    assert {"fit_seconds", "processor_seconds", "memory"} <= set(record)


def test_error_matches_scikit_learn(folder: Path) -> None:
    """Wrong labels in every third image make one neighbor worse than three."""
    for image in range(0, N_IMAGES, 3):
        pixels, labels = drawn(image)
        labels[PATCHES[0]] = LEGEND[CLASSES[(classes_of(image)[0] + 4) % len(CLASSES)]]
        write(folder, image, pixels, labels)
    train, test = load_halves(load_msrc(), SMALL, 1)
    errors = [1 - KNeighborsClassifier(k).fit(*train).score(*test) for k in (1, 3)]
    assert errors[0] != errors[1]
    assert run("euclidean", 1)["error"] == pytest.approx(errors[1])


def test_confusion_has_true_classes_in_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msrc, "majority", lambda neighbors, ties: np.full(len(neighbors), 4))
    confusion = np.array(run("euclidean")["confusion"])
    assert confusion[:, 4].sum() == confusion.sum()
    assert confusion[:, 4].min() > 0


def test_points_are_square_roots_of_shares(folder: Path) -> None:
    for part in load_halves(load_msrc(), SMALL, 0):
        assert part.X.shape == (len(part.y), SMALL.n_merged)
        counts = part.X**2 * 18 * 28
        np.testing.assert_allclose(counts, counts.round(), rtol=0, atol=1e-9)
        np.testing.assert_allclose(counts.sum(axis=1), 18 * 28)


def test_halves_depend_on_seed() -> None:
    halves = [training_images(241, seed) for seed in range(3)]
    for half in halves:
        assert len(np.unique(half)) == 120
        assert half.min() >= 0
        assert half.max() <= 240
        assert half.tolist() == sorted(half.tolist())
    assert len({tuple(half) for half in halves}) == 3
    np.testing.assert_array_equal(halves[1], training_images(241, 1))


def test_training_regions_ignore_test_images(folder: Path) -> None:
    before = load_halves(load_msrc(), SMALL, 0)
    held_out = np.setdiff1d(np.arange(N_IMAGES), training_images(N_IMAGES, 0))
    for image in held_out:
        pixels, labels = drawn(int(image))
        write(folder, int(image), 255 - pixels, labels)
    after = load_halves(load_msrc(), SMALL, 0)
    np.testing.assert_array_equal(after[0].X, before[0].X)
    np.testing.assert_array_equal(after[0].y, before[0].y)
    assert np.abs(after[1].X - before[1].X).max() > 0.1


def test_methods_share_the_regions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("euclidean")
    monkeypatch.setattr(msrc, "BagOfVisualWords", None)
    run("boostmetric-e")
    with pytest.raises(TypeError):
        run("euclidean", 1)


def test_regions_have_class_and_image(folder: Path) -> None:
    data = load_msrc()
    words: Iterator[NDArray[np.intp]] = (
        np.full((HEIGHT, WIDTH), image % SMALL.n_words) for image in range(N_IMAGES)
    )
    counts, y, rows = find_regions(data, SMALL, words)
    for image in range(N_IMAGES):
        assert sorted(y[rows == image].tolist()) == sorted(classes_of(image))
        assert (counts[rows == image, image % SMALL.n_words] == 18 * 28).all()


def test_unreadable_images_are_listed(folder: Path) -> None:
    path = folder / "1_2_s.bmp"
    path.write_bytes(path.read_bytes()[:500])
    record = run("euclidean")
    assert record["skipped"] == ["1_2_s"]
    assert record["n_train"] + record["n_test"] == (N_IMAGES - 1) * len(PATCHES)


def test_lmnn_runs_in_subprocess(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fake(name: str, X: NDArray, y: NDArray, **options: int) -> Learned:
        asked.append((name, X.shape, len(y), options))
        return Learned(2 * np.eye(X.shape[1]), {"iterations": 7})

    monkeypatch.setattr(msrc, "fit_in_subprocess", fake)
    record = run("lmnn")
    assert asked == [("lmnn", (48, SMALL.n_merged), 48, {"n_neighbors": 3})]
    assert record["iterations"] == 7
    assert record["error"] == run("euclidean")["error"]


@pytest.mark.parametrize(
    ("half", "left", "needed"), [("training", 1, 2), ("training", 0, 2), ("test", 0, 1)]
)
def test_half_without_class_is_rejected(folder: Path, half: str, left: int, needed: int) -> None:
    """All regions of cows but `left` become void, in the images of the half."""
    cow = CLASSES.index("cow")
    rows = training_images(N_IMAGES, 0)
    if half == "test":
        rows = np.setdiff1d(np.arange(N_IMAGES), rows)
    for image in [each for each in rows.tolist() if cow in classes_of(each)][left:]:
        pixels, labels = drawn(image)
        labels[PATCHES[classes_of(image).index(cow)]] = LEGEND["void"]
        write(folder, image, pixels, labels)
    with pytest.raises(ExperimentError) as caught:
        ready()
    assert str(caught.value).startswith(
        f"The {half} half of group 0 has {left} regions of the class cow with at least 100 pixels; "
        f"at least {needed} are required."
    )


def test_missing_images_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match=r"has no image 1_1_s\.bmp with a map 1_1_s_GT\.bmp"):
        ready()


def test_error_names_missing_pillow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match="Pillow is not installed"):
        ready()


def test_paper_has_ten_groups() -> None:
    experiment = EXPERIMENTS["msrc"]
    cells = experiment.cells(methods=("euclidean", "lmnn"))
    assert len(cells) == 20
    assert {cell.seed for cell in cells} == set(range(10))
    assert {cell.experiment for cell in cells} == {"msrc"}
    assert (PAPER.n_words, PAPER.n_merged, PAPER.n_neighbors) == (2000, 300, 10)


@pytest.mark.slow
def test_number_of_real_regions(data_folder: Path) -> None:
    data = load_msrc(data_folder)
    blank = (np.zeros(label_map.shape, dtype=np.intp) for label_map in data.maps)
    _, y, rows = find_regions(data, PAPER, blank)
    assert (len(y), len(np.unique(y)), rows.max()) == (550, 9, 239)
