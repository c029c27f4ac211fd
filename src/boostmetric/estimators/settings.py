"""The parameters of `BoostMetric`, checked and resolved once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from boostmetric._validation import check_parameter, is_count, is_real
from boostmetric.estimators.initial import INITS
from boostmetric.neighbors import Index, check_index
from boostmetric.problem import Trace
from boostmetric.solvers import SolverSettings

SOLVER_PARAMETERS = (
    *("loss", "solver", "regularizer", "alpha"),
    *("max_iter", "directions_per_step", "tol", "eigen_solver"),
)
"""The parameters that `SolverSettings` checks."""

COUNT = "an int in the range [1, inf)"
FRACTION = "a float in the range (0.0, 1.0)"


def _is_fraction(value: Any) -> bool:
    return is_real(value, 0, 1) and value > 0


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n_passes": (is_count, COUNT),
    "n_iter_no_change": (is_count, COUNT),
    "early_stopping": (lambda value: isinstance(value, bool | np.bool_), "a bool"),
    "warm_start": (lambda value: isinstance(value, bool | np.bool_), "a bool"),
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
    "verbose": (lambda value: isinstance(value, bool) or is_real(value), "a bool or an int >= 0"),
}
"""The condition of each remaining parameter, and the text for the error message."""


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of an estimator in the form that a fit uses.

    `solver` contains the `SOLVER_PARAMETERS`; `n_targets` and `n_impostors` are `n_neighbors`.
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
    engine: Any
    n_jobs: int | None
    random_state: int | np.random.RandomState | None
    verbose: int

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
        solver = SolverSettings.of(**{name: values.pop(name) for name in SOLVER_PARAMETERS})
        for name, (is_valid, expected) in CHECKS.items():
            check_parameter(name, values[name], is_valid(values[name]), expected)
        given = values.pop("n_neighbors")
        counts = (given, given) if np.ndim(given) == 0 else tuple(given)
        are_valid = len(counts) == 2 and all(map(is_count, counts))
        expected = f"{COUNT}, or a tuple of two (targets, impostors)"
        check_parameter("n_neighbors", given, are_valid, expected)
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
            path = values["checkpoint"] = Path(values["checkpoint"])
            reason = None
            if path.is_dir():
                reason = f"'{path}' is a directory"
            elif not path.parent.is_dir():
                reason = f"directory '{path.parent}' does not exist"
            elif not os.access(path.parent, os.W_OK):
                reason = f"directory '{path.parent}' is not writable"
            if reason is not None:
                raise ValueError(f"checkpoint must be a writable file path; {reason}.")
        return cls(solver=solver, n_targets=int(counts[0]), n_impostors=int(counts[1]), **values)
