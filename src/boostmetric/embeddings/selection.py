"""Choice of the strength by cross-validation, with the identity as a candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from boostmetric.embeddings.search import Maps
from boostmetric.embeddings.training import Training

MIN_STANDARD_ERRORS = 2.0
"""A gain must exceed this many standard errors, and more if there are several candidates."""

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
    critical : number of standard errors that a gain had to exceed
    preferred : position of the best candidate; None if none has a gain
    chosen : the same if its gain is reliable; None is the identity
    baseline : mean of the baseline
    n_units : number of queries that were evaluated
    """

    strengths: tuple[float, ...]
    gains: NDArray
    errors: NDArray
    critical: float
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
        position = int(np.argmax(self.gains)) if self.chosen is None else self.chosen
        gain, error = self.gains[position], self.errors[position]
        found = f"{gain:+.4f} ± {error:.4f} (standard error) on {self.n_units} held-out queries"
        if self.chosen is None:
            return (
                f"The {fallback} is used: the best of {len(self.strengths)} adapters changes "
                f"{measure} by {found}, and {self.critical:.1f} standard errors are required."
            )
        return f"The adapter changes {measure} from {self.baseline:.4f} by {found}."


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
        for part, search in data.folds(n_folds):
            before = search.scores(part.baseline())[data.measure]
            maps = part.learn(candidates) if learn is None else learn(part, candidates)
            gains.append([search.scores(each)[data.measure] - before for each in maps])
            baselines.append(before)
    n_units = sum(map(len, baselines))
    if n_units < MIN_UNITS:
        return Selection(candidates, np.empty(0), np.empty(0), np.inf, None, None, np.nan, n_units)
    table = np.concatenate(gains, axis=1)
    chosen, critical = choose(table, data.seed)
    means, errors = table.mean(axis=1), table.std(axis=1, ddof=1) / np.sqrt(n_units)
    preferred = chosen
    if chosen is None and means.max() > 0:
        preferred = int(np.argmax(means))
    mean = float(np.concatenate(baselines).mean())
    return Selection(candidates, means, errors, critical, preferred, chosen, mean, n_units)


def learn_at(data: Training, strengths: Sequence[float], position: int | None) -> Maps:
    """The maps of one strength, learned from all data; or the baseline."""
    if position is None:
        return data.baseline()
    # The maps of weaker ridges start from those of stronger ones.
    return data.learn(strengths[: position + 1])[-1]


def choose(gains: NDArray, seed: int = 0, n_draws: int = 20_000) -> tuple[int | None, float]:
    """The candidate closest to the identity among those with a reliable gain near the largest.

    A gain is reliable if it exceeds `critical` standard errors: the quantile of the largest of all
    standardized gains if there were no gains, at the level of two standard errors for a single
    candidate. The quantile is that of normal variables with the correlations of the gains, so
    candidates that agree on most queries hardly increase it.

    Parameters
    ----------
    gains : array of shape (c, n), the gains of each candidate on each query; the first is the
        closest to the identity
    seed, n_draws : of the normal variables

    Returns
    -------
    position of the candidate, or None; and `critical`

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(scale=0.2, size=(3, 500))
    >>> choose(noise)[0], choose(noise + 0.05)[0] is not None
    (None, True)
    """
    n = gains.shape[1]
    means, deviations = gains.mean(axis=1), gains.std(axis=1, ddof=1)
    varies = deviations > 0
    errors = np.where(varies, deviations, 1) / np.sqrt(n)
    standardized = (gains - means[:, None]) / np.where(varies, deviations, 1)[:, None]
    correlations = standardized @ standardized.T / (n - 1)
    rng = np.random.default_rng(seed)
    drawn = rng.multivariate_normal(np.zeros(len(gains)), correlations, n_draws, method="eigh")
    largest = drawn.max(axis=1)
    level = norm.cdf(MIN_STANDARD_ERRORS)
    critical = max(MIN_STANDARD_ERRORS, float(np.quantile(largest, level)))
    reliable = np.flatnonzero(varies & (means > critical * errors))
    if len(reliable) == 0:
        return None, critical
    # The closest to the identity that is not worse than the best by one standard error.
    best = reliable[np.argmax(means[reliable])]
    differences = gains[best] - gains[reliable]
    spread = differences.std(axis=1, ddof=1) / np.sqrt(n)
    return int(reliable[differences.mean(axis=1) <= spread][0]), critical
