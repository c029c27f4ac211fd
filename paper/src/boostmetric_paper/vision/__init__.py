"""Features of images: the paper's datasets, bags of visual words, filter banks, faces.

Requires Pillow, and OpenCV for SIFT: `pip install 'boostmetric_paper[vision]'`.

>>> import numpy as np
>>> from boostmetric_paper.vision import BagOfVisualWords, pixel_responses
>>> images = [np.random.default_rng(i).integers(256, size=(9, 9, 3), dtype="uint8") for i in (0, 1)]
>>> bag = BagOfVisualWords(5, points=pixel_responses, whiten=True, norm="l1", random_state=0)
>>> bag.fit_transform(images).shape
(2, 5)
"""

from boostmetric_paper.vision.descriptors import Sift
from boostmetric_paper.vision.filters import filter_bank, pixel_responses
from boostmetric_paper.vision.harris import harris_laplace
from boostmetric_paper.vision.images import ImageError, Images, read_image
from boostmetric_paper.vision.landmarks import FaceSift, facial_points
from boostmetric_paper.vision.merging import Merging, WordMerger, merge_words
from boostmetric_paper.vision.regions import region_histograms
from boostmetric_paper.vision.sets import (
    FacePairs,
    LabeledImages,
    SegmentedImages,
    load_caltech101,
    load_lfw,
    load_msrc,
)
from boostmetric_paper.vision.words import BagOfVisualWords

__all__ = [
    "BagOfVisualWords",
    "FacePairs",
    "FaceSift",
    "ImageError",
    "Images",
    "LabeledImages",
    "Merging",
    "SegmentedImages",
    "Sift",
    "WordMerger",
    "facial_points",
    "filter_bank",
    "harris_laplace",
    "load_caltech101",
    "load_lfw",
    "load_msrc",
    "merge_words",
    "pixel_responses",
    "read_image",
    "region_histograms",
]
