"""Progress of a fit: the log, listeners, and the callbacks of scikit-learn 1.9 and later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from boostmetric.metric import Metric
from boostmetric.solvers import Boosting, Outcome

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Replacement without `set_callbacks`."""

    def with_callbacks(method: Any) -> Any:
        """Return the method unchanged."""
        return method


__all__ = [
    "CallbackSupportMixin",
    "Monitor",
    "Progress",
    "is_interrupted",
    "listening",
    "logger",
    "show_log",
    "with_callbacks",
]

logger = logging.getLogger("boostmetric")


def show_log() -> None:
    """Make the log visible: on stderr if logging is not configured, as in most scripts."""
    logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())


@dataclass(frozen=True)
class Progress:
    """State of a fit after a step; passes are numbered from 1."""

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
"""Called after every step; a true result ends the fit. If it has an attribute `interrupted`, the
attribute is read before every evaluation, and a true value ends the fit in the middle of a step. If
it has a method `begin_pass`, the method is called with the number of the pass and the number of
passes before the search for neighbors, which may take longer than the steps."""

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call a function after every step of the `BoostMetric` fits in this `with` block.

    If it returns a true value, the fit ends and keeps the metric learned so far. Unlike
    scikit-learn's callbacks, this works with every version of scikit-learn.

    Examples
    --------
    >>> from boostmetric import BoostMetric
    >>> from sklearn.datasets import load_iris
    >>> with listening(lambda progress: progress.n_directions == 3):
    ...     BoostMetric(directions_per_step=1).fit(*load_iris(return_X_y=True)).status_.name
    'STOPPED'
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def is_interrupted() -> bool:
    """Whether the listener, if there is one, wants the current fit to end."""
    return bool(getattr(_LISTENER.get(), "interrupted", False))


class SilentMonitor:
    """The monitor of fits that are not reported, such as those that verify another one."""

    stopped = False

    def begin_pass(self, base: NDArray | None) -> None:
        """Do nothing."""

    def end_pass(self, outcome: Outcome) -> None:
        """Do nothing."""

    def is_interrupted(self) -> bool:
        """Whether the listener wants the fit to end."""
        return is_interrupted()

    def __call__(self, fit: Boosting) -> bool:
        """Return whether the fit is to end."""
        return is_interrupted()


class Monitor:
    """Reports a fit to the log, to the listener and to scikit-learn's callbacks.

    Parameters
    ----------
    estimator : the estimator that is fitted. Its `verbose` is 0 (silent), 1 (log every tenth step
        and the end of a pass) or 2 (every step)
    attributes : returns the attributes of the estimator for a metric over its features
    n_passes, max_iter : maximum number of passes, and of directions per pass
    n_done : number of passes in the checkpoint
    fit_data : X, y and metadata in the form that scikit-learn's callbacks expect

    Attributes
    ----------
    stopped : whether the listener or a callback has ended the fit
    """

    def __init__(
        self,
        estimator: Any,
        attributes: Callable[[Metric], dict[str, Any]],
        n_passes: int,
        max_iter: int,
        n_done: int,
        fit_data: dict[str, Any],
    ) -> None:
        self._estimator, self._attributes = estimator, attributes
        self._n_passes, self._max_iter, self._number = n_passes, max_iter, n_done
        self._base: NDArray | None = None
        self._listener = _LISTENER.get()
        self._call: dict[str, Any] = {"estimator": estimator, **fit_data}
        self._root: Any = None
        self._pass: Any = None
        self.stopped = False
        if hasattr(estimator, "_init_callback_context"):
            self._root = estimator._init_callback_context(max_subtasks=n_passes)
            self._root.call_on_fit_task_begin(**self._call)
        if estimator.verbose > 0:
            show_log()

    def is_interrupted(self) -> bool:
        """Whether the listener wants the fit to end now, in the middle of a step."""
        self.stopped |= bool(getattr(self._listener, "interrupted", False))
        return self.stopped

    def begin_pass(self, base: NDArray | None) -> None:
        """Begin a pass on points that `base` has transformed."""
        self._number, self._base, self._pass = self._number + 1, base, None
        begin = getattr(self._listener, "begin_pass", None)
        if begin is not None:
            begin(self._number, self._n_passes)

    def __call__(self, fit: Boosting) -> bool:
        """Report a step; return whether the fit is to end."""
        verbose, step = self._estimator.verbose, fit.history[-1]
        if verbose > 1 or (verbose == 1 and len(fit.history) % 10 == 0):
            logger.info(
                "pass %d  iteration %d  objective %.6g  lambda_max %.3g  violated %d of %d  %.1f s",
                self._number,
                len(fit.history),
                step.objective,
                step.lambda_max,
                step.n_violated,
                fit.n_comparisons,
                step.seconds,
            )
        if self._listener is not None:
            progress = Progress(
                number=self._number,
                n_passes=self._n_passes,
                n_directions=fit.n_tried,
                max_iter=self._max_iter,
                objective=step.objective,
                lambda_max=step.lambda_max,
                n_violated=step.n_violated,
                n_comparisons=fit.n_comparisons,
                seconds=step.seconds,
            )
            self.stopped |= bool(self._listener(progress))
        if self._root is not None:
            if self._pass is None:  # a step tries at least one direction
                self._pass = self._root.subcontext(task_name="pass", max_subtasks=self._max_iter)
                self._pass.call_on_fit_task_begin(**self._call)
            context = self._pass.subcontext(task_name="iteration")
            context.call_on_fit_task_begin(**self._call)
            base = self._base
            self.stopped |= bool(
                context.call_on_fit_task_end(
                    # Only called for a callback that requires a fitted estimator.
                    reconstruction_attributes=lambda: self._attributes(
                        fit.metric if base is None else fit.metric.compose(base)
                    ),
                    **self._call,
                )
            )
        return self.stopped

    def end_pass(self, outcome: Outcome) -> None:
        """Report the end of a pass."""
        if self._estimator.verbose > 0:
            n_iter, status = len(outcome.history), outcome.status
            logger.info("pass %d ended after %d iterations: %s", self._number, n_iter, status)
        if self._pass is not None:
            self._pass.call_on_fit_task_end(**self._call)

    def end(self) -> None:
        """Report the end of the fit, when the estimator has its attributes."""
        if self._root is not None:
            self._root.call_on_fit_task_end(**self._call)
