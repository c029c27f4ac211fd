"""Fits that are interrupted and resumed, and fits with several blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, fields, replace
from typing import Any

import numpy as np
import pytest
from conftest import SMOOTH, blocks_of
from numpy.typing import NDArray
from sklearn.datasets import load_wine

from boostmetric import Boosting, Comparisons, Iteration, Operator, Trace, boost
from boostmetric.engines import single_blas_thread
from boostmetric.solvers import SnapshotError, SolverSettings
from boostmetric.solvers.base import Memory

Data = tuple[NDArray, Comparisons]
Snapshot = dict[str, NDArray]

KINDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "one direction": ("logistic", {"solver": "stagewise", "directions_per_step": 1}, 1),
    "batches": ("exponential", {"solver": "stagewise", "directions_per_step": 3, "tol": 0.0}, 3),
    "totally corrective": (
        "logistic",
        {"solver": "totally_corrective", "directions_per_step": 1, "tol": 0.0},
        1,
    ),
    "frobenius": (
        "logistic",
        {
            "solver": "totally_corrective",
            "regularizer": "frobenius",
            "directions_per_step": 1,
            "tol": 1e-12,
        },
        1,
    ),
    "hinge": ("hinge", {"tol": 1e-9}, 2),
}
"""A loss, its options, and the directions per step."""

every_kind = pytest.mark.parametrize("kind", list(KINDS))


def draw(dtype: type[np.floating] = np.float64, D: int = 6) -> Data:
    """Points of three classes, with gaps and weights."""
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], 10)
    X = rng.normal(size=(30, D))
    X[:, :2] += 1.5 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    c = Comparisons.from_labels(X, y)
    gaps, weights = rng.uniform(0, 0.5, len(c)), rng.uniform(0.5, 2, len(c))
    return X.astype(dtype), Comparisons(c.pairs, c.near, c.far, gaps, weights)


def run(data: Data, kind: str, n_steps: int, **more: Any) -> Boosting:
    loss, options, size = KINDS[kind]
    return boost(*data, loss, max_iter=n_steps * size, **{**options, **more})


def interrupted(data: Data, kind: str, after: int) -> Snapshot:
    """The snapshot that a callback takes after some steps of a fit."""
    saved: list[Snapshot] = []

    def callback(fit: Boosting) -> bool:
        if len(fit.history) == after:
            saved.append({name: array.copy() for name, array in fit.snapshot().items()})
        return len(fit.history) == after

    run(data, kind, 100, callback=callback)
    return saved[0]


def rows_of(history: list[Iteration]) -> list[tuple[Any, ...]]:
    """The history without the times, and with NaN as a string, which is equal to itself."""
    rows = []
    for step in history:
        row = astuple(step)
        rows.append(tuple(str(value) if value != value else value for value in row[:-1]))
    return rows


@every_kind
@pytest.mark.parametrize(("dtype", "is_dense"), [(np.float64, True), (np.float32, False)])
def test_resumed_fit_is_bitwise_identical(
    is_dense: bool,
    dtype: type[np.floating],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_dense:
        monkeypatch.setattr(Operator, "DENSE_UP_TO", 10)
    data = draw(dtype, D=16)
    after, n_steps = 2, 4
    saved = interrupted(data, kind, after)
    assert all(isinstance(array, np.ndarray) for array in saved.values())
    whole, resumed = run(data, kind, n_steps), run(data, kind, n_steps, resume=saved)
    assert len(whole.history) > after
    assert resumed.metric.directions.dtype == whole.metric.directions.dtype == dtype
    assert np.array_equal(resumed.metric.directions, whole.metric.directions)
    assert np.array_equal(resumed.metric.coefs, whole.metric.coefs)
    assert rows_of(resumed.history) == rows_of(whole.history)
    assert resumed.status is whole.status
    assert resumed.alpha == whole.alpha
    assert resumed.alpha_max == whole.alpha_max
    assert resumed.objective() == whole.objective()
    seconds = [step.seconds for step in resumed.history]
    assert seconds == sorted(seconds)


@every_kind
def test_repeatedly_resumed_fit_is_bitwise_identical(kind: str) -> None:
    data = draw()
    whole = run(data, kind, 4)
    saved = None
    for n in range(1, 5):
        part = run(data, kind, n, resume=saved)
        saved = part.snapshot()
    assert np.array_equal(part.metric.directions, whole.metric.directions)
    assert np.array_equal(part.metric.coefs, whole.metric.coefs)
    assert rows_of(part.history) == rows_of(whole.history)


@every_kind
def test_resumed_warm_start_is_bitwise_identical(kind: str) -> None:
    data = draw()
    start = run(data, kind, 2).metric
    whole, half = (run(data, kind, n, start=start) for n in (4, 1))
    resumed = run(data, kind, 4, start=start, resume=half.snapshot())
    assert np.array_equal(resumed.metric.directions, whole.metric.directions)
    assert np.array_equal(resumed.metric.coefs, whole.metric.coefs)


def test_memory_round_trip() -> None:
    numbers: dict[str, Any] = {
        each.name: float(n)
        for n, each in enumerate(fields(Memory), start=3)
        if each.type in ("int", "float")
    }
    memory = replace(Memory(1.5), basis=np.eye(4)[:, :2], **numbers)
    again = Memory.from_arrays(memory.to_arrays())
    for each in fields(Memory):
        np.testing.assert_equal(getattr(again, each.name), getattr(memory, each.name))
    assert Memory.from_arrays(Memory(1.5).to_arrays()).basis is None


def damage(**changed: Callable[[NDArray], NDArray]) -> Callable[[Snapshot], Snapshot]:
    return lambda saved: saved | {name: change(saved[name]) for name, change in changed.items()}


def without(name: str) -> Callable[[Snapshot], Snapshot]:
    return lambda saved: {key: array for key, array in saved.items() if key != name}


def with_nan(array: NDArray) -> NDArray:
    array = array.astype(float)
    array.flat[0] = np.nan
    return array


ARRAYS = [
    "directions",
    "coefs",
    "sizes",
    "scales",
    "history",
    "alpha",
    "first_value",
    "has_gap",
    "layout",
    "memory_numbers",
]

DAMAGES: dict[str, Callable[[Snapshot], Snapshot]] = {
    **{f"no {name}": without(name) for name in ARRAYS},
    "NaN in directions": damage(directions=with_nan),
    "NaN in coefs": damage(coefs=with_nan),
    "a negative coefficient": damage(coefs=lambda array: -array),
    "NaN in scales": damage(scales=with_nan),
    "NaN in alpha": damage(alpha=with_nan),
    "NaN in first_value": damage(first_value=with_nan),
    "NaN in memory_numbers": damage(memory_numbers=with_nan),
    "NaN in history": damage(history=with_nan),
    "too few features": damage(directions=lambda array: array[:-1]),
    "too few directions": damage(directions=lambda array: array[:, :-1]),
    "too few coefs": damage(coefs=lambda array: array[:-1]),
    "too many coefs": damage(coefs=lambda array: np.append(array, 1.0)),
    "too few sizes": damage(sizes=lambda array: array[:-1]),
    "too few scales": damage(scales=lambda array: array[:-1]),
    "a narrow history": damage(history=lambda array: array[:, :-1]),
    "a flat history": damage(history=lambda array: array.ravel()),
    "too few memory_numbers": damage(memory_numbers=lambda array: array[:-1]),
    "another number of comparisons": damage(layout=lambda array: array + 1),
    "no layout at all": damage(layout=lambda array: array[:0]),
}


HINGE_ARRAYS = [
    "rows",
    "ages",
    "duals",
    "best_duals",
    "price",
    "column_status",
    "row_status",
]

HINGE_DAMAGES: dict[str, Callable[[Snapshot], Snapshot]] = {
    **{f"no {name}": without(f"program_{name}") for name in HINGE_ARRAYS},
    "NaN in rows": damage(program_rows=with_nan),
    "NaN in duals": damage(program_duals=with_nan),
    "NaN in best_duals": damage(program_best_duals=with_nan),
    "too few features": damage(program_rows=lambda array: array[:-1]),
    "too few rows": damage(program_rows=lambda array: array[:, :-1]),
    "too few duals": damage(program_duals=lambda array: array[:-1]),
    "too few column_status": damage(program_column_status=lambda array: array[:-1]),
    "an unknown status": damage(program_row_status=lambda array: array + 100),
}


@pytest.mark.parametrize(("kind", "damages"), [("batches", DAMAGES), ("hinge", HINGE_DAMAGES)])
def test_damaged_snapshot_is_rejected_before_any_step(
    kind: str, damages: dict[str, Callable[[Snapshot], Snapshot]]
) -> None:
    saved = interrupted(draw(), kind, 3)
    steps: list[int] = []

    def note(fit: Boosting) -> bool:
        steps.append(len(fit.history))
        return False

    accepted = []
    for name, change in damages.items():
        try:
            run(draw(), kind, 6, resume=change(saved), callback=note)
            accepted.append(name)
        except SnapshotError:
            pass
    assert not accepted
    assert not steps


def test_snapshot_of_other_comparisons_is_rejected() -> None:
    X, c = draw()
    saved = interrupted((X, c), "one direction", 2)
    with pytest.raises(SnapshotError, match=rf"{len(c)} comparisons.*{len(c) - 1}"):
        run((X, c[np.arange(len(c) - 1)]), "one direction", 4, resume=saved)


def test_snapshot_of_other_features_is_rejected() -> None:
    X, c = draw()
    saved = interrupted((X, c), "one direction", 2)
    with pytest.raises(SnapshotError, match="another shape"):
        run((X[:, :-1].copy(), c), "one direction", 4, resume=saved)


# Several blocks.


def solved(data: Data, loss: str, n_blocks: int, resume: Any = None, **options: Any) -> Boosting:
    problem = blocks_of(*data, loss, n_blocks, Trace(0.0))
    with single_blas_thread():  # as in `boost`
        settings = SolverSettings.of(loss, **options)
        return Boosting(problem, settings, resume=resume).run()


@pytest.mark.parametrize("loss", SMOOTH)
def test_blocks_agree_after_many_directions(loss: str) -> None:
    X, y = load_wine(return_X_y=True)  # a stage-wise fit takes hundreds of steps
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    data = X, Comparisons.from_labels(X, y)
    # The duals of the hinges have kinks, at which rounding errors grow.
    n_directions = 60 if loss in ("exponential", "logistic") else 20
    options: dict[str, Any] = {
        "solver": "stagewise",
        "directions_per_step": 1,
        "max_iter": n_directions,
    }
    one, three = (solved(data, loss, n, **options) for n in (1, 3))
    assert one.n_tried == three.n_tried == n_directions
    M = one.metric.matrix
    np.testing.assert_allclose(three.metric.matrix, M, atol=1e-6 * np.abs(M).max())
    assert three.objective() == pytest.approx(one.objective(), rel=1e-6)


@pytest.mark.parametrize("loss", ["exponential", "smoothed_hinge"])
@pytest.mark.parametrize("solver", ["batches", "totally_corrective"])
@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
def test_blocks_agree_to_tolerance(regularizer: str, solver: str, loss: str) -> None:
    data = draw(D=6)
    options: dict[str, Any] = {"solver": solver, "tol": 1e-4}
    if solver == "batches":
        options = {"solver": "stagewise", "directions_per_step": 3, "max_iter": 9}
    one, three = (
        solved(data, loss, n, alpha=1e-2, regularizer=regularizer, **options) for n in (1, 3)
    )
    rel = 1e-6 if solver == "batches" else 2e-4
    assert three.objective() == pytest.approx(one.objective(), rel=rel)
    assert three.alpha == pytest.approx(one.alpha, rel=1e-9)
    assert three.status is one.status


def test_single_block_matches_boost() -> None:
    data = draw()
    here = boost(*data, "logistic", max_iter=5, solver="stagewise")
    there = solved(data, "logistic", 1, max_iter=5, solver="stagewise")
    assert np.array_equal(here.metric.matrix, there.metric.matrix)


@pytest.mark.parametrize("kind", ["one direction", "batches"])
def test_float64_resumes_with_other_blocks(kind: str) -> None:
    loss, options, size = KINDS[kind]
    data = draw()
    one, three = (solved(data, loss, n, max_iter=6 * size, **options) for n in (1, 3))
    saved = [solved(data, loss, n, max_iter=3 * size, **options).snapshot() for n in (1, 3)]
    for n_blocks, snapshot, whole in ((3, saved[0], one), (1, saved[1], three)):
        resumed = solved(data, loss, n_blocks, max_iter=6 * size, resume=snapshot, **options)
        M = whole.metric.matrix
        np.testing.assert_allclose(resumed.metric.matrix, M, atol=1e-6 * np.abs(M).max())


def test_corrective_fit_resumes_with_other_blocks() -> None:
    # Not the same steps: rounding decides where a search ends.
    data = draw(D=6)
    options: dict[str, Any] = {"solver": "totally_corrective", "alpha": 1e-2, "tol": 1e-6}
    whole = solved(data, "logistic", 1, **options)
    saved = solved(data, "logistic", 1, max_iter=8, **options).snapshot()
    resumed = solved(data, "logistic", 3, resume=saved, **options)
    assert resumed.objective() == pytest.approx(whole.objective(), rel=3e-6)


@pytest.mark.parametrize("kind", ["one direction", "batches", "totally corrective"])
def test_float32_rejects_other_blocks(kind: str) -> None:
    loss, options, size = KINDS[kind]
    data = draw(np.float32)
    saved = solved(data, loss, 1, max_iter=2 * size, **options).snapshot()
    with pytest.raises(SnapshotError, match="another division"):
        solved(data, loss, 3, max_iter=6 * size, resume=saved, **options)
    solved(data, loss, 1, max_iter=3 * size, resume=saved, **options)
