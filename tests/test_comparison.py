"""`compare`: the five runs, what each row says, what publishing costs, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgraph as hg
from hushgraph.comparison.comparing import compare
from hushgraph.comparison.result import FOLDERS, NAMES, Comparison, Entry, Total
from hushgraph.errors import InputError, PlanError, RunError, WriteError
from hushgraph.graph.graph import Graph
from hushgraph.graph.records import Relation
from hushgraph.privacy.budget import DataBudget
from hushgraph.training import trainer as loop

QUICK: dict[str, Any] = {"steps": 4, "hidden": 4, "batch_size": 40, "max_readers": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return hg.datasets.synthetic(num_nodes=240, num_classes=3, num_features=12, average_degree=6, seed=3)


COVERED = ("DP-Billboard", "DP-MLP")


@pytest.fixture(scope="module")
def found(graph: Graph) -> Comparison:
    return compare(graph, epsilon=6.0, delta=1e-4, name="three classes", **QUICK)


def row(name: str = "DP-GNN (trees)", **others: Any) -> Entry:
    usual: dict[str, Any] = {
        "name": name,
        "model": "gcn" if "GNN" in name else "mlp",
        "method": "billboard" if name == "DP-Billboard" else "trees",
        "predictions": "covered towards everybody else" if name in COVERED else "not covered",
        "private": name.startswith("DP-"),
        "epsilon": 3.0 if name.startswith("DP-") else math.inf,
        "delta": 1e-5,
        "guarantee": "holds" if name.startswith("DP-") else "none",
        "validation": 0.5,
        "test": 0.25,
        "macro_f1": None,
        "seconds": 1.5,
        "plan": "abc",
    }
    return Entry(**usual | others)


def literal(**others: Any) -> Comparison:
    usual: dict[str, Any] = {"data": "x", "seeded": False, "entries": tuple(row(name) for name in NAMES)}
    usual["total"] = Total(9.0, 1e-5 + 1e-5 + 1e-5, "words")
    return Comparison(**usual | others)


def test_weights_of_tables_are_read_once_for_all_runs(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    people = [f"p{n},{rng.normal():.2f},{n % 2}" for n in range(120)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,age,label", *people]) + "\n")
    pairs = [f"p{a},p{b},{rng.random():.2f}" for a, b in rng.integers(0, 120, (200, 2))]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target,amount", *pairs]) + "\n")
    compared = compare(tmp_path, epsilon=6.0, edge_weight="amount:log1p", num_classes=2, **QUICK)
    for run in compared.runs.values():
        assert [each.is_weighted for each in run.folder.relations] == [True]


def test_rows_are_what_the_runs_reached(found: Comparison, graph: Graph) -> None:
    assert tuple(row.name for row in found.entries) == NAMES == tuple(found.runs)
    for name, entry in zip(NAMES, found.entries, strict=True):
        run = found.runs[name]
        predicted = run.predict(graph)
        right = predicted == graph.y
        truth, guess = graph.y[graph.test_idx], predicted[graph.test_idx]
        exact = (np.mean(right[graph.val_idx]), np.mean(right[graph.test_idx]), macro_f1(truth, guess))
        shown = (entry.validation, entry.test, entry.macro_f1)
        covered = [
            next(each for each in run.figures if (each["split"], each["figure"], each["class"]) == key)
            for key in (("val", "accuracy", None), ("test", "accuracy", None), ("test", "macro_f1", None))
            if run.figures
        ]
        assert (entry.figures == "covered") == bool(covered) == (name in COVERED)
        if covered:
            assert [each["value"] for each in covered] == list(shown)
            # Five standard deviations of the noise that is stated.
            for each, wanted in zip(covered, exact, strict=True):
                assert each["value"] is None or abs(each["value"] - wanted) < 5 * each["noise_std"]
        else:
            assert shown == pytest.approx(exact)
        assert entry.plan == run.plan.fingerprint()
        assert entry.delta == 1e-4
        assert run.plan.num_layers == (1 if "GNN" in name else 0)
        assert (entry.method, entry.predictions) == (run.plan.method, run.result["predictions"])


def macro_f1(truth: np.ndarray, guess: np.ndarray) -> float:
    scores = []
    for number in np.unique(truth):
        hits = np.sum((truth == number) & (guess == number))
        scores.append(2 * hits / (np.sum(truth == number) + np.sum(guess == number)))
    return float(np.mean(scores))


def test_three_are_private_and_two_are_not(found: Comparison) -> None:
    private = [row for row in found.entries if row.private]
    assert [row.name for row in private] == ["DP-Billboard", "DP-GNN (trees)", "DP-MLP"]
    assert [row.name for row in found.entries if row.method == "billboard"] == ["DP-Billboard"]
    # An MLP reads one row, so its predictions are covered too.
    covered = [row.name for row in found.entries if row.predictions.startswith("covered")]
    assert covered == ["DP-Billboard", "DP-MLP"]
    assert all(row.guarantee == "holds" and 5.9 < row.epsilon <= 6.0 for row in private)
    assert all(
        row.guarantee == "none" and math.isinf(row.epsilon) for row in found.entries if not row.private
    )
    assert found.runs["DP-GNN (trees)"].plan.max_readers == 2
    # Bounds that privacy needs are not for training without it.
    assert found.runs["GNN"].plan.max_readers == 20


def test_all_on_one_split(found: Comparison) -> None:
    assert len({run.folder.split_id for run in found.runs.values()}) == 1


def test_what_publishing_costs() -> None:
    compared = literal()
    assert compared.release_all == pytest.approx((9.0, 3e-5))
    assert "Each private model is (3.00, 1e-5)-differentially private by itself" in compared.cost
    # Three times 1e-5 is above 3e-5 in floating point, and delta is rounded up.
    assert "publishing all 3 together costs up to (9.00, 3.0001e-5) by composition (words)" in compared.cost
    assert "Predictions of DP-Billboard and DP-MLP are covered towards everybody else." in compared.cost
    assert "Predictions of DP-GNN (trees) are not covered." in compared.cost
    assert (
        "GNN and MLP are trained without privacy: they have no guarantee at all and must not be"
        in compared.cost
    )
    assert "nor a choice made by them is covered" in compared.cost


def test_a_seed_takes_the_guarantee(graph: Graph) -> None:
    first, second = (compare(graph, epsilon=6.0, seed=5, **QUICK) for _ in range(2))
    assert first.seeded
    assert [row.test for row in first.entries] == [row.test for row in second.entries]
    assert {row.guarantee for row in first.entries} == {"none"}
    assert first.release_all == (math.inf, 1.0)
    names = "DP-Billboard, DP-GNN (trees) and DP-MLP"
    assert f"{names} are reproducible, not private: nothing is guaranteed" in first.cost
    assert {row.predictions for row in first.entries} == {"not covered"}
    assert "differentially private" not in first.cost


def test_a_claim_is_no_guarantee() -> None:
    rows = tuple(row(n, guarantee="claimed by the paper") if n == "DP-GNN (trees)" else row(n) for n in NAMES)
    compared = literal(entries=rows)
    assert "no proven cost (the guarantee of DP-GNN (trees): claimed by the paper)" in compared.cost
    assert compared.release_all == (math.inf, 1.0)


def test_json_and_back(found: Comparison) -> None:
    about = json.loads(found.to_json())
    assert about["data"] == "three classes"
    assert [entry["epsilon"] for entry in about["rows"] if not entry["private"]] == ["inf", "inf"]
    assert (about["release_all"]["epsilon"], about["release_all"]["delta"]) == found.release_all
    assert (about["release_all"]["models"], about["cost"]) == (3, found.cost)
    again = Comparison.from_json(found.to_json())
    assert again == found
    assert not again.runs


@pytest.mark.parametrize(
    "change",
    [
        {"rows": []},
        {"rows": [{"name": "GNN"}]},
        {"rows": 3},
        {"release_all": {"epsilon": 9.0, "delta": 3e-5}},
        {"data": None, "rows": None},
    ],
)
def test_a_damaged_file_is_refused(change: dict[str, Any]) -> None:
    about = json.loads(literal().to_json())
    with pytest.raises(RunError, match="comparison is damaged"):
        Comparison.from_json(json.dumps(about | change))
    with pytest.raises(RunError, match="comparison is damaged"):
        Comparison.from_json("no json")


def test_a_comparison_of_an_older_version_is_refused() -> None:
    about = json.loads(literal().to_json()) | {"comparison": 1}
    with pytest.raises(RunError, match="has format 1, and this version reads format 2; compare again"):
        Comparison.from_json(json.dumps(about))


def test_folders_are_kept_where_asked(graph: Graph, tmp_path: Path) -> None:
    kept = compare(graph, epsilon=6.0, out=tmp_path / "five", **QUICK)
    names = sorted(path.name for path in (tmp_path / "five").iterdir())
    assert names == ["dp-billboard", "dp-gnn", "dp-mlp", "gnn", "mlp", "settings.json"]
    loaded = hg.Run.load(tmp_path / "five" / "dp-mlp", device="cpu")
    assert loaded.result["test_accuracy"] == kept.entries[4].test


def test_every_run_is_watched(graph: Graph) -> None:
    steps: list[int] = []
    begun: list[tuple[str, str, bool]] = []
    compare(
        graph,
        epsilon=6.0,
        observer=lambda done, total, epsilon, accuracy: steps.append(done),
        on_start=lambda folder: begun.append(
            (folder.plan.method, folder.config.model, folder.plan.is_private)
        ),
        **QUICK | {"steps": 2},
    )
    assert steps == [1, 2] * 5
    private = [("billboard", "mlp", True), ("trees", "gcn", True), ("rows", "mlp", True)]
    assert begun == [*private, ("trees", "gcn", False), ("rows", "mlp", False)]


def interrupted(graph: Graph, out: Path, after: int) -> None:
    """A comparison that is stopped once so many steps have been seen, of all runs together."""
    seen = 0

    def stop(*progress: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == after:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_CHARGED_AHEAD_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            compare(graph, epsilon=6.0, out=out, observer=stop, **QUICK)


@pytest.mark.parametrize("after", [2, 6, 19])
def test_the_same_call_goes_on_after_an_interruption(graph: Graph, tmp_path: Path, after: int) -> None:
    out = tmp_path / "five"
    interrupted(graph, out, after)
    done = {run.name: (run / "ledger.jsonl").read_bytes() for run in out.iterdir() if run.is_dir()}
    assert len(done) == (after + 3) // 4
    steps: list[int] = []
    found = compare(graph, epsilon=6.0, out=out, observer=lambda step, *others: steps.append(step), **QUICK)
    assert [row.name for row in found.entries] == list(NAMES)
    # No step is taken twice.
    assert len(steps) == 5 * QUICK["steps"] - after
    for row, name in zip(found.entries, NAMES, strict=True):
        run = hg.Run.load(out / FOLDERS[name], device="cpu")
        assert run.result["test_accuracy"] == row.test
        ledger = (out / FOLDERS[name] / "ledger.jsonl").read_bytes()
        assert ledger.startswith(done.get(FOLDERS[name], b""))
    assert all(row.epsilon <= 6.0 for row in found.entries if row.private)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 5.0}, r"its comparison has epsilon=6.0, and epsilon=5.0 is asked for"),
        ({"hidden": 5}, "its comparison has hidden=4, and hidden=5 is"),
        ({"seed": 1}, "its comparison has seed=None, and seed=1 is"),
    ],
)
def test_other_settings_do_not_go_on(
    graph: Graph, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    interrupted(graph, tmp_path / "five", 2)
    with pytest.raises(RunError, match=message):
        compare(graph, out=tmp_path / "five", **{"epsilon": 6.0, **QUICK, **change})


def test_what_trees_cannot_read_is_refused_with_what_can_be_done(tmp_path: Path) -> None:
    uses = Relation.to_places("devices", np.array([0, 1]), np.array([1, 1]), num_nodes=3, num_places=2)
    calls = Relation.between_people("calls", np.array([[0, 1], [1, 2]]), num_nodes=3)
    base = {"edge_index": None, "x": np.eye(3), "y": [0, 1, 1], "train_idx": [0, 1], "num_classes": 2}
    placed = Graph.from_arrays(relations=[calls, uses], **base)
    owned = Graph.from_arrays(relations=[calls], persons=[0, 1, 0], **base)
    for name, graph in {"places": placed, "person": owned}.items():
        with pytest.raises(PlanError, match=f"{name}: two of the five .* leave it out, or .* --model mlp"):
            compare(graph, epsilon=1.0, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_refused(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id\n")
    with pytest.raises(RunError, match="it holds other files; choose a new folder, or an empty one"):
        compare(graph, epsilon=6.0, out=tmp_path, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["nodes.csv"]


def test_a_comparison_that_cannot_be_charged_leaves_nothing_behind(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = DataBudget.create(tmp_path / "b.ledger", delta=1e-6)
    before = sorted(tmp_path.iterdir())

    def refuse(*_: Any) -> None:
        raise WriteError("budget: cannot be written")

    monkeypatch.setattr("hushgraph.privacy.budget._append", refuse)
    with pytest.raises(WriteError, match="budget: cannot be written"):
        compare(graph, epsilon=6.0, budget=budget, out=tmp_path / "five", **QUICK)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("content", ["", "[]", "no json", "[" * 100_000])
def test_damaged_settings_are_refused(graph: Graph, tmp_path: Path, content: str) -> None:
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(RunError, match=r"settings\.json: cannot be read .*; restore it or"):
        compare(graph, epsilon=6.0, out=tmp_path, **QUICK)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "mlp"}, "model='mlp': expected one of gcn, gin, gat"),
        ({"private": False}, "private: compare sets it for each of its runs; leave it out"),
        ({"paper_noise_multiplier": 1.0}, "paper_noise_multiplier: compare sets it"),
        ({"method": "trees"}, "method: compare sets it"),
        ({"setting": "inductive"}, "setting: compare sets it"),
        ({"stepz": 3}, "stepz: compare has no such argument"),
    ],
)
def test_what_it_refuses(graph: Graph, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(graph, epsilon=4.0, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": -1.0}, "epsilon=-1"),
        # Each of these is refused by one of the five alone.
        ({"max_readers": -1}, "max_readers=-1"),
        ({"clipping": "percentile"}, "for method='trees'"),
    ],
)
def test_what_one_run_refuses_is_refused_before_anything_is_trained(
    graph: Graph, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        compare(graph, out=tmp_path / "five", **{"epsilon": 6.0, **QUICK, **arguments})
    assert not (tmp_path / "five").exists()


def test_evaluating_needs_the_training_data(found: Comparison, graph: Graph) -> None:
    other = hg.datasets.synthetic(num_nodes=300, num_classes=3, num_features=12, seed=3)
    with pytest.raises(RunError, match="give the data it began with"):
        found.runs["GNN"].evaluate(other)
    assert found.runs["GNN"].evaluate(replace(graph, test_idx=graph.test_idx[:0])) is None
