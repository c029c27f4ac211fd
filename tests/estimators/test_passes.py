from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, read_only
from numpy.typing import NDArray
from sklearn.datasets import load_wine

from boostmetric import Boosting, BoostMetric, Comparisons, Metric, Status, boost
from boostmetric.engines import Local, StopRequested
from boostmetric.estimators import Progress, listening
from boostmetric.estimators.passes import one_pass, run_passes
from boostmetric.neighbors import exact
from boostmetric.solvers import SolverSettings

Data = tuple[NDArray, NDArray]


@pytest.fixture
def wine() -> Data:
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    read_only(X, y)
    return X, y


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("has_base", [True, False])
def test_two_passes_are_two_fits_by_hand(
    loss: str, has_base: bool, wine: Data, rng: np.random.Generator
) -> None:
    X, y = wine
    base = rng.standard_normal((13, 13)) if has_base else None
    if base is not None:
        read_only(base)

    def compare(points: NDArray, should_stop: object = None) -> Comparisons:
        return Comparisons.from_labels(points, y)

    settings = [SolverSettings.of(loss, max_iter=max_iter) for max_iter in (6, 4)]
    with Local(1) as engine:
        passes, error = run_passes(X, base, compare, settings, engine)
    assert error is None
    assert [len(done.outcome.history) for done in passes] == [6, 4]

    L = np.eye(13) if base is None else base
    for done, max_iter in zip(passes, [6, 4], strict=True):
        points = X @ L.T
        fit = boost(points, compare(points), loss, max_iter=max_iter)
        M = L.T @ fit.metric.matrix @ L
        np.testing.assert_allclose(done.metric.matrix, M, atol=1e-5 * np.abs(M).max())
        # Another root of M than the components: the passes do not depend on which.
        values, vectors = np.linalg.eigh(M)
        L = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


@pytest.mark.parametrize("n_nonempty", [0, 1])
def test_a_pass_without_directions_is_the_last(n_nonempty: int, blobs: Data) -> None:
    X, y = blobs
    base = 2 * np.eye(5)
    labels = Comparisons.from_labels(X, y)
    contradiction = Comparisons.from_triplets([[0, 1, 2], [0, 2, 1]])
    sets = iter([labels] * n_nonempty + [contradiction] * 5)
    settings = [SolverSettings.of(max_iter=3)] * 5
    with Local(1) as engine:
        passes, _ = run_passes(X, base, lambda *_: next(sets), settings, engine)
    assert len(passes) == n_nonempty + 1
    last = passes[-1]
    assert last.base is not None
    assert last.outcome.metric.n_directions == 0
    before = Metric.from_components(base) if n_nonempty == 0 else passes[-2].metric
    assert last.base.T @ last.base == pytest.approx(before.matrix, abs=1e-12)


def test_every_observer_sees_every_step_and_each_can_end_the_pass(blobs: Data) -> None:
    X, y = blobs
    steps: list[list[int]] = [[], []]
    given: list[Any] = []

    def observe(points: NDArray, comparisons: Comparisons) -> list[Any]:
        def observer(number: int, limit: int) -> Any:
            def see(fit: Boosting) -> bool:
                steps[number].append(fit.n_tried)
                return fit.n_tried >= limit

            return see

        given.extend([points, comparisons])
        return [observer(0, 3), observer(1, 99)]

    base = np.eye(5)[:4]
    compare = Comparisons.from_labels(X @ base.T, y)
    settings = SolverSettings.of(directions_per_step=1)
    with Local(1) as engine:
        done = one_pass(X, base, lambda *_: compare, settings, engine, observe=observe)
    assert done.outcome.status is Status.STOPPED
    assert steps == [[1, 2, 3], [1, 2, 3]]
    assert np.array_equal(given[0], X @ base.T)
    assert given[1] is compare


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


def test_an_interrupted_search_keeps_the_passes_before(
    blobs: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = BoostMetric(max_iter=4, n_passes=1).fit(*blobs)
    whole = BoostMetric(max_iter=4, n_passes=3).fit(*blobs)
    options: dict[str, Any] = {"max_iter": 4, "n_passes": 3, "checkpoint": tmp_path / "c"}
    with monkeypatch.context() as patch:
        listener = Interrupting(patch, 2)
        with listening(listener):
            learner = BoostMetric(**options).fit(*blobs)
    assert listener.n_tiles == 0
    assert learner.status_ is Status.STOPPED
    assert set(learner.history_["pass"]) == {0}
    assert np.array_equal(learner.components_, expected.components_)
    resumed = BoostMetric(**options).fit(*blobs)
    assert np.array_equal(resumed.components_, whole.components_)


@pytest.mark.filterwarnings("ignore:No direction increases")
def test_the_search_of_the_first_pass_is_not_interrupted(
    blobs: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(Interrupting(monkeypatch, 1)):
        learner = BoostMetric(max_iter=4, n_passes=3).fit(*blobs)
    assert learner.status_ is Status.STOPPED
    assert learner.n_iter_ == 0


def test_a_search_by_labels_can_be_stopped(blobs: Data) -> None:
    X, y = blobs
    with pytest.raises(StopRequested):
        Comparisons.from_labels(X, y, should_stop=lambda: True)
