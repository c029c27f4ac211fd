"""One evaluation of value and gradient at the size of MNIST, beside one scatter; peak memory.

    python benchmarks/evaluation.py [--write]

50,000 made points of 164 features in float32, 3 targets and 3 impostors of each at random: 450,000
comparisons; 200 directions. Contender and reference alternate, and the minimum of the repeats
counts.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import numpy as np
import report
from boostmetric.corrective import _by_column, _by_matrix, _columns

from boostmetric import LOSSES, ComparisonOperator, Comparisons, Trace
from boostmetric.problem import Problem

TITLE = "One evaluation at the size of MNIST"

N, D, K, J, REPEATS = 50_000, 164, 3, 200, 7


def made_problem() -> Problem:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D), dtype=np.float32)
    near, far = rng.integers(0, N - 1, (2, N, K))
    rows = np.arange(N)[:, None]
    near, far = near + (near >= rows), far + (far >= rows)  # none is its own neighbour
    triplets = np.stack(
        np.broadcast_arrays(rows[:, :, None], near[:, :, None], far[:, None, :]), axis=-1
    ).reshape(-1, 3)
    triplets = triplets[triplets[:, 1] != triplets[:, 2]]
    operator = ComparisonOperator(X, Comparisons.from_triplets(triplets))
    return Problem(operator, LOSSES["logistic"], Trace(1.0))


def measure() -> str:
    """The table, as Markdown."""
    problem = made_problem()
    operator = problem.operator
    directions = np.linalg.qr(np.random.default_rng(1).standard_normal((D, D)))[0]
    directions = np.column_stack([directions, directions[:, ::-1]])[:, :J].astype(np.float32)
    coefs = np.full(J, 1e-3)
    duals = problem.duals(np.zeros(operator.n_matrices, dtype=np.float32))
    columns = _columns(operator, directions, None)
    assert columns is not None
    cost = problem.regularizer.of_coefs(directions)

    def evaluation(form: Callable[..., object], *given: object) -> Callable[[], object]:
        evaluate = form(problem, *given)
        assert callable(evaluate)

        def once() -> object:
            margins, slopes = evaluate(coefs)
            return problem.value(margins) + cost(coefs)[0], slopes(problem.duals(margins))

        return once

    contenders = {
        "one scatter (reference)": lambda: operator.scatter(duals),
        "value and gradient, from the measures of pairs": evaluation(_by_column, columns),
        "value and gradient, through M": evaluation(_by_matrix, directions),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(REPEATS):
        for name, action in contenders.items():
            began = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - began)
    reference = min(times["one scatter (reference)"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = [
        f"{N:,} × {D} in float32, {operator.n_matrices:,} comparisons, {J} directions. Peak memory "
        f"of the whole process, points ({N * D * 4 / 1e6:.0f} MB) and libraries included: "
        f"{peak:.0f} MB (target: under 1,000).",
        "",
        "| what | seconds | share of a scatter | target |",
        "|---|---|---|---|",
    ]
    targets = ("", "≤ 1", "")
    for (name, seconds), target in zip(times.items(), targets, strict=True):
        best = min(seconds)
        lines.append(f"| {name} | {best:.3f} | {best / reference:.2f} | {target} |")
    return "\n".join(lines)


if __name__ == "__main__":
    report.main(TITLE, "evaluation.py", measure)
