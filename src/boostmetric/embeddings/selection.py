"""Choice of the strength by cross-validation, with the identity as a candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from boostmetric.embeddings.search import Maps
from boostmetric.embeddings.training import Training

MIN_STANDARD_ERRORS = 2.2
"""A gain must exceed this many standard errors.

Gains of different folds are not independent, because each fold is also used to learn. If there is
nothing to learn, and r_j is the sum of the chance correlations in fold j, the gain is about
Σ_j r_j·Σ_{i≠j} r_i, in which each product appears twice: its variance is up to twice that of
independent queries. With shuffled labels and judgments, standardized gains had a standard deviation
of 1.07 to 1.10 (200 seeds each), for which 2.2 is exceeded with a probability of 2 %."""

Listener = Callable[[int, int], None]
"""Receives the number of finished folds and the number of all folds."""

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)

Item = TypeVar("Item")

MIN_UNITS = 20
"""With fewer queries, standard errors are not reliable, and the identity is kept."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Result of a cross-validation.

    Attributes
    ----------
    strengths : candidates, of shape (c,)
    gains : mean gain of each over the baseline, of shape (c,); empty without cross-validation
    errors : standard errors of the gains
    gain, error : mean gain, and its standard error, if the candidate is chosen on other queries
    preferred : position of the best candidate; None if none has a gain
    chosen : the same if the gain is reliable; None is the identity
    baseline : mean of the baseline
    n_units : number of queries that were evaluated
    """

    strengths: tuple[float, ...]
    gains: NDArray
    errors: NDArray
    gain: float
    error: float
    preferred: int | None
    chosen: int | None
    baseline: float
    n_units: int

    def message(self, measure: str, fallback: str) -> str:
        """One sentence for the user."""
        if self.n_units < MIN_UNITS:
            return (
                f"The {fallback} is used: {self.n_units} held-out queries are too few to tell "
                f"whether an adapter helps; at least {MIN_UNITS} are required."
            )
        change = (
            f"{self.gain:+.4f} ± {self.error:.4f} (standard error) on {self.n_units} held-out "
            "queries"
        )
        if self.chosen is None:
            return (
                f"The {fallback} is used: the best of {len(self.strengths)} adapters changes "
                f"{measure} by {change}, and {MIN_STANDARD_ERRORS} standard errors are required."
            )
        return f"The adapter changes {measure} from {self.baseline:.4f} by {change}."


def select(
    data: Training,
    n_folds: int,
    learn: Callable[[Training, Sequence[float]], list[Maps]] | None = None,
    strengths: Sequence[float] | None = None,
) -> Selection:
    """Cross-validate the strengths, and choose the best one that is better than the baseline.

    Parameters
    ----------
    data : what to learn from
    n_folds : number of folds; 1 holds out a fifth
    learn, strengths : another way to learn, and its candidates; None uses those of `data`
    """
    candidates = tuple(data.strengths if strengths is None else strengths)
    gains, baselines = [], []
    if data.n_units >= MIN_UNITS:
        for part, search in tracked(data.folds(n_folds), n_folds):
            before = search.scores(part.baseline())[data.measure]
            maps = part.learn(candidates) if learn is None else learn(part, candidates)
            gains.append(np.array([search.scores(m)[data.measure] - before for m in maps]))
            baselines.append(before)
    n_units = sum(map(len, baselines))
    if n_units < MIN_UNITS:
        none = np.empty(0)
        return Selection(candidates, none, none, np.nan, np.nan, None, None, np.nan, n_units)
    if len(gains) == 1:  # the order of the queries may have a meaning
        order = np.random.default_rng(data.seed).permutation(n_units)
        gains = [gains[0][:, order[::2]], gains[0][:, order[1::2]]]
    table = np.concatenate(gains, axis=1)
    gain, error = cross_fitted_gain(gains)
    best = prefer(table)
    means, errors = table.mean(axis=1), table.std(axis=1, ddof=1) / np.sqrt(n_units)
    return Selection(
        candidates,
        means,
        errors,
        gain,
        error,
        preferred=best if means[best] > 0 else None,
        chosen=best if gain > MIN_STANDARD_ERRORS * error else None,
        baseline=float(np.concatenate(baselines).mean()),
        n_units=n_units,
    )


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call a function before every fold of the adapters in this `with` block."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def tracked(folds: Iterable[Item], n_folds: int) -> Iterator[Item]:
    """Yield the folds and call the listener, except for folds inside of folds."""
    listener = _LISTENER.get()
    token = _LISTENER.set(None)
    try:
        for number, fold in enumerate(folds):
            if listener is not None:
                listener(number, n_folds)
            yield fold
    finally:
        _LISTENER.reset(token)


def learn_at(data: Training, position: int | None) -> Maps:
    """The maps of one of the strengths, learned from all data; or the baseline."""
    return data.baseline() if position is None else data.learn([data.strengths[position]])[0]


def prefer(gains: NDArray) -> int:
    """The candidate closest to the identity that is not worse than the best by a standard error.

    Parameters
    ----------
    gains : array of shape (c, n), the gains of each candidate on each query; the first is the
        closest to the identity

    Examples
    --------
    >>> prefer(np.array([[0.0, 0.1, 0.0], [0.3, 0.4, 0.5], [0.4, 0.5, 0.3]]))
    1
    """
    differences = gains[np.argmax(gains.mean(axis=1))] - gains
    errors = differences.std(axis=1, ddof=1) / np.sqrt(gains.shape[1])
    return int(np.argmax(differences.mean(axis=1) <= errors))


def cross_fitted_gain(folds: Sequence[NDArray]) -> tuple[float, float]:
    """Mean gain and its standard error, if the candidate of a fold is chosen on the other folds.

    The decision therefore uses other queries than the choice, and the number of candidates does not
    bias it.

    >>> first, second = np.array([[1.0, 2.0], [5.0, 7.0]]), np.array([[2.0, 2.0], [0.0, 1.0]])
    >>> cross_fitted_gain([first, second])
    (1.0, 0.408...)
    """
    held_out = []
    for number, gains in enumerate(folds):
        others = [each for other, each in enumerate(folds) if other != number]
        held_out.append(gains[prefer(np.concatenate(others, axis=1))])
    values = np.concatenate(held_out)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
