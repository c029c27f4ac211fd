"""The result of a fit does not depend on whether numba is installed, up to rounding."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from boostmetric import BoostMetric
from boostmetric.neighbors import kernels

pytest.importorskip("numba")


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({}, 1e-10),
        ({"directions_per_step": 1, "max_iter": 20, "loss": "exponential"}, 1e-10),
        # Hundreds of steps of L-BFGS amplify rounding, and the numbers of batches may differ; the
        # objectives agree far better than `tol`.
        ({"solver": "totally_corrective", "tol": 1e-6}, 1e-7),
    ],
    ids=["default", "paper", "totally corrective"],
)
def test_objectives_with_and_without_compiled_loops_agree(
    settings: dict[str, Any], tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).normal(size=(1_500, 20))
    y = np.digitize(X[:, :3].sum(axis=1) + 0.5 * X[:, 3] ** 2, [-1, 0, 1])
    objectives = []
    for min_work, is_compiled in ((sys.maxsize, False), (0, True)):
        monkeypatch.setattr(kernels, "MIN_WORK", min_work)
        assert (kernels.compiled_loops(1) is not None) == is_compiled
        learner = BoostMetric(n_passes=2, n_neighbors=3, verify=False, **settings).fit(X, y)
        history = learner.history_
        last = [np.flatnonzero(history["pass"] == number)[-1] for number in (0, 1)]
        objectives.append(history["objective"][last])
    plain, compiled = objectives
    np.testing.assert_allclose(compiled, plain, rtol=tolerance)
