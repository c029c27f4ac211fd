"""The methods of Table 1: each learns a linear map from the training part of a split.

Where there is something to choose, such as when to stop, the validation part chooses; no method
sees the test part.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.cli import peer
from boostmetric.estimators import BoostMetric, BoostMetricCV, Trial
from boostmetric.evaluation.knn import knn_error
from boostmetric_paper.datasets import Split

N_PASSES = 3
"""Of the rows "MP"; the paper does not state its number."""

GAMMAS = (0.01, 0.1, 1.0, 10.0)
"""The values of ITML's slack parameter that the paper chooses from."""

FEW = 1000
"""Training points of a small dataset. Beyond, ITML's slack is 1, the package's default."""

N_SPLITS = 5
"""Splits of the training part of a small dataset that say, too, when BoostMetric is to stop."""


@dataclass(frozen=True, eq=False)
class Learned:
    """A linear map X ↦ X·Lᵀ, None for the identity, and what was measured on the way."""

    L: NDArray | None = None
    measures: dict[str, Any] = field(default_factory=dict)

    def transform(self, X: NDArray) -> NDArray:
        """The points in the learned space."""
        return X if self.L is None else X @ self.L.T.astype(X.dtype)


@dataclass(frozen=True)
class Method:
    """A row of Table 1.

    `learn` gets the split, after PCA unless `raw`, and a seed. `rival` is a method that is slow on
    large data: it runs on one split of those, for ten minutes at most. One `abroad` runs in the
    environment for other packages.
    """

    title: str
    learn: Callable[[Split, int], Learned]
    raw: bool = False
    rival: bool = False
    abroad: bool = False


def peers_python() -> Path:
    """The interpreter of the environment for packages that do not run beside this one.

    It is `.venv-peers/bin/python` in the current folder, as `make peers` makes it, or what the
    environment variable BOOSTMETRIC_PEERS names.
    """
    return Path(os.environ.get("BOOSTMETRIC_PEERS", ".venv-peers/bin/python"))


def _nothing(split: Split, seed: int) -> Learned:
    return Learned()


def _boosted(**candidate: Any) -> Callable[[Split, int], Learned]:
    """BoostMetric, each pass stopped where the validation part says.

    Where that has few points, splits of the training part have a say too.
    """

    def learn(split: Split, seed: int) -> Learned:
        n_splits = N_SPLITS if len(split.train.X) <= FEW else 0
        return _chosen(BoostMetricCV([candidate], n_splits=n_splits, random_state=seed), split)

    return learn


def _recipe(split: Split, seed: int) -> Learned:
    return _chosen(BoostMetricCV(random_state=seed), split)


def _chosen(learner: BoostMetricCV, split: Split) -> Learned:
    train, validation, _ = split
    learner.fit(train.X, train.y, X_val=validation.X, y_val=validation.y)
    trials: list[Trial] = learner.trials_
    best = next(trial for trial in trials if trial.candidate == learner.best_params_)
    passes = [done for trial in trials for done in trial.passes]
    measures = {
        "mining_seconds": sum(trial.seconds[0] for trial in trials),
        "fit_seconds": sum(trial.seconds[1] for trial in trials),
        "iterations": sum(done.n_iter for done in passes),
        "directions": sum(done.n_directions for done in passes),
        "ended": best.passes[-1].status.name,
        "chosen": {**learner.best_params_, "stops": learner.stops_},
        "held_out_error": learner.best_error_,
    }
    return Learned(learner.components_, measures)


def _soft_margin(split: Split, seed: int) -> Learned:
    learner = BoostMetric(loss="hinge").fit(*split.train)
    boosting = float(learner.history_["seconds"][-1])
    measures = {
        "fit_seconds": boosting,
        "iterations": learner.n_iter_,
        "ended": learner.status_.name,
    }
    return Learned(learner.components_, measures)


def _here(name: str) -> Callable[[Split, int], Learned]:
    """A method of scikit-learn, in this process."""

    def learn(split: Split, seed: int) -> Learned:
        fitted = peer.fit(peer.PEERS[name], *split.train, {})
        L = peer.linear_map(peer.PEERS[name], fitted, split.train.X.shape[1])
        return Learned(L, {"iterations": getattr(fitted, "n_iter_", None)})

    return learn


def elsewhere(name: str, X: NDArray, y: NDArray, **options: Any) -> Learned:
    """A method of another package, fitted in the environment for peers.

    Parameters
    ----------
    name : one of `peer.PEERS`
    X, y : points and labels
    options : of the method, beside those that `peer.PEERS` sets
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(source, X=X, y=np.unique(y, return_inverse=True)[1])
        ended = subprocess.run(
            [peers_python(), peer.__file__, name, source, target, json.dumps(options)],
            capture_output=True,
            text=True,
        )
        if ended.returncode == -signal.SIGXCPU:
            os.kill(os.getpid(), signal.SIGXCPU)  # its limit is the limit of this process
        if ended.returncode:
            said = ended.stderr.strip().splitlines() or [f"ended with code {ended.returncode}"]
            raise RuntimeError(said[-1])
        with np.load(target, allow_pickle=False) as file:
            L = file["L"]
            measures = {
                "fit_seconds": float(file["seconds"]),
                "processor_seconds": float(file["processor"]),
                "memory": float(file["memory"]),
                "iterations": int(file["n_iter"]) if file["n_iter"] >= 0 else None,
            }
    if not np.isfinite(L).all():
        raise RuntimeError("the learned map is not finite")
    return Learned(L, {**measures, "versions": json.loads(ended.stdout.splitlines()[0])})


def _there(name: str) -> Callable[[Split, int], Learned]:
    return lambda split, seed: elsewhere(name, *split.train)


def _itml(split: Split, seed: int) -> Learned:
    train, validation, _ = split
    gammas = GAMMAS if len(train.X) <= FEW else (1.0,)
    tried = {gamma: elsewhere("itml", *train, gamma=gamma) for gamma in gammas}

    def error(gamma: float) -> float:
        Z, W = tried[gamma].transform(train.X), tried[gamma].transform(validation.X)
        return knn_error(Z, train.y, W, validation.y, ties="first")

    best = min(gammas, key=error)
    return Learned(tried[best].L, {**tried[best].measures, "chosen": {"gamma": best}})


CORRECTIVE = {"solver": "totally_corrective", "tol": 1e-2}
PASSES = {"n_passes": N_PASSES}

METHODS = {
    "euclidean": Method("Euclidean", _nothing, raw=True),
    "pca": Method("PCA", _nothing),
    "lda": Method("LDA", _here("lda")),
    "rca": Method("RCA", _there("rca"), abroad=True),
    "nca": Method("NCA", _here("nca"), rival=True),
    "lmnn": Method("LMNN", _there("lmnn"), rival=True, abroad=True),
    "itml": Method("ITML", _itml, rival=True, abroad=True),
    **{
        f"boostmetric-{letter}{suffix}": Method(
            f"BoostMetric-{letter.upper()}{title}", _boosted(loss=loss, **options)
        )
        for letter, loss in (("e", "exponential"), ("l", "logistic"))
        for suffix, title, options in (
            ("", "", {}),
            ("-mp", ", MP", PASSES),
            ("-tc", ", TC", CORRECTIVE),
            ("-mp-tc", ", MP, TC", {**PASSES, **CORRECTIVE}),
        )
    },
    "hinge": Method("soft-margin hinge", _soft_margin, rival=True),
    "recipe": Method("BoostMetric, recipe", _recipe),
}
"""By the name that the command line takes, in the order of the table."""
