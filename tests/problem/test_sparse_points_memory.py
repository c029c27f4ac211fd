"""A sparse matrix that would be 40 GB as an array, in a process of its own with 1.5 GB."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMIT = 3 << 29

PROGRAM = """
import resource
import sys

import numpy as np
from scipy.sparse import csr_array

from boostmetric import Comparisons, boost

n, D, stored, m = 100_000, 50_000, 10, 20_000
rng = np.random.default_rng(0)
columns = rng.integers(0, D, size=(n, stored), dtype=np.int32)
entries = rng.random(n * stored)
X = csr_array((entries, columns.ravel(), np.arange(n + 1) * stored), shape=(n, D))
triplets = rng.integers(0, n, size=(m, 3))
triplets = triplets[np.diff(np.sort(triplets, axis=1), axis=1).all(axis=1)]
comparisons = Comparisons.from_triplets(triplets)
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

fit = boost(X, comparisons, "logistic", max_iter=8, block_size=8)
assert fit.metric.transform(X).shape == (n, len(fit.metric.components))
assert fit.metric.pair_distances(X, triplets[:, :2]).shape == (len(triplets),)
assert fit.now.n_violated < 0.45 * len(triplets)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited and measured as on Linux")
def test_memory_is_that_of_the_stored_entries() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(LIMIT)],
        capture_output=True,
        text=True,
        env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    peak = 1024 * int(run.stdout)
    print(f"peak memory {peak / 2**20:.0f} MB")
    assert peak < LIMIT
