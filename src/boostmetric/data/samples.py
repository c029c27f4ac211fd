"""Samples and folds of rows that depend on the contents of the rows only.

Renaming classes, and permuting rows or columns, does not change which points are chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIN_PER_CLASS = 30
"""Classes with fewer points on average are sampled as a whole: a few points of each class of many
would have no neighbors of their own class."""


def class_order(hashes: NDArray, codes: NDArray) -> NDArray:
    """Return the rows sorted by class and hash; classes are sorted by their smallest hash.

    Taking every k-th row in this order gives each of k folds its share of every class.

    >>> class_order(np.array([7, 3, 5, 9], dtype=np.uint64), np.array([1, 0, 0, 1])).tolist()
    [1, 2, 0, 3]
    """
    smallest = np.full(int(codes.max(initial=-1)) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(smallest, codes, hashes)
    return np.lexsort((hashes, codes, smallest[codes]))


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
