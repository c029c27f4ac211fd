"""What pairs may be: row numbers of X, or the points themselves; +1 for the same, −1 if not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics.pairwise import paired_euclidean_distances
from sklearn.utils import check_array, gen_batches
from sklearn.utils.random import sample_without_replacement

from boostmetric.data.points import Points

BLOCK = 1000
"""Pairs whose points are held at once."""


def split_pairs(pairs: ArrayLike, X: Any = None) -> tuple[NDArray, Any]:
    """Row numbers of shape (m, 2), and the X that they are of.

    Parameters
    ----------
    pairs : array of shape (m, 2) of row numbers of X, or of shape (m, 2, D), the points
    X : the points, of any kind; only with row numbers

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
                f"pairs of shape {shape} came without X. Give an array (m, 2, D) of points, or row "
                "numbers (m, 2) together with X."
            )
        ends = check_array(pairs, allow_nd=True, dtype=[np.float64, np.float32])
        return np.arange(2 * len(ends)).reshape(-1, 2), ends.reshape(-1, ends.shape[2])
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(
            f"pairs must be row numbers of X, integers of shape (m, 2); got {rows.dtype} of shape "
            f"{rows.shape}."
        )
    if len(rows) == 0:
        raise ValueError("there are no pairs: at least one is needed.")
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    for row in (rows.min(), rows.max()):
        if not 0 <= row < n:
            raise ValueError(f"a pair names row {row}: X has the rows 0 to {n - 1}.")
    return rows, X


def are_same(y: ArrayLike, m: int) -> NDArray:
    """Whether the two of each of m pairs are of the same kind, of shape (m,), from +1 and −1.

    >>> are_same([1, -1], 2).tolist()
    [True, False]
    """
    kinds = np.asarray(y)
    if kinds.shape != (m,) or not np.isin(kinds, (-1, 1)).all():
        raise ValueError(
            f"with pairs, y must hold +1 (same) or -1 (different) for each of the {m}; got shape "
            f"{kinds.shape} with the values {np.unique(kinds)[:5]}."
        )
    return kinds == 1


def check_both_kinds(same: NDArray) -> None:
    """Raise a ValueError where all pairs are of the same kind, or none.

    >>> check_both_kinds(np.array([True, True]))
    Traceback (most recent call last):
    ValueError: all 2 pairs are of the same kind: some of either are needed.
    """
    if same.all() or not same.any():
        kind = "the same kind" if same.all() else "different kinds"
        raise ValueError(f"all {len(same)} pairs are of {kind}: some of either are needed.")


def pair_distances(points: Points, rows: NDArray) -> NDArray:
    """Euclidean distances of pairs of points, of shape (m,), in blocks of bounded memory.

    >>> pair_distances(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0, 1]]))
    array([5.])
    """
    blocks = [rows[part].T for part in gen_batches(len(rows), BLOCK)]
    return np.concatenate([paired_euclidean_distances(points[i], points[j]) for i, j in blocks])


def drawn_triplets(
    rows: NDArray, people: NDArray, size: int, rng: np.random.RandomState
) -> NDArray:
    """So many distinct triplets (i, j, k), (i, j) a pair of one person and k of another.

    Parameters
    ----------
    rows : array of shape (m, 2), row numbers; only those that occur are drawn
    people : array of shape (n,), a number for the person of each row

    Examples
    --------
    >>> rng = np.random.RandomState(0)
    >>> sorted(drawn_triplets(np.array([[0, 1], [1, 2]]), np.array([7, 7, 4]), 2, rng).tolist())
    [[0, 1, 2], [1, 0, 2]]
    """
    if rows.size and rows.max() >= len(people):
        raise ValueError(
            f"a pair names row {rows.max()}: people has the rows 0 to {len(people) - 1}."
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
            "the pairs give no triplets: two images of one person and one of another are needed."
        )
    if not 1 <= size <= total:
        raise ValueError(
            f"n_triplets={size} will not do: the pairs give {total} triplets, so 1 to that."
        )
    numbers = sample_without_replacement(total, size, random_state=rng)
    ends = np.cumsum(n_others)
    which = np.searchsorted(ends, numbers, side="right")
    steps = numbers - (ends - n_others)[which]
    # So many further round from the end of the person's own images.
    others = images[(end[which] + steps) % len(images)]
    return np.column_stack([near[which], others])
