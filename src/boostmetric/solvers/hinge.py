"""The soft-margin linear program, solved by HiGHS as directions are added (EQ:HingeP2, EQ:HingeD2).

The program is kept in its dual form,

    minimize π − Σ_r u_r·b_r  over π and 0 ≤ u_r ≤ v_r with Σ_r u_r = 1,
    such that Σ_r u_r·h_rj ≤ π for every direction j,

because there a new direction is a new row: the basis of the simplex method has as many rows as
there are directions, not comparisons, and what was optimal without the new row is where the dual
simplex method continues. The coefficients w_j are the multipliers of the rows; they sum to 1
because π is free. Rows that have been slack for a while are removed.

The duals of such a program jump as rows are added. A direction found half-way between them and the
best duals so far, those with the highest lower bound, is worth more (Wentges 1997).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.metric import Metric
from boostmetric.problem import Evaluation, Hinge, Objective, Step
from boostmetric.solvers.eigen import find_directions, leading_eigenpairs
from boostmetric.solvers.proposal import Memory, Proposal

BATCH_SIZE = 2
"""Eigenvectors that are added in a step, unless another number is given."""

PATIENCE = 5
"""Solutions in which a row is slack before it is removed."""

MIN_RESPONSE = 1e-6
"""The smallest unit of the program, in units of the largest gap."""

ROUNDING = 1e-8
"""Error of the program's π in float64, in units of typical responses."""


def check_highs() -> None:
    """Raise an ImportError that says what to install if HiGHS is missing."""
    try:
        import_module("highspy")
    except ImportError as error:
        raise ImportError(
            "loss='hinge' solves a linear program with HiGHS, which is not installed. Install it "
            "with: pip install 'boostmetric[hinge]', or use loss='smoothed_hinge', which needs no "
            "further package."
        ) from error


def basis_statuses() -> dict[str, Any]:
    """What a row or a column may be in a basis of HiGHS, by name."""
    return dict(import_module("highspy").HighsBasisStatus.__members__)


class SoftMargin:
    """The linear program for the directions so far.

    Parameters
    ----------
    prices : array of shape (m,), the v_r
    gaps : array of shape (m,), or None
    duals : array of shape (m,), feasible ones to begin with
    unit : a typical size of the responses; the program is in units of it

    Examples
    --------
    >>> program = SoftMargin(np.full(2, 0.5), None, np.full(2, 0.5), unit=1.0)
    >>> program.add(np.array([0.0, 1.0]), np.array([1.0, 3.0]))
    >>> program.solve()
    >>> program.metric.coefs, program.duals, program.price
    (array([1.]), array([0.5, 0.5]), 2.0)
    """

    def __init__(self, prices: NDArray, gaps: NDArray | None, duals: NDArray, unit: float) -> None:
        check_highs()
        self._highspy: Any = import_module("highspy")
        self._highs: Any = self._highspy.Highs()
        self._unit, m = unit, len(prices)
        self.duals, self.best_duals = duals, duals
        self.price = -np.inf
        self._infinity = self._highs.inf
        self._highs.silent()
        self._highs.setOptionValue("threads", 1)
        self._highs.setOptionValue("simplex_scale_strategy", 0)  # `unit` does that, and better
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self._highs.setOptionValue(name, 1e-9)
        # Column 0 is π; it has no sign.
        costs = np.zeros(m) if gaps is None else -gaps.astype(np.float64) / unit
        lower, upper = np.zeros(m + 1), np.concatenate([[self._infinity], prices])
        lower[0] = -self._infinity
        self._check(self._highs.addVars(m + 1, lower, upper))
        columns = np.arange(m + 1, dtype=np.int32)
        self._highs.changeColsCost(m + 1, columns, np.concatenate([[1.0], costs]))
        self._columns = columns
        self._check(self._highs.addRow(1.0, 1.0, m, columns[1:], np.ones(m)))
        self._directions: list[NDArray] = []
        self._ages = np.zeros(0, dtype=np.intp)

    def add(self, direction: NDArray, responses: NDArray) -> None:
        """A new direction: the row π − Σ_r u_r·h_r ≥ 0."""
        row = np.concatenate([[1.0], -responses.astype(np.float64) / self._unit])
        self._check(self._highs.addRow(0.0, self._infinity, len(row), self._columns, row))
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
        self.price = float(solution.col_value[0]) * self._unit
        self.duals = np.maximum(np.array(solution.col_value[1:]), 0)
        coefs = np.maximum(np.array(solution.row_dual[1:]), 0)
        # Multipliers at rounding level would make the rank depend on the processor.
        kept = coefs > 1e-12 * coefs.max()
        directions = np.column_stack(self._directions)[:, kept]
        self.metric = Metric(directions, coefs[kept] / coefs[kept].sum())
        self._forget(np.array(solution.row_value[1:]))

    def _forget(self, slacks: NDArray) -> None:
        """Remove rows that have not been tight for some time; the basis stays one."""
        self._ages = np.where(slacks > 1e-6, self._ages + 1, 0)
        old = np.flatnonzero(self._ages >= PATIENCE)
        if old.size:
            self._highs.deleteRows(len(old), (old + 1).astype(np.int32))
            self._ages = np.delete(self._ages, old)
            gone = set(old.tolist())
            self._directions = [v for j, v in enumerate(self._directions) if j not in gone]

    def _check(self, status: Any) -> None:
        if status == self._highspy.HighsStatus.kError:
            raise ArithmeticError(
                "HiGHS rejected the linear program of the hinge loss. Use loss='smoothed_hinge', "
                "or scale the features."
            )

    def to_arrays(self) -> dict[str, NDArray]:
        """All that the next solution depends on besides prices and gaps, as arrays."""
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
        """Restore the basis and the rest from `to_arrays`; the rows have been added before."""
        basis = self._highspy.HighsBasis()
        of = {int(each): each for each in basis_statuses().values()}
        basis.col_status = [of[status] for status in saved["column_status"].tolist()]
        basis.row_status = [of[status] for status in saved["row_status"].tolist()]
        basis.valid = True
        self._highs.setBasis(basis)
        self._ages, self.price = saved["ages"], float(saved["price"])
        self.duals, self.best_duals = saved["duals"], saved["best_duals"]

    def compromise(self) -> NDArray:
        """Feasible duals half-way to the best ones."""
        return (self.duals + self.best_duals) / 2


class SoftMarginSolver:
    """Add leading eigenvectors to the soft-margin linear program, and solve it.

    The program needs all comparisons in one block. It is the only thing that a solver keeps besides
    its `Memory`; `to_arrays` and `restore` are for snapshots.
    """

    default_tol = 1e-3

    def __init__(self, batch_size: int = BATCH_SIZE, eigen_solver: str = "auto") -> None:
        self.batch_size, self.eigen_solver = batch_size, eigen_solver
        self._program: SoftMargin | None = None
        self._saved: Mapping[str, NDArray] | None = None

    @property
    def price(self) -> float:
        """π, the price of a unit of trace."""
        return -np.inf if self._program is None else self._program.price

    def duals(self, objective: Objective) -> NDArray:
        """Those of the program, of shape (m,)."""
        if self._program is None:
            self._program = self._begin(objective)
        return self._program.duals

    def propose(
        self, objective: Objective, now: Evaluation, memory: Memory, limit: int
    ) -> Proposal:
        """The next step: the metric of the program with at most `limit` more directions."""
        if self._program is None:
            self._program = self._begin(objective)
        program, operator = self._program, objective.single_block().operator
        k = min(self.batch_size, limit)
        least = program.price + max(ROUNDING, 32 * float(np.finfo(operator.dtype).eps)) * self._unit
        for duals in (program.compromise(), program.duals):
            duals = duals.astype(operator.dtype)
            # 1) leading eigenvectors at feasible duals, which also give a lower bound
            values, vectors, basis = find_directions(
                operator.scatter(duals), k, -np.inf, self.eigen_solver, memory.basis, memory.n_steps
            )
            memory = replace(memory, basis=basis)
            # An approximate eigenvalue is too low, and would make the bound too high.
            exact = self.eigen_solver != "approximate" and objective.is_dense
            bound = _bound(objective, duals, float(values[0]) if exact else None)
            if bound > memory.bound:
                memory = replace(memory, bound=bound)
                program.best_duals = duals
            responses = [operator.responses(direction) for direction in vectors.T]
            violated = [j for j, h in enumerate(responses) if float(h @ program.duals) > least]
            if violated:
                break
        if not violated:
            return Proposal(None, memory, k, float(values[0]))
        # 2) the program with these directions
        for j in violated:
            program.add(vectors[:, j], responses[j])
        program.solve()
        step = Step(program.metric.directions, program.metric.coefs, 0.0)
        return Proposal(step, memory, k, float(values[0]))

    def lower_bound(self, objective: Objective) -> float:
        """A number that the hinge loss of every metric of trace 1 exceeds."""
        if self._program is None:
            return -np.inf
        return _bound(objective, self._program.duals.astype(objective.dtype), None)

    def to_arrays(self) -> dict[str, NDArray]:
        """The program as arrays."""
        return {} if self._program is None else self._program.to_arrays()

    def restore(self, saved: Mapping[str, NDArray], n_features: int, n_terms: int) -> None:
        """Continue from `to_arrays`, in the next step; a ValueError if the arrays do not fit."""
        if saved:
            J = saved["rows"].shape[1]
            shapes = {
                "rows": (n_features, J),
                "ages": (J,),
                "duals": (n_terms,),
                "best_duals": (n_terms,),
                "price": (),
                "column_status": (1 + n_terms,),
                "row_status": (1 + J,),
            }
            known = [int(each) for each in basis_statuses().values()]
            for name, shape in shapes.items():
                array = saved[name]
                fits = array.shape == shape and np.isfinite(array).all()
                if not fits or (name.endswith("status") and not np.isin(array, known).all()):
                    raise ValueError(f"{name} of the linear program are damaged")
        self._saved = saved or None

    def _begin(self, objective: Objective) -> SoftMargin:
        """The program with the directions of M, or as it was in a snapshot."""
        block = objective.single_block()
        loss, m = objective.loss, objective.n_terms
        assert isinstance(loss, Hinge)
        prices = loss.prices(m, block.weights)
        uniform = loss.nu * prices
        # The largest average response is at most this, for any direction. λ_max of the scatter may
        # be a rounding error.
        absolute = block.operator.absolute_scatter(uniform.astype(objective.dtype))
        self._unit = float(leading_eigenpairs(absolute)[0][0]) or 1.0
        if block.gaps is not None:
            # HiGHS fails on costs that are larger than its rows by many orders of magnitude. If the
            # gaps are that large, the metric hardly matters.
            self._unit = max(self._unit, MIN_RESPONSE * float(np.abs(block.gaps).max()))
        program = SoftMargin(prices, block.gaps, uniform, self._unit)
        saved = self._saved
        metric = objective.M.metric
        for direction in metric.directions.T if saved is None else saved["rows"].T:
            program.add(direction, block.operator.responses(direction))
        if saved is not None:
            program.restore(saved)
        return program

    _unit: float = 1.0


def _bound(objective: Objective, duals: NDArray, lambda_max: float | None) -> float:
    """Σ u_r·b_r − λ_max of the scatter, the dual objective (EQ:HingeD2).

    The duals must be feasible: they sum to 1, and none exceeds its price.
    """
    block = objective.single_block()
    if lambda_max is None:
        lambda_max = float(leading_eigenpairs(block.operator.scatter(duals))[0][0])
    return -lambda_max if block.gaps is None else float(duals @ block.gaps) - lambda_max
