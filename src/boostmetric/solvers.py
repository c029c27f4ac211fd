"""The solvers: what one iteration does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from boostmetric.certificate import soft_margin_bound
from boostmetric.corrective import MAX_ENTRIES, Correction, correct, correct_block
from boostmetric.eigen import follow_eigenpairs, leading_eigenpairs
from boostmetric.losses import Hinge, Loss
from boostmetric.newton import newton_metric, turned_metric
from boostmetric.operators import OPERATOR_ABOVE
from boostmetric.regularizers import REGULARIZERS, Regularizer
from boostmetric.soft_margin import SoftMargin, check_solver
from boostmetric.stagewise import line_search
from boostmetric.state import Boosting, Fit

BLOCK, FEWEST = 24, 16
"""Eigenvectors that the stage-wise solver adds in an iteration, where there is much to be done, but
no more than half of the features, of which there must be so many."""

STALL = 1e-4
"""What a block must lower the objective by, as a share of it, for another to be added."""

MANY = 10_000
"""Comparisons from which on that is so."""

CORRECTIVE_BLOCK = 4
"""Likewise those that the totally corrective solver adds."""

HINGE_BLOCK = 2
"""Likewise those added to the linear program."""

ROUNDING = 1e-8
"""Error of the program's π in float64, in units of `alpha_max`."""

SLACK, BLOCK_SLACK = 0.1, 0.3
"""How exact a correction is, of all coefficients or of a block: the slopes that remain, relative to
the violation that led to it."""

MAX_TURNS = 4
"""Newton steps that turn the face, in an iteration, at most."""

WORTH = 0.1
"""What such a step must gain, as a share of the best before, for another to follow."""

FIRST_ACCURACY = 0.1
"""The relative error of the first approximate eigenvector; it falls like 1/t² with iteration t."""

FOLLOWED = 8
"""Eigenvectors that are followed from one iteration to the next, at least, where D is large; also
the default size of a block there."""


@dataclass(frozen=True)
class Added:
    """What a solver did in an iteration.

    `helped` is False where no direction helps, `bounded` where one helps for ever; `stalled` is
    True where a block helped so little that another is not worth its while.
    """

    helped: bool
    lambda_max: float
    coef: float = 0.0
    n_evaluations: int = 0
    bounded: bool = True
    stalled: bool = False


def add_stagewise(fit: Boosting) -> Added:
    """Add the leading eigenvector, with the coefficient that is best for it alone (Algorithm 3).

    Or, with a block size above 1, so many eigenvectors with coefficients that are best together.
    """
    if fit.block_size > 1:
        return _add_block(fit)
    problem, metric = fit.problem, fit.metric
    values, vectors = _leading(fit, 1)
    lambda_max, direction = float(values[0]), vectors[:, 0]
    if lambda_max <= problem.regularizer.threshold:
        return Added(False, lambda_max)
    responses = problem.operator.responses(direction)
    slopes = problem.regularizer.along(metric, direction)
    step = line_search(problem.duals, fit.margins, fit.duals, responses, *slopes)
    if step.coef > 0:
        fit.margins, fit.duals = step.margins, step.duals
        fit.directions.append(direction)
        fit.coefs.append(step.coef)
    return Added(step.coef > 0, lambda_max, step.coef, step.n_evaluations, step.bounded)


def _add_block(fit: Boosting) -> Added:
    problem = fit.problem
    values, vectors = _leading(fit, fit.block_size)
    excess = values - problem.regularizer.threshold
    new, before = vectors[:, excess > 0], fit.objective()
    if not new.size and not fit.directions:
        return Added(False, float(values[0]))
    # Without a new direction, what is left is to take back what earlier steps took too far.
    accuracy = BLOCK_SLACK * max(float(excess[0]), 1e-9 * fit.alpha_max)
    step = correct_block(problem, fit.metric, fit.margins, new, accuracy)
    done = _take(fit, step, before, values)
    gained = before - fit.objective()
    return replace(done, stalled=gained < STALL * abs(before))


def add_correctively(fit: Boosting) -> Added:
    """Add the leading eigenvectors, and find the best coefficients of all directions together.

    Where D allows, the directions so far are first replaced by those of Newton steps: near an
    optimum of full rank it would take some D²/2 eigenvectors of scatters to span what it needs.
    """
    problem, before, n_evaluations = fit.problem, fit.objective(), 0
    values, vectors = _leading(fit, fit.block_size)
    excess = values - problem.regularizer.threshold
    new = vectors[:, excess > 0]
    if fit.directions and problem.n_features <= OPERATOR_ABOVE:
        n_evaluations = _newton(fit)
    if not fit.directions and not new.size:  # M = 0, to which a step may have led
        return Added(fit.objective() < before, float(values[0]), n_evaluations=n_evaluations)
    step = correct(
        problem,
        np.column_stack([fit.metric.directions, new]),
        np.concatenate([fit.coefs, np.zeros(new.shape[1])]),
        # Without a new direction, what is left is to make the coefficients exact.
        accuracy=SLACK * max(float(excess[0]), 1e-9 * fit.alpha_max),
        columns=fit.columns,
    )
    step.n_evaluations += n_evaluations
    return _take(fit, step, before, values)


def _take(fit: Boosting, step: Correction, before: float, values: NDArray) -> Added:
    """Go on to what a correction led to, unless the objective is not lower there than before."""
    was = fit.directions, fit.coefs, fit.margins, fit.duals, fit.columns
    fit.directions, fit.coefs = list(step.directions.T), step.coefs.tolist()
    fit.margins, fit.duals, fit.columns = step.margins, step.duals, step.columns
    if not fit.objective() < before - np.finfo(np.float64).eps * abs(before):
        fit.directions, fit.coefs, fit.margins, fit.duals, fit.columns = was
        return Added(False, float(values[0]))
    coef = float(step.coefs[-1]) if step.coefs.size else 0.0
    return Added(True, float(values[0]), coef, step.n_evaluations, step.bounded)


def _newton(fit: Boosting) -> int:
    """Newton steps that lower the objective, where such are due; the number of evaluations.

    One step to any face of the cone; then steps that turn the face, as long as they are worth it.
    """
    now, n_evaluations, objective = len(fit.history), 0, fit.objective()
    for step_from, attempts, n_steps in zip(
        (newton_metric, turned_metric), fit.newton, (1, MAX_TURNS), strict=True
    ):
        largest = 0.0
        for _ in range(n_steps if attempts.is_due(now) else 0):
            if not fit.directions:
                break
            ahead, n = step_from(fit.problem, fit.metric)
            n_evaluations += n
            attempts.report(now, ahead is not None)
            if ahead is None:
                break
            fit.restart(ahead)
            gained, objective = objective - fit.objective(), fit.objective()
            if gained < WORTH * largest:
                break
            largest = max(largest, gained)
    return n_evaluations


def add_by_program(fit: Boosting) -> Added:
    """Add the leading eigenvectors to the soft-margin linear program, and solve it."""
    operator = fit.problem.operator
    program = fit.program = fit.program or _program(fit)
    rounding = max(ROUNDING, 32 * float(np.finfo(operator.dtype).eps))
    least = fit.alpha + rounding * abs(fit.alpha_max)
    for duals in (program.compromise().astype(operator.dtype), fit.duals):
        values, vectors = _leading(fit, fit.block_size, duals)
        # A rough eigenvalue is too low, and would make the bound too high.
        exact = float(values[0]) if fit.eigen_solver in ("auto", "exact") else None
        bound = soft_margin_bound(fit.problem, duals, exact)
        if bound > fit.bound:
            fit.bound, program.best_duals = bound, duals
        responses = [operator.responses(direction) for direction in vectors.T]
        violated = [j for j, h in enumerate(responses) if float(h @ fit.duals) > least]
        if violated:
            break
    else:
        return Added(False, float(values[0]))
    for j in violated:
        program.add(vectors[:, j], responses[j])
    program.solve()
    fit.restart(program.metric)
    fit.duals = program.duals.astype(operator.dtype)
    fit.problem.regularizer.alpha = program.price
    return Added(True, float(values[0]), fit.coefs[-1])


def _program(fit: Boosting) -> SoftMargin:
    """The linear program with the directions that there are, or as it was in a snapshot."""
    problem, loss = fit.problem, fit.problem.loss
    assert isinstance(loss, Hinge)
    prices = loss.prices(problem.operator.n_matrices, problem.weights)
    program = SoftMargin(prices, problem.gaps, fit.duals, unit=abs(fit.alpha_max) or 1.0)
    saved = fit.saved_program
    for direction in fit.directions if saved is None else saved["rows"].T:
        program.add(direction, problem.operator.responses(direction))
    if saved is not None:
        program.resume(saved)
        fit.saved_program = None
    return program


def _leading(fit: Boosting, k: int, duals: NDArray | None = None) -> tuple[NDArray, NDArray]:
    """The leading eigenpairs of the scatter less what the regulariser asks for."""
    scatter = fit.problem.operator.scatter(fit.duals if duals is None else duals)
    return leading_of(scatter, fit, fit.problem.regularizer, k)


def leading_of(
    scatter: NDArray | LinearOperator, fit: Fit, regularizer: Regularizer, k: int
) -> tuple[NDArray, NDArray]:
    """The leading eigenpairs of a scatter less what the regulariser asks for.

    Approximate ones are the more accurate the longer the fit goes on, and where they say that no
    direction helps, exact ones have the last word.
    """
    matrix = regularizer.reduce(scatter, fit.metric)
    guess = fit.directions[-1] if fit.directions else None
    if fit.eigen_solver == "auto" and not isinstance(matrix, np.ndarray):
        width = max(k, FOLLOWED)
        basis = None if fit.basis is None or fit.basis.shape[1] != 2 * width else fit.basis
        values, vectors, fit.basis = follow_eigenpairs(matrix, width, basis)
        if values[0] > regularizer.threshold:
            return values[:k], vectors[:, :k]
    elif fit.eigen_solver not in ("auto", "exact"):
        accuracy = FIRST_ACCURACY / (1 + len(fit.history)) ** 2
        values, vectors = leading_eigenpairs(matrix, k, guess, fit.eigen_solver, accuracy)
        if values[0] > regularizer.threshold:
            return values, vectors
    return leading_eigenpairs(matrix, k, guess)


SOLVERS: dict[str, Callable[[Boosting], Added]] = {
    "stagewise": add_stagewise,
    "totally_corrective": add_correctively,
}
"""The solvers by name."""


def solver_for(loss: Loss, solver: str) -> Callable[[Boosting], Added]:
    """The solver of this name for a loss: that of the hinge is a linear program."""
    return add_by_program if isinstance(loss, Hinge) else SOLVERS[solver]


def default_block_size(loss: Loss, solver: str, n_features: int, n_matrices: int) -> int:
    """How many directions a solver adds at a time, unless told otherwise.

    Where comparisons are few the paper's way, one at a time, is fast enough; and where features
    are, a block would be most of the directions that there are.
    """
    if isinstance(loss, Hinge):
        return HINGE_BLOCK
    if solver == "totally_corrective":
        return CORRECTIVE_BLOCK
    if n_features < FEWEST or n_matrices < MANY:
        return 1
    if n_features > OPERATOR_ABOVE:
        return FOLLOWED
    # The measures of a block are held in memory.
    return min(BLOCK, n_features // 2, max(FOLLOWED, MAX_ENTRIES // n_matrices))


def default_solver(loss: Loss) -> str:
    """The first that a loss works with."""
    return loss.solvers[0] if loss.solvers else next(iter(SOLVERS))


def check_combination(loss: Loss, solver: str, regularizer: str) -> None:
    """Raise a ValueError if a loss cannot be combined with a solver or a regulariser."""
    for what, given, known, works in (
        ("solver", solver, tuple(SOLVERS), loss.solvers),
        ("regularizer", regularizer, tuple(REGULARIZERS), loss.regularizers),
    ):
        if given not in known:
            names = ", ".join(map(repr, known))
            raise ValueError(f"{what}={given!r} will not do: one of {names} is needed.")
        if given not in works:
            names = " or ".join(map(repr, works)) or "none"
            raise ValueError(
                f"{what}={given!r} does not work with the loss {loss!r}. For this loss use {what}="
                f"{names}; for this {what} use another loss, such as 'smoothed_hinge'."
            )
    if isinstance(loss, Hinge):
        check_solver()
