from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_tools import DAMAGED_ARRAYS, call, failure, npy, npz, result, usage_error
from embedding_data import judged, labeled

from boostmetric import EmbeddingAdapter


@pytest.fixture
def labels(tmp_path: Path) -> list[Path | str]:
    """Arguments of a fit from labels."""
    X, y = labeled(n=200)
    np.save(tmp_path / "vectors.npy", X)
    pd.DataFrame({"id": range(200), "label": y}).to_csv(tmp_path / "labels.csv", index=False)
    return [tmp_path / "vectors.npy", "--labels", tmp_path / "labels.csv"]


@pytest.fixture
def judgments(tmp_path: Path) -> list[Path | str]:
    """Arguments of a fit from TREC qrels with ids."""
    Q, D, rows = judged(n=120, n_documents=200, D=6)
    np.save(tmp_path / "queries.npy", Q)
    np.save(tmp_path / "documents.npy", D)
    lines = [f"q{q} 0 d{d} {grade}" for q, d, grade in rows]
    (tmp_path / "qrels").write_text("\n".join(lines))
    for kind, n in (("q", 120), ("d", 200)):
        (tmp_path / f"{kind}.txt").write_text("\n".join(f"{kind}{i}" for i in range(n)))
    return [
        *("--queries", tmp_path / "queries.npy", "--documents", tmp_path / "documents.npy"),
        *("--judgments", tmp_path / "qrels"),
        *("--query-ids", tmp_path / "q.txt", "--document-ids", tmp_path / "d.txt"),
    ]


def test_fit_from_labels_and_apply(
    labels: list[Path | str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, mapped = tmp_path / "adapter.npz", tmp_path / "mapped.npy"
    said = call(capsys, "adapt", "fit", *labels, "-o", output, "--dimensions", "5")
    assert said.code == 0, said.err
    assert "The adapter changes ndcg@10 from" in said.err
    result(capsys, "adapt", "apply", output, labels[0], "-o", mapped)
    X, y = labeled(n=200)
    expected = EmbeddingAdapter(n_components=5).fit(X, y).transform(X)
    np.testing.assert_allclose(np.load(mapped), expected, atol=1e-6)


@pytest.mark.parametrize("suffix", ["qrels", "csv", "tsv", "clicks.csv"])
def test_fit_from_judgments(
    suffix: str, judgments: list[Path | str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Q, D, rows = judged(n=120, n_documents=200, D=6)
    if suffix != "qrels":
        table = pd.DataFrame(rows, columns=["query", "document", "grade"])
        table = table.assign(query="q" + table["query"].astype(str))
        table = table.assign(document="d" + table["document"].astype(str))
        table = table.drop(columns="grade") if suffix == "clicks.csv" else table
        path = tmp_path / f"judgments.{suffix}"
        table.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
        judgments[judgments.index("--judgments") + 1] = path
    output = tmp_path / "adapter.npz"
    result(capsys, "adapt", "fit", *judgments, "-o", output)
    rows = rows[:, :2] if suffix == "clicks.csv" else rows
    expected = EmbeddingAdapter().fit(Q, documents=D, judgments=rows)
    assert expected.strength_ is not None
    np.testing.assert_allclose(EmbeddingAdapter.load(output).components_, expected.components_)


@pytest.mark.slow
def test_report_and_export(
    judgments: list[Path | str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, page = tmp_path / "texts.txt", tmp_path / "page.html"
    texts.write_text("\n".join(f"question {i}" for i in range(120)))
    said = result(capsys, "adapt", "report", *judgments, "--json")
    assert json.loads(said)["verdict"].startswith("Recommended")
    said = result(capsys, "adapt", "report", *judgments, "--texts", texts, "--html", page)
    assert "queries that gained most" in said
    assert "question " in page.read_text(encoding="utf-8")
    adapter = tmp_path / "adapter.npz"
    result(capsys, "adapt", "fit", *judgments, "-o", adapter)
    result(capsys, "adapt", "export", adapter, "--format", "onnx", "-o", tmp_path / "a.onnx")
    assert (tmp_path / "a.onnx").stat().st_size > 100
    message = failure(
        *(capsys, "adapt", "export", adapter, "--format", "numpy"),
        *("--side", "both", "-o", tmp_path / "b.npz"),
    )
    assert "maps queries only" in message


def test_invalid_options_are_usage_errors(
    labels: list[Path | str], judgments: list[Path | str], capsys: pytest.CaptureFixture[str]
) -> None:
    for given in (labels[:1], [*labels, *judgments], judgments[:4], []):
        said = usage_error(capsys, "adapt", "fit", *given, "-o", "adapter.npz")
        assert "together" in said or "Use either VECTORS and --labels, or --queries" in said


def test_mismatches_are_named(
    labels: list[Path | str],
    judgments: list[Path | str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output: list[Path | str] = ["-o", tmp_path / "adapter.npz"]
    pd.DataFrame({"label": [1, 2]}).to_csv(tmp_path / "few.csv")
    said = failure(capsys, "adapt", "fit", labels[0], "--labels", tmp_path / "few.csv", *output)
    assert "has 2 labels, but" in said
    qrels = tmp_path / "qrels"
    qrels.write_text(qrels.read_text() + "\nq0 0 missing 1\nq1 0 absent 1")
    said = failure(capsys, "adapt", "fit", *judgments, *output)
    assert "2 judgments have a document without a vector, such as 'missing'" in said
    qrels.write_text("q0 0 d1 1\nq0 0 d1 1")
    assert "1 duplicated rows" in failure(capsys, "adapt", "fit", *judgments, *output)
    qrels.write_text("q0 0 d1 1\nq0 0 d2 high")
    assert "1 grades are not numbers, such as 'high'" in failure(
        capsys, "adapt", "fit", *judgments, *output
    )
    qrels.write_text("q0 0 d1 1")
    (tmp_path / "q.txt").write_text("q0\nq1")
    assert "has 2 ids, but there are 120 vectors" in failure(
        capsys, "adapt", "fit", *judgments, *output
    )


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        *DAMAGED_ARRAYS,
        (npy(np.ones(200)), "must contain one array of numbers, of shape (n, dimensions)"),
        (npy([["a"]]), "must contain one array of numbers, of shape (n, dimensions)"),
        (npz(X=np.ones((200, 6))), "must contain one array of numbers, of shape (n, dimensions)"),
    ],
)
def test_damaged_vectors_are_named(
    contents: bytes,
    said: str,
    labels: list[Path | str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = tmp_path / "bad.npy"
    bad.write_bytes(contents)
    message = failure(capsys, "adapt", "fit", bad, *labels[1:], "-o", tmp_path / "a.npz")
    assert f" {bad}" in message
    assert said in message


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        *DAMAGED_ARRAYS,
        (npy(0), "must contain one array of labels"),
        (npz(y=np.ones(200)), "must contain one array of labels"),
    ],
)
def test_damaged_labels_are_named(
    contents: bytes,
    said: str,
    labels: list[Path | str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = tmp_path / "bad.npy"
    bad.write_bytes(contents)
    given = [labels[0], "--labels", bad, "-o", tmp_path / "a.npz"]
    message = failure(capsys, "adapt", "fit", *given)
    assert f" {bad}" in message
    assert said in message


@pytest.mark.parametrize(
    ("option", "contents"),
    [("--judgments", b""), ("--judgments", b"\xff\xfe\xff"), ("--query-ids", b"\xff")],
)
def test_damaged_text_is_named(
    option: str,
    contents: bytes,
    judgments: list[Path | str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_bytes(contents)
    judgments[judgments.index(option) + 1] = bad
    message = failure(capsys, "adapt", "fit", *judgments, "-o", tmp_path / "a.npz")
    assert f"Cannot read {bad}: " in message
