"""Packages that only this part needs: an error that names them where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

PACKAGES = {"cv2": "opencv-python-headless", "PIL.Image": "Pillow"}
"""Modules of the extra `vision`, and the packages that have them."""


def needed(module: str) -> Any:
    """A module of `PACKAGES`, or an ImportError that says what to install.

    Examples
    --------
    >>> needed("PIL.Image").new("L", (3, 2)).size
    (3, 2)
    """
    try:
        return import_module(module)
    except ImportError:
        raise ImportError(
            f"images need {PACKAGES[module]}, which is missing: "
            "pip install 'boostmetric_paper[vision]'"
        ) from None
