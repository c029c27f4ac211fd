from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import margins_of
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine

from boostmetric import BoostMetric, Comparisons, Hinge, Loss, Metric, Trace, boost
from boostmetric._archive import read_archive, write_archive
from boostmetric.estimators import checkpoint
from boostmetric.estimators.callbacks import Progress, listening
from boostmetric.estimators.checkpoint import KIND, VERSION, Checkpoint, CheckpointError, digest
from boostmetric.solvers import Boosting, history_table

KILLS = 24
"""How often fits are killed, over all the cases."""

CASES: dict[str, dict[str, Any]] = {
    "stagewise": {"loss": "exponential", "n_passes": 3, "max_iter": 60},
    "early": {"early_stopping": True, "random_state": 3, "n_passes": 3, "max_iter": 60},
    "corrective": {"solver": "totally_corrective", "n_passes": 2, "max_iter": 40, "tol": 1e-9},
    "blocks": {"directions_per_step": 5, "init": "whiten", "n_passes": 2, "max_iter": 200},
}
"""Fits of a second or so, each of many iterations."""


def digits() -> tuple[NDArray, NDArray]:
    X, y = load_digits(return_X_y=True)
    return X[:400], y[:400]


def fit_and_save(parameters: dict[str, Any], folder: str) -> None:
    """What is run to be killed: a fit that writes a checkpoint after every iteration."""
    checkpoint.MIN_SECONDS_BETWEEN_WRITES, checkpoint.MAX_SHARE_OF_TIME = 0.0, math.inf
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
    ("digits", {"directions_per_step": 6, "max_iter": 60}),
    ("digits", {"eigen_solver": "approximate", "max_iter": 10}),
    ("wide", {"max_iter": 12}),
    ("wide", {"directions_per_step": 3, "max_iter": 12}),
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
    assert len(seen) == max(0, len(reference.history_["pass"]) - sum(iterations))


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
    assert np.array_equal(margins_of(again), margins_of(whole))
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
        CheckpointError, match=r"unfinished fit with max_iter=9 \(now 30\)\. To continue"
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
    parameters: dict[str, Any] = {"n_passes": 5, "regularizer": Trace(1e5)}
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
        with pytest.raises(ValueError, match=r"checkpoint.* must be"):
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
    with pytest.warns(UserWarning, match=r"could not be written .*No space.* The fit continues"):
        learner = BoostMetric(max_iter=9, checkpoint=tmp_path / "c").fit(X, y)
    assert_same(learner, BoostMetric(max_iter=9).fit(X, y))


class Scaled(Loss):
    """A squared hinge with a parameter, which its repr does not show."""

    def __init__(self, scale: Any = 1.0, **others: Any) -> None:
        self.scale = scale
        vars(self).update(others)

    def value(self, margins: NDArray, weights: NDArray | None = None) -> float:
        slack = np.maximum(1 - margins / self.scale, 0) ** 2
        return float(np.sum(slack if weights is None else weights * slack))

    def duals(self, margins: NDArray, weights: NDArray | None = None) -> NDArray:
        slack = 2 * np.maximum(1 - margins / self.scale, 0) / self.scale
        return slack if weights is None else weights * slack


class Copied(Scaled):
    """The same attributes, another class."""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Scaled(1.0), Scaled(50.0)),
        (Scaled(np.float64(1.0)), Scaled(np.float32(1.0))),
        (Scaled(table=np.zeros(3)), Scaled(table=np.array([0, 1e-9, 0]))),
        (Scaled(nested={"a": [np.zeros(3)]}), Scaled(nested={"a": [np.ones(3)]})),
        (Scaled(inner=Scaled(2.0)), Scaled(inner=Scaled(3.0))),
        (Scaled(f=lambda x: x), Scaled(f=lambda x: x + 1)),
        (Scaled(f=lambda x, c=1: x * c), Scaled(f=lambda x, c=2: x * c)),
        (Scaled(name="a"), Scaled(name=None)),
        (Scaled(), Scaled(extra=None)),
        (Scaled(), Copied()),
    ],
)
def test_a_custom_loss_with_other_attributes_is_rejected(
    first: Loss, second: Loss, tmp_path: Path
) -> None:
    X, y = stopped(tmp_path / "c", loss=first)
    with pytest.raises(CheckpointError, match=r"unfinished fit with loss=\w+\(\) \(digest \w+\)"):
        BoostMetric(second, checkpoint=tmp_path / "c", max_iter=9).fit(X, y)


@pytest.mark.parametrize("table", [1.0, np.linspace(1, 2, 3), {"b": {1, 2}, "a": (None, "x")}])
def test_a_custom_loss_with_the_same_attributes_continues(table: Any, tmp_path: Path) -> None:
    X, y = stopped(tmp_path / "c", loss=Scaled(2.0, table=table))
    fitted = BoostMetric(Scaled(2.0, table=table), max_iter=9)
    seen: list[Progress] = []
    with listening(lambda progress: bool(seen.append(progress))):  # type: ignore[func-returns-value]
        resumed = clone(fitted).set_params(checkpoint=tmp_path / "c").fit(X, y)
    assert seen[0].n_directions == 3
    assert_same(resumed, fitted.fit(X, y))


def test_the_identity_of_a_loss_is_the_same_in_another_process() -> None:
    loss = Scaled(
        np.arange(3.0), names={"b", "a", "c"}, f=math.sqrt, cls=Copied, n={"z": 1, "a": 2}
    )
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(digest, (loss,)) == digest(loss)


def test_a_loss_whose_state_cannot_be_read_is_rejected(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    learner = BoostMetric(Scaled(lock=threading.Lock()), max_iter=3, checkpoint=tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"whose state can be read.*checkpoint=None"):
        learner.fit(X, y)
    cyclic = Scaled()
    vars(cyclic)["self"] = cyclic
    with pytest.raises(CheckpointError, match="whose state can be read"):
        learner.set_params(loss=cyclic).fit(X, y)


def test_gaps_are_not_taken_for_weights(tmp_path: Path) -> None:
    X, _ = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    triplets = [rng.permutation(len(X))[:3] for _ in range(300)]
    numbers = np.linspace(0.5, 2, 300)
    learner = BoostMetric(max_iter=9, checkpoint=tmp_path / "c")
    with listening(stop_after(2)):
        learner.fit(X, comparisons=Comparisons.from_triplets(triplets, gaps=numbers))
    with pytest.raises(CheckpointError, match="of other data"):
        learner.fit(X, comparisons=Comparisons.from_triplets(triplets, weights=numbers))


def test_a_file_of_format_1_is_rejected_with_what_to_do(tmp_path: Path) -> None:
    X, y = stopped(tmp_path / "c")
    write_archive(tmp_path / "c", KIND, 1, *read_archive(tmp_path / "c", KIND, VERSION))
    with pytest.raises(
        CheckpointError, match=r"c was written by an older boostmetric \(format 1 .*remove the file"
    ):
        BoostMetric(checkpoint=tmp_path / "c", max_iter=9).fit(X, y)


Change = Callable[[dict[str, Any], dict[str, NDArray]], Any]


def without(name: str) -> Change:
    return lambda facts, arrays: facts.pop(name, None) if name in facts else arrays.pop(name)


def with_fact(name: str, value: Any) -> Change:
    return lambda facts, arrays: facts.update({name: value})


def with_array(name: str, change: Callable[[NDArray], Any]) -> Change:
    return lambda facts, arrays: arrays.update({name: np.asarray(change(arrays[name].copy()))})


def with_entry(name: str, value: float) -> Change:
    def change(array: NDArray) -> NDArray:
        array.flat[0] = value
        return array

    return with_array(name, change)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> BoostMetric:
    """A fit with early stopping that was stopped in its second pass."""
    learner = BoostMetric(
        max_iter=4, n_passes=3, early_stopping=True, random_state=0, directions_per_step=1
    )
    learner.set_params(checkpoint=tmp_path_factory.mktemp("interrupted") / "c")
    with listening(stop_after(6)):
        return learner.fit(*load_wine(return_X_y=True))


def with_best(n_features: int) -> Change:
    metric = {"stopping_directions": np.eye(n_features), "stopping_coefs": np.ones(n_features)}
    return lambda facts, arrays: arrays.update(metric)


def without_directions(facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
    arrays["stopping_coefs"] = np.ones(2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *((without(name), f"{name} is None") for name in ("settings", "data", "finished")),
        (without("best_error"), "best_error is None"),
        (without("statuses"), "statuses is None"),
        (with_fact("finished", 1), "finished is 1"),
        (with_fact("settings", "alpha=1"), "settings is 'alpha=1'"),
        (with_fact("best_error", math.nan), "best_error is NaN"),
        (with_fact("best_error", "low"), "best_error is 'low'"),
        (with_fact("statuses", ["NOPE"]), "status of pass 1 is 'NOPE'"),
        (with_fact("statuses", [["MAX_ITER"]]), "status of pass 1 is"),
        (with_fact("statuses", ["MAX_ITER"] * 2), "pass 2 is malformed: KeyError"),
        *(
            (without(f"pass0_{name}"), f"pass 1 is malformed: KeyError\\('{name}'")
            for name in ("directions", "coefs", "history", "numbers", "n_comparisons")
        ),
        (with_array("pass0_directions", lambda a: a[:-1]), "pass 1 has 12 features instead of 13"),
        (with_array("pass0_directions", lambda a: a[:, :-1]), "pass 1 is malformed"),
        (with_entry("pass0_directions", math.nan), "pass 1 is malformed"),
        (with_entry("pass0_coefs", math.inf), "pass 1 is malformed"),
        (with_entry("pass0_numbers", math.nan), "pass 1 is malformed.*alpha is nan"),
        (with_array("pass0_numbers", lambda a: a[:2]), "pass 1 is malformed"),
        (with_array("pass0_history", lambda a: a[:, 1:]), "a history is of type"),
        (with_entry("pass0_history", math.nan), "a history contains NaN"),
        (with_array("pass0_n_comparisons", lambda a: [1, 2]), "pass 1 is malformed"),
        (without("running_memory_newton"), "incomplete or damaged.*newton"),
        (without("running_sizes"), "incomplete or damaged.*sizes"),
        (with_entry("running_alpha", math.nan), "not finite"),
        (with_array("running_layout", lambda a: a + 1), "comparisons, and this problem has"),
        (with_array("running_coefs", lambda a: a[1:]), "another number of coefficients"),
        (with_array("running_coefs", lambda a: -a), "negative coefficients"),
        (with_entry("running_coefs", math.nan), "not finite"),
        (with_array("running_directions", lambda a: a[1:]), "directions of another shape"),
        (with_array("running_history", lambda a: a[:, 1:]), "history of another shape"),
        (with_entry("running_history", math.nan), "not finite"),
        (without("stopping_numbers"), "early stopping is malformed: KeyError"),
        (with_array("stopping_numbers", lambda a: a[:2]), "early stopping is malformed"),
        (with_entry("stopping_numbers", math.nan), "the lowest error is NaN"),
        (with_best(12), "12 features instead of"),
        (without_directions, "early stopping is malformed: KeyError"),
        (with_array("held_out", lambda a: a.astype(float)), "held_out is of type float64"),
        (with_array("held_out", lambda a: a[:0]), "held_out is of type"),
        (with_entry("held_out", -1), "held_out does not contain distinct positions below 178"),
        (with_entry("held_out", 178), "held_out does not contain distinct positions"),
        (with_array("held_out", lambda a: np.r_[a, a]), "held_out does not contain distinct"),
    ],
)
def test_malformed_contents_are_named(
    change: Change, reason: str, interrupted: BoostMetric, tmp_path: Path
) -> None:
    assert interrupted.checkpoint is not None
    facts, arrays = read_archive(interrupted.checkpoint, KIND, VERSION)
    assert {name.split("_")[0] for name in arrays} >= {"pass0", "running", "stopping", "held"}
    change(facts, arrays)
    write_archive(tmp_path / "c", KIND, VERSION, facts, arrays)
    learner = clone(interrupted).set_params(checkpoint=tmp_path / "c")
    with pytest.raises(CheckpointError, match=f"c is not a valid checkpoint.*{reason}.*remove the"):
        learner.fit(*load_wine(return_X_y=True))


def test_an_unchanged_file_is_valid_after_all(tmp_path: Path) -> None:
    X, y = stopped(tmp_path / "c")
    write_archive(tmp_path / "c", KIND, VERSION, *read_archive(tmp_path / "c", KIND, VERSION))
    resumed = BoostMetric(checkpoint=tmp_path / "c", max_iter=9).fit(X, y)
    assert_same(resumed, BoostMetric(max_iter=9).fit(X, y))


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
        Comparisons.from_triplets([[0, 1, 2]], weights=1.0),
        Metric(np.eye(2), np.ones(2)),
        1,
        1.0,
        True,
        "1",
        b"1",
        [1],
        (1,),
        [[1], []],
        [[], [1]],
        {"a": 1},
        {"a": None},
        np.float32(1),
        np.array([1, "1"], dtype=object),
        np.array(["1", "1"], dtype=object),
    ]
    assert len({digest(part) for part in parts}) == len(parts)
    assert digest(a, None) != digest(None, a)
    assert digest(np.asfortranarray(a.reshape(2, 3))) == digest(a.reshape(2, 3))
