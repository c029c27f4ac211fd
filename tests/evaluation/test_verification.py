from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import read_only
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import accuracy_score, auc, fbeta_score, recall_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from boostmetric import BoostMetric, Metric
from boostmetric.data.pairs import split_pairs
from boostmetric.evaluation.verification import STRATEGIES, PairVerifier, best_cut, equal_error


def on_a_line(distances: NDArray) -> NDArray:
    """Pairs of points of shape (m, 2, 1) at these distances."""
    return np.stack([np.zeros(len(distances)), distances], axis=1)[:, :, None]


def predictions(distances: NDArray, threshold: float) -> NDArray:
    return np.array([1 if d <= threshold else -1 for d in distances])


def values_by_scikit_learn(
    y: NDArray, predicted: NDArray, strategy: str, min_rate: float | None, beta: float
) -> float:
    """The value that a strategy maximizes; −1 if the other rate is too low."""
    found = recall_score(y, predicted)
    refused = recall_score(y, predicted, pos_label=-1)
    if strategy == "accuracy":
        return float(accuracy_score(y, predicted))
    if strategy == "f_beta":
        return float(fbeta_score(y, predicted, beta=beta, zero_division=0))
    wanted, other = (found, refused) if strategy == "max_tpr" else (refused, found)
    return float(wanted) if min_rate is not None and other >= min_rate else -1.0


CASES = [
    ("accuracy", None, 1.0),
    ("f_beta", None, 1.0),
    ("f_beta", None, 0.25),
    ("f_beta", None, 3.0),
    ("f_beta", None, 1e-30),
    ("f_beta", None, 1e30),
    *((strategy, rate, 1.0) for strategy in ("max_tpr", "max_tnr") for rate in (0, 0.5, 0.9, 1)),
]


@pytest.mark.parametrize(("strategy", "min_rate", "beta"), CASES)
def test_strategies_match_exhaustive_search(
    strategy: str, min_rate: float | None, beta: float
) -> None:
    for seed, n_values in enumerate((3, 12, None)):
        rng = np.random.default_rng(seed)
        y = np.where(rng.permutation(25) < 10, 1, -1)
        distances = np.abs(rng.normal(size=25)) + 0.5 * (y < 0)
        if n_values is not None:  # with ties
            distances = np.ceil(distances * n_values / distances.max())
        pairs = on_a_line(distances)
        verifier = PairVerifier().calibrate_threshold(
            pairs, y, strategy=strategy, min_rate=min_rate, beta=beta
        )
        options = [predictions(distances, at) for at in (-1.0, *sorted(set(distances)))]
        values = [values_by_scikit_learn(y, each, strategy, min_rate, beta) for each in options]
        best = [each for each, v in zip(options, values, strict=True) if np.isclose(v, max(values))]
        # They are ordered by the number of accepted pairs.
        expected = best[-1 if strategy == "max_tnr" else 0]
        assert verifier.predict(pairs).tolist() == expected.tolist()


def test_thresholds_are_midpoints() -> None:
    pairs = on_a_line(np.array([1.0, 2.0, 4.0, 7.0]))

    def threshold(y: list[int], **options: Any) -> float:
        return PairVerifier().calibrate_threshold(pairs, y, **options).threshold_

    assert threshold([1, 1, -1, -1]) == 3
    assert threshold([1, 1, 1, -1]) == 5.5
    # Accepting one pair or three is equally good; the fewest win.
    assert threshold([1, -1, 1, -1]) == 1.5
    assert threshold([-1, 1, -1, -1]) == np.nextafter(1, 0)  # none
    assert threshold([-1, 1, 1, 1]) == 7  # all
    assert threshold([1, 1, -1, -1], strategy="max_tpr", min_rate=0.5) == 3
    assert threshold([1, 1, -1, -1], strategy="max_tnr", min_rate=0.5) == 3


@pytest.mark.parametrize("low", [0.0, 1.0, 1e-300, 5e-324, 1e300])
def test_thresholds_separate_consecutive_floats(low: float) -> None:
    scores = np.array([np.nextafter(low, np.inf), low])
    cut = best_cut(scores, np.array([True, False]))
    assert scores[0] >= cut > scores[1]
    none = best_cut(scores, np.array([False, True]))
    assert none > scores.max()


def test_thresholds_of_equal_distances() -> None:
    pairs = on_a_line(np.zeros(4))
    verifier = PairVerifier().calibrate_threshold(pairs, [1, -1, -1, -1])
    assert verifier.predict(pairs).tolist() == [-1, -1, -1, -1]
    verifier.calibrate_threshold(pairs, [1, 1, 1, -1])
    assert verifier.threshold_ == 0
    assert verifier.predict(pairs).tolist() == [1, 1, 1, 1]


def test_float32_distances_are_compared_exactly(rng: np.random.Generator) -> None:
    X = rng.random((40, 3), dtype=np.float32)
    pairs = np.arange(40).reshape(20, 2)
    distances = PairVerifier().pair_distance(pairs, X)
    for distance in distances:
        verifier = PairVerifier().set_threshold(np.nextafter(float(distance), 0))
        assert (
            verifier.predict(pairs, X).tolist()
            == predictions(distances, verifier.threshold_).tolist()
        )
        assert (verifier.predict(pairs, X) == 1).sum() == (distances < distance).sum()


METRICS: dict[str, Callable[[NDArray, NDArray], Any]] = {
    "None": lambda X, y: None,
    "Metric": lambda X, y: Metric(np.eye(5), np.arange(5.0)),
    "BoostMetric": lambda X, y: BoostMetric(max_iter=5).fit(X, y),
    "PCA": lambda X, y: PCA(2).fit(X),
    "pipeline": lambda X, y: make_pipeline(StandardScaler(), BoostMetric(max_iter=5)).fit(X, y),
}


@pytest.mark.parametrize("name", METRICS)
def test_methods_match_loop(
    name: str, blobs: tuple[NDArray, NDArray], rng: np.random.Generator
) -> None:
    X, y = blobs
    metric = METRICS[name](X, y)
    pairs = rng.integers(0, 120, (2500, 2))
    read_only(pairs)
    Z = X if metric is None else metric.transform(X)
    distances = np.array([np.sqrt(np.sum((Z[i] - Z[j]) ** 2)) for i, j in pairs])
    verifier = PairVerifier(metric).set_threshold(2)
    assert verifier.pair_distance(pairs, X) == pytest.approx(distances)
    assert verifier.pair_score(pairs, X) == pytest.approx(-distances)
    assert verifier.decision_function(pairs, X) == pytest.approx(2 - distances)
    assert verifier.predict(X[pairs]).tolist() == predictions(distances, 2).tolist()
    if name == "BoostMetric":
        assert metric.pair_distance(pairs, X) == pytest.approx(distances)


def test_sparse_points_and_texts() -> None:
    texts = ["red apple", "red apple pie", "blue sky", "blue sea"]
    pairs = [[0, 1], [2, 3], [0, 2], [1, 3]]
    words = TfidfVectorizer().fit(texts)
    verifier = PairVerifier(words).calibrate_threshold(pairs, [1, 1, -1, -1], texts)
    assert verifier.predict(pairs, texts).tolist() == [1, 1, -1, -1]
    sparse, dense = csr_array(words.transform(texts)), words.transform(texts).toarray()
    plain = PairVerifier()
    assert plain.pair_distance(pairs, sparse) == pytest.approx(plain.pair_distance(pairs, dense))
    assert verifier.pair_distance(pairs, texts) == pytest.approx(plain.pair_distance(pairs, dense))


def test_roc_and_equal_error_rate(rng: np.random.Generator) -> None:
    y = np.where(rng.random(300) < 0.4, 1, -1)
    distances = np.round(np.abs(rng.normal(size=300)) + 0.8 * (y < 0), 1)
    pairs = on_a_line(distances)
    curve = PairVerifier().roc(pairs, y)
    for accepted, found, threshold in zip(*curve, strict=True):
        same = predictions(pairs[:, 1, 0], threshold) == 1
        assert accepted == pytest.approx(same[y == -1].mean())
        assert found == pytest.approx(same[y == 1].mean())
    assert auc(curve.fpr, curve.tpr) == pytest.approx(roc_auc_score(y, -distances))
    error = PairVerifier().equal_error_rate(pairs, y)
    assert error == equal_error(curve.fpr, curve.tpr)
    # Both errors are equal at this point of the curve.
    assert np.interp(error, curve.fpr, curve.tpr) == pytest.approx(1 - error)


@pytest.mark.parametrize(
    ("y", "expected"), [([1, 1, -1, -1], 0.0), ([-1, -1, 1, 1], 1.0), ([1, -1, 1, -1], 0.5)]
)
def test_equal_error_rate_of_small_examples(y: list[int], expected: float) -> None:
    pairs = on_a_line(np.array([1.0, 2.0, 3.0, 4.0]))
    assert PairVerifier().equal_error_rate(pairs, y) == pytest.approx(expected)


def test_verifier_can_be_pickled(blobs: tuple[NDArray, NDArray]) -> None:
    metric = Metric(np.eye(5), np.arange(5.0))
    verifier = PairVerifier(metric).set_threshold(2)
    copy = pickle.loads(pickle.dumps(verifier))
    pairs = blobs[0].reshape(60, 2, 5)
    assert copy.predict(pairs).tolist() == verifier.predict(pairs).tolist()
    assert repr(PairVerifier()) == "PairVerifier(metric=None)"


PAIRS = on_a_line(np.array([1.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"strategy": "best"},
            f"strategy must be one of {STRATEGIES}, got 'best'.",
        ),
        (
            {"strategy": "max_tpr"},
            "strategy='max_tpr' requires min_rate between 0 and 1, got None.",
        ),
        (
            {"strategy": "max_tnr", "min_rate": 1.1},
            "strategy='max_tnr' requires min_rate between 0 and 1, got 1.1.",
        ),
        (
            {"strategy": "max_tnr", "min_rate": np.nan},
            "strategy='max_tnr' requires min_rate between 0 and 1, got nan.",
        ),
        (
            {"min_rate": 0.5},
            "min_rate=0.5 has no effect with strategy='accuracy'. Leave it out, or use 'max_tpr' "
            "or 'max_tnr'.",
        ),
        (
            {"strategy": "f_beta", "beta": 0.0},
            "beta must be positive, got 0.0.",
        ),
        (
            {"y": [1, 0, 1]},
            "With pairs, y must be 1 (similar) or -1 (dissimilar) and have shape (3,); got shape "
            "(3,) and values [0 1].",
        ),
        (
            {"y": [1, -1]},
            "With pairs, y must be 1 (similar) or -1 (dissimilar) and have shape (3,); got shape "
            "(2,) and values [-1  1].",
        ),
        (
            {"y": [1, 1, 1]},
            "Both similar and dissimilar pairs are required; all 3 pairs are similar.",
        ),
        (
            {"y": [-1, -1, -1]},
            "Both similar and dissimilar pairs are required; all 3 pairs are dissimilar.",
        ),
        (
            {"pairs": PAIRS * 1e200},
            "Some distances overflow. Scale X.",
        ),
    ],
)
def test_invalid_calibrations_raise(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"pairs": PAIRS, "y": [1, 1, -1], **options}
    with pytest.raises(ValueError) as error:
        PairVerifier().calibrate_threshold(**given)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("pairs", "X", "message"),
    [
        (
            [[0, 1]],
            None,
            "X is required when pairs are row indices. Without X, pairs must be points of shape "
            "(m, 2, D); got shape (1, 2).",
        ),
        (
            np.zeros((2, 3, 1)),
            None,
            "X is required when pairs are row indices. Without X, pairs must be points of shape "
            "(m, 2, D); got shape (2, 3, 1).",
        ),
        (
            [[0.0, 1.0]],
            [[0.0], [1.0]],
            "pairs must contain integer row indices of X and have shape (m, 2); got dtype float64 "
            "and shape (1, 2).",
        ),
        (np.empty((0, 2), dtype=int), [[0.0]], "pairs must contain at least one pair."),
        ([[0, 1]], [[0.0]], "Row index 1 is out of bounds for X with 1 rows."),
        ([[0, -1]], [[0.0]], "Row index -1 is out of bounds for X with 1 rows."),
    ],
)
def test_invalid_pairs_raise(pairs: Any, X: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        split_pairs(pairs, X)
    assert str(error.value) == message


def test_invalid_verifiers_raise() -> None:
    message = "This PairVerifier has no threshold yet"
    for method in (PairVerifier().predict, PairVerifier().decision_function):
        with pytest.raises(NotFittedError, match=message):
            method(PAIRS)
    for threshold in (np.nan, np.inf):
        with pytest.raises(ValueError, match=f"threshold must be finite, got {threshold}"):
            PairVerifier().set_threshold(threshold)
    with pytest.raises(TypeError, match=r"metric must be a Metric, a fitted estimator"):
        PairVerifier("euclidean").pair_distance(PAIRS)
    with pytest.raises(NotFittedError):
        PairVerifier(PCA()).pair_distance(PAIRS)
    with pytest.raises(ValueError, match="contains NaN"):
        PairVerifier().pair_distance(PAIRS * np.nan)


@pytest.mark.parametrize(("beta", "expected"), [(1e-300, 0.9), (1e300, 0.2)])
def test_extreme_beta_is_precision_or_recall(beta: float, expected: float) -> None:
    same = np.array([True, False, True, False])
    cut = best_cut(np.array([1.0, 0.8, 0.4, 0.0]), same, "f_beta", beta=beta)
    assert cut == pytest.approx(expected)
