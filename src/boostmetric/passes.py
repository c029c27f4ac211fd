"""Multi-pass boosting: comparisons made anew in the space that was learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.losses import NotANumberError
from boostmetric.metric import Metric
from boostmetric.state import Fit, Iteration, Outcome


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass: the points were mapped by `base`, if any, before they were compared and boosted."""

    base: NDArray | None
    fit: Outcome

    @property
    def metric(self) -> Metric:
        """The metric over the original features, all passes up to this one included."""
        return self.fit.metric if self.base is None else self.fit.metric.compose(self.base)


def boost_passes(
    X: Any,
    base: NDArray | None,
    n_passes: int,
    compare: Callable[[Any], Any],
    run: Callable[[NDArray | None, Any, Any], Fit],
    done: Sequence[Outcome] = (),
) -> Iterator[Pass]:
    """Multi-pass boosting: every pass compares and boosts in the space that the last one learned.

    Parameters
    ----------
    X : array of shape (n, D)
    base : array of shape (d, D), the transformation before the first pass, or None
    n_passes : number of passes at most
    compare : makes the comparisons of a pass from the points in its space
    run : boosts, given the base of the pass, the points in its space, and their comparisons
    done : what the first passes came to, where that is known from a fit that was interrupted

    Yields
    ------
    Pass. A pass that found no direction is the last; the metric is then that of the pass before, or
    of `base`. Where the loss returns NaN, the pass as it was before is
    yielded, and the error raised after it.
    """
    for number in range(n_passes):
        if number < len(done):
            this = Pass(base, done[number])
        else:
            points = X if base is None else X @ base.T
            try:
                this = Pass(base, run(base, points, compare(points)).outcome())
            except NotANumberError as error:
                if error.fit is not None:
                    yield Pass(base, error.fit.outcome())
                raise
        yield this
        if not this.fit.metric.n_directions:
            return
        base = this.metric.components


def completed(passes: Iterator[Pass]) -> tuple[list[Pass], NotANumberError | None]:
    """The passes, and the error that ended the last of them, if one did after an iteration."""
    done: list[Pass] = []
    try:
        done.extend(passes)
    except NotANumberError as error:
        if not any(each.fit.metric.n_directions for each in done):
            raise
        return done, error
    return done, None


def history_of(passes: list[Pass]) -> dict[str, NDArray]:
    """The iterations of several passes, as one array for each thing recorded."""
    rows = [(number, step) for number, done in enumerate(passes) for step in done.fit.history]
    recorded = [field.name for field in fields(Iteration)]
    return {
        "pass": np.array([number for number, _ in rows], dtype=np.intp),
        **{name: np.array([getattr(step, name) for _, step in rows]) for name in recorded},
    }
