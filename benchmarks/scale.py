"""A million points of 64 features on two Dask workers: seconds and rounds per direction.

    python benchmarks/scale.py [--write]

The points are in clusters of 500 with two labels each. Every point is compared with three points of
its cluster with its label and three with the other one: nine comparisons per point and no neighbor
search.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray

TITLE = "A million points on Dask"
N, D, CHUNK, N_WORKERS = 1_000_000, 64, 125_000, 2
CLUSTER = 500
FITS: dict[str, dict[str, Any]] = {
    "one direction per step": {"directions_per_step": 1, "max_iter": 20},
    "batches of 24": {"directions_per_step": 24, "max_iter": 96},
}

WORKERS = {
    "workers as Dask starts them": {},
    "workers that keep freed memory": {
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
        "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    },
}
"""Environments of the workers. Dask sets MALLOC_TRIM_THRESHOLD_ to 65536, so the C library returns
freed memory at once, and every large array has to be mapped again."""


def make_chunk(number: int) -> NDArray:
    """Points of a chunk, cluster by cluster; they depend only on its number.

    The two labels of a cluster, even and odd rows, differ slightly along one of ten directions.
    """
    apart = 0.3 * np.random.default_rng(0).normal(size=(10, D))
    rng = np.random.default_rng(1 + number)
    rows = np.arange(CHUNK)
    points = np.repeat(3 * rng.normal(size=(CHUNK // CLUSTER, D)), CLUSTER, axis=0)
    points += rng.normal(size=(CHUNK, D)) + apart[rows // CLUSTER % 10] * (rows % 2)[:, None]
    return (points / np.sqrt(1 + np.arange(D))).astype(np.float32)


def make_triplets() -> NDArray:
    """Each point with three points of its cluster and label, and three of the other label."""
    rng = np.random.default_rng(0)
    place = np.arange(N) % CLUSTER

    def mates(shift: NDArray) -> NDArray:
        return (np.arange(N) - place)[:, None] + (place + shift)[:, None] % CLUSTER

    similar = 2 * rng.integers(1, CLUSTER // 2 - 2, N)
    dissimilar = 2 * rng.integers(0, CLUSTER // 2 - 2, N) + 1
    columns = [
        np.column_stack([np.arange(N), mates(similar + i), mates(dissimilar + j)])
        for i in (0, 2, 4)
        for j in (0, 2, 4)
    ]
    return np.concatenate(columns)


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
        f"{N // CHUNK} blocks, {N_WORKERS} workers of one thread, exponential loss.",
        "",
        "| | seconds until the first step | seconds per direction | rounds per direction |",
        "|---|---|---|---|",
    ]
    for workers, environment in WORKERS.items():
        prefix = "distributed.nanny.pre-spawn-environ"
        with (
            dask.config.set({f"{prefix}.{name}": value for name, value in environment.items()}),
            Client(n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=":0") as client,
        ):
            for name, options in FITS.items():
                began = time.perf_counter()
                steps: list[tuple[float, int, int]] = []

                def follow(fit: Any, steps: list[Any] = steps) -> bool:
                    steps.append((time.perf_counter(), fit.n_tried, fit.problem.n_rounds))
                    return False

                given: Any = {**options, "engine": client, "callback": follow}
                boost(X, comparisons, "exponential", **given)
                (start, n_first, first_rounds), (end, n_tried, rounds) = steps[0], steps[-1]
                n_added = n_tried - n_first
                lines.append(
                    f"| {name}, {workers} | {start - began:.1f} | {(end - start) / n_added:.2f} | "
                    f"{(rounds - first_rounds) / n_added:.2f} |"
                )
    return "\n".join(lines)


if __name__ == "__main__":
    report.main(TITLE, "scale.py", measure)
