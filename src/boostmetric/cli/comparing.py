"""The command `compare`: metric learners on the user's own points."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from boostmetric.cli import peer
from boostmetric.cli.command import CommandError, aligned, count, one_of, say, show_json
from boostmetric.cli.options import (
    Columns,
    Data,
    Drop,
    Json,
    Label,
    Neighbors,
    Seed,
    labelled,
    read,
)
from boostmetric.estimators import BoostMetric, BoostMetricCV, starting_transformation
from boostmetric.evaluation.knn import knn_error


class FailedError(Exception):
    """A learner came to nothing; the text says why, in a few words."""


class Learned(NamedTuple):
    """A linear map X ↦ X·Lᵀ, None for the identity, and the seconds it took."""

    L: NDArray | None
    seconds: float


class Learner(NamedTuple):
    """A row of the table: `learn` is given points, labels, a seed, and a limit in seconds."""

    title: str
    learn: Callable[[NDArray, NDArray, int, float], Learned]


class Row(NamedTuple):
    """What a learner came to: its error and its seconds in every fold, or why there are none."""

    method: str
    errors: list[float]
    seconds: list[float]
    failure: str | None = None


def _here(make: Callable[[NDArray, NDArray, int], NDArray | None]) -> Callable[..., Learned]:
    """A learner in this process; it is not stopped when it is slow."""

    def learn(X: NDArray, y: NDArray, seed: int, limit: float) -> Learned:
        began = time.perf_counter()
        return Learned(make(X, y, seed), time.perf_counter() - began)

    return learn


def _lda(X: NDArray, y: NDArray, seed: int) -> NDArray:
    fitted = peer.fit(peer.PEERS["lda"], X, y, {})
    return peer.linear_map(peer.PEERS["lda"], fitted, X.shape[1])


def _apart(name: str) -> Callable[..., Learned]:
    """A learner of another package, in a process of its own that ends at the limit."""

    def learn(X: NDArray, y: NDArray, seed: int, limit: float) -> Learned:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
            np.savez(source, X=X, y=np.unique(y, return_inverse=True)[1])
            try:
                ended = subprocess.run(
                    [sys.executable, peer.__file__, name, source, target],
                    capture_output=True,
                    text=True,
                    timeout=limit,
                )
            except subprocess.TimeoutExpired:
                raise FailedError(f"not finished in {limit:g} s") from None
            if ended.returncode:
                raise FailedError((ended.stderr.strip().splitlines() or ["it crashed"])[-1])
            with np.load(target, allow_pickle=False) as file:
                return Learned(file["L"], float(file["seconds"]))

    return learn


LEARNERS = {
    "euclidean": Learner("Euclidean", _here(lambda X, y, seed: None)),
    "scaled": Learner(
        "standardised", _here(lambda X, y, seed: starting_transformation("scale", X))
    ),
    "lda": Learner("LDA", _here(_lda)),
    "boostmetric": Learner(
        "BoostMetric",
        _here(lambda X, y, seed: BoostMetric(random_state=seed).fit(X, y).components_),
    ),
    "boostmetric-cv": Learner(
        "BoostMetricCV",
        _here(lambda X, y, seed: BoostMetricCV(random_state=seed).fit(X, y).components_),
    ),
    **{
        name: Learner(peer.PEERS[name].title, _apart(name))
        for name in ("nca", "lmnn", "itml", "rca", "scml")
    },
}
"""By the name that the command line takes."""

Folds = Annotated[
    int,
    typer.Option("--cv", parser=count, metavar="N", help="Number of folds of cross-validation."),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--methods",
        parser=one_of(LEARNERS),
        metavar="NAME ...",
        help=f"Some of {', '.join(LEARNERS)}. By default those that are installed.",
    ),
]
Limit = Annotated[
    int,
    typer.Option(
        "--limit", parser=count, metavar="SECONDS", help="For one fit of another package."
    ),
]


def compare(
    data: Data,
    label: Label = None,
    cv: Folds = 5,
    methods: Methods = None,
    k: Neighbors = 3,
    columns: Columns = None,
    drop: Drop = None,
    limit: Limit = 60,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Compare metric learners on your own points.

    The error of the k nearest neighbours on the points that a fold leaves out: mean and standard
    deviation over the folds. LMNN, ITML, RCA and SCML are those of metric-learn, where it is
    installed. A learner that fails or is too slow says so in its row.
    """
    if cv == 1:
        raise CommandError("--cv 1 leaves nothing to learn from: 2 folds at least are needed.")
    table = labelled(read(data, label, columns, drop), data).dense()
    assert table.labels is not None
    folds = StratifiedKFold(cv, shuffle=True, random_state=seed)
    splits = list(folds.split(table.X, table.labels))
    chosen = [LEARNERS[name] for name in methods or filter(_is_installed, LEARNERS)]
    rows = []
    for number, learner in enumerate(chosen, start=1):
        say(f"{learner.title} ({number} of {len(chosen)}), {cv} folds")
        rows.append(_measure(learner, table.X, table.labels, splits, (k, seed, limit)))
    if json:
        show_json([row._asdict() for row in rows])
        return
    cells = [
        [row.method, row.failure or _percent(row.errors), _seconds(row.seconds)] for row in rows
    ]
    print(*aligned([["", f"{k}-NN error", "seconds a fit"], *cells]), sep="\n")


def _measure(
    learner: Learner,
    X: NDArray,
    y: NDArray,
    splits: Sequence[tuple[NDArray, NDArray]],
    settings: tuple[int, int, float],
) -> Row:
    """Learn from every fold's rest, and classify the fold."""
    k, seed, limit = settings
    row = Row(learner.title, [], [])
    try:
        for rest, left_out in splits:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of learners that do not converge
                L, seconds = learner.learn(X[rest], y[rest], seed, limit)
            Z, W = (X[part] if L is None else X[part] @ L.T for part in (rest, left_out))
            row.errors.append(knn_error(Z, y[rest], W, y[left_out], k))
            row.seconds.append(seconds)
    except (FailedError, ArithmeticError, ImportError, ValueError, np.linalg.LinAlgError) as error:
        return row._replace(errors=[], failure=f"failed: {error}".splitlines()[0])
    return row


def _is_installed(name: str) -> bool:
    needs = peer.PEERS[name].module if name in peer.PEERS else "sklearn"
    return importlib.util.find_spec(needs.partition(".")[0]) is not None


def _percent(errors: Sequence[float]) -> str:
    return f"{100 * np.mean(errors):.1f} ± {100 * np.std(errors):.1f} %"


def _seconds(seconds: Sequence[float]) -> str:
    return f"{np.mean(seconds):.2f}" if seconds else ""
