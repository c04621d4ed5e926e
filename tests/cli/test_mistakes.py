"""Mistakes of users: one line, the right exit code, nothing left behind, and a remedy that works.

Every mistake is a command that fails and the command that its message leads to, which must succeed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hushgraph.cli.app import main
from mistakes import Change, Mistake, Run, all_of, follow, replace, write

NODES = ["id,age,city,label,split"]
NODES += [
    f"p{n},{20 + n % 7},{('Oslo', 'Bergen')[n % 2]},{n % 2},{('train', 'train', 'val', 'test')[n % 4]}"
    for n in range(24)
]
EDGES = ["source,target"] + [
    f"p{u},p{w}" for n in range(24) for u, w in ((n, (n + 2) % 24), ((n + 2) % 24, n))
]
TRAIN = "train people --ignore city --dry-run"
PLAIN = f"{TRAIN} --non-private"
PRICED = f"{TRAIN} --epsilon 4 --steps 2"


def nodes(old: str, new: str) -> Change:
    return replace("people/nodes.csv", old, new)


def edges(old: str, new: str) -> Change:
    return replace("people/edges.csv", old, new)


def semicolons() -> None:
    for name in ("nodes", "edges"):
        replace(f"people/{name}.csv", ",", ";")()


def copy_run() -> None:
    """Begin a run in a budget, copy its folder and let the first of the two go on."""
    import hushgraph as hg

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    main(["budget", "people.ledger", "--epsilon", "4", "--delta", "0.01"])
    with pytest.raises(KeyboardInterrupt):
        hg.train(
            "people",
            columns={"ignore": ["city"]},
            epsilon=0.5,
            steps=2,
            budget="people.ledger",
            out="one",
            on_start=stop,
        )
    shutil.copytree("one", "two")
    assert main(["train", "people", "--resume", "one", "--quiet"]) == 0


FLAGS = [
    Mistake(f"{TRAIN} --eps 4", "did you mean --epsilon?", f"{TRAIN} --epsilon 4"),
    Mistake(f"{PLAIN} --epochs 5", "did you mean --steps", f"{PLAIN} --steps 5"),
    Mistake(f"{PLAIN} --learning-rate 0.1", "did you mean --lr?", f"{PLAIN} --lr 0.1"),
    Mistake(f"{PRICED} --max-grad-norm 1", "did you mean --clip?", f"{PRICED} --clip 1"),
    Mistake(
        f"{TRAIN} --sigma 2", "did you mean --sigma-over-clip", f"{TRAIN} --sigma-over-clip 32 --steps 2"
    ),
    Mistake(f"{PLAIN} --num-layers 1", "did you mean --layers?", f"{PLAIN} --layers 1"),
    Mistake(f"{PLAIN} --batch 5", "did you mean --batch-size?", f"{PLAIN} --batch-size 5"),
    Mistake(f"{PLAIN} --hidden-channels 8", "did you mean --hidden?", f"{PLAIN} --hidden 8"),
    Mistake(f"{PLAIN} --k 2", "did you mean --max-readers?", f"{PLAIN} --max-readers 2"),
    Mistake(f"{TRAIN} --nonprivate", "did you mean --non-private?", f"{TRAIN} --non-private"),
    Mistake("trian people", "Did you mean 'train'?", f"{PLAIN}"),
    Mistake(f"{PLAIN} --model gnc", "did you mean 'gcn'?", f"{PLAIN} --model gcn"),
    Mistake(f"{PLAIN} --optimizer adm", "did you mean 'adam'?", f"{PLAIN} --optimizer adam"),
    Mistake(f"{PLAIN} --device gpu", "expected 'auto', 'cpu' or 'cuda'", f"{PLAIN} --device cpu"),
    Mistake(f"{TRAIN} --epsilon lots", "--epsilon='lots': expected a number", PRICED),
]
BUDGETS = [
    Mistake(
        TRAIN,
        "no budget: give --epsilon=E or --sigma-over-clip=S, or ask for training without "
        "privacy (--non-private)",
        PRICED,
    ),
    Mistake(f"{TRAIN} --epsilon 0", "--epsilon=0.0: expected a finite number above 0", PRICED),
    Mistake(
        f"{PLAIN} --epsilon 4",
        "--epsilon=4.0 and --non-private: without privacy there is no budget; leave out one",
        PLAIN,
    ),
    Mistake(
        f"{PRICED} --delta 2", "--delta=2.0: expected a number above 0 and below 1", f"{PRICED} --delta 0.01"
    ),
    Mistake(
        f"{TRAIN} --epsilon 4 --paper-noise-multiplier 9 --steps 5",
        "--epsilon=4.0, --paper-noise-multiplier=9.0 and --steps=5: two of them give the third; leave one "
        "out",
        f"{TRAIN} --paper-noise-multiplier 9 --steps 5",
    ),
    Mistake(
        f"{PLAIN} --method billboard --model gcn",
        "--model='gcn' with --method='billboard': applies only to --method='trees'; leave it out, or "
        "use --method='trees'",
        f"{PLAIN} --method trees --model gcn",
    ),
    Mistake(
        "train people --ignore city --epsilon 4 --budget people.ledger",
        "--budget=people.ledger: no such file; set it up with hushgraph budget people.ledger "
        "--epsilon E --delta D",
        "budget people.ledger --epsilon 4 --delta 1e-6",
    ),
    Mistake(
        f"{TRAIN} --epsilon 4 --steps 2 --budget small.ledger",
        "take a smaller epsilon",
        f"{TRAIN} --epsilon 0.5 --steps 2 --budget small.ledger",
        code=3,
        before=all_of(lambda: main(["budget", "small.ledger", "--epsilon", "1", "--delta", "0.01"])),
    ),
    Mistake(
        "train people --resume two",
        "another folder went on with it, or this one is an older copy; go on in the other folder, or give "
        "--charge-again to charge this one as a run of its own",
        "train people --resume two --charge-again",
        before=copy_run,
    ),
    Mistake(
        f"{PLAIN} --charge-again",
        "--charge-again without --resume: a new run is charged anyway; leave it out",
        PLAIN,
    ),
    Mistake(
        "budget new.ledger --epsilon 4",
        "give --delta too, such as 1e-6",
        "budget new.ledger --epsilon 4 --delta 1e-6",
    ),
]
RANGES = [
    Mistake(f"{PLAIN} --steps -1", "--steps=-1: expected at least 0", f"{PLAIN} --steps 1"),
    Mistake(f"{PLAIN} --batch-size 0", "--batch-size=0: expected at least 1", f"{PLAIN} --batch-size 1"),
    Mistake(f"{PLAIN} --batch-size 99", "--batch-size=99: expected at most", f"{PLAIN} --batch-size 12"),
    Mistake(f"{PLAIN} --layers -1", "--layers=-1: expected at least 0", f"{PLAIN} --layers 0"),
    Mistake(f"{PLAIN} --lr 0", "--lr=0.0: expected a number above 0", f"{PLAIN} --lr 0.1"),
    Mistake(f"{PLAIN} --hidden 0", "--hidden=0: expected at least 1", f"{PLAIN} --hidden 1"),
    Mistake(f"{PLAIN} --max-readers -1", "--max-readers=-1: expected at least 0", f"{PLAIN} --max-readers 0"),
    Mistake(f"{PRICED} --clip 0", "--clip=0.0: expected a finite number above 0", f"{PRICED} --clip 1"),
    Mistake(f"{PLAIN} --seed -1", "--seed=-1: expected an integer from 0", f"{PLAIN} --seed 1"),
    Mistake(f"{PLAIN} --split half", "such as '0.6/0.2/0.2'", f"{PLAIN} --split 0.6/0.2/0.2"),
    Mistake(f"{PLAIN} --split 0.9/0.9/0.9", "a sum of at most 1", f"{PLAIN} --split 0.6/0.2/0.2"),
]
FOLDERS = [
    Mistake(f"{PLAIN} --out people", "it holds other files; choose a new folder", f"{PLAIN} --out new"),
    Mistake(f"{PLAIN} --out run", "it holds a run already; resume it", "train people --resume run"),
    Mistake(
        f"{PLAIN} --out file",
        "(it is a file); choose another folder",
        f"{PLAIN} --out other",
        before=write("file", ""),
    ),
    Mistake("train people --resume people", "expected the folder of a run", "train people --resume run"),
    Mistake("train people --resume run --lr 1", "leave out all but --resume", "train people --resume run"),
]
NAMES = [
    Mistake(PLAIN.replace("people", "peopel"), "did you mean 'people'?", PLAIN),
    Mistake(
        "train demmo --dry-run --non-private", "did you mean 'demo'?", "train demo --dry-run --non-private"
    ),
    Mistake(
        "train demo --label y --dry-run --non-private",
        "columns are for tables, and demo is none; leave them out (--label and other flags of tables)",
        "train demo --dry-run --non-private",
    ),
    Mistake(
        "train people/nodes.csv --ignore city --dry-run --non-private",
        "give the edges with --edges",
        "train people/nodes.csv --edges people/edges.csv --ignore city --dry-run --non-private",
    ),
    Mistake(
        "train people/node.csv --edges people/edges.csv --ignore city --dry-run --non-private",
        "no such file",
        "train people/nodes.csv --edges people/edges.csv --ignore city --dry-run --non-private",
    ),
    Mistake(PLAIN.replace("city", "citty"), "did you mean 'city'?", PLAIN),
    Mistake(f"{PLAIN} --label labels", "did you mean 'label'?", f"{PLAIN} --label label"),
    Mistake(PLAIN, "name yours with --id", f"{PLAIN} --id person", before=nodes("id,age", "person,age")),
    Mistake(PLAIN, "name yours with --source", f"{PLAIN} --source from", before=edges("source", "from")),
    Mistake(
        f"{PLAIN} --hash city=4",
        "is given as ignore and as hashed; give it once",
        PLAIN.replace("--ignore city", "--hash city=4"),
    ),
]
CELLS = [
    Mistake(
        "train people --dry-run --non-private",
        "'Oslo' is not a number; correct it, ",
        "train people --hash city=16 --dry-run --non-private",
    ),
    Mistake(PLAIN, "(--fill age=0)", f"{PLAIN} --fill age=0", before=nodes("p3,23,", "p3,,")),
    Mistake(
        PLAIN,
        "(--missing 'NA' --fill age=0)",
        f"{PLAIN} --missing NA --fill age=0",
        before=nodes("p3,23,", "p3,NA,"),
    ),
    Mistake(
        PLAIN,
        "name the classes in order (--classes a,b,c)",
        f"{PLAIN} --classes north,south",
        before=all_of(nodes(",0,", ",north,"), nodes(",1,", ",south,")),
    ),
    Mistake(
        f"{PLAIN} --classes 0",
        "name all classes in order (--classes a,b,c)",
        f"{PLAIN} --classes 0,1",
    ),
    Mistake(
        PLAIN.replace("--ignore city", "--categorical city=Oslo"),
        "(--unknown-category zeros)",
        PLAIN.replace("--ignore city", "--categorical city=Oslo --unknown-category zeros"),
    ),
    Mistake(PLAIN, "(--unknown-ids drop)", f"{PLAIN} --unknown-ids drop", before=edges("p3,p5", "p3,p99")),
    Mistake(PLAIN, "(--unknown-ids drop)", f"{PLAIN} --unknown-ids drop", before=edges("p3,p5", "p3,")),
    Mistake(
        PLAIN,
        "give --split-column fold",
        f"{PLAIN} --split-column fold",
        before=all_of(nodes("split", "fold"), nodes("train", "0"), nodes("val", "1"), nodes("test", "2")),
    ),
    Mistake(
        PLAIN, "count it as empty (--missing)", f"{PLAIN} --missing later", before=nodes(",val", ",later")
    ),
    Mistake(f"{PLAIN} --delimiter |", "leave out --delimiter", PLAIN, before=semicolons),
    Mistake(
        PLAIN,
        "'p4' is the id of line 6 too; expected each id once",
        PLAIN,
        before=nodes("p5,", "p4,"),
        correct=nodes("p4,25,", "p5,25,"),
    ),
    Mistake(f"{PLAIN} --num-classes 1", "raise --num-classes", f"{PLAIN} --num-classes 2"),
    Mistake(
        f"{PLAIN} --fill lots",
        "expected a number, as 0, or a column and one, as COL=0",
        f"{PLAIN} --fill age=0",
    ),
    Mistake(f"{PLAIN} --fill city=0", "give fill to columns of numbers alone", f"{PLAIN} --fill age=0"),
    Mistake(
        f"{PLAIN} --indicators age", "give one, as --fill age=0", f"{PLAIN} --indicators age --fill age=0"
    ),
    Mistake(f"{PLAIN} --unknown-ids keep", "expected 'refuse' or 'drop'", f"{PLAIN} --unknown-ids drop"),
    Mistake(f"{PLAIN} --unknown-category zero", "did you mean 'zeros'?", f"{PLAIN} --unknown-category zeros"),
    Mistake(
        "train people --hash city --dry-run --non-private",
        "as COL=16",
        "train people --hash city=16 --dry-run --non-private",
    ),
    Mistake(
        "train people --categorical city --dry-run --non-private",
        "as COL=A|B",
        "train people --categorical city=Oslo|Bergen --dry-run --non-private",
    ),
    Mistake(
        PLAIN,
        "unknown key 'colums'; did you mean 'columns'?",
        PLAIN,
        before=write("people/graph.toml", "[colums]\n"),
        correct=write("people/graph.toml", "[columns]\n"),
    ),
]
OTHERS = [
    Mistake(
        "predict people people --out p.csv", "expected the folder of a run", "predict run people --out p.csv"
    ),
    Mistake("predict run people --out p.txt", "ends in .csv", "predict run people --out p.csv"),
    Mistake(
        "predict run people --out old.csv",
        "--force",
        "predict run people --out old.csv --force",
        before=write("old.csv", ""),
    ),
    Mistake(
        "predict run people --new --out p.csv",
        "with the training data, and leave out --new",
        "predict run people --out p.csv",
    ),
    Mistake("report runn", "expected the folder of a run", "report run"),
    Mistake("report run --out page.txt", "ends in .html", "report run --out page.html"),
    Mistake(
        "plan --max-readers 3 --epsilon 4",
        "no --train-nodes",
        "plan people --ignore city --epsilon 4 --steps 2",
    ),
    Mistake(
        "plan people --ignore city --train-nodes 9 --epsilon 4 --steps 2",
        "the data says how many; leave it out",
        "plan people --ignore city --epsilon 4 --steps 2",
    ),
    Mistake("check demo", "check reads tables", "plan demo --epsilon 4 --steps 2"),
    Mistake(
        "check people --out old.toml",
        "(--force)",
        "check people --out old.toml --force",
        before=write("old.toml", ""),
    ),
    Mistake(
        "train --config run.toml",
        "unknown key 'eps' (did you mean 'epsilon'?)",
        "train --config run.toml",
        before=write("run.toml", 'data = "people"\nignore = "city"\neps = 4\ndry-run = true\nsteps = 2\n'),
        correct=write(
            "run.toml", 'data = "people"\nignore = "city"\nepsilon = 4\ndry-run = true\nsteps = 2\n'
        ),
    ),
    Mistake(
        "audit people",
        "no --epsilon: expected the epsilon to audit",
        "audit people --ignore city --epsilon 4 --method trees --max-readers 1 --steps 1 --trials 100",
    ),
]
EMPTY = [
    Mistake(f"{PLAIN} {flag} ''", f"{flag}='': it is empty; give a value, or leave it out", PLAIN)
    for flag in ("--classes", "--features", "--label", "--separator", "--delimiter", "--person", "--since")
]
EMPTY += [
    Mistake(f"{PLAIN} --half-life 0", "--half-life=0.0: no column of dates; give --edge-date COLUMN", PLAIN),
    Mistake(
        f"{PLAIN} --places ''", "--places='': expected names of places, a file of them, or hash:N", PLAIN
    ),
    Mistake(
        f"{PLAIN} --places none.txt",
        "--places='none.txt': holds no name; expected at least one place, or hash:N",
        PLAIN,
        before=write("none.txt", "\n"),
    ),
]
PLACES_TO_WRITE = [
    Mistake(
        "compare people --ignore city --epsilon 4 --out people",
        "--out=people: it holds other files; choose a new folder, or an empty one",
        PLAIN,
    ),
    Mistake(
        "budget new/people.ledger --epsilon 4 --delta 1e-6",
        "budget=new/people.ledger: there is no folder new; make it first",
        "budget people.ledger --epsilon 4 --delta 1e-6",
    ),
    Mistake(
        "budget people",
        "budget=people: it is a folder; expected the file of a budget",
        "budget people.ledger --epsilon 4 --delta 1e-6",
    ),
    Mistake(f"{PRICED} --budget .", "--budget=.: it is a folder; expected the file of a budget", PRICED),
    Mistake(
        "audit run --out new/audit.json",
        "--out=new/audit.json: there is no folder new; make it first",
        "audit run --trials 100 --out audit.json",
    ),
    Mistake(
        "audit run --out people",
        "--out=people: it is a folder; expected the name of a file",
        "audit run --trials 100 --out audit.json",
    ),
]
NUMBER = PLAIN.replace("--ignore city", "--label age --ignore label --hash city=4")
NUMBER += " --task number --bounds 20,30"
VALUES = [
    Mistake(
        f"{PLAIN} --label age --task number",
        "--task='number' without bounds: it needs the lowest and the highest number",
        NUMBER,
    ),
    Mistake(
        f"{PLAIN} --label age --bounds 5",
        "--bounds=5.0: --task='number' needs the lowest and the highest number",
        NUMBER,
    ),
    Mistake(
        f"{PLAIN} --bounds 0,100 --positive 1",
        "--bounds=0.0,100.0 with positive: bounds belong to --task='number'",
        f"{PLAIN} --positive 1",
    ),
    Mistake(
        f"{PLAIN} --scale age=40,-15",
        "scale age=40.0,-15.0: expected a centre, a spread above 0 and perhaps log",
        f"{PLAIN} --scale age=40,15",
    ),
    Mistake(
        "train people --hash city=x --dry-run --non-private",
        "--hash=city=x: expected a number of buckets, as city=16",
        "train people --hash city=16 --dry-run --non-private",
    ),
    Mistake(
        f"{PLAIN} --config none.toml",
        "--config=none.toml: cannot be read (No such file or directory); give a TOML file",
        PLAIN,
    ),
    Mistake(f"{PRICED} --secure-noise", "leave it out: exact noise is the only one", PRICED),
    Mistake(
        "report run --audit run/run.json",
        "not the record of an audit (it has no 'attacks'); write one with hushgraph audit RUN --out",
        "report run",
    ),
    Mistake(
        "plan people --ignore city",
        "no budget: give --epsilon=E or --sigma-over-clip=S\n",
        "plan people --ignore city --epsilon 4 --steps 2",
    ),
    Mistake(
        "plan --train-nodes 1000 --num-classes 2 --steps 10",
        "no budget: give --epsilon=E or --sigma-over-clip=S\n",
        "plan --train-nodes 1000 --num-classes 2 --steps 10 --epsilon 4",
    ),
    Mistake(
        "plan --train-nodes 1000 --num-classes 2 --epsilon 4 --steps 10 --sigma-over-clip 3",
        "--epsilon=4.0, --sigma-over-clip=3.0 and --steps=10: two of them give the third; leave one out",
        "plan --train-nodes 1000 --num-classes 2 --epsilon 4 --steps 10",
    ),
    Mistake(
        "check nope",
        "nope: no such file or folder; give a folder of tables, or the table of nodes and --edges",
        "check people",
    ),
]
MISTAKES = [*VALUES, *EMPTY, *PLACES_TO_WRITE, *FLAGS, *BUDGETS, *RANGES, *FOLDERS, *NAMES, *CELLS, *OTHERS]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables and a finished run on them."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "people").mkdir()
    for name, lines in (("nodes", NODES), ("edges", EDGES)):
        (folder / "people" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        line = "train people --ignore city --epsilon 4 --steps 2 --hidden 4 --out run --quiet --device cpu"
        assert main(line.split()) == 0
    return folder


def test_there_are_sixty() -> None:
    assert len({(mistake.line, mistake.before) for mistake in MISTAKES}) >= 60


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.line)
@pytest.mark.usefixtures("own_folder")
def test_a_mistake_and_its_remedy(mistake: Mistake, world: Path, run: Run) -> None:
    follow(mistake, run, world, Path())
