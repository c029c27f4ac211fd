"""The parameters of `BoostMetric`, checked and resolved once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from boostmetric._files import resolve_output
from boostmetric._validation import SEED, check_parameter, is_count, is_real, is_seed
from boostmetric.estimators.initial import INITS
from boostmetric.neighbors import Index, check_index
from boostmetric.problem import LOSSES, REGULARIZERS, Frobenius, Hinge, Regularizer, Trace
from boostmetric.solvers import DEFAULT_ALPHA, SolverSettings

SOLVER_PARAMETERS = (
    *("loss", "solver", "regularizer", "alpha"),
    *("max_iter", "directions_per_step", "tol", "eigen_solver"),
)
"""The parameters that `SolverSettings` checks."""

DEFAULT_ALPHAS: tuple[tuple[type[Regularizer], float], ...] = (
    (Frobenius, 1e-2),
    (Trace, 1e-4),
)
"""The relative alpha of `alpha="auto"` for each regularizer, also if a subclass. Between 1e-3 and
1e-1 the error changes by less than its spread over splits (`benchmarks/quality.py`)."""

TARGETS, MANY_IMPOSTORS, FEW_IMPOSTORS = 4, 8, 6
FEW_POINTS, MANY_POINTS = 1_000, 4_000
"""Numbers of neighbors of "auto": the first number of impostors up to the first number of points,
the second from the second one on, and in between it falls with the logarithm. With as many
impostors as targets, wrong labels and heavy tails make the nearest points of a class lie farther
away than the nearest ones of the others, and most directions shorten what they should lengthen: M
collapses to a low rank, and the next pass searches in that space. Ratios of the errors to those
with (5, 5) on 15 ordinary tables and on 20 kinds of unfriendly data, with verification: (4, 8)
1.01 ± .02 and .95, (5, 10) 1.02 ± .015 and .96, (5, 7) 1.01 ± .01 and .97, (4, 6) 1.02 and .98.
More points need fewer neighbors, and time is proportional to the comparisons."""

MIN_NEIGHBORS = 3
"""Small classes do not reduce the numbers of neighbors of "auto" any further."""

WELL_DETERMINED = 2_000
MIN_POINTS_PER_SQUARE = 10
"""With many more than `WELL_DETERMINED` points, and this many times D², M is well determined: the
"auto" alpha is a tenth. It falls with the logarithm from a third to three times of the number.
Errors in % with 1e-3 and 1e-2, three to six splits: letter (D = 16, 41 times D²) 3.0 and 3.3;
waveform21 (8 times) 17.2 and 17.1, usps (2.1 times) 2.3 and 2.1, dna_splice (0.1 times) 5.4 and
5.1. On mnist (2 times), 1e-2 also takes three quarters of the time."""

FEW_PER_CLASS = 30
"""With fewer points per class, on average, "auto" is one pass, and the learned metric is shrunk
toward the starting one: by 1/3 for ten points per class. With ten points per class, two passes are
worse than the Euclidean distance on glass, vowel and waveform, and one pass without shrinkage on
glass. Where learning helps, the rule costs less than a percentage point
(`benchmarks/quality.py --group small`)."""

FEW_COMPARISONS = 1_000
"""Without labels and with fewer comparisons, the alpha of the Frobenius norm is ten times as large;
it falls with the logarithm from half to twice of the number. On six datasets with triplets from
labels, the fraction of held-out triplets that are violated is 16.5 instead of 16.9 % for 100
triplets, 15.0 instead of 15.1 for 400, and 14.0 instead of 13.8 for 2,000."""

COUNT = "an int in the range [1, inf)"
FRACTION = "a float in the range (0.0, 1.0)"


def is_auto(value: Any) -> bool:
    """Whether a parameter is "auto"; it may also be an array."""
    return isinstance(value, str) and value == "auto"


def _is_fraction(value: Any) -> bool:
    return is_real(value, 0, 1) and value > 0


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n_passes": (lambda value: is_auto(value) or is_count(value), f"'auto' or {COUNT}"),
    "n_iter_no_change": (is_count, COUNT),
    "early_stopping": (lambda value: isinstance(value, bool | np.bool_), "a bool"),
    "warm_start": (lambda value: isinstance(value, bool | np.bool_), "a bool"),
    "verify": (
        lambda value: isinstance(value, bool | np.bool_) or value == "passes",
        "a bool or 'passes'",
    ),
    "n_components": (
        lambda value: value is None or is_count(value) or _is_fraction(value),
        f"None, {COUNT}, or {FRACTION} (the share of the trace to keep)",
    ),
    "init": (
        lambda value: not isinstance(value, str) or value in INITS,
        f"None, an array, or one of {{{', '.join(map(repr, INITS))}}}",
    ),
    "validation_fraction": (_is_fraction, FRACTION),
    "checkpoint": (
        lambda value: value is None or isinstance(value, str | os.PathLike),
        "None or a file path",
    ),
    "n_jobs": (
        lambda n: n is None or is_count(n) or (isinstance(n, Integral) and int(n) < 0),
        "None or an int other than 0",
    ),
    "random_state": (is_seed, SEED),
    "verbose": (lambda value: isinstance(value, bool) or is_real(value), "a bool or an int >= 0"),
}
"""The condition of each remaining parameter, and the text for the error message."""


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of an estimator in the form that a fit uses.

    `solver` contains the `SOLVER_PARAMETERS`; `n_targets` and `n_impostors` are `n_neighbors`.
    `depends_on_data` contains the names of parameters that are "auto" and that `for_data` sets.
    `shrinkage` is the share of the starting metric in the result (`Metric.shrink`).
    """

    solver: SolverSettings
    n_targets: int
    n_impostors: int
    n_passes: int
    index: str | Index | None
    n_components: int | float | None
    init: str | ArrayLike | None
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    warm_start: bool
    checkpoint: Path | None
    verify: bool | str
    engine: Any
    n_jobs: int | None
    random_state: int | np.random.RandomState | None
    verbose: int
    depends_on_data: frozenset[str] = frozenset()
    shrinkage: float = 0.0

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Settings:
        """Check the parameters of a `BoostMetric`; raise a ValueError for the first invalid one.

        >>> from boostmetric import BoostMetric
        >>> settings = Settings.from_params(BoostMetric(n_neighbors=(5, 10)).get_params())
        >>> settings.n_targets, settings.n_impostors, settings.solver.solver
        (5, 10, 'stagewise')
        """
        # 1) each parameter
        values = dict(params)
        given = {name: values.pop(name) for name in SOLVER_PARAMETERS}
        automatic = {"alpha"} if is_auto(given["alpha"]) else set()
        solver = SolverSettings.of(**with_defaults(given))
        for name, (is_valid, expected) in CHECKS.items():
            check_parameter(name, values[name], is_valid(values[name]), expected)
        automatic |= {name for name in ("n_neighbors", "n_passes") if is_auto(values[name])}
        values["n_passes"] = 1 if "n_passes" in automatic else values["n_passes"]
        n_neighbors = values.pop("n_neighbors")
        counts = (n_neighbors,) * 2 if np.ndim(n_neighbors) == 0 else tuple(n_neighbors)
        if "n_neighbors" in automatic:
            counts = (3, 3)
        are_valid = len(counts) == 2 and all(map(is_count, counts))
        expected = f"'auto', {COUNT}, or a tuple of two (targets, impostors)"
        check_parameter("n_neighbors", n_neighbors, are_valid, expected)
        if values["index"] is not None:
            check_index(values["index"])

        # 2) combinations
        R, alpha = solver.regularizer, solver.alpha
        if isinstance(R, Trace) and R.alpha is None and alpha >= 1:
            raise ValueError(
                f"alpha must be < 1, got {alpha!r}: it is relative to the smallest value for which "
                f"M = 0 is optimal. For an absolute value use regularizer=Trace({alpha!r})."
            )
        rank, init = values["n_components"], values["init"]
        if is_count(rank) and np.ndim(init) == 2 and np.shape(init)[0] < rank:
            raise ValueError(
                f"n_components={rank} exceeds the {np.shape(init)[0]} rows of init. Use "
                f"n_components <= {np.shape(init)[0]}, or an init with more rows."
            )

        # 3) the checkpoint: a long fit must not find out late that its file cannot be written
        if values["checkpoint"] is not None:
            values["checkpoint"] = Path(values["checkpoint"])
            try:
                resolve_output(values["checkpoint"])
            except OSError as error:
                raise ValueError(f"checkpoint must be a writable file path; {error}") from None
        return cls(
            solver=solver,
            n_targets=int(counts[0]),
            n_impostors=int(counts[1]),
            depends_on_data=frozenset(automatic),
            **values,
        )

    def for_data(
        self,
        n_features: int,
        labels: NDArray | csr_array | None,
        n_comparisons: int | None = None,
    ) -> Settings:
        """The settings with the parameters that depend on the data.

        `n_comparisons` is the number of comparisons that were given.

        >>> from boostmetric import BoostMetric
        >>> settings = Settings.from_params(BoostMetric().get_params())
        >>> for n in (30, 1000, 50_000):
        ...     of_data = settings.for_data(9, np.arange(n) % 2)
        ...     of_data.n_targets, of_data.n_impostors, of_data.n_passes, of_data.solver.alpha
        (4, 8, 1, 0.01)
        (4, 8, 2, 0.0065...)
        (4, 6, 2, 0.001)
        """
        automatic = self.depends_on_data
        solver, changes = self.solver, dict[str, Any]()
        n = 0 if labels is None else labels.shape[0]
        sizes = None
        if labels is not None and labels.ndim == 1:
            sizes = np.unique(labels, return_counts=True)[1]
        scarcity = 0.0 if sizes is None else max(0.0, 1 - sizes.mean() / FEW_PER_CLASS)
        if "n_neighbors" in automatic:
            fewer = (MANY_IMPOSTORS - FEW_IMPOSTORS) * _progress(n, FEW_POINTS, MANY_POINTS)
            counts = [TARGETS, round(MANY_IMPOSTORS - fewer)]
            if sizes is not None:
                # With fewer points, a warning would refer to default values.
                available = int(sizes.min()) - 1, int(sizes.sum() - sizes.max())
                counts = [
                    min(k, max(MIN_NEIGHBORS, m)) for k, m in zip(counts, available, strict=True)
                ]
            changes |= dict(zip(("n_targets", "n_impostors"), counts, strict=True))
        if "n_passes" in automatic:
            changes["n_passes"] = 1 if labels is None or scarcity > 0 else 2
        if "alpha" in automatic and isinstance(solver.regularizer, Frobenius):
            if labels is not None:
                needed = max(WELL_DETERMINED, MIN_POINTS_PER_SQUARE * n_features**2)
                more = _progress(n, needed / 3, needed * 3)
                solver = replace(solver, alpha=solver.alpha / 10**more)
            elif n_comparisons is not None:
                few = 1 - _progress(n_comparisons, FEW_COMPARISONS / 2, FEW_COMPARISONS * 2)
                solver = replace(solver, alpha=solver.alpha * 10**few)
            if solver.regularizer == Frobenius():
                changes["shrinkage"] = float(scarcity) / 2
        return replace(self, solver=solver, **changes, depends_on_data=frozenset())


def _progress(value: float, low: float, high: float) -> float:
    """Return the position of a value between two others on a logarithmic scale, in [0, 1].

    >>> [_progress(value, 10, 1000) for value in (1, 10, 100, 1000, 5000)]
    [0.0, 0.0, 0.5, 1.0, 1.0]
    """
    return float(np.clip(math.log(max(value, low) / low) / math.log(high / low), 0, 1))


def with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Solver parameters without "auto" for regularizer and alpha.

    >>> with_defaults({"loss": "hinge", "regularizer": "auto", "alpha": 0.1})["regularizer"]
    'trace'
    """
    params = dict(given)
    loss = LOSSES.get(params["loss"]) if isinstance(params["loss"], str) else params["loss"]
    if is_auto(params["regularizer"]):
        supported = getattr(loss, "regularizers", ())
        params["regularizer"] = "frobenius" if "frobenius" in supported else "trace"
    R = params["regularizer"]
    kind = REGULARIZERS.get(R, Trace) if isinstance(R, str) else type(R)
    if is_auto(params["alpha"]):
        is_relative = getattr(R, "alpha", None) is None and not isinstance(loss, Hinge)
        matching = (alpha for each, alpha in DEFAULT_ALPHAS if issubclass(kind, each))
        params["alpha"] = next(matching, DEFAULT_ALPHA) if is_relative else DEFAULT_ALPHA
    return params
