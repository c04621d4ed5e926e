"""The noise of a step: the planned standard deviation in every tensor, everything drawn anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import hushgraph as hg
from hushgraph.gradients.clip import Clipping
from hushgraph.gradients.sums import sum_error
from hushgraph.inputs.features import Features
from hushgraph.models.gnn import GNN
from hushgraph.noise import normal
from hushgraph.noise.normal import seeded_keys
from hushgraph.noise.source import ExactNoise
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.config import TrainingConfig
from hushgraph.training.distributed import Group
from hushgraph.training.trainer import State, Trainer
from hushgraph.training.tree_batches import TreeBatches
from plans import make_plan


def trainer(tmp_path, *, clipping: Clipping, noise: str = "common", seed: int = 0) -> Trainer:
    graph = hg.datasets.synthetic(num_nodes=60, num_classes=3, num_features=50, average_degree=3, seed=1)
    plan = make_plan(
        num_train_nodes=len(graph.train_idx),
        num_layers=2,
        max_readers=2,
        batch_size=len(graph.train_idx),
        steps=5,
        clip=clipping.clip,
        paper_noise_multiplier=1.5,
        clipping="groups" if noise == "per-layer" else "normalised",
        noise=noise,
    )
    model = GNN(50, 3, num_layers=2, hidden=60)
    config = TrainingConfig(
        learning_rate=1.0, optimizer="sgd", momentum=0.0, schedule="constant", average=0.0
    )
    return Trainer(
        plan=plan,
        config=config,
        state=State(
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            {name: p.detach().clone() for name, p in model.named_parameters()},
        ),
        batches=TreeBatches(
            graph=graph,
            features=Features(graph),
            plan=plan,
            rng=np.random.default_rng(0),
            group=Group(),
            resample_every=config.resample_every,
        ),
        clipping=clipping,
        ledger=Ledger.create(tmp_path / "ledger.jsonl", plan),
        noise=ExactNoise(
            sigma_over_clip=plan.sigma_over_clip,
            sum_error=sum_error(num_roots=plan.num_train_nodes, num_rows=plan.most_lines(graph.num_nodes)),
            seed=seed,
        ),
    )


def widening(it: Trainer) -> float:
    """By what rounding makes the noise wider than planned: never less, and little."""
    assert isinstance(it.noise, ExactNoise)
    wider = it.noise.widening(sum(p.numel() for p in it.state.model.parameters()))
    assert 1 <= wider < 1.01
    return wider


def noise_of_empty_step(it: Trainer) -> dict[str, torch.Tensor]:
    """With no root in the batch, plain SGD at rate 1 moves the weights by the noise alone."""
    before = {name: p.detach().clone() for name, p in it.state.model.named_parameters()}
    it.take_step([])
    return {
        name: (before[name] - p.detach()) * it.plan.batch_size
        for name, p in it.state.model.named_parameters()
    }


def assert_standard_deviation(values: torch.Tensor, sigma: float) -> None:
    squares = float((values.double() / sigma).square().sum())
    assert 1e-4 < stats.chi2.cdf(squares, values.numel()) < 1 - 1e-4


def test_every_tensor_has_the_planned_standard_deviation(tmp_path) -> None:
    it = trainer(tmp_path, clipping=Clipping(clip=0.7))
    sigma = it.plan.sigma
    assert sigma == pytest.approx(1.5 * 2 * 7 * 0.7)
    for name, noise in noise_of_empty_step(it).items():
        assert_standard_deviation(noise, sigma * widening(it))
        assert noise.abs().max() < 8 * sigma, name


def test_the_check_sees_a_wrong_standard_deviation(tmp_path) -> None:
    it = trainer(tmp_path, clipping=Clipping(clip=0.7))
    weights = noise_of_empty_step(it)["encoder.0.weight"]
    for wrong in (0.9, 1.1):
        with pytest.raises(AssertionError):
            assert_standard_deviation(weights, it.plan.sigma * wrong)


def test_groups_share_one_standard_deviation_that_follows_the_whole_norm(tmp_path) -> None:
    it = trainer(tmp_path, clipping=Clipping.of_groups((0.3, 0.4, 1.2)))
    for noise in noise_of_empty_step(it).values():
        assert_standard_deviation(noise, it.plan.sigma_over_clip * widening(it) * 1.3)


def test_per_layer_noise_is_what_the_paper_describes(tmp_path) -> None:
    it = trainer(tmp_path, clipping=Clipping.of_groups((0.3, 0.4, 1.2)), noise="per-layer")
    noise, sigma = noise_of_empty_step(it), it.plan.sigma_over_clip * widening(it)
    assert_standard_deviation(noise["encoder.0.weight"], sigma * 0.3)
    assert_standard_deviation(noise["layers.0.linear.weight"], sigma * 0.4)
    assert_standard_deviation(noise["decoder.0.weight"], sigma * 1.2)
    assert it.plan.guarantee == "claimed by the paper"


def test_tensors_of_one_shape_and_steps_get_noise_of_their_own(tmp_path) -> None:
    it = trainer(tmp_path, clipping=Clipping())
    first, second = noise_of_empty_step(it), noise_of_empty_step(it)
    draws = [n["layers.0.linear.weight"] for n in (first, second)]
    draws += [n["layers.1.linear.weight"] for n in (first, second)]
    for i, one in enumerate(draws):
        for other in draws[i + 1 :]:
            correlation = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
            assert abs(float(correlation)) < 5 / one.numel() ** 0.5


def draw(*shape: int, seed: int | None = None) -> torch.Tensor:
    """Noise of standard deviation 1."""
    source = ExactNoise(sigma_over_clip=1.0, sum_error=0.0, seed=seed)
    zeros = torch.zeros(*shape, dtype=torch.float64)
    return source.add_noise({"w": zeros}, {"w": 1.0})["w"] / source.widening(zeros.numel())


def test_coordinates_are_independent() -> None:
    noise = draw(400, 250)
    assert stats.kstest(noise.flatten()[:20_000].numpy(), "norm").pvalue > 1e-4
    shifted = torch.corrcoef(torch.stack([noise[:, :-1].flatten(), noise[:, 1:].flatten()]))[0, 1]
    assert abs(float(shifted)) < 5 / noise.numel() ** 0.5


def test_without_a_seed_two_sources_never_agree() -> None:
    assert len({float(draw(1)) for _ in range(50)}) == 50


def test_noise_and_other_draws_of_one_seed_are_different_streams() -> None:
    noise, again, another = (draw(64, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(noise, again)
    boards = torch.from_numpy(normal.draw(64, seeded_keys("board 0 of 3")) / 2.0**normal.GRID_BITS)
    initial = torch.randn(64, generator=torch.Generator().manual_seed(3)).double()
    for other in (another, boards, initial):
        assert not torch.isclose(noise, other).any()
        assert abs(float(torch.corrcoef(torch.stack([noise, other]))[0, 1])) < 5 / 64**0.5
