"""Fixtures of several test modules."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real datasets, named by BOOSTMETRIC_DATA."""
    folder = os.environ.get("BOOSTMETRIC_DATA")
    if not folder:
        pytest.skip("BOOSTMETRIC_DATA is not set")
    return Path(folder)
