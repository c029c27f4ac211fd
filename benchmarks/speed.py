"""Kernels of a fit compared with the speed of the memory and of `sgemm`.

    BOOSTMETRIC_DATA=folder python benchmarks/speed.py [--write]

The data are 50,000 points of MNIST with 164 features in float32 and 3 × 3 neighbors. The bound of a
kernel is the time to read and write its arrays once at the measured memory bandwidth plus that of
its dense products at the measured speed of `sgemm`, each with the same number of threads.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import points
import processes
from numpy.typing import NDArray
from processes import Measurements, Record, least

TITLE = "Kernels compared with memory bandwidth and sgemm"

LIMIT = 300.0

N_DIRECTIONS = 16
"""Directions of a default batch."""


def bandwidth(n_threads: int) -> float:
    """Bytes per second of a copy, read and written; every thread copies its own array."""
    from boostmetric.engines import Threads

    size = 1 << 25  # 128 MB in float32, more than any cache
    arrays = [(np.zeros(size, np.float32), np.ones(size, np.float32)) for _ in range(n_threads)]
    with Threads(n_threads) as threads:
        copy = partial(threads.map, lambda pair: np.copyto(*pair), arrays)
        return 2 * 4 * size * n_threads / least(copy)["wall"]


def sgemm_speed(n_threads: int) -> float:
    """Flops per second of products of square matrices in float32, one per thread."""
    from boostmetric.engines import Threads, single_blas_thread

    size = 2048
    A = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    outputs = [np.empty_like(A) for _ in range(n_threads)]
    with Threads(n_threads) as threads, single_blas_thread():
        multiply = partial(threads.map, lambda out: np.dot(A, A, out=out), outputs)
        return 2 * size**3 * n_threads / least(multiply)["wall"]


def kernels(n: int, n_threads: int) -> Record:
    """Seconds of the kernels, and their bytes and flops."""
    from boostmetric import LOSSES, ComparisonOperator, Comparisons
    from boostmetric.engines import Threads, single_blas_thread
    from boostmetric.problem import Block

    X, y = points.mnist(n)
    D, k = X.shape[1], N_DIRECTIONS
    result: Record = {"bandwidth": bandwidth(n_threads), "sgemm": sgemm_speed(n_threads)}

    def record(name: str, action: Callable[[], object], n_bytes: float, flops: float) -> None:
        result[name] = {**least(action), "bytes": n_bytes, "flops": flops}

    with Threads(n_threads) as threads, single_blas_thread():
        # 1) the search reads X once, and multiplies one half of the tiles
        search = partial(Comparisons.from_labels, X, y, n_jobs=n_threads)
        comparisons = search()  # also loads compiled loops
        record("neighbor search", search, X.nbytes, float(n) ** 2 * D)
        # 2) the scatter reads X twice (as rows of L·X and of Xᵀ), and multiplies Xᵀ·(L·X)
        operator = ComparisonOperator(X, comparisons, exponent=None, threads=threads)
        loss = LOSSES["logistic"]
        block = Block(operator, loss, threads=threads)
        m, P = len(comparisons), len(comparisons.pairs)
        duals = block.margins_and_duals()[1]
        scatter = partial(operator.scatter_matrix, duals)
        record("scatter", scatter, 2 * X.nbytes, 2.0 * n * D**2)
        # 3) measures of new directions read X, and write the measures
        V = orthonormal(D, k)
        record(
            "measures of 16 directions",
            partial(operator.measures, V),
            X.nbytes + 4 * P * k,
            2.0 * n * D * k,
        )
        # 4) the loss along these directions reads the measures twice, for margins and derivatives,
        # and reads or writes margins, duals and the two pairs of every comparison
        coefs = [np.full(k, each) for each in (1e-3, 2e-3)]

        def evaluate() -> None:
            for each in coefs:  # not the same twice, because a block keeps the last result
                block.on_slice(V, 1.0, each, True)

        record(
            "two evaluations of the loss", evaluate, 2 * (2 * 4 * P * k + 4 * 4 * m), 8.0 * P * k
        )
        # 5) the loss alone reads margins, and writes duals
        margins = block.margins_and_duals()[0]
        record(
            "logistic loss of given margins", partial(loss.value_and_duals, margins), 2 * 4 * m, 0
        )
    return result


def orthonormal(D: int, k: int) -> NDArray:
    """Random orthonormal columns in float32."""
    columns: Any = np.linalg.qr(np.random.default_rng(0).standard_normal((D, k)))[0]
    return np.ascontiguousarray(columns, dtype=np.float32)


def table(measurements: Measurements, given: argparse.Namespace) -> str:
    """The measurements as Markdown."""
    n = 2_000 if measurements.is_small else 50_000
    lines = [
        f"MNIST, {n:,} × 164, float32. The bound is bytes / bandwidth + flops / sgemm; a search "
        "that skips products by lower bounds can be faster.",
        "",
        "| kernel, install, threads | ms | bound, ms | time / bound | GB/s | Gflop/s |",
        "|---|---|---|---|---|---|",
    ]
    for threads in (1, 2):
        for has_numba in (False, True):
            record = measurements.get(
                kernels, threads=threads, has_numba=has_numba, n=n, n_threads=threads
            )
            if "failure" in record:
                raise SystemExit(record["failure"])
            where = f"{'numba' if has_numba else 'plain'}, {threads}"
            speeds = record["bandwidth"], record["sgemm"]
            lines.append(
                f"| copy, sgemm, {where} | | | | {speeds[0] / 1e9:.1f} | {speeds[1] / 1e9:.0f} |"
            )
            for name, each in record.items():
                if isinstance(each, dict) and "wall" in each:
                    bound = each["bytes"] / speeds[0] + each["flops"] / speeds[1]
                    rates = [f"{each[key] / each['wall'] / 1e9:.1f}" for key in ("bytes", "flops")]
                    lines.append(
                        f"| {name}, {where} | {1e3 * each['wall']:.1f} | {1e3 * bound:.1f} | "
                        f"{each['wall'] / bound:.1f} | {' | '.join(rates)} |"
                    )
    return "\n".join(lines)


if __name__ == "__main__":
    processes.main(TITLE, __file__, {"kernels": kernels}, table, LIMIT)
