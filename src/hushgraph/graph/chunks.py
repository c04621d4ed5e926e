"""Edges as a stream: a digest of them, made chunk by chunk."""

from __future__ import annotations

import hashlib

import numpy as np

from hushgraph.graph.graph import Graph


def digest_edges(graph: Graph) -> str:
    """A digest of the edges that does not depend on their order, and of what else records hold."""
    total = 0
    for source, target in graph.edge_chunks():
        words = (source.astype(np.uint64) << np.uint64(32)) | target.astype(np.uint64)
        words *= np.uint64(0x9E3779B97F4A7C15)
        words ^= words >> np.uint64(29)
        words *= np.uint64(0xBF58476D1CE4E5B9)
        words ^= words >> np.uint64(32)
        total += int(words.sum(dtype=np.uint64))
    digest = hashlib.sha256()
    for relation in graph.relations:
        digest.update(repr(relation.info).encode())
        for part in (relation.indptr, relation.indices, relation.weights):
            digest.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
    records = digest.hexdigest()[:16] if graph.relations else ""
    return f"{total % 2**64:016x}{records}"
