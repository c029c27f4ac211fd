"""Fixtures of several test modules: seeded data, and the folder of real data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray


def read_only(*arrays: NDArray) -> None:
    """Make arrays raise when something writes into them."""
    for array in arrays:
        array.flags.writeable = False


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def blobs(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Three overlapping classes of 40 points in 5 dimensions, of which 2 tell them apart."""
    y = np.repeat([0, 1, 2], 40)
    X = rng.normal(size=(120, 5))
    X[:, :2] += 1.5 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    X[:, 2:] *= 2
    read_only(X, y)
    return X, y


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real datasets, named by BOOSTMETRIC_DATA."""
    folder = os.environ.get("BOOSTMETRIC_DATA")
    if not folder:
        pytest.skip("BOOSTMETRIC_DATA is not set: no real datasets to test on")
    return Path(folder)
