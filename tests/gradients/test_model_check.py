"""Every kind of model that cannot be trained privately is refused, all its offenders by name."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hushgraph.errors import ModelError
from hushgraph.gradients.model_check import check_model
from hushgraph.models.blocks import Reads
from hushgraph.models.gnn import GNN, Scale


class OneRound(nn.Module):
    """A user's own model: Linear, a mean over the reads, LayerNorm, whatever `extra` is, Linear."""

    def __init__(self, extra: nn.Module | None = None) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.extra = nn.Identity() if extra is None else extra
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        (reads,) = blocks
        h = reads.mean(torch.relu(self.first(x)))
        out: Tensor = self.last(self.extra(torch.tanh(self.norm(h))))
        return out


def check(model: nn.Module, depth: int = 1, num_classes: int = 3) -> None:
    check_model(model, num_features=6, num_outputs=num_classes, depth=depth)


def refusal(model: nn.Module) -> str:
    with pytest.raises(ModelError) as caught:
        check(model)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "mlp"])
def test_built_in_models_pass(name: str, depth: int) -> None:
    model = GNN(6, 3, model=name, num_layers=depth, hidden=8)
    check(model, depth=model.depth)


@pytest.mark.parametrize(
    "extra",
    [
        None,
        nn.Dropout(0.5),
        nn.Sequential(nn.Linear(8, 8, bias=False), nn.GELU(), Scale()),
        nn.LayerNorm(8, bias=False),
        nn.LayerNorm(8, elementwise_affine=False),
        nn.GroupNorm(2, 8, affine=False),
    ],
    ids=["nothing", "dropout", "layers", "no bias", "no affine", "plain group norm"],
)
def test_a_model_of_supported_layers_passes(extra: nn.Module | None) -> None:
    check(OneRound(extra))


class Looks(OneRound):
    """Looks up the first feature, calls one layer twice and keeps it under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 8)
        self.twice = nn.Linear(8, 8)
        self.again = self.twice
        self.register_buffer("shift", torch.ones(8))

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        (reads,) = blocks
        h = self.table(x[:, 0].long()) + self.first(x) + self.shift
        out: Tensor = self.last(self.again(torch.tanh(self.twice(reads.mean(h)))))
        return out


def test_embeddings_constant_buffers_and_layers_called_twice_pass() -> None:
    check(Looks())


def test_the_model_is_left_as_it_was() -> None:
    model = OneRound(nn.Dropout(0.5)).train()
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    check(model)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert "forward" not in vars(model.first)
    assert torch.equal(state, torch.get_rng_state())


class Doubled(nn.Linear):
    pass


@pytest.mark.parametrize(
    ("extra", "named", "advice"),
    [
        (nn.BatchNorm1d(8), "extra (BatchNorm1d) mixes examples", "use LayerNorm"),
        (nn.BatchNorm1d(8, affine=False, track_running_stats=False), "extra (BatchNorm1d)", "use LayerNorm"),
        (nn.SyncBatchNorm(8), "extra (SyncBatchNorm)", "use LayerNorm"),
        (nn.InstanceNorm1d(8), "extra (InstanceNorm1d)", "use LayerNorm"),
        (nn.LazyBatchNorm1d(), "extra (LazyBatchNorm1d)", "use LayerNorm"),
        (nn.GroupNorm(2, 8), "extra (GroupNorm) holds weight, bias", "use LayerNorm"),
        (nn.RMSNorm(8), "extra (RMSNorm) holds weight", "use LayerNorm"),
        (nn.Conv1d(8, 8, 1), "extra (Conv1d) holds weight, bias", "use Linear layers"),
        (nn.GRU(8, 8), "extra (GRU) holds", "use Linear layers"),
        (nn.MultiheadAttention(8, 2), "extra (MultiheadAttention) holds", "as GATLayer does"),
        (nn.EmbeddingBag(5, 8), "extra (EmbeddingBag) holds weight", "use Embedding"),
        (nn.PReLU(), "extra (PReLU) holds weight", "use ReLU or Tanh"),
        (nn.LazyLinear(8), "extra (LazyLinear) holds weight, bias", "not lazy"),
        (Doubled(8, 8), "extra (Doubled) holds weight, bias", "not a subclass"),
        (nn.ParameterList([torch.zeros(2)]), "extra (ParameterList) holds 0", "Linear, LayerNorm, Embedding"),
        (nn.LayerNorm((2, 8)), "extra (LayerNorm) has normalized_shape=(2, 8)", "over the last dimension"),
        (nn.Embedding(5, 8, max_norm=1.0), "extra (Embedding) uses max_norm", "without these options"),
        (nn.Embedding(5, 8, padding_idx=0, sparse=True), "uses padding_idx, sparse", "without these options"),
        (nn.Embedding(5, 8, scale_grad_by_freq=True), "uses scale_grad_by_freq", "without these options"),
        (nn.Linear(8, 8).requires_grad_(False), "extra.weight is frozen", "set requires_grad=True"),
        (nn.Linear(8, 8).double(), "extra.weight is torch.float64", "use model.float()"),
        (
            nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
            "extra (ParametrizedLinear)",
            "not a subclass",
        ),
        (nn.utils.spectral_norm(nn.Linear(8, 8)), "extra (Linear) has weight_orig", "without re-param"),
    ],
)
def test_an_offender_is_named_with_what_to_use_instead(extra: nn.Module, named: str, advice: str) -> None:
    message = refusal(OneRound(extra))
    assert named in message
    assert advice in message


def test_all_offenders_are_listed_at_once() -> None:
    model = OneRound(nn.Sequential(nn.BatchNorm1d(8), nn.Conv1d(8, 8, 1), nn.MultiheadAttention(8, 2)))
    model.scalar = nn.Parameter(torch.zeros(1))
    model.other = nn.Linear(6, 8)
    model.other.weight = model.first.weight
    message = refusal(model)
    for offender in (
        "extra.0 (BatchNorm1d)",
        "extra.1 (Conv1d)",
        "extra.2 (MultiheadAttention)",
        "the model itself (OneRound) holds scalar",
        "first.weight and other.weight are one parameter",
    ):
        assert message.count(offender) == 1
    # Inner layers of attention are not the user's to change.
    assert "out_proj" not in message


def test_a_bare_layer_and_an_empty_model_are_refused() -> None:
    assert "it is a single Linear" in refusal(nn.Linear(6, 3))
    assert "no parameters" in refusal(nn.Sequential(nn.Tanh()))


class Centred(nn.Module):
    """Subtracts the mean over all rows: whose rows are there decides every score."""

    def __init__(self, *, only_in_training: bool = False) -> None:
        super().__init__()
        self.only_in_training = only_in_training

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training or not self.only_in_training else x


class Running(nn.Module):
    """Keeps a moving mean of what it saw."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x - self.mean


@pytest.mark.parametrize("only_in_training", [False, True])
def test_mixing_without_parameters_is_found_on_made_up_data(only_in_training: bool) -> None:
    assert "it mixes examples" in refusal(OneRound(Centred(only_in_training=only_in_training)))
    assert "it mixes examples" in refusal(
        OneRound(nn.Sequential(nn.Dropout(0.1), Centred(only_in_training=only_in_training)))
    )


def test_buffers_updated_in_training_are_found() -> None:
    assert "buffer extra.mean is updated in training" in refusal(OneRound(Running()))


class Functional(OneRound):
    """Uses a layer's weight without calling the layer."""

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        (reads,) = blocks
        return functional.linear(reads.mean(torch.tanh(self.first(x))), self.last.weight, self.last.bias)


class ZeroDecoder(Functional):
    """The same where weights that begin at zero hide it."""

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        (reads,) = blocks
        out: Tensor = self.last(reads.mean(torch.tanh(x @ self.first.weight.T)))
        return out

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.last.weight)


class Flipped(OneRound):
    """Calls a layer on rows in another order than that of the level."""

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        (reads,) = blocks
        out: Tensor = self.last(reads.mean(self.first(x.flip(0)).flip(0)))
        return out


class Pairs(OneRound):
    """Calls a layer on as many rows as no level has."""

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        (reads,) = blocks
        h = self.first(torch.cat([x, x]))
        out: Tensor = self.last(reads.mean(h[: x.shape[0]]))
        return out


class Crowded(OneRound):
    """Divides by the largest list of the batch."""

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        (reads,) = blocks
        out: Tensor = self.last(reads.sum_of_reads(self.first(x)) / reads.counts.max())
        return out


@pytest.mark.parametrize("model", [Functional(), ZeroDecoder(), Flipped(), Crowded()])
def test_gradients_that_the_layers_do_not_see_are_found(model: nn.Module) -> None:
    message = refusal(model)
    assert "cannot be told apart" in message
    named = {"Functional": "last.weight, last.bias", "ZeroDecoder": "first.weight"}.get(
        type(model).__name__, "last"
    )
    assert named in message


def test_a_layer_on_rows_of_no_level_is_named() -> None:
    assert "layer first saw" in refusal(Pairs())


class Overriding(GNN):
    """A subclass of the built-in model that does something else."""

    def forward(self, x: Tensor, blocks: Sequence[Reads]) -> Tensor:
        scores = super().forward(x, blocks)
        return scores - scores.mean(0)


def test_a_subclass_of_the_built_in_model_is_tried_too() -> None:
    assert "it mixes examples" in refusal(Overriding(6, 3, hidden=8))


def test_scores_of_another_shape_and_failures_are_reported() -> None:
    with pytest.raises(ModelError, match=r"shape \(5, 3\) for 5 roots: expected \(5, 4\)"):
        check(GNN(6, 3, hidden=8), num_classes=4)
    with pytest.raises(ModelError, match="failed with ValueError: zip"):
        check(GNN(6, 3, hidden=8), depth=2)
    with pytest.raises(ModelError, match="failed with RuntimeError: mat1 and mat2"):
        check(GNN(7, 3, hidden=8))
