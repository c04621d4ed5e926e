"""The privacy label: complete, well-formed, publishable, and never kinder than the run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.report.label import collect_label, render_label, write_label

QUICK: dict[str, Any] = {"steps": 3, "hidden": 4, "device": "cpu"}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=160, num_classes=3, num_features=6, average_degree=4, seed=3)


@pytest.fixture(scope="module")
def run(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    return hg.train(graph, epsilon=4.0, out=tmp_path_factory.mktemp("runs") / "one", **QUICK)


def texts(svg: str) -> list[str]:
    return [str(each.text) for each in ElementTree.fromstring(svg).findall(f"{SVG}text")]


def test_the_fields_that_registries_ask_for(run: hg.Run) -> None:
    label = collect_label(run.folder)
    plan, guarantee = run.plan, run.folder.guarantee
    assert (label["epsilon"], label["delta"]) == (plan.epsilon, plan.delta)
    assert (label["adjacency"], label["guarantee"]) == ("node-level, zero-out", "holds")
    assert label["epsilon_edge"] == plan.epsilon_edge
    assert label["epsilon_two_rows"] == plan.epsilon_group_of_two
    assert label["best_guess_percent"] == 100 * guarantee.best_guess
    assert label["mu_is"] == "exact"
    assert label["trust"].startswith("central")
    assert [each["name"] for each in label["mechanisms"]] == [charge.name for charge in plan.charges]
    assert label["covered"] == guarantee.statement.covers
    assert label["not_covered"] == list(guarantee.statement.not_covered)
    assert label["predictions"] == "covered towards everybody else"
    assert label["software"].startswith("hushgraph ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", label["date"])
    assert label["assumptions"] == [each.sentence for each in guarantee.assumptions]
    assert label["spent_on_data"] is None
    json.dumps(label, allow_nan=False)


def test_the_picture_has_what_a_reader_looks_for(run: hg.Run, tmp_path: Path) -> None:
    (tmp_path / "about.toml").write_text(
        'purpose = "plan <b>buses"\nowner = "Ana"\nunit_of_privacy = "a household"\ndate = 2026-03-01\n'
    )
    label = write_label(run.folder, tmp_path / "label.svg", about=tmp_path / "about.toml")
    assert json.loads((tmp_path / "label.json").read_text()) == label
    svg = (tmp_path / "label.svg").read_text(encoding="utf-8")
    words = texts(svg)
    for name, value in (("epsilon", "4.00"), ("a guess about one row, right at most", "98.21%")):
        assert words[words.index(name) + 1] == value
    joined = " ".join(words)
    for part in ("The guarantee holds", "plan <b>buses", "Ana", "a household", "2026-03-01", "central"):
        assert part in joined
    assert not re.search(r"<script|https?://(?!www\.w3\.org/2000/svg)|url\(|@import|href", svg)
    root = ElementTree.fromstring(svg)
    assert root.attrib["viewBox"].split()[2] == root.attrib["width"] == "390"
    # Lines follow each other, and the last one is inside the frame.
    heights = [float(each.attrib["y"]) for each in root.findall(f"{SVG}text")]
    assert heights == sorted(heights)
    assert heights[-1] < float(root.attrib["height"]) - 10


def test_it_can_be_published(run: hg.Run, tmp_path: Path) -> None:
    label = write_label(run.folder, tmp_path / "label.svg")
    both = (tmp_path / "label.svg").read_text(encoding="utf-8") + json.dumps(label)
    assert str(run.folder.path.parent) not in both
    for key in ("test_accuracy", "val_accuracy", "seconds", "device"):
        assert key not in both
        assert key not in label
    # Noise may hide a figure; whatever figure there is, the label does not have it.
    for row in run.figures:
        assert row["value"] is None or f"{row['value']:.2%}" not in both


@pytest.mark.parametrize(
    ("settings", "standing", "epsilon"),
    [
        ({"epsilon": 4.0, "seed": 1}, "Reproducible, not private", "infinity"),
        ({"private": False}, "Not private", "infinity"),
        (
            {"epsilon": 4.0, "sampler": "paper", "edge_owner": "reader", "max_readers": 2},
            "Claimed by the paper, not a guarantee",
            "4.00",
        ),
        ({"epsilon": 40.0}, "The guarantee holds", "40.00"),
    ],
)
def test_it_is_never_kinder_than_the_run(
    graph: Graph, settings: dict[str, Any], standing: str, epsilon: str
) -> None:
    trained = hg.train(graph, **settings, **QUICK)
    label = collect_label(trained.folder)
    svg = render_label(label)
    words = texts(svg)
    assert label["standing"].startswith(standing)
    assert words[words.index("epsilon") + 1] == epsilon
    if label["guarantee"] != "holds":
        assert (label["covered"], label["mu"], label["predictions"]) == ("", None, "not covered")
        assert "The guarantee holds" not in " ".join(words)
        assert "Covered" not in words
        assert not any(word.startswith("a guess about one row") for word in words)
    else:
        assert "but epsilon is large" in label["standing"]
        assert "#7a4a00" in svg


def test_sampled_steps_say_what_mu_is(graph: Graph) -> None:
    trained = hg.train(graph, epsilon=4.0, batch_size=20, **QUICK)
    label = collect_label(trained.folder)
    words = texts(render_label(label))
    assert label["mu_is"] == "fitted at this delta"
    assert "mu, fitted at this delta" in words
    rates = {each["name"]: each["sampling_rate"] for each in label["mechanisms"]}
    # The figures are computed from all rows of their splits.
    assert rates["steps"] < 1 == rates["figures"]
    assert "of the nodes" in " ".join(words)


def test_only_labels_are_replaced(run: hg.Run, tmp_path: Path) -> None:
    write_label(run.folder, tmp_path / "label.svg")
    write_label(run.folder, tmp_path / "label.svg")
    with pytest.raises(InputError, match=r"ends in \.svg"):
        write_label(run.folder, tmp_path / "label.png")
    with pytest.raises(InputError, match="there is no folder"):
        write_label(run.folder, tmp_path / "none" / "label.svg")
    (tmp_path / "drawing.svg").write_text("<svg>years of work</svg>")
    with pytest.raises(InputError, match="it exists and is not a privacy label"):
        write_label(run.folder, tmp_path / "drawing.svg")
    (tmp_path / "data.json").write_text("{}")
    with pytest.raises(InputError, match=r"data\.json: it exists and is not a privacy label"):
        write_label(run.folder, tmp_path / "data.svg")
    assert not (tmp_path / "data.svg").exists()
    assert (tmp_path / "drawing.svg").read_text() == "<svg>years of work</svg>"
