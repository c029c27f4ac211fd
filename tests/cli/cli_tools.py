"""Helpers of the tests of the command line: tables in files, and ways to call it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.typing import ArrayLike, NDArray

from boostmetric.cli import main

NAMES = ["height", "width", "depth", "noise"]
QUICK = ["--max-iter", "15"]


class Output(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Output:
    """Run the command line in this process."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Output(code, captured.out, captured.err)


def result(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Standard output of a command that must succeed."""
    said = call(capsys, *arguments)
    assert said.code == 0, said.err
    return said.out


def failure(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The message of a command that must fail with one line and code 1."""
    said = call(capsys, *arguments)
    assert (said.code, said.out) == (1, ""), said
    assert said.err.count("\n") == 1
    assert said.err.startswith("Error: ")
    return said.err


def usage_error(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The message of a usage error, on one line."""
    said = call(capsys, *arguments)
    assert (said.code, said.out) == (2, ""), said
    return " ".join(said.err.replace("│", " ").split())


def npy(array: ArrayLike) -> bytes:
    """The contents of an .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(**arrays: ArrayLike) -> bytes:
    """The contents of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


DAMAGED_ARRAYS = [
    (b"", "it is empty"),
    (b"text", "it is not an .npy or .npz file"),
    (b"PK", "it is not an .npy or .npz file"),
    (b"PK\x03\x04", "not a zip file"),
    (b"\x93NUMPY", "EOF"),
    (npy(np.ones((60, 4)))[:100], "EOF"),
    (npy(np.ones((60, 4)))[:-1], ""),  # the reason depends on the version of NumPy
    (npz(X=np.ones((60, 4)))[:-1], "not a zip file"),
    (npz(X=np.ones((60, 4))).replace(b"NUMPY", b"NUMPZ"), "Bad CRC-32"),
]
"""Contents of .npy and .npz files that cannot be read, and the reason."""


def made_points(seed: int = 0, n: int = 60) -> tuple[NDArray, NDArray]:
    """Three classes in four dimensions; the last one is loud noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 4)) * [0.4, 0.4, 1, 4]
    X[:, :2] += np.array([[0, 0], [1, 0], [0, 1]])[y]
    return X, np.array(["cat", "dog", "eel"])[y]


def made_csv(path: Path, seed: int = 0, n: int = 60) -> Path:
    """The points in a file, with labels in the column `kind`."""
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
