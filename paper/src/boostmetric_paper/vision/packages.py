"""Packages that only images need, with an error that says what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

PACKAGES = {"cv2": "opencv-python-headless", "PIL.Image": "Pillow"}
"""Modules of the extra `vision`, and the packages that contain them."""


def import_package(module: str, package: str | None = None, extra: str = "vision") -> Any:
    """A module, or an ImportError that says what to install.

    Examples
    --------
    >>> import_package("PIL.Image").new("L", (3, 2)).size
    (3, 2)
    """
    try:
        return import_module(module)
    except ImportError:
        raise ImportError(
            f"{package or PACKAGES[module]} is not installed: "
            f"pip install 'boostmetric_paper[{extra}]'"
        ) from None
