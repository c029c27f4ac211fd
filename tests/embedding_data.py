"""Synthetic embeddings with and without a gain to be learned."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def labeled(
    seed: int = 0, n: int = 300, D: int = 12, n_classes: int = 5, noise: float = 2.0
) -> tuple[NDArray, NDArray]:
    """Classes differ in four dimensions; the others are noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = noise * rng.standard_normal((n, D))
    X[:, :4] = 1.5 * rng.standard_normal((n_classes, 4))[y] + rng.standard_normal((n, 4))
    return X.astype(np.float32), y


def judged(
    seed: int = 0, n: int = 200, n_documents: int = 400, D: int = 10, planted: bool = True
) -> tuple[NDArray, NDArray, NDArray]:
    """Queries, documents and judgments.

    The relevant document of a query is near its image under a linear map; if not `planted`, it is
    near the query itself, so that there is nothing to learn.
    """
    rng = np.random.default_rng(seed)
    documents = rng.standard_normal((n_documents, D))
    chosen = rng.integers(0, n_documents, n)
    map_ = np.eye(D) + planted * 1.2 * rng.standard_normal((D, D)) / np.sqrt(D)
    queries = documents[chosen] @ np.linalg.inv(map_) + 0.5 * rng.standard_normal((n, D))
    judgments = np.stack([np.arange(n), chosen, rng.integers(1, 4, n)], axis=1)
    return queries.astype(np.float32), documents.astype(np.float32), judgments
