"""Recipes of blocks: which comparisons, and where the rows that they touch come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from boostmetric.comparisons import Comparisons
from boostmetric.engines.blocks import Block
from boostmetric.laplacian import ComparisonOperator
from boostmetric.losses import Loss
from boostmetric.points import Points
from boostmetric.problem import Problem
from boostmetric.regularizers import Trace


@dataclass(frozen=True, eq=False)
class InMemory:
    """Comparisons of rows that are sent along.

    Parameters
    ----------
    points : the rows that they touch
    comparisons : of these rows
    loss : of the problem
    """

    points: Points
    comparisons: Comparisons
    loss: Loss

    def load(self) -> Block:
        """The block."""
        operator = ComparisonOperator(self.points, self.comparisons)
        gaps, weights = self.comparisons.gaps, self.comparisons.weights
        return Block(Problem(operator, self.loss, Trace(0.0), gaps, weights))


def parts_of(X: Points, comparisons: Comparisons, loss: Loss, n_blocks: int) -> Iterator[InMemory]:
    """Comparisons in blocks of about equal size, in their order, each with the rows it touches."""
    for rows in np.array_split(np.arange(len(comparisons)), n_blocks):
        part = comparisons[rows]
        used, pairs = np.unique(part.pairs, return_inverse=True)
        local = replace(part, pairs=pairs.reshape(-1, 2), n_points=len(used))
        yield InMemory(X[used], local, loss)
