"""The experiments as data: all files are read, and mistakes in one are found."""

from __future__ import annotations

from typing import Any

import pytest

from hushgraph.errors import InputError
from hushgraph.reproduction import spec
from hushgraph.reproduction.jobs import list_jobs


@pytest.mark.parametrize("name", spec.names())
def test_every_experiment_is_read_and_has_work(name: str) -> None:
    experiment = spec.load(name)
    assert experiment.name == name
    assert experiment.columns
    if experiment.kind == "statistics":
        assert all(column.statistics for column in experiment.columns)
    else:
        assert list_jobs(experiment, modes=spec.DP_MODES)


def test_the_degree_axis_begins_where_no_edge_is_read() -> None:
    assert spec.load("degree").axes["max_readers"] == (0, 1, 2, 3, 5, 7, 10, 20, 30)


def test_published_numbers_carry_column_row_axes_and_spread() -> None:
    numbers = spec.published_numbers("transductive")
    assert numbers["reddit", "DP-GCN (Adam)", ()] == (92.377, 0.021)
    numbers = spec.published_numbers("batch-size")
    assert numbers["ogbn-arxiv", "DP-GCN", (("batch_size", 90941.0),)] == (63.662, None)
    assert numbers["ogbn-arxiv", "A_GCN - A_DP-GCN", (("batch_size", 2500.0),)] == (15.295, None)
    assert spec.published_numbers("datasets")["reddit-disjoint", "Avg. Degree", ()] == (54.4, None)
    assert spec.published_numbers("inductive-facebook") == {}


def test_printed_differences_are_differences() -> None:
    for name in ("batch-size", "degree"):
        numbers = spec.published_numbers(name)
        for (column, row, axes), (value, _) in numbers.items():
            if row == "A_GCN - A_DP-GCN":
                ours = numbers[column, "GCN", axes][0] - numbers[column, "DP-GCN", axes][0]
                assert value == pytest.approx(ours, abs=5e-4)


def test_a_row_like_another_takes_its_settings_and_keeps_its_own_numbers() -> None:
    experiment = spec.load("degree")
    row = next(row for row in experiment.rows if row.row == "DP-GCN")
    cell = spec.find_cell(experiment, row, "ogbn-arxiv")
    assert cell is not None
    assert (cell.lr, cell.noise_multiplier, cell.points[0]) == (0.003, 2.0, (3, 62.413))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"title": "t", "sedes": 3}, "mine: unknown key sedes; the nearest known one is seeds"),
        ({}, "mine: missing 1 required keyword-only argument: 'title'"),
        ({"title": "t", "axes": {"epsilons": [1]}}, "unknown key epsilons; the nearest known one is epsilon"),
        ({"title": "t", "columns": {"a": {"symetrize": True}}}, "nearest known one is symmetrize"),
        ({"title": "t", "rows": [{"row": "A", "cells": {"b": {}}}]}, "rows.A: no column b"),
        ({"title": "t", "rows": [{"row": "A", "modes": ["loud"]}]}, "modes"),
        ({"title": "t", "rows": [{"row": "A", "minus": ["B", "C"]}]}, "minus"),
        ({"title": "t", "kind": "tabel"}, "kind='tabel'"),
        (
            {
                "title": "t",
                "columns": {"a": {}},
                "rows": [{"row": "A", "cells": {"a": {"points": [[1, 2]]}}}],
            },
            "exactly one axis",
        ),
        (
            {"title": "t", "columns": {"a": {}}, "rows": [{"row": "A", "cells": {"a": {"lambada": 2}}}]},
            "rows.A.cells.a: unknown key lambada",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message.replace(".", r"\.").replace("[", r"\[")):
        spec.parse("mine", given)


def test_an_unknown_experiment_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean transductive"):
        spec.load("transductiv")
