"""Checkpoints: the state of a fit in a file, from which a fit that was killed goes on."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from boostmetric._archive import ArchiveError, read_archive, write_archive
from boostmetric._warn import warn
from boostmetric.metric import Metric
from boostmetric.origin import as_json
from boostmetric.state import Outcome, Status, beginning, history_from, history_table

KIND, VERSION = "checkpoint", 1
"""Of the file, and its format."""

EVERY = 5.0
"""Seconds from one checkpoint to the next within a pass, at least."""

SHARE = 0.05
"""The share of the time that writing may take."""

PASS, RUNNING = "pass", "running_"
"""What the names of arrays begin with: `pass0_coefs`, `running_margins`."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be gone on from. The message says why, and what to do."""


class Checkpoint:
    """A file that follows a fit: the passes that are done, and the state of the one under way.

    Parameters
    ----------
    path : the file. Where it is that of an unfinished fit of the same data with the same settings,
        `passes`, `running` and `held_out` are as they were; where it is that of another one, a
        `CheckpointError` is raised, as writing to it would lose what it holds
    settings : what the fit depends on beside the data, as texts that tell values apart
    data : a `digest` of the data

    Attributes
    ----------
    passes : what those that are done came to
    running : arrays, the snapshot of the pass that is under way; empty between passes
    held_out, best_error : what early stopping holds out, an array or None, and the lowest error on
        it in the passes that are done
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, str], data: str
    ) -> None:
        self.path, self._settings, self._data = Path(path), dict(settings), data
        self.passes: list[Outcome] = []
        self.running: dict[str, NDArray] = {}
        self.held_out: NDArray | None = None
        self.best_error = math.inf
        self._written, self._pause = time.monotonic(), EVERY
        if self.path.exists():
            self._read()

    def keep(self, done: Outcome, best_error: float) -> None:
        """A pass is done."""
        self.passes.append(done)
        self.best_error = best_error
        self.running = {}
        self._write(finished=False)

    def follow(self, snapshot: Callable[[], dict[str, NDArray]], now: bool = False) -> None:
        """Write the state of the pass under way, if it is time to, or `now`."""
        if now or time.monotonic() - self._written >= self._pause:
            self.running = snapshot()
            self._write(finished=False)

    def finish(self) -> None:
        """The fit has ended: what is left is its result, which another fit may write over."""
        self._write(finished=True)

    def _write(self, finished: bool) -> None:
        began = time.monotonic()
        facts = {
            "settings": self._settings,
            "data": self._data,
            "finished": finished,
            "best_error": self.best_error,
            "statuses": [done.status.name for done in self.passes],
        }
        arrays = {RUNNING + name: array for name, array in self.running.items()}
        for number, done in enumerate(self.passes):
            arrays |= {f"{PASS}{number}_{name}": each for name, each in _arrays_of(done).items()}
        if self.held_out is not None:
            arrays["held_out"] = self.held_out
        try:
            write_archive(self.path, KIND, VERSION, facts, arrays)
        except OSError as error:  # a full disk is no reason to lose the fit
            warn(f"The checkpoint {self.path} could not be written ({error}). The fit goes on.")
        self._written = time.monotonic()
        self._pause = max(EVERY, (self._written - began) / SHARE)

    def _read(self) -> None:
        try:
            facts, arrays = read_archive(self.path, KIND, VERSION)
        except ArchiveError as error:
            raise CheckpointError(f"{error} To begin anew, remove the file.") from error
        if differences := self._differences(facts):
            if facts["finished"]:
                return
            raise CheckpointError(
                f"{self.path} is the checkpoint of an unfinished fit {differences}. Fit as it was "
                "begun to go on from it, name another file, or remove this one."
            )
        self.passes = [
            _outcome_from(beginning(arrays, f"{PASS}{number}_"), Status[name])
            for number, name in enumerate(facts["statuses"])
        ]
        self.running = beginning(arrays, RUNNING)
        self.held_out, self.best_error = arrays.get("held_out"), facts["best_error"]

    def _differences(self, facts: Mapping[str, Any]) -> str:
        """How the fit of a file differs from this one, in words."""
        settings = facts["settings"]
        differ = [
            f"{name}={settings.get(name)} (now {self._settings.get(name)})"
            for name in sorted(settings.keys() | self._settings.keys())
            if settings.get(name) != self._settings.get(name)
        ]
        if differ:
            return f"with {', '.join(differ)}"
        return "of other data" if facts["data"] != self._data else ""


def _arrays_of(fit: Outcome) -> dict[str, NDArray]:
    return {
        "directions": fit.metric.directions,
        "coefs": fit.metric.coefs,
        "history": history_table(fit.history),
        "numbers": np.array([fit.alpha, fit.alpha_max, fit.duality_gap]),
        "n_comparisons": np.array(fit.n_comparisons),
    }


def _outcome_from(arrays: Mapping[str, NDArray], status: Status) -> Outcome:
    alpha, alpha_max, gap = arrays["numbers"].tolist()
    return Outcome(
        metric=Metric(arrays["directions"], arrays["coefs"]),
        history=history_from(arrays["history"]),
        status=status,
        alpha=alpha,
        alpha_max=alpha_max,
        duality_gap=gap,
        n_comparisons=int(arrays["n_comparisons"]),
    )


def settings_of(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as texts by which two fits can be told apart, in different processes too.

    >>> settings_of({"alpha": 0.5, "rng": np.random.RandomState()})
    {'alpha': '0.5', 'rng': 'RandomState(MT19937)'}
    """
    return {
        name: re.sub(r" at 0x[0-9A-Fa-f]+", "", str(as_json(value)))
        for name, value in parameters.items()
    }


def digest(*parts: Any) -> str:
    """A checksum of arrays, dense or sparse, of objects that have some, and of None.

    >>> digest(np.zeros(2)) == digest(np.zeros(2)), digest(np.zeros(2)) == digest(np.zeros((2, 1)))
    (True, False)
    """
    found = sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype} {part.shape}".encode())
            # Labels of any type are told apart by their text.
            values = part.astype(str) if part.dtype.hasobject else part
            found.update(np.ascontiguousarray(values).view(np.uint8).data)
        elif issparse(part):
            found.update(repr(part.shape).encode())
            found.update(digest(part.data, part.indices, part.indptr).encode())
        elif hasattr(part, "__dict__"):
            arrays = [each for each in vars(part).values() if isinstance(each, np.ndarray)]
            found.update(digest(*arrays).encode())
        else:
            found.update(repr(part).encode())
    return found.hexdigest()
