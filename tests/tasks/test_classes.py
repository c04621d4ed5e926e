"""One of c classes: the loss in torch and in the kernels, ballots, figures."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from hushgraph.errors import GraphError
from hushgraph.gradients.rows import Chain, RowPass
from hushgraph.gradients.rows_torch import differentiate
from hushgraph.inputs.rows import Rows
from hushgraph.tasks.classes import Classes, cross_entropy


def gradients_by_kernel(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The kernels' gradient by the scores: that of a bias, one row at a time, whose scores are its inputs."""
    width = scores.shape[1]
    chain = Chain(layers=(("decoder", nn.Linear(width, width)),), skip=None, relu=False, feature_norm=0.0)
    with torch.no_grad():
        chain.layers[0][1].weight.copy_(torch.eye(width))
        chain.layers[0][1].bias.zero_()
    row_pass = RowPass(chain, threads=1)
    rows = (
        Rows(dense=scores[i : i + 1].numpy(), labels=labels[i : i + 1].numpy()) for i in range(len(scores))
    )
    return torch.stack([row_pass.clipped_sum(row, None)["decoder.bias"] for row in rows])


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_kernels_have_the_gradient_of_the_loss(scale: float) -> None:
    torch.manual_seed(0)
    scores = scale * torch.randn(200, 7)
    labels = torch.randint(-1, 7, (200,))
    expected = differentiate(cross_entropy, scores.double(), labels)
    by_kernel = gradients_by_kernel(scores, labels)
    torch.testing.assert_close(by_kernel, expected, atol=1e-6, rtol=0)
    assert not by_kernel[labels < 0].any()


def test_the_gradient_by_outputs_needs_no_more_than_the_row() -> None:
    scores, labels = torch.randn(5, 3), torch.tensor([0, 1, -1, 2, 0])
    spoilt = scores.clone()
    spoilt[3] = torch.nan
    before, after = (differentiate(cross_entropy, each, labels) for each in (scores, spoilt))
    others = [0, 1, 2, 4]
    assert torch.equal(before[others], after[others])


def test_ballots_have_norm_one_and_their_largest_change_is_told() -> None:
    for c in (2, 3, 10):
        task = Classes(num_classes=c)
        ballots = task.make_ballots(np.arange(c))
        np.testing.assert_allclose(np.square(ballots).sum(1), 1)
        np.testing.assert_allclose(ballots.sum(1), 0, atol=1e-12)
        assert np.square(ballots[0] - ballots[1]).sum() == pytest.approx(task.label_change)
        own, rest = task.entry_squares
        assert own + (c - 1) * rest == Fraction(1)
        np.testing.assert_allclose(np.square(ballots[0, :2]), [float(own), float(rest)])


def test_figures_by_hand() -> None:
    evaluation = Classes(num_classes=3).evaluate(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
    assert evaluation.figures["accuracy"] == 0.75
    # Class 0: 2 * 1 / (1 + 2); class 1: 2 * 2 / (3 + 2); class 2 does not occur.
    assert evaluation.figures["macro_f1"] == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert evaluation.class_counts.tolist() == [1, 3, 0]
    assert np.isnan(evaluation.class_accuracy[2])


@pytest.mark.parametrize(
    ("labels", "message"),
    [([0, 3], r"y\[1\]=3: expected -1..2"), ([0.5, 1.0], "expected a list of integers")],
)
def test_labels_that_are_none_are_refused(labels: list[float], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Classes(num_classes=3).check_labels(labels)
    with pytest.raises(GraphError, match="num_classes=0: expected an integer of at least 1"):
        Classes(num_classes=0)
