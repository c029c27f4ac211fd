"""The options of `fit` that are parameters of `BoostMetric`."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from boostmetric.cli.command import count, neighbor_counts, number, one_of, rank
from boostmetric.estimators import INITS, BoostMetric
from boostmetric.problem import LOSSES, REGULARIZERS
from boostmetric.solvers import SOLVERS, Status

DEFAULTS = BoostMetric().get_params()

PARAMETERS = {
    "loss": "loss",
    "solver": "solver",
    "regularizer": "regularizer",
    "alpha": "alpha",
    "max_iter": "max_iter",
    "passes": "n_passes",
    "components": "n_components",
    "neighbors": "n_neighbors",
    "init": "init",
    "early_stopping": "early_stopping",
    "engine": "engine",
}
"""What `BoostMetric` calls an option."""

Loss = Annotated[
    str,
    typer.Option(
        "--loss", parser=one_of(LOSSES), metavar="NAME", help=f"One of {', '.join(LOSSES)}."
    ),
]
Solver = Annotated[
    str | None,
    typer.Option(
        "--solver",
        parser=one_of(SOLVERS),
        metavar="NAME",
        help=f"One of {', '.join(SOLVERS)}. By default the first, which is fast; the second, which "
        "goes to the optimum, for the hinge.",
    ),
]
Regularizer = Annotated[
    str,
    typer.Option(
        "--regularizer",
        parser=one_of(REGULARIZERS),
        metavar="NAME",
        help=f"One of {', '.join(REGULARIZERS)}.",
    ),
]
Alpha = Annotated[
    float,
    typer.Option("--alpha", parser=number, metavar="NUMBER", help="Strength of the regulariser."),
]
MaxIter = Annotated[
    int,
    typer.Option("--max-iter", parser=count, metavar="N", help="Directions in a pass, at most."),
]
Passes = Annotated[
    int,
    typer.Option(
        "--passes",
        parser=count,
        metavar="N",
        help="How often neighbours are looked for; with labels.",
    ),
]
Components = Annotated[
    float | None,
    typer.Option(
        "--components",
        parser=rank,
        metavar="N",
        help="Components to keep at most, or a share of the trace, such as 0.95. By default all.",
    ),
]
Targets = Annotated[
    int,
    typer.Option(
        "--neighbors",
        parser=neighbor_counts,
        metavar="K",
        help="Targets and impostors of a point, or K,L for unequal numbers; with labels.",
    ),
]
Init = Annotated[
    str | None,
    typer.Option(
        "--init",
        parser=one_of(INITS),
        metavar="NAME",
        help=f"What to start from: {', '.join(INITS)}. By default the features as they are.",
    ),
]
EarlyStopping = Annotated[
    bool,
    typer.Option("--early-stopping", help="Stop where the error on held-out data is lowest."),
]

Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Where the fit runs: dask, or the address of a Dask scheduler. By default here.",
    ),
]


def given(context: typer.Context) -> dict[str, Any]:
    """The parameters of `BoostMetric` that the user has set."""
    return {
        parameter: context.params[option]
        for option, parameter in PARAMETERS.items()
        if getattr(context.get_parameter_source(option), "name", "") == "COMMANDLINE"
    }


def advice(status: Status) -> str:
    """How a fit ended, and what to do, in terms of options.

    >>> advice(Status.MAX_ITER)
    'As many directions as --max-iter allows were added. Increase --max-iter if ...'
    """
    if status is Status.STOPPED:
        return "Held-out data or Ctrl-C ended the fit. The metric is usable as it is."
    text = re.sub(r"\b(solver|loss)='(\w+)'", r"--\1 \2", status.value)
    text = text.replace("max_iter directions", "As many directions as max_iter allows")
    return text.replace("max_iter", "--max-iter")
