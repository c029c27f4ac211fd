"""A sparse matrix that would take 80 GB as a dense array, in a subprocess with 2 GB."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMIT = 2 << 30

PROGRAM = """
import resource
import sys

import numpy as np
from scipy.sparse import csr_array

from boostmetric import BoostMetric, Comparisons

n, D, stored, m = 200_000, 50_000, 20, 100_000
rng = np.random.default_rng(0)
columns = rng.integers(0, D, size=(n, stored), dtype=np.int32)
entries = rng.random(n * stored)
X = csr_array((entries, columns.ravel(), np.arange(n + 1) * stored), shape=(n, D))
triplets = rng.integers(0, n, size=(m, 3))
triplets = triplets[np.diff(np.sort(triplets, axis=1), axis=1).all(axis=1)]
comparisons = Comparisons.from_triplets(triplets)
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

learner = BoostMetric(init="scale", max_iter=24, verify=False).fit(X, comparisons=comparisons)
assert learner.transform(X).shape == (n, len(learner.components_))
assert learner.score(X, comparisons=comparisons) > 0.8
assert learner.pair_distance(triplets[:, :2], X).shape == (len(triplets),)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="uses the resource limits of Linux")
def test_memory_depends_on_stored_entries() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(LIMIT)],
        capture_output=True,
        text=True,
        env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    peak = 1024 * int(run.stdout)
    assert peak < LIMIT
