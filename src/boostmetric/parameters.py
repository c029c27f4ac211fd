"""Which values the parameters of `BoostMetric` may have."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from boostmetric.boosting import DEFAULT_ALPHA
from boostmetric.eigen import EIGEN_SOLVERS
from boostmetric.initial import INITS
from boostmetric.losses import LOSSES, Hinge, Loss, as_loss
from boostmetric.neighbors import check_index
from boostmetric.regularizers import REGULARIZERS
from boostmetric.solvers import (
    SOLVERS,
    check_combination,
    default_solver,
)


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _is_number(value: Any, low: float = 0.0, high: float = math.inf) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) < high


def _is_share(value: Any) -> bool:
    return _is_number(value, 0, 1) and value > 0


def _is_neighbors(value: Any) -> bool:
    pair = value if isinstance(value, tuple | list) else (value, value)
    return len(pair) == 2 and all(map(_is_count, pair))


def _one_of(names: Iterable[str]) -> tuple[Callable[[Any], bool], str]:
    names = tuple(names)
    return (
        lambda value: isinstance(value, str) and value in names,
        f"one of {', '.join(map(repr, names))}",
    )


def _can_be_written(value: Any) -> bool:
    if not isinstance(value, str | os.PathLike) or Path(value).is_dir():
        return False
    return os.access(Path(value).parent, os.W_OK)


COUNT = "an integer of at least 1"

RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "loss": (
        lambda value: isinstance(value, Loss) or (isinstance(value, str) and value in LOSSES),
        f"one of {', '.join(map(repr, LOSSES))}, or a Loss",
    ),
    "solver": (
        lambda value: value is None or (isinstance(value, str) and value in SOLVERS),
        f"None or one of {', '.join(map(repr, SOLVERS))}",
    ),
    "regularizer": _one_of(REGULARIZERS),
    "eigen_solver": _one_of(EIGEN_SOLVERS),
    "block_size": (lambda value: value is None or _is_count(value), f"None or {COUNT}"),
    "alpha": (_is_number, "a number, 0 or more"),
    "max_iter": (_is_count, COUNT),
    "n_neighbors": (_is_neighbors, f"{COUNT}, or two of them (targets, impostors)"),
    "n_passes": (_is_count, COUNT),
    "n_components": (
        lambda value: (
            value is None or _is_count(value) or (isinstance(value, float) and _is_share(value))
        ),
        f"None, {COUNT}, or a float between 0 and 1 (the share of the trace to keep)",
    ),
    "init": (
        lambda value: not isinstance(value, str) or value in INITS,
        f"None, an array, or one of {', '.join(map(repr, INITS))}",
    ),
    "tol": (lambda value: value is None or _is_number(value), "None or a number, 0 or more"),
    "validation_fraction": (_is_share, "a number between 0 and 1"),
    "n_iter_no_change": (_is_count, COUNT),
    "checkpoint": (
        lambda value: value is None or _can_be_written(value),
        "None or the path of a file, in a folder that exists and may be written to",
    ),
    "verbose": (_is_number, "a number, 0 or more"),
}
"""For a parameter: whether a value will do, and what is needed."""


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise a ValueError for the first parameter of a `BoostMetric` that is out of range."""
    for name, (will_do, needed) in RULES.items():
        if not will_do(parameters[name]):
            raise ValueError(f"{name}={parameters[name]!r} will not do: {needed} is needed.")
    if parameters["neighbors"] != "exact":
        check_index(parameters["neighbors"])
    loss = as_loss(parameters["loss"])
    check_combination(loss, parameters["solver"] or default_solver(loss), parameters["regularizer"])
    alpha = parameters["alpha"]
    if isinstance(loss, Hinge):
        if alpha != DEFAULT_ALPHA:
            raise ValueError(
                f"alpha={alpha!r} means nothing to the loss {loss!r}, which fixes the trace at 1: "
                "leave it out, and use loss=Hinge(nu=...)."
            )
    elif parameters["regularizer"] == "trace" and parameters["alpha_relative"] and alpha >= 1:
        raise ValueError(
            f"alpha={alpha!r} is too large: it is a fraction of the alpha from which on M = 0 is "
            "optimal, so it must be below 1. Lower it, or set alpha_relative=False."
        )


def options_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What `boost` is to be called with."""
    loss = as_loss(parameters["loss"])
    options = ["regularizer", "alpha_relative", "max_iter", "block_size", "tol", "eigen_solver"]
    return {
        "loss": loss,
        "solver": parameters["solver"] or default_solver(loss),
        "alpha": None if isinstance(loss, Hinge) else parameters["alpha"],
        **{name: parameters[name] for name in options},
    }
