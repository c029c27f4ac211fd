"""Pairs of points, given as row indices of X or as coordinates, and triplets drawn from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from sklearn.utils.random import sample_without_replacement


def split_pairs(pairs: ArrayLike, X: Any = None) -> tuple[NDArray, Any]:
    """Return row indices of shape (m, 2) and the X to which they refer.

    Parameters
    ----------
    pairs : array of shape (m, 2) of row indices of X, or of shape (m, 2, D), the points
    X : the points, of any type; only with row indices

    Examples
    --------
    >>> rows, X = split_pairs([[[0.0, 0.0], [1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]])
    >>> rows.tolist(), X[3].tolist()
    ([[0, 1], [2, 3]], [5.0, 6.0])
    """
    if X is None:
        shape = np.shape(pairs)
        if len(shape) != 3 or shape[1] != 2:
            raise ValueError(
                "X is required when pairs are row indices. Without X, pairs must be points of "
                f"shape (m, 2, D); got shape {shape}."
            )
        ends = check_array(pairs, allow_nd=True, dtype=[np.float64, np.float32])
        return np.arange(2 * len(ends)).reshape(-1, 2), ends.reshape(-1, ends.shape[2])
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(
            "pairs must contain integer row indices of X and have shape (m, 2); got dtype "
            f"{rows.dtype} and shape {rows.shape}."
        )
    if len(rows) == 0:
        raise ValueError("pairs must contain at least one pair.")
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    for row in (rows.min(), rows.max()):
        if not 0 <= row < n:
            raise ValueError(f"Row index {row} is out of bounds for X with {n} rows.")
    return rows, X


def are_same(y: ArrayLike, m: int) -> NDArray:
    """Whether each of m pairs is similar (y = 1) or dissimilar (y = −1), of shape (m,).

    >>> are_same([1, -1], 2).tolist()
    [True, False]
    """
    kinds = np.asarray(y)
    if kinds.shape != (m,) or not np.isin(kinds, (-1, 1)).all():
        raise ValueError(
            f"With pairs, y must be 1 (similar) or -1 (dissimilar) and have shape ({m},); got "
            f"shape {kinds.shape} and values {np.unique(kinds)[:5]}."
        )
    return kinds == 1


def check_both_kinds(same: NDArray) -> None:
    """Raise a ValueError unless there are similar and dissimilar pairs.

    >>> check_both_kinds(np.array([True, True]))
    Traceback (most recent call last):
    ValueError: Both similar and dissimilar pairs are required; all 2 pairs are similar.
    """
    if same.all() or not same.any():
        kind = "similar" if same.all() else "dissimilar"
        raise ValueError(
            f"Both similar and dissimilar pairs are required; all {len(same)} pairs are {kind}."
        )


def draw_triplets(rows: NDArray, people: NDArray, size: int, rng: np.random.RandomState) -> NDArray:
    """Draw distinct triplets (i, j, k), with (i, j) a pair of one person and k another person.

    Parameters
    ----------
    rows : array of shape (m, 2), pairs of row indices; only these rows are drawn
    people : array of shape (n,), the person of each row, as an integer
    size : number of triplets
    rng : random number generator

    Examples
    --------
    >>> rng = np.random.RandomState(0)
    >>> sorted(draw_triplets(np.array([[0, 1], [1, 2]]), np.array([7, 7, 4]), 2, rng).tolist())
    [[0, 1, 2], [1, 0, 2]]
    """
    if rows.size and rows.max() >= len(people):
        raise ValueError(
            f"Row index {rows.max()} is out of bounds for people with {len(people)} entries."
        )
    images = np.unique(rows)
    images = images[np.argsort(people[images], kind="stable")]
    once = np.unique(np.sort(rows[people[rows[:, 0]] == people[rows[:, 1]]], axis=1), axis=0)
    near = np.concatenate([once, once[:, ::-1]])
    begin, end = (
        np.searchsorted(people[images], people[near[:, 0]], side) for side in ("left", "right")
    )
    n_others = len(images) - (end - begin)
    total = int(n_others.sum())
    if total == 0:
        raise ValueError(
            "The pairs yield no triplets: two rows of one person and one of another are required."
        )
    if not 1 <= size <= total:
        raise ValueError(
            f"The 'n_triplets' parameter must be an int in the range [1, {total}], the number of "
            f"triplets that the pairs yield. Got {size} instead."
        )
    numbers = sample_without_replacement(total, size, random_state=rng)
    ends = np.cumsum(n_others)
    which = np.searchsorted(ends, numbers, side="right")
    steps = numbers - (ends - n_others)[which]
    # Images are sorted by person: start after the images of this person, and wrap around.
    others = images[(end[which] + steps) % len(images)]
    return np.column_stack([near[which], others])
