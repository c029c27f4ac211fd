"""How good a metric is: nearest-neighbor error, retrieval scores, verification of pairs."""

from boostmetric.evaluation.knn import knn_error, satisfied_share, unlike_share
from boostmetric.evaluation.ranking import ranking_scores
from boostmetric.evaluation.retrieval import Retrieval, retrieval_scores
from boostmetric.evaluation.verification import PairVerifier, RocCurve

__all__ = [
    "PairVerifier",
    "Retrieval",
    "RocCurve",
    "knn_error",
    "ranking_scores",
    "retrieval_scores",
    "satisfied_share",
    "unlike_share",
]
