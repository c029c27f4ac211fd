from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine

from boostmetric.problem import Comparisons

Pair = tuple[int, int]
Statement = tuple[Pair, Pair, float, float]


def statements(comparisons: Comparisons) -> list[Statement]:
    """(near, far, gap, weight) of every comparison, read off the table of pairs."""
    m = len(comparisons)
    gaps = np.zeros(m) if comparisons.gaps is None else comparisons.gaps
    weights = np.ones(m) if comparisons.weights is None else comparisons.weights
    pairs = [(int(i), int(j)) for i, j in comparisons.pairs]
    return [
        (pairs[near], pairs[far], float(gap), float(weight))
        for near, far, gap, weight in zip(
            comparisons.near, comparisons.far, gaps, weights, strict=True
        )
    ]


def pair(i: int, j: int) -> Pair:
    return (min(i, j), max(i, j)) if i != j else (0, 0)


def assert_canonical(comparisons: Comparisons) -> None:
    pairs = [tuple(row) for row in comparisons.pairs.tolist()]
    assert pairs == sorted(set(pairs))
    assert all(i < j or (i, j) == (0, 0) for i, j in pairs)
    used = np.concatenate([comparisons.near, comparisons.far])
    assert np.array_equal(np.unique(used), np.arange(len(pairs)))


def mined_by_loop(
    X: NDArray, y: NDArray, n_targets: int, n_impostors: int
) -> Counter[tuple[Pair, Pair]]:
    found: Counter[tuple[Pair, Pair]] = Counter()
    for i in range(len(X)):
        nearest = sorted(range(len(X)), key=lambda j: float(np.sum((X[i] - X[j]) ** 2)))
        targets = [j for j in nearest if j != i and y[j] == y[i]][:n_targets]
        impostors = [j for j in nearest if y[j] != y[i]][:n_impostors]
        found.update((pair(i, j), pair(i, k)) for j, k in product(targets, impostors))
    return found


def ends(comparisons: Comparisons) -> Counter[tuple[Pair, Pair]]:
    return Counter((near, far) for near, far, _, _ in statements(comparisons))


def scales_that_balance() -> tuple[NDArray, NDArray]:
    """The data `balance`, which are all of its 625 combinations."""
    X = np.array(list(product(range(1, 6), repeat=4)))
    return X, np.sign(X[:, 0] * X[:, 1] - X[:, 2] * X[:, 3])


@pytest.mark.parametrize(("n_targets", "n_impostors"), [(3, 3), (1, 1), (2, 4), (5, 1)])
def test_from_labels_matches_a_loop(
    blobs: tuple[NDArray, NDArray], n_targets: int, n_impostors: int
) -> None:
    X, y = blobs
    comparisons = Comparisons.from_labels(X, y, n_targets, n_impostors)
    assert len(comparisons) == len(X) * n_targets * n_impostors
    assert ends(comparisons) == mined_by_loop(X, y, n_targets, n_impostors)
    assert comparisons.weights is None
    assert comparisons.gaps is None
    assert comparisons.n_points == len(X)
    assert_canonical(comparisons)


@pytest.mark.parametrize(
    ("load", "n", "m"),
    [
        (lambda: load_iris(return_X_y=True), 105, 945),
        (lambda: load_wine(return_X_y=True), 125, 1125),
        (scales_that_balance, 438, 3942),
    ],
    ids=["iris", "wine", "balance"],
)
def test_number_of_triplets_matches_the_paper(
    load: Callable[[], tuple[NDArray, NDArray]], n: int, m: int, rng: np.random.Generator
) -> None:
    X, y = load()
    chosen = rng.permutation(len(X))[:n]
    assert len(Comparisons.from_labels(X[chosen], y[chosen])) == m


def test_from_labels_does_not_depend_on_threads(blobs: tuple[NDArray, NDArray]) -> None:
    one, two = (Comparisons.from_labels(*blobs, n_jobs=n) for n in (1, 2))
    assert statements(one) == statements(two)


@pytest.mark.parametrize(
    "rename",
    [
        lambda y: np.array(["no", "yes"])[y],
        lambda y: y.astype(bool),
        lambda y: np.array(["no", "yes"], dtype=object)[y],
        lambda y: y.astype(object),
        lambda y: y * 2.0 - 7,
        lambda y: y.astype(np.uint8).tolist(),
    ],
    ids=["str", "bool", "object of str", "object of int", "float", "list"],
)
def test_from_labels_accepts_any_label_type(
    rename: Callable[[NDArray], Any], rng: np.random.Generator
) -> None:
    X, y = rng.normal(size=(40, 3)), rng.permutation(np.arange(40) % 2)
    read_only(X, y)
    expected = Comparisons.from_labels(X, y)
    assert statements(Comparisons.from_labels(X, rename(y))) == statements(expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64])
def test_unsigned_integers_do_not_overflow(dtype: type[np.generic]) -> None:
    X = np.array([[0], [250], [5], [255]], dtype=dtype)
    read_only(X)
    comparisons = Comparisons.from_labels(X, [0, 1, 0, 1], 1, 1)
    assert sorted(ends(comparisons)) == [
        ((0, 2), (0, 1)),
        ((0, 2), (1, 2)),
        ((1, 3), (1, 2)),
        ((1, 3), (2, 3)),
    ]


def test_from_labels_accepts_booleans_and_lists() -> None:
    lists = [[False, True], [True, True], [False, False], [True, False]]
    comparisons = Comparisons.from_labels(lists, list("aabb"), 1, 1)
    assert ends(comparisons) == mined_by_loop(np.array(lists, float), np.array(list("aabb")), 1, 1)


def test_duplicates_are_not_targets() -> None:
    X = np.array([[0.0], [0.0], [2.0], [5.0], [6.0]])
    comparisons = Comparisons.from_labels(X, [0, 0, 0, 1, 1], 1, 1)
    near = {near for near, _, _, _ in statements(comparisons)}
    assert near == {(0, 2), (1, 2), (3, 4)}


def weight_by_place(comparisons: Comparisons, X: NDArray) -> dict[object, float]:
    total: dict[object, float] = {}
    for near, far, _, weight in statements(comparisons):
        key = tuple(tuple(sorted(tuple(X[i]) for i in ends)) for ends in (near, far))
        total[key] = total.get(key, 0.0) + weight
    return total


def test_weight_two_equals_a_repeated_point(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(45, 3)), rng.permutation(np.arange(45) % 3)
    doubled = rng.permutation(45)[:20]
    weight = np.ones(45)
    weight[doubled] = 2
    read_only(X, y, weight, doubled)
    weighted = Comparisons.from_labels(X, y, sample_weight=weight)
    twice = np.concatenate([np.arange(45), doubled])
    repeated = Comparisons.from_labels(X[twice], y[twice])
    assert weight_by_place(weighted, X) == weight_by_place(repeated, X[twice])
    assert len(weighted) + 9 * 20 == len(repeated)


def test_points_of_weight_zero_are_ignored(blobs: tuple[NDArray, NDArray]) -> None:
    X, y = blobs
    weight = np.tile([0.0, 0.5, 3.0], len(X) // 3)
    kept = np.flatnonzero(weight)
    weighted = Comparisons.from_labels(X, y, sample_weight=weight)
    alone = Comparisons.from_labels(X[kept], y[kept], sample_weight=weight[kept])
    assert weighted.n_points == len(X)
    assert weight_by_place(weighted, X) == weight_by_place(alone, X[kept])


def test_comparison_has_the_weight_of_its_anchor() -> None:
    X = np.array([[0.0], [1.0], [4.0], [5.5]])
    comparisons = Comparisons.from_labels(X, [0, 0, 1, 1], 1, 1, sample_weight=[1, 2, 3, 4])
    assert sorted(statements(comparisons)) == [
        ((0, 1), (0, 2), 0.0, 1.0),
        ((0, 1), (1, 2), 0.0, 2.0),
        ((2, 3), (1, 2), 0.0, 3.0),
        ((2, 3), (1, 3), 0.0, 4.0),
    ]


def test_small_class_is_named_in_a_warning(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(12, 2)), np.array(["few"] * 3 + ["many"] * 9)
    with pytest.warns(UserWarning, match=r"class 'few' have 2 of 3 targets \(1 class"):
        comparisons = Comparisons.from_labels(X, y)
    assert ends(comparisons) == mined_by_loop(X, y, 3, 3)
    assert len(comparisons) == 3 * 2 * 3 + 9 * 9
    with pytest.warns(UserWarning, match=r"class 'many' have 3 of 4 impostors"):
        comparisons = Comparisons.from_labels(X, y, 1, 4)
    assert ends(comparisons) == mined_by_loop(X, y, 1, 4)


def test_class_of_duplicates_gives_a_warning(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(10, 2)), np.repeat([7, 8], 5)
    X[:5] = 0
    with pytest.warns(UserWarning, match=r"class 7 have 0 of 1 targets"):
        comparisons = Comparisons.from_labels(X, y, 1, 1)
    assert len(comparisons) == 5


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[0], [1], [2]], ["a", "c", "b"], "All 3 classes have a single sample"),
        ([[0], [1]], [True, True], "y has only one class, True"),
        (np.empty((0, 2)), [], "y is empty"),
        ([[0], [1]], np.array(["a", 1], dtype=object), "labels y must be of one sortable type"),
        ([0.0, 1.0], [0, 1], r"X must have shape \(n, D\) and y n labels; got \(2,\) and \(2,\)"),
        ([[0.0], [1.0]], [0, 1, 1], r"n labels; got \(2, 1\) and \(3,\)"),
        ([[0.0], [1.0]], [[0], [1]], r"n labels; got \(2, 1\) and \(2, 1\)"),
    ],
)
def test_invalid_labels_are_rejected(X: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparisons.from_labels(X, y)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, 1, 0, 0], "sample_weight"),
        ([0, 0, 0, 0], "sample_weight"),
        ([1, 1, 1], r"sample_weight must be of shape \(4,\); got \(3,\)"),
        ([1, 1, -2, 1], "sample_weight must be >= 0, got values between -2 and 1"),
        ([1, 1, np.inf, 1], "sample_weight must be finite"),
        (["a", "b", "c", "d"], "sample_weight must be numbers; got"),
    ],
)
def test_invalid_sample_weights_are_rejected(weight: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparisons.from_labels([[0], [1], [2], [3]], [0, 0, 1, 1], 1, 1, sample_weight=weight)


def test_only_duplicates_are_rejected() -> None:
    with (
        pytest.warns(UserWarning, match=r"have 0 of \d targets"),
        pytest.raises(ValueError, match="At least one comparison is required"),
    ):
        Comparisons.from_labels([[0], [0], [1], [1]], [0, 0, 1, 1], 1, 1)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float64])
@pytest.mark.parametrize("width", [3, 4])
def test_pairs_are_sorted_and_distinct(
    dtype: type[np.generic], width: int, rng: np.random.Generator
) -> None:
    rows = np.array([rng.permutation(9)[:width] for _ in range(60)]).astype(dtype)
    read_only(rows)
    if width == 3:
        comparisons = Comparisons.from_triplets(rows)
        expected = [(pair(a, b), pair(a, c)) for a, b, c in rows.astype(int).tolist()]
    else:
        comparisons = Comparisons.from_quadruplets(rows)
        expected = [(pair(a, b), pair(c, d)) for a, b, c, d in rows.astype(int).tolist()]
    assert [s[:2] for s in statements(comparisons)] == expected
    assert_canonical(comparisons)
    assert len(comparisons) == 60
    assert repr(comparisons) == f"<60 comparisons, {len(comparisons.pairs)} pairs>"


def test_point_with_itself_is_the_null_pair() -> None:
    comparisons = Comparisons.from_quadruplets([[5, 5, 1, 2], [7, 7, 4, 3]])
    assert [s[:2] for s in statements(comparisons)] == [((0, 0), (1, 2)), ((0, 0), (3, 4))]
    assert_canonical(comparisons)


def test_from_pairs_compares_with_the_null_pair() -> None:
    comparisons = Comparisons.from_pairs(
        [[2, 1], [0, 3], [1, 2]], [1, -1, -1], thresholds=[4.0, 9.0, 5.0], weights=[1.0, 2.0, 3.0]
    )
    assert statements(comparisons) == [
        ((1, 2), (0, 0), -4.0, 1.0),
        ((0, 0), (0, 3), 9.0, 2.0),
        ((0, 0), (1, 2), 5.0, 3.0),
    ]
    assert_canonical(comparisons)


def test_default_threshold_is_one() -> None:
    comparisons = Comparisons.from_pairs([[0, 1], [1, 2]], [1, -1])
    assert [gap for _, _, gap, _ in statements(comparisons)] == [-1.0, 1.0]


@pytest.mark.parametrize(("given", "held"), [(None, [0, 0]), (-2, [-2, -2]), ([1, -3], [1, -3])])
def test_gaps_are_scalar_or_per_comparison(given: Any, held: list[float]) -> None:
    comparisons = Comparisons.from_triplets([[0, 1, 2], [2, 1, 0]], gaps=given)
    assert [gap for _, _, gap, _ in statements(comparisons)] == held


@pytest.mark.parametrize(("given", "held"), [(None, [1, 1]), (2, [2, 2]), ([0, 3], [0, 3])])
def test_weights_are_scalar_or_per_comparison(given: Any, held: list[float]) -> None:
    comparisons = Comparisons.from_quadruplets([[0, 1, 2, 3], [2, 1, 0, 3]], weights=given)
    assert [weight for _, _, _, weight in statements(comparisons)] == held


@pytest.mark.parametrize("gaps", [(None, None), (None, 2.0), (-1.5, None), (1.0, 2.0)])
@pytest.mark.parametrize("weights", [(None, None), (None, 0.5), (3.0, None), (3.0, 0.5)])
def test_add_concatenates_comparisons(
    gaps: tuple[float | None, float | None], weights: tuple[float | None, float | None]
) -> None:
    one = Comparisons.from_triplets([[4, 1, 2], [3, 2, 1]], gaps=gaps[0], weights=weights[0])
    two = Comparisons.from_quadruplets([[0, 1, 1, 2]], gaps=gaps[1], weights=weights[1])
    joined = one + two
    assert statements(joined) == statements(one) + statements(two)
    assert_canonical(joined)
    assert (joined.gaps is None) == (gaps == (None, None))
    assert (joined.weights is None) == (weights == (None, None))


@pytest.mark.parametrize(
    ("n_points", "expected"), [((None, None), None), ((7, None), 7), ((None, 7), 7), ((7, 7), 7)]
)
def test_add_keeps_the_number_of_points(
    n_points: tuple[int | None, int | None], expected: int | None
) -> None:
    one, two = (Comparisons.from_triplets([[0, 1, 2]], n_points=n) for n in n_points)
    assert (one + two).n_points == expected


def test_add_rejects_other_operands() -> None:
    one = Comparisons.from_triplets([[0, 1, 2]], n_points=3)
    with pytest.raises(ValueError, match="Comparisons of 3 and 4 points cannot be joined"):
        one + Comparisons.from_triplets([[0, 1, 2]], n_points=4)
    with pytest.raises(TypeError):
        one + "more"  # type: ignore[operator]


@pytest.mark.parametrize(
    "rows", [np.array([3, 0, 3]), slice(1, None, 2), np.arange(5) % 2 == 0], ids=str
)
def test_getitem_keeps_gaps_and_weights(rows: NDArray | slice) -> None:
    triplets = [[0, 1, 2], [3, 1, 2], [2, 1, 0], [4, 0, 3], [1, 4, 2]]
    comparisons = Comparisons.from_triplets(
        triplets, gaps=np.arange(5.0), weights=np.arange(1.0, 6.0), n_points=5
    )
    chosen = comparisons[rows]
    numbers = np.arange(5)[rows]
    assert statements(chosen) == [statements(comparisons)[r] for r in numbers]
    assert len(chosen) == len(numbers)
    assert chosen.n_points == 5
    bare = Comparisons.from_triplets(triplets)[rows]
    assert bare.gaps is None
    assert bare.weights is None


INTEGERS = "triplets must contain integer row numbers of X"


@pytest.mark.parametrize(
    ("triplets", "message"),
    [
        ([[0, 1]], r"triplets must have shape \(m, 3\); got \(1, 2\)"),
        ([0, 1, 2], r"triplets must have shape \(m, 3\); got \(3,\)"),
        ([], r"triplets must have shape \(m, 3\); got \(0,\)"),
        (np.empty((0, 3)), "At least one comparison is required"),
        ([["a", "b", "c"]], f"{INTEGERS}; got <U1"),
        ([[True, False, True]], f"{INTEGERS}; got bool"),
        ([[0, 1, 2j]], f"{INTEGERS}; got complex128"),
        ([[0, 1, 2.5]], f"{INTEGERS}; got fractions or NaN"),
        ([[0, 1, np.nan]], f"{INTEGERS}; got fractions or NaN"),
        ([[0, 1, np.inf]], f"{INTEGERS}; got fractions or NaN"),
        ([[0, 1, -1]], "triplets must contain row numbers of X, which are >= 0; got -1"),
        (
            [[0, 1, 2], [4, 3, 3], [5, 1, 1]],
            r"of 2 comparisons are the same; the first is comparison 1 with \[4, 3\] and \[4, 3\]",
        ),
        (
            [[5, 1, 5]],
            r"is a point with itself; the first is comparison 0, \[5, 1, 5\]",
        ),
    ],
)
def test_invalid_triplets_are_rejected(triplets: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparisons.from_triplets(triplets)


@pytest.mark.parametrize(
    ("quadruplets", "message"),
    [
        ([[0, 1, 2]], r"quadruplets must have shape \(m, 4\); got \(1, 3\)"),
        ([[0, 1, 1, 0]], r"comparison 0 with \[0, 1\] and \[1, 0\]"),
        (
            [[0, 1, 2, 3], [3, 4, 7, 7]],
            r"is a point with itself; the first is comparison 1, \[3, 4, 7, 7\]",
        ),
    ],
)
def test_invalid_quadruplets_are_rejected(quadruplets: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparisons.from_quadruplets(quadruplets)


@pytest.mark.parametrize(
    ("pairs", "y", "thresholds", "message"),
    [
        ([[0, 1, 2]], [1], 1.0, r"pairs must have shape \(m, 2\); got \(1, 3\)"),
        ([[0, 1]], [0], 1.0, r"y must be 1 .* shape \(1,\); .* values \[0\]"),
        ([[0, 1]], [1, -1], 1.0, r"y must be 1 .* got shape \(2,\)"),
        ([[0, 1]], ["same"], 1.0, r"y must be 1 .* values \['same'\]"),
        ([[0, 1]], [1], [1.0, 2.0], r"thresholds must be of shape \(1,\); got \(2,\)"),
        ([[0, 1]], [1], 0.0, "thresholds must be positive; got 0"),
        ([[0, 1]], [1], -1.0, "thresholds must be positive; got -1"),
        ([[0, 1], [1, 2]], [1, 1], [1.0, np.nan], "thresholds must be finite"),
        ([[0, 1]], [1], np.inf, "thresholds must be finite"),
        ([[0, 1], [4, 4]], [1, 1], 1.0, r"must consist of two points; pair 1 is \[4, 4\]"),
        (np.empty((0, 2)), [], 1.0, "At least one comparison is required"),
    ],
)
def test_invalid_pairs_are_rejected(pairs: Any, y: Any, thresholds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparisons.from_pairs(pairs, y, thresholds=thresholds)


@pytest.mark.parametrize("name", ["gaps", "weights"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0], r"must be of shape \(2,\); got \(1,\)"),
        ([[1.0], [2.0]], r"must be of shape \(2,\); got \(2, 1\)"),
        ([1.0, np.nan], "must be finite; got NaN or infinity"),
        (np.inf, "must be finite; got NaN or infinity"),
        ("heavy", "must be numbers; got 'heavy'"),
        ([None, "x"], r"must be numbers; got \[None, 'x'\]"),
    ],
)
def test_invalid_gaps_and_weights_are_rejected(name: str, values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"{name} {message}"):
        Comparisons.from_triplets([[0, 1, 2], [2, 1, 0]], **{name: values})


def test_negative_weights_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"weights must be >= 0, got values between -0\.5 and"):
        Comparisons.from_triplets([[0, 1, 2], [2, 1, 0]], weights=[1.0, -0.5])


def test_check_points_rejects_other_points() -> None:
    comparisons = Comparisons.from_triplets([[0, 1, 5]], n_points=8)
    comparisons.check_points(8)
    Comparisons.from_triplets([[0, 1, 5]]).check_points(6)
    with pytest.raises(ValueError, match="created for 8 points, but X has 7 rows"):
        comparisons.check_points(7)
    with pytest.raises(ValueError, match=r"contain row 5, but X has 5 rows \(0 to 4\)"):
        comparisons.check_points(5)
    with pytest.raises(ValueError, match="contain row 5, but X has 4 rows"):
        Comparisons.from_triplets([[0, 1, 5]], n_points=4)


@pytest.mark.parametrize(
    ("numbers", "message"), [((0, 1), "'n_targets' parameter"), ((1, -1), "n_impostors")]
)
def test_zero_neighbors_are_rejected(numbers: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparisons.from_labels([[0], [1], [2], [3]], [0, 0, 1, 1], *numbers)


def test_getitem_keeps_only_used_pairs() -> None:
    chosen = Comparisons.from_triplets([[0, 1, 2], [7, 8, 9]])[:1]
    assert chosen.pairs.tolist() == [[0, 1], [0, 2]]
    chosen.check_points(3)


def people_by_loop(pairs: list[list[int]], people: list[str]) -> set[tuple[int, int, int]]:
    """All triplets (i, j, k) of the images that the pairs name."""
    named = {row for ends in pairs for row in ends}
    same = [(i, j) for i, j in pairs if people[i] == people[j]]
    ordered = {*same, *((j, i) for i, j in same)}
    return {(i, j, k) for (i, j), k in product(ordered, named) if people[k] != people[i]}


PEOPLE = list("abacabbdea")
PEOPLE_PAIRS = [[0, 2], [2, 0], [4, 2], [1, 5], [5, 6], [0, 1], [3, 7], [9, 3]]


def test_from_people_draws_from_all_triplets() -> None:
    expected = people_by_loop(PEOPLE_PAIRS, PEOPLE)
    assert not any(8 in triplet for triplet in expected)  # which no pair names
    every = Comparisons.from_people(PEOPLE_PAIRS, PEOPLE, len(expected), random_state=0)
    wanted = Counter((pair(i, j), pair(i, k)) for i, j, k in expected)
    assert ends(every) == wanted
    assert every.n_points == len(PEOPLE)
    assert_canonical(every)
    some = [
        statements(Comparisons.from_people(PEOPLE_PAIRS, PEOPLE, 9, random_state=seed))
        for seed in (1, 1, 2)
    ]
    assert some[0] == some[1] != some[2]
    assert len(set(some[0])) == 9
    assert {(near, far) for near, far, _, _ in some[0]} <= set(wanted)


def test_from_people_is_uniform() -> None:
    rng = np.random.RandomState(0)
    drawn: Counter[tuple[Pair, Pair]] = Counter()
    for _ in range(300):
        drawn += ends(Comparisons.from_people(PEOPLE_PAIRS, PEOPLE, 10, random_state=rng))
    total = len(people_by_loop(PEOPLE_PAIRS, PEOPLE))
    mean = 3000 / total
    assert len(drawn) == total
    assert max(abs(count - mean) for count in drawn.values()) < 5 * mean**0.5


@pytest.mark.parametrize(
    ("pairs", "n_triplets", "message"),
    [
        ([[0, 2, 4]], 1, r"pairs must have shape \(m, 2\); got \(1, 3\)"),
        ([[0, 2], [3, 3]], 1, r"must consist of two points; pair 1 is \[3, 3\]"),
        ([[0, 10]], 1, "Row index 10 is out of bounds for people with 10 entries"),
        ([[0, 1], [3, 7]], 1, "yield no triplets: two rows of one person and one of another"),
        ([[0, 2], [2, 4]], 1, "yield no triplets: two rows of one person and one of another"),
        (np.empty((0, 2)), 1, "yield no triplets: two rows of one person and one of another"),
        ([[0, 2], [2, 1]], 3, r"in the range \[1, 2\], the number of triplets .* Got 3"),
        ([[0, 2], [2, 1]], 0, r"in the range \[1, 2\], the number of triplets .* Got 0"),
    ],
)
def test_invalid_people_are_rejected(pairs: Any, n_triplets: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparisons.from_people(pairs, PEOPLE, n_triplets)


def test_likely_pairs_of_points_without_weight_are_ignored() -> None:
    X, y = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 2
    weights = np.array([0.0] + [1.0] * 11)
    expected = Comparisons.from_labels(X, y, 1, 1, sample_weight=weights)
    pairs = [[0, 2], [1, 3], [4, 5], [6, 6]]
    got = Comparisons.from_labels(X, y, 1, 1, sample_weight=weights, likely_pairs=pairs)
    assert got.pairs.tolist() == expected.pairs.tolist()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0, 1, 2]], r"shape \(P, 2\); got int64 of shape \(1, 3\)"),
        ([[0.0, 1.0]], "must be integers"),
        ([[0, 4]], "from 0 to 3; got 0 to 4"),
        ([[-1, 2]], "from 0 to 3; got -1 to 2"),
    ],
)
def test_invalid_likely_pairs_are_rejected(pairs: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparisons.from_labels([[0], [1], [5], [6]], list("aabb"), 1, 1, likely_pairs=pairs)
