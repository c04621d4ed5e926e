"""Counterexamples are searched for on small graphs: records of every kind, alone, together, and with persons.

    python benchmarks/record_search.py --out benchmarks/records/record_search.jsonl
    python benchmarks/record_search.py --table benchmarks/records/record_search.jsonl

`search_rows` empties rows, or persons with several nodes, and counts in integers: how far both boards move,
whose reading changes given the same board, and how many training examples differ. `search_figures` tries
every record, edge, pair and label of smaller graphs beside what the charge of a board claims for that change.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hushgraph.billboard.ballots import GRID, Ballots, label_ballots, with_predictions
from hushgraph.billboard.board import Board, cast
from hushgraph.billboard.lists import hash_names, list_blocks
from hushgraph.billboard.reading import read
from hushgraph.graph.graph import Graph
from hushgraph.graph.records import Relation
from hushgraph.privacy.changes import Change, Kind
from hushgraph.privacy.charges import BoardCharge
from hushgraph.runs.versions import versions
from hushgraph.tasks.classes import Classes

GRAPHS, EVERY_CHANGE = 2_000, 100
TASK = Classes(num_classes=3)
# Products are cut towards zero, by less than a unit each: two ballots may be further apart by so much.
SLACK = 1e-6
# Weights of any size, and sizes between which one record has all of a row or nothing.
_SIZES = (1e-300, 1e-9, 0.3, 1.0, 1.0, 2.0, 1e9, 1e300)
_TINY, _HUGE = 1e-9, 1e9


def list_modes() -> list[str]:
    """Every combination of weights, relations and places, listed or hashed; with persons and without."""
    parts = itertools.product(("", "weights"), ("", "relations"), ("", "places", "hashed"), ("", "persons"))
    return ["+".join(filter(None, each)) for each in parts if any(each[:3])]


# Last comes that of plain records, which no coefficients divide.
MODES = [*list_modes(), "persons"]


@dataclass(frozen=True, eq=False)
class Table:
    """The records of one relation: with which weight a row names a place, 0 for no record."""

    name: str
    shares: np.ndarray
    is_weighted: bool
    kind: str


@dataclass(frozen=True, eq=False)
class Small:
    """A small graph that can be drawn again with other records or labels.

    Attributes:
        tables: the relations.
        persons: whose every node is; None where every node is a person.
        splits: 0 training, 1 validation, 2 test, 3 none.
        y: labels, -1 for none.
        owner: whose row holds a record.
        is_plain: whether the records of its only table are the reads of the graph.
    """

    tables: tuple[Table, ...]
    persons: np.ndarray | None
    splits: np.ndarray
    y: np.ndarray
    owner: str
    is_plain: bool

    @cached_property
    def people(self) -> Graph:
        """The same nodes without records."""
        return Graph.from_arrays(
            edge_index=np.empty((2, 0), np.int64),
            x=np.eye(len(self.y)),
            y=self.y,
            **{f"{s}_idx": np.flatnonzero(self.splits == i) for i, s in enumerate(("train", "val", "test"))},
            task=TASK,
            persons=self.persons,
        )

    @cached_property
    def whose(self) -> np.ndarray:
        """The first node of the person of every node."""
        named = self.people.persons
        return np.arange(len(self.y)) if named is None else named

    @cached_property
    def kinds(self) -> list[Kind]:
        """The kind of the person of every node."""
        graph, kinds = self.people, []
        for node in range(len(self.y)):
            mine = np.flatnonzero(self.whose == self.whose[node])
            is_trained, is_evaluated = (
                np.isin(mine, nodes).any()
                for nodes in (graph.train_idx, np.concatenate([graph.val_idx, graph.test_idx]))
            )
            kinds.append("training" if is_trained else "evaluated" if is_evaluated else "other")
        return kinds

    def relate(self, shares: Sequence[np.ndarray] | None = None) -> tuple[Relation, ...]:
        """The relations, with these weights instead of its own; records within a person are still there."""
        made = []
        for number, table in enumerate(self.tables):
            matrix = table.shares if shares is None else shares[number]
            owners, named = np.nonzero(matrix)
            weights = matrix[owners, named] if table.is_weighted else None
            if table.kind == "nodes":
                ends = np.stack([owners, named] if self.owner == "sender" else [named, owners])
                made.append(Relation.between_people(table.name, ends, num_nodes=len(self.y), weights=weights))
                continue
            made.append(
                Relation.to_places(
                    table.name,
                    owners,
                    named,
                    num_nodes=len(self.y),
                    num_places=matrix.shape[1],
                    weights=weights,
                    is_hashed=table.kind == "hashed",
                )
            )
        return tuple(made)

    def graph(self, shares: Sequence[np.ndarray] | None = None, y: np.ndarray | None = None) -> Graph:
        """The graph with these records and labels."""
        relations, labels = self.relate(shares), self.y if y is None else y
        if self.persons is not None:
            relations = tuple(each.between_persons(self.whose) for each in relations)
        if self.is_plain:
            (reads,) = relations
            return replace(self.people, indptr=reads.indptr, indices=reads.indices, y=labels)
        return replace(self.people, relations=relations, y=labels)

    def ballots(self, graph: Graph, outputs: torch.Tensor | None = None) -> Ballots:
        """What is cast: labels, or on a board that everybody casts onto also what outputs say."""
        labels = label_ballots(graph, self.owner, task=TASK)  # type: ignore[arg-type]
        return labels if outputs is None else with_predictions(labels, outputs, TASK)

    def charge(self, *, by_everybody: bool = False) -> BoardCharge:
        """What a board of it is charged as."""
        return BoardCharge(
            name="board-1",
            noise_std=1.0,
            is_weighted=any(table.is_weighted for table in self.tables),
            by_person=self.persons is not None,
            label_move=math.sqrt(TASK.label_change),
            by_everybody=by_everybody,
        )


def draw(mode: str, number: int, *, most_nodes: int = 9) -> Small:
    """A small graph of this mode; the same for the same number."""
    rng = np.random.default_rng([zlib.crc32(mode.encode()), number])
    parts = mode.split("+")
    nodes = int(rng.integers(2, most_nodes + 1))
    is_weighted = "weights" in parts
    # Few places and few labels, so that nodes of one person often cast the same.
    density = rng.choice([0.15, 0.4, 0.8])
    tables = []
    of_people = int(rng.integers(2, 4)) if "relations" in parts else 1

    def make(name: str, width: int, kind: str) -> Table:
        shares = (rng.random((nodes, width)) < density).astype(np.float64)
        weighted = is_weighted and (of_people == 1 or rng.random() < 0.7)
        return Table(name, shares * rng.choice(_SIZES, shares.shape) if weighted else shares, weighted, kind)

    for each in range(of_people):
        table = make(f"r{each}", nodes, "nodes")
        shares = np.maximum(table.shares, table.shares.T) if rng.random() < 0.5 else table.shares
        tables.append(replace(table, shares=shares * (1 - np.eye(nodes))))
    if "places" in parts:
        tables.append(make("places", int(rng.integers(1, 4)), "places"))
    if "hashed" in parts:
        # Six names in a few buckets: those of a bucket are one place, and their weights are summed.
        buckets = int(rng.integers(1, 4))
        named = make("places", 6, "hashed")
        joined = np.zeros((nodes, buckets))
        at = hash_names(np.array([f"name{k}" for k in range(6)]), buckets)
        np.add.at(joined.T, at, named.shares.T)
        joined = np.where(np.isfinite(joined), joined, 0.0)
        tables.append(replace(named, shares=joined if named.is_weighted else np.minimum(joined, 1.0)))
    splits = rng.choice(4, nodes, p=[0.6, 0.15, 0.1, 0.15])
    splits[0] = 0
    labels = rng.integers(-1, 3, nodes)
    return Small(
        tables=tuple(tables),
        persons=rng.integers(-1, max(1, int(nodes * rng.choice([0.2, 0.5]))), nodes)
        if "persons" in parts
        else None,
        splits=splits,
        y=np.minimum(labels, 0) if rng.random() < 0.4 else labels,
        owner=str(rng.choice(["sender", "reader"])),
        is_plain=mode == "persons",
    )


def square(moved: np.ndarray) -> int:
    """The squared Frobenius norm, in Python's integers."""
    return sum(int(value) ** 2 for value in moved.flat)


@dataclass(frozen=True, kw_only=True)
class Emptied:
    """What emptying rows did at most.

    Attributes:
        moved: the largest squared move of a board of labels and of one that everybody casts onto, as a part
            of GRID^2.
        moved_by_several: the same where several nodes of the person cast; 0 without persons.
        others_changed: readings of others that changed, given the board.
        examples_changed: the most training examples of one graph that changed.
        uncast_moved: how often a board moved though no node of the emptied person casts.
    """

    moved: tuple[float, float]
    moved_by_several: float
    others_changed: int
    examples_changed: int
    uncast_moved: int


def search_rows(mode: str, count: int = GRAPHS) -> Emptied:
    """Empty a row, or a person, of every graph."""
    moved, several, others_changed, examples, uncast = [0, 0], 0, 0, 0, 0
    for number in range(count):
        small = draw(mode, number)
        rng = np.random.default_rng(number)
        relations = small.relate()
        graph = Graph.from_arrays(
            edge_index=relations[0].list_pairs()[::-1] if small.is_plain else None,
            relations=() if small.is_plain else relations,
            x=np.eye(len(small.y)),
            y=small.y,
            train_idx=small.people.train_idx,
            task=TASK,
            persons=small.persons,
        )
        v = int(rng.integers(graph.num_nodes))
        emptied = graph.with_row_emptied(v, small.owner)  # type: ignore[arg-type]
        mine = small.whose == small.whose[v]
        outputs = torch.from_numpy(rng.normal(size=(graph.num_nodes, 3)).astype(np.float32) * 5)
        for place, said in enumerate((None, outputs)):
            ballots, after = (small.ballots(each, said) for each in (graph, emptied))
            tally = cast(graph, ballots)
            move = square(tally - cast(emptied, after))
            casts = int((ballots.is_cast & (ballots.list_sizes > 0))[mine].sum())
            moved[place] = max(moved[place], move)
            several = max(several, move if casts > 1 else 0)
            uncast += move > 0 and not casts
            noisy = (tally / GRID + rng.normal(size=tally.shape)).astype(np.float32)
            board = Board(values=noisy, noise_std=1.0, blocks=list_blocks(graph))
            seen, then = (
                read(board, each, small.owner, own=own)  # type: ignore[arg-type]
                for each, own in ((graph, ballots), (emptied, after))
            )
            differs = (seen != then).any(axis=1) | (graph.y != emptied.y)
            others_changed += int((differs & ~mine).sum())
            trained = small.whose[graph.train_idx][differs[graph.train_idx]]
            examples = max(examples, len(np.unique(trained)))
    return Emptied(
        moved=(moved[0] / GRID**2, moved[1] / GRID**2),
        moved_by_several=several / GRID**2,
        others_changed=others_changed,
        examples_changed=examples,
        uncast_moved=uncast,
    )


def list_changes(small: Small) -> Iterator[tuple[str, list[np.ndarray], np.ndarray, tuple[int, ...]]]:
    """Every change of a graph: what it is, the records and labels then, and the persons that it touches.

    What is there goes, and what is not there comes; with weights it becomes tiny and huge as well.
    """
    before, whose, count = [table.shares for table in small.tables], small.whose, len(small.y)
    for number, table in enumerate(small.tables):
        for u, w in np.ndindex(*table.shares.shape):
            is_own = table.kind == "nodes" and whose[u] == whose[w]
            if is_own:
                continue
            cells = [("record", [(u, w)], (u,))]
            if table.kind == "nodes" and u < w:
                cells.append(("edge", [(u, w), (w, u)], (u, w)))
            for what, at, touched in cells:
                values = [0.0 if table.shares[u, w] else 1.0]
                for value in values + ([_TINY, _HUGE] if table.is_weighted else []):
                    shares = [each.copy() for each in before]
                    for cell in at:
                        shares[number][cell] = value
                    yield what, shares, small.y, touched
    for p, q in itertools.permutations(np.unique(whose).tolist(), 2):
        one, other = np.flatnonzero(whose == p), np.flatnonzero(whose == q)
        for what, touched in (("one-way pair", (p,)), ("pair", (p, q))):
            if what == "pair" and p > q:
                continue
            shares = [each.copy() for each in before]
            for table, matrix in zip(small.tables, shares, strict=True):
                if table.kind == "nodes":
                    matrix[np.ix_(one, other)] = 0.0
                    if what == "pair":
                        matrix[np.ix_(other, one)] = 0.0
            yield what, shares, small.y, touched
    for v, label in itertools.product(range(count), range(3)):
        if small.y[v] >= 0:
            y = small.y.copy()
            y[v] = label
            yield "label", before, y, (v,)


def search_figures(
    mode: str, count: int = EVERY_CHANGE, *, most_nodes: int = 5
) -> dict[str, dict[str, float]]:
    """For every kind of change the largest squared move, its claim, and the largest move beyond its claim.

    On the board that everybody casts onto, predictions for the nodes that a change touches become any other.
    """
    found: dict[str, dict[str, float]] = defaultdict(lambda: {"moved": 0.0, "claimed": 0.0, "excess": -9.0})

    def note(what: str, move: int, claimed: float) -> None:
        entry, moved = found[what], move / GRID**2
        entry["moved"] = max(entry["moved"], moved)
        entry["claimed"] = max(entry["claimed"], claimed)
        entry["excess"] = max(entry["excess"], moved - claimed)

    for number in range(count):
        small = draw(mode, number, most_nodes=most_nodes)
        rng = np.random.default_rng(number)
        graph = small.graph()
        outputs = torch.from_numpy(rng.choice([-30.0, 30.0], (len(small.y), 3))).float()
        first, second = (cast(graph, small.ballots(graph, said)) for said in (None, outputs))
        for turn, (what, shares, y, touched) in enumerate(list_changes(small)):
            kinds = tuple(small.kinds[v] for v in touched)
            change = Change(what.removeprefix("one-way "), kinds)  # type: ignore[arg-type]
            other = small.graph(shares, y)
            move = square(cast(other, small.ballots(other)) - first)
            note(what, move, small.charge().move(change) ** 2)
            # One in five there, as each takes longer.
            if what != "label" and turn % 5 == 0:
                said = outputs.clone()
                nodes = np.flatnonzero(np.isin(small.whose, small.whose[list(touched)]))
                said[nodes] = torch.from_numpy(rng.choice([-30.0, 30.0], (len(nodes), 3))).float()
                move = square(cast(other, small.ballots(other, said)) - second)
                note(f"{what}, second board", move, small.charge(by_everybody=True).move(change) ** 2)
        for size in (2, 3):
            chosen = rng.permutation(np.unique(small.whose))[:size]
            shares = [table.shares.copy() for table in small.tables]
            nodes, y = np.isin(small.whose, chosen), small.y.copy()
            for matrix in shares:
                matrix[nodes] = 0.0
            y[nodes] = -1
            other = small.graph(shares, y)
            change = Change("rows", tuple(small.kinds[v] for v in chosen))
            move = square(cast(other, small.ballots(other)) - first)
            note(f"{size} rows", move, small.charge().move(change) ** 2)
    return dict(found)


def measure(mode: str) -> dict[str, Any]:
    """One record."""
    rows = search_rows(mode)
    return {
        "mode": mode,
        "graphs": GRAPHS,
        **vars(rows),
        "graphs_of_every_change": EVERY_CHANGE,
        "figures": search_figures(mode),
        "versions": dict(versions()),
    }


def write_table(records: Sequence[dict[str, Any]]) -> str:
    """What docs/persons.md shows: of every mode with persons the largest moves, beside the claims."""
    whats = ("edge", "record", "pair", "one-way pair", "label", "2 rows")
    heads = ("records of persons", "person emptied, first board", "second board", *whats)
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for record in records:
        if not record["mode"].endswith("persons"):
            continue
        cells = [record["mode"].removesuffix("persons").strip("+").replace("+", ", ") or "plain"]
        cells += [f"{part:.4f} of 1" for part in record["moved"]]
        for what in whats:
            figure = record["figures"][what]
            cells.append(f"{figure['moved']:.2f} of {figure['claimed']:.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--mode", choices=MODES, nargs="*", default=MODES)
    parser.add_argument("--table", type=Path, help="print the table of a record, and run nothing")
    arguments = parser.parse_args()
    if arguments.table is not None:
        print(write_table([json.loads(line) for line in arguments.table.read_text().splitlines()]))
        return
    torch.set_num_threads(1)
    with arguments.out.open("w") as file:
        for mode in arguments.mode:
            file.write(json.dumps(measure(mode)) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
