"""What the displays share: panels to draw on, colours, texts that keep clear of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Of the classes, told apart by the colour-blind too; 7 and 8 give 56 combinations."""

BEFORE, AFTER = "#D55E00", "#0072B2"
"""The Euclidean distance and the learned one."""

GREY = "#767676"
"""Of what is not data: guides and notes."""

SIZES = {1: (6.0, 4.0), 2: (10.0, 4.5)}
"""Of a new figure in inches, by its number of panels."""

SPREAD_ROUNDS = 500
"""Small moves after which texts that still cover each other are given up."""

PADDING = 6.0
"""Pixels that a text needs beyond its letters."""

REACH = 0.2
"""The share of the height of the Axes that a text may move, and still be where it belongs."""


def check_matplotlib() -> None:
    """Raise an ImportError that says what to install, where there is nothing to draw with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError(
            "the plots need matplotlib, which is missing: pip install 'boostmetric[plots]'"
        ) from None


def panels(ax: Any, n_panels: int) -> NDArray:
    """The Axes to draw on, an array of `n_panels` of them, or of one.

    Parameters
    ----------
    ax : None for a new figure of pyplot; `n_panels` Axes; or one, for the main panel alone
    n_panels : number of panels of the whole picture

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> panels(Figure().subplots(1, 3), 2)
    Traceback (most recent call last):
    ValueError: ax holds 3 Axes: one is needed, for the main panel alone, or 2, or None.
    """
    check_matplotlib()
    if ax is None:
        from matplotlib import pyplot

        size = SIZES[n_panels]
        _, axes = pyplot.subplots(1, n_panels, figsize=size, layout="constrained")
        return np.atleast_1d(axes)
    axes = np.asarray(ax, dtype=object).ravel()
    if len(axes) not in (1, n_panels):
        others = f", or {n_panels}, or None" if n_panels > 1 else ", or None"
        raise ValueError(
            f"ax holds {len(axes)} Axes: one is needed, for the main panel alone{others}."
        )
    if not all(hasattr(each, "transData") for each in axes):
        raise TypeError(f"ax must be matplotlib's Axes, or None; got {type(axes[0]).__name__}.")
    return axes


def plain(axes: Axes) -> None:
    """Leave the frame away on the sides that carry no scale."""
    axes.spines[["top", "right"]].set_visible(False)


def shortened(name: object, length: int = 22) -> str:
    """The name as one line of bounded length, what is too much left out of its middle.

    >>> shortened("a name that goes on and on, number 7", 16)
    'a name t…umber 7'
    """
    line = " ".join(str(name).split())
    end = (length - 1) // 2
    return line if len(line) <= length else f"{line[: length - 1 - end]}…{line[-end:]}"


def write(axes: Axes, place: NDArray, text: str, color: str) -> Text:
    """A text centred at a place, in a white box with an edge of this colour."""
    x, y = place
    return axes.text(
        x,
        y,
        text,
        color="#222222",
        ha="center",
        va="center",
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "#FFFFFFD8", "edgecolor": color},
        parse_math=False,  # a dollar in the name of a class is no formula
    )


def spread(axes: Axes, texts: Sequence[Text]) -> bool:
    """Move texts until none covers another; whether none had to move far for it.

    The texts must be centred at their positions. They stay within the Axes.
    """
    axes.figure.canvas.figure.draw_without_rendering()  # the layout, and with it the sizes
    boxes = [text.get_window_extent() for text in texts]
    sizes = np.array([[box.width + PADDING, box.height + PADDING] for box in boxes])
    centres = np.array([[(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2] for box in boxes])
    frame, origins = axes.get_window_extent(), centres
    low, high = frame.min + sizes / 2, frame.max - sizes / 2
    for _ in range(SPREAD_ROUNDS):
        centres = np.clip(centres, low, np.maximum(low, high))
        moves = _moves(centres, sizes)
        if not moves.any():
            break
        centres = centres + moves
    for text, place in zip(texts, axes.transData.inverted().transform(centres), strict=True):
        text.set_position(tuple(place))
    farthest = np.linalg.norm(centres - origins, axis=1).max()
    return not moves.any() and bool(farthest <= REACH * frame.height)


def _moves(centres: NDArray, sizes: NDArray) -> NDArray:
    """How far each of the boxes should move away from those that it covers."""
    apart = centres[:, None] - centres
    overlaps = (sizes[:, None] + sizes) / 2 - np.abs(apart)
    covering = (overlaps > 1e-6).all(axis=2) & ~np.eye(len(centres), dtype=bool)
    along = np.eye(2)[overlaps.argmin(axis=2)]  # the way that is shorter
    # Boxes at the same place part by their order.
    order = np.sign(np.arange(len(centres))[:, None] - np.arange(len(centres)))[:, :, None]
    signs = np.where(apart == 0, order, np.sign(apart))
    moves: NDArray = (covering[:, :, None] * along * signs * overlaps / 2).sum(axis=1)
    return moves
