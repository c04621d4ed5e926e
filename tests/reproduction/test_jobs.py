"""The runs of an experiment and the arguments of `train`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hushgraph.reproduction import spec
from hushgraph.reproduction.jobs import Job, fit_to_data, list_jobs, run_digest, train_arguments
from plans import make_plan

BOTH = ("as-published", "sound")


def one(name: str, pattern: str, mode: str, **axes: float) -> Job:
    matching = [
        job
        for job in list_jobs(spec.load(name), modes=BOTH, seeds=1, only=[pattern])
        if job.mode == mode and (not axes or dict(job.axes) == axes)
    ]
    assert len(matching) == 1
    return matching[0]


def test_as_published_is_the_paper_in_every_respect() -> None:
    arguments = train_arguments(one("transductive", "ogbn-arxiv/DP-GCN", "as-published"))
    assert arguments.pop("evaluate_every") == arguments.pop("resample_every")
    assert arguments == {
        "model": "gcn",
        "num_layers": 1,
        "setting": "transductive",
        "epsilon": 12.0,
        "paper_noise_multiplier": 2.0,
        "max_readers": 7,
        "batch_size": 10_000,
        "sampler": "paper",
        "accountant": "paper",
        "clipping": "percentile",
        "noise": "per-layer",
        "optimizer": "adam",
        "momentum": 0.9,
        "learning_rate": 0.003,
        "activation": "tanh",
        "encoder_layers": 1,
        "decoder_layers": 2,
        "hidden": 256,
        "schedule": "constant",
        "average": 0.0,
        "feature_norm": 0.0,
    }


def test_the_budget_sets_the_steps_as_published() -> None:
    arguments = fit_to_data(train_arguments(one("transductive", "ogbn-arxiv/DP-GCN", "as-published")), 90_941)
    names = ("max_readers", "batch_size", "sampler", "accountant", "clipping", "noise")
    plan = make_plan(
        num_train_nodes=90_941,
        num_layers=1,
        steps=1,
        paper_noise_multiplier=arguments["paper_noise_multiplier"],
        **{name: arguments[name] for name in names},
    ).with_steps_for(epsilon=arguments["epsilon"])
    assert "steps" not in arguments
    assert 660 <= plan.steps <= 675
    assert plan.guarantee == "claimed by the paper"


def test_sound_gives_the_budget_and_the_model_alone() -> None:
    arguments = train_arguments(one("inductive", "ogbn-arxiv-disjoint/DP-GCN 2-layer", "sound"))
    del arguments["evaluate_every"]
    assert arguments == {"model": "gcn", "num_layers": 2, "setting": "inductive", "epsilon": 15.0}
    assert train_arguments(one("degree", "DP-GCN", "sound", max_readers=0))["max_readers"] == 0


def test_baselines_train_without_noise_for_a_number_of_passes() -> None:
    arguments = train_arguments(one("transductive", "ogbn-arxiv/GCN", "non-private"))
    assert arguments["private"] is False
    assert "epsilon" not in arguments
    assert fit_to_data(arguments, 90_941)["steps"] == 1819
    assert fit_to_data(arguments, 10_000_000)["steps"] == spec.load_common()["most_steps"]
    assert fit_to_data(arguments, 300) | {"steps": 500, "batch_size": 300} == fit_to_data(arguments, 300)


def test_dp_mlp_is_priced_as_ordinary_dp_adam() -> None:
    arguments = train_arguments(one("transductive", "ogbn-products/DP-MLP", "as-published"))
    assert (arguments["max_readers"], arguments["accountant"], arguments["activation"]) == (0, "pair", "relu")


def test_sgd_has_no_momentum() -> None:
    arguments = train_arguments(one("transductive", "ogbn-arxiv/DP-GCN (SGD)", "as-published"))
    assert (arguments["optimizer"], arguments["momentum"], arguments["learning_rate"]) == ("sgd", 0.0, 1.0)


def test_noise_grows_with_the_batch_where_the_paper_says_so() -> None:
    multipliers = [
        train_arguments(one("batch-size", "DP-GCN", "as-published", batch_size=size))[
            "paper_noise_multiplier"
        ]
        for size in (2500, 10_000, 40_000)
    ]
    assert multipliers == pytest.approx([0.5, 2.0, 8.0])


def test_axes_are_left_out_where_they_mean_nothing() -> None:
    curves = list_jobs(spec.load("curves"), modes=BOTH, only=["ogbn-arxiv"])
    assert {job.axes for job in curves if job.mode == "non-private"} == {()}
    assert len({job.axes for job in curves if job.row.row == "DP-MLP"}) == 8
    assert {job.epsilon for job in curves if job.row.row == "GCN"} == {None}


def test_filters_modes_and_seeds() -> None:
    table = spec.load("transductive")
    assert {job.mode for job in list_jobs(table, modes=("sound",))} == {
        "sound",
        "non-private",
        "non-private-ours",
    }
    assert {job.row.row for job in list_jobs(table, modes=BOTH, only=["*/dp-*"])} == {
        "DP-GCN",
        "DP-GCN (SGD)",
        "DP-MLP",
    }
    assert {job.column.name for job in list_jobs(table, modes=BOTH, only=["reddit"])} == {"reddit"}
    assert list_jobs(table, modes=BOTH, only=["nothing"]) == []
    assert len(list_jobs(table, modes=BOTH, seeds=2)) == 2 * len(list_jobs(table, modes=BOTH, seeds=1))


def test_equal_runs_of_two_tables_have_one_digest() -> None:
    first = one("transductive", "ogbn-arxiv/DP-GCN", "as-published")
    second = one("degree", "DP-GCN", "as-published", max_readers=7)
    third = one("degree", "DP-GCN", "as-published", max_readers=5)
    digests = [
        run_digest(train_arguments(job), data="d", reading={}, seed=0) for job in (first, second, third)
    ]
    assert digests[0] == digests[1] != digests[2]
    assert run_digest(train_arguments(first), data="d", reading={}, seed=1) != digests[0]
    assert run_digest(train_arguments(first), data="e", reading={}, seed=0) != digests[0]


def test_a_label_tells_runs_apart() -> None:
    job = one("degree", "DP-GCN", "sound", max_readers=3)
    assert job.label == "ogbn-arxiv, DP-GCN, max_readers=3, sound, seed 0"
    assert replace(job, seed=1).label != job.label


def test_our_defaults_without_noise_choose_nothing_else() -> None:
    arguments = train_arguments(one("transductive", "ogbn-arxiv/GCN", "non-private-ours"))
    assert arguments.pop("evaluate_every") > 10**6
    assert arguments == {"model": "gcn", "num_layers": 1, "setting": "transductive", "private": False}


def test_an_ablation_varies_the_settings_of_the_paper_alone() -> None:
    modes = {job.mode for job in list_jobs(spec.load("degree"), modes=("sound",)) if not job.row.private}
    assert modes == {"non-private"}
