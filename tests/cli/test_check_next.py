"""What `check` prints after "Next:" runs as it is, for tables as people have them, from where the user is."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import hushgraph as hg
from effort import IS_THOROUGH
from hushgraph.datasets import load_graph
from hushgraph.datasets.tables.proposal import FLAGS, format_flags
from hushgraph.graph.columns import Columns
from hushgraph.privacy.guarantee import LOOKED_UP
from hushgraph.settings import TABLE

Run = Callable[..., tuple[int, str, str]]
QUICK = ("--steps", "1", "--hidden", "4", "--device", "cpu", "--out", "run", "--json")
COUNT = 40


@dataclass(frozen=True)
class Tables:
    """Raw tables and how `check` is called on them.

    Attributes:
        call: the words after `check`.
        files: the text of each file.
        proposed: fields of the columns that the run must have.
        looked_up: what was read off rows.
        asked: flags of the task in the next command.
    """

    call: str
    files: dict[str, str]
    proposed: dict[str, Any] = field(default_factory=dict)
    looked_up: tuple[str, ...] = ()
    asked: str = ""


def table(head: list[str], row: Callable[[int], list[Any]], *, delimiter: str = ",") -> str:
    """A table of `COUNT` rows; cells that hold the delimiter or quotes are quoted."""

    def quote(cell: Any) -> str:
        text = str(cell)
        return f'"{text.replace(chr(34), chr(34) * 2)}"' if delimiter in text or '"' in text else text

    rows = [head, *(row(n) for n in range(COUNT))]
    return "\n".join(delimiter.join(map(quote, cells)) for cells in rows) + "\n"


def records(head: str, row: Callable[[int], list[Any]]) -> str:
    """Edges with more columns than their two ends."""
    return "\n".join([head, *(",".join(map(str, row(n))) for n in range(3 * COUNT))]) + "\n"


def links(head: str = "source,target", name: str = "p{}", delimiter: str = ",", more: str = "") -> str:
    ends = [(n, (n * 7 + 3) % COUNT) for n in range(COUNT)]
    lines = [f"{name.format(u)}{delimiter}{name.format(w)}{more}" for u, w in ends]
    return "\n".join([head.replace(",", delimiter), *lines]) + "\n"


PEOPLE = table(["id", "age", "label"], lambda n: [f"p{n}", 20 + n % 9, n % 2])
KINDS: dict[str, Tables] = {
    "the usual names": Tables("t", {"t/nodes.csv": PEOPLE, "t/edges.csv": links()}),
    "semicolons and decimal commas": Tables(
        "t",
        {
            "t/nodes.csv": table(["id", "sum", "label"], lambda n: [f"p{n}", f"{n},5", n % 2], delimiter=";"),
            "t/edges.csv": links(delimiter=";"),
        },
        {"decimal": {"*": ","}},
        ("numbers",),
    ),
    "thousands in some columns and decimal points in others": Tables(
        "t",
        {
            "t/nodes.csv": table(
                ["id", "sum", "rate", "label"], lambda n: [f"p{n}", f"{n + 1}.234,5", f"{n}.25", n % 2]
            ),
            "t/edges.csv": links(),
        },
        {"decimal": {"sum": ","}, "thousands": {"sum": "."}},
        ("numbers",),
    ),
    "thousands with commas, decimals with commas": Tables(
        "t",
        {
            "t/nodes.csv": table(
                ["id", "views", "few", "rate", "label"],
                lambda n: [f"p{n}", f"{n * 97:,}", f"{n * 27:,}", f"{n // 9},{n * 7 % 1000:03}", n % 2],
                delimiter=";",
            ),
            "t/edges.csv": links(),
        },
        {"decimal": {"rate": ","}, "thousands": {"few": ",", "views": ","}},
        ("numbers",),
    ),
    "two files of edges by a pattern": Tables(
        "acc.csv --edges 'tx_*.csv' --label fraud",
        {
            "acc.csv": table(["no", "age", "fraud"], lambda n: [f"p{n}", n, n % 2]),
            "tx_1.csv": links("payer,payee"),
            "tx_2.csv": links("payee,payer", delimiter=";"),
        },
        {"id": "no", "source": "payer", "target": "payee"},
        ("id",),
    ),
    "two files of edges by two flags, and two of nodes": Tables(
        "'acc_?.csv' --edges one.csv --edges two.csv",
        {
            "acc_1.csv": PEOPLE,
            "acc_2.csv": "label,id,age\n1,q1,3\n0,q2,4\n",
            "one.csv": links(),
            "two.csv": links("target,source"),
        },
    ),
    "names with spaces, quotes and letters of other languages": Tables(
        "'my tables/Leute & Co.csv' --edges 'my tables/größte \"Kanten\".csv' --label 'is it \"fraud\"?'",
        {
            "my tables/Leute & Co.csv": table(
                ["Schlüssel", "a,b", 'the "x"', "é=1", "$HOME", 'is it "fraud"?'],
                lambda n: [f"ä {n}", n, n % 5, ["x", "y"][n % 2], f"t {n % 3}", ["ja, klar", "nein"][n % 2]],
            ),
            'my tables/größte "Kanten".csv': links("von wem,nach wem", "ä {}"),
        },
        {"classes": ["ja, klar", "nein"], "hashed": {"é=1": 16, "$HOME": 16}},
        ("id", "roles", "classes"),
    ),
    "ids as numbers, found by the edges": Tables(
        "t --label y",
        {
            "t/nodes.csv": table(["rank", "customer", "y"], lambda n: [n * 3 % COUNT, 1000 + n, n % 2]),
            "t/edges.csv": links("a,b,amount", "10{:02}", more=",5"),
        },
        {"id": "customer", "source": "a", "target": "b"},
        ("id", "ends"),
    ),
    "payments with amounts, kinds and days": Tables(
        "t",
        {
            "t/nodes.csv": PEOPLE,
            "t/edges.csv": records(
                "payer,payee,amount,payment kind,day,memo",
                lambda n: [
                    f"p{n % COUNT}",
                    f"p{n * 7 % COUNT}",
                    -1 if n % 20 == 3 else "nan" if n % 20 == 4 else n + 0.5,
                    ["card", "cash", ""][n % 3],
                    f"2024-01-{n % 28 + 1:02}",
                    f"text {n}",
                ],
            ),
        },
        {"edge_weight": "amount:log1p", "relation": {"payment kind": ["card", "cash"]}},
        ("records",),
        "--edge-weight amount:log1p --relation 'payment kind=card|cash' --looked-up records",
    ),
    "people, and merchants that are no rows": Tables(
        "t",
        {
            "t/nodes.csv": PEOPLE,
            "t/edges.csv": records(
                "source,target", lambda n: [f"p{n % COUNT}", f"shop{n % 9}" if n % 3 else f"p{n * 7 % COUNT}"]
            ),
        },
        {"places": "hash:65536"},
        ("records",),
        "--places hash:65536 --looked-up records",
    ),
    "dates": Tables(
        "t",
        {
            "t/nodes.csv": table(
                ["id", "opened", "seen", "label"],
                lambda n: [
                    f"p{n}",
                    f"{n % 28 + 1:02}.{n % 12 + 1:02}.2020",
                    f"2021-03-{n % 28 + 1:02}",
                    n % 2,
                ],
            ),
            "t/edges.csv": links(),
        },
        {"dates": {"opened": "2000-01-01", "seen": "2000-01-01"}, "date_format": {"opened": "%d.%m.%Y"}},
        ("dates",),
    ),
    "booleans and percentages": Tables(
        "t",
        {
            "t/nodes.csv": table(
                ["id", "active", "share", "label"],
                lambda n: [f"p{n}", ["yes", "No"][n % 2], f"{n}%", ["true", "false"][n % 2]],
            ),
            "t/edges.csv": links(),
        },
        {"booleans": ["active"], "percent": ["share"], "classes": ["false", "true"]},
        ("numbers", "classes"),
    ),
    "missing values": Tables(
        "t",
        {
            "t/nodes.csv": table(
                ["id", "age", "income", "label"],
                lambda n: [
                    f"p{n}",
                    ["", "NA", n][n % 3],
                    "unknown, yet" if n % 20 == 3 else n,
                    ["0", "1", ""][n % 3],
                ],
            ),
            "t/edges.csv": links() + "p1,\np1,x99\n",
        },
        {"fill": {"age": 0.0, "income": 0.0}, "unknown_ids": "drop"},
        ("missing",),
    ),
    "categories, text and integers that are codes": Tables(
        "t",
        {
            "t/nodes.csv": table(
                ["id", "city", "note", "branch code", "label"],
                lambda n: [f"p{n}", ["Oslo", "Bergen"][n % 2], f"note {n}", n % 6, n % 2],
            ),
            "t/edges.csv": links(),
        },
        {"hashed": {"branch code": 16, "city": 16}, "ignore": ["note"]},
        ("roles",),
    ),
    "labels that are numbers from 1": Tables(
        "t --label grade",
        {
            "t/nodes.csv": table(["id", "age", "grade"], lambda n: [f"p{n}", n, n % 3 + 1]),
            "t/edges.csv": links(),
        },
        {"classes": ["1", "2", "3"]},
        ("classes",),
    ),
    "splits under another name": Tables(
        "t",
        {
            "t/nodes.csv": table(
                ["id", "age", "role", "label"],
                lambda n: [f"p{n}", n, ("train", "train", "val", "test")[n % 4], n % 2],
            ),
            "t/edges.csv": links("source,target,kind,when", more=",x,2020-01-01"),
        },
        {"split": "role"},
        ("split",),
    ),
    "values that begin with a dash": Tables(
        "t",
        {
            "t/nodes.csv": table(["id", "age", "label"], lambda n: [f"p{n}", n, ["-a", "-b"][n % 2]]),
            "t/edges.csv": links(),
        },
        {"classes": ["-a", "-b"]},
        ("classes",),
    ),
    "a number to predict": Tables(
        "t --label stay",
        {
            "t/nodes.csv": table(
                ["id", "age", "stay"], lambda n: [f"p{n}", n, "" if n % 9 == 4 else n * 1.5]
            ),
            "t/edges.csv": links(),
        },
        {"label": "stay"},
        ("task",),
        "--task number --bounds private",
    ),
    "a number to predict with decimal commas, below 0 too": Tables(
        "t --label 'log gain'",
        {
            "t/nodes.csv": table(
                ["id", "rate", "log gain"],
                lambda n: [f"p{n}", f"{n}.25", f"{n - 20},5"],
                delimiter=";",
            ),
            "t/edges.csv": links(),
        },
        {"decimal": {"log gain": ","}, "label": "log gain"},
        ("numbers", "task"),
        "--task number --bounds private",
    ),
    "percentages to predict": Tables(
        "t --label 'share sold'",
        {
            "t/nodes.csv": table(["id", "age", "share sold"], lambda n: [f"p{n}", n, f"{n}%"]),
            "t/edges.csv": links(),
        },
        {"percent": ["share sold"]},
        ("numbers", "task"),
        "--task number --bounds private",
    ),
    "a number to predict within bounds that are known": Tables(
        "t --label stay --bounds 0,30",
        {
            "t/nodes.csv": table(["id", "age", "stay"], lambda n: [f"p{n}", n, n * 1.5]),
            "t/edges.csv": links(),
        },
        {"label": "stay"},
        (),
        "--bounds 0,30",
    ),
    "a rare class": Tables(
        "t --label state",
        {
            "t/nodes.csv": table(["id", "age", "state"], lambda n: [f"p{n}", n, ["ok", "bad"][n % 15 == 7]]),
            "t/edges.csv": links(),
        },
        {"classes": ["bad", "ok"]},
        ("classes", "rare"),
        "--positive bad --rare --class-weight ok=0.1",
    ),
    "a rare class that is 1": Tables(
        "t",
        {
            "t/nodes.csv": table(["id", "age", "label"], lambda n: [f"p{n}", n, int(n % 15 == 7)]),
            "t/edges.csv": links(),
        },
        {"classes": None},
        ("rare",),
        "--positive 1 --rare --class-weight 0=0.1",
    ),
    "two classes that the user knows": Tables(
        "t --label state --classes ok,bad --positive bad",
        {
            "t/nodes.csv": table(["id", "age", "state"], lambda n: [f"p{n}", n, ["ok", "bad"][n % 15 == 7]]),
            "t/edges.csv": links(),
        },
        {"classes": ["ok", "bad"]},
        (),
        "--positive bad",
    ),
    "lists of labels": Tables(
        "t --label likes",
        {
            "t/nodes.csv": table(
                ["id", "age", "likes"], lambda n: [f"p{n}", n, ["a|b", "b", "a|c", "c|b", "a"][n % 5]]
            ),
            "t/edges.csv": links(),
        },
        {"classes": ["a", "b", "c"], "separator": "|"},
        ("classes", "task"),
        "--task labels",
    ),
    "tabs in a text file": Tables(
        "people.txt --edges friends.TSV",
        {"people.txt": PEOPLE.replace(",", "\t"), "friends.TSV": links(delimiter="\t")},
    ),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")


def follow(run: Run, out: str, *flags: str) -> dict[str, Any]:
    """Run the command after "Next:" word by word as a shell would; return the JSON of the run."""
    line = next(line for line in out.splitlines() if line.startswith("Next: "))
    program, *words = shlex.split(line.removeprefix("Next: "))
    assert program == "hushgraph"
    code, printed, err = run(*words, *QUICK, *flags)
    assert code == 0, (line, err)
    return dict(json.loads(printed.splitlines()[-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_command_runs(kind: str, run: Run, place: Path) -> None:
    tables = KINDS[kind]
    write(tables.files)
    code, out, err = run("check", *shlex.split(tables.call))
    assert (code, err) == (0, ""), out
    assert f" --epsilon 4{' ' * bool(tables.asked)}{tables.asked}" in out
    result = follow(run, out)
    columns = json.loads(Path("run/run.json").read_text())["columns"]
    assert {name: columns[name] for name in tables.proposed} == tables.proposed
    # What was read off rows is assumed in the guarantee, and nothing else is.
    codes = {each["code"] for each in result["assumptions"]} - {"classes-from-labels"}
    assert codes == {LOOKED_UP[each].code for each in tables.looked_up}


# Where files are is the same question for most kinds: one table, several, and names that need quotes.
ELSEWHERE = [kind for kind in KINDS if kind == "the usual names" or kind.startswith(("two files", "names"))]


@pytest.mark.parametrize("kind", KINDS if IS_THOROUGH else ELSEWHERE)
def test_the_next_command_runs_where_the_file_is_elsewhere_or_kept(kind: str, run: Run, place: Path) -> None:
    tables = KINDS[kind]
    write(tables.files)
    words = shlex.split(tables.call)
    Path("far away").mkdir()
    code, out, err = run("check", *words, "--out", "far away/other.toml")
    assert (code, err) == (0, ""), out
    assert "hushgraph train 'far away/other.toml'" in out
    first = follow(run, out, "--dry-run")
    # A file that is kept leaves it to flags to say the same.
    nodes = Path(words[0])
    beside = (nodes if nodes.is_dir() else nodes.parent) / "graph.toml"
    beside.write_text("[columns]\nfill = 1\n" if nodes.is_dir() else "")
    code, out, err = run("check", *words)
    assert (code, err) == (0, ""), out
    assert "kept; --force replaces it" in out
    second = follow(run, out, "--dry-run")
    keys = ("assumptions", "epsilon", "guarantee")
    assert [first[key] for key in keys] == [second[key] for key in keys]


RULED = [kind for kind in KINDS if {"numbers", "dates", "roles"} & {*KINDS[kind].looked_up}]


@pytest.mark.parametrize("kind", KINDS if IS_THOROUGH else RULED)
def test_check_goes_on_from_the_file_that_it_wrote(kind: str, run: Run, place: Path) -> None:
    tables = KINDS[kind]
    write(tables.files)
    words = shlex.split(tables.call)
    code, out, err = run("check", *words, "--out", "written.toml")
    assert (code, err) == (0, ""), out
    first = follow(run, out, "--dry-run")
    task = [each for flag in ("--bounds", "--classes", "--positive") if flag in words
            for each in (flag, words[words.index(flag) + 1])]  # fmt: skip
    code, out, err = run("check", "written.toml", *task)
    assert (code, err) == (0, ""), out
    second = follow(run, out, "--dry-run")
    keys = ("assumptions", "epsilon", "guarantee")
    assert [first[key] for key in keys] == [second[key] for key in keys]
    # What the file says is not said again.
    assert not {"--decimal", "--thousands", "--percent", "--date-format"} & {*shlex.split(out)}


def test_a_plan_takes_the_flags_of_the_next_command(run: Run, place: Path) -> None:
    tables = KINDS["a rare class"]
    write(tables.files)
    _, out, _ = run("check", *shlex.split(tables.call))
    line = next(line for line in out.splitlines() if line.startswith("Next: hushgraph train "))
    code, out, err = run("plan", *shlex.split(line.removeprefix("Next: hushgraph train ")), "--json")
    assert code == 0, err
    assert json.loads(out.splitlines()[-1])["task"] == "binary"


def test_rules_for_all_columns_stand_alone_in_a_file(run: Run, place: Path) -> None:
    write(
        {
            "t.csv": table(
                ["id", "sum", "born", "label"],
                lambda n: [f"p{n}", f"{n},5", f"{n % 28 + 1:02}.03.1990", n % 2],
                delimiter=";",
            ),
            "e.csv": links(),
            "t.toml": 'nodes = "t.csv"\nedges = "e.csv"\n[columns]\ndecimal = ","\nthousands = "."\n'
            'date_format = "%d.%m.%Y"\n',
        }
    )
    code, out, err = run("check", "t.toml")
    assert (code, err) == (0, ""), out
    assert "--date born=2000-01-01 --looked-up dates" in out
    follow(run, out, "--dry-run")


@pytest.mark.parametrize("thousands", ["'", '{rate = "\'"}'])
def test_thousands_of_a_file_and_of_a_column_go_together(thousands: str, run: Run, place: Path) -> None:
    nodes = table(["id", "views", "rate", "label"], lambda n: [f"p{n}", f"{n * 997:,}", n, n % 2])
    rule = thousands if thousands.startswith("{") else f'"{thousands}"'
    toml = f'nodes = "t.csv"\nedges = "e.csv"\n[columns]\nthousands = {rule}\n'
    write({"t.csv": nodes, "e.csv": links(), "t.toml": toml})
    code, out, err = run("check", "t.toml")
    assert (code, err) == (0, ""), out
    assert "--thousands views=," in out
    follow(run, out, "--dry-run")


@pytest.mark.parametrize(
    ("flags", "ends"),
    [
        ("--source b", ("b", "a")),
        ("--target a", ("b", "a")),
        ("--target b", ("a", "b")),
        ("--source b --target a", ("b", "a")),
        ("", ("a", "b")),
    ],
)
def test_an_end_that_is_given_stays(flags: str, ends: tuple[str, str], place: Path, run: Run) -> None:
    write({"t/nodes.csv": PEOPLE, "t/edges.csv": links("a,b")})
    assert run("check", "t", *flags.split())[0] == 0
    columns = load_graph("t", split="1/0/0").columns
    assert (columns.source, columns.target) == ends


@pytest.mark.parametrize("flag", ["--source", "--target"])
def test_an_end_that_no_column_has_is_a_problem(flag: str, place: Path, run: Run) -> None:
    write({"t/nodes.csv": PEOPLE, "t/edges.csv": links("payer no,payee no,note", more=",x")})
    code, out, _ = run("check", "t", flag, "payer nr")
    assert code == 2
    assert f"no column 'payer nr'; name it with {flag}; did you mean 'payer no'?" in out


def test_classes_of_a_file_are_named_where_a_number_is_asked_for(place: Path, run: Run) -> None:
    toml = '[columns]\nclasses = ["0", "1"]\n'
    write({"t/nodes.csv": PEOPLE, "t/edges.csv": links(), "t/graph.toml": toml})
    code, _, err = run("train", "t", "--bounds", "0,1", "--epsilon", "4", *QUICK)
    assert code == 2
    assert "leave out one: task and bounds, or classes in t/graph.toml" in err


def test_a_percentage_with_other_texts_is_a_number_where_that_is_declared(place: Path, run: Run) -> None:
    nodes = table(["id", "share", "label"], lambda n: [f"p{n}", f"{n}%" if n % 3 else f"no {n}", n % 2])
    write({"t/nodes.csv": nodes, "t/edges.csv": links()})
    _, out, _ = run("check", "t", "--percent", "share")
    assert "column 'share': 14 cells are not numbers" in out


def test_days_of_records_are_found_however_they_are_written(place: Path, run: Run) -> None:
    day = records(
        "source,target,day", lambda n: [f"p{n % COUNT}", f"p{n * 7 % COUNT}", f"{n % 28 + 1}.01.2024"]
    )
    write({"t/nodes.csv": PEOPLE, "t/edges.csv": day})
    _, out, _ = run("check", "t")
    assert "not read; --edge-date day --date-format day=%d.%m.%Y with --since and --until" in out
    code, out, _ = run("check", "t", "--edge-date", "day", "--since", "2024-01-05", "--force")
    assert code == 0
    assert "without a date" not in out
    assert 'day = "%d.%m.%Y"' in Path("t/graph.toml").read_text().replace('"day"', "day")
    follow(run, out, "--dry-run")
    graph = load_graph("t", split="1/0/0")
    # Four days of 28 are too early.
    assert graph.clean_up["edges dropped"] == sum(n % 28 + 1 < 5 for n in range(3 * COUNT))


def test_there_are_twelve_kinds() -> None:
    assert len(KINDS) >= 12


def test_flags_of_fields_are_those_of_the_table() -> None:
    flags = {entry.column: entry.key for entry in TABLE.values() if entry.column is not None}
    assert flags == {name: FLAGS.get(name, name.replace("_", "-")) for name in flags}
    assert format_flags({"fill": {"*": 0.0, "a": 1.5}, "delimiter": "\t", "missing": ["-", "a,b"]}) == [
        "--delimiter tab",
        "--missing '-,\"a,b\"'".replace(" '-", "='-"),
        "--fill 0",
        "--fill a=1.5",
    ]


def test_a_label_of_free_text_is_no_class(place: Path, run: Run) -> None:
    nodes = "id,age,views\n" + "".join(f"p{n},{n},person {n}\n" for n in range(60))
    write({"t/nodes.csv": nodes, "t/edges.csv": links()})
    code, out, _ = run("check", "t", "--label", "views")
    assert code == 2
    assert "60 different values; expected whole numbers from 0, or names of a few" in out
    assert "Next:" not in out


def test_a_label_that_is_a_number_is_said_to_be_one(place: Path, run: Run) -> None:
    nodes = "id,age,days\n" + "".join(f"p{n},{n},{n % 59 * 0.9 + 1}\n" for n in range(120))
    write({"t/nodes.csv": nodes, "t/edges.csv": links()})
    _, out, _ = run("check", "t", "--label", "days")
    assert "59 different numbers from 1 to 53.2: this looks like a number to predict; --task number" in out
    assert "--bounds private, as the next command says, which pays for bounds" in out
    assert "or bin it" in out
    # Bins have names: they are classes again.
    Path("t/nodes.csv").write_text(re.sub(r"[\d.]+$", "short", nodes, flags=re.M).replace("short", "long", 9))
    code, out, _ = run("check", "t", "--label", "days")
    assert code == 0
    assert "--classes long,short" in out


def test_many_classes_from_zero_are_classes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgraph.datasets.tables.label_problems.MOST_CATEGORIES", 20)
    write({"t/nodes.csv": table(["id", "a", "label"], lambda n: [f"p{n}", n, n]), "t/edges.csv": links()})
    assert hg.check("t").can_train


def test_repeated_ids_do_not_make_another_column_the_id(place: Path) -> None:
    """12 rows repeat an id and every name is there once: the ends of edges say where the ids are."""
    nodes = table(
        ["name", "account", "age", "fraud"], lambda n: [f"name {n}", f"p{n if n < 28 else n - 12}", n, n % 2]
    )
    write({"acc.csv": nodes, "tx.csv": links("from account,to account")})
    checked = hg.check(("acc.csv", "tx.csv"), columns={"label": "fraud"})
    assert checked.to_columns().id == "account"
    assert (checked.to_columns().source, checked.to_columns().target) == ("from account", "to account")
    assert [problem.what for problem in checked.problems if problem.stops] == ["12 rows repeat an id"]


def test_names_decide_where_they_are_clear(place: Path) -> None:
    write({"t/nodes.csv": PEOPLE, "t/edges.csv": links()})
    assert hg.check("t").to_columns().looked_up == ()
    # A person who deletes the list, or declares a thing by a flag, assumes nothing.
    columns = Columns(looked_up=["classes", "id"], classes=["0", "1"])
    graph = load_graph("t", columns=columns, split="1/0/0")
    assert graph.columns.looked_up == ("classes", "id")


def test_what_is_looked_up_stands_in_the_file_and_in_the_guarantee(run: Run, place: Path) -> None:
    write(KINDS["dates"].files)
    assert run("check", "t")[0] == 0
    text = Path("t/graph.toml").read_text()
    assert 'looked_up = ["dates"]  # read off the rows' in text
    code, out, _ = run("plan", "t", "--epsilon", "4", "--num-classes", "2", "--json")
    assert code == 0
    clauses = [each["clause"] for each in json.loads(out.splitlines()[-1])["assumptions"]]
    assert clauses == ["the choice of the columns of dates is public"]
    # Declared anew, or known: nothing is assumed.
    Path("t/graph.toml").write_text(text.replace('looked_up = ["dates"]', ""))
    _, out, _ = run("plan", "t", "--epsilon", "4", "--num-classes", "2", "--json")
    assert json.loads(out.splitlines()[-1])["assumptions"] == []


@pytest.mark.parametrize(
    ("flags", "is_assumed"),
    [
        ((), True),
        (("--date", "seen=2021-01-01"), True),
        (("--date", "seen=2021-01-01", "--date", "opened=2020-01-01"), True),
        (
            ("--date", "seen=2021-01-01", "--date", "opened=2020-01-01", "--date-format", "opened=%d.%m.%Y"),
            False,
        ),
    ],
)
def test_what_flags_leave_is_still_looked_up(
    flags: tuple[str, ...], is_assumed: bool, run: Run, place: Path
) -> None:
    write(KINDS["dates"].files)
    assert run("check", "t")[0] == 0
    _, out, err = run("plan", "t", "--epsilon", "4", "--num-classes", "2", "--json", *flags)
    codes = [each["code"] for each in json.loads(out.splitlines()[-1])["assumptions"]]
    assert codes == ["dates-looked-up"] * is_assumed, err


def test_every_kind_has_one_assumption() -> None:
    from hushgraph.graph import cell_rules

    assert LOOKED_UP.keys() == cell_rules.LOOKED_UP.keys()
    assert len({each.code for each in LOOKED_UP.values()}) == len(LOOKED_UP)
    assert all(
        each.clause.startswith("the ") and each.clause.endswith(" is public") for each in LOOKED_UP.values()
    )


def test_several_names_of_nodes_are_in_the_file(place: Path) -> None:
    write(KINDS["two files of edges by two flags, and two of nodes"].files)
    checked = hg.check((["acc_1.csv", "acc_2.csv"], ["one.csv", "two.csv"]))
    path = checked.write("all.toml")
    assert load_graph(path, split="1/0/0").num_nodes == COUNT + 2
    with pytest.raises(hg.InputError, match=r"expected a name that ends in \.toml"):
        checked.write("all.txt")
    with pytest.raises(hg.InputError, match="no folder nowhere; create it first"):
        checked.write("nowhere/all.toml")


def test_what_records_hold_is_listed_at_once_with_the_flag_for_each(place: Path, run: Run) -> None:
    write(KINDS["payments with amounts, kinds and days"].files)
    code, out, _ = run("check", "t")
    assert code == 0
    for wanted in (
        "column 'amount': says how much a record counts; read so by the next command (--edge-weight amount:",
        "column 'amount': 6 records without a finite weight ('nan', 'nan', 'nan', ...); counted as 0",
        "column 'amount': 6 records with a weight below 0 ('-1', '-1', '-1', ...); counted as 0",
        "column 'payment kind': says of which of 2 kinds a record is; read so by the next command",
        "column 'payment kind': 40 records of a relation that is not declared (empty, empty, empty, ...)",
        "column 'day': says when a record was made; not read; --edge-date day with --since and --until",
        "column 'memo': one more column; not read",
    ):
        assert wanted in out, out
    # The remedy of dates, as printed, with days.
    follow(run, out, "--edge-date", "day", "--since", "2024-01-05", "--until", "2024-01-20")


def test_kinds_are_those_of_records_between_people(place: Path, run: Run) -> None:
    def record(n: int) -> list[Any]:
        kind = ("call", "pay", "login")[n % 3]
        return [f"p{n % COUNT}", f"phone{n % 9}" if kind == "login" else f"p{n * 7 % COUNT}", kind]

    write({"t/nodes.csv": PEOPLE, "t/edges.csv": records("source,target,kind", record)})
    code, out, _ = run("check", "t")
    assert code == 0
    assert "of which of 2 kinds a record is; read so by the next command (--relation 'kind=call|pay')" in out
    # Records of places are read whatever their kind, so that none is said to be dropped.
    assert "not declared" not in out
    follow(run, out, "--dry-run")
    graph = load_graph(
        "t", columns={"relation": {"kind": ["call", "pay"]}, "places": "hash:64"}, split="1/0/0"
    )
    assert graph.clean_up["records of undeclared relations dropped"] == 0


def test_a_declared_list_of_places_lists_what_it_lacks(place: Path, run: Run) -> None:
    write(KINDS["people, and merchants that are no rows"].files | {"shops.txt": "shop1\nshop2\n"})
    code, out, _ = run("check", "t", "--places", "shops.txt")
    assert code == 0
    assert "edges that name no declared place ('shop4'" in out
    assert "dropped: one end has to be a node, and the other a place of the list (--places)" in out
    assert "Next:" in out
    assert run("train", "t", "--places", "shops.txt", "--epsilon", "4", "--num-classes", "2", *QUICK)[0] == 0
    # The file that is kept does not have them, so that the command names the file of places.
    write({"t/graph.toml": ""})
    _, out, _ = run("check", "t", "--places", "shops.txt")
    assert "--places shops.txt" in out
    shutil.rmtree("run")
    follow(run, out, "--dry-run")


def test_a_few_unknown_ends_are_no_places(place: Path, run: Run) -> None:
    write({"t/nodes.csv": PEOPLE, "t/edges.csv": links() + "p1,typo\np2,typo\np3,other\n"})
    _, out, _ = run("check", "t")
    assert "3 edges with an end that is not a node ('typo', 'typo', 'other'); dropped" in out
    assert "--places" not in out


def test_columns_to_ignore_may_be_given_in_several_flags(place: Path, run: Run) -> None:
    nodes = table(["id", "age", "note", "mark", "label"], lambda n: [f"p{n}", n, f"a{n}", f"b {n}", n % 2])
    write({"t/nodes.csv": nodes, "t/edges.csv": links(), "t.toml": 'ignore = "note,mark"\n'})
    for flags in (
        ["--ignore", "note", "--ignore", "mark"],
        ["--ignore", "note,mark"],
        ["--config", "t.toml"],
    ):
        code, _, err = run("train", "t", "--epsilon", "4", "--num-classes", "2", "--dry-run", *flags, *QUICK)
        assert code == 0, err
