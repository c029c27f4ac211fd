from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric_paper.vision import FeatureCache

IMAGE = np.arange(12, dtype=np.uint8).reshape(3, 4)


def counting() -> tuple[list[NDArray], Callable[[NDArray[np.uint8]], NDArray]]:
    seen: list[NDArray] = []

    def compute(image: NDArray[np.uint8]) -> NDArray:
        seen.append(image)
        return image.astype(np.float32) * len(seen)

    return seen, compute


def failing(image: NDArray[np.uint8]) -> NDArray:
    raise ZeroDivisionError


def test_features_are_computed_once_and_shared_by_caches_of_a_folder(tmp_path: Path) -> None:
    seen, compute = counting()
    for _ in range(3):
        found = FeatureCache(tmp_path / "new" / "folder").features(IMAGE, {"a": [1, 2.5]}, compute)
        np.testing.assert_array_equal(found, IMAGE)
        assert found.dtype == np.float32
    assert len(seen) == 1


def test_pixels_shapes_and_parameters_tell_features_apart(tmp_path: Path) -> None:
    cache, (seen, compute) = FeatureCache(tmp_path), counting()
    other = IMAGE.copy()
    other[2, 3] += 1
    for image in (IMAGE, other, IMAGE.reshape(4, 3), IMAGE[None]):
        for parameters in ({"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 1}):
            cache.features(image, parameters, compute)
    assert len(seen) == len(list(tmp_path.iterdir())) == 16
    assert cache.path(IMAGE, {"a": 1, "b": 2}) == cache.path(IMAGE, {"b": 2, "a": 1})
    assert cache.path(IMAGE[::-1], {}) == cache.path(IMAGE[::-1].copy(), {})
    assert cache.path(IMAGE[::-1], {}) != cache.path(IMAGE, {})


def test_a_damaged_file_is_computed_anew(tmp_path: Path) -> None:
    cache, (seen, compute) = FeatureCache(tmp_path), counting()
    path = cache.path(IMAGE, {})
    cache.features(IMAGE, {}, compute)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for times, damaged in enumerate((b"", b"PK", whole[:-9], bytes(flipped)), start=2):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(cache.features(IMAGE, {}, compute), IMAGE * float(times))
        np.testing.assert_array_equal(cache.features(IMAGE, {}, compute), IMAGE * float(times))
    assert len(seen) == 5
    assert list(tmp_path.iterdir()) == [path]


def test_an_image_without_features_is_kept_too(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    nothing = np.zeros((0, 128), np.float32)
    assert cache.features(IMAGE, {}, lambda image: nothing) is nothing
    assert cache.features(IMAGE, {}, failing).shape == (0, 128)


def test_nothing_is_kept_of_what_failed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        FeatureCache(tmp_path).features(IMAGE, {}, failing)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(ValueError) as caught:
        FeatureCache(path)
    assert str(caught.value) == (
        f"{path} is a file: features need a folder, so name one, there or not."
    )
