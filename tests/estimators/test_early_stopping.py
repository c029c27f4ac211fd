from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

from boostmetric import BoostMetric, Metric, Status
from boostmetric.estimators.early_stopping import (
    EarlyStopping,
    hold_out_comparisons,
    hold_out_points,
)
from boostmetric.solvers import Outcome


def rng() -> np.random.RandomState:
    return np.random.RandomState(0)


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_every_class_gives_its_share(fraction: float) -> None:
    labels = np.repeat(list("abc"), [40, 80, 200])
    rows = hold_out_points(labels, np.ones(320), fraction, rng())
    assert len(np.unique(rows)) == len(rows)
    for label, count in zip("abc", [40, 80, 200], strict=True):
        assert (labels[rows] == label).sum() == pytest.approx(fraction * count, abs=1)


def test_two_points_of_each_class_are_left_and_weightless_points_are_passed_over() -> None:
    labels = np.repeat([0, 1], [3, 30])
    weights = np.ones(33)
    weights[20:] = 0
    rows = hold_out_points(labels, weights, 0.6, rng())
    assert (np.delete(labels, rows) == 0).sum() >= 2
    assert rows.max() < 20


def test_nothing_to_hold_out() -> None:
    with pytest.raises(ValueError, match=r"holds out no point of 4.*do not hold out data"):
        hold_out_points(np.array([0, 0, 1, 1]), np.ones(4), 0.5, rng())


@pytest.mark.parametrize(("m", "fraction", "size"), [(2, 0.1, 1), (2, 0.9, 1), (100, 0.1, 10)])
def test_some_comparisons_are_held_out_and_some_left(m: int, fraction: float, size: int) -> None:
    chosen = hold_out_comparisons(m, fraction, rng())
    assert len(np.unique(chosen)) == size
    assert chosen.min() >= 0
    assert chosen.max() < m


def run(errors: list[float], directions_per_step: int = 1, **options: Any) -> tuple[int, int]:
    """A fit whose metric after i iterations has errors[i − 1]; when it stopped, which was kept."""
    fit: Any = SimpleNamespace(history=[], n_tried=0)
    stopping = EarlyStopping(lambda metric: errors[metric.n_directions - 1], **options)
    for _ in errors:
        fit.history.append(SimpleNamespace(n_tried=directions_per_step))
        fit.n_tried += directions_per_step
        fit.metric = Metric(np.ones((1, len(fit.history))), np.ones(len(fit.history)))
        if stopping(fit):
            break
    last = Outcome(fit.metric, fit.history, Status.MAX_ITER, 0.1, 1.0, 0.5, 7)
    kept = stopping.keep_best(last)
    # The gap is that of the last metric, and the pass itself stays as it was.
    assert math.isnan(kept.duality_gap) == (kept.metric.n_directions != len(fit.history))
    assert last.metric is fit.metric
    return len(fit.history), kept.metric.n_directions


def test_stops_after_patience_and_keeps_the_first_of_the_best() -> None:
    assert run([0.5, 0.3, 0.4, 0.3, 0.3, 0.1], patience=3) == (5, 2)
    assert run([0.5, 0.3, 0.4, 0.3, 0.2, 0.4], patience=4) == (6, 5)


def test_looks_every_stride_and_at_the_end() -> None:
    assert run([0.5, 0.1, 0.3, 0.4, 0.2], patience=10, stride=3) == (5, 5)


def test_patience_and_stride_are_numbers_of_directions() -> None:
    # Blocks of 4: the best at 8 directions, and the end at 8 + 12 = 20 of them, or more.
    errors = [0.5, 0.3, 0.4, 0.3, 0.3, 0.1]
    assert run(errors, directions_per_step=4, patience=12) == (5, 2)
    assert run(errors, directions_per_step=4, patience=9) == (5, 2)
    assert run(errors, directions_per_step=4, patience=8) == (4, 2)
    # Looks at 8 and 16 directions, and at the end.
    assert run([0.1, 0.5, 0.2, 0.4, 0.6], directions_per_step=4, patience=99, stride=5) == (5, 4)
    assert run([0.1, 0.5, 0.2, 0.4, 0.6], directions_per_step=4, patience=99, stride=4) == (5, 1)


def test_nothing_is_kept_that_does_not_beat_what_was_before() -> None:
    assert run([0.5, 0.3], patience=9, best_error=0.3) == (2, 0)
    assert run([0.5, 0.2], patience=9, best_error=0.3) == (2, 2)
    assert run([0.5], patience=9, best_error=math.inf) == (1, 1)


def test_the_gap_of_an_earlier_metric_is_not_known() -> None:
    X, y = load_wine(return_X_y=True)
    learner = BoostMetric(solver="totally_corrective", early_stopping=True, random_state=0)
    learner.set_params(max_iter=24, n_iter_no_change=8).fit(X, y)
    assert learner.metric_.n_directions < learner.n_iter_
    assert math.isnan(learner.duality_gap_)
    learner.set_params(max_iter=4, n_iter_no_change=50).fit(X, y)  # the first step is the last
    assert learner.n_iter_ == 4
    assert 0 <= learner.duality_gap_ < math.inf
