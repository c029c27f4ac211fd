"""The rank of a metric does not depend on the processor, whose kernels of BLAS round differently.

OpenBLAS has kernels for many processors, and OPENBLAS_CORETYPE chooses among those that the machine
can run. Every fit runs in processes of their own, which print the ranks of the results.

Directions at the level of rounding are dropped, so the rank is the same as long as the metrics are.
After many steps, or where the optimum is flat (comparisons that can all be satisfied, the linear
program of the hinge), rounding errors have grown, and metrics and ranks differ.
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
from boostmetric.metric import Metric
from boostmetric.problem import Comparisons

CORE_TYPES = (None, "Haswell", "Zen", "Prescott")
BLAS_THREADS = (1, 2)
DTYPES = ("float32", "float64")

FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "stagewise": ("exponential", {"solver": "stagewise", "max_iter": 12}),
    "batches": ("logistic", {"solver": "stagewise", "directions_per_step": 4, "max_iter": 24}),
    "totally corrective": ("logistic", {"solver": "totally_corrective", "max_iter": 8, "tol": 0.0}),
}


def data() -> Iterator[tuple[str, NDArray, NDArray]]:
    """Names, points and labels."""
    for name, load in (("iris", load_iris), ("wine", load_wine)):
        X, y = load(return_X_y=True)
        yield name, X[::2], y[::2]
    X, y = load_digits(n_class=4, return_X_y=True)
    yield "digits", X[:80], y[:80]  # some pixels are always white
    X, y = load_iris(return_X_y=True)
    yield "iris, columns repeated", np.column_stack([X, X, X[:, :1] - X[:, 1:2]]), y


def fits() -> Iterator[tuple[str, Metric]]:
    """What was fitted, and the metric."""
    for name, X, y in data():
        for dtype in DTYPES:
            points = X.astype(dtype)
            comparisons = Comparisons.from_labels(points, y, 2, 2)
            for kind, (loss, options) in FITS.items():
                yield f"{name}, {kind}, {dtype}", boost(points, comparisons, loss, **options).metric


def ranks() -> dict[str, int]:
    """What the fits of this process lead to."""
    return {name: len(metric.components) for name, metric in fits()}


@cache
def ranks_with(core_type: str | None, n_threads: int) -> dict[str, int]:
    """The same of a process with this environment."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_NUM_THREADS") and name != "OPENBLAS_CORETYPE"
    }
    environment["OPENBLAS_NUM_THREADS"] = str(n_threads)
    if core_type is not None:
        environment["OPENBLAS_CORETYPE"] = core_type
    run = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, check=False
    )
    if core_type is not None and run.returncode < 0:
        pytest.skip(f"the processor cannot run the kernels of OpenBLAS for {core_type}")
    assert run.returncode == 0, run.stderr
    found: dict[str, int] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("n_threads", BLAS_THREADS)
@pytest.mark.parametrize("core_type", CORE_TYPES)
def test_processor_does_not_change_the_rank(core_type: str | None, n_threads: int) -> None:
    known, found = ranks_with(None, 1), ranks_with(core_type, n_threads)
    assert len(known) == 4 * len(FITS) * len(DTYPES)
    differ = {name: (known[name], found[name]) for name in known if known[name] != found[name]}
    assert not differ


if __name__ == "__main__":
    print(json.dumps(ranks()))
