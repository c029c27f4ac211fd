"""Measurements in separate processes, stored as JSON lines.

A program defines functions that measure and a function that makes a table of their results. Every
measurement is a new process with a given number of threads and a given version of the package, so
its memory and caches are its own. Results are appended to a .jsonl file next to the program. A
measurement of the same version that is in the file is not repeated, so a run can be interrupted.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import report

ROOT = Path(__file__).parents[1]

RESULT = "result: "
"""Begins the line of a measuring process that contains its result."""

Record = dict[str, Any]


class Measurements:
    """Results of the measuring functions of a program.

    Parameters
    ----------
    program : path of the program
    limit : seconds after which a measurement is killed
    is_small : whether sizes are small, to check the program; results are then not stored
    """

    def __init__(self, program: str, limit: float, is_small: bool = False) -> None:
        self.program, self.limit, self.is_small = Path(program), limit, is_small
        self._path = self.program.with_suffix(".jsonl")
        self._known: dict[str, Record] = {}
        if not is_small and self._path.exists():
            for line in self._path.read_text().splitlines():
                record = json.loads(line)
                self._known[_key(record["request"])] = record
        self._folders = {"now": ROOT}
        self.versions = {"now": _version_of_working_tree()}

    def extract(self, commit: str) -> None:
        """Make the package of another commit available as version "before".

        It stays in the temporary folder, where numba keeps its compiled loops.
        """
        version = _git("rev-parse", "--short", commit)
        folder = Path(tempfile.gettempdir(), f"boostmetric-benchmarks-{version}")
        if not folder.exists():
            archive = subprocess.run(
                ["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True
            )
            new = Path(tempfile.mkdtemp())
            with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
                tar.extractall(new, filter="data")
            new.replace(folder)
        self._folders["before"], self.versions["before"] = folder, version

    def get(
        self,
        function: Callable[..., Any],
        *,
        version: str = "now",
        threads: int = 1,
        has_numba: bool = True,
        **arguments: Any,
    ) -> Record:
        """The result of a measuring function, from the file or from a new process.

        A failure has the key "failure", and "limit" if the time limit was the reason.
        """
        request = {
            "function": function.__name__,
            "version": self.versions[version],
            "threads": threads,
            "has_numba": has_numba,
            "arguments": arguments,
        }
        known = self._known.get(_key(request))
        if known is not None and known.get("limit", self.limit) >= self.limit:
            return known
        name = " ".join(f"{value}" for value in (function.__name__, *arguments.values()))[:60]
        print(f"{name}, {version}, {threads} threads", end=" ", file=sys.stderr, flush=True)
        began = time.perf_counter()
        record = {
            "request": request,
            **self._run(request, self._folders[version]),
            "date": str(datetime.date.today()),
        }
        print(f"({time.perf_counter() - began:.0f} s)", file=sys.stderr, flush=True)
        self._known[_key(request)] = record
        if not self.is_small:
            with self._path.open("a") as file:
                file.write(json.dumps(record) + "\n")
        return record

    def _run(self, request: Record, folder: Path) -> Record:
        environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            environment[name] = str(request["threads"])
        command = [sys.executable, str(self.program), "--measure", json.dumps(request)]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=self.limit
            )
        except subprocess.TimeoutExpired:
            return {"failure": f"> {self.limit:g} s", "limit": self.limit}
        lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
        if done.returncode or not lines:
            print(done.stderr, file=sys.stderr)
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            return {"failure": last[:200]}
        result: Record = json.loads(lines[-1].removeprefix(RESULT))
        return result


def main(
    title: str,
    program: str,
    functions: Mapping[str, Callable[..., Record]],
    table: Callable[[Measurements, argparse.Namespace], str],
    limit: float,
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> None:
    """Run a program, or one of its measurements in a process of its own."""
    if sys.argv[1:2] == ["--measure"]:
        request = json.loads(sys.argv[2])
        if not request["has_numba"]:
            sys.modules["numba"] = None  # type: ignore[assignment]  # as if not installed
        result = functions[request["function"]](**request["arguments"])
        print(RESULT + json.dumps(result), flush=True)
        return
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--write", action="store_true", help="store the table in RESULTS.md")
    parser.add_argument("--limit", type=float, default=limit, help="seconds of a measurement")
    parser.add_argument("--small", action="store_true", help="small sizes, to check the program")
    add_options(parser)
    given = parser.parse_args()
    text = table(Measurements(program, given.limit, given.small), given)
    print(text)
    if given.write:
        report.write_section(title, Path(program).name, text)


def least(action: Callable[[], object], repeats: int = 5, enough: float = 5.0) -> dict[str, float]:
    """The minimum wall-clock and CPU seconds of several calls, at most until `enough` seconds."""
    walls: list[float] = []
    cpus: list[float] = []
    while len(walls) < repeats and sum(walls) < enough:
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"wall": min(walls), "cpu": min(cpus)}


def reset_peak_memory() -> float:
    """Reset the peak memory of this process, and return it in MB (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def peak_memory() -> float:
    """The peak memory of this process in MB (Linux)."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3


def _key(request: Record) -> str:
    return json.dumps(request, sort_keys=True)


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def _version_of_working_tree() -> str:
    """The last commit that changed the package, with a hash of changes that are not committed."""
    commit, changes = (
        _git("log", "-1", "--format=%h", "--", "src"),
        _git("diff", "HEAD", "--", "src"),
    )
    return commit + (f"+{hashlib.sha1(changes.encode()).hexdigest()[:7]}" if changes else "")
