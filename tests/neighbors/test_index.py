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
    """An index that is no estimator; those below answer worse than it."""

    def fit(self, X: NDArray) -> None:
        self.points = X

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
        squares = ((X[:, None] - self.points) ** 2).sum(axis=2)
        return None, np.argsort(squares, axis=1, kind="stable")[:, :n_neighbors]


class Forgetful(Exact):
    """Has lost two in three of the points it was fitted on."""

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
        _, positions = super().kneighbors(X, len(self.points))
        return None, np.where(positions % 3 == 0, positions, NONE)[:, :n_neighbors]


class Random(Exact):
    """Answers at random, again and again the same, and sometimes not at all."""

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(len(X))
        return None, rng.integers(-2, len(self.points), (len(X), n_neighbors))


class Short(Exact):
    """Has one neighbour less than asked for."""

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
        return None, super().kneighbors(X, n_neighbors)[1][:, :-1]


class Backwards(Exact):
    """Exact, and of equally near points the last is first."""

    def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
        squares = ((X[:, None] - self.points[::-1]) ** 2).sum(axis=2)
        nearest = np.argsort(squares, axis=1, kind="stable")[:, :n_neighbors]
        return None, len(self.points) - 1 - nearest


@pytest.fixture
def no_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of few points have an index too."""
    monkeypatch.setattr(indexes, "MIN_INDEXED", 0)


def points_in_classes(sizes: list[int], D: int = 4, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Overlapping classes in an order of their own, a third of the points given twice."""
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
    """How many of the places found are no farther than the k-th nearest, and how many there are.

    Points that are given twice count once.
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [BRUTE, TREE, Exact()], ids=["brute", "kd_tree", "object"])
@pytest.mark.parametrize("sizes", SIZES, ids=["large", "tiny", "many", "uneven"])
@pytest.mark.parametrize("small", [4, 64])
def test_an_exact_index_finds_what_the_exact_search_does(
    monkeypatch: pytest.MonkeyPatch,
    sizes: list[int],
    index: Any,
    dtype: type[np.floating],
    small: int,
) -> None:
    X, labels = points_in_classes(sizes)
    X = X.astype(dtype)
    read_only(X)
    monkeypatch.setattr(indexes, "MIN_INDEXED", small)
    targets, impostors, recall = search(X, labels, 3, 4, index)
    true_targets, true_impostors = exact_search(X, labels, 3, 4)
    assert targets.tolist() == true_targets.tolist()
    assert impostors.tolist() == true_impostors.tolist()
    assert targets.dtype == true_targets.dtype
    assert recall == 1


@pytest.mark.usefixtures("no_small")
@pytest.mark.parametrize("max_groups", [2, 3, 5, 100])
@pytest.mark.parametrize("block", [1, 7, 4096])
def test_blocks_and_groups_of_classes_do_not_change_the_result(
    monkeypatch: pytest.MonkeyPatch, max_groups: int, block: int
) -> None:
    X, labels = points_in_classes([20, 3, 5, 1, 2, 9, 8, 7, 6])
    monkeypatch.setattr(indexes, "MAX_GROUPS", max_groups)
    monkeypatch.setattr(indexes, "N_QUERIES", block)
    monkeypatch.setattr("boostmetric.neighbors.ranking.PAIR_COORDINATES", 20)
    labels = 10 * labels - 7  # any integers will do
    targets, impostors, recall = search(X, labels, 2, 5, TREE)
    true_targets, true_impostors = exact_search(X, labels, 2, 5)
    assert targets.tolist() == true_targets.tolist()
    assert impostors.tolist() == true_impostors.tolist()
    assert recall == 1


@pytest.mark.parametrize("n_classes", [1, 2, 16, 17, 100, 256, 257, 3000, 4096, 4097])
def test_any_two_classes_are_apart_in_one_of_few_groupings(n_classes: int) -> None:
    groupings = list(indexes._digits(np.arange(n_classes), n_classes))
    assert len(groupings) == 1 + (n_classes > 16) + (n_classes > 256) + (n_classes > 4096)
    assert max(group.max() for group in groupings) < 16
    assert len(np.unique(np.stack(groupings), axis=1).T) == n_classes
    for group in groupings:
        assert np.unique(group).tolist() == list(range(group.max() + 1))


def test_among_many_small_classes_queries_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Counting(Exact):
        def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
            asked.append(len(X))
            return super().kneighbors(X, n_neighbors)

    X, labels = points_in_classes([3] * 200)
    monkeypatch.setattr(indexes, "MIN_INDEXED", 3)
    search(X, labels, 2, 3, Counting())
    assert 0 < sum(asked) <= 2 * 14 * len(X)  # two digits to the base 15


def grid(seed: int) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    X, labels = rng.integers(0, 4, (150, 3)).astype(float), rng.integers(0, 3, 150)
    read_only(X, labels)
    return X, labels


@pytest.mark.usefixtures("no_small")
@pytest.mark.parametrize("index", [BRUTE, TREE, Backwards()], ids=["brute", "kd_tree", "backwards"])
def test_ties_are_broken_by_row_number_but_for_the_last_place(index: Any) -> None:
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


def test_without_an_index_all_ties_are_broken_by_row_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, labels = grid(1)
    monkeypatch.setattr(indexes, "MIN_INDEXED", 1000)
    targets, impostors, _ = search(X, labels, 4, 5, Random())
    true_targets, true_impostors = exact_search(X, labels, 4, 5)
    assert targets.tolist() == true_targets.tolist()
    assert impostors.tolist() == true_impostors.tolist()


@pytest.mark.usefixtures("no_small")
def test_points_far_from_the_origin_keep_their_neighbours() -> None:
    X, labels = points_in_classes([40, 30, 20])
    far = np.round(X, 6) + 1e8  # the index sees them centered
    targets, impostors, recall = search(far, labels, 3, 3, BRUTE)
    true_targets, true_impostors = exact_search(far, labels, 3, 3)
    assert targets.tolist() == true_targets.tolist()
    assert impostors.tolist() == true_impostors.tolist()
    assert recall == 1


@pytest.mark.usefixtures("no_small")
@pytest.mark.parametrize("index", [Forgetful(), Random(), Short()], ids=lambda i: type(i).__name__)
def test_a_bad_index_is_found_out(index: Any, caplog: pytest.LogCaptureFixture) -> None:
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
def test_what_a_bad_index_finds_is_ranked_and_of_the_right_class(
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
def test_recall_is_measured_on_a_sample_of_200(caplog: pytest.LogCaptureFixture) -> None:
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
def test_a_neighbour_as_near_as_the_true_one_counts_as_found() -> None:
    X, labels = np.array([[-1.0], [0.0], [1.0], [-3.0], [3.0]]), np.array([0, 0, 0, 1, 1])
    targets, impostors, recall = search(X, labels, 1, 1, Backwards())
    assert (targets[1, 0], impostors[1, 0]) == (2, 4)
    assert recall == 1


def test_a_good_index_is_logged_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    X, labels = points_in_classes([80, 70])
    with caplog.at_level(logging.INFO, "boostmetric"):
        search(X, labels, 2, 3, TREE)
    assert "found 1.000 of the nearest neighbors of 150 points: 300 of 300 targets" in caplog.text


def test_where_there_are_no_neighbours_none_are_missed() -> None:
    X, labels = np.array([[0.0], [1.0], [0.0]]), np.array([0, 1, 0])
    targets, impostors, recall = search(X, labels, 1, 2, BRUTE)
    assert targets.tolist() == [[NONE]] * 3
    assert impostors.tolist() == [[1, NONE], [0, NONE], [1, NONE]]
    assert recall == 1


@pytest.mark.usefixtures("no_small")
def test_the_given_index_is_not_changed() -> None:
    X, labels = points_in_classes([40, 30])
    estimator = NearestNeighbors(n_neighbors=7, leaf_size=3)
    thing = Exact()
    thing.points = np.zeros((2, 4))
    for index in (estimator, thing):
        before = dict(vars(index))
        search(X, labels, 2, 2, index)
        assert vars(index) == before


@pytest.mark.parametrize(
    "index",
    ["exact", None, 3, NearestNeighbors, object(), np.zeros((2, 2)), {"fit": 1}],
    ids=range(7),
)
def test_what_is_no_index_is_refused(index: Any) -> None:
    with pytest.raises(ValueError, match=r"is not an index. Use None, 'faiss', or an object with"):
        check_index(index)
    nonsense: Any = "not looked at"
    with pytest.raises(ValueError, match=r"is not an index"):
        indexed_targets_and_impostors(nonsense, nonsense, 1, 1, index)


def test_an_index_that_needs_labels_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fit raises .*'y'.*Use .*NearestNeighbors rather than"):
        check_index(KNeighborsClassifier())


def test_without_a_library_the_built_in_index_says_what_to_install(
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
def test_answers_that_are_no_positions_are_refused(answer: Any, message: str) -> None:
    class Wrong(Exact):
        def kneighbors(self, X: NDArray, n_neighbors: int) -> tuple[Any, Any]:
            return None, answer(X, n_neighbors)

    labels = np.repeat([0, 1], 30)
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ValueError, match=rf"kneighbors of Wrong must return .*{message}"):
        search(X, labels, 2, 2, Wrong())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_built_in_index_finds_nearly_all() -> None:
    pytest.importorskip("faiss")
    X, labels = points_in_classes([1500, 700, 65, 3], D=8)
    for size in (1.0, 1e30):  # whose squares are beyond float32
        found = search(size * X, labels, 3, 4, "faiss")
        again = search(size * X, labels, 3, 4, "faiss")
        assert [side.tolist() for side in found[:2]] == [side.tolist() for side in again[:2]]
        assert found[2] > 0.95
        for mine, true in zip(found, exact_search(X, labels, 3, 4), strict=False):
            assert np.mean(mine == true) > 0.9


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_threads_of_faiss_change_nothing() -> None:
    faiss = pytest.importorskip("faiss")
    before = faiss.omp_get_max_threads()
    X, labels = points_in_classes([800, 900], D=5)
    one = search(X, labels, 2, 2, "faiss", n_jobs=1)
    three = search(X, labels, 2, 2, "faiss", n_jobs=3)
    assert one[0].tolist() == three[0].tolist()
    assert one[1].tolist() == three[1].tolist()
    assert faiss.omp_get_max_threads() == before
