"""What blocks take of the memory of a worker, and so how many there are.

The arithmetic of the file. A block of m comparisons touches p ≤ min(n, 3·m) points of b bytes each.
While it is loaded there are two copies of them, and pairs, their order and the sums over them; from
then on one copy, the pairs, and what is known of the comparisons:

    loading = 2·p·b + 260·m + 16·D·min(D, 600),    held = p·b + 120·m.

A worker with k blocks needs at most what k − 1 of them hold and what it takes to load the last one.
Where the engine keeps on disk what does not fit, the first of the two is as much as it lets be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from boostmetric.engines.engine import Engine, EngineError
from boostmetric.engines.sources import Source
from boostmetric.operators import OPERATOR_ABOVE
from boostmetric.points import Points

LOADING, HELD = 260, 120
"""Bytes that a comparison takes at most, beside its points, while its block is loaded and later."""

PROCESS = 250_000_000
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
    (2852065536, 1336000000)
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

    def block(self, n_blocks: int) -> Size:
        """The largest that one of so many blocks can be."""
        m = -(-self.m // n_blocks)
        return Size(m, min(self.n, 3 * m), self.D, self.point)

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


def layout(engine: Engine, n_blocks: int | None, size: Size) -> int:
    """The number of blocks: as many as asked for, else one a worker, doubled until they fit.

    Raises
    ------
    EngineError
        Where a worker would need more memory than it has.
    """
    workers, memory = min(engine.n_workers, size.m), engine.memory
    number = min(n_blocks or workers, size.m)
    if memory is None:
        return number
    while not (fits := _need(engine, workers, memory, size, number) <= MOST * memory):
        if n_blocks is not None or number == size.m:
            break
        number = min(2 * number, size.m)
    if not fits:
        raise EngineError(_refusal(engine, workers, memory, size, number))
    return number


def _need(engine: Engine, workers: int, memory: int, size: Size, n_blocks: int) -> int:
    """Bytes that a worker needs at most."""
    block = size.block(n_blocks)
    held = PROCESS + (-(-n_blocks // workers) - 1) * block.held
    return block.loading + (min(held, int(KEPT * memory)) if engine.spills else held)


def _refusal(engine: Engine, workers: int, memory: int, size: Size, n_blocks: int) -> str:
    """The arithmetic, in words."""
    block, others = size.block(n_blocks), -(-n_blocks // workers) - 1
    need = _need(engine, workers, memory, size, n_blocks)
    if n_blocks < size.m:
        remedy = "Use more blocks (n_blocks), or workers with more memory"
    elif engine.spills:
        remedy = "Even one comparison a block is too much: use workers with more memory"
    else:
        remedy = "No number of blocks will do: use engine='dask', which keeps blocks on disk, or"
        remedy += " a machine with more memory"
    return (
        f"a worker needs up to {_mb(need)}, and may take {_mb(MOST * memory)}, {MOST:.0%} of what "
        f"it has. To load a block of {block.m:,} of the {size.m:,} comparisons takes "
        f"{_mb(block.loading)} (two copies of {block.n:,} points of {block.point:,} bytes, "
        f"{LOADING} bytes a comparison, and 16·D·min(D, {OPERATOR_ABOVE})); before that it has "
        f"{_mb(need - block.loading)} (a process of {_mb(PROCESS)}, and {others} other blocks of "
        f"{_mb(block.held)}{', of which some are on disk' if engine.spills else ''}). {remedy}."
    )


def _mb(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"
