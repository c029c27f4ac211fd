"""Blocks of comparisons: what is computed of each, and how that of all follows.

The mathematics of the file. With the comparisons in blocks b, F(ρ) is made of the values F_b, and
the duals of all are those of each block times its share s_b (`Loss.merge`: for a sum of terms
s_b = 1, for a log-sum-exp s_b = exp(F_b − F)). All that an iteration needs is linear in the duals:

    scatter Σ u_r·A_r = Σ_b s_b·(scatter of b),    slope Σ u_r·h_r = Σ_b s_b·(slope of b),

so a block returns its value and such sums, and the sums of all are taken in the order of blocks.

A block is at a metric after so many *steps*, each a direction and its coefficient. Its margins are
those of the last step plus coefficient times response, and a block that knows nothing yet takes all
steps one after another, in the same arithmetic: whoever computes it gets the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.losses import Loss
from boostmetric.problem import Problem

CHUNK = 1 << 16
"""Comparisons whose duals are computed at a time for several coefficients, so that they stay in the
cache."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of a fit that follow on `first` others: directions, of shape (k, D), and coefficients.

    Those of one `trail` follow on each other; another number is another beginning.

    >>> Steps(3, np.eye(2), np.ones(2)).last
    5
    """

    first: int
    directions: NDArray
    coefs: NDArray
    trail: int = 0

    @property
    def last(self) -> int:
        """The number of steps with these."""
        return self.first + len(self.coefs)


@dataclass(frozen=True, eq=False)
class Look:
    """A block, or all of them, at a metric.

    Attributes
    ----------
    value : F
    total : Σ|u_r|
    n_violated : comparisons whose margin is not positive
    scatter : Σ u_r·A_r, or its product with a basis; None where neither was asked for
    """

    value: float
    total: float
    n_violated: int
    scatter: NDArray | None


class Block:
    """A problem that is a part of a larger one, and where it is at.

    What it remembers are margins and responses, which depend on the problem and the steps alone.

    Parameters
    ----------
    problem : operator, loss, gaps and weights of the part; its regulariser plays no part
    n_bytes : what it holds in memory, by which Dask knows what it costs to keep or to move
    """

    def __init__(self, problem: Problem, n_bytes: int = 0) -> None:
        self.problem, self._n_bytes = problem, n_bytes
        self._lock = Lock()
        self._n_steps = self._trail = 0
        self._margins: NDArray | None = None
        self._response: tuple[NDArray, NDArray] | None = None
        self._valued: tuple[float, NDArray] | None = None

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # Dask may move a block, or put it on disk, while a thread works on it
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()

    def __sizeof__(self) -> int:
        return self._n_bytes

    def look(self, steps: Steps, basis: NDArray | None = None, scatter: bool = True) -> Look | None:
        """The block after these steps; None if it is not at the first of them, and needs them all.

        Parameters
        ----------
        steps : the last ones, or all
        basis : array of shape (D, k), to multiply the scatter by; None for the matrix itself
        scatter : whether to compute one of them
        """
        with self._lock:
            if not self._follow(steps):
                return None
            value, duals = self._value_and_duals()
            operator, found = self.problem.operator, None
            if scatter and basis is None:
                found = operator.scatter_matrix(duals)
            elif scatter:
                found = operator.scatter(duals) @ basis
            total = float(np.abs(duals).sum(dtype=np.float64))
            return Look(value, total, int(np.count_nonzero(self.margins <= 0)), found)

    def slopes(self, steps: Steps, direction: NDArray, coefs: NDArray) -> NDArray | None:
        """Sums at ρ + w·h for coefficients w of a direction, of shape (k, 7); None as from `look`.

        They are F, the number of violated comparisons, Σ u·h, Σ|u·h| and, at w = 0 only, Σ|u|,
        Σ|u|·h·max(h, 0) and Σ|u|·h·min(h, 0).
        """
        with self._lock:
            if not self._follow(steps):
                return None
            responses = self._responses(direction)
            sums, moved = np.zeros((len(coefs), 7)), coefs != 0
            if not moved.all():
                sums[~moved] = self._sums_here(responses)
            if moved.any():
                found = [self._sums_along(responses, coefs[moved], part) for part in self._chunks()]
                sums[moved] = merged(self.problem.loss, np.array(found))
            return sums

    def _sums_along(
        self, responses: NDArray, coefs: NDArray, part: slice
    ) -> list[tuple[float, ...]]:
        """What `slopes` has at w ≠ 0, for some comparisons."""
        loss, weights = self.problem.loss, self.problem.weights
        c = None if weights is None else weights[part]
        return [_sums(loss, self.margins[part], responses[part], c, w) for w in coefs]

    def _sums_here(self, responses: NDArray) -> NDArray:
        """What `slopes` has at w = 0."""
        value, duals = self._value_and_duals()
        n_violated = np.count_nonzero(self.margins <= 0)
        found = np.array([_sums_of_duals(duals[part], responses[part]) for part in self._chunks()])
        return np.array([value, n_violated, *found.sum(axis=0)])

    def _chunks(self) -> Iterator[slice]:
        m = self.problem.operator.n_matrices
        return (slice(begin, begin + CHUNK) for begin in range(0, m, CHUNK))

    @property
    def margins(self) -> NDArray:
        """ρ after the steps that were taken."""
        if self._margins is None:
            operator = self.problem.operator
            zeros = np.zeros(operator.n_matrices, dtype=operator.dtype)
            self._margins = self.problem.less_gaps(zeros)
        return self._margins

    def _follow(self, steps: Steps) -> bool:
        """Take the steps, unless it is not known what came before them."""
        known = self._n_steps if steps.trail == self._trail else 0
        if steps.first and not steps.first <= known <= steps.last:
            return False
        if known > steps.last or steps.trail != self._trail:
            self._n_steps, self._margins, self._valued = 0, None, None
            self._trail = steps.trail
        for number in range(self._n_steps - steps.first, len(steps.coefs)):
            responses = self._responses(steps.directions[number])
            coef = self.problem.operator.dtype.type(steps.coefs[number])
            self._margins = self.margins + coef * responses
            self._n_steps, self._valued = self._n_steps + 1, None
        return True

    def _responses(self, direction: NDArray) -> NDArray:
        """Those of a direction, remembered until another one is asked for."""
        if self._response is None or not np.array_equal(self._response[0], direction):
            self._response = direction, self.problem.operator.responses(direction)
        return self._response[1]

    def _value_and_duals(self) -> tuple[float, NDArray]:
        if self._valued is None:
            self._valued = self.problem.value_and_duals(self.margins)
        return self._valued


def merged(loss: Loss, sums: NDArray) -> NDArray:
    """The sums of all from those of parts, of shape (parts, k, 7), as `Block.slopes` has them.

    >>> from boostmetric.losses import Exponential
    >>> parts = np.array([[[0.0, 5, 1.0]], [[0.0, 2, 3.0]]])
    >>> merged(Exponential(), parts).round(3).tolist()  # of equal weight: log 2, and the mean
    [[0.693, 7.0, 2.0]]
    """
    found = np.empty(sums.shape[1:])
    for number, each in enumerate(np.moveaxis(sums, 1, 0)):
        found[number, 0], shares = loss.merge(each[:, 0])
        found[number, 1] = each[:, 1].sum()
        found[number, 2:] = shares @ each[:, 2:]
    return found


def merged_looks(loss: Loss, looks: list[Look]) -> Look:
    """All blocks at a metric, from each of them."""
    value, shares = loss.merge(np.array([look.value for look in looks]))
    scatter = None
    if looks[0].scatter is not None:
        scatter = np.zeros(looks[0].scatter.shape)
        for share, look in zip(shares, looks, strict=True):
            scatter += share * look.scatter
    return Look(
        value,
        float(shares @ [look.total for look in looks]),
        sum(look.n_violated for look in looks),
        scatter,
    )


def _sums(
    loss: Loss, margins: NDArray, responses: NDArray, weights: NDArray | None, coef: float
) -> tuple[float, ...]:
    """What `Block.slopes` has of one coefficient, for some comparisons."""
    moved = responses * margins.dtype.type(coef)
    moved += margins
    n_violated = float(np.count_nonzero(moved <= 0))
    value, duals = loss.value_and_duals(moved, weights)
    net = float(np.dot(duals, responses))
    # With np.dot, unlike with @, other threads can go on.
    absolute = float(np.dot(np.abs(duals, out=duals), np.abs(responses, out=moved)))
    return value, n_violated, net, absolute, 0.0, 0.0, 0.0


def _sums_of_duals(duals: NDArray, responses: NDArray) -> list[float]:
    """Σ u·h, Σ|u·h|, Σ|u|, Σ|u|·h·max(h, 0) and Σ|u|·h·min(h, 0)."""
    sizes = np.abs(duals)
    curved = sizes * responses
    return [
        float(np.dot(duals, responses)),
        float(np.dot(sizes, np.abs(responses))),
        float(sizes.sum(dtype=np.float64)),
        float(np.dot(curved, np.maximum(responses, 0))),
        float(np.dot(curved, np.minimum(responses, 0))),
    ]
