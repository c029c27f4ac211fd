"""The numbers of the paper's tables."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

PAPER: dict[str, Any] = tomllib.loads(
    resources.files("boostmetric_paper.experiments").joinpath("paper.toml").read_text("utf-8")
)
"""The tables as "paper.toml" lays them out."""

Score = tuple[float, float | None]
"""Mean and standard deviation; None for a single run."""


def paper_score(table: str, *keys: str) -> Score | None:
    """A cell of a table in percent, None if the paper does not have it.

    Examples
    --------
    >>> paper_score("table1", "errors", "BoostMetric-L, TC", "usps")
    (2.13, 0.41)
    >>> paper_score("table1", "errors", "Euclidean", "mnist")
    (3.19, None)
    >>> paper_score("table1", "errors", "NCA", "mnist") is None
    True
    """
    entry: Any = PAPER[table]
    for key in keys:
        entry = entry.get(key, {})
    if not entry:
        return None
    mean, *deviation = entry
    return mean, deviation[0] if deviation else None
