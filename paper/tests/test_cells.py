"""Cells of experiments: records, processes, interrupted runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from boostmetric_paper import peers
from boostmetric_paper.experiments import cells
from boostmetric_paper.experiments.cells import Cell, Processes, Record, Results, compute

FAKE_WORKER = """
import json, os, signal, subprocess, sys, time

cell, limit, memory = json.loads(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
folder = os.path.dirname(os.path.abspath(__file__))
name = f"{cell['method']}-{cell['seed']}"

def path(name):
    return os.path.join(folder, name)

def wait_for(name):
    for _ in range(30_000):
        if os.path.exists(path(name)):
            return
        time.sleep(0.01)
    raise TimeoutError(name)

def note(name, number):
    with open(path(name + ".part"), "w") as file:
        file.write(str(number))
    os.rename(path(name + ".part"), path(name))

def limit_process(*limits):
    sys.path.append(PEERS_FOLDER)
    import peers
    peers.limit_process(*limits)

note(name, os.getpid())
match cell["method"]:
    case "raise":
        raise ValueError("no such luck")
    case "sleep":
        time.sleep(60)
    case "spin":
        limit_process(limit)
        while True:
            pass
    case "allocate":
        limit_process(None, memory)
        bytearray(10**10)
    case "array":
        limit_process(None, memory)
        import numpy
        numpy.ones(10**9)
    case "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
    case "silent":
        sys.exit(0)
    case "family":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        note("grandchild", child.pid)
        time.sleep(60)
    case "meet":
        wait_for(f"meet-{1 - cell['seed']}")
print("something else")
environment = {key: value for key, value in os.environ.items() if key.endswith("_NUM_THREADS")}
print(json.dumps({"error": cell["seed"] / 10, "given": [cell, limit, memory], **environment}))
""".replace("PEERS_FOLDER", repr(str(Path(peers.__file__).parent)))

APPEND_MANY = """
import sys
from pathlib import Path
from boostmetric_paper.experiments.cells import Results

results = Results(Path(sys.argv[1]))
for seed in range(100):
    cell = {"experiment": "e", "dataset": "d", "method": sys.argv[2], "seed": seed}
    results.append({**cell, "text": sys.argv[2] * 5000})
"""


def cell_of(method: str, seed: int = 0) -> Cell:
    return Cell("table", "data", method, seed)


def record_of(cell: Cell, **found: Any) -> Record:
    return {**asdict(cell), **found}


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; a run that hangs fails after minutes, on any machine."""
    for _ in range(30_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError


def is_alive(pid: int) -> bool:
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip() != "" and not done.stdout.strip().startswith("Z")


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    return [child for child, parent in pairs if parent == pid]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results" / "table.jsonl")


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a module that replaces the one that computes a cell.

    The method of the cell selects its behavior. It writes its process id to the file METHOD-SEED.
    """
    folder = tmp_path / "worker"
    folder.mkdir()
    (folder / "fake_worker.py").write_text(FAKE_WORKER, encoding="utf-8")
    monkeypatch.setattr(cells, "WORKER", "fake_worker")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def noted(folder: Path, name: str) -> int:
    """The id of a process, after its start."""
    until((folder / name).exists)
    return int((folder / name).read_text())


def started(folder: Path) -> list[str]:
    """The cells for which a process was started."""
    return sorted(path.name for path in folder.iterdir() if "-" in path.name)


def lines_of(results: Results) -> list[Record]:
    return [json.loads(line) for line in results.path.read_text().splitlines()]


def test_records_are_read_back(results: Results) -> None:
    first = record_of(cell_of("a"), error=0.1 + 0.2, text="\u00e4\n\u2028", found=[1, None])
    second = record_of(cell_of("a", 1), failure="none")
    results.append(first)
    Results(results.path).append(second)
    assert results.read() == {cell_of("a"): first, cell_of("a", 1): second}
    assert results.path.read_bytes().count(b"\n") == 2


def test_last_line_of_cell_counts(results: Results) -> None:
    for error in (0.3, 0.1, 0.2):
        results.append(record_of(cell_of("a"), error=error))
    assert results.read()[cell_of("a")]["error"] == 0.2


@pytest.mark.parametrize("kept", [1, -1])
def test_incomplete_line_is_ignored(kept: int, results: Results) -> None:
    for seed in range(2):
        results.append(record_of(cell_of("a", seed), error=0.5))
    whole, torn, _ = results.path.read_bytes().split(b"\n")
    results.path.write_bytes(whole + b"\n" + torn[:kept])
    assert list(results.read()) == [cell_of("a", 0)]
    results.append(record_of(cell_of("a", 2), error=0.5))
    assert list(results.read()) == [cell_of("a", 0), cell_of("a", 2)]


def test_line_without_newline_is_kept(
    results: Results,
) -> None:
    results.append(record_of(cell_of("a", 0), error=0.5))
    results.path.write_bytes(results.path.read_bytes()[:-1])
    results.append(record_of(cell_of("a", 1), error=0.5))
    assert list(results.read()) == [cell_of("a", 0), cell_of("a", 1)]


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"null",
        b'{"experiment": "table", "dataset": "data", "method": "a"}',
        b'{"experiment": [], "dataset": {}, "method": "a", "seed": 0}',
        b"\xff\xfe\x00",
    ],
)
def test_invalid_lines_are_ignored(garbage: bytes, results: Results) -> None:
    results.append(record_of(cell_of("a", 0), error=0.5))
    with results.path.open("ab") as file:
        file.write(garbage + b"\n")
    results.append(record_of(cell_of("a", 1), error=0.5))
    assert list(results.read()) == [cell_of("a", 0), cell_of("a", 1)]


def test_concurrent_programs_append_whole_lines(results: Results) -> None:
    programs = [
        subprocess.Popen([sys.executable, "-c", APPEND_MANY, results.path, name]) for name in "xy"
    ]
    assert [program.wait(timeout=600) for program in programs] == [0, 0]
    found = lines_of(results)
    assert len(found) == 200
    for name in "xy":
        mine = [record for record in found if record["method"] == name]
        assert [record["seed"] for record in mine] == list(range(100))
        assert all(record["text"] == name * 5000 for record in mine)


def test_last_printed_line_is_record(worker: Path) -> None:
    record = Processes().measure(cell_of("print", 3), limit=200, memory=2.5)
    assert record["error"] == 0.3
    assert record["given"] == [asdict(cell_of("print", 3)), 200, 2.5]
    assert record["seconds"] > 0
    assert str(os.cpu_count()) in record["machine"]
    assert len(record["date"]) == len("2026-01-01")


def test_cell_uses_one_thread(worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    record = Processes().measure(cell_of("print"), limit=200)
    for library in ("OPENBLAS", "OMP", "MKL", "NUMBA"):
        assert record[f"{library}_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("method", "failure"),
    [
        ("raise", "ValueError: no such luck"),
        ("allocate", "needs more than 0.5 GB"),
        ("array", "needs more than 0.5 GB"),
        ("terminate", "ended with code -15"),
    ],
)
def test_failure_is_recorded(method: str, failure: str, worker: Path) -> None:
    record = Processes().measure(cell_of(method), limit=200, memory=0.5)
    assert record["failure"] == failure
    assert "error" not in record
    assert "limit" not in record
    assert record["seconds"] > 0


def test_wall_clock_limit(worker: Path) -> None:
    record = Processes().measure(cell_of("sleep"), limit=0.2)
    assert record["failure"] == "not finished in 0.2 s"
    assert record["limit"] == 0.2
    assert record["seconds"] >= cells.WALL_CLOCK_FACTOR * 0.2
    # On a busy machine the process may not have started.
    assert not any(is_alive(noted(worker, name)) for name in started(worker))


def test_cpu_limit(worker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "WALL_CLOCK_FACTOR", 1000)
    record = Processes().measure(cell_of("spin"), limit=1)
    assert record["failure"] == "not finished in 1 s"
    assert record["limit"] == 1
    assert record["seconds"] > 0.9


def test_children_of_cell_are_killed(worker: Path) -> None:
    processes = Processes()
    thread = threading.Thread(target=processes.measure, args=(cell_of("family"), 60))
    thread.start()
    grandchild = noted(worker, "grandchild")
    assert is_alive(grandchild)
    processes.stop()
    thread.join()
    until(lambda: not is_alive(grandchild))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are not listed")
def test_cell_closes_files(worker: Path) -> None:
    def n_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = n_open()
    processes = Processes()
    kept = [processes.measure(cell_of(method), limit=0.3) for method in ("print", "sleep")]
    assert n_open() == before
    assert len(kept) == 2


def test_known_cells_are_not_computed_again(worker: Path, results: Results) -> None:
    results.append(record_of(cell_of("print", 0), error=0.7))
    results.append(record_of(cell_of("print", 1), failure="none"))
    before = results.path.read_bytes()
    wanted = [cell_of("print", seed) for seed in (0, 1, 2, 2)]
    assert compute(wanted, results, lambda cell: 200) == 1
    assert started(worker) == ["print-2"]
    assert results.path.read_bytes().startswith(before)
    known = results.read()
    assert list(known) == wanted[:3]
    assert [known[cell].get("error") for cell in wanted[:3]] == [0.7, None, 0.2]
    assert compute(wanted, results, lambda cell: 200) == 0


def test_retry_computes_only_failures(worker: Path, results: Results) -> None:
    results.append(record_of(cell_of("print", 0), error=0.7))
    results.append(record_of(cell_of("print", 1), failure="none"))
    wanted = [cell_of("print", seed) for seed in (0, 1)]
    assert compute(wanted, results, lambda cell: 200, retry=True) == 1
    assert started(worker) == ["print-1"]
    known = results.read()
    assert known[wanted[0]]["error"] == 0.7
    assert known[wanted[1]]["error"] == 0.1
    assert "failure" not in known[wanted[1]]


def test_failure_does_not_end_run(worker: Path, results: Results) -> None:
    wanted = [cell_of(method) for method in ("raise", "silent", "print")]
    assert compute(wanted, results, lambda cell: 200) == 3
    assert ["failure" in results.read()[cell] for cell in wanted] == [True, True, False]


def test_skip_reason_is_recorded(worker: Path, results: Results) -> None:
    first, second = cell_of("print", 1), cell_of("print", 2)

    def skip_reason(cell: Cell, known: Mapping[Cell, Record], limit: float) -> str | None:
        return f"worse than {known[first]['error']}" if first in known else None

    assert compute([first, second], results, lambda cell: 200, skip_reason=skip_reason) == 2
    assert started(worker) == ["print-1"]
    assert results.read()[second]["failure"] == "worse than 0.1"


def test_progress_has_line_per_cell(worker: Path, results: Results) -> None:
    shown: list[str] = []
    wanted = [cell_of("print", 1), cell_of("raise", 2)]
    compute(wanted, results, lambda cell: 200, show=shown.append)
    assert len(shown) == 2
    assert shown[0].startswith("1 of 2, table: print on data, seed 1: 10.00 % error, ")
    assert shown[1].startswith("2 of 2, table: raise on data, seed 2: ValueError: no such luck")
    assert "left" in shown[0]


def test_jobs_run_in_parallel(worker: Path, results: Results) -> None:
    wanted = [cell_of("meet", seed) for seed in range(2)]  # each waits for the other
    assert compute(wanted, results, lambda cell: 200, jobs=2) == 2
    assert [results.read()[cell]["error"] for cell in wanted] == [0.0, 0.1]


def test_interrupt_kills_processes_and_keeps_results(worker: Path, results: Results) -> None:
    def interrupt(line: str) -> None:
        noted(worker, "sleep-1")
        raise KeyboardInterrupt

    wanted = [cell_of("print", 5), cell_of("sleep", 1), cell_of("sleep", 2), cell_of("sleep", 3)]
    with pytest.raises(KeyboardInterrupt):
        compute(wanted, results, lambda cell: 200, jobs=2, show=interrupt)
    assert "sleep-3" not in started(worker)
    for name in started(worker):
        assert not is_alive(noted(worker, name))
    (record,) = lines_of(results)
    assert record["error"] == 0.5


def test_cells_of_concurrent_run_are_not_computed(worker: Path, results: Results) -> None:
    first, second = cell_of("print", 0), cell_of("print", 1)
    shown: list[str] = []

    def show(line: str) -> None:
        shown.append(line)

    def limit_of(cell: Cell) -> float:
        results.append(record_of(second, error=0.77, seconds=1.0))
        return 200

    assert compute([first, second], results, limit_of, show=show) == 2
    assert started(worker) == ["print-0"]
    assert "77.00 % error" in shown[1]
    assert [record["seed"] for record in lines_of(results)] == [1, 0]


def test_worker_exits_when_stdin_closes() -> None:
    cell = json.dumps(asdict(Cell("circles", "circles", "pca", 0)))
    done = subprocess.run(
        [sys.executable, "-m", cells.WORKER, cell, "60", "4"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


@pytest.mark.slow
def test_killed_run_can_be_resumed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "boostmetric_paper", "reproduce", "circles"]
    command += ["--methods", "pca", "--results", str(tmp_path / "made")]
    results = Results(tmp_path / "made" / "circles.jsonl")
    with (tmp_path / "shown").open("wb") as shown:
        run = subprocess.Popen(command, stdout=shown, stderr=shown)
        try:
            until(lambda: len(results.read()) >= 1)
            until(lambda: len(children_of(run.pid)) > 0)
            workers = children_of(run.pid)
        finally:
            run.kill()
            run.wait()
    until(lambda: not any(map(is_alive, workers)))
    before = results.path.read_bytes()
    n_done = len(results.read())
    assert list(results.read()) == [Cell("circles", "circles", "pca", s) for s in range(n_done)]

    again = [*command, "--seeds", "0", str(n_done)]
    done = subprocess.run(again, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0
    assert "1 cells computed, 1 existed already" in done.stdout
    assert done.stderr.startswith(f"1 of 1, circles: pca on circles, seed {n_done}: ")
    assert results.path.read_bytes().startswith(before)
    assert [record["seed"] for record in lines_of(results)] == list(range(n_done + 1))
    assert all("error" in record for record in results.read().values())
