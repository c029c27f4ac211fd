"""Speed of a fit relative to one exact neighbor search of its points, with targets.

    [BOOSTMETRIC_DATA=folder] python benchmarks/speed.py [ROW ...] [--full] [--threads N] [--write]

S is the reference, timed in the same run: scikit-learn's brute-force search of the four nearest
neighbors of all training points. The data are 50,000 points of MNIST, reduced to 164 features by
PCA, in float32, with 3 targets and 3 impostors; random points of that shape if BOOSTMETRIC_DATA has
no mnist.npz. Seconds are CPU time with one thread (the default) and wall-clock time with more.
--full repeats and alternates the measurements, and the minimum counts; without it, there is one
repeat with fewer iterations.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import report
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from boostmetric import BoostMetric, ComparisonOperator, Comparisons, boost, knn_error
from boostmetric.neighbors import kernels
from boostmetric.solvers import Boosting, leading_eigenpairs

TITLE = "Speed relative to one neighbor search"

N_TRAIN, N_FEATURES = 50_000, 164


@dataclass(frozen=True)
class Row:
    """A line of the table; it passes if the measurement is at most, or at least, the target."""

    what: str
    measured: float
    target: float
    detail: str
    at_most: bool = True

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        passed = self.measured <= self.target if self.at_most else self.measured >= self.target
        verdict = "pass" if passed else "falls short"
        return (
            f"| {self.what} | {self.measured:.2f} | {sign} {self.target:g} | {verdict} | "
            f"{self.detail} |"
        )


@dataclass
class Run:
    """Options of a run, and its clock."""

    full: bool
    threads: int

    def seconds(self, action: Callable[[], object]) -> float:
        """CPU time of a call with one thread, wall-clock time with more."""
        clock = time.process_time if self.threads == 1 else time.perf_counter
        began = clock()
        action()
        return clock() - began

    def least(self, *actions: Callable[[], object], repeats: int = 3) -> list[float]:
        """The minimum seconds of each of several alternating calls."""
        rounds = repeats if self.full else 1
        return np.min(
            [[self.seconds(each) for each in actions] for _ in range(rounds)], axis=0
        ).tolist()


@cache
def mnist() -> tuple[NDArray, NDArray, NDArray, NDArray, str]:
    """Training points and labels, test points and labels, and a name."""
    file = Path(os.environ.get("BOOSTMETRIC_DATA", ""), "mnist.npz")
    if file.is_file():
        with np.load(file, allow_pickle=False) as data:
            rows = np.random.default_rng(0).permutation(len(data["X"]))
            X, y = data["X"][rows].astype(np.float32), data["y"][rows]
        points = PCA(N_FEATURES, random_state=0).fit(X[:N_TRAIN]).transform(X).astype(np.float32)
        return points[:N_TRAIN], y[:N_TRAIN], points[-10_000:], y[-10_000:], "MNIST"
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, N_TRAIN + 10_000)
    decay = 1 / np.sqrt(1 + np.arange(N_FEATURES, dtype=np.float32))
    centers = 0.7 * rng.standard_normal((30, N_FEATURES), dtype=np.float32)
    points = centers[3 * y + rng.integers(0, 3, len(y))]
    points = (points + rng.standard_normal(points.shape, dtype=np.float32)) * decay
    return points[:N_TRAIN], y[:N_TRAIN], points[N_TRAIN:], y[N_TRAIN:], "random points"


@cache
def mined() -> Comparisons:
    X, y, *_ = mnist()
    return Comparisons.from_labels(X, y)


def self_search() -> object:
    """S, the reference."""
    X = mnist()[0]
    return NearestNeighbors(n_neighbors=4, algorithm="brute").fit(X).kneighbors(X)


@cache
def reference(run_full: bool, threads: int) -> float:
    """The seconds of S."""
    return Run(run_full, threads).least(self_search)[0]


def mining(run: Run) -> Iterator[Row]:
    """The neighbor search with NumPy, and with compiled loops if numba is installed."""
    X, y, *_ = mnist()
    mine, min_work = partial(Comparisons.from_labels, X, y), kernels.MIN_WORK

    def plain() -> None:
        kernels.MIN_WORK = sys.maxsize
        mine()
        kernels.MIN_WORK = min_work

    S, own, fast = run.least(self_search, plain, mine)
    yield Row("exact neighbor search, NumPy / S", own / S, 0.33, f"{own:.1f} s; S {S:.1f} s")
    if kernels.compiled_loops(min_work) is not None:
        yield Row("exact neighbor search, compiled loops / S", fast / S, 0.20, f"{fast:.1f} s")


def iterations(run: Run) -> Iterator[Row]:
    """The paper's algorithm, and batches until they reach its objective."""
    X, S = mnist()[0], reference(run.full, run.threads)
    n = 500 if run.full else 50
    fits: list[Boosting] = []
    exact = partial(boost, X, mined(), "exponential")
    own = run.seconds(lambda: fits.append(exact(max_iter=n, directions_per_step=1)))
    goal = fits[0].objective()

    def reached(fit: Boosting) -> bool:
        return fit.history[-1].objective <= goal

    batches = run.seconds(lambda: fits.append(exact(max_iter=5 * n, callback=reached)))
    straight = run.seconds(lambda: straightforward(X, mined(), n // 10))
    size = fits[1].history[0].n_tried
    yield Row(
        f"batches, to the objective of {n} exact iterations / S",
        batches / S,
        0.20,
        f"{batches:.1f} s, {fits[1].n_tried} directions in batches of {size}, to "
        f"{fits[1].objective() - np.log(len(mined())):.3f}",
    )
    yield Row(
        "500 exact stage-wise iterations / S",
        own * 500 / n / S,
        1.0,
        f"{1e3 * own / n:.0f} ms each, to {goal - np.log(len(mined())):.3f}",
    )
    yield Row(
        "simple implementation with float64 and bisection / exact",
        straight * 10 / own,
        4.0,
        f"{1e4 * straight / n:.0f} ms each",
        at_most=False,
    )


def straightforward(X: NDArray, comparisons: Comparisons, n_iter: int) -> NDArray:
    """A simple implementation of the paper's algorithm: float64, sparse Laplacian, bisection."""
    X, pairs = X.astype(np.float64), comparisons.pairs
    near, far, n = comparisons.near, comparisons.far, len(X)
    margins, M = np.zeros(len(near)), np.zeros((X.shape[1], X.shape[1]))

    def weights(margins: NDArray) -> NDArray:
        terms = np.exp(margins.min() - margins)
        return terms / terms.sum()

    for _ in range(n_iter):
        u = weights(margins)
        q = np.bincount(far, u, len(pairs)) - np.bincount(near, u, len(pairs))
        W = csr_matrix((q, (pairs[:, 0], pairs[:, 1])), shape=(n, n))
        W = W + W.T
        degrees = np.asarray(W.sum(axis=1))
        direction = eigh(X.T @ (degrees * X - W @ X))[1][:, -1]
        projection = X @ direction
        squares = (projection[pairs[:, 0]] - projection[pairs[:, 1]]) ** 2
        response = squares[far] - squares[near]
        low, high = 0.0, 1.0
        while response @ weights(margins + high * response) > 0 and high < 1e9:
            high *= 2
        while high - low > 1e-8 * high:
            middle = (low + high) / 2
            if response @ weights(margins + middle * response) > 0:
                low = middle
            else:
                high = middle
        margins += high * response
        M += high * np.outer(direction, direction)
    return M


def whole_fit(run: Run) -> Iterator[Row]:
    X, y, Z, z, _ = mnist()
    S = reference(run.full, run.threads)
    learner = BoostMetric()
    (own,) = run.least(partial(learner.fit, X, y))
    error = knn_error(learner.transform(X), y, learner.transform(Z), z)
    yield Row(
        "whole fit with defaults / S",
        own / S,
        0.45,
        f"{own:.1f} s, {learner.n_iter_} iterations, {learner.status_.name}; test error "
        f"{100 * error:.2f} %, Euclidean {100 * knn_error(X, y, Z, z):.2f} %",
    )
    if run.full:
        paper = BoostMetric(directions_per_step=1).fit(X, y)
        exact = knn_error(paper.transform(X), y, paper.transform(Z), z)
        detail = f"{100 * error:.2f} % and {100 * exact:.2f} %"
        yield Row("its error / error of 500 exact iterations", error / exact, 1.05, detail)


def embeddings(run: Run) -> Iterator[Row]:
    """20,000 points of 1,536 features."""
    rng = np.random.default_rng(0)
    n, D = 20_000, 1_536
    y = rng.integers(0, 50, n)
    parts = rng.standard_normal((50, 64), dtype=np.float32)[y]
    parts += 1.2 * rng.standard_normal((n, 64), dtype=np.float32)
    X = parts @ rng.standard_normal((64, D), dtype=np.float32) / 8
    X += 0.7 * rng.standard_normal((n, D), dtype=np.float32)
    comparisons = random_comparisons(y, rng)
    v, q = (rng.standard_normal(size, dtype=np.float32) for size in (D, n))
    unit = min(run.seconds(lambda: (X @ v, X.T @ q)) for _ in range(9))
    for size in (1, 8):
        each = iteration(
            run, partial(boost, X, comparisons, "logistic", directions_per_step=size), size
        )
        yield Row(
            f"D = 1,536: an iteration of {size} / (`X @ v` + `X.T @ q`)",
            each / unit,
            8.0,
            f"{1e3 * each:.0f} ms",
        )


def iteration(run: Run, fit: Callable[..., object], size: int) -> float:
    """Seconds per iteration of `size` directions, without the first three iterations."""
    few, many = run.least(partial(fit, max_iter=3 * size), partial(fit, max_iter=23 * size))
    return (many - few) / 20


def random_comparisons(y: NDArray, rng: np.random.Generator) -> Comparisons:
    """3 × 3 comparisons of each point with random points of its class and of others."""
    n = len(y)
    by_class = np.argsort(y, kind="stable")
    position = np.argsort(by_class)
    targets = np.stack([by_class[(position + k) % n] for k in (1, 2, 3)], axis=1)
    impostors = rng.integers(0, n, (n, 3))
    rows = np.broadcast_arrays(
        np.arange(n)[:, None, None], targets[:, :, None], impostors[:, None, :]
    )
    triplets = np.stack(rows, axis=-1).reshape(-1, 3)
    a, b, c = triplets.T
    return Comparisons.from_triplets(triplets[(y[a] == y[b]) & (y[a] != y[c])])


def few_triplets(run: Run) -> Iterator[Row]:
    """250 triplets of 1,000 features: the leading eigenvector compared with all of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((750, 1_000))
    operator = ComparisonOperator(X, Comparisons.from_triplets(np.arange(750).reshape(250, 3)))
    scatter, duals = operator.scatter(np.ones(250)), np.ones(250)
    dense = operator.scatter_matrix(duals)
    own = min(run.seconds(lambda: leading_eigenpairs(scatter)) for _ in range(5))
    whole = min(run.seconds(lambda: np.linalg.eigh(dense)) for _ in range(3))
    yield Row(
        "250 triplets, D = 1,000: dense eigendecomposition / leading eigenvector",
        whole / own,
        5.0,
        f"{1e3 * whole:.0f} ms and {1e3 * own:.0f} ms",
        at_most=False,
    )


CHILD = """
import sys, time
import numpy as np
sys.path.insert(0, {folder!r})
import speed
{body}
def high():
    with open("/proc/self/status") as file:
        return [int(line.split()[1]) for line in file if line.startswith("VmHWM")][0] / 1e3
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = high()
{action}
print(high() - before, *extra)
"""


def in_process(body: str, action: str) -> list[float]:
    """The peak memory of an action in a new process, in MB, and its `extra` number."""
    text = CHILD.format(folder=str(Path(__file__).parent), body=body, action=action)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return [float(number) for number in done.stdout.split()[-2:]]


def memory(run: Run) -> Iterator[Row]:
    peak, seconds = in_process(
        "from boostmetric import BoostMetric\nX, y, *_ = speed.mnist()",
        "t = time.perf_counter()\nBoostMetric().fit(X, y)\nextra = [time.perf_counter() - t]",
    )
    yield Row(
        "MB beyond X at the peak of a fit", peak, 300, f"with the neighbor search, {seconds:.0f} s"
    )
    if run.full:
        peak, each = in_process(
            "from boostmetric import boost\n"
            "rng = np.random.default_rng(0)\n"
            "X = rng.standard_normal((1_000_000, 64), dtype=np.float32)\n"
            "y = rng.integers(0, 100, len(X))\n"
            "X[:, 0] += y\n",
            "comparisons = speed.random_comparisons(y, rng)\n"
            'fit = boost(X, comparisons, "logistic", max_iter=64)\n'
            "times = [step.seconds for step in fit.history]\n"
            "extra = [(times[-1] - times[0]) / (len(times) - 1)]",
        )
        detail = f"{each:.2f} s per iteration of 8 directions; with the creation of comparisons"
        yield Row("MB beyond X, a million points × 64", peak, 2000, detail)


def growth(run: Run) -> Iterator[Row]:
    """Seconds per iteration against the number of points, D = 64."""
    rng = np.random.default_rng(0)
    sizes = [12_500 * 2**k for k in range(5 if run.full else 4)]
    times = []
    for n in sizes:
        X = rng.standard_normal((n, 64), dtype=np.float32)
        y = rng.integers(0, 20, n)
        X[:, 0] += y
        comparisons = random_comparisons(y, rng)
        times.append(
            iteration(run, partial(boost, X, comparisons, "logistic", directions_per_step=1), 1)
        )
    exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    detail = ", ".join(f"{1e3 * each:.1f}" for each in times)
    yield Row(
        f"growth in n, {sizes[0]:,} to {sizes[-1]:,}: exponent", exponent, 1.1, f"{detail} ms"
    )


def first_fit(run: Run) -> Iterator[Row]:
    _, gap = in_process(
        "from sklearn.datasets import load_iris\nfrom boostmetric import BoostMetric\n"
        "X, y = load_iris(return_X_y=True)",
        "t = time.perf_counter()\nBoostMetric().fit(X, y)\nfirst = time.perf_counter() - t\n"
        "t = time.perf_counter()\nBoostMetric().fit(X, y)\n"
        "extra = [first - (time.perf_counter() - t)]",
    )
    yield Row("first minus second fit of a process on iris, s", gap, 0.5, "without imports")


ROWS = {
    "mining": mining,
    "iterations": iterations,
    "fit": whole_fit,
    "embeddings": embeddings,
    "eigenvector": few_triplets,
    "memory": memory,
    "growth": growth,
    "iris": first_fit,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("rows", nargs="*", help=f"{', '.join(ROWS)}; default: all")
    parser.add_argument(
        "--full", action="store_true", help="three repeats, 500 iterations, a million points"
    )
    parser.add_argument("--threads", type=int, default=1, help="number of BLAS and OpenMP threads")
    parser.add_argument(
        "--write", action="store_true", help=f"store the table in {report.RESULTS.name}"
    )
    given = parser.parse_args()
    if unknown := set(given.rows) - set(ROWS):
        parser.error(f"unknown rows {', '.join(unknown)}. Choose from {', '.join(ROWS)}.")
    kind = "CPU" if given.threads == 1 else "wall-clock"
    lines = [
        f"Points: {mnist()[4]}, {N_TRAIN:,} × {N_FEATURES}. {given.threads} thread(s), {kind} "
        f"seconds. {'Minimum of three' if given.full else 'A short run'}.",
        "",
        "| | measured | target | | |",
        "|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    with threadpool_limits(given.threads):
        for name in given.rows or ROWS:
            for row in ROWS[name](Run(given.full, given.threads)):
                lines.append(str(row))
                print(row, flush=True)
    if given.write:
        options = " --full" * given.full + f" --threads {given.threads}" * (given.threads != 1)
        title = TITLE + (f", {given.threads} threads" if given.threads != 1 else "")
        title += f": {', '.join(given.rows)}" if given.rows else ""
        report.write_section(
            title, f"speed.py{''.join(f' {row}' for row in given.rows)}{options}", "\n".join(lines)
        )


if __name__ == "__main__":
    main()
