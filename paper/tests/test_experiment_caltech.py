from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier

from boostmetric import BoostMetric, Comparisons
from boostmetric_paper.datasets import DatasetError, Part
from boostmetric_paper.experiments import caltech
from boostmetric_paper.experiments.caltech import training_rows
from boostmetric_paper.experiments.cells import Cell
from boostmetric_paper.experiments.experiment import ExperimentError
from boostmetric_paper.experiments.registry import EXPERIMENTS
from boostmetric_paper.peers import Learned
from boostmetric_paper.vision import BagOfVisualWords, load_caltech101

pytest.importorskip("cv2", reason="SIFT needs OpenCV")
PILImage = pytest.importorskip("PIL.Image", reason="images need Pillow")

N_IMAGES = 14


def discs(rng: np.random.Generator) -> NDArray[np.uint8]:
    y, x = np.mgrid[:64, :64]
    image = rng.integers(0, 20, size=(64, 64))
    for _ in range(6):
        row, column, radius = rng.integers([6, 6, 3], [58, 58, 7])
        image[(y - row) ** 2 + (x - column) ** 2 < radius**2] = 220
    return image.astype(np.uint8)


def bars(rng: np.random.Generator) -> NDArray[np.uint8]:
    image = rng.integers(0, 20, size=(64, 64))
    for column in range(4, 60, 9):
        top, bottom = rng.integers([4, 36], [28, 60])
        image[top:bottom, column : column + 4] = 220
    return image.astype(np.uint8)


def draw(folder: Path, n_images: int = N_IMAGES) -> None:
    """The tree of the archive, with four classes: discs, bars, discs and bars."""
    for number, name in enumerate((*caltech.MOTORBIKES, *caltech.FACES)):
        (folder / "101_ObjectCategories" / name).mkdir(parents=True)
        for row in range(n_images):
            pixels = (discs, bars)[number % 2](np.random.default_rng([number, row]))
            path = folder / "101_ObjectCategories" / name / f"image_{row:04}.png"
            PILImage.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("caltech")
    draw(folder / "data")
    return folder


@pytest.fixture
def small(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The drawn images, and a cache that the tests share."""
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tree / "data"))
    monkeypatch.setenv("BOOSTMETRIC_CACHE", str(tree / "cache"))
    return tree / "data"


def cell_of(experiment: str, method: str, dataset: str = "8-words", seed: int = 0) -> Cell:
    return Cell(f"caltech-{experiment}-small", dataset, method, seed)


def run(experiment: str, method: str, dataset: str = "8-words", seed: int = 0) -> dict[str, Any]:
    cell = cell_of(experiment, method, dataset, seed)
    return EXPERIMENTS[cell.experiment].run(cell)


def counts_of(classes: tuple[str, str], seed: int) -> tuple[Part, Part]:
    """The training and the test part, without the cache."""
    images, y, _ = load_caltech101(classes=classes)
    train = training_rows(y, seed)
    test = np.setdiff1d(np.arange(len(y)), train)
    bag = BagOfVisualWords(8, random_state=seed).fit(images.take(train))
    parts = [Part(bag.transform(images.take(rows)), y[rows]) for rows in (train, test)]
    return parts[0], parts[1]


@pytest.mark.parametrize(("sizes", "n_train"), [((798, 800), 959), ((435, 468), 542)])
def test_split_sizes_match_paper(sizes: tuple[int, int], n_train: int) -> None:
    y = np.repeat([0, 1], sizes)
    drawn = [training_rows(y, seed) for seed in range(10)]
    assert {len(rows) for rows in drawn} == {n_train}
    assert all(len(set(rows.tolist())) == n_train for rows in drawn)
    assert len({tuple(rows.tolist()) for rows in drawn}) == 10
    np.testing.assert_array_equal(drawn[3], training_rows(y, 3))
    assert len({np.sum(y[rows]) for rows in drawn}) > 1, "plain, not stratified"


def test_split_has_all_classes_on_both_sides() -> None:
    y = np.repeat([0, 1], [2, 30])
    for seed in range(50):
        assert np.sum(y[training_rows(y, seed)] == 0) == 1


def test_error_matches_three_neighbors(small: Path) -> None:
    train, test = counts_of(caltech.MOTORBIKES, seed=1)
    expected = 1 - KNeighborsClassifier(3).fit(*train).score(*test)
    record = run("motorbikes", "euclidean", seed=1)
    assert record["error"] == pytest.approx(expected)
    assert (record["n_train"], record["n_test"]) == (17, 11)
    assert record["n_descriptors"] == train.X.sum() + test.X.sum()
    assert record["skipped"] == []


@pytest.mark.parametrize("dataset", ["8-words", "8-words-shares"])
def test_precision_queries_are_faces(small: Path, dataset: str) -> None:
    test = counts_of(caltech.FACES, seed=0)[1]
    forms = {"words": test.X, "shares": test.X / test.X.sum(axis=1)[:, None]}
    X = forms[dataset.split("-")[-1]]
    np.testing.assert_allclose(
        caltech.load_bags(caltech.FACES, cell_of("faces", "euclidean", dataset)).test.X, X
    )
    record = run("faces", "euclidean", dataset)
    for k in (2, 4):
        precisions = []
        for query in np.flatnonzero(test.y == 0):
            others = np.delete(np.arange(len(X)), query)
            distances = ((X[others] - X[query]) ** 2).sum(axis=1)
            nearest = others[np.argsort(distances, kind="stable")[:k]]
            precisions.append(np.mean(test.y[nearest] == 0))
        assert record[f"precision_{k}"] == pytest.approx(np.mean(precisions))
    assert set(record) >= {"n_train", "n_test", "skipped", "fit_seconds", "memory"}


def test_words_use_training_images_and_are_cached(
    tree: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOSTMETRIC_CACHE", str(tmp_path))
    seen: list[list[str]] = []
    fit = BagOfVisualWords.fit

    def watched(bag: BagOfVisualWords, images: Any, y: object = None) -> BagOfVisualWords:
        seen.append(list(images.names))
        return fit(bag, images, y)

    monkeypatch.setattr(BagOfVisualWords, "fit", watched)
    for dataset in ("8-words", "8-words-shares", "8-words"):
        run("faces", "euclidean", dataset, seed=1)
    images, y, _ = load_caltech101(classes=caltech.FACES)
    assert seen == [images.take(training_rows(y, 1)).names]
    run("faces", "euclidean", seed=0)
    run("faces", "euclidean", "12-words", seed=1)
    run("motorbikes", "euclidean", seed=1)
    assert len(seen) == 4
    assert seen[1] != seen[0] == seen[2]


def test_cache_depends_on_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(tmp_path / "data")
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BOOSTMETRIC_CACHE", str(tmp_path / "cache"))
    before = run("motorbikes", "euclidean")
    path = tmp_path / "data" / "101_ObjectCategories" / "airplanes" / "image_0000.png"
    path.write_bytes((path.parent / "image_0001.png").read_bytes())
    after = run("motorbikes", "euclidean")
    assert after["n_descriptors"] != before["n_descriptors"]
    path.write_bytes(path.read_bytes()[:50])
    record = run("motorbikes", "euclidean")
    assert record["skipped"] == ["airplanes/image_0000.png"]
    assert record["n_train"] + record["n_test"] == 2 * N_IMAGES - 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:points of class")
@pytest.mark.parametrize("experiment", ["motorbikes", "faces"])
def test_every_method_runs(small: Path, experiment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def fake(name: str, X: NDArray, y: NDArray, **options: Any) -> Learned:
        asked.append((name, X.shape, sorted(set(y.tolist())), options))
        return Learned(None, {"iterations": 7})

    monkeypatch.setattr(caltech, "fit_in_subprocess", fake)
    measure = "error" if experiment == "motorbikes" else "precision_2"
    found = {}
    for method in EXPERIMENTS[f"caltech-{experiment}-small"].methods:
        record = run(experiment, method)
        assert 0 <= record[measure] <= 1
        assert record["fit_seconds"] > 0
        found[method] = record
    assert asked == [("lmnn", (17, 8), [0, 1], {"n_neighbors": 3})]
    assert found["lmnn"][measure] == found["euclidean"][measure]
    assert found["lmnn"]["iterations"] == 7
    assert found["boostmetric-e"]["iterations"] > 0
    assert found["boostmetric-e"]["ended"]


def test_number_of_triplets(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """17 training images have 153 triplets of 3 neighbors, and 272 of 4."""
    seen: list[Comparisons] = []
    fit = BoostMetric.fit

    def watched(learner: Any, X: NDArray, y: Any = None, **options: Any) -> Any:
        seen.append(options["comparisons"])
        return fit(learner, X, y, **options)

    monkeypatch.setattr(BoostMetric, "fit", watched)
    train = counts_of(caltech.MOTORBIKES, seed=0)[0]
    for n_triplets in (20, 153, 200):
        learned = caltech.learn(f"triplets={n_triplets}", train, seed=0)
        assert learned.measures["n_triplets"] == len(seen[-1]) == n_triplets
    triplets = Comparisons.from_labels(*train, 3, 3)

    def named(comparisons: Comparisons) -> Counter[tuple[Any, ...]]:
        ends = (comparisons.pairs[comparisons.near], comparisons.pairs[comparisons.far])
        return Counter(map(tuple, np.concatenate(ends, axis=1).tolist()))

    assert named(seen[1]) == named(triplets)
    assert named(seen[0]) < named(triplets)
    assert not named(seen[2]) <= named(triplets)


def test_triplet_series_uses_first_codebook() -> None:
    chosen = EXPERIMENTS["caltech-motorbikes"]
    cells = chosen.cells()
    figure = [cell for cell in cells if cell.method.startswith("triplets=")]
    assert {cell.dataset for cell in figure} == {"100-words"}
    assert len(figure) == 80
    assert len(cells) == 80 + 5 * 2 * 10
    assert len(set(cells)) == len(cells)
    assert chosen.cells(["200-words"], ["triplets=500"]) == []


def ready(experiment: str, method: str = "euclidean") -> None:
    cell = cell_of(experiment, method)
    EXPERIMENTS[cell.experiment].check_ready([cell])


def test_small_folder_is_ready(small: Path) -> None:
    ready("motorbikes")
    ready("faces")


def test_error_names_missing_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path))
    with pytest.raises(
        DatasetError, match=r"no image of the class Motorbikes, airplanes. Download"
    ):
        ready("motorbikes")


def test_too_few_images_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path))
    draw(tmp_path, n_images=7)
    with pytest.raises(ExperimentError, match="Motorbikes has 7 readable images; at least 8 are"):
        ready("motorbikes")


def test_too_few_test_images_are_rejected(small: Path) -> None:
    cell = Cell("caltech-faces", "100-words", "euclidean", 0)
    with pytest.raises(ExperimentError, match=r"test part has 11 of 28 images, .* the 20 nearest"):
        EXPERIMENTS["caltech-faces"].check_ready([cell])


def test_missing_packages_and_peers_raise_before_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("BOOSTMETRIC_PEERS", str(tmp_path / "python"))
    with pytest.raises(ExperimentError, match=r"^lmnn need the interpreter"):
        ready("faces", "lmnn")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match="opencv-python-headless is not installed"):
        ready("faces")
