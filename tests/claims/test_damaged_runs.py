"""Promise: a run whose files were damaged or edited is refused in one line, and nothing in it is run."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import hushgraph as hg
from hushgraph._files import read_tensors, write_tensors
from hushgraph.errors import DivergedError, RunError
from hushgraph.graph.graph import Graph
from hushgraph.runs.about import find_checksum
from hushgraph.training import trainer as loop
from hushgraph.training.memory import GraphView
from run_folders import SETTINGS, charged, contents, finished, refused, stopped


@stopped
@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("plan", {"sigma_over_clip": 0.1}),
        ("plan", {"max_readers": 3}),
        ("plan", {"steps": 4_000}),
        ("plan", {"delta": 0.1}),
        ("plan", {"clip": 2.0}),
        ("config", {"seed": 3}),
        ("config", {"learning_rate": 1.0}),
        ("config", {"resample_every": 1}),
        (None, {"num_classes": 4}),
        (None, {"split_id": "0"}),
        (None, {"data": "other"}),
    ],
)
def test_an_edited_run_is_refused(
    copied: Path, part: str | None, change: dict[str, Any], graph: Graph
) -> None:
    file = copied / "run.json"
    about = json.loads(file.read_text())
    (about if part is None else about[part]).update(change)
    file.write_text(json.dumps(about))
    before = contents(copied)
    refused(lambda: hg.resume(copied, graph), "run.json", "edited", "restore it")
    assert contents(copied) == before


@stopped
def test_a_plan_edited_with_care_is_refused_by_the_ledger(copied: Path, graph: Graph) -> None:
    file = copied / "run.json"
    about = json.loads(file.read_text())
    about["plan"]["sigma_over_clip"] = 0.5
    about.pop("sum")
    file.write_text(json.dumps({**about, "sum": find_checksum(about)}))
    refused(lambda: hg.resume(copied, graph), "it belongs to another plan")


@finished
@pytest.mark.parametrize("key", ["epsilon", "epsilon_spent"])
@pytest.mark.parametrize("value", [0.01, "inf", "nan"])
def test_an_edited_epsilon_is_refused(copied: Path, key: str, value: Any) -> None:
    file = copied / "result.json"
    result = json.loads(file.read_text())
    assert key in result
    file.write_text(json.dumps(result | {key: value}))
    refused(lambda: hg.Run.load(copied), "result.json says epsilon", "restore result.json")


@finished
@pytest.mark.parametrize(
    "change",
    [
        {"seconds": float("inf")},
        {"val_accuracy": 1.5},
        {"test_accuracy": "good"},
        {"train_accuracy": -1},
        {"steps_lost": None},
        {"guarantee": 3},
        {"anything": float("nan")},
        {"epsilon": 10**400},
    ],
)
def test_a_result_that_no_run_writes_is_refused(copied: Path, change: dict[str, Any]) -> None:
    file = copied / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    refused(lambda: hg.Run.load(copied), "result.json", "restore it")


@stopped
def test_an_optimiser_that_would_stumble_is_refused(copied: Path, graph: Graph) -> None:
    file = copied / "checkpoint.safetensors"
    tensors, about = read_tensors(file)
    for change in (torch.zeros(()), torch.zeros(7, 7)):
        write_tensors(file, tensors | {"optimizer.0.exp_avg": change}, about)
        refused(lambda: hg.resume(copied, graph), "checkpoint.safetensors is damaged")
    write_tensors(file, {name: t for name, t in tensors.items() if name != "optimizer.0.exp_avg"}, about)
    refused(lambda: hg.resume(copied, graph), "weight 0 lacks a part, or has another shape")


def test_an_edited_guarantee_is_refused(graph: Graph, tmp_path: Path) -> None:
    hg.train(graph, out=tmp_path / "run", steps=1, seed=3, **SETTINGS)
    file = tmp_path / "run" / "result.json"
    about = json.loads(file.read_text())
    assert about["guarantee"] == "none"
    file.write_text(json.dumps(about | {"epsilon": about["epsilon_spent"]}))
    refused(lambda: hg.Run.load(tmp_path / "run"), "result.json says epsilon", "run.json inf")
    file.write_text(json.dumps(about | {"guarantee": "holds"}))
    refused(lambda: hg.Run.load(tmp_path / "run"), "the guarantee holds, against the ledger and run.json")


@finished
def test_every_flipped_bit_of_the_weights_is_found(copied: Path) -> None:
    file = copied / "weights.safetensors"
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(len(whole), size=60):
        file.write_bytes(
            whole[:place] + bytes([whole[place] ^ (1 << int(rng.integers(8)))]) + whole[place + 1 :]
        )
        refused(lambda: hg.Run.load(copied), "weights.safetensors")
    for length in (0, 7, 8, 100, len(whole) - 1):
        file.write_bytes(whole[:length])
        refused(lambda: hg.Run.load(copied), "weights.safetensors")


@finished
def test_weights_that_do_not_fit_are_refused(copied: Path) -> None:
    file = copied / "weights.safetensors"
    tensors, _ = read_tensors(file)
    name, weight = next(iter(tensors.items()))
    for value in (weight[:1], weight.to(torch.float16), torch.full_like(weight, float("nan"))):
        write_tensors(file, tensors | {name: value}, {})
        refused(lambda: hg.Run.load(copied), "does not fit the model", name)
    safetensors.torch.save_file(tensors, file)
    refused(lambda: hg.Run.load(copied), "checksum does not match")


def test_training_that_diverges_says_so(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = loop.Trainer.take_step

    def step(self: Any, pieces: Any) -> None:
        real(self, pieces)
        for value in self.state.average.values():
            value.fill_(float("inf"))

    monkeypatch.setattr(loop.Trainer, "take_step", step)
    with monkeypatch.context() as patch:
        patch.setattr(GraphView, "score", lambda *_: iter(()))
        refused(
            lambda: hg.train(graph, out=tmp_path / "run", steps=2, **SETTINGS),
            "lower learning rate",
            kind=DivergedError,
        )
    assert not (tmp_path / "run" / "weights.safetensors").exists()
    assert charged(tmp_path / "run") == 2


class Payload:
    """Unpickling this makes the folder that HUSHGRAPH_TEST_MARK names."""

    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["HUSHGRAPH_TEST_MARK"],)


@pytest.mark.parametrize("copied", ["begun", "done"], indirect=True)
@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_no_file_of_a_run_is_ever_executed(
    copied: Path, how: str, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ran"
    monkeypatch.setenv("HUSHGRAPH_TEST_MARK", str(mark))
    for name in sorted(contents(copied)):
        whole = (copied / name).read_bytes()
        if how == "pickle":
            (copied / name).write_bytes(pickle.dumps(Payload()))
        else:
            torch.save(Payload(), copied / name)
        # metrics.jsonl and the lock hold nothing that must be right.
        with contextlib.suppress(RunError, KeyboardInterrupt):
            hg.resume(copied, graph, observer=_stop)
        assert not mark.exists(), name
        (copied / name).write_bytes(whole)
    with pytest.raises(FileExistsError):
        pickle.loads(pickle.dumps([Payload(), Payload()]))
    assert mark.exists()


def _stop(*told: Any) -> None:
    raise KeyboardInterrupt
