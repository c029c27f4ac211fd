"""The result of a fit depends neither on n_jobs nor on the number of BLAS threads.

The slow tests fit in separate processes with an explicit environment, because a test run may limit
BLAS or OpenMP to one thread. Each process prints digests of its results, which must agree.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import astuple, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from boostmetric import BoostMetric
from boostmetric.engines import Local
from boostmetric.learn import boost
from boostmetric.problem import (
    Block,
    ComparisonOperator,
    Comparisons,
    Objective,
    Trace,
    as_loss,
    comparison_operator,
)
from boostmetric.solvers import Boosting, SolverSettings

SMALL_CHUNKS = {
    (comparison_operator, "CHUNK_ENTRIES"): 1 << 12,
    (comparison_operator, "MIN_CHUNK"): 1 << 9,
}
"""Sizes that divide every loop into several chunks, even for small data."""

BLAS_THREADS = (1, 2)
N_JOBS = (1, 2, None)
DTYPES = ("float32", "float64")

ONE, EIGHT, DEFAULT = "one direction per step", "batches of 8", "batches of the default size"
CORRECTIVE, CORRECTIVE_NORM, SOFT_MARGIN = (
    "totally corrective",
    "totally corrective, Frobenius norm",
    "soft margin",
)
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    ONE: ("exponential", {"solver": "stagewise", "directions_per_step": 1, "max_iter": 5}),
    EIGHT: ("logistic", {"solver": "stagewise", "directions_per_step": 8, "max_iter": 24}),
    DEFAULT: ("exponential", {"solver": "stagewise", "max_iter": 40}),
}
CORRECTIVE_FITS: dict[str, tuple[str, dict[str, Any]]] = {
    CORRECTIVE: ("logistic", {"solver": "totally_corrective", "max_iter": 16, "alpha": 0.01}),
    CORRECTIVE_NORM: (
        "squared_hinge",
        {
            "solver": "totally_corrective",
            "regularizer": "frobenius",
            "alpha": 0.1,
            "max_iter": 12,
            "tol": 0.0,
        },
    ),
    SOFT_MARGIN: ("hinge", {"max_iter": 6}),
}
ON_LARGE_DATA: dict[str, tuple[str, dict[str, Any]]] = {
    f"{ONE}, large": ("logistic", {"solver": "stagewise", "directions_per_step": 1, "max_iter": 1}),
    f"{DEFAULT}, large": ("exponential", {"solver": "stagewise", "max_iter": 24}),
}


def drawn(n: int, D: int, m: int) -> tuple[NDArray, Comparisons]:
    """Random points and triplets; most agree with a metric that emphasizes later features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    triplets = rng.integers(n, size=(m, 3))
    triplets = triplets[(np.diff(np.sort(triplets, axis=1), axis=1) > 0).all(axis=1)]
    images = X * np.linspace(0, 1, D)
    near, far = (np.sum((images[triplets[:, 0]] - images[triplets[:, j]]) ** 2, 1) for j in (1, 2))
    wrong = (near > far) ^ (rng.random(len(triplets)) < 0.1)
    triplets[wrong] = triplets[wrong][:, [0, 2, 1]]
    return X, Comparisons.from_triplets(triplets)


def digest(*arrays: Any) -> str:
    """A hash of the bits, shapes and dtypes of arrays."""
    sha = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        sha.update(f"{array.dtype}{array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def digest_of(fit: Boosting) -> str:
    """A hash of the metric and of the history without its times."""
    history = [astuple(replace(step, seconds=0.0)) for step in fit.history]
    assert history
    return digest(fit.metric.directions, fit.metric.coefs, fit.alpha, np.array(history))


def digests_of_fits(
    fits: dict[str, tuple[str, dict[str, Any]]], X: NDArray, comparisons: Comparisons
) -> Iterator[tuple[str, str, str]]:
    """Name of the fit, number of threads, digest of the result."""
    for name, (loss, options) in fits.items():
        for dtype in DTYPES:
            for n_jobs in N_JOBS:
                given: dict[str, Any] = {**options, "n_jobs": n_jobs}
                fit = boost(X.astype(dtype), comparisons, loss, **given)
                yield f"{name}, {dtype}", f"n_jobs={n_jobs}", digest_of(fit)


def digests() -> Iterator[tuple[str, str, str]]:
    """All digests, computed in this process."""
    # 1) default chunks
    X, comparisons = drawn(6_000, 48, 100_000)
    yield from digests_of_fits(ON_LARGE_DATA, X, comparisons)
    # 2) small chunks
    for (module, name), size in SMALL_CHUNKS.items():
        assert hasattr(module, name)
        setattr(module, name, size)
    yield from digests_of_fits(CORRECTIVE_FITS, *drawn(600, 16, 4_000))
    X, comparisons = drawn(1_500, 24, 11_000)
    yield from digests_of_fits(FITS, X, comparisons)
    # 3) the search for neighbors
    y = np.digitize(X[:, -1] + X[:, -2], [-1, 0, 1])
    for dtype in DTYPES:
        for n_jobs in N_JOBS:
            table = Comparisons.from_labels(X.astype(dtype), y, n_jobs=n_jobs)
            bits = digest(table.pairs, table.near, table.far)
            yield f"neighbors, {dtype}", f"n_jobs={n_jobs}", bits
    # 4) the estimator
    for dtype in DTYPES:
        for n_jobs in N_JOBS:
            estimator = BoostMetric(init="lda", n_passes=2, max_iter=30, n_jobs=n_jobs)
            components = estimator.fit(X.astype(dtype), y).components_
            yield f"estimator, {dtype}", f"n_jobs={n_jobs}", digest(components)


@cache
def results() -> dict[str, dict[str, str]]:
    """Digests by name of the fit and numbers of threads."""
    found: dict[str, dict[str, str]] = {}
    for blas_threads in BLAS_THREADS:
        environment = {
            name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")
        }
        environment["OPENBLAS_NUM_THREADS"] = str(blas_threads)
        run = subprocess.run(
            [sys.executable, __file__], env=environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        for name, threads, bits in json.loads(run.stdout):
            found.setdefault(name, {})[f"{threads}, {blas_threads} BLAS threads"] = bits
    return found


NAMES = [
    f"{name}, {dtype}"
    for name in (*FITS, *CORRECTIVE_FITS, *ON_LARGE_DATA, "neighbors", "estimator")
    for dtype in DTYPES
]


def test_threads_do_not_change_bits() -> None:
    X, comparisons = drawn(6_000, 48, 220_000)  # two chunks of points and of comparisons
    options: Any = {"solver": "stagewise", "directions_per_step": 4, "max_iter": 4}
    digests = set()
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            fit = boost(X.astype("float32"), comparisons, "logistic", n_jobs=n_threads, **options)
        digests.add(digest_of(fit))
    assert len(digests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_threads_do_not_change_bits_in_new_processes(name: str) -> None:
    found = results()[name]
    assert len(found) == len(N_JOBS) * len(BLAS_THREADS)
    assert len(set(found.values())) == 1, found


def test_three_blocks_agree_with_one() -> None:
    X, comparisons = drawn(300, 30, 3_000)
    whole = ComparisonOperator(X, comparisons, exponent=None)
    loss = as_loss("exponential")
    options: dict[str, Any] = {"solver": "stagewise", "directions_per_step": 1, "max_iter": 60}

    def learned(n_blocks: int) -> Boosting:
        parts = np.array_split(np.arange(len(comparisons)), n_blocks)
        with Local(1) as engine:
            blocks = [
                Block(ComparisonOperator(X, comparisons[part], exponent=whole.exponent), loss)
                for part in parts
            ]
            sizes, unit = list(map(len, parts)), whole.unit
            problem = Objective(
                engine, blocks, loss, Trace(0.0), sizes, X.shape[1], whole.dtype, unit=unit
            )
            return Boosting(problem, SolverSettings.of(loss, **options)).run()

    one, three = learned(1), learned(3)
    assert len(one.history) == len(three.history) == 60
    np.testing.assert_allclose(three.objective(), one.objective(), rtol=1e-9)
    size = np.abs(one.metric.matrix).max()
    np.testing.assert_allclose(three.metric.matrix, one.metric.matrix, rtol=0, atol=1e-6 * size)


if __name__ == "__main__":
    print(json.dumps(list(digests())))
