"""Tables from the command line: train, compare, report and predict read the same columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import hushgraph as hg
from hushgraph.datasets import loading as files
from two_tables import folder_of

pytestmark = pytest.mark.usefixtures("own_folder")
Run = Callable[..., tuple[int, str, str]]
SMALL = "--steps 4 --hidden 4 --batch-size 30 --max-readers 1 --device cpu".split()  # noqa: SIM905
CLASSES = ("deep blue", "red, bright", "green")
CITIES = ("Oslo", "Bergen", "")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """120 people with names for ids, a city and a colour; their friends; both with columns of other names."""
    graph = hg.datasets.synthetic(num_nodes=120, num_classes=3, num_features=2, average_degree=4, seed=0)
    ids = [f"p, {number * 7919 % 120:03}" for number in range(120)]
    parts = np.full(120, "", object)
    for name in ("train", "val", "test"):
        parts[getattr(graph, f"{name}_idx")] = name
    rows = [
        (ids[n], *graph.x[n].tolist(), CITIES[n % 3], f"employer {n % 7}", CLASSES[graph.y[n]], parts[n], "?")
        for n in range(120)
    ]
    people, friends = tmp_path / "people.csv", tmp_path / "friends.csv"
    with people.open("w", newline="") as file:
        csv.writer(file).writerows([("person", "f", "g", "city", "job", "colour", "part", "note"), *rows])
    source, target = next(graph.edge_chunks())
    with friends.open("w", newline="") as file:
        ends = ((ids[u], ids[w]) for u, w in zip(source, target, strict=True))
        csv.writer(file).writerows([("from", "to"), *ends])
    return people, friends


FLAGS = (
    *("--id", "person", "--label", "colour", "--source", "from", "--target", "to", "--split-column", "part"),
    *("--ignore", "note", "--categorical", "city=Oslo|Bergen", "--hash", "job=4"),
)


@pytest.fixture
def mapping(pair: tuple[Path, Path]) -> Path:
    people, friends = pair
    text = f"""
nodes = "{people.name}"
edges = "{friends.name}"
[columns]
id = "person"
label = "colour"
source = "from"
target = "to"
split = "part"
ignore = ["note"]
classes = {json.dumps(CLASSES)}
categorical.city = ["Oslo", "Bergen"]
hashed.job = 4
"""
    path = people.parent / "graph.toml"
    path.write_text(text)
    return path


def test_train_report_and_predict_by_a_toml_file(run: Run, mapping: Path, pair: tuple[Path, Path]) -> None:
    code, _, err = run("train", mapping, "--epsilon", 4, *SMALL, "--out", "run")
    assert (code, err) == (0, "")
    about = json.loads(Path("run/run.json").read_text())
    assert about["num_features"] == 2 + 2 + 4
    assert about["columns"]["features"] == ["f", "g"]
    assert about["columns"]["classes"] == list(CLASSES)
    assert run("report", "run", mapping.parent)[0] == 0
    assert json.loads(Path("run/report.json").read_text())["test"]["classes"]
    # The run knows its columns: another pair of tables needs none of the mapping.
    mapping.unlink()
    people, friends = pair
    for name, extra in (("a.csv", ()), ("b.csv", ("--probabilities",)), ("c.npz", ("--probabilities",))):
        assert run("predict", "run", people, "--edges", friends, "--out", name, *extra)[0] == 0
    with people.open(newline="") as file:
        ids = [row["person"] for row in csv.DictReader(file)]
    with open("a.csv", newline="") as file:
        plain = list(csv.DictReader(file))
    with open("b.csv", newline="") as file:
        full = list(csv.DictReader(file))
    assert [row["person"] for row in plain] == ids
    assert {row["class"] for row in plain} <= set(CLASSES)
    assert list(full[0]) == ["person", "class", *(f"p_{name}" for name in CLASSES)]
    for row in full:
        assert row["class"] == max(CLASSES, key=lambda name: float(row[f"p_{name}"]))
    with np.load("c.npz", allow_pickle=False) as found:
        assert found["node"].tolist() == ids
        assert found["class"].tolist() == [row["class"] for row in full]
        assert found["class_names"].tolist() == list(CLASSES)


def test_predicting_needs_neither_label_nor_split(run: Run, mapping: Path, pair: tuple[Path, Path]) -> None:
    assert run("train", mapping, "--epsilon", 4, *SMALL, "--out", "run")[0] == 0
    assert run("predict", "run", mapping, "--out", "all.csv")[0] == 0
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT job, g, f, city, person FROM read_csv('{pair[0]}')) TO 'fewer.parquet'"
        )
    assert run("predict", "run", "fewer.parquet", "--edges", pair[1], "--out", "fewer.csv")[0] == 0
    assert Path("fewer.csv").read_bytes() == Path("all.csv").read_bytes()
    with duckdb.connect() as connection:
        connection.execute("COPY (SELECT * EXCLUDE job FROM 'fewer.parquet') TO 'few.parquet'")
    code, _, err = run("predict", "run", "few.parquet", "--edges", pair[1], "--out", "few.csv")
    assert code == 2
    assert "few.parquet: no column 'job', given as hashed" in err
    assert not Path("few.csv").exists()


def test_predicting_advises_no_flag_that_it_lacks(run: Run, mapping: Path, pair: tuple[Path, Path]) -> None:
    assert run("train", mapping, "--epsilon", 4, *SMALL, "--out", "run")[0] == 0
    people, friends = pair
    text = people.read_text()
    first = text.splitlines()[1].split('",')[1].split(",")[0]
    kept = "(a run keeps the columns of its training)"
    for changed, wanted in (
        (text.replace(first, "NA", 1), f"column 'f': 'NA' is not a number; correct it {kept}"),
        (text.replace(first, "", 1), f"column 'f': empty; expected a number; fill it {kept}"),
        (
            text.replace("Oslo", "Bodo", 1),
            f"'Bodo' is not among its 2 values; correct it or empty the cell {kept}",
        ),
        (text.replace("job", "work", 1), f"no column 'job', given as hashed; add or rename it {kept}"),
    ):
        people.write_text(changed)
        code, _, err = run("predict", "run", people, "--edges", friends, "--out", "p.csv")
        assert (code, wanted in err, "--" in err) == (2, True, False), err


def test_audit_reads_a_pair_of_tables(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"{n},1,{n % 2},train\n" for n in range(40))
    folder_of(tmp_path, f"id,age,label,split\n{rows}", "source,target\n")
    code, _, err = run("audit", "nodes.csv", "--epsilon", 4)
    assert (code, "give the edges with --edges" in err) == (2, True)
    audit = "audit nodes.csv --edges edges.csv --epsilon 4 --steps 1 --trials 20 --json".split()  # noqa: SIM905
    code, out, err = run(*audit)
    assert (code, err, json.loads(out)["source"]) == (0, "", "nodes.csv")


def test_a_run_that_is_not_finished_says_how_to_go_on(run: Run, mapping: Path) -> None:
    assert run("train", mapping, "--epsilon", 4, *SMALL, "--out", "my run")[0] == 0
    Path("my run/weights.safetensors").unlink()
    wanted = "it is not finished; resume it with hushgraph train DATA --resume 'my run'"
    for words in (("report", "my run"), ("predict", "my run", mapping, "--out", "p.csv")):
        code, _, err = run(*words)
        assert (code, wanted in err) == (2, True), err


def test_flags_do_what_the_file_does(
    run: Run, mapping: Path, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    original = files.load_graph

    def load(*arguments: Any, **options: Any) -> Any:
        seen.append(original(*arguments, **options))
        return seen[-1]

    monkeypatch.setattr(files, "load_graph", load)
    assert run("train", mapping, "--epsilon", 4, *SMALL, "--out", "one")[0] == 0
    # A class name with a comma cannot be a flag.
    text = pair[0].read_text().replace('"red, bright"', "red")
    pair[0].write_text(text)
    flags = (*FLAGS, "--classes", "deep blue,red,green")
    mapping.unlink()
    code, _, err = run("train", pair[0], "--edges", pair[1], *flags, "--epsilon", 4, *SMALL, "--out", "two")
    assert (code, err) == (0, "")
    for name in ("indptr", "indices", "x", "y", "train_idx", "val_idx", "test_idx"):
        np.testing.assert_array_equal(getattr(seen[0], name), getattr(seen[1], name))
    assert seen[1].columns == hg.Columns(
        **seen[0].columns.__dict__ | {"classes": ["deep blue", "red", "green"]}
    )


def test_flags_go_before_the_file(run: Run, mapping: Path) -> None:
    flags = ("--features", "g", "--hash", "city=3", "--hash", "job=2")
    assert run("train", mapping, *flags, "--epsilon", 4, *SMALL, "--out", "run")[0] == 0
    columns = json.loads(Path("run/run.json").read_text())["columns"]
    assert (columns["features"], columns["hashed"], columns["categorical"]) == (
        ["g"],
        {"city": 3, "job": 2},
        {},
    )


def test_resuming_reads_the_same_columns(run: Run, mapping: Path, pair: tuple[Path, Path]) -> None:
    assert run("train", mapping, "--epsilon", 4, *SMALL, "--out", "run")[0] == 0
    for name in ("weights.safetensors", "result.json"):
        Path("run", name).unlink()
    mapping.unlink()
    code, _, err = run("train", pair[0], "--resume", "run", "--label", "job")
    assert (code, "--label: a resumed run keeps its settings" in err) == (2, True)
    code, out, err = run("train", pair[0], "--edges", pair[1], "--resume", "run", "--device", "cpu")
    assert (code, err) == (0, "")
    assert "people.csv" in out or "graph.toml" in out


def test_compare_reads_tables(run: Run, mapping: Path, pair: tuple[Path, Path]) -> None:
    code, out, err = run("compare", mapping, "--epsilon", 4, "--steps", 2, "--out", "five", "--json")
    assert (code, err) == (0, "")
    assert len(json.loads(out.splitlines()[-1])["rows"]) == 5
    assert json.loads(Path("five/mlp/run.json").read_text())["columns"]["id"] == "person"
    assert Path("five/report.html").exists()


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (("--categorical", "city"), "categorical='city': expected a column and what it holds, as COL=A|B"),
        (("--hash", "city=many"), "hash=city=many: expected a number of buckets"),
        (("--hash", "city=1"), "hashed city=1: expected 2..1048576 buckets"),
        (("--hash", "city=4", "--hash", "city=5"), "column 'city' was given before"),
        (("--features", "f,,g"), "features holds ''"),
        (("--delimiter", "::"), "delimiter='::': expected one character"),
        (("--id", "Person"), "people.csv line 1: no column 'Person', given as id; did you mean 'person'?"),
        (("--classes", "a,b"), "people.csv line 2, column 'colour'"),
        (("--num-classes", "5"), "--num-classes=5, but classes in "),
        (("--num-classes", "5"), "graph.toml has 3 names; leave out --num-classes"),
        (("--num-classes", "5", "--classes", "a,b"), "--num-classes=5, but classes (--classes) has 2 names"),
    ],
)
def test_mistakes_in_flags(run: Run, mapping: Path, flags: tuple[str, ...], wanted: str) -> None:
    code, out, err = run("train", mapping, "--epsilon", 4, *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert wanted in err
    assert not Path("runs").exists()


def test_columns_are_for_tables(run: Run, tmp_path: Path) -> None:
    code, _, err = run("train", "demo", "--epsilon", 4, "--id", "person")
    assert code == 2
    assert "columns are for tables, and demo is none" in err
    graph = hg.datasets.synthetic(num_nodes=30, num_classes=2)
    with pytest.raises(hg.InputError, match="columns are for tables, and Graph is none"):
        hg.train(graph, epsilon=1.0, columns=hg.Columns())


def test_the_same_from_python(pair: tuple[Path, Path]) -> None:
    columns = hg.Columns(
        id="person",
        label="colour",
        classes=CLASSES,
        split="part",
        source="from",
        target="to",
        ignore=["note"],
        hashed={"city": 4, "job": 4},
    )
    small: dict[str, Any] = {"epsilon": 4.0, "steps": 3, "hidden": 4, "device": "cpu"}
    trained = hg.train(pair, columns=columns, **small)
    assert trained.folder.num_features == 10
    assert trained.predict(pair).shape == (120,)
    assert trained.evaluate(pair) is not None
    classifier = hg.NodeClassifier(columns=columns, **small).fit(pair)
    assert 0 <= classifier.score(pair) <= 1
    # A graph remembers the columns it came from.
    again = hg.train(hg.datasets.load_graph(pair, columns=columns), **small)
    rows = [run.folder.read_raw_graph(pair).x for run in (again, trained)]
    np.testing.assert_array_equal(*rows)
    assert again.plan.num_scaled == trained.plan.num_scaled == 2
