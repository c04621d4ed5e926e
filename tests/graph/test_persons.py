"""Whose a node is, as texts, numbers and what stands for nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

from hushgraph.errors import GraphError
from hushgraph.graph.persons import name_persons


@pytest.mark.parametrize(
    "given",
    [
        ["a", None, "b", "a", " "],
        [7, -1, 8, 7, -2],
        [1.5, np.nan, 0, 1.5, -1],
        pandas.Series([7, None, 8, 7, None], dtype="Int64"),
        pandas.Series(["a", None, "b", "a", ""], dtype="string"),
        np.array([(1, 2), pandas.NaT, "b", (1, 2), None], object),
    ],
)
def test_a_person_is_named_by_the_first_node_and_a_gap_by_itself(given: Any) -> None:
    assert name_persons(given, 5).tolist() == [0, 1, 2, 0, 4]


@pytest.mark.parametrize("odd", [[1], {"a": 1}, np.zeros(2)])
def test_what_names_nobody_is_refused(odd: Any) -> None:
    given = np.array(["a", None], object)
    given[1] = odd
    with pytest.raises(GraphError, match=r"persons\[1\]=.*; expected a text or a number"):
        name_persons(given, 2)
