"""Boards and readings from tables by DuckDB, against the code that holds the graph in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import hushgraph as hg
from hushgraph.billboard.ballots import label_ballots
from hushgraph.billboard.board import cast, release
from hushgraph.billboard.reading import read_boards
from hushgraph.engines import duck, plan
from hushgraph.engines import records as records_module
from hushgraph.engines.duck import make_rows, parse_memory, resume_rows
from hushgraph.engines.plan import rows_folder, work_folder
from hushgraph.engines.records import Records
from hushgraph.errors import BudgetExceededError, GraphError, InputError, RunError
from hushgraph.graph.graph import EdgeOwner, Graph
from hushgraph.noise import normal
from hushgraph.privacy.ledger import Ledger
from hushgraph.privacy.plans import BillboardPlan
from hushgraph.runs.folder import RunFolder, split_id
from hushgraph.tasks.classes import Classes

NODES, CLASSES = 3_000, 4


@pytest.fixture(autouse=True)
def _several_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs have one range; cut these into three."""
    monkeypatch.setattr(records_module, "_LEAST_BITS", 10)


class Data:
    """Random tables with repeats, self-loops, a hub and unlabelled nodes, and the same graph in memory."""

    def __init__(
        self, folder: Path, *, text_ids: bool, shuffled: bool = False, symmetrize: bool = False
    ) -> None:
        rng = np.random.default_rng(3)
        edges = rng.integers(0, NODES, (2, 20_000))
        edges[0, :2_500] = 7
        edges[:, :300] = edges[:, 300:600]
        y = rng.integers(-1, CLASSES, NODES)
        split = rng.choice(["train", "val", "test"], NODES, p=[0.6, 0.2, 0.2])
        numbers = rng.permutation(NODES) * 3 if shuffled else np.arange(NODES)
        ids = np.array([f"person {number}" for number in numbers]) if text_ids else numbers
        x = rng.normal(size=(NODES, 2)).astype(np.float32)
        self.ids = ids
        nodes = {
            "id": ids,
            "a": x[:, 0].copy(),
            "b": x[:, 1].copy(),
            "label": np.ma.array(y, mask=y < 0),
            "split": split,
        }
        pairs = {"source": ids[edges[0]], "target": ids[edges[1]]}
        self.nodes, self.edges = folder / "nodes.parquet", folder / "edges.parquet"
        for path, table in ((self.nodes, nodes), (self.edges, pairs)):
            with duckdb.connect() as connection:
                connection.register("given", {name: np.ma.getdata(cells) for name, cells in table.items()})
                cells = "* REPLACE (nullif(label, -1) AS label)" if "label" in table else "*"
                connection.execute(f"COPY (SELECT {cells} FROM given) TO '{path}'")
        self.graph = Graph.from_arrays(
            edge_index=edges,
            x=x,
            y=y,
            train_idx=np.flatnonzero(split == "train"),
            val_idx=np.flatnonzero(split == "val"),
            test_idx=np.flatnonzero(split == "test"),
            num_classes=CLASSES,
            symmetrize=symmetrize,
        )

    def make(self, out: Path, **changes: Any) -> RunFolder:
        settings: dict[str, Any] = {
            "edge_owner": "sender",
            "num_classes": CLASSES,
            "epsilon": 4.0,
            "threads": 1,
        }
        return make_rows(self.nodes, self.edges, out, **(settings | changes))

    def resume(self, out: Path, **changes: Any) -> RunFolder:
        return resume_rows(out, self.nodes, self.edges, threads=1, **changes)


def fetch(files: Path, columns: str) -> dict[str, Any]:
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT {columns} FROM read_parquet('{files}/*.parquet')").fetchnumpy()


def board_of(out: Path) -> np.ndarray:
    part = fetch(out / "board", "*")
    return np.stack([part[f"class_{k}"] for k in range(CLASSES)], axis=1)


def tally_of(graph: Graph, owner: EdgeOwner) -> np.ndarray:
    return cast(graph, label_ballots(graph, owner, task=Classes(num_classes=CLASSES)))


@pytest.mark.parametrize(
    ("owner", "symmetrize", "text_ids", "shuffled"),
    [
        ("sender", True, False, False),
        ("sender", False, True, True),
        ("reader", False, False, True),
        ("reader", False, False, False),
    ],
)
def test_board_and_rows_are_those_of_the_graph_in_memory(
    tmp_path: Path, owner: EdgeOwner, symmetrize: bool, text_ids: bool, shuffled: bool
) -> None:
    data = Data(tmp_path, text_ids=text_ids, shuffled=shuffled, symmetrize=symmetrize)
    out = tmp_path / "run"
    folder = data.make(out, edge_owner=owner, symmetrize=symmetrize, epsilon=None, private=False)
    in_memory = release(tally_of(data.graph, owner), noise_std=0.0)
    assert np.array_equal(board_of(out), in_memory.values)
    assert fetch(out / "board", "id")["id"].tolist() == data.ids.tolist()

    rows = fetch(rows_folder(out), "*")
    assert list(rows) == ["id", "a", "b", *(f"reading_{k}" for k in range(CLASSES)), "label", "split"]
    config = folder.config
    expected = read_boards(
        [in_memory],
        data.graph,
        owner,
        own=[label_ballots(data.graph, owner, task=Classes(num_classes=CLASSES))],
        scale=config.reading_scale,
        radius=config.reading_radius,
    )
    readings = np.stack([rows[f"reading_{k}"] for k in range(CLASSES)], axis=1)
    assert np.array_equal(readings, expected)
    assert rows["id"].tolist() == data.ids.tolist()
    assert np.array_equal(rows["a"], data.graph.x[:, 0])
    assert np.array_equal(rows["label"], data.graph.y)
    assert folder.split_id == split_id(data.graph)
    assert not work_folder(out).exists()


def test_every_cell_gets_one_draw_in_the_order_of_places(tmp_path: Path) -> None:
    data, taken = Data(tmp_path, text_ids=False), 0

    def draws(count: int) -> np.ndarray:
        nonlocal taken
        taken += count
        # Row by row: the draws of one call after the other number the cells.
        return np.arange(taken - count, taken, dtype=np.int64) << 20

    folder = data.make(tmp_path / "run", draws=draws)
    assert taken == NODES * CLASSES
    assert isinstance(folder.plan, BillboardPlan)
    whole_draws = iter([np.arange(NODES * CLASSES, dtype=np.int64) << 20])
    expected = release(
        tally_of(data.graph, "sender"),
        noise_std=folder.plan.board_noise[0],
        draws=lambda count: next(whole_draws),
    )
    assert np.array_equal(board_of(tmp_path / "run"), expected.values)
    about = json.loads((tmp_path / "run" / "board" / "board.json").read_text())
    assert float.fromhex(about["noise_std"]) == expected.noise_std


class KilledError(BaseException):
    """Stands for a kill: nothing in the library handles it."""


def test_a_killed_run_goes_on_with_the_charge_that_is_there(tmp_path: Path) -> None:
    data, out = Data(tmp_path, text_ids=True), tmp_path / "run"
    calls = 0

    def killed_at_second(count: int) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KilledError
        return normal.draw(count)

    with pytest.raises(KilledError):
        data.make(out, draws=killed_at_second)
    ledger = Ledger.open(out / "ledger.jsonl", read_only=True)
    assert ledger.releases_charged == 1
    assert not (out / "board").exists()

    folder = data.resume(out)
    before = board_of(out)
    assert Ledger.open(out / "ledger.jsonl", plan=folder.plan, read_only=True).releases_charged == 1
    assert len(before) == NODES
    phases: list[str] = []
    assert data.resume(out, on_phase=phases.append).path == out
    assert phases == ["check tables"]
    assert np.array_equal(board_of(out), before)


def test_a_released_board_is_never_made_again(tmp_path: Path) -> None:
    """Killed after the release, before the rows: the board stays, and the rows are read from it."""
    data, out = Data(tmp_path, text_ids=False), tmp_path / "run"

    def killed_at_rows(phase: str) -> None:
        if phase == "write rows":
            raise KilledError

    with pytest.raises(KilledError):
        data.make(out, on_phase=killed_at_rows)
    board = board_of(out)
    data.resume(out)
    assert np.array_equal(board_of(out), board)
    assert len(fetch(rows_folder(out), "id")["id"]) == NODES
    assert Ledger.open(out / "ledger.jsonl", read_only=True).releases_charged == 1


def test_the_charge_is_written_before_the_tally_is_computed(tmp_path: Path) -> None:
    data, out = Data(tmp_path, text_ids=False), tmp_path / "run"

    def stop_at_board(phase: str) -> None:
        if phase == "make board":
            assert Ledger.open(out / "ledger.jsonl", read_only=True).releases_charged == 1
            raise KilledError

    with pytest.raises(KilledError):
        data.make(out, on_phase=stop_at_board)


def test_two_processes_do_not_make_one_board(tmp_path: Path) -> None:
    """While one of them makes it, the ledger is locked for the other."""
    data, out = Data(tmp_path, text_ids=False), tmp_path / "run"
    refused: list[str] = []

    def begin_another(phase: str) -> None:
        if phase == "make board":
            with pytest.raises(RunError) as error, Ledger.open(out / "ledger.jsonl"):
                pass
            refused.append(str(error.value))

    data.make(out, on_phase=begin_another)
    assert len(refused) == 1


def test_the_budget_of_the_data_is_charged_once_and_refuses(tmp_path: Path) -> None:
    from hushgraph.privacy.budget import DataBudget

    data = Data(tmp_path, text_ids=False)
    budget = tmp_path / "people.ledger"
    DataBudget.create(budget, epsilon=4.5, delta=1e-4)
    data.make(tmp_path / "run", budget=budget)
    data.resume(tmp_path / "run")
    assert len(DataBudget.open(budget).charges) == 1
    with pytest.raises(BudgetExceededError):
        data.make(tmp_path / "second", budget=budget)
    assert not (tmp_path / "second").exists()


def test_csv_and_class_names(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "who,age,school,split\nann,31,north,train\nbob,52,south,train\neve,40,,val\n"
    )
    (tmp_path / "edges.csv").write_text("from,to\nann,bob\nann,eve\nbob,eve\nann,bob\neve,eve\n")
    columns = {
        "id": "who",
        "label": "school",
        "classes": ["north", "south"],
        "source": "from",
        "target": "to",
    }
    out = tmp_path / "run"
    make_rows(
        tmp_path / "nodes.csv",
        tmp_path / "edges.csv",
        out,
        edge_owner="sender",
        private=False,
        columns=columns,
    )
    part = fetch(out / "board", "*")
    assert part["who"].tolist() == ["ann", "bob", "eve"]
    # ann lists bob and eve, and casts (e_0 - 1/2) / sqrt(1/2) / sqrt(2) = 1/2 for north; bob lists eve alone.
    north = np.array([0.0, 0.5, 0.5 - np.sqrt(0.5)])
    assert np.allclose(part["class_0"], north, atol=1e-6)
    assert np.allclose(part["class_1"], -north, atol=1e-6)
    assert fetch(rows_folder(out), "age, label, split")["label"].tolist() == [0, 1, -1]


def write_pair(folder: Path, nodes: str, edges: str) -> tuple[Path, Path]:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder / "nodes.csv", folder / "edges.csv"


GOOD_NODES = "id,age,label,split\na,1,0,train\nb,2,1,train\n"
GOOD_EDGES = "source,target\na,b\n"


@pytest.mark.parametrize(
    ("nodes", "edges", "changes", "message"),
    [
        (GOOD_NODES, "source,target\na,c\n", {}, "not in the node table"),
        (GOOD_NODES + "a,3,0,train\n", GOOD_EDGES, {}, "repeat an identifier"),
        (GOOD_NODES + ",3,0,train\n", GOOD_EDGES, {}, "empty cells"),
        (GOOD_NODES + "c,old,0,train\n", GOOD_EDGES, {}, "not finite numbers"),
        (GOOD_NODES + "c,3,5,train\n", GOOD_EDGES, {}, "no class"),
        (GOOD_NODES + "c,3,0,dev\n", GOOD_EDGES, {}, "other values than train"),
        (GOOD_NODES.replace("train", "val"), GOOD_EDGES, {}, "training split"),
        ("id,age,label\na,1,0\n", GOOD_EDGES, {}, "no column 'split'"),
        ("id,age,split\na,1,train\n", GOOD_EDGES, {}, "no column 'label'"),
        ("id,age,label,split\n", GOOD_EDGES, {}, "at least one"),
        (GOOD_NODES, GOOD_EDGES, {"num_classes": 1}, "num_classes=1"),
        (GOOD_NODES, GOOD_EDGES, {"memory": "lots"}, "memory='lots'"),
        (GOOD_NODES, GOOD_EDGES, {"memory": "1MB"}, "512MiB"),
        (GOOD_NODES, GOOD_EDGES, {"epsilon": None}, "give epsilon"),
        (GOOD_NODES, GOOD_EDGES, {"columns": {"hashed": {"age": 4}}}, "hashed"),
    ],
)
def test_what_cannot_be_used_is_refused_and_leaves_nothing(
    tmp_path: Path, nodes: str, edges: str, changes: dict[str, Any], message: str
) -> None:
    paths = write_pair(tmp_path, nodes, edges)
    settings: dict[str, Any] = {"edge_owner": "sender", "num_classes": 2, "epsilon": 4.0}
    with pytest.raises((GraphError, InputError), match=message):
        make_rows(*paths, tmp_path / "runs" / "run", **(settings | changes))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.csv", "nodes.csv"]


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    nodes, edges = write_pair(tmp_path, GOOD_NODES, GOOD_EDGES)
    settings: dict[str, Any] = {"edge_owner": "sender", "num_classes": 2, "epsilon": 4.0}
    with pytest.raises(GraphError, match="no such file"):
        make_rows(tmp_path / "none.parquet", edges, tmp_path / "run", **settings)
    (tmp_path / "edges.txt").write_text("x")
    with pytest.raises(GraphError, match="end in"):
        make_rows(nodes, tmp_path / "edges.txt", tmp_path / "run", **settings)
    (tmp_path / "edges.parquet").write_bytes(b"no parquet")
    with pytest.raises(GraphError, match="cannot be read"):
        make_rows(nodes, tmp_path / "edges.parquet", tmp_path / "run", **settings)
    with pytest.raises(RunError, match="cannot be created"):
        make_rows(nodes, edges, nodes / "run", **settings)


def test_memory_and_nodes_that_do_not_fit() -> None:
    assert parse_memory("8GiB") == 8 * 2**30
    assert parse_memory("1.5 GB") == 1_500_000_000
    assert parse_memory(2**30) == 2**30
    with pytest.raises(InputError, match="need at least"):
        duck._check_memory(2**30, 50_000_000)


def test_rows_are_beside_the_run_and_those_of_another_run_are_kept(tmp_path: Path) -> None:
    """The folder of a run may be handed on; rows are as private as the tables."""
    data = Data(tmp_path, text_ids=False)
    out = tmp_path / "run"
    data.make(out)
    assert not list(out.rglob("*row*"))
    kept = sorted(path.name for path in rows_folder(out).iterdir())
    other = tmp_path / "other"
    rows_folder(out).rename(rows_folder(other))
    with pytest.raises(RunError, match=r"other\.rows beside it holds private parts of another run"):
        data.make(other)
    assert not other.exists()
    assert sorted(path.name for path in rows_folder(other).iterdir()) == kept


def test_a_board_of_another_run_is_refused(tmp_path: Path) -> None:
    data, out = Data(tmp_path, text_ids=False), tmp_path / "run"
    folder = data.make(out)
    about = out / "board" / "board.json"
    about.write_text(about.read_text().replace(folder.plan.fingerprint(), "other"))
    with pytest.raises(RunError, match="another run"):
        plan.read_about(folder)
    about.write_text("{")
    with pytest.raises(RunError, match="damaged"):
        plan.read_about(folder)


def test_only_runs_with_one_board(tmp_path: Path) -> None:
    run = hg.train(
        hg.datasets.synthetic(num_nodes=60, num_classes=3, seed=1),
        epsilon=4.0,
        steps=1,
        hidden=4,
        device="cpu",
    )
    with pytest.raises(RunError, match="one board"):
        plan.board_noise(run.folder)


@pytest.mark.parametrize("most_in_memory", [1 << 20, 24 * 50, 24])
def test_records_are_sorted_whatever_fits_memory(tmp_path: Path, most_in_memory: int) -> None:
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 200, (2, 3_000), dtype=np.uint64)
    # One owner lists nearly everybody.
    pairs[0, :900] = 5
    packed = (pairs[0] << np.uint64(32)) | pairs[1]
    records = Records.write(
        tmp_path / "records",
        np.array_split(packed, 7),
        num_nodes=200,
        most_in_memory=most_in_memory,
        bits=4,
    )
    expected = sorted({(o, p) for o, p in pairs.T.tolist() if o != p})
    read = {"of_owners": [], "of_places": []}
    for begin, end in records.ranges():
        for name, seen in read.items():
            for owners, places in getattr(records, name)(begin):
                keys = owners if name == "of_owners" else places
                assert begin <= keys.min() <= keys.max() < end
                seen += zip(owners.tolist(), places.tolist(), strict=True)
    assert sorted(read["of_owners"]) == expected == sorted(read["of_places"])
    # Every owner's places come in ascending order, which is the order that readings are summed in.
    assert sorted(read["of_owners"], key=lambda pair: pair[0]) == expected
    assert np.array_equal(records.list_sizes(), np.bincount([o for o, _ in expected], minlength=200))
    assert records.count == len(expected)
    assert Records.open(tmp_path / "records") == records
    assert Records.open(tmp_path / "nothing") is None
