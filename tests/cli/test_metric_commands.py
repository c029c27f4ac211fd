"""transform, neighbors, inspect and plot."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_tools import (
    NAMES,
    call,
    failure,
    made_csv,
    made_points,
    made_triplets,
    result,
    usage_error,
)
from scipy.spatial.distance import cdist

from boostmetric import Metric


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_csv(tmp_path / "points.csv")


@pytest.fixture
def metric(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "m.bm"
    result(capsys, "fit", data, "-l", "kind", "-o", path, "--max-iter", "8", "-q")
    return path


def test_transform_preserves_distances(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = result(capsys, "transform", metric, data, "-o", tmp_path / "z.csv", "-l", "kind")
    assert out == f"Saved {tmp_path / 'z.csv'}: 60 points, 4 components.\n"
    frame = pd.read_csv(tmp_path / "z.csv")
    X, y = made_points()
    Z = frame.drop(columns="kind").to_numpy()
    np.testing.assert_allclose(cdist(Z, Z), Metric.load(metric).distances(X), atol=1e-6)
    assert frame["kind"].tolist() == y.tolist()


def test_neighbors_match_brute_force(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = made_points()
    distances = Metric.load(metric).distances(X)
    np.fill_diagonal(distances, np.inf)
    words: list[str | Path] = ["neighbors", metric, data, "-k", "2", "-l", "kind"]
    found = json.loads(result(capsys, *words, "--row", "7", "--row", "3", "--json"))
    assert [each["query"] for each in found] == [7, 7, 3, 3]
    assert [each["row"] for each in found] == np.argsort(distances[[7, 3]])[:, :2].ravel().tolist()
    assert [each["label"] for each in found] == y[[each["row"] for each in found]].tolist()
    assert found[0]["distance"] == pytest.approx(distances[7].min())
    other = made_csv(tmp_path / "other.csv", seed=1, n=6)
    found = json.loads(result(capsys, "neighbors", metric, data, "--query", other, "--json"))
    W, _ = made_points(seed=1, n=6)
    nearest = Metric.load(metric).distances(W, X).argmin(axis=1)
    assert [each["row"] for each in found[::5]] == nearest.tolist()
    assert "has rows 0 to 59; got --row 60." in usage_error(capsys, *words, "--row", "60")


def test_neighbors_prints_ten_points_by_default(
    data: Path, metric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words: list[str | Path] = ["neighbors", metric, data, "-k", "1"]
    said = call(capsys, *words)
    assert len(said.out.splitlines()) == 11
    assert said.err.startswith("Printed 10 of 60 points. Use --row")
    said = call(capsys, *words, "--limit", "0")
    assert (len(said.out.splitlines()), said.err) == (61, "")


def test_neighbors_excludes_the_row_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "same.npy", np.zeros((8, 2)))
    Metric(np.eye(2), np.ones(2)).save(tmp_path / "m")
    words = ["neighbors", str(tmp_path / "m"), str(tmp_path / "same.npy"), "-k", "3", "--json"]
    for row in range(8):
        found = json.loads(result(capsys, *words, "--row", str(row)))
        assert len(found) == 3
        assert row not in [each["row"] for each in found]


@pytest.mark.parametrize(
    ("command", "advised"),
    [
        (["transform", "m.bm", "gaps.csv", "-o", "z.csv"], []),
        (["neighbors", "m.bm", "gaps.csv"], []),
        (["neighbors", "m.bm", "points.csv", "--query", "gaps.csv"], []),
        (["plot", "m.bm", "gaps.csv", "-o", "p.png"], ["--dropna"]),
        (["evaluate", "m.bm", "gaps.csv", "-l", "kind"], ["--dropna"]),
        (["evaluate", "m.bm", "gaps.csv", "-c", "triplets.npy"], []),
        (["compare", "gaps.csv", "-l", "kind"], ["--dropna", "--drop"]),
        (["fit", "gaps.csv", "-l", "kind", "-o", "new.bm"], ["--dropna", "--drop"]),
        (["fit", "gaps.csv", "-c", "triplets.npy", "--drop", "kind", "-o", "new.bm"], ["--drop"]),
    ],
)
def test_missing_values_recommend_options_of_the_command(
    command: list[str],
    advised: list[str],
    data: Path,
    metric: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_triplets(tmp_path / "triplets.npy")
    table = pd.read_csv(data)
    table.loc[3, "width"] = np.nan
    table.to_csv(tmp_path / "gaps.csv", index=False)
    monkeypatch.chdir(tmp_path)
    message = failure(capsys, *command)
    assert "gaps.csv: 1 of 60 rows have missing or infinite values" in message
    assert re.findall(r"--\w+", message) == advised


def test_commands_do_not_replace_inputs(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    triplets = made_triplets(tmp_path / "triplets.npy")
    (tmp_path / "link.csv").symlink_to(data)
    (tmp_path / "hard.png").hardlink_to(metric)
    (tmp_path / "folder").mkdir()
    spelled = f"{tmp_path}/folder/../{metric.name}"
    new = tmp_path / "new.bm"
    (tmp_path / "dangling").symlink_to(new)
    fit: list[str | Path] = ["fit", data, "-l", "kind", "-c", triplets, "--force"]
    commands: list[list[str | Path]] = [
        [*fit, "-o", data],
        [*fit, "-o", tmp_path / "link.csv"],
        [*fit, "-o", triplets],
        [*fit, "-o", new, "--checkpoint", data, "--resume"],
        [*fit, "-o", new, "--checkpoint", new, "--resume"],
        [*fit, "-o", tmp_path / "dangling", "--checkpoint", new],
        ["transform", metric, data, "-o", data, "--force", "--drop", "kind"],
        ["plot", metric, data, "--force", "-o", tmp_path / "hard.png"],
        ["adapt", "export", metric, "--format", "numpy", "--force", "-o", spelled],
        ["adapt", "apply", metric, data, "--force", "-o", data],
    ]
    # No other file of these two commands must be read before the check.
    options = ["labels", "queries", "documents", "judgments", "query-ids", "document-ids"]
    for option in options:
        given: list[str | Path] = [f"--{option}", data, "--force"]
        commands.append(["adapt", "fit", *given, "-o", tmp_path / "link.csv"])
        commands.append(["adapt", "report", *given, "--html", data])
    commands.append(["adapt", "report", "--texts", data, "--html", data, "--force"])
    before = {path: path.read_bytes() for path in (data, metric, triplets)}
    for words in commands:
        assert "is the same file as" in usage_error(capsys, *words)
    assert {path: path.read_bytes() for path in before} == before
    assert not new.exists()


# inspect


def test_inspect_prints_eigenvalues_and_importances(
    metric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    M = Metric.load(metric).matrix
    X, _ = made_points()
    facts = json.loads(result(capsys, "inspect", metric, "--json", "--top", "2"))
    np.testing.assert_allclose(facts["eigenvalues"], np.linalg.eigvalsh(M)[:1:-1], rtol=1e-9)
    products = np.diag(M) * X.var(axis=0)
    importances = dict(zip(NAMES, products / products.sum(), strict=True))
    top = sorted(importances, key=lambda name: -importances[name])[:2]
    expected = {name: importances[name] for name in top}
    assert facts["feature_importances"] == pytest.approx(expected)
    assert "history" not in facts["origin"]
    text = result(capsys, "inspect", metric, "--top", "2")
    assert text.startswith(f"{metric}: a metric of rank 4 over 4 features\n")
    assert text.count("… and 2 more (--top)") == 2
    assert text.index(top[0]) < text.index(top[1])
    assert f"{importances[top[0]]:.1%}" in text
    assert "  Settings: max_iter=8\n" in text
    assert "  Stopped at the limit of --max-iter" in text


def test_inspect_prints_unknown_origins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Metric(np.eye(2), np.array([4.0, 0.0])).save(tmp_path / "m")
    text = result(capsys, "inspect", tmp_path / "m")
    assert "the file has no information about the fit" in text
    assert "Features by importance (M_ii; the variances are unknown)" in text
    Metric(np.empty((2, 0)), np.empty(0)).save(tmp_path / "m")
    assert "none: the metric is 0" in result(capsys, "inspect", tmp_path / "m")
    Metric(np.eye(2), np.ones(2), ("a", "b"), {"note": "by hand"}).save(tmp_path / "m")
    assert "  note: by hand\n" in result(capsys, "inspect", tmp_path / "m")
    origin = {"estimator": "BoostMetric", "status": "STOPPED"}
    for parameters, ending in (
        ({}, "Stopped by Ctrl-C"),
        ({"early_stopping": True}, "Stopped early"),
    ):
        Metric(np.eye(2), np.ones(2), origin={**origin, "parameters": parameters}).save(
            tmp_path / "m"
        )
        assert ending in result(capsys, "inspect", tmp_path / "m")
    (tmp_path / "m").write_text("no metric")
    failure(capsys, "inspect", tmp_path / "m")


ODD: list[Any] = [None, 5, float("nan"), "text", [1, "a"], {"a": [None]}]
"""Values that JSON can hold."""

FACTS = [
    *("estimator", "boostmetric", "made", "parameters", "best_params", "status", "history"),
    *("deviations", "n_samples", "n_comparisons", "n_iter", "duality_gap", "note"),
]


@pytest.mark.slow
def test_inspect_tolerates_any_origin(
    metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned = Metric.load(metric)
    path = tmp_path / "odd.bm"
    for name, value in product(FACTS, ODD):
        replace(learned, origin={**(learned.origin or {}), name: value}).save(path)
        assert call(capsys, "inspect", path).code == 0


@pytest.mark.parametrize("name", ["estimator", "parameters"])
def test_evaluate_rejects_invalid_settings(
    name: str, data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learned = Metric.load(metric)
    values = [*ODD[:-1], {"loss": 5}, {"init": "text"}, {"n_neighbors": [1, "a"]}]
    for value in values:
        replace(learned, origin={**(learned.origin or {}), name: value}).save(tmp_path / "odd.bm")
        said = call(capsys, "evaluate", tmp_path / "odd.bm", data, "-l", "kind", "--cv", "2")
        assert said.code == 1
        assert said.err.splitlines()[-1].startswith("Error: ")


# plot


@pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib")
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.parametrize("kind", ["", "spectrum", "convergence", "distances", "roc"])
def test_plot_writes_a_file(
    kind: str, data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plot.png"
    words: list[str | Path] = ["plot", metric, data, "--label", "kind", "-o", path]
    assert result(capsys, *words, *(["--kind", kind] if kind else [])) == f"Saved {path}.\n"
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert path.stat().st_size > 5000


def test_plot_requires_labels_and_history(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.png"
    assert "Use --label" in failure(capsys, "plot", metric, data, "--kind", "roc", "-o", path)
    for value in ODD:
        replace(Metric.load(metric), origin={"history": value}).save(tmp_path / "odd.bm")
        words = ["plot", str(tmp_path / "odd.bm"), "--kind", "convergence", "-o", str(path)]
        failure(capsys, *words)
    assert not path.exists()
