"""Recorded clipped sums of trees against those that are computed one operation after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import hushgraph as hg
from hushgraph.gradients import ghost
from hushgraph.gradients.batch import TreeBatch, tree_batch
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.recorded import PaddedTrees, RecordedTreeSums
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN
from hushgraph.sampling.stable import stable_lists
from hushgraph.sampling.trees import grow

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
MOST_READS = 5


def new_model(device: str, model: str = "gcn") -> GNN:
    torch.manual_seed(0)
    return GNN(16, 3, model=model, num_layers=1, hidden=12).to(device)  # type: ignore[arg-type]


def draw_batches(device: str, sizes: list[int]) -> Iterator[TreeBatch]:
    """Batches of so many roots; their trees share the features of all nodes."""
    data = hg.datasets.synthetic(num_nodes=300, num_classes=3, num_features=16, seed=1)
    lists = stable_lists(
        (data.indptr, data.indices),
        train_mask=data.train_mask,
        max_readers=4,
        max_reads=MOST_READS,
        edge_owner="sender",
        seed=1,
    )
    features = Features(data, device)
    rng = np.random.default_rng(0)
    for size in sizes:
        roots = rng.choice(data.train_idx, size=size, replace=False)
        yield tree_batch(grow(lists, roots, 1), features, data.y, may_read=True, expected_rows=1e9)


def check_sums(sums: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert sums.keys() == expected.keys()
    for name, value in sums.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-6)


def test_padding_changes_no_sum() -> None:
    model, clipping = new_model("cpu"), Clipping()
    padded: PaddedTrees | None = None
    # What a larger batch leaves behind counts for nothing in a smaller one.
    for batch in draw_batches("cpu", [60, 20, 1, 0, 79]):
        padded = PaddedTrees(batch.x, 80, MOST_READS + 1) if padded is None else padded
        padded.fill(batch)
        sums = ghost.clipped_sum(model, padded.build(), clipping, waits=False)
        check_sums(sums, ghost.clipped_sum(model, batch, clipping))


def test_sums_that_do_not_wait_leave_out_what_is_not_finite() -> None:
    model, clipping = new_model("cpu"), Clipping()
    [batch] = draw_batches("cpu", [60])
    x = batch.x.clone()
    x[batch.blocks[0].index[:2]] = 3e38
    spoilt = TreeBatch(**{**vars_of(batch), "x": x})
    sums = ghost.clipped_sum(model, spoilt, clipping, waits=False)
    assert all(bool(value.isfinite().all()) for value in sums.values())
    check_sums(sums, ghost.clipped_sum(model, spoilt, clipping))


def vars_of(batch: TreeBatch) -> dict[str, object]:
    names = ("x", "blocks", "labels", "pointers", "most_rows", "may_read")
    return {name: getattr(batch, name) for name in names}


@NEEDS_GPU
def test_drawn_batches_are_replayed() -> None:
    model, clipping = new_model("cuda"), Clipping()
    recorded = RecordedTreeSums(largest_tree=MOST_READS + 1, room=80)
    # The last one has no room.
    for batch in draw_batches("cuda", [60, 30, 50, 1, 0, 79, 90]):
        for parameter in model.parameters():
            parameter.data *= 0.9
        check_sums(recorded(model, batch, clipping), ghost.clipped_sum(model, batch, clipping))


@NEEDS_GPU
@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_batches_that_stay_are_replayed(kind: str) -> None:
    model, clipping = new_model("cuda", kind), Clipping()
    recorded = RecordedTreeSums(largest_tree=MOST_READS + 1, room=None)
    pieces = list(draw_batches("cuda", [60, 40]))
    for _ in range(5):
        for parameter in model.parameters():
            parameter.data *= 0.9
        for batch in pieces:
            check_sums(recorded(model, batch, clipping), ghost.clipped_sum(model, batch, clipping))
