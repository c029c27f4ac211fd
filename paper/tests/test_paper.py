"""Stage-wise errors of Table 1, and the concentric circles of Figure 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boostmetric import BoostMetric, Comparisons, knn_error
from boostmetric.data.synthetic import concentric_circles
from boostmetric_paper.datasets import Dataset, load
from boostmetric_paper.experiments.paper import PAPER, paper_score


def mean_error(data: Dataset, loss: str, n_splits: int) -> float:
    """The mean 3-NN test error in percent over random splits of the paper's sizes."""
    errors = []
    for seed in range(n_splits):
        train, _, test = data.reduced(data.split(seed))
        learner = BoostMetric(loss=loss, n_neighbors=3, verify=False).fit(*train)
        Z, W = learner.transform(train.X), learner.transform(test.X)
        errors.append(knn_error(Z, train.y, W, test.y))
    return 100 * float(np.mean(errors))


def upper_end(dataset: str, loss: str) -> float:
    """The paper's mean plus its standard deviation."""
    score = paper_score("table1", "errors", f"BoostMetric-{loss[0].upper()}", dataset)
    assert score is not None
    return score[0] + (score[1] or 0.0)


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
@pytest.mark.parametrize(
    "name",
    [
        "balance",
        pytest.param("wine", marks=pytest.mark.slow),
        pytest.param("iris", marks=pytest.mark.slow),
    ],
)
def test_small_datasets_match_paper(name: str, loss: str) -> None:
    assert mean_error(load(name), loss, n_splits=30) <= upper_end(name, loss)


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_numbers_of_triplets_match_paper(name: str) -> None:
    train = load(name).split(0).train
    assert len(Comparisons.from_labels(*train)) == PAPER["table1"]["datasets"]["triplets"][name]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_usps(loss: str, data_folder: Path) -> None:
    assert mean_error(load("usps", data_folder), loss, 3) <= upper_end("usps", loss)


# The paper has a single run; the difference of two such runs has a standard deviation of 0.34
# percent (binomial, 5,000 test points). The exponential loss is worse by 0.5, because exact steps
# overshoot (docs/decisions.md); its bound only prevents further loss.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "bound"), [("exponential", 3.06 + 0.7), ("logistic", 2.80 + 0.34)]
)
def test_letter(loss: str, bound: float, data_folder: Path) -> None:
    data = load("letter", data_folder)
    assert len(Comparisons.from_labels(*data.split(0).train)) == 94_500
    assert mean_error(data, loss, 4) <= bound


def test_metric_of_concentric_circles_has_rank_two() -> None:
    X, y = concentric_circles(random_state=0)
    assert X.shape == (1_000, 10)
    assert len(Comparisons.from_labels(X, y)) == 9_000
    learner = BoostMetric(loss="exponential", n_neighbors=3, n_passes=2, verify=False).fit(X, y)
    eigenvalues = learner.metric_.eigenvalues
    assert eigenvalues[:2].sum() >= 0.95 * eigenvalues.sum()
    in_plane = np.sum(learner.components_[:2, :2] ** 2)
    assert in_plane >= 0.95 * np.sum(learner.components_**2)
