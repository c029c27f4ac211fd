"""Cells of an experiment: each computed once, in a process of its own, kept as a line of JSON."""

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

MEMORY = 16
"""GB that the process of a cell may have."""

PATIENCE = 3
"""Seconds of the clock that a cell may take for each of the processor."""

ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
"""Environment of a cell: several cells share the machine, and times are to be comparable."""

WORKER = "boostmetric_paper.experiments.worker"
"""The module that computes one cell."""

MEASURES = {"error": "error", "accuracy": "right", "precision_5": "precision at 5"}
"""What a cell is summed up by, and the word for it."""

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
    """A file with a line of JSON for each cell; of several lines about one, the last counts.

    A line is written under a lock in one piece, so several programs may share the file, and one
    that is killed leaves at most half a line, which is passed over when the file is read.

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
        found = {}
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        for line in lines:
            try:
                record = json.loads(line)
                cell = Cell(*(record[key] for key in Cell.__dataclass_fields__))
                found[cell] = record
            except (ValueError, KeyError, TypeError):
                continue
        return found

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record).encode() + b"\n"
        with self.path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # half a line, left by a program that was killed
                    line = b"\n" + line
            file.write(line)
            os.fsync(file.fileno())


def machine() -> str:
    """The processor by the name it gives itself, the number of cores, the system."""
    model = platform.processor() or platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        lines = cpus.read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}"


class Processes:
    """The processes of the cells in flight, so that an interrupted run can end them."""

    def __init__(self) -> None:
        self.stopped = False
        self._running: set[subprocess.Popen[bytes]] = set()

    def measure(self, cell: Cell, limit: float, memory: float = MEMORY) -> Record:
        """The record of a cell, computed in a new process; a failure is a record that says so.

        Parameters
        ----------
        cell : what to compute
        limit : seconds of the processor after which it is ended; the clock may show PATIENCE times
            as many, as others may be at work on the machine
        memory : GB that it may have
        """
        began = time.perf_counter()
        lifeline, ours = os.pipe()  # the child ends when this process, and so this pipe, does
        process = subprocess.Popen(
            [sys.executable, "-m", WORKER, json.dumps(asdict(cell)), str(limit), str(memory)],
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,
        )
        self._running.add(process)
        if self.stopped:  # after `stop` looked
            _kill(process)
        try:
            printed, complaints = process.communicate(timeout=PATIENCE * limit)
            code = process.returncode
        except subprocess.TimeoutExpired:
            printed, complaints, code = b"", b"", -signal.SIGXCPU
        finally:
            _kill(process)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            self._running.discard(process)
            os.close(lifeline)
            os.close(ours)
        outcome = _outcome(code, printed, complaints, limit, memory)
        made = {"machine": machine(), "date": str(datetime.date.today())}
        return {**outcome, "seconds": time.perf_counter() - began, **made}

    def stop(self) -> None:
        """End them all; what they would have found is not to be kept."""
        self.stopped = True
        for process in list(self._running):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process with its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _outcome(code: int, printed: bytes, complaints: bytes, limit: float, memory: float) -> Record:
    """What the process found, or why it found nothing."""
    if code == 0:
        try:
            found: Record = json.loads(printed.splitlines()[-1])
        except (ValueError, IndexError):
            return {"failure": "ended without a result"}
        return found
    if code == -signal.SIGXCPU:
        return {"failure": f"not finished in {limit:g} s", "limit": limit}
    said = complaints.decode(errors="replace").strip().splitlines() or [f"ended with code {code}"]
    if any(word in said[-1] for word in ("MemoryError", "bad_alloc", "Unable to allocate")):
        return {"failure": f"needs more than {memory:g} GB"}
    return {"failure": said[-1][:300]}


def compute(
    cells: Iterable[Cell],
    results: Results,
    limit_of: Callable[[Cell], float],
    jobs: int = 1,
    retry: bool = False,
    hopeless: Callable[[Cell, Mapping[Cell, Record], float], str | None] = lambda *_: None,
    show: Callable[[str], None] = lambda text: None,
) -> int:
    """Compute the cells that the results lack, several at a time, and return their number.

    Parameters
    ----------
    cells : what is wanted
    results : where records are kept; what another program has put there in the meantime is not
        computed again
    limit_of : seconds that a cell may take
    jobs : number of cells at a time
    retry : whether cells that failed are computed again
    hopeless : why a cell is not to be computed, in view of those that are known and of
        its limit; None if it is
    show : told about every cell that is done, in a line
    """
    before = results.read()
    missing = [cell for cell in dict.fromkeys(cells) if lacks(before, cell, retry)]
    began, processes = time.perf_counter(), Processes()

    def one(cell: Cell) -> Record:
        known = results.read()
        if cell in known and known[cell] != before.get(cell):
            return known[cell]
        limit = limit_of(cell)
        reason = hopeless(cell, known, limit)
        record = processes.measure(cell, limit) if reason is None else _given_up(reason)
        if not processes.stopped:
            results.append({**asdict(cell), **record})
        return record

    with ThreadPoolExecutor(jobs) as executor:
        futures = {executor.submit(one, cell): cell for cell in missing}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                left = (time.perf_counter() - began) / done * (len(missing) - done)
                show(
                    f"{done} of {len(missing)}, {futures[future]}: {summary(future.result())}"
                    f" (about {_duration(left)} left)"
                )
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    return len(missing)


def lacks(known: Mapping[Cell, Record], cell: Cell, retry: bool = False) -> bool:
    """Whether a cell is to be computed."""
    return cell not in known or (retry and "failure" in known[cell])


def _given_up(reason: str) -> Record:
    return {"failure": reason, "date": str(datetime.date.today())}


def summary(record: Record) -> str:
    """A record in a few words."""
    if "failure" in record:
        return str(record["failure"])
    shown = [
        f"{100 * record[key]:.2f} % {name}, " for key, name in MEASURES.items() if key in record
    ]
    return f"{''.join(shown)}{record['seconds']:.1f} s"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
