"""The paper's experiments: their cells, the computation of a cell, and the commands."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from boostmetric import BoostMetric, BoostMetricCV, Comparisons, Trace
from boostmetric.data.synthetic import balance_scale, concentric_circles
from boostmetric_paper.cli import main
from boostmetric_paper.datasets import NAMES, DatasetError, Part, Split, paper_split
from boostmetric_paper.datasets.catalogue import entry_of
from boostmetric_paper.experiments import methods
from boostmetric_paper.experiments.cells import Cell, Processes, Record, Results
from boostmetric_paper.experiments.experiment import ExperimentError
from boostmetric_paper.experiments.methods import METHODS
from boostmetric_paper.experiments.paper import PAPER
from boostmetric_paper.experiments.registry import EXPERIMENTS
from boostmetric_paper.experiments.tables import (
    ALPHAS,
    REDUCED,
    run_circles,
    run_runtime,
    run_table1,
    run_table2,
    too_slow,
)
from boostmetric_paper.peers import PEERS, Learned, PeerError, fit_in_subprocess

SLOW = ("nca", "lmnn", "itml", "hinge")

LARGE = {"mnist": 1, "usps": 10, "letter": 10, "yfaces": 10}
"""Numbers of splits of the datasets on which slow methods run once."""


def sklearn_error(A: NDArray, a: NDArray, B: NDArray, b: NDArray, k: int = 3) -> float:
    return float(np.mean(KNeighborsClassifier(k).fit(A, a).predict(B) != b))


def nearest_error(A: NDArray, a: NDArray, B: NDArray, b: NDArray, k: int = 3) -> float:
    """The error with ties broken in favor of the nearest point, by a loop over the points."""
    wrong = []
    for x, label in zip(B, b, strict=True):
        order = np.argsort(np.sum((A - x) ** 2, axis=1), kind="stable")[:k]
        votes = Counter(a[order].tolist())
        winner = next(a[i] for i in order if votes[a[i]] == max(votes.values()))
        wrong.append(winner != label)
    return float(np.mean(wrong))


def wine_split(seed: int) -> tuple[NDArray, NDArray, NDArray, NDArray, NDArray, NDArray]:
    X, y = load_wine(return_X_y=True)
    parts = paper_split(178, (125, 27, 26), seed)
    A, V, B = (X[rows] for rows in parts)
    a, v, b = (y[rows] for rows in parts)
    return A, a, V, v, B, b


def test_cells_of_table_1() -> None:
    cells = EXPERIMENTS["table1"].cells()
    counts = Counter((cell.dataset, cell.method) for cell in cells)
    assert len(set(cells)) == len(cells)
    for dataset in ("mnist", "usps", "letter", "yfaces", "balance", "wine", "iris"):
        for method in METHODS:
            expected = LARGE.get(dataset, 10)
            if dataset in LARGE and method in SLOW:
                expected = 1
            if method == "pca" and dataset in ("letter", "balance", "wine", "iris"):
                expected = 0
            assert counts[dataset, method] == expected, (dataset, method)
            seeds = [c.seed for c in cells if (c.dataset, c.method) == (dataset, method)]
            assert seeds == list(range(expected))
    # 17 methods on mnist; 13 quick and 4 slow ones, without PCA on letter; 16 on the small sets.
    assert len(cells) == 17 + 2 * (13 * 10 + 4) + (12 * 10 + 4) + 3 * 16 * 10


def test_numbers_of_cells() -> None:
    assert len(EXPERIMENTS["table2"].cells()) == 3 * 5 * 10
    assert len(EXPERIMENTS["circles"].cells()) == 3 * 10
    assert len(EXPERIMENTS["runtime"].cells()) == 3 * 6 * 3
    assert all(
        cell.experiment == name for name in EXPERIMENTS for cell in EXPERIMENTS[name].cells()
    )


def test_selection_combines_datasets_methods_and_seeds() -> None:
    assert EXPERIMENTS["table1"].cells(["usps", "iris"], ["lmnn", "lda"], [7, 2]) == [
        Cell("table1", dataset, method, seed)
        for dataset in ("usps", "iris")
        for method in ("lmnn", "lda")
        for seed in (7, 2)
    ]
    assert EXPERIMENTS["table1"].cells(["wine"], ["pca"], [0]) == []


@pytest.mark.parametrize("name", ["table1", "lfw"])
@pytest.mark.parametrize("kind", ["dataset", "method"])
def test_error_of_unknown_name_lists_known_names(name: str, kind: str) -> None:
    known = getattr(EXPERIMENTS[name], f"{kind}s")
    with pytest.raises(ExperimentError, match=f"{name} has no {kind} 'nosuch'") as caught:
        EXPERIMENTS[name].cells(**{f"{kind}s": [known[0], "nosuch"]})
    assert ", ".join(known) in str(caught.value)


def test_columns_of_table_2_are_alphas() -> None:
    for name, alpha in ALPHAS.items():
        assert alpha == pytest.approx(float(name.removeprefix("v=")), rel=1e-12)


def test_pca_row_only_for_reduced_datasets() -> None:
    datasets = EXPERIMENTS["table1"].datasets
    assert set(REDUCED) == {name for name in datasets if entry_of(name).n_pca is not None}
    assert set(REDUCED) == set(PAPER["table1"]["errors"]["PCA"])


def test_slow_methods_have_ten_minutes() -> None:
    limits = {
        cell.method: EXPERIMENTS["table1"].limit_of(cell) for cell in EXPERIMENTS["table1"].cells()
    }
    assert {name for name, limit in limits.items() if limit == 600} == set(SLOW)
    assert {limit for name, limit in limits.items() if name not in SLOW} == {3 * 3600}
    assert {EXPERIMENTS["runtime"].limit_of(cell) for cell in EXPERIMENTS["runtime"].cells()} == {
        200
    }


def test_too_slow_skips_larger_problems() -> None:
    late: Record = {"failure": "not finished in 200 s", "limit": 200.0}
    known = {
        Cell("runtime", "250x100", "lmnn", 0): late,
        Cell("runtime", "2500x50", "lmnn", 0): {"failure": "needs more than 16 GB"},
        Cell("runtime", "250x50", "boostmetric-e", 0): {"fit_seconds": 300.0},
    }

    def given_up(dataset: str, method: str, experiment: str = "runtime") -> bool:
        return too_slow(Cell(experiment, dataset, method, 0), known, 200.0) is not None

    assert too_slow(Cell("runtime", "250x200", "lmnn", 0), known, 200.0) == (
        "not run: D = 100 was not finished in 200 s"
    )
    assert too_slow(Cell("runtime", "250x200", "lmnn", 0), known, 300.0) is None
    assert given_up("250x1000", "lmnn")
    assert not given_up("250x100", "lmnn")
    assert not given_up("250x50", "lmnn")
    assert not given_up("2500x200", "lmnn")
    assert not given_up("250x200", "mlpack-lmnn")
    assert not given_up("250x200", "boostmetric-e")
    assert not given_up("wine", "lmnn", "table1")


@pytest.mark.parametrize(("method", "seed"), [("euclidean", 0), ("lda", 1)])
def test_cell_of_table_1_matches_scikit_learn(method: str, seed: int) -> None:
    A, a, V, v, B, b = wine_split(seed)
    if method == "lda":
        lda = LinearDiscriminantAnalysis().fit(A, a)
        A, V, B = (lda.transform(part) for part in (A, V, B))
    record = run_table1(Cell("table1", "wine", method, seed))
    assert record["error"] == pytest.approx(sklearn_error(A, a, B, b))
    assert record["error_nearest"] == pytest.approx(nearest_error(A, a, B, b))
    assert record["validation_error"] == pytest.approx(sklearn_error(A, a, V, v))
    assert record["fit_seconds"] >= 0
    assert record["processor_seconds"] >= 0


@pytest.mark.parametrize("name", ["boostmetric-l", "hinge", "nca", "lda", "euclidean"])
def test_methods_of_table_1_ignore_test_part(name: str) -> None:
    A, a, V, v, B, b = wine_split(0)
    train, validation = Part(A[::2], a[::2]), Part(V, v)
    tests = Part(B, b), Part(np.full((7, 13), np.nan), np.full(7, -1))
    first, second = (METHODS[name].learn(Split(train, validation, test), 0) for test in tests)
    np.testing.assert_array_equal(first.transform(A), second.transform(A))
    assert (first.L is None) == (name == "euclidean")
    if name == "boostmetric-l":
        assert first.measures["iterations"] > 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("boostmetric-e", {"loss": "exponential"}),
        ("boostmetric-l", {"loss": "logistic"}),
        ("boostmetric-e-mp", {"loss": "exponential", "n_passes": 3}),
        ("boostmetric-l-tc", {"loss": "logistic", "solver": "totally_corrective"}),
        (
            "boostmetric-e-mp-tc",
            {"loss": "exponential", "n_passes": 3, "solver": "totally_corrective"},
        ),
        ("recipe", None),
    ],
)
def test_names_of_boosting_methods_match_options(
    name: str, options: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def fit(learner: Any, *data: Any, **options: Any) -> None:
        made.append(learner)
        raise InterruptedError

    for estimator in (BoostMetric, BoostMetricCV):
        monkeypatch.setattr(estimator, "fit", fit)
    part = Part(np.zeros((2, 2)), np.zeros(2))
    with pytest.raises(InterruptedError):
        METHODS[name].learn(Split(part, part, part), 5)
    (learner,) = made
    assert learner.random_state == 5
    if options is None:
        assert learner.candidates is None
    else:
        assert (learner.early_stopping, learner.validation_fraction) == (True, 0.5)
        for option, value in options.items():
            assert getattr(learner, option) == value


@pytest.mark.parametrize("v", ["v=1e-07", "v=1e-04"])
def test_a_cell_of_table_2_has_the_paper_s_alpha(v: str) -> None:
    X, y = balance_scale()
    train, _, test = paper_split(625, (438, 94, 93), 3)
    learner = BoostMetric(
        loss="exponential",
        solver="stagewise",
        regularizer=Trace(float(v[2:])),
        n_neighbors=3,
        n_passes=1,
        directions_per_step=1,
        tol=0.0,
        init=None,
        verify=False,
    ).fit(X[train], y[train])
    Z = learner.transform(X)
    record = run_table2(Cell("table2", "balance", v, 3))
    assert record["error"] == pytest.approx(sklearn_error(Z[train], y[train], Z[test], y[test]))
    assert record["iterations"] == learner.n_iter_
    assert record["ended"] == learner.status_.name


def test_circles_are_lost_by_pca_and_lda_and_found_by_boosting() -> None:
    X, y = concentric_circles(random_state=2)
    fresh, labels = concentric_circles(random_state=102)
    records = {
        method: run_circles(Cell("circles", "circles", method, 2))
        for method in ("pca", "lda", "boostmetric-e")
    }
    for name, learner in {"pca": PCA(2), "lda": LinearDiscriminantAnalysis(n_components=2)}.items():
        learner.fit(X, y)
        expected = sklearn_error(learner.transform(X), y, learner.transform(fresh), labels)
        assert records[name] == {"error": pytest.approx(expected)}
        assert expected > 0.3
    boosted = records["boostmetric-e"]
    assert boosted["error"] < 0.05
    assert sum(boosted["eigenvalues"]) == pytest.approx(1)
    assert sum(boosted["eigenvalues"][:2]) > 0.95


def test_runtime_uses_one_triplet_per_point() -> None:
    X, y = concentric_circles(250, n_noise=48)
    assert X.shape == (250, 50)
    assert len(Comparisons.from_labels(X, y, 1, 1)) == 250
    record = run_runtime(Cell("runtime", "250x50", "boostmetric-e", 0))
    assert (record["n_triplets"], record["n_features"]) == (250, 50)
    assert record["fit_seconds"] > 0
    assert record["iterations"] > 0


@pytest.mark.parametrize(("method", "option"), [("lmnn", "n_neighbors"), ("mlpack-lmnn", "k")])
def test_running_times_of_others_are_of_one_neighbor_too(
    method: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(name: str, X: NDArray, y: NDArray, **options: Any) -> Learned:
        assert (name, X.shape, len(y), options) == (method, (250, 50), 250, {option: 1})
        return Learned(None, {"fit_seconds": 7.0})

    monkeypatch.setattr("boostmetric_paper.experiments.tables.fit_in_subprocess", fake)
    record = run_runtime(Cell("runtime", "250x50", method, 0))
    assert record == {"n_triplets": 250, "n_features": 50, "fit_seconds": 7.0}


def test_subprocess_learns_same_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an external package and without; here both are scikit-learn's LDA."""
    monkeypatch.setenv("BOOSTMETRIC_PEERS", sys.executable)
    monkeypatch.setattr("boostmetric_paper.peers.Peer.is_external", True)
    A, a, V, *_ = wine_split(0)
    learned = fit_in_subprocess("lda", A, np.array(list("xyz"))[a])
    expected = LinearDiscriminantAnalysis().fit(A, a).transform(V)
    Z = learned.transform(V)
    np.testing.assert_allclose(Z - Z.mean(0), expected - expected.mean(0), atol=1e-8)
    assert learned.measures["fit_seconds"] > 0
    assert learned.measures["iterations"] is None
    assert "scikit-learn" in learned.measures["versions"]


def test_failure_of_subprocess_is_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOSTMETRIC_PEERS", sys.executable)
    monkeypatch.setitem(PEERS, "nosuch", PEERS["lda"])
    with pytest.raises(PeerError, match="KeyError: 'nosuch'"):
        fit_in_subprocess("nosuch", np.zeros((2, 2)), np.zeros(2))


def test_subprocess_is_killed_after_its_cpu_time() -> None:
    rng = np.random.default_rng(0)
    endless = {"max_iter": 10**9, "tol": 0.0}
    with pytest.raises(PeerError, match="not finished in 1 s"):
        fit_in_subprocess(
            "nca", rng.normal(size=(500, 5)), rng.integers(2, size=500), cpu_seconds=1, **endless
        )


@pytest.mark.parametrize(("n", "expected"), [(30, 0.1), (1001, 1.0)])
def test_slack_of_itml_is_chosen_on_validation_part(
    n: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    X = np.column_stack([y + rng.normal(size=n) / 10, 9 * rng.normal(size=n)])
    tried = []

    def fake(name: str, X: NDArray, y: NDArray, gamma: float) -> Learned:
        tried.append((name, gamma))
        axis = 0 if gamma == 0.1 else 1
        return Learned(np.eye(2)[[axis]], {"fit_seconds": gamma})

    monkeypatch.setattr(methods, "fit_in_subprocess", fake)
    part = Part(X, y)
    unseen = Part(X * np.nan, y)
    learned = METHODS["itml"].learn(Split(part, Part(X[:20] + 0.01, y[:20]), unseen), 0)
    assert learned.measures == {"fit_seconds": expected, "chosen": {"gamma": expected}}
    gammas = [0.01, 0.1, 1.0, 10.0] if n <= 1000 else [1.0]
    assert tried == [("itml", gamma) for gamma in gammas]


def no_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOOSTMETRIC_DATA", raising=False)


def empty_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(folder))


def truncated_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(folder))
    np.savez(folder / "letter.npz", X=np.zeros((20, 16)), y=np.zeros(20))
    whole = (folder / "letter.npz").read_bytes()
    (folder / "letter.npz").write_bytes(whole[: len(whole) // 2])


def no_peers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOSTMETRIC_PEERS", str(folder / "nosuch"))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Cell, float]]:
    """The cells for which a process would be started, and their limits."""
    begun: list[tuple[Cell, float]] = []

    def measure(processes: Processes, cell: Cell, limit: float) -> Record:
        begun.append((cell, limit))
        if cell.dataset == "250x50":
            return {"failure": f"not finished in {limit:g} s", "limit": limit, "seconds": limit}
        return {"error": 0.25, "seconds": 1.0}

    monkeypatch.setattr(Processes, "measure", measure)
    return begun


@pytest.mark.parametrize(
    ("prepare", "dataset", "method", "words"),
    [
        (no_folder, "letter", "lda", ["letter.npz", "BOOSTMETRIC_DATA", "data fetch letter"]),
        (empty_folder, "letter", "lda", ["There is no file", "letter.npz", "data fetch letter"]),
        (truncated_file, "letter", "lda", ["letter.npz is not letter", "truncated"]),
        (no_peers, "wine", "rca", ["rca", "nosuch", "make peers", "BOOSTMETRIC_PEERS"]),
    ],
)
def test_missing_requirements_raise_before_any_work(
    prepare: Callable[[Path, pytest.MonkeyPatch], None],
    dataset: str,
    method: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    measured: list[tuple[Cell, float]],
) -> None:
    prepare(tmp_path, monkeypatch)
    cells = EXPERIMENTS["table1"].cells(["iris", dataset], ["lda", method], [0])
    with pytest.raises((DatasetError, ExperimentError)) as caught:
        EXPERIMENTS["table1"].check_ready(cells)
    assert all(word in str(caught.value) for word in words)
    chosen = ["--datasets", "iris", dataset, "--methods", "lda", method, "--seeds", "0"]
    folder = tmp_path / "made"
    assert main(["reproduce", "table1", *chosen, "--results", str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"boostmetric-paper: error: {caught.value}\n"
    assert measured == []
    assert not folder.exists()


def test_known_cells_need_no_data(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    measured: list[tuple[Cell, float]],
) -> None:
    no_folder(tmp_path, monkeypatch)
    cell = Cell("table1", "letter", "lda", 0)
    Results(tmp_path / "table1.jsonl").append({**asdict(cell), "error": 0.1})
    chosen = ["--datasets", "letter", "--methods", "lda", "--seeds", "0"]
    assert main(["reproduce", "table1", *chosen, "--results", str(tmp_path)]) == 0
    assert "0 cells computed, 1 existed already" in capsys.readouterr().out
    assert measured == []


def test_reproduce_computes_selection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], measured: list[tuple[Cell, float]]
) -> None:
    command = ["reproduce", "table1", "--datasets", "iris", "wine", "--methods", "nca", "lda"]
    command += ["--results", str(tmp_path / "made"), "--seeds", "4"]
    assert main(command) == 0
    cells = [Cell("table1", d, m, 4) for d in ("iris", "wine") for m in ("nca", "lda")]
    assert measured == [(cell, 600 if cell.method == "nca" else 10_800) for cell in cells]
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("1 of 4, table1: nca on iris, seed 4: 25.00 % error, 1.0 s")
    assert "4 cells computed, 0 existed already" in captured.out
    assert "boostmetric-paper report" in captured.out
    assert list(Results(tmp_path / "made" / "table1.jsonl").read()) == cells


def test_limit_option_and_skipped_cells(tmp_path: Path, measured: list[tuple[Cell, float]]) -> None:
    datasets = ["250x50", "250x100", "2500x100", "250x1000"]
    command = ["reproduce", "runtime", "--datasets", *datasets, "--methods", "boostmetric-e"]
    command += ["--results", str(tmp_path)]
    assert main([*command, "--limit", "7"]) == 0
    assert [(cell.dataset, limit) for cell, limit in measured] == [("250x50", 7), ("2500x100", 7)]
    known = Results(tmp_path / "runtime.jsonl").read()
    failures = {cell.dataset: record.get("failure") for cell, record in known.items()}
    given_up = "not run: D = 50 was not finished in 7 s"
    assert failures == {
        "250x50": "not finished in 7 s",
        "250x100": given_up,
        "2500x100": None,
        "250x1000": given_up,
    }
    measured.clear()
    assert main([*command, "--retry"]) == 0
    assert [(cell.dataset, limit) for cell, limit in measured] == [("250x50", 200)]


def test_interrupt_has_code_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(processes: Processes, cell: Cell, limit: float) -> Record:
        raise KeyboardInterrupt

    monkeypatch.setattr(Processes, "measure", interrupt)
    assert main(["reproduce", "circles", "--results", str(tmp_path)]) == 130
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "circles.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND"),
        (["reproduce"], "NAME"),
        (["reproduce", "table9"], "table9"),
        (["reproduce", "table1", "--small"], "table1 has no small version"),
        (["reproduce", "table1", "--datasets", "nosuch"], "table1 has no dataset 'nosuch'."),
        (["reproduce", "circles", "--seeds", "one"], "must be an int >= 0, got 'one'"),
        (["reproduce", "circles", "--jobs", "0"], "must be an int >= 1, got '0'"),
        (["reproduce", "circles", "--methods", "pca", "--results", "file"], "file"),
        (["report", "--results", "nosuch"], "There is no folder nosuch."),
        (["data"], "ACTION"),
        (["data", "fetch", "nosuch"], "There is no dataset 'nosuch'. Choose from mnist, usps"),
    ],
)
def test_errors_have_one_line_and_code_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    measured: list[tuple[Cell, float]],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    last = captured.err.splitlines()[-1]  # after argparse's usage
    assert last.startswith("boostmetric-paper")
    assert message in last
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_data_list_has_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BOOSTMETRIC_DATA", str(tmp_path))
    (tmp_path / "letter.npz").touch()
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    status = {line.split()[0]: line.split()[-1] for line in lines}
    assert [status[name] for name in ("letter", "usps", "wine")] == ["available", "missing", "in"]
