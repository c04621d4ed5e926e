"""What the page says beside the guarantee: budget, attributes, audit, blanks; a folder of public files."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph._text import rounded_up
from hushgraph.errors import InputError
from hushgraph.graph.graph import Graph
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.run_charge import compose_charges
from hushgraph.report import write_report
from hushgraph.report.attack import read_audit
from hushgraph.report.attributes import describe_attributes
from hushgraph.report.budget import describe_budget
from hushgraph.report.card import render_card
from hushgraph.report.facts import collect_facts
from hushgraph.report.label import collect_label
from hushgraph.report.pages import format_guess
from hushgraph.report.report import render_report
from hushgraph.runs.folder import RunFolder

QUICK: dict[str, Any] = {"steps": 3, "hidden": 4, "device": "cpu"}
PUBLIC = ("run.json", "weights.safetensors", "board-1.safetensors", "board-2.safetensors")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=160, num_classes=3, num_features=6, average_degree=4, seed=3)


@pytest.fixture(scope="module")
def run(graph: Graph) -> hg.Run:
    return hg.train(graph, epsilon=4.0, **QUICK)


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_the_box_has_the_guess_and_the_edge(run: hg.Run) -> None:
    facts = collect_facts(run.folder)
    box = render_report(facts).split('<section class="standing')[1].split("</section>")[0]
    guarantee = run.folder.guarantee
    # (e^4 + delta) / (e^4 + 1) = 0.98201...
    assert round(guarantee.best_guess, 4) == 0.9820
    assert "is right at most 98.21% of the time at even odds" in box
    edge = rounded_up(guarantee.epsilon_edge)
    assert f"One undirected edge, everything else kept: epsilon is at most {edge}" in box
    assert 'href="#terms"' in box


def test_a_guess_and_an_edge_are_told_once_and_with_enough_digits(graph: Graph) -> None:
    rows = hg.train(graph, epsilon=20.0, model="mlp", **QUICK)
    standing = collect_facts(rows.folder)["standing"]
    assert standing["edge"].endswith("epsilon is 0, because training reads no edges.")
    # A large epsilon is explained by the same guess already.
    assert (standing["level"], standing["guess"]) == ("large", "")
    assert "may be right up to" in standing["size"]
    guesses = {0.99999312: "99.9994%", 0.98201: "98.21%", 1.0: "100%"}
    assert {share: format_guess(share) for share in guesses} == guesses


def test_terms_come_before_what_uses_them(run: hg.Run) -> None:
    html = render_report(collect_facts(run.folder))
    places = [html.index(f'<section id="{name}"') for name in ("terms", "guarantee", "results", "sign-off")]
    assert places == sorted(places)
    for term in ("mu", "false positive, false negative", "covered", "epsilon", "delta", "board"):
        assert f"<dt>{term}</dt>" in html


def test_what_it_rests_on_names_trust_and_replacement(run: hg.Run) -> None:
    grounds = " ".join(collect_facts(run.folder)["rests_on"])
    assert 'The model of trust is "central"' in grounds
    assert "Replacing a row by another one is two such steps" in grounds


def test_what_the_data_spent_before_and_with_this_run(graph: Graph, tmp_path: Path) -> None:
    budget = DataBudget.create(tmp_path / "people.ledger", epsilon=9.0, delta=1e-3)
    runs = [hg.train(graph, epsilon=e, budget=budget.path, **QUICK) for e in (1.0, 2.0, 0.5)]
    charges = DataBudget.open(budget.path).charges
    described = describe_budget(runs[1].folder.budget)
    assert described is not None
    assert described["before"] == compose_charges(charges[:1], 1e-3)
    assert described["with_this_run"] == compose_charges(charges[:2], 1e-3)
    assert described["spent"] == compose_charges(charges, 1e-3)
    assert (described["runs_before"], described["runs_since"], described["total"]) == (1, 1, 9.0)
    # Composed, not added up.
    alone = compose_charges(charges[1:2], 1e-3)
    assert described["with_this_run"] < described["before"] + alone
    page = text_of(render_report(collect_facts(runs[1].folder)))
    assert "spent before by 1 run, with this run" in page
    assert " of 9.00." in page
    assert "Since then 1 run brought it to" in page
    assert str(tmp_path) not in page
    # A budget that is gone, or that does not know the run, is said and is no error.
    budget.path.rename(tmp_path / "moved")
    assert "it could not be read" in text_of(render_report(collect_facts(runs[1].folder)))
    DataBudget.create(budget.path, delta=1e-3)
    assert "it has no charge for this run" in text_of(render_report(collect_facts(runs[1].folder)))


def test_a_run_without_a_budget_says_that_nobody_counts(run: hg.Run) -> None:
    assert describe_budget(run.folder.budget) is None
    assert "charged to no budget of the data" in text_of(render_report(collect_facts(run.folder)))


PAID = "a number, scaled with constants from a noisy histogram, which is paid for"


def test_attributes_by_role(tmp_path: Path) -> None:
    people = [
        f"p{n},{n % 7},{n % 3},{['a', 'b'][n % 2]},{['x', 'y', 'z'][n % 3]},note,{n % 2},"
        f"{['train', 'train', 'train', 'val', 'test'][n % 5]}"
        for n in range(120)
    ]
    header = "id,age,visits,colour,employer,memo,label,split"
    (tmp_path / "nodes.csv").write_text("\n".join([header, *people]))
    friends = [f"p{n},p{(n + 2) % 120}" for n in range(120)]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *friends]))
    columns = {
        "categorical": {"colour": ["a", "b", "c"]},
        "hashed": {"employer": 16},
        "fill": {"age": 40},
        "indicators": ["age"],
        "ignore": ["memo"],
        "classes": ["0", "1"],
    }
    kept = hg.train(tmp_path, epsilon=4.0, columns=columns, feature_norm=2.0, **QUICK)
    described = describe_attributes(kept.folder)
    # Two numbers, three values, 16 buckets and one flag.
    assert described["features"] == 2 + 3 + 16 + 1
    table = {tuple(each["columns"]): (each["role"], each["treatment"]) for each in described["columns"]}
    assert table == {
        ("age",): (
            "feature",
            f"{PAID}; an empty cell is filled with 40, and one more feature says so",
        ),
        ("visits",): ("feature", PAID),
        ("colour",): ("feature", "one of 3 declared values"),
        ("employer",): ("feature", "text, hashed into 16 buckets"),
        ("label",): ("label, which is predicted", "2 classes, declared"),
        ("id",): ("identifier", "public"),
        ("split",): ("split", "public"),
        ("source", "target"): ("edges", "list the ends of each edge"),
        ("memo",): ("not used", "not read"),
    }
    owned = replace(kept.folder.columns, looked_up=("classes",), person="memo", ignore=())
    table = {
        each["role"]: each for each in describe_attributes(replace(kept.folder, columns=owned))["columns"]
    }
    assert table["label, which is predicted"]["treatment"] == "2 classes, read off the rows"
    assert table["person"]["columns"] == ["memo"]
    page = text_of(render_report(collect_facts(kept.folder)))
    assert "The model reads 22 features of a node." in page
    assert "scaled to norm 2, from that row alone" in page


def test_arrays_have_a_number_of_features_alone(run: hg.Run) -> None:
    described = describe_attributes(run.folder)
    assert (described["features"], described["columns"]) == (6, None)
    page = text_of(render_report(collect_facts(run.folder)))
    assert "The model reads 6 features of a node; the data came as arrays" in page
    assert "Attributes by role" not in page


def record(run: hg.Run, **others: Any) -> dict[str, Any]:
    attack = {"name": "one <label> flipped", "lower_bound": 1.999, "claimed_epsilon": 7.5}
    return {
        "lower_bound": 1.968,
        "lower_bound_by_event": 0.5,
        "claimed_epsilon": run.plan.epsilon,
        "bound_confidence": 0.975,
        "trials": 400,
        "delta": run.plan.delta,
        "exceeds": False,
        "attacked": "2 boards and 3 steps",
        "method": "billboard",
        "fault": None,
        "attacks": [attack],
        "checks": [{"name": "noise", "failure": ""}],
        "source": "/home/somebody/run",
        **others,
    }


def test_an_audit_is_attached(run: hg.Run, tmp_path: Path) -> None:
    assert read_audit(run.folder) is None
    assert '<section id="audit"' not in render_report(collect_facts(run.folder))
    file = tmp_path / "audit.json"
    file.write_text(json.dumps(record(run)))
    html = render_report(collect_facts(run.folder, audit=file))
    page = text_of(html)
    assert "Nothing was shown beyond what is claimed." in page
    assert "all at 95% confidence together" in page
    # Lower bounds are rounded down.
    assert "2 boards and 3 steps 1.96 4.00" in page
    assert "one &lt;label&gt; flipped 1.99 7.50" in page
    assert "somebody" not in html


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"claimed_epsilon": 3.0}, "The record is of another plan"),
        ({"delta": 0.01}, "The record is of another plan"),
        ({"method": "trees"}, "The record is of another plan"),
        ({"claimed_epsilon": "inf"}, "The record is of another plan"),
        ({"fault": "half-noise", "exceeds": True}, "The record is of code that was broken on purpose"),
        ({"exceeds": True}, "do not sign"),
        (
            {"exceeds": True, "checks": [{"name": "noise", "failure": "no noise at all"}]},
            "Plain checks that failed: no noise at all",
        ),
    ],
)
def test_an_audit_of_something_else_is_called_that(
    run: hg.Run, tmp_path: Path, others: dict[str, Any], words: str
) -> None:
    file = tmp_path / "audit.json"
    file.write_text(json.dumps(record(run, **others)))
    assert words in text_of(render_report(collect_facts(run.folder, audit=file)))


@pytest.mark.parametrize("content", ["", "{}", "[1]", "null", '{"lower_bound": "x"}', "[" * 100_000])
def test_what_is_not_the_record_of_an_audit_is_refused(run: hg.Run, tmp_path: Path, content: str) -> None:
    (tmp_path / "audit.json").write_text(content)
    with pytest.raises(InputError, match="not the record of an audit") as refused:
        read_audit(run.folder, tmp_path / "audit.json")
    assert "\n" not in str(refused.value)


def test_bounds_that_are_no_numbers_are_refused(run: hg.Run, tmp_path: Path) -> None:
    for others in (
        {"lower_bound": "nan"},
        {"lower_bound": "inf"},
        {"claimed_epsilon": "nan"},
        {"attacks": 3},
        {"attacks": [{"name": "x"}]},
        {"checks": [1]},
        {"trials": math.inf},
    ):
        (tmp_path / "audit.json").write_text(json.dumps(record(run, **others)))
        with pytest.raises(InputError, match="not the record of an audit"):
            read_audit(run.folder, tmp_path / "audit.json")
    with pytest.raises(InputError, match=r"cannot be read \(No such file"):
        read_audit(run.folder, tmp_path / "none.json")


def test_a_record_in_the_folder_is_found(graph: Graph, tmp_path: Path) -> None:
    kept = hg.train(graph, epsilon=4.0, out=tmp_path / "run", **QUICK)
    (tmp_path / "run" / "audit.json").write_text(json.dumps(record(kept)))
    facts = collect_facts(RunFolder.open(tmp_path / "run"))
    assert facts["audit"]["is_of_this_plan"]
    assert '<section id="audit"' in render_report(facts)


def test_what_is_known_is_filled_in_and_the_rest_is_blank(run: hg.Run, tmp_path: Path) -> None:
    html = render_report(collect_facts(run.folder))
    assert html.count('class="blank"') == 9
    (tmp_path / "about.toml").write_text('purpose = "<b>buses</b>"\napproved_by = "Ana"\n')
    run.report(tmp_path / "report.html", about=tmp_path / "about.toml")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count('class="blank"') == 7
    assert "<dd>&lt;b&gt;buses&lt;/b&gt;</dd>" in html
    assert json.loads((tmp_path / "report.json").read_text())["about"]["approved_by"] == "Ana"


def test_a_bad_about_is_refused_before_data_is_read(run: hg.Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="about=none: cannot be read"):
        run.report(tmp_path / "report.html", data="no such data", about="none")
    with pytest.raises(InputError, match="audit=none: cannot be read"):
        run.report(tmp_path / "report.html", data="no such data", audit="none")


def test_signing_asks_for_retention_and_access(run: hg.Run) -> None:
    page = text_of(render_report(collect_facts(run.folder)))
    assert "Retention: how long are data, run folder, ledger and release kept" in page
    assert "Access: who can read the data, the run folder and the release" in page


class Released(RunFolder):
    """A run of which only what is public is there."""

    def result(self) -> dict[str, Any]:
        public = {"guarantee": "holds", "epsilon": self.plan.epsilon, "figures": "covered"}
        common = {"split": "test", "class": None, "figure": "accuracy"}
        table = [
            {**common, "group": None, "value": 0.81, "noise": [0.8, 0.82], "sampling": [0.78, 0.84]},
            {**common, "group": "over 60", "value": 0.7, "noise": [0.6, 0.8], "sampling": [0.5, 0.9]},
        ]
        return public | {"test_accuracy": 0.81, "figure_table": table}


@pytest.fixture
def released(graph: Graph, tmp_path: Path) -> Released:
    hg.train(graph, epsilon=4.0, out=tmp_path / "run", **QUICK)
    (tmp_path / "release").mkdir()
    for name in PUBLIC:
        if (tmp_path / "run" / name).exists():
            shutil.copyfile(tmp_path / "run" / name, tmp_path / "release" / name)
    opened = RunFolder.open(tmp_path / "release")
    values = {field.name: getattr(opened, field.name) for field in fields(opened)}
    return Released(**values | {"data": "", "is_release": True})


def test_public_files_are_enough(released: Released, tmp_path: Path) -> None:
    write_report(released, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = text_of(html)
    facts = json.loads((tmp_path / "report.json").read_text())
    assert (facts["ledger"], facts["spending"]) == (None, [])
    assert '<section id="spending"' not in html
    assert "SHA-256" not in page
    assert "How long training took" not in page
    assert "on an unnamed graph" in page
    assert "whoever trained has it" in page
    assert "charged to no budget" not in page
    assert "Versions" in page
    assert "The guarantee holds" in page
    # Without run.json nothing is known of versions.
    (released.path / "run.json").unlink()
    assert collect_facts(released)["versions"] == {}
    assert render_card(released).startswith("---\nlibrary_name: hushgraph\n")


def test_covered_figures_are_not_called_uncovered(released: Released) -> None:
    facts = collect_facts(released)
    page = text_of(render_report(facts))
    assert "test accuracy (covered) 81.00%" in page
    assert "over 60 test accuracy 70.00% 60.00% to 80.00% 50.00% to 90.00%" in page
    assert "epsilon covers them" in page
    for words in ("in the clear and are outside", "Exact accuracies", "Labels of validation and test nodes"):
        assert words not in page
        assert not any(words in item for item in facts["not_covered"])
    card = render_card(released)
    assert "| test accuracy | 81.00% |" in card
    assert "and epsilon covers them" in card
    assert "No guarantee covers these figures" not in card
    label = collect_label(released)
    assert label["figures"] == "covered"
    assert not any("validation and test" in item for item in label["not_covered"])


def test_exact_figures_beside_covered_ones_are_still_named(run: hg.Run, graph: Graph) -> None:
    class Covered(RunFolder):
        def result(self) -> dict[str, Any]:
            return super().result() | {"figures": "covered", "figure_table": []}

    values = {field.name: getattr(run.folder, field.name) for field in fields(run.folder)}
    facts = collect_facts(Covered(**values), evaluation=run.evaluate(graph))
    assert any(item.startswith("Exact accuracies on this page") for item in facts["not_covered"])
    assert "The figures that follow are exact" in text_of(render_report(facts))
