"""The worked examples, against a solver of semidefinite programs, and as scripts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from boostmetric import Boosting, Loss

FOLDER = Path(__file__).parent.parent / "examples"


def example(name: str) -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def correlation() -> ModuleType:
    return example("correlation")


@pytest.fixture(scope="module")
def ordinal_map() -> ModuleType:
    return example("ordinal_map")


def check_optimal(fit: Boosting, optimum: float) -> None:
    assert fit.objective() == pytest.approx(optimum, rel=1e-4)
    assert fit.objective() - fit.duality_gap() <= optimum + 1e-6 * abs(optimum)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_nearest_correlation_matrix_is_that_of_a_semidefinite_program(
    correlation: ModuleType, seed: int
) -> None:
    cvxpy = pytest.importorskip("cvxpy")
    estimates = correlation.make_problem(n_features=10, seed=seed)
    assert np.linalg.eigvalsh(estimates.pairwise)[0] < -0.1
    fit = correlation.solve(estimates, tol=1e-5, max_iter=100)
    i, j, gaps, weights = correlation.entries(estimates)
    M = cvxpy.Variable((10, 10), PSD=True)
    errors = weights @ cvxpy.square(M[i, j] - gaps) / 2
    problem = cvxpy.Problem(cvxpy.Minimize(errors + fit.alpha * cvxpy.trace(M)))
    problem.solve(solver="CLARABEL")
    check_optimal(fit, float(problem.value))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_duals_of_the_squared_error_are_minus_its_gradient(
    correlation: ModuleType, weighted: bool, rng: np.random.Generator
) -> None:
    loss: Loss = correlation.SquaredError()
    margins = rng.normal(size=5)
    weights = rng.uniform(0.5, 2, 5) if weighted else None
    steps = 1e-6 * np.eye(5)
    slopes = [
        (loss.value(margins + step, weights) - loss.value(margins - step, weights)) / 2e-6
        for step in steps
    ]
    duals = loss.duals(margins, weights)
    assert duals == pytest.approx(-np.array(slopes), rel=1e-6)
    assert (duals > 0).any()
    assert (duals < 0).any()


def test_clipping_gives_a_correlation_matrix(correlation: ModuleType) -> None:
    matrix = correlation.clipped(correlation.make_problem(n_features=10).pairwise)
    assert np.diag(matrix) == pytest.approx(1)
    assert np.linalg.eigvalsh(matrix)[0] >= -1e-12


@pytest.mark.parametrize("alpha", [0.3, 0.05])
@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge"])
def test_the_gram_matrix_is_that_of_a_semidefinite_program(
    ordinal_map: ModuleType, loss: str, alpha: float
) -> None:
    cvxpy = pytest.importorskip("cvxpy")
    survey = ordinal_map.make_problem(n_cities=10, n_statements=300)
    fit = ordinal_map.solve(survey, loss, alpha=alpha)
    a, b, c = survey.train.T
    M = cvxpy.Variable((10, 10), PSD=True)
    diagonal = cvxpy.diag(M)
    margins = diagonal[c] - 2 * M[a, c] - diagonal[b] + 2 * M[a, b]
    value = {
        "logistic": lambda: cvxpy.sum(cvxpy.logistic(-margins)),
        # The Huber function of cvxpy is twice the rounded hinge times its width.
        "smoothed_hinge": lambda: cvxpy.sum(cvxpy.huber(cvxpy.pos(1 - margins), 0.5)),
    }[loss]()
    problem = cvxpy.Problem(cvxpy.Minimize(value + fit.alpha * cvxpy.trace(M)))
    problem.solve(solver="CLARABEL")
    check_optimal(fit, float(problem.value))


def test_distances_on_the_globe_and_on_the_map(ordinal_map: ModuleType) -> None:
    names = list(ordinal_map.CITIES)
    places = np.array(list(ordinal_map.CITIES.values()))
    distances: NDArray = ordinal_map.great_circle(places)
    assert np.array_equal(distances, distances.T)
    assert distances[names.index("London"), names.index("Paris")] == pytest.approx(344, abs=4)
    assert distances[names.index("Lisbon"), names.index("Helsinki")] == pytest.approx(3364, abs=20)
    points = ordinal_map.projected(places)
    flat = np.linalg.norm(points[:, None] - points, axis=2)
    apart = ~np.eye(len(places), dtype=bool)
    assert flat[apart] == pytest.approx(distances[apart], rel=0.05)


def test_the_alignment_is_that_of_scipy(ordinal_map: ModuleType, rng: np.random.Generator) -> None:
    procrustes = pytest.importorskip("scipy.spatial").procrustes
    target, points = rng.normal(size=(12, 2)), rng.normal(size=(12, 2))
    _, disparity = ordinal_map.aligned(points, target)
    assert disparity == pytest.approx(procrustes(target, points)[2])
    turned = 3 * target @ np.array([[0.0, 1.0], [1.0, 0.0]]) + 5
    moved, disparity = ordinal_map.aligned(turned, target)
    assert moved == pytest.approx(target)
    assert disparity == pytest.approx(0, abs=1e-12)


def test_the_correlation_example_prints_its_table(
    correlation: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    correlation.main()
    lines = capsys.readouterr().out.splitlines()
    rows = {line[:22].strip(): line[22:].split() for line in lines}
    before, clipped, after = (
        [float(number) for number in rows[name]]
        for name in ("pair by pair", "eigenvalues clipped", "nearest, by learn_psd")
    )
    assert before[0] < -0.5
    assert clipped[0] == after[0] == 0
    assert after[1] < clipped[1]
    assert after[2] < clipped[2] < before[2]
    gap = float(rows["certified gap"][0].rstrip(","))
    assert gap <= 1e-3 * float(rows["objective"][0].rstrip(","))


def test_the_map_example_prints_and_draws(
    ordinal_map: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    image = pytest.importorskip("matplotlib.image")
    path = tmp_path / "map.png"
    ordinal_map.main(["--output", str(path)])
    lines = capsys.readouterr().out.splitlines()
    tried = [line for line in lines if line.startswith(("logistic", "smoothed_hinge"))]
    assert len(tried) == len(ordinal_map.LOSS_NAMES) * len(ordinal_map.ALPHAS)
    numbers = {line[:37].strip(): line[37:].split() for line in lines}
    assert float(numbers["fresh true statements satisfied"][0]) > 90
    assert float(numbers["Procrustes disparity"][0]) < 0.05
    assert lines[-1] == f"picture: {path}"
    assert image.imread(path).shape[:2] == (700, 900)
