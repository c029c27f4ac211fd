"""Valid values of the parameters of `BoostMetric`, and the options of `boost` they stand for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from boostmetric.estimators.checkpoint import check_path
from boostmetric.estimators.initial import INITS
from boostmetric.learn import DEFAULT_ALPHA
from boostmetric.neighbors import check_index
from boostmetric.problem import LOSSES, REGULARIZERS, Hinge, Loss, as_loss
from boostmetric.solvers import (
    EIGEN_SOLVERS,
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
        f"one of {{{', '.join(map(repr, names))}}}",
    )


COUNT = "an int in the range [1, inf)"
NUMBER = "a float in the range [0.0, inf)"
SHARE = "a float in the range (0.0, 1.0)"

RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "loss": (
        lambda value: isinstance(value, Loss) or (isinstance(value, str) and value in LOSSES),
        f"one of {{{', '.join(map(repr, LOSSES))}}} or a Loss",
    ),
    "solver": (
        lambda value: value is None or (isinstance(value, str) and value in SOLVERS),
        f"None or one of {{{', '.join(map(repr, SOLVERS))}}}",
    ),
    "regularizer": _one_of(REGULARIZERS),
    "eigen_solver": _one_of(EIGEN_SOLVERS),
    "block_size": (lambda value: value is None or _is_count(value), f"None or {COUNT}"),
    "alpha": (_is_number, NUMBER),
    "max_iter": (_is_count, COUNT),
    "n_neighbors": (_is_neighbors, f"{COUNT}, or a tuple of two (targets, impostors)"),
    "n_passes": (_is_count, COUNT),
    "n_components": (
        lambda value: (
            value is None or _is_count(value) or (isinstance(value, float) and _is_share(value))
        ),
        f"None, {COUNT}, or {SHARE} (the share of the trace to keep)",
    ),
    "init": (
        lambda value: not isinstance(value, str) or value in INITS,
        f"None, an array, or one of {{{', '.join(map(repr, INITS))}}}",
    ),
    "tol": (lambda value: value is None or _is_number(value), f"None or {NUMBER}"),
    "validation_fraction": (_is_share, SHARE),
    "n_iter_no_change": (_is_count, COUNT),
    "engine": (
        lambda value: value is None or isinstance(value, str) or hasattr(value, "submit"),
        "None, 'dask', the address of a Dask scheduler, or a distributed.Client",
    ),
    "verbose": (_is_number, NUMBER),
}
"""For each parameter: whether a value is valid, and which values are."""


def check_parameter(name: str, value: Any, rule: str | None = None) -> None:
    """Raise a ValueError if the value is invalid, by the rule of that name or of another one."""
    is_valid, valid = RULES[rule or name]
    if not is_valid(value):
        raise ValueError(f"The {name!r} parameter must be {valid}. Got {value!r} instead.")


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise a ValueError for the first invalid parameter of a `BoostMetric`."""
    for name in RULES:
        check_parameter(name, parameters[name])
    if parameters["checkpoint"] is not None:
        check_path(parameters["checkpoint"])
    if parameters["neighbors"] != "exact":
        check_index(parameters["neighbors"])
    loss = as_loss(parameters["loss"])
    check_combination(loss, parameters["solver"] or default_solver(loss), parameters["regularizer"])
    alpha = parameters["alpha"]
    if isinstance(loss, Hinge):
        if alpha != DEFAULT_ALPHA:
            raise ValueError(
                f"alpha={alpha!r} has no effect with {loss!r}, which fixes the trace at 1. Leave "
                "it out, and use loss=Hinge(nu=...)."
            )
    elif parameters["regularizer"] == "trace" and parameters["alpha_relative"] and alpha >= 1:
        raise ValueError(
            f"alpha={alpha!r} is too large: it is a fraction of the smallest alpha for which M = 0 "
            "is optimal, so it must be below 1. Lower it, or set alpha_relative=False."
        )


BOOST_OPTIONS = (
    "loss",
    "solver",
    "regularizer",
    "alpha",
    "alpha_relative",
    "max_iter",
    "block_size",
    "tol",
    "eigen_solver",
    "engine",
    "n_jobs",
)
"""Parameters of `BoostMetric` that are options of `boost`."""


def options_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `boost`, with those that depend on the loss resolved."""
    options = {name: parameters[name] for name in BOOST_OPTIONS}
    options["loss"] = as_loss(options["loss"])
    options["solver"] = options["solver"] or default_solver(options["loss"])
    if isinstance(options["loss"], Hinge):
        options["alpha"] = None
    return options


def neighbor_counts(n_neighbors: Any) -> tuple[int, int]:
    """The numbers of targets and impostors.

    >>> neighbor_counts(3), neighbor_counts((5, 10))
    ((3, 3), (5, 10))
    """
    if isinstance(n_neighbors, tuple | list):
        targets, impostors = n_neighbors
        return targets, impostors
    return n_neighbors, n_neighbors
