"""Bags of visual words: an image as a histogram of the kinds of patches in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from boostmetric._warn import warn
from boostmetric_paper.vision.cache import FeatureCache
from boostmetric_paper.vision.descriptors import Sift
from boostmetric_paper.vision.images import Source, read_image

NORMS: dict[str | None, Callable[[NDArray], NDArray]] = {
    None: lambda counts: counts,
    "l1": lambda counts: counts / _positive(counts.sum(axis=1, keepdims=True)),
    "l2": lambda counts: counts / _positive(np.linalg.norm(counts, axis=1, keepdims=True)),
    "sqrt": lambda counts: np.sqrt(NORMS["l1"](counts)),
}
"""What becomes of counts; a row of zeros stays so."""

LARGE = 1 << 24
"""Distances between descriptors and words beyond which k-means goes by mini-batches."""

BLOCK = 256
"""Descriptors that words are found for at a time, so that distances stay in the cache."""

BATCH = 8192
"""Descriptors of a mini-batch."""

ROUNDS = 50
"""Iterations of k-means: later ones hardly move a centre."""


class BagOfVisualWords(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """From images to histograms of visual words, the nearest of `n_words` centres of k-means.

    Images are arrays of bytes, (H, W) or (H, W, 3), or paths of files, or the contents of such, and
    are read one at a time. An image without descriptors has a histogram of zeros.

    Parameters
    ----------
    n_words : number of centres
    points : what is described by SIFT: "interest" points, "harris" corners or a "dense" grid, see
        `Sift`. Or a function from an image to an array (n, D) of descriptors, such as
        `pixel_responses`
    step, sizes, root : as those of `Sift`
    whiten : whether descriptors are made uncorrelated and of unit variance first, so that k-means
        goes by the Mahalanobis distance of the training descriptors
    norm : of a histogram. None has counts; "l1" has shares, which sum to 1; "l2" has unit length;
        "sqrt" has the roots of shares
    max_descriptors : most descriptors that k-means sees, drawn evenly over the images: of each at
        most its part of them, and at least one
    cache : a folder for descriptors, see `FeatureCache`; None keeps none
    random_state : of the drawing and of k-means
    n_jobs : number of threads, as in scikit-learn. The result does not depend on it

    Attributes
    ----------
    codebook_ : the centres, of shape (n_words, D), whitened if descriptors are
    whitening_ : of shape (D, D), whose product with a descriptor is whitened; None without `whiten`
    n_descriptors_ : descriptors of the training images, all of them
    n_empty_ : training images without any

    Examples
    --------
    Patches of two pixels, described by themselves: one word is flat, the other one rises.

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
        cache: str | os.PathLike[str] | None = None,
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
        self.cache = cache
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, images: Sequence[Source], y: object = None) -> BagOfVisualWords:
        """Find the words.

        Parameters
        ----------
        images : a sequence of images
        y : ignored
        """
        self._check(images)
        describe = self._describe()
        rng = check_random_state(self.random_state)
        most = max(1, self.max_descriptors // len(images))
        seeds = rng.randint(np.iinfo(np.int32).max, size=len(images))

        def drawn(row: int) -> tuple[NDArray, int]:
            found = describe(images[row])
            if len(found) <= most:
                return found, len(found)
            chosen = np.random.default_rng(seeds[row]).choice(len(found), most, replace=False)
            return found[chosen], len(found)

        samples, counts = zip(*self._each(drawn, len(images)), strict=True)
        sample = np.concatenate(samples)
        if len(sample) < self.n_words:
            raise ValueError(
                f"{len(images)} images have {len(sample)} descriptors to learn from, fewer than "
                f"n_words={self.n_words}: give fewer words, more images or more max_descriptors."
            )
        self.n_descriptors_, self.n_empty_ = sum(counts), counts.count(0)
        self.whitening_ = _whitening(sample) if self.whiten else None
        self.codebook_ = _centres(self._whitened(sample), self.n_words, rng)
        return self

    def transform(self, images: Sequence[Source]) -> NDArray[np.float64]:
        """The histograms of images, of shape (n, n_words). A warning counts those of zeros."""
        check_is_fitted(self)
        self._check(images)
        describe = self._describe()

        def counted(row: int) -> NDArray:
            words = self._nearest(describe(images[row]))
            return np.bincount(words, minlength=len(self.codebook_))

        counts = np.stack(self._each(counted, len(images))).astype(np.float64)
        if n_empty := int(np.sum(~counts.any(axis=1))):
            warn(
                f"{n_empty} of {len(images)} images have no descriptor, so their histograms are "
                "zero: leave them out, or describe them by points='dense'."
            )
        return NORMS[self.norm](counts)

    def words(self, image: Source) -> NDArray[np.intp]:
        """The word of each descriptor of an image, in their order."""
        check_is_fitted(self)
        return self._nearest(self._describe()(image))

    def _check(self, images: Sequence[Source]) -> None:
        is_one = isinstance(images, str | bytes | os.PathLike)
        if is_one or not hasattr(images, "__len__") or getattr(images, "ndim", 3) < 3:
            raise ValueError(
                f"images came as a {type(images).__name__}: give a sequence of images, such as a "
                "list, even for one."
            )
        if len(images) == 0:
            raise ValueError("there is no image: give one or more.")
        if self.n_words < 1 or self.max_descriptors < 1:
            raise ValueError(
                f"n_words={self.n_words} and max_descriptors={self.max_descriptors} will not do: "
                "both are 1 or more."
            )
        if self.norm not in NORMS:
            raise ValueError(f"norm={self.norm!r} will not do: None, 'l1', 'l2' or 'sqrt' will.")

    def _describe(self) -> Callable[[Source], NDArray]:
        """The function from an image to its descriptors."""
        points = self.points
        if callable(points):
            if self.cache is not None:
                raise ValueError(
                    "cache is for SIFT descriptors: a function has no parameters by which its "
                    "results could be found again, so give cache=None."
                )
            return lambda image: np.asarray(points(read_image(image)))
        sift = Sift(points, self.step, tuple(self.sizes), self.root)
        if self.cache is None:
            return sift
        cache, parameters = FeatureCache(self.cache), sift.parameters
        return lambda image: cache.features(read_image(image, grey=True), parameters, sift)

    def _each(self, work: Callable[[int], Any], n_images: int) -> list[Any]:
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads")
        return list(parallel(delayed(work)(row) for row in range(n_images)))

    def _whitened(self, descriptors: NDArray) -> NDArray:
        if self.whitening_ is None:
            return descriptors
        return (descriptors @ self.whitening_.T).astype(descriptors.dtype, copy=False)

    def _nearest(self, descriptors: NDArray) -> NDArray[np.intp]:
        if len(descriptors) == 0:
            return np.zeros(0, dtype=np.intp)
        points, centres = self._whitened(descriptors), self.codebook_
        halves = (centres**2).sum(axis=1) / 2
        blocks = (points[begin : begin + BLOCK] for begin in range(0, len(points), BLOCK))
        return np.concatenate([(halves - block @ centres.T).argmin(axis=1) for block in blocks])

    @property
    def _n_features_out(self) -> int:
        return len(self.codebook_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.no_validation = True
        return tags


def _centres(descriptors: NDArray, n_words: int, rng: np.random.RandomState) -> NDArray:
    if len(descriptors) * n_words > LARGE:
        means = MiniBatchKMeans(n_words, batch_size=BATCH, n_init=3, random_state=rng)
    else:
        means = KMeans(n_words, n_init=1, max_iter=ROUNDS, random_state=rng)
    return means.fit(descriptors).cluster_centers_


def _whitening(descriptors: NDArray) -> NDArray[np.float64]:
    """L⁻¹ for the covariance LLᵀ of descriptors."""
    try:
        lower = np.linalg.cholesky(np.cov(descriptors, rowvar=False, dtype=np.float64))
    except np.linalg.LinAlgError:
        raise ValueError(
            f"the covariance of {len(descriptors)} descriptors is singular, so that they cannot be "
            "whitened: give more images, or whiten=False."
        ) from None
    return np.linalg.inv(lower).astype(np.float64)


def _positive(sums: NDArray) -> NDArray:
    return np.where(sums > 0, sums, 1)
