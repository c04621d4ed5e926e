"""`check`: roles of columns, every problem at once, and a proposal that trains."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from hushgraph.datasets import load_graph
from hushgraph.errors import GraphError, InputError, WriteError
from hushgraph.graph.columns import Columns
from messy_tables import write_messy_tables
from two_tables import folder_of

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def people(tmp_path: Path) -> Path:
    return write_messy_tables(tmp_path / "people")


def roles(check: hg.Check) -> dict[str, str]:
    return {column.name: column.looks_like for column in check.columns}


def counts(check: hg.Check) -> dict[str, int]:
    """The counts by a word of the problem."""
    words = (
        "empty",
        "not numbers",
        "not a node",
        "itself",
        "more than once",
        "no label",
        "reverse",
        "infinite",
    )
    return {word: problem.count for word in words for problem in check.problems if word in problem.what}


def test_roles_of_a_messy_table(people: Path) -> None:
    assert roles(hg.check(people, columns={"label": "school"})) == {
        "person": "id",
        "age": "number",
        "income": "number",
        "city": "category",
        "remark": "text",
        "school": "label",
        "part": "split",
        "from": "source",
        "to": "target",
        "weight": "weight",
    }


def test_counts_are_those_of_the_lines(people: Path) -> None:
    check = hg.check(people, columns={"label": "school"})
    nodes = [line.split(",") for line in (people / "nodes.csv").read_text().splitlines()[1:]]
    edges = [tuple(line.split(",")[:2]) for line in (people / "edges.csv").read_text().splitlines()[1:]]
    ids = {row[0] for row in nodes}
    known = [edge for edge in edges if set(edge) <= ids and edge[0] != edge[1]]
    assert counts(check) == {
        "empty": sum(row[1] in ("", "NA") for row in nodes),
        "not numbers": sum(row[2] == "unknown" for row in nodes),
        "not a node": sum(not set(edge) <= ids for edge in edges),
        "itself": sum(edge[0] == edge[1] for edge in edges),
        "more than once": len(known) - len(set(known)),
        "no label": sum(row[5] == "" for row in nodes),
        "reverse": len(set(known)),
    }
    assert check.rows == (len(nodes), len(edges))


def test_the_proposal_is_read_as_it_says(people: Path) -> None:
    check = hg.check(people, columns={"label": "school"})
    check.write()
    graph = load_graph(people, columns=dict(check.declared))
    # Two numbers, and a city hashed to 16 buckets.
    assert (graph.num_features, graph.num_classes) == (18, 2)
    assert graph.clean_up["edges to unknown ids dropped"] == counts(check)["not a node"]
    filled = counts(check)["empty"] + counts(check)["not numbers"]
    assert graph.clean_up["numbers filled"] == filled


def test_the_file_holds_no_value_of_the_data(people: Path) -> None:
    check = hg.check(people, columns={"label": "school"})
    text = check.to_toml()
    tomllib.loads(text)
    for value in ("north", "south", "Oslo", '"unknown"', "p001", "x999", "150", "454", "remark 1"):
        assert value not in text
    assert "north" in check.to_text()
    assert "north" not in repr(check)


def test_rules_are_proposed_whether_or_not_a_row_needs_them(tmp_path: Path) -> None:
    clean = folder_of(
        tmp_path / "clean", "id,age,label,split\na,1,0,train\nb,2,1,test\n", "source,target\na,b\n"
    )
    gaps = folder_of(
        tmp_path / "gaps", "id,age,label,split\na,1,0,train\nb,,1,test\n", "source,target\na,z\n"
    )
    (gaps / "edges.csv").write_text("source,target\na,b\na,z\n")
    assert hg.check(clean).to_toml() == hg.check(gaps).to_toml()


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        ("id,a,label\nx,1,0\nx,2,1\n", "source,target\nx,x\n", "1 row repeats an id.*'x'"),
        ("id,a,label\nx,1,0\n,2,1\n", "source,target\nx,x\n", "1 id is empty.*line 3"),
        ("id,a,label\n", "source,target\n", "the table has no rows"),
        ("id,a,label\nx,1,0\ny,2,1\n", "source,target\nq,r\n", "not a node.*'q'.*such as 'x', 'y'"),
        (
            "id,a,label,split\nx,1,0,later\ny,2,1,train\n",
            "source,target\nx,y\n",
            r"1 cell is none of train.*\('later'\)",
        ),
        (
            "id,a,label,split\nx,1,0,val\ny,2,1,test\n",
            "source,target\nx,y\n",
            "no row is in the training split",
        ),
        ("id,a,kind\nx,1,m\ny,2,m\nz,3,n\nw,4,n\n", "source,target\nx,y\n", "name it with --label: 'kind'"),
        ("id,label\nx,0\ny,1\n", "source,target\nx,y\n", "no column is a feature; .*--hash"),
        ("id,a,label\nx,1e39,0\ny,2,1\n", "source,target\nx,y\n", "no column is a feature"),
        ("id,a,label\nx,1,\ny,2,\n", "source,target\nx,y\n", r"no row has a label; .*--classes a,b"),
        ("id,a,label\nx,1,0\ny,2,0\n", "source,target\nx,y\n", "'0' is the only class; .*--classes a,b"),
        ("id,a,label\nx,1,m\ny,2,m\n", "source,target\nx,y\n", "'m' is the only class"),
    ],
)
def test_what_stops_training(nodes: str, edges: str, words: str, tmp_path: Path) -> None:
    import re

    check = hg.check(folder_of(tmp_path / "people", nodes, edges))
    assert not check.can_train
    stopping = [problem.to_text() for problem in check.problems if problem.stops]
    assert any(re.search(words, text) for text in stopping), stopping


def test_numbers_that_no_feature_can_hold_are_left_out(tmp_path: Path) -> None:
    nodes = "id,a,b,label\nx,1e39,1,0\ny,2,2,1\n"
    check = hg.check(folder_of(tmp_path / "people", nodes, "source,target\nx,y\n"))
    [problem] = [each for each in check.problems if "too large" in each.what]
    assert (problem.count, problem.examples) == (1, ("'1e39'",))
    assert check.can_train
    assert check.to_columns().ignore == ("a",)


def test_a_record_of_two_strangers_is_no_matter_of_the_list_of_places(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "people", "id,a,label\nx,1,0\ny,2,1\n", "source,target\nx,q\nr,s\n")
    for places, remedy in (("hash:8", "dropped: one end has to be a node"), (["q"], "a place of the list")):
        [problem] = [
            each
            for each in hg.check(folder, columns={"places": places}).problems
            if "no declared" in each.what
        ]
        assert problem.count == 1
        assert problem.remedy.startswith("dropped: one end has to be a node")
        assert remedy in problem.remedy
        assert ("--places" in problem.remedy) == (places == ["q"])


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
    nodes = "id,age,label,split\na,inf,0,train\na,,9.5,later\n,x,1,train\n"
    check = hg.check(folder_of(tmp_path / "people", nodes, "source,target\na,z\nz,z\n"))
    assert sum(problem.stops for problem in check.problems) >= 4
    assert {"empty", "not a node"} <= counts(check).keys()


def test_a_split_of_numbers_needs_the_name_of_one(tmp_path: Path) -> None:
    lines = [f"n{n},{n % 3},{n % 3},{n % 2}" for n in range(9)]
    folder = folder_of(
        tmp_path / "people", "id,fold,wheels,label\n" + "\n".join(lines), "source,target\nn1,n2\n"
    )
    assert roles(hg.check(folder)) | {"source": "", "target": ""} == {
        "id": "id",
        "fold": "split",
        "wheels": "number",
        "label": "label",
        "source": "",
        "target": "",
    }


def test_words_make_a_split_whatever_its_name(tmp_path: Path) -> None:
    nodes = "id,role,a,label\nx,Train,1,0\ny,validation,2,1\nz,,3,1\n"
    assert roles(hg.check(folder_of(tmp_path / "people", nodes, "source,target\nx,y\n")))["role"] == "split"


def test_ids_are_found_by_the_edges_that_name_them(tmp_path: Path) -> None:
    nodes = "ssn,nick,age,label\n11,ann,1,0\n12,bob,2,1\n13,cy,3,1\n"
    check = hg.check(folder_of(tmp_path / "people", nodes, "year,a,b\n1,ann,bob\n1,bob,cy\n"))
    words = roles(check)
    assert (words["nick"], words["a"], words["b"]) == ("id", "source", "target")
    assert check.to_columns().id == "nick"


def test_semicolons_are_noticed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "people", "id;a;label\nx;1;0\ny;2;1\n", "source;target\nx;y\n")
    check = hg.check(folder)
    check.write()
    assert load_graph(folder, split="1/0/0").num_edges == 1


def test_a_pair_of_files_gets_a_file_that_names_them(tmp_path: Path) -> None:
    people = write_messy_tables(tmp_path / "a")
    (tmp_path / "b").mkdir()
    edges = (people / "edges.csv").rename(tmp_path / "b" / "links.csv")
    check = hg.check((people / "nodes.csv", edges), columns={"label": "school"})
    assert check.write() == people / "graph.toml" == Path(str(check.data))
    assert load_graph(check.data, columns=dict(check.declared)).num_classes == 2


def test_a_file_that_is_there_is_kept(people: Path) -> None:
    check = hg.check(people)
    check.write()
    with pytest.raises(InputError, match="the file exists; give force"):
        check.write()
    assert check.write(force=True).exists()


@pytest.mark.usefixtures("own_folder")
def test_other_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="check reads tables"):
        hg.check("demo")
    with pytest.raises(GraphError, match="no such file"):
        hg.check(tmp_path / "nodes.csv")
    with pytest.raises(GraphError, match="nope: no such file or folder; give a folder of tables"):
        hg.check(tmp_path / "nope")


RECORDS = "source,target,amount,kind,day\na,b,x,calls,2024-01-02\nb,c,3,pays,today\n"


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (
            {
                "edge_weight": "amount",
                "relation": {"kind": ["calls"]},
                "edge_date": "day",
                "since": "2024-01-01",
            },
            {"amount": "weight", "kind": "relation", "day": "date"},
        ),
        ({"edge_weight": "kind"}, {"amount": "number", "kind": "weight"}),
        ({"edge_weight": "count"}, {"amount": "number"}),
        ({}, {"amount": "weight", "kind": "text", "day": "text"}),
    ],
)
def test_what_is_declared_of_records_is_shown(
    declared: dict[str, Any], words: dict[str, str], tmp_path: Path
) -> None:
    records = RECORDS if "edge_date" in declared else RECORDS.replace("x", "2")
    folder = folder_of(tmp_path / "people", "id,a,label\na,1,0\nb,2,1\nc,3,0\n", records)
    checked = hg.check(folder, columns=declared)
    assert roles(checked).items() >= words.items()
    shown = {column.name: column.holds for column in checked.columns}
    assert all("left out" not in shown[name] for name, word in words.items() if word != "text")


@pytest.mark.parametrize(
    ("cells", "classes", "hint"),
    [
        # Labels that occur alone too are lists, whatever their share.
        (["a;b", "a", "b", "c", "d", "e"], ["a", "b", "c", "d", "e"], "(--task labels)"),
        (["a;b", "c", "d", "e", "f", "g"], ["a;b", "c", "d", "e", "f", "g"], "give --task labels"),
        (["a", "b", "c", "d", "e", "f"], ["a", "b", "c", "d", "e", "f"], ""),
    ],
)
def test_labels_that_look_like_lists(cells: list[str], classes: list[str], hint: str, tmp_path: Path) -> None:
    rows = "".join(f"p{n},{n},{cell}\n" for n, cell in enumerate(cells))
    checked = hg.check(folder_of(tmp_path / "ml", f"id,a,label\n{rows}", "source,target\np0,p1\n"))
    assert checked.declared["classes"] == classes
    assert hint in str(checked)
    assert ("--task labels" in str(checked)) == bool(hint)


def test_frames(people: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frames: Any = tuple(pandas.read_csv(people / f"{name}.csv") for name in ("nodes", "edges"))
    check = hg.check(frames, columns={"label": "school"})
    assert roles(check)["part"] == "split"
    assert check.next_command() == "hg.train(data, epsilon=4.0, columns=checked.to_columns())"
    with pytest.raises(InputError, match="DataFrames have no folder"):
        check.write()
    assert isinstance(check.to_columns(), Columns)
    assert load_graph(frames, columns=check.to_columns()).num_classes == 2


def test_types_of_frames_are_problems_where_training_refuses_them(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    nodes = pandas.DataFrame({"id": [1, 2, 3], "a": [1.0, 2.0, 3.0], "label": [0, 1, 0]})
    nodes = nodes.assign(owner=[[1], [2], [3]], code=[1.0, None, 2.0], tags=[["x"], [], ["y"]])
    # pandas has made floats of the ids, because one is missing.
    edges = pandas.DataFrame({"source": [1.0, 2.0, None], "target": [2, 3, 1], "kind": [1.0, None, 2.0]})
    edges = edges.assign(w=[[1]] * 3)
    columns = {"person": "owner", "hashed": {"code": 4}, "relation": {"kind": ["1"]}, "edge_weight": "w"}
    check = hg.check((nodes, edges), columns=columns)
    assert [
        (each.where.partition("'")[2].strip("'"), each.what) for each in check.problems if each.stops
    ] == [
        ("owner", "given as person, holds INTEGER[]"),
        ("code", "given as hashed, holds DOUBLE"),
        ("w", "given as edge-weight, holds INTEGER[]"),
        ("kind", "given as relation, holds DOUBLE"),
    ]
    assert roles(check)["tags"] == "structure"
    assert "tags" in check.settings["ignore"]
    assert counts(check)["not a node"] == 1


def test_the_command(people: Path, run: Run) -> None:
    code, out, err = run("check", people, "--label", "school")
    assert (code, err) == (0, "")
    assert out.startswith("This shows private data.")
    assert "graph.toml written" in out
    assert f"Next: hushgraph train {people} --epsilon 4 --classes north,south" in out
    code, out, _ = run("check", people, "--label", "school", "--classes", "north,south", "--json")
    assert code == 0
    assert '"private": "This shows private data.' in out


def test_the_command_says_what_stops(tmp_path: Path, run: Run) -> None:
    folder = folder_of(tmp_path / "people", "id,a,label\nx,1,0\nx,2,1\n", "source,target\nx,x\n")
    code, out, err = run("check", folder)
    assert (code, err) == (2, "hushgraph: 1 problem stops training; see above, then run check again\n")
    assert "STOPS TRAINING" in out


def test_findings_are_shown_where_the_file_cannot_be_written(
    people: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: Any) -> None:
        raise WriteError(f"{path}: cannot be written (Permission denied); choose another folder")

    monkeypatch.setattr("hushgraph.datasets.tables.check.write_whole", refuse)
    code, out, err = run("check", people, "--label", "school")
    assert code == 1
    assert "Problems:" in out
    assert "Next: hushgraph train" in out
    assert "written" not in out
    assert err == (
        f"hushgraph: {people}/graph.toml: cannot be written (Permission denied); choose another folder, with "
        "--out graph.toml\n"
    )
    code, out, _ = run("check", people, "--label", "school", "--json")
    findings, failure = map(json.loads, out.splitlines())
    assert (code, failure["exit_code"], findings["can_train"], findings["out"]) == (1, 1, True, None)
