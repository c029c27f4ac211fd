from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import call, installed, made_csv, made_points, made_triplets, refusal, result
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

from boostmetric import BoostMetric, Comparisons, Metric, knn_error, satisfied_share
from boostmetric.cli import comparing
from boostmetric.cli.comparing import FailedError, Learner
from boostmetric.evaluation.retrieval import retrieval_scores


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_csv(tmp_path / "points.csv")


@pytest.fixture
def metric(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "m.bm"
    result(capsys, "fit", data, "-l", "kind", "-o", path, "--max-iter", "30", "--passes", "2", "-q")
    return path


def judged(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    return json.loads(result(capsys, "evaluate", *arguments, "--json"))


def test_points_are_judged_by_the_others_and_a_line_says_that_this_flatters(
    data: Path, metric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = call(capsys, "evaluate", metric, data, "--label", "kind", "-k", "1")
    assert said.code == 0
    assert "If the metric was learned from these points, that flatters it" in said.err
    assert said.err.count("\n") == 1
    found = judged(capsys, metric, data, "--label", "kind", "-k", "1")
    X, y = made_points()
    for name, Z in (("Euclidean", X), ("learned", Metric.load(metric).transform(X))):
        squares = ((Z[:, None] - Z) ** 2).sum(axis=2) + np.diag([np.inf] * len(Z))
        assert found[name]["error"] == pytest.approx(np.mean(y[squares.argmin(axis=1)] != y))
        scores = retrieval_scores(Z, y, k=1)._asdict()
        assert {key: found[name][key] for key in scores} == pytest.approx(scores)
    assert found["learned"]["error"] < found["Euclidean"]["error"]
    lines = [line.split("  ") for line in said.out.splitlines()]
    assert [line[0] for line in lines[1:]] == [
        *("1-NN error", "precision at 1", "recall at 1", "MAP", "MAP at R", "nDCG")
    ]
    assert lines[1][-1].strip() == f"{100 * found['learned']['error']:.1f} %"


def test_other_points_find_their_neighbours_in_the_data(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = made_csv(tmp_path / "test.csv", seed=1)
    words: list[str | Path] = [metric, data, "--label", "kind", "--test", test]
    said = call(capsys, "evaluate", *words)
    assert (said.code, said.err) == (0, "")
    found = judged(capsys, *words)
    (X, y), (W, z), learned = made_points(), made_points(1), Metric.load(metric)
    for name, make in (("Euclidean", np.asarray), ("learned", learned.transform)):
        error = 1 - KNeighborsClassifier(1).fit(make(X), y).score(make(W), z)
        one = judged(capsys, *words, "-k", "1")
        assert one[name]["error"] == pytest.approx(error)
        assert found[name]["error"] == pytest.approx(knn_error(make(X), y, make(W), z, 3))
        assert found[name]["n_queries"] == 60


def test_folds_learn_anew_with_the_settings_of_the_metric(
    data: Path, metric: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = made_points()
    folds = list(StratifiedKFold(3, shuffle=True, random_state=4).split(X, y))
    words: list[str | Path] = [data, "--label", "kind", "--cv", "3", "--seed", "4"]
    for given, options in (([metric], {"max_iter": 30, "n_passes": 2}), ([], {})):
        found = judged(capsys, *given, *words)["folds"]
        for fold, (rest, left_out) in zip(found, folds, strict=True):
            learner = BoostMetric(**options).fit(X[rest], y[rest])  # type: ignore[arg-type]
            Z = learner.transform(X)
            error = knn_error(Z[rest], y[rest], Z[left_out], y[left_out])
            assert fold["learned"]["error"] == pytest.approx(error)
            error = knn_error(X[rest], y[rest], X[left_out], y[left_out])
            assert fold["Euclidean"]["error"] == pytest.approx(error)
    errors = [100 * fold["learned"]["error"] for fold in found]
    said = call(capsys, "evaluate", *words)
    assert f"{np.mean(errors):.1f} ± {np.std(errors):.1f} %" in said.out
    assert said.err.splitlines()[0] == "fold 1 of 3: learning from 40 points"


def test_share_of_comparisons_with_and_without_labels(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    triplets = made_triplets(tmp_path / "t.npy")
    X, _ = made_points()
    rows = np.load(triplets)
    learned = Metric.load(metric)
    words: list[str | Path] = [metric, data, "--comparisons", triplets]
    found = judged(capsys, *words)
    near, far = (((X[rows[:, 0]] - X[rows[:, j]]) ** 2).sum(axis=1) for j in (1, 2))
    assert found["Euclidean"] == {"satisfied": pytest.approx(np.mean(near < far))}
    expected = satisfied_share(learned, X, Comparisons.from_triplets(rows))
    assert found["learned"] == {"satisfied": pytest.approx(expected)}
    assert "error" in judged(capsys, *words, "--label", "kind")["learned"]
    out = result(capsys, "evaluate", *words)
    assert out.splitlines()[1].startswith("comparisons satisfied  ")


def test_many_queries_are_drawn(
    data: Path, metric: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boostmetric.cli.judging.MAX_QUERIES", 7)
    assert judged(capsys, metric, data, "-l", "kind")["learned"]["n_queries"] == 7


def test_what_evaluate_refuses(
    data: Path, metric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str | Path) -> str:
        return refusal(capsys, "evaluate", *words)

    assert said(data, "-l", "kind") == (
        "a METRIC is needed before DATA, or --cv to learn one in each fold."
    )
    assert said(metric, data, data) == "one or two files are needed, [METRIC] DATA; got 3."
    assert said(metric, data) == (
        f"which column of {data} holds the labels? Name it by --label, or give --comparisons."
    )
    assert "2 folds at least are needed" in said(data, "-l", "kind", "--cv", "1")
    for name in ("--test", "--comparisons"):
        assert f"leave {name} out, or --cv." in said(data, "-l", "kind", "--cv", "2", name, data)
    assert "is no zip file, so boostmetric did not write it" in said(data, data, "-l", "kind")
    assert "is not there" in said(tmp_path / "no.bm", data, "-l", "kind")
    assert "Is 'kind' meant?" in said(metric, data, "-l", "kin")
    bare = tmp_path / "bare.bm"
    Metric(np.eye(4), np.ones(4)).save(bare)
    assert "does not say how it was learned" in said(bare, data, "-l", "kind", "--cv", "2")
    few = made_csv(tmp_path / "few.csv", n=6)
    assert "n_splits=5" in said(few, "-l", "kind", "--cv", "5")


# compare


def test_the_table_has_a_row_for_every_learner(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = ["euclidean", "scaled", "lda", "boostmetric", "nca"]
    words: list[str | Path] = ["compare", data, "-l", "kind", "--cv", "2", "--methods", *methods]
    rows = json.loads(result(capsys, *words, "--json"))
    assert [row["method"] for row in rows] == [
        *("Euclidean", "standardised", "LDA", "BoostMetric", "NCA")
    ]
    X, y = made_points()
    folds = list(StratifiedKFold(2, shuffle=True, random_state=0).split(X, y))
    for row, scale in zip(rows[:2], (np.ones(4), None), strict=True):
        errors = []
        for rest, left_out in folds:
            Z = X / (X[rest].std(axis=0) if scale is None else scale)
            errors.append(knn_error(Z[rest], y[rest], Z[left_out], y[left_out]))
        assert row["errors"] == pytest.approx(errors)
    assert all(len(row["seconds"]) == 2 and row["failure"] is None for row in rows)
    assert np.mean(rows[3]["errors"]) < np.mean(rows[0]["errors"])
    said = call(capsys, *words[:-2], "--seed", "1")
    assert said.err.splitlines()[0] == "Euclidean (1 of 3), 2 folds"
    assert len(said.out.splitlines()) == 4


def test_those_that_are_installed_are_compared_by_default(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, learner in comparing.LEARNERS.items():
        quick = Learner(learner.title, comparing.LEARNERS["euclidean"].learn)
        monkeypatch.setitem(comparing.LEARNERS, name, quick)
    monkeypatch.setitem(sys.modules, "metric_learn", None)
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "metric_learn" else object()
    )
    rows = json.loads(result(capsys, "compare", data, "-l", "kind", "--cv", "2", "--json"))
    assert [row["method"] for row in rows] == [
        *("Euclidean", "standardised", "LDA", "BoostMetric", "BoostMetricCV", "NCA")
    ]


def test_a_learner_that_fails_or_is_too_slow_says_so_in_its_row(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> Any:
        raise FailedError("it is Monday\nand late")

    monkeypatch.setitem(comparing.LEARNERS, "lda", Learner("LDA", fail))
    words: list[str | Path] = ["compare", data, "-l", "kind", "--cv", "2", "--limit", "1"]
    out = result(capsys, *words, "--methods", "lda", "nca", "scml", "euclidean")
    rows = {line.split("  ")[0]: line for line in out.splitlines()[1:]}
    assert "failed: it is Monday" in rows["LDA"]
    assert "failed: not finished in 1 s" in rows["NCA"]
    assert "failed: " in rows["SCML"]
    assert "±" in rows["Euclidean"]


def test_what_compare_refuses(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds the labels? Name it by --label." in refusal(
        capsys, "compare", data, "--drop", "kind"
    )
    assert "2 folds at least" in refusal(capsys, "compare", data, "-l", "kind", "--cv", "1")


def test_the_installed_command_evaluates_and_compares(
    data: Path, metric: Path, tmp_path: Path
) -> None:
    said = installed(tmp_path, "evaluate", "m.bm", "points.csv", "--label", "kind")
    assert said.code == 0
    assert said.out.splitlines()[1].startswith("3-NN error")
    words: list[str | Path] = [
        "points.csv",
        "--label",
        "kind",
        "--cv",
        "2",
        "--methods",
        "euclidean",
        "lda",
    ]
    said = installed(tmp_path, "compare", *words)
    assert said.code == 0
    assert len(said.out.splitlines()) == 3
