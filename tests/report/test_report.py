"""The report: well-formed, by itself, complete, escaped, and never kinder than the run."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.comparison.comparing import compare
from hushgraph.errors import HushgraphError, InputError, RunError
from hushgraph.graph.graph import Graph
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.guarantee import Guarantee, Reason
from hushgraph.privacy.ledger import Ledger
from hushgraph.report import write_report
from hushgraph.report.facts import collect_facts, describe_standing
from hushgraph.report.label import collect_label
from hushgraph.report.report import render_report
from hushgraph.runs.folder import RunFolder
from plan_words import sentence
from plans import make_plan

QUICK: dict[str, Any] = {"steps": 6, "hidden": 4, "batch_size": 40, "device": "cpu", "evaluate_every": 2}
PAPER: dict[str, Any] = {"sampler": "paper", "accountant": "paper", "edge_owner": "reader"}
VOID = {"meta", "link", "br", "hr", "img", "input"}
# Elements of SVG that the charts close by themselves.
CLOSED = {"line", "circle", "rect", "polyline"}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=240, num_classes=3, num_features=12, average_degree=6, seed=3)


@pytest.fixture(scope="module")
def run(graph: Graph) -> hg.Run:
    return hg.train(graph, epsilon=6.0, max_readers=2, **QUICK)


class Page(HTMLParser):
    """Reads a page and fails on an element that is closed out of turn or not at all."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in CLOSED, f"<{tag}/> is not closed in HTML"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)
            if self.open[-1] in ("h1", "h2", "h3"):
                self.headings.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def written(run: hg.Run, folder: Path, **others: Any) -> tuple[Page, str, dict[str, Any]]:
    run.report(folder / "report.html", **others)
    html = (folder / "report.html").read_text(encoding="utf-8")
    return Page(html), html, json.loads((folder / "report.json").read_text())


def test_the_page_needs_nothing_else(run: hg.Run, graph: Graph, tmp_path: Path) -> None:
    page, html, _ = written(run, tmp_path, data=graph)
    assert html.startswith("<!DOCTYPE html>\n")
    assert not re.search(r"https?://|//[a-z]|\bsrc=|url\(|@import|<script", html)
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert all(str(anchor["href"]).startswith("#") for anchor in page.all("a"))
    assert "default-src 'none'" in html


def test_a_reader_who_cannot_see_finds_everything(run: hg.Run, graph: Graph, tmp_path: Path) -> None:
    page, _, _ = written(run, tmp_path, data=graph)
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == len(page.all("main")) == 1
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    assert {str(anchor["href"])[1:] for anchor in page.all("a")} <= set(names)
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(head.get("scope") in ("row", "col") for head in page.all("th"))
    for chart in page.all("svg"):
        assert chart["role"] == "img"
        assert set(str(chart["aria-labelledby"]).split()) <= set(names)
    scrolling = [a for tag, a in page.elements if tag == "div" and str(a.get("class")).split()[0] == "scroll"]
    assert len(scrolling) > 5
    assert all(a["tabindex"] == "0" and a["role"] == "region" and a["aria-label"] for a in scrolling)


def test_it_says_what_a_reviewer_asks(run: hg.Run, graph: Graph, tmp_path: Path) -> None:
    page, _, _ = written(run, tmp_path, data=graph)
    assert sentence(run.plan) in page.text
    words = Guarantee.of(run.plan).statement
    for topic in words.topics:
        assert topic.heading in page.headings
        assert topic.text in page.text
    assert all(item in page.text for item in words.not_covered)
    assert "takes a group of two nodes" in page.text
    for heading in (
        "The guarantee in full",
        "What is protected",
        "Adjacency (node-level, zero-out)",
        "Sensitivity",
        "How much",
        "What is public",
        "Hiding that an edge exists",
        "What epsilon rests on",
        "What is not covered",
        "Epsilon spent, accuracy reached",
        "Results",
        "Configuration",
        "Ledger and versions",
    ):
        assert heading in page.headings
    assert "Comparison" not in page.headings
    assert "The guarantee holds" in page.text


def test_the_twin_has_the_same_facts(run: hg.Run, graph: Graph, tmp_path: Path) -> None:
    _, html, twin = written(run, tmp_path, data=graph)
    assert render_report(twin) == html
    again = collect_facts(run.folder, evaluation=run.evaluate(graph))
    assert again | {"written": twin["written"]} == twin
    assert twin["guarantee"].items() >= run.plan.summary().items()
    assert twin["result"] == run.result
    assert [line["step"] for line in twin["spending"]] == [2, 4, 6]
    assert twin["spending"][-1]["epsilon"] == run.epsilon


def test_the_ledger_is_the_run_s(run: hg.Run, tmp_path: Path) -> None:
    page, _, twin = written(run, tmp_path)
    digest = hashlib.sha256(run.folder.ledger_path.read_bytes()).hexdigest()
    assert digest in page.text
    ledger = Ledger.open(run.folder.ledger_path, read_only=True)
    assert twin["ledger"]["sha256"] == digest
    assert twin["ledger"]["steps_charged"] == ledger.steps_charged == 6
    assert twin["ledger"]["epsilon_spent"] == pytest.approx(run.epsilon)
    assert twin["versions"]["torch"] in page.text


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda ledger: ledger.unlink(), "no such file; expected the ledger of a run"),
        # The first lines: as many steps as an older copy has.
        (
            lambda ledger: ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:1])),
            "it shows 0 steps as charged, but weights.safetensors is of step 6",
        ),
    ],
    ids=["gone", "cut short"],
)
def test_no_page_says_that_a_ledger_is_complete_which_is_not(
    damage: Callable[[Path], Any], message: str, run: hg.Run, tmp_path: Path
) -> None:
    shutil.copytree(run.folder.path, tmp_path / "copy")
    folder = RunFolder.open(tmp_path / "copy")
    damage(folder.ledger_path)
    with pytest.raises(HushgraphError, match=message):
        write_report(folder, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_results_per_class(run: hg.Run, graph: Graph, tmp_path: Path) -> None:
    page, _, twin = written(run, tmp_path, data=graph)
    predicted, truth = run.predict(graph)[graph.test_idx], graph.y[graph.test_idx]
    for entry in twin["test"]["classes"]:
        its = truth == entry["class"]
        assert entry["nodes"] == its.sum()
        assert entry["accuracy"] == pytest.approx(np.mean(predicted[its] == entry["class"]))
        assert f"{entry['accuracy']:.2%}" in page.text
    assert twin["test"]["accuracy"] == pytest.approx(run.result["test_accuracy"])
    assert "Results per class on the test split" in page.text
    page, _, twin = written(run, tmp_path)
    assert twin["test"] is None
    assert "hushgraph report RUN DATA" in page.text
    assert "Results per class on the test split" not in page.text


def test_classes_are_called_by_their_names(tmp_path: Path) -> None:
    names = ["north & east", "south of the river"]
    people = [
        f"p{n},{n % 7},{names[n % 2]},{['train', 'train', 'train', 'val', 'test'][n % 5]}" for n in range(120)
    ]
    friends = [f"p{n},p{(n + 2) % 120}" for n in range(120)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,age,label,split", *people]))
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *friends]))
    run = hg.train(tmp_path, epsilon=6.0, columns={"classes": names}, **QUICK)
    page, html, twin = written(run, tmp_path, data=tmp_path)
    assert [entry["name"] for entry in twin["test"]["classes"]] == names
    assert [entry["nodes"] for entry in twin["test"]["classes"]] == [12, 12]
    assert all(name in page.text for name in names)
    assert ">south of th…</text>" in html


def test_a_seeded_run_says_so(graph: Graph, tmp_path: Path) -> None:
    seeded = hg.train(graph, epsilon=6.0, max_readers=2, seed=1, **QUICK)
    page, html, twin = written(seeded, tmp_path)
    assert twin["standing"]["kind"] == "seeded"
    assert twin["guarantee"]["guarantee"] == "none"
    assert twin["guarantee"]["best_guess"] == 1.0
    assert 'class="standing seeded"' in html
    assert "Reproducible, not private" in page.text
    assert "The plan, not guaranteed" in page.headings
    assert "Nothing below holds for this run." in page.text
    assert (twin["guarantee"]["epsilon"], twin["guarantee_details"]["epsilon"]) == ("inf", "inf")
    assert (
        twin["guarantee_details"]["priced_epsilon"]
        == twin["ledger"]["epsilon_spent"]
        == seeded.result["epsilon_spent"]
    )
    assert "epsilon guaranteed infinity epsilon spent, not guaranteed 6.00" in page.text
    assert sentence(seeded.plan) not in page.text
    assert "The guarantee holds" not in page.text
    assert "is right at most" not in page.text
    assert (twin["strength"], twin["standing"]["guess"], twin["standing"]["edge"]) == (None, "", "")


def test_a_seed_does_not_turn_a_claim_into_a_guarantee(graph: Graph, tmp_path: Path) -> None:
    claimed = {"sampler": "paper", "edge_owner": "reader", "max_readers": 2}
    seeded = hg.train(graph, epsilon=6.0, seed=1, **QUICK, **claimed)
    page, _, twin = written(seeded, tmp_path)
    assert twin["standing"]["kind"] == "seeded"
    assert "Even otherwise there would be no guarantee. The paper claims epsilon = " in page.text
    assert "The plan, not guaranteed" in page.headings
    assert "It is what the plan claims if its noise is intact." in page.text
    assert "What the claim is about" in page.headings
    assert "would hold" not in page.text
    printed = Guarantee.of(seeded.plan, seed_is_fixed=True).statement.sentence
    assert "would hold" not in printed
    assert sentence(seeded.plan) in printed
    assert "this is not a guarantee" in printed


@pytest.mark.parametrize("symmetrize", [True, False])
def test_what_is_not_covered_names_time_and_symmetrized_rows(
    graph: Graph, tmp_path: Path, symmetrize: bool
) -> None:
    page, _, _ = written(hg.train(graph, epsilon=6.0, symmetrize=symmetrize, **QUICK), tmp_path)
    assert "How long training took" in page.text
    assert ("the graph was symmetrized when it was read" in page.text) == symmetrize


def test_training_without_privacy_says_so(graph: Graph, tmp_path: Path) -> None:
    page, html, twin = written(hg.train(graph, private=False, **QUICK), tmp_path)
    assert 'class="standing none"' in html
    assert "Not private" in page.text
    assert "No guarantee" in page.headings
    assert twin["guarantee"]["epsilon"] == twin["ledger"]["epsilon_spent"] == "inf"
    assert "There is no epsilon to show" in page.text
    assert "Privacy report: Billboard on" in page.text
    assert "What epsilon rests on" not in page.headings


def test_a_claim_says_so(graph: Graph, tmp_path: Path) -> None:
    claimed = hg.train(graph, epsilon=8.0, max_readers=2, **PAPER, **QUICK)
    page, html, twin = written(claimed, tmp_path)
    assert 'class="standing claimed"' in html
    assert "Claimed by the paper, not a guarantee" in page.text
    assert "The following describes a claim, not a guarantee." in page.text
    assert "What the claim is about" in page.headings
    assert "The guarantee holds" not in page.text
    assert "is right at most" not in page.text
    assert (twin["strength"], twin["standing"]["guess"], twin["standing"]["edge"]) == (None, "", "")


def test_names_are_escaped(run: hg.Run, graph: Graph, tmp_path: Path) -> None:
    nasty = "<script>alert('x')</script> \" & $title ${x}"
    page, html, _ = written(run, tmp_path)
    facts = json.loads((tmp_path / "report.json").read_text()) | {"data": nasty}
    html = render_report(facts)
    assert "<script" not in html
    assert Page(html).headings[0] == f"Privacy report: DP-GCN on {nasty}"
    compared = compare(graph, epsilon=6.0, max_readers=2, name=nasty, **QUICK | {"steps": 2})
    page, html, twin = written(compared.runs["DP-GNN (trees)"], tmp_path, comparison=compared)
    assert "<script" not in html
    assert twin["data"] == twin["comparison"]["data"] == nasty
    assert page.headings[0] == f"Privacy report: DP-GCN on {nasty}"
    assert "Comparison" in page.headings
    assert compared.cost in page.text
    assert twin["comparison"] == json.loads(compared.to_json())
    # In words, not in colour alone.
    labels = unescape(html)
    assert labels.count(">not private</text>") == 2
    assert labels.count(">private</text>") == 3


def test_a_folder_is_enough_without_results_per_class(graph: Graph, tmp_path: Path) -> None:
    kept = hg.train(graph, epsilon=6.0, max_readers=2, out=tmp_path / "run", **QUICK)
    write_report(RunFolder.open(tmp_path / "run"), tmp_path / "one.html")
    kept.report(tmp_path / "other.html")
    one, other = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "other"))
    assert one | {"written": other["written"]} == other
    (tmp_path / "run" / "weights.safetensors").unlink()
    with pytest.raises(RunError, match="it is not finished"):
        write_report(RunFolder.open(tmp_path / "run"), tmp_path / "one.html")


def test_a_bad_path_is_refused_before_data_is_read(run: hg.Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.html"):
        run.report(tmp_path / "report.txt", data="no such data")


@pytest.mark.parametrize(
    ("noise", "broken_by", "kind", "label"),
    [
        (1.0, (), "holds", "The guarantee holds"),
        (0.0, (), "none", "Not private"),
        (1.0, (Reason(code="float-noise", sentence="The noise is float32."),), "broken", "No guarantee"),
    ],
)
def test_the_standing_follows_the_guarantee(
    noise: float, broken_by: tuple[Reason, ...], kind: str, label: str
) -> None:
    plan = make_plan(
        num_train_nodes=100,
        num_layers=0,
        max_readers=0,
        batch_size=100,
        steps=5,
        paper_noise_multiplier=noise,
    )
    standing = describe_standing(Guarantee.of(plan, broken_by=broken_by))
    assert (standing["kind"], standing["label"]) == (kind, label)
    assert all(reason.sentence in standing["sentence"] for reason in broken_by)


def test_a_damaged_result_is_refused(graph: Graph, tmp_path: Path) -> None:
    hg.train(graph, epsilon=6.0, max_readers=2, out=tmp_path / "run", **QUICK)
    file = tmp_path / "run" / "result.json"
    result = json.loads(file.read_text())
    del result["device"]
    file.write_text(json.dumps(result))
    with pytest.raises(RunError, match=r"result\.json has no device"):
        collect_facts(RunFolder.open(tmp_path / "run"))


def test_only_reports_are_replaced(run: hg.Run, tmp_path: Path) -> None:
    written(run, tmp_path)
    written(run, tmp_path)
    with pytest.raises(InputError, match=r"ends in \.html"):
        write_report(run.folder, tmp_path / "report.txt")
    with pytest.raises(InputError, match="there is no folder"):
        write_report(run.folder, tmp_path / "none" / "report.html")
    (tmp_path / "thesis.html").write_text("<p>years of work</p>")
    with pytest.raises(InputError, match="is not a report"):
        write_report(run.folder, tmp_path / "thesis.html")
    (tmp_path / "data.json").write_text("{}")
    with pytest.raises(InputError, match=r"data\.json: it exists and is not a report"):
        write_report(run.folder, tmp_path / "data.html")
    assert not (tmp_path / "data.html").exists()
    assert (tmp_path / "thesis.html").read_text() == "<p>years of work</p>"


def test_without_validation_and_test_nodes(graph: Graph, tmp_path: Path) -> None:
    bare = hg.datasets.load_graph(graph, split="1/0/0")
    page, _, twin = written(hg.train(bare, epsilon=6.0, max_readers=2, **QUICK), tmp_path, data=bare)
    assert twin["test"] is None
    assert "no labelled nodes" in page.text


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_can_be_read_in_light_and_dark() -> None:
    style = files("hushgraph.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    schemes = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in style.split("@media")[:2]]
    assert schemes[0].keys() == schemes[1].keys() != set()
    for colours in schemes:
        pairs = [("ink", "paper"), ("ink", "panel"), ("soft", "paper"), ("soft", "panel"), ("link", "paper")]
        pairs += [(kind, "paper") for kind in ("holds", "none", "accent")]
        pairs += [(kind, f"{kind}-panel") for kind in ("holds", "claimed", "none")]
        pairs += [("ink", f"{kind}-panel") for kind in ("holds", "claimed", "none")]
        for ink, paper in pairs:
            light, dark = sorted((luminance(colours[ink]), luminance(colours[paper])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)


def test_the_report_needs_no_training() -> None:
    code = "import sys, hushgraph.report; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "hushgraph.report.pages" in loaded.split()
    rooms = ("torch", "hushgraph.training", "hushgraph.comparison", "hushgraph.runs", "hushgraph.cli")
    assert [name for name in loaded.split() if name.startswith(rooms)] == []


SIGN_OFF = Path(__file__).parents[2] / "docs" / "sign-off.md"


def look_up(facts: Any, key: str) -> Any:
    for part in key.split("."):
        facts = facts[part]
    return facts


def test_the_answers_are_where_the_guide_says(graph: Graph, tmp_path: Path) -> None:
    budget = DataBudget.create(tmp_path / "people.ledger", epsilon=10.0, delta=1e-3)
    billboard = hg.train(graph, epsilon=6.0, budget=budget.path, **QUICK)
    guide = SIGN_OFF.read_text(encoding="utf-8")
    (tmp_path / "about.toml").write_text(guide.split("```toml\n")[1].split("```")[0])
    page, _, twin = written(billboard, tmp_path, data=graph, about=tmp_path / "about.toml")
    assert None not in twin["about"].values()
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in guide.splitlines()
        if re.match(r"\| \d+ \|", line)
    ]
    assert [int(row[0]) for row in rows] == list(range(1, 14))
    for _, _, where, keys, _ in rows:
        for quoted in re.findall(r'"([^"]+)"', where):
            assert any(heading.startswith(quoted) for heading in page.headings), quoted
        for key in re.findall(r"`([a-z_]+(?:\.[a-z0-9_]+)*)`", keys):
            assert look_up(twin, key) is not None, key
    label = collect_label(billboard.folder)
    fields = [
        line.split("|")[1:-1] for line in guide.splitlines() if re.match(r"\| (both|registry|NIST) \|", line)
    ]
    assert len(fields) > 15
    for _, _, where, keys in fields:
        for quoted in re.findall(r'"([^"]+)"', where):
            assert any(heading.startswith(quoted) for heading in [*page.headings, "Audit"]), quoted
        assert set(re.findall(r"`([a-z_]+)`", keys)) <= label.keys()
    # Every field of a label is in the table, but for the names of what stands beside it.
    named = {key for row in fields for key in re.findall(r"`([a-z_]+)`", row[3])}
    rest = {"privacy_label", "standing", "level", "mu_is", "epsilon_two_rows", "epsilon_edge", "edge"}
    assert label.keys() - named == rest
    assert twin["standing"]["kind"] == twin["guarantee"]["guarantee"] == "holds"
    assert twin["guarantee"]["predictions"] == "covered towards everybody else"
    not_covered = " ".join(twin["not_covered"])
    assert "Other runs on the same data" in not_covered
    assert "Model selection" in not_covered


def test_a_private_mlp_covers_predictions_and_says_so_everywhere(graph: Graph, tmp_path: Path) -> None:
    mlp = hg.train(graph, epsilon=6.0, model="mlp", **QUICK)
    page, html, twin = written(mlp, tmp_path, data=graph)
    assert (
        twin["result"]["predictions"] == twin["guarantee"]["predictions"] == "covered towards everybody else"
    )
    assert twin["standing"]["sentence"].startswith(
        "The weights, the figures and the predictions for everybody else are"
    )
    assert "Predictions: covered towards everybody else" in page.headings
    assert "neighbours in the clear" not in page.text
    assert "Own prediction: not covered" in html
    predicted = mlp.predict_table(graph)
    assert (predicted.predictions, predicted.reads_neighbours) == ("covered towards everybody else", False)
    # It is true: without any edge, and with every other row changed, a prediction is the same.
    node = int(graph.test_idx[0])
    alone = Graph.from_arrays(
        edge_index=np.zeros((2, 0), np.int64),
        x=np.where(np.arange(graph.num_nodes)[:, None] == node, graph.x, 0.0),
        y=np.full(graph.num_nodes, -1),
        train_idx=graph.train_idx,
        num_classes=3,
    )
    assert np.allclose(mlp.predict_proba(alone)[node], mlp.predict_proba(graph)[node], atol=1e-6)


def test_trees_without_edges_in_training_still_read_them_to_predict(graph: Graph, tmp_path: Path) -> None:
    trees = hg.train(graph, epsilon=6.0, method="trees", max_readers=0, **QUICK)
    page, _, twin = written(trees, tmp_path)
    assert twin["guarantee"]["predictions"] == "not covered"
    assert "Predictions: covered towards everybody else" not in page.headings
    assert trees.predict_table(graph).predictions == "not covered"


def test_noise_is_rounded_down_and_settings_are_short(graph: Graph, tmp_path: Path) -> None:
    page, _, twin = written(hg.train(graph, epsilon=6.0, **QUICK), tmp_path)
    shown = float(re.search(r"sigma / C ([\d.]+)", page.text)[1])  # type: ignore[index]
    assert 0 <= twin["guarantee"]["sigma_over_clip"] - shown < 1e-3
    assert not re.search(r"\d\.0*[1-9]\d{6}", page.text)
