"""The examples: the claims of each, and comparisons of their solvers with cvxpy."""

from __future__ import annotations

import contextlib
import io
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from boostmetric import Boosting, Loss
from boostmetric.plots import PairDistanceDisplay

matplotlib = pytest.importorskip("matplotlib")

# old matplotlib, new pyparsing
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Learning did not lower"),  # plot_verification says so
]

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("plot_*.py"))


@dataclass(frozen=True)
class Ran:
    """The variables, printed lines and figure sizes of an example."""

    names: SimpleNamespace
    lines: list[str]
    pictures: list[tuple[float, float]]


@cache
def run(name: str) -> Ran:
    """Run an example once; figures are drawn but not shown."""
    if name == "plot_losses":
        pytest.importorskip("highspy")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(pyplot, "show", lambda: None)
        names = runpy.run_path(str(FOLDER / f"{name}.py"))
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    for figure in figures:
        figure.canvas.draw()
    pyplot.close("all")
    sizes = [tuple(figure.get_size_inches()) for figure in figures]
    return Ran(SimpleNamespace(**names), printed.getvalue().splitlines(), sizes)


@pytest.fixture(scope="module")
def correlation() -> SimpleNamespace:
    return run("plot_correlation").names


@pytest.fixture(scope="module")
def ordinal_map() -> SimpleNamespace:
    return run("plot_ordinal_map").names


def areas(display: PairDistanceDisplay) -> tuple[float, float]:
    """Areas under the ROC curves before and after."""
    before, after = (roc_auc_score(display.similar, -d) for d in (display.before, display.after))
    return float(before), float(after)


def alpha_path(of: SimpleNamespace) -> None:
    ranks = [len(point.metric.eigenvalues) for point in of.path]
    assert ranks[0] <= 2 < ranks[of.best] < ranks[-1]
    assert of.errors[of.best] < of.errors[-1] - 0.03 < of.errors[0] - 0.2


def choosing(of: SimpleNamespace) -> None:
    starts, chosen = of.errors[:, :-1], of.errors[:, -1]
    assert len(set(starts.argmin(axis=1))) > 1
    assert (chosen < starts.mean(axis=1)).all()
    assert starts.max() > 0.5 > 0.1 > chosen.max()


def circles(of: SimpleNamespace) -> None:
    few, many = ({name: each[n] for name, each in of.errors.items()} for n in (420, 1000))
    assert max(many["NCA"], many["BoostMetric"]) < 5 < 50 < min(many["raw features"], many["LDA"])
    assert few["NCA"] < few["BoostMetric"] < 10  # as the pages say


def clusters(of: SimpleNamespace) -> None:
    assert of.agreement["learned"] > 0.7 > 0.5 > of.agreement["Euclidean"]


def correlations(of: SimpleNamespace) -> None:
    distances = [np.linalg.norm(matrix - of.estimates.true) for matrix in of.matrices.values()]
    assert distances[0] > distances[1] > distances[2]


def early_stopping(of: SimpleNamespace) -> None:
    assert (np.diff(of.objectives) < 0).all()
    assert of.stopped < of.errors[-1] - 0.03
    assert of.kept < of.steps[-1] / 2


def losses(of: SimpleNamespace) -> None:
    assert len(of.paths) == 9
    for (_, solver), path in of.paths.items():
        assert (path[-1] < 1e-6) == (solver == "totally_corrective")


def embeddings(names: SimpleNamespace) -> None:
    report = names.report
    assert "Recommended" in report.verdict
    last = max(report.curve)
    assert report.curve[last]["adapter"].mean() > 1.1 * report.curve[last]["baseline"].mean()


def low_rank(of: SimpleNamespace) -> None:
    learned, pca = np.array(of.errors["learned"]), np.array(of.errors["PCA"])
    assert (learned < pca).all()
    dozen = of.ranks.index(12)
    assert learned[dozen] == pytest.approx(learned[-1], abs=0.01)
    assert learned[dozen] < pca.min() / 2
    metric = of.learner.metric_
    assert len(metric.truncate(0.95).eigenvalues) <= len(metric.eigenvalues) <= 12


def map_of_cities(of: SimpleNamespace) -> None:
    assert of.share(of.plane, of.survey.fresh) > 0.9
    assert of.median < 200


def passes(of: SimpleNamespace) -> None:
    mean = of.errors.mean(axis=0)
    assert mean[1] < mean[0] / 2
    assert mean[0] < 0.1


def shrinkage(of: SimpleNamespace) -> None:
    frobenius, shrunk = (of.shares[name].mean(axis=0) for name in ("frobenius", "shrinkage"))
    assert frobenius[1] < of.euclidean - 0.03  # 10 triplets
    assert (shrunk > of.euclidean).all()
    assert abs(frobenius[-1] - shrunk[-1]) < 0.01
    assert (of.spectra["frobenius"][15:] < 0.1).all()
    assert np.median(of.spectra["shrinkage"]) > 0.8


def topics(of: SimpleNamespace) -> None:
    values = of.learner.metric_.eigenvalues
    assert values[3] > 2 * values[4] > values[3] / 10
    largest = np.argsort(-of.diagonal)[:200]
    assert np.mean(largest >= of.N_COMMON) > 0.95
    before, after = areas(of.roc)
    assert after > 0.95 > 0.65 > before


def uneven_light(of: SimpleNamespace) -> None:
    assert of.after < of.before / 3
    shown = of.y_train[of.nearest_after[of.wrong]] == of.y_test[of.wrong]
    assert shown.mean() > 0.8


def verification(of: SimpleNamespace) -> None:
    before, after = areas(of.distances)
    assert after > 0.95 > 0.75 > before


LESSONS: dict[str, Callable[[SimpleNamespace], None]] = {
    "plot_alpha_path": alpha_path,
    "plot_choosing": choosing,
    "plot_circles": circles,
    "plot_clusters": clusters,
    "plot_correlation": correlations,
    "plot_early_stopping": early_stopping,
    "plot_embeddings": embeddings,
    "plot_losses": losses,
    "plot_low_rank": low_rank,
    "plot_ordinal_map": map_of_cities,
    "plot_passes": passes,
    "plot_shrinkage": shrinkage,
    "plot_topics": topics,
    "plot_uneven_light": uneven_light,
    "plot_verification": verification,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_supports_its_claims(name: str) -> None:
    ran = run(name)
    LESSONS[name](ran.names)
    assert ran.pictures
    assert all(4 <= width <= 12 and 3 <= height <= 8 for width, height in ran.pictures)
    assert len(ran.lines) <= 20


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_has_title(name: str) -> None:
    _, title, line, blank, *_ = (FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert title[0].isupper()
    assert line == "=" * len(title)
    assert blank == ""


def check_optimal(fit: Boosting, optimum: float) -> None:
    assert fit.objective() == pytest.approx(optimum, rel=1e-4)
    assert fit.objective() - fit.duality_gap() <= optimum + 1e-6 * abs(optimum)


@pytest.mark.parametrize("seed", [0, 1])
def test_nearest_correlation_matrix_matches_cvxpy(correlation: SimpleNamespace, seed: int) -> None:
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
def test_squared_error_duals_match_finite_differences(
    correlation: SimpleNamespace, weighted: bool, rng: np.random.Generator
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


def test_clipping_returns_correlation_matrix(correlation: SimpleNamespace) -> None:
    matrix = correlation.clipped(correlation.make_problem(n_features=10).pairwise)
    assert np.diag(matrix) == pytest.approx(1)
    assert np.linalg.eigvalsh(matrix)[0] >= -1e-12


@pytest.mark.parametrize("alpha", [0.3, 0.05])
@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge"])
def test_gram_matrix_matches_cvxpy(ordinal_map: SimpleNamespace, loss: str, alpha: float) -> None:
    cvxpy = pytest.importorskip("cvxpy")
    survey = ordinal_map.make_problem(n_cities=10, n_statements=300)
    fit = ordinal_map.solve(survey, loss, alpha=alpha)
    a, b, c = survey.train.T
    M = cvxpy.Variable((10, 10), PSD=True)
    diagonal = cvxpy.diag(M)
    margins = diagonal[c] - 2 * M[a, c] - diagonal[b] + 2 * M[a, b]
    value = {
        "logistic": lambda: cvxpy.sum(cvxpy.logistic(-margins)),
        # The Huber function of cvxpy is the smoothed hinge times twice its width.
        "smoothed_hinge": lambda: cvxpy.sum(cvxpy.huber(cvxpy.pos(1 - margins), 0.5)),
    }[loss]()
    problem = cvxpy.Problem(cvxpy.Minimize(value + fit.alpha * cvxpy.trace(M)))
    problem.solve(solver="CLARABEL")
    check_optimal(fit, float(problem.value))


def test_distances_on_globe_and_map(ordinal_map: SimpleNamespace) -> None:
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


def test_alignment_matches_scipy(ordinal_map: SimpleNamespace, rng: np.random.Generator) -> None:
    procrustes = pytest.importorskip("scipy.spatial").procrustes
    target, points = rng.normal(size=(12, 2)), rng.normal(size=(12, 2))
    _, disparity = ordinal_map.aligned(points, target)
    assert disparity == pytest.approx(procrustes(target, points)[2])
    turned = 3 * target @ np.array([[0.0, 1.0], [1.0, 0.0]]) + 5
    moved, disparity = ordinal_map.aligned(turned, target)
    assert moved == pytest.approx(target)
    assert disparity == pytest.approx(0, abs=1e-12)


def test_correlation_example_prints_table() -> None:
    rows = {line[:22].strip(): line[22:].split() for line in run("plot_correlation").lines}
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


def test_map_example_prints_table(
    ordinal_map: SimpleNamespace,
) -> None:
    lines = run("plot_ordinal_map").lines
    tried = [line for line in lines if line.startswith(("logistic", "smoothed_hinge"))]
    assert len(tried) == len(ordinal_map.LOSS_NAMES) * len(ordinal_map.ALPHAS)
    numbers = {line[:37].strip(): line[37:].split() for line in lines}
    assert float(numbers["fresh true statements satisfied"][0]) > 90
    assert float(numbers["Procrustes disparity"][0]) < 0.05
