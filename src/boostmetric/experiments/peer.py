"""One fit of one method in a process of its own; `peers.py` runs this and reads what it writes.

    python peer.py METHOD IN.npz OUT.npz

IN.npz holds `X` and `y`; OUT.npz gets the linear map `L`, the seconds of the fit (of the clock and
of the processor) and its memory; the first line printed is the versions, as JSON. Only numpy and
the method's own package are imported, so this runs where boostmetric is not installed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
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


def fit(peer: Peer, X: NDArray, y: NDArray) -> Any:
    """What the package gives for the points: a fitted learner, or the output of a function."""
    found = getattr(importlib.import_module(peer.module), peer.name)
    if peer.package == "mlpack":
        return found(input_=X, labels=y, **peer.options)
    return found(**peer.options).fit(X, y)


def linear_map(peer: Peer, fitted: Any, n_features: int) -> NDArray:
    """L, of shape (dimensions, features), such that the learned space is X·Lᵀ, up to a shift."""
    if peer.package == "mlpack":
        return np.asarray(fitted["output"]).T  # its matrices are transposed on their way to Python
    unit, zero = np.eye(n_features), np.zeros((1, n_features))
    return np.asarray(fitted.transform(unit) - fitted.transform(zero)).T


def peak_memory() -> float:
    """MB at the peak of this process; ru_maxrss would begin with the peak of its parent."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def versions(peer: Peer) -> dict[str, str]:
    packages = dict.fromkeys([peer.package, "scikit-learn", "numpy", "scipy"])
    return {
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def main(method: str, source: str, target: str) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY * 10**9, MEMORY * 10**9))
    peer = PEERS[method]
    print(json.dumps(versions(peer)), flush=True)
    with np.load(source, allow_pickle=False) as file:
        X, y = file["X"], file["y"]
    importlib.import_module(peer.module)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is in use
    before = peak_memory()
    began, began_processor = time.perf_counter(), time.process_time()
    fitted = fit(peer, X, y)
    seconds = time.perf_counter() - began
    processor = time.process_time() - began_processor
    memory = peak_memory() - before
    np.savez(
        target,
        L=linear_map(peer, fitted, X.shape[1]),
        seconds=seconds,
        processor=processor,
        memory=memory,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
