"""Fits of points that are not in memory: the same as of those that are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from boostmetric import BoostMetric, Comparisons
from boostmetric.checkpoint import CheckpointError

N = 300
LEARNER = BoostMetric("exponential", max_iter=6, engine="serial", n_blocks=3)


@pytest.fixture(scope="module")
def points() -> tuple[NDArray, NDArray]:
    X, y = load_digits(return_X_y=True)
    return np.ascontiguousarray(X[:N, X[:N].std(axis=0) > 0]), y[:N]


def as_npy(folder: Path, X: NDArray, y: NDArray | None) -> tuple[Any, Any]:
    np.save(folder / "X.npy", X)
    return folder / "X.npy", y


def as_zarr(folder: Path, X: NDArray, y: NDArray | None) -> tuple[Any, Any]:
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(
        str(folder / "X.zarr"), shape=X.shape, chunks=(70, X.shape[1]), dtype=X.dtype
    )
    stored[:] = X
    return stored, y


def frame_of(X: NDArray, y: NDArray | None) -> pd.DataFrame:
    table = pd.DataFrame(X, columns=[f"feature {k}" for k in range(X.shape[1])])
    return table if y is None else table.assign(digit=y)


def as_parquet(folder: Path, X: NDArray, y: NDArray | None) -> tuple[Any, Any]:
    table = frame_of(X, y)
    (folder / "X.parquet").mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(X)), 4)):
        table.iloc[rows].to_parquet(folder / "X.parquet" / f"{number}.parquet", index=False)
    return str(folder / "X.parquet"), "digit"


def as_dask_array(folder: Path, X: NDArray, y: NDArray | None) -> tuple[Any, Any]:
    da = pytest.importorskip("dask.array")
    labels = None if y is None else da.from_array(y, chunks=90)
    return da.from_array(X, chunks=(90, X.shape[1])), labels


def as_dask_frame(folder: Path, X: NDArray, y: NDArray | None) -> tuple[Any, Any]:
    dd = pytest.importorskip("dask.dataframe")
    return dd.from_pandas(frame_of(X, y), npartitions=3), "digit"


FORMS = [as_npy, as_zarr, as_parquet, as_dask_array, as_dask_frame]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__.removeprefix("as_"))
def test_labelled_points_give_the_same_bits_wherever_they_are(
    form: Callable[..., tuple[Any, Any]], points: tuple[NDArray, NDArray], tmp_path: Path
) -> None:
    inside = clone(LEARNER).fit(*points)
    outside = clone(LEARNER).fit(*form(tmp_path, *points))
    np.testing.assert_array_equal(outside.components_, from_npy(tmp_path, *points).components_)
    assert_equal_but_for_rounding(outside, inside)
    assert outside.n_features_in_ == points[0].shape[1]
    X, y = points
    named = form in (as_parquet, as_dask_frame)
    assert hasattr(outside, "feature_names_in_") == named
    assert outside.score(frame_of(X, None) if named else X, y) == inside.score(X, y)


def from_npy(folder: Path, X: NDArray, y: NDArray) -> BoostMetric:
    (folder / "npy").mkdir()
    return clone(LEARNER).fit(*as_npy(folder / "npy", X, y))


def assert_equal_but_for_rounding(one: BoostMetric, other: BoostMetric) -> None:
    """Those of fits whose blocks are of other comparisons."""
    np.testing.assert_allclose(one.history_["objective"], other.history_["objective"], rtol=1e-9)
    assert one.history_["n_violated"].tolist() == other.history_["n_violated"].tolist()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__.removeprefix("as_"))
def test_comparisons_too(
    form: Callable[..., tuple[Any, Any]], points: tuple[NDArray, NDArray], tmp_path: Path
) -> None:
    X, _ = points
    rng = np.random.default_rng(0)
    triplets = np.array([rng.choice(N, 3, replace=False) for _ in range(300)])
    inside = clone(LEARNER).fit(X, comparisons=Comparisons.from_triplets(triplets, n_points=N))
    np.save(tmp_path / "triplets.npy", triplets)
    stored, _ = form(tmp_path, X, None)
    same = clone(LEARNER).fit(stored, comparisons=Comparisons.from_triplets(triplets, n_points=N))
    np.testing.assert_array_equal(same.components_, inside.components_)
    # Comparisons in a file are taken as they are stored.
    in_file = clone(LEARNER).fit(stored, comparisons=tmp_path / "triplets.npy")
    assert_equal_but_for_rounding(in_file, inside)
    again = clone(LEARNER).fit(stored, comparisons=triplets)
    np.testing.assert_array_equal(again.components_, in_file.components_)


def test_passes_look_for_neighbours_in_the_learned_space(
    points: tuple[NDArray, NDArray], tmp_path: Path
) -> None:
    learner = clone(LEARNER).set_params(n_passes=2)
    inside, outside = clone(learner).fit(*points), clone(learner).fit(*as_npy(tmp_path, *points))
    assert outside.history_["pass"].tolist() == inside.history_["pass"].tolist()
    np.testing.assert_allclose(outside.components_, inside.components_, rtol=1e-6, atol=1e-9)


def test_neighbours_may_be_approximate(
    points: tuple[NDArray, NDArray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few points the cells find all, so that only the order of the anchors differs."""
    exact = from_npy(tmp_path, *points)
    learner = clone(LEARNER).set_params(neighbors="approximate")
    assert_equal_but_for_rounding(learner.fit(*as_npy(tmp_path, *points)), exact)


def test_a_cluster_reads_for_itself(points: tuple[NDArray, NDArray], tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    alone = from_npy(tmp_path, *points)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        for form in (as_npy, as_dask_array):
            learner = BoostMetric(**{**LEARNER.get_params(), "engine": client})
            learner.fit(*form(tmp_path, *points))
            np.testing.assert_array_equal(learner.components_, alone.components_)


def test_a_checkpoint_knows_the_file(points: tuple[NDArray, NDArray], tmp_path: Path) -> None:
    X, y = as_npy(tmp_path, *points)
    learner = clone(LEARNER).set_params(checkpoint=tmp_path / "fit.ckpt")
    learner.fit(X, y)
    whole = learner.components_
    np.testing.assert_array_equal(clone(learner).fit(X, y).components_, whole)
    stopped = clone(learner).set_params(checkpoint=tmp_path / "other.ckpt")
    from boostmetric.monitor import listening

    with listening(lambda progress: progress.n_directions == 3):
        stopped.fit(X, y)
    assert stopped.n_iter_ == 3
    np.save(tmp_path / "Z.npy", points[0][:, 1:])
    with pytest.raises(CheckpointError, match="of other data"):
        clone(stopped).fit(tmp_path / "Z.npy", y)
    np.testing.assert_array_equal(clone(stopped).fit(X, y).components_, whole)


@pytest.mark.parametrize(
    ("options", "given", "message"),
    [
        ({"init": "scale"}, {}, "init='scale' needs points in memory, and X is a PosixPath: leave"),
        ({"early_stopping": True}, {}, "early_stopping=True needs points in memory"),
        ({"neighbors": NearestNeighbors()}, {}, "neighbors=NearestNeighbors.* needs points in mem"),
        ({"neighbors": "some"}, {}, "neighbors='some' is not an index"),
        ({}, {"sample_weight": np.ones(N)}, "sample_weight=array"),
        (
            {},
            {"y": None},
            "labels y or comparisons are needed of points that are not in memory, and ne",
        ),
        ({}, {"comparisons": np.array([[0, 1, 2]])}, "and both came"),
    ],
)
def test_what_needs_points_in_memory_is_refused(
    options: dict[str, Any],
    given: dict[str, Any],
    message: str,
    points: tuple[NDArray, NDArray],
    tmp_path: Path,
) -> None:
    X, y = as_npy(tmp_path, *points)
    with pytest.raises(ValueError, match=message):
        clone(LEARNER).set_params(**options).fit(X, **{"y": y, **given})
