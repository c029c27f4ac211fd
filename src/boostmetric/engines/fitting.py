"""A fit of comparisons in blocks, with the options of `boost`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from numpy.typing import NDArray

from boostmetric.engines.boosting import BlockFit, Rounds, boost_rounds
from boostmetric.engines.choice import engine_of
from boostmetric.engines.memory import Size, layout
from boostmetric.engines.recipes import Stated, most_touched, recipes_of
from boostmetric.engines.sources import Source
from boostmetric.losses import Loss
from boostmetric.metric import Metric
from boostmetric.points import Points
from boostmetric.regularizers import REGULARIZERS
from boostmetric.state import Fit


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
    n_blocks : number of blocks; None is one for each worker of the engine, or more if need be
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
        n_touched = partial(most_touched, workers, comparisons)
        n_blocks = layout(workers, n_blocks, Size.of(X, len(comparisons)), n_touched)
        handles = workers.place(list(recipes_of(X, comparisons, loss, n_blocks)))
        fit = BlockFit(
            Rounds(workers, handles, loss),
            REGULARIZERS[regularizer](alpha),
            (len(comparisons), X.shape[1]),
            X.dtype,
            eigen_solver,
        )
        if start is not None:
            fit.restart(start)
        return boost_rounds(fit, max_iter, alpha_relative, callback, resume)


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
