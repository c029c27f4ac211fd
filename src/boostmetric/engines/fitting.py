"""A fit of comparisons in blocks, with the options of `boost`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from boostmetric.engines.boosting import BlockFit, Rounds, boost_rounds
from boostmetric.engines.choice import engine_of
from boostmetric.engines.engine import Engine, EngineError
from boostmetric.engines.recipes import Stated, recipes_of
from boostmetric.engines.sources import Source
from boostmetric.losses import Loss
from boostmetric.metric import Metric
from boostmetric.points import Points
from boostmetric.regularizers import REGULARIZERS
from boostmetric.state import Fit

COMPARISON = 260
"""Bytes that a comparison takes at most while its block is loaded, beside its points."""


def boost_in_blocks(
    X: Points | Source,
    comparisons: Stated,
    loss: Loss,
    *,
    engine: Any,
    n_blocks: int | None = None,
    solver: str = "stagewise",
    regularizer: str = "trace",
    alpha: float,
    alpha_relative: bool = True,
    max_iter: int = 500,
    tol: float | None = None,
    eigen_solver: str = "auto",
    block_size: int | None = None,
    callback: Callable[[Fit], bool] | None = None,
    start: Metric | None = None,
    resume: Mapping[str, NDArray] | None = None,
) -> BlockFit:
    """Learn a metric from comparisons of points, by the stage-wise solver on an engine.

    The result is that of `boost` with block_size=1, but for the last digits of coefficients, which
    are found by another search; it depends on the number of blocks by rounding, and on the engine
    not at all.

    Parameters
    ----------
    X : points in memory, or a `Source`, whose rows are read where they are needed
    comparisons : `Comparisons`, or a `ComparisonSource`, or the `Neighbours` of points
    engine : "serial", "threads", "dask", a `distributed.Client` or an `Engine`
    n_blocks : number of blocks; None is one for each worker of the engine
    others : as of `boost`

    Examples
    --------
    >>> import numpy as np
    >>> from boostmetric import Comparisons
    >>> from boostmetric.losses import Logistic
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> comparisons = Comparisons.from_labels(X, X[:, 0] > 0)
    >>> fit = boost_in_blocks(
    ...     X, comparisons, Logistic(), engine="threads", n_blocks=3, alpha=1e-7, max_iter=10
    ... )
    >>> fit.status.name, fit.metric.n_directions
    ('MAX_ITER', 10)
    """
    check_options(loss, solver, block_size, tol)
    if resume is not None:
        n_blocks = int(resume["n_blocks"])
    with engine_of(engine) as workers:
        n, D = X.shape
        n_blocks = layout(workers, n_blocks, len(comparisons), n, D, X.dtype.itemsize)
        handles = workers.place(list(recipes_of(X, comparisons, loss, n_blocks)))
        fit = BlockFit(
            Rounds(workers, handles, loss),
            REGULARIZERS[regularizer](alpha),
            (len(comparisons), D),
            X.dtype,
            eigen_solver,
        )
        if start is not None:
            fit.restart(start)
        return boost_rounds(fit, max_iter, alpha_relative, callback, resume)


def block_bytes(m: int, n: int, D: int, itemsize: int) -> int:
    """Bytes that a block takes at most, while it is loaded: of m comparisons of n points.

    It touches no more than 3·m points, of which it has two copies for a while; pairs, their order
    and the sums over them take 260 bytes a comparison, as measured; a scatter is D × D.
    """
    return 2 * min(n, 3 * m) * D * itemsize + COMPARISON * m + 16 * D**2


def layout(engine: Engine, n_blocks: int | None, m: int, n: int, D: int, itemsize: int) -> int:
    """The number of blocks: as many as asked for, else so many that one takes half of a worker.

    Raises
    ------
    EngineError
        Where blocks would take more than half of the memory of a worker: the other half is for
        other blocks of the worker, and for what it works with.
    """
    workers = min(engine.n_workers, m)
    if engine.memory is None:
        return min(n_blocks or workers, m)
    allowed = engine.memory // 2
    if n_blocks is None:
        n_blocks = workers
        while n_blocks < m and block_bytes(-(-m // n_blocks), n, D, itemsize) > allowed:
            n_blocks += workers
    n_blocks = min(n_blocks, m)
    size = -(-m // n_blocks)
    need = block_bytes(size, n, D, itemsize)
    if need > allowed:
        remedy = (
            "even one comparison is too much: use workers with more memory, or fewer features"
            if n_blocks == m
            else "use more blocks (n_blocks), or workers with more memory"
        )
        raise EngineError(
            f"a block of {size:,} of the {m:,} comparisons takes up to {need / 1e6:.1f} MB (two "
            f"copies of {min(n, 3 * size):,} points of {D:,} features of {itemsize} bytes, "
            f"{COMPARISON} bytes a comparison, and 16·D²), and half of the "
            f"{engine.memory / 1e6:.1f} MB of a worker is {allowed / 1e6:.1f} MB: {remedy}."
        )
    return n_blocks


def check_options(
    loss: Loss, solver: str | None, block_size: int | None, tol: float | None
) -> None:
    """Refuse what is for fits in one piece only."""
    for name, given, will_do in (
        ("loss", loss, "stagewise" in loss.solvers),
        ("solver", solver, solver in (None, "stagewise")),
        ("block_size", block_size, block_size in (None, 1)),
        ("tol", tol, not tol),
    ):
        if not will_do:
            raise ValueError(
                f"{name}={given!r} does not work with an engine, which adds one direction at a "
                f"time, stage-wise: use another {name}, or engine=None."
            )
