"""Checkpoints: the state of a fit in a file, from which a killed fit continues."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from boostmetric._archive import ArchiveError, read_archive, write_archive
from boostmetric._warn import warn
from boostmetric.estimators.early_stopping import EarlyStopping
from boostmetric.estimators.origin import as_json
from boostmetric.metric import Metric
from boostmetric.solvers import (
    Iteration,
    Outcome,
    Status,
    history_from,
    history_table,
    with_prefix,
)

KIND, VERSION = "checkpoint", 2
"""Of the file, and its format. Version 1 did not identify the state of a custom loss."""

MIN_SECONDS_BETWEEN_WRITES = 5.0
"""Within a pass. A pass of fewer seconds is quickly repeated."""

MAX_SHARE_OF_TIME = 0.05
"""Writing takes no larger share of the time: on a slow disk, writes are less frequent."""

PASS, RUNNING, STOPPING = "pass", "running_", "stopping_"
"""Prefixes of the names of arrays: `pass0_coefs`, `running_coefs`, `stopping_coefs`."""

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions of code that uses contents of a wrong type or shape."""


class CheckpointError(ValueError):
    """A checkpoint that a fit cannot continue from. The message says why, and what to do."""


class Checkpoint:
    """The file of a fit: the passes that are done, and the state of the unfinished one.

    Parameters
    ----------
    path : the file. If it is that of an unfinished fit of the same data with the same settings, the
        attributes have the values that it contains. If it is that of another unfinished fit, a
        CheckpointError is raised, because writing would lose that fit
    settings : what the result depends on in addition to the data (`settings_of`)
    data : a `digest` of the data

    Attributes
    ----------
    passes : outcomes of the passes that are done
    running : arrays, the snapshot of the unfinished pass; empty between passes
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
        self._stopping: dict[str, NDArray] = {}
        self._written, self._pause = time.monotonic(), MIN_SECONDS_BETWEEN_WRITES
        if self.path.exists():
            self._read()

    def keep(self, done: Outcome, best_error: float) -> None:
        """Write a pass that is done."""
        self.passes.append(done)
        self.best_error = best_error
        self.running, self._stopping = {}, {}
        self._write(finished=False)

    def follow(
        self,
        snapshot: Callable[[], dict[str, NDArray]],
        stopping: EarlyStopping | None = None,
        now: bool = False,
    ) -> None:
        """Write the state of the unfinished pass, if the last write is long enough ago or `now`."""
        if now or time.monotonic() - self._written >= self._pause:
            self.running = snapshot()
            self._stopping = {} if stopping is None else stopping.snapshot()
            self._write(finished=False)

    def finish(self) -> None:
        """Write the result of the fit. Another fit may overwrite the file from now on."""
        self._write(finished=True)

    # The problem itself is known only after the file was read: these check the rest.

    def check_held_out(self, n: int) -> None:
        """Raise a CheckpointError unless the held-out positions are distinct ones among n."""
        rows = self.held_out
        if rows is None:
            return
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not 0 < len(rows) < n:
            self.reject(f"held_out is of type {rows.dtype} and shape {rows.shape}")
        if rows.min() < 0 or rows.max() >= n or len(np.unique(rows)) < len(rows):
            self.reject(f"held_out does not contain distinct positions below {n}")

    def check_pass(self, number: int, n_features: int) -> None:
        """Raise a CheckpointError unless the metric of a pass is one of so many features."""
        found = self.passes[number].metric.n_features
        if found != n_features:
            self.reject(f"pass {number + 1} has {found} features instead of {n_features}")

    def resume_early_stopping(self, stopping: EarlyStopping, n_features: int) -> None:
        """Let the early stopping of the unfinished pass continue where it was."""
        try:
            stopping.resume(self._stopping)
            if math.isnan(stopping.best_error):
                raise ValueError("the lowest error is NaN")
            best = stopping.best_metric
            if best is not None and best.n_features != n_features:
                raise ValueError(f"{best.n_features} features instead of {n_features}")
        except MALFORMED as error:
            self.reject(f"the state of early stopping is malformed: {error!r}", error)

    def reject(self, reason: str, error: Exception | None = None) -> NoReturn:
        """Raise a CheckpointError for contents that do not belong to this fit."""
        raise CheckpointError(
            f"{self.path} is not a valid checkpoint of this fit ({reason}). To start from the "
            "beginning, remove the file or pass another path."
        ) from error

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
        arrays |= {STOPPING + name: array for name, array in self._stopping.items()}
        for number, done in enumerate(self.passes):
            arrays |= {f"{PASS}{number}_{name}": each for name, each in _arrays_of(done).items()}
        if self.held_out is not None:
            arrays["held_out"] = self.held_out
        try:
            write_archive(self.path, KIND, VERSION, facts, arrays)
        except OSError as error:  # a full disk is no reason to lose the fit
            warn(f"The checkpoint {self.path} could not be written ({error}). The fit continues.")
        self._written = time.monotonic()
        taken = self._written - began
        self._pause = max(MIN_SECONDS_BETWEEN_WRITES, taken / MAX_SHARE_OF_TIME)

    def _read(self) -> None:
        try:
            facts, arrays = read_archive(self.path, KIND, VERSION, oldest=VERSION)
        except ArchiveError as error:
            raise CheckpointError(
                f"{error} To start from the beginning, remove the file or pass another path."
            ) from error
        for name, kind in (
            ("settings", dict),
            ("data", str),
            ("finished", bool),
            ("best_error", float | int),
            ("statuses", list),
        ):
            if not isinstance(facts.get(name), kind):
                self.reject(f"{name} is {facts.get(name)!r:.80}")
        if differences := self._differences(facts):
            if facts["finished"]:
                return
            raise CheckpointError(
                f"{self.path} is the checkpoint of an unfinished fit {differences}. To continue "
                "that fit, use its data and parameters; otherwise pass another path or remove the "
                "file."
            )
        if math.isnan(facts["best_error"]):
            self.reject("best_error is NaN")
        self.passes = [
            self._outcome(number, name, with_prefix(arrays, f"{PASS}{number}_"))
            for number, name in enumerate(facts["statuses"])
        ]
        self.running = with_prefix(arrays, RUNNING)
        self._stopping = with_prefix(arrays, STOPPING)
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

    def _outcome(self, number: int, status: Any, arrays: Mapping[str, NDArray]) -> Outcome:
        """The inverse of `_arrays_of`."""
        if not isinstance(status, str) or status not in Status.__members__:
            self.reject(f"the status of pass {number + 1} is {status!r:.80}")
        try:
            alpha, alpha_max, gap = arrays["numbers"].tolist()
            if math.isnan(alpha) or math.isnan(alpha_max):
                raise ValueError(f"alpha is {alpha}, alpha_max is {alpha_max}")
            return Outcome(
                metric=Metric(arrays["directions"], arrays["coefs"]),
                history=self._history(arrays["history"]),
                status=Status[status],
                alpha=alpha,
                alpha_max=alpha_max,
                duality_gap=gap,
                n_comparisons=int(arrays["n_comparisons"]),
            )
        except CheckpointError:
            raise
        except MALFORMED as error:
            self.reject(f"pass {number + 1} is malformed: {error!r}", error)

    def _history(self, table: NDArray) -> list[Iteration]:
        names = [field.name for field in fields(Iteration)]
        if table.ndim != 2 or table.shape[1] != len(names) or table.dtype.kind != "f":
            self.reject(f"a history is of type {table.dtype} and shape {table.shape}")
        known = np.array([name != "duality_gap" for name in names])  # a gap may be NaN or infinite
        if not np.isfinite(table[:, known]).all():
            self.reject("a history contains NaN or infinity")
        return history_from(table)


def _arrays_of(fit: Outcome) -> dict[str, NDArray]:
    return {
        "directions": fit.metric.directions,
        "coefs": fit.metric.coefs,
        "history": history_table(fit.history),
        "numbers": np.array([fit.alpha, fit.alpha_max, fit.duality_gap]),
        "n_comparisons": np.array(fit.n_comparisons),
    }


def settings_of(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as texts that identify them, also in another process.

    Objects are identified by their class and by all their attributes, which a digest stands for.
    Random states are not: what they choose is in the checkpoint.

    >>> settings_of({"alpha": 0.5, "rng": np.random.RandomState(0)})
    {'alpha': '0.5', 'rng': 'RandomState(MT19937)'}
    >>> settings_of({"init": np.eye(1)})
    {'init': 'array([[1.]]) (digest ...)'}
    """
    texts = {}
    for name, value in parameters.items():
        texts[name] = re.sub(r" at 0x[0-9A-Fa-f]+", "", str(as_json(value)))
        if not _is_plain(value) and not isinstance(value, np.random.RandomState):
            texts[name] += f" (digest {digest(value)[:8]})"
    return texts


def _is_plain(value: Any) -> bool:
    """Whether `as_json` has all there is of a value."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | np.generic)


def digest(*parts: Any) -> str:
    """A checksum of values of any type: arrays by their content, objects by class and attributes.

    Every value is preceded by its type and length, so values of different structure differ.
    Raises a CheckpointError for objects without a known state, such as locks and open files.

    >>> digest(np.zeros(2)) == digest(np.zeros(2)), digest(np.zeros(2)) == digest(np.zeros((2, 1)))
    (True, False)
    >>> digest(None, 1) == digest(1, None)
    False
    """
    found = sha256()

    def add(value: Any) -> None:
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            tag("array", value.dtype.str, value.shape)
            found.update(np.ascontiguousarray(value).view(np.uint8).data)
        elif isinstance(value, np.ndarray):
            tag("objects", value.shape)
            add(value.ravel().tolist())
        elif issparse(value):
            tag("sparse", value.shape)
            rows = value.tocsr()
            add([rows.data, rows.indices, rows.indptr])
        elif isinstance(value, dict):
            tag("dict", len(value))
            for key in sorted(value, key=repr):
                add((key, value[key]))
        elif isinstance(value, set | frozenset):
            tag("set", len(value))
            for each in sorted(value, key=repr):
                add(each)
        elif isinstance(value, list | tuple):
            tag(type(value).__name__, len(value))
            for each in value:
                add(each)
        elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
            tag(type(value).__name__, value)
        elif isinstance(value, type | ModuleType | BuiltinFunctionType):
            tag("name", getattr(value, "__module__", ""), getattr(value, "__qualname__", value))
        elif isinstance(value, FunctionType):
            tag("function", value.__module__, value.__qualname__)
            if "<" in value.__qualname__:  # a lambda or a local function: the name is not enough
                cells = [cell.cell_contents for cell in value.__closure__ or ()]
                add((value.__code__, value.__defaults__, value.__kwdefaults__, cells))
        elif isinstance(value, CodeType):
            tag("code", value.co_names)
            add((value.co_code, value.co_consts))
        else:
            # What a copy would be made from: the class, and all attributes.
            tag("object")
            add(value.__reduce_ex__(4))

    def tag(*words: Any) -> None:
        text = repr(words).encode()
        found.update(f"{len(text)}:".encode() + text)

    try:
        add(parts)
    except (TypeError, RecursionError) as error:
        raise CheckpointError(
            f"checkpoint needs parameters and data whose state can be read: {error}. Pass "
            "checkpoint=None, or an object without such attributes."
        ) from error
    return found.hexdigest()
