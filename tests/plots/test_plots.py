"""The displays: the numbers they draw, their texts, and errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import simple_learner
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from boostmetric import BoostMetric, BoostMetricCV, Metric
from boostmetric.plots import (
    CandidatesDisplay,
    ConvergenceDisplay,
    PairDistanceDisplay,
    ProjectionDisplay,
    SpectrumDisplay,
)

matplotlib = pytest.importorskip("matplotlib")

# old matplotlib, new pyparsing
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Labeled = tuple[NDArray, NDArray]
DISPLAYS = [ConvergenceDisplay, SpectrumDisplay, ProjectionDisplay, PairDistanceDisplay]


@pytest.fixture(autouse=True)
def pyplot() -> Iterator[Any]:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")  # examples in docstrings leave figures open
    yield pyplot
    pyplot.close("all")


@pytest.fixture(scope="module")
def wine() -> Labeled:
    X, y = load_wine(return_X_y=True)
    return X, y


@pytest.fixture(scope="module")
def learner(wine: Labeled) -> BoostMetric:
    return simple_learner(max_iter=15, n_passes=2).fit(*wine)


def display_of(kind: Any, estimator: Any, wine: Labeled, **options: Any) -> Any:
    data = () if kind in (ConvergenceDisplay, SpectrumDisplay) else wine
    return kind.from_estimator(estimator, *data, **options)


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_text()]


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


# All displays


@pytest.mark.parametrize("kind", DISPLAYS)
def test_axes_and_titles(kind: Any, learner: BoostMetric, wine: Labeled, pyplot: Any) -> None:
    display = display_of(kind, learner, wine, title="wine.csv, $x^$")
    display.figure_.canvas.draw()
    assert display.figure_.get_suptitle() == "wine.csv, $x^$"
    assert len(display.ax_) == 2
    figure = matplotlib.figure.Figure()
    pair = figure.subplots(1, 2)
    assert display.plot(pair).ax_.tolist() == pair.tolist()
    assert display.figure_ is figure
    assert all(axes.has_data() and axes.get_xlabel() and axes.get_ylabel() for axes in pair[:1])
    (main,) = display.plot(figure.add_subplot()).ax_
    assert main.get_title().startswith("After") == (kind in DISPLAYS[2:])
    assert len(pyplot.get_fignums()) == 1
    for wrong in (figure.subplots(1, 3), figure, "axes"):
        with pytest.raises(ValueError, match="ax must be one Axes, 2 Axes or None"):
            display.plot(wrong)


@pytest.mark.parametrize("kind", DISPLAYS)
def test_loaded_metrics_give_the_same_picture(
    kind: Any, learner: BoostMetric, wine: Labeled, tmp_path: Path
) -> None:
    learner.metric_.save(tmp_path / "metric")
    pictures = []
    for estimator in (learner, Metric.load(tmp_path / "metric")):
        canvas = display_of(kind, estimator, wine).figure_.canvas
        canvas.draw()
        pictures.append(np.asarray(canvas.buffer_rgba()))
    assert np.array_equal(pictures[0], pictures[1])


@pytest.mark.parametrize("kind", DISPLAYS)
def test_unfitted_estimators_raise(kind: Any, wine: Labeled) -> None:
    with pytest.raises(NotFittedError):
        display_of(kind, BoostMetric(), wine)


@pytest.mark.slow
def test_missing_matplotlib_is_reported() -> None:
    script = """
import sys
sys.modules["matplotlib"] = None
import numpy as np
from boostmetric import Metric
from boostmetric.plots import *
metric = Metric(np.eye(2), np.ones(2))
for draw in (
    lambda: SpectrumDisplay.from_estimator(metric),
    lambda: ProjectionDisplay.from_estimator(metric, np.eye(2)),
):
    try:
        draw()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    message = "Plots require matplotlib: pip install 'boostmetric[plots]'\n"
    assert (done.stdout, done.stderr) == (2 * message, "")


# Convergence


def test_convergence_has_a_curve_per_pass(learner: BoostMetric) -> None:
    display = ConvergenceDisplay.from_estimator(learner)
    history = learner.history_
    for axes, name in zip(display.ax_, ("objective", "lambda_max"), strict=True):
        first, second, _ = axes.lines  # the last one marks the second pass
        for number, line in enumerate((first, second)):
            rows = np.flatnonzero(history["pass"] == number)
            assert line.get_ydata() == pytest.approx(history[name][rows])
            assert line.get_xdata() == pytest.approx(np.cumsum(history["n_tried"])[rows])
        assert texts(axes) == [" pass 2"]


def test_convergence_shows_a_known_duality_gap(wine: Labeled) -> None:
    learner = simple_learner(solver="totally_corrective", tol=1e-9, max_iter=60).fit(*wine)
    axes = ConvergenceDisplay.from_estimator(learner).ax_[1]
    assert axes.get_ylabel() == "Duality gap / objective"
    assert axes.get_yscale() == "log"
    gaps, objectives = learner.history_["duality_gap"].copy(), learner.history_["objective"]
    gaps[-1] = learner.duality_gap_
    expected = np.maximum(gaps / objectives, 1e-16)[np.isfinite(gaps)]
    assert axes.lines[0].get_ydata() == pytest.approx(expected)


def test_convergence_requires_a_history(learner: BoostMetric, wine: Labeled) -> None:
    chosen = BoostMetricCV([{"max_iter": 2}], cv=2, random_state=0).fit(*wine)
    for source in (chosen, Metric(np.eye(2), np.ones(2))):
        with pytest.raises(ValueError, match="has no history of its fit"):
            ConvergenceDisplay.from_estimator(source)
    empty = {name: numbers[:0] for name, numbers in learner.history_.items()}
    with pytest.raises(ValueError, match="The history is empty"):
        ConvergenceDisplay(empty).plot()


# Candidates


def test_candidates_are_drawn_next_to_euclidean_distance(wine: Labeled) -> None:
    search = BoostMetricCV(random_state=0).fit(*wine)
    results = search.cv_results_
    axes = CandidatesDisplay.from_estimator(search).ax_[0]
    errors = 100 * (1 - results["mean_test_score"])
    points, raw, standardized = axes.lines[0], axes.lines[-2], axes.lines[-1]
    assert points.get_xdata() == pytest.approx(np.sort(errors))
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names[0] == ", ".join(f"{k}={v}" for k, v in search.best_params_.items())
    assert raw.get_xdata() == pytest.approx([errors[3]] * 2)
    assert standardized.get_xdata() == pytest.approx([errors[4]] * 2)
    (bars,) = axes.collections
    widths = [np.ptp(segment[:, 0]) for segment in bars.get_segments() if len(segment)]
    folds = np.array([results[f"split{k}_test_score"] for k in range(3)])
    expected = 2 * 100 * folds.std(axis=0, ddof=1) / np.sqrt(3)
    several = np.isfinite(expected)  # others were evaluated on the first fold only
    assert not several.all()
    assert sorted(widths) == pytest.approx(np.sort(expected[several]))


def test_candidates_without_scores_are_rejected() -> None:
    results = {"params": [{"shrinkage": 1.0}], "mean_test_score": np.array([np.nan])}
    with pytest.raises(ValueError, match="The search has no scores"):
        CandidatesDisplay(results).plot()


# Spectrum


def test_spectrum_matches_the_matrix(learner: BoostMetric, wine: Labeled) -> None:
    left, right = SpectrumDisplay.from_estimator(learner, n_features=3).ax_
    M = learner.get_mahalanobis_matrix()
    shares = np.linalg.eigvalsh(M)[::-1][: len(left.patches)] / np.trace(M)
    assert [bar.get_height() for bar in left.patches] == pytest.approx(shares, abs=1e-10)
    assert left.lines[0].get_ydata() == pytest.approx(np.cumsum(shares))
    n_leading = 1 + np.flatnonzero(np.cumsum(shares) >= 0.95)[0]
    assert left.get_title().startswith(f"{n_leading} of {len(shares)} eigenvalues")
    # Features are ranked by M_ii times their variance.
    sizes = np.diag(M) * wine[0].var(axis=0)
    largest = np.argsort(-sizes)[:3]
    expected = sizes[largest] / sizes.sum()
    assert [bar.get_width() for bar in right.patches] == pytest.approx(expected)
    assert [label.get_text() for label in right.get_yticklabels()] == [f"x{i}" for i in largest]
    assert right.get_title() == "Top 3 of 13 features"


def test_spectrum_shows_feature_names() -> None:
    metric = Metric(np.eye(2), np.array([1.0, 4.0]), feature_names=("$a^$", "b$" + 40 * "b"))
    display = SpectrumDisplay.from_estimator(metric)
    display.figure_.canvas.draw()
    labels = [label.get_text() for label in display.ax_[1].get_yticklabels()]
    assert labels == ["b$" + 28 * "b", "$a^$"]
    given = SpectrumDisplay.from_estimator(metric, feature_names=["u", "v"])
    assert list(given.feature_names) == ["u", "v"]
    with pytest.raises(ValueError, match="feature_names has 3 names"):
        SpectrumDisplay.from_estimator(metric, feature_names=["u", "v", "w"])


def test_spectrum_requires_a_nonzero_metric(wine: Labeled) -> None:
    with pytest.raises(
        ValueError, match=r"StandardScaler has no metric_\. Pass a fitted BoostMetr"
    ):
        SpectrumDisplay.from_estimator(StandardScaler().fit(wine[0]))
    with pytest.raises(ValueError, match="The metric is 0"):
        SpectrumDisplay.from_estimator(Metric(np.empty((3, 0)), np.empty(0)))


# Projection


def test_projection_uses_principal_axes(learner: BoostMetric, wine: Labeled) -> None:
    X, y = wine
    display = ProjectionDisplay.from_estimator(learner, X, y)
    for axes, points in zip(display.ax_, (X, X @ learner.components_.T), strict=True):
        centered = points - points.mean(axis=0)
        values, vectors = np.linalg.eigh(centered.T @ centered)
        drawn = np.sort(np.abs(np.asarray(axes.collections[0].get_offsets())), axis=0)
        expected = np.sort(np.abs(centered @ vectors[:, :-3:-1]), axis=0)
        assert drawn == pytest.approx(expected, abs=1e-6)
        shares = values[:-3:-1] / values.sum()
        assert axes.get_xlabel() == f"Principal axis 1 ({shares[0]:.0%} of variance)"
        assert axes.get_ylabel() == f"Principal axis 2 ({shares[1]:.0%} of variance)"


@pytest.mark.parametrize("n_classes", [3, 20, 21])
def test_projection_has_a_color_per_class(n_classes: int, rng: np.random.Generator) -> None:
    y = rng.permutation(60) % n_classes
    X = np.column_stack([10.0 * y, rng.normal(size=60)])
    metric, names = Metric(np.eye(2), np.ones(2)), np.array([f"$c^${i:02}" for i in y])
    display = ProjectionDisplay.from_estimator(metric, X, names)
    display.figure_.canvas.draw()
    axes = display.ax_[-1]
    colors = axes.collections[0].get_facecolors()
    assert display.y is not None
    along = display.y[np.argsort(display.after[:, 0])].tolist()
    assert sorted(along) in (along, along[::-1])
    used = {tuple(color): label for color, label in zip(colors, display.y, strict=True)}
    assert len(used) == min(n_classes, 20)
    if n_classes <= 20:
        assert legend(axes) == sorted(set(names))
        dots = [handle.get_facecolor()[0] for handle in axes.get_legend().legend_handles]
        assert [used[tuple(dot)] for dot in dots] == legend(axes)
    else:
        assert axes.get_legend() is None
        assert texts(axes) == ["21 classes, colors repeat"]


def test_projection_samples_many_points(rng: np.random.Generator) -> None:
    X, metric = rng.normal(size=(300, 4)), Metric(np.eye(4), np.ones(4))
    for _ in range(2):
        display = ProjectionDisplay.from_estimator(metric, X, max_points=100)
        assert len(display.after) == 100
        assert texts(display.ax_[1]) == ["100 of 300 points"]
        assert display.ax_[1].get_legend() is None
    whole = ProjectionDisplay.from_estimator(metric, X, max_points=300)
    assert texts(whole.ax_[1]) == []


def test_projection_of_degenerate_points() -> None:
    X = np.zeros((5, 3))
    X[:, 0] = np.arange(5)
    display = ProjectionDisplay.from_estimator(Metric(np.eye(3)[:, :1], np.ones(1)), X)
    assert np.sort(display.after[:, 0]) == pytest.approx(np.arange(5) - 2)
    assert display.variances[1].tolist() == [1, 0]
    identical = ProjectionDisplay.from_estimator(Metric(np.eye(3), np.ones(3)), np.ones((5, 3)))
    assert identical.variances.tolist() == [[0, 0], [0, 0]]


def test_sparse_matrices_and_frames(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(50, 8)) * (rng.random((50, 8)) < 0.4), np.arange(50) % 3
    metric = Metric(np.eye(8), rng.random(8))
    for kind in (ProjectionDisplay, PairDistanceDisplay):
        dense: Any = kind.from_estimator(metric, X, y)
        sparse: Any = kind.from_estimator(metric, csr_array(X), y)
        assert np.abs(sparse.after) == pytest.approx(np.abs(dense.after), abs=1e-6)
        assert np.abs(sparse.before) == pytest.approx(np.abs(dense.before), abs=1e-6)
    pytest.importorskip("pandas")
    data = load_iris(as_frame=True)
    pipeline = make_pipeline(StandardScaler(), BoostMetric(max_iter=5))
    pipeline.set_output(transform="pandas").fit(data.data, data.target)
    frame = ProjectionDisplay.from_estimator(pipeline, data.data, data.target)
    array = ProjectionDisplay.from_estimator(pipeline[-1], pipeline[0].transform(data.data))
    assert frame.after == pytest.approx(array.after)


def test_inconsistent_data_raises(learner: BoostMetric, wine: Labeled) -> None:
    X, y = wine
    for kind in (ProjectionDisplay, PairDistanceDisplay):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            kind.from_estimator(learner, X, y[1:])
        with pytest.raises(ValueError, match="13 features"):
            kind.from_estimator(learner, X[:, :5], y)


# Pairs


def test_pair_distances_match_loop(learner: BoostMetric, wine: Labeled) -> None:
    X, y = wine
    display = PairDistanceDisplay.from_estimator(learner, X, y)
    i, j = np.triu_indices(len(X), 1)
    for distances, points in (
        (display.before, X),
        (display.after, X @ learner.components_.T),
    ):
        expected = np.linalg.norm(points[i] - points[j], axis=1)
        for similar in (True, False):
            drawn = distances[display.similar == similar]
            assert np.sort(drawn) == pytest.approx(np.sort(expected[(y[i] == y[j]) == similar]))
    for axes in display.ax_:
        assert legend(axes) == ["Similar", "Dissimilar"]
        areas = [sum(b.get_height() * b.get_width() for b in bars) for bars in axes.containers]
        assert areas == pytest.approx([1, 1])


def test_roc_curve_of_a_small_example() -> None:
    similar = np.array([True, True, False, False])
    display = PairDistanceDisplay(np.array([1, 2, 3, 4.0]), np.array([1, 2, 0, 1.0]), similar)
    (axes,) = display.plot(kind="roc").ax_
    assert legend(axes)[:2] == [
        "Learned, EER 75% (AUC = 0.12)",
        "Euclidean, EER 0% (AUC = 1.00)",
    ]
    # A dissimilar pair has the smallest distance; then one of each kind are tied.
    corners = [(0, 0), (0.5, 0), (1, 0.5), (1, 1)]
    assert axes.lines[0].get_xydata() == pytest.approx(np.array(corners))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("False positive rate", "True positive rate")


def test_multilabel_pairs_with_a_common_label_are_similar(rng: np.random.Generator) -> None:
    Y = (rng.random((40, 4)) < 0.3).astype(int)
    X = Y + rng.normal(size=Y.shape)
    metric = Metric(np.eye(4), np.ones(4))
    i, j = np.triu_indices(40, 1)
    similar = (Y[i] * Y[j]).any(axis=1)
    expected = roc_auc_score(similar, -np.linalg.norm(X[i] - X[j], axis=1))
    for labels in (Y, csr_array(Y)):
        display = PairDistanceDisplay.from_estimator(metric, X, labels)
        assert display.similar.sum() == similar.sum()
        assert roc_auc_score(display.similar, -display.after) == pytest.approx(expected)
    sample = PairDistanceDisplay.from_estimator(metric, X, Y, max_points=20)
    assert len(sample.similar) == 20 * 19 // 2


def test_invalid_pair_distances_raise(learner: BoostMetric, wine: Labeled) -> None:
    X, _ = wine
    with pytest.raises(ValueError, match="all 6 pairs are similar"):
        PairDistanceDisplay.from_estimator(learner, X[:4], list("aaaa"))
    with pytest.raises(ValueError, match="all 6 pairs are dissimilar"):
        PairDistanceDisplay.from_estimator(learner, X[:4], list("abcd"))
    with pytest.raises(ValueError, match="The 'kind' parameter must be 'histogram' or 'roc'"):
        PairDistanceDisplay.from_estimator(learner, *wine, kind="pie")
