"""The public names: sorted, all there, and free to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hushgraph
import hushgraph.errors

HEAVY = ("torch", "torch_geometric", "numba", "scipy", "dp_accounting", "numpy", "rich", "typer")


def test_these_are_the_names() -> None:
    things = [
        "Check",
        "Columns",
        "check",
        "Graph",
        "Guarantee",
        "Reads",
        "TrainingConfig",
        "prepare",
        "NodeClassifier",
        "NodeRegressor",
        "BillboardPlan",
        "PrivacyPlan",
        "RowPlan",
        "TreePlan",
        "Run",
        "datasets",
        "resume",
        "train",
        "Comparison",
        "compare",
    ]
    given = vars(hushgraph.errors).items()
    errors = [name for name, value in given if isinstance(value, type) and issubclass(value, Exception)]
    assert sorted(hushgraph.__all__) == sorted([*things, *errors])


def test_the_list_is_sorted_and_without_repeats() -> None:
    assert hushgraph.__all__ == sorted(set(hushgraph.__all__))


@pytest.mark.parametrize("name", hushgraph.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    value = getattr(hushgraph, name)
    assert value.__doc__
    assert value is getattr(hushgraph, name)
    assert name in dir(hushgraph)
    if isinstance(value, type):
        assert value.__name__ == name


def test_errors_share_one_parent() -> None:
    for name in hushgraph.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(hushgraph, name), hushgraph.HushgraphError)


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="module 'hushgraph' has no attribute 'privacyplan'"):
        _ = hushgraph.privacyplan
    assert isinstance(hushgraph.__version__, str)


LOADED = """
import sys
import hushgraph
print([name for name in {heavy!r} if name in sys.modules])
hushgraph.TreePlan(num_train_nodes=10, num_layers=1, max_readers=1, batch_size=5, steps=1)
import hushgraph.cli.app
print([name for name in {libraries!r} if name in sys.modules])
"""


def test_importing_loads_nothing_heavy() -> None:
    """benchmarks/bench_startup.py measures how long it takes."""
    code = LOADED.format(heavy=HEAVY, libraries=HEAVY[:5])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.splitlines() == ["[]", "[]"]


PLANNED = """
import sys
from hushgraph.cli.app import main
main({words!r})
print(sorted(name for name in {unused!r} if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("batch", "others"), [("1000", ("dp_accounting", "scipy.stats", "scipy.signal")), ("500", ())]
)
def test_a_plan_loads_only_what_it_needs(batch: str, others: tuple[str, ...]) -> None:
    """Whole batches are priced by a formula, others by `dp_accounting`."""
    words = f"plan --train-nodes 1000 --max-readers 2 --steps 10 --epsilon 4 --batch-size {batch} --json"
    unused = ("torch", "numba", "hushgraph.cli.reproduce", *others)
    code = PLANNED.format(words=words.split(), unused=unused)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.splitlines()[-1] == "[]"
