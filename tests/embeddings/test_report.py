from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import pytest
from embedding_data import judged, labeled
from scipy import stats

from boostmetric import EmbeddingAdapter
from boostmetric.embeddings import Report
from boostmetric.embeddings.report import interval
from boostmetric.embeddings.search import as_grades
from boostmetric.evaluation.ranking import ranking_scores


@pytest.fixture(scope="module")
def judged_report() -> Report:
    Q, D, judgments = judged(n=120, n_documents=200, D=6)
    return EmbeddingAdapter(cv=3).fit(Q, documents=D, judgments=judgments).report_


@pytest.mark.slow
def test_report_of_judgments(judged_report: Report) -> None:
    report = judged_report
    assert list(report.methods) == [
        *("baseline", "centering", "PCA, 3 dimensions", "closed-form map", "adapter")
    ]
    # 1) every query is evaluated once, and the baseline is the search as it is
    assert sorted(report.rows) == list(range(120))
    Q, D, judgments = judged(n=120, n_documents=200, D=6)
    expected = ranking_scores(Q, D, as_grades(judgments, 120, 200))
    for name, values in report.methods["baseline"].items():
        np.testing.assert_allclose(values, expected[name][report.rows])
    # 2) groups are disjoint and complete
    n_seen, n_unseen = (len(each["baseline"]["mrr"]) for each in report.groups.values())
    assert list(report.groups) == ["seen documents", "unseen documents"]
    assert n_seen + n_unseen == 120
    # 3) a planted gain is found
    assert report.verdict.startswith("Recommended: ndcg@10 0.")
    assert list(report.curve) == [10, 20, 40, 80]
    assert list(report.dimensions) == [6]


@pytest.mark.slow
def test_report_as_text_json_and_html(judged_report: Report) -> None:
    texts = [f"<b>text {row} & more</b>" for row in range(120)]
    row = judged_report.changed()["gained"][0]["row"]
    text = judged_report.to_text(texts)
    assert f"{row}: <b>text {row} & more</b>" in text
    facts = json.loads(judged_report.to_json())
    change = facts["methods"]["adapter"]["ndcg@10"]
    assert 0 < change["low"] < change["change"] < change["high"]
    assert change["mean"] == pytest.approx(judged_report.methods["adapter"]["ndcg@10"].mean())
    page = judged_report.to_html(texts)
    assert f"&lt;b&gt;text {row} &amp; more&lt;/b&gt;" in page
    assert "<b>text" not in page
    assert "http" not in page.replace("http-equiv", "")  # nothing is loaded
    checker = Balance()
    checker.feed(page)
    assert checker.open == []


class Balance(HTMLParser):
    """Tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.slow
def test_report_of_labels() -> None:
    X, y = labeled(n=240, D=20)
    report = EmbeddingAdapter(cv=2).fit(X, y).report_
    assert "shrunk LDA" in report.methods
    assert list(report.groups) == ["unseen classes"]
    assert list(report.dimensions) == [16, 20]
    adapter, baseline = (report.methods[name]["ndcg@10"] for name in ("adapter", "baseline"))
    assert adapter.mean() > baseline.mean() + 0.05


@pytest.mark.slow
def test_shuffled_labels_are_not_recommended() -> None:
    X, y = labeled(n=150)
    y = np.random.default_rng(6).permutation(y)
    with pytest.warns(UserWarning, match="The identity is used"):
        adapter = EmbeddingAdapter(cv=2).fit(X, y)
    assert adapter.report_.verdict.startswith("Not recommended: cross-validation on all data")


def report_of(gains: dict[str, np.ndarray], is_selected: bool = True) -> Report:
    """A report whose baseline is 0 for all queries."""
    values = {name: {"ndcg@10": each} for name, each in gains.items()}
    zeros = {name: {"ndcg@10": np.zeros(len(each))} for name, each in gains.items()}
    pairs = {name: {"baseline": zeros[name], "adapter": values[name]} for name in gains}
    everything = pairs.pop("all")
    return Report("ndcg@10", np.arange(200), everything, pairs, {}, {}, is_selected)


def test_verdict_follows_intervals(rng: np.random.Generator) -> None:
    noise = rng.normal(scale=0.1, size=200)
    noise -= noise.mean()
    assert report_of({"all": noise + 0.1}).verdict.startswith("Recommended: ")
    assert "no reliable gain" in report_of({"all": noise + 0.001}).verdict
    assert "no reliable gain" in report_of({"all": noise - 0.1}).verdict
    assert "not changed" in report_of({"all": noise + 0.1}, is_selected=False).verdict
    simple = {"baseline": noise, "PCA": noise + 0.3, "adapter": noise + 0.1}
    values = {name: {"ndcg@10": each} for name, each in simple.items()}
    report = Report("ndcg@10", np.arange(200), values, {}, {}, {}, True)
    assert report.verdict.endswith("held-out queries. Still better: PCA.")
    groups = {"all": noise + 0.1, "seen documents": noise + 0.2, "unseen documents": noise - 0.1}
    verdict = report_of(groups).verdict
    assert verdict.startswith("Recommended with a restriction: ndcg@10 0.000 → 0.100")
    assert "worse for unseen documents (ndcg@10 -0.100)" in verdict
    assert "new_documents=True" in verdict


def test_interval_matches_normal_approximation(rng: np.random.Generator) -> None:
    changes = rng.exponential(size=1000)
    low, high = interval(changes)
    error = stats.sem(changes)
    assert (low, high) == pytest.approx(
        stats.norm.interval(0.95, changes.mean(), error), abs=0.2 * error
    )
