"""Promise: runs with weights, relations and places let out about one row what is claimed, and nothing more.

The canary has nearly all of its weight on one place, records in every relation, and names that all share one
hashed place.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hushgraph as hg
from benchmark_scripts import ROOT, script
from hushgraph.accounting.accountants import gaussian_epsilon, gaussian_shift
from hushgraph.audit.attack import Difference, Effort, audit_plan, stage_boards, stage_trees
from hushgraph.audit.faults import get_fault
from hushgraph.audit.runs import Plant, plant_nothing
from hushgraph.audit.scene import choose_blocks, plant_rows
from hushgraph.audit.source import settings_of_run
from hushgraph.audit.words import list_entries
from hushgraph.billboard.ballots import Ballots
from hushgraph.billboard.board import Board
from hushgraph.billboard.lists import Block, hash_names
from hushgraph.datasets import load_graph
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.graph.records import Relation
from hushgraph.privacy.changes import TRAINING_ROW, Change, row_emptied
from hushgraph.privacy.charges import epsilon
from hushgraph.privacy.choices import Unit
from hushgraph.privacy.plans import BillboardPlan, RowPlan, TreePlan
from hushgraph.tasks.task import Task
from hushgraph.training.parts import Parts
from row_lists import list_rows

pytestmark = pytest.mark.usefixtures("small_checks")

DELTA, DEGREE = 1e-5, 4
# A small shift takes more trials to see.
COPIES = {1.0: 8_000, 4.0: 2_000}
RECORDS = {
    "weights": (Block(name="pays", size=0, is_weighted=True),),
    "relations": (Block(name="calls", size=0), Block(name="pays", size=0)),
    "places": (Block(name="uses", size=0, kind="places"),),
    "hashed": (Block(name="uses", size=0, kind="hashed"),),
    "together": (
        Block(name="pays", size=0, is_weighted=True),
        Block(name="calls", size=0),
        Block(name="shops", size=0, kind="places", is_weighted=True),
        Block(name="devices", size=0, kind="hashed"),
    ),
}
CHANGES = {
    "emptied": TRAINING_ROW,
    "evaluated": next(iter(row_emptied("evaluated"))),
    "flipped": Change("label", ("training",)),
}


def make_plan(
    blocks: tuple[Block, ...], claim: float, *, boards: int = 1, unit: Unit = "node"
) -> BillboardPlan:
    plan = BillboardPlan(
        num_train_nodes=1_000,
        batch_size=1_000,
        steps=2,
        num_classes=3,
        num_boards=boards,
        delta=DELTA,
        is_weighted=any(block.is_weighted for block in blocks),
        num_relations=len(blocks),
        protects=unit,
    )
    return plan.calibrated(epsilon=claim).with_evaluation(2)


@dataclass(frozen=True, kw_only=True)
class Shift:
    """How far apart the worlds with a row and without are: as claimed, by exact sums, and as a run shows."""

    claimed: float
    exact: float
    seen: float
    error: float

    @property
    def is_as_claimed(self) -> bool:
        """No further than claimed, and the canary is the worst: at most a little less."""
        within = abs(self.seen - self.claimed) < 3 * self.error
        return within and 0.999 * self.claimed < self.exact <= self.claimed * (1 + 1e-6)


def attack(
    name: str,
    claim: float,
    *,
    difference: Difference = "emptied",
    boards: int = 1,
    plant: Plant = plant_nothing,
    unit: Unit = "node",
) -> Shift:
    plan, copies = make_plan(RECORDS[name], claim, boards=boards, unit=unit), COPIES[claim]
    stage = stage_boards(plan, plant, copies, degree=DEGREE, difference=difference, blocks=RECORDS[name])
    assert stage.scene.has_persons == (unit == "person")
    shown = stage.run(np.random.default_rng(3))
    assert plant is not plant_nothing or shown.changed == 0
    there, empty = shown.pair(0)
    # All is Gaussian: log-likelihood ratios of both worlds are mu^2 apart, with a deviation of mu.
    spread = math.sqrt((there.var() + empty.var()) / 2)
    return Shift(
        claimed=gaussian_shift(epsilon(stage.plan.charges, [CHANGES[difference]], delta=DELTA), DELTA),
        exact=shown.shift,
        seen=(there.mean() - empty.mean()) / spread,
        error=math.sqrt(4 / copies),
    )


@pytest.mark.parametrize("claim", [1.0, 4.0])
@pytest.mark.parametrize("name", RECORDS)
def test_a_row_shows_what_is_claimed(name: str, claim: float) -> None:
    shift = attack(name, claim)
    assert gaussian_epsilon(shift.claimed, DELTA) == pytest.approx(claim, rel=1e-3)
    assert shift.is_as_claimed, shift


def test_a_flipped_label_shows_what_is_claimed() -> None:
    shift = attack("together", 4.0, difference="flipped")
    assert shift.is_as_claimed, shift


def test_an_evaluated_row_shows_what_is_claimed() -> None:
    shift = attack("together", 4.0, difference="evaluated")
    # The exact one leaves out tables of figures.
    assert abs(shift.seen - shift.claimed) < 3 * shift.error, shift


@pytest.mark.parametrize("claim", [1.0, 4.0])
def test_two_boards_show_what_is_claimed(claim: float) -> None:
    shift = attack("together", claim, boards=2)
    assert shift.is_as_claimed, shift


@pytest.mark.parametrize("name", RECORDS)
def test_a_person_with_three_nodes_shows_what_is_claimed(name: str) -> None:
    """On two boards; `benchmarks/audit_records.py` has both claims, with more trials."""
    shift = attack(name, 4.0, boards=2, unit="person")
    assert shift.is_as_claimed, shift


def cast_one_by_one(real: Parts) -> Parts:
    """Every node of a person casts a whole ballot."""

    def label_ballots(graph: Graph, edge_owner: EdgeOwner, /, *, task: Task) -> Ballots:
        return real.label_ballots(replace(graph, persons=None), edge_owner, task=task)

    return replace(real, label_ballots=label_ballots)


def lengthen_lists(real: Parts, factor: float) -> Parts:
    """Coefficients are so many times too large."""

    def label_ballots(graph: Graph, edge_owner: EdgeOwner, /, *, task: Task) -> Ballots:
        ballots = real.label_ballots(graph, edge_owner, task=task)
        assert ballots.records is not None
        longer = [
            replace(
                each,
                **{
                    name: (factor * kept).astype(np.int64)
                    for name, kept in (("shares", each.shares), ("coefficients", each.coefficients))
                    if kept is not None
                },
            )
            for each in ballots.records.relations
        ]
        return replace(ballots, records=replace(ballots.records, relations=tuple(longer)))

    return replace(real, label_ballots=label_ballots)


def forget_to_share(real: Parts) -> Parts:
    """Each of four relations has a whole ballot: 1 / |w| instead of 1 / (|w| sqrt(4))."""
    return lengthen_lists(real, math.sqrt(len(RECORDS["together"])))


def divide_before_hashing(real: Parts) -> Parts:
    """Four names get 1 / 2 each, and the place that they share gets 4 / 2."""
    return lengthen_lists(real, DEGREE / math.sqrt(DEGREE))


def halve_all_noise(real: Parts) -> Parts:
    """Boards and steps have half of the noise that was paid for."""

    def cast_and_release(graph: Graph, ballots: Ballots, /, *, noise_std: float, **given: Any) -> Board:
        return real.cast_and_release(graph, ballots, noise_std=noise_std / 2, **given)

    return get_fault("half-noise").plant(replace(real, cast_and_release=cast_and_release))


@pytest.mark.parametrize("claim", [1.0, 4.0])
@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("together", forget_to_share),
        ("hashed", divide_before_hashing),
        ("weights", halve_all_noise),
    ],
    ids=["not shared", "divided before hashing", "half noise"],
)
def test_faults_show_more_than_is_claimed(name: str, plant: Plant, claim: float) -> None:
    shift = attack(name, claim, plant=plant)
    assert shift.seen > shift.claimed + 3 * shift.error, shift


@pytest.mark.parametrize("plant", [cast_one_by_one, forget_to_share], ids=["one by one", "not shared"])
def test_faults_of_persons_show_more_than_is_claimed(plant: Plant) -> None:
    shift = attack("together", 4.0, plant=plant, unit="person")
    assert shift.seen > shift.claimed + 3 * shift.error, shift


RECORD = ROOT / "benchmarks" / "records" / "audit_records.jsonl"


def test_the_record_of_attacks_on_persons_reaches_the_claims_and_no_more() -> None:
    records = [json.loads(line) for line in RECORD.read_text().splitlines()]
    script("audit_tasks")
    made = script("audit_records")
    names = [(name, claim, way) for name in made.RECORDS for claim in made.CLAIMS for way in made.SHOWN]
    names += [(name, claim, "emptied") for name in made.STEPS for claim in made.CLAIMS]
    by_cell = defaultdict(list)
    for record in records:
        by_cell[record["records"], record["claim"], record["difference"]].append(record)
        assert (record["others_changed"], record["unit"]) == (0, "person")
    assert list(by_cell) == names
    for found in by_cell.values():
        # Intervals have two standard errors on each side; of 28 cells at once, three are allowed.
        claimed, shown = found[0]["claimed"], np.mean([r["shown"] for r in found])
        half = np.mean([np.diff(r["interval"]) / 2 for r in found]) / math.sqrt(len(found))
        assert 0.8 * claimed < shown <= claimed + 1.5 * half, found
    assert made.write_table(records) in (ROOT / "docs" / "persons.md").read_text()


def test_an_audit_of_a_run_attacks_its_places_and_persons(tmp_path: Path) -> None:
    """What a plan does not know stands in the folder: which relations name places, and which have weights."""
    rng = np.random.default_rng(1)
    ends = rng.integers(0, 60, 80), rng.integers(0, 9, 80)
    relations = [
        Relation.between_people("pays", rng.integers(0, 60, (2, 90)), num_nodes=60, weights=rng.random(90)),
        Relation.to_places("devices", *ends, num_nodes=60, num_places=9, is_hashed=True),
    ]
    graph = Graph.from_arrays(
        edge_index=None,
        relations=relations,
        x=rng.normal(size=(60, 2)),
        y=rng.integers(0, 3, 60),
        train_idx=np.arange(40),
        val_idx=np.arange(40, 60),
        num_classes=3,
        persons=np.arange(60) // 2,
    )
    common: dict[str, Any] = {"epsilon": 4.0, "steps": 2, "hidden": 4, "device": "cpu"}
    hg.train(graph, out=tmp_path / "boards", **common)
    for path in (tmp_path / "boards", tmp_path / "boards" / "release"):
        found = settings_of_run(path)
        blocks = choose_blocks(found.plan, found.relations)
        assert [(block.kind, block.is_weighted) for block in blocks] == [("nodes", True), ("hashed", False)]
    audit = audit_plan(found.plan, trials=60, numbers=False, task=found.task, relations=found.relations)
    assert audit.shift == pytest.approx(audit.shift_at_most, rel=1e-3)
    assert (audit.exceeds, audit.others_changed, audit.plan.protects) == (False, 0, "person")
    assert "a person with several nodes" in dict(list_entries(audit))["canary"]


@pytest.mark.parametrize(("readers", "num_maps"), [(2, 2), (0, 0)], ids=["reads", "K = 0"])
def test_an_audit_of_trees_attacks_the_relations_of_the_run(
    tmp_path: Path, readers: int, num_maps: int
) -> None:
    rng = np.random.default_rng(1)
    pays, calls = (rng.integers(0, 60, (2, 90)) for _ in range(2))
    relations = [
        Relation.between_people("pays", pays, num_nodes=60, weights=rng.random(90)),
        Relation.between_people("calls", calls, num_nodes=60),
    ]
    common: dict[str, Any] = {"x": rng.normal(size=(60, 2)), "y": rng.integers(0, 3, 60), "num_classes": 3}
    graph = Graph.from_arrays(edge_index=None, relations=relations, train_idx=np.arange(40), **common)
    trees: dict[str, Any] = {"method": "trees", "max_readers": readers, "num_layers": 1, "steps": 2}
    hg.train(graph, epsilon=4.0, hidden=4, device="cpu", out=tmp_path / "run", **trees)
    found = settings_of_run(tmp_path / "run")
    blocks = choose_blocks(found.plan, found.relations)
    assert [block.is_weighted for block in blocks] == [True, False][:num_maps]
    effort = Effort(trials=20, rng=rng)
    stage = stage_trees(
        found.plan, plant_nothing, effort, model=found.model, canary="strongest", blocks=blocks
    )
    assert sum(".maps." in name for name in stage.phases[0]) == num_maps
    assert [each.info.is_weighted for each in stage.scene.graphs[0].relations] == [True, False][:num_maps]


def clip_one_by_one(real: Parts) -> Parts:
    """The gradient of every node of a person is clipped, and their sum is not."""

    def adapt(clipped_sum: Any) -> Any:
        def by_node(model: Any, batch: Any, clipping: Any) -> Any:
            return clipped_sum(model, batch.by_node or batch, clipping)

        return by_node

    return replace(real, adapt_sum=lambda clipped_sum: adapt(real.adapt_sum(clipped_sum)))


@pytest.mark.parametrize(("kind", "model"), [(RowPlan, "mlp"), (TreePlan, "gcn")], ids=["mlp", "K = 0"])
def test_steps_of_persons_are_attacked_with_persons(kind: Any, model: str) -> None:
    shape = {} if kind is RowPlan else {"num_layers": 1, "max_readers": 0}
    plan = kind(num_train_nodes=100, batch_size=100, steps=2, delta=DELTA, protects="person", **shape)
    plan = plan.calibrated(epsilon=4.0)
    audit = audit_plan(plan, model=model, trials=600, numbers=False, seed=1)
    assert audit.shift == pytest.approx(audit.shift_at_most, rel=1e-3)
    assert not audit.exceeds
    effort = Effort(trials=600, rng=np.random.default_rng(1))
    stage = stage_trees(plan, clip_one_by_one, effort, model=model, canary="strongest")
    assert stage.scene.has_persons
    assert stage.plan.num_train_nodes < (stage.scene.splits == "train").sum()
    # Three whole gradients instead of one.
    assert effort.spend(stage).shift > 2.9 * audit.shift


def test_an_audit_of_a_plan_attacks_its_records() -> None:
    """The command makes weights and relations where the plan has them."""
    blocks = tuple(replace(block, is_weighted=True) for block in RECORDS["relations"])
    plan = make_plan(blocks, 4.0)
    made = plant_rows(plan, copies=2, degree=DEGREE).blocks
    assert [(block.kind, block.is_weighted) for block in made] == [("nodes", True)] * 2
    audit = audit_plan(plan, trials=60, numbers=False)
    assert audit.shift == pytest.approx(audit.shift_at_most, rel=1e-3)
    assert not audit.exceeds
    assert audit.others_changed == 0
    assert [check.name for check in audit.checks if check.failure] == []
    assert plant_rows(make_plan((Block(name="", size=0),), 4.0), copies=2, degree=DEGREE).blocks == ()


def test_names_that_share_a_bucket_are_read_as_the_attack_has_them() -> None:
    """The hash is public: an attacker finds four names for every bucket. From tables to the lists of rows."""
    copies = 20
    pool = np.array([f"device{number}" for number in range(100 * copies)])
    bucket = hash_names(pool, copies)
    scene = plant_rows(
        make_plan(RECORDS["hashed"], 4.0), copies=copies, degree=DEGREE, blocks=RECORDS["hashed"]
    )
    made = scene.graphs[0]
    canaries = scene.canaries.tolist()
    edges = [
        {"source": f"p{canary}", "target": name}
        for copy, canary in enumerate(canaries)
        for name in pool[bucket == copy][:DEGREE]
    ]
    nodes = pd.DataFrame({"id": [f"p{v}" for v in range(made.num_nodes)], "label": 0, "age": 1.0})
    columns = {"places": f"hash:{copies}"}
    read = load_graph((nodes, pd.DataFrame(edges)), columns=columns, num_classes=3, split="1/0/0")
    lists, wanted = (list_rows(graph, "sender") for graph in (read, made))
    for copy, canary in enumerate(canaries):
        mine, theirs = (slice(each.indptr[canary], each.indptr[canary + 1]) for each in (lists, wanted))
        # Before the places come those of people, whom nobody lists.
        assert (lists.places[mine] - lists.starts[-2]).tolist() == wanted.places[theirs].tolist() == [copy]
        assert lists.coefficients[mine].tolist() == wanted.coefficients[theirs].tolist()
