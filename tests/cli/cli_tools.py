"""What the tests of the command line share: points in files, and ways to call it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from boostmetric.cli import main

COMMAND = Path(sys.executable).with_name("boostmetric")
NAMES = ["height", "width", "depth", "noise"]
QUICK = ["--max-iter", "15"]


class Said(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Said:
    """Run the command line in this process."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Said(code, captured.out, captured.err)


def result(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What a command that must succeed prints on standard output."""
    said = call(capsys, *arguments)
    assert said.code == 0, said.err
    return said.out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What a command that must fail says: one line on standard error, and code 2."""
    said = call(capsys, *arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("boostmetric: error: ")
    assert said.err.count("\n") == 1
    return said.err.removeprefix("boostmetric: error: ").rstrip("\n")


def installed(folder: Path, *arguments: str | Path) -> Said:
    """Run the installed command, as a user does."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "80"}
    done = subprocess.run(
        [COMMAND, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def made_points(seed: int = 0, n: int = 60) -> tuple[NDArray, NDArray]:
    """Three classes in four dimensions, of which the last is loud and means nothing."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 4)) * [0.4, 0.4, 1, 4]
    X[:, :2] += np.array([[0, 0], [1, 0], [0, 1]])[y]
    return X, np.array(["cat", "dog", "eel"])[y]


def made_csv(path: Path, seed: int = 0, n: int = 60) -> Path:
    """The points in a file, with their labels in the column `kind`."""
    X, y = made_points(seed, n)
    pd.DataFrame(X, columns=NAMES).assign(kind=y).to_csv(path, index=False)
    return path


def made_triplets(path: Path, n_triplets: int = 200) -> Path:
    """Comparisons of the points: each is closer to one of its class than to one of another."""
    _, y = made_points()
    rng = np.random.default_rng(1)
    a, b, c = rng.integers(0, len(y), (3, 20 * n_triplets))
    fitting = (a != b) & (y[a] == y[b]) & (y[a] != y[c])
    np.save(path, np.stack([a, b, c], axis=1)[fitting][:n_triplets])
    return path
