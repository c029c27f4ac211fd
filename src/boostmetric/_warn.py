"""Warnings that point at the user's line."""

from __future__ import annotations

import sys
import warnings


def warn(message: str) -> None:
    """Warn at the innermost frame outside of the caller's package, scikit-learn and contextlib.

    In Python 3.12 or later, `skip_file_prefixes` of `warnings.warn` does the same.
    """
    level = 1
    frame = sys._getframe(1)
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        (f"{package}.", "sklearn.", "contextlib")
    ):
        level += 1
        frame = frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level + 1)
