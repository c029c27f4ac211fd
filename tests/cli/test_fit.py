from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_tools import (
    NAMES,
    QUICK,
    call,
    failure,
    made_csv,
    made_points,
    made_triplets,
    result,
    usage_error,
)

from boostmetric import BoostMetric, BoostMetricCV, Comparisons, Metric, knn_error
from boostmetric.cli.console import FitProgress
from boostmetric.estimators.callbacks import Progress

SLOW = ["--solver", "totally_corrective", "--max-iter", "1000", "--passes", "2"]
"""Settings with which a fit takes many steps."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_csv(tmp_path / "points.csv")


def test_fit_matches_the_estimator(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = result(capsys, "fit", data, "--label", "kind", "-o", tmp_path / "m.bm")
    metric = Metric.load(tmp_path / "m.bm")
    X, y = made_points()
    expected = BoostMetric(random_state=0).fit(X, y)
    np.testing.assert_allclose(metric.matrix, expected.metric_.matrix, rtol=1e-9)
    assert metric.feature_names == tuple(NAMES)
    lines = out.splitlines()
    assert lines[0].startswith(f"Learned a metric of rank {len(metric.components)} over 4 features")
    start, learned = (f"{100 * expected.errors_[name]:.1f}%" for name in ("start", "learned"))
    assert lines[1].startswith("Errors on halves of the data that were not learned from: ")
    assert f": {start} before learning, {learned} after (gain " in lines[1]
    spaces = {"raw": X, "standardized": X / X.std(axis=0), "learned": metric.transform(X)}
    errors = [f"{100 * knn_error(Z, y):.1f}% {name}" for name, Z in spaces.items()]
    assert f"3-NN error on the training data (leave-one-out): {', '.join(errors)}." in lines[2]
    assert lines[3] == f"Saved {tmp_path / 'm.bm'}. For an estimate on unseen points:"
    assert lines[4] == f"  boostmetric evaluate {tmp_path / 'm.bm'} {data} --label kind --cv 5"
    assert "3-NN error" in result(capsys, *shlex.split(lines[4])[1:])


def test_suggested_command_reads_the_same_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = made_points()
    X[0, 0] = np.nan
    table = pd.DataFrame(X, columns=NAMES).assign(kind=y, id=range(len(X)))
    table.to_csv(tmp_path / "points.csv", sep=";", decimal=",", index=False)
    reading = ["--label", "kind", "--drop", "id", "--sep", ";", "--decimal", ",", "--dropna"]
    out = result(capsys, "fit", tmp_path / "points.csv", "-o", tmp_path / "m.bm", *reading)
    assert "3-NN error" in result(capsys, *shlex.split(out.splitlines()[-1])[1:])


def test_fit_passes_options_to_the_estimator(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "--loss": ("squared_hinge", "loss", "squared_hinge"),
        "--solver": ("stagewise", "solver", "stagewise"),
        "--regularizer": ("frobenius", "regularizer", "frobenius"),
        "--alpha": ("0.001", "alpha", 0.001),
        "--max-iter": ("9", "max_iter", 9),
        "--passes": ("2", "n_passes", 2),
        "--components": ("3", "n_components", 3),
        "--neighbors": ("2", "n_neighbors", [2, 4]),
        "--impostors": ("4", "n_neighbors", [2, 4]),
        "--init": ("scale", "init", "scale"),
        "--seed": ("7", "random_state", 7),
        "--jobs": ("1", "n_jobs", 1),
    }
    words = [word for option, (value, *_) in options.items() for word in (option, value)]
    words += ["--early-stopping", "-q"]
    assert result(capsys, "fit", data, "-l", "kind", "-o", tmp_path / "m", *words) == ""
    parameters = (Metric.load(tmp_path / "m").origin or {})["parameters"]
    for _, name, expected in options.values():
        assert parameters[name] == expected
    assert parameters["early_stopping"] is True


def test_fit_accepts_a_share_of_components(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fit", str(data), "-l", "kind", "-o", str(tmp_path / "m"), "-q", *QUICK]
    result(capsys, *words, "--components", "0.5")
    assert (Metric.load(tmp_path / "m").origin or {})["parameters"]["n_components"] == 0.5
    said = usage_error(capsys, *words, "--force", "--components", "1.5")
    assert "--components must be an integer >= 1, or a fraction below 1; got 1.5." in said


def test_tabs_can_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "t.csv"
    pd.read_csv(made_csv(data)).to_csv(data, index=False, sep="\t")
    words = ["fit", str(data), "-l", "kind", "-o", str(tmp_path / "m"), "-q", *QUICK]
    assert r"use --sep '\t'" in failure(capsys, *words)
    result(capsys, *words, "--sep", r"\t")


def test_fit_from_triplets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, _ = made_points()
    np.save(tmp_path / "p.npy", X)
    triplets = made_triplets(tmp_path / "t.npy")
    words = ["fit", str(tmp_path / "p.npy"), "-c", str(triplets), "-o", str(tmp_path / "m")]
    out = result(capsys, *words)
    expected = BoostMetric(random_state=0).fit(
        X, comparisons=Comparisons.from_triplets(np.load(triplets))
    )
    np.testing.assert_allclose(
        Metric.load(tmp_path / "m").matrix, expected.metric_.matrix, rtol=1e-9
    )
    assert out.splitlines()[1].startswith("Violated comparisons on halves of the data")
    assert out.splitlines()[2].startswith("Training comparisons satisfied: ")


def test_fit_from_labels_and_comparisons(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    triplets = made_triplets(tmp_path / "t.npy")
    result(capsys, "fit", data, "-l", "kind", "-c", triplets, "-o", tmp_path / "m", *QUICK)
    assert (Metric.load(tmp_path / "m").origin or {})["n_comparisons"] == 60 * 4 * 8 + 200


@pytest.mark.slow
def test_choose_matches_the_estimator(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = call(capsys, "fit", data, "-l", "kind", "-o", tmp_path / "m", "--choose")
    assert said.code == 0
    lines = [line for line in said.err.splitlines() if line.startswith("fold ")]
    expected = BoostMetricCV(random_state=0).fit(*made_points())
    results = expected.cv_results_
    scores = [results[f"split{number}_test_score"] for number in range(3)]
    assert len(lines) == np.isfinite(scores).sum()
    assert "fold 1 of 3, candidate 2 of 7, {'init': 'scale'}: score" in lines[1]
    np.testing.assert_allclose(Metric.load(tmp_path / "m").matrix, expected.metric_.matrix)
    assert f"score {expected.best_score_:.3f} on held-out data. Best candidate: init" in said.out


@pytest.mark.slow
def test_choose_from_comparisons(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    triplets = made_triplets(tmp_path / "t.npy")
    options = ["--choose", "--components", "2", "--drop", "kind"]
    said = result(capsys, "fit", data, "-c", triplets, "-o", tmp_path / "m", *options)
    assert "Learned a metric of rank 2" in said
    assert "Metrics averaged: " in said


def test_fit_from_svmlight_uses_its_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.svm").write_text("0 1:1 2:3\n1 1:2\n0 2:2\n1 1:4 2:1\n")
    words = ["fit", str(tmp_path / "t.svm"), "-o", str(tmp_path / "m"), "--neighbors", "1"]
    assert "3-NN error" in result(capsys, *words)
    assert "--init pca does not support sparse data" in failure(
        capsys, *words, "--force", "--init", "pca"
    )


@pytest.mark.parametrize(
    ("options", "ending"),
    [
        (["--max-iter", "2"], "Stopped at the limit of --max-iter"),
        ([], "Finished: further directions would hardly change the metric."),
        (["--solver", "totally_corrective"], "Converged to the optimum."),
    ],
)
def test_fit_prints_the_ending(
    options: list[str], ending: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending in result(capsys, "fit", data, "-l", "kind", "-o", tmp_path / "m", *options)


# Progress and Ctrl-C


def progress(number: int = 1, n_directions: int = 5) -> Progress:
    return Progress(number, 2, n_directions, 100, 12.5, 0.25, 3, 4500, 0.5)


@pytest.mark.parametrize(
    ("quiet", "seconds_per_line", "n_lines"), [(False, 0, 3), (False, 1e6, 0), (True, 0, 0)]
)
def test_progress_prints_lines_without_a_terminal(
    quiet: bool, seconds_per_line: float, n_lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with FitProgress(quiet, seconds_per_line) as follower:
        follower.begin_pass(1, 2)
        for _ in range(2):
            assert follower(progress()) is False
    lines = ["Pass 1 of 2: searching neighbors"]
    lines += 2 * ["Pass 1 of 2: 5 of at most 100 directions, 3 of 4,500 comparisons violated"]
    assert capsys.readouterr().err.splitlines() == lines[:n_lines]


def test_progress_names_every_search(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(FitProgress, "_show", lambda self, text: shown.append(text))
    result(capsys, "fit", data, "-l", "kind", "-o", tmp_path / "m.bm", "--passes", "2", *SLOW)
    first, second = (shown.index(f"Pass {n} of 2: searching neighbors") for n in (1, 2))
    assert first == 0
    assert all(text.startswith("Pass 1 of 2: ") for text in shown[:second])
    assert all("at most" in text for text in shown[second + 1 :])


def test_second_ctrl_c_raises() -> None:
    before = signal.getsignal(signal.SIGINT)
    with FitProgress(quiet=True) as follower:
        assert follower(progress()) is False
        signal.raise_signal(signal.SIGINT)
        assert follower(progress()) is True
        assert follower.interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_during_neighbor_search_saves_nothing(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    went_on = []

    def interrupted_search(*arguments: object, **options: object) -> None:
        signal.raise_signal(signal.SIGINT)
        went_on.append(True)

    monkeypatch.setattr(
        "boostmetric.problem.comparisons.nearest_targets_and_impostors", interrupted_search
    )
    said = call(capfd, "fit", data, "-l", "kind", "-o", tmp_path / "m.bm")
    assert said == (130, "", "Interrupted; nothing was saved.\n")
    assert not went_on
    assert not (tmp_path / "m.bm").exists()


def test_interrupted_fit_can_be_resumed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_csv(tmp_path / "points.csv")
    monkeypatch.chdir(tmp_path)
    words = ["fit", "points.csv", "-l", "kind", "-o", "m.bm", "--checkpoint", "c.ckpt"]
    follow = FitProgress.__call__

    def interrupted(self: FitProgress, state: Progress) -> bool:
        is_over = follow(self, state)
        if not self.interrupted:  # in the middle of the second step, which is not taken
            signal.raise_signal(signal.SIGINT)
        return is_over

    with monkeypatch.context() as patch:
        patch.setattr(FitProgress, "__call__", interrupted)
        said = call(capfd, *words, *SLOW)
    assert said.code == 130
    assert said.err == f"{FitProgress.STOPPING}\n"
    assert "Stopped by Ctrl-C" in said.out
    assert "Saved m.bm" in said.out
    first = Metric.load(tmp_path / "m.bm").origin or {}
    assert (first["status"], len(first["history"]["pass"])) == ("STOPPED", 1)
    assert "Stopped by Ctrl-C" in result(capfd, "inspect", "m.bm")
    resumed = [*words, "--resume", "--force"]
    failure(capfd, *resumed, *QUICK)  # other settings
    monkeypatch.setattr(FitProgress, "__call__", lambda self, state: True)
    result(capfd, *resumed, *SLOW)
    second = Metric.load(tmp_path / "m.bm").origin or {}
    assert len(second["history"]["pass"]) == 2


@pytest.mark.slow
def test_progress_shows_a_bar_in_a_terminal(data: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = ["fit", "points.csv", "-l", "kind", "-o", "m.bm", "--passes", "2"]
    run = subprocess.Popen(
        [sys.executable, "-m", "boostmetric", *words],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    out, _ = run.communicate(timeout=60)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # the end of a terminal whose other side is closed
        pass
    os.close(ours)
    assert run.returncode == 0
    assert "Pass 2 of 2: " in shown.decode()  # the bar is drawn once more at the end
    assert "None" not in shown.decode()
    assert "\x1b[" in shown.decode()
    assert "\x1b[" not in out
