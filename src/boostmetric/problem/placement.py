"""The blocks of a problem: one in this process, or several on a cluster.

The layout on a cluster depends only on the data, not on the workers:
- points in memory: blocks of consecutive comparisons of about equal size (`consecutive_blocks`);
- a Dask collection: one block per chunk of points, with the comparisons whose anchor it contains.

All blocks have the same origin and unit, computed once from all points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from boostmetric.data.dask_points import DaskPoints
from boostmetric.data.points import Points, binary_exponent, centered
from boostmetric.engines import Dask, Lazy, Local, Threads
from boostmetric.problem.block import Block, check_terms
from boostmetric.problem.comparison_operator import ComparisonOperator
from boostmetric.problem.comparisons import Comparisons
from boostmetric.problem.losses import Hinge, Loss
from boostmetric.problem.objective import Objective
from boostmetric.problem.operators import Operator
from boostmetric.problem.regularizers import Trace

COMPARISONS_PER_BLOCK = 1 << 18
"""Maximum size of a block for points in memory: a task takes much longer than the overhead of Dask
(about 5 ms). Not tuned."""

MIN_BLOCKS = 4
"""Minimum number of blocks for points in memory, so that several workers are used; a round of four
tasks takes 23 to 46 ms."""


@dataclass(frozen=True, eq=False)
class BlockRecipe:
    """Creates a block from the rows in its comparisons.

    Parameters
    ----------
    comparisons : comparisons of these rows
    loss : F
    points : the rows; None if the recipe is called with arrays whose concatenation they are
    shift : array of shape (D,) to subtract; None if the points are centered
    exponent : as for `ComparisonOperator`
    """

    comparisons: Comparisons
    loss: Loss
    points: Points | None
    shift: NDArray | None
    exponent: int

    def __call__(self, threads: Threads, *pieces: NDArray) -> Block:
        """Create the block."""
        points: Any = np.concatenate(pieces) if self.points is None else self.points
        if self.shift is not None:
            points = points - self.shift
        operator = ComparisonOperator(
            points, self.comparisons, exponent=self.exponent, is_centered=True, threads=threads
        )
        gaps, weights = self.comparisons.gaps, self.comparisons.weights
        return Block(operator, self.loss, gaps, weights, threads)


def place_objective(
    engine: Local | Dask, X: Points | DaskPoints, comparisons: Comparisons, loss: Loss
) -> Objective:
    """Create the objective of comparisons at M = 0, without a regularizer.

    Comparisons with weight 0 are ignored.
    """
    comparisons = comparisons.counted()
    if isinstance(engine, Local):
        operator = ComparisonOperator(X, comparisons, exponent=None, threads=engine.threads)
        gaps, weights = comparisons.gaps, comparisons.weights
        return Objective.of_operator(engine, operator, loss, Trace(0.0), gaps, weights)
    if isinstance(loss, Hinge):
        raise ValueError(
            f"{loss!r} solves a linear program in this process and does not work on Dask. Use "
            "'smoothed_hinge' or 'squared_hinge', or fit in memory."
        )
    comparisons.check_points(X.shape[0])
    m, dtype = len(comparisons), np.dtype(X.dtype)
    check_terms(comparisons.gaps, comparisons.weights, m, dtype)  # an error here, not on a worker
    points: Any = None
    shift: NDArray | None = None
    if isinstance(X, DaskPoints):
        parts, shift, exponent = blocks_by_chunk(comparisons, X.starts), X.mean, X.exponent
    else:
        parts, points = consecutive_blocks(m), centered(X)
        exponent = binary_exponent(points)
    recipes = []
    for part in parts:
        rows, own = only_named_rows(comparisons[part])
        own_points, inputs = None, ()
        if isinstance(X, DaskPoints):
            inputs = X.pieces(rows)
            size = len(rows) * X.shape[1] * dtype.itemsize
        else:
            # The points are part of the task, so there are two copies.
            own_points = points[rows]
            size = 2 * (own_points.data.nbytes if issparse(own_points) else own_points.nbytes)
        recipe = BlockRecipe(own, loss, own_points, shift, exponent)
        # 8 numbers per pair and comparison
        recipes.append(Lazy(recipe, inputs, size + 64 * (len(own.pairs) + len(own))))
    return Objective(
        engine,
        engine.place(recipes),
        loss,
        Trace(0.0),
        [len(part) for part in parts],
        X.shape[1],
        dtype,
        X.shape[1] <= Operator.DENSE_UP_TO,
        4.0**exponent,
    )


def consecutive_blocks(m: int) -> list[NDArray]:
    """Positions of the comparisons of each block, for points in memory.

    >>> [len(block) for block in consecutive_blocks(10)]
    [3, 3, 2, 2]
    """
    n_blocks = min(m, max(MIN_BLOCKS, -(-m // COMPARISONS_PER_BLOCK)))
    return np.array_split(np.arange(m), n_blocks)


def blocks_by_chunk(comparisons: Comparisons, starts: NDArray) -> list[NDArray]:
    """Positions of the comparisons of each block, by the chunk of points with their anchor.

    Chunk c has the rows starts[c] to starts[c + 1] − 1. The anchor of a triplet (a, b, c) is a; for
    other comparisons it is a point of the far pair. A chunk without anchors has no block.

    >>> comparisons = Comparisons.from_triplets([[7, 0, 1], [0, 1, 7], [2, 1, 6]])
    >>> [block.tolist() for block in blocks_by_chunk(comparisons, np.array([0, 4, 8]))]
    [[1, 2], [0]]
    """
    near, far = comparisons.pairs[comparisons.near], comparisons.pairs[comparisons.far]
    # A null pair represents a threshold; the anchor is then in the other pair.
    is_null = far[:, 0] == far[:, 1]
    far = np.where(is_null[:, None], near, far)
    is_second = (far[:, 1:] == near).any(axis=1) & ~(far[:, :1] == near).any(axis=1)
    anchors = np.where(is_second, far[:, 1], far[:, 0])
    chunk = np.searchsorted(starts, anchors, side="right") - 1
    order = np.argsort(chunk, kind="stable")
    cuts = np.flatnonzero(np.diff(chunk[order])) + 1
    return np.split(order, cuts)


def only_named_rows(comparisons: Comparisons) -> tuple[NDArray, Comparisons]:
    """The sorted rows that occur in comparisons, and the comparisons renumbered to these rows.

    >>> rows, own = only_named_rows(Comparisons.from_triplets([[7, 2, 4]]))
    >>> rows.tolist(), own.pairs.tolist()
    ([2, 4, 7], [[0, 2], [1, 2]])
    """
    rows, inverse = np.unique(comparisons.pairs, return_inverse=True)
    pairs = inverse.reshape(comparisons.pairs.shape)
    own = Comparisons(
        pairs, comparisons.near, comparisons.far, comparisons.gaps, comparisons.weights
    )
    return rows, own
