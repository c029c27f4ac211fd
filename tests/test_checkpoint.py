from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine

from boostmetric import BoostMetric, Comparisons, Hinge, Metric, boost, checkpoint
from boostmetric._archive import read_archive, write_archive
from boostmetric.checkpoint import KIND, VERSION, Checkpoint, CheckpointError, digest
from boostmetric.monitor import Progress, listening
from boostmetric.state import Boosting, history_table

KILLS = 24
"""How often fits are killed, over all the cases."""

CASES: dict[str, dict[str, Any]] = {
    "stagewise": {"loss": "exponential", "n_passes": 3, "max_iter": 60},
    "early": {"early_stopping": True, "random_state": 3, "n_passes": 3, "max_iter": 60},
    "corrective": {"solver": "totally_corrective", "n_passes": 2, "max_iter": 40, "tol": 1e-9},
    "blocks": {"block_size": 5, "init": "whiten", "n_passes": 2, "max_iter": 200},
}
"""Fits of a second or so, each of many iterations."""


def digits() -> tuple[NDArray, NDArray]:
    X, y = load_digits(return_X_y=True)
    return X[:400], y[:400]


def fit_and_save(parameters: dict[str, Any], folder: str) -> None:
    """What is run to be killed: a fit that writes a checkpoint after every iteration."""
    checkpoint.EVERY, checkpoint.SHARE = 0.0, math.inf
    learner = BoostMetric(checkpoint=Path(folder, "fit.ckpt"), **parameters)
    learner.fit(*digits()).metric_.save(Path(folder, "metric.bm"))


def stop_after(n: int) -> Callable[[Progress], bool]:
    """A listener that ends a fit after n iterations."""
    left = [n]

    def listener(progress: Progress) -> bool:
        left[0] -= 1
        return left[0] <= 0

    return listener


def assert_same(one: BoostMetric, other: BoostMetric) -> None:
    assert np.array_equal(one.metric_.directions, other.metric_.directions)
    assert np.array_equal(one.metric_.coefs, other.metric_.coefs)
    assert one.status_ is other.status_
    assert one.alpha_ == other.alpha_
    assert one.duality_gap_ == pytest.approx(other.duality_gap_, nan_ok=True)
    for name in one.history_.keys() - {"seconds"}:
        assert np.array_equal(one.history_[name], other.history_[name], equal_nan=True), name


@pytest.mark.parametrize("case", CASES)
def test_a_fit_killed_again_and_again_ends_with_the_same_metric(case: str, tmp_path: Path) -> None:
    reference = BoostMetric(**CASES[case]).fit(*digits())
    # A server that has imported all there is forks processes that begin to fit at once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["boostmetric", __name__])
    rng = np.random.default_rng(len(case))
    killed, resumed = 0, 0
    while True:
        process = context.Process(target=fit_and_save, args=(CASES[case], str(tmp_path)))
        process.start()
        begun = tmp_path / "fit.ckpt"
        if killed < KILLS // len(CASES):
            resumed += begun.exists()
            moment = rng.uniform(0, 0.4)
            while not begun.exists() and process.is_alive():
                time.sleep(0.01)
            time.sleep(moment)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            killed += process.exitcode == -signal.SIGKILL
        else:
            process.join()
            assert process.exitcode == 0
            break
        if (tmp_path / "metric.bm").exists():  # it had ended before the kill: from the beginning
            (tmp_path / "metric.bm").unlink()
            begun.unlink()
    assert resumed >= KILLS // len(CASES) // 2
    metric = Metric.load(tmp_path / "metric.bm")
    assert np.array_equal(metric.directions, reference.metric_.directions)
    assert np.array_equal(metric.coefs, reference.metric_.coefs)
    assert metric.origin is not None
    assert metric.origin["status"] == reference.status_.name
    assert metric.origin["n_iter"] == reference.n_iter_


def wide() -> tuple[NDArray, NDArray]:
    """More features than a scatter is formed for."""
    rng = np.random.default_rng(1)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 650))
    X[:, :3] += 4 * np.eye(3)[y]
    return X, y


def data_of(name: str) -> tuple[NDArray, NDArray]:
    if name in ("wide", "digits"):
        return wide() if name == "wide" else digits()
    X, y = load_wine(return_X_y=True)
    return X.astype(np.float32) if name == "wine32" else X, y


STOPPED_CASES: list[tuple[str, dict[str, Any]]] = [
    ("wine", {"loss": loss, "solver": solver, "regularizer": regularizer, "max_iter": 16})
    for loss in ("exponential", "logistic", "squared_hinge", "smoothed_hinge")
    for solver in ("stagewise", "totally_corrective")
    for regularizer in ("trace", "frobenius")
] + [
    ("wine", {"n_passes": 3, "max_iter": 9, "init": "scale", "n_components": 3}),
    ("wine", {"n_passes": 3, "max_iter": 9, "early_stopping": True, "random_state": 0}),
    ("wine32", {"solver": "totally_corrective", "max_iter": 16}),
    ("digits", {"block_size": 6, "max_iter": 60}),
    ("digits", {"eigen_solver": "lanczos", "max_iter": 10}),
    ("wide", {"max_iter": 12}),
    ("wide", {"block_size": 3, "max_iter": 12}),
]


@pytest.mark.parametrize(("data", "parameters"), STOPPED_CASES)
@pytest.mark.parametrize("iterations", [[1], [2, 5]])
def test_a_stopped_fit_goes_on_to_the_same_end(
    data: str, parameters: dict[str, Any], iterations: list[int], tmp_path: Path
) -> None:
    X, y = data_of(data)
    reference = BoostMetric(**parameters).fit(X, y)
    path = tmp_path / "fit.ckpt"
    for n in iterations:
        with listening(stop_after(n)):
            stopped = BoostMetric(checkpoint=path, **parameters).fit(X, y)
        if stopped.status_ is not reference.status_:
            assert stopped.status_.name == "STOPPED"
    seen: list[Progress] = []
    with listening(lambda progress: bool(seen.append(progress))):  # type: ignore[func-returns-value]
        resumed = BoostMetric(checkpoint=path, **parameters).fit(X, y)
    assert_same(resumed, reference)
    assert len(seen) == max(0, reference.n_iter_ - sum(iterations))


def test_a_stopped_fit_from_comparisons_goes_on(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    comparisons = Comparisons.from_labels(X, y, 2, 2)
    learner = BoostMetric(max_iter=20, early_stopping=True, checkpoint=tmp_path / "c")
    # Nothing fixes what is held out but the checkpoint.
    with listening(stop_after(5)):
        learner.fit(X, comparisons=comparisons)
    held_out = read_archive(tmp_path / "c", KIND, VERSION)[1]["held_out"]
    learner.fit(X, comparisons=comparisons)
    assert np.array_equal(read_archive(tmp_path / "c", KIND, VERSION)[1]["held_out"], held_out)
    other = clone(learner).set_params(checkpoint=tmp_path / "d")
    with listening(stop_after(1)):
        other.fit(X, comparisons=comparisons)
    with pytest.raises(CheckpointError, match="of other data"):
        other.fit(X, comparisons=comparisons[:50])


def test_the_hinge_goes_on_to_the_same_optimum(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    parameters: dict[str, Any] = {"loss": Hinge(nu=0.3), "init": "scale", "tol": 1e-8}
    reference = BoostMetric(**parameters).fit(X, y)
    for n in (3, 4):
        with listening(stop_after(n)):
            BoostMetric(checkpoint=tmp_path / "c", **parameters).fit(X, y)
    resumed = BoostMetric(checkpoint=tmp_path / "c", **parameters).fit(X, y)
    assert resumed.n_iter_ > 7
    assert resumed.history_["objective"][-1] == pytest.approx(reference.history_["objective"][-1])
    scale = np.abs(reference.metric_.matrix).max()
    assert resumed.metric_.matrix == pytest.approx(reference.metric_.matrix, abs=1e-6 * scale)


def test_a_callback_of_boost_can_keep_snapshots() -> None:
    X, y = load_wine(return_X_y=True)
    comparisons = Comparisons.from_labels(X, y)
    snapshots = []

    def callback(fit: Boosting) -> bool:
        snapshots.append(fit.snapshot())
        return False

    whole = boost(X, comparisons, "logistic", max_iter=12, callback=callback)
    again = boost(X, comparisons, "logistic", max_iter=12, resume=snapshots[6])
    assert np.array_equal(again.margins, whole.margins)
    one, other = history_table(again.history), history_table(whole.history)
    assert np.array_equal(one[:7], other[:7], equal_nan=True)
    assert all(
        late.seconds > early.seconds
        for early, late in zip(again.history, again.history[1:], strict=False)
    )


def stopped(path: Path, **parameters: Any) -> tuple[NDArray, NDArray]:
    """An unfinished fit of wine."""
    X, y = load_wine(return_X_y=True)
    with listening(stop_after(2)):
        BoostMetric(checkpoint=path, **{"max_iter": 9, **parameters}).fit(X, y)
    return X, y


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    X, y = stopped(tmp_path / "c")
    before = (tmp_path / "c").read_bytes()
    with pytest.raises(
        CheckpointError, match=r"unfinished fit with max_iter=9 \(now 30\)\. Fit as"
    ):
        BoostMetric(checkpoint=tmp_path / "c", max_iter=30).fit(X, y)
    with pytest.raises(CheckpointError, match=r"loss=logistic \(now exponential\), max_iter=9"):
        BoostMetric("exponential", checkpoint=tmp_path / "c").fit(X, y)
    assert (tmp_path / "c").read_bytes() == before


@pytest.mark.parametrize("what", ["X", "y", "sample_weight"])
def test_other_data_are_refused(what: str, tmp_path: Path) -> None:
    X, y = stopped(tmp_path / "c")
    given: dict[str, Any] = {"X": X.copy(), "y": y.copy(), "sample_weight": None}
    if what == "X":
        given["X"][3, 4] += 1e-9
    elif what == "y":
        given["y"][0] = 1
    else:
        given["sample_weight"] = np.ones(len(y))
    with pytest.raises(CheckpointError, match="unfinished fit of other data"):
        BoostMetric(checkpoint=tmp_path / "c", max_iter=9).fit(**given)


def test_what_does_not_matter_may_change(tmp_path: Path) -> None:
    X, y = stopped(tmp_path / "c")
    (tmp_path / "c").rename(tmp_path / "moved")
    moved = BoostMetric(checkpoint=str(tmp_path / "moved"), n_jobs=2, max_iter=9).fit(X, y)
    assert_same(moved, BoostMetric(max_iter=9).fit(X, y))


def test_a_finished_fit_is_read_and_not_repeated_and_gives_way_to_another(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    first = BoostMetric(checkpoint=tmp_path / "c", n_passes=2, max_iter=9).fit(X, y)
    seen: list[Progress] = []
    with listening(lambda progress: bool(seen.append(progress))):  # type: ignore[func-returns-value]
        again = clone(first).fit(X, y)
    assert seen == []
    assert_same(again, first)
    other = BoostMetric(checkpoint=tmp_path / "c", max_iter=5).fit(X, y)
    assert_same(other, BoostMetric(max_iter=5).fit(X, y))


def test_a_pass_without_any_direction_can_be_kept(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    parameters: dict[str, Any] = {"n_passes": 5, "alpha": 1e5, "alpha_relative": False}
    learner = BoostMetric(checkpoint=tmp_path / "c", **parameters).fit(X, y)
    assert set(learner.history_["pass"]) == {0}
    assert_same(learner, BoostMetric(**parameters).fit(X, y))
    assert_same(clone(learner).fit(X, y), learner)


def test_a_warm_start_can_be_interrupted_too(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    reference = BoostMetric(max_iter=6, warm_start=True).fit(X, y).fit(X, y)
    learner = BoostMetric(max_iter=6, warm_start=True, checkpoint=tmp_path / "c").fit(X, y)
    resumes = learner._resume
    with listening(stop_after(2)):
        learner.fit(X, y)
    learner._resume = resumes
    assert_same(learner.fit(X, y), reference)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    X, y = stopped(path)
    before = path.read_bytes()
    path.write_bytes(before[:-40])
    with pytest.raises(CheckpointError, match=r"damaged.*remove the file"):
        BoostMetric(checkpoint=path, max_iter=9).fit(X, y)
    write_archive(path, "metric", 1, {}, {})
    with pytest.raises(CheckpointError, match="metric"):
        BoostMetric(checkpoint=path, max_iter=9).fit(X, y)


def test_a_path_that_cannot_be_written_is_refused_before_work(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    paths: list[Any] = [tmp_path, tmp_path / "none" / "c", 3]
    for path in paths:
        with pytest.raises(ValueError, match=r"checkpoint=.* a file, in a folder that exists"):
            BoostMetric(checkpoint=path).fit(X, y)


def test_checkpoints_are_written_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, writes = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def write(*arguments: Any) -> None:
        writes.append(now[0])
        now[0] += 1.0  # a slow disk

    monkeypatch.setattr(checkpoint, "write_archive", write)
    saved = Checkpoint(tmp_path / "c", {}, "")
    for _ in range(100):
        saved.follow(dict)
        now[0] += 1.0
    # After five seconds at first, and then so that writing takes a twentieth of the time.
    assert writes == [5.0, 26.0, 47.0, 68.0, 89.0]


def test_a_full_disk_does_not_end_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    X, y = load_wine(return_X_y=True)
    monkeypatch.setattr(checkpoint, "write_archive", write)
    with pytest.warns(UserWarning, match=r"could not be written .*No space.* The fit goes on"):
        learner = BoostMetric(max_iter=9, checkpoint=tmp_path / "c").fit(X, y)
    assert_same(learner, BoostMetric(max_iter=9).fit(X, y))


def test_digests_tell_data_apart() -> None:
    a = np.arange(6.0)
    parts: list[Any] = [
        a,
        a.reshape(2, 3),
        a.astype(np.float32),
        a[::-1],
        np.array(list("abcdef"), dtype=object),
        np.array(list("abcdeg"), dtype=object),
        None,
        csr_array((2, 3)),
        csr_array((2, 4)),
        csr_array(np.eye(2, 3)),
        Comparisons.from_triplets([[0, 1, 2]]),
        Comparisons.from_triplets([[0, 1, 2]], gaps=1.0),
        Metric(np.eye(2), np.ones(2)),
    ]
    assert len({digest(part) for part in parts}) == len(parts)
    assert digest(a, None) != digest(None, a)
    assert digest(np.asfortranarray(a.reshape(2, 3))) == digest(a.reshape(2, 3))
