"""What the processes of a group must have in common before they train together."""

from __future__ import annotations

import json

import numpy as np

from hushgraph.graph.chunks import iter_pieces
from hushgraph.graph.graph import Graph
from hushgraph.runs.folder import versions
from hushgraph.training.session import Session


def check_agreement(session: Session) -> None:
    """Refuse to go on where the processes of a group have begun different runs. Alone, this does nothing."""
    session.group.check_same(lambda: _facts(session))


def _facts(session: Session) -> dict[str, str]:
    folder = session.folder
    return {
        "plan": folder.plan.fingerprint(),
        "settings": folder.config.to_json(),
        "training nodes": folder.split_id,
        # Of two graphs, one row could change the trees of both: more of them than the plan pays for.
        "edges": _edges_id(session.graph),
        # Other versions may draw other batches and lists from the same seed.
        "versions": json.dumps(versions()),
        "device": session.device.type,
    }


def _edges_id(graph: Graph) -> str:
    """A digest of the edges, in whatever order they come."""
    total = 0
    for source, target in iter_pieces(graph, graph.num_nodes):
        words = (source.astype(np.uint64) << np.uint64(32)) | target.astype(np.uint64)
        words *= np.uint64(0x9E3779B97F4A7C15)
        words ^= words >> np.uint64(29)
        words *= np.uint64(0xBF58476D1CE4E5B9)
        words ^= words >> np.uint64(32)
        total += int(words.sum(dtype=np.uint64))
    return f"{total % 2**64:016x}"
