"""Promise: owner, classes and splits are constant or declared, never looked up in rows; what is neither is
named as an assumption wherever the guarantee is shown.

Node `V` alone has the highest class, and without its row some edges have no reverse: emptying it moves
whatever is looked up.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

import hushgraph as hg
from hushgraph import Graph
from hushgraph.billboard.ballots import GRID, label_ballots
from hushgraph.billboard.board import cast
from hushgraph.datasets.engine import use_engine
from hushgraph.datasets.tables.opening import open_table
from hushgraph.errors import GraphError, InputError
from hushgraph.privacy.guarantee import CLASSES_FROM_LABELS, CLASSES_NOT_RECORDED, Guarantee
from hushgraph.privacy.plans import BillboardPlan, PrivacyPlan, TreePlan
from hushgraph.runs.about import find_checksum
from hushgraph.runs.folder import RunFolder
from hushgraph.tasks.classes import Classes
from run_folders import contents

Run = Callable[..., tuple[int, str, str]]
N, V, CLASSES = 60, 7, 4
QUICK: dict[str, Any] = {"epsilon": 4.0, "steps": 2, "hidden": 4, "device": "cpu"}
FLAGS = ("--epsilon", "4", "--steps", "2", "--hidden", "4", "--device", "cpu")
ASSUMED = "assuming that the list of classes is public"
OLD_RUNS = Path(__file__).parents[1] / "data" / "runs_of_format_1"


def people(*, emptied: bool = False) -> dict[str, Any]:
    """Arrays of an undirected graph, with the row of `V` or without."""
    rng = np.random.default_rng(3)
    ends = rng.integers(0, N, (2, 4 * N))
    ends = np.concatenate([ends, [[V] * 5, [0, 1, 2, 3, 4]]], axis=1)
    edges = np.concatenate([ends, ends[::-1]], axis=1)
    y = rng.integers(0, CLASSES - 1, N)
    x, y[V] = rng.normal(size=(N, 3)).astype(np.float32).round(2), CLASSES - 1
    if emptied:
        edges, x[V], y[V] = edges[:, edges[0] != V], 0, -1
    edges = np.unique(edges[:, edges[0] != edges[1]], axis=1)
    return {"edge_index": edges, "x": x, "y": y, "train_idx": np.arange(0, N, 2) + 1}


Arrays = dict[str, Any]
Written = tuple[Any, dict[str, Any]]


def write_npz(folder: Path, arrays: Arrays, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    np.savez(folder / "people.npz", **arrays, **more)
    return folder / "people.npz"


def as_pyg(arrays: Arrays) -> SimpleNamespace:
    tensors = {name: torch.from_numpy(np.asarray(value)) for name, value in arrays.items()}
    # What PyG computes from the labels declares nothing.
    return SimpleNamespace(**tensors, num_classes=int(arrays["y"].max()) + 1)


def write_pt(folder: Path, arrays: Arrays) -> Path:
    folder.mkdir(exist_ok=True)
    torch.save(vars(as_pyg(arrays)), folder / "people.pt")
    return folder / "people.pt"


def as_frames(arrays: Arrays) -> tuple[pd.DataFrame, pd.DataFrame]:
    split = np.where(np.isin(np.arange(N), arrays["train_idx"]), "train", "test")
    label = pd.Series(arrays["y"]).where(arrays["y"] >= 0).astype("Int64")
    nodes = pd.DataFrame({"id": np.arange(N), "a": arrays["x"][:, 0], "label": label, "split": split})
    return nodes, pd.DataFrame({"source": arrays["edge_index"][0], "target": arrays["edge_index"][1]})


def write_tables(folder: Path, arrays: Arrays, *, mapping: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    for name, frame in zip(("nodes", "edges"), as_frames(arrays), strict=True):
        frame.to_csv(folder / f"{name}.csv", index=False)
    if mapping:
        (folder / "graph.toml").write_text(f"[columns]\n{mapping}\n")
    return folder


def as_networkx(arrays: Arrays) -> Any:
    graph = nx.DiGraph()
    for node in range(N):
        part = "train" if node in arrays["train_idx"] else "test"
        graph.add_node(node, x=arrays["x"][node].tolist(), split=part)
        if arrays["y"][node] >= 0:
            graph.nodes[node]["y"] = int(arrays["y"][node])
    graph.add_edges_from(arrays["edge_index"].T.tolist())
    return graph


NAMES = [str(number) for number in range(CLASSES)]
FIXED: dict[str, Any] = {"num_classes": CLASSES}
# How data is given, by the public functions and kinds of data that they stand for: writes it and returns what
# `train` takes; and whether its classes are declared.
LOADERS: dict[str, tuple[Callable[[Path, Arrays], Written], bool]] = {
    "Graph": (lambda p, a: (Graph.from_arrays(**a), {}), False),
    "Graph of a declared number": (lambda p, a: (Graph.from_arrays(**a, num_classes=CLASSES), {}), True),
    "load_graph, load_npz": (lambda p, a: (write_npz(p, a), {}), False),
    "load_npz with num_classes": (lambda p, a: (write_npz(p, a), FIXED), True),
    "load_npz of a file that declares": (lambda p, a: (write_npz(p, a, num_classes=CLASSES), {}), True),
    "load_pt": (lambda p, a: (write_pt(p, a), {}), False),
    "load_pt with num_classes": (lambda p, a: (write_pt(p, a), FIXED), True),
    "from_pyg": (lambda p, a: (as_pyg(a), {}), False),
    "from_pyg with num_classes": (lambda p, a: (as_pyg(a), FIXED), True),
    "tables": (lambda p, a: (write_tables(p, a), {}), False),
    "tables with num_classes": (lambda p, a: (write_tables(p, a), FIXED), True),
    "tables with classes": (lambda p, a: (write_tables(p, a), {"columns": {"classes": NAMES}}), True),
    "graph.toml": (lambda p, a: (write_tables(p, a, mapping='id = "id"'), {}), False),
    "graph.toml with classes": (lambda p, a: (write_tables(p, a, mapping=f"classes = {NAMES}"), {}), True),
    "DataFrames": (lambda p, a: (as_frames(a), {}), False),
    "DataFrames with classes": (lambda p, a: (as_frames(a), {"columns": {"classes": NAMES}}), True),
    "from_networkx": (lambda p, a: (as_networkx(a), {}), False),
    "from_networkx with num_classes": (lambda p, a: (as_networkx(a), FIXED), True),
}
# What makes no graph out of somebody's data, and what generates it.
NO_LOADERS = {"describe", "names", "random_split"}
GENERATED = {"load", "synthetic"}


def test_every_loader_is_walked() -> None:
    walked = {word.strip(",") for name in LOADERS for word in name.split()}
    assert set(hg.datasets.__all__) - NO_LOADERS - GENERATED <= walked


@pytest.mark.parametrize("method", ["billboard", "trees"])
@pytest.mark.parametrize("loader", LOADERS)
def test_one_row_moves_nothing_that_is_declared(loader: str, method: str, tmp_path: Path) -> None:
    write, is_declared = LOADERS[loader]
    settings = {"method": method, "epsilon": 4.0, "steps": 2, "delta": 1e-3}
    settings |= {"model": "gcn", "max_readers": 2} if method == "trees" else {}
    prepared = []
    for emptied in (False, True):
        folder = tmp_path / str(emptied)
        folder.mkdir()
        data, arguments = write(folder, people(emptied=emptied))
        prepared.append(hg.prepare(data, **arguments, **settings))
    graphs, plans = [each.graph for each in prepared], [each.plan for each in prepared]
    assert [graph.has_declared_classes for graph in graphs] == [is_declared] * 2
    assert [plan.edge_owner for plan in plans] == ["sender"] * 2
    assert [plan.directed for plan in plans] == [False] * 2
    counts = [graph.num_classes for graph in graphs]
    if is_declared:
        assert counts == [CLASSES] * 2
        assert plans[0].to_json() == plans[1].to_json()
    else:
        # The row decides here: that is what the assumption is about.
        assert counts == [CLASSES, CLASSES - 1]


@pytest.mark.parametrize("name", ["demo", "generated-100", "cora"])
def test_named_data_declares_its_classes(name: str, tmp_path: Path) -> None:
    write_npz(tmp_path, people()).rename(tmp_path / "cora.npz")
    graph = hg.datasets.load(name, tmp_path, check_statistics=False)
    assert graph.has_declared_classes
    assert graph.num_classes == {"demo": 8, "generated-100": 10, "cora": 7}[name]


def test_other_graphs_of_a_graph_remember() -> None:
    for number, is_declared in ((CLASSES, True), (None, False)):
        graph = Graph.from_arrays(**people(), num_classes=number)
        others = [graph.symmetrized(), graph.disjoint(), graph.with_row_emptied(V, "sender")]
        others += [hg.datasets.load_graph(graph, split="0.5/0.2/0.3")]
        assert [other.has_declared_classes for other in others] == [is_declared] * len(others)
    networkx = hg.datasets.from_networkx(as_networkx(people()), label="none", classes=NAMES)
    assert (networkx.has_declared_classes, networkx.num_classes) == (True, CLASSES)


@pytest.mark.parametrize("value", [np.float64(4.0), np.arange(2), -1])
def test_a_file_declares_one_number(value: Any, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="num_classes"):
        hg.datasets.load_npz(write_npz(tmp_path, people(), num_classes=value))


def test_an_emptied_row_moves_the_board_by_one_at_most(tmp_path: Path) -> None:
    """By default flags, with nothing of the first graph remembered."""
    tallies = []
    for emptied in (False, True):
        graph, plan, _ = hg.prepare(write_npz(tmp_path / str(emptied), people(emptied=emptied)), epsilon=1.0)
        ballots = label_ballots(graph, plan.edge_owner, task=Classes(num_classes=CLASSES))
        tallies.append(cast(graph, ballots) / GRID)
    assert 0.9 < np.linalg.norm(tallies[0] - tallies[1]) <= 1


def test_splits_are_drawn_from_ids_alone(tmp_path: Path) -> None:
    """A row that is emptied stays where the draw put it, in whichever part."""
    arrays = people()
    del arrays["train_idx"]
    without = {**arrays, "y": np.where(np.arange(N) % 3, arrays["y"], -1)}
    parts = [
        [getattr(graph, name).tolist() for name in ("train_idx", "val_idx", "test_idx")]
        for number, each in enumerate((arrays, without))
        for graph in [hg.prepare(write_npz(tmp_path / str(number), each), epsilon=1.0, **FIXED).graph]
    ]
    assert parts[0] == parts[1]
    assert all(parts[0])
    assert sum(map(len, parts[0])) == N


def test_a_missing_cell_of_a_frame_changes_no_other_row() -> None:
    """pandas turns integers into floats where one is missing: 1 becomes 1.0 in every row."""
    nodes, edges = as_frames(people())
    nodes["code"] = np.arange(N) % 5
    columns = {"unknown_ids": "drop", "ignore": ["code"]}
    before = hg.datasets.load_graph((nodes, edges), columns=columns)
    missing = pd.DataFrame({"source": [V, V], "target": [None, None]})
    longer = pd.concat([edges, missing.astype({"target": float})])
    assert longer["target"].dtype == float
    mixed = pd.concat(
        [edges.astype(object), pd.DataFrame({"source": [V], "target": ["nobody"]}, dtype=object)]
    )
    for others in (longer, mixed):
        after = hg.datasets.load_graph((nodes, others), columns=columns)
        assert np.array_equal(before.indices, after.indices)
        assert np.array_equal(before.node_names, after.node_names)
        assert before.node_names.dtype == after.node_names.dtype
    # The ids as text, too.
    named = nodes.assign(id=nodes["id"].astype(str))
    after = hg.datasets.load_graph((named, longer), columns=columns)
    assert np.array_equal(before.indices, after.indices)
    emptied = nodes.assign(code=nodes["code"].where(nodes["id"] != V))
    for role in ({"hashed": {"code": 4}}, {"categorical": {"code": [0, 1]}, "unknown_category": "zeros"}):
        hg.datasets.load_graph((nodes, edges), columns=role)
        with pytest.raises(GraphError, match=r"'code', given as .*, holds DOUBLE; expected text or integers"):
            hg.datasets.load_graph((emptied, edges), columns=role)
        kept = emptied.assign(code=emptied["code"].astype("Int64"))
        rows = [hg.datasets.load_graph((each, edges), columns=role).x for each in (nodes, kept)]
        others = np.arange(N) != V
        assert np.array_equal(rows[0][others], rows[1][others])


def write_cells(usual: Any, odd: Any, rows: int) -> list[pd.Series]:
    """A column of a frame without and with an odd cell in the row V; pandas chooses its type."""
    return [pd.Series([odd if row == V and has else usual(row) for row in range(rows)]) for has in (0, 1)]


NODE_CELLS: dict[str, tuple[dict[str, Any], list[pd.Series]]] = {
    "group": ({"group": {"code": ["0", "1"]}}, write_cells(lambda row: row % 2, None, N)),
    "missing": (
        {"missing": ["-1"], "fill": 7, "features": ["a", "code"]},
        write_cells(lambda row: -row % 3 - 1, None, N),
    ),
}
DAY = date(2026, 1, 31)
EDGE_CELLS = {
    "relation": ({"relation": {"code": ["0", "1"]}}, lambda row: row % 2, None),
    "relation of booleans": ({"relation": {"code": ["true", "false"]}}, lambda row: row % 2 == 0, "no"),
    "weight by a rule for text": (
        {"edge_weight": "code", "decimal": {"code": ","}},
        lambda row: row + 1,
        0.5,
    ),
    "date by a format": (
        {"edge_date": "code", "since": "2026-01-01", "date_format": {"code": "%Y-%m-%d"}},
        lambda row: DAY,
        datetime(2026, 1, 31, 12),
    ),
    "date as a number": (
        {"edge_date": "code", "since": "2026-01-01", "date_format": {"code": "%Y%m%d"}},
        lambda row: 20260131,
        None,
    ),
}


@pytest.mark.parametrize("kind", NODE_CELLS)
def test_a_cell_of_a_frame_changes_neither_groups_nor_missing_cells_of_others(kind: str) -> None:
    nodes, edges = as_frames(people())
    columns, cells = NODE_CELLS[kind]
    assert [each.dtype.kind for each in cells] == ["i", "f"]
    found = []
    for own in cells:
        with contextlib.suppress(GraphError):
            graph = hg.datasets.load_graph((nodes.assign(code=own), edges), columns=columns)
            row = graph.x if graph.groups is None else graph.groups
            found.append(np.delete(row, V, axis=0).tolist())
    assert all(each == found[0] for each in found)
    assert len(found) == (2 if kind == "missing" else 1)


@pytest.mark.parametrize("kind", EDGE_CELLS)
def test_a_cell_of_a_frame_of_edges_changes_no_other_record(kind: str) -> None:
    """Relations, weights and dates are read from text, which follows from the type of the column."""
    nodes, edges = as_frames(people())
    columns, usual, odd = EDGE_CELLS[kind]
    columns = {"unknown_ids": "drop", **columns}
    found = []
    for own in write_cells(usual, odd, len(edges)):
        # What could be told from the other cells is refused.
        with contextlib.suppress(GraphError):
            graph = hg.datasets.load_graph((nodes, edges.assign(code=own)), columns=columns)
            pairs = {(int(u), int(w)) for part in graph.edge_chunks() for u, w in zip(*part, strict=True)}
            found.append(pairs - {tuple(edges.iloc[V])})
    assert all(each == found[0] for each in found)
    assert len(found) == (0 if kind.startswith("date") else 1)


OBJECTS = {
    "decimals": (Decimal("1.5"), Decimal("1.25")),
    "dates": (DAY, datetime(2026, 1, 31, 12)),
    "flags": (True, "perhaps"),
    "texts": ("one", 1),
    "numbers": (1, "one"),
}


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize(
    "role",
    [{"hashed": {"code": 64}}, {"categorical": {"code": ["1.5", "one", "1"]}, "unknown_category": "zeros"}],
)
def test_an_object_in_a_frame_changes_no_other_row(kind: str, role: dict[str, Any]) -> None:
    """The type of a column of objects is guessed from all of them, and their text follows from the type."""
    nodes, edges = as_frames(people())
    usual, odd = OBJECTS[kind]
    found = []
    for own in (usual, odd):
        cells = pd.Series([own if each == V else usual for each in nodes["id"]], dtype=object)
        # What could be told from the other cells is refused.
        with contextlib.suppress(GraphError):
            x = hg.datasets.load_graph((nodes.assign(code=cells), edges), columns=role).x
            found.append(np.delete(x, V, axis=0))
    assert all(np.array_equal(each, found[0]) for each in found)
    assert kind not in ("texts", "numbers") or len(found) == 2


def test_directed_and_symmetrized_contradict_each_other() -> None:
    with pytest.raises(InputError, match="symmetrize=True and directed=True contradict"):
        hg.prepare(Graph.from_arrays(**people()), epsilon=1.0, symmetrize=True, directed=True)
    with pytest.raises(InputError, match="directed='yes': expected True or False"):
        hg.prepare(Graph.from_arrays(**people()), epsilon=1.0, directed="yes")  # type: ignore[arg-type]


def test_how_edges_look_reaches_the_terminal_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arrays = people()
    one_way = arrays["edge_index"][0] < arrays["edge_index"][1]
    data = write_npz(tmp_path, {**arrays, "edge_index": arrays["edge_index"][:, one_way]})
    code, out, err = run("train", data, *FLAGS, "--out", "a-run")
    assert code == 0
    assert "private, for you alone: no edge has its reverse" in err
    assert "reverse" not in out
    assert json.loads((tmp_path / "a-run" / "run.json").read_text())["plan"]["edge_owner"] == "sender"
    run("report", "a-run")
    for content in contents(tmp_path / "a-run").values():
        assert b"reverse" not in content
    for command in (["train", data, *FLAGS, "--dry-run"], ["plan", data, "--epsilon", "4"]):
        code, out, err = run(*command, "--json")
        assert (code, err) == (0, "")
        assert "reverse" not in out


@pytest.fixture(scope="module", params=[False, True], ids=["assumed", "declared"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[hg.Run, bool]:
    path = tmp_path_factory.mktemp("run")
    data = write_npz(path, people())
    classes = FIXED if request.param else {}
    return hg.train(data, out=path / "run", **classes, **QUICK), request.param


def assert_named(text: str, is_declared: bool) -> None:
    assert (ASSUMED in " ".join(text.split())) is not is_declared


def test_an_assumption_is_part_of_the_guarantee(trained: tuple[hg.Run, bool]) -> None:
    run, is_declared = trained
    expected = [] if is_declared else [vars(CLASSES_FROM_LABELS)]
    guarantee = run.folder.guarantee
    assert (guarantee.kind, run.result["guarantee"]) == ("holds", "holds")
    assert guarantee.assumptions == (() if is_declared else (CLASSES_FROM_LABELS,))
    assert guarantee.to_json()["assumptions"] == run.result["assumptions"] == expected
    assert guarantee.kind_in_words == ("holds" if is_declared else f"holds, {ASSUMED}")
    assert_named(guarantee.statement.sentence, is_declared)
    assert (CLASSES_FROM_LABELS.sentence in guarantee.statement.to_text()) is not is_declared
    assert_named(repr(run), is_declared)
    assert_named(run._repr_html_(), is_declared)


def test_a_run_that_is_read_again_says_the_same(trained: tuple[hg.Run, bool]) -> None:
    run, _ = trained
    again = hg.Run.load(run.folder.path, device="cpu")
    assert again.folder.guarantee.assumptions == run.folder.guarantee.assumptions
    assert again.result["assumptions"] == run.result["assumptions"]
    written = json.loads((run.folder.path / "run.json").read_text())
    assert written["assumptions"] == run.result["assumptions"]
    result = json.loads((run.folder.path / "result.json").read_text())
    assert result["assumptions"] == run.result["assumptions"]


def test_report_and_card_name_it(trained: tuple[hg.Run, bool], tmp_path: Path) -> None:
    run, is_declared = trained
    run.report(tmp_path / "report.html")
    html, twin = (tmp_path / "report.html").read_text(), json.loads((tmp_path / "report.json").read_text())
    assert twin["assumptions"] == twin["guarantee_details"]["assumptions"] == run.result["assumptions"]
    label = "The guarantee holds" + ("" if is_declared else f", {ASSUMED}")
    assert twin["standing"]["label"] == label
    assert_named(twin["standing"]["sentence"], is_declared)
    assert label in html
    card = run.card()
    assert f"**{label}.**" in card
    front = card.split("---")[1]
    assert '"guarantee": "holds"' in front
    assert (CLASSES_FROM_LABELS.sentence in front) is not is_declared


@pytest.mark.usefixtures("quick_audit")
@pytest.mark.parametrize("is_declared", [False, True])
def test_every_command_names_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_declared: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    data, declared = write_npz(tmp_path, people()), ["--num-classes", str(CLASSES)] * is_declared
    trees = ["--max-readers", "2", "--batch-size", "30"]
    commands = [
        ["train", data, *FLAGS, "--out", "a-run"],
        ["train", data, *FLAGS, *trees, "--dry-run"],
        ["plan", data, "--epsilon", "4"],
        ["plan", data, "--epsilon", "4", "--steps", "2", *trees],
        ["compare", data, *FLAGS],
        ["audit", data, "--epsilon", "4", "--steps", "2", "--trials", "20"],
    ]
    for command in commands:
        code, out, _ = run(*command, *declared)
        assert code == 0, command
        assert "holds" in out
        assert_named(out, is_declared)
        more = ["--out", "for-json"] if command[0] == "train" and "--dry-run" not in command else []
        code, out, _ = run(*command, *more, *declared, "--json")
        assert code == 0, command
        assert json.loads(out)["assumptions"] == ([] if is_declared else [vars(CLASSES_FROM_LABELS)])
    for command in (["audit", "a-run", "--trials", "20"],):
        code, out, _ = run(*command)
        assert code == 0
        assert_named(out, is_declared)


def test_a_comparison_keeps_it(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = write_npz(tmp_path, people())
    assert run("compare", data, *FLAGS, "--out", "five")[0] == 0
    text = Path("five/comparison.json").read_text()
    comparison = hg.Comparison.from_json(text)
    assert comparison.assumptions == (CLASSES_FROM_LABELS,)
    assert_named(comparison.cost, False)
    # The row of the table in the report of one of its runs.
    assert f">holds, {ASSUMED}<" in Path("five/report.html").read_text()


def test_a_plan_without_data_assumes_nothing(run: Run) -> None:
    flags = ("--train-nodes", "1000", "--max-readers", "2", "--batch-size", "100", "--epsilon", "4")
    code, out, _ = run("plan", *flags, "--json")
    assert code == 0
    assert json.loads(out)["assumptions"] == []


@pytest.mark.parametrize("own", ["#7,0.5,1,train", "#7,,,", "7,#,1,train", "7,NULL,1,train"])
def test_a_line_of_a_table_hides_no_other_from_an_engine(own: str, tmp_path: Path) -> None:
    """DuckDB guesses from rows which lines are comments, unless it is told not to."""
    others = [f"{'#' * (i % 3 == 0)}{i},0.5,{i % 2},train" for i in range(8, 40)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,age,label,split", own, *others]) + "\n")
    with duckdb.connect() as connection:
        table = open_table(connection, tmp_path / "nodes.csv", delimiter=None, role="nodes")
        cells = connection.execute(
            f"SELECT * EXCLUDE (row_no) FROM {table.rows} ORDER BY row_no", table.patterns
        ).fetchall()
    assert [",".join(line) for line in cells[1:]] == others


@pytest.mark.parametrize("kind", ["BIGINT", "DOUBLE", "VARCHAR"])
@pytest.mark.parametrize("count", [0, 30])
def test_types_of_edges_change_nothing_on_an_engine(kind: str, count: int, tmp_path: Path) -> None:
    """One cell can change the type of a column of edges; identifiers of a board are those of the nodes."""
    nodes = f"SELECT i + 100 AS id, 0.5 AS age, i % 2 AS label, 'train' AS split FROM range({N}) AS t(i)"
    ends = f"CAST(i + 100 AS {kind}) AS source, CAST(i + 101 AS {kind}) AS target"
    for name, sql in (("nodes", nodes), ("edges", f"SELECT {ends} FROM range({count}) AS t(i)")):
        duckdb.execute(f"COPY ({sql}) TO '{tmp_path}/{name}.parquet'")
    with use_engine("duckdb", tmp_path, beside=tmp_path / "run"):
        graph = hg.datasets.load_graph(tmp_path, num_classes=2)
    assert graph.node_names is not None
    assert graph.node_names.tolist() == list(range(100, 100 + N))
    tally = cast(graph, label_ballots(graph, "sender", task=Classes(num_classes=2)))
    assert np.count_nonzero(tally.any(axis=1)) == count


@pytest.mark.parametrize("name", ["finished", "interrupted"])
def test_an_older_run_says_that_it_is_not_recorded(name: str, tmp_path: Path) -> None:
    shutil.copytree(OLD_RUNS / name, tmp_path / "run")
    data = hg.datasets.synthetic(num_nodes=300, num_classes=3, num_features=8, seed=1)
    run = hg.resume(tmp_path / "run", data, device="cpu")
    assert run.folder.guarantee.assumptions == (CLASSES_NOT_RECORDED,)
    assert run.result["assumptions"] == [vars(CLASSES_NOT_RECORDED)]
    assert_named(run.folder.guarantee.statement.sentence, False)
    assert_named(run.card(), False)


def test_an_older_run_with_named_classes_was_declared(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "tables", people())
    run = hg.train(folder, columns={"classes": NAMES}, out=tmp_path / "run", **QUICK)
    path = run.folder.path / "run.json"
    about = json.loads(path.read_text())
    assert about.pop("assumptions") == []
    del about["sum"]
    path.write_text(json.dumps({**about, "sum": find_checksum(about)}))
    assert RunFolder.open(run.folder.path).assumptions == ()
    about["columns"] = None
    path.write_text(json.dumps({**about, "sum": find_checksum(about)}))
    assert RunFolder.open(run.folder.path).assumptions == (CLASSES_NOT_RECORDED,)


def test_plans_of_older_versions_keep_their_fingerprint() -> None:
    """The field is new, and what is read of an older plan keeps the digest that its ledger has."""
    trees: dict[str, Any] = {"num_train_nodes": 100, "batch_size": 50, "steps": 3, "edge_owner": "reader"}
    for make, more in (
        (TreePlan, {"num_layers": 1, "max_readers": 2, "max_reads": 2}),
        (BillboardPlan, {}),
    ):
        plan, declared = make(**trees, **more), make(**trees, **more, directed=True)
        assert json.loads(plan.to_json())["directed"] is False
        assert json.loads(declared.to_json())["directed"] is True
        assert PrivacyPlan.from_json(plan.to_json()) == plan
        assert PrivacyPlan.from_json(declared.to_json()) == declared
        assert plan.fingerprint() != declared.fingerprint()
    old = json.loads((OLD_RUNS / "finished" / "run.json").read_text())["plan"]
    text = json.dumps(old, sort_keys=True)
    assert PrivacyPlan.from_json(text).fingerprint() == hashlib.sha256(text.encode()).hexdigest()


def test_an_older_run_never_flatters_an_edge(tmp_path: Path) -> None:
    """Where readers own edges, older versions wrote the price of one record for an edge of two."""
    run = hg.train(Graph.from_arrays(**people()), edge_owner="reader", out=tmp_path / "run", **QUICK)
    figure = run.result["epsilon_edge"]
    path = run.folder.path / "result.json"
    older = {**run.result, "epsilon_edge": figure / 2}
    del older["directed"]
    path.write_text(json.dumps(older))
    again = hg.Run.load(run.folder.path, device="cpu")
    assert again.result["epsilon_edge"] == figure == again.plan.epsilon_edge
    again.report(tmp_path / "report.html")
    facts = json.loads((tmp_path / "report.json").read_text())
    assert facts["result"]["epsilon_edge"] == facts["guarantee"]["epsilon_edge"] == figure


@pytest.mark.parametrize(("directed", "words"), [(False, "undirected edge"), (True, "directed record")])
def test_words_follow_what_an_edge_is(directed: bool, words: str, run: Run, tmp_path: Path) -> None:
    data, flag = write_npz(tmp_path, people()), ["--directed"] * directed
    declared = ["--num-classes", str(CLASSES)]
    code, out, _ = run("train", data, *FLAGS, *declared, *flag, "--out", tmp_path / "run", "--json")
    found = json.loads(out)
    assert (code, found["directed"]) == (0, directed)
    loaded = hg.Run.load(tmp_path / "run", device="cpu")
    assert loaded.plan.directed is directed
    loaded.report(tmp_path / "report.html")
    html, card = (tmp_path / "report.html").read_text(), loaded.card()
    table = run("plan", data, "--epsilon", "4", *declared, *flag)[1]
    other = {"undirected edge": "directed record", "directed record": "undirected edge"}[words]
    for text in (html, card, table):
        assert f"epsilon, one {words}" in text
        assert f"epsilon, one {other}" not in text
    for model in ("billboard", "trees"):
        settings = {"method": model} | ({"model": "gcn", "max_readers": 2} if model == "trees" else {})
        plan = hg.prepare(data, epsilon=4.0, directed=directed, num_classes=CLASSES, **settings).plan
        text = Guarantee.of(plan).statement.to_text()
        assert ("directed edge is one record" in text or "One directed record" in text) is directed
        assert ("undirected edge is two records" in text or "One undirected edge" in text) is not directed
