"""The soft-margin linear program, solved by HiGHS as directions are added (EQ:HingeP2, EQ:HingeD2).

The program is kept in its dual form,

    minimise π − Σ_r u_r·b_r  over π and 0 ≤ u_r ≤ v_r with Σ_r u_r = 1,
    such that Σ_r u_r·h_rj ≤ π for every direction j,

because there a new direction is a new row: the basis of the simplex method has as many rows as
there are directions and not as there are comparisons, and what was optimal without the new row is
where the dual simplex method goes on. The coefficients w_j are the multipliers of the rows, and sum
to 1 as π is free. Rows that have been slack for a while are taken out again.

The duals of such a program jump about as rows come in. A direction that is sought half-way between
them and the best duals so far, those with the highest lower bound, is worth more (Wentges 1997).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.metric import Metric

PATIENCE = 5
"""Solutions in which a row is slack before it is taken out."""


def check_solver() -> None:
    """Raise an ImportError that says what to install, if HiGHS is not there."""
    try:
        import_module("highspy")
    except ImportError as error:
        raise ImportError(
            "loss='hinge' solves a linear program with HiGHS, which is not installed. Install it "
            "with: pip install 'boostmetric[hinge]' (or highspy), or use loss='smoothed_hinge', "
            "which needs nothing more."
        ) from error


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
        check_solver()
        self._highs: Any = import_module("highspy").Highs()
        self._unit, m = unit, len(prices)
        self.duals, self.best_duals = duals, duals
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
        self._highs.addVars(m + 1, lower, upper)
        columns = np.arange(m + 1, dtype=np.int32)
        self._highs.changeColsCost(m + 1, columns, np.concatenate([[1.0], costs]))
        self._columns = columns
        self._highs.addRow(1.0, 1.0, m, columns[1:], np.ones(m))
        self._directions: list[NDArray] = []
        self._ages = np.zeros(0, dtype=np.intp)

    def add(self, direction: NDArray, responses: NDArray) -> None:
        """A new direction: the row π − Σ_r u_r·h_r ≥ 0."""
        self._directions.append(direction)
        self._ages = np.append(self._ages, 0)
        row = np.concatenate([[1.0], -responses.astype(np.float64) / self._unit])
        self._highs.addRow(0.0, self._infinity, len(row), self._columns, row)

    def solve(self) -> None:
        """Solve the program, from where the last solution left the basis.

        Sets `metric`, of trace 1 and without the directions of coefficient 0, `duals`, and `price`,
        the program's π.
        """
        self._highs.run()
        status = self._highs.modelStatusToString(self._highs.getModelStatus())
        if status != "Optimal":
            raise ArithmeticError(
                f"HiGHS ended the linear program of the hinge loss with the status {status!r}. Use "
                "loss='smoothed_hinge', or scale the features."
            )
        solution = self._highs.getSolution()
        self.price = float(solution.col_value[0]) * self._unit
        self.duals = np.maximum(np.array(solution.col_value[1:]), 0)
        coefs = np.maximum(np.array(solution.row_dual[1:]), 0)
        kept = coefs > 0
        directions = np.column_stack(self._directions)[:, kept]
        self.metric = Metric(directions, (coefs[kept] / coefs.sum()).astype(directions.dtype))
        self._forget(np.array(solution.row_value[1:]))

    def _forget(self, slacks: NDArray) -> None:
        """Take out rows that have not been tight for some time; the basis stays one."""
        self._ages = np.where(slacks > 1e-6, self._ages + 1, 0)
        old = np.flatnonzero(self._ages >= PATIENCE)
        if old.size:
            self._highs.deleteRows(len(old), (old + 1).astype(np.int32))
            self._ages = np.delete(self._ages, old)
            gone = set(old.tolist())
            self._directions = [v for j, v in enumerate(self._directions) if j not in gone]

    def snapshot(self) -> dict[str, NDArray]:
        """All that the next solution depends on beside prices and gaps, as arrays."""
        basis = self._highs.getBasis()
        return {
            "rows": np.column_stack(self._directions),
            "ages": self._ages,
            "duals": self.duals,
            "best_duals": self.best_duals,
            "column_status": np.array([int(status) for status in basis.col_status], dtype=np.int8),
            "row_status": np.array([int(status) for status in basis.row_status], dtype=np.int8),
        }

    def resume(self, saved: Mapping[str, NDArray]) -> None:
        """Take over the basis and the rest of a snapshot, whose rows have been added."""
        highspy = import_module("highspy")
        basis = highspy.HighsBasis()
        of = {int(each): each for each in highspy.HighsBasisStatus.__members__.values()}
        basis.col_status = [of[status] for status in saved["column_status"].tolist()]
        basis.row_status = [of[status] for status in saved["row_status"].tolist()]
        basis.valid = True
        self._highs.setBasis(basis)
        self._ages = saved["ages"]
        self.duals, self.best_duals = saved["duals"], saved["best_duals"]

    def compromise(self) -> NDArray:
        """Feasible duals half-way to the best ones."""
        return (self.duals + self.best_duals) / 2
