"""New nodes from tables and arrays: the same numbers as a Python call, and what is skipped or refused."""

from __future__ import annotations

import csv
import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import hushgraph as hg
from hushgraph import Graph
from hushgraph.billboard.ready import ReadyBoards
from hushgraph.datasets.tables.new_rows import new_rows_from_tables
from hushgraph.errors import GraphError, InputError, RunError
from hushgraph.inference.new_nodes import check_names, open_new_nodes
from hushgraph.runs.folder import RunFolder
from two_tables import to_parquet

NODES, FEATURES = 90, 3
HEADER = ("person", "f", "g", "h", "city", "job", "label", "split")
COLUMNS = {"id": "person", "categorical": {"city": ["Oslo", "Bergen"]}, "hashed": {"job": 4}}
TRAINING = {"epsilon": 4.0, "steps": 4, "hidden": 4, "device": "cpu"}


def write(path: Path, rows: Iterable[Iterable[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def people(names: Iterable[str], rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """Rows of features: three numbers, a city and a job."""
    return [
        (name, *rng.normal(size=FEATURES).round(3).tolist(), ("Oslo", "Bergen", "")[n % 3], f"job {n % 5}")
        for n, name in enumerate(names)
    ]


def train_on_tables(path: Path, **settings: Any) -> hg.Run:
    """A short run on people with the names p0, p1, ...; a record points from a person to a friend."""
    rng = np.random.default_rng(1)
    graph = hg.datasets.synthetic(num_nodes=NODES, num_classes=3, average_degree=4, seed=1)
    split = np.full(NODES, "", object)
    for name in ("train", "val", "test"):
        split[getattr(graph, f"{name}_idx")] = name
    rows = people([f"p{n}" for n in range(NODES)], rng)
    nodes = [(*row, graph.y[n], split[n]) for n, row in enumerate(rows)]
    source, target = next(graph.edge_chunks())
    edges = [(f"p{u}", f"p{w}") for u, w in zip(source, target, strict=True)]
    pair = (
        write(path / "nodes.csv", [HEADER, *nodes]),
        write(path / "edges.csv", [("source", "target"), *edges]),
    )
    return hg.train(pair, columns=COLUMNS, num_classes=3, out=path / "run", **TRAINING, **settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    return train_on_tables(tmp_path_factory.mktemp("senders"))


@pytest.fixture(scope="module")
def readers_run(tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    return train_on_tables(tmp_path_factory.mktemp("readers"), edge_owner="reader")


@pytest.fixture(scope="module")
def symmetric_run(tmp_path_factory: pytest.TempPathFactory) -> hg.Run:
    return train_on_tables(tmp_path_factory.mktemp("either"), symmetrize=True)


# "n0" lists p1 and p2, with repeats, itself, another new node and a stranger; "n1" is listed by p3; "n2" is
# alone, and p4 lists p5.
EDGES = [
    *[("n0", "p1"), ("n0", "p2"), ("n0", "p1"), ("n0", "n0"), ("n0", "n1"), ("n0", "zoe")],
    *[("p3", "n1"), ("p4", "p5")],
]
LISTS = {
    "source": [["p1", "p2", "n1", "zoe"], [], []],
    "target": [[], ["n0", "p3"], []],
    "either": [["p1", "p2", "n1", "zoe"], ["n0", "p3"], []],
}
SKIPPED = {"source": 2, "target": 5, "either": 1}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    nodes = [HEADER[:6], *people(["n0", "n1", "n2"], np.random.default_rng(2))]
    return write(tmp_path / "new.csv", nodes), write(tmp_path / "lists.csv", [("source", "target"), *EDGES])


def features_of(run: hg.Run, pair: tuple[Path, Path]) -> Any:
    """The features of new nodes, read as those of a graph."""
    nodes, _ = pair
    alone = write(nodes.parent / "no_edges.csv", [("source", "target")])
    return hg.datasets.load_graph((nodes, alone), columns=run.folder.columns, labels=False).x


@pytest.mark.parametrize(
    ("name", "end"), [("run", "source"), ("readers_run", "target"), ("symmetric_run", "either")]
)
def test_a_table_gives_what_a_python_call_gives(
    name: str, end: str, pair: tuple[Path, Path], request: pytest.FixtureRequest
) -> None:
    run: hg.Run = request.getfixturevalue(name)
    predicted = run.predict_table(pair, new=True)
    wanted, unknown = run.predict_new(features_of(run, pair), LISTS[end])
    assert np.array_equal(predicted.probabilities, wanted)
    assert predicted.new_nodes is not None
    assert predicted.new_nodes.num_unknown == unknown.sum()
    assert predicted.new_nodes.edges_skipped == SKIPPED[end]
    assert predicted.names is not None
    assert predicted.names.tolist() == ["n0", "n1", "n2"]
    assert predicted.predictions == "covered towards everybody else"


def test_either_end_lists_where_that_is_asked_for(run: hg.Run, pair: tuple[Path, Path]) -> None:
    predicted = run.predict_table(pair, new=True, symmetrize=True)
    wanted, _ = run.predict_new(features_of(run, pair), LISTS["either"])
    assert np.array_equal(predicted.probabilities, wanted)


def test_lists_hold_neither_repeats_nor_the_row_itself(run: hg.Run, pair: tuple[Path, Path]) -> None:
    assert run.folder.columns is not None
    with new_rows_from_tables(pair, columns=run.folder.columns, listed_by="source") as rows:
        assert rows.indptr.tolist() == [0, 4, 4, 4]
        assert sorted(rows.places) == ["n1", "p1", "p2", "zoe"]


def test_what_was_skipped_is_named(run: hg.Run, pair: tuple[Path, Path]) -> None:
    predicted = run.predict_table(pair, new=True)
    about = predicted.to_json()
    assert (about["unknown_places"], about["unknown_names"], about["edges_skipped"]) == (2, ["n1", "zoe"], 2)
    json.dumps(about)
    text = "\n".join(predicted.to_lines())
    assert "does not have, skipped: 2 ('n1', 'zoe')" in text
    assert "skipped: 2 (give --symmetrize" in text


def test_parquet_with_text_and_labels_is_read_as_csv(run: hg.Run, pair: tuple[Path, Path]) -> None:
    wanted = run.predict_table(pair, new=True)
    files = tuple(to_parquet(path) for path in pair)
    predicted = run.predict_table(files, new=True)
    assert np.array_equal(predicted.probabilities, wanted.probabilities)


def test_arrays_give_what_tables_give(run: hg.Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    x, lists = features_of(run, pair), LISTS["source"]
    ends = np.cumsum([0, *map(len, lists)])
    places = np.array([place for row in lists for place in row])
    table = sparse.csr_array(x)
    dense = {"x": x}
    rows = {
        "x_indptr": table.indptr,
        "x_indices": table.indices,
        "x_data": table.data,
        "x_shape": table.shape,
    }
    wanted = run.predict_table(pair, new=True).probabilities
    for number, features in enumerate((dense, rows)):
        path = tmp_path / f"new{number}.npz"
        np.savez(path, places_indptr=ends, places=places, **features)
        predicted = run.predict_table(path, new=True)
        assert np.array_equal(predicted.probabilities, wanted)
        assert predicted.names is None


def test_integer_names_match_text(tmp_path: Path) -> None:
    """A run on Parquet knows its nodes by integers; new nodes from CSV name them in text."""
    graph = hg.datasets.synthetic(num_nodes=60, num_classes=2, num_features=2, seed=0)
    ids = np.arange(60) + 1000
    split = np.where(graph.train_mask, "train", "test")
    rows = [(ids[n], *graph.x[n].tolist(), graph.y[n], split[n]) for n in range(60)]
    source, target = next(graph.edge_chunks())
    nodes = to_parquet(write(tmp_path / "nodes.csv", [("id", "f", "g", "label", "split"), *rows]))
    edges = to_parquet(
        write(tmp_path / "edges.csv", [("source", "target"), *zip(ids[source], ids[target], strict=True)])
    )
    run = hg.train((nodes, edges), num_classes=2, **TRAINING)
    new = write(tmp_path / "new.csv", [("id", "f", "g"), (7, 0.5, -0.5)])
    lists = write(tmp_path / "lists.csv", [("source", "target"), (7, 1003), (7, 1004), (7, 12)])
    predicted = run.predict_table((new, lists), new=True)
    wanted, unknown = run.predict_new([0.5, -0.5], [[1003, 1004, 12]])
    assert np.array_equal(predicted.probabilities, wanted)
    assert predicted.new_nodes is not None
    assert (predicted.new_nodes.num_unknown, unknown.tolist()) == (1, [1])


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("numbers", ["private", "as-is"])
def test_nan_is_an_empty_cell_as_in_tables(tmp_path: Path, numbers: str, is_sparse: bool) -> None:
    """Filled, flagged, and the middle of a scaled column: a table and a call agree bit for bit."""
    rng = np.random.default_rng(2)
    head = ("id", "age", "income", "job", "label", "split")
    rows = [
        (f"p{n}", n % 40 + 20 if n % 7 else "", round(float(rng.lognormal(9, 1)), 2), f"job {n % 3}", n % 2)
        for n in range(80)
    ]
    splits = [("train",) if n % 2 else ("val",) if n % 4 else ("test",) for n in range(80)]
    pair = (
        write(
            tmp_path / "nodes.csv", [head, *(row + split for row, split in zip(rows, splits, strict=True))]
        ),
        write(
            tmp_path / "edges.csv", [("source", "target"), *((f"p{n}", f"p{n * 7 % 80}") for n in range(80))]
        ),
    )
    columns = {"fill": {"*": 3.5}, "indicators": ["age"], "hashed": {"job": 4}}
    run = hg.train(pair, columns=columns, num_classes=2, numbers=numbers, out=tmp_path / "run", **TRAINING)
    cells = [
        ("a", "", 900.5, "job 1"),
        ("b", 31, "", "job 2"),
        ("c", 44, 17.25, "job 0"),
        ("d", "", "", "job 1"),
    ]
    new = (
        write(tmp_path / "new.csv", [head[:4], *cells]),
        write(tmp_path / "listed.csv", [("source", "target"), *((cell[0], "p3") for cell in cells)]),
    )
    table = run.predict_table(new, new=True)
    with new_rows_from_tables(new, columns=run.folder.columns, listed_by="source") as read:
        raw = np.asarray(read.x.toarray() if sparse.issparse(read.x) else read.x).copy()
    # As somebody has them who knows no rule: no constant and no flag.
    raw[[0, 3], 0], raw[[1, 3], 1], raw[:, -1] = np.nan, np.nan, 0.0
    features = sparse.csr_array(raw) if is_sparse else raw
    probabilities, _ = run.predict_new(features, [["p3"]] * 4)
    assert np.array_equal(probabilities, table.probabilities)
    without = np.nan_to_num(raw, nan=50.0)
    assert not np.array_equal(run.predict_new(without, [["p3"]] * 4)[0][0], probabilities[0])
    with pytest.raises(GraphError, match="not a finite float32"):
        run.predict_new(np.full((1, raw.shape[1]), np.nan), [["p3"]])


def test_new_nodes_are_free(run: hg.Run, pair: tuple[Path, Path]) -> None:
    def read_files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file()}

    before = read_files()
    run.predict_table(pair, new=True)
    assert read_files() == before


def test_blocks_give_the_same_predictions(
    run: hg.Run, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = run.predict_table(pair, new=True).probabilities
    monkeypatch.setattr("hushgraph.inference.new_nodes._BLOCK_FLOATS", 1)
    predicted = run.predict_table(pair, new=True).probabilities
    assert np.allclose(predicted, wanted, atol=1e-6)


def test_rows_that_list_nothing_are_predicted_from_their_features(run: hg.Run) -> None:
    rows = np.eye(2, run.folder.num_features)
    probabilities, _ = run.predict_new(rows, [[], []])
    assert probabilities.shape == (2, 3)
    assert not np.array_equal(*probabilities)


def test_ten_thousand_rows_take_less_than_two_seconds(run: hg.Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    nodes = [HEADER[:6], *people([f"n{n}" for n in range(10_000)], rng)]
    ends = [(f"n{n % 10_000}", f"p{place}") for n, place in enumerate(rng.integers(NODES, size=50_000))]
    pair = write(tmp_path / "new.csv", nodes), write(tmp_path / "lists.csv", [("source", "target"), *ends])
    # Compiled kernels are kept on disk after the first use.
    run.predict_new(np.zeros(run.folder.num_features), [["p1"]])
    begin = time.process_time()
    predicted = run.predict_table(pair, new=True)
    assert len(predicted.probabilities) == 10_000
    assert time.process_time() - begin < 2.0


def test_rows_that_are_on_the_board_are_refused(run: hg.Run, pair: tuple[Path, Path]) -> None:
    write(pair[0], [HEADER[:6], *people(["n0", "p7"], np.random.default_rng(0))])
    with pytest.raises(GraphError, match=r"new\.csv: 1 of 2 ids are on the board already, such as 'p7'"):
        run.predict_table(pair, new=True)


def test_lists_of_strangers_alone_are_refused(run: hg.Run, pair: tuple[Path, Path]) -> None:
    write(pair[1], [("source", "target"), ("n0", "q1"), ("n1", "q2")])
    with pytest.raises(GraphError, match=r"none of the 2 listed places is on the board: 'q1', 'q2'; .*'p0'"):
        run.predict_table(pair, new=True)


def test_an_empty_end_is_refused(run: hg.Run, pair: tuple[Path, Path]) -> None:
    write(pair[1], [("source", "target"), ("n0", "p1"), ("n0", "")])
    with pytest.raises(GraphError, match=r"lists\.csv line 3, column 'target': empty"):
        run.predict_table(pair, new=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.zeros((2, 3))}, "the rows have 3 features, the model was trained on 9"),
        ({"x": np.full((2, 9), np.nan)}, r"x\[0, 0\]=nan is not a finite"),
        ({"places_indptr": np.array([0, 2])}, "the ends of lists have 2 values; expected 3"),
        ({"places_indptr": np.array([0, 2, 5])}, "indptr must be non-decreasing from 0 to 3"),
        ({"places_indptr": np.array([0.5, 2, 3])}, "places_indptr has dtype float64; expected integers"),
        ({"places": np.array([0.5, 1, 2])}, "places has dtype float64"),
        ({"places": np.array([["p1"]])}, r"places has dtype <U2 and shape \[1, 1\]"),
        ({"places": None}, "missing places; expected the keys places_indptr, places, x"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    run: hg.Run, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    arrays = {"x": np.zeros((2, 9)), "places_indptr": np.array([0, 2, 3]), "places": np.array(["p1"] * 3)}
    kept = {key: value for key, value in (arrays | change).items() if value is not None}
    np.savez(tmp_path / "new.npz", **kept)
    with pytest.raises(InputError, match=words):
        run.predict_table(tmp_path / "new.npz", new=True)


@pytest.mark.usefixtures("own_folder")
def test_tables_need_a_run_on_tables(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    data = hg.datasets.synthetic(num_nodes=60, num_classes=3, seed=0)
    run = hg.train(data, **TRAINING)
    with pytest.raises(GraphError, match=r"the run was not trained on tables.*places_indptr"):
        run.predict_table(pair, new=True)
    with pytest.raises(GraphError, match=r"expected tables or an \.npz file of new nodes"):
        run.predict_table("demo", new=True)


def test_a_file_that_cannot_be_read_is_refused(
    run: hg.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError

    monkeypatch.setattr("hushgraph.inference.new_nodes.read_lists_npz", refuse)
    with pytest.raises(GraphError, match=r"new\.npz: cannot be read \(permission denied\)"):
        run.predict_table(tmp_path / "new.npz", new=True)


def test_new_nodes_read_no_neighbours(run: hg.Run, pair: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="in_the_clear: new nodes read the board alone"):
        run.predict_table(pair, new=True, in_the_clear=True)


def test_trees_have_no_board(tmp_path: Path) -> None:
    data = hg.datasets.synthetic(num_nodes=60, num_classes=3, seed=0)
    run = hg.train(data, method="trees", max_readers=1, **TRAINING)
    with pytest.raises(RunError, match="a run of method 'trees' has no board"):
        run.predict_new(data.x[:1], [[0]])
    assert run.predict_table(data).to_json()["predictions"] == "not covered"


def test_training_data_with_other_names_or_in_another_order_is_refused(run: hg.Run, tmp_path: Path) -> None:
    folder = run.folder.path.parent
    text = (folder / "nodes.csv").read_text()
    (tmp_path / "nodes.csv").write_text(text.replace("\np5,", "\nother,"))
    edges = (folder / "edges.csv").read_text().replace("p5,", "other,").replace(",p5\n", ",other\n")
    (tmp_path / "edges.csv").write_text(edges)
    with pytest.raises(InputError, match="row 6 is 'other', but 'p5' on the board; give the training data"):
        run.predict_table(tmp_path)
    assert run.predict_table((folder / "nodes.csv", folder / "edges.csv")).is_covered


def test_a_seeded_run_covers_nothing(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    run = train_on_tables(tmp_path, seed=1)
    predicted = run.predict_table(pair, new=True)
    assert predicted.predictions == "not covered"
    assert "guarantees nothing" in predicted.explanation
    data = run.folder.path.parent
    in_the_clear = run.predict_table((data / "nodes.csv", data / "edges.csv"), in_the_clear=True)
    assert "reads the node's neighbours in the clear" in in_the_clear.explanation


def test_a_graph_without_names_is_not_compared(run: hg.Run) -> None:
    check_names(run.folder.load_boards()[0], None)


def test_a_run_is_opened_as_it_was_left(run: hg.Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    copy = shutil.copytree(run.folder.path, tmp_path / "copy")
    again = hg.Run.load(copy, device="cpu").predict_table(pair, new=True)
    assert np.array_equal(again.probabilities, run.predict_table(pair, new=True).probabilities)
    assert RunFolder.open(copy).columns == run.folder.columns


def test_places_of_a_board_without_names_are_numbers(tmp_path: Path) -> None:
    data: Graph = hg.datasets.synthetic(num_nodes=60, num_classes=3, num_features=2, seed=0)
    run = hg.train(data, **TRAINING)
    boards = ReadyBoards(run.folder.load_boards(), centred=True)
    np.savez(tmp_path / "a.npz", x=np.ones((1, 2)), places_indptr=[0, 2], places=[5, 60])
    with open_new_nodes(
        tmp_path / "a.npz", boards, columns=None, num_features=2, listed_by="source"
    ) as nodes:
        assert nodes.places.tolist() == [5, -1]
        assert nodes.unknown_names == ("60",)
    np.savez(tmp_path / "b.npz", x=np.ones((1, 2)), places_indptr=[0, 1], places=["p1"])
    with pytest.raises(GraphError, match=r"is on the board: 'p1'; expected .* numbers from 0"):
        run.predict_table(tmp_path / "b.npz", new=True)


def test_a_missing_end_does_not_change_what_other_ends_mean(tmp_path: Path) -> None:
    """It makes floats of a column of integers, as pandas writes it."""
    rng = np.random.default_rng(1)
    table = [("id", "f", "label", "split")]
    table += [(n + 1000, rng.normal(), n % 2, ("train", "test")[n % 3 == 0]) for n in range(60)]
    ends = [("source", "target"), *(rng.integers(1000, 1060, (200, 2)).tolist())]
    nodes, edges = to_parquet(write(tmp_path / "nodes.csv", table)), write(tmp_path / "edges.csv", ends)
    run = hg.train((nodes, to_parquet(edges)), num_classes=2, unknown_ids="drop", **TRAINING)
    new = to_parquet(write(tmp_path / "new.csv", [("id", "f"), (7, 0.5), (8, 0.1)]))
    predicted = []
    for name, more in (("integers", []), ("gap", [(8, "")])):
        lists = write(tmp_path / f"{name}.csv", [("source", "target"), (7, 1003), (7, 1004), (7, 12), *more])
        select = "source, CAST(target AS DOUBLE) AS target" if more else "*"
        predicted.append(run.predict_table((new, to_parquet(lists, select)), new=True))
    one, other = predicted
    assert np.array_equal(one.probabilities, other.probabilities)
    assert np.asarray(other.names).tolist() == [7, 8]
    assert other.new_nodes is not None
    assert one.new_nodes is not None
    assert one.new_nodes.num_unknown == other.new_nodes.num_unknown == 1
