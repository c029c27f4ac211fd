"""The parameters of `BoostMetric`, checked and resolved once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from boostmetric._validation import check_parameter, is_count, is_real
from boostmetric.estimators.initial import INITS
from boostmetric.neighbors import Index, check_index
from boostmetric.problem import Trace
from boostmetric.solvers import SolverSettings

COUNT = "an int in the range [1, inf)"
FRACTION = "a float in the range (0.0, 1.0)"

SOLVER_PARAMETERS = (
    "loss",
    "solver",
    "regularizer",
    "alpha",
    "max_iter",
    "directions_per_step",
    "tol",
    "eigen_solver",
)
"""Those that `SolverSettings` checks."""


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of an estimator in the form in which a fit uses them.

    `solver` has all of `SOLVER_PARAMETERS`; `n_targets` and `n_impostors` are `n_neighbors`.
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
    verbose: int

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Settings:
        """Check the parameters of a `BoostMetric`; raises a ValueError for the first invalid one.

        >>> from boostmetric import BoostMetric
        >>> settings = Settings.from_params(BoostMetric(n_neighbors=(5, 10)).get_params())
        >>> settings.n_targets, settings.n_impostors, settings.solver.solver
        (5, 10, 'stagewise')
        """
        solver = SolverSettings.of(**{name: params[name] for name in SOLVER_PARAMETERS})
        R, alpha = solver.regularizer, solver.alpha
        if isinstance(R, Trace) and R.alpha is None and alpha >= 1:
            raise ValueError(
                f"alpha must be < 1, got {alpha!r}: it is relative to the smallest value for which "
                f"M = 0 is optimal. For an absolute value use regularizer=Trace({alpha!r})."
            )

        def check(name: str, is_valid: bool, expected: str) -> None:
            check_parameter(name, params[name], is_valid, expected)

        for name in ("n_passes", "n_iter_no_change"):
            check(name, is_count(params[name]), COUNT)
        for name in ("early_stopping", "warm_start"):
            check(name, isinstance(params[name], bool | np.bool_), "a bool")
        n_targets, n_impostors = neighbor_counts(params["n_neighbors"])
        if params["index"] is not None:
            check_index(params["index"])
        n_components = params["n_components"]
        check(
            "n_components",
            n_components is None or is_count(n_components) or _is_fraction(n_components),
            f"None, {COUNT}, or {FRACTION} (the share of the trace to keep)",
        )
        init = params["init"]
        check(
            "init",
            not isinstance(init, str) or init in INITS,
            f"None, an array, or one of {{{', '.join(map(repr, INITS))}}}",
        )
        if is_count(n_components) and np.ndim(init) == 2 and np.shape(init)[0] < n_components:
            raise ValueError(
                f"n_components={n_components} exceeds the {np.shape(init)[0]} rows of init. Use "
                f"n_components <= {np.shape(init)[0]}, or an init with more rows."
            )
        fraction = params["validation_fraction"]
        check("validation_fraction", _is_fraction(fraction), FRACTION)
        checkpoint = check_checkpoint(params["checkpoint"])
        engine = params["engine"]
        check(
            "engine",
            engine is None or isinstance(engine, str) or hasattr(engine, "submit"),
            "None, 'dask', the address of a Dask scheduler, or a distributed.Client",
        )
        n_jobs = params["n_jobs"]
        check(
            "n_jobs",
            n_jobs is None or is_count(abs(n_jobs) if is_whole(n_jobs) else n_jobs),
            "None or an int other than 0",
        )
        verbose = params["verbose"]
        check("verbose", is_real(verbose) or isinstance(verbose, bool), "a bool or an int >= 0")
        return cls(
            solver=solver,
            n_targets=n_targets,
            n_impostors=n_impostors,
            n_passes=int(params["n_passes"]),
            index=params["index"],
            n_components=n_components,
            init=init,
            early_stopping=bool(params["early_stopping"]),
            validation_fraction=float(fraction),
            n_iter_no_change=int(params["n_iter_no_change"]),
            warm_start=bool(params["warm_start"]),
            checkpoint=checkpoint,
            engine=engine,
            n_jobs=n_jobs,
            verbose=int(verbose),
        )


def neighbor_counts(n_neighbors: Any) -> tuple[int, int]:
    """The numbers of targets and of impostors.

    >>> neighbor_counts(3), neighbor_counts((5, 10))
    ((3, 3), (5, 10))
    """
    pair = (n_neighbors, n_neighbors) if np.ndim(n_neighbors) == 0 else tuple(n_neighbors)
    check_parameter(
        "n_neighbors",
        n_neighbors,
        len(pair) == 2 and all(map(is_count, pair)),
        f"{COUNT}, or a tuple of two (targets, impostors)",
    )
    return int(pair[0]), int(pair[1])


def check_checkpoint(checkpoint: Any) -> Path | None:
    """The path, after a check that a file can be written there; None stays None."""
    if checkpoint is None:
        return None
    check_parameter(
        "checkpoint", checkpoint, isinstance(checkpoint, str | os.PathLike), "None or a file path"
    )
    path = Path(checkpoint)
    if path.is_dir():
        raise ValueError(f"checkpoint must be a writable file path; '{path}' is a directory.")
    if not os.access(path.parent, os.W_OK):
        what = "is not writable" if path.parent.is_dir() else "does not exist"
        raise ValueError(
            f"checkpoint must be a writable file path; directory '{path.parent}' {what}."
        )
    return path


def is_whole(value: Any) -> bool:
    """Whether a value is an integer of any sign."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_fraction(value: Any) -> bool:
    return is_real(value, 0, 1) and value > 0
