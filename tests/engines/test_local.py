"""Threads, the limit of BLAS and the number of cores."""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
import pytest
from conftest import blas_threads
from threadpoolctl import threadpool_limits

from boostmetric.engines import Local, Threads, available_cores, single_blas_thread

needs_blas = pytest.mark.skipif(
    not blas_threads(), reason="no BLAS with a number of threads for the whole process"
)


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_results_have_the_order_of_the_items(n_jobs: int) -> None:
    second_is_done = threading.Event()

    def square(number: int) -> int:
        if number == 0 and n_jobs > 1:
            assert second_is_done.wait(30)
        if number == 1:
            second_is_done.set()
        return number**2

    with Threads(n_jobs) as threads:
        assert threads.map(square, range(8)) == [0, 1, 4, 9, 16, 25, 36, 49]
        assert threads.map(square, [3]) == [9]
        assert threads.map(square, []) == []


def test_items_are_shared_by_threads() -> None:
    together = threading.Barrier(3, timeout=30)
    with Threads(3) as threads:
        names = threads.map(
            lambda _: together.wait() >= 0 and threading.current_thread().name, range(3)
        )
    assert len(set(names)) == 3
    with Threads(1) as threads:
        assert (
            threads.map(lambda _: threading.current_thread(), range(3))
            == [threading.current_thread()] * 3
        )


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_errors_are_raised_in_the_caller(n_jobs: int) -> None:
    def inverse(number: int) -> float:
        return 1 / number

    with Threads(n_jobs) as threads:
        with pytest.raises(ZeroDivisionError):
            threads.map(inverse, [1, 2, 0, 4])
        assert threads.map(inverse, [1, 2]) == [1, 0.5]


@pytest.mark.parametrize("who", ["caller", "helper"])
def test_error_stops_all_threads(who: str) -> None:
    caller, last, both = threading.current_thread(), 0, threading.Barrier(2)
    items = range(10_000_000)  # take seconds, the exception milliseconds

    def fail(item: int) -> None:
        nonlocal last
        if item < 2:
            both.wait(timeout=30)
            if (threading.current_thread() is caller) == (who == "caller"):
                raise ValueError(who)
        last = item

    with Threads(2) as threads, pytest.raises(ValueError, match=who):
        threads.map(fail, items)
    assert last < items[-1]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_numpy_error_settings_apply_in_all_threads(n_jobs: int) -> None:
    def overflow(size: float) -> float:
        return float(np.exp(np.array([size]))[0])

    with Threads(n_jobs) as threads:
        with np.errstate(over="raise"), pytest.raises(FloatingPointError):
            threads.map(overflow, [1.0, 1e4, 1.0])
        with np.errstate(over="ignore"):
            assert threads.map(overflow, [0.0, 1e4]) == [1.0, np.inf]


def test_threads_restart_after_closing() -> None:
    threads = Threads(2)
    for _ in range(2):
        with threads:
            assert threads.map(abs, [-1, -2]) == [1, 2]


@pytest.mark.parametrize("kind", [Threads, Local])
def test_open_engine_can_be_pickled(kind: type[Threads] | type[Local]) -> None:
    with kind(2) as engine:
        threads = engine if isinstance(engine, Threads) else engine.threads
        threads.map(abs, [-1, -2])
        copy: Any = pickle.loads(pickle.dumps(engine))
        with copy:
            other: Threads = copy if isinstance(copy, Threads) else copy.threads
            assert other.n_jobs == 2
            assert other.map(abs, [-1, -2, -3]) == [1, 2, 3]


def test_n_jobs_follows_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boostmetric.engines.local.available_cores", lambda: 6)
    given = [None, 1, 3, 8, -1, -2, -6, -20]
    assert [Threads(n_jobs).n_jobs for n_jobs in given] == [6, 1, 3, 8, 6, 5, 1, 1]


def test_local_engine_calls_blocks_in_order() -> None:
    engine = Local(2)
    blocks = engine.place([lambda threads: [threads], lambda threads: [threads, 2]])
    assert blocks == [[engine.threads], [engine.threads, 2]]
    assert engine.call(lambda block, more: len(block) + more, blocks, 10) == [11, 12]


@needs_blas
def test_blas_has_one_thread_in_the_context() -> None:
    with threadpool_limits(3, user_api="blas"):
        before = blas_threads()
        with single_blas_thread():
            assert set(blas_threads()) == {1}
            with single_blas_thread():
                assert set(blas_threads()) == {1}
            assert set(blas_threads()) == {1}
        assert blas_threads() == before
        with pytest.raises(KeyError), single_blas_thread():
            raise KeyError
        assert blas_threads() == before
        with Local(1) as engine, engine:
            assert set(blas_threads()) == {1}
        assert blas_threads() == before


@needs_blas
def test_overlapping_contexts_restore_the_limit() -> None:
    seen: list[set[int]] = []
    has_entered, may_leave = threading.Event(), threading.Event()

    def other() -> None:
        with single_blas_thread():
            has_entered.set()
            assert may_leave.wait(30)
            seen.append(set(blas_threads()))

    with threadpool_limits(3, user_api="blas"):
        before = blas_threads()
        thread = threading.Thread(target=other)
        with single_blas_thread():
            thread.start()
            assert has_entered.wait(30)
        try:  # the first context has ended, the second has not
            assert set(blas_threads()) == {1}
        finally:
            may_leave.set()
            thread.join()
        assert seen == [{1}]
        assert blas_threads() == before


@needs_blas
def test_limit_applies_in_any_thread() -> None:
    seen: list[set[int]] = []

    def other() -> None:
        with single_blas_thread():
            seen.append(set(blas_threads()))

    for _ in range(2):
        with single_blas_thread():  # this thread is the first to set a limit
            pass
        with threadpool_limits(3, user_api="blas"):
            before = blas_threads()
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            assert blas_threads() == before
    assert seen == [{1}, {1}]


@needs_blas
def test_other_threads_can_set_limits() -> None:
    before, seen = blas_threads(), []

    def other() -> None:
        with threadpool_limits(3, user_api="blas"):
            seen.append(set(blas_threads()))

    with single_blas_thread():
        pass
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [{3}]
    assert blas_threads() == before


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with 4 cores, all available to BLAS."""
    monkeypatch.setattr("joblib.cpu_count", lambda *args, **options: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with threadpool_limits(4, user_api="blas"):
        if set(blas_threads()) != {4}:
            pytest.skip("the threads of this BLAS cannot be set")
        yield


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("given", "expected"),
    [("1", 1), ("2", 2), ("2,4", 2), ("64", 4), ("", 4), ("0", 4), ("many", 4)],
)
def test_omp_num_threads_limits_cores(
    given: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert available_cores() == expected


@pytest.mark.usefixtures("four_cores")
def test_machine_and_blas_limit_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_cores() == Threads(None).n_jobs == Threads(-1).n_jobs == 4
    with threadpool_limits(1):
        assert available_cores() == Threads(None).n_jobs == Threads(-1).n_jobs == 1
        with single_blas_thread():
            assert available_cores() == 1
    with single_blas_thread():  # not a limit set by the user
        assert available_cores() == 4
    monkeypatch.setattr("joblib.cpu_count", lambda *args, **options: 3)
    assert available_cores() == 3


@pytest.mark.usefixtures("four_cores")
def test_joblib_threads_share_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def within() -> list[int]:
        return joblib.Parallel(n_jobs=2, backend="threading")(
            joblib.delayed(available_cores)() for _ in range(2)
        )

    assert within() == [1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert within() == [2, 2]
    assert available_cores() == 2


PROGRAM = """
import joblib
from boostmetric.engines import available_cores
print(joblib.Parallel(n_jobs=2)(joblib.delayed(available_cores)() for _ in range(2)))
"""


@pytest.mark.slow
def test_joblib_processes_share_cores() -> None:
    """Loky limits each of 2 workers to half of at most 4 cores."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**kept, "LOKY_MAX_CPU_COUNT": "4"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(1 <= number <= 2 for number in ast.literal_eval(done.stdout))


def test_there_is_at_least_one_core() -> None:
    assert available_cores() >= 1
    assert Threads(None).n_jobs == available_cores()
