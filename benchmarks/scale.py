"""A million points of 64 features on two Dask workers: seconds and rounds per direction.

    python benchmarks/scale.py [--write]

Every point is compared with two random ones, so the search for neighbors is not part of it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray

TITLE = "A million points on Dask"
N, D, CHUNK, N_WORKERS = 1_000_000, 64, 125_000, 2
FITS: dict[str, dict[str, Any]] = {
    "one direction per step": {"block_size": 1, "max_iter": 8},
    "batches of 24": {"block_size": 24, "max_iter": 72},
}


def make_chunk(number: int) -> NDArray:
    """Points of a chunk; a worker that replaces another makes the same."""
    return np.random.default_rng(number).normal(size=(CHUNK, D)).astype(np.float32)


def make_triplets() -> NDArray:
    """Of two other points, the one that is nearer in eight features is to be nearer."""
    images = np.concatenate([make_chunk(number)[:, :8] for number in range(N // CHUNK)])
    anchors = np.arange(N)
    # Two different shifts, none of them 0, so that no point is compared with itself.
    shifts = np.random.default_rng(0).integers([1, N // 2], [N // 2, N], size=(N, 2))
    others = (anchors[:, None] + shifts) % N
    near, far = (((images - images[other]) ** 2).sum(axis=1) for other in others.T)
    others[near > far] = others[near > far][:, ::-1]
    return np.column_stack([anchors, others])


def measure() -> str:
    import dask
    import dask.array as da
    from distributed import Client

    from boostmetric import Comparisons, boost

    make = dask.delayed(make_chunk)
    shape = CHUNK, D
    X = da.concatenate(
        [da.from_delayed(make(number), shape, np.float32) for number in range(N // CHUNK)]
    )
    comparisons = Comparisons.from_triplets(make_triplets())
    lines = [
        f"{N:,} points of {D} features in float32, {len(comparisons):,} comparisons, "
        f"{N // CHUNK} blocks, {N_WORKERS} workers of one thread.",
        "",
        "| | seconds until the first step | seconds per direction | rounds per direction |",
        "|---|---|---|---|",
    ]
    with Client(n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=":0") as client:
        for name, options in FITS.items():
            began = time.perf_counter()
            steps: list[tuple[float, int, int]] = []

            def follow(fit: Any, steps: list[Any] = steps) -> bool:
                steps.append((time.perf_counter(), fit.n_tried, fit.problem.n_rounds))
                return False

            given: Any = {**options, "engine": client, "callback": follow}
            boost(X, comparisons, "logistic", **given)
            (start, n_first, first_rounds), (end, n_tried, rounds) = steps[0], steps[-1]
            n_added = n_tried - n_first
            lines.append(
                f"| {name} | {start - began:.1f} | {(end - start) / n_added:.2f} | "
                f"{(rounds - first_rounds) / n_added:.2f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    report.main(TITLE, "scale.py", measure)
