"""Nearest targets and impostors of points that need not be in memory, through an index of cells.

The mathematics of the file. About 4·√n *centres*, the k-means of a sample, divide space into cells,
and each point is in the cell of its nearest centre. A point looks for targets in those cells, of
the ones that hold another point of its class, whose centres are nearest to it, and for impostors in
those, of the ones that hold a point of another class. Of what it meets there it keeps the nearest,
ranked as in `boostmetric.engines.mining`; what it missed is measured on a sample. If k neighbours
are looked for, so are at least k cells, each of which holds one: where they exist they are found.

Cells are numbered along a path on which near ones tend to follow on each other, and a task has the
points of some that do: cells that one of them has to look into, others have to as well. What is
found does not depend on that, since each point has cells of its own to look into.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric._warn import warn
from boostmetric.blockwise import (
    BLOCK_ENTRIES,
    farthest,
    pair_squares,
    row_squares,
    smallest,
)
from boostmetric.engines.centres import Centres, Rows, learned_centres
from boostmetric.engines.engine import Engine
from boostmetric.engines.mining import (
    SHARES,
    Anchors,
    Part,
    PointsAt,
    check_search,
    distinct,
    divided,
    mean_of,
    surveyed,
)
from boostmetric.engines.sources import Source
from boostmetric.mining import NONE, rounded
from boostmetric.neighbors import ENOUGH, SAMPLE

PROBES = 12, 72
"""Cells in which a point looks for targets, and for impostors: these lie beyond its own kind."""

HELD = 1 << 26
"""Entries that a task reads at a time (512 MB in float64)."""

COPIES = 8
"""A task has so many times fewer anchors: there are copies of them while they meet others."""

LOOKS = 1 << 27
"""Pairs of a point and a cell that a task decides on: whether the one looks into the other."""

logger = logging.getLogger("boostmetric")


def mine_in_cells(
    source: Source, labels: NDArray, n_targets: int, n_impostors: int, engine: Engine
) -> tuple[NDArray, NDArray, NDArray]:
    """For every point near points of the same label and of the other labels, most of them nearest.

    As `boostmetric.engines.mining.mine`, which is exact, for more points than can meet in pairs.
    The result depends on the points and their labels alone. The share of the true neighbours that
    was found is measured on `SAMPLE` points and logged; below `ENOUGH` there is a warning.

    Parameters
    ----------
    source : of n points
    labels : array of shape (n,) of integers
    n_targets, n_impostors : numbers of neighbours to look for
    engine : who looks for them

    Returns
    -------
    targets : array of shape (n, n_targets) of row numbers, nearest first; `NONE` where there are
        no more
    impostors : array of shape (n, n_impostors), in the same way
    order : array of shape (n,), all row numbers, in an order in which points that follow on each
        other tend to be near

    Notes
    -----
    O(n^1.5·D) time, of which a worker takes its share. All rows are read three times, and for every
    task those of the cells that its points look into, in the order of their numbers, so that a
    chunk that is read whole is read about once.

    A task takes memory for 2·`HELD` entries of the source at most (or for a part of it, if that is
    larger), `LOOKS` bytes, some blocks of distances, and 16 + s bytes a point for the index, s ≤ 8
    being the size of a label. Where results are gathered memory is
    O(n·(n_targets + n_impostors) + √n·D); of the rows only those of the sample get there.

    Examples
    --------
    >>> from boostmetric.engines.engine import Serial
    >>> from boostmetric.engines.sources import as_source
    >>> source = as_source(np.array([[0.0], [7.0], [1.0], [5.0], [1.0]]))
    >>> targets, impostors, order = mine_in_cells(source, np.array([0, 1, 0, 1, 0]), 2, 1, Serial())
    >>> targets.tolist()
    [[2, -1], [3, -1], [0, -1], [1, -1], [0, -1]]
    >>> impostors.ravel().tolist()
    [3, 2, 3, 2, 3]
    >>> sorted(order.tolist())
    [0, 1, 2, 3, 4]
    """
    check_search(source.shape[0], labels, n_targets, n_impostors)
    parts = engine.place([Part(source, rows) for rows in source.parts])
    surveys = engine.call(surveyed, parts)
    middle = mean_of(surveys, source)
    digests = np.concatenate([survey.digests for survey in surveys])
    codes, stand_in = distinct(digests, np.unique(labels, return_inverse=True)[1].reshape(-1))
    centres = learned_centres(source, middle, engine)
    cells = np.concatenate(engine.call(_cells, parts, centres, middle))
    order = np.argsort(cells, kind="stable")
    index = _Index.of(cells, order[codes[order] != NONE], codes, centres, middle)
    tables = _searched(source, index, (n_targets, n_impostors), engine)
    position = np.argsort(index.rows)
    found = tuple(table[position] for table in tables)
    _measure(source, index, np.sort(index.rows), found, engine)
    return found[0][stand_in], found[1][stand_in], order


def _cells(part: Part, centres: NDArray, middle: NDArray) -> NDArray:
    cells = Centres(centres, middle).cells(part.source.read(part.rows))
    return cells.astype(np.min_scalar_type(len(centres)))


@dataclass(frozen=True, eq=False)
class _Some:
    """Points with their row numbers, labels and cells."""

    points: NDArray
    rows: NDArray
    codes: NDArray
    cells: NDArray

    def __getitem__(self, chosen: NDArray) -> _Some:
        return _Some(*(getattr(self, field.name)[chosen] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class _Index:
    """Which points are in which cell; all of it in arrays, which an engine shares among its tasks.

    Parameters
    ----------
    rows : the points that no earlier one stands for, by cell
    starts : array of shape (C + 1,), where those of each cell begin
    codes : array of shape (n,), the labels, `NONE` for a point that an earlier one stands for
    centres : array of shape (C, D), of the cells
    middle : array of shape (D,), the mean of all points
    counts, cells, classes : points of each class in each cell; a CSR array with a line for a class
    """

    rows: NDArray
    starts: NDArray
    codes: NDArray
    centres: NDArray
    middle: NDArray
    counts: NDArray
    cells: NDArray
    classes: NDArray

    @classmethod
    def of(
        cls, cells: NDArray, rows: NDArray, codes: NDArray, centres: NDArray, middle: NDArray
    ) -> _Index:
        """That of all points, by their cells."""
        starts = np.searchsorted(cells[rows], np.arange(len(centres) + 1))
        shape = int(codes.max()) + 1, len(centres)
        ones = np.ones(len(rows), dtype=np.int32)
        table = csr_array((ones, (codes[rows], cells[rows])), shape=shape)
        counted = table.data, table.indices, table.indptr
        return cls(rows, starts, codes, centres, middle, *counted)

    @property
    def arrays(self) -> tuple[NDArray, ...]:
        """What it is made of."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def as_stored(self, places: NDArray) -> NDArray:
        """Places in `rows` in the order of the row numbers."""
        return places[np.argsort(self.rows[places])]

    def points(self, source: Source, places: NDArray) -> _Some:
        """The points at places in `rows`, of which the row numbers are in sorted order."""
        rows = self.rows[places]
        cells = np.searchsorted(self.starts, places, side="right") - 1
        return _Some(source.take(rows), rows, self.codes[rows], cells)

    def probes(self, anchors: _Some, n_neighbors: tuple[int, int]) -> NDArray:
        """Which cells are looked into by which anchors, of shape (C, number of anchors)."""
        centres = Centres(self.centres, self.middle)
        probes = np.zeros((len(self.centres), len(anchors.rows)), dtype=bool)
        shape = len(self.classes) - 1, len(self.centres)
        table = csr_array((self.counts, self.cells, self.classes), shape=shape)
        for chunk in centres.chunks(len(anchors.rows)):
            points = anchors.points[chunk]
            squares, errors = centres.squares(points)
            same = table[anchors.codes[chunk].astype(np.intp)].toarray()
            others = np.diff(self.starts) - same
            same[np.arange(len(points)), anchors.cells[chunk]] -= 1  # no point is its own target
            for held, k, least in zip((same, others), PROBES, n_neighbors, strict=True):
                allowed = np.where(held > 0, squares, np.inf)
                probes[:, chunk] |= centres.nearest(points, allowed, errors, max(k, least)).T
        return probes


def _searched(
    source: Source, index: _Index, n_neighbors: tuple[int, int], engine: Engine
) -> list[NDArray]:
    """The targets and the impostors of the points of an index, in the order of its rows."""
    n, (n_cells, D) = len(index.rows), index.centres.shape
    size = min(LOOKS // n_cells, HELD // (COPIES * D), -(-n // (SHARES * engine.n_workers)))
    spans = engine.place([Part(source, places) for places in divided(slice(0, n), max(1, size))])
    found = engine.call(_neighbours, spans, n_neighbors, *index.arrays)
    return [np.concatenate(side) for side in zip(*found, strict=True)]


def _neighbours(
    part: Part, n_neighbors: tuple[int, int], *arrays: NDArray
) -> tuple[NDArray, NDArray]:
    """Targets and impostors of a part of the points of an index, by their places in it."""
    index, source = _Index(*arrays), part.source
    places = index.as_stored(np.arange(part.rows.start, part.rows.stop))
    anchors = _Askers(index.points(source, places), n_neighbors)
    probes = index.probes(anchors.points, n_neighbors)
    home = np.bincount(anchors.points.cells, minlength=len(probes)) > 0
    looked_at = np.repeat(probes.any(axis=1), np.diff(index.starts))
    stored = index.as_stored(np.flatnonzero(looked_at))
    for batch in divided(slice(0, len(stored)), max(1, HELD // source.shape[1])):
        others = index.points(source, stored[batch])
        order = np.argsort(others.cells, kind="stable")
        met, begin = np.unique(others.cells[order], return_index=True)
        asking = [np.flatnonzero(probes[cell]) for cell in met]
        members = np.split(order, begin[1:])
        # Those at home first, and then where most of them look: limits are narrow soon.
        for m in np.lexsort(([-len(some) for some in asking], ~home[met])):
            width = max(1, BLOCK_ENTRIES // max(len(asking[m]), source.shape[1]))
            for chunk in divided(slice(0, len(members[m])), width):
                anchors.meet(asking[m], others[members[m][chunk]], index.centres[met[m]])
    back = np.argsort(places)
    targets, impostors = (side[back] for side in anchors.found())
    return targets, impostors


class _Askers:
    """Points that look for neighbours, and what they have found so far.

    Point i has two lines in the table of the nearest: 2·i of targets, 2·i + 1 of impostors.
    """

    def __init__(self, points: _Some, n_neighbors: tuple[int, int]) -> None:
        self.points, self._n_neighbors = points, n_neighbors
        shape = 2 * len(points.rows), max(n_neighbors)
        self._squares, self._rows = np.full(shape, np.inf), np.full(shape, NONE)

    def found(self) -> tuple[NDArray, NDArray]:
        """The row numbers of the targets and of the impostors."""
        targets, impostors = (self._rows[s::2, :k] for s, k in enumerate(self._n_neighbors))
        return targets, impostors

    def meet(self, some: NDArray, others: _Some, centre: NDArray) -> None:
        """Have some of them take in those of others, around a centre, that are near enough."""
        squares, errors = _products(self.points.points[some], others.points, centre)
        _, i, j = np.intersect1d(self.points.rows[some], others.rows, True, return_indices=True)
        squares[i, j] = np.nan  # which is below no limit
        same = self.points.codes[some, None] == others.codes
        targets, impostors = (
            _limits(self._squares[2 * some + side], squares, of_side, errors)[:, None]
            for side, of_side in enumerate((same, ~same))
        )
        near = squares <= np.where(same, targets, impostors)
        i, j = np.divmod(np.flatnonzero(near), near.shape[1])  # which is faster than nonzero
        exact = rounded(pair_squares(self.points.points, some[i], others.points, j))
        self._take_in(2 * some[i] + ~same[i, j], others.rows[j], exact)

    def _take_in(self, lines: NDArray, rows: NDArray, squares: NDArray) -> None:
        """Let lines of the table keep the nearest of what they have and of these."""
        changed, line = np.unique(lines, return_inverse=True)
        shape = len(changed), self._rows.shape[1]
        self._squares[changed], self._rows[changed] = smallest(
            np.concatenate([np.repeat(np.arange(shape[0]), shape[1]), line]),
            np.concatenate([self._squares[changed].ravel(), squares]),
            np.concatenate([self._rows[changed].ravel(), rows]),
            shape,
        )


def _products(one: NDArray, other: NDArray, centre: NDArray) -> tuple[NDArray, NDArray]:
    """Squared distances, as precise as the points are; by how much those of a row may be wrong."""
    z, w = ((points - centre).astype(points.dtype, copy=False) for points in (one, other))
    sizes, others = row_squares(z), row_squares(w)
    left = np.column_stack([-2 * z, sizes, np.ones_like(sizes)])
    squares = left @ np.column_stack([w, np.ones_like(others), others]).T
    gamma = (2 * z.shape[1] + 8) * np.finfo(z.dtype).eps
    return squares, gamma * (sizes + others.max())


def _limits(known: NDArray, squares: NDArray, of_side: NDArray, errors: NDArray) -> NDArray:
    """How large squares may be that matter to those who know k so far, and how large these are."""
    limits, k = known[:, -1].copy(), known.shape[1]
    fresh = np.flatnonzero(limits == np.inf)
    if len(fresh) and squares.shape[1] > k:
        allowed = np.where(of_side[fresh], squares[fresh], np.inf)
        limits[fresh] = np.partition(allowed, k - 1, axis=1)[:, k - 1]
    limits = farthest(limits, errors).astype(squares.dtype)
    return np.nextafter(limits, squares.dtype.type(np.inf))


def _measure(
    source: Source, index: _Index, rows: NDArray, found: tuple[NDArray, ...], engine: Engine
) -> None:
    """The share of the true neighbours of a sample of rows that was found; logged or warned of."""
    chosen = np.random.default_rng(0).choice(len(rows), min(SAMPLE, len(rows)), replace=False)
    chosen.sort()
    sample, near = rows[chosen], [side[chosen] for side in found]
    known = np.setdiff1d(np.concatenate([sample, *(side.ravel() for side in near)]), [NONE])
    [points] = engine.call(_same, engine.place([Rows(source, known)]))
    parts = engine.place([Part(source, part) for part in source.parts])
    asked = points[np.searchsorted(known, sample)]
    k = tuple(side.shape[1] for side in near)
    true = engine.call(_true_squares, parts, asked, sample, index.codes, index.middle, k)
    hits, exist = [0, 0], [0, 0]
    for side, (table, squares) in enumerate(zip(near, zip(*true, strict=True), strict=True)):
        best = np.sort(np.hstack(squares), axis=1)[:, : table.shape[1]]
        i, j = np.nonzero(table != NONE)
        reached = rounded(pair_squares(asked, i, points, np.searchsorted(known, table[i, j])))
        limits = best.max(axis=1, where=best < np.inf, initial=0)
        hits[side], exist[side] = int(np.sum(reached <= limits[i])), int(np.sum(best < np.inf))
    recall = sum(hits) / sum(exist)
    logger.info(
        "cells: %.3f of the nearest neighbours of %d points were found: %d of %d targets, %d of %d "
        "impostors",
        *(recall, len(sample), hits[0], exist[0], hits[1], exist[1]),
    )
    if recall < ENOUGH:
        warn(
            f"{recall:.0%} of the nearest targets and impostors were found, by a sample of "
            f"{len(sample)} points; comparisons will be made of farther ones instead. Search "
            "exactly, or map the points to fewer features (PCA) first."
        )


def _same(points: NDArray) -> NDArray:
    return points


def _true_squares(
    part: Part,
    asked: NDArray,
    sample: NDArray,
    codes: NDArray,
    middle: NDArray,
    n_neighbors: tuple[int, int],
) -> tuple[NDArray, NDArray]:
    """Squared distances of a sample to its nearest targets and impostors in a part."""
    z = asked - middle
    points = PointsAt(asked, sample, codes[sample], z, row_squares(z))
    anchors = Anchors(points, n_neighbors)
    read = part.source.read(part.rows)
    for chunk in divided(slice(0, len(read)), max(1, BLOCK_ENTRIES // max(asked.shape))):
        here = slice(part.rows.start + chunk.start, part.rows.start + chunk.stop)
        anchors.meet(PointsAt.of(read[chunk], here, codes, middle))
    return anchors.sides[0].squares, anchors.sides[1].squares
