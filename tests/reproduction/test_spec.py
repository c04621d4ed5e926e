"""The experiments as data: all files are read, and none contradicts itself."""

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
    numbers = spec.published_numbers(spec.load("transductive"))
    assert numbers["reddit", "DP-GCN (Adam)", ()] == (92.377, 0.021)
    numbers = spec.published_numbers(spec.load("batch-size"))
    assert numbers["ogbn-arxiv", "DP-GCN", (("batch_size", 90941.0),)] == (63.662, None)
    assert numbers["ogbn-arxiv", "A_GCN - A_DP-GCN", (("batch_size", 2500.0),)] == (15.295, None)
    assert spec.published_numbers(spec.load("datasets"))["reddit-disjoint", "Avg. Degree", ()] == (54.4, None)
    assert spec.published_numbers(spec.load("inductive-facebook")) == {}


def test_printed_differences_are_differences() -> None:
    for name in ("batch-size", "degree"):
        numbers = spec.published_numbers(spec.load(name))
        for (column, row, axes), (value, _) in numbers.items():
            if row == "A_GCN - A_DP-GCN":
                ours = numbers[column, "GCN", axes][0] - numbers[column, "DP-GCN", axes][0]
                assert value == pytest.approx(ours, abs=5e-4)


def test_a_row_like_another_takes_its_settings_and_keeps_its_own_numbers() -> None:
    experiment = spec.load("degree")
    row = next(row for row in experiment.rows if row.row == "DP-GCN")
    cell = spec.find_cell(row, "ogbn-arxiv")
    assert cell is not None
    assert (cell.lr, cell.noise_multiplier, cell.points[0]) == (0.003, 2.0, [3, 62.413])


@pytest.mark.parametrize("name", spec.names())
def test_what_a_file_names_is_there(name: str) -> None:
    experiment = spec.load(name)
    assert experiment.kind in {"table", "curve", "classes", "statistics", "frontier"}
    assert set(experiment.axes) <= {"epsilon", "batch_size", "max_readers"}
    columns, rows = {column.name for column in experiment.columns}, {row.row for row in experiment.rows}
    for row in experiment.rows:
        assert set(row.cells) <= columns
        assert set(row.modes) <= set(spec.MODES)
        assert len(row.minus) in (0, 2)
        assert set(row.minus) <= rows
        assert row.like is None or row.like in spec.names()
        assert not any(cell.points for cell in row.cells.values()) or len(experiment.axes) == 1


@pytest.mark.parametrize(
    "given",
    [{"title": "t", "sedes": 3}, {}, {"title": "t", "rows": [{"row": "A", "cells": {"a": {"lambada": 2}}}]}],
)
def test_a_key_that_nothing_reads_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        spec.parse("mine", given)


def test_an_unknown_experiment_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean transductive"):
        spec.load("transductiv")
