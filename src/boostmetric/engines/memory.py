"""What blocks take of the memory of a worker, and so how many there are.

The arithmetic of the file. A block of m comparisons touches p ≤ min(n, 3·m) points of b bytes each.
While it is loaded there are two copies of them, and pairs, their order and the sums over them; from
then on one copy, the pairs, and what is known of the comparisons:

    loading = 2·p·b + 260·m + 16·D·min(D, 600),    held = p·b + 170·m.

A worker with k blocks needs at most what k − 1 of them hold and what it takes to load the last one.
Where the engine keeps on disk what does not fit, the first of the two is as much as it lets be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from boostmetric.engines.engine import Engine, EngineError
from boostmetric.engines.sources import Source
from boostmetric.operators import OPERATOR_ABOVE
from boostmetric.points import Points

LOADING, HELD = 260, 170
"""Bytes that a comparison takes at most, beside its points, while its block is loaded and later."""

PROCESS = 350_000_000
"""Bytes of a worker that has no block yet: Python, and the libraries that it has loaded."""

KEPT, MOST = 0.7, 0.95
"""Shares of its memory above which a worker of Dask puts blocks on disk, and is ended."""


@dataclass(frozen=True)
class Size:
    """That of a problem, or of a block of it.

    Attributes
    ----------
    m, n, D : numbers of comparisons, points and features
    point : bytes of a point

    Examples
    --------
    >>> whole = Size(m=9_000_000, n=1_000_000, D=64, point=256)
    >>> whole.loading, whole.held
    (2852065536, 1786000000)
    >>> whole.block(100).n
    270000
    """

    m: int
    n: int
    D: int
    point: int

    @classmethod
    def of(cls, X: Points | Source, m: int) -> Size:
        """That of m comparisons of given points; of sparse ones the average counts."""
        n, D = X.shape
        if isinstance(X, Source | np.ndarray):
            return cls(m, n, D, D * X.dtype.itemsize)
        return cls(m, n, D, -(-X.size // n) * (X.dtype.itemsize + X.indices.itemsize))

    def block(self, n_blocks: int, n_touched: int | None = None) -> Size:
        """One of so many blocks, the largest that it can be or one that touches so many points."""
        m = -(-self.m // n_blocks)
        return replace(self, m=m, n=min(self.n, 3 * m) if n_touched is None else n_touched)

    @property
    def loading(self) -> int:
        """Bytes while it is loaded."""
        return (
            2 * self.n * self.point + LOADING * self.m + 16 * self.D * min(self.D, OPERATOR_ABOVE)
        )

    @property
    def held(self) -> int:
        """Bytes from then on."""
        return self.n * self.point + HELD * self.m


def layout(
    engine: Engine,
    n_blocks: int | None,
    size: Size,
    n_touched: Callable[[int], int] | None = None,
) -> int:
    """The number of blocks: as many as asked for, else one a worker, doubled until they fit.

    Parameters
    ----------
    engine : who works on them
    n_blocks : how many are asked for, or None
    size : of the whole problem
    n_touched : from a number of blocks to that of points which one of them touches at most. That
        takes a while, and is asked for where blocks may be too large otherwise

    Raises
    ------
    EngineError
        Where a worker would need more memory than it has.
    """
    workers, memory = min(engine.n_workers, size.m), engine.memory
    number = min(n_blocks or workers, size.m)
    if memory is None:
        return number
    while True:
        worker = _Worker(memory, engine.spills, -(-number // workers), size.block(number))
        if n_touched is not None and not worker.suffices and worker.without_points.suffices:
            worker = replace(worker, block=size.block(number, n_touched(number)))
        if worker.suffices:
            return number
        if n_blocks is not None or number == size.m:
            raise EngineError(worker.refusal(size.m))
        number = min(2 * number, size.m)


@dataclass(frozen=True)
class _Worker:
    """One with some memory, and blocks of one size."""

    memory: int
    spills: bool
    n_blocks: int
    block: Size

    @property
    def without_points(self) -> _Worker:
        """The same, if points took nothing."""
        return replace(self, block=replace(self.block, point=0))

    @property
    def kept(self) -> int:
        """Bytes before the last block is loaded."""
        held = PROCESS + (self.n_blocks - 1) * self.block.held
        return min(held, int(KEPT * self.memory)) if self.spills else held

    @property
    def suffices(self) -> bool:
        """Whether it has enough memory."""
        return self.kept + self.block.loading <= MOST * self.memory

    def refusal(self, m: int) -> str:
        """The arithmetic in words, for m comparisons in all."""
        block, where = self.block, ", of which some are on disk" if self.spills else ""
        others = f", and {self.n_blocks - 1} other blocks of {_mb(block.held)}{where}"
        if block.m > 1:
            remedy = "Use more blocks (n_blocks), or workers with more memory"
        elif self.spills:
            remedy = "Even one comparison a block is too much: use workers with more memory"
        else:
            remedy = (
                "No number of blocks will do: use engine='dask', which keeps blocks on disk, or a "
                "machine with more memory"
            )
        return (
            f"a worker needs up to {_mb(self.kept + block.loading)}, and may take "
            f"{_mb(MOST * self.memory)}, {MOST:.0%} of what it has. To load a block of "
            f"{block.m:,} of the {m:,} comparisons takes {_mb(block.loading)} (two copies of "
            f"{block.n:,} points of {block.point:,} bytes, {LOADING} bytes a comparison, and "
            f"16·D·min(D, {OPERATOR_ABOVE})); before that it has {_mb(self.kept)} (a process of "
            f"{_mb(PROCESS)}{others if self.n_blocks > 1 else ''}). {remedy}."
        )


def _mb(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"
