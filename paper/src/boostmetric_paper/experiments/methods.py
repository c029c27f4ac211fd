"""The methods of Table 1: each learns a linear map from the training part of a split.

Choices such as when to stop are made on the validation part; no method uses the test part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boostmetric.estimators import BoostMetric, BoostMetricCV
from boostmetric.evaluation.knn import knn_error
from boostmetric.problem import Comparisons, Trace
from boostmetric_paper.datasets import Part, Split
from boostmetric_paper.peers import PEERS, Learned, fit_here, fit_in_subprocess

N_PASSES = 3
"""Passes of the rows "MP"; the paper does not state its number."""

GAMMAS = (0.01, 0.1, 1.0, 10.0)
"""Values of ITML's slack parameter that the paper chooses from."""

N_NEIGHBORS = 3
"""Targets and impostors of each point."""

PAPER_PARAMETERS: dict[str, Any] = {
    "solver": "stagewise",
    "regularizer": Trace(1e-7),  # v, absolute
    "n_neighbors": N_NEIGHBORS,
    "n_passes": 1,
    "index": None,
    "max_iter": 500,  # J
    "directions_per_step": 1,
    "tol": 0.0,  # a pass ends at λ_max < v or after J directions
    "eigen_solver": "exact",
    "n_components": None,
    "init": None,
    "verify": False,
    "early_stopping": False,
    "warm_start": False,
}
"""The paper's parameters. Experiments state what they change, so that they do not depend on the
defaults of the package."""

MAX_SMALL = 1000
"""Training points of a small dataset (balance, wine, iris)."""


@dataclass(frozen=True)
class Method:
    """A row of Table 1.

    Parameters
    ----------
    title : name of the row
    learn : receives the split, after PCA unless `raw`, and a seed
    raw : whether the method is applied before PCA
    slow : whether the method runs on one split of large datasets only, for at most ten minutes
    """

    title: str
    learn: Callable[[Split, int], Learned]
    raw: bool = False
    slow: bool = False


def stagewise(n_features: int, n_comparisons: int) -> dict[str, Any]:
    """Options of stage-wise fits, which do not depend on the defaults of `boostmetric`.

    The paper's algorithm, one direction per step, if it is fast enough. Otherwise batches, until
    one lowers the objective by less than 0.01 percent.

    Examples
    --------
    >>> stagewise(13, 900), stagewise(300, 15_000)
    ({'directions_per_step': 1, 'tol': 0.0}, {'directions_per_step': 24, 'tol': 0.0})
    """
    if n_features < 16 or n_comparisons < 10_000:
        size = 1
    else:
        size = 8 if n_features > 600 else min(24, n_features // 2)
    return {"directions_per_step": size, "tol": 0.0}


def paper_method(loss: str = "exponential", **options: Any) -> BoostMetric:
    """`BoostMetric` with the parameters `PAPER_PARAMETERS`, except for those given.

    >>> paper_method("logistic", n_passes=3).get_params()["n_neighbors"]
    3
    """
    return BoostMetric(loss, **{**PAPER_PARAMETERS, **options})


def fit_boostmetric(
    X: NDArray, y: NDArray | None = None, comparisons: Comparisons | None = None, **options: Any
) -> Learned:
    """BoostMetric with the paper's parameters, except for the given ones, and how the fit ended."""
    learner = paper_method(**options).fit(X, y, comparisons=comparisons)
    measures = {
        "iterations": learner.n_iter_,
        "ended": learner.status_.name,
        "n_triplets": learner.metric_.origin["n_comparisons"],
    }
    return Learned(learner.components_, measures)


def fit_recipe(train: Part, seed: int) -> Learned:
    """`BoostMetricCV` with its defaults, and what it has chosen."""
    learner = BoostMetricCV(random_state=seed).fit(*train)
    measures = {"chosen": learner.best_params_, "held_out_error": 1 - learner.best_score_}
    return Learned(learner.components_, measures)


def _boostmetric(split: Split, seed: int, **options: Any) -> Learned:
    """BoostMetric, each pass stopped where the error on held-out points is smallest.

    Of the training and validation parts together, as many points are held out as the validation
    part has.
    """
    train, validation, _ = split
    X, y = np.vstack([train.X, validation.X]), np.concatenate([train.y, validation.y])
    return fit_boostmetric(
        X,
        y,
        early_stopping=True,
        validation_fraction=len(validation.X) / len(X),
        n_iter_no_change=50,
        random_state=seed,
        **{**stagewise(X.shape[1], len(train.X) * N_NEIGHBORS**2), **options},
    )


def _itml(split: Split, seed: int) -> Learned:
    """ITML with the slack that is best on the validation part; on large data with the default."""
    train, validation, _ = split
    gammas = GAMMAS if len(train.X) <= MAX_SMALL else (1.0,)
    tried = {gamma: fit_in_subprocess("itml", *train, gamma=gamma) for gamma in gammas}

    def error(gamma: float) -> float:
        Z, W = tried[gamma].transform(train.X), tried[gamma].transform(validation.X)
        return knn_error(Z, train.y, W, validation.y)

    best = min(gammas, key=error)
    return Learned(tried[best].L, {**tried[best].measures, "chosen": {"gamma": best}})


CORRECTIVE = {"solver": "totally_corrective", "tol": 1e-2}
PASSES = {"n_passes": N_PASSES}

METHODS = {
    "euclidean": Method("Euclidean", lambda split, seed: Learned(), raw=True),
    "pca": Method("PCA", lambda split, seed: Learned()),
    "lda": Method("LDA", lambda split, seed: fit_here("lda", *split.train)),
    "rca": Method("RCA", lambda split, seed: fit_in_subprocess("rca", *split.train)),
    "nca": Method("NCA", lambda split, seed: fit_here("nca", *split.train), slow=True),
    "lmnn": Method("LMNN", lambda split, seed: fit_in_subprocess("lmnn", *split.train), slow=True),
    "itml": Method("ITML", _itml, slow=True),
    **{
        f"boostmetric-{letter}{suffix}": Method(
            f"BoostMetric-{letter.upper()}{title}", partial(_boostmetric, loss=loss, **options)
        )
        for letter, loss in (("e", "exponential"), ("l", "logistic"))
        for suffix, title, options in (
            ("", "", {}),
            ("-mp", ", MP", PASSES),
            ("-tc", ", TC", CORRECTIVE),
            ("-mp-tc", ", MP, TC", {**PASSES, **CORRECTIVE}),
        )
    },
    "hinge": Method(
        "soft-margin hinge",
        lambda split, seed: fit_boostmetric(
            *split.train, loss="hinge", solver="auto", regularizer="trace", alpha=1e-7
        ),
        slow=True,
    ),
    "recipe": Method("BoostMetricCV", lambda split, seed: fit_recipe(split.train, seed)),
}
"""By the name used on the command line, in the order of the table."""

TITLES = {
    **{name: method.title for name, method in METHODS.items()},
    "mlpack-lmnn": PEERS["mlpack-lmnn"].title,
    "svm": "linear SVM",
    "boostmetric-squared-hinge": "BoostMetric, squared hinge",
    "pca-whitened-cosine": "whitened PCA, cosine",
    "within-class-cosine": "within-class whitening, cosine",
    "fixed-points": "BoostMetric-E, points of the mean face",
    "best": "BoostMetric, best single score",
    "combined": "combination of scores",
}
"""Names in tables, of the methods of all experiments."""
