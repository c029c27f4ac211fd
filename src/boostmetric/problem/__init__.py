"""The optimization problem: minimize F(ρ(M)) + R(M) over M ⪰ 0.

Comparisons, losses, regularizers, the operator that maps M to ⟨A_r, M⟩, blocks of terms, and the
`Objective` that solvers query.
"""

from boostmetric.problem.block import Block, Evaluation
from boostmetric.problem.comparison_operator import ComparisonOperator
from boostmetric.problem.comparisons import Comparisons
from boostmetric.problem.losses import (
    LOSSES,
    Exponential,
    Hinge,
    Logistic,
    Loss,
    NotANumberError,
    SmoothedHinge,
    SquaredHinge,
    as_loss,
)
from boostmetric.problem.objective import Objective
from boostmetric.problem.operators import (
    LowRankOperator,
    Operator,
    StackOperator,
    as_operator,
    check_operator,
)
from boostmetric.problem.placement import only_named_rows, place_objective
from boostmetric.problem.regularizers import (
    REGULARIZERS,
    Frobenius,
    Regularizer,
    Shrinkage,
    Trace,
    UnitTrace,
)
from boostmetric.problem.step import Step, Sum

__all__ = [
    "LOSSES",
    "REGULARIZERS",
    "Block",
    "ComparisonOperator",
    "Comparisons",
    "Evaluation",
    "Exponential",
    "Frobenius",
    "Hinge",
    "Logistic",
    "Loss",
    "LowRankOperator",
    "NotANumberError",
    "Objective",
    "Operator",
    "Regularizer",
    "Shrinkage",
    "SmoothedHinge",
    "SquaredHinge",
    "StackOperator",
    "Step",
    "Sum",
    "Trace",
    "UnitTrace",
    "as_loss",
    "as_operator",
    "check_operator",
    "only_named_rows",
    "place_objective",
]
