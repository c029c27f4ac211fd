"""The contract of engines: the same bits from all, and the fit that there is in one piece."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from dataclasses import replace
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification

from boostmetric import BoostMetric, Comparisons, boost
from boostmetric.engines.blocks import Block, Steps
from boostmetric.engines.boosting import BlockFit
from boostmetric.engines.choice import engine_of
from boostmetric.engines.engine import Engine, EngineError, Serial, Threads
from boostmetric.engines.fitting import boost_in_blocks
from boostmetric.engines.memory import PROCESS, Size, layout
from boostmetric.engines.recipes import InMemory, recipes_of
from boostmetric.engines.search import search
from boostmetric.losses import LOSSES, Loss, as_loss
from boostmetric.state import Status

SMOOTH = ("exponential", "logistic", "squared_hinge", "smoothed_hinge")


@pytest.fixture(scope="module")
def dask_engine() -> Iterator[Engine]:
    """A cluster in this process: a start of processes takes seconds."""
    distributed = pytest.importorskip("distributed")
    from boostmetric.engines.dask_engine import Dask

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield Dask(client)


@pytest.fixture(params=["threads", "dask"])
def engine(request: pytest.FixtureRequest) -> Any:
    if request.param == "dask":
        return request.getfixturevalue("dask_engine")
    return Threads(2)


@pytest.fixture(scope="module")
def digits() -> tuple[NDArray, Comparisons]:
    X, y = load_digits(return_X_y=True)
    X = X[:600, X[:600].std(axis=0) > 0]
    return X, Comparisons.from_labels(X, y[:600])


def learn(
    digits: tuple[NDArray, Comparisons], loss: str | Loss, engine: object, **options: Any
) -> BlockFit:
    options = {"max_iter": 12, "alpha": 1e-7, "n_blocks": 3, **options}
    return boost_in_blocks(*digits, as_loss(loss), engine=engine, **options)


def assert_same_bits(one: BlockFit, other: BlockFit) -> None:
    np.testing.assert_array_equal(one.metric.directions, other.metric.directions)
    np.testing.assert_array_equal(one.metric.coefs, other.metric.coefs)
    assert one.objective() == other.objective()
    assert one.status is other.status


@pytest.mark.parametrize("loss", SMOOTH)
def test_engines_give_the_same_bits(
    digits: tuple[NDArray, Comparisons], loss: str, engine: Engine
) -> None:
    assert_same_bits(learn(digits, loss, "serial"), learn(digits, loss, engine))


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("n_blocks", [1, 2, 7])
def test_layouts_agree(digits: tuple[NDArray, Comparisons], loss: str, n_blocks: int) -> None:
    one = learn(digits, loss, "serial")
    other = learn(digits, loss, "serial", n_blocks=n_blocks)
    assert other.objective() == pytest.approx(one.objective(), rel=1e-9)
    for first, second in zip(one.history, other.history, strict=True):
        assert second.objective == pytest.approx(first.objective, rel=1e-9)
        assert second.n_violated == first.n_violated


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("regularizer", ["trace", "frobenius"])
def test_the_fit_is_that_in_one_piece(
    digits: tuple[NDArray, Comparisons], loss: str, regularizer: str
) -> None:
    options: dict[str, Any] = {"regularizer": regularizer, "alpha": 1e-3, "max_iter": 5}
    whole = boost(*digits, loss, block_size=1, **options)
    blocks = learn(digits, loss, "serial", **options)
    assert blocks.alpha == pytest.approx(whole.alpha, rel=1e-12)
    assert blocks.alpha_max == pytest.approx(whole.alpha_max, rel=1e-12)
    # Coefficients are those of another search; the paths part slowly.
    assert blocks.objective() == pytest.approx(whole.objective(), rel=1e-2)
    first, same = blocks.history[0], whole.history[0]
    assert first.objective == pytest.approx(same.objective, rel=1e-4)
    assert first.lambda_max == pytest.approx(same.lambda_max, rel=1e-12)
    assert first.n_violated == pytest.approx(same.n_violated, abs=2)


def test_objective_and_violations_are_those_of_the_metric(
    digits: tuple[NDArray, Comparisons],
) -> None:
    X, comparisons = digits
    for loss in SMOOTH:
        fit = learn(digits, loss, "serial")
        margins = margins_of(fit, X, comparisons)
        value = LOSSES[loss].value(margins) + fit.alpha * fit.metric.coefs.sum()
        assert fit.objective() == pytest.approx(value, rel=1e-9)
        assert fit.history[-1].n_violated == np.sum(margins <= 0)


def test_gaps_and_weights_count(digits: tuple[NDArray, Comparisons], engine: Engine) -> None:
    X, comparisons = digits
    rng = np.random.default_rng(0)
    quadruplets = rng.integers(len(X), size=(500, 4))
    quadruplets = quadruplets[quadruplets[:, 2] != quadruplets[:, 3]]
    m = len(quadruplets)
    both = comparisons + Comparisons.from_quadruplets(
        quadruplets, gaps=rng.uniform(0, 5, m), weights=rng.uniform(0.5, 2, m)
    )
    fits = [learn((X, both), "logistic", each) for each in ("serial", engine)]
    assert_same_bits(*fits)
    whole = boost(X, both, "logistic", block_size=1, max_iter=1)
    assert fits[0].history[0].objective == pytest.approx(whole.objective(), rel=1e-6)


@pytest.mark.parametrize("n_features", [40, 700])
def test_a_fit_goes_on_from_its_snapshot_to_the_bit(n_features: int) -> None:
    X, y = make_classification(300, n_features, n_informative=10, n_classes=3, random_state=0)
    data = X, Comparisons.from_labels(X, y)
    saved: list[dict[str, NDArray]] = []

    def keep(fit: Any) -> bool:
        saved.append(fit.snapshot())
        return False

    whole = learn(data, "exponential", "serial", callback=keep)
    for number in (0, 5, len(saved) - 2):
        # The layout is that of the snapshot, whatever is asked for.
        again = learn(data, "exponential", "serial", resume=saved[number], n_blocks=5)
        assert_same_bits(whole, again)


def test_many_features_need_no_matrix(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    X, y = make_classification(200, 650, n_informative=10, random_state=0)
    data = X, Comparisons.from_labels(X, y)
    serial = learn(data, "logistic", "serial")
    assert_same_bits(serial, learn(data, "logistic", engine))
    whole = boost(*data, "logistic", block_size=1, max_iter=1)
    assert serial.history[0].objective == pytest.approx(whole.objective(), rel=0.05)


def test_a_block_that_knows_nothing_is_told_all(digits: tuple[NDArray, Comparisons]) -> None:
    (recipe,) = recipes_of(*digits, as_loss("logistic"), 1)
    steps = np.linalg.qr(np.random.default_rng(0).normal(size=(digits[0].shape[1], 3)))[0].T
    every = Steps(0, steps, np.array([0.1, 0.2, 0.3]))
    followed = recipe.load()
    for last in (1, 2, 3):
        assert followed.look(Steps(last - 1, steps[last - 1 : last], every.coefs[last - 1 : last]))
    new = recipe.load()
    assert new.look(Steps(2, steps[2:], every.coefs[2:])) is None
    assert new.slopes(Steps(2, steps[2:], every.coefs[2:]), steps[0], np.zeros(1)) is None
    told = new.look(every)
    assert told is not None
    sent = pickle.loads(pickle.dumps(followed))
    assert sent.look(Steps(2, steps[2:], every.coefs[2:])) is not None
    for block in (followed, sent):
        seen = block.look(every)
        assert seen is not None
        assert (seen.value, seen.n_violated) == (told.value, told.n_violated)
        np.testing.assert_array_equal(seen.scatter, told.scatter)


def test_a_block_goes_back(digits: tuple[NDArray, Comparisons]) -> None:
    (recipe,) = recipes_of(*digits, as_loss("logistic"), 1)
    block: Block = recipe.load()
    direction = np.eye(digits[0].shape[1])[:1]
    nothing = Steps(0, direction[:0], np.empty(0))
    first = block.look(nothing)
    assert block.look(Steps(0, direction, np.ones(1))) is not None
    again = block.look(nothing)
    assert first is not None
    assert again is not None
    assert first.value == again.value


def test_a_fit_goes_on_to_another_metric(digits: tuple[NDArray, Comparisons]) -> None:
    with engine_of("serial") as serial:
        fit = learn(digits, "logistic", serial)
        other = learn(digits, "exponential", serial)
        assert len(other.coefs) == len(fit.coefs)
        expected = LOSSES["logistic"].value(margins_of(other, *digits))
        fit.restart(other.metric)
        assert fit.objective() - fit.alpha * sum(fit.coefs) == pytest.approx(expected, rel=1e-9)


def margins_of(fit: BlockFit, X: NDArray, comparisons: Comparisons) -> NDArray:
    squares = fit.metric.pair_distances(X, comparisons.pairs, squared=True)
    return squares[comparisons.far] - squares[comparisons.near]


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("guess", [None, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("price", [1e-9, 0.2])
def test_the_search_finds_the_root(loss: str, guess: float | None, price: float) -> None:
    rng = np.random.default_rng(0)
    F, margins, responses = LOSSES[loss], rng.normal(size=200), rng.normal(0.5, 1, 200)

    def slope(w: float) -> float:
        return float(F.duals(margins + w * responses) @ responses) - price

    rounds: list[int] = []

    def sums_at(coefs: NDArray) -> NDArray:
        rounds.append(len(coefs))
        found = []
        for w in coefs:
            u = F.duals(margins + w * responses)
            curved = np.abs(u) * responses
            found.append(
                [
                    F.value(margins + w * responses),
                    np.sum(margins + w * responses <= 0),
                    u @ responses,
                    np.abs(u * responses).sum(),
                    np.abs(u).sum(),
                    curved @ np.maximum(responses, 0),
                    curved @ np.minimum(responses, 0),
                ]
            )
        return np.array(found)

    found = search(sums_at, price, 0.0, guess)
    assert len(rounds) <= 3
    assert sum(rounds) == found.n_evaluations
    root = brentq(slope, 0, 1e3)
    assert found.coef == pytest.approx(root, rel=2e-2)
    assert abs(slope(found.coef)) <= 1e-2 * slope(0)
    assert found.value == F.value(margins + found.coef * responses)


def test_an_objective_that_falls_for_ever_is_said_to() -> None:
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    data = X, Comparisons.from_labels(X, [0, 0, 1, 1], 1, 1)
    fit = learn(data, "exponential", "serial", alpha=0.0, n_blocks=2)
    assert fit.status is Status.UNBOUNDED
    assert fit.history[-1].n_violated == 0


def test_the_estimator_takes_an_engine(engine: Engine) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:400], y[:400]
    learner = BoostMetric("exponential", max_iter=10, engine="serial", n_blocks=3).fit(X, y)
    other = clone(learner).set_params(engine=engine).fit(X, y)
    np.testing.assert_array_equal(learner.components_, other.components_)
    assert learner.score(X, y) > 0.9
    passes = clone(learner).set_params(n_passes=2, early_stopping=True, random_state=0).fit(X, y)
    assert passes.history_["pass"].max() >= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "spark"}, "engine='spark' will not do: None, 'serial', 'threads', 'dask', the"),
        ({"engine": 3}, "engine=3 will not do"),
        ({"engine": "serial", "n_blocks": 0}, "n_blocks=0 will not do"),
        (
            {"engine": "serial", "solver": "totally_corrective"},
            "solver='totally_corrective' does not work with an engine, which adds one direction at "
            "a time, stage-wise: use another solver, or engine=None.",
        ),
        ({"engine": "serial", "block_size": 4}, "block_size=4 does not work with an engine"),
        ({"engine": "serial", "tol": 0.1}, "tol=0.1 does not work with an engine"),
        (
            {"engine": "serial", "loss": "hinge"},
            "loss=Hinge\\(nu=0.3\\) does not work with an engine",
        ),
    ],
)
def test_what_an_engine_cannot_do_is_refused(options: dict[str, Any], message: str) -> None:
    X, y = make_classification(30, random_state=0)
    with pytest.raises(ValueError, match=message):
        BoostMetric(**options).fit(X, y)


def test_an_engine_ends_with_its_context() -> None:
    with engine_of("threads") as engine:
        assert isinstance(engine, Threads)
    with pytest.raises(RuntimeError):
        engine.call(len, [[1]])
    given = Serial()
    with engine_of(given) as same:
        assert same is given


class Small(Serial):
    """An engine of three workers with little memory."""

    n_workers = 3

    def __init__(self, memory: int, spills: bool = False) -> None:
        self._memory, self.spills = memory, spills

    @property
    def memory(self) -> int:
        return self._memory


SIZE = Size(m=90_000, n=10_000, D=50, point=400)


def test_the_size_of_a_block() -> None:
    assert SIZE.loading == 2 * 10_000 * 400 + 260 * 90_000 + 16 * 50**2
    assert SIZE.held == 10_000 * 400 + 170 * 90_000
    assert SIZE.block(90) == Size(m=1000, n=3000, D=50, point=400)
    assert Size(m=1, n=1, D=1000, point=1).loading == 2 + 260 + 16 * 1000 * 600
    sparse = csr_array(np.diag([1.0, 2.0, 3.0]))
    assert Size.of(sparse, 7) == Size(m=7, n=3, D=3, point=8 + sparse.indices.itemsize)


def test_blocks_are_as_many_as_memory_asks_for() -> None:
    assert layout(Serial(), None, SIZE) == 1
    assert layout(Small(10**9), None, SIZE) == 3
    assert layout(Small(10**9), 7, SIZE) == 7
    spread = replace(SIZE, n=10_000_000)
    third, sixth = spread.block(3), spread.block(6)
    assert sixth.loading + sixth.held < third.loading
    enough = math.ceil((PROCESS + third.loading) / 0.95)
    assert layout(Small(enough), None, spread) == 3
    # With twice the blocks a worker holds one more, and loads smaller ones.
    assert layout(Small(enough - 10_000), None, spread) == 6


def test_with_a_disk_blocks_need_not_fit_all_together() -> None:
    large = Size(m=90_000_000, n=10_000_000, D=50, point=400)
    engine = Small(2 * 10**9, spills=True)
    number = layout(engine, None, large)
    assert number > 3
    assert large.block(number).loading <= 0.25 * engine.memory < large.block(number // 2).loading
    with pytest.raises(EngineError, match="No number of blocks will do: use engine='dask'"):
        layout(Small(2 * 10**9), None, large)


def test_a_block_that_does_not_fit_is_refused_with_the_arithmetic() -> None:
    engine = Small(10**9)
    large = Size(m=9_000_000, n=1_000_000, D=50, point=400)
    with pytest.raises(EngineError) as caught:
        layout(engine, 6, large)
    message = str(caught.value)
    sixth = large.block(6)
    need = PROCESS + sixth.held + sixth.loading
    assert f"needs up to {need / 1e6:,.1f} MB, and may take 950.0 MB, 95% of what it has" in message
    assert "a block of 1,500,000 of the 9,000,000 comparisons" in message
    assert f"takes {sixth.loading / 1e6:,.1f} MB (two copies of 1,000,000 points of 400" in message
    assert f"and 1 other blocks of {sixth.held / 1e6:,.1f} MB" in message
    assert message.endswith("Use more blocks (n_blocks), or workers with more memory.")
    with pytest.raises(EngineError, match="Even one comparison a block is too much"):
        layout(Small(1000, spills=True), None, SIZE)


def test_a_fit_that_does_not_fit_is_refused(digits: tuple[NDArray, Comparisons]) -> None:
    with pytest.raises(EngineError, match="a worker needs up to"):
        learn(digits, "logistic", Small(1_000_000), n_blocks=2)


def test_blocks_touch_few_points() -> None:
    """Three strings of points: each is a block, whatever the order of comparisons was."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(300).reshape(3, 100)
    triplets = np.concatenate(
        [np.stack([row, np.roll(row, 1), np.roll(row, 2)], 1) for row in rows]
    )
    comparisons = Comparisons.from_triplets(rng.permutation(triplets))
    recipes = list(recipes_of(rng.normal(size=(300, 2)), comparisons, as_loss("logistic"), 3))
    assert all(isinstance(recipe, InMemory) for recipe in recipes)
    assert [recipe.points.shape[0] for recipe in recipes] == [100, 100, 100]  # type: ignore[union-attr]
    assert sum(recipe.load().problem.operator.n_matrices for recipe in recipes) == 300


def test_a_block_is_not_copied_while_it_works() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    (recipe,) = recipes_of(X, Comparisons.from_labels(X, X[:, 0] > 0), as_loss("logistic"), 1)
    block, working, go_on = recipe.load(), Event(), Event()
    responses = block.problem.operator.responses

    def slow(direction: NDArray) -> NDArray:
        working.set()
        go_on.wait()
        return responses(direction)

    block.problem.operator.responses = slow  # type: ignore[method-assign]
    copies: list[dict[str, Any]] = []
    work = Thread(target=lambda: block.look(Steps(0, np.eye(4)[:1], np.ones(1))))
    work.start()
    working.wait()
    copy = Thread(target=lambda: copies.append(block.__getstate__()))
    copy.start()
    copy.join(timeout=0.2)
    assert copies == []
    go_on.set()
    work.join()
    copy.join()
    assert copies[0]["_n_steps"] == 1
    del block.problem.operator.responses
    assert isinstance(pickle.loads(pickle.dumps(block)), Block)
