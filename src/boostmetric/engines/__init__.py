"""Fits in blocks: on threads, on a cluster, and of data larger than memory."""
