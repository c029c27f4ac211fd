from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import simple_learner
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine

from boostmetric import Boosting, BoostMetric, Comparisons, Hinge, Loss, Metric, Trace
from boostmetric._files import load_arrays, save_arrays
from boostmetric.estimators import checkpoint
from boostmetric.estimators.callbacks import Progress, listening
from boostmetric.estimators.checkpoint import (
    FORMAT_VERSION,
    KIND,
    Checkpoint,
    CheckpointError,
    digest,
)
from boostmetric.estimators.early_stopping import HeldOut

CASES: dict[str, dict[str, Any]] = {
    "early": {
        "early_stopping": True,
        "random_state": 3,
        "n_passes": 2,
        "max_iter": 40,
        "directions_per_step": 1,
    },
    "corrective": {"solver": "totally_corrective", "n_passes": 2, "max_iter": 20, "tol": 1e-9},
    "blocks": {"directions_per_step": 5, "init": "whiten", "n_passes": 2, "max_iter": 200},
}

SINGLE: dict[str, Any] = {"directions_per_step": 1, "max_iter": 9}
"""A fit of nine steps."""


SLOW = pytest.mark.slow


def digits() -> tuple[NDArray, NDArray]:
    X, y = load_digits(return_X_y=True)
    return X[:200], y[:200]


def fit_until_killed(parameters: dict[str, Any], folder: str, n_writes: int) -> None:
    """Write a checkpoint after every iteration, and die during one of the writes."""
    left, replace, follow = [n_writes], os.replace, Checkpoint.follow

    def follow_now(self: Checkpoint, fit: Boosting, held_out: HeldOut | None, now: bool) -> None:
        follow(self, fit, held_out, now=True)

    def replace_or_die(source: Path, target: Path) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    Checkpoint.follow = follow_now  # type: ignore[method-assign]
    os.replace = replace_or_die  # type: ignore[assignment]
    learner = simple_learner(checkpoint=Path(folder, "fit.ckpt"), **parameters)
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


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_killed_fit_continues_to_the_same_metric(case: str, tmp_path: Path) -> None:
    reference = simple_learner(**CASES[case]).fit(*digits())
    # A server that has imported everything forks processes that start to fit immediately.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["boostmetric", __name__])
    for n_writes in (1, 3, 4, 0):  # 0: until the end
        process = context.Process(
            target=fit_until_killed, args=(CASES[case], str(tmp_path), n_writes)
        )
        process.start()
        process.join()
        assert process.exitcode == (-signal.SIGKILL if n_writes else 0)
    metric = Metric.load(tmp_path / "metric.bm")
    assert np.array_equal(metric.directions, reference.metric_.directions)
    assert np.array_equal(metric.coefs, reference.metric_.coefs)
    assert metric.origin is not None
    assert metric.origin["status"] == reference.status_.name
    assert metric.origin["n_iter"] == reference.n_iter_


def test_fit_aborted_while_writing_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if killed: an exception in the third write leaves the file of the second."""
    X, y = load_wine(return_X_y=True)
    parameters: dict[str, Any] = {"max_iter": 6, "n_passes": 2}
    reference = simple_learner(**parameters).fit(X, y)
    n_writes = [0]

    def write_or_die(*arguments: Any) -> None:
        n_writes[0] += 1
        if n_writes[0] == 3:
            raise KeyboardInterrupt
        save_arrays(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "MIN_PAUSE", 0.0)
        patch.setattr(checkpoint, "save_arrays", write_or_die)
        patch.setattr(time, "monotonic", lambda: 0.0)
        with pytest.raises(KeyboardInterrupt):
            simple_learner(checkpoint=tmp_path / "c", **parameters).fit(X, y)
    _, arrays = load_arrays(tmp_path / "c", KIND, FORMAT_VERSION)
    assert len(arrays["running_history"]) == 2
    assert_same(simple_learner(checkpoint=tmp_path / "c", **parameters).fit(X, y), reference)


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


EARLY: dict[str, Any] = {**SINGLE, "n_passes": 3, "early_stopping": True, "random_state": 0}
CORRECTIVE: dict[str, Any] = {"solver": "totally_corrective", "max_iter": 16}


@pytest.mark.parametrize(
    ("data", "parameters", "iterations"),
    [
        ("wine", {**SINGLE, "loss": "exponential", "regularizer": "frobenius"}, [1]),
        ("wine", {**SINGLE, "n_passes": 3, "init": "scale", "n_components": 3}, [2, 5]),
        ("wine", EARLY, [2, 5]),
        ("wine", EARLY, [1]),
        ("digits", {"directions_per_step": 6, "max_iter": 60}, [2, 5]),
        ("digits", {**SINGLE, "eigen_solver": "approximate"}, [2, 5]),
        ("wide", {"directions_per_step": 3, "max_iter": 12}, [1]),
        ("wine", {**CORRECTIVE, "max_iter": 8}, [1]),
        pytest.param("wine", {**CORRECTIVE, "loss": "squared_hinge"}, [1], marks=SLOW),
        pytest.param("wine", {**CORRECTIVE, "regularizer": "frobenius"}, [2, 5], marks=SLOW),
        pytest.param("wine32", CORRECTIVE, [2, 5], marks=SLOW),
    ],
)
def test_stopped_fit_continues_to_the_same_metric(
    data: str, parameters: dict[str, Any], iterations: list[int], tmp_path: Path
) -> None:
    X, y = data_of(data)
    reference = simple_learner(**parameters).fit(X, y)
    path = tmp_path / "fit.ckpt"
    for n in iterations:
        with listening(stop_after(n)):
            stopped = simple_learner(checkpoint=path, **parameters).fit(X, y)
        if stopped.status_ is not reference.status_:
            assert stopped.status_.name == "STOPPED"
    seen: list[Progress] = []
    with listening(lambda progress: bool(seen.append(progress))):  # type: ignore[func-returns-value]
        resumed = simple_learner(checkpoint=path, **parameters).fit(X, y)
    assert_same(resumed, reference)
    assert len(seen) == max(0, len(reference.history_["pass"]) - sum(iterations))


def test_held_out_comparisons_are_restored(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    comparisons = Comparisons.from_labels(X, y, 2, 2)
    learner = simple_learner(max_iter=20, early_stopping=True, checkpoint=tmp_path / "c")
    # random_state=None: only the checkpoint determines what is held out.
    with listening(stop_after(5)):
        learner.fit(X, comparisons=comparisons)
    name = "held_out_chosen"
    held_out = load_arrays(tmp_path / "c", KIND, FORMAT_VERSION)[1][name]
    learner.fit(X, comparisons=comparisons)
    assert np.array_equal(load_arrays(tmp_path / "c", KIND, FORMAT_VERSION)[1][name], held_out)
    other = clone(learner).set_params(checkpoint=tmp_path / "d")
    with listening(stop_after(1)):
        other.fit(X, comparisons=comparisons)
    with pytest.raises(CheckpointError, match="of other data"):
        other.fit(X, comparisons=comparisons[:50])


def test_hinge_continues_to_the_same_optimum(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    parameters: dict[str, Any] = {
        "loss": Hinge(nu=0.3),
        "init": "scale",
        "tol": 1e-8,
        "directions_per_step": "auto",
    }
    reference = simple_learner(**parameters).fit(X, y)
    with listening(stop_after(7)):
        simple_learner(checkpoint=tmp_path / "c", **parameters).fit(X, y)
    resumed = simple_learner(checkpoint=tmp_path / "c", **parameters).fit(X, y)
    assert resumed.n_iter_ > 7
    assert resumed.history_["objective"][-1] == pytest.approx(reference.history_["objective"][-1])
    scale = np.abs(reference.metric_.matrix).max()
    assert resumed.metric_.matrix == pytest.approx(reference.metric_.matrix, abs=1e-6 * scale)


def stopped(path: Path, **parameters: Any) -> tuple[NDArray, NDArray]:
    """An unfinished fit of wine."""
    X, y = load_wine(return_X_y=True)
    with listening(stop_after(2)):
        simple_learner(checkpoint=path, **{"max_iter": 9, **parameters}).fit(X, y)
    return X, y


def test_other_parameters_are_rejected_by_name(tmp_path: Path) -> None:
    X, y = stopped(tmp_path / "c")
    before = (tmp_path / "c").read_bytes()
    with pytest.raises(
        CheckpointError, match=r"unfinished fit with max_iter=9 \(now 30\)\. To continue"
    ):
        simple_learner(checkpoint=tmp_path / "c", max_iter=30).fit(X, y)
    with pytest.raises(CheckpointError, match=r"loss=logistic \(now exponential\), max_iter=9"):
        simple_learner("exponential", checkpoint=tmp_path / "c").fit(X, y)
    assert (tmp_path / "c").read_bytes() == before


@pytest.mark.parametrize("what", ["X", "y", "sample_weight"])
def test_other_data_are_rejected(what: str, tmp_path: Path) -> None:
    X, y = stopped(tmp_path / "c")
    given: dict[str, Any] = {"X": X.copy(), "y": y.copy(), "sample_weight": None}
    if what == "X":
        given["X"][3, 4] += 1e-9
    elif what == "y":
        given["y"][0] = 1
    else:
        given["sample_weight"] = np.ones(len(y))
    with pytest.raises(CheckpointError, match="unfinished fit of other data"):
        simple_learner(checkpoint=tmp_path / "c", max_iter=9).fit(**given)


def test_parameters_without_effect_may_change(tmp_path: Path) -> None:
    X, y = stopped(tmp_path / "c")
    (tmp_path / "c").rename(tmp_path / "moved")
    moved = simple_learner(checkpoint=str(tmp_path / "moved"), n_jobs=2, max_iter=9).fit(X, y)
    assert_same(moved, simple_learner(max_iter=9).fit(X, y))


def test_finished_fit_is_not_repeated(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    first = simple_learner(checkpoint=tmp_path / "c", n_passes=2, max_iter=9).fit(X, y)
    seen: list[Progress] = []
    with listening(lambda progress: bool(seen.append(progress))):  # type: ignore[func-returns-value]
        again = clone(first).fit(X, y)
    assert seen == []
    assert_same(again, first)
    other = simple_learner(checkpoint=tmp_path / "c", max_iter=5).fit(X, y)
    assert_same(other, simple_learner(max_iter=5).fit(X, y))


def test_pass_without_directions_is_kept(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    parameters: dict[str, Any] = {"n_passes": 5, "regularizer": Trace(1e5)}
    learner = simple_learner(checkpoint=tmp_path / "c", **parameters).fit(X, y)
    assert set(learner.history_["pass"]) == {0}
    assert_same(learner, simple_learner(**parameters).fit(X, y))
    assert_same(clone(learner).fit(X, y), learner)


def test_interrupted_warm_start_continues(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    reference = simple_learner(max_iter=6, warm_start=True).fit(X, y).fit(X, y)
    learner = simple_learner(max_iter=6, warm_start=True, checkpoint=tmp_path / "c").fit(X, y)
    resumes = learner._resume
    with listening(stop_after(2)):
        learner.fit(X, y)
    learner._resume = resumes
    assert_same(learner.fit(X, y), reference)


def test_other_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "c"
    X, y = stopped(path)
    contents = load_arrays(path, KIND, FORMAT_VERSION)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match=r"damaged.*remove the file"):
        simple_learner(checkpoint=path, max_iter=9).fit(X, y)
    save_arrays(path, "metric", 1, {}, {})
    with pytest.raises(CheckpointError, match="is a metric file, not a checkpoint file"):
        simple_learner(checkpoint=path, max_iter=9).fit(X, y)
    save_arrays(path, KIND, FORMAT_VERSION - 1, *contents)
    with pytest.raises(CheckpointError, match=r"c has version \d of the checkpoint format.*remove"):
        simple_learner(checkpoint=path, max_iter=9).fit(X, y)


def test_invalid_paths_are_rejected_before_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(path: Any) -> str:
        with pytest.raises(ValueError) as error:
            simple_learner(checkpoint=path).fit([[0.0]], [0])  # no valid data either
        return str(error.value)

    prefix = "checkpoint must be a writable file path"
    assert message(tmp_path).startswith(f"{prefix}; {tmp_path} is a directory")
    assert message(f"{tmp_path}/no/c") == f"{prefix}; Directory {tmp_path}/no does not exist."
    os.mkfifo(tmp_path / "pipe")  # which nobody writes: reading would hang
    assert message(tmp_path / "pipe").startswith(f"{prefix}; {tmp_path}/pipe is not a regular file")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert message(tmp_path / "c") == f"{prefix}; {tmp_path} is not writable."
    assert message(3) == ("The 'checkpoint' parameter must be None or a file path. Got 3 instead.")


def test_writes_take_five_percent_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, writes = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def write(*arguments: Any) -> None:
        writes.append(now[0])
        now[0] += 1.0  # a slow disk

    monkeypatch.setattr(checkpoint, "save_arrays", write)
    saved = Checkpoint(tmp_path / "c", {}, "")
    fit: Any = SimpleNamespace(snapshot=dict)
    for _ in range(100):
        saved.follow(fit, None, now=False)
        now[0] += 1.0
    # After five seconds at first, then such that writing takes a twentieth of the time.
    assert writes == [5.0, 26.0, 47.0, 68.0, 89.0]


def test_full_disk_does_not_end_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    X, y = load_wine(return_X_y=True)
    monkeypatch.setattr(checkpoint, "save_arrays", write)
    with pytest.warns(UserWarning, match=r"could not be written .*No space.* The fit continues"):
        learner = simple_learner(max_iter=9, checkpoint=tmp_path / "c").fit(X, y)
    assert_same(learner, simple_learner(max_iter=9).fit(X, y))


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
        (Scaled(table=np.zeros(3)), Scaled(table=np.array([0, 1e-9, 0]))),
        (Scaled(inner=Scaled(2.0)), Scaled(inner=Scaled(3.0))),
        (Scaled(f=math.sin), Scaled(f=math.cos)),
        (Scaled(), Scaled(extra=None)),
        (Scaled(), Copied()),
    ],
)
def test_custom_loss_with_other_attributes_is_rejected(
    first: Loss, second: Loss, tmp_path: Path
) -> None:
    X, y = stopped(tmp_path / "c", loss=first)
    with pytest.raises(CheckpointError, match=r"unfinished fit with loss=\w+\(\) \(digest \w+\)"):
        simple_learner(second, checkpoint=tmp_path / "c", max_iter=9).fit(X, y)


@pytest.mark.parametrize("table", [np.linspace(1, 2, 3), {"b": {1, 2}, "a": (None, "x")}])
def test_custom_loss_with_same_attributes_continues(table: Any, tmp_path: Path) -> None:
    X, y = stopped(tmp_path / "c", loss=Scaled(2.0, table=table))
    fitted = simple_learner(Scaled(2.0, table=table), max_iter=9)
    seen: list[Progress] = []
    with listening(lambda progress: bool(seen.append(progress))):  # type: ignore[func-returns-value]
        resumed = clone(fitted).set_params(checkpoint=tmp_path / "c").fit(X, y)
    assert seen[0].n_directions == 3
    assert_same(resumed, fitted.fit(X, y))


@pytest.mark.slow
def test_digest_is_the_same_in_another_process() -> None:
    loss = Scaled(
        np.arange(3.0), names={"b", "a", "c"}, f=math.sqrt, cls=Copied, n={"z": 1, "a": 2}
    )
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(digest, (loss,)) == digest(loss)


@pytest.mark.parametrize("attribute", [threading.Lock(), lambda x: x])
def test_loss_must_be_picklable(attribute: Any, tmp_path: Path) -> None:
    learner = simple_learner(Scaled(f=attribute), max_iter=3, checkpoint=tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"that can be pickled.*checkpoint=None"):
        learner.fit(*load_wine(return_X_y=True))


def test_gaps_and_weights_are_distinguished(tmp_path: Path) -> None:
    X, _ = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    triplets = [rng.permutation(len(X))[:3] for _ in range(300)]
    numbers = np.linspace(0.5, 2, 300)
    learner = simple_learner(max_iter=9, checkpoint=tmp_path / "c")
    with listening(stop_after(2)):
        learner.fit(X, comparisons=Comparisons.from_triplets(triplets, gaps=numbers))
    with pytest.raises(CheckpointError, match="of other data"):
        learner.fit(X, comparisons=Comparisons.from_triplets(triplets, weights=numbers))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> BoostMetric:
    """A fit with early stopping that was stopped in its second pass."""
    learner = simple_learner(
        max_iter=4, n_passes=3, early_stopping=True, random_state=0, directions_per_step=1
    )
    learner.set_params(checkpoint=tmp_path_factory.mktemp("interrupted") / "c")
    with listening(stop_after(6)):
        return learner.fit(*load_wine(return_X_y=True))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("passes", None, "'NoneType' object is not iterable"),
        ("passes", [{"status": "NOPE"}], "'NOPE'"),
        ("passes", [{"status": "MAX_ITER"}], "missing 4 required"),
        ("pass0_directions", np.eye(2), r"got \(2, 2\) and"),
        ("pass0_coefs", np.ones(1), r"and \(1,\)"),
        ("running_coefs", np.ones(1), "another number of coefficients"),
        ("running_layout", np.ones(1, dtype=int), "comparisons, and this problem has"),
        ("running_history", np.zeros((2, 1)), "history of another shape"),
    ],
)
def test_malformed_contents_are_rejected(
    name: str, value: Any, reason: str, interrupted: BoostMetric, tmp_path: Path
) -> None:
    assert interrupted.checkpoint is not None
    facts, arrays = load_arrays(interrupted.checkpoint, KIND, FORMAT_VERSION)
    changed = facts if name in facts else arrays
    assert name in changed
    changed[name] = value
    save_arrays(tmp_path / "c", KIND, FORMAT_VERSION, facts, arrays)
    learner = clone(interrupted).set_params(checkpoint=tmp_path / "c")
    with pytest.raises(CheckpointError, match=f"c is not a valid checkpoint.*{reason}.*remove the"):
        learner.fit(*load_wine(return_X_y=True))


def test_digest_differs_for_different_data() -> None:
    a = np.arange(6.0)
    objects = [np.array(list(text), dtype=object) for text in ("abcdef", "abcdeg")]
    matrices = [csr_array((2, 3)), csr_array((2, 4)), csr_array(np.eye(2, 3))]
    comparisons = [
        Comparisons.from_triplets([[0, 1, 2]], gaps=gaps, weights=weights)
        for gaps, weights in ((None, None), (1.0, None), (None, 1.0))
    ]
    values = [1, 1.0, True, "1", b"1", [1], (1,), [[1], []], [[], [1]], {"a": 1}, {"a": None}]
    parts: list[Any] = [a, a.reshape(2, 3), a.astype(np.float32), a[::-1], None, np.float32(1)]
    parts += [*objects, *matrices, *comparisons, *values, Metric(np.eye(2), np.ones(2))]
    assert len({digest(part) for part in parts}) == len(parts)
    assert digest(a, None) != digest(None, a)
    assert digest(np.asfortranarray(a.reshape(2, 3))) == digest(a.reshape(2, 3))
