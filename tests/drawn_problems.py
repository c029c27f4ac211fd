"""Small random problems of every kind, and the properties that every fit must have.

A problem depends only on its seed. `tests/contracts/test_random_problems.py` checks some hundreds
of them, and `benchmarks/random_problems.py` any number.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from oracles import Reference
from scipy.sparse import csr_array, issparse

from boostmetric.learn import boost
from boostmetric.metric import Metric
from boostmetric.problem import LOSSES, REGULARIZERS, Comparisons, Hinge, Loss, SmoothedHinge
from boostmetric.solvers import DEFAULT_ALPHA, Boosting, Status

N_FEATURES = (1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 8, 8, 12, 12, 20, 35, 60)
SCALES = (1e-12, 1e-6, 1e-2, 1.0, 1.0, 1.0, 1e2, 1e6, 1e12)
ALPHAS = (0.0, DEFAULT_ALPHA, 1e-5, 1e-3, 1e-2, 0.1, 0.5)
TOLERANCES = (None, 0.0, 1e-2, 1e-3, 1e-6)
BATCH_SIZES = ("auto", 1, 1, 2, 3, 8)

DOCUMENTED = ("The values of X differ by", "weights must be positive and in the range of")
"""Beginnings of the error messages that are documented for invalid data."""

MAX_EXACT = 8, 150
"""Numbers of features and of comparisons up to which a general solver takes at most seconds."""


@dataclass(frozen=True, eq=False)
class DrawnProblem:
    """Arguments of `boost`, and a description of each random choice."""

    seed: int
    X: NDArray | csr_array
    comparisons: Comparisons
    loss: Loss
    options: dict[str, Any]
    kinds: dict[str, str]

    def fit(self, **changes: Any) -> Boosting:
        """The result of `boost`, with some options changed."""
        options: Any = {**self.options, **changes}
        return boost(self.X, self.comparisons, self.loss, **options)

    def reference(self, alpha: float) -> Reference:
        """The objective by its definition; alpha is absolute."""
        parameter = getattr(self.loss, "width", getattr(self.loss, "nu", 0.0))
        regularizer = self.options.get("regularizer", "trace")
        loss = self.kinds["loss"]
        return Reference(self.X, self.comparisons, loss, parameter, regularizer, alpha)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result for a problem: the name of a status or of an error, and the violations."""

    problem: DrawnProblem
    status: str
    failures: list[str] = field(default_factory=list)


def draw(seed: int) -> DrawnProblem:
    rng = np.random.default_rng(seed)
    kinds: dict[str, str] = {}

    def choose(name: str, *values: Any, shares: tuple[float, ...] | None = None) -> Any:
        value = values[rng.choice(len(values), p=shares)]
        kinds[name] = f"{value:g}" if isinstance(value, float) else str(value)
        return value

    # 1) points
    D = choose("n_features", *N_FEATURES)
    n = int(rng.integers(5, 45))
    y = rng.integers(0, rng.integers(2, 5), size=n)
    X = rng.normal(size=(n, D)) * 10 ** rng.uniform(-1, 1, size=D)
    shape = choose(
        "points", "plain", "separable", "equal points", "equal columns", "offset", "wide"
    )
    if shape == "separable":
        X[:, 0] = 20 * y + rng.random(n)
    elif shape == "equal points":
        X = X[rng.integers(max(2, n // 3), size=n)]
    elif shape == "equal columns":
        X = X[:, rng.integers(max(1, D // 2), size=D)]
    elif shape == "offset":
        X += 100
    elif shape == "wide":
        X *= 10 ** rng.uniform(-3, 3, size=D)
    if D > 1 and choose("constant column", "no", "yes", shares=(0.85, 0.15)) == "yes":
        X[:, rng.integers(D)] = rng.normal()
    X *= choose("scale", *SCALES)
    X = X.astype(choose("dtype", "float64", "float32"))
    if choose("storage", "dense", "sparse", shares=(0.8, 0.2)) == "sparse":
        X[rng.random(X.shape) < 0.6] = 0
        X = csr_array(X)
    # 2) comparisons
    weights = _draw_weights(rng, choose("weights", "none", "uniform", "some 0", "1e-6 to 1e6"))
    gaps = choose("gaps", 0.0, 0.0, 0.1, 1.0, 10.0)
    comparisons = _draw_comparisons(
        rng, choose("comparisons", "triplets", "quadruplets", "pairs", "labels"), X, y, gaps
    )
    if weights is not None:
        comparisons = replace(comparisons, weights=np.resize(weights, len(comparisons)))
    if shape == "separable" and rng.random() < 0.5:
        comparisons = _satisfied(X, comparisons)
    # 3) what to minimize, and how
    name = choose("loss", "exponential", "logistic", "squared_hinge", "smoothed_hinge", "hinge")
    loss = LOSSES[name]
    if name == "hinge":
        loss = Hinge(nu=float(rng.choice([0.05, 0.3, 1.0])))
    elif name == "smoothed_hinge":
        loss = SmoothedHinge(width=float(rng.choice([0.01, 0.5, 2.0])))
    options: dict[str, Any] = {
        "directions_per_step": choose("batch size", *BATCH_SIZES),
        "max_iter": int(rng.integers(1, max_directions(D) + 1)),
        "tol": choose("tol", *TOLERANCES),
        "n_jobs": 1,
    }
    if name != "hinge":
        options["solver"] = choose("solver", "stagewise", "totally_corrective")
        options["regularizer"] = choose("regularizer", "trace", "frobenius")
        options["alpha"] = choose("alpha", *ALPHAS)
    return DrawnProblem(seed, X, comparisons, loss, options, kinds)


def max_directions(n_features: int) -> int:
    """The largest `max_iter` of a problem; it keeps every fit short."""
    return 24 if n_features < 20 else 8


def _draw_weights(rng: np.random.Generator, kind: str) -> NDArray | None:
    """Weights, to be repeated for all comparisons."""
    if kind == "none":
        return None
    if kind == "1e-6 to 1e6":
        return 10 ** rng.uniform(-6, 6, size=200)
    weights = rng.uniform(0.5, 2, size=200)
    if kind == "some 0":
        weights[1:][rng.random(199) < 0.3] = 0
    return weights


def _draw_comparisons(
    rng: np.random.Generator, kind: str, X: NDArray | csr_array, y: NDArray, gaps: float
) -> Comparisons:
    n, m = X.shape[0], int(10 ** rng.uniform(0.3, 2.3))
    if kind == "labels":
        if np.bincount(y).max() < n and np.bincount(y).max() > 1:
            with warnings.catch_warnings():  # a class may be too small
                warnings.simplefilter("ignore", UserWarning)
                try:
                    return Comparisons.from_labels(X, y, 2, 2, n_jobs=1)
                except ValueError:  # there may be no two distinct points of a class
                    pass
        kind = "triplets"
    if kind == "pairs":
        ends = np.array([rng.choice(n, 2, replace=False) for _ in range(m)])
        return Comparisons.from_pairs(
            ends, rng.choice([-1, 1], size=m), thresholds=(0.1 + gaps) * rng.uniform(0.5, 2, size=m)
        )
    size = 3 if kind == "triplets" else 4
    rows = np.array([rng.choice(n, size, replace=False) for _ in range(m)])
    b = gaps * rng.normal(size=m) if gaps else None
    make = Comparisons.from_triplets if size == 3 else Comparisons.from_quadruplets
    return make(rows, gaps=b)


def _satisfied(X: Any, comparisons: Comparisons) -> Comparisons:
    """Near and far exchanged in comparisons that the first feature violates."""
    first = (X.toarray() if issparse(X) else X)[:, 0].astype(np.float64)
    lengths = np.abs(first[comparisons.pairs[:, 0]] - first[comparisons.pairs[:, 1]])
    violated = lengths[comparisons.near] > lengths[comparisons.far]
    return replace(
        comparisons,
        near=np.where(violated, comparisons.far, comparisons.near),
        far=np.where(violated, comparisons.near, comparisons.far),
    )


def check(problem: DrawnProblem, other: bool = True, exact: bool = False) -> Outcome:
    """Fit a problem and check the result.

    Parameters
    ----------
    problem : the problem
    other : whether to compare the lower bound with a totally corrective fit, which takes two thirds
        of the time
    exact : whether to compare it with a general solver if the problem is small enough
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return _check(problem, other, exact)
        except ValueError as error:
            failures = [] if str(error).startswith(DOCUMENTED) else [f"raised {error!r}"]
            return Outcome(problem, "ValueError", failures)
        except Exception as error:
            return Outcome(problem, type(error).__name__, [f"raised {error!r}"])


def _check(problem: DrawnProblem, other: bool, exact: bool) -> Outcome:
    fit = problem.fit()
    metric, objective = fit.metric, fit.objective()
    reference = problem.reference(fit.alpha)
    is_hinge = isinstance(problem.loss, Hinge)
    outcome = Outcome(problem, fit.status.name)
    failures = outcome.failures
    # 1) the metric is valid
    if not (np.isfinite(metric.matrix).all() and (metric.coefs >= 0).all()):
        failures.append("the metric is not finite and positive semidefinite")
    if metric.directions.dtype != problem.X.dtype:
        failures.append(f"directions have dtype {metric.directions.dtype}, unlike X")
    lengths = np.linalg.norm(metric.directions.astype(np.float64), axis=0)
    if (np.abs(lengths - 1) > 64 * reference.eps).any():
        failures.append(f"directions have lengths between {lengths.min()} and {lengths.max()}")
    # 2) the objective is that of the metric
    rounding = reference.rounding(metric, len(fit.history))
    value = reference.value(metric)
    if not abs(value - objective) <= rounding:
        failures.append(f"the objective is {value!r} and not {objective!r} (± {rounding:.1g})")
    # 3) it never increases
    values = [step.objective for step in fit.history]
    if not is_hinge:
        values = [reference.value(_multiple(metric, 0.0)), *values]
    # Linear programs are solved to a tolerance of 1e-7 in units of alpha_max.
    rise = np.diff(values).max(initial=0.0)
    if not rise <= rounding + (1e-7 * abs(fit.alpha_max) if is_hinge else 0.0):
        failures.append(f"the objective increases by {rise:.3g} (± {rounding:.1g})")
    # 4) no metric is better by more than the duality gap
    gap = fit.duality_gap()
    if not gap >= 0:
        failures.append(f"the duality gap is {gap}")
    for name, known in _others(problem, fit, reference, other, exact):
        best = reference.value(known)
        allowed = rounding + reference.rounding(known, 0)
        if not objective - gap <= best + allowed:
            failures.append(
                f"the bound {objective - gap!r} exceeds {best!r} (± {allowed:.1g}), {name}"
            )
    # 5) a fit that converged has a small gap
    if fit.status is Status.CONVERGED:
        least = reference.value(_multiple(metric, 0.0)) if not is_hinge else 0.0
        size = max(abs(objective), 1e-3 * abs(least), abs(fit.alpha_max) * is_hinge)
        if not gap <= fit.tol * size * (1 + 1e-3) + rounding * is_hinge:
            failures.append(f"converged with a gap of {gap:.3g}, tol={fit.tol:g} of {size:.3g}")
    return outcome


def _multiple(metric: Metric, factor: float) -> Metric:
    return Metric(metric.directions, factor * metric.coefs)


def _others(
    problem: DrawnProblem, fit: Boosting, reference: Reference, other: bool, exact: bool
) -> Iterator[tuple[str, Metric]]:
    """Other metrics that satisfy the constraints of a problem."""
    metric = fit.metric
    changes: dict[str, Any] = {
        "max_iter": max_directions(metric.n_features),
        "tol": 1e-3,
        "directions_per_step": "auto",
    }
    if not isinstance(problem.loss, Hinge):
        for factor in (0.0, 0.5, 0.99, 1.01, 2.0):
            yield f"{factor} times the metric", _multiple(metric, factor)
        changes["solver"] = "totally_corrective"
        kind = REGULARIZERS[reference.regularizer]
        changes |= {"alpha": DEFAULT_ALPHA, "regularizer": kind(fit.alpha)}
    if other:
        yield "the metric of another fit", problem.fit(**changes).metric
    D, m = MAX_EXACT
    if exact and metric.n_features <= D and len(reference.weights) <= m:
        best = reference.optimum(float(metric.coefs.sum()))
        if best is not None:
            yield "the optimum of a general solver", Metric(*best)
