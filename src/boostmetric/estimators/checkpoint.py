"""Checkpoints: the state of a fit in a file, from which an interrupted fit continues."""

from __future__ import annotations

import math
import os
import pickle
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from boostmetric._files import FileFormatError, load_arrays, save_arrays
from boostmetric._validation import warn
from boostmetric.estimators.early_stopping import EarlyStopping
from boostmetric.estimators.origin import as_json
from boostmetric.metric import Metric
from boostmetric.solvers import Outcome, Status, history_from, history_table, with_prefix

KIND, FORMAT_VERSION = "checkpoint", 3

MIN_SECONDS_BETWEEN_WRITES = 5.0
"""Within a pass. Repeating five seconds of work is cheap."""

MAX_SHARE_OF_TIME = 0.05
"""Share of the time that writing may take: on a slow disk, writes are less frequent."""


class CheckpointError(ValueError):
    """A fit cannot continue from a checkpoint. The message says why, and what to do."""


class Checkpoint:
    """The file of a fit: the completed passes, and the state of the current one.

    Parameters
    ----------
    path : the file. If it belongs to a fit of the same data with the same settings, the attributes
        are read from it. If it belongs to another unfinished fit, a CheckpointError is raised,
        because writing would lose that fit
    settings : identifies the parameters (`settings_of`)
    data : identifies the data (`digest`)

    Attributes
    ----------
    passes : outcomes of the completed passes
    running, stopping : snapshots of the current pass and of its early stopping; empty between
        passes
    held_out, best_error : positions that early stopping holds out, an array or None, and the lowest
        error on them in the completed passes
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, str], data: str
    ) -> None:
        self.path, self._settings, self._data = Path(path), dict(settings), data
        self.passes: list[Outcome] = []
        self.running: dict[str, NDArray] = {}
        self.stopping: dict[str, NDArray] = {}
        self.held_out: NDArray | None = None
        self.best_error = math.inf
        self._written, self._pause = time.monotonic(), MIN_SECONDS_BETWEEN_WRITES
        if self.path.exists():
            self._read()

    def keep(self, done: Outcome, best_error: float) -> None:
        """Write a completed pass."""
        self.passes.append(done)
        self.best_error = best_error
        self.running, self.stopping = {}, {}
        self._write(finished=False)

    def follow(
        self,
        snapshot: Callable[[], dict[str, NDArray]],
        stopping: EarlyStopping | None = None,
        now: bool = False,
    ) -> None:
        """Write the state of the current pass, if the last write is long enough ago or `now`."""
        if now or time.monotonic() - self._written >= self._pause:
            self.running = snapshot()
            self.stopping = {} if stopping is None else stopping.snapshot()
            self._write(finished=False)

    def finish(self) -> None:
        """Write the result of the fit. From now on, another fit may overwrite the file."""
        self._write(finished=True)

    def reject(self, error: Exception) -> NoReturn:
        """Raise a CheckpointError for contents that this fit cannot use."""
        raise CheckpointError(
            f"{self.path} is not a valid checkpoint of this fit ({error}). To start from the "
            "beginning, remove the file or pass another path."
        ) from error

    def _write(self, finished: bool) -> None:
        began = time.monotonic()
        facts = {
            "settings": self._settings,
            "data": self._data,
            "finished": finished,
            "best_error": self.best_error,
            "passes": [
                {
                    "status": done.status.name,
                    "alpha": float(done.alpha),
                    "alpha_max": float(done.alpha_max),
                    "duality_gap": float(done.duality_gap),
                    "n_comparisons": int(done.n_comparisons),
                }
                for done in self.passes
            ],
        }
        groups = {"running_": self.running, "stopping_": self.stopping}
        for number, done in enumerate(self.passes):
            groups[f"pass{number}_"] = {
                "directions": done.metric.directions,
                "coefs": done.metric.coefs,
                "history": history_table(done.history),
            }
        arrays = {
            prefix + name: array
            for prefix, group in groups.items()
            for name, array in group.items()
        }
        if self.held_out is not None:
            arrays["held_out"] = self.held_out
        try:
            save_arrays(self.path, KIND, FORMAT_VERSION, facts, arrays)
        except OSError as error:  # a full disk is no reason to lose the fit
            warn(f"The checkpoint {self.path} could not be written ({error}). The fit continues.")
        self._written = time.monotonic()
        self._pause = max(MIN_SECONDS_BETWEEN_WRITES, (self._written - began) / MAX_SHARE_OF_TIME)

    def _read(self) -> None:
        try:
            facts, arrays = load_arrays(self.path, KIND, FORMAT_VERSION)
            settings, data, finished = facts["settings"], facts["data"], facts["finished"]
            passes = [
                _outcome(done, with_prefix(arrays, f"pass{number}_"))
                for number, done in enumerate(facts["passes"])
            ]
            best_error = float(facts["best_error"])
        except (FileFormatError, LookupError, TypeError, ValueError) as error:
            self.reject(error)
        differences = [
            f"{name}={settings.get(name)} (now {self._settings.get(name)})"
            for name in sorted(settings.keys() | self._settings.keys())
            if settings.get(name) != self._settings.get(name)
        ]
        if differences or data != self._data:
            if finished:
                return
            other = f"with {', '.join(differences)}" if differences else "of other data"
            raise CheckpointError(
                f"{self.path} is the checkpoint of an unfinished fit {other}. To continue that "
                "fit, use its data and parameters; otherwise pass another path or remove the file."
            )
        self.passes, self.best_error, self.held_out = passes, best_error, arrays.get("held_out")
        self.running = with_prefix(arrays, "running_")
        self.stopping = with_prefix(arrays, "stopping_")


def _outcome(facts: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Outcome:
    return Outcome(
        **{**facts, "status": Status[facts["status"]]},
        metric=Metric(arrays["directions"], arrays["coefs"]),
        history=history_from(arrays["history"]),
    )


def settings_of(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as texts that identify them, also in another process.

    Objects are identified by a digest of their class and attributes, random states only by their
    type: what they choose is in the checkpoint.

    >>> settings_of({"alpha": 0.5, "rng": np.random.RandomState(0)})
    {'alpha': '0.5', 'rng': 'RandomState(MT19937)'}
    >>> settings_of({"init": np.eye(1)})
    {'init': 'array([[1.]]) (digest ...)'}
    """
    texts = {}
    for name, value in parameters.items():
        texts[name] = re.sub(r" at 0x[0-9A-Fa-f]+", "", str(as_json(value)))
        if not isinstance(
            value, None | bool | int | float | str | np.generic | np.random.RandomState
        ):
            texts[name] += f" (digest {digest(value)[:8]})"
    return texts


def digest(*parts: Any) -> str:
    """A checksum of values of any type: arrays by their content, objects by class and attributes.

    Raises a CheckpointError for objects that cannot be pickled, such as locks and open files.

    >>> digest(np.zeros(2)) == digest(np.zeros(2)), digest(np.zeros(2)) == digest(np.zeros((2, 1)))
    (True, False)
    """
    contents: list[Any] = []
    for part in parts:
        if issparse(part):  # its attributes include cached properties
            rows = part.tocsr()
            contents.append((rows.shape, rows.data, rows.indices, rows.indptr))
        elif isinstance(part, np.ndarray):  # the order in memory does not matter
            contents.append((part.shape, np.ascontiguousarray(part)))
        else:
            contents.append(part)
    try:
        checksum: str = joblib.hash(contents, hash_name="sha1")
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"checkpoint requires parameters and data that can be pickled: {error}. Pass "
            "checkpoint=None, or an object without such attributes."
        ) from error
    return checksum
