"""Check fits of many random problems: `python benchmarks/random_problems.py --n 10000`.

Prints the number of problems of each kind, the statuses of the fits, and the failures with their
seeds. `draw(seed)` in `tests/drawn_problems.py` returns the problem of a seed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from drawn_problems import check, draw

EXACT_EVERY = 5
"""One in this many problems is compared with a general solver if it is small enough."""

Row = tuple[int, str, dict[str, str], list[str], float]
"""Seed, status, kinds, failures and seconds."""


def row(seed: int) -> Row:
    began = time.perf_counter()
    outcome = check(draw(seed), exact=seed % EXACT_EVERY == 0)
    seconds = time.perf_counter() - began
    return seed, outcome.status, outcome.problem.kinds, outcome.failures, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--n", type=int, default=1000, help="number of problems")
    parser.add_argument("--seed0", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    arguments = parser.parse_args()
    seeds = range(arguments.seed0, arguments.seed0 + arguments.n)
    began = time.perf_counter()
    counts: dict[str, Counter[str]] = {}
    n_failed, slowest = 0, (0.0, -1)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for seed, status, kinds, failures, seconds in pool.map(row, seeds, chunksize=20):
            for name, kind in {**kinds, "status": status}.items():
                counts.setdefault(name, Counter())[kind] += 1
            slowest = max(slowest, (seconds, seed))
            n_failed += bool(failures)
            for failure in failures:
                print(f"seed {seed}: {failure}\n    {status}, {kinds}", flush=True)
    for name, counter in counts.items():
        print(f"{name:16}" + ", ".join(f"{kind} {n}" for kind, n in counter.most_common()))
    print(
        f"{n_failed} of {len(seeds)} problems failed; {time.perf_counter() - began:.0f} s, "
        f"the slowest {slowest[0]:.1f} s (seed {slowest[1]})"
    )
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
