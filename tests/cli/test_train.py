"""`hushgraph train` and `hushgraph predict`: output for people and programs, exit codes, Ctrl-C, files."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import hushgraph as hg
from hushgraph.cli.app import main
from hushgraph.cli.terminal import StatusLine
from hushgraph.cli.train import progress_figures
from hushgraph.graph.graph import Graph
from hushgraph.privacy.defaults import (
    choose_billboard,
    choose_billboard_non_private,
    choose_non_private,
    choose_private,
    choose_reads,
)
from hushgraph.privacy.ledger import Ledger
from hushgraph.training import prepare
from hushgraph.training import train as training
from hushgraph.training import trainer as loop
from hushgraph.training.interruption import delay_interrupts
from plans import make_plan

Run = Callable[..., tuple[int, str, str]]
SMALL = "--steps 4 --hidden 4 --batch-size 30 --max-readers 1 --device cpu".split()  # noqa: SIM905
LONG = ["--steps", "5000", *SMALL[2:]]


def make_graph(seed: int = 0) -> Graph:
    return hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, average_degree=4, seed=seed)


def write_npz(graph: Graph, path: Path, *, split: bool = True) -> Path:
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    arrays = {"edge_index": np.stack([graph.indices, target]), "x": graph.x, "y": graph.y}
    if split:
        arrays |= {name: getattr(graph, name) for name in ("train_idx", "val_idx", "test_idx")}
    np.savez(path, **arrays)
    return path


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_npz(make_graph(), tmp_path / "people.npz")


def answer(run: Run, *arguments: Any) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    found: dict[str, Any] = json.loads(out)
    return found


CONTRACT = {
    *("epsilon", "delta", "accountant", "sampler", "adjacency", "guarantee", "changed_trees"),
    *("epsilon_group_of_two", "paper_noise_multiplier", "sigma_over_clip", "steps", "sampling_rate"),
    *("max_readers", "max_reads", "edge_owner", "val_accuracy", "test_accuracy", "seconds", "device"),
    *("method", "predictions", "epsilon_edge", "epsilon_label", "epsilon_spent", "warnings"),
    *("epsilon_evaluated", "epsilon_other", "unit"),
    *("directed", "assumptions", "task", "figures", "notices"),
}


def test_json_has_the_keys_of_the_contract(run: Run, data: Path) -> None:
    found = answer(run, "train", data, "--epsilon", "5", *SMALL)
    # Trees read neighbours in the clear, so that figures are exact and say what they measured.
    exact = {"val_macro_f1", "test_macro_f1"}
    assert set(found) == CONTRACT | exact | {"out", "resumed", "steps_lost"}
    assert (found["guarantee"], found["figures"], found["notices"]) == ("holds", "not covered", [])
    covered = answer(run, "train", data, "--epsilon", "5", "--steps", "4", "--hidden", "4", "--device", "cpu")
    assert set(covered) == set(found) | {"figure_table", "board_share", "board_noise"}
    assert (covered["guarantee"], covered["figures"]) == ("holds", "covered")
    assert 0 < found["epsilon"] <= 5
    assert (found["steps"], found["max_readers"], found["device"]) == (4, 1, "cpu")
    assert found["out"] == "runs/people-gcn-1"
    assert hg.Run.load(found["out"]).result.items() <= found.items()


def test_covered_figures_of_a_model_that_learnt_little_give_notices(run: Run, tmp_path: Path) -> None:
    graph = hg.datasets.synthetic(num_nodes=9000, num_classes=3, num_features=2, average_degree=2, seed=1)
    rng = np.random.default_rng(1)
    # Nothing tells a label, and most are 0.
    graph = replace(
        graph, x=np.ones_like(graph.x), y=np.where(rng.random(9000) < 0.9, 0, rng.integers(3, size=9000))
    )
    path = write_npz(graph, tmp_path / "same.npz")
    flags = ("--epsilon", "8", "--steps", "30", "--hidden", "4", "--device", "cpu", "--num-classes", "3")
    notices = answer(run, "train", path, *flags)["notices"]
    assert len(notices) == 1
    assert notices[0].startswith(
        "the model is hardly better, or worse, than always predicting the most frequent"
    )
    code, _, err = run("train", path, *flags)
    assert code == 0
    assert [line[:34] for line in err.splitlines() if line.startswith("notice: ")] == [
        "notice: the model is hardly better",
    ]
    # Exact figures would say the same, and are not covered: nothing is said of a run that has no others.
    assert answer(run, "train", path, *flags, "--seed", "1")["notices"] == []


@pytest.mark.parametrize("weights", [{}, {"0": 1.0, "2": 0.25}])
def test_weights_of_classes_reach_the_run(run: Run, data: Path, weights: dict[str, float]) -> None:
    flags = [word for name, weight in weights.items() for word in ("--class-weight", f"{name}={weight}")]
    found = answer(run, "train", data, "--epsilon", "5", *SMALL[:4], "--device", "cpu", *flags)
    assert hg.Run.load(found["out"]).config.class_weights == ((1.0, 1.0, 0.25) if weights else None)


def test_folders_are_numbered(run: Run, data: Path) -> None:
    names = [
        answer(run, "train", data, "--non-private", *SMALL, *more)["out"]
        for more in ([], [], ["--model", "mlp"])
    ]
    assert names == ["runs/people-gcn-1", "runs/people-gcn-2", "runs/people-mlp-1"]


def test_every_flag_reaches_the_run(run: Run, tmp_path: Path) -> None:
    data = write_npz(make_graph(), tmp_path / "people.npz", split=False)
    flags = (
        "--paper-noise-multiplier 2 --delta 0.01 --max-readers 2 --max-reads 3 --edge-owner reader "
        "--accountant paper --clipping groups --clip 0.5 --model gin --layers 2 --hidden 5 "
        "--encoder-layers 2 --decoder-layers 3 --activation relu --batch-size 20 --steps 3 "
        "--optimizer sgd --lr 0.25 --setting inductive --symmetrize --split 0.5/0.25/0.25 --split-seed 9 "
        "--num-classes 4 --seed 11 --device cpu --train-accuracy"
    )
    found = answer(run, "train", data, *flags.split(), "--out", "here")
    assert 0 <= found["train_accuracy"] <= 1
    loaded = hg.Run.load("here")
    assert loaded.plan == make_plan(
        num_train_nodes=loaded.plan.num_train_nodes,
        num_layers=2,
        max_readers=2,
        max_reads=3,
        edge_owner="reader",
        batch_size=20,
        steps=3,
        clip=0.5,
        paper_noise_multiplier=2.0,
        delta=0.01,
        accountant="paper",
        clipping="groups",
    )
    settings = {
        "model": "gin",
        "hidden": 5,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "activation": "relu",
        "optimizer": "sgd",
        "learning_rate": 0.25,
        "setting": "inductive",
        "symmetrize": True,
        "split": "0.5/0.25/0.25",
        "split_seed": 9,
        "train_accuracy": True,
        "seed": 11,
    }
    assert {name: getattr(loaded.config, name) for name in settings} == settings
    assert loaded.folder.num_classes == 4


def test_people_get_a_line_a_table_and_the_sentence(run: Run, data: Path) -> None:
    code, out, err = run("train", data, "--epsilon", "5", *SMALL)
    assert (code, err) == (0, "")
    first, rest = out.split("\n", 1)
    assert first.startswith(f"Training privately on {data}: GCN, 1 round of messages, 6 features, 3 classes")
    for words in (
        "validation accuracy",
        "test accuracy",
        "epsilon              5.00",
        "guarantee            holds",
    ):
        assert words in rest
    for words in ("steps                4", "seconds", "folder               runs/people-gcn-1"):
        assert words in rest
    assert "Training is (5.00, " in rest
    assert "train accuracy" not in out
    assert all(len(line) <= 80 for line in rest.splitlines())


def test_a_seeded_run_says_reproducible_not_private(run: Run, data: Path) -> None:
    _, out, _ = run("train", data, "--epsilon", "5", "--seed", "3", *SMALL)
    assert "reproducible, not private" in " ".join(out.split())
    assert "guarantee            none" in out
    assert "Training is (" not in out
    assert "It covers" not in out


def test_training_without_privacy_says_so(run: Run, data: Path) -> None:
    _, out, _ = run("train", data, "--non-private", *SMALL)
    assert out.startswith("Training without privacy on ")
    assert "epsilon              infinity" in out
    assert "train accuracy" in out
    assert "Nothing is guaranteed" in out


def test_quiet_says_nothing(run: Run, data: Path) -> None:
    assert run("train", data, "--epsilon", "5", "--quiet", *SMALL) == (0, "", "")
    code, out, _ = run("train", data, "--epsilon", "5", "--quiet", "--json", *SMALL)
    assert (code, out.count("\n")) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothere.npz", "--epsilon", "1"], "nothere.npz: no such file"),
        (["damaged.npz", "--epsilon", "1"], "damaged.npz: not an .npz archive"),
        (["demon", "--epsilon", "1"], "did you mean 'demo'?"),
        (["people.npz"], "no budget"),
        (["people.npz", "--epsilon", "1", "--non-private"], "without privacy there is no budget"),
        (["people.npz", "--epsilon", "nan"], "epsilon=nan"),
        (["people.npz", "--epsilon", "lots"], "--epsilon"),
        (["people.npz", "--epsilon", "1", "--model", "gcm"], "model='gcm'"),
        (["people.npz", "--epsilon", "1", "--optimizer", "own"], "optimizer='own'"),
        (["people.npz", "--epsilon", "1", "--batch-size", "0"], "--batch-size=0"),
        (["people.npz", "--epsilon", "1", "--seed", "-1"], "seed=-1"),
        (["people.npz", "--epsilon", "1", "--device", "gpu"], "device='gpu'"),
        (["people.npz", "--epsilon", "1", "--split", "9/1"], "split='9/1'"),
        (["people.npz", "--epsilon", "1", "--hiden", "4"], "--hidden"),
        (["people.npz", "--resume", "nowhere"], "no run.json in it"),
        (
            ["people.npz", "--resume", "nowhere", "--steps", "9", "--epsilon", "1"],
            "--epsilon, --steps: a resumed run",
        ),
        ([], "DATA"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    run: Run, data: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "damaged.npz").write_bytes(b"PK\x03\x04 but no archive")
    before = sorted(tmp_path.iterdir())
    code, out, err = run("train", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("hushgraph: ")
    assert err.count("\n") == 1
    assert words in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_budget_that_pays_for_nothing_is_exit_code_3(run: Run, data: Path, tmp_path: Path) -> None:
    flags = "--epsilon 0.01 --paper-noise-multiplier 0.01 --batch-size 30 --max-readers 1"
    code, out, err = run("train", data, *flags.split())
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert [file.name for file in tmp_path.iterdir()] == ["people.npz"]


def test_an_existing_run_is_not_overwritten(run: Run, data: Path) -> None:
    answer(run, "train", data, "--epsilon", "5", "--out", "here", *SMALL)
    code, out, err = run("train", data, "--epsilon", "5", "--out", "here", *SMALL)
    assert (code, out) == (2, "")
    assert "it holds a run already" in err


def interrupt_at(
    step: int, monkeypatch: pytest.MonkeyPatch, *, times: int = 1, by: signal.Signals = signal.SIGINT
) -> None:
    """Ctrl-C, in the middle of a step."""
    real = loop.Trainer.take_step

    def interrupted(self: loop.Trainer, pieces: Any) -> None:
        if self.state.step == step:
            for _ in range(times):
                os.kill(os.getpid(), by)
        real(self, pieces)

    monkeypatch.setattr(loop.Trainer, "take_step", interrupted)


def test_ctrl_c_loses_nothing_and_says_how_to_continue(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        interrupt_at(3, patch)
        code, out, err = run("train", data, "--paper-noise-multiplier", "1", "--out", "my run", *LONG)
    assert signal.getsignal(signal.SIGINT) is handler
    assert code == 130
    assert out.count("\n") == 1
    again = f"hushgraph train {data} --resume 'my run'"
    # Before it comes a warning: this noise has an epsilon above 100.
    last = err.splitlines()[-1]
    found = re.fullmatch(rf"hushgraph: stopped after step (\d+) of 5000; continue with: {again}", last)
    assert found
    assert 4 <= int(found[1]) < 5000
    assert Ledger.open("my run/ledger.jsonl", read_only=True).steps_charged == int(found[1])
    # The rest would take a while: pay for most of it and let it be lost.
    folder = training.RunFolder.open("my run")
    with Ledger.open(folder.ledger_path, plan=folder.plan) as ledger:
        ledger.charge(folder.plan.step_charge, count=4990 - ledger.steps_charged)
    code, out, err = run("train", data, "--resume", "my run", "--device", "cpu")
    assert (code, err) == (0, "")
    assert "Continuing after step 4,990." in out
    assert "steps were paid for and lost" in " ".join(out.split())
    assert answer(run, "train", data, "--resume", "my run")["steps_lost"] == 4990 - int(found[1])
    _, out, _ = run("train", data, "--resume", "my run")
    assert out.startswith("my run was finished before; nothing was trained.\n")


@pytest.mark.parametrize("is_ignored", [False, True])
def test_sigterm_is_as_good_as_ctrl_c(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch, is_ignored: bool
) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    interrupt_at(3, monkeypatch, by=signal.SIGTERM)
    if is_ignored:
        # As of a process that a shell started in the background.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code, _, err = run("train", data, "--paper-noise-multiplier", "1", "--out", "here", *LONG)
    finally:
        signal.signal(signal.SIGINT, handlers[0])
    assert code == 130
    assert err.splitlines()[-1].startswith("hushgraph: stopped after step ")
    assert Path("here/checkpoint.safetensors").exists()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_second_ctrl_c_does_not_wait(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(3, monkeypatch, times=2)
    code, _, err = run("train", data, "--paper-noise-multiplier", "1", "--out", "here", *LONG)
    assert code == 130
    assert err.splitlines()[-1].startswith("hushgraph: stopped after step ")
    assert Path("here/checkpoint.safetensors").exists()


def test_ctrl_c_before_anything_began_leaves_nothing(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "load_for_training", interrupted)
    assert run("train", data, "--epsilon", "5", *SMALL) == (130, "", "hushgraph: interrupted\n")
    assert not Path("runs").exists()


def test_interruption_waits_for_check_and_restores_the_handler() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with delay_interrupts() as check:
        assert signal.getsignal(signal.SIGINT) is handler
        check()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(screen: io.StringIO, *, quiet: bool = False) -> str:
    console = Console(file=screen, width=80, force_terminal=screen.isatty(), _environ={"TERM": "xterm"})
    with StatusLine(quiet=quiet, console=console) as line:
        line.show("Loading [people].npz")
        line.count("step", 41, 100, figures=progress_figures(1.23456, None))
        line.count("step", 42, 100, figures=progress_figures(1.23456, 0.6543))
    return screen.getvalue()


def test_progress_shows_steps_epsilon_accuracy_and_time_left() -> None:
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn(Screen()))
    for words in ("Loading [people].npz", "step", "42/100", "epsilon 1.24", "validation 65.4%", "left"):
        assert words in shown


def test_progress_is_silent_elsewhere() -> None:
    assert drawn(io.StringIO()) == ""
    assert drawn(Screen(), quiet=True) == ""


def test_the_bar_is_on_standard_error(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Screen(), Screen()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["train", str(data), "--epsilon", "5", *SMALL]) == 0
    assert "4/4" in err.getvalue()
    assert "4/4" not in out.getvalue()


@pytest.mark.parametrize("flag", ["--json", "--quiet"])
def test_programs_get_no_bar(flag: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen()
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["train", str(data), "--epsilon", "5", flag, *SMALL]) == 0
    assert err.getvalue() == ""


def test_help_fits_80_columns_and_names_every_flag(run: Run) -> None:
    code, out, _ = run("train", "--help")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 80
    flags = (
        "model layers epsilon sigma-over-clip paper-noise-multiplier non-private delta max-readers max-reads "
        "edge-owner batch-size "
        "steps optimizer lr hidden encoder-layers decoder-layers activation setting symmetrize split sampler "
        "accountant clipping seed device out resume json clip num-classes split-seed train-accuracy quiet"
    )
    for flag in flags.split():
        assert re.search(rf"^  --{flag}\b", out, re.MULTILINE), flag
    for heading in ("Budget:", "Model:", "Training:", "Data:", "Run and output:"):
        assert heading in out


def test_the_figures_in_the_help_are_the_defaults(run: Run) -> None:
    _, out, _ = run("train", "--help")
    text = " ".join(out.split())
    many = {"num_train_nodes": 10**7}
    trees = choose_private(**many, epsilon=1.0, delta=1e-8, num_layers=1, num_classes=5)
    private = choose_billboard(**many, epsilon=1.0, delta=1e-8, num_classes=5)
    small = choose_private(num_train_nodes=1000, epsilon=1.0, delta=1e-4, num_layers=1, num_classes=5)
    assert f"[{private.steps}; trees up to {small.steps}; fewer without privacy]" in text
    assert trees.steps < small.steps
    assert choose_billboard_non_private(**many, num_classes=5).steps < private.steps
    assert choose_non_private(num_train_nodes=10, num_classes=5).steps < small.steps
    assert f"[all, up to {private.batch_size:,}:" in text
    assert f"[{private.hidden}; trees {trees.hidden}: noise grows with it]" in text
    assert "[4 K + 4, which is free; K if readers own]" in text
    assert (choose_reads(3, "sender"), choose_reads(3, "reader")) == (4 * 3 + 4, 3)


@pytest.fixture
def trained(run: Run, data: Path) -> hg.Run:
    answer(run, "train", data, "--epsilon", "5", "--out", "trained", *SMALL)
    return hg.Run.load("trained")


def test_predictions_as_csv_and_npz(run: Run, data: Path, trained: hg.Run) -> None:
    wanted = trained.predict_proba(data)
    code, out, err = run("predict", "trained", data, "--out", "plain.csv")
    assert (code, err) == (0, "")
    assert out.startswith("120 predictions in plain.csv. ")
    assert "in the clear" in out
    assert "does not cover" in out
    lines = Path("plain.csv").read_text().splitlines()
    assert lines[0] == "node,class"
    assert lines[1:] == [f"{node},{best}" for node, best in enumerate(wanted.argmax(1))]
    assert run("predict", "trained", data, "--out", "more.csv", "--probabilities", "--quiet") == (0, "", "")
    assert Path("more.csv").read_text().startswith("node,class,p_0,p_1,p_2\n")
    table = np.loadtxt("more.csv", delimiter=",", skiprows=1)
    assert np.allclose(table[:, 2:], wanted, atol=1e-5)
    assert np.allclose(table[:, 2:].sum(1), 1, atol=1e-4)
    run("predict", "trained", data, "--out", "more.npz", "--probabilities")
    with np.load("more.npz") as arrays:
        assert set(arrays) == {"node", "class", "probabilities"}
        assert np.array_equal(arrays["class"], wanted.argmax(1))
        assert np.array_equal(arrays["probabilities"], wanted)
    run("predict", "trained", data, "--out", "plain.npz")
    with np.load("plain.npz") as arrays:
        assert set(arrays) == {"node", "class"}
    assert not list(Path().glob("*.draft"))


def test_other_graphs_and_graphs_without_split_or_labels_can_be_predicted(
    run: Run, tmp_path: Path, trained: hg.Run
) -> None:
    other = make_graph(seed=7)
    other = replace(other, y=np.full(other.num_nodes, -1), val_idx=[], test_idx=[])
    path = write_npz(other, tmp_path / "other.npz", split=False)
    assert run("predict", "trained", path, "--out", "other.csv")[0] == 0
    assert len(Path("other.csv").read_text().splitlines()) == 121


def test_labels_are_not_read_to_predict(run: Run, data: Path, tmp_path: Path, trained: hg.Run) -> None:
    with np.load(data) as arrays:
        whole = dict(arrays)
    bare = {key: value for key, value in whole.items() if key.startswith(("edge_index", "x"))}
    np.savez(tmp_path / "bare.npz", **bare)
    np.savez(tmp_path / "odd.npz", **whole | {"y": np.full(120, 70), "train_idx": [0, 0]})
    for name in ("people", "bare", "odd"):
        assert run("predict", "trained", f"{name}.npz", "--out", f"{name}.csv", "--probabilities")[0] == 0
        assert Path(f"{name}.csv").read_text() == Path("people.csv").read_text()
    code, _, err = run("train", "odd.npz", "--epsilon", "5", "--num-classes", "3", *SMALL)
    assert (code, err.count("\n")) == (2, 1)
    assert "y[0]=70: expected -1..2" in err


def test_prediction_symmetrizes_as_training_did(run: Run, tmp_path: Path) -> None:
    directed = hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=6, directed=True)
    path = write_npz(directed, tmp_path / "directed.npz")
    answer(run, "train", path, "--epsilon", "5", "--symmetrize", "--out", "both", *SMALL)
    for flags, name in ([], "a.npz"), (["--symmetrize"], "b.npz"), (["--no-symmetrize"], "c.npz"):
        assert run("predict", "both", path, "--out", name, "--probabilities", *flags)[0] == 0
    found = [np.load(name)["probabilities"] for name in ("a.npz", "b.npz", "c.npz")]
    assert np.array_equal(found[0], found[1])
    assert not np.allclose(found[0], found[2])


def test_files_are_overwritten_by_force_alone(run: Run, data: Path, trained: hg.Run) -> None:
    Path("mine.csv").write_text("mine")
    code, out, err = run("predict", "trained", data, "--out", "mine.csv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "it exists already; choose another name, or give --force" in err
    assert Path("mine.csv").read_text() == "mine"
    assert run("predict", "trained", data, "--out", "mine.csv", "--force")[0] == 0
    assert Path("mine.csv").read_text().startswith("node,class\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trained", "people.npz", "--out", "x.txt"], "ends in .csv, .npz or .parquet"),
        (["trained", "people.npz", "--out", "no/where.csv"], "there is no folder no"),
        (["nowhere", "people.npz", "--out", "x.csv"], "no run.json in it"),
        (["trained", "nothere.npz", "--out", "x.csv"], "nothere.npz: no such file"),
        (["trained", "narrow.npz", "--out", "x.csv"], "5 features, the model was trained on 6"),
        (["trained", "people.npz"], "--out"),
        (["trained", "people.npz", "--out", "x.csv", "--device", "gpu"], "device='gpu'"),
    ],
)
def test_bad_input_to_predict_is_one_line(
    run: Run, tmp_path: Path, trained: hg.Run, arguments: list[str], words: str
) -> None:
    narrow = make_graph()
    write_npz(replace(narrow, x=narrow.x[:, 1:]), tmp_path / "narrow.npz")
    before = sorted(tmp_path.iterdir())
    code, out, err = run("predict", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert sorted(tmp_path.iterdir()) == before


def test_an_unfinished_run_cannot_predict(run: Run, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(2, monkeypatch)
    assert run("train", data, "--paper-noise-multiplier", "1", "--out", "here", *LONG)[0] == 130
    code, _, err = run("predict", "here", data, "--out", "x.csv")
    assert code == 2
    assert "it is not finished; resume it" in err
