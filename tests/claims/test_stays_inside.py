"""Promise: nothing private leaves a private run: not on screen, not to the observer, not into its folder.

Of that folder `release/` may be published. What is in it is listed here key by key.
"""

from __future__ import annotations

import io
import json
import re
import struct
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch

import hushgraph as hg
from hushgraph.cli import app as cli
from hushgraph.figures.tables import NoisyTables
from hushgraph.gradients import ghost
from hushgraph.graph.graph import Graph
from hushgraph.privacy.guarantee import CLASSES_FROM_LABELS, Assumption, Guarantee
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan
from hushgraph.runs.config import TrainingConfig
from hushgraph.training import steps as loop
from hushgraph.training.evaluation import list_figures, summarise_figures
from run_folders import contents

SUMMARY = {
    *("epsilon", "delta", "accountant", "sampler", "adjacency", "guarantee", "changed_trees"),
    *("epsilon_group_of_two", "paper_noise_multiplier", "sigma_over_clip", "steps", "sampling_rate"),
    *("max_readers", "max_reads", "edge_owner", "directed"),
    # Whether classes were declared, whichever they are.
    "assumptions",
    # Which method, whether predictions are covered, and the price of smaller changes: all of the plan.
    *("method", "predictions", "epsilon_spent", "epsilon_edge", "epsilon_label"),
    *("epsilon_evaluated", "epsilon_other"),
    # Which task, and whether figures are computed from noisy tables.
    *("task", "figures", "unit"),
}
# Exact where figures are not covered, and then of the folder alone; else computed from noisy tables.
FIGURES = {"val_accuracy", "test_accuracy", "val_macro_f1", "test_macro_f1"}
# What the plan of a billboard says beyond that.
BILLBOARD = {"board_share", "board_noise"}
# Every key that a private run may write, by file. A new one must be thought about here first.
ALLOWED = {
    "run.json": {
        *("format", "plan", "config", "num_features", "num_classes", "split_id", "data", "versions", "task"),
        # What the user said about tables, in the user's words.
        "columns",
        # A checksum of the rest.
        "sum",
        # About the plan, names of columns and the budget.
        "warnings",
        # Whether classes were declared, whichever they are.
        "assumptions",
    },
    "result.json": SUMMARY | FIGURES | {"seconds", "device", "resumed", "steps_lost", "warnings"},
    "metrics.jsonl": {"step", "epsilon", "val_accuracy", "seconds"},
    "ledger.jsonl": {
        *("ledger", "plan", "epsilon", "delta", "accountant", "charges", "sum"),
        *("step", "count", "charge", "kind", "name", "draw", "rate", "sigma_over_clip"),
        # Of steps: bounds that follow from the plan.
        *("changed_trees", "num_trees", "trees_of_record", "reads_lists"),
        # Of boards.
        *("noise_std", "by_everybody", "label_move", "released", "digest"),
        # Of tables of figures.
        "num_tables",
    },
}
# What release.json holds: the plan, declared settings and names, and what follows from them.
RELEASED = {
    *("format", "hushgraph", "plan", "config", "num_features", "task", "columns", "assumptions"),
    *("guarantee", "statement", "result", "sum"),
    # How the public split was drawn, and a digest of the identifiers in the training split.
    "public_split",
}
# Settings that say how a run was watched or drawn, or that are elsewhere in the file.
UNRELEASED_SETTINGS = {
    *("seed", "exact_figures", "train_accuracy", "evaluate_every", "split", "split_seed"),
    # Written where they are used.
    *("edge_weight", "people"),
}
GUARANTEE = {
    *("kind", "epsilon", "delta", "adjacency", "epsilon_edge", "epsilon_group_of_two"),
    *("priced_epsilon", "priced_group_of_two", "why", "assumptions"),
}
# Noisy counts, with what says how to read them, and what is computed from them.
TABLES = {"format", "plan", "noise_std", "groups", "grids", "tables", "figures"}
FIGURE_ROW = {
    *("split", "group", "class", "figure", "value", "noise", "sampling", "noise_std", "sampling_std", "why"),
}
CHECKPOINT = {"step", "steps_lost", "numbers", "seconds"}
PRIVATE_WORDS = re.compile(
    r"loss|norm(?!alised)|train.?acc|gradient|class_counts|histogram|edges", re.IGNORECASE
)
NODES = 903


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Features with six digits each, so that one of them in any text would be recognised."""
    plain = hg.datasets.synthetic(num_nodes=NODES, num_classes=3, num_features=8, average_degree=5, seed=6)
    rng = np.random.default_rng(1)
    return replace(plain, x=np.round(plain.x + rng.uniform(0.1, 0.9, plain.x.shape), 6))


def write_npz(graph: Graph, path: Path) -> Path:
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    splits = {name: getattr(graph, name) for name in ("train_idx", "val_idx", "test_idx")}
    np.savez(path, edge_index=np.stack([graph.indices, target]), x=graph.x, y=graph.y, **splits)
    return path


def plan_keys(kind: type[PrivacyPlan], *, has_figures: bool) -> set[str]:
    """The fields of a plan, and what says how to read them."""
    keys = {field.name for field in fields(kind)} | {"format", "method", "adjacency"}
    # A plan has the keys of what it pays for.
    keys -= {"num_scaled", "scaling_noise", "has_target", "protects", "is_weighted", "num_relations"}
    return keys if has_figures else keys - {"num_tables", "table_noise"}


class Screen(io.StringIO):
    """A terminal that remembers everything."""

    def isatty(self) -> bool:
        return True


class Said:
    """All that one private run of the command said or wrote."""

    def __init__(self, graph: Graph, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.losses: list[float] = []
        self.norms: list[float] = []
        real = ghost.clipped_sum

        def watched(model: Any, batch: Any, clipping: Any) -> Any:
            with torch.no_grad():
                scores = model(batch.x, batch.blocks)
                self.losses.append(float(torch.nn.functional.cross_entropy(scores, batch.labels)))
            self.norms += ghost.group_norms(model, batch).flatten().tolist()
            return real(model, batch, clipping)

        out, err = Screen(), Screen()
        with monkeypatch.context() as patch:
            patch.setattr(loop, "choose_tree_sums", lambda *_: watched)
            patch.setattr("sys.stdout", out)
            patch.setattr("sys.stderr", err)
            patch.setenv("COLUMNS", "200")
            patch.setenv("TERM", "xterm")
            data = write_npz(graph, root / "people.npz")
            flags = "--epsilon 6 --steps 120 --hidden 8 --max-readers 2 --batch-size 45 --device cpu"
            assert cli.main(["train", str(data), *flags.split(), "--out", str(root / "run")]) == 0
        self.folder = root / "run"
        self.screen = out.getvalue() + err.getvalue()
        self.files = contents(self.folder)
        self.texts = [
            self.screen,
            *(content.decode() for name, content in self.files.items() if "safetensors" not in name),
        ]


@pytest.fixture(scope="module")
def said(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Said:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return Said(graph, tmp_path_factory.mktemp("said"), monkeypatch)


def keys_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for inner in value.values() for key in keys_in(inner)}
    return {key for inner in value for key in keys_in(inner)} if isinstance(value, list) else set()


def long_numbers_in(text: str) -> set[float]:
    """The numbers of five significant digits or more; with fewer, coincidences are common."""
    without_colours = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", " ", text)
    # Digests hold runs of digits that mean nothing, and times are nobody's secret.
    plain = re.sub(r"\b[0-9a-f]{32,64}\b|\"seconds\": [0-9.]+", " ", without_colours)
    found = re.findall(r"\d+\.?\d*(?:e[+-]?\d+)?", plain)
    return {float(text) for text in found if len(text.split("e")[0].replace(".", "").strip("0")) >= 5}


def test_there_is_something_to_hide(said: Said) -> None:
    """The screen was drawn on and private figures were there to leak, so the other tests mean something."""
    assert "validation" in said.screen
    assert "epsilon" in said.screen
    assert len(said.losses) == 120
    assert len(said.norms) > 1_000


def test_only_these_files_are_written(said: Said) -> None:
    released = {f"release/{name}" for name in ("release.json", "README.md", "weights.safetensors")}
    assert set(said.files) == {*ALLOWED, *released, "weights.safetensors", "ledger.jsonl.lock"}
    assert said.files["ledger.jsonl.lock"] == b""


def test_only_these_keys_are_written(said: Said) -> None:
    for name, allowed in ALLOWED.items():
        lines = [said.files[name]] if name.endswith(".json") else said.files[name].splitlines()
        assert lines
        for line in lines:
            found = json.loads(line)
            if name == "run.json":
                assert set(found["plan"]) == plan_keys(PrivacyPlan, has_figures=False)
                assert set(found["config"]) == {field.name for field in fields(TrainingConfig)}
                assert set(found) == allowed
            elif name == "result.json":
                assert set(found) == allowed
            else:
                assert keys_in(found) <= allowed


def check_release(files: dict[str, bytes], run: hg.Run, *assumptions: Assumption) -> dict[str, Any]:
    """What every release.json holds, key by key; returns its result."""
    about = json.loads(files["release/release.json"])
    assert set(about) == RELEASED
    assert set(about["plan"]) == plan_keys(type(run.plan), has_figures="release/figures.json" in files)
    assert set(about["config"]) == {field.name for field in fields(TrainingConfig)} - UNRELEASED_SETTINGS
    split = {"shares": run.config.split, "draw": run.config.split_seed}
    assert about["public_split"] == split | {"training_nodes": run.folder.split_id}
    assert set(about["task"]) == {"name", "num_classes"}
    assert set(about["guarantee"]) == GUARANTEE
    # Words and numbers of the guarantee are those of the plan, which has no data.
    again = Guarantee.of(PrivacyPlan.from_json(json.dumps(about["plan"])), assumptions=assumptions)
    assert (about["guarantee"], about["statement"]) == (again.to_json(), again.statement.to_text())
    assert (about["columns"], about["assumptions"]) == (None, [vars(each) for each in assumptions])
    result: dict[str, Any] = about["result"]
    for key, value in again.plan.summary().items():
        assert result[key] == value
    return result


def test_a_release_of_trees_has_no_figures(said: Said) -> None:
    """They read neighbours in the clear, so that all figures are exact and stay outside."""
    result = check_release(said.files, hg.Run.load(said.folder), CLASSES_FROM_LABELS)
    assert set(result) == SUMMARY | {"val_accuracy", "test_accuracy", "figure_table"}
    assert (result["val_accuracy"], result["test_accuracy"], result["figure_table"]) == (None, None, [])
    assert said.files["release/weights.safetensors"] == said.files["weights.safetensors"]
    exact = json.loads(said.files["result.json"])
    assert all(exact[key] > 0 for key in FIGURES)
    for name in ("release/release.json", "release/README.md"):
        text = said.files[name].decode()
        # Neither exact figures, nor times, nor where the data lies.
        # A figure with few digits may equal a setting by chance.
        figures = {exact[key] for key in FIGURES} & long_numbers_in(repr(exact))
        assert not (figures | {exact["seconds"]}) & long_numbers_in(text)
        assert str(said.folder.parent) not in text
        assert '"seconds"' not in text


@pytest.mark.parametrize("exact", [False, True], ids=["usual", "exact asked for"])
def test_a_billboard_writes_no_other_keys(graph: Graph, tmp_path: Path, exact: bool) -> None:
    run = hg.train(
        graph, epsilon=6.0, steps=4, hidden=8, device="cpu", out=tmp_path / "run", exact_figures=exact
    )
    files = contents(tmp_path / "run")
    boards = {"board-1.safetensors", "board-2.safetensors"}
    noised = {*boards, "halfway.safetensors", "weights.safetensors"}
    released = {*noised, "release.json", "README.md", "figures.json"}
    outside = {*ALLOWED, *noised, "figures.json", "ledger.jsonl.lock"}
    assert set(files) == outside | {f"release/{name}" for name in released}
    kept = json.loads(files["result.json"])
    asked = {"exact_figures"} if exact else set()
    assert set(kept) == ALLOWED["result.json"] | BILLBOARD | {"figure_table"} | asked
    # What has noise is the same inside as outside.
    for name in noised:
        assert files[f"release/{name}"] == files[name]
    tables, figures = (json.loads(files[name]) for name in ("figures.json", "release/figures.json"))
    assert (set(figures), set(tables)) == (TABLES, TABLES - {"figures"})
    assert {key: figures[key] for key in tables} == tables
    result = check_release(files, run)
    assert set(result) == SUMMARY | BILLBOARD | FIGURES | {"figure_table"}
    assert result["figure_table"] == figures["figures"]
    assert all(set(row) <= FIGURE_ROW for row in figures["figures"])
    # Every figure follows from the noisy tables, whatever the run measured.
    rows = summarise_figures(
        list_figures(
            run.folder.task, NoisyTables.load(tmp_path / "run" / "figures.json", plan=run.plan.fingerprint())
        )
    )
    assert {key: result[key] for key in rows} == rows
    described = json.loads(files["run.json"])
    assert set(described) == ALLOWED["run.json"]
    assert set(described["plan"]) == plan_keys(BillboardPlan, has_figures=True)
    for name in ("metrics.jsonl", "ledger.jsonl"):
        for line in files[name].splitlines():
            assert keys_in(json.loads(line)) <= ALLOWED[name]
    for name in boards:
        with safetensors.safe_open(tmp_path / "run" / name, framework="pt") as file:
            assert set(file.keys()) == {"values"}
            assert set(file.metadata()) == {"kind", "noise_std", "plan", "sum"}


def test_weights_hold_weights_alone(said: Said, graph: Graph) -> None:
    content = said.files["weights.safetensors"]
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert set(header.pop("__metadata__", {})) == {"sum"}
    shapes = {name: about["shape"] for name, about in header.items()}
    model = hg.Run.load(said.folder).model
    assert shapes == {name: list(p.shape) for name, p in model.named_parameters()}
    # And no bytes behind those of the tensors.
    assert 8 + length + max(about["data_offsets"][1] for about in header.values()) == len(content)


def test_no_private_word_is_said(said: Said) -> None:
    config = {field.name for field in fields(TrainingConfig)}
    # What a guarantee is about is told in such words, by the plan alone (`check_release`, test_shown.py).
    about = json.loads(said.files["release/release.json"])
    prose = {said.files["release/README.md"].decode(), said.files["release/release.json"].decode()}
    assert prose < set(said.texts)
    texts = [*(set(said.texts) - prose), json.dumps(about | {"statement": ""})]
    for text in texts:
        for name in sorted(config, key=len, reverse=True):
            # The names of settings are public; what they are set to is looked at below.
            text = text.replace(f'"{name}"', "")
        assert PRIVATE_WORDS.findall(text) == []


def test_no_private_figure_is_said(said: Said, graph: Graph) -> None:
    numbers = set().union(*(long_numbers_in(text) for text in said.texts))
    run = hg.Run.load(said.folder)
    hits = float(np.mean((run.predict(graph) == graph.y)[graph.train_idx]))
    assert run.epsilon in numbers
    private = {
        "loss": said.losses,
        "norm": said.norms,
        "train accuracy": [hits],
        "feature": graph.x.flatten().tolist(),
    }
    for name, values in private.items():
        for digits in (5, 6, 7, 8, 17):
            leaked = {float(f"{value:.{digits}g}") for value in values} & numbers
            assert not leaked, (name, leaked)


def test_no_private_count_is_said(said: Said, graph: Graph) -> None:
    counts = {*np.bincount(graph.y[graph.train_idx]).tolist(), graph.num_edges}
    # Larger than any number of a step, so that meeting one is no coincidence.
    assert min(counts) > 120
    for text in said.texts:
        assert not counts & {int(number) for number in re.findall(r"(?<![\w.-])\d+(?![\w.])", text)}


def test_the_observer_gets_four_public_figures(graph: Graph) -> None:
    told: list[tuple[Any, ...]] = []

    def observe(*arguments: Any, **named: Any) -> None:
        assert not named
        told.append(arguments)

    settings = {"steps": 9, "hidden": 8, "max_readers": 2, "batch_size": 50, "device": "cpu"}
    for exact in (False, True):
        told.clear()
        run = hg.train(
            graph, epsilon=6.0, observer=observe, evaluate_every=4, exact_figures=exact, **settings
        )
        assert len(told) == 9
        recorded = {entry["step"]: entry["val_accuracy"] for entry in run.metrics}
        # Accuracies on the way are exact, so that they must be asked for.
        assert (None in (recorded[4], recorded[8])) is not exact
        for step, (done, total, epsilon, accuracy) in enumerate(told, start=1):
            assert (done, total) == (step, 9)
            assert 0 < epsilon <= 6.0
            assert accuracy == (None if step < 4 else recorded[4 if step < 8 else 8])


def test_a_checkpoint_holds_what_was_noised_and_nothing_else(graph: Graph, tmp_path: Path) -> None:
    def stop(*told: Any) -> None:
        raise KeyboardInterrupt

    settings = {"steps": 3_000, "hidden": 8, "max_readers": 2, "batch_size": 50, "device": "cpu"}
    with pytest.raises(KeyboardInterrupt):
        hg.train(graph, epsilon=6.0, observer=stop, out=tmp_path / "run", **settings)
    with safetensors.safe_open(tmp_path / "run" / "checkpoint.safetensors", framework="pt") as file:
        names, metadata = set(file.keys()), file.metadata()
    assert set(metadata) == {"about", "sum"}
    assert set(json.loads(metadata["about"])) == CHECKPOINT
    parameters = [name.removeprefix("model.") for name in names if name.startswith("model.")]
    wanted = {f"{part}.{name}" for part in ("model", "average") for name in parameters}
    # Adam's moments are made of gradients that had their noise already.
    moments = ("exp_avg", "exp_avg_sq", "step")
    wanted |= {f"optimizer.{place}.{key}" for place in range(len(parameters)) for key in moments}
    assert names == wanted


def test_what_the_command_says_before_training_is_public(graph: Graph, said: Said) -> None:
    """Every figure of the announcement is one that the user gave or that the contract calls public."""
    first = next(line for line in said.screen.splitlines() if line.startswith("Training privately on "))
    figures = {int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.])", first.split(".npz", 1)[1])}
    # Rounds, features, classes, training nodes, K, steps, batch.
    assert figures == {1, 8, 3, len(graph.train_idx), 2, 120, 45}


def test_train_accuracy_is_named_private_where_it_was_asked_for(
    graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(write_npz(graph, tmp_path / "people.npz"))
    flags = "--epsilon 6 --steps 3 --hidden 8 --batch-size 50 --device cpu --train-accuracy"
    assert cli.main(["train", data, *flags.split(), "--out", str(tmp_path / "run")]) == 0
    # A narrow terminal wraps the line.
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"train accuracy \S+% \(private: the guarantee does not cover this figure\)", said)
