"""The experiments state every parameter that may change their results."""

from __future__ import annotations

import doctest
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine

from boostmetric import BoostMetric, knn_error
from boostmetric.problem import Trace
from boostmetric_paper.datasets import Part, Split
from boostmetric_paper.experiments import caltech, lfw, msrc, report, tables
from boostmetric_paper.experiments.cells import Cell
from boostmetric_paper.experiments.methods import METHODS, PAPER_PARAMETERS, paper_method

RESULTS = Path(__file__).parents[1] / "results"

WITHOUT_EFFECT = {
    *("alpha", "checkpoint", "engine", "n_jobs", "verbose", "random_state"),
    *("validation_fraction", "n_iter_no_change"),
}
"""Parameters that do not change a result, or only with others: alpha without `Trace(v)`, the rest
with early stopping."""


class Stop(Exception):
    """Ends an experiment at its first fit."""


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The parameters of the estimators whose `fit` was called, which then raises `Stop`."""
    parameters: list[dict[str, Any]] = []

    def fit(learner: BoostMetric, *data: Any, **given: Any) -> None:
        parameters.append(learner.get_params(deep=False))
        raise Stop

    monkeypatch.setattr(BoostMetric, "fit", fit)
    return parameters


def data(n: int = 60) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 5)) + y[:, None], y


def table1(method: str) -> None:
    METHODS[method].learn(Split(*(Part(*data()) for _ in range(3))), 0)


def of_lfw(recipe: lfw.Recipe) -> None:
    paper_method(**recipe.options).fit()


EXPERIMENTS: dict[str, Callable[[], Any]] = {
    **{
        name: lambda name=name: table1(name)  # type: ignore[misc]
        for name in METHODS
        if name.startswith("boostmetric") or name == "hinge"
    },
    "table2": lambda: tables.run_table2(Cell("table2", "balance", "v=1e-07", 0)),
    "circles": lambda: tables.run_circles(Cell("circles", "circles", "boostmetric-e", 0)),
    "runtime": lambda: tables.run_runtime(Cell("runtime", "250x50", "boostmetric-e", 0)),
    "msrc": lambda: msrc.METHODS["boostmetric-e"](Part(*data()), msrc.SMALL, 0),
    "msrc, squared hinge": lambda: msrc.METHODS["boostmetric-squared-hinge"](
        Part(*data()), msrc.SMALL, 0
    ),
    "caltech": lambda: caltech.learn("boostmetric-e", Part(*data()), 0),
    "lfw": lambda: of_lfw(lfw.PAPER.recipe),
    "lfw, sphere": lambda: of_lfw(lfw.PAPER.sphere_recipe),
    "lfw, small": lambda: of_lfw(lfw.SMALL.recipe),
    "lfw, small, sphere": lambda: of_lfw(lfw.SMALL.sphere_recipe),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_state_every_parameter(
    name: str, fitted: list[dict[str, Any]], request: pytest.FixtureRequest
) -> None:
    if name == "table2":
        request.getfixturevalue("data_folder")
    with pytest.raises(Stop):
        EXPERIMENTS[name]()
    params = fitted[0]
    assert params["verify"] is False
    assert params["init"] is None
    assert {*params} == {*PAPER_PARAMETERS, "loss"} | WITHOUT_EFFECT  # new ones must be stated
    if not isinstance(params["regularizer"], Trace):
        assert params["alpha"] != "auto"
    if name != "hinge":  # a linear program, with a solver of its own
        stated = {key: value for key, value in params.items() if key not in WITHOUT_EFFECT}
        assert "auto" not in [each for each in stated.values() if isinstance(each, str)]


@pytest.mark.parametrize("page", ["guide/differences.md", "paper.md"])
def test_pages_show_these_parameters(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    found: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(text.split("```python")[1].split("```")[0]):
        exec(example.source, found)
    learners = [each for each in found.values() if isinstance(each, BoostMetric)]
    params = learners[0].get_params(deep=False)
    expected = paper_method().get_params(deep=False)
    assert params.pop("regularizer").alpha == expected.pop("regularizer").alpha
    assert params == expected


def test_no_other_estimators_are_constructed() -> None:
    for module in (caltech, lfw, msrc, report, tables):
        assert not hasattr(module, "BoostMetric"), module.__name__


@pytest.mark.parametrize("seed", [0, 1])
def test_circles_are_those_of_the_committed_results(seed: int) -> None:
    records = map(json.loads, (RESULTS / "circles.jsonl").read_text().splitlines())
    expected = next(
        each for each in records if (each["method"], each["seed"]) == ("boostmetric-e", seed)
    )
    found = tables.run_circles(Cell("circles", "circles", "boostmetric-e", seed))
    assert found["error"] == expected["error"]
    np.testing.assert_allclose(found["eigenvalues"][:3], expected["eigenvalues"][:3], rtol=1e-5)


@pytest.mark.parametrize(
    ("load", "loss", "objective", "n_wrong"),
    [
        (load_wine, "exponential", 5.207001413950503, 5),
        (load_wine, "logistic", 87.50957808060588, 4),
        (load_iris, "exponential", 4.497106864992001, 3),
        (load_iris, "logistic", 51.80375466454187, 2),
    ],
)
def test_ten_directions_of_the_paper(load: Any, loss: str, objective: float, n_wrong: int) -> None:
    """The features as they are, half of the points for training."""
    X, y = load(return_X_y=True)
    learner = paper_method(loss, max_iter=10).fit(X[::2], y[::2])
    assert learner.history_["objective"][-1] == pytest.approx(objective, rel=1e-6)
    Z = learner.transform(X)
    error = knn_error(Z[::2], y[::2], Z[1::2], y[1::2])
    assert error * len(y[1::2]) == pytest.approx(n_wrong)
