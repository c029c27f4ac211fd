from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from boostmetric import Metric
from boostmetric_paper.mknn import MkNN


def nearest(X: NDArray, x: NDArray, k: int, left_out: set[int]) -> list[int]:
    rows = [i for i in range(len(X)) if i not in left_out]
    return sorted(rows, key=lambda i: float(np.sum((X[i] - x) ** 2)))[:k]


def share(y: NDArray, one: list[int], two: list[int]) -> float:
    """The share of pairs of neighbors of the same class."""
    agree = [y[a] == y[b] for a, b in product(one, two)]
    return sum(agree) / len(agree)


@pytest.fixture
def train(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    X, y = rng.standard_normal((60, 3)), rng.integers(0, 5, 60).astype(str)
    X.flags.writeable = y.flags.writeable = False
    return X, y


@pytest.mark.parametrize("k", [1, 4, 7, 60])
def test_scores_match_double_loop(
    k: int,
    train: tuple[NDArray, NDArray],
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("boostmetric_paper.mknn.MAX_NEIGHBORS", 30)  # several batches
    X, y = train
    Q, pairs = rng.standard_normal((20, 3)), rng.integers(0, 20, (35, 2))
    model = MkNN(k).fit(X, y)
    around = [nearest(X, x, k, set()) for x in Q]
    expected = [share(y, around[i], around[j]) for i, j in pairs]
    assert model.pair_score(pairs, Q) == pytest.approx(expected)
    assert model.pair_score(Q[pairs]) == pytest.approx(expected)
    assert model.pair_score(pairs, Q.tolist()) == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 5, 58])
def test_points_of_pair_are_not_neighbors(k: int, train: tuple[NDArray, NDArray]) -> None:
    X, y = train
    # Each point with its nearest one, which must be left out, and with a distant one.
    pairs = [(i, nearest(X, X[i], 1, {i})[0]) for i in range(40)] + [(i, 59 - i) for i in range(20)]
    expected = [
        share(y, nearest(X, X[i], k, {i, j}), nearest(X, X[j], k, {i, j})) for i, j in pairs
    ]
    assert MkNN(k).fit(X, y).pair_score(pairs) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["metric", "estimator", "sparse"])
def test_metric_can_be_any_transformer(
    kind: str, train: tuple[NDArray, NDArray], rng: np.random.Generator
) -> None:
    X, y = train
    pairs = rng.integers(0, 60, (30, 2))
    metric: Any = Metric(np.eye(3), np.array([4.0, 1.0, 0.0]))
    if kind == "estimator":
        metric = PCA(2).fit(X)
    expected = MkNN(5).fit(metric.transform(X), y).pair_score(pairs, metric.transform(X))
    given = csr_array(X) if kind == "sparse" else X
    model = MkNN(5, metric=metric, n_jobs=2).fit(given, y)
    assert model.pair_score(pairs, given) == pytest.approx(expected)
    assert 0 < expected.mean() < 1


def test_threshold_and_prediction(train: tuple[NDArray, NDArray]) -> None:
    X, y = train
    pairs = np.random.default_rng(1).integers(0, 60, (80, 2))
    kinds = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)
    model = MkNN(5).fit(X, y)
    scores = model.pair_score(pairs)
    best = max(np.mean(np.where(scores >= at, 1, -1) == kinds) for at in [*scores, 2.0])
    predicted = model.calibrate_threshold(pairs, kinds).predict(pairs)
    assert np.mean(predicted == kinds) == best
    assert model.set_threshold(0.2).predict(pairs).tolist() == [
        1 if score >= 0.2 else -1 for score in scores
    ]
    assert model.decision_function(pairs) == pytest.approx(scores - 0.2)
    assert model.roc(pairs, kinds).thresholds[0] == np.inf
    copy = pickle.loads(pickle.dumps(model))
    assert copy.predict(pairs).tolist() == model.predict(pairs).tolist()
    assert not hasattr(model.fit(X, y), "threshold_")
    assert clone(model).get_params() == {"n_neighbors": 5, "metric": None, "n_jobs": None}


def test_unknown_classes_are_compared() -> None:
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    model = MkNN(2).fit(X, ["a", "b", "c", "c"])
    # Between a and b: 2 of 4 pairs of neighbors agree.
    assert model.pair_score([[[0.4], [0.6]], [[0.4], [10.4]]]).tolist() == [0.5, 0.0]


def test_errors(train: tuple[NDArray, NDArray]) -> None:
    X, y = train
    with pytest.raises(NotFittedError):
        MkNN().pair_score([[0, 1]], X)
    with pytest.raises(NotFittedError):
        MkNN().fit(X, y).predict([[0, 1]])
    for k in (0, 61):
        with pytest.raises(ValueError, match=rf"range \[1, 60\], .* Got {k} instead"):
            MkNN(k).fit(X, y)
    with pytest.raises(ValueError, match=r"range \[1, 58\], .* Got 59 instead"):
        MkNN(59).fit(X, y).pair_score([[0, 1]])
    with pytest.raises(ValueError):
        MkNN(5).fit(X, y).pair_score([[0, 60]])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        MkNN(5).fit(X, y[1:])
    with pytest.raises(TypeError):
        MkNN(5, metric="cosine").fit(X, y)
