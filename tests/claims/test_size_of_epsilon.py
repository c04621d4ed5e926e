"""Promise: an epsilon that promises little is never shown in green, and one sentence says why everywhere."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph.graph.graph import Graph
from hushgraph.privacy.guarantee import HUGE_EPSILON, LARGE_EPSILON, Guarantee, judge_size
from hushgraph.report.facts import describe_standing

Command = Callable[..., tuple[int, str, str]]
QUICK: dict[str, Any] = {"delta": 1e-4, "steps": 3, "hidden": 4, "device": "cpu"}
# Below the first limit, above it, above the second; what the box is, and what its colour is called.
LEVELS = [(9.9, "holds", "--holds"), (12.0, "large", "--claimed"), (150.0, "huge", "--none")]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=150, num_classes=3, num_features=8, average_degree=5, seed=3)


def test_limits_are_where_they_are_said_to_be() -> None:
    assert (LARGE_EPSILON, HUGE_EPSILON) == (10.0, 100.0)
    sizes = {value: judge_size(value, 1e-6) for value in (0.0, 10.0, 10.001, 100.0, 100.001, math.inf)}
    levels = {value: None if size is None else size.level for value, size in sizes.items()}
    assert levels == {0.0: None, 10.0: None, 10.001: "large", 100.0: "large", 100.001: "huge", math.inf: None}


def test_the_sentence_says_how_often_a_guess_is_right() -> None:
    size = judge_size(10.5, 1e-6)
    assert size is not None
    [percent] = re.findall(r"right up to ([0-9.]+)% of the time", size.sentence)
    # The best guess between two worlds whose odds differ by at most e^epsilon, delta apart.
    bound = (math.exp(10.5) + 1e-6) / (math.exp(10.5) + 1)
    assert 100 * bound <= float(percent) < 100 * bound + 1e-4
    assert size.sentence.startswith("epsilon = 10.50 is above 10: ")
    assert "\n" not in size.sentence


@pytest.mark.parametrize(("epsilon", "level", "colour"), LEVELS)
def test_box_card_and_warnings_say_the_same(
    tmp_path: Path, graph: Graph, epsilon: float, level: str, colour: str
) -> None:
    run = hg.train(graph, epsilon=epsilon, out=tmp_path / "run", **QUICK)
    size = judge_size(run.epsilon, run.delta)
    expected = [] if size is None else [size.sentence]
    assert bool(expected) == (level != "holds")
    assert run.result["warnings"] == expected
    run.report(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    twin = json.loads((tmp_path / "page.json").read_text())
    assert twin["warnings"] == expected
    assert twin["standing"]["level"] == level
    box = re.search(r'<section class="standing (\w+)".*?</section>', html, re.DOTALL)
    assert box is not None
    assert box[1] == level
    assert colour_of(html, level) == colour
    for text in expected:
        shown = f"{text[0].upper()}{text[1:]}."
        assert shown in box[0].replace("&#39;", "'")
        assert shown in run.card()
        assert shown in run._repr_html_().replace("&#39;", "'")
    assert ("but epsilon is" in box[0]) == bool(expected)
    assert twin["standing"]["label"] in box[0]


def colour_of(html: str, level: str) -> str:
    """The colour that the style sheet of a page gives the box."""
    for selectors, body in re.findall(r"^(\.standing\.[^{]*)\{([^}]*)\}", html, re.MULTILINE):
        if f".standing.{level}" in [selector.strip() for selector in selectors.split(",")]:
            return re.findall(r"color: var\(([\w-]+)\)", body)[0]
    raise AssertionError(f"no rule for {level}")


def test_a_claim_above_the_second_limit_is_red(graph: Graph) -> None:
    _, plan, _ = hg.prepare(
        graph, epsilon=150.0, max_readers=1, clipping="groups", noise="per-layer", delta=1e-4, steps=3
    )
    assert Guarantee.of(plan).kind == "claimed by the paper"
    standing = describe_standing(Guarantee.of(plan))
    assert (standing["kind"], standing["level"]) == ("claimed", "huge")
    # Nothing is guaranteed here, so there is nothing to be called large.
    seeded = describe_standing(Guarantee.of(plan, seed_is_fixed=True))
    assert (seeded["level"], seeded["size"]) == ("seeded", "")


WITHOUT_DATA = ("plan", "--train-nodes", "1000", "--max-readers", "1", "--steps", "5")


@pytest.mark.parametrize(
    "line",
    [
        WITHOUT_DATA,
        ("plan", "generated-200", "--steps", "2"),
        ("train", "generated-200", "--steps", "2", "--dry-run"),
        ("train", "generated-200", "--steps", "2", "--hidden", "4", "--device", "cpu"),
    ],
    ids=["plan", "plan with data", "dry run", "train"],
)
@pytest.mark.parametrize(("epsilon", "level", "colour"), LEVELS)
def test_commands_warn(
    run: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: tuple[str, ...],
    epsilon: float,
    level: str,
    colour: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*line, "--epsilon", epsilon, "--json")
    assert code == 0, err
    facts = json.loads(out.splitlines()[-1])
    size = judge_size(facts["epsilon"], facts["delta"])
    assert facts["warnings"] == ([] if size is None else [size.sentence])
    assert (size is None) == (level == "holds")
    code, _, err = run(*line, "--epsilon", epsilon)
    assert code == 0, err
    told = [text for text in err.splitlines() if text.startswith("warning: ")]
    assert [re.sub("epsilon = [0-9.]+", "", text) for text in told] == [
        re.sub("epsilon = [0-9.]+", "", f"warning: {text}") for text in facts["warnings"]
    ]


def test_a_comparison_warns_of_the_sum_of_its_parts(run: Command, tmp_path: Path) -> None:
    """Each of three models stays below the limit, and all of them together do not."""
    flags = ("--epsilon", "7", "--delta", "1e-4", "--steps", "2", "--hidden", "4", "--max-readers", "1")
    line = ("compare", "generated-200", *flags, "--device", "cpu", "--out", tmp_path / "five")
    code, _, err = run(*line)
    assert code == 0, err
    about = json.loads((tmp_path / "five" / "comparison.json").read_text())
    assert all(float(row["epsilon"]) <= 7 for row in about["rows"] if row["private"])
    assert about["release_all"]["epsilon"] > LARGE_EPSILON
    [warning] = about["warnings"]
    assert warning.startswith("epsilon of all 3 private models together = ")
    assert f"warning: {warning}" in err.splitlines()
    page = json.loads((tmp_path / "five" / "report.json").read_text())
    assert page["standing"]["level"] == "large"
    assert "above 10: an attacker's guess" in page["standing"]["size"]
    assert 'class="standing large"' in (tmp_path / "five" / "report.html").read_text()


def test_rows_of_the_table_are_coloured_by_their_size() -> None:
    from hushgraph.cli.compare import _choose_colour
    from hushgraph.comparison.result import Entry

    usual: dict[str, Any] = {"name": "DP-MLP", "model": "mlp", "method": "trees", "private": True}
    usual |= {"predictions": "not covered", "delta": 1e-6, "validation": None, "test": None}
    usual |= {"macro_f1": None, "seconds": 1.0, "plan": "abc"}

    def colour(epsilon: float, guarantee: str = "holds") -> str:
        return _choose_colour(Entry(epsilon=epsilon, guarantee=guarantee, **usual))

    assert [colour(value) for value in (4.0, 12.0, 150.0)] == ["green", "yellow", "red"]
    assert colour(4.0, "claimed by the paper") == colour(math.inf, "none") == "red"
