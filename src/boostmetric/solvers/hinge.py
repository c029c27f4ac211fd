"""The soft-margin linear program, solved by HiGHS as directions are added (EQ:HingeP2, EQ:HingeD2).

The program is kept in its dual form,

    minimize π − Σ_r u_r·b_r  over π and 0 ≤ u_r ≤ v_r with Σ_r u_r = 1,
    such that Σ_r u_r·h_rj ≤ π for every direction j,

because a new direction is then a new row: the basis of the simplex method has one row per
direction instead of one per comparison, and the dual simplex method continues from the last
solution. The coefficients w_j are the multipliers of the rows; they sum to 1 because π is free.
Rows that have been slack for several solutions are removed.

The duals of such a program jump as rows are added. Directions are therefore computed half-way
between them and the best duals so far, those with the highest lower bound (Wentges 1997).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.metric import Metric
from boostmetric.problem import Evaluation, Hinge, Objective, Step
from boostmetric.solvers.base import Memory, Proposal, Solver
from boostmetric.solvers.eigen import find_directions, leading_eigenpairs


def check_highs() -> None:
    """Raise an ImportError with instructions if HiGHS is not installed."""
    try:
        import_module("highspy")
    except ImportError as error:
        raise ImportError(
            "loss='hinge' solves a linear program with HiGHS, which is not installed. Install it "
            "with: pip install 'boostmetric[hinge]', or use loss='smoothed_hinge', which needs no "
            "further package."
        ) from error


class SoftMargin:
    """The linear program for the directions so far.

    Parameters
    ----------
    prices : array of shape (m,), the v_r
    gaps : array of shape (m,), or None
    duals : array of shape (m,), feasible duals to start from
    unit : a typical size of the responses; the program is in units of it
    patience : number of consecutive solutions with a slack row after which the row is removed

    Examples
    --------
    >>> program = SoftMargin(np.full(2, 0.5), None, np.full(2, 0.5), unit=1.0)
    >>> program.add(np.array([0.0, 1.0]), np.array([1.0, 3.0]))
    >>> program.solve()
    >>> program.metric.coefs, program.duals, program.price
    (array([1.]), array([0.5, 0.5]), 2.0)
    """

    def __init__(
        self,
        prices: NDArray,
        gaps: NDArray | None,
        duals: NDArray,
        unit: float,
        patience: int = 5,
    ) -> None:
        check_highs()
        self._highspy: Any = import_module("highspy")
        self._highs: Any = self._highspy.Highs()
        self.unit, self._patience, m = unit, patience, len(prices)
        self.duals, self.best_duals = duals, duals
        self.price = -np.inf
        self._highs.silent()
        self._highs.setOptionValue("threads", 1)
        self._highs.setOptionValue("simplex_scale_strategy", 0)  # `unit` does that, and better
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self._highs.setOptionValue(name, 1e-9)
        # Column 0 is π; it has no sign.
        costs = np.zeros(m) if gaps is None else -gaps.astype(np.float64) / unit
        lower, upper = np.zeros(m + 1), np.concatenate([[self._highs.inf], prices])
        lower[0] = -self._highs.inf
        self._check(self._highs.addVars(m + 1, lower, upper))
        self._columns = np.arange(m + 1, dtype=np.int32)
        self._highs.changeColsCost(m + 1, self._columns, np.concatenate([[1.0], costs]))
        self._check(self._highs.addRow(1.0, 1.0, m, self._columns[1:], np.ones(m)))
        self._directions: list[NDArray] = []
        self._ages = np.zeros(0, dtype=np.intp)

    def add(self, direction: NDArray, responses: NDArray) -> None:
        """Add a direction: the row π − Σ_r u_r·h_r ≥ 0."""
        row = np.concatenate([[1.0], -responses.astype(np.float64) / self.unit])
        self._check(self._highs.addRow(0.0, self._highs.inf, len(row), self._columns, row))
        self._directions.append(direction)
        self._ages = np.append(self._ages, 0)

    def solve(self) -> None:
        """Solve the program, starting from the basis of the last solution.

        Sets `metric`, of trace 1 and without the directions of coefficient 0, `duals`, and `price`,
        the program's π.
        """
        self._highs.run()
        status = self._highs.modelStatusToString(self._highs.getModelStatus())
        if status != "Optimal":
            raise ArithmeticError(
                f"HiGHS ended the linear program of the hinge loss with status {status!r}. Use "
                "loss='smoothed_hinge', or scale the features."
            )
        solution = self._highs.getSolution()
        self.price = float(solution.col_value[0]) * self.unit
        self.duals = np.maximum(np.array(solution.col_value[1:]), 0)
        coefs = np.maximum(np.array(solution.row_dual[1:]), 0)
        # Multipliers at rounding level would make the rank depend on the processor.
        kept = coefs > 1e-12 * coefs.max()
        directions = np.column_stack(self._directions)[:, kept]
        self.metric = Metric(directions, coefs[kept] / coefs[kept].sum())
        # Slack rows are basic, so the basis remains valid without them.
        self._ages = np.where(np.array(solution.row_value[1:]) > 1e-6, self._ages + 1, 0)
        is_old = self._ages >= self._patience
        if is_old.any():
            rows = (np.flatnonzero(is_old) + 1).astype(np.int32)
            self._highs.deleteRows(len(rows), rows)
            self._ages = self._ages[~is_old]
            pairs = zip(self._directions, is_old, strict=True)
            self._directions = [direction for direction, old in pairs if not old]

    def _check(self, status: Any) -> None:
        if status == self._highspy.HighsStatus.kError:
            raise ArithmeticError(
                "HiGHS rejected the linear program of the hinge loss. Use loss='smoothed_hinge', "
                "or scale the features."
            )

    def to_arrays(self) -> dict[str, NDArray]:
        """The state on which the next solution depends, besides prices and gaps."""
        basis = self._highs.getBasis()
        return {
            "rows": np.column_stack(self._directions),
            "ages": self._ages,
            "duals": self.duals,
            "best_duals": self.best_duals,
            "price": np.array(self.price),
            "column_status": np.array([int(status) for status in basis.col_status], dtype=np.int8),
            "row_status": np.array([int(status) for status in basis.row_status], dtype=np.int8),
        }

    def restore(self, saved: Mapping[str, NDArray]) -> None:
        """Restore the state from `to_arrays`, after the rows have been added."""
        status = self._highspy.HighsBasisStatus
        basis = self._highspy.HighsBasis()
        basis.col_status = [status(number) for number in saved["column_status"].tolist()]
        basis.row_status = [status(number) for number in saved["row_status"].tolist()]
        basis.valid = True
        self._highs.setBasis(basis)
        self._ages, self.price = saved["ages"], float(saved["price"])
        self.duals, self.best_duals = saved["duals"], saved["best_duals"]


class SoftMarginSolver(Solver):
    """Add leading eigenvectors to the soft-margin linear program, and solve it.

    The program requires all comparisons in one block. Unlike other solvers, this one has a state
    besides the `Memory`: the program.
    """

    default_tol = 1e-3
    uses_scatter = False
    has_cheap_bound = True

    _program: SoftMargin | None = None
    _saved: Mapping[str, NDArray] = MappingProxyType({})

    def propose(
        self, objective: Objective, now: Evaluation, memory: Memory, limit: int
    ) -> Proposal:
        """The metric of the program with at most `limit` more directions."""
        program, operator = self._program_for(objective), objective.single_block().operator
        k = min(self.batch_size, limit)
        # π is exact to about 1e-8 of the unit in float64.
        least = program.price + max(1e-8, 32 * float(np.finfo(operator.dtype).eps)) * program.unit
        for duals in ((program.duals + program.best_duals) / 2, program.duals):
            duals = duals.astype(operator.dtype)
            # 1) leading eigenvectors at feasible duals, which also give a lower bound
            values, vectors, basis = find_directions(
                operator.scatter(duals), k, -np.inf, self.eigen_solver, memory.basis, memory.n_steps
            )
            memory = replace(memory, basis=basis)
            # An approximate eigenvalue is too low, and would make the bound too high.
            exact = self.eigen_solver != "approximate" and objective.is_dense
            bound = dual_objective(objective, duals, float(values[0]) if exact else None)
            if bound > memory.bound:
                memory = replace(memory, bound=bound)
                program.best_duals = duals
            responses = [operator.responses(direction) for direction in vectors.T]
            violated = [j for j, h in enumerate(responses) if float(h @ program.duals) > least]
            if violated:
                break
        else:
            return Proposal(None, memory, k, float(values[0]))
        # 2) the program with these directions
        for j in violated:
            program.add(vectors[:, j], responses[j])
        program.solve()
        step = Step(program.metric.directions, program.metric.coefs, 0.0)
        return Proposal(step, memory, k, float(values[0]))

    def lower_bound(
        self, objective: Objective, now: Evaluation, memory: Memory, enough: float
    ) -> float:
        """The best lower bound so far of the hinge loss of all metrics of trace 1."""
        if self._program is None:
            return memory.bound
        duals = self._program.duals.astype(objective.dtype)
        return max(memory.bound, dual_objective(objective, duals, None))

    def alpha(self, objective: Objective) -> float:
        """π, the price of a unit of trace."""
        return -np.inf if self._program is None else self._program.price

    def duals(self, objective: Objective) -> NDArray:
        """The duals of the program, of shape (m,)."""
        return self._program_for(objective).duals

    def to_arrays(self) -> dict[str, NDArray]:
        """The program as arrays."""
        return {} if self._program is None else self._program.to_arrays()

    def restore(self, saved: Mapping[str, NDArray], objective: Objective) -> None:
        """Continue from `to_arrays` in the next step."""
        if saved:
            J, m = saved["rows"].shape[1], objective.n_terms
            shapes = {
                "rows": (objective.n_features, J),
                "ages": (J,),
                "duals": (m,),
                "best_duals": (m,),
                "price": (),
                "column_status": (1 + m,),
                "row_status": (1 + J,),
            }
            statuses = import_module("highspy").HighsBasisStatus.__members__.values()
            known = [int(status) for status in statuses]
            for name, shape in shapes.items():
                array = saved[name]
                fits = array.shape == shape and np.isfinite(array).all()
                if not fits or (name.endswith("status") and not np.isin(array, known).all()):
                    raise ValueError(f"{name} of the linear program are damaged")
        self._saved = saved

    def _program_for(self, objective: Objective) -> SoftMargin:
        """The program; a new one has the directions of M, or those of the snapshot."""
        if self._program is not None:
            return self._program
        block, loss = objective.single_block(), objective.loss
        assert isinstance(loss, Hinge)
        prices = loss.prices(objective.n_terms, block.weights)
        uniform = loss.nu * prices
        # An upper bound on the average response to any direction. λ_max of the scatter itself may
        # be a rounding error.
        absolute = block.operator.absolute_scatter(uniform.astype(objective.dtype))
        unit = float(leading_eigenpairs(absolute)[0][0]) or 1.0
        if block.gaps is not None:
            # HiGHS fails on costs that are larger than its rows by many orders of magnitude. If the
            # gaps are that large, the metric hardly matters.
            unit = max(unit, 1e-6 * float(np.abs(block.gaps).max()))
        program = SoftMargin(prices, block.gaps, uniform, unit)
        directions = self._saved["rows"] if self._saved else objective.M.metric.directions
        for direction in directions.T:
            program.add(direction, block.operator.responses(direction))
        if self._saved:
            program.restore(self._saved)
        self._program = program
        return program


def dual_objective(objective: Objective, duals: NDArray, lambda_max: float | None) -> float:
    """Σ u_r·b_r − λ_max of the scatter, a lower bound of the hinge loss (EQ:HingeD2).

    The duals must be feasible: they sum to 1 and do not exceed the prices. λ_max is computed if it
    is None.
    """
    block = objective.single_block()
    if lambda_max is None:
        lambda_max = float(leading_eigenpairs(block.operator.scatter(duals))[0][0])
    return -lambda_max if block.gaps is None else float(duals @ block.gaps) - lambda_max
