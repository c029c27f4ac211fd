"""The displays: the numbers they hold and draw, the artists, the errors."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from boostmetric import BoostMetric, BoostMetricCV, Metric
from boostmetric.evaluation.verification import equal_error
from boostmetric.plots import (
    ConvergenceDisplay,
    PairDistanceDisplay,
    PairRocDisplay,
    ProjectionDisplay,
    SpectrumDisplay,
)
from boostmetric.plots.drawing import panels, shortened, spread, write
from boostmetric.plots.pairs import labelled_pairs
from boostmetric.plots.projection import MAX_NAMES, Plane

matplotlib = pytest.importorskip("matplotlib")

# old matplotlib, new pyparsing
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Labelled = tuple[NDArray, NDArray]

TWO_PANELS = [ConvergenceDisplay, SpectrumDisplay, ProjectionDisplay, PairDistanceDisplay]


@pytest.fixture(autouse=True)
def pyplot() -> Iterator[Any]:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


@pytest.fixture(scope="module")
def wine() -> Labelled:
    X, y = load_wine(return_X_y=True)
    return X, y


@pytest.fixture(scope="module")
def learner(wine: Labelled) -> BoostMetric:
    return BoostMetric(max_iter=15, n_passes=2).fit(*wine)


@pytest.fixture
def figure() -> Any:
    """A figure that pyplot does not know."""
    from matplotlib.figure import Figure

    return Figure(figsize=(10, 4.5), layout="constrained")


def fresh_axes(figure: Any, n: int) -> list[Any]:
    return list(np.ravel(figure.subplots(1, n)))


def display_of(kind: Any, learner: BoostMetric, wine: Labelled, ax: Any = None) -> Any:
    data = () if kind in (ConvergenceDisplay, SpectrumDisplay) else wine
    return kind.from_estimator(learner, *data, ax=ax)


def texts_of(axes: Any) -> list[Any]:
    return [text for text in axes.texts if text.get_text()]


def overlapping(texts: list[Any]) -> list[tuple[str, str]]:
    """The pairs of texts of a drawn figure that cover each other."""
    boxes = {text: text.get_window_extent() for text in texts}
    return [
        (one.get_text(), two.get_text())
        for one, two in combinations(texts, 2)
        if boxes[one].overlaps(boxes[two])
    ]


# Axes


@pytest.mark.parametrize("kind", [*TWO_PANELS, PairRocDisplay])
def test_one_given_axes_is_used_and_pyplot_left_alone(
    kind: Any, learner: BoostMetric, wine: Labelled, figure: Any, pyplot: Any
) -> None:
    (axes,) = fresh_axes(figure, 1)
    before = pyplot.get_fignums()  # other tests in this process may have opened some
    display = display_of(kind, learner, wine, axes)
    assert np.atleast_1d(display.ax_).tolist() == [axes]
    if kind in (ProjectionDisplay, PairDistanceDisplay):
        assert axes.get_title().startswith("after")
    assert display.figure_ is figure
    assert axes.has_data()
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize("kind", TWO_PANELS)
def test_two_given_axes_are_used_by_the_displays_of_two_panels(
    kind: Any, learner: BoostMetric, wine: Labelled, figure: Any, pyplot: Any
) -> None:
    pair = fresh_axes(figure, 2)
    display = display_of(kind, learner, wine, np.array([pair]))
    assert list(display.ax_) == pair
    assert all(axes.has_data() for axes in pair)
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("kind", [*TWO_PANELS, PairRocDisplay])
def test_without_axes_there_is_a_new_figure(
    kind: Any, learner: BoostMetric, wine: Labelled, pyplot: Any
) -> None:
    display = display_of(kind, learner, wine)
    first = display.figure_
    assert tuple(first.get_size_inches()) == ((10, 4.5) if kind in TWO_PANELS else (6, 4))
    assert display.plot() is display
    assert display.figure_ is not first
    assert len(pyplot.get_fignums()) == 2


def test_axes_in_a_part_of_a_figure(learner: BoostMetric, wine: Labelled, figure: Any) -> None:
    part = figure.subfigures(1, 2)[0]
    display = ProjectionDisplay.from_estimator(learner, *wine, ax=part.subplots())
    assert display.figure_ is part
    assert len(display.names_) == 3


@pytest.mark.parametrize(
    ("n_given", "n_panels", "message"),
    [
        (3, 2, "ax holds 3 Axes: one is needed, for the main panel alone, or 2, or None."),
        (2, 1, "ax holds 2 Axes: one is needed, for the main panel alone, or None."),
    ],
)
def test_a_wrong_number_of_axes(figure: Any, n_given: int, n_panels: int, message: str) -> None:
    with pytest.raises(ValueError) as error:
        panels(fresh_axes(figure, n_given), n_panels)
    assert str(error.value) == message


def test_what_is_no_axes(figure: Any) -> None:
    with pytest.raises(TypeError, match="ax must be matplotlib's Axes, or None; got str"):
        panels("axes", 1)
    with pytest.raises(TypeError, match="got Figure"):
        panels(figure, 1)


def test_without_matplotlib_the_error_says_what_to_install() -> None:
    script = """
import sys
sys.modules["matplotlib"] = None
import numpy as np
from boostmetric import Metric
from boostmetric.plots import SpectrumDisplay, ProjectionDisplay
metric = Metric(np.eye(2), np.ones(2))
for draw in (
    lambda: SpectrumDisplay.from_metric(metric),
    lambda: ProjectionDisplay.from_metric(metric, np.eye(2)),
):
    try:
        draw()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    message = "the plots need matplotlib, which is missing: pip install 'boostmetric[plots]'\n"
    assert (done.stdout, done.stderr) == (2 * message, "")


# Convergence


def test_the_curves_are_the_objective_and_lambda_max_of_each_pass(learner: BoostMetric) -> None:
    display = ConvergenceDisplay.from_estimator(learner)
    history = learner.history_
    assert len(display.lines_) == 4
    for quantity, lines in (
        ("objective", display.lines_[:2]),
        ("lambda_max", display.lines_[2:]),
    ):
        for number, line in enumerate(lines):
            here = history["pass"] == number
            assert line.get_ydata() == pytest.approx(history[quantity][here])
            assert line.get_xdata() == pytest.approx(np.flatnonzero(here) + 1)
    marked = [text.get_text() for text in texts_of(display.ax_[0])]
    assert marked == ["pass 1", "2"]


def test_a_block_counts_for_its_directions(wine: Labelled) -> None:
    learner = BoostMetric(max_iter=10, directions_per_step=4).fit(*wine)
    display: Any = ConvergenceDisplay.from_estimator(learner)
    assert display.lines_[0].get_xdata()[-1] == learner.history_["n_tried"].sum() == 10
    counted = display.plot(against="iterations").lines_[0].get_xdata()
    assert list(counted) == list(range(1, learner.n_iter_ + 1))


def test_the_duality_gap_is_a_share_of_the_objective_and_ends_with_the_final_one(
    wine: Labelled,
) -> None:
    learner = BoostMetric(solver="totally_corrective", tol=1e-9, max_iter=60).fit(*wine)
    display = ConvergenceDisplay.from_estimator(learner)
    assert display.ax_[1].get_ylabel() == "duality gap, share of the objective"
    assert display.ax_[1].get_yscale() == "log"
    gaps, objectives = learner.history_["duality_gap"], learner.history_["objective"]
    looked_at = np.flatnonzero(np.isfinite(gaps[:-1]))
    expected = np.append(gaps[looked_at], learner.duality_gap_)
    expected /= objectives[np.append(looked_at, -1)]
    assert display.lines_[1].get_ydata() == pytest.approx(np.maximum(expected, 1e-16))


def test_a_metric_from_a_file_draws_the_history_it_was_learned_by(
    wine: Labelled, tmp_path: Path
) -> None:
    learner = BoostMetric(solver="totally_corrective", tol=1e-9, max_iter=40).fit(*wine)
    learner.metric_.save(tmp_path / "metric")
    ours = ConvergenceDisplay.from_estimator(learner)
    loaded = ConvergenceDisplay.from_metric(Metric.load(tmp_path / "metric"))
    for one, two in zip(ours.lines_, loaded.lines_, strict=True):
        assert np.array_equal(one.get_xydata(), two.get_xydata())


def test_two_fits_on_the_same_axes(wine: Labelled, figure: Any) -> None:
    (axes,) = fresh_axes(figure, 1)
    ends = []
    for loss, color in (("logistic", "black"), ("squared_hinge", "blue")):
        learner = BoostMetric(loss=loss, max_iter=6).fit(*wine)
        display: Any = ConvergenceDisplay(learner.history_)
        display.plot(axes, quantities=["n_violated"], name=loss, color=color)
        assert display.lines_[0].get_ydata() == pytest.approx(learner.history_["n_violated"])
        ends.append(tuple(display.lines_[0].get_xydata()[-1]))
    assert len(axes.lines) == 2
    named = {text.get_text(): text for text in texts_of(axes)}
    assert [named[loss].xy for loss in ("logistic", "squared_hinge")] == ends
    assert named["squared_hinge"].get_color() == "blue"


def test_errors_of_the_convergence(learner: BoostMetric, wine: Labelled) -> None:
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimator(BoostMetric())
    chosen = BoostMetricCV([{"max_iter": 2}], n_splits=1, random_state=0).fit(*wine)
    with pytest.raises(ValueError, match="BoostMetricCV has no history_: give a fitted BoostMetr"):
        ConvergenceDisplay.from_estimator(chosen)
    origins: list[dict[str, Any] | None] = [None, {}, {"parameters": {}}]
    for origin in origins:
        with pytest.raises(ValueError, match="this metric does not say how it was learned: its or"):
            ConvergenceDisplay.from_metric(Metric(np.eye(2), np.ones(2), origin=origin))
    display = ConvergenceDisplay(learner.history_)
    with pytest.raises(ValueError, match="against='time' will not do: 'directions' or 'iteratio"):
        display.plot(against="time")
    with pytest.raises(ValueError, match=r"quantities=\['trace'\] will not do: one or two of 'obj"):
        display.plot(quantities=["trace"])
    with pytest.raises(ValueError, match=r"quantities=\[\] will not do"):
        display.plot(quantities=[])
    with pytest.raises(ValueError, match="duality_gap is not known of any iteration: fit with tol"):
        display.plot(quantities=["objective", "duality_gap"])
    empty = {name: numbers[:0] for name, numbers in learner.history_.items()}
    with pytest.raises(ValueError, match="the history is empty: the fit found no direction to add"):
        ConvergenceDisplay(empty).plot()


# Spectrum


def test_the_spectrum_is_that_of_the_matrix(learner: BoostMetric) -> None:
    display = SpectrumDisplay.from_estimator(learner, n_features=3)
    M = learner.get_mahalanobis_matrix()
    values = np.linalg.eigvalsh(M)[::-1]
    values = values[: len(display.eigenvalues)]
    heights = [bar.get_height() for bar in display.bars_]
    assert heights == pytest.approx(values / np.trace(M), abs=1e-10)
    assert display.line_.get_ydata() == pytest.approx(np.cumsum(values) / np.trace(M))
    assert display.diagonal == pytest.approx(np.diag(M))
    largest = np.argsort(-np.diag(M))[:3]
    assert display.feature_bars_ is not None
    widths = [bar.get_width() for bar in display.feature_bars_]
    assert widths == pytest.approx(np.diag(M)[largest])
    names = [label.get_text() for label in display.ax_[1].get_yticklabels()]
    assert names == [f"x{i}" for i in largest]


@pytest.mark.parametrize(
    ("coefs", "share", "needed"),
    [
        ([5.0, 3.0, 2.0], 0.5, 1),
        ([5.0, 3.0, 2.0], 0.501, 2),
        ([5.0, 3.0, 2.0], 1.0, 3),
        ([0.1] * 10, 1.0, 10),
        ([96.0, 4.0], 0.95, 1),
        ([7.0], 0.95, 1),
    ],
)
def test_how_many_eigenvalues_carry_a_share(coefs: list[float], share: float, needed: int) -> None:
    metric = Metric(np.eye(len(coefs)), np.array(coefs))
    assert SpectrumDisplay.from_metric(metric).n_carrying(share) == needed


def test_those_that_carry_the_share_have_another_colour() -> None:
    display = SpectrumDisplay.from_metric(Metric(np.eye(3), np.array([90.0, 8.0, 2.0])))
    first, second, third = (bar.get_facecolor() for bar in display.bars_)
    assert first == second != third
    assert display.ax_[0].get_title() == "2 of 3 eigenvalues carry 95 % of the trace"


def test_where_the_names_of_features_come_from(wine: Labelled) -> None:
    pandas = pytest.importorskip("pandas")
    data = load_wine(as_frame=True)
    fitted = BoostMetric(max_iter=3).fit(data.data, data.target)
    assert isinstance(data.data, pandas.DataFrame)
    columns = list(data.data.columns)
    assert SpectrumDisplay.from_estimator(fitted).feature_names == columns
    own = [f"feature {i}" for i in range(13)]
    assert SpectrumDisplay.from_estimator(fitted, feature_names=own).feature_names == own
    named = Metric(np.eye(2), np.array([1.0, 4.0]), feature_names=("$a", "b$"))
    display = SpectrumDisplay.from_metric(named)
    labels = display.ax_[1].get_yticklabels()
    assert [label.get_text() for label in labels] == ["b$", "$a"]
    assert not any(label.get_parse_math() for label in labels)
    assert SpectrumDisplay.from_metric(Metric(np.eye(1), np.ones(1))).feature_names == ["x0"]


def test_the_spectrum_alone(learner: BoostMetric) -> None:
    display = SpectrumDisplay.from_estimator(learner, n_features=0)
    assert len(display.ax_) == 1
    assert display.feature_bars_ is None


def test_errors_of_the_spectrum(wine: Labelled) -> None:
    with pytest.raises(NotFittedError):
        SpectrumDisplay.from_estimator(BoostMetric())
    scaler = StandardScaler().fit(wine[0])
    with pytest.raises(ValueError, match="StandardScaler has no metric_: give a fitted BoostMetri"):
        SpectrumDisplay.from_estimator(scaler)
    with pytest.raises(ValueError, match="this metric has no direction: M = 0 has no spectrum"):
        SpectrumDisplay.from_metric(Metric(np.empty((3, 0)), np.empty(0)))
    with pytest.raises(ValueError, match="2 feature_names came: 3 are needed"):
        SpectrumDisplay.from_metric(Metric(np.eye(3), np.ones(3)), feature_names=["a", "b"])


# Projection


def test_the_planes_are_those_of_largest_variance(learner: BoostMetric, wine: Labelled) -> None:
    X, y = wine
    display = ProjectionDisplay.from_estimator(learner, X, y)
    for plane, points in ((display.before, X), (display.after, X @ learner.components_.T)):
        centred = points - points.mean(axis=0)
        values, vectors = np.linalg.eigh(centred.T @ centred)
        expected = centred @ vectors[:, :-3:-1]
        assert np.abs(plane.points) == pytest.approx(np.abs(expected), abs=1e-6)
        assert plane.shares == pytest.approx(values[:-3:-1] / values.sum())


def test_the_points_of_each_class_are_drawn_and_its_name_is_at_their_median(
    wine: Labelled, figure: Any
) -> None:
    # So far apart that no name has to move.
    X, y = make_blobs([30, 40, 50], centers=[[-20, 0], [0, 20], [20, 0]], random_state=0)
    names = np.array(["ash", "birch", "cedar"])[y]
    axes = fresh_axes(figure, 2)
    metric = Metric(np.eye(2), np.array([1.0, 0.5]))
    display: Any = ProjectionDisplay.from_metric(metric, X, names, ax=axes)
    assert [len(points.get_offsets()) for points in display.points_] == 2 * [30, 40, 50]
    assert len({tuple(points.get_facecolor()[0]) for points in display.points_}) == 3
    for plane, drawn, written in (
        (display.before, display.points_[:3], display.names_[:3]),
        (display.after, display.points_[3:], display.names_[3:]),
    ):
        for label, points, text in zip(("ash", "birch", "cedar"), drawn, written, strict=True):
            own = plane.points[names == label]
            assert np.asarray(points.get_offsets()) == pytest.approx(own)
            assert text.get_text() == label
            assert text.get_position() == pytest.approx(np.median(own, axis=0), abs=1e-6)


def test_without_labels_there_is_one_colour_and_no_name(
    learner: BoostMetric, wine: Labelled
) -> None:
    display = ProjectionDisplay.from_estimator(learner, wine[0])
    assert len(display.points_) == 2
    assert display.names_ == []


def test_of_many_points_a_part_is_drawn_and_the_picture_says_so(rng: np.random.Generator) -> None:
    X = rng.normal(size=(300, 4))
    metric = Metric(np.eye(4), np.ones(4))
    display: Any = ProjectionDisplay.from_metric(metric, X, max_points=100, random_state=3)
    assert len(display.points_[0].get_offsets()) == 100
    assert len(display.after.points) == 300
    notes = [text.get_text() for text in texts_of(display.ax_[0])]
    assert notes == ["100 of 300 points drawn"]
    again = ProjectionDisplay.from_metric(metric, X, max_points=100, random_state=3)
    assert np.array_equal(display.points_[1].get_offsets(), again.points_[1].get_offsets())
    whole = ProjectionDisplay.from_metric(metric, X, max_points=300)
    assert texts_of(whole.ax_[0]) == []


@pytest.mark.parametrize("length", [1, 12, 60])
@pytest.mark.parametrize("n_classes", [2, 7, 12])
def test_names_neither_cover_each_other_nor_leave_the_picture(
    n_classes: int, length: int, rng: np.random.Generator
) -> None:
    y = rng.integers(n_classes, size=600)
    X = rng.normal(size=(600, 3)) + 2 * rng.normal(size=(n_classes, 3))[y]
    names = np.array([chr(97 + number) * length for number in range(n_classes)])[y]
    display = ProjectionDisplay.from_metric(Metric(np.eye(3), np.ones(3)), X, names)
    display.figure_.canvas.draw()
    for axes in display.ax_:
        texts = [text for text in texts_of(axes) if text in display.names_]
        assert overlapping(texts) == []
        frame = axes.get_window_extent()
        for text in texts:
            box = text.get_window_extent()
            assert frame.x0 <= box.x0 <= box.x1 <= frame.x1
            assert frame.y0 <= box.y0 <= box.y1 <= frame.y1
    if length < 60:
        assert len(display.names_) == 2 * n_classes


def test_names_that_do_not_fit_are_left_out_with_a_note(rng: np.random.Generator) -> None:
    n_classes = MAX_NAMES + 1
    X, y = rng.normal(size=(500, 3)), rng.permutation(np.arange(500) % n_classes)
    metric = Metric(np.eye(3), np.ones(3))
    many: Any = ProjectionDisplay.from_metric(metric, X, y)
    crowded = ProjectionDisplay.from_metric(metric, X, [f"a class: {label % 25}" for label in y])
    for display, number in ((many, n_classes), (crowded, 25)):
        assert display.names_ == []
        assert len(display.points_) == 2 * number
        notes = [[text.get_text() for text in texts_of(axes)] for axes in display.ax_]
        assert notes == 2 * [[f"{number} classes"]]
    styles = {
        (tuple(points.get_facecolor()[0]), points.get_paths()[0].vertices.tobytes())
        for points in many.points_[:n_classes]
    }
    assert len(styles) == n_classes


def test_one_dimension_is_spread_over_a_height_that_means_nothing(wine: Labelled) -> None:
    X, y = wine
    display = ProjectionDisplay.from_metric(Metric(np.eye(13)[:, :1], np.ones(1)), X, y)
    assert display.ax_[1].get_ylabel() == "at random: there is one dimension"
    line = np.outer(np.random.default_rng(0).normal(size=20), [1, 3, 0.7])
    of_a_line = ProjectionDisplay.from_metric(Metric(np.eye(3), np.ones(3)), line)
    assert 0 < of_a_line.before.shares[1] < 1e-12
    assert of_a_line.ax_[0].get_ylabel() == "at random: there is one dimension"
    assert np.abs(display.after.points[:, 0]) == pytest.approx(np.abs(X[:, 0] - X[:, 0].mean()))
    assert (display.after.points[:, 1] == 0).all()
    drawn = np.concatenate([points.get_offsets() for points in display.points_[3:]])
    assert len(np.unique(drawn[:, 1])) == len(X)


def test_constant_points_have_no_variance() -> None:
    plane = Plane.of(np.zeros((5, 3)))
    assert plane.points.tolist() == np.zeros((5, 2)).tolist()
    assert plane.shares.tolist() == [0, 0]


def test_sparse_points_lie_in_the_same_plane(rng: np.random.Generator) -> None:
    X = rng.normal(size=(50, 8)) * (rng.random((50, 8)) < 0.4)
    dense, sparse = Plane.of(X), Plane.of(csr_array(X))
    assert np.abs(sparse.points) == pytest.approx(np.abs(dense.points), abs=1e-6)
    assert sparse.shares == pytest.approx(dense.shares)


def test_pipelines_frames_and_other_packages_transformers(wine: Labelled) -> None:
    pytest.importorskip("pandas")
    data = load_iris(as_frame=True)
    pipeline = make_pipeline(StandardScaler(), BoostMetric(max_iter=5))
    pipeline.set_output(transform="pandas").fit(data.data, data.target)
    display = ProjectionDisplay.from_estimator(pipeline, data.data, data.target)
    expected = Plane.of(np.asarray(pipeline.transform(data.data)))
    assert display.after.points == pytest.approx(expected.points)
    other = NeighborhoodComponentsAnalysis(max_iter=5, random_state=0).fit(*wine)
    before, after = PairDistanceDisplay.from_estimator(other, *wine).areas
    assert 0 < before < 1
    assert 0 < after < 1


def test_errors_of_the_projection(learner: BoostMetric, wine: Labelled) -> None:
    X, y = wine
    with pytest.raises(NotFittedError):
        ProjectionDisplay.from_estimator(BoostMetric(), X)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ProjectionDisplay.from_estimator(learner, X, y[1:])
    with pytest.raises(ValueError, match="max_points=0 will not do: at least 1 is needed"):
        ProjectionDisplay.from_estimator(learner, X, y, max_points=0)
    with pytest.raises(ValueError, match="13 features"):
        ProjectionDisplay.from_estimator(learner, X[:, :5], y)


# Texts


def test_a_short_name_stays_and_a_long_one_keeps_both_ends() -> None:
    assert shortened("a name") == "a name"
    assert shortened(7) == "7"
    assert shortened("two\nlines") == "two lines"
    for length in (5, 6, 21):
        short = shortened("abcdefghijklmnopqrstuvwxyz", length)
        start, end = short.split("…")
        assert len(short) == length
        assert "abcdefghijklmnopqrstuvwxyz".startswith(start)
        assert "abcdefghijklmnopqrstuvwxyz".endswith(end)


def test_texts_at_the_same_place_part_and_others_stay(figure: Any) -> None:
    (axes,) = fresh_axes(figure, 1)
    texts = [
        write(axes, np.array(place), "name", "black")
        for place in ([0.5, 0.5], [0.5, 0.5], [0.1, 0.9])
    ]
    assert spread(axes, texts)
    figure.draw_without_rendering()
    assert overlapping(texts) == []
    assert texts[2].get_position() == pytest.approx((0.1, 0.9))
    assert texts[0].get_position() == pytest.approx((0.5, 0.5), abs=0.1)


@pytest.mark.parametrize(("n_texts", "there_is_room"), [(5, True), (15, False), (100, False)])
def test_texts_without_room_or_far_from_their_place_are_told_of(
    figure: Any, n_texts: int, there_is_room: bool
) -> None:
    (axes,) = fresh_axes(figure, 1)
    texts = [write(axes, np.array([0.5, 0.5]), 20 * "name", "black") for _ in range(n_texts)]
    assert spread(axes, texts) == there_is_room


# Pairs


def brute_area(distances: NDArray, same: NDArray) -> float:
    """The share of same pairs nearer than different ones, by comparing each with each."""
    near, far = distances[same][:, None], distances[~same]
    return float(np.mean(near < far) + np.mean(near == far) / 2)


def test_all_pairs_of_few_points(learner: BoostMetric) -> None:
    X, y = load_wine(return_X_y=True)
    X, y = X[::4], y[::4]
    display = PairDistanceDisplay.from_estimator(learner, X, y)
    i, j = np.array(list(combinations(range(len(X)), 2))).T
    assert display.before == pytest.approx(np.linalg.norm(X[i] - X[j], axis=1))
    L = learner.components_
    assert display.after == pytest.approx(np.linalg.norm((X[i] - X[j]) @ L.T, axis=1))
    assert display.same.tolist() == (y[i] == y[j]).tolist()
    assert display.areas == pytest.approx(
        (brute_area(display.before, y[i] == y[j]), brute_area(display.after, y[i] == y[j]))
    )


def test_sampled_pairs_are_uniform_within_their_kind() -> None:
    y = np.array(list("aabbbcba"))
    pairs, same = labelled_pairs(y, n_pairs=20, random_state=0)
    assert len(pairs) == 20
    assert same.sum() == 10
    # There are 28 pairs; of 28 or more all would come.
    counts: dict[tuple[int, ...], int] = {}
    rng = np.random.RandomState(0)
    for _ in range(1000):
        pairs, same = labelled_pairs(y, n_pairs=26, random_state=rng)
        assert (same == (y[pairs[:, 0]] == y[pairs[:, 1]])).all()
        for pair in np.sort(pairs, axis=1).tolist():
            counts[tuple(pair)] = counts.get(tuple(pair), 0) + 1
    everything = list(combinations(range(8), 2))
    assert sorted(counts) == everything
    for kind in (True, False):
        drawn = [counts[i, j] for i, j in everything if bool(y[i] == y[j]) is kind]
        expected = 1000 * 13 / len(drawn)
        assert drawn == pytest.approx([expected] * len(drawn), rel=0.15)


def test_given_pairs(learner: BoostMetric, wine: Labelled) -> None:
    X, _ = wine
    pairs = np.array([[0, 1], [0, 100], [5, 170], [3, 4]])
    display = PairRocDisplay.from_metric(learner.metric_, X, [1, -1, -1, 1], pairs=pairs)
    assert display.same.tolist() == [True, False, False, True]
    expected = [learner.metric_.distance(X[i], X[j]) for i, j in pairs]
    assert display.after == pytest.approx(expected)


def test_the_histograms_are_densities_over_the_median(learner: BoostMetric, wine: Labelled) -> None:
    display = PairDistanceDisplay.from_estimator(learner, *wine)
    for distances, drawn in (
        (display.before, display.histograms_[:2]),
        (display.after, display.histograms_[2:]),
    ):
        scaled = distances / np.median(distances)
        for kind, histogram in zip((display.same, ~display.same), drawn, strict=True):
            heights, edges, _ = histogram.get_data()
            counts = [
                np.sum((scaled[kind] >= low) & (scaled[kind] < high))
                for low, high in pairwise(edges)
            ]
            width = edges[1] - edges[0]
            assert heights == pytest.approx(np.array(counts) / (kind.sum() * width), abs=1e-2)
            assert 0.98 < np.sum(heights) * width <= 1 + 1e-9
    before, after = display.areas
    titles = [axes.get_title() for axes in display.ax_]
    assert titles == [
        f"before: Euclidean distance, AUC {before:.3f}",
        f"after: learned distance, AUC {after:.3f}",
    ]
    display.figure_.canvas.draw()
    for axes in display.ax_:
        assert sorted(text.get_text() for text in texts_of(axes)) == ["different", "same"]
        assert overlapping(texts_of(axes)) == []


def test_distances_that_are_mostly_zero() -> None:
    X = np.array([[0.0], [0.0], [0.0], [0.0], [5.0]])
    metric = Metric(np.eye(1), np.ones(1))
    display = PairDistanceDisplay.from_metric(metric, X, [0, 0, 0, 1, 1])
    # Same: 0, 0, 0, 5; different: 0, 0, 0, 5, 5, 5. Nearer in 3·3 of 24, equal in 3·3 + 3.
    assert display.areas == pytest.approx(2 * ((9 + 12 / 2) / 24,))


def test_the_roc_curve_and_its_equal_errors_by_hand(figure: Any) -> None:
    (axes,) = fresh_axes(figure, 1)
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0], [2.0, 3.0]])
    pairs = np.array([[0, 1], [2, 3], [0, 2], [1, 3]])
    metric = Metric(np.eye(2)[:, :1], np.ones(1))  # sees the first feature alone: 1, 2, 0, 1
    display = PairRocDisplay.from_metric(metric, X, [1, 1, -1, -1], pairs=pairs, ax=axes)
    assert display.before == pytest.approx([1, 2, 3, math.sqrt(10)])
    assert display.after == pytest.approx([1, 2, 0, 1])
    assert display.areas == pytest.approx((1.0, 0.125))
    # One different pair below every same one; then one of either at the same distance.
    corners = [(0, 0), (0.5, 0), (1, 0.5), (1, 1)]
    assert display.lines_[1].get_xydata() == pytest.approx(np.array(corners))
    assert display.equal_errors == pytest.approx((0.0, 0.75))
    assert display.ax_ is axes
    texts = [text.get_text() for text in texts_of(axes)]
    assert texts == [
        "Euclidean: AUC 1.000,\nequal errors 0.0 %",
        "learned: AUC 0.125,\nequal errors 75.0 %",
    ]
    figure.draw_without_rendering()
    assert overlapping(texts_of(axes)) == []


def test_the_equal_error_is_where_the_two_errors_meet(rng: np.random.Generator) -> None:
    same = rng.random(4000) < 0.4
    distances = rng.normal(size=4000) - 1.5 * same
    thresholds = np.sort(distances)
    accepted = np.array([(distances[~same] <= at).mean() for at in thresholds])
    found = np.array([(distances[same] <= at).mean() for at in thresholds])
    best = np.abs(accepted - (1 - found)).argmin()
    assert equal_error(accepted, found) == pytest.approx(accepted[best], abs=1e-3)


@pytest.mark.parametrize(
    ("y", "pairs", "message"),
    [
        (
            [1, -1],
            [[0.5, 1.0], [1.0, 2.0]],
            "pairs must be row numbers of X, integers of shape (m, 2); got float64 of shape (2,",
        ),
        ([1, -1], [[0, 1, 2]], "pairs must be row numbers of X, integers of shape (m, 2); got int"),
        ([1, -1], [[0, 1], [1, 4]], "a pair names row 4: X has the rows 0 to 3."),
        ([1, -1], [[0, 1], [-2, 3]], "a pair names row -2: X has the rows 0 to 3."),
        (
            [1, 0],
            [[0, 1], [1, 2]],
            "with pairs, y must hold +1 (same) or -1 (different) for each of the 2; got shape (2,) "
            "with the values [0 1].",
        ),
        (
            [1, -1, 1],
            [[0, 1], [1, 2]],
            "with pairs, y must hold +1 (same) or -1 (different) for each of the 2; got shape (3,)",
        ),
        (
            [1, 1],
            [[0, 1], [1, 2]],
            "all 2 pairs are of the same kind: some of either are needed.",
        ),
        (list("aaaa"), None, "all 6 pairs are of the same kind: some of either are needed."),
        (list("abcd"), None, "all 6 pairs are of different kinds: some of either are needed."),
        (list("abc"), None, "Found input variables with inconsistent numbers of samples: [4, 3]"),
    ],
)
def test_errors_of_pairs(y: list[Any], pairs: Any, message: str) -> None:
    metric = Metric(np.eye(2), np.ones(2))
    for kind in (PairDistanceDisplay, PairRocDisplay):
        with pytest.raises(ValueError) as error:
            kind.from_metric(metric, np.ones((4, 2)), y, pairs=pairs)
        assert str(error.value).startswith(message)


def test_pairs_of_an_estimator_that_was_not_fitted() -> None:
    with pytest.raises(NotFittedError):
        PairRocDisplay.from_estimator(BoostMetric(), np.eye(2), [0, 1])


def test_sampled_labels_of_one_kind_only(rng: np.random.Generator) -> None:
    metric = Metric(np.eye(2), np.ones(2))
    X = rng.normal(size=(50, 2))
    with pytest.raises(ValueError, match="all 5 pairs are of different kinds"):
        PairRocDisplay.from_metric(metric, X, np.arange(50), n_pairs=10)
    with pytest.raises(ValueError, match="all 5 pairs are of the same kind"):
        PairRocDisplay.from_metric(metric, X, np.zeros(50), n_pairs=10)


def test_sparse_points_have_the_distances_of_dense_ones(rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 8)) * (rng.random((60, 8)) < 0.4)
    y = rng.integers(3, size=60)
    metric = Metric(np.eye(8), rng.random(8))
    dense = PairRocDisplay.from_metric(metric, X, y)
    sparse = PairRocDisplay.from_metric(metric, csr_array(X), y)
    assert sparse.before == pytest.approx(dense.before)
    assert sparse.after == pytest.approx(dense.after)


@pytest.mark.parametrize("n_pairs", [60, 500])
def test_of_several_labels_one_in_common_makes_a_pair_of_the_same_kind(
    n_pairs: int, rng: np.random.Generator
) -> None:
    Y = (rng.random((20, 4)) < 0.3).astype(int)
    pairs, same = labelled_pairs(Y, n_pairs, random_state=0)
    assert len(pairs) == min(n_pairs, 20 * 19 // 2)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert same.tolist() == [
        bool(set(np.flatnonzero(Y[i])) & set(np.flatnonzero(Y[j]))) for i, j in pairs
    ]
    assert labelled_pairs(csr_array(Y), n_pairs, random_state=0)[1].tolist() == same.tolist()
