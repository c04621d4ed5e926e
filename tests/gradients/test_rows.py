"""Clipped sums of rows against the sums by trees, and against one row at a time."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy import sparse

from hushgraph.gradients import ghost
from hushgraph.gradients.batch import TreeBatch
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.rows import RowPass, RowSums, find_chain
from hushgraph.gradients.rows_torch import DrawnRows, RecordedRowSums, load_kernels
from hushgraph.gradients.sums import CHUNK
from hushgraph.gradients.unclipped import gradient_sum
from hushgraph.inputs.rows import Rows, SparseRows
from hushgraph.models.gnn import GNN, ReadingMLP

CLASSES, FEATURES = 4, 21


def random_rows(num_rows: int, seed: int = 0) -> tuple[Rows, Rows, TreeBatch]:
    """The same rows with sparse features, dense, and as trees; every fifth has no label, some no features."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=num_rows)
    labels[::5] = -1
    features = rng.standard_normal((num_rows, FEATURES)).astype(np.float32)
    features[rng.random(features.shape) < 0.7] = 0
    features[3::11] = 0
    readings = rng.standard_normal((num_rows, CLASSES)).astype(np.float32)
    x = np.concatenate([features, readings], axis=1)
    mixed = Rows(features=SparseRows.of(sparse.csr_array(features)), dense=readings, labels=labels)
    batch = TreeBatch(
        x=torch.from_numpy(x),
        blocks=(),
        labels=torch.from_numpy(labels),
        pointers=(torch.arange(num_rows + 1),),
        most_rows=(1,),
    )
    return mixed, Rows(dense=x, labels=labels), batch


def random_model(kind: str, hidden: int = 24) -> torch.nn.Module:
    """A model over features and readings whose weights are all random."""
    width = FEATURES + CLASSES
    models = {
        "reading": lambda: ReadingMLP(FEATURES, CLASSES, hidden=hidden),
        "reading-relu": lambda: ReadingMLP(FEATURES, CLASSES, hidden=hidden, activation="relu"),
        "mlp": lambda: GNN(width, CLASSES, model="mlp", hidden=hidden),
        "deep": lambda: GNN(width, CLASSES, model="mlp", hidden=hidden, encoder_layers=2, decoder_layers=2),
    }
    model = models[kind]()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return model


@pytest.mark.parametrize("kind", ["normalised", "flat", "groups"])
@pytest.mark.parametrize("model_kind", ["reading", "reading-relu", "mlp", "deep"])
@pytest.mark.parametrize("num_rows", [1, 7, 1500])
def test_rows_give_the_clipped_sum_of_trees(model_kind: str, kind: str, num_rows: int) -> None:
    model, clipping = random_model(model_kind), Clipping(kind=kind, clip=0.7)  # type: ignore[arg-type]
    mixed, dense, batch = random_rows(num_rows)
    expected = ghost.clipped_sum(model, batch, clipping)
    for rows in (mixed, dense):
        sums = RowSums()(model, rows, clipping)
        assert set(sums) == set(expected)
        for name, value in expected.items():
            torch.testing.assert_close(sums[name], value, rtol=2e-6, atol=4e-6)


@pytest.mark.parametrize("hidden", [1, 16, 64, 80])
def test_any_hidden_size(hidden: int) -> None:
    model, clipping = random_model("reading", hidden), Clipping()
    mixed, _, batch = random_rows(300)
    expected = ghost.clipped_sum(model, batch, clipping)
    for name, value in RowSums()(model, mixed, clipping).items():
        torch.testing.assert_close(value, expected[name], rtol=2e-6, atol=4e-6)


def test_the_sum_without_clipping_is_the_gradient() -> None:
    model = random_model("reading")
    mixed, _, batch = random_rows(500)
    expected = gradient_sum(model, batch)
    for name, value in RowSums()(model, mixed).items():
        torch.testing.assert_close(value.float(), expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model_kind", ["reading", "reading-relu", "deep"])
def test_scores_are_those_of_the_model(model_kind: str) -> None:
    model = random_model(model_kind)
    mixed, dense, batch = random_rows(400)
    chain = find_chain(model)
    assert chain is not None
    with torch.no_grad():
        expected = model(batch.x, ())
    for rows in (mixed, dense):
        torch.testing.assert_close(RowPass(chain).scores(rows), expected, rtol=1e-5, atol=1e-5)


def test_the_number_of_threads_changes_nothing() -> None:
    chain = find_chain(random_model("reading"))
    assert chain is not None
    mixed, _, _ = random_rows(3000)
    one, three = (RowPass(chain, threads=n).clipped_sum(mixed, Clipping()) for n in (1, 3))
    for name in one:
        assert torch.equal(one[name], three[name])


def test_buffers_keep_nothing_of_the_last_batch() -> None:
    model, clipping, row_sums = random_model("reading"), Clipping(), RowSums()
    (first, _, _), (second, _, _) = random_rows(600, seed=1), random_rows(130, seed=2)
    row_sums(model, first, clipping)
    again, fresh = row_sums(model, second, clipping), RowSums()(model, second, clipping)
    for name in fresh:
        assert torch.equal(again[name], fresh[name])


def test_an_emptied_row_changes_its_chunk_alone() -> None:
    model, clipping = random_model("reading"), Clipping()
    _, rows, _ = random_rows(3 * CHUNK)
    emptied = replace(rows, dense=rows.dense.copy(), labels=rows.labels.copy())
    emptied.dense[CHUNK + 2], emptied.labels[CHUNK + 2] = 0, -1
    for begin in (0, 2 * CHUNK):
        part = np.arange(begin, begin + CHUNK)
        sums, same = (RowSums()(model, each.take(part), clipping) for each in (rows, emptied))
        for name in sums:
            assert torch.equal(sums[name], same[name])


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e6, 1e18, 1e25])
@pytest.mark.parametrize("kind", ["flat", "normalised"])
def test_one_row_never_exceeds_the_clipping_norm(size: float, kind: Literal["flat", "normalised"]) -> None:
    model, clipping = random_model("reading"), Clipping(kind=kind, clip=1.0)
    mixed, dense, _ = random_rows(2)
    dense = replace(dense, dense=np.float32(size) * dense.dense)
    features = replace(mixed.features, values=np.float32(size) * mixed.features.values)
    for rows in (dense, replace(mixed, features=features)):
        sums = RowSums()(model, rows, clipping)
        norm = torch.cat([value.reshape(-1) for value in sums.values()]).norm()
        # Beyond float32 a row contributes nothing.
        assert norm <= 1 + 1e-6
        assert norm > (0.5 if size <= 1e18 else -1)


def test_rows_that_are_not_finite_contribute_nothing() -> None:
    model, clipping = random_model("reading-relu"), Clipping()
    _, rows, _ = random_rows(8)
    rows.dense[2] = np.float32(3e38)
    others = RowSums()(model, rows.take(np.array([0, 1, 3, 4, 5, 6, 7])), clipping)
    for name, value in RowSums()(model, rows, clipping).items():
        torch.testing.assert_close(value, others[name], rtol=1e-6, atol=1e-6)


def test_sparse_rows_are_scaled_to_their_norm() -> None:
    _, dense, _ = random_rows(50)
    csr = sparse.csr_array(dense.dense[:, :FEATURES])
    features = SparseRows.of(csr)
    rows = replace(dense, features=features, scales=features.scales(6.0), dense=np.zeros((50, 0), np.float32))
    norms = np.sqrt(rows.input_squares(0)[0])
    is_empty = np.diff(csr.indptr) == 0
    assert is_empty.any()
    np.testing.assert_allclose(norms, np.where(is_empty, 0.0, 6.0), rtol=1e-6)


@pytest.mark.parametrize("norm", [0.0, 6.0])
def test_rows_read_in_place_give_the_sums_of_copies_bit_for_bit(norm: float) -> None:
    mixed, dense, _ = random_rows(900)
    features, readings = dense.dense[:, :FEATURES].copy(), mixed.dense
    nodes = np.random.default_rng(5).permutation(900)[:500]
    scales = mixed.features.scales(norm)
    own: dict[str, Any] = {"dense": readings[nodes], "labels": mixed.labels[nodes]}
    own |= {"scales": scales, "nodes": nodes}
    model, clipping = random_model("reading"), Clipping()
    chain = find_chain(model)
    assert chain is not None
    for rows in (Rows(features=mixed.features, **own), Rows(table=features, **own)):
        copied = rows.gathered()
        assert copied.nodes is None
        assert len(copied.dense) == 500
        expected = RowSums()(model, copied, clipping)
        for name, value in RowSums()(model, rows, clipping).items():
            assert torch.equal(value, expected[name])
        assert torch.equal(RowPass(chain).scores(rows), RowPass(chain).scores(copied))
        taken = features[nodes] if scales is None else features[nodes] * scales[nodes, None]
        written_out = Rows(dense=np.concatenate([taken, readings[nodes]], axis=1), labels=copied.labels)
        for name, value in RowSums()(model, written_out, clipping).items():
            torch.testing.assert_close(value, expected[name], rtol=2e-6, atol=4e-6)


def test_sparse_entries_that_are_given_twice_are_added_up() -> None:
    twice = sparse.csr_array((np.ones(3, np.float32), [1, 0, 1], [0, 3]), shape=(1, 2))
    rows = SparseRows.of(twice)
    assert (rows.indices.tolist(), rows.values.tolist(), twice.nnz) == ([0, 1], [1.0, 2.0], 3)


def test_other_models_are_no_chains() -> None:
    for model in (GNN(3, 2, model="gat"), GNN(3, 2, model="gin"), torch.nn.Linear(3, 2)):
        assert find_chain(model) is None
    with pytest.raises(TypeError, match="expected a chain"):
        RowSums()(torch.nn.Linear(3, 2), random_rows(2)[1], Clipping())


def test_torch_threads_are_left_as_they_were() -> None:
    from hushgraph._threads import count_threads, use_one_pool

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert count_threads() == 1
        torch.set_num_threads(3)
        with use_one_pool():
            assert torch.get_num_threads() == 1
            assert count_threads() == min(3, len(os.sched_getaffinity(0)))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_GPU)]
# So often that a GPU has replayed its recording.
CALLS = 5


def check_sums(sums: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    # Also in this order: a seed gives every parameter the same noise on all devices.
    assert list(sums) == list(expected)
    for name, value in sums.items():
        # Rounding is that of the largest numbers, which are larger where nothing is clipped.
        largest = max(10.0, float(expected[name].abs().max()))
        torch.testing.assert_close(value.cpu(), expected[name], rtol=2e-6, atol=4e-7 * largest)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["normalised", "flat", "groups", None])
@pytest.mark.parametrize("model_kind", ["reading", "reading-relu", "deep"])
def test_the_operations_of_a_gpu_give_the_same_sums(model_kind: str, kind: str | None, device: str) -> None:
    clipping = Clipping(kind=kind, clip=0.7) if kind else None  # type: ignore[arg-type]
    model, on_device = random_model(model_kind), random_model(model_kind).to(device)
    mixed, dense, _ = random_rows(700)
    mixed.features.values[3] = np.float32(1e25)
    for rows in (mixed, dense):
        device_sums = RecordedRowSums(torch.device(device))
        for call in range(CALLS):
            # Weights that change between calls are read anew.
            for parameter in (*model.parameters(), *on_device.parameters()):
                parameter.data *= 0.9
            sums = device_sums(on_device, rows, clipping)
            if call in (0, CALLS - 1):
                check_sums(sums, RowSums()(model, rows, clipping))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_sparse", [0, 3])
def test_loading_kernels_leaves_the_model_as_it_was(num_sparse: int, device: str) -> None:
    model = random_model("reading").to(device)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    load_kernels(model, torch.device(device), num_sparse=num_sparse)
    load_kernels(torch.nn.Linear(2, 3), torch.device(device), num_sparse=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_are_drawn_give_the_sum_of_those_rows(device: str) -> None:
    model, clipping = random_model("reading"), Clipping(clip=0.7)
    on_device = random_model("reading").to(device)
    table, _, _ = random_rows(700)
    device_sums = RecordedRowSums(torch.device(device))
    # None, fewer and more rows than there is room for at once.
    for count in (0, 1, 200, 300, 690):
        places = np.sort(np.random.default_rng(count).permutation(700)[:count])
        drawn = DrawnRows(table=table, places=places, room=256)
        check_sums(device_sums(on_device, drawn, clipping), RowSums()(model, table.take(places), clipping))


@pytest.mark.parametrize("device", DEVICES)
def test_outputs_that_are_not_finite_spoil_nothing(device: str) -> None:
    model, clipping = random_model("reading-relu").to(device), Clipping(clip=0.7)
    _, rows, _ = random_rows(300)
    without = replace(rows, labels=rows.labels.copy(), dense=rows.dense.copy())
    rows.dense[[1, 17]] = np.float32(3e38)
    without.dense[[1, 17]], without.labels[[1, 17]] = 0, -1
    device_sums = RecordedRowSums(torch.device(device))
    expected = {name: value.clone() for name, value in device_sums(model, without, clipping).items()}
    for name, value in device_sums(model, rows, clipping).items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)
