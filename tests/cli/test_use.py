from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_tools import NAMES, call, installed, made_csv, made_points, made_triplets, refusal, result
from scipy.spatial.distance import cdist

from boostmetric import Metric


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_csv(tmp_path / "points.csv")


@pytest.fixture
def metric(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "m.bm"
    result(capsys, "fit", data, "-l", "kind", "-o", path, "--max-iter", "5", "-q")
    return path


# transform


@pytest.mark.parametrize("name", ["z.csv", "z.tsv.gz", "z.parquet", "z.feather", "z.npy", "z.npz"])
def test_distances_of_transformed_points_are_those_of_the_metric(
    name: str, data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    words: list[str | Path] = ["--label", "kind"] if not name.endswith(".npy") else []
    out = result(capsys, "transform", metric, data, "-o", path, *words)
    assert out == f"Saved: {path}, 60 points of 4 components\n"
    if name.endswith(".npy"):
        Z = np.load(path)
    elif name.endswith(".npz"):
        with np.load(path) as file:
            Z, labels = file["X"], file["y"]
            assert labels.tolist() == made_points()[1].tolist()
    else:
        read = {"parquet": pd.read_parquet, "feather": pd.read_feather}.get(path.suffix[1:])
        frame = read(path) if read else pd.read_csv(path, sep="\t" if "tsv" in name else ",")
        assert frame.columns.tolist() == [*(f"component{j}" for j in range(4)), "kind"]
        assert frame["kind"].tolist() == made_points()[1].tolist()
        Z = frame.drop(columns="kind").to_numpy()
    M, (X, _) = Metric.load(metric).matrix, made_points()
    expected = cdist(X, X, "mahalanobis", VI=M)
    np.testing.assert_allclose(cdist(Z, Z), expected, rtol=1e-6, atol=1e-9)


def test_columns_may_come_in_another_order_and_with_others(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result(capsys, "transform", metric, data, "-o", tmp_path / "z.npy")
    frame = pd.read_csv(data)[[*reversed(NAMES), "kind"]].assign(remark="none")
    frame.to_csv(tmp_path / "other.csv", index=False)
    result(capsys, "transform", metric, tmp_path / "other.csv", "-o", tmp_path / "w.npy")
    np.testing.assert_allclose(np.load(tmp_path / "w.npy"), np.load(tmp_path / "z.npy"))
    frame.drop(columns=["width", "noise"]).to_csv(tmp_path / "other.csv", index=False)
    assert "has no columns 'width', 'noise': there are 'depth', 'height'" in refusal(
        capsys, "transform", metric, tmp_path / "other.csv", "-o", tmp_path / "v.npy"
    )


def test_what_transform_refuses(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str | Path) -> str:
        return refusal(capsys, "transform", metric, *words)

    (tmp_path / "old.csv").touch()
    assert "is there already: --force writes over it" in said(data, "-o", tmp_path / "old.csv")
    assert "the name must end in one of .csv" in said(data, "-o", tmp_path / "z.xlsx")
    assert "can hold numbers only" in said(data, "-o", tmp_path / "z.npy", "-l", "kind")
    assert "there is no folder" in said(data, "-o", tmp_path / "no" / "z.csv")
    np.save(tmp_path / "wide.npy", np.zeros((3, 5)))
    wide = tmp_path / "wide.npy"
    assert "has 5 features, but the metric goes by 4" in said(wide, "-o", tmp_path / "z.csv")
    out = result(capsys, "transform", metric, wide, "-o", tmp_path / "z.csv", "--drop", "4")
    assert "3 points" in out


# neighbors


def test_neighbours_of_rows_are_the_nearest_others(
    data: Path, metric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = made_points()
    distances = cdist(X, X, "mahalanobis", VI=Metric.load(metric).matrix)
    np.fill_diagonal(distances, np.inf)
    words: list[str | Path] = ["neighbors", metric, data, "-l", "kind", "-k", "4"]
    found = json.loads(result(capsys, *words, "--row", "0", "17", "--json"))
    for query in (0, 17):
        rows = np.argsort(distances[query])[:4]
        mine = [each for each in found if each["query"] == query]
        assert [each["row"] for each in mine] == rows.tolist()
        assert [each["rank"] for each in mine] == [1, 2, 3, 4]
        assert [each["label"] for each in mine] == y[rows].tolist()
        np.testing.assert_allclose([each["distance"] for each in mine], distances[query, rows])
    lines = result(capsys, *words, "--row", "17").splitlines()
    assert lines[0].split() == ["query", "rank", "row", "distance", "label"]
    assert lines[1].split()[:3] == ["17", "1", str(np.argmin(distances[17]))]
    assert len(result(capsys, *words[:3], "-k", "2").splitlines()) == 1 + 2 * 60


def test_neighbours_of_other_points(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = made_csv(tmp_path / "query.csv", seed=5, n=6)
    X, W = made_points()[0], made_points(5, 6)[0]
    distances = cdist(W, X, "mahalanobis", VI=Metric.load(metric).matrix)
    words: list[str | Path] = ["neighbors", metric, data, "--query", query, "-k", "1", "--json"]
    found = json.loads(result(capsys, *words))
    assert [each["row"] for each in found] == distances.argmin(axis=1).tolist()
    assert [each["label"] for each in found] == [None] * 6


def test_a_row_among_its_duplicates_is_not_its_own_neighbour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "same.npy", np.zeros((8, 2)))
    Metric(np.eye(2), np.ones(2)).save(tmp_path / "m")
    words: list[str | Path] = [
        "neighbors",
        tmp_path / "m",
        tmp_path / "same.npy",
        "-k",
        "3",
        "--json",
    ]
    for row in range(8):
        found = json.loads(result(capsys, *words, "--row", str(row)))
        assert len(found) == 3
        assert row not in [each["row"] for each in found]


def test_what_neighbors_refuses(
    data: Path, metric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words: list[str | Path] = ["neighbors", metric, data]
    assert "cannot be given together" in refusal(capsys, *words, "--row", "1", "--query", data)
    assert refusal(capsys, *words, "--row", "3", "60") == (
        f"{data} has the rows 0 to 59; got --row 60."
    )


# Files that a command reads are never written over.


def test_no_command_writes_over_a_file_that_it_reads(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    triplets = made_triplets(tmp_path / "triplets.npy")
    (tmp_path / "link.csv").symlink_to(data)
    (tmp_path / "hard.png").hardlink_to(metric)
    fit: list[str | Path] = ["fit", data, "-l", "kind", "-c", triplets, "--force"]
    plot: list[str | Path] = ["plot", metric, data, "--kind", "projection", "--force"]
    commands: list[list[str | Path]] = [
        [*fit, "-o", data],
        [*fit, "-o", tmp_path / "link.csv"],
        [*fit, "-o", triplets],
        [*fit, "-o", tmp_path / "new.bm", "--checkpoint", data, "--resume"],
        [*fit, "-o", tmp_path / "new.bm", "--checkpoint", tmp_path / "new.bm", "--resume"],
        ["transform", metric, data, "-o", data, "--force", "--drop", "kind"],
        ["transform", metric, data, "-o", tmp_path / "link.csv", "--force", "--drop", "kind"],
        [*plot, "-o", tmp_path / "hard.png"],
    ]
    before = {path: path.read_bytes() for path in (data, metric, triplets)}
    for words in commands:
        said = refusal(capsys, *words)
        assert said.endswith("Choose another file for the output.")
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "new.bm").exists()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_label_called_like_a_component_is_refused(
    suffix: str, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = made_points()
    data, output = tmp_path / "t.csv", tmp_path / f"z{suffix}"
    pd.DataFrame(X, columns=NAMES).assign(component1=y).to_csv(data, index=False)
    said = refusal(capsys, "transform", metric, data, "--label", "component1", "-o", output)
    assert said == (
        f"{output}: the column of labels and another column would both be called 'component1'. "
        "Rename the label in the data."
    )
    assert not output.exists()
    result(capsys, "transform", metric, data, "--label", "component1", "-o", tmp_path / "z.npz")
    assert np.load(tmp_path / "z.npz")["y"].tolist() == y.tolist()


# inspect


def test_inspect_tells_rank_spectrum_features_and_how_it_was_learned(
    metric: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    learned = Metric.load(metric)
    facts = json.loads(result(capsys, "inspect", metric, "--json"))
    eigenvalues = np.linalg.eigvalsh(learned.matrix)[::-1]
    np.testing.assert_allclose(facts["eigenvalues"], eigenvalues, rtol=1e-9)
    assert facts["weights"] == pytest.approx(dict(zip(NAMES, np.diag(learned.matrix), strict=True)))
    deviations = np.array(facts["origin"]["deviations"])
    assert facts["influence"] == pytest.approx(
        dict(zip(NAMES, np.diag(learned.matrix) * deviations**2, strict=True))
    )
    assert facts["origin"]["parameters"]["max_iter"] == 5
    text = result(capsys, "inspect", metric, "--top", "2")
    lines = text.splitlines()
    assert lines[0] == f"{metric}: a metric of rank 4 over 4 features"
    assert lines[3].split()[0] == "1"
    assert lines[3].count("█") == 30
    share = f"{100 * eigenvalues[1] / eigenvalues.sum():.1f} %"
    assert share in lines[4]
    assert text.count("… and 2 more (--top)") == 2
    order = sorted(NAMES, key=lambda name: -facts["influence"][name])
    assert [line.split()[0] for line in lines[8:10]] == order[:2]
    assert "  Settings other than the default ones: max_iter=5" in lines
    assert "if the objective in the history" in " ".join(text.split())
    assert "Increase --max-iter" in text
    assert max(map(len, lines[1:])) <= 80


def test_inspect_of_a_metric_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Metric(np.eye(2), np.array([4.0, 0.0])).save(tmp_path / "m")
    text = result(capsys, "inspect", tmp_path / "m")
    assert "The file does not say." in text
    assert "  x0  4  100.0 %" in " ".join(text.split("\n")).replace("   ", "  ")
    Metric(np.empty((2, 0)), np.empty(0)).save(tmp_path / "m")
    assert "rank 0 over 2 features" in result(capsys, "inspect", tmp_path / "m")
    (tmp_path / "m").write_text("no metric")
    assert "is no zip file" in refusal(capsys, "inspect", tmp_path / "m")


ODD: list[Any] = [None, True, 5, -1.5, float("nan"), "text", [], [1, "a"], {}, {"a": [None]}]
"""Values that JSON can hold."""

FACTS = [
    *("estimator", "boostmetric", "made", "parameters", "best_params", "status", "history"),
    *("deviations", "n_samples", "n_comparisons", "n_iter", "duality_gap", "note"),
]


def test_inspect_shows_facts_that_one_wrote_oneself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = {"note": "made by hand", "sizes": [1, 2]}
    Metric(np.eye(2), np.ones(2), ("a", "b"), origin).save(tmp_path / "note.bm")
    text = result(capsys, "inspect", tmp_path / "note.bm")
    assert text.splitlines()[-3:] == [
        "How it was learned",
        "  note: made by hand",
        "  sizes: [1, 2]",
    ]
    facts = json.loads(result(capsys, "inspect", tmp_path / "note.bm", "--json"))
    assert facts["origin"] == origin


@pytest.mark.parametrize("complete", [False, True])
def test_any_origin_that_json_can_hold(
    complete: bool, data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned = Metric.load(metric)
    path = tmp_path / "odd.bm"
    for name, value in product(FACTS, ODD):
        origin = {**((learned.origin or {}) if complete else {}), name: value}
        replace(learned, origin=origin).save(path)
        assert call(capsys, "inspect", path).code == 0
    replace(learned, origin=dict(zip(FACTS, ODD, strict=False))).save(path)
    result(capsys, "inspect", path, "--json")
    result(capsys, "neighbors", path, data, "--row", "0")
    result(capsys, "transform", path, data, "-o", tmp_path / "z.csv")
    result(capsys, "evaluate", path, data, "-l", "kind")


@pytest.mark.parametrize("name", ["estimator", "parameters"])
def test_settings_that_cannot_be_learned_with_are_one_line(
    name: str, data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned = Metric.load(metric)
    values = [value for value in ODD if not isinstance(value, dict) or name == "estimator"]
    if name == "parameters":
        odd = [value for value in ODD if value is not None]
        values += [{each: value} for each in ("loss", "n_neighbors", "init") for value in odd]
        values.remove({"n_neighbors": 5})
    for value in values:
        replace(learned, origin={**(learned.origin or {}), name: value}).save(tmp_path / "odd.bm")
        words = ["evaluate", str(tmp_path / "odd.bm"), str(data), "-l", "kind", "--cv", "2"]
        said = call(capsys, *words)
        assert said.code == 2
        assert said.err.splitlines()[-1].startswith("boostmetric: error: ")


@pytest.mark.parametrize("value", [*ODD[1:], {"n_tried": [1], "objective": "a"}])
def test_a_history_that_cannot_be_drawn_is_one_line(
    value: Any, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace(Metric.load(metric), origin={"history": value}).save(tmp_path / "odd.bm")
    picture = tmp_path / "p.png"
    said = refusal(capsys, "plot", tmp_path / "odd.bm", "--kind", "convergence", "-o", picture)
    assert "history" in said
    assert not picture.exists()


def test_huge_directions_are_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "huge.bm"
    Metric(1e200 * np.eye(4), np.ones(4)).save(path)
    for command in ("neighbors", "evaluate"):
        assert "holds no valid metric" in refusal(capsys, command, path, data, "-l", "kind")
    assert "holds no valid metric" in refusal(capsys, "inspect", path)


# plot


@pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib")
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.parametrize("kind", ["projection", "spectrum", "convergence", "distances", "roc"])
def test_pictures(
    kind: str, data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{kind}.png"
    points: list[str | Path] = (
        [data, "--label", "kind"] if kind not in ("spectrum", "convergence") else []
    )
    out = result(capsys, "plot", metric, *points, "--kind", kind, "-o", path)
    assert out == f"Picture: {path}\n"
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert path.stat().st_size > 5000


def test_what_plot_refuses(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str | Path) -> str:
        return refusal(capsys, "plot", metric, *words)

    picture: list[str | Path] = ["-o", tmp_path / "p.png"]
    assert "give DATA after the metric" in said("--kind", "roc", *picture)
    assert "Name it by --label." in said(data, "--kind", "roc", *picture)
    assert "the name of a picture ends in .png, .pdf, .svg" in said(
        *("--kind", "spectrum", "-o"), tmp_path / "p.bmp"
    )
    bare = tmp_path / "bare.bm"
    Metric(np.eye(4), np.ones(4)).save(bare)
    words: list[str | Path] = ["plot", bare, "--kind", "convergence", *picture]
    assert "no history of its fit" in refusal(capsys, *words)
    assert not (tmp_path / "p.png").exists()


# Whole journeys, with the installed command.


def test_the_journey_of_one_who_has_a_csv(tmp_path: Path) -> None:
    made_csv(tmp_path / "train.csv")
    made_csv(tmp_path / "new.csv", seed=1)

    def run(*words: str) -> str:
        said = installed(tmp_path, *words)
        assert (said.code, "Traceback" in said.err) == (0, False), said.err
        return said.out

    out = run("fit", "train.csv", "--label", "kind", "-o", "m.bm")
    following = out.splitlines()[-1].removeprefix("Next:  boostmetric ").split()
    assert "3-NN error" in run(*following)
    assert "3-NN error" in run("evaluate", "m.bm", "train.csv", "-l", "kind", "--test", "new.csv")
    assert "rank" in run("inspect", "m.bm")
    run("transform", "m.bm", "new.csv", "-o", "new.parquet", "--label", "kind")
    assert "component0" in pd.read_parquet(tmp_path / "new.parquet").columns
    assert len(run("neighbors", "m.bm", "train.csv", "--query", "new.csv", "-k", "1").split("\n"))
    run("plot", "m.bm", "new.csv", "-l", "kind", "--kind", "projection", "-o", "new.png")
    assert (tmp_path / "new.png").exists()


def test_the_journey_of_one_who_has_an_array_and_triplets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", made_points()[0])
    made_triplets(Path("triplets.npy"))
    out = result(capsys, "fit", "points.npy", "--comparisons", "triplets.npy", "-o", "m.bm")
    following = out.splitlines()[-1].removeprefix("Next:  boostmetric ").split()
    before, after = result(capsys, *following).splitlines()[1].split()[2::2]
    assert float(after) > float(before)
    assert "x3" in result(capsys, "inspect", "m.bm")
    result(capsys, "transform", "m.bm", "points.npy", "-o", "z.npy")
    assert np.load("z.npy").shape == (60, 4)
    found = result(capsys, "neighbors", "m.bm", "points.npy", "--row", "3")
    assert len(found.splitlines()) == 6
