"""Shared by several test modules: random data, objectives, and the folder of real data."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from boostmetric.data.points import Points, binary_exponent, centered
from boostmetric.engines import Local, Threads
from boostmetric.estimators import BoostMetric
from boostmetric.problem import (
    LOSSES,
    REGULARIZERS,
    Block,
    ComparisonOperator,
    Comparisons,
    Loss,
    Objective,
    Regularizer,
    as_loss,
)
from boostmetric.solvers import DEFAULT_ALPHA, Boosting

BLAS = {
    each["filepath"]
    for each in ThreadpoolController().select(user_api="blas").info()
    if each.get("threading_layer") not in ("disabled", "openmp")
}
"""Files of the BLAS libraries of NumPy and SciPy, whose limit applies to the whole process. Tests
may load the libraries of other packages, such as OpenCV, later."""


def blas_threads() -> list[int]:
    """Numbers of threads of the BLAS libraries of NumPy and SciPy."""
    libraries = ThreadpoolController().select(user_api="blas").info()
    return [each["num_threads"] for each in libraries if each["filepath"] in BLAS]


SMOOTH = [name for name, loss in LOSSES.items() if "stagewise" in loss.solvers]
"""Names of the differentiable losses."""


SIMPLE: dict[str, Any] = {
    "regularizer": "trace",
    "alpha": DEFAULT_ALPHA,
    "n_neighbors": 3,
    "n_passes": 1,
    "max_iter": 500,
    "init": None,
    "directions_per_step": 1,
}
"""Parameters of `simple_learner`, which candidates of a cross-validation can also set."""


def simple_learner(loss: str | Loss = "logistic", **parameters: Any) -> BoostMetric:
    """A `BoostMetric` with fixed, simple settings instead of the default "auto".

    One pass on the features as they are, and a weak trace regularizer: the paper's algorithm. The
    result is what was learned, even if it is worse than the start.
    """
    return BoostMetric(loss, **{"verify": False, **SIMPLE, **parameters})


def problem_of(
    X: Points,
    comparisons: Comparisons,
    loss: str | Loss = "logistic",
    alpha: float = 0.0,
    regularizer: str = "trace",
) -> Objective:
    """The objective that `boost` would minimize, with an absolute alpha and M = 0."""
    counted = comparisons.counted()
    return Objective.of_operator(
        Local(1),
        ComparisonOperator(X, counted),
        as_loss(loss),
        REGULARIZERS[regularizer](alpha),
        counted.gaps,
        counted.weights,
    )


def blocks_of(
    X: Points,
    comparisons: Comparisons,
    loss: str | Loss,
    n_blocks: int,
    regularizer: Regularizer,
    n_jobs: int = 1,
) -> Objective:
    """The objective with the comparisons in several blocks of consecutive rows.

    All blocks divide the points by the same power of 2, as a single block would, so the objective
    is in units of `Objective.unit`.
    """
    counted, F, engine = comparisons.counted(), as_loss(loss), Local(n_jobs)
    exponent = binary_exponent(centered(X))
    parts = [counted[rows] for rows in np.array_split(np.arange(len(counted)), n_blocks)]
    blocks = engine.place([partial(block_of, X, part, F, exponent) for part in parts])
    operator = blocks[0].operator
    return Objective(
        engine,
        blocks,
        F,
        regularizer,
        [len(part) for part in parts],
        operator.n_features,
        operator.dtype,
        operator.is_dense,
        operator.unit,
    )


def block_of(
    X: Points, comparisons: Comparisons, loss: Loss, exponent: int, threads: Threads
) -> Block:
    operator = ComparisonOperator(X, comparisons, exponent=exponent, threads=threads)
    return Block(operator, loss, comparisons.gaps, comparisons.weights, threads)


def margins_of(fit: Boosting) -> NDArray:
    """The margins of all comparisons at the metric of a fit with one block."""
    return block_at(fit.problem).margins_and_duals()[0]


def duals_of(fit: Boosting) -> NDArray:
    """The duals of all comparisons at the metric of a fit with one block."""
    return block_at(fit.problem).margins_and_duals()[1]


def block_at(problem: Objective) -> Block:
    """The only block of an objective, after all steps."""
    M, block = problem.M, problem.single_block()
    block.query(M.epoch, 0, M.steps, Block.margins_and_duals)
    return block


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the documentation and the examples."""
    for item in items:
        is_page = item.path.suffix == ".md"
        if is_page or item.path.name in ("test_docs.py", "test_examples.py"):
            item.add_marker(pytest.mark.docs)


def read_only(*arrays: NDArray) -> None:
    """Make arrays raise an error on writes."""
    for array in arrays:
        array.flags.writeable = False


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def blobs(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Three overlapping classes of 40 points in 5 dimensions, of which 2 are informative."""
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
        pytest.skip("BOOSTMETRIC_DATA is not set")
    return Path(folder)
