"""The numbers of the paper's tables."""

from __future__ import annotations

import tomllib
from copy import deepcopy
from functools import cache
from importlib import resources
from typing import Any

DATASETS = ("mnist", "usps", "letter", "yfaces", "balance", "wine", "iris")
"""The columns of Table 1."""

METHOD_NAMES = {
    "euclidean": "Euclidean",
    "pca": "PCA",
    "lda": "LDA",
    "rca": "RCA",
    "nca": "NCA",
    "lmnn": "LMNN",
    "itml": "ITML",
    "boostmetric-e": "BoostMetric-E",
    "boostmetric-e-mp": "BoostMetric-E, MP",
    "boostmetric-e-tc": "BoostMetric-E, TC",
    "boostmetric-e-mp-tc": "BoostMetric-E, MP, TC",
    "boostmetric-l": "BoostMetric-L",
    "boostmetric-l-mp": "BoostMetric-L, MP",
    "boostmetric-l-tc": "BoostMetric-L, TC",
    "boostmetric-l-mp-tc": "BoostMetric-L, MP, TC",
    "hinge": "soft-margin hinge",
    "recipe": "BoostMetric, recipe",
}
"""What the rows are called: those of Table 1 in its order, then two that it does not have."""

Score = tuple[float, float | None]
"""Mean and standard deviation; None for that of a single run."""


def paper_error(dataset: str, method: str) -> Score | None:
    """Error of Table 1 in per cent, None for a cell that the paper does not have.

    Parameters
    ----------
    dataset : one of `DATASETS`
    method : a key of `METHOD_NAMES`

    Examples
    --------
    >>> paper_error("usps", "boostmetric-l-tc")
    (2.13, 0.41)
    >>> paper_error("mnist", "euclidean")
    (3.19, None)
    >>> paper_error("mnist", "nca") is None
    True
    """
    row = METHOD_NAMES.get(method, method)
    return as_score(_tables()["table1"]["errors"].get(row, {}).get(dataset))


def paper_seconds(dataset: str, method: str) -> tuple[float, bool] | None:
    """Computation time of Table 1 in seconds, and whether it is only known to be less than that.

    Examples
    --------
    >>> paper_seconds("mnist", "boostmetric-l")
    (3204.0, False)
    >>> paper_seconds("iris", "boostmetric-l")
    (1.0, True)
    >>> paper_seconds("iris", "lda") is None
    True
    """
    row = METHOD_NAMES.get(method, method)
    cell = _tables()["table1"]["seconds"].get(row, {}).get(dataset)
    if isinstance(cell, dict):
        return float(cell["less_than"]), True
    return None if cell is None else (float(cell), False)


def paper_sizes(dataset: str) -> dict[str, int]:
    """The upper part of Table 1 for one dataset.

    Examples
    --------
    >>> paper_sizes("usps")["pca_dimension"], paper_sizes("usps")["training"]
    (60, 7700)
    >>> "pca_dimension" in paper_sizes("iris")
    False
    """
    rows = _tables()["table1"]["datasets"]
    return {row: cells[dataset] for row, cells in rows.items() if dataset in cells}


def paper_table2(dataset: str, v: str) -> Score | None:
    """Error of Table 2 in per cent, None for a cell that the paper does not have.

    Parameters
    ----------
    dataset : "balance", "b-cancer" or "diabetes"
    v : "v=1e-08" to "v=1e-04"

    Examples
    --------
    >>> paper_table2("diabetes", "v=1e-04")
    (26.0, 1.46)
    """
    return as_score(_tables()["table2"].get(dataset, {}).get(v))


def paper_table2_cells() -> dict[str, tuple[str, ...]]:
    """The values of v that Table 2 has for each of its datasets, in its order."""
    return {dataset: tuple(row) for dataset, row in _tables()["table2"].items()}


def paper_eigenvalues() -> tuple[float, ...]:
    """The leading eigenvalues of the metric that the paper learned on the concentric circles.

    Examples
    --------
    >>> paper_eigenvalues()
    (0.542, 0.414, 0.007)
    """
    return tuple(_tables()["circles"]["eigenvalues"])


def paper_table(name: str) -> Any:
    """A table as "paper.toml" lays it out.

    Examples
    --------
    >>> paper_table("table3")["average"]["BoostMetric"]
    [3.97, 1.03]
    """
    return deepcopy(_tables()[name])


def paper_ratio(dataset: str, method: str) -> float | None:
    """Error of Table 1 divided by the Euclidean one.

    Examples
    --------
    >>> paper_ratio("mnist", "boostmetric-l-tc")  # 2.10 / 3.19
    0.658...
    """
    papers, euclidean = paper_error(dataset, method), paper_error(dataset, "euclidean")
    return papers[0] / euclidean[0] if papers and euclidean else None


def as_score(cell: list[float] | None) -> Score | None:
    """A cell of "paper.toml", None for one that is missing."""
    if cell is None:
        return None
    mean, *deviation = cell
    return mean, deviation[0] if deviation else None


@cache
def _tables() -> dict[str, Any]:
    text = (
        resources.files("boostmetric_paper.experiments").joinpath("paper.toml").read_text("utf-8")
    )
    return tomllib.loads(text)
