"""What several test modules share: seeded data, read-only, and the folder of real data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric import LOSSES, REGULARIZERS, Boosting, ComparisonOperator, Comparisons, Loss
from boostmetric.engines import Local
from boostmetric.points import binary_exponent, centred
from boostmetric.problem import Block, Objective, Regularizer

SMOOTH = [name for name, loss in LOSSES.items() if "stagewise" in loss.solvers]
"""The losses that are differentiable."""


def problem_of(
    X: NDArray,
    comparisons: Comparisons,
    loss: str | Loss = "logistic",
    alpha: float = 0.0,
    regularizer: str = "trace",
) -> Objective:
    """The problem that `boost` would solve, with an absolute alpha."""
    counted = comparisons.counted()
    return Objective.of_operator(
        Local(1),
        ComparisonOperator(X, counted),
        LOSSES[loss] if isinstance(loss, str) else loss,
        REGULARIZERS[regularizer](alpha),
        counted.gaps,
        counted.weights,
    )


def blocks_of(
    X: NDArray,
    comparisons: Comparisons,
    loss: str | Loss,
    n_blocks: int,
    regularizer: Regularizer,
    n_jobs: int = 1,
) -> Objective:
    """The same comparisons in several blocks, whose points are divided by the same power of 2."""
    loss = LOSSES[loss] if isinstance(loss, str) else loss
    engine, counted = Local(n_jobs), comparisons.counted()
    exponent = binary_exponent(centred(X))
    blocks, layout = [], []
    for rows in np.array_split(np.arange(len(counted)), n_blocks):
        part = counted[rows]
        operator = ComparisonOperator(X, part, exponent=exponent, threads=engine.threads)
        gaps, weights = (
            None if given is None else given.astype(operator.dtype)
            for given in (part.gaps, part.weights)
        )
        blocks.append(Block(operator, loss, gaps, weights, engine.threads))
        layout.append(len(part))
    first = blocks[0].operator
    return Objective(
        engine, blocks, loss, regularizer, layout, first.n_features, first.dtype, first.is_dense
    )


def margins_of(fit: Boosting) -> NDArray:
    """The margins at M, of shape (m,)."""
    block = fit.problem.single_block()
    values = block.operator.values_of(fit.problem.M.metric.matrix)
    return values if block.gaps is None else values - block.gaps


def duals_of(fit: Boosting) -> NDArray:
    """The duals at M, of shape (m,)."""
    return fit.problem.loss.duals(margins_of(fit), fit.problem.single_block().weights)


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
