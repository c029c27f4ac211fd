from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray

from boostmetric import BoostMetric, BoostMetricCV, Comparisons
from boostmetric.data.labels import Labels, check_labels

MISSING = r"y has 1 missing labels, the first in row 3\. Drop these points, or assign them"


def draw() -> tuple[NDArray, NDArray]:
    X = np.random.default_rng(0).normal(size=(40, 3))
    return X, X[:, 0] > 0


@pytest.mark.parametrize(
    "form",
    [
        np.ndarray.tolist,
        lambda y: y.astype(float),
        lambda y: y.astype(np.uint8),
        lambda y: y.astype(int).astype(object),
        lambda y: np.where(y, "yes", "no"),
        lambda y: np.array(["2020-01-01", "2020-02-01"], dtype="datetime64[D]")[y.astype(int)],
        lambda y: pd.Series(np.where(y, "yes", "no"), dtype="string"),
        lambda y: pd.Series(np.where(y, "yes", "no"), dtype="category"),
        lambda y: pd.Categorical(np.where(y, "yes", "no"), categories=["yes", "no", "never"]),
        lambda y: pd.Series(y.astype(int), dtype="Int64"),
        lambda y: pd.Series(y, dtype="boolean"),
        lambda y: pl.Series(np.where(y, "yes", "no")),
        lambda y: pl.Series(np.where(y, "yes", "no"), dtype=pl.Categorical),
    ],
    ids=range(13),
)
def test_all_label_types_are_accepted(form: Any) -> None:
    X, y = draw()
    learner = BoostMetric(max_iter=3).fit(X, form(y))
    assert np.array_equal(learner.components_, BoostMetric(max_iter=3).fit(X, y).components_)
    assert learner.score(X, form(y)) == learner.score(X, y)
    made, expected = Comparisons.from_labels(X, form(y)), Comparisons.from_labels(X, y)
    assert np.array_equal(made.pairs, expected.pairs)
    assert np.array_equal(made.near, expected.near)


def with_missing(value: Any) -> NDArray:
    y = np.where(draw()[1], "yes", "no").astype(object)
    y[3] = value
    return y


@pytest.mark.parametrize(
    "y",
    [
        with_missing(None),
        with_missing(np.nan),
        with_missing(pd.NA),
        with_missing(pd.NaT),
        np.where(np.arange(40) == 3, np.nan, draw()[1]),
        np.where(np.arange(40) == 3, np.datetime64("NaT"), np.datetime64("2020-01-01")),
        pd.Series(draw()[1].astype(int), dtype="Int64").where(np.arange(40) != 3),
        pd.Series(with_missing(None), dtype="string"),
        pd.Series(with_missing(None), dtype="category"),
        pl.Series(with_missing(None).tolist()),
    ],
    ids=range(10),
)
def test_missing_labels_are_rejected(y: Any) -> None:
    X, _ = draw()
    for learn in (BoostMetric().fit, BoostMetricCV().fit, Comparisons.from_labels):
        with pytest.raises(ValueError, match=MISSING):
            learn(X, y)


def test_labels_of_several_types_are_rejected() -> None:
    X, _ = draw()
    for learn in (BoostMetric().fit, BoostMetricCV().fit, Comparisons.from_labels):
        with pytest.raises(ValueError, match="The labels y must be of one sortable type"):
            learn(X, with_missing(5))


@pytest.mark.parametrize(
    ("y", "types"),
    [
        (["a"] * 20 + [1] * 20, "int and str"),
        ([True] * 20 + ["b"] * 20, "bool and str"),
        (("a",) * 20 + (b"b",) * 20, "bytes and str"),
        ([["a", 1]] * 40, "int and str"),
    ],
)
def test_lists_of_several_types_are_rejected(y: Any, types: str) -> None:
    X, _ = draw()
    message = f"The labels y must be of one sortable type; got {types}."
    for learn in (BoostMetric().fit, BoostMetricCV().fit, Comparisons.from_labels):
        with pytest.raises(ValueError, match=message):
            learn(X, y)


def test_missing_label_in_a_list_of_strings_is_rejected() -> None:
    X, _ = draw()
    y: Any = ["a", "b", "b", float("nan")] + ["a", "b"] * 18
    for learn in (BoostMetric().fit, BoostMetricCV().fit, Comparisons.from_labels):
        with pytest.raises(ValueError, match=MISSING):
            learn(X, y)


def test_numpy_strings_and_strings_are_one_type() -> None:
    assert Labels.of(["a", np.str_("b")]).codes.tolist() == [0, 1]


@pytest.mark.parametrize("y", [draw()[0][:, 0], [0.5] * 20 + [1.5] * 20])
def test_continuous_values_are_rejected(y: Any) -> None:
    X, _ = draw()
    for learn in (BoostMetric().fit, BoostMetricCV().fit, Comparisons.from_labels):
        with pytest.raises(ValueError, match="Unknown label type: continuous"):
            learn(X, y)


def test_lists_of_labels_are_rejected() -> None:
    X, _ = draw()
    for learn in (BoostMetric().fit, Comparisons.from_labels):
        with pytest.raises(ValueError, match=r"lists of different lengths.* MultiLabelBinarizer"):
            learn(X, [["a"], ["a", "b"]] * 20)


@pytest.mark.parametrize("y", [5, np.zeros((4, 2, 2)), [[1], [0]]])
def test_invalid_shapes_are_rejected(y: Any) -> None:
    with pytest.raises(ValueError, match=r"y must have shape \(n,\) or \(n, L\); got \("):
        Labels.of(y)


def test_label_sets() -> None:
    labels = Labels.of([[1, 0, 1], [0, 0, 0], [1, 0, 1], [0, 1, 1]])
    assert labels.codes[0] == labels.codes[2]
    assert len(np.unique(labels.codes)) == 3
    assert labels.labeled.tolist() == [True, False, True, True]
    assert labels.counts().tolist() == [2, 1, 3]
    assert labels[np.array([0, 3])].counts().tolist() == [1, 1, 2]
    assert labels.name(labels.codes[3]) == "label set {1, 2}"
    similar = labels.are_similar(labels.codes[1:3], labels.codes)
    assert similar.tolist() == [[False] * 4, [True, False, True, True]]


def test_classes_are_sets_of_one_label() -> None:
    labels, weights = check_labels(["b", "a", "b", "a", "c", "c"], [1, 1, 1, 0, 0, 0])
    assert labels.counts().tolist() == [2, 2, 2]
    assert labels.labeled.all()
    assert labels.name(0) == "class 'a'"
    assert weights is not None
    assert weights.tolist() == [1, 1, 1, 0, 0, 0]
