"""What `train` says about arguments that it does not know, and values that are no numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.errors import InputError, PlanError
from hushgraph.graph.graph import Graph
from hushgraph.privacy.plans import TreePlan
from hushgraph.runs.config import TrainingConfig

REAL = ["epsilon", "paper_noise_multiplier", "delta", "clip", "learning_rate"]
WHOLE = [
    "num_layers",
    "max_readers",
    "max_reads",
    "batch_size",
    "steps",
    "hidden",
    "split_seed",
    "num_classes",
    "seed",
]
OTHER_REAL = ["momentum", "feature_norm", "average", "stability"]
OTHER_WHOLE = ["encoder_layers", "decoder_layers", "resample_every", "evaluate_every"]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=60, num_classes=2, num_features=4, average_degree=2, seed=1)


def refusal(graph: Graph, **arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        hg.train(graph, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("value", ["4", True, [4], np.ones((9, 9)), np.True_, 1j])
@pytest.mark.parametrize("name", REAL + WHOLE)
def test_what_is_no_number_is_refused_before_data_is_read(name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        hg.train("nowhere.npz", **{"epsilon": 4.0} | {name: value})
    text = str(caught.value)
    assert text.startswith(f"{name}={repr(value).splitlines()[0][:40]}")
    assert text.endswith(f": expected a {'whole ' * (name in WHOLE)}number")
    assert "\n" not in text
    assert len(text) < 150


@pytest.mark.parametrize("name", OTHER_REAL + OTHER_WHOLE)
def test_settings_that_are_no_numbers_are_refused(graph: Graph, name: str) -> None:
    expected = f"{name}='4': expected a {'whole ' * (name in OTHER_WHOLE)}number"
    assert refusal(graph, epsilon=4.0, **{name: "4"}) == expected


def test_all_that_is_no_number_is_told_at_once(graph: Graph) -> None:
    assert refusal(graph, epsilon="4", split_seed=None, hidden=8.0) == (
        "epsilon='4': expected a number; hidden=8.0: expected a whole number; "
        "split_seed=None: expected a whole number"
    )


def test_numbers_of_numpy_are_numbers(graph: Graph) -> None:
    whole = {"steps": 2, "hidden": 4, "batch_size": 10, "max_readers": 1, "num_layers": 1, "seed": 1}
    real = {"epsilon": 8.0, "delta": 1e-3, "learning_rate": 0.5, "clip": 1.0, "momentum": 0.5}
    run = hg.train(
        graph,
        device="cpu",
        **{name: np.int32(value) for name, value in whole.items()},
        **{name: np.float32(value) for name, value in real.items()},
    )
    assert run.result["epsilon_spent"] <= 8.0
    assert type(run.config.hidden) is type(run.config.seed) is int
    assert type(run.config.learning_rate) is float
    # Written and read again, which only Python's own numbers are.
    assert hg.Run.load(run.folder.path).config == run.config


def test_a_narrow_epsilon_rounds_no_price_down() -> None:
    plan = TreePlan(num_train_nodes=1000, num_layers=1, max_readers=1, batch_size=50, steps=20)
    target = np.float32(3.7)
    assert plan.calibrated(epsilon=target).epsilon <= float(target)
    assert plan.calibrated(epsilon=target) == plan.calibrated(epsilon=float(target))
    with pytest.raises(PlanError, match="epsilon='4': expected a positive number"):
        plan.calibrated(epsilon="4")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_reader", "max_readers"),
        ("lr", "learning_rate"),
        ("target_epsilon", "epsilon"),
        ("target_delta", "delta"),
        ("max_grad_norm", "clip"),
        ("layers", "num_layers"),
        ("non_private", "private"),
        ("activaton", "activation"),
    ],
)
def test_an_unknown_argument_is_told_first_and_with_the_nearest(graph: Graph, name: str, meant: str) -> None:
    assert refusal(graph, **{name: "3"}) == f"{name}: train has no such argument; did you mean {meant}?"


def test_an_argument_like_no_other_gets_no_hint(graph: Graph) -> None:
    assert refusal(graph, epsilon=4.0, xyzzy=1) == "xyzzy: train has no such argument"


@pytest.mark.parametrize(("field", "choices"), [("model", "gcn, gin, gat, mlp"), ("optimizer", "adam, sgd")])
def test_own_is_no_name_to_choose(field: str, choices: str) -> None:
    with pytest.raises(InputError, match=rf"^{field}='gnc': expected one of {choices}$"):
        TrainingConfig(**{field: "gnc"})
    assert getattr(TrainingConfig(**{field: "own"}), field) == "own"
