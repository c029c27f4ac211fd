from __future__ import annotations

import logging
import sys
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from boostmetric.data.labels import Labels
from boostmetric.engines import Threads
from boostmetric.neighbors import (
    NONE,
    check_index,
    indexed_targets_and_impostors,
    nearest_targets_and_impostors,
)
from boostmetric.neighbors import index as indexes

BRUTE = NearestNeighbors(algorithm="brute")
TREE = NearestNeighbors(algorithm="kd_tree")


def search(
    X: NDArray, labels: NDArray, n_targets: int, n_impostors: int, index: Any, n_jobs: int = 1
) -> tuple[NDArray, NDArray, float]:
    with Threads(n_jobs) as threads:
        return indexed_targets_and_impostors(
            X, Labels.of(labels), n_targets, n_impostors, index, threads=threads
        )


def exact_search(
    X: NDArray, labels: NDArray, n_targets: int, n_impostors: int
) -> tuple[NDArray, NDArray]:
    return nearest_targets_and_impostors(X, Labels.of(labels), n_targets, n_impostors)


class Exact:
    """A brute-force index that is not an estimator."""

    def fit(self, X: NDArray) -> None:
        self.points = X

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
        squares = ((X[:, None] - self.points) ** 2).sum(axis=2)
        return None, np.argsort(squares, axis=1, kind="stable")[:, :n_neighbors]


class Forgetful(Exact):
    """Returns only every third point."""

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
        _, positions = super().kneighbors(X, len(self.points))
        return None, np.where(positions % 3 == 0, positions, NONE)[:, :n_neighbors]


class Random(Exact):
    """Returns random positions, with repetitions and missing neighbors."""

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(len(X))
        return None, rng.integers(-2, len(self.points), (len(X), n_neighbors))


class Short(Exact):
    """Returns one neighbor less than requested."""

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
        return None, super().kneighbors(X, n_neighbors)[1][:, :-1]


class Backwards(Exact):
    """Exact, but breaks ties by the last position."""

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
        squares = ((X[:, None] - self.points[::-1]) ** 2).sum(axis=2)
        nearest = np.argsort(squares, axis=1, kind="stable")[:, :n_neighbors]
        return None, len(self.points) - 1 - nearest


@pytest.fixture
def no_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small classes have an index, too."""
    monkeypatch.setattr(indexes, "MIN_INDEXED", 0)


def points_in_classes(sizes: list[int], D: int = 4, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Overlapping classes in random order; a third of the points occur twice."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(labels), D)) + 0.5 * rng.normal(size=(len(sizes), D))[labels]
    order = rng.permutation(np.concatenate([np.arange(len(X)), np.arange(0, len(X), 3)]))
    X, labels = X[order], labels[order]
    read_only(X, labels)
    return X, labels


def squares_to(X: NDArray, found: NDArray) -> NDArray:
    squares = ((X[:, None].astype(float) - X[found].astype(float)) ** 2).sum(axis=2)
    return np.where(found == NONE, np.inf, squares)


def recall_by_loop(X: NDArray, labels: NDArray, found: NDArray, same: bool) -> tuple[int, int]:
    """Number of neighbors no farther than the k-th nearest, and number of true neighbors.

    Duplicates count once.
    """
    n_found = n_exist = 0
    rows = np.unique(np.column_stack([X, labels]), axis=0, return_index=True)[1]
    for i in rows:
        others = rows[((labels[rows] == labels[i]) == same) & (rows != i)]
        true = np.sort(((X[others] - X[i]) ** 2).sum(axis=1))[: found.shape[1]]
        mine = ((X[found[i][found[i] != NONE]] - X[i]) ** 2).sum(axis=1)
        n_exist += len(true)
        n_found += int(np.sum(mine <= true.max(initial=0) * (1 + 1e-9)))
    return n_found, n_exist


SIZES = [[70, 64, 65, 3], [2, 1, 40, 1, 9], [4] * 18, [90] + [3] * 37]


@pytest.mark.parametrize(
    ("index", "dtype", "min_indexed"),
    [(BRUTE, np.float64, 4), (TREE, np.float32, 4), (Exact(), np.float32, 64)],
    ids=["brute", "kd_tree", "object"],
)
@pytest.mark.parametrize("sizes", SIZES, ids=["large", "tiny", "many", "uneven"])
def test_exact_index_matches_the_exact_search(
    monkeypatch: pytest.MonkeyPatch,
    sizes: list[int],
    index: Any,
    dtype: type[np.floating],
    min_indexed: int,
) -> None:
    X, labels = points_in_classes(sizes)
    X = X.astype(dtype)
    read_only(X)
    monkeypatch.setattr(indexes, "MIN_INDEXED", min_indexed)
    targets, impostors, recall = search(X, labels, 3, 4, index)
    true_targets, true_impostors = exact_search(X, labels, 3, 4)
    assert targets.tolist() == true_targets.tolist()
    assert impostors.tolist() == true_impostors.tolist()
    assert targets.dtype == true_targets.dtype
    assert recall == 1


@pytest.mark.usefixtures("no_small")
@pytest.mark.parametrize(("max_groups", "n_queries"), [(2, 1), (3, 7), (5, 4096), (100, 7)])
def test_result_does_not_depend_on_groups_and_batches(
    monkeypatch: pytest.MonkeyPatch, max_groups: int, n_queries: int
) -> None:
    X, labels = points_in_classes([20, 3, 5, 1, 2, 9, 8, 7, 6])
    monkeypatch.setattr(indexes, "MAX_GROUPS", max_groups)
    monkeypatch.setattr(indexes, "N_QUERIES", n_queries)
    monkeypatch.setattr("boostmetric.neighbors.ranking.PAIR_COORDINATES", 20)
    labels = 10 * labels - 7  # labels may be any integers
    targets, impostors, recall = search(X, labels, 2, 5, TREE)
    true_targets, true_impostors = exact_search(X, labels, 2, 5)
    assert targets.tolist() == true_targets.tolist()
    assert impostors.tolist() == true_impostors.tolist()
    assert recall == 1


@pytest.mark.parametrize("n_classes", [1, 16, 17, 100, 256, 257, 4096, 4097])
def test_digits_separate_all_classes(n_classes: int) -> None:
    groupings = list(indexes._digits(np.arange(n_classes), n_classes))
    assert len(groupings) == 1 + (n_classes > 16) + (n_classes > 256) + (n_classes > 4096)
    assert max(group.max() for group in groupings) < 16
    assert len(np.unique(np.stack(groupings), axis=1).T) == n_classes
    for group in groupings:
        assert np.unique(group).tolist() == list(range(group.max() + 1))


def test_many_classes_need_few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    n_queries = []

    class Counting(Exact):
        def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
            n_queries.append(len(X))
            return super().kneighbors(X, n_neighbors)

    X, labels = points_in_classes([3] * 200)
    monkeypatch.setattr(indexes, "MIN_INDEXED", 3)
    search(X, labels, 2, 3, Counting())
    assert 0 < sum(n_queries) <= 2 * 14 * len(X)  # two digits in base 15


def grid(seed: int) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    X, labels = rng.integers(0, 4, (150, 3)).astype(float), rng.integers(0, 3, 150)
    read_only(X, labels)
    return X, labels


@pytest.mark.usefixtures("no_small")
@pytest.mark.parametrize("index", [BRUTE, TREE, Backwards()], ids=["brute", "kd_tree", "backwards"])
def test_ties_before_the_last_neighbor_are_broken_by_row(index: Any) -> None:
    X, labels = grid(0)
    *found, recall = search(X, labels, 4, 5, index)
    for mine, true in zip(found, exact_search(X, labels, 4, 5), strict=True):
        squares = squares_to(X, true)
        assert np.array_equal(squares_to(X, mine), squares)
        nearer = squares < squares[:, -1:]
        assert (mine == true)[nearer].all()
        tied = np.diff(squares, axis=1) == 0
        assert (np.diff(mine, axis=1) > 0)[tied & (mine[:, 1:] != NONE)].all()
    assert recall == 1


def test_brute_force_breaks_all_ties_by_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, labels = grid(1)
    monkeypatch.setattr(indexes, "MIN_INDEXED", 1000)
    targets, impostors, _ = search(X, labels, 4, 5, Random())
    true_targets, true_impostors = exact_search(X, labels, 4, 5)
    assert targets.tolist() == true_targets.tolist()
    assert impostors.tolist() == true_impostors.tolist()


@pytest.mark.usefixtures("no_small")
def test_offset_does_not_change_neighbors() -> None:
    X, labels = points_in_classes([40, 30, 20])
    far = np.round(X, 6) + 1e8  # the index receives centered points
    targets, impostors, recall = search(far, labels, 3, 3, BRUTE)
    true_targets, true_impostors = exact_search(far, labels, 3, 3)
    assert targets.tolist() == true_targets.tolist()
    assert impostors.tolist() == true_impostors.tolist()
    assert recall == 1


@pytest.mark.usefixtures("no_small")
@pytest.mark.parametrize("index", [Forgetful(), Random(), Short()], ids=lambda i: type(i).__name__)
def test_low_recall_causes_a_warning(index: Any, caplog: pytest.LogCaptureFixture) -> None:
    X, labels = points_in_classes([50, 30, 20, 1], seed=1)
    with (
        caplog.at_level(logging.INFO, "boostmetric"),
        pytest.warns(UserWarning, match=r"index found \d+% of .* 101 sampled .* exact") as caught,
    ):
        targets, impostors, recall = search(X, labels, 3, 4, index)
    assert caught[0].filename == __file__
    of_targets = recall_by_loop(X, labels, targets, same=True)
    of_impostors = recall_by_loop(X, labels, impostors, same=False)
    expected = (of_targets[0] + of_impostors[0]) / (of_targets[1] + of_impostors[1])
    assert recall == expected
    assert 0 < recall < 0.9
    assert (
        f"found {recall:.3f} of the nearest neighbors of 101 points: "
        f"{of_targets[0]} of {of_targets[1]} targets, "
        f"{of_impostors[0]} of {of_impostors[1]} impostors" in caplog.text
    )


@pytest.mark.usefixtures("no_small")
@pytest.mark.filterwarnings("ignore:The index found")
@pytest.mark.parametrize("index", [Forgetful(), Random(), Short()], ids=lambda i: type(i).__name__)
@pytest.mark.parametrize("sizes", SIZES, ids=["large", "tiny", "many", "uneven"])
def test_results_of_a_poor_index_are_ranked_and_of_the_right_class(
    index: Any, sizes: list[int]
) -> None:
    X, labels = points_in_classes(sizes)
    *found, _ = search(X, labels, 3, 4, index)
    for mine, same in zip(found, (True, False), strict=True):
        exist = mine != NONE
        assert ((labels[mine] == labels[:, None]) == same)[exist].all()
        squares = squares_to(X, mine)
        assert (squares[exist] > 0).all()
        for left, right in combinations(range(mine.shape[1]), 2):
            assert (squares[:, left] <= squares[:, right]).all()
            assert (mine[:, left] != mine[:, right])[exist[:, right]].all()


@pytest.mark.usefixtures("no_small")
@pytest.mark.filterwarnings("ignore:The index found")
def test_recall_is_measured_on_200_points(caplog: pytest.LogCaptureFixture) -> None:
    X, labels = points_in_classes([300, 300], D=3)
    with caplog.at_level(logging.INFO, "boostmetric"):
        targets, impostors, recall = search(X, labels, 3, 3, Forgetful())
    assert "neighbors of 200 points" in caplog.text
    assert recall == search(X, labels, 3, 3, Forgetful())[2]
    true_targets, true_impostors = exact_search(X, labels, 3, 3)
    of_all = np.mean(
        [
            squares_to(X, mine) <= squares_to(X, true)[:, -1:] * (1 + 1e-9)
            for mine, true in ((targets, true_targets), (impostors, true_impostors))
        ]
    )
    assert recall == pytest.approx(of_all, abs=0.05)
    assert recall < 0.6


@pytest.mark.usefixtures("no_small")
def test_tied_neighbors_count_as_found() -> None:
    X, labels = np.array([[-1.0], [0.0], [1.0], [-3.0], [3.0]]), np.array([0, 0, 0, 1, 1])
    targets, impostors, recall = search(X, labels, 1, 1, Backwards())
    assert (targets[1, 0], impostors[1, 0]) == (2, 4)
    assert recall == 1


def test_high_recall_is_logged_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    X, labels = points_in_classes([80, 70])
    with caplog.at_level(logging.INFO, "boostmetric"):
        search(X, labels, 2, 3, TREE)
    assert "found 1.000 of the nearest neighbors of 150 points: 300 of 300 targets" in caplog.text


def test_missing_neighbors_do_not_lower_the_recall() -> None:
    X, labels = np.array([[0.0], [1.0], [0.0]]), np.array([0, 1, 0])
    targets, impostors, recall = search(X, labels, 1, 2, BRUTE)
    assert targets.tolist() == [[NONE]] * 3
    assert impostors.tolist() == [[1, NONE], [0, NONE], [1, NONE]]
    assert recall == 1


@pytest.mark.usefixtures("no_small")
def test_index_is_not_modified() -> None:
    X, labels = points_in_classes([40, 30])
    custom = Exact()
    custom.points = np.zeros((2, 4))
    for index in (NearestNeighbors(n_neighbors=7, leaf_size=3), custom):
        before = dict(vars(index))
        search(X, labels, 2, 2, index)
        assert vars(index) == before


@pytest.mark.parametrize(
    "index",
    ["exact", None, 3, NearestNeighbors, object(), np.zeros((2, 2)), {"fit": 1}],
    ids=range(7),
)
def test_invalid_index_is_rejected(index: Any) -> None:
    with pytest.raises(ValueError, match=r"is not an index. Use None, 'faiss', or an object with"):
        check_index(index)
    unused: Any = None
    with pytest.raises(ValueError, match=r"is not an index"):
        indexed_targets_and_impostors(unused, unused, 1, 1, index)


def test_index_that_requires_labels_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"fit raises .*'y'.*Use .*NearestNeighbors rather than"):
        check_index(KNeighborsClassifier())


def test_missing_faiss_raises_with_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r'pip install "boostmetric\[approximate\]"'):
        check_index("faiss")


@pytest.mark.usefixtures("no_small")
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda X, k: np.zeros(len(X), dtype=int), r"one row for each of \d+ queries; got .*shape"),
        (
            lambda X, k: np.zeros((1, k), dtype=int),
            r"one row for each of \d+ queries; got .*\(1, 2",
        ),
        (lambda X, k: np.full((len(X), k), 30), r"positions of the 30 points .* got 30 \(int"),
        (lambda X, k: np.zeros((len(X), k)), r"integer positions .* got 0.0 \(float64\)"),
    ],
)
def test_invalid_positions_are_rejected(answer: Any, message: str) -> None:
    class Wrong(Exact):
        def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
            return None, answer(X, n_neighbors)

    labels = np.repeat([0, 1], 30)
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ValueError, match=rf"kneighbors of Wrong must return .*{message}"):
        search(X, labels, 2, 2, Wrong())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_faiss_has_high_recall() -> None:
    pytest.importorskip("faiss")
    X, labels = points_in_classes([1500, 700, 65, 3], D=8)
    for size in (1.0, 1e30):  # squares of 1e30 overflow in float32
        found = search(size * X, labels, 3, 4, "faiss")
        again = search(size * X, labels, 3, 4, "faiss")
        assert [side.tolist() for side in found[:2]] == [side.tolist() for side in again[:2]]
        assert found[2] > 0.95
        for mine, true in zip(found, exact_search(X, labels, 3, 4), strict=False):
            assert np.mean(mine == true) > 0.9


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_faiss_does_not_depend_on_threads() -> None:
    faiss = pytest.importorskip("faiss")
    before = faiss.omp_get_max_threads()
    X, labels = points_in_classes([800, 900], D=5)
    one = search(X, labels, 2, 2, "faiss", n_jobs=1)
    three = search(X, labels, 2, 2, "faiss", n_jobs=3)
    assert one[0].tolist() == three[0].tolist()
    assert one[1].tolist() == three[1].tolist()
    assert faiss.omp_get_max_threads() == before
