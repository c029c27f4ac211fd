"""Small random problems of every kind, and what must hold for a fit of any of them.

A problem follows from its seed alone. `tests/contracts/test_random_problems.py` checks some
hundreds of them, `benchmarks/random_problems.py` as many as one likes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from boostmetric.learn import boost
from boostmetric.metric import Metric
from boostmetric.problem import (
    REGULARIZERS,
    Comparisons,
    Exponential,
    Hinge,
    Logistic,
    Loss,
    SmoothedHinge,
    SquaredHinge,
)
from boostmetric.solvers import DEFAULT_ALPHA, Boosting, Status

N_FEATURES = (1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 8, 8, 12, 12, 20, 35, 60)
SCALES = (1e-12, 1e-6, 1e-2, 1.0, 1.0, 1.0, 1e2, 1e6, 1e12)
ALPHAS = (0.0, DEFAULT_ALPHA, 1e-5, 1e-3, 1e-2, 0.1, 0.5)
TOLERANCES = (None, 0.0, 1e-2, 1e-3, 1e-6)
BATCH_SIZES = ("auto", 1, 1, 2, 3, 8)

DOCUMENTED = ("The values of X differ by", "weights must be positive and in the range of")
"""How the messages of errors begin that invalid data may raise."""

MAX_EXACT = 8, 150
"""Features and comparisons up to which a general solver finds the optimum in reasonable time."""


@dataclass(frozen=True, eq=False)
class DrawnProblem:
    """Arguments of `boost`, and what they are like in words."""

    seed: int
    X: NDArray | csr_array
    comparisons: Comparisons
    loss: Loss
    options: dict[str, Any]
    kinds: dict[str, str]

    def fit(self, **changes: Any) -> Boosting:
        """What `boost` learns, with some options changed."""
        options: Any = {**self.options, **changes}
        return boost(self.X, self.comparisons, self.loss, **options)


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a problem ended: the name of a status or of an error, and what was wrong."""

    problem: DrawnProblem
    status: str
    failures: list[str] = field(default_factory=list)


def draw(seed: int) -> DrawnProblem:
    """The problem of a seed."""
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
        comparisons = _turned(X, comparisons)
    # 3) what to minimize, and how
    name = choose("loss", "exponential", "logistic", "squared_hinge", "smoothed_hinge", "hinge")
    loss: Loss
    if name == "hinge":
        loss = Hinge(nu=float(rng.choice([0.05, 0.3, 1.0])))
    elif name == "smoothed_hinge":
        loss = SmoothedHinge(width=float(rng.choice([0.01, 0.5, 2.0])))
    else:
        losses: dict[str, type[Loss]] = {
            "exponential": Exponential,
            "logistic": Logistic,
            "squared_hinge": SquaredHinge,
        }
        loss = losses[name]()
    options: dict[str, Any] = {
        "directions_per_step": choose("batch size", *BATCH_SIZES),
        "max_iter": int(rng.integers(1, most_directions(D) + 1)),
        "tol": choose("tol", *TOLERANCES),
        "n_jobs": 1,
    }
    if name != "hinge":
        options["solver"] = choose("solver", "stagewise", "totally_corrective")
        options["regularizer"] = choose("regularizer", "trace", "frobenius")
        options["alpha"] = choose("alpha", *ALPHAS)
    return DrawnProblem(seed, X, comparisons, loss, options, kinds)


def most_directions(n_features: int) -> int:
    """Directions that are tried at most, so that no fit takes long."""
    return 24 if n_features < 20 else 8


def _draw_weights(rng: np.random.Generator, kind: str) -> NDArray | None:
    """Weights to repeat for as many comparisons as there are."""
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


def _dense(X: Any) -> NDArray:
    return np.asarray(X.toarray() if issparse(X) else X, dtype=np.float64)


def _turned(X: NDArray | csr_array, comparisons: Comparisons) -> Comparisons:
    """Near and far exchanged where the first feature contradicts a comparison."""
    first = _dense(X)[:, 0]
    lengths = np.abs(first[comparisons.pairs[:, 0]] - first[comparisons.pairs[:, 1]])
    turned = lengths[comparisons.near] > lengths[comparisons.far]
    return replace(
        comparisons,
        near=np.where(turned, comparisons.far, comparisons.near),
        far=np.where(turned, comparisons.near, comparisons.far),
    )


class Reference:
    """The objective of a problem by its definition, in float64.

    Parameters
    ----------
    problem : what was fitted
    alpha : the absolute strength of the regularizer; not used for the hinge
    """

    def __init__(self, problem: DrawnProblem, alpha: float) -> None:
        X, given = problem.X, problem.comparisons
        points = _dense(X)
        weights = np.ones(len(given)) if given.weights is None else given.weights
        counted = weights > 0
        self.loss, self.alpha = problem.loss, alpha
        self.regularizer = problem.options.get("regularizer", "trace")
        self.eps, self.tiny = float(np.finfo(X.dtype).eps), float(np.finfo(X.dtype).tiny)
        self.weights = weights[counted]
        self.gaps = np.zeros(len(self.weights)) if given.gaps is None else given.gaps[counted]
        centered = points - points.mean(axis=0)
        i, j = given.pairs.T
        self.differences = points[i] - points[j]
        # What rounding errors are relative to. Sparse points are not centered.
        sizes = np.abs(points if issparse(X) else centered)
        self.sizes = sizes[i] + sizes[j]
        self.near, self.far = given.near[counted], given.far[counted]

    def margins(self, metric: Metric) -> NDArray:
        """The margins of the comparisons of positive weight."""
        V = metric.directions.astype(np.float64)
        squares = (self.differences @ V) ** 2 @ metric.coefs
        margins: NDArray = squares[self.far] - squares[self.near] - self.gaps
        return margins

    def value(self, metric: Metric) -> float:
        """F + R; for the hinge F alone."""
        loss = self.value_of_loss(self.margins(metric))
        return loss + (0.0 if isinstance(self.loss, Hinge) else self.penalty(metric))

    def penalty(self, metric: Metric) -> float:
        """R."""
        if self.regularizer == "trace":
            return self.alpha * float(metric.coefs.sum())
        V, w = metric.directions.astype(np.float64), metric.coefs
        return self.alpha / 2 * float(w @ (V.T @ V) ** 2 @ w)

    def value_of_loss(self, margins: NDArray) -> float:
        """F by its formula."""
        loss, c = self.loss, self.weights
        if isinstance(loss, Exponential):
            exponents = np.log(c) - margins
            return float(exponents.max() + np.log(np.exp(exponents - exponents.max()).sum()))
        if isinstance(loss, Logistic):
            return float(c @ np.logaddexp(0, -margins))
        slack = np.maximum(1 - margins, 0)
        if isinstance(loss, SquaredHinge):
            return float(c @ slack**2)
        if isinstance(loss, SmoothedHinge):
            bent = slack**2 / (2 * loss.width)
            return float(c @ np.where(slack <= loss.width, bent, slack - loss.width / 2))
        assert isinstance(loss, Hinge)
        # The maximum over t of a concave function, which bends at the margins only.
        prices = c / c.sum() / loss.nu
        slacks = np.maximum(margins[:, None] - margins, 0)
        return float(np.min(slacks @ prices - margins))

    def rounding(self, metric: Metric, n_steps: int) -> float:
        """How far rounding may change the value that a fit in the dtype of X reports."""
        V, w = np.abs(metric.directions.astype(np.float64)), metric.coefs
        squares = (self.sizes @ V) ** 2 @ w
        errors = squares[self.far] + squares[self.near] + np.abs(self.gaps)
        margins = self.margins(metric)
        duals = self.largest_duals(margins, 8 * self.eps * errors)
        penalty = 0.0 if isinstance(self.loss, Hinge) else self.penalty(metric)
        value = abs(self.value_of_loss(margins)) + penalty + float(duals @ errors)
        # Terms below the smallest normal number have fewer digits.
        underflow = float(self.weights.sum()) * self.tiny
        return 4 * (8 + n_steps) * self.eps * (value + underflow)

    def largest_duals(self, margins: NDArray, errors: NDArray) -> NDArray:
        """The duals at margins that may be lower by so much."""
        loss, c, low = self.loss, self.weights, margins - errors
        if isinstance(loss, Exponential):
            exponents = np.log(c) - margins
            most = np.exp(np.minimum(exponents + errors - exponents.max(), 0))
            duals: NDArray = most / np.exp(exponents - exponents.max()).sum()
            return np.minimum(duals, 1)
        if isinstance(loss, Logistic):
            return c * np.exp(-np.logaddexp(0, low))
        if isinstance(loss, SquaredHinge):
            return 2 * c * np.maximum(1 - low, 0)
        if isinstance(loss, SmoothedHinge):
            return c * np.clip((1 - low) / loss.width, 0, 1)
        assert isinstance(loss, Hinge)
        return np.minimum(c / c.sum() / loss.nu, 1)


def check(problem: DrawnProblem, other: bool = True, exact: bool = False) -> Outcome:
    """Fit a problem, and check all that must hold.

    Parameters
    ----------
    problem : as drawn
    other : whether the bound is compared with a fit by the totally corrective solver; this takes
        two thirds of the time
    exact : whether it is compared with a general solver if the problem is small enough
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
    reference = Reference(problem, fit.alpha)
    is_hinge = isinstance(problem.loss, Hinge)
    outcome = Outcome(problem, fit.status.name)
    failures = outcome.failures
    # 1) a metric
    if not (np.isfinite(metric.matrix).all() and (metric.coefs >= 0).all()):
        failures.append("the metric is not finite and positive semidefinite")
    if metric.directions.dtype != problem.X.dtype:
        failures.append(f"directions are of {metric.directions.dtype}, unlike the points")
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
    # 4) the gap is one: no metric is better by more
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
    # 5) the status is true
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
        "max_iter": most_directions(metric.n_features),
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
        found = optimum(reference, float(metric.coefs.sum()))
        if found is not None:
            yield "the optimum of a general solver", found


def optimum(reference: Reference, trace: float) -> Metric | None:
    """The best metric by an interior-point method, or None if it fails.

    Parameters
    ----------
    reference : the problem
    trace : the trace of the metric; used for the hinge only
    """
    cp: Any = import_module("cvxpy")
    size = float(np.abs(reference.differences).max()) or 1.0  # all pairs may be of equal points
    Z = reference.differences / size
    A = np.einsum("rd,re->rde", Z[reference.far], Z[reference.far])
    A -= np.einsum("rd,re->rde", Z[reference.near], Z[reference.near])
    M = cp.Variable((Z.shape[1],) * 2, PSD=True)
    margins = A.reshape(len(A), -1) @ cp.vec(M, order="C") - reference.gaps
    loss, c = reference.loss, reference.weights
    alpha = reference.alpha / size**2
    constraints = []
    if isinstance(loss, Exponential):
        value = cp.log_sum_exp(np.log(c) - margins)
    elif isinstance(loss, Logistic):
        value = c @ cp.logistic(-margins)
    elif isinstance(loss, SquaredHinge):
        value = c @ cp.square(cp.pos(1 - margins))
    elif isinstance(loss, SmoothedHinge):
        value = c @ cp.huber(cp.pos(1 - margins), loss.width) / (2 * loss.width)
    else:
        assert isinstance(loss, Hinge)
        t = cp.Variable()
        value = -t + (c / c.sum() / loss.nu) @ cp.pos(t - margins)
        constraints = [cp.trace(M) == trace * size**2]
        alpha = 0.0
    if reference.regularizer == "trace":
        value += alpha * cp.trace(M)
    else:
        value += alpha / size**2 / 2 * cp.sum_squares(M)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cp.Problem(cp.Minimize(value), constraints).solve(solver=cp.CLARABEL)
    except cp.SolverError:
        return None
    if M.value is None or not np.isfinite(M.value).all():
        return None
    eigenvalues, vectors = np.linalg.eigh((M.value + M.value.T) / 2)
    coefs = np.maximum(eigenvalues, 0) / size**2
    if isinstance(loss, Hinge):
        coefs *= trace / coefs.sum()
    return Metric(vectors, coefs)
