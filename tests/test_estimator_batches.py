"""Batches of directions, as the estimator adds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric import BoostMetric, Status

Labelled = tuple[NDArray, NDArray]


def two_classes(n: int, D: int) -> Labelled:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    return X, (X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=n) > 0).astype(int)


@pytest.mark.parametrize(
    ("n", "D", "options", "tried"),
    [
        (1500, 16, {}, [8] * 5),
        (1500, 26, {}, [13, 13, 13, 1]),
        (1500, 40, {}, [20, 20]),
        (1100, 40, {}, [1] * 40),
        (1500, 15, {}, [1] * 40),
        (1500, 16, {"block_size": 30}, [30, 10]),
        (200, 16, {"block_size": 15}, [15, 15, 10]),
        (200, 6, {"solver": "totally_corrective", "tol": 0.0}, [4] * 10),
    ],
)
def test_the_estimator_says_how_many_directions_an_iteration_tried(
    n: int, D: int, options: dict[str, Any], tried: list[int]
) -> None:
    X, y = two_classes(n, D)
    learner = BoostMetric(max_iter=40, alpha=0.0, **options).fit(X, y)
    counts = learner.history_["n_tried"].tolist()
    assert counts == tried[: len(counts)]
    assert learner.n_iter_ == len(counts) == len(learner.history_["objective"])
    if len(counts) < len(tried):
        assert learner.status_ is not Status.MAX_ITER
    assert learner.metric_.n_directions <= 40


@pytest.mark.parametrize("bad", [0, -3, 2.5, "a", True])
def test_a_bad_block_size_is_refused(bad: Any, blobs: Labelled) -> None:
    message = rf"block_size={bad!r} will not do: None or an integer of at least 1 is needed"
    with pytest.raises(ValueError, match=message):
        BoostMetric(block_size=bad).fit(*blobs)


@pytest.mark.parametrize("n_passes", [1, 2])
def test_the_gap_is_found_only_where_it_is_looked_for(n_passes: int, blobs: Labelled) -> None:
    options: dict[str, Any] = {"max_iter": 6, "block_size": 3, "n_passes": n_passes}
    assert np.isnan(BoostMetric(**options).fit(*blobs).duality_gap_)
    assert BoostMetric(tol=1e-9, **options).fit(*blobs).duality_gap_ >= 0
    corrective = BoostMetric(solver="totally_corrective", **options)
    assert corrective.fit(*blobs).duality_gap_ >= 0


def test_sample_weights_are_points_given_several_times(blobs: Labelled) -> None:
    X, y = blobs
    times = np.random.default_rng(0).integers(1, 4, len(X))
    options: dict[str, Any] = {"block_size": 4, "max_iter": 12}
    by_weight = BoostMetric(**options).fit(X, y, sample_weight=times)
    by_number = BoostMetric(**options).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    expected = by_number.get_mahalanobis_matrix()
    np.testing.assert_allclose(
        by_weight.get_mahalanobis_matrix(), expected, atol=1e-6 * np.abs(expected).max()
    )


def test_a_warm_start_in_batches(blobs: Labelled) -> None:
    X, y = blobs
    learner = BoostMetric(block_size=3, max_iter=6, warm_start=True).fit(X, y)
    first = learner.history_["objective"][-1]
    learner.fit(X, y)
    assert learner.history_["n_tried"].tolist() == [3, 3]
    assert learner.history_["objective"][0] < first
    whole = BoostMetric(block_size=3, max_iter=12).fit(X, y)
    assert learner.history_["objective"][-1] == pytest.approx(whole.history_["objective"][-1])


def test_the_estimator_stops_early_in_batches() -> None:
    X, _ = two_classes(300, 8)
    y = np.random.default_rng(1).integers(0, 2, 300)  # nothing to be learned
    options: dict[str, Any] = {"block_size": 4, "early_stopping": True, "random_state": 0}
    learner = BoostMetric(n_iter_no_change=8, max_iter=400, **options).fit(X, y)
    assert learner.status_ is Status.STOPPED
    n_tried = int(learner.history_["n_tried"].sum())
    assert n_tried >= 8
    assert learner.metric_.n_directions <= n_tried - 8
    kept = learner.get_mahalanobis_matrix()
    earlier = [
        BoostMetric(n_iter_no_change=10**6, max_iter=n, **options).fit(X, y)
        for n in range(4, n_tried + 1, 4)
    ]
    assert any(np.allclose(kept, each.get_mahalanobis_matrix()) for each in earlier)
