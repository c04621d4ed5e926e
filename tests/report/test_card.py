"""The model card: the hub's convention, the guarantee in it, and nothing kinder than the run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.report.card import escape_markdown
from plan_words import sentence

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
QUICK: dict[str, Any] = {"steps": 4, "hidden": 4, "batch_size": 40, "device": "cpu"}
# What makes each kind of run, and what its card says first.
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "billboard": ({"epsilon": 6.0}, "The guarantee holds."),
    "trees": ({"epsilon": 6.0, "method": "trees", "max_readers": 2}, "The guarantee holds."),
    "mlp": ({"epsilon": 6.0, "model": "mlp"}, "The guarantee holds."),
    "claimed": (
        {"epsilon": 6.0, "sampler": "paper", "edge_owner": "reader", "max_readers": 2},
        "Claimed by the paper, not a guarantee.",
    ),
    "seeded": ({"epsilon": 6.0, "seed": 1}, "Reproducible, not private."),
    "not private": ({"private": False}, "Not private."),
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=160, num_classes=3, num_features=6, average_degree=4, seed=3)


@pytest.fixture(scope="module")
def runs(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, hg.Run]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        kind: hg.train(graph, out=folder / kind, **QUICK, **settings) for kind, (settings, _) in KINDS.items()
    }


def front_matter(card: str) -> dict[str, Any]:
    _, front, _ = card.split("---\n", 2)
    content: dict[str, Any] = yaml.safe_load(front)
    return content


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_card_that_says_what_holds(runs: dict[str, hg.Run], kind: str) -> None:
    run = runs[kind]
    card = run.card()
    front = front_matter(card)
    assert card.startswith("---\nlibrary_name: hushgraph\n")
    assert (front["library_name"], front["pipeline_tag"]) == ("hushgraph", "graph-ml")
    assert "differential-privacy" in front["tags"]
    stated = front["differential_privacy"]
    assert stated["guarantee"] == run.result["guarantee"]
    assert float(stated["epsilon"]) >= run.epsilon
    assert stated["predictions"] == run.result["predictions"]
    headings = re.findall(r"^## (.*)$", card, re.MULTILINE)
    assert headings == [
        "Privacy guarantee",
        "Intended uses and limitations",
        "How to use",
        "Training",
        "Evaluation",
        "Provenance",
    ]
    assert f"**{KINDS[kind][1]}**" in card
    assert ("and node-level differential privacy" in card) == (run.result["guarantee"] == "holds")
    assert (sentence(run.plan) in card) == (kind not in ("seeded",))
    assert run.plan.fingerprint() in card


@pytest.mark.parametrize("kind", ["seeded", "not private"])
def test_a_run_without_guarantee_promises_nothing(runs: dict[str, hg.Run], kind: str) -> None:
    card = runs[kind].card()
    assert "Nothing is guaranteed." in card
    assert front_matter(card)["differential_privacy"]["epsilon"] == "infinity"
    assert "Epsilon covers" not in card
    assert "covered towards everybody else" not in card
    assert "6.00" not in card
    assert "| epsilon" not in card
    assert "like the data itself" in card


def test_what_is_covered_is_that_of_the_method(runs: dict[str, hg.Run]) -> None:
    covers = {kind: re.search(r"Epsilon covers (.*)\.", runs[kind].card()) for kind in KINDS}
    found = {kind: match[1] for kind, match in covers.items() if match is not None}
    assert found == {
        "billboard": "the weights, the boards, the figures and the predictions for everybody else",
        "trees": "the weights",
        "mlp": "the weights, the figures and the predictions for everybody else",
    }


def test_covered_accuracies_are_always_there(runs: dict[str, hg.Run]) -> None:
    run = runs["billboard"]
    assert run.result["figures"] == "covered"
    card = run.card()
    value = run.result["test_accuracy"]
    assert f"| test accuracy | {'too few to tell' if value is None else f'{value:.2%}'} |" in card
    assert "No guarantee covers these figures" not in card
    assert card == run.card(accuracy=True)


def test_exact_accuracies_are_there_only_when_asked_for(runs: dict[str, hg.Run]) -> None:
    run = runs["trees"]
    shown = f"{run.result['test_accuracy']:.2%}"
    assert shown not in run.card()
    assert "model-index" not in front_matter(run.card())
    asked = run.card(accuracy=True)
    assert f"| test accuracy | {shown} |" in asked
    assert "No guarantee covers these figures" in asked
    (result,) = front_matter(asked)["model-index"][0]["results"]
    assert result["metrics"][1]["value"] == run.result["test_accuracy"]
    assert result["dataset"]["name"] == "the data"


def test_names_cannot_break_the_card(tmp_path: Path) -> None:
    names = ["[a](b)", "<b>|c", "d\n# e"]
    assert [escape_markdown(name) for name in names] == [r"\[a\]\(b\)", r"\<b\>\|c", r"d \# e"]
    rows = [f'p{n},{n % 5},"{names[n % 2]}"' for n in range(60)]
    folder = tmp_path / "a_b"
    folder.mkdir()
    (folder / "nodes.csv").write_text("\n".join(["id,age,label", *rows]))
    (folder / "edges.csv").write_text("source,target\np0,p1\np2,p4\n")
    run = hg.train(folder, epsilon=6.0, columns={"classes": names[:2]}, **QUICK)
    card = run.card()
    assert r"Classes: \[a\]\(b\), \<b\>\|c." in card
    # A hub need not know where the data lies, or what its folder is called.
    assert "# DP-Billboard on the data\n" in card
    assert "a_b" not in card
    assert str(tmp_path) not in card
    (tmp_path / "about.toml").write_text('data = "members_2026 [all]"')
    declared = run.card(about=tmp_path / "about.toml")
    assert "# DP-Billboard on members\\_2026 \\[all\\]\n" in declared


def test_it_replaces_a_card_and_nothing_else(runs: dict[str, hg.Run], tmp_path: Path) -> None:
    run = runs["trees"]
    path = tmp_path / "README.md"
    assert run.card(path) == path.read_text(encoding="utf-8") == run.card(path)
    (tmp_path / "mine.md").write_text("# mine")
    (tmp_path / "bytes.md").write_bytes(b"\xff\xfe")
    for name in ("mine.md", "bytes.md"):
        with pytest.raises(InputError, match="it exists and is not a model card"):
            run.card(tmp_path / name)
    with pytest.raises(InputError, match=r"ends in \.md"):
        run.card(tmp_path / "card.txt")
    with pytest.raises(InputError, match="there is no folder"):
        run.card(tmp_path / "nowhere" / "card.md")
