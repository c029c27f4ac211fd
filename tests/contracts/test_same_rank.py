"""The rank of a metric does not depend on rounding, which differs between processors.

OpenBLAS has kernels for many processors; OPENBLAS_CORETYPE selects one that the machine can run.
The slow tests fit in separate processes with other kernels, which print the ranks.

Directions at the level of rounding errors are dropped, so similar metrics have the same rank. After
many steps, or if the optimum is flat (all comparisons can be satisfied, or the linear program of
the hinge), rounding errors have grown, and metrics and ranks differ.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_iris, load_wine

from boostmetric.learn import boost
from boostmetric.problem import Comparisons

CORE_TYPES = ("Haswell", "Zen", "Prescott")
BLAS_THREADS = (1, 2)
DTYPES = ("float32", "float64")

FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "stagewise": ("exponential", {"solver": "stagewise", "max_iter": 12}),
    "batches": ("logistic", {"solver": "stagewise", "directions_per_step": 4, "max_iter": 24}),
    "totally corrective": ("logistic", {"solver": "totally_corrective", "max_iter": 8, "tol": 0.0}),
}


def data() -> Iterator[tuple[str, NDArray, NDArray]]:
    for name, load in (("iris", load_iris), ("wine", load_wine)):
        X, y = load(return_X_y=True)
        yield name, X[::2], y[::2]
    X, y = load_digits(n_class=4, return_X_y=True)
    yield "digits", X[:80], y[:80]  # some pixels are always white
    X, y = load_iris(return_X_y=True)
    yield "iris, columns repeated", np.column_stack([X, X, X[:, :1] - X[:, 1:2]]), y


@cache
def ranks(step: int = 1) -> dict[str, int]:
    """Ranks of all fits; step = -1 reverses the order of the features."""
    found = {}
    for name, X, y in data():
        for dtype in DTYPES:
            points = np.ascontiguousarray(X[:, ::step], dtype=dtype)
            comparisons = Comparisons.from_labels(points, y, 2, 2)
            for kind, (loss, options) in FITS.items():
                metric = boost(points, comparisons, loss, **options).metric
                found[f"{name}, {kind}, {dtype}"] = len(metric.components)
    return found


def test_order_of_features_does_not_change_rank() -> None:
    assert len(ranks()) == 4 * len(FITS) * len(DTYPES)
    assert ranks(-1) == ranks()


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", BLAS_THREADS)
@pytest.mark.parametrize("core_type", CORE_TYPES)
def test_processor_does_not_change_rank(core_type: str, n_threads: int) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")
    }
    environment |= {"OPENBLAS_CORETYPE": core_type, "OPENBLAS_NUM_THREADS": str(n_threads)}
    run = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode < 0:
        pytest.skip(f"the processor cannot run the OpenBLAS kernels for {core_type}")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == ranks()


if __name__ == "__main__":
    print(json.dumps(ranks()))
