"""The planner page: every figure is a plan's, rounded up, with a script and without one."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from decimal import Decimal
from html import unescape
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph.cli.app import main
from hushgraph.errors import InputError, PlanError
from hushgraph.privacy import solve as planner
from hushgraph.privacy.grid import AXES, PlanGrid
from hushgraph.privacy.guarantee import sentence
from hushgraph.privacy.plan import PrivacyPlan
from hushgraph.privacy.solve import Solved
from hushgraph.report import write_planner_page
from hushgraph.report.planner import choose_target, collect_planner_facts, render_planner

FIELDS: dict[str, Any] = {
    "num_train_nodes": 200,
    "num_layers": 1,
    "max_readers": 2,
    "batch_size": 200,
    "edge_owner": "sender",
    "sampler": "stable",
    "accountant": "pair",
    "delta": None,
    "clip": 1.0,
}
FLAGS = ["plan", "--train-nodes=200", "--max-readers=2", "--batch-size=200", "--steps=8", "--epsilon=4"]


def solved(**others: Any) -> Solved:
    given = {"steps": 8, "noise_multiplier": None, "epsilon": 4.0, "max_reads": None, **FIELDS, **others}
    return planner.solve(**given)


def grid(middle: Solved, **others: Any) -> PlanGrid:
    """Two values of most choices, the plan's own among them."""
    plan = middle.plan
    values: dict[str, Any] = {
        "max_readers": (0, plan.max_readers),
        "max_reads": (plan.max_reads,),
        "epsilon": (1.0, 4.0),
        "steps": (plan.steps, 20),
        "batch_size": (50, plan.batch_size),
    }
    return PlanGrid(plan=plan, target=middle.target or 4.0, **values | others)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    folder, middle = tmp_path_factory.mktemp("page"), solved()
    write_planner_page(middle, folder / "plan.html", grid=grid(middle))
    return (folder / "plan.html").read_text(), json.loads((folder / "plan.json").read_text())


def test_a_large_epsilon_is_not_shown_in_green(made: tuple[str, dict[str, Any]]) -> None:
    middle = solved(epsilon=12.0)
    facts = collect_planner_facts(middle, grid=grid(middle, epsilon=(1.0, 12.0)))
    assert 'class="standing large"' in render_planner(facts)
    assert "is above 10: an attacker" in facts["standing"]["size"]
    assert 'class="standing holds"' in made[0]


def scripts(html: str) -> tuple[dict[str, Any], str]:
    """What the script finds, and the script."""
    held, script = re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL)
    return json.loads(held), script


def tables(html: str) -> dict[str, list[list[str]]]:
    """The rows of every table, by its caption."""
    found = {}
    for text in re.findall(r"<table>.*?</table>", html, re.DOTALL):
        table = ElementTree.fromstring(text)
        rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
        found[table.findtext("caption") or ""] = rows
    return found


def plans(twin: dict[str, Any]) -> list[PrivacyPlan]:
    """The plans of all points, solved again one by one."""
    middle = PrivacyPlan.from_json(json.dumps(twin["plan"]))
    found = []
    for values in product(*(axis["values"] for axis in twin["axes"])):
        fields = dict(zip(AXES, values, strict=True))
        target = fields.pop("epsilon")
        found.append(replace(middle, noise_multiplier=None, **fields).calibrated(epsilon=target))
    return found


def test_every_figure_is_that_of_a_plan(made: tuple[str, dict[str, Any]]) -> None:
    _, twin = made
    assert [axis["name"] for axis in twin["axes"]] == list(AXES)
    expected = plans(twin)
    assert len(twin["points"]) == len(expected) == 16
    for point, plan in zip(twin["points"], expected, strict=True):
        keys = ("changed_trees", "noise_multiplier", "sigma_over_clip", "epsilon", "epsilon_group_of_two")
        assert {key: point[key] for key in keys} == {key: getattr(plan, key) for key in keys}
        assert point["noise_on_mean"] == plan.sigma / (plan.clip * plan.batch_size)


def test_the_page_shows_them_rounded_up(made: tuple[str, dict[str, Any]]) -> None:
    html, twin = made
    held, _ = scripts(html)
    for shown, point in zip(held["points"], twin["points"], strict=True):
        for key, text in zip(held["keys"], shown["texts"], strict=True):
            exact = Decimal(repr(point[key]))
            assert exact <= Decimal(text.replace(",", "")) <= exact * Decimal("1.02"), key


def test_without_the_script_everything_is_in_tables(made: tuple[str, dict[str, Any]]) -> None:
    html, twin = made
    held, _ = scripts(html)
    noise = [point["texts"][held["keys"].index("noise_on_mean")] for point in held["points"]]
    found = tables(html)
    # Points are in the order K, epsilon, steps, batch; tables in the order K, steps, batch, epsilon.
    for start, caption in ((0, "K = 0, 1 changed tree"), (8, "K = 2, 3 changed trees, as given")):
        heads, *rows = found[caption]
        assert heads == ["steps and batch", "epsilon 1", "epsilon 4"]
        labels = ["8 steps of 50", "8 steps of 200", "20 steps of 50", "20 steps of 200"]
        assert [row[0] for row in rows] == labels
        for place, row in enumerate(rows):
            assert row[1:] == [noise[start + place], noise[start + 4 + place]]
    _, given, *others = found["Noise that keeps epsilon when one choice changes"]
    assert [row[0] for row in others] == ["K = 0", "epsilon = 1", "steps = 20", "batch = 50"]
    assert given[:3] == ["as given", noise[8 + 4 + 1], "1"]
    assert [row[1] for row in others] == [noise[4 + 1], noise[8 + 1], noise[8 + 4 + 3], noise[8 + 4]]
    assert html.count("<svg") == 4
    assert sentence(PrivacyPlan.from_json(json.dumps(twin["plan"]))) in unescape(html)


def test_the_chosen_point_is_the_plan_given(made: tuple[str, dict[str, Any]]) -> None:
    html, twin = made
    held, _ = scripts(html)
    place = 0
    for axis in twin["axes"]:
        place = place * len(axis["values"]) + axis["chosen"]
    point = twin["points"][place]
    assert twin["guarantee"].items() >= point.items()
    for key, text in zip(held["keys"], held["points"][place]["texts"], strict=True):
        assert f'id="now-{key}">{text}</dd>' in html
    assert held["points"][place]["cost"].endswith("as in the plan given.")


def test_the_twin_gives_the_page_again(made: tuple[str, dict[str, Any]]) -> None:
    html, twin = made
    assert render_planner(twin) == html


def test_the_script_computes_nothing_and_only_it_may_run(made: tuple[str, dict[str, Any]]) -> None:
    html, _ = made
    _, script = scripts(html)
    assert not re.search(r"Math|fetch|XMLHttp|import|eval|innerHTML|\*\*", script)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'" in html
    )
    assert not re.search(r"https?://|//[a-z]|\bsrc=|url\(|@import", html)


def test_the_command_trains_with_the_figures_shown(
    made: tuple[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    html, twin = made
    held, _ = scripts(html)
    assert held["command"][0] == "hushgraph train DATA"
    for place in (0, 6, 15):
        at = [place // 8, 0, place // 4 % 2, place // 2 % 2, place % 2]
        flags = [
            *held["command"][1:],
            *(axis["flags"][one] for axis, one in zip(held["axes"], at, strict=True)),
        ]
        assert main(["plan", "--train-nodes", "200", *" ".join(flags).split(), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["noise_multiplier"] == twin["points"][place]["noise_multiplier"]
        assert found["epsilon"] == twin["points"][place]["epsilon"]


def test_reader_owned_edges_have_a_choice_more() -> None:
    middle = solved(edge_owner="reader")
    found = collect_planner_facts(
        middle, grid=grid(middle, max_reads=(1, 2), epsilon=(4.0,), steps=(8,), batch_size=(200,))
    )
    assert [point["changed_trees"] for point in found["points"]] == [1, 1, 4, 5]
    html = render_planner(found)
    assert 'id="knob-max_reads"' in html
    assert 'id="knob-steps"' not in html
    assert "so D = K = 2" in html
    assert "K = 2, D = 1, 4 changed trees" in tables(html)


def test_a_plan_given_by_its_noise() -> None:
    middle = solved(epsilon=None, noise_multiplier=3.0)
    around = PlanGrid.around(middle.plan, target=choose_target(middle))
    assert 0 <= around.target - middle.plan.epsilon <= 0.01
    found = collect_planner_facts(
        middle, grid=replace(around, max_readers=(2,), steps=(8,), batch_size=(200,))
    )
    assert found["guarantee"]["noise_multiplier"] == 3.0
    assert "The plan was given by its noise" in render_planner(found)


def test_what_has_no_price_says_so() -> None:
    # Parts of the roots are not priced at so small a delta; all of them are.
    middle = solved(delta=1e-12)
    found = collect_planner_facts(middle, grid=grid(middle))
    refused = ["refused" in point for point in found["points"]]
    assert refused == [True, False] * 8
    assert "delta=1e-12" in found["points"][0]["refused"]
    html = render_planner(found)
    assert "not priced" in tables(html)["Noise that keeps epsilon when one choice changes"][-1]
    assert scripts(html)[0]["points"][0]["y"] is None


def test_a_claim_is_called_one() -> None:
    middle = solved(edge_owner="reader", sampler="paper", accountant="paper", batch_size=50)
    found = collect_planner_facts(middle, grid=grid(middle, steps=(8,), batch_size=(50,)))
    html = render_planner(found)
    assert 'class="standing claimed"' in html
    assert "epsilon, one node, claimed" in html
    assert "The claim in full" in html
    assert "Claimed by the paper, not a guarantee" in html
    assert "will guarantee" not in html
    assert "--sampler paper --accountant paper" in re.sub(r"</?span>", "", html)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"epsilon": None, "noise_multiplier": 1.0, "steps": 0}, "steps=0: expected at least one step"),
        ({"epsilon": None, "noise_multiplier": 0.0}, "epsilon is infinite"),
        ({"epsilon": None, "noise_multiplier": 1e12}, "epsilon is 0"),
    ],
)
def test_a_plan_without_a_page_around_it(others: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=message):
        write_planner_page(solved(**others), tmp_path / "plan.html")
    assert list(tmp_path.iterdir()) == []


def test_only_planner_pages_are_replaced(made: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    middle = solved()
    small = grid(middle, max_readers=(2,), epsilon=(4.0,), steps=(8,), batch_size=(200,))
    for _ in range(2):
        write_planner_page(middle, tmp_path / "plan.html", grid=small)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(kept) == ["plan.html", "plan.json"]
    with pytest.raises(InputError, match=r"html=.*ends in \.html"):
        write_planner_page(middle, tmp_path / "plan.htm", grid=small)
    with pytest.raises(InputError, match="there is no folder"):
        write_planner_page(middle, tmp_path / "none" / "plan.html", grid=small)
    (tmp_path / "report.json").write_text('{"report": 1}')
    with pytest.raises(InputError, match=r"report\.json: it exists and is not a planner page"):
        write_planner_page(middle, tmp_path / "report.html", grid=small)
    (tmp_path / "report.json").unlink()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_an_interruption_leaves_what_was_there(tmp_path: Path) -> None:
    middle = solved()

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    for content in (None, b'<meta name="generator" content="hushgraph">'):
        if content is not None:
            (tmp_path / "plan.html").write_bytes(content)
        with pytest.raises(KeyboardInterrupt):
            write_planner_page(middle, tmp_path / "plan.html", grid=grid(middle), observer=stop)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == (
            {} if content is None else {"plan.html": content}
        )


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    def around(plan: PrivacyPlan, *, target: float) -> PlanGrid:
        values = {"max_readers": (0, 2), "max_reads": (None,), "steps": (8,), "batch_size": (200,)}
        return PlanGrid(plan=plan, target=target, epsilon=(1.0, 4.0), **values)

    monkeypatch.setattr(PlanGrid, "around", around)


@pytest.mark.usefixtures("_small")
def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "plan.html"
    assert main([*FLAGS, "--html", str(page)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"Planner page in {page}, the same figures in {tmp_path / 'plan.json'}." in out
    assert "epsilon, group of two" in out
    assert main([*FLAGS, "--html", str(page), "--json"]) == 0
    out, err = capsys.readouterr()
    assert (err, out.count("\n")) == ("", 1)
    found, twin = json.loads(out), json.loads((tmp_path / "plan.json").read_text())
    assert found["html"] == str(page)
    assert found["noise_multiplier"] == twin["guarantee"]["noise_multiplier"]


@pytest.mark.usefixtures("_small")
def test_the_command_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FLAGS, "--html", str(tmp_path / "plan.pdf")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "expected a name that ends in .html" in err
    assert list(tmp_path.iterdir()) == []


def test_a_billboard_has_a_page_of_what_a_run_would_choose(tmp_path: Path) -> None:
    graph = hg.datasets.synthetic(num_nodes=400, num_classes=3, num_features=4, seed=1)
    prepared = hg.prepare(graph, epsilon=4.0)
    solved = Solved(plan=prepared.plan, solved_for="noise-multiplier", notes=(), target=4.0)
    write_planner_page(solved, tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    twin = json.loads((tmp_path / "page.json").read_text())
    axes = {axis["name"]: axis for axis in twin["axes"]}
    assert axes["max_readers"]["values"] == [0]
    assert len(axes["epsilon"]["values"]) > 2
    for place, epsilon in enumerate(axes["epsilon"]["values"]):
        # Another epsilon has other boards: those of `prepare`.
        plan = hg.prepare(graph, epsilon=epsilon).plan
        per_epsilon = len(axes["steps"]["values"]) * len(axes["batch_size"]["values"])
        point = twin["points"][place * per_epsilon + axes["steps"]["chosen"]]
        assert point["board_noise"] == pytest.approx(max(plan.board_noise))
        assert point["sigma_over_clip"] == pytest.approx(plan.sigma_over_clip)
    assert "--method billboard" in html
    assert "--max-readers" not in html
    assert "changed trees" not in html
    assert "noise of a board" in html
