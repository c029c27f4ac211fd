from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_tools import (
    COMMAND,
    NAMES,
    QUICK,
    call,
    made_csv,
    made_points,
    made_triplets,
    refusal,
    result,
)

from boostmetric import BoostMetric, BoostMetricCV, Comparisons, Metric
from boostmetric.cli.progress import STOPPING, Follower
from boostmetric.estimators.callbacks import Progress

SLOW = ["--solver", "totally_corrective", "--max-iter", "1000"]
"""Settings with which a fit takes many iterations, one direction in each."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_csv(tmp_path / "points.csv")


def test_the_metric_is_that_of_the_estimator(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = result(capsys, "fit", data, "--label", "kind", "-o", tmp_path / "m.bm")
    metric = Metric.load(tmp_path / "m.bm")
    expected = BoostMetric(random_state=0).fit(*made_points()).metric_
    np.testing.assert_allclose(metric.matrix, expected.matrix, rtol=1e-9)
    assert metric.feature_names == tuple(NAMES)
    lines = out.splitlines()
    assert lines[0].startswith(f"Learned a metric of rank {len(metric.components)} over 4 features")
    assert lines[-2:] == [
        f"Saved: {tmp_path / 'm.bm'}",
        f"Next:  boostmetric evaluate {tmp_path / 'm.bm'} {data} --label kind",
    ]


def test_every_setting_reaches_the_estimator(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "--loss": "squared_hinge",
        "--solver": "stagewise",
        "--regularizer": "frobenius",
        "--alpha": "0.001",
        "--max-iter": "7",
        "--passes": "2",
        "--components": "2",
        "--neighbors": "2,4",
        "--init": "scale",
        "--seed": "5",
        "--jobs": "2",
        "--engine": "dask",
    }
    words = [word for pair in options.items() for word in pair]
    common = ["fit", str(data), "-l", "kind", "-o", str(tmp_path / "m")]
    assert result(capsys, *common, "--early-stopping", "-q", *words) == ""
    metric = Metric.load(tmp_path / "m")
    parameters = (metric.origin or {})["parameters"]
    expected = {
        "loss": "squared_hinge",
        "solver": "stagewise",
        "regularizer": "frobenius",
        "alpha": 0.001,
        "max_iter": 7,
        "n_passes": 2,
        "n_components": 2,
        "n_neighbors": [2, 4],
        "init": "scale",
        "random_state": 5,
        "n_jobs": 2,
        "engine": "dask",
        "early_stopping": True,
    }
    assert {name: parameters[name] for name in expected} == expected
    assert len(metric.components) <= 2
    result(capsys, *common, "--force", "--components", "0.5", *QUICK)
    assert (Metric.load(tmp_path / "m").origin or {})["parameters"]["n_components"] == 0.5


def test_columns_and_drop(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["fit", str(data), "--label", "kind", "--force", "-o", str(tmp_path / "m"), *QUICK]
    result(capsys, *common, "--drop", "noise", "depth")
    assert Metric.load(tmp_path / "m").feature_names == ("height", "width")
    result(capsys, *common, "--columns", "width", "height")
    assert Metric.load(tmp_path / "m").feature_names == ("width", "height")


def test_from_triplets_without_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = made_points()
    np.savez(tmp_path / "t.npz", X=X, y=y)  # labels that are there but not asked for
    triplets = made_triplets(tmp_path / "triplets.npy")
    words = ["fit", str(tmp_path / "t.npz"), "-c", str(triplets), "-o", str(tmp_path / "m")]
    out = result(capsys, *words)
    comparisons = Comparisons.from_triplets(np.load(triplets), n_points=len(X))
    expected = BoostMetric(random_state=0).fit(X, comparisons=comparisons).metric_
    np.testing.assert_allclose(Metric.load(tmp_path / "m").matrix, expected.matrix, rtol=1e-9)
    assert "from 200 comparisons." in out
    assert f"--comparisons {triplets}" in out
    out = result(capsys, *words, "--label", "y", "--force")
    both = BoostMetric(random_state=0).fit(X, y, comparisons=comparisons).metric_
    np.testing.assert_allclose(Metric.load(tmp_path / "m").matrix, both.matrix, rtol=1e-9)
    assert "--label y" in out


def test_the_command_to_go_on_with_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = made_csv(tmp_path / "my points.csv")
    out = result(capsys, "fit", data, "-l", "kind", "-o", tmp_path / "m", *QUICK)
    assert f"'{data}' --label kind" in out


def test_choose_is_the_estimator_that_chooses(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = [{"loss": "logistic", "max_iter": 20}, {"loss": "exponential", "max_iter": 20}]
    monkeypatch.setattr("boostmetric.estimators.cv.RECIPE", recipe)
    said = call(capsys, "fit", data, "-l", "kind", "-o", tmp_path / "m", "--choose", "--seed", "3")
    assert said.code == 0
    X, y = made_points()
    expected = BoostMetricCV(random_state=3).fit(X, y)
    matrix = Metric.load(tmp_path / "m").matrix
    np.testing.assert_allclose(matrix, expected.metric_.matrix, rtol=1e-6, atol=1e-9)
    assert f"{100 * expected.best_error_:.1f} % error on held-out points." in said.out
    assert "Chosen: loss=" in said.out
    assert said.err.count("error 0.") == 2


def test_svmlight_needs_no_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = made_points()
    codes = np.unique(y, return_inverse=True)[1]
    lines = [
        f"{code} " + " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(map(float, row)))
        for row, code in zip(X, codes, strict=True)
    ]
    (tmp_path / "t.svm").write_text("\n".join(lines) + "\n")
    result(capsys, "fit", tmp_path / "t.svm", "-o", tmp_path / "m", *QUICK)
    assert Metric.load(tmp_path / "m").n_features == 4
    assert "3-NN error" in result(capsys, "evaluate", tmp_path / "m", tmp_path / "t.svm")


def test_a_resumed_fit_may_be_the_first_one(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # So that the same line can be run until it succeeds.
    checkpoint = ["--checkpoint", str(tmp_path / "c"), "--resume"]
    target = tmp_path / "m.bm"
    said = call(capsys, "fit", data, "-l", "kind", "-o", target, "--max-iter", "5", *checkpoint)
    assert said.code == 0
    assert "yet: this is the beginning." in said.err
    first = Metric.load(target)
    target.unlink()
    assert (
        call(
            capsys, "fit", data, "-l", "kind", "-o", target, "--max-iter", "5", *checkpoint
        ).err.count("beginning")
        == 0
    )
    assert np.array_equal(Metric.load(target).directions, first.directions)


def test_what_is_refused_before_any_work(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(*arguments: object, **options: object) -> None:
        raise AssertionError("it was fitted")

    monkeypatch.setattr(BoostMetric, "fit", fit)
    monkeypatch.setattr(BoostMetricCV, "fit", fit)
    target = tmp_path / "m.bm"
    common = ["fit", str(data), "-o", str(target)]
    labelled = [*common, "-l", "kind"]
    assert refusal(capsys, *common, "--drop", "kind") == (
        f"which column of {data} holds the labels? Name it by --label, or give --comparisons."
    )
    assert "Is 'kind' meant?" in refusal(capsys, *common, "-l", "kinds")
    assert "No such file" in refusal(capsys, *labelled, "--comparisons", "nosuch.npy")
    triplets = made_triplets(tmp_path / "t.npy")
    for others in (["--loss", "hinge"], ["--max-iter", "5"], ["--comparisons", str(triplets)]):
        assert refusal(capsys, *labelled, "--choose", *others) == (
            f"--choose finds settings from labels alone: leave {others[0]} out."
        )
    checkpoint = ["--checkpoint", str(tmp_path / "c")]
    assert "leave --checkpoint out" in refusal(capsys, *labelled, "--choose", *checkpoint)
    assert "name it by --checkpoint" in refusal(capsys, *labelled, "--resume")
    (tmp_path / "c").touch()
    assert "--resume goes on from it" in refusal(capsys, *labelled, *checkpoint)
    folder = tmp_path / "no" / "m"
    assert refusal(capsys, "fit", data, "-l", "kind", "-o", folder) == (
        f"there is no folder {folder.parent} to write m to: make it."
    )
    assert "is a folder" in refusal(capsys, "fit", data, "-l", "kind", "-o", tmp_path)
    target.write_text("old")
    assert refusal(capsys, *labelled) == (
        f"{target} is there already: --force writes over it, or name another."
    )
    assert target.read_text() == "old"


def test_a_folder_that_cannot_be_written_to(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "fit", data, "-l", "kind", "-o", "/proc/m")
    assert said.startswith("cannot write to the folder /proc: ")


def test_errors_of_the_library_are_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["fit", str(data), "-o", str(tmp_path / "m"), "-l", "kind"]
    assert "must be below 1" in refusal(capsys, *common, "--alpha", "2")
    triplets = made_triplets(tmp_path / "t.npy")
    words = [*common[:4], "--comparisons", str(triplets), "--drop", "kind", "--passes", "2"]
    assert "requires y." in refusal(capsys, *words)
    assert not (tmp_path / "m").exists()


# Progress.


def told(number: int = 1, n_directions: int = 5) -> Progress:
    return Progress(number, 2, n_directions, 100, 12.5, 0.25, 3, 4500, 0.5)


def test_lines_come_now_and_then_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("boostmetric.cli.progress.time.monotonic", lambda: clock[0])
    with Follower() as follower:
        for _ in range(25):
            assert follower(told()) is False
            clock[0] += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines
        == [
            "pass 1 of 2, direction 5 of 100: objective 12.5, λ_max 0.25, 3 of 4,500 comparisons "
            "violated"
        ]
        * 2
    )
    with Follower(quiet=True) as follower:
        clock[0] += 100
        follower(told())
    assert capsys.readouterr().err == ""


def test_the_first_ctrl_c_asks_for_the_end_and_the_second_ends() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Follower(quiet=True) as follower:
        assert follower(told()) is False
        signal.raise_signal(signal.SIGINT)
        assert follower(told()) is True
        assert follower.interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_before_the_first_iteration_ends_at_once() -> None:
    with Follower(quiet=True) as follower:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not follower.interrupted


def test_ctrl_c_in_the_search_for_neighbors_ends_the_command(
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
    assert said == (130, "", "boostmetric: interrupted; no metric was saved.\n")
    assert not went_on
    assert not (tmp_path / "m.bm").exists()


def test_ctrl_c_ends_a_search_that_is_under_way(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "t.npz", X=rng.normal(size=(20_000, 60)), y=rng.integers(0, 5, 20_000))
    program = (
        "import sys\n"
        "from boostmetric.cli import main\n"
        "from boostmetric.neighbors import exact\n"
        "run = exact._Search.run\n"
        "def announced(self):\n"
        "    print('searching', flush=True)\n"
        "    while True:\n"
        "        run(self)\n"
        "exact._Search.run = announced\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program, "fit", "t.npz", "-o", "m.bm"],
        cwd=tmp_path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "searching\n"
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert err == "boostmetric: interrupted; no metric was saved.\n"
    assert not (tmp_path / "m.bm").exists()


def test_an_interrupted_fit_saves_what_it_has_learned_and_can_be_gone_on_with(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_csv(tmp_path / "points.csv")
    monkeypatch.chdir(tmp_path)
    words = ["fit", "points.csv", "-l", "kind", "-o", "m.bm", "--checkpoint", "c.ckpt"]
    follow = Follower.__call__

    def interrupted(self: Follower, progress: Progress) -> bool:
        is_over = follow(self, progress)
        if not self.interrupted:  # in the middle of the second step, which is not taken
            signal.raise_signal(signal.SIGINT)
        return is_over

    with monkeypatch.context() as patch:
        patch.setattr(Follower, "__call__", interrupted)
        said = call(capfd, *words, *SLOW)
    assert said.code == 130
    assert said.err == f"{STOPPING}\n"
    assert "Ctrl-C ended the fit early." in said.out
    assert "Saved: m.bm" in said.out
    first = Metric.load(tmp_path / "m.bm")
    assert (first.origin or {})["status"] == "STOPPED"
    assert (first.origin or {})["n_iter"] == 1
    resumed = [*words, "--resume", "--force"]
    assert "is the checkpoint of an unfinished fit with" in refusal(capfd, *resumed, *QUICK)
    monkeypatch.setattr(Follower, "__call__", lambda self, progress: True)
    result(capfd, *resumed, *SLOW)
    assert (Metric.load(tmp_path / "m.bm").origin or {})["n_iter"] == 2


def test_a_live_bar_in_a_terminal(data: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [COMMAND, "fit", "points.csv", "-l", "kind", "-o", "m.bm", "--max-iter", "40"],
        cwd=tmp_path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "80", "TERM": "xterm"},
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
    text = shown.decode()
    assert "pass 1 of 1" in text
    assert "objective" in text
    assert "\x1b[" in text
    assert "\x1b[" not in out
