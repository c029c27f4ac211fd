from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_tools import call, failure, made_csv, made_points, made_triplets, result
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from boostmetric import BoostMetric, Comparisons, Metric, knn_error, satisfied_share
from boostmetric.cli.compare import TITLES


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_csv(tmp_path / "points.csv")


@pytest.fixture
def metric(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "m.bm"
    result(capsys, "fit", data, "-l", "kind", "-o", path, "--max-iter", "30", "--passes", "2", "-q")
    return path


def scores(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    return json.loads(result(capsys, "evaluate", *arguments, "--json"))


def test_evaluate_leaves_one_out(
    data: Path, metric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = made_points()
    found = scores(capsys, metric, data, "-l", "kind", "-k", "5")
    for name, Z in {
        "raw": X,
        "standardized": StandardScaler().fit_transform(X),
        "learned": Metric.load(metric).transform(X),
    }.items():
        assert found[name]["error"] == pytest.approx(knn_error(Z, y, n_neighbors=5))
    said = call(capsys, "evaluate", metric, data, "-l", "kind")
    assert "too optimistic" in said.err
    assert said.out.split()[:3] == ["raw", "standardized", "learned"]


def test_evaluate_classifies_test_points(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (X, y), (W, z) = made_points(), made_points(seed=1)
    other = made_csv(tmp_path / "other.csv", seed=1)
    found = scores(capsys, metric, data, "-l", "kind", "--test", other)
    transform = Metric.load(metric).transform
    assert found["learned"]["error"] == pytest.approx(knn_error(transform(X), y, transform(W), z))
    assert found["raw"]["error"] == pytest.approx(knn_error(X, y, W, z))
    cats = tmp_path / "cats.csv"
    frame = pd.read_csv(other)
    frame[frame["kind"] == "cat"].to_csv(cats, index=False)
    found = scores(capsys, metric, data, "-l", "kind", "--test", cats)
    assert found["raw"]["error"] == pytest.approx(knn_error(X, y, W[z == "cat"], z[z == "cat"]))


def test_cross_validation_uses_settings_of_the_metric(
    data: Path, metric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = made_points()
    folds = list(StratifiedKFold(3, shuffle=True, random_state=4).split(X, y))
    words: list[str | Path] = [data, "--label", "kind", "--cv", "3", "--seed", "4"]
    for given, options in (([metric], {"max_iter": 30, "n_passes": 2}), ([], {})):
        found = scores(capsys, *given, *words)["folds"]
        for fold, (train, test) in zip(found, folds, strict=True):
            Z = BoostMetric(**options).fit(X[train], y[train]).transform(X)  # type: ignore[arg-type]
            error = knn_error(Z[train], y[train], Z[test], y[test])
            assert fold["learned"]["error"] == pytest.approx(error)
    errors = [100 * fold["learned"]["error"] for fold in found]
    said = call(capsys, "evaluate", *words)
    assert f"{np.mean(errors):.1f} ± {np.std(errors):.1f}%" in said.out
    assert said.err.splitlines()[0] == "Fold 1 of 3: learning from 40 points"


def test_evaluate_counts_satisfied_comparisons(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    triplets = made_triplets(tmp_path / "t.npy")
    X, _ = made_points()
    rows = np.load(triplets)
    words: list[str | Path] = [metric, data, "--comparisons", triplets]
    found = scores(capsys, *words)
    near, far = (((X[rows[:, 0]] - X[rows[:, j]]) ** 2).sum(axis=1) for j in (1, 2))
    assert found["raw"] == {"satisfied": pytest.approx(np.mean(near < far))}
    expected = satisfied_share(Metric.load(metric), X, Comparisons.from_triplets(rows))
    assert found["learned"] == {"satisfied": pytest.approx(expected)}
    assert "error" in scores(capsys, *words, "--label", "kind")["learned"]


def test_evaluate_requires_labels_and_settings(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Use --label" in failure(capsys, "evaluate", metric, data)
    Metric(np.eye(4), np.ones(4)).save(tmp_path / "bare.bm")
    words = ["evaluate", str(tmp_path / "bare.bm"), str(data), "-l", "kind", "--cv", "2"]
    assert "does not contain the settings" in failure(capsys, *words)


@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_folds_are_compared_with_the_classes(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "t.csv"
    data.write_text("a,kind\n" + "1,x\n2,x\n3,x\n4,y\n5,y\n")
    words = [command, str(data), "-l", "kind", "--cv"]
    assert "--cv 4 exceeds the 3 points of the largest class" in failure(capsys, *words, "4")
    methods = ["--method", "raw"] if command == "compare" else []
    said = call(capsys, *words, "3", *methods)
    assert said.code == 0
    assert "Warning: the smallest class has fewer points (2) than folds (3)." in said.err
    assert "n_splits" not in said.err


# compare


@pytest.mark.slow
def test_compare_lists_all_methods(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words: list[str | Path] = ["compare", data, "-l", "kind", "--cv", "2"]
    rows = json.loads(result(capsys, *words, "--json"))
    assert [row["method"] for row in rows] == list(TITLES.values())
    assert all(len(row["errors"]) == len(row["seconds"]) == 2 for row in rows)
    X, y = made_points()
    folds = StratifiedKFold(2, shuffle=True, random_state=0).split(X, y)
    errors = [knn_error(X[train], y[train], X[test], y[test]) for train, test in folds]
    assert rows[0]["errors"] == pytest.approx(errors)
    text = result(capsys, *words, "--method", "raw", "--method", "lda").splitlines()
    assert [line[:15].strip() for line in text] == ["", "raw Euclidean", "LDA"]
    assert f"{100 * np.mean(errors):.1f} ± {100 * np.std(errors):.1f}%" in text[1]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("too\nmuch"), "too"),
        (MemoryError(), "not enough memory"),
        (MemoryError("Unable to allocate 2 TiB"), "Unable to allocate 2 TiB"),
        (RuntimeError("broken"), "broken"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_compare_reports_failed_methods(
    error: Exception,
    reason: str,
    data: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("boostmetric.estimators.BoostMetric.fit", fail)
    words = ["compare", str(data), "-l", "kind", "--method", "boostmetric", "--method", "raw"]
    text = result(capsys, *words).splitlines()
    assert text[1].split(maxsplit=1) == ["BoostMetric", f"failed: {reason}"]
    assert text[2].startswith("raw Euclidean")
    failed, raw = json.loads(result(capsys, *words, "--json"))
    assert (failed["failure"], raw["failure"]) == (reason, None)
    assert len(raw["errors"]) == 5
    assert call(capsys, *words[:6], "--json").code == 1  # no method has succeeded
