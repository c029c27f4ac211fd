"""Samples and folds of rows that depend on the contents of the rows only.

Renaming classes, and permuting rows or columns, does not change which points are chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIN_PER_CLASS = 30
"""Classes with fewer points on average are sampled as a whole: a few points of each class of many
would have no neighbors of their own class."""


def turns_of(hashes: NDArray, codes: NDArray, whole_classes: bool = False) -> NDArray:
    """Return numbers of rows whose remainders modulo k are folds with equal shares of every class.

    With `whole_classes`, the numbers are those of the classes.

    >>> hashes, codes = np.array([7, 3, 5, 9], dtype=np.uint64), np.array([1, 0, 0, 1])
    >>> turns_of(hashes, codes).tolist(), turns_of(hashes, codes, whole_classes=True).tolist()
    ([2, 0, 1, 3], [1, 0, 0, 1])
    """
    order = class_order(hashes, codes)
    turns = np.empty(len(order), dtype=np.intp)
    turns[order] = np.arange(len(order))
    if whole_classes:
        turns[order] = np.append(0, np.cumsum(np.diff(codes[order]) != 0))[: len(order)]
    return turns


def class_order(hashes: NDArray, codes: NDArray) -> NDArray:
    """Return the rows sorted by class and hash; classes are sorted by their smallest hash.

    >>> class_order(np.array([7, 3, 5, 9], dtype=np.uint64), np.array([1, 0, 0, 1])).tolist()
    [1, 2, 0, 3]
    """
    return np.lexsort((hashes, codes, smallest_hashes(codes, hashes)))


def smallest_hashes(codes: NDArray, hashes: NDArray) -> NDArray:
    """Return the smallest hash of the rows with the same code, for each row.

    >>> smallest_hashes(np.array([1, 0, 1]), np.array([8, 3, 1], dtype=np.uint64)).tolist()
    [1, 3, 1]
    """
    smallest = np.full(int(codes.max(initial=-1)) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(smallest, codes, hashes)
    return smallest[codes]


def sample(hashes: NDArray, codes: NDArray, size: int) -> NDArray:
    """Return about `size` positions, those of the smallest hashes, in the order of the hashes.

    Small classes are sampled as a whole, those with the smallest hash of any of their points.
    """
    if len(hashes) <= size:
        return np.argsort(hashes, kind="stable")
    if len(codes) >= MIN_PER_CLASS * len(np.unique(codes)):
        return np.argsort(hashes, kind="stable")[:size]
    order = class_order(hashes, codes)
    last = codes[order[size - 1]]
    chosen = order[: np.flatnonzero(codes[order] == last)[-1] + 1]
    return chosen[np.argsort(hashes[chosen], kind="stable")]
