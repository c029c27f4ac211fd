"""Progress of a fit: the log, and scikit-learn's callbacks where this version has them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from boostmetric.metric import Metric
from boostmetric.passes import Pass
from boostmetric.state import Fit

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks: `set_callbacks` does not exist."""

    def with_callbacks(method: Any) -> Any:
        """Return the method as it is."""
        return method


__all__ = ["CallbackSupportMixin", "Monitor", "Progress", "listening", "with_callbacks"]

logger = logging.getLogger("boostmetric")


def be_heard() -> None:
    """Let the log be seen, on stderr where nobody set up logging: a notebook, a plain script."""
    logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())


@dataclass(frozen=True)
class Progress:
    """How far a fit has come: the pass, from 1, and what holds after its last iteration."""

    number: int
    n_passes: int
    n_directions: int
    max_iter: int
    objective: float
    lambda_max: float
    n_violated: int
    n_comparisons: int
    seconds: float


Listener = Callable[[Progress], bool]
"""Called after every iteration; a true result ends the fit."""

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have a function told how the fits of `BoostMetric` in this block go, and end them if it asks.

    It works with every version of scikit-learn, which its callbacks do not.

    Examples
    --------
    >>> from boostmetric import BoostMetric
    >>> from sklearn.datasets import load_iris
    >>> with listening(lambda progress: progress.n_directions == 3):
    ...     BoostMetric().fit(*load_iris(return_X_y=True)).status_.name
    'STOPPED'
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


class Monitor:
    """Tells the log and scikit-learn's callbacks of an estimator how a fit goes.

    Parameters
    ----------
    estimator : the one that is fitted, with `verbose` (0 is silent, 1 logs every
        tenth iteration and the end of a pass, 2 every iteration)
    attributes : gives those attributes of the estimator that a metric over its features determines
    n_passes : number of passes at most
    n_done : number of passes that were done before
    fit_data : X, y and metadata as scikit-learn's callbacks take them
    """

    def __init__(
        self,
        estimator: Any,
        attributes: Callable[[Metric], dict[str, Any]],
        n_passes: int,
        fit_data: dict[str, Any],
        n_done: int = 0,
    ) -> None:
        self._estimator, self._attributes, self._fit_data = estimator, attributes, fit_data
        self._n_passes = n_passes
        self._listener = _LISTENER.get()
        self._root: Any = None
        self._pass: Any = None
        self._n_begun = n_done
        self.stopped = False
        if hasattr(estimator, "_init_callback_context"):
            self._root = estimator._init_callback_context(max_subtasks=n_passes)
            self._root.call_on_fit_task_begin(estimator=estimator, **fit_data)
        if estimator.verbose > 0:
            be_heard()

    def begin_pass(self, n_iterations: int) -> None:
        """A pass of so many iterations at most begins."""
        self._n_begun += 1
        if self._root is not None:
            self._pass = self._root.subcontext(task_name="pass", max_subtasks=n_iterations)
            self._pass.call_on_fit_task_begin(estimator=self._estimator, **self._fit_data)

    def iteration(self, base: NDArray | None, fit: Fit) -> bool:
        """An iteration of a pass on the image of `base` is done; whether the fit is to end."""
        verbose = self._estimator.verbose
        done = fit.history[-1]
        if verbose > 1 or (verbose == 1 and len(fit.history) % 10 == 0):
            logger.info(
                "pass %d  iteration %d  objective %.6g  lambda_max %.3g  violated %d of %d  %.1f s",
                self._n_begun,
                len(fit.history),
                done.objective,
                done.lambda_max,
                done.n_violated,
                fit.n_comparisons,
                done.seconds,
            )
        if self._listener is not None:
            self.stopped |= bool(self._listener(self._progress(fit)))
        if self._root is None:
            return self.stopped
        context = self._pass.subcontext(task_name="iteration")
        context.call_on_fit_task_begin(estimator=self._estimator, **self._fit_data)
        asked = context.call_on_fit_task_end(
            estimator=self._estimator,
            # Only called for a callback that asks for a fitted estimator.
            reconstruction_attributes=lambda: self._attributes(Pass(base, fit.outcome()).metric),
            **self._fit_data,
        )
        self.stopped |= bool(asked)
        return self.stopped

    def _progress(self, fit: Fit) -> Progress:
        done = fit.history[-1]
        return Progress(
            number=self._n_begun,
            n_passes=self._n_passes,
            n_directions=fit.n_tried,
            max_iter=self._estimator.max_iter,
            objective=done.objective,
            lambda_max=done.lambda_max,
            n_violated=done.n_violated,
            n_comparisons=fit.n_comparisons,
            seconds=done.seconds,
        )

    def end_pass(self, fit: Fit) -> None:
        """A pass has ended."""
        if self._estimator.verbose > 0:
            n_iter = len(fit.history)
            logger.info("pass %d ended after %d iterations: %s", self._n_begun, n_iter, fit.status)
        if self._pass is not None:
            self._pass.call_on_fit_task_end(estimator=self._estimator, **self._fit_data)

    def end(self) -> None:
        """The fit has ended, and the estimator has its attributes."""
        if self._root is not None:
            self._root.call_on_fit_task_end(estimator=self._estimator, **self._fit_data)
