"""Better search with existing embeddings: learn an adapter, evaluate it, and export it."""

from boostmetric.embeddings.adapter import EmbeddingAdapter
from boostmetric.embeddings.report import Report

__all__ = ["EmbeddingAdapter", "Report"]
