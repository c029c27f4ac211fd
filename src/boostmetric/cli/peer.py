"""One fit of one method of another package, in a process and maybe an environment of its own.

    python peer.py METHOD IN.npz OUT.npz [OPTIONS]

IN.npz holds `X` and `y`; OUT.npz gets the linear map `L`, the seconds of the fit (of the clock and
of the processor), its memory in MB, and `n_iter` where the package says it. OPTIONS is JSON. The
first line printed is the versions, as JSON. Only numpy and the method's own package are imported,
so this runs where boostmetric is not installed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import platform
import re
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MEMORY = 16
"""GB that a process may have."""


class Peer(NamedTuple):
    """A method: its name in tables, its package, where it is, what differs from defaults."""

    title: str
    package: str
    module: str
    name: str
    options: dict[str, Any]


PEERS = {
    "lmnn": Peer("LMNN", "metric-learn", "metric_learn", "LMNN", {"random_state": 0}),
    "mlpack-lmnn": Peer("LMNN", "mlpack", "mlpack", "lmnn", {"seed": 1}),
    "nca": Peer(
        *("NCA", "scikit-learn", "sklearn.neighbors", "NeighborhoodComponentsAnalysis"),
        {"random_state": 0},
    ),
    "itml": Peer("ITML", "metric-learn", "metric_learn", "ITML_Supervised", {"random_state": 0}),
    "scml": Peer("SCML", "metric-learn", "metric_learn", "SCML_Supervised", {"random_state": 0}),
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
"""The slowest first."""


def fit(peer: Peer, X: NDArray, y: NDArray, options: dict[str, Any]) -> Any:
    """What the package gives for the points: a fitted learner, or the output of a function.

    (RCA learns from chunks of points that belong together; the classes are given for them.)
    """
    found = getattr(importlib.import_module(peer.module), peer.name)
    if peer.package == "mlpack":
        return found(input_=X, labels=y, **peer.options, **options)
    return found(**peer.options, **options).fit(X, y)


def linear_map(peer: Peer, fitted: Any, n_features: int) -> NDArray:
    """L, of shape (dimensions, features), such that the learned space is X·Lᵀ, up to a shift."""
    if peer.package == "mlpack":
        return np.asarray(fitted["output"]).T  # its matrices are transposed on their way to Python
    unit, zero = np.eye(n_features), np.zeros((1, n_features))
    return np.asarray(fitted.transform(unit) - fitted.transform(zero)).T


def peak_memory() -> float:
    """MB at the peak of this process; ru_maxrss would begin with the peak of its parent."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    assert found is not None
    return int(found[1]) / 1024


def forget_peak() -> None:
    """Let the peak be what is in use now."""
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")


def versions(package: str) -> dict[str, str]:
    """Of Python, of a package, and of those it stands on."""
    packages = dict.fromkeys([package, "scikit-learn", "numpy", "scipy"])
    return {
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def limit_memory(gigabytes: float) -> None:
    """Let allocations fail that would take this process above so much."""
    size = int(gigabytes * 10**9)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def limit_time(seconds: float) -> None:
    """Let SIGXCPU end this process, or a child of it, after so many seconds of the processor."""
    size = math.ceil(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (size, size + 5))


def main(method: str, source: str, target: str, options: str = "{}") -> None:
    """Fit and write."""
    warnings.simplefilter("ignore")
    limit_memory(MEMORY)
    peer = PEERS[method]
    print(json.dumps(versions(peer.package)), flush=True)
    with np.load(source, allow_pickle=False) as file:
        X, y = file["X"], file["y"]
    importlib.import_module(peer.module)
    forget_peak()
    before = peak_memory()
    began, began_processor = time.perf_counter(), time.process_time()
    fitted = fit(peer, X, y, json.loads(options))
    seconds = time.perf_counter() - began
    processor = time.process_time() - began_processor
    np.savez(
        target,
        L=linear_map(peer, fitted, X.shape[1]),
        seconds=seconds,
        processor=processor,
        memory=peak_memory() - before,
        n_iter=getattr(fitted, "n_iter_", -1),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
