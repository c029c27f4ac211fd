"""The command `fit`."""

from __future__ import annotations

import logging
import shlex
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from boostmetric.cli import options as o
from boostmetric.cli.console import CommandError, FitProgress, UsageError, say, show

if TYPE_CHECKING:
    from boostmetric.cli.tables import Table
    from boostmetric.estimators import BoostMetric, BoostMetricCV
    from boostmetric.metric import Metric
    from boostmetric.problem import Comparisons

Loss = Literal["logistic", "exponential", "squared_hinge", "smoothed_hinge", "hinge"]
Init = Literal["auto", "none", "scale", "whiten", "pca", "lda"]
Solver = Literal["stagewise", "totally_corrective"]
Regularizer = Literal["trace", "frobenius", "shrinkage"]

ENDINGS = {
    "NO_DIRECTION": "Finished: no further direction lowers the objective.",
    "STALLED": "Finished: further directions would hardly change the metric.",
    "MAX_ITER": "Stopped at the limit of --max-iter; increase it if the error still decreases.",
    "CONVERGED": "Converged to the optimum.",
    "STOPPED": "Stopped early: the error on held-out data no longer decreased.",
    "UNBOUNDED": "Finished: all comparisons are satisfied.",
    "FAILED": "Failed: the loss returned NaN; the metric from the previous step was kept.",
    "INTERRUPTED": "Stopped by Ctrl-C; the metric has what was learned so far.",
}
"""How a fit ended, by the name of `Status`, in terms of the command line's options."""

# None is the default of BoostMetric, which help shows as a text.
model = partial(typer.Option, rich_help_panel="Model", show_default=False)
expert = partial(typer.Option, rich_help_panel="Optimization (for experts)", show_default=False)
long_fit = partial(typer.Option, rich_help_panel="Long fits")


def fit(
    data: o.Data,
    output: Annotated[Path, o.output_file(help="File for the metric (.bm).")],
    label: o.Label = None,
    comparisons: o.Comparisons = None,
    kind: o.ComparisonKind = None,
    force: o.Force = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    column: o.Column = None,
    drop: o.Drop = None,
    sep: o.Sep = None,
    decimal: o.Decimal = ".",
    dropna: o.DropNa = False,
    choose: Annotated[
        bool,
        model(
            "--choose",
            help="Choose the starting transformation by cross-validation "
            "(BoostMetricCV); about six times slower.",
        ),
    ] = False,
    init: Annotated[
        Init | None,
        model(
            metavar="NAME",
            help=f"Transformation to start from: {', '.join(get_args(Init))}.",
            show_default="auto",
        ),
    ] = None,
    loss: Annotated[
        Loss | None,
        model(metavar="NAME", help=f"{', '.join(get_args(Loss))}.", show_default="logistic"),
    ] = None,
    neighbors: Annotated[
        int | None, model(min=1, metavar="K", help="Targets per point.", show_default="auto")
    ] = None,
    impostors: Annotated[
        int | None, model(min=1, metavar="K", help="Impostors per point. Default: as --neighbors.")
    ] = None,
    passes: Annotated[
        int | None, model(min=1, metavar="N", help="Neighbor searches.", show_default="auto")
    ] = None,
    components: Annotated[
        float | None,
        model(
            min=0,
            metavar="N",
            help="Maximum number of components; below 1, the fraction of the trace to keep.",
        ),
    ] = None,
    early_stopping: Annotated[
        bool,
        model("--early-stopping", help="Stop when the error on held-out data no longer decreases."),
    ] = False,
    max_iter: Annotated[
        int | None, expert(min=1, metavar="N", help="Directions per pass.", show_default="500")
    ] = None,
    solver: Annotated[
        Solver | None,
        expert(metavar="NAME", help="stagewise (fast) or totally_corrective (optimal)."),
    ] = None,
    regularizer: Annotated[
        Regularizer | None,
        expert(metavar="NAME", help="trace, frobenius or shrinkage.", show_default="auto"),
    ] = None,
    alpha: Annotated[
        float | None,
        expert(min=0, metavar="X", help="Strength of the regularizer.", show_default="auto"),
    ] = None,
    engine: Annotated[
        str | None,
        expert(
            metavar="NAME", help="dask, or the address of a Dask scheduler. Default: this process."
        ),
    ] = None,
    seed: o.Seed = 0,
    jobs: o.Jobs = None,
    checkpoint: Annotated[
        Path | None,
        long_fit(dir_okay=False, metavar="FILE", help="File for the state of the fit."),
    ] = None,
    resume: Annotated[
        bool, long_fit("--resume", help="Continue from --checkpoint, with the same settings.")
    ] = False,
) -> None:
    """Learn a metric from labels or comparisons.

    Labels are a column of DATA (--label); comparisons are a separate table (--comparisons). Both
    may be given. Ctrl-C stops the fit and saves what was learned so far.
    """
    # 1) options, before anything slow is imported
    needs_label = not data.name.lower().endswith((".npz", *o.SVMLIGHT))
    if needs_label and label is None and comparisons is None:
        raise UsageError("--label or --comparisons is required.")
    if dropna and comparisons is not None:
        raise UsageError("--dropna cannot be used with --comparisons, which refer to row numbers.")
    if components is not None and (components == 0 or (components > 1 and components % 1)):
        raise UsageError(
            f"--components must be an integer >= 1, or a fraction below 1; got {components}."
        )
    if alpha is not None and alpha >= 1 and regularizer == "trace":
        raise UsageError("--alpha must be less than 1 for the trace regularizer.")
    if resume and checkpoint is None:
        raise UsageError("--resume requires --checkpoint.")
    parameters = {
        "loss": loss,
        "solver": solver,
        "regularizer": regularizer,
        "alpha": alpha,
        "max_iter": max_iter,
        "n_passes": passes,
        "n_components": int(components) if components and components % 1 == 0 else components,
        "n_neighbors": (neighbors or 5, impostors) if impostors else neighbors,
        "init": init,
        "early_stopping": early_stopping or None,
        "engine": engine,
        "checkpoint": checkpoint,
    }
    parameters = {name: value for name, value in parameters.items() if value is not None}
    if init == "none":
        parameters["init"] = None
    if choose and parameters.keys() - {"n_components", "checkpoint"}:
        raise UsageError(
            "--choose cannot be combined with options of the model or the optimization, except "
            "--components."
        )

    # 2) data
    import numpy as np

    from boostmetric.cli.tables import read_comparisons, read_table

    reading: dict[str, Any] = {"sep": sep, "decimal": decimal}
    ignoring = dropna if comparisons is None else None
    table = read_table(data, label, column, drop, dropna=ignoring, **reading)
    if init not in (None, "auto", "none", "scale") and not isinstance(table.X, np.ndarray):
        raise CommandError(f"--init {init} does not support sparse data; use --init scale.")
    compared = None
    if comparisons is not None:
        compared = read_comparisons(comparisons, table.X.shape[0], kind, sep=sep, decimal=decimal)
    if label is None and compared is not None:
        table = replace(table, labels=None)
    else:
        table = replace(table, labels=table.classes)  # checked before any work

    # 3) fit, save and summarize
    common = {"n_jobs": jobs, "random_state": seed}
    learn = _choose if choose else _fit
    metric, ending, interrupted = learn(table, compared, quiet, {**parameters, **common})
    metric = replace(metric, feature_names=table.feature_names)
    metric.save(output)
    if not quiet:
        show(ending, _quality(metric, table, compared, seed))
        if table.labels is None:
            show(f"Saved {output}.")
        else:
            command = ["boostmetric", "evaluate", str(output), str(data)]
            command += ["--label", label] if label else []
            command += [part for name in column or () for part in ("--column", name)]
            command += [part for name in drop or () for part in ("--drop", name)]
            command += ["--sep", sep] if sep else []
            command += ["--decimal", decimal] if decimal != "." else []
            command += ["--dropna"] if dropna else []
            command += ["--cv", "5"]
            show(f"Saved {output}. For an estimate on unseen points:", f"  {shlex.join(command)}")
    if interrupted:
        raise typer.Exit(130)


def _fit(
    table: Table, compared: Comparisons | None, quiet: bool, parameters: dict[str, Any]
) -> tuple[Metric, str, bool]:
    """Return the metric, how the fit ended, and whether Ctrl-C ended it."""
    from boostmetric.estimators import BoostMetric, listening
    from boostmetric.solvers import Status

    learner = BoostMetric(**parameters)
    try:
        with FitProgress(quiet) as progress, listening(progress):
            learner.fit(table.X, table.labels, comparisons=compared)
    except KeyboardInterrupt:
        say("Interrupted; nothing was saved.")
        raise typer.Exit(130) from None
    status = learner.status_
    interrupted = progress.interrupted and status is Status.STOPPED
    ending = ENDINGS["INTERRUPTED" if interrupted else status.name]
    n_comparisons = (learner.metric_.origin or {}).get("n_comparisons", 0)
    errors = describe_errors(learner, table.labels is None)
    rank, D = learner.components_.shape
    text = (
        f"Learned a metric of rank {rank} over {D} features from {n_comparisons:,} comparisons, "
        f"{learner.n_iter_} directions. {ending}\n{errors}"
    )
    return learner.metric_, text.rstrip(), interrupted


def _choose(
    table: Table, compared: Comparisons | None, quiet: bool, parameters: dict[str, Any]
) -> tuple[Metric, str, bool]:
    """Return the metric of `BoostMetricCV`, the choice, and whether Ctrl-C ended the search."""
    from boostmetric.estimators import BoostMetricCV, listening

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    logger, handler = logging.getLogger("boostmetric"), Lines()
    learner = BoostMetricCV(verbose=0 if quiet else 1, **parameters)
    logger.addHandler(handler)
    try:
        with FitProgress(quiet) as progress, listening(progress), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The search was interrupted")
            learner.fit(table.X, table.labels, comparisons=compared)
    except KeyboardInterrupt:
        say("Interrupted; nothing was saved.")
        raise typer.Exit(130) from None
    finally:
        logger.removeHandler(handler)
    errors = describe_errors(learner, table.labels is None)
    rank, D = learner.components_.shape
    ending = f" {ENDINGS['INTERRUPTED']}" if progress.interrupted else ""
    text = (
        f"Learned a metric of rank {rank} over {D} features; score {learner.best_score_:.3f} on "
        f"held-out data. Best candidate: {describe(learner.best_params_)}. Metrics averaged: "
        f"{len(learner.averaged_params_)}.{ending}\n{errors}"
    )
    return learner.metric_, text.rstrip(), progress.interrupted


def describe_errors(learner: BoostMetric | BoostMetricCV, are_violations: bool) -> str:
    """Describe `errors_` of an estimator in one line; "" without."""
    errors = getattr(learner, "errors_", None)
    if errors is None:
        return ""
    where = {
        "halves": "on halves of the data that were not learned from",
        "cross-validation": "in the cross-validation",
        "leave-one-out": "on training points (leave-one-out, optimistic for the learned metric)",
    }
    name = "Violated comparisons" if are_violations else "Errors"
    return (
        f"{name} {where[errors['measure']]}: {100 * errors['start']:.1f}% before learning, "
        f"{100 * errors['learned']:.1f}% after (gain {100 * errors['gain']:.1f} ± "
        f"{100 * errors['gain_standard_error']:.1f} points)."
    )


def describe(candidate: Mapping[str, Any]) -> str:
    """Describe settings of `BoostMetric` in words.

    >>> describe({"init": None, "n_neighbors": (5, 10), "shrinkage": 0.1})
    'init none, neighbors 5/10, shrinkage 0.1'
    """

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return "/".join(map(str, value))
        return "none" if value is None else str(value)

    return ", ".join(
        f"{name.removeprefix('n_').replace('_', ' ')} {text(value)}"
        for name, value in candidate.items()
    )


def _quality(metric: Metric, table: Table, compared: Comparisons | None, seed: int) -> str:
    """Describe the quality on the training data in one line: raw, standardized and learned."""
    import numpy as np

    from boostmetric.cli.evaluate import distances
    from boostmetric.evaluation import knn_error, satisfied_share

    n, scope = table.X.shape[0], "the training data"
    max_points = 5000  # with 100 features these take about a second
    if table.labels is not None and n > max_points:
        rows = np.random.default_rng(seed).choice(n, max_points, replace=False)
        table = replace(table, X=table.X[rows], labels=table.labels[rows])
        scope = f"{max_points:,} of {n:,} training points"
    try:
        X, y = table.dense().X, table.labels
    except CommandError:  # too large
        return "The training error was not computed, because the table is too large."
    values = dict[str, float]()
    for name, f in distances(X, metric).items():
        if y is not None:
            values[name] = knn_error(f(X), y)
        else:
            assert compared is not None
            values[name] = satisfied_share(None, f(X), compared)
    text = ", ".join(f"{100 * value:.1f}% {name}" for name, value in values.items())
    if y is None:
        return f"Training comparisons satisfied: {text}."
    is_worse = values["learned"] > values["standardized"]
    advice = " Standardized features do better; try --init scale or --choose." if is_worse else ""
    return f"3-NN error on {scope} (leave-one-out): {text}.{advice}"
