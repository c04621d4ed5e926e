"""The run folder: what is written is whole, what is damaged is one clear line, and nothing in it is run."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import hushgraph as hg
from hushgraph._files import whole_file, write_whole
from hushgraph.cli.app import main
from hushgraph.cli.train import describe_run
from hushgraph.errors import RunError, WriteError
from hushgraph.graph.graph import Graph
from hushgraph.privacy import budget as budgets
from hushgraph.privacy.budget import DataBudget
from hushgraph.privacy.ledger import Ledger
from hushgraph.runs.config import TrainingConfig
from hushgraph.runs.folder import RunFolder, split_id
from hushgraph.runs.result import append_metrics, read_metrics
from hushgraph.tasks.classes import Classes
from hushgraph.training import trainer as loop
from plans import make_plan
from two_tables import folder_of

SETTINGS: dict[str, Any] = {"steps": 8, "hidden": 4, "batch_size": 30, "max_readers": 1, "device": "cpu"}


def make_graph(seed: int = 0) -> Graph:
    return hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4, seed=seed)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make_graph()


def one_more_node(graph: Graph) -> Graph:
    return replace(
        graph,
        num_nodes=graph.num_nodes + 1,
        indptr=np.append(graph.indptr, graph.indptr[-1]),
        x=np.vstack([graph.x, graph.x[:1]]),
        y=np.append(graph.y, 0),
    )


def stop_at(step: int) -> Callable[..., None]:
    def observe(done: int, *others: Any) -> None:
        if done >= step:
            raise KeyboardInterrupt

    return observe


@pytest.fixture(scope="module")
def finished(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    hg.train(graph, paper_noise_multiplier=1.0, out=path, **SETTINGS)
    return path


@pytest.fixture(scope="module")
def interrupted(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 5,000 steps that was stopped after a few."""
    path = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.raises(KeyboardInterrupt):
        hg.train(
            graph, paper_noise_multiplier=1.0, out=path, observer=stop_at(3), **SETTINGS | {"steps": 5_000}
        )
    return path


@pytest.fixture
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, to damage, of the folder that the fixture named by the parameter made."""
    shutil.copytree(request.getfixturevalue(request.param), tmp_path / "run")
    return tmp_path / "run"


def files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()} - {"ledger.jsonl.lock"}


def test_a_finished_run_round_trips(graph: Graph, finished: Path) -> None:
    assert files(finished) == {
        "run.json",
        "ledger.jsonl",
        "metrics.jsonl",
        "result.json",
        "weights.safetensors",
        "release/release.json",
        "release/weights.safetensors",
        "release/README.md",
    }
    run = hg.Run.load(finished)
    assert run.plan == RunFolder.open(finished).plan
    assert run.plan.steps == 8
    assert run.result["epsilon"] == run.epsilon == run.plan.epsilon
    assert [entry["step"] for entry in run.metrics] == [8]
    predicted = run.predict(graph)
    assert np.isclose(run.result["test_accuracy"], np.mean((predicted == graph.y)[graph.test_idx]))
    stored = safetensors.torch.load_file(finished / "weights.safetensors")
    assert stored.keys() == dict(run.model.named_parameters()).keys()


def test_a_run_is_shown_in_one_line(finished: Path) -> None:
    run = hg.Run.load(finished)
    run.result["epsilon"] = 1.00001
    assert (
        repr(run) == f"Run({str(finished)!r}, method='trees', model='gcn', epsilon=1.01, guarantee='holds')"
    )
    run.result["epsilon"] = "inf"
    assert "epsilon=infinity" in repr(run)


def test_resuming_a_finished_run_gives_it_back(graph: Graph, finished: Path) -> None:
    before = {file: (finished / file).read_bytes() for file in files(finished)}
    run = hg.resume(finished, graph)
    assert run.result == hg.Run.load(finished).result
    assert {file: (finished / file).read_bytes() for file in files(finished)} == before


def test_run_json_says_what_the_run_is(graph: Graph, finished: Path) -> None:
    about = json.loads((finished / "run.json").read_text())
    assert TrainingConfig(**about["config"]) == hg.Run.load(finished).config
    assert {"python", "hushgraph", "torch", "numpy"} <= about["versions"].keys()
    assert (about["num_features"], about["num_classes"], about["data"]) == (6, 3, "Graph")


def test_the_split_is_known_by_public_facts_alone(graph: Graph) -> None:
    rng = np.random.default_rng(0)
    other_rows = replace(graph, x=rng.random(graph.x.shape), y=rng.permutation(graph.y))
    assert split_id(other_rows) == split_id(graph)
    assert split_id(replace(graph, train_idx=graph.train_idx[1:])) != split_id(graph)


def test_an_interruption_loses_nothing(interrupted: Path) -> None:
    """Steps are paid for a few at a time; those that are paid for are taken before the run stops."""
    # On a fast machine the steps that are paid for may be 50, and then there is a line of metrics.
    assert files(interrupted) - {"metrics.jsonl"} == {"run.json", "ledger.jsonl", "checkpoint.safetensors"}
    with safetensors.safe_open(interrupted / "checkpoint.safetensors", framework="pt") as file:
        about = json.loads(file.metadata()["about"])
    assert about["step"] == Ledger.open(interrupted / "ledger.jsonl", read_only=True).steps_charged
    assert (3 <= about["step"] < 5_000, about["steps_lost"]) == (True, 0)


def slowly(observer: Callable[..., None]) -> Callable[..., None]:
    def observed(*told: Any) -> None:
        time.sleep(0.1)
        observer(*told)

    return observed


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "own"])
def test_a_stopped_run_goes_on_where_it_was(
    graph: Graph, tmp_path: Path, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, average, optimiser and schedule: stopping and resuming ends where going through does."""
    monkeypatch.setattr(loop, "_CHARGED_AHEAD_SECONDS", 0.0)
    own = None if optimizer != "own" else lambda p: torch.optim.NAdam(p, lr=0.02)
    settings = SETTINGS | {"optimizer": own or optimizer, "learning_rate": 0.05}
    # Full batches, no edges, no noise: nothing is drawn, so nothing can differ but what was restored.
    settings |= {"private": False, "batch_size": None, "max_readers": 0, "steps": 9, "seed": 1}
    through = hg.train(graph, **settings)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, out=tmp_path / "run", observer=slowly(stop_at(2)), **settings)
    steps: list[int] = []
    resumed = hg.resume(tmp_path / "run", graph, optimizer=own, observer=lambda *told: steps.append(told[0]))
    assert steps == list(range(3, 10))
    for name, value in through.model.state_dict().items():
        assert torch.allclose(resumed.model.state_dict()[name], value, atol=1e-6)
    assert (resumed.result["resumed"], resumed.result["steps_lost"]) == (True, 0)
    # Both parts of the run count.
    assert 0.2 < resumed.result["seconds"] < time.monotonic() - begin


def test_steps_that_a_kill_took_are_told(graph: Graph, tmp_path: Path, interrupted: Path) -> None:
    shutil.copytree(interrupted, tmp_path / "run")
    (tmp_path / "run" / "checkpoint.safetensors").unlink()
    folder = RunFolder.open(tmp_path / "run")
    with Ledger.open(folder.ledger_path, plan=folder.plan) as ledger:
        lost = ledger.steps_charged + 4_000
        ledger.charge(folder.plan.step_charge, count=4_000)
        ledger.charge(folder.plan.step_charge, count=4_990 - lost)
    run = hg.resume(tmp_path / "run", graph)
    assert run.result["steps_lost"] == 4_990
    assert Ledger.open(folder.ledger_path, read_only=True).steps_charged == 5_000


def test_resuming_needs_no_repetition_of_how_data_was_read(graph: Graph, tmp_path: Path) -> None:
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    data = tmp_path / "graph.npz"
    np.savez(data, edge_index=np.stack([graph.indices, target])[:, ::3], x=graph.x, y=graph.y)
    how = {"symmetrize": True, "split": "0.7/0.1/0.2", "split_seed": 5, "setting": "inductive"}
    settings = SETTINGS | {"steps": 2_000, "paper_noise_multiplier": 1.0}
    with pytest.raises(KeyboardInterrupt):
        hg.train(data, out=tmp_path / "run", observer=stop_at(1), **how, **settings)
    with pytest.raises(KeyboardInterrupt):
        hg.resume(tmp_path / "run", data, observer=stop_at(1))
    assert RunFolder.open(tmp_path / "run").config.split_seed == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: make_graph(seed=1),
        lambda graph: replace(graph, x=graph.x[:, 1:]),
        lambda graph: replace(graph, train_idx=np.append(graph.train_idx[1:], graph.val_idx[0]), val_idx=[]),
        one_more_node,
    ],
    ids=["another graph", "another feature count", "another split of the same size", "one more node"],
)
def test_other_data_is_refused(graph: Graph, interrupted: Path, change: Callable[[Graph], Graph]) -> None:
    before = (interrupted / "ledger.jsonl").read_bytes()
    with pytest.raises(RunError, match="give the data it began with"):
        hg.resume(interrupted, change(graph))
    assert (interrupted / "ledger.jsonl").read_bytes() == before


def test_the_announcement_names_the_data_given(graph: Graph, interrupted: Path) -> None:
    folder = replace(RunFolder.open(interrupted), data="people.npz")
    for same in ("people.npz", "./people.npz", os.path.abspath("people.npz")):
        line = describe_run(folder, same)
        assert line.startswith(f"Training privately on {same}: GCN, ")
        assert "\n" not in line
    first, second = describe_run(folder, "p2.npz").splitlines()
    assert first.startswith("Training privately on p2.npz: GCN, ")
    assert "Continuing after step" in first
    assert second.startswith(
        "This run started on people.npz and continues with p2.npz: it must be the same data"
    )


def test_the_command_says_that_a_run_goes_on_with_another_file(
    graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    for name in ("people.npz", "p2.npz"):
        np.savez(tmp_path / name, edge_index=np.stack([graph.indices, target]), x=graph.x, y=graph.y)
    where, other = tmp_path / "run", str(tmp_path / "p2.npz")
    with pytest.raises(KeyboardInterrupt):
        hg.train(
            tmp_path / "people.npz", paper_noise_multiplier=1.0, out=where, observer=stop_at(1), **SETTINGS
        )
    assert main(["train", other, "--resume", str(where), "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Training privately on {other}: ")
    assert f"This run started on {tmp_path / 'people.npz'} and continues with {other}: " in out


def test_labels_beyond_the_runs_classes_are_refused(graph: Graph, interrupted: Path) -> None:
    with pytest.raises(hg.GraphError, match=r"expected -1\.\.2"):
        hg.resume(interrupted, replace(graph, num_classes=4, y=np.where(graph.y == 2, 3, graph.y)))


def test_data_that_does_not_fit_is_no_reason_to_change_a_setting(
    finished: Path, tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    rng, fields = np.random.default_rng(0), {}
    fields["x"], fields["y"] = rng.normal(size=(9, 6)), np.arange(9)
    fields["edge_index"], fields["train_idx"] = rng.integers(0, 9, (2, 20)), np.arange(9)
    np.savez(tmp_path / "others.npz", **fields)
    people = folder_of(tmp_path / "people", "id,a,part,label\na,1,x,0\nb,2,y,1\n", "source,target\na,z\n")
    end = f"run {finished} keeps the settings of its training: give"
    for call, words in {
        ("train", tmp_path / "others.npz", "--resume", finished): "expected -1..2",
        ("report", finished, tmp_path / "others.npz"): "expected -1..2",
        ("report", finished, people): "its name is that of a split",
        ("predict", finished, people, "--out", tmp_path / "p.csv"): "its name is that of a split",
    }.items():
        code, _, err = run(*call)
        assert code == 2
        assert words in err
        assert end in err
        assert not any(flag in err for flag in ("--num-classes", "num_classes", "--split-column", "--ignore"))


def test_a_run_in_use_is_refused(graph: Graph, interrupted: Path) -> None:
    with Ledger.open(interrupted / "ledger.jsonl"), pytest.raises(RunError, match="another process"):
        hg.resume(interrupted, graph)


def test_an_existing_run_is_refused(graph: Graph, finished: Path) -> None:
    before = (finished / "run.json").read_bytes()
    with pytest.raises(RunError, match="it holds a run already; resume it, or choose another folder"):
        hg.train(graph, paper_noise_multiplier=1.0, out=finished, **SETTINGS)
    assert (finished / "run.json").read_bytes() == before


@pytest.mark.parametrize("name", ["ledger.jsonl", "weights.safetensors", "checkpoint.safetensors"])
def test_what_is_left_of_a_run_is_never_taken_over(graph: Graph, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(RunError, match="it holds a run already"):
        hg.train(graph, paper_noise_multiplier=1.0, out=tmp_path, **SETTINGS)
    assert files(tmp_path) == {name}


def test_a_folder_with_other_files_is_refused_and_an_empty_one_is_not(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="it holds other files; choose a new folder, or an empty one"):
        hg.train(graph, paper_noise_multiplier=1.0, out=tmp_path, **SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "empty").mkdir()
    hg.train(graph, paper_noise_multiplier=1.0, out=tmp_path / "empty", **SETTINGS)
    assert (tmp_path / "empty" / "weights.safetensors").exists()


def test_a_run_whose_budget_cannot_be_written_leaves_nothing_behind(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = DataBudget.create(tmp_path / "b.ledger", delta=1e-6)
    (tmp_path / "empty").mkdir()
    before = {each.name for each in tmp_path.iterdir()}

    def refuse(*_: Any) -> None:
        raise WriteError("budget: cannot be written")

    monkeypatch.setattr("hushgraph.privacy.budget._append", refuse)
    for out in ("new", "empty"):
        with pytest.raises(WriteError, match="budget: cannot be written"):
            hg.train(graph, paper_noise_multiplier=1.0, budget=budget.path, out=tmp_path / out, **SETTINGS)
        assert {each.name for each in tmp_path.iterdir()} == before
        assert list((tmp_path / "empty").iterdir()) == []


def test_a_run_that_may_be_charged_keeps_its_folder(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = DataBudget.create(tmp_path / "b.ledger", delta=1e-6)
    append = budgets._append

    def stop(*arguments: Any) -> None:
        append(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(budgets, "_append", stop)
    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, paper_noise_multiplier=1.0, budget=budget.path, out=tmp_path / "run", **SETTINGS)
    monkeypatch.undo()
    assert len(DataBudget.open(budget.path).charges) == 1
    assert hg.resume(tmp_path / "run", graph).result["steps"] == 8


@pytest.mark.parametrize("where", ["file/run", "file", "/proc/hushgraph-run"])
def test_a_folder_that_cannot_be_made_is_one_line(graph: Graph, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot be created \(.*\); choose another folder") as caught:
        hg.train(graph, paper_noise_multiplier=1.0, out=tmp_path / where, **SETTINGS)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_one_line(graph: Graph, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(RunError, match="cannot be"):
            hg.train(graph, paper_noise_multiplier=1.0, out=tmp_path / "run", **SETTINGS)
        with pytest.raises(RunError, match="cannot be"):
            hg.train(graph, paper_noise_multiplier=1.0, out=tmp_path, **SETTINGS)
    finally:
        tmp_path.chmod(0o700)


def test_a_full_disk_at_the_start_leaves_nothing(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Any, target: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RunError, match="No space left on device"):
        hg.train(graph, paper_noise_multiplier=1.0, out=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run").exists()


def test_whole_files_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    try:
        with whole_file(path) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert path.read_bytes() == b"old"
    order: list[str] = []
    sync, put = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("sync"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), put(a, b)))
    write_whole(path, b"new")
    assert (path.read_bytes(), [file.name for file in tmp_path.iterdir()]) == (b"new", ["file"])
    # The content is on disk before it has the name, and the name is on disk before we go on.
    assert order == ["sync", "replace", "sync"]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_whole(path, b"newer")
    assert (path.read_bytes(), [file.name for file in tmp_path.iterdir()]) == (b"new", ["file"])


class Payload:
    """Unpickling this makes the folder that HUSHGRAPH_TEST_MARK names."""

    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["HUSHGRAPH_TEST_MARK"],)


def edited(**changes: Any) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        return json.dumps(json.loads(content) | changes).encode()

    return change


def in_part(part: str, **changes: Any) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        about = json.loads(content)
        return json.dumps(about | {part: about[part] | changes}).encode()

    return change


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "noise": lambda content: np.random.default_rng(0).bytes(500),
    "pickle": lambda content: pickle.dumps(Payload()),
    "torch file": lambda content: b"PK\x03\x04" + content,
    "deep": lambda content: b"[" * 200_000,
    "list": lambda content: b"[1, 2]",
}
IN_RUN_JSON = {
    "format": edited(format=99),
    "no plan": edited(plan=None),
    "plan": in_part("plan", batch_size=-1),
    "plan with a new key": in_part("plan", epsilons=3),
    "config": in_part("config", hidden="wide"),
    "config out of range": in_part("config", hidden=0),
    "config with a new key": in_part("config", hiden=3),
    "shape": edited(num_features="six"),
    "infinite": edited(num_features=float("inf")),
}


def one_line(path: Path, do: Callable[[], Any], mark: Path) -> str:
    with pytest.raises(RunError) as caught:
        do()
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    assert len(message) < 700
    assert not mark.exists()
    return message


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HUSHGRAPH_TEST_MARK", str(tmp_path / "ran"))
    return tmp_path / "ran"


@pytest.mark.parametrize("copied", ["finished"], indirect=True)
@pytest.mark.parametrize("how", [*DAMAGE, *IN_RUN_JSON])
def test_a_damaged_run_json_is_one_line(copied: Path, how: str, graph: Graph, mark: Path) -> None:
    file = copied / "run.json"
    file.write_bytes((DAMAGE | IN_RUN_JSON)[how](file.read_bytes()))
    assert "run.json" in one_line(copied, lambda: hg.Run.load(copied), mark)
    one_line(copied, lambda: hg.resume(copied, graph), mark)


@pytest.mark.parametrize("copied", ["finished"], indirect=True)
@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", ["weights.safetensors", "result.json"])
def test_a_damaged_result_is_one_line(copied: Path, name: str, how: str, mark: Path) -> None:
    (copied / name).write_bytes(DAMAGE[how]((copied / name).read_bytes()))
    assert name in one_line(copied, lambda: hg.Run.load(copied), mark)


@pytest.mark.parametrize("copied", ["interrupted"], indirect=True)
@pytest.mark.parametrize(
    ("name", "how"),
    [("checkpoint.safetensors", how) for how in DAMAGE]
    # A ledger whose end is cut off is that of a run that was killed while it paid.
    + [("ledger.jsonl", how) for how in ("empty", "noise", "pickle", "torch file", "list")],
)
def test_a_damaged_checkpoint_or_ledger_is_one_line(
    copied: Path, name: str, how: str, graph: Graph, mark: Path
) -> None:
    (copied / name).write_bytes(DAMAGE[how]((copied / name).read_bytes()))
    assert name in one_line(copied, lambda: hg.resume(copied, graph), mark)


@pytest.mark.parametrize("copied", ["interrupted"], indirect=True)
def test_a_checkpoint_of_another_model_is_one_line(copied: Path, graph: Graph, mark: Path) -> None:
    file = copied / "checkpoint.safetensors"
    tensors = safetensors.torch.load_file(file)
    with safetensors.safe_open(file, framework="pt") as opened:
        about = opened.metadata()
    for change in (
        {"average.encoder.0.weight": torch.zeros(2, 2)},
        {"model.encoder.0.weight": torch.zeros(2, 2)},
        {"model.more": torch.zeros(1)},
        {"strange": torch.zeros(1)},
    ):
        safetensors.torch.save_file(tensors | change, file, about)
        one_line(copied, lambda: hg.resume(copied, graph), mark)
    safetensors.torch.save_file(tensors, file, {})
    one_line(copied, lambda: hg.resume(copied, graph), mark)
    del tensors["average.encoder.0.weight"]
    safetensors.torch.save_file(tensors, file, about)
    one_line(copied, lambda: hg.resume(copied, graph), mark)


@pytest.mark.parametrize("copied", ["interrupted"], indirect=True)
def test_a_run_without_its_ledger_is_never_a_new_one(copied: Path, graph: Graph, mark: Path) -> None:
    (copied / "ledger.jsonl").unlink()
    one_line(copied, lambda: hg.resume(copied, graph), mark)
    assert not (copied / "ledger.jsonl").exists()


@pytest.mark.parametrize("copied", ["interrupted"], indirect=True)
def test_a_run_whose_plan_was_edited_is_refused(copied: Path, graph: Graph, mark: Path) -> None:
    file = copied / "run.json"
    file.write_bytes(in_part("plan", steps=50_000)(file.read_bytes()))
    assert "plan or settings were edited" in one_line(copied, lambda: hg.resume(copied, graph), mark)


def test_what_is_not_a_run_is_one_line(tmp_path: Path, graph: Graph, interrupted: Path, mark: Path) -> None:
    assert "no run.json in it" in one_line(tmp_path, lambda: hg.Run.load(tmp_path), mark)
    missing = tmp_path / "nowhere"
    assert "no run.json in it" in one_line(missing, lambda: hg.resume(missing, graph), mark)
    assert "it is not finished; resume it" in one_line(interrupted, lambda: hg.Run.load(interrupted), mark)


def test_a_metrics_line_cut_short_takes_no_other_with_it(tmp_path: Path) -> None:
    plan = make_plan(
        num_train_nodes=10, num_layers=1, max_readers=1, batch_size=5, steps=3, paper_noise_multiplier=1.0
    )
    folder = RunFolder(
        path=tmp_path / "run",
        plan=plan,
        config=TrainingConfig(),
        num_features=2,
        asked=Classes(num_classes=2),
        split_id="0",
        data="none",
    )
    folder.create().close()
    assert read_metrics(folder.path) == []
    line = {"epsilon": 1.0, "val_accuracy": None, "seconds": 0.5}
    append_metrics(folder.path, step=1, **line)
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "val')
    append_metrics(folder.path, step=3, **line)
    assert read_metrics(folder.path) == [{"step": 1, **line}, {"step": 3, **line}]
    assert RunFolder.open(folder.path) == folder
