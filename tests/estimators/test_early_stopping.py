from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import simple_learner
from sklearn.datasets import load_wine

from boostmetric import Comparisons, Metric, Status
from boostmetric.estimators.early_stopping import HeldOut, hold_out_points
from boostmetric.estimators.settings import Settings
from boostmetric.estimators.training_data import TrainingData
from boostmetric.solvers import Outcome


def rng() -> np.random.RandomState:
    return np.random.RandomState(0)


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_each_class_is_held_out_in_proportion(fraction: float) -> None:
    labels = np.repeat(list("abc"), [40, 80, 200])
    rows = hold_out_points(labels, np.ones(320), fraction, rng())
    assert len(np.unique(rows)) == len(rows)
    for label, count in zip("abc", [40, 80, 200], strict=True):
        assert (labels[rows] == label).sum() == pytest.approx(fraction * count, abs=1)


def test_two_points_per_class_and_weightless_points_are_left() -> None:
    labels = np.repeat([0, 1], [3, 30])
    weights = np.ones(33)
    weights[20:] = 0
    rows = hold_out_points(labels, weights, 0.6, rng())
    assert (np.delete(labels, rows) == 0).sum() >= 2
    assert rows.max() < 20


def test_too_few_points_to_hold_out() -> None:
    with pytest.raises(ValueError, match=r"holds out no point of 4.*do not hold out data"):
        hold_out_points(np.array([0, 0, 1, 1]), np.ones(4), 0.5, rng())


def held_out_of(data: TrainingData, start: Metric | None = None, **parameters: Any) -> HeldOut:
    learner = simple_learner(early_stopping=True, random_state=0, **parameters)
    return HeldOut(data, Settings.from_params(learner.get_params(deep=False)), start)


@pytest.mark.parametrize(("m", "fraction", "size"), [(2, 0.1, 1), (2, 0.9, 1), (100, 0.1, 10)])
def test_comparisons_are_held_out(m: int, fraction: float, size: int) -> None:
    data = TrainingData(np.eye(3), comparisons=Comparisons.from_triplets([[0, 1, 2]] * m))
    held_out = held_out_of(data, validation_fraction=fraction)
    chosen = held_out.snapshot()["chosen"]
    assert len(np.unique(chosen)) == size
    assert set(chosen) <= set(range(m))
    assert held_out.rest.comparisons is not None
    assert len(held_out.rest.comparisons) == m - size


def run(
    errors: list[float],
    patience: int,
    directions_per_step: int = 1,
    stride: int = 1,
    best_error: float = math.inf,
) -> tuple[int, int]:
    """Run a pass whose metric after i steps has errors[i − 1].

    Returns the number of steps, and the step whose metric was kept.
    """
    fit: Any = SimpleNamespace(history=[], n_tried=0)
    data = TrainingData(np.eye(3), comparisons=Comparisons.from_triplets([[0, 1, 2]] * 9))
    held_out = held_out_of(data, n_iter_no_change=patience)
    held_out.begin_pass(None)
    held_out._error, held_out._stride = lambda metric: errors[metric.n_directions - 1], stride
    held_out.best_error = best_error
    for _ in errors:
        fit.history.append(SimpleNamespace(n_tried=directions_per_step))
        fit.n_tried += directions_per_step
        fit.metric = Metric(np.ones((1, len(fit.history))), np.ones(len(fit.history)))
        if held_out(fit):
            break
    last = Outcome(fit.metric, fit.history, Status.MAX_ITER, 0.1, 1.0, 0.5, 7)
    kept = held_out.end_pass(last)
    # The gap is that of the last metric.
    assert math.isnan(kept.duality_gap) == (kept.metric.n_directions != len(fit.history))
    assert last.metric is fit.metric
    assert "coefs" not in held_out.snapshot()  # the next pass has no metric yet
    assert held_out.best_error == min([*errors[: len(fit.history)], best_error]) or stride > 1
    return len(fit.history), kept.metric.n_directions


def test_pass_ends_after_patience_with_first_best_metric() -> None:
    assert run([0.5, 0.3, 0.4, 0.3, 0.3, 0.1], patience=3) == (5, 2)
    assert run([0.5, 0.3, 0.4, 0.3, 0.2, 0.4], patience=4) == (6, 5)


def test_error_is_evaluated_every_stride_and_at_the_end() -> None:
    assert run([0.5, 0.1, 0.3, 0.4, 0.2], patience=10, stride=3) == (5, 5)


def test_patience_and_stride_count_directions() -> None:
    # Batches of 4: the best at 8 directions, and the end at 8 + 12 = 20 or more.
    errors = [0.5, 0.3, 0.4, 0.3, 0.3, 0.1]
    assert run(errors, directions_per_step=4, patience=12) == (5, 2)
    assert run(errors, directions_per_step=4, patience=9) == (5, 2)
    assert run(errors, directions_per_step=4, patience=8) == (4, 2)
    # Evaluated at 8 and 16 directions, and at the end.
    assert run([0.1, 0.5, 0.2, 0.4, 0.6], directions_per_step=4, patience=99, stride=5) == (5, 4)
    assert run([0.1, 0.5, 0.2, 0.4, 0.6], directions_per_step=4, patience=99, stride=4) == (5, 1)


def test_pass_must_beat_earlier_passes() -> None:
    assert run([0.5, 0.3], patience=9, best_error=0.3) == (2, 0)
    assert run([0.5, 0.2], patience=9, best_error=0.3) == (2, 2)
    assert run([0.5], patience=9) == (1, 1)


def test_warm_start_metric_is_kept_unless_beaten() -> None:
    X = np.array([[0.0, 0], [1, 0], [0, 2], [0, 9]])
    comparisons = Comparisons.from_triplets([[0, 1, 2]] * 5 + [[0, 1, 3]] * 5)
    start = Metric(np.eye(2), np.ones(2))
    held_out = held_out_of(TrainingData(X, comparisons=comparisons), start)
    held_out.begin_pass(None)
    worse = Metric(np.array([[1.0], [0.0]]), np.ones(1))
    empty = Outcome(worse, [], Status.NO_DIRECTION, 0.1, 1.0, 0.5, 7)
    assert held_out.best_error == 0
    assert held_out.end_pass(empty).metric.n_directions == 2


def test_duality_gap_of_earlier_metric_is_nan() -> None:
    X, y = load_wine(return_X_y=True)
    learner = simple_learner(solver="totally_corrective", early_stopping=True, random_state=0)
    learner.set_params(directions_per_step=4, max_iter=24, n_iter_no_change=8).fit(X, y)
    assert learner.metric_.n_directions < learner.n_iter_
    assert math.isnan(learner.duality_gap_)
    learner.set_params(max_iter=4, n_iter_no_change=50).fit(X, y)  # the first step is the last
    assert learner.n_iter_ == 4
    assert 0 <= learner.duality_gap_ < math.inf
