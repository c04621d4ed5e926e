"""Batches of rows: which rows they have, and that no tree is grown for them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from scipy import sparse

import hushgraph as hg
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import RowSums
from hushgraph.graph.graph import Graph
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN, ReadingMLP
from hushgraph.sampling.random import KeyedGenerator
from hushgraph.training import row_batches
from hushgraph.training.distributed import Group
from hushgraph.training.row_batches import RowBatches
from hushgraph.training.steps import takes_rows
from plans import make_plan


@pytest.fixture(scope="module")
def data() -> Graph:
    return hg.datasets.synthetic(num_nodes=200, num_classes=3, seed=1)


def new_plan(data: Graph, **changes: int) -> hg.PrivacyPlan:
    settings = {"max_readers": 0, "max_reads": 0, "num_layers": 1, "steps": 10, "batch_size": 40} | changes
    return make_plan(num_train_nodes=len(data.train_idx), paper_noise_multiplier=1.0, **settings)


def new_batches(data: Graph, plan: hg.PrivacyPlan, norm: float = 0.0) -> RowBatches:
    return RowBatches(
        graph=data,
        features=Features(data),
        plan=plan,
        rng=KeyedGenerator(1),
        group=Group(),
        feature_norm=norm,
    )


def test_full_batches_are_one_object_with_all_training_rows(data: Graph) -> None:
    batches = new_batches(data, new_plan(data, batch_size=len(data.train_idx)))
    [first], [second] = islice(batches.iterate(0), 2)
    assert first is second
    assert first.table is data.x
    np.testing.assert_array_equal(first.gathered().dense, data.x[data.train_idx])
    np.testing.assert_array_equal(first.labels, data.y[data.train_idx])


def test_poisson_batches_have_training_rows_and_about_the_expected_size(data: Graph) -> None:
    plan = new_plan(data)
    rows = {tuple(row) for row in data.x[data.train_idx]}
    sizes = []
    for [batch] in islice(new_batches(data, plan).iterate(0), 50):
        sizes.append(batch.num_rows)
        assert {tuple(row) for row in batch.gathered().dense} <= rows
    assert len(set(sizes)) > 5
    assert abs(np.mean(sizes) - plan.batch_size) < 5


def test_sparse_features_stay_sparse_and_hold_the_same(data: Graph) -> None:
    x = np.where(np.abs(data.x) < 1, 0, data.x).astype(np.float32)
    plan = new_plan(data, batch_size=len(data.train_idx))
    taken = []
    for given in (x, sparse.csr_array(x)):
        [rows] = next(new_batches(replace(data, x=given), plan, norm=6.0).iterate(0))
        taken.append(rows)
    dense, mixed = taken[0].gathered(), taken[1]
    assert mixed.dense.shape[1] == 0
    assert dense.features.num_columns == 0
    features = mixed.features
    written = sparse.csr_array((features.values, features.indices, features.indptr), shape=dense.dense.shape)
    np.testing.assert_allclose(written.toarray(), dense.dense, rtol=1e-6)


def test_sparse_rows_that_every_step_uses_are_copied_up_to_a_public_size(
    data: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = replace(data, x=sparse.csr_array(np.where(np.abs(data.x) < 1, 0, data.x).astype(np.float32)))
    plan = new_plan(data, batch_size=len(data.train_idx))
    [copied] = next(new_batches(graph, plan, norm=6.0).iterate(0))
    monkeypatch.setattr(row_batches, "_COPIED_BYTES", 4 * len(data.train_idx) * data.num_features - 1)
    [in_place] = next(new_batches(graph, plan, norm=6.0).iterate(0))
    assert (copied.nodes, copied.scales) == (None, None)
    assert np.shares_memory(in_place.features.values, graph.x.data)
    model = GNN(data.num_features, 3, model="mlp", hidden=8)
    expected = RowSums()(model, copied, Clipping())
    for name, value in RowSums()(model, in_place, Clipping()).items():
        assert torch.equal(value, expected[name])


def test_plan_and_model_decide_whether_rows_are_enough(data: Graph) -> None:
    gcn, mlp, readings = GNN(4, 3), GNN(4, 3, model="mlp"), ReadingMLP(4, 3, hidden=8)
    without, with_edges = new_plan(data), new_plan(data, max_readers=2, max_reads=4)
    assert all(takes_rows(without, model) for model in (gcn, mlp, readings))
    assert not takes_rows(with_edges, gcn)
    assert not takes_rows(without, GNN(4, 3, model="gat"))
    assert not takes_rows(without, GNN(4, 3).double())
