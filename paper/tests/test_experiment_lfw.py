"""The experiment on faces, end to end on faces that are drawn, and its parts one by one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boostmetric_paper.datasets.catalogue import DatasetError
from boostmetric_paper.experiments import lfw
from boostmetric_paper.experiments.cells import Cell
from boostmetric_paper.experiments.experiment import ExperimentError
from boostmetric_paper.experiments.lfw import (
    LEVELS,
    PAPER,
    SMALL,
    Fold,
    Pairs,
    Recipe,
    Scores,
    accuracy,
    data_digest,
    load_fold,
    people_triplets,
    roc_rates,
    score_cosine,
    score_distance,
    whitened_within,
)
from boostmetric_paper.experiments.registry import EXPERIMENTS
from boostmetric_paper.vision import load_lfw

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

N_PEOPLE, N_IMAGES, N_FOLDS, PER_FOLD = 40, 3, 3, 8
NAMES = [f"Person_{chr(97 + number // 10)}{number % 10}" for number in range(N_PEOPLE)]


def draw_faces(folder: Path) -> None:
    """A tree as the archive unpacks to: textures that differ between people, with noise.

    Fold f has the people 8f to 8f + 7, and no fold has the others.
    """
    rng = np.random.default_rng(0)
    for name in NAMES:
        texture = rng.uniform(40, 216, size=(25, 25))
        (folder / "lfw_funneled" / name).mkdir(parents=True)
        for number in range(1, N_IMAGES + 1):
            coarse = texture + rng.normal(0, 25, size=texture.shape)
            pixels = np.kron(coarse, np.ones((10, 10))) + rng.normal(0, 4, size=(250, 250))
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(folder / "lfw_funneled" / name / f"{name}_{number:04d}.jpg")
    lines = [f"{N_FOLDS}\t{PER_FOLD}"]
    for fold in range(N_FOLDS):
        members = NAMES[fold * PER_FOLD : (fold + 1) * PER_FOLD]
        lines += [f"{name}\t1\t{2 + fold % 2}" for name in members]
        lines += [f"{a}\t1\t{b}\t2" for a, b in zip(members, np.roll(members, 1), strict=True)]
    (folder / "pairs.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faces")
    draw_faces(folder)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def faces(tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Drawn faces where the experiment looks for them, with features that the tests share."""
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tree))
    monkeypatch.setenv("BOOSTMETRIC_CACHE", str(cache))
    return tree


def small_cells(
    datasets: list[str] | None = None,
    methods: list[str] | None = None,
    seeds: list[int] | None = None,
) -> list[Cell]:
    return EXPERIMENTS["lfw-small"].cells(datasets, methods, seeds)


@pytest.mark.slow
@pytest.mark.usefixtures("faces")
def test_small_experiment_has_all_records() -> None:
    experiment, found = EXPERIMENTS["lfw-small"], {}
    cells = small_cells()
    experiment.check_ready(cells)
    for cell in cells:
        found[cell] = json.loads(json.dumps(experiment.run(cell)))
    for cell, record in found.items():
        assert record["n_test"] == 2 * PER_FOLD
        assert record["n_train"] == (N_PEOPLE - 2 * PER_FOLD) * N_IMAGES
        assert record["skipped"] == []
        assert 0 <= record["accuracy"] <= 1
        assert 0 <= record["equal_error_rate"] <= 1
        drawn = cell.dataset == "12D" and cell.method not in ("pca-whitened-cosine", "fixed-points")
        assert ("roc_found" in record) == drawn
        if cell.method in ("triplets=60", "best", "fixed-points"):
            assert record["ended"] in ("MAX_ITER", "STALLED", "STOPPED", "CONVERGED", "OPTIMAL")
            assert record["iterations"] >= 1
            assert record["fit_seconds"] > 0
            assert record["n_triplets"] == (120 if cell.method == "best" else 60)
    means = {
        method: np.mean([r["accuracy"] for cell, r in found.items() if cell.method == method])
        for method in experiment.methods
    }
    # The textures are easy to tell apart; chance is 1/2.
    assert means["within-class-cosine"] > 0.8
    assert means["best"] > 0.8
    assert means["combined"] > 0.8


@pytest.mark.usefixtures("faces")
def test_training_part_excludes_people_of_held_out_pairs() -> None:
    """By the names in pairs.txt: fold f has the people 8f to 8f + 7."""
    people = load_lfw().people
    for number in range(N_FOLDS):
        fold = load_fold(SMALL, number, 8)
        tested = set(NAMES[number * PER_FOLD :][:PER_FOLD])
        known = set(NAMES[(number + 1) % N_FOLDS * PER_FOLD :][:PER_FOLD])
        assert set(people[fold.train]) == set(NAMES) - tested - known
        assert set(people[fold.tests.rows].ravel()) == tested
        assert set(people[fold.known.rows].ravel()) == known


@pytest.mark.usefixtures("faces")
def test_points_are_principal_components_of_training_images() -> None:
    """PCA by the singular vectors of the centered training descriptors, up to signs."""
    fold = load_fold(SMALL, 0, 8)
    X = np.stack([SMALL.describe(image) for image in load_lfw().images]).astype(np.float64)
    mean = X[fold.train].mean(axis=0)
    _, _, axes = np.linalg.svd(X[fold.train] - mean, full_matrices=False)
    expected = (X - mean) @ axes[:8].T
    products = np.einsum("ij,ij->j", fold.X, expected)
    lengths = np.linalg.norm(fold.X, axis=0) * np.linalg.norm(expected, axis=0)
    np.testing.assert_allclose(np.abs(products) / lengths, 1, atol=1e-3)
    np.testing.assert_allclose(
        np.linalg.norm(fold.X - expected * np.sign(products), axis=0), 0, atol=0.2
    )


def small_fold(rng: np.random.Generator, **changes: Any) -> Fold:
    """Persons 0 to 4 to learn from, with 1, 2, 3, 4 and 5 images; others in pairs."""
    people = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 5, 5, 6, 7, 7, 8])
    parts = {
        "X": rng.normal(size=(len(people), 4)),
        "people": people,
        "train": np.arange(15),
        "known": Pairs(np.array([[15, 16], [15, 17]]), np.array([True, False])),
        "tests": Pairs(np.array([[18, 19], [18, 20]]), np.array([True, False])),
        "skipped": [],
    }
    return Fold(**{**parts, **changes})


def test_fold_that_trains_on_tested_person_is_rejected(rng: np.random.Generator) -> None:
    with pytest.raises(
        ValueError, match=r"^2 people are in the training part and in held-out pairs"
    ):
        small_fold(rng, train=np.array([0, 1, 15, 20]))


def test_training_images_are_reduced_by_person(rng: np.random.Generator) -> None:
    fold = small_fold(rng)
    assert Counter(fold.training_points()[1].tolist()) == {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}
    assert Counter(fold.training_points(3)[1].tolist()) == {0: 1, 1: 2, 2: 3, 3: 3, 4: 3}
    X, people = fold.training_points(max_images=2, min_images=3)
    assert people.tolist() == [2, 2, 3, 3, 4, 4]
    for point, person in zip(X, people, strict=True):
        row = np.flatnonzero((point == fold.X).all(axis=1))
        assert fold.people[row].tolist() == [person]
    assert len(np.unique(X, axis=0)) == len(X)


def test_triplets_have_two_people(rng: np.random.Generator) -> None:
    X, people = small_fold(rng).training_points(3)
    made = people_triplets(X, people, 40, Recipe(1, {}), seed=0)
    near, far = made.pairs[made.near], made.pairs[made.far]
    assert len(made) == 40
    assert (people[near[:, 0]] == people[near[:, 1]]).all()
    assert (people[far[:, 0]] != people[far[:, 1]]).all()
    assert all(set(a) & set(b) for a, b in zip(near.tolist(), far.tolist(), strict=True))
    assert 0 in people[far]  # who has one image is an impostor too


def test_impostor_is_nearest_of_random_candidates(rng: np.random.Generator) -> None:
    """After very many draws it is the nearest image of all others, found by brute force."""
    X, people = small_fold(rng).training_points(3)
    made = people_triplets(X, people, 10, Recipe(400, {}), seed=0)
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    squares[people[:, None] == people] = np.inf
    nearest = squares.argmin(axis=1)
    for near, far in zip(
        made.pairs[made.near].tolist(), made.pairs[made.far].tolist(), strict=True
    ):
        assert any(set(far) == {anchor, nearest[anchor]} for anchor in near)


def judged_fold(known: str, tests: str, step: float = 1.0) -> Fold:
    """Pairs by rising distance, "s" (same) or "d" (different): 1, 2, ... and 1.25, 1.25 + step."""
    m = len(known)
    ends = np.arange(4 * m).reshape(-1, 2)
    X = np.zeros((4 * m + 1, 1))
    X[ends[:m, 1], 0], X[ends[m:, 1], 0] = np.arange(m) + 1, step * np.arange(m) + 1.25
    people = np.arange(4 * m + 1)
    before, after = (
        Pairs(rows, np.array([kind == "s" for kind in kinds]))
        for rows, kinds in ((ends[:m], known), (ends[m:], tests))
    )
    return Fold(X, people, np.array([4 * m]), before, after, [])


@pytest.mark.parametrize(
    ("known", "tests", "right"),
    [
        ("ssdd", "ssdd", 1.0),  # accepted up to 2.5, so two of the tests
        ("sssd", "ssdd", 0.75),  # up to 3.5, so three
        ("ssdd", "dssd", 0.5),
    ],
)
def test_threshold_uses_known_pairs(known: str, tests: str, right: float) -> None:
    fold = judged_fold(known, tests)
    assert accuracy(fold, score_distance(fold)) == right


def test_curve_uses_quantiles_of_known_pairs() -> None:
    """Pair by pair: a test is accepted where enough known pairs are farther apart."""
    fold = judged_fold("sdsdd", "ssdsd", step=0.5)
    found = roc_rates(fold, score_distance(fold))
    known, tests = np.arange(5) + 1, 0.5 * np.arange(5) + 1.25
    shares = np.array([(known > distance).mean() for distance in tests])
    for name, kind in (("roc_found", "s"), ("roc_accepted", "d")):
        of_kind = shares[[each == kind for each in "ssdsd"]]
        expected = [(of_kind >= level).mean() for level in LEVELS]
        np.testing.assert_allclose(found[name], expected, atol=5e-5)
        assert found[name][0] == 1

    stretched = Scores(*(np.exp(scores) for scores in score_distance(fold)))
    assert roc_rates(fold, stretched) == found


def test_cosine_ignores_lengths(rng: np.random.Generator) -> None:
    fold = small_fold(rng)
    lengths = rng.uniform(0.5, 2, size=(len(fold.X), 1))
    a, b = fold.X[fold.tests.rows[0]]
    expected = a @ b / np.sqrt((a @ a) * (b @ b))
    assert score_cosine(fold).tests[0] == pytest.approx(expected)
    np.testing.assert_allclose(score_cosine(fold.mapped(lambda X: X * lengths)), score_cosine(fold))


def test_sphere_shrinks_variation_within_people(rng: np.random.Generator) -> None:
    """Images of a person differ along the first axis, people along the second."""
    people = np.repeat(np.arange(60), 4)
    X = np.column_stack([5 * rng.normal(size=240), rng.normal(size=60)[people]])
    X[:, 1] += 0.1 * rng.normal(size=240)
    fold = Fold(
        np.vstack([X, rng.normal(size=(6, 2))]),
        np.append(people, np.arange(100, 106)),
        np.arange(240),
        Pairs(np.array([[240, 241]]), np.array([True])),
        Pairs(np.array([[242, 243]]), np.array([True])),
        [],
    )
    found = whitened_within(fold).X
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    assert np.mean(found[:240, 1] ** 2) > 0.8


@pytest.mark.usefixtures("faces")
def test_features_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell("lfw-small", "8D", "within-class-cosine", 1)
    before = EXPERIMENTS["lfw-small"].run(cell)

    def never() -> None:
        raise AssertionError("the images were read again")

    monkeypatch.setattr(lfw, "load_lfw", never)
    assert EXPERIMENTS["lfw-small"].run(cell) == before


def test_digest_depends_on_contents_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path))
    (tmp_path / "lfw_funneled" / "Ann").mkdir(parents=True)
    image, pairs = tmp_path / "lfw_funneled" / "Ann" / "Ann_0001.jpg", tmp_path / "pairs.txt"
    found = []
    for one, two in ((b"1", b"2"), (b"1", b"3"), (b"4", b"2")):
        image.write_bytes(one)
        pairs.write_bytes(two)
        found.append(data_digest())
    (tmp_path / "other.npz").write_bytes(b"another set")
    assert data_digest() == found[-1]
    image.rename(image.with_name("Ann_0002.jpg"))
    assert len({*found, data_digest()}) == 4


def test_unreadable_images_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_faces(tmp_path)
    broken = tmp_path / "lfw_funneled" / NAMES[-1] / f"{NAMES[-1]}_0002.jpg"
    broken.write_bytes(b"no image")
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path))
    monkeypatch.setenv("BOOSTMETRIC_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        fold = load_fold(SMALL, 0, 8)
        assert fold.skipped == [broken.stem]
        assert len(fold.people) == N_PEOPLE * N_IMAGES - 1


def test_cells_match_paper() -> None:
    experiment = EXPERIMENTS["lfw"]
    cells = experiment.cells()
    assert experiment.datasets == ("100D", "200D", "300D", "400D")
    table = [cell for cell in cells if cell.method.startswith("triplets=")]
    assert len(table) == 4 * 6 * 10
    assert {cell.method for cell in table} == {f"triplets={3000 * n}" for n in range(1, 7)}
    for once in ("combined", "fixed-points"):
        assert {c.dataset for c in cells if c.method == once} == {"400D"}
    assert len(cells) == 240 + 10 * (4 * 4 + 2)
    assert len(set(cells)) == len(cells)
    assert PAPER.describe.points == "detected"


def test_error_names_missing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DatasetError, match=r"^There is no folder .*nowhere. Download lfw-funneled"):
        EXPERIMENTS["lfw-small"].check_ready(small_cells())


@pytest.mark.usefixtures("faces")
def test_seed_without_fold_is_rejected() -> None:
    with pytest.raises(
        ExperimentError,
        match=r"^lfw-small: best on 8D, seed 3: the seed is the number of a fold, .* have 3 folds",
    ):
        EXPERIMENTS["lfw-small"].check_ready(small_cells(["8D"], ["best"], [0, 3]))
