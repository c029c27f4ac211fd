"""Boosting of blocks: the stage-wise solver in rounds of an engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from boostmetric.eigen import leading_eigenpair
from boostmetric.engines.blocks import Block, Look, Steps, merged, merged_looks
from boostmetric.engines.engine import Engine
from boostmetric.engines.search import search
from boostmetric.losses import Loss
from boostmetric.metric import Metric
from boostmetric.operators import OPERATOR_ABOVE, symmetric_operator
from boostmetric.regularizers import Regularizer
from boostmetric.solvers import leading_of
from boostmetric.state import Fit, Iteration, Status, history_from, history_table

T = TypeVar("T")


class Rounds:
    """Blocks on an engine, and which steps they have been told.

    Parameters
    ----------
    engine : who works on them
    handles : of the blocks, as `engine.place` gave them
    loss : by which what they tell is merged
    """

    def __init__(self, engine: Engine, handles: Sequence[Any], loss: Loss) -> None:
        self._engine, self._handles, self._loss = engine, handles, loss
        self.n_blocks, self.n_rounds = len(handles), 0
        self.trail = self._told = 0

    def forget(self) -> None:
        """The next steps are others than those that were told."""
        self.trail, self._told = self.trail + 1, 0

    def look(self, fit: BlockFit, basis: NDArray | None = None, scatter: bool = True) -> Look:
        """All blocks at the metric of a fit; parameters as of `Block.look`."""
        return merged_looks(self._loss, self._ask(fit, Block.look, basis, scatter))

    def slopes(self, fit: BlockFit, direction: NDArray, coefs: NDArray) -> NDArray:
        """The sums of all blocks for coefficients of a direction, of shape (k, 7)."""
        found = self._ask(fit, Block.slopes, direction, coefs)
        return merged(self._loss, np.array(found))

    def _ask(self, fit: BlockFit, question: Callable[..., T | None], *arguments: Any) -> list[T]:
        """The answers of all blocks. One that knows less than it was told is told all."""
        self.n_rounds += 1
        steps = fit.steps(self._told)
        answers = self._engine.call(question, self._handles, steps, *arguments)
        behind = [number for number, answer in enumerate(answers) if answer is None]
        if behind:
            handles = [self._handles[number] for number in behind]
            late = self._engine.call(question, handles, fit.steps(0), *arguments)
            for number, answer in zip(behind, late, strict=True):
                answers[number] = answer
        self._told = len(fit.coefs)
        found = [answer for answer in answers if answer is not None]
        assert len(found) == len(answers)
        return found


@dataclass(eq=False)
class BlockFit(Fit):
    """A fit of blocks. Of the comparisons it knows sums only.

    `seen` is what the last round told of the metric so far.
    """

    rounds: Rounds
    regularizer: Regularizer
    shape: tuple[int, int]
    precision: np.dtype
    eigen_solver: str = "auto"
    alpha_max: float = math.nan
    tol: float = 0.0
    directions: list[NDArray] = field(default_factory=list)
    coefs: list[float] = field(default_factory=list)
    history: list[Iteration] = field(default_factory=list)
    basis: NDArray | None = None
    status: Status = Status.MAX_ITER
    is_over: bool = False
    seen: Look | None = None

    @property
    def n_features(self) -> int:
        """D."""
        return self.shape[1]

    @property
    def n_comparisons(self) -> int:
        """m."""
        return self.shape[0]

    @property
    def dtype(self) -> np.dtype:
        """The precision of the metric."""
        return self.precision

    @property
    def alpha(self) -> float:
        """The strength of the regulariser, absolute."""
        return self.regularizer.alpha

    def steps(self, first: int) -> Steps:
        """The steps so far, from one on."""
        empty = np.empty((0, self.n_features), dtype=self.dtype)
        directions = np.array(self.directions[first:], dtype=self.dtype)
        coefs = np.array(self.coefs[first:])
        return Steps(first, directions if len(directions) else empty, coefs, self.rounds.trail)

    def restart(self, metric: Metric) -> None:
        """Go back or on to another metric of the same features."""
        metric = metric.astype(self.dtype)
        self.directions, self.coefs = list(metric.directions.T), metric.coefs.tolist()
        self.seen = None
        self.rounds.forget()

    def objective(self) -> float:
        """F(ρ) + R(M)."""
        if self.seen is None:
            self.seen = self.rounds.look(self, scatter=False)
        return self.seen.value + self.regularizer.value(self.metric)

    def duality_gap(self) -> float:
        """NaN: no bound is looked for."""
        return math.nan

    def scatter(self) -> NDArray | LinearOperator:
        """Σ u_r·A_r; an operator where D is large, each product of which is a round."""
        if self.n_features <= OPERATOR_ABOVE:
            self.seen = self.rounds.look(self)
            assert self.seen.scatter is not None
            return self.seen.scatter.astype(self.dtype)

        def product(V: NDArray) -> NDArray:
            self.seen = self.rounds.look(self, V.astype(self.dtype))
            assert self.seen.scatter is not None
            return self.seen.scatter.astype(self.dtype)

        return symmetric_operator(product, self.n_features, self.dtype)

    def snapshot(self) -> dict[str, NDArray]:
        """All that the next iterations depend on, beside the problem, as arrays."""
        saved = {
            "directions": self.metric.directions,
            "coefs": np.array(self.coefs, dtype=np.float64),
            "history": history_table(self.history),
            "numbers": np.array([self.alpha, self.alpha_max]),
            "n_blocks": np.array(self.rounds.n_blocks),
        }
        return saved if self.basis is None else saved | {"basis": self.basis}

    def resume(self, saved: Mapping[str, NDArray]) -> None:
        """Go on to where a snapshot of a fit of the same problem was taken."""
        self.directions, self.coefs = list(saved["directions"].T), saved["coefs"].tolist()
        self.history = history_from(saved["history"])
        self.regularizer.alpha, self.alpha_max = map(float, saved["numbers"])
        self.basis = saved.get("basis")
        self.seen = None


def boost_rounds(
    fit: BlockFit,
    max_iter: int,
    alpha_relative: bool,
    callback: Callable[[Fit], bool] | None = None,
    resume: Mapping[str, NDArray] | None = None,
) -> BlockFit:
    """Add one direction after another, as `boosting.learn_psd` does with block_size=1.

    An iteration is one round for the scatter at the last metric, and up to three for the
    coefficient of its leading eigenvector; for more than 600 features the first of them gives a
    product with a basis instead.

    Parameters
    ----------
    fit : before the first direction, or at a metric to go on from
    max_iter : number of directions at most
    alpha_relative : whether alpha is in units that depend on the problem
    callback : called after every iteration; a true result ends the fit
    resume : what `fit.snapshot` gave in a callback of a fit of the same problem
    """
    if resume is None:
        _set_alpha(fit, alpha_relative)
    else:
        fit.resume(resume)
    began = time.perf_counter() - (fit.history[-1].seconds if fit.history else 0.0)
    while len(fit.history) < max_iter:
        status = _iterate(fit, began)
        fit.is_over = status is not None or len(fit.history) == max_iter
        if status is Status.NO_DIRECTION:
            fit.status = status
            break
        if callback is not None and callback(fit):
            status = Status.STOPPED
        if status is not None:
            fit.status = status
            break
    return fit


def _iterate(fit: BlockFit, began: float) -> Status | None:
    """Add the leading eigenvector with its best coefficient; how the fit has ended, if it has."""
    values, vectors = leading_of(fit.scatter(), fit, fit.regularizer, 1)
    lambda_max, direction = float(values[0]), vectors[:, 0]
    if lambda_max <= fit.regularizer.threshold:
        return Status.NO_DIRECTION
    found = search(
        lambda coefs: fit.rounds.slopes(fit, direction, coefs),
        *fit.regularizer.along(fit.metric, direction),
        guess=fit.history[-1].coef if fit.history else None,
        precision=max(1e-10, 8 * float(np.finfo(fit.dtype).eps)),
    )
    if found.coef == 0:
        return Status.NO_DIRECTION
    fit.directions.append(direction)
    fit.coefs.append(found.coef)
    fit.seen = Look(found.value, math.nan, found.n_violated, None)
    fit.history.append(
        Iteration(
            objective=fit.objective(),
            lambda_max=lambda_max,
            coef=found.coef,
            n_violated=found.n_violated,
            n_tried=1,
            n_evaluations=found.n_evaluations,
            duality_gap=math.nan,
            seconds=time.perf_counter() - began,
        )
    )
    return None if found.bounded else Status.UNBOUNDED


def _set_alpha(fit: BlockFit, alpha_relative: bool) -> None:
    """Find λ_max at M = 0, and make alpha absolute."""
    began_at = fit.metric
    fit.restart(Metric(np.empty((fit.n_features, 0)), np.empty(0)))
    fit.alpha_max, _ = leading_eigenpair(fit.scatter())
    assert fit.seen is not None
    if alpha_relative:
        fit.regularizer.alpha *= fit.regularizer.unit(fit.alpha_max, fit.seen.total)
    fit.restart(began_at)
