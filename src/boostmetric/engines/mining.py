"""Nearest targets and impostors of points that need not be in memory, exactly.

The mathematics of the file. Neighbours are ranked as in `boostmetric.mining`, and looked for as in
`boostmetric.blockwise`, with ‖x‖² + ‖x'‖² − 2·xᵀx' of points less the mean of all. Anchors, the
points whose neighbours are looked for, are taken a part at a time, and meet all points one after
another. An anchor keeps its k nearest so far; only a point that may be nearer than the last of them
is looked at closely. So what is held is a part of anchors, a part of others, and one block of
distances; what the result is depends on none of these.

Equal points of one label are found by a digest of their bytes, 128 bits long: that two different
ones of n points have the same has probability n²/2¹²⁹.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from boostmetric.blockwise import (
    BLOCK_ENTRIES,
    farthest,
    likely_nearest,
    pair_squares,
    product_error,
    row_squares,
    smallest,
)
from boostmetric.engines.engine import Engine
from boostmetric.engines.sources import Source
from boostmetric.mining import NONE, rounded
from boostmetric.points import check_range

ANCHORS = 4096
"""Anchors at most that go over all points together."""

SHARES = 4
"""Parts of anchors for each worker at least, so that none waits long for the last one."""

DIGEST = 16
"""Bytes of a digest."""


def mine(
    source: Source, labels: NDArray, n_targets: int, n_impostors: int, engine: Engine
) -> tuple[NDArray, NDArray]:
    """For every point its nearest points of the same label and of the other labels.

    Exactly those of `boostmetric.mining.nearest_targets_and_impostors`, whatever the engine and
    the parts of the source.

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

    Notes
    -----
    O(n²·D) time, of which a worker takes its share; every part of `ANCHORS` points reads the source
    once. Where results are gathered memory is O(n·(n_targets + n_impostors)).

    Examples
    --------
    >>> from boostmetric.engines.engine import Serial
    >>> from boostmetric.engines.sources import as_source
    >>> source = as_source(np.array([[0.0], [1.0], [1.0], [5.0], [7.0]]))
    >>> targets, impostors = mine(source, np.array([0, 0, 0, 1, 1]), 2, 1, Serial())
    >>> targets.tolist()
    [[1, -1], [0, -1], [0, -1], [4, -1], [3, -1]]
    >>> impostors.ravel().tolist()
    [3, 3, 3, 1, 1]
    """
    n, _ = source.shape
    check_search(n, labels, n_targets, n_impostors)
    surveys = engine.call(surveyed, engine.place([Part(source, rows) for rows in source.parts]))
    centre = mean_of(surveys, source)
    digests = np.concatenate([survey.digests for survey in surveys])
    codes, stand_in = distinct(digests, np.unique(labels, return_inverse=True)[1].reshape(-1))
    size = min(ANCHORS, -(-n // (SHARES * engine.n_workers)))
    parts = [Part(source, rows) for part in source.parts for rows in divided(part, size)]
    found = engine.call(_neighbours, engine.place(parts), codes, centre, (n_targets, n_impostors))
    targets, impostors = (np.concatenate(side)[stand_in] for side in zip(*found, strict=True))
    return targets, impostors


def check_search(n: int, labels: NDArray, n_targets: int, n_impostors: int) -> None:
    """Raise a ValueError unless n points have labels, and neighbours are to be looked for."""
    if labels.shape != (n,):
        raise ValueError(f"{n} labels are needed, one for each point; got shape {labels.shape}.")
    for name, number in (("n_targets", n_targets), ("n_impostors", n_impostors)):
        if number < 1:
            raise ValueError(f"{name}={number} will not do: at least 1 is needed.")


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive rows of a source, which are read only while they are worked on."""

    source: Source
    rows: slice

    def load(self) -> Part:
        """Itself: a block that takes no memory."""
        return self


@dataclass(frozen=True, eq=False)
class Survey:
    """What is to be known of a part before the search: digests of the rows, and their range."""

    digests: NDArray
    total: NDArray
    low: NDArray
    high: NDArray


def surveyed(part: Part) -> Survey:
    """A part, looked at once."""
    points = part.source.read(part.rows) + part.source.dtype.type(0)  # makes −0 to 0
    digests = b"".join(blake2b(point, digest_size=DIGEST).digest() for point in points)
    with np.errstate(over="ignore"):  # which is refused, once all parts are known
        total = points.sum(axis=0, dtype=np.float64)
    known = np.frombuffer(digests, dtype=f"V{DIGEST}")
    return Survey(known, total, points.min(axis=0), points.max(axis=0))


def mean_of(surveys: list[Survey], source: Source) -> NDArray:
    """The mean of all points; raises a ValueError where squares would leave the range."""
    low = np.min([survey.low for survey in surveys], axis=0)
    high = np.max([survey.high for survey in surveys], axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.sum([survey.total for survey in surveys], axis=0) / source.shape[0]
        centre = np.clip(mean, low, high)  # of equal points the rounded mean may be another
        check_range(np.stack([low - centre, high - centre]).astype(source.dtype))
    return centre


def distinct(digests: NDArray, codes: NDArray) -> tuple[NDArray, NDArray]:
    """The labels of points that are the first of their kind, and for each point which of them.

    Returns
    -------
    codes : array of shape (n,), `NONE` for a point that an earlier one stands for
    stand_in : array of shape (n,), positions among those that are no such points
    """
    keys = np.empty(len(codes), dtype=[("digest", digests.dtype), ("code", np.int64)])
    keys["digest"], keys["code"] = digests, codes
    _, first, inverse = np.unique(
        keys.view(f"V{keys.dtype.itemsize}"), return_index=True, return_inverse=True
    )
    marked = np.full(len(codes), NONE, dtype=np.min_scalar_type(-1 - int(codes.max())))
    marked[first] = codes[first]
    return marked, np.argsort(np.argsort(first))[inverse.reshape(-1)]


def divided(rows: slice, size: int) -> Iterator[slice]:
    """Rows in slices of at most so many."""
    for begin in range(rows.start, rows.stop, size):
        yield slice(begin, min(begin + size, rows.stop))


def _neighbours(
    part: Part, codes: NDArray, centre: NDArray, n_neighbors: tuple[int, int]
) -> tuple[NDArray, NDArray]:
    """Targets and impostors of the points of a part that no earlier one stands for."""
    source = part.source
    anchors = Anchors(PointsAt.of(source.read(part.rows), part.rows, codes, centre), n_neighbors)
    if len(anchors.points.rows) == 0:
        return anchors.sides[0].rows, anchors.sides[1].rows
    width = max(1, BLOCK_ENTRIES // max(anchors.points.points.shape))
    # Rows that are stored together tend to be near each other: limits are narrow soon.
    for rows in sorted(source.parts, key=lambda rows: rows.stop <= part.rows.start):
        points = source.read(rows)
        for chunk in divided(slice(0, len(points)), width):
            here = slice(rows.start + chunk.start, rows.start + chunk.stop)
            anchors.meet(PointsAt.of(points[chunk], here, codes, centre))
    return anchors.sides[0].rows, anchors.sides[1].rows


@dataclass(frozen=True, eq=False)
class PointsAt:
    """Points with their row numbers and labels, z = x less the centre, and ‖z‖²."""

    points: NDArray
    rows: NDArray
    codes: NDArray
    z: NDArray
    sizes: NDArray

    @classmethod
    def of(cls, points: NDArray, rows: slice, codes: NDArray, centre: NDArray) -> PointsAt:
        """Those of consecutive rows that no earlier one stands for."""
        known = np.flatnonzero(codes[rows] != NONE)
        if len(known) < len(points):
            points = points[known]
        z = points - centre
        return cls(points, rows.start + known, codes[rows][known], z, row_squares(z))


class Nearest:
    """The k nearest so far of n anchors: tables of squares and row numbers, nearest first."""

    def __init__(self, n: int, k: int) -> None:
        self.squares = np.full((n, k), np.inf)
        self.rows = np.full((n, k), NONE, dtype=np.intp)


class Anchors:
    """A part of anchors, and the targets (side 0) and impostors (side 1) that they have so far."""

    def __init__(self, points: PointsAt, n_neighbors: tuple[int, int]) -> None:
        self.points = points
        # A product with (z', 1, ‖z'‖²) is a squared distance.
        self._left = np.column_stack([-2 * points.z, points.sizes, np.ones(len(points.rows))])
        self.sides = tuple(Nearest(len(points.rows), k) for k in n_neighbors)

    def meet(self, others: PointsAt) -> None:
        """Take in those of other points that are nearer than the last."""
        if len(others.rows) == 0:
            return
        anchors = self.points
        right = np.column_stack([others.z, np.ones(len(others.rows)), others.sizes])
        squares = self._left @ right.T
        _, i, j = np.intersect1d(anchors.rows, others.rows, True, return_indices=True)
        squares[i, j] = np.inf
        errors = product_error(2 * anchors.points.shape[1]) * (anchors.sizes + others.sizes.max())
        same = anchors.codes[:, None] == others.codes
        for side, of_side in zip(self.sides, (same, ~same), strict=True):
            near = squares <= farthest(side.squares[:, -1], errors)[:, None]
            near &= of_side
            chosen = np.flatnonzero(near.any(axis=1))
            if len(chosen):
                candidates = np.where(near[chosen], squares[chosen], np.inf)
                self._take_in(side, chosen, others, candidates, errors[chosen])

    def _take_in(
        self, side: Nearest, chosen: NDArray, others: PointsAt, squares: NDArray, errors: NDArray
    ) -> None:
        """Let chosen anchors keep the nearest of those they have and of others."""
        k = side.rows.shape[1]
        i, j = likely_nearest(squares, errors, k)
        near = rounded(pair_squares(self.points.points, chosen[i], others.points, j))
        side.squares[chosen], side.rows[chosen] = smallest(
            np.concatenate([np.repeat(np.arange(len(chosen)), k), i]),
            np.concatenate([side.squares[chosen].ravel(), near]),
            np.concatenate([side.rows[chosen].ravel(), others.rows[j]]),
            (len(chosen), k),
        )
