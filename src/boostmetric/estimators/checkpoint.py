"""Checkpoints: the state of a fit in a file, from which an interrupted fit continues."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import joblib
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from boostmetric._files import FileFormatError, load_arrays, save_arrays
from boostmetric._validation import warn
from boostmetric.estimators.base import as_json
from boostmetric.estimators.early_stopping import HeldOut
from boostmetric.metric import Metric
from boostmetric.solvers import Boosting, Outcome, Status, history_from, history_table, with_prefix

KIND, FORMAT_VERSION = "checkpoint", 5


class CheckpointError(ValueError):
    """A fit cannot continue from a checkpoint. The message states the reason and the remedy."""


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
    running : snapshot of the current pass; empty between passes
    held_out : snapshot of `HeldOut`; empty without early stopping
    """

    MIN_PAUSE = 5.0
    """Seconds between two writes within a pass; repeating five seconds of work is cheap."""

    def __init__(self, path: Path, settings: Mapping[str, str], data: str) -> None:
        self.path, self._settings, self._data = path, dict(settings), data
        self.passes: list[Outcome] = []
        self.running: dict[str, NDArray] = {}
        self.held_out: dict[str, NDArray] = {}
        self._written, self._pause = time.monotonic(), self.MIN_PAUSE
        state = load_state(path, KIND, FORMAT_VERSION, settings, data)
        if state is None:
            return
        facts, arrays = state
        try:
            for number, each in enumerate(facts["passes"]):
                saved = with_prefix(arrays, f"pass{number}_")
                each["status"] = Status[each["status"]]
                metric = Metric(saved["directions"], saved["coefs"])
                self.passes.append(Outcome(metric, history_from(saved["history"]), **each))
        except (LookupError, TypeError, ValueError) as error:
            self.reject(error)
        self.running = with_prefix(arrays, "running_")
        self.held_out = with_prefix(arrays, "held_out_")

    def follow(self, fit: Boosting, held_out: HeldOut | None, now: bool) -> None:
        """Write the state of the current pass, if the last write is long enough ago or `now`."""
        if now or time.monotonic() - self._written >= self._pause:
            self.running = fit.snapshot()
            self.write(held_out)

    def keep(self, done: Outcome, held_out: HeldOut | None) -> None:
        """Write a completed pass."""
        self.passes.append(done)
        self.running = {}
        self.write(held_out)

    def write(self, held_out: HeldOut | None, finished: bool = False) -> None:
        """Write the file; if the fit is finished, another fit may overwrite it."""
        began = time.monotonic()
        self.held_out = {} if held_out is None else held_out.snapshot()
        passes = []
        groups = {"running_": self.running, "held_out_": self.held_out}
        for number, done in enumerate(self.passes):
            numbers = {
                name: float(getattr(done, name)) for name in ("alpha", "alpha_max", "duality_gap")
            }
            passes.append(
                {"status": done.status.name, "n_comparisons": int(done.n_comparisons), **numbers}
            )
            groups[f"pass{number}_"] = {
                "directions": done.metric.directions,
                "coefs": done.metric.coefs,
                "history": history_table(done.history),
            }
        facts = {
            "settings": self._settings,
            "data": self._data,
            "finished": finished,
            "passes": passes,
        }
        arrays = {
            prefix + name: array
            for prefix, group in groups.items()
            for name, array in group.items()
        }
        save_state(self.path, KIND, FORMAT_VERSION, facts, arrays)
        self._written = time.monotonic()
        # On a slow disk, writes are less frequent, so that they take at most 5 % of the time.
        self._pause = max(self.MIN_PAUSE, 20 * (self._written - began))

    def reject(self, error: Exception) -> NoReturn:
        """Raise a CheckpointError for contents that this fit cannot use."""
        raise _rejection(self.path, error) from error


def load_state(
    path: Path, kind: str, version: int, settings: Mapping[str, str], data: str
) -> tuple[dict[str, Any], dict[str, NDArray]] | None:
    """Read the facts and arrays of a fit of the same data with the same settings.

    Returns None if there is no file, or if it belongs to another fit that is finished. Raises a
    CheckpointError for an unfinished fit of other data or settings.
    """
    if not path.exists():
        return None
    try:
        facts, arrays = load_arrays(path, kind, version)
        saved, is_same, finished = facts["settings"], facts["data"] == data, facts["finished"]
        differences = [
            f"{name}={saved.get(name)} (now {settings.get(name)})"
            for name in sorted(saved.keys() | settings.keys())
            if saved.get(name) != settings.get(name)
        ]
    except (FileFormatError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise _rejection(path, error) from error
    if is_same and not differences:
        return facts, arrays
    if finished:
        return None
    other = f"with {', '.join(differences)}" if differences else "of other data"
    raise CheckpointError(
        f"{path} is the checkpoint of an unfinished fit {other}. To continue that fit, use its "
        "data and parameters; otherwise pass another path or remove the file."
    )


def save_state(
    path: Path, kind: str, version: int, facts: Mapping[str, Any], arrays: Mapping[str, NDArray]
) -> None:
    """Write facts and arrays; a full disk is no reason to lose the fit, so errors are warnings."""
    try:
        save_arrays(path, kind, version, facts, arrays)
    except OSError as error:
        warn(f"The checkpoint {path} could not be written ({error}). The fit continues.")


def _rejection(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path} is not a valid checkpoint of this fit ({error}). To start from the beginning, "
        "remove the file or pass another path."
    )


def settings_of(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Convert parameters to texts that identify them, also in another process.

    Objects are identified by a digest of their class and attributes, random states only by their
    type: the rows that they select are in the checkpoint.

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
    """Compute a checksum of values: arrays by their content, objects by class and attributes.

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
