"""`hushgraph audit`: a plan of its own, a run, data; figures, records and exit codes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.audit import attack
from hushgraph.cli.app import main
from hushgraph.privacy.changes import row_emptied
from hushgraph.privacy.charges import epsilon

pytestmark = pytest.mark.usefixtures("small_checks")


def test_bound_and_claim_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "audit.json"
    assert main(["audit", "--epsilon", "4", "--trials", "20", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "lower bound (95% confidence)" in said
    assert "claimed epsilon" in said
    assert "no contradiction" in " ".join(said.split())
    record = json.loads(out.read_text())
    assert record["lower_bound"] < record["claimed_epsilon"] <= 4
    assert record["lower_bound_by_event"] < record["claimed_epsilon"]
    assert record["numbers"]["exceeds"] is False
    assert "lower bound, no assumption" in said
    assert "attacks on digits" in said
    assert record["method"] == "billboard"
    assert record["attacked"] == "2 boards and 2 steps"
    assert record["others_changed"] == 0
    assert all(entry["lower_bound"] <= entry["claimed_epsilon"] for entry in record["attacks"])
    assert [check["failure"] for check in record["checks"]] == [""] * 14
    wanted = ("2 boards and 2 steps", "one label flipped", "other people's predictions", "bit for bit")
    for name in (*wanted, "14 of 14 hold"):
        assert name in " ".join(said.split())


def test_trees_by_name_by_flag_and_by_fault(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--method", "trees"], ["--max-readers", "1"], ["--fault", "too-few-trees"]):
        assert main(["audit", "--epsilon", "4", "--trials", "20", "--json", *words]) == 0
        record = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (record["method"], record["attacked"], record["attacks"]) == ("trees", "steps", [])


def test_a_fault_is_announced_and_caught(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "--epsilon", "4", "--fault", "reused-noise", "--trials", "100", "--seed", "1"]
    assert main([*words, "--method", "trees"]) == 0
    said = capsys.readouterr().out
    assert "broken on purpose" in said
    assert "The fault was caught" in said


@pytest.mark.usefixtures("quick_audit")
def test_a_fault_of_boards_is_announced_and_caught(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--epsilon", "4", "--fault", "full-ballots", "--trials", "40"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "a ballot weighs 1 at every place" in said
    assert "The fault was caught" in said
    assert "(first board, row of degree 1,000)" in said


def test_float_noise_is_found_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "--epsilon", "4", "--fault", "float-noise", "--trials", "100", "--method", "trees"]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The fault was caught: the digits of released numbers tell" in said


@pytest.mark.usefixtures("quick_audit")
def test_a_run_and_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = hg.datasets.synthetic(num_nodes=60, num_classes=2, seed=1)
    settings = {"epsilon": 4.0, "steps": 3, "hidden": 4, "max_readers": 1}
    run = hg.train(data, device="cpu", out=tmp_path / "run", **settings)
    assert main(["audit", str(tmp_path / "run"), "--trials", "100", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (record["steps"], record["max_readers"], record["delta"]) == (3, 1, run.delta)
    assert record["sigma_over_clip"] == pytest.approx(run.plan.sigma_over_clip)
    assert record["claimed_epsilon"] == pytest.approx(run.epsilon)
    assert main(["audit", str(tmp_path / "run"), "--epsilon", "4"]) == 2
    assert "has its own" in capsys.readouterr().err
    assert main(["audit", "demo", "--epsilon", "4", "--steps", "2", "--trials", "20", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (record["source"], record["steps"], record["method"]) == ("demo", 2, "billboard")
    assert record["claimed_epsilon"] <= 4


@pytest.mark.usefixtures("quick_audit")
def test_a_billboard_run_is_attacked_with_its_boards(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = hg.datasets.synthetic(num_nodes=60, num_classes=2, seed=1)
    run = hg.train(data, device="cpu", out=tmp_path / "run", epsilon=4.0, steps=3, hidden=4)
    assert main(["audit", str(tmp_path / "run"), "--trials", "20", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (record["method"], record["steps"], record["delta"]) == ("billboard", 3, run.delta)
    assert record["board_noise"] == list(run.plan.board_noise)
    assert record["claimed_epsilon"] == pytest.approx(run.epsilon)
    assert "boards" in record["attacked"] or "board " in record["attacked"]
    # One table of two classes, two of the three classes of the made graph: the price is the same.
    claims = {attack["name"]: attack["claimed_epsilon"] for attack in record["attacks"]}
    assert run.plan.num_tables == 1
    assert claims["row of the validation split"] == pytest.approx(run.plan.epsilon_evaluated)
    tables = epsilon([run.plan.evaluation_charge], row_emptied("evaluated"), delta=run.delta)
    assert claims["tables of figures"] == pytest.approx(tables)


@pytest.mark.usefixtures("quick_audit")
def test_what_was_published_of_a_run_is_enough(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = hg.datasets.synthetic(num_nodes=60, num_classes=3, seed=1)
    run = hg.train(data, device="cpu", out=tmp_path / "run", epsilon=4.0, steps=3, hidden=4)
    shutil.copytree(tmp_path / "run" / "release", tmp_path / "published")
    assert main(["audit", str(tmp_path / "published"), "--trials", "20", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (record["method"], record["steps"], record["delta"]) == ("billboard", 3, run.delta)
    assert record["board_noise"] == list(run.plan.board_noise)
    assert record["claimed_epsilon"] == pytest.approx(run.epsilon)
    assert main(["audit", str(tmp_path / "published"), "--epsilon", "4"]) == 2
    assert "has its own" in capsys.readouterr().err


@pytest.mark.usefixtures("quick_audit")
def test_data_is_planned_by_its_task(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph = hg.datasets.synthetic(num_nodes=60, num_classes=2, num_features=3, seed=1)
    ends = np.stack([graph.indices, np.repeat(np.arange(60), np.diff(graph.indptr))])
    np.savez(tmp_path / "two.npz", edge_index=ends, x=graph.x, y=graph.y)
    words = ["audit", str(tmp_path / "two.npz"), "--epsilon", "4", "--steps", "2", "--trials", "20", "--json"]
    words += ["--num-classes", "2"]
    noise = {}
    for task in ("binary", "classes"):
        assert main([*words, "--task", task]) == 0
        noise[task] = json.loads(capsys.readouterr().out.splitlines()[-1])["board_noise"]
        _, plan, _ = hg.prepare(tmp_path / "two.npz", epsilon=4.0, steps=2, num_classes=2, task=task)
        assert noise[task] == list(plan.board_noise)
    assert noise["binary"] != noise["classes"]
    assert main([*words, "--positive", "three"]) == 2
    assert "positive='three': no such class" in capsys.readouterr().err


@pytest.mark.usefixtures("quick_audit")
def test_bounds_and_weights_of_data_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph = hg.datasets.synthetic(num_nodes=60, num_classes=2, num_features=3, seed=1)
    ends = np.stack([graph.indices, np.repeat(np.arange(60), np.diff(graph.indptr))])
    amounts = np.arange(1.0, ends.shape[1] + 1)
    np.savez(tmp_path / "days.npz", edge_index=ends, x=graph.x, y=graph.y.astype(float), amount=amounts)
    words = [
        "audit",
        str(tmp_path / "days.npz"),
        "--epsilon",
        "4",
        "--steps",
        "2",
        "--trials",
        "20",
        "--json",
    ]
    words += ["--task", "number", "--bounds", "0,1"]
    given = []
    real = attack.audit_plan
    monkeypatch.setattr(attack, "audit_plan", lambda *a, **named: given.append(named) or real(*a, **named))
    for more in ([], ["--edge-weight", "amount"]):
        assert main([*words, *more]) == 0
    plain, weighted = given
    assert (plain["task"].name, plain["relations"]) == ("number", ())
    assert [each.is_weighted for each in weighted["relations"]] == [True]


def test_a_refuted_claim_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = attack._collect
    monkeypatch.setattr(attack, "_collect", lambda *args, **more: replace(real(*args, **more), claimed=0.0))
    assert main(["audit", "--epsilon", "4", "--trials", "300", "--method", "trees"]) == 1
    assert "The claim is false" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no --epsilon"),
        (["--epsilon", "4", "--canary", "hub", "--max-readers", "0"], "reads no edge"),
        (["--epsilon", "-1"], "epsilon=-1"),
        (["--epsilon", "4", "--trials", "3"], "trials=3"),
        (["--epsilon", "4", "--method", "bush"], "--method='bush'"),
        (["--epsilon", "4", "--method", "billboard", "--layers", "2"], "--layers with --method billboard"),
        (
            ["--epsilon", "4", "--method", "trees", "--fault", "redrawn-board"],
            "that fault is one of billboard",
        ),
        (["--epsilon", "4", "--fault", "no-noise"], "--fault='no-noise'"),
        (["demo", "--epsilon", "4", "--fault", "half-noise"], "leave DATA out"),
        (["nowhere.npz", "--epsilon", "4"], "nowhere.npz"),
    ],
)
def test_bad_input_is_said_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
