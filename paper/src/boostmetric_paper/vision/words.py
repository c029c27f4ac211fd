"""Bags of visual words: an image as a histogram of the kinds of patches in it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from joblib import Memory
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, check_memory

from boostmetric_paper.vision.descriptors import Sift
from boostmetric_paper.vision.images import Source, read_image
from boostmetric_paper.vision.packages import import_package


def _divide(counts: NDArray, sums: NDArray) -> NDArray:
    """Rows divided by their sums; a row of zeros remains zero."""
    return counts / np.where(sums > 0, sums, 1)


NORMS: dict[str | None, Callable[[NDArray], NDArray]] = {
    None: lambda counts: counts,
    "l1": lambda counts: _divide(counts, counts.sum(axis=1, keepdims=True)),
    "l2": lambda counts: _divide(counts, np.linalg.norm(counts, axis=1, keepdims=True)),
    "sqrt": lambda counts: np.sqrt(NORMS["l1"](counts)),
}
"""Normalizations of counts."""

MAX_DISTANCES = 1 << 24
"""Distances between descriptors and words for KMeans; MiniBatchKMeans is used for more."""

BATCH_SIZE = 8192
"""Descriptors of a mini-batch."""

MAX_KMEANS_ITER = 50
"""Iterations of k-means; later ones hardly change the centers."""

TILE = 256
"""Descriptors that are assigned to words at a time, so that distances stay in the CPU cache."""


class BagOfVisualWords(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Transform images to histograms of visual words, the nearest of `n_words` k-means centers.

    Images are uint8 arrays of shape (H, W) or (H, W, 3), paths of files, or contents of files; they
    are read one at a time. The histogram of an image without descriptors is zero.

    Parameters
    ----------
    n_words : number of centers
    points : which points are described by SIFT: "interest", "harris" or "dense", see `Sift`; or a
        function from an image to an array of descriptors, of shape (n, D), such as
        `pixel_responses`
    step, sizes, root : see `Sift`
    whiten : whether to decorrelate descriptors and scale them to unit variance, so that k-means
        uses the Mahalanobis distance of the training descriptors
    norm : normalization of histograms. None: counts; "l1": shares, which sum to 1; "l2": unit
        length; "sqrt": square roots of shares
    max_descriptors : largest number of descriptors for k-means; each image contributes at most an
        equal part, and at least one
    memory : folder or `joblib.Memory` where the SIFT descriptors of images are stored, as in
        scikit-learn's `Pipeline`; None stores nothing
    random_state : seed of the sampling and of k-means
    n_jobs : number of threads, as in scikit-learn; does not change the result

    Attributes
    ----------
    codebook_ : the centers, of shape (n_words, D), whitened if descriptors are
    whitening_ : matrix of shape (D, D) that whitens a descriptor; None without `whiten`
    n_descriptors_ : number of descriptors of the training images
    n_empty_ : number of training images without descriptors

    Examples
    --------
    Patches of two pixels that describe themselves: one word is flat, the other one rises.

    >>> bag = BagOfVisualWords(n_words=2, points=lambda image: image.reshape(-1, 2), random_state=0)
    >>> flat, rising = np.full((2, 4), 7, np.uint8), np.tile(np.array([0, 9], np.uint8), (2, 2))
    >>> bag.fit_transform([flat, rising])[:, bag.words(flat)[0]]
    array([4., 0.])
    """

    def __init__(
        self,
        n_words: int = 100,
        *,
        points: str | Callable[[NDArray[np.uint8]], NDArray] = "interest",
        step: int = 8,
        sizes: tuple[float, ...] = (16,),
        root: bool = False,
        whiten: bool = False,
        norm: str | None = None,
        max_descriptors: int = 200_000,
        memory: str | os.PathLike[str] | Memory | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_words = n_words
        self.points = points
        self.step = step
        self.sizes = sizes
        self.root = root
        self.whiten = whiten
        self.norm = norm
        self.max_descriptors = max_descriptors
        self.memory = memory
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, images: Sequence[Source], y: object = None) -> BagOfVisualWords:
        """Cluster the descriptors of a sequence of images; `y` is ignored."""
        self._check(images)
        describe = self._describe()
        rng = check_random_state(self.random_state)
        n_max = max(1, self.max_descriptors // len(images))
        seeds = rng.randint(np.iinfo(np.int32).max, size=len(images))

        def draw(row: int) -> tuple[NDArray, int]:
            descriptors = describe(images[row])
            n = len(descriptors)
            if n <= n_max:
                return descriptors, n
            chosen = np.random.default_rng(seeds[row]).choice(n, n_max, replace=False)
            return descriptors[chosen], n

        samples, counts = zip(*self._map(draw, len(images)), strict=True)
        sample = np.concatenate(samples)
        if len(sample) < self.n_words:
            raise ValueError(
                f"n_words={self.n_words} exceeds the {len(sample)} descriptors of {len(images)} "
                "images. Use fewer words, more images or a larger max_descriptors."
            )
        self.n_descriptors_, self.n_empty_ = sum(counts), counts.count(0)
        self.whitening_ = _whitening(sample) if self.whiten else None
        sample = self._whitened(sample)
        kmeans: KMeans | MiniBatchKMeans
        if len(sample) * self.n_words > MAX_DISTANCES:
            kmeans = MiniBatchKMeans(
                self.n_words, batch_size=BATCH_SIZE, n_init=3, random_state=rng
            )
        else:
            kmeans = KMeans(self.n_words, n_init=1, max_iter=MAX_KMEANS_ITER, random_state=rng)
        self.codebook_ = kmeans.fit(sample).cluster_centers_
        return self

    def transform(self, images: Sequence[Source]) -> NDArray[np.float64]:
        """The histograms of images, of shape (n, n_words); warns if some are zero."""
        check_is_fitted(self)
        self._check(images)
        describe = self._describe()

        def count(row: int) -> NDArray:
            words = self._nearest(describe(images[row]))
            return np.bincount(words, minlength=len(self.codebook_))

        counts = np.stack(self._map(count, len(images))).astype(np.float64)
        if n_empty := int(np.sum(~counts.any(axis=1))):
            warnings.warn(
                f"{n_empty} of {len(images)} images have no descriptors, so their histograms are "
                "zero. Remove these images, or use points='dense'.",
                stacklevel=3,  # scikit-learn wraps `transform`
            )
        return NORMS[self.norm](counts)

    def words(self, image: Source) -> NDArray[np.intp]:
        """The word of each descriptor of an image."""
        check_is_fitted(self)
        return self._nearest(self._describe()(image))

    def _check(self, images: Sequence[Source]) -> None:
        is_one = isinstance(images, str | bytes | os.PathLike)
        if is_one or not hasattr(images, "__len__") or getattr(images, "ndim", 3) < 3:
            raise ValueError(
                f"images must be a sequence of images, such as a list. Got {type(images).__name__} "
                "instead."
            )
        if len(images) == 0:
            raise ValueError("images is empty; at least one image is required.")
        for name in ("n_words", "max_descriptors"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"The {name!r} parameter must be an int in the range [1, inf). Got "
                    f"{getattr(self, name)} instead."
                )
        if self.norm not in NORMS:
            raise ValueError(
                "The 'norm' parameter must be None or a str among {'l1', 'l2', 'sqrt'}. Got "
                f"{self.norm!r} instead."
            )

    def _describe(self) -> Callable[[Source], NDArray]:
        """The function from an image to its descriptors."""
        points = self.points
        if callable(points):
            if self.memory is not None:
                raise ValueError(
                    "memory stores SIFT descriptors only; use memory=None if points is a function."
                )
            return lambda image: np.asarray(points(read_image(image)))
        sift = Sift(points, self.step, tuple(self.sizes), self.root)
        if self.memory is None:
            return sift
        folder = os.fspath(self.memory) if isinstance(self.memory, os.PathLike) else self.memory
        describe = check_memory(folder).cache(_describe, verbose=0)
        opencv = import_package("cv2").__version__
        return lambda image: describe(sift, read_image(image, gray=True), opencv)

    def _map(self, function: Callable[[int], Any], n_images: int) -> list[Any]:
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads")
        return list(parallel(delayed(function)(row) for row in range(n_images)))

    def _whitened(self, descriptors: NDArray) -> NDArray:
        if self.whitening_ is None:
            return descriptors
        return (descriptors @ self.whitening_.T).astype(descriptors.dtype, copy=False)

    def _nearest(self, descriptors: NDArray) -> NDArray[np.intp]:
        if len(descriptors) == 0:
            return np.zeros(0, dtype=np.intp)
        points, centers = self._whitened(descriptors), self.codebook_
        halves = (centers**2).sum(axis=1) / 2
        tiles = (points[start : start + TILE] for start in range(0, len(points), TILE))
        return np.concatenate([(halves - tile @ centers.T).argmin(axis=1) for tile in tiles])

    @property
    def _n_features_out(self) -> int:
        return len(self.codebook_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.no_validation = True
        return tags


def _describe(sift: Sift, pixels: NDArray[np.uint8], opencv: str) -> NDArray[np.float32]:
    """The descriptors; the version of OpenCV is an argument because they depend on it."""
    return sift(pixels)


def _whitening(descriptors: NDArray) -> NDArray[np.float64]:
    """L⁻¹ for the covariance LLᵀ of descriptors."""
    try:
        lower = np.linalg.cholesky(np.cov(descriptors, rowvar=False, dtype=np.float64))
    except np.linalg.LinAlgError:
        raise ValueError(
            f"The covariance of {len(descriptors)} descriptors is singular, so they cannot be "
            "whitened. Use more images, or whiten=False."
        ) from None
    return np.linalg.inv(lower).astype(np.float64)
