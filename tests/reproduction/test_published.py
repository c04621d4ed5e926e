"""The paper's numbers in the specs against a list typed from the paper a second time, in both directions."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from hushgraph.models.gnn import GATLayer
from hushgraph.reproduction import spec
from hushgraph.runs.config import TrainingConfig
from hushgraph.training.optimizers import build_optimizer
from hushgraph.training.steps import choose_percentile_clipping

HAND: Any = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("published_by_hand.py"))))
ARXIV_TRAIN = 90_941
TABLES = {
    "transductive": HAND.TRANSDUCTIVE,
    "inductive": HAND.INDUCTIVE,
    "inductive-gin": HAND.INDUCTIVE_OTHERS,
}
ABLATIONS = {"batch-size": ("batch_size", HAND.BATCH_SIZE), "degree": ("max_readers", HAND.DEGREE)}
HYPER = {
    "transductive": HAND.HYPER_TRANSDUCTIVE,
    "inductive": HAND.HYPER_INDUCTIVE,
    "architectures": HAND.HYPER_TRANSDUCTIVE_OTHERS,
    "inductive-gin": HAND.HYPER_INDUCTIVE_OTHERS,
}
HEADINGS = {
    "lr": "lr",
    "batch": "batch_size",
    "act": "activation",
    "enc": "n_enc",
    "dec": "n_dec",
    "noise": "lambda",
    "K": "K",
}
STATISTICS = {
    "nodes": "Nodes",
    "degree": "Avg. Degree",
    "features": "Features",
    "classes": "Classes",
    "train": "Train",
    "val": "Val",
    "test": "Test",
}


def mean_and_spread(text: str) -> tuple[float, float | None]:
    mean, _, spread = text.partition(" ± ")
    return float(mean), float(spread) if spread else None


def architecture(row: str, method: str) -> str:
    return f"DP-{row}" if method.startswith("DP-") else row


def by_hand(experiment: str) -> dict[tuple[str, str, tuple[tuple[str, float], ...]], Any]:
    if experiment in TABLES:
        return {
            (column, row, ()): mean_and_spread(text) for row, column, text in HAND.cells(TABLES[experiment])
        }
    if experiment == "architectures":
        return {
            ("ogbn-arxiv", architecture(row, method), ()): mean_and_spread(text)
            for row, method, text in HAND.cells(HAND.TRANSDUCTIVE_OTHERS)
        }
    if experiment in ABLATIONS:
        axis, table = ABLATIONS[experiment]
        rows = {"difference": "A_GCN - A_DP-GCN"}
        return {
            ("ogbn-arxiv", rows.get(row, row), ((axis, place(value)),)): mean_and_spread(text)
            for value, row, text in HAND.cells(table)
        }
    if experiment == "datasets":
        return {
            (dataset, STATISTICS[name], ()): mean_and_spread(text)
            for dataset, name, text in HAND.cells(HAND.DATASETS)
        }
    return {}


def place(value: str) -> int:
    return ARXIV_TRAIN if value == "Full-Batch" else int(value)


def hyper_by_hand() -> dict[tuple[str, str, str, str], Any]:
    settings: dict[tuple[str, str, str, str], Any] = {
        ("common", "", "", name.replace(" ", "_")): value for name, value in HAND.HYPER_COMMON.items()
    }
    for table, text in HYPER.items():
        heading, *lines = ([part.strip() for part in line.split("|")] for line in text.strip().splitlines())
        for row, column, *values in lines:
            if table == "architectures":
                row, column = architecture(row, column), "ogbn-arxiv"
            if table == "transductive" and row == "GCN":
                # Its table of results calls it so.
                row = "GCN (1-layer)"
            for name, value in zip(heading[2:], values, strict=True):
                settings[table, column, row, HEADINGS[name]] = setting(name, value)
    return settings


def setting(name: str, value: str) -> Any:
    if value == "-":
        return None
    return value if name == "act" else float(value)


# Names of printed columns that differ from those of the fields.
PRINTED = {"lambda": "noise_multiplier", "K": "max_readers"}


def hyper_by_file() -> dict[tuple[str, str, str, str], Any]:
    """The paper's four tables of settings in the files: (table, column, printed row, name) -> value.

    A table has the name of its experiment. Names are lr, batch_size, activation, n_enc, n_dec, lambda and K;
    a dash is None. Settings that all experiments share have table "common", column "" and row "".
    """
    settings: dict[tuple[str, str, str, str], Any] = {
        ("common", "", "", name): spec.load_common()[name]
        for name in ("hidden", "heads", "beta1", "beta2", "clip_percentile")
    }
    for name in spec.names():
        experiment = spec.load(name)
        if not experiment.source:
            continue
        for row in experiment.rows:
            for column, own in row.cells.items():
                if own.has_settings:
                    for setting in ("lr", "batch_size", "activation", "n_enc", "n_dec", "lambda", "K"):
                        field = PRINTED.get(setting, setting)
                        settings[name, column, row.printed, setting] = getattr(own, field)
    return settings


@pytest.mark.parametrize("experiment", spec.names())
def test_results(experiment: str) -> None:
    assert spec.published_numbers(spec.load(experiment)) == by_hand(experiment)


def test_every_table_of_results_has_its_experiment() -> None:
    assert {*TABLES, *ABLATIONS, "architectures", "datasets"} <= set(spec.names())
    printed = sum(len(spec.published_numbers(spec.load(name))) for name in spec.names())
    assert printed == 4 * 5 + 3 * 6 + 2 * 4 + 3 * 6 + 3 * 6 + 3 * 6 + 7 * 7


def test_hyperparameters() -> None:
    ours, theirs = hyper_by_hand(), hyper_by_file()
    assert theirs == ours
    assert len(ours) == 5 + 7 * (5 * 4 + 6 * 3 + 4 * 2 + 6 * 3)


@pytest.mark.parametrize(
    ("experiment", "caption"),
    [
        ("transductive", "transductive"),
        ("architectures", "transductive"),
        ("inductive", "inductive"),
        ("inductive-gin", "inductive"),
        ("batch-size", "batch size"),
        ("degree", "degree"),
    ],
)
def test_budgets(experiment: str, caption: str) -> None:
    assert spec.load(experiment).epsilon == HAND.EPSILON_AT_MOST[caption]


@pytest.mark.parametrize("table", [HAND.BATCH_SIZE, HAND.DEGREE], ids=["batch size", "degree"])
def test_printed_differences_are_differences(table: str) -> None:
    numbers = {(row, column): float(text) for row, column, text in HAND.cells(table)}
    for row, column in numbers:
        if column == "difference":
            difference = numbers[row, "GCN"] - numbers[row, "DP-GCN"]
            assert numbers[row, column] == pytest.approx(difference, abs=1e-9)


def test_numbers_that_two_tables_share() -> None:
    tables = {
        name: {(row, column): text for row, column, text in HAND.cells(table)}
        for name, table in (*TABLES.items(), ("others", HAND.TRANSDUCTIVE_OTHERS))
    }
    for row in ("MLP", "DP-MLP"):
        for column in ("ogbn-arxiv-disjoint", "ogbn-arxiv-clustered", "reddit-disjoint"):
            assert tables["inductive"][row, column] == tables["inductive-gin"][row, column]
    shared = {"GCN (1-layer)": ("GCN", "Non-Private GNN"), "DP-GCN (Adam)": ("GCN", "DP-GNN")}
    shared |= {"MLP": ("MLP", "Non-Private GNN"), "DP-MLP": ("MLP", "DP-GNN")}
    for row, other in shared.items():
        assert tables["transductive"][row, "ogbn-arxiv"] == tables["others"][other]


def test_what_the_paper_says_once_is_what_the_code_does() -> None:
    common = spec.load_common()
    assert inspect.signature(GATLayer).parameters["heads"].default == common["heads"]
    percentile = inspect.signature(choose_percentile_clipping).parameters["percentile"]
    assert percentile.default == common["clip_percentile"]
    config = TrainingConfig(optimizer="adam", learning_rate=0.1, momentum=common["beta1"])
    model = nn.Linear(1, 1)
    average = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = build_optimizer(model, average, config, None)
    assert optimizer.param_groups[0]["betas"] == (common["beta1"], common["beta2"])
