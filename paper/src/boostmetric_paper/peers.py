"""Metric learners of other packages, fitted in a separate process.

    python peers.py METHOD IN.npz OUT.npz OPTIONS CPU_SECONDS

IN.npz contains `X` and `y`; OPTIONS and CPU_SECONDS are JSON. OUT.npz receives the linear map `L`
and, as JSON, the `measures`: time, memory, iterations and versions. As a script this file imports
only NumPy and the package of the method, so it runs in an environment without boostmetric.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

MEMORY_GB = 16
"""Memory limit of a process; the machine of the committed results has 16 GB."""

ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
"""Environment variables of all measured processes, so that times can be compared."""

T = TypeVar("T")


class Peer(NamedTuple):
    """A method of another package, and the parameters that differ from its defaults."""

    title: str
    package: str
    module: str
    name: str
    options: dict[str, Any]

    @property
    def is_external(self) -> bool:
        """Whether the package is installed in a separate environment (`make peers peers-torch`)."""
        return self.package in ("metric-learn", "mlpack", "pytorch-metric-learning")


PEERS = {
    "lmnn": Peer("LMNN", "metric-learn", "metric_learn", "LMNN", {"random_state": 0}),
    "mlpack-lmnn": Peer("LMNN of mlpack", "mlpack", "mlpack", "lmnn", {"seed": 1}),
    "nca": Peer(
        *("NCA", "scikit-learn", "sklearn.neighbors", "NeighborhoodComponentsAnalysis"),
        {"random_state": 0},
    ),
    "itml": Peer("ITML", "metric-learn", "metric_learn", "ITML_Supervised", {"random_state": 0}),
    "scml": Peer("SCML", "metric-learn", "metric_learn", "SCML_Supervised", {"random_state": 0}),
    "linear-layer": Peer(
        *("linear layer", "pytorch-metric-learning", __name__, "LinearLayer"),  # below
        {"seed": 0},
    ),
    "itml-triplets": Peer("ITML", "metric-learn", __name__, "ITMLFromTriplets", {}),
    "lfda": Peer("LFDA", "metric-learn", "metric_learn", "LFDA", {}),
    # RCA learns from chunks of similar points; here the chunks are the classes.
    "rca": Peer("RCA", "metric-learn", "metric_learn", "RCA", {}),
    "lda": Peer(
        *("LDA", "scikit-learn", "sklearn.discriminant_analysis", "LinearDiscriminantAnalysis"),
        {},
    ),
    "boostmetric": Peer(
        "BoostMetric", "boostmetric", "boostmetric", "BoostMetric", {"random_state": 0}
    ),
    "boostmetric-exponential": Peer(
        *("BoostMetric, exponential", "boostmetric", "boostmetric", "BoostMetric"),
        {"loss": "exponential", "random_state": 0},
    ),
}
"""By name; the slowest first, which is the order of `benchmarks/peers.py`."""


@dataclass(frozen=True, eq=False)
class Learned:
    """A linear map X ↦ X·Lᵀ, None for the identity, and measurements of the fit."""

    L: NDArray | None = None
    measures: dict[str, Any] = field(default_factory=dict)

    def transform(self, X: NDArray) -> NDArray:
        """The points in the learned space."""
        return X if self.L is None else X @ self.L.T.astype(X.dtype)


class LinearLayer:
    """A linear layer trained with a loss of pytorch-metric-learning, by Adam on minibatches.

    The layer starts at the identity, on points divided by their standard deviation (one number for
    all features). The loss is that of NCA on squared Euclidean distances, without normalization.

    Parameters
    ----------
    n_epochs, batch_size, learning_rate, seed : of the training
    """

    def __init__(
        self,
        n_epochs: int = 20,
        batch_size: int = 512,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ) -> None:
        self.n_epochs, self.batch_size = n_epochs, batch_size
        self.learning_rate, self.seed = learning_rate, seed

    def fit(self, X: NDArray, y: NDArray) -> LinearLayer:
        """Train the layer."""
        torch: Any = importlib.import_module("torch")
        distances: Any = importlib.import_module("pytorch_metric_learning.distances")
        losses: Any = importlib.import_module("pytorch_metric_learning.losses")
        torch.manual_seed(self.seed)
        self.scale = float(np.std(X - X.mean(axis=0)))
        points = torch.from_numpy((X / self.scale).astype(np.float32))
        labels = torch.from_numpy(y.astype(np.int64))
        layer = torch.nn.Linear(X.shape[1], X.shape[1], bias=False)
        torch.nn.init.eye_(layer.weight)
        distance = distances.LpDistance(normalize_embeddings=False, power=2)
        loss = losses.NCALoss(distance=distance)
        optimizer = torch.optim.Adam(layer.parameters(), lr=self.learning_rate)
        for _ in range(self.n_epochs):
            for rows in torch.randperm(len(points)).split(self.batch_size):
                optimizer.zero_grad()
                loss(layer(points[rows]), labels[rows]).backward()
                optimizer.step()
        self.weight = layer.weight.detach().numpy().astype(np.float64)
        return self

    def transform(self, X: NDArray) -> NDArray:
        """The images of the points."""
        return (X / self.scale) @ self.weight.T


class ITMLFromTriplets:
    """ITML of metric-learn, which learns from pairs.

    A row (a, b, c) of the triplets gives the similar pair (a, b) and the dissimilar pair (a, c).
    """

    def fit(self, X: NDArray, triplets: NDArray) -> ITMLFromTriplets:
        """Learn from integer triplets of the rows of X, of shape (m, 3)."""
        itml: Any = importlib.import_module("metric_learn").ITML
        pairs = np.concatenate([triplets[:, [0, 1]], triplets[:, [0, 2]]])
        self.learned = itml(random_state=0).fit(X[pairs], np.repeat([1, -1], len(triplets)))
        return self

    def transform(self, X: NDArray) -> NDArray:
        """The images of the points."""
        return np.asarray(self.learned.transform(X))


class PeerError(RuntimeError):
    """A fit failed; the message is the reason in a few words."""


def fit_here(name: str, X: NDArray, y: NDArray, **options: Any) -> Learned:
    """Fit one of `PEERS` in this process."""
    peer = PEERS[name]
    learner = getattr(importlib.import_module(peer.module), peer.name)
    if learner is LinearLayer:  # the import of PyTorch is not part of the fit
        importlib.import_module("pytorch_metric_learning.losses")
    options = {**peer.options, **options}
    if peer.package == "mlpack":
        fitted, measures = measure(lambda: learner(input_=X, labels=y, **options))
        L = np.asarray(fitted["output"]).T  # mlpack transposes matrices on their way to Python
    else:
        fitted, measures = measure(lambda: learner(**options).fit(X, y))
        unit, zero = np.eye(X.shape[1]), np.zeros((1, X.shape[1]))
        L = np.asarray(fitted.transform(unit) - fitted.transform(zero)).T
    n_iter = getattr(fitted, "n_iter_", None)
    return Learned(L, {**measures, "iterations": None if n_iter is None else int(n_iter)})


def fit_in_subprocess(
    name: str, X: NDArray, y: NDArray, *, cpu_seconds: float | None = None, **options: Any
) -> Learned:
    """Fit one of `PEERS` in a new process with one thread.

    Parameters
    ----------
    name : a key of `PEERS`
    X, y : points of shape (n, D), and labels or integer triplets of shape (m, 3)
    cpu_seconds : CPU time after which the process is killed, so that the result does not depend on
        what else the machine does
    options : parameters of the method, in addition to those of `PEERS`

    Raises
    ------
    PeerError
        If the process fails or does not finish in time.

    Examples
    --------
    >>> X, y = np.array([[0.0, 0], [1, 5], [0, 4], [9, 1], [8, 5], [9, 6]]), np.repeat([0, 1], 3)
    >>> fit_in_subprocess("lda", X, y).L.shape
    (1, 2)
    """
    peer = PEERS[name]
    python = peers_python(peer.package) if peer.is_external else Path(sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(source, X=X, y=y if np.ndim(y) == 2 else np.unique(y, return_inverse=True)[1])
        # -P: the folder of this file is not a place to import from.
        command = [str(python), "-P", __file__, name, str(source), str(target)]
        done = subprocess.run(
            [*command, json.dumps(options), json.dumps(cpu_seconds)],
            capture_output=True,
            text=True,
            env={**os.environ, **ONE_THREAD},
        )
        if done.returncode == -signal.SIGXCPU:
            if cpu_seconds is None:
                # The child inherited the CPU limit of this process, which has run out for both.
                os.kill(os.getpid(), signal.SIGXCPU)
            raise PeerError(f"not finished in {cpu_seconds:g} s")
        if done.returncode:
            raise PeerError(failure_of(done.stderr, done.returncode))
        with np.load(target, allow_pickle=False) as file:
            L, measures = file["L"], json.loads(str(file["measures"]))
    if not np.isfinite(L).all():
        raise PeerError("the learned map is not finite")
    return Learned(L, measures)


def peers_python(package: str = "metric-learn") -> Path:
    """The interpreter with an external package.

    That of `make peers-torch` or $BOOSTMETRIC_TORCH for PyTorch, and that of `make peers` or
    $BOOSTMETRIC_PEERS for the others.
    """
    name = "torch" if package == "pytorch-metric-learning" else "peers"
    return Path(os.environ.get(f"BOOSTMETRIC_{name.upper()}", f".venv-{name}/bin/python"))


def failure_of(stderr: str, code: int, memory: float = MEMORY_GB) -> str:
    r"""Why a process failed: the last line of its standard error, or that memory ran out.

    >>> failure_of("Traceback ...\nnumpy.MemoryError: Unable to allocate 9 TiB", 1)
    'needs more than 16 GB'
    """
    last = (stderr.strip().splitlines() or [f"ended with code {code}"])[-1]
    if any(word in last for word in ("MemoryError", "bad_alloc", "Unable to allocate")):
        return f"needs more than {memory:g} GB"
    return last[:300]


def measure(function: Callable[[], T]) -> tuple[T, dict[str, Any]]:
    """The result of a function, with its wall-clock and CPU seconds and its peak memory in MB."""
    _reset_peak_memory()
    memory = _peak_memory()
    wall_clock, cpu = time.perf_counter(), time.process_time()
    result = function()
    return result, {
        "fit_seconds": time.perf_counter() - wall_clock,
        "processor_seconds": time.process_time() - cpu,
        "memory": _peak_memory() - memory,
    }


def _peak_memory() -> float:
    """Peak of this process in MB; `ru_maxrss` would start with the peak of the parent."""
    status = Path("/proc/self/status")
    if not status.exists():
        return math.nan
    peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    assert peak is not None
    return int(peak[1]) / 1024


def _reset_peak_memory() -> None:
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")


def limit_process(cpu_seconds: float | None = None, memory: float = MEMORY_GB) -> None:
    """Limit this process and its children: SIGXCPU after the CPU time, MemoryError above the GB."""
    size = int(memory * 10**9)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    if cpu_seconds is not None:
        seconds = math.ceil(cpu_seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def versions(package: str) -> dict[str, str]:
    """Versions of Python, of a package, and of scikit-learn, NumPy and SciPy."""
    packages = dict.fromkeys([package, "scikit-learn", "numpy", "scipy"])
    if package == "pytorch-metric-learning":
        packages["torch"] = None
    return {
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def main(name: str, source: str, target: str, options: str, cpu_seconds: str) -> None:
    """The child process: read, fit, write."""
    warnings.simplefilter("ignore")
    limit_process(json.loads(cpu_seconds))
    with np.load(source, allow_pickle=False) as file:
        X, y = file["X"], file["y"]
    learned = fit_here(name, X, y, **json.loads(options))
    measures = {**learned.measures, "versions": versions(PEERS[name].package)}
    assert learned.L is not None
    np.savez(target, L=learned.L, measures=json.dumps(measures))


if __name__ == "__main__":
    main(*sys.argv[1:])
