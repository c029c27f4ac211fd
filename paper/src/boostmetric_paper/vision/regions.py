"""Regions of segmented images, and histograms of the words in them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import label as components


def region_histograms(
    words: NDArray[np.intp],
    label_map: NDArray[np.uint8],
    n_words: int,
    *,
    labels: Iterable[int],
    min_pixels: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """The histogram of words in each region of an image, of shape (R, n_words), and its label.

    A region is a connected set of pixels with the same label (8-connectivity).

    Parameters
    ----------
    words : the word at each pixel, of shape (H, W) or (H·W,)
    label_map : the label of each pixel, of shape (H, W)
    n_words : length of a histogram
    labels : labels of the regions; others, such as void, are ignored
    min_pixels : size of the smallest region

    Examples
    --------
    >>> label_map = np.array([[1, 1, 0, 2], [1, 0, 0, 2]], dtype=np.uint8)
    >>> words = np.array([[0, 1, 1, 1], [0, 0, 0, 1]])
    >>> region_histograms(words, label_map, n_words=2, labels=[1, 2])
    (array([[2., 1.],
           [0., 2.]]), array([1, 2]))
    """
    if words.size != label_map.size:
        raise ValueError(
            f"words must have one entry per pixel of label_map. Got {words.size} words and "
            f"{label_map.size} pixels."
        )
    words = words.reshape(label_map.shape)
    histograms, owners = [], []
    for label in labels:
        numbered, n_regions = components(label_map == label, structure=np.ones((3, 3)))
        for region in range(1, n_regions + 1):
            inside = words[numbered == region]
            if len(inside) >= min_pixels:
                histograms.append(np.bincount(inside, minlength=n_words))
                owners.append(label)
    shaped = np.array(histograms, dtype=np.float64).reshape(-1, n_words)
    return shaped, np.array(owners, dtype=np.intp)
