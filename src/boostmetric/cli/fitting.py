"""The command `fit`."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from scipy.sparse import issparse

from boostmetric.cli import settings
from boostmetric.cli.command import CommandError, check_output, filled, say
from boostmetric.cli.options import (
    Columns,
    ComparisonFile,
    Data,
    Drop,
    Force,
    Jobs,
    Kind,
    Label,
    Seed,
    labelled,
    read,
    unlabelled,
)
from boostmetric.cli.progress import Follower
from boostmetric.cli.reading import Table, may_hold_labels, read_comparisons
from boostmetric.cli.settings import DEFAULTS
from boostmetric.estimators import RECIPE, BoostMetric, BoostMetricCV, listening
from boostmetric.estimators.initial import CENTRING
from boostmetric.metric import Metric
from boostmetric.problem import Comparisons
from boostmetric.solvers import Status

INSTEAD = "or give --comparisons"
"""What there is beside labels."""

Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Where the metric goes, wine.bm say.")
]
Choose = Annotated[
    bool,
    typer.Option(
        "--choose",
        help=f"Try {len(RECIPE)} settings, and let held-out points choose; with labels alone.",
    ),
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="FILE", help="Keeps the state of the fit, to go on from later."
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on from the checkpoint, with the same settings.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]


def fit(
    context: typer.Context,
    data: Data,
    output: Output,
    label: Label = None,
    comparisons: ComparisonFile = None,
    kind: Kind = None,
    columns: Columns = None,
    drop: Drop = None,
    loss: settings.Loss = DEFAULTS["loss"],
    solver: settings.Solver = DEFAULTS["solver"],
    regularizer: settings.Regularizer = DEFAULTS["regularizer"],
    alpha: settings.Alpha = DEFAULTS["alpha"],
    max_iter: settings.MaxIter = DEFAULTS["max_iter"],
    passes: settings.Passes = DEFAULTS["n_passes"],
    components: settings.Components = DEFAULTS["n_components"],
    neighbors: settings.Targets = DEFAULTS["n_neighbors"],
    init: settings.Init = DEFAULTS["init"],
    early_stopping: settings.EarlyStopping = DEFAULTS["early_stopping"],
    engine: settings.Engine = DEFAULTS["engine"],
    choose: Choose = False,
    seed: Seed = 0,
    jobs: Jobs = 1,
    checkpoint: CheckpointFile = None,
    resume: Resume = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Learn a metric from labels or comparisons.

    Labels are a column of DATA (--label), comparisons a file of their own (--comparisons); both may
    be given. Ctrl-C ends the fit after the running iteration and saves what has been learned;
    before the first iteration, and while settings are tried (--choose), there is nothing to save.
    """
    check_output(output, force, [data, comparisons])
    if label is None and comparisons is None and not may_hold_labels(data):
        raise CommandError(unlabelled(data, INSTEAD))
    _check_checkpoint(checkpoint, resume, [data, comparisons, output])
    learner = _learner(settings.given(context), choose, quiet, comparisons, checkpoint)
    learner.set_params(n_jobs=jobs, random_state=seed)
    table = read(data, label, columns, drop)
    if init in CENTRING and issparse(table.X):
        raise CommandError(
            f"--init {init} does not work with sparse X, such as svmlight files hold: use --init "
            "scale, or reduce the number of features first."
        )
    compared = None
    if comparisons is not None:
        compared = read_comparisons(comparisons, kind=kind, n_points=table.X.shape[0])
        table = table if label else replace(table, labels=None)
    interrupted = _learn(learner, table, compared, data, quiet)
    metric = replace(learner.metric_, feature_names=table.feature_names)
    metric.save(output)
    if not quiet:
        _tell(learner, metric, interrupted)
        _tell_next(output, data, label, comparisons)
    if interrupted:
        raise typer.Exit(130)


def _check_checkpoint(checkpoint: Path | None, resume: bool, others: Sequence[Path | None]) -> None:
    if resume and checkpoint is None:
        raise CommandError("--resume goes on from a checkpoint: name it by --checkpoint.")
    if checkpoint is None:
        return
    check_output(checkpoint, inputs=others)
    if resume and not checkpoint.exists():
        say(f"There is no checkpoint {checkpoint} yet: this is the beginning.")
    if checkpoint.exists() and not resume:
        raise CommandError(
            f"the checkpoint {checkpoint} is there already: --resume goes on from it; to begin "
            "anew, remove it or name another."
        )


def _learner(
    given: dict[str, Any],
    choose: bool,
    quiet: bool,
    comparisons: Path | None,
    checkpoint: Path | None,
) -> Any:
    """The estimator that the options ask for."""
    if not choose:
        return BoostMetric(**given, checkpoint=checkpoint)
    names = {parameter: option for option, parameter in settings.PARAMETERS.items()}
    others = [names[parameter] for parameter in given]
    others += ["comparisons"] * (comparisons is not None) + ["checkpoint"] * (
        checkpoint is not None
    )
    if others:
        name = others[0].replace("_", "-")
        raise CommandError(f"--choose finds settings from labels alone: leave --{name} out.")
    return BoostMetricCV(verbose=0 if quiet else 1)


def _learn(
    learner: Any, table: Table, compared: Comparisons | None, data: Path, quiet: bool
) -> bool:
    """Fit, showing how it goes; whether Ctrl-C ended it."""
    if compared is None:
        labelled(table, data, INSTEAD)
    if isinstance(learner, BoostMetricCV):
        if not quiet:
            say(f"Trying {len(RECIPE)} settings on held-out points; this takes a while.")
        with _log_on_stderr():
            learner.fit(table.dense().X, table.labels)  # type: ignore[arg-type]
        return False
    try:
        with Follower(quiet) as follower, listening(follower):
            learner.fit(table.X, table.labels, comparisons=compared)
    except KeyboardInterrupt:
        say("boostmetric: interrupted; no metric was saved.")
        raise typer.Exit(130) from None
    return follower.interrupted and learner.status_ is Status.STOPPED


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    """Let the lines that the library logs be messages."""
    logger = logging.getLogger("boostmetric")
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _tell(learner: Any, metric: Metric, interrupted: bool) -> None:
    """What was learned, and how that ended."""
    what = f"Learned a metric of rank {len(metric.components)} over {metric.n_features} features"
    if isinstance(learner, BoostMetricCV):
        chosen = ", ".join(f"{name}={value}" for name, value in learner.best_params_.items())
        passes = f"{len(learner.stops_)} passes" if learner.stops_ else "as it starts"
        print(f"{what}; {100 * learner.best_error_:.1f} % error on held-out points.")
        print(f"Chosen: {chosen}; {passes}.")
        return
    n_comparisons = (metric.origin or {}).get("n_comparisons", 0)
    print(f"{what}, from {n_comparisons:,} comparisons.")
    ended = "Ctrl-C ended the fit early." if interrupted else settings.advice(learner.status_)
    print(filled(ended))


def _tell_next(output: Path, data: Path, label: str | None, comparisons: Path | None) -> None:
    """Where the metric is, and what can be done with it."""
    command = ["boostmetric", "evaluate", str(output), str(data)]
    if label is not None:
        command += ["--label", label]
    elif comparisons is not None:
        command += ["--comparisons", str(comparisons)]
    print(f"Saved: {output}")
    print(f"Next:  {shlex.join(command)}")
