"""Recipes of blocks: which comparisons, and where the rows that they touch come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from boostmetric.comparisons import Comparisons
from boostmetric.engines.blocks import Block
from boostmetric.engines.cells import mine_in_cells
from boostmetric.engines.engine import Engine
from boostmetric.engines.memory import Size
from boostmetric.engines.mining import mine
from boostmetric.engines.sources import ComparisonSource, Source
from boostmetric.laplacian import ComparisonOperator, near_order
from boostmetric.losses import Loss
from boostmetric.mining import NONE, labelled_triplets
from boostmetric.neighbors import APPROXIMATE
from boostmetric.points import Points
from boostmetric.problem import Problem
from boostmetric.regularizers import Trace


class Piece(Protocol):
    """Some of the comparisons; small, or in a file."""

    def comparisons(self) -> Comparisons:
        """By the row numbers of all points."""


@dataclass(frozen=True, eq=False)
class Given:
    """Comparisons that are in memory."""

    stated: Comparisons

    def comparisons(self) -> Comparisons:
        """They."""
        return self.stated


@dataclass(frozen=True, eq=False)
class Stored:
    """Comparisons that are read when they are needed."""

    source: ComparisonSource
    rows: slice

    def comparisons(self) -> Comparisons:
        """Those of the rows."""
        return self.source.comparisons(self.rows)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The comparisons that targets and impostors of points make, as in `Comparisons.from_labels`.

    Parameters
    ----------
    anchors : row numbers of the points
    targets, impostors : tables of their neighbours, as `mine` returns them
    n_points : number of all points
    """

    anchors: NDArray
    targets: NDArray
    impostors: NDArray
    n_points: int

    @classmethod
    def among(
        cls,
        source: Source,
        labels: NDArray,
        n_targets: int,
        n_impostors: int,
        engine: Engine,
        neighbors: str = "exact",
    ) -> Neighbours:
        """Those of all points of a source, found on an engine.

        Anchors are in an order in which neighbours are close together. Parameters are those of
        `mine`, or with neighbors="approximate" of `mine_in_cells`.
        """
        n = source.shape[0]
        if neighbors == APPROXIMATE:
            targets, impostors, order = mine_in_cells(
                source, labels, n_targets, n_impostors, engine
            )
        else:
            targets, impostors = mine(source, labels, n_targets, n_impostors, engine)
            tables = np.hstack([targets, impostors])
            pairs = np.argwhere(tables != NONE)
            pairs[:, 1] = tables[tables != NONE]
            order = near_order(pairs, n)
        return cls(order, targets[order], impostors[order], n)

    def __len__(self) -> int:
        n_targets, n_impostors = ((t != NONE).sum(axis=1) for t in (self.targets, self.impostors))
        return int(n_targets @ n_impostors)

    def comparisons(self) -> Comparisons:
        """By the row numbers of all points."""
        triplets = labelled_triplets(self.anchors, self.targets, self.impostors)
        return Comparisons.from_triplets(triplets, n_points=self.n_points)


Stated = Comparisons | ComparisonSource | Neighbours
"""What a fit in blocks may learn from."""


def pieces_of(stated: Stated, n_blocks: int) -> Iterator[Piece]:
    """The comparisons in about so many pieces of about equal size.

    Those in memory are put into an order in which comparisons of the same points are close
    together, so that a piece touches few points; those in a file are taken as they are stored.
    """
    if isinstance(stated, Neighbours):
        tables = (stated.anchors, stated.targets, stated.impostors)
        for anchors, targets, impostors in zip(
            *(np.array_split(table, n_blocks) for table in tables), strict=True
        ):
            part = Neighbours(anchors, targets, impostors, stated.n_points)
            if len(part):
                yield part
        return
    if isinstance(stated, Comparisons) and n_blocks > 1:
        stated = stated[_nearby(stated)]
    ends = np.linspace(0, len(stated), n_blocks + 1).astype(int)
    for begin, end in pairwise(ends.tolist()):
        if isinstance(stated, ComparisonSource):
            yield Stored(stated, slice(begin, end))
        else:
            yield Given(stated[slice(begin, end)])


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

    def lazy(self) -> None:
        """Nothing has to be computed first."""

    def load(self, points: NDArray | None = None) -> Block:
        """The block."""
        return block_of(self.points, self.comparisons, self.loss)


@dataclass(frozen=True, eq=False)
class FromSource:
    """Comparisons of rows that are read by whoever loads the block.

    Parameters
    ----------
    source : of all points
    piece : the comparisons
    loss : of the problem
    """

    source: Source
    piece: Piece
    loss: Loss

    def lazy(self) -> Any | None:
        """The rows as a Dask array, where that is what they come from."""
        used, _ = touched(self.piece.comparisons())
        return self.source.lazy(used)

    def load(self, points: NDArray | None = None) -> Block:
        """The block; of rows that were computed already, if any."""
        used, local = touched(self.piece.comparisons())
        rows = self.source.take(used) if points is None else self.source.checked(points, used)
        return block_of(rows, local, self.loss)


@dataclass(frozen=True, eq=False)
class Touched:
    """The number of points that some comparisons touch."""

    piece: Piece

    def load(self) -> int:
        """It."""
        return len(touched(self.piece.comparisons())[0])


def most_touched(engine: Engine, stated: Stated, n_blocks: int) -> int:
    """The number of points that one of so many blocks touches at most, counted on an engine."""
    handles = engine.place([Touched(piece) for piece in pieces_of(stated, n_blocks)])
    return max(engine.call(int, handles))


def block_of(points: Points, comparisons: Comparisons, loss: Loss) -> Block:
    """The block of comparisons of these points."""
    operator = ComparisonOperator(points, comparisons)
    problem = Problem(operator, loss, Trace(0.0), comparisons.gaps, comparisons.weights)
    return Block(problem, Size.of(points, len(comparisons)).held)


def touched(comparisons: Comparisons) -> tuple[NDArray, Comparisons]:
    """The rows that comparisons touch, sorted, and the same comparisons of these rows.

    >>> rows, local = touched(Comparisons.from_triplets([[7, 9, 4]]))
    >>> rows.tolist(), local.pairs.tolist()
    ([4, 7, 9], [[0, 1], [1, 2]])
    """
    used, pairs = np.unique(comparisons.pairs, return_inverse=True)
    return used, replace(comparisons, pairs=pairs.reshape(-1, 2), n_points=len(used))


def _nearby(comparisons: Comparisons) -> NDArray:
    """An order of comparisons in which those of the same points are close together."""
    n = int(comparisons.pairs.max()) + 1
    place = np.argsort(near_order(comparisons.pairs, n))
    first = place[comparisons.pairs].min(axis=1)
    return np.argsort(first[comparisons.near], kind="stable")


def recipes_of(
    X: Points | Source, stated: Stated, loss: Loss, n_blocks: int
) -> Iterator[InMemory | FromSource]:
    """The recipes of a fit; rows of points in memory go with them.

    Parameters
    ----------
    X : all points
    stated : what to learn from
    loss : of the problem
    n_blocks : number of blocks
    """
    for piece in pieces_of(stated, n_blocks):
        if isinstance(X, Source):
            yield FromSource(X, piece, loss)
        else:
            used, local = touched(piece.comparisons())
            yield InMemory(X[used], local, loss)
