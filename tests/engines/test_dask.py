"""The Dask engine, with threads of this process as workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import simple_learner
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric import BoostMetric, BoostMetricCV, Comparisons
from boostmetric.data.dask_points import DaskPoints, collect
from boostmetric.data.points import checksum, row_hashes
from boostmetric.engines import Dask, EngineError, Lazy, Local, Threads, as_engine, dask
from boostmetric.estimators import CheckpointError
from boostmetric.estimators.callbacks import listening
from boostmetric.learn import boost
from boostmetric.neighbors import index as indexes
from boostmetric.problem import as_loss, place_objective, placement

slow = pytest.mark.slow
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client with two workers in this process."""
    with distributed.Client(
        processes=False,
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=":0",
        set_as_default=False,
    ) as client:
        yield client


@pytest.fixture(scope="module")
def labeled() -> tuple[NDArray, NDArray]:
    """200 points whose class depends on two of six features; some points are equal."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    X[50:60] = X[:10]
    return X, np.digitize(X[:, 0] + X[:, 1], [-0.7, 0.7])


def times(factor: int, threads: Threads, *values: int) -> int:
    return factor * sum(values)


# The engine


def test_results_have_the_order_of_the_blocks(client: Any) -> None:
    with Dask(client) as engine:
        blocks = engine.place([partial(times, 2), Lazy(partial(times, 3), (4, 5))])
        assert engine.call(pow, blocks, 2) == [0, 27**2]


def test_nested_engine_closes_its_client() -> None:
    engine = Dask()
    with engine:
        with engine:
            pass
        assert engine.call(bool, engine.place([partial(times, 1)])) == [False]
    with pytest.raises(EngineError, match="closed"):
        engine.call(bool, [])
    with pytest.raises(ValueError, match="No clients found"):
        distributed.default_client()


def test_active_client_stays_open(client: Any) -> None:
    with client.as_current(), Dask() as engine:
        assert engine._client is client
    assert client.status == "running"


def test_errors_of_blocks_are_raised(client: Any) -> None:
    with Dask(client) as engine:
        blocks = engine.place([partial(times, 1)])
        with pytest.raises(ZeroDivisionError):
            engine.call(divmod, blocks, 0)


def test_as_engine_returns_an_engine(client: Any) -> None:
    assert isinstance(as_engine(None, 2), Local)
    assert isinstance(as_engine("dask"), Dask)
    given = as_engine(client)
    assert as_engine(given) is given
    with pytest.raises(ValueError, match="'engine' parameter must be"):
        as_engine(3)


def test_missing_scheduler_is_reported() -> None:
    with (
        pytest.raises(EngineError, match="no Dask scheduler at 'nowhere://1'"),
        Dask("nowhere://1"),
    ):
        pass


def test_missing_workers_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "SECONDS_TO_FIRST_WORKER", 0.1)
    with (
        distributed.Client(processes=False, n_workers=0, dashboard_address=":0") as empty,
        pytest.raises(EngineError, match="has no workers"),
        Dask(empty),
    ):
        pass


def test_call_fails_after_all_workers_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "SECONDS_BETWEEN_CHECKS", 0.1)
    monkeypatch.setattr(dask, "SECONDS_WITHOUT_WORKERS", 0.2)
    with (
        distributed.LocalCluster(processes=False, n_workers=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as own,
        Dask(own) as engine,
    ):
        blocks = engine.place([partial(times, 1)])
        engine.call(bool, blocks)
        cluster.scale(0)
        while own.nthreads():
            pass
        with (
            pytest.warns(UserWarning, match="continues when a worker joins"),
            pytest.raises(EngineError, match=r"no workers for 0\.2 seconds"),
        ):
            engine.call(bool, blocks)


def test_too_large_blocks_are_rejected(labeled: tuple[NDArray, NDArray]) -> None:
    X, y = labeled
    with (
        distributed.Client(
            processes=False, n_workers=1, memory_limit="20kB", dashboard_address=":0"
        ) as small,
        pytest.raises(EngineError, match=r"block takes 0\.\d MB, .* worker is 0\.0 MB"),
    ):
        simple_learner(engine=small).fit(X, y)


def test_workers_with_another_version_are_rejected(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "_version", lambda: "0.0.1")
    with (
        pytest.raises(EngineError, match=r"does not have boostmetric .* \(0\.0\.1\)"),
        Dask(client),
    ):
        pass


def test_held_block_can_be_pickled() -> None:
    held = pickle.loads(pickle.dumps(dask._Held(np.zeros(1000))))
    assert held.block.shape == (1000,)
    assert held.__sizeof__() == 8000


# Points


def test_points_match_the_collection(client: Any) -> None:
    X = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    with Dask(client) as engine:
        for given in (
            da.from_array(X, chunks=(3, 2)),
            da.from_array(np.vstack([X, X]), chunks=4)[da.from_array(np.arange(20) < 10, chunks=4)],
            dd.from_pandas(pytest.importorskip("pandas").DataFrame(X), npartitions=3),
        ):
            points = DaskPoints.of(given, engine)
            assert points.shape == (10, 4)
            assert points.dtype == np.float32
            np.testing.assert_array_equal(points[[7, 0, 7, 3]], X[[7, 0, 7, 3]])
            assert points[[]].shape == (0, 4)
            np.testing.assert_allclose((points @ np.eye(4)[:, :2])[[5]], X[[5], :2])
            np.testing.assert_allclose(points.mean, X.mean(axis=0), rtol=1e-5)
            np.testing.assert_allclose(points.deviations(), X.std(axis=0), rtol=1e-5)
            weights = np.arange(10.0)
            mean = np.average(X, axis=0, weights=weights)
            variances = np.average((X - mean) ** 2, axis=0, weights=weights)
            np.testing.assert_allclose(points.deviations(weights), np.sqrt(variances), rtol=1e-5)
            assert points.checksum() == checksum(X)
        assert collect(da.arange(7, chunks=3), engine).tolist() == list(range(7))


def test_nonfinite_points_are_rejected(client: Any) -> None:
    X = np.ones((6, 2))
    X[4, 1] = np.nan
    with Dask(client) as engine, pytest.raises(ValueError, match="NaN or infinity"):
        DaskPoints.of(da.from_array(X, chunks=3), engine)


def test_row_hashes_differ_for_similar_rows() -> None:
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 12)).reshape(12, -1).T
    for X in (signs, signs.astype(np.float32), 2.0**40 * signs):
        assert len(np.unique(row_hashes(X))) == 4096
    assert row_hashes(np.array([[0.0, 1.0]])) == row_hashes(np.array([[-0.0, 1.0]]))
    assert checksum(signs) != checksum(signs[::-1])


# Blocks


def test_layout_depends_only_on_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [len(part) for part in placement.consecutive_blocks(3)] == [1, 1, 1]
    monkeypatch.setattr(placement, "COMPARISONS_PER_BLOCK", 10)
    assert [len(part) for part in placement.consecutive_blocks(101)] == [10] * 2 + [9] * 9


def test_blocks_contain_the_anchors() -> None:
    starts = np.array([0, 5, 10])
    for comparisons, expected in (
        (Comparisons.from_triplets([[1, 6, 2], [9, 0, 1]]), [[0], [1]]),
        (Comparisons.from_quadruplets([[0, 1, 7, 8], [0, 1, 2, 3]]), [[1], [0]]),
        (Comparisons.from_pairs([[6, 7], [8, 9]], [1, -1]), [[0, 1]]),
    ):
        parts = placement.blocks_by_chunk(comparisons, starts)
        assert [part.tolist() for part in parts] == expected


@pytest.mark.parametrize("kind", ["dense", "sparse", pytest.param("lazy", marks=slow)])
def test_blocks_share_origin_and_unit(client: Any, kind: str) -> None:
    rng = np.random.default_rng(0)
    X: Any = 100 + rng.normal(size=(40, 3))
    X[30:] *= 1e3
    comparisons = Comparisons.from_triplets([rng.permutation(40)[:3] for _ in range(50)])
    options: Any = {"solver": "totally_corrective", "tol": 1e-4, "alpha": 1e-3}
    expected = boost(X, comparisons, "logistic", **options)
    given = {"dense": X, "sparse": csr_array(X), "lazy": da.from_array(X, chunks=11)}[kind]
    fit = boost(given, comparisons, "logistic", engine=client, **options)
    assert len(fit.problem.blocks) == 4
    np.testing.assert_allclose(fit.objective(), expected.objective(), rtol=1e-4)
    assert fit.duality_gap() <= 1e-4 * fit.objective()


def test_hinge_is_rejected(client: Any) -> None:
    X = np.eye(3)
    comparisons = Comparisons.from_triplets([[0, 1, 2]])
    with Dask(client) as engine, pytest.raises(ValueError, match="does not work on Dask"):
        place_objective(engine, X, comparisons, as_loss("hinge"))


# Fits

FITS: dict[str, dict[str, Any]] = {
    "one direction per step": {"directions_per_step": 1, "max_iter": 6, "loss": "exponential"},
    "batches": {"directions_per_step": 3, "max_iter": 12},
    "totally corrective": {"solver": "totally_corrective", "alpha": 0.01, "max_iter": 8},
    "squared norm": {"loss": "squared_hinge", "regularizer": "frobenius", "max_iter": 5},
    "gaps": {"tol": 1e-3, "max_iter": 6},
    "two passes": {"n_passes": 2, "max_iter": 5, "init": "scale"},
    "early stopping": {"early_stopping": True, "random_state": 0, "max_iter": 8},
}
"""These fits do not converge: the last steps of a converged fit are rounding errors."""


@pytest.mark.parametrize(
    "name", ["batches", *(pytest.param(name, marks=slow) for name in FITS if name != "batches")]
)
def test_fits_agree_with_fits_in_memory(
    client: Any, labeled: tuple[NDArray, NDArray], name: str
) -> None:
    X, y = labeled
    expected = simple_learner(**FITS[name]).fit(X, y)
    with client.as_current():
        fits = [
            simple_learner(**FITS[name], engine="dask").fit(X, y),
            simple_learner(**FITS[name]).fit(
                da.from_array(X, chunks=70), da.from_array(y, chunks=90)
            ),
        ]
    for fit in fits:
        assert fit.status_ is expected.status_
        objectives = fit.history_["objective"], expected.history_["objective"]
        np.testing.assert_allclose(*objectives, rtol=1e-6)
        size = np.abs(expected.get_mahalanobis_matrix()).max()
        matrices = fit.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix()
        np.testing.assert_allclose(*matrices, atol=1e-5 * size)
        small = 1e-6 * abs(objectives[1][-1])
        np.testing.assert_allclose(fit.duality_gap_, expected.duality_gap_, rtol=1e-3, atol=small)


def test_dataframe_provides_feature_names(labeled: tuple[NDArray, NDArray]) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = labeled
    table = pandas.DataFrame(X, columns=list("abcdef")).assign(y=y)
    lazy = dd.from_pandas(table, npartitions=3)
    fit = simple_learner(max_iter=5).fit(lazy[list("abcdef")], lazy["y"])
    assert fit.feature_names_in_.tolist() == list("abcdef")
    assert fit.transform(table[list("abcdef")]).shape == (200, len(fit.components_))


def test_early_stopping_with_comparisons_of_a_collection(
    client: Any, labeled: tuple[NDArray, NDArray]
) -> None:
    X, y = labeled
    comparisons = Comparisons.from_labels(X, y)
    options: Any = {"early_stopping": True, "random_state": 0, "max_iter": 6}
    expected = simple_learner(**options).fit(X, comparisons=comparisons)
    lazy = da.from_array(X, chunks=80)
    fit = simple_learner(**options, engine=client).fit(lazy, comparisons=comparisons)
    np.testing.assert_allclose(fit.components_, expected.components_, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("dtype", "weighted", "multilabel"),
    [(np.float32, False, False), (np.float64, True, False), (np.float64, True, True)],
)
def test_neighbors_match_the_search_in_memory(
    client: Any, dtype: type[np.floating], weighted: bool, multilabel: bool
) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(-4, 5, size=(300, 3)).astype(dtype) / 10  # many ties and equal points
    y = rng.integers(2, size=(300, 4)) if multilabel else rng.integers(3, size=300)
    weights = (np.arange(300) % 5 > 0).astype(float) if weighted else None
    expected = Comparisons.from_labels(X, y, 4, 7, sample_weight=weights)
    with Dask(client) as engine:
        points = DaskPoints.of(da.from_array(X, chunks=77), engine)
        found = Comparisons.from_labels(points, y, 4, 7, sample_weight=weights)
    for name in ("pairs", "near", "far"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_missing_neighbors_cause_a_warning(client: Any) -> None:
    X, y = np.arange(12.0).reshape(6, 2), np.array([0, 0, 1, 1, 1, 1])
    with Dask(client) as engine:
        points = DaskPoints.of(da.from_array(X, chunks=2), engine)
        with pytest.warns(UserWarning, match="have too few distinct points"):
            found = Comparisons.from_labels(points, y, 3, 3)
    with pytest.warns(UserWarning, match="have too few distinct points"):
        expected = Comparisons.from_labels(X, y, 3, 3)
    np.testing.assert_array_equal(found.pairs, expected.pairs)


def test_lda_requires_points_in_memory(client: Any, labeled: tuple[NDArray, NDArray]) -> None:
    X, y = labeled
    lazy = da.from_array(X, chunks=80)
    with (
        client.as_current(),
        pytest.raises(ValueError, match="init='lda' requires X in memory"),
    ):
        simple_learner(init="lda").fit(lazy, y)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of FAISS
# One index per class and chunk, or per digit.
@pytest.mark.parametrize("n_classes", [3, pytest.param(40, marks=slow)])
def test_index_per_chunk_has_high_recall(client: Any, n_classes: int) -> None:
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2400, 5)), rng.integers(n_classes, size=2400)
    X[:100] = X[1200:1300]
    with Dask(client) as engine:
        points = DaskPoints.of(da.from_array(X, chunks=(800, 5)), engine)
        expected = Comparisons.from_labels(points, y)
        found = Comparisons.from_labels(points, y, index="faiss")
    assert found.recall is not None
    assert found.recall > 0.95
    pairs = {tuple(pair) for pair in expected.pairs.tolist()}
    same = np.mean([tuple(pair) in pairs for pair in found.pairs.tolist()])
    assert same == pytest.approx(found.recall, abs=0.05)


def test_faiss_index_can_be_pickled() -> None:
    pytest.importorskip("faiss")
    points = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    index = indexes.FaissIndex(1)
    index.fit(points)
    expected = index.kneighbors(points, 4)
    found = pickle.loads(pickle.dumps(index)).kneighbors(points, 4)
    np.testing.assert_array_equal(found, expected)


@slow
def test_cross_validation_candidates_may_use_an_engine(
    client: Any, labeled: tuple[NDArray, NDArray]
) -> None:
    X, y = labeled
    candidate = {"max_iter": 6, "engine": "dask"}
    with client.as_current():
        fit = BoostMetricCV([candidate], cv=2, random_state=0).fit(X, y)
    expected = BoostMetricCV([{"max_iter": 6}], cv=2, random_state=0).fit(X, y)
    assert fit.best_score_ == expected.best_score_


def stopped(estimator: BoostMetric, *data: Any) -> None:
    """Interrupt a fit after three directions; its state is in the checkpoint."""
    with listening(lambda progress: progress.n_directions == 3):
        estimator.fit(*data)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("memory", "engine"),
        pytest.param("memory", "collection", marks=slow),
        pytest.param("engine", "engine", marks=slow),
        pytest.param("collection", "memory", marks=slow),
        pytest.param("collection", "collection", marks=slow),
    ],
)
def test_checkpoints_move_between_engines(
    client: Any, labeled: tuple[NDArray, NDArray], tmp_path: Path, first: str, then: str
) -> None:
    X, y = labeled
    options: Any = {"directions_per_step": 1, "max_iter": 7}
    path = tmp_path / "state"

    def on(where: str, **more: Any) -> tuple[BoostMetric, Any]:
        engine = "dask" if where == "engine" else None
        points = da.from_array(X, chunks=80) if where == "collection" else X
        return simple_learner(**options, engine=engine, **more), points

    with client.as_current():
        estimator, points = on(first, checkpoint=path)
        stopped(estimator, points, y)
        estimator, points = on(then, checkpoint=path)
        resumed = estimator.fit(points, y)
        estimator, points = on(then)
        expected = estimator.fit(points, y)
    assert resumed.n_iter_ == expected.n_iter_ == 7
    if first == then:
        assert resumed.components_.tobytes() == expected.components_.tobytes()
    objectives = resumed.history_["objective"], expected.history_["objective"]
    np.testing.assert_allclose(*objectives, rtol=1e-6)


def test_float32_checkpoint_requires_the_same_layout(
    client: Any, labeled: tuple[NDArray, NDArray], tmp_path: Path
) -> None:
    X, y = labeled[0].astype(np.float32), labeled[1]
    options: Any = {"directions_per_step": 1, "max_iter": 7, "checkpoint": tmp_path / "state"}
    stopped(simple_learner(**options), X, y)
    with pytest.raises(CheckpointError, match="another division of the comparisons into blocks"):
        simple_learner(**options, engine=client).fit(X, y)


def test_lost_cluster_error_names_the_checkpoint(
    labeled: tuple[NDArray, NDArray], tmp_path: Path
) -> None:
    X, y = labeled
    path = tmp_path / "state"
    options: Any = {"directions_per_step": 1, "max_iter": 7, "checkpoint": path}
    stopped(simple_learner(**options), X, y)
    with (
        distributed.LocalCluster(processes=False, n_workers=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as own,
    ):

        def lose(progress: Any) -> bool:
            own.close()
            return False

        with listening(lose), pytest.raises(EngineError, match=r"is lost.*checkpoint '.*state'"):
            simple_learner(**options, engine=own).fit(X, y)
    fit = simple_learner(**options).fit(X, y)
    assert fit.n_iter_ == 7
