"""Parameter checks with one wording, and warnings that point at the user's line."""

from __future__ import annotations

import sys
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def finite(name: str, values: ArrayLike | None, size: int) -> NDArray | None:
    """`values` as an array (size,) of finite numbers; None stays None, a number is repeated.

    >>> finite("gaps", 1.5, 2)
    array([1.5, 1.5])
    """
    if values is None:
        return None
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers; got {values!r:.80}.") from None
    if numbers.ndim == 0:
        numbers = np.full(size, numbers)
    if numbers.shape != (size,):
        raise ValueError(f"{name} must be of shape ({size},); got {numbers.shape}.")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite; got NaN or infinity.")
    return numbers


def non_negative(name: str, values: ArrayLike | None, size: int) -> NDArray | None:
    """Same as `finite`, for numbers that must be >= 0.

    >>> non_negative("weights", [0, 2], 2)
    array([0., 2.])
    """
    numbers = finite(name, values, size)
    if numbers is not None and (numbers < 0).any():
        low, high = numbers.min(), numbers.max()
        raise ValueError(f"{name} must be >= 0, got values between {low:g} and {high:g}.")
    return numbers


def check_parameter(name: str, value: Any, is_valid: bool, expected: str) -> None:
    """Raise a ValueError in the wording of scikit-learn unless the value is valid.

    >>> check_parameter("max_iter", 0, False, "an int in the range [1, inf)")
    Traceback (most recent call last):
    ValueError: The 'max_iter' parameter must be an int in the range [1, inf). Got 0 instead.
    """
    if not is_valid:
        raise ValueError(f"The {name!r} parameter must be {expected}. Got {value!r:.200} instead.")


def is_count(value: Any) -> bool:
    """Whether a value is an integer of at least 1."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def is_real(value: Any, low: float = 0.0, high: float = float("inf")) -> bool:
    """Whether a value is a number in [low, high)."""
    return isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) < high


SEED = "None, an int in the range [0, 4294967295], or a RandomState"
"""What `is_seed` accepts, for error messages."""


def is_seed(value: Any) -> bool:
    """Whether a value is a `random_state` of scikit-learn."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return 0 <= int(value) < 1 << 32
    return value is None or isinstance(value, np.random.RandomState)


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
