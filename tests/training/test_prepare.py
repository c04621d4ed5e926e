"""What `prepare` reads from data that is no table."""

from __future__ import annotations

import pytest

import hushgraph as hg


def test_classes_of_data_that_is_no_table_are_numbers() -> None:
    graph = hg.datasets.synthetic(num_nodes=60, num_classes=3, seed=1)
    for classes in (["0", "1", "2"], [0, 1, 2]):
        assert hg.prepare(graph, epsilon=4.0, classes=classes).graph.has_declared_classes
    for classes, more in ((["a", "b", "c"], {}), (["0", "2", "1"], {}), ([0, 1, 2], {"num_classes": 4})):
        with pytest.raises(hg.InputError, match="are numbers from 0 on; list them as 0,1,2, or give num_cl"):
            hg.prepare(graph, epsilon=4.0, classes=classes, **more)
