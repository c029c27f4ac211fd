"""Data of which it is known whether an adapter helps, for tests and benchmarks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from boostmetric import EmbeddingAdapter
from boostmetric.embeddings.search import Map, Maps, Search, same_label

KINDS, SIDES, DUPLICATES = ("labels", "judgments"), ("both", "query"), (0.0, 0.1, 0.5)

NUISANCE = {
    ("labels", "both", 16): 1.45,
    ("labels", "query", 16): 1.89,
    ("labels", "both", 64): 1.09,
    ("labels", "query", 64): 1.15,
    ("labels", "both", 384): 1.48,
    ("labels", "query", 384): 1.49,
    ("judgments", "both", 16): 1.67,
    ("judgments", "query", 16): 3.30,
    ("judgments", "both", 64): 1.20,
    ("judgments", "query", 64): 1.28,
    ("judgments", "both", 384): 1.69,
    ("judgments", "query", 384): 1.69,
}
"""Standard deviation of the features that the oracle drops: its gain is .10."""


N_SHUFFLED_CLASSES = 5
"""Number of shuffled classes if whole classes are held out: few of them are the hardest case."""


class Size(NamedTuple):
    """Generated data.

    `n` queries or labeled points have `D` features. Classes of `per_class` points differ in
    `n_signal` features with standard deviation 1; the standard deviation within classes is `noise`,
    except for `n_nuisance` features, which the oracle drops.
    """

    n: int
    D: int
    per_class: int
    n_signal: int
    noise: float
    n_nuisance: int


SIZES = (
    Size(150, 16, 5, 6, 0.5, 1),
    Size(600, 64, 10, 16, 0.5, 4),
    Size(1500, 384, 15, 64, 0.8, 24),
)


class Cell(NamedTuple):
    """Options of one cell of the table."""

    size: Size
    kind: str
    side: str
    new_documents: bool
    duplicates: float
    planted: bool

    @property
    def name(self) -> str:
        """Name of the cell in the file."""
        data = "planted" if self.planted else "shuffled"
        claim = "new documents" if self.new_documents else "known documents"
        copies = f"{self.duplicates:.0%} duplicates"
        return f"{self.size.n}x{self.size.D} {self.kind} {self.side} {claim} {copies} {data}"


def cells() -> Iterator[Cell]:
    """All cells; planted gains have no duplicates."""
    for size, kind, side, new in product(SIZES, KINDS, SIDES, (False, True)):
        for duplicates in DUPLICATES:
            yield Cell(size, kind, side, new, duplicates, planted=False)
        yield Cell(size, kind, side, new, 0.0, planted=True)


def draw(
    rng: np.random.Generator, size: Size, nuisance: float, n_documents: int
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Draw queries and documents, and the class of each."""
    centers = rng.standard_normal((size.n // size.per_class, size.D))
    centers[:, size.n_signal :] = 0
    drawn: list[NDArray] = []
    for n in (size.n, n_documents):
        labels = np.arange(n) % len(centers)
        X = centers[labels] + size.noise * rng.standard_normal((n, size.D))
        X[:, -size.n_nuisance :] = nuisance * rng.standard_normal((n, size.n_nuisance))
        drawn += [X, labels]
    Q, y, documents, classes = drawn
    return Q, documents, y, classes


def oracle_gain(size: Size, kind: str, side: str, nuisance: float, n_draws: int) -> float:
    """Mean gain of the oracle in nDCG@10."""
    matrix = np.eye(size.D)
    matrix[-size.n_nuisance :] = 0
    maps = Maps.both(matrix) if side == "both" else Maps(Map(matrix), Map())
    gains = []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        n_documents = size.n if kind == "labels" else 2 * size.n
        Q, documents, y, classes = draw(rng, size, nuisance, n_documents)
        search = Search(Q, documents, same_label(y, classes), np.arange(size.n))
        gains.append(np.mean(search.scores(maps)["ndcg@10"] - search.scores()["ndcg@10"]))
    return float(np.mean(gains))


def copies(rng: np.random.Generator, X: NDArray, share: float) -> tuple[NDArray, NDArray]:
    """X with its last rows replaced by copies of others; the row that each is a copy of."""
    n_kept = len(X) - round(share * len(X))
    source = np.arange(len(X))
    source[n_kept:] = rng.integers(0, n_kept, len(X) - n_kept)
    X = X[source]
    X[n_kept::2] += 1e-6 * rng.standard_normal(X[n_kept::2].shape)
    return X, source


def fit(cell: Cell, seed: int) -> EmbeddingAdapter:
    """Fit the adapter to the data of a cell."""
    rng = np.random.default_rng([seed, cell.size.n])
    n_documents = 2 * cell.size.n
    nuisance = NUISANCE[cell.kind, cell.side, cell.size.D]
    Q, documents, y, classes = draw(rng, cell.size, nuisance, n_documents)
    Q, source = copies(rng, Q, cell.duplicates)
    adapter = EmbeddingAdapter(
        cell.side, new_documents=cell.new_documents, n_jobs=1, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if cell.kind == "labels":
            if not cell.planted:
                y = rng.permutation(y % N_SHUFFLED_CLASSES if cell.new_documents else y)
            return adapter.fit(Q, y[source])
        queries, target = same_label(y, classes).nonzero()
        if not cell.planted:
            target = rng.permutation(target)
        # Judgments of the copies of queries, and of random ones of the copies of documents.
        documents, origin = copies(rng, documents, cell.duplicates)
        order, counts = np.argsort(origin, kind="stable"), np.bincount(origin)
        stated = csr_array((np.ones(len(target)), (queries, target)), (len(y), n_documents))
        queries, target = stated[source].nonzero()
        base = origin[target]
        target = order[np.cumsum(counts)[base] - 1 - rng.integers(counts[base])]
        return adapter.fit(Q, documents=documents, judgments=np.column_stack([queries, target]))
