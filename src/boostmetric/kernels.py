"""Whether loops are compiled."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

WORTH = 10_000_000
"""Numbers that the loops touch, from which on their loading, half a second, is worth it."""


def compiled(work: int) -> Any:
    """The module `compiled` where numba is installed and there is so much work, else None.

    >>> compiled(10) is None
    True
    """
    return import_module("boostmetric.compiled") if work >= WORTH and _installed() else None


@cache
def _installed() -> bool:
    return find_spec("numba") is not None
