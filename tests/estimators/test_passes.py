from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, read_only, simple_learner
from numpy.typing import NDArray
from sklearn.datasets import load_wine

from boostmetric import Boosting, Comparisons, Metric, Status, boost
from boostmetric.engines import Local, StopRequested
from boostmetric.estimators import Progress, listening
from boostmetric.estimators.callbacks import Monitor
from boostmetric.estimators.passes import Pass, one_pass, run_passes
from boostmetric.estimators.settings import Settings
from boostmetric.estimators.training_data import TrainingData
from boostmetric.neighbors import exact

Data = tuple[NDArray, NDArray]


@pytest.fixture
def wine() -> Data:
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    read_only(X, y)
    return X, y


def run(data: TrainingData, base: NDArray | None, **parameters: Any) -> list[Pass]:
    learner = simple_learner(**parameters)
    settings = Settings.from_params(learner.get_params(deep=False))
    # Not a scikit-learn estimator, because callbacks would require a call of `fit`.
    fitted, max_iter = SimpleNamespace(verbose=0), settings.solver.max_iter
    monitor = Monitor(fitted, lambda metric: {}, settings.n_passes, max_iter, 0, {})
    with Local(1) as engine:
        passes = run_passes(data, base, settings, engine, monitor)
    assert passes.failure is None
    return passes.done


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("has_base", [True, False])
def test_passes_equal_successive_fits(
    loss: str, has_base: bool, wine: Data, rng: np.random.Generator
) -> None:
    X, y = wine
    base = rng.standard_normal((13, 13)) if has_base else None
    options: dict[str, Any] = {"loss": loss, "max_iter": 5, "directions_per_step": 1}
    passes = run(TrainingData(X, y), base, n_passes=2, **options)
    assert [len(done.outcome.history) for done in passes] == [5, 5]

    L = np.eye(13) if base is None else base
    for done in passes:
        points = X @ L.T
        fit = boost(points, Comparisons.from_labels(points, y), **options)
        M = L.T @ fit.metric.matrix @ L
        np.testing.assert_allclose(done.metric.matrix, M, atol=1e-5 * np.abs(M).max())
        # Another root of M than the components: passes do not depend on the root.
        values, vectors = np.linalg.eigh(M)
        L = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


@pytest.mark.parametrize("n_nonempty", [0, 1])
def test_run_passes_ends_without_directions(
    n_nonempty: int, blobs: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = blobs
    base = 2 * np.eye(5)
    contradiction = Comparisons.from_triplets([[0, 1, 2], [0, 2, 1]])
    sets = iter([Comparisons.from_labels(X, y)] * n_nonempty + [contradiction] * 5)
    monkeypatch.setattr(TrainingData, "compare", lambda *_: next(sets))
    passes = run(TrainingData(X, y), base, max_iter=3, n_passes=5)
    assert len(passes) == n_nonempty + 1
    last = passes[-1]
    assert last.base is not None
    assert last.outcome.metric.n_directions == 0
    before = Metric.from_components(base) if n_nonempty == 0 else passes[-2].metric
    assert last.base.T @ last.base == pytest.approx(before.matrix, abs=1e-12)


def test_one_pass_ends_on_callback(blobs: Data) -> None:
    X, y = blobs
    steps: list[int] = []

    def callback(fit: Boosting) -> bool:
        steps.append(fit.n_tried)
        return fit.n_tried >= 3

    settings = Settings.from_params(simple_learner(directions_per_step=1).get_params())
    with Local(1) as engine:
        done = one_pass(TrainingData(X, y), np.eye(5)[:4], settings, engine, callback=callback)
    assert done is not None
    assert done.outcome.status is Status.STOPPED
    assert steps == [1, 2, 3]
    assert done.metric.n_features == 5


def test_listener_and_held_out_data_see_every_step(wine: Data) -> None:
    options: dict[str, Any] = {"early_stopping": True, "random_state": 0, "max_iter": 30}
    expected = simple_learner(n_iter_no_change=5, **options).fit(*wine)
    seen: list[Progress] = []
    with listening(lambda progress: bool(seen.append(progress))):  # type: ignore[func-returns-value]
        learner = simple_learner(n_iter_no_change=5, **options).fit(*wine)
    assert len(seen) == len(learner.history_["pass"])
    assert np.array_equal(learner.components_, expected.components_)
    # The metric at which a listener ends the fit is evaluated, too.
    best = expected.metric_.n_directions
    with listening(lambda progress: progress.n_directions == best):
        stopped = simple_learner(n_iter_no_change=50, **options).fit(*wine)
    assert stopped.status_ is Status.STOPPED
    assert np.array_equal(stopped.components_, expected.components_)


class Interrupting:
    """A listener that is interrupted in the search for neighbors of a pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.n_searches, self.number = 0, number
        self.interrupted, self.n_tiles = False, 0
        sketch, search_tile = exact.sketch, exact._Search._search_tile

        def interrupting(*arguments: Any) -> exact.Sketches:
            self.n_searches += 1
            self.interrupted = self.n_searches == self.number
            return sketch(*arguments)

        def counting(search: Any, pair: Any) -> None:
            self.n_tiles += self.interrupted
            search_tile(search, pair)

        monkeypatch.setattr(exact, "sketch", interrupting)
        monkeypatch.setattr(exact._Search, "_search_tile", counting)

    def __call__(self, progress: Progress) -> bool:
        return False


def test_interrupted_search_keeps_earlier_passes(
    blobs: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = simple_learner(max_iter=4, n_passes=1).fit(*blobs)
    whole = simple_learner(max_iter=4, n_passes=3).fit(*blobs)
    options: dict[str, Any] = {"max_iter": 4, "n_passes": 3, "checkpoint": tmp_path / "c"}
    with monkeypatch.context() as patch:
        listener = Interrupting(patch, 2)
        with listening(listener):
            learner = simple_learner(**options).fit(*blobs)
    assert listener.n_tiles == 0
    assert learner.status_ is Status.STOPPED
    assert set(learner.history_["pass"]) == {0}
    assert np.array_equal(learner.components_, expected.components_)
    resumed = simple_learner(**options).fit(*blobs)
    assert np.array_equal(resumed.components_, whole.components_)


@pytest.mark.filterwarnings("ignore:No direction increases")
def test_first_search_is_not_interrupted(blobs: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(Interrupting(monkeypatch, 1)):
        learner = simple_learner(max_iter=4, n_passes=3).fit(*blobs)
    assert learner.status_ is Status.STOPPED
    assert learner.n_iter_ == 0


def test_search_raises_stop_requested(blobs: Data) -> None:
    X, y = blobs
    with pytest.raises(StopRequested):
        Comparisons.from_labels(X, y, should_stop=lambda: True)
