"""Cells of an experiment: each is computed once, in its own process, and stored as a JSON line."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from boostmetric_paper.peers import MEMORY_GB, ONE_THREAD, failure_of

WALL_CLOCK_FACTOR = 3
"""A cell may take this many times its limit on the clock, as other processes may be running."""

WORKER = "boostmetric_paper.experiments.worker"
"""The module that computes one cell."""

Record = dict[str, Any]


@dataclass(frozen=True, order=True)
class Cell:
    """One method on one split of one dataset, in one experiment."""

    experiment: str
    dataset: str
    method: str
    seed: int

    def __str__(self) -> str:
        return f"{self.experiment}: {self.method} on {self.dataset}, seed {self.seed}"


class Results:
    """A file with one JSON line per cell; the last line of a cell counts.

    Each line is written at once and under a lock, so several programs can share the file. A
    program that is killed leaves at most an incomplete line, which is ignored.

    Examples
    --------
    >>> import tempfile
    >>> results = Results(Path(tempfile.mkdtemp(), "new", "table1.jsonl"))
    >>> results.append({**asdict(Cell("table1", "iris", "lda", 0)), "error": 0.05})
    >>> results.read()[Cell("table1", "iris", "lda", 0)]["error"]
    0.05
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[Cell, Record]:
        """The newest record of every cell."""
        records = {}
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        for line in lines:
            try:
                record = json.loads(line)
                cell = Cell(*(record[key] for key in Cell.__dataclass_fields__))
                records[cell] = record
            except (ValueError, KeyError, TypeError):
                continue
        return records

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record).encode() + b"\n"
        with self.path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # an incomplete line of a program that was killed
                    line = b"\n" + line
            file.write(line)
            os.fsync(file.fileno())


def machine() -> str:
    """The model of the processor, the number of cores, and the operating system."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}"


class Processes:
    """The running processes of cells, so that an interrupted program can kill them."""

    def __init__(self) -> None:
        self.stopped = False
        self._running: set[subprocess.Popen[str]] = set()

    def measure(self, cell: Cell, limit: float, memory: float = MEMORY_GB) -> Record:
        """The record of a cell, computed in a new process; a failure is a record with its reason.

        Parameters
        ----------
        cell : what to compute
        limit : CPU seconds; on the clock it may take `WALL_CLOCK_FACTOR` times as long
        memory : limit in GB
        """
        start = time.perf_counter()
        lifeline, ours = os.pipe()  # the child exits when this process, and with it the pipe, ends
        process = subprocess.Popen(
            [sys.executable, "-m", WORKER, json.dumps(asdict(cell)), str(limit), str(memory)],
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,
        )
        self._running.add(process)
        if self.stopped:  # `stop` was called before this process was added
            _kill(process)
        try:
            stdout, stderr = process.communicate(timeout=WALL_CLOCK_FACTOR * limit)
            code = process.returncode
        except subprocess.TimeoutExpired:
            stdout, stderr, code = "", "", -signal.SIGXCPU
        finally:
            _kill(process)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            self._running.discard(process)
            os.close(lifeline)
            os.close(ours)
        if code == 0:
            try:
                record = json.loads(stdout.splitlines()[-1])
            except (ValueError, IndexError):
                record = {"failure": "ended without a result"}
        elif code == -signal.SIGXCPU:
            record = {"failure": f"not finished in {limit:g} s", "limit": limit}
        else:
            record = {"failure": failure_of(stderr, code, memory)}
        seconds = time.perf_counter() - start
        return {**record, "seconds": seconds, "machine": machine(), "date": _today()}

    def stop(self) -> None:
        """Kill all processes; their results are discarded."""
        self.stopped = True
        for process in list(self._running):
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def compute(
    cells: Iterable[Cell],
    results: Results,
    limit_of: Callable[[Cell], float],
    jobs: int = 1,
    retry: bool = False,
    skip_reason: Callable[[Cell, Mapping[Cell, Record], float], str | None] = lambda *_: None,
    show: Callable[[str], None] = lambda line: None,
) -> int:
    """Compute the cells that are missing in the results, and return their number.

    Parameters
    ----------
    cells : the selection
    results : where records are stored. A cell that another program computes in the meantime is
        not computed again
    limit_of : CPU seconds of a cell
    jobs : number of cells computed in parallel
    retry : whether to compute failed cells again
    skip_reason : receives a cell, the known records and its limit; a text instead of None is
        recorded as the failure of the cell, without computing it
    show : receives a line about every finished cell
    """
    before = results.read()
    missing = [cell for cell in dict.fromkeys(cells) if is_missing(before, cell, retry)]
    start, processes = time.perf_counter(), Processes()

    def compute_one(cell: Cell) -> Record:
        known = results.read()
        if cell in known and known[cell] != before.get(cell):
            return known[cell]
        limit = limit_of(cell)
        reason = skip_reason(cell, known, limit)
        if reason is None:
            record = processes.measure(cell, limit)
        else:
            record = {"failure": reason, "date": _today()}
        if not processes.stopped:
            results.append({**asdict(cell), **record})
        return record

    with ThreadPoolExecutor(jobs) as executor:
        futures = {executor.submit(compute_one, cell): cell for cell in missing}
        try:
            for n_done, future in enumerate(as_completed(futures), start=1):
                minutes = (time.perf_counter() - start) / n_done * (len(missing) - n_done) / 60
                show(
                    f"{n_done} of {len(missing)}, {futures[future]}: {summary(future.result())}"
                    f" (about {minutes:.0f} min left)"
                )
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    return len(missing)


def is_missing(known: Mapping[Cell, Record], cell: Cell, retry: bool = False) -> bool:
    """Whether a cell has to be computed."""
    return cell not in known or (retry and "failure" in known[cell])


def summary(record: Record) -> str:
    """A record in a few words.

    >>> summary({"error": 0.05, "seconds": 1.25})
    '5.00 % error, 1.2 s'
    """
    if "failure" in record:
        return str(record["failure"])
    names = {"error": "error", "accuracy": "accuracy", "precision_5": "precision at 5"}
    shown = [f"{100 * record[key]:.2f} % {name}, " for key, name in names.items() if key in record]
    return f"{''.join(shown)}{record['seconds']:.1f} s"


def _today() -> str:
    return str(datetime.date.today())
