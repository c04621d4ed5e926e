"""`hushgraph reproduce`: every experiment runs, goes on where it stopped, and says what holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgraph import PrivacyPlan
from hushgraph.cli import reproduce as reproducing
from hushgraph.cli.app import main
from hushgraph.errors import BudgetExceededError, InputError
from hushgraph.reproduction import spec
from hushgraph.reproduction.runner import Options, Reproduction

KEYS = {
    *("experiment", "column", "data", "row", "mode", "axes", "seed", "test_accuracy", "val_accuracy"),
    *("claimed_epsilon", "epsilon_holds", "holds_reason", "delta", "plan", "config", "ledger_digest"),
    *("seconds", "device", "versions", "commit", "run"),
}


# The frontier has tests of its own.
PAPER = [name for name in spec.names() if spec.load(name).kind != "frontier"]


def silent(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("all")
    options = Options(out=out, quick=True, device="cpu")
    return out, reproducing.run_experiments(PAPER, options, quiet=True)


def records_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]


def test_every_experiment_has_a_table_and_records(everything: tuple[Path, dict[str, Any]]) -> None:
    out, result = everything
    assert [table["name"] for table in result["tables"]] == PAPER
    records = records_of(out)
    assert {record["experiment"] for record in records} == set(PAPER) - {"datasets"}
    for name in PAPER:
        assert (out / f"{name}.md").read_text().startswith(f"# {spec.load(name).title}")
        assert json.loads((out / f"{name}.json").read_text())["lines"]
    assert all(record.keys() >= KEYS for record in records)
    assert all(0 <= record["test_accuracy"] <= 1 for record in records)


def test_every_line_traces_to_records(everything: tuple[Path, dict[str, Any]]) -> None:
    out, result = everything
    known = {(record["experiment"], record["run"]) for record in records_of(out)}
    for table in result["tables"]:
        for line in table["lines"]:
            if table["name"] != "datasets" and not line["row"].startswith("A_GCN"):
                assert line["runs"]
            assert all((table["name"], run) in known for run in line["runs"])
            # Generated data is not the paper's.
            assert line["difference"] is None


def test_what_holds_is_said_of_every_mode(everything: tuple[Path, dict[str, Any]]) -> None:
    for record in records_of(everything[0]):
        if record["mode"] == "sound":
            assert record["epsilon_holds"] <= record["claimed_epsilon"]
        else:
            assert record["epsilon_holds"] is None
            assert record["holds_reason"].startswith("none: ")
        if record["mode"].startswith("non-private"):
            assert record["claimed_epsilon"] is None


def test_classes_are_counted_where_asked_for(everything: tuple[Path, dict[str, Any]]) -> None:
    for record in records_of(everything[0]):
        assert ("per_class" in record) == (record["experiment"] == "class-wise")
        if "per_class" in record:
            assert len(record["per_class"]["count"]) == len(record["per_class"]["accuracy"]) == 4
    out, result = everything
    table = next(table for table in result["tables"] if table["name"] == "class-wise")
    sizes = [one["test_nodes"] for one in table["classes"]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 4
    for line in table["lines"]:
        shares = [one["accuracy"][f"{line['row']}, {line['mode']}"] for one in table["classes"]]
        weighted = sum(size * share for size, share in zip(sizes, shares, strict=True)) / sum(sizes)
        assert weighted == pytest.approx(line["ours"])
    assert "| data | class | test nodes | GCN, non-private |" in (out / "class-wise.md").read_text()
    assert not any(table["classes"] for table in result["tables"] if table["name"] != "class-wise")


def test_a_second_call_trains_nothing_and_gives_the_same_tables(
    everything: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, result = everything
    monkeypatch.setattr("hushgraph.training.train.train", None)
    before = (out / "records.jsonl").read_bytes()
    again = reproducing.run_experiments(["degree", "transductive"], Options(out=out, quick=True), quiet=True)
    assert again["left"] == 0
    assert (out / "records.jsonl").read_bytes() == before
    tables = {table["name"]: table for table in result["tables"]}
    assert json.loads(json.dumps(again["tables"][0])) == json.loads(json.dumps(tables["degree"]))


def test_an_interruption_loses_the_run_in_progress_alone(tmp_path: Path) -> None:
    def stop(step: int, steps: int) -> None:
        if len(work.records.all) == 2:
            raise KeyboardInterrupt

    options = Options(out=tmp_path, quick=True, device="cpu", only=("DP-*",))
    work = Reproduction(["transductive"], options, say=silent)
    with pytest.raises(KeyboardInterrupt):
        work.run(lambda number, label: None, stop)
    assert len(records_of(tmp_path)) == 2
    again = Reproduction(["transductive"], options, say=silent)
    assert len(again.left) == len(work.plan) - 2
    again.run(lambda number, label: None, lambda step, steps: None)
    assert len(records_of(tmp_path)) == len(work.plan)


# Forked after a first training, so that both begin at once and inherit what is imported and compiled.
TWICE = """
import gc, os, sys
gc.disable()
import dp_accounting
import matplotlib.pyplot
import torch
import hushgraph as hg
from hushgraph.cli.app import main
torch.set_num_threads(1)
graph = hg.datasets.synthetic(num_nodes=60, num_classes=3)
hg.train(graph, epsilon=4.0, steps=1, max_readers=1, batch_size=10, device="cpu")
# All this is no garbage.
gc.freeze()
gc.enable()
children = []
for name in ("one", "two"):
    child = os.fork()
    if not child:
        os.dup2(os.open(f"{sys.argv[1]}.{name}", os.O_WRONLY | os.O_CREAT), 1)
        code = 1
        try:
            code = main(sys.argv[2:])
        finally:
            sys.stdout.flush()
            os._exit(code)
    children.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def test_processes_that_share_a_folder_share_the_runs(tmp_path: Path) -> None:
    told, out = tmp_path / "told", tmp_path / "out"
    words = ["reproduce", "degree", "--quick", "--device", "cpu", "--out", str(out), "--json"]
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"}
    ended = subprocess.run(
        [sys.executable, "-c", TWICE, str(told), *words],
        capture_output=True,
        text=True,
        env=os.environ | threads,
        timeout=600,
    )
    assert ended.stdout == "[0, 0]\n", ended.stderr
    found = [json.loads(Path(f"{told}.{name}").read_text().splitlines()[-1]) for name in ("one", "two")]
    assert found[0]["tables"] == found[1]["tables"]
    trained = [record["run"] for record in records_of(out) if "shared_with" not in record]
    assert len(trained) == len(set(trained)) == found[0]["planned"]


def test_tables_show_earlier_records_too(tmp_path: Path) -> None:
    options = Options(out=tmp_path, quick=True, device="cpu")
    full = reproducing.run_experiments(["degree"], options, quiet=True)
    part = replace(options, only=("DP-GCN",), modes=("sound",))
    assert reproducing.run_experiments(["degree"], part, quiet=True)["tables"] == full["tables"]


def test_a_row_goes_by_its_printed_name_too(tmp_path: Path) -> None:
    options = Options(out=tmp_path, quick=True, only=("DP-GCN (Adam)",))
    result = Reproduction(spec.names(), options, say=silent).plan
    assert {(planned.job.experiment.name, planned.job.row.row) for planned in result} == {
        ("transductive", "DP-GCN")
    }


def test_a_quick_run_leaves_real_tables_alone(tmp_path: Path) -> None:
    reproducing.run_experiments(["class-wise"], Options(out=tmp_path, quick=True, device="cpu"), quiet=True)
    path = tmp_path / "records.jsonl"
    path.write_text(path.read_text().replace('"data": "generated"', '"data": "mine"'))
    with pytest.raises(InputError, match="it has records of real data, whose tables --quick would replace"):
        Reproduction(["class-wise"], Options(out=tmp_path, quick=True), say=silent)


def test_a_quick_run_claims_what_its_steps_cost(everything: tuple[Path, dict[str, Any]]) -> None:
    for record in records_of(everything[0]):
        if record["mode"] == "as-published":
            assert record["claimed_epsilon"] == PrivacyPlan.from_json(json.dumps(record["plan"])).epsilon


def write_small(path: Path) -> None:
    rng = np.random.default_rng(0)
    order = rng.permutation(120)
    np.savez(
        path,
        edge_index=rng.integers(120, size=(2, 400)),
        x=rng.random((120, 4), dtype=np.float32),
        y=rng.integers(3, size=120),
        train_idx=order[:80],
        val_idx=order[80:100],
        test_idx=order[100:],
    )


def test_substituted_data_is_marked_and_other_columns_are_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_small(tmp_path / "small.npz")
    out = tmp_path / "out"
    where = ["--data-root", str(tmp_path), "--substitute", "ogbn-arxiv=small.npz", "--out", str(out)]
    which = [
        "transductive",
        "--only",
        "*/DP-GCN",
        "--mode",
        "as-published",
        "--seeds",
        "2",
        "--device",
        "cpu",
    ]
    assert main(["reproduce", *which, *where]) == 0
    text = capsys.readouterr().out
    assert "61.750 ± 0.282 *" in text
    assert "other data: not comparable" in text
    assert "ogbn-mag: skipped, " in text
    records = records_of(out)
    assert [record["seed"] for record in records] == [0, 1]
    plan = records[0]["plan"]
    # The budget sets the steps: one more would pass it.
    spent = PrivacyPlan.from_json(json.dumps(plan))
    assert spent.epsilon <= 12.0
    assert PrivacyPlan.from_json(json.dumps(plan | {"steps": plan["steps"] + 1})).epsilon > 12.0
    assert main(["reproduce", *which, *where, "--json"]) == 0
    table = json.loads(capsys.readouterr().out.splitlines()[-1])["tables"][0]
    assert table["lines"][0]["spread"] is not None
    assert table["lines"][0]["difference"] is None


def test_a_noise_that_pays_for_no_step_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(data: Any, **arguments: Any) -> Any:
        raise BudgetExceededError("epsilon=1: it pays for no step")

    monkeypatch.setattr("hushgraph.training.train.train", refuse)
    words = ["reproduce", "curves", "--quick", "--only", "*/DP-MLP", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    captured = capsys.readouterr()
    assert "DP-MLP, epsilon=1, as-published, seed 0: left out, epsilon=1: it pays for no step" in captured.out
    assert "nothing was measured: no budget pays for a step" in captured.err
    assert not (tmp_path / "out").exists()


def test_what_no_budget_pays_for_is_a_note(tmp_path: Path) -> None:
    write_small(tmp_path / "small.npz")
    out = tmp_path / "out"
    where = ["--data-root", str(tmp_path), "--substitute", "ogbn-arxiv=small.npz", "--out", str(out)]
    which = ["--only", "ogbn-arxiv/DP-GCN", "--mode", "as-published", "--device", "cpu"]
    assert main(["reproduce", "curves", *which, *where]) == 0
    note = "- Left out, its budget pays for no step: ogbn-arxiv, DP-GCN, epsilon=1, as-published, seed 0."
    assert note in (out / "curves.md").read_text()


def test_an_interruption_is_told_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(data: Any, **arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("hushgraph.training.train.train", interrupt)
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "degree", "--quick", "--json"]) == 130
    error = capsys.readouterr().err
    assert error.startswith("hushgraph: stopped; finished runs are in reproduction-quick, the same command")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce"], "no NAME"),
        (["reproduce", "transductiv"], "did you mean transductive"),
        (["reproduce", "degree", "--data-root", "."], "nothing is left to run: ogbn-arxiv: skipped"),
        (["reproduce", "nope", "--list"], "experiment 'nope' is not known"),
        (
            ["reproduce", "degree", "--quick", "--only", "nobody"],
            "no cell has this name; datasets are",
        ),
        (["reproduce", "degree", "--mode", "loud"], "expected 'both', 'sound' or 'as-published'"),
        (["reproduce", "degree", "--substitute", "x"], "expected NAME=FILE"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    error = captured.err
    assert message in error
    # A reason is said once, and not on standard output as well.
    assert (captured.out, error.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_the_list_and_a_dry_run_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in spec.names())
    assert main(["reproduce", "degree", "--list", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["experiments"]] == ["degree"]
    assert main(["reproduce", "degree", "--quick", "--dry-run", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["planned"], result["left"]) == (6, 6)
    assert list(tmp_path.iterdir()) == []
